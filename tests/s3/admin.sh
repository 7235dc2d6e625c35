#!/usr/bin/env bash
# What operators do by stock radosgw-admin to buckets of the gateway at ENDPOINT, which serves meanwhile: the objects'
# state, lifecycle, resharding, accounts. Run in the forky root, in a directory of its own.
set -euo pipefail
export CEPH_ARGS="--log-to-stderr=false" AWS_ACCESS_KEY_ID=$ACCESS AWS_SECRET_ACCESS_KEY=$SECRET AWS_DEFAULT_REGION=us-east-1
export AWS_ENDPOINT_URL=$ENDPOINT AWS_EC2_METADATA_DISABLED=true AWS_MAX_ATTEMPTS=1 AWS_PAGER= PYTHONDONTWRITEBYTECODE=1
admin() { radosgw-admin "$@"; }
says() { python3 -c 'import json, sys; d = json.load(sys.stdin); assert eval(sys.argv[1]), d' "$1"; }
mkdir -p small
for ((i = 0; i < 300; i++)); do echo "$i" > "small/file $i"; done
head -c 9437191 /dev/urandom > nine
aws s3 mb s3://managed >/dev/null
aws s3 cp --only-show-errors nine s3://managed/nine --metadata a=b
aws s3 sync --only-show-errors small s3://managed/small
admin object stat --bucket managed --object nine | says 'd["size"] == 9437191 and d["etag"] and d["manifest"]["obj_size"] == 9437191'
admin bucket stats --bucket managed | says 'd["usage"]["rgw.main"]["num_objects"] == 301 and d["num_shards"] == 11'
admin bucket list --bucket managed --max-entries 1000 | says 'len(d) == 301'
admin metadata get bucket:managed | says 'd["data"]["owner"] in ("main", {"id": "main"}) or d["data"]["owner"]'
admin bucket limit check --uid main | says 'd'

# Resharded while the gateway serves and writes: nothing is lost, all is listed, and what comes later too.
(for ((i = 0; i < 20; i++)); do aws s3api put-object --bucket managed --key "meanwhile/$i" --body "small/file $i" >/dev/null || exit 1; done) &
writes=$!
sleep 1
admin bucket reshard --bucket managed --num-shards 23 --yes-i-really-mean-it >/dev/null
admin bucket reshard --bucket managed --num-shards 7 --yes-i-really-mean-it >/dev/null
wait $writes
admin bucket stats --bucket managed | says 'd["num_shards"] == 7 and d["usage"]["rgw.main"]["num_objects"] == 321'
[ "$(aws s3 ls --recursive s3://managed | wc -l)" = 321 ]
aws s3 cp --only-show-errors s3://managed/nine back && cmp nine back
aws s3 cp --only-show-errors nine s3://managed/after
admin bucket check --bucket managed --check-objects --fix >/dev/null
admin bucket check --bucket managed | says 'd.get("invalid_multipart_entries", []) == []'
[ "$(aws s3 ls --recursive s3://managed | wc -l)" = 322 ]

# Lifecycle by hand, of rules that the gateway set.
aws s3api put-bucket-lifecycle-configuration --bucket managed --lifecycle-configuration \
  '{"Rules": [{"ID": "r", "Status": "Enabled", "Filter": {"Prefix": "none/"}, "Expiration": {"Days": 1}}]}'
admin lc get --bucket managed | says '"r" in json.dumps(d)'
admin lc list | says 'any(":managed:" in e["bucket"] for e in d)'
admin lc process --bucket managed
aws s3api delete-bucket-lifecycle --bucket managed
admin lc list | says 'not any(":managed:" in e["bucket"] for e in d)'

# The tool deletes an object behind the gateway's back.
admin object rm --bucket managed --object after
! aws s3api head-object --bucket managed --key after >/dev/null 2>&1

# Another owner: the gateway knows at once.
admin bucket unlink --bucket managed --uid main
admin bucket link --bucket managed --uid other
admin bucket chown --bucket managed --uid other >/dev/null 2>&1
! aws s3 ls s3://managed >/dev/null 2>&1
admin bucket chown --bucket managed --uid main >/dev/null 2>&1 || admin bucket link --bucket managed --uid main
aws s3 ls s3://managed >/dev/null
admin bucket rm --bucket managed --purge-objects --bypass-gc
! aws s3 ls s3://managed >/dev/null 2>&1
echo "radosgw-admin beside our gateway"
