//! Arguments of requests: 56 bytes that mean something else for each operation.

use std::fmt;

use denc::{DecodeError, Denc, Features, Reader, Writer};
use striper::FileLayout;
use types::{Ino, SnapId, UTime};

use super::{FileLock, mds_op};

/// As on the wire. The peer's `ceph_mds_request_args`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RawArgs(pub [u8; Self::LEN]);

impl RawArgs {
    /// Size in bytes.
    pub const LEN: usize = 56;
}

impl Default for RawArgs {
    fn default() -> Self {
        Self([0; Self::LEN])
    }
}

impl fmt::Debug for RawArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// Of `setattr`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct SetattrArgs {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub mtime: UTime,
    pub atime: UTime,
    pub size: u64,
    /// For caps of the sender.
    pub old_size: u64,
    /// Which of these: see [`SetattrArgs::MODE`] and on.
    pub mask: u32,
    pub btime: UTime,
}

#[allow(missing_docs)]
impl SetattrArgs {
    pub const MODE: u32 = 1;
    pub const UID: u32 = 2;
    pub const GID: u32 = 4;
    pub const MTIME: u32 = 8;
    pub const ATIME: u32 = 0x10;
    pub const SIZE: u32 = 0x20;
    pub const CTIME: u32 = 0x40;
    pub const MTIME_NOW: u32 = 0x80;
    pub const ATIME_NOW: u32 = 0x100;
    pub const BTIME: u32 = 0x200;
    pub const KILL_SGUID: u32 = 0x400;
    pub const FSCRYPT_AUTH: u32 = 0x800;
    pub const FSCRYPT_FILE: u32 = 0x1000;
    pub const KILL_SUID: u32 = 0x2000;
    pub const KILL_SGID: u32 = 0x4000;
}

/// Of `readdir`, `lssnap` and `readdir_snapdiff`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReaddirArgs {
    /// Which fragment, unchecked: see [`maps::fs::Frag::from_raw`].
    pub frag: u32,
    /// As many entries at most; 0 leaves it to the server.
    pub max_entries: u32,
    /// As many bytes at most; 0 leaves it to the server.
    pub max_bytes: u32,
    /// 1: flags are wanted in the answer.
    pub flags: u16,
    /// Entries with this hash and later.
    pub offset_hash: u32,
    /// The other snapshot, of `readdir_snapdiff`.
    pub snap_other: u64,
}

/// Of `open` and `create`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct OpenArgs {
    /// The peer's `CEPH_O_*`.
    pub flags: u32,
    pub mode: u32,
    /// 0: the directory's.
    pub stripe_unit: u32,
    pub stripe_count: u32,
    pub object_size: u32,
    /// -1: the directory's.
    pub pool: i32,
    /// Which caps the answer is to show.
    pub mask: u32,
    /// The size before, of `open` with truncation.
    pub old_size: u64,
}

/// Typed, by operation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Args {
    /// The operation has none.
    None,
    /// `getattr`, `lookup`, `lookupsnap`, `getvxattr`: which caps the answer is to show.
    Mask(u32),
    Setattr(SetattrArgs),
    Readdir(ReaddirArgs),
    Mknod {
        mode: u32,
        rdev: u32,
    },
    /// `mkdir`, `symlink` and `mksnap`.
    Mode(u32),
    Open(OpenArgs),
    /// Flags: 1 create, 2 replace, 1 << 31 remove.
    Setxattr {
        flags: u32,
        osdmap_epoch: u32,
    },
    /// `setlayout`, `setdirlayout`.
    Layout(FileLayout),
    /// Rule: 1 fcntl, 2 flock, 3 and 4 these, interrupted.
    FileLock {
        rule: u8,
        wait: bool,
        lock: FileLock,
    },
    LookupIno {
        mask: u32,
        snapid: SnapId,
        parent: Ino,
        hash: u32,
    },
}

impl Args {
    /// What `raw` says to the operation `op`.
    ///
    /// # Errors
    /// None for 56 bytes, in truth: every value of each field is one.
    pub fn read(op: u32, raw: &RawArgs) -> Result<Self, DecodeError> {
        let r = &mut Reader::new(&raw.0);
        Ok(match op {
            mds_op::GETATTR | mds_op::LOOKUP | mds_op::LOOKUPSNAP | mds_op::GETVXATTR => {
                Self::Mask(r.u32()?)
            }
            mds_op::SETATTR => Self::Setattr(SetattrArgs {
                mode: r.u32()?,
                uid: r.u32()?,
                gid: r.u32()?,
                mtime: Denc::decode(r)?,
                atime: Denc::decode(r)?,
                size: r.u64()?,
                old_size: r.u64()?,
                mask: r.u32()?,
                btime: Denc::decode(r)?,
            }),
            mds_op::READDIR | mds_op::LSSNAP | mds_op::READDIR_SNAPDIFF => {
                Self::Readdir(ReaddirArgs {
                    frag: r.u32()?,
                    max_entries: r.u32()?,
                    max_bytes: r.u32()?,
                    flags: r.u16()?,
                    offset_hash: r.u32()?,
                    snap_other: r.u64()?,
                })
            }
            mds_op::MKNOD => Self::Mknod { mode: r.u32()?, rdev: r.u32()? },
            mds_op::MKDIR | mds_op::SYMLINK | mds_op::MKSNAP => Self::Mode(r.u32()?),
            mds_op::OPEN | mds_op::CREATE => Self::Open(OpenArgs {
                flags: r.u32()?,
                mode: r.u32()?,
                stripe_unit: r.u32()?,
                stripe_count: r.u32()?,
                object_size: r.u32()?,
                pool: r.i32()?,
                mask: r.u32()?,
                old_size: r.u64()?,
            }),
            mds_op::SETXATTR => Self::Setxattr { flags: r.u32()?, osdmap_epoch: r.u32()? },
            mds_op::SETLAYOUT | mds_op::SETDIRLAYOUT => Self::Layout(FileLayout::decode_legacy(r)?),
            mds_op::SETFILELOCK | mds_op::GETFILELOCK => {
                let (rule, kind) = (r.u8()?, r.u8()?);
                let (owner, pid, start, length) = (r.u64()?, r.u64()?, r.u64()?, r.u64()?);
                let lock = FileLock { start, length, client: 0, owner, pid, kind };
                Self::FileLock { rule, wait: r.bool()?, lock }
            }
            mds_op::LOOKUPINO | mds_op::LOOKUPHASH | mds_op::LOOKUPPARENT | mds_op::LOOKUPNAME => {
                Self::LookupIno {
                    mask: r.u32()?,
                    snapid: Denc::decode(r)?,
                    parent: Denc::decode(r)?,
                    hash: r.u32()?,
                }
            }
            _ => Self::None,
        })
    }

    /// As on the wire.
    #[must_use]
    pub fn to_raw(&self) -> RawArgs {
        let w = &mut Writer::with_capacity(Features::ALL, RawArgs::LEN);
        match self {
            Self::None => {}
            Self::Mask(x) | Self::Mode(x) => w.u32(*x),
            Self::Setattr(a) => {
                for x in [a.mode, a.uid, a.gid] {
                    w.u32(x);
                }
                a.mtime.encode(w);
                a.atime.encode(w);
                w.u64(a.size);
                w.u64(a.old_size);
                w.u32(a.mask);
                a.btime.encode(w);
            }
            Self::Readdir(a) => {
                for x in [a.frag, a.max_entries, a.max_bytes] {
                    w.u32(x);
                }
                w.u16(a.flags);
                w.u32(a.offset_hash);
                w.u64(a.snap_other);
            }
            Self::Mknod { mode, rdev } => {
                w.u32(*mode);
                w.u32(*rdev);
            }
            Self::Open(a) => {
                for x in [a.flags, a.mode, a.stripe_unit, a.stripe_count, a.object_size] {
                    w.u32(x);
                }
                w.i32(a.pool);
                w.u32(a.mask);
                w.u64(a.old_size);
            }
            Self::Setxattr { flags, osdmap_epoch } => {
                w.u32(*flags);
                w.u32(*osdmap_epoch);
            }
            Self::Layout(layout) => layout.encode_legacy(w),
            Self::FileLock { rule, wait, lock } => {
                w.u8(*rule);
                w.u8(lock.kind);
                for x in [lock.owner, lock.pid, lock.start, lock.length] {
                    w.u64(x);
                }
                w.bool(*wait);
            }
            Self::LookupIno { mask, snapid, parent, hash } => {
                w.u32(*mask);
                snapid.encode(w);
                parent.encode(w);
                w.u32(*hash);
            }
        }
        let mut raw = RawArgs::default();
        raw.0[..w.len()].copy_from_slice(w.as_slice());
        raw
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever the bytes are, each operation reads something, and that has one form.
    #[test]
    fn every_operation_reads_any_bytes() {
        let raw = RawArgs(std::array::from_fn(|i| i as u8 | 1));
        for op in 0..0x1600 {
            let args = Args::read(op, &raw).unwrap();
            let written = args.to_raw();
            assert_eq!(Args::read(op, &written), Ok(args), "{op:x}");
        }
        let setattr = Args::read(mds_op::SETATTR, &raw).unwrap();
        assert_eq!(setattr.to_raw(), raw, "setattr fills all bytes");
    }
}
