//! Operations that make something: files, directories, links.

use auth::MdsMay;
use bytes::Bytes;
use maps::fs::{ByteMap, ClientRange, InlineData, InodeStore, dtype, inos};
use messages::fs::OpenArgs;
use striper::FileLayout;
use types::{Denc, Errno, Features, Ino, PoolId, SnapId};

use super::read::{oflag, wanted_of};
use crate::caps::range_end;
use crate::capset::bits;
use crate::errno;
use crate::rank::Rank;
use crate::request::{Answer, Call, Extra, Op};
use crate::tree::Node;

const S_ISGID: u32 = 0o2000;
const FORMAT: u32 = 0o170_000;

impl Rank {
    /// The name that something is made under: free, in a directory that takes it.
    fn place(&mut self, call: &Call) -> Op<(Ino, Bytes)> {
        let (dir, name) = self.parent(call.m.path.ino, &call.m.path.path)?;
        if self.tree.at(dir).is_stray() || inos::is_private(dir) {
            return Err(Errno::NOENT.into());
        }
        self.check(call, dir, MdsMay::WRITE)?;
        self.may_name(call, dir)?;
        if self.tree.lookup(dir, &name)?.is_some() {
            return Err(Errno::EXIST.into());
        }
        self.need_room(dir, &name)?;
        self.need_dir(call, dir)?;
        Ok((dir, name))
    }

    /// Whether a fragment takes another entry; ENOSPC.
    pub(super) fn need_room(&self, dir: Ino, name: &[u8]) -> Op<()> {
        let at = self.tree.dirfrag(dir, name);
        let entries = self.tree.part(at).map_or(0, |f| f.entries.len());
        if entries < self.world.config.options.fragment_entries_max {
            return Ok(());
        }
        self.tree.fragment(at); // others made it so full
        Err(Errno::NOSPC.into())
    }

    /// The layout that new files in a directory have.
    pub(super) fn layout_for(&self, dir: Ino) -> FileLayout {
        let own = |ino: Ino| {
            let layout = &self.tree.above(ino)?.store.inode.layout;
            (!layout.is_none() && layout.pool.0 > 0).then(|| layout.clone())
        };
        let above = self.tree.ancestors(dir).find_map(own);
        own(dir).or(above).unwrap_or_else(|| FileLayout::plain(self.world.data()))
    }

    /// A new inode in `dir`.
    fn make(&mut self, call: &mut Call, dir: Ino, mode: u32) -> Op<Node> {
        let ino = self.new_ino(call)?;
        let parent = &self.tree.at(dir).store.inode;
        let caller = &call.m.caller;
        let mut store = InodeStore::default();
        let i = &mut store.inode;
        i.ino = ino;
        i.mode = mode;
        i.uid = if caller.owner_uid == u32::MAX { caller.uid } else { caller.owner_uid };
        i.gid = if caller.owner_gid == u32::MAX { caller.gid } else { caller.owner_gid };
        if parent.mode & S_ISGID != 0 {
            i.gid = parent.gid;
            if mode & FORMAT == 0o040_000 {
                i.mode |= S_ISGID;
            }
        }
        i.nlink = 1;
        let t = call.txn.time;
        (i.times.ctime, i.times.mtime, i.times.atime, i.times.btime) = (t, t, t, t);
        i.file.truncate.seq = 1;
        i.file.inline = InlineData::default();
        i.versions.xattr = 1;
        i.fscrypt.auth = call.m.fscrypt.auth.clone();
        i.fscrypt.file = call.m.fscrypt.file.clone();
        i.dir.rstat.rctime = t;
        if i.is_dir() {
            i.dir.hash = maps::fs::dir_hash::RJENKINS;
            i.optmetadata.set_charmap(parent.optmetadata.charmap().cloned());
            i.dir.rstat.rsubdirs = 1;
        } else {
            i.layout = self.layout_for(dir);
            i.dir.rstat.rfiles = 1;
        }
        Ok(Node::new(store, None))
    }

    /// Initial attributes, which clients send with what they make (ACLs).
    fn initial_xattrs(&self, call: &Call, node: &mut Node) {
        if !call.m.data.is_empty()
            && let Ok(xattrs) = ByteMap::from_shared(&call.m.data)
        {
            node.store.xattrs = xattrs;
        }
    }

    pub(super) fn op_create(&mut self, call: &mut Call, args: &OpenArgs) -> Op<Answer> {
        let (dir, name) = self.parent(call.m.path.ino, &call.m.path.path)?;
        if let Some(ino) = self.child(dir, &name)? {
            if args.flags & oflag::EXCL != 0 {
                return Err(Errno::EXIST.into());
            }
            let wanted = self.open_inode(call, ino, args)?;
            let dentry = Some((dir, name));
            return Ok(Answer { dentry, target: Some(ino), wanted, ..Answer::default() });
        }
        let layout = self.open_layout(call, dir, args)?;
        let (dir, name) = self.place(call)?;
        let mut node = self.make(call, dir, args.mode & 0o7777 | 0o100_000)?;
        self.initial_xattrs(call, &mut node);
        node.store.inode.layout = layout;
        let ino = node.store.inode.ino;
        let wanted = wanted_of(args.flags);
        if wanted & bits::FW != 0 && self.may_write_at_once(call, ino) {
            // With the record of the file itself it is recorded how far its maker may write.
            let i = &mut node.store.inode;
            let range = ClientRange { first: 0, last: range_end(i, 0), follows: SnapId(1) };
            i.file.max_size_ever = range.last;
            i.file.client_ranges.insert(call.client, range);
        }
        self.tree.link(&mut call.txn, dir, &name, node, call.m.alternate_name.clone());
        let extra = Extra::Created(ino);
        let answer = Answer { dentry: Some((dir, name)), target: Some(ino), ..Answer::default() };
        Ok(Answer { extra, wanted, xattrs: true, ..answer })
    }

    /// What the client asks for over what the directory has; EINVAL.
    fn open_layout(&self, call: &Call, dir: Ino, args: &OpenArgs) -> Op<FileLayout> {
        let mut layout = self.layout_for(dir);
        let session = self.sessions.by_client.get(&call.client);
        // Linux knows no such field, and leaves zeros in its place.
        let names_pool = session.is_some_and(|s| s.peer.features.has(Features::CREATEPOOLID));
        if args.stripe_unit > 0 {
            layout.stripe_unit = args.stripe_unit;
        }
        if args.stripe_count > 0 {
            layout.stripe_count = args.stripe_count;
        }
        if args.object_size > 0 {
            layout.object_size = args.object_size;
        }
        if args.pool >= 0 && names_pool {
            layout.pool = PoolId(i64::from(args.pool));
            layout.pool_ns = Bytes::new();
            if !self.world.map.data_pools.contains(&layout.pool) {
                return Err(Errno::INVAL.into());
            }
        }
        layout.striping().map_err(|_| Errno::INVAL)?;
        Ok(layout)
    }

    pub(super) fn op_mknod(&mut self, call: &mut Call, mode: u32, rdev: u32) -> Op<Answer> {
        let mode = if mode & FORMAT == 0 { mode | 0o100_000 } else { mode };
        if matches!(mode & FORMAT, 0o040_000 | 0o120_000) {
            return Err(Errno::INVAL.into());
        }
        let (dir, name) = self.place(call)?;
        let mut node = self.make(call, dir, mode)?;
        self.initial_xattrs(call, &mut node);
        node.store.inode.rdev = rdev;
        Ok(self.put(call, dir, name, node))
    }

    fn put(&mut self, call: &mut Call, dir: Ino, name: Bytes, node: Node) -> Answer {
        let ino = node.store.inode.ino;
        self.tree.link(&mut call.txn, dir, &name, node, call.m.alternate_name.clone());
        Answer { dentry: Some((dir, name)), target: Some(ino), xattrs: true, ..Answer::default() }
    }

    pub(super) fn op_mkdir(&mut self, call: &mut Call, mode: u32) -> Op<Answer> {
        let (dir, name) = self.place(call)?;
        let mut node = self.make(call, dir, mode & 0o7777 | 0o040_000)?;
        self.initial_xattrs(call, &mut node);
        let ino = node.store.inode.ino;
        let answer = self.put(call, dir, name, node);
        self.tree.begin_dir(&mut call.txn, ino);
        Ok(answer)
    }

    pub(super) fn op_symlink(&mut self, call: &mut Call) -> Op<Answer> {
        let (dir, name) = self.place(call)?;
        let mut node = self.make(call, dir, 0o120_777)?;
        let target = call.m.path2.path.clone();
        node.store.inode.file.size = target.len() as u64;
        node.store.inode.dir.rstat.rbytes = target.len() as i64;
        node.store.symlink = target;
        Ok(self.put(call, dir, name, node))
    }

    pub(super) fn op_link(&mut self, call: &mut Call) -> Op<Answer> {
        let target = self.walk(call.m.path2.ino, &call.m.path2.path)?;
        let node = self.tree.at(target);
        if node.is_dir() {
            return Err(Errno::PERM.into());
        }
        if node.is_stray() && node.store.inode.nlink == 0 {
            return Err(Errno::NOENT.into());
        }
        self.check(call, target, MdsMay::WRITE)?;
        let (dir, name) = self.place(call)?;
        if self.subvolume_of(target) != self.subvolume_of(dir) {
            return Err(errno::XDEV.into());
        }
        self.need(call, target, bits::LS | bits::LX, bits::LS | bits::LX)?;
        let realm = self.tree.global_realm(target);
        self.tree.cow(&mut call.txn, target);
        let is_new = realm.is_some();
        if let Some(realm) = realm {
            self.tree.at_mut(target).store.snap_realm = realm.to_bytes();
        }
        let i = &mut self.tree.at_mut(target).store.inode;
        i.nlink += 1;
        i.times.ctime = i.times.ctime.max(call.txn.time);
        i.versions.change_attr += 1;
        let d_type = dtype::of_mode(i.mode);
        self.tree.touch(&mut call.txn, target);
        self.tree.link_remote(&mut call.txn, dir, &name, target, d_type);
        if is_new {
            call.txn.hard = true;
            self.tell_split(target);
        }
        Ok(Answer { dentry: Some((dir, name)), target: Some(target), ..Answer::default() })
    }
}
