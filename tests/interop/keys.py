"""Lives of tickets and keys on a running cluster: a client at work outlives them and wiped keys; one
that is new is let in meanwhile; one whose key is gone is not.

Env: CEPH_CONF, SUITE, MODE.
"""

import json
import os
import subprocess
import threading
import time

import rados

CONF = os.environ["CEPH_CONF"]
WHO = "keys-%s-%s" % (os.environ["SUITE"], os.environ["MODE"])
# Seconds that a ticket lives, and for which clients are at work.
TICKET_S = 8
WORK_S = 30
# A new client is let in within so many seconds of a wipe: OSDs ask for the new keys.
KNOWN_S = 10


def ceph(*args):
    out = subprocess.run(["ceph", *args], check=True, stdout=subprocess.PIPE)
    return out.stdout.decode()


def connect(entity, keyring):
    options = {"keyring": keyring, "client_mount_timeout": "10", "rados_osd_op_timeout": "15"}
    cluster = rados.Rados(conffile=CONF, name=entity, conf=options)
    cluster.connect(timeout=10)
    return cluster


def user(name):
    caps = ["mon", "allow r", "osd", "allow rw pool=" + WHO]
    keyring = "/tmp/%s-%s.keyring" % (WHO, name)
    with open(keyring, "w") as file:
        file.write(ceph("auth", "get-or-create", "client.%s-%s" % (WHO, name), *caps))
    return "client.%s-%s" % (WHO, name), keyring


def write(cluster, name):
    with cluster.open_ioctx(WHO) as io:
        io.write_full(name, b"x" * 100)
        assert io.read(name) == b"x" * 100


class Worker(threading.Thread):
    """Writes and reads until told to stop; keeps what went wrong."""

    def __init__(self, cluster):
        super().__init__()
        self.cluster, self.stop, self.wrong, self.done = cluster, False, None, 0

    def run(self):
        try:
            while not self.stop:
                write(self.cluster, "worker-%d" % (self.done % 16))
                self.done += 1
                time.sleep(0.1)
        except Exception as wrong:
            self.wrong = wrong


def is_let_in(entity, keyring):
    try:
        cluster = connect(entity, keyring)
        write(cluster, "new")
        cluster.shutdown()
        return True
    except rados.Error:
        return False


def main():
    ceph("osd", "pool", "create", WHO, "8")
    ceph("osd", "pool", "application", "enable", WHO, "test")
    for option in ["auth_service_ticket_ttl", "auth_mon_ticket_ttl"]:
        ceph("config", "set", "mon", option, str(TICKET_S))
    # Keys made before live as long as tickets did then.
    ceph("auth", "wipe-rotating-service-keys")
    old, gone = user("old"), user("gone")
    start = time.time()
    while not is_let_in(*old):
        assert time.time() - start < KNOWN_S, "not let in after the keys were wiped"
    worker = Worker(connect(*old))
    worker.start()
    assert is_let_in(*gone)
    begin, wiped = time.time(), False
    entered = 0
    while time.time() - begin < WORK_S:
        entered += is_let_in(*old)
        if not wiped and time.time() - begin > WORK_S / 2:
            wiped = True
            ceph("auth", "wipe-rotating-service-keys")
            start = time.time()
            while not is_let_in(*old):
                assert time.time() - start < KNOWN_S, "not let in after the keys were wiped"
        assert worker.wrong is None, worker.wrong
        time.sleep(1)
    assert entered > 5, entered
    ceph("auth", "rm", gone[0])
    assert not is_let_in(*gone), "a key that is gone"
    worker.stop = True
    worker.join()
    assert worker.wrong is None, worker.wrong
    assert worker.done > WORK_S, worker.done
    for option in ["auth_service_ticket_ttl", "auth_mon_ticket_ttl"]:
        ceph("config", "rm", "mon", option)
    ceph("auth", "wipe-rotating-service-keys")
    ceph("auth", "rm", old[0])
    # As another script may have it.
    start = time.time()
    while json.loads(ceph("health", "--format=json"))["status"] == "HEALTH_ERR":
        assert time.time() - start < KNOWN_S
        time.sleep(0.5)
    ceph("osd", "pool", "rm", WHO, WHO, "--yes-i-really-really-mean-it")


main()
