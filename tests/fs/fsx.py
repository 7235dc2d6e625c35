#!/usr/bin/env python3
"""Random reads and writes of one file beside a copy in memory: fsx.py OPERATIONS SEED PATH [PATH].

With two paths, which are the same file on two mounts, each operation goes by one of them, and both have
it open all the time. Named after the program of that kind that kernels are tested with.
"""
import mmap
import os
import random
import subprocess
import sys

LARGEST = 1 << 20
PIECE = 1 << 16


class Model:
    """What the file has to be."""

    def __init__(self):
        self.data = bytearray()

    def write(self, off, data):
        if off > len(self.data):
            self.data.extend(bytes(off - len(self.data)))
        self.data[off:off + len(data)] = data

    def truncate(self, size):
        del self.data[size:]
        self.data.extend(bytes(size - len(self.data)))


class Failed(Exception):
    pass


class File:
    """The file by one of its paths."""

    def __init__(self, path):
        self.path = path
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)

    def reopen(self):
        os.close(self.fd)
        self.fd = os.open(self.path, os.O_RDWR)


def same(got, want, what):
    if got != want:
        at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
        raise Failed(f"{what}: {len(got)} bytes, not {len(want)}; the first other one is {at}")


def step(rng, f, model, alone):
    """One operation; its name."""
    size = len(model.data)
    off, length = rng.randrange(LARGEST - PIECE), rng.randrange(1, PIECE)
    kind = rng.randrange(12 if alone else 8)
    if kind <= 2:
        off = min(off, size)
        same(os.pread(f.fd, length, off), bytes(model.data[off:off + length]), f"read {off}")
        return "read"
    if kind <= 5:
        data = rng.randbytes(length)
        done = os.pwrite(f.fd, data, off)
        if done != length:
            raise Failed(f"write of {length} wrote {done}")
        model.write(off, data)
        return "write"
    if kind == 6:
        to = rng.randrange(LARGEST)
        os.ftruncate(f.fd, to)
        model.truncate(to)
        return "truncate"
    if kind == 7:
        same([os.fstat(f.fd).st_size], [size], "size")
        return "stat"
    if kind == 8:
        os.fsync(f.fd)
        return "fsync"
    if kind == 9:
        f.reopen()
        return "reopen"
    if size == 0:
        return "nothing"
    off = off % size
    length = min(length, size - off)
    with mmap.mmap(f.fd, size) as m:
        if kind == 10:
            same(m[off:off + length], bytes(model.data[off:off + length]), f"mapped read {off}")
            return "mapped read"
        data = rng.randbytes(length)
        m[off:off + length] = data
        m.flush()
        model.data[off:off + length] = data
        return "mapped write"


def hole(rng, f, model):
    size = len(model.data)
    off, length = rng.randrange(LARGEST - PIECE), rng.randrange(1, PIECE)
    subprocess.run(["fallocate", "-p", "-o", str(off), "-l", str(length), f.path], check=True)
    end = min(off + length, size)
    if off < end:
        model.data[off:end] = bytes(end - off)


def main():
    operations, seed, paths = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    rng, model = random.Random(seed), Model()
    files = [File(path) for path in paths]
    counts, last = {}, []
    for n in range(operations):
        f = rng.choice(files)
        try:
            if n % 500 == 499:
                hole(rng, f, model)
                kind = "hole"
            else:
                kind = step(rng, f, model, len(files) == 1)
        except Failed as e:
            sys.exit(f"operation {n} by {f.path}: {e}; before it: {last[-8:]}")
        counts[kind] = counts.get(kind, 0) + 1
        last = last[-8:] + [(kind, files.index(f))]
    for f in files:
        os.close(f.fd)
        with open(f.path, "rb") as whole:
            same(whole.read(), bytes(model.data), f"the whole by {f.path}")
    print(f"{operations} operations: {counts}")


main()
