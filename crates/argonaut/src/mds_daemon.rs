//! `argonaut mds`: the metadata server's role with sockets, clock, the pools that it keeps its tree
//! in, monitor session and admin socket.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use anyhow::Result;
use auth::caps::MdsCap;
use bytes::Bytes;
use conf::{Config, Key, key};
use daemon::asok::{self, Asked};
use daemon::commands::{self, CommandSpec, command};
use daemon::node::{self, Node};
use daemon::{ClusterLog, Doors, FEATURES, bind, local_text, private, proven_id, v1_rules};
use env::{ConnId, Random};
use maps::{FsMap, MdsMap, MdsState, OsdMapFlags, PoolFlags};
use mds::{AskId, Beacon, Effect, IoAnswer, IoId, Mds, OsdNews, Outbox, Peer, Severity};
use messages::fs::MdsBeacon;
use messages::{
    Command, CommandReply, ConfigMsg, Envelope, FsMapMsg, LogPriority, MdsMapMsg, Message, Paxos,
    RemoveSnaps,
};
use rados::{Cluster, News};
use rt::{Messenger, NetEvent, Policy};
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, oneshot};
use types::{AddrVec, Denc, EntityId, EntityKind, EntityName, Errno, Features, Uuid};

use crate::{mds_io, memory};

/// How often the role looks at its clocks.
const TICK: Duration = Duration::from_millis(100);
/// Time between two looks at the process' memory, in ms.
const MEMORY_LOOK_MS: u64 = 1_000;
/// How long a server that is told to end writes to the tree, where nobody takes its rank over: the
/// supervisor waits a little longer.
const LEAVE_MAX: Duration = Duration::from_secs(8);
/// Longest name of a metadata server.
const NAME_MAX: usize = 64;

/// What is answered here; all else is the role's.
const OWN_COMMANDS: &[CommandSpec] = &[
    command("exit", "", "Terminate MDS", "rw"),
    command("respawn", "", "Respawn this MDS", "rw"),
    command("status", "", "high-level status of MDS", "r"),
];

/// The same and the role's.
static ALL_COMMANDS: LazyLock<Vec<CommandSpec>> = LazyLock::new(|| {
    let own = OWN_COMMANDS.iter().map(|c| command(c.name, c.args, c.help, c.perm));
    let role = mds::COMMANDS.iter().map(|(name, args, help, perm)| command(name, args, help, perm));
    own.chain(role).collect()
});

/// Runs one metadata server until it is told to stop.
///
/// # Errors
/// When the options, the key or the address do not allow it.
pub fn main(config: Config, id: &str) -> Result<()> {
    let begins = id.chars().next().is_some_and(|c| !c.is_ascii_digit());
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if !begins || id.len() > NAME_MAX || !id.chars().all(plain) {
        // Numbers are ranks and sessions in commands.
        anyhow::bail!("'{id}' is no name of a metadata server: letters first, then a-z 0-9 - _ .");
    }
    daemon::start_log(&config)?;
    private::tighten_dir(Path::new(&config.get(key::MDS_DATA)));
    rt::run_local(run(config, id.to_owned()))?
}

/// Who waits for a command's answer.
enum Caller {
    /// `tell`: the connection and the message's number.
    Conn(ConnId, u64),
    /// The admin socket.
    Admin(oneshot::Sender<Vec<u8>>),
}

/// Commands that the role has not answered yet.
#[derive(Default)]
struct Asks {
    next: u64,
    waiting: HashMap<AskId, Caller>,
    /// Files that take the output of some of them.
    files: HashMap<AskId, PathBuf>,
}

/// What this process is, for as long as it runs.
struct Identity {
    name: String,
    fsid: Uuid,
    addrs: AddrVec,
    metadata: BTreeMap<String, String>,
    started_ms: u64,
}

struct Daemon {
    me: Identity,
    messenger: Messenger,
    cluster: OnceCell<Cluster>,
    config: RefCell<Config>,
    log: ClusterLog,
    /// Once the monitors have given a number to this process.
    role: RefCell<Option<Mds>>,
    out: RefCell<Outbox>,
    map: RefCell<MdsMap>,
    peers: RefCell<HashMap<ConnId, Peer>>,
    asks: RefCell<Asks>,
    /// The number of the beacon by which the monitors hear that this server ends.
    last_words: Cell<Option<u64>>,
    /// The role has said all that it had to say.
    over: Notify,
    stop: Notify,
    /// The monitors have sent their settings.
    has_settings: Cell<bool>,
    /// This process is about to begin anew.
    respawns: Cell<bool>,
    /// All file systems and who stands by, as far as the monitors have told.
    fsmap: RefCell<FsMap>,
    /// The process was told to end.
    ends: Cell<bool>,
    memory: RefCell<MemoryLook>,
}

/// When the process' memory was looked at, in ms, and when what was freed goes back.
#[derive(Default)]
struct MemoryLook {
    last_ms: u64,
    watch: memory::Watch,
}

/// The role's options as the daemon's say them.
fn role_options(config: &Config) -> mds::Options {
    let ms = |key: Key<key::Float>| (config.get(key).clamp(0.0, 1e9) * 1000.0) as u64;
    mds::Options {
        beacon_interval_ms: ms(key::MDS_BEACON_INTERVAL).max(100),
        reconnect_timeout_ms: ms(key::MDS_RECONNECT_TIMEOUT),
        early_reply: config.get(key::MDS_EARLY_REPLY),
        prealloc_inos: config.get(key::MDS_CLIENT_PREALLOC_INOS),
        purge_files_max: config.get(key::MDS_MAX_PURGE_FILES) as usize,
        fragment_entries_max: config.get(key::MDS_BAL_FRAGMENT_SIZE_MAX) as usize,
        split_entries: (config.get(key::MDS_BAL_SPLIT_SIZE) as usize).max(100),
        merge_entries: config.get(key::MDS_BAL_MERGE_SIZE) as usize,
        blocklist: config.get(key::MDS_SESSION_BLOCKLIST_ON_EVICT),
        cache_bytes_max: config.get(key::MDS_CACHE_MEMORY_LIMIT),
        caps_per_client_max: config.get(key::MDS_MAX_CAPS_PER_CLIENT) as usize,
        throttle: mds::Throttle {
            acquired: config.get(key::MDS_SESSION_CAP_ACQUISITION_THROTTLE),
            half_life_ms: ms(key::MDS_SESSION_CAP_ACQUISITION_DECAY_RATE).max(1),
            held_ratio: config.get(key::MDS_SESSION_MAX_CAPS_THROTTLE_RATIO),
            retry_ms: ms(key::MDS_CAP_ACQUISITION_THROTTLE_RETRY_REQUEST_TIMEOUT),
        },
        op_history_size: config.get(key::MDS_OP_HISTORY_SIZE) as usize,
        op_history_secs: config.get(key::MDS_OP_HISTORY_DURATION),
        op_complaint_secs: config.get(key::MDS_OP_COMPLAINT_TIME),
        ..mds::Options::default()
    }
}

fn osd_news(map: &Arc<maps::OsdMap>) -> OsdNews {
    let all_full = map.has_flag(OsdMapFlags::FULL);
    let full = map.pools.iter().filter(|(_, p)| all_full || p.has_flag(PoolFlags::FULL));
    OsdNews {
        epoch: map.epoch,
        pools: map.pool_names.iter().map(|(id, name)| (*id, name.clone())).collect(),
        full: full.map(|(id, _)| *id).collect(),
        snap_seqs: map.pools.iter().map(|(id, p)| (*id, p.snap_seq)).collect(),
        map: map.clone(),
    }
}

impl Node for Daemon {
    fn cluster_cell(&self) -> &OnceCell<Cluster> {
        &self.cluster
    }

    fn on_news(self: &Rc<Self>, news: News) {
        match news {
            News::Session => self.begin(),
            News::OsdMap => self.on_osd_map(),
            News::Message(env) => match env.kind {
                MdsMapMsg::KIND => self.on_mds_map(&env),
                FsMapMsg::KIND => self.on_fs_map(&env),
                MdsBeacon::KIND => self.on_beacon_answer(&env),
                ConfigMsg::KIND => self.on_settings(&env),
                kind => tracing::debug!("the monitors sent a message of type {kind}"),
            },
        }
    }

    fn on_event(self: &Rc<Self>, event: NetEvent) {
        match event {
            NetEvent::Opened { conn, peer } => {
                let identity = &peer.identity;
                let caps = match identity.allow_all {
                    true => MdsCap::allow_all(),
                    false => MdsCap::parse_lenient(&identity.caps),
                };
                // A manager's modules mount file systems as any client does.
                let id = match proven_id(identity) {
                    EntityId { kind: EntityKind::MGR, num } => {
                        EntityId::new(EntityKind::CLIENT, num)
                    }
                    id => id,
                };
                let peer = Peer {
                    name: identity.name.clone(),
                    id,
                    caps,
                    addr: peer.seen_addr(),
                    features: peer.features,
                };
                self.peers.borrow_mut().insert(conn, peer);
            }
            NetEvent::Message { conn, env, .. } => {
                self.memory.borrow_mut().watch.worked(rt::now().mono_ms(), 0);
                let Some(peer) = self.peers.borrow().get(&conn).cloned() else { return };
                if env.kind == Command::KIND {
                    return self.on_tell(conn, &peer, &env);
                }
                if self.role.borrow().is_none() {
                    return self.messenger.close(conn);
                }
                self.with(|role, out| role.on_message(rt::now(), conn, &peer, env, out));
            }
            NetEvent::Closed { conn, why } => {
                tracing::debug!("{conn:?}: {why}");
                if self.peers.borrow_mut().remove(&conn).is_some() {
                    self.with(|role, out| role.on_closed(rt::now(), conn, out));
                }
            }
            NetEvent::Alive { .. } => {}
        }
    }
}

impl Daemon {
    fn cluster(&self) -> &Cluster {
        self.cluster.get().expect("set before the first event")
    }

    /// Calls the role, where there is one, and does what it wants.
    fn with(self: &Rc<Self>, call: impl FnOnce(&mut Mds, &mut Outbox)) {
        let mut out = self.out.take();
        match self.role.borrow_mut().as_mut().filter(|_| !self.respawns.get()) {
            Some(role) => call(role, &mut out),
            None => return,
        }
        for effect in out.drain() {
            self.carry_out(effect);
        }
        if let Some(role) = self.role.borrow_mut().as_mut() {
            role.on_sent(rt::now());
        }
        *self.out.borrow_mut() = out; // keeps its memory
    }

    fn carry_out(self: &Rc<Self>, effect: Effect) {
        match effect {
            Effect::Send(conn, env) => self.messenger.send(conn, env),
            Effect::Close(conn) => {
                self.peers.borrow_mut().remove(&conn);
                self.messenger.close(conn);
            }
            Effect::Beacon(beacon) => self.send_beacon(beacon),
            Effect::Io(io) => {
                let (this, id) = (self.clone(), io.id);
                let sent = mds_io::begin(self.cluster(), io);
                tokio::task::spawn_local(async move {
                    let answer = match sent {
                        Ok(sent) => sent.answer().await,
                        Err(errno) => Err(errno),
                    };
                    this.on_done(id, answer);
                });
            }
            Effect::Blocklist { id, addr } => {
                let (this, cluster) = (self.clone(), self.cluster().clone());
                tokio::task::spawn_local(async move {
                    let done = cluster.blocklist_add(addr, None).await;
                    if let Err(err) = &done {
                        tracing::warn!("blocklisting {addr}: {err}");
                    }
                    let errno = |err: rados::Error| err.code().map_or(Errno::IO, |e| Errno(-e));
                    this.on_done(id, done.map(|()| IoAnswer::default()).map_err(errno));
                });
            }
            Effect::WantOsdMap(_) => {
                // All from the next one on: later ones alone could not be applied.
                let have = self.cluster().newest_map().map_or(0, |map| map.epoch.0);
                self.cluster().subscribe("osdmap", u64::from(have) + 1);
            }
            Effect::RemoveSnaps(snaps) => {
                let message = RemoveSnaps { paxos: Paxos::default(), snaps };
                self.cluster().send_mon(message.envelope(Features::ALL));
            }
            Effect::Answer { ask, r, rs, output } => {
                let caller = self.asks.borrow_mut().waiting.remove(&ask);
                let file = self.asks.borrow_mut().files.remove(&ask);
                match (caller, file) {
                    (Some(caller), Some(path)) if r == 0 => self.write_output(caller, path, output),
                    (Some(caller), _) => self.answer(caller, r, rs, output),
                    (None, _) => {}
                }
            }
            Effect::ClusterLog { severity, text } => {
                let prio = match severity {
                    Severity::Info => LogPriority::INFO,
                    Severity::Warning => LogPriority::WARN,
                    Severity::Error => LogPriority::ERROR,
                };
                let rank = EntityId::new(EntityKind::MDS, self.messenger.local().num);
                let line = self.log.line(rank, self.me.addrs.clone(), prio, text);
                self.cluster().send_mon(line);
            }
            Effect::Respawn { why } => self.respawn(why),
        }
    }

    /// Tells the role, and gives back what was freed where the process is beyond its limit.
    fn look_at_memory(&self, now_ms: u64) {
        let mut look = self.memory.borrow_mut();
        if now_ms < look.last_ms + MEMORY_LOOK_MS {
            return;
        }
        look.last_ms = now_ms;
        let taken = memory::taken();
        if let Some(role) = self.role.borrow_mut().as_mut() {
            role.on_memory(taken);
        }
        let limit = self.config.borrow().get(key::MDS_CACHE_MEMORY_LIMIT);
        let Ok(resident) = memory::resident() else { return };
        if look.watch.is_due(now_ms, resident, limit) {
            memory::give_back();
        }
    }

    fn on_done(self: &Rc<Self>, id: IoId, result: Result<IoAnswer, Errno>) {
        self.with(|role, out| role.on_done(rt::now(), id, result, out));
    }

    fn send_beacon(&self, beacon: Beacon) {
        if beacon.state == MdsState::DNE {
            self.last_words.set(Some(beacon.seq));
        }
        let sys_info = match beacon.state {
            MdsState::BOOT => self.me.metadata.clone(),
            _ => BTreeMap::new(),
        };
        let message = MdsBeacon {
            paxos: Paxos { version: u64::from(beacon.epoch.0) },
            fsid: self.me.fsid,
            gid: self.cluster().global_id(),
            state: beacon.state,
            seq: beacon.seq,
            name: self.me.name.clone(),
            compat: maps::fs::compat_supported(),
            health: beacon.health,
            sys_info,
            features: FEATURES.0,
            fs: self.config.borrow().get(key::MDS_JOIN_FS),
        };
        self.cluster().send_mon(message.envelope(Features::ALL));
    }

    /// Begins anew in this process's place, with the same arguments and nothing that the role knew.
    fn respawn(&self, why: String) {
        if self.ends.get() {
            // The monitors have heard that it ends, or gave its rank to another.
            self.last_words.set(self.last_words.get().or(Some(0)));
            return self.over.notify_one();
        }
        if self.respawns.replace(true) {
            return;
        }
        node::respawn(&why);
    }

    /// Makes the role, once: the first session gives this process its number, and the monitors'
    /// settings are among its options.
    fn begin(self: &Rc<Self>) {
        let gid = self.cluster().global_id();
        let is_over = self.ends.get() || self.respawns.get();
        if gid == 0 || !self.has_settings.get() || self.role.borrow().is_some() || is_over {
            return;
        }
        tracing::info!("mds.{} has the number {gid}", self.me.name);
        let options = role_options(&self.config.borrow());
        let config = mds::Config { name: self.me.name.clone(), gid, options };
        self.messenger.set_local(|local| local.num = gid as i64);
        *self.role.borrow_mut() = Some(Mds::new(config));
        self.with(|role, out| role.on_start(rt::now(), out));
        self.on_osd_map();
    }

    fn on_osd_map(self: &Rc<Self>) {
        let Some(map) = self.cluster().newest_map() else { return };
        if map.is_blocklisted(&self.me.addrs) {
            return self.respawn(format!("map {} of the OSDs shuts this server out", map.epoch));
        }
        let news = osd_news(&map);
        self.with(|role, out| role.on_osd_map(rt::now(), &news, out));
    }

    fn on_mds_map(self: &Rc<Self>, env: &Envelope) {
        let map = MdsMapMsg::decode(env).and_then(|m| MdsMap::from_shared(&m.map));
        let map = match map {
            Ok(map) => map,
            Err(err) => return tracing::error!("a map of metadata servers: {err}"),
        };
        self.cluster().got("mdsmap", u64::from(map.epoch.0));
        // Clients take the number in a server's name for its rank.
        let gid = self.cluster().global_id();
        let rank = map.mds_info.get(&gid).map(|info| info.rank).filter(|rank| *rank >= 0);
        let num = rank.map_or(gid as i64, i64::from);
        self.messenger.set_local(|local| local.num = num);
        *self.map.borrow_mut() = map.clone();
        self.with(|role, out| role.on_map(rt::now(), &map, out));
    }

    fn on_fs_map(&self, env: &Envelope) {
        match FsMapMsg::decode(env).and_then(|m| FsMap::from_shared(&m.map)) {
            Ok(map) => {
                self.cluster().got("fsmap", u64::from(map.epoch.0));
                *self.fsmap.borrow_mut() = map;
            }
            Err(err) => tracing::error!("a map of file systems: {err}"),
        }
    }

    /// Whether nobody would take over this server's rank.
    fn is_alone(&self) -> bool {
        let (gid, map) = (self.cluster().global_id(), self.fsmap.borrow());
        let rank = map.server(gid).map_or(-1, |info| info.rank);
        map.of_server(gid).is_some_and(|fs| map.replacement_for(fs, rank).is_none())
    }

    /// Has the role end. Returns when the monitors have heard of it, or do not answer.
    async fn end(self: &Rc<Self>, tick: &mut tokio::time::Interval) {
        if self.ends.replace(true) || self.respawns.get() {
            return; // what was about to begin anew has no rank
        }
        let alone = self.is_alone();
        self.with(|role, out| role.on_stop(rt::now(), alone, out));
        let leave = async {
            while self.role.borrow().is_some() && self.last_words.get().is_none() {
                tick.tick().await;
                self.with(|role, out| role.on_tick(rt::now(), out));
            }
        };
        if tokio::time::timeout(LEAVE_MAX, leave).await.is_err() {
            tracing::warn!(
                "not all is in the tree after {} s: the journal has it",
                LEAVE_MAX.as_secs()
            );
            self.with(|role, out| role.on_stop(rt::now(), false, out));
        }
        if self.last_words.get().is_some() {
            let wait = self.config.borrow().get(key::MDS_MON_SHUTDOWN_TIMEOUT).clamp(0.0, 60.0);
            tokio::time::timeout(Duration::from_secs_f64(wait), self.over.notified()).await.ok();
        }
    }

    fn on_beacon_answer(self: &Rc<Self>, env: &Envelope) {
        let Ok(answer) = MdsBeacon::decode(env) else { return };
        self.with(|role, out| role.on_beacon_ack(rt::now(), answer.seq, out));
        if self.last_words.get().is_some_and(|seq| answer.seq >= seq) {
            self.over.notify_one();
        }
    }

    /// New values from the monitors' database.
    fn on_settings(self: &Rc<Self>, env: &Envelope) {
        if node::take_settings(&self.config, env) {
            self.has_settings.set(true);
            self.obey();
            self.begin();
        }
    }

    /// The role's options may have other values now.
    fn obey(&self) {
        if let Some(role) = self.role.borrow_mut().as_mut() {
            role.set_options(&role_options(&self.config.borrow()));
        }
    }

    fn on_tell(self: &Rc<Self>, conn: ConnId, peer: &Peer, env: &Envelope) {
        let caller = Caller::Conn(conn, env.tid);
        let Ok(message) = Command::decode(env) else { return self.messenger.close(conn) };
        if !peer.caps.is_allow_all() {
            tracing::warn!(entity = %peer.name, addr = %peer.addr, "denied: a command");
            return self.answer(caller, Errno::ACCES.0, "access denied".into(), Bytes::new());
        }
        let text: String = message.cmd.iter().map(|b| String::from_utf8_lossy(b)).collect();
        self.on_command(caller, &text);
    }

    fn answer(&self, caller: Caller, r: i32, rs: String, output: Bytes) {
        match caller {
            Caller::Conn(conn, tid) => {
                let reply = CommandReply { r, rs, output };
                self.messenger.send(conn, reply.envelope(Features::ALL).with_tid(tid));
            }
            Caller::Admin(answer) => {
                answer.send(local_text(r, &rs, output)).ok();
            }
        }
    }

    fn on_command(self: &Rc<Self>, caller: Caller, text: &str) {
        let (prefix, args) = match commands::parse(text) {
            Ok(parsed) => parsed,
            Err((errno, why)) => return self.answer(caller, errno.0, why, Bytes::new()),
        };
        let common = {
            let mut config = self.config.borrow_mut();
            commands::common(&mut config, "mds", &ALL_COMMANDS, &prefix, &args)
        };
        let done = match (common, &*prefix) {
            (Some(done), _) => {
                self.obey();
                done
            }
            (None, "status") => Ok((String::new(), self.status())),
            (None, "exit") => {
                self.stop.notify_one();
                Ok((String::new(), Value::Null))
            }
            (None, "respawn") => {
                self.respawn("by command".into());
                Ok((String::new(), Value::Null))
            }
            _ => return self.ask_role(caller, args),
        };
        match done {
            Ok((rs, value)) => self.answer(caller, 0, rs, commands::render(&value, &args)),
            Err((errno, why)) => self.answer(caller, errno.0, why, Bytes::new()),
        }
    }

    fn ask_role(self: &Rc<Self>, caller: Caller, args: Map<String, Value>) {
        if self.role.borrow().is_none() {
            let why = "no monitor has opened a session yet".to_owned();
            return self.answer(caller, Errno::AGAIN.0, why, Bytes::new());
        }
        let ask = {
            let mut asks = self.asks.borrow_mut();
            asks.next += 1;
            let ask = AskId(asks.next);
            asks.waiting.insert(ask, caller);
            ask
        };
        let command = Value::Object(args);
        let path = command["path"].as_str().filter(|path| !path.is_empty());
        if let Some(path) = path.filter(|_| command["prefix"] == "dump cache") {
            self.asks.borrow_mut().files.insert(ask, PathBuf::from(path));
        }
        self.with(|role, out| role.on_command(rt::now(), ask, &command, out));
    }

    /// Makes a file of a command's output, readable for its owner alone; the command is answered
    /// then. EEXIST where there is one already, and whatever else the system says.
    fn write_output(self: &Rc<Self>, caller: Caller, path: PathBuf, output: Bytes) {
        let this = self.clone();
        tokio::task::spawn_local(async move {
            let shown = path.display().to_string();
            let write = move || {
                let mut options = std::fs::OpenOptions::new();
                let mut file = options.write(true).create_new(true).mode(0o600).open(path)?;
                file.write_all(&output)
            };
            let done = tokio::task::spawn_blocking(write).await;
            match done.map_err(std::io::Error::other).flatten() {
                Ok(()) => this.answer(caller, 0, String::new(), Bytes::new()),
                Err(err) => {
                    let errno = err.raw_os_error().map_or(Errno::IO, |e| Errno(-e));
                    this.answer(caller, errno.0, format!("{shown}: {err}"), Bytes::new());
                }
            }
        });
    }

    fn status(&self) -> Value {
        let (map, role) = (self.map.borrow(), self.role.borrow());
        let gid = self.cluster().global_id();
        let info = map.mds_info.get(&gid);
        let state = role.as_ref().map_or(MdsState::BOOT, Mds::state);
        let osd_epoch = self.cluster().newest_map().map_or(0, |m| m.epoch.0);
        let now_ms = rt::now().mono_ms();
        json!({
            "cluster_fsid": self.me.fsid.to_string(),
            "whoami": info.map_or(-1, |i| i.rank),
            "id": gid,
            "want_state": state.to_string(),
            "state": state.to_string(),
            "fs_name": map.fs_name,
            "mdsmap_epoch": map.epoch.0,
            "osdmap_epoch": osd_epoch,
            "osdmap_epoch_barrier": map.last_failure_osd_epoch.0,
            "uptime": (now_ms - self.me.started_ms) as f64 / 1000.0,
        })
    }
}

async fn run(config: Config, id: String) -> Result<()> {
    daemon::require_security(&config)?;
    let fsid = daemon::fsid(&config)?;
    let name = EntityName::new(EntityKind::MDS, &*id);
    // A server that comes back on the same port, in a container maybe with the same process id, is
    // another one: its predecessor is blocklisted by address and nonce.
    let nonce = rt::OsRandom.u64() as u32;
    let doors = Doors::new(&config, EntityId::new(EntityKind::MDS, -1), nonce);
    let modes = rados::modes(&config.get(key::MS_SERVICE_MODE));
    let messenger = doors.messenger(&modes, |kind| match kind {
        EntityKind::CLIENT => Policy::stateful_server(),
        _ => Policy::stateless_server(),
    });
    let (addrs, at) = bind(&messenger, daemon::address(&config, "public")?, v1_rules(&config))?;
    let services = vec![EntityKind::MON, EntityKind::OSD, EntityKind::MDS, EntityKind::MGR];
    let link = daemon::link_config(&config, name.clone(), services)?;
    let mut metadata = daemon::metadata();
    metadata.insert("addr".to_owned(), addrs.to_string());
    let me = Identity { name: id.clone(), fsid, addrs, metadata, started_ms: rt::now().mono_ms() };
    let daemon = Rc::new(Daemon {
        me,
        messenger: messenger.clone(),
        cluster: OnceCell::new(),
        config: RefCell::new(config.clone()),
        log: ClusterLog::new(fsid, name),
        role: RefCell::default(),
        out: RefCell::default(),
        map: RefCell::default(),
        peers: RefCell::default(),
        asks: RefCell::default(),
        last_words: Cell::default(),
        over: Notify::new(),
        stop: Notify::new(),
        has_settings: Cell::default(),
        respawns: Cell::default(),
        fsmap: RefCell::default(),
        ends: Cell::default(),
        memory: RefCell::default(),
    });
    node::join(&daemon, &messenger, link, doors.keys());
    let (ask, mut asked) = tokio::sync::mpsc::channel::<Asked>(16);
    asok::listen(Path::new(&config.get(key::ADMIN_SOCKET)), ask)?;
    daemon::write_pid(&config)?;
    daemon.cluster().start(&["mdsmap", "fsmap", "config"]);
    tracing::info!("mds.{id} listens at {at}");

    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut stop = std::pin::pin!(rt::told_to_stop());
    loop {
        tokio::select! {
            _ = tick.tick() => {
                daemon.look_at_memory(rt::now().mono_ms());
                daemon.with(|role, out| role.on_tick(rt::now(), out));
            }
            Some(one) = asked.recv() => daemon.on_command(Caller::Admin(one.answer), &one.command),
            () = daemon.stop.notified() => break,
            told = &mut stop => {
                told?;
                break;
            }
        }
    }
    tracing::info!("mds.{id} ends");
    daemon.end(&mut tick).await;
    Ok(())
}
