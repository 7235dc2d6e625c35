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

    pub(crate) fn on_ask(&mut self, ask: &Ask) {
        if let Some(snap) = snap_of(ask) {
            *self.open.entry(snap).or_default() += 1;
        }
    }

    pub(crate) fn on_answer(&mut self, ask: &Ask) {
        if let Some(snap) = snap_of(ask) {
            *self.open.entry(snap).or_default() -= 1;
        }
    }
}
