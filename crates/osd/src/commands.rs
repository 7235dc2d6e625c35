//! Commands by `ceph tell osd.N` and over the admin socket: one table for both.
//!
//! Source: the peer's `OSD::final_init`, `common/admin_socket.cc`, `common/ceph_context.cc`.

use bytes::Bytes;
use conf::Source;
use env::{ConnId, Now};
use messages::{Command, CommandReply, Message, Mutation};
use serde_json::{Map, Value, json};
use types::{Denc, Features, HObject, PgId, PoolId, SnapId, UTime};

use crate::backing::{Coll, StoreOp};
use crate::core::Osd;
use crate::outbox::{Effect, Outbox};
use crate::pg::scrub::Order;
use crate::pg::{Pg, Ticket};
use types::{Errno, release};

/// Who waits for a command's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// `tell`: the connection and the command's number.
    Conn(ConnId, u64),
    /// The admin socket.
    Admin(u64),
}

/// A command's result: a sentence for stderr, and the output.
type Done = Result<(String, Value), (Errno, String)>;

/// Name, arguments, help and whether it changes something.
const COMMANDS: &[(&str, &str, &str, &str)] = &[
    (
        "bench",
        "count:CephInt? size:CephInt? object_size:CephInt? object_num:CephInt?",
        "OSD benchmark: write <count> <size>-byte objects(with <obj_size> <obj_num>), (default count=1G default size=4MB). Results in log.",
        "rw",
    ),
    ("cache status", "", "Get OSD caches statistics", "r"),
    ("cls ls", "", "object classes that were uploaded, as this OSD has them", "r"),
    ("compact", "", "compact the object store's own tables; requests are slower meanwhile", "rw"),
    ("config diff", "", "dump diff of current config and default config", "r"),
    ("config get", "var:CephString", "config get <field>: get the config value", "r"),
    ("config help", "var:CephString?", "get config setting schema and descriptions", "r"),
    (
        "config set",
        "var:CephString val:CephString*",
        "config set <field> <val> [<val> ...]: set a config variable",
        "rw",
    ),
    ("config show", "", "dump current config settings", "r"),
    ("config unset", "var:CephString", "config unset <field>: unset a config variable", "rw"),
    ("deep-scrub", "pgid:CephPgid?", "deep scrub pg", "rw"),
    ("dump_blocked_ops", "", "show the blocked ops currently in flight", "r"),
    ("dump_blocked_ops_count", "", "show the count of blocked ops currently in flight", "r"),
    ("dump_blocklist", "", "dump blocklisted clients and times", "r"),
    ("dump_historic_ops", "", "show recent ops", "r"),
    ("dump_historic_slow_ops", "", "show slowest recent ops", "r"),
    ("dump_mempools", "", "get mempool stats", "r"),
    ("dump_ops_in_flight", "", "show the ops currently in flight", "r"),
    ("dump_osd_network", "value:CephInt?", "Dump osd heartbeat network ping times", "r"),
    ("dump_pg_recovery_stats", "", "dump pg recovery statistics", "r"),
    ("dump_recovery_reservations", "", "show recovery reservations", "r"),
    ("dump_scrub_reservations", "", "show scrub reservations", "r"),
    ("dump_scrubs", "", "print scheduled scrubs", "r"),
    ("dump_watchers", "", "show clients which have active watches, and on which objects", "r"),
    ("flush_pg_stats", "", "flush pg stats", "r"),
    ("get_command_descriptions", "", "list available commands", "r"),
    ("get_heap_property", "property:CephString", "get malloc extension heap property", "r"),
    ("get_latest_osdmap", "", "force osd to update the latest map from the mon", "r"),
    ("get_mapped_pools", "", "dump pools whose PG(s) are mapped to this OSD.", "r"),
    ("getomap", "pool:CephPoolname objname:CephObjectname", "output entire object map", "r"),
    ("git_version", "", "get git sha1", "r"),
    ("help", "", "list available commands", "r"),
    (
        "injectargs",
        "injected_args:CephString*",
        "inject configuration arguments into running daemon",
        "rw",
    ),
    ("list_devices", "", "list OSD devices.", "r"),
    (
        "list_unfound",
        "pgid:CephPgid? offset:CephString?",
        "list unfound objects on this pg, perhaps starting at an offset given in JSON",
        "r",
    ),
    ("log dump", "", "dump recent log entries to log file", "rw"),
    ("log flush", "", "flush log entries to log file", "rw"),
    ("objecter_requests", "", "show in-progress osd requests", "r"),
    ("ops", "", "show the ops currently in flight", "r"),
    ("counter dump", "", "dump all labeled and non-labeled counters and their values", "r"),
    ("counter schema", "", "dump all labeled and non-labeled counters schemas", "r"),
    ("perf dump", "logger:CephString? counter:CephString?", "dump perfcounters value", "r"),
    (
        "perf histogram dump",
        "logger:CephString? counter:CephString?",
        "dump perf histogram values",
        "r",
    ),
    (
        "perf reset",
        "var:CephString",
        "perf reset <name>: perf reset all or one perfcounter name",
        "rw",
    ),
    ("perf schema", "", "dump perfcounters schema", "r"),
    (
        "mark_unfound_lost",
        "pgid:CephPgid? mulcmd:CephChoices=revert|delete",
        "mark all unfound objects in this pg as lost, either removing or reverting to a prior version if one is available",
        "rw",
    ),
    (
        "pg",
        "pgid:CephPgid cmd:CephChoices=query|list_unfound|log|mark_unfound_lost|scrub|deep-scrub|repair mulcmd:CephChoices=revert|delete?",
        "act on one pg",
        "r",
    ),
    ("query", "pgid:CephPgid?", "show details of a specific pg", "r"),
    ("rbd perf image", "", "what clients do with each image; counted for a minute", "r"),
    ("repair", "pgid:CephPgid?", "repair pg", "rw"),
    ("reset_pg_recovery_stats", "", "reset pg recovery statistics", "rw"),
    ("scrub", "pgid:CephPgid?", "scrub pg", "rw"),
    ("send_beacon", "", "Send OSD beacon to mon immediately", "r"),
    ("status", "", "high-level status of OSD", "r"),
    ("version", "", "report version of OSD", "r"),
];

/// Signatures in the form that `get_command_descriptions` gives.
fn descriptions() -> Value {
    let mut all = Map::new();
    for (i, (name, args, help, perm)) in COMMANDS.iter().enumerate() {
        let mut sig: Vec<Value> = name.split(' ').map(|w| json!(w)).collect();
        for arg in args.split_whitespace() {
            let (arg_name, kind) = arg.split_once(':').unwrap_or((arg, "CephString"));
            let mut entry = Map::new();
            entry.insert("name".into(), json!(arg_name));
            let (optional, many) = (kind.ends_with('?'), kind.ends_with('*'));
            let kind = kind.trim_end_matches(['?', '*']);
            let (kind, strings) = kind.split_once('=').map_or((kind, None), |(k, s)| (k, Some(s)));
            entry.insert("type".into(), json!(kind));
            if let Some(strings) = strings {
                entry.insert("strings".into(), json!(strings));
            }
            if optional {
                entry.insert("req".into(), json!("false"));
            }
            if many {
                entry.insert("n".into(), json!("N"));
            }
            sig.push(Value::Object(entry));
        }
        let d = json!({ "sig": sig, "help": help, "module": "osd", "perm": perm, "flags": 0 });
        all.insert(format!("cmd{i:03}"), d);
    }
    Value::Object(all)
}

/// Benchmarks under way.
#[derive(Debug, Default)]
pub struct Benches {
    next: u64,
    running: std::collections::BTreeMap<u64, Bench>,
}

#[derive(Debug)]
struct Bench {
    caller: Caller,
    size: u64,
    total: u64,
    objects: u64,
    submitted: u64,
    durable: u64,
    block: Bytes,
    started_ns: u64,
    pretty: bool,
}

/// The one command that needs no more than the right to read images.
const IMAGE_IO: &str = "rbd perf image";

fn is_image_io(command: &str) -> bool {
    let parsed: Option<Map<String, Value>> = serde_json::from_str(command).ok();
    parsed.is_some_and(|args| text(&args, "prefix") == Some(IMAGE_IO))
}

/// Writes of a benchmark on their way at once.
const BENCH_IN_FLIGHT: u64 = 16;

fn text<'a>(args: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    args.get(name).and_then(Value::as_str)
}

fn number(args: &Map<String, Value>, name: &str) -> Option<u64> {
    args.get(name).and_then(|v| v.as_u64().or_else(|| v.as_str()?.parse().ok()))
}

/// EINVAL with a sentence.
fn invalid(why: impl Into<String>) -> (Errno, String) {
    (Errno::INVAL, why.into())
}

/// An argument that may be one word or a list of them.
fn words(args: &Map<String, Value>, name: &str) -> Vec<String> {
    match args.get(name) {
        Some(Value::Array(all)) => {
            all.iter().filter_map(|v| v.as_str().map(str::to_owned)).collect()
        }
        Some(Value::String(one)) => vec![one.clone()],
        _ => Vec::new(),
    }
}

fn render(v: &Value, pretty: bool) -> Bytes {
    match v {
        Value::Null => Bytes::new(),
        Value::String(s) => Bytes::copy_from_slice(s.as_bytes()),
        v => {
            let text = if pretty { serde_json::to_vec_pretty(v) } else { serde_json::to_vec(v) };
            let mut text = text.unwrap_or_default();
            if pretty {
                text.push(b'\n');
            }
            text.into()
        }
    }
}

impl Osd {
    /// A command over the admin socket. The answer is an [`Effect::Admin`] with this `id`.
    pub fn on_admin(&mut self, now: Now, id: u64, command: &str, out: &mut Outbox) {
        self.run_command(now, Caller::Admin(id), command, &Bytes::new(), out);
    }

    pub(crate) fn on_command(
        &mut self,
        now: Now,
        conn: ConnId,
        tid: u64,
        m: &Command,
        out: &mut Outbox,
    ) {
        let caller = Caller::Conn(conn, tid);
        let Some(session) = self.c.sessions.by_conn.get(&conn) else { return };
        let command = m.cmd.iter().map(|b| String::from_utf8_lossy(b)).collect::<String>();
        let known = session.caps.is_allow_all(&session.from)
            || session.caps.reads_images(&session.from) && is_image_io(&command);
        if !known {
            self.c.perf.own.caps_denied += 1;
            tracing::warn!(entity = %session.name, addr = %session.from, "denied: a command");
            answer(caller, Errno::ACCES.0, "access denied".into(), Bytes::new(), out);
            return;
        }
        self.run_command(now, caller, &command, &m.input, out);
    }

    fn run_command(
        &mut self,
        now: Now,
        caller: Caller,
        command: &str,
        _input: &Bytes,
        out: &mut Outbox,
    ) {
        let parsed: Option<Map<String, Value>> = serde_json::from_str(command).ok();
        let Some(args) = parsed else {
            answer(caller, Errno::INVAL.0, "invalid json".into(), Bytes::new(), out);
            return;
        };
        let pretty = !matches!(text(&args, "format"), Some("json"));
        let Some(prefix) = text(&args, "prefix").map(str::trim).filter(|p| !p.is_empty()) else {
            answer(caller, Errno::INVAL.0, "no prefix".into(), Bytes::new(), out);
            return;
        };
        let prefix = prefix.to_owned();
        if prefix == "bench" {
            match self.start_bench(now, caller, &args, pretty) {
                Ok(()) => {}
                Err((e, why)) => answer(caller, e.0, why, Bytes::new(), out),
            }
            return;
        }
        match self.command(now, &prefix, &args, out) {
            Ok((rs, v)) => answer(caller, 0, rs, render(&v, pretty), out),
            Err((e, why)) => answer(caller, e.0, why, Bytes::new(), out),
        }
    }

    fn command(
        &mut self,
        now: Now,
        prefix: &str,
        args: &Map<String, Value>,
        out: &mut Outbox,
    ) -> Done {
        let ok = |v: Value| Ok((String::new(), v));
        match prefix {
            "get_command_descriptions" => ok(descriptions()),
            "help" => ok(Value::Object(
                COMMANDS.iter().map(|(n, _, h, _)| ((*n).to_owned(), json!(h))).collect(),
            )),
            "version" => ok(json!({
                "version": release::NUMBER, "release": release::NAME,
                "release_type": release::TYPE, "implementation": release::IMPLEMENTATION,
            })),
            "status" => ok(self.status()),
            "perf dump" | "perf schema" | "counter dump" | "counter schema" => {
                let (logger, counter) = (text(args, "logger"), text(args, "counter"));
                let told = metrics::answer(prefix, &self.counters(), logger, counter);
                ok(told.unwrap_or_default())
            }
            "perf histogram dump" => ok(self.c.perf.histograms()),
            "perf reset" => {
                self.c.perf.reset();
                let var = text(args, "var").unwrap_or("all");
                ok(json!({ "success": format!("perf reset {var}") }))
            }
            IMAGE_IO => ok(self.c.perf.images.ask(now)),
            "cls ls" => ok(self.c.classes.json()),
            "config show" => {
                let all = self.c.options.all();
                ok(Value::Object(all.map(|(k, v)| (k.to_owned(), json!(v))).collect()))
            }
            "config diff" => {
                let mut diff = Map::new();
                for (name, value, source) in self.c.options.overridden() {
                    let default = conf::known(&name).map_or("", |o| o.default());
                    let v = json!({ "default": default, source.name(): value, "final": value });
                    diff.insert(name, v);
                }
                ok(json!({ "diff": diff }))
            }
            "config get" => {
                let var = text(args, "var").ok_or_else(|| invalid("no variable is named"))?;
                let name = conf::normalize(var);
                if conf::known(&name).is_none() {
                    let why = format!("error getting '{var}': (2) No such file or directory");
                    return Err((Errno::NOENT, why));
                }
                ok(json!({ name.as_str(): self.c.options.text(&name) }))
            }
            "config set" => {
                let var = text(args, "var").ok_or_else(|| invalid("no variable is named"))?;
                let val = words(args, "val").join(" ");
                self.set_option(var, &val)?;
                ok(json!({ "success": "" }))
            }
            "config unset" => {
                let var = text(args, "var").ok_or_else(|| invalid("no variable is named"))?;
                self.c.options.unset(Source::Override, var);
                self.reread_config();
                ok(json!({ "success": "" }))
            }
            "config help" => ok(config_help(text(args, "var"))),
            "injectargs" => self.inject(&words(args, "injected_args").join(" ")),
            "dump_ops_in_flight" | "ops" => ok(self.ops_in_flight(now, 0)),
            "dump_blocked_ops" => ok(self.ops_in_flight(now, self.c.conf.complaint_ms)),
            "dump_historic_ops" | "dump_historic_slow_ops" => ok(self.ops_behind()),
            "dump_blocklist" => {
                let entries = self.c.map.blocklist.iter();
                ok(Value::Array(
                    entries
                        .map(|(a, t)| json!({ "addr": a.to_string(), "until": t.to_string() }))
                        .collect(),
                ))
            }
            "dump_watchers" => ok(self.dump_watchers()),
            "dump_mempools" => ok(self.dump_mempools()),
            "dump_osd_network" => ok(self.dump_osd_network(now, args)),
            "dump_scrub_reservations" => ok(json!({
                "scrubs_local": self.c.slots.scrubs.taken(),
                "scrubs_remote": self.c.slots.scrubs_lent.taken(),
                "osd_max_scrubs": self.c.conf.scrub.max,
            })),
            "dump_recovery_reservations" => ok(self.recovery_reservations(now)),
            "dump_pg_recovery_stats" => {
                let r = self
                    .pgs
                    .values()
                    .fold((0, 0), |a, p| (a.0 + p.recovered.0, a.1 + p.recovered.1));
                ok(json!({ "objects_recovered": r.0, "bytes_recovered": r.1 }))
            }
            "flush_pg_stats" => {
                self.c.reports.on_session();
                self.report(now, out);
                let seq = u64::from(self.c.map.up_from(self.c.id.whoami).0) << 32;
                ok(json!(format!("{seq}\n")))
            }
            "get_latest_osdmap" => {
                out.push(Effect::SubscribeMaps(types::Epoch(self.c.map.epoch.0 + 1)));
                ok(Value::Null)
            }
            "cache status" => {
                let n: usize = self.pgs.values().map(|p| p.obcs.len()).sum();
                ok(json!({ "object_ctx": n }))
            }
            "log flush" | "log dump" => ok(json!({})), // each line is written at once
            "git_version" => ok(json!({ "git_version": release::commit() })),
            "compact" => {
                self.spill(0);
                ok(Value::Null)
            }
            "dump_blocked_ops_count" => {
                let complaint_ms = self.c.conf.complaint_ms;
                let blocked = self.ops_in_flight(now, complaint_ms)["num_blocked_ops"].take();
                ok(json!({ "complaint_time": complaint_ms / 1_000, "num_blocked_ops": blocked }))
            }
            "dump_scrubs" => ok(self.dump_scrubs(now, out)),
            "get_mapped_pools" => {
                let pools = self.pgs.keys().map(|id| id.pg.pool.0);
                ok(json!(pools.collect::<std::collections::BTreeSet<_>>()))
            }
            "list_devices" => ok(devices(&self.c.id.metadata)),
            "objecter_requests" => ok(json!({
                "ops": self.c.copies.json(), "linger_ops": [], "pool_ops": [], "pool_stat_ops": [],
                "statfs_ops": [], "command_ops": [],
            })),
            "reset_pg_recovery_stats" => {
                self.pgs.values_mut().for_each(|pg| pg.recovered = (0, 0));
                ok(Value::Null)
            }
            "send_beacon" => {
                self.send_beacon(out);
                ok(Value::Null)
            }
            "getomap" => self.getomap(args),
            "query" | "list_unfound" | "log" => self.pg_command(prefix, args, now),
            "mark_unfound_lost" => self.mark_unfound_lost(args, now, out),
            "scrub" | "deep-scrub" | "repair" => self.scrub_command(prefix, args, now, out),
            "pg" => {
                let cmd = text(args, "cmd").unwrap_or("query").to_owned();
                if matches!(&*cmd, "scrub" | "deep-scrub" | "repair") {
                    return self.scrub_command(&cmd, args, now, out);
                }
                if cmd == "mark_unfound_lost" {
                    return self.mark_unfound_lost(args, now, out);
                }
                self.pg_command(&cmd, args, now)
            }
            _ => Err(invalid(format!("command not supported: '{prefix}'"))),
        }
    }

    fn set_option(&mut self, var: &str, val: &str) -> Result<(), (Errno, String)> {
        self.c
            .options
            .set(Source::Override, var, val)
            .map_err(|why| (Errno::INVAL, format!("error setting '{var}' to '{val}': {why}")))?;
        self.reread_config();
        Ok(())
    }

    /// `--name value`, `--name=value`, several.
    fn inject(&mut self, text: &str) -> Done {
        let mut said = Vec::new();
        let mut rest = text.split_whitespace().peekable();
        while let Some(word) = rest.next() {
            let Some(name) = word.strip_prefix("--") else {
                return Err(invalid(format!("failed to parse arguments: {text}")));
            };
            let (name, value) = match name.split_once('=') {
                Some((n, v)) => (n, v.to_owned()),
                None => match rest.next_if(|w| !w.starts_with("--")) {
                    Some(v) => (name, v.to_owned()),
                    None => (name, "true".to_owned()),
                },
            };
            self.set_option(name, &value)?;
            said.push(format!("{} = '{value}' ", conf::normalize(name)));
        }
        Ok((said.concat(), Value::Null))
    }

    fn status(&self) -> Value {
        let state = match (self.c.booted, self.c.stopping) {
            (_, true) => "stopping",
            (true, _) => "active",
            (false, _) => "booting",
        };
        json!({
            "cluster_fsid": self.c.id.fsid.to_string(),
            "osd_fsid": self.c.id.uuid.to_string(),
            "whoami": self.c.id.whoami.0,
            "state": state,
            "maps": format!("[{},{}]", self.c.sb.oldest, self.c.sb.newest),
            "oldest_map": self.c.sb.oldest.0,
            "newest_map": self.c.sb.newest.0,
            "num_pgs": self.pgs.len(),
        })
    }

    /// Every counter, with what is looked up only when somebody asks.
    fn counters(&mut self) -> Vec<metrics::Group> {
        let space = crate::report::statfs(&self.c.store.space());
        let ops = self.ops_in_hand();
        let counters = &mut self.c.perf.osd;
        counters.op_wip.0 = ops;
        counters.stat_bytes.0 = space.total;
        counters.stat_bytes_avail.0 = space.available;
        counters.stat_bytes_used.0 = space.total.saturating_sub(space.available);
        self.c.perf.groups()
    }

    /// Who has slots, and how fast work in the background goes; the latter is ours.
    fn recovery_reservations(&self, now: Now) -> Value {
        let c = &self.c;
        let pgs = |slots: &crate::slots::Slots| -> Vec<Value> {
            slots.pgs().map(|pg| json!({ "item": pg.to_string() })).collect()
        };
        let of = |one, other| {
            let mut held = pgs(one);
            held.append(&mut pgs(other));
            json!({ "max_allowed": c.conf.backfills_max, "in_progress": held })
        };
        let rate = c.pace.rate(&c.conf.pace, now);
        json!({
            "local_reservations": of(&c.slots.recoveries, &c.slots.backfills),
            "remote_reservations": of(&c.slots.recoveries_lent, &c.slots.backfills_lent),
            "pace": {
                "clients": c.pace.has_clients(now),
                "bytes_per_sec": rate.is_finite().then_some(rate as u64),
                "slowdown": c.pace.slowdown(),
                "objects": c.recoveries,
                "slowdown_max": c.conf.pace.target,
            },
        })
    }

    /// Heartbeats that take `value` ms and longer, by default as long as health warns of.
    fn dump_osd_network(&self, now: Now, args: &Map<String, Value>) -> Value {
        let c = &self.c;
        let asked = number(args, "value");
        let threshold_us = asked.map_or(c.conf.slow_ping_us, |ms| ms.saturating_mul(1_000));
        let grace_ms = c.conf.heartbeat_grace_ms;
        let pings = c.heartbeats.pings();
        crate::pings::dump(c.id.whoami, &c.map, now, grace_ms, threshold_us, pings)
    }

    /// What is held, by the peer's names of pools: what its store caches and writes, logs with the
    /// requests remembered beyond them, requests in hand, PGs, and the map.
    fn dump_mempools(&self) -> Value {
        let logs = self.pgs.values().map(|pg| pg.log.in_memory());
        let (entries, log_bytes) = logs.fold((0, 0), |a, l| (a.0 + l.0, a.1 + l.1));
        let map = self.c.map.to_bytes_for(self.c.map.canonical_features()).len();
        let missing = self.pgs.values().map(|pg| pg.missing.len()).sum::<usize>();
        let pgs = self.pgs.len() * size_of::<Pg>() + missing * size_of::<HObject>();
        let requests = self.c.load_bytes.bytes();
        let own = [
            ("osd_pglog", entries, log_bytes as u64),
            ("osd", self.pgs.len() + missing, pgs as u64),
            ("osdmap", 1, map as u64),
            ("buffer_anon", self.ops_in_hand() as usize, requests),
        ];
        let (mut pools, mut items, mut bytes) = (Map::new(), 0, 0);
        for (name, n, size) in own.into_iter().chain(self.c.store.memory()) {
            pools.insert(name.to_owned(), json!({ "items": n, "bytes": size }));
            (items, bytes) = (items + n, bytes + size);
        }
        let total = json!({ "items": items, "bytes": bytes });
        json!({ "mempool": { "by_pool": pools, "total": total } })
    }

    /// Scrubs of PGs led here: when the next one is planned, and why it is or is not done now.
    fn dump_scrubs(&mut self, now: Now, out: &mut Outbox) -> Value {
        let led = self.pgs.iter().filter(|(_, pg)| pg.leads).map(|(id, _)| *id);
        let led: Vec<_> = led.collect();
        let cx = self.c.cx(now, out);
        let one = |id| self.pgs.get_mut(&id).map(|pg| pg.scrub_json(&cx));
        Value::Array(led.into_iter().filter_map(one).collect())
    }

    fn dump_watchers(&self) -> Value {
        let mut all = Vec::new();
        for (id, pg) in &self.pgs {
            for (oid, who, cookie, connected) in pg.watches.iter() {
                all.push(json!({
                    "namespace": String::from_utf8_lossy(&oid.nspace),
                    "object": String::from_utf8_lossy(&oid.name),
                    "pg": id.to_string(),
                    "entity_name": { "type": who.kind.name(), "num": who.num },
                    "cookie": cookie,
                    "connected": connected,
                }));
            }
        }
        Value::Array(all)
    }

    fn getomap(&self, args: &Map<String, Value>) -> Done {
        let pool = text(args, "pool").ok_or_else(|| invalid("no pool is named"))?;
        let name = text(args, "objname").ok_or_else(|| invalid("no object is named"))?;
        let (nspace, name) = name.split_once('/').unwrap_or(("", name));
        let id = self
            .c
            .map
            .pool_by_name(pool)
            .or_else(|| pool.parse().ok().map(PoolId))
            .ok_or_else(|| invalid(format!("Invalid pool '{pool}'")))?;
        let bytes = |s: &str| Bytes::copy_from_slice(s.as_bytes());
        let oid = HObject::head(id, bytes(nspace), Bytes::new(), bytes(name));
        let raw = PgId { pool: id, ps: oid.hash };
        let pg = self.c.map.raw_pg_to_pg(raw).ok_or_else(|| invalid("no such pool"))?;
        let home = self.c.spg_of(pg, self.c.id.whoami);
        if !self.pgs.contains_key(&home) {
            return Err((Errno::NOENT, format!("pg {pg} is not here")));
        }
        let mut text = String::new();
        let walked = self.c.store.omap_walk(Coll::Pg(home), &oid, b"", &mut |k, v| {
            text.push_str(&format!("key={} val={}\n", k.escape_ascii(), v.escape_ascii()));
            text.len() < 16 << 20
        });
        walked.map_err(|e| (Errno::IO, e.to_string()))?;
        Ok((String::new(), Value::String(text)))
    }

    fn pg_command(&mut self, what: &str, args: &Map<String, Value>, now: Now) -> Done {
        let id = text(args, "pgid").ok_or_else(|| invalid("no pg is named"))?;
        let id: PgId = id.parse().map_err(|why: &str| invalid(why))?;
        let (me, map) = (self.c.id.whoami, std::sync::Arc::clone(&self.c.map));
        let home = self.c.spg_of(id, self.c.id.whoami);
        let Some(pg) = self.pgs.get_mut(&home) else {
            return Err((Errno::NOENT, format!("i don't have pgid {id}")));
        };
        let v = match what {
            "query" => crate::query::query(pg, me, &map, now),
            "list_unfound" => crate::query::list_unfound(pg, &map),
            "log" => log_json(pg),
            _ => return Err((Errno::OPNOTSUPP, format!("pg {what} is not supported"))),
        };
        Ok((String::new(), v))
    }

    /// `mark_unfound_lost revert|delete`.
    fn mark_unfound_lost(&mut self, args: &Map<String, Value>, now: Now, out: &mut Outbox) -> Done {
        let id = text(args, "pgid").ok_or_else(|| invalid("no pg is named"))?;
        let id: PgId = id.parse().map_err(|why: &str| invalid(why))?;
        let revert = match text(args, "mulcmd") {
            Some("revert") => true,
            Some("delete") => false,
            _ => {
                return Err(invalid("mode must be 'revert' or 'delete'; mark not yet implemented"));
            }
        };
        let home = self.c.spg_of(id, self.c.id.whoami);
        let Some(pg) = self.pgs.get_mut(&home) else {
            return Err((Errno::NOENT, format!("i don't have pgid {id}")));
        };
        let said = pg.mark_unfound_lost(revert, &mut self.c.cx(now, out))?;
        Ok((said, Value::Null))
    }

    /// `scrub`, `deep-scrub`, `repair` of a PG led here.
    fn scrub_command(
        &mut self,
        what: &str,
        args: &Map<String, Value>,
        now: Now,
        out: &mut Outbox,
    ) -> Done {
        let id = text(args, "pgid").ok_or_else(|| invalid("no pg is named"))?;
        let id: PgId = id.parse().map_err(|why: &str| invalid(why))?;
        let home = self.c.spg_of(id, self.c.id.whoami);
        let Some(pg) = self.pgs.get_mut(&home) else {
            return Err((Errno::NOENT, format!("i don't have pgid {id}")));
        };
        if !pg.leads {
            return Err((Errno::AGAIN, format!("Not primary of pg {id}")));
        }
        let order = Order { deep: what != "scrub", repair: what == "repair", required: true };
        pg.ask_scrub(order, &mut self.c.cx(now, out));
        let since = |ns: u64| UTime::from_nanos(ns).to_string();
        let h = self.pgs[&home].info.scrub;
        Ok((String::new(), json!({ "deep": order.deep, "must": true, "stamp": since(h.last_ns) })))
    }

    fn start_bench(
        &mut self,
        now: Now,
        caller: Caller,
        args: &Map<String, Value>,
        pretty: bool,
    ) -> Result<(), (Errno, String)> {
        let total = number(args, "count").unwrap_or(1 << 30);
        let size = number(args, "size").unwrap_or(4 << 20);
        if size == 0 || size > 64 << 20 {
            return Err(invalid("block 'size' values are capped at 64 MiB"));
        }
        let objects = number(args, "object_num").unwrap_or(0).min(1 << 20);
        let space = self.c.store.space();
        if total == 0 || total > space.available / 2 {
            return Err(invalid(format!("'count' is between 1 and {}", space.available / 2)));
        }
        // Not zeros, which a store might leave out.
        let block: Vec<u8> = (0..size).map(|i| (i * 31 + (i >> 8) * 7) as u8).collect();
        self.c.benches.next += 1;
        let n = self.c.benches.next;
        let bench = Bench {
            caller,
            size,
            total: total.div_ceil(size),
            objects,
            submitted: 0,
            durable: 0,
            block: block.into(),
            started_ns: now.mono_ns,
            pretty,
        };
        self.c.benches.running.insert(n, bench);
        for _ in 0..BENCH_IN_FLIGHT {
            self.bench_write(n);
        }
        Ok(())
    }

    fn bench_object(n: u64, i: u64) -> HObject {
        let name = Bytes::from(format!("bench_{n}_{i}"));
        let hash = types::str_hash(&name);
        let (pool, snap) = (PoolId(-1), SnapId::HEAD);
        HObject { pool, hash, name, snap, ..HObject::min() }
    }

    fn bench_write(&mut self, n: u64) {
        let Some(b) = self.c.benches.running.get_mut(&n).filter(|b| b.submitted < b.total) else {
            return;
        };
        let i = b.submitted;
        b.submitted += 1;
        let (slot, off) =
            if b.objects > 0 { (i % b.objects, i / b.objects * b.size) } else { (i, 0) };
        let write = Mutation::Write { off, data: b.block.clone() };
        let ops = vec![StoreOp::Object(Coll::Meta, Self::bench_object(n, slot), vec![write])];
        self.c.tickets.submit(&mut *self.c.store, ops, Ticket::Bench(n));
    }

    pub(crate) fn on_bench_durable(&mut self, now: Now, n: u64, out: &mut Outbox) {
        let Some(b) = self.c.benches.running.get_mut(&n) else { return };
        b.durable += 1;
        if b.durable < b.total {
            self.bench_write(n);
            return;
        }
        let b = self.c.benches.running.remove(&n).expect("just seen");
        let secs = now.mono_ns.saturating_sub(b.started_ns).max(1) as f64 / 1e9;
        let written = b.total * b.size;
        let v = json!({
            "bytes_written": written,
            "blocksize": b.size,
            "elapsed_sec": secs,
            "bytes_per_sec": written as f64 / secs,
            "iops": b.total as f64 / secs,
        });
        answer(b.caller, 0, String::new(), render(&v, b.pretty), out);
        let slots = if b.objects > 0 { b.objects.min(b.total) } else { b.total };
        let gone = (0..slots)
            .map(|i| StoreOp::Object(Coll::Meta, Self::bench_object(n, i), vec![Mutation::Remove]));
        self.c.submit(gone.collect());
    }
}

fn answer(caller: Caller, r: i32, rs: String, output: Bytes, out: &mut Outbox) {
    match caller {
        Caller::Conn(conn, tid) => {
            let reply = CommandReply { r, rs, output };
            out.conn(conn, reply.envelope(Features::ALL).with_tid(tid));
        }
        Caller::Admin(id) => out.push(Effect::Admin { id, r, rs, output }),
    }
}

/// The disks below the store, as its metadata names them.
fn devices(metadata: &std::collections::BTreeMap<String, String>) -> Value {
    let list = |name| metadata.get(name).map_or("", |all: &String| all).split(',');
    let id_of =
        |device: &str| list("device_ids").find_map(|id| id.strip_prefix(device)?.strip_prefix('='));
    let named = list("devices").filter(|device| !device.is_empty() && !device.starts_with("dm-"));
    let one = |device: &str| json!({ "device": format!("/dev/{device}"), "device_id": id_of(device).unwrap_or("") });
    Value::Array(named.map(one).collect())
}

fn config_help(var: Option<&str>) -> Value {
    let one = |o: conf::Known| {
        json!({ "name": o.name(), "type": o.type_name(), "level": o.level(), "desc": o.about(),
                "default": o.default(), "can_update_at_runtime": o.runtime() })
    };
    match var {
        Some(var) => conf::known(&conf::normalize(var)).map_or(json!({}), one),
        None => Value::Array(conf::all_known().map(one).collect()),
    }
}

fn log_json(pg: &Pg) -> Value {
    let entries: Vec<Value> = pg
        .log
        .entries
        .iter()
        .rev()
        .take(1_000)
        .map(|e| {
            json!({ "op": format!("{:?}", e.kind).to_lowercase(), "object": e.oid.to_string(),
                    "version": e.version.to_string(), "prior_version": e.prior.to_string(),
                    "reqid": e.reqid.to_string(), "return_code": e.result })
        })
        .collect();
    json!({ "head": pg.log.head().to_string(), "tail": pg.log.tail.to_string(), "log": entries,
            "dups": pg.log.dup_count(), "log_bytes": pg.log.bytes().0,
            "dups_bytes": pg.log.bytes().1 })
}
