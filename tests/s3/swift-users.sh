#!/usr/bin/env bash
# Subusers for `swift.py`, of users `main` and `other` that are there, and of `ten$tim`: the secret of UID:NAME is
# `swift/UID/NAME`.
set -euo pipefail
radosgw-admin user create --tenant ten --uid tim --display-name Tim --access-key KEYtim --secret-key secret/tim >/dev/null
for who in main:swift:full main:read:read main:write:write main:readwrite:readwrite other:swift:full 'ten$tim:swift:full'; do
  IFS=: read -r uid name access <<<"$who"
  radosgw-admin subuser create --uid "$uid" --subuser "$uid:$name" --access "$access" --key-type swift --secret "swift/$uid/$name" >/dev/null
done
