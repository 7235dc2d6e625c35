//! `user`: a user's buckets, by name, and their sums in the omap's header; for accounts,
//! their users, groups and roles, by name without case.

#![allow(missing_docs, reason = "names and fields are the peer's")]

use bytes::Bytes;
use denc::{DecodeError, Denc, Reader, Writer};
use types::{Errno, OpResult, UTime};

use crate::keys::{absent, answer};
use crate::{Class, DONE, Object, READS, Reply, USERS, WRITES, method, params, record, stored};

pub(crate) const CLASS: Class = Class {
    name: "user",
    methods: &[
        method("set_buckets_info", READS | WRITES, set_buckets),
        method("complete_stats_sync", READS | WRITES, complete_sync),
        method("remove_bucket", READS | WRITES, remove_bucket),
        method("list_buckets", READS, list_buckets),
        method("get_header", READS, get_header),
        method("reset_user_stats", READS | WRITES, reset),
        method("reset_user_stats2", READS | WRITES, reset_part),
        method("account_resource_add", READS | WRITES, resource_add),
        method("account_resource_get", READS, resource_get),
        method("account_resource_rm", READS | WRITES, resource_rm),
        method("account_resource_list", READS, resource_list),
    ],
};

const AT_ONCE_MAX: u64 = 1000;

/// `cls_user_bucket`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    pub name: Bytes,
    pub marker: Bytes,
    pub id: Bytes,
    /// Where this is set, the pools are not written.
    pub placement: Bytes,
    pub data_pool: Bytes,
    pub index_pool: Bytes,
    pub extra_pool: Bytes,
}

impl Denc for Bucket {
    fn encode(&self, w: &mut Writer) {
        if self.placement.is_empty() {
            w.framed(7, 3, |w| {
                self.name.encode(w);
                self.data_pool.encode(w);
                self.marker.encode(w);
                self.id.encode(w);
                self.index_pool.encode(w);
                self.extra_pool.encode(w);
            });
        } else {
            w.framed(9, 8, |w| {
                self.name.encode(w);
                self.marker.encode(w);
                self.id.encode(w);
                self.placement.encode(w);
            });
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("cls_user_bucket", 9, |r, v| {
            let mut b = Self { name: r.blob()?, ..Self::default() };
            if v < 8 {
                b.data_pool = r.blob()?;
            }
            b.marker = r.blob()?;
            b.id = if v <= 3 { r.u64()?.to_string().into() } else { r.blob()? };
            if v < 8 {
                b.index_pool = if v >= 5 { r.blob()? } else { b.data_pool.clone() };
                if v >= 7 {
                    b.extra_pool = r.blob()?;
                }
            } else {
                b.placement = r.blob()?;
                if v == 8 && b.placement.is_empty() {
                    b.data_pool = r.blob()?;
                    b.index_pool = r.blob()?;
                    b.extra_pool = r.blob()?;
                }
            }
            Ok(b)
        })
    }
}

/// `cls_user_bucket_entry`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BucketEntry {
    pub bucket: Bucket,
    pub size: u64,
    pub size_rounded: u64,
    pub created: UTime,
    pub count: u64,
    /// Counted in the sums.
    pub synced: bool,
}

impl Denc for BucketEntry {
    fn encode(&self, w: &mut Writer) {
        w.framed(9, 5, |w| {
            w.u32(0);
            w.u64(self.size);
            w.u32(self.created.sec);
            w.u64(self.count);
            self.bucket.encode(w);
            w.u64(self.size_rounded);
            w.bool(self.synced);
            self.created.encode(w);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("cls_user_bucket_entry", 9, |r, v| {
            r.blob()?;
            let size = r.u64()?;
            let sec = r.u32()?;
            let mut e = Self {
                size,
                size_rounded: size,
                created: UTime { sec, nsec: 0 },
                count: r.u64()?,
                bucket: Denc::decode(r)?,
                synced: false,
            };
            if v >= 4 {
                e.size_rounded = r.u64()?;
            }
            if v >= 6 {
                e.synced = r.bool()?;
            }
            if v >= 7 {
                e.created = Denc::decode(r)?;
            }
            Ok(e)
        })
    }
}

record! {
    /// `cls_user_stats`.
    Stats(1, 1) { entries: u64, bytes: u64, bytes_rounded: u64, }
}
record! {
    /// `cls_user_header`.
    Header(1, 1) { stats: Stats, last_sync: UTime, last_update: UTime, }
}
record! { SetOp(1, 1) { entries: Vec<BucketEntry>, add: bool, time: UTime, } }
record! { RemoveOp(1, 1) { bucket: Bucket, } }
record! { ListOp(2, 1) { marker: Bytes, max: i32, end_marker: Bytes = 2, } }
record! { Listed(1, 1) { entries: Vec<BucketEntry>, marker: Bytes, truncated: bool, } }
record! { HeaderOp(1, 1) { } }
record! { HeaderRet(1, 1) { header: Header, } }
record! {
    /// Of `complete_stats_sync` and `reset_user_stats`.
    TimeOp(1, 1) { time: UTime, }
}
record! { ResetOp(1, 1) { time: UTime, marker: Bytes, stats: Stats, } }
record! { ResetRet(1, 1) { marker: Bytes, stats: Stats, truncated: bool, } }
record! {
    /// `cls_user_account_resource`.
    Resource(1, 1) { name: Bytes, path: Bytes, metadata: Bytes, }
}
record! {
    /// `cls_user_account_header`.
    AccountHeader(1, 1) { count: u32, }
}
record! { ResourceAddOp(1, 1) { entry: Resource, exclusive: bool, limit: u32, } }
record! {
    /// Of `account_resource_get` and `account_resource_rm`.
    ResourceOp(1, 1) { name: Bytes, }
}
record! { ResourceRet(1, 1) { entry: Resource, } }
record! { ResourceListOp(1, 1) { marker: Bytes, path_prefix: Bytes, max: u32, } }
record! { ResourceListed(1, 1) { entries: Vec<Resource>, truncated: bool, marker: Bytes, } }

impl Stats {
    fn add(&mut self, e: &BucketEntry) {
        self.entries = self.entries.wrapping_add(e.count);
        self.bytes = self.bytes.wrapping_add(e.size);
        self.bytes_rounded = self.bytes_rounded.wrapping_add(e.size_rounded);
    }

    fn sub(&mut self, e: &BucketEntry) {
        self.entries = self.entries.wrapping_sub(e.count);
        self.bytes = self.bytes.wrapping_sub(e.size);
        self.bytes_rounded = self.bytes_rounded.wrapping_sub(e.size_rounded);
    }
}

fn header_of<T: Denc + Default>(o: &mut dyn Object) -> OpResult<T> {
    let raw = o.omap_header()?;
    if raw.is_empty() { Ok(T::default()) } else { stored(&raw) }
}

/// As [`header_of`]; the default without the object.
fn header_or_new<T: Denc + Default>(o: &mut dyn Object) -> OpResult<T> {
    Ok(absent(header_of(o))?.unwrap_or_default())
}

fn bucket(o: &mut dyn Object, name: &Bytes) -> OpResult<Option<BucketEntry>> {
    if name.is_empty() {
        return Err(Errno::INVAL);
    }
    absent(o.omap_get(name))?.map(|raw| stored(&raw)).transpose()
}

fn set_buckets(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: SetOp = params(input)?;
    let mut header: Header = header_or_new(o)?;
    for update in op.entries {
        let name = update.bucket.name.clone();
        let mut entry = match bucket(o, &name)? {
            // Removed meanwhile.
            None if !op.add => continue,
            None => update.clone(),
            Some(mut entry) => {
                if op.add {
                    entry.bucket.id.clone_from(&update.bucket.id);
                    entry.created = update.created;
                }
                entry
            }
        };
        if entry.synced {
            header.stats.sub(&entry);
        }
        if !op.add {
            entry.size = update.size;
            entry.size_rounded = update.size_rounded;
            entry.count = update.count;
        }
        entry.synced = true;
        o.omap_set(vec![(name, entry.to_bytes())])?;
        header.stats.add(&entry);
    }
    header.last_update = header.last_update.max(op.time);
    o.omap_set_header(header.to_bytes())?;
    Ok(DONE)
}

fn complete_sync(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: TimeOp = params(input)?;
    let mut header: Header = header_or_new(o)?;
    header.last_sync = header.last_sync.max(op.time);
    o.omap_set_header(header.to_bytes())?;
    Ok(DONE)
}

fn remove_bucket(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: RemoveOp = params(input)?;
    let mut header: Header = header_or_new(o)?;
    let Some(entry) = bucket(o, &op.bucket.name)? else { return Ok(DONE) };
    o.omap_rm(vec![op.bucket.name])?;
    if entry.synced {
        header.stats.sub(&entry);
        o.omap_set_header(header.to_bytes())?;
    }
    Ok(DONE)
}

fn list_buckets(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: ListOp = params(input)?;
    let max = (op.max as u32 as u64).min(AT_ONCE_MAX);
    let (pairs, mut truncated) = o.omap_page(&op.marker, b"", max)?;
    let mut entries = Vec::new();
    let mut marker = Bytes::new();
    for (key, value) in pairs {
        marker.clone_from(&key);
        if !op.end_marker.is_empty() && op.end_marker <= key {
            truncated = false;
            break;
        }
        entries.extend(stored::<BucketEntry>(&value).ok());
    }
    if !truncated {
        marker = Bytes::new();
    }
    answer(&Listed { entries, marker, truncated })
}

fn get_header(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let _: HeaderOp = params(input)?;
    let header = header_of(o)?;
    answer(&HeaderRet { header })
}

/// Adds a page of buckets to the sums: the last key and whether there are more.
fn sum(o: &mut dyn Object, after: &Bytes, stats: &mut Stats) -> OpResult<(Bytes, bool)> {
    let (pairs, more) = absent(o.omap_page(after, b"", AT_ONCE_MAX))?.unwrap_or_default();
    let mut last = Bytes::new();
    for (key, value) in pairs {
        stats.add(&stored(&value)?);
        last = key;
    }
    Ok((last, more))
}

fn reset(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: TimeOp = params(input)?;
    let mut header = Header { last_update: op.time, ..Header::default() };
    let mut after = Bytes::new();
    loop {
        let (last, more) = sum(o, &after, &mut header.stats)?;
        if !more {
            break;
        }
        after = last;
    }
    o.omap_set_header(header.to_bytes())?;
    Ok(DONE)
}

fn reset_part(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: ResetOp = params(input)?;
    let mut stats = op.stats;
    let (marker, truncated) = sum(o, &op.marker, &mut stats)?;
    if !truncated {
        let header = Header { stats: stats.clone(), last_update: op.time, ..Header::default() };
        o.omap_set_header(header.to_bytes())?;
    }
    answer(&ResetRet { marker, stats, truncated })
}

fn resource_key(name: &Bytes) -> Bytes {
    name.to_ascii_lowercase().into()
}

fn resource_add(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: ResourceAddOp = params(input)?;
    let mut header: AccountHeader = header_or_new(o)?;
    let key = resource_key(&op.entry.name);
    if absent(o.omap_get(&key))?.is_some() {
        if op.exclusive {
            return Err(Errno::EXIST);
        }
    } else {
        if header.count >= op.limit {
            return Err(USERS);
        }
        header.count += 1;
        o.omap_set_header(header.to_bytes())?;
    }
    o.omap_set(vec![(key, op.entry.to_bytes())])?;
    Ok(DONE)
}

fn resource_get(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: ResourceOp = params(input)?;
    let entry = stored(&o.omap_get(&resource_key(&op.name))?)?;
    answer(&ResourceRet { entry })
}

fn resource_rm(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: ResourceOp = params(input)?;
    let key = resource_key(&op.name);
    o.omap_get(&key)?;
    let mut header: AccountHeader = header_of(o)?;
    o.omap_rm(vec![key])?;
    header.count = header.count.saturating_sub(1);
    o.omap_set_header(header.to_bytes())?;
    Ok(DONE)
}

fn resource_list(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: ResourceListOp = params(input)?;
    let max = u64::from(op.max).min(AT_ONCE_MAX);
    let mut ret = ResourceListed { marker: op.marker, ..ResourceListed::default() };
    // Those of other paths are passed over, so this may take some pages.
    loop {
        let left = max - ret.entries.len() as u64;
        let (pairs, more) = o.omap_page(&ret.marker, b"", left)?;
        for (key, value) in pairs {
            let entry: Resource = stored(&value)?;
            if entry.path.starts_with(&op.path_prefix) {
                ret.entries.push(entry);
            }
            ret.marker = key;
        }
        ret.truncated = more;
        if !more || ret.entries.len() as u64 >= max {
            return answer(&ret);
        }
    }
}
