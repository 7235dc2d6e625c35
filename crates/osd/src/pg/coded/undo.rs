//! How a shard takes back a write that too few others have.
//!
//! Before a write is applied, what it overwrites is kept. A few bytes that are in memory
//! anyway go into a key of the collection, with sizes and attributes; others are cloned, which
//! shares their space, into an object beside the pool's own. Both go when the write is known
//! to be everywhere.

use bytes::Bytes;
use denc::{DecodeError, Denc, Reader, Writer};
use messages::{Mutation, ObjectChange, PgLogEntry};
use types::{EVersion, HObject, PoolId};

use crate::backing::{ObjectStore, StoreOp};
use crate::coding::INLINE_MAX;
use crate::pg::Pg;
use crate::pg::snaps::index_change;

/// Prefix of the keys.
const UNDO: u8 = b'u';

/// The keys of all records.
pub(crate) fn undo_range() -> (Bytes, Bytes) {
    (Bytes::from_static(&[UNDO]), Bytes::from_static(&[UNDO + 1]))
}

/// The key of a write's record.
pub(crate) fn undo_key(v: EVersion) -> Bytes {
    let mut key = [UNDO; 13];
    key[1..5].copy_from_slice(&v.epoch.0.to_be_bytes());
    key[5..].copy_from_slice(&v.version.to_be_bytes());
    Bytes::copy_from_slice(&key)
}

/// Attributes as they were.
type Attrs = Vec<(Bytes, Option<Bytes>)>;

/// What an object was before a write.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Was {
    /// It did not exist.
    Absent,
    /// All of it is kept.
    Whole,
    /// It had this size, these ranges are kept, and attributes were so.
    Parts { size: u64, ranges: Vec<(u64, u64)>, attrs: Attrs },
    /// As `Parts`, with the bytes that were in the ranges.
    Bytes { size: u64, ranges: Vec<(u64, Bytes)>, attrs: Attrs },
}

/// One object that a write changed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Step {
    oid: HObject,
    /// Where bytes are kept.
    kept: Option<HObject>,
    was: Was,
}

/// How to take back one write: its objects, in the order in which it changed them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Undo {
    steps: Vec<Step>,
}

impl Undo {
    /// One of its objects; all have the same hash.
    pub fn oid(&self) -> Option<&HObject> {
        self.steps.first().map(|s| &s.oid)
    }
}

fn encode_attrs(attrs: &Attrs, w: &mut Writer) {
    w.seq(attrs, |w, (name, value)| {
        w.blob(name);
        w.bool(value.is_some());
        w.blob(value.as_deref().unwrap_or_default());
    });
}

fn decode_attrs(r: &mut Reader<'_>) -> Result<Attrs, DecodeError> {
    r.seq(|r| {
        let (name, there) = (r.blob()?, r.bool()?);
        let value = r.blob()?;
        Ok((name, there.then_some(value)))
    })
}

impl Denc for Undo {
    fn encode(&self, w: &mut Writer) {
        // Version 2 may hold bytes; releases before know nothing of them.
        let inline = self.steps.iter().any(|s| matches!(s.was, Was::Bytes { .. }));
        let version = if inline { 2 } else { 1 };
        w.framed(version, version, |w| {
            w.seq(&self.steps, |w, s| {
                s.oid.encode(w);
                w.bool(s.kept.is_some());
                if let Some(kept) = &s.kept {
                    kept.encode(w);
                }
                match &s.was {
                    Was::Absent => w.u8(0),
                    Was::Whole => w.u8(1),
                    Was::Parts { size, ranges, attrs } => {
                        w.u8(2);
                        w.u64(*size);
                        ranges.encode(w);
                        encode_attrs(attrs, w);
                    }
                    Was::Bytes { size, ranges, attrs } => {
                        w.u8(3);
                        w.u64(*size);
                        w.seq(ranges, |w, (off, data)| {
                            w.u64(*off);
                            w.blob(data);
                        });
                        encode_attrs(attrs, w);
                    }
                }
            });
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("Undo", 2, |r, _| {
            let steps = r.seq(|r| {
                let oid = Denc::decode(r)?;
                let kept = if r.bool()? { Some(Denc::decode(r)?) } else { None };
                let was = match r.u8()? {
                    0 => Was::Absent,
                    1 => Was::Whole,
                    2 => Was::Parts {
                        size: r.u64()?,
                        ranges: Denc::decode(r)?,
                        attrs: decode_attrs(r)?,
                    },
                    3 => Was::Bytes {
                        size: r.u64()?,
                        ranges: r.seq(|r| Ok((r.u64()?, r.blob()?)))?,
                        attrs: decode_attrs(r)?,
                    },
                    _ => return Err(DecodeError::Invalid { what: "Undo", rule: "a known kind" }),
                };
                Ok(Step { oid, kept, was })
            })?;
            Ok(Self { steps })
        })
    }
}

/// Ranges of a shard of `size` bytes that mutations overwrite, in order and apart; `None` when
/// more than bytes is lost.
fn overwritten(mutations: &[Mutation], size: u64) -> Option<Vec<(u64, u64)>> {
    let mut lost = stdx::IntervalSet::new();
    let mut add = |from: u64, to: u64| {
        let to = to.min(size);
        if from < to {
            lost.insert(from, to - from);
        }
    };
    for m in mutations {
        match m {
            Mutation::Write { off, data } => add(*off, off + data.len() as u64),
            Mutation::Zero { off, len } => add(*off, off + len),
            Mutation::Truncate(to) => add(*to, size),
            Mutation::Touch
            | Mutation::SetAttr(..)
            | Mutation::RmAttr(_)
            | Mutation::Was { .. } => {}
            _ => return None,
        }
    }
    Some(lost.iter().collect())
}

fn attr_back((name, old): &(Bytes, Option<Bytes>)) -> Mutation {
    match old {
        Some(old) => Mutation::SetAttr(name.clone(), old.clone()),
        None => Mutation::RmAttr(name.clone()),
    }
}

impl Pg {
    /// Where bytes are kept for a write: an object of a pool of that number there is none.
    fn kept_name(&self, oid: &HObject, version: EVersion, at: usize) -> HObject {
        let name = format!("{}.{}.{at}", version.epoch, version.version);
        HObject {
            pool: PoolId(-2 - oid.pool.0),
            hash: oid.hash,
            name: name.into(),
            snap: types::SnapId::HEAD,
            ..HObject::min()
        }
    }

    pub(super) fn keep_undo(
        &mut self,
        version: EVersion,
        changes: &[ObjectChange],
        ops: &mut Vec<StoreOp>,
        store: &dyn ObjectStore,
    ) {
        let mut undo = Undo::default();
        for (at, change) in changes.iter().enumerate() {
            let oid = change.oid.detached();
            let size = match store.size(self.coll, &oid) {
                Ok(size) => size,
                Err(e) => {
                    // Then it can be had from others only.
                    tracing::error!(pg = %self.id, %oid, "{e}");
                    return;
                }
            };
            let Some(size) = size else {
                undo.steps.push(Step { oid, kept: None, was: Was::Absent });
                continue;
            };
            let kept = self.kept_name(&oid, version, at);
            let Some(ranges) = overwritten(&change.mutations, size) else {
                let copy = vec![Mutation::CloneFrom(oid.clone())];
                ops.push(StoreOp::Object(self.coll, kept.clone(), copy));
                undo.steps.push(Step { oid, kept: Some(kept), was: Was::Whole });
                continue;
            };
            let mut attrs = Attrs::new();
            for m in &change.mutations {
                let (Mutation::SetAttr(name, _) | Mutation::RmAttr(name)) = m else { continue };
                if !attrs.iter().any(|(n, _)| n == name) {
                    let Ok(old) = store.attr(self.coll, &oid, name) else { return };
                    attrs.push((Bytes::copy_from_slice(name), old));
                }
            }
            if let Some(ranges) = self.at_hand(&oid, &ranges, &change.mutations, store) {
                let was = Was::Bytes { size, ranges, attrs };
                undo.steps.push(Step { oid, kept: None, was });
                continue;
            }
            let mut copy = vec![Mutation::Touch];
            let range = |&(off, len)| Mutation::CloneRange { from: oid.clone(), off, len };
            copy.extend(ranges.iter().map(range));
            let kept = (!ranges.is_empty()).then_some(kept);
            if let Some(kept) = &kept {
                ops.push(StoreOp::Object(self.coll, kept.clone(), copy));
            }
            undo.steps.push(Step { oid, kept, was: Was::Parts { size, ranges, attrs } });
        }
        ops.push(StoreOp::Put(self.coll, undo_key(version), undo.to_bytes()));
        self.coded.undo.insert(version, undo);
    }

    /// The bytes of a few ranges, when they came with the changes or are in memory.
    fn at_hand(
        &self,
        oid: &HObject,
        ranges: &[(u64, u64)],
        mutations: &[Mutation],
        store: &dyn ObjectStore,
    ) -> Option<Vec<(u64, Bytes)>> {
        let few = ranges.iter().map(|(_, len)| len).sum::<u64>() <= INLINE_MAX;
        let came = |off: u64, len: u64| {
            mutations.iter().find_map(|m| match m {
                Mutation::Was { off: at, data }
                    if *at <= off && off + len <= at + data.len() as u64 =>
                {
                    let from = (off - at) as usize;
                    Some(data.slice(from..from + len as usize))
                }
                _ => None,
            })
        };
        let read = |&(off, len)| {
            let data = came(off, len).or_else(|| store.at_hand(self.coll, oid, off, len));
            Some((off, data?))
        };
        if few { ranges.iter().map(read).collect() } else { None }
    }

    /// Writes up to here need not be taken back any more.
    pub(crate) fn drop_undo(&mut self, upto: EVersion, ops: &mut Vec<StoreOp>) {
        while let Some(first) = self.coded.undo.first_entry()
            && *first.key() <= upto
        {
            let (version, undo) = first.remove_entry();
            self.forget_undo(version, &undo, ops);
        }
    }

    /// None of them.
    pub(crate) fn drop_all_undo(&mut self, ops: &mut Vec<StoreOp>) {
        for (version, undo) in std::mem::take(&mut self.coded.undo) {
            self.forget_undo(version, &undo, ops);
        }
    }

    fn forget_undo(&self, version: EVersion, undo: &Undo, ops: &mut Vec<StoreOp>) {
        ops.push(StoreOp::Rm(self.coll, undo_key(version)));
        for kept in undo.steps.iter().filter_map(|s| s.kept.clone()) {
            ops.push(StoreOp::Object(self.coll, kept, vec![Mutation::Remove]));
        }
    }

    /// Takes back the newest write, which nobody counts. `false` when that is not known how:
    /// its objects must come from others.
    pub(crate) fn take_back(
        &mut self,
        e: &PgLogEntry,
        ops: &mut Vec<StoreOp>,
        store: &dyn ObjectStore,
    ) -> bool {
        if e.kind == messages::LogKind::Error {
            return true;
        }
        if e.touched().any(|(oid, ..)| self.missing.contains_key(oid)) {
            return false;
        }
        let Some(undo) = self.coded.undo.remove(&e.version) else { return false };
        for s in undo.steps.iter().rev() {
            let mut m = Vec::new();
            match (&s.was, &s.kept) {
                (Was::Whole, Some(kept)) => {
                    m.push(Mutation::CloneFrom(kept.clone()));
                    // The index of snapshots looks at the record.
                    let name = Bytes::from_static(crate::object::INFO_ATTR);
                    if let Ok(Some(record)) = store.attr(self.coll, kept, &name) {
                        m.push(Mutation::SetAttr(name, record));
                    }
                }
                (Was::Absent | Was::Whole, _) => m.push(Mutation::Remove),
                (Was::Parts { size, ranges, attrs }, kept) => {
                    m.push(Mutation::Truncate(*size));
                    if let Some(kept) = kept {
                        let back =
                            |&(off, len)| Mutation::CloneRange { from: kept.clone(), off, len };
                        m.extend(ranges.iter().map(back));
                    }
                    m.extend(attrs.iter().map(attr_back));
                }
                (Was::Bytes { size, ranges, attrs }, _) => {
                    m.push(Mutation::Truncate(*size));
                    m.extend(
                        ranges
                            .iter()
                            .map(|(off, data)| Mutation::Write { off: *off, data: data.clone() }),
                    );
                    m.extend(attrs.iter().map(attr_back));
                }
            }
            if !s.oid.is_head() {
                index_change(store, self.coll, &s.oid, &m, ops);
            }
            ops.push(StoreOp::Object(self.coll, s.oid.clone(), m));
        }
        self.forget_undo(e.version, &undo, ops);
        // The void write may have taken the last space there was.
        ops.push(StoreOp::TakesBack);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bulk::Marked;
    use crate::memory::MemStore;
    use crate::pg::PoolView;
    use messages::PgInfo;
    use types::{PgId, ShardId, SpgId};

    /// The log of a PG that was divided may begin behind all that another shard's tells of: with
    /// no version in common, what only this shard wrote is still taken back, before copies are
    /// compared, and in a store that it filled.
    #[test]
    fn what_is_void_is_taken_back_without_a_common_version() {
        let v = EVersion::new;
        let id = SpgId { shard: ShardId(1), ..PgId::new(1, 0).into() };
        let mut pg = Pg::new(id, PgInfo::default(), PoolView::default());
        let coll = pg.coll;
        pg.log.tail = v(1, 3);
        let oid = HObject { name: Bytes::from_static(b"a"), ..HObject::min() };
        let write = |data| Mutation::Write { off: 0, data: Bytes::from_static(data) };
        let object = |m| StoreOp::Object(coll, oid.clone(), m);
        let mut store = MemStore::default();
        store.submit(vec![StoreOp::Create(coll), object(vec![write(b"before")])], 1);

        let changes = [ObjectChange { oid: oid.clone(), mutations: vec![write(b"behind it")] }];
        let mut ops = Vec::new();
        pg.keep_undo(v(2, 4), &changes, &mut ops, &store);
        ops.push(object(changes[0].mutations.clone()));
        store.submit(ops, 2);
        let taken = store.lock().taken();
        store.lock().capacity = Some(taken);
        pg.log.push(PgLogEntry {
            version: v(2, 4),
            prior: v(1, 1),
            oid: oid.clone(),
            ..PgLogEntry::default()
        });

        let mut steps = Marked::default();
        assert!(pg.merge_log(v(1, 1), Vec::new(), &mut steps, &store).is_err());
        store.submit(steps.ops, 3);
        let there = store.read(coll, &oid, 0, 100).unwrap();
        assert_eq!(there.as_deref(), Some(&b"before"[..]));
        assert!(pg.missing.is_empty() && pg.coded.undo.is_empty());
        assert_eq!(pg.log.head(), v(1, 3));
    }

    /// Void writes are taken back in as many transactions as the log wants, each of which leaves a
    /// good copy with less of the log: a client decides how much each of them brings.
    #[test]
    fn what_is_void_is_taken_back_in_parts() {
        let v = EVersion::new;
        let id = SpgId { shard: ShardId(1), ..PgId::new(1, 0).into() };
        let mut pg = Pg::new(id, PgInfo::default(), PoolView::default());
        let coll = pg.coll;
        let oid = |n: u64| HObject { name: Bytes::from(format!("{n}")), ..HObject::min() };
        let attr = |byte| Mutation::SetAttr(Bytes::from_static(b"_a"), vec![byte; 40_000].into());
        let mut store = MemStore::default();
        store.submit(vec![StoreOp::Create(coll)], 1);
        for n in 1..=20 {
            store.submit(vec![StoreOp::Object(coll, oid(n), vec![attr(1)])], 1);
            let changes = [ObjectChange { oid: oid(n), mutations: vec![attr(2)] }];
            let mut ops = Vec::new();
            pg.keep_undo(v(2, n), &changes, &mut ops, &store);
            ops.push(StoreOp::Object(coll, oid(n), vec![attr(2)]));
            let entry = PgLogEntry {
                version: v(2, n),
                prior: v(1, n),
                oid: oid(n),
                ..PgLogEntry::default()
            };
            ops.push(StoreOp::Put(coll, crate::pg::log_key(v(2, n)), entry.to_bytes()));
            pg.log.push(entry);
            pg.save_info(&mut ops);
            store.submit(ops, 1);
        }
        let mut steps = Marked::default();
        pg.merge_log(EVersion::ZERO, Vec::new(), &mut steps, &store).unwrap();
        let all = steps.into_transactions(100_000);
        assert!(all.len() >= 10, "{}", all.len());
        for ops in all {
            assert!(crate::bulk::record_of_ops(&ops) < 150_000);
            store.submit(ops, 1);
            // What would be found after a power cut here.
            let pg = Pg::load(id, &store).unwrap().expect("it is there");
            let head = pg.log.head().version;
            for n in 1..=20 {
                let is_new = n <= head;
                let value = store.attr(coll, &oid(n), b"_a").unwrap().expect("it is there");
                assert_eq!(value[0], if is_new { 2 } else { 1 }, "{n} with a log to {head}");
                assert_eq!(pg.coded.undo.contains_key(&v(2, n)), is_new);
            }
            assert!(pg.missing.is_empty());
        }
        assert_eq!(Pg::load(id, &store).unwrap().unwrap().log.head(), EVersion::ZERO);
    }
}
