//! What outlives a TCP connection: sequence numbers, cookies, unacknowledged messages.
//!
//! ```text
//!   send ──► queue ──► sent (lossless only) ──► acknowledged, forgotten
//!              ▲          │ connection broke
//!              └──────────┘
//! ```
//! On a lossless session `sent` holds the messages with seq `out_seq - sent.len() + 1 ..=
//! out_seq`; after a break they go back to the head of `queue` and get the same numbers
//! again. Source: the peer's `ProtocolV2.cc`.

use std::collections::VecDeque;

use denc::Features;
use messages::Envelope;
use types::{AddrVec, EntityAddr};

use crate::Fault;
use crate::frame::{DATA_MAX, FRONT_MAX};

/// How a connection with a kind of peer behaves when it breaks. The peer's `Messenger::Policy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// A break ends it; both sides start anew.
    pub lossy: bool,
    /// This side never connects by itself.
    pub server: bool,
    /// Wait for the peer, or for something to send, before connecting again.
    pub standby: bool,
    /// A peer that lost its state makes this side drop its own.
    pub resetcheck: bool,
    /// Features without which a peer is turned away; MSG_ADDR2 always is among them.
    pub required: Features,
    /// Bytes of received messages that may be in the role's hands; reading stops beyond.
    pub budget_bytes: usize,
}

impl Policy {
    const BASE: Self = Self {
        lossy: true,
        server: true,
        standby: false,
        resetcheck: false,
        required: Features::NONE,
        budget_bytes: 100 << 20,
    };

    /// Serves clients and forgets them when they go: monitors, managers, OSDs' clients.
    #[must_use]
    pub const fn stateless_server() -> Self {
        Self::BASE
    }

    /// Serves clients whose sessions survive a break: metadata servers.
    #[must_use]
    pub const fn stateful_server() -> Self {
        Self { lossy: false, standby: true, resetcheck: true, ..Self::BASE }
    }

    /// Either side connects; nothing is lost while both live: OSDs among themselves.
    #[must_use]
    pub const fn lossless_peer() -> Self {
        Self { lossy: false, server: false, standby: true, ..Self::BASE }
    }

    /// As [`Policy::lossless_peer`], and a restarted peer is noticed: monitors among
    /// themselves.
    #[must_use]
    pub const fn lossless_peer_reuse() -> Self {
        Self { resetcheck: true, ..Self::lossless_peer() }
    }

    /// Connects; a break is the caller's to repair.
    #[must_use]
    pub const fn lossy_client() -> Self {
        Self { server: false, ..Self::BASE }
    }

    /// Connects, and connects again until it succeeds: clients of metadata servers.
    #[must_use]
    pub const fn lossless_client() -> Self {
        Self { lossy: false, server: false, resetcheck: true, ..Self::BASE }
    }

    /// With another byte budget.
    #[must_use]
    pub const fn with_budget(mut self, bytes: usize) -> Self {
        self.budget_bytes = bytes;
        self
    }
}

/// The lasting half of a connection.
#[derive(Clone, Debug)]
pub struct Session {
    pub(crate) policy: Policy,
    /// Of messenger v1: it has no cookies, and v2 cannot ask for it.
    pub(crate) legacy: bool,
    /// Chosen by the connecting side; 0 on lossy sessions.
    pub(crate) client_cookie: u64,
    /// Chosen by the accepting side; 0 until established.
    pub(crate) server_cookie: u64,
    /// Counts the attempts to reconnect.
    pub(crate) connect_seq: u64,
    /// The largest the peer has shown.
    pub(crate) peer_global_seq: u64,
    /// Highest seq delivered.
    pub(crate) in_seq: u64,
    /// Highest seq the peer was told of.
    pub(crate) acked_seq: u64,
    /// Highest seq sent.
    pub(crate) out_seq: u64,
    /// Sent and not acknowledged.
    sent: VecDeque<Envelope>,
    /// To be sent.
    queue: VecDeque<Envelope>,
    bytes: usize,
}

impl Session {
    /// A session that has not begun.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            legacy: false,
            client_cookie: 0,
            server_cookie: 0,
            connect_seq: 0,
            peer_global_seq: 0,
            in_seq: 0,
            acked_seq: 0,
            out_seq: 0,
            sent: VecDeque::new(),
            queue: VecDeque::new(),
            bytes: 0,
        }
    }

    /// Bytes of messages queued or unacknowledged.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How it deals with breaks.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Whether there is something to send.
    #[must_use]
    pub fn has_queued(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether a broken connection is to be replaced by one that goes on where it stopped.
    #[must_use]
    pub fn is_lossless(&self) -> bool {
        !self.policy.lossy
    }

    pub(crate) fn push(&mut self, env: Envelope) {
        self.bytes += env.size();
        self.queue.push_back(env);
    }

    /// Queues a message while there is no connection.
    ///
    /// # Errors
    /// [`Fault::TooLarge`] when a segment is beyond what a peer may take.
    pub fn send(&mut self, env: Envelope) -> Result<(), Fault> {
        let front_max = FRONT_MAX as usize;
        if env.front.len() > front_max
            || env.middle.len() > front_max
            || env.data.len() > DATA_MAX as usize
        {
            return Err(Fault::TooLarge);
        }
        self.push(env);
        Ok(())
    }

    /// The next message to put on the wire, with its seq.
    pub(crate) fn pop(&mut self) -> Option<(u64, Envelope)> {
        let env = self.queue.pop_front()?;
        self.out_seq += 1;
        if self.policy.lossy {
            self.bytes -= env.size();
        } else {
            self.sent.push_back(env.clone());
        }
        Some((self.out_seq, env))
    }

    /// The peer has everything up to `seq`.
    pub(crate) fn on_ack(&mut self, seq: u64) {
        while !self.sent.is_empty() && self.out_seq - (self.sent.len() as u64) < seq {
            let env = self.sent.pop_front().expect("not empty");
            self.bytes -= env.size();
        }
    }

    /// Whether a message with this seq is new; if so it counts as received.
    pub(crate) fn on_message(&mut self, seq: u64) -> bool {
        let new = seq > self.in_seq;
        if new {
            self.in_seq = seq;
        }
        new
    }

    /// What was sent and not acknowledged is to be sent again, with the same numbers.
    pub(crate) fn requeue(&mut self) {
        self.out_seq -= self.sent.len() as u64;
        while let Some(env) = self.sent.pop_back() {
            self.queue.push_front(env);
        }
    }

    /// The peer lost the session: numbers and cookies start anew, and nothing is kept.
    pub(crate) fn reset(&mut self) {
        *self = Self { peer_global_seq: self.peer_global_seq, ..Self::new(self.policy) };
    }

    /// The peer lost what it had received: everything unacknowledged is sent again.
    pub(crate) fn restart(&mut self) {
        self.requeue();
        (self.server_cookie, self.connect_seq, self.in_seq, self.acked_seq) = (0, 0, 0, 0);
    }
}

/// A new session is asked for (CLIENT_IDENT).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ident {
    /// The peer's addresses: who it is.
    pub addrs: AddrVec,
    pub(crate) client_cookie: u64,
    pub(crate) global_seq: u64,
}

/// An old session is asked for (SESSION_RECONNECT).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resume {
    /// The peer's addresses: who it is.
    pub addrs: AddrVec,
    pub(crate) client_cookie: u64,
    pub(crate) server_cookie: u64,
    pub(crate) global_seq: u64,
    pub(crate) connect_seq: u64,
    pub(crate) msg_seq: u64,
}

/// What to do with a peer that asks for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Give it a fresh session; an old one, if any, is over.
    Fresh,
    /// Give it the session that exists; its old connection, if any, is closed.
    Adopt,
    /// As [`Verdict::Adopt`], and the session starts anew because the peer did.
    AdoptReset,
    /// SESSION_RESET: the peer must ask for a new session; `full` tells it to forget its own.
    Reset {
        /// Forget queued messages too.
        full: bool,
    },
    /// SESSION_RETRY with this connect_seq.
    Retry(u64),
    /// SESSION_RETRY_GLOBAL with this global_seq.
    RetryGlobal(u64),
    /// WAIT: our own connection to the peer goes first.
    Wait,
    /// A late connection of a peer that has a newer one: drop it.
    Stale,
}

/// Judges [`Ident`]. `existing` is the session with the same peer addresses, `connecting`
/// whether our side is just dialling it, `mine` our address.
#[must_use]
pub fn judge_ident(
    existing: Option<&Session>,
    connecting: bool,
    mine: EntityAddr,
    ask: &Ident,
) -> Verdict {
    let Some(old) = existing else { return Verdict::Fresh };
    if old.legacy {
        return Verdict::Stale;
    }
    if old.peer_global_seq > ask.global_seq {
        return Verdict::Stale;
    }
    // A client that keeps no session names none.
    if old.policy.lossy || (ask.client_cookie == 0 && !connecting) {
        return Verdict::Fresh;
    }
    if old.client_cookie != 0 && old.server_cookie != 0 && old.client_cookie != ask.client_cookie {
        return if old.policy.resetcheck { Verdict::AdoptReset } else { Verdict::Adopt };
    }
    if old.client_cookie == ask.client_cookie || !connecting || old.policy.server {
        return Verdict::Adopt;
    }
    // Both sides dial each other: the lower address connects.
    if ask.addrs.msgr2().unwrap_or_default() < mine { Verdict::Adopt } else { Verdict::Wait }
}

/// Judges [`Resume`]; the arguments are those of [`judge_ident`].
#[must_use]
pub fn judge_resume(
    existing: Option<&Session>,
    connecting: bool,
    mine: EntityAddr,
    resetcheck: bool,
    ask: &Resume,
) -> Verdict {
    let Some(old) = existing.filter(|old| !old.legacy) else {
        return Verdict::Reset { full: true };
    };
    if old.client_cookie != ask.client_cookie {
        return Verdict::Reset { full: resetcheck };
    }
    if old.server_cookie == 0 {
        return Verdict::Reset { full: false };
    }
    if old.peer_global_seq > ask.global_seq {
        return Verdict::RetryGlobal(old.peer_global_seq);
    }
    if old.connect_seq > ask.connect_seq {
        return Verdict::Retry(old.connect_seq);
    }
    if old.connect_seq == ask.connect_seq
        && connecting
        && !old.policy.server
        && ask.addrs.msgr2().unwrap_or_default() > mine
    {
        return Verdict::Wait;
    }
    Verdict::Adopt
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(tid: u64) -> Envelope {
        Envelope { tid, ..Envelope::default() }
    }

    /// Numbers stay with their messages over a break, and acknowledged ones are gone.
    #[test]
    fn requeues_with_the_same_numbers() {
        let mut s = Session::new(Policy::stateful_server());
        for tid in 1..=5 {
            s.push(env(tid));
        }
        for seq in 1..=4 {
            assert_eq!(s.pop().unwrap().0, seq);
        }
        s.on_ack(2);
        s.requeue();
        for seq in 3..=5 {
            let (got, env) = s.pop().unwrap();
            assert_eq!((got, env.tid), (seq, seq));
        }
        s.on_ack(99);
        assert_eq!((s.pop().is_none(), s.sent.len(), s.bytes()), (true, 0, 0));
    }

    /// The rules observed on a live metadata server.
    #[test]
    fn judges_resumes() {
        let mine = EntityAddr::default();
        let old = Session {
            client_cookie: 7,
            server_cookie: 9,
            connect_seq: 3,
            peer_global_seq: 5,
            ..Session::new(Policy::stateful_server())
        };
        let ask = Resume {
            addrs: AddrVec::default(),
            client_cookie: 7,
            server_cookie: 9,
            global_seq: 5,
            connect_seq: 3,
            msg_seq: 0,
        };
        let judge = |old, ask: &Resume| judge_resume(old, false, mine, true, ask);
        assert_eq!(judge(None, &ask), Verdict::Reset { full: true });
        assert_eq!(judge(Some(&old), &ask), Verdict::Adopt);
        let other = Resume { client_cookie: 8, ..ask.clone() };
        assert_eq!(judge(Some(&old), &other), Verdict::Reset { full: true });
        let low = Resume { global_seq: 4, ..ask.clone() };
        assert_eq!(judge(Some(&old), &low), Verdict::RetryGlobal(5));
        let low = Resume { connect_seq: 2, ..ask.clone() };
        assert_eq!(judge(Some(&old), &low), Verdict::Retry(3));
        let ident = Ident { addrs: AddrVec::default(), client_cookie: 8, global_seq: 5 };
        assert_eq!(judge_ident(Some(&old), false, mine, &ident), Verdict::AdoptReset);
        assert_eq!(judge_ident(None, false, mine, &ident), Verdict::Fresh);
        // A command, and the next one of the same client, by connections that keep no session: the second
        // is not answered with what the first one left.
        let command = Ident { client_cookie: 0, ..ident.clone() };
        let first = Session { client_cookie: 0, server_cookie: 9, ..Session::new(old.policy) };
        assert_eq!(judge_ident(Some(&first), false, mine, &command), Verdict::Fresh);
        let stale = Ident { global_seq: 4, ..ident };
        assert_eq!(judge_ident(Some(&old), false, mine, &stale), Verdict::Stale);
    }
}
