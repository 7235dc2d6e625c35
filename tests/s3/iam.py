"""Roles, policies, users of accounts and sessions, by boto3's clients of IAM and STS, against any gateway.

iam.py ENDPOINT [OTHER]: a gateway with rgw_sts_key. It makes an account by radosgw-admin, and users whose keys it knows. With OTHER, a
second gateway of the same cluster obeys what the first one was told.
"""

import json
import subprocess
import sys
import time
import traceback

import boto3
from botocore import UNSIGNED
from botocore.client import Config
from botocore.exceptions import ClientError

ENDPOINT = sys.argv[1]
OTHER = sys.argv[2] if len(sys.argv) > 2 else None
ACCOUNT = "RGW00000000000000066"
TRUST = json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": {"AWS": ["*"]}, "Action": ["sts:AssumeRole"]}]})


def client(service, keys=("KEYiam", "secret/iam"), token=None, endpoint=ENDPOINT, **config):
    return boto3.client(service, endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id=keys[0], aws_secret_access_key=keys[1],
                        aws_session_token=token, config=Config(retries={"max_attempts": 1}, s3={"addressing_style": "path"}, **config))


def admin(*words, check=True):
    done = subprocess.run(["radosgw-admin", *words], check=check, capture_output=True)
    return json.loads(done.stdout) if done.stdout.strip()[:1] in (b"{", b"[") else None


def policy(effect, actions, resources="*"):
    return json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": effect, "Action": actions, "Resource": resources}]})


def fails(code, call, /, **args):
    try:
        call(**args)
    except ClientError as error:
        got = error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"]
        assert code in got, f"{call.__name__}: wanted {code}, got {got}"
        return
    raise AssertionError(f"{call.__name__} should have failed with {code}")


def session(keys, arn, **args):
    """S3 by a role's temporary key."""
    got = client("sts", keys).assume_role(RoleArn=arn, RoleSessionName="session", **args)
    return of(got["Credentials"])


def of(found, endpoint=ENDPOINT, service="s3"):
    return client(service, (found["AccessKeyId"], found["SecretAccessKey"]), found["SessionToken"], endpoint=endpoint)


ROOT, MAIN, STRANGER = ("KEYiamroot", "secret/iamroot"), ("KEYiam", "secret/iam"), ("KEYiamother", "secret/iamother")


def prepare():
    admin("account", "create", "--account-id", ACCOUNT, "--account-name", "iam")
    admin("user", "create", "--uid", "iam-root", "--display-name", "iamroot", "--account-id", ACCOUNT, "--account-root", "--access-key", ROOT[0], "--secret-key", ROOT[1])
    admin("user", "create", "--uid", "iam-main", "--display-name", "main", "--access-key", MAIN[0], "--secret-key", MAIN[1], "--caps", "roles=*;user-policy=*")
    admin("user", "create", "--uid", "iam-other", "--display-name", "other", "--access-key", STRANGER[0], "--secret-key", STRANGER[1])


def clean():
    for iam in client("iam", ROOT), client("iam", MAIN):
        try:
            left = iam.list_roles()["Roles"]
        except ClientError as error:  # stock, where no role was ever left
            assert error.response["Error"]["Code"] == "NoSuchEntity", error
            left = []
        for role in left:
            name = role["RoleName"]
            for one in iam.list_role_policies(RoleName=name)["PolicyNames"]:
                iam.delete_role_policy(RoleName=name, PolicyName=one)
            iam.delete_role(RoleName=name)
    for uid in "iam-main", "iam-other", "iam-root":
        admin("user", "rm", "--uid", uid, "--purge-data")
    admin("account", "rm", "--account-id", ACCOUNT)


def roles():
    for keys, account in (ROOT, ACCOUNT), (MAIN, ""):
        iam = client("iam", keys)
        made = iam.create_role(RoleName="Reader", Path="/app/", AssumeRolePolicyDocument=TRUST, Description="d", MaxSessionDuration=7200,
                               Tags=[{"Key": "a", "Value": "b"}])["Role"]
        assert made["Arn"] == f"arn:aws:iam::{account}:role/app/Reader" and made["MaxSessionDuration"] == 7200, made
        fails("EntityAlreadyExists", iam.create_role, RoleName="Reader", AssumeRolePolicyDocument=TRUST)
        fails("MalformedPolicyDocument", iam.create_role, RoleName="Bad", AssumeRolePolicyDocument="junk")
        got = iam.get_role(RoleName="Reader")["Role"]
        assert (got["RoleId"], got["Path"], got["Description"]) == (made["RoleId"], "/app/", "d"), got
        assert [r["RoleName"] for r in iam.list_roles()["Roles"]] == ["Reader"]
        assert iam.list_roles(PathPrefix="/none/")["Roles"] == []
        words = ["--account-id", account] if account else []
        seen = admin("role", "get", "--role-name", "Reader", *words)
        assert seen["RoleId"] == made["RoleId"] and seen["Arn"] == made["Arn"], seen
        iam.put_role_policy(RoleName="Reader", PolicyName="P", PolicyDocument=policy("Allow", "s3:Get*"))
        assert iam.list_role_policies(RoleName="Reader")["PolicyNames"] == ["P"]
        assert iam.get_role_policy(RoleName="Reader", PolicyName="P")["PolicyDocument"]["Statement"][0]["Action"] == "s3:Get*"
        fails("NoSuchEntity", iam.get_role_policy, RoleName="Reader", PolicyName="none")
        iam.update_role(RoleName="Reader", Description="e", MaxSessionDuration=3600)
        assert iam.get_role(RoleName="Reader")["Role"]["Description"] == "e"
        iam.update_assume_role_policy(RoleName="Reader", PolicyDocument=TRUST)
        iam.tag_role(RoleName="Reader", Tags=[{"Key": "c", "Value": "d"}])
        assert admin("role", "get", "--role-name", "Reader", *words)["Tags"] == [{"Key": "a", "Value": "b"}, {"Key": "c", "Value": "d"}]
        iam.untag_role(RoleName="Reader", TagKeys=["a"])
        fails("DeleteConflict", iam.delete_role, RoleName="Reader")
        iam.delete_role_policy(RoleName="Reader", PolicyName="P")
        fails("NoSuchEntity", iam.delete_role_policy, RoleName="Reader", PolicyName="P")
        read = "arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess"
        if account:
            iam.attach_role_policy(RoleName="Reader", PolicyArn=read)
            assert [p["PolicyArn"] for p in iam.list_attached_role_policies(RoleName="Reader")["AttachedPolicies"]] == [read]
            fails("DeleteConflict", iam.delete_role, RoleName="Reader")
            iam.detach_role_policy(RoleName="Reader", PolicyArn=read)
        else:
            fails("MethodNotAllowed", iam.attach_role_policy, RoleName="Reader", PolicyArn=read)
        fails("NoSuchEntity", iam.get_role, RoleName="none")
        iam.delete_role(RoleName="Reader")
        fails("NoSuchEntity", iam.get_role, RoleName="Reader")
        # What the tool makes, the gateway knows.
        admin("role", "create", "--role-name", "Tool", "--assume-role-policy-doc", TRUST, *words)
        assert iam.get_role(RoleName="Tool")["Role"]["RoleName"] == "Tool"
        iam.delete_role(RoleName="Tool")
    stranger = client("iam", STRANGER)
    iam.create_role(RoleName="Hidden", AssumeRolePolicyDocument=TRUST)
    for call, args in (stranger.list_roles, {}), (stranger.get_role, {"RoleName": "Hidden"}), (stranger.delete_role, {"RoleName": "Hidden"}), \
            (stranger.create_role, {"RoleName": "x", "AssumeRolePolicyDocument": TRUST}), \
            (stranger.put_user_policy, {"UserName": "iam-other", "PolicyName": "P", "PolicyDocument": policy("Allow", "*")}):
        fails("AccessDenied", call, **args)
    iam.delete_role(RoleName="Hidden")
    fails(403, client("iam", signature_version=UNSIGNED).list_roles)
    fails(403, client("iam", (MAIN[0], "wrong")).list_roles)


def sessions():
    """Temporary keys do what their role may, and what their own policy leaves of it; no longer, and nothing else."""
    iam, s3 = client("iam", MAIN), client("s3", MAIN)
    s3.create_bucket(Bucket="iam-1")
    s3.put_object(Bucket="iam-1", Key="k", Body=b"1")
    arn = iam.create_role(RoleName="Reader", AssumeRolePolicyDocument=TRUST)["Role"]["Arn"]
    iam.put_role_policy(RoleName="Reader", PolicyName="P", PolicyDocument=policy("Allow", ["s3:GetObject", "s3:ListBucket"]))
    its = session(STRANGER, arn)
    assert its.get_object(Bucket="iam-1", Key="k")["Body"].read() == b"1" and its.list_objects_v2(Bucket="iam-1")["KeyCount"] == 1
    fails("AccessDenied", its.put_object, Bucket="iam-1", Key="k", Body=b"2")
    fails("AccessDenied", its.delete_object, Bucket="iam-1", Key="k")
    fails("AccessDenied", client("s3", STRANGER).get_object, Bucket="iam-1", Key="k")
    less = session(STRANGER, arn, Policy=policy("Allow", "s3:ListBucket"))
    assert less.list_objects_v2(Bucket="iam-1")["KeyCount"] == 1
    fails("AccessDenied", less.get_object, Bucket="iam-1", Key="k")
    more = session(STRANGER, arn, Policy=policy("Allow", "s3:*"))
    fails("AccessDenied", more.put_object, Bucket="iam-1", Key="k", Body=b"2")
    iam.put_role_policy(RoleName="Reader", PolicyName="D", PolicyDocument=policy("Deny", "s3:GetObject"))
    fails("AccessDenied", its.get_object, Bucket="iam-1", Key="k")
    iam.delete_role_policy(RoleName="Reader", PolicyName="D")
    sts = client("sts", STRANGER)
    fails(400, sts.assume_role, RoleArn=arn, RoleSessionName="session", DurationSeconds=3601)
    fails("NoSuchEntity", sts.assume_role, RoleArn=arn + "x", RoleSessionName="session")
    got = sts.assume_role(RoleArn=arn, RoleSessionName="session", DurationSeconds=900)
    assert got["AssumedRoleUser"]["Arn"] == arn.replace(":iam:", ":sts:").replace(":role/", ":assumed-role/") + "/session", got["AssumedRoleUser"]
    left = got["Credentials"]["Expiration"].timestamp() - time.time()
    assert 800 < left <= 901, left
    # A token is for its own key, and whole.
    found = got["Credentials"]
    fails(403, of(found | {"SecretAccessKey": "x" * 40}).list_objects_v2, Bucket="iam-1")
    changed = found["SessionToken"][:-10] + ("A" if found["SessionToken"][-10] != "A" else "B") + found["SessionToken"][-9:]
    for bad in found | {"SessionToken": changed}, found | {"SessionToken": "junk"}, found | {"AccessKeyId": MAIN[0], "SecretAccessKey": MAIN[1]}:
        try:
            of(bad).list_objects_v2(Bucket="iam-1")
        except ClientError as error:
            assert error.response["ResponseMetadata"]["HTTPStatusCode"] in (400, 403), error
        else:
            raise AssertionError("a token that is none was taken")
    # By trust: only who is named may.
    named = json.dumps({"Statement": [{"Effect": "Allow", "Principal": {"AWS": ["arn:aws:iam:::user/iam-main"]}, "Action": ["sts:AssumeRole"]}], "Version": "2012-10-17"})
    iam.update_assume_role_policy(RoleName="Reader", PolicyDocument=named)
    fails("AccessDenied", sts.assume_role, RoleArn=arn, RoleSessionName="session")
    assert session(MAIN, arn).get_object(Bucket="iam-1", Key="k")["Body"].read() == b"1"
    # In a policy of the bucket, the role is a principal.
    s3.put_bucket_policy(Bucket="iam-1", Policy=json.dumps({"Version": "2012-10-17", "Statement": [
        {"Effect": "Deny", "Principal": {"AWS": [arn]}, "Action": "s3:GetObject", "Resource": "arn:aws:s3:::iam-1/*"}]}))
    fails("AccessDenied", session(MAIN, arn).get_object, Bucket="iam-1", Key="k")
    assert s3.get_object(Bucket="iam-1", Key="k")["Body"].read() == b"1"
    s3.delete_bucket_policy(Bucket="iam-1")
    its = session(MAIN, arn)
    iam.delete_role_policy(RoleName="Reader", PolicyName="P")
    fails("AccessDenied", its.get_object, Bucket="iam-1", Key="k")
    iam.delete_role(RoleName="Reader")
    try:
        its.get_object(Bucket="iam-1", Key="k")
        raise AssertionError("a session outlived its role")
    except ClientError as error:
        assert error.response["ResponseMetadata"]["HTTPStatusCode"] in (400, 403, 404), error
    # A user's own session may what the user may, but no calls of IAM by caps.
    fails("AccessDenied", client("sts", STRANGER).get_session_token)
    got = client("sts", ROOT).get_session_token()["Credentials"]
    of(got).create_bucket(Bucket="iam-2")
    assert [b["Name"] for b in client("s3", ROOT).list_buckets()["Buckets"]] == ["iam-2"]
    client("s3", ROOT).delete_bucket(Bucket="iam-2")
    s3.delete_object(Bucket="iam-1", Key="k")
    s3.delete_bucket(Bucket="iam-1")


def account_roles():
    """A role of an account acts for the account."""
    iam, s3 = client("iam", ROOT), client("s3", ROOT)
    s3.create_bucket(Bucket="iam-3")
    arn = iam.create_role(RoleName="Maker", Path="/ops/", AssumeRolePolicyDocument=TRUST)["Role"]["Arn"]
    iam.put_role_policy(RoleName="Maker", PolicyName="P", PolicyDocument=policy("Allow", "s3:*"))
    its = session(ROOT, arn)
    its.put_object(Bucket="iam-3", Key="k", Body=b"1")
    assert s3.get_object_acl(Bucket="iam-3", Key="k")["Owner"]["ID"] == ACCOUNT
    iam.attach_role_policy(RoleName="Maker", PolicyArn="arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess")
    iam.delete_role_policy(RoleName="Maker", PolicyName="P")
    assert its.get_object(Bucket="iam-3", Key="k")["Body"].read() == b"1"
    fails("AccessDenied", its.put_object, Bucket="iam-3", Key="k", Body=b"2")
    iam.detach_role_policy(RoleName="Maker", PolicyArn="arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess")
    iam.delete_role(RoleName="Maker")
    s3.delete_object(Bucket="iam-3", Key="k")
    s3.delete_bucket(Bucket="iam-3")


def user_policies():
    iam, s3, its = client("iam", MAIN), client("s3", MAIN), client("s3", STRANGER)
    s3.create_bucket(Bucket="iam-4")
    s3.put_object(Bucket="iam-4", Key="k", Body=b"1")
    fails("AccessDenied", its.get_object, Bucket="iam-4", Key="k")
    iam.put_user_policy(UserName="iam-other", PolicyName="P", PolicyDocument=policy("Allow", "s3:GetObject", "arn:aws:s3:::iam-4/*"))
    assert its.get_object(Bucket="iam-4", Key="k")["Body"].read() == b"1"
    if OTHER:
        assert client("s3", STRANGER, endpoint=OTHER).get_object(Bucket="iam-4", Key="k")["Body"].read() == b"1"
    assert iam.list_user_policies(UserName="iam-other")["PolicyNames"] == ["P"]
    assert iam.get_user_policy(UserName="iam-other", PolicyName="P")["PolicyDocument"]["Statement"][0]["Action"] == "s3:GetObject"
    fails("MalformedPolicyDocument", iam.put_user_policy, UserName="iam-other", PolicyName="P", PolicyDocument="junk")
    iam.delete_user_policy(UserName="iam-other", PolicyName="P")
    fails("AccessDenied", its.get_object, Bucket="iam-4", Key="k")
    fails("NoSuchEntity", iam.get_user_policy, UserName="iam-other", PolicyName="P")
    fails("NoSuchEntity", iam.get_user_policy, UserName="nobody", PolicyName="P")
    fails("MethodNotAllowed", iam.create_user, UserName="x")
    s3.delete_object(Bucket="iam-4", Key="k")
    s3.delete_bucket(Bucket="iam-4")


def account_users():
    iam = client("iam", ROOT)
    made = iam.create_user(UserName="ann", Path="/d/")["User"]
    assert made["Arn"] == f"arn:aws:iam::{ACCOUNT}:user/d/ann", made
    fails("EntityAlreadyExists", iam.create_user, UserName="Ann")
    assert iam.get_user(UserName="ann")["User"]["UserId"] == made["UserId"]
    for call in iam.get_user, iam.create_access_key, iam.delete_user:
        fails("NoSuchEntity", call, UserName="iamroot")
    assert iam.get_user()["User"]["Arn"] == f"arn:aws:iam::{ACCOUNT}:root"
    assert [u["UserName"] for u in iam.list_users()["Users"]] == ["ann"] and iam.list_users(PathPrefix="/x/")["Users"] == []
    assert admin("user", "info", "--uid", made["UserId"])["account_id"] == ACCOUNT
    iam.update_user(UserName="ann", NewUserName="anne", NewPath="/e/")
    assert iam.get_user(UserName="anne")["User"]["Path"] == "/e/"
    fails("NoSuchEntity", iam.get_user, UserName="ann")
    key = iam.create_access_key(UserName="anne")["AccessKey"]
    keys = (key["AccessKeyId"], key["SecretAccessKey"])
    assert [(k["AccessKeyId"], k["Status"]) for k in iam.list_access_keys(UserName="anne")["AccessKeyMetadata"]] == [(keys[0], "Active")]
    client("s3", ROOT).create_bucket(Bucket="iam-5")
    fails("AccessDenied", client("s3", keys).list_objects_v2, Bucket="iam-5")
    iam.put_user_policy(UserName="anne", PolicyName="P", PolicyDocument=policy("Allow", "s3:ListBucket"))
    client("s3", keys).list_objects_v2(Bucket="iam-5")
    fails("AccessDenied", client("iam", keys).list_users)
    fails("AccessDenied", client("iam", keys).create_access_key, UserName="anne")
    read = "arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess"
    iam.attach_user_policy(UserName="anne", PolicyArn=read)
    assert [p["PolicyArn"] for p in iam.list_attached_user_policies(UserName="anne")["AttachedPolicies"]] == [read]
    client("s3", keys).list_buckets()
    iam.detach_user_policy(UserName="anne", PolicyArn=read)
    fails("AccessDenied", client("s3", keys).list_buckets)
    fails("DeleteConflict", iam.delete_user, UserName="anne")
    iam.update_access_key(UserName="anne", AccessKeyId=keys[0], Status="Inactive")
    fails(403, client("s3", keys).list_objects_v2, Bucket="iam-5")
    iam.delete_access_key(UserName="anne", AccessKeyId=keys[0])
    iam.delete_user_policy(UserName="anne", PolicyName="P")
    iam.delete_user(UserName="anne")
    fails("NoSuchEntity", iam.delete_user, UserName="anne")
    client("s3", ROOT).delete_bucket(Bucket="iam-5")


def groups():
    """Who is in a group may what its policies say."""
    iam, s3 = client("iam", ROOT), client("s3", ROOT)
    s3.create_bucket(Bucket="iam-6")
    iam.create_user(UserName="bob")
    key = iam.create_access_key(UserName="bob")["AccessKey"]
    its = client("s3", (key["AccessKeyId"], key["SecretAccessKey"]))
    made = iam.create_group(GroupName="Staff", Path="/g/")["Group"]
    assert made["Arn"] == f"arn:aws:iam::{ACCOUNT}:group/g/Staff", made
    fails("EntityAlreadyExists", iam.create_group, GroupName="staff")
    iam.put_group_policy(GroupName="Staff", PolicyName="P", PolicyDocument=policy("Allow", "s3:ListBucket"))
    fails("AccessDenied", its.list_objects_v2, Bucket="iam-6")
    iam.add_user_to_group(GroupName="Staff", UserName="bob")
    its.list_objects_v2(Bucket="iam-6")
    if OTHER:
        client("s3", (key["AccessKeyId"], key["SecretAccessKey"]), endpoint=OTHER).list_objects_v2(Bucket="iam-6")
    got = iam.get_group(GroupName="Staff")
    assert got["Group"]["GroupId"] == made["GroupId"] and [u["UserName"] for u in got["Users"]] == ["bob"], got
    assert [g["GroupName"] for g in iam.list_groups()["Groups"]] == ["Staff"]
    assert [g["GroupName"] for g in iam.list_groups_for_user(UserName="bob")["Groups"]] == ["Staff"]
    assert iam.list_group_policies(GroupName="Staff")["PolicyNames"] == ["P"]
    assert iam.get_group_policy(GroupName="Staff", PolicyName="P")["PolicyDocument"]["Statement"][0]["Action"] == "s3:ListBucket"
    iam.put_group_policy(GroupName="Staff", PolicyName="D", PolicyDocument=policy("Deny", "s3:ListBucket"))
    fails("AccessDenied", its.list_objects_v2, Bucket="iam-6")
    iam.delete_group_policy(GroupName="Staff", PolicyName="D")
    iam.delete_group_policy(GroupName="Staff", PolicyName="P")
    fails("NoSuchEntity", iam.delete_group_policy, GroupName="Staff", PolicyName="P")
    read = "arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess"
    iam.attach_group_policy(GroupName="Staff", PolicyArn=read)
    its.list_objects_v2(Bucket="iam-6")
    assert [p["PolicyArn"] for p in iam.list_attached_group_policies(GroupName="Staff")["AttachedPolicies"]] == [read]
    iam.update_group(GroupName="Staff", NewGroupName="Crew")
    assert iam.get_group(GroupName="Crew")["Group"]["GroupId"] == made["GroupId"]
    fails("NoSuchEntity", iam.get_group, GroupName="Staff")
    fails("DeleteConflict", iam.delete_group, GroupName="Crew")
    iam.detach_group_policy(GroupName="Crew", PolicyArn=read)
    fails("DeleteConflict", iam.delete_group, GroupName="Crew")
    iam.remove_user_from_group(GroupName="Crew", UserName="bob")
    fails("AccessDenied", its.list_objects_v2, Bucket="iam-6")
    assert iam.get_group(GroupName="Crew")["Users"] == [] and iam.list_groups_for_user(UserName="bob")["Groups"] == []
    iam.delete_group(GroupName="Crew")
    fails("NoSuchEntity", iam.delete_group, GroupName="Crew")
    iam.delete_access_key(UserName="bob", AccessKeyId=key["AccessKeyId"])
    iam.delete_user(UserName="bob")
    s3.delete_bucket(Bucket="iam-6")


CASES = [roles, sessions, account_roles, user_policies, account_users, groups]


def main():
    chosen = [c for c in CASES if not sys.argv[3:] or c.__name__ in sys.argv[3:]]
    failed = []
    prepare()
    for case in chosen:
        try:
            case()
        except Exception as error:  # shown, and the next case runs
            traceback.print_exc()
            failed.append(f"{case.__name__}: {error}")
    try:
        clean()
    except Exception as error:
        traceback.print_exc()
        failed.append(f"removing what is left: {error}")
    print(f"{len(chosen) - len(failed)} of {len(chosen)} cases of IAM and STS passed")
    for line in failed:
        print("FAILED", line)
    sys.exit(bool(failed))


main()
