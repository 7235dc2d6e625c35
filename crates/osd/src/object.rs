//! What an object is besides its bytes: the record kept with each, in the attribute `_`.

use std::sync::Arc;

use bytes::Bytes;
use denc::{DecodeError, Denc, Reader, Writer};
use maps::SnapSet;
use types::{EVersion, EntityAddr, EntityId, SnapId, UTime};

/// Name of the attribute with the [`ObjectInfo`].
pub const INFO_ATTR: &[u8] = b"_";

/// The store's name of a user's attribute: `_` and the name, which is never empty.
#[must_use]
pub fn user_attr(name: &[u8]) -> Bytes {
    let mut full = Vec::with_capacity(1 + name.len());
    full.push(b'_');
    full.extend_from_slice(name);
    full.into()
}

/// A client's standing wish to be notified. The peer's `watch_info_t`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchRecord {
    /// Who.
    pub who: EntityId,
    /// The client's name for it.
    pub cookie: u64,
    /// Without a word for this long it ends.
    pub timeout_s: u32,
    /// From where.
    pub addr: EntityAddr,
}

impl Denc for WatchRecord {
    fn encode(&self, w: &mut Writer) {
        self.who.encode(w);
        w.u64(self.cookie);
        w.u32(self.timeout_s);
        self.addr.encode(w);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            who: Denc::decode(r)?,
            cookie: r.u64()?,
            timeout_s: r.u32()?,
            addr: Denc::decode(r)?,
        })
    }
}

/// The record of one object. The peer's `object_info_t`; the form on disk is ours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectInfo {
    /// The write that made it what it is.
    pub version: EVersion,
    /// Counts the writes a user sees.
    pub user_version: u64,
    /// Bytes.
    pub size: u64,
    /// As the writing client says.
    pub mtime: UTime,
    /// Newest truncation known; orders writes and truncations of files.
    pub truncate_seq: u32,
    /// Where that truncation cut.
    pub truncate_size: u64,
    /// Whether it has an omap.
    pub omap: bool,
    /// Hint: the size it will have.
    pub expected_object_size: u64,
    /// Hint: the size of its writes.
    pub expected_write_size: u64,
    /// Hint: what it is used for.
    pub alloc_hint_flags: u32,
    /// Who watches it.
    pub watchers: Arc<Vec<WatchRecord>>,
    /// There is no object, but clones of what it was, or it is deleted in a cache tier: the
    /// record is kept for that.
    pub whiteout: bool,
    /// What is known of its snapshots; `None` when no write ever saw one. Not of a clone.
    pub snaps: Option<Arc<SnapSet>>,
    /// Of a clone: the snapshots it serves, newest first.
    pub clone_snaps: Vec<SnapId>,
    /// In a cache tier: the base has it as it is here. A write ends it.
    pub clean: bool,
    /// In a cache tier: it stays there.
    pub pinned: bool,
}

const CLEAN: u8 = 1;
const PINNED: u8 = 2;

/// Version 1; version 2 with the snapshots, version 3 with what cache tiers note, where
/// there is any.
impl Denc for ObjectInfo {
    fn encode(&self, w: &mut Writer) {
        let flags = if self.clean { CLEAN } else { 0 } | if self.pinned { PINNED } else { 0 };
        let tier = flags != 0;
        let snaps = tier || self.whiteout || self.snaps.is_some() || !self.clone_snaps.is_empty();
        w.u8(1 + u8::from(snaps) + u8::from(tier));
        self.version.encode(w);
        w.u64(self.user_version);
        w.u64(self.size);
        self.mtime.encode(w);
        w.u32(self.truncate_seq);
        w.u64(self.truncate_size);
        w.bool(self.omap);
        w.u64(self.expected_object_size);
        w.u64(self.expected_write_size);
        w.u32(self.alloc_hint_flags);
        (*self.watchers).encode(w);
        if snaps {
            w.bool(self.whiteout);
            w.bool(self.snaps.is_some());
            if let Some(set) = &self.snaps {
                set.encode(w);
            }
            self.clone_snaps.encode(w);
        }
        if tier {
            w.u8(flags);
        }
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let v = r.u8()?;
        r.require((1..=3).contains(&v), "an object's record is version 1, 2 or 3")?;
        let mut info = Self {
            version: Denc::decode(r)?,
            user_version: r.u64()?,
            size: r.u64()?,
            mtime: Denc::decode(r)?,
            truncate_seq: r.u32()?,
            truncate_size: r.u64()?,
            omap: r.bool()?,
            expected_object_size: r.u64()?,
            expected_write_size: r.u64()?,
            alloc_hint_flags: r.u32()?,
            watchers: Arc::new(Denc::decode(r)?),
            ..Self::default()
        };
        if v >= 2 {
            info.whiteout = r.bool()?;
            info.snaps = if r.bool()? { Some(Arc::new(Denc::decode(r)?)) } else { None };
            info.clone_snaps = Denc::decode(r)?;
        }
        if v >= 3 {
            let flags = r.u8()?;
            (info.clean, info.pinned) = (flags & CLEAN != 0, flags & PINNED != 0);
        }
        Ok(info)
    }
}

/// An object as operations see it: there or not, and its record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectState {
    /// Whether it exists.
    pub exists: bool,
    /// Its record; default when it does not exist, but for `truncate_seq` and `snaps`.
    pub info: ObjectInfo,
}

impl ObjectState {
    /// Whether the store has an object for it.
    #[must_use]
    pub fn is_stored(&self) -> bool {
        self.exists || self.info.whiteout
    }
}
