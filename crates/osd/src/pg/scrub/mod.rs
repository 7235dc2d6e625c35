//! Scrub: the copies of a PG are compared, some objects at a time.
//!
//! ```text
//!          due, or asked for
//!   Idle ───────────────────▶ Reserving ─▶ Quiesce ─▶ Gather ─▶ (compare) ─▶ Pause ─▶ Quiesce ...
//!    ▲                         a slot at    no write   all copies say          osd_scrub_sleep
//!    └──── last chunk ──────── each copy    is under   what they have
//!                                           way here
//! ```
//!
//! What may be trusted: in `Gather`, no write to the chunk is under way and all copies are
//! durable, so what they say can be compared. A write that comes then ends the chunk, which
//! begins anew and smaller; after some of these, writes to the chunk wait for it instead.
//! What is found is kept until the next interval (`found`), its sum with the PG's record.
//! A copy found bad by a repair is marked as missing while the chunk is still quiet, and
//! recovery does the rest.
//!
//! Source: the peer's `PgScrubber`, `scrub_backend`; texts are its own.

mod agree;
mod build;
mod compare;
mod due;
mod list;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use maps::PgShard;
use messages::{LogKind, ObjectChange, PeerMsg, PgLogEntry, ScrubHistory, ScrubMsg, ScrubObject};
use types::{Denc, EVersion, HObject, SnapId};

use super::{Cx, Pg, State, Ticket, own_from};
use crate::object::{INFO_ATTR, ObjectInfo, ObjectState};
use crate::outbox::Effect;
use crate::session::{ClientOp, enqueue};
use crate::snapset::clone_bytes;
use build::Builder;
use compare::{Finding, all_shards, compare, names, object, shard};

pub(crate) use due::ScrubConf;

/// What is asked of the copies is asked again after this long.
const RETRY_MS: u64 = 5_000;
/// Bytes of data that a chunk of a deep scrub reads at most, when it has several objects.
const CHUNK_BYTES: u64 = 8 << 20;
/// Chunks in one go, where no other OSD's answer gives others their turn.
const CHUNKS_AT_ONCE: usize = 4;

/// Which scrub.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Order {
    /// Data and omap too.
    pub deep: bool,
    /// What is found is mended.
    pub repair: bool,
    /// Somebody asked for it: flags, times and load do not count.
    pub required: bool,
}

impl Order {
    fn name(self) -> &'static str {
        match (self.repair, self.deep) {
            (true, _) => "repair",
            (false, true) => "deep-scrub",
            (false, false) => "scrub",
        }
    }
}

#[derive(Debug)]
enum Phase {
    /// Waits for these copies' slots.
    Reserving(BTreeSet<PgShard>),
    /// Waits for writes in the chunk.
    Quiesce,
    /// Waits for what the copies have.
    Gather,
    /// Until this time, monotonic ms.
    Pause(u64),
}

/// A scrub under way.
#[derive(Debug)]
struct Run {
    order: Order,
    phase: Phase,
    began_ms: u64,
    asked_ms: u64,
    /// The chunk.
    begin: HObject,
    end: HObject,
    /// Objects of a chunk.
    objects_max: usize,
    /// How often writes may still end a chunk.
    preemptions_left: u32,
    maps: BTreeMap<PgShard, Vec<ScrubObject>>,
    /// In erasure-coded pools: whether they fit each other.
    agree: agree::Agree,
    /// Writes that wait for the chunk.
    waiting: VecDeque<Box<ClientOp>>,
    /// Objects and bytes in the chunks behind, as they are now.
    counted: (i64, i64),
    objects: u64,
    omap: (u64, u64),
    shallow_errors: u32,
    deep_errors: u32,
    missing: u32,
    inconsistent: u32,
    fixed: u32,
}

/// A PG's scrubs.
#[derive(Debug, Default)]
pub(crate) struct Scrub {
    asked: Option<Order>,
    run: Option<Run>,
    /// Counts questions.
    id: u32,
    /// What is being answered here.
    builder: Option<Builder>,
    not_before_ms: u64,
    /// By name, as the peer lists them.
    found: BTreeMap<HObject, Finding>,
    /// A scrub has ended in this interval.
    pub known: bool,
    /// The last repair left something.
    pub repair_failed: bool,
    /// What was mended is looked at again once all is clean.
    verify: bool,
}

impl Scrub {
    /// Whether one is under way.
    pub fn running(&self) -> Option<Order> {
        self.run.as_ref().map(|r| r.order)
    }

    /// Whether other copies have not given their slots yet.
    pub fn waits_for_slots(&self) -> bool {
        self.run.as_ref().is_some_and(|r| matches!(r.phase, Phase::Reserving(_)))
    }

    /// How long, for the statistics.
    pub fn since_ms(&self) -> Option<u64> {
        self.run.as_ref().map(|r| r.began_ms)
    }

    /// What an operator asked for and has not begun.
    pub fn asked(&self) -> Option<Order> {
        self.asked
    }

    /// Whether a write to the object must wait.
    pub fn blocks(&self, oid: &HObject) -> bool {
        self.run.as_ref().is_some_and(|r| {
            r.preemptions_left == 0
                && matches!(r.phase, Phase::Gather | Phase::Quiesce)
                && r.covers(oid)
        })
    }

    /// It waits.
    pub fn wait(&mut self, op: Box<ClientOp>) {
        enqueue(&mut self.run.as_mut().expect("it blocks").waiting, op);
    }

    /// The queue of operations that wait.
    pub fn waiting_mut(&mut self) -> Option<&mut VecDeque<Box<ClientOp>>> {
        self.run.as_mut().map(|run| &mut run.waiting)
    }

    /// Operations that wait.
    pub fn waiting(&self) -> impl Iterator<Item = &ClientOp> {
        self.run.iter().flat_map(|r| r.waiting.iter().map(|op| &**op))
    }
}

/// What a log entry did to an object; `None` when it was not about it.
fn said_of(e: &PgLogEntry, oid: &HObject) -> Option<LogKind> {
    if e.kind == LogKind::Error {
        return None;
    }
    e.touched().find(|(o, ..)| *o == oid).map(|(_, kind, _)| kind)
}

/// The record that a copy has.
fn record_of(o: &ScrubObject) -> Option<ObjectInfo> {
    let (_, raw) = o.attrs.iter().find(|(name, _)| name == INFO_ATTR)?;
    ObjectInfo::from_bytes(raw).ok()
}

/// What an object adds to its PG's bytes: a head its own and what its clones alone have.
fn bytes_counted(o: &ScrubObject) -> i64 {
    if !o.oid.is_head() {
        return 0;
    }
    let info = record_of(o);
    let clones = info.as_ref().and_then(|i| i.snaps.as_deref()).map_or(0, clone_bytes);
    info.map_or(o.size as i64, |i| i.size as i64) + clones
}

impl Run {
    fn covers(&self, oid: &HObject) -> bool {
        *oid >= self.begin && *oid < self.end
    }
}

impl Pg {
    /// Somebody wants it scrubbed.
    pub(crate) fn ask_scrub(&mut self, order: Order, cx: &mut Cx<'_>) {
        let before = self.scrub.asked.unwrap_or_default();
        self.scrub.asked = Some(Order {
            deep: order.deep || before.deep,
            repair: order.repair || before.repair,
            required: true,
        });
        self.scrub.not_before_ms = 0;
        self.tick_scrub(cx);
    }

    /// The interval ends; operations that waited are handed back.
    pub(crate) fn drop_scrub(&mut self, cx: &mut Cx<'_>) -> VecDeque<Box<ClientOp>> {
        cx.slots.drop_pg(self.id);
        let asked = self.scrub.asked.or(self.scrub.run.as_ref().and_then(|r| {
            r.order.required.then_some(r.order) // it begins anew
        }));
        let id = self.scrub.id;
        let verify = self.scrub.verify;
        let run = std::mem::take(&mut self.scrub).run;
        self.scrub.id = id.wrapping_add(1);
        (self.scrub.asked, self.scrub.verify) = (asked, verify);
        run.map(|r| r.waiting).unwrap_or_default()
    }

    /// Once a second or so.
    pub(crate) fn tick_scrub(&mut self, cx: &mut Cx<'_>) {
        self.advance_builder(cx);
        if !self.leads || self.state != State::Active {
            return;
        }
        let now = cx.now.mono_ms();
        let Some(run) = &mut self.scrub.run else {
            self.maybe_scrub(cx);
            return;
        };
        if now >= run.asked_ms + RETRY_MS {
            run.asked_ms = now;
            match &run.phase {
                Phase::Reserving(_) => {
                    self.end_scrub(false, cx);
                    return;
                }
                Phase::Gather => self.ask_copies(cx),
                Phase::Quiesce | Phase::Pause(_) => {}
            }
        }
        self.drive_scrub(cx);
    }

    fn maybe_scrub(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now.mono_ms();
        if now < self.scrub.not_before_ms || !self.is_clean() || self.is_merging() {
            return;
        }
        if std::mem::take(&mut self.scrub.verify) {
            self.scrub.asked.get_or_insert(Order { deep: true, repair: false, required: true });
        }
        let order = match self.scrub.asked {
            Some(order) => order,
            None => match self.scrub_due(cx) {
                Some(order) if cx.conf.scrub.during_recovery || *cx.recoveries == 0 => order,
                _ => return,
            },
        };
        if !cx.slots.scrubs.take(self.id, cx.conf.scrub.max) {
            return;
        }
        self.scrub.asked = None;
        let others: BTreeSet<PgShard> = self.others(cx.me).collect();
        for o in &others {
            self.say(cx, *o, PeerMsg::Scrub(ScrubMsg::Reserve));
        }
        let first = HObject::min();
        let objects_max =
            if order.deep { cx.conf.scrub.chunk } else { cx.conf.scrub.shallow_chunk };
        self.scrub.run = Some(Run {
            order,
            phase: Phase::Reserving(others),
            began_ms: now,
            asked_ms: now,
            begin: first.clone(),
            end: first,
            objects_max,
            preemptions_left: cx.conf.scrub.preemptions,
            maps: BTreeMap::new(),
            agree: agree::Agree::default(),
            waiting: VecDeque::new(),
            counted: (0, 0),
            objects: 0,
            omap: (0, 0),
            shallow_errors: 0,
            deep_errors: 0,
            missing: 0,
            inconsistent: 0,
            fixed: 0,
        });
        if order.deep {
            self.scrub.found.clear();
        } else {
            self.scrub.found.retain(|_, f| f.is_deep());
        }
        self.drive_scrub(cx);
    }

    /// Another copy, or the primary, says something about scrubs.
    pub(crate) fn on_scrub_msg(&mut self, from: PgShard, m: ScrubMsg, cx: &mut Cx<'_>) {
        let from_primary = self.is_led_by(&from);
        match m {
            ScrubMsg::Reserve if from_primary => {
                let yes = cx.slots.scrubs_lent.take(self.id, cx.conf.scrub.max);
                self.say(cx, from, PeerMsg::Scrub(ScrubMsg::Slot(yes)));
            }
            ScrubMsg::Release if from_primary => {
                cx.slots.scrubs_lent.give_back(self.id);
                self.scrub.builder = None;
            }
            ScrubMsg::Ask { id, deep, begin, end } if from_primary => {
                if self.scrub.builder.as_ref().is_some_and(|b| b.id == id) {
                    return; // it came twice
                }
                let what = (id, Some(from), deep);
                match Builder::new(cx.store, self.coll, what, &begin, &end) {
                    Ok(b) => self.scrub.builder = Some(b),
                    Err(e) => tracing::error!(pg = %self.id, "scrub: {e}"),
                }
                self.advance_builder(cx);
            }
            ScrubMsg::Result(history) if from_primary => {
                self.info.scrub = history;
                let mut ops = Vec::new();
                self.save_info(&mut ops);
                cx.submit(ops, Ticket::None);
            }
            ScrubMsg::Slot(yes) if self.leads => {
                let Some(run) = &mut self.scrub.run else {
                    if yes {
                        self.say(cx, from, PeerMsg::Scrub(ScrubMsg::Release));
                    }
                    return;
                };
                let Phase::Reserving(open) = &mut run.phase else { return };
                if yes {
                    open.remove(&from);
                    self.drive_scrub(cx);
                } else {
                    self.end_scrub(false, cx);
                }
            }
            ScrubMsg::Chunk { id, objects } if self.leads => {
                if id == self.scrub.id
                    && let Some(run) = &mut self.scrub.run
                    && matches!(run.phase, Phase::Gather)
                {
                    run.maps.insert(from, objects);
                    self.drive_scrub(cx);
                }
            }
            _ => {}
        }
    }

    /// The store has read something; whether it was for a scrub.
    pub(crate) fn scrub_fetched(
        &mut self,
        id: u64,
        data: &Result<bytes::Bytes, crate::backing::StoreError>,
        cx: &mut Cx<'_>,
    ) {
        if self.scrub.builder.as_mut().is_some_and(|b| b.on_fetched(id, data)) {
            self.advance_builder(cx);
        }
    }

    fn advance_builder(&mut self, cx: &mut Cx<'_>) {
        let Some(mut b) = self.scrub.builder.take() else { return };
        if b.waits_for_store() || !b.advance(self.id, cx) {
            self.scrub.builder = Some(b);
            return;
        }
        match b.for_whom {
            Some(primary) => {
                let body = PeerMsg::Scrub(ScrubMsg::Chunk { id: b.id, objects: b.done });
                self.say(cx, primary, body);
            }
            None => {
                let me = self.me(cx.me);
                if let Some(run) = self.scrub.run.as_mut().filter(|_| b.id == self.scrub.id) {
                    run.maps.insert(me, b.done);
                    self.drive_scrub(cx);
                }
            }
        }
    }

    /// Goes on as far as that goes without waiting.
    pub(crate) fn drive_scrub(&mut self, cx: &mut Cx<'_>) {
        let (mut chunks, members) = (0, self.members());
        loop {
            let now = cx.now.mono_ms();
            let Some(run) = &mut self.scrub.run else { return };
            match &run.phase {
                Phase::Reserving(open) => {
                    if !open.is_empty() || !self.next_chunk(cx) {
                        return;
                    }
                }
                Phase::Pause(until) => {
                    if now < *until {
                        return;
                    }
                    if !cx.may_move() {
                        cx.pace.wait(self.id);
                        return;
                    }
                    if !self.next_chunk(cx) {
                        return;
                    }
                }
                Phase::Quiesce => {
                    if self.in_flight.iter().any(|f| run.covers(&f.oid)) {
                        return;
                    }
                    run.phase = Phase::Gather;
                    run.maps.clear();
                    run.agree = agree::Agree::default();
                    run.asked_ms = now;
                    self.scrub.id = self.scrub.id.wrapping_add(1);
                    self.ask_copies(cx);
                    if !self.ask_self(cx) {
                        return;
                    }
                }
                Phase::Gather => {
                    let run = self.scrub.run.as_ref().expect("it runs");
                    if !self.acting_copies().all(|c| run.maps.contains_key(&c)) {
                        return;
                    }
                    if !self.look_whether_shards_agree(cx) {
                        return;
                    }
                    self.scrub.run.as_mut().expect("it runs").phase = Phase::Pause(0);
                    self.compare_chunk(cx);
                    chunks += 1;
                    let Some(run) = &mut self.scrub.run else { return };
                    let waiting = std::mem::take(&mut run.waiting);
                    run.preemptions_left = cx.conf.scrub.preemptions;
                    let sleep = if run.order.required { 0 } else { cx.conf.scrub.sleep_ms };
                    let alone = members == 1 && chunks >= CHUNKS_AT_ONCE;
                    let last = run.end.max;
                    run.begin = run.end.clone();
                    run.phase = Phase::Pause(now + sleep + u64::from(alone));
                    if last {
                        self.end_scrub(true, cx);
                    }
                    self.go_on(waiting, cx);
                }
            }
        }
    }

    /// Chooses the next objects; `false` when the scrub has ended instead.
    fn next_chunk(&mut self, cx: &mut Cx<'_>) -> bool {
        let run = self.scrub.run.as_ref().expect("the caller looked");
        let (begin, max, deep) = (run.begin.clone(), run.objects_max.max(1), run.order.deep);
        if self.scrub_forbidden(run.order, cx) {
            self.end_scrub(false, cx);
            return false;
        }
        let mut found = match cx.store.list(self.coll, &own_from(self.coll, &begin), max + 1) {
            Ok(found) => found,
            Err(e) => {
                tracing::error!(pg = %self.id, "scrub: {e}");
                self.end_scrub(false, cx);
                return false;
            }
        };
        let mut end = if found.len() > max { found.pop() } else { None };
        if deep {
            let mut bytes = 0;
            let long = found.iter().position(|o| {
                bytes += cx.store.size(self.coll, o).ok().flatten().unwrap_or(0);
                bytes > CHUNK_BYTES
            });
            if let Some(at) = long.filter(|at| at + 1 < found.len()) {
                end = Some(found.swap_remove(at + 1));
            }
        }
        // All of an object, with its clones, is in one chunk.
        let end = match end.map(|o| o.with_snap(SnapId(0))) {
            None => HObject::max(),
            Some(end) if end > begin => end,
            Some(one) => {
                let head = one.with_snap(SnapId::DIR);
                match cx.store.list(self.coll, &head, 1) {
                    Ok(next) => {
                        next.into_iter().next().map_or(HObject::max(), |o| o.with_snap(SnapId(0)))
                    }
                    Err(_) => HObject::max(),
                }
            }
        };
        let run = self.scrub.run.as_mut().expect("looked at");
        run.end = end;
        run.phase = Phase::Quiesce;
        true
    }

    fn ask_copies(&mut self, cx: &mut Cx<'_>) {
        let Some(run) = &self.scrub.run else { return };
        let body = PeerMsg::Scrub(ScrubMsg::Ask {
            id: self.scrub.id,
            deep: run.order.deep,
            begin: run.begin.clone(),
            end: run.end.clone(),
        });
        let open: Vec<PgShard> = self.others(cx.me).filter(|o| !run.maps.contains_key(o)).collect();
        for o in open {
            self.say(cx, o, body.clone());
        }
    }

    /// Looks through the own copy; whether it is done already.
    fn ask_self(&mut self, cx: &mut Cx<'_>) -> bool {
        let me = self.me(cx.me);
        let run = self.scrub.run.as_mut().expect("the caller looked");
        let what = (self.scrub.id, None, run.order.deep);
        let mut b = match Builder::new(cx.store, self.coll, what, &run.begin, &run.end) {
            Ok(b) => b,
            Err(e) => {
                tracing::error!(pg = %self.id, "scrub: {e}");
                self.end_scrub(false, cx);
                return false;
            }
        };
        if !b.advance(self.id, cx) {
            self.scrub.builder = Some(b);
            return false;
        }
        run.maps.insert(me, b.done);
        true
    }

    /// A write is submitted. One within the chunk ends it; one behind it changes the sums.
    pub(crate) fn scrub_sees_write(&mut self, entry: &PgLogEntry) {
        let before = self.counts();
        let Some(run) = &mut self.scrub.run else { return };
        if entry.oid < run.begin {
            run.counted.0 += entry.counts.objects - before.objects;
            run.counted.1 += entry.counts.bytes - before.bytes;
        } else if run.covers(&entry.oid) && matches!(run.phase, Phase::Gather) {
            run.preemptions_left = run.preemptions_left.saturating_sub(1);
            run.objects_max = (run.objects_max / 2).max(1);
            run.phase = Phase::Pause(0);
            run.maps.clear();
            self.scrub.id = self.scrub.id.wrapping_add(1);
            self.scrub.builder = None;
        }
    }

    fn compare_chunk(&mut self, cx: &mut Cx<'_>) {
        let me = self.me(cx.me);
        let coding = self.pool.coding.clone();
        let run = self.scrub.run.as_mut().expect("the caller looked");
        let maps = std::mem::take(&mut run.maps);
        let odd = std::mem::take(&mut run.agree).odd;
        let order = run.order;
        let mut all: BTreeMap<&HObject, Vec<(PgShard, Option<&ScrubObject>)>> = BTreeMap::new();
        for objects in maps.values() {
            for o in objects {
                all.entry(&o.oid).or_default();
            }
        }
        for (oid, copies) in &mut all {
            for (osd, objects) in &maps {
                let at = objects.binary_search_by(|o| o.oid.cmp(oid));
                copies.push((*osd, at.ok().map(|i| &objects[i])));
            }
        }
        let mut found = Vec::new();
        for (oid, copies) in &all {
            let lacking = self.missing.contains_key(*oid)
                || self.peers.values().any(|p| p.missing.contains_key(*oid));
            let mut finding =
                if lacking { None } else { compare(oid, copies, me, None, coding.as_deref()) };
            if finding.is_some() {
                let mut last = self.log.entries.iter().rev();
                let last = last.find_map(|e| said_of(e, oid));
                finding = compare(oid, copies, me, last, coding.as_deref());
            }
            if finding.is_none()
                && let Some(odd) = odd.get(*oid)
            {
                finding = Some(Finding::not_agreeing(all_shards(copies), oid, *odd));
            }
            let run = self.scrub.run.as_mut().expect("it runs");
            if let Some(o) = copies.iter().find_map(|(osd, o)| o.filter(|_| *osd == me)) {
                run.objects += 1;
                if let Some(omap) = o.omap {
                    run.omap.0 += omap.keys;
                    run.omap.1 += omap.bytes;
                }
            }
            let surplus = finding.as_ref().is_some_and(|f| f.surplus);
            let counts = copies.iter().find_map(|(_, o)| *o).filter(|_| !surplus);
            if let Some(o) = counts {
                let auth = finding.as_ref().and_then(|f| f.shards.iter().find(|s| s.counts));
                let o = auth.and_then(|s| s.object.as_ref()).unwrap_or(o);
                run.counted.0 += 1;
                run.counted.1 += bytes_counted(o);
            }
            found.extend(finding);
        }
        for f in found {
            self.note_finding(&f, order, cx);
            if order.repair && self.mend(&f, cx) {
                self.scrub.run.as_mut().expect("it runs").fixed += f.bad().count() as u32;
            } else {
                self.scrub.found.insert(f.oid.clone(), f);
            }
        }
    }

    fn note_finding(&mut self, f: &Finding, order: Order, cx: &mut Cx<'_>) {
        let run = self.scrub.run.as_mut().expect("it runs");
        for s in f.bad() {
            if s.is_deep() {
                run.deep_errors += 1;
            } else {
                run.shallow_errors += 1;
            }
            if s.errors & shard::MISSING != 0 {
                run.missing += 1;
            } else {
                run.inconsistent += 1;
            }
            let mut why = vec![names(s.errors, &shard::NAMES), names(s.differs, &object::NAMES)];
            why.retain(|w| !w.is_empty());
            let text = format!(
                "{} {} shard {} soid {} : {}",
                self.id,
                order.name(),
                s.osd,
                f.oid,
                why.join(", ")
            );
            cx.out.push(Effect::ClusterLog { error: true, text });
        }
    }

    /// Marks what is bad as missing, so that recovery mends it. `false` when it cannot be.
    fn mend(&mut self, f: &Finding, cx: &mut Cx<'_>) -> bool {
        if f.surplus {
            self.remove_surplus(&f.oid, cx);
            return true;
        }
        let Some(version) = f.version else { return false };
        for s in f.bad() {
            self.mark_damaged(s.osd, &f.oid, version, cx);
        }
        self.recover_first(&f.oid, cx);
        true
    }

    /// The log says that it is gone, and some copies have it: it is removed once more.
    fn remove_surplus(&mut self, oid: &HObject, cx: &mut Cx<'_>) {
        let version = self.next_version(cx);
        let entry = self.own_delete(oid, version, cx);
        self.obcs.remove(oid);
        let gone = vec![messages::Mutation::Remove];
        let change = ObjectChange { oid: oid.clone(), mutations: gone };
        self.submit_write(None, change, entry, ObjectState::default(), Vec::new(), cx);
    }

    /// The scrub has ended: at its end, or before.
    fn end_scrub(&mut self, whole: bool, cx: &mut Cx<'_>) {
        let Some(run) = self.scrub.run.take() else { return };
        self.scrub.builder = None;
        self.scrub.id = self.scrub.id.wrapping_add(1);
        cx.slots.scrubs.give_back(self.id);
        for o in self.others(cx.me).collect::<Vec<_>>() {
            self.say(cx, o, PeerMsg::Scrub(ScrubMsg::Release));
        }
        self.stats_dirty = true;
        if whole {
            self.finish_scrub(&run, cx);
        } else {
            // Others get the slots first.
            let now = cx.now.mono_ms();
            let spread = u64::from(self.id.pg.ps.wrapping_mul(2_654_435_761) % 1_000);
            self.scrub.not_before_ms = now + 1_000 + spread + (now * 7 + spread * 13) % 1_000;
            if run.order.required {
                self.scrub.asked.get_or_insert(run.order);
            }
        }
        self.go_on(run.waiting, cx);
    }

    fn finish_scrub(&mut self, run: &Run, cx: &mut Cx<'_>) {
        let (mut shallow, mut fixed) = (run.shallow_errors, run.fixed);
        let c = self.counts();
        let same = (c.objects, c.bytes) == run.counted;
        if !same && !self.info.recount && self.missing.is_empty() {
            shallow += 1;
            let text = format!(
                "{} {} : stat mismatch, got {}/{} objects, {}/{} bytes.",
                self.id,
                run.order.name(),
                run.counted.0,
                c.objects,
                run.counted.1,
                c.bytes
            );
            cx.out.push(Effect::ClusterLog { error: true, text });
            if run.order.repair {
                self.info.recount = true; // as soon as all is clean
                fixed += 1;
            }
        }
        let errors = shallow + run.deep_errors;
        let name = run.order.name();
        if run.missing + run.inconsistent > 0 {
            let text = format!(
                "{} {name} {} missing, {} inconsistent objects",
                self.id, run.missing, run.inconsistent
            );
            cx.out.push(Effect::ClusterLog { error: true, text });
        }
        if errors > 0 {
            let mut text = format!("{} {name} {errors} errors", self.id);
            if run.order.repair {
                text += &format!(", {fixed} fixed");
            }
            cx.out.push(Effect::ClusterLog { error: true, text });
        } else {
            tracing::debug!(pg = %self.id, "{name} ok");
        }
        let head = self.log.head();
        let now_ns = cx.now.wall_ns;
        let mut h = ScrubHistory { last: head, last_ns: now_ns, ..self.info.scrub };
        h.shallow_errors = shallow;
        h.objects = run.objects;
        h.duration_ms = cx.now.mono_ms().saturating_sub(run.began_ms);
        if run.order.deep {
            (h.last_deep, h.last_deep_ns, h.deep_errors) = (head, now_ns, run.deep_errors);
            h.omap = run.omap;
        }
        if run.order.repair {
            h.repaired += u64::from(fixed);
            // What is left is what could not be mended.
            h.shallow_errors = errors - fixed.min(errors);
            h.deep_errors = 0;
            self.scrub.repair_failed = fixed < errors;
            self.scrub.verify = fixed > 0;
        } else if h.errors() == 0 {
            h.last_clean_ns = now_ns;
            self.scrub.repair_failed = false;
        }
        self.scrub.known = true;
        self.info.scrub = h;
        let auto = cx.conf.scrub.auto_repair && !run.order.repair && errors > 0;
        if auto && errors <= cx.conf.scrub.auto_repair_max {
            self.scrub.asked.get_or_insert(Order { deep: true, repair: true, required: true });
        }
        self.publish_scrub(cx);
        self.check_clean(cx);
    }

    fn publish_scrub(&mut self, cx: &mut Cx<'_>) {
        let mut ops = Vec::new();
        self.save_info(&mut ops);
        cx.submit(ops, Ticket::None);
        for o in self.others(cx.me).collect::<Vec<_>>() {
            self.say(cx, o, PeerMsg::Scrub(ScrubMsg::Result(self.info.scrub)));
        }
        self.stats_dirty = true;
    }

    /// A PG that was never scrubbed counts from when it first served.
    pub(crate) fn begin_scrub_times(&mut self, cx: &mut Cx<'_>) {
        let h = &mut self.info.scrub;
        if h.last_ns == 0 {
            (h.last_ns, h.last_deep_ns, h.last_clean_ns) =
                (cx.now.wall_ns, cx.now.wall_ns, cx.now.wall_ns);
        }
    }

    /// The version of an object by its record, or what the log says of it.
    pub(crate) fn version_of(&self, oid: &HObject, cx: &Cx<'_>) -> Option<EVersion> {
        if let Some(obc) = self.obcs.get(oid) {
            return obc.state.exists.then_some(obc.state.info.version);
        }
        if let Ok(state) = Self::read_state(cx.store, self.coll, oid)
            && state.exists
        {
            return Some(state.info.version);
        }
        let mut all = self.log.entries.iter().rev();
        let last = all.find_map(|e| Some((said_of(e, oid)?, e.version)));
        last.filter(|(kind, _)| *kind == LogKind::Modify).map(|(_, version)| version)
    }
}
