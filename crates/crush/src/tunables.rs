//! The knobs of the mapping, and their named settings.

use crate::model::BucketAlg;

const fn algs(algs: &[BucketAlg]) -> u32 {
    let mut bits = 0;
    let mut i = 0;
    while i < algs.len() {
        bits |= 1 << algs[i] as u32;
        i += 1;
    }
    bits
}

const LEGACY_ALGS: u32 = algs(&[BucketAlg::Uniform, BucketAlg::List, BucketAlg::Straw]);
const HAMMER_ALGS: u32 =
    algs(&[BucketAlg::Uniform, BucketAlg::List, BucketAlg::Straw, BucketAlg::Straw2]);

/// How the mapping retries, and what may be built. `osd crush tunables` sets them by
/// [`Profile`]; `crush dump` shows them under the names here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tunables {
    /// Retries in the same bucket after a collision.
    pub choose_local_tries: u32,
    /// Retries in the same bucket over a permutation of its items.
    pub choose_local_fallback_tries: u32,
    /// Retries of the whole descent.
    pub choose_total_tries: u32,
    /// Whether the descent to a leaf is tried once only (1) instead of retried (0).
    pub chooseleaf_descend_once: u32,
    /// Whether, and how much, the descent to a leaf depends on the parent's try.
    pub chooseleaf_vary_r: u8,
    /// Whether the descent to a leaf is the same for all replicas.
    pub chooseleaf_stable: u8,
    /// How straws are cut: 0 has a flaw with equal weights, 1 has not.
    pub straw_calc_version: u8,
    /// Bits of [`BucketAlg`] that new buckets may have.
    pub allowed_bucket_algs: u32,
    /// Descents of an MSR rule.
    pub msr_descents: u32,
    /// Tries after a collision in an MSR rule.
    pub msr_collision_tries: u32,
}

/// Named tunables, as `osd crush tunables` takes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// As `Argonaut`.
    Legacy,
    /// Release 0.48.
    Argonaut,
    /// Release 0.56.
    Bobtail,
    /// Release 0.80.
    Firefly,
    /// Release 0.94.
    Hammer,
    /// Release 10.
    Jewel,
    /// The best that is known: as `Jewel`.
    Optimal,
    /// What new maps have: as `Jewel`.
    Default,
}

impl Profile {
    /// The profile with that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "legacy" => Self::Legacy,
            "argonaut" => Self::Argonaut,
            "bobtail" => Self::Bobtail,
            "firefly" => Self::Firefly,
            "hammer" => Self::Hammer,
            "jewel" => Self::Jewel,
            "optimal" => Self::Optimal,
            "default" => Self::Default,
            _ => return None,
        })
    }
}

impl Default for Tunables {
    fn default() -> Self {
        Self {
            choose_local_tries: 0,
            choose_local_fallback_tries: 0,
            choose_total_tries: 50,
            chooseleaf_descend_once: 1,
            chooseleaf_vary_r: 1,
            chooseleaf_stable: 1,
            straw_calc_version: 1,
            allowed_bucket_algs: HAMMER_ALGS,
            msr_descents: 100,
            msr_collision_tries: 100,
        }
    }
}

impl Tunables {
    /// What a map from before tunables means.
    #[must_use]
    pub fn legacy() -> Self {
        Self {
            choose_local_tries: 2,
            choose_local_fallback_tries: 5,
            choose_total_tries: 19,
            chooseleaf_descend_once: 0,
            chooseleaf_vary_r: 0,
            chooseleaf_stable: 0,
            straw_calc_version: 0,
            allowed_bucket_algs: LEGACY_ALGS,
            msr_descents: 100,
            msr_collision_tries: 100,
        }
    }

    /// Sets what `profile` names. `straw_calc_version` follows only `Legacy` and `Argonaut` (0),
    /// `Optimal` and `Default` (1): the others keep it, since straws would move with it.
    pub fn set_profile(&mut self, profile: Profile) {
        let (legacy, new) = (Self::legacy(), Self::default());
        let straw_calc_version = match profile {
            Profile::Legacy | Profile::Argonaut => 0,
            Profile::Optimal | Profile::Default => 1,
            _ => self.straw_calc_version,
        };
        let bobtail = Self {
            chooseleaf_vary_r: 0,
            chooseleaf_stable: 0,
            allowed_bucket_algs: LEGACY_ALGS,
            ..new
        };
        let firefly = Self { chooseleaf_vary_r: 1, ..bobtail };
        let hammer = Self { allowed_bucket_algs: HAMMER_ALGS, ..firefly };
        *self = match profile {
            Profile::Legacy | Profile::Argonaut => legacy,
            Profile::Bobtail => bobtail,
            Profile::Firefly => firefly,
            Profile::Hammer => hammer,
            Profile::Jewel | Profile::Optimal | Profile::Default => new,
        };
        self.straw_calc_version = straw_calc_version;
    }
}
