"""Topics, notifications of buckets and their events: what happens to objects arrives at a receiver.

events.py OURS [STOCK]: with STOCK each gateway reads what the other set, and radosgw-admin both. Run with one URL it
checks that gateway alone; the cases hold for stock, too.
"""

import http.client
import http.server
import json
import os
import subprocess
import sys
import threading
import time
import urllib.parse

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from topics import ARN, MAIN, client, create, exchange, sns

ENDPOINT = sys.argv[1]
STOCK = sys.argv[2] if len(sys.argv) > 2 else None
IS_STOCK = os.environ.get("IS_STOCK") == "1"
OTHER = ("KEYother", "secret/other")
PORT = int(os.environ.get("RECEIVER_PORT", "24597"))
WAIT_S = 45  # A queue that a gateway has not seen yet is looked for twice a minute.


class Receiver:
    """Takes records; can go away and come back at the same port."""

    def __init__(self):
        self.got, self.answer, self.server = [], 200, None
        self.start()

    def start(self):
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if receiver.answer == 200:
                    receiver.got.append((self.path, dict(self.headers.items()), json.loads(body)["Records"][0]))
                self.send_response(receiver.answer)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        http.server.ThreadingHTTPServer.allow_reuse_address = True
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()

    def take(self, count, path=None, wait=5):
        """The next `count` records of a path, in the order they came."""
        end = time.time() + wait
        while True:
            found = [one for one in self.got if path in (None, one[0])]
            if len(found) >= count or time.time() > end:
                break
            time.sleep(0.05)
        self.got = [one for one in self.got if one not in found]
        assert len(found) == count, (count, [(p, r["eventName"], r["s3"]["object"]["key"]) for p, _, r in found])
        return found

    def none(self):
        time.sleep(0.3)
        assert self.got == [], self.got


def s3(endpoint, method, path, body=b"", keys=MAIN):
    import hashlib
    request = AWSRequest(method, endpoint + path, data=body, headers={"x-amz-content-sha256": hashlib.sha256(body).hexdigest()})
    S3SigV4Auth(Credentials(*keys), "s3", "default").add_auth(request)
    return exchange(endpoint, method, path, body, request)


def admin(*args):
    done = subprocess.run(["radosgw-admin", *args], capture_output=True, text=True)
    assert done.returncode == 0, (args, done.stderr[-500:])
    return json.loads(done.stdout) if done.stdout.strip() else None


def notify(at, bucket, *configs):
    at.put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration={"TopicConfigurations": list(configs)})


def config(name, topic, events, rules=()):
    out = {"Id": name, "TopicArn": ARN + topic, "Events": events}
    if rules:
        out["Filter"] = {"Key": {"FilterRules": [{"Name": n, "Value": v} for n, v in rules]}}
    return out


def topics(url):
    """What the actions of SNS take, answer and refuse."""
    status, text = create(ENDPOINT, "sync", push_dash_endpoint=f"{url}/sync", OpaqueData="me@x", cloudevents="true")
    assert status == 200 and f"<TopicArn>{ARN}sync</TopicArn>" in text, text
    assert create(ENDPOINT, "kept", push_dash_endpoint=f"{url}/kept", persistent="true", max_retries="10000")[0] == 200
    assert create(ENDPOINT, "kept", push_dash_endpoint=f"{url}/kept", persistent="true")[0] == 200
    status, text = sns(ENDPOINT, Action="GetTopic", TopicArn=ARN + "sync")
    assert status == 200 and "<OpaqueData>me@x</OpaqueData>" in text and "<Persistent>False</Persistent>" in text, text
    status, text = sns(ENDPOINT, Action="GetTopicAttributes", TopicArn=ARN + "kept")
    assert status == 200 and "&quot;Persistent&quot;:true" in text and "&quot;MaxRetries&quot;:&quot;None&quot;" in text, text
    status, text = sns(ENDPOINT, Action="ListTopics")
    assert status == 200 and text.count("<member>") >= 2, text
    assert "<member>" not in sns(ENDPOINT, OTHER, Action="ListTopics")[1]
    for keys, form, want in [
        (OTHER, {"Action": "GetTopic", "TopicArn": ARN + "sync"}, (403, "AuthorizationError")),
        (OTHER, {"Action": "DeleteTopic", "TopicArn": ARN + "sync"}, (403, "AuthorizationError")),
        (OTHER, {"Action": "SetTopicAttributes", "TopicArn": ARN + "sync", "AttributeName": "OpaqueData", "AttributeValue": "x"}, (403, "AuthorizationError")),
        (OTHER, {"Action": "CreateTopic", "Name": "sync"}, (403, "AuthorizationError")),
        (MAIN, {"Action": "GetTopicAttributes", "TopicArn": ARN + "none"}, (404, "NotFound")),
        (MAIN, {"Action": "GetTopicAttributes", "TopicArn": "xx"}, (400, "InvalidArgument")),
        (MAIN, {"Action": "CreateTopic", "Name": "bad.name"}, (400, "InvalidArgument")),
        (MAIN, {"Action": "CreateTopic", "Name": "x", "push-endpoint": "nourl"}, (400, "InvalidArgument")),
        (MAIN, {"Action": "CreateTopic", "Name": "x", "push-endpoint": "http://u:p@127.0.0.1:1/"}, (400, "InvalidArgument")),
        (MAIN, {"Action": "CreateTopic", "Name": "x", "Policy": "{nope"}, (400, "MalformedPolicyDocument")),
        (MAIN, {"Action": "SetTopicAttributes", "TopicArn": ARN + "sync", "AttributeName": "nope", "AttributeValue": "1"}, (400, "InvalidArgument")),
    ]:
        status, text = sns(ENDPOINT, keys, **form)
        assert (status, want[1] in text) == (want[0], True), (form, status, text)
    if not IS_STOCK:
        assert create(ENDPOINT, "x", push_dash_endpoint="mqtt://127.0.0.1/")[0] == 400
    assert sns(ENDPOINT, Action="DeleteTopic", TopicArn=ARN + "none")[0] == 200
    assert sns(ENDPOINT, Action="SetTopicAttributes", TopicArn=ARN + "sync", AttributeName="OpaqueData", AttributeValue="you")[0] == 200
    names = sorted(one["name"] for one in admin("topic", "list"))
    assert {"kept", "sync"} <= set(names), names
    told = admin("topic", "get", "--topic", "kept")
    assert told["dest"]["persistent_queue"] == ":kept" and told["owner"] == "main", told
    assert admin("topic", "get", "--topic", "sync")["opaqueData"] == "you"


def configurations(at):
    """What ?notification takes, answers and refuses; stock's tool sees it."""
    every = ["s3:ObjectCreated:*", "s3:ObjectRemoved:*", "s3:ObjectLifecycle:*"]
    notify(at, "told", config("all", "sync", every))
    # A second one is added.
    notify(at, "told", config("kept", "kept", ["s3:ObjectCreated:*"], [("prefix", "kept/")]))
    found = at.get_bucket_notification_configuration(Bucket="told")["TopicConfigurations"]
    assert [one["Id"] for one in found] == ["all", "kept"] and found[0]["Events"] == every, found
    assert found[1]["Filter"]["Key"]["FilterRules"] == [{"Name": "prefix", "Value": "kept/"}]
    wrap = lambda text: f"<NotificationConfiguration>{text}</NotificationConfiguration>".encode()
    one = lambda inner, topic="sync", name="x": wrap(f"<TopicConfiguration><Id>{name}</Id><Topic>{ARN}{topic}</Topic>{inner}</TopicConfiguration>")
    rule = lambda name, value: f"<Filter><S3Key><FilterRule><Name>{name}</Name><Value>{value}</Value></FilterRule></S3Key></Filter>"
    for method, path, body, want in [
        ("GET", "/told?notification=none", b"", (404, "NoSuchKey")),
        ("PUT", "/told?notification", b"", (400, "InvalidArgument")),
        ("PUT", "/told?notification", one("", "nothere"), (404, "NoSuchKey")),
        ("PUT", "/told?notification", one("", name=""), (400, "InvalidArgument")),
        ("PUT", "/told?notification", one("<Event>s3:ObjectTagging:*</Event>"), (400, "InvalidArgument")),
        ("PUT", "/told?notification", one(rule("infix", "a")), (400, "MalformedXML")),
        ("DELETE", "/told?notification=none", b"", (200, "")),
    ]:
        status, text = s3(ENDPOINT, method, path, body)
        assert (status, want[1] in text) == (want[0], True), (method, path, status, text)
    if not IS_STOCK:
        for body, want in (one(rule("regex", "a(")), 400), (wrap("<QueueConfiguration/>"), 501):
            assert s3(ENDPOINT, "PUT", "/told?notification", body)[0] == want
    assert s3(ENDPOINT, "GET", "/told?notification", keys=OTHER)[0] == 403
    assert s3(ENDPOINT, "PUT", "/told?notification", one(""), keys=OTHER)[0] == 403
    assert s3(ENDPOINT, "DELETE", "/told?notification", keys=OTHER)[0] == 403
    listed = admin("notification", "list", "--bucket", "told")["notifications"]
    assert sorted(one["Id"] for one in listed) == ["all", "kept"], listed
    assert admin("notification", "get", "--bucket", "told", "--notification-id", "kept")["TopicArn"] == ARN + "kept"
    assert "told" in admin("topic", "get", "--topic", "sync")["subscribed_buckets"]


def events(at, receiver):
    """Each kind of event, with what a record tells."""
    def told(name, key, size, **more):
        path, headers, record = receiver.take(1)[0]
        thing = record["s3"]["object"]
        assert (path, record["eventName"], thing["key"], thing["size"]) == ("/sync", name, key, size), record
        lower = {k.lower(): v for k, v in headers.items()}
        assert lower["ce-type"] == f"com.amazonaws.{name}" and lower["content-type"] == "application/json", headers
        bucket = record["s3"]["bucket"]
        assert (bucket["name"], bucket["ownerIdentity"], bucket["arn"]) == ("told", {"principalId": "main"}, "arn:aws:s3:default::told"), record
        assert list(record) == ["eventVersion", "eventSource", "awsRegion", "eventTime", "eventName", "userIdentity", "requestParameters", "responseElements", "s3", "eventId", "opaqueData"]
        assert list(thing) == ["key", "size", "eTag", "versionId", "sequencer", "metadata", "tags"], thing
        assert (record["s3"]["configurationId"], record["opaqueData"], record["awsRegion"], record["eventSource"]) == ("all", "you", "default", "ceph:s3")
        assert record["userIdentity"] == {"principalId": "main"}
        for field, value in more.items():
            assert thing[field] == value, (field, thing)
        return thing

    meta, tags = [{"key": "x-amz-meta-a", "val": "1"}], [{"key": "t", "val": "u"}]
    etag = at.put_object(Bucket="told", Key="k 1/ü", Body=b"hello", Metadata={"a": "1"}, Tagging="t=u")["ETag"].strip('"')
    first = told("ObjectCreated:Put", "k 1/ü", 5, eTag=etag, versionId="", metadata=meta, tags=tags)
    at.copy_object(Bucket="told", Key="copy", CopySource={"Bucket": "told", "Key": "k 1/ü"})
    second = told("ObjectCreated:Copy", "copy", 5, eTag=etag, metadata=meta, tags=tags)
    assert first["sequencer"] != second["sequencer"] and len(first["sequencer"]) == 16
    for quiet in (lambda: at.put_object_tagging(Bucket="told", Key="copy", Tagging={"TagSet": []}), lambda: at.get_object(Bucket="told", Key="copy"),
                  lambda: at.put_object_acl(Bucket="told", Key="copy", ACL="private")):
        quiet()
    receiver.none()
    upload = at.create_multipart_upload(Bucket="told", Key="parts", Metadata={"a": "1"})["UploadId"]
    part = at.upload_part(Bucket="told", Key="parts", UploadId=upload, PartNumber=1, Body=b"x" * 6000)["ETag"]
    receiver.none()
    made = at.complete_multipart_upload(Bucket="told", Key="parts", UploadId=upload, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part}]})
    told("ObjectCreated:CompleteMultipartUpload", "parts", 6000, eTag=made["ETag"].strip('"'), metadata=meta)
    form = at.generate_presigned_post("told", "posted")
    text = "".join(f'--x\r\nContent-Disposition: form-data; name="{k}"\r\n\r\n{v}\r\n' for k, v in form["fields"].items())
    text += '--x\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\nDATA\r\n--x--\r\n'
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(ENDPOINT).netloc)
    connection.request("POST", "/told", text.encode(), {"Content-Type": "multipart/form-data; boundary=x"})
    assert connection.getresponse().status == 204
    told("ObjectCreated:Post", "posted", 4)
    at.delete_object(Bucket="told", Key="copy")
    told("ObjectRemoved:Delete", "copy", 5, eTag=etag, metadata=meta, tags=[])
    at.delete_object(Bucket="told", Key="nothing")
    receiver.none()
    at.delete_objects(Bucket="told", Delete={"Objects": [{"Key": "parts"}]})
    told("ObjectRemoved:Delete", "parts", 6000)
    # What is refused tells nothing.
    try:
        at.put_object(Bucket="told", Key="k 1/ü", Body=b"x", IfNoneMatch="*")
        raise AssertionError("it is there")
    except at.exceptions.ClientError as error:
        assert error.response["ResponseMetadata"]["HTTPStatusCode"] == 412
    receiver.none()
    at.put_bucket_versioning(Bucket="told", VersioningConfiguration={"Status": "Enabled"})
    version = at.put_object(Bucket="told", Key="v", Body=b"1")["VersionId"]
    told("ObjectCreated:Put", "v", 1, versionId=version)
    marker = at.delete_object(Bucket="told", Key="v")["VersionId"]
    told("ObjectRemoved:DeleteMarkerCreated", "v", 1, versionId=marker)
    at.delete_object(Bucket="told", Key="v", VersionId=marker)
    told("ObjectRemoved:Delete", "v", 0, versionId=marker, eTag="")
    at.delete_object(Bucket="told", Key="v", VersionId=version)
    told("ObjectRemoved:Delete", "v", 1, versionId=version)


def lifecycle(at, receiver):
    for body in b"1", b"22":
        at.put_object(Bucket="told", Key="lc/a", Body=body)
    at.create_multipart_upload(Bucket="told", Key="lc/up")
    receiver.take(2)
    at.put_bucket_lifecycle_configuration(Bucket="told", LifecycleConfiguration={"Rules": [
        {"ID": "e", "Filter": {"Prefix": "lc/"}, "Status": "Enabled", "Expiration": {"Days": 1}, "NoncurrentVersionExpiration": {"NoncurrentDays": 1},
         "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1}}]})
    found = receiver.take(5, wait=60)
    names = sorted(record["eventName"] for _, _, record in found)
    lead = "ObjectLifecycle:Expiration:"
    assert names == [lead + end for end in ("AbortMPU", "Current", "DeleteMarker", "NonCurrent", "NonCurrent")], names
    assert all(record["userIdentity"] == {"principalId": "rgw lifecycle"} for _, _, record in found)
    at.delete_bucket_lifecycle(Bucket="told")


def away(at, receiver):
    """A persistent topic's events outlive the receiver's absence and its refusals, each key's in order."""
    at.put_object(Bucket="told", Key="kept/first", Body=b"1")
    receiver.take(1, "/kept", WAIT_S)
    receiver.take(1, "/sync")
    if IS_STOCK:
        # At stock a topic that is not reached takes the events of those behind it along.
        s3(ENDPOINT, "DELETE", "/told?notification=all")
    receiver.stop()
    count = 40
    for n in range(count):
        begin = time.time()
        at.put_object(Bucket="told", Key=f"kept/{n % 8}", Body=b"x" * (n + 1))
        assert time.time() - begin < 8, "a receiver that is away holds nobody up for long"
    time.sleep(4)
    receiver.answer = 503
    receiver.start()
    time.sleep(2)
    receiver.answer = 200
    end, sizes = time.time() + WAIT_S, {}
    while sum(len(set(s)) for s in sizes.values()) < count and time.time() < end:
        time.sleep(0.2)
        sizes = {}
        for path, _, record in receiver.got:
            if path == "/kept":
                sizes.setdefault(record["s3"]["object"]["key"], []).append(record["s3"]["object"]["size"])
    assert sum(len(set(s)) for s in sizes.values()) == count, sizes
    if not IS_STOCK and not STOCK:
        assert all(s == sorted(s) for s in sizes.values()), sizes
    # Events leave the queue after they are told, stock's many at a time.
    end, left = time.time() + WAIT_S, None
    while left != (0, 0) and time.time() < end:
        time.sleep(0.5)
        stats = admin("topic", "stats", "--topic", "kept")["Topic Stats"]
        left = (stats["Entries"], stats["Reservations"])
    assert left == (0, 0), stats
    receiver.got.clear()


def both(at, receiver, url):
    """What one gateway sets, the other reads and serves."""
    other = client(STOCK)
    assert create(STOCK, "theirs", push_dash_endpoint=f"{url}/theirs", OpaqueData="stock")[0] == 200
    assert create(STOCK, "theirs-kept", push_dash_endpoint=f"{url}/theirs-kept", persistent="true")[0] == 200
    for first, second in (ENDPOINT, STOCK), (STOCK, ENDPOINT):
        for topic in "sync", "kept", "theirs", "theirs-kept":
            strip = lambda answer: (answer[0], answer[1].split("<ResponseMetadata>")[0].split("?>")[-1].replace(' xmlns="https://sns.amazonaws.com/doc/2010-03-31/"', "").replace("Version=2010-03-31&amp;", "").replace("Version=2010-03-31", ""))
            a, b = (strip(sns(at, Action="GetTopicAttributes", TopicArn=ARN + topic)) for at in (first, second))
            assert a == b and a[0] == 200, (topic, a, b)
    shown = lambda at: at.get_bucket_notification_configuration(Bucket="told")["TopicConfigurations"]
    assert shown(at) == shown(other)
    # Stock tells by what ours configured, and ours by what stock did.
    other.put_object(Bucket="told", Key="by-stock", Body=b"1")
    assert receiver.take(1)[0][2]["s3"]["object"]["key"] == "by-stock"
    other.create_bucket(Bucket="told-too")
    notify(other, "told-too", config("s", "theirs", ["s3:ObjectCreated:*"]), config("p", "theirs-kept", ["s3:ObjectCreated:*"]))
    for writer, name in (at, "ours"), (other, "stock"):
        writer.put_object(Bucket="told-too", Key=name, Body=b"1")
        ((_, _, mine),) = receiver.take(1, "/theirs")
        ((_, _, kept),) = receiver.take(1, "/theirs-kept", WAIT_S)
        assert mine["opaqueData"] == "stock" and mine["s3"]["object"]["key"] == kept["s3"]["object"]["key"] == name
    admin("notification", "rm", "--bucket", "told-too", "--notification-id", "s")
    at.put_object(Bucket="told-too", Key="less", Body=b"1")
    receiver.take(1, "/theirs-kept", WAIT_S)
    receiver.none()
    at.delete_objects(Bucket="told-too", Delete={"Objects": [{"Key": k} for k in ("ours", "stock", "less")]})
    at.delete_bucket(Bucket="told-too")
    assert admin("topic", "get", "--topic", "theirs-kept")["subscribed_buckets"] == []
    assert sns(ENDPOINT, Action="DeleteTopic", TopicArn=ARN + "theirs-kept")[0] == 200
    admin("topic", "rm", "--topic", "theirs")
    assert sns(ENDPOINT, Action="GetTopic", TopicArn=ARN + "theirs")[0] == 404


def main():
    receiver = Receiver()
    url, at = f"http://127.0.0.1:{PORT}", client(ENDPOINT)
    topics(url)
    at.create_bucket(Bucket="told")
    configurations(at)
    events(at, receiver)
    lifecycle(at, receiver)
    away(at, receiver)
    if STOCK:
        both(at, receiver, url)
    assert s3(ENDPOINT, "DELETE", "/told?notification")[0] == 200
    at.put_object(Bucket="told", Key="untold", Body=b"1")
    receiver.none()
    for page in at.get_paginator("list_object_versions").paginate(Bucket="told"):
        for one in page.get("Versions", []) + page.get("DeleteMarkers", []):
            at.delete_object(Bucket="told", Key=one["Key"], VersionId=one["VersionId"])
    at.delete_bucket(Bucket="told")
    for topic in "sync", "kept":
        assert sns(ENDPOINT, Action="DeleteTopic", TopicArn=ARN + topic)[0] == 200
    assert not {"sync", "kept"} & {one["name"] for one in admin("topic", "list")}
    print("events")


main()
