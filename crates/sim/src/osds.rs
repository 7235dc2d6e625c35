//! OSDs in the world: the role with its store, its connections and its session with the
//! monitor, driven as the daemon drives it.

use std::collections::BTreeMap;

use conf::ConfFile;
use env::ConnId;
use messages::{
    Envelope, MOsdOp, Message, MonSubscribe, OsdPeer, OsdPing, PeerMsg, RepOp, Subscription,
};
use osd::{Door, Effect, Identity, Osd, Outbox, PeerInfo};
use stdx::crc32c;
use types::{
    AddrVec, Denc, EntityAddr, EntityId, EntityKind, EntityName, Epoch, Features, OsdId, PgId,
    ReqId, Uuid,
};

use crate::net::{Conn, Line};
use crate::plant::Plant;
use crate::real::{Habits, RealStore};
use crate::stores::OsdStore;
use crate::world::{Event, MS, Node, SEC, World};
use osd::memory::MemStore;

/// How long an OSD that did not take a connection is left alone.
const BACKOFF: u64 = 200 * MS;

/// A connection that an OSD made.
pub(crate) struct Dialled {
    conn: usize,
    nonce: u32,
    opened: bool,
}

/// An OSD, alive or not.
pub struct OsdProc {
    /// The role, while the process runs.
    pub role: Option<Osd>,
    /// What is on its disk.
    pub store: OsdStore,
    /// Counts its processes.
    pub life: u64,
    pub(crate) nonce: u32,
    uuid: Uuid,
    lines: BTreeMap<Line, Dialled>,
    backoff: BTreeMap<OsdId, u64>,
    mon: Option<usize>,
    flushing: bool,
    /// Its real store has a checkpoint or a merge under way.
    behind: bool,
    /// Its disk takes so many times as long.
    pub(crate) slow: u64,
    /// How often it stopped for want of space, since its disk last had more.
    pub(crate) stops: u64,
    epoch: Epoch,
}

pub(crate) fn id(conn: usize) -> ConnId {
    ConnId(conn as u64 + 10)
}

pub(crate) fn conn_of(id: ConnId) -> Option<usize> {
    (id.0 as usize).checked_sub(10)
}

fn addrs(osd: usize, side: usize, nonce: u32) -> AddrVec {
    let port = 6_800 + (osd * 4 + side) as u16;
    AddrVec(vec![EntityAddr::msgr2(std::net::SocketAddr::from(([127, 0, 0, 1], port)), nonce)])
}

fn nonce_of(addrs: &AddrVec) -> u32 {
    addrs.0.first().map_or(0, |a| a.nonce)
}

impl OsdProc {
    fn new(uuid: Uuid, store: OsdStore) -> Self {
        Self {
            role: None,
            store,
            life: 0,
            nonce: 0,
            uuid,
            lines: BTreeMap::new(),
            backoff: BTreeMap::new(),
            mon: None,
            flushing: false,
            behind: false,
            slow: 1,
            stops: 0,
            epoch: Epoch(0),
        }
    }
}

impl World {
    /// A new OSD with an empty disk; it starts soon. Its number.
    pub(crate) fn add_osd(&mut self) -> usize {
        let mut raw = [0; 16];
        env::Random::fill(&mut self.chance.fork(), &mut raw);
        let uuid = Uuid::from_random(raw);
        let i = self.osds.len();
        let store = self.new_store(i, uuid);
        self.osds.push(OsdProc::new(uuid, store));
        let ns = self.chance.within(0, 300 * MS);
        self.after(ns, Event::Start(Node::Osd(i)));
        i
    }

    fn new_store(&mut self, i: usize, uuid: Uuid) -> OsdStore {
        if !self.settings.real_store {
            let store = MemStore::default();
            store.lock().lies = self.plant == Some(Plant::LyingDisks);
            store.lock().deaf = self.plant == Some(Plant::DeafToRoom);
            return OsdStore::Memory(store);
        }
        let habits = Habits::draw(&mut self.chance.fork());
        let store = RealStore::new(self.fsid, i, uuid, habits);
        match self.plant {
            Some(Plant::LyingDisks) => store.disk().lie(),
            Some(Plant::LooseCheckpoints) => store.disk().loosen(),
            _ => {}
        }
        OsdStore::Real(store)
    }

    pub(crate) fn start_osd(&mut self, i: usize) {
        if self.osds[i].role.is_some() || self.gone.contains(&i) {
            return;
        }
        self.tell(|| format!("osd.{i} starts"));
        let nonce = self.chance.any() as u32;
        let node = Node::Osd(i);
        // A new boot of the machine, for all that is known.
        let chance = &mut self.chance;
        let clock = crate::world::Clock::new(chance);
        self.clocks.insert(node, clock);
        let s = &self.settings;
        let text = format!(
            "[global]\nosd_heartbeat_interval = {}\nosd_heartbeat_grace = {}\n\
             osd_min_pg_log_entries = 16\nosd_max_pg_log_entries = {}\n\
             osd_target_pg_log_bytes_per_osd = {}\nosd_scrub_auto_repair = {}\n\
             osd_journal_size = {}\n",
            s.heartbeat_ms as f64 / 1000.0,
            s.grace_ms as f64 / 1000.0,
            s.log_entries,
            s.log_bytes,
            s.auto_repair,
            if self.osds[i].store.real().is_some() { crate::real::LOG } else { 256 << 20 }
        );
        let file = ConfFile::parse(&text).expect("well formed");
        let options = conf::Config::new(&file, "osd", &i.to_string(), "host", 1);
        let identity = Identity {
            whoami: OsdId(i as i32),
            fsid: self.fsid,
            uuid: self.osds[i].uuid,
            client: addrs(i, 0, nonce),
            cluster: addrs(i, 1, nonce),
            hb_front: addrs(i, 2, nonce),
            hb_back: addrs(i, 3, nonce),
            device_bytes: 1 << 40,
            features: Features::TENTACLE_WORD.0,
            location: [("host".to_owned(), format!("h{i}")), ("root".to_owned(), "default".into())]
                .into(),
            ..Identity::default()
        };
        let p = &mut self.osds[i];
        p.life += 1;
        p.nonce = nonce;
        p.lines.clear();
        p.backoff.clear();
        p.mon = None;
        p.flushing = false;
        p.behind = false;
        let life = p.life;
        if let Some(store) = p.store.real().cloned()
            && let Err(e) = store.start()
        {
            return self.store_fails(i, &store, &e);
        }
        match Osd::new(identity, options, p.store.backing()) {
            Ok(role) => {
                p.epoch = role.map().epoch;
                p.role = Some(role);
            }
            Err(e) => return self.complain(format!("osd.{i} does not start: {e}")),
        }
        self.after(0, Event::Tick(node, life));
        self.after(0, Event::MonDial(node, life));
        self.osd_do(i, |osd, now, out| osd.on_start(now, out));
        if self.settings.real_store {
            self.maybe_cut(i, 8, self.settings.disk.1);
        }
    }

    /// The process ends as by `kill -9`; what was not flushed is lost, or is not.
    pub(crate) fn kill_osd(&mut self, i: usize) {
        if self.osds[i].role.take().is_none() {
            return;
        }
        match self.osds[i].store.clone() {
            OsdStore::Memory(store) => {
                let queued = store.lock().queued();
                let kept = self.chance.index(queued + 1);
                self.tell(|| format!("osd.{i} dies, {kept} of {queued} kept"));
                store.lock().crash(kept);
            }
            OsdStore::Real(store) => {
                let half = store.crash(&mut self.chance.fork());
                self.tell(|| format!("osd.{i} dies, in a checkpoint {half}"));
                if half {
                    *self.deeds.entry("died in a checkpoint").or_default() += 1;
                }
            }
        }
        self.osds[i].life += 1;
        self.paused.remove(&Node::Osd(i));
        self.drop_conns(Node::Osd(i));
    }

    pub(crate) fn listens(&self, node: Node, conn: &Conn) -> bool {
        match node {
            Node::Mon(m) => self.mon_listens(m, conn.line),
            Node::Osd(i) => self.osds[i].role.is_some() && self.osds[i].nonce == conn.nonce,
            Node::Client(_) | Node::Operator(_) => false,
        }
    }

    /// Something happens to an OSD; what it wants is done.
    pub(crate) fn osd_do(&mut self, i: usize, f: impl FnOnce(&mut Osd, env::Now, &mut Outbox)) {
        let now = self.clock(Node::Osd(i));
        let Some(role) = self.osds[i].role.as_mut() else { return };
        let mut out = Outbox::new();
        f(role, now, &mut out);
        for effect in out.drain() {
            self.osd_effect(i, effect);
        }
        self.flush_later(i);
        self.look_at_map(i);
    }

    pub(crate) fn flush_later(&mut self, i: usize) {
        let p = &self.osds[i];
        let OsdStore::Memory(store) = p.store.clone() else { return self.write_real(i) };
        if p.flushing || store.lock().queued() == 0 {
            return;
        }
        let (a, b) = self.settings.disk;
        let mut ns = self.chance.within(a, b) * self.osds[i].slow;
        if self.plant == Some(Plant::LyingDisks) {
            ns *= 200;
        }
        self.osds[i].flushing = true;
        let life = self.osds[i].life;
        self.after(ns, Event::Flush(i, life));
        if store.lock().lies {
            self.after(0, Event::Fetch(i, life));
        }
    }

    /// A real store begins to write what it was given.
    fn write_real(&mut self, i: usize) {
        let (a, b) = self.settings.disk;
        let OsdProc { slow, life, .. } = self.osds[i];
        let Some(store) = self.osds[i].store.real().cloned() else { return };
        if self.osds[i].role.is_none() {
            return;
        }
        let begun = store.groups_begun();
        if (begun == 0 || begun == 1 && self.chance.one_in(2)) && store.begin_group() {
            let ns = self.chance.within(a, b) * slow;
            self.after(ns, Event::Flush(i, life));
            self.maybe_cut(i, 400, ns);
        }
        if !self.osds[i].flushing && store.has_late() {
            self.osds[i].flushing = true;
            let ns = self.chance.within(a, b) * slow;
            self.after(ns, Event::Fetch(i, life));
        }
        if !self.osds[i].behind && store.has_work_behind() {
            self.osds[i].behind = true;
            let ns = self.chance.within(a, 60 * b) * slow;
            self.after(ns, Event::Behind(i, life));
            self.maybe_cut(i, 30, ns);
        }
    }

    /// A store does not open: its disk may fail just then.
    fn store_fails(&mut self, i: usize, store: &RealStore, why: &str) {
        if !store.disk().has_failed() {
            return self.complain(format!("osd.{i} does not start: {why}"));
        }
        self.tell(|| format!("osd.{i} does not start: {why}"));
        *self.faults.entry("stopped by its disk").or_default() += 1;
        store.crash(&mut self.chance.fork());
        let ns = self.chance.within(0, 20 * SEC);
        self.after(ns, Event::Start(Node::Osd(i)));
    }

    /// Once in `n` times the power is cut within so many ns: while a group, a checkpoint or the
    /// opening is under way.
    fn maybe_cut(&mut self, i: usize, n: u64, ns: u64) {
        if self.trouble && self.chance.one_in(n) {
            let (ns, life) = (self.chance.within(0, ns), self.osds[i].life);
            self.after(ns, Event::Power(i, life));
        }
    }

    pub(crate) fn power_cut(&mut self, i: usize, life: u64) {
        if self.osds[i].life != life || !self.trouble || self.spoiled() > 0 {
            return;
        }
        *self.faults.entry("power cut").or_default() += 1;
        self.kill_osd(i);
        let ns = self.chance.within(0, 20 * SEC);
        self.after(ns, Event::Start(Node::Osd(i)));
    }

    /// A real store makes the checkpoint or the merge that is due.
    pub(crate) fn work_behind(&mut self, i: usize, life: u64) {
        if self.osds[i].life != life {
            return;
        }
        self.osds[i].behind = false;
        if let Some(store) = self.osds[i].store.real() {
            let what = store.work_behind();
            self.tell(|| format!("osd.{i} {what}"));
            *self.deeds.entry(what).or_default() += 1;
        }
        self.fetched(i, life);
    }

    /// What real stores hold in the end is in order.
    pub(crate) fn check_stores(&mut self) {
        for i in 0..self.osds.len() {
            let wrong = self.osds[i].store.real().map(RealStore::check).unwrap_or_default();
            if !wrong.is_empty() {
                self.complain(format!("osd.{i}: fsck: {}", wrong.join("; ")));
            }
        }
    }

    pub(crate) fn flush(&mut self, i: usize, life: u64) {
        if self.osds[i].life != life {
            return;
        }
        match self.osds[i].store.clone() {
            OsdStore::Memory(store) => {
                let queued = store.lock().queued();
                let n = 1 + self.chance.index(queued.max(1));
                store.lock().flush(n);
                self.osds[i].flushing = false;
            }
            OsdStore::Real(store) => store.end_group(),
        }
        self.fetched(i, life);
        self.flush_later(i);
    }

    /// The store has something to say.
    pub(crate) fn fetched(&mut self, i: usize, life: u64) {
        if self.osds[i].life != life {
            return;
        }
        if self.settings.real_store {
            self.osds[i].flushing = false;
        }
        let mut why = None;
        self.osd_do(i, |osd, now, out| why = osd.poll_store(now, out).err());
        if let Some(e) = why {
            self.osd_stops(i, &e.to_string());
        }
    }

    /// Maps rise, and everybody's map of an epoch is the same.
    fn look_at_map(&mut self, i: usize) {
        let Some(role) = &self.osds[i].role else { return };
        let map = std::sync::Arc::clone(role.map());
        let before = self.osds[i].epoch;
        if map.epoch == before {
            return;
        }
        self.osds[i].epoch = map.epoch;
        if let Some(store) = self.osds[i].store.real() {
            let led = |pg: &PgId| map.pg_to_up_acting(*pg).acting_primary == Some(OsdId(i as i32));
            store.set_read_here(self.pgs(&map).into_iter().filter(led).collect());
        }
        if map.epoch < before {
            self.complain(format!("osd.{i} goes from map {before} back to {}", map.epoch));
        }
        let sum = crc32c(0, &map.to_bytes_for(Features::TENTACLE_WORD));
        self.mix(u64::from(sum));
        let known = *self.maps.entry(map.epoch).or_insert(sum);
        if known != sum {
            self.complain(format!("osd.{i} has another map {} than others", map.epoch));
        }
    }

    fn osd_effect(&mut self, i: usize, effect: Effect) {
        let node = Node::Osd(i);
        match effect {
            Effect::Conn(conn, e) => {
                if let Some(c) = conn_of(conn)
                    && let Some(side) = self.side_of(c, node)
                {
                    self.send(c, side, e);
                }
            }
            Effect::Osd(to, e) => self.send_line(i, Line::Peer(to), e),
            Effect::Heartbeat { osd, back, envelope } => {
                self.false_ping(i, osd, &envelope);
                self.send_line(i, Line::Beat(osd, back), envelope);
            }
            Effect::Mon(e) => {
                if let Some(c) = self.osds[i].mon {
                    self.send(c, 0, e);
                }
            }
            Effect::SubscribeMaps(from) => self.subscribe(node, u64::from(from.0)),
            Effect::Close(conn) => {
                if let Some(c) = conn_of(conn)
                    && let Some(side) = self.side_of(c, node)
                {
                    self.tell(|| format!("osd.{i} closes #{c}"));
                    self.hang_up(c, side);
                }
            }
            Effect::ClusterLog { error, text } => {
                self.tell(|| format!("osd.{i} log error {error}: {text}"));
            }
            Effect::Admin { .. } => {}
        }
    }

    pub(crate) fn subscribe(&mut self, node: Node, start: u64) {
        let conn = match node {
            Node::Osd(i) => self.osds[i].mon,
            Node::Client(i) => self.clients[i].mon,
            Node::Mon(_) | Node::Operator(_) => None,
        };
        let Some(c) = conn else { return };
        let mut what = BTreeMap::from([("osdmap".to_owned(), Subscription { start, flags: 0 })]);
        if let (true, Node::Osd(i)) = (self.settings.class, node)
            && let Some(role) = &self.osds[i].role
        {
            let start = role.classes_version() + 1;
            what.insert("cls".to_owned(), Subscription { start, flags: 0 });
        }
        let m = MonSubscribe { what, hostname: String::new() };
        self.send(c, 0, m.envelope(Features::ALL));
    }

    /// The connection of a line to its address in the OSD's newest map; `None` while that
    /// OSD is down or left alone.
    fn line(&mut self, i: usize, line: Line) -> Option<usize> {
        let (Line::Peer(osd) | Line::Beat(osd, _)) = line else { return None };
        let p = &self.osds[i];
        let map = p.role.as_ref()?.map();
        if !map.is_up(osd) || osd.0 as usize >= self.osds.len() {
            return None;
        }
        let nonce = nonce_of(map.osd_cluster_addrs(osd)?);
        if let Some(d) = p.lines.get(&line) {
            if d.nonce == nonce {
                return Some(d.conn);
            }
            let old = d.conn;
            self.osds[i].lines.remove(&line);
            self.hang_up(old, 0);
            // The driver's close is told to the role as any other.
            self.osd_gone(i, old);
        }
        if self.osds[i].backoff.get(&osd).is_some_and(|until| self.now < *until) {
            return None;
        }
        let c = self.dial(Node::Osd(i), Node::Osd(osd.0 as usize), line, nonce);
        self.osds[i].lines.insert(line, Dialled { conn: c, nonce, opened: false });
        Some(c)
    }

    fn osd_gone(&mut self, i: usize, c: usize) {
        if let Some(role) = &mut self.osds[i].role {
            role.on_closed(id(c));
        }
    }

    fn send_line(&mut self, i: usize, line: Line, e: Envelope) {
        if let Some(c) = self.line(i, line) {
            self.send(c, 0, e);
        }
    }

    pub(crate) fn osd_opened(&mut self, i: usize, c: usize, side: usize) {
        let line = self.conns[c].line;
        if line == Line::Mon {
            let start = self.osds[i].role.as_ref().map_or(0, |r| u64::from(r.map().epoch.0) + 1);
            self.subscribe(Node::Osd(i), start);
            return self.osd_do(i, |osd, now, out| osd.on_mon_session(now, out));
        }
        if side == 0
            && let Line::Peer(osd) | Line::Beat(osd, _) = line
        {
            let p = &mut self.osds[i];
            p.backoff.remove(&osd);
            if let Some(d) = p.lines.get_mut(&line).filter(|d| d.conn == c) {
                d.opened = true;
            }
        }
        let info = match self.conns[c].ends[1 - side] {
            Node::Osd(o) => PeerInfo {
                who: EntityId::new(EntityKind::OSD, o as i64),
                name: EntityName::new(EntityKind::OSD, o.to_string()),
                addr: EntityAddr::default(),
                from: EntityAddr::default(),
                features: Features::ALL,
                caps: String::new(),
                allow_all: true,
                door: Door::Cluster,
            },
            Node::Client(k) => PeerInfo {
                who: EntityId::new(EntityKind::CLIENT, self.clients[k].gid as i64),
                name: EntityName::new(EntityKind::CLIENT, "admin"),
                addr: client_addr(self.clients[k].gid),
                from: client_addr(self.clients[k].gid),
                features: Features::TENTACLE_WORD,
                caps: "allow *".into(),
                allow_all: false,
                door: Door::Public,
            },
            Node::Mon(_) | Node::Operator(_) => return,
        };
        if let Some(role) = &mut self.osds[i].role {
            role.on_open(id(c), info);
        }
    }

    pub(crate) fn osd_closed(
        &mut self,
        i: usize,
        c: usize,
        side: usize,
        opened: bool,
        refused: bool,
    ) {
        if self.osds[i].role.is_none() {
            return;
        }
        let line = self.conns[c].line;
        if line == Line::Mon {
            if self.osds[i].mon == Some(c) {
                self.osds[i].mon = None;
                let (ns, life) = (self.chance.within(50 * MS, 1_000 * MS), self.osds[i].life);
                self.after(ns, Event::MonDial(Node::Osd(i), life));
            }
            return;
        }
        self.osd_gone(i, c);
        let (Line::Peer(osd) | Line::Beat(osd, _)) = line else { return };
        let p = &mut self.osds[i];
        if side != 0 || p.lines.get(&line).is_none_or(|d| d.conn != c) {
            return;
        }
        p.lines.remove(&line);
        if let Line::Peer(_) = line {
            if opened {
                self.osd_do(i, |role, now, out| role.on_osd_reset(now, osd, out));
            } else {
                if refused {
                    self.osd_do(i, |role, now, out| role.on_refused(now, osd, out));
                }
                let until = self.now + BACKOFF;
                self.osds[i].backoff.insert(osd, until);
            }
        }
    }

    pub(crate) fn osd_message(&mut self, i: usize, c: usize, e: Envelope) {
        if self.conns[c].line == Line::Mon {
            return self.osd_do(i, |osd, now, out| osd.on_mon_message(now, &e, out));
        }
        let e = self.spoil(c, e);
        self.osd_do(i, |osd, now, out| osd.on_message(now, id(c), e, out));
    }

    pub(crate) fn osd_tick(&mut self, i: usize, life: u64) {
        if self.osds[i].life != life || self.osds[i].role.is_none() {
            return;
        }
        let now = self.now;
        let over: Vec<OsdId> =
            self.osds[i].backoff.extract_if(.., |_, until| *until <= now).map(|(o, _)| o).collect();
        for osd in over {
            self.osd_do(i, |role, now, out| role.on_osd_reset(now, osd, out));
        }
        self.osd_do(i, |osd, now, out| osd.on_tick(now, out));
        if self.has_small_disks() || self.settings.real_store {
            self.fetched(i, life); // a store that has refused wakes nobody
        }
        let ns = self.chance.within(150 * MS, 350 * MS);
        self.after(ns, Event::Tick(Node::Osd(i), life));
    }

    pub(crate) fn mon_dial(&mut self, node: Node, life: u64) {
        match node {
            Node::Osd(i) => {
                let p = &self.osds[i];
                if p.life == life && p.role.is_some() && p.mon.is_none() {
                    let c = self.dial_mon(node);
                    self.osds[i].mon = Some(c);
                }
            }
            Node::Client(i) => {
                if self.clients[i].gid == life && self.clients[i].mon.is_none() {
                    let c = self.dial_mon(node);
                    self.clients[i].mon = Some(c);
                }
            }
            Node::Operator(k) => self.operator_dial(k, life),
            Node::Mon(_) => {}
        }
    }

    // ----- planted bugs -----

    fn spoil(&mut self, c: usize, e: Envelope) -> Envelope {
        match (self.plant, e.kind) {
            (Some(Plant::EmptyWrites), RepOp::KIND) if self.chance.one_in(30) => {
                let Ok(mut m) = RepOp::decode(&e) else { return e };
                m.changes.clear();
                m.envelope(Features::ALL)
            }
            (Some(Plant::ForgottenRequests), MOsdOp::KIND) => {
                let Ok(mut m) = MOsdOp::decode(&e) else { return e };
                if let Node::Client(k) = self.conns[c].ends[0]
                    && m.retry_attempt > 0
                {
                    let client = EntityId::new(EntityKind::CLIENT, self.clients[k].gid as i64);
                    m.reqid = ReqId { client, tid: e.tid, inc: m.retry_attempt };
                }
                m.envelope(Features::TENTACLE_WORD).with_tid(e.tid)
            }
            (Some(Plant::WrongCalls), MOsdOp::KIND) => {
                let Ok(mut m) = MOsdOp::decode(&e) else { return e };
                let calls = m.ops.first().is_some_and(|o| o.code == messages::op::CALL);
                if !calls || !self.chance.one_in(10) {
                    return e;
                }
                m.ops = vec![crate::uploads::call(u64::MAX)];
                m.envelope(Features::TENTACLE_WORD).with_tid(e.tid)
            }
            (Some(Plant::ForgottenSnaps), MOsdOp::KIND) if self.chance.one_in(10) => {
                let Ok(mut m) = MOsdOp::decode(&e) else { return e };
                (m.snap_seq, m.snaps) = (types::SnapId(0), Vec::new());
                m.envelope(Features::TENTACLE_WORD).with_tid(e.tid)
            }
            (Some(Plant::ShortLogs | Plant::HalfCopies | Plant::EmptyFlushes), OsdPeer::KIND) => {
                let Ok(mut m) = OsdPeer::decode(&e) else { return e };
                match (&mut m.body, self.plant) {
                    (PeerMsg::Log { entries, .. }, Some(Plant::ShortLogs)) => {
                        drop(entries.pop());
                    }
                    (PeerMsg::TierAsk { op, .. }, Some(Plant::EmptyFlushes)) => {
                        // What is asked for a flush is to copy; nothing is.
                        let copies = |o: &messages::OsdOp| o.code == messages::op::COPY_FROM;
                        if !op.ops.iter().any(copies) || !self.chance.one_in(4) {
                            return e;
                        }
                        op.ops =
                            vec![messages::OsdOp::new(messages::op::CREATE, bytes::Bytes::new())];
                    }
                    (PeerMsg::CopyPart { push, .. }, Some(Plant::HalfCopies)) => {
                        push.attrs.retain(|(name, _)| !name.ends_with(b"x"));
                    }
                    _ => return e,
                }
                m.envelope(Features::ALL)
            }
            _ => e,
        }
    }

    fn false_ping(&mut self, i: usize, to: OsdId, e: &Envelope) {
        if self.plant != Some(Plant::FalsePings) {
            return;
        }
        let there = Node::Osd(to.0 as usize);
        let reached = !self.is_cut(Node::Osd(i), there)
            && !self.is_cut(there, Node::Osd(i))
            && !self.paused.contains_key(&there);
        let Some(d) = self.osds[i].lines.get(&Line::Beat(to, true)) else { return };
        if reached || !d.opened {
            return;
        }
        let conn = d.conn;
        let Ok(ping) = OsdPing::decode(e) else { return };
        let reply = OsdPing { from: to, op: 1, ..ping }.envelope(Features::ALL);
        self.osd_do(i, |osd, now, out| osd.on_message(now, id(conn), reply, out));
    }
}

/// Where a client is.
pub(crate) fn client_addr(gid: u64) -> EntityAddr {
    EntityAddr::msgr2("127.0.0.1:0".parse().expect("an address"), gid as u32)
}
