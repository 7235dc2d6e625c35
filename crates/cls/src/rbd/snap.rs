//! Snapshots of an image, and the clones of each.

use std::collections::BTreeSet;

use bytes::Bytes;
use denc::{Denc, Reader};
use types::{Errno, OpResult, Uuid};

use super::header::{require, set_op_features};
use super::types::{ChildSpec, HEAD, Parent, SNAP_MAX, Snap, SnapInfo, SnapKind};
use super::{feature, old, op_feature, snap_key};
use crate::keys::{
    self, Step, absent, answer, hex_key, hex_of, read, read_if, remove_if, walk, write,
};
use crate::{DONE, Object, Reply, STALE, arg, params, stored};

pub(super) const PREFIX: &str = "snapshot_";
const CHILDREN: &str = "snap_children_";
const UNPROTECTED: u8 = 0;
/// Protection states end before it.
const PROTECTION_LAST: u8 = 3;
const LIMIT: &[u8] = b"snap_limit";
const TRASH: u32 = 2;

/// Writes a snapshot. A parent that it names itself becomes the image's.
pub(super) fn save(o: &mut dyn Object, mut snap: Snap, key: &[u8]) -> OpResult<Reply> {
    if snap.parent.exists() {
        let on_disk = read_if::<Parent>(o, b"parent")?.unwrap_or_default();
        if !on_disk.exists() {
            let parent = Parent { overlap: None, ..snap.parent.clone() };
            write(o, b"parent", &parent)?;
        }
        snap.overlap = snap.parent.overlap;
        snap.parent = Parent::default();
    }
    write(o, key, &snap).map(keys::done)
}

/// Walks all snapshots, by id; without the object there are none.
pub(super) fn each(o: &mut dyn Object, mut f: impl FnMut(Snap) -> OpResult<()>) -> OpResult<()> {
    absent(walk(o, PREFIX.as_bytes(), PREFIX.as_bytes(), |_, raw| {
        f(stored(raw)?)?;
        Ok(Step::Next)
    }))
    .map(drop)
}

fn find(o: &mut dyn Object, id: u64) -> OpResult<(Bytes, Snap)> {
    let key = snap_key(id);
    let snap = read(o, &key)?;
    Ok((key, snap))
}

pub(super) fn get_snapcontext(o: &mut dyn Object, _: &Bytes) -> OpResult<Reply> {
    let mut ids = Vec::new();
    walk(o, PREFIX.as_bytes(), PREFIX.as_bytes(), |key, _| {
        ids.push(hex_of(key, PREFIX.as_bytes()).unwrap_or(0));
        Ok(Step::Next)
    })?;
    let seq: u64 = read(o, b"snap_seq")?;
    ids.reverse();
    answer(&(seq, ids))
}

/// One that a client names: the image itself is none.
fn named(o: &mut dyn Object, input: &Bytes) -> OpResult<Snap> {
    let id: u64 = params(input)?;
    if id == HEAD {
        return Err(Errno::INVAL);
    }
    Ok(find(o, id)?.1)
}

pub(super) fn get_name(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    answer(&named(o, input)?.name)
}

pub(super) fn get_timestamp(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    answer(&named(o, input)?.time)
}

pub(super) fn get(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let Snap { id, kind, name, size, time, children, .. } = named(o, input)?;
    answer(&SnapInfo { id, kind, name, size, time, children })
}

pub(super) fn get_protection(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let _: u64 = params(input)?;
    o.stat()?;
    let protection = named(o, input)?.protection;
    if protection >= PROTECTION_LAST {
        return Err(Errno::IO);
    }
    answer(&protection)
}

pub(super) fn set_protection(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let (id, protection): (u64, u8) = params(input)?;
    o.stat()?;
    require(o, feature::LAYERING)?;
    if id == HEAD || protection >= PROTECTION_LAST {
        return Err(Errno::INVAL);
    }
    let (key, snap) = find(o, id)?;
    save(o, Snap { protection, ..snap }, &key)
}

pub(super) fn add(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let mut r = Reader::shared(input);
    let (name, id): (Bytes, u64) = (arg(&mut r)?, arg(&mut r)?);
    let kind: SnapKind = if r.left() > 0 { arg(&mut r)? } else { SnapKind::User };
    if kind == SnapKind::Unknown || id > SNAP_MAX {
        return Err(Errno::INVAL);
    }
    // Another snapshot was faster.
    if id < read::<u64>(o, b"snap_seq")? {
        return Err(STALE);
    }
    let size: u64 = read(o, b"size")?;
    let flags: u64 = read_if(o, b"flags")?.unwrap_or(0);
    let limit: u64 = read_if(o, LIMIT)?.unwrap_or(u64::MAX);
    let mut count = 0;
    each(o, |other| {
        count += 1;
        if count >= limit {
            return Err(Errno::DQUOT);
        }
        let same_name = other.name == name && other.kind == kind;
        if same_name || other.id == id { Err(Errno::EXIST) } else { Ok(()) }
    })?;
    let parent = read_if::<Parent>(o, b"parent")?.unwrap_or_default();
    if kind.kind() == TRASH {
        set_op_features(o, op_feature::SNAP_TRASH, op_feature::SNAP_TRASH)?;
    }
    write(o, b"snap_seq", &id)?;
    let time = o.now();
    let snap = Snap { id, name, size, parent, flags, kind, time, ..Snap::default() };
    save(o, snap, &snap_key(id))
}

pub(super) fn rename(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let (id, name): (u64, Bytes) = params(input)?;
    each(o, |other| {
        let taken = other.kind == SnapKind::User && other.name == name;
        if taken { Err(Errno::EXIST) } else { Ok(()) }
    })?;
    let (key, snap) = find(o, id)?;
    if snap.kind != SnapKind::User {
        return Err(Errno::INVAL);
    }
    save(o, Snap { name, ..snap }, &key)
}

pub(super) fn remove(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let id: u64 = params(input)?;
    let (key, snap) = find(o, id)?;
    if snap.protection != UNPROTECTED || snap.children > 0 {
        return Err(Errno::BUSY);
    }
    keys::remove(o, &key)?;
    let (mut has_children, mut has_trash) = (false, false);
    each(o, |other| {
        // What was removed here is still read.
        if other.id == id {
            return Ok(());
        }
        has_children |= other.parent.pool != -1 || other.overlap.is_some();
        has_trash |= other.kind.kind() == TRASH;
        Ok(())
    })?;
    let parent = read_if::<Parent>(o, b"parent")?.filter(Parent::exists);
    let head_is_child = parent.as_ref().is_some_and(|p| p.overlap.is_some());
    if parent.is_some() && !head_is_child && !has_children {
        remove_if(o, b"parent")?;
    }
    let mut mask = 0;
    if !has_children && !head_is_child {
        mask |= op_feature::CLONE_CHILD;
    }
    if !has_trash {
        mask |= op_feature::SNAP_TRASH;
    }
    if mask != 0 {
        set_op_features(o, 0, mask)?;
    }
    Ok(DONE)
}

/// A fresh name.
pub(super) fn uuid(o: &mut dyn Object) -> Bytes {
    let mut raw = [0; 16];
    o.random(&mut raw);
    Uuid::from_random(raw).to_string().into()
}

pub(super) fn trash_add(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let (key, mut snap) = find(o, params(input)?)?;
    if snap.protection != UNPROTECTED {
        return Err(Errno::BUSY);
    }
    let kind = snap.kind.kind();
    if kind == TRASH {
        return Err(Errno::EXIST);
    }
    set_op_features(o, op_feature::SNAP_TRASH, op_feature::SNAP_TRASH)?;
    let name = uuid(o);
    let name = std::mem::replace(&mut snap.name, name);
    snap.kind = SnapKind::Trash { name, kind };
    save(o, snap, &key)
}

pub(super) fn get_limit(o: &mut dyn Object, _: &Bytes) -> OpResult<Reply> {
    o.stat()?;
    answer(&read_if::<u64>(o, LIMIT)?.unwrap_or(u64::MAX))
}

pub(super) fn set_limit(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let limit: u64 = params(input)?;
    if limit == u64::MAX {
        return keys::remove(o, LIMIT).map(keys::done);
    }
    let count = match old::Header::load(o) {
        Ok(header) => header.snap_count(),
        Err(Errno::INVAL) => {
            let mut count = 0;
            walk(o, PREFIX.as_bytes(), PREFIX.as_bytes(), |_, _| {
                count += 1;
                Ok(Step::Next)
            })?;
            count
        }
        Err(e) => return Err(e),
    };
    if limit < count {
        return Err(Errno::RANGE);
    }
    write(o, LIMIT, &limit).map(keys::done)
}

type Children = BTreeSet<ChildSpec>;

pub(super) fn child_attach(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let (id, child): (u64, ChildSpec) = params(input)?;
    let (key, mut snap) = find(o, id)?;
    if snap.kind.kind() == TRASH {
        return Err(Errno::NOENT);
    }
    let children_key = hex_key(CHILDREN, id);
    let mut children: Children = read_if(o, &children_key)?.unwrap_or_default();
    if !children.insert(child) {
        return Err(Errno::EXIST);
    }
    write(o, &children_key, &children)?;
    snap.children = snap.children.saturating_add(1);
    save(o, snap, &key)?;
    set_op_features(o, op_feature::CLONE_PARENT, op_feature::CLONE_PARENT).map(keys::done)
}

pub(super) fn child_detach(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let (id, child): (u64, ChildSpec) = params(input)?;
    let (key, mut snap) = find(o, id)?;
    let children_key = hex_key(CHILDREN, id);
    let mut children: Children = read_if(o, &children_key)?.unwrap_or_default();
    if snap.children as usize != children.len() {
        return Err(Errno::INVAL);
    }
    if !children.remove(&child) {
        return Err(Errno::NOENT);
    }
    if children.is_empty() {
        keys::remove(o, &children_key)?;
    } else {
        write(o, &children_key, &children)?;
    }
    snap.children = children.len() as u32;
    save(o, snap, &key)?;
    if children.is_empty() {
        let mut others = false;
        each(o, |other| {
            others |= other.id != id && other.children > 0;
            Ok(())
        })?;
        if !others {
            set_op_features(o, 0, op_feature::CLONE_PARENT)?;
        }
    }
    Ok(DONE)
}

pub(super) fn children_list(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let id: u64 = params(input)?;
    find(o, id)?;
    answer(&read::<Children>(o, &hex_key(CHILDREN, id))?)
}

/// The key of a parent's snapshot in `rbd_children`: its encoding.
fn parent_key(r: &mut Reader<'_>) -> OpResult<Bytes> {
    let (pool, image, snap): (u64, Bytes, u64) = (arg(r)?, arg(r)?, arg(r)?);
    Ok(((pool, image), snap).to_bytes())
}

pub(super) fn add_child(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let mut r = Reader::shared(input);
    let key = parent_key(&mut r)?;
    let child: Bytes = arg(&mut r)?;
    let mut children: BTreeSet<Bytes> = read_if(o, &key)?.unwrap_or_default();
    if !children.insert(child) {
        return Err(Errno::EXIST);
    }
    write(o, &key, &children).map(keys::done)
}

pub(super) fn remove_child(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let mut r = Reader::shared(input);
    let key = parent_key(&mut r)?;
    let child: Bytes = arg(&mut r)?;
    let mut children: BTreeSet<Bytes> = read(o, &key)?;
    if !children.remove(&child) {
        return Err(Errno::NOENT);
    }
    let result =
        if children.is_empty() { keys::remove(o, &key) } else { write(o, &key, &children) };
    result.map(keys::done)
}

pub(super) fn get_children(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let key = parent_key(&mut Reader::shared(input))?;
    answer(&read::<BTreeSet<Bytes>>(o, &key)?)
}
