//! A client of a file system, without I/O: sessions with metadata servers, requests, and the caps of
//! files that are open.
//!
//! [`Client`] is a value with one owner. Events go in with the time at which they happen, wishes
//! ([`Out`]) come out:
//!
//! | event | when |
//! |---|---|
//! | [`Client::on_map`] | the monitors sent the file system's map |
//! | [`Client::on_opened`], [`Client::on_closed`], [`Client::on_message`] | a connection to a rank |
//! | [`Client::on_tick`] | some time has passed; at least once a second |
//! | [`Client::request`] | somebody asks for something; [`Out::Done`] is the answer |
//! | [`Client::may_write`] and others | I/O on a file that is open |
//!
//! Nothing is cached: an inode's caps are given back with the answer that brought them, but those of
//! files that are open. A path is one request, which the server walks ([`path_of`]).
//!
//! Invariants: no clock and no I/O; a request is answered once, however often it is sent; what was
//! answered before it was durable is sent again to a successor, before anything else; sizes of files
//! that were written are told to the server before the caps for it are gone; nothing that a server
//! says makes a table here grow beyond what callers of this client have open or under way.
//!
//! Source: the peer's `client/Client.cc`, `mds/locks.c`; facts on the wire in `docs/protocols/`.

mod caps;
mod client;
mod listing;
mod realms;
mod requests;
mod sessions;
#[cfg(test)]
mod tests;

pub use caps::{File, bits, open_flag, wanted_of};
pub use client::{Client, Config};
pub use listing::Listing;
pub use requests::{Ask, Reply};

use bytes::Bytes;
use messages::Envelope;
use messages::fs::FilePath;
use types::{AddrVec, Errno, Ino};

/// What the client wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum Out {
    /// Connect to a rank, losslessly; [`Client::on_opened`] when that is done. A connection that is
    /// there ends first.
    Connect(i32, AddrVec),
    /// End the connection to a rank.
    Close(i32),
    /// Send to a rank over its open connection.
    Send(i32, Envelope),
    /// The answer to a request, by its number.
    Done(u64, Result<Box<Reply>, Errno>),
    /// Something changed that a caller may wait for: caps, a flush, sessions.
    Changed,
}

/// Errnos beside those of [`Errno`].
pub(crate) mod errno {
    use types::Errno;

    /// The server forgot this client: what was open is gone.
    pub const STALE: Errno = Errno(-116);
}

/// What clients call the directory of a directory's snapshots.
pub const SNAP_DIR: &[u8] = b".snap";

/// A path as servers take it: from an inode, `.snap` as an empty name, without empty names, `.` and
/// slashes at the ends. `..` stays: servers refuse it.
#[must_use]
pub fn path_of(base: Ino, path: &[u8]) -> FilePath {
    let mut to: Vec<u8> = Vec::with_capacity(path.len());
    let mut first = true;
    for name in path.split(|b| *b == b'/').filter(|n| !n.is_empty() && *n != b".") {
        if !first {
            to.push(b'/');
        }
        if name != SNAP_DIR {
            to.extend_from_slice(name);
        }
        first = false;
    }
    FilePath { ino: base, path: Bytes::from(to) }
}
