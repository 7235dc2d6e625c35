//! Every option that is known: those that something here obeys, and upstream's others.

use crate::kinds::{OptionKind, parse_size};
use crate::upstream::{self, Upstream};
use crate::{OPTIONS, OptionSpec, option};

/// What an option is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A server of ours obeys it.
    Obeyed,
    /// Clients read it.
    Clients,
    /// It is taken, and nothing obeys it.
    None,
}

/// What upstream says of an option, and what is done with it here.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    own: Option<&'static OptionSpec>,
    upstream: Option<&'static Upstream>,
}

/// The option with this normalized name.
#[must_use]
pub fn known(name: &str) -> Option<Known> {
    let (own, upstream) = (option(name), upstream::find(name));
    (own.is_some() || upstream.is_some()).then_some(Known { own, upstream })
}

/// Every option, by name.
pub fn all_known() -> impl Iterator<Item = Known> {
    let own = OPTIONS.iter().map(|o| o.name).filter(|name| upstream::find(name).is_none());
    let mut names: Vec<&str> = upstream::all().iter().map(|o| o.name).chain(own).collect();
    names.sort_unstable();
    names.into_iter().filter_map(known)
}

impl Known {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.own.map(|o| o.name).or(self.upstream.map(|o| o.name)).unwrap_or_default()
    }

    /// Whether anybody obeys it.
    #[must_use]
    pub fn effect(&self) -> Effect {
        match (self.own, self.upstream) {
            (Some(_), _) => Effect::Obeyed,
            (None, Some(option)) if option.is_for_clients() => Effect::Clients,
            _ => Effect::None,
        }
    }

    /// What it does, or that it does nothing.
    #[must_use]
    pub fn about(&self) -> &'static str {
        match (self.effect(), self.own) {
            (Effect::Obeyed, Some(own)) => own.about,
            (Effect::Clients, _) => "Read by clients.",
            _ => "Accepted without effect: nothing here obeys it.",
        }
    }

    /// Upstream's name of its type.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        self.upstream.map_or_else(|| self.kind().name(), |o| o.type_name)
    }

    /// How its values are read.
    #[must_use]
    pub fn kind(&self) -> OptionKind {
        match (self.own, self.upstream) {
            (Some(own), _) => own.kind,
            (None, Some(option)) => option.kind(),
            (None, None) => OptionKind::Str,
        }
    }

    /// Its value when nobody sets it.
    #[must_use]
    pub fn default(&self) -> &'static str {
        match (self.own, self.upstream) {
            (Some(own), _) => own.default,
            (None, Some(o)) if !o.daemon_default.is_empty() => o.daemon_default,
            (None, Some(o)) => o.default,
            (None, None) => "",
        }
    }

    /// Whether a running daemon takes a new value.
    #[must_use]
    pub fn runtime(&self) -> bool {
        self.own.map_or_else(|| self.upstream.is_some_and(|o| o.runtime), |own| own.runtime)
    }

    /// `basic`, `advanced` or `dev`.
    #[must_use]
    pub fn level(&self) -> &'static str {
        self.upstream.map_or("advanced", |o| o.level)
    }

    /// The rest that upstream says of it.
    #[must_use]
    pub fn upstream(&self) -> Option<&'static Upstream> {
        self.upstream
    }

    /// Whether a value fits the type, the bounds and the choices.
    ///
    /// # Errors
    /// A sentence.
    pub fn check(&self, value: &str) -> Result<(), String> {
        self.kind().check(value)?;
        self.check_bounds(value)
    }

    /// Whether a value that fits the type keeps the bounds and the choices.
    ///
    /// # Errors
    /// Upstream's sentence.
    pub fn check_bounds(&self, value: &str) -> Result<(), String> {
        let Some(upstream) = self.upstream else { return Ok(()) };
        if upstream::items(upstream.choices).next().is_some() {
            // Nothing is what nobody has chosen.
            if value.is_empty() || upstream::items(upstream.choices).any(|c| c == value) {
                return Ok(());
            }
            let all: Vec<&str> = upstream::items(upstream.choices).collect();
            let all = all.join(", ");
            return Err(format!("'{value}' is not one of the permitted values: {all}"));
        }
        let size = (self.kind() == OptionKind::Size).then(|| parse_size(value)).flatten();
        let Some(n) = size.map(|n| n as f64).or_else(|| value.parse().ok()) else { return Ok(()) };
        let fraction = self.kind() == OptionKind::Float;
        let shown = |n: f64| if fraction { format!("{n:.6}") } else { format!("{n:.0}") };
        let own =
            OWN_LEAST.iter().find(|(name, _)| *name == upstream.name).map(|(_, least)| *least);
        // Upstream prints bounds below 0 of unsigned options as 2^64 less: they are none.
        let bound = |text: &str| text.parse::<f64>().ok().filter(|n| *n < 2f64.powi(63));
        let least = own.or_else(|| bound(upstream.min)).filter(|least| n < *least);
        let most = bound(upstream.max).filter(|most| n > *most);
        match (least, most) {
            (Some(least), _) => {
                Err(format!("Value '{}' is below minimum {}", shown(n), shown(least)))
            }
            (_, Some(most)) => Err(format!("Value '{}' exceeds maximum {}", shown(n), shown(most))),
            _ => Ok(()),
        }
    }
}

/// Least values that are not upstream's. OSDs of this release work with less than its 896 MiB.
const OWN_LEAST: &[(&str, f64)] = &[("osd_memory_target", 67_108_864.0)];

#[cfg(test)]
mod tests {
    use super::*;

    /// Defaults of options that are obeyed here and are not upstream's, each for a reason.
    const OWN_DEFAULTS: &[(&str, &str)] = &[
        ("auth_allow_insecure_global_id_reclaim", "a client proves that a global id is its own"),
        ("bluestore_compression_max_blob_size", "upstream's 0 means 64 KiB on hdd and ssd"),
        ("bluestore_compression_min_blob_size", "upstream's 0 means 64 KiB on hdd and ssd"),
        ("cluster_addr", "upstream prints an empty address so"),
        ("fsid", "upstream prints an empty one so"),
        ("keyring", "no keyring.bin is looked for"),
        ("log_file", "standard error is the log"),
        ("osd_journal", "upstream's OSDs ignore it"),
        ("osd_journal_size", "upstream's OSDs ignore it"),
        ("osd_max_pg_log_entries", "bytes bound the log: osd_target_pg_log_bytes_per_osd"),
        ("osd_shallow_scrub_chunk_max", "a shallow scrub's turn stays short"),
        ("osd_uuid", "upstream prints an empty one so"),
        ("public_addr", "upstream prints an empty address so"),
        ("public_bind_addr", "upstream prints an empty address so"),
    ];

    /// A default is upstream's, or has a reason.
    #[test]
    fn defaults_are_upstreams() {
        let norm = |value: &str| match parse_size(value) {
            Some(n) => (n as f64).to_string(),
            None => value.parse::<f64>().map_or_else(|_| value.to_owned(), |n| n.to_string()),
        };
        for own in OPTIONS {
            let Some(theirs) = upstream::find(own.name) else { continue };
            let default = if theirs.daemon_default.is_empty() {
                theirs.default
            } else {
                theirs.daemon_default
            };
            let same = norm(own.default) == norm(default);
            let reason = OWN_DEFAULTS.iter().any(|(name, _)| *name == own.name);
            assert!(same != reason, "{}: {} here, {default} upstream", own.name, own.default);
        }
    }

    #[test]
    fn every_default_keeps_its_bounds() {
        for option in all_known() {
            if option.name().starts_with("mgr/selftest/") {
                continue; // one of upstream's own is below its bound
            }
            let fits = option.check(option.default());
            fits.unwrap_or_else(|why| panic!("{}: {why}", option.name()));
        }
        assert!(all_known().count() > 2_294);
    }

    #[test]
    fn values_beyond_are_told() {
        let told = |name: &str, value| known(name).unwrap().check(value).unwrap_err();
        assert_eq!(told("osd_scrub_begin_hour", "24"), "Value '24' exceeds maximum 23");
        assert_eq!(told("mon_max_pg_per_osd", "0"), "Value '0' is below minimum 1");
        assert_eq!(told("osd_memory_target", "1M"), "Value '1048576' is below minimum 67108864");
        assert!(told("osd_mclock_profile", "fast").contains("balanced, high_recovery_ops"));
        assert!(known("rgw_gc_max_objs").is_some_and(|o| o.effect() == Effect::None));
        assert!(known("rbd_cache").is_some_and(|o| o.effect() == Effect::Clients));
        assert!(known("osd_memory_target").is_some_and(|o| o.effect() == Effect::Obeyed));
        assert!(known("nope").is_none());
    }
}
