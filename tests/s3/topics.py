"""Topics, and who is told by them: what tests of events say to gateways."""

import http.client
import urllib.parse

import boto3
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.client import Config
from botocore.credentials import Credentials

MAIN = ("KEYmain", "secret/main")
ARN = "arn:aws:sns:default::"


def client(endpoint, keys=MAIN):
    config = Config(retries={"max_attempts": 1}, s3={"addressing_style": "path"})
    return boto3.client("s3", endpoint_url=endpoint, region_name="default", aws_access_key_id=keys[0], aws_secret_access_key=keys[1], config=config)


def sns(endpoint, keys=MAIN, **form):
    """Posts an action; status and body."""
    body = urllib.parse.urlencode(form)
    request = AWSRequest("POST", endpoint + "/", data=body, headers={"Content-Type": "application/x-www-form-urlencoded"})
    SigV4Auth(Credentials(*keys), "sns", "default").add_auth(request)
    return exchange(endpoint, "POST", "/", body, request)


def exchange(endpoint, method, path, body, request):
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(endpoint).netloc, timeout=60)
    connection.request(method, path, body, dict(request.headers.items()))
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def create(endpoint, name, keys=MAIN, **attributes):
    form = {"Action": "CreateTopic", "Name": name, "Version": "2010-03-31"}
    for n, (key, value) in enumerate(attributes.items(), 1):
        form[f"Attributes.entry.{n}.key"], form[f"Attributes.entry.{n}.value"] = key.replace("_dash_", "-"), value
    return sns(endpoint, keys, **form)


def topic(endpoint, name, url, code=200, **attributes):
    """Makes a topic of the main user, whose attributes have `_` for `-`; its ARN."""
    named = {key.replace("_", "_dash_"): value for key, value in attributes.items()}
    status, text = create(endpoint, name, push_dash_endpoint=url, **named)
    assert status == code, (name, status, text)
    return ARN + name


def notify(endpoint, bucket, *arns):
    """Has these topics told of what is made and removed in a bucket."""
    client(endpoint).put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration={
        "TopicConfigurations": [{"Id": f"n{n}", "TopicArn": arn, "Events": ["s3:ObjectCreated:*", "s3:ObjectRemoved:*"]} for n, arn in enumerate(arns)]})
