"""A client that has not heard of many OSD maps goes on at once, though who leads has changed since."""
import faulthandler
import json
import os
import signal
import subprocess
import sys
import time

import rados

CONF = os.environ["CEPH_CONF"]
# Later it asks for maps by itself, and then again.
AT_ONCE_S = 8


def client(pool):
    """Writes, stops itself, and writes again when it is continued."""
    faulthandler.enable()  # a library that aborts says where each thread was
    cluster = rados.Rados(conffile=CONF)
    cluster.connect()
    ioctx = cluster.open_ioctx(pool)
    names = ["o%d" % i for i in range(64)]
    for name in names:
        ioctx.write_full(name, b"before")
    os.kill(os.getpid(), signal.SIGSTOP)
    began = time.time()
    for name in names:
        ioctx.write_full(name, b"after")
    took = time.time() - began
    assert all(ioctx.read(name) == b"after" for name in names)
    assert took < AT_ONCE_S, "it went on after %.1f s" % took
    print("it went on after %.3f s" % took, flush=True)
    ioctx.close()
    cluster.shutdown()


def far(pool, epochs):
    """Lets so many epochs pass while a client is stopped."""
    cluster = rados.Rados(conffile=CONF)
    cluster.connect()

    def ask(**command):
        code, out, why = cluster.mon_command(json.dumps({**command, "format": "json"}), b"")
        assert code == 0, why
        return json.loads(out) if out.strip() else None

    cluster.create_pool(pool)
    one = subprocess.Popen([sys.executable, __file__, "client", pool])
    _, status = os.waitpid(one.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status), "the client ended with %d" % status
    first = ask(prefix="osd stat")["epoch"]
    while ask(prefix="osd stat")["epoch"] < first + epochs:
        cluster.create_pool(pool + "-more")
        cluster.delete_pool(pool + "-more")
    ask(prefix="osd primary-affinity", id=0, weight=0.0)
    os.kill(one.pid, signal.SIGCONT)
    status = one.wait()
    assert status == 0, "the client after %d epochs ended with %d" % (epochs, status)
    ask(prefix="osd primary-affinity", id=0, weight=1.0)
    cluster.delete_pool(pool)
    cluster.shutdown()


if sys.argv[1] == "client":
    client(sys.argv[2])
else:
    for epochs in [100, 1200]:
        far(sys.argv[1], epochs)
