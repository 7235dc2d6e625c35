//! Hit sets: which objects of a cache tier were used in some span of time.
//!
//! Source: the peer's `osd/HitSet.h`, `common/bloom_filter.hpp`; bytes in the object corpus
//! (`HitSet`, `BloomHitSet`, `compressible_bloom_filter`).

use std::collections::BTreeSet;

use denc::{DecodeError, Denc, Reader, Writer};
use types::HObject;

use crate::tier::BloomParams;

/// What each hash function of a bloom filter begins with, before the seed.
const SALTS: [u32; 128] = [
    0xaaaa_aaaa,
    0x5555_5555,
    0x3333_3333,
    0xcccc_cccc,
    0x6666_6666,
    0x9999_9999,
    0xb5b5_b5b5,
    0x4b4b_4b4b,
    0xaa55_aa55,
    0x5533_5533,
    0x33cc_33cc,
    0xcc66_cc66,
    0x6699_6699,
    0x99b5_99b5,
    0xb54b_b54b,
    0x4baa_4baa,
    0xaa33_aa33,
    0x55cc_55cc,
    0x3366_3366,
    0xcc99_cc99,
    0x66b5_66b5,
    0x994b_994b,
    0xb5aa_b5aa,
    0xaaaa_aa33,
    0x5555_55cc,
    0x3333_3366,
    0xcccc_cc99,
    0x6666_66b5,
    0x9999_994b,
    0xb5b5_b5aa,
    0xffff_ffff,
    0xffff_0000,
    0xb823_d5eb,
    0xc119_1cdf,
    0xf623_aeb3,
    0xdb58_499f,
    0xc8d4_2e70,
    0xb173_f616,
    0xa91a_5967,
    0xda42_7d63,
    0xb1e8_a2ea,
    0xf6c0_d155,
    0x4909_fea3,
    0xa68c_c6a7,
    0xc395_e782,
    0xa260_57eb,
    0x0cd5_da28,
    0x467c_5492,
    0xf15e_6982,
    0x61c6_fad3,
    0x9615_e352,
    0x6e9e_355a,
    0x689b_563e,
    0x0c98_31a8,
    0x6753_c18b,
    0xa622_689b,
    0x8ca6_3c47,
    0x42cc_2884,
    0x8e89_919b,
    0x6edb_d7d3,
    0x15b6_796c,
    0x1d6f_dfe4,
    0x63ff_9092,
    0xe740_1432,
    0xeffe_9412,
    0xaeae_df79,
    0x9f24_5a31,
    0x83c1_36fc,
    0xc3da_4a8c,
    0xa511_2c8c,
    0x5271_f491,
    0x9a94_8dab,
    0xcee5_9a8d,
    0xb5f5_25ab,
    0x59d1_3217,
    0x24e7_c331,
    0x697c_2103,
    0x84b0_a460,
    0x8615_6da9,
    0xaef2_ac68,
    0x2324_3da5,
    0x3f64_9643,
    0x5fa4_95a8,
    0x6771_0df8,
    0x9a6c_499e,
    0xdcfb_0227,
    0x46a4_3433,
    0x1832_b07a,
    0xc46a_ff3c,
    0xb9c8_fff0,
    0xc950_0467,
    0x3443_1bdf,
    0xb652_432b,
    0xe367_f12b,
    0x427f_4c1b,
    0x224c_006e,
    0x2e7e_5a89,
    0x96f9_9aa5,
    0x0beb_452a,
    0x2fd8_7c39,
    0x74b2_e1fb,
    0x222e_fd24,
    0xf357_f60c,
    0x440f_cb1e,
    0x8bbe_030f,
    0x6704_dc29,
    0x1144_d12f,
    0x948b_1355,
    0x6d8f_d7e9,
    0x1c11_a014,
    0xadd1_592f,
    0xfb3c_712e,
    0xfc77_642f,
    0xf9c4_ce8c,
    0x3131_2fb9,
    0x08b0_dd79,
    0x318f_a6e7,
    0xc040_d23d,
    0xc058_9aa7,
    0x0ca5_c075,
    0xf874_b172,
    0x0cf9_14d5,
    0x784d_3280,
    0x4e8c_febc,
    0xc569_f575,
    0xcdb2_a091,
    0x2cc0_16b4,
    0x5c5f_4421,
];
/// What stands for a seed of 0.
const SEED: u64 = 0xa5a5_a5a5;

/// A bloom filter of hashes. The peer's `compressible_bloom_filter`, 2/2.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bloom {
    /// Hash functions, at most 128.
    salts: usize,
    /// Bytes that the table had, one size behind the other; a hash is taken modulo each.
    sizes: Vec<u64>,
    inserted: u64,
    /// For so many different hashes.
    target: u64,
    seed: u64,
    table: Vec<u8>,
}

impl Bloom {
    /// An empty filter that errs for a part `fpp` (above 0, below 1) of what was not inserted
    /// once `target` hashes were.
    #[must_use]
    pub fn new(target: u64, fpp: f64, seed: u64) -> Self {
        let (mut salts, mut bits) = (1, f64::INFINITY);
        for k in 1..=SALTS.len() {
            let k = k as f64;
            let needs = -k * target as f64 / (1.0 - fpp.powf(1.0 / k)).ln();
            if needs < bits {
                (salts, bits) = (k as usize, needs);
            }
        }
        let bytes = (bits as u64).div_ceil(8);
        let seed = if seed == 0 { SEED } else { seed };
        let table = vec![0; bytes as usize];
        Self { salts, sizes: vec![bytes], inserted: 0, target, seed, table }
    }

    /// The bits of a hash.
    fn bits(&self, hash: u32) -> impl Iterator<Item = usize> + '_ {
        let mut salts = SALTS;
        let n = self.salts.min(SALTS.len());
        for i in 0..n {
            let mixed = salts[i].wrapping_mul(salts[(i + 3) % n]);
            salts[i] = mixed.wrapping_add(self.seed as u32);
        }
        salts.into_iter().take(n).map(move |salt| {
            let at = u64::from(mix(hash, salt));
            self.sizes.iter().fold(at, |at, bytes| at % (bytes * 8)) as usize
        })
    }

    /// Adds a hash.
    pub fn insert(&mut self, hash: u32) {
        if !self.table.is_empty() {
            for bit in self.bits(hash).collect::<Vec<_>>() {
                self.table[bit / 8] |= 1 << (bit % 8);
            }
        }
        self.inserted += 1;
    }

    /// Whether the hash was inserted; wrong now and then where it was not.
    #[must_use]
    pub fn contains(&self, hash: u32) -> bool {
        !self.table.is_empty()
            && self.bits(hash).all(|bit| self.table[bit / 8] & 1 << (bit % 8) != 0)
    }

    /// The part of the bits that are set.
    #[must_use]
    pub fn density(&self) -> f64 {
        let set: u32 = self.table.iter().map(|b| b.count_ones()).sum();
        if set == 0 { 0.0 } else { f64::from(set) / (self.table.len() * 8) as f64 }
    }

    /// Folds the table to a part (above 0, below 1) of its size; otherwise nothing happens.
    pub fn compress(&mut self, part: f64) {
        let size = (self.table.len() as f64 * part) as usize;
        if !(part > 0.0 && part < 1.0) || size == 0 || size >= self.table.len() {
            return;
        }
        let rest = self.table.split_off(size);
        for (i, bits) in rest.into_iter().enumerate() {
            self.table[i % size] |= bits;
        }
        self.sizes.push(size as u64);
    }
}

/// A hash under another salt.
const fn mix(hash: u32, salt: u32) -> u32 {
    let [a, b, c, d] = hash.to_be_bytes();
    let mut h = salt;
    h ^= (h << 7) ^ (a as u32).wrapping_mul(h >> 3);
    h ^= !((h << 11).wrapping_add(b as u32 ^ (h >> 5)));
    h ^= (h << 7) ^ (c as u32).wrapping_mul(h >> 3);
    h ^= !((h << 11).wrapping_add(d as u32 ^ (h >> 5)));
    h
}

impl Denc for Bloom {
    fn encode(&self, w: &mut Writer) {
        w.framed(2, 2, |w| {
            // The filter as it would be without folding.
            w.framed(2, 2, |w| {
                w.u64(self.salts as u64);
                w.u64(self.inserted);
                w.u64(self.target);
                w.u64(self.seed);
                w.blob(&self.table);
            });
            self.sizes.encode(w);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("compressible_bloom_filter", 2, |r, _| {
            let mut bloom = r.framed("bloom_filter", 2, |r, _| {
                let salts = r.u64()?;
                r.require(salts <= SALTS.len() as u64, "a bloom filter has at most 128 salts")?;
                let (inserted, target, seed) = (r.u64()?, r.u64()?, r.u64()?);
                let table = r.blob()?.to_vec();
                let sizes = Vec::new();
                Ok(Self { salts: salts as usize, sizes, inserted, target, seed, table })
            })?;
            bloom.sizes = Denc::decode(r)?;
            let last = bloom.sizes.last().copied().unwrap_or(0);
            r.require(last == bloom.table.len() as u64, "a bloom filter's last size is its own")?;
            let sane = |b: &u64| (1..=1 << 32).contains(b);
            r.require(bloom.sizes.iter().all(sane), "a bloom filter has 1 B to 4 GiB")?;
            Ok(bloom)
        })
    }
}

/// What was used, by kind of set ([`crate::HitSetParams::KINDS`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Used {
    /// Nothing is noted.
    #[default]
    None,
    /// How often something was inserted, and hashes of objects.
    Hashes(u64, BTreeSet<u32>),
    /// How often something was inserted, and the objects.
    Objects(u64, BTreeSet<HObject>),
    /// Hashes, in a filter.
    Bloom(Bloom),
}

/// One hit set. The peer's `HitSet`, 1/1: bool sealed, u8 kind, then the kind's own, 1/1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HitSet {
    /// Nothing is added any more.
    pub sealed: bool,
    /// What was used.
    pub used: Used,
}

impl HitSet {
    /// An empty set of a kind; `bloom` is for bloom filters. A kind nobody knows is none.
    #[must_use]
    pub fn new(kind: u8, bloom: BloomParams) -> Self {
        let used = match kind {
            1 => Used::Hashes(0, BTreeSet::new()),
            2 => Used::Objects(0, BTreeSet::new()),
            3 => {
                let fpp = f64::from(bloom.fpp_micro.clamp(1, 999_999)) / 1e6;
                Used::Bloom(Bloom::new(bloom.target_size, fpp, bloom.seed))
            }
            _ => Used::None,
        };
        Self { sealed: false, used }
    }

    /// Notes that the object was used.
    pub fn insert(&mut self, oid: &HObject) {
        match &mut self.used {
            Used::None => {}
            Used::Hashes(n, set) => {
                *n += 1;
                set.insert(oid.hash);
            }
            Used::Objects(n, set) => {
                *n += 1;
                if !set.contains(oid) {
                    set.insert(oid.detached());
                }
            }
            Used::Bloom(b) => b.insert(oid.hash),
        }
    }

    /// Whether the object was used. Sets of hashes and filters err now and then where it was not.
    #[must_use]
    pub fn contains(&self, oid: &HObject) -> bool {
        match &self.used {
            Used::None => false,
            Used::Hashes(_, set) => set.contains(&oid.hash),
            Used::Objects(_, set) => set.contains(oid),
            Used::Bloom(b) => b.contains(oid.hash),
        }
    }

    /// Whether it was made for no more; so only bloom filters.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(&self.used, Used::Bloom(b) if b.inserted >= b.target)
    }

    /// How many different objects it has, about.
    #[must_use]
    pub fn unique(&self) -> u64 {
        match &self.used {
            Used::None => 0,
            Used::Hashes(_, set) => set.len() as u64,
            Used::Objects(_, set) => set.len() as u64,
            Used::Bloom(b) => (b.target as f64 * 2.0 * b.density()) as u64,
        }
    }

    /// Nothing is added any more: a filter is made as small as half of its bits set allow.
    pub fn seal(&mut self) {
        self.sealed = true;
        if let Used::Bloom(b) = &mut self.used {
            b.compress(b.density() * 2.0);
        }
    }
}

impl Denc for HitSet {
    fn encode(&self, w: &mut Writer) {
        w.framed(1, 1, |w| {
            w.bool(self.sealed);
            match &self.used {
                Used::None => w.u8(0),
                Used::Hashes(n, set) => {
                    w.u8(1);
                    w.framed(1, 1, |w| {
                        w.u64(*n);
                        set.encode(w);
                    });
                }
                Used::Objects(n, set) => {
                    w.u8(2);
                    w.framed(1, 1, |w| {
                        w.u64(*n);
                        set.encode(w);
                    });
                }
                Used::Bloom(b) => {
                    w.u8(3);
                    w.framed(1, 1, |w| b.encode(w));
                }
            }
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("HitSet", 1, |r, _| {
            let sealed = r.bool()?;
            let used = match r.u8()? {
                0 => Used::None,
                1 => r.framed("ExplicitHashHitSet", 1, |r, _| {
                    Ok(Used::Hashes(r.u64()?, Denc::decode(r)?))
                })?,
                2 => r.framed("ExplicitObjectHitSet", 1, |r, _| {
                    Ok(Used::Objects(r.u64()?, Denc::decode(r)?))
                })?,
                3 => r.framed("BloomHitSet", 1, |r, _| Ok(Used::Bloom(Denc::decode(r)?)))?,
                _ => {
                    r.require(false, "hit sets are of four kinds")?;
                    Used::None
                }
            };
            Ok(Self { sealed, used })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{PoolId, SnapId};

    fn object(hash: u32) -> HObject {
        HObject { hash, pool: PoolId(1), snap: SnapId::HEAD, ..HObject::min() }
    }

    /// The peer's test filter: for 10 objects, one of ten wrong, seed 1, with hashes 0, 123
    /// and 456. Bytes: corpus 19.2.0, `BloomHitSet/813f2d0d3dcf4e1990655b8f7e2d22cf`.
    #[test]
    fn bits_are_where_the_peer_has_them() {
        let mut bloom = Bloom::new(10, 0.1, 1);
        for hash in [0, 123, 456] {
            assert!(!bloom.contains(hash));
            bloom.insert(hash);
            assert!(bloom.contains(hash));
        }
        assert_eq!((bloom.salts, bloom.table.as_slice()), (3, &[0x80, 4, 3, 0, 4, 0x14][..]));
        let bytes = bloom.to_bytes();
        assert_eq!((bytes.len(), &bytes[..6]), (0x42, &[2, 2, 0x3c, 0, 0, 0][..]));
        assert_eq!(Bloom::from_bytes(&bytes), Ok(bloom));
    }

    /// A set that was sealed has all it had, in less room, and errs about as seldom as it was
    /// told to.
    #[test]
    fn sealed_filters_are_small_and_know_all() {
        let params = BloomParams { fpp_micro: 12_500, target_size: 1000, seed: 1_700_000_000 };
        let mut set = HitSet::new(3, params);
        let hash = |i: u32| object(i.wrapping_mul(2_654_435_761) ^ 0x5bd1_e995);
        (0..100).for_each(|i| set.insert(&hash(i)));
        let before = set.to_bytes().len();
        set.seal();
        assert!(set.to_bytes().len() < before / 3, "{}", set.to_bytes().len());
        assert!((0..100).all(|i| set.contains(&hash(i))));
        let wrong = (100..10_100).filter(|i| set.contains(&hash(*i))).count();
        assert!(wrong < 400, "{wrong} of 10,000");
        assert_eq!(HitSet::from_bytes(&set.to_bytes()), Ok(set));
    }

    /// Tables and sizes that do not fit are refused before anything is taken modulo them.
    #[test]
    fn broken_filters_are_refused() {
        let whole = Bloom::new(10, 0.1, 1);
        for sizes in [vec![], vec![0], vec![0, 6], vec![1 << 61, 6], vec![7]] {
            let bytes = Bloom { sizes: sizes.clone(), ..whole.clone() }.to_bytes();
            assert!(Bloom::from_bytes(&bytes).is_err(), "{sizes:?}");
        }
        let bytes = Bloom { salts: 129, ..whole }.to_bytes();
        assert!(Bloom::from_bytes(&bytes).is_err());
        let none = Bloom::from_bytes(&Bloom::default().to_bytes()).unwrap();
        assert!(!none.contains(7));
    }
}
