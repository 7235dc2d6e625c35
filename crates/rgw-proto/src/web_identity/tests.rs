use proptest::prelude::*;

use super::*;

/// Keys of the parts that no client has, and tokens by PyJWT: `vectors/rgw/README.md`.
fn vectors() -> Map<String, Value> {
    object(include_bytes!("../../../../vectors/rgw/tokens.json")).unwrap()
}

/// When the tokens were made.
const MADE: Time = Time(1_800_000_000);
const URL: &str = "https://idp.example/x";

fn published() -> Vec<Key> {
    let document = serde_json::json!({ "keys": vectors()["keys"] });
    keys(document.to_string().as_bytes()).unwrap()
}

fn text(name: &str) -> String {
    vectors()["tokens"][name].as_str().expect(name).to_owned()
}

/// As the gateway does it, where all certificates are registered.
fn judge(text: &str, url: &str, clients: &[&str], now: Time) -> Result<()> {
    let clients: Vec<String> = clients.iter().map(|c| (*c).to_owned()).collect();
    let token = Token::parse(text)?;
    token.check(url, &clients, now)?;
    let published = published();
    let key = token.key(&published)?;
    match key.certificates.first() {
        Some(certificate) => token.verify_by(certificate),
        None => token.verify(key),
    }
}

fn at(name: &str, now: Time) -> Result<()> {
    judge(&text(name), URL, &["app"], now)
}

#[test]
fn what_is_taken() {
    for name in [
        "RS256",
        "RS384",
        "RS512",
        "PS256",
        "PS384",
        "PS512",
        "ES256",
        "ES384",
        "v1",
        "v3",
        "ex",
        "aud list",
        "azp",
        "a bit early",
        "claims",
        "no kid, one of its kind",
    ] {
        at(name, MADE).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    assert!(judge(&text("other aud"), URL, &[], MADE).is_ok(), "no clients: any audience");
    assert!(judge(&text("RS256"), "idp.example/x", &["app"], MADE).is_ok(), "by TLS");
}

#[test]
fn what_is_refused() {
    for name in [
        "none",
        "HS256 by the public key",
        "another key",
        "kid of another",
        "unknown kid",
        "no kid",
        "key for encryption",
        "RS384 by a key for RS256",
        "ES256 by kid of RSA",
        "crit",
        "other aud",
        "no aud",
        "ended",
        "no end",
        "text as end",
        "to come",
        "made later",
        "other iss",
        "plain iss",
        "no iss",
        "no sub",
        "sub with $",
    ] {
        assert_eq!(at(name, MADE).expect_err(name).code, Code::AccessDenied, "{name}");
    }
    assert_eq!(at("tags", MADE).unwrap_err().code, Code::NotImplemented);
    assert!(at("RS256", Time(MADE.0 + 599)).is_ok());
    assert!(at("RS256", Time(MADE.0 + 600)).is_err(), "its end is no part of it");
    assert!(judge(&text("plain iss"), "idp.example/x", &["app"], MADE).is_err(), "not by TLS");
    for bad in ["", ".", "..", "a.b.c", "e30.e30.", &"x".repeat(TOKEN_BYTES_MAX + 1)] {
        assert!(Token::parse(bad).is_err());
    }
}

/// No bit of what is signed, or of the signature, can be changed.
#[test]
fn every_bit_counts() {
    for name in ["RS256", "ES256"] {
        let whole = text(name);
        for n in 0..whole.len() {
            let mut bytes = whole.clone().into_bytes();
            // Another letter of base64: the last ones of a part may leave bits over, which must be zero.
            bytes[n] = if bytes[n] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(bytes).unwrap();
            assert!(judge(&changed, URL, &["app"], MADE).is_err(), "{name} at {n}");
        }
    }
}

#[test]
fn thumbprints_and_certificates() {
    let prints = &vectors()["thumbprints"];
    let published = published();
    let of = |kid: &str| published.iter().find(|key| key.kid.as_deref() == Some(kid)).unwrap();
    for name in ["v1", "v3"] {
        let certificate = &of(name).certificates[0];
        assert_eq!(thumbprint(certificate), prints[name].as_str().unwrap());
        assert!(key_info(certificate).is_some());
        for end in 0..certificate.len() {
            assert!(key_info(&certificate[..end]).is_none(), "{name} cut at {end}");
        }
    }
    assert!(published.iter().all(|key| key.kid.as_deref() != Some("enc")), "not for signatures");
}

#[test]
fn claims_that_policies_can_ask_for() {
    let text = text("claims");
    let token = Token::parse(&text).unwrap();
    let mut context = Context::default();
    token.add_claims("idp.example/x", &mut context).unwrap();
    for (key, want) in [
        ("sub", &["someone"][..]),
        ("aud", &["app"]),
        ("app_id", &["app"]),
        ("azp", &["app"]),
        ("groups", &["a", "b"]),
        ("n", &["7"]),
        ("yes", &["true"]),
        ("nested", &[]),
        ("iss", &["https://idp.example/x"]),
    ] {
        assert_eq!(context.values(&format!("idp.example/x:{key}")), want, "{key}");
    }
}

#[test]
fn documents() {
    let of = |text: &str| keys_url(text.as_bytes(), URL);
    assert_eq!(
        of(r#"{"jwks_uri": "https://k/", "issuer": "https://idp.example/x"}"#).unwrap(),
        "https://k/"
    );
    assert!(of(r#"{"jwks_uri": "https://k/"}"#).is_ok());
    for bad in [
        "",
        "[]",
        "{}",
        r#"{"jwks_uri": 1}"#,
        r#"{"jwks_uri": "https://k/", "issuer": "https://other"}"#,
        r#"{"jwks_uri": "a", "jwks_uri": "b"}"#,
    ] {
        assert!(of(bad).is_err(), "{bad}");
    }
    let many = format!(r#"{{"keys": [{}1]}}"#, "1,".repeat(KEYS_MAX));
    for bad in ["", "{}", r#"{"keys": {}}"#, &many] {
        assert!(keys(bad.as_bytes()).is_err(), "{bad}");
    }
    assert_eq!(
        (without_scheme("https://a/b"), without_scheme("http://a"), without_scheme("a")),
        ("a/b", "a", "a")
    );
}

proptest! {
    /// No bytes make it panic.
    #[test]
    fn any_bytes(text in any::<String>(), bytes in any::<Vec<u8>>(), der in proptest::collection::vec(prop_oneof![Just(0x30u8), Just(0xa0), Just(2), Just(3), any::<u8>()], 0..64)) {
        let parts = [URL_SAFE_NO_PAD.encode(&text), URL_SAFE_NO_PAD.encode(&bytes)];
        let _ = (Token::parse(&text), Token::parse(&format!("{}.{}.{}", parts[0], parts[1], parts[0])));
        let _ = (keys(&bytes), keys(text.as_bytes()), keys_url(&bytes, URL), key_info(&bytes), key_info(&der));
    }
}
