//! What is in memory, and how it is kept within its limit: fragments that nobody needs are dropped,
//! and clients are asked to give back what they do not use.
//!
//! Source: the peer's `MDCache::trim` and `Server::recall_client_state`, by whole fragments.

use std::collections::BTreeSet;

use maps::fs::{DirFrag, inos};
use messages::fs::{ClientSession, session_op};
use types::Ino;

use crate::rank::Rank;
use crate::session::Life;
use crate::tree::Link;

/// Bytes that an inode takes with its entry and one cap, about: what counts until the process'
/// memory is measured.
const INODE_BYTES: u64 = 2 << 10;
/// Inodes that stay, however little memory there is.
const INODES_MIN: usize = 1_000;
/// Fragments that one look drops at most: as long as it may take.
const DROPS_MAX: usize = 512;
/// A client keeps so many caps, whatever memory says: the peer's `mds_min_caps_per_client`.
const CAPS_MIN: usize = 100;
/// Caps that one message asks back at most: the peer's `mds_recall_max_caps`.
const RECALL_MAX: usize = 30_000;
/// Time between two looks.
pub(crate) const LOOK_MS: u64 = 1_000;
/// Numbers that lead nowhere are remembered up to this many.
const LOST_MAX: usize = 10_000;

/// What is known of the memory that the cache takes.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// When it was looked at.
    looked_ms: u64,
    /// What the process had taken when it was measured, and the inodes in memory then.
    measured: Option<(u64, usize)>,
    /// Bytes of records that were handed in until then.
    handed_in: u64,
}

impl Memory {
    /// Bytes taken, now that so many inodes are in memory.
    fn taken(&self, inodes: usize) -> u64 {
        let (taken, then) = self.measured.unwrap_or_default();
        match inodes.checked_sub(then) {
            Some(added) => taken + added as u64 * INODE_BYTES,
            None => (u128::from(taken) * inodes as u128 / then as u128) as u64,
        }
    }

    /// Of so many inodes, those that may stay for `limit` bytes to be kept. Attributes, names, caps
    /// and whatever else is held go with inodes, so each counts as much as an average one.
    fn inodes_max(&self, inodes: usize, limit: u64) -> usize {
        fitting(inodes, self.taken(inodes), limit)
    }
}

fn fitting(inodes: usize, taken: u64, limit: u64) -> usize {
    let fits = inodes as u128 * u128::from(limit) / u128::from(taken.max(1));
    usize::try_from(fits).unwrap_or(usize::MAX).max(INODES_MIN)
}

impl Rank {
    /// The process has taken so many bytes of memory.
    pub fn on_memory(&mut self, taken: u64) {
        self.memory.measured = Some((taken, self.tree.nodes.len()));
        self.memory.handed_in = self.journal.handed_in;
    }

    /// Inodes that fit where all that was recorded since memory was measured takes some: it may be
    /// attributes of inodes that were there.
    pub fn inodes_fitting(&self) -> usize {
        let (inodes, memory) = (self.tree.nodes.len(), &self.memory);
        let recorded = self.journal.handed_in.saturating_sub(memory.handed_in);
        let taken = memory.measured.map_or(0, |(taken, _)| taken) + recorded;
        fitting(inodes, taken.max(memory.taken(inodes)), self.bytes_max())
    }

    /// Bytes of memory that the cache takes.
    pub fn cache_bytes(&self) -> u64 {
        self.memory.taken(self.tree.nodes.len())
    }

    /// Bytes that may be taken: they lie in slabs that are a quarter larger, as was measured, and what
    /// the process holds is to stay within `mds_cache_memory_limit`.
    fn bytes_max(&self) -> u64 {
        self.world.config.options.cache_bytes_max / 5 * 4
    }

    /// Inodes that may stay.
    pub fn inodes_max(&self) -> usize {
        self.memory.inodes_max(self.tree.nodes.len(), self.bytes_max())
    }

    /// Whether memory is at its limit. Changes are not answered early then: who makes more than can be
    /// written back waits for the journal.
    pub fn is_full(&self) -> bool {
        self.tree.nodes.len() >= INODES_MIN && self.cache_bytes() >= self.bytes_max()
    }

    /// Whether memory is beyond its limit by half and more; operators hear of that.
    pub fn is_oversized(&self) -> bool {
        self.is_full() && self.cache_bytes() > self.world.config.options.cache_bytes_max / 2 * 3
    }

    pub fn trim_tick(&mut self) {
        let now = self.world.ms();
        self.tree.clock = now;
        if self.waiting.lost.len() > LOST_MAX {
            self.waiting.lost.clear();
        }
        if !self.is_active() {
            return;
        }
        let max = self.inodes_max();
        let is_due = now >= self.memory.looked_ms + LOOK_MS;
        // Changes may wait for it: then it is done at each tick.
        if self.tree.nodes.len() > max && (is_due || self.is_closed()) {
            self.drop_unused(max - max / 20);
        }
        if !is_due {
            return;
        }
        self.memory.looked_ms = now;
        let over = self.tree.nodes.len().saturating_sub(max);
        self.recall(over);
    }

    /// Asks clients for caps: for `over` because of memory, and for what one has too many.
    fn recall(&mut self, over: usize) {
        let caps_max = self.world.config.options.caps_per_client_max;
        let held: usize = self.sessions.by_client.values().map(|s| s.caps.len()).sum();
        let mut asked = Vec::new();
        for (client, session) in &self.sessions.by_client {
            let caps = session.caps.len();
            // Each gives by what it holds.
            let share = over * caps / held.max(1);
            let keep = caps.saturating_sub(share.min(RECALL_MAX)).max(CAPS_MIN).min(caps_max);
            if session.life == Life::Open && caps > keep && session.conn.is_some() {
                asked.push((*client, keep as u32));
            }
        }
        for (client, max_caps) in asked {
            let op = session_op::RECALL_STATE;
            let message = ClientSession { op, max_caps, ..ClientSession::default() };
            self.send(client, &message, 0);
        }
    }

    /// Asks every client for all that it does not use. Returns for how many caps.
    pub fn recall_all(&mut self) -> usize {
        let open = self.sessions.by_client.iter();
        let open = open.filter(|(_, s)| s.life == Life::Open && s.conn.is_some());
        let asked: Vec<(i64, usize)> = open
            .map(|(client, s)| (*client, s.caps.len().saturating_sub(CAPS_MIN)))
            .filter(|(_, over)| *over > 0)
            .collect();
        for (client, _) in &asked {
            let (op, max_caps) = (session_op::RECALL_STATE, CAPS_MIN as u32);
            self.send(*client, &ClientSession { op, max_caps, ..ClientSession::default() }, 0);
        }
        asked.iter().map(|(_, over)| over).sum()
    }

    /// Drops fragments, the longest unused first, until so many inodes are left.
    pub fn drop_unused(&mut self, inodes: usize) {
        let mut all = Vec::new();
        for (ino, node) in &self.tree.nodes {
            let system = inos::is_private(*ino) || *ino == inos::ROOT;
            if !system && !self.tree.unsettled.contains(ino) {
                let frags = node.frags.iter();
                all.extend(frags.map(|(frag, f)| (f.used_ms.get(), *ino, *frag)));
            }
        }
        all.sort_unstable();
        let busy = self.busy();
        let mut dropped = 0;
        for (_, ino, frag) in all {
            if dropped >= DROPS_MAX || self.tree.nodes.len() <= inodes {
                return;
            }
            let dir = DirFrag { ino, frag };
            if !self.is_unused(dir, &busy) {
                continue;
            }
            dropped += 1;
            let Some(node) = self.tree.nodes.get_mut(&ino) else { continue };
            let Some(fragment) = node.frags.remove(&frag) else { continue };
            for entry in fragment.entries.values() {
                if let Link::Primary(ino) = entry.link {
                    self.tree.nodes.remove(&ino);
                }
            }
        }
    }

    /// Inodes that something beside clients is at work with.
    fn busy(&self) -> BTreeSet<Ino> {
        let purger = &self.purger;
        let mut busy = purger.look.clone();
        busy.extend(purger.unsettled.iter().chain(purger.recovering.keys()));
        busy.extend(purger.cuts.iter().chain(purger.cutting.keys()).chain(purger.active.keys()));
        busy.extend(purger.named.borrow().iter().flat_map(|(ino, (dir, _))| [*ino, *dir]));
        busy.extend(self.tree.traces.iter().chain(self.tree.traces_writing.keys()));
        busy.extend(self.waiting.traces.keys().chain(self.waiting.inos.keys()));
        busy.extend(self.waiting.traces.values().flatten().map(|(dir, _)| *dir));
        busy.extend(self.waiting.frags.keys().map(|dir| dir.ino));
        busy.extend(self.boot.reconnects.keys());
        busy.extend(self.scrubs.pinned());
        busy
    }

    fn is_unused(&self, dir: DirFrag, busy: &BTreeSet<Ino>) -> bool {
        let Some(fragment) = self.tree.fragment(dir) else { return false };
        let d = &fragment.dirty;
        let clean = d.since.is_none() && d.writing_since.is_none() && !fragment.fresh;
        clean
            && !busy.contains(&dir.ino)
            && !self.tree.dirty.contains(&dir)
            && fragment.entries.values().all(|entry| match entry.link {
                Link::Remote { .. } => true,
                Link::Primary(ino) => !busy.contains(&ino) && self.is_idle(ino),
            })
    }

    fn is_idle(&self, ino: Ino) -> bool {
        self.tree.node(ino).is_some_and(|n| {
            n.caps.by_client.is_empty()
                && n.caps.holds.is_empty()
                && n.locks.is_empty()
                && n.frags.is_empty()
                && n.unflushed.is_empty()
                && n.trace_since.is_none()
        })
    }
}
