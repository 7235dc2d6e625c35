#!/usr/bin/env python3
"""Scrubs of the tree that tree.py made: scrub.py CONF FS find|clean|break|mend.

find   notes the numbers of some inodes in numbers.json beside this program.
clean  a scrub finds nothing.
break  breaks a directory's sums, another one's backtrace and a file's, while no server runs.
mend   a scrub finds all of that, one with `repair` mends it, and the next finds nothing.
"""
import json
import os
import struct
import subprocess
import sys
import time

META, DATA = "cephfs_metadata", "cephfs_data"
SUMS, LOST, FILE = "/tree/2", "/tree/3", "/tree/0/5"
HERE = os.path.dirname(os.path.abspath(__file__))
NUMBERS = os.path.join(HERE, "numbers.json")


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


def tell(*words):
    return json.loads(run("ceph", "tell", "mds.0", *words))


def logged():
    lines = run("ceph", "log", "last", "1000", "info", "cluster").splitlines()
    # 2026-11-30T04:28:54.777351+0000 mds.a (mds.4111) 1 : cluster [INF] scrub queued for path: /
    lines = [line.split("cluster ", 1)[-1] for line in lines if " mds." in f" {line.split(' ')[1]}"]
    return [line for line in lines if "scrub" in line.lower() or "backtrace" in line]


def scrub(path, ops):
    """What the scrub told of beside its beginning and end."""
    begins = f"[INF] scrub queued for path: {path}"
    before = logged().count(begins)
    said = tell("scrub", "start", path, ops)
    assert list(said) == ["return_code", "scrub_tag", "mode"], said
    assert said["return_code"] == 0 and said["mode"] == "asynchronous", said
    end = time.monotonic() + 30
    while True:
        status = tell("scrub", "status")
        assert list(status) == ["status", "scrubs", "scrub_stats"], status
        assert said["scrub_tag"] in status["scrub_stats"], status
        lines = logged()
        if (
            status["status"] == "no active scrubs running"
            and lines.count(begins) > before
            and lines[-1] == "[INF] scrub summary: idle"
        ):
            begun = max(i for i, line in enumerate(lines) if line == begins)
            return [line for line in lines[begun:] if not line.startswith("[INF] scrub ")]
        assert time.monotonic() < end, (status, lines[-20:])
        time.sleep(0.2)


def find(conf, name):
    import cephfs

    fs = cephfs.LibCephFS(conffile=conf, auth_id="admin")
    fs.mount(filesystem_name=name.encode())
    numbers = {path: fs.stat(path).st_ino for path in (SUMS, LOST, FILE)}
    fs.shutdown()
    with open(NUMBERS, "w") as file:
        json.dump(numbers, file)


def numbers():
    with open(NUMBERS) as file:
        return json.load(file)


def break_all():
    inos = {path: f"{ino:x}.00000000" for path, ino in numbers().items()}
    header = os.path.join(HERE, "header")
    run("rados", "-p", META, "getomapheader", inos[SUMS], header)
    with open(header, "rb") as file:
        fnode = bytearray(file.read())
    assert len(fnode) == 274, fnode.hex()
    # Files in the fragment, the same as its inode was told, bytes below.
    for at, value in ((44, 7), (90, 7), (128, 99_999)):
        fnode[at : at + 8] = struct.pack("<q", value)
    with open(header, "wb") as file:
        file.write(fnode)
    run("rados", "-p", META, "setomapheader", inos[SUMS], "--input-file", header)
    run("rados", "-p", META, "rmxattr", inos[LOST], "parent")
    run("rados", "-p", DATA, "rmxattr", inos[FILE], "parent")


def mend():
    ino = {path: f"0x{number:x}" for path, number in numbers().items()}
    rank = json.loads(run("ceph", "fs", "dump", "-f", "json"))["filesystems"][0]["mdsmap"]
    server = next(iter(rank["info"].values()))["name"]
    see = f"see mds.{server} log and `damage ls` output for details"
    found = [f"[WRN] Scrub error on dir {ino[SUMS]} ({SUMS}) {see}"]
    found += [f"[WRN] Scrub error on inode {ino[path]} ({path}) {see}" for path in ino]
    said = scrub("/", "recursive")
    assert sorted(said) == sorted(found), said
    damages = tell("damage", "ls")
    listed = sorted((d["damage_type"], d["ino"], d["path"]) for d in damages)
    lost = sorted(("backtrace", numbers()[path], path) for path in (LOST, FILE))
    assert listed == lost, damages
    end = time.monotonic() + 15
    while "MDS_DAMAGE: 1 MDSs report damaged metadata" not in run("ceph", "health", "detail"):
        assert time.monotonic() < end, run("ceph", "health", "detail")
        time.sleep(0.3)
    said = scrub("/", "recursive,repair")
    mended = [f"[INF] Scrub repaired inode {ino[path]} ({path})" for path in ino]
    mended += [
        f"[WRN] bad backtrace on inode {ino[path]}({path}), rewriting it" for path in (LOST, FILE)
    ]
    assert sorted(said) == sorted(mended), said
    assert tell("damage", "ls") == []
    tell("flush", "journal")
    said = scrub("/", "recursive,force")
    assert said == [], said


def main():
    conf, name, verb = sys.argv[1:]
    if verb == "find":
        find(conf, name)
    elif verb == "clean":
        said = scrub("/", "recursive,scrub_mdsdir,force")
        assert said == [], said
        assert tell("damage", "ls") == []
    else:
        {"break": break_all, "mend": mend}[verb]()


main()
