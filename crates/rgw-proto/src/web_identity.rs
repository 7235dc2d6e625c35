//! Tokens of foreign identity providers: JWT (RFC 7519) in the compact form of JWS (RFC 7515), and sets of keys (RFC 7517).
//!
//! ```text
//!   Token::parse (bounds, algorithm of the table) ── check (issuer, audience, times) ── keys of the issuer ── key by kid
//!     └─ verify: algorithm and key of one kind, the signature over the text as it came
//! ```
//!
//! Nothing of a token may be believed before [`Token::verify`] or [`Token::verify_by`] has said yes; until then it only
//! chooses which provider is asked. `none`, and algorithms whose key is a shared secret, are in no table.
//!
//! Source: `rgw_rest_sts.cc` (`WebTokenEngine`). Stock takes the first key of a set; here `kid` chooses, as RFC 7515 says.
//! Stock also flattens nested claims into one list; here only claims at the top count.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, EcdsaVerificationAlgorithm,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512,
    RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters,
    RsaPublicKeyComponents, UnparsedPublicKey,
};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Map, Value};

use crate::error::{Code, Error, Result};
use crate::policy::{Context, Unique};
use crate::time::Time;
use crate::uri;

/// Bytes of a token.
pub const TOKEN_BYTES_MAX: usize = 20_000;
/// Bytes of a document of a provider: its configuration, its keys.
pub const DOCUMENT_BYTES_MAX: usize = 256 << 10;
/// Keys of a set, and certificates of a key.
const KEYS_MAX: usize = 100;
const CERTIFICATES_MAX: usize = 10;
/// Values of claims that conditions can name.
const VALUES_MAX: usize = 500;
/// How much earlier than here a provider's clock may say that a token begins, s.
const EARLY_S: i64 = 60;
/// The claim that has tags of a session.
const TAGS: &str = "https://aws.amazon.com/tags";

enum Scheme {
    Rsa(&'static RsaParameters),
    Curve(&'static EcdsaVerificationAlgorithm, &'static str, usize),
}

/// Names of algorithms; of curves with the name and bytes of a coordinate.
const ALGORITHMS: &[(&str, Scheme)] = &[
    ("RS256", Scheme::Rsa(&RSA_PKCS1_2048_8192_SHA256)),
    ("RS384", Scheme::Rsa(&RSA_PKCS1_2048_8192_SHA384)),
    ("RS512", Scheme::Rsa(&RSA_PKCS1_2048_8192_SHA512)),
    ("PS256", Scheme::Rsa(&RSA_PSS_2048_8192_SHA256)),
    ("PS384", Scheme::Rsa(&RSA_PSS_2048_8192_SHA384)),
    ("PS512", Scheme::Rsa(&RSA_PSS_2048_8192_SHA512)),
    ("ES256", Scheme::Curve(&ECDSA_P256_SHA256_FIXED, "P-256", 32)),
    ("ES384", Scheme::Curve(&ECDSA_P384_SHA384_FIXED, "P-384", 48)),
];

fn denied(text: impl Into<String>) -> Error {
    Error::new(Code::AccessDenied, text)
}

/// An object in which no name is twice.
fn object(bytes: &[u8]) -> Option<Map<String, Value>> {
    match serde_json::from_slice::<Unique>(bytes).ok()?.0 {
        Value::Object(object) => Some(object),
        _ => None,
    }
}

fn part(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

/// A URL without its scheme: how providers are named in ARNs and condition keys.
#[must_use]
pub fn without_scheme(url: &str) -> &str {
    url.strip_prefix("https://").or_else(|| url.strip_prefix("http://")).unwrap_or(url)
}

/// The thumbprint of a certificate: SHA-1 of its DER, in lower-case hex.
#[must_use]
pub fn thumbprint(certificate: &[u8]) -> String {
    uri::to_hex(digest(&SHA1_FOR_LEGACY_USE_ONLY, certificate).as_ref())
}

/// A token that was read, and not believed yet.
pub struct Token<'a> {
    scheme: &'static Scheme,
    algorithm: &'static str,
    kid: Option<String>,
    claims: Map<String, Value>,
    signed: &'a str,
    signature: Vec<u8>,
}

impl<'a> Token<'a> {
    /// Reads a token.
    ///
    /// # Errors
    /// [`Code::AccessDenied`] for what is none, has an algorithm that is not in the table, or extensions that must be
    /// understood (`crit`).
    pub fn parse(text: &'a str) -> Result<Self> {
        let bad = || denied("The WebIdentityToken is no signed JWT.");
        if text.len() > TOKEN_BYTES_MAX {
            return Err(denied("The WebIdentityToken is longer than 20,000 bytes."));
        }
        let (signed, signature) = text.rsplit_once('.').ok_or_else(bad)?;
        let (head, payload) = signed.split_once('.').ok_or_else(bad)?;
        let head = part(head).and_then(|bytes| object(&bytes)).ok_or_else(bad)?;
        let claims = part(payload).and_then(|bytes| object(&bytes)).ok_or_else(bad)?;
        let signature = part(signature).ok_or_else(bad)?;
        let named = head.get("alg").and_then(Value::as_str).ok_or_else(bad)?;
        let known = ALGORITHMS.iter().find(|(name, _)| *name == named);
        let (algorithm, scheme) = known.ok_or_else(|| {
            denied("The token's algorithm is none that is taken: RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384.")
        })?;
        if head.contains_key("crit") {
            return Err(denied("The token has extensions that are not understood (crit)."));
        }
        let kid = match head.get("kid") {
            None => None,
            Some(kid) => Some(kid.as_str().ok_or_else(bad)?.to_owned()),
        };
        Ok(Self { scheme, algorithm, kid, claims, signed, signature })
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.claims.get(name).and_then(Value::as_str)
    }

    /// Who made it: the URL of the provider.
    ///
    /// # Errors
    /// [`Code::AccessDenied`] where it does not say.
    pub fn issuer(&self) -> Result<&str> {
        self.text("iss").ok_or_else(|| denied("The token does not say who made it (iss)."))
    }

    /// Whom it is about.
    ///
    /// # Errors
    /// [`Code::AccessDenied`] where it does not say, or by a name that no user here can have.
    pub fn subject(&self) -> Result<&str> {
        let sub = self.text("sub").unwrap_or_default();
        let fits = |c: char| !c.is_control() && c != '$';
        if sub.is_empty() || sub.len() > 255 || !sub.chars().all(fits) {
            return Err(denied("The token's sub has 1 to 255 bytes, printable and without $."));
        }
        Ok(sub)
    }

    /// For whom it is.
    #[must_use]
    pub fn audiences(&self) -> Vec<&str> {
        match self.claims.get("aud") {
            Some(Value::String(one)) => vec![one],
            Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        }
    }

    /// The name that the provider has for the subject; empty for none.
    #[must_use]
    pub fn display_name(&self) -> &str {
        self.text("preferred_username").unwrap_or_default()
    }

    /// Checks what needs no key: that the token is of this provider and for one of its clients, and that its time is now.
    /// Any audience will do for a provider without clients, as with stock.
    ///
    /// # Errors
    /// [`Code::AccessDenied`]; [`Code::NotImplemented`] for a token with tags of a session.
    pub fn check(&self, url: &str, clients: &[String], now: Time) -> Result<()> {
        let issuer = self.issuer()?;
        // One that was registered without a scheme is asked by TLS.
        let is_its = issuer == url || issuer.strip_prefix("https://") == Some(url);
        if !is_its {
            return Err(denied("The token's iss is not the provider's URL, scheme included."));
        }
        self.subject()?;
        let audiences = self.audiences();
        if audiences.is_empty() {
            return Err(denied("The token does not say for whom it is (aud)."));
        }
        let others = ["client_id", "clientId", "azp"].iter().filter_map(|name| self.text(name));
        let mut named = audiences.into_iter().chain(others);
        if !clients.is_empty() && !named.any(|name| clients.iter().any(|c| c == name)) {
            return Err(denied("The token is for none of the provider's clients (aud, azp)."));
        }
        let time = |name: &str| -> Result<Option<i64>> {
            let Some(value) = self.claims.get(name) else { return Ok(None) };
            // Whole seconds are enough, and what is beyond them is no time.
            let seconds = value.as_f64().filter(|s| (0.0..1e15).contains(s));
            let bad = || denied(format!("The token's {name} is no time."));
            #[allow(clippy::cast_possible_truncation, reason = "bounded above")]
            seconds.map(|s| Some(s as i64)).ok_or_else(bad)
        };
        let ends = time("exp")?.ok_or_else(|| denied("The token has no end (exp)."))?;
        if ends <= now.0 {
            return Err(denied("The token has ended (exp)."));
        }
        for name in ["nbf", "iat"] {
            if time(name)?.is_some_and(|begins| begins > now.0 + EARLY_S) {
                return Err(denied(format!("The token's time is still to come ({name}).")));
            }
        }
        if self.claims.contains_key(TAGS) {
            let text = "Session tags of tokens (https://aws.amazon.com/tags) are not built here.";
            return Err(Error::new(Code::NotImplemented, text));
        }
        Ok(())
    }

    /// Adds its claims to what trust policies can ask: `URL:CLAIM`, and `URL:app_id` for the audiences. `url` has no scheme.
    ///
    /// # Errors
    /// [`Code::AccessDenied`] for more claims than can be asked.
    pub fn add_claims(&self, url: &str, context: &mut Context) -> Result<()> {
        let mut values = 0;
        let mut add = |name: &str, value: &Value| {
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Bool(_) | Value::Number(_) => value.to_string(),
                _ => return true,
            };
            values += 1;
            context.add(&format!("{url}:{name}"), text);
            values <= VALUES_MAX
        };
        let mut fits = true;
        for (name, value) in &self.claims {
            match value {
                Value::Array(all) => all.iter().for_each(|one| fits &= add(name, one)),
                one => fits &= add(name, one),
            }
        }
        for audience in self.audiences() {
            fits &= add("app_id", &audience.into());
        }
        match fits {
            true => Ok(()),
            false => Err(denied("The token has more than 500 claims.")),
        }
    }

    /// The key of a set that signed it, as far as it can be told without trying: by `kid`, or the only one that could.
    ///
    /// # Errors
    /// [`Code::AccessDenied`] where there is none, or more than one.
    pub fn key<'k>(&self, keys: &'k [Key]) -> Result<&'k Key> {
        let mut fits = keys.iter().filter(|key| {
            key.algorithm.as_deref().is_none_or(|algorithm| algorithm == self.algorithm)
                && self.may_be_of(key)
                && self.kid.as_ref().is_none_or(|kid| key.kid.as_ref() == Some(kid))
        });
        match (fits.next(), fits.next()) {
            (Some(key), None) => Ok(key),
            (Some(_), Some(_)) => {
                Err(denied("The token does not say which of its provider's keys signed it (kid)."))
            }
            _ => Err(denied("The token's provider has no key of its kid and algorithm.")),
        }
    }

    fn may_be_of(&self, key: &Key) -> bool {
        match (self.scheme, &key.material) {
            (Scheme::Rsa(_), _) => key.kind == "RSA",
            (Scheme::Curve(_, curve, _), Some(Material::Point { curve: its, .. })) => curve == its,
            (Scheme::Curve(..), _) => key.kind == "EC",
        }
    }

    /// That a key of a set, without a certificate, signed it.
    ///
    /// # Errors
    /// [`Code::AccessDenied`].
    pub fn verify(&self, key: &Key) -> Result<()> {
        let message = self.signed.as_bytes();
        let done = match (self.scheme, &key.material) {
            (Scheme::Rsa(parameters), Some(Material::Rsa { n, e })) => {
                RsaPublicKeyComponents { n, e }.verify(parameters, message, &self.signature)
            }
            (Scheme::Curve(algorithm, curve, len), Some(Material::Point { curve: its, x, y }))
                if curve == its && x.len() == *len && y.len() == *len =>
            {
                let point = [&[4][..], x, y].concat();
                UnparsedPublicKey::new(*algorithm, point).verify(message, &self.signature)
            }
            _ => return Err(denied("The key is not of the kind of the token's algorithm.")),
        };
        done.map_err(|_| denied("The token's signature is not its provider's."))
    }

    /// That the key of a certificate, in DER, signed it. Of the certificate nothing but its key is looked at: the caller
    /// knows it by its thumbprint.
    ///
    /// # Errors
    /// [`Code::AccessDenied`].
    pub fn verify_by(&self, certificate: &[u8]) -> Result<()> {
        let info = key_info(certificate)
            .ok_or_else(|| denied("The certificate of the token's provider cannot be read."))?;
        let message = self.signed.as_bytes();
        let done = match self.scheme {
            Scheme::Rsa(parameters) => {
                UnparsedPublicKey::new(*parameters, info).verify(message, &self.signature)
            }
            Scheme::Curve(algorithm, ..) => {
                UnparsedPublicKey::new(*algorithm, info).verify(message, &self.signature)
            }
        };
        done.map_err(|_| denied("The token's signature is not its provider's."))
    }
}

/// One element of DER.
struct Element<'a> {
    tag: u8,
    /// With its tag and length.
    whole: &'a [u8],
    inner: &'a [u8],
    next: &'a [u8],
}

/// The first element, of a length that takes at most four bytes.
fn element(bytes: &[u8]) -> Option<Element<'_>> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (len, rest) = match usize::from(first) {
        len @ 0..=0x7f => (len, rest),
        of @ 0x81..=0x84 => {
            let (len, rest) = rest.split_at_checked(of - 0x80)?;
            (len.iter().fold(0, |sum, b| sum << 8 | usize::from(*b)), rest)
        }
        _ => return None,
    };
    let (inner, next) = rest.split_at_checked(len)?;
    Some(Element { tag, whole: &bytes[..bytes.len() - next.len()], inner, next })
}

/// The SubjectPublicKeyInfo of a certificate of any version: providers publish ones of version 1, too.
fn key_info(certificate: &[u8]) -> Option<&[u8]> {
    const SEQUENCE: u8 = 0x30;
    let tagged = |bytes, tag| element(bytes).filter(|element| element.tag == tag);
    let certificate = tagged(certificate, SEQUENCE).filter(|all| all.next.is_empty())?;
    let mut rest = tagged(certificate.inner, SEQUENCE)?.inner;
    // The version may be left out; serial number, algorithm, issuer, validity and subject are there.
    if let Some(version) = tagged(rest, 0xa0) {
        rest = version.next;
    }
    for tag in [2, SEQUENCE, SEQUENCE, SEQUENCE, SEQUENCE] {
        rest = tagged(rest, tag)?.next;
    }
    tagged(rest, SEQUENCE).map(|info| info.whole)
}

enum Material {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    Point { curve: String, x: Vec<u8>, y: Vec<u8> },
}

/// A key that a provider publishes, for signatures.
pub struct Key {
    kid: Option<String>,
    kind: &'static str,
    algorithm: Option<String>,
    material: Option<Material>,
    /// Certificates in DER (`x5c`); the key's own is the first. Empty for none.
    pub certificates: Vec<Vec<u8>>,
}

impl Key {
    fn of(value: &Value) -> Option<Self> {
        let Value::Object(fields) = value else { return None };
        let text = |name: &str| fields.get(name).and_then(Value::as_str);
        if text("use").is_some_and(|usage| usage != "sig") {
            return None;
        }
        let number = |name: &str| {
            let bytes = part(text(name)?)?;
            // Some write a leading zero, as ASN.1 does.
            let start = bytes.iter().position(|b| *b != 0).unwrap_or(bytes.len());
            Some(bytes[start..].to_vec())
        };
        let (kind, material) = match text("kty")? {
            "RSA" => ("RSA", number("n").zip(number("e")).map(|(n, e)| Material::Rsa { n, e })),
            "EC" => {
                let point = text("x").and_then(part).zip(text("y").and_then(part));
                let point = point.zip(text("crv"));
                let of = |((x, y), crv): ((Vec<u8>, Vec<u8>), &str)| Material::Point {
                    curve: crv.to_owned(),
                    x,
                    y,
                };
                ("EC", point.map(of))
            }
            _ => return None,
        };
        let certificates = match fields.get("x5c") {
            None => Vec::new(),
            Some(Value::Array(all)) if (1..=CERTIFICATES_MAX).contains(&all.len()) => {
                let der = |one: &Value| STANDARD.decode(one.as_str()?).ok();
                all.iter().map(der).collect::<Option<_>>()?
            }
            Some(_) => return None,
        };
        let owned = |text: Option<&str>| text.map(str::to_owned);
        let (kid, algorithm) = (owned(text("kid")), owned(text("alg")));
        Some(Self { kid, kind, algorithm, material, certificates })
    }
}

/// Reads a set of keys; those that are not for signatures, or of a kind that nobody knows, are left out.
///
/// # Errors
/// [`Code::AccessDenied`] for what is no set, or has more than 100 keys.
pub fn keys(document: &[u8]) -> Result<Vec<Key>> {
    let bad = || denied("What the token's provider publishes is no set of at most 100 keys.");
    let set = object(document).ok_or_else(bad)?;
    match set.get("keys") {
        Some(Value::Array(all)) if all.len() <= KEYS_MAX => {
            Ok(all.iter().filter_map(Key::of).collect())
        }
        _ => Err(bad()),
    }
}

/// The URL of the keys, of a provider's configuration.
///
/// # Errors
/// [`Code::AccessDenied`] where it names none, or another issuer.
pub fn keys_url(document: &[u8], issuer: &str) -> Result<String> {
    let bad = || denied("What the token's provider publishes names no keys (jwks_uri).");
    let found = object(document).ok_or_else(bad)?;
    if found.get("issuer").is_some_and(|named| named.as_str() != Some(issuer)) {
        return Err(denied("The configuration of the token's provider is another issuer's."));
    }
    found.get("jwks_uri").and_then(Value::as_str).map(str::to_owned).ok_or_else(bad)
}

#[cfg(test)]
mod tests;
