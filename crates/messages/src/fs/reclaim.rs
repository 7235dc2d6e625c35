//! A client takes over what one that died with the same name left.

use bytes::Bytes;
use types::{AddrVec, Epoch};

use crate::plain_message;

plain_message! {
    /// Takes over the session with a `uuid`. `MClientReclaim`.
    ClientReclaim, 27;
    {
        /// The session's.
        uuid: Bytes,
        /// 1: that session is to end; [`ClientReclaim::FINISH`].
        flags: u32,
    }
}

impl ClientReclaim {
    /// That session is to end, with all it holds.
    pub const RESET: u32 = 1;
    /// All is taken over.
    pub const FINISH: u32 = 1 << 31;
}

plain_message! {
    /// `MClientReclaimReply`.
    ClientReclaimReply, 28;
    {
        /// 0, or an error below.
        result: i32,
        /// The OSD map that blocklists the session.
        epoch: Epoch,
        /// The session's addresses.
        addrs: AddrVec,
    }
}
