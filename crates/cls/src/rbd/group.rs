//! Groups of images, and their snapshots.

use bytes::Bytes;
use types::{Errno, OpResult};

use super::header::set_op_features;
use super::op_feature;
use super::types::{GroupImage, GroupImageStatus, GroupSnap, GroupSpec};
use crate::keys::{self, Step, absent, answer, exists, key, list, read, read_if, walk, write};
use crate::{BADF, DONE, Object, Reply, params, stored};

const IMAGE: &str = "image_";
/// In an image's header: the group that it is in.
const REF: &[u8] = b"rbd_group_ref";
const SNAP: &[u8] = b"snapshot_";
const SNAP_ORDER: &[u8] = b"snap_order_";
const SNAP_MAX_ORDER: &[u8] = b"snap_max_order";
const INCOMPLETE: u8 = 0;

/// The key of an image in a group; empty for none.
fn image_key(image: &GroupImage) -> Bytes {
    if image.pool == -1 {
        return Bytes::new();
    }
    [format!("{IMAGE}{:016x}_", image.pool).as_bytes(), &image.image].concat().into()
}

fn image_of(key: &Bytes) -> OpResult<GroupImage> {
    let rest = key.slice(IMAGE.len()..);
    let at = rest.iter().position(|c| *c == b'_').ok_or(Errno::IO)?;
    let pool = std::str::from_utf8(&rest[..at]).ok().and_then(|s| u64::from_str_radix(s, 16).ok());
    Ok(GroupImage { pool: pool.ok_or(Errno::IO)? as i64, image: rest.slice(at + 1..) })
}

pub(super) fn image_set(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let status: GroupImageStatus = params(input)?;
    write(o, &image_key(&status.spec), &status.state).map(keys::done)
}

pub(super) fn image_remove(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let spec: GroupImage = params(input)?;
    keys::remove(o, &image_key(&spec)).map(keys::done)
}

pub(super) fn image_list(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let (start, max): (GroupImage, u64) = params(input)?;
    let start = image_key(&start);
    let mut found: Vec<GroupImageStatus> = Vec::new();
    if max > 0 {
        walk(o, &start, IMAGE.as_bytes(), |key, raw| {
            found.push(GroupImageStatus { spec: image_of(key)?, state: stored(raw)? });
            Ok(if found.len() as u64 >= max { Step::Enough } else { Step::Next })
        })?;
    } else {
        o.stat()?;
    }
    answer(&found)
}

pub(super) fn of_image_add(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let group: GroupSpec = params(input)?;
    if let Some(raw) = absent(o.omap_get(REF))? {
        let old: GroupSpec = params(&raw)?;
        return if old == group { Ok(DONE) } else { Err(Errno::EXIST) };
    }
    set_op_features(o, op_feature::GROUP, op_feature::GROUP)?;
    write(o, REF, &group).map(keys::done)
}

pub(super) fn of_image_remove(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let group: GroupSpec = params(input)?;
    let old: GroupSpec = params(&o.omap_get(REF)?)?;
    if old != group {
        return Err(BADF);
    }
    keys::remove(o, REF)?;
    set_op_features(o, 0, op_feature::GROUP).map(keys::done)
}

pub(super) fn of_image_get(o: &mut dyn Object, _: &Bytes) -> OpResult<Reply> {
    o.stat()?;
    let group = match absent(o.omap_get(REF))? {
        Some(raw) => params(&raw)?,
        None => GroupSpec::default(),
    };
    answer(&group)
}

pub(super) fn snap_set(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let snap: GroupSnap = params(input)?;
    if snap.name.is_empty() || snap.id.is_empty() {
        return Err(Errno::INVAL);
    }
    absent(walk(o, SNAP, SNAP, |_, raw| {
        let other: GroupSnap = stored(raw)?;
        let taken = other.name == snap.name && other.id != snap.id;
        if taken { Err(Errno::EXIST) } else { Ok(Step::Next) }
    }))?;
    let snap_key = key(SNAP, &snap.id);
    if snap.state == INCOMPLETE {
        let order_key = key(SNAP_ORDER, &snap.id);
        if exists(o, &snap_key)? || exists(o, &order_key)? {
            return Err(Errno::EXIST);
        }
        let order = read_if::<u64>(o, SNAP_MAX_ORDER)?.unwrap_or(0).wrapping_add(1);
        write(o, &order_key, &order)?;
        write(o, SNAP_MAX_ORDER, &order)?;
    }
    write(o, &snap_key, &snap).map(keys::done)
}

pub(super) fn snap_remove(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let id: Bytes = params(input)?;
    o.omap_rm(vec![key(SNAP, &id), key(SNAP_ORDER, &id)])?;
    Ok(DONE)
}

pub(super) fn snap_get(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let id: Bytes = params(input)?;
    answer(&read::<GroupSnap>(o, &key(SNAP, &id))?)
}

pub(super) fn snap_list(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let (start, max): (GroupSnap, u64) = params(input)?;
    let found = list::<GroupSnap>(o, SNAP, &start.id, max)?;
    answer(&found.into_iter().map(|(_, snap)| snap).collect::<Vec<_>>())
}

pub(super) fn snap_list_order(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let (start, max): (Bytes, u64) = params(input)?;
    answer(&list::<u64>(o, SNAP_ORDER, &start, max)?)
}
