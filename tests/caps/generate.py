"""Users with caps made by chance: valid ones, and broken ones beside them."""
import json
import random

SEED = 49
USERS = {"mon": 90, "osd": 110, "mgr": 70, "mds": 50}
MON_SAMPLE = """status osd-dump osd-pool-get osd-pool-get-b osd-pool-set osd-blocklist-one osd-blocklist-host
    osd-blocklist-rm pg-map config-get config-set config-key-get-k1 config-key-get-x auth-get auth-get-admin
    auth-goc auth-rm mds-stat fs-ls mgr-stat mon-stat log-last service-dump osd-in""".split()
MGR_SAMPLE = """pg-dump pg-stat pg-ls-act pg-ls-by-pool-a pg-ls-by-pool-b osd-df osd-df-tree osd-scrub pg-scrub
    osd-safe-to-destroy balancer-status balancer-rm crash-ls crash-post rbd-task-list rbd-task-flatten
    rbd-task-flatten-ns rbd-task-flatten-b rbd-perf-stats-a device-ls""".split()


def made(seed=SEED):
    """[(user, service, caps)]"""
    rng = random.Random(seed)
    out = []
    for service, count in USERS.items():
        for n in range(count):
            text = caps(rng, service)
            if rng.random() < 0.3:
                text = broken(rng, text)
            out.append((f"g-{service}{n:03}", service, text))
    return out


def recorded(path):
    """The same from a record's lines."""
    out = []
    with open(path) as f:
        for line in f:
            if line.startswith("gen-"):
                door, user, _, _, text = line.split(" ", 4)
                out.append((user, door.removeprefix("gen-"), json.loads(text)))
    return out


def pick(rng, *of):
    return of[rng.randrange(len(of))]


def maybe(rng, p, text):
    return text if rng.random() < p else ""


def quoted(rng, word):
    return pick(rng, "{}", "{}", "{}", '"{}"', "'{}'").format(word)


def caps(rng, service):
    separator = lambda: pick(rng, ", ", ",", "; ", ";", " , ", " ;")  # noqa: E731
    text = GRANTS[service](rng)
    while rng.random() < 0.35:
        text += separator() + GRANTS[service](rng)
    return text


def network(rng):
    nets = ("127.0.0.0/8", "127.0.0.1/32", "10.0.0.0/8", "0.0.0.0/0", "::/0", "127.0.0.1", "300.0.0.0/8", "127.0.0.0/40")
    return maybe(rng, 0.12, " network " + pick(rng, *nets))


def rwx(rng):
    return pick(rng, "r", "w", "x", "rw", "rx", "wx", "rwx", "*", "all", "r", "rw")


def key(rng, name, value):
    return name + pick(rng, "=", "=", " ", "  ") + value


def osd(rng):
    if rng.random() < 0.2:
        name = pick(rng, "rbd", "rbd-read-only", "read-only", "read-write", "nosuch")
        text = "profile" + pick(rng, " ", "=", "  ") + quoted(rng, name)
        text += maybe(rng, 0.5, " " + key(rng, "pool", quoted(rng, pick(rng, "a", "b"))))
        text += maybe(rng, 0.3, " " + key(rng, "namespace", quoted(rng, pick(rng, "ns1", "x", "ns*"))))
        return pick(rng, "", "", "allow ") + text + network(rng)
    spec = rwx(rng)
    if rng.random() < 0.25:
        classes = ("class-read", "class-write", "class-read class-write", "class hello", "class hello say_hello", "class lock")
        spec = pick(rng, spec + " ", "") + pick(rng, *classes)
    match = ""
    if rng.random() < 0.15:
        match += " " + pick(rng, "tag cephfs data=fs1", "tag cephfs data=fs2", "tag rbd *=*", "tag cephfs *=fs1", "tag cephfs data=*")
    else:
        match += maybe(rng, 0.5, " " + key(rng, "pool", quoted(rng, pick(rng, "a", "a", "b", "nosuch"))))
        match += maybe(rng, 0.3, " " + key(rng, "namespace", pick(rng, "ns1", '"ns1"', '""', "ns*", "*", "x")))
        match += maybe(rng, 0.2, " " + key(rng, "object_prefix", quoted(rng, pick(rng, "foo", "bar.", "x"))))
    body = pick(rng, spec + match, spec + match, match.strip() + " " + spec)
    return "allow" + pick(rng, " ", " ", "  ") + body + network(rng)


def args(rng, choices):
    out = ""
    for _ in range(pick(rng, 1, 1, 2)):
        name, values = pick(rng, *choices)
        value = quoted(rng, pick(rng, *values))
        out += " " + name + pick(rng, "=" + value, " prefix " + value, " regex " + value, " = " + value)
    return out


def mon(rng):
    kind = rng.random()
    if kind < 0.3:
        text = "allow " + rwx(rng) + maybe(rng, 0.15, " fsname=" + quoted(rng, "fs1"))
    elif kind < 0.5:
        names = """rbd rbd-read-only rbd-mirror osd mds mgr mon bootstrap-osd bootstrap-mds bootstrap-rbd crash
            role-definer simple-rados-client fs-client read-only read-write nosuch""".split()
        text = pick(rng, "profile ", "allow profile ", "profile=") + quoted(rng, pick(rng, *names))
    elif kind < 0.75:
        names = ("osd", "mon", "auth", "pg", "mds", "fs", "mgr", "log", "config", "config-key", "nosuch")
        text = "allow service " + quoted(rng, pick(rng, *names)) + " " + rwx(rng)
    else:
        command, choices = pick(
            rng,
            ('"osd pool get"', [("pool", ["a", "b", "[ab]"]), ("var", ["size", "s.*"])]),
            ('"config-key get"', [("key", ["k1", "k", "x", "k[0-9]", "x1"])]),
            ('"auth get"', [("entity", ["client.xshared", "client.x", "client.*"])]),
            ('"osd blocklist"', [("blocklistop", ["add", "rm"]), ("addr", ["10.9.8.7", "^[^/]+/[0-9]+$"])]),
            ("status", [("format", ["json"])]),
            ('"osd dump"', [("nosuch", ["x"])]),
        )
        text = "allow command " + command + maybe(rng, 0.6, " with" + args(rng, choices))
    return text + network(rng)


def mgr(rng):
    kind = rng.random()
    if kind < 0.25:
        text = "allow " + rwx(rng)
    elif kind < 0.5:
        names = ("rbd", "rbd-read-only", "osd", "mds", "crash", "read-only", "read-write", "nosuch")
        text = pick(rng, "profile ", "allow profile ") + quoted(rng, pick(rng, *names))
        text += maybe(rng, 0.4, args(rng, [("pool", ["a", "b"]), ("namespace", ["ns1", ""]), ("nosuch", ["x"])]))
    elif kind < 0.65:
        text = "allow service " + quoted(rng, pick(rng, "osd", "pg", "mgr", "auth", "nosuch")) + " " + rwx(rng)
    elif kind < 0.85:
        text = "allow module " + quoted(rng, pick(rng, "rbd_support", "balancer", "crash", "devicehealth", "nosuch"))
        text += maybe(rng, 0.4, " with" + args(rng, [("pool", ["a", "b"]), ("namespace", ["ns1"])])) + " " + rwx(rng)
    else:
        command, choices = pick(
            rng,
            ('"pg ls-by-pool"', [("poolstr", ["a", "b", "[ab]"])]),
            ('"osd df"', [("output_method", ["tree", "plain"])]),
            ('"pg dump"', [("dumpcontents", ["all"])]),
            ('"rbd task list"', [("task_id", ["x"])]),
            ('"balancer status"', [("nosuch", ["x"])]),
        )
        text = "allow command " + command + maybe(rng, 0.6, " with" + args(rng, choices))
    return text + network(rng)


def mds(rng):
    text = "allow" + pick(rng, "", " r", " rw", " rwp", " rws", " rwps", " rwfps", " *", " all", " w", " rp", " wr", " rwx")
    text += maybe(rng, 0.25, " fsname=" + quoted(rng, "fs1"))
    text += maybe(rng, 0.4, " path=" + pick(rng, "/", "/a", '"/a b"', "'/a'", "a", '""'))
    text += maybe(rng, 0.2, " root_squash")
    text += maybe(rng, 0.25, " uid=" + pick(rng, "0", "1000", "-1", "x"))
    text += maybe(rng, 0.2, " gids=" + pick(rng, "1", "1,2", "1,2,", "x"))
    return text + network(rng)


GRANTS = {"mon": mon, "osd": osd, "mgr": mgr, "mds": mds}


def broken(rng, text):
    """One slip of a pen."""
    at = rng.randrange(len(text) + 1)
    kind = rng.randrange(7)
    if kind == 0:
        return text[:at]
    if kind == 1:
        return text[:at] + pick(rng, " ", "  ", "\t", "\n", "=", ",", ";", '"', "'", "*", "é", "%", "(") + text[at:]
    if kind == 2:
        return text[:at] + text[at + 1 :]
    if kind == 3:
        return pick(rng, " ", "\t", ",", ";", "") + text + pick(rng, " ", ",", ";", "  ", "\n", "x")
    if kind == 4:
        return text.replace("allow", pick(rng, "Allow", "allows", "deny", ""), 1)
    if kind == 5:
        words = text.split(" ")
        a, b = rng.randrange(len(words)), rng.randrange(len(words))
        words[a], words[b] = words[b], words[a]
        return " ".join(words)
    return text.replace(pick(rng, "r", "w", "=", " "), "", 1)
