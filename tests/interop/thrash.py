"""Works for some seconds while somebody kills monitors: objects, commands, new clients.
Prints one JSON object: how much was done, what failed, how long the slowest took."""
import faulthandler
import json
import os
import subprocess
import sys
import threading
import time

import rados

seconds = float(sys.argv[1])
end = time.time() + seconds
# Whoever still waits long after the end waits for ever: say where.
faulthandler.dump_traceback_later(seconds + 15, exit=True)
out = {"commands": 0, "writes": 0, "clients": 0, "errors": [],
       "slowest_command_s": 0.0, "slowest_write_s": 0.0, "slowest_client_s": 0.0}
lock = threading.Lock()


def did(what, slowest, began):
    with lock:
        out[what] += 1
        out[slowest] = max(out[slowest], round(time.time() - began, 3))


def failed(text):
    with lock:
        if len(out["errors"]) < 50:
            out["errors"].append("%.1f s: %s" % (seconds - (end - time.time()), text))


def guarded(work):
    def run():
        while time.time() < end:
            try:
                work()
            except Exception as e:  # every error counts
                failed("%s: %s" % (type(e).__name__, e))
    return threading.Thread(target=run)


cluster = rados.Rados(conffile=os.environ["CEPH_CONF"])
cluster.connect()


def command(**words):
    began = time.time()
    r, data, why = cluster.mon_command(json.dumps(words), b"")
    if r:
        failed("%s: %d %s" % (words["prefix"], r, why))
    did("commands", "slowest_command_s", began)
    return data


command(prefix="osd pool create", pool="thrash", pg_num=8)
io = cluster.open_ioctx("thrash")
rounds = [0]


def commands():
    """Things that fail when they are done twice."""
    n = rounds[0] = rounds[0] + 1
    name = "p%d" % n
    if n % 20 == 0:  # some maps, not thousands
        command(prefix="osd pool create", pool=name, pg_num=1)
        command(prefix="osd pool rename", srcpool=name, destpool=name + "x")
        command(prefix="osd pool mksnap", pool=name + "x", snap="s")
        command(prefix="osd pool rm", pool=name + "x", pool2=name + "x",
                yes_i_really_really_mean_it=True)
    command(prefix="config set", who="global", name="osd_max_backfills", value=str(n % 7 + 1))
    command(prefix="config-key set", key="k", val=str(n))
    if command(prefix="config-key get", key="k") != str(n).encode():
        failed("config-key get: not what was set just before")
    command(prefix="auth get-or-create", entity="client.%s" % name, caps=["mon", "allow r"])
    command(prefix="auth rm", entity="client.%s" % name)
    status = json.loads(command(prefix="status", format="json"))
    if status["osdmap"]["num_up_osds"] != 3:
        failed("an OSD is down: %s" % status["osdmap"])
    for code in status["health"]["checks"]:
        if code not in ("MON_DOWN", "POOL_APP_NOT_ENABLED"):
            failed("health: %s" % status["health"]["checks"][code]["summary"]["message"])
    time.sleep(0.01)


def writes():
    n = out["writes"]
    began = time.time()
    data = b"%d" % n * 100
    io.write_full("o%d" % (n % 50), data)
    if io.read("o%d" % (n % 50), len(data)) != data:
        failed("o%d: not what was written" % (n % 50))
    did("writes", "slowest_write_s", began)


def clients():
    for line in (["ceph", "osd", "stat"], ["rados", "-p", "thrash", "ls"],
                 ["ceph", "quorum_status"]):
        began = time.time()
        done = subprocess.run(line, capture_output=True, text=True)
        if done.returncode:
            failed("%s: %d %s" % (" ".join(line), done.returncode, done.stderr[-300:]))
        did("clients", "slowest_client_s", began)


threads = [guarded(commands), guarded(writes), guarded(clients)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(json.dumps(out))
