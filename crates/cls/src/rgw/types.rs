//! What the class keeps: entries of a bucket's index, its header, its log.

#![allow(missing_docs, reason = "names and fields are the peer's")]

use std::collections::BTreeMap;

use bytes::Bytes;
use denc::{DecodeError, Denc, Reader, Writer};
use types::UTime;

use crate::record;
pub use crate::rgw_gc::Key;

/// An integer in one byte, or in a byte that says how many follow (1, 2, 4 or 8).
///
/// The peer writes 0x10000 in two bytes, as zero, and values above 2^24 in eight: so do we,
/// since the same bytes are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packed(pub u64);

impl Denc for Packed {
    fn encode(&self, w: &mut Writer) {
        match self.0 {
            n @ 0..=0x7f => w.u8(n as u8),
            n @ 0x80..0x100 => {
                w.u8(0x81);
                w.u8(n as u8);
            }
            n @ 0x100..=0x1_0000 => {
                w.u8(0x82);
                w.u16(n as u16);
            }
            n @ 0x1_0001..=0x100_0000 => {
                w.u8(0x84);
                w.u32(n as u32);
            }
            n => {
                w.u8(0x88);
                w.u64(n);
            }
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let head = r.u8()?;
        Ok(Self(match head {
            0..=0x7f => u64::from(head),
            0x81 => u64::from(r.u8()?),
            0x82 => u64::from(r.u16()?),
            0x84 => u64::from(r.u32()?),
            0x88 => r.u64()?,
            _ => {
                return Err(DecodeError::Invalid {
                    what: "packed integer",
                    rule: "1, 2, 4 or 8 bytes follow",
                });
            }
        }))
    }
}

/// `rgw_bucket_entry_ver`: the version of an object's head that an entry tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryVer {
    /// -1: of no pool.
    pub pool: i64,
    pub epoch: u64,
}

impl Default for EntryVer {
    fn default() -> Self {
        Self { pool: -1, epoch: 0 }
    }
}

impl Denc for EntryVer {
    fn encode(&self, w: &mut Writer) {
        w.framed(1, 1, |w| {
            Packed(self.pool as u64).encode(w);
            Packed(self.epoch).encode(w);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("rgw_bucket_entry_ver", 1, |r, _| {
            Ok(Self { pool: Packed::decode(r)?.0 as i64, epoch: Packed::decode(r)?.0 })
        })
    }
}

/// `rgw_bucket_category_stats`. The counters wrap, as the peer's do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Bytes before compression.
    pub size: u64,
    /// The same, each entry up to the next 4096.
    pub rounded: u64,
    pub entries: u64,
    /// Bytes stored.
    pub actual: u64,
}

impl Denc for Stats {
    fn encode(&self, w: &mut Writer) {
        w.framed(3, 2, |w| {
            w.u64(self.size);
            w.u64(self.rounded);
            w.u64(self.entries);
            w.u64(self.actual);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("rgw_bucket_category_stats", 3, |r, v| {
            let (size, rounded, entries) = (r.u64()?, r.u64()?, r.u64()?);
            let actual = if v >= 3 { r.u64()? } else { size };
            Ok(Self { size, rounded, entries, actual })
        })
    }
}

impl Stats {
    /// What one entry counts.
    pub fn of(meta: &Meta) -> Self {
        Self {
            size: meta.accounted_size,
            rounded: meta.accounted_size.wrapping_add(4095) & !4095,
            entries: 1,
            actual: meta.size,
        }
    }

    pub fn add(&mut self, other: &Self) {
        self.size = self.size.wrapping_add(other.size);
        self.rounded = self.rounded.wrapping_add(other.rounded);
        self.entries = self.entries.wrapping_add(other.entries);
        self.actual = self.actual.wrapping_add(other.actual);
    }

    pub fn sub(&mut self, other: &Self) {
        self.size = self.size.wrapping_sub(other.size);
        self.rounded = self.rounded.wrapping_sub(other.rounded);
        self.entries = self.entries.wrapping_sub(other.entries);
        self.actual = self.actual.wrapping_sub(other.actual);
    }
}

/// Statistics by category.
pub type StatsMap = BTreeMap<u8, Stats>;

/// `cls_rgw_bucket_instance_entry`: whether the bucket is being resharded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resharding(pub u8);

impl Resharding {
    pub const IN_PROGRESS: u8 = 1;
    /// Writes go on and are logged for the new shards.
    pub const IN_LOGRECORD: u8 = 3;
}

impl Denc for Resharding {
    fn encode(&self, w: &mut Writer) {
        w.framed(3, 1, |w| {
            w.u8(self.0);
            // An id and a count that version 2 left out and version 3 brought back, empty.
            w.blob(b"");
            w.i32(-1);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("cls_rgw_bucket_instance_entry", 3, |r, v| {
            let status = r.u8()?;
            if v != 2 {
                r.blob()?;
                r.i32()?;
            }
            Ok(Self(status))
        })
    }
}

record! {
    /// `rgw_bucket_dir_header`: the omap's header of an index shard.
    Header(8, 2) {
        stats: StatsMap,
        tag_timeout: u64 = 3,
        ver: u64 = 4,
        master_ver: u64 = 4,
        max_marker: Bytes = 5,
        resharding: Resharding = 6,
        syncstopped: bool = 7,
        reshardlog_entries: u32 = 8,
    }
}

/// `rgw_bucket_dir_entry_meta`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// 0 none (delete markers), 1 main, 2 shadow, 3 parts of uploads, 4 in a cloud.
    pub category: u8,
    /// Bytes stored.
    pub size: u64,
    pub mtime: UTime,
    pub etag: Bytes,
    pub owner: Bytes,
    pub owner_name: Bytes,
    pub content_type: Bytes,
    /// Bytes before compression.
    pub accounted_size: u64,
    pub user_data: Bytes,
    pub storage_class: Bytes,
    pub appendable: bool,
}

impl Denc for Meta {
    fn encode(&self, w: &mut Writer) {
        w.framed(7, 3, |w| {
            w.u8(self.category);
            w.u64(self.size);
            self.mtime.encode(w);
            w.blob(&self.etag);
            w.blob(&self.owner);
            w.blob(&self.owner_name);
            w.blob(&self.content_type);
            w.u64(self.accounted_size);
            w.blob(&self.user_data);
            w.blob(&self.storage_class);
            w.bool(self.appendable);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("rgw_bucket_dir_entry_meta", 7, |r, v| {
            let mut m = Self {
                category: r.u8()?,
                size: r.u64()?,
                mtime: Denc::decode(r)?,
                etag: r.blob()?,
                owner: r.blob()?,
                owner_name: r.blob()?,
                content_type: r.blob()?,
                ..Self::default()
            };
            m.accounted_size = if v >= 4 { r.u64()? } else { m.size };
            if v >= 5 {
                m.user_data = r.blob()?;
            }
            if v >= 6 {
                m.storage_class = r.blob()?;
            }
            if v >= 7 {
                m.appendable = r.bool()?;
            }
            Ok(m)
        })
    }
}

record! {
    /// `rgw_bucket_pending_info`: an operation that was announced and has not ended.
    Pending(2, 2) { state: u8, time: UTime, op: u8, }
}

/// Flags of entries.
pub mod flag {
    /// A version of an object.
    pub const VER: u16 = 1;
    /// The newest one.
    pub const CURRENT: u16 = 2;
    pub const DELETE_MARKER: u16 = 4;
    /// A plain entry's placeholder: the object has versions.
    pub const VER_MARKER: u16 = 8;
    /// Of answers only: not an entry, but what several begin with.
    pub const COMMON_PREFIX: u16 = 0x8000;
}

/// Operations on entries, as in requests and in the index log.
pub mod modify {
    pub const ADD: u8 = 0;
    pub const DEL: u8 = 1;
    pub const CANCEL: u8 = 2;
    pub const LINK_OLH: u8 = 4;
    pub const LINK_OLH_DM: u8 = 5;
    pub const UNLINK_INSTANCE: u8 = 6;
    pub const SYNCSTOP: u8 = 7;
    pub const RESYNC: u8 = 8;
}

/// `rgw_bucket_dir_entry`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirEntry {
    pub key: Key,
    pub ver: EntryVer,
    pub exists: bool,
    pub meta: Meta,
    /// By tag, in the tags' order; one tag may be there twice.
    pub pending: Vec<(Bytes, Pending)>,
    pub locator: Bytes,
    pub index_ver: Packed,
    pub tag: Bytes,
    pub flags: u16,
    /// Place among the object's versions: the newest has the greatest. 0: has none.
    pub versioned_epoch: u64,
}

impl DirEntry {
    pub fn is_delete_marker(&self) -> bool {
        self.flags & flag::DELETE_MARKER != 0
    }

    /// Not a placeholder.
    pub fn is_valid(&self) -> bool {
        self.flags & flag::VER_MARKER == 0
    }

    /// Whether who asks for the object, and not for a version, finds this one.
    pub fn is_visible(&self) -> bool {
        let is_current = self.flags & flag::VER == 0 || self.flags & flag::CURRENT != 0;
        is_current && !self.is_delete_marker()
    }

    /// Announces an operation, behind those of the same tag.
    pub fn announce(&mut self, tag: Bytes, pending: Pending) {
        let at = self.pending.partition_point(|(t, _)| *t <= tag);
        self.pending.insert(at, (tag, pending));
    }
}

impl Denc for DirEntry {
    fn encode(&self, w: &mut Writer) {
        w.framed(8, 3, |w| {
            w.blob(&self.key.name);
            w.u64(self.ver.epoch);
            w.bool(self.exists);
            self.meta.encode(w);
            self.pending.encode(w);
            w.blob(&self.locator);
            self.ver.encode(w);
            self.index_ver.encode(w);
            w.blob(&self.tag);
            w.blob(&self.key.instance);
            w.u16(self.flags);
            w.u64(self.versioned_epoch);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("rgw_bucket_dir_entry", 8, |r, v| {
            let mut e = Self::default();
            e.key.name = r.blob()?;
            e.ver.epoch = r.u64()?;
            e.exists = r.bool()?;
            e.meta = Denc::decode(r)?;
            e.pending = Denc::decode(r)?;
            e.locator = r.blob()?;
            if v >= 4 {
                e.ver = Denc::decode(r)?;
            }
            if v >= 5 {
                e.index_ver = Denc::decode(r)?;
                e.tag = r.blob()?;
            }
            if v >= 6 {
                e.key.instance = r.blob()?;
            }
            if v >= 7 {
                e.flags = r.u16()?;
            }
            if v >= 8 {
                e.versioned_epoch = r.u64()?;
            }
            Ok(e)
        })
    }
}

/// Kinds of index entries in [`BiEntry`].
pub mod bi {
    pub const INVALID: u8 = 0;
    pub const PLAIN: u8 = 1;
    pub const INSTANCE: u8 = 2;
    pub const OLH: u8 = 3;
    /// The key was removed while the bucket was resharded.
    pub const DELETED: u8 = 4;
}

record! {
    /// `rgw_cls_bi_entry`: a pair of the index as it is stored.
    BiEntry(1, 1) { kind: u8, idx: Bytes, data: Bytes, }
}
record! {
    /// `rgw_bucket_deleted_entry`.
    Deleted(1, 1) { key: Key, }
}

/// Operations in an object's log of versions.
pub mod olh_op {
    pub const LINK: u8 = 1;
    pub const UNLINK: u8 = 2;
    pub const REMOVE_INSTANCE: u8 = 3;
}

record! {
    /// `rgw_bucket_olh_log_entry`: what the gateway has still to do to the object.
    OlhLog(1, 1) { epoch: u64, op: u8, op_tag: Bytes, key: Key, delete_marker: bool, }
}
/// By the epoch of the OLH entry.
pub type OlhLogs = BTreeMap<u64, Vec<OlhLog>>;
record! {
    /// `rgw_bucket_olh_entry`: which of an object's versions is the current one.
    Olh(1, 1) {
        key: Key,
        delete_marker: bool,
        epoch: u64,
        log: OlhLogs,
        tag: Bytes,
        exists: bool,
        pending_removal: bool,
    }
}

record! {
    /// `rgw_bi_log_entry`: an operation on the index, for other zones.
    BiLog(4, 1) {
        id: Bytes,
        object: Bytes,
        time: UTime,
        ver: EntryVer,
        tag: Bytes,
        op: u8,
        state: u8,
        index_ver: Packed,
        instance: Bytes = 2,
        flags: u16 = 2,
        owner: Bytes = 3,
        owner_name: Bytes = 3,
        zones: Vec<Bytes> = 4,
    }
}

record! {
    /// `rgw_bucket_dir`.
    Dir(2, 2) { header: Header, entries: BTreeMap<Bytes, DirEntry>, }
}
