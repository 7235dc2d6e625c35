"""What only our gateway has, or does otherwise than stock: by plain HTTP, and by boto3.

ours.py ENDPOINT TLS_ENDPOINT ACCESS SECRET DIR [CASE..]: DIR has the gateway's `rgw.a.pid`, certificates `one.crt` and
`two.crt` and with their keys `one.pem` and `two.pem` (the gateway speaks TLS by `tls.pem`), and `access.log`.
"""

import json
import os
import shutil
import signal
import socket
import ssl
import sys
import time
import traceback
import urllib.parse

import boto3
from botocore.client import Config

ENDPOINT, TLS, ACCESS, SECRET, DIR = sys.argv[1:6]
MIB = 1 << 20
HOST = urllib.parse.urlsplit(ENDPOINT).netloc.split(":")


def client(endpoint=ENDPOINT, **args):
    return boto3.client(
        "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id=ACCESS, aws_secret_access_key=SECRET,
        config=Config(retries={"max_attempts": 1}, s3={"addressing_style": "path"}), **args)


S3 = client()


def pid():
    return int(open(f"{DIR}/rgw.a.pid").read())


def asks(method, path, query):
    """A signed request whose subresource no client library knows; status and body."""
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials
    import http.client
    request = AWSRequest(method, f"{ENDPOINT}{path}?{query}", headers={"x-amz-content-sha256": "UNSIGNED-PAYLOAD"}, data=b"")
    SigV4Auth(Credentials(ACCESS, SECRET), "s3", "us-east-1").add_auth(request)
    line = http.client.HTTPConnection(*HOST)
    line.request(method, f"{path}?{query}", headers=dict(request.headers))
    answer = line.getresponse()
    text = answer.read()
    line.close()
    return answer.status, text


def subresources(b):
    """What is not built is never another operation: nothing is made, changed, listed or deleted."""
    S3.put_object(Bucket=b, Key="k", Body=b"1")
    for method in "GET", "PUT", "POST", "DELETE":
        for name in "accelerate", "analytics", "inventory", "metrics", "unheard-of", "torrent", "select", "restore":
            for path in f"/{b}", f"/{b}/k", "/not-made-yet":
                status, text = asks(method, path, name)
                assert status == 501 and b"<Code>NotImplemented</Code>" in text, (method, path, name, status, text)
    assert asks("HEAD", f"/{b}", "accelerate")[0] == 501
    assert S3.get_object(Bucket=b, Key="k")["Body"].read() == b"1"
    assert "not-made-yet" not in [x["Name"] for x in S3.list_buckets()["Buckets"]]


def ownership(b):
    """Who owns new objects; stock 20.2 has no such controls."""
    other = boto3.client("s3", endpoint_url=ENDPOINT, region_name="us-east-1", aws_access_key_id="KEYother", aws_secret_access_key="secret/other",
                         config=Config(retries={"max_attempts": 1}, s3={"addressing_style": "path"}))
    def fails(code, call, **args):
        try:
            call(**args)
        except S3.exceptions.ClientError as error:
            assert error.response["Error"]["Code"] == code, error
            return
        raise AssertionError(f"{call.__name__} should have failed with {code}")
    def owner(key):
        return [o["Owner"]["ID"] for o in S3.list_objects_v2(Bucket=b, FetchOwner=True)["Contents"] if o["Key"] == key]
    fails("OwnershipControlsNotFoundError", S3.get_bucket_ownership_controls, Bucket=b)
    S3.put_bucket_policy(Bucket=b, Policy=json.dumps({"Statement": [
        {"Effect": "Allow", "Principal": "*", "Action": "s3:PutObject", "Resource": f"arn:aws:s3:::{b}/*"}]}))
    other.put_object(Bucket=b, Key="theirs", Body=b"1")
    assert owner("theirs") == ["other"], owner("theirs")
    for name in "BucketOwnerPreferred", "BucketOwnerEnforced":
        controls = {"Rules": [{"ObjectOwnership": name}]}
        S3.put_bucket_ownership_controls(Bucket=b, OwnershipControls=controls)
        assert S3.get_bucket_ownership_controls(Bucket=b)["OwnershipControls"] == controls
        other.put_object(Bucket=b, Key=name, Body=b"1", ACL="bucket-owner-full-control")
        assert owner(name) == ["main"], (name, owner(name))
        assert S3.get_object(Bucket=b, Key=name)["Body"].read() == b"1"
    other.put_object(Bucket=b, Key="enforced", Body=b"1")
    assert owner("enforced") == ["main"]
    fails("AccessControlListNotSupported", S3.put_object, Bucket=b, Key="k", Body=b"1", ACL="public-read")
    fails("AccessControlListNotSupported", S3.put_object_acl, Bucket=b, Key="enforced", ACL="public-read")
    fails("AccessControlListNotSupported", S3.put_bucket_acl, Bucket=b, ACL="public-read")
    S3.delete_bucket_ownership_controls(Bucket=b)
    S3.put_bucket_acl(Bucket=b, ACL="public-read")
    fails("InvalidRequest", S3.put_bucket_ownership_controls, Bucket=b, OwnershipControls=controls)


def forms(_):
    """A form of IAM counts as far as it is signed: not without a signature of its body, and not changed."""
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials
    import http.client
    def post(form, sent=None, headers=None, sign=True):
        request = AWSRequest("POST", f"{ENDPOINT}/", headers={"Content-Type": "application/x-www-form-urlencoded"} | (headers or {}), data=form)
        if sign:
            SigV4Auth(Credentials(ACCESS, SECRET), "iam", "us-east-1").add_auth(request)
        line = http.client.HTTPConnection(*HOST)
        line.request("POST", "/", body=sent or form, headers=dict(request.headers))
        answer = line.getresponse()
        text = answer.read()
        line.close()
        return answer.status, text
    asks = b"Action=GetSessionToken&Version=2011-06-15"
    assert post(asks)[0] == 403 and b"sts:GetSessionToken" in post(asks)[1], post(asks)
    assert post(asks, sent=asks.replace(b"Get", b"Put"))[0] == 403
    status, text = post(asks, headers={"x-amz-content-sha256": "UNSIGNED-PAYLOAD"})
    assert status == 403 and b"does not cover" in text, (status, text)
    assert post(asks, sign=False)[0] == 403
    assert post(b"Action=GetAccountSummary")[0] == 501 and post(b"Action=Bogus")[0] == 405
    assert post(b"Action=CreateTopic&Name=x", sign=False)[0] == 403
    assert post(b"Action=GetUser&x=" + b"y" * (300 << 10))[0] == 400


def secrets(_):
    """TLS, and another certificate by SIGHUP: for connections to come, without a break for those that are there."""
    def serial():
        with socket.create_connection((HOST[0], urllib.parse.urlsplit(TLS).port)) as line:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            with context.wrap_socket(line) as inner:
                return inner.getpeercert(binary_form=True)
    one, two = (ssl.PEM_cert_to_DER_cert(open(f"{DIR}/{n}.crt").read()) for n in ("one", "two"))
    secret = client(TLS, verify=f"{DIR}/one.crt")
    secret.put_object(Bucket="case-secrets", Key="k", Body=b"x" * 5 * MIB)
    assert secret.get_object(Bucket="case-secrets", Key="k")["Body"].read() == b"x" * 5 * MIB
    assert serial() == one
    shutil.copy(f"{DIR}/two.pem", f"{DIR}/tls.pem")
    os.kill(pid(), signal.SIGHUP)
    end = time.time() + 10
    while serial() != two:
        assert time.time() < end, "the old certificate is shown"
        time.sleep(0.1)
    assert secret.get_object(Bucket="case-secrets", Key="k")["ContentLength"] == 5 * MIB, "a connection that is open goes on"
    client(TLS, verify=f"{DIR}/two.crt").head_bucket(Bucket="case-secrets")
    # What is no certificate leaves the one that is there.
    with open(f"{DIR}/tls.pem", "w") as file:
        file.write("no certificate")
    os.kill(pid(), signal.SIGHUP)
    time.sleep(1)
    assert serial() == two


def records(b):
    """Each request is one line of JSON with stock's fields; a log that was moved away is made anew by SIGHUP."""
    S3.put_object(Bucket=b, Key="k 1", Body=b"12345")
    S3.get_object(Bucket=b, Key="k 1")["Body"].read()
    asks("GET", f"/{b}/none", "x-id=GetObject")
    lines = [json.loads(line) for line in open(f"{DIR}/access.log")]
    its = [line for line in lines if line["bucket"] == b]
    fields = {"bucket", "time", "remote_addr", "user", "operation", "uri", "http_status", "error_code", "bytes_sent", "bytes_received", "total_time", "trans_id", "access_key_id"}
    assert all(fields <= set(line) for line in its), its
    seen = [(line["operation"], line["http_status"], line["error_code"], line["bytes_sent"], line["bytes_received"]) for line in its]
    assert ("put_obj", "200", "", 0, 5) in seen and ("get_obj", "200", "", 5, 0) in seen, seen
    assert [line for line in its if line["http_status"] == "404" and line["error_code"] == "NoSuchKey"], seen
    assert {line["user"] for line in its} == {"main"} and {line["access_key_id"] for line in its} == {ACCESS}
    assert SECRET not in open(f"{DIR}/access.log").read()
    os.rename(f"{DIR}/access.log", f"{DIR}/access.log.1")
    os.kill(pid(), signal.SIGHUP)
    end = time.time() + 10
    while not os.path.exists(f"{DIR}/access.log"):
        assert time.time() < end, "no new log"
        time.sleep(0.1)
    S3.head_bucket(Bucket=b)
    assert "stat_bucket" in open(f"{DIR}/access.log").read()


def health(_):
    """Answers without a key, and says nothing."""
    import http.client
    for method in "GET", "HEAD":
        line = http.client.HTTPConnection(*HOST)
        line.request(method, "/swift/healthcheck")
        answer = line.getresponse()
        assert answer.status == 200 and answer.read() == b"" and not answer.headers.get("x-amz-owner")
        line.close()


def rss_mib():
    with open(f"/proc/{pid()}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) / 1024


def slow_clients(b):
    """Clients that take or send little by little: what they hold is bounded in sum, and others are served meanwhile."""
    data = os.urandom(MIB) * 24
    S3.put_object(Bucket=b, Key="large", Body=data)
    before, lines = rss_mib(), []
    try:
        get = urllib.parse.urlsplit(S3.generate_presigned_url("get_object", Params={"Bucket": b, "Key": "large"}))
        for _ in range(100):
            line = socket.socket()
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            line.connect((HOST[0], int(HOST[1])))
            line.sendall(f"GET {get.path}?{get.query} HTTP/1.1\r\nHost: {get.netloc}\r\n\r\n".encode())
            lines.append(line)
        for n in range(60):
            put = urllib.parse.urlsplit(S3.generate_presigned_url("put_object", Params={"Bucket": b, "Key": f"slow {n}"}))
            line = socket.create_connection((HOST[0], int(HOST[1])))
            line.sendall(f"PUT {put.path}?{put.query} HTTP/1.1\r\nHost: {put.netloc}\r\nContent-Length: {8 * MIB}\r\n\r\n".encode())
            line.sendall(data[:7 * MIB])
            lines.append(line)
        time.sleep(2)
        held = rss_mib() - before
        print(f"160 slow clients hold {held:.0f} MiB of the gateway's memory")
        assert held < 900, f"{held} MiB"
        begin = time.time()
        S3.put_object(Bucket=b, Key="meanwhile", Body=data)
        assert S3.get_object(Bucket=b, Key="meanwhile")["Body"].read() == data
        S3.copy_object(Bucket=b, Key="copied", CopySource=f"{b}/meanwhile")
        assert len(S3.list_objects_v2(Bucket=b)["Contents"]) >= 3
        assert len(S3.delete_objects(Bucket=b, Delete={"Objects": [{"Key": "copied"}]})["Deleted"]) == 1
        assert time.time() - begin < 20
        # Those that went on slowly end well.
        for n in 0, 59:
            line = lines[100 + n]
            line.sendall(data[7 * MIB:8 * MIB])
            assert b"200 OK" in line.recv(100)
            assert S3.get_object(Bucket=b, Key=f"slow {n}")["Body"].read() == data[:8 * MIB]
        with lines[99].makefile("rb") as answer:
            while answer.readline() != b"\r\n":
                pass
            assert answer.read(24 * MIB) == data
    finally:
        for line in lines:
            line.close()
    for page in S3.get_paginator("list_objects_v2").paginate(Bucket=b):
        for found in page.get("Contents", []):
            S3.delete_object(Bucket=b, Key=found["Key"])


def unread_bodies(b):
    """A connection whose last body was not read is closed, and the answer says so: a client that waited for `100 Continue`
    sends none of it, and the next request on that connection would be taken for the body."""
    S3.put_object(Bucket=b, Key="k", Body=b"1")
    def ask(head, send=b""):
        with socket.create_connection((HOST[0], int(HOST[1])), 20) as line:
            line.sendall(head.encode() + b"\r\n" + send)
            answer = line.makefile("rb")
            status, headers = answer.readline().split()[1], {}
            while (field := answer.readline().strip()):
                name, value = field.split(b":", 1)
                headers[name.lower()] = value.strip()
            body = answer.read(int(headers.get(b"content-length", 0)))
            closes = headers.get(b"connection") == b"close"
            if closes:
                assert answer.read() == b"", "it is closed"
            return status, b"<Code>AccessDenied</Code>" in body, closes
    head = f"PUT /{b}/bad HTTP/1.1\r\nHost: {HOST[0]}\r\nContent-Length: 1\r\n"
    assert ask(head + "Expect: 100-continue\r\n") == (b"403", True, True)
    assert ask(head, b"x") == (b"403", True, True)
    assert ask(head.replace("PUT", "GET").replace(": 1", ": 0")) == (b"403", True, False)
    # One that was read stays.
    import http.client
    line = http.client.HTTPConnection(*HOST)
    url = urllib.parse.urlsplit(S3.generate_presigned_url("put_object", Params={"Bucket": b, "Key": "k"}))
    for n in range(3):
        line.request("PUT", f"{url.path}?{url.query}", body=b"x" * 100)
        answer = line.getresponse()
        assert (answer.status, answer.read(), answer.will_close) == (200, b"", False)
    line.close()


CASES = [unread_bodies, subresources, ownership, forms, secrets, records, health, slow_clients]


def main():
    chosen, failed = [c for c in CASES if not sys.argv[6:] or c.__name__ in sys.argv[6:]], []
    for case in chosen:
        bucket = f"case-{case.__name__.replace('_', '-')}"
        try:
            S3.create_bucket(Bucket=bucket)
            case(bucket)
            for page in S3.get_paginator("list_objects_v2").paginate(Bucket=bucket):
                for found in page.get("Contents", []):
                    S3.delete_object(Bucket=bucket, Key=found["Key"])
            S3.delete_bucket(Bucket=bucket)
        except Exception as error:  # shown, and the next case runs
            traceback.print_exc()
            failed.append(f"{case.__name__}: {error!r}")
    print(f"{len(chosen) - len(failed)} of {len(chosen)} of our own cases passed")
    for line in failed:
        print("FAILED", line)
    sys.exit(bool(failed))


main()
