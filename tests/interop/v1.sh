# Monitors at their addresses of messenger v1, of v2 and of both. Env: SUITE, MODE. (Whoever finds a v2 address in
# the OSD map takes that: OSDs and metadata servers by v1 are the kernel's matter, `cargo xtask krbd legacy`.)
pool=v1-$SUITE-$MODE
old=$(grep -o 'v1:[0-9.:]*' "$CEPH_CONF" | xargs | tr ' ' ,)
new=$(grep -o 'v2:[0-9.:]*' "$CEPH_CONF" | xargs | tr ' ' ,)
both=$(sed -n 's/^ *mon host = //p' "$CEPH_CONF")
test "$(tr , '\n' <<<"$old" | wc -l)" = 3
for mon in ${old//,/ }; do
    ceph -m $mon -s | grep -q 'quorum a,b,c'
    # Another protocol's port: no answer that is believed.
    ! timeout 3 ceph -m "v2:${mon#v1:}" -s >/dev/null 2>&1
done
dump=$(ceph --mon-host "$old" mon dump 2>/dev/null)
grep -Eq '^0: \[v2:[0-9.]+:[0-9]+/0,v1:[0-9.]+:[0-9]+/0\] mon.a' <<<"$dump"
ceph --mon-host "$old" osd dump | grep -Eq '^osd.0 .* \[v2:[^,]*,v1:[^]]*\] '
ceph --mon-host "$old" osd pool create $pool 8
for mons in "$old" "$new" "$both"; do
    file=/tmp/interop-v1-$SUITE-$MODE
    head -c 3000000 /dev/urandom >$file
    rados --mon-host "$mons" -p $pool put o $file
    rados --mon-host "$mons" -p $pool get o $file.back
    cmp $file $file.back
    rm $file $file.back
done
# A wrong key is refused in the first words, and the command ends.
printf '[client.admin]\n\tkey = AQBfCYlp0LmHGBAAwMVv8Gx8NLAlFSwyD3yd8A==\n' >/tmp/wrong-$SUITE-$MODE
! timeout 20 ceph --mon-host "$old" --keyring /tmp/wrong-$SUITE-$MODE -s 2>/tmp/said-$SUITE-$MODE
grep -qi 'permission denied\|error connecting' /tmp/said-$SUITE-$MODE
rm /tmp/wrong-$SUITE-$MODE /tmp/said-$SUITE-$MODE
# Long answers, and a command to the manager.
ceph --mon-host "$old" osd getmap -o /tmp/map-$SUITE-$MODE
test -s /tmp/map-$SUITE-$MODE
rm /tmp/map-$SUITE-$MODE
ceph --mon-host "$old" pg dump 2>/dev/null | grep -q '^sum'
ceph --mon-host "$old" osd pool rm $pool $pool --yes-i-really-really-mean-it
