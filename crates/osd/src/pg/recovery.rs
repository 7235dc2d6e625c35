//! Bringing missing objects back: pulled to the primary, then pushed to the copies that
//! lack them, whole objects in parts.
//!
//! An object that is being recovered is never written: operations on it wait. A part that
//! is lost is asked for again; a part that comes twice is told by its offset.

use std::collections::HashMap;

use bytes::Bytes;
use maps::PgShard;
use messages::{Mutation, ObjectChange, PeerMsg, Push};
use types::{EVersion, Epoch, HObject, SnapId};

use super::snaps::index_change;
use super::{Cx, Pg, State, Ticket, missing_key};
use crate::backing::{Fetched, StoreError, StoreOp};
use crate::bulk;
use crate::object::INFO_ATTR;

/// omap in one part, bytes.
const PART_OMAP: usize = 1 << 20;
/// Bytes that one transaction of a part takes of the log, beside data.
const PIECE_BYTES: u64 = 8 << 20;
/// A recovery that does not move is started again after this long.
const STUCK_MS: u64 = 5_000;
/// What rebuilding an object of an erasure-coded pool counts for, bytes.
const REBUILD_COST: u64 = 1 << 20;
/// Objects on their way at once while clients are served.
const BESIDE_CLIENTS_MAX: usize = 4;

#[derive(Debug)]
struct Pull {
    from: PgShard,
    version: EVersion,
    off: u64,
    omap_after: Bytes,
    /// The whole object is submitted and not yet durable.
    closing: bool,
    /// The next part waits until clients leave room.
    held: bool,
    since_ms: u64,
    /// Bytes that [`crate::pace::Pace::ask`] presumed of the part that was asked for.
    asked: u64,
}

#[derive(Debug)]
struct PushState {
    version: EVersion,
    off: u64,
    omap_after: Bytes,
    held: bool,
    since_ms: u64,
}

/// A part whose data the store is reading.
#[derive(Debug)]
struct PartRead {
    to: PgShard,
    push: Push,
    omap_after: Bytes,
}

/// Whether an acting copy has lent its slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Lends {
    #[default]
    No,
    /// It was asked then, monotonic ms.
    Asked(u64),
    Yes,
}

/// What is under way.
#[derive(Debug, Default)]
pub(crate) struct Recovery {
    pulls: HashMap<HObject, Pull>,
    pushes: HashMap<(PgShard, HObject), PushState>,
    /// Where an object was looked for in vain, in this interval.
    not_at: HashMap<HObject, Vec<PgShard>>,
    /// Objects that operations wait for.
    urgent: Vec<HObject>,
    /// Objects of erasure-coded pools.
    pub rebuilds: HashMap<HObject, super::coded::Rebuild>,
    /// Parts that the store is reading, by its number.
    reads: HashMap<u64, PartRead>,
    /// Those that others have asked for, with the interval to answer in.
    asked: HashMap<u64, (Epoch, PartRead)>,
    /// Those that have come, whose data the store writes ahead, with the interval they came in.
    arriving: HashMap<u64, (Epoch, PgShard, Push)>,
    /// This OSD's own slot is taken by other PGs; or, as a copy, the lent one.
    pub turn_wanted: bool,
    /// The store is too full for it.
    pub too_full: bool,
}

impl Recovery {
    /// Who was asked in vain, by object.
    pub fn not_at_mut(&mut self) -> impl Iterator<Item = &mut Vec<PgShard>> {
        self.not_at.values_mut()
    }

    /// Objects that are being recovered, here or at other copies.
    pub fn objects(&self) -> std::collections::BTreeSet<&HObject> {
        let pushed = self.pushes.keys().map(|(_, o)| o);
        self.pulls.keys().chain(pushed).chain(self.rebuilds.keys()).collect()
    }

    pub(super) fn active(&self) -> usize {
        self.pulls.len() + self.pushes.len() + self.rebuilds.len()
    }
}

impl Pg {
    /// Counts what was recovered, in this PG and in the OSD.
    pub(crate) fn count_recovered(&mut self, objects: u64, bytes: u64, cx: &mut Cx<'_>) {
        self.recovered.0 += objects;
        self.recovered.1 += bytes;
        cx.perf.osd.recovery_ops += objects;
        cx.perf.osd.recovery_bytes += bytes;
    }

    pub(crate) fn drop_recovery(&mut self, cx: &mut Cx<'_>) {
        *cx.recoveries -= self.recovery.active().min(*cx.recoveries);
        // Who asked may be in the next interval already.
        let asked = std::mem::take(&mut self.recovery.asked);
        self.recovery = Recovery { asked, ..Recovery::default() };
    }

    /// Recoveries over a lost connection start again.
    pub(crate) fn restart_recovery_of(&mut self, osd: PgShard, cx: &mut Cx<'_>) {
        let before = self.recovery.active();
        self.recovery.pulls.retain(|_, p| p.from != osd || p.closing);
        self.recovery.pushes.retain(|(o, _), _| *o != osd);
        self.recovery.rebuilds.retain(|_, r| !r.is_for(&osd));
        self.recovery.arriving.retain(|_, (_, from, _)| *from != osd);
        *cx.recoveries -= (before - self.recovery.active()).min(*cx.recoveries);
        if let Some(peer) = self.peers.get_mut(&osd) {
            peer.lends = Lends::No;
        }
        self.kick_recovery(cx);
    }

    /// Number of objects that no copy is known to have.
    pub(crate) fn unfound(&self) -> usize {
        self.unfound_objects().count()
    }

    /// An operation waits for this object.
    pub(crate) fn recover_first(&mut self, oid: &HObject, cx: &mut Cx<'_>) {
        if !self.recovery.urgent.contains(oid) {
            self.recovery.urgent.push(oid.clone());
        }
        self.kick_recovery(cx);
    }

    /// Whether writes to the object must wait, because some copy lacks it.
    pub(crate) fn is_degraded(&self, oid: &HObject) -> bool {
        let acts = |o: &PgShard| self.acts(o);
        self.missing.contains_key(oid)
            || self.peers.iter().any(|(o, p)| p.activated && p.missing.contains_key(oid) && acts(o))
    }

    /// A copy from which the object can be pulled.
    pub(crate) fn source_of(&self, oid: &HObject) -> Option<PgShard> {
        let version = *self.missing.get(oid)?;
        let tried = self.recovery.not_at.get(oid);
        self.peers
            .iter()
            .filter(|(o, p)| {
                !tried.is_some_and(|t| t.contains(o))
                    && !p.missing.contains_key(oid)
                    && p.reaches(version)
            })
            // The owner of the log first, then acting copies, then others.
            .max_by_key(|(o, p)| (self.auth == Some(**o), p.activated))
            .map(|(o, _)| *o)
    }

    /// Starts as many recoveries as the budget allows.
    pub(crate) fn kick_recovery(&mut self, cx: &mut Cx<'_>) {
        if self.state != State::Active || !self.leads {
            return;
        }
        let now = cx.now.mono_ms();
        let before = self.recovery.active();
        let moves = |held: bool, since_ms: u64| held || now < since_ms + STUCK_MS;
        self.recovery.pulls.retain(|_, p| p.closing || moves(p.held, p.since_ms));
        self.recovery.pushes.retain(|_, p| moves(p.held, p.since_ms));
        self.recovery.rebuilds.retain(|_, r| now < r.since_ms + STUCK_MS);
        *cx.recoveries -= (before - self.recovery.active()).min(*cx.recoveries);
        let peers_whole = self.peers.values().all(|p| !p.activated || p.missing.is_empty());
        if self.missing.is_empty() && peers_whole {
            self.end_turn(cx);
            return;
        }
        for oid in std::mem::take(&mut self.recovery.urgent) {
            if self.is_degraded(&oid) {
                self.recovery.urgent.push(oid.clone());
                self.recover_one(&oid, cx);
            }
        }
        self.go_on_held(cx);
        let mut max = cx.conf.recoveries_max;
        if cx.pace.has_clients(cx.now) {
            max = max.min(BESIDE_CLIENTS_MAX);
        }
        let held = cx.map.has_flag(maps::OsdMapFlags::NORECOVER) && !self.forced;
        if held {
            return;
        }
        let turn = self.take_turn(cx);
        if *cx.recoveries >= max {
            return;
        }
        if self.is_coded() {
            // Copies beside the acting ones have slots of their own.
            for oid in self.to_rebuild(max - *cx.recoveries, turn, cx) {
                if !self.may_start(cx) {
                    return;
                }
                cx.pace.charge(REBUILD_COST, cx.now);
                self.rebuild(&oid, cx);
            }
            return;
        }
        let pulls: Vec<HObject> = self
            .missing
            .keys()
            .filter(|o| !self.recovery.pulls.contains_key(*o) && self.source_of(o).is_some())
            .take(if turn { max - *cx.recoveries } else { 0 })
            .cloned()
            .collect();
        for oid in pulls {
            if !self.may_start(cx) {
                return;
            }
            self.recover_one(&oid, cx);
        }
        let copies = self.may_backfill(cx);
        let budget = max.saturating_sub(*cx.recoveries);
        let pushes: Vec<HObject> = self
            .peers
            .iter()
            .filter(|(o, p)| match self.acts(o) {
                true => p.activated && turn && (p.lends == Lends::Yes || self.forced),
                false => p.activated && copies,
            })
            .filter(|(o, _)| !self.is_full_at(o, cx))
            .flat_map(|(o, p)| p.missing.keys().map(move |oid| (*o, oid)))
            .filter(|(o, oid)| {
                !self.missing.contains_key(*oid)
                    && !self.recovery.pushes.contains_key(&(*o, (*oid).clone()))
            })
            .map(|(_, oid)| oid.clone())
            .take(budget)
            .collect();
        for oid in pushes {
            if !self.may_start(cx) {
                return;
            }
            self.recover_one(&oid, cx);
        }
    }

    /// Who has been asked in vain for an object.
    pub(crate) fn not_at(&self, oid: &HObject) -> Option<&Vec<PgShard>> {
        self.recovery.not_at.get(oid)
    }

    /// They are not asked again in this interval.
    pub(crate) fn looked_in_vain(&mut self, oid: &HObject, at: impl IntoIterator<Item = PgShard>) {
        self.recovery.not_at.entry(oid.clone()).or_default().extend(at);
    }

    /// Whether another object may begin; otherwise its turn comes.
    fn may_start(&self, cx: &mut Cx<'_>) -> bool {
        let may = cx.may_start();
        if may {
            cx.pace.started(&cx.conf.pace, cx.now);
        } else {
            cx.pace.wait(self.id);
        }
        may
    }

    /// Parts that had to leave room for clients go on.
    fn go_on_held(&mut self, cx: &mut Cx<'_>) {
        let pulls = self.recovery.pulls.iter().filter(|(_, p)| p.held);
        let pulls: Vec<HObject> = pulls.map(|(o, _)| o.clone()).collect();
        for oid in pulls {
            self.pull_next(&oid, cx);
        }
        let pushes = self.recovery.pushes.iter().filter(|(_, p)| p.held);
        let pushes: Vec<(PgShard, HObject)> = pushes.map(|(k, _)| k.clone()).collect();
        for key in pushes {
            self.push_next(&key, cx);
        }
    }

    /// Asks for the next part, when there is room.
    fn pull_next(&mut self, oid: &HObject, cx: &mut Cx<'_>) {
        let may = cx.may_move() || self.recovery.urgent.contains(oid);
        let Some(pull) = self.recovery.pulls.get_mut(oid) else { return };
        (pull.held, pull.since_ms) = (!may, cx.now.mono_ms());
        if !may {
            cx.pace.wait(self.id);
            return;
        }
        pull.asked = cx.pace.ask(cx.now);
        let (from, version, off) = (pull.from, pull.version, pull.off);
        let omap_after = pull.omap_after.clone();
        self.say(cx, from, PeerMsg::Pull { oid: oid.clone(), version, off, omap_after });
    }

    /// Sends the next part, when there is room.
    fn push_next(&mut self, key: &(PgShard, HObject), cx: &mut Cx<'_>) {
        let may = cx.may_move() || self.recovery.urgent.contains(&key.1);
        let Some(push) = self.recovery.pushes.get_mut(key) else { return };
        (push.held, push.since_ms) = (!may, cx.now.mono_ms());
        if !may {
            cx.pace.wait(self.id);
            return;
        }
        let (version, off, omap_after) = (push.version, push.off, push.omap_after.clone());
        self.send_part(key.0, (&key.1, version, off, &omap_after), cx);
    }

    /// Sends a part of an object to a copy, once the store has read it. Returns whether it is
    /// whole here; otherwise it is brought back here first.
    fn send_part(
        &mut self,
        to: PgShard,
        (oid, version, off, omap_after): (&HObject, EVersion, u64, &Bytes),
        cx: &mut Cx<'_>,
    ) -> bool {
        let mut push = self.part_of(oid, version, off, omap_after);
        match self.begin_part(&mut push, cx) {
            Ok(Some(Fetched::Later(id))) => {
                cx.pace.charge(cx.pace.part_bytes(cx.now).min(push.size - off), cx.now);
                self.recovery
                    .reads
                    .insert(id, PartRead { to, push, omap_after: omap_after.clone() });
                true
            }
            Ok(Some(Fetched::Here(data))) => {
                cx.pace.charge(data.len() as u64, cx.now);
                self.end_part(to, push, Ok(data), omap_after, cx)
            }
            Ok(None) => {
                cx.pace.charge(0, cx.now);
                self.end_part(to, push, Ok(Bytes::new()), omap_after, cx)
            }
            Err(e) => self.end_part(to, push, Err(e), omap_after, cx),
        }
    }

    /// Begins to read a part's data, when the version wanted is here.
    fn begin_part(&self, push: &mut Push, cx: &mut Cx<'_>) -> Result<Option<Fetched>, StoreError> {
        if !self.has_version(push, cx)? {
            push.absent = true;
            return Ok(None);
        }
        if push.off >= push.size {
            return Ok(None);
        }
        let most = cx.pace.part_bytes(cx.now).min(push.size - push.off);
        let read = match cx.pace.has_clients(cx.now) {
            true => cx.store.fetch_gently(self.coll, &push.oid, push.off, most)?,
            false => cx.store.fetch(self.coll, &push.oid, push.off, most)?,
        };
        if let Some(Fetched::Later(id)) = &read {
            cx.fetches.insert(*id, self.id);
        }
        Ok(read)
    }

    /// A primary asks for a part; it gets it once the store has read it.
    pub(crate) fn answer_pull(
        &mut self,
        to: PgShard,
        interval: Epoch,
        (oid, version, off, omap_after): (&HObject, EVersion, u64, &Bytes),
        cx: &mut Cx<'_>,
    ) {
        let mut push = self.part_of(oid, version, off, omap_after);
        let data = match self.begin_part(&mut push, cx) {
            Ok(Some(Fetched::Later(id))) => {
                let read = PartRead { to, push, omap_after: omap_after.clone() };
                self.recovery.asked.insert(id, (interval, read));
                return;
            }
            Ok(Some(Fetched::Here(data))) => Ok(data),
            Ok(None) => Ok(Bytes::new()),
            Err(e) => Err(e),
        };
        self.end_asked(interval, PartRead { to, push, omap_after: omap_after.clone() }, data, cx);
    }

    /// The data of a part that was asked for is here.
    fn end_asked(
        &self,
        interval: Epoch,
        read: PartRead,
        data: Result<Bytes, StoreError>,
        cx: &mut Cx<'_>,
    ) {
        let PartRead { to, mut push, omap_after } = read;
        self.fill_or_absent(&mut push, data, &omap_after, cx);
        cx.pace.feel(push.data.len() as u64, cx.now);
        self.reply(to, interval, PeerMsg::Push(push), cx);
    }

    /// The store has read something; whether it was for a part.
    pub(crate) fn part_fetched(
        &mut self,
        id: u64,
        data: &Result<Bytes, StoreError>,
        cx: &mut Cx<'_>,
    ) -> bool {
        if let Some((interval, mut read)) = self.recovery.asked.remove(&id) {
            // It may have been written meanwhile.
            let same = self.has_version(&mut read.push, cx);
            read.push.absent = !matches!(same, Ok(true));
            self.end_asked(interval, read, data.clone(), cx);
            return true;
        }
        if let Some((interval, from, push)) = self.recovery.arriving.remove(&id) {
            // What could not be written ahead may be written as ever, or show what is wrong.
            if interval == self.interval() {
                self.on_part(from, push, cx);
            }
            return true;
        }
        let Some(read) = self.recovery.reads.remove(&id) else { return false };
        let key = (read.to, read.push.oid.clone());
        // What was written meanwhile goes anew.
        let wanted = self.recovery.pushes.get(&key);
        if wanted.is_some_and(|p| (p.version, p.off) == (read.push.version, read.push.off)) {
            let data = data.clone();
            self.end_part(read.to, read.push, data, &read.omap_after, cx);
        }
        true
    }

    /// The data of a part is here; with what else belongs to it, it goes.
    fn end_part(
        &mut self,
        to: PgShard,
        mut push: Push,
        data: Result<Bytes, StoreError>,
        omap_after: &Bytes,
        cx: &mut Cx<'_>,
    ) -> bool {
        self.fill_or_absent(&mut push, data, omap_after, cx);
        if push.absent && self.mend_own(&push.oid.detached(), cx) {
            return false;
        }
        self.count_recovered(0, push.data.len() as u64, cx);
        self.say(cx, to, PeerMsg::Push(push));
        true
    }

    fn fill_or_absent(
        &self,
        push: &mut Push,
        data: Result<Bytes, StoreError>,
        omap_after: &Bytes,
        cx: &Cx<'_>,
    ) {
        let filled = match data {
            Ok(_) if push.absent => Ok(()),
            Ok(data) => {
                push.data = data;
                self.fill_rest(push, omap_after, cx)
            }
            Err(e) => Err(e),
        };
        if let Err(e) = filled {
            tracing::error!(pg = %self.id, "reading for recovery: {e}");
            push.absent = true;
        }
    }

    fn part_of(&self, oid: &HObject, version: EVersion, off: u64, omap_after: &Bytes) -> Push {
        let first = off == 0 && omap_after.is_empty();
        let repair = self.mending.number(oid);
        Push { oid: oid.clone(), version, off, first, repair, ..Push::default() }
    }

    fn recover_one(&mut self, oid: &HObject, cx: &mut Cx<'_>) {
        if self.is_coded() {
            self.rebuild(oid, cx);
            return;
        }
        if let Some(&version) = self.missing.get(oid) {
            if self.recovery.pulls.contains_key(oid) {
                return;
            }
            let Some(from) = self.source_of(oid) else { return };
            let pull = Pull {
                from,
                version,
                off: 0,
                omap_after: Bytes::new(),
                closing: false,
                held: false,
                since_ms: cx.now.mono_ms(),
                asked: cx.pace.ask(cx.now),
            };
            self.recovery.pulls.insert(oid.clone(), pull);
            *cx.recoveries += 1;
            let (oid, omap_after) = (oid.clone(), Bytes::new());
            self.say(cx, from, PeerMsg::Pull { oid, version, off: 0, omap_after });
            return;
        }
        // Nothing of it may be on its way to the disk when it is read for others.
        if self.obcs.get(oid).is_some_and(|o| o.in_flight > 0) {
            return;
        }
        let to: Vec<(PgShard, EVersion)> = self
            .peers
            .iter()
            .filter(|(_, p)| p.activated)
            .filter_map(|(o, p)| p.missing.get(oid).map(|v| (*o, *v)))
            .collect();
        for (osd, version) in to {
            let key = (osd, oid.clone());
            let full = self.is_full_at(&osd, cx) && !self.recovery.urgent.contains(oid);
            if full || self.recovery.pushes.contains_key(&key) {
                continue;
            }
            let state = PushState {
                version,
                off: 0,
                omap_after: Bytes::new(),
                held: false,
                since_ms: cx.now.mono_ms(),
            };
            self.recovery.pushes.insert(key, state);
            *cx.recoveries += 1;
            if !self.send_part(osd, (oid, version, 0, &Bytes::new()), cx) {
                return; // pulled first
            }
        }
    }

    /// A part of an object as it is here; `absent` when it is not that version.
    pub(crate) fn read_part(
        &self,
        oid: &HObject,
        version: EVersion,
        off: u64,
        omap_after: &Bytes,
        cx: &Cx<'_>,
    ) -> Push {
        let mut push = self.part_of(oid, version, off, omap_after);
        match self.fill_part(&mut push, omap_after, cx) {
            Ok(true) => {}
            Ok(false) => push.absent = true,
            Err(e) => {
                tracing::error!(pg = %self.id, "reading for recovery: {e}");
                push.absent = true;
            }
        }
        push
    }

    fn fill_part(
        &self,
        push: &mut Push,
        omap_after: &Bytes,
        cx: &Cx<'_>,
    ) -> Result<bool, StoreError> {
        if !self.has_version(push, cx)? {
            return Ok(false);
        }
        if push.off < push.size {
            let most = cx.pace.part_bytes(cx.now);
            let data = cx.store.read(self.coll, &push.oid, push.off, most)?;
            push.data = data.unwrap_or_default();
        }
        self.fill_rest(push, omap_after, cx)?;
        Ok(true)
    }

    /// Whether the object is here in the version wanted; then its size is put down.
    fn has_version(&self, push: &mut Push, cx: &Cx<'_>) -> Result<bool, StoreError> {
        let state = Self::read_state(cx.store, self.coll, &push.oid)?;
        push.size = state.info.size;
        Ok(!self.missing.contains_key(&push.oid)
            && state.is_stored()
            && state.info.version == push.version)
    }

    /// Adds what follows the data: omap, and in the last part attributes.
    fn fill_rest(
        &self,
        push: &mut Push,
        omap_after: &Bytes,
        cx: &Cx<'_>,
    ) -> Result<(), StoreError> {
        if push.off < push.size && push.data.is_empty() {
            // Shorter on disk than its record says: the rest reads as zeros.
            let most = cx.pace.part_bytes(cx.now);
            push.data = vec![0; most.min(push.size - push.off) as usize].into();
        }
        if push.off + (push.data.len() as u64) < push.size {
            return Ok(());
        }
        let mut bytes = 0;
        let mut more = false;
        cx.store.omap_walk(self.coll, &push.oid, omap_after, &mut |k, v| {
            if k == omap_after && !omap_after.is_empty() {
                return true;
            }
            if bytes > PART_OMAP {
                more = true;
                return false;
            }
            bytes += k.len() + v.len() + 8;
            push.omap.push((Bytes::copy_from_slice(k), v.clone()));
            true
        })?;
        push.omap_after = push.omap.last().map_or_else(|| omap_after.clone(), |e| e.0.clone());
        if !more {
            push.last = true;
            push.attrs = cx.store.attrs(self.coll, &push.oid)?;
            push.header = cx.store.omap_header(self.coll, &push.oid)?;
        }
        Ok(())
    }

    /// Applies a part; the object counts as missing until the last one is durable.
    pub(crate) fn apply_part(&mut self, push: &Push, ops: &mut Vec<StoreOp>, cx: &mut Cx<'_>) {
        let mut m = Vec::new();
        if push.first {
            m.push(Mutation::Remove);
            m.push(Mutation::Touch);
        }
        if !push.data.is_empty() {
            m.push(Mutation::Write { off: push.off, data: push.data.clone() });
        }
        if !push.omap.is_empty() {
            m.push(Mutation::OmapSet(push.omap.clone()));
        }
        if push.last {
            m.push(Mutation::Truncate(push.size));
            if !push.header.is_empty() {
                m.push(Mutation::OmapHeader(push.header.clone()));
            }
            for (name, value) in &push.attrs {
                m.push(Mutation::SetAttr(name.clone(), value.clone()));
            }
        }
        if !push.oid.is_head() {
            index_change(cx.store, self.coll, &push.oid, &m, ops);
        }
        let change = ObjectChange { oid: push.oid.clone(), mutations: m };
        let most = (cx.store.record_max() / 2).min(PIECE_BYTES);
        let mut pieces = bulk::in_pieces(change, most).into_iter().peekable();
        while let Some(piece) = pieces.next() {
            ops.push(StoreOp::Object(self.coll, piece.oid, piece.mutations));
            if pieces.peek().is_some() {
                cx.submit(std::mem::take(ops), Ticket::None);
            }
        }
        if push.last {
            // It is whole with what is submitted last.
            ops.push(StoreOp::Rm(self.coll, missing_key(&push.oid)));
        }
    }

    /// Whether the log here takes what one step of a part brings. What does not fit stays
    /// missing; only another log, of another size, can have taken it.
    pub(crate) fn is_too_large(&self, push: &Push, cx: &Cx<'_>) -> bool {
        let steps = push.attrs.iter().map(|(k, v)| Mutation::SetAttr(k.clone(), v.clone()));
        let header = std::iter::once(Mutation::OmapHeader(push.header.clone()));
        let largest = steps.chain(header).map(|m| bulk::record_of(&m)).max();
        let most = cx.store.record_max();
        let refused = largest.is_some_and(|bytes| bytes + bulk::BESIDE > most);
        if refused {
            tracing::error!(
                pg = %self.id, oid = %push.oid, ?largest, most,
                "an attribute is larger than the log here takes (osd_journal_size)"
            );
        }
        refused
    }

    /// A part has come. Beside clients its data goes to the device before all else: for what
    /// is done here it comes when it is there.
    pub(crate) fn on_push(&mut self, from: PgShard, push: Push, cx: &mut Cx<'_>) {
        // Sent anew: what comes after it is not to find the old one behind it.
        self.recovery.arriving.retain(|_, (_, _, old)| old.oid != push.oid);
        let staged = match cx.pace.is_gentle(&cx.conf.pace, cx.now) && !push.data.is_empty() {
            true => cx.store.stage(push.oid.pool, &push.data),
            false => None,
        };
        if let Some(Fetched::Later(id)) = staged {
            cx.fetches.insert(id, self.id);
            self.recovery.arriving.insert(id, (self.interval(), from, push));
            return;
        }
        let data = staged.map(|_| push.data.clone());
        self.on_part(from, push, cx);
        data.inspect(|data| cx.store.unstage(data));
    }

    fn on_part(&mut self, from: PgShard, push: Push, cx: &mut Cx<'_>) {
        if self.leads { self.on_pulled(from, push, cx) } else { self.on_pushed_here(push, cx) }
    }

    /// The primary gets a part it asked for.
    fn on_pulled(&mut self, from: PgShard, push: Push, cx: &mut Cx<'_>) {
        let Some(pull) = self.recovery.pulls.get_mut(&push.oid) else { return };
        if pull.from != from || pull.closing || pull.version != push.version {
            return;
        }
        if push.absent {
            cx.pace.came(pull.asked, 0, cx.now);
            self.recovery.not_at.entry(push.oid.detached()).or_default().push(from);
            self.recovery.pulls.remove(&push.oid);
            *cx.recoveries -= 1;
            self.kick_recovery(cx);
            return;
        }
        let omap_moved = push.off >= push.size && push.omap_after == pull.omap_after && !push.last;
        if push.off != pull.off || omap_moved {
            return; // it came twice
        }
        if self.is_too_large(&push, cx) || self.is_too_much(&push, cx) {
            return; // asked for again after a while
        }
        let pull = self.recovery.pulls.get_mut(&push.oid).expect("just seen");
        if push.last && !push.attrs.iter().any(|(name, _)| name == INFO_ATTR) {
            tracing::error!(pg = %self.id, oid = %push.oid, "a recovered object has no record");
            return;
        }
        if push.first != (pull.off == 0 && pull.omap_after.is_empty()) {
            return;
        }
        pull.since_ms = cx.now.mono_ms();
        pull.off = push.off + push.data.len() as u64;
        pull.omap_after = Bytes::copy_from_slice(&push.omap_after);
        pull.closing = push.last;
        cx.pace.came(std::mem::take(&mut pull.asked), push.data.len() as u64, cx.now);
        let mut ops = Vec::new();
        self.apply_part(&push, &mut ops, cx);
        self.count_recovered(0, push.data.len() as u64, cx);
        let ticket = if push.last {
            Ticket::Recovered(self.id, self.interval(), push.oid.detached(), push.version)
        } else {
            Ticket::None
        };
        cx.submit(ops, ticket);
        if !push.last {
            self.pull_next(&push.oid.detached(), cx);
        }
    }

    /// A copy gets a part that it lacks.
    fn on_pushed_here(&mut self, push: Push, cx: &mut Cx<'_>) {
        if self.primary() == self.me(cx.me) || self.round == 0 {
            return; // not activated
        }
        let news = push.repair > 0 && push.first && self.mending.hears(&push.oid, push.repair);
        if news && !push.absent && !self.missing.contains_key(&push.oid) {
            let mut ops = Vec::new();
            self.set_missing(push.oid.detached(), push.version, &mut ops);
            cx.submit(ops, Ticket::None);
        }
        if self.missing.get(&push.oid) != Some(&push.version) {
            if !self.missing.contains_key(&push.oid) {
                self.say_whole(push.oid, push.version, cx); // it is whole already
            }
            return;
        }
        if push.absent {
            return;
        }
        if self.is_too_large(&push, cx) || self.is_too_much(&push, cx) {
            return; // it comes again after a while
        }
        let oid = push.oid.detached();
        cx.pace.feel(push.data.len() as u64, cx.now);
        let mut ops = Vec::new();
        self.apply_part(&push, &mut ops, cx);
        if push.last {
            let ticket = Ticket::Recovered(self.id, self.interval(), oid, push.version);
            cx.submit(ops, ticket);
        } else {
            cx.submit(ops, Ticket::None);
            let body = PeerMsg::Pushed {
                oid,
                version: push.version,
                off: push.off + push.data.len() as u64,
                omap_after: push.omap_after,
                last: false,
            };
            self.say(cx, self.primary(), body);
        }
    }

    fn say_whole(&self, oid: HObject, version: EVersion, cx: &mut Cx<'_>) {
        let (off, omap_after) = (u64::MAX, Bytes::new());
        let body = PeerMsg::Pushed { oid, version, off, omap_after, last: true };
        self.say(cx, self.primary(), body);
    }

    /// A recovered object is durable here.
    pub(crate) fn on_recovered(
        &mut self,
        interval: Epoch,
        oid: HObject,
        version: EVersion,
        cx: &mut Cx<'_>,
    ) {
        if self.missing.get(&oid) == Some(&version) {
            self.missing.remove(&oid);
        }
        self.count_recovered(1, 0, cx);
        self.share_again(&oid, cx);
        if interval != self.interval() {
            return;
        }
        if !self.leads {
            if self.missing.is_empty() {
                cx.slots.recoveries_lent.give_back(self.id);
            }
            self.say_whole(oid, version, cx);
            return;
        }
        if self.recovery.pulls.remove(&oid).is_some() {
            *cx.recoveries -= 1;
        }
        self.stats_dirty = true;
        if self.is_coded() {
            let me = self.me(cx.me);
            self.on_shard_whole(me, &oid, version, cx);
            self.on_shard_applied(me, &oid, version, cx);
            return;
        }
        self.recover_one(&oid, cx);
        self.after_recovery_of(&oid, cx);
    }

    #[allow(clippy::too_many_arguments)]
    pub(crate) fn on_pushed(
        &mut self,
        from: PgShard,
        oid: HObject,
        version: EVersion,
        off: u64,
        omap_after: Bytes,
        last: bool,
        cx: &mut Cx<'_>,
    ) {
        if !self.leads {
            return;
        }
        if self.is_coded() {
            let oid = oid.detached();
            if last
                && let Some(peer) = self.peers.get_mut(&from)
                && peer.missing.get(&oid) == Some(&version)
            {
                peer.missing.remove(&oid);
                self.count_recovered(1, 0, cx);
                self.on_shard_whole(from, &oid, version, cx);
            }
            self.on_shard_applied(from, &oid, version, cx);
            return;
        }
        let key = (from, oid);
        let Some(state) = self.recovery.pushes.get_mut(&key) else { return };
        if state.version != version {
            return;
        }
        if !last {
            if off < state.off || (off == state.off && omap_after == state.omap_after) {
                return; // it came twice
            }
            state.off = off;
            state.omap_after = Bytes::copy_from_slice(&omap_after);
            self.push_next(&key, cx);
            return;
        }
        self.recovery.pushes.remove(&key);
        *cx.recoveries -= 1;
        self.count_recovered(1, 0, cx);
        let oid = key.1.detached();
        if let Some(peer) = self.peers.get_mut(&from)
            && peer.missing.get(&oid) == Some(&version)
        {
            peer.missing.remove(&oid);
        }
        self.stats_dirty = true;
        self.after_recovery_of(&oid, cx);
    }

    /// The object is not looked for any more.
    pub(crate) fn given_up(&mut self, oid: &HObject, cx: &mut Cx<'_>) {
        if self.recovery.pulls.remove(oid).is_some() {
            *cx.recoveries -= 1.min(*cx.recoveries);
        }
        self.after_recovery_of(oid, cx);
    }

    pub(crate) fn after_recovery_of(&mut self, oid: &HObject, cx: &mut Cx<'_>) {
        self.recovery.not_at.remove(oid);
        if !self.recovery_wants(oid) && !self.missing.contains_key(oid) {
            self.mending.done(oid);
        }
        self.recovery.urgent.retain(|o| o != oid || self.missing.contains_key(o));
        // Reads go on as soon as the primary has the object, writes when all have; who is
        // still too early comes back here. What is behind a copy waits for that.
        if !self.missing.contains_key(oid)
            && !self.is_held(oid)
            && let Some(ops) = self.blocked.remove(oid)
        {
            self.go_on(ops, cx);
        }
        // What rolls back to a clone waits with its head.
        let head = (!oid.is_head()).then(|| oid.with_snap(SnapId::HEAD));
        if let Some(head) = head.filter(|head| !self.is_held(head))
            && let Some(ops) = self.blocked.remove(&head)
        {
            self.go_on(ops, cx);
        }
        if self.missing.is_empty() {
            let ops = std::mem::take(&mut self.waiting_whole);
            self.go_on(ops, cx);
        }
        self.check_clean(cx);
        if !self.peers.values().all(|p| p.target == super::backfill::Target::No) {
            self.free_backfill_slots(cx);
            self.maybe_end_temp(cx);
        }
        self.kick_recovery(cx);
    }

    /// A push is void: the object was written meanwhile.
    pub(crate) fn forget_push(&mut self, key: &(PgShard, HObject), cx: &mut Cx<'_>) {
        if self.recovery.pushes.remove(key).is_some() {
            *cx.recoveries -= 1.min(*cx.recoveries);
        }
    }

    /// So are all to that OSD.
    pub(crate) fn forget_pushes_to(&mut self, osd: PgShard, cx: &mut Cx<'_>) {
        let before = self.recovery.active();
        self.recovery.pushes.retain(|(o, _), _| *o != osd);
        self.recovery.rebuilds.retain(|_, r| !r.is_for(&osd));
        *cx.recoveries -= (before - self.recovery.active()).min(*cx.recoveries);
    }
}
