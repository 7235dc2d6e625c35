//! The messenger as state machines, v2.1 in both roles and v1 for clients ([`v1`]): bytes in, bytes and events out, no I/O.
//!
//! A [`Connection`] is one TCP connection in either role. Its driver
//! - reads from the socket into [`Connection::read_buf`],
//! - calls [`Connection::poll`] until it gives nothing, acting on each [`Event`],
//! - writes what [`Connection::slices`] shows and reports it by [`Connection::advance`].
//!
//! What outlives a TCP connection is its [`Session`]: sequence numbers and messages the
//! peer has not acknowledged. [`judge_ident`] and [`judge_resume`] decide which session a peer
//! that comes back gets. `msgr` sees [`messages::Envelope`]s and no message type.
//!
//! Invariants:
//! - a peer's bytes never cause a panic, nor memory beyond one frame within limits
//!   and the policy's byte budget;
//! - before the peer has proved its identity less than half a MiB is kept of it;
//! - on a lossless session every message is delivered once and in order, over any number
//!   of broken connections;
//! - payload is not copied in crc mode: received long segments are read into their own
//!   buffer, page-aligned from 4 KiB on; sent ones are handed to the socket as they are.
//!
//! Source: the peer's `msg/async/ProtocolV2.cc`, `frames_v2.h`, `crypto_onwire.cc`; its
//! `doc/dev/msgr2.rst`. Deviation: of the banner features only revision 2.1 framing is
//! offered, so compression is never negotiated.

mod connection;
mod control;
mod frame;
mod fuzz;
mod intake;
mod machine;
mod reader;
mod secure;
mod session;
pub mod v1;
mod writer;

pub use connection::{Acceptor, ConMode, Connection, Dial, Event, Local, Peer};
pub use fuzz::fuzz_frames;
pub use machine::Machine;
pub use session::{Ident, Policy, Resume, Session, Verdict, judge_ident, judge_resume};

use auth::AuthError;
use denc::DecodeError;

/// Why a connection ended. Counted, and logged once by the driver.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The peer does not speak the messenger that is spoken here.
    #[error("the peer's banner is of another protocol")]
    Banner,
    /// A checksum failed.
    #[error("crc of a {0} is wrong")]
    Crc(&'static str),
    /// A decryption failed, or the nonces are used up.
    #[error("a sealed unit does not open")]
    Sealed,
    /// A frame breaks a rule.
    #[error("frame: {0}")]
    Frame(&'static str),
    /// A frame that the state of the handshake does not allow.
    #[error("frame with tag {tag} is not expected now")]
    Unexpected {
        /// Its tag.
        tag: u8,
    },
    /// A control payload could not be read.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// Authentication failed, or the peer refused it.
    #[error(transparent)]
    Auth(#[from] AuthError),
    /// The peer is not who was dialled.
    #[error("the peer is not the one wanted: {0}")]
    WrongPeer(&'static str),
    /// The server does not take clients now; another one may.
    #[error("no clients are taken now")]
    NotNow,
    /// Features that one side requires and the other lacks.
    #[error("features {0:#x} are required and missing")]
    Features(u64),
    /// The peer asks to wait for its own connection.
    #[error("the peer's own connection goes first")]
    Wait,
    /// Another connection of the same peer took over.
    #[error("replaced by a newer connection")]
    Replaced,
    /// On a connection of messenger v1: a message is not signed as it must be.
    #[error("a message of a client: {0}")]
    Unsigned(&'static str),
    /// The peer said that it closes the connection.
    #[error("closed by the peer's word")]
    Closed,
    /// A message to send has a segment beyond the limits.
    #[error("a message is too large to send")]
    TooLarge,
}
