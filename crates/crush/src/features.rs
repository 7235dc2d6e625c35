//! What a reader must know to place by a map.

use crate::model::{Bucket, BucketAlg, CrushMap, Op, Rule};
use crate::tunables::{Profile, Tunables};

impl Rule {
    fn has(&self, ops: &[Op]) -> bool {
        self.steps.iter().any(|step| step.known().is_some_and(|op| ops.contains(&op)))
    }

    /// Needs `CRUSH_V2`: indep, or the number of tries set.
    #[must_use]
    pub fn is_v2(&self) -> bool {
        self.has(&[
            Op::ChooseIndep,
            Op::ChooseleafIndep,
            Op::SetChooseTries,
            Op::SetChooseleafTries,
        ])
    }

    /// Needs `CRUSH_TUNABLES3`: `vary_r` set.
    #[must_use]
    pub fn is_v3(&self) -> bool {
        self.has(&[Op::SetChooseleafVaryR])
    }

    /// Needs `CRUSH_TUNABLES5`: `stable` set.
    #[must_use]
    pub fn is_v5(&self) -> bool {
        self.has(&[Op::SetChooseleafStable])
    }
}

impl Tunables {
    /// Need `CRUSH_TUNABLES`.
    #[must_use]
    pub fn need_tunables(&self) -> bool {
        let old = Self::legacy();
        self.choose_local_tries != old.choose_local_tries
            || self.choose_local_fallback_tries != old.choose_local_fallback_tries
            || self.choose_total_tries != old.choose_total_tries
    }

    /// Need `CRUSH_TUNABLES2`.
    #[must_use]
    pub fn need_tunables2(&self) -> bool {
        self.chooseleaf_descend_once != 0
    }

    /// Need `CRUSH_TUNABLES3`.
    #[must_use]
    pub fn need_tunables3(&self) -> bool {
        self.chooseleaf_vary_r != 0
    }

    /// Need `CRUSH_TUNABLES5`.
    #[must_use]
    pub fn need_tunables5(&self) -> bool {
        self.chooseleaf_stable != 0
    }

    /// Need `CRUSH_MSR`.
    #[must_use]
    pub fn need_msr(&self) -> bool {
        self.msr_descents != 100 || self.msr_collision_tries != 100
    }

    fn is(&self, profile: Profile) -> bool {
        let mut of_profile = *self;
        of_profile.set_profile(profile);
        of_profile.straw_calc_version = self.straw_calc_version;
        of_profile == *self
    }

    /// The newest profile that has these settings, by name; else "unknown". How straws are
    /// cut does not count.
    #[must_use]
    pub fn profile_name(&self) -> &'static str {
        let profiles = [
            (Profile::Jewel, "jewel"),
            (Profile::Hammer, "hammer"),
            (Profile::Firefly, "firefly"),
            (Profile::Bobtail, "bobtail"),
            (Profile::Argonaut, "argonaut"),
        ];
        profiles.into_iter().find(|(p, _)| self.is(*p)).map_or("unknown", |(_, name)| name)
    }

    /// Whether these are the best that is known.
    #[must_use]
    pub fn is_optimal(&self) -> bool {
        self.is(Profile::Jewel)
    }

    /// Whether these are those from before tunables.
    #[must_use]
    pub fn is_legacy(&self) -> bool {
        self.is(Profile::Argonaut)
    }
}

impl CrushMap {
    /// Whether any rule [`Rule::is_v2`].
    #[must_use]
    pub fn has_v2_rules(&self) -> bool {
        self.rules().any(|(_, rule)| rule.is_v2())
    }

    /// Whether any rule [`Rule::is_v3`].
    #[must_use]
    pub fn has_v3_rules(&self) -> bool {
        self.rules().any(|(_, rule)| rule.is_v3())
    }

    /// Whether any bucket is straw2 (needs `CRUSH_V4`).
    #[must_use]
    pub fn has_v4_buckets(&self) -> bool {
        self.buckets().map(Bucket::alg).any(|alg| alg == BucketAlg::Straw2)
    }

    /// Whether any rule [`Rule::is_v5`].
    #[must_use]
    pub fn has_v5_rules(&self) -> bool {
        self.rules().any(|(_, rule)| rule.is_v5())
    }

    /// Whether any rule [`Rule::is_msr`].
    #[must_use]
    pub fn has_msr_rules(&self) -> bool {
        self.rules().any(|(_, rule)| rule.is_msr())
    }

    /// The oldest release that places by this map as we do.
    #[must_use]
    pub fn min_required_version(&self) -> &'static str {
        let t = self.tunables();
        if self.has_msr_rules() || t.need_msr() {
            "squid"
        } else if self.has_v5_rules() || t.need_tunables5() {
            "jewel"
        } else if self.has_v4_buckets() {
            "hammer"
        } else if t.need_tunables3() {
            "firefly"
        } else if t.need_tunables2() || t.need_tunables() {
            "bobtail"
        } else {
            "argonaut"
        }
    }
}
