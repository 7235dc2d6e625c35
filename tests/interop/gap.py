"""gap.py POOL SECONDS: writes and commands, one after the other; the longest pause of each.
Prints one JSON object. Every error ends it."""
import json
import os
import sys
import threading
import time

import rados

pool, end = sys.argv[1], time.monotonic() + float(sys.argv[2])
cluster = rados.Rados(conffile=os.environ["CEPH_CONF"])
cluster.connect()
out, errors = {}, []


def work(name, one):
    n, slowest = 0, 0.0
    try:
        while time.monotonic() < end:
            began = time.monotonic()
            one(n)
            slowest = max(slowest, time.monotonic() - began)
            n += 1
    except Exception as e:  # every error counts
        errors.append("%s: %r" % (name, e))
    out[name], out["slowest_%s_s" % name] = n, round(slowest, 3)


def command(n):
    words = {"prefix": "config-key set", "key": "gap", "val": str(n)}
    r, _, why = cluster.mon_command(json.dumps(words), b"")
    if r:
        raise OSError(r, why)


io = cluster.open_ioctx(pool)
threads = [threading.Thread(target=work, args=("writes", lambda n: io.write_full("o%d" % (n % 97), b"x" * 4096))),
           threading.Thread(target=work, args=("commands", command))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(json.dumps(out))
sys.exit("\n".join(errors) or 0)
