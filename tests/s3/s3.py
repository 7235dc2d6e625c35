"""The operations of S3 that applications need first, by boto3, against any gateway.

s3.py ENDPOINT ACCESS SECRET ACCESS2 SECRET2 [CASE..]: runs cases, each in buckets of its own; leaves the bucket
`kept` behind. A case prints its name only when it fails.
"""

import base64
import hashlib
import http.client as http_client
import json
import os
import subprocess
import sys
import time
import traceback
import urllib.parse
import zlib

import boto3
from botocore import UNSIGNED
from botocore.client import Config
from botocore.exceptions import ClientError

ENDPOINT, ACCESS, SECRET, ACCESS2, SECRET2 = sys.argv[1:6]
MIB = 1 << 20


def client(access=ACCESS, secret=SECRET, **config):
    return boto3.client(
        "s3", endpoint_url=ENDPOINT, region_name="us-east-1", aws_access_key_id=access, aws_secret_access_key=secret,
        config=Config(retries={"max_attempts": 1}, s3={"addressing_style": "path"}, **config))


S3 = client()
OTHER = client(ACCESS2, SECRET2)
ANON = client(signature_version=UNSIGNED)


def fails(code, call, /, **args):
    """Calls and expects an error code (text) or status (number)."""
    try:
        call(**args)
    except ClientError as error:
        got = error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"]
        assert code in got, f"{call.__name__}: wanted {code}, got {got}"
        return error
    raise AssertionError(f"{call.__name__} should have failed with {code}")


def body(bucket, key, **args):
    return S3.get_object(Bucket=bucket, Key=key, **args)["Body"].read()


def clear(bucket):
    """Deletes all versions, then the bucket."""
    for page in S3.get_paginator("list_object_versions").paginate(Bucket=bucket):
        for entry in page.get("Versions", []) + page.get("DeleteMarkers", []):
            S3.delete_object(Bucket=bucket, Key=entry["Key"], VersionId=entry["VersionId"])
    S3.delete_bucket(Bucket=bucket)


def http(method, url, data=None, headers=None):
    """A request with no headers of a library's own: an unsigned Content-Type is refused."""
    parts = urllib.parse.urlsplit(url)
    line = http_client.HTTPConnection(parts.netloc)
    line.request(method, parts.path + ("?" + parts.query if parts.query else ""), body=data, headers=headers or {})
    answer = line.getresponse()
    text = answer.read()
    line.close()
    return answer.status, text, answer.headers


def admin(*words):
    """radosgw-admin, as operators call it."""
    subprocess.run(["radosgw-admin", *words], check=True, stdout=subprocess.DEVNULL)


def eventually(is_so, seconds=30):
    end = time.time() + seconds
    while not is_so():
        assert time.time() < end, "it does not come true"
        time.sleep(0.5)


def buckets(b):
    assert b in [x["Name"] for x in S3.list_buckets()["Buckets"]]
    S3.create_bucket(Bucket=b)  # one's own again
    S3.head_bucket(Bucket=b)
    fails("BucketAlreadyExists", OTHER.create_bucket, Bucket=b)
    fails(403, OTHER.head_bucket, Bucket=b)
    fails(404, S3.head_bucket, Bucket=b + "-none")
    fails("NoSuchBucket", S3.list_objects_v2, Bucket=b + "-none")
    fails("InvalidBucketName", S3.create_bucket, Bucket="Up_per")
    assert http("GET", f"{ENDPOINT}/swift/healthcheck")[0] == 200
    assert S3.get_bucket_location(Bucket=b)["ResponseMetadata"]["HTTPStatusCode"] == 200
    S3.put_object(Bucket=b, Key="k", Body=b"x")
    fails("BucketNotEmpty", S3.delete_bucket, Bucket=b)


def objects(b):
    etag = hashlib.md5(b"hello world").hexdigest()
    put = S3.put_object(Bucket=b, Key="a", Body=b"hello world", ContentType="text/x", CacheControl="no-cache",
                        ContentDisposition="inline", ContentEncoding="gzip", ContentLanguage="de", Metadata={"One": "1", "two": "zwei"})
    assert put["ETag"] == f'"{etag}"'
    got = S3.get_object(Bucket=b, Key="a")
    assert got["Body"].read() == b"hello world"
    head = S3.head_object(Bucket=b, Key="a")
    for answer in got, head:
        assert answer["ContentType"] == "text/x" and answer["CacheControl"] == "no-cache"
        assert answer["ContentEncoding"] == "gzip" and answer["ContentLanguage"] == "de"
        assert answer["Metadata"] == {"one": "1", "two": "zwei"} and answer["ContentLength"] == 11
    S3.put_object(Bucket=b, Key="empty", Body=b"")
    assert body(b, "empty") == b""
    S3.put_object(Bucket=b, Key="a", Body=b"second")
    assert body(b, "a") == b"second"
    large = os.urandom(11 * MIB + 5)
    S3.put_object(Bucket=b, Key="large", Body=large)
    assert body(b, "large") == large
    S3.put_object(Bucket=b, Key="large", Body=large[:5 * MIB])
    assert body(b, "large") == large[:5 * MIB]
    S3.delete_object(Bucket=b, Key="large")
    fails("NoSuchKey", S3.get_object, Bucket=b, Key="large")
    S3.delete_object(Bucket=b, Key="large")
    for key in ["ä/ö ü", "_under", "__under", "a+b", "a%20b", "q?x=1&y", "x//y", "sp ace", "'\"<>&", "日本", "z" * 1024]:
        S3.put_object(Bucket=b, Key=key, Body=key.encode())
        assert body(b, key) == key.encode(), key
        assert key in [o["Key"] for o in S3.list_objects_v2(Bucket=b, Prefix=key)["Contents"]], key
    fails("InvalidObjectName", S3.put_object, Bucket=b, Key="z" * 1025, Body=b"")


def ranges(b):
    data = os.urandom(9 * MIB)
    S3.put_object(Bucket=b, Key="k", Body=data)
    for spec, want in [("bytes=0-0", data[:1]), ("bytes=5-9", data[5:10]), ("bytes=-7", data[-7:]), ("bytes=9000000-", data[9000000:]),
                       (f"bytes={4 * MIB - 3}-{4 * MIB + 2}", data[4 * MIB - 3:4 * MIB + 3]), ("bytes=10-99999999", data[10:])]:
        got = S3.get_object(Bucket=b, Key="k", Range=spec)
        assert got["Body"].read() == want and got["ResponseMetadata"]["HTTPStatusCode"] == 206, spec
    assert S3.get_object(Bucket=b, Key="k", Range="bytes=5-9")["ContentRange"] == f"bytes 5-9/{len(data)}"
    fails("InvalidRange", S3.get_object, Bucket=b, Key="k", Range="bytes=99999999-")


def conditions(b):
    etag = S3.put_object(Bucket=b, Key="k", Body=b"1")["ETag"]
    assert body(b, "k", IfMatch=etag) == b"1"
    fails(412, S3.get_object, Bucket=b, Key="k", IfMatch='"0000"')
    fails(304, S3.get_object, Bucket=b, Key="k", IfNoneMatch=etag)
    fails(304, S3.head_object, Bucket=b, Key="k", IfModifiedSince=time.time() + 5)
    fails(412, S3.put_object, Bucket=b, Key="k", Body=b"2", IfNoneMatch="*")
    S3.put_object(Bucket=b, Key="new", Body=b"2", IfNoneMatch="*")
    S3.put_object(Bucket=b, Key="k", Body=b"2", IfMatch=etag)
    fails(412, S3.put_object, Bucket=b, Key="k", Body=b"3", IfMatch=etag)
    fails(404, S3.put_object, Bucket=b, Key="none", Body=b"3", IfMatch=etag)


def listing(b):
    keys = sorted([f"d{d}/{i:02}" for d in range(4) for i in range(12)] + [f"r{i}" for i in range(7)])
    for key in keys:
        S3.put_object(Bucket=b, Key=key, Body=b"")
    for size in 1, 7, 1000:
        for name in "list_objects", "list_objects_v2":
            pages = S3.get_paginator(name).paginate(Bucket=b, PaginationConfig={"PageSize": size})
            assert [o["Key"] for p in pages for o in p.get("Contents", [])] == keys, (name, size)
            pages = list(S3.get_paginator(name).paginate(Bucket=b, Delimiter="/", PaginationConfig={"PageSize": size}))
            assert [o["Key"] for p in pages for o in p.get("Contents", [])] == keys[-7:], (name, size)
            assert [o["Prefix"] for p in pages for o in p.get("CommonPrefixes", [])] == [f"d{d}/" for d in range(4)], (name, size)
    got = S3.list_objects_v2(Bucket=b, Prefix="d2/", StartAfter="d2/05", FetchOwner=True)
    assert [o["Key"] for o in got["Contents"]] == keys[30:36] and got["Contents"][0]["Owner"]["ID"] == "main"
    assert S3.list_objects_v2(Bucket=b, MaxKeys=0)["KeyCount"] == 0
    got = S3.delete_objects(Bucket=b, Delete={"Objects": [{"Key": k} for k in keys + ["none"]]})
    assert len(got["Deleted"]) == len(keys) + 1 and not got.get("Errors")
    assert "Contents" not in S3.list_objects_v2(Bucket=b)


def multipart(b):
    parts = [os.urandom(5 * MIB), os.urandom(5 * MIB + 1), b"end"]
    upload = S3.create_multipart_upload(Bucket=b, Key="m", ContentType="x/y", Metadata={"a": "b"})["UploadId"]
    S3.upload_part(Bucket=b, Key="m", UploadId=upload, PartNumber=2, Body=b"replaced")
    done = [{"PartNumber": n, "ETag": S3.upload_part(Bucket=b, Key="m", UploadId=upload, PartNumber=n, Body=p)["ETag"]}
            for n, p in enumerate(parts, 1)]
    listed = S3.list_parts(Bucket=b, Key="m", UploadId=upload)["Parts"]
    assert [(p["PartNumber"], p["Size"]) for p in listed] == [(n, len(p)) for n, p in enumerate(parts, 1)]
    assert [u["Key"] for u in S3.list_multipart_uploads(Bucket=b)["Uploads"]] == ["m"]
    fails("NoSuchKey", S3.get_object, Bucket=b, Key="m")
    wrong = [{"PartNumber": 1, "ETag": "0" * 32}]
    fails("InvalidPart", S3.complete_multipart_upload, Bucket=b, Key="m", UploadId=upload, MultipartUpload={"Parts": wrong})
    etag = S3.complete_multipart_upload(Bucket=b, Key="m", UploadId=upload, MultipartUpload={"Parts": done})["ETag"]
    sums = hashlib.md5(b"".join(hashlib.md5(p).digest() for p in parts)).hexdigest()
    assert etag == f'"{sums}-3"'
    assert body(b, "m") == b"".join(parts)
    assert body(b, "m", Range="bytes=5242878-5242883") == b"".join(parts)[5242878:5242884]
    assert body(b, "m", PartNumber=2) == parts[1]
    head = S3.head_object(Bucket=b, Key="m")
    assert head["ContentType"] == "x/y" and head["Metadata"] == {"a": "b"}
    S3.complete_multipart_upload(Bucket=b, Key="m", UploadId=upload, MultipartUpload={"Parts": done})  # again
    copied = S3.create_multipart_upload(Bucket=b, Key="c")["UploadId"]
    one = S3.upload_part_copy(Bucket=b, Key="c", UploadId=copied, PartNumber=1, CopySource={"Bucket": b, "Key": "m"},
                              CopySourceRange="bytes=100-200")["CopyPartResult"]["ETag"]
    S3.complete_multipart_upload(Bucket=b, Key="c", UploadId=copied, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": one}]})
    assert body(b, "c") == b"".join(parts)[100:201]
    gone = S3.create_multipart_upload(Bucket=b, Key="m2")["UploadId"]
    S3.upload_part(Bucket=b, Key="m2", UploadId=gone, PartNumber=1, Body=b"x" * MIB)
    S3.abort_multipart_upload(Bucket=b, Key="m2", UploadId=gone)
    fails("NoSuchUpload", S3.abort_multipart_upload, Bucket=b, Key="m2", UploadId=gone)
    assert "Uploads" not in S3.list_multipart_uploads(Bucket=b)


def copies(b):
    data = os.urandom(6 * MIB)
    S3.put_object(Bucket=b, Key="from ä", Body=data, Metadata={"a": "1"})
    S3.copy_object(Bucket=b, Key="to", CopySource={"Bucket": b, "Key": "from ä"})
    assert body(b, "to") == data and S3.head_object(Bucket=b, Key="to")["Metadata"] == {"a": "1"}
    S3.copy_object(Bucket=b, Key="to", CopySource={"Bucket": b, "Key": "to"}, MetadataDirective="REPLACE", Metadata={"b": "2"})
    assert S3.head_object(Bucket=b, Key="to")["Metadata"] == {"b": "2"}
    S3.delete_object(Bucket=b, Key="from ä")
    assert body(b, "to") == data
    fails("InvalidRequest", S3.copy_object, Bucket=b, Key="to", CopySource={"Bucket": b, "Key": "to"})
    fails("NoSuchKey", S3.copy_object, Bucket=b, Key="x", CopySource={"Bucket": b, "Key": "none"})
    fails("AccessDenied", OTHER.copy_object, Bucket=b, Key="x", CopySource={"Bucket": b, "Key": "to"})


def versions(b):
    S3.put_object(Bucket=b, Key="k", Body=b"null")
    S3.put_bucket_versioning(Bucket=b, VersioningConfiguration={"Status": "Enabled"})
    assert S3.get_bucket_versioning(Bucket=b)["Status"] == "Enabled"
    one = S3.put_object(Bucket=b, Key="k", Body=b"1")["VersionId"]
    two = S3.put_object(Bucket=b, Key="k", Body=b"2")["VersionId"]
    assert body(b, "k") == b"2" and body(b, "k", VersionId=one) == b"1" and body(b, "k", VersionId="null") == b"null"
    marker = S3.delete_object(Bucket=b, Key="k")
    assert marker["DeleteMarker"]
    fails("NoSuchKey", S3.get_object, Bucket=b, Key="k")
    listed = S3.list_object_versions(Bucket=b)
    assert [v["VersionId"] for v in listed["Versions"]] == [two, one, "null"]
    assert [m["IsLatest"] for m in listed["DeleteMarkers"]] == [True]
    S3.delete_object(Bucket=b, Key="k", VersionId=marker["VersionId"])
    assert body(b, "k") == b"2"
    S3.delete_object(Bucket=b, Key="k", VersionId=two)
    assert body(b, "k") == b"1"
    S3.put_bucket_versioning(Bucket=b, VersioningConfiguration={"Status": "Suspended"})
    S3.put_object(Bucket=b, Key="k", Body=b"null again")
    assert body(b, "k") == b"null again" and body(b, "k", VersionId=one) == b"1"


def checksums(b):
    crc = base64.b64encode(zlib.crc32(b"hello").to_bytes(4, "big")).decode()
    S3.put_object(Bucket=b, Key="k", Body=b"hello", ChecksumAlgorithm="CRC32")
    assert S3.head_object(Bucket=b, Key="k", ChecksumMode="ENABLED")["ChecksumCRC32"] == crc
    for algorithm in "SHA1", "SHA256":
        S3.put_object(Bucket=b, Key=algorithm, Body=b"hello", ChecksumAlgorithm=algorithm)
        assert S3.get_object(Bucket=b, Key=algorithm, ChecksumMode="ENABLED")[f"Checksum{algorithm}"]
    fails("BadDigest", S3.put_object, Bucket=b, Key="bad", Body=b"hello", ChecksumAlgorithm="CRC32", ChecksumCRC32="AAAAAA==")
    fails("BadDigest", S3.put_object, Bucket=b, Key="bad", Body=b"hello", ContentMD5=base64.b64encode(bytes(16)).decode())
    fails("NoSuchKey", S3.get_object, Bucket=b, Key="bad")
    got = S3.get_object_attributes(Bucket=b, Key="SHA256", ObjectAttributes=["ETag", "Checksum", "ObjectSize"])
    assert got["ObjectSize"] == 5


def tagging(b):
    tags = [{"Key": "a", "Value": "1"}, {"Key": "b", "Value": "ä"}]
    S3.put_object(Bucket=b, Key="k", Body=b"", Tagging="x=y")
    assert S3.get_object_tagging(Bucket=b, Key="k")["TagSet"] == [{"Key": "x", "Value": "y"}]
    S3.put_object_tagging(Bucket=b, Key="k", Tagging={"TagSet": tags})
    assert S3.get_object_tagging(Bucket=b, Key="k")["TagSet"] == tags
    S3.delete_object_tagging(Bucket=b, Key="k")
    assert S3.get_object_tagging(Bucket=b, Key="k")["TagSet"] == []
    S3.put_bucket_tagging(Bucket=b, Tagging={"TagSet": tags})
    assert S3.get_bucket_tagging(Bucket=b)["TagSet"] == tags
    S3.delete_bucket_tagging(Bucket=b)
    fails("NoSuchTagSet", S3.get_bucket_tagging, Bucket=b)


def access(b):
    S3.put_object(Bucket=b, Key="k", Body=b"x")
    for who in OTHER, ANON:
        fails("AccessDenied", who.get_object, Bucket=b, Key="k")
        fails("AccessDenied", who.list_objects_v2, Bucket=b)
        fails("AccessDenied", who.put_object, Bucket=b, Key="k", Body=b"")
    S3.put_object_acl(Bucket=b, Key="k", ACL="public-read")
    assert ANON.get_object(Bucket=b, Key="k")["Body"].read() == b"x"
    S3.put_object_acl(Bucket=b, Key="k", ACL="private")
    S3.put_bucket_acl(Bucket=b, ACL="public-read")
    assert ANON.list_objects_v2(Bucket=b)["KeyCount"] == 1
    S3.put_bucket_acl(Bucket=b, ACL="private")
    grants = S3.get_bucket_acl(Bucket=b)
    assert grants["Owner"]["ID"] == "main" and grants["Grants"][0]["Permission"] == "FULL_CONTROL"
    policy = {"Version": "2012-10-17", "Statement": [
        {"Effect": "Allow", "Principal": {"AWS": ["arn:aws:iam:::user/other"]}, "Action": ["s3:GetObject"], "Resource": f"arn:aws:s3:::{b}/*"},
        {"Effect": "Deny", "Principal": "*", "Action": "s3:*", "Resource": f"arn:aws:s3:::{b}/secret*"}]}
    S3.put_bucket_policy(Bucket=b, Policy=json.dumps(policy))
    assert json.loads(S3.get_bucket_policy(Bucket=b)["Policy"]) == policy
    assert not S3.get_bucket_policy_status(Bucket=b)["PolicyStatus"]["IsPublic"]
    assert OTHER.get_object(Bucket=b, Key="k")["Body"].read() == b"x"
    fails("AccessDenied", OTHER.put_object, Bucket=b, Key="k", Body=b"")
    fails("AccessDenied", S3.put_object, Bucket=b, Key="secret", Body=b"")
    S3.delete_bucket_policy(Bucket=b)
    fails("NoSuchBucketPolicy", S3.get_bucket_policy, Bucket=b)
    block = {"BlockPublicAcls": True, "IgnorePublicAcls": True, "BlockPublicPolicy": True, "RestrictPublicBuckets": True}
    S3.put_public_access_block(Bucket=b, PublicAccessBlockConfiguration=block)
    assert S3.get_public_access_block(Bucket=b)["PublicAccessBlockConfiguration"] == block
    fails("AccessDenied", S3.put_object_acl, Bucket=b, Key="k", ACL="public-read")


def cors(b):
    rule = {"AllowedMethods": ["GET", "PUT"], "AllowedOrigins": ["https://*.example.com"], "AllowedHeaders": ["x-*"], "ExposeHeaders": ["ETag"], "MaxAgeSeconds": 60}
    S3.put_bucket_cors(Bucket=b, CORSConfiguration={"CORSRules": [rule]})
    got = S3.get_bucket_cors(Bucket=b)["CORSRules"][0]
    assert {k: sorted(v) if isinstance(v, list) else v for k, v in got.items()} == rule, got
    ask = {"Origin": "https://a.example.com", "Access-Control-Request-Method": "PUT"}
    status, _, headers = http("OPTIONS", f"{ENDPOINT}/{b}/k", headers=ask)
    assert status == 200 and headers["Access-Control-Allow-Origin"] == "https://a.example.com"
    assert http("OPTIONS", f"{ENDPOINT}/{b}/k", headers=ask | {"Origin": "https://example.org"})[0] == 403
    S3.delete_bucket_cors(Bucket=b)
    fails("NoSuchCORSConfiguration", S3.get_bucket_cors, Bucket=b)


def signatures(b):
    """Presigned URLs of both versions, version 2 in a header, wrong keys."""
    for version in "s3v4", "s3":
        signer = client(signature_version=version)
        put = signer.generate_presigned_url("put_object", Params={"Bucket": b, "Key": "a b+c"}, ExpiresIn=60)
        assert http("PUT", put, data=version.encode())[0] == 200, version
        get = signer.generate_presigned_url("get_object", Params={"Bucket": b, "Key": "a b+c"}, ExpiresIn=60)
        assert http("GET", get)[1] == version.encode(), version
        assert http("GET", get + "x")[0] == 403, version
        assert signer.get_object(Bucket=b, Key="a b+c")["Body"].read() == version.encode()
    late = S3.generate_presigned_url("get_object", Params={"Bucket": b, "Key": "a b+c"}, ExpiresIn=1)
    time.sleep(2)
    assert http("GET", late)[0] == 403
    fails("SignatureDoesNotMatch", client(ACCESS, "wrong").list_objects_v2, Bucket=b)
    fails("InvalidAccessKeyId", client("NOBODY", "wrong").list_objects_v2, Bucket=b)


def post_form(b):
    form = S3.generate_presigned_post(b, "f/${filename}", Fields={"success_action_status": "201"},
                                      Conditions=[{"success_action_status": "201"}, ["content-length-range", 1, 100]])
    def send(data):
        line = "--frontier\r\nContent-Disposition: form-data; name=\"{}\"\r\n\r\n{}\r\n"
        text = "".join(line.format(k, v) for k, v in form["fields"].items())
        text += "--frontier\r\nContent-Disposition: form-data; name=\"file\"; filename=\"name.txt\"\r\n\r\n"
        return http("POST", form["url"], text.encode() + data + b"\r\n--frontier--\r\n",
                    {"Content-Type": "multipart/form-data; boundary=frontier"})
    assert send(b"posted")[0] == 201
    assert body(b, "f/name.txt") == b"posted"
    status, text, _ = send(b"x" * 200)
    assert status == 400 and b"EntityTooLarge" in text


def lifecycle(b):
    rule = {"ID": "r", "Filter": {"Prefix": "old/"}, "Status": "Enabled", "Expiration": {"Days": 1}}
    S3.put_bucket_lifecycle_configuration(Bucket=b, LifecycleConfiguration={"Rules": [rule]})
    assert S3.get_bucket_lifecycle_configuration(Bucket=b)["Rules"] == [rule]
    tagged = rule | {"Filter": {"Tag": {"Key": "k", "Value": "v"}}}
    uploads = {"AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1}}
    for action in uploads, {"Expiration": {"ExpiredObjectDeleteMarker": True}}:
        fails("InvalidRequest", S3.put_bucket_lifecycle_configuration, Bucket=b, LifecycleConfiguration={"Rules": [tagged | action]})
    assert S3.get_bucket_lifecycle_configuration(Bucket=b)["Rules"] == [rule]
    assert "rule-id=\"r\"" in S3.put_object(Bucket=b, Key="old/x", Body=b"")["Expiration"]
    S3.delete_bucket_lifecycle(Bucket=b)
    fails("NoSuchLifecycleConfiguration", S3.get_bucket_lifecycle_configuration, Bucket=b)


def expiry(b):
    """Days are 2 s long here."""
    S3.put_bucket_versioning(Bucket=b, VersioningConfiguration={"Status": "Enabled"})
    for key in "old/x", "keep":
        S3.put_object(Bucket=b, Key=key, Body=b"1")
        S3.put_object(Bucket=b, Key=key, Body=b"2")
    plain = b + "-plain"
    S3.create_bucket(Bucket=plain)
    for key, tag in ("old/x", "t=1"), ("old/tagged", "t=2"), ("keep", "t=1"):
        S3.put_object(Bucket=plain, Key=key, Body=b"x" * 5 * MIB, Tagging=tag)
    S3.create_multipart_upload(Bucket=plain, Key="old/upload")
    S3.put_bucket_lifecycle_configuration(Bucket=b, LifecycleConfiguration={"Rules": [
        {"ID": "r", "Filter": {"Prefix": "old/"}, "Status": "Enabled", "Expiration": {"Days": 1},
         "NoncurrentVersionExpiration": {"NoncurrentDays": 1}}]})
    S3.put_bucket_lifecycle_configuration(Bucket=plain, LifecycleConfiguration={"Rules": [
        {"ID": "t", "Filter": {"And": {"Prefix": "old/", "Tags": [{"Key": "t", "Value": "1"}]}}, "Status": "Enabled", "Expiration": {"Days": 1}},
        {"ID": "u", "Filter": {"Prefix": "old/"}, "Status": "Enabled", "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1}}]})
    eventually(lambda: [o["Key"] for o in S3.list_objects_v2(Bucket=plain)["Contents"]] == ["keep", "old/tagged"])
    eventually(lambda: "Uploads" not in S3.list_multipart_uploads(Bucket=plain))
    eventually(lambda: [o["Key"] for o in S3.list_objects_v2(Bucket=b)["Contents"]] == ["keep"])
    eventually(lambda: not [v for v in S3.list_object_versions(Bucket=b).get("Versions", []) if v["Key"] == "old/x"])
    assert len([v for v in S3.list_object_versions(Bucket=b)["Versions"] if v["Key"] == "keep"]) == 2
    S3.delete_bucket_lifecycle(Bucket=plain)
    clear(plain)


def quotas(b):
    S3.put_object(Bucket=b, Key="a", Body=b"1")
    admin("quota", "set", "--quota-scope", "bucket", "--bucket", b, "--max-objects", "2")
    admin("quota", "enable", "--quota-scope", "bucket", "--bucket", b)
    S3.put_object(Bucket=b, Key="b", Body=b"1")
    fails("QuotaExceeded", S3.put_object, Bucket=b, Key="c", Body=b"1")
    fails("QuotaExceeded", S3.copy_object, Bucket=b, Key="c", CopySource={"Bucket": b, "Key": "a"})
    admin("quota", "disable", "--quota-scope", "bucket", "--bucket", b)
    S3.put_object(Bucket=b, Key="c", Body=b"1")


def user_quotas(_):
    """Of a user's buckets together."""
    admin("user", "create", "--uid", "bounded", "--display-name", "b", "--access-key", "KEYbounded", "--secret-key", "secret/bounded")
    admin("quota", "set", "--quota-scope", "user", "--uid", "bounded", "--max-objects", "2")
    admin("quota", "enable", "--quota-scope", "user", "--uid", "bounded")
    its = client("KEYbounded", "secret/bounded")
    for bucket in "bounded-1", "bounded-2":
        its.create_bucket(Bucket=bucket)
        its.put_object(Bucket=bucket, Key="k", Body=b"1")
    fails("QuotaExceeded", its.put_object, Bucket="bounded-1", Key="more", Body=b"1")
    fails("QuotaExceeded", its.copy_object, Bucket="bounded-2", Key="more", CopySource="bounded-2/k")
    admin("quota", "disable", "--quota-scope", "user", "--uid", "bounded")
    eventually(lambda: its.put_object(Bucket="bounded-1", Key="more", Body=b"1"))
    for bucket in "bounded-1", "bounded-2":
        for key in "k", "more":
            its.delete_object(Bucket=bucket, Key=key)
        its.delete_bucket(Bucket=bucket)


def masks(b):
    """What a user's mask of operations leaves out."""
    S3.put_object(Bucket=b, Key="k", Body=b"1")
    S3.put_bucket_policy(Bucket=b, Policy=json.dumps({"Version": "2012-10-17", "Statement": [
        {"Effect": "Allow", "Principal": {"AWS": ["arn:aws:iam:::user/masked"]}, "Action": ["s3:*"], "Resource": f"arn:aws:s3:::{b}/*"}]}))
    admin("user", "create", "--uid", "masked", "--display-name", "m", "--access-key", "KEYmasked", "--secret-key", "secret/masked", "--op-mask", "read")
    its = client("KEYmasked", "secret/masked")
    assert its.get_object(Bucket=b, Key="k")["Body"].read() == b"1"
    fails("AccessDenied", its.put_object, Bucket=b, Key="k", Body=b"2")
    fails("AccessDenied", its.delete_object, Bucket=b, Key="k")
    admin("user", "modify", "--uid", "masked", "--op-mask", "read,write")
    its.put_object(Bucket=b, Key="k", Body=b"2")
    fails("AccessDenied", its.delete_object, Bucket=b, Key="k")
    S3.delete_bucket_policy(Bucket=b)


def accounts(_):
    """Users of an account share its buckets; what they may, policies say."""
    account, read = "RGW12345678901234567", "arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess"
    admin("account", "create", "--account-id", account, "--account-name", "shop")
    def user(name, *words):
        admin("user", "create", "--uid", name, "--display-name", name, "--account-id", account,
              "--access-key", f"KEY{name}", "--secret-key", f"secret/{name}", *words)
        return client(f"KEY{name}", f"secret/{name}")
    root, clerk = user("shopkeeper", "--account-root"), user("clerk")
    root.create_bucket(Bucket="shop-1")
    root.put_object(Bucket="shop-1", Key="k", Body=b"1")
    assert [x["Name"] for x in root.list_buckets()["Buckets"]] == ["shop-1"]
    assert root.list_buckets()["Owner"]["ID"] == "shopkeeper"
    assert root.get_bucket_acl(Bucket="shop-1")["Owner"] == {"ID": account, "DisplayName": "shop"}
    assert root.get_object_acl(Bucket="shop-1", Key="k")["Owner"]["ID"] == account
    for call, args in (clerk.list_buckets, {}), (clerk.list_objects_v2, {"Bucket": "shop-1"}), (clerk.create_bucket, {"Bucket": "shop-2"}), \
            (clerk.get_object, {"Bucket": "shop-1", "Key": "k"}), (S3.get_object, {"Bucket": "shop-1", "Key": "k"}):
        fails("AccessDenied", call, **args)
    admin("user", "policy", "attach", "--uid", "clerk", "--policy-arn", read)
    assert clerk.get_object(Bucket="shop-1", Key="k")["Body"].read() == b"1"
    assert [x["Name"] for x in clerk.list_buckets()["Buckets"]] == ["shop-1"]
    fails("AccessDenied", clerk.put_object, Bucket="shop-1", Key="k", Body=b"2")
    root.put_bucket_policy(Bucket="shop-1", Policy=json.dumps({"Version": "2012-10-17", "Statement": [
        {"Effect": "Allow", "Principal": {"AWS": [f"arn:aws:iam::{account}:user/clerk"]}, "Action": "s3:PutObject", "Resource": "arn:aws:s3:::shop-1/in/*"}]}))
    clerk.put_object(Bucket="shop-1", Key="in/k", Body=b"2")
    fails("AccessDenied", clerk.put_object, Bucket="shop-1", Key="k", Body=b"2")
    admin("user", "policy", "detach", "--uid", "clerk", "--policy-arn", read)
    fails("AccessDenied", clerk.get_object, Bucket="shop-1", Key="k")
    admin("account", "modify", "--account-id", account, "--max-buckets", "1")
    fails("TooManyBuckets", root.create_bucket, Bucket="shop-2")
    for key in "k", "in/k":
        root.delete_object(Bucket="shop-1", Key=key)
    root.delete_bucket(Bucket="shop-1")
    assert root.list_buckets()["Buckets"] == []
    for name in "clerk", "shopkeeper":
        admin("user", "rm", "--uid", name)
    admin("account", "rm", "--account-id", account)


def suspended(b):
    """Refused within a second of radosgw-admin's answer: keys and users are known to gateways that cache them."""
    admin("user", "create", "--uid", "short", "--display-name", "s", "--access-key", "KEYshort", "--secret-key", "secret/short")
    old, new = client("KEYshort", "secret/short"), client("KEYshort", "secret/new")
    old.list_buckets()
    admin("user", "modify", "--uid", "short", "--access-key", "KEYshort", "--secret-key", "secret/new")
    fails("SignatureDoesNotMatch", old.list_buckets)
    new.list_buckets()
    admin("user", "suspend", "--uid", "short")
    fails("UserSuspended", new.list_buckets)
    admin("user", "enable", "--uid", "short")
    new.list_buckets()
    admin("key", "rm", "--uid", "short", "--key-type", "s3", "--access-key", "KEYshort")
    fails("InvalidAccessKeyId", new.list_buckets)
    admin("key", "create", "--uid", "short", "--key-type", "s3", "--access-key", "KEYshort", "--secret-key", "secret/short")
    old.list_buckets()
    admin("user", "rm", "--uid", "short")
    fails("InvalidAccessKeyId", old.list_buckets)


def hosts(b):
    """The bucket's name in the host's."""
    S3.put_object(Bucket=b, Key="a b/c", Body=b"x", ACL="public-read")
    host = {"Host": f"{b}.s3.test"}
    assert http("GET", f"{ENDPOINT}/a%20b/c", headers=host)[:2] == (200, b"x")
    assert http("GET", f"{ENDPOINT}/none", headers=host)[0] == 403
    assert http("GET", f"{ENDPOINT}/", headers=host)[0] == 403


def removals(b):
    """Many at once, versions too."""
    S3.put_bucket_versioning(Bucket=b, VersioningConfiguration={"Status": "Enabled"})
    ids = [S3.put_object(Bucket=b, Key="k", Body=b"x")["VersionId"] for _ in range(3)]
    got = S3.delete_objects(Bucket=b, Delete={"Objects": [{"Key": "k"}, {"Key": "k", "VersionId": ids[0]}, {"Key": "none"}]})["Deleted"]
    assert sorted(d["Key"] for d in got) == ["k", "k", "none"], got
    assert [d["VersionId"] for d in got if d["Key"] == "k" and not d.get("DeleteMarker")] == ids[:1], got
    assert [v["VersionId"] for v in S3.list_object_versions(Bucket=b, Prefix="k")["Versions"]] == ids[:0:-1]
    got = S3.delete_objects(Bucket=b, Delete={"Quiet": True, "Objects": [{"Key": "k", "VersionId": ids[1]}]})
    assert "Deleted" not in got
    denied = OTHER.delete_objects(Bucket=b, Delete={"Objects": [{"Key": "k"}]})["Errors"]
    assert [e["Code"] for e in denied] == ["AccessDenied"]
    fails(400, S3.delete_objects, Bucket=b, Delete={"Objects": []})


def lock(_):
    b = "locked"
    S3.create_bucket(Bucket=b, ObjectLockEnabledForBucket=True)
    until = time.time() + 3600
    put = S3.put_object(Bucket=b, Key="k", Body=b"x", ObjectLockMode="GOVERNANCE", ObjectLockRetainUntilDate=until)
    fails("AccessDenied", S3.delete_object, Bucket=b, Key="k", VersionId=put["VersionId"])
    assert S3.get_object_retention(Bucket=b, Key="k")["Retention"]["Mode"] == "GOVERNANCE"
    S3.put_object_legal_hold(Bucket=b, Key="k", LegalHold={"Status": "ON"})
    fails("AccessDenied", S3.delete_object, Bucket=b, Key="k", VersionId=put["VersionId"], BypassGovernanceRetention=True)
    S3.put_object_legal_hold(Bucket=b, Key="k", LegalHold={"Status": "OFF"})
    S3.delete_object(Bucket=b, Key="k", VersionId=put["VersionId"], BypassGovernanceRetention=True)
    rule = {"ObjectLockEnabled": "Enabled", "Rule": {"DefaultRetention": {"Mode": "GOVERNANCE", "Days": 1}}}
    S3.put_object_lock_configuration(Bucket=b, ObjectLockConfiguration=rule)
    assert S3.get_object_lock_configuration(Bucket=b)["ObjectLockConfiguration"] == rule
    put = S3.put_object(Bucket=b, Key="default", Body=b"x")
    assert S3.head_object(Bucket=b, Key="default")["ObjectLockMode"] == "GOVERNANCE"
    fails("AccessDenied", S3.delete_object, Bucket=b, Key="default", VersionId=put["VersionId"])
    S3.delete_object(Bucket=b, Key="default", VersionId=put["VersionId"], BypassGovernanceRetention=True)
    S3.delete_bucket(Bucket=b)


def customer_keys(b):
    key = {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": os.urandom(32)}
    data = os.urandom(5 * MIB + 3)
    S3.put_object(Bucket=b, Key="k", Body=data, **key)
    assert body(b, "k", **key) == data
    assert body(b, "k", Range="bytes=4194300-4194310", **key) == data[4194300:4194311]
    fails(400, S3.get_object, Bucket=b, Key="k")
    fails(400, S3.head_object, Bucket=b, Key="k")
    parts = [os.urandom(5 * MIB + 9), os.urandom(100)]
    upload = S3.create_multipart_upload(Bucket=b, Key="m", **key)["UploadId"]
    done = [{"PartNumber": n, "ETag": S3.upload_part(Bucket=b, Key="m", UploadId=upload, PartNumber=n, Body=p, **key)["ETag"]}
            for n, p in enumerate(parts, 1)]
    S3.complete_multipart_upload(Bucket=b, Key="m", UploadId=upload, MultipartUpload={"Parts": done}, **key)
    assert body(b, "m", **key) == b"".join(parts)
    assert body(b, "m", Range="bytes=5242885-5242895", **key) == b"".join(parts)[5242885:5242896]


def server_keys(b):
    """Keys of the gateway's, by id; and copies between all kinds of keys."""
    kms = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "testkey-1"}
    data = os.urandom(5 * MIB + 3)
    put = S3.put_object(Bucket=b, Key="k", Body=data, **kms)
    assert (put["ServerSideEncryption"], put["SSEKMSKeyId"]) == ("aws:kms", "testkey-1") and put["ETag"] == f'"{hashlib.md5(data).hexdigest()}"'
    context = json.loads(base64.b64decode(put["SSEKMSEncryptionContext"]))
    assert context == {"aws:s3:arn": f"arn:aws:s3::main:{b}/k"}, context
    head = S3.head_object(Bucket=b, Key="k")
    assert (head["ServerSideEncryption"], head["SSEKMSKeyId"]) == ("aws:kms", "testkey-1")
    assert body(b, "k") == data and body(b, "k", Range="bytes=4194300-4194310") == data[4194300:4194311]
    for bad in {"ServerSideEncryption": "aws:kms"}, {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "none"}, {"ServerSideEncryption": "AES256"}, \
            {"SSEKMSKeyId": "testkey-1"}:
        fails("InvalidArgument", S3.put_object, Bucket=b, Key="bad", Body=b"x", **bad)
    upload = S3.create_multipart_upload(Bucket=b, Key="m", **kms)["UploadId"]
    parts = [os.urandom(5 * MIB + 9), os.urandom(100)]
    done = [{"PartNumber": n, "ETag": S3.upload_part(Bucket=b, Key="m", UploadId=upload, PartNumber=n, Body=p)["ETag"]} for n, p in enumerate(parts, 1)]
    done.append({"PartNumber": 3, "ETag": S3.upload_part_copy(Bucket=b, Key="m", UploadId=upload, PartNumber=3, CopySource=f"{b}/k",
                                                              CopySourceRange="bytes=4194299-4194310")["CopyPartResult"]["ETag"]})
    S3.complete_multipart_upload(Bucket=b, Key="m", UploadId=upload, MultipartUpload={"Parts": done})
    whole = b"".join(parts) + data[4194299:4194311]
    assert body(b, "m") == whole and body(b, "m", Range="bytes=5242885-5242995") == whole[5242885:5242996]
    # Copies: opened with the one key, sealed with the other, or left plain where nothing asks for a key.
    own = lambda c: {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": c * 32}
    theirs = lambda c: {"CopySourceSSECustomerAlgorithm": "AES256", "CopySourceSSECustomerKey": c * 32}
    S3.put_object(Bucket=b, Key="c", Body=data, **own("x"))
    S3.put_object(Bucket=b, Key="p", Body=data)
    for source, opened in ("k", {}), ("c", theirs("x")), ("p", {}), ("m", {}):
        want = whole if source == "m" else data
        for target, sealed, read in ("to-plain", {}, {}), ("to-kms", kms | {"SSEKMSKeyId": "testkey-2"}, {}), ("to-own", own("y"), own("y")):
            S3.copy_object(Bucket=b, Key=target, CopySource=f"{b}/{source}", **opened, **sealed)
            assert body(b, target, **read) == want, (source, target)
            head = S3.head_object(Bucket=b, Key=target, **read)
            assert head.get("SSEKMSKeyId") == sealed.get("SSEKMSKeyId") and ("SSECustomerKeyMD5" in head) == (target == "to-own"), (source, target, head)
    fails(400, S3.copy_object, Bucket=b, Key="bad", CopySource=f"{b}/c")
    fails(400, S3.get_object, Bucket=b, Key="to-own")


def default_keys(b):
    """What a bucket encrypts objects with that name no key."""
    rule = lambda **d: {"Rules": [{"ApplyServerSideEncryptionByDefault": d}]}
    fails("ServerSideEncryptionConfigurationNotFoundError", S3.get_bucket_encryption, Bucket=b)
    S3.put_bucket_encryption(Bucket=b, ServerSideEncryptionConfiguration=rule(SSEAlgorithm="AES256"))
    assert S3.get_bucket_encryption(Bucket=b)["ServerSideEncryptionConfiguration"] == rule(SSEAlgorithm="AES256")
    fails("InvalidArgument", S3.put_object, Bucket=b, Key="k", Body=b"never plain")
    fails(404, S3.head_object, Bucket=b, Key="k")
    S3.put_bucket_encryption(Bucket=b, ServerSideEncryptionConfiguration=rule(SSEAlgorithm="aws:kms", KMSMasterKeyID="testkey-2"))
    got = S3.get_bucket_encryption(Bucket=b)["ServerSideEncryptionConfiguration"]["Rules"][0]["ApplyServerSideEncryptionByDefault"]
    assert got == {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": "testkey-2"}, got
    S3.put_object(Bucket=b, Key="k", Body=b"hello")
    assert S3.head_object(Bucket=b, Key="k")["SSEKMSKeyId"] == "testkey-2" and body(b, "k") == b"hello"
    S3.put_object(Bucket=b, Key="o", Body=b"hello", ServerSideEncryption="aws:kms", SSEKMSKeyId="testkey-1")
    assert S3.head_object(Bucket=b, Key="o")["SSEKMSKeyId"] == "testkey-1"
    own = {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": "z" * 32}
    S3.put_object(Bucket=b, Key="c", Body=b"hello", **own)
    assert "SSEKMSKeyId" not in S3.head_object(Bucket=b, Key="c", **own)
    S3.delete_bucket_encryption(Bucket=b)
    S3.put_object(Bucket=b, Key="p", Body=b"hello")
    assert "ServerSideEncryption" not in S3.head_object(Bucket=b, Key="p")


def payment(b):
    """Who asks, pays, where the bucket says so."""
    S3.put_object(Bucket=b, Key="k", Body=b"x", ACL="public-read")
    S3.put_bucket_request_payment(Bucket=b, RequestPaymentConfiguration={"Payer": "Requester"})
    assert S3.get_bucket_request_payment(Bucket=b)["Payer"] == "Requester"
    fails("AccessDenied", OTHER.get_object, Bucket=b, Key="k")
    fails("AccessDenied", ANON.get_object, Bucket=b, Key="k")
    assert OTHER.get_object(Bucket=b, Key="k", RequestPayer="requester")["RequestCharged"] == "requester"
    assert "RequestCharged" not in S3.get_object(Bucket=b, Key="k")
    S3.put_bucket_request_payment(Bucket=b, RequestPaymentConfiguration={"Payer": "BucketOwner"})
    assert ANON.get_object(Bucket=b, Key="k")["Body"].read() == b"x"


CASES = [buckets, objects, ranges, conditions, listing, multipart, copies, versions, checksums, tagging, access, cors,
         signatures, post_form, lifecycle, expiry, quotas, user_quotas, masks, accounts, suspended, hosts, removals, lock, customer_keys,
         server_keys, default_keys, payment]


def main():
    chosen = [c for c in CASES if not sys.argv[6:] or c.__name__ in sys.argv[6:]]
    failed = []
    for case in chosen:
        bucket = f"case-{case.__name__.replace('_', '-')}"
        try:
            S3.create_bucket(Bucket=bucket)
            case(bucket)
            clear(bucket)
        except Exception as error:  # shown, and the next case runs
            traceback.print_exc()
            failed.append(f"{case.__name__}: {error}")
    S3.create_bucket(Bucket="kept")
    for name, data in [("a", b"abc"), ("b", b"x" * (9 * MIB)), ("c", b"12345")]:
        S3.put_object(Bucket="kept", Key=name, Body=data)
    S3.put_object(Bucket="kept", Key="gone", Body=b"x" * (9 * MIB))
    S3.delete_object(Bucket="kept", Key="gone")
    print(f"{len(chosen) - len(failed)} of {len(chosen)} cases passed")
    for line in failed:
        print("FAILED", line)
    sys.exit(bool(failed))


main()
