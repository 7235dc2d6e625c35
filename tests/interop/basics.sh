# The first commands anybody types, with one release's clients. Env: SUITE, MODE.
pool=basics-$SUITE-$MODE
ceph -s | grep -q 'health:'
ceph -s -f json | python3 -c 'import json,sys; assert json.load(sys.stdin)["osdmap"]["num_up_osds"] == 3'
ceph osd tree | grep -q 'osd.2 *up'
ceph osd pool create $pool 16
ceph osd pool application enable $pool rados
ceph df | grep -q $pool
ceph osd pool ls | grep -qx $pool
rados -p $pool bench 2 write -t 8 -b 4096 --no-cleanup >/dev/null
rados -p $pool bench 1 seq -t 8 >/dev/null
rados -p $pool bench 1 rand -t 8 >/dev/null
rados -p $pool cleanup >/dev/null
file=/tmp/interop-$SUITE-$MODE
head -c 33000000 /dev/urandom >$file
rados -p $pool put big $file
rados -p $pool get big $file.back
cmp $file $file.back
rados -p $pool stat big | grep -q 'size 33000000'
echo hello >$file
rados -p $pool append big $file
rados -p $pool stat big | grep -q 'size 33000006'
rados -p $pool setxattr big color blue
test "$(rados -p $pool getxattr big color)" = blue
rados -p $pool listxattr big | grep -qx color
rados -p $pool setomapval big k1 v1
rados -p $pool listomapvals big | grep -q k1
rados -p $pool ls | grep -qx big
rados -p $pool rm big
! rados -p $pool stat big 2>/dev/null
rm -f $file $file.back
ceph osd pool rm $pool $pool --yes-i-really-really-mean-it
