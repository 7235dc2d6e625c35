//! Operations on snapshots, and in them.

use std::collections::BTreeMap;

use auth::MdsMay;
use bytes::Bytes;
use maps::fs::{Frag, InodeStore, SnapInfo, SnapPayload, dentry_hash, inos};
use messages::fs::{ReaddirArgs, readdir_flag, snap_op};
use types::{Denc, Errno, Ino, SnapId};

use super::read::{ENTRY_BYTES, frag_asked, listing_bounds, listing_flags};
use crate::capset::bits;
use crate::errno;
use crate::rank::Rank;
use crate::realm::GLOBAL;
use crate::request::{Answer, Call, Extra, Op, Stop};
use crate::snap::Then;

/// Longest name of a snapshot: with `_`, `_` and a number it still is a name.
const NAME_MAX: usize = 240;
/// Snapshots of one directory: the peer's `mds_max_snaps_per_dir`.
const SNAPS_MAX: usize = 100;
const EMLINK: Errno = Errno(-31);
/// The monitors are told again of snapshots that are gone after this time.
const TELL_AGAIN_MS: u64 = 5_000;

/// An inode as a snapshot has it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub snap: SnapId,
    pub store: Box<InodeStore>,
}

impl Seen {
    pub fn ino(&self) -> Ino {
        self.store.inode.ino
    }
}

/// Where a path leads.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    Now(Ino),
    /// The listing of a directory's snapshots.
    Snaps(Ino),
    Then(Seen),
}

impl Rank {
    /// Follows a path; an empty name in it is a directory's listing of snapshots.
    pub(super) fn place_of(&self, base: Ino, path: &[u8]) -> Op<Place> {
        let mut at = Place::Now(self.inode(base)?);
        if path.is_empty() {
            return Ok(at);
        }
        for name in path.split(|b| *b == b'/') {
            if name.len() > 255 {
                return Err(Errno::NAMETOOLONG.into());
            }
            at = match at {
                Place::Now(dir) if name.is_empty() => Place::Snaps(dir),
                Place::Now(dir) => Place::Now(self.child(dir, name)?.ok_or(Errno::NOENT)?),
                Place::Snaps(dir) => {
                    let snap = self.snap_named(dir, name).ok_or(Errno::NOENT)?;
                    Place::Then(self.seen(dir, snap)?.ok_or(Errno::NOENT)?)
                }
                Place::Then(dir) if name.is_empty() => Place::Then(dir),
                Place::Then(dir) => Place::Then(self.seen_child(&dir, name)?.ok_or(Errno::NOENT)?),
            };
        }
        Ok(at)
    }

    /// An inode in memory as it was in a snapshot.
    fn seen(&self, ino: Ino, snap: SnapId) -> Op<Option<Seen>> {
        let ino = self.inode(ino)?;
        let store = self.tree.at(ino).version_at(snap);
        Ok(store.map(|store| Seen { snap, store: Box::new(store) }))
    }

    pub(super) fn seen_child(&self, dir: &Seen, name: &[u8]) -> Op<Option<Seen>> {
        if !dir.store.inode.is_dir() {
            return Err(errno::NOTDIR.into());
        }
        let ino = self.inode(dir.ino())?;
        let name = Bytes::copy_from_slice(name);
        match self.tree.then(ino, &name, dir.snap)? {
            None => Ok(None),
            Some(Then::Inode(store)) => Ok(Some(Seen { snap: dir.snap, store })),
            Some(Then::Number(ino)) => self.seen(ino, dir.snap),
        }
    }

    /// Snapshots as `.snap` of a directory lists them.
    fn listed(&self, dir: Ino) -> BTreeMap<Bytes, SnapId> {
        let named = |snap: &SnapId| {
            let info = self.tree.snaps.get(snap)?;
            if info.ino == dir {
                return Some((info.name.clone(), *snap));
            }
            let mut long = vec![b'_'];
            long.extend_from_slice(&info.name);
            long.extend_from_slice(format!("_{}", info.ino.0).as_bytes());
            Some((Bytes::from(long), *snap))
        };
        let oldest = self.tree.at(dir).oldest();
        self.tree.snaps_of(dir).range(oldest..).filter_map(named).collect()
    }

    fn snap_named(&self, dir: Ino, name: &[u8]) -> Option<SnapId> {
        self.listed(dir).get(name).copied()
    }

    /// Writers of a file must have told what they had when the snapshot was made.
    pub(super) fn need_flushed(&mut self, call: &Call, seen: &Seen) -> Op<()> {
        let ino = seen.ino();
        let Some(node) = self.tree.node(ino) else { return Ok(()) };
        if node.unflushed.values().any(|since| *since >= seen.snap) {
            let mask = bits::EXCLUSIVE;
            self.need(call, ino, mask, mask)?;
        }
        Ok(())
    }

    pub(super) fn check_seen(&self, call: &Call, seen: &Seen, wants: MdsMay) -> Op<()> {
        // Rights go by where the inode is now; what is nowhere is its directory's, which was
        // checked when the directory was opened.
        match self.tree.node(seen.ino()) {
            Some(_) => self.check(call, seen.ino(), wants),
            None => Ok(()),
        }
    }

    pub(super) fn answer_seen(&mut self, call: &Call, seen: Seen) -> Op<Answer> {
        self.check_seen(call, &seen, MdsMay::READ)?;
        self.need_flushed(call, &seen)?;
        Ok(Answer { seen: Some(seen), ..Answer::default() })
    }

    /// A name in a snapshot; none where the path leads through none.
    pub(super) fn lookup_seen(&mut self, call: &Call) -> Op<Option<Answer>> {
        let path = &call.m.path.path;
        let cut = path.iter().rposition(|b| *b == b'/').unwrap_or(0);
        let (dir, name) = match self.place_of(call.m.path.ino, &path[..cut])? {
            Place::Then(dir) => (dir, path.slice(cut + 1..)),
            // "/name" is a snapshot of the base.
            _ if path.starts_with(b"/") => return self.op_lookupsnap(call).map(Some),
            _ => return Ok(None),
        };
        let seen = self.seen_child(&dir, &name)?.ok_or(Errno::NOENT)?;
        let answer = self.answer_seen(call, seen)?;
        Ok(Some(Answer { seen_in: Some((dir, name)), ..answer }))
    }

    /// A snapshot by its name, as the directory that it is of.
    pub(super) fn op_lookupsnap(&mut self, call: &Call) -> Op<Answer> {
        match self.place_of(call.m.path.ino, &call.m.path.path)? {
            Place::Then(seen) => self.answer_seen(call, seen),
            _ => Err(Errno::INVAL.into()),
        }
    }

    /// An inode by number and snapshot, for gateways; none where the newest is asked for.
    pub(super) fn lookup_vino(&mut self, call: &Call, ino: Ino) -> Op<Option<Answer>> {
        let args = messages::fs::Args::read(call.m.op, &call.m.args).map_err(|_| Errno::INVAL)?;
        let messages::fs::Args::LookupIno { snapid: snap, parent, .. } = args else {
            return Ok(None);
        };
        if ino == GLOBAL {
            // Nothing is in it; that it is there tells that the server knows of snapshots.
            let mut store = InodeStore::default();
            (store.inode.ino, store.inode.mode, store.inode.nlink) = (ino, 0o040_755, 1);
            let seen = Seen { snap: SnapId::HEAD, store: Box::new(store) };
            return Ok(Some(Answer { seen: Some(seen), ..Answer::default() }));
        }
        if snap == SnapId(0) || !self.tree.snaps.contains_key(&snap) {
            return Ok(None);
        }
        let now = match self.inode(ino) {
            Ok(ino) => Some(ino),
            // It may be in snapshots alone.
            Err(Stop::Ino(ino)) if !self.waiting.lost.contains(&ino) => return Err(Stop::Ino(ino)),
            Err(Stop::Ino(_)) => None,
            Err(other) => return Err(other),
        };
        let mut found = None;
        let mut dirs = vec![parent];
        if let Some(ino) = now {
            let node = self.tree.at(ino);
            dirs.extend(node.at.as_ref().map(|(dir, _)| *dir));
            let store = node.version_at(snap);
            found = store.map(|store| Seen { snap, store: Box::new(store) });
        }
        for dir in dirs {
            if found.is_some() || self.tree.node(dir).is_none_or(|n| !n.is_dir()) {
                continue;
            }
            let leaves: Vec<Frag> = self.tree.at(dir).store.fragtree.leaves().collect();
            for frag in leaves {
                let at = maps::fs::DirFrag { ino: dir, frag };
                let fragment = self.tree.fragment(at).ok_or(Stop::Frag(at))?;
                found = found.or_else(|| fragment.past_inode(ino, snap));
            }
        }
        self.waiting.lost.remove(&ino);
        let seen = found.ok_or(errno::STALE)?;
        self.answer_seen(call, seen).map(Some)
    }

    pub(super) fn op_lssnap(&mut self, call: &Call, args: &ReaddirArgs) -> Op<Answer> {
        let dir = match self.place_of(call.m.path.ino, &call.m.path.path)? {
            Place::Now(dir) | Place::Snaps(dir) => dir,
            Place::Then(_) => return Err(Errno::INVAL.into()),
        };
        if !self.tree.at(dir).is_dir() {
            return Err(errno::NOTDIR.into());
        }
        self.check(call, dir, MdsMay::READ)?;
        let (limit, _) = listing_bounds(args);
        let after = call.m.path2.path.clone();
        let mut entries = Vec::new();
        let mut flags = readdir_flag::FRAG_END;
        for (name, snap) in self.listed(dir) {
            if !after.is_empty() && name <= after {
                continue;
            }
            if entries.len() >= limit {
                flags = 0;
                break;
            }
            if let Some(seen) = self.seen(dir, snap)? {
                entries.push((name, seen));
            }
        }
        if flags != 0 && after.is_empty() {
            flags |= readdir_flag::FRAG_COMPLETE;
        }
        let extra = Extra::Past(Frag::ROOT, entries, flags);
        Ok(Answer { target: Some(dir), extra, ..Answer::default() })
    }

    /// A directory's entries in a snapshot.
    pub(super) fn list_seen(&mut self, call: &Call, args: &ReaddirArgs, dir: Seen) -> Op<Answer> {
        if !dir.store.inode.is_dir() {
            return Err(errno::NOTDIR.into());
        }
        self.check_seen(call, &dir, MdsMay::READ)?;
        let ino = self.inode(dir.ino())?;
        let asked = Frag::from_raw(args.frag).ok_or(Errno::INVAL)?;
        let node = self.tree.at(ino);
        let kind = node.store.inode.dir.hash;
        let hash = |name: &[u8]| dentry_hash(kind, name) & 0xff_ffff;
        let after = &call.m.path2.path;
        let offset = if after.is_empty() { args.offset_hash } else { hash(after) };
        let frag = frag_asked(&node.store.fragtree, asked, offset);
        let at = maps::fs::DirFrag { ino, frag };
        let fragment = self.tree.fragment(at).ok_or(Stop::Frag(at))?;
        let mut names: Vec<(u32, Bytes)> =
            fragment.names_at(dir.snap).into_iter().map(|n| (hash(&n), n)).collect();
        names.sort_unstable();
        let begin = if after.is_empty() {
            names.partition_point(|(h, _)| *h < args.offset_hash)
        } else {
            names.partition_point(|(h, n)| (*h, &n[..]) <= (hash(after), &after[..]))
        };
        let (limit, bytes_max) = listing_bounds(args);
        let (mut entries, mut bytes, mut whole) = (Vec::new(), 0, true);
        for (_, name) in &names[begin..] {
            bytes += ENTRY_BYTES + name.len();
            if entries.len() >= limit || (!entries.is_empty() && bytes > bytes_max) {
                whole = false;
                break;
            }
            let found = match self.seen_child(&dir, name) {
                // A link whose inode is nowhere is left out rather than hiding all others.
                Err(Stop::Ino(lost)) if self.waiting.lost.contains(&lost) => None,
                other => other?,
            };
            if let Some(seen) = found {
                entries.push((name.clone(), seen));
            }
        }
        self.count_listed(call, entries.len());
        let flags = listing_flags(whole, begin == 0, args.flags);
        let extra = Extra::Past(frag, entries, flags);
        Ok(Answer { seen: Some(dir), extra, ..Answer::default() })
    }

    /// The directory and the name of a snapshot that is made, removed or renamed.
    fn snap_place(&self, base: Ino, path: &Bytes) -> Op<(Ino, Bytes)> {
        let at = path.iter().rposition(|b| *b == b'/').ok_or(Errno::INVAL)?;
        let dir = match self.place_of(base, &path[..at])? {
            Place::Snaps(dir) => dir,
            // "/name" is the listing of the base.
            Place::Now(dir) if at == 0 => dir,
            Place::Now(_) | Place::Then(_) => return Err(Errno::INVAL.into()),
        };
        if !self.tree.at(dir).is_dir() {
            return Err(errno::NOTDIR.into());
        }
        Ok((dir, path.slice(at + 1..)))
    }

    fn may_snap(&self, call: &Call, dir: Ino) -> Op<()> {
        self.check(call, dir, MdsMay(MdsMay::WRITE.0 | MdsMay::SNAPSHOT.0))?;
        if inos::is_private(dir) || self.tree.at(dir).is_stray() {
            return Err(Errno::PERM.into());
        }
        Ok(())
    }

    pub(super) fn op_mksnap(&mut self, call: &mut Call) -> Op<Answer> {
        let (dir, name) = self.snap_place(call.m.path.ino, &call.m.path.path)?;
        self.may_snap(call, dir)?;
        if self.world.map.flags & maps::mds_flag::ALLOW_SNAPS == 0 {
            return Err(Errno::PERM.into());
        }
        if self.subvolume_of(dir).is_some_and(|s| s != dir) {
            return Err(Errno::PERM.into());
        }
        if name.is_empty() || name.starts_with(b"_") {
            return Err(Errno::INVAL.into());
        }
        if name.len() > NAME_MAX {
            return Err(Errno::NAMETOOLONG.into());
        }
        let mut realm = self.tree.at(dir).realm();
        if realm.snaps.values().any(|s| s.name == name) {
            return Err(Errno::EXIST.into());
        }
        if realm.snaps.len() >= SNAPS_MAX {
            return Err(EMLINK.into());
        }
        let metadata = if call.m.data.is_empty() {
            SnapPayload::default()
        } else {
            SnapPayload::from_shared(&call.m.data).map_err(|_| Errno::INVAL)?
        };
        // What its fragments count belongs to the snapshot.
        self.tree.settle_all(&mut call.txn);
        self.tree.cow(&mut call.txn, dir);
        let snap = self.tree.first;
        let info = SnapInfo {
            snapid: snap,
            ino: dir,
            stamp: call.txn.time,
            name,
            metadata: metadata.metadata,
            alternate_name: call.m.alternate_name.clone(),
        };
        if !self.tree.is_realm(dir) {
            realm.current_parent_since = self.tree.at(dir).oldest();
            realm.created = snap;
        }
        let fresh = !self.tree.is_realm(dir);
        realm.snaps.insert(snap, info.clone());
        (realm.seq, realm.last_created) = (snap, snap);
        realm.last_modified = call.txn.time;
        realm.change_attr += 1;
        let table = &mut self.tables.snaps.table;
        (table.last_snap, table.last_created) = (snap, snap);
        table.snaps.insert(snap, info);
        let node = self.tree.at_mut(dir);
        node.store.snap_realm = realm.to_bytes();
        let i = &mut node.store.inode;
        i.dir.rstat.rsnaps += 1;
        i.times.ctime = i.times.ctime.max(call.txn.time);
        i.dir.rstat.rctime = i.dir.rstat.rctime.max(call.txn.time);
        i.versions.change_attr += 1;
        self.tree.touch(&mut call.txn, dir);
        self.snaps_changed(call);
        self.note_writers(dir, snap);
        if fresh {
            self.tell_split(dir);
        } else {
            self.tell_realm(dir, snap_op::CREATE);
        }
        let seen = self.seen(dir, snap)?;
        Ok(Answer { seen, ..Answer::default() })
    }

    pub(super) fn op_rmsnap(&mut self, call: &mut Call) -> Op<Answer> {
        let (dir, name) = self.snap_place(call.m.path.ino, &call.m.path.path)?;
        self.may_snap(call, dir)?;
        if name.is_empty() || name.starts_with(b"_") {
            return Err(Errno::INVAL.into());
        }
        let mut realm = self.tree.at(dir).realm();
        let found = realm.snaps.iter().find(|(_, s)| s.name == name).map(|(id, _)| *id);
        let snap = found.ok_or(Errno::NOENT)?;
        self.tree.settle_all(&mut call.txn);
        self.tree.cow(&mut call.txn, dir);
        let seq = self.tree.first;
        realm.snaps.remove(&snap);
        (realm.seq, realm.last_destroyed) = (seq, seq);
        realm.last_modified = call.txn.time;
        realm.change_attr += 1;
        let pools = self.world.map.data_pools.clone();
        let table = &mut self.tables.snaps.table;
        (table.last_snap, table.last_destroyed) = (seq, seq);
        table.snaps.remove(&snap);
        for pool in pools {
            if let Some(key) = maps::fs::SnapTable::purge_key(pool) {
                table.need_to_purge.entry(key).or_default().extend([snap, seq]);
            }
        }
        let node = self.tree.at_mut(dir);
        node.store.snap_realm = realm.to_bytes();
        let i = &mut node.store.inode;
        i.dir.rstat.rsnaps = (i.dir.rstat.rsnaps - 1).max(0);
        i.times.ctime = i.times.ctime.max(call.txn.time);
        i.dir.rstat.rctime = i.dir.rstat.rctime.max(call.txn.time);
        i.versions.change_attr += 1;
        self.tree.touch(&mut call.txn, dir);
        self.snaps_changed(call);
        self.tell_realm(dir, snap_op::DESTROY);
        self.purger.rescan();
        Ok(Answer::default())
    }

    pub(super) fn op_renamesnap(&mut self, call: &mut Call) -> Op<Answer> {
        let (dir, new) = self.snap_place(call.m.path.ino, &call.m.path.path)?;
        let (from, old) = self.snap_place(call.m.path2.ino, &call.m.path2.path)?;
        self.may_snap(call, dir)?;
        if dir != from || [&new, &old].iter().any(|n| n.is_empty() || n.starts_with(b"_")) {
            return Err(Errno::INVAL.into());
        }
        if new.len() > NAME_MAX {
            return Err(Errno::NAMETOOLONG.into());
        }
        let mut realm = self.tree.at(dir).realm();
        if realm.snaps.values().any(|s| s.name == new) {
            return Err(Errno::EXIST.into());
        }
        let found = realm.snaps.values_mut().find(|s| s.name == old).ok_or(Errno::NOENT)?;
        found.name = new;
        let (snap, info) = (found.snapid, found.clone());
        realm.last_modified = call.txn.time;
        realm.change_attr += 1;
        self.tree.cow(&mut call.txn, dir);
        self.tables.snaps.table.snaps.insert(snap, info);
        let node = self.tree.at_mut(dir);
        node.store.snap_realm = realm.to_bytes();
        let i = &mut node.store.inode;
        i.times.ctime = i.times.ctime.max(call.txn.time);
        i.dir.rstat.rctime = i.dir.rstat.rctime.max(call.txn.time);
        i.versions.change_attr += 1;
        self.tree.touch(&mut call.txn, dir);
        self.snaps_changed(call);
        self.tell_realm(dir, snap_op::UPDATE);
        let seen = self.seen(dir, snap)?;
        Ok(Answer { seen, ..Answer::default() })
    }

    /// The table of snapshots changed: all else that knows of them does, too.
    fn snaps_changed(&mut self, call: &mut Call) {
        self.record_snaps(&mut call.txn);
        self.know_snaps();
    }

    fn record_snaps(&mut self, txn: &mut crate::tree::Txn) {
        self.tables.snaps.version += 1;
        self.tables.snaps_dirty = true;
        let table = self.tables.snaps.to_bytes();
        let version = self.tables.snaps.version;
        txn.other.push(crate::record::Change::Snaps { version, table });
    }

    /// Takes over what the table says.
    pub fn know_snaps(&mut self) {
        let table = &self.tables.snaps.table;
        self.tree.first = SnapId(table.last_snap.0.max(1) + 1);
        self.tree.snaps = table.snaps.clone();
    }

    /// Tells the monitors of snapshots that are gone, until their map says that they know.
    pub fn remove_snaps(&mut self) {
        let unknown = self.world.osd.pools.is_empty();
        if self.tables.snaps.table.need_to_purge.is_empty() || !self.is_active() || unknown {
            return;
        }
        let seqs = &self.world.osd.snap_seqs;
        let is_known = |pool: i32, snaps: &[SnapId]| {
            let seq = seqs.get(&types::PoolId(i64::from(pool)));
            // A pool that is gone has none of them.
            seq.is_none_or(|seq| snaps.iter().all(|s| s <= seq))
        };
        let left = &mut self.tables.snaps.table.need_to_purge;
        let before = left.len();
        left.retain(|pool, snaps| !is_known(*pool, snaps));
        let (changed, left) = (left.len() < before, left.clone());
        if changed {
            let mut txn = crate::tree::Txn::at(self.world.time());
            self.record_snaps(&mut txn);
            self.commit(txn);
        }
        let now = self.world.ms();
        if !left.is_empty() && now >= self.tables.removed_told_ms + TELL_AGAIN_MS {
            self.tables.removed_told_ms = now;
            // Behind the record that they are gone.
            self.behind(crate::Effect::RemoveSnaps(left));
        }
    }
}
