# Images as network block devices, by the tools of the newest root. Env: SUITE, MODE.
command -v nbdinfo >/dev/null || exit 0
pool=nbd-$SUITE-$MODE
secure=; [ "$MODE" = secure ] && secure=--secure
our() { ./argonaut rbd -c "$CEPH_CONF" $secure --no-progress "$@"; }
tmp=$(mktemp -d)
cleanup() { [ -z "${served:-}" ] || kill $served 2>/dev/null || true; rm -rf $tmp; }
trap cleanup EXIT
# set -e passes over commands behind an exclamation mark.
fails() { if "$@" 2>/dev/null; then echo "should have failed: $*"; exit 1; fi; }
serve() {
  : > $tmp/uris # what an earlier one said is no answer
  ./argonaut rbd -c "$CEPH_CONF" $secure serve "$@" > $tmp/uris & served=$!
  for _ in $(seq 100); do [ -s $tmp/uris ] && break; sleep 0.1; done
  uri=$(head -1 $tmp/uris)
}
stop() { kill $served; wait $served; served=; }
ceph osd pool create "$pool" 8 >/dev/null 2>&1
rbd pool init "$pool"
our create "$pool/disk" -s 64M
our create "$pool/other" -s 8M
head -c 20000000 /dev/urandom > $tmp/f; truncate -s 64M $tmp/f

serve "$pool/disk" "$pool/other" --unix $tmp/sock
nbdinfo --list "nbd+unix:///?socket=$tmp/sock" > $tmp/list
grep -q "export=\"$pool/disk\"" $tmp/list; grep -q "export=\"$pool/other\"" $tmp/list
nbdinfo "$uri" > $tmp/info
grep -q 'export-size: 67108864' $tmp/info; grep -q 'can_multi_conn: true' $tmp/info
grep -q 'base:allocation' $tmp/info; grep -q 'is_read_only: false' $tmp/info
fails nbdinfo "nbd+unix:///none?socket=$tmp/sock"
fails nbdinfo "nbds+unix:///?socket=$tmp/sock"
nbdcopy $tmp/f "$uri"
nbdcopy "$uri" - | cmp - $tmp/f
nbdinfo --map "$uri" | grep -q 'hole,zero'
qemu-img compare -f raw -F raw $tmp/f "$uri"
qemu-img info "$uri" | grep -q '64 MiB'
qemu-io -f raw "$uri" -c 'write -P 7 1000 5000' -c 'write -f -P 8 8388608 65536' -c 'flush' \
  -c 'discard 16777216 4194304' -c 'write -z 4096 4096' -c 'read -P 7 1000 3096' -c 'read -P 0 4096 4096' \
  -c 'read -P 0 16777216 4194304' > $tmp/io
fails grep -i 'fail\|error' $tmp/io
# Zeros that must be fast are holes; zeros that must keep their space are written.
qemu-io -f raw "$uri" -c 'write -P 5 20971520 8388608' -c 'write -z -u -n 20971520 4194304' -c 'write -z 25165824 4194304' \
  -c 'read -P 0 20971520 8388608' > $tmp/io
fails grep -i 'fail\|error' $tmp/io
nbdinfo --map "$uri" | awk '$1 <= 20971520 && $1 + $2 >= 25165824 && $4 ~ /hole/ {h = 1} $1 <= 25165824 && $1 + $2 >= 29360128 && $3 == 0 {d = 1} END {exit !(h && d)}'
# A snapshot by upstream's tool: it asks for the lock, the server gives it and goes on.
rbd snap create --no-progress "$pool/disk@s" 2>/dev/null || rbd snap create "$pool/disk@s"
qemu-io -f raw "$uri" -c 'write -P 9 0 4096' -c 'read -P 9 0 4096' > $tmp/io
fails grep -i 'fail\|error' $tmp/io
rbd resize --no-progress "$pool/disk" -s 80M
nbdinfo --size "$uri" | grep -qx 83886080
fio --name=v --ioengine=nbd --uri="$uri" --rw=randwrite --bs=4k --size=8M --iodepth=16 --verify=crc32c \
  --do_verify=1 --verify_fatal=1 --output=$tmp/fio || { grep -q 'engine nbd not loadable' $tmp/fio; echo "fio here has no nbd engine"; }
nbdcopy "$uri" $tmp/last
stop
rbd export --no-progress "$pool/disk" - | cmp - $tmp/last
rbd object-map check --no-progress "$pool/disk"
rbd status "$pool/disk" | grep -q 'Watchers: none'

# A snapshot, by TCP: read-only.
port=$((20000 + RANDOM % 10000))
serve "$pool/disk@s" --listen 127.0.0.1:$port
nbdinfo "$uri" | grep -q 'is_read_only: true'
nbdcopy "$uri" - | cmp - <(rbd export --no-progress "$pool/disk@s" -)
fails nbdcopy $tmp/f "$uri"
stop
# TLS: the certificate must be there, right, and the client's own where it is asked for.
pki=$tmp/pki; mkdir -p $pki/clients $pki/nobody
sign() { # NAME DIR EXTENSIONS
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$1" -keyout $2-key.pem -out $tmp/csr 2>/dev/null
  openssl x509 -req -in $tmp/csr -days 2 -CA $pki/ca-cert.pem -CAkey $tmp/ca.key -CAcreateserial -out $2-cert.pem \
    -extfile <(printf "$3") 2>/dev/null
}
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=authority \
  -keyout $tmp/ca.key -out $pki/ca-cert.pem 2>/dev/null
sign localhost $pki/server 'subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth'
sign client $pki/clients/client 'extendedKeyUsage=clientAuth'
cp $pki/ca-cert.pem $pki/clients; cp $pki/ca-cert.pem $pki/nobody
fails our serve "$pool/disk" --tls-certificates $tmp/none
serve "$pool/disk" --listen 127.0.0.1:$port --tls-certificates $pki --tls-verify-peer
secure_uri="nbds://localhost:$port/$pool/disk"
[ "$uri" = "nbds://127.0.0.1:$port/$pool/disk" ]
fails nbdinfo "nbd://localhost:$port/$pool/disk"
fails nbdinfo "$secure_uri?tls-certificates=$pki/nobody"
nbdinfo "$secure_uri?tls-certificates=$pki/clients" > $tmp/info
grep -q 'protocol: newstyle-fixed with TLS' $tmp/info; grep -q 'can_fast_zero: true' $tmp/info
nbdcopy $tmp/f "$secure_uri?tls-certificates=$pki/clients"
nbdcopy "$secure_uri?tls-certificates=$pki/clients" - | cmp -n 64000000 - $tmp/f
qemu-img convert --object tls-creds-x509,id=t,endpoint=client,dir=$pki/clients -O raw --image-opts \
  driver=nbd,server.type=inet,server.host=localhost,server.port=$port,export=$pool/disk,tls-creds=t $tmp/by-qemu
cmp -n 64000000 $tmp/by-qemu $tmp/f
stop
our snap purge "$pool/disk"; our rm "$pool/disk"; our rm "$pool/other"
ceph osd pool rm "$pool" "$pool" --yes-i-really-really-mean-it >/dev/null 2>&1
