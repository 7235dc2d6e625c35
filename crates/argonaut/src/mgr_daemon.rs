//! `argonaut mgr`: a manager process. It registers with the monitors; the one that they choose
//! answers the manager's commands, runs the modules and serves metrics, the others wait.
//!
//! What the cluster is like it asks the leading monitor for: PG statistics and the commands on them
//! stay there ([ADR 24](../../../docs/adr/0024-manager-process.md)).

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;
use auth::{MgrCaller, MgrCap};
use bytes::Bytes;
use conf::{Config, key};
use daemon::asok::{self, Asked};
use daemon::commands::{self, CommandSpec, command};
use daemon::node::{self, Node};
use daemon::{Doors, FEATURES, bind, local_text, private, proven_id, v1_rules};
use env::{ConnId, Random};
use maps::{MgrMap, ModuleInfo};
use messages::{
    Command, CommandReply, ConfigMsg, Envelope, ManagerAsk, Message, MgrBeacon, MgrClose,
    MgrCommand, MgrCommandReply, MgrConfigure, MgrOpen, MgrReport,
};
use mgr::web::Web;
use mon::services::Services;
use mon::{Reply, SessionInfo};
use rados::{Cluster, News};
use rt::{Messenger, NetEvent, Policy};
use serde_json::{Value, json};
use tokio::sync::Notify;
use types::{AddrVec, Denc, EntityId, EntityKind, EntityName, Errno, Features, Uuid};

use crate::mgr_dashboard;
use crate::mgr_metrics::Metrics;

/// Between two beacons, unless `mgr_tick_period` says otherwise.
const BEACON_S: f64 = 2.0;
/// Longest name of a manager.
const NAME_MAX: usize = 64;
/// Services' daemons at once; more are not kept.
const SERVICES_MAX: usize = 10_000;
/// Seconds between reports: `mgr_stats_period`.
const REPORT_S: u32 = 5;
/// `mgr_stats_threshold`.
const THRESHOLD: u32 = 5;
/// Commands under way at once; more are refused.
const COMMANDS_MAX: usize = 1_000;
/// The number of a manager map's message.
const MGR_MAP: u16 = 0x704;

/// What is answered here beside the common ones, by the admin socket and by `tell`.
const OWN_COMMANDS: &[CommandSpec] = &[
    commands::COUNTERS[0],
    commands::COUNTERS[1],
    commands::COUNTERS[2],
    commands::COUNTERS[3],
    command("mgr_status", "", "Dump mgr status", "r"),
    command("status", "", "high-level status of the manager", "r"),
];

/// Runs one manager until it is told to stop.
///
/// # Errors
/// When the options, the key or the address do not allow it.
pub fn main(config: Config, id: &str) -> Result<()> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if id.is_empty() || id.len() > NAME_MAX || !id.chars().all(plain) {
        anyhow::bail!("'{id}' is no name of a manager: a-z 0-9 - _ .");
    }
    daemon::start_log(&config)?;
    private::tighten_dir(Path::new(&config.get(key::MGR_DATA)));
    rt::run_local(run(config, id.to_owned()))?
}

/// What a manager is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Another one is active, or none yet.
    Standby,
    /// The map names it: it waits until its predecessor is shut out.
    Starting,
    /// It serves.
    Active,
}

/// A connection that somebody made to this manager.
#[derive(Clone)]
struct Peer {
    info: SessionInfo,
    caps: MgrCap,
}

/// What this process is, for as long as it runs.
struct Identity {
    name: String,
    fsid: Uuid,
    addrs: AddrVec,
    ip: IpAddr,
    metadata: BTreeMap<String, String>,
    started_ms: u64,
}

/// Who waits for a command's answer.
enum Caller {
    /// `MMgrCommand`: the connection and the message's number.
    Mgr(ConnId, u64),
    /// `MCommand`, of `ceph tell`.
    Tell(ConnId, u64),
}

struct Daemon {
    me: Identity,
    messenger: Messenger,
    cluster: OnceCell<Cluster>,
    /// As whom modules are clients: with a connection, and so an address, of their own.
    modules_config: rados::Config,
    config: RefCell<Config>,
    stage: Cell<Stage>,
    map: RefCell<MgrMap>,
    peers: RefCell<HashMap<ConnId, Peer>>,
    services: RefCell<Services>,
    modules: RefCell<Option<mgr::Modules>>,
    metrics: Metrics,
    dashboard: mgr_dashboard::Module,
    under_way: Cell<usize>,
    /// The monitors have sent their settings.
    has_settings: Cell<bool>,
    respawns: Cell<bool>,
    stop: Notify,
}

impl Node for Daemon {
    fn cluster_cell(&self) -> &OnceCell<Cluster> {
        &self.cluster
    }

    fn on_news(self: &Rc<Self>, news: News) {
        match news {
            News::Session => {
                let gid = self.cluster().global_id();
                self.messenger.set_local(|local| local.num = gid as i64);
                self.send_beacon();
            }
            News::OsdMap => self.on_osd_map(),
            News::Message(env) => match env.kind {
                MGR_MAP => self.on_map(&env),
                ConfigMsg::KIND => self.on_settings(&env),
                ManagerAsk::KIND => self.on_ask(&env),
                kind => tracing::debug!("the monitors sent a message of type {kind}"),
            },
        }
    }

    fn on_event(self: &Rc<Self>, event: NetEvent) {
        match event {
            NetEvent::Opened { conn, peer } => {
                let identity = &peer.identity;
                let caps = match identity.allow_all {
                    true => MgrCap::allow_all(),
                    false => MgrCap::parse_lenient(&identity.caps),
                };
                let info = SessionInfo {
                    conn,
                    name: identity.name.clone(),
                    entity: proven_id(identity),
                    global_id: identity.global_id,
                    addrs: peer.seen_addrs(),
                    features: peer.features,
                    caps: auth::MonCap::default(),
                    mgr_caps: Some(caps.clone()),
                    hostname: String::new(),
                };
                self.peers.borrow_mut().insert(conn, Peer { info, caps });
            }
            NetEvent::Message { conn, env, .. } => {
                if self.on_message(conn, &env).is_err() {
                    tracing::warn!("a message of type {} cannot be read", env.kind);
                    self.forget(conn);
                    self.messenger.close(conn);
                }
            }
            NetEvent::Closed { conn, why } => {
                tracing::debug!("{conn:?}: {why}");
                self.forget(conn);
            }
            NetEvent::Alive { .. } => {}
        }
    }
}

impl Daemon {
    fn cluster(&self) -> &Cluster {
        self.cluster.get().expect("set before the first event")
    }

    fn send_beacon(&self) {
        let gid = self.cluster().global_id();
        if gid == 0 || !self.has_settings.get() || self.respawns.get() {
            return;
        }
        let is_active = self.stage.get() == Stage::Active;
        let module = |name: &str| ModuleInfo {
            name: name.to_owned(),
            can_run: true,
            ..ModuleInfo::default()
        };
        let modules = self.modules.borrow();
        let client = modules.as_ref().and_then(mgr::Modules::addrs);
        let beacon = MgrBeacon {
            addrs: self.me.addrs.clone(),
            gid,
            available: is_active,
            name: self.me.name.clone(),
            fsid: self.me.fsid,
            metadata: self.me.metadata.clone(),
            services: if is_active { self.services() } else { BTreeMap::new() },
            modules: mon::managers::built_in().map(module).collect(),
            features: FEATURES.0,
            clients: client.map(|addrs| ("rbd_support".to_owned(), addrs)).into_iter().collect(),
            ..MgrBeacon::default()
        };
        self.cluster().send_mon(beacon.envelope(Features::ALL));
        let services = self.services.borrow();
        if is_active && services.map.epoch.0 > 0 {
            let report = services.report_of(gid);
            self.cluster().send_mon(report.envelope(Features::ALL));
        }
    }

    /// URLs of what this manager serves, by module.
    fn services(&self) -> BTreeMap<String, String> {
        self.metrics.services().into_iter().chain(self.dashboard.services()).collect()
    }

    /// Begins anew in this process's place, with the same arguments and nothing that it knew.
    fn respawn(&self, why: String) {
        if self.respawns.replace(true) {
            return;
        }
        node::respawn(&why);
    }

    fn on_osd_map(self: &Rc<Self>) {
        let Some(map) = self.cluster().newest_map() else { return };
        if map.is_blocklisted(&self.me.addrs) {
            return self.respawn(format!("map {} of the OSDs shuts this manager out", map.epoch));
        }
        self.begin();
    }

    fn on_map(self: &Rc<Self>, env: &Envelope) {
        let map = match MgrMap::from_shared(&env.front) {
            Ok(map) => map,
            Err(err) => return tracing::error!("a manager map: {err}"),
        };
        self.cluster().got("mgrmap", u64::from(map.epoch.0));
        let gid = self.cluster().global_id();
        let is_it = gid != 0 && map.active_gid == gid;
        let stage = self.stage.get();
        *self.map.borrow_mut() = map;
        match (stage, is_it) {
            (Stage::Standby, true) => {
                tracing::info!("mgr.{} is to be the active manager", self.me.name);
                self.stage.set(Stage::Starting);
                self.begin();
            }
            (Stage::Starting | Stage::Active, false) => {
                self.respawn("another manager is active".to_owned());
            }
            (Stage::Starting, true) => self.begin(),
            (Stage::Standby, false) | (Stage::Active, true) => {}
        }
        self.tick_metrics();
    }

    /// Begins to serve, once this manager's OSD map shuts its predecessor out.
    fn begin(self: &Rc<Self>) {
        let needs = self.map.borrow().last_failure_osd_epoch;
        let has = self.cluster().newest_map().is_some_and(|map| map.epoch >= needs);
        if self.stage.get() != Stage::Starting || self.respawns.get() {
            return;
        }
        if !has {
            let next = self.cluster().newest_map().map_or(0, |map| map.epoch.0 + 1);
            return self.cluster().subscribe("osdmap", u64::from(next));
        }
        match mgr::Modules::start(self.modules_config.clone(), true) {
            Ok(modules) => {
                *self.modules.borrow_mut() = Some(modules.clone());
                let weak = Rc::downgrade(self);
                tokio::task::spawn_local(async move {
                    // The monitors must know of a mount before this manager can die with it.
                    loop {
                        modules.addrs_changed().await;
                        let Some(this) = weak.upgrade() else { return };
                        this.send_beacon();
                    }
                });
            }
            Err(err) => return self.respawn(format!("the modules do not start: {err}")),
        }
        self.stage.set(Stage::Active);
        tracing::info!("mgr.{} serves", self.me.name);
        self.tick_metrics();
        self.send_beacon();
    }

    fn on_settings(self: &Rc<Self>, env: &Envelope) {
        if !node::take_settings(&self.config, env) {
            return;
        }
        if !self.has_settings.replace(true) {
            self.send_beacon();
        }
        self.tick_metrics();
    }

    /// Has metrics listen, wait or stop as map and settings say.
    fn tick_metrics(self: &Rc<Self>) {
        if !self.has_settings.get() || self.respawns.get() {
            return;
        }
        let (map, config) = (self.map.borrow(), self.config.borrow());
        let is_on = map.modules.contains("prometheus");
        let active = map.services.get("prometheus").cloned();
        self.metrics.set_up(&config, self.me.ip, is_on);
        match self.stage.get() {
            Stage::Active if is_on => {
                let weak = Rc::downgrade(self);
                let told = move || {
                    if let Some(this) = weak.upgrade() {
                        this.send_beacon();
                    }
                };
                self.metrics.collect(self.cluster().clone(), told);
            }
            Stage::Active | Stage::Starting => {}
            Stage::Standby => self.metrics.wait(active),
        }
        if self.stage.get() != Stage::Starting {
            let is_on = map.modules.contains("dashboard");
            let waits = self.stage.get() == Stage::Standby;
            let waits = waits.then(|| map.services.get("dashboard").cloned());
            let own = (&*config, &*self.me.name, self.me.ip);
            self.dashboard.set_up(own, is_on, waits, || self.begin_dashboard());
        }
    }

    fn begin_dashboard(self: &Rc<Self>) -> std::io::Result<dashboard::Dashboard> {
        let (ask, asks) = tokio::sync::mpsc::unbounded_channel();
        let me = dashboard::Me { mgr: self.me.name.clone(), host: daemon::hostname() };
        let begun = dashboard::Dashboard::start(self.modules_config.clone(), me, ask)?;
        tokio::task::spawn_local(mgr_dashboard::ask_for(self.cluster().clone(), asks));
        let (weak, told) = (Rc::downgrade(self), begun.clone());
        tokio::task::spawn_local(async move {
            loop {
                told.changed().await;
                let Some(this) = weak.upgrade() else { return };
                this.send_beacon();
            }
        });
        Ok(begun)
    }

    // ----- commands -----

    fn forget(&self, conn: ConnId) {
        self.peers.borrow_mut().remove(&conn);
        self.services.borrow_mut().forget(conn);
    }

    fn on_message(self: &Rc<Self>, conn: ConnId, env: &Envelope) -> Result<(), denc::DecodeError> {
        let Some(peer) = self.peers.borrow().get(&conn).cloned() else { return Ok(()) };
        let now = types::UTime::from_nanos(rt::now().wall_ns);
        match env.kind {
            MgrCommand::KIND => {
                let msg = MgrCommand::decode(env)?;
                self.on_command(Caller::Mgr(conn, env.tid), &peer, &msg.cmd, &msg.input);
            }
            Command::KIND => {
                let msg = Command::decode(env)?;
                self.on_command(Caller::Tell(conn, env.tid), &peer, &msg.cmd, &msg.input);
            }
            MgrOpen::KIND => {
                let msg = MgrOpen::decode(env)?;
                if let Some((metadata, status)) = msg.registered
                    && !msg.service.is_empty()
                    && self.services.borrow().len() < SERVICES_MAX
                {
                    let start_epoch =
                        self.cluster().newest_map().map_or_else(Default::default, |m| m.epoch);
                    let daemon = maps::ServiceDaemon {
                        gid: peer.info.global_id,
                        addr: peer.info.addrs.front(),
                        start_epoch,
                        start_stamp: now,
                        metadata,
                        ..maps::ServiceDaemon::default()
                    };
                    let mut services = self.services.borrow_mut();
                    services.register(conn, msg.service, msg.daemon, daemon, status, now);
                }
                let configure =
                    MgrConfigure { stats_period_s: REPORT_S, stats_threshold: THRESHOLD };
                self.send(conn, env.tid, &configure);
            }
            MgrReport::KIND => match MgrReport::decode(env) {
                Ok(msg) => self.services.borrow_mut().report(conn, msg.status, now),
                Err(err) => tracing::debug!("a daemon's report: {err}"),
            },
            MgrClose::KIND => {
                let msg = MgrClose::decode(env)?;
                self.services.borrow_mut().forget(conn);
                self.send(conn, env.tid, &msg);
            }
            kind => tracing::debug!("message {kind:#x} is not for managers"),
        }
        Ok(())
    }

    fn send<M: Message>(&self, conn: ConnId, tid: u64, message: &M) {
        let Some(features) = self.peers.borrow().get(&conn).map(|p| p.info.features) else {
            return;
        };
        self.messenger.send(conn, message.envelope(features).with_tid(tid));
    }

    fn answer(&self, caller: &Caller, reply: Reply) {
        match caller {
            Caller::Mgr(conn, tid) => {
                let ack = MgrCommandReply { r: reply.r, rs: reply.rs, output: reply.out };
                self.send(*conn, *tid, &ack);
            }
            Caller::Tell(conn, tid) => {
                let ack = CommandReply { r: reply.r, rs: reply.rs, output: reply.out };
                self.send(*conn, *tid, &ack);
            }
        }
    }

    fn on_command(self: &Rc<Self>, caller: Caller, peer: &Peer, cmd: &[Bytes], input: &Bytes) {
        let refuse = |reply: Reply| self.answer(&caller, reply);
        let mut args = match cli::Args::parse(cmd) {
            Ok(args) => args,
            Err(e) if e.is_about_prefix() => {
                return refuse(mon::no_handler(&peer.info, &peer.caps, ""));
            }
            Err(e) => return refuse(Reply::err(Errno::INVAL.0.abs(), e.to_string())),
        };
        if matches!(caller, Caller::Tell(..)) && args.prefix() == "get_command_descriptions" {
            return refuse(self.own_command(&args.to_json()));
        }
        if matches!(caller, Caller::Tell(..)) {
            let own = OWN_COMMANDS.iter().chain(commands::COMMON);
            if own.into_iter().any(|spec| spec.name == args.prefix()) {
                // The daemon's own: options, counters.
                if !peer.caps.is_allow_all() {
                    tracing::warn!(entity = %peer.info.name, "denied: a command");
                    return refuse(Reply::err(Errno::ACCES.0.abs(), "access denied"));
                }
                return refuse(self.own_command(&args.to_json()));
            }
        }
        if args.prefix() == "get_command_descriptions" {
            let quincy = peer.info.features.has(Features::SERVER_QUINCY);
            return refuse(Reply { out: cli::descriptions(quincy).into(), ..Reply::default() });
        }
        if self.stage.get() != Stage::Active {
            let why = format!("mgr.{} is not the active manager", self.me.name);
            return refuse(Reply::err(Errno::AGAIN.0.abs(), why));
        }
        let known = match mon::judge_at_mgr(&peer.info, &peer.caps, &args) {
            Ok(known) => known,
            Err(reply) => return refuse(reply),
        };
        if self.under_way.get() >= COMMANDS_MAX {
            let why = "too many commands are under way: ask again";
            return refuse(Reply::err(Errno::AGAIN.0.abs(), why));
        }
        // Nothing is done by words that were not judged.
        args.keep_known(&known.sig);
        let ask = MgrCaller {
            name: peer.info.name.clone(),
            addr: peer.info.addrs.front(),
            caps: peer.caps.clone(),
            wants: mon::rights(known.perm),
        };
        let (this, input) = (self.clone(), input.clone());
        self.under_way.set(self.under_way.get() + 1);
        tokio::task::spawn_local(async move {
            let reply = match cli::runs_in_module(args.prefix()) {
                true => this.module_command(args, ask, input).await,
                false => this.ask_monitors(&args, input).await,
            };
            this.under_way.set(this.under_way.get() - 1);
            this.answer(&caller, reply);
        });
    }

    /// What the leading monitor answers: the state that the command is about is there. It takes the
    /// word of the active manager that the caller may run it.
    async fn ask_monitors(&self, args: &cli::Args, input: Bytes) -> Reply {
        match self.cluster().mon_command(&args.to_json(), input).await {
            Ok((r, rs, out)) => Reply { r, rs, out },
            Err(err) => Reply::err(Errno::AGAIN.0.abs(), format!("the monitors: {err}")),
        }
    }

    async fn module_command(&self, args: cli::Args, caller: MgrCaller, input: Bytes) -> Reply {
        if args.prefix().starts_with("dashboard ") {
            let is_on = self.map.borrow().modules.contains("dashboard");
            let from = dashboard::commands::Caller { name: caller.name, addr: caller.addr };
            return self.dashboard.command(is_on, args, input, from).await;
        }
        if let Some(text) = self.metrics.command(&args, &self.map.borrow()) {
            return text;
        }
        let Some(modules) = self.modules.borrow().clone() else {
            return Reply::err(Errno::AGAIN.0.abs(), "the modules are not running yet: ask again");
        };
        let has_images = |p: &maps::PgPool| p.application_metadata.contains_key("rbd");
        let map = self.cluster().newest_map();
        let is_of_volumes = cli::is_of_volumes(args.prefix());
        if !is_of_volumes && !map.is_some_and(|map| map.pools.values().any(has_images)) {
            return reply_of(mgr::Modules::nothing(&args));
        }
        let may = move |pool: &str, nspace: &str| caller.may("rbd_support", pool, nspace);
        reply_of(modules.command(args, Box::new(may)).await)
    }

    /// A command for a module, that came to the monitors.
    fn on_ask(self: &Rc<Self>, env: &Envelope) {
        let Ok(ask) = ManagerAsk::decode(env) else { return };
        let (this, tid) = (self.clone(), env.tid);
        tokio::task::spawn_local(async move {
            let reply = match cli::Args::parse(&ask.cmd) {
                Ok(args) if this.stage.get() == Stage::Active => {
                    let caller = MgrCaller {
                        name: ask.name,
                        addr: ask.addr,
                        caps: MgrCap::parse_lenient(&ask.caps),
                        wants: mon::rights(&ask.perm),
                    };
                    this.module_command(args, caller, ask.input).await
                }
                Ok(_) => Reply::err(Errno::AGAIN.0.abs(), "the manager has just begun: ask again"),
                Err(err) => Reply::err(Errno::INVAL.0.abs(), err.to_string()),
            };
            let answer = MgrCommandReply { r: reply.r, rs: reply.rs, output: reply.out };
            this.cluster().send_mon(answer.envelope(Features::ALL).with_tid(tid));
        });
    }

    fn own_command(&self, text: &str) -> Reply {
        let (prefix, args) = match commands::parse(text) {
            Ok(parsed) => parsed,
            Err((errno, why)) => return Reply::err(errno.0.abs(), why),
        };
        let common = {
            let mut config = self.config.borrow_mut();
            commands::common(&mut config, "mgr", OWN_COMMANDS, &prefix, &args)
        };
        let done = match (common, &*prefix) {
            (Some(done), _) => done,
            (None, "status" | "mgr_status") => Ok((String::new(), self.status())),
            (None, _) => commands::counters(&prefix, &args, &[daemon::process()])
                .map(|told| (String::new(), told))
                .ok_or_else(|| (Errno::INVAL, "command not known".to_owned())),
        };
        match done {
            Ok((rs, value)) => Reply { r: 0, rs, out: commands::render(&value, &args) },
            Err((errno, why)) => Reply::err(errno.0.abs(), why),
        }
    }

    fn status(&self) -> Value {
        let map = self.map.borrow();
        let state = match self.stage.get() {
            Stage::Standby => "standby",
            Stage::Starting => "starting",
            Stage::Active => "active",
        };
        json!({
            "cluster_fsid": self.me.fsid.to_string(),
            "id": self.cluster().global_id(),
            "name": self.me.name,
            "state": state,
            "active_name": map.active_name,
            "mgrmap_epoch": map.epoch.0,
            "osdmap_epoch": self.cluster().newest_map().map_or(0, |m| m.epoch.0),
            "services": self.services(),
            "uptime": (rt::now().mono_ms() - self.me.started_ms) as f64 / 1000.0,
        })
    }
}

/// What a module answers, as commands are answered.
pub fn reply_of(answer: mgr::Answer) -> Reply {
    Reply { r: answer.r, rs: answer.rs, out: answer.out }
}

async fn run(config: Config, id: String) -> Result<()> {
    daemon::require_security(&config)?;
    let fsid = daemon::fsid(&config)?;
    let name = EntityName::new(EntityKind::MGR, &*id);
    // One that comes back on the same port is another: its predecessor may be blocklisted.
    let nonce = rt::OsRandom.u64() as u32;
    let doors = Doors::new(&config, EntityId::new(EntityKind::MGR, -1), nonce);
    let modes = rados::modes(&config.get(key::MS_SERVICE_MODE));
    let messenger = doors.messenger(&modes, |_| Policy::stateless_server());
    let ip = daemon::address(&config, "public")?;
    let (addrs, at) = bind(&messenger, ip, v1_rules(&config))?;
    let services = vec![EntityKind::MON, EntityKind::OSD, EntityKind::MGR];
    let link = daemon::link_config(&config, name.clone(), services)?;
    let mut metadata = daemon::metadata();
    metadata.insert("addr".to_owned(), ip.to_string());
    metadata.insert("addrs".to_owned(), addrs.to_string());
    let modules_config = rados::Config {
        name,
        key: link.key.clone(),
        mons: link.mons.clone(),
        methods: link.methods.clone(),
        mon_modes: link.mon_modes.clone(),
        modes: rados::modes(&config.get(key::MS_CLIENT_MODE)),
        connect_timeout: Duration::from_secs(10),
    };
    let started_ms = rt::now().mono_ms();
    let daemon = Rc::new(Daemon {
        me: Identity { name: id.clone(), fsid, addrs, ip, metadata, started_ms },
        messenger: messenger.clone(),
        cluster: OnceCell::new(),
        modules_config,
        config: RefCell::new(config.clone()),
        stage: Cell::new(Stage::Standby),
        map: RefCell::default(),
        peers: RefCell::default(),
        services: RefCell::default(),
        modules: RefCell::default(),
        metrics: Metrics::new(Web::default()),
        dashboard: mgr_dashboard::Module::default(),
        under_way: Cell::default(),
        has_settings: Cell::default(),
        respawns: Cell::default(),
        stop: Notify::new(),
    });
    node::join(&daemon, &messenger, link, doors.keys());
    let (ask, mut asked) = tokio::sync::mpsc::channel::<Asked>(16);
    asok::listen(Path::new(&config.get(key::ADMIN_SOCKET)), ask)?;
    daemon::write_pid(&config)?;
    daemon.cluster().start(&["mgrmap", "config"]);
    tracing::info!("mgr.{id} listens at {at}");

    let period = config.get(key::MGR_TICK_PERIOD);
    let period = if period > 0.0 { period.clamp(0.2, 10.0) } else { BEACON_S };
    let mut tick = tokio::time::interval(Duration::from_secs_f64(period));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut stop = std::pin::pin!(rt::told_to_stop());
    loop {
        tokio::select! {
            _ = tick.tick() => daemon.send_beacon(),
            Some(one) = asked.recv() => {
                let reply = daemon.own_command(&one.command);
                one.answer.send(local_text(reply.r, &reply.rs, reply.out)).ok();
            }
            () = daemon.stop.notified() => break,
            told = &mut stop => {
                told?;
                break;
            }
        }
    }
    let modules = daemon.modules.borrow().clone();
    if let Some(modules) = modules {
        modules.end().await;
    }
    tracing::info!("mgr.{id} ends");
    Ok(())
}
