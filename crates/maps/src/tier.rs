//! Cache tiers: what a pool says of its part in one.
//!
//! Source: the peer's `pg_pool_t` (cache modes, `clear_tier`), `HitSet::Params`.

use denc::{DecodeError, Denc, Features, Reader, Writer};

use crate::pool::{HitSetParams, PgPool, PoolFlags};

/// How a cache tier works. The peer's `pg_pool_t::cache_mode_t`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum CacheMode {
    /// Not a cache.
    #[default]
    None = 0,
    /// Writes stay here until they are flushed; reads bring objects here.
    Writeback = 1,
    /// Gone since release 15.
    Forward = 2,
    /// Reads bring objects here, writes go past.
    Readonly = 3,
    /// Gone since release 15.
    Readforward = 4,
    /// As writeback; what is not here is read from the base.
    Readproxy = 5,
    /// What is not here is read from and written to the base.
    Proxy = 6,
}

impl CacheMode {
    /// All, by number.
    pub const ALL: [Self; 7] = [
        Self::None,
        Self::Writeback,
        Self::Forward,
        Self::Readonly,
        Self::Readforward,
        Self::Readproxy,
        Self::Proxy,
    ];

    /// The mode with this number; `None` where there is none.
    #[must_use]
    pub fn of(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// The mode with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|m| m.name() == name)
    }

    /// As commands and dumps spell it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Writeback => "writeback",
            Self::Forward => "forward",
            Self::Readonly => "readonly",
            Self::Readforward => "readforward",
            Self::Readproxy => "readproxy",
            Self::Proxy => "proxy",
        }
    }

    /// Whether it goes by how often objects are used.
    #[must_use]
    pub const fn wants_hit_sets(self) -> bool {
        matches!(self, Self::Writeback | Self::Readforward | Self::Readproxy)
    }
}

/// Parameters of a bloom filter. The peer's `BloomHitSet::Params`, 1/1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BloomParams {
    /// How often it is wrong about what it has not seen, millionths.
    pub fpp_micro: u32,
    /// For so many objects; 0 leaves it to the OSD.
    pub target_size: u64,
    /// 0 leaves it to the OSD.
    pub seed: u64,
}

impl Denc for BloomParams {
    fn encode(&self, w: &mut Writer) {
        w.framed(1, 1, |w| {
            w.u32(self.fpp_micro);
            w.u64(self.target_size);
            w.u64(self.seed);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("BloomHitSet::Params", 1, |r, _| {
            Ok(Self { fpp_micro: r.u32()?, target_size: r.u64()?, seed: r.u64()? })
        })
    }
}

impl HitSetParams {
    /// Names of the kinds, by number.
    pub const KINDS: [&'static str; 4] = ["none", "explicit_hash", "explicit_object", "bloom"];

    /// Parameters of the kind with this name; a bloom filter's error is `fpp`, 0 to 1.
    #[must_use]
    pub fn from_name(name: &str, fpp: f64) -> Option<Self> {
        let kind = Self::KINDS.iter().position(|k| *k == name)?;
        let mut params = Self { kind: kind as u8, ..Self::default() };
        if params.is_bloom() {
            params.set_fpp(fpp);
        }
        Some(params)
    }

    /// The kind's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        Self::KINDS.get(usize::from(self.kind)).copied().unwrap_or("???")
    }

    /// Whether hits are recorded at all.
    #[must_use]
    pub const fn is_some(&self) -> bool {
        self.kind != 0
    }

    /// Whether hits are recorded in bloom filters.
    #[must_use]
    pub const fn is_bloom(&self) -> bool {
        self.kind == 3
    }

    /// The bloom filter's parameters.
    #[must_use]
    pub fn bloom(&self) -> Option<BloomParams> {
        self.is_bloom().then(|| BloomParams::from_bytes(&self.body).unwrap_or_default())
    }

    /// Sets the error of a bloom filter, 0 to 1.
    pub fn set_fpp(&mut self, fpp: f64) {
        let old = self.bloom().unwrap_or_default();
        let new = BloomParams { fpp_micro: (fpp * 1e6).round() as u32, ..old };
        let mut w = Writer::new(Features::ALL);
        new.encode(&mut w);
        self.body = w.finish();
    }
}

impl PgPool {
    /// How it caches; a number nobody knows is `None`'s.
    #[must_use]
    pub fn mode(&self) -> CacheMode {
        CacheMode::of(self.cache_mode).unwrap_or_default()
    }

    /// Whether it is no tier from here on, with all that is set for tiers alone.
    pub fn clear_tier(&mut self) {
        let fresh = Self::default();
        if self.cache_mode != 0 {
            self.flags.set(PoolFlags::INCOMPLETE_CLONES, true);
        }
        (self.tier_of, self.read_tier, self.write_tier, self.cache_mode) = (-1, -1, -1, 0);
        (self.target_max_bytes, self.target_max_objects) = (0, 0);
        self.cache_target_dirty_ratio_micro = 0;
        self.cache_target_dirty_high_ratio_micro = 0;
        self.cache_target_full_ratio_micro = 0;
        self.hit_set_params = fresh.hit_set_params;
        (self.hit_set_period, self.hit_set_count) = (0, 0);
        (self.hit_set_grade_decay_rate, self.hit_set_search_last_n) = (0, 0);
    }

    /// Takes over what a tier has from its base: snapshots and applications.
    ///
    /// Source: the peer's `OSDMap::Incremental::propagate_base_properties_to_tiers`.
    pub fn follow_base(&mut self, base: &Self) {
        self.snap_seq = base.snap_seq;
        self.snap_epoch = base.snap_epoch;
        self.snaps = base.snaps.clone();
        self.removed_snaps = base.removed_snaps.clone();
        for flag in [PoolFlags::SELFMANAGED_SNAPS, PoolFlags::POOL_SNAPS] {
            if base.has_flag(flag) {
                self.flags.set(flag, true);
            }
        }
        self.application_metadata = base.application_metadata.clone();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bloom filter's parameters are what the peer writes: type, then 20 bytes in a frame.
    #[test]
    fn bloom_parameters() {
        let mut params = HitSetParams::from_name("bloom", 0.05).unwrap();
        assert_eq!(params.bloom().unwrap().fpp_micro, 50_000);
        params.set_fpp(0.1);
        let bytes = params.to_bytes();
        assert_eq!(bytes[..13], [1, 1, 27, 0, 0, 0, 3, 1, 1, 20, 0, 0, 0]);
        assert_eq!(u32::from_le_bytes(bytes[13..17].try_into().unwrap()), 100_000);
        assert_eq!(HitSetParams::from_bytes(&bytes), Ok(params));
        assert_eq!(HitSetParams::from_name("counting", 0.0), None);
    }

    /// Names and numbers of modes lead to each other.
    #[test]
    fn modes_have_names() {
        for (i, mode) in CacheMode::ALL.into_iter().enumerate() {
            assert_eq!((mode as usize, CacheMode::from_name(mode.name())), (i, Some(mode)));
        }
        assert_eq!(CacheMode::of(7), None);
    }
}
