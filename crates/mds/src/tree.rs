//! The tree in memory: inodes, the fragments of directories that were read, and what of them
//! is not written back yet.
//!
//! Invariants: a fragment is in memory whole or not at all; an inode is in memory while the
//! fragment with its primary entry is; a fragment's version is at least that of each inode in
//! it; what a directory's fragments say and the directory's inode does not is the difference
//! between `fragstat` and `accounted_fragstat`, and the same with `rstat`.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use maps::fs::{
    DentryKey, DentryLink, DentryValue, DirFrag, Fnode, Frag, InodeStore, NestInfo, SnapInfo,
    SystemInode, dentry_hash, inos,
};
use types::{Denc, Ino, SnapId, UTime};

use crate::capset::CapSet;
use crate::damage::Damages;
use crate::flock::FileLocks;
use crate::heat::Heat;
use crate::record::Change;
use crate::snap::Past;
use crate::tags::{Place, SERVER, Tags};

/// Where an entry leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    Primary(Ino),
    Remote { ino: Ino, d_type: u8 },
}

impl Link {
    pub const fn ino(&self) -> Ino {
        match self {
            Self::Primary(ino) | Self::Remote { ino, .. } => *ino,
        }
    }
}

/// An entry that is there now.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub first: SnapId,
    pub alternate_name: Bytes,
    pub link: Link,
}

/// What of a fragment is not written back.
#[derive(Debug, Default)]
pub(crate) struct Dirty {
    /// Names whose entries changed.
    pub names: BTreeSet<Bytes>,
    /// Entries that only snapshots have and that changed.
    pub past: BTreeSet<(Bytes, SnapId)>,
    /// The oldest journal object with a change that is not written; none: all is written.
    pub since: Option<u64>,
    /// When it began to be dirty.
    pub at_ms: u64,
    /// The same of what a write-back on its way has.
    pub writing_since: Option<u64>,
    /// How many entries that has.
    pub writing: usize,
    /// What of them is still to be sent.
    pub commit: Option<Box<Commit>>,
}

/// A write-back of a fragment that takes several writes.
#[derive(Debug)]
pub(crate) struct Commit {
    /// Entries that are to be written, the last first.
    pub names: Vec<(Bytes, SnapId)>,
    /// The fragment's header when it began: it goes with the last of them.
    pub header: Bytes,
}

impl Dirty {
    /// Entries that are not written back.
    fn len(&self) -> usize {
        self.names.len() + self.past.len() + self.writing
    }
}

/// A fragment that was read, or was made here.
#[derive(Debug, Default)]
pub(crate) struct Fragment {
    pub fnode: Fnode,
    pub entries: BTreeMap<Bytes, Entry>,
    /// Entries that only snapshots have, by name and the last of these.
    pub past: BTreeMap<(Bytes, SnapId), Past>,
    pub dirty: Dirty,
    /// There is no object of it yet.
    pub fresh: bool,
    /// When somebody looked into it last.
    pub used_ms: Cell<u64>,
    /// What was asked of it lately.
    pub heat: Cell<Heat>,
}

/// An inode.
#[derive(Debug)]
pub(crate) struct Node {
    pub store: InodeStore,
    /// The directory and name of its primary entry; none for the root and `~mds<rank>`.
    pub at: Option<(Ino, Bytes)>,
    pub frags: BTreeMap<Frag, Fragment>,
    pub caps: CapSet,
    pub locks: FileLocks,
    /// Its backtrace is to be stored: the oldest journal object that says so.
    pub trace_since: Option<u64>,
    /// The first snapshot that it has as it is now; see [`Node::first`].
    pub first: SnapId,
    /// Clients that may have changed it before this snapshot and did not tell yet.
    pub unflushed: BTreeMap<i64, SnapId>,
}

impl Node {
    pub fn new(store: InodeStore, at: Option<(Ino, Bytes)>) -> Self {
        Self {
            store,
            at,
            frags: BTreeMap::new(),
            caps: CapSet::default(),
            locks: FileLocks::default(),
            trace_since: None,
            first: SnapId(2),
            unflushed: BTreeMap::new(),
        }
    }

    pub const fn is_dir(&self) -> bool {
        self.store.inode.is_dir()
    }

    /// Whether its last name is gone.
    pub fn is_stray(&self) -> bool {
        self.at.as_ref().is_some_and(|(dir, _)| inos::stray_of(*dir).is_some())
    }

    /// The fragment that holds `name`.
    pub fn frag_of(&self, name: &[u8]) -> Frag {
        self.store.fragtree.leaf_of(dentry_hash(self.store.inode.dir.hash, name) & 0xff_ffff)
    }

    /// What a directory's fragments in memory say beyond the inode.
    fn unsettled(&self) -> Sums {
        let mut sums = Sums::default();
        for f in self.frags.values().map(|f| &f.fnode) {
            sums.files += f.fragstat.nfiles - f.accounted_fragstat.nfiles;
            sums.dirs += f.fragstat.nsubdirs - f.accounted_fragstat.nsubdirs;
            nest_add(&mut sums.nest, &f.rstat, 1);
            nest_add(&mut sums.nest, &f.accounted_rstat, -1);
            if f.fragstat.change_attr > f.accounted_fragstat.change_attr {
                sums.changes += f.fragstat.change_attr - f.accounted_fragstat.change_attr;
                sums.mtime = sums.mtime.max(f.fragstat.mtime);
                sums.ctime = sums.mtime;
            }
            sums.nest.rctime = sums.nest.rctime.max(f.rstat.rctime);
        }
        sums
    }

    /// The same with what the inode says.
    fn sums(&self) -> Sums {
        let (i, mut sums) = (&self.store.inode, self.unsettled());
        sums.files += i.dir.dirstat.nfiles;
        sums.dirs += i.dir.dirstat.nsubdirs;
        nest_add(&mut sums.nest, &i.dir.rstat, 1);
        sums.nest.rctime = sums.nest.rctime.max(i.dir.rstat.rctime);
        sums.mtime = sums.mtime.max(i.times.mtime);
        sums.ctime = sums.ctime.max(i.times.ctime);
        sums.changes += i.versions.change_attr;
        sums
    }
}

/// What a directory's entries add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    pub files: i64,
    pub dirs: i64,
    /// Of all below.
    pub nest: NestInfo,
    /// Of the newest change, and where somebody set another one.
    pub mtime: UTime,
    /// Of the newest change, of the inode itself too.
    pub ctime: UTime,
    /// How many there were.
    pub changes: u64,
}

/// Adds `sign` times the sums of `b`.
pub(crate) fn nest_add(a: &mut NestInfo, b: &NestInfo, sign: i64) {
    a.rbytes += sign * b.rbytes;
    a.rfiles += sign * b.rfiles;
    a.rsubdirs += sign * b.rsubdirs;
    a.rsnaps += sign * b.rsnaps;
}

/// What one operation changed; becomes one record.
#[derive(Debug, Default)]
pub(crate) struct Txn {
    entries: BTreeMap<DirFrag, BTreeSet<Bytes>>,
    past: BTreeMap<DirFrag, BTreeSet<(Bytes, SnapId)>>,
    fresh: BTreeSet<DirFrag>,
    system: BTreeSet<Ino>,
    /// Inodes whose backtrace is another now.
    pub traces: BTreeSet<Ino>,
    /// What else is recorded.
    pub other: Vec<Change>,
    /// It changes what is inherited by all below, or snapshots: nobody sees anything of it early.
    pub hard: bool,
    /// When the operation happens.
    pub time: UTime,
}

impl Txn {
    pub fn at(time: UTime) -> Self {
        Self { time, ..Self::default() }
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.system.is_empty() && self.other.is_empty()
    }

    pub fn entry(&mut self, dir: DirFrag, name: &Bytes) {
        self.entries.entry(dir).or_default().insert(name.clone());
    }

    /// A fragment begins: there was no object of it.
    pub fn begin_frag(&mut self, dir: DirFrag) {
        self.fresh.insert(dir);
        self.entries.entry(dir).or_default();
    }

    /// Fragments of a directory end: nothing is recorded of them.
    pub fn forget_frags(&mut self, ino: Ino, frags: &[Frag]) {
        for frag in frags {
            let dir = DirFrag { ino, frag: *frag };
            self.entries.remove(&dir);
            self.past.remove(&dir);
        }
    }

    /// An entry that only snapshots have was added or removed.
    pub fn past(&mut self, dir: DirFrag, name: &Bytes, last: SnapId) {
        self.entries.entry(dir).or_default();
        self.past.entry(dir).or_default().insert((name.clone(), last));
    }
}

/// The inodes in memory.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// Boxed: a map has room for nearly twice as many as it holds when numbers ascend.
    pub nodes: BTreeMap<Ino, Box<Node>>,
    /// Fragments with something to write back.
    pub dirty: BTreeSet<DirFrag>,
    /// Directories whose sums are not told upward.
    pub unsettled: BTreeSet<Ino>,
    /// System inodes to write back, by the oldest journal object with a change.
    pub system: BTreeMap<Ino, u64>,
    /// System inodes that are being written.
    pub system_writing: BTreeMap<Ino, u64>,
    /// Inodes whose backtrace is to be stored.
    pub traces: BTreeSet<Ino>,
    /// Those whose backtrace is being stored.
    pub traces_writing: BTreeMap<Ino, u64>,
    /// Entries that are not written back, as last counted and by what came and went since.
    pub unwritten_entries: usize,
    /// What cannot be read.
    pub damaged: Damages,
    /// The first snapshot that a new entry is in.
    pub first: SnapId,
    /// Milliseconds, about: for [`Fragment::used_ms`].
    pub clock: u64,
    /// All snapshots.
    pub snaps: BTreeMap<SnapId, SnapInfo>,
    /// What is not durable.
    pub tags: Tags,
}

/// Bytes that do not keep the message or answer that they came in.
fn own(bytes: &Bytes) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

/// A fragment has to be read first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Missing(pub DirFrag);

impl Tree {
    pub fn node(&self, ino: Ino) -> Option<&Node> {
        self.tags.see_inode(ino);
        self.above(ino)
    }

    /// An inode for what is inherited from it, which is not noted: a record that changes that is hard.
    pub fn above(&self, ino: Ino) -> Option<&Node> {
        self.nodes.get(&ino).map(AsRef::as_ref)
    }

    /// # Panics
    /// Without that inode.
    pub fn at(&self, ino: Ino) -> &Node {
        self.node(ino).expect("the inode was looked up before")
    }

    /// # Panics
    /// Without that inode.
    pub fn at_mut(&mut self, ino: Ino) -> &mut Node {
        self.tags.see_inode(ino);
        self.nodes.get_mut(&ino).expect("the inode was looked up before")
    }

    pub fn dirfrag(&self, dir: Ino, name: &[u8]) -> DirFrag {
        DirFrag { ino: dir, frag: self.at(dir).frag_of(name) }
    }

    /// A fragment, of which anything may be read: its listing and sums are noted.
    pub fn fragment(&self, dir: DirFrag) -> Option<&Fragment> {
        self.tags.see_sums(dir.ino);
        self.part(dir)
    }

    /// A fragment of which nothing is told to clients.
    pub fn part(&self, dir: DirFrag) -> Option<&Fragment> {
        self.nodes.get(&dir.ino)?.frags.get(&dir.frag)
    }

    /// What a directory adds up to: its inode, and what its fragments say beyond that.
    pub fn totals(&self, dir: Ino) -> Sums {
        self.tags.see_sums(dir);
        self.at(dir).sums()
    }

    /// What a directory adds up to as a client sees it that has just changed it: with what is durable
    /// alone where others changed it lately, so that nobody waits for their records. Such sums come
    /// without caps that they would be good for.
    pub fn sums_after(&self, dir: Ino, client: i64) -> Sums {
        self.tags.durable_sums(dir, client).unwrap_or_else(|| self.totals(dir))
    }

    pub fn fragment_mut(&mut self, dir: DirFrag) -> Option<&mut Fragment> {
        self.nodes.get_mut(&dir.ino)?.frags.get_mut(&dir.frag)
    }

    /// The entry of a name, if there is one.
    pub fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Option<&Entry>, Missing> {
        let at = self.dirfrag(dir, name);
        let fragment = self.part(at).ok_or(Missing(at))?;
        fragment.used_ms.set(self.clock);
        self.tags.see_name(dir, name);
        Ok(fragment.entries.get(name))
    }

    /// Directories above, the nearest first. Not noted: a record that gives a directory another place
    /// is hard.
    pub fn ancestors(&self, ino: Ino) -> impl Iterator<Item = Ino> {
        let up = |ino: &Ino| self.nodes.get(ino).and_then(|n| n.at.as_ref()).map(|(dir, _)| *dir);
        std::iter::successors(up(&ino), move |ino| up(ino))
    }

    /// The path from the root, without a leading slash; of a stray the path that it had.
    pub fn path(&self, ino: Ino) -> Vec<u8> {
        let mut names = Vec::new();
        let mut at = ino;
        while let Some(node) = self.nodes.get(&at) {
            if node.is_stray() {
                names.push(node.store.inode.stray_prior_path.clone());
                break;
            }
            let Some((dir, name)) = &node.at else { break };
            names.push(name.clone());
            at = *dir;
        }
        names.reverse();
        let path = names.join(&b'/');
        path.strip_prefix(b"/").map(<[u8]>::to_vec).unwrap_or(path)
    }

    /// What an inode adds to the sums of the fragment with its primary entry.
    fn nest_of(&self, ino: Ino) -> NestInfo {
        self.at(ino).store.inode.dir.rstat
    }

    fn bump(&mut self, dir: DirFrag) -> u64 {
        self.bump_past(dir, 0)
    }

    /// The fragment's next version, which is beyond `least`, too: an inode that comes from another
    /// directory has had versions, and clients take nothing that is older than what they know.
    fn bump_past(&mut self, dir: DirFrag, least: u64) -> u64 {
        let fragment = self.fragment_mut(dir).expect("a changed fragment is in memory");
        fragment.fnode.version = fragment.fnode.version.max(least) + 1;
        fragment.fnode.version
    }

    /// What clients see of an inode changed, and no record says so yet: its version grows.
    fn bump_view(&mut self, ino: Ino) {
        let node = self.nodes.get_mut(&ino).expect("a changed directory is in memory");
        let Some((dir, name)) = node.at.clone() else {
            node.store.inode.versions.version += 1;
            return;
        };
        let Some(above) = self.nodes.get_mut(&dir) else { return };
        let frag = above.frag_of(&name);
        let Some(fragment) = above.frags.get_mut(&frag) else { return };
        fragment.fnode.version += 1;
        let version = fragment.fnode.version;
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.store.inode.versions.version = version;
        }
    }

    /// An entry was added (`sign` 1) or removed (-1): counts it.
    fn count(&mut self, txn: &Txn, dir: DirFrag, is_dir: bool, nest: NestInfo, sign: i64) {
        let fragment = self.fragment_mut(dir).expect("a changed fragment is in memory");
        let (stat, sums) = (&mut fragment.fnode.fragstat, &mut fragment.fnode.rstat);
        if is_dir {
            stat.nsubdirs += sign;
        } else {
            stat.nfiles += sign;
        }
        stat.mtime = stat.mtime.max(txn.time);
        stat.change_attr += 1;
        nest_add(sums, &nest, sign);
        sums.rctime = sums.rctime.max(txn.time).max(nest.rctime);
        self.unsettled.insert(dir.ino);
        self.bump_view(dir.ino);
    }

    /// Adds a primary entry for an inode, which is in memory afterwards.
    pub fn link(&mut self, txn: &mut Txn, dir: Ino, name: &Bytes, mut node: Node, alt: Bytes) {
        let name = &own(name);
        let at = self.dirfrag(dir, name);
        let version = self.bump_past(at, node.store.inode.versions.version);
        let ino = node.store.inode.ino;
        node.at = Some((dir, name.clone()));
        let inode = &mut node.store.inode;
        inode.versions.version = version;
        inode.versions.backtrace = version;
        inode.dir.accounted_rstat = inode.dir.rstat;
        let (is_dir, nest, first) = (inode.is_dir(), inode.dir.rstat, self.first);
        node.first = first;
        self.nodes.insert(ino, Box::new(node));
        let entry = Entry { first, alternate_name: alt, link: Link::Primary(ino) };
        let fragment = self.fragment_mut(at).expect("a changed fragment is in memory");
        fragment.entries.insert(name.clone(), entry);
        self.count(txn, at, is_dir, nest, 1);
        txn.entry(at, name);
        txn.traces.insert(ino);
    }

    /// Adds a further name of an inode.
    pub fn link_remote(&mut self, txn: &mut Txn, dir: Ino, name: &Bytes, ino: Ino, d_type: u8) {
        let name = &own(name);
        let at = self.dirfrag(dir, name);
        self.bump(at);
        let link = Link::Remote { ino, d_type };
        let entry = Entry { first: self.first, alternate_name: Bytes::new(), link };
        let fragment = self.fragment_mut(at).expect("a changed fragment is in memory");
        fragment.entries.insert(name.clone(), entry);
        self.count(txn, at, d_type == maps::fs::dtype::DIR, NestInfo::default(), 1);
        txn.entry(at, name);
    }

    /// Removes an entry. Returns the inode of a primary one, which is nowhere then.
    pub fn unlink(&mut self, txn: &mut Txn, dir: Ino, name: &Bytes) -> Option<Node> {
        self.cow_name(txn, dir, name);
        let at = self.dirfrag(dir, name);
        self.bump(at);
        let fragment = self.fragment_mut(at).expect("a changed fragment is in memory");
        let entry = fragment.entries.remove(name)?;
        txn.entry(at, name);
        match entry.link {
            Link::Primary(ino) => {
                if self.at(ino).is_dir() {
                    self.settle(txn, ino);
                    self.push_nest(ino);
                }
                let nest = self.at(ino).store.inode.dir.accounted_rstat;
                let node = self.nodes.remove(&ino).expect("an entry's inode is in memory");
                self.count(txn, at, node.is_dir(), nest, -1);
                Some(*node)
            }
            Link::Remote { d_type, .. } => {
                let is_dir = d_type == maps::fs::dtype::DIR;
                self.count(txn, at, is_dir, NestInfo::default(), -1);
                None
            }
        }
    }

    /// An inode is about to change, or did: its entry will be recorded with a new version.
    pub fn touch(&mut self, txn: &mut Txn, ino: Ino) {
        if self.at(ino).is_dir() {
            self.cow(txn, ino);
            self.settle(txn, ino);
        }
        let Some((dir, name)) = self.at(ino).at.clone() else {
            let node = self.at_mut(ino);
            node.store.inode.versions.version += 1;
            node.store.inode.dir.accounted_rstat = node.store.inode.dir.rstat;
            txn.system.insert(ino);
            return;
        };
        let at = self.dirfrag(dir, &name);
        let version = self.bump(at);
        self.at_mut(ino).store.inode.versions.version = version;
        self.push_nest(ino);
        txn.entry(at, &name);
    }

    /// Tells the fragment with an inode's entry what changed in the inode's sums.
    fn push_nest(&mut self, ino: Ino) {
        let node = self.at(ino);
        let (now, before) = (self.nest_of(ino), node.store.inode.dir.accounted_rstat);
        if now == before {
            return;
        }
        let Some((dir, name)) = node.at.clone() else { return };
        let at = self.dirfrag(dir, &name);
        let fragment = self.fragment_mut(at).expect("a changed fragment is in memory");
        let sums = &mut fragment.fnode.rstat;
        nest_add(sums, &now, 1);
        nest_add(sums, &before, -1);
        sums.rctime = sums.rctime.max(now.rctime);
        self.at_mut(ino).store.inode.dir.accounted_rstat = now;
        self.unsettled.insert(dir);
    }

    /// Tells a directory's inode what its fragments count.
    fn settle(&mut self, txn: &mut Txn, ino: Ino) {
        let node = self.at_mut(ino);
        let Sums { files, dirs, nest, mtime, changes, .. } = node.unsettled();
        self.unsettled.remove(&ino);
        let node = self.at_mut(ino);
        let inode = &mut node.store.inode;
        inode.dir.dirstat.nfiles += files;
        inode.dir.dirstat.nsubdirs += dirs;
        inode.dir.dirstat.change_attr += changes;
        nest_add(&mut inode.dir.rstat, &nest, 1);
        inode.dir.rstat.rctime = inode.dir.rstat.rctime.max(nest.rctime);
        if changes > 0 {
            inode.dir.dirstat.mtime = inode.dir.dirstat.mtime.max(mtime);
            inode.times.mtime = inode.times.mtime.max(mtime);
            inode.times.ctime = inode.times.ctime.max(mtime);
            inode.versions.change_attr += changes;
        }
        let (dirstat, rstat) = (inode.dir.dirstat.version, inode.dir.rstat.version);
        let mut changed = Vec::new();
        for (frag, fragment) in &mut node.frags {
            let f = &mut fragment.fnode;
            if f.fragstat != f.accounted_fragstat || f.rstat != f.accounted_rstat {
                f.fragstat.version = dirstat;
                f.rstat.version = rstat;
                f.accounted_fragstat = f.fragstat;
                f.accounted_rstat = f.rstat;
                changed.push(DirFrag { ino, frag: *frag });
            }
        }
        for dir in changed {
            self.bump(dir);
            txn.entries.entry(dir).or_default();
        }
    }

    /// Tells all sums upward, the deepest directory first.
    pub fn settle_all(&mut self, txn: &mut Txn) {
        let mut by_depth = BTreeSet::new();
        loop {
            // What is told is news to the directory above.
            for ino in std::mem::take(&mut self.unsettled) {
                by_depth.insert((self.ancestors(ino).count(), ino));
            }
            let Some((_, ino)) = by_depth.pop_last() else { return };
            if self.node(ino).is_some() {
                self.touch(txn, ino);
            }
        }
    }

    /// A new directory begins with one empty fragment.
    pub fn begin_dir(&mut self, txn: &mut Txn, ino: Ino) {
        let fnode = Fnode { version: 1, ..Fnode::default() };
        let fragment = Fragment { fnode, fresh: true, ..Fragment::default() };
        self.at_mut(ino).frags.insert(Frag::ROOT, fragment);
        let dir = DirFrag { ino, frag: Frag::ROOT };
        txn.fresh.insert(dir);
        txn.entries.entry(dir).or_default();
    }

    /// The value of an entry as it stands now.
    pub fn value(&self, entry: &Entry) -> Bytes {
        let link = match &entry.link {
            Link::Primary(ino) => DentryLink::Primary(Box::new(self.at(*ino).store.clone())),
            Link::Remote { ino, d_type } => DentryLink::Remote { ino: *ino, d_type: *d_type },
        };
        let alternate_name = entry.alternate_name.clone();
        DentryValue { first: entry.first, alternate_name, link }.to_bytes()
    }

    /// The object's contents of a system inode.
    pub fn system_inode(&self, ino: Ino) -> Bytes {
        SystemInode(self.at(ino).store.clone()).to_bytes()
    }

    /// What a transaction changed, for the journal.
    pub fn changes(&self, txn: &Txn) -> Vec<Change> {
        let mut changes = Vec::new();
        for (dir, names) in &txn.entries {
            let Some(fragment) = self.part(*dir) else { continue };
            let (mut set, mut removed) = (Vec::new(), Vec::new());
            for name in names {
                let key = DentryKey::head(name.clone()).to_bytes();
                match fragment.entries.get(name) {
                    Some(entry) => set.push((key, self.value(entry))),
                    None => removed.push(key),
                }
            }
            for (name, last) in txn.past.get(dir).into_iter().flatten() {
                let key = DentryKey { name: name.clone(), last: *last }.to_bytes();
                match fragment.past.get(&(name.clone(), *last)) {
                    Some(past) => set.push((key, past.value.clone())),
                    None => removed.push(key),
                }
            }
            changes.push(Change::Frag {
                dir: *dir,
                fresh: txn.fresh.contains(dir),
                fnode: Box::new(fragment.fnode),
                set,
                removed,
            });
        }
        for ino in &txn.system {
            let version = self.at(*ino).store.inode.versions.version;
            changes.push(Change::System { ino: *ino, version, inode: self.system_inode(*ino) });
        }
        changes.extend(txn.other.iter().cloned());
        changes
    }

    /// Leaves tags of the record `seq` at what a transaction changed; see [`Tags`].
    pub fn leave_tags(&mut self, txn: &Txn, seq: u64, author: i64) {
        let mut places = Vec::new();
        for (dir, names) in &txn.entries {
            places.push(Place::Sums(dir.ino));
            let fragment = self.part(*dir);
            for name in names {
                places.push(Place::Name(dir.ino, name.clone()));
                if let Some(Link::Primary(ino)) =
                    fragment.and_then(|f| f.entries.get(name)).map(|e| &e.link)
                {
                    places.push(Place::Inode(*ino));
                }
            }
        }
        for ino in &txn.system {
            places.extend([Place::Inode(*ino), Place::Sums(*ino)]);
        }
        let under = if author == SERVER { 0 } else { self.tags.newest() };
        self.tags.leave((seq, author, under), places);
        for dir in txn.entries.keys().map(|dir| dir.ino) {
            if let Some(node) = self.nodes.get(&dir) {
                self.tags.keep_sums(dir, seq, node.sums());
            }
        }
        if txn.hard || txn.other.iter().any(|c| matches!(c, Change::Snaps { .. })) {
            self.tags.leave_hard(seq);
        }
    }

    /// The record of a transaction is in journal object `object`: what it changed is dirty.
    pub fn mark(&mut self, txn: &Txn, object: u64, now_ms: u64) {
        for (dir, names) in &txn.entries {
            let Some(fragment) = self.fragment_mut(*dir) else { continue };
            let dirty = &mut fragment.dirty;
            let before = dirty.len();
            dirty.names.extend(names.iter().cloned());
            dirty.past.extend(txn.past.get(dir).into_iter().flatten().cloned());
            let more = dirty.len() - before;
            if dirty.since.is_none() {
                (dirty.since, dirty.at_ms) = (Some(object), now_ms);
            }
            self.unwritten_entries += more;
            self.dirty.insert(*dir);
        }
        for ino in &txn.system {
            self.system.entry(*ino).or_insert(object);
        }
        for ino in &txn.traces {
            if let Some(node) = self.nodes.get_mut(ino) {
                node.trace_since.get_or_insert(object);
                self.traces.insert(*ino);
            }
        }
    }

    /// Entries, and inodes with their backtraces, that are not written back.
    pub fn unwritten(&self) -> usize {
        self.unwritten_entries.max(self.traces.len() + self.traces_writing.len())
    }

    /// Counts them anew. Costs a look at each dirty fragment.
    pub fn count_unwritten(&mut self) {
        let dirty = self.dirty.iter().filter_map(|dir| self.part(*dir));
        self.unwritten_entries = dirty.map(|f| f.dirty.len()).sum();
    }

    /// A fragment was read: its entries and inodes are in memory now.
    ///
    /// # Errors
    /// What cannot be read; nothing is taken then.
    pub fn load(
        &mut self,
        dir: DirFrag,
        header: &[u8],
        pairs: BTreeMap<Bytes, Bytes>,
    ) -> Result<(), types::DecodeError> {
        let mut fragment = Fragment { fnode: Fnode::from_bytes(header)?, ..Fragment::default() };
        let mut nodes = Vec::new();
        for (key, value) in pairs {
            let Some(parsed) = DentryKey::parse(&key) else {
                tracing::warn!(%dir, ?key, "a key that is no entry's");
                continue;
            };
            // What stays is copied: a part of the answer would keep all of it.
            let name = own(&parsed.name);
            if parsed.last != SnapId::HEAD {
                let first = DentryValue::from_shared(&value)?.first;
                fragment.past.insert((name, parsed.last), Past { first, value: own(&value) });
                continue;
            }
            let value = DentryValue::from_bytes(&value)?;
            let link = match value.link {
                DentryLink::Primary(store) => {
                    let ino = store.inode.ino;
                    nodes.push((ino, name.clone(), *store, value.first));
                    Link::Primary(ino)
                }
                DentryLink::Remote { ino, d_type } => Link::Remote { ino, d_type },
            };
            let alternate_name = value.alternate_name;
            fragment.entries.insert(name, Entry { first: value.first, alternate_name, link });
        }
        fragment.used_ms.set(self.clock);
        let f = &fragment.fnode;
        if f.fragstat != f.accounted_fragstat || f.rstat != f.accounted_rstat {
            self.unsettled.insert(dir.ino);
        }
        for (ino, name, store, first) in nodes {
            let new = || Box::new(Node { first, ..Node::new(store, Some((dir.ino, name))) });
            self.nodes.entry(ino).or_insert_with(new);
        }
        if let Some(node) = self.nodes.get_mut(&dir.ino) {
            node.frags.insert(dir.frag, fragment);
        }
        Ok(())
    }
}
