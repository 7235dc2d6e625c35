#!/usr/bin/env bash
# Stock radosgw on the cluster that CEPH_CONF names, on PORT; users; then `s3.py` against it. Run in the forky root,
# in a directory of its own. What radosgw-admin says of the buckets must agree with what the client did.
set -euo pipefail
export CEPH_ARGS="--log-to-stderr=false"
ceph auth get-or-create client.rgw.a mon 'allow rw' osd 'allow rwx' mgr 'allow rw' -o rgw.keyring
start() {
  radosgw -n client.rgw.a --keyring rgw.keyring -f --log-file radosgw.log --log-to-stderr=false --debug-rgw 1 \
    --rgw-frontends "beast endpoint=127.0.0.1:$PORT tcp_nodelay=1" --rgw-lc-debug-interval 2 --rgw-gc-obj-min-wait 1 \
    --rgw-gc-processor-period 3600 --rgw-objexp-gc-interval 5 --rgw-enable-usage-log true --rgw-usage-log-tick-interval 1 \
    --rgw-crypt-require-ssl false --rgw-dns-name s3.test --rgw-dns-s3website-name web.test --rgw-enable-static-website true --rgw-multipart-min-part-size 1 --admin-socket "" \
    --rgw-crypt-s3-kms-backend testing --rgw-crypt-s3-kms-encryption-keys "testkey-1=YmluCmJvb3N0CmJvb3N0LWJ1aWxkCmNlcGguY29uZgo= testkey-2=aWIKTWFrZWZpbGUKbWFuCm91dApzcmMKVGVzdGluZwo=" "$@" &
  gateway=$!
  for ((i = 0; i < 300; i++)); do
    (exec 3<>/dev/tcp/127.0.0.1/"$PORT") 2>/dev/null && break
    kill -0 $gateway || { tail -20 radosgw.log; exit 1; }
    sleep 0.1
  done
}
trap 'kill $gateway 2>/dev/null; wait $gateway 2>/dev/null || true' EXIT
if [ -z "${CASES:-}" ]; then
  # With sessions, stock says AccessDenied of keys that it does not know: the other cases want its plain answer.
  start --rgw-sts-key abcdefghijklmnop --rgw-s3-auth-use-sts true
  PYTHONDONTWRITEBYTECODE=1 python3 iam.py "http://127.0.0.1:$PORT"
  radosgw-admin user create --uid other --display-name Other --access-key KEYother --secret-key secret/other >/dev/null
  IS_STOCK=1 PYTHONDONTWRITEBYTECODE=1 python3 webidentity.py "http://127.0.0.1:$PORT"
  radosgw-admin user rm --uid other
  kill $gateway
  wait $gateway 2>/dev/null || true
fi
start
for user in main other; do
  radosgw-admin user create --uid "$user" --display-name "The $user user" --email "$user@example.com" \
    --access-key "KEY$user" --secret-key "secret/$user" >/dev/null
done
radosgw-admin user create --uid ops-admin --display-name Ops --access-key KEYops --secret-key secret/ops \
  --caps "users=*;buckets=*;usage=*;metadata=*;info=*;ratelimit=*;accounts=*;zone=*" >/dev/null
[ -n "${CASES:-}" ] || PYTHONDONTWRITEBYTECODE=1 python3 ops.py "http://127.0.0.1:$PORT" KEYops secret/ops
PYTHONDONTWRITEBYTECODE=1 python3 s3.py "http://127.0.0.1:$PORT" KEYmain secret/main KEYother secret/other ${CASES:-}
IS_STOCK=1 PYTHONDONTWRITEBYTECODE=1 python3 further.py "http://127.0.0.1:$PORT" ${CASES:-}
[ -z "${CASES:-}" ] || exit 0
IS_STOCK=1 PYTHONDONTWRITEBYTECODE=1 python3 events.py "http://127.0.0.1:$PORT"
bash swift-users.sh
PYTHONDONTWRITEBYTECODE=1 python3 swift.py "http://127.0.0.1:$PORT" stock
# Both say the same of what was left: bucket `kept` with 3 objects of 3 + 9 MiB + 5 bytes.
radosgw-admin bucket stats --bucket kept > stats.json
python3 - <<'P'
import json
usage = json.load(open("stats.json"))["usage"]["rgw.main"]
assert (usage["num_objects"], usage["size"]) == (3, 3 + (9 << 20) + 5), usage
P
radosgw-admin bucket check --bucket kept > check.json
python3 -c 'import json; c = json.load(open("check.json")); assert c.get("invalid_multipart_entries", []) == [], c'
radosgw-admin gc process --include-all
[ "$(radosgw-admin gc list --include-all | tr -d ' \n')" = "[]" ]
radosgw-admin bucket rm --bucket kept --purge-objects --bypass-gc
# Nothing but index entries of buckets that are gone is left in the pool of data.
[ -z "$(rados -p default.rgw.buckets.data ls | grep -v '^$' || true)" ] || { rados -p default.rgw.buckets.data ls; exit 1; }
