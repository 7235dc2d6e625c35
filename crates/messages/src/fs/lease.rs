//! Leases of directory entries.

use bytes::Bytes;
use types::{Ino, SnapId};

use crate::plain_message;

/// What a [`ClientLease`] says.
#[allow(missing_docs)]
pub mod lease_action {
    pub const REVOKE: u8 = 1;
    pub const RELEASE: u8 = 2;
    pub const RENEW: u8 = 3;
    pub const REVOKE_ACK: u8 = 4;
}

plain_message! {
    /// A lease is taken back, given back or renewed. `MClientLease`.
    ClientLease, 0x311;
    {
        /// [`lease_action`].
        action: u8,
        /// 1.
        mask: u16,
        /// The directory.
        ino: Ino,
        /// The first snapshot that has the entry.
        first: SnapId,
        /// The last one.
        last: SnapId,
        /// The lease's number; an answer repeats it.
        seq: u32,
        /// For how long.
        duration_ms: u32,
        /// The entry.
        dname: Bytes,
    }
}
