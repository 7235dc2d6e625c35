//! `ceph.conf` and the options that daemons know: parsing, sections, variables, and the
//! layers a value can come from.
//!
//! Invariants: names are compared with spaces, dashes and underscores equal; a value's
//! source is known; what is not understood is named, with its line, and never ignored
//! silently. No I/O: text in, values out.
//!
//! Source: the peer's `common/ConfUtils.cc`, `common/config.cc`, `doc/rados/configuration`.

mod file;
pub mod key;
mod kinds;
mod known;
mod options;
mod upstream;

use std::collections::BTreeMap;

pub use file::{ConfError, ConfFile};
pub use key::{Key, Kind};
pub use kinds::{OptionKind, parse_size};
pub use known::{Effect, Known, all_known, known};
pub use options::{OPTIONS, OptionSpec, option};
pub use upstream::{Upstream, items};

/// `Foo bar-baz` -> `foo_bar_baz`.
#[must_use]
pub fn normalize(name: &str) -> String {
    let words = name.trim().split([' ', '-', '_', '\t']).filter(|w| !w.is_empty());
    words.collect::<Vec<_>>().join("_").to_lowercase()
}

/// How deep options may name each other.
const DEPTH_MAX: u32 = 8;
/// How many options one value may take in, its options' options counted.
const EXPANSIONS_MAX: u32 = 64;

/// Where a value comes from; later ones win.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The option's own default.
    Default,
    /// The monitors' database.
    Mon,
    /// `ceph.conf`.
    File,
    /// The command line.
    CommandLine,
    /// `config set` / `injectargs` at run time.
    Override,
}

impl Source {
    /// The name in `config show` and `config diff`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Mon => "mon",
            Self::File => "file",
            Self::CommandLine => "cmdline",
            Self::Override => "override",
        }
    }
}

/// The options as one daemon or client sees them.
#[derive(Clone, Debug)]
pub struct Config {
    entity_type: String,
    entity_id: String,
    cluster: String,
    host: String,
    pid: u32,
    layers: BTreeMap<Source, BTreeMap<String, String>>,
    /// Sentences about values in the file that were left out.
    wrong: Vec<String>,
}

impl Config {
    /// The view of `TYPE.ID` (`osd.3`) on a host, from a file.
    #[must_use]
    pub fn new(file: &ConfFile, entity_type: &str, entity_id: &str, host: &str, pid: u32) -> Self {
        let mut from_file = BTreeMap::new();
        for section in ["global", entity_type, &format!("{entity_type}.{entity_id}")] {
            from_file.extend(file.section(section).map(|(k, v)| (k.to_owned(), v.to_owned())));
        }
        let mut wrong = Vec::new();
        from_file.retain(|name, value: &mut String| {
            // What other options fill in is known later.
            let Some(spec) = known(name).filter(|_| !value.contains('$')) else { return true };
            let Err(why) = spec.check(value) else { return true };
            wrong.push(format!("{name} = {value}: {why}; {} counts", spec.default()));
            false
        });
        Self {
            wrong,
            entity_type: entity_type.to_owned(),
            entity_id: entity_id.to_owned(),
            cluster: "ceph".to_owned(),
            host: host.to_owned(),
            pid,
            layers: BTreeMap::from([(Source::File, from_file)]),
        }
    }

    /// The same for a cluster that is not called `ceph`: what `$cluster` is filled in with.
    #[must_use]
    pub fn with_cluster(mut self, cluster: &str) -> Self {
        cluster.clone_into(&mut self.cluster);
        self
    }

    /// The cluster's name, `ceph` where nobody said another.
    #[must_use]
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// The same with another process's id for `$pid`.
    #[must_use]
    pub fn with_pid(mut self, pid: u32) -> Self {
        self.pid = pid;
        self
    }

    /// Sets an option in a layer after checking that it exists and the value fits.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub fn set(&mut self, source: Source, name: &str, value: &str) -> Result<(), String> {
        let name = normalize(name);
        let spec = known(&name).ok_or_else(|| format!("unrecognized config option '{name}'"))?;
        spec.check(value).map_err(|why| format!("{name}: {why}"))?;
        self.layers.entry(source).or_default().insert(name, value.to_owned());
        Ok(())
    }

    /// Removes an option from a layer.
    pub fn unset(&mut self, source: Source, name: &str) {
        self.layers.entry(source).or_default().remove(&normalize(name));
    }

    /// Replaces the monitors' layer. Returns the names this binary does not know.
    pub fn set_mon_layer(&mut self, values: BTreeMap<String, String>) -> Vec<String> {
        let values: BTreeMap<_, _> = values.into_iter().map(|(k, v)| (normalize(&k), v)).collect();
        let unknown = values.keys().filter(|k| known(k).is_none()).cloned().collect();
        self.layers.insert(Source::Mon, values);
        unknown
    }

    /// The option's value: of its type, with variables filled in. A value that does not fit was refused
    /// when it was set; where a variable made it so, the default counts.
    #[must_use]
    pub fn get<K: Kind>(&self, key: Key<K>) -> K::Value {
        key.parse(&self.text(key.name())).unwrap_or_else(|| key.default())
    }

    /// Whether somebody gave it a value.
    #[must_use]
    pub fn is_set<K>(&self, key: Key<K>) -> bool {
        self.raw(key.name()).is_some_and(|(_, source)| source != Source::Default)
    }

    /// The value as written, before variables are filled in, and its source. The layers
    /// are asked from the last to the first. `name` is what an operator wrote: programs have keys.
    #[must_use]
    pub fn raw(&self, name: &str) -> Option<(&str, Source)> {
        let name = normalize(name);
        for (source, layer) in self.layers.iter().rev() {
            if let Some(value) = layer.get(&name) {
                return Some((value, *source));
            }
        }
        known(&name).map(|spec| (spec.default(), Source::Default))
    }

    /// The text of the option that an operator named, with its variables filled in; empty for an unknown
    /// option.
    #[must_use]
    pub fn text(&self, name: &str) -> String {
        self.expand(self.raw(name).map_or("", |(v, _)| v))
    }

    /// Every option somebody gave a value, with the winning value and its source.
    pub fn overridden(&self) -> impl Iterator<Item = (String, String, Source)> + '_ {
        let names: std::collections::BTreeSet<&String> =
            self.layers.values().flat_map(BTreeMap::keys).collect();
        names.into_iter().filter_map(|name| {
            let (value, source) = self.raw(name)?;
            Some((name.clone(), self.expand(value), source))
        })
    }

    /// Every known option with its value in force.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, String)> + '_ {
        all_known().map(|option| (option.name(), self.text(option.name())))
    }

    /// Options of this kind of daemon that somebody gave a value and nothing here obeys.
    pub fn without_effect(&self) -> impl Iterator<Item = &'static str> + '_ {
        let names: std::collections::BTreeSet<&String> =
            self.layers.values().flat_map(BTreeMap::keys).collect();
        let options = names.into_iter().filter_map(|name| known(name));
        let idle = options.filter(|option| option.effect() == Effect::None);
        idle.filter(|option| self.concerns(option.name())).map(|option| option.name())
    }

    /// Whether an option is for this kind of daemon, or for all.
    fn concerns(&self, name: &str) -> bool {
        const KINDS: [&str; 5] = ["mon", "osd", "mds", "mgr", "rgw"];
        match name.split('_').next() {
            Some("bluestore" | "bluefs" | "rocksdb" | "filestore" | "journal") => {
                self.entity_type == "osd"
            }
            Some(kind) if KINDS.contains(&kind) => kind == self.entity_type,
            _ => true,
        }
    }

    /// Names in the file's sections that this binary does not know.
    #[must_use]
    pub fn unknown(&self) -> Vec<String> {
        let file = self.layers.get(&Source::File);
        file.into_iter().flatten().map(|(k, _)| k).filter(|k| known(k).is_none()).cloned().collect()
    }

    /// Values in the file that do not fit their options, each in a sentence: they were left out.
    #[must_use]
    pub fn wrong(&self) -> &[String] {
        &self.wrong
    }

    /// Fills in `$name`, `${name}`: the metavariables `cluster`, `type`, `id`, `name`,
    /// `host`, `pid`, and other options.
    #[must_use]
    pub fn expand(&self, value: &str) -> String {
        let mut budget = EXPANSIONS_MAX;
        self.expand_within(value, 0, &mut budget)
    }

    /// `budget` bounds the work of the whole expansion, since options may name each other
    /// many times: what is left once it is used up stays as it is written.
    fn expand_within(&self, value: &str, depth: u32, budget: &mut u32) -> String {
        if depth > DEPTH_MAX || *budget == 0 || !value.contains('$') {
            return value.to_owned();
        }
        let mut out = String::with_capacity(value.len());
        let mut rest = value;
        while let Some(at) = rest.find('$') {
            out.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            let braced = rest.starts_with('{');
            let word = if braced { &rest[1..] } else { rest };
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let len = word.find(|c| !is_name(c)).unwrap_or(word.len());
            let (name, closed) = (&word[..len], !braced || word[len..].starts_with('}'));
            let filled = match name {
                _ if name.is_empty() || !closed || *budget == 0 => None,
                "cluster" => Some(self.cluster.clone()),
                "type" => Some(self.entity_type.clone()),
                "id" => Some(self.entity_id.clone()),
                "name" => Some(format!("{}.{}", self.entity_type, self.entity_id)),
                "host" => Some(self.host.clone()),
                "pid" => Some(self.pid.to_string()),
                other => self.raw(other).map(|(v, _)| {
                    *budget -= 1;
                    self.expand_within(v, depth + 1, budget)
                }),
            };
            match filled {
                Some(text) => {
                    out.push_str(&text);
                    rest = &word[len + usize::from(braced)..];
                }
                None => out.push('$'),
            }
        }
        out.push_str(rest);
        out
    }
}

#[cfg(test)]
mod tests {
    /// A value in the file that does not fit is told, and the default counts.
    #[test]
    fn wrong_values_are_told() {
        let text = "[global]\nosd pool default size = three\nosd scrub begin hour = 24\n\
                    osd max backfills = 2\nosd mclock profile = fast\n";
        let file = ConfFile::parse(text).unwrap();
        let config = Config::new(&file, "osd", "0", "vm", 1);
        assert_eq!(config.wrong().len(), 3, "{:?}", config.wrong());
        assert!(config.wrong().iter().any(|w| w.starts_with("osd_pool_default_size = three")));
        assert_eq!(config.get(key::OSD_POOL_DEFAULT_SIZE), 3);
        assert_eq!(config.get(key::OSD_MAX_BACKFILLS), 2);
        assert!(!config.is_set(key::OSD_SCRUB_BEGIN_HOUR));
    }

    use super::*;

    const FILE: &str = "\
; a comment
[global]
    fsid = 6b29fc40-ca47-1067-b31d-00dd010662da   # behind a value
    mon host = [v2:127.0.0.1:3300,v1:127.0.0.1:6789]
    log-file = /var/log/$name.log
[osd]
    osd data = /data/$cluster-$id
    osd memory target = 1Gi
[osd.3]
    osd_data = \"/fast/${id}x\"
    frobnicate = 7
";

    #[test]
    fn sections_names_and_variables() {
        let file = ConfFile::parse(FILE).unwrap();
        let osd3 = Config::new(&file, "osd", "3", "h", 1);
        assert_eq!(osd3.text("osd data"), "/fast/3x");
        assert_eq!(osd3.text("log_file"), "/var/log/osd.3.log");
        assert_eq!(osd3.get(key::OSD_MEMORY_TARGET), 1 << 30);
        assert_eq!(osd3.unknown(), ["frobnicate"]);
        assert_eq!(osd3.raw("osd_data").unwrap().1, Source::File);
        let osd4 = Config::new(&file, "osd", "4", "h", 1);
        assert_eq!(osd4.text("osd-data"), "/data/ceph-4");
        assert_eq!(osd4.text("mon_host"), "[v2:127.0.0.1:3300,v1:127.0.0.1:6789]");
        assert!(osd4.unknown().is_empty());
    }

    #[test]
    fn layers_win_in_order() {
        let file = ConfFile::parse("[global]\ndebug ms = 1\n").unwrap();
        let mut config = Config::new(&file, "mon", "a", "h", 1);
        let mon =
            BTreeMap::from([("debug_ms".to_owned(), "5".to_owned()), ("nope".into(), "1".into())]);
        assert_eq!(config.set_mon_layer(mon), ["nope"]);
        assert_eq!(config.text("debug_ms"), "1", "the file is above the monitors' database");
        config.set(Source::Override, "debug_ms", "20").unwrap();
        assert_eq!(config.text("debug_ms"), "20");
        assert!(config.set(Source::Override, "nope", "1").unwrap_err().contains("unrecognized"));
        assert!(config.set(Source::Override, "osd_max_backfills", "x").is_err());
    }

    /// Options that nothing obeys are told to the daemons that they are for; those of clients to nobody.
    #[test]
    fn options_without_effect_are_told() {
        let text = "[global]\nosd op num shards = 4\nmon clean pg upmaps per chunk = 3\nrbd cache = true\n\
                    ms dispatch throttle bytes = 7\nosd memory target = 1G\n";
        let file = ConfFile::parse(text).unwrap();
        let osd = Config::new(&file, "osd", "0", "h", 1);
        let told: Vec<&str> = osd.without_effect().collect();
        assert_eq!(told, ["ms_dispatch_throttle_bytes", "osd_op_num_shards"]);
        assert!(osd.unknown().is_empty());
        assert_eq!(osd.text("osd_op_num_shards"), "4");
        assert_eq!(osd.text("osd_op_num_shards_hdd"), "1", "upstream's default");
    }

    #[test]
    fn variables_do_not_loop() {
        let file = ConfFile::parse("[global]\nrun dir = $run_dir/$keyring\nkeyring = ${run_dir\n")
            .unwrap();
        let config = Config::new(&file, "mon", "a", "h", 1);
        assert!(!config.text("run_dir").is_empty());
        assert_eq!(config.text("keyring"), "${run_dir");
        let many = "$run_dir".repeat(12);
        let file = ConfFile::parse(&format!("[global]\nrun dir = {many}\n")).unwrap();
        let config = Config::new(&file, "mon", "a", "h", 1);
        assert!(config.text("run_dir").len() < 1 << 16, "the work is bounded");
    }
}
