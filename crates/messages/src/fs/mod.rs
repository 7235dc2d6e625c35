//! Between clients and metadata servers of a file system, and between these and monitors.
//!
//! Layouts by release of the reader: what release 16 writes goes to peers whose features are
//! of 16 (kernels, too), what 20.2 writes to those of 20. Names, paths and what clients say
//! of themselves are bytes. The forms from before the client feature `reply_encoding`, and
//! requests from before `FS_BTIME`, are not there: no client of the releases served needs them.
//!
//! Source: the peer's `messages/MClient*.h`, `messages/MMDSBeacon.h`, `include/ceph_fs.h`.

mod args;
mod beacon;
mod caps;
mod lease;
mod metrics;
mod quota;
mod reclaim;
mod reconnect;
mod reply;
mod request;
mod session;
mod snap;

pub use args::{Args, OpenArgs, RawArgs, ReaddirArgs, SetattrArgs};
pub use beacon::{MdsBeacon, MdsLoadTargets};
pub use caps::{
    CapAttrs, CapFile, CapPeer, CapTail, ClientCapRelease, ClientCaps, ReleasedCap, cap_op,
};
pub use lease::{ClientLease, lease_action};
pub use metrics::{ClientMetric, ClientMetrics};
pub use quota::ClientQuota;
pub use reclaim::{ClientReclaim, ClientReclaimReply};
pub use reconnect::{CapReconnect, ClientReconnect, RealmReconnect};
pub use reply::{
    ClientReply, CreatedInode, DirEntry, DirListing, DirStat, FileLock, HeldLocks, InodeStat,
    LeaseStat, ReplyCap, StatDir, StatSize, StatTimes, TraceDentry, readdir_flag,
};
pub use request::{
    Caller, ClientRequest, ClientRequestForward, FilePath, ReleaseItem, mds_op, request_flag,
};
pub use session::{ClientSession, SessionDetail, session_op};
pub use snap::{ClientSnap, read_snap_trace, read_snap_trace_new, snap_op};

use bytes::Bytes;

/// What a client that encrypts says of an inode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FscryptBlobs {
    /// Its context.
    pub auth: Bytes,
    /// Its true size.
    pub file: Bytes,
}
