//! Methods on heads of objects: removal that keeps attributes, and conditions.

use bytes::Bytes;
use denc::Denc;
use types::{Errno, OpResult, UTime};

use super::versions::precise;
use crate::keys::absent;
use crate::{DONE, Object, Reply, params, record};

record! { RemoveOp(1, 1) { keep_prefixes: Vec<Bytes>, } }
record! { StorePgVerOp(1, 1) { attr: Bytes, } }
record! { CheckAttrsOp(1, 1) { prefix: Bytes, fail_if_exist: bool, } }
record! { CheckMtimeOp(2, 1) { mtime: UTime, compare: u8, high_precision: bool = 2, } }

pub(super) fn remove(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: RemoveOp = params(input)?;
    let mut kept = Vec::new();
    if !op.keep_prefixes.is_empty() {
        kept = absent(o.attrs())?.unwrap_or_default();
        kept.retain(|(name, _)| op.keep_prefixes.iter().any(|prefix| name.starts_with(prefix)));
    }
    o.remove()?;
    if !kept.is_empty() {
        o.create(false)?;
        for (name, value) in kept {
            o.set_attr(&name, value)?;
        }
    }
    Ok(DONE)
}

/// Keeps the PG's version, not the object's: it grows when an object is removed and made anew.
pub(super) fn store_pg_ver(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: StorePgVerOp = params(input)?;
    let version = o.pg_version();
    o.set_attr(&op.attr, version.to_bytes())?;
    Ok(DONE)
}

pub(super) fn check_attrs_prefix(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: CheckAttrsOp = params(input)?;
    if op.prefix.is_empty() {
        return Err(Errno::INVAL);
    }
    let attrs = absent(o.attrs())?.unwrap_or_default();
    let exist = attrs.iter().any(|(name, _)| name.starts_with(&op.prefix));
    if exist == op.fail_if_exist { Err(Errno::CANCELED) } else { Ok(DONE) }
}

pub(super) fn check_mtime(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: CheckMtimeOp = params(input)?;
    let mtime = absent(o.stat())?.map_or(UTime::ZERO, |(_, mtime)| mtime);
    let mtime = precise(mtime, op.high_precision);
    let wanted = precise(op.mtime, op.high_precision);
    let holds = match op.compare {
        0 => mtime == wanted,
        1 => mtime < wanted,
        2 => mtime <= wanted,
        3 => mtime > wanted,
        4 => mtime >= wanted,
        _ => return Err(Errno::INVAL),
    };
    if holds { Ok(DONE) } else { Err(Errno::CANCELED) }
}
