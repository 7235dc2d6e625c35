//! What an object's snapshots are made of: which clone serves which, and what clones have
//! in common.
//!
//! A clone is an object of its own, named by the newest snapshot context at its making. It
//! holds the bytes that the head had before the write that made it. The [`SnapSet`] is part
//! of the head's record.
//!
//! Invariants: clones rise; each has a size, an overlap with the next newer one (the last:
//! with the head) and the snapshots it serves, newest first.
//!
//! Source: the peer's `SnapSet`, `PrimaryLogPG::{find_object_context, make_writeable,
//! trim_object, _do_rollback_to}`.

use maps::{SnapIntervals, SnapSet};
use messages::Mutation;
use stdx::IntervalSet;
use types::{HObject, SnapId};

use crate::backing::{Coll, ObjectStore, StoreError};
use crate::object::{INFO_ATTR, ObjectState};

/// Where an object's content at a snapshot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The object was not written since.
    Head,
    /// In this clone.
    Clone(SnapId),
    /// It did not exist.
    Nowhere,
}

/// Where the content of an object in `state` at snapshot `snap` is.
#[must_use]
pub fn find(state: &ObjectState, snap: SnapId) -> Found {
    let head = if state.exists { Found::Head } else { Found::Nowhere };
    let Some(set) = &state.info.snaps else { return head };
    if snap > set.seq {
        return head;
    }
    let Some(clone) = set.clones.iter().find(|c| **c >= snap) else { return Found::Nowhere };
    // A clone serves from its oldest snapshot on; before, there was no object.
    match set.clone_snaps.get(clone).and_then(|snaps| snaps.last()) {
        Some(oldest) if *oldest <= snap => Found::Clone(*clone),
        _ => Found::Nowhere,
    }
}

/// Adds the clone of a head of `size` bytes.
pub fn push_clone(set: &mut SnapSet, clone: SnapId, size: u64, snaps: Vec<SnapId>) {
    set.clones.push(clone);
    set.clone_size.insert(clone, size);
    set.clone_snaps.insert(clone, snaps);
    set.clone_overlap.insert(clone, SnapIntervals::from_iter([(0, size)]));
}

/// Bytes that only this clone has: not in common with the next newer one.
#[must_use]
pub fn own_bytes(set: &SnapSet, clone: SnapId) -> i64 {
    let size = set.clone_size.get(&clone).copied().unwrap_or(0);
    let shared = set.clone_overlap.get(&clone).map_or(0, |o| o.size());
    size.saturating_sub(shared) as i64
}

/// Bytes of all clones, each byte that several share counted once; without those shared
/// with the head.
#[must_use]
pub fn clone_bytes(set: &SnapSet) -> i64 {
    set.clones.iter().map(|c| own_bytes(set, *c)).sum()
}

/// As [`clone_bytes`], of the clones that the store has: a cache tier need not have all.
///
/// # Errors
/// The store's.
pub fn bytes_here(
    store: &dyn ObjectStore,
    coll: Coll,
    oid: &HObject,
    set: &SnapSet,
) -> Result<i64, StoreError> {
    let mut sum = 0;
    for clone in &set.clones {
        if store.attr(coll, &oid.with_snap(*clone), INFO_ATTR)?.is_some() {
            sum += own_bytes(set, *clone);
        }
    }
    Ok(sum)
}

/// Takes out a clone. What it had in common with its neighbours they have in common.
pub fn remove_clone(set: &mut SnapSet, clone: SnapId) {
    let Some(at) = set.clones.iter().position(|c| *c == clone) else { return };
    let overlap = set.clone_overlap.remove(&clone).unwrap_or_default();
    if at > 0
        && let Some(older) = set.clone_overlap.get_mut(&set.clones[at - 1])
    {
        older.0 = older.intersection(&overlap);
    }
    set.clones.remove(at);
    set.clone_size.remove(&clone);
    set.clone_snaps.remove(&clone);
}

/// What a head of `size` bytes has no longer in common with its newest clone after
/// `mutations`.
#[must_use]
pub fn modified(mutations: &[Mutation], size: u64, set: &SnapSet) -> IntervalSet {
    let mut changed = IntervalSet::new();
    // Beyond the end nothing was in common.
    let add = |changed: &mut IntervalSet, from: u64, to: u64| {
        let to = to.min(size);
        if from < to {
            changed.insert(from, to - from);
        }
    };
    for m in mutations {
        match m {
            Mutation::Write { off, data } => {
                add(&mut changed, *off, off.saturating_add(data.len() as u64));
            }
            Mutation::Zero { off, len } => add(&mut changed, *off, off.saturating_add(*len)),
            Mutation::Truncate(to) => add(&mut changed, *to, size),
            Mutation::Remove => add(&mut changed, 0, size),
            // Rolled back: what all clones from that one on have in common is the same.
            Mutation::CloneFrom(source) => {
                changed = IntervalSet::new();
                add(&mut changed, 0, size);
                let mut later = set.clone_overlap.range(source.snap..).map(|(_, o)| &o.0);
                if let Some(first) = later.next().cloned() {
                    changed.subtract(&later.fold(first, |all, o| all.intersection(o)));
                }
            }
            _ => {}
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::ObjectInfo;
    use bytes::Bytes;

    fn state(set: SnapSet, exists: bool) -> ObjectState {
        ObjectState {
            exists,
            info: ObjectInfo { snaps: Some(set.into()), ..ObjectInfo::default() },
        }
    }

    fn two_clones() -> SnapSet {
        let mut set = SnapSet { seq: SnapId(9), ..SnapSet::default() };
        push_clone(&mut set, SnapId(4), 100, vec![SnapId(4), SnapId(3)]);
        push_clone(&mut set, SnapId(9), 60, vec![SnapId(8)]);
        set
    }

    /// Each snapshot is served by the clone made next after it, from the clone's oldest
    /// snapshot on; newer ones by the head.
    #[test]
    fn finds_what_serves_a_snapshot() {
        let s = state(two_clones(), true);
        let expected = [
            (2, Found::Nowhere),
            (3, Found::Clone(SnapId(4))),
            (4, Found::Clone(SnapId(4))),
            (5, Found::Nowhere),
            (8, Found::Clone(SnapId(9))),
            (9, Found::Clone(SnapId(9))),
            (10, Found::Head),
        ];
        for (snap, found) in expected {
            assert_eq!(find(&s, SnapId(snap)), found, "snapshot {snap}");
        }
        assert_eq!(find(&state(two_clones(), false), SnapId(10)), Found::Nowhere);
        assert_eq!(find(&ObjectState::default(), SnapId(1)), Found::Nowhere);
    }

    /// What two clones had in common with the one between them they have with each other.
    #[test]
    fn overlaps_meet_where_a_clone_goes() {
        let mut set = two_clones();
        set.clone_overlap.get_mut(&SnapId(4)).unwrap().0 = [(10, 50)].into_iter().collect();
        set.clone_overlap.get_mut(&SnapId(9)).unwrap().0 = [(0, 20)].into_iter().collect();
        assert_eq!(clone_bytes(&set), 50 + 40);
        remove_clone(&mut set, SnapId(9));
        let left: Vec<_> = set.clone_overlap[&SnapId(4)].iter().collect();
        assert_eq!((left, set.clones.clone()), (vec![(10, 10)], vec![SnapId(4)]));
        assert_eq!(own_bytes(&set, SnapId(4)), 90);
        remove_clone(&mut set, SnapId(4));
        assert_eq!(set, SnapSet { seq: SnapId(9), ..SnapSet::default() });
    }

    /// Writes, cuts and rollbacks leave in common what they did not touch.
    #[test]
    fn modified_ranges() {
        let mut set = two_clones();
        set.clone_overlap.get_mut(&SnapId(4)).unwrap().0 = [(10, 30)].into_iter().collect();
        let runs = |m: &[Mutation]| modified(m, 50, &set).iter().collect::<Vec<_>>();
        let write = Mutation::Write { off: 40, data: Bytes::from_static(&[1; 20]) };
        assert_eq!(runs(&[write.clone(), Mutation::Zero { off: 2, len: 3 }]), [(2, 3), (40, 10)]);
        assert_eq!(runs(&[Mutation::Truncate(45), Mutation::Truncate(80)]), [(45, 5)]);
        let back = Mutation::CloneFrom(HObject::min().with_snap(SnapId(4)));
        assert_eq!(runs(&[write, back]), [(0, 10), (40, 10)]);
    }
}
