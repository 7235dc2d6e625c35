"""Events of buckets to Kafka: to the mock cluster of librdkafka, which kcat hosts and reads.

kafka.py OURS: Debian's radosgw is built without Kafka, so that there is nothing to compare with; records are those of `amqp.py`.
"""

import json
import re
import subprocess
import sys
import threading
import time
import traceback

from topics import ARN, client, notify, topic

ENDPOINT = sys.argv[1]


class Cluster:
    """Two brokers and who reads a topic of theirs."""

    def __init__(self, topic):
        self.got, self.said = [], []
        # A producer that sends nothing hosts the brokers, and has the topic made.
        self.host = subprocess.Popen(["kcat", "-P", "-X", "test.mock.num.brokers=2", "-d", "mock", "-b", "x", "-t", topic], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        threading.Thread(target=lambda: self.said.extend(self.host.stderr), daemon=True).start()
        end = time.time() + 20
        while not (found := re.search(r"bootstrap.servers=([^\s]+)", "".join(self.said))) or f"Created topic \"{topic}\"" not in "".join(self.said):
            assert time.time() < end, self.said
            time.sleep(0.05)
        self.at = found[1].split(",")[0]
        self.kcat = subprocess.Popen(["kcat", "-C", "-u", "-b", self.at, "-t", topic, "-o", "beginning", "-f", "%p\t%s\n"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        threading.Thread(target=lambda: self.got.extend(self.kcat.stdout), daemon=True).start()

    def take(self, count, wait=10):
        """Partition and record of the next messages."""
        end = time.time() + wait
        while len(self.got) < count and time.time() < end:
            time.sleep(0.05)
        lines, self.got[:] = list(self.got), []
        found = []
        for line in lines:
            partition, text = line.split("\t", 1)
            (record,) = json.loads(text)["Records"]
            found.append((int(partition), record))
        assert len(found) == count, (count, found, self.said[-5:])
        return found

    def end(self):
        for process in self.kcat, self.host:
            process.kill()
            process.wait()


def delivered(b):
    """Each level of acknowledgement, persistent too, by a broker of a list: events of a key are in one partition, in order."""
    s3 = client(ENDPOINT)
    for n, attributes in enumerate([{}, {"kafka_ack_level": "broker"}, {"kafka_ack_level": "none"}, {"persistent": "true"}, {"kafka_brokers": True}]):
        name = f"kafka-{n}"
        cluster = Cluster(name)
        try:
            url = "kafka://" + cluster.at
            if "kafka_brokers" in attributes:
                url, attributes = "kafka://127.0.0.1:1", {"kafka_brokers": f"127.0.0.1:2,{cluster.at}"}
            topic(ENDPOINT, name, url, **attributes)
            notify(ENDPOINT, b, ARN + name)
            for turn in range(4):
                for key in range(5):
                    s3.put_object(Bucket=b, Key=f"key {key}", Body=b"x" * turn)
            s3.delete_object(Bucket=b, Key="key 0")
            got = cluster.take(21, 60 if "persistent" in attributes else 15)
            for key in range(5):
                of = [(partition, r["s3"]["object"]["size"], r["eventName"]) for partition, r in got if r["s3"]["object"]["key"] == f"key {key}"]
                assert len({partition for partition, _, _ in of}) == 1, of
                assert [(size, event) for _, size, event in of][:4] == [(turn, "ObjectCreated:Put") for turn in range(4)], of
                assert key or of[4][2] == "ObjectRemoved:Delete", of
            assert len({partition for partition, _ in got}) > 1
        finally:
            cluster.end()


def refused(b):
    """A cluster that is not there holds nobody up for long; what is not built is said."""
    topic(ENDPOINT, "kafka-dead", "kafka://127.0.0.1:1")
    notify(ENDPOINT, b, ARN + "kafka-dead")
    begin = time.time()
    client(ENDPOINT).put_object(Bucket=b, Key="k", Body=b"x")
    assert time.time() - begin < 10
    topic(ENDPOINT, "kafka-bad", "kafka://127.0.0.1:1", code=400, kafka_ack_level="all")
    topic(ENDPOINT, "kafka-bad", "kafka://127.0.0.1:1", code=501, mechanism="GSSAPI")


CASES = [delivered, refused]


def main():
    failed = []
    for case in CASES:
        bucket, s3 = f"kafka-{case.__name__}", client(ENDPOINT)
        s3.create_bucket(Bucket=bucket)
        try:
            case(bucket)
        except Exception as error:  # shown, and the next case runs
            traceback.print_exc()
            failed.append(f"{case.__name__}: {error!r}")
        s3.put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration={})
        for found in s3.list_objects_v2(Bucket=bucket).get("Contents", []):
            s3.delete_object(Bucket=bucket, Key=found["Key"])
        s3.delete_bucket(Bucket=bucket)
    print(f"{len(CASES) - len(failed)} of {len(CASES)} cases of Kafka passed")
    for line in failed:
        print("FAILED", line)
    sys.exit(bool(failed))


main()
