//! Operations on an inode's attributes, and locks of files.

use auth::MdsMay;
use bytes::Bytes;
use maps::fs::dtype;
use messages::fs::{FileLock, SetattrArgs};
use striper::FileLayout;
use types::{Denc, Errno, Ino, PoolId};

use super::vxattr::MAX_XATTR_NAME;
use crate::capset::bits;
use crate::errno;
use crate::flock::{CLIENT_LOCKS_MAX, Rule, TooMany};
use crate::rank::Rank;
use crate::request::{Answer, Call, Extra, Op, Stop};

const CREATE: u32 = 1;
const REPLACE: u32 = 2;
const REMOVE: u32 = 1 << 31;

impl Rank {
    pub(super) fn op_setattr(&mut self, call: &mut Call, a: &SetattrArgs) -> Op<Answer> {
        use SetattrArgs as S;
        let ino = self.walk(call.m.path.ino, &call.m.path.path)?;
        let mut wants = MdsMay::WRITE;
        if a.mask & S::UID != 0 {
            wants = MdsMay(wants.0 | MdsMay::CHOWN.0);
        }
        if a.mask & S::GID != 0 {
            wants = MdsMay(wants.0 | MdsMay::CHGRP.0);
        }
        self.check_owner(call, ino, wants, a.uid, a.gid)?;
        let times = S::MTIME | S::ATIME | S::MTIME_NOW | S::ATIME_NOW;
        let kill = S::KILL_SGUID | S::KILL_SUID | S::KILL_SGID;
        let auth = S::MODE | S::UID | S::GID | S::BTIME | kill | S::FSCRYPT_AUTH;
        let node = self.tree.at(ino);
        if a.mask & S::SIZE != 0 {
            if node.is_dir() {
                return Err(errno::ISDIR.into());
            }
            if !node.store.inode.is_file() {
                return Err(Errno::INVAL.into());
            }
            if a.size > self.world.map.max_file_size {
                return Err(Errno::FBIG.into());
            }
        }
        let is_dir = node.is_dir();
        let (mut own, mut others) = (0, 0);
        if a.mask & auth != 0 {
            own |= bits::AX;
            others |= bits::AS | bits::AX;
        }
        if a.mask & (times | S::SIZE | S::FSCRYPT_FILE) != 0 && !is_dir {
            own |= bits::WRITES;
            others |= bits::WRITES | bits::FS;
        }
        if a.mask & S::SIZE != 0 {
            self.need_size(ino)?;
            own |= bits::F & !bits::FS;
            others |= bits::F;
        }
        if others != 0 {
            self.need(call, ino, own, others)?;
        }
        let file = &self.tree.at(ino).store.inode.file;
        let shorter = a.mask & S::SIZE != 0 && a.size < file.size;
        if shorter && file.truncate.pending > 0 && a.size > file.truncate.size {
            // Its objects are not cut yet, and what lies between the two ends would stay.
            return Err(Stop::Caps(ino));
        }
        self.tree.cow(&mut call.txn, ino);
        let t = call.txn.time;
        let i = &mut self.tree.at_mut(ino).store.inode;
        if a.mask & S::MODE != 0 {
            i.mode = i.mode & 0o170_000 | a.mode & 0o7777;
        }
        if a.mask & S::UID != 0 {
            i.uid = a.uid;
        }
        if a.mask & S::GID != 0 {
            i.gid = a.gid;
        }
        if i.is_file() && a.mask & S::MODE == 0 {
            let runs = i.mode & 0o111 != 0;
            if runs && a.mask & (S::UID | S::GID | S::KILL_SGUID) != 0 {
                i.mode &= !(if i.mode & 0o010 != 0 { 0o6000 } else { 0o4000 });
            }
            if a.mask & S::KILL_SUID != 0 {
                i.mode &= !0o4000;
            }
            if a.mask & S::KILL_SGID != 0 {
                i.mode &= !0o2000;
            }
        }
        if a.mask & S::BTIME != 0 {
            i.times.btime = a.btime;
        }
        if a.mask & (S::MTIME | S::MTIME_NOW) != 0 {
            i.times.mtime = if a.mask & S::MTIME != 0 { a.mtime } else { t };
        }
        if a.mask & (S::ATIME | S::ATIME_NOW) != 0 {
            i.times.atime = if a.mask & S::ATIME != 0 { a.atime } else { t };
        }
        if a.mask & (S::MTIME | S::ATIME) != 0 {
            i.times.time_warp_seq += 1;
        }
        if a.mask & S::FSCRYPT_AUTH != 0 {
            i.fscrypt.auth = call.m.fscrypt.auth.clone();
        }
        if a.mask & S::FSCRYPT_FILE != 0 {
            i.fscrypt.file = call.m.fscrypt.file.clone();
        }
        i.times.ctime = i.times.ctime.max(t);
        i.dir.rstat.rctime = i.dir.rstat.rctime.max(t);
        i.versions.change_attr += 1;
        if a.mask & S::SIZE != 0 {
            if a.size < i.file.size {
                self.truncate(call, ino, a.size);
            } else {
                i.file.size = a.size;
                i.file.max_size_ever = i.file.max_size_ever.max(a.size);
                i.dir.rstat.rbytes = a.size as i64;
                if a.mask & S::MTIME == 0 {
                    i.times.mtime = t;
                }
            }
        }
        self.tree.touch(&mut call.txn, ino);
        Ok(Answer { target: Some(ino), ..Answer::default() })
    }

    /// Cuts a file. All caps for its data are withheld, from its own client too: Linux takes a cut under
    /// a cap to read for a server's fault.
    pub(super) fn truncate(&mut self, call: &mut Call, ino: Ino, size: u64) {
        if self.tree.at(ino).store.inode.file.size == size {
            return;
        }
        self.tree.cow(&mut call.txn, ino);
        let i = &mut self.tree.at_mut(ino).store.inode;
        let before = i.file.size;
        i.file.size = size;
        i.file.truncate.seq = i.file.truncate.seq.max(1) + 1;
        i.file.truncate.size = size;
        // Objects of an earlier cut that is not done yet go with this one.
        let earlier = if i.file.truncate.pending > 0 { i.file.truncate.from } else { 0 };
        i.file.truncate.from = before.max(earlier);
        i.times.mtime = call.txn.time;
        i.times.ctime = i.times.ctime.max(call.txn.time);
        i.dir.rstat.rbytes = size as i64;
        i.dir.rstat.rctime = i.dir.rstat.rctime.max(call.txn.time);
        i.versions.change_attr += 1;
        i.file.truncate.pending = 1;
        self.tree.touch(&mut call.txn, ino);
        self.purger.cuts.insert(ino);
        self.send_truncate(ino);
    }

    pub(super) fn op_setxattr(&mut self, call: &mut Call, flags: u32) -> Op<Answer> {
        let ino = self.walk(call.m.path.ino, &call.m.path.path)?;
        let name = call.m.path2.path.clone();
        if flags & REMOVE != 0 {
            return self.op_rmxattr(call);
        }
        if name.starts_with(b"ceph.") {
            return self.set_vxattr(call, ino, &name);
        }
        self.check(call, ino, MdsMay::WRITE)?;
        if name.len() > MAX_XATTR_NAME {
            return Err(Errno::RANGE.into());
        }
        let mask = bits::XS | bits::XX;
        self.need(call, ino, bits::XX, mask)?;
        let node = self.tree.at(ino);
        let had = node.store.xattrs.get(&name).map(Bytes::len);
        if flags & CREATE != 0 && had.is_some() {
            return Err(Errno::EXIST.into());
        }
        if flags & REPLACE != 0 && had.is_none() {
            return Err(Errno::NODATA.into());
        }
        let total: usize = node.store.xattrs.iter().map(|(k, v)| k.len() + v.len()).sum();
        let total = total + name.len() + call.m.data.len() - had.map_or(0, |v| name.len() + v);
        if total as u64 > self.world.map.max_xattr_size {
            return Err(Errno::NOSPC.into());
        }
        self.tree.cow(&mut call.txn, ino);
        let node = self.tree.at_mut(ino);
        node.store.xattrs.insert(name, call.m.data.clone());
        self.xattrs_changed(call, ino);
        Ok(Answer { target: Some(ino), xattrs: true, ..Answer::default() })
    }

    fn xattrs_changed(&mut self, call: &mut Call, ino: Ino) {
        let i = &mut self.tree.at_mut(ino).store.inode;
        i.versions.xattr += 1;
        i.times.ctime = i.times.ctime.max(call.txn.time);
        i.dir.rstat.rctime = i.dir.rstat.rctime.max(call.txn.time);
        i.versions.change_attr += 1;
        self.tree.touch(&mut call.txn, ino);
    }

    pub(super) fn op_rmxattr(&mut self, call: &mut Call) -> Op<Answer> {
        let ino = self.walk(call.m.path.ino, &call.m.path.path)?;
        let name = call.m.path2.path.clone();
        if name.starts_with(b"ceph.") {
            return self.remove_vxattr(call, ino, &name);
        }
        self.check(call, ino, MdsMay::WRITE)?;
        if !self.tree.at(ino).store.xattrs.contains_key(&name) {
            // Access lists that are not there are as good as removed, as the peer has it.
            if name.starts_with(b"system.posix_acl_") {
                return Ok(Answer { target: Some(ino), ..Answer::default() });
            }
            return Err(Errno::NODATA.into());
        }
        self.need(call, ino, bits::XX, bits::XS | bits::XX)?;
        self.tree.cow(&mut call.txn, ino);
        self.tree.at_mut(ino).store.xattrs.remove(&name);
        self.xattrs_changed(call, ino);
        Ok(Answer { target: Some(ino), xattrs: true, ..Answer::default() })
    }

    pub(super) fn op_setlayout(
        &mut self,
        call: &mut Call,
        asked: FileLayout,
        dir: bool,
    ) -> Op<Answer> {
        let ino = self.walk(call.m.path.ino, &call.m.path.path)?;
        let mut layout = self.layout_for(ino);
        if asked.stripe_unit > 0 {
            layout.stripe_unit = asked.stripe_unit;
        }
        if asked.stripe_count > 0 {
            layout.stripe_count = asked.stripe_count;
        }
        if asked.object_size > 0 {
            layout.object_size = asked.object_size;
        }
        if asked.pool > PoolId(0) {
            layout.pool = asked.pool;
        }
        if self.tree.at(ino).is_dir() != dir {
            return Err(if dir { errno::NOTDIR } else { Errno::INVAL }.into());
        }
        self.set_layout(call, ino, layout)?;
        Ok(Answer { target: Some(ino), ..Answer::default() })
    }

    /// Gives an inode another layout; EINVAL, ENOTEMPTY.
    pub(super) fn set_layout(&mut self, call: &mut Call, ino: Ino, layout: FileLayout) -> Op<()> {
        self.check(call, ino, MdsMay(MdsMay::WRITE.0 | MdsMay::SET_VXATTR.0))?;
        layout.striping().map_err(|_| Errno::INVAL)?;
        if !self.world.map.data_pools.contains(&layout.pool) {
            return Err(Errno::INVAL.into());
        }
        let i = &self.tree.at(ino).store.inode;
        if dtype::of_mode(i.mode) == dtype::REG {
            if i.file.size > 0 || i.file.truncate.seq > 1 {
                return Err(errno::NOTEMPTY.into());
            }
            let all = bits::WRITES | bits::FB | bits::FR | bits::FC | bits::FS;
            self.need(call, ino, all, all)?;
        }
        self.tree.cow(&mut call.txn, ino);
        let t = call.txn.time;
        let i = &mut self.tree.at_mut(ino).store.inode;
        if !i.is_dir() && i.layout.pool != layout.pool && !i.file.old_pools.contains(&i.layout.pool)
        {
            let old = i.layout.pool;
            i.file.old_pools.push(old);
            i.file.old_pools.sort_unstable();
        }
        i.layout = layout;
        i.times.ctime = i.times.ctime.max(t);
        i.versions.change_attr += 1;
        self.tree.touch(&mut call.txn, ino);
        call.txn.traces.insert(ino);
        Ok(())
    }

    pub(super) fn op_setfilelock(
        &mut self,
        call: &mut Call,
        rule: u8,
        wait: bool,
        lock: FileLock,
    ) -> Op<Answer> {
        let ino = self.walk(call.m.path.ino, &call.m.path.path)?;
        let lock = FileLock { client: call.client, ..lock };
        let table = match rule {
            1 | 3 => Rule::Fcntl,
            2 | 4 => Rule::Flock,
            _ => return Err(Errno::INVAL.into()),
        };
        if rule >= 3 {
            // The client no longer waits: the request that does is answered.
            self.requests.interrupt(call.client, ino, &lock);
            return Ok(Answer::default());
        }
        if lock.kind != 4 && self.tree.at(ino).locks.conflict(table, &lock).is_some() {
            if self.requests.take_interrupted(call.id) {
                return Err(errno::INTR.into());
            }
            return Err(if wait { Stop::Lock(ino, table, lock) } else { Errno::AGAIN.into() });
        }
        let Some(session) = self.sessions.by_client.get_mut(&call.client) else {
            return Err(Errno::PERM.into());
        };
        let room = CLIENT_LOCKS_MAX.saturating_sub(session.locks);
        let set = self.tree.at_mut(ino).locks.set(table, &lock, room);
        let change = set.map_err(|TooMany| errno::NOLCK)?;
        session.locks = session.locks.saturating_add_signed(change);
        // So that the inode is looked at when the session ends.
        session.caps.insert(ino);
        self.requests.wake_locks(ino, &self.tree.at(ino).locks, Some((table, &lock)));
        Ok(Answer::default())
    }

    pub(super) fn op_getfilelock(&mut self, call: &Call, rule: u8, lock: FileLock) -> Op<Answer> {
        let ino = self.walk(call.m.path.ino, &call.m.path.path)?;
        let lock = FileLock { client: call.client, ..lock };
        let table = if rule == 2 { Rule::Flock } else { Rule::Fcntl };
        let found = self.tree.at(ino).locks.conflict(table, &lock);
        let told = found.unwrap_or(FileLock { kind: 4, ..lock });
        Ok(Answer { extra: Extra::Bytes(told.to_bytes()), ..Answer::default() })
    }
}
