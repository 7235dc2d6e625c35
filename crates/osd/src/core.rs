//! The OSD as a whole: its state, and where each event goes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use env::Now;
use maps::{OsdMap, PgMapping, PgSets};
use messages::{Envelope, ForceRecovery, Message, OsdMapMsg, PgStatsAck, ScrubRequest};
use types::{
    AddrVec, EntityAddr, EntityId, EntityName, Epoch, Features, OsdId, PgId, PoolId, ShardId,
    SpgId, Uuid,
};

use crate::backing::{Coll, ObjectStore, StoreOp};
use crate::config::Config;
use crate::heartbeat::Heartbeats;
use crate::lease::Leases;
use crate::maphist::{self, Superblock};
use crate::outbox::{Effect, Outbox};
use crate::perf::Perf;
use crate::pg::scrub::Order;
use crate::pg::{Cx, Pg, Placement, Ticket, Tickets};
use crate::report::Reports;
use crate::session::{ClientOp, Sessions};

/// What an OSD is, apart from what it stores.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// Its number.
    pub whoami: OsdId,
    /// The cluster.
    pub fsid: Uuid,
    /// Its incarnation.
    pub uuid: Uuid,
    /// Where clients reach it; with a nonce that no earlier process had.
    pub client: AddrVec,
    /// Where OSDs reach it.
    pub cluster: AddrVec,
    /// Where heartbeats go, public side.
    pub hb_front: AddrVec,
    /// Where heartbeats go, cluster side.
    pub hb_back: AddrVec,
    /// What `ceph osd metadata` shows.
    pub metadata: BTreeMap<String, String>,
    /// Its feature word.
    pub features: u64,
    /// Bytes of its device.
    pub device_bytes: u64,
    /// Device class; empty to leave it unset.
    pub device_class: String,
    /// CRUSH location; empty for the default.
    pub location: BTreeMap<String, String>,
}

impl Identity {
    /// Whether its device is a disk that turns.
    #[must_use]
    pub fn rotates(&self) -> bool {
        self.metadata.get("rotational").is_some_and(|r| r == "1")
    }
}

/// Who is at the other end of a connection.
#[derive(Clone, Debug)]
pub struct PeerInfo {
    /// Kind and number; a client's number is its global id.
    pub who: EntityId,
    /// The name of its key.
    pub name: EntityName,
    /// Its address, as it says.
    pub addr: EntityAddr,
    /// The same with the socket's IP: by it caps are judged.
    pub from: EntityAddr,
    /// What it understands.
    pub features: Features,
    /// The OSD capability text of its ticket.
    pub caps: String,
    /// Capabilities do not matter: all is allowed. So for daemons.
    pub allow_all: bool,
    /// By which address it came.
    pub door: crate::doors::Door,
}

/// An OSD.
pub struct Osd {
    pub(crate) pgs: BTreeMap<SpgId, Pg>,
    pub(crate) c: Core,
    /// Transactions that the store had been given when it was last kicked.
    kicked: u64,
}

/// All but the PGs.
pub(crate) struct Core {
    pub id: Identity,
    pub sb: Superblock,
    pub map: Arc<OsdMap>,
    pub mapping: Arc<PgMapping>,
    pub store: Box<dyn ObjectStore>,
    pub tickets: Tickets,
    pub perf: Perf,
    pub options: conf::Config,
    pub conf: Config,
    pub sessions: Sessions,
    pub unborn: BTreeSet<PgId>,
    pub want_up_thru: Epoch,
    pub recoveries: usize,
    pub trimming: usize,
    pub pace: crate::pace::Pace,
    /// The PG that was let go on last.
    pub paced: SpgId,
    pub pg_count: usize,
    /// The map shows this process up.
    pub booted: bool,
    /// The first epoch that showed it up; 0 until then.
    pub boot_epoch: Epoch,
    pub stopping: bool,
    pub seq: u64,
    pub waiting: crate::parked::Parked,
    /// Clients that were asked to hold back.
    pub backoffs: crate::backoffs::Backoffs,
    /// Requests for PGs that this OSD leads and has not heard of from their copies.
    #[allow(clippy::vec_box)] // they stay where they are as they move from queue to queue
    pub homeless: BTreeMap<PgId, Vec<Box<ClientOp>>>,
    pub heartbeats: Heartbeats,
    pub leases: Leases,
    pub reports: Reports,
    pub benches: crate::commands::Benches,
    pub copies: crate::copy::Copies,
    pub asks: crate::tier::Asks,
    /// Data that the store is reading, by its number, and for whom.
    pub fetches: HashMap<u64, SpgId>,
    pub slots: crate::slots::AllSlots,
    /// Clients' requests in hand; itself that of requests of cache tiers' OSDs.
    pub load_bytes: crate::load::Load,
    /// The machine's load for each CPU.
    pub load: f64,
    /// Acting sets to ask the monitors for.
    pub want_temp: BTreeMap<PgId, Vec<OsdId>>,
    /// Merges that the map announces.
    pub(crate) merges: BTreeMap<PoolId, crate::unite::Announced>,
    /// Whether it announces any.
    pub(crate) merging: bool,
    /// Pools whose data the store compresses.
    pub compressed: BTreeMap<PoolId, store::Compression>,
    /// Object classes that operators uploaded.
    pub classes: crate::classes::Classes,
}

impl Core {
    pub(crate) fn cx<'a>(&'a mut self, now: Now, out: &'a mut Outbox) -> Cx<'a> {
        Cx {
            now,
            me: self.id.whoami,
            map: &self.map,
            store: &mut *self.store,
            tickets: &mut self.tickets,
            out,
            perf: &mut self.perf,
            conf: &self.conf,
            want_up_thru: &mut self.want_up_thru,
            recoveries: &mut self.recoveries,
            trimming: &mut self.trimming,
            pace: &mut self.pace,
            pg_count: self.pg_count,
            copies: &mut self.copies.wanted,
            asks: &mut self.asks.wanted,
            leases: &mut self.leases,
            backoffs: &mut self.backoffs,
            fetches: &mut self.fetches,
            slots: &mut self.slots,
            load: self.load,
            want_temp: &mut self.want_temp,
        }
    }

    pub(crate) fn place(sets: &PgSets) -> Placement {
        Placement {
            up: sets.up.clone(),
            up_primary: sets.up_primary.unwrap_or(OsdId::NONE),
            acting: sets.acting.clone(),
            primary: sets.acting_primary.unwrap_or(OsdId::NONE),
        }
    }

    /// The copy of a PG that an OSD has by the map: in erasure-coded pools its first place in
    /// the acting set, or else in the up set.
    pub(crate) fn spg_of(&self, pg: PgId, osd: OsdId) -> SpgId {
        let coded = self.map.pool(pg.pool).is_some_and(maps::PgPool::is_erasure);
        let sets = self.mapping.get(pg).filter(|_| coded);
        let at = |set: &[OsdId]| set.iter().position(|o| *o == osd);
        let place = sets.and_then(|s| at(&s.acting).or_else(|| at(&s.up)));
        SpgId { pg, shard: place.map_or(ShardId::NONE, |i| ShardId(i as i8)) }
    }

    pub(crate) fn submit(&mut self, ops: Vec<StoreOp>) {
        self.tickets.submit(&mut *self.store, ops, Ticket::None);
    }

    /// Tells the store which pools to compress, where that has changed.
    pub(crate) fn follow_compression(&mut self) {
        let wanted = crate::compression::of_pools(&self.map, &self.options);
        if wanted != self.compressed {
            self.store.compress(&wanted);
            self.compressed = wanted;
        }
    }
}

impl Osd {
    /// Prepares an empty store for an OSD.
    pub fn mkfs(id: &Identity, store: &mut dyn ObjectStore, ticket: u64) {
        let sb =
            Superblock { fsid: id.fsid, whoami: id.whoami, uuid: id.uuid, ..Superblock::default() };
        let mut ops = vec![StoreOp::Create(Coll::Meta)];
        sb.save(&mut ops);
        store.submit(ops, ticket);
    }

    /// An OSD as its store says, with everything on disk loaded.
    ///
    /// # Errors
    /// A sentence for the operator: not this OSD's store, or something in it cannot be read.
    pub fn new(
        id: Identity,
        options: conf::Config,
        mut store: Box<dyn ObjectStore>,
    ) -> Result<Self, String> {
        let mut tickets = Tickets::default();
        let sb = match Superblock::load(&*store)? {
            Some(sb) => sb,
            None => {
                let sb = Superblock {
                    fsid: id.fsid,
                    whoami: id.whoami,
                    uuid: id.uuid,
                    ..Superblock::default()
                };
                let mut ops = vec![StoreOp::Create(Coll::Meta)];
                sb.save(&mut ops);
                tickets.submit(&mut *store, ops, Ticket::None);
                sb
            }
        };
        if (sb.fsid, sb.whoami, sb.uuid) != (id.fsid, id.whoami, id.uuid) {
            return Err(format!(
                "the store is osd.{}'s of cluster {} (uuid {}), not osd.{}'s of {} (uuid {})",
                sb.whoami, sb.fsid, sb.uuid, id.whoami, id.fsid, id.uuid
            ));
        }
        let map = if sb.newest > Epoch(0) {
            maphist::map_at(&*store, sb.newest)?
        } else {
            OsdMap { fsid: id.fsid, ..OsdMap::default() }
        };
        let mut pgs = BTreeMap::new();
        for coll in store.collections() {
            if let Coll::Pg(pg) = coll {
                match Pg::load(pg, &*store)? {
                    Some(p) => {
                        pgs.insert(pg, p);
                    }
                    // Created and not yet used when the process ended.
                    None => tickets.submit(&mut *store, vec![StoreOp::Drop(coll)], Ticket::None),
                }
            }
        }
        let conf = Config::read(&options, id.rotates());
        let leases = Leases::new(conf.lease_ms());
        let load_bytes = crate::load::Load::new(conf.request_bytes_max);
        let mapping = PgMapping::new(&map);
        let mut osd = Self {
            kicked: 0,
            c: Core {
                unborn: sb.unborn.iter().copied().collect(),
                id,
                sb,
                map: Arc::new(map),
                mapping: Arc::new(mapping),
                store,
                tickets,
                perf: Perf::new(conf.history_size),
                options,
                conf,
                sessions: Sessions::default(),
                want_up_thru: Epoch(0),
                recoveries: 0,
                trimming: 0,
                pace: crate::pace::Pace::default(),
                paced: SpgId::default(),
                pg_count: pgs.len(),
                booted: false,
                boot_epoch: Epoch(0),
                stopping: false,
                seq: 0,
                waiting: crate::parked::Parked::default(),
                backoffs: crate::backoffs::Backoffs::default(),
                homeless: BTreeMap::new(),
                heartbeats: Heartbeats::default(),
                leases,
                reports: Reports::default(),
                benches: crate::commands::Benches::default(),
                copies: crate::copy::Copies::default(),
                asks: crate::tier::Asks::default(),
                fetches: HashMap::new(),
                slots: crate::slots::AllSlots::default(),
                load_bytes,
                load: 0.0,
                want_temp: BTreeMap::new(),
                merges: BTreeMap::new(),
                merging: false,
                compressed: BTreeMap::new(),
                classes: crate::classes::Classes::default(),
            },
            pgs,
        };
        osd.catch_up_pgs()?;
        osd.c.follow_compression();
        Ok(osd)
    }

    /// The newest map; for addresses.
    #[must_use]
    pub fn map(&self) -> &Arc<OsdMap> {
        &self.c.map
    }

    /// The PGs that this OSD leads by the newest map.
    pub fn leads(&self) -> impl Iterator<Item = PgId> {
        let me = Some(self.c.id.whoami);
        self.c.mapping.iter().filter(move |(_, sets)| sets.acting_primary == me).map(|(pg, _)| pg)
    }

    /// Whether the map shows this process up.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.c.booted
    }

    /// Everything is in place: maps are asked for.
    pub fn on_start(&mut self, now: Now, out: &mut Outbox) {
        self.c.leases.start(now.mono_ms());
        out.push(Effect::SubscribeMaps(Epoch(self.c.map.epoch.0 + 1)));
        self.on_mon_session(now, out);
    }

    /// A session with a monitor began; what it should know is said again.
    pub fn on_mon_session(&mut self, now: Now, out: &mut Outbox) {
        self.c.reports.on_session();
        self.report(now, out);
    }

    /// A monitor's message. Unknown kinds are ignored.
    pub fn on_mon_message(&mut self, now: Now, e: &Envelope, out: &mut Outbox) {
        if self.c.store.is_stopped() || !crate::doors::MON_KINDS.contains(&e.kind) {
            return;
        }
        match e.kind {
            OsdMapMsg::KIND => match OsdMapMsg::decode(e) {
                Ok(m) => {
                    self.on_maps(now, &m, true, out);
                    self.loop_back(now, out);
                }
                Err(x) => tracing::error!("a monitor's osd_map: {x}"),
            },
            messages::ClassModules::KIND => self.on_class_modules(e),
            PgStatsAck::KIND => self.c.reports.on_ack(),
            ForceRecovery::KIND => match ForceRecovery::decode(e) {
                Ok(m) => {
                    for id in m.pgs {
                        self.with_led(now, id, out, |pg, cx| pg.force(m.on, cx));
                    }
                }
                Err(x) => tracing::error!("a monitor's wish: {x}"),
            },
            ScrubRequest::KIND => match ScrubRequest::decode(e) {
                Ok(m) => self.on_scrub_request(now, &m, out),
                Err(x) => tracing::error!("a monitor's scrub request: {x}"),
            },
            kind => unreachable!("{kind:#x} is in the table of what monitors say"),
        }
    }

    /// A monitor wants PGs scrubbed.
    fn on_scrub_request(&mut self, now: Now, m: &ScrubRequest, out: &mut Outbox) {
        let order = Order { deep: m.deep || m.repair, repair: m.repair, required: true };
        for (id, pg) in self.pgs.iter_mut().filter(|(_, pg)| pg.leads) {
            if m.pgs.is_empty() || m.pgs.contains(&id.pg) {
                pg.ask_scrub(order, &mut self.c.cx(now, out));
            }
        }
    }

    /// The machine's load for each CPU, which may put scrubs off.
    pub fn on_load(&mut self, load: f64) {
        self.c.load = load;
    }

    /// Work in the background that had to leave room goes on, one PG after the other.
    pub(crate) fn run_paced(&mut self, now: Now, out: &mut Outbox) {
        while let Some(id) = self.c.pace.next_waiting(&self.c.conf.pace, now, self.c.paced) {
            self.c.paced = id;
            self.with_pg(now, id, out, |pg, cx| {
                pg.kick_recovery(cx);
                pg.kick_trim(cx);
                pg.kick_agent(cx);
                pg.drive_scrub(cx);
            });
        }
    }

    /// Slots were given back: PGs that wait for one get it, the more urgent first.
    pub(crate) fn run_freed_slots(&mut self, now: Now, out: &mut Outbox) {
        let slots = &mut self.c.slots;
        if slots.recoveries.take_freed() | slots.recoveries_lent.take_freed() {
            let waits = self.pgs.iter().filter(|(_, pg)| pg.waits_to_recover());
            let mut waits: Vec<_> =
                waits.map(|(id, pg)| (!pg.forced, -pg.pool.recovery_priority, *id)).collect();
            waits.sort_unstable();
            for (_, _, id) in waits {
                self.with_pg(now, id, out, |pg, cx| pg.on_recovery_turn(cx));
            }
        }
        let slots = &mut self.c.slots;
        if !(slots.backfills.take_freed() | slots.backfills_lent.take_freed()) {
            return;
        }
        let waits = self.pgs.iter().filter_map(|(id, pg)| Some((pg.slot_priority()?, *id)));
        let mut waits: Vec<_> = waits.collect();
        waits.sort_unstable();
        for (_, id) in waits {
            self.with_pg(now, id, out, |pg, cx| pg.on_slot_free(cx));
        }
    }

    pub(crate) fn with_pg(
        &mut self,
        now: Now,
        id: SpgId,
        out: &mut Outbox,
        f: impl FnOnce(&mut Pg, &mut Cx<'_>),
    ) {
        if let Some(pg) = self.pgs.get_mut(&id) {
            f(pg, &mut self.c.cx(now, out));
        }
    }

    /// As [`Osd::with_pg`], with the copy here that leads.
    pub(crate) fn with_led(
        &mut self,
        now: Now,
        id: PgId,
        out: &mut Outbox,
        f: impl FnOnce(&mut Pg, &mut Cx<'_>),
    ) {
        let id = self.c.spg_of(id, self.c.id.whoami);
        self.with_pg(now, id, out, f);
    }

    pub(crate) fn drop_pg(&mut self, id: SpgId) {
        if let Some(mut pg) = self.pgs.remove(&id) {
            let mut out = Outbox::new();
            let mut cx = self.c.cx(Now::default(), &mut out);
            pg.drop_recovery(&mut cx);
            pg.drop_trim(&mut cx);
            cx.slots.drop_pg(id);
            self.c.submit(vec![StoreOp::Drop(Coll::Pg(id))]);
            self.c.reports.removed.push(id.pg);
            self.c.pg_count = self.pgs.len();
        }
    }

    /// What was sent to that OSD since its last message may be lost.
    pub fn on_osd_reset(&mut self, now: Now, osd: OsdId, out: &mut Outbox) {
        self.asks_lost(osd);
        if self.c.booted && self.c.map.is_up(osd) {
            for pg in self.pgs.values_mut() {
                pg.on_osd_reset(osd, &mut self.c.cx(now, out));
            }
        }
        self.loop_back(now, out);
    }

    /// The driver has handled what was at hand: what that wrote goes to the disk, and what it
    /// wants to know is read from there.
    pub fn kick_store(&mut self) {
        self.c.store.kick_reads();
        if self.unkicked() > 0 {
            self.kicked = self.c.tickets.given();
            self.c.store.kick();
        }
    }

    /// Begins to write what the store has changed in memory to its places, if that takes more than
    /// `least` bytes.
    pub fn spill(&mut self, least: u64) {
        self.c.store.spill(least);
    }

    /// Transactions that the store was given since [`Osd::kick_store`].
    #[must_use]
    pub fn unkicked(&self) -> u64 {
        self.c.tickets.given() - self.kicked
    }

    /// The store was woken: what has become durable goes on.
    ///
    /// # Errors
    /// The store has stopped; so must the OSD.
    pub fn poll_store(
        &mut self,
        now: Now,
        out: &mut Outbox,
    ) -> Result<(), crate::backing::StoreError> {
        if let Some(upto) = self.c.store.poll()? {
            self.on_durable(now, upto, out);
        }
        while let Some((id, data)) = self.c.store.fetched() {
            let staged = data.as_ref().ok().cloned();
            if let Some(pg) = self.c.fetches.remove(&id) {
                self.with_pg(now, pg, out, |pg, cx| pg.on_fetched(id, data, cx));
            }
            if let Some(data) = staged {
                self.c.store.unstage(&data); // nothing, if it was read
            }
        }
        self.pump_copies_and_asks(now, out);
        self.loop_back(now, out);
        Ok(())
    }

    /// Everything up to this ticket is durable.
    pub fn on_durable(&mut self, now: Now, upto: u64, out: &mut Outbox) {
        let tickets = self.c.tickets.take_upto(upto);
        self.c.pace.on_durable(upto, now);
        for (i, ticket) in tickets.iter().enumerate() {
            match ticket {
                Ticket::None => {}
                Ticket::Log(id, interval, version) => {
                    // One answer for all of a PG: a later ticket says this too.
                    let later = tickets[i + 1..]
                        .iter()
                        .any(|t| matches!(t, Ticket::Log(p, n, _) if p == id && n == interval));
                    if !later {
                        let (interval, version) = (*interval, *version);
                        self.with_pg(now, *id, out, |pg, cx| {
                            pg.on_log_durable(interval, version, cx)
                        });
                    }
                }
                Ticket::Flushed(id, interval) => {
                    let interval = *interval;
                    if self.c.booted {
                        self.with_pg(now, *id, out, |pg, cx| {
                            if pg.interval() == interval && !pg.flushed {
                                pg.on_flushed(cx);
                            }
                        });
                    }
                }
                Ticket::Activated(id, interval, round) => {
                    let (interval, round) = (*interval, *round);
                    self.with_pg(now, *id, out, |pg, cx| {
                        if (pg.interval(), pg.round) == (interval, round) {
                            pg.on_self_activated(cx);
                        }
                    });
                }
                Ticket::Recovered(id, interval, oid, version) => {
                    let (interval, oid, version) = (*interval, oid.clone(), *version);
                    self.with_pg(now, *id, out, |pg, cx| {
                        pg.on_recovered(interval, oid, version, cx)
                    });
                }
                Ticket::Bench(n) => self.on_bench_durable(now, *n, out),
            }
        }
        self.report_up_thru(now, out);
        self.report_merges(now, out);
        self.run_freed_slots(now, out);
        self.run_paced(now, out);
        self.pump_copies_and_asks(now, out);
        self.loop_back(now, out);
    }

    /// Some time has passed.
    pub fn on_tick(&mut self, now: Now, out: &mut Outbox) {
        if self.c.store.is_stopped() {
            return;
        }
        if self.c.booted {
            if self.c.pace.may_copy(now) {
                // The more urgent first.
                self.c.slots.backfills.go_on();
                self.run_freed_slots(now, out);
            }
            for pg in self.pgs.values_mut() {
                pg.on_tick(&mut self.c.cx(now, out));
            }
            self.run_freed_slots(now, out);
            self.run_paced(now, out);
            self.tick_heartbeats(now, out);
            self.tick_copies(now, out);
            self.tick_asks(now, out);
        }
        self.tick_waiting(now, out);
        self.report_merges(now, out);
        self.report(now, out);
        self.loop_back(now, out);
    }

    /// Options changed.
    pub fn on_config(&mut self, options: conf::Config) {
        self.c.options = options;
        self.reread_config();
    }

    pub(crate) fn reread_config(&mut self) {
        self.c.conf = Config::read(&self.c.options, self.c.id.rotates());
        self.c.leases.lease_ms = self.c.leases.lease_ms.max(self.c.conf.lease_ms());
        self.c.perf.history_size = self.c.conf.history_size;
        self.c.load_bytes.set_max(self.c.conf.request_bytes_max);
        self.c.follow_compression();
    }

    /// The OSD is about to stop. New requests are not taken any more.
    pub fn on_stop(&mut self, _now: Now, out: &mut Outbox) {
        self.c.stopping = true;
        self.c.leases.stopped = true;
        out.mon(&messages::OsdMarkMeDown { osd: self.c.id.whoami, epoch: self.c.map.epoch });
    }

    /// Number of transactions that are not durable.
    #[must_use]
    pub fn transactions_open(&self) -> usize {
        self.c.tickets.open()
    }

    /// Bytes of clients' requests that are not answered, and how many there may be
    /// (`osd_client_message_size_cap`, and an eighth of `osd_memory_target`). Each connection has
    /// its share of it, see [`Osd::load_of`].
    #[must_use]
    pub fn request_bytes(&self) -> (u64, u64) {
        (self.c.load_bytes.bytes(), self.c.conf.request_bytes_max)
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &dyn ObjectStore {
        &*self.c.store
    }

    /// The store, for the driver, which makes it go on.
    pub fn store_mut(&mut self) -> &mut dyn ObjectStore {
        &mut *self.c.store
    }
}
