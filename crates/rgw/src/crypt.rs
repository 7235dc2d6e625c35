//! Keys that objects are encrypted with: those that clients bring (SSE-C), and those that are made of a master key and 32
//! random bytes that stand beside the object (SSE-KMS with stock's backend `testing`, and stock's default key). No key is
//! stored or logged.
//!
//! Source: `rgw_crypt.cc` (`rgw_s3_prepare_encrypt`, `rgw_s3_prepare_decrypt`), `rgw_kms.cc` (`get_actual_key_from_conf`).

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rgw_core::crypt::Cipher;
use rgw_core::gateway::attr_text;
use rgw_core::meta::Attrs;
use rgw_proto::request::Headers;
use rgw_proto::{Code, Error, Result, checksum};
use types::Bytes;

use crate::answer::Answer;

/// Headers of a key of a copy's source begin so.
pub const SOURCE_PREFIX: &str = "x-amz-copy-source-server-side-encryption-customer-";
/// Headers of a key begin so.
pub const PREFIX: &str = "x-amz-server-side-encryption-customer-";
/// What the attribute `crypt.mode` says of it.
const MODE: &[u8] = b"SSE-C-AES256";

/// Modes of keys that are made of a master key.
const KMS: &str = "SSE-KMS";
const AUTO: &str = "RGW-AUTO";
/// Bytes of a context that a client gives.
const CONTEXT_BYTES_MAX: usize = 8 << 10;

/// The operator's master keys.
#[derive(Clone, Default)]
pub struct Masters {
    /// By id: `rgw_crypt_s3_kms_encryption_keys`, where `rgw_crypt_s3_kms_backend` is `testing`.
    pub kms: BTreeMap<String, [u8; 32]>,
    /// Of objects that nothing else encrypts: `rgw_crypt_default_encryption_key`.
    pub default: Option<[u8; 32]>,
}

impl Masters {
    /// Reads stock's options: `ID=BASE64` with blanks, commas or semicolons between; one key in base64.
    ///
    /// # Errors
    /// What is no key; the key itself is not told.
    pub fn parse(kms: &str, default: &str) -> std::result::Result<Self, String> {
        let key = |text: &str| STANDARD.decode(text).ok().and_then(|key| key.try_into().ok());
        let mut out = Self::default();
        for one in kms.split([' ', '\t', ',', ';']).filter(|one| !one.is_empty()) {
            let (id, text) = one.split_once('=').unwrap_or((one, ""));
            let bad = || {
                format!("rgw_crypt_s3_kms_encryption_keys: the key {id} is no 32 bytes in base64")
            };
            out.kms.insert(id.to_owned(), key(text).ok_or_else(bad)?);
        }
        if !default.is_empty() {
            let bad = || "rgw_crypt_default_encryption_key is no 32 bytes in base64".to_owned();
            out.default = Some(key(default).ok_or_else(bad)?);
        }
        Ok(out)
    }

    fn of_kms(&self, id: &str) -> Result<&[u8; 32]> {
        self.kms.get(id).ok_or_else(|| {
            let text = format!("The gateway has no key {id:?} (rgw_crypt_s3_kms_encryption_keys).");
            Error::new(Code::InvalidArgument, text)
        })
    }
}

/// What a bucket encrypts new objects with: `RGWBucketEncryptionConfig`, three structs of `ENCODE_START(1, 1)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketDefault {
    /// `AES256` or `aws:kms`.
    pub algorithm: String,
    /// Of the master key; empty for `AES256`.
    pub key_id: String,
    /// Kept, and means nothing here.
    pub bucket_key: bool,
}

impl BucketDefault {
    /// As it is stored in `sse-s3.policy`.
    pub fn to_bytes(&self) -> Bytes {
        let mut w = types::Writer::new(types::Features::ALL);
        w.framed(1, 1, |w| {
            w.bool(true);
            w.framed(1, 1, |w| {
                w.framed(1, 1, |w| {
                    w.str(&self.key_id);
                    w.str(&self.algorithm);
                });
                w.bool(self.bucket_key);
            });
        });
        w.finish()
    }

    /// What a bucket has stored; `None` where it has no rule.
    ///
    /// # Errors
    /// [`Code::InternalError`] where it cannot be read: then nothing is stored plain.
    pub fn of(attrs: &Attrs) -> Result<Option<Self>> {
        let Some(bytes) = attrs.get(DEFAULT) else { return Ok(None) };
        let read = types::Reader::shared(bytes).framed("RGWBucketEncryptionConfig", 1, |r, _| {
            if !r.bool()? {
                return Ok(None);
            }
            r.framed("ServerSideEncryptionConfiguration", 1, |r, _| {
                let (key_id, algorithm) =
                    r.framed("ApplyServerSideEncryptionByDefault", 1, |r, _| {
                        Ok((r.string()?, r.string()?))
                    })?;
                Ok(Some(Self { algorithm, key_id, bucket_key: r.bool()? }))
            })
        });
        read.map_err(|_| Error::new(Code::InternalError, "The bucket's encryption cannot be read."))
    }
}

/// The attribute of buckets that has their default.
pub const DEFAULT: &str = "sse-s3.policy";

/// What an object is encrypted with.
#[derive(Clone)]
pub struct ObjectKey {
    cipher: Cipher,
    /// What stands beside the object.
    noted: Attrs,
    /// Headers of answers.
    told: Vec<(String, String)>,
    /// And of those to its writer.
    told_once: Vec<(String, String)>,
}

impl ObjectKey {
    /// What encrypts and decrypts by it.
    pub fn cipher(&self) -> Cipher {
        self.cipher.clone()
    }

    /// Notes on an object how it is encrypted.
    pub fn note(&self, attrs: &mut Attrs) {
        attrs.extend(self.noted.clone());
    }

    /// Tells a client how the object is encrypted.
    pub fn tell(&self, answer: Answer) -> Answer {
        let add =
            |answer: Answer, (name, value): &(String, String)| answer.header(name, value.clone());
        self.told.iter().fold(answer, add)
    }

    /// As [`ObjectKey::tell`], to who wrote it.
    pub fn tell_writer(&self, answer: Answer) -> Answer {
        let add =
            |answer: Answer, (name, value): &(String, String)| answer.header(name, value.clone());
        self.told_once.iter().fold(self.tell(answer), add)
    }

    /// A key made of a master key and 32 bytes: each block of them encrypted alone.
    fn derived(master: &[u8; 32], selector: &[u8; 32]) -> Cipher {
        let mut key = *selector;
        Cipher::new(master).encrypt_blocks(&mut key);
        Cipher::new(&key)
    }

    fn of_default(master: &[u8; 32], selector: &[u8; 32]) -> Self {
        let noted = [("crypt.mode", AUTO.as_bytes()), ("crypt.keysel", selector)];
        let noted = noted.map(|(name, value)| (name.to_owned(), Bytes::copy_from_slice(value)));
        Self {
            cipher: Self::derived(master, selector),
            noted: noted.into(),
            told: Vec::new(),
            told_once: Vec::new(),
        }
    }

    fn of_kms(master: &[u8; 32], id: &str, selector: &[u8; 32], context: &str) -> Self {
        let noted = [
            ("crypt.mode", KMS.as_bytes()),
            ("crypt.keyid", id.as_bytes()),
            ("crypt.keysel", selector),
            ("crypt.context", context.as_bytes()),
        ];
        let noted = noted.map(|(name, value)| (name.to_owned(), Bytes::copy_from_slice(value)));
        let told = vec![(SSE.to_owned(), "aws:kms".to_owned()), (KEY_ID.to_owned(), id.to_owned())];
        let told_once = vec![(CONTEXT.to_owned(), context.to_owned())];
        let told_once = if context.is_empty() { Vec::new() } else { told_once };
        Self { cipher: Self::derived(master, selector), noted: noted.into(), told, told_once }
    }
}

const SSE: &str = "x-amz-server-side-encryption";
const KEY_ID: &str = "x-amz-server-side-encryption-aws-kms-key-id";
const CONTEXT: &str = "x-amz-server-side-encryption-context";

/// Where a new object goes: what its context names.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// Owner of the bucket.
    pub owner: &'a str,
    /// The bucket.
    pub bucket: &'a str,
    /// The key.
    pub key: &'a str,
}

/// A context as stock keeps it: a JSON object of texts, with the object's ARN in it, in base64.
fn context(given: Option<&str>, at: Place<'_>) -> Result<String> {
    let bad = || {
        Error::new(Code::InvalidArgument, format!("{CONTEXT} is a JSON object of texts in base64."))
    };
    let mut all: BTreeMap<String, String> = match given {
        None | Some("") => BTreeMap::new(),
        Some(text) if text.len() > CONTEXT_BYTES_MAX => return Err(bad()),
        Some(text) => {
            let bytes = STANDARD.decode(text).map_err(|_| bad())?;
            serde_json::from_slice(&bytes).map_err(|_| bad())?
        }
    };
    let arn = format!("arn:aws:s3::{}:{}/{}", at.owner, at.bucket, at.key);
    all.entry("aws:s3:arn".into()).or_insert(arn);
    Ok(STANDARD.encode(serde_json::to_vec(&all).map_err(|_| bad())?))
}

fn no_vault() -> Error {
    let text = "Encryption AES256 (SSE-S3) wants Vault, which is not built here: ask for aws:kms or bring a key.";
    Error::new(Code::InvalidArgument, text)
}

/// The key of a new object: of the client, of the headers, of the bucket's default, or of the gateway's. `selector` is
/// 32 random bytes.
///
/// # Errors
/// [`Code::InvalidArgument`] for headers that do not fit together, a key that the gateway has not, and SSE-S3;
/// [`Code::InvalidRequest`] for plain HTTP where keys want TLS. An object that is to be encrypted is never stored plain.
pub fn for_new(
    headers: &Headers,
    is_secret: bool,
    masters: &Masters,
    bucket: &Attrs,
    at: Place<'_>,
    selector: [u8; 32],
) -> Result<Option<ObjectKey>> {
    let invalid = |text: &str| Err(Error::new(Code::InvalidArgument, text));
    let (sse, id) = (headers.single(SSE)?, headers.single(KEY_ID)?);
    let given = headers.single(CONTEXT)?;
    if let Some(key) = CustomerKey::of(headers, PREFIX, is_secret)? {
        if sse.is_some() || id.is_some() {
            return invalid(
                "A key of the client and x-amz-server-side-encryption exclude each other.",
            );
        }
        return Ok(Some(key.into()));
    }
    let default = match sse {
        Some(_) => None,
        None if id.is_some() || given.is_some() => {
            return invalid("A key id and a context want x-amz-server-side-encryption: aws:kms.");
        }
        None => BucketDefault::of(bucket)?,
    };
    let (algorithm, id) = match (sse, &default) {
        (Some(sse), _) => (sse, id.unwrap_or_default()),
        (None, Some(default)) => (default.algorithm.as_str(), default.key_id.as_str()),
        (None, None) => {
            let key = masters.default.as_ref();
            return Ok(key.map(|master| ObjectKey::of_default(master, &selector)));
        }
    };
    match algorithm {
        "aws:kms" if !is_secret => {
            let text = "Server side encryption is for TLS only (rgw_crypt_require_ssl).";
            Err(Error::new(Code::InvalidRequest, text))
        }
        "aws:kms" if id.is_empty() => {
            invalid("aws:kms wants x-amz-server-side-encryption-aws-kms-key-id.")
        }
        "aws:kms" => {
            let (master, context) = (masters.of_kms(id)?, context(given, at)?);
            Ok(Some(ObjectKey::of_kms(master, id, &selector, &context)))
        }
        "AES256" => Err(no_vault()),
        _ => invalid("x-amz-server-side-encryption is aws:kms or AES256."),
    }
}

/// A key of a client.
#[derive(Clone)]
pub struct CustomerKey {
    cipher: Cipher,
    md5: [u8; 16],
}

impl From<CustomerKey> for ObjectKey {
    fn from(key: CustomerKey) -> Self {
        let noted = [("crypt.mode", MODE), ("crypt.keymd5", &key.md5)];
        let noted = noted.map(|(name, value)| (name.to_owned(), Bytes::copy_from_slice(value)));
        let told = vec![
            (format!("{PREFIX}algorithm"), "AES256".to_owned()),
            (format!("{PREFIX}key-MD5"), STANDARD.encode(key.md5)),
        ];
        Self { cipher: key.cipher, noted: noted.into(), told, told_once: Vec::new() }
    }
}

impl CustomerKey {
    /// Reads the key of a request ([`PREFIX`]), or that of a copy's source ([`SOURCE_PREFIX`]);
    /// `None` where it brings none. Over plain HTTP it is refused, unless
    /// `rgw_crypt_require_ssl` is off: whoever listens would have the key.
    ///
    /// # Errors
    /// [`Code::InvalidEncryptionAlgorithmError`], [`Code::InvalidArgument`], [`Code::InvalidRequest`].
    pub fn of(headers: &Headers, prefix: &str, is_secret: bool) -> Result<Option<Self>> {
        let get = |name: &str| headers.single(&format!("{prefix}{name}"));
        let (algorithm, key, sum) = (get("algorithm")?, get("key")?, get("key-md5")?);
        let Some(algorithm) = algorithm else {
            if key.is_some() || sum.is_some() {
                let text = format!("A key wants {prefix}algorithm: AES256.");
                return Err(Error::new(Code::InvalidArgument, text));
            }
            return Ok(None);
        };
        if algorithm != "AES256" {
            return Err(Code::InvalidEncryptionAlgorithmError.into());
        }
        if !is_secret {
            let text = "A key of a client is taken over TLS only (rgw_crypt_require_ssl).";
            return Err(Error::new(Code::InvalidRequest, text));
        }
        let bad = |what: &str| Error::new(Code::InvalidArgument, format!("{prefix}{what}"));
        let key: [u8; 32] = key
            .and_then(|text| STANDARD.decode(text).ok()?.try_into().ok())
            .ok_or_else(|| bad("key is 32 bytes in base64."))?;
        let told: [u8; 16] = sum
            .and_then(|text| STANDARD.decode(text).ok()?.try_into().ok())
            .ok_or_else(|| bad("key-MD5 is 16 bytes in base64."))?;
        let md5 = checksum::md5(&key);
        if md5 != told {
            return Err(bad("key-MD5 does not fit the key."));
        }
        Ok(Some(Self { cipher: Cipher::new(&key), md5 }))
    }
}

/// The key that an object's bytes want; `None` where they are plain.
///
/// # Errors
/// [`Code::InvalidRequest`] where the key is missing, or the object has none; [`Code::AccessDenied`] for another key;
/// [`Code::InvalidArgument`] for a master key that the gateway has not; [`Code::NotImplemented`] for other ways of
/// encryption.
pub fn wanted(
    attrs: &Attrs,
    brought: Option<CustomerKey>,
    is_secret: bool,
    masters: &Masters,
) -> Result<Option<ObjectKey>> {
    let Some(mode) = attrs.get("crypt.mode") else {
        return match brought {
            Some(_) => Err(Error::new(
                Code::InvalidRequest,
                "The object is not encrypted: leave out the key.",
            )),
            None => Ok(None),
        };
    };
    let selector = || -> Result<[u8; 32]> {
        let found = attrs.get("crypt.keysel").and_then(|bytes| bytes[..].try_into().ok());
        found.ok_or_else(|| Error::new(Code::InternalError, "The object's key cannot be made."))
    };
    let mode = attr_text(mode);
    if mode.as_bytes() != MODE && brought.is_some() {
        let text = "The object is encrypted with a key of the gateway's: leave out the client's.";
        return Err(Error::new(Code::InvalidRequest, text));
    }
    match mode.as_str() {
        KMS => {
            if !is_secret {
                let text = "Server side encryption is for TLS only (rgw_crypt_require_ssl).";
                return Err(Error::new(Code::InvalidRequest, text));
            }
            let text = |name| attrs.get(name).map(|v| attr_text(v)).unwrap_or_default();
            let id = text("crypt.keyid");
            let master = masters.of_kms(&id)?;
            let context = text("crypt.context");
            Ok(Some(ObjectKey::of_kms(master, &id, &selector()?, &context)))
        }
        AUTO => {
            let Some(master) = &masters.default else {
                let text = "The object is encrypted with rgw_crypt_default_encryption_key, which is not set.";
                return Err(Error::new(Code::InvalidArgument, text));
            };
            Ok(Some(ObjectKey::of_default(master, &selector()?)))
        }
        mode if mode.as_bytes() == MODE => {
            let Some(key) = brought else {
                let text =
                    "The object is encrypted with a client's key: send the key with the request.";
                return Err(Error::new(Code::InvalidRequest, text));
            };
            if attrs.get("crypt.keymd5").is_none_or(|md5| md5[..] != key.md5) {
                let text = "The object is encrypted with another key.";
                return Err(Error::new(Code::AccessDenied, text));
            }
            Ok(Some(key.into()))
        }
        _ => {
            let text = "The object is encrypted with keys of Vault, which is not built: stock radosgw reads it.";
            Err(Error::new(Code::NotImplemented, text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(all: &[(&str, &str)], is_secret: bool) -> Result<Option<CustomerKey>> {
        let headers = all.iter().map(|(name, value)| (format!("{PREFIX}{name}"), *value));
        CustomerKey::of(&Headers::new(headers).unwrap(), PREFIX, is_secret)
    }

    #[test]
    fn keys_are_whole_or_refused() {
        let key = STANDARD.encode([1; 32]);
        let sum = STANDARD.encode(checksum::md5(&[1; 32]));
        let good = [("algorithm", "AES256"), ("key", key.as_str()), ("key-MD5", sum.as_str())];
        assert!(of(&[], false).unwrap().is_none());
        assert!(of(&good, true).unwrap().is_some());
        assert!(of(&good, false).is_err(), "in the clear");
        for n in 0..3 {
            let mut bad = good.to_vec();
            bad.remove(n);
            assert!(of(&bad, true).is_err(), "without {}", good[n].0);
            let mut bad = good;
            bad[n].1 = "AAAA";
            assert!(of(&bad, true).is_err(), "another {}", good[n].0);
        }
        let mut attrs = Attrs::new();
        let wanted = |attrs: &Attrs, key| wanted(attrs, key, true, &Masters::default());
        let mine = of(&good, true).unwrap();
        assert!(wanted(&attrs, None).unwrap().is_none() && wanted(&attrs, mine.clone()).is_err());
        ObjectKey::from(mine.clone().unwrap()).note(&mut attrs);
        assert!(wanted(&attrs, None).is_err() && wanted(&attrs, mine).unwrap().is_some());
        attrs.insert("crypt.keymd5".into(), Bytes::from_static(&[0; 16]));
        assert!(wanted(&attrs, of(&good, true).unwrap()).is_err());
    }

    const AT: Place<'_> = Place { owner: "main", bucket: "enc1", key: "k" };

    fn masters() -> Masters {
        let keys = "testkey-1=YmluCmJvb3N0CmJvb3N0LWJ1aWxkCmNlcGguY29uZgo= t2=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
        Masters::parse(keys, "").unwrap()
    }

    /// What stock 20.2.4 stored for the same requests.
    #[test]
    fn contexts_are_stocks() {
        let own = "eyJhd3M6czM6YXJuIjoiYXJuOmF3czpzMzo6bWFpbjplbmMxL2sifQ==";
        assert_eq!(context(None, AT).unwrap(), own);
        let both = "eyJhIjoiYiIsImF3czpzMzphcm4iOiJhcm46YXdzOnMzOjptYWluOmVuYzEva2MifQ==";
        assert_eq!(context(Some("eyJhIjoiYiJ9"), Place { key: "kc", ..AT }).unwrap(), both);
        for bad in ["x", "W10=", "eyJhIjoxfQ=="] {
            assert!(context(Some(bad), AT).is_err(), "{bad}");
        }
    }

    /// A new object is encrypted as its headers, else its bucket say; what cannot be done is refused, never stored plain.
    #[test]
    fn new_objects_are_encrypted_or_refused() {
        let default = |algorithm: &str, id: &str| -> Attrs {
            let default =
                BucketDefault { algorithm: algorithm.into(), key_id: id.into(), bucket_key: true };
            [(DEFAULT.to_owned(), default.to_bytes())].into()
        };
        let new = |headers: &[(&str, &str)], bucket: &Attrs, is_secret| {
            let headers = Headers::new(headers.iter().copied()).unwrap();
            let key = for_new(&headers, is_secret, &masters(), bucket, AT, [7; 32])?;
            Ok::<_, Error>(key.map(|key| attr_text(&key.noted["crypt.keyid"])))
        };
        let none = Attrs::new();
        assert_eq!(new(&[], &none, true).unwrap(), None);
        let kms = [(SSE, "aws:kms"), (KEY_ID, "testkey-1")];
        assert_eq!(new(&kms, &none, true).unwrap().as_deref(), Some("testkey-1"));
        assert_eq!(new(&[], &default("aws:kms", "t2"), true).unwrap().as_deref(), Some("t2"));
        assert_eq!(new(&kms, &default("AES256", ""), true).unwrap().as_deref(), Some("testkey-1"));
        assert!(new(&kms, &none, false).is_err(), "in the clear");
        for (headers, bucket) in [
            (&[(SSE, "AES256")][..], &none),
            (&[(SSE, "aws:kms")], &none),
            (&[(SSE, "junk")], &none),
            (&[(SSE, "aws:kms"), (KEY_ID, "none")], &none),
            (&[(KEY_ID, "testkey-1")], &none),
            (&[], &default("AES256", "")),
            (&[], &default("aws:kms", "")),
            (&[], &[(DEFAULT.to_owned(), Bytes::from_static(b"\x01\x01"))].into()),
        ] {
            assert!(new(headers, bucket, true).is_err(), "{headers:?}");
        }
        let odd = Masters::parse("a=AAAA", "").err().unwrap();
        assert!(odd.contains("key a") && !odd.contains("AAAA"), "a secret is told: {odd}");
    }

    /// A key is found again by what stands beside the object, and by nothing else.
    #[test]
    fn keys_come_back() {
        let headers = Headers::new([(SSE, "aws:kms"), (KEY_ID, "testkey-1")]).unwrap();
        let key = for_new(&headers, true, &masters(), &Attrs::new(), AT, [7; 32]).unwrap().unwrap();
        let mut attrs = Attrs::new();
        key.note(&mut attrs);
        let seal = |key: &ObjectKey| {
            let mut data = [1; 40];
            key.cipher().encrypt(0, &mut data);
            data
        };
        let again = wanted(&attrs, None, true, &masters()).unwrap().unwrap();
        assert_eq!(seal(&again), seal(&key));
        assert!(wanted(&attrs, None, true, &Masters::default()).is_err());
        assert!(wanted(&attrs, None, false, &masters()).is_err());
        attrs.insert("crypt.keyid".into(), Bytes::from_static(b"t2"));
        let other = wanted(&attrs, None, true, &masters()).unwrap().unwrap();
        assert_ne!(seal(&other), seal(&key));
        attrs.insert("crypt.mode".into(), Bytes::from_static(b"AES256"));
        assert_eq!(
            wanted(&attrs, None, true, &masters()).err().unwrap().code,
            Code::NotImplemented
        );
    }
}
