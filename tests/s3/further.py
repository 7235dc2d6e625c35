"""Websites of buckets and objects that are appended to, by boto3 and plain HTTP, against any gateway that has `web.test` as the name of its websites.

further.py ENDPOINT [CASE..]: with OTHER=URL in the environment, a second gateway of the same zone, each case also has one
of them write what the other one shows.
"""

import concurrent.futures
import hashlib
import http.client
import json
import os
import sys
import traceback
import urllib.parse

import boto3
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.client import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

ENDPOINT, OTHER, STOCK = sys.argv[1], os.environ.get("OTHER"), bool(os.environ.get("IS_STOCK"))


def client(endpoint):
    return boto3.client(
        "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="KEYmain", aws_secret_access_key="secret/main",
        config=Config(retries={"max_attempts": 1}, s3={"addressing_style": "path"}))


def fails(code, call, **args):
    try:
        call(**args)
    except ClientError as error:
        got = error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"]
        assert code in got, f"{call.__name__}: wanted {code}, got {got}"
        return
    raise AssertionError(f"{call.__name__} should have failed with {code}")


def asks(endpoint, host, path, method="GET", headers={}):
    """Status, headers in lower case, body."""
    line = http.client.HTTPConnection(urllib.parse.urlsplit(endpoint).netloc)
    line.request(method, path, headers={"Host": host} | headers)
    answer = line.getresponse()
    text = answer.read()
    line.close()
    return answer.status, {k.lower(): v for k, v in answer.getheaders()}, text


RULES = [
    {"Condition": {"KeyPrefixEquals": "docs/"}, "Redirect": {"ReplaceKeyPrefixWith": "documents/"}},
    {"Condition": {"KeyPrefixEquals": "old"}, "Redirect": {"HostName": "new.example", "Protocol": "https", "HttpRedirectCode": "302"}},
    {"Condition": {"HttpErrorCodeReturnedEquals": "404", "KeyPrefixEquals": "gone/"}, "Redirect": {"ReplaceKeyWith": "why.html", "HttpRedirectCode": "307"}},
    {"Condition": {"HttpErrorCodeReturnedEquals": "403", "KeyPrefixEquals": "shut/"}, "Redirect": {"ReplaceKeyWith": "why.html"}},
]


def website(b, writer, reader):
    """What is set, pages, redirects by rules and by objects, errors; what may not be read is not shown."""
    s3, host = client(writer), f"{b}.web.test"
    def asked(path, *args, **headers):
        return asks(reader, host, path, *args, headers=headers)
    def to(path):
        status, headers, text = asked(path)
        assert text == b"", (path, text)
        return status, headers.get("location")
    fails("NoSuchWebsiteConfiguration", client(reader).get_bucket_website, Bucket=b)
    s3.delete_bucket_website(Bucket=b)
    status, headers, text = asked("/")
    assert status == 404 and b"Code: NoSuchWebsiteConfiguration" in text and headers["content-type"] == "text/html", (status, headers, text)
    index = {"IndexDocument": {"Suffix": "index.html"}}
    one = lambda condition, redirect: index | {"RoutingRules": [{"Condition": condition, "Redirect": redirect}]}
    for code, bad in [
        ("InvalidArgument", {"IndexDocument": {"Suffix": ""}}),
        ("InvalidArgument", {"ErrorDocument": {"Key": "e"}}),
        ("InvalidArgument", one({}, {"HttpRedirectCode": "200"})),
        ("InvalidArgument", one({"HttpErrorCodeReturnedEquals": "300"}, {"HostName": "h"})),
        ("InvalidArgument", one({}, {"ReplaceKeyWith": "a", "ReplaceKeyPrefixWith": "b"})),
        ("InvalidRequest", index | {"RoutingRules": [{"Redirect": {"HostName": "h"}}] * 51}),
    ]:
        fails(code, s3.put_bucket_website, Bucket=b, WebsiteConfiguration=bad)
    site = index | {"ErrorDocument": {"Key": "error.html"}, "RoutingRules": RULES}
    s3.put_bucket_website(Bucket=b, WebsiteConfiguration=site)
    shown = client(reader).get_bucket_website(Bucket=b)
    shown.pop("ResponseMetadata")
    assert shown == site, shown
    def put(key, data, acl="public-read", **args):
        s3.put_object(Bucket=b, Key=key, Body=data, ACL=acl, **args)
    put("index.html", b"<p>index</p>", ContentType="text/html")
    put("error.html", b"<p>error</p>", ContentType="text/html")
    put("page.html", b"page")
    put("sub/index.html", b"sub index")
    put("both", b"no directory")
    put("both/index.html", b"a directory")
    put("secret.html", b"secret", acl="private")
    put("shut/x", b"secret", acl="private")
    put("moved", b"m", WebsiteRedirectLocation="/page.html")
    put("away", b"m", WebsiteRedirectLocation="https://other.example/x")
    put("hidden", b"m", acl="private", WebsiteRedirectLocation="/page.html")
    for path, data in [("/", b"<p>index</p>"), ("/?acl", b"<p>index</p>"), ("/?prefix=x", b"<p>index</p>"), ("/page.html", b"page"), ("/page.html?acl", b"page"),
                       ("/sub", b"sub index"), ("/sub/", b"sub index"), ("/both", b"no directory"), ("/both/", b"a directory")]:
        status, headers, text = asked(path)
        assert (status, text) == (200, data), (path, status, text)
    assert asked("/")[1]["content-type"] == "text/html"
    assert asked("/page.html", Range="bytes=1-2")[::2] == (206, b"ag")
    status, headers, text = asked("/", "HEAD")
    assert (status, headers["content-length"], text) == (200, "12", b"")
    # By the site's name alone, as by a path.
    assert asks(reader, "web.test", f"/{b}/page.html")[::2] == (200, b"page")
    assert to("/docs/a.html") == (301, f"http://{host}/documents/a.html")
    assert to("/old") == (302, "https://new.example/old") and to("/old/x") == (302, "https://new.example/old/x")
    assert to("/shut/x") == (301, f"http://{host}/why.html")
    assert to("/moved") == (301, "/page.html") and to("/away") == (301, "https://other.example/x")
    # Who may not list the bucket does not learn what is missing.
    for path in "/none", "/none/", "/secret.html", "/hidden", "/gone/x", "/page.html/", "/%C3%A4":
        status, headers, text = asked(path)
        assert (status, text, headers["content-type"]) == (403, b"<p>error</p>", "text/html"), (path, status, text)
    s3.put_bucket_acl(Bucket=b, ACL="public-read")
    assert asked("/none")[::2] == (404, b"<p>error</p>") and to("/gone/x") == (307, f"http://{host}/why.html")
    # The error document is no way around its own list, and a policy counts for it as for a page.
    s3.put_object_acl(Bucket=b, Key="error.html", ACL="private")
    status, headers, text = asked("/none")
    assert status == 404 and b"Code: NoSuchKey" in text and b"BucketName: " + b.encode() in text, text
    s3.put_object_acl(Bucket=b, Key="error.html", ACL="public-read")
    s3.put_bucket_policy(Bucket=b, Policy=json.dumps({"Statement": {
        "Effect": "Deny", "Principal": "*", "Action": "s3:GetObject", "Resource": f"arn:aws:s3:::{b}/*", "Condition": {"StringLike": {"aws:Referer": "http://bad/*"}}}}))
    for path in "/page.html", "/none":
        status, headers, text = asked(path, Referer="http://bad/page")
        # Stock says of a missing key in a bucket that all may list that it is missing, policy or not.
        assert status in (403, 404 if path == "/none" else 403) and b"<li>Code: " in text, (path, status, text)
    assert asked("/page.html", Referer="http://good/page")[0] == 200
    s3.delete_bucket_policy(Bucket=b)
    # A signed request is its sender's, and a wrong signature nobody's.
    url = boto3.client("s3", endpoint_url="http://web.test", region_name="us-east-1", aws_access_key_id="KEYmain", aws_secret_access_key="secret/main",
                       config=Config(signature_version="s3v4", s3={"addressing_style": "virtual"}))
    url = urllib.parse.urlsplit(url.generate_presigned_url("get_object", Params={"Bucket": b, "Key": "secret.html"}))
    assert url.netloc == host, url
    assert asked(f"{url.path}?{url.query}")[::2] == (200, b"secret")
    assert asked(f"{url.path}?{url.query[:-1]}x")[0] == 403
    for method in "PUT", "POST", "DELETE", "OPTIONS":
        status, headers, text = asked("/page.html", method)
        assert status == 405 and b"Code: MethodNotAllowed" in text, (method, status, text)
    assert s3.get_object(Bucket=b, Key="page.html")["Body"].read() == b"page"
    status, _, text = asks(reader, "no-such-bucket.web.test", "/")
    assert status == 404 and b"Code: NoSuchBucket" in text
    assert asks(reader, "web.test", "/")[0] == 404
    for all_to, want in [({"HostName": "all.example", "Protocol": "https"}, "https"), ({"HostName": "all.example"}, "http")]:
        s3.put_bucket_website(Bucket=b, WebsiteConfiguration={"RedirectAllRequestsTo": all_to})
        assert client(reader).get_bucket_website(Bucket=b)["RedirectAllRequestsTo"] == all_to
        assert to("/a/b") == (301, f"{want}://all.example/a/b") and to("/") == (301, f"{want}://all.example/")
    s3.delete_bucket_website(Bucket=b)
    assert asked("/")[0] == 404
    fails("NoSuchWebsiteConfiguration", client(reader).get_bucket_website, Bucket=b)


def signed(endpoint, method, path, body=b"", headers={}):
    """As `asks`, of the user `main`."""
    headers = {"x-amz-content-sha256": hashlib.sha256(body).hexdigest()} | headers
    request = AWSRequest(method, f"{endpoint}{path}", data=body, headers=headers)
    SigV4Auth(Credentials("KEYmain", "secret/main"), "s3", "us-east-1").add_auth(request)
    line = http.client.HTTPConnection(urllib.parse.urlsplit(endpoint).netloc)
    line.request(method, path, body=body, headers=dict(request.headers))
    answer = line.getresponse()
    text = answer.read()
    line.close()
    return answer.status, {k.lower(): v for k, v in answer.getheaders()}, text


def append(b, writer, reader):
    """What was appended, in turn by both gateways, is whole, and shown alike; what does not fit changes nothing."""
    s3, gateways = client(writer), [writer, reader]
    def put(key, position, data, n=0, **headers):
        status, answer, text = signed(gateways[n % 2], "PUT", f"/{b}/{key}?append&position={position}", data, headers)
        assert status != 200 or answer["etag"].strip('"') == hashlib.md5(data).hexdigest(), answer
        code = text.split(b"<Code>")[1].split(b"<")[0].decode() if status != 200 else ""
        return status, code, answer.get("x-rgw-next-append-position")
    def shown(key):
        there = client(reader)
        found = there.get_object(Bucket=b, Key=key)
        headers = found["ResponseMetadata"]["HTTPHeaders"]
        entry = [e for e in there.list_objects_v2(Bucket=b)["Contents"] if e["Key"] == key][0]
        data = found["Body"].read()
        assert (entry["Size"], entry["ETag"]) == (len(data), found["ETag"]) and headers["x-rgw-object-type"] == "Appendable", entry
        assert headers["x-rgw-next-append-position"] == str(len(data))
        return data, found["ETag"].strip('"'), found
    for n, (pieces, etag) in enumerate([
        ([b"hello ", b"world", b"!", b""], "f1f8164b7b25e9809d046d2aa385fcc5-4"),
        ([b"abc", b"abc", b"abc"], "af41227b902d927acad557a27eef82eb-3"),
        ([b"abc"], "900150983cd24fb0d6963f7d28e17f72"),
        ([b"", b"x"], "d51f9af2410063de2829bf49ea3b18d8-2"),
        ([b"a" * (9 << 20), b"b" * (5 << 20), b"c"], "049c6286beaf2fd11de9fb8fde0129df-3"),
        ([b"1" * n for n in range(1, 30)], None),
    ]):
        whole = b""
        if STOCK and b"" in pieces:
            continue  # Stock leaves the RADOS object of an empty part behind.
        for at, piece in enumerate(pieces):
            key = f"k{n}"
            assert put(key, len(whole), piece, at if piece else gateways.index(ENDPOINT)) == (200, "", str(len(whole) + len(piece)))
            whole += piece
        data, found, _ = shown(key)
        assert data == whole and (etag is None or found == etag), (key, len(data), len(whole), found)
        assert client(reader).get_object(Bucket=b, Key=key, Range="bytes=0-0")["Body"].read() == whole[:1]
    big, _, _ = shown("k4")
    assert client(reader).get_object(Bucket=b, Key="k4", Range=f"bytes={(9 << 20) - 1}-{(14 << 20)}")["Body"].read() == b"a" + b"b" * (5 << 20) + b"c"
    # The wrong place, and no place.
    k, size = ("k1", 9) if STOCK else ("k0", 12)
    for position in 0, 5, 99:
        assert put(k, position, b"x") == (409, "PositionNotEqualToLength", str(size)), position
    assert put("new", 5, b"x") == (409, "PositionNotEqualToLength", "0")
    for position in "-1", "x", "":
        assert put(k, position, b"x")[:2] == (400, "InvalidArgument"), position
    s3.put_object(Bucket=b, Key="plain", Body=b"12345")
    for position in 0, 5:
        assert put("plain", position, b"x")[:2] == (409, "ObjectNotAppendable")
    assert STOCK or shown("k0")[0] == b"hello world!" and s3.get_object(Bucket=b, Key="plain")["Body"].read() == b"12345"
    # The last append's headers are the object's.
    assert put("m", 0, b"one", **{"x-amz-meta-a": "1", "content-type": "text/x"})[0] == 200
    assert put("m", 3, b"two", **{"x-amz-meta-b": "2", "content-type": "text/y"})[0] == 200
    found = shown("m")[2]
    assert (found["Metadata"], found["ContentType"]) == ({"b": "2"}, "text/y")
    # A copy grows apart from what it was made of.
    s3.copy_object(Bucket=b, Key="copied", CopySource=f"{b}/k4")
    assert shown("copied")[0] == big
    if not STOCK and writer == reader:
        for key, piece in ("copied", b"copy" * 1000000), ("k4", b"source" * 1000000):
            assert put(key, len(big), piece)[0] == 200
        assert shown("copied")[0] == big + b"copy" * 1000000 and shown("k4")[0] == big + b"source" * 1000000
    # Put whole, it is appended to no more.
    s3.put_object(Bucket=b, Key="m", Body=b"whole")
    assert put("m", 5, b"x")[:2] == (409, "ObjectNotAppendable")
    if not STOCK and writer == reader:
        many(b, writer)
        at = signed(writer, "PUT", f"/{b}/secret?append&position=0", b"x", {"x-amz-server-side-encryption": "aws:kms", "x-amz-server-side-encryption-aws-kms-key-id": "testkey-1"})
        assert at[0] == 501, at
    s3.put_bucket_versioning(Bucket=b, VersioningConfiguration={"Status": "Enabled"})
    assert put(k, size, b"x")[:2] == (409, "InvalidBucketState") and put("v", 0, b"x")[:2] == (409, "InvalidBucketState")


def many(b, endpoint):
    """Of many at once one wins each place: nothing is lost, nothing is there twice."""
    def run(n):
        at = 0
        for turn in range(10):
            piece = f"{n}.{turn};".encode()
            while True:
                status, answer, text = signed(endpoint, "PUT", f"/{b}/many?append&position={at}", piece)
                if status == 200:
                    break
                assert status == 409, text
                at = int(answer.get("x-rgw-next-append-position", at))
            at = int(answer["x-rgw-next-append-position"])
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        list(pool.map(run, range(6)))
    data = client(endpoint).get_object(Bucket=b, Key="many")["Body"].read().decode().strip(";").split(";")
    assert len(data) == 60 and sorted(data) == sorted(f"{n}.{turn}" for n in range(6) for turn in range(10)), data
    for n in range(6):
        turns = [int(piece.split(".")[1]) for piece in data if piece.startswith(f"{n}.")]
        assert turns == sorted(turns), data


CASES = [website, append]


def main():
    chosen, failed, runs = [c for c in CASES if not sys.argv[2:] or c.__name__ in sys.argv[2:]], [], 0
    pairs = [(ENDPOINT, ENDPOINT)] + ([(ENDPOINT, OTHER), (OTHER, ENDPOINT)] if OTHER else [])
    for case in chosen:
        for n, (writer, reader) in enumerate(pairs):
            bucket, s3 = f"case-{case.__name__}-{n}", client(writer)
            runs += 1
            try:
                s3.create_bucket(Bucket=bucket)
                case(bucket, writer, reader)
                for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
                    for found in page.get("Versions", []) + page.get("DeleteMarkers", []):
                        s3.delete_object(Bucket=bucket, Key=found["Key"], VersionId=found["VersionId"])
                s3.delete_bucket(Bucket=bucket)
            except Exception as error:  # shown, and the next case runs
                traceback.print_exc()
                failed.append(f"{case.__name__} {writer} {reader}: {error!r}")
    print(f"{runs - len(failed)} of {runs} runs of further cases passed")
    for line in failed:
        print("FAILED", line)
    sys.exit(bool(failed))


main()
