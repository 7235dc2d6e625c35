//! Sets of features that file systems and their clients have.

use std::collections::BTreeMap;

use types::{DecodeError, Denc, Reader, Writer};

use crate::wire::plain;

/// Named features, 1 to 63. The peer's `CompatSet::FeatureSet`: u64 mask without its
/// lowest bit, then names by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeatureSet {
    /// Names by number.
    pub names: BTreeMap<u64, String>,
}

impl FeatureSet {
    /// From numbers and names.
    #[must_use]
    pub fn new(features: &[(u64, &str)]) -> Self {
        Self { names: features.iter().map(|(n, name)| (*n, (*name).to_owned())).collect() }
    }

    /// A bit for each number.
    #[must_use]
    pub fn mask(&self) -> u64 {
        self.names.keys().filter(|n| **n < 64).fold(0, |mask, n| mask | 1 << n)
    }

    /// Whether a feature is one of them.
    #[must_use]
    pub fn contains(&self, feature: u64) -> bool {
        self.names.contains_key(&feature)
    }

    /// Adds a feature; `false` when it was there, or its number is not 1 to 63.
    pub fn insert(&mut self, feature: u64, name: impl Into<String>) -> bool {
        (1..64).contains(&feature) && self.names.insert(feature, name.into()).is_none()
    }

    /// Removes a feature; `false` when it was not there.
    pub fn remove(&mut self, feature: u64) -> bool {
        self.names.remove(&feature).is_some()
    }

    /// Whether all of `other` are in this.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        other.mask() & !self.mask() == 0
    }

    fn merge(&mut self, other: &Self) -> bool {
        let before = self.names.len();
        for (feature, name) in &other.names {
            self.names.entry(*feature).or_insert_with(|| name.clone());
        }
        self.names.len() > before
    }
}

impl Denc for FeatureSet {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.mask() & !1);
        self.names.encode(w);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mask = r.u64()?;
        let names: BTreeMap<u64, String> = Denc::decode(r)?;
        r.require(names.keys().all(|n| *n < 64), "features are numbered below 64")?;
        // Before release 0.94 the mask was a count; the names are the truth then.
        let _ = mask;
        Ok(Self { names })
    }
}

plain! {
    /// Which features a disk format or a file system needs. The peer's `CompatSet`.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    CompatSet {
        /// May be unknown to a reader.
        compat: FeatureSet,
        /// Must be known to write.
        ro_compat: FeatureSet,
        /// Must be known.
        incompat: FeatureSet,
    }
}

impl CompatSet {
    /// Whether who knows these may read what needs `other`.
    #[must_use]
    pub fn reads(&self, other: &Self) -> bool {
        self.incompat.covers(&other.incompat)
    }

    /// Whether who knows these may write what needs `other`.
    #[must_use]
    pub fn writes(&self, other: &Self) -> bool {
        self.reads(other) && self.ro_compat.covers(&other.ro_compat)
    }

    /// Adds all of `other`; `false` when there was nothing to add.
    pub fn merge(&mut self, other: &Self) -> bool {
        // Not lazily: each of the three is merged.
        self.compat.merge(&other.compat)
            | self.ro_compat.merge(&other.ro_compat)
            | self.incompat.merge(&other.incompat)
    }
}

/// Any number of feature bits. The peer's `feature_bitset_t`: u32 length in bytes, then
/// the bits, in whole 64-bit words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeatureBits(pub Vec<u64>);

impl FeatureBits {
    /// Those of the lowest 64 bits that are set in `word`.
    #[must_use]
    pub fn from_word(word: u64) -> Self {
        Self(if word == 0 { Vec::new() } else { vec![word] })
    }

    /// Whether a bit is set.
    #[must_use]
    pub fn has(&self, bit: usize) -> bool {
        self.0.get(bit / 64).is_some_and(|word| word >> (bit % 64) & 1 == 1)
    }

    /// One more than the largest bit that [`FeatureBits::set`] takes.
    pub const BITS_MAX: usize = 1024;

    /// Sets or clears a bit; no words of zeros are left at the end. `false`, and nothing
    /// happens, from [`FeatureBits::BITS_MAX`] on.
    pub fn set(&mut self, bit: usize, on: bool) -> bool {
        if bit >= Self::BITS_MAX {
            return false;
        }
        if on && self.0.len() <= bit / 64 {
            self.0.resize(bit / 64 + 1, 0);
        }
        if let Some(word) = self.0.get_mut(bit / 64) {
            *word = *word & !(1 << (bit % 64)) | u64::from(on) << (bit % 64);
        }
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
        true
    }

    /// The bits that are set, ascending.
    pub fn bits(&self) -> impl Iterator<Item = usize> {
        (0..self.0.len() * 64).filter(|bit| self.has(*bit))
    }

    /// `0x0000000000ffffff`: the words, the highest first. The peer's `feature_bitset_t::print`.
    #[must_use]
    pub fn text(&self) -> String {
        let words: String = self.0.iter().rev().map(|word| format!("{word:016x}")).collect();
        format!("0x{}", if words.is_empty() { "0" } else { &words })
    }

    /// The bits of `other` that are not set here: what a client lacks.
    pub fn missing<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = usize> + 'a {
        other.bits().filter(|bit| !self.has(*bit))
    }
}

impl Denc for FeatureBits {
    fn encode(&self, w: &mut Writer) {
        w.u32((self.0.len() * 8) as u32);
        for word in &self.0 {
            w.u64(*word);
        }
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let bytes = r.blob_ref()?;
        let words = bytes.chunks(8).map(|c| {
            let mut word = [0; 8];
            word[..c.len()].copy_from_slice(c);
            u64::from_le_bytes(word)
        });
        Ok(Self(words.collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compat_sets() {
        let all = crate::fs::compat_supported();
        let mut needs = crate::fs::compat_default();
        assert!(all.writes(&needs) && !needs.reads(&all));
        assert!(needs.merge(&all) && !needs.merge(&all));
        assert_eq!(needs, all);
        assert!(needs.incompat.insert(62, "other journal") && !needs.incompat.insert(64, "none"));
        assert!(!all.reads(&needs), "stock refuses what it does not know");
        assert!(needs.incompat.remove(62) && !needs.incompat.remove(62));
        assert!(needs.ro_compat.insert(1, "x") && all.reads(&needs) && !all.writes(&needs));
    }

    #[test]
    fn feature_bits() {
        let mut bits = FeatureBits::from_word(0x7_ffff);
        assert!(bits.has(18) && !bits.has(19) && !bits.has(6400));
        assert!(bits.set(70, true) && !bits.set(usize::MAX, true));
        assert_eq!(bits.0.len(), 2);
        let client = FeatureBits::from_word(0x3_ffff);
        assert_eq!(client.missing(&bits).collect::<Vec<_>>(), [18, 70]);
        assert!(bits.set(70, false) && bits.set(900, false));
        assert_eq!(bits, FeatureBits::from_word(0x7_ffff));
        assert_eq!(FeatureBits::from_bytes(&bits.to_bytes()), Ok(bits));
        assert_eq!(FeatureBits::from_word(0), FeatureBits::default());
    }
}
