//! Bounds and choices of options.
//!
//! Source: `config help` of release 20.2.4. `osd_memory_target` has a bound of its own: this
//! release's OSDs work with less than upstream's 896 MiB.

/// What an option may be, besides its type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// From the first to the second, both included.
    Between(Option<f64>, Option<f64>),
    /// One of these texts.
    OneOf(&'static [&'static str]),
}

const fn from(least: f64) -> Limit {
    Limit::Between(Some(least), None)
}

const fn between(least: f64, most: f64) -> Limit {
    Limit::Between(Some(least), Some(most))
}

/// By name, in order.
const LIMITS: &[(&str, Limit)] = &[
    ("bluestore_compression_mode", Limit::OneOf(&["none", "passive", "aggressive", "force"])),
    ("mon_max_pg_per_osd", from(1.0)),
    ("mon_target_pg_per_osd", from(1.0)),
    ("mon_warn_pg_not_deep_scrubbed_ratio", from(0.0)),
    ("mon_warn_pg_not_scrubbed_ratio", from(0.0)),
    ("osd_heartbeat_interval", between(1.0, 60.0)),
    (
        "osd_mclock_profile",
        Limit::OneOf(&["balanced", "high_recovery_ops", "high_client_ops", "custom"]),
    ),
    ("osd_mclock_scheduler_background_recovery_lim", between(0.0, 1.0)),
    ("osd_mclock_scheduler_background_recovery_res", between(0.0, 1.0)),
    ("osd_memory_target", from(67_108_864.0)),
    ("osd_pg_max_concurrent_snap_trims", from(1.0)),
    ("osd_pool_default_min_size", between(0.0, 255.0)),
    ("osd_pool_default_pg_autoscale_mode", Limit::OneOf(&["off", "warn", "on"])),
    ("osd_pool_default_size", between(0.0, 10.0)),
    ("osd_scrub_begin_hour", between(0.0, 23.0)),
    ("osd_scrub_begin_week_day", between(0.0, 6.0)),
    ("osd_scrub_end_hour", between(0.0, 23.0)),
    ("osd_scrub_end_week_day", between(0.0, 6.0)),
    ("osd_scrub_max_preemptions", between(0.0, 30.0)),
    (
        "osd_tier_default_cache_hit_set_type",
        Limit::OneOf(&["bloom", "explicit_hash", "explicit_object"]),
    ),
    (
        "osd_tier_default_cache_mode",
        Limit::OneOf(&[
            "none",
            "writeback",
            "forward",
            "readonly",
            "readforward",
            "readproxy",
            "proxy",
        ]),
    ),
];

/// The bounds of an option, where it has any.
#[must_use]
pub fn limit(name: &str) -> Option<Limit> {
    let at = LIMITS.binary_search_by(|(known, _)| known.cmp(&name)).ok()?;
    Some(LIMITS[at].1)
}

impl Limit {
    /// Whether a value that fits the option's type keeps it. `whole` values are shown without
    /// a fraction.
    ///
    /// # Errors
    /// The peer's sentence.
    pub fn check(self, value: &str, whole: bool) -> Result<(), String> {
        let shown = |n: f64| if whole { format!("{n:.0}") } else { format!("{n:.6}") };
        match self {
            Self::OneOf(choices) if choices.contains(&value) => Ok(()),
            Self::OneOf(choices) => {
                Err(format!("'{value}' is not one of the permitted values: {}", choices.join(", ")))
            }
            Self::Between(least, most) => {
                let Ok(n) = value.parse::<f64>() else { return Ok(()) };
                if let Some(least) = least.filter(|least| n < *least) {
                    return Err(format!("Value '{}' is below minimum {}", shown(n), shown(least)));
                }
                if let Some(most) = most.filter(|most| n > *most) {
                    return Err(format!("Value '{}' exceeds maximum {}", shown(n), shown(most)));
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_keeps_its_limit() {
        assert!(LIMITS.windows(2).all(|w| w[0].0 < w[1].0), "binary search needs order");
        for (name, limit) in LIMITS {
            let spec = crate::option(name).unwrap_or_else(|| panic!("{name} is no option"));
            limit.check(spec.default, true).unwrap_or_else(|why| panic!("{name}: {why}"));
        }
    }

    #[test]
    fn values_beyond_are_told() {
        let told = |name: &str, value| limit(name).unwrap().check(value, true).unwrap_err();
        assert_eq!(told("osd_scrub_begin_hour", "24"), "Value '24' exceeds maximum 23");
        assert_eq!(told("mon_max_pg_per_osd", "0"), "Value '0' is below minimum 1");
        assert!(told("osd_mclock_profile", "fast").contains("balanced, high_recovery_ops"));
        assert!(limit("fsid").is_none());
    }
}
