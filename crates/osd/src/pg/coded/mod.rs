//! The copies of a PG of an erasure-coded pool: each has one shard of every object.
//!
//! What differs from replicated PGs is here: reading puts an object together of its shards
//! ([`gather`]), a write changes each shard in its own way and leaves behind how to take it
//! back ([`undo`]), and a shard that lacks an object gets it computed from others
//! ([`rebuild`]). Log, peering, answers and snapshots are the same.
//!
//! A write is acknowledged by all acting shards, and kept by peering only when all that were
//! activated last and answer have it: so an acknowledged one is always kept, and one that is
//! kept is on at least as many shards as it takes to read it. A shard that has more takes it
//! back by itself.

mod acting;
mod gather;
mod rebuild;
mod undo;

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use maps::PgShard;
use messages::{Mutation, ObjectChange, PeerMsg, PgLogEntry, Push};
use types::{EVersion, Errno, HObject, ShardId, SpgId};

use super::{Cx, Pg, State, Ticket};
use crate::backing::ObjectStore;
use crate::bulk::Marked;
use crate::coding::WritePlan;
use crate::object::ObjectState;
use crate::session::{ClientOp, enqueue};

pub(crate) use gather::For;
pub(crate) use gather::Want;
use gather::{Gather, Serving};
pub(crate) use rebuild::Rebuild;
pub(crate) use undo::{Undo, undo_range};

/// What a PG of an erasure-coded pool knows besides.
#[derive(Debug, Default)]
pub(crate) struct Coded {
    /// Counts questions.
    next: u64,
    gathers: BTreeMap<u64, Gather>,
    /// Questions to shards: for which gathering, and which shard of it.
    asked: HashMap<u64, (u64, usize)>,
    /// Bytes of this shard that the store is reading, by its number.
    serving: HashMap<u64, Serving>,
    /// How to take back writes that may have to be.
    pub undo: BTreeMap<EVersion, Undo>,
    /// All copies know that writes up to here stay.
    told: EVersion,
    /// Parts of objects for copying, which were asked for and are here.
    copied: HashMap<(HObject, u64), Push>,
}

impl Coded {
    /// Requests that wait for shards, for who lists them.
    pub fn ops(&self) -> impl Iterator<Item = &ClientOp> {
        self.gathers.values().filter_map(|g| match &g.purpose {
            For::Op { op, .. } => Some(&**op),
            _ => None,
        })
    }
}

/// The object of a request, also where it reads a clone.
fn head_of(op: &ClientOp) -> HObject {
    op.oid.with_snap(types::SnapId::HEAD).detached()
}

impl Pg {
    /// The interval ends: requests that wait for shards are handed back.
    #[allow(clippy::vec_box)] // they stay where they are as they move from queue to queue
    pub(crate) fn drop_gathers(&mut self) -> Vec<Box<ClientOp>> {
        let coded = std::mem::take(&mut self.coded);
        self.coded.next = coded.next;
        self.coded.undo = coded.undo;
        let gathers = coded.gathers.into_values();
        gathers
            .filter_map(|g| if let For::Op { op, .. } = g.purpose { Some(op) } else { None })
            .collect()
    }

    /// A vector needs bytes of an object. They are gathered, and it is executed again.
    pub(crate) fn prefetch(
        &mut self,
        op: Box<ClientOp>,
        writes: bool,
        (oid, off, len): (HObject, u64, u64),
        cx: &mut Cx<'_>,
    ) {
        let Some(c) = self.pool.coding.clone() else { return };
        let version = self.version_now(&oid, cx);
        let (mut off, mut len) = (off, len);
        // Methods look here and there: all at once costs less than asking again.
        const WHOLE_MAX: u64 = 1 << 20;
        let size = match self.obcs.get(&oid) {
            Some(obc) => obc.state.info.size,
            None => Self::read_state(cx.store, self.coll, &oid).unwrap_or_default().info.size,
        };
        if op.msg.ops.iter().any(|o| o.code == messages::op::CALL) && size <= WHOLE_MAX {
            (off, len) = (0, size.max(off + len));
        }
        let (shards, at, span) = c.touched(off, len);
        let want = Want { oid, version, off: at, len: span, shards, attrs: false };
        self.hold(&head_of(&op), writes, true);
        self.gather(want, For::Op { op, writes, data: Some((off, len)) }, cx);
    }

    /// A write needs bytes that it leaves as they are, for what is computed of them.
    pub(crate) fn prefetch_old(
        &mut self,
        op: Box<ClientOp>,
        old: crate::coding::Old,
        cx: &mut Cx<'_>,
    ) {
        let oid = old.oid.unwrap_or_else(|| op.oid.detached());
        let version = self.version_now(&oid, cx);
        let acting: Vec<usize> = self.acting_copies().map(|c| c.shard.0 as usize).collect();
        let k = self.pool.readable_by();
        // Coding shards that nobody has are not written either.
        let shards = old.shards.into_iter().filter(|s| *s < k || acting.contains(s)).collect();
        let want = Want { oid, version, off: old.off, len: old.len, shards, attrs: false };
        self.hold(&head_of(&op), true, true);
        self.gather(want, For::Op { op, writes: true, data: None }, cx);
    }

    /// The version of an object with all writes that are on their way.
    fn version_now(&self, oid: &HObject, cx: &Cx<'_>) -> EVersion {
        match self.obcs.get(oid) {
            Some(obc) => obc.state.info.version,
            None => Self::read_state(cx.store, self.coll, oid).unwrap_or_default().info.version,
        }
    }

    /// Others wait while a request gathers bytes: writes for reads, and all for writes.
    fn hold(&mut self, oid: &HObject, writes: bool, on: bool) {
        let Some(obc) = self.obcs.get_mut(oid) else { return };
        match (writes, on) {
            (true, on) => obc.writer = on,
            (false, true) => obc.readers += 1,
            (false, false) => obc.readers = obc.readers.saturating_sub(1),
        }
    }

    /// The bytes that a request waited for are here, or cannot be had.
    #[allow(clippy::too_many_arguments)]
    fn on_gathered(
        &mut self,
        mut op: Box<ClientOp>,
        writes: bool,
        data: Option<(u64, u64)>,
        (oid, version): (&HObject, EVersion),
        at: u64,
        got: Option<Vec<Option<Bytes>>>,
        cx: &mut Cx<'_>,
    ) {
        let head = head_of(&op);
        self.hold(&head, writes, false);
        match (got, data) {
            (Some(shards), Some((off, len))) => {
                let c = self.pool.coding.clone().expect("it was gathered");
                op.prefetched.push((oid.clone(), off, c.join(&shards, at, off, len)));
                self.go_on_with(op, writes, &head, cx);
            }
            (Some(shards), None) => {
                op.old = Some(shards);
                self.go_on_with(op, writes, &head, cx);
            }
            (None, _) if self.is_lacking(oid) => {
                // It waits until enough shards are back.
                let op = op.afresh();
                enqueue(self.blocked.entry(head.clone()).or_default(), op);
                self.recover_first(oid, cx);
            }
            // Its record was written meanwhile, as when a snapshot is trimmed.
            (None, _) if self.version_now(oid, cx) != version => {
                self.go_on_with(op.afresh(), writes, &head, cx);
            }
            (None, _) => super::Answer::error(&op, Errno::IO).send(&op, cx),
        }
        self.wake(&head, cx);
    }

    fn go_on_with(&mut self, op: Box<ClientOp>, writes: bool, head: &HObject, cx: &mut Cx<'_>) {
        if op.is_fenced(cx.map) {
            super::Answer::error(&op, Errno::BLOCKLISTED).send(&op, cx);
        } else if !self.may_read(cx) {
            // With all that came for the object since, behind the promises.
            let behind = self.obcs.get_mut(head).map(|o| std::mem::take(&mut o.waiting));
            self.go_on(std::iter::once(op.afresh()).chain(behind.into_iter().flatten()), cx);
        } else if writes && self.scrub.blocks(head) {
            self.scrub.wait(op.afresh());
        } else if writes && self.is_degraded(head) {
            self.do_op(op.afresh(), cx); // a shard turned out to be damaged: it is mended first
        } else if self.obcs.contains_key(head) && !self.missing.contains_key(head) {
            let mut op = op;
            op.oid.snap = types::SnapId::HEAD;
            self.execute(op, writes, cx);
        } else {
            self.do_op(op.afresh(), cx);
        }
    }

    /// What waited for a request goes on.
    fn wake(&mut self, head: &HObject, cx: &mut Cx<'_>) {
        if let Some(obc) = self.obcs.get_mut(head)
            && !obc.writer
            && !obc.waiting.is_empty()
        {
            for op in std::mem::take(&mut obc.waiting) {
                self.do_op(op, cx);
            }
        }
        if self.recovery_wants(head) || self.missing.contains_key(head) {
            self.recover_first(head, cx);
        }
    }

    /// Whether some copy lacks the object.
    pub(crate) fn is_lacking(&self, oid: &HObject) -> bool {
        self.missing.contains_key(oid) || self.peers.values().any(|p| p.missing.contains_key(oid))
    }

    /// Bytes of a shard of an object as the writes that were sent leave it, when they are in
    /// memory. The caller has seen that this OSD has the object's newest version.
    fn shard_at_hand(
        &self,
        store: &dyn ObjectStore,
        shard: usize,
        oid: &HObject,
        off: u64,
        len: u64,
    ) -> Option<Bytes> {
        let of = self.shard(shard);
        if of == self.id {
            store.at_hand(self.coll, oid, off, len)
        } else {
            store.sent_at_hand(of, oid, off, len)
        }
    }

    /// Bytes of an object, when all of them are in memory.
    pub(crate) fn object_at_hand(
        &self,
        store: &dyn ObjectStore,
        oid: &HObject,
        off: u64,
        len: u64,
    ) -> Option<Bytes> {
        let c = self.pool.coding.as_ref()?;
        if self.missing.contains_key(oid) {
            return None;
        }
        let (wanted, at, span) = c.touched(off, len);
        let mut shards = vec![None; c.k];
        for s in wanted {
            shards[s] = Some(self.shard_at_hand(store, s, oid, at, span)?);
        }
        Some(c.join(&shards, at, off, len))
    }

    fn shard(&self, shard: usize) -> SpgId {
        SpgId { shard: ShardId(shard as i8), ..self.id }
    }

    /// What shards elsewhere become by a write, for the reads that follow.
    pub(crate) fn note_sent(&self, each: &[Vec<ObjectChange>], cx: &mut Cx<'_>) {
        for (shard, changes) in each.iter().enumerate() {
            let coding = self.pool.coding.as_ref().is_some_and(|c| shard >= c.k);
            let of = self.shard(shard);
            if of != self.id {
                changes.iter().for_each(|change| cx.store.note_sent(of, change, coding));
            }
        }
    }

    /// What was sent may be taken back: the interval ends.
    pub(crate) fn forget_sent(&self, cx: &mut Cx<'_>) {
        let shards = self.pool.coding.as_ref().map_or(0, |c| c.n());
        (0..shards).for_each(|shard| cx.store.forget_sent(self.shard(shard)));
    }

    /// How a write takes its object apart.
    pub(crate) fn plan_write(
        &self,
        mutations: &[Mutation],
        before: &ObjectState,
        cx: &Cx<'_>,
    ) -> Option<WritePlan> {
        let c = self.pool.coding.as_ref()?;
        let size = if before.exists { before.info.size } else { 0 };
        let size_of = |source: &HObject| {
            Self::read_state(cx.store, self.coll, source).unwrap_or_default().info.size
        };
        Some(WritePlan::new(c, mutations, size, size_of))
    }

    /// What each shard does for a write.
    pub(crate) fn shard_changes(
        &self,
        clone: Option<&ObjectChange>,
        change: &ObjectChange,
        before: &ObjectState,
        old: Option<&[Option<Bytes>]>,
        cx: &Cx<'_>,
    ) -> Vec<Vec<ObjectChange>> {
        let c = self.pool.coding.as_ref().expect("the caller looked");
        let plan = self.plan_write(&change.mutations, before, cx).expect("there is a code");
        let each = plan.shards(c, old).into_iter();
        each.map(|mutations| {
            let oid = change.oid.clone();
            let own = (!mutations.is_empty()).then_some(ObjectChange { oid, mutations });
            clone.cloned().into_iter().chain(own).collect()
        })
        .collect()
    }

    /// What this shard does for a write, and how it would be taken back.
    pub(crate) fn note_undo(
        &mut self,
        entry: &PgLogEntry,
        changes: &[ObjectChange],
        ops: &mut Vec<crate::backing::StoreOp>,
        cx: &Cx<'_>,
    ) {
        if self.is_coded() && !changes.is_empty() {
            self.keep_undo(entry.version, changes, ops, cx.store);
        }
    }

    /// Once in a while: what was asked and not answered is asked again, and copies learn what
    /// they need not be able to take back.
    pub(crate) fn tick_coded(&mut self, cx: &mut Cx<'_>) {
        if !self.is_coded() || !self.leads || self.state != State::Active {
            return;
        }
        self.ask_shards_again(cx);
        let all = self.committed_by_all;
        // What too few have, enough others may have to take back.
        if all > self.coded.told && self.in_flight.is_empty() && self.has_enough() {
            self.coded.told = all;
            for copy in self.others(cx.me).chain(self.followers()).collect::<Vec<_>>() {
                self.say(cx, copy, PeerMsg::Settled(all));
            }
            self.on_settled(all, cx);
        }
    }

    /// Writes up to here stay.
    pub(crate) fn on_settled(&mut self, upto: EVersion, cx: &mut Cx<'_>) {
        let mut ops = Vec::new();
        self.drop_undo(upto, &mut ops);
        if !ops.is_empty() {
            cx.submit(ops, Ticket::None);
        }
    }

    /// Shards that do not act and have written what does not count take it back: they may be
    /// the only ones that have what others lack.
    pub(crate) fn send_log_to_strays(&mut self, to: Option<PgShard>, cx: &mut Cx<'_>) {
        if !self.is_coded() {
            return;
        }
        let strays: Vec<(PgShard, EVersion)> = self
            .peers
            .iter()
            .filter(|(c, p)| !self.acts(c) && !p.target.follows() && to.is_none_or(|to| to == **c))
            .filter_map(|(c, p)| Some((*c, p.info.as_ref()?.last_update)))
            .filter(|(_, last)| *last > self.log.tail && !self.log.contains(*last))
            .collect();
        for (copy, last) in strays {
            // Its log may have left this one's before its end.
            let below = EVersion { epoch: last.epoch, version: 0 };
            let since = self.log.floor(below).unwrap_or(self.log.tail);
            self.say(cx, copy, PeerMsg::Follow { since, entries: self.log.after(since) });
            for vain in self.recovery.not_at_mut() {
                vain.retain(|c| *c != copy);
            }
        }
    }

    /// This shard does not act; the log that counts.
    pub(crate) fn on_follow(
        &mut self,
        from: PgShard,
        since: EVersion,
        raw: &[Bytes],
        cx: &mut Cx<'_>,
    ) {
        if !self.is_led_by(&from) || self.acts(&self.me(cx.me)) {
            return;
        }
        let Ok(entries) = super::merge::decode_entries(raw) else { return };
        let mut steps = Marked::default();
        // Where the logs do not meet it is taken back all the same.
        let _ = self.merge_log(since, entries, &mut steps, cx.store);
        self.save_info(&mut steps.ops);
        cx.submit_marked(steps, Ticket::None);
    }

    /// With a write copies learn what stays.
    pub(crate) fn settled_with_write(&mut self) -> EVersion {
        if self.is_coded() {
            self.coded.told = self.committed_by_all;
        }
        if self.is_coded() { self.committed_by_all } else { EVersion::ZERO }
    }

    /// A part of an object for copying: gathered first, and there when it is asked for again.
    pub(crate) fn coded_copy_part(
        &mut self,
        oid: &HObject,
        state: &ObjectState,
        off: u64,
        cx: &mut Cx<'_>,
    ) -> Option<Push> {
        const PART: u64 = 4 << 20;
        let (version, size) = (state.info.version, state.info.size);
        let key = (oid.detached(), off);
        if let Some(push) = self.coded.copied.remove(&key)
            && push.version == version
        {
            return Some(push);
        }
        let len = PART.min(size.saturating_sub(off));
        let mut push =
            Push { oid: key.0.clone(), version, off, first: off == 0, size, ..Push::default() };
        if off + len >= size {
            push.last = true;
            push.attrs = cx.store.attrs(self.coll, oid).ok()?;
        }
        if len == 0 {
            return Some(push);
        }
        if self.coded.gathers.values().any(|g| g.is_copy_of(oid, off)) {
            return None;
        }
        let c = self.pool.coding.clone()?;
        let (shards, at, span) = c.touched(off, len);
        let want = Want { oid: key.0, version, off: at, len: span, shards, attrs: false };
        self.gather(want, For::Copy { push, len }, cx);
        self.coded.copied.remove(&(oid.detached(), off))
    }
}
