//! Writing the tree back in the peer's form, and trimming the journal behind it.

use std::collections::BTreeSet;
use std::ops::Bound;

use bytes::Bytes;
use maps::fs::{
    Backpointer, Backtrace, DentryKey, DirFrag, inos, object_name, session_key, system_inode_object,
};
use types::{Denc, EntityId, EntityKind, Errno, Ino, SnapId};

use crate::heat::Kind;
use crate::journal;
use crate::rank::{Job, Rank};
use crate::tables::{SNAPTABLE_OBJECT, inotable_object, sessionmap_object};
use crate::tree::{Commit, Tree};
use crate::{Io, IoOp};

/// Writes of one kind that are on their way at the same time, at least and at most: more while they
/// end soon.
const WRITES_MIN: usize = 32;
const WRITES_MAX: usize = 512;
/// A write that ends within so many milliseconds is one of a cluster that takes more.
const SOON_MS: u64 = 15;
/// After so many the cluster has too many of them.
const LATE_MS: u64 = 40;
/// Bytes of fragments' entries that are on their way; one write alone may have more.
const BYTES_MAX: usize = 32 << 20;
/// Bytes of keys and values of one write: the peer's `mds_dir_max_commit_size` is 10 MB.
const WRITE_BYTES: usize = 8 << 20;

/// Of what is dirty, how much is looked at when one write has ended.
const LOOK_MAX: usize = 256;

/// Goes round a set, a part at a time, while it changes.
#[derive(Debug)]
struct Sweep<T> {
    /// The last one that was looked at.
    at: Option<T>,
}

impl<T> Default for Sweep<T> {
    fn default() -> Self {
        Self { at: None }
    }
}

impl<T: Ord + Copy> Sweep<T> {
    /// The next member; behind the last comes the first again.
    fn next(&mut self, set: &BTreeSet<T>) -> Option<T> {
        let after = self.at.map_or(Bound::Unbounded, Bound::Excluded);
        let next = set.range((after, Bound::Unbounded)).next().or_else(|| set.first());
        self.at = next.copied();
        self.at
    }
}

/// Where the writing back of the tree stands.
#[derive(Debug, Default)]
pub(crate) struct Writeback {
    frags: Sweep<DirFrag>,
    traces: Sweep<Ino>,
    /// Fragments that are being written.
    frags_writing: usize,
    /// Bytes of entries that are on their way.
    bytes: usize,
    window: Window,
}

/// How many writes of one kind may be on their way.
#[derive(Debug)]
struct Window {
    size: usize,
}

impl Default for Window {
    fn default() -> Self {
        Self { size: WRITES_MIN }
    }
}

impl Window {
    /// A write has ended after so long.
    fn ended(&mut self, took_ms: u64) {
        if took_ms <= SOON_MS {
            self.size = (self.size + 1).min(WRITES_MAX);
        } else if took_ms > LATE_MS {
            self.size = (self.size - 1).max(WRITES_MIN);
        }
    }
}

/// The extended attributes of an inode's first object.
pub(crate) fn trace_ops(tree: &Tree, ino: Ino, pool: types::PoolId) -> Vec<IoOp> {
    let mut ancestors = Vec::new();
    let mut at = ino;
    while let Some(node) = tree.node(at) {
        let Some((dir, name)) = &node.at else { break };
        ancestors.push(Backpointer {
            dirino: *dir,
            dname: name.clone(),
            version: node.store.inode.versions.version,
        });
        at = *dir;
    }
    let node = tree.at(ino);
    let old_pools = node.store.inode.file.old_pools.clone();
    let trace = Backtrace { ino, ancestors, pool, old_pools };
    let mut ops = vec![
        IoOp::SetXattr("parent".to_owned(), trace.to_bytes()),
        IoOp::SetXattr("layout".to_owned(), node.store.inode.layout.to_bytes()),
    ];
    if node.store.inode.is_symlink() {
        let mut w = denc::Writer::new(denc::Features::ALL);
        w.blob(&node.store.symlink);
        ops.push(IoOp::SetXattr("symlink".to_owned(), w.finish()));
    }
    ops
}

impl Rank {
    /// Whether all has to go, and not only what is old.
    fn must_write(&self) -> bool {
        let bytes = self.journal.bytes();
        !self.flushes.is_empty()
            || self.boot.is_stopping()
            || bytes > self.world.config.options.journal_bytes_max
            || self.is_loaded()
    }

    /// Writes what is due, trims what is not needed, and tells who waits for that.
    pub fn write_back(&mut self) {
        let all = self.must_write();
        let (now, after) = (self.world.ms(), self.world.config.options.writeback_ms);
        self.write_frags(usize::MAX);
        self.write_traces(usize::MAX);
        if self.tree.system_writing.is_empty() {
            for ino in self.tree.system.keys().copied().collect::<Vec<_>>() {
                let since = self.tree.system.remove(&ino).unwrap_or(0);
                self.tree.system_writing.insert(ino, since);
                let ops = vec![IoOp::WriteFull(self.tree.system_inode(ino))];
                self.write_behind(system_inode_object(ino), ops, Job::WroteSystem(ino));
            }
        }
        if self.tables.writing == 0
            && self.tables.dirty_since.is_some()
            && (all || now >= self.tables.written_ms + after)
        {
            self.tables.written_ms = now;
            self.write_tables();
        }
        self.trim();
        if !self.flushes.is_empty() {
            self.end_flushes();
        }
    }

    /// Begins to write fragments that are due, of `most` that it looks at.
    fn write_frags(&mut self, most: usize) {
        let all = self.must_write();
        let (now, after) = (self.world.ms(), self.world.config.options.writeback_ms);
        for _ in 0..most.min(self.tree.dirty.len()) {
            let w = &self.writeback;
            if w.frags_writing >= w.window.size || w.bytes >= BYTES_MAX {
                return;
            }
            let Some(dir) = self.writeback.frags.next(&self.tree.dirty) else { return };
            let Some(fragment) = self.tree.fragment(dir) else {
                self.tree.dirty.remove(&dir);
                continue;
            };
            let d = &fragment.dirty;
            if d.writing_since.is_some() || self.purger.active.contains_key(&dir.ino) {
                continue;
            }
            if d.since.is_none() {
                self.tree.dirty.remove(&dir);
            } else if all || now >= d.at_ms + after {
                self.write_frag(dir);
            }
        }
    }

    /// The same of backtraces.
    fn write_traces(&mut self, most: usize) {
        let all = self.must_write();
        let after = self.world.config.options.writeback_ms;
        for _ in 0..most.min(self.tree.traces.len()) {
            if self.tree.traces_writing.len() >= self.writeback.window.size {
                return;
            }
            let Some(ino) = self.writeback.traces.next(&self.tree.traces) else { return };
            let Some(node) = self.tree.node(ino) else {
                self.tree.traces.remove(&ino);
                continue;
            };
            if self.is_removed(ino) {
                if let Some(node) = self.tree.nodes.get_mut(&ino) {
                    node.trace_since = None;
                }
                self.tree.traces.remove(&ino);
                continue;
            }
            // What is removed again soon needs none.
            let old = node.store.inode.times.ctime.nanos() + after * 1_000_000;
            if self.tree.traces_writing.contains_key(&ino) || (!all && self.world.now.wall_ns < old)
            {
                continue;
            }
            self.write_trace(ino);
        }
    }

    /// Whether everything is in the tree on disk.
    pub fn is_clean(&self) -> bool {
        self.journal.is_settled()
            && self.tree.dirty.is_empty()
            && self.tree.traces.is_empty()
            && self.tree.traces_writing.is_empty()
            && self.tree.system.is_empty()
            && self.tree.system_writing.is_empty()
            && self.tree.unsettled.is_empty()
            && self.tables.writing == 0
            && self.tables.dirty_since.is_none()
    }

    fn write_behind(&mut self, object: String, ops: Vec<IoOp>, job: Job) {
        let id = self.job(job);
        let pool = self.world.meta();
        let snapc = (SnapId(0), Vec::new());
        self.io_behind(Io { id, pool, object, nspace: Bytes::new(), snapc, ops });
    }

    fn write_frag(&mut self, dir: DirFrag) {
        let fragment = self.tree.fragment_mut(dir).expect("a dirty fragment is in memory");
        let d = &mut fragment.dirty;
        let names = std::mem::take(&mut d.names).into_iter().map(|name| (name, SnapId::HEAD));
        let names = names.chain(std::mem::take(&mut d.past)).rev().collect::<Vec<_>>();
        d.writing_since = d.since.take();
        d.writing = names.len();
        let header = fragment.fnode.to_bytes();
        d.commit = Some(Box::new(Commit { names, header }));
        self.writeback.frags_writing += 1;
        self.write_part(dir);
    }

    /// Writes of a fragment's write-back what is left of it, as much as one write takes.
    fn write_part(&mut self, dir: DirFrag) {
        let Some(fragment) = self.tree.fragment_mut(dir) else { return };
        let fresh = fragment.fresh;
        let Some(mut commit) = fragment.dirty.commit.take() else { return };
        let (mut sets, mut removes, mut bytes) = (Vec::new(), Vec::new(), 0);
        let fragment = self.tree.fragment(dir).expect("it is there");
        while bytes < WRITE_BYTES
            && let Some((name, last)) = commit.names.pop()
        {
            let key = DentryKey { name: name.clone(), last }.to_bytes();
            let value = if last == SnapId::HEAD {
                fragment.entries.get(&name).map(|entry| self.tree.value(entry))
            } else {
                fragment.past.get(&(name, last)).map(|past| past.value.clone())
            };
            bytes += key.len() + value.as_ref().map_or(0, Bytes::len);
            match value {
                Some(value) => sets.push((key, value)),
                None => removes.push(key),
            }
        }
        let mut ops = Vec::new();
        if fresh {
            ops.push(IoOp::Create { exclusive: false });
        }
        if !removes.is_empty() {
            ops.push(IoOp::OmapRemove(removes));
        }
        if !sets.is_empty() {
            ops.push(IoOp::OmapSet(sets));
        }
        if commit.names.is_empty() {
            ops.push(IoOp::OmapSetHeader(commit.header));
        } else if let Some(fragment) = self.tree.fragment_mut(dir) {
            fragment.dirty.commit = Some(commit);
        }
        self.writeback.bytes += bytes;
        let job = Job::WroteFrag(dir, bytes, self.world.ms());
        self.write_behind(object_name(dir.ino, dir.frag.raw().into()), ops, job);
    }

    pub fn wrote_frag(
        &mut self,
        dir: DirFrag,
        (bytes, began_ms): (usize, u64),
        result: Result<(), Errno>,
    ) {
        self.writeback.bytes -= bytes;
        self.writeback.window.ended(self.world.ms().saturating_sub(began_ms));
        let is_purged = self.purger.active.contains_key(&dir.ino);
        let fragment = self.tree.fragment_mut(dir);
        if let Some(fragment) = &fragment
            && fragment.dirty.commit.is_some()
            && result.is_ok()
            && !is_purged
        {
            return self.write_part(dir);
        }
        self.writeback.frags_writing -= 1;
        let Some(fragment) = fragment else { return };
        fragment.dirty.writing_since = None;
        fragment.dirty.commit = None;
        let written = std::mem::take(&mut fragment.dirty.writing);
        match result {
            Ok(()) => {
                self.counted.mds.dir_commit += 1;
                fragment.fresh = false;
                if fragment.dirty.since.is_none() {
                    self.tree.dirty.remove(&dir);
                }
                self.tree.unwritten_entries = self.tree.unwritten_entries.saturating_sub(written);
                self.tree.warm(dir, Kind::Store, self.world.ms());
            }
            Err(_) if is_purged => {}
            Err(e) => self.give_up(format!("directory {dir} cannot be written: {e:?}")),
        }
        self.write_frags(LOOK_MAX);
    }

    fn write_trace(&mut self, ino: Ino) {
        self.tree.traces.remove(&ino);
        let node = self.tree.at_mut(ino);
        let since = node.trace_since.take().unwrap_or(0);
        let pool = if node.is_dir() { self.world.meta() } else { node.store.inode.layout.pool };
        self.tree.traces_writing.insert(ino, since);
        let ops = trace_ops(&self.tree, ino, pool);
        let id = self.job(Job::WroteTrace(ino, self.world.ms()));
        let snapc = (SnapId(0), Vec::new());
        let object = object_name(ino, 0);
        self.io_behind(Io { id, pool, object, nspace: Bytes::new(), snapc, ops });
    }

    pub fn wrote_trace(&mut self, ino: Ino, began_ms: u64, result: Result<(), Errno>) {
        self.tree.traces_writing.remove(&ino);
        self.writeback.window.ended(self.world.ms().saturating_sub(began_ms));
        if let Err(e) = result {
            self.give_up(format!("the backtrace of {ino} cannot be written: {e:?}"));
        }
        self.write_traces(LOOK_MAX);
    }

    pub fn wrote_system(&mut self, ino: Ino, result: Result<(), Errno>) {
        self.tree.system_writing.remove(&ino);
        if let Err(e) = result {
            self.give_up(format!("inode {ino} cannot be written: {e:?}"));
        }
    }

    fn write_tables(&mut self) {
        self.tables.writing_since = self.tables.dirty_since.take();
        self.tables.writing = 2;
        if std::mem::take(&mut self.tables.snaps_dirty) {
            self.tables.writing += 1;
            let ops = vec![IoOp::WriteFull(self.tables.snaps.to_bytes())];
            self.write_behind(SNAPTABLE_OBJECT.to_owned(), ops, Job::WroteTables);
        }
        let table = self.tables.inos.to_bytes();
        let rank = self.id;
        self.write_behind(inotable_object(rank), vec![IoOp::WriteFull(table)], Job::WroteTables);
        let key = |client| Bytes::from(session_key(EntityId::new(EntityKind::CLIENT, client)));
        let mut sets = Vec::new();
        for (client, session) in &mut self.sessions.by_client {
            if std::mem::take(&mut session.dirty) {
                sets.push((key(*client), session.info.to_bytes()));
            }
        }
        let removes: Vec<Bytes> =
            std::mem::take(&mut self.sessions.ended).into_iter().map(key).collect();
        let mut ops = vec![IoOp::OmapSetHeader(self.tables.sessions_header())];
        if !removes.is_empty() {
            ops.push(IoOp::OmapRemove(removes));
        }
        if !sets.is_empty() {
            ops.push(IoOp::OmapSet(sets));
        }
        self.write_behind(sessionmap_object(rank), ops, Job::WroteTables);
    }

    pub fn wrote_tables(&mut self, result: Result<(), Errno>) {
        self.tables.writing = self.tables.writing.saturating_sub(1);
        if self.tables.writing == 0 {
            self.tables.writing_since = None;
        }
        if let Err(e) = result {
            self.give_up(format!("the tables cannot be written: {e:?}"));
        }
    }

    /// Forgets records that are in the tree.
    fn trim(&mut self) {
        let dirty = self.tree.dirty.iter().filter_map(|d| self.tree.fragment(*d));
        let frags = dirty.flat_map(|f| [f.dirty.since, f.dirty.writing_since]).flatten();
        let traces = self.tree.traces.iter().filter_map(|i| self.tree.node(*i)?.trace_since);
        let writing = self.tree.traces_writing.values().chain(self.tree.system_writing.values());
        let system = self.tree.system.values().chain(writing).copied();
        let tables = [self.tables.dirty_since, self.tables.writing_since].into_iter().flatten();
        let oldest = frags.chain(traces).chain(system).chain(tables).min();
        let (first, last) = self.journal.span();
        let keep = match oldest {
            Some(oldest) => oldest,
            None if self.journal.is_settled() && self.waiting.rejoining.is_empty() => {
                self.journal.turn();
                self.journal.span().1
            }
            None => last,
        };
        if keep > first
            && let Some((head, gone)) = self.journal.trim(keep)
        {
            let ops = vec![IoOp::WriteFull(head.to_bytes())];
            self.meta_io(journal::head_object(self.id), ops, Job::Trimmed(gone));
        }
    }

    /// Everything of a new tree, as it is written before there is a journal.
    pub fn first_writes(&self) -> Vec<(String, Vec<IoOp>)> {
        let mut writes = Vec::new();
        for (ino, node) in &self.tree.nodes {
            if node.at.is_none() {
                let ops = vec![IoOp::WriteFull(self.tree.system_inode(*ino))];
                writes.push((system_inode_object(*ino), ops));
            }
            for (frag, fragment) in &node.frags {
                let mut ops = vec![IoOp::Create { exclusive: false }];
                let sets: Vec<(Bytes, Bytes)> = fragment
                    .entries
                    .iter()
                    .map(|(n, e)| (DentryKey::head(n.clone()).to_bytes(), self.tree.value(e)))
                    .collect();
                if !sets.is_empty() {
                    ops.push(IoOp::OmapSet(sets));
                }
                ops.push(IoOp::OmapSetHeader(fragment.fnode.to_bytes()));
                if *ino != inos::mds_dir(self.id as u64) {
                    ops.extend(trace_ops(&self.tree, *ino, self.world.meta()));
                }
                writes.push((object_name(*ino, frag.raw().into()), ops));
            }
        }
        writes
    }
}
