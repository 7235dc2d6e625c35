//! Sums of scaled byte runs in GF(2^8): the work of byte-wise codes, and plain XOR.
//!
//! The fastest way the processor has is found once, at run time: GFNI over 64 or 32 bytes,
//! AVX2 shuffles of nibble tables, or tables alone. This is the only module of the crate
//! with `unsafe`: vector loads and stores through pointers, whose bounds [`combine`] checks.

use std::sync::LazyLock;

use crate::gf::Field;

/// A factor in GF(2^8), in the shapes the ways to multiply want it.
#[derive(Clone, Copy)]
pub(crate) struct Factor {
    /// The 8 by 8 bit-matrix of "times the factor", as `gf2p8affineqb` takes it: byte
    /// `7 - i` holds the row of result bit `i`.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    affine: i64,
    /// Products with the low nibbles 0..16, then with the high ones.
    nibbles: [u8; 32],
}

impl Factor {
    /// The factor `n`.
    pub(crate) fn new(n: u8) -> Factor {
        static ALL: LazyLock<Vec<Factor>> = LazyLock::new(|| (0..=255).map(Factor::make).collect());
        ALL[usize::from(n)]
    }

    fn make(n: u8) -> Factor {
        let times = |x: u32| Field::BYTES.mul(u32::from(n), x) as u8;
        let nibbles =
            std::array::from_fn(|i| times(if i < 16 { i as u32 } else { (i as u32 - 16) << 4 }));
        let mut rows = [0u8; 8];
        for (bit, row) in rows.iter_mut().rev().enumerate() {
            *row = (0..8).map(|x| (times(1 << x) >> bit & 1) << x).sum();
        }
        Factor { affine: i64::from_le_bytes(rows), nibbles }
    }
}

/// `to[r] = sum of rows[r][c] * from[c]`, added to what is there if `add`.
///
/// # Panics
/// Unless all runs have one length, and the shapes agree.
pub(crate) fn combine(rows: &[Vec<Factor>], from: &[&[u8]], to: &mut [&mut [u8]], add: bool) {
    assert_eq!(rows.len(), to.len(), "a row for each result");
    let len = to.first().map_or(0, |run| run.len());
    assert!(to.iter().all(|run| run.len() == len), "results of one length");
    assert!(from.iter().all(|run| run.len() == len), "inputs as long as the results");
    assert!(rows.iter().all(|row| row.len() == from.len()), "a factor for each input");
    // Up to four results at a time: their sums stay in registers while the inputs pass by.
    for (rows, to) in rows.chunks(4).zip(to.chunks_mut(4)) {
        let done = fast(rows, from, to, len, add);
        for (row, to) in rows.iter().zip(to) {
            plain(row, from, to, done, add);
        }
    }
}

/// The bytes from `at` on, by tables.
fn plain(row: &[Factor], from: &[&[u8]], to: &mut [u8], at: usize, add: bool) {
    if !add {
        to[at..].fill(0);
    }
    for (factor, from) in row.iter().zip(from) {
        for (to, &x) in to[at..].iter_mut().zip(&from[at..]) {
            *to ^= factor.nibbles[usize::from(x & 15)] ^ factor.nibbles[usize::from(x >> 4) + 16];
        }
    }
}

/// `to = sum of from`, added to what is there if `add`.
///
/// # Panics
/// Unless all runs have one length.
pub(crate) fn xor(from: &[&[u8]], to: &mut [u8], add: bool) {
    assert!(from.iter().all(|run| run.len() == to.len()), "runs of one length");
    #[cfg(target_arch = "x86_64")]
    #[allow(unsafe_code)]
    // SAFETY: the processor was asked for what each function is compiled for; they are
    // safe code otherwise.
    unsafe {
        if is_x86_feature_detected!("avx512f") {
            return xor_avx512(from, to, add);
        }
        if is_x86_feature_detected!("avx2") {
            return xor_avx2(from, to, add);
        }
    }
    xor_body(from, to, add);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn xor_avx512(from: &[&[u8]], to: &mut [u8], add: bool) {
    xor_body(from, to, add);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn xor_avx2(from: &[&[u8]], to: &mut [u8], add: bool) {
    xor_body(from, to, add);
}

#[inline(always)]
fn xor_body(from: &[&[u8]], to: &mut [u8], add: bool) {
    const STEP: usize = 256;
    let whole = to.len() - to.len() % STEP;
    for at in (0..whole).step_by(STEP) {
        let to: &mut [u8; STEP] = (&mut to[at..at + STEP]).try_into().expect("STEP bytes");
        let mut sum = if add { *to } else { [0; STEP] };
        for run in from {
            let run: &[u8; STEP] = run[at..at + STEP].try_into().expect("STEP bytes");
            for i in 0..STEP {
                sum[i] ^= run[i];
            }
        }
        *to = sum;
    }
    if !add {
        to[whole..].fill(0);
    }
    for run in from {
        for (to, x) in to[whole..].iter_mut().zip(&run[whole..]) {
            *to ^= x;
        }
    }
}

/// The ways there are; the better ones last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    /// Nibble tables, byte by byte.
    Plain,
    /// Nibble tables by `vpshufb`, 32 bytes at once.
    Avx2,
    /// Bit-matrices by `vgf2p8affineqb`, 32 bytes at once.
    Gfni256,
    /// The same, 64 bytes at once.
    Gfni512,
}

/// The best way of this processor.
pub(crate) fn best_way() -> Way {
    static WAY: LazyLock<Way> = LazyLock::new(|| *ways().last().expect("Plain at least"));
    *WAY
}

/// All ways of this processor.
pub(crate) fn ways() -> Vec<Way> {
    let mut ways = vec![Way::Plain];
    #[cfg(target_arch = "x86_64")]
    {
        let gfni = is_x86_feature_detected!("gfni");
        if is_x86_feature_detected!("avx2") {
            ways.push(Way::Avx2);
            if gfni {
                ways.push(Way::Gfni256);
                if is_x86_feature_detected!("avx512f") {
                    ways.push(Way::Gfni512);
                }
            }
        }
    }
    ways
}

/// As much as vectors can do; gives the bytes done. Shapes were checked by [`combine`].
fn fast(
    rows: &[Vec<Factor>],
    from: &[&[u8]],
    to: &mut [&mut [u8]],
    len: usize,
    add: bool,
) -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        by(best_way(), rows, from, to, len, add)
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = (rows, from, to, len, add);
        0
    }
}

#[cfg(target_arch = "x86_64")]
fn by(
    way: Way,
    rows: &[Vec<Factor>],
    from: &[&[u8]],
    to: &mut [&mut [u8]],
    len: usize,
    add: bool,
) -> usize {
    match rows.len() {
        1 => x86::run::<1>(way, rows, from, to, len, add),
        2 => x86::run::<2>(way, rows, from, to, len, add),
        3 => x86::run::<3>(way, rows, from, to, len, add),
        4 => x86::run::<4>(way, rows, from, to, len, add),
        _ => 0,
    }
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Factor, Way};

    /// `R` rows by one way; gives the bytes done.
    pub(super) fn run<const R: usize>(
        way: Way,
        rows: &[Vec<Factor>],
        from: &[&[u8]],
        to: &mut [&mut [u8]],
        len: usize,
        add: bool,
    ) -> usize {
        assert!(rows.len() == R && to.len() == R, "R rows and results");
        assert!(rows.iter().all(|row| row.len() == from.len()), "a factor for each input");
        assert!(from.iter().all(|run| run.len() >= len), "inputs of that length");
        assert!(to.iter().all(|run| run.len() >= len), "results of that length");
        let rows: [&[Factor]; R] = std::array::from_fn(|r| rows[r].as_slice());
        let to: [*mut u8; R] = std::array::from_fn(|r| to[r].as_mut_ptr());
        // SAFETY: the processor has what the way needs (`ways` asked it); inputs and results
        // are `len` bytes, and the functions touch no byte behind the count they give back,
        // which is at most `len`; results are distinct, being `&mut`.
        unsafe {
            match way {
                Way::Plain => 0,
                Way::Avx2 => avx2(rows, from, to, len, add),
                Way::Gfni256 => gfni256(rows, from, to, len, add),
                Way::Gfni512 => gfni512(rows, from, to, len, add),
            }
        }
    }

    /// One kernel: vectors of `$bytes`, two at a time where the length allows.
    ///
    /// Safety of each: `from` and `to` hold `len` bytes, every row `from.len()` factors.
    macro_rules! kernel {
        ($name:ident, $features:literal, $vector:ty, $bytes:literal, $load:ident, $store:ident,
         $xor:ident, $zero:ident, $factor:expr, $times:expr) => {
            #[target_feature(enable = $features)]
            unsafe fn $name<const R: usize>(
                rows: [&[Factor]; R],
                from: &[&[u8]],
                to: [*mut u8; R],
                len: usize,
                add: bool,
            ) -> usize {
                const STEP: usize = 2 * $bytes;
                let whole = len - len % STEP;
                for at in (0..whole).step_by(STEP) {
                    // SAFETY: at + STEP <= len, so both vectors of each run are inside.
                    unsafe {
                        let mut sums: [[$vector; 2]; R] = [[$zero(); 2]; R];
                        if add {
                            for r in 0..R {
                                sums[r][0] = $load(to[r].add(at).cast());
                                sums[r][1] = $load(to[r].add(at + $bytes).cast());
                            }
                        }
                        for (c, run) in from.iter().enumerate() {
                            let x = $load(run.as_ptr().add(at).cast());
                            let y = $load(run.as_ptr().add(at + $bytes).cast());
                            for r in 0..R {
                                let factor = $factor(rows[r].get_unchecked(c));
                                sums[r][0] = $xor(sums[r][0], $times(x, factor));
                                sums[r][1] = $xor(sums[r][1], $times(y, factor));
                            }
                        }
                        for r in 0..R {
                            $store(to[r].add(at).cast(), sums[r][0]);
                            $store(to[r].add(at + $bytes).cast(), sums[r][1]);
                        }
                    }
                }
                whole
            }
        };
    }

    kernel!(
        gfni512,
        "gfni,avx512f",
        __m512i,
        64,
        _mm512_loadu_si512,
        _mm512_storeu_si512,
        _mm512_xor_si512,
        _mm512_setzero_si512,
        |f: &Factor| _mm512_set1_epi64(f.affine),
        |x, f| _mm512_gf2p8affine_epi64_epi8::<0>(x, f)
    );

    kernel!(
        gfni256,
        "gfni,avx2",
        __m256i,
        32,
        _mm256_loadu_si256,
        _mm256_storeu_si256,
        _mm256_xor_si256,
        _mm256_setzero_si256,
        |f: &Factor| _mm256_set1_epi64x(f.affine),
        |x, f| _mm256_gf2p8affine_epi64_epi8::<0>(x, f)
    );

    kernel!(
        avx2,
        "avx2",
        __m256i,
        32,
        _mm256_loadu_si256,
        _mm256_storeu_si256,
        _mm256_xor_si256,
        _mm256_setzero_si256,
        |f: &Factor| {
            let both = f.nibbles.as_ptr().cast::<__m128i>();
            let low = _mm256_broadcastsi128_si256(_mm_loadu_si128(both));
            (low, _mm256_broadcastsi128_si256(_mm_loadu_si128(both.add(1))))
        },
        |x, (low, high): (__m256i, __m256i)| {
            let nibble = _mm256_set1_epi8(15);
            let below = _mm256_and_si256(x, nibble);
            let above = _mm256_and_si256(_mm256_srli_epi64::<4>(x), nibble);
            _mm256_xor_si256(_mm256_shuffle_epi8(low, below), _mm256_shuffle_epi8(high, above))
        }
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each way this processor has gives what the field says, at odd lengths too.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn ways_agree() {
        let run = |seed: u32, len: u32| -> Vec<u8> {
            (0..len).map(|i| ((i + seed * 77).wrapping_mul(2_654_435_761) >> 24) as u8).collect()
        };
        for way in ways() {
            let long = if cfg!(miri) { 390 } else { 4096 };
            for (rows, inputs, len) in [(1, 1, 64), (2, 4, 1000), (3, 5, 259), (4, 2, long)] {
                let len = if cfg!(miri) { len.min(390) } else { len };
                let from: Vec<Vec<u8>> = (0..inputs).map(|c| run(c, len)).collect();
                let from: Vec<&[u8]> = from.iter().map(Vec::as_slice).collect();
                let cell = |r: u32, c: u32| (r * 91 + c * 13 + 1) as u8;
                let factors: Vec<Vec<Factor>> = (0..rows)
                    .map(|r| (0..inputs).map(|c| Factor::new(cell(r, c))).collect())
                    .collect();
                for add in [false, true] {
                    let before: Vec<Vec<u8>> = (0..rows).map(|r| run(100 + r, len)).collect();
                    let mut to = before.clone();
                    let mut runs: Vec<&mut [u8]> = to.iter_mut().map(Vec::as_mut_slice).collect();
                    let done = by(way, &factors, &from, &mut runs, len as usize, add);
                    assert!(way == Way::Plain || done + 128 > len as usize, "{way:?}");
                    for (row, to) in factors.iter().zip(&mut runs) {
                        plain(row, &from, to, done, add);
                    }
                    for r in 0..rows {
                        for i in 0..len as usize {
                            let start = if add { u32::from(before[r as usize][i]) } else { 0 };
                            let wanted = (0..inputs).fold(start, |sum, c| {
                                let factor = u32::from(cell(r, c));
                                sum ^ Field::BYTES.mul(factor, u32::from(from[c as usize][i]))
                            });
                            assert_eq!(u32::from(to[r as usize][i]), wanted, "{way:?} {r} {i}");
                        }
                    }
                }
            }
        }
    }

    /// XOR of runs, with and without what was there.
    #[test]
    fn xors() {
        let (a, b): (Vec<u8>, Vec<u8>) = ((0..600).map(|i| i as u8).collect(), vec![0x5a; 600]);
        let mut to = vec![1; 600];
        xor(&[&a, &b], &mut to, true);
        assert!(to.iter().zip(&a).all(|(t, a)| *t == 1 ^ a ^ 0x5a));
        xor(&[&a], &mut to, false);
        assert_eq!(to, a);
    }
}
