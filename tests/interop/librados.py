"""The calls an application makes first, through upstream's librados."""
import os
import sys

import rados

pool = sys.argv[1]
cluster = rados.Rados(conffile=os.environ["CEPH_CONF"])
cluster.connect()
assert len(cluster.get_fsid()) == 36
cluster.create_pool(pool)
assert cluster.pool_exists(pool) and pool in cluster.list_pools()
ioctx = cluster.open_ioctx(pool)

ioctx.write_full("a", b"0123456789")
assert ioctx.read("a") == b"0123456789"
ioctx.write("a", b"xy", 4)
assert ioctx.read("a", 4, 3) == b"3xy6"
ioctx.append("a", b"!")
assert ioctx.stat("a")[0] == 11
ioctx.trunc("a", 5)
assert ioctx.read("a") == b"0123x"
assert ioctx.read("a", 10, 100) == b""
try:
    ioctx.read("nosuch")
    raise AssertionError("read of a missing object")
except rados.ObjectNotFound:
    pass

ioctx.set_xattr("a", "k", b"v\0w")
assert ioctx.get_xattr("a", "k") == b"v\0w"
assert dict(ioctx.get_xattrs("a")) == {"k": b"v\0w"}
ioctx.rm_xattr("a", "k")

with rados.WriteOpCtx() as op:
    ioctx.set_omap(op, ("k1", "k2", "k3"), (b"1", b"22", b"333"))
    op.new(rados.LIBRADOS_CREATE_IDEMPOTENT)
    ioctx.operate_write_op(op, "omap")
with rados.ReadOpCtx() as op:
    values, _ = ioctx.get_omap_vals(op, "k1", "", 10)
    ioctx.operate_read_op(op, "omap")
    got = list(values)
    assert got == [("k2", b"22"), ("k3", b"333")], got

waiting = [ioctx.aio_write_full("n%d" % i, b"%d" % i * 1000) for i in range(200)]
for completion in waiting:
    completion.wait_for_complete_and_cb()
    assert completion.get_return_value() == 0
assert {o.key for o in ioctx.list_objects()} == {"a", "omap"} | {"n%d" % i for i in range(200)}
assert ioctx.read("n199", 3) == b"199"

ioctx.set_namespace("ns")
ioctx.write_full("a", b"other")
assert [o.key for o in ioctx.list_objects()] == ["a"]
ioctx.remove_object("a")
ioctx.set_namespace("")
assert ioctx.read("a") == b"0123x"
assert cluster.get_cluster_stats()["kb"] > 0
ioctx.close()
cluster.delete_pool(pool)
assert not cluster.pool_exists(pool)
cluster.shutdown()
