//! What users did, by hour and bucket. Each record has two keys: `EPOCH_USER_BUCKET` and
//! `USER_EPOCH_BUCKET`, the epoch in eleven digits, the user who pays.

use std::collections::BTreeMap;

use bytes::Bytes;
use denc::{DecodeError, Denc, Reader, Writer};
use types::{Errno, OpResult};

use crate::keys::{absent, answer};
use crate::{DONE, Object, Reply, params, record};

/// Records that one call reads, where the caller does not say how many.
const READ_MAX: u32 = 1000;

record! {
    /// `rgw_usage_data`.
    Data(1, 1) { sent: u64, received: u64, ops: u64, successful: u64, }
}
record! {
    /// `rgw_s3select_usage_data`: bytes.
    Select(1, 1) { processed: u64, returned: u64, }
}

/// `rgw_usage_log_entry`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are the peer's")]
pub struct Entry {
    pub owner: Bytes,
    /// Empty: the owner.
    pub payer: Bytes,
    pub bucket: Bytes,
    /// Seconds, at a full hour.
    pub epoch: u64,
    pub total: Data,
    pub by_category: BTreeMap<Bytes, Data>,
    pub select: Select,
}

impl Denc for Entry {
    fn encode(&self, w: &mut Writer) {
        w.framed(4, 1, |w| {
            w.blob(&self.owner);
            w.blob(&self.bucket);
            w.u64(self.epoch);
            for n in [self.total.sent, self.total.received, self.total.ops, self.total.successful] {
                w.u64(n);
            }
            self.by_category.encode(w);
            w.blob(&self.payer);
            self.select.encode(w);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("rgw_usage_log_entry", 4, |r, v| {
            let (owner, bucket, epoch) = (r.blob()?, r.blob()?, r.u64()?);
            let (sent, received) = (r.u64()?, r.u64()?);
            let total = Data { sent, received, ops: r.u64()?, successful: r.u64()? };
            let by_category = if v >= 2 {
                Denc::decode(r)?
            } else {
                BTreeMap::from([(Bytes::new(), total.clone())])
            };
            let payer = if v >= 3 { r.blob()? } else { Bytes::new() };
            let select = if v >= 4 { Denc::decode(r)? } else { Select::default() };
            Ok(Self { owner, payer, bucket, epoch, total, by_category, select })
        })
    }
}

record! {
    /// `rgw_usage_log_info`.
    Info(1, 1) { entries: Vec<Entry>, }
}
record! {
    /// `rgw_user_bucket`.
    #[derive(PartialOrd, Ord)]
    UserBucket(1, 1) { user: Bytes, bucket: Bytes, }
}
record! { AddOp(2, 1) { info: Info, user: Bytes = 2, } }
record! {
    ReadOp(2, 1) {
        start: u64,
        end: u64,
        owner: Bytes,
        iter: Bytes,
        max: u32,
        bucket: Bytes = 2,
    }
}
record! {
    ReadRet(1, 1) { usage: BTreeMap<UserBucket, Entry>, truncated: bool, next: Bytes, }
}
record! { TrimOp(3, 2) { start: u64, end: u64, user: Bytes, bucket: Bytes = 3, } }

impl Data {
    fn add(&mut self, other: &Self) {
        self.sent = self.sent.wrapping_add(other.sent);
        self.received = self.received.wrapping_add(other.received);
        self.ops = self.ops.wrapping_add(other.ops);
        self.successful = self.successful.wrapping_add(other.successful);
    }
}

impl Entry {
    fn user(&self) -> &Bytes {
        if self.payer.is_empty() { &self.owner } else { &self.payer }
    }

    fn keys(&self) -> [Bytes; 2] {
        let epoch = format!("{:011}", self.epoch);
        let (user, epoch, bucket) = (&self.user()[..], epoch.as_bytes(), &self.bucket[..]);
        [
            [epoch, b"_", user, b"_", bucket].concat().into(),
            [user, b"_", epoch, b"_", bucket].concat().into(),
        ]
    }

    fn add(&mut self, other: &Self) {
        if self.owner.is_empty() {
            self.owner.clone_from(&other.owner);
            self.bucket.clone_from(&other.bucket);
            self.epoch = other.epoch;
            self.payer.clone_from(&other.payer);
        }
        for (category, data) in &other.by_category {
            self.by_category.entry(category.clone()).or_default().add(data);
            self.total.add(data);
        }
        let select = &mut self.select;
        select.processed = select.processed.wrapping_add(other.select.processed);
        select.returned = select.returned.wrapping_add(other.select.returned);
    }
}

/// A record that cannot be read is EINVAL, as the peer answers.
fn record_of(raw: &Bytes) -> OpResult<Entry> {
    params(raw)
}

pub(super) fn add(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: AddOp = params(input)?;
    // Several of one hour and bucket are added up here: what was written is not read again.
    let mut records: BTreeMap<[Bytes; 2], Entry> = BTreeMap::new();
    for mut entry in op.info.entries {
        let keys = entry.keys();
        if let Some(before) = records.get(&keys) {
            entry.add(before);
        } else if let Some(raw) = absent(o.omap_get(&keys[0]))? {
            entry.add(&record_of(&raw)?);
        }
        records.insert(keys, entry);
    }
    let pairs = records.into_iter().flat_map(|([by_time, by_user], entry)| {
        let value = entry.to_bytes();
        [(by_time, value.clone()), (by_user, value)]
    });
    o.omap_set(pairs.collect())?;
    Ok(DONE)
}

/// Which records are wanted.
struct Range<'a> {
    start: u64,
    end: u64,
    user: &'a Bytes,
    bucket: &'a Bytes,
}

impl Range<'_> {
    /// The records after a key, or from the start on; the last key looked at; whether there
    /// are more.
    fn page(
        &self,
        o: &mut dyn Object,
        iter: &Bytes,
        max: u32,
    ) -> OpResult<(Vec<Entry>, Bytes, bool)> {
        let is_by_user = !self.user.is_empty();
        let start = format!("{:011}", self.start);
        let prefix = [self.user, &b"_"[..]].concat();
        let after: Bytes = if !iter.is_empty() {
            iter.clone()
        } else if is_by_user {
            [&prefix[..], start.as_bytes(), b"_"].concat().into()
        } else {
            start.into()
        };
        let end = format!("{:011}", self.end);
        let (pairs, mut more) = o.omap_page(&after, b"", u64::from(max))?;
        let (mut found, mut last) = (Vec::new(), iter.clone());
        for (key, value) in pairs {
            last.clone_from(&key);
            let is_behind =
                if is_by_user { !key.starts_with(&prefix) } else { key[..] >= *end.as_bytes() };
            if is_behind {
                more = false;
                break;
            }
            let entry = record_of(&value)?;
            if !self.bucket.is_empty() && entry.bucket != *self.bucket {
                continue;
            }
            if entry.epoch < self.start {
                continue;
            }
            if entry.epoch >= self.end {
                more = false;
                break;
            }
            found.push(entry);
        }
        Ok((found, last, more))
    }
}

pub(super) fn read(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: ReadOp = params(input)?;
    let range = Range { start: op.start, end: op.end, user: &op.owner, bucket: &op.bucket };
    let max = if op.max == 0 { READ_MAX } else { op.max };
    let (found, last, truncated) = range.page(o, &op.iter, max)?;
    let mut ret = ReadRet { truncated, ..ReadRet::default() };
    for entry in found {
        let key = UserBucket { user: entry.user().clone(), bucket: entry.bucket.clone() };
        ret.usage.entry(key).or_default().add(&entry);
    }
    if truncated {
        ret.next = last;
    }
    answer(&ret)
}

/// Removes a page of records; ENODATA where there are none.
pub(super) fn trim(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    o.stat()?;
    let op: TrimOp = params(input)?;
    let range = Range { start: op.start, end: op.end, user: &op.user, bucket: &op.bucket };
    let (found, _, more) = range.page(o, &Bytes::new(), READ_MAX)?;
    if found.is_empty() {
        return if more { Ok(DONE) } else { Err(Errno::NODATA) };
    }
    o.omap_rm(found.iter().flat_map(Entry::keys).collect())?;
    Ok(DONE)
}

pub(super) fn clear(o: &mut dyn Object, _: &Bytes) -> OpResult<Reply> {
    absent(o.omap_clear())?;
    Ok(DONE)
}
