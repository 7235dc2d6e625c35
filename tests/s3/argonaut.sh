#!/usr/bin/env bash
# Our gateway at ENDPOINT on the cluster that CEPH_CONF names, with users made by stock radosgw-admin; then `s3.py`
# against it, and stock radosgw on PORT beside it: each reads what the other wrote. Run in the forky root, in a
# directory of its own; `start` makes users and keyrings, `check` runs the clients.
set -euo pipefail
export CEPH_ARGS="--log-to-stderr=false"
if [ "$1" = start ]; then
  for name in a stock; do
    ceph auth get-or-create client.rgw.$name mon 'allow rw' osd 'allow rwx' mgr 'allow rw' -o rgw.$name.keyring
  done
  for user in main other; do
    radosgw-admin user create --uid "$user" --display-name "The $user user" --email "$user@example.com" \
      --access-key "KEY$user" --secret-key "secret/$user" >/dev/null
  done
  radosgw-admin user create --uid ops-admin --display-name Ops --access-key KEYops --secret-key secret/ops \
    --caps "users=*;buckets=*;usage=*;metadata=*;info=*;ratelimit=*;accounts=*;zone=*" >/dev/null
  for name in one two; do
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=$name -addext subjectAltName=IP:127.0.0.1 -keyout $name.key -out $name.crt 2>/dev/null
    cat $name.crt $name.key > $name.pem
  done
  cp one.pem tls.pem
  exit 0
fi
radosgw -n client.rgw.stock --keyring rgw.stock.keyring -f --log-file radosgw.log --log-to-stderr=false --debug-rgw 1 \
  --rgw-frontends "beast endpoint=127.0.0.1:$PORT tcp_nodelay=1" --rgw-gc-obj-min-wait 1 --rgw-enable-lc-threads false --rgw-enable-usage-log true --rgw-crypt-require-ssl false \
  --rgw-gc-processor-period 3600 --rgw-objexp-gc-interval 3600 --rgw-multipart-min-part-size 1 --admin-socket "" \
  --rgw-sts-key abcdefghijklmnop --rgw-s3-auth-use-sts true --rgw-dns-s3website-name web.test --rgw-enable-static-website true \
  --rgw-crypt-s3-kms-backend testing --rgw-crypt-s3-kms-encryption-keys "testkey-1=YmluCmJvb3N0CmJvb3N0LWJ1aWxkCmNlcGguY29uZgo= testkey-2=aWIKTWFrZWZpbGUKbWFuCm91dApzcmMKVGVzdGluZwo=" &
gateway=$!
trap 'kill $gateway 2>/dev/null; wait $gateway 2>/dev/null || true' EXIT
for ((i = 0; i < 300; i++)); do
  (exec 3<>/dev/tcp/127.0.0.1/"$PORT") 2>/dev/null && break
  kill -0 $gateway || { tail -20 radosgw.log; exit 1; }
  sleep 0.1
done
export PYTHONDONTWRITEBYTECODE=1 ENDPOINT
python3 s3.py "$ENDPOINT" KEYmain secret/main KEYother secret/other ${CASES:-}
python3 ours.py "$ENDPOINT" "$TLS_ENDPOINT" KEYmain secret/main . ${CASES:-}
OTHER="http://127.0.0.1:$PORT" python3 further.py "$ENDPOINT" ${CASES:-}
[[ " ${CASES:-} " != *" webidentity "* ]] || python3 webidentity.py "$ENDPOINT" "http://127.0.0.1:$PORT"
[[ " ${CASES:-} " != *" amqp "* ]] || python3 amqp.py "$ENDPOINT" "http://127.0.0.1:$PORT"
[[ " ${CASES:-} " != *" kafka "* ]] || python3 kafka.py "$ENDPOINT"
[ -z "${CASES:-}" ] || exit 0
python3 iam.py "$ENDPOINT" "http://127.0.0.1:$PORT"
python3 ops.py "$ENDPOINT" KEYops secret/ops "http://127.0.0.1:$PORT"
ACCESS=KEYmain SECRET=secret/main bash clients.sh
bash swift-users.sh
python3 swift.py "$ENDPOINT" ours
python3 swift-both.py "$ENDPOINT" "http://127.0.0.1:$PORT" KEYmain secret/main
python3 events.py "$ENDPOINT" "http://127.0.0.1:$PORT"
python3 webidentity.py "$ENDPOINT" "http://127.0.0.1:$PORT"
[ -z "${BROKERS:-}" ] || python3 amqp.py "$ENDPOINT" "http://127.0.0.1:$PORT"
[ -z "${BROKERS:-}" ] || python3 kafka.py "$ENDPOINT"
python3 both.py "$ENDPOINT" "http://127.0.0.1:$PORT" KEYmain secret/main
ACCESS=KEYmain SECRET=secret/main bash admin.sh
radosgw-admin bucket stats --bucket kept > stats.json
python3 - <<'P'
import json
usage = json.load(open("stats.json"))["usage"]["rgw.main"]
assert (usage["num_objects"], usage["size"]) == (3, 3 + (9 << 20) + 5), usage
P
for bucket in kept both; do
  radosgw-admin bucket check --bucket $bucket > check.json
  python3 - <<'P'
import json
check = json.load(open("check.json"))
assert check.get("invalid_multipart_entries", []) == [], check
# A category that has nothing left stays in the index's head, and is not calculated.
there, counted = ({k: v for k, v in check["check_result"][head]["usage"].items() if v["num_objects"]}
                  for head in ("existing_header", "calculated_header"))
assert there == counted, check
P
done
radosgw-admin gc process --include-all
[ "$(radosgw-admin gc list --include-all | tr -d ' \n')" = "[]" ]
for bucket in kept both; do radosgw-admin bucket rm --bucket $bucket --purge-objects --bypass-gc; done
[ -z "$(rados -p default.rgw.buckets.data ls | grep -v '^$' || true)" ] || { rados -p default.rgw.buckets.data ls; exit 1; }
