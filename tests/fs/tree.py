#!/usr/bin/env python3
"""A tree of files through libcephfs: tree.py CONF FS write|check|through [NAME].

write    makes the tree; each file is read back.
check    reads all of it by a new mount and compares it with what was written.
through  says `mounted`, then writes a file every tenth of a second until a line comes on stdin,
         reads all of them back by the same mount, and says the longest time that one took.

NAME is the tree's, `tree` where none is given.
"""
import hashlib
import select
import sys
import time

import cephfs

DIRS, FILES = 5, 20


def content(d, f):
    """What file f of directory d holds: its length is of no power of two, some span objects."""
    size = 5_000_000 if (d, f) == (0, 0) else (d * 7919 + f * 104729) % 70_000
    seed = hashlib.sha256(f"{d}/{f}".encode()).digest()
    return (seed * (size // len(seed) + 1))[:size]


def read(fs, path):
    fd = fs.open(path, "r")
    data, at = b"", 0
    while part := fs.read(fd, at, 1 << 20):
        data += part
        at += len(part)
    fs.close(fd)
    return data


def write(fs, path, data):
    fd = fs.open(path, "w", 0o644)
    at = 0
    while at < len(data):
        at += fs.write(fd, data[at : at + (1 << 20)], at)
    fs.fsync(fd, 0)
    fs.close(fd)


def make(fs, top):
    for d in range(DIRS):
        fs.mkdirs(f"{top}/{d}", 0o755)
        for f in range(FILES):
            write(fs, f"{top}/{d}/{f}", content(d, f))
    fs.symlink("0/1", f"{top}/link")
    fs.link(f"{top}/0/2", f"{top}/hard")
    fs.rename(f"{top}/1/3", f"{top}/1/moved")
    fs.unlink(f"{top}/1/4")
    fs.setxattr(f"{top}/0", "user.note", b"kept", 0)


def names(fs, path):
    found, handle = set(), fs.opendir(path)
    while entry := fs.readdir(handle):
        found.add(entry.d_name.decode())
    fs.closedir(handle)
    return found - {".", ".."}


def check(fs, top):
    assert names(fs, top) == {*map(str, range(DIRS)), "link", "hard"}, names(fs, top)
    for d in range(DIRS):
        files = {str(f): f for f in range(FILES)}
        if d == 1:
            del files["4"]
            files["moved"] = files.pop("3")
        assert names(fs, f"{top}/{d}") == set(files), (d, names(fs, f"{top}/{d}"))
        for name, f in files.items():
            assert read(fs, f"{top}/{d}/{name}") == content(d, f), f"{d}/{name} differs"
    assert fs.readlink(f"{top}/link", 100) == b"0/1"
    assert read(fs, f"{top}/hard") == content(0, 2)
    assert fs.getxattr(f"{top}/0", "user.note") == b"kept"


def through(fs):
    fs.mkdirs("/through", 0o755)
    print("mounted", flush=True)
    made, longest = 0, 0.0
    while not select.select([sys.stdin], [], [], 0.1)[0]:
        began = time.monotonic()
        write(fs, f"/through/{made}", content(9, made))
        longest = max(longest, time.monotonic() - began)
        made += 1
    for f in range(made):
        assert read(fs, f"/through/{f}") == content(9, f), f"{f} differs"
    print(f"{made} files, the longest took {longest:.1f} s", flush=True)


def main():
    conf, name, verb = sys.argv[1:4]
    top = "/" + (sys.argv[4] if len(sys.argv) > 4 else "tree")
    fs = cephfs.LibCephFS(conffile=conf, auth_id="admin")
    fs.mount(filesystem_name=name.encode())
    if verb == "write":
        make(fs, top)
        check(fs, top)
    else:
        {"check": lambda: check(fs, top), "through": lambda: through(fs)}[verb]()
    fs.shutdown()


main()
