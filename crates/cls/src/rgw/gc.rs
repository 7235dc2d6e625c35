//! Tails of objects to be deleted later, in their older form: by tag (`0_TAG`) and by time
//! (`1_SECONDS.NANOS`). The class `rgw_gc` keeps the newer one.

use bytes::Bytes;
use types::{OpResult, UTime};

use crate::keys::{absent, answer, read, remove_if, write};
use crate::rgw_gc::{Info, List, Listed, SetEntry};
use crate::{DONE, Object, Reply, params, record, stored};

/// Entries of one answer where the caller does not say how many.
const LIST_DEFAULT: u32 = 128;
const BY_TIME: &[u8] = b"1_";

record! { DeferOp(1, 1) { expiration_s: u32, tag: Bytes, } }
record! { RemoveOp(1, 1) { tags: Vec<Bytes>, } }

fn tag_key(tag: &[u8]) -> Bytes {
    [b"0_", tag].concat().into()
}

fn time_key(time: UTime) -> Bytes {
    format!("1_{:011}.{:09}", time.sec, time.nsec).into()
}

fn put(o: &mut dyn Object, expiration_s: u32, mut info: Info) -> OpResult<Reply> {
    let by_tag = tag_key(&info.tag);
    if let Some(old) = absent(read::<Info>(o, &by_tag))? {
        remove_if(o, &time_key(old.time))?;
    }
    let now = o.now();
    info.time = UTime { sec: now.sec.saturating_add(expiration_s), ..now };
    write(o, &by_tag, &info)?;
    write(o, &time_key(info.time), &info)?;
    Ok(DONE)
}

pub(super) fn set_entry(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: SetEntry = params(input)?;
    put(o, op.expiration_s, op.info)
}

pub(super) fn defer_entry(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: DeferOp = params(input)?;
    let info = read(o, &tag_key(&op.tag))?;
    put(o, op.expiration_s, info)
}

pub(super) fn list(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: List = params(input)?;
    let after = if op.marker.is_empty() { Bytes::from_static(BY_TIME) } else { op.marker };
    let max = if op.max == 0 { LIST_DEFAULT } else { op.max };
    let end = op.expired_only.then(|| time_key(o.now()));
    let (pairs, truncated) = o.omap_page(&after, b"", u64::from(max))?;
    let mut ret = Listed { truncated, ..Listed::default() };
    for (key, value) in pairs {
        if end.as_ref().is_some_and(|end| key >= *end) || !key.starts_with(BY_TIME) {
            ret.truncated = false;
            break;
        }
        ret.entries.push(stored(&value)?);
        ret.next = key;
    }
    if !ret.truncated {
        ret.next = Bytes::new();
    }
    answer(&ret)
}

pub(super) fn remove(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: RemoveOp = params(input)?;
    for tag in &op.tags {
        let by_tag = tag_key(tag);
        let Some(info) = absent(read::<Info>(o, &by_tag))? else { continue };
        o.omap_rm(vec![time_key(info.time), by_tag])?;
    }
    Ok(DONE)
}
