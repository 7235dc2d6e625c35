//! Sessions: opened where a request needs one, renewed, taken to a rank's next server, closed.
//!
//! ```text
//! Opening ──open──> Open ──rank's server is gone──> Away ──next one listens──> Reconnecting
//!    ^               │  ^                                                          │  │
//!    └──next request─┴──┼──────────────────close: forgotten────────────────────────┘  │
//!                       └───────────────────────open───────────────────────────────────┘
//! ```
//!
//! A connection that ends says nothing of the session: what answers at a dead server's address may be
//! the next process there, and the rank's next server waits for all whose sessions were recorded. So the
//! session is away then, too, also one that was only asked for, and only a server's word ends it.

use bytes::Bytes;
use env::Now;
use maps::{FeatureBits, MdsState};
use messages::fs::{
    CapReconnect, ClientCapRelease, ClientReconnect, ClientSession, ReleasedCap, SessionDetail,
    request_flag, session_op,
};
use types::{AddrVec, Errno, Features, SnapId};

use crate::{Client, Out, errno};

/// Features of this client: the five spent ones, jewel to `reply_encoding`, `lazy_caps_wanted`,
/// `multi_reconnect`, `alternate_name`, `op_getvxattr`, `client_mds_auth_caps`. It chooses no inode
/// numbers, measures nothing, compares names byte by byte.
const FEATURES: u64 = 0x3ff | 1 << 11 | 1 << 12 | 1 << 15 | 1 << 17 | 1 << 21;
/// So many caps are given back in one message.
const RELEASES: usize = 64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Life {
    /// Asked for, or about to be.
    #[default]
    Opening,
    /// Requests and caps go to and fro.
    Open,
    /// Its rank has no server, or one that does not listen yet; what is held is held.
    Away,
    /// The rank's next server is told what is held.
    Reconnecting,
    /// To end.
    Closing,
}

/// A session with a rank.
#[derive(Clone, Debug, Default)]
pub(crate) struct Session {
    pub life: Life,
    /// The server's number in the map.
    gid: u64,
    /// The connection's, while there is one.
    pub features: Option<Features>,
    /// Messages about caps, leases and snapshots since it was opened.
    pub pushes: u64,
    /// Not in time: caps do not count until it is renewed.
    pub stale: bool,
    renewed_ms: u64,
    renewal: u64,
    releases: Vec<ReleasedCap>,
}

impl Client {
    /// Makes sure that there is a session with a rank, or will be.
    pub(crate) fn need_session(&mut self, rank: i32, out: &mut Vec<Out>) {
        if self.sessions.contains_key(&rank) || self.closing {
            return;
        }
        let Some(info) = self.info(rank) else { return };
        let (gid, addrs) = (info.gid, info.addrs.clone());
        self.sessions.insert(rank, Session { gid, ..Session::default() });
        out.push(Out::Connect(rank, addrs));
    }

    pub(crate) fn ask_open(&self, rank: i32, out: &mut Vec<Out>) {
        let bytes = |text: &String| Bytes::from(text.clone());
        let metadata = self.config.metadata.iter().map(|(k, v)| (bytes(k), bytes(v))).collect();
        let features = FeatureBits::from_word(FEATURES);
        let detail = SessionDetail { metadata, features, ..SessionDetail::default() };
        let open = ClientSession {
            op: session_op::REQUEST_OPEN,
            detail: Some(Box::new(detail)),
            ..ClientSession::default()
        };
        self.send(rank, &open, 0, out);
    }

    /// What the map says of a rank's server now.
    fn server(&self, rank: i32) -> Option<(u64, MdsState, AddrVec)> {
        self.info(rank).map(|i| (i.gid, i.state, i.addrs.clone()))
    }

    /// Follows a rank to the server that the newest map names.
    pub(crate) fn follow(&mut self, rank: i32, out: &mut Vec<Out>) {
        let server = self.server(rank);
        let Some(session) = self.sessions.get_mut(&rank) else { return };
        let same = server.as_ref().is_some_and(|(gid, ..)| *gid == session.gid);
        if !same && session.life != Life::Away {
            if session.life == Life::Closing {
                // Nothing is held by it.
                self.sessions.remove(&rank);
                out.push(Out::Close(rank));
                self.unsend(rank);
                return;
            }
            self.go_away(rank, out);
        }
        if !same {
            self.come_back(rank, out);
        }
    }

    /// A session is without a connection.
    fn go_away(&mut self, rank: i32, out: &mut Vec<Out>) {
        let Some(session) = self.sessions.get_mut(&rank) else { return };
        session.life = Life::Away;
        session.features = None;
        out.push(Out::Close(rank));
        self.unsend(rank);
    }

    /// The connection to a rank ended.
    pub(crate) fn cut_off(&mut self, rank: i32, out: &mut Vec<Out>) {
        match self.sessions.get(&rank).map(|s| s.life) {
            Some(Life::Closing) => self.session_lost(rank, out),
            Some(_) => self.go_away(rank, out),
            None => {}
        }
    }

    /// Turns to the server that the newest map names, once it listens to who was away.
    pub(crate) fn come_back(&mut self, rank: i32, out: &mut Vec<Out>) {
        if self.sessions.get(&rank).is_none_or(|s| s.life != Life::Away) {
            return;
        }
        let server = self.server(rank);
        if let (Some(session), Some((gid, state, addrs))) = (self.sessions.get_mut(&rank), server)
            && state.0 >= MdsState::RECONNECT.0
            && state.0 <= MdsState::ACTIVE.0
        {
            session.gid = gid;
            session.life = Life::Reconnecting;
            session.pushes = 0;
            session.releases.clear();
            out.push(Out::Connect(rank, addrs));
        }
    }

    /// Tells a rank's next server what is held; what was answered and not durable comes first.
    pub(crate) fn reconnect(&mut self, now: Now, rank: i32, out: &mut Vec<Out>) {
        let oldest = self.oldest_tid();
        for request in self.requests.values_mut().filter(|r| r.unsafe_at == Some(rank)) {
            request.m.flags |= request_flag::REPLAY;
            request.m.oldest_client_tid = oldest;
        }
        for (tid, request) in &self.requests {
            if request.unsafe_at == Some(rank) {
                self.send(rank, &request.m, *tid, out);
            }
        }
        let mut told = ClientReconnect::default();
        for (ino, file) in &mut self.files {
            let Some(cap) = file.cap.as_mut().filter(|cap| cap.rank == rank) else { continue };
            (cap.seq, cap.issue_seq, cap.mseq) = (0, 0, 0);
            cap.issued = cap.held;
            let follows = file.flushing_snaps.first().map_or(SnapId(0), |s| s.follows);
            told.caps.insert(
                *ino,
                CapReconnect {
                    cap_id: cap.id,
                    wanted: file.wanted,
                    issued: cap.held,
                    snaprealm: file.realm,
                    pathbase: *ino,
                    snap_follows: follows,
                    ..CapReconnect::default()
                },
            );
        }
        told.realms = self.realms.told();
        self.send(rank, &told, 0, out);
        if let Some(session) = self.sessions.get_mut(&rank) {
            session.renewed_ms = now.mono_ms();
        }
    }

    /// A push of a rank was heard: a close that crossed it is asked for again.
    pub(crate) fn pushed(&mut self, rank: i32, out: &mut Vec<Out>) {
        let Some(session) = self.sessions.get_mut(&rank) else { return };
        session.pushes += 1;
        if session.life == Life::Closing {
            self.ask_close(rank, out);
        }
    }

    fn ask_close(&self, rank: i32, out: &mut Vec<Out>) {
        let seq = self.sessions.get(&rank).map_or(0, |s| s.pushes);
        let op = session_op::REQUEST_CLOSE;
        self.send(rank, &ClientSession { op, seq, ..ClientSession::default() }, 0, out);
    }

    pub(crate) fn on_session(&mut self, now: Now, rank: i32, m: ClientSession, out: &mut Vec<Out>) {
        let Some(session) = self.sessions.get_mut(&rank) else { return };
        match m.op {
            session_op::OPEN => {
                let again = session.life == Life::Reconnecting;
                if !again && session.life != Life::Opening {
                    return;
                }
                session.life = Life::Open;
                session.stale = false;
                session.renewed_ms = now.mono_ms();
                if again {
                    self.resend_flushes(rank, out);
                }
                self.send_requests(now, out);
                if again {
                    self.settle_all(rank, out);
                }
                out.push(Out::Changed);
            }
            session_op::RENEWCAPS => {
                if m.seq == session.renewal && session.stale {
                    session.stale = false;
                    out.push(Out::Changed);
                }
            }
            session_op::STALE => {
                session.stale = true;
                session.renewed_ms = 0;
                self.renew(now, rank, out);
            }
            session_op::RECALL_STATE => self.send_releases(rank, out),
            session_op::FLUSHMSG => {
                let ack = ClientSession {
                    op: session_op::FLUSHMSG_ACK,
                    seq: m.seq,
                    ..ClientSession::default()
                };
                self.send(rank, &ack, 0, out);
            }
            session_op::CLOSE => {
                self.session_lost(rank, out);
                self.send_requests(now, out);
            }
            session_op::REJECT => {
                let detail = m.detail.unwrap_or_default();
                let why = detail.metadata.get(&b"error_string"[..]).cloned().unwrap_or_default();
                let why = String::from_utf8_lossy(&why).into_owned();
                tracing::warn!("rank {rank} refuses a session: {why}");
                let shut_out = detail.flags & 1 != 0 || why.contains("blocklisted");
                self.refused = Some(if shut_out { Errno::BLOCKLISTED } else { Errno::PERM });
                self.session_lost(rank, out);
                self.fail_all(out);
            }
            // What a server that writes no more refuses it says itself, request by request.
            session_op::FORCE_RO => {}
            op => tracing::debug!("rank {rank}: session message {op}"),
        }
    }

    /// A server that this client held something of has forgotten it.
    pub(crate) fn session_lost(&mut self, rank: i32, out: &mut Vec<Out>) {
        if self.sessions.remove(&rank).is_none() {
            return;
        }
        out.push(Out::Close(rank));
        for file in self.files.values_mut().filter(|f| f.cap.is_some_and(|c| c.rank == rank)) {
            file.cap = None;
            file.is_lost = true;
            file.flushing = None;
            file.flushing_snaps.clear();
        }
        let before = self.requests.len();
        self.requests.retain(|_, r| r.unsafe_at != Some(rank));
        self.lost += (before - self.requests.len()) as u64;
        self.unsend(rank);
        out.push(Out::Changed);
    }

    /// Asks a rank to renew this client's session, when it is time.
    pub(crate) fn renew(&mut self, now: Now, rank: i32, out: &mut Vec<Out>) {
        let timeout = self.map.as_ref().map_or(60, |m| m.session_timeout).max(3);
        let Some(session) = self.sessions.get_mut(&rank) else { return };
        let due = session.renewed_ms + u64::from(timeout) * 1000 / 3;
        if session.life != Life::Open || (session.renewed_ms > 0 && now.mono_ms() < due) {
            return;
        }
        session.renewed_ms = now.mono_ms().max(1);
        session.renewal += 1;
        let ask = ClientSession {
            op: session_op::REQUEST_RENEWCAPS,
            seq: session.renewal,
            ..ClientSession::default()
        };
        self.send(rank, &ask, 0, out);
    }

    /// Gives a cap back, soon.
    pub(crate) fn release(&mut self, rank: i32, cap: ReleasedCap, out: &mut Vec<Out>) {
        let Some(session) = self.sessions.get_mut(&rank) else { return };
        session.releases.push(cap);
        if session.releases.len() >= RELEASES {
            self.send_releases(rank, out);
        }
    }

    pub(crate) fn send_releases(&mut self, rank: i32, out: &mut Vec<Out>) {
        let Some(session) = self.sessions.get_mut(&rank) else { return };
        if session.releases.is_empty() || session.life != Life::Open {
            return;
        }
        let caps = std::mem::take(&mut session.releases);
        self.send(rank, &ClientCapRelease { caps, osd_epoch_barrier: 0 }, 0, out);
    }

    /// Has servers make durable soon what they answered. [`Client::unsafe_count`] falls to 0 then.
    pub fn flush_requests(&mut self, out: &mut Vec<Out>) {
        let op = session_op::REQUEST_FLUSH_MDLOG;
        let ranks: Vec<i32> = self.sessions.keys().copied().collect();
        for rank in ranks {
            if self.requests.values().any(|r| r.unsafe_at == Some(rank)) {
                self.send(rank, &ClientSession { op, ..ClientSession::default() }, 0, out);
            }
        }
    }

    /// Begins to end all sessions; [`Client::has_sessions`] says when that is done. Files are to be
    /// closed before.
    pub fn close(&mut self, out: &mut Vec<Out>) {
        self.closing = true;
        let ranks: Vec<i32> = self.sessions.keys().copied().collect();
        for rank in ranks {
            self.send_releases(rank, out);
            let Some(session) = self.sessions.get_mut(&rank) else { continue };
            if session.life == Life::Open {
                session.life = Life::Closing;
                self.ask_close(rank, out);
            } else {
                self.session_lost(rank, out);
            }
        }
    }

    /// Whether any session is there.
    #[must_use]
    pub fn has_sessions(&self) -> bool {
        !self.sessions.is_empty()
    }

    /// Whether a file's caps count: its session is open and renewed.
    pub(crate) fn counts(&self, rank: i32) -> bool {
        self.sessions.get(&rank).is_some_and(|s| s.life == Life::Open && !s.stale)
    }

    fn fail_all(&mut self, out: &mut Vec<Out>) {
        let why = self.refused.unwrap_or(errno::STALE);
        for (tid, request) in std::mem::take(&mut self.requests) {
            if request.unsafe_at.is_none() {
                out.push(Out::Done(tid, Err(why)));
            }
        }
        out.push(Out::Changed);
    }
}
