"""Writes `signatures.txt`: requests signed by botocore, in all forms that it has.

Run with botocore installed: python3 sign.py > signatures.txt
A record is lines `name: value` up to an empty line; `body` is base64. What is signed, with which key and when, is the same
for all but for the session token of some.
"""

import base64
import datetime

import botocore
import botocore.auth
import botocore.awsrequest
import botocore.compat
from botocore.credentials import Credentials

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc)
ACCESS, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"

for module in botocore.auth, botocore.compat:
    if hasattr(module, "get_current_datetime"):
        module.get_current_datetime = lambda remove_tzinfo=True: NOW.replace(tzinfo=None) if remove_tzinfo else NOW
botocore.auth.formatdate = lambda usegmt=True: "Fri, 02 Jan 2026 03:04:05 GMT"
botocore.auth.time.time = lambda: NOW.timestamp()
try:
    botocore.auth.datetime = type("frozen", (), {"datetime": type("now", (), {
        "utcnow": staticmethod(lambda: NOW.replace(tzinfo=None)), "now": staticmethod(lambda tz=None: NOW)}), "timedelta": datetime.timedelta,
        "timezone": datetime.timezone})
except AttributeError:
    pass

URLS = [
    ("GET", "/"), ("GET", "/bucket?list-type=2&prefix=a%20b%2Fc&delimiter=%2F&max-keys=3"), ("PUT", "/bucket"),
    ("GET", "/bucket?versions&encoding-type=url"), ("PUT", "/bucket/key"), ("GET", "/bucket/a%20b%2Bc/%E6%97%A5//x~y"),
    ("DELETE", "/bucket/key?versionId=null"), ("POST", "/bucket?delete"), ("PUT", "/bucket/k?partNumber=2&uploadId=2~abc"),
    ("GET", "/bucket/k?response-content-type=text%2Fplain&response-content-disposition=attachment%3B%20filename%3D%22x%20y%22"),
    ("GET", "/bucket?acl"), ("PUT", "/bucket?policy"), ("GET", "/bucket/k?empty=&z=1&a=2"), ("HEAD", "/bucket/-._~%21%24%27%28%29%2A%2C%3B%3D%3A%40"),
]
EXTRA = {"Content-Type": "text/plain", "x-amz-meta-two": "a   b", "X-Amz-Meta-One": "1", "x-amz-acl": "private"}


def record(name, request, body):
    parts = botocore.compat.urlsplit(request.url)
    print(f"name: {name} {request.method} {parts.path}")
    print(f"method: {request.method}")
    print(f"target: {parts.path}{'?' + parts.query if parts.query else ''}")
    headers = {str(k): v.decode() if isinstance(v, bytes) else v for k, v in request.headers.items()}
    headers.setdefault("Host", parts.netloc)
    for key, value in headers.items():
        print(f"header: {key}: {value}")
    print(f"body: {base64.b64encode(body).decode()}")
    print()


def main():
    print(f"# botocore {botocore.__version__}, by vectors/s3/sign.py")
    print(f"# secret {SECRET}, time 20260102T030405Z\n")
    for token in None, "session/token+=":
        for method, url in URLS:
            for extra in {}, EXTRA:
                body = b"hello world" if method in ("PUT", "POST") else b""
                credentials = Credentials(ACCESS, SECRET, token)
                signers = {
                    "v4": botocore.auth.S3SigV4Auth(credentials, "s3", "us-east-1"),
                    "v4-query": botocore.auth.S3SigV4QueryAuth(credentials, "s3", "eu-west-2", expires=600),
                    "v2": botocore.auth.HmacV1Auth(credentials),
                    "v2-query": botocore.auth.HmacV1QueryAuth(credentials, expires=600),
                }
                for name, signer in signers.items():
                    if name.startswith("v2") and (extra or token) and "query" in name:
                        continue  # headers of such a URL are the caller's affair
                    request = botocore.awsrequest.AWSRequest(method, "http://s3.example.com:7480" + url, data=b"" if "query" in name else body,
                                                                headers=dict(extra))
                    request.context["client_config"] = None
                    signer.add_auth(request)
                    if name == "v2-query":
                        del request.headers["Date"]  # where botocore keeps the URL's end
                    record(name + ("-token" if token else ""), request, body)
    for service in "iam", "sts", "sns":
        body = b"Action=ListUsers&Version=2010-05-08"
        request = botocore.awsrequest.AWSRequest("POST", "http://s3.example.com:7480/", data=body,
                                                 headers={"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"})
        botocore.auth.SigV4Auth(Credentials(ACCESS, SECRET), service, "us-east-1").add_auth(request)
        record(service, request, body)
    for name, kind in ("form-v4", botocore.auth.S3SigV4PostAuth), ("form-v2", botocore.auth.HmacV1PostAuth):
        args = (Credentials(ACCESS, SECRET),) + (("s3", "us-east-1") if name == "form-v4" else ())
        request = botocore.awsrequest.AWSRequest("POST", "http://s3.example.com:7480/bucket")
        request.context["s3-presign-post-fields"] = {"key": "k"}
        request.context["s3-presign-post-policy"] = {"expiration": "2026-01-02T04:04:05Z", "conditions": [{"bucket": "bucket"}, {"key": "k"}]}
        kind(*args).add_auth(request)
        print(f"name: {name}")
        for key, value in request.context["s3-presign-post-fields"].items():
            print(f"field: {key}: {value}")
        print()


main()
