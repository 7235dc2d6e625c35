"""Identity providers and AssumeRoleWithWebIdentity, by boto3 and tokens of PyJWT, against any gateway with rgw_sts_key.

webidentity.py ENDPOINT [OTHER]: it makes a user by radosgw-admin and serves the keys of identity providers itself, by HTTP, and by HTTPS with
certificates of `trusted.pem`, which it writes beside itself. With OTHER, a second gateway of the same cluster knows what the first one
was told, and the other way round. With IS_STOCK=1 the cases that stock cannot pass are left out.
"""

import base64
import datetime
import hashlib
import hmac
import http.server
import ipaddress
import json
import os
import ssl
import subprocess
import sys
import threading
import time
import traceback

import boto3
import jwt
from botocore import UNSIGNED
from botocore.client import Config
from botocore.exceptions import ClientError
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

ENDPOINT = sys.argv[1]
OTHER = sys.argv[2] if len(sys.argv) > 2 else None
STOCK = bool(os.environ.get("IS_STOCK"))
KEYS = "KEYweb", "secret/web"
BUCKET, ROLE = "web-bucket", "web-role"
DAY = datetime.timedelta(days=1)


def client(service, keys=KEYS, token=None, endpoint=ENDPOINT, **config):
    return boto3.client(service, endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id=keys[0], aws_secret_access_key=keys[1],
                        aws_session_token=token, config=Config(retries={"max_attempts": 1}, s3={"addressing_style": "path"}, **config))


def fails(code, call, /, **args):
    try:
        call(**args)
    except ClientError as error:
        got = error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"]
        assert code in got, f"{call.__name__} {args}: wanted {code}, got {got} {error}"
        return
    raise AssertionError(f"{call.__name__} {args} should have failed with {code}")


def certificate(key, name, issuer=None, address=None):
    """A certificate of `name`, signed by `issuer` (key, certificate) or by itself."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.timezone.utc)
    build = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer[1].subject if issuer else subject).public_key(key.public_key())
    build = build.serial_number(x509.random_serial_number()).not_valid_before(now - DAY).not_valid_after(now + DAY)
    build = build.add_extension(x509.BasicConstraints(ca=not address, path_length=None), critical=True)
    if address:
        build = build.add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), critical=False)
    return build.sign(issuer[0] if issuer else key, hashes.SHA256())


def thumbprint(cert):
    return cert.fingerprint(hashes.SHA1()).hex()


def der(cert):
    return base64.b64encode(cert.public_bytes(serialization.Encoding.DER)).decode()


def pem(cert):
    return cert.public_bytes(serialization.Encoding.PEM)


def secret(key):
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


RSA, RSA2, EC = rsa.generate_private_key(65537, 2048), rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP256R1())
CERT, CERT2, ECCERT = certificate(RSA, "one"), certificate(RSA2, "two"), certificate(EC, "curve")
CAKEY, LEAFKEY = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
CA = certificate(CAKEY, "ca")
LEAF = certificate(LEAFKEY, "leaf", (CAKEY, CA), "127.0.0.1")


def jwk(key, kid, cert=None, **more):
    kind = jwt.algorithms.ECAlgorithm if isinstance(key, ec.EllipticCurvePrivateKey) else jwt.algorithms.RSAAlgorithm
    out = json.loads(kind.to_jwk(key.public_key()))
    return out | {"kid": kid, "use": "sig"} | ({"x5c": [der(cert)]} if cert else {}) | more


# By path: what an issuer publishes.
PUBLISHED = {
    "rsa": [jwk(RSA, "r1", CERT)],
    "ec": [jwk(EC, "e1", ECCERT)],
    "many": [jwk(RSA2, "enc", CERT2, use="enc"), jwk(RSA, "r1", CERT), jwk(RSA2, "r2", CERT2), jwk(EC, "e1", ECCERT)],
    "bare": [jwk(RSA, "r1"), jwk(EC, "e1")],
    "other": [jwk(RSA, "r1", CERT)],
}
FETCHED = []


class Issuer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        name, rest = self.path[1:].split("/", 1)
        at = f"{self.server.scheme}://127.0.0.1:{self.server.server_port}/{name}"
        FETCHED.append(self.path)
        if name in PUBLISHED and rest == ".well-known/openid-configuration":
            body = {"issuer": at, "jwks_uri": f"{at}/keys"}
        elif name in PUBLISHED and rest == "keys":
            body = {"keys": PUBLISHED[name]}
        elif name == "moved":
            self.send_response(302)
            self.send_header("Location", self.path.replace("moved", "rsa"))
            self.send_header("Content-Length", "0")
            return self.end_headers()
        else:
            return self.send_error(404)
        body = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def serve(scheme):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Issuer)
    server.scheme = scheme
    if scheme == "https":
        with open("trusted.pem", "wb") as file:
            file.write(pem(CA))
        with open("leaf.pem", "wb") as file:
            file.write(pem(LEAF) + pem(CA) + secret(LEAFKEY))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain("leaf.pem")
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"{scheme}://127.0.0.1:{server.server_port}"


HTTP, HTTPS = serve("http"), serve("https")


def token(issuer="rsa", key=RSA, algorithm="RS256", kid="r1", base=HTTP, headers={}, **claims):
    now = int(time.time())
    all_claims = {"iss": f"{base}/{issuer}", "aud": "app", "sub": "someone", "iat": now, "exp": now + 600} | claims
    all_claims = {k: v for k, v in all_claims.items() if v is not None}
    return jwt.encode(all_claims, key, algorithm=algorithm, headers=({"kid": kid} if kid else {}) | headers)


def b64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def arn(issuer, base=HTTP):
    return f"arn:aws:iam:::oidc-provider/{base.split('//')[1]}/{issuer}"


def trust(*issuers, base=HTTP, condition=None, effect="Allow", action="sts:AssumeRoleWithWebIdentity"):
    one = {"Effect": effect, "Principal": {"Federated": [arn(i, base) for i in issuers]}, "Action": [action]}
    return {"Version": "2012-10-17", "Statement": [one | ({"Condition": condition} if condition else {})]}


def trusts(document, endpoint=ENDPOINT):
    client("iam", endpoint=endpoint).update_assume_role_policy(RoleName=ROLE, PolicyDocument=json.dumps(document))


def assume(text, endpoint=ENDPOINT, name="session", role=f"arn:aws:iam:::role/{ROLE}", **more):
    sts = client("sts", endpoint=endpoint, signature_version=UNSIGNED)
    return sts.assume_role_with_web_identity(RoleArn=role, RoleSessionName=name, WebIdentityToken=text, **more)


def refused(text, code=403, **args):
    fails(code, assume, text=text, **args)


def s3_of(got, endpoint=ENDPOINT):
    found = got["Credentials"]
    return client("s3", (found["AccessKeyId"], found["SecretAccessKey"]), found["SessionToken"], endpoint=endpoint)


def providers():
    """Made, told, changed, listed, removed; the other gateway says the same."""
    iam, there = client("iam"), client("iam", endpoint=OTHER or ENDPOINT)
    print_a, print_b = "a" * 40, "B" * 40
    url = "https://idp.example/realms/x"
    name = "arn:aws:iam:::oidc-provider/idp.example/realms/x"
    listed = lambda: {p["Arn"] for p in there.list_open_id_connect_providers()["OpenIDConnectProviderList"]}
    assert iam.create_open_id_connect_provider(Url=url, ThumbprintList=[print_a], ClientIDList=["one", "two"])["OpenIDConnectProviderArn"] == name
    fails("EntityAlreadyExists", iam.create_open_id_connect_provider, Url=url, ThumbprintList=[print_a])
    fails(400, iam.create_open_id_connect_provider, Url="https://x.example", ThumbprintList=[print_a] * 6)
    fails(400, iam.create_open_id_connect_provider, Url="https://x.example", ThumbprintList=[print_a + "a"])
    fails(400, iam.create_open_id_connect_provider, Url="https://x.example")
    def told():
        found = there.get_open_id_connect_provider(OpenIDConnectProviderArn=name)
        return found["Url"], found["ClientIDList"], found["ThumbprintList"]
    assert told() == (url, ["one", "two"], [print_a]) and name in listed()
    for _ in range(2):
        iam.add_client_id_to_open_id_connect_provider(OpenIDConnectProviderArn=name, ClientID="three")
    for gone in "one", "none":
        iam.remove_client_id_from_open_id_connect_provider(OpenIDConnectProviderArn=name, ClientID=gone)
    there.update_open_id_connect_provider_thumbprint(OpenIDConnectProviderArn=name, ThumbprintList=[print_b])
    assert told() == (url, ["two", "three"], [print_b]), told()
    fails("NoSuchEntity", iam.get_open_id_connect_provider, OpenIDConnectProviderArn=name + "x")
    fails("NoSuchEntity", iam.delete_open_id_connect_provider, OpenIDConnectProviderArn=name + "x")
    fails(400, iam.get_open_id_connect_provider, OpenIDConnectProviderArn="arn:aws:iam::acc:oidc-provider/idp.example/realms/x")
    fails(403, client("iam", ("KEYother", "secret/other")).list_open_id_connect_providers)
    fails(403, client("iam", ("KEYother", "secret/other")).create_open_id_connect_provider, Url="https://y.example", ThumbprintList=[print_a])
    there.delete_open_id_connect_provider(OpenIDConnectProviderArn=name)
    assert name not in listed()
    fails("NoSuchEntity", iam.delete_open_id_connect_provider, OpenIDConnectProviderArn=name)


def sessions():
    """Tokens of each algorithm give a session with the role's rights and no more."""
    trusts(trust("rsa", "ec"))
    assert OTHER or s3_of(assume(token())).list_objects_v2(Bucket=BUCKET)
    for algorithm, key, issuer, kid in [("RS256", RSA, "rsa", "r1"), ("RS384", RSA, "rsa", "r1"), ("RS512", RSA, "rsa", "r1")] + ([] if STOCK else [("ES256", EC, "ec", "e1")]):
        got = assume(token(issuer, key, algorithm, kid), DurationSeconds=1000)
        assert got["SubjectFromWebIdentityToken"] == "someone" and got["Audience"] == "app", got
        assert got["AssumedRoleUser"]["Arn"] == f"arn:aws:sts:::assumed-role/{ROLE}/session", got
        ends = (got["Credentials"]["Expiration"] - datetime.datetime.now(datetime.timezone.utc)).total_seconds()
        assert 900 < ends <= 1001, ends
        s3 = s3_of(got)
        s3.put_object(Bucket=BUCKET, Key=f"by {algorithm}", Body=b"1")
        assert s3.get_object(Bucket=BUCKET, Key=f"by {algorithm}")["Body"].read() == b"1"
        fails(403, s3.delete_object, Bucket=BUCKET, Key=f"by {algorithm}")
        fails(403, s3.get_object, Bucket="web-closed", Key="k")
    # A session's own policy takes rights away.
    narrow = json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:ListBucket", "Resource": "*"}]})
    fails(403, s3_of(assume(token(), Policy=narrow)).get_object, Bucket=BUCKET, Key="by RS256")
    # Audiences: one of several, and by azp or client_id.
    for claims in {"aud": ["x", "app"]}, {"aud": "x", "azp": "app"}, {"aud": "x", "client_id": "app"}:
        assume(token(**claims))
    if OTHER:
        assume(token(), endpoint=OTHER)


def refusals():
    """What is wrong with a token, one thing at a time."""
    trusts(trust("rsa", "ec"))
    now = int(time.time())
    good = token()
    assume(good)
    refused(token(aud="x"))
    refused(token(exp=now - 1))
    refused(token(nbf=now + 3600))
    refused(token(key=RSA2))
    refused(token(issuer="never-registered"))
    refused(token(iss=None))
    header, payload, signature = good.split(".")
    changed = json.loads(base64.urlsafe_b64decode(payload + "=="))
    refused(".".join([header, b64(json.dumps(changed | {"sub": "somebody else"}).encode()), signature]))
    refused(".".join([header, payload, b64(b"x" * 256)]))
    refused(".".join([header, payload, ""]))
    for bad in "nothing", "a.b.c", good + ".x":
        refused(bad)
    # No signature, and a signature by what everybody knows.
    for algorithm in "none", "None", "HS256", "HS512":
        head = b64(json.dumps({"typ": "JWT", "alg": algorithm, "kid": "r1"}).encode())
        digest = {"HS256": hashlib.sha256, "HS512": hashlib.sha512}.get(algorithm)
        for public in [RSA.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo), pem(CERT), der(CERT).encode()]:
            sign = b64(hmac.new(public, f"{head}.{payload}".encode(), digest).digest()) if digest else ""
            refused(f"{head}.{payload}.{sign}")
    # An algorithm that is not the key's.
    refused(token("ec", RSA, "RS256", "e1"))
    fails(403, assume, text=good, role="arn:aws:iam:::role/none")
    if not STOCK:
        fails(400, assume, text=good, Policy="{}")
        fails(400, assume, text=good, name="x y")
    # The provider's certificates are others now.
    iam = client("iam")
    iam.update_open_id_connect_provider_thumbprint(OpenIDConnectProviderArn=arn("rsa"), ThumbprintList=["a" * 40])
    refused(good)
    iam.update_open_id_connect_provider_thumbprint(OpenIDConnectProviderArn=arn("rsa"), ThumbprintList=[thumbprint(CERT).upper()])
    assume(good)


def conditions():
    """The role's trust policy decides by principal and by claims."""
    at = arn("rsa").split("oidc-provider/")[1]
    for condition, may, not_ in [
        ({"StringEquals": {f"{at}:sub": "someone"}}, {}, {"sub": "another"}),
        ({"StringLike": {f"{at}:sub": "system:*:web"}}, {"sub": "system:x:web"}, {}),
        ({"StringEquals": {f"{at}:aud": "app"}}, {}, {"aud": "app2"}),
        ({"StringEquals": {f"{at}:app_id": "app"}}, {}, {"aud": "app2"}),
        ({"StringEquals": {f"{at}:azp": "app"}}, {"azp": "app"}, {}),
        ({"StringEquals": {f"{at}:groups": "admins"}}, {"groups": ["users", "admins"]}, {"groups": ["users"]}),
    ]:
        trusts(trust("rsa", condition=condition))
        assume(token(**may))
        refused(token(**not_))
    denied = trust("rsa")
    denied["Statement"] += trust("rsa", effect="Deny", condition={"StringEquals": {f"{at}:sub": "banned"}})["Statement"]
    trusts(denied)
    assume(token())
    refused(token(sub="banned"))
    for other in trust("ec"), trust("rsa", action="sts:AssumeRole"), {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": {"AWS": ["*"]}, "Action": ["sts:AssumeRole"]}]}:
        trusts(other)
        refused(token())
    # A provider's trust is not for users.
    trusts(trust("rsa"))
    fails(403, client("sts").assume_role, RoleArn=f"arn:aws:iam:::role/{ROLE}", RoleSessionName="session")


def accounts():
    """The role of an account: what its session makes is the account's. Providers of others are none of its."""
    account, root = "RGW00000000000000088", ("KEYwebroot", "secret/webroot")
    for words in (["account", "create", "--account-id", account, "--account-name", "web"],
                  ["user", "create", "--uid", "webroot", "--display-name", "Root", "--account-id", account, "--account-root", "--access-key", root[0], "--secret-key", root[1]]):
        subprocess.run(["radosgw-admin", *words], check=True, capture_output=True)
    iam, role = client("iam", root), f"arn:aws:iam::{account}:role/app/R"
    own = arn("rsa").replace(":::", f"::{account}:")
    document = trust("rsa")
    document["Statement"][0]["Principal"]["Federated"] = [own]
    iam.create_role(RoleName="R", Path="/app/", AssumeRolePolicyDocument=json.dumps(document))
    may = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}
    iam.put_role_policy(RoleName="R", PolicyName="p", PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [may]}))
    refused(token(), role=role)
    assert iam.create_open_id_connect_provider(Url=f"{HTTP}/rsa", ThumbprintList=[thumbprint(CERT)], ClientIDList=["app"])["OpenIDConnectProviderArn"] == own
    got = assume(token(), role=role)
    assert got["AssumedRoleUser"]["Arn"] == f"arn:aws:sts::{account}:assumed-role/app/R/session", got
    s3 = s3_of(got)
    s3.create_bucket(Bucket="web-account")
    s3.put_object(Bucket="web-account", Key="k", Body=b"1")
    assert client("s3", root).get_bucket_acl(Bucket="web-account")["Owner"]["ID"] == account
    assert client("s3", root).get_object(Bucket="web-account", Key="k")["Body"].read() == b"1"
    fails(403, s3.get_object, Bucket="web-closed", Key="k")


def keys():
    """Keys are chosen by kid, need a certificate or HTTPS, and are not fetched for tokens that are bad anyway."""
    iam = client("iam")
    prints = [thumbprint(c) for c in (CERT, CERT2, ECCERT)]
    for issuer in "many", "bare", "moved":
        iam.create_open_id_connect_provider(Url=f"{HTTP}/{issuer}", ThumbprintList=prints, ClientIDList=["app"])
    for issuer in "bare", "other", "rsa":
        iam.create_open_id_connect_provider(Url=f"{HTTPS}/{issuer}", ThumbprintList=[thumbprint(CA) if issuer != "other" else prints[1]], ClientIDList=["app"])
    trusts(trust("many", "bare", "moved"))
    assume(token("many"))
    assume(token("many", RSA2, kid="r2"))
    assume(token("many", EC, "ES256", "e1"))
    refused(token("many", RSA2, kid="r1"))
    refused(token("many", kid="r9"))
    refused(token("many", kid=None))
    refused(token("many", RSA2, kid="enc"))
    refused(token("many", headers={"crit": ["b64"]}))
    refused(token("many", **{"https://aws.amazon.com/tags": {"principal_tags": {"a": ["b"]}}}), 501)
    refused(token("many", sub="a$b"))
    # A key without a certificate, by plain HTTP: anybody on the way could have put it there.
    refused(token("bare"))
    refused(token("moved"))
    FETCHED.clear()
    for bad in token("rsa", exp=1), token("rsa", aud="x"), token("none"):
        refused(bad)
    assert FETCHED == [], FETCHED
    trusts(trust("bare", "other", "rsa", base=HTTPS))
    assume(token("bare", base=HTTPS))
    assume(token("bare", EC, "ES256", "e1", base=HTTPS))
    refused(token("rsa", base=HTTPS))  # its certificate is not the one that was named
    refused(token("other", base=HTTPS))
    # The same host by another scheme is not the issuer that was registered.
    iam.create_open_id_connect_provider(Url=f"https://{HTTP.split('//')[1]}/other", ThumbprintList=prints, ClientIDList=["app"])
    trusts(trust("other"))
    refused(token("other"))


CASES = [providers, sessions, refusals, conditions, accounts] + ([] if STOCK else [keys])


def main():
    subprocess.run(["radosgw-admin", "user", "create", "--uid", "web", "--display-name", "Web", "--access-key", KEYS[0], "--secret-key", KEYS[1],
                    "--caps", "oidc-provider=*;roles=*"], check=True, capture_output=True)
    s3, iam, failed = client("s3"), client("iam"), []
    for bucket in BUCKET, "web-closed":
        s3.create_bucket(Bucket=bucket)
    s3.put_object(Bucket="web-closed", Key="k", Body=b"1")
    iam.create_role(RoleName=ROLE, AssumeRolePolicyDocument=json.dumps(trust("rsa")))
    may = {"Effect": "Allow", "Action": ["s3:GetObject", "s3:PutObject", "s3:ListBucket"], "Resource": [f"arn:aws:s3:::{BUCKET}", f"arn:aws:s3:::{BUCKET}/*"]}
    iam.put_role_policy(RoleName=ROLE, PolicyName="p", PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [may]}))
    s3.put_bucket_policy(Bucket=BUCKET, Policy=json.dumps({"Version": "2012-10-17", "Statement": [
        {"Effect": "Allow", "Principal": {"AWS": [f"arn:aws:iam:::role/{ROLE}"]}, "Action": ["s3:GetObject", "s3:PutObject", "s3:ListBucket"],
         "Resource": [f"arn:aws:s3:::{BUCKET}", f"arn:aws:s3:::{BUCKET}/*"]}]}))
    for issuer, cert in ("rsa", CERT), ("ec", ECCERT):
        client("iam", endpoint=OTHER or ENDPOINT).create_open_id_connect_provider(Url=f"{HTTP}/{issuer}", ThumbprintList=[thumbprint(cert)], ClientIDList=["app"])
    for case in CASES:
        try:
            case()
        except Exception as error:  # shown, and the next case runs
            traceback.print_exc()
            failed.append(f"{case.__name__}: {error!r}")
    for bucket, keys_ in (BUCKET, KEYS), ("web-closed", KEYS), ("web-account", ("KEYwebroot", "secret/webroot")):
        s3 = client("s3", keys_)
        for found in s3.list_objects_v2(Bucket=bucket).get("Contents", []):
            s3.delete_object(Bucket=bucket, Key=found["Key"])
        s3.delete_bucket(Bucket=bucket)
    print(f"{len(CASES) - len(failed)} of {len(CASES)} cases of web identities passed")
    for line in failed:
        print("FAILED", line)
    sys.exit(bool(failed))


main()
