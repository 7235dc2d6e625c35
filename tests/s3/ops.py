"""The Admin Ops API, as Rook's operator, exporters and consoles call it, against any gateway.

ops.py ENDPOINT ACCESS SECRET [OTHER]: ACCESS is a key of a user with all caps. With OTHER, a second gateway of the same cluster, each
answer to a GET is compared with that gateway's: same status, same JSON.
"""

import http.client
import json
import subprocess
import sys
import time
import traceback
import urllib.parse

import boto3
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.client import Config
from botocore.credentials import Credentials

ENDPOINT, ACCESS, SECRET = sys.argv[1:4]
OTHER = sys.argv[4] if len(sys.argv) > 4 else None
# What counts reads and versions, or names who answered.
PASSING = {"read_tracker", "RequestId", "HostId", "Message", "mtime", "marker"}


def send(endpoint, method, path, params, body=b"", keys=(ACCESS, SECRET), with_sum=True):
    """A signed request; status and body."""
    query = urllib.parse.urlencode(params, quote_via=urllib.parse.quote)
    headers = {"x-amz-content-sha256": "UNSIGNED-PAYLOAD"} if with_sum else {}
    request = AWSRequest(method, f"{endpoint}{path}?{query}", headers=headers, data=body)
    if keys:
        signer = SigV4Auth(Credentials(*keys), "s3", "default")
        if not with_sum:  # as go-ceph signs: the sum of nothing known, and no header that says so
            signer.payload = lambda _: "UNSIGNED-PAYLOAD"
        signer.add_auth(request)
        if not with_sum:
            assert "X-Amz-Content-SHA256" not in request.headers
    line = http.client.HTTPConnection(urllib.parse.urlsplit(endpoint).netloc)
    line.request(method, f"{path}?{query}", body=body, headers=dict(request.headers))
    answer = line.getresponse()
    text = answer.read()
    line.close()
    return answer.status, text


def plain(value):
    """Without what differs from answer to answer, lists of names in order."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items() if k not in PASSING}
    if isinstance(value, list):
        return sorted((plain(v) for v in value), key=json.dumps)
    return value


def call(method, path, want=200, body=b"", keys=(ACCESS, SECRET), compare=True, **params):
    """A call, whose names have - for _; what it answers. `want` is a status or an error's code."""
    params = {k.replace("_", "-"): v for k, v in params.items()}
    status, text = send(ENDPOINT, method, f"/admin/{path}", params, body, keys)
    value = json.loads(text) if text else None
    if method == "GET" and OTHER and compare:
        theirs, other = send(OTHER, method, f"/admin/{path}", params, body, keys)
        assert theirs == status, (method, path, params, status, theirs, text)
        other = json.loads(other) if other else None
        assert plain(value) == plain(other), (method, path, params, plain(value), plain(other))
    if want == 200:
        assert status == 200, (method, path, params, status, text)
    elif isinstance(want, int):
        assert status == want, (method, path, params, status, text)
    else:
        assert status >= 400 and value["Code"] == want, (method, path, params, status, text)
    return value


def s3(keys):
    return boto3.client("s3", endpoint_url=ENDPOINT, region_name="us-east-1", aws_access_key_id=keys[0], aws_secret_access_key=keys[1],
                        config=Config(retries={"max_attempts": 1}, s3={"addressing_style": "path"}))


def admin(*words):
    return subprocess.run(["radosgw-admin", *words], check=True, capture_output=True).stdout


def user(name, **params):
    return call("PUT", "user", uid=name, display_name=f"The {name}", access_key=f"AK{name}", secret_key=f"SK{name}", **params)


def users():
    made = call("PUT", "user", uid="ops-1", display_name="Ops One", email="ops1@example.com", user_caps="usage=read", max_buckets=7)
    assert made["user_id"] == "ops-1" and made["email"] == "ops1@example.com" and made["max_buckets"] == 7
    assert made["caps"] == [{"type": "usage", "perm": "read"}] and len(made["keys"]) == 1 and made["op_mask"] == "read, write, delete"
    assert made["bucket_quota"] == {"enabled": False, "check_on_raw": False, "max_size": -1, "max_size_kb": 0, "max_objects": -1}
    assert call("GET", "user", uid="ops-1") == made | {}
    assert json.loads(admin("user", "info", "--uid", "ops-1"))["keys"][0]["access_key"] == made["keys"][0]["access_key"]
    for params in {}, {"exclusive": "true"}:
        call("PUT", "user", "UserAlreadyExists", uid="ops-1", display_name="Ops One", **params)
    call("PUT", "user", "InvalidArgument", uid="ops-9")
    call("PUT", "user", "KeyExists", uid="ops-2", display_name="x", access_key=made["keys"][0]["access_key"], secret_key="x")
    call("PUT", "user", "EmailExists", uid="ops-2", display_name="x", email="OPS1@example.com")
    call("PUT", "user", "InvalidArgument", uid="ops-2", display_name="x", system="true")
    call("GET", "user", "NoSuchUser", uid="ops-2")
    call("GET", "user", "InvalidArgument")
    changed = call("POST", "user", uid="ops-1", display_name="New", max_buckets=3, suspended="true", op_mask="read", email="")
    assert (changed["display_name"], changed["max_buckets"], changed["suspended"], changed["op_mask"], changed["email"]) == ("New", 3, 1, "read", "")
    call("POST", "user", "NoSuchUser", uid="ops-2", display_name="x")
    call("POST", "user", uid="ops-1", suspended="false", op_mask="read,write,delete")
    # Names and keys that are free again, others may have.
    user("ops-2", email="ops1@example.com")
    listed = call("GET", "user", list="", compare=False)
    assert {"ops-1", "ops-2"} <= set(listed["keys"]) and not listed["truncated"], listed
    first = call("GET", "user", list="", max_entries=1, compare=False)
    assert first["truncated"] and first["count"] == 1
    second = call("GET", "user", list="", max_entries=1000, marker=first["marker"], compare=False)
    assert sorted(first["keys"] + second["keys"]) == sorted(listed["keys"])
    info = call("GET", "user", access_key="AKops-2")
    assert info["user_id"] == "ops-2"
    call("DELETE", "user", uid="ops-2")
    call("DELETE", "user", "NoSuchUser", uid="ops-2")
    tenant = call("PUT", "user", uid="ops-3", tenant="ten", display_name="x")
    assert tenant["full_user_id"] == "ten$ops-3" and tenant["tenant"] == "ten"
    assert call("GET", "user", uid="ten$ops-3")["user_id"] == "ops-3"
    call("DELETE", "user", uid="ten$ops-3")
    call("DELETE", "user", uid="ops-1")


def keys():
    user("ops-k")
    made = call("PUT", "user", key="", uid="ops-k", access_key="AK2", secret_key="SK2")
    assert {k["access_key"] for k in made} == {"AKops-k", "AK2"}
    s3(("AK2", "SK2")).list_buckets()
    assert len(call("PUT", "user", key="", uid="ops-k")) == 3
    call("PUT", "user", "KeyExists", key="", uid=ADMIN, access_key="AK2", secret_key="x")
    call("PUT", "user", "NoSuchUser", key="", uid="none")
    call("DELETE", "user", key="", uid="ops-k", access_key="AK2")
    refused(s3(("AK2", "SK2")).list_buckets, 403)
    call("DELETE", "user", "InvalidAccessKeyId", key="", uid="ops-k", access_key="AK2")
    call("DELETE", "user", "InvalidArgument", key="", access_key="AK2")
    call("DELETE", "user", key="", access_key="AKops-k")
    made = call("PUT", "user", subuser="sub", uid="ops-k", access="full", key_type="swift", generate_secret="true")
    assert made == [{"id": "ops-k:sub", "permissions": "full-control"}]
    made = call("PUT", "user", subuser="ops-k:two", uid="ops-k", access="readwrite", key_type="s3", access_key="AKS", secret_key="s")
    assert [m["permissions"] for m in made] == ["full-control", "read-write"]
    info = call("GET", "user", uid="ops-k")
    assert [k["user"] for k in info["swift_keys"]] == ["ops-k:sub"] and "ops-k:two" in [k["user"] for k in info["keys"]]
    assert call("POST", "user", subuser="sub", uid="ops-k", access="read")[0]["permissions"] == "read"
    made = call("PUT", "user", key="", uid="ops-k", subuser="ops-k:sub", key_type="swift", secret_key="xx")
    assert made == [{"user": "ops-k:sub", "secret_key": "xx", "active": True}]
    call("DELETE", "user", key="", uid="ops-k", subuser="ops-k:sub", key_type="swift")
    call("POST", "user", "NoSuchSubUser", subuser="none", uid="ops-k", access="read")
    for name in "sub", "two":
        call("DELETE", "user", subuser=name, uid="ops-k")
    call("DELETE", "user", "NoSuchSubUser", subuser="sub", uid="ops-k")
    info = call("GET", "user", uid="ops-k")
    assert info["swift_keys"] == [] and info["subusers"] == [] and "AKS" not in [k["access_key"] for k in info["keys"]]
    call("DELETE", "user", uid="ops-k")


def caps():
    """A user may what its caps say, and no more; anonymous users nothing."""
    user("ops-c")
    its = ("AKops-c", "SKops-c")
    calls = [("GET", "user", {"uid": "ops-c"}), ("GET", "bucket", {}), ("GET", "usage", {}), ("GET", "metadata/user", {}), ("GET", "info", {}),
             ("GET", "ratelimit", {"global": "true"}), ("GET", "config", {"type": "zone"}), ("PUT", "user", {"uid": "x", "display-name": "x"}),
             ("DELETE", "user", {"uid": "ops-c"}), ("DELETE", "usage", {"remove-all": "true"}), ("POST", "account", {"name": "x"}),
             ("DELETE", "bucket", {"bucket": "x"}), ("POST", "ratelimit", {"global": "true", "ratelimit-scope": "user"})]
    for method, path, params in calls:
        assert send(ENDPOINT, method, f"/admin/{path}", params, keys=its)[0] == 403, (method, path)
        assert send(ENDPOINT, method, f"/admin/{path}", params, keys=None)[0] == 403, (method, path)
    made = call("PUT", "user", caps="", uid="ops-c", user_caps="buckets=*;users=read")
    assert made == [{"type": "buckets", "perm": "*"}, {"type": "users", "perm": "read"}]
    assert call("GET", "user", keys=its, uid="ops-c")["keys"]
    call("POST", "user", "AccessDenied", keys=its, uid="ops-c", display_name="x")
    call("PUT", "user", "AccessDenied", keys=its, caps="", uid="ops-c", user_caps="users=*")
    made = call("DELETE", "user", caps="", uid="ops-c", user_caps="buckets=write;users=read")
    assert made == [{"type": "buckets", "perm": "read"}]
    call("GET", "user", "AccessDenied", keys=its, uid="ops-c")
    call("DELETE", "bucket", "AccessDenied", keys=its, bucket="none")
    call("PUT", "user", caps="", uid="ops-c", user_caps="user-info-without-keys=read")
    assert "keys" not in call("GET", "user", keys=its, uid="ops-c")
    for bad in "nonsense=read", "":
        call("PUT", "user", 400, caps="", uid="ops-c", user_caps=bad)
    call("PUT", "user", "NoSuchUser", caps="", uid="none", user_caps="users=read")
    call("GET", "metadata/user", "AccessDenied", keys=its, myself="")
    call("PUT", "user", caps="", uid="ops-c", user_caps="metadata=read")
    own = call("GET", "metadata/user", keys=its, myself="")
    assert own["data"]["user_id"] == "ops-c"
    call("DELETE", "user", uid="ops-c")


def quotas():
    user("ops-q")
    none = {"enabled": False, "check_on_raw": False, "max_size": -1, "max_size_kb": 0, "max_objects": -1}
    assert call("GET", "user", quota="", uid="ops-q") == {"bucket_quota": none, "user_quota": none}
    call("PUT", "user", quota="", uid="ops-q", quota_type="user", max_objects=5, max_size_kb=9, enabled="true")
    got = call("GET", "user", quota="", uid="ops-q", quota_type="user")
    assert got == {"enabled": True, "check_on_raw": False, "max_size": 9216, "max_size_kb": 9, "max_objects": 5}
    call("PUT", "user", body=b'{"enabled":true,"max_size_kb":10,"max_objects":1}', quota="", uid="ops-q", quota_type="bucket")
    assert call("GET", "user", quota="", uid="ops-q", quota_type="bucket")["max_objects"] == 1
    its = s3(("AKops-q", "SKops-q"))
    its.create_bucket(Bucket="ops-q")
    its.put_object(Bucket="ops-q", Key="a", Body=b"1")
    refused(lambda: its.put_object(Bucket="ops-q", Key="b", Body=b"1"), "QuotaExceeded")
    both = b'{"user_quota":{"enabled":true,"max_size":1000,"max_objects":3},"bucket_quota":{"enabled":false,"max_objects":4}}'
    call("PUT", "user", body=both, quota="", uid="ops-q")
    assert call("GET", "user", quota="", uid="ops-q")["user_quota"]["max_size"] == 1000
    call("PUT", "user", 400, quota="", uid="ops-q", quota_type="nonsense", max_objects=4)
    call("PUT", "user", "NoSuchUser", quota="", uid="none", quota_type="user", max_objects=4)
    call("GET", "user", "NoSuchUser", quota="", uid="none")
    call("PUT", "bucket", quota="", uid="ops-q", bucket="ops-q", max_objects=9, enabled="true")
    assert call("GET", "bucket", bucket="ops-q")["bucket_quota"]["max_objects"] == 9
    call("PUT", "bucket", 400, quota="", bucket="ops-q", max_objects=9)
    call("PUT", "bucket", "NoSuchKey", quota="", uid="ops-q", bucket="none", max_objects=9)
    call("DELETE", "user", 409, uid="ops-q")
    call("DELETE", "user", uid="ops-q", purge_data="true")
    call("GET", "bucket", "NoSuchBucket", bucket="ops-q")


def buckets():
    for name in "ops-a", "ops-b":
        user(name)
    its = s3(("AKops-a", "SKops-a"))
    its.create_bucket(Bucket="ops-1")
    its.put_object(Bucket="ops-1", Key="k", Body=b"hello")
    its.create_bucket(Bucket="ops-2", ObjectLockEnabledForBucket=True)
    its.put_object(Bucket="ops-2", Key="k", Body=b"hello")
    its.put_object(Bucket="ops-2", Key="k", Body=b"again")
    got = call("GET", "bucket", bucket="ops-1", stats="true")
    assert (got["owner"], got["num_shards"], got["versioning"], got["object_lock_enabled"]) == ("ops-a", 11, "off", False)
    assert got["usage"]["rgw.main"]["num_objects"] == 1 and got["usage"]["rgw.main"]["size_actual"] == 4096
    stats = json.loads(admin("bucket", "stats", "--bucket", "ops-1"))
    for name in "id", "marker", "usage", "ver", "placement_rule", "creation_time":
        assert stats[name] == got[name], name
    assert call("GET", "bucket", bucket="ops-2")["versioning"] == "enabled"
    assert call("GET", "bucket", uid="ops-a") == ["ops-1", "ops-2"]
    assert [b["bucket"] for b in call("GET", "bucket", uid="ops-a", stats="true")] == ["ops-1", "ops-2"]
    assert {"ops-1", "ops-2"} <= set(call("GET", "bucket"))
    assert call("GET", "user", uid="ops-a", stats="true", compare=False)["stats"]["num_objects"] >= 0
    call("GET", "bucket", "NoSuchBucket", bucket="none")
    policy = call("GET", "bucket", policy="", bucket="ops-1")
    assert policy["owner"] == {"id": "ops-a", "display_name": "The ops-a"} and policy["acl"]["acl_user_map"] == [{"user": "ops-a", "acl": 15}]
    call("GET", "bucket", policy="", bucket="ops-1", object="k")
    call("GET", "bucket", "NoSuchKey", policy="", bucket="ops-1", object="none")
    # Another owner, at once.
    its.list_objects_v2(Bucket="ops-1")
    call("PUT", "bucket", uid="ops-b", bucket="ops-1")
    refused(lambda: its.list_objects_v2(Bucket="ops-1"), "AccessDenied")
    assert s3(("AKops-b", "SKops-b")).list_objects_v2(Bucket="ops-1")["KeyCount"] == 1
    assert call("GET", "bucket", uid="ops-b") == ["ops-1"] and call("GET", "bucket", uid="ops-a") == ["ops-2"]
    assert json.loads(admin("bucket", "stats", "--bucket", "ops-1"))["owner"] == "ops-b"
    call("PUT", "bucket", "NoSuchKey", uid="none", bucket="ops-1")
    call("PUT", "bucket", "NoSuchKey", uid="ops-a", bucket="none")
    call("POST", "bucket", uid="ops-b", bucket="ops-1")
    assert call("GET", "bucket", uid="ops-b") == [] and call("GET", "bucket", bucket="ops-1")["owner"] == "ops-b"
    call("PUT", "bucket", uid="ops-b", bucket="ops-1")
    entry = call("GET", "metadata/bucket", key="ops-1")
    assert entry["data"]["owner"] == "ops-b" and entry["data"]["linked"]
    call("DELETE", "bucket", "BucketNotEmpty", bucket="ops-1")
    call("DELETE", "bucket", "NoSuchKey", object="none", bucket="ops-1")
    call("DELETE", "bucket", object="k", bucket="ops-1")
    call("DELETE", "bucket", bucket="ops-1")
    call("DELETE", "bucket", "NoSuchBucket", bucket="ops-1")
    call("DELETE", "bucket", bucket="ops-2", purge_objects="true")
    for name in "ops-a", "ops-b":
        call("DELETE", "user", uid=name)


def usage():
    user("ops-u")
    its = s3(("AKops-u", "SKops-u"))
    its.create_bucket(Bucket="ops-u")
    its.put_object(Bucket="ops-u", Key="k", Body=b"12345")
    def puts():
        got = call("GET", "usage", uid="ops-u", compare=False)
        return [c for e in got["entries"] for b in e["buckets"] for c in b["categories"] if c["category"] == "put_obj"]
    end = time.time() + 60
    while not puts():
        assert time.time() < end, "nothing was logged"
        time.sleep(0.5)
    assert puts() == [{"category": "put_obj", "bytes_sent": 0, "bytes_received": 5, "ops": 1, "successful_ops": 1}], puts()
    got = call("GET", "usage", uid="ops-u", show_entries="false", categories="put_obj")
    assert "entries" not in got and got["summary"][0]["total"]["ops"] == 1
    assert call("GET", "usage", uid="ops-u", start="2020-01-01", end="2020-01-02 03:04:05") == {"entries": [], "summary": []}
    assert call("GET", "usage", uid="nobody") == {"entries": [], "summary": []}
    call("DELETE", "usage", 400)
    call("DELETE", "usage", uid="ops-u")
    assert not puts()
    call("DELETE", "user", uid="ops-u", purge_data="true")


def limits():
    user("ops-l")
    its = s3(("AKops-l", "SKops-l"))
    its.create_bucket(Bucket="ops-l")
    its.put_object(Bucket="ops-l", Key="k", Body=b"1")
    off = {"max_read_ops": 0, "max_write_ops": 0, "max_read_bytes": 0, "max_write_bytes": 0, "enabled": False}
    assert call("GET", "ratelimit", ratelimit_scope="user", uid="ops-l") == {"user_ratelimit": off}
    call("POST", "ratelimit", ratelimit_scope="user", uid="ops-l", max_read_ops=3, enabled="true")
    assert call("GET", "ratelimit", ratelimit_scope="user", uid="ops-l")["user_ratelimit"] == off | {"max_read_ops": 3, "enabled": True}
    assert json.loads(admin("ratelimit", "get", "--ratelimit-scope", "user", "--uid", "ops-l"))["user_ratelimit"]["max_read_ops"] == 3
    refused(lambda: [its.head_object(Bucket="ops-l", Key="k") for _ in range(5)], 503)
    its.put_object(Bucket="ops-l", Key="k", Body=b"1")
    call("POST", "ratelimit", ratelimit_scope="user", uid="ops-l", enabled="false")
    [its.head_object(Bucket="ops-l", Key="k") for _ in range(5)]
    admin("ratelimit", "set", "--ratelimit-scope", "bucket", "--bucket", "ops-l", "--max-write-ops", "2")
    admin("ratelimit", "enable", "--ratelimit-scope", "bucket", "--bucket", "ops-l")
    assert call("GET", "ratelimit", ratelimit_scope="bucket", bucket="ops-l")["bucket_ratelimit"] == off | {"max_write_ops": 2, "enabled": True}
    refused(lambda: [its.put_object(Bucket="ops-l", Key="k", Body=b"1") for _ in range(4)], "SlowDown")
    its.head_object(Bucket="ops-l", Key="k")
    call("POST", "ratelimit", ratelimit_scope="bucket", bucket="ops-l", enabled="false")
    its.put_object(Bucket="ops-l", Key="k", Body=b"1")
    call("POST", "ratelimit", **{"global": "true"}, ratelimit_scope="anon", max_read_ops=1000)
    assert call("GET", "ratelimit", **{"global": "true"}, compare=False)["anonymous_ratelimit"]["max_read_ops"] == 1000
    call("POST", "ratelimit", **{"global": "true"}, ratelimit_scope="anon", max_read_ops=0)
    for params in {}, {"ratelimit_scope": "nonsense", "uid": "ops-l"}:
        call("GET", "ratelimit", "InvalidArgument", **params)
    call("GET", "ratelimit", "NoSuchKey", ratelimit_scope="user", uid="none")
    call("DELETE", "user", uid="ops-l", purge_data="true")


def accounts():
    id = "RGW00000000000000077"
    made = call("POST", "account", id=id, name="ops", email="ops@acc", max_users=1)
    assert made["id"] == id and made["max_users"] == 1 and made["max_access_keys"] == 4
    assert call("GET", "account", name="ops") == call("GET", "account", id=id) == made
    assert json.loads(admin("account", "get", "--account-name", "ops"))["id"] == id
    call("POST", "account", "AccountAlreadyExists", id=id, name="x")
    call("POST", "account", "AccountAlreadyExists", name="ops")
    call("POST", "account", "InvalidArgument", id="bad", name="x")
    call("PUT", "account", "NoSuchKey", id="RGW00000000000000078", name="x")
    assert call("PUT", "account", id=id, name="renamed", max_buckets=4)["max_buckets"] == 4
    call("GET", "account", "NoSuchKey", name="ops")
    got = call("PUT", "account", quota="", id=id, quota_type="account", max_objects=9, enabled="true")
    assert got["quota"]["max_objects"] == 9 and got["quota"]["enabled"]
    root = call("PUT", "user", uid="ops-root", display_name="root", account_id=id, account_root="true", access_key="AKroot", secret_key="SKroot")
    assert root["type"] == "root" and root["account_id"] == id
    s3(("AKroot", "SKroot")).create_bucket(Bucket="ops-acc")
    assert call("GET", "bucket", bucket="ops-acc")["owner"] == id
    assert [u["user_id"] for u in [json.loads(admin("user", "info", "--uid", "ops-root"))]] == ["ops-root"]
    call("DELETE", "account", "BucketNotEmpty", id=id)
    call("DELETE", "bucket", bucket="ops-acc")
    call("DELETE", "user", uid="ops-root")
    assert call("GET", "metadata/account", key=id)["data"]["name"] == "renamed"
    call("DELETE", "account", id=id)
    call("DELETE", "account", "NoSuchKey", id=id)


def metadata():
    user("ops-m")
    got = call("GET", "metadata/user", key="ops-m")
    assert got["key"] == "user:ops-m" and got["data"]["keys"][0]["access_key"] == "AKops-m" and got["ver"]["ver"] >= 1
    theirs = json.loads(admin("metadata", "get", "user:ops-m"))
    assert plain(theirs) == plain(got), (theirs, got)
    assert "ops-m" in call("GET", "metadata/user")
    assert {"user", "bucket", "account"} <= set(call("GET", "metadata", compare=False))
    call("GET", "metadata/nonsense", "NoSuchKey")
    call("GET", "metadata/user", "NoSuchKey", key="none")
    zone = call("GET", "config", type="zone")
    assert zone["name"] == "default" and zone["placement_pools"][0]["key"] == "default-placement"
    assert call("GET", "info")["info"]["storage_backends"][0]["name"] == "rados"
    for path in "bogus", "":
        call("GET", path, "MethodNotAllowed")
    call("DELETE", "user", uid="ops-m")


def signing():
    """go-ceph signs an unsigned payload and sends no header that says so."""
    assert send(ENDPOINT, "GET", "/admin/info", {}, with_sum=False)[0] == 200
    assert send(ENDPOINT, "GET", "/admin/info", {}, keys=(ACCESS, "wrong"), with_sum=False)[0] == 403
    assert send(ENDPOINT, "GET", "/admin/info", {}, keys=("NONE", "x"))[0] == 403


def refused(work, code):
    try:
        work()
    except boto3.exceptions.Boto3Error:
        raise
    except Exception as error:
        got = error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"]
        assert code in got, (code, got)
        return
    raise AssertionError(f"it should have been refused with {code}")


ADMIN = "ops-admin"
CASES = [users, keys, caps, quotas, buckets, usage, limits, accounts, metadata, signing]


def main():
    failed = []
    # What a run that failed left behind.
    for name in [n for n in call("GET", "user", list="", compare=False)["keys"] if n.startswith("ops-") and n != ADMIN]:
        call("DELETE", "user", uid=name, purge_data="true")
    for case in CASES:
        try:
            case()
        except Exception as error:  # shown, and the next case runs
            traceback.print_exc()
            failed.append(f"{case.__name__}: {error}")
    print(f"{len(CASES) - len(failed)} of {len(CASES)} cases of the Admin API passed")
    for line in failed:
        print("FAILED", line)
    sys.exit(bool(failed))


main()
