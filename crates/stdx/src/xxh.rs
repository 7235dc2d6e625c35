//! xxHash. Source: its specification.

fn word32(b: &[u8]) -> u32 {
    u32::from_le_bytes(b.try_into().expect("four bytes"))
}

fn word64(b: &[u8]) -> u64 {
    u64::from_le_bytes(b.try_into().expect("eight bytes"))
}

/// xxHash in 32 bits.
#[must_use]
pub fn xxh32(seed: u32, data: &[u8]) -> u32 {
    const P: [u32; 5] = [0x9e37_79b1, 0x85eb_ca77, 0xc2b2_ae3d, 0x27d4_eb2f, 0x1656_67b1];
    let round = |acc: u32, x: u32| {
        acc.wrapping_add(x.wrapping_mul(P[1])).rotate_left(13).wrapping_mul(P[0])
    };
    let mut stripes = data.chunks_exact(16);
    let mut h = if data.len() >= 16 {
        let mut v = [
            seed.wrapping_add(P[0]).wrapping_add(P[1]),
            seed.wrapping_add(P[1]),
            seed,
            seed.wrapping_sub(P[0]),
        ];
        for s in &mut stripes {
            for (i, acc) in v.iter_mut().enumerate() {
                *acc = round(*acc, word32(&s[4 * i..4 * i + 4]));
            }
        }
        v[0].rotate_left(1)
            .wrapping_add(v[1].rotate_left(7))
            .wrapping_add(v[2].rotate_left(12))
            .wrapping_add(v[3].rotate_left(18))
    } else {
        seed.wrapping_add(P[4])
    };
    h = h.wrapping_add(data.len() as u32);
    let mut words = stripes.remainder().chunks_exact(4);
    for w in &mut words {
        h = h.wrapping_add(word32(w).wrapping_mul(P[2])).rotate_left(17).wrapping_mul(P[3]);
    }
    for b in words.remainder() {
        h = h.wrapping_add(u32::from(*b).wrapping_mul(P[4])).rotate_left(11).wrapping_mul(P[0]);
    }
    h = (h ^ h >> 15).wrapping_mul(P[1]);
    h = (h ^ h >> 13).wrapping_mul(P[2]);
    h ^ h >> 16
}

/// xxHash in 64 bits.
#[must_use]
pub fn xxh64(seed: u64, data: &[u8]) -> u64 {
    const P: [u64; 5] = [
        0x9e37_79b1_85eb_ca87,
        0xc2b2_ae3d_27d4_eb4f,
        0x1656_67b1_9e37_79f9,
        0x85eb_ca77_c2b2_ae63,
        0x27d4_eb2f_1656_67c5,
    ];
    let round = |acc: u64, x: u64| {
        acc.wrapping_add(x.wrapping_mul(P[1])).rotate_left(31).wrapping_mul(P[0])
    };
    let mut stripes = data.chunks_exact(32);
    let mut h = if data.len() >= 32 {
        let mut v = [
            seed.wrapping_add(P[0]).wrapping_add(P[1]),
            seed.wrapping_add(P[1]),
            seed,
            seed.wrapping_sub(P[0]),
        ];
        for s in &mut stripes {
            for (i, acc) in v.iter_mut().enumerate() {
                *acc = round(*acc, word64(&s[8 * i..8 * i + 8]));
            }
        }
        let mut h = v[0]
            .rotate_left(1)
            .wrapping_add(v[1].rotate_left(7))
            .wrapping_add(v[2].rotate_left(12))
            .wrapping_add(v[3].rotate_left(18));
        for acc in v {
            h = (h ^ round(0, acc)).wrapping_mul(P[0]).wrapping_add(P[3]);
        }
        h
    } else {
        seed.wrapping_add(P[4])
    };
    h = h.wrapping_add(data.len() as u64);
    let mut rest = stripes.remainder();
    while rest.len() >= 8 {
        h = (h ^ round(0, word64(&rest[..8])))
            .rotate_left(27)
            .wrapping_mul(P[0])
            .wrapping_add(P[3]);
        rest = &rest[8..];
    }
    if rest.len() >= 4 {
        h = (h ^ u64::from(word32(&rest[..4])).wrapping_mul(P[0]))
            .rotate_left(23)
            .wrapping_mul(P[1])
            .wrapping_add(P[2]);
        rest = &rest[4..];
    }
    for b in rest {
        h = (h ^ u64::from(*b).wrapping_mul(P[4])).rotate_left(11).wrapping_mul(P[0]);
    }
    h = (h ^ h >> 33).wrapping_mul(P[1]);
    h = (h ^ h >> 29).wrapping_mul(P[2]);
    h ^ h >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Published test values of both hashes.
    #[test]
    fn published_values() {
        assert_eq!(xxh32(0, b""), 0x02cc_5d05);
        assert_eq!(xxh32(0, b"abc"), 0x32d1_53ff);
        assert_eq!(xxh32(0, b"Nobody inspects the spammish repetition"), 0xe229_3b2f);
        assert_eq!(xxh64(0, b""), 0xef46_db37_51d8_e999);
        assert_eq!(xxh64(0, b"abc"), 0x44bc_2cf5_ad77_0999);
        assert_eq!(xxh64(0, b"Nobody inspects the spammish repetition"), 0xfbce_a83c_8a37_8bf1);
    }
}
