//! Operations that take a name away: unlink, rmdir, rename.

use auth::MdsMay;
use bytes::Bytes;
use maps::fs::inos;
use types::{Denc, Errno, Ino};

use crate::capset::bits;
use crate::errno;
use crate::rank::Rank;
use crate::request::{Answer, Call, Op, Stop};
use crate::tree::{Link, Txn};

impl Rank {
    /// Whether nothing is in a directory; its fragments are in memory then.
    fn is_empty_dir(&self, dir: Ino) -> Op<bool> {
        let node = self.tree.at(dir);
        for frag in node.store.fragtree.leaves() {
            let at = maps::fs::DirFrag { ino: dir, frag };
            let fragment = self.tree.fragment(at).ok_or(Stop::Frag(at))?;
            if !fragment.entries.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What a name leads to, with the inode in memory; ENOENT.
    fn entry(&self, dir: Ino, name: &Bytes) -> Op<(Ino, bool)> {
        let entry = self.tree.lookup(dir, name)?.ok_or(Errno::NOENT)?;
        let primary = matches!(entry.link, Link::Primary(_));
        Ok((self.inode(entry.link.ino())?, primary))
    }

    /// A stray directory that is in memory takes what loses its last name.
    fn stray_dir(&self, ino: Ino) -> Op<Ino> {
        let dir = inos::stray(self.id as u64, ino.0 % inos::STRAYS);
        if self.tree.node(dir).is_none() {
            return Err(Stop::Ino(dir));
        }
        let at = self.tree.dirfrag(dir, stray_name(ino).as_bytes());
        self.tree.part(at).map(|_| dir).ok_or(Stop::Frag(at))
    }

    /// Before a name of `target` goes: what must hold. `dir_wanted` is for rmdir.
    fn may_drop(&mut self, call: &Call, target: Ino, primary: bool) -> Op<()> {
        if self.tree.at(target).is_dir()
            && (!self.is_empty_dir(target)? || !self.tree.at(target).realm().snaps.is_empty())
        {
            return Err(errno::NOTEMPTY.into());
        }
        if primary {
            self.stray_dir(target)?;
        } else if let Some((dir, name)) = self.tree.at(target).at.clone() {
            // The inode is recorded where its primary entry is.
            self.tree.lookup(dir, &name)?;
        }
        let mask = bits::LS | bits::LX;
        self.need(call, target, mask, mask)
    }

    /// Takes the name away.
    fn drop_name(&mut self, txn: &mut Txn, dir: Ino, name: &Bytes, target: Ino) {
        let prior = self.tree.path(target);
        let time = txn.time;
        let stray = inos::stray(self.id as u64, target.0 % inos::STRAYS);
        let primary = self.tree.at(target).at.as_ref() == Some(&(dir, name.clone()));
        let realm = if primary { self.tree.realm_to_be(target, stray) } else { None };
        self.tree.cow_name(txn, dir, name);
        if !primary {
            self.tree.cow(txn, target);
        }
        let i = &mut self.tree.at_mut(target).store.inode;
        i.nlink -= 1;
        i.times.ctime = i.times.ctime.max(time);
        i.versions.change_attr += 1;
        if let Some(mut node) = self.tree.unlink(txn, dir, name) {
            node.store.inode.stray_prior_path = prior.into();
            let is_realm = realm.is_some();
            if let Some(realm) = realm {
                node.store.snap_realm = realm.to_bytes();
            }
            let name = Bytes::from(stray_name(target));
            self.tree.link(txn, stray, &name, node, Bytes::new());
            if is_realm {
                txn.hard = true;
                self.tell_split(target);
            }
        } else {
            self.tree.touch(txn, target);
        }
        // Holders hear that it has one name less.
        let clients: Vec<i64> = self.tree.at(target).caps.by_client.keys().copied().collect();
        for client in clients {
            self.send_caps(target, client, messages::fs::cap_op::GRANT);
        }
    }

    pub(super) fn op_unlink(&mut self, call: &mut Call, is_rmdir: bool) -> Op<Answer> {
        let last = call.m.path.path.rsplit(|b| *b == b'/').next();
        if is_rmdir && matches!(last, Some(b"." | b"..")) {
            // What has itself or the caller in it is never empty.
            return Err(errno::NOTEMPTY.into());
        }
        let (dir, name) = self.parent(call.m.path.ino, &call.m.path.path)?;
        self.check(call, dir, MdsMay::WRITE)?;
        let (target, primary) = self.entry(dir, &name)?;
        match (is_rmdir, self.tree.at(target).is_dir()) {
            (true, false) => return Err(errno::NOTDIR.into()),
            (false, true) => return Err(errno::ISDIR.into()),
            _ => {}
        }
        self.may_drop(call, target, primary)?;
        self.need_dir(call, dir)?;
        self.drop_name(&mut call.txn, dir, &name, target);
        self.purger.look.insert(target);
        Ok(Answer { dentry: Some((dir, name)), ..Answer::default() })
    }

    pub(super) fn op_rename(&mut self, call: &mut Call) -> Op<Answer> {
        let dots = |path: &Bytes| matches!(path.rsplit(|b| *b == b'/').next(), Some(b"." | b".."));
        if dots(&call.m.path.path) || dots(&call.m.path2.path) {
            return Err(Errno::BUSY.into());
        }
        let (to, new) = self.parent(call.m.path.ino, &call.m.path.path)?;
        let (from, old) = self.parent(call.m.path2.ino, &call.m.path2.path)?;
        self.check(call, from, MdsMay::WRITE)?;
        self.check(call, to, MdsMay::WRITE)?;
        self.may_name(call, to)?;
        if self.tree.at(to).is_stray() || self.tree.at(from).is_stray() {
            return Err(Errno::NOENT.into());
        }
        let (moved, moved_primary) = self.entry(from, &old)?;
        let is_dir = self.tree.at(moved).is_dir();
        if is_dir && (moved == to || self.tree.ancestors(to).any(|a| a == moved)) {
            return Err(Errno::INVAL.into());
        }
        if self.subvolume_of(from) != self.subvolume_of(to) {
            return Err(errno::XDEV.into());
        }
        let there = match self.tree.lookup(to, &new)? {
            Some(_) => Some(self.entry(to, &new)?),
            None => None,
        };
        if let Some((target, primary)) = there {
            if target == moved {
                // Two names of one inode, or the same name: nothing happens.
                return Ok(Answer {
                    dentry: Some((to, new)),
                    target: Some(moved),
                    ..Answer::default()
                });
            }
            match (is_dir, self.tree.at(target).is_dir()) {
                (true, false) => return Err(errno::NOTDIR.into()),
                (false, true) => return Err(errno::ISDIR.into()),
                _ => {}
            }
            self.may_drop(call, target, primary)?;
        } else {
            if from != to {
                self.need_room(to, &new)?;
            }
        }
        let mask = bits::LS | bits::LX;
        self.need(call, moved, mask, mask)?;
        self.need_dir(call, from)?;
        if to != from {
            self.need_dir(call, to)?;
        }
        if let Some((target, _)) = there {
            self.drop_name(&mut call.txn, to, &new, target);
            self.purger.look.insert(target);
        }
        let alternate = call.m.alternate_name.clone();
        let time = call.txn.time;
        let before = self.tree.realm_of(moved);
        let realm = if moved_primary { self.tree.realm_to_be(moved, to) } else { None };
        self.tree.cow_name(&mut call.txn, from, &old);
        if !moved_primary {
            self.tree.cow(&mut call.txn, moved);
        }
        let i = &mut self.tree.at_mut(moved).store.inode;
        i.times.ctime = i.times.ctime.max(time);
        i.versions.change_attr += 1;
        // All below has another path then, and perhaps another realm.
        call.txn.hard |= is_dir || realm.is_some();
        if moved_primary {
            let node = self.tree.unlink(&mut call.txn, from, &old);
            let mut node = node.ok_or(Errno::IO)?;
            if let Some(realm) = realm {
                node.store.snap_realm = realm.to_bytes();
            }
            self.tree.link(&mut call.txn, to, &new, node, alternate);
            let now = self.tree.realm_of(moved);
            call.txn.hard |= now != before;
            if now == moved {
                self.tell_realm_moved(before, moved);
            } else if now != before {
                self.tell_split(now);
            }
        } else {
            let d_type = maps::fs::dtype::of_mode(i.mode);
            self.tree.unlink(&mut call.txn, from, &old);
            self.tree.link_remote(&mut call.txn, to, &new, moved, d_type);
            self.tree.touch(&mut call.txn, moved);
        }
        Ok(Answer { dentry: Some((to, new)), target: Some(moved), ..Answer::default() })
    }
}

/// The name of an inode in a stray directory.
pub(crate) fn stray_name(ino: Ino) -> String {
    format!("{:x}", ino.0)
}
