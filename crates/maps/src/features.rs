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

/// Any number of feature bits. The peer's `feature_bitset_t`: u32 length in bytes, then
/// the bits, in whole 64-bit words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeatureBits(pub Vec<u64>);

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
