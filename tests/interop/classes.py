"""Calls of an uploaded class through upstream's librados: what it does, who may, what is bounded."""
import errno
import os
import sys
import threading
import time

import rados

cls, keyring = sys.argv[1], sys.argv[2]
conf = os.environ["CEPH_CONF"]
cluster = rados.Rados(conffile=conf)
cluster.connect()
pool = cls + "-pool"
cluster.create_pool(pool)
ioctx = cluster.open_ioctx(pool)


def fails(number, call):
    try:
        done = call()
    except rados.Error as e:
        assert e.errno == number, (e.errno, number)
        return
    raise AssertionError("succeeded: %r" % (done,))


# Every object may lie on another OSD, and OSDs follow the monitors within moments.
names = ["o%d" % i for i in range(16)]
end = time.time() + 20
for name in names:
    while True:
        try:
            ioctx.execute(name, cls, "add", b"red one\nblue two\nred three\n")
            break
        except rados.Error:
            assert time.time() < end, "an OSD did not follow"
            time.sleep(0.05)
for name in names:
    assert ioctx.execute(name, cls, "count", b"")[1] == b"3"
    assert ioctx.execute(name, cls, "top", b"")[1] == b"blue 1\nred 2\n"
    assert ioctx.execute(name, cls, "grep", b"re", 1000)[1] == b"red one\nred three\n"
assert ioctx.read("o0") == b"red one\nblue two\nred three\n"
assert ioctx.get_xattr("o0", "lines") == b"3"
fails(errno.EINVAL, lambda: ioctx.execute("o0", cls, "add", b"no newline"))
fails(errno.EOPNOTSUPP, lambda: ioctx.execute("o0", cls, "nothing", b""))

# What does not end is ended, and others are served meanwhile.
worst, stop = [0.0], threading.Event()


def others():
    while not stop.is_set():
        start = time.time()
        ioctx.write_full("other", b"x")
        worst[0] = max(worst[0], time.time() - start)


thread = threading.Thread(target=others)
thread.start()
start = time.time()
for i in range(10):
    fails(errno.ETIMEDOUT, lambda: ioctx.execute(names[i], cls, "spin", b""))
    fails(errno.ENOMEM, lambda: ioctx.execute(names[i], cls, "hoard", b""))
took = time.time() - start
stop.set()
thread.join()
print("20 runaways took %.2f s; the slowest write beside them %.3f s" % (took, worst[0]))
assert worst[0] < 5, worst
assert ioctx.execute("o0", cls, "count", b"")[1] == b"3"

# Capabilities, as for built-in classes.
ioctx.execute("pub", cls, "add", b"a\n")
guest = rados.Rados(conffile=conf, name="client." + cls, conf={"keyring": keyring})
guest.connect()
theirs = guest.open_ioctx(pool)
assert theirs.execute("o1", cls, "count", b"")[1] == b"3"
fails(errno.EPERM, lambda: theirs.execute("o1", cls, "top", b""))
assert theirs.execute("pub", cls, "top", b"")[1] == b"a 1\n"
fails(errno.EPERM, lambda: theirs.execute("pub", cls, "add", b"b\n"))
fails(errno.EPERM, lambda: theirs.read("o1"))
theirs.close()
guest.shutdown()
ioctx.close()
cluster.delete_pool(pool)
cluster.shutdown()
