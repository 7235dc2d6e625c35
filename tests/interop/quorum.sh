# Three monitors, asked one by one and together. Env: SUITE, MODE.

# says PATTERN COMMAND...: the command succeeds and prints that; if not, what it printed is told.
says() {
    local pattern=$1 out
    shift
    out=$("$@") && grep -qe "$pattern" <<<"$out" && return
    echo "no '$pattern' in what '$*' printed: $out" >&2
    return 1
}

# pings MON: it says how it is. Upstream's pinger (MonClientPinger::ms_handle_reset) takes the end of its
# own connection for an answer: then the command prints nothing and ends with 0, or takes down what is
# still in use and dies by SIGSEGV (18.2.7), one time in some hundred on a busy machine. It is asked again.
pings() {
    local out code
    for _ in 1 2 3; do
        code=0
        out=$(ceph ping "mon.$1") || code=$?
        test -z "$out" || break
        test $code = 0 || test $code = 139 || return $code
        echo "'ceph ping mon.$1' printed nothing and ended with $code: once more" >&2
    done
    grep -q HEALTH <<<"$out" && return
    echo "no 'HEALTH' in what 'ceph ping mon.$1' printed: $out" >&2
    return 1
}

hosts=$(python3 - <<'PY'
import os, re
text = open(os.environ["CEPH_CONF"]).read()
print(" ".join(re.findall(r"v2:[0-9.:]+", re.search(r"mon host = (.*)", text).group(1))))
PY
)
test $(echo $hosts | wc -w) = 3
for host in $hosts; do
    says 'quorum a,b,c' ceph -m $host -s
    ceph -m $host quorum_status | python3 -c '
import json, sys
q = json.load(sys.stdin)
assert q["quorum"] == [0, 1, 2] and q["quorum_names"] == ["a", "b", "c"], q
assert q["quorum_leader_name"] in q["quorum_names"] and q["election_epoch"] % 2 == 0, q
assert len(q["monmap"]["mons"]) == 3, q'
    # What one was told, each of them knows.
    ceph -m $host config-key set quorum/$SUITE/$MODE $host
    for other in $hosts; do
        says "^$host\$" ceph -m $other config-key get quorum/$SUITE/$MODE
    done
done
says '3 mons at' ceph mon stat
says '2: .*mon.c' ceph mon dump
ceph mon ok-to-stop a
! ceph mon ok-to-stop a b 2>/dev/null
ceph mon ok-to-rm b
ceph mon ok-to-add-offline
says reef ceph mon feature ls
for mon in a b c; do
    says "\"name\": \"$mon\"" ceph tell mon.$mon mon_status
    says version ceph tell mon.$mon version
    pings $mon
    says "\"name\": \"$mon\"" ceph mon metadata
done
