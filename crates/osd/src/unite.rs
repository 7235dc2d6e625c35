//! Fewer PGs in a pool: the copies here of a PG that goes, and of the one that gets its
//! objects, become one.
//!
//! ```text
//!   Serving ──pg_num_pending──▶ Merging ──both whole and at rest──▶ ready, told to the monitors
//!      ▲                           │                                     │ pg_num
//!      └──── cannot be merged ◀────┘                                     ▼
//!                                                              one PG, a new interval
//! ```
//!
//! In Merging nothing is written: an interval of its own begins for both PGs, and requests
//! wait. Their primary, which must be the same with all other copies, tells the monitors the
//! last write of each; these stand in the map that merges (`last_pg_merge_meta`). A copy that
//! ends with just these writes is what the merged PG is, whatever it lacks: its log then ends
//! behind both. Any other copy keeps its objects and forgets its log: it is nobody's source,
//! and is compared object by object before it counts.
//!
//! Source: the peer's `PeeringState::merge_from`, `PGLog::merge_from`,
//! `OSDService::send_ready_to_merge`; how copies are told apart is ours.

use std::sync::Arc;

use bytes::Bytes;
use denc::Denc;
use env::Now;
use maps::{PgMergeMeta, PgSets};
use messages::{Mutation, PgCounts, PgInfo, PgLogEntry, PgReadyToMerge, ScrubHistory};
use types::{EVersion, Epoch, OsdId, PgId, PoolId, SpgId};

use crate::backing::{Coll, ObjectStore, StoreOp};
use crate::core::Osd;
use crate::outbox::Outbox;
use crate::pg::{Pg, Ticket, index_all, log_key, log_range, missing_key};
use crate::split::parent_of;

/// PGs that are not ready to merge after this long serve again.
const PATIENCE_MS: u64 = 10_000;
/// What the monitors were told is told again after this long.
const AGAIN_MS: u64 = 1_000;

/// A merge that the map announces, and what was said about it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Announced {
    source: PgId,
    /// When the map first announced it, monotonic ms.
    since_ms: u64,
    /// The map by which the monitors were last told, and when, monotonic ms.
    told: (Epoch, u64),
}

/// Where the log of a merged PG begins: behind the last writes of both.
fn seam(meta: &PgMergeMeta) -> EVersion {
    let last = meta.source_version.version.max(meta.target_version.version);
    EVersion { epoch: meta.ready_epoch, version: last + 1 }
}

/// One of those that were merged into `target` when `pg_num` were left; `last`, if it is.
fn source_of(target: PgId, pg_num: u32, last: PgId) -> PgId {
    let was = |ps: &u32| *ps >= pg_num && parent_of(*ps) == target.ps;
    let bits = (0..u32::BITS).map(|bit| target.ps | 1 << bit);
    let ps = [last.ps].into_iter().chain(bits).find(was).unwrap_or(last.ps);
    PgId { ps, ..target }
}

/// Both histories as one: the older times, and what either found.
fn both_scrubs(a: ScrubHistory, b: ScrubHistory) -> ScrubHistory {
    ScrubHistory {
        last_ns: a.last_ns.min(b.last_ns),
        last_deep_ns: a.last_deep_ns.min(b.last_deep_ns),
        last_clean_ns: a.last_clean_ns.min(b.last_clean_ns),
        shallow_errors: a.shallow_errors.saturating_add(b.shallow_errors),
        deep_errors: a.deep_errors.saturating_add(b.deep_errors),
        objects: a.objects + b.objects,
        repaired: a.repaired + b.repaired,
        omap: (a.omap.0 + b.omap.0, a.omap.1 + b.omap.1),
        ..a
    }
}

fn sum(a: PgCounts, b: PgCounts) -> PgCounts {
    PgCounts {
        objects: a.objects + b.objects,
        bytes: a.bytes + b.bytes,
        omap_objects: a.omap_objects + b.omap_objects,
        clones: a.clones + b.clones,
        clean: a.clean + b.clean,
        writes: a.writes + b.writes,
        write_bytes: a.write_bytes + b.write_bytes,
    }
}

/// What a copy remembers of requests, for the log of a merged PG: entries below its seam,
/// numbered anew, for the same versions may be in both.
fn remembered(store: &dyn ObjectStore, colls: &[Coll]) -> Result<Vec<PgLogEntry>, String> {
    let (first, end) = log_range();
    let mut all = Vec::new();
    for coll in colls {
        let mut bad = None;
        let walked = store.walk(*coll, &first, &end, &mut |_, raw| {
            match PgLogEntry::from_bytes(raw) {
                Ok(e) => all.push(e.detached()),
                Err(e) => bad = Some(e),
            }
            bad.is_none()
        });
        walked.map_err(|e| e.to_string())?;
        if let Some(e) = bad {
            return Err(e.to_string());
        }
    }
    // Those of earlier merges are older than all that have versions of a map.
    all.sort_by_key(|e| e.version);
    // The oldest are forgotten first: versions for users must not fall.
    if let Some(newest) = (0..all.len()).max_by_key(|i| all[*i].user_version) {
        let e = all.remove(newest);
        all.push(e);
    }
    for (e, n) in all.iter_mut().zip(1..) {
        e.version = EVersion::new(0, n);
    }
    Ok(all)
}

impl Osd {
    /// Merges the copies here of a pool's PGs from the map `at` on, which has `pg_num` of
    /// them; `meta` is what it says of its last merge, which is not of all where maps were missed.
    /// Returns the PGs merged into.
    pub(crate) fn unite_pgs(
        &mut self,
        pool: PoolId,
        pg_num: u32,
        meta: &PgMergeMeta,
        at: Epoch,
    ) -> Vec<SpgId> {
        let due = |(id, pg): &(&SpgId, &Pg)| {
            id.pg.pool == pool && id.pg.ps >= pg_num && pg.info.epoch < at
        };
        let mut united = Vec::new();
        // The last first: it may go to one that goes itself.
        while let Some(source) = self.pgs.iter().filter(due).map(|(id, _)| *id).next_back() {
            let target = SpgId { pg: PgId { pool, ps: parent_of(source.pg.ps) }, ..source };
            self.unite(source, target, meta);
            united.retain(|id| *id != source);
            united.push(target);
        }
        // Where only the PG merged into is, it is not whole any more.
        let half = |(id, pg): &(&SpgId, &Pg)| {
            id.pg.pool == pool
                && pg.info.epoch < at
                && maps::pg_num_matters(id.pg, pg.info.pg_num, pg_num)
                && !united.contains(id)
        };
        let halves: Vec<SpgId> = self.pgs.iter().filter(half).map(|(id, _)| *id).collect();
        for target in halves {
            let source = source_of(target.pg, pg_num, meta.source);
            self.unite(SpgId { pg: source, ..target }, target, meta);
            united.push(target);
        }
        let mut ops = Vec::new();
        let stays = |id: &SpgId, pg: &Pg| id.pg.pool == pool && pg.info.epoch < at;
        for (_, pg) in self.pgs.iter_mut().filter(|(id, pg)| stays(id, pg)) {
            pg.info.pg_num = pg_num;
            pg.save_info(&mut ops);
        }
        self.c.submit(ops);
        self.c.unborn.retain(|id| id.pool != pool || id.ps < pg_num);
        self.c.pg_count = self.pgs.len();
        united
    }

    /// Merges one copy into another; either may not be here.
    fn unite(&mut self, source: SpgId, target: SpgId, meta: &PgMergeMeta) {
        let s = self.pgs.remove(&source);
        let t = self.pgs.remove(&target);
        let (from, to) = (Coll::Pg(source), Coll::Pg(target));
        let exact = meta.source == source.pg
            && s.as_ref().is_some_and(|pg| pg.log.head() == meta.source_version)
            && t.as_ref().is_some_and(|pg| pg.log.head() == meta.target_version);
        let mut ops = vec![StoreOp::Create(to)];
        let mut kept = Vec::new();
        if exact {
            kept = remembered(&*self.c.store, &[to, from])
                .unwrap_or_else(|e| panic!("pg {target} cannot be merged: {e}"));
        }
        let one = match (s, t) {
            (Some(s), t) => self.fold(s, t, target, &mut ops),
            (None, Some(t)) => t,
            (None, None) => return,
        };
        let mut one = one;
        one.drop_all_undo(&mut ops);
        let (first, end) = log_range();
        ops.push(StoreOp::RmRange(to, first, end));
        one.log.reset(EVersion::ZERO);
        if exact {
            one.log.reset(seam(meta));
            let info = &mut one.info;
            info.last_epoch_started = info.last_epoch_started.max(meta.last_epoch_started);
            info.history_les = info.history_les.max(meta.last_epoch_started);
            for e in kept {
                ops.push(StoreOp::Put(to, log_key(e.version), e.to_bytes()));
                one.log.load(e);
            }
        } else {
            // Whoever was there when they were merged has started later than this copy, and when
            // that was is not known of an earlier merge than the map's last.
            one.info.last_epoch_started = Epoch(0);
            if meta.source == source.pg {
                one.info.history_les = one.info.history_les.max(meta.last_epoch_started);
            }
        }
        one.info.recount = true;
        one.committed = EVersion::ZERO;
        one.save_info(&mut ops);
        self.c.tickets.submit(&mut *self.c.store, ops, Ticket::None);
        tracing::info!(%source, %target, exact, missing = one.missing.len(), "merged");
        self.pgs.insert(target, one);
    }

    /// The copy of `source` becomes part of the copy of `target`, which is made if need be.
    fn fold(&mut self, mut s: Pg, t: Option<Pg>, target: SpgId, ops: &mut Vec<StoreOp>) -> Pg {
        let (source, from, to) = (s.id, s.coll, Coll::Pg(target));
        s.drop_all_undo(ops);
        s.refresh_info();
        // It has no collection before its first interval began.
        ops.push(StoreOp::Create(from));
        let mut out = Outbox::new();
        let mut cx = self.c.cx(Now::default(), &mut out);
        let mut dropped = std::mem::take(&mut s.dropped);
        let begun = s.take_ops(&mut cx);
        dropped.extend(begun.into_iter().map(|op| (op.conn, op.msg.epoch)));
        dropped.extend(s.waiting.drain(..).map(|op| (op.conn, op.msg.epoch)));
        s.drop_recovery(&mut cx);
        s.drop_trim(&mut cx);
        cx.slots.drop_pg(source);
        let mut t = t.unwrap_or_else(|| {
            let info = PgInfo { past: Vec::new(), counts: PgCounts::default(), ..s.info.clone() };
            let mut young = Pg::new(target, info, s.pool.clone());
            young.up_primary = s.up_primary;
            young
        });
        t.refresh_info();
        t.dropped.extend(dropped);
        // Hit sets end with their PG: nobody would look for them in another.
        let archives = s.archives(&*self.c.store).unwrap_or_else(|e| panic!("pg {source}: {e}"));
        s.missing.retain(|oid, _| !archives.contains(oid));
        for (oid, v) in std::mem::take(&mut s.missing) {
            ops.push(StoreOp::Put(to, missing_key(&oid), v.to_bytes()));
            t.missing.insert(oid, v);
        }
        let (first, end) = index_all();
        let walked = self.c.store.walk(from, &first, &end, &mut |key, _| {
            ops.push(StoreOp::Put(to, Bytes::copy_from_slice(key), Bytes::new()));
            true
        });
        if let Err(e) = walked {
            panic!("pg {source} cannot be merged: {e}");
        }
        let remove = |oid| StoreOp::Object(from, oid, vec![Mutation::Remove]);
        ops.extend(archives.into_iter().map(remove));
        ops.push(StoreOp::Merge(from, to));
        ops.push(StoreOp::Drop(from));
        t.info.counts = sum(t.info.counts, s.info.counts);
        t.info.scrub = both_scrubs(t.info.scrub, s.info.scrub);
        t.watches.take_over(std::mem::take(&mut s.watches));
        self.c.reports.removed.push(source.pg);
        t
    }

    /// Tells the monitors of PGs led here that the map wants merged.
    pub(crate) fn report_merges(&mut self, now: Now, out: &mut Outbox) {
        if !self.c.merging || !self.c.booted {
            return;
        }
        let map = Arc::clone(&self.c.map);
        for (id, _) in map.pools.iter().filter(|(_, pool)| is_announced(pool)) {
            self.report_merge(*id, now, out);
        }
    }

    /// The newest map is in force.
    pub(crate) fn note_merges(&mut self) {
        let c = &mut self.c;
        c.merging = c.map.pools.values().any(is_announced);
        c.merges.retain(|id, _| c.map.pool(*id).is_some_and(is_announced));
    }

    fn report_merge(&mut self, id: PoolId, now: Now, out: &mut Outbox) {
        let (map, mapping, me) =
            (Arc::clone(&self.c.map), Arc::clone(&self.c.mapping), self.c.id.whoami);
        let Some(pool) = map.pool(id) else { return };
        let source = PgId { pool: id, ps: pool.pg_num_pending };
        let target = PgId { pool: id, ps: parent_of(source.ps) };
        let (Some(at), Some(to)) = (mapping.get(source), mapping.get(target)) else { return };
        if at.acting_primary != Some(me) {
            return;
        }
        let ms = now.mono_ms();
        let new = Announced { source, since_ms: ms, told: (Epoch(0), 0) };
        let entry = self.c.merges.entry(id).or_insert(new);
        if entry.source != source {
            *entry = new;
        }
        let (since_ms, told) = (entry.since_ms, entry.told);
        if told.0 == map.epoch && ms < told.1 + AGAIN_MS {
            return;
        }
        let one = |ps: PgId| self.pgs.get(&self.c.spg_of(ps, me)).filter(|pg| pg.is_at_rest());
        let (s, t) = (one(source), one(target));
        // Elsewhere, or with fewer copies than should be, they will not be soon.
        let possible = at == to && is_whole(at, usize::from(pool.size));
        let mut said =
            PgReadyToMerge { osd: me, epoch: map.epoch, source, ..PgReadyToMerge::default() };
        match (s, t) {
            (Some(s), Some(t)) if possible => {
                said.ready = true;
                said.source_version = s.log.head();
                said.target_version = t.log.head();
                let (s, t) = (&s.info, &t.info);
                said.last_epoch_started = s.last_epoch_started.max(t.last_epoch_started);
                said.last_epoch_clean = s.last_epoch_clean.min(t.last_epoch_clean);
            }
            _ if possible && ms < since_ms + PATIENCE_MS => return,
            _ => {}
        }
        if let Some(entry) = self.c.merges.get_mut(&id) {
            entry.told = (map.epoch, ms);
        }
        out.mon(&said);
    }
}

/// Whether the map says that the pool's last PG is about to go.
fn is_announced(pool: &maps::PgPool) -> bool {
    pool.pg_num_pending > 0 && pool.pg_num_pending < pool.pg_num
}

/// Whether a PG has all its copies where CRUSH wants them.
fn is_whole(sets: &PgSets, size: usize) -> bool {
    sets.acting == sets.up
        && sets.acting.iter().filter(|o| **o != OsdId::NONE).count() == size
        && sets.up_primary == sets.acting_primary
}

impl Pg {
    /// Whether it waits for a merge, every copy is whole, and nothing is under way.
    fn is_at_rest(&self) -> bool {
        self.is_merging()
            && self.is_clean()
            && self.is_placed()
            && self.flushed
            && self.in_flight.is_empty()
            && self.info.last_epoch_clean >= self.interval()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemStore;
    use types::ReqId;

    fn entry(epoch: u32, v: u64, user: u64, tid: u64) -> PgLogEntry {
        PgLogEntry {
            version: EVersion::new(epoch, v),
            user_version: user,
            reqid: ReqId { tid, ..ReqId::default() },
            ..PgLogEntry::default()
        }
    }

    /// Both PGs' requests are remembered although their versions are the same, oldest first,
    /// and the highest version for users is forgotten last.
    #[test]
    fn requests_of_both_are_remembered() {
        let mut store = MemStore::default();
        let (a, b) = (Coll::Pg(PgId::new(1, 0).into()), Coll::Pg(PgId::new(1, 1).into()));
        let put = |c, e: PgLogEntry| StoreOp::Put(c, log_key(e.version), e.to_bytes());
        let ops = vec![
            StoreOp::Create(a),
            StoreOp::Create(b),
            put(a, entry(4, 1, 90, 1)),
            put(a, entry(4, 2, 91, 2)),
            put(b, entry(4, 2, 5, 3)),
            put(b, entry(9, 3, 6, 4)),
        ];
        store.submit(ops, 1);
        let all = remembered(&store, &[a, b]).unwrap();
        let tids: Vec<u64> = all.iter().map(|e| e.reqid.tid).collect();
        assert_eq!(tids, [1, 3, 4, 2]);
        let keys: Vec<Bytes> = all.iter().map(|e| log_key(e.version)).collect();
        assert!(keys.windows(2).all(|w| w[0] < w[1]));
        assert!(all.iter().all(|e| e.version < EVersion::new(1, 0)));
    }

    /// The one that the map names, where it went into that PG; else one that did.
    #[test]
    fn sources() {
        let pg = |ps| PgId { pool: PoolId(1), ps };
        assert_eq!(source_of(pg(0), 4, pg(4)), pg(4));
        assert_eq!(source_of(pg(2), 4, pg(4)), pg(6));
        assert_eq!(source_of(pg(0), 2, pg(3)), pg(2));
        assert_eq!(source_of(pg(0), 1, pg(1)), pg(1));
    }
}
