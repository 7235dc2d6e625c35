"""Two gateways on one cluster: what one writes, the other reads, lists, copies and removes.

both.py OURS STOCK ACCESS SECRET: leaves the bucket `both` behind, with an object of each kind by each.
"""

import os
import sys

import boto3
from botocore.client import Config

OURS, STOCK, ACCESS, SECRET = sys.argv[1:5]
MIB = 1 << 20


def client(endpoint):
    return boto3.client(
        "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id=ACCESS, aws_secret_access_key=SECRET,
        config=Config(retries={"max_attempts": 1}, s3={"addressing_style": "path"}))


def body(at, key, **args):
    return at.get_object(Bucket="both", Key=key, **args)["Body"].read()


def upload(at, key, parts):
    made = at.create_multipart_upload(Bucket="both", Key=key)["UploadId"]
    done = [{"PartNumber": n, "ETag": at.upload_part(Bucket="both", Key=key, UploadId=made, PartNumber=n, Body=p)["ETag"]}
            for n, p in enumerate(parts, 1)]
    at.complete_multipart_upload(Bucket="both", Key=key, UploadId=made, MultipartUpload={"Parts": done})


def main():
    ours, stock = client(OURS), client(STOCK)
    ours.create_bucket(Bucket="both")
    stock.create_bucket(Bucket="both")
    for name, writer, reader in ("ours", ours, stock), ("stock", stock, ours):
        small, large = os.urandom(1000), os.urandom(9 * MIB + 7)
        parts = [os.urandom(5 * MIB), os.urandom(5 * MIB), b"end"]
        writer.put_object(Bucket="both", Key=f"{name}/small", Body=small, ContentType="text/x", Metadata={"a": "1"}, Tagging="t=u")
        writer.put_object(Bucket="both", Key=f"{name}/large", Body=large)
        writer.put_object(Bucket="both", Key=f"_{name}", Body=b"under")
        upload(writer, f"{name}/parts", parts)
        assert body(reader, f"{name}/small") == small
        assert body(reader, f"{name}/large") == large
        assert body(reader, f"{name}/large", Range="bytes=4194300-4194310") == large[4194300:4194311]
        assert body(reader, f"{name}/parts") == b"".join(parts)
        assert body(reader, f"_{name}") == b"under"
        head = reader.head_object(Bucket="both", Key=f"{name}/small")
        assert head["ContentType"] == "text/x" and head["Metadata"] == {"a": "1"}, head
        tags = reader.get_object_tagging(Bucket="both", Key=f"{name}/small")["TagSet"]
        assert tags == [{"Key": "t", "Value": "u"}], tags
        listed = reader.list_objects_v2(Bucket="both", Prefix=f"{name}/", FetchOwner=True)["Contents"]
        again = writer.list_objects_v2(Bucket="both", Prefix=f"{name}/", FetchOwner=True)["Contents"]
        strip = lambda found: [{k: o[k] for k in ("Key", "ETag", "Size", "Owner", "LastModified")} for o in found]
        assert strip(listed) == strip(again), (listed, again)
        # Each overwrites, copies and removes what the other wrote.
        reader.copy_object(Bucket="both", Key=f"{name}/copy", CopySource={"Bucket": "both", "Key": f"{name}/large"})
        reader.put_object(Bucket="both", Key=f"{name}/large", Body=b"short")
        assert body(writer, f"{name}/copy") == large and body(writer, f"{name}/large") == b"short"
        reader.put_object_acl(Bucket="both", Key=f"{name}/small", ACL="public-read")
        grants = writer.get_object_acl(Bucket="both", Key=f"{name}/small")["Grants"]
        assert len(grants) == 2, grants
        reader.delete_object(Bucket="both", Key=f"{name}/parts")
        assert f"{name}/parts" not in [o["Key"] for o in writer.list_objects_v2(Bucket="both")["Contents"]]
    secret = {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": os.urandom(32)}
    for name, writer, reader in ("ours", ours, stock), ("stock", stock, ours):
        data = os.urandom(9 * MIB + 5)
        writer.put_object(Bucket="both", Key=f"{name}/sealed", Body=data, **secret)
        assert body(reader, f"{name}/sealed", **secret) == data
        assert body(reader, f"{name}/sealed", Range="bytes=4194290-4198411", **secret) == data[4194290:4198412]
    kms = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "testkey-1"}
    for name, writer, reader in ("ours", ours, stock), ("stock", stock, ours):
        data, parts = os.urandom(9 * MIB + 5), [os.urandom(5 * MIB + 1), b"end"]
        writer.put_object(Bucket="both", Key=f"{name}/kms", Body=data, **kms)
        made = writer.create_multipart_upload(Bucket="both", Key=f"{name}/kms-parts", **kms)["UploadId"]
        done = [{"PartNumber": n, "ETag": writer.upload_part(Bucket="both", Key=f"{name}/kms-parts", UploadId=made, PartNumber=n, Body=p)["ETag"]}
                for n, p in enumerate(parts, 1)]
        writer.complete_multipart_upload(Bucket="both", Key=f"{name}/kms-parts", UploadId=made, MultipartUpload={"Parts": done})
        assert body(reader, f"{name}/kms") == data and body(reader, f"{name}/kms-parts") == b"".join(parts)
        assert body(reader, f"{name}/kms", Range="bytes=4194290-4198411") == data[4194290:4198412]
        assert reader.head_object(Bucket="both", Key=f"{name}/kms")["SSEKMSKeyId"] == "testkey-1"
        reader.copy_object(Bucket="both", Key=f"{name}/kms-copy", CopySource={"Bucket": "both", "Key": f"{name}/kms-parts"}, **kms)
        assert body(writer, f"{name}/kms-copy") == b"".join(parts)
        rule = {"Rules": [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": "testkey-2"}}]}
        writer.put_bucket_encryption(Bucket="both", ServerSideEncryptionConfiguration=rule)
        reader.put_object(Bucket="both", Key=f"{name}/default", Body=data)
        assert writer.head_object(Bucket="both", Key=f"{name}/default")["SSEKMSKeyId"] == "testkey-2" and body(writer, f"{name}/default") == data
        reader.delete_bucket_encryption(Bucket="both")
    settings(ours, stock)
    caches(ours, stock)
    keys = lambda at: [o["Key"] for o in at.list_objects_v2(Bucket="both")["Contents"]]
    assert keys(ours) == keys(stock), (keys(ours), keys(stock))
    versions(ours, stock)
    print("both ways")


def settings(ours, stock):
    """What one sets of a bucket, the other reads as it was set."""
    rules = [
        {"ID": "r", "Filter": {"And": {"Prefix": "a/", "Tags": [{"Key": "k", "Value": "v"}]}}, "Status": "Enabled",
         "Expiration": {"Days": 9}, "NoncurrentVersionExpiration": {"NoncurrentDays": 3, "NewerNoncurrentVersions": 2}},
        {"ID": "u", "Filter": {"Prefix": "a/"}, "Status": "Disabled", "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 4}}]
    cors = {"AllowedMethods": ["GET"], "AllowedOrigins": ["*"], "AllowedHeaders": ["x"], "ExposeHeaders": ["ETag"], "MaxAgeSeconds": 60}
    policy = '{"Version":"2012-10-17","Statement":[{"Effect":"Deny","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::both/denied"}]}'
    for writer, reader in (ours, stock), (stock, ours):
        writer.put_bucket_lifecycle_configuration(Bucket="both", LifecycleConfiguration={"Rules": rules})
        assert reader.get_bucket_lifecycle_configuration(Bucket="both")["Rules"] == rules
        writer.put_bucket_cors(Bucket="both", CORSConfiguration={"CORSRules": [cors]})
        assert reader.get_bucket_cors(Bucket="both")["CORSRules"] == [cors]
        writer.put_bucket_tagging(Bucket="both", Tagging={"TagSet": [{"Key": "a", "Value": "b"}]})
        assert reader.get_bucket_tagging(Bucket="both")["TagSet"] == [{"Key": "a", "Value": "b"}]
        writer.put_bucket_policy(Bucket="both", Policy=policy)
        assert reader.get_bucket_policy(Bucket="both")["Policy"] == policy
        for remove in writer.delete_bucket_lifecycle, reader.delete_bucket_cors, writer.delete_bucket_tagging, reader.delete_bucket_policy:
            remove(Bucket="both")
    lock = {"ObjectLockEnabled": "Enabled", "Rule": {"DefaultRetention": {"Mode": "GOVERNANCE", "Days": 1}}}
    for name, writer, reader in ("ours", ours, stock), ("stock", stock, ours):
        bucket = f"both-locked-{name}"
        writer.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=True)
        writer.put_object_lock_configuration(Bucket=bucket, ObjectLockConfiguration=lock)
        assert reader.get_object_lock_configuration(Bucket=bucket)["ObjectLockConfiguration"] == lock
        version = writer.put_object(Bucket=bucket, Key="k", Body=b"x")["VersionId"]
        assert reader.get_object_retention(Bucket=bucket, Key="k")["Retention"]["Mode"] == "GOVERNANCE"
        reader.delete_object(Bucket=bucket, Key="k", VersionId=version, BypassGovernanceRetention=True)
        reader.delete_bucket(Bucket=bucket)


def caches(ours, stock):
    """What one changes, the other obeys with the next request, also where it knew it otherwise a moment before."""
    deny = '{"Statement":[{"Effect":"Deny","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::both-cached/k"}]}'

    def succeeds(at):
        try:
            return at.get_object(Bucket="both-cached", Key="k")
        except at.exceptions.ClientError:
            return None

    for writer, reader in (ours, stock), (stock, ours):
        for _ in range(3):  # the bucket is another one each time
            writer.create_bucket(Bucket="both-cached")
            reader.put_object(Bucket="both-cached", Key="k", Body=b"1")
            assert succeeds(reader) and succeeds(writer)
            writer.put_bucket_policy(Bucket="both-cached", Policy=deny)
            assert not succeeds(reader), "it goes by a policy that was replaced"
            reader.delete_bucket_policy(Bucket="both-cached")
            assert succeeds(writer), "it goes by a policy that was removed"
            reader.delete_object(Bucket="both-cached", Key="k")
            writer.delete_bucket(Bucket="both-cached")
            assert not succeeds(reader)


def versions(ours, stock):
    """A key whose versions both gateways write and remove."""
    ours.create_bucket(Bucket="both-versions")
    ours.put_bucket_versioning(Bucket="both-versions", VersioningConfiguration={"Status": "Enabled"})
    args = {"Bucket": "both-versions", "Key": "k"}
    one = ours.put_object(**args, Body=b"1")["VersionId"]
    two = stock.put_object(**args, Body=b"2")["VersionId"]
    assert ours.get_object(**args)["Body"].read() == b"2" and stock.get_object(**args, VersionId=one)["Body"].read() == b"1"
    marker = ours.delete_object(**args)["VersionId"]
    for at in ours, stock:
        listed = at.list_object_versions(Bucket="both-versions")
        assert [v["VersionId"] for v in listed["Versions"]] == [two, one], listed
        assert [m["VersionId"] for m in listed["DeleteMarkers"]] == [marker], listed
    stock.delete_object(**args, VersionId=marker)
    assert ours.get_object(**args)["Body"].read() == b"2"
    ours.delete_object(**args, VersionId=two)
    assert stock.get_object(**args)["Body"].read() == b"1"
    stock.delete_object(**args, VersionId=one)
    assert "Versions" not in ours.list_object_versions(Bucket="both-versions")
    ours.delete_bucket(Bucket="both-versions")


main()
