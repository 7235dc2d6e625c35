//! The cluster under test: OSDs, a monitor that makes maps, a client, and the wires.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use env::{ConnId, Now, Random, Seeded};
use maps::{CrushPart, Incremental, OsdMap, PgPool, PoolKind};
use messages::{
    Backoff, Envelope, MOsdOp, MOsdOpReply, Message, OsdAlive, OsdBoot, OsdFailure, OsdMapMsg,
    OsdOp, PgReadyToMerge, PgTemp, req_flag,
};
use types::{
    AddrVec, EntityAddr, EntityId, EntityKind, EntityName, Epoch, Features, HObject, ObjectLocator,
    OsdId, PgId, PoolId, ReqId, SnapId, SpgId, UTime, Uuid,
};

use store::{MkfsOptions, OpenOptions, SimDisk, Store};

use crate::memory::MemStore;
use crate::{DataCache, Door, Effect, Identity, ObjectStore, Osd, Outbox, PeerInfo, StoreBacking};

const FSID: Uuid = Uuid([7; 16]);
/// The client's connections are numbered from here, by OSD.
const CLIENT: u64 = 1 << 32;

/// Bytes of a disk, and of the smallest log that `mkfs` gives one.
const DISK: u64 = 192 << 20;
const LOG: u64 = 33 << 20;
/// How often a real store is asked after an event what is durable: that may bring more.
const POLLS: usize = 3;

/// How stores are opened that lie on disks.
pub fn on_disk() -> OpenOptions {
    OpenOptions { io_uring: false, threads: false, ..OpenOptions::default() }
}

/// A wire in one direction between two OSDs, for one life of both.
#[derive(Default)]
struct Wire {
    queue: VecDeque<Envelope>,
}

pub struct Node {
    pub osd: Option<Osd>,
    pub store: MemStore,
    nonce: u32,
    /// Counts the client's connections, so that no id is used twice.
    life: u64,
}

/// A request that was sent and not answered.
pub struct Asked {
    pub msg: MOsdOp,
    pub tid: u64,
    /// Where it was sent to.
    pub sent: Option<Target>,
}

/// The OSD that leads, since when it is up, for which PG, and at which place of the acting set it is.
type Target = (OsdId, Epoch, PgId, usize);

pub struct Cluster {
    pub nodes: Vec<Node>,
    pub map: OsdMap,
    steps: BTreeMap<Epoch, Bytes>,
    full: BTreeMap<Epoch, Bytes>,
    maps: BTreeMap<Epoch, OsdMap>,
    pub now: Now,
    pub rnd: Seeded,
    wires: BTreeMap<(usize, usize), Wire>,
    /// Counts connections of each two OSDs.
    lives: BTreeMap<(usize, usize), u64>,
    to_client: Vec<VecDeque<Envelope>>,
    pub from_client: Vec<VecDeque<Envelope>>,
    pub asked: VecDeque<Asked>,
    /// What OSDs asked the client to hold back: OSD, PG, number.
    pub backoffs: std::collections::BTreeSet<(usize, PgId, u64)>,
    /// What the client got besides answers.
    pub told: Vec<Envelope>,
    pub answers: BTreeMap<u64, MOsdOpReply>,
    pub tid: u64,
    client_epoch: Epoch,
    to_mon: VecDeque<(usize, Envelope)>,
    /// From which epoch each OSD wants maps.
    wants: Vec<Epoch>,
    pub effects_seen: Vec<Effect>,
    /// What OSDs said of when they were first up, with each wish to boot.
    pub boots: Vec<(OsdId, Epoch)>,
    /// The client's OSD capability, for connections made from now on.
    pub caps: String,
    /// `osd_max_backfills` of OSDs started from now on.
    pub backfills: usize,
    /// Further options of OSDs started from now on.
    pub options: Vec<(&'static str, &'static str)>,
    /// OSDs whose stores told them to stop.
    pub stopped: Vec<usize>,
    /// Connections that OSDs wanted closed; they are not.
    pub closed: Vec<(usize, ConnId)>,
    /// Bytes of the largest front of a message between OSDs.
    pub largest: usize,
    /// What goes from the first to the second waits.
    pub held: std::collections::BTreeSet<(usize, usize)>,
    /// Where OSDs keep their real stores; without any they have stores in memory.
    pub disks: Vec<Arc<SimDisk>>,
    /// What OSDs told each other, from whom and to whom, where that is wanted.
    pub heard: Option<Vec<(usize, usize, Envelope)>>,
}

/// Gives a pool so many PGs at once; no fewer than it has.
pub fn set_pg_num(pool: &mut PgPool, n: u32) {
    (pool.pg_num, pool.pgp_num, pool.pg_num_pending) = (n, n, n);
}

fn addr(osd: usize, nonce: u32) -> AddrVec {
    let sock = format!("127.0.0.1:{}", 6800 + osd).parse().expect("an address");
    AddrVec(vec![EntityAddr::msgr2(sock, nonce)])
}

/// Where the client is.
pub fn client_addr() -> EntityAddr {
    EntityAddr::msgr2("127.0.0.1:0".parse().expect("an address"), 4242)
}

impl Cluster {
    pub fn new(osds: usize, seed: u64) -> Self {
        Self::with(osds, seed, Vec::new())
    }

    /// OSDs with real stores on disks in memory; what they are given is durable at once.
    pub fn on_disks(osds: usize, seed: u64) -> Self {
        static EMPTY: LazyLock<Arc<SimDisk>> = LazyLock::new(|| {
            let options = MkfsOptions { size: DISK, log_bytes: LOG, ..MkfsOptions::default() };
            let disk = Arc::new(SimDisk::new(DISK, false));
            Store::mkfs_on(disk.clone(), &options).expect("an empty disk takes a store");
            disk
        });
        Self::with(osds, seed, (0..osds).map(|_| Arc::new(EMPTY.copy(false))).collect())
    }

    fn with(osds: usize, seed: u64, disks: Vec<Arc<SimDisk>>) -> Self {
        let weights: Vec<(i32, u32)> = (0..osds as i32).map(|o| (o, 0x1_0000)).collect();
        let mut crush = crush::CrushMap::build_simple("host", &weights, true).unwrap();
        let spread =
            crush::Spread { root: "default", failure_domain: "osd", failure_domains: 0, class: "" };
        crush.add_erasure_rule("coded", spread, 0).unwrap();
        let mut map = OsdMap::new(FSID, Epoch(1), UTime::ZERO, 20);
        map.crush = CrushPart::new(crush);
        map.set_max_osd(osds as i32);
        let full = map.to_full();
        let mut c = Self {
            nodes: Vec::new(),
            full: BTreeMap::from([(Epoch(1), full)]),
            maps: BTreeMap::from([(Epoch(1), map.clone())]),
            map,
            steps: BTreeMap::new(),
            now: Now { mono_ns: 1_000_000_000, wall_ns: 1_700_000_000_000_000_000 },
            rnd: Seeded(seed),
            wires: BTreeMap::new(),
            lives: BTreeMap::new(),
            to_client: vec![VecDeque::new(); osds],
            from_client: vec![VecDeque::new(); osds],
            backoffs: std::collections::BTreeSet::new(),
            asked: VecDeque::new(),
            told: Vec::new(),
            answers: BTreeMap::new(),
            tid: 0,
            client_epoch: Epoch(0),
            to_mon: VecDeque::new(),
            wants: vec![Epoch(1); osds],
            effects_seen: Vec::new(),
            boots: Vec::new(),
            caps: "allow *".into(),
            backfills: 1 + 7 * (seed % 2) as usize,
            options: Vec::new(),
            stopped: Vec::new(),
            closed: Vec::new(),
            largest: 0,
            held: std::collections::BTreeSet::new(),
            disks,
            heard: None,
        };
        for i in 0..osds {
            let node = Node { osd: None, store: MemStore::default(), nonce: 0, life: 0 };
            c.nodes.push(node);
            c.start(i);
        }
        c
    }

    /// Every OSD up, and a pool.
    pub fn ready(osds: usize, size: u8, pg_num: u32, seed: u64) -> Self {
        let mut c = Self::new(osds, seed);
        c.settle();
        assert_eq!(c.map.osd_counts().1, osds, "all are up");
        c.make_pool(size, pg_num);
        c.settle();
        c
    }

    pub fn make_pool(&mut self, size: u8, pg_num: u32) -> PoolId {
        let id = PoolId(i64::from(self.map.pool_max) + 1);
        let mut inc = self.inc();
        let mut pool = PgPool::new(PoolKind::REPLICATED, size, size / 2 + 1, 0, pg_num);
        pool.last_change = inc.epoch;
        inc.new_pools.insert(id, pool);
        inc.new_pool_names.insert(id, format!("pool{id}"));
        inc.new_pool_max = Some(id.0);
        self.publish(inc);
        id
    }

    /// Every OSD up, and an erasure-coded pool with chunks of 32 bytes.
    pub fn ready_coded(osds: usize, (k, m): (usize, usize), pg_num: u32, seed: u64) -> Self {
        let mut c = Self::new(osds, seed);
        c.settle();
        assert_eq!(c.map.osd_counts().1, osds, "all are up");
        c.make_coded((k, m), pg_num);
        c.settle();
        c
    }

    /// An erasure-coded pool with chunks of 32 bytes.
    pub fn make_coded(&mut self, (k, m): (usize, usize), pg_num: u32) -> PoolId {
        let id = PoolId(i64::from(self.map.pool_max) + 1);
        let mut inc = self.inc();
        let (size, min) = ((k + m) as u8, (k + usize::from(m > 1)) as u8);
        let mut pool = PgPool::new(PoolKind::ERASURE, size, min, 1, pg_num);
        pool.last_change = inc.epoch;
        pool.stripe_width = 32 * k as u32;
        pool.erasure_code_profile = "p".into();
        pool.flags.set(maps::PoolFlags::EC_OVERWRITES, true);
        let pairs = [("plugin", "isa".to_owned()), ("k", k.to_string()), ("m", m.to_string())];
        let profile = pairs.into_iter().map(|(a, b)| (a.to_owned(), b)).collect();
        inc.new_erasure_code_profiles.insert("p".into(), profile);
        inc.new_pools.insert(id, pool);
        inc.new_pool_names.insert(id, format!("pool{id}"));
        inc.new_pool_max = Some(id.0);
        self.publish(inc);
        id
    }

    /// Deletes a pool.
    pub fn rm_pool(&mut self, id: PoolId) {
        let mut inc = self.inc();
        inc.old_pools.insert(id);
        self.publish(inc);
    }

    /// The next step of the map.
    pub fn next_inc(&self) -> Incremental {
        self.inc()
    }

    /// Sets or clears a flag of the map.
    pub fn set_flag(&mut self, flag: maps::OsdMapFlags, on: bool) {
        let mut inc = self.inc();
        let mut flags = self.map.flags;
        flags.set(flag, on);
        inc.new_flags = Some(flags);
        self.publish(inc);
    }

    /// Changes a pool.
    pub fn set_pool(&mut self, id: PoolId, f: impl FnOnce(&mut PgPool)) {
        let mut inc = self.inc();
        f(inc.pool_mut(&self.map, id).unwrap());
        self.follow_base(id, &mut inc);
        self.publish(inc);
    }

    /// What a tier has from its base, as the monitors see to it.
    pub fn follow_base(&self, id: PoolId, inc: &mut Incremental) {
        let base = inc.pool_mut(&self.map, id).unwrap().clone();
        for tier in base.tiers.iter().map(|t| PoolId(*t as i64)) {
            inc.pool_mut(&self.map, tier).unwrap().follow_base(&base);
            if let Some(snaps) = inc.new_removed_snaps.get(&id).cloned() {
                inc.new_removed_snaps.insert(tier, snaps);
            }
        }
    }

    /// A pool as a cache over another, which clients are led to.
    pub fn make_tier(&mut self, base: PoolId, size: u8, pg_num: u32) -> PoolId {
        let cache = self.make_pool(size, pg_num);
        let mut inc = self.inc();
        let b = inc.pool_mut(&self.map, base).unwrap();
        b.tiers.insert(cache.0 as u64);
        (b.read_tier, b.write_tier) = (cache.0, cache.0);
        let c = inc.pool_mut(&self.map, cache).unwrap();
        (c.tier_of, c.cache_mode) = (base.0, maps::CacheMode::Writeback as u8);
        self.follow_base(base, &mut inc);
        self.publish(inc);
        self.settle();
        cache
    }

    /// Some more PGs.
    pub fn grow_pool(&mut self, id: PoolId) {
        let mut inc = self.inc();
        let more = 1 + self.random(9) as u32;
        let pool = inc.pool_mut(&self.map, id).unwrap();
        if pool.pg_num < 40 {
            set_pg_num(pool, pool.pg_num + more);
            self.publish(inc);
        }
    }

    /// One PG less, once OSDs say that it is ready.
    pub fn shrink_pool(&mut self, id: PoolId) {
        let mut inc = self.inc();
        let pool = inc.pool_mut(&self.map, id).unwrap();
        if pool.pg_num > 1 && pool.pg_num_pending == pool.pg_num {
            pool.pg_num_pending -= 1;
            pool.pgp_num = pool.pgp_num.min(pool.pg_num_pending);
            self.publish(inc);
        }
    }

    /// As the monitors do it.
    fn merge_or_not(&self, m: &PgReadyToMerge, inc: &mut Incremental) {
        let epoch = inc.epoch;
        let Some(pool) = self.map.pool(m.source.pool) else { return };
        if m.epoch != self.map.epoch
            || m.source.ps != pool.pg_num_pending
            || m.source.ps + 1 != pool.pg_num
        {
            return;
        }
        let pool = inc.pool_mut(&self.map, m.source.pool).unwrap();
        pool.last_change = epoch;
        if !m.ready {
            pool.pg_num_pending = pool.pg_num;
            return;
        }
        pool.pg_num = pool.pg_num_pending;
        pool.last_pg_merge_meta = maps::PgMergeMeta {
            source: m.source,
            ready_epoch: m.epoch,
            last_epoch_started: m.last_epoch_started,
            last_epoch_clean: m.last_epoch_clean,
            source_version: m.source_version,
            target_version: m.target_version,
        };
    }

    pub fn inc(&self) -> Incremental {
        Incremental::new(FSID, Epoch(self.map.epoch.0 + 1))
    }

    pub fn publish(&mut self, mut inc: Incremental) {
        let sealed = inc.seal(&self.map, Features::TENTACLE_WORD).unwrap();
        self.steps.insert(sealed.map.epoch, sealed.incremental);
        self.full.insert(sealed.map.epoch, sealed.full);
        self.maps.insert(sealed.map.epoch, sealed.map.clone());
        self.map = sealed.map;
    }

    pub fn random(&mut self, n: usize) -> usize {
        (self.rnd.u64() % n.max(1) as u64) as usize
    }

    pub fn start(&mut self, i: usize) {
        let nonce = self.rnd.u64() as u32;
        self.nodes[i].nonce = nonce;
        let id = Identity {
            whoami: OsdId(i as i32),
            fsid: FSID,
            uuid: Uuid([i as u8 + 1; 16]),
            client: addr(i, nonce),
            cluster: addr(i + 100, nonce),
            hb_front: addr(i + 200, nonce),
            hb_back: addr(i + 300, nonce),
            ..Identity::default()
        };
        let mut options = conf::Config::new(&conf::ConfFile::default(), "osd", "0", "host", 1);
        let backfills = self.backfills.to_string();
        let own =
            [("osd_max_backfills", &*backfills), ("osd_mclock_override_recovery_settings", "true")];
        for (name, value) in own.into_iter().chain(self.options.iter().copied()) {
            options.set(conf::Source::Override, name, value).unwrap();
        }
        let store: Box<dyn ObjectStore> = match self.disks.get(i) {
            None => Box::new(self.nodes[i].store.clone()),
            Some(disk) => {
                let store = Store::open_on(disk.clone(), on_disk()).expect("it was closed well");
                Box::new(StoreBacking::new(store, DataCache::new(256 << 10)))
            }
        };
        self.nodes[i].osd = Some(Osd::new(id, options, store).unwrap());
        for j in 0..self.nodes.len() {
            if j != i && self.nodes[j].osd.is_some() {
                self.connect(i, j);
            }
        }
        self.connect_client(i);
        self.event(i, |osd, now, out| osd.on_start(now, out));
    }

    /// `kill -9`: of what the store has queued, some was flushed.
    pub fn kill(&mut self, i: usize) {
        self.nodes[i].osd = None;
        let queued = self.nodes[i].store.lock().queued();
        let kept = self.random(queued + 1);
        self.nodes[i].store.lock().crash(kept);
        for j in 0..self.nodes.len() {
            self.wires.remove(&(i, j));
            self.wires.remove(&(j, i));
            if j != i && self.nodes[j].osd.is_some() {
                let conn = self.conn(j, i);
                if let Some(osd) = &mut self.nodes[j].osd {
                    osd.on_closed(conn);
                }
            }
        }
        self.nodes[i].life += 1;
        self.to_client[i].clear();
        self.from_client[i].clear();
        self.client_reset(i);
    }

    /// The store says what is durable, or that the OSD has to stop.
    fn poll(&mut self, i: usize) {
        let mut good = true;
        self.event(i, |osd, now, out| good = osd.poll_store(now, out).is_ok());
        if !good {
            self.stopped.push(i);
            self.kill(i);
        }
    }

    pub fn conn(&self, at: usize, peer: usize) -> ConnId {
        let life = self.lives.get(&(at.min(peer), at.max(peer))).copied().unwrap_or(0);
        ConnId((life << 8) + peer as u64 + 1)
    }

    fn connect(&mut self, a: usize, b: usize) {
        *self.lives.entry((a.min(b), a.max(b))).or_default() += 1;
        for (at, peer) in [(a, b), (b, a)] {
            self.wires.insert((at, peer), Wire::default());
            let conn = self.conn(at, peer);
            let who = EntityId::new(EntityKind::OSD, peer as i64);
            let info = PeerInfo {
                who,
                name: EntityName::new(EntityKind::OSD, peer.to_string()),
                addr: EntityAddr::default(),
                from: EntityAddr::default(),
                features: Features::ALL,
                caps: String::new(),
                allow_all: true,
                door: Door::Cluster,
            };
            if let Some(osd) = &mut self.nodes[at].osd {
                osd.on_open(conn, info);
            }
        }
    }

    pub fn client_conn(&self, i: usize) -> ConnId {
        ConnId(CLIENT + (self.nodes[i].life << 8) + i as u64)
    }

    fn connect_client(&mut self, i: usize) {
        let conn = self.client_conn(i);
        let info = PeerInfo {
            who: EntityId::new(EntityKind::CLIENT, 4100),
            name: EntityName::new(EntityKind::CLIENT, "admin"),
            addr: client_addr(),
            from: client_addr(),
            features: Features::TENTACLE_WORD,
            caps: self.caps.clone(),
            allow_all: false,
            door: Door::Public,
        };
        if let Some(osd) = &mut self.nodes[i].osd {
            osd.on_open(conn, info);
        }
    }

    fn client_reset(&mut self, i: usize) {
        self.backoffs.retain(|(osd, ..)| *osd != i);
        for a in &mut self.asked {
            if a.sent.is_some_and(|s| s.0 == OsdId(i as i32)) {
                a.sent = None;
                a.msg.retry_attempt += 1;
            }
        }
    }

    /// The connection of two OSDs breaks; what is on it is lost.
    pub fn break_wire(&mut self, a: usize, b: usize) {
        if self.nodes[a].osd.is_none() || self.nodes[b].osd.is_none() {
            return;
        }
        for (at, peer) in [(a, b), (b, a)] {
            let conn = self.conn(at, peer);
            self.nodes[at].osd.as_mut().unwrap().on_closed(conn);
        }
        self.connect(a, b);
        self.event(a, |osd, now, out| osd.on_osd_reset(now, OsdId(b as i32), out));
        self.event(b, |osd, now, out| osd.on_osd_reset(now, OsdId(a as i32), out));
    }

    /// The client's connection to an OSD breaks.
    pub fn break_client(&mut self, i: usize) {
        if self.nodes[i].osd.is_some() {
            let conn = self.client_conn(i);
            self.nodes[i].osd.as_mut().unwrap().on_closed(conn);
            self.nodes[i].life += 1;
            self.to_client[i].clear();
            self.from_client[i].clear();
            self.client_reset(i);
            self.connect_client(i);
        }
    }

    pub fn event(&mut self, i: usize, f: impl FnOnce(&mut Osd, Now, &mut Outbox)) {
        let mut out = Outbox::new();
        let now = self.now;
        let mut good = true;
        if let Some(osd) = &mut self.nodes[i].osd {
            f(osd, now, &mut out);
            for _ in 0..if self.disks.is_empty() { 0 } else { POLLS } {
                if let Err(e) = osd.poll_store(now, &mut out) {
                    eprintln!("osd.{i} stops: {e}");
                    good = false;
                }
            }
        }
        for effect in out.drain() {
            self.effect(i, effect);
        }
        if !good {
            self.stopped.push(i);
            self.kill(i);
        }
    }

    fn effect(&mut self, i: usize, effect: Effect) {
        match effect {
            Effect::Osd(to, e) | Effect::Heartbeat { osd: to, envelope: e, .. } => {
                self.largest = self.largest.max(e.front.len());
                // What the messenger takes; more would break the line.
                assert!(e.front.len() <= 16 << 20 && e.middle.len() <= 16 << 20);
                assert!(e.data.len() <= 96 << 20);
                if let Some(heard) = &mut self.heard {
                    heard.push((i, to.0 as usize, e.clone()));
                }
                if let Some(w) = self.wires.get_mut(&(i, to.0 as usize)) {
                    w.queue.push_back(e);
                }
            }
            Effect::Conn(conn, e) => {
                if conn.0 >= CLIENT && conn == self.client_conn(i) {
                    self.to_client[i].push_back(e);
                } else if let Some(peer) =
                    (0..self.nodes.len()).find(|p| self.conn(i, *p) == conn && *p != i)
                    && let Some(w) = self.wires.get_mut(&(i, peer))
                {
                    w.queue.push_back(e);
                }
            }
            Effect::Mon(e) => self.to_mon.push_back((i, e)),
            Effect::SubscribeMaps(from) => self.wants[i] = from,
            Effect::Close(conn) => {
                self.closed.push((i, conn));
                self.effects_seen.push(Effect::Close(conn));
            }
            other => self.effects_seen.push(other),
        }
    }

    /// The monitor handles what it was sent, as one new map.
    pub fn mon_step(&mut self) {
        let mut inc = self.inc();
        for (_, e) in std::mem::take(&mut self.to_mon) {
            match e.kind {
                OsdBoot::KIND => {
                    let m = OsdBoot::decode(&e).unwrap();
                    self.boots.push((m.osd, m.boot_epoch));
                    let i = m.osd.0 as usize;
                    let alive =
                        self.nodes[i].osd.is_some() && m.client == addr(i, self.nodes[i].nonce);
                    if !alive
                        || self.map.flags.has(maps::OsdMapFlags::NOUP)
                        || self.map.osd_addrs(m.osd) == Some(&m.client) && self.map.is_up(m.osd)
                    {
                        continue;
                    }
                    if self.map.is_up(m.osd) {
                        // A new process: the old one is down first.
                        inc.new_state.insert(m.osd, 2);
                        continue;
                    }
                    inc.new_up_client.insert(m.osd, m.client);
                    inc.new_up_cluster.insert(m.osd, m.cluster);
                    inc.new_hb_back_up.insert(m.osd, m.hb_back);
                    inc.new_hb_front_up.insert(m.osd, m.hb_front);
                    inc.new_weight.insert(m.osd, 0x1_0000);
                    inc.new_uuid.insert(m.osd, m.uuid);
                }
                OsdAlive::KIND => {
                    let m = OsdAlive::decode(&e).unwrap();
                    if self.map.is_up(m.osd) && self.map.info(m.osd).up_thru < m.want_up_thru {
                        inc.new_up_thru.insert(m.osd, inc.epoch);
                    }
                }
                PgTemp::KIND => {
                    let m = PgTemp::decode(&e).unwrap();
                    if self.map.is_up(m.osd) {
                        let changes = |(pg, osds): &(PgId, Vec<OsdId>)| {
                            self.map.pg_temp.get(pg).map_or(!osds.is_empty(), |k| k != osds)
                        };
                        inc.new_pg_temp.extend(m.pgs.into_iter().filter(changes));
                    }
                }
                PgReadyToMerge::KIND => {
                    let m = PgReadyToMerge::decode(&e).unwrap();
                    self.merge_or_not(&m, &mut inc);
                }
                OsdFailure::KIND => {
                    let m = OsdFailure::decode(&e).unwrap();
                    if !m.alive && self.map.is_up(m.target) {
                        inc.new_state.insert(m.target, 2);
                    }
                }
                _ => {}
            }
        }
        for (osd, _) in inc.new_state.clone() {
            inc.new_up_thru.remove(&osd);
        }
        if !inc.is_empty() {
            self.publish(inc);
        }
    }

    /// Marks an OSD down.
    pub fn mark_down(&mut self, i: usize) {
        if self.map.is_up(OsdId(i as i32)) {
            let mut inc = self.inc();
            inc.new_state.insert(OsdId(i as i32), 2);
            self.publish(inc);
        }
    }

    fn maps_for(&self, from: Epoch) -> Option<Envelope> {
        if from > self.map.epoch {
            return None;
        }
        let mut m = OsdMapMsg {
            fsid: FSID,
            oldest: Epoch(1),
            newest: self.map.epoch,
            ..OsdMapMsg::default()
        };
        for e in (from.0..=self.map.epoch.0).map(Epoch).take(40) {
            match self.steps.get(&e) {
                Some(raw) => m.incrementals.insert(e, raw.clone()),
                None => m.fulls.insert(e, self.full[&e].clone()),
            };
        }
        Some(m.envelope(Features::TENTACLE_WORD))
    }

    pub fn send_maps(&mut self, i: usize) {
        if let Some(e) = self.maps_for(self.wants[i]) {
            self.wants[i] = Epoch(self.map.epoch.0 + 1);
            self.event(i, |osd, now, out| osd.on_mon_message(now, &e, out));
        }
    }

    /// One request; its tid.
    pub fn ask(&mut self, pool: PoolId, name: &str, ops: Vec<OsdOp>) -> u64 {
        self.ask_with(pool, name, ops, 0)
    }

    pub fn ask_with(&mut self, pool: PoolId, name: &str, ops: Vec<OsdOp>, flags: u32) -> u64 {
        self.tid += 1;
        let oid = Bytes::copy_from_slice(name.as_bytes());
        let hash = HObject::hash_of(b"", &oid);
        let direct = flags & (req_flag::PGOP | req_flag::IGNORE_OVERLAY) != 0;
        let overlay = self.map.pool(pool).map(|p| p.read_tier).filter(|t| *t >= 0 && !direct);
        let pool = overlay.map_or(pool, PoolId);
        let msg = MOsdOp {
            pg: SpgId::default(),
            hash,
            epoch: Epoch(0),
            flags: req_flag::ACK | req_flag::ONDISK | flags,
            reqid: ReqId::default(),
            client_inc: 0,
            mtime: UTime { sec: 1_700_000_000, nsec: 0 },
            locator: ObjectLocator { pool, ..ObjectLocator::default() },
            oid,
            ops,
            snapid: SnapId::HEAD,
            snap_seq: SnapId(0),
            snaps: vec![],
            retry_attempt: 0,
            features: Features::TENTACLE_WORD.0,
        };
        self.asked.push_back(Asked { msg, tid: self.tid, sent: None });
        self.tid
    }

    fn target(map: &OsdMap, m: &MOsdOp) -> Option<Target> {
        let pool = m.locator.pool;
        // A listing names the PG itself.
        let pg = if m.oid.is_empty() {
            PgId { pool, ps: m.locator.hash as u32 }
        } else {
            map.raw_pg_to_pg(PgId { pool, ps: m.hash })?
        };
        let sets = map.pg_to_up_acting(pg);
        let place = |o| sets.acting.iter().position(|x| *x == o).unwrap_or(0);
        sets.acting_primary.map(|o| (o, map.up_from(o), pg, place(o)))
    }

    /// The client looks at every new map and sends, in order, what goes elsewhere now.
    pub fn client_step(&mut self) {
        while self.client_epoch < self.map.epoch {
            self.client_epoch.0 += 1;
            let map = &self.maps[&self.client_epoch];
            let before = self.maps.get(&Epoch(self.client_epoch.0 - 1));
            let pg_num = |map: &OsdMap, pool| map.pool(pool).map_or(0, |p| p.pg_num);
            for a in self.asked.iter_mut().filter(|a| a.sent.is_some()) {
                let pg = a.msg.pg.pg;
                let (old, new) = (before.map_or(0, |m| pg_num(m, pg.pool)), pg_num(map, pg.pool));
                let divided = old > 0 && new > 0 && maps::pg_num_matters(pg, old, new);
                if divided || Self::target(map, &a.msg) != a.sent {
                    a.sent = None;
                    a.msg.retry_attempt += 1;
                }
            }
        }
        for a in self.asked.iter_mut().filter(|a| a.sent.is_none()) {
            let target = Self::target(&self.map, &a.msg);
            let held = |(osd, pg, _): &(usize, PgId, u64)| {
                target.is_some_and(|(to, _, at, _)| (to.0 as usize, at) == (*osd, *pg))
            };
            if self.backoffs.iter().any(held) {
                continue;
            }
            a.sent = target;
            if let Some((to, _, pg, _)) = a.sent {
                a.msg.pg.pg = pg;
                a.msg.epoch = self.client_epoch;
                let e = a.msg.envelope(Features::TENTACLE_WORD).with_tid(a.tid);
                self.from_client[to.0 as usize].push_back(e);
            }
        }
    }

    /// Sends what was not sent, as a client whose newest map is `epoch`.
    pub fn send_with_old_map(&mut self, epoch: Epoch) {
        let newest = std::mem::replace(&mut self.client_epoch, epoch);
        let map = std::mem::replace(&mut self.map, self.maps[&epoch].clone());
        self.client_step();
        (self.client_epoch, self.map) = (newest.max(epoch), map);
    }

    /// The next message of the client to an OSD arrives.
    pub fn client_to(&mut self, i: usize) {
        let e = self.from_client[i].pop_front().unwrap();
        let conn = self.client_conn(i);
        self.event(i, |osd, now, out| osd.on_message(now, conn, e, out));
    }

    /// A command at an OSD's admin socket: result and output.
    pub fn admin(&mut self, i: usize, command: &str) -> (i32, String) {
        self.effects_seen.clear();
        let command = command.to_owned();
        self.event(i, |osd, now, out| osd.on_admin(now, 1, &command, out));
        while self.step() {}
        let found = self.effects_seen.iter().find_map(|e| match e {
            Effect::Admin { r, output, .. } => {
                Some((*r, String::from_utf8_lossy(output).into_owned()))
            }
            _ => None,
        });
        found.expect("an answer")
    }

    /// All PGs that an OSD leads are to be scrubbed; what is found is mended.
    pub fn scrub_all(&mut self, i: usize) {
        let m = messages::ScrubRequest { pgs: Vec::new(), deep: true, repair: true };
        let e = m.envelope(Features::ALL);
        self.event(i, |osd, now, out| osd.on_mon_message(now, &e, out));
    }

    fn client_gets(&mut self, i: usize, e: &Envelope) {
        if e.kind == Backoff::KIND {
            self.told.push(e.clone());
            return self.client_backs_off(i, Backoff::decode(e).unwrap());
        }
        if e.kind != MOsdOpReply::KIND {
            self.told.push(e.clone());
            return;
        }
        let reply = MOsdOpReply::decode(e).unwrap();
        let Some(at) = self.asked.iter().position(|a| a.tid == e.tid) else { return };
        if self.asked[at].msg.retry_attempt == reply.retry_attempt {
            self.asked.remove(at);
            self.answers.insert(e.tid, reply);
        }
    }

    /// Whether an OSD has sent the client something that did not arrive yet.
    pub fn has_answer(&self, i: usize) -> bool {
        !self.to_client[i].is_empty()
    }

    /// Goes on until nothing is left to do but to answer, which nobody does.
    pub fn run_unheard(&mut self) {
        while self.step_with(false) {}
    }

    /// One thing happens: a message arrives, a store flushes, a map is made. `false` when
    /// there is nothing left.
    pub fn step(&mut self) -> bool {
        self.step_with(true)
    }

    fn step_with(&mut self, answers: bool) -> bool {
        let mut could: Vec<(u8, usize, usize)> = Vec::new();
        for (&(a, b), w) in &self.wires {
            let goes = !w.queue.is_empty() && !self.held.contains(&(a, b));
            if goes && self.nodes[b].osd.is_some() {
                could.push((0, a, b));
            }
        }
        for i in 0..self.nodes.len() {
            if self.nodes[i].osd.is_none() {
                continue;
            }
            if self.nodes[i].store.lock().queued() > 0 {
                could.push((1, i, 0));
            }
            if self.wants[i] <= self.map.epoch {
                could.push((2, i, 0));
            }
            if !self.from_client[i].is_empty() {
                could.push((3, i, 0));
            }
            if answers && !self.to_client[i].is_empty() {
                could.push((4, i, 0));
            }
        }
        if !self.to_mon.is_empty() {
            could.push((5, 0, 0));
        }
        if could.is_empty() {
            return false;
        }
        let pick = self.random(could.len());
        self.now.mono_ns += 50_000;
        self.now.wall_ns += 50_000;
        match could[pick] {
            (0, a, b) => {
                let e = self.wires.get_mut(&(a, b)).unwrap().queue.pop_front().unwrap();
                let conn = self.conn(b, a);
                self.event(b, |osd, now, out| osd.on_message(now, conn, e, out));
            }
            (1, i, _) => {
                let n = 1 + self.random(4);
                self.nodes[i].store.lock().flush(n);
                self.poll(i);
            }
            (2, i, _) => self.send_maps(i),
            (3, i, _) => self.client_to(i),
            (4, i, _) => {
                let e = self.to_client[i].pop_front().unwrap();
                self.client_gets(i, &e);
            }
            _ => self.mon_step(),
        }
        true
    }

    pub fn tick(&mut self, ms: u64) {
        self.now.mono_ns += ms * 1_000_000;
        self.now.wall_ns += ms * 1_000_000;
        for i in 0..self.nodes.len() {
            self.event(i, |osd, now, out| osd.on_tick(now, out));
            if self.nodes[i].osd.is_some() {
                self.poll(i);
            }
        }
        self.client_step();
    }

    /// Goes on until nothing happens any more and nothing is asked.
    pub fn settle(&mut self) {
        for round in 0..400 {
            self.client_step();
            let mut steps = 0;
            while self.step() {
                steps += 1;
                assert!(steps < 2_000_000, "the wires never become quiet");
            }
            self.tick(500);
            if round > 12 && self.asked.is_empty() && self.is_quiet() {
                return;
            }
        }
        let open: Vec<_> = self.asked.iter().map(|a| (a.tid, a.sent)).collect();
        let states: Vec<String> = self
            .nodes
            .iter()
            .flat_map(|n| n.osd.iter())
            .flat_map(|o| o.pgs.values())
            .filter(|p| p.leads && !p.is_clean())
            .map(|p| {
                format!(
                    "{} {:?} acting {:?} missing {} blocked {:?} peers {:?} queues {:?} since {} {}",
                    p.id,
                    p.state,
                    p.info.acting,
                    p.missing.len(),
                    p.blocked_by,
                    p.peers
                        .iter()
                        .map(|(o, x)| (o.to_string(), x.answered, x.activated, x.missing.len(), &x.target, x.slot, x.target_ms))
                        .collect::<Vec<_>>(),
                    (
                        p.waiting.len(),
                        p.blocked.len(),
                        p.waiting_whole.len(),
                        p.in_flight.len(),
                        p.obcs.values().map(|o| o.waiting.len()).sum::<usize>()
                    ),
                    p.info.same_primary_since,
                    p.committed_by_all,
                )
            })
            .collect();
        let slots: Vec<_> =
            self.nodes.iter().flat_map(|n| n.osd.iter()).map(|o| &o.c.slots).collect();
        panic!("not settled: asked {open:?} {slots:?}\n{}", states.join("\n"));
    }

    /// Every PG with a primary is active and, with all OSDs up, clean.
    fn is_quiet(&self) -> bool {
        let all = self.nodes.iter().all(|n| n.osd.is_some());
        self.nodes.iter().flat_map(|n| n.osd.iter()).all(|o| {
            o.is_up() && o.pgs.values().all(|p| !p.leads || if all { p.is_clean() } else { true })
        })
    }

    /// Asks a PG for a listing.
    pub fn list(&mut self, pool: PoolId, pg: u32, ops: Vec<OsdOp>) -> MOsdOpReply {
        let tid = self.ask_with(pool, "", ops, req_flag::PGOP);
        let a = self.asked.back_mut().expect("just asked");
        a.msg.locator.hash = i64::from(pg);
        a.msg.hash = pg;
        self.wait(tid)
    }

    /// Asks and waits.
    pub fn run(&mut self, pool: PoolId, name: &str, ops: Vec<OsdOp>) -> MOsdOpReply {
        self.run_with(pool, name, ops, 0)
    }

    pub fn run_with(&mut self, pool: PoolId, name: &str, ops: Vec<OsdOp>, f: u32) -> MOsdOpReply {
        let tid = self.ask_with(pool, name, ops, f);
        self.wait(tid)
    }

    pub fn wait(&mut self, tid: u64) -> MOsdOpReply {
        for _ in 0..2_000 {
            self.client_step();
            while self.step() {
                if let Some(reply) = self.answers.remove(&tid) {
                    return reply;
                }
            }
            self.tick(200);
        }
        panic!("no answer to {tid}");
    }
}

trait ToFull {
    fn to_full(&self) -> Bytes;
}

impl ToFull for OsdMap {
    fn to_full(&self) -> Bytes {
        use denc::Denc;
        self.to_bytes_for(Features::TENTACLE_WORD)
    }
}
