//! Keys that clients bring (SSE-C): read from headers, never stored or logged.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rgw_core::crypt::Cipher;
use rgw_core::meta::Attrs;
use rgw_proto::request::Headers;
use rgw_proto::{Code, Error, Result, checksum};
use types::Bytes;

use crate::answer::Answer;

/// Headers of a key begin so.
const PREFIX: &str = "x-amz-server-side-encryption-customer-";
/// What the attribute `crypt.mode` says of it.
const MODE: &[u8] = b"SSE-C-AES256";

/// A key of a client.
#[derive(Clone)]
pub struct CustomerKey {
    cipher: Cipher,
    md5: [u8; 16],
}

impl CustomerKey {
    /// Reads the key of a request; `None` where it brings none. Over plain HTTP it is refused, unless
    /// `rgw_crypt_require_ssl` is off: whoever listens would have the key.
    ///
    /// # Errors
    /// [`Code::InvalidEncryptionAlgorithmError`], [`Code::InvalidArgument`], [`Code::InvalidRequest`].
    pub fn of(headers: &Headers, is_secret: bool) -> Result<Option<Self>> {
        let get = |name: &str| headers.single(&format!("{PREFIX}{name}"));
        let (algorithm, key, sum) = (get("algorithm")?, get("key")?, get("key-md5")?);
        let Some(algorithm) = algorithm else {
            if key.is_some() || sum.is_some() {
                let text = format!("A key wants {PREFIX}algorithm: AES256.");
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
        let bad = |what: &str| Error::new(Code::InvalidArgument, format!("{PREFIX}{what}"));
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

    /// What encrypts and decrypts by it.
    pub fn cipher(&self) -> Cipher {
        self.cipher.clone()
    }

    /// Notes on an object that it wants this key.
    pub fn note(&self, attrs: &mut Attrs) {
        attrs.insert("crypt.mode".into(), Bytes::from_static(MODE));
        attrs.insert("crypt.keymd5".into(), Bytes::copy_from_slice(&self.md5));
    }

    /// Tells a client which key it was.
    pub fn tell(&self, answer: Answer) -> Answer {
        answer
            .header(&format!("{PREFIX}algorithm"), "AES256")
            .header(&format!("{PREFIX}key-MD5"), STANDARD.encode(self.md5))
    }
}

/// The key that an object's bytes want; `None` where they are plain.
///
/// # Errors
/// [`Code::InvalidRequest`] where the key is missing, or the object has none; [`Code::AccessDenied`] for another key;
/// [`Code::NotImplemented`] for other ways of encryption.
pub fn wanted(attrs: &Attrs, brought: Option<CustomerKey>) -> Result<Option<CustomerKey>> {
    let Some(mode) = attrs.get("crypt.mode") else {
        return match brought {
            Some(_) => Err(Error::new(
                Code::InvalidRequest,
                "The object is not encrypted: leave out the key.",
            )),
            None => Ok(None),
        };
    };
    if mode[..] != *MODE {
        let text = "The object is encrypted with keys of a server, which is not built: stock radosgw reads it.";
        return Err(Error::new(Code::NotImplemented, text));
    }
    let Some(key) = brought else {
        let text = "The object is encrypted with a client's key: send the key with the request.";
        return Err(Error::new(Code::InvalidRequest, text));
    };
    if attrs.get("crypt.keymd5").is_none_or(|md5| md5[..] != key.md5) {
        return Err(Error::new(Code::AccessDenied, "The object is encrypted with another key."));
    }
    Ok(Some(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(all: &[(&str, &str)], is_secret: bool) -> Result<Option<CustomerKey>> {
        let headers = all.iter().map(|(name, value)| (format!("{PREFIX}{name}"), *value));
        CustomerKey::of(&Headers::new(headers).unwrap(), is_secret)
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
        let mine = of(&good, true).unwrap();
        assert!(wanted(&attrs, None).unwrap().is_none() && wanted(&attrs, mine.clone()).is_err());
        mine.as_ref().unwrap().note(&mut attrs);
        assert!(wanted(&attrs, None).is_err() && wanted(&attrs, mine).unwrap().is_some());
        attrs.insert("crypt.keymd5".into(), Bytes::from_static(&[0; 16]));
        assert!(wanted(&attrs, of(&good, true).unwrap()).is_err());
    }
}
