//! Compressed data: some blocks of an object in fewer blocks of the device.
//!
//! Large data is cut into parts of [`Compression::part`] bytes, and each that becomes small
//! enough is a blob of its own, in one run of blocks. Later writes leave some of its blocks
//! out; what is left refers to the whole blob. When that is no more than the blob takes, it
//! is written anew as it is, and the blob goes.
//!
//! Invariants:
//! - all extents of an object that name one blob count as one reference to it;
//! - pieces never lie over compressed blocks: a write to a part of such a block becomes one
//!   of the whole block, which leaves the blob.

use crate::onode::BLOCK;
use crate::transaction::Blob;

/// What compressed it. Numbers are part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Snappy's raw format.
    Snappy,
    /// A Zstandard frame.
    Zstd,
    /// An LZ4 block.
    Lz4,
}

const ALL: [(Algorithm, u8, &str); 3] =
    [(Algorithm::Snappy, 1, "snappy"), (Algorithm::Zstd, 2, "zstd"), (Algorithm::Lz4, 3, "lz4")];

/// As the field's default for storage: the fastest.
const ZSTD_LEVEL: i32 = 1;

impl Algorithm {
    pub(crate) fn number(self) -> u8 {
        ALL.iter().find(|(a, ..)| *a == self).expect("all are there").1
    }

    pub(crate) fn from_number(n: u8) -> Option<Self> {
        ALL.iter().find(|(_, m, _)| *m == n).map(|(a, ..)| *a)
    }

    /// As options name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        ALL.iter().find(|(a, ..)| *a == self).expect("all are there").2
    }

    /// By its name in options.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        ALL.iter().find(|(.., n)| *n == name).map(|(a, ..)| *a)
    }

    /// `data` in at most `max` bytes; `None` where it does not fit.
    pub(crate) fn pack(self, data: &[u8], max: usize) -> Option<Vec<u8>> {
        let out = match self {
            Self::Snappy => snap::raw::Encoder::new().compress_vec(data).ok()?,
            Self::Zstd => {
                let mut out = vec![0; max];
                let n = zstd::bulk::compress_to_buffer(data, &mut out, ZSTD_LEVEL).ok()?;
                out.truncate(n);
                out
            }
            Self::Lz4 => lz4_flex::block::compress(data),
        };
        (out.len() <= max).then_some(out)
    }

    /// Fills `out` from `raw`; whether it was filled just so.
    pub(crate) fn unpack(self, raw: &[u8], out: &mut [u8]) -> bool {
        let n = match self {
            Self::Snappy => snap::raw::Decoder::new().decompress(raw, out).ok(),
            Self::Zstd => zstd::bulk::decompress_to_buffer(raw, out).ok(),
            Self::Lz4 => lz4_flex::block::decompress_into(raw, out).ok(),
        };
        n == Some(out.len())
    }
}

/// How data of a pool is compressed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compression {
    /// By what.
    pub algorithm: Algorithm,
    /// What has no hint is compressed (`aggressive`); else only what has one (`passive`).
    pub unasked: bool,
    /// What has a hint against it, too (`force`).
    pub always: bool,
    /// Compressed bytes per byte, at most; else it stays as it is.
    pub required_ratio: f64,
    /// Bytes compressed as one, a multiple of 4096.
    pub part: u64,
    /// Fewer bytes stay as they are.
    pub least: u64,
}

/// What is expected of an object's data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compressible {
    /// Nothing is known.
    #[default]
    Unknown,
    /// It was said to be.
    Yes,
    /// It was said not to be.
    No,
}

impl Compression {
    /// Whether data with this hint is tried.
    pub(crate) fn wants(&self, hint: Compressible) -> bool {
        match hint {
            Compressible::Unknown => self.unasked || self.always,
            Compressible::Yes => true,
            Compressible::No => self.always,
        }
    }

    /// Blocks of one part.
    pub(crate) fn part_blocks(&self) -> u64 {
        (self.part / BLOCK).clamp(2, PART_MAX)
    }

    /// `data`, whole blocks, compressed, where that saves enough of them.
    pub(crate) fn pack(&self, data: &[u8]) -> Option<Vec<u8>> {
        if (data.len() as u64) < self.least.max(2 * BLOCK) {
            return None;
        }
        let max = (data.len() as f64 * self.required_ratio) as usize;
        let max = max.min(data.len() - BLOCK as usize) / BLOCK as usize * BLOCK as usize;
        if max == 0 {
            return None;
        }
        self.algorithm.pack(data, max)
    }
}

/// Blocks of one blob, at most.
pub(crate) const PART_MAX: u64 = 256;

/// What an extent shows of a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packed {
    pub algorithm: Algorithm,
    /// Compressed bytes.
    pub bytes: u32,
    /// Blocks it holds.
    pub whole: u32,
    /// The first of them that the extent shows.
    pub from: u32,
    /// Blocks that it shows.
    pub shown: u32,
}

impl Packed {
    /// All of a blob.
    pub fn all_of(b: &Blob) -> Self {
        let Blob { algorithm, bytes, blocks } = *b;
        Self { algorithm, bytes, whole: blocks, from: 0, shown: blocks }
    }

    /// Puts the blob's blocks from the `skip`th shown one on into `out`; `raw` is the blob.
    /// Whether that could be done.
    pub fn unpack(&self, raw: &[u8], skip: u64, out: &mut [u8]) -> bool {
        let Some(raw) = raw.get(..self.bytes as usize) else { return false };
        let whole = self.whole as usize * BLOCK as usize;
        let from = (u64::from(self.from) + skip) as usize * BLOCK as usize;
        if from == 0 && out.len() == whole {
            return self.algorithm.unpack(raw, out);
        }
        let mut all = vec![0; whole];
        if !self.algorithm.unpack(raw, &mut all) {
            return false;
        }
        let Some(part) = all.get(from..from + out.len()) else { return false };
        out.copy_from_slice(part);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn all_algorithms_give_back_what_they_took(
            word in prop::collection::vec(any::<u8>(), 1..40),
            junk in any::<u8>(),
        ) {
            let data: Vec<u8> = word.iter().copied().cycle().take(16 * 4096).collect();
            for (algorithm, number, name) in ALL {
                prop_assert_eq!(Algorithm::from_number(number), Some(algorithm));
                prop_assert_eq!(Algorithm::from_name(name), Some(algorithm));
                let mut raw = algorithm.pack(&data, data.len() / 2).expect("it repeats itself");
                let mut packed = Packed {
                    algorithm, bytes: raw.len() as u32, whole: 16, from: 0, shown: 16,
                };
                // What follows in the last block is not part of it.
                raw.extend([junk; 100]);
                let mut out = vec![1; data.len()];
                prop_assert!(packed.unpack(&raw, 0, &mut out));
                prop_assert!(out == data);
                packed.from = 3;
                packed.shown = 5;
                let mut out = vec![1; 2 * 4096];
                prop_assert!(packed.unpack(&raw, 1, &mut out));
                prop_assert!(out == data[4 * 4096..6 * 4096]);
            }
        }

        #[test]
        fn damaged_blobs_are_refused(raw in prop::collection::vec(any::<u8>(), 0..300)) {
            for (algorithm, ..) in ALL {
                let bytes = raw.len() as u32;
                let packed = Packed { algorithm, bytes, whole: 16, from: 0, shown: 16 };
                packed.unpack(&raw, 0, &mut vec![0; 16 * 4096]); // no panic
                let more = Packed { bytes: bytes + 1, ..packed };
                prop_assert!(!more.unpack(&raw, 0, &mut vec![0; 16 * 4096]));
            }
        }
    }

    #[test]
    fn what_saves_too_little_stays() {
        let mut c = Compression {
            algorithm: Algorithm::Lz4,
            unasked: true,
            always: false,
            required_ratio: 0.875,
            part: 64 << 10,
            least: 8192,
        };
        let mut x = 1u64;
        let mut random = || {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (x >> 56) as u8
        };
        let mut data: Vec<u8> = (0..64 << 10).map(|_| random()).collect();
        assert_eq!(c.pack(&data), None);
        data[..32 << 10].fill(0);
        assert!(c.pack(&data).is_some_and(|p| p.len() < 33 << 10));
        c.required_ratio = 0.4;
        assert_eq!(c.pack(&data), None);
        c.required_ratio = 1.0;
        assert_eq!(c.pack(&data[..4096]), None, "one block cannot become fewer");
        assert_eq!(c.part_blocks(), 16);
        let hints = [Compressible::Unknown, Compressible::Yes, Compressible::No];
        assert_eq!(hints.map(|h| c.wants(h)), [true, true, false]);
        c.unasked = false;
        assert_eq!(hints.map(|h| c.wants(h)), [false, true, false]);
        c.always = true;
        assert_eq!(hints.map(|h| c.wants(h)), [true, true, true]);
    }
}
