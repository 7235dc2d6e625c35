#!/usr/bin/env bash
# Debian's aws-cli and s3cmd against ENDPOINT with ACCESS and SECRET, with their own defaults: checksums, chunked and
# signed bodies, uploads in parts. Run in the forky root, in a directory of its own. What went in comes out.
set -euo pipefail
export AWS_ACCESS_KEY_ID=$ACCESS AWS_SECRET_ACCESS_KEY=$SECRET AWS_DEFAULT_REGION=us-east-1 AWS_ENDPOINT_URL=$ENDPOINT
export AWS_EC2_METADATA_DISABLED=true AWS_MAX_ATTEMPTS=1 AWS_PAGER= PYTHONDONTWRITEBYTECODE=1
rm -rf in out && mkdir -p in/sub out && cd in
head -c 21000001 /dev/urandom > large
head -c 4097 /dev/urandom > small
: > empty
for ((i = 0; i < 30; i++)); do echo "$i" > "sub/file $i+ä"; done
cd ..

aws s3 mb s3://aws-cli >/dev/null
aws s3 cp --only-show-errors in/large s3://aws-cli/large
aws s3 cp --only-show-errors in/small s3://aws-cli/dir/small --metadata a=b --content-type text/x
aws s3 cp --only-show-errors s3://aws-cli/large out/large && cmp in/large out/large
[ "$(aws s3api head-object --bucket aws-cli --key dir/small --query 'Metadata.a' --output text)" = b ]
aws s3 sync --only-show-errors in s3://aws-cli/all
[ "$(aws s3 ls --recursive s3://aws-cli/all/ | wc -l)" = 33 ]
aws s3 sync --only-show-errors s3://aws-cli/all out/all && diff -r in out/all
[ -z "$(aws s3 sync in s3://aws-cli/all)" ]
aws s3 cp --only-show-errors s3://aws-cli/large s3://aws-cli/copied
aws s3 mv --only-show-errors s3://aws-cli/copied s3://aws-cli/moved
for algorithm in CRC32 CRC32C CRC64NVME SHA1 SHA256; do
  aws s3api put-object --bucket aws-cli --key "sum $algorithm" --body in/small --checksum-algorithm $algorithm >/dev/null
  aws s3api get-object --bucket aws-cli --key "sum $algorithm" --checksum-mode ENABLED out/sum >/dev/null && cmp in/small out/sum
done
python3 -c 'import sys, urllib.request; sys.stdout.buffer.write(urllib.request.urlopen(sys.argv[1]).read())' \
  "$(aws s3 presign s3://aws-cli/dir/small)" | cmp - in/small
! aws s3 ls s3://no-such-bucket >/dev/null 2>&1
aws s3 rm --only-show-errors --recursive s3://aws-cli >/dev/null
aws s3 rb s3://aws-cli >/dev/null

host=${ENDPOINT#http://}
cat > s3cfg <<C
[default]
access_key = $ACCESS
secret_key = $SECRET
host_base = $host
host_bucket = $host
use_https = False
multipart_chunk_size_mb = 5
progress_meter = False
C
s3() { s3cmd -q -c s3cfg "$@"; }
s3 mb s3://s3cmd-tests
s3 put in/large s3://s3cmd-tests/large
s3 get --force s3://s3cmd-tests/large out/large && cmp in/large out/large
s3 put --acl-public in/small "s3://s3cmd-tests/dir/sm all+ä"
python3 -c 'import sys, urllib.request; sys.stdout.buffer.write(urllib.request.urlopen(sys.argv[1]).read())' \
  "$ENDPOINT/s3cmd-tests/dir/sm%20all%2B%C3%A4" | cmp - in/small
s3 sync in/ s3://s3cmd-tests/all/
[ "$(s3cmd -c s3cfg ls --recursive s3://s3cmd-tests/all/ | wc -l)" = 33 ]
s3cmd -c s3cfg info s3://s3cmd-tests/large > info && grep -q 21000001 info
s3 cp s3://s3cmd-tests/large s3://s3cmd-tests/copied
s3 mv s3://s3cmd-tests/copied s3://s3cmd-tests/moved
s3 del --recursive --force s3://s3cmd-tests
s3 rb s3://s3cmd-tests
echo "aws-cli $(aws --version | cut -d' ' -f1 | cut -d/ -f2), s3cmd $(s3cmd --version | cut -d' ' -f3)"
