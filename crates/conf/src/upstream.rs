//! Upstream's options: what the monitors of release 20.2.4 tell by `config help`, in
//! `upstream.tsv`: a line for each, by name, fields separated by tabs.

use std::sync::LazyLock;

use crate::OptionKind;

/// One option of upstream's. Numbers and lists are texts as `config help` prints them; lists are
/// separated by commas.
#[derive(Debug)]
pub struct Upstream {
    /// Its name.
    pub name: &'static str,
    /// `bool`, `str`, `int`, `uint`, `float`, `size`, `secs`, `millisecs`, `addr`, `addrvec`, `uuid`.
    pub type_name: &'static str,
    /// `basic`, `advanced`, `dev`.
    pub level: &'static str,
    /// Whether a running daemon takes a new value.
    pub runtime: bool,
    /// Value when nobody sets it.
    pub default: &'static str,
    /// The same for daemons, where that differs.
    pub daemon_default: &'static str,
    /// Least value; empty: any.
    pub min: &'static str,
    /// Greatest value; empty: any.
    pub max: &'static str,
    /// Who reads it.
    pub services: &'static str,
    /// `startup`, `runtime`, `no_mon_update`, `create`, `cluster_create`.
    pub flags: &'static str,
    /// The only values that there are; empty: any.
    pub choices: &'static str,
    /// What it belongs to.
    pub tags: &'static str,
    /// Options that belong to it.
    pub see_also: &'static str,
}

static ALL: LazyLock<Vec<Upstream>> = LazyLock::new(|| {
    let read = |line: &'static str| {
        let mut fields = line.split('\t');
        let mut next = || fields.next().unwrap_or_default();
        Upstream {
            name: next(),
            type_name: next(),
            level: next(),
            runtime: next() == "r",
            default: next(),
            daemon_default: next(),
            min: next(),
            max: next(),
            services: next(),
            flags: next(),
            choices: next(),
            tags: next(),
            see_also: next(),
        }
    };
    include_str!("upstream.tsv").lines().map(read).collect()
});

/// Upstream's options, by name.
pub(crate) fn all() -> &'static [Upstream] {
    &ALL
}

/// Upstream's option with this normalized name.
pub(crate) fn find(name: &str) -> Option<&'static Upstream> {
    let at = ALL.binary_search_by(|option| option.name.cmp(name)).ok()?;
    Some(&ALL[at])
}

/// The parts of a list.
pub fn items(list: &'static str) -> impl Iterator<Item = &'static str> {
    list.split(',').filter(|item| !item.is_empty())
}

impl Upstream {
    /// How its values are read.
    #[must_use]
    pub fn kind(&self) -> OptionKind {
        match self.type_name {
            "bool" => OptionKind::Bool,
            "int" => OptionKind::Int,
            "uint" => OptionKind::Uint,
            "float" => OptionKind::Float,
            "size" => OptionKind::Size,
            "secs" | "millisecs" => OptionKind::Secs,
            _ => OptionKind::Str,
        }
    }

    /// Whether it is clients that read it: their libraries, the kernel's helpers, mirror daemons.
    #[must_use]
    pub fn is_for_clients(&self) -> bool {
        const PREFIXES: [&str; 6] =
            ["client_", "rbd_", "fuse_", "rados_", "librados_", "objecter_"];
        const SERVICES: [&str; 5] =
            ["rbd", "mds_client", "rbd-mirror", "cephfs-mirror", "immutable-object-cache"];
        PREFIXES.iter().any(|prefix| self.name.starts_with(prefix))
            || items(self.services).any(|service| SERVICES.contains(&service))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_an_option() {
        assert_eq!(all().len(), 2_294);
        assert!(all().windows(2).all(|w| w[0].name < w[1].name), "binary search needs order");
        for option in all() {
            let known = ["basic", "advanced", "dev"].contains(&option.level);
            assert!(known, "{}: level {}", option.name, option.level);
            let kind = option.kind();
            let default = option.default;
            kind.check(default).unwrap_or_else(|why| panic!("{}: {why}", option.name));
        }
        let grace = find("osd_heartbeat_grace").unwrap();
        assert_eq!((grace.type_name, grace.default, grace.runtime), ("int", "20", true));
        assert!(find("rbd_cache").unwrap().is_for_clients());
        assert!(!grace.is_for_clients() && find("nope").is_none());
    }
}
