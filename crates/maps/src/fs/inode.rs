//! Inodes as they are stored in directories.

use std::collections::BTreeMap;

use bytes::Bytes;
use striper::FileLayout;
use types::{DecodeError, Denc, Ino, PoolId, Reader, SnapId, UTime, Writer};

use super::{ByteMap, FragInfo, FragTree, InlineData, NestInfo, OptMetadata, Quota};
use crate::wire::{plain, record, release};

/// Times of an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InodeTimes {
    /// When anything changed.
    pub ctime: UTime,
    /// When data or entries changed.
    pub mtime: UTime,
    /// When data was read.
    pub atime: UTime,
    /// When it was made.
    pub btime: UTime,
    /// Counts how often times were set back.
    pub time_warp_seq: u32,
}

/// How a file was last cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncate {
    /// Counts cuts; 1 at first.
    pub seq: u32,
    /// To which size; `u64::MAX` when never.
    pub size: u64,
    /// From which size.
    pub from: u64,
    /// Cuts whose objects were not cut yet.
    pub pending: u32,
}

impl Default for Truncate {
    fn default() -> Self {
        Self { seq: 0, size: u64::MAX, from: 0, pending: 0 }
    }
}

record! {
    /// What a client may write. The peer's `client_writeable_range_t`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    ClientRange "client_writeable_range_t", compat 2, known 2, |f| 2; {
        /// From this byte on; 0.
        first: u64,
        /// Below this byte.
        last: u64,
        /// Since this snapshot.
        follows: SnapId,
    }
}

/// What an inode has of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileRecord {
    /// Bytes that the file has.
    pub size: u64,
    /// The last cut.
    pub truncate: Truncate,
    /// What clients may write, by the number of the client.
    pub client_ranges: BTreeMap<i64, ClientRange>,
    /// Pools that have a backtrace of it from before its layout was changed, ascending.
    pub old_pools: Vec<PoolId>,
    /// It never had more bytes than this.
    pub max_size_ever: u64,
    /// Its bytes, where they are kept here.
    pub inline: InlineData,
}

/// What an inode has of a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirRecord {
    /// How names are hashed: see [`super::dir_hash`].
    pub hash: u8,
    /// What is in it.
    pub dirstat: FragInfo,
    /// What is below it, itself included.
    pub rstat: NestInfo,
    /// The same, as its parent was told.
    pub accounted_rstat: NestInfo,
    /// How much may be below it.
    pub quota: Quota,
}

/// Counters of changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InodeVersions {
    /// Of the inode; from its directory's counter.
    pub version: u64,
    /// Of data; not used.
    pub file_data: u64,
    /// Of extended attributes.
    pub xattr: u64,
    /// The version whose backtrace has to be stored.
    pub backtrace: u64,
    /// For clients.
    pub change_attr: u64,
}

plain! {
    /// What a scrub saw last.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    ScrubMark {
        /// The version of what was checked.
        version: u64,
        /// When the scrub ended.
        stamp: UTime,
    }
}

/// Which rank a directory is to be served by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pins {
    /// The rank; -1 for any.
    pub export_pin: i32,
    /// How likely each directory below is pinned by chance, 0 to 1.
    pub random: f64,
    /// [`Pins::DISTRIBUTED`], [`Pins::QUIESCE_BLOCK`].
    pub flags: u8,
}

impl Pins {
    /// Its directories are spread over the ranks.
    pub const DISTRIBUTED: u8 = 1;
    /// It is left out when its tree is quiesced.
    pub const QUIESCE_BLOCK: u8 = 2;
}

impl Default for Pins {
    fn default() -> Self {
        Self { export_pin: -1, random: 0.0, flags: 0 }
    }
}

/// What clients that encrypt keep at an inode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fscrypt {
    /// Its context.
    pub auth: Bytes,
    /// The file's true size.
    pub file: Bytes,
    /// The block in which it was cut.
    pub last_block: Bytes,
}

/// An inode. The peer's `inode_t`: version 17 in release 16, 19 in 18 and 19, 20 in 20.2;
/// compat 6, read from version 6 on. What a later version adds is dropped.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inode {
    /// Its number.
    pub ino: Ino,
    /// The device it stands for.
    pub rdev: u32,
    /// Type and permissions, as `st_mode`.
    pub mode: u32,
    /// The user that owns it.
    pub uid: u32,
    /// The group that owns it.
    pub gid: u32,
    /// How many names lead to it.
    pub nlink: i32,
    /// When it was changed and read.
    pub times: InodeTimes,
    /// Where its data is; for a directory, where that of new files in it will be.
    pub layout: FileLayout,
    /// What it has of a file.
    pub file: FileRecord,
    /// What it has of a directory.
    pub dir: DirRecord,
    /// How often parts of it changed.
    pub versions: InodeVersions,
    /// Its path before its last name was removed.
    pub stray_prior_path: Bytes,
    /// The last scrub.
    pub scrub: ScrubMark,
    /// Where it is to be served.
    pub pins: Pins,
    /// What clients that encrypt keep here.
    pub fscrypt: Fscrypt,
    /// What only some have.
    pub optmetadata: OptMetadata,
}

impl Inode {
    const FORMAT: u32 = 0o170_000;

    /// Whether it is a directory.
    #[must_use]
    pub const fn is_dir(&self) -> bool {
        self.mode & Self::FORMAT == 0o040_000
    }

    /// Whether it is a symbolic link.
    #[must_use]
    pub const fn is_symlink(&self) -> bool {
        self.mode & Self::FORMAT == 0o120_000
    }

    /// Whether it is a regular file.
    #[must_use]
    pub const fn is_file(&self) -> bool {
        self.mode & Self::FORMAT == 0o100_000
    }
}

impl Denc for Inode {
    fn encode(&self, w: &mut Writer) {
        let v = match release(w.features()) {
            16 => 17,
            18 | 19 => 19,
            _ => 20,
        };
        w.framed(v, 6, |w| {
            self.ino.encode(w);
            w.u32(self.rdev);
            self.times.ctime.encode(w);
            for x in [self.mode, self.uid, self.gid] {
                w.u32(x);
            }
            w.i32(self.nlink);
            w.u8(0); // anchored, long gone
            w.u8(self.dir.hash);
            w.raw(&[0; 7]);
            self.layout.encode(w);
            w.u64(self.file.size);
            w.u32(self.file.truncate.seq);
            w.u64(self.file.truncate.size);
            w.u64(self.file.truncate.from);
            w.u32(self.file.truncate.pending);
            self.times.mtime.encode(w);
            self.times.atime.encode(w);
            w.u32(self.times.time_warp_seq);
            self.file.client_ranges.encode(w);
            self.dir.dirstat.encode(w);
            self.dir.rstat.encode(w);
            self.dir.accounted_rstat.encode(w);
            w.u64(self.versions.version);
            w.u64(self.versions.file_data);
            w.u64(self.versions.xattr);
            w.u64(self.versions.backtrace);
            self.file.old_pools.encode(w);
            w.u64(self.file.max_size_ever);
            self.file.inline.encode(w);
            self.dir.quota.encode(w);
            w.blob(&self.stray_prior_path);
            self.scrub.encode(w);
            self.times.btime.encode(w);
            w.u64(self.versions.change_attr);
            w.i32(self.pins.export_pin);
            w.f64(self.pins.random);
            w.u8(self.pins.flags);
            w.bool(!self.fscrypt.auth.is_empty());
            if v >= 18 {
                w.blob(&self.fscrypt.auth);
                w.blob(&self.fscrypt.file);
            }
            if v >= 19 {
                w.blob(&self.fscrypt.last_block);
            }
            if v >= 20 {
                self.optmetadata.encode(w);
            }
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("inode_t", 20, |r, v| {
            r.require(v >= 6, "inodes are read from version 6 on")?;
            let mut i = Self { ino: Denc::decode(r)?, rdev: r.u32()?, ..Self::default() };
            i.times.ctime = Denc::decode(r)?;
            (i.mode, i.uid, i.gid, i.nlink) = (r.u32()?, r.u32()?, r.u32()?, r.i32()?);
            r.skip(1)?;
            i.dir.hash = r.u8()?;
            r.skip(7)?;
            i.layout = Denc::decode(r)?;
            i.file.size = r.u64()?;
            i.file.truncate =
                Truncate { seq: r.u32()?, size: r.u64()?, from: r.u64()?, pending: r.u32()? };
            i.times.mtime = Denc::decode(r)?;
            i.times.atime = Denc::decode(r)?;
            i.times.time_warp_seq = r.u32()?;
            i.file.client_ranges = Denc::decode(r)?;
            i.dir.dirstat = Denc::decode(r)?;
            i.dir.rstat = Denc::decode(r)?;
            i.dir.accounted_rstat = Denc::decode(r)?;
            let s = &mut i.versions;
            (s.version, s.file_data, s.xattr, s.backtrace) =
                (r.u64()?, r.u64()?, r.u64()?, r.u64()?);
            if v >= 7 {
                i.file.old_pools = Denc::decode(r)?;
            }
            if v >= 8 {
                i.file.max_size_ever = r.u64()?;
            }
            if v >= 9 {
                i.file.inline = Denc::decode(r)?;
            }
            if v < 10 {
                i.versions.backtrace = 0; // the form of the backtrace changed: store it again
            }
            if v >= 11 {
                i.dir.quota = Denc::decode(r)?;
            }
            if v >= 12 {
                i.stray_prior_path = r.blob()?;
            }
            if v >= 13 {
                i.scrub = Denc::decode(r)?;
            }
            if v >= 14 {
                i.times.btime = Denc::decode(r)?;
                i.versions.change_attr = r.u64()?;
            }
            if v >= 15 {
                i.pins.export_pin = r.i32()?;
            }
            if v >= 16 {
                i.pins.random = r.f64()?;
                i.pins.flags = r.u8()?;
            }
            if v >= 17 {
                r.skip(1)?;
            }
            if v >= 18 {
                i.fscrypt.auth = r.blob()?;
                i.fscrypt.file = r.blob()?;
            }
            if v >= 19 {
                i.fscrypt.last_block = r.blob()?;
            }
            if v >= 20 {
                i.optmetadata = Denc::decode(r)?;
            }
            Ok(i)
        })
    }
}

record! {
    /// An inode as snapshots have it. The peer's `old_inode_t`.
    #[derive(Clone, Debug, Default, PartialEq)]
    OldInode "old_inode_t", compat 2, known 2, |f| 2; {
        /// The first snapshot that has it; the last is its key.
        first: SnapId,
        /// The inode.
        inode: Inode,
        /// Its extended attributes.
        xattrs: ByteMap,
    }
}

/// An inode and all that is stored with it. The peer's `InodeStore`, 6/4.
#[derive(Clone, Debug, PartialEq)]
pub struct InodeStore {
    /// The inode.
    pub inode: Inode,
    /// Where a symbolic link leads; written for these only.
    pub symlink: Bytes,
    /// How a directory is split.
    pub fragtree: FragTree,
    /// Extended attributes.
    pub xattrs: ByteMap,
    /// An encoded [`super::SnapRealm`], or empty.
    pub snap_realm: Bytes,
    /// What snapshots have of it, by the last of them.
    pub old_inodes: BTreeMap<SnapId, OldInode>,
    /// The oldest snapshot below; [`SnapId::HEAD`] for none.
    pub oldest_snap: SnapId,
    /// What a scrub found broken.
    pub damage_flags: u32,
}

impl Default for InodeStore {
    fn default() -> Self {
        Self {
            inode: Inode::default(),
            symlink: Bytes::new(),
            fragtree: FragTree::default(),
            xattrs: ByteMap::new(),
            snap_realm: Bytes::new(),
            old_inodes: BTreeMap::new(),
            oldest_snap: SnapId::HEAD,
            damage_flags: 0,
        }
    }
}

impl InodeStore {
    fn encode_bare(&self, w: &mut Writer) {
        self.inode.encode(w);
        if self.inode.is_symlink() {
            w.blob(&self.symlink);
        }
        self.fragtree.encode(w);
        self.xattrs.encode(w);
        w.blob(&self.snap_realm);
        self.old_inodes.encode(w);
        self.oldest_snap.encode(w);
        w.u32(self.damage_flags);
    }

    /// Reads to the end of the innermost struct: later fields came without a version.
    fn decode_bare(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let inode: Inode = Denc::decode(r)?;
        let symlink = if inode.is_symlink() { r.blob()? } else { Bytes::new() };
        let mut store = Self {
            inode,
            symlink,
            fragtree: Denc::decode(r)?,
            xattrs: Denc::decode(r)?,
            snap_realm: r.blob()?,
            old_inodes: Denc::decode(r)?,
            ..Self::default()
        };
        if r.left() > 0 {
            store.oldest_snap = Denc::decode(r)?;
        }
        if r.left() > 0 {
            store.damage_flags = r.u32()?;
        }
        Ok(store)
    }
}

impl Denc for InodeStore {
    fn encode(&self, w: &mut Writer) {
        w.framed(6, 4, |w| self.encode_bare(w));
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("InodeStore", 6, |r, v| {
            r.require(v >= 4, "stored inodes are read from version 4 on")?;
            Self::decode_bare(r)
        })
    }
}

/// An [`InodeStore`] without header, to the end of what it stands in: primary entries of
/// release 16 and older.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InodeStoreBare(pub InodeStore);

impl Denc for InodeStoreBare {
    fn encode(&self, w: &mut Writer) {
        self.0.encode_bare(w);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        InodeStore::decode_bare(r).map(Self)
    }
}

/// The object of an inode that no directory holds: the root's and each `~mds<rank>`'s. A str,
/// [`super::MAGIC`], then the stored inode.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SystemInode(pub InodeStore);

impl Denc for SystemInode {
    fn encode(&self, w: &mut Writer) {
        w.str(super::MAGIC);
        self.0.encode(w);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let magic = r.blob_ref()?;
        r.require(magic == super::MAGIC.as_bytes(), "a system inode begins with its magic")?;
        InodeStore::decode(r).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Features;

    /// Sizes as seen in pools of 20.2.4: 485 bytes of body, 451 of the inode's.
    #[test]
    fn sizes_of_a_plain_file() {
        let mut store = InodeStore::default();
        store.inode.mode = 0o100_644;
        store.inode.layout = FileLayout::plain(PoolId(3));
        let bytes = store.to_bytes();
        assert_eq!(bytes.len(), 6 + 0x1e5);
        assert_eq!(bytes[..2], [6, 4]);
        assert_eq!(bytes[6..12], [0x14, 6, 0xc3, 1, 0, 0]);
        assert_eq!(InodeStore::from_bytes(&bytes), Ok(store));
    }

    /// With a realm, as in pools of 20.2.4: 592 bytes.
    #[test]
    fn system_inodes() {
        let mut store = InodeStore::default();
        store.inode.mode = 0o040_755;
        store.snap_realm = super::super::SnapRealm::default().to_bytes();
        let inode = SystemInode(store);
        let bytes = inode.to_bytes();
        assert_eq!(bytes.len(), 592);
        assert_eq!(SystemInode::from_bytes(&bytes), Ok(inode));
        let mut other = bytes.to_vec();
        other[4] = b'x';
        assert!(SystemInode::from_bytes(&other).is_err());
    }

    /// Every field comes back from each release's form that has it.
    #[test]
    fn fields_by_release() {
        let mut store = InodeStore {
            symlink: "there".into(),
            snap_realm: "blob".into(),
            damage_flags: 3,
            ..InodeStore::default()
        };
        let i = &mut store.inode;
        (i.mode, i.pins.random, i.dir.hash, i.nlink) = (0o120_777, 0.5, 2, -1);
        i.file.old_pools = vec![PoolId(7)];
        i.file.client_ranges.insert(9, ClientRange { first: 0, last: 5, follows: SnapId(2) });
        store.xattrs.insert("user.\u{ff}".into(), Bytes::from_static(&[0, 255]));
        store.fragtree.split(super::super::Frag::ROOT, 3);
        let old = OldInode { first: SnapId(2), inode: i.clone(), xattrs: ByteMap::new() };
        store.old_inodes.insert(SnapId(4), old);
        for features in [Features::PACIFIC_WORD, Features::REEF_WORD, Features::TENTACLE_WORD] {
            let bytes = store.to_bytes_for(features);
            assert_eq!(InodeStore::from_bytes(&bytes), Ok(store.clone()));
        }
    }
}
