# Block device images: ours (./argonaut rbd) and upstream's (rbd), each with what the other made.
pool=rbd-$SUITE-$MODE
secure=; [ "$MODE" = secure ] && secure=--secure
our() { ./argonaut rbd -c "$CEPH_CONF" $secure --no-progress "$@"; }
fails() { if "$@" 2>/dev/null; then echo "should have failed: $*"; exit 1; fi; }
tmp=$(mktemp -d); trap 'rm -rf $tmp' EXIT
ceph osd pool create "$pool" 8 >/dev/null 2>&1
rbd pool init "$pool"
noise() { head -c "$1" /dev/urandom; }

# Ours, read by theirs.
our create "$pool/a" -s 40M
rbd info "$pool/a" | grep -q 'features: layering, exclusive-lock, object-map, fast-diff, deep-flatten'
[ "$(our ls "$pool")" = a ] && [ "$(rbd ls "$pool")" = a ]
noise 9000000 > $tmp/f; truncate -s 40M $tmp/f
noise 5000 | dd of=$tmp/f bs=1 seek=30000000 conv=notrunc status=none
our import $tmp/f "$pool/b"
rbd export --no-progress "$pool/b" - | cmp - $tmp/f
rbd object-map check --no-progress "$pool/b"
our export "$pool/b" - | cmp - $tmp/f
our import - "$pool/c" < $tmp/f
rbd export --no-progress "$pool/c" - | cmp - $tmp/f

# Theirs, read by ours; striped too.
rbd import --no-progress $tmp/f "$pool/d" --object-size 1M --stripe-unit 64K --stripe-count 4
our export "$pool/d" $tmp/d && cmp $tmp/d $tmp/f
our info "$pool/d" | grep -q 'stripe count: 4'
our create "$pool/e" -s 40M --object-size 1M --stripe-unit 64K --stripe-count 4
our import $tmp/f "$pool/e2" --object-size 1M --stripe-unit 64K --stripe-count 4
rbd export --no-progress "$pool/e2" - | cmp - $tmp/f

# Snapshots and differences, both ways.
our snap create "$pool/b@s1"
rbd snap ls "$pool/b" | grep -q s1
rbd bench --io-type write --io-size 4K --io-total 400K --io-pattern rand "$pool/b" >/dev/null
rbd object-map check --no-progress "$pool/b"
rbd snap create --no-progress "$pool/b@s2" 2>/dev/null || rbd snap create "$pool/b@s2"
our bench "$pool/b" --io-size 64K --io-total 2M --io-pattern rand >/dev/null
rbd object-map check --no-progress "$pool/b"
rbd object-map check --no-progress "$pool/b@s1"
rbd object-map check --no-progress "$pool/b@s2"
our export "$pool/b@s1" - | cmp - $tmp/f
for from in s1 s2; do
  rbd diff --format json --from-snap $from "$pool/b" > $tmp/theirs
  our diff --json --from-snap $from "$pool/b" > $tmp/ours
  python3 - $tmp/theirs $tmp/ours <<'P'
import json, sys
def covered(path):
    runs = sorted((e['offset'], e['offset'] + e['length'], e['exists'] in (True, 'true')) for e in json.load(open(path)))
    out = []
    for a, b, x in runs:
        if out and out[-1][1] == a and out[-1][2] == x: out[-1][1] = b
        else: out.append([a, b, x])
    return out
a, b = covered(sys.argv[1]), covered(sys.argv[2])
assert a == b, (a, b)
P
done
rbd du --format json "$pool/b" > $tmp/theirs; our du --json "$pool/b" > $tmp/ours
python3 - $tmp/theirs $tmp/ours <<'P'
import json, sys
use = lambda p: sorted((i.get('snapshot', ''), i['provisioned_size'], i['used_size']) for i in json.load(open(p))['images'])
assert use(sys.argv[1]) == use(sys.argv[2]), (use(sys.argv[1]), use(sys.argv[2]))
P
rbd export --no-progress "$pool/b" $tmp/b
rbd export --no-progress "$pool/b@s1" $tmp/b1
our export-diff "$pool/b@s1" $tmp/d1
our export-diff "$pool/b@s2" --from-snap s1 $tmp/d2
rbd export-diff --no-progress "$pool/b" --from-snap s2 $tmp/d3
rbd create "$pool/x" -s 40M
rbd import-diff --no-progress $tmp/d1 "$pool/x"
rbd import-diff --no-progress $tmp/d2 "$pool/x"
our import-diff $tmp/d3 "$pool/x"
our export "$pool/x" - | cmp - $tmp/b
our export "$pool/x@s1" - | cmp - $tmp/b1
rbd object-map check --no-progress "$pool/x"
fails our import-diff $tmp/d1 "$pool/x"
our export --export-format 2 "$pool/b" $tmp/v2
rbd import --no-progress --export-format 2 $tmp/v2 "$pool/y"
rbd export --no-progress "$pool/y" - | cmp - $tmp/b
rbd export --no-progress "$pool/y@s1" - | cmp - $tmp/b1
rbd export --no-progress --export-format 2 "$pool/b" $tmp/v2t
our import --export-format 2 $tmp/v2t "$pool/z"
our export "$pool/z@s1" - | cmp - $tmp/b1
rbd object-map check --no-progress "$pool/z"
our snap rollback "$pool/z@s1"
rbd export --no-progress "$pool/z" - | cmp - $tmp/f
rbd object-map check --no-progress "$pool/z"
our snap rm "$pool/z@s1"
rbd snap rm --no-progress "$pool/z@s2"
rbd object-map check --no-progress "$pool/z"

# Clones of both kinds; copied up by either.
our snap protect "$pool/b@s1"
fails rbd snap rm --no-progress "$pool/b@s1"
for kind in 1 2; do
  our clone --clone-format $kind "$pool/b@s1" "$pool/k$kind"
  rbd info "$pool/k$kind" | grep -q "parent: $pool/b@s1"
  rbd --rbd-default-clone-format $kind clone "$pool/b@s1" "$pool/t$kind"
  our info "$pool/t$kind" | grep -q "parent: $pool/b@s1"
  for i in k$kind t$kind; do
    rbd export --no-progress "$pool/$i" - | cmp - $tmp/f
    our export "$pool/$i" - | cmp - $tmp/f
    our snap create "$pool/$i@before"
    our bench "$pool/$i" --io-size 8K --io-total 160K --io-pattern rand >/dev/null
    rbd bench --io-type write --io-size 4K --io-total 80K --io-pattern rand "$pool/$i" >/dev/null
    rbd export --no-progress "$pool/$i@before" - | cmp - $tmp/f
    our export "$pool/$i@before" - | cmp - $tmp/f
    rbd export --no-progress "$pool/$i" $tmp/one
    our export "$pool/$i" - | cmp - $tmp/one
    rbd object-map check --no-progress "$pool/$i"
    rbd object-map check --no-progress "$pool/$i@before"
    rm $tmp/one
  done
done
[ "$(our children "$pool/b@s1" | sort | tr '\n' ' ')" = "$pool/k1 $pool/k2 $pool/t1 $pool/t2 " ]
[ "$(rbd children "$pool/b@s1" | sort | tr '\n' ' ')" = "$pool/k1 $pool/k2 $pool/t1 $pool/t2 " ]
fails our snap unprotect "$pool/b@s1"
our export "$pool/k1" $tmp/k1; our export "$pool/t2" $tmp/t2
our flatten "$pool/k1"; our flatten "$pool/t2"; rbd flatten --no-progress "$pool/k2"
rbd export --no-progress "$pool/k1" - | cmp - $tmp/k1
rbd export --no-progress "$pool/t2" - | cmp - $tmp/t2
rbd export --no-progress "$pool/k1@before" - | cmp - $tmp/f
rbd object-map check --no-progress "$pool/k1"
our snap rm "$pool/t1@before"; our rm "$pool/t1"
our snap unprotect "$pool/b@s1"

# Sizes, names, the trash.
our resize "$pool/b" -s 60M
rbd info "$pool/b" | grep -q 'size 60 MiB in 15 objects'
rbd object-map check --no-progress "$pool/b"
fails our resize "$pool/b" -s 10M
our resize "$pool/b" -s 10000000 --allow-shrink
rbd export --no-progress "$pool/b" - | cmp - <(head -c 10000000 $tmp/b)
rbd object-map check --no-progress "$pool/b"
our rename "$pool/b" "$pool/renamed"
rbd info "$pool/renamed" >/dev/null; fails rbd info "$pool/b"
fails our rename "$pool/renamed" "$pool/a"
fails our create "$pool/a" -s 1M
fails our rm "$pool/renamed"
our trash mv "$pool/c"
id=$(rbd trash ls "$pool" | cut -d' ' -f1)
our trash restore "$pool/$id"
rbd trash mv "$pool/c"
our trash rm "$pool/$id"
[ -z "$(rbd trash ls "$pool")" ]

# Who has the lock gives it up when asked, and loses it when gone.
rbd bench --io-type write --io-size 4K --io-threads 1 --io-total 1G --io-pattern rand "$pool/x" >/dev/null 2>&1 & bench=$!
sleep 2; our bench "$pool/x" --io-size 4K --io-total 40K >/dev/null
kill -0 $bench; kill -9 $bench; wait $bench 2>/dev/null || true
our bench "$pool/x" --io-size 4K --io-total 40K >/dev/null
rbd object-map check --no-progress "$pool/x"

for i in a d e e2 y z x; do rbd snap purge --no-progress "$pool/$i"; our rm "$pool/$i"; done
for i in k1 k2 t2 renamed; do our snap purge "$pool/$i"; rbd rm --no-progress "$pool/$i"; done
[ -z "$(rbd ls "$pool")" ] && [ -z "$(our ls "$pool")" ]
rados -p "$pool" ls > $tmp/left
fails grep -E 'rbd_(data|header|object_map|id)' $tmp/left
ceph osd pool rm "$pool" "$pool" --yes-i-really-really-mean-it >/dev/null 2>&1
