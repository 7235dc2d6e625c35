//! Tokens: proof that somebody knew a subuser's secret, for a while.
//!
//! ```text
//!   "AUTH_argtk" hex( 1 │ ends: i64, s since 1970 │ nonce 12 │ name │ HMAC-SHA256 of all before, 32 )
//!   key = HMAC-SHA256(secret of the subuser, "argonaut swift token 1")
//! ```
//!
//! Nothing is kept: any gateway of the zone takes the token, and none does once the secret is another one. Stock's
//! tokens have another form (a secret of more than 20 bytes is folded into its key); neither takes the other's.

use aws_lc_rs::hmac;

use crate::error::{Code, Result};
use crate::time::Time;
use crate::uri;

/// What tokens begin with.
pub const PREFIX: &str = "AUTH_argtk";
const VERSION: u8 = 1;
/// Bytes of a nonce.
pub const NONCE_LEN: usize = 12;
const HEAD_LEN: usize = 1 + 8 + NONCE_LEN;
const TAG_LEN: usize = 32;
/// Bytes of the longest name of a subuser.
const NAME_BYTES_MAX: usize = 512;

fn key(secret: &str) -> hmac::Key {
    let of_secret = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let derived = hmac::sign(&of_secret, b"argonaut swift token 1");
    hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref())
}

/// The token of a subuser `UID:NAME`; `nonce` is random.
#[must_use]
pub fn seal(name: &str, secret: &str, ends: Time, nonce: [u8; NONCE_LEN]) -> String {
    let mut bytes = vec![VERSION];
    bytes.extend(ends.0.to_be_bytes());
    bytes.extend(nonce);
    bytes.extend(name.as_bytes());
    let tag = hmac::sign(&key(secret), &bytes);
    bytes.extend(tag.as_ref());
    format!("{PREFIX}{}", uri::to_hex(&bytes))
}

/// Whether a secret is the one that is known, in a time that does not tell where they differ.
#[must_use]
pub fn is_secret(known: &str, sent: &str) -> bool {
    // Lengths differ in time too: sums of both do not.
    let sum = |text: &str| hmac::sign(&key("compare"), text.as_bytes());
    let (known, sent) = (sum(known), sum(sent));
    aws_lc_rs::constant_time::verify_slices_are_equal(known.as_ref(), sent.as_ref()).is_ok()
}

/// A token that was read and is not proven yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    said: Vec<u8>,
    tag: Vec<u8>,
    name: String,
    ends: Time,
}

/// Whose token was right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    name: String,
}

impl Ticket {
    /// The subuser, `UID:NAME`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Token {
    /// Reads a token.
    ///
    /// # Errors
    /// [`Code::InvalidToken`] for what is none.
    pub fn parse(text: &str) -> Result<Self> {
        let bad = || Code::InvalidToken;
        let hex = text.strip_prefix(PREFIX).ok_or_else(bad)?;
        if hex.len() > 2 * (HEAD_LEN + NAME_BYTES_MAX + TAG_LEN) {
            return Err(bad().into());
        }
        let bytes = uri::from_hex(hex).ok_or_else(bad)?;
        let (said, tag) = bytes.split_last_chunk::<TAG_LEN>().ok_or_else(bad)?;
        let (head, name) = said.split_first_chunk::<HEAD_LEN>().ok_or_else(bad)?;
        let ends = head[1..9].try_into().map_err(|_| bad())?;
        let name = std::str::from_utf8(name).map_err(|_| bad())?;
        if head[0] != VERSION || name.is_empty() {
            return Err(bad().into());
        }
        let (name, ends) = (name.to_owned(), Time(i64::from_be_bytes(ends)));
        Ok(Self { said: said.to_vec(), tag: tag.to_vec(), name, ends })
    }

    /// Whose it says to be: to look the secret up by.
    #[must_use]
    pub fn says(&self) -> &str {
        &self.name
    }

    /// Proves it, in constant time.
    ///
    /// # Errors
    /// [`Code::InvalidToken`] where another secret, or none, made it; [`Code::ExpiredToken`].
    pub fn verify(&self, secret: &str, now: Time) -> Result<Ticket> {
        let right = hmac::verify(&key(secret), &self.said, &self.tag);
        right.map_err(|_| Code::InvalidToken)?;
        if self.ends <= now {
            return Err(Code::ExpiredToken.into());
        }
        Ok(Ticket { name: self.name.clone() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn open(text: &str, secret: &str, now: i64) -> std::result::Result<String, Code> {
        let ticket = Token::parse(text).and_then(|token| token.verify(secret, Time(now)));
        ticket.map(|t| t.name().to_owned()).map_err(|e| e.code)
    }

    /// No bit of a token can be changed, no other secret makes one, and it ends.
    #[test]
    fn tokens_are_whole_or_refused() {
        let token = seal("ten$main:swift", "secret", Time(1_000), [7; 12]);
        assert_eq!(open(&token, "secret", 999), Ok("ten$main:swift".into()));
        assert_eq!(open(&token, "secret", 1_000), Err(Code::ExpiredToken));
        assert_eq!(open(&token, "secreT", 0), Err(Code::InvalidToken));
        assert_eq!(open(&token, "", 0), Err(Code::InvalidToken));
        let bytes = uri::from_hex(&token[PREFIX.len()..]).unwrap();
        for at in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[at / 8] ^= 1 << (at % 8);
            let changed = format!("{PREFIX}{}", uri::to_hex(&bytes));
            assert_eq!(open(&changed, "secret", 0), Err(Code::InvalidToken), "bit {at}");
        }
        for cut in 0..bytes.len() {
            let cut = format!("{PREFIX}{}", uri::to_hex(&bytes[..cut]));
            assert_eq!(open(&cut, "secret", 0), Err(Code::InvalidToken));
        }
    }

    /// Stock folds secrets into 20 bytes; here each byte of a long one counts.
    #[test]
    fn all_of_a_secret_counts() {
        let long = "a".repeat(40);
        let token = seal("u:s", &long, Time(10), [0; 12]);
        assert_eq!(open(&token, &"a".repeat(39), 0), Err(Code::InvalidToken));
        assert_eq!(open(&token, &long, 0), Ok("u:s".into()));
        assert!(is_secret("a", "a") && !is_secret("a", "ab") && !is_secret("a", ""));
    }

    proptest! {
        /// No text makes the parser panic, and nobody guesses a token.
        #[test]
        fn any_text(text in "(AUTH_argtk)?([0-9a-f]{0,140}|.*)") {
            prop_assert!(open(&text, "secret", 0).is_err());
        }
    }
}
