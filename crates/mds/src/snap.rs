//! Snapshots: which there are of an inode, and the versions of entries and inodes that only they
//! have.
//!
//! A version is kept when what it is of changes first, and not when the snapshot is made:
//!
//! | what changes | what is kept, where |
//! |---|---|
//! | a file with one name | an entry `NAME_<last snapshot>` beside its own, with the old inode |
//! | a directory, a file with several names, one that was moved | [`OldInode`] in the inode |
//! | the name of such an inode | an entry `NAME_<last snapshot>` that leads to its number |
//!
//! Nothing is kept that no snapshot needs. A realm's snapshots are its own, those of realms that it
//! was below of, and its parent's since it is there.
//!
//! Source: the peer's `SnapRealm.cc`, `MDCache::journal_cow_dentry`, `CInode::cow_old_inode`.

use std::collections::BTreeSet;

use bytes::Bytes;
use maps::fs::{DentryLink, DentryValue, InodeStore, OldInode, SnapRealm, dtype, inos};
use types::{Denc, Ino, SnapId};

use crate::tree::{Fragment, Link, Missing, Node, Tree, Txn};

/// A directory that no path is deeper than; keeps what is followed bounded.
const DEPTH_MAX: usize = 4096;

/// An entry that only snapshots have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Past {
    pub first: SnapId,
    /// The encoded [`DentryValue`].
    pub value: Bytes,
}

/// What a name led to when a snapshot was made.
#[derive(Clone, Debug)]
pub(crate) enum Then {
    /// This inode, as it is told there.
    Inode(Box<InodeStore>),
    /// An inode that has its versions with it.
    Number(Ino),
}

impl Node {
    /// Whether its versions are in the inode and not beside its entry.
    fn keeps_versions(&self) -> bool {
        let s = &self.store;
        !s.snap_realm.is_empty() || self.is_dir() || s.inode.nlink > 1 || !s.old_inodes.is_empty()
    }

    /// The first snapshot that it has as it is now.
    pub fn first(&self) -> SnapId {
        let behind = self.store.old_inodes.last_key_value().map_or(0, |(last, _)| last.0 + 1);
        SnapId(self.first.0.max(behind))
    }

    /// The first snapshot that it may be in.
    pub fn oldest(&self) -> SnapId {
        let old = self.store.old_inodes.values().next().map(|o| o.first);
        // A version beside the entry leaves its mark here: the objects are still shared with it.
        old.unwrap_or_else(|| self.first()).min(self.first()).min(self.store.oldest_snap)
    }

    /// The inode as it was in a snapshot; none where it was not there.
    pub fn version_at(&self, snap: SnapId) -> Option<InodeStore> {
        if let Some((_, old)) = self.store.old_inodes.range(snap..).next() {
            if old.first > snap {
                return None;
            }
            let inode = old.inode.clone();
            let xattrs = old.xattrs.clone();
            return Some(InodeStore { inode, xattrs, ..self.store.clone() });
        }
        (self.first() <= snap).then(|| self.store.clone())
    }

    /// Its realm, as stored.
    pub fn realm(&self) -> SnapRealm {
        SnapRealm::from_shared(&self.store.snap_realm).unwrap_or_default()
    }
}

impl Fragment {
    /// The entry that only snapshots have, of `snap` and others.
    pub fn past_at(&self, name: &Bytes, snap: SnapId) -> Option<&Past> {
        let from = (name.clone(), snap);
        let to = (name.clone(), SnapId::HEAD);
        let (_, past) = self.past.range(from..=to).next()?;
        (past.first <= snap).then_some(past)
    }

    /// An inode that only snapshots have here.
    pub fn past_inode(&self, ino: Ino, snap: SnapId) -> Option<crate::ops::Seen> {
        let mut all = self.past.iter().filter(|((_, last), p)| *last >= snap && p.first <= snap);
        all.find_map(|(_, past)| match DentryValue::from_shared(&past.value).ok()?.link {
            DentryLink::Primary(store) if store.inode.ino == ino => {
                Some(crate::ops::Seen { snap, store })
            }
            _ => None,
        })
    }

    /// Names that a snapshot has here.
    pub fn names_at(&self, snap: SnapId) -> BTreeSet<Bytes> {
        let head = self.entries.iter().filter(|(_, e)| e.first <= snap).map(|(n, _)| n.clone());
        let past = self.past.iter().filter(|((_, last), p)| *last >= snap && p.first <= snap);
        head.chain(past.map(|((name, _), _)| name.clone())).collect()
    }
}

impl Tree {
    /// The newest change of snapshots anywhere.
    pub fn follows(&self) -> SnapId {
        SnapId(self.first.0.saturating_sub(1))
    }

    pub fn is_realm(&self, ino: Ino) -> bool {
        self.above(ino).is_some_and(|n| !n.store.snap_realm.is_empty())
    }

    /// The realm that an inode belongs to: the nearest one from itself upward.
    pub fn realm_of(&self, ino: Ino) -> Ino {
        let mut up = std::iter::once(ino).chain(self.ancestors(ino)).take(DEPTH_MAX);
        up.find(|i| self.is_realm(*i)).unwrap_or(inos::ROOT)
    }

    /// The realm above another; none above the root's and that of stray directories.
    pub fn realm_above(&self, realm: Ino) -> Option<Ino> {
        let node = self.above(realm)?;
        let (dir, _) = node.at.as_ref()?;
        Some(self.realm_of(*dir))
    }

    /// All snapshots that what is in a realm belongs to.
    pub fn snaps_of_realm(&self, realm: Ino) -> BTreeSet<SnapId> {
        let mut all = BTreeSet::new();
        let (mut at, mut since) = (Some(realm), SnapId(0));
        while let Some(realm) = at.filter(|_| !self.snaps.is_empty()) {
            let Some(node) = self.above(realm) else { break };
            let r = node.realm();
            let past = r.past_parent_snaps.iter().filter(|s| self.snaps.contains_key(s));
            all.extend(r.snaps.keys().chain(past).filter(|s| **s >= since));
            since = since.max(r.current_parent_since);
            if r.flags & SnapRealm::PARENT_GLOBAL != 0 {
                all.extend(self.snaps.range(since..).map(|(snap, _)| *snap));
                break;
            }
            at = self.realm_above(realm);
        }
        all
    }

    /// All snapshots that an inode belongs to.
    pub fn snaps_of(&self, ino: Ino) -> BTreeSet<SnapId> {
        if self.snaps.is_empty() {
            return BTreeSet::new();
        }
        self.snaps_of_realm(self.realm_of(ino))
    }

    /// An inode is about to change: keeps what snapshots have of it.
    pub fn cow(&mut self, txn: &mut Txn, ino: Ino) {
        if self.snaps.is_empty() {
            return;
        }
        let node = self.at(ino);
        match node.at.clone() {
            Some((dir, name)) if !node.keeps_versions() => self.cow_entry(txn, dir, &name),
            _ => self.cow_inode(ino),
        }
    }

    fn cow_inode(&mut self, ino: Ino) {
        let follows = self.follows();
        let first = self.at(ino).first();
        if follows < first {
            return;
        }
        let needed = self.snaps_of(ino).range(first..=follows).next().is_some();
        let node = self.at_mut(ino);
        if needed {
            let store = kept(node);
            let (inode, xattrs) = (store.inode, store.xattrs);
            node.store.old_inodes.insert(follows, OldInode { first, inode, xattrs });
        }
        node.first = SnapId(follows.0 + 1);
    }

    /// A name is about to lead elsewhere, or nowhere: keeps what snapshots have of it.
    pub fn cow_name(&mut self, txn: &mut Txn, dir: Ino, name: &Bytes) {
        if self.snaps.is_empty() {
            return;
        }
        let at = self.dirfrag(dir, name);
        let Some(entry) = self.part(at).and_then(|f| f.entries.get(name)) else { return };
        if let Link::Primary(ino) = entry.link
            && self.at(ino).keeps_versions()
        {
            self.cow_inode(ino);
        }
        self.cow_entry(txn, dir, name);
    }

    fn cow_entry(&mut self, txn: &mut Txn, dir: Ino, name: &Bytes) {
        let follows = self.follows();
        let at = self.dirfrag(dir, name);
        let Some(entry) = self.part(at).and_then(|f| f.entries.get(name)) else { return };
        if follows < entry.first {
            return;
        }
        let (first, link) = (entry.first, entry.link.clone());
        let needed = self.snaps_of(dir).range(first..=follows).next().is_some();
        if needed {
            let link = match &link {
                Link::Primary(ino) => {
                    let node = self.at(*ino);
                    if node.keeps_versions() {
                        let d_type = dtype::of_mode(node.store.inode.mode);
                        DentryLink::Remote { ino: *ino, d_type }
                    } else {
                        DentryLink::Primary(Box::new(kept(node)))
                    }
                }
                Link::Remote { ino, d_type } => DentryLink::Remote { ino: *ino, d_type: *d_type },
            };
            let alternate_name = entry.alternate_name.clone();
            let value = DentryValue { first, alternate_name, link }.to_bytes();
            let fragment = self.fragment_mut(at).expect("it was looked at");
            fragment.past.insert((name.clone(), follows), Past { first, value });
            txn.past(at, name, follows);
        }
        let next = SnapId(follows.0 + 1);
        let fragment = self.fragment_mut(at).expect("it was looked at");
        if let Some(entry) = fragment.entries.get_mut(name) {
            entry.first = next;
        }
        if let Link::Primary(ino) = link {
            let node = self.at_mut(ino);
            node.first = node.first.max(next);
            if needed {
                node.store.oldest_snap = node.store.oldest_snap.min(first);
            }
        }
        txn.entry(at, name);
    }

    /// Changes what a snapshot has of an inode that is not in it as it is now.
    pub fn change_version(
        &mut self,
        txn: &mut Txn,
        ino: Ino,
        snap: SnapId,
        change: impl FnOnce(&mut InodeStore),
    ) {
        let node = self.at_mut(ino);
        if let Some((_, old)) = node.store.old_inodes.range_mut(snap..).next() {
            if old.first <= snap {
                let mut store = InodeStore {
                    inode: old.inode.clone(),
                    xattrs: old.xattrs.clone(),
                    ..InodeStore::default()
                };
                change(&mut store);
                (old.inode, old.xattrs) = (store.inode, store.xattrs);
                self.touch(txn, ino);
            }
            return;
        }
        let Some((dir, name)) = node.at.clone() else { return };
        let at = self.dirfrag(dir, &name);
        let Some(fragment) = self.fragment_mut(at) else { return };
        let range = (name.clone(), snap)..=(name.clone(), SnapId::HEAD);
        let Some(((_, last), past)) = fragment.past.range_mut(range).next() else { return };
        let Ok(mut value) = DentryValue::from_shared(&past.value) else { return };
        if past.first > snap {
            return;
        }
        if let DentryLink::Primary(store) = &mut value.link
            && store.inode.ino == ino
        {
            change(store);
            past.value = value.to_bytes();
            let last = *last;
            txn.past(at, &name, last);
            self.touch(txn, ino);
        }
    }

    /// What `name` led to in a snapshot.
    pub fn then(&self, dir: Ino, name: &Bytes, snap: SnapId) -> Result<Option<Then>, Missing> {
        let at = self.dirfrag(dir, name);
        let fragment = self.fragment(at).ok_or(Missing(at))?;
        if let Some(past) = fragment.past_at(name, snap) {
            return Ok(match DentryValue::from_shared(&past.value).map(|v| v.link) {
                Ok(DentryLink::Primary(store)) => Some(Then::Inode(store)),
                Ok(DentryLink::Remote { ino, .. }) => Some(Then::Number(ino)),
                Err(_) => None,
            });
        }
        let entry = fragment.entries.get(name).filter(|e| e.first <= snap);
        Ok(entry.map(|e| Then::Number(e.link.ino())))
    }

    /// An inode is about to go to another directory: the realm that it has to be there, so that
    /// snapshots of where it was still have it. None where it needs none.
    pub fn realm_to_be(&self, ino: Ino, to: Ino) -> Option<SnapRealm> {
        let node = self.at(ino);
        let (from, _) = node.at.as_ref()?;
        let is_realm = self.is_realm(ino);
        let (old, new) = (self.realm_of(*from), self.realm_of(to));
        if old == new || (self.snaps.is_empty() && !is_realm) {
            return None;
        }
        let mut realm = node.realm();
        if realm.flags & SnapRealm::PARENT_GLOBAL != 0 {
            return None;
        }
        if !is_realm {
            realm.current_parent_since = node.oldest();
            (realm.created, realm.seq) = (self.follows(), self.follows());
        }
        let seen = self.snaps_of_realm(old).split_off(&realm.current_parent_since);
        if seen.is_empty() && !is_realm {
            return None;
        }
        realm.past_parent_snaps.extend(seen);
        realm.seq = realm.seq.max(self.follows());
        realm.current_parent_since = self.first;
        Some(realm)
    }

    /// An inode is about to have several names: from here on it is in all snapshots. The realm that
    /// it has to be; none where it is that already.
    pub fn global_realm(&self, ino: Ino) -> Option<SnapRealm> {
        let node = self.at(ino);
        let (dir, _) = node.at.as_ref()?;
        let mut realm = node.realm();
        if realm.flags & SnapRealm::PARENT_GLOBAL != 0 {
            return None;
        }
        if !self.is_realm(ino) {
            realm.current_parent_since = node.oldest();
            (realm.created, realm.seq) = (self.follows(), self.follows());
        }
        let seen = self.snaps_of_realm(self.realm_of(*dir)).split_off(&realm.current_parent_since);
        realm.past_parent_snaps.extend(seen);
        realm.seq = realm.seq.max(self.follows());
        // The peer keeps what was there before in this field, which has no other use here.
        realm.last_destroyed = realm.current_parent_since;
        realm.current_parent_since = self.first;
        realm.flags |= SnapRealm::PARENT_GLOBAL;
        Some(realm)
    }

    /// Whether snapshots need an inode that has lost its last name.
    pub fn is_kept(&self, ino: Ino) -> bool {
        let node = self.at(ino);
        if node.is_dir() {
            return !self.snaps_of_realm(ino).is_empty() && self.is_realm(ino);
        }
        let mut old = node.store.old_inodes.iter();
        old.any(|(last, o)| self.snaps.range(o.first..=*last).next().is_some())
    }

    /// For writes to a file's objects: the newest snapshot and all, newest first.
    pub fn snap_context(&self, ino: Ino) -> (SnapId, Vec<SnapId>) {
        let snaps: Vec<SnapId> = self.snaps_of(ino).into_iter().rev().collect();
        if snaps.is_empty() { (SnapId(0), snaps) } else { (self.follows(), snaps) }
    }

    /// Forgets versions in a fragment that no snapshot has any more.
    pub fn forget_versions(&mut self, txn: &mut Txn, at: maps::fs::DirFrag) {
        let is_needed =
            |snaps: &std::collections::BTreeMap<SnapId, maps::fs::SnapInfo>,
             first: SnapId,
             last: SnapId| snaps.range(first..=last).next().is_some();
        let snaps = std::mem::take(&mut self.snaps);
        let mut gone = Vec::new();
        let mut inodes = Vec::new();
        if let Some(fragment) = self.fragment(at) {
            let old =
                fragment.past.iter().filter(|((_, last), p)| !is_needed(&snaps, p.first, *last));
            gone.extend(old.map(|(key, _)| key.clone()));
            for (name, entry) in &fragment.entries {
                let Link::Primary(ino) = entry.link else { continue };
                let Some(node) = self.node(ino) else { continue };
                let stale = |(last, o): (&SnapId, &OldInode)| !is_needed(&snaps, o.first, *last);
                if node.store.old_inodes.iter().any(stale) {
                    inodes.push((ino, name.clone()));
                }
            }
        }
        for (ino, _) in &inodes {
            let node = self.at_mut(*ino);
            // Where it begins now must not be lost with them.
            node.first = node.first();
            node.store.old_inodes.retain(|last, o| is_needed(&snaps, o.first, *last));
        }
        self.snaps = snaps;
        for (ino, _) in inodes {
            self.touch(txn, ino);
        }
        for (name, last) in gone {
            if let Some(fragment) = self.fragment_mut(at) {
                fragment.past.remove(&(name.clone(), last));
            }
            txn.past(at, &name, last);
        }
    }
}

/// An inode as it is kept for snapshots: nobody writes it.
fn kept(node: &Node) -> InodeStore {
    let mut store = node.store.clone();
    store.inode.file.client_ranges.clear();
    store
}
