//! More PGs in a pool: each copy of a PG here is divided, by the hashes of its objects.
//!
//! A child gets its objects, their log entries and missing objects, and the parent's whole
//! history: what was acknowledged in the parent's intervals is what the child must find.
//! Each copy divides itself when it takes the step to the map with the new number, the
//! ones that were down then when they come back; so logs agree after as they did before.

use bytes::Bytes;
use denc::{DecodeError, Denc};
use messages::PgLogEntry;
use types::{EVersion, Epoch, HObject, PgId, PoolId, SpgId};

use crate::backing::{Coll, ObjectStore, StoreError, StoreOp};
use crate::core::Osd;
use crate::pg::own_from;
use crate::pg::{
    Pg, Ticket, Undo, clone_of_key, index_all, log_key, log_range, missing_key, undo_range,
};
use crate::snapset;

/// The PG that had `ps`'s objects before `ps` came to be.
pub(crate) fn parent_of(ps: u32) -> u32 {
    ps & !(1 << ps.ilog2())
}

impl Osd {
    /// Divides the copies here of a pool's PGs, for a pool of `pg_num` PGs from the map `at` on.
    /// Returns the children.
    pub(crate) fn split_pgs(&mut self, pool: PoolId, pg_num: u32, at: Epoch) -> Vec<SpgId> {
        // One that has seen that map may have been merged again since.
        let early = |id: &SpgId, pg: &Pg| id.pg.pool == pool && pg.info.epoch < at;
        let copies = self.pgs.iter().filter(|(id, pg)| early(id, pg));
        let Some(first) = copies.map(|(_, pg)| pg.info.pg_num).min().filter(|n| *n < pg_num) else {
            return Vec::new();
        };
        let mut children = Vec::new();
        for ps in first.max(1)..pg_num {
            let parent = PgId { pool, ps: parent_of(ps) };
            let due = |(id, pg): &(&SpgId, &Pg)| {
                id.pg == parent && pg.info.pg_num <= ps && pg.info.epoch < at
            };
            let due: Vec<SpgId> = self.pgs.iter().filter(due).map(|(id, _)| *id).collect();
            for parent in due {
                let child = SpgId { pg: PgId { pool, ps }, ..parent };
                if self.pgs.contains_key(&child) {
                    continue;
                }
                match self.split_one(parent, child, at) {
                    Ok(()) => children.push(child),
                    // What it would be made of was not taken; the OSD is about to end.
                    Err(_) if self.c.store.is_stopped() => return children,
                    Err(e) => panic!("pg {parent} cannot be divided: {e}"),
                }
            }
        }
        let mut ops = Vec::new();
        for (_, pg) in self.pgs.iter_mut().filter(|(id, pg)| early(id, pg)) {
            pg.info.pg_num = pg_num;
            pg.save_info(&mut ops);
        }
        self.c.submit(ops);
        // PGs that wait for their first OSD have children that do.
        for ps in first.max(1)..pg_num {
            if self.c.unborn.contains(&PgId { pool, ps: parent_of(ps) }) {
                self.c.unborn.insert(PgId { pool, ps });
            }
        }
        self.c.pg_count = self.pgs.len();
        children
    }

    fn split_one(&mut self, parent: SpgId, child: SpgId, at: Epoch) -> Result<(), String> {
        let bits = child.pg.ps.ilog2() + 1;
        let mask = if bits == 32 { u32::MAX } else { (1 << bits) - 1 };
        let moves = |oid: &HObject| oid.hash & mask == child.pg.ps;
        let (from, to) = (Coll::Pg(parent), Coll::Pg(child));
        let mut ops = vec![StoreOp::Create(to), StoreOp::Split(from, child, bits)];
        let mut range = Dividing { store: &*self.c.store, from, to, ops: &mut ops };
        let side = |oid: &HObject| if moves(oid) { Side::Child } else { Side::Parent };
        let entry = |_: &[u8], raw: &Bytes| {
            let e = PgLogEntry::from_shared(raw)?;
            Ok(if e.is_of_requests() { Side::Both } else { side(&e.oid) })
        };
        range.divide(log_range(), entry)?;
        range.divide(index_all(), |key, _| Ok(side(&clone_of_key(key)?)))?;
        let undo =
            |_: &[u8], raw: &Bytes| Ok(Undo::from_bytes(raw)?.oid().map_or(Side::Parent, side));
        range.divide(undo_range(), undo)?;
        let pg = self.pgs.get_mut(&parent).expect("the caller has seen it");
        for (oid, v) in pg.missing.iter().filter(|(oid, _)| moves(oid)) {
            ops.push(StoreOp::Rm(from, missing_key(oid)));
            ops.push(StoreOp::Put(to, missing_key(oid), v.to_bytes()));
        }
        pg.refresh_info();
        pg.info.recount = true;
        pg.split_at = at;
        let mut young = Pg::new(child, pg.info.clone(), pg.pool.clone());
        (young.up_primary, young.split_at) = (pg.up_primary, at);
        young.log.tail = pg.log.tail;
        young.save_info(&mut ops);
        pg.save_info(&mut ops);
        self.c.tickets.submit(&mut *self.c.store, ops, Ticket::None);
        // Both as they are in the store now.
        for (id, writes) in [(parent, true), (child, false)] {
            let loaded = Pg::load(id, &*self.c.store)?.ok_or("its record is gone")?;
            let pg = if id == child { &mut young } else { self.pgs.get_mut(&id).expect("held") };
            pg.log = loaded.log;
            pg.missing = loaded.missing;
            // Requests that gather bytes stay: the interval ends for them, too.
            pg.coded.undo = loaded.coded.undo;
            let mut counts = count(&*self.c.store, Coll::Pg(id)).map_err(|e| e.to_string())?;
            if writes {
                (counts.writes, counts.write_bytes) =
                    (pg.info.counts.writes, pg.info.counts.write_bytes);
            }
            let mut ops = Vec::new();
            if let Some(last) = pg.log.entries.back_mut() {
                last.counts = counts;
                ops.push(StoreOp::Put(Coll::Pg(id), log_key(last.version), last.to_bytes()));
            }
            pg.info.counts = counts;
            pg.committed = EVersion::ZERO;
            pg.save_info(&mut ops);
            self.c.tickets.submit(&mut *self.c.store, ops, Ticket::None);
        }
        tracing::info!(%parent, %child, entries = young.log.entries.len(), "divided");
        self.pgs.insert(child, young);
        Ok(())
    }
}

/// Whose a key is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Parent,
    Child,
    Both,
}

/// Keys of a collection that is divided.
struct Dividing<'a> {
    store: &'a dyn ObjectStore,
    from: Coll,
    to: Coll,
    ops: &'a mut Vec<StoreOp>,
}

impl Dividing<'_> {
    /// Moves or copies those keys of a range of which key and value say so.
    ///
    /// # Errors
    /// When the store or one of them cannot be read.
    fn divide(
        &mut self,
        (first, end): (Bytes, Bytes),
        side: impl Fn(&[u8], &Bytes) -> Result<Side, DecodeError>,
    ) -> Result<(), String> {
        let mut bad = None;
        let walked = self.store.walk(self.from, &first, &end, &mut |key, raw| {
            match side(key, raw) {
                Ok(Side::Parent) => {}
                Ok(side) => {
                    let key = Bytes::copy_from_slice(key);
                    if side == Side::Child {
                        self.ops.push(StoreOp::Rm(self.from, key.clone()));
                    }
                    self.ops.push(StoreOp::Put(self.to, key, raw.clone()));
                }
                Err(e) => bad = Some(e),
            }
            bad.is_none()
        });
        walked.map_err(|e| e.to_string())?;
        bad.map_or(Ok(()), |e| Err(e.to_string()))
    }
}

/// What the objects of a collection add up to.
pub(crate) fn count(store: &dyn ObjectStore, coll: Coll) -> Result<messages::PgCounts, StoreError> {
    let mut c = messages::PgCounts::default();
    let mut from = HObject::min();
    loop {
        let mut page = store.list(coll, &own_from(coll, &from), 513)?;
        let next = if page.len() > 512 { page.pop() } else { None };
        for oid in page {
            let state = Pg::read_state(store, coll, &oid)?;
            if !state.is_stored() {
                continue;
            }
            c.objects += 1;
            c.omap_objects += i64::from(state.info.omap);
            // What clones have in common with others is counted once, with the head.
            c.clones += i64::from(!oid.is_head());
            c.clean += i64::from(state.info.clean);
            if oid.is_head() {
                c.bytes += state.info.size as i64;
                if let Some(set) = &state.info.snaps {
                    c.bytes += snapset::bytes_here(store, coll, &oid, set)?;
                }
            }
        }
        match next {
            Some(next) => from = next,
            None => return Ok(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Taken one by one, children get exactly what folds to them in the end.
    #[test]
    fn children_get_what_folds_to_them() {
        for (old, new) in [(1, 2), (4, 11), (8, 16), (3, 29), (11, 14)] {
            for hash in (0..2_000u32).map(|i| i.wrapping_mul(2_654_435_761)) {
                let mut at = types::stable_mod(hash, old);
                for ps in old.max(1)..new {
                    let mask = (1u32 << (ps.ilog2() + 1)) - 1;
                    if at == parent_of(ps) && hash & mask == ps {
                        at = ps;
                    }
                }
                assert_eq!(at, types::stable_mod(hash, new), "{old} to {new}, {hash:x}");
            }
        }
    }
}
