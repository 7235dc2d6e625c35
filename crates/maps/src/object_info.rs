//! What an OSD keeps about an object beside its data.

use std::collections::BTreeMap;

use types::{
    Bytes, DecodeError, Denc, EVersion, EntityAddr, EntityId, HObject, ObjectLocator, Reader,
    ReqId, ShardId, SnapId, UTime, Writer,
};

use crate::wire::{record, release};

record! {
    /// A client that watches an object. The peer's `watch_info_t`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    WatchInfo "watch_info_t", compat 3, known 4, |f| 4; {
        /// Which of its watches.
        cookie: u64,
        /// Ends when nothing is heard for so long.
        timeout_seconds: u32,
        /// Where it is.
        4 => addr: EntityAddr,
    }
}

/// Where an object's data really is. The peer's `object_manifest_t`, 1/1: u8 kind, then
/// the kind's own, kept as it came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectManifest {
    /// 0 none, 1 redirect, 2 chunked.
    pub kind: u8,
    /// The kind's own, encoded.
    pub body: Bytes,
}

impl Denc for ObjectManifest {
    fn encode(&self, w: &mut Writer) {
        w.framed(1, 1, |w| {
            w.u8(self.kind);
            w.raw(&self.body);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("object_manifest_t", 1, |r, _| Ok(Self { kind: r.u8()?, body: r.rest() }))
    }
}

/// About an object. The peer's `object_info_t`: compat 8; v18 for peers of release 20, else
/// v17. Read from v17.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObjectInfo {
    /// Which.
    pub soid: HObject,
    /// Its last write.
    pub version: EVersion,
    /// The write before.
    pub prior_version: EVersion,
    /// Who wrote last.
    pub last_reqid: ReqId,
    /// Bytes.
    pub size: u64,
    /// When, by the client's clock.
    pub mtime: UTime,
    /// For clones: snapshots, as before release 14.
    pub legacy_snaps: Vec<SnapId>,
    /// Counts truncations.
    pub truncate_seq: u64,
    /// Where the last one was.
    pub truncate_size: u64,
    /// The version users see.
    pub user_version: u64,
    /// Who watches it, by cookie and client.
    pub watchers: BTreeMap<(u64, EntityId), WatchInfo>,
    /// Flags; see the constants.
    pub flags: u32,
    /// When, by the OSD's clock.
    pub local_mtime: UTime,
    /// crc of the data, when flagged.
    pub data_digest: u32,
    /// crc of the omap, when flagged.
    pub omap_digest: u32,
    /// Bytes it is to get, as hinted.
    pub expected_object_size: u64,
    /// Bytes per write, as hinted.
    pub expected_write_size: u64,
    /// Other hints.
    pub alloc_hint_flags: u32,
    /// Where its data is, with [`Self::MANIFEST`].
    pub manifest: ObjectManifest,
    /// Versions of shards that differ (v18).
    pub shard_versions: BTreeMap<ShardId, EVersion>,
}

impl ObjectInfo {
    /// Declared lost.
    pub const LOST: u32 = 1;
    /// A cache tier's note that the object is deleted.
    pub const WHITEOUT: u32 = 1 << 1;
    /// To be flushed by a cache tier.
    pub const DIRTY: u32 = 1 << 2;
    /// Has omap.
    pub const OMAP: u32 = 1 << 3;
    /// `data_digest` counts.
    pub const DATA_DIGEST: u32 = 1 << 4;
    /// `omap_digest` counts.
    pub const OMAP_DIGEST: u32 = 1 << 5;
    /// Stays in its cache tier.
    pub const CACHE_PIN: u32 = 1 << 6;
    /// Has a manifest.
    pub const MANIFEST: u32 = 1 << 7;
    /// Written by tmap operations, long gone.
    pub const USES_TMAP: u32 = 1 << 8;

    /// Whether a flag is set.
    #[must_use]
    pub const fn has(&self, flag: u32) -> bool {
        self.flags & flag == flag
    }
}

impl Denc for ObjectInfo {
    fn encode(&self, w: &mut Writer) {
        let v = if release(w.features()) >= 20 { 18 } else { 17 };
        w.framed(v, 8, |w| {
            self.soid.encode(w);
            ObjectLocator {
                pool: self.soid.pool,
                key: self.soid.key.clone(),
                nspace: self.soid.nspace.clone(),
                hash: -1,
            }
            .encode(w);
            w.u32(0); // category
            self.version.encode(w);
            self.prior_version.encode(w);
            self.last_reqid.encode(w);
            w.u64(self.size);
            self.mtime.encode(w);
            if self.soid.is_head() {
                ReqId::default().encode(w); // a lock, long gone
            } else {
                self.legacy_snaps.encode(w);
            }
            w.u64(self.truncate_seq);
            w.u64(self.truncate_size);
            w.bool(self.has(Self::LOST));
            let mut old: BTreeMap<EntityId, WatchInfo> = BTreeMap::new();
            for ((_, client), watch) in &self.watchers {
                old.entry(*client).or_insert(*watch);
            }
            old.encode(w);
            EVersion::new(0, self.user_version).encode(w);
            w.bool(self.has(Self::USES_TMAP));
            self.watchers.encode(w);
            w.u32(self.flags);
            self.local_mtime.encode(w);
            w.u32(self.data_digest);
            w.u32(self.omap_digest);
            w.u64(self.expected_object_size);
            w.u64(self.expected_write_size);
            w.u32(self.alloc_hint_flags);
            if self.has(Self::MANIFEST) {
                self.manifest.encode(w);
            }
            if v >= 18 {
                self.shard_versions.encode(w);
            }
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("object_info_t", 18, |r, v| {
            r.require(v >= 17, "object infos are read from version 17 on")?;
            let mut o = Self { soid: Denc::decode(r)?, ..Self::default() };
            let _ = (ObjectLocator::decode(r)?, r.blob_ref()?);
            o.version = Denc::decode(r)?;
            o.prior_version = Denc::decode(r)?;
            o.last_reqid = Denc::decode(r)?;
            o.size = r.u64()?;
            o.mtime = Denc::decode(r)?;
            if o.soid.is_head() {
                let _ = ReqId::decode(r)?;
            } else {
                o.legacy_snaps = Denc::decode(r)?;
            }
            o.truncate_seq = r.u64()?;
            o.truncate_size = r.u64()?;
            let _ = r.bool()?;
            let _: BTreeMap<EntityId, WatchInfo> = Denc::decode(r)?;
            o.user_version = EVersion::decode(r)?.version;
            let _ = r.bool()?;
            o.watchers = Denc::decode(r)?;
            o.flags = r.u32()?;
            o.local_mtime = Denc::decode(r)?;
            o.data_digest = r.u32()?;
            o.omap_digest = r.u32()?;
            o.expected_object_size = r.u64()?;
            o.expected_write_size = r.u64()?;
            o.alloc_hint_flags = r.u32()?;
            if o.has(Self::MANIFEST) {
                o.manifest = Denc::decode(r)?;
            }
            if v >= 18 {
                o.shard_versions = Denc::decode(r)?;
            }
            Ok(o)
        })
    }
}
