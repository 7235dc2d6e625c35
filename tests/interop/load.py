"""load.py POOL SECONDS [RATE]: writes and reads of 16 KiB, 16 in flight, or RATE a second.
Prints one JSON array with an array for each operation: when it was due (s since 1970), how long it
took from then (s), whether it wrote. Ends early when a line comes on standard input. Every error
ends it."""
import json
import os
import random
import select
import sys
import threading
import time

import rados

pool, seconds = sys.argv[1], float(sys.argv[2])
rate = float(sys.argv[3]) if len(sys.argv) > 3 else 0.0
OBJECTS, SIZE, DEPTH = 512, 16 << 10, 16
cluster = rados.Rados(conffile=os.environ["CEPH_CONF"])
cluster.connect()
io = cluster.open_ioctx(pool)
for n in range(OBJECTS):
    io.write_full("l%d" % n, b"x" * SIZE)
lock, room = threading.Lock(), threading.Semaphore(DEPTH if not rate else 256)
took, errors, chance = [], [], random.Random(1)  # took: due, seconds, whether it wrote


def start(due):
    name = "l%d" % chance.randrange(OBJECTS)
    writes = chance.random() < 0.5

    def done(c, *_):
        room.release()
        with lock:
            took.append((due, time.monotonic() - due, writes))
            if c.get_return_value() < 0:
                errors.append(c.get_return_value())

    if writes:
        io.aio_write_full(name, b"y" * SIZE, oncomplete=done)
    else:
        io.aio_read(name, SIZE, 0, oncomplete=done)


print("ready", file=sys.stderr, flush=True)
began = time.monotonic()
due, end = began, began + seconds
while not errors:
    now = time.monotonic()
    if now >= end:
        break
    if rate:
        if now < due:
            time.sleep(min(due - now, 0.01))
            if select.select([sys.stdin], [], [], 0)[0] and sys.stdin.readline():
                break
            continue
        room.acquire()
        start(due)  # what is late counts from when it should have begun
        due += 1 / rate
    else:
        room.acquire()
        start(time.monotonic())
io.aio_flush()
while True:
    with lock:
        if room._value >= (DEPTH if not rate else 256):
            break
    time.sleep(0.01)
if errors:
    sys.exit("error %d" % errors[0])
since = time.time() - time.monotonic()
print(json.dumps([(round(due + since, 6), round(t, 6), w) for due, t, w in took]))
