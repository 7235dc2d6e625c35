# The kernel's block device driver, inside a guest of lab/guest. Arguments: client.admin's key, the
# monitors, the messenger's mode (crc, secure; legacy: v1, as without the option). Pools: rbd, and ec for data. Lines that begin with HOST
# are carried out outside: "HOST outage osd.1 8" keeps a daemon dead for 8 seconds.
set -eEuo pipefail
key=$1 mons=$2 mode=$3
trap 'echo "FAILED in line $LINENO: $BASH_COMMAND"; dmesg | tail -n 25' ERR
ms_mode=,ms_mode=$mode; [ "$mode" != legacy ] || ms_mode=
printf '[global]\nmon host = %s\nkeyring = /etc/ceph/keyring\nrbd default map options = noudev%s\n' \
  "$mons" "$ms_mode" >/etc/ceph/ceph.conf
printf '[client.admin]\nkey = %s\n' "$key" >/etc/ceph/keyring
mkdir -p /disk
exec 2>&1
began=$SECONDS
say() { echo "$((SECONDS - began)) s: $*"; }
fails() { if "$@" >/dev/null 2>&1; then echo "should have failed: $*"; false; fi; }
map() { rbd map "$@"; }
unmap() { rbd unmap -o noudev "$@"; }
noise() { head -c "$1" /dev/urandom; }
# Files with sums on a new file system of an image, seen again after the device was gone.
file_system() { # IMAGE
  local dev i
  dev=$(map "$1")
  mkfs.ext4 -q "$dev"; mount -o discard "$dev" /disk
  for i in 1 2 3 4 5 6; do noise 1500000 | tee "/disk/f$i" | sha256sum | sed "s#-\$#f$i#" >>/sums.new; done
  rm -f /disk/f6; sed -i '/f6$/d' /sums.new; mv /sums.new /sums
  umount /disk; unmap "$dev"
  dev=$(map "$1"); mount "$dev" /disk
  (cd /disk; sha256sum -c /sums >/dev/null)
  umount /disk; e2fsck -fn "$dev" >/dev/null 2>&1
  rbd export --no-progress "$1" - | cmp - "$dev"
  unmap "$dev"
  rbd object-map check --no-progress "$1"
}

say "an image of default features, $mode"
rbd create rbd/a -s 48M
file_system rbd/a
say "data in an erasure-coded pool"
rbd create rbd/coded -s 48M --data-pool ec
file_system rbd/coded
say "striped"
rbd create rbd/striped -s 32M --object-size 1M --stripe-unit 64K --stripe-count 4
file_system rbd/striped
say "in a namespace"
rbd namespace create rbd/ns; rbd create rbd/ns/a -s 32M
file_system rbd/ns/a; rbd rm --no-progress rbd/ns/a; rbd namespace rm rbd/ns

for image in a coded; do
  say "an OSD dies and comes back: $image"
  dev=$(map rbd/$image)
  echo "HOST outage osd.1 8"
  for round in 1 2 3; do
    fio --name=v --filename="$dev" --ioengine=psync --direct=1 --numjobs=6 --size=8M --offset_increment=8M \
      --rw=randwrite --bsrange=4k-64k --verify=crc32c --do_verify=1 --verify_fatal=1 \
      --randseed=$((round * 7)) --output=/fio.log || { cat /fio.log; false; }
    grep -q 'err= 0' /fio.log; fails grep -qE 'err= *[1-9]|verify:' /fio.log
    [ $round != 2 ] || echo "HOST outage osd.2 6"
  done
  rbd export --no-progress rbd/$image - | cmp - "$dev"
  unmap "$dev"
  rbd object-map check --no-progress rbd/$image
done

say "a snapshot of a mapped image, a clone of it"
file_system rbd/a
dev=$(map rbd/a)
dd if="$dev" of=/before bs=1M status=none
rbd snap create --no-progress rbd/a@s
dd if=/dev/urandom of="$dev" bs=1M count=8 seek=3 oflag=direct status=none
rbd snap protect rbd/a@s
snap=$(map rbd/a@s); cmp "$snap" /before
fails dd if=/dev/zero of="$snap" bs=4k count=1 oflag=direct
unmap "$snap"
balanced=$(map --read-only -o read_from_replica=balance rbd/a); cmp "$balanced" "$dev"; unmap "$balanced"
unmap "$dev"
for format in 1 2; do
  rbd clone --rbd-default-clone-format $format rbd/a@s rbd/clone
  dev=$(map rbd/clone); cmp "$dev" /before; cp /before /expected
  for at in 0 5 17 20 21 47; do
    dd if=/dev/urandom of=/part bs=8k count=3 status=none
    dd if=/part of="$dev" bs=8k seek=$((at * 128 + 1)) oflag=direct status=none
    dd if=/part of=/expected bs=8k seek=$((at * 128 + 1)) conv=notrunc status=none
  done
  blkdiscard -o $((30 << 20)) -l $((8 << 20)) "$dev"
  dd if=/dev/zero of=/expected bs=1M seek=30 count=8 conv=notrunc status=none
  cmp "$dev" /expected
  rbd flatten --no-progress rbd/clone
  cmp "$dev" /expected
  rbd export --no-progress rbd/clone - | cmp - /expected
  unmap "$dev"
  rbd object-map check --no-progress rbd/clone
  dev=$(map rbd/clone); cmp "$dev" /expected; unmap "$dev"
  rbd rm --no-progress rbd/clone
done
rbd snap unprotect rbd/a@s; rbd snap rm --no-progress rbd/a@s

say "the lock goes to librbd and back"
dev=$(map rbd/a)
for round in 1 2 3 4; do
  noise 65536 >/part
  dd if=/part of="$dev" bs=64k seek=$round oflag=direct status=none
  rbd bench --io-type write --io-size 4K --io-total 80K --io-pattern rand rbd/a >/dev/null
  dd if=/part of="$dev" bs=64k seek=$((round + 100)) oflag=direct status=none
  dd if="$dev" bs=64k skip=$((round + 100)) count=1 iflag=direct status=none | cmp - /part
done
rbd lock ls rbd/a | grep -q auto
rbd export --no-progress rbd/a /after; cmp /after "$dev"

say "a new size"
rbd resize --no-progress rbd/a -s 64M
for i in $(seq 50); do [ "$(blockdev --getsize64 "$dev")" != $((64 << 20)) ] || break; sleep 0.1; done
[ "$(blockdev --getsize64 "$dev")" = $((64 << 20)) ]
dd if=/part of="$dev" bs=64k seek=1022 oflag=direct status=none

say "who has lost the lock by force writes no more"
read -r client id <<<"$(rbd lock ls rbd/a | sed -n 's/^\(client[^ ]*\) *\(auto [0-9]*\) .*/\1 \2/p')"
rbd lock rm rbd/a "$id" "$client"
fails timeout 60 dd if=/part of="$dev" bs=64k oflag=direct
unmap -o force "$dev" 2>/dev/null || unmap "$dev"
dev=$(map rbd/a)
dd if=/part of="$dev" bs=64k oflag=direct status=none
dd if="$dev" bs=64k count=1 iflag=direct status=none | cmp - /part
unmap "$dev"

say "exclusive: nobody else gets the lock"
dev=$(map -o exclusive rbd/a)
fails timeout 40 rbd bench --io-type write --io-size 4K --io-total 8K rbd/a
dd if=/part of="$dev" bs=64k seek=2 oflag=direct status=none
unmap "$dev"
rbd object-map check --no-progress rbd/a
for image in a coded striped; do rbd rm --no-progress rbd/$image; done
fails grep -E 'Call Trace|BUG|WARNING' <(dmesg)
say "done, $mode"
