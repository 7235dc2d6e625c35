//! Sums over directories, limits, and data kept in inodes.

use bytes::Bytes;
use types::{DecodeError, Denc, Reader, UTime, Writer};

use crate::wire::{plain, record};

record! {
    /// What is directly in a directory or fragment. The peer's `frag_info_t`, 46 bytes.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    FragInfo "frag_info_t", compat 2, known 3, |f| 3; {
        /// Counts changes; equal in a fragment and its inode when both agree.
        version: u64,
        /// The newest change.
        mtime: UTime,
        /// Entries that are no directories.
        nfiles: i64,
        /// Entries that are directories.
        nsubdirs: i64,
        /// Counts changes for clients.
        3 => change_attr: u64,
    }
}

/// What is below a directory or in a fragment and all below it. The peer's `nest_info_t`,
/// 3/2, 62 bytes. A directory's inode counts itself, a fragment does not count its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NestInfo {
    /// Counts changes, as [`FragInfo::version`].
    pub version: u64,
    /// Bytes of files.
    pub rbytes: i64,
    /// Files and whatever is no directory.
    pub rfiles: i64,
    /// Directories below.
    pub rsubdirs: i64,
    /// Snapshots of these directories.
    pub rsnaps: i64,
    /// The newest change.
    pub rctime: UTime,
}

impl Denc for NestInfo {
    fn encode(&self, w: &mut Writer) {
        w.framed(3, 2, |w| {
            w.u64(self.version);
            w.i64(self.rbytes);
            w.i64(self.rfiles);
            w.i64(self.rsubdirs);
            w.i64(0); // anchors, long gone
            w.i64(self.rsnaps);
            self.rctime.encode(w);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("nest_info_t", 3, |r, _| {
            let (version, rbytes, rfiles, rsubdirs) = (r.u64()?, r.i64()?, r.i64()?, r.i64()?);
            r.i64()?;
            let rsnaps = r.i64()?;
            Ok(Self { version, rbytes, rfiles, rsubdirs, rsnaps, rctime: Denc::decode(r)? })
        })
    }
}

record! {
    /// How much may be below a directory; 0 is no limit. The peer's `quota_info_t`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    Quota "quota_info_t", compat 1, known 1, |f| 1; {
        /// Bytes of files below.
        max_bytes: i64,
        /// Files and directories.
        max_files: i64,
    }
}

impl Quota {
    /// Whether there is a limit.
    #[must_use]
    pub const fn is_set(&self) -> bool {
        self.max_bytes != 0 || self.max_files != 0
    }
}

plain! {
    /// A small file's bytes in its inode. The peer's `inline_data_t`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    InlineData {
        /// Counts changes; [`InlineData::NONE`] where data is in objects.
        version: u64,
        /// The bytes.
        data: Bytes,
    }
}

impl InlineData {
    /// The version of a file without inline data. The peer's `CEPH_INLINE_NONE`.
    pub const NONE: u64 = u64::MAX;
}

impl Default for InlineData {
    fn default() -> Self {
        Self { version: Self::NONE, data: Bytes::new() }
    }
}
