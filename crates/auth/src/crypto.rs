//! Keys of both kinds and what is sealed with them.
//!
//! | kind | secret | sealed bytes |
//! |---|---|---|
//! | 1 `aes` | 16 | AES-128-CBC, PKCS#7, fixed IV; no integrity beyond the magic inside |
//! | 2 `aes256k` | 32 | AES-256-CBC-CS3 of 16 random bytes and the text, then 24 bytes of HMAC-SHA384; a key per usage |
//!
//! Source: the peer's `auth/Crypto.cc`, RFC 8009; vectors from live 16.2.15 and 20.2.4.

use std::fmt;

use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use aws_lc_rs::{constant_time, digest, hmac};
use base64::Engine;
use bytes::Bytes;
use denc::{DecodeError, Denc, Features, Reader, Writer};
use env::Random;
use types::UTime;

use crate::AuthError;

/// The SHA-256 of some bytes.
#[must_use]
pub fn sha256(data: &[u8]) -> [u8; 32] {
    let mut sum = [0; 32];
    sum.copy_from_slice(digest::digest(&digest::SHA256, data).as_ref());
    sum
}

/// The kinds of keys, as numbered on the wire; also called ciphers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyKind(pub u16);

impl KeyKind {
    /// No key.
    pub const NONE: Self = Self(0);
    /// AES-128: every release.
    pub const AES: Self = Self(1);
    /// AES-256 with integrity: from release 20 and kernel 7.0 on.
    pub const AES256K: Self = Self(2);

    /// The peer's name of the kind.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NONE => "none",
            Self::AES => "aes",
            Self::AES256K => "aes256k",
            _ => "unknown",
        }
    }

    /// The kind with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::NONE, Self::AES, Self::AES256K].into_iter().find(|k| k.name() == name)
    }

    /// The kind of key with this name that has a secret: `aes` or `aes256k`.
    #[must_use]
    pub fn cipher_named(name: &str) -> Option<Self> {
        Self::from_name(name).filter(|kind| kind.secret_len() > 0)
    }

    /// The same by its number, as monitor maps have it.
    #[must_use]
    pub fn cipher(number: i32) -> Option<Self> {
        u16::try_from(number).ok().map(Self).filter(|kind| kind.secret_len() > 0)
    }

    /// Bytes of a secret.
    #[must_use]
    pub const fn secret_len(self) -> usize {
        match self {
            Self::AES => 16,
            Self::AES256K => 32,
            _ => 0,
        }
    }
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What is sealed; kind 2 derives a key for each, kind 1 ignores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage(pub u32);

impl Usage {
    /// The connection secret in the monitor's AUTH_DONE.
    pub const CON_SECRET: Self = Self(0x03);
    /// Session key and validity of a ticket.
    pub const TICKET_SESSION_KEY: Self = Self(0x04);
    /// A ticket blob for a client that showed an old ticket.
    pub const TICKET_BLOB: Self = Self(0x05);
    /// Authorizer.
    pub const AUTHORIZE: Self = Self(0x10);
    /// The server's challenge.
    pub const AUTHORIZE_CHALLENGE: Self = Self(0x11);
    /// The server's last word.
    pub const AUTHORIZE_REPLY: Self = Self(0x12);
    /// Rotating keys on their way to a daemon.
    pub const ROTATING_SECRETS: Self = Self(0x20);
    /// What is inside a ticket.
    pub const TICKET_INFO: Self = Self(0x30);
}

/// A shared secret. The peer's `CryptoKey`: u16 kind, utime created, u16 length, secret;
/// its base64 is the `key = AQ...==` of keyrings. `Debug` does not show the secret.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CryptoKey {
    /// The kind.
    pub kind: KeyKind,
    /// When it was made.
    pub created: UTime,
    secret: Bytes,
}

/// Why a key's text or bytes are no key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Not base64.
    #[error("a key is base64 text")]
    NotBase64,
    /// Not the layout of a key.
    #[error("not a key: {0}")]
    Malformed(#[from] DecodeError),
    /// A kind that is not known, or a secret of the wrong length for it.
    #[error("key of kind {kind} with {len} bytes: known are aes (16) and aes256k (32)")]
    Unknown {
        /// Its kind.
        kind: u16,
        /// Its length.
        len: usize,
    },
}

impl fmt::Debug for CryptoKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CryptoKey({}, {})", self.kind, self.created)
    }
}

impl Denc for CryptoKey {
    fn encode(&self, w: &mut Writer) {
        w.u16(self.kind.0);
        self.created.encode(w);
        w.u16(u16::try_from(self.secret.len()).expect("a secret is short"));
        w.raw(&self.secret);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let kind = KeyKind(r.u16()?);
        let created = Denc::decode(r)?;
        let len = usize::from(r.u16()?);
        let secret = Bytes::copy_from_slice(r.take("secret", len)?);
        Ok(Self { kind, created, secret })
    }
}

pub(crate) const AES_IV: [u8; 16] = *b"cephsageyudagreg";
/// Stands in front of every sealed value; tells a wrong key from a right one.
const MAGIC: u64 = 0xff00_9cad_8826_aa55;
const TAG: usize = 24;

impl CryptoKey {
    /// A fresh key.
    ///
    /// # Panics
    /// For a kind without secrets.
    #[must_use]
    pub fn generate(kind: KeyKind, created: UTime, rng: &mut dyn Random) -> Self {
        assert!(kind.secret_len() != 0, "only aes and aes256k keys can be made");
        let mut secret = vec![0; kind.secret_len()];
        rng.fill(&mut secret);
        Self { kind, created, secret: secret.into() }
    }

    /// A key from its parts.
    ///
    /// # Errors
    /// [`KeyError::Unknown`].
    pub fn new(kind: KeyKind, created: UTime, secret: &[u8]) -> Result<Self, KeyError> {
        let key = Self { kind, created, secret: Bytes::copy_from_slice(secret) };
        key.check()?;
        Ok(key)
    }

    fn check(&self) -> Result<(), KeyError> {
        let len = self.secret.len();
        let fits = match self.kind {
            KeyKind::AES => len >= 16,
            KeyKind::AES256K => len == 32,
            _ => false,
        };
        if fits { Ok(()) } else { Err(KeyError::Unknown { kind: self.kind.0, len }) }
    }

    /// Whether there is no secret.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.kind == KeyKind::NONE || self.secret.is_empty()
    }

    /// The raw secret: key of the connection's signatures.
    #[must_use]
    pub fn secret(&self) -> &Bytes {
        &self.secret
    }

    /// Reads the text of keyrings.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn from_base64(text: &str) -> Result<Self, KeyError> {
        let raw = base64::engine::general_purpose::STANDARD
            .decode(text.trim())
            .map_err(|_| KeyError::NotBase64)?;
        let key = Self::from_bytes(&raw)?;
        key.check()?;
        Ok(key)
    }

    /// The text of keyrings. It is the secret: show it to nobody who did not ask for it.
    #[must_use]
    pub fn to_base64(&self) -> String {
        base64::engine::general_purpose::STANDARD.encode(self.to_bytes())
    }

    /// Encrypts `plain`.
    ///
    /// # Errors
    /// [`AuthError::Protocol`] for a key of a kind that is not known.
    pub fn encrypt(
        &self,
        usage: Usage,
        plain: &[u8],
        rng: &mut dyn Random,
    ) -> Result<Vec<u8>, AuthError> {
        self.check().map_err(|_| AuthError::Protocol("encryption with a key of unknown kind"))?;
        if self.kind == KeyKind::AES {
            return Ok(self.aes_encrypt(plain));
        }
        let mut confounder = [0; 16];
        rng.fill(&mut confounder);
        Ok(self.aes256k_encrypt(usage, &confounder, plain))
    }

    /// What was encrypted; `what` names it in the error.
    ///
    /// # Errors
    /// [`AuthError::Undecryptable`].
    pub fn decrypt(
        &self,
        usage: Usage,
        sealed: &[u8],
        what: &'static str,
    ) -> Result<Vec<u8>, AuthError> {
        self.check().map_err(|_| AuthError::Undecryptable(what))?;
        let plain = if self.kind == KeyKind::AES {
            self.aes_decrypt(sealed)
        } else {
            self.aes256k_decrypt(usage, sealed)
        };
        plain.ok_or(AuthError::Undecryptable(what))
    }

    fn aes_encrypt(&self, plain: &[u8]) -> Vec<u8> {
        let cipher = aes::Aes128::new_from_slice(&self.secret[..16]).expect("16 bytes");
        let pad = 16 - plain.len() % 16;
        let mut out = Vec::with_capacity(plain.len() + pad);
        out.extend_from_slice(plain);
        out.resize(plain.len() + pad, pad as u8);
        cbc_encrypt(&cipher, &AES_IV, &mut out);
        out
    }

    fn aes_decrypt(&self, sealed: &[u8]) -> Option<Vec<u8>> {
        if sealed.is_empty() || !sealed.len().is_multiple_of(16) {
            return None;
        }
        let cipher = aes::Aes128::new_from_slice(&self.secret[..16]).expect("16 bytes");
        let mut out = sealed.to_vec();
        cbc_decrypt(&cipher, &AES_IV, &mut out);
        let pad = usize::from(*out.last()?);
        if pad == 0 || pad > 16 || out[out.len() - pad..].iter().any(|&b| usize::from(b) != pad) {
            return None;
        }
        out.truncate(out.len() - pad);
        Some(out)
    }

    /// KDF of RFC 8009 section 3: the first bits of HMAC-SHA384(secret, 1 | usage kind | 0 | bits).
    fn derive<const N: usize>(&self, usage: Usage, kind: u8) -> [u8; N] {
        let mut text = [0; 14];
        text[3] = 1;
        text[4..8].copy_from_slice(&usage.0.to_be_bytes());
        text[8] = kind;
        text[10..14].copy_from_slice(&(N as u32 * 8).to_be_bytes());
        let key = hmac::Key::new(hmac::HMAC_SHA384, &self.secret);
        let tag = hmac::sign(&key, &text);
        tag.as_ref()[..N].try_into().expect("SHA-384 has 48 bytes")
    }

    fn aes256k_tag(&self, usage: Usage, sealed: &[u8]) -> [u8; TAG] {
        let key = hmac::Key::new(hmac::HMAC_SHA384, &self.derive::<24>(usage, 0x55));
        let mut ctx = hmac::Context::with_key(&key);
        ctx.update(&[0; 16]);
        ctx.update(sealed);
        ctx.sign().as_ref()[..TAG].try_into().expect("SHA-384 has 48 bytes")
    }

    fn aes256k_encrypt(&self, usage: Usage, confounder: &[u8; 16], plain: &[u8]) -> Vec<u8> {
        let cipher = aes::Aes256::new(&self.derive::<32>(usage, 0xaa).into());
        let mut out = Vec::with_capacity(16 + plain.len() + TAG);
        out.extend_from_slice(confounder);
        out.extend_from_slice(plain);
        cs3_encrypt(&cipher, &mut out);
        let tag = self.aes256k_tag(usage, &out);
        out.extend_from_slice(&tag);
        out
    }

    fn aes256k_decrypt(&self, usage: Usage, sealed: &[u8]) -> Option<Vec<u8>> {
        let body = sealed.len().checked_sub(TAG).filter(|&n| n >= 16)?;
        let (text, tag) = sealed.split_at(body);
        constant_time::verify_slices_are_equal(&self.aes256k_tag(usage, text), tag).ok()?;
        let cipher = aes::Aes256::new(&self.derive::<32>(usage, 0xaa).into());
        let mut out = text.to_vec();
        cs3_decrypt(&cipher, &mut out);
        out.drain(..16);
        Some(out)
    }

    /// Encodes and seals a value: the peer's `encode_encrypt_enc_bl`, without a length.
    ///
    /// # Errors
    /// As [`CryptoKey::encrypt`].
    pub fn seal<T: Denc>(
        &self,
        usage: Usage,
        value: &T,
        rng: &mut dyn Random,
    ) -> Result<Vec<u8>, AuthError> {
        let mut w = Writer::new(Features::ALL);
        w.u8(1);
        w.u64(MAGIC);
        value.encode(&mut w);
        self.encrypt(usage, w.as_slice(), rng)
    }

    /// Opens what [`CryptoKey::seal`] made.
    ///
    /// # Errors
    /// [`AuthError::Undecryptable`] for another key, [`AuthError::Malformed`] for bytes that
    /// are not a `T`.
    pub fn open<T: Denc>(
        &self,
        usage: Usage,
        sealed: &[u8],
        what: &'static str,
    ) -> Result<T, AuthError> {
        let plain = Bytes::from(self.decrypt(usage, sealed, what)?);
        let mut r = Reader::shared(&plain);
        let (_version, magic) = (r.u8()?, r.u64()?);
        if magic != MAGIC {
            return Err(AuthError::Undecryptable(what));
        }
        Ok(T::decode(&mut r)?)
    }

    /// The answer to a monitor's challenge that proves this key. The peer's
    /// `cephx_calc_client_server_challenge`.
    ///
    /// # Errors
    /// As [`CryptoKey::encrypt`].
    pub fn answer_challenge(&self, server: u64, client: u64) -> Result<u64, AuthError> {
        self.check().map_err(|_| AuthError::Protocol("challenge with a key of unknown kind"))?;
        let words = |bytes: &[u8]| {
            bytes
                .chunks_exact(8)
                .map(|c| u64::from_le_bytes(c.try_into().expect("8 bytes")))
                .fold(0, |a, b| a ^ b)
        };
        if self.kind == KeyKind::AES256K {
            let key = hmac::Key::new(hmac::HMAC_SHA256, &self.secret);
            let mut text = [0; 16];
            text[..8].copy_from_slice(&server.to_le_bytes());
            text[8..].copy_from_slice(&client.to_le_bytes());
            return Ok(words(hmac::sign(&key, &text).as_ref()));
        }
        let mut plain = Writer::new(Features::ALL);
        plain.u8(1);
        plain.u64(MAGIC);
        plain.u64(server);
        plain.u64(client);
        let mut w = Writer::new(Features::ALL);
        w.blob(&self.aes_encrypt(plain.as_slice()));
        Ok(words(w.as_slice()))
    }
}

fn block(bytes: &[u8]) -> [u8; 16] {
    bytes.try_into().expect("a block")
}

fn xor(out: &mut [u8], with: &[u8]) {
    for (o, w) in out.iter_mut().zip(with) {
        *o ^= w;
    }
}

fn encrypt_block(
    cipher: &impl BlockCipherEncrypt<BlockSize = aes::cipher::consts::U16>,
    b: &mut [u8],
) {
    let mut x = aes::Block::from(block(b));
    cipher.encrypt_block(&mut x);
    b.copy_from_slice(&x);
}

fn decrypt_block(
    cipher: &impl BlockCipherDecrypt<BlockSize = aes::cipher::consts::U16>,
    b: &mut [u8],
) {
    let mut x = aes::Block::from(block(b));
    cipher.decrypt_block(&mut x);
    b.copy_from_slice(&x);
}

/// CBC over whole blocks, in place.
pub(crate) fn cbc_encrypt(
    cipher: &impl BlockCipherEncrypt<BlockSize = aes::cipher::consts::U16>,
    iv: &[u8; 16],
    data: &mut [u8],
) {
    let mut last = *iv;
    for b in data.chunks_exact_mut(16) {
        xor(b, &last);
        encrypt_block(cipher, b);
        last = block(b);
    }
}

fn cbc_decrypt(
    cipher: &impl BlockCipherDecrypt<BlockSize = aes::cipher::consts::U16>,
    iv: &[u8; 16],
    data: &mut [u8],
) {
    let mut last = *iv;
    for b in data.chunks_exact_mut(16) {
        let sealed = block(b);
        decrypt_block(cipher, b);
        xor(b, &last);
        last = sealed;
    }
}

/// CBC with ciphertext stealing, the last two blocks always swapped; at least one block,
/// and one block alone is plain CBC. The length stays.
fn cs3_encrypt(
    cipher: &impl BlockCipherEncrypt<BlockSize = aes::cipher::consts::U16>,
    data: &mut Vec<u8>,
) {
    let len = data.len();
    assert!(len >= 16, "the confounder fills a block");
    data.resize(len.next_multiple_of(16), 0);
    cbc_encrypt(cipher, &[0; 16], data);
    let blocks = data.len() / 16;
    if blocks > 1 {
        let (a, b) = data[(blocks - 2) * 16..].split_at_mut(16);
        a.swap_with_slice(b);
    }
    data.truncate(len);
}

fn cs3_decrypt(
    cipher: &(
         impl BlockCipherDecrypt<BlockSize = aes::cipher::consts::U16>
         + BlockCipherEncrypt<BlockSize = aes::cipher::consts::U16>
     ),
    data: &mut [u8],
) {
    let len = data.len();
    assert!(len >= 16, "the confounder fills a block");
    if len == 16 {
        return cbc_decrypt(cipher, &[0; 16], data);
    }
    // C* = E(last padded block ^ previous C), then the first bytes of the previous C.
    let tail = (len - 1) % 16 + 1;
    let at = len - tail - 16;
    let mut full = block(&data[at..at + 16]);
    decrypt_block(cipher, &mut full); // = (tail of the text, zeros) ^ previous C
    let stolen = &data[at + 16..];
    let mut previous = full;
    previous[..tail].copy_from_slice(stolen);
    let mut text_tail = full;
    xor(&mut text_tail[..tail], stolen);
    // `previous` is whole now: an ordinary CBC block behind the ones before it.
    let before = if at == 0 { [0; 16] } else { block(&data[at - 16..at]) };
    cbc_decrypt(cipher, &[0; 16], &mut data[..at]);
    let mut text = previous;
    decrypt_block(cipher, &mut text);
    xor(&mut text, &before);
    data[at..at + 16].copy_from_slice(&text);
    data[at + 16..].copy_from_slice(&text_tail[..tail]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testutil::{hex, unhex};

    fn key2() -> CryptoKey {
        let secret: Vec<u8> = (0..32).collect();
        CryptoKey::new(KeyKind::AES256K, UTime::ZERO, &secret).unwrap()
    }

    /// Kind 2 against values of 20.2.4 and its RFC.
    #[test]
    fn aes256k_vectors() {
        let key = key2();
        for (usage, ke, ki) in [
            (
                3,
                "985b5b365a844e7809a67722f1cb494e629e2adba63530a402581fc4c1fd362e",
                "6c743c95a6e97f3e688a1616a0589d754d072e614d493556",
            ),
            (
                4,
                "d5dd0fc4ecb5792572994ff047adbc347c1abfec2eceec74fc4e69be182d2bed",
                "fbbcdfc9ff76a05446ef4806231051b25535ed240b91066a",
            ),
            (
                0x10,
                "186828cb2b1f2a6f6bfe848ba158c0742a8b1b7249addd061aa9c1db989f341b",
                "39ed5fc5d6966921cc90085beb9d4531e43c8488eb7b38c7",
            ),
        ] {
            assert_eq!(hex(&key.derive::<32>(Usage(usage), 0xaa)), ke);
            assert_eq!(hex(&key.derive::<24>(Usage(usage), 0x55)), ki);
        }
        let confounder: [u8; 16] = std::array::from_fn(|i| 0x40 + i as u8);
        let sixteen: Vec<u8> = (0..16).collect();
        for (plain, sealed) in [
            (
                &b""[..],
                "9a901dfc0b4117d5c79cc4da2de33b4916e8795879022079975ced35b2bd7649a0e011404bff84c7",
            ),
            (
                b"abc",
                "0ab42ac2412d08fbe537a6c1e33aab399a901de7ca370ba64e778549eb4065c4791be2978c7c3b0b8213f9",
            ),
            (
                &sixteen,
                "bcd07484dcbfcef6f6ecb1a1dac53a099a901dfc0b4117d5c79cc4da2de33b493e457e59e002aa9cdfb7a595a7a19110d0952104f3457bd2",
            ),
        ] {
            assert_eq!(hex(&key.aes256k_encrypt(Usage(4), &confounder, plain)), sealed);
            assert_eq!(key.decrypt(Usage(4), &unhex(sealed), "x").unwrap(), plain);
            assert!(key.decrypt(Usage(5), &unhex(sealed), "x").is_err(), "another usage");
        }
        let answer = key.answer_challenge(0x1122_3344_5566_7788, 0x0102_0304_0506_0708);
        assert_eq!(answer, Ok(0xff60_3040_e5eb_4b04));
    }

    /// What is sealed opens again at every length; altered bytes do not, for kind 2.
    #[test]
    fn round_trips() {
        let mut rng = env::Seeded(1);
        for kind in [KeyKind::AES, KeyKind::AES256K] {
            let key = CryptoKey::generate(kind, UTime::ZERO, &mut rng);
            for len in 0..100 {
                let plain: Vec<u8> = (0..len).map(|i| i as u8).collect();
                let sealed = key.encrypt(Usage::AUTHORIZE, &plain, &mut rng).unwrap();
                assert_eq!(key.decrypt(Usage::AUTHORIZE, &sealed, "x").unwrap(), plain);
                if kind == KeyKind::AES256K {
                    assert_eq!(sealed.len(), len + 40);
                    let mut bad = sealed.clone();
                    bad[rng.u64() as usize % sealed.len()] ^= 1;
                    assert!(key.decrypt(Usage::AUTHORIZE, &bad, "x").is_err());
                }
                for cut in 0..sealed.len() {
                    let _ = key.decrypt(Usage::AUTHORIZE, &sealed[..cut], "x");
                }
            }
            let text = key.to_base64();
            assert_eq!(text.len(), if kind == KeyKind::AES { 40 } else { 60 });
            assert_eq!(CryptoKey::from_base64(&text), Ok(key.clone()));
            assert!(!format!("{key:?}").contains(&text[16..]));
        }
        assert!(CryptoKey::from_base64("AQ==").is_err());
        assert!(CryptoKey::from_base64("?").is_err());
    }
}
