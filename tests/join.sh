#!/bin/bash
# Hosts that join a cluster and leave it: network namespaces with a switch between them, each with a
# directory of its own and nothing shared. As root: join.sh BINARY DIRECTORY [PART..]
#   six       init and join on three hosts; a host lost and replaced; a host drained and gone
#   refuse    what is refused, and why
#   again     init, join and leave killed after each of their steps, and a link cut: run again
#   deploy    from one host over ssh, by a ceph.conf as mkcephfs took it
# Ends with 77 where namespaces cannot be made.
set -eu
BIN=$1 D=$2; shift 2
PARTS=${*:-six refuse again}
LOOP=
NET=10.232.$(($$ % 250))
N=argj$$
HOSTS="1 2 3 4"
rm -rf "$D"; mkdir -p "$D"

# Ends all that runs on the hosts, and removes their disks.
cleanup_hosts() {
    for h in $HOSTS; do
        ip netns pids "$N-h$h" 2>/dev/null | xargs -r kill -9 2>/dev/null || true
        sleep 0.2
        rm -rf "$D/h$h"
    done
}
cleanup() {
    cleanup_hosts
    [ -z "$LOOP" ] || losetup -d "$LOOP" || true
    for host in sw $(printf 'h%s ' $HOSTS); do ip netns del "$N-$host" 2>/dev/null || true; done
}
trap cleanup EXIT
fail() {
    echo "FAILED: $*"
    for h in $HOSTS; do
        for log in "$D/h$h"/log/*.log; do
            [ -e "$log" ] && { echo "--- $log"; tail -n 5 "$log"; }
        done
    done
    exit 1
}

# on HOST WORDS..: the binary on a host, with a host name and directory of its own
on() {
    local h=$1; shift
    timeout -k 5 150 ip netns exec "$N-h$h" unshare --uts sh -c "hostname h$h; exec \"\$@\"" sh "$BIN" "$@"
}
# host HOST VERB WORDS..: the same of verbs with --dir
host() { local h=$1 verb=$2; shift 2; on "$h" "$verb" --dir "$D/h$h" "$@"; }
# ceph HOST WORDS..: as the administrator, on the first host
ceph() { CEPH_CONF="$D/h1/ceph.conf" on 1 ceph "$@"; }
until_shown() {
    local end=$((SECONDS + $1)) text=$2; shift 2
    while ! "$@" 2>/dev/null | grep -q -- "$text"; do
        [ $SECONDS -lt $end ] || { "$@" || true; fail "'$text' is not shown by $*"; }
        sleep 0.3
    done
}
# refused TEXT WORDS..: a command fails and says so
refused() {
    local text=$1; shift
    if out=$("$@" 2>&1); then fail "was done: $*: $out"; fi
    case $out in *"$text"*) echo "refused: $text" ;; *) fail "'$text' is not why: $*: $out" ;; esac
}
token_in() { sed -n 's/^argonaut join //p' | tail -n 1; }
token() { CEPH_CONF="$D/h1/ceph.conf" on 1 token "$@" | token_in; }
cut_off() { ip -n "$N-sw" link set "p$1" down; }
let_in() { ip -n "$N-sw" link set "p$1" up; }
# lose HOST: all its processes, and its disk
lose() {
    ip netns pids "$N-h$1" | xargs -r kill -9
    sleep 0.2
    rm -rf "$D/h$1"
}
same_data() {
    CEPH_CONF="$D/h1/ceph.conf" on 1 rados -p p get one "$D/got" && cmp "$D/one" "$D/got" ||
        fail "an object is not what it was"
}

if ! ip netns add "$N-sw" || ! ip -n "$N-sw" link add br0 type bridge || ! unshare --uts hostname "$N"; then
    echo "no network namespaces, bridges or host names can be made here"
    exit 77
fi
ip -n "$N-sw" link set br0 up
for h in $HOSTS; do
    ip netns add "$N-h$h"
    ip -n "$N-h$h" link set lo up
    ip -n "$N-sw" link add "p$h" type veth peer name eth0 netns "$N-h$h"
    ip -n "$N-sw" link set "p$h" master br0 up
    ip -n "$N-h$h" addr add "$NET.$h/24" dev eth0
    ip -n "$N-h$h" link set eth0 up
done
head -c 300000 /dev/urandom >"$D/one"
SMALL="--osds 1 --osd-bytes 2G"

six() {
    # Six commands: three hosts, three monitors, OSDs on each, two managers.
    host 1 init --network "$NET.0/24" $SMALL >"$D/init.out"
    truncate -s 2G "$D/disk2"
    DISK=$D/disk2
    # A device where one can be made, else the file itself.
    LOOP=$(losetup --show -f "$D/disk2" 2>/dev/null) && DISK=$LOOP
    host 2 join --disks "$DISK" "$(token_in <"$D/init.out")"
    t3=$(token)
    host 3 join $SMALL "$t3"
    ceph osd pool create p 8 >/dev/null
    CEPH_CONF="$D/h1/ceph.conf" on 1 rados -p p put one "$D/one"

    until_shown 30 'h1,h2,h3$' ceph mon stat
    until_shown 60 '8 active+clean' ceph pg stat
    ceph osd tree | grep -q 'host h2' || fail "osd.1 does not stand on its host"
    ceph host ls >"$D/hosts"
    [ "$(grep -c 'osd\.' "$D/hosts")" = 3 ] || fail "not an OSD on each host: $(cat "$D/hosts")"
    [ "$(grep -c 'mgr\.' "$D/hosts")" = 2 ] || fail "not two managers: $(cat "$D/hosts")"
    until_shown 30 'standby' ceph mgr dump
    [ ! -e "$D/h2/keyring" ] || fail "h2 has the administrator's key"
    host 2 status | grep -q HEALTH || fail "h2 cannot tell the status"
    # ceph.conf of the first host follows the monitors.
    until_shown 60 "$NET.3:3300" grep 'mon host' "$D/h1/ceph.conf"
    for h in 1 2 3; do
        [ -z "$(find "$D/h$h" -perm /077 \( -name keyring -o -name host.keyring -o -name argonaut-host \))" ] ||
            fail "h$h: others may read keys"
    done
    echo "three hosts joined"

    # A host lost, with its monitor and OSD, and another in its place under its name.
    refused 'so host h3 is not lost' host 1 leave --lost h3
    lose 3
    until_shown 60 '2 up' ceph osd stat
    until_shown 30 'quorum 0,1 h1,h2' ceph mon stat
    host 1 leave --lost h3
    refused 'it was used, revoked, or is over' host 3 join $SMALL "$t3"
    host 3 join $SMALL "$(token)"
    until_shown 30 'h1,h2,h3$' ceph mon stat
    until_shown 90 '8 active+clean' ceph pg stat
    same_data
    echo "a lost host was replaced"

    # With three copies on three hosts none can be drained; a fourth host makes room.
    refused 'hosts with OSDs would be left' host 2 leave
    host 4 join $SMALL --name four "$(token)"
    until_shown 30 'four' ceph host ls
    host 2 leave
    [ ! -e "$D/h2" ] || fail "h2's directory is there"
    if ceph host ls | grep -q h2; then fail "h2 is there: $(ceph host ls)"; fi
    if ceph auth ls | grep -q 'h2$'; then fail "h2's keys are there"; fi
    if ceph osd tree | grep -q h2; then fail "h2's bucket is there"; fi
    until_shown 30 'h1,h3' ceph mon stat
    until_shown 90 '8 active+clean' ceph pg stat
    same_data
    # The freed disk joins again without force: it holds nothing that has a name.
    host 2 join --disks "$DISK" "$(token)"
    until_shown 30 'h1,h3,[a-z]*,h2\|h1,h3,h2\|h1,h2,h3' ceph mon stat
    # Stopped and started as after a reboot.
    host 4 down
    host 4 up
    until_shown 60 '4 up' ceph osd stat
    until_shown 90 '8 active+clean' ceph pg stat
    same_data
    refused 'the cluster has 4 hosts' host 4 rm --yes
    echo "a host left, and came back"
}
refuse() {
    printf '[mon]\n    mon data = /elsewhere\n' >"$D/options"
    refused 'is for each host itself to say' host 1 init --network "$NET.0/24" --options "$D/options"
    [ ! -e "$D/h1" ] || fail "something was made: $(ls -a "$D/h1")"
    host 1 init --network "$NET.0/24" $SMALL >/dev/null
    refused 'already' host 1 init --network "$NET.0/24"
    refused 'this host has no address there' host 2 init --network 10.9.9.0/24
    refused 'no whole token' host 2 join argonaut1_half
    refused 'holds no host' host 2 join

    # A port of the monitors that is closed to this host; no way there.
    t=$(token)
    refused "$NET.1:3301: Connection refused" host 2 join "${t/:3300/:3301}"
    cut_off 2
    refused "no monitor can be reached; $NET.1:3300" host 2 join "$t"
    let_in 2
    # A port of this host in use.
    ip netns exec "$N-h2" python3 -c 'import socket, sys, time
s = socket.create_server((sys.argv[1], 6789)); print("listens", flush=True); time.sleep(600)' "$NET.2" >"$D/listens" &
    held=$!
    until_shown 10 listens cat "$D/listens"
    refused "port 6789 of $NET.2 is in use" host 2 join "$t"
    kill $held; wait $held 2>/dev/null || true
    # A clock that is off, to either side.
    if command -v faketime >/dev/null; then
        for off in +0.4 -0.4; do
            said='ahead of'; [ $off = -0.4 ] && said=behind
            refused "s $said the monitors'" env FAKETIME_DONT_FAKE_MONOTONIC=1 timeout 60 \
                ip netns exec "$N-h2" faketime -f "${off}s" "$BIN" join --dir "$D/h2" --name h2 "$t"
        done
    else
        echo "faketime is not installed: clocks are not tried"
    fi
    # A token of another cluster, revoked, over, for another host.
    refused 'these are not the monitors' host 2 join "$(echo "$t" | sed 's/_[0-9a-f]\{32\}_/_00000000000000000000000000000000_/')"
    CEPH_CONF="$D/h1/ceph.conf" on 1 token --list >"$D/tokens"
    id=$(echo "$t" | cut -d_ -f4)
    grep -q "$id" "$D/tokens" || fail "the token is not listed: $(cat "$D/tokens")"
    CEPH_CONF="$D/h1/ceph.conf" on 1 token --revoke "$id"
    refused 'it was used, revoked, or is over' host 2 join "$t"
    t=$(token --host other)
    refused 'this token is for host other' host 2 join "$t"
    rm -rf "$D/h2"
    # Disks that hold something or are in use; nothing was made.
    t=$(token)
    echo "a diary" >"$D/diary"
    refused 'is not empty, it holds: data' host 2 join --disks "$D/diary" "$t"
    grep -q 'a diary' "$D/diary" || fail "the diary is gone"
    refused 'No such file' host 2 join --disks "$D/none" "$t"
    refused 'an OSD or a tool has the store in it open' host 2 join --disks "$D/h1/osd.0/block" "$t"
    [ ! -e "$D/h2" ] || fail "something was made: $(ls -a "$D/h2")"
    # A name that is taken; a directory that holds something else.
    refused 'a host of this cluster is h1' host 2 join --name h1 "$t"
    rm -rf "$D/h2"
    mkdir "$D/h2"; touch "$D/h2/letters"
    refused "holds 'letters' and no host" host 2 join "$t"
    rm -rf "$D/h2"
    # The last monitor, the last copy.
    refused 'is the last monitor' host 1 leave
    host 2 join --no-mon $SMALL "$t"
    ceph osd pool create two 8 >/dev/null
    ceph osd pool set two size 2 >/dev/null
    ceph osd pool set two min_size 2 >/dev/null
    until_shown 60 '8 active+clean' ceph pg stat
    refused 'data would be out of reach' host 2 leave --now
    ceph osd pool set two min_size 1 >/dev/null
    until_shown 60 '8 active+clean' ceph pg stat
    host 2 leave --now
    [ ! -e "$D/h2" ] || fail "h2's directory is there"
    # The whole cluster goes with its only host.
    host 1 rm --yes
    [ ! -e "$D/h1" ] || fail "h1's directory is there"
}
# killed HOST STEP VERB WORDS..: runs a command and kills it when it says that step. It runs on for a
# moment, so that it may have come past the next step; then it may end, too.
killed() {
    local h=$1 step=$2 verb=$3; shift 3
    ip netns exec "$N-h$h" unshare --uts sh -c "hostname h$h; exec \"\$@\"" sh python3 -c '
import subprocess, sys
run = subprocess.Popen(sys.argv[2:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0)
said, killed = b"", False
for line in iter(run.stdout.readline, b""):
    said += line
    if sys.argv[1].encode() in line:
        run.kill()
        killed = True
        break
run.wait()
if killed:
    print("killed")
elif run.returncode != 0 and b"already" not in said:
    print(said.decode())
    sys.exit(1)
' "$step" "$BIN" "$verb" --dir "$D/h$h" "$@" >"$D/says" || fail "$verb on h$h ended with: $(cat "$D/says")"
    if grep -q killed "$D/says"; then
        echo "$verb killed at: $step"
        KILLS=$((KILLS + 1))
    else
        echo "$verb was past: $step"
    fi
}
again() {
    KILLS=0
    for step in 'mon.h1 is made' 'the token is taken' 'ceph.conf is written' 'in the quorum' \
        'mgr.h1 is made' 'osd.0 is made' 'OSDs are up'; do
        killed 1 "$step" init --network "$NET.0/24" $SMALL
    done
    host 1 init --network "$NET.0/24" $SMALL >"$D/init.out" 2>&1 || grep -q already "$D/init.out"
    t=$(token)
    for step in 'the token is taken' 'ceph.conf is written' 'mon.h2 is made' 'in the quorum' \
        'mgr.h2 is made' 'osd.1 is made' 'OSDs are up'; do
        killed 2 "$step" join $SMALL "$t"
    done
    host 2 join $SMALL
    host 2 join $SMALL "$t"

    [ $KILLS -ge 10 ] || fail "only $KILLS commands were killed"

    # A link cut in the middle: the run that waits for it fails, the next one goes on.
    t=$(token)
    rm -f "$D/fifo"; mkfifo "$D/fifo"
    host 3 join $SMALL "$t" >"$D/fifo" 2>&1 &
    run=$!
    while read -r line; do
        case $line in *'ceph.conf is written'*) cut_off 3 ;; esac
        last=$line
    done <"$D/fifo"
    if wait $run; then fail "h3 joined over a link that is cut"; fi
    echo "cut off, join said: $last"
    let_in 3
    host 3 join $SMALL "$t"
    until_shown 30 'h1,h2,h3$' ceph mon stat
    [ "$(ceph osd ls | tr '\n' ' ')" = '0 1 2 ' ] || fail "OSDs are $(ceph osd ls)"
    # One may be left that `init` printed and nobody used.
    [ "$(CEPH_CONF="$D/h1/ceph.conf" on 1 token --list | grep -c .)" -le 1 ] || fail "tokens are left"
    ceph osd pool create p 8 >/dev/null
    ceph osd pool set p size 2 >/dev/null
    CEPH_CONF="$D/h1/ceph.conf" on 1 rados -p p put one "$D/one"
    until_shown 60 '8 active+clean' ceph pg stat

    for step in 'draining' 'osd.2 is removed' 'mon.h3 is removed'; do
        killed 3 "$step" leave
    done
    [ ! -e "$D/h3" ] || host 3 leave
    [ ! -e "$D/h3" ] || fail "h3's directory is there"
    if ceph host ls | grep -q h3; then fail "h3 is there"; fi
    if ceph auth ls | grep -q 'h3$\|^osd.2$'; then fail "h3's keys are there"; fi
    until_shown 30 'h1,h2$' ceph mon stat
    until_shown 60 '8 active+clean' ceph pg stat
    same_data
    # What was let in and no more; what lost the answer to that; what never was let in.
    t=$(token)
    killed 3 'the token is taken' join --no-mon "$t"
    host 3 leave
    t=$(token)
    killed 3 'the token is taken' join --no-mon "$t"
    rm -f "$D/h3/host.keyring"
    host 3 leave
    [ ! -e "$D/h3" ] || fail "h3's directory is there"
    if ceph host ls | grep -q h3; then fail "h3 is there"; fi
    refused 'this token is for host other' host 3 join --no-mon "$(token --host other)"
    host 3 leave
    [ ! -e "$D/h3" ] || fail "h3's directory is there"
    if ceph host ls | grep -q h3; then fail "h3 is there"; fi
    echo "each step again"
}
# Hosts h1 to h3 are alpha, beta and gamma for ssh, with a server and keys of their own each.
deploy() {
    local h name S="$D/ssh"
    if ! [ -x /usr/sbin/sshd ]; then
        echo "no sshd is installed"
        exit 77
    fi
    mkdir -p "$S" "$D/here" /run/sshd /etc/ceph
    ssh-keygen -q -t ed25519 -N '' -f "$S/admin"
    printf 'IdentityFile %s/admin\nUserKnownHostsFile %s/known\nStrictHostKeyChecking yes\nUser root\n' "$S" "$S" >"$S/config"
    for h in 1 2 3; do
        name=$(echo x alpha beta gamma | cut -d' ' -f$((h + 1)))
        ssh-keygen -q -t ed25519 -N '' -f "$S/$name"
        echo "$name,$NET.$h $(cut -d' ' -f1,2 "$S/$name.pub")" >>"$S/known"
        printf 'Host %s\n    HostName %s\n    HostKeyAlias %s\n' "$name" "$NET.$h" "$name" >>"$S/config"
        printf '%s\n' "HostKey $S/$name" "AuthorizedKeysFile $S/admin.pub" 'PidFile none' 'UsePAM no' \
            'StrictModes no' 'PermitRootLogin yes' 'PasswordAuthentication no' >"$S/$name.conf"
        mkdir -p "$D/h$h" "$S/etc-$name"
        # Each has its own files at the same paths.
        ip netns exec "$N-h$h" unshare --uts --mount sh -c "hostname $name
            mount --bind '$D/h$h' '$D/here' && mount --bind '$S/etc-$name' /etc/ceph
            exec /usr/sbin/sshd -D -e -f '$S/$name.conf'" 2>"$S/$name.log" &
    done
    from() {
        timeout -k 5 200 ip netns exec "$N-h4" "$BIN" deploy --ssh "ssh -F $S/config" --dir "$D/here/data" \
            --program "$BIN" "$@"
    }
    at() { ip netns exec "$N-h4" ssh -F "$S/config" "$@"; }
    admin() { at alpha "$BIN ceph -c $D/here/data/ceph.conf $*"; }
    for name in alpha beta gamma; do until_shown 20 yes at $name echo yes; done
    truncate -s 2G "$D/h2/disk"
    cat >"$D/old.conf" <<CONF
; as mkcephfs took it
[global]
    auth supported = cephx ; or none
    keyring = /etc/ceph/keyring.admin
    osd pool default size = 2
[mon]
    mon data = /data/mon\$id
[mon0]
    host = alpha
    mon addr = $NET.1:6789
[mds0]
    host = beta
[osd]
    osd data = /data/osd\$id
    osd journal size = 100
    filestore xattr use omap = true
[osd0]
    host = alpha
[osd1]
    host = beta
    btrfs devs = $D/here/disk
CONF
    refused 'nothing is made: nobody' from --network "$NET.0/24" alpha nobody
    from -c "$D/old.conf" --osd-bytes 2G >"$D/deploy.out" 2>&1 || fail "$(cat "$D/deploy.out")"
    for word in keyring mon_data osd_data filestore_xattr_use_omap 'mon.0 is called mon.alpha'; do
        grep -q "$word" "$D/deploy.out" || fail "$word is not named: $(cat "$D/deploy.out")"
    done
    if grep -q 'argonaut1_' "$D/deploy.out"; then fail "a token was shown"; fi
    for name in alpha beta; do
        at $name grep -q "'osd journal size = 100M'" "$D/here/data/ceph.conf" || fail "$name: no journal size"
    done
    until_shown 60 '2 up' admin osd stat
    until_shown 30 'alpha,beta' admin mon stat
    until_shown 30 'mds.beta' admin host ls
    # Again: nothing more is made.
    from -c "$D/old.conf" --osd-bytes 2G >/dev/null 2>&1
    until_shown 5 '2 osds: 2 up' admin osd stat

    # More hosts, and more on hosts.
    from -c "$D/old.conf" gamma >/dev/null 2>&1
    until_shown 30 'alpha,beta,gamma' admin mon stat
    from -c "$D/old.conf" --osd-bytes 2G --add-osd gamma --add-osd gamma --add-mds gamma --add-client gamma
    until_shown 60 '4 up' admin osd stat
    until_shown 30 'mds.gamma' admin host ls
    at gamma "$BIN ceph --name client.gamma -k /etc/ceph/ceph.client.gamma.keyring status" | grep -q quorum ||
        fail "client.gamma cannot ask for the status"
    pid=$(at beta cat "$D/here/data/run/osd.1.pid")
    from -c "$D/old.conf" restart -a osd >/dev/null
    until_shown 60 '4 up' admin osd stat
    [ "$(at beta cat "$D/here/data/run/osd.1.pid")" != "$pid" ] || fail "osd.1 was not restarted"
    from -c "$D/old.conf" stop -a mds >/dev/null
    at beta "$BIN status --dir $D/here/data" | grep -q 'mds.beta is stopped' || fail "mds.beta is not stopped"
    from -c "$D/old.conf" start -a mds >/dev/null
    from -c "$D/old.conf" --purge gamma
    if admin host ls | grep -q gamma; then fail "gamma is there"; fi
    [ ! -e "$D/h3/data" ] || fail "gamma's directory is there"
    until_shown 60 '2 up' admin osd stat
    echo "deployed over ssh"
}
for part in $PARTS; do
    $part
    cleanup_hosts
done
echo "all well"
