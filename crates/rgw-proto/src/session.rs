//! Tokens of sessions: what a temporary key may, sealed so that nobody changes or reads it.
//!
//! ```text
//!   base64( 1 │ nonce 12 │ AES-256-GCM( JSON of Session ) + tag 16 )      key = SHA-256("argonaut sts 1" │ rgw_sts_key)
//! ```
//!
//! Gateways with the same `rgw_sts_key` take each other's tokens. Stock's have another form; neither takes the other's.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::digest;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::error::{Code, Error, Result};
use crate::time::Time;

/// The form of tokens.
const VERSION: u8 = 1;
const NONCE_LEN: usize = 12;
/// Bytes of a token; a session's policy has 2,048 at most.
const TOKEN_BYTES_MAX: usize = 16 << 10;
/// Bytes of `rgw_sts_key`: as many as stock wants at least.
const KEY_BYTES_MIN: usize = 16;

/// A session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// The temporary access key.
    pub access_key: String,
    /// Its secret.
    pub secret: String,
    /// When it ends, s since 1970.
    pub until: i64,
    /// Who asked for it: `[TENANT$]UID`.
    pub user: String,
    /// Id of the role; empty where the user keeps its own rights.
    pub role: String,
    /// The session's name; empty without a role.
    pub name: String,
    /// The session's own policy; empty for none.
    pub policy: String,
}

/// Seals and opens tokens.
pub struct Sealer(LessSafeKey);

impl Sealer {
    /// By `rgw_sts_key`; `None` where it is shorter than 16 bytes.
    #[must_use]
    pub fn new(key: &str) -> Option<Self> {
        if key.len() < KEY_BYTES_MIN {
            return None;
        }
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(b"argonaut sts 1");
        context.update(key.as_bytes());
        let key = UnboundKey::new(&AES_256_GCM, context.finish().as_ref()).ok()?;
        Some(Self(LessSafeKey::new(key)))
    }

    /// The token of a session; `nonce` is random and never used again.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`] where it would be too long.
    pub fn seal(&self, session: &Session, nonce: [u8; NONCE_LEN]) -> Result<String> {
        let failed = || Error::new(Code::InternalError, "The session cannot be sealed.");
        let mut sealed = serde_json::to_vec(session).map_err(|_| failed())?;
        let at = Nonce::assume_unique_for_key(nonce);
        let done = self.0.seal_in_place_append_tag(at, Aad::from([VERSION]), &mut sealed);
        done.map_err(|_| failed())?;
        let text = STANDARD.encode([&[VERSION][..], &nonce, &sealed].concat());
        match text.len() <= TOKEN_BYTES_MAX {
            true => Ok(text),
            false => Err(Error::new(Code::InvalidArgument, "The session's policy is too long.")),
        }
    }

    /// The session of a token.
    ///
    /// # Errors
    /// [`Code::InvalidToken`] for what this key did not seal; [`Code::ExpiredToken`].
    pub fn open(&self, token: &str, now: Time) -> Result<Session> {
        let bad = || Error::from(Code::InvalidToken);
        if token.len() > TOKEN_BYTES_MAX {
            return Err(bad());
        }
        let bytes = STANDARD.decode(token).map_err(|_| bad())?;
        let (version, rest) = bytes.split_first().ok_or_else(bad)?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>().ok_or_else(bad)?;
        if *version != VERSION {
            return Err(bad());
        }
        let mut sealed = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = self.0.open_in_place(nonce, Aad::from([VERSION]), &mut sealed);
        let session: Session =
            serde_json::from_slice(opened.map_err(|_| bad())?).map_err(|_| bad())?;
        if session.until <= now.0 {
            return Err(Code::ExpiredToken.into());
        }
        Ok(session)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Session {
        Session {
            access_key: "A".into(),
            secret: "s".into(),
            until: 1_000,
            user: "main".into(),
            role: "r".into(),
            name: "n".into(),
            policy: String::new(),
        }
    }

    /// No bit of a token can be changed, and no other key opens it.
    #[test]
    fn tokens_are_whole_or_refused() {
        let sealer = Sealer::new("abcdefghijklmnop").unwrap();
        let token = sealer.seal(&session(), [7; 12]).unwrap();
        assert_eq!(sealer.open(&token, Time(999)).unwrap(), session());
        assert_eq!(sealer.open(&token, Time(1_000)).unwrap_err().code, Code::ExpiredToken);
        let bytes = STANDARD.decode(&token).unwrap();
        for at in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[at / 8] ^= 1 << (at % 8);
            let changed = sealer.open(&STANDARD.encode(&bytes), Time(0));
            assert_eq!(changed.unwrap_err().code, Code::InvalidToken, "bit {at}");
        }
        let other = Sealer::new("abcdefghijklmnoq").unwrap();
        assert_eq!(other.open(&token, Time(0)).unwrap_err().code, Code::InvalidToken);
        for bad in ["", "AQ==", "x", &"A".repeat(TOKEN_BYTES_MAX + 4)] {
            assert_eq!(sealer.open(bad, Time(0)).unwrap_err().code, Code::InvalidToken);
        }
        assert!(Sealer::new("short").is_none());
    }
}
