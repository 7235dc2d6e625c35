//! Objects encrypted with keys of their clients (SSE-C): AES-256-CBC in blocks of 4 KiB, each with an initial vector
//! of its offset, so that any range can be read. Lengths stay as they are: a last piece that fills no cipher block is
//! combined with the encrypted block before it. In uploads each part begins at offset zero again.
//!
//! Nothing here tells whether bytes were changed: the format has no authentication.
//!
//! Source: `rgw_crypt.cc` (`AES_256_CBC`).

use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use types::Bytes;

/// Bytes that share one chain.
pub const CHUNK: usize = 4_096;
const BLOCK: usize = 16;
/// What offsets are added to.
const IV: [u8; BLOCK] = *b"aes256iv_ctr1337";

/// A key that is set up.
#[derive(Clone)]
pub struct Cipher(aes::Aes256);

fn iv(offset: u64) -> aes::Block {
    let count = u128::from_be_bytes(IV).wrapping_add(u128::from(offset / BLOCK as u64));
    count.to_be_bytes().into()
}

fn add(block: &mut [u8], other: &[u8]) {
    block.iter_mut().zip(other).for_each(|(a, b)| *a ^= b);
}

impl Cipher {
    /// Sets a key up.
    #[must_use]
    pub fn new(key: &[u8; 32]) -> Self {
        Self(aes::Aes256::new(key.into()))
    }

    fn block(&self, data: &mut [u8]) {
        let mut block = aes::Block::try_from(&*data).expect("16 bytes");
        self.0.encrypt_block(&mut block);
        data.copy_from_slice(&block);
    }

    /// Encrypts each block alone, without a chain: how keys of objects are made. `data` is whole blocks.
    pub fn encrypt_blocks(&self, data: &mut [u8]) {
        debug_assert!(data.len().is_multiple_of(BLOCK), "whole blocks");
        data.chunks_exact_mut(BLOCK).for_each(|block| self.block(block));
    }

    /// The bytes that a last piece of less than a block is combined with.
    fn rest(&self, before: Option<&[u8]>, offset: u64) -> [u8; BLOCK] {
        let mut mask = match before {
            Some(block) => <[u8; BLOCK]>::try_from(block).expect("16 bytes"),
            None => iv(offset).into(),
        };
        self.block(&mut mask);
        mask
    }

    /// Encrypts in place what begins at `offset`, a multiple of [`CHUNK`]; only the end of all may be cut.
    pub fn encrypt(&self, offset: u64, data: &mut [u8]) {
        debug_assert!(offset.is_multiple_of(CHUNK as u64), "chunks begin at multiples of 4 KiB");
        for (chunk, at) in data.chunks_mut(CHUNK).zip((offset..).step_by(CHUNK)) {
            let whole = chunk.len() / BLOCK * BLOCK;
            let mut last: [u8; BLOCK] = iv(at).into();
            for block in chunk[..whole].chunks_exact_mut(BLOCK) {
                add(block, &last);
                self.block(block);
                last.copy_from_slice(block);
            }
            let mask = self.rest((whole > 0).then_some(&last), at);
            add(&mut chunk[whole..], &mask);
        }
    }

    /// Decrypts in place, as [`Cipher::encrypt`].
    pub fn decrypt(&self, offset: u64, data: &mut [u8]) {
        debug_assert!(offset.is_multiple_of(CHUNK as u64), "chunks begin at multiples of 4 KiB");
        for (chunk, at) in data.chunks_mut(CHUNK).zip((offset..).step_by(CHUNK)) {
            let whole = chunk.len() / BLOCK * BLOCK;
            let mask = self.rest((whole > 0).then(|| &chunk[whole - BLOCK..whole]), at);
            add(&mut chunk[whole..], &mask);
            let mut last: [u8; BLOCK] = iv(at).into();
            for data in chunk[..whole].chunks_exact_mut(BLOCK) {
                let sealed = <[u8; BLOCK]>::try_from(&*data).expect("16 bytes");
                let mut block = aes::Block::from(sealed);
                self.0.decrypt_block(&mut block);
                data.copy_from_slice(&block);
                add(data, &last);
                last = sealed;
            }
        }
    }
}

/// Encrypts bytes as they come.
pub struct Sealing {
    cipher: Cipher,
    offset: u64,
    held: Vec<u8>,
}

impl Sealing {
    /// Begins at offset zero.
    #[must_use]
    pub fn new(cipher: Cipher) -> Self {
        Self { cipher, offset: 0, held: Vec::new() }
    }

    /// Takes bytes; returns what is encrypted by then.
    pub fn push(&mut self, bytes: &[u8]) -> Bytes {
        self.held.extend_from_slice(bytes);
        let whole = self.held.len() / CHUNK * CHUNK;
        let rest = self.held.split_off(whole);
        self.seal(rest)
    }

    /// The rest.
    pub fn finish(&mut self) -> Bytes {
        self.seal(Vec::new())
    }

    fn seal(&mut self, rest: Vec<u8>) -> Bytes {
        let mut out = std::mem::replace(&mut self.held, rest);
        self.cipher.encrypt(self.offset, &mut out);
        self.offset += out.len() as u64;
        out.into()
    }
}

/// The part, by first byte and length, that a byte of an object lies in: chains begin anew there.
#[must_use]
pub fn part_at(parts: &[(u32, u64, u64)], size: u64, at: u64) -> (u64, u64) {
    let found = parts.iter().find(|(_, from, len)| (*from..from + len).contains(&at));
    found.map_or((0, size), |(_, from, len)| (*from, *len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_lengths_come_back_and_any_chunk_alone() {
        let cipher = Cipher::new(&[7; 32]);
        for len in [0, 1, 15, 16, 17, 4_095, 4_096, 4_097, 4_111, 4_112, 9_000] {
            let plain: Vec<u8> = (0..len).map(|n| n as u8).collect();
            let mut data = plain.clone();
            cipher.encrypt(0, &mut data);
            assert!(len == 0 || data != plain);
            let mut sealing = Sealing::new(cipher.clone());
            let mut pieces = Vec::new();
            for piece in plain.chunks(1_000) {
                pieces.extend_from_slice(&sealing.push(piece));
            }
            pieces.extend_from_slice(&sealing.finish());
            assert_eq!(pieces, data, "cut in pieces: {len}");
            if len > 4_096 {
                let mut tail = data[4_096..].to_vec();
                cipher.decrypt(4_096, &mut tail);
                assert_eq!(tail, plain[4_096..]);
            }
            cipher.decrypt(0, &mut data);
            assert_eq!(data, plain, "{len}");
        }
    }

    /// The same as the chain of a known library: AES-256-CBC with this initial vector.
    #[test]
    fn chunks_are_cbc() {
        let cipher = Cipher::new(&[0; 32]);
        let mut data = [0; 32];
        cipher.encrypt(0, &mut data);
        let mut first = aes::Block::from(IV);
        cipher.0.encrypt_block(&mut first);
        assert_eq!(data[..16], first[..]);
        let mut second = first;
        cipher.0.encrypt_block(&mut second);
        assert_eq!(data[16..], second[..]);
        assert_eq!(iv(4_096)[..], b"aes256iv_ctr1347"[..]);
    }

    #[test]
    fn parts() {
        let all = [(1, 0, 10), (2, 10, 5)];
        assert_eq!(part_at(&all, 15, 9), (0, 10));
        assert_eq!(part_at(&all, 15, 10), (10, 5));
        assert_eq!(part_at(&[], 15, 10), (0, 15));
    }
}
