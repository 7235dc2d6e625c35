//! The server's side of the network block device protocol: bytes in, bytes and decisions out.
//!
//! ```text
//!   greeting -> client flags -> options ... -> GO or EXPORT_NAME -> requests and replies
//!                    ^             |  ABORT, nonsense
//!                    |             +------> the connection ends
//!                    |             |  STARTTLS
//!                    +- TLS begins +
//! ```
//!
//! [`Handshake`] is the first part: it knows the exports and negotiates structured replies and
//! the metadata context `base:allocation`. [`Request`] and the functions of [`reply`] are the
//! second. Neither knows sockets or images. All numbers are big-endian.
//!
//! Invariants: no input makes it panic; it holds at most [`OPTION_MAX`] bytes of an option.
//!
//! Source: `doc/proto.md` of the NBD project, fixed newstyle.

mod handshake;
pub mod reply;
mod request;

pub use handshake::{Chosen, Export, Handshake, OPTION_MAX, Step, Tls};
pub use request::{Command, REQUEST_LEN, Request, command_flag};

/// Why a connection ends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// What came is not the protocol.
    #[error("the client does not speak the protocol: {0}")]
    Protocol(&'static str),
    /// It asked for an export that is not there, in the way that has no answer for that.
    #[error("the client asked for the unknown export '{0}'")]
    NoExport(String),
    /// It chose an export without TLS, in the way that has no answer for that.
    #[error("the client wants no TLS, and this server speaks nothing else")]
    TlsRequired,
}

/// Error numbers of the protocol.
#[allow(missing_docs)]
pub mod errno {
    pub const PERM: u32 = 1;
    pub const IO: u32 = 5;
    pub const NOMEM: u32 = 12;
    pub const INVAL: u32 = 22;
    pub const NOSPC: u32 = 28;
    pub const OVERFLOW: u32 = 75;
    pub const NOTSUP: u32 = 95;
    pub const SHUTDOWN: u32 = 108;
}

/// Bits of what an export can do.
#[allow(missing_docs)]
pub mod export_flag {
    pub const HAS_FLAGS: u16 = 1;
    pub const READ_ONLY: u16 = 1 << 1;
    pub const SEND_FLUSH: u16 = 1 << 2;
    pub const SEND_FUA: u16 = 1 << 3;
    pub const SEND_TRIM: u16 = 1 << 5;
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub const SEND_DF: u16 = 1 << 7;
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}
