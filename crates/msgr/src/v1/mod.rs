//! Messenger v1, the server's side, for clients that know or want no other: kernels without
//! `ms_mode`, and whoever is given the address of port 6789.
//!
//! [`Accepted`] is driven as [`crate::Connection`] is. What differs below:
//! - identity comes from an authorizer in the handshake, at a monitor from MAuth messages behind it:
//!   to the role the connection opens when these have proved who is there;
//! - a lossless session is known by the client's address and its proven identity, and by
//!   `connect_seq`, as there are no cookies: see [`judge_connect`];
//! - nothing is encrypted; messages are signed where both sides know how.
//!
//! Only clients are served: daemons speak v2 among themselves.
//!
//! Source: the peer's `msg/async/ProtocolV1.cc`, `include/msgr.h`, the kernel's
//! `net/ceph/messenger_v1.c`.

mod connection;
mod fuzz;
mod reader;
mod wire;

pub use connection::Accepted;
pub use fuzz::fuzz_v1;

use types::AddrVec;

use crate::Session;
use crate::session::Verdict;

/// What an operator may choose about v1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// `cephx_sign_messages`: sign, and refuse what is not signed, where the client knows how.
    pub sign: bool,
    /// `cephx_require_signatures`: turn clients away that do not know how.
    pub require_signatures: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self { sign: true, require_signatures: false }
    }
}

/// A client asks for a lossless session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Who it is: the address it named, with the socket's IP.
    pub addrs: AddrVec,
    pub(crate) global_seq: u64,
    pub(crate) connect_seq: u64,
}

/// Judges [`Ask`]. `existing` is the session with the same address, and `same` whether the one who
/// asks has proved to be whose session that is. `open` is whether its connection stands or waits,
/// and not another handshake is under way.
#[must_use]
pub fn judge_connect(existing: Option<&Session>, same: bool, open: bool, ask: &Ask) -> Verdict {
    let Some(old) = existing.filter(|old| old.legacy && same) else {
        let starts = ask.connect_seq == 0;
        return if starts { Verdict::Fresh } else { Verdict::Reset { full: true } };
    };
    if ask.global_seq < old.peer_global_seq {
        return Verdict::RetryGlobal(old.peer_global_seq);
    }
    if old.policy.lossy {
        return Verdict::Fresh;
    }
    if ask.connect_seq == 0 && old.connect_seq > 0 {
        return Verdict::AdoptReset; // the client lost its session
    }
    if ask.connect_seq < old.connect_seq || (ask.connect_seq == old.connect_seq && open) {
        return Verdict::Retry(old.connect_seq + 1);
    }
    Verdict::Adopt
}
