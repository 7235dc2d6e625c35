# The kernel's file system client, inside a guest of lab/guest. Arguments: client.admin's key, the monitors'
# hosts and ports for this mode, the messenger's mode (crc, secure; legacy: v1, as without the option), the key of
# client.limited, who may use /limited alone. Lines that begin with HOST are carried out outside:
# "HOST outage osd.1 8" keeps a daemon dead for 8 seconds.
set -eEuo pipefail
key=$1 mons=$2 mode=$3 limited=$4
trap 'echo "FAILED in line $LINENO: $BASH_COMMAND"; dmesg | grep -E "ceph|WARNING|BUG" | tail -n 40' ERR
ms_mode=,ms_mode=$mode; [ "$mode" != legacy ] || ms_mode=
exec 2>&1
began=$SECONDS
say() { echo "$((SECONDS - began)) s: $*"; }
fails() { if "$@" >/dev/null 2>&1; then echo "should have failed: $*"; false; fi; }
# Mounts that do not share a client: each has caps of its own.
on() { # PATH DIRECTORY [OPTION,...]
  mkdir -p "$2"; mount -t ceph "$mons:$1" "$2" -o "name=admin,secret=$key$ms_mode,noshare${3:+,$3}"
}
sums() { (cd "$1"; find . -type f -print0 | sort -z | xargs -0 sha256sum); }

say "a mount, $mode"
top=/$mode
on / /all; mkdir -p /all$top /all/limited
mount -t ceph "$mons:/" /mnt -o "name=admin,secret=$key$ms_mode"; umount /mnt
on $top /one wsync; on $top /two nowsync
grep ' /one ceph ' /proc/mounts

say "two clients, a local file system"
mkdir /local
python3 fuse.py /one /two /local

say "a tree of small files; read anew by who never saw it"
cp -a /usr/lib/python3*/json /usr/lib/python3*/email /usr/lib/python3*/xml /one
for d in json email xml; do sums /one/$d; done >/sums
umount /one; on $top /one
for d in json email xml; do sums /one/$d; done | cmp - /sums
for d in json email xml; do sums /two/$d; done | cmp - /sums

say "attributes, links, users"
python3 kernel.py /one /two
[ "$(getfattr --only-values -n ceph.dir.rfiles /two/xml)" = "$(find /one/xml -type f | wc -l)" ]
[ "$(getfattr --only-values -n ceph.dir.rbytes /two/xml)" = "$(find /one/xml -type f -exec stat -c %s {} + | awk '{n += $1} END {print n}')" ]
getfattr --only-values -n ceph.file.layout /one/json/__init__.py | grep -q 'object_size=4194304 pool=cephfs_data'

say "snapshots"
mkdir /one/kept; cp /one/json/*.py /one/kept; sums /one/kept >/sums.kept
mkdir /one/kept/.snap/s
for f in /two/kept/*.py; do echo later >>"$f"; done; rm /one/kept/__init__.py; mv /two/kept/decoder.py /two/moved
sums /one/kept/.snap/s | cmp - /sums.kept
sums /two/kept/.snap/s | cmp - /sums.kept
fails touch /one/kept/.snap/s/new
fails rmdir /one/kept
mkdir /one/kept/below; ls /one/kept/.snap/s | grep -vq below
rmdir /two/kept/.snap/s; [ -z "$(ls /one/kept/.snap)" ]

say "quotas"
mkdir /one/narrow; setfattr -n ceph.quota.max_bytes -v 4194304 /one/narrow
setfattr -n ceph.quota.max_files -v 5 /one/narrow
# A client judges each write by what it knows of the sums then.
fails dd if=/dev/zero of=/one/narrow/large bs=8M count=1 status=none
dd if=/dev/zero of=/two/narrow/large bs=3M count=1 conv=fsync status=none
for i in $(seq 50); do [ "$(getfattr --only-values -n ceph.dir.rbytes /one/narrow 2>/dev/null)" != 3145728 ] || break; sleep 0.2; done
fails dd if=/dev/zero of=/one/narrow/more bs=2M count=1 status=none
rm -f /one/narrow/large /two/narrow/more
for i in 1 2 3 4 5 6 7 8 9; do touch /two/narrow/$i 2>/dev/null || break; sleep 0.2; done
[ "$(ls /two/narrow | wc -l)" -le 6 ]
[ "$i" -lt 9 ]
on $top/narrow /quota; [ "$(stat -f -c '%S %b' /quota | awk '{print $1 * $2}')" = 4194304 ]; umount /quota
rm -r /one/narrow

say "a key for one directory"
mkdir /mine
mount -t ceph "$mons:/limited" /mine -o "name=limited,secret=$limited$ms_mode"
echo mine >/mine/$mode; cmp /mine/$mode /all/limited/$mode
fails mount -t ceph "$mons:/" /mnt -o "name=limited,secret=$limited$ms_mode,noshare"
fails mount -t ceph "$mons:$top" /mnt -o "name=limited,secret=$limited$ms_mode,noshare"
fails mount -t ceph "$mons:/" /mnt -o "name=limited,secret=$key$ms_mode,noshare"
umount /mine

say "data with sums while an OSD dies and comes back"
echo "HOST outage osd.1 8"
for round in 1 2; do
  fio --name=v --filename=/one/verified --ioengine=psync --numjobs=3 --size=8M --offset_increment=8M --fsync=16 \
    --rw=randwrite --bsrange=4k-64k --verify=crc32c --do_verify=1 --verify_fatal=1 \
    --randseed=$((round * 7)) --output=/fio.log || { cat /fio.log; false; }
  grep -q 'err= 0' /fio.log; fails grep -qE 'err= *[1-9]|verify:' /fio.log
done
cmp /one/verified /two/verified

say "the metadata server dies under changes; nothing that was synced is lost"
mkdir /one/through
reconnects() { dmesg | grep -c "mds0 reconnect start" || true; }
before=$(reconnects)
echo "HOST outage active-mds 8"
python3 kernel.py through /one/through 150
[ "$(reconnects)" -gt "$before" ]
umount /one; on $top /one
python3 kernel.py check /one/through 150
sleep 10; before=$(reconnects)
echo "HOST outage active-mds 8"
python3 kernel.py through /two/through2 150
[ "$(reconnects)" -gt "$before" ]
python3 kernel.py check /one/through2 150

say "sizes agree"
[ "$(stat -f -c %b /all)" -gt 0 ]; df /one
rm -r /one/*; [ -z "$(ls /two)" ]
umount /one /two /all
fails grep -E 'Call Trace|BUG|WARNING' <(dmesg)
say "done, $mode"
