//! The snapshots that clients know.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::{Ask, Snaps};
use crate::world::Chance;

/// See the module.
#[derive(Default)]
pub(crate) struct Known {
    /// The newest there ever was.
    seq: u64,
    /// Those that may be asked for.
    pub(crate) live: BTreeSet<u64>,
    /// Those that were removed.
    pub(crate) removed: BTreeSet<u64>,
    /// Of those, what some change named that was open then. A change that comes later than
    /// all trimming keeps the object for it all the same.
    late: BTreeSet<u64>,
    /// Open changes, by the snapshots that they name.
    named: BTreeMap<u64, usize>,
    /// Operations at a snapshot that have no answer: what is asked of it then is unknown, so
    /// it stays.
    open: BTreeMap<u64, usize>,
}

fn snap_of(ask: &Ask) -> Option<u64> {
    match ask {
        Ask::ReadAt(snap) | Ask::Rollback(snap) => Some(*snap),
        _ => None,
    }
}

impl Known {
    /// As clients name them with a change.
    pub(crate) fn known(&self) -> Snaps {
        Snaps { seq: self.seq, kept: self.live.iter().rev().copied().collect() }
    }

    /// One of them.
    pub(crate) fn some(&self, chance: &mut Chance) -> Option<u64> {
        let at = chance.index(self.live.len());
        self.live.iter().nth(at).copied()
    }

    /// Whether nothing is asked of it.
    pub(crate) fn is_idle(&self, snap: u64) -> bool {
        self.open.get(&snap).is_none_or(|n| *n == 0)
    }

    /// A new one.
    pub(crate) fn on_made(&mut self, snap: u64) {
        self.seq = self.seq.max(snap);
        if !self.removed.contains(&snap) {
            self.live.insert(snap);
        }
    }

    /// It is asked for no more.
    pub(crate) fn remove(&mut self, snap: u64) {
        self.live.remove(&snap);
        self.removed.insert(snap);
        if self.named.get(&snap).is_some_and(|n| *n > 0) {
            self.late.insert(snap);
        }
    }

    /// Snapshots of which nothing may be left.
    pub(crate) fn trimmed(&self) -> BTreeSet<u64> {
        self.removed.difference(&self.late).copied().collect()
    }

    pub(crate) fn on_ask(&mut self, ask: &Ask, names: &Snaps) {
        for snap in &names.kept {
            *self.named.entry(*snap).or_default() += 1;
        }
        if let Some(snap) = snap_of(ask) {
            *self.open.entry(snap).or_default() += 1;
        }
    }

    pub(crate) fn on_answer(&mut self, ask: &Ask, names: &Snaps) {
        for snap in &names.kept {
            *self.named.entry(*snap).or_default() -= 1;
        }
        if let Some(snap) = snap_of(ask) {
            *self.open.entry(snap).or_default() -= 1;
        }
    }
}
