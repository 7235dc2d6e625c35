//! Signatures of messages on connections of messenger v1.
//!
//! What is signed are the checksums and lengths that stand in a message's header and footer, and
//! the low half of its number: a message cannot be altered or repeated without the session key.
//! Source: the peer's `auth/cephx/CephxSessionHandler.cc` for peers with CEPHX_V2.

use std::fmt;

use aes::cipher::KeyInit;
use aws_lc_rs::hmac;

use crate::crypto::{AES_IV, KeyKind, cbc_encrypt};

/// Signs the messages of one connection with its session key.
pub enum MessageSigner {
    /// Kind 1: AES-128-CBC with the fixed IV.
    Aes(Box<aes::Aes128>),
    /// Kind 2: HMAC-SHA256.
    Hmac(Box<hmac::Key>),
}

impl fmt::Debug for MessageSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MessageSigner")
    }
}

impl MessageSigner {
    /// For the secret of a session key; its length tells the kind. `None` where there is no secret,
    /// as with method none: such messages are not signed.
    #[must_use]
    pub fn new(secret: &[u8]) -> Option<Self> {
        if secret.len() == KeyKind::AES256K.secret_len() {
            return Some(Self::Hmac(Box::new(hmac::Key::new(hmac::HMAC_SHA256, secret))));
        }
        let secret = secret.get(..KeyKind::AES.secret_len())?;
        Some(Self::Aes(Box::new(aes::Aes128::new_from_slice(secret).expect("16 bytes"))))
    }

    /// The signature over: crc of the header; crc and length of front, middle and data; low half
    /// of the message's number.
    #[must_use]
    pub fn sign(&self, words: [u32; 8]) -> u64 {
        let mut block = [0; 32];
        for (at, word) in block.chunks_exact_mut(4).zip(words) {
            at.copy_from_slice(&word.to_le_bytes());
        }
        match self {
            Self::Aes(cipher) => cbc_encrypt(&**cipher, &AES_IV, &mut block),
            Self::Hmac(key) => {
                let sum = hmac::sign(key, &block);
                block.copy_from_slice(sum.as_ref());
            }
        }
        block
            .chunks_exact(8)
            .map(|part| u64::from_le_bytes(part.try_into().expect("eight bytes")))
            .fold(0, |all, part| all ^ part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testutil::hex;

    /// The same as the definition, computed another way: encrypted with padding, the first four words.
    #[test]
    fn is_what_the_sealed_block_gives() {
        let words = [1, 2, 3, 4, 5, 6, 7, 0xffff_fff8];
        let key = crate::CryptoKey::new(KeyKind::AES, types::UTime::default(), &[7; 16]).unwrap();
        let plain: Vec<u8> = words.iter().flat_map(|w: &u32| w.to_le_bytes()).collect();
        let mut rng = env::Seeded(1);
        let sealed = key.encrypt(crate::Usage(0), &plain, &mut rng).unwrap();
        let parts = sealed[..32].chunks(8).map(|p| u64::from_le_bytes(p.try_into().unwrap()));
        let expected = parts.fold(0, |all, part| all ^ part);
        let signer = MessageSigner::new(key.secret()).unwrap();
        assert_eq!(signer.sign(words), expected, "{}", hex(&sealed));
        assert_ne!(signer.sign([9, 2, 3, 4, 5, 6, 7, 0xffff_fff8]), expected);
        let long = MessageSigner::new(&[7; 32]).unwrap();
        assert_ne!(long.sign(words), expected);
        assert!(MessageSigner::new(&[]).is_none());
    }
}
