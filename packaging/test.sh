#!/bin/bash
# Packages in clean Debian roots: installed, upgraded, rolled back, removed, purged. As root:
#   test.sh base SUITE                       makes the root that tests start from, with what they
#                                            install beside it downloaded; prints its path
#   test.sh run SUITE DIRECTORY NEW OLD PAGE [SCENE]
#                                            one suite, all scenes or one: packages in NEW and OLD,
#                                            the cluster as PAGE makes it, under a systemd. Each check
#                                            prints a line; ends with 1 if one failed. Processes,
#                                            mounts and network are its own.
set -euo pipefail
shopt -s nullglob

BESIDE="ceph-common python3-ceph"
DAEMONS="ceph-mon ceph-osd ceph-mgr ceph-mds"
ROOTS=${CEPH_ROOTS:-$HOME/.cache/ceph-roots}
MODE=${1:-} SUITE=${2:-}
BASE=$ROOTS/clean-$SUITE
# Until 16.2 it is a part of ceph-osd.
[ "$SUITE" = bookworm ] || BESIDE="$BESIDE ceph-volume"
# The daemons of the newest release, which packages of ours take the place of. Not radosgw: forky's
# cannot be removed under its systemd, as its script stops a service that no unit file is of.
[ "$SUITE" = forky ] || DAEMONS=""

inside() {
    chroot "$1" env -i PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C HOME=/root \
        DEBIAN_FRONTEND=noninteractive http_proxy="${http_proxy:-}" "${@:2}"
}

if [ "$MODE" = base ]; then
    if [ ! -e "$BASE/.complete" ]; then
        scripts=/usr/share/debootstrap/scripts
        [ -e "$scripts/$SUITE" ] || ln -s sid "$scripts/$SUITE"
        mirror=$(grep -rhoE "https?://[^ ]*/debian/?( |$)" /etc/apt/sources.list* 2>/dev/null |
            head -1 | tr -d " ") || true
        rm -rf --one-file-system "$BASE"
        mkdir -p "$ROOTS"
        debootstrap --variant=minbase "$SUITE" "$BASE" "$mirror" >&2
        echo 'Acquire::Check-Valid-Until "false";' >"$BASE/etc/apt/apt.conf.d/99-snapshot"
        printf '#!/bin/sh\nexit 101\n' >"$BASE/usr/sbin/policy-rc.d"
        chmod +x "$BASE/usr/sbin/policy-rc.d" # until it has booted
        # What tests look with; then what is installed beside packages of ours, only fetched.
        inside "$BASE" apt-get update -q >&2
        inside "$BASE" apt-get install -yq --no-install-recommends \
            logrotate procps systemd-sysv dbus >&2
        inside "$BASE" apt-get clean
        for set in "$BESIDE" "$DAEMONS"; do
            [ -z "$set" ] || inside "$BASE" apt-get install -yqd --no-install-recommends $set >&2
        done
        touch "$BASE/.complete"
    fi
    echo "$BASE"
    exit
fi
# A machine of its own, but for the network: what systemd wants to find.
if [ "$MODE" = boot ]; then
    root=$2
    groups=$(findmnt -nt cgroup2 -o TARGET | head -1)
    group=$(mktemp -d "$groups/argonaut-XXXXXX")
    echo "$group" >"$root/../cgroup"
    echo $$ >"$group/cgroup.procs"
    export root
    exec unshare --mount --pid --uts --cgroup --mount-proc --fork --kill-child bash -euc '
        hostname node
        mount -t proc proc "$root/proc"
        mount -t sysfs sysfs "$root/sys"
        mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
        mount -t tmpfs tmpfs "$root/run"
        mount -t tmpfs -o mode=755 tmpfs "$root/dev"
        for node in null zero full random urandom tty; do
            touch "$root/dev/$node"
            mount --bind "/dev/$node" "$root/dev/$node"
        done
        mkdir "$root/dev/pts" "$root/dev/shm"
        mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
        ln -s pts/ptmx "$root/dev/ptmx"
        ln -s /proc/self/fd "$root/dev/fd"
        exec chroot "$root" env -i container=unshare PATH=/usr/sbin:/usr/bin \
            /usr/lib/systemd/systemd --log-target=console --log-level=notice --show-status=false'
fi
[ "$MODE" = run ] || { sed -n '2,10p' "$0" >&2; exit 2; }
DIR=$3 NEW=$4 OLD=$5 PAGE=$6 SCENE=${7:-}
if [ -z "${ARGONAUT_PACKAGES_ALONE:-}" ]; then
    export ARGONAUT_PACKAGES_ALONE=1
    exec unshare --mount --mount-proc --net --pid --fork --kill-child bash "$0" "$@"
fi

ip link set lo up
ip addr add 192.0.2.10/24 dev lo
FAILED=0
BROKEN=
ROOT=
BOOT=
INIT=

# A root of its own: what happens in it is in DIR, and goes with that.
fresh() {
    local name=$1
    BROKEN=
    ROOT=$DIR/$name/root
    rm -rf --one-file-system "${DIR:?}/$name"
    mkdir -p "$DIR/$name"/{upper,work,root}
    mount -t overlay overlay -o "lowerdir=$BASE,upperdir=$DIR/$name/upper,workdir=$DIR/$name/work" "$ROOT"
    # What is in it goes soon.
    echo 'Dpkg::Options { "--force-unsafe-io"; };' >"$ROOT/etc/apt/apt.conf.d/99-soon-gone"
    rm "$ROOT/usr/sbin/policy-rc.d"
    mkdir -p "$ROOT/debs/new" "$ROOT/debs/old"
    cp "$NEW"/*.deb "$ROOT/debs/new/"
    cp "$OLD"/*.deb "$ROOT/debs/old/"
    # By another process: a control group is its own as long as it is empty but for it.
    bash "$0" boot "$ROOT" >"$DIR/$name/console" 2>&1 &
    BOOT=$!
    local end=$((SECONDS + 120))
    until INIT=$(pgrep -P "$BOOT") &&
        [[ $(run systemctl is-system-running 2>/dev/null || true) =~ ^(running|degraded)$ ]]; do
        [ -e "/proc/$BOOT" ] && [ $SECONDS -lt $end ] || {
            printf 'FAILED  %s: systemd does not start: %s\n' "$SUITE" "$(tail -n 5 "$DIR/$name/console")"
            FAILED=1 BROKEN=1
            return
        }
        sleep 0.5
    done
}
gone() {
    kill -9 "$BOOT" 2>/dev/null || true
    wait "$BOOT" 2>/dev/null || true
    while [ -e "/proc/$INIT" ]; do sleep 0.1; done
    find "$(cat "$ROOT/../cgroup")" -depth -type d -exec rmdir {} +
    umount "$ROOT"
    rm -rf --one-file-system "$(dirname "$ROOT")"
}
# In the root that runs.
run() {
    nsenter --target "$INIT" --mount --pid --uts --cgroup --root --wd env -i LC_ALL=C HOME=/root \
        PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"
}
line() { run bash -euo pipefail -c "$1"; }
apt() { run apt-get -yq --no-install-recommends "$@"; }

# check NAME COMMANDS: what they print is shown if one fails; then the rest of its root's is left out
check() {
    local name="$SUITE: $1" out code start=$SECONDS
    [ -z "$BROKEN" ] || return 0
    # Not in a condition: there the shell would go on behind what fails.
    set +e
    out=$(set -e; eval "$2" 2>&1)
    code=$?
    set -e
    if [ $code = 0 ]; then
        printf 'ok      %s (%d.0 s)\n' "$name" $((SECONDS - start))
    else
        printf 'FAILED  %s: %s\n' "$name" "$(tail -n 25 <<<"$out")"
        FAILED=1 BROKEN=1
    fi
}
fail() { echo "$*"; return 1; }

installed() {
    local p
    for p in "$@"; do
        [ "$(run dpkg-query -W -f '${db:Status-Abbrev}' "$p")" = "ii " ] || fail "$p is not installed"
    done
}
# Everything that apt and dpkg can complain of, names by their owners, users and directories.
sound() {
    local name owner
    run dpkg --audit | grep . && fail "dpkg --audit"
    run apt-get check
    installed argonaut argonaut-ceph-names "$@"
    for name in ceph-mon ceph-osd ceph-mgr ceph-mds radosgw ceph-bluestore-tool \
        ceph-objectstore-tool monmaptool crushtool ceph-exporter ceph-crash; do
        owner=$(run dpkg -S "/usr/bin/$name")
        [ "$owner" = "argonaut-ceph-names: /usr/bin/$name" ] || fail "$owner"
        run "$name" --version | grep -q '^ceph version .* argonaut' || fail "$name is another program"
        [ -s "$ROOT/usr/share/man/man8/$name.8.gz" ] || fail "$name has no manual page"
    done
    [ "$(run id -u ceph):$(run id -g ceph)" = 64045:64045 ] || fail "user ceph: $(run id ceph)"
    run id argonaut
    for name in . mon osd mgr mds radosgw crash/posted tmp bootstrap-osd; do
        owner=$(run stat -c %U:%G:%a "/var/lib/ceph/$name")
        [ "$owner" = ceph:ceph:750 ] || fail "/var/lib/ceph/$name: $owner"
    done
    for name in ceph-mon.target ceph-osd.target ceph-mgr.target ceph-mds.target ceph-radosgw.target \
        argonaut.target; do
        run systemctl is-enabled "$name" >/dev/null || fail "$name is not enabled"
        run systemctl is-active "$name" >/dev/null || fail "$name is not active"
    done
    run logrotate --debug /etc/logrotate.conf 2>&1 | grep -i 'error' && fail "logrotate"
    return 0
}
theirs() {
    for name in ceph ceph-authtool ceph-conf rados rbd; do
        [ "$(run dpkg -S "/usr/bin/$name")" = "ceph-common: /usr/bin/$name" ] || fail "owner of $name"
    done
    run ceph --version | grep -q '^ceph version .*(stable)' || fail "ceph is not upstream's"
    run python3 -c 'import rados, rbd, cephfs, rgw'
    [[ "$BESIDE" != *ceph-volume* ]] || run ceph-volume --help >/dev/null
}

# The commands of the page's section, from its first `ini` block on.
page() {
    local section
    section=$(sed -n '/^## A cluster of one node/,/^## /p' "$PAGE")
    sed -n '/^```ini$/,/^```$/p' <<<"$section" | sed '/^```/d' >"$ROOT/etc/ceph/ceph.conf"
    {
        echo 'set -euo pipefail'
        sed -n '/^```console$/,/^```$/p' <<<"$section" | sed '/^```/d; s/^# //'
    } >"$ROOT/root/page.sh"
    [ "$(grep -c ceph "$ROOT/root/page.sh")" -gt 8 ] || fail "the page has no commands"
    run timeout 240 bash -x /root/page.sh
}
healthy() {
    local end=$((SECONDS + ${1:-120})) said=
    until said=$(run timeout 10 ceph health 2>&1) && [ "$said" = HEALTH_OK ]; do
        [ $SECONDS -lt $end ] || fail "$said"$'\n'"$(run timeout 10 ceph -s; run journalctl -n 20 --no-pager)"
        sleep 0.5
    done
    until run timeout 10 ceph pg stat | grep -qE '^(0 pgs:|([0-9]+) pgs: \2 active[+]clean;)'; do
        [ $SECONDS -lt $end ] || fail "$(run timeout 10 ceph pg stat)"
        sleep 0.5
    done
    run ceph -s
}
UNITS="ceph-mon@a ceph-mgr@x ceph-osd@0 ceph-osd@1 ceph-osd@2"
pids() { for unit in $UNITS; do run systemctl show --property MainPID --value "$unit"; done; }
all_run_as_ceph() {
    local pid
    for pid in $(pids); do
        [ "$(run stat -c %U "/proc/$pid")" = ceph ] || fail "process $pid: $(run stat -c %U "/proc/$pid")"
    done
}
write_some() {
    line 'ceph osd pool create test 8 >/dev/null && ceph osd pool application enable test check
        head -c 3000000 /dev/urandom >/root/data && rados -p test put kept /root/data'
}
read_again() { line 'rados -p test get kept /root/again && cmp /root/data /root/again'; }
# Writes until the file is there: each write must succeed, within its time.
writer() {
    local n=0
    until [ -e "$ROOT/root/enough" ]; do
        n=$((n + 1))
        run timeout 60 rados -p test put "w$n" /root/data 2>>"$DIR/writer.err" || { echo "write $n" >>"$DIR/writer.failed"; }
    done
    echo "$n" >"$DIR/writer.done"
}
version_is() {
    local p
    for p in argonaut argonaut-ceph-names; do
        [ "$(run dpkg-query -W -f '${Version}' $p)" = "$1" ] || fail "$p is another version"
    done
}
# NEW goes in while daemons run: none is stopped, each is restarted in order, nobody waits long.
upgrade() {
    local before unit
    before=$(pids)
    ours new
    version_is "$NEW_VERSION"
    [ "$(pids)" = "$before" ] || fail "other processes"
    for pid in $before; do
        [[ $(run readlink "/proc/$pid/exe") == *deleted* ]] || fail "process $pid is of no older program"
    done
    in_order
}
in_order() {
    local unit
    for unit in $UNITS; do
        case $unit in
            ceph-mgr*) ;;
            ceph-mon*) ;; # the only one: clients wait for it
            ceph-osd*) run timeout 60 ceph osd ok-to-stop "${unit#*@}" ;;
        esac
        run systemctl restart "$unit"
        [[ $(run readlink "/proc/$(run systemctl show --property MainPID --value "$unit")/exe") != *deleted* ]]
        healthy 120 >/dev/null
    done
}
under_writes() {
    rm -f "$ROOT/root/enough" "$DIR"/writer.*
    writer &
    local job=$! code=0
    set +e
    (set -e; "$@")
    code=$?
    set -e
    touch "$ROOT/root/enough"
    wait "$job" || true
    [ ! -e "$DIR/writer.failed" ] || fail "writes failed: $(cat "$DIR"/writer.failed "$DIR"/writer.err)"
    [ "$(cat "$DIR/writer.done")" -gt 5 ] || fail "hardly anything was written"
    return $code
}
rollback() {
    ours old
    version_is "$OLD_VERSION"
    in_order
}
# The names of data, with what their content is.
data() { (cd "$ROOT/var/lib/ceph" && find . -type f ! -name '*.pid' -printf '%p %s\n' | sort); }
removed() {
    local before
    before=$(data | cut -d" " -f1)
    apt remove argonaut argonaut-ceph-names
    ! run pgrep -u ceph || fail "daemons run on"
    [ ! -e "$ROOT/usr/bin/argonaut" ] && [ ! -L "$ROOT/usr/bin/ceph-osd" ] || fail "a program is left"
    [ -e "$ROOT/etc/logrotate.d/argonaut" ] || fail "settings went with the program"
    [ "$(data | cut -d" " -f1)" = "$before" ] || fail "data is another"
    theirs
}
purged() {
    local before left
    before=$(data)
    apt purge argonaut argonaut-ceph-names
    [ "$(data)" = "$before" ] || fail "data is another"
    left=$(find "$ROOT/etc" "$ROOT/usr" "$ROOT/var/log" -name '*argonaut*' -not -path '*/debs/*' | grep -v /usr/local/ || true)
    [ -z "$left" ] || fail "left: $left"
    theirs
}
again() {
    ours new
    run systemctl start $UNITS
    healthy 120
    read_again
}

# ours VERSION: both packages, by apt
ours() { line "apt-get -yq --no-install-recommends --allow-downgrades install /debs/$1/*.deb"; }
without_theirs() {
    local before
    run systemctl stop ceph-mds.target ceph-osd.target ceph-mgr.target ceph-mon.target
    before=$(data)
    apt purge ceph-common # which stops ceph.target, and what is a part of it
    [ "$(data)" = "$before" ] || fail "data is another"
    run systemctl start ceph-{mon,osd,mgr,mds,radosgw}.target
    sound
    run test -e "$ROTATION"
}
no_daemons() {
    local p
    for p in $DAEMONS; do
        [ "$(run dpkg-query -W -f '${db:Status-Abbrev}' "$p" 2>/dev/null)" != "ii " ] || fail "$p is there still"
    done
}

one=$(cd "$NEW" && echo argonaut_*.deb); NEW_VERSION=$(cut -d_ -f2 <<<"$one")
one=$(cd "$OLD" && echo argonaut_*.deb); OLD_VERSION=$(cut -d_ -f2 <<<"$one")

is_wanted() { [ -z "$SCENE" ] || [ "$SCENE" = "$1" ]; }
if is_wanted theirs-first; then
    fresh theirs-first
    check "ceph-common and its kind, then ours" 'apt install $BESIDE; ours old; sound $BESIDE; theirs'
    check "a cluster of one node by the page" 'page; healthy; all_run_as_ceph; write_some'
    check "upgrade under writes, in order" 'under_writes upgrade'
    check "what was written is there, all is well" 'read_again; healthy; sound $BESIDE'
    check "rollback under writes, in order" 'under_writes rollback'
    check "what was written is there still" 'read_again; healthy'
    check "removed: daemons stop, data and settings stay" removed
    check "purged: data stays, nothing else of ours" purged
    check "installed anew: the same data" again
    gone
fi

if is_wanted ours-first; then
    fresh ours-first
    ROTATION=/etc/logrotate.d/argonaut-ceph-names
    check "ours alone" 'ours new; sound; run test -e $ROTATION'
    check "then ceph-common and its kind" 'apt install $BESIDE; sound $BESIDE; theirs; run test ! -e $ROTATION'
    check "a cluster of one node by the page, after that" 'page; healthy; all_run_as_ceph; write_some; read_again'
    check "no daemons of upstream's beside ours" 'line "apt-get -s install ceph-osd | grep \"^Remv argonaut-ceph-names\""'
    check "ceph-common is purged: ours and data stay" without_theirs
    gone
fi

if [ -n "$DAEMONS" ] && is_wanted daemons-first; then
    fresh daemons-first
    check "in place of upstream's daemons" 'apt install $BESIDE $DAEMONS; ours new; sound $BESIDE; theirs; no_daemons'
    check "and back" 'apt install $DAEMONS; installed $DAEMONS argonaut; line "! ceph-osd --version | grep argonaut"'
    gone
fi
exit $FAILED
