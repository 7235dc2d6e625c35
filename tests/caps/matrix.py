"""matrix.py CONF [GENERATED]: what users with all kinds of caps may do, cell by cell, on standard output.

The cluster is fresh and this program's alone. GENERATED is a file with records of generated users, whose
caps are taken from there; without it they are made from the seed.

Output, a line each:
  requests DOOR NAME..        the columns of the door's lines below; several lines go on from each other
  DOOR USER PLACE CODES [T]   one code a column; T: the caps of a generated user, as JSON
A code is `.` for 0, a letter of CODES for an errno, `{N}` for another.
"""
import errno
import faulthandler
import json
import os
import re
import shlex
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import generate
import requests
from client import MISMATCH, Client, Place, Refused

HERE = os.path.dirname(os.path.abspath(__file__))
CODES = {
    0: ".", errno.EPERM: "P", errno.ENOENT: "N", errno.EACCES: "A", errno.EINVAL: "I",
    errno.ETIMEDOUT: "T", errno.EOPNOTSUPP: "O", errno.ENODATA: "D", errno.EBUSY: "B",
    errno.EEXIST: "X", errno.ERANGE: "R", errno.EIO: "E", errno.ESHUTDOWN: "S", errno.EDOM: "M",
    errno.EAGAIN: "G", errno.ENOTEMPTY: "Y", errno.E2BIG: "L", errno.ECANCELED: "C",
    errno.ENOTCONN: "U", MISMATCH: "m",
}  # fmt: skip
CLASSES = (
    "cephfs hello journal lock log numops otp rbd refcount rgw rgw_gc timeindex user version cas "
    "cmpomap queue 2pc_queue fifo"
)
POOLS = ("a", "b")
NAMESPACES = (b"", b"ns1")
PREFIXES = (b"foo.", b"bar.")
# Users at work at the same time: two cores are kept busy, and what a user waits for does not hold others.
THREADS = 6
# At commands most only wait: doors that do not open take all of TIMEOUT_S.
COMMAND_THREADS = 64
TIMEOUT_S = 4
CONF = sys.argv[1]


def code(r):
    return CODES.get(r, "{%d}" % r)


def table(name):
    """Lines of a table, comments left out."""
    with open(os.path.join(HERE, name)) as f:
        return [line.strip() for line in f if line.strip() and not line.startswith("#")]


def users(name, kind):
    """[(name, caps as a command takes them)]; names begin with `kind`, but daemons'."""
    out = []
    for line in table(name):
        user, *caps = shlex.split(line)
        if "mon" not in caps[::2] and user != "none":
            caps = ["mon", "allow r"] + caps
        out.append((user if "." in user else kind + user, caps))
    return out


def commands(name, words=1):
    """[(words.., text, input)]"""
    out = []
    for line in table(name):
        *names, text = line.split(None, words)
        text, _, data = text.partition(" < ")
        out.append((*names, text.strip(), data.encode()))
    return out


def entity(user):
    """A user's name at the cluster; whose name has a dot is a daemon by name."""
    return user if "." in user else "client." + user


class Lines:
    """What is printed, in the order of the tables whatever ended first."""

    def __init__(self):
        self.lock = threading.Lock()
        self.of = {}

    def put(self, order, door, user, place, codes, text=None):
        line = f"{door} {user} {place} {codes}"
        if text is not None:
            line += " " + json.dumps(text)
        with self.lock:
            self.of[order] = line

    def print(self):
        for _, line in sorted(self.of.items()):
            print(line)


def print_requests(door, names):
    line = ""
    for name in names:
        if len(line) + len(name) > 100:
            print(f"requests {door}{line}")
            line = ""
        line += " " + name
    print(f"requests {door}{line}")


def waves(waiting, size=200):
    return [w.wait() for w in waiting]


class Admin:
    def __init__(self):
        self.client = Client(CONF, "client.admin", timeout_s=60)

    def must(self, **cmd):
        data = cmd.pop("data", b"")
        r, out, said = self.client.mon(json.dumps(cmd), data)
        if r:
            sys.exit(f"{cmd}: {errno.errorcode.get(r, r)} {said.decode()}")
        return out

    def create(self, name, caps):
        """(errno, key)"""
        cmd = {"prefix": "auth get-or-create", "entity": name, "caps": caps, "format": "json"}
        r, out, _ = self.client.mon(json.dumps(cmd))
        return r, json.loads(out)[0]["key"] if r == 0 else None

    def set_up(self, osd_users, generated):
        """Pools, objects and keys that the requests are about."""
        # A stock monitor would wait a second for others' changes before it makes each of ours.
        cmd = {"prefix": "config set", "who": "mon", "name": "paxos_propose_interval", "value": "0.02"}
        self.client.mon(json.dumps(cmd))
        # Upstream's default; `argonaut up` lets all classes that are built in be called.
        cmd = {"prefix": "config set", "var": "osd_class_load_list", "val": [CLASSES]}
        for osd in json.loads(self.must(prefix="osd ls", format="json")):
            self.client.osd(json.dumps(cmd), osd=osd)
        for pool in (*POOLS, "c"):
            self.must(prefix="osd pool create", pool=pool, pg_num=8, pgp_num=8, autoscale_mode="off")
        self.must(prefix="osd pool application enable", pool="a", app="rbd")
        self.must(prefix="osd pool application enable", pool="b", app="cephfs")
        self.must(prefix="osd pool application set", pool="b", app="cephfs", key="data", value="fs1")
        self.must(prefix="osd pool application enable", pool="c", app="rgw")
        keys = ["k1", "k2", "x1", "rbd/mirror/peer/1/x", "cephfs/mirror/peer/x", "daemon-private/mgr.x/x"]
        for key in keys:
            self.must(prefix="config-key set", key=key, val="v")
        self.create("client.xshared", ["mon", "allow r"])
        waiting = []
        for pool in POOLS:
            # The first snapshot decides that snapshots of this pool are its clients' own.
            place = Place(self.client, pool)
            if r := place.snap_create().wait():
                sys.exit(f"a snapshot of {pool}: {r}")
        steps = lambda: (  # noqa: E731
            ("write_full", *requests.buffer(requests.BYTES)),
            ("setxattr", b"k", *requests.buffer(b"v")),
            ("omap_set", requests.strings(b"k"), requests.strings(b"v"), requests.sizes(b"v"), requests.SIZE(1)),
        )
        plain = [("write_full", *requests.buffer(requests.BYTES))]
        for pool in POOLS:
            for nspace in NAMESPACES:
                place = Place(self.client, pool, nspace)
                for user in [u.encode() for u in osd_users] + [b"secret"]:
                    for prefix in PREFIXES:
                        waiting.append(place.write_op(prefix + user, *steps()))
                        waiting.append(place.write_op(prefix + user + b".gone", *plain))
                        waiting.append(place.write_op(prefix + user + b".watched", *plain))
                    for name in (b"rbd_header." + user, b"rbd_data." + user):
                        waiting.append(place.write_op(name, *steps()))
                for name in requests.SPECIAL_OBJECTS:
                    waiting.append(place.write_op(name, *steps()))
                for user in generated:
                    for prefix in PREFIXES:
                        waiting.append(place.write_op(prefix + user.encode(), *steps()))
        bad = [r for r in waves(waiting) if r]
        if bad:
            sys.exit(f"{len(bad)} objects could not be made: {bad[:5]}")


class Scene:
    """Places of a user at the OSDs."""

    def __init__(self, client, user):
        self.client, self.user, self.own = client, user.encode(), b"foo." + user.encode()
        self.places = {}

    def place(self, pool, nspace):
        if (pool, nspace) not in self.places:
            self.places[pool, nspace] = Place(self.client, pool, nspace)
        return self.places[pool, nspace]

    def close(self):
        for place in self.places.values():
            place.close()


def connect(user, key, **options):
    """A client, or the outcome of connecting."""
    try:
        return Client(CONF, entity(user), key, **options), 0
    except Refused as e:
        return None, e.code


def shut(lines, order, door, user, r):
    """The line of a door that does not open."""
    lines.put(order, door, user, "-", "shut:" + code(r))


def osd_door(lines, at, user, key):
    client, r = connect(user, key)
    if client is None:
        return shut(lines, (0, at), "osd", user, r)
    scene = Scene(client, user)
    try:
        for pool in POOLS:
            scene.place(pool, b"")
    except Refused as e:
        client.close()
        return shut(lines, (0, at), "osd", user, e.code)
    out = []
    for pool in POOLS:
        for nspace in NAMESPACES:
            place = scene.place(pool, nspace)
            where = f"{pool}/{nspace.decode()}"
            for prefix in PREFIXES:
                o = prefix + scene.user
                waiting = [ask(place, o) for _, ask in requests.OBJECT]
                out.append(("osd", f"{where}/{prefix.decode()}", waiting))
            waiting = [ask(place, scene.user) for _, ask in requests.SPECIAL]
            out.append(("rbd", where, waiting))
        waiting = [ask(scene, pool) for _, ask in requests.WHOLE]
        out.append(("pool", pool, waiting))
    doors = ("osd", "rbd", "pool")
    for n, (door, place, waiting) in enumerate(out):
        codes = "".join(code(w.wait()) for w in waiting)
        lines.put((doors.index(door), at, n), door, user, place, codes)
    scene.close()
    client.close(notified=True)


def at_door(send, cmds):
    """Codes of commands; of a door that does not answer the first the rest is not asked."""
    codes = []
    for text, data in cmds:
        start = time.monotonic()
        r = send(text, data)[0]
        # librados takes a command to the manager that was never answered for one that was.
        if r == 0 and time.monotonic() - start >= TIMEOUT_S:
            r = errno.ETIMEDOUT
        codes.append(code(r))
        if codes == ["T"]:
            return "shut:T"
        if codes[-3:] == ["T"] * 3:
            sys.stderr.write(f"no answers any more, the last was asked for by {text}\n")
            os._exit(1)
    return "".join(codes)


def filled(cmds, user):
    return [(text.replace("$U", user), data.replace(b"$U", user.encode())) for text, data in cmds]


def command_doors(lines, at, user, key, tables):
    client, r = connect(user, key, timeout_s=TIMEOUT_S)
    if client is None:
        return shut(lines, (3, at), "mon", user, r)
    doors = [
        ("tell-osd", client.osd, tables["tell-osd"]),
        ("tell-pg", lambda c, d: client.pg(tables["pgid"], c, d), tables["tell-pg"]),
        ("tell-mon", client.tell_mon, tables["tell-mon"]),
        ("mgr", client.mgr, tables["mon"] + tables["mgr"]),
        # Last: a user may change its own caps there.
        ("mon", client.mon, tables["mon"]),
    ]
    codes = ""
    for n, (door, send, cmds) in enumerate(doors):
        if door == "mon":
            pool_ops(lines, at, user, client)
        # A PG's commands come in by its OSD's door.
        if door != "tell-pg" or codes != "shut:T":
            codes = at_door(send, filled(cmds, user))
        lines.put((3 + len(doors) - n, at), door, user, "-", codes)
    client.close()


def pool_ops(lines, at, user, client):
    r = client.pool_create("made-" + user)
    codes = code(r) + code(client.pool_delete("made-" + user if r == 0 else "nosuch"))
    lines.put((9, at), "pool-op", user, "-", codes)


def generated_user(lines, admin, n, user, service, text, tables):
    caps = ["mon", "allow r", service, text] if service != "mon" else ["mon", text]
    r, key = admin.create(entity(user), caps)
    codes = code(r)
    door = "gen-" + service
    if r == 0 and service != "mds":
        # A user without any right at the monitors waits for maps until its time is over.
        client, r = connect(user, key, timeout_s=TIMEOUT_S)
        if client is None:
            codes += "shut:" + code(r)
        else:
            codes += sampled(client, service, user, tables)
            client.close(notified=service == "osd")
    lines.put((10, n), door, user, "-", codes, text)


def sampled(client, service, user, tables):
    if service == "osd":
        places = {
            (pool, nspace): Place(client, pool, nspace) for pool in POOLS for nspace in NAMESPACES
        }
        waiting = [
            ask(places[pool, nspace], prefix + user.encode())
            for pool, nspace, prefix, ask in tables["gen-osd"]
        ]
        codes = "".join(code(w.wait()) for w in waiting)
        for place in places.values():
            place.close()
        return codes
    send = client.mon if service == "mon" else client.mgr
    return at_door(send, filled(tables["gen-" + service], user))


def osd_sample():
    """[(name, pool, namespace, prefix, ask)] of generated users."""
    ask = dict(requests.OBJECT)
    out = []
    for name in ("read", "write", "call-read", "call-write"):
        for pool in POOLS:
            for nspace in NAMESPACES:
                out.append((f"{name}:{pool}/{nspace.decode()}", pool, nspace, b"foo.", ask[name]))
    for name in ("read", "write", "call-lock", "call-unlisted", "watch", "notify", "cmpext-and-write"):
        out.append((f"{name}:a//bar", "a", b"", b"bar.", ask[name]))
    return out


def main():
    faulthandler.enable()
    start = time.monotonic()
    osd_users, mon_users = users("users-osd.txt", "o-"), users("users-mon.txt", "m-")
    named = {name: (text, data) for name, text, data in commands("mon-commands.txt")}
    at_mgr = {name: (text, data) for name, text, data in commands("mgr-commands.txt")}
    tables = {"mon": list(named.values()), "mgr": list(at_mgr.values())}
    told = commands("tell-commands.txt", 2)
    for door in ("tell-osd", "tell-pg", "tell-mon"):
        tables[door] = [(text, data) for d, _, text, data in told if d == door]
    sample = osd_sample()
    tables["gen-osd"] = [s[1:] for s in sample]
    tables["gen-mon"] = [named[name] for name in generate.MON_SAMPLE]
    tables["gen-mgr"] = [(named | at_mgr)[name] for name in generate.MGR_SAMPLE]
    if len(sys.argv) > 2:
        generated = generate.recorded(sys.argv[2])
    else:
        generated = generate.made()

    admin = Admin()
    admin.set_up([u for u, _ in osd_users], [u for u, s, _ in generated if s == "osd"])
    status = json.loads(admin.must(prefix="osd map", pool="a", object="foo.secret", format="json"))
    tables["pgid"] = status["pgid"]
    say(start, "the scene is set")

    lines = Lines()
    with ThreadPoolExecutor(16) as pool:
        o, m = (
            list(pool.map(lambda u: admin.create(entity(u[0]), u[1]), us)) for us in (osd_users, mon_users)
        )
    refused = [
        f"user {name} {caps}: {errno.errorcode.get(r, r)}"
        for (name, caps), (r, _) in [*zip(osd_users, o), *zip(mon_users, m)]
        if r
    ]
    if refused:
        sys.exit("\n".join(refused))
    say(start, "users are made")
    print_requests("osd", [name for name, _ in requests.OBJECT])
    print_requests("rbd", [name for name, _ in requests.SPECIAL])
    print_requests("pool", [name for name, _ in requests.WHOLE])
    print_requests("mon", named)
    print_requests("mgr", [*named, *at_mgr])
    for door in ("tell-osd", "tell-pg", "tell-mon"):
        print_requests(door, [name for d, name, _, _ in told if d == door])
    print_requests("pool-op", ["create", "delete"])
    print_requests("gen-osd", ["made"] + [s[0] for s in sample])
    print_requests("gen-mon", ["made"] + generate.MON_SAMPLE)
    print_requests("gen-mgr", ["made"] + generate.MGR_SAMPLE)
    print_requests("gen-mds", ["made"])

    jobs = []
    for at, ((user, _), (_, key)) in enumerate(zip(osd_users, o)):
        jobs.append((osd_door, lines, at, user, key))
    run(jobs, THREADS)
    say(start, "OSDs have judged")
    jobs = []
    for at, ((user, _), (_, key)) in enumerate(zip(mon_users, m)):
        jobs.append((command_doors, lines, at, user, key, tables))
    run(jobs, COMMAND_THREADS)
    say(start, "monitors and manager have judged")
    jobs = [(generated_user, lines, admin, n, *g, tables) for n, g in enumerate(generated)]
    run(jobs, COMMAND_THREADS)
    say(start, "generated users are judged")
    lines.print()
    sys.stdout.flush()
    # How librados takes itself down is nobody's matter here.
    os._exit(0)


def say(start, what):
    print(f"{time.monotonic() - start:.1f} s: {what}", file=sys.stderr, flush=True)


def run(jobs, threads):
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(*job) for job in jobs]:
            done.result()


if __name__ == "__main__":
    main()
