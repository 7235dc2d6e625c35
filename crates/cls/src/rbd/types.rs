//! What headers, directories and groups of images hold. The peer's `cls_rbd_types.h`.
// Fields are the peer's; each struct's doc names it.
#![allow(missing_docs)]

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use denc::{DecodeError, Denc, Reader, Writer};
use types::{EntityAddr, EntityId, EntityInst, UTime};

use crate::record;

/// No snapshot: the image itself (`CEPH_NOSNAP`).
pub const HEAD: u64 = -2i64 as u64;
/// The last snapshot there can be (`CEPH_MAXSNAP`).
pub const SNAP_MAX: u64 = -3i64 as u64;

record! {
    /// `ParentImageSpec`.
    ParentSpec(1, 1) { pool: i64, nspace: Bytes, image: Bytes, snap: u64, }
}
record! {
    /// `ChildImageSpec`.
    ChildSpec(2, 1) { pool: i64, image: Bytes, nspace: Bytes = 2, }
}
record! {
    /// `GroupImageSpec`.
    GroupImage(1, 1) { image: Bytes, pool: i64, }
}
record! {
    /// `GroupImageStatus`.
    GroupImageStatus(1, 1) { spec: GroupImage, state: u8, }
}
record! {
    /// `ImageSnapshotSpec`.
    ImageSnap(1, 1) { pool: i64, image: Bytes, snap: u64, }
}
record! {
    /// `GroupSnapshot`.
    GroupSnap(1, 1) { id: Bytes, name: Bytes, state: u8, snaps: Vec<ImageSnap>, }
}
record! {
    /// `TrashImageSpec`.
    TrashSpec(2, 1) { source: u8, name: Bytes, deleted: UTime, deferred: UTime, state: u8 = 2, }
}
record! {
    /// `MirrorImage`.
    MirrorImage(2, 1) { global_id: Bytes, state: u8, mode: u8 = 2, }
}
record! {
    /// `MirrorImageMap`.
    ImageMap(1, 1) { instance: Bytes, mapped: UTime, data: Bytes, }
}

impl PartialOrd for ChildSpec {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ChildSpec {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.pool, &self.image, &self.nspace).cmp(&(other.pool, &other.image, &other.nspace))
    }
}

/// `GroupSpec`: the group that an image is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSpec {
    pub pool: i64,
    pub group: Bytes,
}

impl Default for GroupSpec {
    fn default() -> Self {
        Self { pool: -1, group: Bytes::new() }
    }
}

impl Denc for GroupSpec {
    fn encode(&self, w: &mut Writer) {
        w.framed(1, 1, |w| {
            w.i64(self.pool);
            self.group.encode(w);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("GroupSpec", 1, |r, _| Ok(Self { pool: r.i64()?, group: r.blob()? }))
    }
}

/// `cls_rbd_parent`: what an image was cloned from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parent {
    pub pool: i64,
    pub nspace: Bytes,
    pub image: Bytes,
    pub snap: u64,
    /// How much of the image still shows the parent; none where only snapshots do.
    pub overlap: Option<u64>,
}

impl Default for Parent {
    fn default() -> Self {
        let (nspace, image) = (Bytes::new(), Bytes::new());
        Self { pool: -1, nspace, image, snap: HEAD, overlap: None }
    }
}

impl Parent {
    pub fn exists(&self) -> bool {
        self.pool >= 0 && !self.image.is_empty() && self.snap != HEAD
    }
}

impl Denc for Parent {
    fn encode(&self, w: &mut Writer) {
        w.framed(2, 2, |w| {
            w.i64(self.pool);
            self.nspace.encode(w);
            self.image.encode(w);
            w.u64(self.snap);
            self.overlap.encode(w);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("cls_rbd_parent", 2, |r, v| {
            let pool = r.i64()?;
            let nspace = if v >= 2 { r.blob()? } else { Bytes::new() };
            let (image, snap) = (r.blob()?, r.u64()?);
            let overlap = if v >= 2 { Denc::decode(r)? } else { Some(r.u64()?) };
            Ok(Self { pool, nspace, image, snap, overlap })
        })
    }
}

/// `SnapshotNamespace`: what a snapshot is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SnapKind {
    /// Its user's.
    #[default]
    User,
    /// Of a group's snapshot.
    Group { pool: i64, group: Bytes, snap: Bytes },
    /// Removed, but clones need it.
    Trash { name: Bytes, kind: u32 },
    /// Mirroring's.
    Mirror(Box<MirrorSnap>),
    /// Of a newer release.
    Unknown,
}

/// `MirrorSnapshotNamespace`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MirrorSnap {
    pub state: u8,
    pub complete: bool,
    pub peers: BTreeSet<Bytes>,
    pub primary: Bytes,
    pub primary_snap: u64,
    pub last_copied: u64,
    pub snap_seqs: BTreeMap<u64, u64>,
}

impl MirrorSnap {
    /// Of a primary image, for nobody yet: nothing was copied into it.
    pub fn of_primary() -> Self {
        Self { primary_snap: HEAD, ..Self::default() }
    }
}

impl SnapKind {
    /// Its number.
    pub fn kind(&self) -> u32 {
        match self {
            Self::User => 0,
            Self::Group { .. } => 1,
            Self::Trash { .. } => 2,
            Self::Mirror(_) => 3,
            Self::Unknown => u32::MAX,
        }
    }
}

impl Denc for SnapKind {
    fn encode(&self, w: &mut Writer) {
        w.framed(1, 1, |w| {
            w.u32(self.kind());
            match self {
                Self::User | Self::Unknown => {}
                Self::Group { pool, group, snap } => {
                    w.i64(*pool);
                    group.encode(w);
                    snap.encode(w);
                }
                Self::Trash { name, kind } => {
                    name.encode(w);
                    w.u32(*kind);
                }
                Self::Mirror(m) => {
                    w.u8(m.state);
                    w.bool(m.complete);
                    m.peers.encode(w);
                    m.primary.encode(w);
                    w.u64(m.primary_snap);
                    w.u64(m.last_copied);
                    m.snap_seqs.encode(w);
                }
            }
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("SnapshotNamespace", 1, |r, _| {
            Ok(match r.u32()? {
                0 => Self::User,
                1 => Self::Group { pool: r.i64()?, group: r.blob()?, snap: r.blob()? },
                2 => Self::Trash { name: r.blob()?, kind: r.u32()? },
                3 => Self::Mirror(Box::new(MirrorSnap {
                    state: r.u8()?,
                    complete: r.bool()?,
                    peers: Denc::decode(r)?,
                    primary: r.blob()?,
                    primary_snap: r.u64()?,
                    last_copied: r.u64()?,
                    snap_seqs: Denc::decode(r)?,
                })),
                _ => Self::Unknown,
            })
        })
    }
}

/// `cls_rbd_snap`: a snapshot in an image's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snap {
    pub id: u64,
    pub name: Bytes,
    pub size: u64,
    pub protection: u8,
    /// In headers of old: the parent, whole.
    pub parent: Parent,
    pub flags: u64,
    pub kind: SnapKind,
    pub time: UTime,
    pub children: u32,
    pub overlap: Option<u64>,
}

impl Default for Snap {
    fn default() -> Self {
        Self {
            id: HEAD,
            name: Bytes::new(),
            size: 0,
            protection: 0,
            parent: Parent::default(),
            flags: 0,
            kind: SnapKind::User,
            time: UTime::ZERO,
            children: 0,
            overlap: None,
        }
    }
}

impl Denc for Snap {
    fn encode(&self, w: &mut Writer) {
        w.framed(8, 8, |w| {
            w.u64(self.id);
            self.name.encode(w);
            w.u64(self.size);
            w.u8(self.protection);
            w.u64(self.flags);
            self.kind.encode(w);
            self.time.encode(w);
            w.u32(self.children);
            self.overlap.encode(w);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("cls_rbd_snap", 8, |r, v| {
            let mut s = Self { id: r.u64()?, name: r.blob()?, size: r.u64()?, ..Self::default() };
            // Features, which snapshots had once.
            if v < 8 {
                r.u64()?;
            }
            if (2..8).contains(&v) {
                s.parent = Denc::decode(r)?;
            }
            if v >= 3 {
                s.protection = r.u8()?;
            }
            if v >= 4 {
                s.flags = r.u64()?;
            }
            if v >= 5 {
                s.kind = Denc::decode(r)?;
            }
            if v >= 6 {
                s.time = Denc::decode(r)?;
            }
            if v >= 7 {
                s.children = r.u32()?;
            }
            if v >= 8 {
                s.overlap = Denc::decode(r)?;
            }
            Ok(s)
        })
    }
}

record! {
    /// `SnapshotInfo`.
    SnapInfo(1, 1) {
        id: u64,
        kind: SnapKind,
        name: Bytes,
        size: u64,
        time: UTime,
        children: u32,
    }
}

/// `MigrationSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Migration {
    /// 1 in the source's header, 2 in the destination's.
    pub header: u8,
    pub pool: i64,
    pub nspace: Bytes,
    pub name: Bytes,
    pub image: Bytes,
    /// Where there is no pool: how the source is read.
    pub source: Bytes,
    pub snap_seqs: BTreeMap<u64, u64>,
    pub overlap: u64,
    pub flatten: bool,
    pub mirroring: bool,
    pub mirror_mode: u8,
    pub state: u8,
    pub description: Bytes,
}

impl Denc for Migration {
    fn encode(&self, w: &mut Writer) {
        let compat = if self.source.is_empty() { 1 } else { 3 };
        w.framed(3, compat, |w| {
            w.u8(self.header);
            w.i64(self.pool);
            self.nspace.encode(w);
            self.name.encode(w);
            self.image.encode(w);
            self.snap_seqs.encode(w);
            w.u64(self.overlap);
            w.bool(self.flatten);
            w.bool(self.mirroring);
            w.u8(self.state);
            self.description.encode(w);
            w.u8(self.mirror_mode);
            self.source.encode(w);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("MigrationSpec", 3, |r, v| {
            let mut m = Self {
                header: r.u8()?,
                pool: r.i64()?,
                nspace: r.blob()?,
                name: r.blob()?,
                image: r.blob()?,
                snap_seqs: Denc::decode(r)?,
                overlap: r.u64()?,
                flatten: r.bool()?,
                mirroring: r.bool()?,
                state: r.u8()?,
                description: r.blob()?,
                ..Self::default()
            };
            if v >= 2 {
                m.mirror_mode = r.u8()?;
            }
            if v >= 3 {
                m.source = r.blob()?;
            }
            Ok(m)
        })
    }
}

pub const RX: u8 = 0;
pub const TX: u8 = 1;
pub const RX_TX: u8 = 2;

/// `MirrorPeer`: a cluster that images are mirrored from or to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorPeer {
    pub uuid: Bytes,
    pub site: Bytes,
    pub client: Bytes,
    pub pool: i64,
    pub direction: u8,
    pub mirror_uuid: Bytes,
    pub last_seen: UTime,
}

impl Default for MirrorPeer {
    fn default() -> Self {
        Self {
            uuid: Bytes::new(),
            site: Bytes::new(),
            client: Bytes::new(),
            pool: -1,
            direction: RX_TX,
            mirror_uuid: Bytes::new(),
            last_seen: UTime::ZERO,
        }
    }
}

impl MirrorPeer {
    pub fn is_valid(&self) -> bool {
        let has_client = match self.direction {
            TX => true,
            RX | RX_TX => !self.client.is_empty(),
            _ => false,
        };
        has_client && !self.uuid.is_empty() && !self.site.is_empty()
    }
}

impl Denc for MirrorPeer {
    fn encode(&self, w: &mut Writer) {
        w.framed(2, 1, |w| {
            self.uuid.encode(w);
            self.site.encode(w);
            self.client.encode(w);
            w.i64(self.pool);
            w.u8(self.direction);
            self.mirror_uuid.encode(w);
            self.last_seen.encode(w);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("MirrorPeer", 2, |r, v| {
            let mut p = Self {
                uuid: r.blob()?,
                site: r.blob()?,
                client: r.blob()?,
                pool: r.i64()?,
                ..Self::default()
            };
            if v >= 2 {
                p.direction = r.u8()?;
                p.mirror_uuid = r.blob()?;
                p.last_seen = Denc::decode(r)?;
            }
            Ok(p)
        })
    }
}

/// `MirrorImageSiteStatus`: how an image's replica at a site does. The local site has no
/// name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteStatus {
    pub site: Bytes,
    pub state: u8,
    pub description: Bytes,
    pub updated: UTime,
    pub up: bool,
}

impl SiteStatus {
    fn put(&self, w: &mut Writer, version: u8) {
        if version >= 2 {
            self.site.encode(w);
        }
        w.u8(self.state);
        self.description.encode(w);
        self.updated.encode(w);
        w.bool(self.up);
    }

    fn get(r: &mut Reader<'_>, version: u8) -> Result<Self, DecodeError> {
        let site = if version >= 2 { r.blob()? } else { Bytes::new() };
        Ok(Self {
            site,
            state: r.u8()?,
            description: r.blob()?,
            updated: Denc::decode(r)?,
            up: r.bool()?,
        })
    }
}

impl Denc for SiteStatus {
    fn encode(&self, w: &mut Writer) {
        let version = if self.site.is_empty() { 1 } else { 2 };
        w.framed(version, version, |w| self.put(w, version));
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("MirrorImageSiteStatus", 2, Self::get)
    }
}

/// `MirrorImageSiteStatusOnDisk`: a status and who reported it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredStatus {
    pub origin: EntityInst,
    pub status: SiteStatus,
}

/// An address without its kind, which is not part of who somebody is.
pub fn sanitized(name: EntityId, addr: EntityAddr) -> EntityInst {
    EntityInst { name, addr: addr.with_kind(types::AddrKind::ANY) }
}

impl Denc for StoredStatus {
    fn encode(&self, w: &mut Writer) {
        w.framed(1, 1, |w| self.origin.encode(w));
        self.status.encode(w);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let origin: EntityInst =
            r.framed("MirrorImageSiteStatusOnDisk", 1, |r, _| Denc::decode(r))?;
        let status = Denc::decode(r)?;
        Ok(Self { origin: sanitized(origin.name, origin.addr), status })
    }
}

/// `MirrorImageStatus`: the local site's, then those of others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageStatus {
    pub local: Option<SiteStatus>,
    pub remote: Vec<SiteStatus>,
}

impl Denc for ImageStatus {
    fn encode(&self, w: &mut Writer) {
        w.framed(2, 1, |w| {
            self.local.clone().unwrap_or_default().put(w, 1);
            w.bool(self.local.is_some());
            w.seq(&self.remote, |w, s| s.put(w, 2));
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("MirrorImageStatus", 2, |r, v| {
            let local = SiteStatus::get(r, 1)?;
            if v < 2 {
                return Ok(Self { local: Some(local), remote: Vec::new() });
            }
            let is_valid = r.bool()?;
            let remote = r.seq(|r| SiteStatus::get(r, 2))?;
            Ok(Self { local: is_valid.then_some(local), remote })
        })
    }
}
