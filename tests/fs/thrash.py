#!/usr/bin/env python3
"""Programs on mounts whose servers die:

thrash.py own TOP LOCAL SECONDS SEED    random changes here and on a local file system, compared
thrash.py pair ONE TWO SECONDS SEED     what one mount did the other sees at once
thrash.py kept TOP LOG SECONDS          files that are synced, and noted in LOG; its mount may be killed
thrash.py check TOP LOG                 all that LOG notes is there
thrash.py sums TOP                      what directories say that they add up to is what a walk finds

Whatever fails ends the program with what it was; the longest operation is told.
"""
import errno
import os
import random
import stat
import sys
import time

from fuse import change, picture, picture_names

CHANGES = 40


class Clock:
    """How long the longest operation took."""

    def __init__(self, seconds):
        self.end, self.longest, self.count = time.monotonic() + seconds, 0.0, 0

    def left(self):
        return time.monotonic() < self.end

    def time(self, call):
        began = time.monotonic()
        try:
            return call()
        finally:
            self.longest = max(self.longest, time.monotonic() - began)
            self.count += 1

    def say(self):
        print(f"{self.count} operations, the longest {self.longest:.1f} s", flush=True)


def attempt(clock, seed, top, names):
    """A change; the errno of its end. ceph-fuse takes other names of a file that is replaced for gone,
    with a stock server too."""
    try:
        clock.time(lambda: change(random.Random(seed), top, *names, over_links=False))
        return 0
    except OSError as e:
        return e.errno


def own(top, local, seconds, seed):
    os.makedirs(top), os.makedirs(local)
    clock, n = Clock(seconds), seed << 32
    while clock.left():
        for n in range(n + 1, n + 1 + CHANGES):
            names = picture_names(local)
            ends = [attempt(clock, n, top, names), attempt(Clock(0), n, local, names)]
            same = ends[0] == ends[1] or {*ends} == {errno.EEXIST, errno.ENOTEMPTY}
            assert same, (n, [errno.errorcode.get(e, e) for e in ends])
        compare(clock.time(lambda: picture(top)), picture(local), n)
    clock.say()


def compare(got, want, what):
    for path in sorted({*got, *want}):
        have, should = got.get(path, ["nothing"]), want.get(path, ["nothing"])
        if have != should:
            raise AssertionError(f"{what}: {path}: {str(have)[:60]}, not {str(should)[:60]}")


def pair(one, two, seconds, seed):
    rng, clock, n = random.Random(seed), Clock(seconds), 0
    os.makedirs(f"{one}/pair")
    there = {}

    def write(top, name, text):
        with open(f"{top}/pair/{name}", "w") as f:
            f.write(text)

    def read(top, name):
        with open(f"{top}/pair/{name}") as f:
            return f.read()

    while clock.left():
        n += 1
        a, b = rng.sample([one, two], 2)
        name, other = (f"f{rng.randrange(20)}" for _ in range(2))
        kind = rng.randrange(6)
        if kind <= 2:
            there[name] = f"{n} " * rng.randrange(1, 2000)
            clock.time(lambda: write(a, name, there[name]))
        elif kind == 3 and name in there and name != other:
            clock.time(lambda: os.rename(f"{a}/pair/{name}", f"{a}/pair/{other}"))
            there[other] = there.pop(name)
        elif kind == 4 and name in there:
            clock.time(lambda: os.unlink(f"{a}/pair/{name}"))
            del there[name]
        elif kind == 5:
            listed = clock.time(lambda: sorted(os.listdir(f"{b}/pair")))
            assert listed == sorted(there), (n, listed, sorted(there))
        for look in (name, other):
            found = os.path.exists(f"{b}/pair/{look}")
            assert found == (look in there), (n, kind, look, found)
        if name in there:
            got = clock.time(lambda: read(b, name))
            assert got == there[name], (n, kind, name, got[:20], there[name][:20])
    clock.say()


def kept(top, log, seconds):
    """A line of the log names a file that was synced with its directory before."""
    clock, n = Clock(seconds), 0
    begun = f"{time.time():.0f}"

    def make(at):
        with open(f"{top}/{begun}/{n}", "w") as f:
            f.write(f"{n}\n" * 100)
            f.flush()
            os.fsync(f.fileno())
        os.fsync(at)

    with open(log, "a") as said:
        try:
            os.makedirs(f"{top}/{begun}")
            at = os.open(f"{top}/{begun}", os.O_RDONLY)
            while clock.left():
                n += 1
                clock.time(lambda: make(at))
                said.write(f"{begun}/{n}\n")
                said.flush()
        except OSError as e:
            # The mount was killed: what follows is nobody's.
            assert e.errno in (errno.ENOTCONN, errno.ECONNABORTED), e


def check(top, log):
    clock = Clock(0)
    with open(log) as f:
        names = f.read().split()
    for name in names:
        with open(f"{top}/{name}") as f:
            n = name.split("/")[1]
            assert clock.time(f.read) == f"{n}\n" * 100, name
    print(f"{len(names)} files are there; ", end="")
    clock.say()


def sums(top):
    """What is told upward comes late; names of what lost its first one come to their inode when it is
    looked at."""
    end = time.monotonic() + 60
    while True:
        found = walked(top)
        told = {k: int(os.getxattr(top, f"ceph.dir.{k}")) for k in found}
        if told == found:
            print(found)
            return
        assert time.monotonic() < end, f"told {told}, found {found}"
        time.sleep(1)


def walked(top):
    files, dirs, size = set(), 0, 0
    for path, below, names in os.walk(top):
        dirs += 1
        for name in names + [d for d in below if os.path.islink(os.path.join(path, d))]:
            st = os.lstat(os.path.join(path, name))
            if st.st_ino not in files:
                files.add(st.st_ino)
                size += st.st_size
    return {"rfiles": len(files), "rsubdirs": dirs, "rbytes": size}


def main():
    verb, *args = sys.argv[1:]
    if verb in ("own", "pair"):
        {"own": own, "pair": pair}[verb](args[0], args[1], int(args[2]), int(args[3]))
    elif verb == "kept":
        kept(args[0], args[1], int(args[2]))
    else:
        {"check": check, "sums": sums}[verb](*args)


main()
