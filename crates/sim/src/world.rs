//! The world: virtual time, chance, processes, and the events that are to come.
//!
//! Everything that happens is an [`Event`] at a time; equal times keep their order. All
//! chance comes from one seed. So a seed replays byte for byte, and [`World::trace`], a
//! hash of everything that happened, tells whether it did.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use env::{Now, Random, Seeded};
use types::{Epoch, OsdId, PgId, PoolId, Uuid};

use crate::client::Client;
use crate::history::History;
use crate::mons::MonProc;
use crate::net::Conn;
use crate::operators::Operator;
use crate::osds::OsdProc;
use crate::plant::Plant;

/// A virtual millisecond.
pub const MS: u64 = 1_000_000;
/// A virtual second.
pub const SEC: u64 = 1_000 * MS;
/// Where wall clocks start.
const WALL: u64 = 1_800_000_000 * SEC;

/// A process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Node {
    /// A monitor.
    Mon(usize),
    /// An OSD.
    Osd(usize),
    /// A client.
    Client(usize),
    /// Who types commands.
    Operator(usize),
}

/// Something that happens.
#[derive(Clone, Debug)]
pub enum Event {
    /// A message arrives: connection and direction.
    Deliver(usize, usize),
    /// A connection is dialled.
    Dial(usize),
    /// A side learns that its connection is gone; whether it was refused.
    Closed(usize, usize, bool),
    /// Time for a process, in one of its lives.
    Tick(Node, u64),
    /// An OSD's disk writes.
    Flush(usize, u64),
    /// An OSD's disk has read.
    Fetch(usize, u64),
    /// An OSD's store makes a checkpoint or merges.
    Behind(usize, u64),
    /// The power of an OSD's machine is cut.
    Power(usize, u64),
    /// A monitor's disk writes.
    MonFlush(usize, u64),
    /// A process starts.
    Start(Node),
    /// A client or operator does something.
    Work(Node),
    /// A client dials an OSD, for one of its sessions.
    ClientDial(usize, OsdId, u64),
    /// A process asks for a session with a monitor.
    MonDial(Node, u64),
    /// A watcher does something.
    Watch(usize),
    /// The hostile client does something.
    Hostile,
    /// The next fault.
    Fault,
    /// A fault ends.
    Mend(Mend),
}

/// What ends.
#[derive(Clone, Debug)]
pub enum Mend {
    /// These directions carry again.
    Wires(Vec<(Node, Node)>),
    /// A disk is fast again.
    Disk(usize),
    /// A monitor's disk is.
    MonDisk(usize),
    /// A disk has room again.
    Room(usize),
}

struct Due {
    at: u64,
    seq: u64,
    event: Event,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Due {}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.seq).cmp(&(self.at, self.seq)) // the heap gives the greatest
    }
}

/// Chance.
pub struct Chance(Seeded);

impl Chance {
    /// A number below `n`; 0 for 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0.u64() % n.max(1)
    }

    /// An index of something with `n` places.
    pub fn index(&mut self, n: usize) -> usize {
        self.below(n as u64) as usize
    }

    /// A number from `a` up to and without `b`.
    pub fn within(&mut self, a: u64, b: u64) -> u64 {
        a + self.below(b.saturating_sub(a))
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of these.
    pub fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.index(all.len())]
    }

    /// A source of its own for somebody else.
    pub fn fork(&mut self) -> Seeded {
        Seeded(self.0.u64())
    }

    /// A random number.
    pub fn any(&mut self) -> u64 {
        self.0.u64()
    }
}

/// A process' clocks: never the same twice, neither in zero nor in pace.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    mono: u64,
    wall: i64,
    /// Parts per million too fast or too slow.
    ppm: i64,
}

impl Clock {
    pub(crate) fn new(chance: &mut Chance) -> Self {
        Self {
            mono: chance.within(SEC, 1_000_000 * SEC),
            wall: chance.within(0, 200 * MS) as i64 - 100 * MS as i64,
            ppm: chance.within(0, 401) as i64 - 200,
        }
    }

    /// The wall clock steps.
    pub(crate) fn step(&mut self, by_ns: i64) {
        self.wall += by_ns;
    }

    fn now(&self, t: u64) -> Now {
        let run = (t as i64 + t as i64 / 1_000_000 * self.ppm) as u64;
        Now { mono_ns: self.mono + run, wall_ns: (WALL as i64 + self.wall) as u64 + run }
    }
}

/// What a run is like.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Monitors at the start.
    pub mons: usize,
    /// Data and coding shards, for an erasure-coded pool.
    pub coded: Option<(usize, usize)>,
    /// OSDs at the start.
    pub osds: usize,
    /// PGs at the start.
    pub pg_num: u32,
    /// Copies.
    pub size: usize,
    /// Copies without which nobody is served.
    pub min_size: usize,
    /// Clients.
    pub clients: usize,
    /// Objects.
    pub objects: usize,
    /// Operations in all.
    pub operations: u64,
    /// How long faults happen, ns.
    pub trouble: u64,
    /// Mean time between faults, ns.
    pub fault_every: u64,
    /// `osd_heartbeat_interval`, ms.
    pub heartbeat_ms: u64,
    /// `osd_heartbeat_grace`, ms.
    pub grace_ms: u64,
    /// `osd_max_pg_log_entries`.
    pub log_entries: u64,
    /// `mon_min_osdmap_epochs`.
    pub maps_kept: u64,
    /// `osd_target_pg_log_bytes_per_osd`.
    pub log_bytes: u64,
    /// Latency of the network, ns, from and to.
    pub latency: (u64, u64),
    /// Latency of disks, ns, from and to.
    pub disk: (u64, u64),
    /// Disks fill up.
    pub small_disks: bool,
    /// `osd_scrub_auto_repair`.
    pub auto_repair: bool,
    /// A cache tier over the pool.
    pub tier: Option<crate::tiers::Plan>,
    /// Operators upload a class, and clients call it.
    pub class: bool,
    /// OSDs have the real store, on disks that lose and tear what was not flushed.
    pub real_store: bool,
}

/// What is played, where the seed is not to say.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scenes {
    /// An erasure-coded pool.
    pub coded: Option<bool>,
    /// A cache tier.
    pub tier: Option<bool>,
    /// An uploaded class.
    pub class: Option<bool>,
    /// The real store under the OSDs.
    pub real_store: Option<bool>,
}

impl Settings {
    pub(crate) fn draw(chance: &mut Chance) -> Self {
        let osds = match chance.below(12) {
            0 => chance.within(9, 21),
            _ => chance.within(3, 9),
        } as usize;
        let size = chance.of(&[2, 3, 3, 3, 4]).min(osds);
        let min_size = match chance.below(6) {
            0 => 1,
            1 => size,
            _ => size / 2 + 1,
        };
        let grace_ms = chance.within(3_000, 20_000);
        const LARGE: u64 = 256 << 20;
        let logs = [(16, LARGE), (24, LARGE), (60, LARGE), (2_000, LARGE), (2_000, 0)];
        let (log_entries, log_bytes) = chance.of(&logs);
        Self {
            coded: None,
            mons: chance.of(&[1, 3, 3, 3, 3, 5]),
            osds,
            size,
            min_size,
            pg_num: chance.within(1, 13) as u32,
            clients: chance.within(2, 7) as usize,
            objects: chance.within(2, 16) as usize,
            operations: chance.within(150, 900),
            trouble: chance.within(40, 180) * SEC,
            fault_every: chance.within(1, 12) * SEC,
            heartbeat_ms: chance.within(grace_ms / 8, grace_ms / 3),
            grace_ms,
            log_entries,
            log_bytes,
            maps_kept: chance.of(&[1, 5, 30, 500]),
            latency: chance.of(&[(50_000, MS), (100_000, 5 * MS), (MS, 60 * MS)]),
            disk: chance.of(&[(50_000, MS), (200_000, 8 * MS), (MS, 40 * MS)]),
            small_disks: false,
            auto_repair: false,
            tier: None,
            class: false,
            real_store: false,
        }
    }

    /// With an erasure-coded pool.
    pub(crate) fn coded(mut self, chance: &mut Chance) -> Self {
        let codes = [(2, 1), (2, 1), (2, 2), (3, 2), (4, 2)];
        let (k, m) = chance.of(&codes);
        self.coded = Some((k, m));
        self.size = k + m;
        self.osds = self.osds.max(k + m + usize::from(chance.one_in(2)));
        self.min_size = k + usize::from(m > 1);
        self
    }
}

/// See the module.
pub struct World {
    /// The seed.
    pub seed: u64,
    /// What the run is like.
    pub settings: Settings,
    /// Virtual time, ns.
    pub now: u64,
    pub(crate) chance: Chance,
    seq: u64,
    due: BinaryHeap<Due>,
    trace: u64,
    /// Events so far.
    pub events: u64,
    /// Whether to print what happens.
    pub verbose: bool,
    /// The bug that is planted.
    pub plant: Option<Plant>,
    pub(crate) fsid: Uuid,
    pub(crate) pool: PoolId,
    /// Its cache tier.
    pub(crate) cache: Option<PoolId>,
    pub(crate) tiering: crate::tiers::Tiering,
    pub(crate) conns: Vec<Conn>,
    /// Directions that carry nothing.
    pub(crate) cut: BTreeMap<(Node, Node), u32>,
    /// Processes that stand still, and until when.
    pub(crate) paused: BTreeMap<Node, u64>,
    pub(crate) clocks: BTreeMap<Node, Clock>,
    pub(crate) mons: Vec<MonProc>,
    pub(crate) operators: Vec<Operator>,
    /// A checksum of each entry of the monitors' log.
    pub(crate) entries: BTreeMap<u64, u32>,
    /// Where each election's winner began.
    pub(crate) reigns: BTreeMap<mon::quorum::Ballot, u64>,
    pub(crate) osds: Vec<OsdProc>,
    pub(crate) clients: Vec<Client>,
    pub(crate) next_gid: u64,
    /// Who removes what there is, whether disks are full or not.
    pub(crate) remover: usize,
    /// The client that means harm.
    pub(crate) hostile: Option<usize>,
    /// The objects' histories.
    pub histories: BTreeMap<String, History>,
    /// The snapshots that clients know.
    pub(crate) snaps: crate::snaps::Known,
    pub(crate) watching: crate::watch::Watching,
    pub(crate) value: u64,
    pub(crate) asked: u64,
    pub(crate) answered: u64,
    /// Whether clients begin new operations.
    pub(crate) working: bool,
    /// Whether faults happen.
    pub(crate) trouble: bool,
    /// A checksum of each map that was seen.
    pub(crate) maps: BTreeMap<Epoch, u32>,
    /// Faults so far, by name.
    pub faults: BTreeMap<&'static str, u64>,
    /// What real stores did, by name.
    pub deeds: BTreeMap<&'static str, u64>,
    /// OSDs that will not come back.
    pub(crate) gone: BTreeSet<usize>,
    /// PGs that were given another primary for a while.
    pub(crate) primary_temps: BTreeSet<PgId>,
    /// What was seen to be wrong.
    pub(crate) wrong: Vec<String>,
}

impl World {
    /// An empty one; nothing runs yet.
    #[must_use]
    pub fn new(seed: u64, plant: Option<Plant>, scenes: Scenes) -> Self {
        let mut chance = Chance(Seeded(seed));
        let mut settings = Settings::draw(&mut chance);
        if plant == Some(Plant::FalsePings) {
            // OSDs that are cut off are replaced soon, and their objects are busy.
            (settings.grace_ms, settings.heartbeat_ms) = (4_000, 1_000);
            settings.objects = settings.objects.min(4);
            settings.operations = 900;
        }
        if plant == Some(Plant::ForgottenMaps) {
            settings.maps_kept = 1;
        }
        // Every fourth seed, unless told: what is drawn for the others stays as it was.
        if scenes.coded.unwrap_or(plant.is_none() && seed % 4 == 3) {
            settings = settings.coded(&mut Chance(Seeded(!seed)));
        }
        settings.auto_repair = seed.is_multiple_of(2);
        let tiered = match plant {
            Some(plant) => plant == Plant::EmptyFlushes,
            None => seed % 6 == 4,
        };
        if scenes.tier.unwrap_or(tiered) && settings.coded.is_none() {
            let chance = &mut Chance(Seeded(seed.rotate_left(32)));
            settings.tier = Some(crate::tiers::Plan::draw(chance, settings.osds));
        }
        let called = match plant {
            Some(plant) => plant == Plant::WrongCalls,
            None => seed % 7 == 5,
        };
        settings.class = scenes.class.unwrap_or(called);
        let real = match plant {
            Some(plant) => plant == Plant::LooseCheckpoints,
            None => seed % 13 % 3 == 1,
        };
        settings.real_store = scenes.real_store.unwrap_or(real);
        settings.small_disks = match plant {
            Some(plant) => plant == Plant::DeafToRoom && !settings.real_store,
            None => seed % 5 == 2 && settings.tier.is_none(),
        };
        let mut raw = [0; 16];
        chance.0.fill(&mut raw);
        let fsid = Uuid::from_random(raw);
        Self {
            seed,
            mons: crate::mons::founders(fsid, &settings, plant),
            operators: Vec::new(),
            entries: BTreeMap::new(),
            reigns: BTreeMap::new(),
            settings,
            now: SEC,
            chance,
            seq: 0,
            due: BinaryHeap::new(),
            trace: 0xcbf2_9ce4_8422_2325,
            events: 0,
            verbose: false,
            plant,
            fsid,
            pool: PoolId(0),
            cache: None,
            tiering: crate::tiers::Tiering::default(),
            conns: Vec::new(),
            cut: BTreeMap::new(),
            paused: BTreeMap::new(),
            clocks: BTreeMap::new(),
            osds: Vec::new(),
            clients: Vec::new(),
            next_gid: 5_000,
            remover: 0,
            hostile: None,
            histories: BTreeMap::new(),
            snaps: crate::snaps::Known::default(),
            watching: crate::watch::Watching::default(),
            value: 0,
            asked: 0,
            answered: 0,
            working: false,
            trouble: false,
            maps: BTreeMap::new(),
            faults: BTreeMap::new(),
            deeds: BTreeMap::new(),
            gone: BTreeSet::new(),
            primary_temps: BTreeSet::new(),
            wrong: Vec::new(),
        }
    }

    /// A hash of everything that has happened.
    #[must_use]
    pub fn trace(&self) -> u64 {
        self.trace
    }

    pub(crate) fn mix(&mut self, x: u64) {
        self.trace = (self.trace ^ x).wrapping_mul(0x100_0000_01b3).rotate_left(17);
    }

    /// Prints a line, when somebody wants to know.
    pub(crate) fn tell(&self, line: impl FnOnce() -> String) {
        if self.verbose {
            eprintln!("{:>10.4} {}", self.now as f64 / 1e9, line());
        }
    }

    /// Something is wrong; the run ends.
    pub(crate) fn complain(&mut self, what: String) {
        self.tell(|| format!("WRONG: {what}"));
        self.wrong.push(what);
    }

    /// What a process' clocks show.
    pub(crate) fn clock(&mut self, node: Node) -> Now {
        let t = self.now;
        let chance = &mut self.chance;
        self.clocks.entry(node).or_insert_with(|| Clock::new(chance)).now(t)
    }

    pub(crate) fn after(&mut self, ns: u64, event: Event) {
        self.seq += 1;
        self.due.push(Due { at: self.now + ns, seq: self.seq, event });
    }

    /// Until when the process that an event happens to stands still.
    fn held(&self, event: &Event) -> Option<u64> {
        if self.paused.is_empty() {
            return None;
        }
        let node = match event {
            Event::Deliver(c, dir) => self.conns[*c].ends[1 - dir],
            Event::Closed(c, side, _) => self.conns[*c].ends[*side],
            Event::Tick(node, _) | Event::MonDial(node, _) => *node,
            Event::Flush(i, _) | Event::Fetch(i, _) | Event::Behind(i, _) => Node::Osd(*i),
            Event::MonFlush(m, _) => Node::Mon(*m),
            Event::Work(node) => *node,
            Event::ClientDial(i, ..) => Node::Client(*i),
            Event::Dial(_)
            | Event::Start(_)
            | Event::Fault
            | Event::Watch(_)
            | Event::Hostile
            | Event::Power(..)
            | Event::Mend(_) => return None,
        };
        self.paused.get(&node).copied().filter(|until| *until > self.now)
    }

    /// The next event happens. `false` when there is none.
    pub fn step(&mut self) -> bool {
        let Some(due) = self.due.pop() else { return false };
        self.now = self.now.max(due.at);
        if let Some(until) = self.held(&due.event) {
            // In steps, for it may go on earlier; the order stays.
            self.after((until - self.now).min(50 * MS), due.event);
            return true;
        }
        self.events += 1;
        self.mix(due.at);
        match due.event {
            Event::Deliver(c, dir) => self.deliver(c, dir),
            Event::Dial(c) => self.dialled(c),
            Event::Closed(c, side, refused) => self.closed(c, side, refused),
            Event::Tick(Node::Mon(m), life) => self.mon_tick(m, life),
            Event::Tick(Node::Osd(i), life) => self.osd_tick(i, life),
            Event::Tick(..) => {}
            Event::Flush(i, life) => self.flush(i, life),
            Event::Fetch(i, life) => self.fetched(i, life),
            Event::Behind(i, life) => self.work_behind(i, life),
            Event::Power(i, life) => self.power_cut(i, life),
            Event::MonFlush(m, life) => self.mon_flush(m, life),
            Event::Start(Node::Mon(m)) => self.start_mon(m),
            Event::Start(Node::Osd(i)) => self.start_osd(i),
            Event::Start(_) => {}
            Event::Work(Node::Client(i)) => self.work(i),
            Event::Work(Node::Operator(k)) => self.operator_work(k),
            Event::Work(_) => {}
            Event::ClientDial(i, osd, session) => self.client_dial(i, osd, session),
            Event::MonDial(node, life) => self.mon_dial(node, life),
            Event::Watch(k) => self.watch_work(k),
            Event::Hostile => self.hostile_work(),
            Event::Fault => self.fault(),
            Event::Mend(mend) => self.mend(mend),
        }
        true
    }

    /// Goes on until `done` says so, asked twice a virtual second, or `secs` are over.
    /// Whether it said so; ends early when something is wrong.
    pub fn run_until(&mut self, secs: u64, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now + secs * SEC;
        let mut ask_at = self.now;
        while self.wrong.is_empty() {
            if self.now >= ask_at {
                if done(self) {
                    return true;
                }
                ask_at = self.now + SEC / 2;
            }
            if self.now >= end || !self.step() {
                break;
            }
        }
        false
    }
}
