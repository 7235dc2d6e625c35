//! A connection of either protocol, for who drives it.

use std::io::IoSlice;
use std::net::SocketAddr;

use bytes::BytesMut;
use bytes::buf::Limit;
use env::Now;
use messages::Envelope;
use types::UTime;

use crate::session::{Policy, Session, Verdict};
use crate::{Connection, Event, Fault, Peer, v1};

/// One TCP connection; each method is that of [`Connection`].
pub enum Machine {
    /// Messenger v2.1, in either role.
    V2(Box<Connection>),
    /// Messenger v1, accepted.
    V1(Box<v1::Accepted>),
}

macro_rules! both {
    ($self:ident, $machine:ident => $work:expr) => {
        match $self {
            Machine::V2($machine) => $work,
            Machine::V1($machine) => $work,
        }
    };
}

#[allow(missing_docs, reason = "each method is that of Connection")]
impl Machine {
    pub fn read_buf(&mut self) -> Limit<&mut BytesMut> {
        both!(self, m => m.read_buf())
    }

    pub fn lend_stage(&mut self, spare: &mut Option<BytesMut>) {
        both!(self, m => m.lend_stage(spare));
    }

    pub fn reclaim_stage(&mut self, spare: &mut Option<BytesMut>) {
        both!(self, m => m.reclaim_stage(spare));
    }

    #[must_use]
    pub fn wants_read(&self) -> bool {
        both!(self, m => m.wants_read())
    }

    pub fn release(&mut self, cost: usize) {
        both!(self, m => m.release(cost));
    }

    #[must_use]
    pub fn is_ready(&self) -> bool {
        both!(self, m => m.is_ready())
    }

    #[must_use]
    pub fn is_authenticated(&self) -> bool {
        both!(self, m => m.is_authenticated())
    }

    #[must_use]
    pub fn progress(&self) -> u8 {
        both!(self, m => m.progress())
    }

    #[must_use]
    pub fn peer(&self) -> &Peer {
        both!(self, m => m.peer())
    }

    #[must_use]
    pub fn policy(&self) -> Policy {
        self.session().policy()
    }

    #[must_use]
    pub fn session(&self) -> &Session {
        both!(self, m => m.session())
    }

    #[must_use]
    pub fn seen_as(&self) -> Option<SocketAddr> {
        match self {
            Self::V2(m) => m.seen_as(),
            Self::V1(_) => None,
        }
    }

    #[must_use]
    pub fn into_session(self) -> Session {
        both!(self, m => m.into_session())
    }

    /// # Errors
    /// [`Fault::TooLarge`] when a segment is beyond what a peer may take.
    pub fn send(&mut self, env: Envelope) -> Result<(), Fault> {
        both!(self, m => m.send(env))
    }

    /// # Errors
    /// [`Fault::Sealed`] when the nonces are used up.
    pub fn keepalive(&mut self, stamp: UTime) -> Result<(), Fault> {
        match self {
            Self::V2(m) => m.keepalive(stamp),
            Self::V1(m) => {
                m.keepalive(stamp);
                Ok(())
            }
        }
    }

    /// # Errors
    /// [`Fault::Sealed`] when the nonces are used up.
    pub fn prepare(&mut self) -> Result<bool, Fault> {
        match self {
            Self::V2(m) => m.prepare(),
            Self::V1(m) => Ok(m.prepare()),
        }
    }

    pub fn slices<'a>(&'a self, out: &mut [IoSlice<'a>]) -> usize {
        both!(self, m => m.slices(out))
    }

    pub fn advance(&mut self, n: usize) {
        both!(self, m => m.advance(n));
    }

    #[must_use]
    pub fn unwritten(&self) -> usize {
        both!(self, m => m.unwritten())
    }

    /// # Errors
    /// The connection is over, by the peer's breach of the protocol or by its refusal.
    pub fn poll(&mut self, now: Now) -> Result<Option<Event>, Fault> {
        both!(self, m => m.poll(now))
    }

    /// # Errors
    /// [`Fault::Replaced`] for [`Verdict::Stale`]; [`Fault::Sealed`].
    ///
    /// # Panics
    /// When nothing was asked, or a verdict to adopt comes without a session.
    pub fn decide(
        &mut self,
        verdict: Verdict,
        session: Option<(Session, Peer)>,
        cookie: u64,
    ) -> Result<(), Fault> {
        match self {
            Self::V2(m) => m.decide(verdict, session, cookie),
            Self::V1(m) => m.decide(verdict, session.map(|(session, _)| session)),
        }
    }
}
