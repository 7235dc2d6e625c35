//! Answers to requests.

use std::collections::BTreeSet;

use bytes::Bytes;
use denc::{DecodeError, Denc, Reader, Writer};
use maps::fs::{ByteMap, Frag, FragTree, InlineData, InoIntervals, OptMetadata, Quota};
use striper::FileLayout;
use types::{Epoch, Ino, SnapId, UTime};

use super::FscryptBlobs;
use crate::Message;

/// The cap that comes with an inode. The peer's `ceph_mds_reply_cap`, 33 bytes;
/// zeros where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct ReplyCap {
    pub caps: u32,
    pub wanted: u32,
    pub cap_id: u64,
    pub seq: u32,
    pub mseq: u32,
    /// The inode's realm.
    pub realm: Ino,
    /// 1: the server is the inode's own.
    pub flags: u8,
}

impl Denc for ReplyCap {
    fn encode(&self, w: &mut Writer) {
        w.u32(self.caps);
        w.u32(self.wanted);
        w.u64(self.cap_id);
        w.u32(self.seq);
        w.u32(self.mseq);
        self.realm.encode(w);
        w.u8(self.flags);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            caps: r.u32()?,
            wanted: r.u32()?,
            cap_id: r.u64()?,
            seq: r.u32()?,
            mseq: r.u32()?,
            realm: Denc::decode(r)?,
            flags: r.u8()?,
        })
    }
}

/// Times of an inode, and how often they changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct StatTimes {
    pub ctime: UTime,
    pub mtime: UTime,
    pub atime: UTime,
    pub time_warp_seq: u32,
    pub btime: UTime,
    pub change_attr: u64,
    /// Of a snapshot's directory (v3).
    pub snap_btime: UTime,
}

/// Sizes of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct StatSize {
    pub size: u64,
    pub max_size: u64,
    pub truncate_size: u64,
    pub truncate_seq: u32,
}

/// Sums over a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct StatDir {
    pub nfiles: i64,
    pub nsubdirs: i64,
    pub rbytes: i64,
    pub rfiles: i64,
    pub rsubdirs: i64,
    /// v4.
    pub rsnaps: u64,
    pub rctime: UTime,
    /// How names are hashed: see [`maps::fs::dir_hash`].
    pub hash: u8,
    pub quota: Quota,
    /// -1 for none (v2).
    pub pin: i32,
}

impl Default for StatDir {
    fn default() -> Self {
        Self {
            nfiles: 0,
            nsubdirs: 0,
            rbytes: 0,
            rfiles: 0,
            rsubdirs: 0,
            rsnaps: 0,
            rctime: UTime::ZERO,
            hash: 0,
            quota: Quota::default(),
            pin: -1,
        }
    }
}

/// An inode as clients see it. The peer's `InodeStat`: version 6 for peers of release 16, 7
/// of 18 and 19, 8 of 20; all are read. Directories have size 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct InodeStat {
    pub ino: Ino,
    /// [`SnapId::HEAD`], or the snapshot.
    pub snapid: SnapId,
    pub rdev: u32,
    pub version: u64,
    /// 0 where [`Self::xattrs`] is not said.
    pub xattr_version: u64,
    pub cap: ReplyCap,
    pub layout: FileLayout,
    pub times: StatTimes,
    pub size: StatSize,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u32,
    pub dir: StatDir,
    pub fragtree: FragTree,
    pub symlink: Bytes,
    /// An encoded map; empty when not said.
    pub xattrs: Bytes,
    pub inline: InlineData,
    /// Of a snapshot's directory (v5).
    pub snap_metadata: ByteMap,
    /// v7.
    pub fscrypt: FscryptBlobs,
    /// v8.
    pub optmetadata: OptMetadata,
}

impl Denc for InodeStat {
    fn encode(&self, w: &mut Writer) {
        let version = match maps::release(w.features()) {
            16 => 6,
            18 | 19 => 7,
            _ => 8,
        };
        w.framed(version, 1, |w| {
            self.ino.encode(w);
            self.snapid.encode(w);
            w.u32(self.rdev);
            w.u64(self.version);
            w.u64(self.xattr_version);
            self.cap.encode(w);
            self.layout.encode_legacy(w);
            for time in [self.times.ctime, self.times.mtime, self.times.atime] {
                time.encode(w);
            }
            w.u32(self.times.time_warp_seq);
            w.u64(self.size.size);
            w.u64(self.size.max_size);
            w.u64(self.size.truncate_size);
            w.u32(self.size.truncate_seq);
            for x in [self.mode, self.uid, self.gid, self.nlink] {
                w.u32(x);
            }
            let d = &self.dir;
            for x in [d.nfiles, d.nsubdirs, d.rbytes, d.rfiles, d.rsubdirs] {
                w.i64(x);
            }
            d.rctime.encode(w);
            self.fragtree.encode(w);
            w.blob(&self.symlink);
            w.u8(d.hash);
            w.raw(&[0; 7]);
            w.blob(&self.xattrs);
            self.inline.encode(w);
            d.quota.encode(w);
            w.blob(&self.layout.pool_ns);
            self.times.btime.encode(w);
            w.u64(self.times.change_attr);
            w.i32(d.pin);
            self.times.snap_btime.encode(w);
            w.u64(d.rsnaps);
            self.snap_metadata.encode(w);
            w.bool(!self.fscrypt.auth.is_empty());
            if version >= 7 {
                w.blob(&self.fscrypt.auth);
                w.blob(&self.fscrypt.file);
            }
            if version >= 8 {
                self.optmetadata.encode(w);
            }
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("InodeStat", 8, |r, v| {
            let mut s = Self {
                ino: Denc::decode(r)?,
                snapid: Denc::decode(r)?,
                rdev: r.u32()?,
                version: r.u64()?,
                xattr_version: r.u64()?,
                cap: Denc::decode(r)?,
                layout: FileLayout::decode_legacy(r)?,
                ..Self::default()
            };
            s.times.ctime = Denc::decode(r)?;
            s.times.mtime = Denc::decode(r)?;
            s.times.atime = Denc::decode(r)?;
            s.times.time_warp_seq = r.u32()?;
            s.size = StatSize {
                size: r.u64()?,
                max_size: r.u64()?,
                truncate_size: r.u64()?,
                truncate_seq: r.u32()?,
            };
            (s.mode, s.uid, s.gid, s.nlink) = (r.u32()?, r.u32()?, r.u32()?, r.u32()?);
            let d = &mut s.dir;
            (d.nfiles, d.nsubdirs) = (r.i64()?, r.i64()?);
            (d.rbytes, d.rfiles, d.rsubdirs) = (r.i64()?, r.i64()?, r.i64()?);
            d.rctime = Denc::decode(r)?;
            s.fragtree = Denc::decode(r)?;
            s.symlink = r.blob()?;
            d.hash = r.u8()?;
            r.skip(7)?;
            s.xattrs = r.blob()?;
            s.inline = Denc::decode(r)?;
            d.quota = Denc::decode(r)?;
            s.layout.pool_ns = r.blob()?;
            s.times.btime = Denc::decode(r)?;
            s.times.change_attr = r.u64()?;
            if v >= 2 {
                d.pin = r.i32()?;
            }
            if v >= 3 {
                s.times.snap_btime = Denc::decode(r)?;
            }
            if v >= 4 {
                d.rsnaps = r.u64()?;
            }
            if v >= 5 {
                s.snap_metadata = Denc::decode(r)?;
            }
            if v >= 6 {
                r.skip(1)?;
            }
            if v >= 7 {
                s.fscrypt = FscryptBlobs { auth: r.blob()?, file: r.blob()? };
            }
            if v >= 8 {
                s.optmetadata = Denc::decode(r)?;
            }
            Ok(s)
        })
    }
}

/// Who serves a fragment. The peer's `DirStat`, 1/1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirStat {
    /// The fragment.
    pub frag: Frag,
    /// The rank; -1 as the directory's inode.
    pub auth: i32,
    /// Ranks that have a copy.
    pub dist: BTreeSet<i32>,
}

impl Denc for DirStat {
    fn encode(&self, w: &mut Writer) {
        w.framed(1, 1, |w| {
            self.frag.encode(w);
            w.i32(self.auth);
            self.dist.encode(w);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("DirStat", 1, |r, _| {
            Ok(Self { frag: Denc::decode(r)?, auth: r.i32()?, dist: Denc::decode(r)? })
        })
    }
}

/// A lease of an entry. The peer's `LeaseStat`, 2/1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseStat {
    /// [`LeaseStat::VALID`], [`LeaseStat::PRIMARY`].
    pub mask: u16,
    /// For how long.
    pub duration_ms: u32,
    /// Its number.
    pub seq: u32,
    /// The entry's encrypted name (v2).
    pub alternate_name: Bytes,
}

impl LeaseStat {
    /// There is a lease.
    pub const VALID: u16 = 3;
    /// The entry is its inode's own.
    pub const PRIMARY: u16 = 4;
}

impl Denc for LeaseStat {
    fn encode(&self, w: &mut Writer) {
        w.framed(2, 1, |w| {
            w.u16(self.mask);
            w.u32(self.duration_ms);
            w.u32(self.seq);
            w.blob(&self.alternate_name);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("LeaseStat", 2, |r, v| {
            Ok(Self {
                mask: r.u16()?,
                duration_ms: r.u32()?,
                seq: r.u32()?,
                alternate_name: if v >= 2 { r.blob()? } else { Bytes::new() },
            })
        })
    }
}

/// The entry that an answer is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceDentry {
    /// Its directory.
    pub dir: InodeStat,
    /// The fragment it is in.
    pub frag: DirStat,
    /// Its name.
    pub name: Bytes,
    /// Its lease.
    pub lease: LeaseStat,
}

/// The answer to a [`super::ClientRequest`], with its tid. `MClientReply`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientReply {
    /// The request's.
    pub op: u32,
    /// 0, or an error of Linux below.
    pub result: i32,
    /// The server's MDS map; 0 in unsafe answers.
    pub mdsmap_epoch: Epoch,
    /// Whether what was done outlasts the server.
    pub safe: bool,
    /// The entry.
    pub dentry: Option<Box<TraceDentry>>,
    /// The inode; none where an entry leads nowhere.
    pub target: Option<Box<InodeStat>>,
    /// By operation: [`DirListing`], [`CreatedInode`], [`FileLock`], a value.
    pub extra: Bytes,
    /// Realms from the inode's to the root's: see [`super::read_snap_trace`].
    pub snap_trace: Bytes,
}

impl Message for ClientReply {
    const KIND: u16 = 26;

    fn encode_front(&self, w: &mut Writer) {
        w.u32(self.op);
        w.i32(self.result);
        self.mdsmap_epoch.encode(w);
        w.bool(self.safe);
        w.bool(self.dentry.is_some());
        w.bool(self.target.is_some());
        w.sized(|w| {
            if let Some(dentry) = &self.dentry {
                dentry.dir.encode(w);
                dentry.frag.encode(w);
                w.blob(&dentry.name);
                dentry.lease.encode(w);
            }
            if let Some(target) = &self.target {
                target.encode(w);
            }
        });
        w.blob(&self.extra);
        w.blob(&self.snap_trace);
    }

    fn decode_front(r: &mut Reader<'_>, _: u16, _: &Bytes) -> Result<Self, DecodeError> {
        let mut m = Self {
            op: r.u32()?,
            result: r.i32()?,
            mdsmap_epoch: Denc::decode(r)?,
            safe: r.bool()?,
            ..Self::default()
        };
        let (is_dentry, is_target) = (r.bool()?, r.bool()?);
        let trace = r.blob()?;
        let t = &mut Reader::shared(&trace);
        if is_dentry {
            m.dentry = Some(Box::new(TraceDentry {
                dir: Denc::decode(t)?,
                frag: Denc::decode(t)?,
                name: t.blob()?,
                lease: Denc::decode(t)?,
            }));
        }
        if is_target {
            m.target = Some(Box::new(Denc::decode(t)?));
        }
        m.extra = r.blob()?;
        m.snap_trace = r.blob()?;
        Ok(m)
    }
}

/// Flags of a [`DirListing`].
#[allow(missing_docs)]
pub mod readdir_flag {
    /// The fragment ends here.
    pub const FRAG_END: u16 = 1;
    /// And this was all of it.
    pub const FRAG_COMPLETE: u16 = 0x100;
    /// Entries are ordered by hash, then name.
    pub const HASH_ORDER: u16 = 0x200;
    /// The next part is asked for by hash.
    pub const OFFSET_HASH: u16 = 0x400;
}

/// One entry of a [`DirListing`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirEntry {
    /// Its name.
    pub name: Bytes,
    /// Its lease.
    pub lease: LeaseStat,
    /// Its inode.
    pub inode: InodeStat,
}

/// Entries of a directory: [`ClientReply::extra`] of `readdir` and `lssnap`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirListing {
    /// The fragment.
    pub frag: DirStat,
    /// [`readdir_flag`].
    pub flags: u16,
    /// The entries.
    pub entries: Vec<DirEntry>,
}

impl Denc for DirListing {
    fn encode(&self, w: &mut Writer) {
        self.frag.encode(w);
        w.u32(u32::try_from(self.entries.len()).expect("a count fits u32"));
        w.u16(self.flags);
        for entry in &self.entries {
            w.blob(&entry.name);
            entry.lease.encode(w);
            entry.inode.encode(w);
        }
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let frag = Denc::decode(r)?;
        let (count, flags) = (r.u32()?, r.u16()?);
        let mut entries = Vec::new();
        for _ in 0..count {
            let (name, lease) = (r.blob()?, Denc::decode(r)?);
            entries.push(DirEntry { name, lease, inode: Denc::decode(r)? });
        }
        Ok(Self { frag, flags, entries })
    }
}

/// What `create` made, for clients with the feature `deleg_ino`; empty where the file was
/// there. The peer's `openc_response_t`, 1/1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreatedInode {
    /// Its number.
    pub ino: Ino,
    /// Numbers that the client may choose from later.
    pub delegated: InoIntervals,
}

impl Denc for CreatedInode {
    fn encode(&self, w: &mut Writer) {
        w.framed(1, 1, |w| {
            self.ino.encode(w);
            self.delegated.encode(w);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("openc_response_t", 1, |r, _| {
            Ok(Self { ino: Denc::decode(r)?, delegated: Denc::decode(r)? })
        })
    }
}

/// A lock on a part of a file. The peer's `ceph_filelock`, 41 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct FileLock {
    pub start: u64,
    /// 0: to the end.
    pub length: u64,
    pub client: i64,
    pub owner: u64,
    pub pid: u64,
    /// 1 shared, 2 exclusive, 4 none.
    pub kind: u8,
}

impl Denc for FileLock {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.start);
        w.u64(self.length);
        w.i64(self.client);
        w.u64(self.owner);
        w.u64(self.pid);
        w.u8(self.kind);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            start: r.u64()?,
            length: r.u64()?,
            client: r.i64()?,
            owner: r.u64()?,
            pid: r.u64()?,
            kind: r.u8()?,
        })
    }
}

/// The locks that a client holds on a file: in caps and reconnects. Two lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldLocks {
    /// Of `fcntl`.
    pub fcntl: Vec<FileLock>,
    /// Of `flock`.
    pub flock: Vec<FileLock>,
}

impl Denc for HeldLocks {
    fn encode(&self, w: &mut Writer) {
        self.fcntl.encode(w);
        self.flock.encode(w);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { fcntl: Denc::decode(r)?, flock: Denc::decode(r)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use denc::Features;

    /// The inode's form follows the reader's release; each is read.
    #[test]
    fn inode_by_release() {
        let mut stat = InodeStat { symlink: "x".into(), mode: 0o120_777, ..InodeStat::default() };
        stat.dir.pin = 3;
        stat.layout = FileLayout { pool_ns: "ns".into(), ..FileLayout::plain(types::PoolId(2)) };
        stat.fragtree.split(Frag::ROOT, 2);
        for (features, version) in [
            (Features::PACIFIC_WORD, 6),
            (Features::REEF_WORD, 7),
            (Features::TENTACLE_WORD, 8),
            (Features::ALL, 8),
        ] {
            let bytes = stat.to_bytes_for(features);
            assert_eq!(bytes[..2], [version, 1]);
            assert_eq!(InodeStat::from_bytes(&bytes), Ok(stat.clone()));
        }
        // A getattr of 20.2.4, with an empty map of attributes, is answered with 338 bytes.
        let stat = InodeStat { xattrs: Bytes::from_static(&[0; 4]), ..InodeStat::default() };
        assert_eq!(stat.to_bytes().len(), 6 + 338);
    }

    /// An entry that is not there has a directory, a name and no inode.
    #[test]
    fn answers_without_inode() {
        let reply = ClientReply {
            op: super::super::mds_op::LOOKUP,
            result: -2,
            dentry: Some(Box::new(TraceDentry { name: "gone".into(), ..Default::default() })),
            ..ClientReply::default()
        };
        assert_eq!(ClientReply::decode(&reply.envelope(Features::ALL)), Ok(reply));
        let bare = ClientReply { safe: true, ..ClientReply::default() };
        assert_eq!(bare.envelope(Features::ALL).front.len(), 27);
        let lock = FileLock { length: 5, kind: 2, ..FileLock::default() };
        let locks = HeldLocks { fcntl: vec![lock], flock: vec![] };
        assert_eq!(locks.to_bytes().len(), 4 + 41 + 4);
        assert_eq!(HeldLocks::from_bytes(&locks.to_bytes()), Ok(locks));
    }
}
