# What the manager does with images: schedules, figures of their use. Env: SUITE, MODE.
# The long part, which waits for a whole minute, is the newest client's alone.
[ "$MODE" = crc ] || exit 0
pool=images-$SUITE
fails() { if "$@" 2>/dev/null; then echo "should have failed: $*"; exit 1; fi; }
tmp=$(mktemp -d); trap 'rm -rf $tmp' EXIT
ceph osd pool create "$pool" 8 >/dev/null 2>&1
rbd pool init "$pool"
rbd namespace create "$pool/ns"

# Schedules for the trash, kept and shown.
rbd trash purge schedule add -p "$pool" 1h
rbd trash purge schedule add -p "$pool" 2d 14:00:00-05:00
rbd trash purge schedule add -p "$pool" --namespace ns 15m
fails rbd trash purge schedule add -p "$pool" 1w
fails rbd trash purge schedule add -p nowhere 1h
[ "$(rbd trash purge schedule ls -p "$pool")" = "every 1h, every 2d starting at 14:00:00-05:00" ]
rbd trash purge schedule ls -p "$pool" -R > $tmp/ls
grep -Eq "^$pool +ns +every 15m" $tmp/ls
rbd trash purge schedule status -p "$pool" --format json > $tmp/status
python3 - $tmp/status "$pool" <<'P'
import json, sys, datetime as d
all = json.load(open(sys.argv[1]))
assert {(s['pool'], s['namespace']) for s in all} == {(sys.argv[2], ''), (sys.argv[2], 'ns')}, all
now = d.datetime.now(d.timezone.utc).replace(tzinfo=None)
for s in all:
    at = d.datetime.strptime(s['schedule_time'], '%Y-%m-%d %H:%M:%S')
    most = 15 if s['namespace'] else 60
    assert d.timedelta(0) <= at - now + d.timedelta(minutes=1) <= d.timedelta(minutes=most + 1), (at, now)
P
rados -p "$pool" listomapkeys rbd_trash_purge_schedule > $tmp/keys
[ "$(wc -l < $tmp/keys)" = 2 ] && grep -q '^[0-9]*/ns$' $tmp/keys
rbd trash purge schedule rm -p "$pool" 2d 14:00:00-05:00
[ "$(rbd trash purge schedule ls -p "$pool")" = "every 1h" ]
rbd trash purge schedule rm -p "$pool" --namespace ns
rbd trash purge schedule rm -p "$pool"
[ -z "$(rbd trash purge schedule ls -p "$pool")" ]

# Mirror snapshots: the pool's mode first, then the image's.
rbd create "$pool/m" -s 16M
rbd mirror pool enable "$pool" image >/dev/null
fails rbd mirror snapshot schedule add -p "$pool" --image m 1h
rbd mirror pool peer add "$pool" client.nobody@elsewhere >/dev/null
rbd mirror image enable "$pool/m" snapshot >/dev/null
rbd mirror snapshot schedule add -p "$pool" --image m 1h
[ "$(rbd mirror snapshot schedule ls -p "$pool" --image m)" = "every 1h" ]
rbd mirror snapshot schedule status -p "$pool" | grep -q "$pool/m"

if [ "$SUITE" = forky ]; then
  # A minute's wait for all that comes once a minute.
  count() { rbd snap ls --all "$pool/m" | grep -c '\.mirror\.primary\.' || true; }
  before=$(count)
  rbd mirror snapshot schedule add -p "$pool" --image m 1m
  rbd create "$pool/gone" -s 8M; rbd trash mv "$pool/gone"
  rbd create "$pool/kept" -s 8M; rbd trash mv --expires-at 'tomorrow' "$pool/kept"
  rbd trash purge schedule add 1m
  [ "$(rbd trash purge schedule ls)" = "every 1m" ]
  ceph config get mgr mgr/rbd_support/trash_purge_schedule | grep -q 1m

  # Meanwhile: what images are used for.
  rbd create "$pool/busy" -s 64M; rbd create "$pool/idle" -s 64M
  timeout 40 rbd bench --io-type write --io-size 4K --io-threads 2 --io-total 4G --io-pattern rand "$pool/busy" >/dev/null 2>&1 & bench=$!
  # The first answers come before anything was counted.
  for _ in 1 2 3 4; do
    timeout 30 rbd perf image iostat --format json "$pool" > $tmp/stat
    grep -q busy $tmp/stat && break; sleep 3
  done
  sleep 5; timeout 30 rbd perf image iostat --format json "$pool" > $tmp/stat
  timeout 30 rbd perf image iostat --iterations 1 "$pool" | grep -Eq '^busy +[0-9]+.*/s'
  python3 - $tmp/stat <<'P'
import json, sys
used = {i['image']: i for i in json.load(open(sys.argv[1]))}
assert 'idle' not in used, used
busy = used['busy']
assert busy['write_ops'] > 10 and busy['write_latency'] > 1000, busy
assert abs(busy['write_bytes'] / busy['write_ops'] - 4096) < 200, busy
P
  kill $bench 2>/dev/null || true; wait $bench 2>/dev/null || true

  for _ in $(seq 70); do
    rbd trash ls "$pool" > $tmp/trash
    [ "$(count)" -gt "$before" ] && ! grep -q gone $tmp/trash && break
    sleep 1
  done
  [ "$(count)" -gt "$before" ]
  grep -q kept $tmp/trash; fails grep -q gone $tmp/trash
  # It is complete, and what a peer needs to know of the image is there.
  rbd snap ls --all --format json "$pool/m" > $tmp/snaps
  python3 - $tmp/snaps <<'P'
import json, sys
mirror = [s['namespace'] for s in json.load(open(sys.argv[1])) if s['namespace']['type'] == 'mirror']
assert all(m['complete'] and m['state'] == 'primary' and len(m['mirror_peer_uuids']) == 1 for m in mirror[1:]), mirror
P
  rados -p "$pool" ls | grep -q rbd_mirror_snapshot
  rbd trash purge schedule rm
  rbd mirror snapshot schedule rm -p "$pool" --image m 1m
fi
rbd mirror snapshot schedule rm -p "$pool" --image m

# Migrations: all of it beside librbd, by the newest client.
[ "$SUITE" != forky ] || python3 migrate.py "$pool"
ceph osd pool rm "$pool" "$pool" --yes-i-really-really-mean-it >/dev/null 2>&1
