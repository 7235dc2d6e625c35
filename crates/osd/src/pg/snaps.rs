//! Snapshots of a PG's objects: the clone that a write leaves behind, the object that a
//! read at a snapshot means, and the index from snapshots to clones.
//!
//! The index is keys of the PG's collection, kept by every copy for the clones it has: so
//! trimming finds its work without looking at other objects. A copy derives it from the
//! clones' own records as they change, recovery included. Who trims checks each entry
//! against the head.

use bytes::Bytes;
use denc::Denc;
use maps::SnapSet;
use messages::{LogKind, Mutation, ObjectChange, Touched, req_flag};
use types::{DecodeError, EVersion, HObject, SnapId};

use super::{Cx, Pg, Ticket};
use crate::backing::{Coll, ObjectStore, StoreOp};
use crate::object::{INFO_ATTR, ObjectInfo, ObjectState};
use crate::session::ClientOp;
use crate::snapset::{self, Found};

/// Prefix of the index's keys.
const INDEX: u8 = b's';

/// The key that says that a clone serves a snapshot.
#[must_use]
pub(crate) fn index_key(snap: SnapId, clone: &HObject) -> Bytes {
    let mut w = denc::Writer::new(denc::Features::ALL);
    w.u8(INDEX);
    w.raw(&snap.0.to_be_bytes());
    clone.encode(&mut w);
    w.finish()
}

/// The keys of one snapshot's clones.
pub(crate) fn index_range(snap: SnapId) -> (Bytes, Bytes) {
    let key = |snap: u64| {
        let mut key = [INDEX; 9];
        key[1..].copy_from_slice(&snap.to_be_bytes());
        Bytes::copy_from_slice(&key)
    };
    (key(snap.0), key(snap.0 + 1))
}

/// The keys of the whole index.
pub(crate) fn index_all() -> (Bytes, Bytes) {
    (Bytes::from_static(&[INDEX]), Bytes::from_static(&[INDEX + 1]))
}

/// The clone that a key of the index names.
pub(crate) fn clone_of_key(key: &[u8]) -> Result<HObject, DecodeError> {
    HObject::from_bytes(key.get(9..).unwrap_or_default()).map(|o| o.detached())
}

/// Brings the index up to date with a change to a clone, before the store has it; `ops` are
/// what comes before it and the store has not either.
pub(crate) fn index_change(
    store: &dyn ObjectStore,
    coll: Coll,
    oid: &HObject,
    mutations: &[Mutation],
    ops: &mut Vec<StoreOp>,
) {
    let snaps_of = |raw: &Bytes| match ObjectInfo::from_bytes(raw) {
        Ok(info) => info.clone_snaps,
        Err(e) => {
            tracing::error!(%oid, "a clone's record: {e}");
            Vec::new()
        }
    };
    // The snapshots that it serves after a change that says so.
    let served = |mutations: &[Mutation]| {
        let record = mutations.iter().rev().find_map(|m| match m {
            Mutation::SetAttr(name, raw) if name == INFO_ATTR => Some(raw),
            _ => None,
        });
        let removed = mutations.iter().any(|m| matches!(m, Mutation::Remove));
        (record.is_some() || removed).then(|| record.map(snaps_of).unwrap_or_default())
    };
    let Some(new) = served(mutations) else { return };
    let before = ops.iter().rev().find_map(|op| match op {
        StoreOp::Object(c, o, m) if *c == coll && o == oid => served(m),
        _ => None,
    });
    let old = before.unwrap_or_else(|| match store.attr(coll, oid, INFO_ATTR) {
        Ok(raw) => raw.as_ref().map(snaps_of).unwrap_or_default(),
        Err(e) => {
            tracing::error!(%oid, "{e}");
            Vec::new() // what is left over is told by the head
        }
    });
    for snap in old.iter().filter(|s| !new.contains(s)) {
        ops.push(StoreOp::Rm(coll, index_key(*snap, oid)));
    }
    for snap in new.iter().filter(|s| !old.contains(s)) {
        ops.push(StoreOp::Put(coll, index_key(*snap, oid), Bytes::new()));
    }
}

/// What snapshots add to a write.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// The clone that is made before the head changes.
    pub clone: Option<ObjectChange>,
    /// Bytes that only a clone has from here on.
    pub bytes: i64,
    /// Objects with omap that came to be.
    pub omap_objects: i64,
}

impl Kept {
    /// For the log: the clone, which did not exist.
    pub(crate) fn touched(&self) -> Vec<Touched> {
        let touched = |c: &ObjectChange| Touched {
            oid: c.oid.clone(),
            kind: LogKind::Modify,
            prior: EVersion::ZERO,
        };
        self.clone.iter().map(touched).collect()
    }
}

impl Pg {
    /// Whether the snapshot is on its way out: no clone is made for it any more.
    pub(crate) fn is_removed(&self, snap: SnapId, cx: &Cx<'_>) -> bool {
        cx.map.removed_snaps_queue.get(&self.id.pg.pool).is_some_and(|q| q.contains(snap.0))
    }

    /// The newest snapshot a write knows of: its client's, or the pool's in a pool with
    /// snapshots of its own.
    pub(crate) fn write_seq(&self, op: &ClientOp) -> SnapId {
        match &self.pool.snapc {
            Some(pool) if op.msg.flags & req_flag::ENFORCE_SNAPC == 0 => pool.seq,
            _ => op.msg.snap_seq,
        }
    }

    /// The snapshots that a write has to keep and that are newer than `seen`, newest first.
    fn snaps_since(&self, op: &ClientOp, seen: SnapId, cx: &Cx<'_>) -> Vec<SnapId> {
        let all = match &self.pool.snapc {
            Some(pool) if op.msg.flags & req_flag::ENFORCE_SNAPC == 0 => &pool.snaps,
            _ => &op.msg.snaps,
        };
        let newer = all.iter().copied().take_while(|s| *s > seen);
        newer.filter(|s| !self.is_removed(*s, cx)).collect()
    }

    /// Whether a change of the object leaves a clone of what it was.
    pub(crate) fn leaves_clone(&self, op: &ClientOp, before: &ObjectState, cx: &Cx<'_>) -> bool {
        let seq = before.info.snaps.as_deref().map_or(SnapId(0), |s| s.seq);
        before.exists && self.write_seq(op).0 > 0 && !self.snaps_since(op, seq, cx).is_empty()
    }

    /// Keeps the object as it was `before` a write for the snapshots taken since, and notes
    /// in `after` what the write left in common with it.
    ///
    /// After: `after.info.snaps` is the head's, also when there is no head any more but
    /// clones; `after.info.whiteout` says so.
    pub(crate) fn make_writeable(
        &self,
        op: &ClientOp,
        before: &ObjectState,
        after: &mut ObjectState,
        mutations: &mut Vec<Mutation>,
        version: EVersion,
        cx: &Cx<'_>,
    ) -> Kept {
        let mut kept = Kept::default();
        let seq = self.write_seq(op);
        if seq.0 == 0 && before.info.snaps.is_none() {
            return kept; // no snapshot was ever heard of
        }
        let mut set: SnapSet = before.info.snaps.as_deref().cloned().unwrap_or_default();
        let modified = if set.clones.is_empty() && !before.exists {
            stdx::IntervalSet::new()
        } else {
            snapset::modified(mutations, before.info.size, &set)
        };
        let snaps = self.snaps_since(op, set.seq, cx);
        if before.exists && !snaps.is_empty() {
            let oid = op.oid.detached();
            let info = ObjectInfo {
                version,
                watchers: Default::default(),
                snaps: None,
                clone_snaps: snaps.clone(),
                ..before.info.clone()
            };
            kept.omap_objects += i64::from(info.omap);
            kept.clone = Some(ObjectChange {
                oid: oid.with_snap(seq),
                mutations: vec![
                    Mutation::CloneFrom(oid),
                    Mutation::SetAttr(Bytes::from_static(INFO_ATTR), info.to_bytes()),
                ],
            });
            snapset::push_clone(&mut set, seq, before.info.size, snaps);
        }
        if let Some(mut last) = set.clone_overlap.last_entry() {
            let lost = modified.intersection(&last.get().0);
            let clone = op.oid.with_snap(*last.key());
            // A cache need not have it.
            let is_here = self.pool.cache.is_none()
                || kept.clone.is_some()
                || cx.store.attr(self.coll, &clone, INFO_ATTR).is_ok_and(|raw| raw.is_some());
            kept.bytes += if is_here { lost.size() as i64 } else { 0 };
            last.get_mut().0.subtract(&lost);
        }
        set.seq = set.seq.max(seq);
        after.info.whiteout = false;
        if !after.exists {
            if set.clones.is_empty() {
                after.info.snaps = None;
                return kept;
            }
            // The clones' record stays.
            after.info.whiteout = true;
            if before.is_stored() && !mutations.iter().any(|m| matches!(m, Mutation::Remove)) {
                mutations.push(Mutation::Remove);
            }
            mutations.push(Mutation::Touch);
        }
        after.info.snaps = Some(set.into());
        kept
    }

    /// The clone that a read of this object at a snapshot means, if it is not the head.
    ///
    /// # Errors
    /// Nothing was there at that snapshot.
    pub(crate) fn aim(&self, op: &ClientOp) -> Result<Option<SnapId>, ()> {
        let snap = op.msg.snapid;
        if snap == SnapId::HEAD || snap == SnapId::DIR {
            return Ok(None);
        }
        match snapset::find(&self.obcs[&op.oid].state, snap) {
            Found::Head => Ok(None),
            Found::Clone(clone) => Ok(Some(clone)),
            Found::Nowhere => Err(()),
        }
    }

    /// A recovered object came with data of its own. Once head and clones are all here, each
    /// gets what it has in common with the next newer one from that, beginning at the head:
    /// so what many have in common ends as one.
    pub(crate) fn share_again(&self, oid: &HObject, cx: &mut Cx<'_>) {
        if self.is_coded() || oid.is_head() && !self.pool.had_snaps {
            return; // what clones have in common is said in bytes of objects, not of shards
        }
        if self.mending.knows(oid) {
            return; // what it had in common may be what is damaged
        }
        let mut newer = oid.with_snap(SnapId::HEAD);
        let is_here = |o: &HObject| !self.missing.contains_key(o);
        if !is_here(&newer) {
            return; // it comes, and says what was in common
        }
        let Ok(state) = Self::read_state(cx.store, self.coll, &newer) else { return };
        let Some(set) = state.info.snaps else { return };
        if !set.clones.iter().all(|c| is_here(&oid.with_snap(*c))) {
            return; // the last to come does it
        }
        let flags = maps::PoolFlags(self.pool.flags);
        if self.pool.cache.is_some() || flags.has(maps::PoolFlags::INCOMPLETE_CLONES) {
            return; // some may be in the base alone, and must not come to be by this
        }
        let mut ops = Vec::with_capacity(set.clones.len());
        for clone in set.clones.iter().rev() {
            let older = oid.with_snap(*clone);
            let overlap = set.clone_overlap.get(clone);
            let share = |(off, len)| Mutation::CloneRange { from: newer.clone(), off, len };
            let mutations: Vec<_> = overlap.iter().flat_map(|o| o.iter()).map(share).collect();
            if !mutations.is_empty() {
                ops.push(StoreOp::Object(self.coll, older.clone(), mutations));
            }
            newer = older;
        }
        if !ops.is_empty() {
            cx.submit(ops, Ticket::None);
        }
    }

    /// A clone that a rollback needs and that is not on all copies.
    pub(crate) fn lacks_for_rollback(&self, op: &ClientOp) -> Option<HObject> {
        let state = &self.obcs[&op.oid].state;
        let rollbacks = op.msg.ops.iter().filter(|o| o.code == messages::op::ROLLBACK);
        rollbacks
            .filter_map(|o| match snapset::find(state, SnapId(o.u64(0))) {
                Found::Clone(clone) => Some(op.oid.with_snap(clone)),
                _ => None,
            })
            .find(|clone| self.is_degraded(clone))
            .map(|clone| clone.detached())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemStore;
    use types::{PgId, ShardId, SpgId};

    /// As when two writes are taken back at once, the second of which removed the clone that
    /// the first had made.
    #[test]
    fn the_index_follows_what_the_store_has_not_seen() {
        let mut store = MemStore::default();
        let coll = Coll::Pg(SpgId { pg: PgId::new(1, 0), shard: ShardId::NONE });
        let clone = HObject { snap: SnapId(3), ..HObject::min() };
        let info = ObjectInfo { clone_snaps: vec![SnapId(3)], ..ObjectInfo::default() };
        let record = Mutation::SetAttr(Bytes::from_static(INFO_ATTR), info.to_bytes());
        let mut ops = vec![StoreOp::Create(coll)];
        for (change, keys) in [(record, 1), (Mutation::Remove, 0)] {
            index_change(&store, coll, &clone, std::slice::from_ref(&change), &mut ops);
            ops.push(StoreOp::Object(coll, clone.clone(), vec![change]));
            store.submit(ops.clone(), 1);
            assert_eq!(store.lock().now[&coll].keys.len(), keys);
            store = MemStore::default();
        }
    }
}
