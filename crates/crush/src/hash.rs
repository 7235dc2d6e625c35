//! The hash that placement draws its chances from (Jenkins' 96-bit mix, "rjenkins1").
//!
//! Source: the peer's `crush/hash.c`; check values in the tests.

/// The only hash there is: a bucket's `hash` field says 0.
pub const HASH_RJENKINS1: u8 = 0;

const SEED: u32 = 1_315_423_911;
const X: u32 = 231_232;
const Y: u32 = 1232;

/// One round over `N` independent triples: a loop per step, so that it becomes vectors.
#[inline(always)]
fn mix<const N: usize>(a: &mut [u32; N], b: &mut [u32; N], c: &mut [u32; N]) {
    macro_rules! step {
        ($p:ident, $q:ident, $r:ident, $shift:tt, $n:literal) => {
            for i in 0..N {
                $p[i] = $p[i].wrapping_sub($q[i]).wrapping_sub($r[i]) ^ ($r[i] $shift $n);
            }
        };
    }
    step!(a, b, c, >>, 13);
    step!(b, c, a, <<, 8);
    step!(c, a, b, >>, 13);
    step!(a, b, c, >>, 12);
    step!(b, c, a, <<, 16);
    step!(c, a, b, >>, 5);
    step!(a, b, c, >>, 3);
    step!(b, c, a, <<, 10);
    step!(c, a, b, >>, 15);
}

/// Hash of one number.
#[must_use]
pub fn hash32(a: u32) -> u32 {
    let (mut h, mut b, mut x, mut y) = ([SEED ^ a], [a], [X], [Y]);
    mix(&mut b, &mut x, &mut h);
    mix(&mut y, &mut [a], &mut h);
    h[0]
}

/// Hash of two numbers.
#[must_use]
pub fn hash32_2(a: u32, b: u32) -> u32 {
    let (mut h, mut x, mut y) = ([SEED ^ a ^ b], [X], [Y]);
    let (mut a, mut b) = ([a], [b]);
    mix(&mut a, &mut b, &mut h);
    mix(&mut x, &mut a, &mut h);
    mix(&mut b, &mut y, &mut h);
    h[0]
}

/// Hash of three numbers.
#[must_use]
#[inline(always)]
pub fn hash32_3(a: u32, b: u32, c: u32) -> u32 {
    hash32_3_many(a, &[b as i32], c)[0]
}

/// [`hash32_3`] of `N` middle numbers at once: as fast as one where the machine has vectors.
#[inline(always)]
fn hash32_3_many<const N: usize>(a: u32, b: &[i32; N], c: u32) -> [u32; N] {
    let (mut a, mut b, mut c) = ([a; N], b.map(|b| b as u32), [c; N]);
    let (mut h, mut x, mut y) = ([0; N], [X; N], [Y; N]);
    for i in 0..N {
        h[i] = SEED ^ a[i] ^ b[i] ^ c[i];
    }
    mix(&mut a, &mut b, &mut h);
    mix(&mut c, &mut x, &mut h);
    mix(&mut y, &mut a, &mut h);
    mix(&mut b, &mut x, &mut h);
    mix(&mut y, &mut c, &mut h);
    h
}

/// [`hash32_3`] of each middle number, into the beginning of `out`: with the widest vectors
/// that this machine has.
///
/// # Panics
/// When `out` is shorter than `b`.
#[inline]
pub(crate) fn hash32_3_each(a: u32, b: &[i32], c: u32, out: &mut [u32]) {
    #[cfg(target_arch = "x86_64")]
    #[allow(unsafe_code)]
    // SAFETY: the processor was asked for what each function is compiled for; they are
    // safe code otherwise.
    unsafe {
        if is_x86_feature_detected!("avx512f") {
            return each_avx512(a, b, c, out);
        }
        if is_x86_feature_detected!("avx2") {
            return each_avx2(a, b, c, out);
        }
    }
    each_body(a, b, c, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn each_avx512(a: u32, b: &[i32], c: u32, out: &mut [u32]) {
    each_body(a, b, c, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn each_avx2(a: u32, b: &[i32], c: u32, out: &mut [u32]) {
    each_body(a, b, c, out);
}

/// One by one, for the compiler to make vectors of the loop. Chunks of many at once in a loop had it
/// make vectors of the chunks instead, by way of memory: four times as slow.
#[inline(always)]
fn each_body(a: u32, b: &[i32], c: u32, out: &mut [u32]) {
    const LANES: usize = 16;
    let out = &mut out[..b.len()];
    if b.len() < LANES {
        let mut all = [0; LANES];
        all[..b.len()].copy_from_slice(b);
        out.copy_from_slice(&hash32_3_many(a, &all, c)[..b.len()]);
        return;
    }
    for (b, out) in b.iter().zip(out) {
        *out = hash32_3(a, *b as u32, c);
    }
}

/// Hash of four numbers.
#[must_use]
pub fn hash32_4(a: u32, b: u32, c: u32, d: u32) -> u32 {
    let (mut h, mut x, mut y) = ([SEED ^ a ^ b ^ c ^ d], [X], [Y]);
    let (mut a, mut b, mut c, mut d) = ([a], [b], [c], [d]);
    mix(&mut a, &mut b, &mut h);
    mix(&mut c, &mut d, &mut h);
    mix(&mut a, &mut x, &mut h);
    mix(&mut y, &mut b, &mut h);
    mix(&mut c, &mut x, &mut h);
    mix(&mut y, &mut d, &mut h);
    h[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The peer's own values.
    #[test]
    fn check_values() {
        assert_eq!(hash32_2(0, 0), 0x19ad_4ce9);
        assert_eq!(hash32_2(1, 2), 0xb78d_ee9c);
        assert_eq!(hash32_3(1, 2, 3), 0x735a_d42b);
    }

    /// Many at once are the same as one by one.
    #[test]
    fn lanes_agree() {
        let ids = [0, 1, -1, 77, i32::MAX, i32::MIN, -3, 12];
        let many = hash32_3_many(123, &ids, 456);
        for (id, h) in ids.iter().zip(many) {
            assert_eq!(hash32_3(123, *id as u32, 456), h);
        }
        let ids: Vec<i32> = (-60..60).collect();
        for len in 0..ids.len() {
            let (mut out, mut plain) = ([1; 130], [1; 130]);
            hash32_3_each(7, &ids[..len], 9, &mut out);
            each_body(7, &ids[..len], 9, &mut plain);
            assert_eq!(out, plain);
            assert!((0..len).all(|i| out[i] == hash32_3(7, ids[i] as u32, 9)));
            assert!(out[len..].iter().all(|h| *h == 1));
        }
    }
}
