"""Events of buckets to Debian's RabbitMQ, by AMQP and by AMQP over TLS, also while it is away.

amqp.py OURS [STOCK]: with STOCK each gateway delivers for topics that the other one set, and both send the same records.
Run where RabbitMQ is installed; the broker lives in a directory of its own, on four ports from RECEIVER_PORT + 1 on.
"""

import datetime
import glob
import ipaddress
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import traceback

import pika
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from topics import ARN, client, notify, topic

ENDPOINT = sys.argv[1]
STOCK = sys.argv[2] if len(sys.argv) > 2 else None
PORT = int(os.environ.get("RECEIVER_PORT", "24597")) + 1
DIR = os.path.abspath("rabbitmq")
WAIT_S = 60  # A queue that a gateway has not seen yet is looked for twice a minute.


def certificates():
    """A chain: `ca.pem`, `leaf.pem` of 127.0.0.1 and its key."""
    now, day = datetime.datetime.now(datetime.timezone.utc), datetime.timedelta(days=1)
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in ("ca", "leaf")]
    for n in range(2):
        build = x509.CertificateBuilder().subject_name(names[n]).issuer_name(names[0]).public_key(keys[n].public_key())
        build = build.serial_number(x509.random_serial_number()).not_valid_before(now - day).not_valid_after(now + day)
        build = build.add_extension(x509.BasicConstraints(ca=n == 0, path_length=None), critical=True)
        if n == 1:
            build = build.add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        with open(f"{DIR}/{['ca', 'leaf'][n]}.pem", "wb") as file:
            file.write(build.sign(keys[0], hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    with open(f"{DIR}/key.pem", "wb") as file:
        file.write(keys[1].private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))


class Broker:
    """RabbitMQ; can go away and come back with what it had."""

    def __init__(self):
        shutil.rmtree(DIR, ignore_errors=True)
        os.makedirs(DIR)
        certificates()
        with open(f"{DIR}/rabbitmq.conf", "w") as file:
            file.write(f"listeners.tcp.1 = 127.0.0.1:{PORT}\nlisteners.ssl.1 = 127.0.0.1:{PORT + 1}\nssl_options.cacertfile = {DIR}/ca.pem\n"
                       f"ssl_options.certfile = {DIR}/leaf.pem\nssl_options.keyfile = {DIR}/key.pem\nssl_options.verify = verify_none\nlog.console = true\n"
                       "disk_free_limit.absolute = 1MB\n")
        self.env = dict(os.environ, HOME=DIR, RABBITMQ_NODENAME="events@localhost", RABBITMQ_BASE=DIR, RABBITMQ_MNESIA_BASE=f"{DIR}/db", RABBITMQ_LOG_BASE=f"{DIR}/log",
                        RABBITMQ_DIST_PORT=str(PORT + 2), ERL_EPMD_PORT=str(PORT + 3), ERL_EPMD_ADDRESS="127.0.0.1", RABBITMQ_CONFIG_FILE=f"{DIR}/rabbitmq.conf",
                        RABBITMQ_ENABLED_PLUGINS_FILE=f"{DIR}/plugins", RABBITMQ_PID_FILE=f"{DIR}/pid")
        self.epmd = subprocess.Popen(["epmd", "-port", str(PORT + 3), "-address", "127.0.0.1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.start()

    def start(self):
        server = glob.glob("/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server")[0]
        self.out = open(f"{DIR}/out", "a")
        self.server = subprocess.Popen([server], env=self.env, stdout=self.out, stderr=self.out, start_new_session=True)
        end = time.time() + 60
        for port in PORT, PORT + 1:
            while socket.socket().connect_ex(("127.0.0.1", port)):
                assert self.server.poll() is None and time.time() < end, open(f"{DIR}/out").read()[-3000:]
                time.sleep(0.2)

    def stop(self):
        os.killpg(self.server.pid, signal.SIGKILL)
        self.server.wait()

    def end(self):
        self.stop()
        self.epmd.kill()
        self.epmd.wait()


def channel():
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", PORT)).channel()


def bind(exchange, queue, key):
    line = channel()
    line.exchange_declare(exchange, "topic", durable=True)
    line.queue_declare(queue, durable=True)
    line.queue_bind(queue, exchange, key)
    line.connection.close()


def take(queue, count, wait=WAIT_S):
    """The next messages of a queue: routing key, properties and record of each."""
    line, found, end = channel(), [], time.time() + wait
    while len(found) < count and time.time() < end:
        method, properties, body = line.basic_get(queue, auto_ack=True)
        if method is None:
            time.sleep(0.1)
            continue
        (record,) = json.loads(body)["Records"]
        found.append((method.routing_key, properties, record))
    line.connection.close()
    assert len(found) == count, (queue, count, [r["s3"]["object"]["key"] for _, _, r in found])
    return found


def nothing(queue):
    time.sleep(1)
    line = channel()
    assert line.basic_get(queue, auto_ack=True)[0] is None
    line.connection.close()


def delivered(b, broker):
    """Each level of acknowledgement, in the clear and over TLS."""
    s3, url = client(ENDPOINT), f"amqp://127.0.0.1:{PORT}"
    tls = f"amqps://127.0.0.1:{PORT + 1}"
    levels = {"none": (url, {"amqp_ack_level": "none"}), "broker": (url, {"amqp_ack_level": "broker"}), "routable": (url + "/", {"amqp_ack_level": "routable"}), "plain": (url + "/%2F", {}),
              "tls": (tls, {"ca_location": f"{DIR}/ca.pem"}), "any": (tls, {"verify_ssl": "false"})}
    for name, (to, attributes) in levels.items():
        bind("events", f"q-{name}", f"t-{name}")
        topic(ENDPOINT, f"t-{name}", to, amqp_exchange="events", **attributes)
    notify(ENDPOINT, b, *[f"{ARN}t-{name}" for name in levels])
    for n in range(3):
        s3.put_object(Bucket=b, Key=f"k {n}", Body=b"x" * n)
    s3.delete_object(Bucket=b, Key="k 0")
    for name in levels:
        got = take(f"q-{name}", 4, 10)
        assert [(r["eventName"], r["s3"]["object"]["key"]) for _, _, r in got] == [("ObjectCreated:Put", f"k {n}") for n in range(3)] + [("ObjectRemoved:Delete", "k 0")], got
        assert all(key == f"t-{name}" and properties.delivery_mode == 2 for key, properties, _ in got)
    topic(ENDPOINT, "bad", url, code=400)
    topic(ENDPOINT, "bad", url, code=400, amqp_exchange="events", amqp_ack_level="sometimes")


def refused(b, broker):
    """What a broker does not take is not delivered, and holds nobody up."""
    s3 = client(ENDPOINT)
    bind("events", "q-refused", "r-ok")
    for name, to, attributes in [
        ("r-exchange", f"amqp://127.0.0.1:{PORT}", {"amqp_exchange": "not-there"}),
        ("r-vhost", f"amqp://127.0.0.1:{PORT}/none", {"amqp_exchange": "events"}),
        ("r-trust", f"amqps://127.0.0.1:{PORT + 1}", {"amqp_exchange": "events"}),
        ("r-file", f"amqps://127.0.0.1:{PORT + 1}", {"amqp_exchange": "events", "ca_location": "/etc/passwd"}),
        ("r-route", f"amqp://127.0.0.1:{PORT}", {"amqp_exchange": "events", "amqp_ack_level": "routable"}),
        ("r-port", "amqp://127.0.0.1:1", {"amqp_exchange": "events"}),
        ("r-ok", f"amqp://127.0.0.1:{PORT}", {"amqp_exchange": "events"}),
    ]:
        topic(ENDPOINT, name, to, **attributes)
    names = ["r-exchange", "r-vhost", "r-trust", "r-file", "r-route", "r-port", "r-ok"]
    notify(ENDPOINT, b, *[ARN + name for name in names])
    begin = time.time()
    s3.put_object(Bucket=b, Key="k", Body=b"x")
    assert time.time() - begin < 10
    assert len(take("q-refused", 1, 5)) == 1
    nothing("q-refused")


def away(b, broker):
    """The broker is gone, and comes back: what waits arrives, once a queue wants it, each key's in order."""
    s3 = client(ENDPOINT)
    bind("events", "q-away", "t-away")
    topic(ENDPOINT, "t-away", f"amqp://127.0.0.1:{PORT}", amqp_exchange="events", persistent="true")
    topic(ENDPOINT, "t-later", f"amqp://127.0.0.1:{PORT}", amqp_exchange="events", amqp_ack_level="routable", persistent="true")
    notify(ENDPOINT, b, ARN + "t-away", ARN + "t-later")
    s3.put_object(Bucket=b, Key="before", Body=b"x")
    assert [r["s3"]["object"]["key"] for _, _, r in take("q-away", 1)] == ["before"]
    broker.stop()
    for n in range(5):
        s3.put_object(Bucket=b, Key="k", Body=b"x" * n)
    time.sleep(2)
    broker.start()
    sizes = [r["s3"]["object"]["size"] for _, _, r in take("q-away", 5)]
    assert sizes == list(range(5)), sizes
    nothing("q-away")
    bind("events", "q-later", "t-later")
    assert [r["s3"]["object"]["key"] for _, _, r in take("q-later", 6)] == ["before"] + ["k"] * 5


def both(b, broker):
    """Topics that one gateway set are the other's, and what both send is alike."""
    for n, (setter, writer) in enumerate([(ENDPOINT, STOCK), (STOCK, ENDPOINT), (STOCK, STOCK), (ENDPOINT, ENDPOINT)]):
        bind("events", f"q-both-{n}", f"t-both-{n}")
        topic(setter, f"t-both-{n}", f"amqp://127.0.0.1:{PORT}", amqp_exchange="events", amqp_ack_level="broker", OpaqueData="o")
        notify(setter, b, f"{ARN}t-both-{n}")
        client(writer).put_object(Bucket=b, Key="k", Body=b"abc", Metadata={"a": "b"})
        ((key, properties, record),) = take(f"q-both-{n}", 1, 15)
        record["s3"]["object"].pop("sequencer")
        for volatile in "eventTime", "eventId", "responseElements":
            record.pop(volatile)
        record["s3"].pop("configurationId")
        if n == 0:
            first = key.rsplit("-", 1)[0], properties.delivery_mode, record
        assert (key.rsplit("-", 1)[0], properties.delivery_mode, record) == first, (first, record)


CASES = [delivered, refused, away] + ([both] if STOCK else [])


def main():
    failed, broker = [], Broker()
    try:
        for case in CASES:
            bucket, s3 = f"amqp-{case.__name__}", client(ENDPOINT)
            s3.create_bucket(Bucket=bucket)
            try:
                case(bucket, broker)
            except Exception as error:  # shown, and the next case runs
                traceback.print_exc()
                failed.append(f"{case.__name__}: {error!r}")
            s3.put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration={})
            for found in s3.list_objects_v2(Bucket=bucket).get("Contents", []):
                s3.delete_object(Bucket=bucket, Key=found["Key"])
            s3.delete_bucket(Bucket=bucket)
    finally:
        broker.end()
    print(f"{len(CASES) - len(failed)} of {len(CASES)} cases of AMQP passed")
    for line in failed:
        print("FAILED", line)
    sys.exit(bool(failed))


main()
