//! Messages that name a map which is not here yet.
//!
//! Whoever sends them decides which map they name, so they cost whoever sent them: what a client
//! parks counts to what clients may have in hand, no connection parks more than its share, none
//! names a map far ahead or parks anything for long, and all of it goes with the connection. A
//! connection beyond a bound is closed: its other end sends again, and by then the map is here.
//! A client without any capability parks nothing.
//!
//! Source: the peer's `Session::waiting_on_map`, which goes with its session and counts to
//! `osd_client_message_size_cap`; the other bounds are ours.

use std::sync::Arc;

use env::{ConnId, Now};
use messages::{Envelope, MOsdOp, Message as _};
use stdx::FastMap;
use types::Epoch;

use crate::load::Share;

/// Messages of one connection, at most.
const COUNT_MAX: usize = 20_000;
/// Bytes of one OSD's connection, at most.
const OSD_BYTES_MAX: u64 = 256 << 20;
/// Part of what clients may have in hand that one client's connection may park.
const CLIENT_PART: u64 = 4;
/// No OSD that serves is so many maps behind.
const AHEAD_MAX: u32 = 10_000;
/// A map that did not come for so long does not exist, or the monitors are out of reach: clients try
/// anew.
const HELD_MAX_NS: u64 = 60_000_000_000;
/// What one message takes beside its bytes.
const EACH: u64 = 256;

/// A message that waits for a map.
pub(crate) struct Waiting {
    pub epoch: Epoch,
    pub conn: ConnId,
    pub envelope: Envelope,
    /// When it came, monotonic ns.
    pub came_ns: u64,
    /// A client's part of what is in hand.
    _share: Option<Arc<Share>>,
}

impl Waiting {
    fn bytes(&self) -> u64 {
        self.envelope.size() as u64 + EACH
    }
}

/// All of them.
#[derive(Default)]
pub(crate) struct Parked {
    list: Vec<Waiting>,
    /// Messages and bytes of each connection.
    by_conn: FastMap<ConnId, (usize, u64)>,
}

/// Whose connection it is.
pub(crate) enum From<'a> {
    /// An OSD's.
    Osd,
    /// A client's, where all clients may have so many bytes in hand.
    Client {
        /// See there.
        max: u64,
        /// What the connection has in hand.
        load: &'a crate::load::Load,
    },
}

/// The connection parks more than it may.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TooMuch {
    #[error("it names map {0}, far ahead of {1}")]
    FarAhead(Epoch, Epoch),
    #[error("{0} messages of {1} bytes wait for a map")]
    Share(usize, u64),
}

impl Parked {
    /// Puts a message aside until the map is `epoch`; `have` is the newest here.
    ///
    /// # Errors
    /// [`TooMuch`]: the connection is to be closed.
    pub fn put(
        &mut self,
        now: Now,
        (epoch, have): (Epoch, Epoch),
        (conn, from): (ConnId, From<'_>),
        envelope: Envelope,
    ) -> Result<(), TooMuch> {
        if epoch.0 > have.0.saturating_add(AHEAD_MAX) {
            return Err(TooMuch::FarAhead(epoch, have));
        }
        let (share, max) = match from {
            From::Osd => (None, OSD_BYTES_MAX),
            From::Client { max, load } => (Some(load.share(envelope.size(), 0)), max / CLIENT_PART),
        };
        let w = Waiting { epoch, conn, envelope, came_ns: now.mono_ns, _share: share };
        let (count, bytes) = self.by_conn.entry(conn).or_default();
        if *count >= COUNT_MAX || *bytes + w.bytes() > max {
            return Err(TooMuch::Share(*count, *bytes));
        }
        *count += 1;
        *bytes += w.bytes();
        self.list.push(w);
        Ok(())
    }

    /// Takes what waits for `have` or an earlier map, in the order in which it came.
    pub fn take(&mut self, have: Epoch) -> Vec<Waiting> {
        let ready: Vec<Waiting> = self.list.extract_if(.., |w| w.epoch <= have).collect();
        for w in &ready {
            if let Some((count, bytes)) = self.by_conn.get_mut(&w.conn) {
                *count -= 1;
                *bytes -= w.bytes();
            }
        }
        self.by_conn.retain(|_, (count, _)| *count > 0);
        ready
    }

    /// A connection is gone.
    pub fn on_closed(&mut self, conn: ConnId) {
        if self.by_conn.remove(&conn).is_some() {
            self.list.retain(|w| w.conn != conn);
        }
    }

    /// Connections whose messages have waited too long.
    pub fn overdue(&self, now: Now) -> Vec<ConnId> {
        // In the order in which they came.
        let old = self.list.iter().take_while(|w| now.mono_ns >= w.came_ns + HELD_MAX_NS);
        let mut conns: Vec<ConnId> = old.map(|w| w.conn).collect();
        conns.sort_unstable();
        conns.dedup();
        conns
    }

    /// Requests that wait.
    pub fn requests(&self) -> impl Iterator<Item = &Waiting> {
        self.list.iter().filter(|w| w.envelope.kind == MOsdOp::KIND)
    }

    /// Messages that wait.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.list.len()
    }
}
