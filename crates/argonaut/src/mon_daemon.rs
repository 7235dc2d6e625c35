//! `argonaut mon`: the monitor role with sockets, clock, log and admin socket.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use auth::{CryptoKey, KeyKind, Keyring, RotatingKeys, SharedRotatingKeys};
use bytes::Bytes;
use conf::key;
use daemon::asok::{self, Asked};
use daemon::{FEATURES, local_text, private, proven_id, write_durably, write_secret};
use env::{ConnId, Random};
use maps::{MonInfo, MonMap, MonMapAuth};
use mon::known_map::KnownMap;
use mon::links::{Links, Me, PeerEvent, own_message};
use mon::{MembershipStep, Mkfs, MonConfig, Monitor, Output, PeerInfo, quorum};
use rados::{MON_PORTS, MonLink, mon_addrs, mon_members};
use rt::{Messenger, NetEvent, OsRandom, Policy};
use types::{AddrKind, AddrVec, EntityAddr, EntityKind, EntityName, UTime, Uuid};

use crate::layout::{Layout, Wanted, mgr_id, mon_id};
use crate::mgr_daemon::reply_of;
use crate::mon_peers::{self, PeerWire};

/// The release that this cluster's monitors present themselves as.
const MON_RELEASE: u8 = 18;
/// How often a monitor looks at its clocks.
const TICK: Duration = Duration::from_millis(100);
/// How often in the first moments, when the others come up too.
const TICK_FIRST: Duration = Duration::from_millis(10);
/// How long those last.
const HURRY_MS: u64 = 3_000;
/// Connections to the manager's role are told apart from the monitor's by this bit.
const AT_MGR: u64 = 1 << 63;

fn wall() -> UTime {
    UTime::from_nanos(rt::now().wall_ns)
}

fn monmap(fsid: Uuid, members: &[(String, AddrVec)], auth: MonMapAuth) -> MonMap {
    let info = |(name, addrs): &(String, AddrVec)| MonInfo {
        name: name.clone(),
        addrs: addrs.clone(),
        ..MonInfo::default()
    };
    let map = MonMap::new(fsid, wall(), MON_RELEASE, members.iter().map(info).collect());
    MonMap { auth: Some(auth), ..map }
}

/// What a new cluster takes whose keys are of a kind: the older one is taken together with the newer,
/// the newer alone, as in a new cluster of the peer's.
pub fn ciphers(kind: KeyKind) -> MonMapAuth {
    let number = i32::from(kind.0);
    match kind {
        KeyKind::AES => MonMapAuth::default(),
        _ => MonMapAuth {
            epoch: 0,
            service_cipher: number,
            allowed_ciphers: [number].into(),
            preferred_cipher: number,
        },
    }
}

/// Makes the keyrings and the monitors of a new cluster.
///
/// # Errors
/// When files cannot be written.
pub fn mkfs_cluster(
    layout: &Layout,
    fsid: Uuid,
    wanted: &Wanted,
    chance: &mut dyn Random,
) -> Result<()> {
    let admin = EntityName::new(EntityKind::CLIENT, "admin");
    let mon = EntityName::new(EntityKind::MON, "");
    let mut mkfs = Mkfs { fsid, now: wall(), chooseleaf_kind: 0, ..Mkfs::default() };
    let members: Vec<(String, AddrVec)> =
        (0..wanted.mons).map(|i| (mon_id(i), wanted.mon_addrs(i))).collect();
    mkfs.monmap = monmap(fsid, &members, ciphers(wanted.auth));
    let osds = (0..wanted.osds).map(|i| EntityName::new(EntityKind::OSD, i.to_string()));
    let servers = (0..wanted.mds).map(|i| EntityName::new(EntityKind::MDS, mon_id(i)));
    let managers = (0..wanted.mgrs).map(|i| EntityName::new(EntityKind::MGR, mgr_id(i)));
    let others: Vec<EntityName> = osds.chain(servers).chain(managers).collect();
    for name in [&mon, &admin].into_iter().chain(&others) {
        mkfs.add_key(name.clone(), CryptoKey::generate(wanted.auth, wall(), chance));
    }
    let keyring_of = |name: &EntityName| {
        let entities = mkfs.keyring.entities.get_key_value(name);
        let entities = entities.map(|(k, v)| (k.clone(), v.clone())).into_iter().collect();
        Keyring { entities }.to_string()
    };
    write_secret(&layout.dir.join("keyring"), &keyring_of(&admin))?;
    for name in &others {
        let data = layout.data(&name.to_string());
        fs::create_dir_all(&data)?;
        write_secret(&data.join("keyring"), &keyring_of(name))?;
    }
    let (founders, state) = (founders(&members), mkfs.to_state_bytes());
    let secret = keyring_of(&mon);
    let make = |node: u64, id: &str| -> Result<()> {
        let data = layout.data(&format!("mon.{id}"));
        fs::create_dir_all(&data)?;
        write_secret(&data.join("keyring"), &secret)?;
        fs::remove_file(data.join("store")).ok();
        quorum::create(&data.join("store"), node, &founders, &state)?;
        daemon::mark_made(&data, wall())?;
        write_durably(&data.join("ready"), b"")
    };
    // Each waits for the disk a few times: all at once.
    std::thread::scope(|scope| {
        let make = &make;
        let all: Vec<_> =
            founders.iter().map(|(node, id)| scope.spawn(move || make(*node, id))).collect();
        all.into_iter().try_for_each(|one| one.join().expect("it does not panic"))
    })
}

/// The monitor's options. One has no fixed default: it follows the monitor map until somebody sets it.
fn role_options(config: &conf::Config) -> BTreeMap<String, String> {
    let follows = key::MON_AUTH_ALLOW_INSECURE_KEY;
    let is_said = |name: &str| name != follows.name() || config.is_set(follows);
    let all = config.all().filter(|(name, _)| is_said(name));
    all.map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The first monitors by their numbers in the quorum.
fn founders(members: &[(String, AddrVec)]) -> BTreeMap<u64, String> {
    members.iter().enumerate().map(|(i, (name, _))| (i as u64, name.clone())).collect()
}

/// `argonaut mon --mkfs`: makes one monitor's data from ceph.conf and a keyring that holds
/// at least `mon.`.
pub fn mkfs_one(config: &conf::Config, id: &str, keyring: Option<&Path>) -> Result<()> {
    let path = keyring.context("--mkfs wants --keyring FILE with the key of mon. in it")?;
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let keyring = Keyring::parse(&text).with_context(|| path.display().to_string())?;
    if keyring.key(&EntityName::new(EntityKind::MON, "")).is_none() {
        bail!("{} holds no key of mon.", path.display());
    }
    let fsid = daemon::fsid(config)?;
    let names = config.get(key::MON_INITIAL_MEMBERS);
    let names: Vec<&str> = names.split([',', ' ']).filter(|n| !n.is_empty()).collect();
    let mut addrs = mon_members(config)?;
    if daemon::v1_rules(config).is_none() {
        addrs.iter_mut().for_each(|a| a.0.retain(|a| a.kind == AddrKind::MSGR2));
    }
    if names.len() != addrs.len() || !names.contains(&id) {
        bail!(
            "mon_initial_members ({names:?}) and mon_host ({addrs:?}) must name the same monitors, mon.{id} among them"
        );
    }
    let members = names.iter().map(|n| (*n).to_owned()).zip(addrs).collect();
    make_founder(config, id, First { fsid, members, keyring, kept: text })
}

/// A cluster that is to be.
pub struct First {
    pub fsid: Uuid,
    /// The first monitors; the first of them makes the cluster.
    pub members: Vec<(String, AddrVec)>,
    /// All keys that the cluster knows from its beginning.
    pub keyring: Keyring,
    /// The keyring of the data directory.
    pub kept: String,
}

/// Makes the data of one of the first monitors of a new cluster.
///
/// # Errors
/// When it is none of them, when there is a monitor already, or when it cannot be written.
pub fn make_founder(config: &conf::Config, id: &str, first: First) -> Result<()> {
    let First { fsid, members, keyring, kept } = first;
    let data = config.get(key::MON_DATA);
    let data = Path::new(&data);
    let rank = members.iter().position(|(name, _)| name == id);
    let rank = rank.with_context(|| format!("mon.{id} is none of the first monitors"))?;
    let chooseleaf_kind = config.get(key::OSD_CRUSH_CHOOSELEAF_TYPE) as u16;
    let mkfs = Mkfs {
        fsid,
        now: wall(),
        monmap: monmap(fsid, &members, MonMapAuth::default()),
        keyring,
        chooseleaf_kind,
        ..Mkfs::default()
    };
    fs::create_dir_all(data).with_context(|| data.display().to_string())?;
    let state = mkfs.to_state_bytes();
    // The first of them makes the cluster; the others join it when they are started, so that
    // machines which know nothing of each other begin with the same state.
    let mut founders = founders(&members);
    founders.retain(|node, _| rank == 0 && *node == 0);
    quorum::create(&data.join("store"), rank as u64, &founders, &state)?;
    write_secret(&data.join("keyring"), &kept)?;
    daemon::mark_made(data, wall())?;
    write_durably(&data.join("ready"), b"")
}

/// `argonaut mon join`: makes the data of a new monitor of a cluster that runs, and has the
/// cluster know it. The monitor is given all else when it is started.
///
/// # Errors
/// When the options do not allow it, or the cluster does not answer.
pub fn join(conf: &Path, id: &str, keyring: Option<&Path>, addr: &str) -> Result<()> {
    let config = daemon::options(conf, "mon", id)?;
    let data = config.get(key::MON_DATA);
    let data = Path::new(&data);
    if data.join("store").exists() {
        bail!("{} holds a monitor already", data.display());
    }
    let mon = EntityName::new(EntityKind::MON, "");
    let path = keyring.context("give the key of mon.: --keyring FILE")?;
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let keys = Keyring::parse(&text).with_context(|| path.display().to_string())?;
    let key = keys.key(&mon).with_context(|| format!("{}: no mon.", path.display()))?.clone();
    let mut addrs: AddrVec = addr.parse().map_err(|why| anyhow::anyhow!("{addr}: {why}"))?;
    // At the usual port, the usual one of messenger v1 goes with it.
    if let [EntityAddr { sock: Some(sock), kind: AddrKind::MSGR2, .. }] = &addrs.0[..]
        && [0, MON_PORTS[0]].contains(&sock.port())
        && daemon::v1_rules(&config).is_some()
    {
        let at = |port| (sock.ip(), port).into();
        let both = MON_PORTS.map(|port| EntityAddr::msgr2(at(port), 0));
        addrs = AddrVec(vec![both[0], both[1].with_kind(AddrKind::LEGACY)]);
    }
    let known = add(&config, id, key, mon_addrs(&config)?, &addrs)?;
    make_joiner(data, &known, keys.entities.get(&mon).cloned().unwrap_or_default())?;
    say!("mon.{id} is made in {}; start it: argonaut mon -i {id}", data.display());
    Ok(())
}

/// Has a cluster know a new monitor; returns its monitor map then, as it sends it.
///
/// # Errors
/// When the cluster does not answer, or refuses.
pub fn add(
    config: &conf::Config,
    id: &str,
    key: CryptoKey,
    mons: Vec<EntityAddr>,
    addrs: &AddrVec,
) -> Result<Bytes> {
    rt::run_local(async {
        let who = rados::Config {
            name: EntityName::new(EntityKind::MON, ""),
            key,
            mons,
            methods: vec![auth::handshake::method::CEPHX],
            mon_modes: rados::modes(&config.get(key::MS_MON_CLIENT_MODE)),
            modes: rados::modes(&config.get(key::MS_CLIENT_MODE)),
            connect_timeout: Duration::from_secs(30),
        };
        let cluster = rados::Cluster::connect(who).await?;
        let add = serde_json::json!({"prefix": "mon add", "name": id, "addr": addrs.to_string()});
        let (r, rs, _) = cluster.mon_command(&add.to_string(), Bytes::new()).await?;
        say!("{rs}");
        if r < 0 {
            bail!("mon add: {}", std::io::Error::from_raw_os_error(-r));
        }
        Ok(cluster.mon_command(r#"{"prefix":"mon getmap"}"#, Bytes::new()).await?.2)
    })?
}

/// Makes the data of a monitor that will join the cluster of this monitor map, with the key of `mon.`.
///
/// # Errors
/// When there is a monitor already, or it cannot be written.
pub fn make_joiner(data: &Path, known: &Bytes, key: auth::EntityAuth) -> Result<()> {
    let monmap = <MonMap as denc::Denc>::from_shared(known)?;
    let mut kept = Keyring::default();
    kept.entities.insert(EntityName::new(EntityKind::MON, ""), key);
    let mkfs =
        Mkfs { fsid: monmap.fsid, now: wall(), monmap, keyring: kept.clone(), ..Mkfs::default() };
    // Nobody else's: founders have small numbers, and these are many.
    let node = OsRandom.u64() | 1 << 32;
    fs::create_dir_all(data).with_context(|| data.display().to_string())?;
    write_durably(&data.join(KNOWN_MAP), known)?;
    quorum::create(&data.join("store"), node, &BTreeMap::new(), &mkfs.to_state_bytes())?;
    write_secret(&data.join("keyring"), &kept.to_string())?;
    daemon::mark_made(data, wall())?;
    write_durably(&data.join("ready"), b"")
}

/// The newest monitor map in the data of a monitor that is down.
///
/// # Errors
/// When there is no monitor, or it runs.
pub fn saved_map(data: &Path) -> Result<MonMap> {
    let store = data.join("store");
    let started = rt::run_local(async {
        let started = quorum::start(&store).await.with_context(|| store.display().to_string())?;
        started.quorum.stop().await;
        anyhow::Ok(started.state)
    })??;
    let state = <mon::ClusterState as denc::Denc>::from_shared(&started)?;
    let kept = fs::read(data.join(KNOWN_MAP)).ok().map(Bytes::from);
    let kept = kept.map(|kept| <MonMap as denc::Denc>::from_shared(&kept)).transpose()?;
    Ok(kept.filter(|kept| kept.epoch > state.monmap.epoch).unwrap_or(state.monmap))
}

/// Runs one monitor until it is told to stop.
///
/// # Errors
/// When the options, the data or the address do not allow it.
pub fn main(config: conf::Config, id: &str) -> Result<()> {
    daemon::start_log(&config)?;
    private::tighten_dir(Path::new(&config.get(key::MON_DATA)));
    rt::run_local(run(config, id.to_owned()))?
}

/// In the data directory: the newest monitor map that this monitor has seen.
pub const KNOWN_MAP: &str = "monmap";

struct Daemon {
    monitor: RefCell<Monitor>,
    known: RefCell<KnownMap>,
    quorum: quorum::Quorum,
    links: RefCell<Links>,
    wire: PeerWire,
    /// A change of the members is being made.
    changing: Cell<bool>,
    /// How clients by messenger v1 are served, and where they are already.
    v1: Option<rt::v1::Rules>,
    v1_at: Cell<Option<SocketAddr>>,
    /// Where this monitor listens in place of its address in the monitor map.
    bind_ip: Option<IpAddr>,
    started_ms: u64,
    data: PathBuf,
    /// When its room is looked at next, monotonic ms.
    disk_at_ms: Cell<u64>,
    messenger: Messenger,
    mgr: Messenger,
    mgr_keys: SharedRotatingKeys,
    auth_none: bool,
    /// Of the manager modules' connections: to monitors, to other daemons.
    modes: [Vec<u32>; 2],
    proposals: tokio::sync::mpsc::UnboundedSender<Output>,
    asked: RefCell<HashMap<u64, tokio::sync::oneshot::Sender<Vec<u8>>>>,
    /// While this monitor leads.
    modules: RefCell<Option<(mgr::Modules, auth::CryptoKey)>>,
}

impl Daemon {
    fn of(&self, conn: ConnId) -> (&Messenger, ConnId) {
        if conn.0 & AT_MGR != 0 {
            (&self.mgr, ConnId(conn.0 & !AT_MGR))
        } else {
            (&self.messenger, conn)
        }
    }

    fn on_event(self: &Rc<Self>, event: NetEvent, at_mgr: bool) {
        let now = rt::now();
        if !at_mgr && self.is_peers(&event) {
            return self.on_peers_event(now, event);
        }
        let shift = |conn: ConnId| if at_mgr { ConnId(conn.0 | AT_MGR) } else { conn };
        {
            let mut monitor = self.monitor.borrow_mut();
            match event {
                NetEvent::Opened { conn, peer } => {
                    let info = PeerInfo {
                        identity: peer.identity.clone(),
                        entity: proven_id(&peer.identity),
                        features: peer.features,
                        addrs: peer.seen_addrs(),
                        at_mgr,
                    };
                    monitor.on_opened(now, shift(conn), info);
                    let (daemon, at) = (Rc::downgrade(self), shift(conn));
                    let is_held = move || {
                        let daemon = daemon.upgrade()?;
                        let monitor = daemon.monitor.try_borrow().ok()?;
                        Some(monitor.is_held(at))
                    };
                    let gate = move |unread, held| {
                        is_behind(unread, held) || is_held().unwrap_or_default()
                    };
                    self.of(at).0.set_gate(conn, Box::new(gate));
                }
                NetEvent::Message { conn, env, .. } => monitor.on_message(now, shift(conn), &env),
                NetEvent::Closed { conn, why } => {
                    tracing::debug!("{conn:?}: {why}");
                    monitor.on_closed(now, shift(conn));
                }
                NetEvent::Alive { .. } => {}
            }
        }
        self.drain();
    }

    fn is_peers(&self, event: &NetEvent) -> bool {
        let links = self.links.borrow();
        match event {
            NetEvent::Opened { conn, peer } => {
                links.owns(*conn) || PeerWire::proves(&peer.identity)
            }
            other => links.owns(other.conn()),
        }
    }

    fn on_peers_event(self: &Rc<Self>, now: env::Now, event: NetEvent) {
        let mut wire = self.wire.clone();
        let events = match event {
            NetEvent::Opened { conn, .. } => {
                self.links.borrow_mut().on_opened(now, conn, &mut wire);
                Vec::new()
            }
            NetEvent::Message { conn, env, .. } => {
                self.links.borrow_mut().on_message(now, conn, &env, &mut wire)
            }
            NetEvent::Closed { conn, why } => {
                tracing::debug!("monitor {conn:?}: {why}");
                self.links.borrow_mut().lost(now, conn)
            }
            NetEvent::Alive { .. } => Vec::new(),
        };
        self.on_peer_events(now, events);
    }

    fn on_peer_events(self: &Rc<Self>, now: env::Now, events: Vec<PeerEvent>) {
        if events.is_empty() {
            return;
        }
        for event in events {
            let mut monitor = self.monitor.borrow_mut();
            match event {
                PeerEvent::Up(node, name) => {
                    tracing::info!("mon.{name} is there");
                    monitor.on_peer_up(now, node, &name);
                }
                PeerEvent::Dialled(node) => monitor.on_peer_dialled(now, node),
                PeerEvent::Down(node) => monitor.on_peer_down(now, node),
                PeerEvent::Says(node, says) => monitor.on_peer_says(now, node, says),
                PeerEvent::Admitted(node, sent_ms) => monitor.on_admitted(node, sent_ms),
                PeerEvent::Vitals(node, vitals) => monitor.on_vitals(now, node, vitals),
                PeerEvent::Ask(conn, tid, body) => {
                    let this = self.clone();
                    tokio::task::spawn_local(async move {
                        let answer = this.quorum.answer(&body).await;
                        if quorum::Call::admits(&answer) {
                            this.monitor.borrow_mut().on_heard(rt::now());
                        }
                        let env = own_message(mon::peer::LOG_ANSWER, tid, answer);
                        this.messenger.send(conn, env);
                    });
                }
            }
        }
        self.drain();
    }

    /// Does what the role wants.
    fn drain(self: &Rc<Self>) {
        loop {
            let wishes = self.monitor.borrow_mut().poll();
            if wishes.is_empty() {
                return;
            }
            for wish in wishes {
                match wish {
                    Output::Send { conn, env } => {
                        let (messenger, conn) = self.of(conn);
                        messenger.send(conn, env);
                    }
                    Output::Close { conn } => {
                        let (messenger, conn) = self.of(conn);
                        messenger.close(conn);
                    }
                    Output::Module { id, args, caller } => self.ask_module(id, args, caller),
                    Output::Peer { node, env } => {
                        self.links.borrow().send(node, env, &mut self.wire.clone())
                    }
                    Output::Propose { .. } | Output::Snapshot { .. } => {
                        self.proposals.send(wish).ok();
                    }
                    Output::Probe { osd, addrs } => {
                        let this = self.clone();
                        tokio::task::spawn_local(async move {
                            if mon_peers::refuses(&addrs).await {
                                this.monitor.borrow_mut().on_refused(rt::now(), osd, &addrs);
                                this.drain();
                            }
                        });
                    }
                    Output::Local { id, reply } => {
                        if let Some(answer) = self.asked.borrow_mut().remove(&id) {
                            answer.send(local_text(reply.r, &reply.rs, reply.out)).ok();
                        }
                    }
                }
            }
        }
    }

    /// What the log tells, in order.
    fn on_quorum(&self, event: quorum::Event) -> Result<()> {
        let mut monitor = self.monitor.borrow_mut();
        monitor.on_quorum(rt::now(), event)?;
        if let Some(index) = monitor.rewind_to() {
            let (state, entries, index) = self.quorum.state_after(index)?;
            monitor.on_rewound(rt::now(), index, &state, &entries)?;
        }
        Ok(())
    }

    /// Keeps what the next start must know even where it knows less of the log: the monitors' key, and
    /// the monitor map where it is newer than the one that was kept. Returns whether it was.
    fn keep_map(&self, data: &Path) -> Result<bool> {
        if let Some(key) = self.monitor.borrow().mon_key() {
            self.wire.follow_key(key, data)?;
        }
        let mut known = self.known.borrow_mut();
        known.see(&self.monitor.borrow().state().monmap);
        match known.to_save() {
            Some(bytes) => write_durably(&data.join(KNOWN_MAP), &bytes)
                .with_context(|| format!("{} cannot be written", data.join(KNOWN_MAP).display()))
                .map(|()| true),
            None => Ok(false),
        }
    }

    /// Takes this monitor's place from the newest map that names it; returns where it listens.
    fn take_place(&self, id: &str) -> Result<SocketAddr> {
        let known = self.known.borrow();
        let epoch = known.map().epoch;
        let addrs = known.addrs_of(id).with_context(|| {
            format!(
                "mon.{id} is not in the monitor map (epoch {epoch}): was it removed? `argonaut mon \
                 join -i {id}` makes a new one in an empty data directory"
            )
        })?;
        let at = addrs.msgr2().and_then(|a| a.sock);
        let at = at.context("the monitor map gives no v2 address")?;
        let rank = known.map().rank_of(id).unwrap_or(0) as i64;
        self.messenger.set_local(|local| {
            local.addrs = addrs.clone();
            local.num = rank;
        });
        Ok(at)
    }

    /// Where to listen for what comes to an address of the monitor map.
    fn door(&self, at: SocketAddr) -> SocketAddr {
        SocketAddr::new(self.bind_ip.unwrap_or(at.ip()), at.port())
    }

    /// Listens for clients by messenger v1 where the monitor map says.
    fn bind_v1(&self) -> Result<()> {
        let at = self.messenger.local().addrs.msgr1().and_then(|addr| addr.sock);
        let (Some(at), Some(rules)) = (at.map(|at| self.door(at)), self.v1) else {
            return Ok(());
        };
        if self.v1_at.get() != Some(at) {
            let why = || {
                format!(
                    "mon.{} cannot listen at {at} for clients by messenger v1: `ms_bind_msgr1 = false` \
                     in ceph.conf does without",
                    self.links.borrow().name()
                )
            };
            self.messenger.bind_v1(at, rules).with_context(why)?;
            self.v1_at.set(Some(at));
            tracing::info!("clients by messenger v1 are served at {at}");
        }
        Ok(())
    }

    /// The monitor map may have changed: takes another address of messenger v1 up. Another one of v2
    /// needs another start.
    fn keep_place(&self, id: &str) {
        let addrs = match self.known.borrow().addrs_of(id) {
            Some(addrs) if *addrs != self.messenger.local().addrs => addrs.clone(),
            _ => return,
        };
        if addrs.msgr2() != self.messenger.local().addrs.msgr2() {
            return tracing::warn!("mon.{id} is to listen at {addrs}: it will, once started anew");
        }
        self.messenger.set_local(|local| local.addrs = addrs);
        if let Err(err) = self.bind_v1() {
            tracing::error!("{}", crate::say::Why(&err));
        }
    }

    /// The quorum's own work: connections, elections, members that come and go.
    fn tick_quorum(self: &Rc<Self>) {
        let now = rt::now();
        let events = {
            self.links.borrow_mut().tick(
                now,
                self.known.borrow().map(),
                &self.quorum.members().0,
                &mut self.wire.clone(),
            )
        };
        self.on_peer_events(now, events);
        let up_ms = now.mono_ms().saturating_sub(self.started_ms);
        let elections = self.monitor.borrow_mut().elections(now, up_ms, &self.quorum.members().0);
        self.quorum.allow_elections(elections.allowed);
        if elections.begin {
            let quorum = self.quorum.clone();
            tokio::task::spawn_local(async move { quorum.elect().await });
        }
        let step = self.monitor.borrow().membership_step();
        if let Some(step) = step
            && !self.changing.replace(true)
        {
            let this = self.clone();
            tokio::task::spawn_local(async move {
                let changed = match step {
                    MembershipStep::Change(wanted) => this.change_members(&wanted).await,
                    MembershipStep::Yield(node) => this.yield_to(node).await,
                };
                if let Err(err) = changed {
                    tracing::warn!(
                        "the members of the quorum did not change: {}",
                        crate::say::Why(&err)
                    );
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                this.changing.set(false);
            });
        }
    }

    async fn yield_to(&self, node: u64) -> Result<()> {
        tracing::info!("another monitor is to lead, as this one leaves");
        if !self.quorum.yield_to(node).await? {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Ok(())
    }

    async fn change_members(&self, wanted: &BTreeMap<u64, String>) -> Result<()> {
        if !self.quorum.can_grow() {
            // The log of a monitor of the first version: what new ones are to begin with.
            self.monitor.borrow_mut().snapshot_soon();
            tokio::time::sleep(Duration::from_millis(500)).await;
            self.quorum.drop_covered().await?;
            tokio::time::sleep(Duration::from_millis(500)).await;
            if !self.quorum.can_grow() {
                bail!("the log has no beginning for a new member yet");
            }
        }
        tracing::info!("members of the quorum are to be {wanted:?}");
        Ok(self.quorum.change_members(wanted).await?)
    }

    fn tick(self: &Rc<Self>) {
        self.tick_quorum();
        self.tick_disk();
        self.monitor.borrow_mut().on_tick(rt::now());
        let secrets = self.monitor.borrow().state().auth.rotating(EntityKind::MGR).cloned();
        if let Some(secrets) = secrets {
            *self.mgr_keys.write().expect("no panic while held") = RotatingKeys::from(secrets);
        }
        self.tick_modules();
        self.drain();
    }

    /// Tells the role how much room there is.
    fn tick_disk(&self) {
        const EVERY_MS: u64 = 5_000;
        let now_ms = rt::now().mono_ms();
        if now_ms >= self.disk_at_ms.get() {
            self.disk_at_ms.set(now_ms + EVERY_MS);
            self.monitor.borrow_mut().on_disk(mon_peers::disk(&self.data));
        }
    }

    /// The manager's modules run where the manager is.
    fn tick_modules(&self) {
        let mut modules = self.modules.borrow_mut();
        let mut monitor = self.monitor.borrow_mut();
        let Some((name, key)) = monitor.module_client(rt::now()) else {
            // With a manager's process they run there.
            if !monitor.leads() || mon::managers::is_registered(&monitor.state().mgrmap) {
                *modules = None;
            }
            return;
        };
        // Modules with a key that is no longer theirs would never connect again.
        if modules.as_ref().is_some_and(|(m, with)| m.is_running() && *with == key) {
            return;
        }
        let with = key.clone();
        let mons = monitor.state().monmap.mons.values();
        let method = if self.auth_none { "none" } else { "cephx" };
        let config = rados::Config {
            name,
            key,
            mons: mons.filter_map(|m| m.addrs.msgr2()).collect(),
            methods: rados::methods(method),
            mon_modes: self.modes[0].clone(),
            modes: self.modes[1].clone(),
            connect_timeout: Duration::from_secs(10),
        };
        match mgr::Modules::start(config, false) {
            Ok(started) => *modules = Some((started, with)),
            Err(err) => tracing::error!("the manager's modules do not start: {err}"),
        }
    }

    fn ask_module(self: &Rc<Self>, id: u64, args: mgr::Args, caller: Box<auth::MgrCaller>) {
        let this = self.clone();
        tokio::task::spawn_local(async move {
            // With the first pool for images they start, a moment after it is made.
            let running = || this.modules.borrow().as_ref().map(|(modules, _)| modules.clone());
            let mut modules = running();
            for _ in 0..MODULES_TRIES {
                if modules.is_some() || !this.monitor.borrow().wants_modules() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
                modules = running();
            }
            let answer = match modules {
                Some(modules) => {
                    let may =
                        move |pool: &str, nspace: &str| caller.may("rbd_support", pool, nspace);
                    modules.command(args, Box::new(may)).await
                }
                None => mgr::Modules::nothing(&args),
            };
            this.monitor.borrow_mut().on_module_answer(rt::now(), id, reply_of(answer));
            this.drain();
        });
    }
}

/// So often, 100 ms apart, a command looks whether the modules have started.
const MODULES_TRIES: u32 = 50;

/// Bytes of answers and maps that a client or daemon has not taken: with more of them nothing is read
/// from it.
const UNREAD_MAX: usize = 32 << 20;

/// Whether a monitor reads nothing more from who has not taken so many bytes, and is `held` or not.
fn is_behind(unread: usize, held: bool) -> bool {
    unread > if held { UNREAD_MAX / 4 * 3 } else { UNREAD_MAX }
}

/// The modes that the manager's role accepts: `ms_service_mode` of the central settings, or of
/// this host's file.
fn mgr_modes(config: &conf::Config, state: &Bytes, id: &str) -> Result<Vec<u32>> {
    let state = <mon::ClusterState as denc::Denc>::from_shared(state)?;
    let name = EntityName::new(EntityKind::MGR, id);
    let set = state.config.get(&name, key::MS_SERVICE_MODE.name());
    Ok(rados::modes(&set.unwrap_or_else(|| config.get(key::MS_SERVICE_MODE))))
}

/// How clients by messenger v1 are served: not where a mode among the central settings is `secure`
/// alone either.
fn v1_rules(config: &conf::Config, state: &Bytes, id: &str) -> Result<Option<rt::v1::Rules>> {
    let state = <mon::ClusterState as denc::Denc>::from_shared(state)?;
    let name = EntityName::new(EntityKind::MON, id);
    let modes = [key::MS_MON_SERVICE_MODE, key::MS_MON_CLUSTER_MODE];
    let mut set = modes.iter().filter_map(|option| state.config.get(&name, option.name()));
    let plain = |text: String| rados::modes(&text).contains(&auth::handshake::con_mode::CRC);
    Ok(daemon::v1_rules(config).filter(|_| set.all(plain)))
}

/// The address that `public_bind_addr` names.
fn bind_ip(config: &conf::Config) -> Result<Option<IpAddr>> {
    match config.get(key::PUBLIC_BIND_ADDR).as_str() {
        "" | "-" => Ok(None),
        text => {
            let addr: EntityAddr =
                text.parse().map_err(|why| anyhow::anyhow!("public_bind_addr = {text}: {why}"))?;
            Ok(addr.sock.map(|sock| sock.ip()))
        }
    }
}

/// What a monitor tells of itself beside its address.
fn metadata(data: &Path) -> BTreeMap<String, String> {
    let mut all = daemon::metadata();
    all.extend(crate::device::metadata(data));
    all.extend(daemon::made(data));
    all.insert("compression_algorithms".into(), "none, snappy, zlib, zstd, lz4".into());
    all
}

/// The newest monitor map of a monitor's state and of what is kept beside it.
fn known_map(data: &Path, monitor: &Monitor) -> Result<KnownMap> {
    let path = data.join(KNOWN_MAP);
    let kept = match fs::read(&path) {
        Ok(bytes) => Some(Bytes::from(bytes)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
        Err(e) => return Err(e).with_context(|| path.display().to_string()),
    };
    KnownMap::new(&monitor.state().monmap, kept.as_ref())
        .with_context(|| format!("{} is damaged: remove it", path.display()))
}

async fn run(config: conf::Config, id: String) -> Result<()> {
    let data = config.get(key::MON_DATA);
    let store = Path::new(&data).join("store");
    if !store.exists() {
        bail!("{data} holds no monitor: argonaut mon --mkfs -i {id} makes one");
    }
    let started_ms = rt::now().mono_ms();
    let started = quorum::start(&store).await.with_context(|| store.display().to_string())?;
    daemon::require_security(&config)?;
    let auth_none = config.get(key::AUTH_CLUSTER_REQUIRED) == "none";
    if auth_none != (config.get(key::AUTH_SERVICE_REQUIRED) == "none") {
        bail!(
            "auth_cluster_required and auth_service_required differ: monitors do not know who is \
             a daemon before that is proven, so both are cephx or both are none"
        );
    }
    let limits = rt::Limits::within(rt::raise_open_files(), 2);
    // Where the manager's role listens has to be known before the monitor is made.
    let mgr_keys = MonLink::new_keys();
    let modes = mgr_modes(&config, &started.state, &id)?;
    let door = MonLink::door(EntityKind::MGR, mgr_keys.clone(), auth_none, &modes);
    let mgr = Messenger::new(rt::Config {
        local: rt::Local {
            kind: EntityKind::MGR,
            num: 1,
            addrs: AddrVec::default(),
            nonce: std::process::id(),
            features: FEATURES,
        },
        policy: Box::new(|_| Policy::stateless_server()),
        auth: Box::new(move |_, _| door()),
        limits,
    });
    let public = daemon::address(&config, "public")?;
    let v1 = v1_rules(&config, &started.state, &id)?;
    let (mgr_addrs, mgr_at) = daemon::bind(&mgr, public, v1).context("the manager's role")?;

    let role = MonConfig {
        name: id.clone(),
        node: started.node,
        mgr_addrs: Some(mgr_addrs),
        auth_none,
        metadata: metadata(Path::new(&data)),
        options: role_options(&config),
        kept_key: mon_peers::kept_key(Path::new(&data)),
    };
    let auth_rng: auth::SharedRandom = Arc::new(Mutex::new(OsRandom));
    let monitor = Monitor::new(role, &started.state, rt::now(), Box::new(OsRandom), auth_rng)?;
    let quorum = started.quorum;
    let (mut events, mut calls) = (started.events, started.calls);
    let doors = monitor.auth();
    let monitor_name = EntityName::new(EntityKind::MON, id.clone());
    let mon_key = monitor.mon_key().unwrap_or_default();
    let me = Me { fsid: monitor.state().fsid, node: started.node, name: id.clone() };
    let messenger = Messenger::new(rt::Config {
        local: rt::Local {
            kind: EntityKind::MON,
            num: 0,
            addrs: AddrVec::default(),
            nonce: 0,
            features: FEATURES,
        },
        policy: Box::new(|_| Policy::stateless_server()),
        auth: Box::new(move |_, _| doors.connection()),
        limits,
    });
    let known = known_map(Path::new(&data), &monitor)?;
    // What was set centrally goes before what this host's file says.
    let cluster_modes = monitor.state().config.get(&monitor_name, key::MS_MON_CLUSTER_MODE.name());
    let cluster_modes = cluster_modes.unwrap_or_else(|| config.get(key::MS_MON_CLUSTER_MODE));
    let cluster_modes = rados::modes(&cluster_modes);
    let modes = [key::MS_MON_CLIENT_MODE, key::MS_CLIENT_MODE];
    let modes = modes.map(|m| rados::modes(&config.get(m)));
    let (proposals, mut proposed) = tokio::sync::mpsc::unbounded_channel();
    let daemon = Rc::new(Daemon {
        monitor: RefCell::new(monitor),
        known: RefCell::new(known),
        quorum: quorum.clone(),
        links: RefCell::new(Links::new(me)),
        wire: PeerWire::new(id.clone(), mon_key, auth_none, cluster_modes, messenger.clone()),
        changing: Cell::new(false),
        v1,
        v1_at: Cell::new(None),
        bind_ip: bind_ip(&config)?,
        started_ms,
        data: PathBuf::from(&data),
        disk_at_ms: Cell::new(0),
        modes,
        messenger: messenger.clone(),
        mgr: mgr.clone(),
        mgr_keys,
        proposals,
        asked: RefCell::default(),
        modules: RefCell::default(),
        auth_none,
    });
    let writer = quorum.clone();
    tokio::task::spawn_local(async move {
        while let Some(wish) = proposed.recv().await {
            let done = match wish {
                Output::Propose { token, data } => writer.propose(token, data).await,
                Output::Snapshot { index, state } => writer.offer_snapshot(index, state).await,
                _ => Ok(()),
            };
            if let Err(err) = done {
                tracing::error!("the log: {err}");
                std::process::exit(1);
            }
        }
    });
    for (messenger, at_mgr) in [(&messenger, false), (&mgr, true)] {
        let to = Rc::downgrade(&daemon);
        messenger.set_handler(move |event| {
            if let Some(daemon) = to.upgrade() {
                daemon.on_event(event, at_mgr);
            }
        });
    }
    // What is known to be committed behind the saved state: it may tell where this monitor listens.
    while let Ok(event) = events.try_recv() {
        daemon.on_quorum(event)?;
    }
    daemon.keep_map(Path::new(&data))?;
    let at = daemon.take_place(&id)?;
    let at = daemon.door(at);
    messenger.bind(at).with_context(|| format!("mon.{id} cannot listen at {at}"))?;
    daemon.bind_v1()?;
    let carrier = daemon.clone();
    tokio::task::spawn_local(async move {
        while let Some(call) = calls.recv().await {
            carrier.links.borrow_mut().call(rt::now(), call, &mut carrier.wire.clone());
        }
    });
    let (ask, mut asked) = tokio::sync::mpsc::channel::<Asked>(16);
    asok::listen(Path::new(&config.get(key::ADMIN_SOCKET)), ask)?;
    daemon::write_pid(&config)?;
    tracing::info!("mon.{id} serves at {at}, the manager's role at {mgr_at}");

    let mut tick = tokio::time::interval(TICK_FIRST);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut hurried = true;
    let mut next_ask = 0u64;
    let mut stop = std::pin::pin!(rt::stop_signal());
    loop {
        tokio::select! {
            event = events.recv() => {
                let event = event.context("the log ended")?;
                daemon.on_quorum(event)?;
                while let Ok(event) = events.try_recv() {
                    daemon.on_quorum(event)?;
                }
                if daemon.keep_map(Path::new(&data))? {
                    daemon.keep_place(&id);
                }
                daemon.drain();
            }
            _ = tick.tick() => {
                daemon.tick();
                if hurried && rt::now().mono_ms() > started_ms + HURRY_MS {
                    hurried = false;
                    tick = tokio::time::interval(TICK);
                    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
                }
                if let Some(why) = quorum.failure() {
                    // Started anew it goes on, as soon as there is room again.
                    bail!("mon.{id} cannot use its store and ends: {why}");
                }
                if daemon.monitor.borrow().is_removed() {
                    tracing::info!("mon.{id} was removed from the cluster: it ends");
                    fs::remove_file(Path::new(&data).join("ready")).ok();
                    quorum.stop().await;
                    return Ok(());
                }
            }
            Some(one) = asked.recv() => {
                next_ask += 1;
                daemon.asked.borrow_mut().insert(next_ask, one.answer);
                daemon.monitor.borrow_mut().on_admin_command(
                    rt::now(), next_ask, one.command.as_bytes(), &Bytes::new());
                daemon.drain();
            }
            signal = &mut stop => {
                if signal? == rt::Stop::Reopen {
                    stop.set(rt::stop_signal()); // logs go to standard error: nothing to open
                    continue;
                }
                tracing::info!("mon.{id} ends");
                quorum.stop().await;
                return Ok(());
            }
        }
    }
}
