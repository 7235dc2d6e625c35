//! What nobody can name any more: inodes in stray directories, whose objects go once nobody uses
//! them; and the cut-off ends of files.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use maps::fs::{DirFrag, inos, object_name};
use types::{Errno, Ino, PoolId, SnapId};

use crate::rank::{Job, Rank};
use crate::record::Change;
use crate::recover::Recovery;
use crate::tree::{Link, Node, Txn};
use crate::{Io, IoOp};

/// Objects of one inode that are removed at the same time.
const OBJECTS_MAX: u64 = 16;

/// One inode whose objects are removed.
#[derive(Debug)]
pub(crate) struct Purging {
    /// The next object, by number, and the end; of a directory none.
    next: u64,
    end: u64,
    left: usize,
}

/// Inodes that go.
#[derive(Debug, Default)]
pub(crate) struct Purger {
    /// To look at: perhaps nobody uses them any more.
    pub look: BTreeSet<Ino>,
    pub active: BTreeMap<Ino, Purging>,
    /// Files that were cut: their objects are to be.
    pub cuts: BTreeSet<Ino>,
    /// Files whose objects are being cut: how many of them, for which cut.
    pub cutting: BTreeMap<Ino, (usize, u32)>,
    /// Stray directories that were looked through since the start.
    scanned: BTreeSet<Ino>,
    /// Names that were found of inodes whose first one is gone.
    pub named: RefCell<BTreeMap<Ino, (Ino, Bytes)>>,
    /// A snapshot is gone, and what only it had is in memory yet.
    pub forget: bool,
    /// Files whose writers are gone, and those that are looked at.
    pub unsettled: BTreeSet<Ino>,
    pub recovering: BTreeMap<Ino, Recovery>,
}

impl Purger {
    /// Whether nothing is to do.
    pub fn is_idle(&self) -> bool {
        self.active.is_empty()
            && self.look.is_empty()
            && self.cuts.is_empty()
            && self.cutting.is_empty()
            && self.unsettled.is_empty()
            && self.recovering.is_empty()
            && self.named.borrow().is_empty()
            && !self.forget
    }

    /// Whether something is half done; the rest is found again by the next server.
    pub fn is_at_work(&self) -> bool {
        !self.active.is_empty()
            || !self.cuts.is_empty()
            || !self.cutting.is_empty()
            || !self.recovering.is_empty()
    }

    /// A snapshot is gone: perhaps it was the last that needed some of them.
    pub fn rescan(&mut self) {
        self.scanned.clear();
        self.forget = true;
    }
}

impl Rank {
    /// Looks at an inode that may be in nobody's use now.
    pub fn eval_stray(&mut self, ino: Ino) {
        if self.tree.node(ino).is_some_and(|n| n.is_stray()) {
            self.purger.look.insert(ino);
        }
    }

    /// Whether an inode is being purged, or is to be: nobody has a name or caps of it.
    pub fn is_removed(&self, ino: Ino) -> bool {
        self.purger.active.contains_key(&ino)
            || self.purger.look.contains(&ino)
                && self.tree.node(ino).is_some_and(|n| {
                    n.is_stray() && n.store.inode.nlink <= 0 && n.caps.by_client.is_empty()
                })
                && !self.tree.is_kept(ino)
    }

    pub fn purge_tick(&mut self) {
        if self.boot.is_leaving() {
            return self.cut_all();
        }
        self.scan_strays();
        if std::mem::take(&mut self.purger.forget) && self.read_only.is_none() {
            self.forget_versions();
        }
        for (ino, (dir, name)) in self.purger.named.take() {
            if self.read_only.is_none() {
                self.reintegrate(ino, dir, &name);
            }
        }
        self.cut_all();
        self.purge_more();
    }

    /// Begins to cut what is shorter since.
    pub fn cut_all(&mut self) {
        for ino in std::mem::take(&mut self.purger.cuts) {
            self.cut(ino);
        }
    }

    /// Begins to remove what is to be looked at, as many at a time as the option says.
    fn purge_more(&mut self) {
        let max = self.world.config.options.purge_files_max;
        while self.purger.active.len() < max && self.read_only.is_none() {
            let Some(ino) = self.purger.look.pop_first() else { return };
            let Some(node) = self.tree.node(ino) else { continue };
            let used = !node.caps.by_client.is_empty() || !node.caps.holds.is_empty();
            if !node.is_stray() || node.store.inode.nlink > 0 || used || self.tree.is_kept(ino) {
                continue; // looked at again when that changes
            }
            if self.is_unsettled(ino) {
                // Looked at again when its size is known.
                self.purger.unsettled.insert(ino);
            } else if !self.purger.active.contains_key(&ino) {
                self.purge(ino);
            }
        }
    }

    /// Drops what only snapshots had that are gone, of all fragments in memory.
    fn forget_versions(&mut self) {
        let of_node = |(ino, node): (&Ino, &Node)| {
            let ino = *ino;
            node.frags.keys().map(move |frag| DirFrag { ino, frag: *frag }).collect::<Vec<_>>()
        };
        let all: Vec<DirFrag> =
            self.tree.nodes.iter().map(|(ino, node)| (ino, &**node)).flat_map(of_node).collect();
        for dir in all {
            let mut txn = Txn::at(self.world.time());
            self.tree.forget_versions(&mut txn, dir);
            self.commit(txn);
        }
    }

    /// An inode whose first name is gone has another one: it moves there.
    fn reintegrate(&mut self, ino: Ino, dir: Ino, name: &Bytes) {
        let Some(node) = self.tree.node(ino) else { return };
        let Some((stray, old)) = node.at.clone() else { return };
        let at_work = self.purger.active.contains_key(&ino) || !node.caps.holds.is_empty();
        if !node.is_stray() || node.store.inode.nlink <= 0 || at_work {
            return;
        }
        if self.tree.node(dir).is_none_or(|d| !d.is_dir() || d.is_stray()) {
            return;
        }
        let Ok(Some(entry)) = self.tree.lookup(dir, name) else { return };
        let is_name = matches!(entry.link, Link::Remote { ino: i, .. } if i == ino);
        if !is_name || self.tree.lookup(stray, &old).is_err() {
            return;
        }
        let alternate = entry.alternate_name.clone();
        let mut txn = Txn::at(self.tree.at(dir).store.inode.times.mtime);
        self.tree.unlink(&mut txn, dir, name);
        if let Some(mut node) = self.tree.unlink(&mut txn, stray, &old) {
            node.store.inode.stray_prior_path = Bytes::new();
            self.tree.link(&mut txn, dir, name, node, alternate);
        }
        self.commit(txn);
    }

    /// After a start, whatever is in the stray directories is looked at once.
    fn scan_strays(&mut self) {
        for i in 0..inos::STRAYS {
            let dir = inos::stray(self.id as u64, i);
            if self.purger.scanned.contains(&dir) {
                continue;
            }
            let Some(node) = self.tree.node(dir) else {
                if !self.waiting.inos.contains_key(&dir) {
                    self.open_ino(dir, 0);
                }
                continue;
            };
            let leaves: Vec<_> = node.store.fragtree.leaves().collect();
            let missing = leaves.iter().find(|f| !node.frags.contains_key(f));
            if let Some(frag) = missing {
                let at = DirFrag { ino: dir, frag: *frag };
                if !self.tree.damaged.has_frag(&at) {
                    self.fetch(at, 0);
                }
                continue;
            }
            let found: Vec<Ino> = node
                .frags
                .values()
                .flat_map(|f| f.entries.values().map(|e| e.link.ino()))
                .collect();
            self.purger.look.extend(found);
            self.purger.scanned.insert(dir);
        }
    }

    fn purge(&mut self, ino: Ino) {
        let node = self.tree.at(ino);
        let i = &node.store.inode;
        let mut purging = Purging { next: 0, end: 0, left: 0 };
        if node.is_dir() {
            let mut frags: BTreeSet<u64> =
                node.store.fragtree.leaves().map(|f| u64::from(f.raw())).collect();
            frags.insert(0);
            purging.left = frags.len();
            self.purger.active.insert(ino, purging);
            for frag in frags {
                self.remove_object(ino, self.world.meta(), Bytes::new(), object_name(ino, frag));
            }
            return;
        }
        let (layout, size) = (i.layout.clone(), i.file.size.max(i.file.max_size_ever));
        let mut pools: Vec<PoolId> = i.file.old_pools.clone();
        if !layout.pool_ns.is_empty() {
            pools.push(layout.pool);
        }
        if i.is_file()
            && let Ok(striping) = layout.striping()
            && size > 0
        {
            // Objects of whole sets: the last set may be used in part.
            let period = striping.object_size() * striping.stripe_count();
            purging.end = size.div_ceil(period) * striping.stripe_count();
        }
        purging.end = purging.end.max(1);
        purging.left = pools.len();
        self.purger.active.insert(ino, purging);
        for pool in pools {
            self.remove_object(ino, pool, Bytes::new(), object_name(ino, 0));
        }
        self.purge_on(ino);
    }

    fn remove_object(&mut self, ino: Ino, pool: PoolId, nspace: Bytes, object: String) {
        let id = self.job(Job::Purged(ino));
        let snapc = if pool == self.world.meta() {
            (SnapId(0), Vec::new())
        } else {
            self.tree.snap_context(ino)
        };
        self.io_behind(Io { id, pool, object, nspace, snapc, ops: vec![IoOp::Remove] });
    }

    fn purge_on(&mut self, ino: Ino) {
        let Some(node) = self.tree.node(ino) else { return };
        let layout = node.store.inode.layout.clone();
        let Some(purging) = self.purger.active.get_mut(&ino) else { return };
        let mut numbers = Vec::new();
        while purging.next < purging.end && (purging.left as u64) < OBJECTS_MAX {
            numbers.push(purging.next);
            purging.next += 1;
            purging.left += 1;
        }
        for n in numbers {
            let (pool, ns) = (layout.pool, layout.pool_ns.clone());
            self.remove_object(ino, pool, ns, object_name(ino, n));
        }
    }

    pub fn purged(&mut self, ino: Ino, result: Result<(), Errno>) {
        if let Err(e) = result
            && e != Errno::NOENT
        {
            tracing::warn!(%ino, ?e, "an object of a removed file stays");
        }
        let Some(purging) = self.purger.active.get_mut(&ino) else { return };
        purging.left -= 1;
        if purging.next < purging.end {
            self.purge_on(ino);
            return;
        }
        if purging.left > 0 {
            return;
        }
        self.purger.active.remove(&ino);
        let Some((dir, name)) = self.tree.node(ino).and_then(|n| n.at.clone()) else { return };
        let mut txn = Txn::at(self.world.time());
        let Some(node) = self.tree.unlink(&mut txn, dir, &name) else { return };
        for frag in node.frags.keys() {
            let at = DirFrag { ino, frag: *frag };
            txn.other.push(Change::Gone(at));
            self.tree.dirty.remove(&at);
        }
        self.tree.unsettled.remove(&ino);
        self.tree.traces.remove(&ino);
        self.commit(txn);
        if self.is_active() && !self.boot.is_leaving() || self.boot.is_stopping() {
            self.purge_more();
        }
    }

    /// Finds files that are cut and whose objects may not be: among those that were just read or
    /// replayed. Costs a look at each.
    pub fn find_cuts(&mut self, among: impl IntoIterator<Item = Ino>) {
        let pending = |ino: &Ino| {
            self.tree.node(*ino).is_some_and(|n| n.store.inode.file.truncate.pending > 0)
        };
        let found: Vec<Ino> = among.into_iter().filter(pending).collect();
        self.purger.cuts.extend(found);
    }

    /// Cuts the objects of a file that is shorter now.
    fn cut(&mut self, ino: Ino) {
        let Some(node) = self.tree.node(ino) else { return };
        if self.purger.cutting.contains_key(&ino) || self.purger.active.contains_key(&ino) {
            return; // looked at again at its end; or it goes
        }
        let i = &node.store.inode;
        let (cut, layout) = (i.file.truncate, i.layout.clone());
        let extents = match layout.striping() {
            Ok(striping) if cut.from > cut.size => {
                striping.object_extents(cut.size, (cut.from - cut.size).min(1 << 40))
            }
            _ => Vec::new(),
        };
        if extents.is_empty() {
            return self.is_cut(ino);
        }
        self.purger.cutting.insert(ino, (extents.len(), cut.seq));
        let snapc = self.tree.snap_context(ino);
        for e in extents {
            let id = self.job(Job::Cut(ino));
            let op = IoOp::TrimTruncate { size: e.off, seq: cut.seq };
            self.io_behind(Io {
                id,
                pool: layout.pool,
                object: object_name(ino, e.object),
                nspace: layout.pool_ns.clone(),
                snapc: snapc.clone(),
                ops: vec![op],
            });
        }
    }

    /// One object of a file is cut, or was not there.
    pub fn cut_done(&mut self, ino: Ino, result: Result<(), Errno>) {
        if let Err(e) = result
            && e != Errno::NOENT
        {
            tracing::warn!(%ino, ?e, "an object of a file that was cut stays as it was");
        }
        let Some((left, seq)) = self.purger.cutting.get_mut(&ino) else { return };
        *left -= 1;
        if *left > 0 {
            return;
        }
        let seq = *seq;
        self.purger.cutting.remove(&ino);
        match self.tree.node(ino).map(|n| n.store.inode.file.truncate.seq) {
            Some(newest) if newest != seq => drop(self.purger.cuts.insert(ino)),
            Some(_) => self.is_cut(ino),
            None => {}
        }
    }

    fn is_cut(&mut self, ino: Ino) {
        let mut txn = Txn::at(self.world.time());
        self.tree.at_mut(ino).store.inode.file.truncate.pending = 0;
        self.tree.touch(&mut txn, ino);
        self.commit(txn);
        self.requests.wake_caps(ino);
    }
}
