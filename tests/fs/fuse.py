#!/usr/bin/env python3
"""Two mounts of one file system as programs use them: fuse.py ONE TWO LOCAL.

Random changes of a tree through ONE, the same on a local file system, compared through TWO after
each round; appends from both to one file; locks between both; SQLite with a writer on each; a file
that is mapped; names of 255 bytes, sparse files, attributes, a directory of many entries.
"""
import errno
import fcntl
import mmap
import os
import random
import shutil
import sqlite3
import stat
import subprocess
import sys

ROUNDS, CHANGES = 6, 150


def picture(top):
    """All that is below: type, mode, size, links, contents."""
    found = {}
    for path, dirs, files in os.walk(top):
        for name in dirs + files:
            at = os.path.join(path, name)
            st = os.lstat(at)
            what = [oct(st.st_mode)]
            if stat.S_ISREG(st.st_mode):
                with open(at, "rb") as f:
                    what += [st.st_size, st.st_nlink, f.read()]
            elif stat.S_ISLNK(st.st_mode):
                what += [os.readlink(at)]
            found[os.path.relpath(at, top)] = what
    return found


def change(rng, top, dirs, files, over_links=True):
    """One random change; what it came to. Without `over_links` no file that has other names is replaced."""
    pick = lambda l: os.path.join(top, rng.choice(l)) if l else top
    name = f"n{rng.randrange(60)}"
    kind = rng.randrange(11)
    to = os.path.join(pick(dirs), name)
    file, size = pick(files), rng.randrange(20_000)
    data = rng.randbytes(size)
    if kind == 0:
        os.mkdir(to)
    elif kind in (1, 2):
        with open(to, "wb") as f:
            f.write(data)
    elif kind == 3:
        with open(file, "r+b") as f:
            f.seek(size // 2)
            f.write(data)
    elif kind == 4:
        os.truncate(file, size)
    elif kind == 5:
        if not over_links and os.path.isfile(to) and os.lstat(to).st_nlink > 1:
            os.unlink(to)
        os.rename(file, to)
    elif kind == 6:
        os.rename(pick(dirs), to)
    elif kind == 7:
        os.unlink(file)
    elif kind == 8:
        os.rmdir(to)
    elif kind == 9:
        os.link(file, to)
    elif kind == 10:
        os.symlink(name, to)


def stress(one, two, local):
    for top in (one, local):
        os.mkdir(f"{top}/stress")
    for seed in range(ROUNDS):
        for n in range(CHANGES):
            here = picture_names(f"{local}/stress")
            ends = []
            for top in (one, local):
                try:
                    change(random.Random(seed * 1000 + n), f"{top}/stress", *here)
                    ends.append(0)
                except OSError as e:
                    ends.append(e.errno)
            assert ends[0] == ends[1] or {*ends} == {errno.EEXIST, errno.ENOTEMPTY}, (seed, n, ends)
        got, want = picture(f"{two}/stress"), picture(f"{local}/stress")
        if got != want:
            short = lambda p, k: [str(x)[:40] for x in p.get(k, ["-"])]
            for k in sorted({*got, *want}):
                if got.get(k) != want.get(k):
                    ino = os.lstat(f"{two}/stress/{k}").st_ino if k in got else 0
                    raise AssertionError(
                        f"round {seed}: {k} ({ino:#x}): {short(got, k)}, not {short(want, k)}")


def picture_names(top):
    dirs, files = ["."], []
    for path, d, f in os.walk(top):
        d.sort()
        for name in sorted(d + f):
            at = os.path.join(path, name)
            rel = os.path.relpath(at, top)
            if os.path.isdir(at) and not os.path.islink(at):
                dirs.append(rel)
            elif not os.path.islink(at):
                files.append(rel)
    return dirs, files


def appends(one, two):
    """Lines from two clients in turn, each by an open of its own: all of them are there. (Two that
    have the file open at the same time may take the same place, with a stock server too.)"""
    for n in range(60):
        with open(f"{(one, two)[n % 2]}/appended", "a") as f:
            f.write(f"{n:06}\n")
    for top in (one, two):
        with open(f"{top}/appended") as f:
            assert f.read().splitlines() == [f"{n:06}" for n in range(60)], top


def locks(one, two):
    with open(f"{one}/locked", "w+") as a, open(f"{two}/locked", "r+") as b:
        for lock in (fcntl.flock, fcntl.lockf):
            lock(a, fcntl.LOCK_EX | fcntl.LOCK_NB)
            try:
                lock(b, fcntl.LOCK_EX | fcntl.LOCK_NB)
                raise AssertionError(f"{lock}: both have it")
            except OSError as e:
                assert e.errno in (errno.EAGAIN, errno.EACCES), e
            lock(a, fcntl.LOCK_UN)
            lock(b, fcntl.LOCK_EX | fcntl.LOCK_NB)
            lock(b, fcntl.LOCK_UN)


def sqlite(one, two):
    program = (
        "import sqlite3, sys\n"
        "db = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)\n"
        "for n in range(15):\n"
        "    db.execute('begin immediate')\n"
        "    db.execute('insert into t values (?, ?)', (sys.argv[2], n))\n"
        "    db.execute('commit')\n"
    )
    db = sqlite3.connect(f"{one}/db")
    db.execute("create table t (who, n)")
    db.commit()
    db.close()
    run = [
        subprocess.Popen([sys.executable, "-c", program, f"{top}/db", who])
        for top, who in ((one, "one"), (two, "two"))
    ]
    assert [p.wait(120) for p in run] == [0, 0]
    db = sqlite3.connect(f"{two}/db")
    assert db.execute("select count(*), count(distinct who) from t").fetchone() == (30, 2)
    assert db.execute("pragma integrity_check").fetchone() == ("ok",)
    db.close()


def corners(one, two):
    long = "ü" * 127 + "x"
    os.mkdir(f"{one}/{long}")
    with open(f"{one}/{long}/sparse", "wb") as f:
        f.truncate(1 << 39)
        f.seek(1 << 38)
        f.write(b"middle")
    with open(f"{two}/{long}/sparse", "rb") as f:
        f.seek((1 << 38) - 2)
        assert f.read(10) == b"\0\0middle\0\0"
        assert os.fstat(f.fileno()).st_size == 1 << 39
    with open(f"{one}/mapped", "w+b") as f:
        f.truncate(8192)
        with mmap.mmap(f.fileno(), 8192) as m:
            m[4090:4100] = b"0123456789"
            m.flush()
    with open(f"{two}/mapped", "rb") as f:
        f.seek(4090)
        assert f.read(10) == b"0123456789"
    value = os.urandom(30_000)
    os.setxattr(f"{one}/mapped", "user.big", value)
    assert os.getxattr(f"{two}/mapped", "user.big") == value
    os.chmod(f"{one}/mapped", 0o4751)
    assert oct(os.stat(f"{two}/mapped").st_mode) == "0o104751"
    os.utime(f"{one}/mapped", (1_000_000_000, 1_100_000_000))
    assert os.stat(f"{two}/mapped").st_mtime == 1_100_000_000
    os.mkdir(f"{one}/many")
    for n in range(1500):
        os.close(os.open(f"{one}/many/{n}", os.O_CREAT | os.O_WRONLY, 0o644))
    assert len(os.listdir(f"{two}/many")) == 1500
    shutil.rmtree(f"{two}/many")
    assert not os.path.exists(f"{one}/many")


def main():
    one, two, local = sys.argv[1:]
    for name, run in [
        ("corners", lambda: corners(one, two)),
        ("appends", lambda: appends(one, two)),
        ("locks", lambda: locks(one, two)),
        ("sqlite", lambda: sqlite(one, two)),
        ("stress", lambda: stress(one, two, local)),
    ]:
        run()
        print(name, "ok", flush=True)


if __name__ == "__main__":
    main()
