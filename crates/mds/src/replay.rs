//! Requests that were answered and were not durable when the server before this one died: their
//! clients send them again, and they are done before anything new (`up:clientreplay`).
//!
//! They come before the client's word of what it held, in the order in which they were answered, and
//! run one after another in the order in which they came. No client was answered while what its
//! answer was made of was not durable and of another client: so what one client has replayed does not
//! depend on another's. A request that makes an inode names its number. Caps that were claimed of
//! an inode that was not there yet are given back with it.
//!
//! Source: the peer's `MDSRank::clientreplay_start`, `Server::dispatch`, `MDCache::try_reconnect_cap`.

use std::collections::{BTreeMap, VecDeque};

use env::ConnId;
use maps::MdsState;
use messages::fs::{CapReconnect, ClientRequest, request_flag};
use types::Ino;

use crate::Peer;
use crate::capset::bits;
use crate::rank::Rank;
use crate::request::{Call, Later};
use crate::session::Sessions;

/// What is replayed.
#[derive(Debug, Default)]
pub(crate) struct Replays {
    /// Clients with the numbers of their requests.
    queue: VecDeque<(i64, u64, Box<ClientRequest>)>,
    /// The one that is being done.
    running: Option<(i64, u64)>,
    /// Caps of inodes that are nowhere: as many as clients may claim.
    pub homeless: BTreeMap<Ino, Vec<(i64, CapReconnect)>>,
}

impl Sessions {
    /// Whether a request belongs before all that are new. One that is just sent again does where it is
    /// known to be done: its client shall hear so before others change what it made.
    fn is_replay(&self, peer: &Peer, what: &Later) -> bool {
        let Later::Request(tid, m) = what else { return false };
        let Some(session) = self.by_client.get(&peer.id.num) else { return false };
        let is_done = || session.info.completed_requests.contains_key(tid);
        m.flags & request_flag::REPLAY != 0 || m.num_retry > 0 && is_done()
    }
}

impl Rank {
    /// Whether any request is to be replayed.
    pub fn has_replays(&self) -> bool {
        let is_one = |(_, peer, what): &(ConnId, Peer, Later)| self.sessions.is_replay(peer, what);
        self.requests.later.iter().any(is_one)
    }

    fn take_replays(&mut self) {
        let sessions = &self.sessions;
        for (_, peer, what) in self.requests.take_later(|_, peer, w| sessions.is_replay(peer, w)) {
            if let Later::Request(tid, m) = what {
                self.boot.replays.queue.push_back((peer.id.num, tid, m));
            }
        }
    }

    /// The rank is in `up:clientreplay`.
    pub fn begin_replay(&mut self) {
        // What clients say of what they hold was kept until the caps they claimed were all known.
        let homeless: Vec<Ino> = self.boot.replays.homeless.keys().copied().collect();
        self.run_later(|_, _, what| match what {
            Later::Caps(_, m) => homeless.binary_search(&m.ino).is_err(),
            Later::Release(_) => homeless.is_empty(),
            _ => false,
        });
    }

    /// Goes on with what is to be replayed, and asks to be active when all of it is durable.
    pub fn replay_on(&mut self) {
        if self.state() != MdsState::CLIENTREPLAY || !self.boot.is_done() {
            return;
        }
        loop {
            self.run_requests();
            if let Some((client, tid)) = self.boot.replays.running
                && self.requests.has(client, tid)
            {
                return;
            }
            self.boot.replays.running = None;
            if self.boot.replays.queue.is_empty() {
                self.take_replays();
            }
            let Some((client, tid, m)) = self.boot.replays.queue.pop_front() else { break };
            self.boot.replays.running = Some((client, tid));
            self.accept(client, tid, *m);
        }
        if self.journal.is_settled() {
            self.wish = Some(MdsState::ACTIVE);
        }
    }

    /// Nothing more is replayed: what is still nowhere is lost.
    pub fn end_replay(&mut self) {
        for (ino, clients) in std::mem::take(&mut self.boot.replays.homeless) {
            for (client, cap) in clients {
                self.restore_cap(client, ino, &cap);
            }
        }
    }

    /// An inode was made by a request that is replayed, or was there: who claimed caps of it has them.
    pub fn adopt(&mut self, ino: Ino) {
        self.waiting.lost.remove(&ino);
        let Some(clients) = self.boot.replays.homeless.remove(&ino) else { return };
        for (client, cap) in clients {
            self.restore_cap(client, ino, &cap);
        }
        self.run_later(|_, _, what| matches!(what, Later::Caps(_, m) if m.ino == ino));
    }

    /// Whether a message about caps comes before it can be judged: until all that was claimed is known.
    pub fn is_too_early(&self, ino: Option<Ino>, client: i64) -> bool {
        let homeless = &self.boot.replays.homeless;
        match self.state() {
            MdsState::RECONNECT | MdsState::REJOIN => self.sessions.by_client.contains_key(&client),
            // Clients may hear before this server that they can come back.
            MdsState::REPLAY => {
                self.boot.is_done() && self.sessions.by_client.contains_key(&client)
            }
            MdsState::CLIENTREPLAY => {
                ino.map_or(!homeless.is_empty(), |ino| homeless.contains_key(&ino))
            }
            _ => false,
        }
    }

    /// Whether the client that makes a file may write it at once. What it makes again it may write
    /// as far as it says that it did.
    pub fn may_write_at_once(&self, call: &Call, ino: Ino) -> bool {
        if call.m.flags & request_flag::REPLAY == 0 {
            return self.read_only.is_none();
        }
        let claims = self.boot.replays.homeless.get(&ino);
        let claim = claims.into_iter().flatten().find(|(client, _)| *client == call.client);
        claim.is_some_and(|(_, cap)| (cap.issued | cap.wanted) & bits::FW != 0)
    }
}
