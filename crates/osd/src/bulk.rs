//! What a transaction takes of a store's log, which has room for so much in one, and how recovery
//! brings what is larger.
//!
//! A client decides how large the attributes and omap of its write are, and how large those of an
//! object become. So a write whose record no acting copy's log could take is refused with
//! EMSGSIZE before it is logged, an object's attributes are bounded in sum, and the last part
//! of a recovered object, which brings all of them, goes to the store in several transactions:
//! until the last of these is durable the object counts as missing.
//!
//! Source: the sums are those of `store::Store::record_max`, rounded up.

use std::collections::BTreeMap;

use bytes::Bytes;
use messages::{Mutation, ObjectChange};

use crate::backing::{Coll, ObjectStore, StoreOp};
use crate::object::ObjectInfo;
use types::HObject;

/// Bytes that each step takes beside what it carries.
const STEP: u64 = 64;
/// Bytes left for what goes with a write: log entries, old ones that go, the PG's record.
pub(crate) const BESIDE: u64 = 512 << 10;
/// Bytes of a record that a copy takes that does not say how many: the fewest that releases before
/// took, with the smallest log.
pub(crate) const UNTOLD: u64 = 10 << 20;
/// Bytes of one object's attributes in sum, 64 more for each: with the header of its omap they are
/// in memory whenever the object is copied or recovered.
pub(crate) const ATTRS_MAX: u64 = 64 << 20;
/// Large data goes to its place, and takes 20 bytes for each block here, and two blocks' bytes.
const LARGE: u64 = 64 << 10;
const BLOCK: u64 = 4096;

fn pairs(all: &[(Bytes, Bytes)]) -> u64 {
    all.iter().map(|(k, v)| (k.len() + v.len() + 8) as u64).sum()
}

fn data(len: u64) -> u64 {
    if len < LARGE + 2 * BLOCK { len } else { 2 * BLOCK + len / BLOCK * 20 }
}

/// Bytes of the log that a step takes, at most; without what cutting compressed data adds.
pub(crate) fn record_of(m: &Mutation) -> u64 {
    STEP + match m {
        Mutation::Write { data: bytes, .. } => data(bytes.len() as u64),
        Mutation::CloneRange { from, len, .. } => data(*len) + STEP + name(from),
        Mutation::CloneFrom(from) => name(from),
        Mutation::SetAttr(name, value) => (name.len() + value.len() + 8) as u64,
        Mutation::RmAttr(name) => name.len() as u64,
        Mutation::OmapHeader(header) => header.len() as u64,
        Mutation::OmapSet(entries) => pairs(entries),
        Mutation::OmapRm(keys) => keys.iter().map(|k| k.len() as u64 + 4).sum(),
        Mutation::OmapRmRange(from, to) => (from.len() + to.len()) as u64,
        Mutation::Touch
        | Mutation::Zero { .. }
        | Mutation::Truncate(_)
        | Mutation::Remove
        | Mutation::OmapClear
        | Mutation::Was { .. } => 0,
    }
}

fn name(o: &HObject) -> u64 {
    STEP + (o.nspace.len() + o.key.len() + o.name.len()) as u64
}

/// As [`record_of`], of all steps.
pub(crate) fn record_of_all(all: &[Mutation]) -> u64 {
    all.iter().map(record_of).sum()
}

/// Bytes that an object's own record has encoded, at most.
pub(crate) fn record_of_info(info: &ObjectInfo) -> u64 {
    let set = info.snaps.as_deref().map_or(0, |set| {
        let snaps: usize = set.clone_snaps.values().map(|s| 16 + 8 * s.len()).sum();
        let overlap: usize = set.clone_overlap.values().map(|o| 16 + 16 * o.run_count()).sum();
        64 + 32 * set.clones.len() + 16 * set.snaps.len() + snaps + overlap
    });
    (256 + 160 * info.watchers.len() + set + 8 * info.clone_snaps.len()) as u64
}

/// As [`record_of`], of a whole transaction.
#[must_use]
pub fn record_of_ops(ops: &[StoreOp]) -> u64 {
    let each = ops.iter().map(|op| match op {
        StoreOp::Object(_, o, all) => name(o) + record_of_all(all),
        StoreOp::Put(_, k, v) => STEP + (k.len() + v.len()) as u64,
        StoreOp::Rm(_, k) => STEP + k.len() as u64,
        StoreOp::RmRange(_, a, b) => STEP + (a.len() + b.len()) as u64,
        _ => STEP,
    });
    256 + each.sum::<u64>()
}

/// Steps that may cut compressed data, each of which may take this much more where there is any.
pub(crate) fn cuts_of(all: &[Mutation]) -> u64 {
    let cut = |m: &&Mutation| {
        matches!(
            m,
            Mutation::Write { .. }
                | Mutation::Zero { .. }
                | Mutation::Truncate(_)
                | Mutation::CloneRange { .. }
        )
    };
    all.iter().filter(cut).count() as u64
}

/// Bytes of an object's attributes in sum, its own record among them, before these steps and
/// after them; `None` when they set none. Costs a look-up for each attribute that they touch, however
/// many the object has.
pub(crate) fn attrs_after(
    store: &dyn ObjectStore,
    coll: Coll,
    oid: &HObject,
    steps: &[Mutation],
) -> Option<(u64, u64)> {
    steps.iter().find(|m| matches!(m, Mutation::SetAttr(..)))?;
    // What cannot be read was told by the read before.
    let sum_of = |o: &HObject| store.attrs_bytes(coll, o).unwrap_or_default();
    let mut from = Some(oid);
    let was = sum_of(oid);
    let mut sum = was;
    // Attributes that were set (to so many bytes) or removed since `from` was as it is.
    let mut changed: BTreeMap<&Bytes, Option<u64>> = BTreeMap::new();
    for m in steps {
        let (name, now) = match m {
            Mutation::SetAttr(k, v) => (k, Some(attr_bytes(k, v))),
            Mutation::RmAttr(k) => (k, None),
            Mutation::Remove => {
                (from, sum) = (None, 0);
                changed.clear();
                continue;
            }
            Mutation::CloneFrom(other) => {
                (from, sum) = (Some(other), sum_of(other));
                changed.clear();
                continue;
            }
            _ => continue,
        };
        let before = match changed.insert(name, now) {
            Some(before) => before,
            None => from.and_then(|o| {
                let value = store.attr(coll, o, name).unwrap_or_default();
                value.map(|v| attr_bytes(name, &v))
            }),
        };
        sum = sum + now.unwrap_or(0) - before.unwrap_or(0);
    }
    Some((was, sum))
}

/// What an attribute takes in memory: many tiny ones cost more than their bytes.
pub(crate) fn attr_bytes(name: &Bytes, value: &Bytes) -> u64 {
    (name.len() + value.len()) as u64 + STEP
}

/// A part of a message that is kept when the rest is gone: on its own where the message has `whole`
/// bytes and this is less than half of them. What is kept of a client's request so holds twice its
/// bytes at most, whatever came beside it.
pub(crate) fn owned(part: &Bytes, whole: usize) -> Bytes {
    if part.len() * 2 < whole { Bytes::copy_from_slice(part) } else { part.clone() }
}

/// As [`owned`], of steps that came in one message and are all that is large in it.
pub(crate) fn own(steps: &mut [Mutation], whole: usize) {
    let own = |part: &mut Bytes| *part = owned(part, whole);
    for m in steps {
        match m {
            Mutation::Write { data, .. } | Mutation::OmapHeader(data) => own(data),
            Mutation::SetAttr(name, value) => {
                own(name);
                own(value);
            }
            Mutation::OmapSet(entries) => {
                for (key, value) in entries {
                    own(key);
                    own(value);
                }
            }
            _ => {}
        }
    }
}

/// Bytes that steps carry.
pub(crate) fn carried(steps: &[Mutation]) -> usize {
    let each = steps.iter().map(|m| match m {
        Mutation::Write { data, .. } => data.len(),
        m => record_of(m) as usize,
    });
    each.sum()
}

/// Steps that bring an object in several transactions of about `max` bytes of the log, in order.
/// A single step that is larger stays alone.
pub(crate) fn in_pieces(change: ObjectChange, max: u64) -> Vec<ObjectChange> {
    let ObjectChange { oid, mutations } = change;
    let mut pieces = vec![Vec::new()];
    let mut taken = 0;
    let mut add = |m: Mutation| {
        let bytes = record_of(&m);
        if taken > 0 && taken + bytes > max {
            pieces.push(Vec::new());
            taken = 0;
        }
        taken += bytes;
        pieces.last_mut().expect("never empty").push(m);
    };
    for m in mutations {
        match m {
            Mutation::OmapSet(entries) if pairs(&entries) > max => {
                let mut rest = entries.into_iter().peekable();
                while rest.peek().is_some() {
                    let mut bytes = 0;
                    let mut some = Vec::new();
                    while let Some((k, v)) = rest.next_if(|(k, v)| {
                        bytes += (k.len() + v.len() + 8) as u64;
                        some.is_empty() || bytes <= max / 2
                    }) {
                        some.push((k, v));
                    }
                    add(Mutation::OmapSet(some));
                }
            }
            m => add(m),
        }
    }
    pieces.into_iter().map(|mutations| ObjectChange { oid: oid.clone(), mutations }).collect()
}

/// Steps of which the store need not take all at once: at each mark, what comes before it may be
/// durable without what follows.
#[derive(Default)]
pub(crate) struct Marked {
    /// The steps so far.
    pub ops: Vec<StoreOp>,
    marks: Vec<usize>,
}

impl Marked {
    /// A transaction may end here.
    pub fn mark(&mut self) {
        self.marks.push(self.ops.len());
    }

    /// The transactions, in order, each of about `most` bytes of the log where the marks allow it;
    /// there is at least one.
    pub fn into_transactions(self, most: u64) -> Vec<Vec<StoreOp>> {
        let mut all = vec![Vec::new()];
        let mut ops = self.ops.into_iter();
        let (mut from, mut taken) = (0, 0);
        let end = ops.len();
        for mark in self.marks.into_iter().chain([end]) {
            let some: Vec<StoreOp> = ops.by_ref().take(mark - from).collect();
            from = mark;
            let bytes = record_of_ops(&some);
            if taken > 0 && taken + bytes > most {
                all.push(Vec::new());
                taken = 0;
            }
            taken += bytes;
            all.last_mut().expect("never empty").extend(some);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Transactions end at marks only, as late as their bytes allow.
    #[test]
    fn transactions_end_at_marks() {
        let put = |n: usize| StoreOp::Put(Coll::Meta, Bytes::new(), Bytes::from(vec![0; n]));
        let ends = |marks: &[usize], most| {
            let mut marked = Marked::default();
            for n in 0..6 {
                if marks.contains(&n) {
                    marked.mark();
                }
                marked.ops.push(put(1000 * n));
            }
            let all = marked.into_transactions(most);
            all.iter().map(Vec::len).collect::<Vec<_>>()
        };
        assert_eq!(ends(&[], 10), [6], "no mark, no end");
        assert_eq!(ends(&[1, 2, 3, 4, 5], u64::MAX), [6]);
        assert_eq!(ends(&[1, 2, 3, 4, 5], 10), [1; 6]);
        assert_eq!(ends(&[2, 3, 5], 8_000), [3, 2, 1]);
        assert_eq!(Marked::default().into_transactions(1), [vec![]]);
    }

    /// Pieces are all of it in order, and none is larger than it may be.
    #[test]
    fn pieces_are_the_whole_in_order() {
        let bytes = |n: usize| Bytes::from(vec![7; n]);
        let key = |n: u32| Bytes::from(n.to_be_bytes().to_vec());
        let mut mutations = vec![Mutation::Remove, Mutation::Touch];
        mutations.push(Mutation::OmapSet((0..1000).map(|n| (key(n), bytes(300))).collect()));
        mutations.extend((0..50).map(|n| Mutation::SetAttr(key(n), bytes(2000))));
        mutations.push(Mutation::OmapHeader(bytes(40_000)));
        let whole = ObjectChange { oid: HObject::min(), mutations };
        let flat = |all: &[ObjectChange]| {
            let mut steps = Vec::new();
            for m in all.iter().flat_map(|c| &c.mutations) {
                match m {
                    Mutation::OmapSet(entries) => {
                        let each = entries.iter().cloned();
                        steps.extend(each.map(|e| Mutation::OmapSet(vec![e])));
                    }
                    m => steps.push(m.clone()),
                }
            }
            steps
        };
        for max in [1000, 20_000, 1 << 20] {
            let pieces = in_pieces(whole.clone(), max);
            assert_eq!(flat(&pieces), flat(std::slice::from_ref(&whole)));
            for p in &pieces {
                let alone = p.mutations.len() == 1;
                assert!(alone || record_of_all(&p.mutations) <= max, "{max}");
            }
            assert_eq!(pieces.len() == 1, max == 1 << 20);
        }
    }
}
