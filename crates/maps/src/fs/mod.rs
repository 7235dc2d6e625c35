//! What a file system is made of: the durable tree and its tables to the byte, and the parts
//! that its messages share.
//!
//! Invariants: names (of entries, snapshots, extended attributes), link targets and what
//! clients say of themselves are bytes, since the peer stores any; what was written by
//! releases 16 to 20 is read; what is written is the form of the release that the features
//! show, release 20's for [`types::Features::ALL`].
//!
//! Byte tables: `docs/formats/fs-tree.md`, `docs/formats/fs-tables.md`. Source: the peer's
//! `src/mds/{mdstypes,CInode,CDir,InoTable,SessionMap,snap,SnapServer,OpenFileTable}`,
//! `src/osdc/Journaler`, `src/include/frag.h`.

mod backtrace;
mod client;
mod daemon;
mod dirfrag;
mod frag;
mod inode;
mod journal;
mod names;
mod openfiles;
mod optmeta;
mod purge;
mod snap;
mod stat;
mod tables;

pub use backtrace::{Backpointer, Backtrace};
pub use client::{ClientMetadata, MetricSpec, SessionInfo, SessionMapHeader, session_key};
pub use daemon::{
    FEATURE_NAMES, MdsHealth, MdsHealthMetric, compat_default, compat_supported, feature_name,
};
pub use dirfrag::{DentryKey, DentryLink, DentryValue, Fnode, dtype};
pub use frag::{DirFrag, Frag, FragTree, dentry_hash, dir_hash};
pub use inode::{
    ClientRange, DirRecord, FileRecord, Fscrypt, Inode, InodeStore, InodeStoreBare, InodeTimes,
    InodeVersions, OldInode, Pins, ScrubMark, SystemInode, Truncate,
};
pub use journal::{
    EventKind, JournalEntry, JournalHeader, JournalPointer, LogEvent, MAGIC, STREAM_START,
};
pub use names::{inos, object_name, system_inode_object};
pub use openfiles::{OpenFile, OpenFilesHeader, open_file_key};
pub use optmeta::{Charmap, OptItem, OptMetadata};
pub use purge::{PurgeAction, PurgeItem};
pub use snap::{
    SnapInfo, SnapLink, SnapPayload, SnapRealm, SnapRealmInfo, SnapRealmInfoNew, SnapTable,
    SnapTableObject,
};
pub use stat::{FragInfo, InlineData, NestInfo, Quota};
pub use tables::{InoTable, TableObject, TablePending};

/// Runs of inode numbers. The peer's `interval_set<inodeno_t>`.
pub type InoIntervals = crate::wire::SnapIntervals;

/// Names or words to values, both any bytes.
pub type ByteMap = std::collections::BTreeMap<bytes::Bytes, bytes::Bytes>;
