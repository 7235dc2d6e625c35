//! Monitors in the world: the role, its log (the real one, on virtual time), its links to
//! the others. What was flushed of its file survives a crash, and some of what was not.
//!
//! Each monitor has a runtime of its own whose clock stands still but for what the world
//! moves it on, so that the log's timeouts are virtual time too; a monitor that is stopped
//! finds that time has jumped.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use auth::PeerIdentity;
use bytes::Bytes;
use conf::key;
use env::ConnId;
use maps::{MonInfo, MonMap};
use messages::Envelope;
use mon::known_map::KnownMap;
use mon::links::{Links, Me, PeerEvent, Wire, own_message};
use mon::quorum::{self, Call, Quorum, memory::Memory};
use mon::{MembershipStep, Mkfs, MonConfig, Monitor, Output};
use stdx::crc32c;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use types::{AddrVec, EntityAddr, EntityId, EntityKind, EntityName, Epoch, Features, UTime, Uuid};

use crate::net::Line;
use crate::osds::{client_addr, conn_of, id};
use crate::plant::Plant;
use crate::world::{Event, MS, Node, SEC, Settings, World};

/// Where the first monitor listens.
const PORT: u16 = 3_300;
/// How often a monitor's log looks at its timers.
const PUMP: u64 = 50 * MS;
/// A longer gap in a monitor's time is a jump.
const JUMP: u64 = 300 * MS;
/// More rounds than a monitor ever needs to come to rest.
const ROUNDS_MAX: usize = 64;

/// What a monitor's log answers another's: the connection it was asked on, the number of
/// the question, the answer.
type Answered = (ConnId, u64, Bytes);

/// What runs while a monitor's process does.
struct Life {
    role: Monitor,
    known: KnownMap,
    quorum: Quorum,
    links: Option<Links>,
    events: mpsc::UnboundedReceiver<quorum::Event>,
    calls: mpsc::UnboundedReceiver<Call>,
    wishes: mpsc::UnboundedSender<Output>,
    answers: (mpsc::UnboundedSender<Answered>, mpsc::UnboundedReceiver<Answered>),
    changing: Arc<AtomicBool>,
    started_ms: u64,
    /// Where its runtime's clock began, and when that was.
    began: (tokio::time::Instant, u64),
    /// The time its runtime was moved on to.
    moved: u64,
    ticks: u64,
    /// Last, so that all else is gone before its tasks are.
    runtime: Runtime,
}

/// A monitor, alive or not.
pub struct MonProc {
    /// Its name in the monitor map.
    pub name: String,
    node: u64,
    life: Option<Box<Life>>,
    lives: u64,
    /// Its file.
    pub file: Memory,
    /// The map that it keeps beside its log.
    kept: Option<Bytes>,
    flushing: bool,
    /// Its disk takes so many times as long.
    pub(crate) slow: u64,
    /// Removed for good.
    pub(crate) gone: bool,
}

impl MonProc {
    fn new(name: String, node: u64, file: Memory) -> Self {
        let (life, lives, flushing, slow, gone) = (None, 0, false, 1, false);
        Self { name, node, life, lives, file, kept: None, flushing, slow, gone }
    }

    /// Whether it runs, and was a monitor of the cluster that has these now, not itself among
    /// them. Nobody else finds it: one that knows none of these hears nothing.
    pub fn should_end(&self, now: &BTreeMap<String, MonInfo>) -> bool {
        self.life.as_deref().is_some_and(|l| {
            let joined = !l.quorum.members().0.is_empty();
            let finds = l.role.state().monmap.mons.keys().any(|name| now.contains_key(name));
            joined && finds && !now.contains_key(&self.name)
        })
    }

    /// The role, while the process runs.
    pub fn role(&self) -> Option<&Monitor> {
        self.life.as_ref().map(|l| &l.role)
    }
}

fn name_of(m: usize) -> String {
    char::from(b'a' + m as u8).to_string()
}

/// Where a monitor listens.
pub(crate) fn mon_addr(m: usize) -> EntityAddr {
    EntityAddr::msgr2(([127, 0, 0, 1], PORT + m as u16).into(), 0)
}

fn mon_info(m: usize) -> MonInfo {
    MonInfo { name: name_of(m), addrs: AddrVec(vec![mon_addr(m)]), ..MonInfo::default() }
}

/// The monitors of a new cluster.
pub(crate) fn founders(fsid: Uuid, s: &Settings, plant: Option<Plant>) -> Vec<MonProc> {
    let created = UTime { sec: 1_799_999_000, nsec: 0 };
    let mkfs = Mkfs {
        fsid,
        now: created,
        monmap: MonMap::new(fsid, created, 20, (0..s.mons).map(mon_info).collect()),
        chooseleaf_kind: 0,
        ..Mkfs::default()
    };
    let state = mkfs.to_state_bytes();
    let all: BTreeMap<u64, String> = (0..s.mons).map(|m| (m as u64, name_of(m))).collect();
    let one = |m: usize| {
        let file = Memory::new(m as u64, &all, &state);
        if plant == Some(Plant::ForgottenVotes) {
            file.forget_votes();
        }
        MonProc::new(name_of(m), m as u64, file)
    };
    (0..s.mons).map(one).collect()
}

fn options(s: &Settings) -> BTreeMap<String, String> {
    let options = [
        (key::MON_ALLOW_POOL_DELETE.name(), "true".to_owned()),
        (key::MON_ALLOW_POOL_SIZE_ONE.name(), "true".to_owned()),
        (key::OSD_POOL_DEFAULT_SIZE.name(), s.size.to_string()),
        (key::OSD_POOL_DEFAULT_MIN_SIZE.name(), s.min_size.to_string()),
        (key::OSD_HEARTBEAT_GRACE.name(), (s.grace_ms as f64 / 1000.0).to_string()),
        (key::MON_OSD_DOWN_OUT_INTERVAL.name(), (s.trouble / SEC / 4).to_string()),
        (key::MON_OSD_MIN_UP_RATIO.name(), "0".to_owned()),
        (key::MON_OSD_REPORT_TIMEOUT.name(), "60".to_owned()),
        (key::MON_MAX_PG_PER_OSD.name(), "10000".to_owned()),
        // Often, for a map that somebody still needs to be missed.
        (key::MON_MIN_OSDMAP_EPOCHS.name(), s.maps_kept.to_string()),
        (key::PAXOS_SERVICE_TRIM_MIN.name(), "1".to_owned()),
        (key::OSD_POOL_DEFAULT_PG_AUTOSCALE_MODE.name(), "off".to_owned()),
    ];
    options.map(|(k, v)| (k.to_owned(), v)).into()
}

/// What carries a monitor's messages to the others.
struct MonWire<'a> {
    world: &'a mut World,
    m: usize,
}

impl Wire for MonWire<'_> {
    fn dial(&mut self, addrs: &AddrVec) -> ConnId {
        let port = addrs.msgr2().and_then(|a| a.sock).map_or(0, |s| s.port());
        let to = usize::from(port.saturating_sub(PORT));
        id(self.world.dial(Node::Mon(self.m), Node::Mon(to), Line::Quorum, 0))
    }

    fn send(&mut self, conn: ConnId, env: Envelope) {
        let node = Node::Mon(self.m);
        if let Some(c) = conn_of(conn)
            && let Some(side) = self.world.side_of(c, node)
        {
            self.world.send(c, side, env);
        }
    }

    fn close(&mut self, conn: ConnId) {
        let node = Node::Mon(self.m);
        if let Some(c) = conn_of(conn)
            && let Some(side) = self.world.side_of(c, node)
        {
            self.world.hang_up(c, side);
        }
    }
}

/// Turns of a monitor's tasks until its log must be open; some hundred are usual.
const OPENING_TURNS: u32 = 1_000_000;

impl World {
    pub(crate) fn start_mon(&mut self, m: usize) {
        if self.mons[m].life.is_some() || self.mons[m].gone {
            return;
        }
        self.tell(|| format!("mon.{} starts", name_of(m)));
        self.clocks.remove(&Node::Mon(m));
        let now = self.clock(Node::Mon(m));
        let (a, b) = (self.chance.fork(), self.chance.fork());
        let patience = quorum::patience_ms();
        let patience = self.chance.within(patience.start, patience.end);
        let p = &mut self.mons[m];
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime without I/O");
        let file = p.file.clone();
        let began = runtime.block_on(async { tokio::time::Instant::now() });
        // What opening writes is durable before it goes on: there is nobody to flush yet.
        let opening = runtime.spawn(quorum::start_in_memory(p.file.clone(), patience));
        let started = runtime.block_on(async {
            for _ in 0..OPENING_TURNS {
                if opening.is_finished() {
                    return Some(opening.await);
                }
                file.flush(usize::MAX);
                tokio::task::yield_now().await;
            }
            None
        });
        let started = match started {
            Some(Ok(Ok(started))) => started,
            failed => {
                let why = match failed {
                    Some(Ok(Err(e))) => e.to_string(),
                    Some(Err(e)) => e.to_string(),
                    _ => "opening its log does not end".to_owned(),
                };
                return self.complain(format!("mon.{} does not start: {why}", name_of(m)));
            }
        };
        let config = MonConfig {
            name: p.name.clone(),
            node: p.node,
            options: options(&self.settings),
            ..MonConfig::default()
        };
        let role = Monitor::new(config, &started.state, now, Box::new(a), Arc::new(Mutex::new(b)))
            .expect("its own state can be read");
        let known =
            KnownMap::new(&role.state().monmap, p.kept.as_ref()).expect("its own map can be read");
        let (wishes, mut wished) = mpsc::unbounded_channel();
        let writer = started.quorum.clone();
        runtime.spawn(async move {
            while let Some(wish) = wished.recv().await {
                // What cannot be written ends the log's events too, which is seen.
                let _ = match wish {
                    Output::Propose { token, data } => writer.propose(token, data).await,
                    Output::Snapshot { index, state } => writer.offer_snapshot(index, state).await,
                    _ => Ok(()),
                };
            }
        });
        p.lives += 1;
        p.flushing = false;
        p.life = Some(Box::new(Life {
            role,
            known,
            quorum: started.quorum,
            links: Some(Links::new(Me { fsid: self.fsid, node: p.node, name: p.name.clone() })),
            events: started.events,
            calls: started.calls,
            wishes,
            answers: mpsc::unbounded_channel(),
            changing: Arc::default(),
            started_ms: now.mono_ms(),
            began: (began, self.now),
            moved: self.now,
            ticks: 0,
            runtime,
        }));
        let lives = p.lives;
        self.after(0, Event::Tick(Node::Mon(m), lives));
    }

    /// A monitor's process ends as by `kill -9`.
    pub(crate) fn kill_mon(&mut self, m: usize) {
        let p = &mut self.mons[m];
        let Some(life) = p.life.take() else { return };
        p.lives += 1;
        let queued = p.file.queued();
        let kept = self.chance.index(queued + 1);
        self.tell(|| format!("mon.{} dies, {kept} of {queued} kept", name_of(m)));
        drop(life);
        self.mons[m].file.crash(kept);
        self.paused.remove(&Node::Mon(m));
        self.drop_conns(Node::Mon(m));
    }

    /// A monitor that joins a cluster that runs.
    pub(crate) fn add_mon(&mut self) -> Option<usize> {
        let m = self.mons.len();
        let map = self.mons.iter().filter_map(MonProc::role).map(|r| &r.state().monmap);
        let map = map.max_by_key(|map| map.epoch)?;
        let mut mons: Vec<MonInfo> = map.mons.values().cloned().collect();
        mons.push(mon_info(m));
        let created = UTime { sec: 1_799_999_000, nsec: 0 };
        let epoch = Epoch(map.epoch.0 + 1);
        let monmap = MonMap { epoch, ..MonMap::new(self.fsid, created, 20, mons) };
        let mkfs = Mkfs { fsid: self.fsid, now: created, monmap, ..Mkfs::default() };
        let node = 1 << 32 | m as u64;
        let file = Memory::new(node, &BTreeMap::new(), &mkfs.to_state_bytes());
        self.mons.push(MonProc::new(name_of(m), node, file));
        let ns = self.chance.within(SEC, 5 * SEC);
        self.after(ns, Event::Start(Node::Mon(m)));
        Some(m)
    }

    /// Whether a monitor takes this connection.
    pub(crate) fn mon_listens(&self, m: usize, line: Line) -> bool {
        let Some(life) = self.mons.get(m).and_then(|p| p.life.as_ref()) else { return false };
        line == Line::Quorum || life.role.auth().is_open()
    }

    // ----- what happens to it -----

    fn life(&mut self, m: usize) -> Option<&mut Life> {
        self.mons.get_mut(m)?.life.as_deref_mut()
    }

    /// Something happens to the role; what follows from it is done.
    fn mon_do(&mut self, m: usize, f: impl FnOnce(&mut Monitor, env::Now)) {
        let now = self.clock(Node::Mon(m));
        let Some(life) = self.life(m) else { return };
        f(&mut life.role, now);
        self.mon_go_on(m);
    }

    fn links_do<T: Default>(
        &mut self,
        m: usize,
        f: impl FnOnce(&mut Links, env::Now, &mut MonWire<'_>) -> T,
    ) -> T {
        let now = self.clock(Node::Mon(m));
        let Some(mut links) = self.life(m).and_then(|l| l.links.take()) else {
            return T::default();
        };
        let done = f(&mut links, now, &mut MonWire { world: self, m });
        if let Some(life) = self.life(m) {
            life.links = Some(links);
        }
        done
    }

    pub(crate) fn mon_tick(&mut self, m: usize, lives: u64) {
        if self.mons[m].lives != lives || self.mons[m].life.is_none() {
            return;
        }
        let life = self.life(m).expect("just seen");
        life.ticks += 1;
        if life.ticks % 2 == 1 {
            self.mon_quorum_tick(m);
            self.mon_do(m, |mon, now| mon.on_tick(now));
        } else {
            self.mon_go_on(m);
        }
        self.after(PUMP, Event::Tick(Node::Mon(m), lives));
        if self.mons[m].role().is_some_and(Monitor::is_removed) {
            self.tell(|| format!("mon.{} was removed and ends", name_of(m)));
            self.kill_mon(m);
            self.mons[m].gone = true;
        }
    }

    /// The quorum's own work: connections, elections, members that come and go.
    fn mon_quorum_tick(&mut self, m: usize) {
        let Some(life) = self.life(m) else { return };
        life.known.see(&life.role.state().monmap);
        let (map, voters) = (life.known.map().clone(), life.quorum.members().0);
        let starts = life.ticks <= 1 && life.known.addrs_of(&name_of(m)).is_none();
        if let Some(kept) = life.known.to_save() {
            self.mons[m].kept = Some(kept);
        }
        let newest = self.mons.iter().filter_map(MonProc::role).map(|r| &r.state().monmap);
        let newest = newest.max_by_key(|map| map.epoch);
        if starts && newest.is_some_and(|map| map.mons.contains_key(&name_of(m))) {
            self.complain(format!("mon.{} does not know where it listens", name_of(m)));
        }
        let events = self.links_do(m, |links, now, wire| links.tick(now, &map, &voters, wire));
        self.mon_peer_events(m, events);
        let now = self.clock(Node::Mon(m));
        let unleased = self.plant == Some(Plant::UnleasedReads);
        let others: Vec<u64> = self.mons.iter().map(|p| p.node).collect();
        let Some(life) = self.life(m) else { return };
        if unleased && life.role.leads() {
            for node in others {
                life.role.on_admitted(node, now.mono_ms());
            }
        }
        let up_ms = now.mono_ms().saturating_sub(life.started_ms);
        let elections = life.role.elections(now, up_ms, &life.quorum.members().0);
        life.quorum.allow_elections(elections.allowed);
        if elections.begin {
            let quorum = life.quorum.clone();
            life.runtime.spawn(async move { quorum.elect().await });
        }
        if let Some(step) = life.role.membership_step()
            && !life.changing.swap(true, Ordering::Relaxed)
        {
            let (quorum, changing) = (life.quorum.clone(), Arc::clone(&life.changing));
            life.runtime.spawn(async move {
                let done = match step {
                    MembershipStep::Change(wanted) => quorum.change_members(&wanted).await.is_ok(),
                    MembershipStep::Yield(node) => {
                        quorum.yield_to(node).await.is_ok_and(|done| done)
                    }
                };
                if !done {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                changing.store(false, Ordering::Relaxed);
            });
        }
    }

    fn mon_peer_events(&mut self, m: usize, events: Vec<PeerEvent>) {
        let now = self.clock(Node::Mon(m));
        for event in events {
            let Some(life) = self.life(m) else { return };
            match event {
                PeerEvent::Up(node, name) => life.role.on_peer_up(now, node, &name),
                PeerEvent::Dialled(node) => life.role.on_peer_dialled(now, node),
                PeerEvent::Down(node) => life.role.on_peer_down(now, node),
                PeerEvent::Says(node, says) => life.role.on_peer_says(now, node, says),
                PeerEvent::Admitted(node, sent_ms) => life.role.on_admitted(node, sent_ms),
                PeerEvent::Vitals(node, vitals) => life.role.on_vitals(now, node, vitals),
                PeerEvent::Ask(conn, tid, body) => {
                    let (quorum, tx) = (life.quorum.clone(), life.answers.0.clone());
                    life.runtime.spawn(async move {
                        let answer = quorum.answer(&body).await;
                        tx.send((conn, tid, answer)).ok();
                    });
                }
            }
        }
    }

    /// Moves a monitor's log on to the world's time.
    fn mon_run(&mut self, m: usize) {
        let now = self.now;
        let Some(life) = self.life(m) else { return };
        let gap = now - life.moved;
        life.moved = now;
        let until = life.began.0 + Duration::from_nanos(now - life.began.1);
        life.runtime.block_on(async {
            if gap > JUMP {
                tokio::time::advance(Duration::from_nanos(gap)).await;
            }
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            tokio::time::sleep_until(until).await;
        });
    }

    /// Does what the role and its log want, until they want nothing more at this time.
    fn mon_go_on(&mut self, m: usize) {
        for round in 0.. {
            self.mon_run(m);
            let mut busy = self.mon_events(m);
            while let Some(call) = self.life(m).and_then(|l| l.calls.try_recv().ok()) {
                busy = true;
                self.links_do(m, |links, now, wire| links.call(now, call, wire));
            }
            while let Some(answer) = self.life(m).and_then(|l| l.answers.1.try_recv().ok()) {
                busy = true;
                let (conn, tid, body) = answer;
                let now = self.clock(Node::Mon(m));
                if Call::admits(&body)
                    && let Some(life) = self.life(m)
                {
                    life.role.on_heard(now);
                }
                let env = own_message(mon::peer::LOG_ANSWER, tid, body);
                MonWire { world: self, m }.send(conn, env);
            }
            busy |= self.mon_out(m);
            if !busy || !self.wrong.is_empty() {
                break;
            }
            if round == ROUNDS_MAX {
                self.complain(format!("mon.{} does not come to rest", name_of(m)));
                break;
            }
        }
        self.mon_flush_later(m);
    }

    fn mon_events(&mut self, m: usize) -> bool {
        let mut busy = false;
        loop {
            let now = self.clock(Node::Mon(m));
            let Some(life) = self.life(m) else { return busy };
            let event = match life.events.try_recv() {
                Ok(event) => event,
                Err(mpsc::error::TryRecvError::Empty) => return busy,
                Err(mpsc::error::TryRecvError::Disconnected) => {
                    self.complain(format!("the log of mon.{} has ended", name_of(m)));
                    return busy;
                }
            };
            busy = true;
            let seen = match &event {
                quorum::Event::Committed { index, origin, token, data } => {
                    Some((*index, crc32c(crc32c(*origin as u32 ^ *token as u32, data), b"")))
                }
                _ => None,
            };
            let began = match &event {
                quorum::Event::Began { index, ballot } => Some((*ballot, *index)),
                _ => None,
            };
            life.role.on_quorum(now, event).expect("what the log holds can be read");
            if let Some(index) = life.role.rewind_to() {
                let (state, entries, index) =
                    life.quorum.state_after(index).expect("its log can be read");
                life.role
                    .on_rewound(now, index, &state, &entries)
                    .expect("what the log holds can be read");
            }
            if let Some((index, sum)) = seen {
                self.mix(u64::from(sum));
                if *self.entries.entry(index).or_insert(sum) != sum {
                    self.complain(format!("mon.{} has another entry {index}", name_of(m)));
                }
            }
            if let Some((ballot, index)) = began {
                self.tell(|| format!("mon.{}: {ballot:?} began at {index}", name_of(m)));
                let begins = *self.reigns.entry(ballot).or_insert(index);
                let before = self.reigns.range(..ballot).next_back().is_some_and(|e| *e.1 >= index);
                let after = self.reigns.range(ballot..).nth(1).is_some_and(|e| *e.1 <= index);
                if begins != index || before || after {
                    let why = format!("{ballot:?} begins at {index} for mon.{}", name_of(m));
                    self.complain(format!("{why}, against {:?}", self.reigns));
                }
            }
        }
    }

    /// Does what the role wants; whether that was anything.
    fn mon_out(&mut self, m: usize) -> bool {
        let Some(life) = self.life(m) else { return false };
        let outputs = life.role.poll();
        let busy = !outputs.is_empty();
        for output in outputs {
            match output {
                Output::Send { conn, env } => {
                    if let Some(c) = conn_of(conn) {
                        self.send(c, 1, env);
                    }
                }
                Output::Close { conn } => {
                    if let Some(c) = conn_of(conn) {
                        self.hang_up(c, 1);
                    }
                }
                Output::Peer { node, env } => {
                    self.links_do(m, |links, _, wire| links.send(node, env, wire));
                }
                Output::Propose { .. } | Output::Snapshot { .. } => {
                    if let Some(life) = self.life(m) {
                        life.wishes.send(output).ok();
                    }
                }
                Output::Local { .. } | Output::Module { .. } | Output::Probe { .. } => {}
            }
        }
        busy
    }

    fn mon_flush_later(&mut self, m: usize) {
        let p = &self.mons[m];
        if p.flushing || p.life.is_none() || p.file.queued() == 0 {
            return;
        }
        let (lives, slow) = (p.lives, p.slow);
        let ns = self.chance.within(MS, 20 * MS) * slow;
        self.mons[m].flushing = true;
        self.after(ns, Event::MonFlush(m, lives));
    }

    pub(crate) fn mon_flush(&mut self, m: usize, lives: u64) {
        if self.mons[m].lives != lives {
            return;
        }
        let n = 1 + self.chance.index(self.mons[m].file.queued());
        self.mons[m].file.flush(n);
        self.mons[m].flushing = false;
        self.mon_go_on(m);
    }

    // ----- its connections -----

    pub(crate) fn mon_opened(&mut self, m: usize, c: usize) {
        if self.conns[c].line == Line::Quorum {
            self.links_do(m, |links, now, wire| links.on_opened(now, id(c), wire));
            return;
        }
        let admin = |gid: u64| {
            let name = EntityName::new(EntityKind::CLIENT, "admin");
            (EntityId::new(EntityKind::CLIENT, gid as i64), name, client_addr(gid))
        };
        let (entity, name, addr) = match self.conns[c].ends[0] {
            Node::Osd(i) => {
                let name = EntityName::new(EntityKind::OSD, i.to_string());
                (EntityId::new(EntityKind::OSD, i as i64), name, client_addr(i as u64))
            }
            Node::Client(i) => admin(self.clients[i].gid),
            Node::Operator(k) => admin(self.operators[k].gid),
            Node::Mon(_) => return,
        };
        let identity = PeerIdentity {
            name,
            global_id: entity.num as u64,
            allow_all: true,
            ..PeerIdentity::default()
        };
        let features = Features::TENTACLE_WORD;
        let peer = mon::PeerInfo { identity, entity, features, addrs: addr.into(), at_mgr: false };
        self.mon_do(m, |mon, now| mon.on_opened(now, id(c), peer));
    }

    pub(crate) fn mon_closed(&mut self, m: usize, c: usize) {
        if self.conns[c].line == Line::Quorum {
            let events = self.links_do(m, |links, now, _| links.lost(now, id(c)));
            self.mon_peer_events(m, events);
            self.mon_go_on(m);
        } else {
            self.mon_do(m, |mon, now| mon.on_closed(now, id(c)));
        }
    }

    pub(crate) fn mon_message(&mut self, m: usize, c: usize, e: &Envelope) {
        if self.conns[c].line == Line::Quorum {
            let events = self.links_do(m, |links, now, wire| links.on_message(now, id(c), e, wire));
            self.mon_peer_events(m, events);
            self.mon_go_on(m);
        } else {
            self.mon_do(m, |mon, now| mon.on_message(now, id(c), e));
        }
    }

    /// What each monitor is about, for people.
    pub(crate) fn why_no_quorum(&self) -> String {
        let one = |p: &MonProc| match p.life.as_ref() {
            _ if p.gone => format!("mon.{} gone", p.name),
            None => format!("mon.{} dead", p.name),
            Some(l) => format!(
                "mon.{} map {:?} members {:?} {}",
                p.name,
                l.role.state().monmap.mons.keys().collect::<Vec<_>>(),
                l.quorum.members(),
                l.role.standing_text(),
            ),
        };
        self.mons.iter().map(one).collect::<Vec<_>>().join("; ")
    }

    /// The monitor that leads, if one does: in the newest term, if several believe so.
    pub(crate) fn leader(&self) -> Option<usize> {
        let leads = |m: &usize| self.mons[*m].role().is_some_and(Monitor::leads);
        let term = |m: &usize| self.mons[*m].role().map(|r| r.volatile().quorum.election_epoch);
        (0..self.mons.len()).filter(leads).max_by_key(term)
    }
}
