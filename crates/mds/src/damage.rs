//! What of the tree cannot be read: it costs itself alone, and operators hear of it.
//!
//! Source: the peer's `DamageTable.cc`.

use std::collections::{BTreeMap, BTreeSet};

use maps::fs::DirFrag;
use types::Ino;

/// Inodes that are kept as unreachable by their number: the peer's `mds_damage_table_max_entries`.
/// Further ones stand in the log alone.
const TRACES_MAX: usize = 10_000;

/// One entry of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Damage<'a> {
    /// A fragment is not there, or garbled.
    Frag(DirFrag),
    /// An inode that has this path is not found by its number.
    Trace(Ino, &'a str),
}

impl Damage<'_> {
    /// The number by which operators name it; the same at each finding.
    pub fn id(&self) -> u32 {
        let (ino, salt) = match self {
            Self::Frag(dir) => (dir.ino, u64::from(dir.frag.raw()).rotate_left(40)),
            Self::Trace(ino, _) => (*ino, u64::MAX),
        };
        ((ino.0 ^ salt).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
    }
}

/// The table of damages.
#[derive(Debug, Default)]
pub(crate) struct Damages {
    frags: BTreeSet<DirFrag>,
    traces: BTreeMap<Ino, String>,
}

impl Damages {
    pub fn is_empty(&self) -> bool {
        self.frags.is_empty() && self.traces.is_empty()
    }

    pub fn has_frag(&self, dir: &DirFrag) -> bool {
        self.frags.contains(dir)
    }

    /// A fragment cannot be read. `false` where that was known.
    pub fn add_frag(&mut self, dir: DirFrag) -> bool {
        self.frags.insert(dir)
    }

    /// The fragment is read again when somebody wants it.
    pub fn forget_frag(&mut self, dir: &DirFrag) {
        self.frags.remove(dir);
    }

    /// An inode is not found by its number.
    pub fn add_trace(&mut self, ino: Ino, path: String) {
        if self.traces.len() < TRACES_MAX {
            self.traces.insert(ino, path);
        }
    }

    pub fn forget_trace(&mut self, ino: Ino) {
        self.traces.remove(&ino);
    }

    /// All entries, by their numbers.
    pub fn all(&self) -> Vec<Damage<'_>> {
        let frags = self.frags.iter().map(|dir| Damage::Frag(*dir));
        let traces = self.traces.iter().map(|(ino, path)| Damage::Trace(*ino, path));
        let mut all: Vec<Damage<'_>> = frags.chain(traces).collect();
        all.sort_by_key(Damage::id);
        all
    }

    /// Forgets the entry with this number, where there is one.
    pub fn forget(&mut self, id: i64) {
        self.frags.retain(|dir| i64::from(Damage::Frag(*dir).id()) != id);
        self.traces.retain(|ino, path| i64::from(Damage::Trace(*ino, path).id()) != id);
    }
}
