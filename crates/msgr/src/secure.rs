//! Secure mode: AES-128-GCM units, each with its own counted nonce.

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

use crate::Fault;

/// Bytes of an authentication tag.
pub(crate) const TAG_LEN: usize = 16;
/// Bytes of segment 0 that travel with the preamble.
pub(crate) const INLINE_LEN: usize = 48;
/// Bytes of the epilogue in secure mode.
pub(crate) const EPILOGUE_LEN: usize = 16;
/// Bytes of a connection secret that are used: key and two nonces.
const SECRET_LEN: usize = 40;

/// One direction of a secured connection.
///
/// The nonce is a fixed u32 and a u64 that counts units; it must never come back to where
/// it began, for a reused nonce gives the key away.
pub(crate) struct Cipher {
    key: LessSafeKey,
    fixed: [u8; 4],
    counter: u64,
    /// Units still allowed before the counter is where it began.
    left: u64,
}

/// The two directions of a connection as the server sees them: (receiving, sending).
pub(crate) fn server_ciphers(secret: &[u8]) -> Result<(Cipher, Cipher), Fault> {
    let (to_client, to_server) = ciphers(secret)?;
    Ok((to_server, to_client))
}

/// The two directions of a connection as the client sees them: (receiving, sending).
pub(crate) fn client_ciphers(secret: &[u8]) -> Result<(Cipher, Cipher), Fault> {
    ciphers(secret)
}

/// Bytes 0-15 are the key, 16-27 the nonce to the client, 28-39 the nonce to the server.
fn ciphers(secret: &[u8]) -> Result<(Cipher, Cipher), Fault> {
    if secret.len() < SECRET_LEN {
        return Err(Fault::Frame("secure mode needs a connection secret"));
    }
    let cipher = |nonce: &[u8]| Cipher {
        key: LessSafeKey::new(
            UnboundKey::new(&AES_128_GCM, &secret[..16]).expect("the key has 16 bytes"),
        ),
        fixed: nonce[..4].try_into().expect("four bytes"),
        counter: u64::from_le_bytes(nonce[4..12].try_into().expect("eight bytes")),
        left: u64::MAX,
    };
    Ok((cipher(&secret[16..28]), cipher(&secret[28..40])))
}

impl Cipher {
    fn nonce(&mut self) -> Result<Nonce, Fault> {
        self.left = self.left.checked_sub(1).ok_or(Fault::Sealed)?;
        let mut raw = [0; 12];
        raw[..4].copy_from_slice(&self.fixed);
        raw[4..].copy_from_slice(&self.counter.to_le_bytes());
        self.counter = self.counter.wrapping_add(1);
        Ok(Nonce::assume_unique_for_key(raw))
    }

    /// Decrypts a unit where it lies; `unit` ends in its tag, which is left there.
    pub(crate) fn open(&mut self, unit: &mut [u8]) -> Result<(), Fault> {
        let nonce = self.nonce()?;
        self.key.open_in_place(nonce, Aad::empty(), unit).map_err(|_| Fault::Sealed)?;
        Ok(())
    }

    /// Encrypts a unit where it lies and returns the tag to put behind it.
    pub(crate) fn seal(&mut self, unit: &mut [u8]) -> Result<[u8; TAG_LEN], Fault> {
        let nonce = self.nonce()?;
        let tag = self
            .key
            .seal_in_place_separate_tag(nonce, Aad::empty(), unit)
            .map_err(|_| Fault::Sealed)?;
        Ok(tag.as_ref().try_into().expect("a tag has 16 bytes"))
    }
}
