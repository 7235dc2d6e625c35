//! Making the own log equal to the one that counts, and finding out what that leaves
//! missing.

use std::collections::BTreeSet;

use bytes::Bytes;
use denc::Denc;
use messages::{LogKind, Mutation, PgLogEntry};
use types::{EVersion, HObject};

use super::log::encode_all;
use super::snaps::index_change;
use super::{Cx, MISSING, Pg, log_key, log_range, missing_key};
use crate::backing::{ObjectStore, StoreOp};
use crate::bulk::Marked;

/// The logs have no version in common: copies must be compared.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoCommonPoint;

/// Decodes entries, whose names then share no memory with the message.
pub(crate) fn decode_entries(raw: &[Bytes]) -> Result<Vec<PgLogEntry>, denc::DecodeError> {
    raw.iter().map(|b| Ok(PgLogEntry::from_bytes(b)?.detached())).collect()
}

impl Pg {
    /// Takes over `entries`, the whole of the log that counts above `since`. Own entries
    /// that are not among them are void: their objects go back to what the log says. Shards do
    /// that even where the logs have nothing in common: who compares copies forgets how. `steps` has a
    /// mark wherever a copy that stopped there would be a good one, with less of the log.
    pub(crate) fn merge_log(
        &mut self,
        since: EVersion,
        entries: Vec<PgLogEntry>,
        steps: &mut Marked,
        store: &dyn ObjectStore,
    ) -> Result<(), NoCommonPoint> {
        // What the sender remembers of requests below is known here: the log meets theirs.
        let mut entries = &entries[entries.partition_point(|e| e.version <= since)..];
        let mut since = since;
        if !self.log.contains(since) {
            // The own log may have been trimmed further than theirs. Its tail may be an entry of
            // another PG that this one was divided from: then the next one says that they meet.
            let tail = self.log.tail;
            let upto = entries.partition_point(|e| e.version <= tail);
            let is_entry = upto.checked_sub(1).is_some_and(|at| entries[at].version == tail);
            let next = self.log.entries.front().map(|e| e.version);
            if !is_entry && (next.is_none() || next != entries.get(upto).map(|e| e.version)) {
                if self.is_coded() {
                    let theirs = |v| entries.binary_search_by_key(&v, |e| e.version).is_ok();
                    let mut kept = self.log.entries.iter().rev().map(|e| e.version);
                    let kept = kept.find(|v| *v <= since || theirs(*v));
                    let kept = kept.unwrap_or(tail);
                    self.rewind(kept, steps, store);
                }
                return Err(NoCommonPoint);
            }
            let below;
            (below, entries) = entries.split_at(upto);
            let put = |e: &PgLogEntry| StoreOp::Put(self.coll, log_key(e.version), e.to_bytes());
            steps.ops.extend(below.iter().map(put));
            self.log.reach_back(since, below);
            since = tail;
        }
        // How far both agree.
        let at = self.log.entries.partition_point(|e| e.version <= since);
        let agreed = self
            .log
            .entries
            .iter()
            .skip(at)
            .zip(entries)
            .take_while(|(a, b)| a.version == b.version)
            .count();
        let common = if agreed == 0 { since } else { entries[agreed - 1].version };
        self.rewind(common, steps, store);
        for e in entries.iter().skip(agreed) {
            steps.mark();
            let ops = &mut steps.ops;
            ops.push(StoreOp::Put(self.coll, log_key(e.version), e.to_bytes()));
            for (oid, kind, _) in e.touched() {
                match kind {
                    LogKind::Error => {}
                    LogKind::Modify => self.set_missing(oid.clone(), e.version, ops),
                    LogKind::Delete => self.remove_here(oid, ops, store),
                }
            }
            self.log.push(e.clone());
        }
        Ok(())
    }

    /// Own entries above `common` are void, newest first: each object is as it was before, or missing
    /// in that version.
    fn rewind(&mut self, common: EVersion, steps: &mut Marked, store: &dyn ObjectStore) {
        let void = self.log.rewind(common);
        if self.log.entries.is_empty() && !void.is_empty() {
            // The counters were those of a void entry.
            self.info.counts = messages::PgCounts::default();
            self.info.recount |= common != EVersion::ZERO;
            self.save_info(&mut steps.ops);
        }
        // Objects with a void entry that could not be taken back.
        let mut behind: BTreeSet<&HObject> = BTreeSet::new();
        for e in &void {
            // Each may bring all that a write of a client brought.
            steps.mark();
            let ops = &mut steps.ops;
            ops.push(StoreOp::Rm(self.coll, log_key(e.version)));
            // A shard takes back what it can, newest first; behind what it cannot, nothing.
            let taken = self.is_coded()
                && e.touched().all(|(oid, ..)| !behind.contains(oid))
                && self.take_back(e, ops, store);
            for (oid, kind, prior) in e.touched() {
                if kind != LogKind::Error && !taken {
                    behind.insert(oid);
                    self.go_back(oid, prior, common, ops, store);
                }
            }
        }
    }

    /// An object is as it was at `prior`, before a void entry, or missing in that version.
    fn go_back(
        &mut self,
        oid: &HObject,
        prior: EVersion,
        common: EVersion,
        ops: &mut Vec<StoreOp>,
        store: &dyn ObjectStore,
    ) {
        // Only the log knew of the void write: the object is as it was before.
        let lacks_void = self.missing.get(oid).is_some_and(|v| *v > common);
        if prior == EVersion::ZERO {
            self.remove_here(oid, ops, store);
        } else if lacks_void && self.has_here(oid, prior, store) {
            self.missing.remove(oid);
            ops.push(StoreOp::Rm(self.coll, missing_key(oid)));
        } else {
            self.set_missing(oid.clone(), prior, ops);
        }
    }

    /// Whether the whole object is here in that version: one that is being brought has no record.
    fn has_here(&self, oid: &HObject, version: EVersion, store: &dyn ObjectStore) -> bool {
        let here = Self::read_state(store, self.coll, oid);
        here.is_ok_and(|o| o.is_stored() && o.info.version == version)
    }

    /// What is remembered of requests below the tail: encoded entries, oldest first. They go with
    /// a log that replaces another, or a write that is sent again would be done again.
    pub(crate) fn requests_below_tail(&self, store: &dyn ObjectStore) -> Vec<Bytes> {
        let Some((first, count)) = self.log.oldest_old() else { return Vec::new() };
        let tail = self.log.tail;
        let end = log_key(EVersion { version: tail.version + 1, ..tail });
        let mut all = Vec::with_capacity(count);
        let walked = store.walk(self.coll, &log_key(first), &end, &mut |_, raw| {
            all.push(raw.clone());
            true
        });
        if let Err(e) = walked {
            tracing::error!(pg = %self.id, "requests answered before: {e}");
        }
        all
    }

    /// The log for a copy that begins anew, which compares objects and needs little of it: where
    /// its tail is to be, and encoded entries, oldest first, those up to the tail for their
    /// requests. As much as the peer keeps at least (`osd_min_pg_log_entries`), for what may have
    /// to be taken back, and as many requests as are remembered (`osd_pg_log_dups_tracked`): of
    /// these only what recognises them, many at a time, for each entry costs the copy a key.
    pub(crate) fn log_for_anew(&self, cx: &Cx<'_>) -> (EVersion, Vec<Bytes>) {
        let (least, dups) = (cx.conf.log_least(), cx.conf.log_bound(cx.pg_count).dups);
        let tail = self.log.shortened(least, self.committed_by_all);
        let mut entries = encode_all(&self.log.requests_upto(tail, dups), 0);
        entries.extend(self.log.after(tail));
        (tail, entries)
    }

    /// Forgets the own log and takes over another, whole; entries, each with how it is encoded, up
    /// to `tail` are what it remembers of requests. `missing` is all that this copy lacks and
    /// `surplus` what it has too much.
    pub(crate) fn replace_log(
        &mut self,
        tail: EVersion,
        entries: impl IntoIterator<Item = (PgLogEntry, Bytes)>,
        missing: Vec<(HObject, EVersion)>,
        surplus: Vec<HObject>,
        ops: &mut Vec<StoreOp>,
        store: &dyn ObjectStore,
    ) {
        let (from, to) = log_range();
        ops.push(StoreOp::RmRange(self.coll, from, to));
        self.drop_all_undo(ops);
        self.log.reset(tail);
        let mut last = EVersion::ZERO;
        for (e, raw) in entries {
            if e.version <= last {
                continue; // a sender's error must not cost the order of the log
            }
            last = e.version;
            ops.push(StoreOp::Put(self.coll, log_key(e.version), raw));
            self.log.load(e);
        }
        let first = Bytes::from_static(&[MISSING]);
        ops.push(StoreOp::RmRange(self.coll, first, Bytes::from_static(&[MISSING + 1])));
        self.missing.clear();
        for oid in surplus {
            self.remove_here(&oid, ops, store);
        }
        for (oid, version) in missing {
            self.set_missing(oid, version, ops);
        }
    }

    pub(crate) fn set_missing(&mut self, oid: HObject, v: EVersion, ops: &mut Vec<StoreOp>) {
        ops.push(StoreOp::Put(self.coll, missing_key(&oid), v.to_bytes()));
        self.missing.insert(oid, v);
    }

    fn remove_here(&mut self, oid: &HObject, ops: &mut Vec<StoreOp>, store: &dyn ObjectStore) {
        if self.missing.remove(oid).is_some() {
            ops.push(StoreOp::Rm(self.coll, missing_key(oid)));
        }
        let mutations = vec![Mutation::Remove];
        if !oid.is_head() {
            index_change(store, self.coll, oid, &mutations, ops);
        }
        ops.push(StoreOp::Object(self.coll, oid.clone(), mutations));
    }
}

#[cfg(test)]
mod tests {
    use super::super::PoolView;
    use super::*;
    use crate::memory::MemStore;
    use messages::PgInfo;
    use types::{PgId, ReqId};

    fn oid(name: &'static str) -> HObject {
        HObject { name: Bytes::from_static(name.as_bytes()), ..HObject::min() }
    }

    fn e(epoch: u32, v: u64, name: &'static str, prior: EVersion) -> PgLogEntry {
        PgLogEntry {
            version: EVersion::new(epoch, v),
            prior,
            oid: oid(name),
            reqid: ReqId { tid: v, ..ReqId::default() },
            ..PgLogEntry::default()
        }
    }

    fn pg(entries: Vec<PgLogEntry>) -> Pg {
        let mut pg = Pg::new(PgId::new(1, 0).into(), PgInfo::default(), PoolView::default());
        entries.into_iter().for_each(|e| pg.log.push(e));
        pg
    }

    /// A copy that wrote on without the others loses just that: created objects go, changed
    /// ones are fetched as they were, and what the others wrote since is fetched too.
    #[test]
    fn void_entries_are_undone() {
        let zero = EVersion::ZERO;
        let old = EVersion::new(1, 1);
        let mut pg = pg(vec![
            e(1, 1, "a", zero),
            e(1, 2, "b", zero),
            e(2, 3, "a", old),
            e(2, 4, "new", zero),
        ]);
        let mut steps = Marked::default();
        let theirs = vec![e(1, 2, "b", zero), e(3, 3, "c", zero)];
        pg.merge_log(old, theirs, &mut steps, &MemStore::default()).unwrap();
        assert_eq!(pg.log.head(), EVersion::new(3, 3));
        assert_eq!(pg.missing.get(&oid("a")), Some(&old));
        assert_eq!(pg.missing.get(&oid("c")), Some(&EVersion::new(3, 3)));
        assert_eq!(pg.missing.len(), 2);
        let removed = steps.ops.iter().any(|op| {
            matches!(op, StoreOp::Object(_, o, m) if *o == oid("new") && m == &[Mutation::Remove])
        });
        assert!(removed, "an object that only a void entry made is removed");
    }

    /// A log that replaces another brings along what it remembers of older requests.
    #[test]
    fn replaced_logs_recognise_older_requests() {
        let mut pg = pg(vec![e(1, 1, "z", EVersion::ZERO)]);
        let theirs = vec![
            e(2, 5, "a", EVersion::ZERO),
            e(2, 6, "b", EVersion::ZERO),
            e(2, 7, "a", EVersion::new(2, 5)),
        ];
        let asked = theirs[0].reqid;
        let store = MemStore::default();
        let theirs = theirs.into_iter().map(PgLogEntry::with_bytes);
        pg.replace_log(EVersion::new(2, 6), theirs, vec![], vec![], &mut vec![], &store);
        assert_eq!((pg.log.entries.len(), pg.log.old_len()), (1, 2));
        assert_eq!(pg.log.dup(&asked).map(|d| d.version), Some(EVersion::new(2, 5)));
    }

    /// A log that was trimmed further than the one that counts meets it at its own tail: what it
    /// has alone is undone, nothing else is touched, and it reaches back as far again.
    #[test]
    fn a_shorter_log_meets_a_longer_one() {
        let (zero, v) = (EVersion::ZERO, EVersion::new);
        let mut own = pg(vec![
            e(1, 1, "a", zero),
            e(1, 2, "b", zero),
            e(1, 3, "c", zero),
            e(1, 4, "b", v(1, 2)),
            e(1, 5, "c", v(1, 3)),
        ]);
        own.log.trim(v(1, 3));
        let theirs = || vec![e(1, 2, "b", zero), e(1, 3, "c", zero), e(1, 4, "b", v(1, 2))];
        let mut steps = Marked::default();
        own.merge_log(v(1, 1), theirs(), &mut steps, &MemStore::default()).unwrap();
        assert_eq!((own.log.tail, own.log.head()), (v(1, 1), v(1, 4)));
        assert_eq!(own.missing.iter().collect::<Vec<_>>(), [(&oid("c"), &v(1, 3))]);
        assert_eq!((own.log.entries.len(), own.log.old_len()), (3, 1));
        assert_eq!(own.log.bytes().0, pg(theirs()).log.bytes().0);
        let put = |at: EVersion| {
            steps.ops.iter().any(|op| matches!(op, StoreOp::Put(_, k, _) if *k == log_key(at)))
        };
        assert!(put(v(1, 2)) && put(v(1, 3)), "what it reaches back to is on disk");
        assert!(!put(v(1, 4)), "what both have is left alone");
        // The tail of a PG that was divided is an entry of the other part; what follows is not.
        let mut part = pg(vec![e(1, 1, "a", zero), e(1, 2, "other", zero), e(1, 4, "b", zero)]);
        part.log.trim(v(1, 2));
        let theirs_too = vec![e(1, 1, "a", zero), e(1, 4, "b", zero)];
        part.merge_log(zero, theirs_too, &mut steps, &MemStore::default()).unwrap();
        assert_eq!((part.log.tail, part.log.head()), (zero, v(1, 4)));
        assert!(part.missing.is_empty());
        // Nothing in common when the own tail is none of theirs.
        let mut other = pg(vec![e(1, 1, "a", zero), e(2, 3, "a", v(1, 1)), e(2, 4, "b", zero)]);
        other.log.trim(v(2, 3));
        let merged = other.merge_log(v(1, 1), theirs(), &mut steps, &MemStore::default());
        assert_eq!(merged, Err(NoCommonPoint));
    }

    /// A copy that took over a log and got none of its objects yet still has what was before: when
    /// the log's end is void it lacks nothing. What is on its way has no record.
    #[test]
    fn what_was_never_brought_is_whole_again() {
        let (zero, v) = (EVersion::ZERO, EVersion::new);
        let first = || vec![e(1, 1, "a", zero), e(1, 2, "b", zero)];
        let mut own = pg(first());
        let mut store = MemStore::default();
        let info = crate::object::ObjectInfo { version: v(1, 1), ..Default::default() };
        let name = Bytes::from_static(crate::object::INFO_ATTR);
        let record = vec![Mutation::SetAttr(name, info.to_bytes())];
        let on_its_way = vec![Mutation::Touch];
        let ops = vec![
            StoreOp::Create(own.coll),
            StoreOp::Object(own.coll, oid("a"), record),
            StoreOp::Object(own.coll, oid("b"), on_its_way),
        ];
        store.submit(ops, 1);
        let more = vec![e(2, 3, "a", v(1, 1)), e(2, 4, "b", v(1, 2))];
        own.merge_log(v(1, 2), more, &mut Marked::default(), &store).unwrap();
        assert_eq!(own.missing.len(), 2);
        let mut steps = Marked::default();
        own.merge_log(v(1, 2), vec![], &mut steps, &store).unwrap();
        assert_eq!(own.missing.iter().collect::<Vec<_>>(), [(&oid("b"), &v(1, 2))]);
        let gone = missing_key(&oid("a"));
        assert!(steps.ops.iter().any(|op| matches!(op, StoreOp::Rm(_, k) if *k == gone)));
        // One that was found damaged stays missing: what is here says nothing.
        own.missing.insert(oid("a"), v(1, 1));
        own.merge_log(v(1, 1), vec![], &mut Marked::default(), &store).unwrap();
        assert_eq!(own.missing.get(&oid("a")), Some(&v(1, 1)));
    }

    /// Logs without a version in common are not merged.
    #[test]
    fn no_common_point() {
        let mut pg = pg(vec![e(1, 1, "a", EVersion::ZERO)]);
        let merged =
            pg.merge_log(EVersion::new(2, 9), vec![], &mut Marked::default(), &MemStore::default());
        assert_eq!(merged, Err(NoCommonPoint));
    }

    /// What is equal already costs nothing.
    #[test]
    fn equal_logs() {
        let all = || vec![e(1, 1, "a", EVersion::ZERO), e(1, 2, "b", EVersion::ZERO)];
        let (mut pg, mut steps) = (pg(all()), Marked::default());
        pg.merge_log(EVersion::ZERO, all(), &mut steps, &MemStore::default()).unwrap();
        assert!(steps.ops.is_empty() && pg.missing.is_empty());
    }
}
