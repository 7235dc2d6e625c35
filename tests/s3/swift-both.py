"""Two gateways on one cluster, by Swift and S3: what one writes by one API, the other reads by either.

swift-both.py OURS STOCK ACCESS SECRET: users as of `swift.py`; leaves nothing behind.
"""

import hashlib
import http.client
import json
import sys
import time
import urllib.parse

import boto3
from botocore.client import Config

OURS, STOCK, ACCESS, SECRET = sys.argv[1:5]
V1 = "/swift/v1"


class Swift:
    def __init__(self, endpoint, uid="main"):
        self.host = urllib.parse.urlsplit(endpoint).netloc
        login = self.ask("GET", "/auth/v1.0", {"X-Auth-User": f"{uid}:swift", "X-Auth-Key": f"swift/{uid}/swift"})
        self.token = {"X-Auth-Token": login[1]["X-Auth-Token"]}

    def ask(self, method, path, headers, body=None):
        line = http.client.HTTPConnection(self.host)
        line.request(method, path, body=body, headers=headers)
        answer = line.getresponse()
        text = answer.read()
        line.close()
        return answer.status, answer.headers, text

    def __call__(self, method, path, headers=None, body=None, want=None):
        status, got, text = self.ask(method, V1 + path, {**self.token, **(headers or {})}, body)
        assert want is None or status == want, f"{self.host} {method} {path}: wanted {want}, got {status} {text[:200]}"
        return got, text


def s3(endpoint):
    return boto3.client(
        "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id=ACCESS, aws_secret_access_key=SECRET,
        config=Config(retries={"max_attempts": 1}, s3={"addressing_style": "path"}))


def shown(headers, more=()):
    names = ("ETag", "Content-Type", "Content-Length", "Content-Encoding", "X-Object-Meta-A", "X-Delete-At", "X-Object-Manifest", "X-Static-Large-Object", *more)
    return [headers[name] for name in names]


def main():
    pairs = ("ours", (Swift(OURS), s3(OURS)), (Swift(STOCK), s3(STOCK))), ("stock", (Swift(STOCK), s3(STOCK)), (Swift(OURS), s3(OURS)))
    for name, (writer, by_s3), (reader, other_s3) in pairs:
        c, seg = f"swift-both-{name}", f"swift-both-{name}-seg"
        lists = {"X-Container-Read": ".r:*,.rlistings,other", "X-Container-Write": "other", "X-Container-Meta-Color": "red", "X-Container-Meta-Quota-Bytes": "99999999"}
        writer("PUT", f"/{c}", lists, b"", want=201)
        writer("PUT", f"/{seg}", None, b"", want=201)
        for at in writer, reader:
            head, _ = at("HEAD", f"/{c}", want=204)
            for header, value in lists.items():
                assert head[header] == value, (at.host, header, head[header])
        large = bytes(range(256)) * (9 << 12)
        at = str(int(time.time()) + 500)
        kept = {"Content-Type": "a/b", "Content-Encoding": "gzip", "X-Object-Meta-A": "1", "X-Delete-At": at}
        writer("PUT", f"/{c}/small", kept, b"hello", want=201)
        writer("PUT", f"/{c}/large", None, large, want=201)
        for n, part in enumerate((b"000", large, b"22222")):
            writer("PUT", f"/{seg}/p/{n}", None, part, want=201)
        whole = b"000" + large + b"22222"
        writer("PUT", f"/{c}/dynamic", {"X-Object-Manifest": f"{seg}/p/", "Content-Type": "x/y"}, b"", want=201)
        manifest = [{"path": f"/{seg}/p/{n}", "etag": hashlib.md5(p).hexdigest(), "size_bytes": len(p)} for n, p in enumerate((b"000", large, b"22222"))]
        writer("PUT", f"/{c}/static?multipart-manifest=put", {"Content-Type": "x/y"}, json.dumps(manifest).encode(), want=201)
        for key, body in ("small", b"hello"), ("large", large), ("dynamic", whole), ("static", whole):
            mine, text = writer("GET", f"/{c}/{key}", want=200)
            theirs, again = reader("GET", f"/{c}/{key}", want=200)
            assert text == body and again == body, (name, key)
            assert shown(mine) == shown(theirs), (name, key, shown(mine), shown(theirs))
            ranged, cut = reader("GET", f"/{c}/{key}", {"Range": "bytes=2-4"}, want=206)
            assert cut == body[2:5], (name, key)
        listed = [json.loads(at("GET", f"/{c}?format=json", want=200)[1]) for at in (writer, reader)]
        assert listed[0] == listed[1], listed
        # The same by S3: metadata, lists of Swift that hold there too, and what S3 wrote by Swift.
        got = other_s3.get_object(Bucket=c, Key="small")
        assert got["Body"].read() == b"hello" and got["Metadata"] == {"a": "1"} and got["ContentType"] == "a/b", got
        for endpoint in OURS, STOCK:
            anon = http.client.HTTPConnection(urllib.parse.urlsplit(endpoint).netloc)
            anon.request("GET", f"/{c}/small")
            got = anon.getresponse()
            assert got.status == 200, (endpoint, got.status, got.read())
            anon.close()
        by_s3.put_object(Bucket=c, Key="by-s3", Body=b"s3", Metadata={"a": "2"}, ContentType="c/d")
        head, text = reader("GET", f"/{c}/by-s3", want=200)
        assert text == b"s3" and (head["X-Object-Meta-A"], head["Content-Type"]) == ("2", "c/d"), head
        # Each changes, copies and removes what the other wrote.
        reader("POST", f"/{c}/small", {"X-Object-Meta-B": "2", "X-Remove-Delete-At": "x"}, b"", want=202)
        head, _ = writer("HEAD", f"/{c}/small", want=200)
        assert (head["X-Object-Meta-A"], head["X-Object-Meta-B"], head["X-Delete-At"]) == (None, "2", None), head
        reader("COPY", f"/{c}/large", {"Destination": f"{c}/copy"}, want=201)
        assert writer("GET", f"/{c}/copy", want=200)[1] == large
        reader("POST", f"/{c}", {"X-Container-Read": "", "X-Remove-Container-Meta-Color": "x"}, b"", want=204)
        head, _ = writer("HEAD", f"/{c}", want=204)
        assert (head["X-Container-Read"], head["X-Container-Write"], head["X-Container-Meta-Color"]) == (None, "other", None), head
        reader("DELETE", f"/{c}/static?multipart-manifest=delete", want=200)
        assert writer("GET", f"/{seg}")[1] == b"", "the segments are gone"
        for key in "small", "large", "dynamic", "copy", "by-s3":
            reader("DELETE", f"/{c}/{key}", want=204)
        for container in c, seg:
            reader("DELETE", f"/{container}", want=204)
    # A key of the account that one sets, the other signs by; containers of one are listed by the other.
    ours, stock = Swift(OURS), Swift(STOCK)
    for writer, reader in (ours, stock), (stock, ours):
        writer("POST", "", {"X-Account-Meta-Temp-URL-Key": writer.host, "X-Account-Meta-Color": "blue"}, b"", want=204)
        head, _ = reader("HEAD", "", want=204)
        assert (head["X-Account-Meta-Temp-Url-Key"], head["X-Account-Meta-Color"]) == (writer.host, "blue"), head
        reader("POST", "", {"X-Remove-Account-Meta-Temp-URL-Key": "x", "X-Remove-Account-Meta-Color": "x"}, b"", want=204)
        assert writer("HEAD", "")[0]["X-Account-Meta-Temp-Url-Key"] is None
    sums = [{k: v for k, v in at("HEAD", "", want=204)[0].items() if k.lower().startswith("x-account")} for at in (ours, stock)]
    assert {k.lower(): v for k, v in sums[0].items()} == {k.lower(): v for k, v in sums[1].items()}, sums
    print("both ways by Swift")


main()
