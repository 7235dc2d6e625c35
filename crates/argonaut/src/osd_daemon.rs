//! `argonaut osd`: the OSD role with sockets, clock, store, monitor session and admin
//! socket.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use conf::{Config, Source, key};
use daemon::asok::{self, Asked};
use daemon::{ClusterLog, Doors, FEATURES, bind, local_text, private, proven_id, v1_rules};
use env::ConnId;
use messages::{ClassModules, ConfigMsg, Envelope, LogPriority, Message, MonMapMsg, OsdMapMsg};
use osd::{DataCache, Door, Effect, Identity, Osd, Outbox, PeerInfo, StoreBacking};
use rados::MonLink;
use rt::{Messenger, NetEvent, Policy};
use store::{LogPlacement, OpenOptions, Store};
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use types::{AddrVec, Denc, EntityAddr, EntityId, EntityKind, EntityName, Epoch, OsdId};

use crate::lines::{Line, Lines, Way};
use crate::{device, memory, osd_mkfs};

/// Connections of other daemons to the cluster address are told apart by this bit.
const CLUSTER: u64 = 1 << 63;
/// So many transactions are written at once, without waiting for more.
const KICK_AT: u64 = 16;
/// And so are those of a message with so much data.
const KICK_BYTES: usize = 64 << 10;
/// Data of fewer bytes is summed as it leaves, whether or not its sums are known.
const KNOWN_MIN: usize = 64 << 10;
/// How long stopping may take.
const STOP_MAX: Duration = Duration::from_secs(5);

/// Runs one OSD until it is told to stop.
///
/// # Errors
/// When the options, the data or the addresses do not allow it.
pub fn main(config: Config, id: &str) -> Result<()> {
    let number = osd_mkfs::number(id)?;
    daemon::start_log(&config)?;
    private::tighten_dir(Path::new(&config.get(key::OSD_DATA)));
    rt::run_local(run(config, number))?
}

struct Daemon {
    id: i32,
    osd: RefCell<Osd>,
    public: Messenger,
    cluster: Messenger,
    link: RefCell<MonLink>,
    lines: RefCell<Lines>,
    log: ClusterLog,
    config: RefCell<Config>,
    cache: DataCache,
    /// The map whose PGs `cache` was told of.
    cached_epoch: std::cell::Cell<Epoch>,
    asked: RefCell<HashMap<u64, tokio::sync::oneshot::Sender<Vec<u8>>>>,
    out: RefCell<Outbox>,
    memory: RefCell<memory::Watch>,
}

/// Where a line goes by a map; `None` where the map has its OSD down.
fn line_addrs(map: &maps::OsdMap, line: Line) -> Option<&AddrVec> {
    let osd = line.osd();
    if !map.is_up(osd) {
        return None;
    }
    match line {
        Line::Peer(_) => map.osd_cluster_addrs(osd),
        Line::Beat(_, back) => map.osd_hb_addrs(osd).map(|(b, f)| if back { b } else { f }),
    }
}

impl Daemon {
    /// Calls the role and does what it wants.
    fn with<T>(&self, call: impl FnOnce(&mut Osd, &mut Outbox) -> T) -> T {
        let mut out = self.out.take();
        let mut osd = self.osd.borrow_mut();
        let value = call(&mut osd, &mut out);
        if osd.unkicked() >= KICK_AT {
            osd.kick_store();
        }
        drop(osd);
        for effect in out.drain() {
            self.carry_out(effect);
        }
        self.cache.let_go();
        *self.out.borrow_mut() = out; // keeps its memory
        value
    }

    fn carry_out(&self, mut effect: Effect) {
        if let Effect::Conn(_, env) | Effect::Osd(_, env) = &mut effect
            && env.data.len() >= KNOWN_MIN
        {
            env.data_sums = self.cache.sums_of(&env.data);
        }
        match effect {
            Effect::Conn(conn, env) => {
                if conn.0 & CLUSTER != 0 {
                    self.cluster.send(ConnId(conn.0 & !CLUSTER), env);
                } else {
                    self.public.send(conn, env);
                }
            }
            Effect::Osd(osd, env) => self.send_line(Line::Peer(osd), env),
            Effect::Heartbeat { osd, back, envelope } => {
                self.send_line(Line::Beat(osd, back), envelope)
            }
            Effect::Mon(env) => self.link.borrow_mut().send(env),
            Effect::SubscribeMaps(from) => {
                let events = self
                    .link
                    .borrow_mut()
                    .with(|c, out| c.subscribe("osdmap", u64::from(from.0), false, out));
                debug_assert!(events.is_empty(), "subscribing answers later");
            }
            Effect::Close(conn) => {
                if conn.0 & CLUSTER != 0 {
                    self.cluster.close(ConnId(conn.0 & !CLUSTER));
                } else {
                    self.public.close(conn);
                }
            }
            Effect::Admin { id, r, rs, output } => {
                if let Some(answer) = self.asked.borrow_mut().remove(&id) {
                    answer.send(local_text(r, &rs, output)).ok();
                }
            }
            Effect::ClusterLog { error, text } => {
                self.cluster_log(if error { LogPriority::ERROR } else { LogPriority::WARN }, text);
            }
        }
    }

    fn cluster_log(&self, prio: LogPriority, msg: String) {
        let rank = EntityId::new(EntityKind::OSD, i64::from(self.id));
        let log = self.log.line(rank, self.public.local().addrs.clone(), prio, msg);
        self.link.borrow_mut().send(log);
    }

    /// The connection of a line to its address in the newest map; `None` while the OSD is
    /// down or left alone.
    fn line(&self, line: Line) -> Option<ConnId> {
        let to = line_addrs(self.osd.borrow().map(), line)?.clone();
        let mut lines = self.lines.borrow_mut();
        match lines.way(line, &to, rt::now().mono_ms()) {
            Way::Over(conn) => return Some(conn),
            Way::Paused => return None,
            Way::Dial { close: Some(old) } => self.cluster.close(old),
            Way::Dial { close: None } => {}
        }
        let redial = self.link.borrow().redial(EntityKind::OSD);
        let policy = Policy::lossy_client().with_budget(256 << 20);
        let conn = match line {
            Line::Peer(_) => self.cluster.connect_near(to.clone(), EntityKind::OSD, policy, redial),
            Line::Beat(..) => self.cluster.connect(to.clone(), EntityKind::OSD, policy, redial),
        };
        lines.dialled(line, conn, to);
        Some(conn)
    }

    fn send_line(&self, line: Line, env: Envelope) {
        if let Some(conn) = self.line(line) {
            self.cluster.send(conn, env);
        }
    }

    /// Keeps the books when a connection that this OSD made opens or ends. The role hears
    /// of both too: answers come over it.
    fn on_line(&self, event: &NetEvent) {
        match event {
            NetEvent::Opened { conn, .. } => self.lines.borrow_mut().opened(*conn),
            NetEvent::Closed { conn, why } => {
                let now = rt::now();
                let Some(ended) = self.lines.borrow_mut().closed(*conn, now.mono_ms()) else {
                    return;
                };
                let osd = ended.line.osd();
                tracing::debug!("to osd.{osd}: {why}");
                let refused = *why == rt::CloseWhy::Io(std::io::ErrorKind::ConnectionRefused);
                match ended.line {
                    Line::Peer(_) if ended.opened => {
                        self.with(|role, out| role.on_osd_reset(now, osd, out));
                    }
                    // A killed OSD may have nothing sent to it but heartbeats.
                    _ if refused => self.with(|role, out| role.on_refused(now, osd, out)),
                    Line::Beat(..) => {
                        let look = self.lines.borrow_mut().looks_again(&ended, now.mono_ms());
                        if look {
                            self.line(ended.line);
                        }
                    }
                    Line::Peer(_) => {}
                }
            }
            _ => {} // messages need no look-up
        }
    }

    /// Who is at the other end, as its ticket proves: an OSD by the name of its key, all
    /// others by the number that the monitors gave. On a connection made here it is whom
    /// was dialled.
    fn who(&self, conn: ConnId, at_cluster: bool, peer: &rt::Peer) -> EntityId {
        if peer.outgoing {
            let line = self.lines.borrow().of(conn).filter(|_| at_cluster);
            return line.map_or(peer.id, |l| EntityId::new(EntityKind::OSD, i64::from(l.osd().0)));
        }
        proven_id(&peer.identity)
    }

    fn on_event(&self, event: NetEvent, at_cluster: bool) {
        if at_cluster {
            self.on_line(&event);
        }
        let shift = |conn: ConnId| if at_cluster { ConnId(conn.0 | CLUSTER) } else { conn };
        let now = rt::now();
        match event {
            NetEvent::Opened { conn, peer } => {
                let info = PeerInfo {
                    who: self.who(conn, at_cluster, &peer),
                    name: peer.identity.name.clone(),
                    addr: peer.addrs.front(),
                    from: peer.seen_addr(),
                    features: peer.features,
                    caps: peer.identity.caps.clone(),
                    // Without authentication, or where this OSD dialled: nothing is asked of it
                    // there. What a key is named says nothing of what it may do.
                    allow_all: peer.identity.allow_all || peer.outgoing,
                    door: if at_cluster { Door::Cluster } else { Door::Public },
                };
                let mut osd = self.osd.borrow_mut();
                osd.on_open(shift(conn), info);
                if let Some(load) = osd.load_of(shift(conn)) {
                    let messenger = if at_cluster { &self.cluster } else { &self.public };
                    let gate = move |unread, held| load.is_full(unread, held);
                    messenger.set_gate(conn, Box::new(gate));
                }
            }
            NetEvent::Message { conn, env, .. } => {
                if env.kind == messages::MOsdOp::KIND || !env.data.is_empty() {
                    self.memory.borrow_mut().worked(now.mono_ms(), env.data.len() as u64);
                }
                let large = env.data.len() >= KICK_BYTES;
                if let Some(sums) = &env.data_sums {
                    self.cache.note_sums(&env.data, sums);
                }
                self.with(|osd, out| {
                    osd.on_message(now, shift(conn), env, out);
                    if large {
                        osd.kick_store();
                    }
                });
            }
            NetEvent::Closed { conn, .. } => self.osd.borrow_mut().on_closed(shift(conn)),
            NetEvent::Alive { .. } => {}
        }
    }

    fn on_mon_events(&self, events: Vec<monc::Event>) {
        for event in events {
            match event {
                monc::Event::Opened => self.with(|osd, out| osd.on_mon_session(rt::now(), out)),
                monc::Event::Message(env) => match env.kind {
                    ConfigMsg::KIND => self.on_settings(&env),
                    MonMapMsg::KIND => self.on_monmap(&env),
                    _ => {
                        self.with(|osd, out| osd.on_mon_message(rt::now(), &env, out));
                        if env.kind == ClassModules::KIND {
                            let have = self.osd.borrow().classes_version();
                            let events = self.link.borrow_mut().with(|c, _| c.got("cls", have));
                            debug_assert!(events.is_empty(), "noting a version sends nothing");
                        }
                        if env.kind == OsdMapMsg::KIND {
                            let have = self.osd.borrow().map().epoch;
                            let events = self
                                .link
                                .borrow_mut()
                                .with(|c, _| c.got("osdmap", u64::from(have.0)));
                            debug_assert!(events.is_empty(), "noting a version sends nothing");
                            self.on_new_map();
                        }
                    }
                },
                monc::Event::Answer { envelope, .. } => {
                    self.with(|osd, out| osd.on_mon_message(rt::now(), &envelope, out));
                }
                monc::Event::RenewalFailed(err) => tracing::warn!("tickets: {err}"),
                monc::Event::Command { .. } | monc::Event::Version { .. } => {}
            }
        }
    }

    /// Tells the cache which PGs are read here by the newest map: those that are led.
    fn on_new_map(&self) {
        let osd = self.osd.borrow();
        let epoch = osd.map().epoch;
        if self.cached_epoch.replace(epoch) == epoch {
            return;
        }
        self.cache.set_read_here(osd.leads().collect());
        let map = osd.map();
        let gone = self.lines.borrow_mut().leave(|line, to| line_addrs(map, line) == Some(to));
        drop(osd);
        for (line, conn) in gone {
            self.cluster.close(conn);
            if let Line::Peer(osd) = line {
                self.with(|role, out| role.on_osd_reset(rt::now(), osd, out));
            }
        }
    }

    /// New values from the monitors' database.
    fn on_settings(&self, env: &Envelope) {
        if daemon::node::take_settings(&self.config, env) {
            self.osd.borrow_mut().on_config(self.config.borrow().clone());
        }
    }

    fn on_monmap(&self, env: &Envelope) {
        let Ok(message) = MonMapMsg::decode(env) else { return };
        if let Ok(map) = maps::MonMap::from_bytes(&message.monmap) {
            let addrs: Vec<EntityAddr> =
                map.mons.values().filter_map(|m| m.addrs.msgr2()).collect();
            let events = self.link.borrow_mut().with(|c, _| c.set_mons(addrs, map.epoch));
            debug_assert!(events.is_empty(), "addresses are used when needed");
        }
    }

    /// What became durable; whether the store still works.
    fn on_store(&self) -> Result<()> {
        self.with(|osd, out| osd.poll_store(rt::now(), out)).context("the store")
    }

    fn tick(&self) {
        let now = rt::now();
        let events = self.link.borrow_mut().on_tick(now);
        self.on_mon_events(events);
        let due = self.lines.borrow_mut().due(now.mono_ms());
        for osd in due {
            self.with(|role, out| role.on_osd_reset(now, osd, out));
        }
        if let Some(load) = load_per_cpu() {
            self.with(|osd, _| osd.on_load(load));
        }
        self.with(|osd, out| osd.on_tick(now, out));
        self.on_new_map(); // maps also come from other OSDs
        self.look_at_memory(now.mono_ms());
    }

    /// Near the limit, and without work for long, freed memory is not kept for later; without
    /// work for a moment, it is taken for what the cache wanted to keep. Near the limit and without
    /// work for a while, large changes in the store's memory are written to their places: no write
    /// may come that makes the next checkpoint due.
    fn look_at_memory(&self, now_ms: u64) {
        let target = self.config.borrow().get(key::OSD_MEMORY_TARGET);
        let Ok(resident) = memory::resident() else { return };
        let mut watch = self.memory.borrow_mut();
        if watch.idle_ms(now_ms) >= SPILL_IDLE_MS || resident > target / 4 * 3 {
            self.with(|osd, _| osd.spill(target / 32));
        }
        if watch.is_due(now_ms, resident, target) {
            self.cache.give_memory();
            memory::give_back();
        } else if watch.idle_ms(now_ms) >= 100 && resident < target / 4 * 3 {
            self.cache.take_memory(TAKEN_WHEN_IDLE);
        }
    }
}

/// Without work for so long, changes in the store's memory are written to their places, in ms.
const SPILL_IDLE_MS: u64 = 1_000;

/// Bytes of memory that the cache may take in a tick without work: some 5 ms.
const TAKEN_WHEN_IDLE: usize = 8 << 20;

/// Tasks that ran or waited for the disk in the last minute, for each CPU.
fn load_per_cpu() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    let load: f64 = text.split_whitespace().next()?.parse().ok()?;
    static CPUS: std::sync::LazyLock<f64> = std::sync::LazyLock::new(|| {
        std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64)
    });
    Some(load / *CPUS)
}

/// Something that nobody is woken for is done in one of the store's rings.
async fn some_done(rings: &[AsyncFd<OwnedFd>]) {
    std::future::poll_fn(|cx| {
        let mut some = Poll::Pending;
        for ring in rings {
            match ring.poll_read_ready(cx) {
                // Before it is taken: what comes later is told anew.
                Poll::Ready(Ok(mut ready)) => {
                    ready.clear_ready();
                    some = Poll::Ready(());
                }
                Poll::Ready(Err(e)) => tracing::error!("watching the store's rings: {e}"),
                Poll::Pending => {}
            }
        }
        some
    })
    .await;
}

async fn run(mut config: Config, id: i32) -> Result<()> {
    memory::keep();
    daemon::require_security(&config)?;
    let name = EntityName::new(EntityKind::OSD, id.to_string());
    let data = PathBuf::from(config.get(key::OSD_DATA));
    let fsid = daemon::fsid(&config)?;
    let block = data.join("block");
    if !block.exists() {
        bail!(
            "{} holds no OSD. If osd.{id} is of the cluster and its data is lost: argonaut osd replace \
             {id}; a new one: argonaut osd new",
            data.display()
        );
    }
    let written = Arc::new(Notify::new());
    let waker = written.clone();
    let open = OpenOptions {
        fsid: Some(fsid),
        osd: Some(OsdId(id)),
        waker: Box::new(move || waker.notify_one()),
        gather: true,
        discard: config.get(key::BDEV_ENABLE_DISCARD),
        checkpoint_bytes: config.get(key::OSD_MEMORY_TARGET) / 32,
        // What is cached of metadata; object data has a cache of its own.
        onode_cache_bytes: config.get(key::OSD_MEMORY_TARGET) / 32,
        table_cache_bytes: config.get(key::OSD_MEMORY_TARGET) / 64,
        ..OpenOptions::default()
    };
    let mut store = Store::open(&block, open).with_context(|| block.display().to_string())?;
    // SAFETY: the descriptor is owned by what watches it, and closed with that.
    #[allow(unsafe_code)]
    let watch = |fd| unsafe { AsyncFd::register(fd) };
    let rings = store.ring_fds().into_iter().map(watch).collect::<Result<Vec<_>, _>>();
    let rings = rings.context("watching the store's rings")?;
    let uuid = store.identity().2;
    let device_bytes = store.statfs().total;
    let journal = store.log_placement();
    if journal == LogPlacement::Memory {
        tracing::warn!("the store's log is in memory: a crash loses acknowledged writes");
    }

    let doors =
        Doors::new(&config, EntityId::new(EntityKind::OSD, i64::from(id)), std::process::id());
    let modes = |option: conf::Key<key::Str>| rados::modes(&config.get(option));
    let public = doors.messenger(&modes(key::MS_SERVICE_MODE), |_| Policy::stateless_server());
    let cluster = doors.messenger(&modes(key::MS_CLUSTER_MODE), |_| {
        Policy::stateless_server().with_budget(256 << 20)
    });
    let (client_addrs, _) = bind(&public, daemon::address(&config, "public")?, v1_rules(&config))?;
    let (cluster_addrs, at) = bind(&cluster, daemon::address(&config, "cluster")?, None)?;
    cluster.listen_near(at);

    let mut metadata = daemon::metadata();
    metadata.extend([
        (key::OSD_DATA.name().to_owned(), data.display().to_string()),
        ("osd_journal_placement".to_owned(), journal.name().to_owned()),
        ("front_iface".to_owned(), daemon::interface_of(&client_addrs)),
        ("back_iface".to_owned(), daemon::interface_of(&cluster_addrs)),
        ("front_addr".to_owned(), client_addrs.to_string()),
        ("back_addr".to_owned(), cluster_addrs.to_string()),
        ("hb_front_addr".to_owned(), cluster_addrs.to_string()),
        ("hb_back_addr".to_owned(), cluster_addrs.to_string()),
    ]);
    metadata.extend(device::store_metadata(&block, device_bytes, journal == LogPlacement::Own));
    metadata.extend(daemon::made(&data));
    let mut device_class = String::new();
    if let Some(rotates) = device::rotates(&block) {
        let class = device::class(rotates).to_owned();
        metadata.insert("default_device_class".to_owned(), class.clone());
        if config.get(key::OSD_CLASS_UPDATE_ON_START) {
            device_class = class;
        }
    }
    let location = config.get(key::CRUSH_LOCATION);
    let location = location.split_whitespace().filter_map(|w| w.split_once('='));
    let identity = Identity {
        whoami: OsdId(id),
        fsid,
        uuid,
        client: client_addrs.clone(),
        cluster: cluster_addrs.clone(),
        hb_front: cluster_addrs.clone(),
        hb_back: cluster_addrs,
        metadata,
        features: FEATURES.0,
        device_bytes,
        device_class,
        location: location.map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
    };
    let services = vec![EntityKind::MON, EntityKind::OSD, EntityKind::MGR];
    let link = daemon::link_config(&config, name.clone(), services)?;
    let link = MonLink::new(public.clone(), link, Some(doors.keys()));
    config.set(Source::CommandLine, "host", &daemon::hostname()).map_err(anyhow::Error::msg)?;
    // A part of the memory an OSD may take is for object data. Half of it made writes slower:
    // memory that was never touched costs more than the write that fills it.
    let cache = DataCache::growing(usize::try_from(config.get(key::OSD_MEMORY_TARGET) / 4)?);
    let osd = Osd::new(identity, config.clone(), Box::new(StoreBacking::new(store, cache.clone())))
        .map_err(anyhow::Error::msg)?;
    let daemon = Rc::new(Daemon {
        id,
        osd: RefCell::new(osd),
        public: public.clone(),
        cluster: cluster.clone(),
        link: RefCell::new(link),
        lines: RefCell::default(),
        log: ClusterLog::new(fsid, name),
        config: RefCell::new(config.clone()),
        cache,
        cached_epoch: std::cell::Cell::new(Epoch(0)),
        memory: RefCell::default(),
        asked: RefCell::default(),
        out: RefCell::default(),
    });
    for (messenger, at_cluster) in [(&public, false), (&cluster, true)] {
        let to = Rc::downgrade(&daemon);
        messenger.set_handler(move |event| {
            let Some(daemon) = to.upgrade() else { return };
            if !at_cluster && daemon.link.borrow().owns(event.conn()) {
                let events = daemon.link.borrow_mut().on_event(rt::now(), event);
                return daemon.on_mon_events(events);
            }
            daemon.on_event(event, at_cluster);
        });
    }
    let (ask, mut asked) = tokio::sync::mpsc::channel::<Asked>(16);
    asok::listen(Path::new(&config.get(key::ADMIN_SOCKET)), ask)?;
    daemon::write_pid(&config)?;
    let events = daemon.link.borrow_mut().start(rt::now());
    daemon.on_mon_events(events);
    for what in ["cls", "config", "monmap"] {
        let events = daemon.link.borrow_mut().with(|c, out| c.subscribe(what, 0, false, out));
        daemon.on_mon_events(events);
    }
    daemon.with(|osd, out| osd.on_start(rt::now(), out));
    daemon.on_store()?;
    tracing::info!("osd.{id} serves at {client_addrs}");

    let to = Rc::downgrade(&daemon);
    rt::before_sleep(move || {
        let Some(daemon) = to.upgrade() else { return };
        daemon.osd.borrow_mut().kick_store();
    });
    let mut tick = tokio::time::interval(Duration::from_millis(100));
    let mut stop = std::pin::pin!(rt::told_to_stop());
    let mut stopping: Option<tokio::time::Instant> = None;
    let mut next_ask = 0u64;
    loop {
        tokio::select! {
            biased;
            () = written.notified() => daemon.on_store()?,
            () = some_done(&rings) => daemon.on_store()?,
            _ = tick.tick() => {
                daemon.tick();
                daemon.on_store()?; // a store that has refused wakes nobody
                let gone = || !daemon.osd.borrow().map().is_up(OsdId(id));
                if stopping.is_some_and(|until| gone() || tokio::time::Instant::now() > until) {
                    tracing::info!("osd.{id} ends");
                    return Ok(());
                }
            }
            Some(one) = asked.recv() => {
                next_ask += 1;
                daemon.asked.borrow_mut().insert(next_ask, one.answer);
                daemon.with(|osd, out| osd.on_admin(rt::now(), next_ask, &one.command, out));
            }
            told = &mut stop, if stopping.is_none() => {
                told?;
                tracing::info!("osd.{id} stops");
                daemon.with(|osd, out| osd.on_stop(rt::now(), out));
                stopping = Some(tokio::time::Instant::now() + STOP_MAX);
            }
        }
    }
}
