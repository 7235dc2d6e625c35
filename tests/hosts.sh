#!/bin/bash
# A cluster over several hosts that share a ceph.conf and keyrings: network namespaces with a
# switch between them. As root: hosts.sh BINARY DIRECTORY [short | keep]
#   (nothing)  four hosts, of which some are cut off and come back; then a host more
#   short      only the first host is cut off
#   keep       osd.0 to osd.3 on hosts 1 to 4, mon.a to mon.c on hosts 5 to 7, nothing on host 8:
#              says READY and the names' beginning, starts again what ends (pids in DIRECTORY/run)
#              and stops all when its standard input ends. OSD_BYTES: size of a store
# Ends with 77 where namespaces cannot be made.
set -eu
BIN=$1 D=$2 MODE=${3:-}
AWAY="3 1"; [ "$MODE" = short ] && AWAY=1
HOSTS="1 2 3 4" MON_HOSTS=(1 2 3)
[ "$MODE" = keep ] && HOSTS="1 2 3 4 5 6 7 8" MON_HOSTS=(5 6 7)
NET=10.231.$(($$ % 250))
N=argh$$
PIDS=()
rm -rf "$D"; mkdir -p "$D/run" "$D/log"

cleanup() {
    for pid in "${PIDS[@]}"; do kill -9 "$pid" 2>/dev/null || true; done
    if [ "$MODE" = keep ]; then stop KILL; fi
    wait 2>/dev/null || true
    for host in sw $(printf 'h%s ' $HOSTS); do ip netns del "$N-$host" 2>/dev/null || true; done
}
# stop SIGNAL: to all that is kept, and waits for its end
stop() {
    for file in "$D"/run/*.pid; do
        [ -e "$file" ] || continue
        pid=$(cat "$file")
        kill "-$1" "$pid" 2>/dev/null || continue
        kill -CONT "$pid" 2>/dev/null || true
        for _ in $(seq 600); do [ -e "/proc/$pid" ] || break; sleep 0.1; done
    done
}
trap cleanup EXIT
fail() { echo "FAILED: $*"; on 1 ceph status || true; tail -n 5 "$D"/log/*.log; exit 1; }

# on HOST WORDS..: the binary on a host, with a host name of its own
on() {
    local h=$1; shift
    timeout 60 ip netns exec "$N-h$h" unshare --uts sh -c "hostname h$h; exec \"\$@\"" sh "$BIN" "$@"
}
run() {
    local h=$1 name=$2; shift 2
    ip netns exec "$N-h$h" unshare --uts sh -c "hostname h$h; exec \"\$@\"" sh "$BIN" "$@" \
        >>"$D/log/$name.log" 2>&1 &
    PIDS+=($!)
}
# keep HOST NAME WORDS..: as run, and again whenever it ends
keep() {
    local h=$1 name=$2; shift 2
    (
        set +e
        while :; do
            ip netns exec "$N-h$h" unshare --uts sh -c "hostname h$h; exec \"\$@\"" sh "$BIN" "$@" \
                >>"$D/log/$name.log" 2>&1 &
            echo $! >"$D/run/$name.pid"
            wait $!
            sleep 0.5
        done
    ) 2>/dev/null & # who was killed is not worth a word
    PIDS+=($!)
    disown
}
# until SECONDS TEXT WORDS..: a command shows a text
until_shown() {
    local end=$((SECONDS + $1)) text=$2; shift 2
    while ! "$@" 2>/dev/null | grep -q "$text"; do
        [ $SECONDS -lt $end ] || fail "'$text' is not shown by $*"
        sleep 0.3
    done
}
cut_off() { ip -n "$N-sw" link set "p$1" down; }
let_in() { ip -n "$N-sw" link set "p$1" up; }

if ! ip netns add "$N-sw" || ! ip -n "$N-sw" link add br0 type bridge ||
    ! unshare --uts hostname "$N"; then
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

cat >"$D/ceph.conf" <<CONF
[global]
    fsid = 5a3e91c4-7c0b-4d0e-9b53-0d2a5c1f7e11
    mon initial members = a,b,c
    mon host = [v2:$NET.${MON_HOSTS[0]}:3300],[v2:$NET.${MON_HOSTS[1]}:3300],[v2:$NET.${MON_HOSTS[2]}:3300]
    public network = $NET.0/24
    run dir = $D/run
    admin socket = $D/run/ceph-\$name.asok
    keyring = $D/keyring
    osd heartbeat interval = 1
    osd heartbeat grace = 4
    mon osd down out interval = 600
    osd pool default pg autoscale mode = off
    mon allow pool delete = true
    mon max pg per osd = 2000
[mon]
    mon data = $D/mon.\$id
    keyring = $D/mon.\$id/keyring
[osd]
    osd data = $D/osd.\$id
    keyring = $D/osd.\$id/keyring
    osd device bytes = ${OSD_BYTES:-1G}
    osd journal size = 64M
[client]
    admin socket =
CONF
export CEPH_CONF=$D/ceph.conf
key() { python3 -c 'import base64,os,struct,time; print(base64.b64encode(struct.pack("<HIIH",1,int(time.time()),0,16)+os.urandom(16)).decode())'; }
printf '[mon.]\n\tkey = %s\n[client.admin]\n\tkey = %s\n' "$(key)" "$(key)" >"$D/first.keyring"
sed -n '/client.admin/,$p' "$D/first.keyring" >"$D/keyring"

start=run; [ "$MODE" = keep ] && start=keep
for at in 0 1 2; do
    mon=$(printf '%b' "\\x6$((at + 1))") h=${MON_HOSTS[$at]}
    on $h mon --mkfs -i $mon --keyring "$D/first.keyring"
    $start $h mon.$mon mon -i $mon
done
if [ "$MODE" = keep ]; then
    until_shown 40 'quorum a,b,c' on 8 ceph status
    for h in 1 2 3 4; do
        id=$(on $h osd new)
        keep $h "osd.$id" osd -i "$id"
        until_shown 40 "$h up" on 8 ceph osd stat
    done
    echo "READY $N $NET"
    cat >/dev/null
    for pid in "${PIDS[@]}"; do kill -9 "$pid"; done
    PIDS=()
    stop TERM
    exit 0
fi
until_shown 20 'quorum a,b,c' on 1 ceph status
truncate -s 1G "$D/device"
for h in 1 2 3; do
    device=(); [ $h = 3 ] && device=(--device "$D/device")
    id=$(on $h osd new "${device[@]}")
    run $h "osd.$id" osd -i "$id"
done
until_shown 20 '3 up' on 2 ceph osd stat
on 1 ceph osd tree | grep -q 'host h2' || fail "osd.1 does not stand on its host"
on 1 ceph osd pool create p 16 >/dev/null
until_shown 30 '16 active+clean' on 1 ceph pg stat
head -c 300000 /dev/urandom >"$D/one"; head -c 300000 /dev/urandom >"$D/two"
on 1 rados -p p put one "$D/one"

# A host away, with its monitor and OSD: the others go on, and it catches up.
for away in $AWAY; do
    here=$((away % 3 + 1))
    cut_off $away
    began=$SECONDS
    on $here rados -p p put "two$away" "$D/two" || fail "no write while host $away is away"
    echo "host $away cut off: a write was done after $((SECONDS - began)) s"
    until_shown 30 '2 up' on $here ceph osd stat
    on $here rados -p p get one "$D/got" && cmp "$D/one" "$D/got" || fail "one is not what it was"
    let_in $away
    until_shown 30 '3 up' on $here ceph osd stat
    until_shown 60 '16 active+clean' on $here ceph pg stat
    until_shown 20 'quorum a,b,c' on $away ceph status
    on $away rados -p p get "two$away" "$D/got" && cmp "$D/two" "$D/got" || fail "two$away is lost"
done

# A host more: monitor and OSD.
sed -n '/mon\.\]/,/key/p' "$D/first.keyring" >"$D/mon.keyring"
on 4 mon join -i d --keyring "$D/mon.keyring" --addr v2:$NET.4:3300 >/dev/null
run 4 mon.d mon -i d
until_shown 20 'quorum a,b,c,d' on 1 ceph status
id=$(on 4 osd new)
run 4 "osd.$id" osd -i "$id"
until_shown 20 '4 up' on 4 ceph osd stat
until_shown 60 '16 active+clean' on 4 ceph pg stat
on 4 rados -p p get one "$D/got" && cmp "$D/one" "$D/got" || fail "one is not what it was"

# A monitor less, which hears of it only when it is back.
cut_off 4
on 1 ceph mon rm d >/dev/null
until_shown 20 'quorum 0,1,2 a,b,c$' on 1 ceph mon stat
let_in 4
until_shown 30 'mon.d was removed' cat "$D/log/mon.d.log"
until_shown 5 gone sh -c "[ -e '$D/mon.d/ready' ] || echo gone"
echo "four hosts: all well"
