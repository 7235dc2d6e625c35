//! What clients of an image tell one another by notifications on its header.
//!
//! `NotifyMessage`: framed 7/1, `u32` what, then the rest; answers are `ResponseMessage`,
//! framed 1/1, `i32` result, and empty from whom it does not concern.
//!
//! Source: the peer's `librbd/WatchNotifyTypes.h`; `docs/protocols/rbd.md`.

use bytes::Bytes;
use denc::{DecodeError, Denc, Features, Reader, Writer};

/// A watcher: its client's number and the watch's cookie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientId {
    /// `client.N`.
    pub gid: u64,
    /// Which of its watches.
    pub handle: u64,
}

impl Denc for ClientId {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.gid);
        w.u64(self.handle);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { gid: r.u64()?, handle: r.u64()? })
    }
}

/// One notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// This client has the exclusive lock now.
    AcquiredLock(ClientId),
    /// It gave it back: whoever waits may try.
    ReleasedLock(ClientId),
    /// It wants the lock. Its owner answers 0 and releases, or refuses with EROFS.
    RequestLock {
        /// Who wants it.
        client: ClientId,
        /// The owner is to release even when it would rather not.
        force: bool,
    },
    /// The header changed: read it again.
    HeaderUpdate,
    /// Any other: its number. Requests to the lock's owner (flatten, resize, snapshots, ...)
    /// are among them.
    Other(u32),
}

/// Requests to the lock's owner: what it does not do it answers with EOPNOTSUPP, and the
/// asker takes the lock and does it itself.
#[must_use]
pub fn is_request(what: u32) -> bool {
    matches!(what, 6..=17 | 20)
}

impl Denc for Notice {
    fn encode(&self, w: &mut Writer) {
        w.framed(7, 1, |w| match self {
            Self::AcquiredLock(client) => {
                w.u32(0);
                client.encode(w);
            }
            Self::ReleasedLock(client) => {
                w.u32(1);
                client.encode(w);
            }
            Self::RequestLock { client, force } => {
                w.u32(2);
                client.encode(w);
                w.bool(*force);
            }
            Self::HeaderUpdate => w.u32(3),
            Self::Other(what) => w.u32(*what),
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("NotifyMessage", 7, |r, v| {
            let client =
                |r: &mut Reader<'_>| if v >= 2 { Denc::decode(r) } else { Ok(ClientId::default()) };
            Ok(match r.u32()? {
                0 => Self::AcquiredLock(client(r)?),
                1 => Self::ReleasedLock(client(r)?),
                2 => {
                    let client = client(r)?;
                    Self::RequestLock { client, force: if v >= 3 { r.bool()? } else { false } }
                }
                3 => Self::HeaderUpdate,
                what => Self::Other(what),
            })
        })
    }
}

/// An answer, as a watcher gives it.
#[must_use]
pub fn response(result: i32) -> Bytes {
    let mut w = Writer::new(Features::ALL);
    w.framed(1, 1, |w| w.i32(result));
    w.finish()
}

/// Reads an answer; none in an empty one.
///
/// # Errors
/// [`DecodeError`].
pub fn read_response(answer: &Bytes) -> Result<Option<i32>, DecodeError> {
    if answer.is_empty() {
        return Ok(None);
    }
    Reader::new(answer).framed("ResponseMessage", 1, |r, _| r.i32()).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_come_back() {
        let client = ClientId { gid: 4711, handle: 3 };
        for notice in [
            Notice::AcquiredLock(client),
            Notice::ReleasedLock(client),
            Notice::RequestLock { client, force: true },
            Notice::HeaderUpdate,
        ] {
            let bytes = notice.to_bytes();
            assert_eq!(Notice::from_bytes(&bytes), Ok(notice));
            for cut in 0..bytes.len() {
                assert!(Notice::from_bytes(&bytes.slice(..cut)).is_err());
            }
        }
        assert_eq!(read_response(&response(-30)), Ok(Some(-30)));
        assert_eq!(read_response(&Bytes::new()), Ok(None));
        assert!(read_response(&Bytes::from_static(b"x")).is_err());
    }

    /// As the peer's `NotifyMessage` lays out a request for the lock.
    #[test]
    fn a_request_has_the_peers_bytes() {
        let notice = Notice::RequestLock { client: ClientId { gid: 1, handle: 2 }, force: false };
        let mut expected = vec![7, 1, 21, 0, 0, 0, 2, 0, 0, 0];
        expected.extend(1u64.to_le_bytes());
        expected.extend(2u64.to_le_bytes());
        expected.push(0);
        assert_eq!(notice.to_bytes(), expected);
    }
}
