//! Buckets whose lifecycle is to be worked off, by name; the omap's header tells how far
//! today's turn has come.

use std::collections::BTreeMap;

use bytes::Bytes;
use denc::{DecodeError, Denc, Reader, Writer};
use types::{Errno, OpResult};

use crate::keys::{answer, read, write};
use crate::{DONE, Object, Reply, params, record, stored};

record! {
    /// `cls_rgw_lc_entry`.
    Entry(1, 1) { bucket: Bytes, start_time: u64, status: u32, }
}
record! {
    /// `cls_rgw_lc_obj_head`: dates in seconds.
    Head(2, 2) { start_date: u64, marker: Bytes, rollover_date: u64 = 2, }
}
record! {
    /// Of `lc_get_entry` and `lc_get_next_entry`.
    MarkerOp(1, 1) { marker: Bytes, }
}
record! {
    /// Of `lc_set_entry` and `lc_rm_entry`, and what the getters answer.
    EntryOp(2, 2) { entry: Entry, }
}
record! {
    /// Of `lc_put_head`, and what `lc_get_head` answers.
    HeadOp(1, 1) { head: Head, }
}

/// `cls_rgw_lc_list_entries_op`; the answer has its version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are the peer's")]
pub struct ListOp {
    pub version: u8,
    pub marker: Bytes,
    pub max: u32,
}

impl Denc for ListOp {
    fn encode(&self, w: &mut Writer) {
        w.framed(self.version, 1, |w| {
            w.blob(&self.marker);
            w.u32(self.max);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("cls_rgw_lc_list_entries_op", ListRet::NEWEST, |r, version| {
            Ok(Self { version, marker: r.blob()?, max: r.u32()? })
        })
    }
}

/// `cls_rgw_lc_list_entries_ret`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are the peer's")]
pub struct ListRet {
    pub version: u8,
    pub entries: Vec<Entry>,
    pub truncated: bool,
}

impl ListRet {
    /// The newest version.
    pub const NEWEST: u8 = 3;
}

impl Denc for ListRet {
    fn encode(&self, w: &mut Writer) {
        w.framed(self.version.min(Self::NEWEST), 1, |w| {
            if self.version <= 2 {
                let old: BTreeMap<_, _> =
                    self.entries.iter().map(|e| (e.bucket.clone(), e.status)).collect();
                old.encode(w);
            } else {
                self.entries.encode(w);
            }
            w.bool(self.truncated);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("cls_rgw_lc_list_entries_ret", Self::NEWEST, |r, version| {
            let entries = if version <= 2 {
                let old: BTreeMap<Bytes, u32> = Denc::decode(r)?;
                let entry = |(bucket, status)| Entry { bucket, start_time: 0, status };
                old.into_iter().map(entry).collect()
            } else {
                Denc::decode(r)?
            };
            Ok(Self { version, entries, truncated: r.bool()? })
        })
    }
}

pub(super) fn get_entry(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: MarkerOp = params(input)?;
    let entry = read(o, &op.marker)?;
    answer(&EntryOp { entry })
}

pub(super) fn set_entry(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: EntryOp = params(input)?;
    write(o, &op.entry.bucket, &op.entry)?;
    Ok(DONE)
}

pub(super) fn rm_entry(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: EntryOp = params(input)?;
    o.omap_rm(vec![op.entry.bucket])?;
    Ok(DONE)
}

/// The first entry after a key; an empty one where there is none.
pub(super) fn get_next_entry(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: MarkerOp = params(input)?;
    let (pairs, _) = o.omap_page(&op.marker, b"", 1)?;
    let entry = pairs.first().map(|(_, value)| stored(value)).transpose()?.unwrap_or_default();
    answer(&EntryOp { entry })
}

pub(super) fn list_entries(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: ListOp = params(input)?;
    let (pairs, truncated) = o.omap_page(&op.marker, b"", u64::from(op.max))?;
    let mut entries = Vec::with_capacity(pairs.len());
    for (_, value) in &pairs {
        // Releases before 16 kept a name and a status.
        let entry = stored::<Entry>(value).or_else(|_| {
            let (bucket, status) = stored::<(Bytes, u32)>(value)?;
            Ok(Entry { bucket, start_time: 0, status })
        })?;
        entries.push(entry);
    }
    answer(&ListRet { version: op.version, entries, truncated })
}

pub(super) fn put_head(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: HeadOp = params(input)?;
    o.omap_set_header(op.head.to_bytes())?;
    Ok(DONE)
}

pub(super) fn get_head(o: &mut dyn Object, _: &Bytes) -> OpResult<Reply> {
    let raw = o.omap_header()?;
    let head =
        if raw.is_empty() { Head::default() } else { stored(&raw).map_err(|_| Errno::INVAL)? };
    answer(&HeadOp { head })
}
