//! The queue of buckets to be resharded, by `TENANT:BUCKET`.

use bytes::Bytes;
use types::{Errno, OpResult, UTime};

use crate::keys::{answer, exists, read, write};
use crate::{DONE, Object, Reply, params, record, stored};

/// Entries of one answer.
const LIST_MAX: u32 = 1000;

record! {
    /// `cls_rgw_reshard_entry`.
    Entry(3, 1) {
        time: UTime,
        tenant: Bytes,
        bucket: Bytes,
        bucket_id: Bytes,
        old_shards: u32,
        new_shards: u32,
        initiator: u8 = 3,
    }
}
record! { AddOp(2, 1) { entry: Entry, create_only: bool = 2, } }
record! { ListOp(1, 1) { max: u32, marker: Bytes, } }
record! { ListRet(1, 1) { entries: Vec<Entry>, truncated: bool, } }
record! {
    /// Of `reshard_get`, and what it answers.
    EntryOp(1, 1) { entry: Entry, }
}
record! { RemoveOp(1, 1) { tenant: Bytes, bucket: Bytes, bucket_id: Bytes, } }

fn key_of(tenant: &[u8], bucket: &[u8]) -> Bytes {
    [tenant, b":", bucket].concat().into()
}

pub(super) fn add(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: AddOp = params(input)?;
    let key = key_of(&op.entry.tenant, &op.entry.bucket);
    if op.create_only && exists(o, &key)? {
        return Err(Errno::EXIST);
    }
    write(o, &key, &op.entry)?;
    Ok(DONE)
}

pub(super) fn list(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: ListOp = params(input)?;
    let max = if op.max == 0 { LIST_MAX } else { op.max.min(LIST_MAX) };
    let (mut pairs, truncated) = o.omap_page(&op.marker, b"", u64::from(max))?;
    if op.max == 0 {
        pairs.clear();
    }
    let entries = pairs.iter().map(|(_, value)| stored(value)).collect::<OpResult<_>>()?;
    answer(&ListRet { entries, truncated })
}

pub(super) fn get(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: EntryOp = params(input)?;
    let entry = read(o, &key_of(&op.entry.tenant, &op.entry.bucket))?;
    answer(&EntryOp { entry })
}

/// Takes a bucket off the queue, unless another instance of it is there by now.
pub(super) fn remove(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: RemoveOp = params(input)?;
    let key = key_of(&op.tenant, &op.bucket);
    let entry: Entry = read(o, &key)?;
    if op.bucket_id.is_empty() || entry.bucket_id == op.bucket_id {
        o.omap_rm(vec![key])?;
    }
    Ok(DONE)
}
