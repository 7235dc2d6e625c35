//! CRC-32C (Castagnoli, reflected) as the peer computes it.

use crc_fast::{CrcAlgorithm, Digest};

/// Continues `crc` over `data`: the caller gives the initial value, and there is **no
/// final inversion**, so `crc32c(crc32c(s, a), b) == crc32c(s, a ‖ b)`.
///
/// Cost: about 0.02 ns per byte from 4 KiB on with VPCLMULQDQ.
/// Source: the peer's `ceph_crc32c`; the common "CRC-32C of x" is `!crc32c(!0, x)`.
#[must_use]
pub fn crc32c(crc: u32, data: &[u8]) -> u32 {
    if data.is_empty() {
        return crc;
    }
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(crc));
    digest.update(data);
    !(digest.finalize() as u32)
}

/// The crc of `a ‖ b` with initial value `s`, from `crc_a = crc32c(s, a)` and
/// `crc_b = crc32c(0, b)` with `b` being `len_b` bytes long. O(log `len_b`).
#[must_use]
pub fn crc32c_combine(crc_a: u32, crc_b: u32, len_b: u64) -> u32 {
    // Appending len_b zero bytes to `a` is a linear map on the state; `b` is added by xor.
    shift_zeros(crc_a, len_b) ^ crc_b
}

/// Bytes of a block whose sum [`crc32c_append_block`] takes.
pub const CRC_BLOCK: usize = 4096;

/// Continues `crc` over a block of [`CRC_BLOCK`] bytes whose own sum `crc32c(!0, block)` is known:
/// `crc32c_append_block(crc32c(s, a), crc32c(!0, b)) == crc32c(s, a ‖ b)`, without looking at `b`.
#[must_use]
pub const fn crc32c_append_block(crc: u32, block: u32) -> u32 {
    /// By each byte of a state what it becomes behind a block of zeros.
    const BEHIND: [[u32; 256]; 4] = behind_block();
    // What a block adds by itself does not depend on the state that it begins with; the
    // difference of the states is carried through its length.
    let [a, b, c, d] = (!crc).to_le_bytes();
    BEHIND[0][a as usize]
        ^ BEHIND[1][b as usize]
        ^ BEHIND[2][c as usize]
        ^ BEHIND[3][d as usize]
        ^ block
}

/// What each bit of a state becomes behind one zero bit. Castagnoli's polynomial, reflected.
const BEHIND_BIT: [u32; 32] = {
    let mut bits = [0x82f6_3b78; 32];
    let mut i = 1;
    while i < 32 {
        bits[i] = 1 << (i - 1);
        i += 1;
    }
    bits
};

/// What it becomes behind twice as many zeros.
const fn doubled(bits: [u32; 32]) -> [u32; 32] {
    let mut twice = [0; 32];
    let mut i = 0;
    while i < 32 {
        twice[i] = apply(&bits, bits[i]);
        i += 1;
    }
    twice
}

/// The xor of what the bits of `state` become.
const fn apply(bits: &[u32; 32], state: u32) -> u32 {
    let (mut sum, mut i) = (0, 0);
    while i < 32 {
        if state >> i & 1 == 1 {
            sum ^= bits[i];
        }
        i += 1;
    }
    sum
}

const fn behind_block() -> [[u32; 256]; 4] {
    let (mut bits, mut zeros) = (BEHIND_BIT, 1);
    while zeros < 8 * CRC_BLOCK {
        bits = doubled(bits);
        zeros *= 2;
    }
    let mut table = [[0; 256]; 4];
    let mut i = 0;
    while i < 4 * 256 {
        table[i / 256][i % 256] = apply(&bits, ((i % 256) as u32) << (8 * (i / 256)));
        i += 1;
    }
    table
}

/// Applies the state transition of one zero bit `8 * n` times by repeated squaring.
fn shift_zeros(mut crc: u32, mut n: u64) -> u32 {
    let mut step = doubled(doubled(doubled(BEHIND_BIT))); // 1 bit -> 8 bits
    while n > 0 {
        if n & 1 == 1 {
            crc = apply(&step, crc);
        }
        step = doubled(step);
        n >>= 1;
    }
    crc
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bitwise(mut crc: u32, data: &[u8]) -> u32 {
        for &byte in data {
            crc ^= u32::from(byte);
            for _ in 0..8 {
                crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
            }
        }
        crc
    }

    /// The fast path and the definition agree for any seed and length.
    #[test]
    fn agrees_with_the_definition() {
        let data: Vec<u8> = (0..1000u32).map(|i| (i * 7 + 3) as u8).collect();
        for seed in [0, !0, 0x1234_5678] {
            for len in [0, 1, 3, 8, 15, 16, 31, 32, 33, 255, 256, 999] {
                assert_eq!(crc32c(seed, &data[..len]), bitwise(seed, &data[..len]), "{seed} {len}");
            }
        }
        assert_eq!(!crc32c(!0, b"123456789"), 0xe306_9283); // the published check value
    }

    /// Parts may be summed apart and joined later.
    #[test]
    fn combines() {
        let data: Vec<u8> = (0..300u32).map(|i| (i * 13) as u8).collect();
        for cut in [0, 1, 7, 64, 299, 300] {
            let (a, b) = data.split_at(cut);
            let joined = crc32c_combine(crc32c(!0, a), crc32c(0, b), b.len() as u64);
            assert_eq!(joined, crc32c(!0, &data), "cut {cut}");
        }
    }

    /// Blocks whose sums are known give the sum of all, after whatever came before.
    #[test]
    fn blocks_are_appended_by_their_sums() {
        let data: Vec<u8> = (0..5 * CRC_BLOCK as u32).map(|i| ((i * i) >> 7) as u8).collect();
        for seed in [0, !0, 0x1234_5678] {
            let sums = data.chunks(CRC_BLOCK).map(|block| crc32c(!0, block));
            assert_eq!(sums.fold(seed, crc32c_append_block), crc32c(seed, &data), "{seed}");
        }
    }
}
