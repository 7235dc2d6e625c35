//! Every command the monitors take, and the json that tells clients about them.

mod crush;
mod fs;
mod mgr;
mod mon;
mod osd;
mod pool;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde_json::{Map, Value, json};

use crate::{Args, Sig};

/// A row of a table: signature, module, permissions, flags, help.
type Entry = (&'static str, &'static str, &'static str, u32, &'static str);

/// A row of a table.
const fn e(
    sig: &'static str,
    module: &'static str,
    perm: &'static str,
    flags: u32,
    help: &'static str,
) -> Entry {
    (sig, module, perm, flags, help)
}

/// How a command is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags(pub u32);

impl Flags {
    /// Answered by the monitor that was asked.
    pub const NO_FORWARD: Self = Self(1);
    /// Still works; not shown.
    pub const DEPRECATED: Self = Self(4);
    /// The peer's manager answers it. Here the monitors do, and clients are not told.
    pub const MGR: Self = Self(8);
    /// Clients repeat it.
    pub const POLL: Self = Self(16);
    /// Not shown.
    pub const HIDDEN: Self = Self(32);
    /// Its arguments hold secrets: logs show no more of it than [`Command::shown`]. Ours alone;
    /// clients are not told.
    pub const SECRET: Self = Self(1 << 16);

    /// Whether all bits of `other` are set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A command.
#[derive(Clone, Debug)]
pub struct Command {
    /// What clients send as `prefix`.
    pub prefix: String,
    /// Its words and arguments.
    pub sig: Sig,
    /// The service whose caps it needs: `osd`, `auth`, ...
    pub module: &'static str,
    /// What it needs there: letters of `rwx`.
    pub perm: &'static str,
    /// How it is offered.
    pub flags: Flags,
    /// One line for `ceph --help`.
    pub help: &'static str,
}

/// All commands, in the order in which clients are told.
#[must_use]
pub fn commands() -> &'static [Command] {
    static ALL: OnceLock<Vec<Command>> = OnceLock::new();
    ALL.get_or_init(|| {
        let tables = [mon::TABLE, osd::TABLE, pool::TABLE, crush::TABLE, mgr::TABLE, fs::TABLE];
        let rows = tables.into_iter().flatten();
        // Every row parses: a test reads them all.
        rows.filter_map(|(text, module, perm, flags, help)| {
            let sig = Sig::parse(text)?;
            let flags = Flags(*flags);
            Some(Command { prefix: sig.prefix(), sig, module, perm, flags, help })
        })
        .collect()
    })
}

impl Command {
    /// The service whose caps it needs: `osd`, `auth`, ...
    #[must_use]
    pub const fn module(&self) -> &'static str {
        self.module
    }

    /// What it needs there: letters of `rwx`.
    #[must_use]
    pub const fn perm(&self) -> &'static str {
        self.perm
    }

    /// What logs may show of the command with these arguments, where it holds secrets: its
    /// name, and whose or which value it is. `None`: all of it.
    #[must_use]
    pub fn shown(&self, args: &Args) -> Option<String> {
        const OPEN: [&str; 5] = ["key", "name", "entity", "who", "var"];
        if !self.flags.has(Flags::SECRET) {
            return None;
        }
        let all = args.strings();
        let given = OPEN.iter().filter_map(|name| Some(format!(", {name}={}", all.get(*name)?)));
        Some(format!("{{prefix={}{}}}", self.prefix, given.collect::<String>()))
    }

    /// The module of the peer's manager that answers it, as caps name it (`allow module
    /// rbd_support rw`); `None` for what the manager itself or a monitor answers.
    #[must_use]
    pub fn manager_module(&self) -> Option<&'static str> {
        const MODULES: &[(&str, &str)] = &[
            ("balancer", "balancer"),
            ("crash", "crash"),
            ("dashboard", "dashboard"),
            ("fs status", "status"),
            ("fs clone", "volumes"),
            ("fs quiesce", "volumes"),
            ("fs subvolume", "volumes"),
            ("fs subvolumegroup", "volumes"),
            ("fs volume", "volumes"),
            ("healthcheck", "prometheus"),
            ("iostat", "iostat"),
            ("orch", "orchestrator"),
            ("osd pool autoscale-status", "pg_autoscaler"),
            ("osd pool get noautoscale", "pg_autoscaler"),
            ("osd pool set noautoscale", "pg_autoscaler"),
            ("osd pool unset noautoscale", "pg_autoscaler"),
            ("osd status", "status"),
            ("progress", "progress"),
            ("prometheus", "prometheus"),
            ("rbd", "rbd_support"),
            ("telemetry", "telemetry"),
        ];
        if !self.flags.has(Flags::MGR) {
            return None;
        }
        let begins = |words: &str| {
            self.prefix
                .strip_prefix(words)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        };
        MODULES.iter().find(|(words, _)| begins(words)).map(|(_, module)| *module)
    }
}

/// Whether a module answers the command with this prefix that runs beside the monitors' role, in the
/// manager's process or in a thread of its own; the role answers all others.
#[must_use]
pub fn runs_in_module(prefix: &str) -> bool {
    match prefix.split_once(' ') {
        Some(("rbd" | "prometheus" | "healthcheck" | "dashboard", _)) => true,
        Some(("fs", _)) => is_of_volumes(prefix),
        _ => false,
    }
}

/// Whether it is about volumes, subvolumes and their groups, which the manager's process alone serves.
#[must_use]
pub fn is_of_volumes(prefix: &str) -> bool {
    const BEGINS: [&str; 5] =
        ["fs volume ", "fs subvolume ", "fs subvolumegroup ", "fs clone ", "fs quiesce"];
    BEGINS.iter().any(|words| prefix.starts_with(words)) && prefix != "fs volume ls"
}

/// The command a client means.
#[must_use]
pub fn find(args: &Args) -> Option<&'static Command> {
    find_prefix(args.prefix())
}

/// The command with this prefix.
#[must_use]
pub fn find_prefix(prefix: &str) -> Option<&'static Command> {
    static BY_PREFIX: OnceLock<BTreeMap<&'static str, &'static Command>> = OnceLock::new();
    let index = BY_PREFIX.get_or_init(|| {
        let mut index = BTreeMap::new();
        for command in commands() {
            index.entry(command.prefix.as_str()).or_insert(command);
        }
        index
    });
    index.get(prefix).copied()
}

/// The answer to `get_command_descriptions`. Commands of the peer's manager are offered as
/// the monitors' own, so that clients ask us directly. `quincy`: the client has the feature
/// `SERVER_QUINCY` (see [`Sig::to_json`]).
#[must_use]
pub fn descriptions(quincy: bool) -> &'static str {
    static TEXT: [OnceLock<String>; 2] = [const { OnceLock::new() }; 2];
    TEXT[usize::from(quincy)].get_or_init(|| {
        let mut out = Map::new();
        for (i, command) in commands().iter().enumerate() {
            let flags = command.flags.0 & !(Flags::MGR.0 | Flags::POLL.0 | Flags::SECRET.0);
            let entry = json!({
                "sig": command.sig.to_json(quincy),
                "help": command.help,
                "module": command.module,
                "perm": command.perm,
                "flags": flags,
            });
            out.insert(format!("cmd{i:03}"), entry);
        }
        Value::Object(out).to_string()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Word;

    #[test]
    fn every_row_is_well_formed() {
        let rows = [mon::TABLE, osd::TABLE, pool::TABLE, crush::TABLE, mgr::TABLE, fs::TABLE];
        let mut count = 0;
        for (text, module, perm, _, help) in rows.into_iter().flatten() {
            let sig = Sig::parse(text).unwrap_or_else(|| panic!("{text}"));
            assert!(matches!(sig.words.first(), Some(Word::Literal(_))), "{text}");
            assert!(!module.is_empty(), "{text}");
            assert!(!perm.is_empty() && perm.chars().all(|c| "rwx".contains(c)), "{text}");
            assert!(!help.is_empty(), "{text} has no help");
            count += 1;
        }
        assert_eq!(commands().len(), count);
    }

    /// Every command that takes a value which may be a password says so; logs show the name alone.
    #[test]
    fn secrets_are_not_shown() {
        for prefix in ["config-key set", "config-key put", "config set"] {
            let cmd = format!(
                r#"{{"prefix":"{prefix}","key":"k","name":"n","val":"S3","value":"S3","else":"S3"}}"#
            );
            let args = Args::parse(&[cmd]).unwrap();
            let shown = find(&args).unwrap().shown(&args).unwrap();
            assert_eq!(shown, format!("{{prefix={prefix}, key=k, name=n}}"));
        }
        for command in commands() {
            let takes =
                command.sig.args().any(|a| ["val", "value", "injected_args"].contains(&a.name));
            let open = [
                "osd pool set",
                "osd pool set-quota",
                "osd crush set-tunable",
                "osd pool application set",
                "mon set",
                "fs set",
                "fs flag set",
                "fs subvolume metadata set",
                "fs subvolume snapshot metadata set",
                "fs required_client_features",
                "mds freeze",
            ];
            let secret = command.flags.has(Flags::SECRET);
            assert_eq!(
                takes && !open.contains(&command.prefix.as_str()),
                secret,
                "{}",
                command.prefix
            );
        }
        assert!(!descriptions(true).contains("65536"));
    }

    /// Whose caps a manager's command takes is said for each: a module's name, or that the
    /// manager answers it itself.
    #[test]
    fn modules_of_the_manager() {
        const ITS_OWN: [&str; 5] =
            ["config show", "config show-with-defaults", "device info", "device ls", "mgr digest"];
        for command in commands() {
            let at_mgr = command.flags.has(Flags::MGR) && command.module == "mgr";
            let own = ITS_OWN.contains(&command.prefix.as_str());
            assert_eq!(command.manager_module().is_some(), at_mgr && !own, "{}", command.prefix);
        }
        assert_eq!(find_prefix("rbd task list").unwrap().manager_module(), Some("rbd_support"));
        assert_eq!(find_prefix("pg dump").unwrap().manager_module(), None);
    }

    #[test]
    fn finds_by_prefix() {
        assert_eq!(find_prefix("osd pool create").unwrap().perm, "rw");
        assert_eq!(find_prefix("status").unwrap().module, "mon");
        assert!(find_prefix("osd pool").is_none());
        let text: Value = serde_json::from_str(descriptions(true)).unwrap();
        assert_eq!(text.as_object().unwrap().len(), commands().len());
    }
}
