# Three monitors, asked one by one and together. Env: SUITE, MODE.
hosts=$(python3 - <<'PY'
import os, re
text = open(os.environ["CEPH_CONF"]).read()
print(" ".join(re.findall(r"v2:[0-9.:]+", re.search(r"mon host = (.*)", text).group(1))))
PY
)
test $(echo $hosts | wc -w) = 3
for host in $hosts; do
    ceph -m $host -s | grep -q 'quorum a,b,c'
    ceph -m $host quorum_status | python3 -c '
import json, sys
q = json.load(sys.stdin)
assert q["quorum"] == [0, 1, 2] and q["quorum_names"] == ["a", "b", "c"], q
assert q["quorum_leader_name"] in q["quorum_names"] and q["election_epoch"] % 2 == 0, q
assert len(q["monmap"]["mons"]) == 3, q'
    # What one was told, each of them knows.
    ceph -m $host config-key set quorum/$SUITE/$MODE $host
    for other in $hosts; do
        test "$(ceph -m $other config-key get quorum/$SUITE/$MODE)" = $host
    done
done
ceph mon stat | grep -q '3 mons at'
ceph mon dump | grep -q '2: .*mon.c'
ceph mon ok-to-stop a
! ceph mon ok-to-stop a b 2>/dev/null
ceph mon ok-to-rm b
ceph mon ok-to-add-offline
ceph mon feature ls | grep -q reef
for mon in a b c; do
    ceph tell mon.$mon mon_status | grep -q "\"name\": \"$mon\""
    ceph tell mon.$mon version | grep -q version
    ceph ping mon.$mon | grep -q HEALTH
done
test $(ceph mon metadata | grep -c '"name"') = 3
