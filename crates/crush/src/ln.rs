//! The fixed-point logarithm that turns a hash into an exponential draw.

use crate::ln_table::{LOG_HIGH, LOG_LOW, RECIPROCAL};

/// `2^48 - 2^44 * log2(u + 1)`: how far a draw of `u` lies below the highest one, never 0
/// but for the top of the table.
#[inline(always)]
pub(crate) fn below_top(u: u16) -> u64 {
    (1 << 48) - ln(u)
}

/// `2^44 * log2(u + 1)`, by the peer's tables.
#[must_use]
#[inline(always)]
pub fn ln(u: u16) -> u64 {
    let x = u32::from(u) + 1;
    // Normalize so that bit 15 or 16 is set.
    let shift = x.leading_zeros().saturating_sub(16);
    let x = x << shift;
    let exponent = u64::from(15 - shift);
    let i = ((x >> 8) - 128) as usize;
    let low = (u64::from(x).wrapping_mul(RECIPROCAL[i]) >> 48) & 0xff;
    (exponent << 44) + ((LOG_HIGH[i] + LOG_LOW[low as usize]) >> 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FIPS 180-4, for the tables' check sums only.
    fn sha256(data: &[u8]) -> String {
        let primes = (2u64..312).filter(|n| (2..*n).all(|d| n % d != 0)).collect::<Vec<_>>();
        // First 32 bits of the fraction of a root, by bisection on integers.
        let root = |p: u64, cube: bool| {
            let (mut low, mut high) = (0u128, 1 << 40);
            while high - low > 1 {
                let mid = (low + high) / 2;
                let (power, of) = if cube { (mid * mid * mid, 96) } else { (mid * mid, 64) };
                if power <= u128::from(p) << of { low = mid } else { high = mid }
            }
            low as u32
        };
        let k: Vec<u32> = primes[..64].iter().map(|p| root(*p, true)).collect();
        let mut h: Vec<u32> = primes[..8].iter().map(|p| root(*p, false)).collect();
        let mut padded = data.to_vec();
        padded.push(0x80);
        while padded.len() % 64 != 56 {
            padded.push(0);
        }
        padded.extend((data.len() as u64 * 8).to_be_bytes());
        for block in padded.chunks(64) {
            let mut w: Vec<u32> =
                block.chunks(4).map(|c| u32::from_be_bytes(c.try_into().unwrap())).collect();
            for i in 16..64 {
                let s0 = w[i - 15].rotate_right(7) ^ w[i - 15].rotate_right(18) ^ (w[i - 15] >> 3);
                let s1 = w[i - 2].rotate_right(17) ^ w[i - 2].rotate_right(19) ^ (w[i - 2] >> 10);
                w.push(w[i - 16].wrapping_add(s0).wrapping_add(w[i - 7]).wrapping_add(s1));
            }
            let mut v = h.clone();
            for i in 0..64 {
                let s1 = v[4].rotate_right(6) ^ v[4].rotate_right(11) ^ v[4].rotate_right(25);
                let ch = (v[4] & v[5]) ^ (!v[4] & v[6]);
                let t1 = v[7].wrapping_add(s1).wrapping_add(ch).wrapping_add(k[i]);
                let t1 = t1.wrapping_add(w[i]);
                let s0 = v[0].rotate_right(2) ^ v[0].rotate_right(13) ^ v[0].rotate_right(22);
                let maj = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
                v.rotate_right(1);
                v[4] = v[4].wrapping_add(t1);
                v[0] = t1.wrapping_add(s0).wrapping_add(maj);
            }
            for i in 0..8 {
                h[i] = h[i].wrapping_add(v[i]);
            }
        }
        h.iter().map(|x| format!("{x:08x}")).collect()
    }

    fn sum(table: &[u64]) -> String {
        sha256(&table.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>())
    }

    /// Each entry of each table is the peer's.
    #[test]
    fn tables() {
        assert_eq!(
            sha256(b"abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(
            sum(&RECIPROCAL),
            "5debd57bf387705974d0b0b6c955a2b75545172ab55753c637bb7349f1b66ee3"
        );
        assert_eq!(
            sum(&LOG_HIGH),
            "2c5d48357edc321c43ac43a2bf4caf715d767ad49b948a8729f140756c5d8f57"
        );
        assert_eq!(
            sum(&LOG_LOW),
            "56fecbea65b1d35d0d20f0327d783a870652a56356e9a5326b6ab16d6c31b6ca"
        );
    }

    /// The peer's values at the joints of the tables.
    #[test]
    fn check_values() {
        for (u, want) in [
            (0, 0),
            (1, 0x1000_0000_0000),
            (255, 0x8000_0000_0000),
            (1000, 0x9f79_b349_27a5),
            (32768, 0xf000_2e2a_60a0),
            (65534, 0xffff_fd61_ad10),
            (65535, 0xffff_f000_0000),
        ] {
            assert_eq!(ln(u), want, "ln({u})");
        }
        assert!((0..=u16::MAX).all(|u| below_top(u) > 0));
        // More hash, no less logarithm: but for the last.
        assert!((1..u16::MAX).all(|u| ln(u) >= ln(u - 1)));
        assert!(ln(65533) < ln(65535) && ln(65535) < ln(65534));
    }
}
