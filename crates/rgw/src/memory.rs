//! Memory that bodies of all connections may take together.
//!
//! ```text
//!   request ── grow ──┬─ granted: whole stripes, several under way
//!                     └─ refused: small pieces, one after the other (`SPARE_BYTES`), that nobody counts
//! ```
//!
//! What is held is counted before it is; nobody waits for memory, so that slow clients make others slower and never stop
//! them. Documents, lists and copies of small objects, which have no small form, have a budget of their own, and are refused
//! with `SlowDown` when it is used up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use rgw_proto::{Code, Error, Result};

/// Bytes of a read or write of who was granted nothing: a connection has three of them at most.
pub const SPARE_BYTES: u64 = 64 << 10;

/// Bytes that may be held.
#[derive(Clone, Debug)]
pub struct Budget(Arc<AtomicU64>);

/// A part of a budget; given back when this is dropped.
#[derive(Debug)]
pub struct Share {
    of: Budget,
    bytes: u64,
}

/// Bytes and the share that they are held by.
struct Held(Bytes, #[allow(dead_code, reason = "it is given back with the bytes")] Share);

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Budget {
    /// A budget of so many bytes.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        Self(Arc::new(AtomicU64::new(bytes)))
    }

    /// A share of nothing.
    #[must_use]
    pub fn share(&self) -> Share {
        Share { of: self.clone(), bytes: 0 }
    }

    /// A share of so many bytes, for what cannot do with less.
    ///
    /// # Errors
    /// [`Code::SlowDown`] where they are not free.
    pub fn need(&self, bytes: u64) -> Result<Share> {
        let mut share = self.share();
        if share.grow(bytes) {
            return Ok(share);
        }
        let text = "The gateway's memory is taken by other requests: try again in a while.";
        Err(Error::new(Code::SlowDown, text))
    }
}

impl Share {
    /// Takes so many bytes more, where they are free.
    pub fn grow(&mut self, bytes: u64) -> bool {
        let take = |free: u64| free.checked_sub(bytes);
        let taken = self.of.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok();
        self.bytes += if taken { bytes } else { 0 };
        taken
    }

    /// Gives back all but so many bytes.
    pub fn shrink_to(&mut self, bytes: u64) {
        let back = self.bytes.saturating_sub(bytes);
        self.of.0.fetch_add(back, Ordering::Relaxed);
        self.bytes -= back;
    }

    /// Bytes of this share.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Keeps as much as `data` takes, until `data` and its clones are dropped.
    #[must_use]
    pub fn hold(mut self, data: Bytes) -> Bytes {
        self.shrink_to(data.len() as u64);
        if self.bytes == 0 { data } else { Bytes::from_owner(Held(data, self)) }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_counted_and_given_back() {
        let budget = Budget::new(100);
        let mut one = budget.share();
        assert!(one.grow(60) && !one.grow(41) && one.grow(40) && !one.grow(1));
        assert_eq!(budget.need(1).unwrap_err().code, Code::SlowDown);
        let data = one.hold(Bytes::from(vec![7; 30]));
        let (slice, mut two) = (data.slice(3..5), budget.share());
        drop(data);
        assert!(two.grow(70) && !two.grow(1), "a slice keeps all of its bytes");
        assert_eq!(slice, [7, 7][..]);
        drop(slice);
        assert!(two.grow(30) && two.bytes() == 100);
        drop(two);
        assert!(budget.need(100).is_ok());
    }
}
