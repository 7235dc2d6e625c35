#!/usr/bin/env python3
"""Snapshots through libcephfs: snaps.py CONF FS make|check|drop.

make   makes files and snapshots, and changes, moves and removes what they have in between.
check  reads all snapshots by a new mount and compares them with what was there when they were made.
drop   removes one and checks what is left, then all.
"""
import stat
import sys

import cephfs

TOP = "/snaps"
BLOCK = b"0123456789abcdef" * 4096


def read(fs, path):
    fd = fs.open(path, "r")
    data, at = b"", 0
    while part := fs.read(fd, at, 1 << 20):
        data += part
        at += len(part)
    fs.close(fd)
    return data


def write(fs, path, data, offset=0):
    fd = fs.open(path, "r+" if offset else "w", 0o644)
    at = 0
    while at < len(data):
        at += fs.write(fd, data[at:], offset + at)
    fs.close(fd)


def names(fs, path):
    found, handle = set(), fs.opendir(path)
    while entry := fs.readdir(handle):
        found.add(entry.d_name.decode())
    fs.closedir(handle)
    return found - {".", ".."}


def tree(fs, path):
    """All that is below: names with contents, modes and notes."""
    found = {}
    for name in sorted(names(fs, path)):
        at = f"{path}/{name}"
        st = fs.lstat(at)
        if stat.S_ISDIR(st.st_mode):
            found[name] = tree(fs, at)
        elif stat.S_ISLNK(st.st_mode):
            found[name] = fs.readlink(at, 1000)
        else:
            found[name] = (oct(st.st_mode), st.st_size, read(fs, at))
    return found


FIRST = {
    "a": {
        "changed": ("0o100644", len(BLOCK), BLOCK),
        "chmodded": ("0o100644", 5, b"chmod"),
        "cut": ("0o100644", len(BLOCK), BLOCK),
        "gone": ("0o100644", 4, b"gone"),
        "link": b"changed",
        "moved": ("0o100644", 5, b"moved"),
        "sub": {"deep": ("0o100644", 4, b"deep")},
        "rmdir": {"inside": ("0o100644", 6, b"inside")},
        "two": ("0o100644", 3, b"two"),
    },
    "b": {},
}


def first(fs):
    for d in ("a", "a/sub", "a/rmdir", "b"):
        fs.mkdirs(f"{TOP}/{d}", 0o755)
    for path, data in [
        ("a/changed", BLOCK),
        ("a/chmodded", b"chmod"),
        ("a/cut", BLOCK),
        ("a/gone", b"gone"),
        ("a/moved", b"moved"),
        ("a/sub/deep", b"deep"),
        ("a/rmdir/inside", b"inside"),
        ("a/two", b"two"),
    ]:
        write(fs, f"{TOP}/{path}", data)
    fs.symlink("changed", f"{TOP}/a/link")


SECOND = {
    "a": {
        "changed": ("0o100644", len(BLOCK), b"XXXX" + BLOCK[4:]),
        "chmodded": ("0o100600", 5, b"chmod"),
        "cut": ("0o100644", 10, BLOCK[:10]),
        "link": b"changed",
        "new": ("0o100644", 3, b"new"),
        "sub": {"deep": ("0o100644", 7, b"deepest")},
        "two": ("0o100644", 3, b"two"),
    },
    "b": {
        "second": ("0o100644", 3, b"two"),
        "there": ("0o100644", 5, b"moved"),
    },
}


def change(fs):
    fd = fs.open(f"{TOP}/a/changed", "r+")
    fs.write(fd, b"XXXX", 0)
    fs.close(fd)
    fs.chmod(f"{TOP}/a/chmodded", 0o600)
    fs.truncate(f"{TOP}/a/cut", 10)
    fs.unlink(f"{TOP}/a/gone")
    fs.rename(f"{TOP}/a/moved", f"{TOP}/b/there")
    write(fs, f"{TOP}/a/sub/deep", b"deepest")
    fs.unlink(f"{TOP}/a/rmdir/inside")
    fs.rmdir(f"{TOP}/a/rmdir")
    write(fs, f"{TOP}/a/new", b"new")
    fs.link(f"{TOP}/a/two", f"{TOP}/b/second")


THIRD = {
    "a": {
        "changed": ("0o100644", 4, b"last"),
        "link": b"changed",
        "sub": {},
        "two": ("0o100644", 5, b"three"),
    },
    "b": {"second": ("0o100644", 5, b"three")},
}


def change_again(fs):
    write(fs, f"{TOP}/a/changed", b"last")
    fs.unlink(f"{TOP}/a/chmodded")
    fs.unlink(f"{TOP}/a/cut")
    fs.unlink(f"{TOP}/a/new")
    fs.unlink(f"{TOP}/a/sub/deep")
    fs.unlink(f"{TOP}/b/there")
    write(fs, f"{TOP}/b/second", b"three")


def same(got, want, what):
    if got != want:
        short = lambda t: {k: short(v) if isinstance(v, dict) else repr(v)[:60] for k, v in t.items()}
        raise AssertionError(f"{what}: {short(got)} instead of {short(want)}")


def refused(call, *args):
    try:
        call(*args)
    except cephfs.Error as e:
        return e
    raise AssertionError(f"{args} was done")


def make(fs):
    first(fs)
    fs.mksnap(TOP, "one", 0o755, {"by": "us"})
    open_file = fs.open(f"{TOP}/a/changed", "r+")
    change(fs)
    fs.mkdir(f"{TOP}/.snap/two", 0o755)
    # What is written after it by a file that was open is no part of it.
    fs.write(open_file, b"ZZZZ", 0)
    fs.close(open_file)
    fs.mksnap(f"{TOP}/a/sub", "nested", 0o755, {})
    change_again(fs)
    check(fs)


def check(fs):
    same(tree(fs, TOP), THIRD, "now")
    assert names(fs, f"{TOP}/.snap") == {"one", "two"}, names(fs, f"{TOP}/.snap")
    same(tree(fs, f"{TOP}/.snap/one"), FIRST, "one")
    same(tree(fs, f"{TOP}/.snap/two"), SECOND, "two")
    same(tree(fs, f"{TOP}/a/sub/.snap/nested"), SECOND["a"]["sub"], "nested")
    inherited = names(fs, f"{TOP}/a/.snap")
    assert len(inherited) == 2 and all(n.startswith("_") for n in inherited), inherited
    for name in inherited:
        want = FIRST if name.startswith("_one_") else SECOND
        same(tree(fs, f"{TOP}/a/.snap/{name}"), want["a"], name)
    info = fs.snap_info(f"{TOP}/.snap/one")
    assert info["metadata"] == {"by": "us"}, info
    refused(fs.unlink, f"{TOP}/.snap/one/a/gone")
    refused(fs.open, f"{TOP}/.snap/one/a/gone", "w", 0o644)
    refused(fs.mkdir, f"{TOP}/.snap/one/new", 0o755)
    refused(fs.mkdir, f"{TOP}/.snap/two", 0o755)
    refused(fs.mkdir, f"{TOP}/.snap/_x", 0o755)
    refused(fs.rmdir, f"{TOP}/.snap/none")
    refused(fs.rmdir, f"{TOP}/a/sub")


def drop(fs):
    fs.rmsnap(TOP, "one")
    assert names(fs, f"{TOP}/.snap") == {"two"}, names(fs, f"{TOP}/.snap")
    same(tree(fs, f"{TOP}/.snap/two"), SECOND, "two, without one")
    fs.rename(f"{TOP}/.snap/two", f"{TOP}/.snap/renamed")
    same(tree(fs, f"{TOP}/.snap/renamed"), SECOND, "renamed")
    fs.rmdir(f"{TOP}/.snap/renamed")
    fs.rmsnap(f"{TOP}/a/sub", "nested")
    same(tree(fs, TOP), THIRD, "without snapshots")


def main():
    conf, name, verb = sys.argv[1:4]
    fs = cephfs.LibCephFS(conffile=conf, auth_id="admin")
    fs.mount(filesystem_name=name.encode())
    {"make": make, "check": check, "drop": drop}[verb](fs)
    fs.shutdown()


main()
