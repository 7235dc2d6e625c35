//! A placement group: its copy here, and when this OSD leads it, the order of its writes.
//!
//! ```text
//!             new interval
//!   any ───────────────────▶ Inactive ──(not primary)──▶ waits for the primary's Activate
//!                               │ primary
//!                               ▼
//!   GetInfo ─▶ GetLog ─▶ Scan ─▶ WaitUpThru ─▶ Activating ─▶ Active
//!   who has    the best  copies   the map says  log and lack    serves, recovers
//!   what?      log       without  we may have   of all copies
//!                        common   served        durable
//!                        log
//! ```
//!
//! What may be trusted: in `Active`, `log` and `info` are the PG's, every write up to
//! `committed_by_all` is durable on every acting copy, and an object that neither `missing`
//! nor a peer's `missing` names is the same on all of them. An interval's writes are
//! acknowledged only by all of its acting set; so one survivor of each interval that may
//! have served knows them all, and peering waits until it has asked one.
//!
//! Source: the peer's `PeeringState`, `PrimaryLogPG`, `PGLog`; messages and disk form are
//! ours.

mod backfill;
mod choice;
mod coded;
mod leased;
mod log;
mod mend;
mod merge;
mod ops;
mod peering;
mod pgls;
mod pool;
mod recovery;
mod replica;
pub(crate) mod room;
pub(crate) mod scrub;
pub(crate) mod shards;
mod snaps;
mod submit;
pub(crate) mod tier;
mod trim;
mod turns;
mod unfound;
mod watch;

use std::collections::{BTreeMap, HashMap, VecDeque};

use bytes::Bytes;
use denc::Denc;
use env::Now;
use maps::{OsdMap, PgShard};
use messages::{Envelope, Interval, PgInfo, PgLogEntry};
use stdx::FastMap;
use types::{EVersion, Epoch, HObject, OsdId, PgId, SpgId};

use crate::backing::{Coll, ObjectStore, StoreOp};
use crate::bulk::Marked;
use crate::config::Config;
use crate::object::{INFO_ATTR, ObjectInfo, ObjectState};
use crate::outbox::Outbox;
use crate::perf::Perf;
use crate::session::ClientOp;

pub(crate) use backfill::{Target, lend_slot};
pub(crate) use coded::{Undo, undo_range};
pub use log::{Bound, Dup, PgLog, log_key, log_range, version_of_key};
pub use ops::Answer;
pub(crate) use peering::own_from;
pub(crate) use pool::PoolView;
pub(crate) use snaps::{clone_of_key, index_all};
pub use watch::Watches;

/// What a submitted transaction was for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ticket {
    /// Log entries up to this version.
    Log(SpgId, Epoch, EVersion),
    /// Everything that was under way when this interval began.
    Flushed(SpgId, Epoch),
    /// The copy's activation in this interval.
    Activated(SpgId, Epoch, u32),
    /// A recovered object.
    Recovered(SpgId, Epoch, HObject, EVersion),
    /// A step of `bench`.
    Bench(u64),
    /// Nothing waits for it.
    None,
}

/// Transactions on their way to the disk, oldest first.
#[derive(Debug, Default)]
pub struct Tickets {
    next: u64,
    open: VecDeque<(u64, Ticket)>,
}

impl Tickets {
    /// Takes all that are durable once `upto` is.
    pub fn take_upto(&mut self, upto: u64) -> Vec<Ticket> {
        let n = self.open.partition_point(|(n, _)| *n <= upto);
        self.open.drain(..n).map(|(_, t)| t).collect()
    }

    /// Hands a transaction to the store.
    pub fn submit(&mut self, store: &mut dyn ObjectStore, ops: Vec<StoreOp>, ticket: Ticket) {
        self.next += 1;
        self.open.push_back((self.next, ticket));
        store.submit(ops, self.next);
    }

    /// Number of transactions that are not durable.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Number of transactions that the store was ever given.
    #[must_use]
    pub fn given(&self) -> u64 {
        self.next
    }
}

/// What a PG works with while it handles one event.
pub struct Cx<'a> {
    /// Now.
    pub now: Now,
    /// This OSD.
    pub me: OsdId,
    /// The newest map.
    pub map: &'a OsdMap,
    /// The store.
    pub store: &'a mut dyn ObjectStore,
    /// What waits for the store.
    pub tickets: &'a mut Tickets,
    /// The way out.
    pub out: &'a mut Outbox,
    /// Counters.
    pub perf: &'a mut Perf,
    /// Options.
    pub conf: &'a Config,
    /// The highest `up_thru` that PGs wait for.
    pub want_up_thru: &'a mut Epoch,
    /// Recoveries under way on this OSD.
    pub recoveries: &'a mut usize,
    /// PGs that trim snapshots on this OSD.
    pub trimming: &'a mut usize,
    /// How fast work in the background goes.
    pub(crate) pace: &'a mut crate::pace::Pace,
    /// Number of PGs, by which budgets are shared.
    pub pg_count: usize,
    /// Objects to be fetched for copying.
    pub(crate) copies: &'a mut Vec<crate::copy::CopyWanted>,
    /// What cache tiers ask of their bases.
    pub(crate) asks: &'a mut Vec<crate::tier::AskWanted>,
    /// Promises of and to other OSDs.
    pub(crate) leases: &'a mut crate::lease::Leases,
    /// Clients that were asked to hold back.
    pub(crate) backoffs: &'a mut crate::backoffs::Backoffs,
    /// Data that the store is reading, by its number, and for whom.
    pub(crate) fetches: &'a mut HashMap<u64, SpgId>,
    /// Who may be scrubbed at the same time.
    pub(crate) slots: &'a mut crate::slots::AllSlots,
    /// The machine's load for each CPU.
    pub load: f64,
    /// Acting sets to ask for.
    pub(crate) want_temp: &'a mut BTreeMap<PgId, Vec<OsdId>>,
}

impl Cx<'_> {
    /// Whether clients leave room for another part.
    pub(crate) fn may_move(&mut self) -> bool {
        self.pace.may(&self.conf.pace, self.now)
    }

    /// As [`Cx::may_move`], for another object.
    pub(crate) fn may_start(&mut self) -> bool {
        self.pace.may_start(&self.conf.pace, self.now)
    }

    /// What a message about a part says of clients here.
    fn felt(&self, body: &messages::PeerMsg) -> u16 {
        use messages::PeerMsg::{Pull, Push, Pushed};
        let moves = matches!(body, Push(_) | Pull { .. } | Pushed { .. });
        if moves { self.pace.felt(self.now) } else { 0 }
    }

    pub(crate) fn submit(&mut self, ops: Vec<StoreOp>, ticket: Ticket) {
        self.tickets.submit(self.store, ops, ticket);
        self.pace.on_given(self.tickets.given(), self.now);
        if self.store.is_stopped() {
            self.out.close();
        }
    }

    /// As [`Cx::submit`], in as many transactions as the log wants; the ticket is the last one's.
    pub(crate) fn submit_marked(&mut self, steps: Marked, ticket: Ticket) {
        let mut all = steps.into_transactions(self.store.record_max() / 2);
        let last = all.pop().expect("there is at least one");
        for ops in all {
            self.submit(ops, Ticket::None);
        }
        self.submit(last, ticket);
    }
}

/// Where a PG is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// Whom CRUSH chose.
    pub up: Vec<OsdId>,
    /// The first of them; [`OsdId::NONE`] without.
    pub up_primary: OsdId,
    /// Who serves.
    pub acting: Vec<OsdId>,
    /// Who orders the writes; [`OsdId::NONE`] without.
    pub primary: OsdId,
}

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Waits for a primary, or is not needed here any more.
    Inactive,
    /// Primary: asks who has what.
    GetInfo,
    /// Primary: fetches the best log.
    GetLog,
    /// Primary: compares copies object by object.
    Scan,
    /// Primary: has asked for another acting set.
    WaitActing,
    /// Primary: waits until the map admits that it serves.
    WaitUpThru,
    /// Primary: waits until all copies are durable.
    Activating,
    /// Primary: serves. Replica: follows.
    Active,
}

/// What a primary knows of another copy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peer {
    /// Its answer to the query; `None` without a copy.
    pub info: Option<PgInfo>,
    /// It has answered.
    pub answered: bool,
    /// When it did, monotonic ms.
    pub answered_ms: u64,
    /// Durable there up to here.
    pub committed: EVersion,
    /// It has activated.
    pub activated: bool,
    /// Bytes of its log that one write may take; 0 when it did not say.
    pub record_max: u64,
    /// Objects it lacks.
    pub missing: BTreeMap<HObject, EVersion>,
    /// Its listing, while being compared.
    pub scan: Option<Scan>,
    /// What it is to be told at activation, when logs do not meet.
    pub reset: Option<peering::Difference>,
    /// It can only be brought up by comparing.
    pub force_scan: bool,
    /// Where a copy that does not act stands.
    pub target: backfill::Target,
    /// When it is asked again, monotonic ms.
    pub target_ms: u64,
    /// The attempt to activate it.
    pub target_round: u32,
    /// Objects written since it was sent the log, and the version it lacks if it lacks them.
    pub since: Vec<(HObject, Option<EVersion>)>,
    /// Since then objects became copies of others: only asking tells what it lacks.
    pub unsure: bool,
    /// It has lent its slot.
    pub slot: bool,
    /// Whether it has lent its slot for what it lacks.
    pub lends: recovery::Lends,
}

impl Peer {
    /// Whether it has whatever was written up to `version`, but for what it is known to lack. One
    /// that had no copy when it was asked has been told all since it is active.
    pub fn reaches(&self, version: EVersion) -> bool {
        self.activated || self.info.as_ref().is_some_and(|i| i.last_update >= version)
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Scan {
    pub next: HObject,
    pub objects: BTreeMap<HObject, EVersion>,
    pub done: bool,
}

/// A write on its way.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub version: EVersion,
    pub oid: HObject,
    /// For peers that lost it: one for all, or for each shard its own.
    pub sent: Vec<(Option<PgShard>, Envelope)>,
    /// Whom to answer, and with what.
    pub replies: Vec<(Box<ClientOp>, ops::Answer)>,
}

/// The cached state of an object: the projected one, with all submitted writes.
#[derive(Debug, Default)]
pub(crate) struct Obc {
    pub state: ObjectState,
    /// Writes that are not yet durable everywhere.
    pub in_flight: u32,
    /// Operations behind them, in order.
    pub waiting: VecDeque<Box<ClientOp>>,
    /// Reads that gather bytes of it; writes wait for them.
    pub readers: u32,
    /// A write gathers bytes of it; all others wait.
    pub writer: bool,
}

/// One PG on this OSD.
pub struct Pg {
    pub(crate) id: SpgId,
    pub(crate) coll: Coll,
    pub(crate) pool: PoolView,
    pub(crate) up_primary: OsdId,
    /// The map that divided it last, or made it so; not kept over a restart. What waited here for
    /// objects that went to a child was dropped then, and clients send all again: nothing that was
    /// sent before may pass it, even when the object has come back.
    pub(crate) split_at: Epoch,
    /// What is known of this copy; `last_update`, `log_tail`, `counts` and `missing` are
    /// refreshed from the log when it is sent or saved.
    pub(crate) info: PgInfo,
    pub(crate) log: PgLog,
    /// Objects this copy lacks, and the version wanted.
    pub(crate) missing: BTreeMap<HObject, EVersion>,
    pub(crate) state: State,
    /// Whether this OSD leads.
    pub(crate) leads: bool,
    /// Other copies, when leading.
    pub(crate) peers: BTreeMap<PgShard, Peer>,
    /// Whose log counts, when leading.
    pub(crate) auth: Option<PgShard>,
    /// A log that replaces the own one once copies are compared.
    pub(crate) pending_reset: Option<peering::PendingReset>,
    /// Down OSDs that peering cannot do without.
    pub(crate) blocked_by: Vec<OsdId>,
    /// What was under way when the interval began is durable. Before, nobody is told of the
    /// log: what a crash may take back must not become what others lack.
    pub(crate) flushed: bool,
    /// Questions that wait for that.
    pub(crate) early: Vec<(PgShard, messages::OsdPeer)>,
    /// The attempt to activate, in this interval: the own when leading, else the last one
    /// that was followed.
    pub(crate) round: u32,
    /// The own activation is durable.
    pub(crate) self_activated: bool,
    /// When what was asked for last is asked for again, monotonic ms.
    pub(crate) retry_at_ms: u64,
    pub(crate) obcs: FastMap<HObject, Obc>,
    pub(crate) in_flight: VecDeque<InFlight>,
    /// The oldest of them when it was looked at, and since when it is.
    pub(crate) oldest_write: (Option<EVersion>, u64),
    /// Durable here up to here.
    pub(crate) committed: EVersion,
    /// Durable everywhere up to here.
    pub(crate) committed_by_all: EVersion,
    /// Operations that wait for `Active`.
    pub(crate) waiting: VecDeque<Box<ClientOp>>,
    /// Whose operations were dropped because another leads now, and the maps that their
    /// clients had: they send again once they know.
    pub(crate) dropped: Vec<(env::ConnId, Epoch)>,
    /// Operations that wait until all acting copies promise again not to go on without us.
    pub(crate) unleased: VecDeque<Box<ClientOp>>,
    /// What the copies' activation promised, monotonic ms.
    pub(crate) lease_until_ms: u64,
    /// When the attempt to activate began, monotonic ms.
    pub(crate) activate_ms: u64,
    /// Operations that wait for an object to be recovered.
    pub(crate) blocked: FastMap<HObject, VecDeque<Box<ClientOp>>>,
    /// Requests whose source is being fetched; what comes for their objects is `blocked`.
    pub(crate) copying: BTreeMap<HObject, Box<ClientOp>>,
    /// Reads whose data the store is reading, each with the object as it was when it began.
    pub(crate) fetching: HashMap<u64, (Box<ClientOp>, ObjectState)>,
    /// Operations that wait for all objects.
    pub(crate) waiting_whole: VecDeque<Box<ClientOp>>,
    pub(crate) recovery: recovery::Recovery,
    /// What only PGs of erasure-coded pools have.
    pub(crate) coded: coded::Coded,
    pub(crate) trim: trim::Trim,
    pub(crate) mending: mend::Mending,
    pub(crate) room: room::Room,
    /// How often another acting set was asked for in this interval.
    pub(crate) temp_tries: u32,
    /// When the end of `pg_temp` was asked for, monotonic ms.
    pub(crate) temp_asked_ms: u64,
    /// The primary waits for this copy's slot.
    pub(crate) slot_wanted: bool,
    /// A copy that should take objects is too full.
    pub(crate) target_full: bool,
    /// An operator wants it recovered, and copied, before others.
    pub(crate) forced: bool,
    pub(crate) scrub: scrub::Scrub,
    /// The next scrub, ns after the last.
    pub(crate) scrub_after_ns: u64,
    pub(crate) watches: Watches,
    pub(crate) tier: tier::Tier,
    /// Read operations and bytes since start; writes are in the log's counts.
    pub(crate) reads: u64,
    pub(crate) read_bytes: u64,
    /// Recovered objects and bytes since start.
    pub(crate) recovered: (u64, u64),
    /// When the state last changed and the PG was last seen in each condition, wall ns.
    pub(crate) stamps: Stamps,
    /// Whether statistics changed since they were sent.
    pub(crate) stats_dirty: bool,
    /// Counts reports to the monitor.
    pub(crate) reported_seq: u64,
}

/// Times for the monitor's PG statistics, wall-clock nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stamps {
    pub(crate) change: u64,
    pub(crate) active: u64,
    pub(crate) clean: u64,
    pub(crate) unstale: u64,
    pub(crate) undegraded: u64,
    pub(crate) fullsized: u64,
    pub(crate) became_active: u64,
    pub(crate) became_peered: u64,
    pub(crate) peered: u64,
}

/// Key of the PG's info.
pub(crate) const INFO_KEY: Bytes = Bytes::from_static(b"i");
const MISSING: u8 = b'm';

/// The key that says an object is missing; its value is the version wanted.
pub(crate) fn missing_key(oid: &HObject) -> Bytes {
    let mut w = denc::Writer::new(denc::Features::ALL);
    w.u8(MISSING);
    oid.encode(&mut w);
    w.finish()
}

impl Pg {
    pub(crate) fn new(id: SpgId, info: PgInfo, pool: PoolView) -> Self {
        Self {
            id,
            coll: Coll::Pg(id),
            pool,
            up_primary: OsdId::NONE,
            split_at: Epoch(0),
            info,
            log: PgLog::default(),
            missing: BTreeMap::new(),
            state: State::Inactive,
            leads: false,
            peers: BTreeMap::new(),
            auth: None,
            pending_reset: None,
            blocked_by: Vec::new(),
            flushed: false,
            early: Vec::new(),
            round: 0,
            self_activated: false,
            retry_at_ms: 0,
            obcs: FastMap::default(),
            in_flight: VecDeque::new(),
            oldest_write: (None, 0),
            committed: EVersion::ZERO,
            committed_by_all: EVersion::ZERO,
            waiting: VecDeque::new(),
            dropped: Vec::new(),
            unleased: VecDeque::new(),
            lease_until_ms: 0,
            activate_ms: 0,
            blocked: FastMap::default(),
            copying: BTreeMap::new(),
            fetching: HashMap::new(),
            waiting_whole: VecDeque::new(),
            recovery: recovery::Recovery::default(),
            coded: coded::Coded::default(),
            trim: trim::Trim::default(),
            mending: mend::Mending::default(),
            room: room::Room::default(),
            temp_tries: 0,
            temp_asked_ms: 0,
            slot_wanted: false,
            target_full: false,
            forced: false,
            scrub: scrub::Scrub::default(),
            scrub_after_ns: 0,
            watches: Watches::default(),
            tier: tier::Tier::default(),
            reads: 0,
            read_bytes: 0,
            recovered: (0, 0),
            stamps: Stamps::default(),
            stats_dirty: true,
            reported_seq: 0,
        }
    }

    /// A copy as it was left on disk.
    ///
    /// # Errors
    /// A sentence, when what is on disk cannot be read.
    pub(crate) fn load(id: SpgId, store: &dyn ObjectStore) -> Result<Option<Self>, String> {
        let coll = Coll::Pg(id);
        let fail = |e: &dyn std::fmt::Display| format!("pg {id}: {e}");
        let Some(raw) = store.get(coll, &INFO_KEY).map_err(|e| fail(&e))? else {
            return Ok(None);
        };
        let info = PgInfo::from_shared(&raw).map_err(|e| fail(&e))?;
        let mut pg = Self::new(id, info, PoolView::default());
        pg.log.tail = pg.info.log_tail;
        let mut bad = None;
        let (from, to) = log_range();
        store
            .walk(coll, &from, &to, &mut |_, v| match PgLogEntry::from_bytes(v) {
                Ok(e) => {
                    pg.log.load(e.detached());
                    true
                }
                Err(e) => {
                    bad = Some(e);
                    false
                }
            })
            .map_err(|e| fail(&e))?;
        store
            .walk(coll, &[MISSING], &[MISSING + 1], &mut |k, v| match (
                HObject::from_bytes(&k[1..]),
                EVersion::from_bytes(v),
            ) {
                (Ok(oid), Ok(version)) => {
                    pg.missing.insert(oid, version);
                    true
                }
                (Err(e), _) | (_, Err(e)) => {
                    bad = Some(e);
                    false
                }
            })
            .map_err(|e| fail(&e))?;
        let (from, to) = coded::undo_range();
        store
            .walk(coll, &from, &to, &mut |k, v| match (
                version_of_key(k),
                coded::Undo::from_bytes(v),
            ) {
                (Some(version), Ok(undo)) => {
                    pg.coded.undo.insert(version, undo);
                    true
                }
                (_, Err(e)) => {
                    bad = Some(e);
                    false
                }
                (None, _) => true,
            })
            .map_err(|e| fail(&e))?;
        if let Some(e) = bad {
            return Err(fail(&e));
        }
        pg.committed = pg.log.head();
        pg.refresh_info();
        Ok(Some(pg))
    }

    /// Brings the parts of `info` up to date that follow from log and missing objects.
    pub(crate) fn refresh_info(&mut self) {
        self.info.last_update = self.log.head();
        self.info.log_tail = self.log.tail;
        self.info.missing = self.missing.len() as u64;
        if let Some(e) = self.log.entries.back() {
            self.info.counts = e.counts;
        }
    }

    pub(crate) fn save_info(&mut self, ops: &mut Vec<StoreOp>) {
        self.refresh_info();
        ops.push(StoreOp::Put(self.coll, INFO_KEY, self.info.to_bytes()));
    }

    /// The interval this copy is in.
    pub(crate) fn interval(&self) -> Epoch {
        self.info.same_interval_since
    }

    /// Other acting copies.
    pub(crate) fn others(&self, me: OsdId) -> impl Iterator<Item = PgShard> + '_ {
        let me = self.me(me);
        self.acting_copies().filter(move |c| *c != me)
    }

    /// Whether this copy is in the acting or up set.
    pub(crate) fn belongs_here(&self, me: OsdId) -> bool {
        self.acts(&self.me(me)) || self.is_chosen(&self.me(me))
    }

    /// Counters as they are after the last write.
    pub(crate) fn counts(&self) -> messages::PgCounts {
        self.log.entries.back().map_or(self.info.counts, |e| e.counts)
    }

    /// The user version after the last write.
    pub(crate) fn last_user_version(&self) -> u64 {
        self.log.last_user()
    }

    /// Takes one step along the maps. `prev` is the map before `map`. Returns whether a new
    /// interval began; [`Pg::on_interval`] then has to follow before anything else. Where maps
    /// were missed, one did.
    pub(crate) fn advance(
        &mut self,
        prev: &OsdMap,
        map: &OsdMap,
        pool: PoolView,
        place: Placement,
    ) -> bool {
        if map.epoch <= self.info.epoch && self.info.epoch != Epoch(0) {
            // Loaded at this epoch: nothing new but what is not kept on disk.
            self.pool = pool;
            self.up_primary = place.up_primary;
            return false;
        }
        let first = self.info.same_interval_since == Epoch(0);
        let same_sets = self.info.up == place.up
            && self.info.acting == place.acting
            && self.info.primary == place.primary
            && self.up_primary_unchanged(&place);
        // A pool view that was never set is the one before a restart.
        let same_pool =
            self.pool == PoolView::default() || self.pool.same_interval(&pool, self.id.pg);
        let missed = !first && self.info.epoch.0 + 1 < map.epoch.0;
        let changed = first || missed || !same_sets || !same_pool;
        if changed {
            if !first {
                self.end_interval(prev);
            }
            self.info.same_interval_since = map.epoch;
            if first || missed || self.info.up != place.up {
                self.info.same_up_since = map.epoch;
            }
            let led = self.primary();
            self.info.up = place.up;
            self.info.acting = place.acting;
            self.info.primary = place.primary;
            // One that leads for another shard now has another PG here, and what that one was asked
            // before is gone with the rest.
            if first || missed || led != self.primary() {
                self.info.same_primary_since = map.epoch;
            }
            if missed {
                self.note_unseen(map.epoch, pool.min_size);
            }
        }
        self.up_primary = place.up_primary;
        if pool.is_full() != self.pool.is_full() {
            self.room.on_mark(pool.is_full(), map.epoch);
        }
        self.pool = pool;
        self.info.epoch = map.epoch;
        changed
    }

    fn up_primary_unchanged(&self, place: &Placement) -> bool {
        self.up_primary == OsdId::NONE || self.up_primary == place.up_primary
    }

    /// Maps up to `at` were missed: the interval in force began nobody knows when, and its primary may
    /// have been admitted to serve before. Of those between, all that was acknowledged is with its
    /// copies or later ones: the monitors keep maps from one on in which the PG was clean.
    fn note_unseen(&mut self, at: Epoch, min_size: usize) {
        if self.may_have_acted(min_size) {
            let interval = self.interval_with(at, at);
            self.info.past.push(interval);
        }
    }

    /// Whether there are a primary and enough copies for writes.
    fn may_have_acted(&self, min_size: usize) -> bool {
        let acting = self.info.acting.iter().filter(|o| **o != OsdId::NONE).count();
        self.info.primary != OsdId::NONE && acting >= min_size.max(1)
    }

    /// An interval of the sets of now that may have taken writes.
    fn interval_with(&self, first: Epoch, last: Epoch) -> Interval {
        let i = &self.info;
        let (up, acting, primary) = (i.up.clone(), i.acting.clone(), i.primary);
        Interval { first, last, up, acting, primary, maybe_went_rw: true }
    }

    /// Records the interval that ended with the last map that this PG has seen. `prev` is that, or
    /// what is left of those before the next.
    fn end_interval(&mut self, prev: &OsdMap) {
        let i = &self.info;
        let (first, last) = (i.same_interval_since, i.epoch);
        let min_size = match prev.pool(self.id.pg.pool) {
            Some(pool) => usize::from(pool.min_size),
            None => self.pool.min_size,
        };
        let led = prev.info(i.primary);
        let served = led.up_thru >= first && led.up_from <= first;
        let was_clean = (first..=last).contains(&i.last_epoch_clean);
        let maybe_went_rw = self.may_have_acted(min_size) && (served || was_clean);
        // Its begin was missed.
        let unseen = i.past.last().is_some_and(|p| p.first == first && p.last == first);
        if !maybe_went_rw && !unseen {
            return; // nothing was acknowledged in it
        }
        let interval = self.interval_with(first, last);
        match self.info.past.last_mut() {
            // The same OSDs again: one of them is asked for both.
            Some(p)
                if (&p.acting, &p.up, p.primary)
                    == (&interval.acting, &interval.up, interval.primary) =>
            {
                p.last = last;
            }
            _ => self.info.past.push(interval),
        }
    }

    /// Takes every request that had begun, in the order in which they came.
    pub(crate) fn take_ops(&mut self, cx: &mut Cx<'_>) -> VecDeque<Box<ClientOp>> {
        let mut again: Vec<Box<ClientOp>> = Vec::new();
        for f in std::mem::take(&mut self.in_flight) {
            again.extend(f.replies.into_iter().map(|(op, _)| op));
        }
        let mut rest: Vec<Box<ClientOp>> = Vec::new();
        for (_, obc) in std::mem::take(&mut self.obcs) {
            rest.extend(obc.waiting);
        }
        for (_, ops) in std::mem::take(&mut self.blocked) {
            rest.extend(ops);
        }
        rest.extend(std::mem::take(&mut self.copying).into_values());
        rest.extend(self.tier.take_ops());
        rest.extend(self.room.end_interval());
        rest.extend(std::mem::take(&mut self.fetching).into_values().map(|(op, _)| op));
        rest.extend(self.drop_gathers());
        rest.extend(std::mem::take(&mut self.waiting_whole));
        rest.extend(std::mem::take(&mut self.unleased));
        rest.extend(self.drop_scrub(cx));
        // Back into the order in which they came.
        rest.sort_by_key(|op| op.seq);
        again.extend(rest);
        again.sort_by_key(|op| op.seq);
        again.into()
    }

    /// A new interval has begun: everything that belonged to the old one ends. Operations
    /// stay when the primary is the same, for their clients will not send them again.
    /// Without `serve` the PG stays `Inactive`: the map does not show this process up.
    pub(crate) fn on_interval(&mut self, serve: bool, cx: &mut Cx<'_>) {
        let leads = serve && self.primary() == self.me(cx.me);
        let kept = leads && self.leads;
        self.release_backoffs(cx);
        let mut again = self.take_ops(cx);
        if kept {
            for mut op in again.into_iter().rev() {
                op.dup = None; // it may not have come to be
                self.waiting.push_front(op.afresh());
            }
        } else {
            again.extend(std::mem::take(&mut self.waiting));
            self.dropped.extend(again.into_iter().map(|op| (op.conn, op.msg.epoch)));
        }
        self.drop_recovery(cx);
        self.drop_trim(cx);
        self.forget_sent(cx);
        self.mending = mend::Mending::default();
        (self.temp_tries, self.temp_asked_ms, self.target_full) = (0, 0, false);
        self.slot_wanted = false;
        if kept {
            self.watches.on_interval();
        } else {
            self.watches.clear();
        }
        self.peers.clear();
        self.auth = None;
        self.pending_reset = None;
        self.blocked_by.clear();
        self.round = 0;
        self.lease_until_ms = 0;
        self.self_activated = false;
        self.flushed = false;
        self.early.clear();
        self.state = State::Inactive;
        self.leads = leads;
        self.stats_dirty = true;
        self.stamps.change = cx.now.wall_ns;
        let mut ops = vec![StoreOp::Create(self.coll)];
        self.save_info(&mut ops);
        cx.submit(ops, Ticket::Flushed(self.id, self.interval()));
        if self.leads {
            self.enter_get_info(cx);
        }
        self.retry_at_ms = cx.now.mono_ms() + 1_000;
    }

    /// What was under way when the interval began is durable.
    pub(crate) fn on_flushed(&mut self, cx: &mut Cx<'_>) {
        self.flushed = true;
        self.committed = self.committed.max(self.log.head());
        if self.leads {
            self.advance_peering(cx);
        } else {
            self.notify_primary(cx);
        }
        for (from, m) in std::mem::take(&mut self.early) {
            self.on_peer(from, m, cx);
        }
    }

    /// A newer map, without a new interval.
    pub(crate) fn on_map(&mut self, cx: &mut Cx<'_>) {
        if self.leads && matches!(self.state, State::GetInfo | State::WaitUpThru) {
            self.advance_peering(cx);
        }
        self.kick_trim(cx);
        self.tick_room(cx);
        if self.leads && self.state == State::Active && !cx.map.blocklist.is_empty() {
            self.tick_watches(cx);
        }
    }

    /// Once a second or so: what was asked for and not answered is asked for again.
    pub(crate) fn on_tick(&mut self, cx: &mut Cx<'_>) {
        self.tick_scrub(cx);
        self.tick_room(cx);
        self.tick_backoffs(cx);
        if self.leads {
            if cx.now.mono_ms() >= self.retry_at_ms {
                self.retry_peering(cx);
            }
            if self.state == State::Active {
                self.resume(cx);
                self.tick_writes(cx);
                self.tick_coded(cx);
                self.tick_backfill(cx);
                self.kick_recovery(cx);
                self.kick_trim(cx);
                self.tick_watches(cx);
                self.tick_tier(cx);
            }
        } else if cx.now.mono_ms() >= self.retry_at_ms
            && (self.state != State::Active || !self.acts(&self.me(cx.me)))
        {
            // A primary without a copy learns of the PG by this alone.
            self.notify_primary(cx);
        }
    }

    /// A write that no copy has answered for long is sent again, in case it was lost and
    /// nobody noticed.
    fn tick_writes(&mut self, cx: &mut Cx<'_>) {
        const STUCK_MS: u64 = 10_000;
        let now = cx.now.mono_ms();
        let oldest = self.in_flight.front().map(|f| f.version);
        if oldest.is_none() || self.oldest_write.0 != oldest {
            self.oldest_write = (oldest, now);
        } else if now >= self.oldest_write.1 + STUCK_MS {
            self.oldest_write.1 = now;
            for copy in self.others(cx.me).collect::<Vec<_>>() {
                self.send_again(copy, cx);
            }
        }
    }

    /// The object's record as it is on disk now.
    pub(crate) fn read_state(
        store: &dyn ObjectStore,
        coll: Coll,
        oid: &HObject,
    ) -> Result<ObjectState, crate::backing::StoreError> {
        let Some(raw) = store.attr(coll, oid, INFO_ATTR)? else {
            return Ok(ObjectState::default());
        };
        match ObjectInfo::from_bytes(&raw) {
            Ok(info) => Ok(ObjectState { exists: !info.whiteout, info }),
            Err(e) => Err(crate::backing::StoreError(format!("{oid}: {e}"))),
        }
    }

    /// Whether all acting copies are whole, and as many as they should be.
    pub(crate) fn is_clean(&self) -> bool {
        self.state == State::Active
            && self.leads
            && self.is_full_sized()
            && self.is_settled()
            && self.missing.is_empty()
            && self
                .peers
                .iter()
                .all(|(o, p)| !self.acts(o) || (p.activated && p.missing.is_empty()))
    }

    /// Whether no copy that CRUSH chose is still to be brought up. Others may act too, where CRUSH
    /// finds too few places.
    fn is_settled(&self) -> bool {
        self.up_copies().all(|copy| self.acts(&copy) || self.is_bound(copy.shard))
    }

    /// Whether exactly those act that CRUSH chose, in its order.
    pub(crate) fn is_placed(&self) -> bool {
        self.info.acting == self.info.up
    }

    /// Whether as many copies act as it takes to acknowledge something.
    pub(crate) fn has_enough(&self) -> bool {
        self.members() >= self.pool.min_size.max(self.pool.readable_by())
    }

    /// Whether enough copies are there to serve.
    pub(crate) fn is_serving(&self) -> bool {
        self.state == State::Active
            && self.leads
            && self.has_enough()
            && self.is_coded() == self.pool.coding.is_some()
            && !self.is_merging()
    }

    /// Whether requests for the object wait for something that is not its recovery.
    pub(crate) fn is_held(&self, oid: &HObject) -> bool {
        self.copying.contains_key(oid) || self.tier.holds(oid)
    }

    /// Whether a fetched object is waited for.
    pub(crate) fn waits_for_copy(&self, oid: &HObject, seq: u64) -> bool {
        self.copying.get(oid).is_some_and(|op| op.seq == seq) || self.tier.promotes(oid, seq)
    }

    /// Whether the map announces a merge with another PG: nothing is written any more.
    pub(crate) fn is_merging(&self) -> bool {
        self.pool.is_merging(self.id.pg)
    }
}
