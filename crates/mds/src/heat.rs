//! How much each fragment of a directory was asked for lately: counts that halve every five seconds.
//! With one rank nothing is balanced by them; operators see where the work is.
//!
//! Source: the peer's `dirfrag_load_vec_t`, `MDBalancer::hit_inode`, `hit_dir`.

use maps::fs::DirFrag;
use types::Ino;

use crate::session::Decay;
use crate::tree::Tree;

/// The peer's `mds_decay_halflife`.
pub(crate) const HALF_LIFE_MS: u64 = 5_000;

/// What is counted; the peer's `META_POP_*`, in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    List,
    Fetch,
    Store,
}

/// The counts of one fragment, by [`Kind`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Heat([Decay; 5]);

/// Counts as they stand at one moment.
pub(crate) type Load = [f64; 5];

impl Heat {
    fn add(&mut self, kind: Kind, now_ms: u64) {
        self.0[kind as usize].add(1, now_ms, HALF_LIFE_MS);
    }

    pub fn get(&self, now_ms: u64) -> Load {
        self.0.map(|d| d.get(now_ms, HALF_LIFE_MS))
    }
}

impl Tree {
    /// A fragment was asked for.
    pub fn warm(&self, dir: DirFrag, kind: Kind, now_ms: u64) {
        if let Some(fragment) = self.part(dir) {
            let mut heat = fragment.heat.get();
            heat.add(kind, now_ms);
            fragment.heat.set(heat);
        }
    }

    /// The fragment with an inode's first name.
    pub fn frag_above(&self, ino: Ino) -> Option<DirFrag> {
        let (dir, name) = self.above(ino)?.at.as_ref()?;
        self.above(*dir).map(|d| DirFrag { ino: *dir, frag: d.frag_of(name) })
    }
}
