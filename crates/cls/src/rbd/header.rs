//! An image's header: size, features, striping, times, flags, metadata.

use bytes::Bytes;
use denc::{Denc, Reader};
use types::{Errno, OpResult, UTime};

use super::types::{HEAD, Parent, Snap};
use super::{feature, op_feature, snap_key};
use crate::keys::{self, absent, answer, key, read, read_if, remove_if, write};
use crate::{DONE, NOEXEC, Object, Reply, arg, params};

pub(super) const METADATA: &[u8] = b"metadata_";
/// What a listing without a bound answers.
const METADATA_DEFAULT: u64 = 64;

/// ENOEXEC for an image without that feature, or of the old format.
pub(super) fn require(o: &mut dyn Object, needed: u64) -> OpResult<()> {
    match read_if::<u64>(o, b"features")? {
        Some(features) if features & needed == needed => Ok(()),
        _ => Err(NOEXEC),
    }
}

/// Sets bits of the operations' features; the feature `operations` says that there are any.
pub(super) fn set_op_features(o: &mut dyn Object, bits: u64, mask: u64) -> OpResult<()> {
    let old_features: u64 = read(o, b"features")?;
    let old: u64 = read_if(o, b"op_features")?.unwrap_or(0);
    let new = (old & !mask) | (bits & mask);
    if new == old {
        return Ok(());
    }
    let features = if new == 0 {
        remove_if(o, b"op_features")?;
        old_features & !feature::OPERATIONS
    } else {
        write(o, b"op_features", &new)?;
        old_features | feature::OPERATIONS
    };
    if features != old_features {
        write(o, b"features", &features)?;
    }
    Ok(())
}

pub(super) fn create(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let mut r = Reader::shared(input);
    let (size, order): (u64, u8) = (arg(&mut r)?, arg(&mut r)?);
    let (features, prefix): (u64, Bytes) = (arg(&mut r)?, arg(&mut r)?);
    let data_pool: i64 = if r.left() > 0 { arg(&mut r)? } else { -1 };
    if features & !feature::ALL != 0 {
        return Err(Errno::NOSYS);
    }
    if prefix.is_empty() {
        return Err(Errno::INVAL);
    }
    if o.omap_get(b"object_prefix") != Err(Errno::NOENT) {
        return Err(Errno::EXIST);
    }
    if features & feature::OPERATIONS != 0 {
        return Err(Errno::INVAL);
    }
    let now = o.now().to_bytes();
    let pair = |key: &'static str, value: Bytes| (Bytes::from_static(key.as_bytes()), value);
    let mut pairs = vec![
        pair("size", size.to_bytes()),
        pair("order", order.to_bytes()),
        pair("features", features.to_bytes()),
        pair("object_prefix", prefix.to_bytes()),
        pair("snap_seq", 0u64.to_bytes()),
        pair("create_timestamp", now.clone()),
        pair("access_timestamp", now.clone()),
        pair("modify_timestamp", now),
    ];
    if (features & feature::DATA_POOL != 0) != (data_pool != -1) {
        return Err(Errno::INVAL);
    }
    if data_pool != -1 {
        pairs.push(pair("data_pool_id", data_pool.to_bytes()));
    }
    o.omap_set(pairs)?;
    Ok(DONE)
}

pub(super) fn get_features(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let mut r = Reader::shared(input);
    let _snap: u64 = arg(&mut r)?;
    let read_only: bool = if r.left() > 0 { arg(&mut r)? } else { false };
    let features: u64 = read(o, b"features")?;
    let mask = if read_only { feature::INCOMPATIBLE } else { feature::RW_INCOMPATIBLE };
    answer(&(features, features & mask))
}

pub(super) fn set_features(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let (bits, mask): (u64, u64) = params(input)?;
    let old: u64 = read_if(o, b"features")?.unwrap_or(0);
    // Clients of later releases may mask what is not known here.
    let known = mask & feature::ALL;
    let (enabled, disabled) = (bits & known, !bits & known);
    if mask & feature::INTERNAL != 0
        || enabled & !feature::MUTABLE != 0
        || disabled & !(feature::MUTABLE | feature::DISABLE_ONLY) != 0
    {
        return Err(Errno::INVAL);
    }
    write(o, b"features", &((old & !known) | enabled)).map(keys::done)
}

pub(super) fn get_all_features(_: &mut dyn Object, _: &Bytes) -> OpResult<Reply> {
    answer(&feature::ALL)
}

pub(super) fn get_size(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let snap: u64 = params(input)?;
    let order: u8 = read(o, b"order")?;
    let size: u64 =
        if snap == HEAD { read(o, b"size")? } else { read::<Snap>(o, &snap_key(snap))?.size };
    answer(&(order, size))
}

pub(super) fn set_size(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let size: u64 = params(input)?;
    let old: u64 = read(o, b"size")?;
    write(o, b"size", &size)?;
    if size < old
        && let Some(mut parent) = read_if::<Parent>(o, b"parent")?
        && parent.exists()
        && parent.overlap.is_some_and(|overlap| overlap > size)
    {
        parent.overlap = Some(size);
        write(o, b"parent", &parent)?;
    }
    Ok(DONE)
}

pub(super) fn get_object_prefix(o: &mut dyn Object, _: &Bytes) -> OpResult<Reply> {
    answer(&read::<Bytes>(o, b"object_prefix")?)
}

pub(super) fn get_data_pool(o: &mut dyn Object, _: &Bytes) -> OpResult<Reply> {
    o.stat()?;
    answer(&read_if::<i64>(o, b"data_pool_id")?.unwrap_or(-1))
}

pub(super) fn get_stripe(o: &mut dyn Object, _: &Bytes) -> OpResult<Reply> {
    o.stat()?;
    require(o, feature::STRIPINGV2)?;
    let unit: u64 = match read_if(o, b"stripe_unit")? {
        Some(unit) => unit,
        None => {
            let order: u8 = read(o, b"order").map_err(|_| Errno::IO)?;
            1u64.checked_shl(order.into()).ok_or(Errno::IO)?
        }
    };
    let count: u64 = read_if(o, b"stripe_count")?.unwrap_or(1);
    answer(&(unit, count))
}

pub(super) fn set_stripe(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let (unit, count): (u64, u64) = params(input)?;
    if unit == 0 || count == 0 {
        return Err(Errno::INVAL);
    }
    o.stat()?;
    require(o, feature::STRIPINGV2)?;
    let order: u8 = read(o, b"order")?;
    let object = 1u64.checked_shl(order.into()).ok_or(Errno::IO)?;
    if object % unit != 0 {
        return Err(Errno::INVAL);
    }
    write(o, b"stripe_unit", &unit)?;
    write(o, b"stripe_count", &count).map(keys::done)
}

/// The time under a key; zero in headers of old.
fn time(o: &mut dyn Object, key: &[u8]) -> OpResult<Reply> {
    o.stat()?;
    answer(&read_if::<UTime>(o, key)?.unwrap_or_default())
}

pub(super) fn get_create_timestamp(o: &mut dyn Object, _: &Bytes) -> OpResult<Reply> {
    time(o, b"create_timestamp")
}

pub(super) fn get_access_timestamp(o: &mut dyn Object, _: &Bytes) -> OpResult<Reply> {
    time(o, b"access_timestamp")
}

pub(super) fn get_modify_timestamp(o: &mut dyn Object, _: &Bytes) -> OpResult<Reply> {
    time(o, b"modify_timestamp")
}

fn set_time(o: &mut dyn Object, key: &[u8]) -> OpResult<Reply> {
    o.stat()?;
    let now = o.now();
    write(o, key, &now).map(keys::done)
}

pub(super) fn set_access_timestamp(o: &mut dyn Object, _: &Bytes) -> OpResult<Reply> {
    set_time(o, b"access_timestamp")
}

pub(super) fn set_modify_timestamp(o: &mut dyn Object, _: &Bytes) -> OpResult<Reply> {
    set_time(o, b"modify_timestamp")
}

pub(super) fn get_flags(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let snap: u64 = params(input)?;
    o.stat()?;
    let flags: u64 = if snap == HEAD {
        read_if(o, b"flags")?.unwrap_or(0)
    } else {
        read::<Snap>(o, &snap_key(snap))?.flags
    };
    answer(&flags)
}

pub(super) fn set_flags(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let mut r = Reader::shared(input);
    let (flags, mask): (u64, u64) = (arg(&mut r)?, arg(&mut r)?);
    let id: u64 = if r.left() > 0 { arg(&mut r)? } else { HEAD };
    if id == HEAD {
        let old: u64 = read_if(o, b"flags")?.unwrap_or(0);
        return write(o, b"flags", &((old & !mask) | (flags & mask))).map(keys::done);
    }
    let key = snap_key(id);
    let mut snap: Snap = read(o, &key)?;
    snap.flags = (snap.flags & !mask) | (flags & mask);
    super::snap::save(o, snap, &key)
}

pub(super) fn op_features_get(o: &mut dyn Object, _: &Bytes) -> OpResult<Reply> {
    o.stat()?;
    answer(&read_if::<u64>(o, b"op_features")?.unwrap_or(0))
}

pub(super) fn op_features_set(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let (bits, mask): (u64, u64) = params(input)?;
    if mask & !op_feature::ALL != 0 {
        return Err(Errno::INVAL);
    }
    set_op_features(o, bits, mask).map(keys::done)
}

/// Values are answered as they are stored.
pub(super) fn metadata_list(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let (start, max): (Bytes, u64) = params(input)?;
    let max = if max == 0 { METADATA_DEFAULT } else { max };
    let mut found = Vec::new();
    keys::walk(o, &key(METADATA, &start), METADATA, |key, value| {
        found.push((key.slice(METADATA.len()..), value.clone()));
        Ok(if found.len() as u64 >= max { keys::Step::Enough } else { keys::Step::Next })
    })?;
    answer(&found)
}

pub(super) fn metadata_set(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let pairs: Vec<(Bytes, Bytes)> = params(input)?;
    o.omap_set(pairs.into_iter().map(|(name, value)| (key(METADATA, &name), value)).collect())?;
    Ok(DONE)
}

pub(super) fn metadata_remove(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let name: Bytes = params(input)?;
    keys::remove(o, &key(METADATA, &name)).map(keys::done)
}

pub(super) fn metadata_get(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let name: Bytes = params(input)?;
    answer(&o.omap_get(&key(METADATA, &name))?)
}

/// The condition under which a clone's copy-up is safe: the writer's snapshot context
/// against what the object has seen.
pub(super) fn assert_snapc_seq(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let (seq, wanted): (u64, u8) = params(input)?;
    let newer = absent(o.snapset_seq())?.is_none_or(|seen| seq > seen);
    match (wanted, newer) {
        (0, true) | (1, false) => Ok(DONE),
        (0 | 1, _) => Err(Errno::RANGE),
        _ => Err(Errno::OPNOTSUPP),
    }
}
