//! Commands of administrators. What is known of an inode is what is in memory: none reads it from
//! disk, as on a stock server.
//!
//! Source: the peer's `MDSRank::handle_asok_command`, `MDSDaemon::set_up_admin_socket`.

mod cache;
mod dump;
mod frags;
mod ops;
mod scrub;
mod sessions;

use bytes::Bytes;
use maps::fs::inos;
use serde_json::{Value, json};
use types::{Errno, Ino};

use crate::rank::Rank;
use crate::{AskId, Effect};

/// What [`crate::Mds::on_command`] answers: prefix, arguments as `name:CephType`, with `*` where there may be several, help, rights.
pub const COMMANDS: &[(&str, &str, &str, &str)] = &[
    (
        "session ls",
        "filters:CephString*? cap_dump:CephBool?",
        "List client sessions based on a filter",
        "r",
    ),
    (
        "client ls",
        "filters:CephString*? cap_dump:CephBool?",
        "List client sessions based on a filter",
        "r",
    ),
    ("session evict", "filters:CephString*", "Evict client session(s) based on a filter", "rw"),
    ("client evict", "filters:CephString*", "Evict client session(s) based on a filter", "rw"),
    (
        "session config",
        "client_id:CephInt option:CephString value:CephString?",
        "Config a CephFS client session",
        "rw",
    ),
    (
        "client config",
        "client_id:CephInt option:CephString value:CephString?",
        "Config a CephFS client session",
        "rw",
    ),
    ("flush journal", "", "Flush the journal to the tree", "rw"),
    ("flush_path", "path:CephString", "flush an inode (and its dirfrags)", "rw"),
    ("dump inode", "number:CephInt", "dump inode by inode number", "r"),
    ("dump tree", "root:CephString depth:CephInt?", "dump metadata cache for subtree", "r"),
    ("dump dir", "path:CephString dentry_dump:CephBool?", "dump directory by path", "r"),
    ("dump stray", "", "dump stray folder content", "r"),
    ("dump snaps", "server:CephBool?", "dump snapshots", "r"),
    (
        "dump cache",
        "path:CephString? timeout:CephInt?",
        "dump metadata cache (optionally to a file)",
        "r",
    ),
    ("dump loads", "depth:CephInt?", "dump metadata loads", "r"),
    ("openfiles ls", "", "List the opening files and their caps", "r"),
    ("export dir", "path:CephString rank:CephInt", "migrate a subtree to named MDS", "rw"),
    ("dump_export_states", "", "dump export states", "r"),
    ("get subtrees", "", "Return the subtree map", "r"),
    ("dirfrag ls", "path:CephString", "List fragments in directory", "r"),
    (
        "dirfrag split",
        "path:CephString frag:CephString bits:CephInt",
        "Fragment directory by path",
        "rw",
    ),
    ("dirfrag merge", "path:CephString frag:CephString", "De-fragment directory by path", "rw"),
    (
        "scrub start",
        "path:CephString scrubops:CephChoices=force|recursive|repair|scrub_mdsdir*? tag:CephString?",
        "scrub and inode and output results",
        "rw",
    ),
    (
        "scrub_path",
        "path:CephString scrubops:CephChoices=force|recursive|repair*? tag:CephString?",
        "scrub an inode and output results",
        "rw",
    ),
    ("tag path", "path:CephString tag:CephString", "Apply scrub tag recursively", "rw"),
    ("scrub abort", "", "Abort in progress scrub operations(s)", "rw"),
    ("scrub pause", "", "Pause in progress scrub operations(s)", "rw"),
    ("scrub resume", "", "Resume paused scrub operations(s)", "rw"),
    ("scrub status", "", "Status of scrub operations(s)", "r"),
    ("scrub purge_status", "tag:CephString", "Purge status of scrub tag|all", "rw"),
    ("damage ls", "", "List detected metadata damage", "r"),
    ("damage rm", "damage_id:CephInt", "Remove a damage table entry", "rw"),
    ("ops", "", "show the ops currently in flight", "r"),
    ("dump_ops_in_flight", "", "show the ops currently in flight", "r"),
    ("dump_blocked_ops", "", "show the blocked ops currently in flight", "r"),
    ("dump_blocked_ops_count", "", "show the count of blocked ops currently in flight", "r"),
    ("dump_historic_ops", "", "show recent ops", "r"),
    ("dump_historic_ops_by_duration", "", "show recent ops, sorted by op duration", "r"),
    ("op get", "id:CephString", "get op", "r"),
    ("op kill", "id:CephString", "kill op", "rw"),
    ("cache status", "", "show cache status", "r"),
    ("perf dump", "logger:CephString? counter:CephString?", "dump perfcounters value", "r"),
    ("perf schema", "logger:CephString? counter:CephString?", "dump perfcounters schema", "r"),
    ("perf reset", "var:CephString", "perf reset <name>: perf reset all or one", "rw"),
    ("counter dump", "", "dump all labeled and non-labeled counters and their values", "r"),
    ("counter schema", "", "dump all labeled and non-labeled counters schemas", "r"),
    (
        "cache drop",
        "timeout:CephInt?",
        "trim cache and optionally request client to release all caps and flush the journal",
        "rw",
    ),
    ("force_readonly", "", "Force MDS to read-only mode", "rw"),
];

/// What a command says: a value, or a sentence without an error.
enum Said {
    Value(Value),
    Words(String),
    /// Text that is the output itself.
    Text(String),
}

type Done = Result<Said, (Errno, String)>;

/// A command that is answered once everything is written back.
#[derive(Debug)]
pub(crate) enum Flush {
    /// `flush journal`, `flush_path`.
    Journal(AskId),
    /// `cache drop`, since when, and until when it waits (ms); with what clients were asked for.
    Drop { ask: AskId, since_ms: u64, until_ms: u64, recalled: usize },
}

fn fail<T>(errno: Errno, why: impl Into<String>) -> Result<T, (Errno, String)> {
    Err((errno, why.into()))
}

/// A number that a client may have sent as one or as text.
fn int(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.parse().ok())
}

impl Rank {
    pub fn on_command(&mut self, ask: AskId, command: &Value) {
        let prefix = command["prefix"].as_str().unwrap_or_default();
        let path = || command["path"].as_str().unwrap_or_default();
        let answer = match prefix {
            "session ls" | "client ls" => self.session_ls(command),
            "session evict" | "client evict" => self.session_evict(command),
            "session config" | "client config" => self.session_config(command),
            "flush journal" => return self.flushes.push(Flush::Journal(ask)),
            "flush_path" if self.cached(path()).is_none() => {
                return self.say(ask, Errno::NOENT.0, &json!({"message": "", "return_code": -2}));
            }
            "flush_path" => return self.flushes.push(Flush::Journal(ask)),
            "dump inode" => self.dump_inode(command),
            "dump tree" => self.dump_tree(command),
            "dump dir" => self.dump_dir(command),
            "dump stray" => Ok(self.dump_stray()),
            "dump snaps" => Ok(self.dump_snaps(command["server"].as_bool().unwrap_or(false))),
            "dump cache" => self.dump_cache(command),
            "dump loads" => self.dump_loads(command),
            "openfiles ls" => self.openfiles_ls(),
            "export dir" => {
                // As a stock server with one rank, which does not say why.
                let rs = "this file system has one rank: there is none to export to".to_owned();
                let output = "{\n    \"return_code\": -2\n}".into();
                return self.fx.push(Effect::Answer { ask, r: 0, rs, output });
            }
            // One rank exports nothing.
            "dump_export_states" => Ok(Said::Value(json!([]))),
            "get subtrees" => Ok(self.subtrees()),
            "dirfrag ls" => self.dirfrag_ls(path()),
            "dirfrag split" => self.dirfrag_split(command),
            "dirfrag merge" => self.dirfrag_merge(command),
            "scrub start" | "scrub_path" => return self.on_scrub_start(ask, command),
            "tag path" => return self.on_tag_path(ask, command),
            "scrub abort" => return self.on_scrub_abort(ask),
            "scrub pause" => return self.on_scrub_pause(ask),
            "scrub resume" => Ok(Said::Value(json!({"return_code": self.scrub_resume().0}))),
            "scrub status" => Ok(Said::Value(self.scrub_status())),
            "scrub purge_status" => self.scrub_purge_status(command),
            "damage ls" => Ok(self.damage_ls()),
            "damage rm" => self.damage_rm(command),
            "ops" | "dump_ops_in_flight" => Ok(self.ops_in_flight()),
            "dump_blocked_ops" => Ok(self.blocked_ops()),
            "dump_blocked_ops_count" => Ok(self.blocked_count()),
            "dump_historic_ops" => Ok(self.historic(false)),
            "dump_historic_ops_by_duration" => Ok(self.historic(true)),
            "op get" => self.op_get(command),
            "op kill" => self.op_kill(command),
            "perf dump" | "perf schema" | "counter dump" | "counter schema" => {
                let word = |name: &str| command[name].as_str();
                let groups = self.counters();
                let told = metrics::answer(prefix, &groups, word("logger"), word("counter"));
                Ok(Said::Value(told.unwrap_or_default()))
            }
            "perf reset" => {
                self.counted.reset();
                let what = command["var"].as_str().unwrap_or("all");
                Ok(Said::Value(json!({"success": format!("perf reset {what}")})))
            }
            "cache status" => Ok(Said::Value(self.cache_status())),
            "cache drop" => match self.cache_drop(ask, command) {
                Ok(()) => return,
                Err(e) => Err(e),
            },
            "force_readonly" => {
                self.read_only.get_or_insert_with(|| "an administrator wished so".to_owned());
                Ok(Said::Words(String::new()))
            }
            _ => fail(Errno::NOSYS, format!("unknown command '{prefix}'")),
        };
        match answer {
            Ok(Said::Value(value)) => self.say(ask, 0, &value),
            Ok(Said::Words(rs)) => self.say_words(ask, 0, rs),
            Ok(Said::Text(text)) => {
                let (rs, output) = (String::new(), text.into());
                self.fx.push(Effect::Answer { ask, r: 0, rs, output });
            }
            Err((e, rs)) => self.say_words(ask, e.0, rs),
        }
    }

    fn say_words(&mut self, ask: AskId, r: i32, rs: String) {
        self.fx.push(Effect::Answer { ask, r, rs, output: Bytes::new() });
    }

    fn say(&mut self, ask: AskId, r: i32, value: &Value) {
        let output = serde_json::to_string_pretty(value).unwrap_or_default().into();
        self.fx.push(Effect::Answer { ask, r, rs: String::new(), output });
    }

    /// The inode of a path, as far as it is in memory: `/a/b`, `~mds0`.
    fn cached(&self, path: &str) -> Option<Ino> {
        let (mut at, rest) = match path.strip_prefix("~mds") {
            Some(rest) => {
                let (rank, rest) = rest.split_once('/').unwrap_or((rest, ""));
                (inos::mds_dir(rank.parse().ok()?), rest)
            }
            None => (inos::ROOT, path),
        };
        for name in rest.split('/').filter(|name| !name.is_empty()) {
            at = self.tree.lookup(at, name.as_bytes()).ok()??.link.ino();
        }
        self.tree.node(at).map(|_| at)
    }

    fn cache_status(&self) -> Value {
        json!({"pool": {"items": self.tree.nodes.len(), "bytes": self.cache_bytes()}})
    }

    /// Asks clients for all that they do not use, writes everything back, drops what nobody uses.
    fn cache_drop(&mut self, ask: AskId, command: &Value) -> Result<(), (Errno, String)> {
        let timeout = match &command["timeout"] {
            Value::Null => 0,
            given => match int(given).and_then(|t| u64::try_from(t).ok()) {
                Some(secs) => secs,
                None => return fail(Errno::INVAL, "timeout is a number of seconds from 0"),
            },
        };
        let recalled = self.recall_all();
        let since_ms = self.world.ms();
        let until_ms = if timeout == 0 { u64::MAX } else { since_ms + timeout * 1000 };
        self.flushes.push(Flush::Drop { ask, since_ms, until_ms, recalled });
        Ok(())
    }

    /// Answers commands that waited for everything to be written back.
    pub fn end_flushes(&mut self) {
        let (clean, now) = (self.is_clean(), self.world.ms());
        let (done, left): (Vec<Flush>, Vec<Flush>) = std::mem::take(&mut self.flushes)
            .into_iter()
            .partition(|f| clean || matches!(f, Flush::Drop { until_ms, .. } if now >= *until_ms));
        self.flushes = left;
        for flush in done {
            match flush {
                Flush::Journal(ask) => self.say(ask, 0, &json!({"message": "", "return_code": 0})),
                Flush::Drop { ask, since_ms, recalled, .. } => {
                    let before = self.tree.nodes.len();
                    // What is below goes first, then what held it.
                    let mut left = usize::MAX;
                    while self.tree.nodes.len() < left {
                        left = self.tree.nodes.len();
                        self.drop_unused(0);
                    }
                    let (r, message) = if clean { (0, "") } else { (-110, "timed out") };
                    let value = json!({
                        "client_recall": {"return_code": 0, "message": "(0) Success", "recalled": recalled},
                        "flush_journal": {"return_code": r, "message": message},
                        "trim_cache": {"trimmed": before - self.tree.nodes.len()},
                        "cache": self.cache_status(),
                        "duration": (now - since_ms) as f64 / 1000.0,
                    });
                    self.say(ask, 0, &value);
                }
            }
        }
    }
}
