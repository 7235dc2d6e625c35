//! Sessions of clients: opened, renewed, closed, ended.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use env::ConnId;
use maps::fs::{ClientMetadata, InoIntervals, SessionInfo};
use maps::{FeatureBits, MdsState};
use messages::fs::{ClientReconnect, ClientSession, SessionDetail, request_flag, session_op};
use types::{EntityInst, Errno, Ino};

use crate::rank::{Job, Rank};
use crate::record::Change;
use crate::request::{Call, Later, Op};
use crate::{Effect, Peer, errno};

/// Features that are known here, beside the five spent ones: jewel to `reclaim_client`,
/// `lazy_caps_wanted`, `multi_reconnect`, `deleg_ino`, `alternate_name`, `op_getvxattr`,
/// `32bits_retry_fwd`, `new_snaprealm_info`, `has_owner_uidgid`, `client_mds_auth_caps`, `charmap`.
const FEATURES: u64 = 0x7ff
    | 1 << 11
    | 1 << 12
    | 1 << 13
    | 1 << 15
    | 1 << 17
    | 1 << 18
    | 1 << 19
    | 1 << 20
    | 1 << 21
    | 1 << CHARMAP;

/// A client may come back with so many times the caps that it should have: it is asked for some, and
/// may be slow to give them back.
const CLAIMS_PART: usize = 4;
/// Bytes of what a client says of itself: they stay while its session does.
const METADATA_BYTES_MAX: usize = 64 << 10;

/// How far a session is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Life {
    /// It may ask.
    #[default]
    Open,
    /// It did not renew in time: it keeps what nobody needs.
    Stale,
    /// The monitors are asked to blocklist it.
    Killing,
}

/// A client's session.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub peer: Peer,
    pub conn: Option<ConnId>,
    pub info: SessionInfo,
    pub life: Life,
    /// Messages about caps, leases and snapshots since it was opened.
    pub pushes: u64,
    pub renewed_ms: u64,
    /// The record that reserved numbers for it last, the first of them and the end.
    pub reserved: (u64, u64, u64),
    /// Inodes with caps of it.
    pub caps: BTreeSet<Ino>,
    /// Locks on files that it holds, [`CLIENT_LOCKS_MAX`](crate::flock::CLIENT_LOCKS_MAX) at most.
    pub locks: usize,
    /// Caps that it said it has, since this server took over.
    pub claimed: usize,
    /// It has not come back since this server took over.
    pub awaited: bool,
    /// Its part in the map of sessions is not written.
    pub dirty: bool,
    /// Inodes that listings told it of, fewer the longer ago.
    pub acquired: Decay,
    /// Changes that it made, fewer the longer ago.
    pub made: Decay,
    /// When it was opened here.
    pub since_ms: u64,
}

/// A count that halves as time goes by. The peer's `DecayCounter`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Decay {
    value: f64,
    at_ms: u64,
}

impl Decay {
    pub fn get(&self, now_ms: u64, half_life_ms: u64) -> f64 {
        let passed = now_ms.saturating_sub(self.at_ms) as f64 / half_life_ms.max(1) as f64;
        self.value * 0.5f64.powf(passed)
    }

    pub fn add(&mut self, n: usize, now_ms: u64, half_life_ms: u64) {
        self.value = self.get(now_ms, half_life_ms) + n as f64;
        self.at_ms = now_ms;
    }
}

impl Session {
    /// One that begins now.
    pub fn new(peer: Peer, conn: Option<ConnId>, info: SessionInfo, now_ms: u64) -> Self {
        Self {
            peer,
            conn,
            info,
            life: Life::Open,
            pushes: 0,
            renewed_ms: now_ms,
            reserved: (0, 0, 0),
            caps: BTreeSet::new(),
            locks: 0,
            claimed: 0,
            awaited: false,
            dirty: true,
            acquired: Decay::default(),
            made: Decay::default(),
            since_ms: now_ms,
        }
    }

    /// After so much silence it is ended, where it said so itself; a gateway that takes its session
    /// over again asks for more than others have.
    fn timeout_ms(&self) -> Option<u64> {
        let text = self.info.metadata.kv.get(&b"timeout"[..])?;
        let seconds: u64 = std::str::from_utf8(text).ok()?.parse().ok()?;
        Some(if seconds == 0 { u64::MAX } else { seconds.saturating_mul(1000) })
    }
}

/// The feature `charmap`: a client that compares names as a directory says.
pub(crate) const CHARMAP: usize = 22;
/// The feature `new_snaprealm_info`.
pub(crate) const NEW_SNAPREALM_INFO: usize = 19;

/// All sessions.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    pub by_client: BTreeMap<i64, Session>,
    pub by_conn: BTreeMap<ConnId, i64>,
    /// Sessions that ended and still stand in the map of sessions on disk.
    pub ended: BTreeSet<i64>,
    pub next_cap: u64,
    /// Sessions that are taken over, by whom.
    pub reclaims: BTreeMap<i64, i64>,
    /// Until when clients may come back.
    pub reconnect_until_ms: u64,
}

impl Rank {
    pub fn on_session(&mut self, conn: ConnId, peer: &Peer, m: &ClientSession) {
        self.counted.server.handle_client_session += 1;
        let client = peer.id.num;
        match m.op {
            session_op::REQUEST_OPEN => self.open_session(conn, peer, m),
            session_op::REQUEST_RENEWCAPS => {
                let now = self.world.ms();
                let Some(session) = self.sessions.by_client.get_mut(&client) else {
                    self.refuse(conn, peer, session_op::CLOSE, "");
                    return;
                };
                session.renewed_ms = now;
                let was_stale = session.life == Life::Stale;
                if was_stale {
                    session.life = Life::Open;
                }
                let answer = ClientSession {
                    op: session_op::RENEWCAPS,
                    seq: m.seq,
                    ..ClientSession::default()
                };
                self.send(client, &answer, 0);
                if was_stale {
                    let caps: Vec<Ino> =
                        self.sessions.by_client[&client].caps.iter().copied().collect();
                    for ino in caps {
                        self.eval(ino);
                    }
                }
            }
            session_op::REQUEST_CLOSE => {
                let Some(session) = self.sessions.by_client.get(&client) else {
                    self.refuse(conn, peer, session_op::CLOSE, "");
                    return;
                };
                if m.seq < session.pushes {
                    return; // something is on its way to it: it asks again
                }
                self.end_session(client, false);
                let close = ClientSession { op: session_op::CLOSE, ..ClientSession::default() };
                self.send_to(conn, &close, peer.features, 0);
            }
            session_op::FLUSHMSG_ACK => {}
            session_op::REQUEST_FLUSH_MDLOG => {} // records are written at once
            op => tracing::debug!(op, %peer.id, "a session message of an unknown kind"),
        }
    }

    /// Ends what a client asks for with an error that it shows.
    fn refuse(&mut self, conn: ConnId, peer: &Peer, op: u32, why: &str) {
        let mut message = ClientSession { op, ..ClientSession::default() };
        if !why.is_empty() {
            let metadata = [("error_string".into(), Bytes::from(why.to_owned()))].into();
            let flags = u32::from(self.world.osd.map.blocklisted_until(&peer.addr).is_some());
            message.detail =
                Some(Box::new(SessionDetail { metadata, flags, ..SessionDetail::default() }));
        }
        self.send_to(conn, &message, peer.features, 0);
    }

    fn open_session(&mut self, conn: ConnId, peer: &Peer, m: &ClientSession) {
        let client = peer.id.num;
        let state = self.state();
        if !self.is_active() {
            let soon =
                [MdsState::RECONNECT, MdsState::REJOIN, MdsState::REPLAY, MdsState::CLIENTREPLAY];
            if soon.contains(&state) {
                self.later(conn, peer, Later::Open(m.clone()));
            } else {
                self.refuse(conn, peer, session_op::REJECT, "the server is not active");
            }
            return;
        }
        let fs = self.world.map.fs_name.clone();
        let metadata = m.detail.as_ref().map_or(0, |d| crate::request::bytes_of(&d.metadata));
        if metadata > METADATA_BYTES_MAX {
            self.refuse(conn, peer, session_op::REJECT, "the client says too much of itself");
            return;
        }
        if self.world.osd.map.blocklisted_until(&peer.addr).is_some() {
            let why = "blocklisted (blacklisted)";
            self.refuse(conn, peer, session_op::REJECT, why);
            return;
        }
        if self.world.map.flags & maps::mds_flag::REFUSE_CLIENT_SESSION != 0 {
            let why = "new sessions are not permitted, enable again with `ceph fs set <fs_name> refuse_client_session false`";
            self.refuse(conn, peer, session_op::REJECT, why);
            return;
        }
        if !peer.caps.is_fs_capable(&fs) {
            self.refuse(
                conn,
                peer,
                session_op::REJECT,
                &format!("client doesn't have caps for FS \"{fs}\""),
            );
            return;
        }
        let detail = m.detail.as_deref().cloned().unwrap_or_default();
        let root = detail.metadata.get(&b"root"[..]).cloned().unwrap_or_default();
        let root = String::from_utf8_lossy(&root).trim_start_matches('/').to_owned();
        if !peer.caps.is_path_capable(&root) {
            let why = format!("client doesn't have caps to mount \"/{root}\"");
            self.refuse(conn, peer, session_op::REJECT, &why);
            return;
        }
        let required = &self.world.map.required_client_features;
        if required.bits().any(|b| !detail.features.has(b)) {
            self.refuse(conn, peer, session_op::REJECT, "missing required features");
            return;
        }
        let uuid = detail.metadata.get(&b"uuid"[..]).cloned().unwrap_or_default();
        if self.has_uuid(&uuid, client) {
            self.refuse(conn, peer, session_op::REJECT, "duplicated session uuid");
            return;
        }
        let known = self.sessions.by_client.get(&client).map(|s| s.info.clone());
        let mut info = known.unwrap_or_default();
        info.inst = EntityInst { name: peer.id, addr: peer.addr };
        info.auth_name = peer.name.clone();
        info.metadata = ClientMetadata {
            kv: detail.metadata.clone(),
            features: detail.features.clone(),
            metrics: detail.metrics.clone(),
        };
        let known = Some(Box::new(info.clone()));
        let session = Session::new(peer.clone(), Some(conn), info, self.world.ms());
        self.sessions.by_client.insert(client, session);
        self.sessions.ended.remove(&client);
        self.sessions.by_conn.insert(conn, client);
        self.note_session(client, known);
        self.send_open(client);
    }

    /// Records what a session is now; that it ended, without `info`.
    pub fn note_session(&mut self, client: i64, info: Option<Box<SessionInfo>>) {
        self.tables.sessions += 1;
        let (version, table) = (self.tables.sessions, self.tables.inos.version);
        self.note(Change::Session { version, table, client, info });
    }

    /// Tells a client that its session is open.
    pub fn send_open(&mut self, client: i64) {
        let Some(session) = self.sessions.by_client.get(&client) else { return };
        let detail = SessionDetail {
            features: FeatureBits::from_word(FEATURES),
            cap_auths: session.peer.caps.auths(),
            ..SessionDetail::default()
        };
        let open = ClientSession {
            op: session_op::OPEN,
            detail: Some(Box::new(detail)),
            ..ClientSession::default()
        };
        self.send(client, &open, 0);
    }

    /// Ends a session: what it held is free, numbers reserved for it are free again.
    pub fn end_session(&mut self, client: i64, killed: bool) {
        let Some(session) = self.sessions.by_client.remove(&client) else { return };
        if killed && let Some(conn) = session.conn {
            let close = ClientSession { op: session_op::CLOSE, ..ClientSession::default() };
            self.send_to(conn, &close, session.peer.features, 0);
            self.behind(Effect::Close(conn));
        }
        if let Some(conn) = session.conn {
            self.sessions.by_conn.remove(&conn);
        }
        self.sessions.ended.insert(client);
        self.reclaimed(client, session.info.inst.addr);
        let mut freed = BTreeSet::new();
        for (request, holds) in self.requests.drop_client(client) {
            for ino in holds {
                if let Some(node) = self.tree.nodes.get_mut(&ino) {
                    node.caps.holds.remove(&request);
                    freed.insert(ino);
                }
            }
        }
        for (start, len) in session.info.prealloc_inos.iter() {
            self.tables.inos.table.free.insert(start, len);
        }
        self.tables.inos.version += 1;
        self.note_session(client, None);
        freed.extend(session.caps);
        for ino in freed {
            let Some(node) = self.tree.nodes.get_mut(&ino) else { continue };
            node.caps.by_client.remove(&client);
            node.unflushed.remove(&client);
            if node.locks.drop_client(client) {
                self.requests.wake_locks(ino, &node.locks, None);
            }
            if node.store.inode.file.client_ranges.contains_key(&client) {
                if killed {
                    self.purger.unsettled.insert(ino);
                } else {
                    self.drop_range(ino, client);
                }
            }
            self.eval(ino);
            self.requests.wake_caps(ino);
            self.eval_stray(ino);
        }
    }

    /// A client that may not go on: blocklisted first, then its session ends.
    pub fn evict(&mut self, client: i64) {
        let blocklist = self.world.config.options.blocklist;
        let Some(session) = self.sessions.by_client.get_mut(&client) else { return };
        if session.life == Life::Killing {
            return;
        }
        session.life = Life::Killing;
        let addr = session.info.inst.addr;
        let text = format!("Evicting (and blocklisting) client session {client} ({addr})");
        self.fx.push(Effect::ClusterLog { severity: crate::Severity::Warning, text });
        if blocklist {
            let id = self.job(Job::Blocklisted(client));
            self.fx.push(Effect::Blocklist { id, addr });
        } else {
            self.end_session(client, true);
        }
    }

    /// Ends the sessions of clients that the map of OSDs shuts out: nobody waits for what they hold.
    pub fn end_blocklisted(&mut self) {
        if !self.boot.is_done() || self.boot.is_stopping() {
            return;
        }
        let map = &self.world.osd.map;
        let is_out = |s: &Session| map.blocklisted_until(&s.info.inst.addr).is_some();
        let all = self.sessions.by_client.iter();
        let out: Vec<i64> = all.filter(|(_, s)| is_out(s)).map(|(client, _)| *client).collect();
        for client in out {
            tracing::info!(client, "the map of OSDs shuts it out: its session ends");
            self.end_session(client, true);
        }
        self.reconnect_check();
    }

    /// Clients may hear before this server that they can come back.
    pub fn run_early_reconnects(&mut self) {
        let early = self.requests.take_later(|_, _, what| matches!(what, Later::Reconnect(_)));
        for (conn, peer, later) in early {
            if let Later::Reconnect(m) = later {
                self.on_reconnect(conn, &peer, &m);
            }
        }
    }

    /// A client says what it held before this server began.
    pub fn on_reconnect(&mut self, conn: ConnId, peer: &Peer, m: &ClientReconnect) {
        let client = peer.id.num;
        if self.state() != MdsState::RECONNECT && self.wish == Some(MdsState::RECONNECT) {
            self.later(conn, peer, Later::Reconnect(Box::new(m.clone())));
            return;
        }
        let here = self.state() == MdsState::RECONNECT && self.boot.is_done();
        let Some(session) = self.sessions.by_client.get_mut(&client).filter(|_| here) else {
            self.refuse(conn, peer, session_op::CLOSE, "");
            return;
        };
        session.conn = Some(conn);
        session.peer = peer.clone();
        session.renewed_ms = self.world.now.mono_ms();
        session.claimed += m.caps.len();
        let claimed = session.claimed;
        self.sessions.by_conn.insert(conn, client);
        if claimed > CLAIMS_PART * self.world.config.options.caps_per_client_max {
            tracing::warn!(client, claimed, "a client claims more caps than any is given");
            self.evict(client);
            return;
        }
        for (ino, cap) in &m.caps {
            if self.tree.node(*ino).is_some() {
                self.restore_cap(client, *ino, cap);
            } else {
                self.boot.reconnects.entry(*ino).or_default().push((client, cap.clone()));
                self.open_ino(*ino, 0);
            }
        }
        if !m.more {
            if let Some(session) = self.sessions.by_client.get_mut(&client) {
                session.awaited = false;
            }
            self.send_open(client);
            let realms: Vec<Ino> = m.realms.iter().map(|r| r.ino).collect();
            self.tell_realms_again(client, realms.into_iter());
            self.reconnect_check();
        }
    }

    /// What came before the rank was active.
    pub fn run_later(&mut self, wanted: impl FnMut(ConnId, &Peer, &Later) -> bool) {
        for (conn, peer, later) in self.requests.take_later(wanted) {
            let client = peer.id.num;
            let known = self.sessions.by_conn.get(&conn) == Some(&client);
            match later {
                Later::Open(m) => self.open_session(conn, &peer, &m),
                Later::Request(tid, m) => self.on_request(conn, &peer, tid, *m),
                Later::Reconnect(m) => self.on_reconnect(conn, &peer, &m),
                Later::Caps(tid, m) if known => self.on_early_caps(client, &m, tid),
                Later::Release(m) if known => self.on_cap_release(client, &m),
                Later::Caps(..) | Later::Release(_) => {}
            }
        }
    }

    pub fn on_closed(&mut self, conn: ConnId) {
        self.requests.take_later(|c, _, _| c == conn);
        self.gate.close(conn);
        if let Some(client) = self.sessions.by_conn.remove(&conn)
            && let Some(session) = self.sessions.by_client.get_mut(&client)
            && session.conn == Some(conn)
        {
            session.conn = None;
        }
    }

    pub fn session_tick(&mut self) {
        let now = self.world.ms();
        let timeout = u64::from(self.world.map.session_timeout) * 1000;
        let autoclose = u64::from(self.world.map.session_autoclose) * 1000;
        let mut evicted = Vec::new();
        let mut stale = Vec::new();
        for (client, session) in &self.sessions.by_client {
            let silent = now.saturating_sub(session.renewed_ms);
            let autoclose = session.timeout_ms().unwrap_or(autoclose);
            if session.life != Life::Killing && silent > autoclose {
                evicted.push(*client);
            } else if session.life == Life::Open && silent > timeout {
                stale.push(*client);
            }
        }
        for client in stale {
            let waited = self.sessions.by_client[&client].caps.iter().any(|ino| {
                let node = self.tree.node(*ino);
                node.is_some_and(|n| n.caps.by_client.get(&client).is_some_and(|c| c.is_revoking()))
            });
            if waited {
                // Somebody needs what it holds, and it says nothing.
                evicted.push(client);
                continue;
            }
            if let Some(session) = self.sessions.by_client.get_mut(&client) {
                session.life = Life::Stale;
            }
            let message = ClientSession { op: session_op::STALE, ..ClientSession::default() };
            self.send(client, &message, 0);
        }
        for client in evicted {
            self.evict(client);
        }
    }

    /// A number for a new inode, out of those reserved for the client; the one that the client names
    /// in a request that is replayed. More are reserved before they run out, so that mostly the record
    /// of that is durable long before. EPERM, ENOSPC, ESTALE.
    pub fn new_ino(&mut self, call: &Call) -> Op<Ino> {
        let client = call.client;
        let session = self.sessions.by_client.get(&client).ok_or(Errno::PERM)?;
        let held = &session.info.prealloc_inos;
        if call.m.flags & request_flag::REPLAY != 0 && call.m.ino.0 != 0 {
            let ino = call.m.ino.0;
            if !held.contains(ino) {
                if !self.tables.inos.table.free.contains(ino) {
                    tracing::warn!(client, ino, "a client names a number that it was not given");
                    return Err(errno::STALE.into());
                }
                self.tables.inos.table.free.remove(ino, 1);
                self.tables.inos.version += 1;
                self.reserved(client, ino, 1);
            }
            return Ok(self.spend_ino(client, ino));
        }
        let count = self.world.config.options.prealloc_inos.max(1);
        let is_known = session.reserved.0 <= self.journal.durable;
        if held.is_empty() || is_known && held.size() <= count / 2 {
            match self.tables.take(count) {
                Some((start, len)) => self.reserved(client, start, len),
                None if held.is_empty() => return Err(Errno::NOSPC.into()),
                None => {}
            }
        }
        let session = self.sessions.by_client.get(&client).ok_or(Errno::PERM)?;
        let (seq, from, to) = session.reserved;
        let is_young = |ino: u64| seq > self.journal.durable && (from..to).contains(&ino);
        let old = session.info.prealloc_inos.iter().find_map(|(start, len)| {
            let first = if is_young(start) { to } else { start };
            (first < start + len).then_some(first)
        });
        let young = || session.info.prealloc_inos.iter().next().map(|(start, _)| start);
        let ino = old.or_else(young).ok_or(Errno::NOSPC)?;
        if is_young(ino) {
            // After a crash it must not be anybody else's.
            self.tree.tags.note(seq);
        }
        Ok(self.spend_ino(client, ino))
    }

    fn spend_ino(&mut self, client: i64, ino: u64) -> Ino {
        if let Some(session) = self.sessions.by_client.get_mut(&client) {
            session.info.prealloc_inos.remove(ino, 1);
            session.dirty = true;
        }
        Ino(ino)
    }

    /// Records numbers that were taken from the table for a client.
    fn reserved(&mut self, client: i64, start: u64, len: u64) {
        self.tables.sessions += 1;
        let (version, table) = (self.tables.sessions, self.tables.inos.version);
        self.note(Change::Reserve { version, table, client, start, len });
        if let Some(session) = self.sessions.by_client.get_mut(&client) {
            session.info.prealloc_inos.insert(start, len);
            session.reserved = (self.journal.submitted, start, start + len);
        }
    }
}

/// Applies a change of sessions or tables, when it is newer than what was read.
pub(crate) fn replay(
    change: &Change,
    sessions: &mut BTreeMap<i64, SessionInfo>,
    tables: &mut crate::tables::Tables,
) {
    let free = &mut tables.inos;
    match change {
        Change::Session { version, table, client, info } if *version > tables.sessions => {
            tables.sessions = *version;
            match info {
                Some(info) => {
                    sessions.insert(*client, (**info).clone());
                }
                None => {
                    // Where the table of numbers is ahead, they may be somebody else's by now.
                    if let Some(info) = sessions.remove(client)
                        && *table > free.version
                    {
                        for (start, len) in info.prealloc_inos.iter() {
                            free.table.free.insert(start, len);
                        }
                        free.version = *table;
                    }
                }
            }
        }
        Change::Request { version, client, tid, ino } if *version > tables.sessions => {
            tables.sessions = *version;
            if let Some(info) = sessions.get_mut(client) {
                info.completed_requests.insert(*tid, *ino);
                info.prealloc_inos.remove(ino.0, 1);
            }
        }
        Change::Flush { version, client, tid } if *version > tables.sessions => {
            tables.sessions = *version;
            if let Some(info) = sessions.get_mut(client) {
                info.completed_flushes.insert(*tid);
            }
        }
        Change::Reserve { version, table, client, start, len } => {
            if *version > tables.sessions {
                tables.sessions = *version;
                if let Some(info) = sessions.get_mut(client) {
                    let run: InoIntervals = [(*start, *len)].into_iter().collect();
                    info.prealloc_inos.union(&run);
                }
            }
            if *table > free.version {
                free.version = *table;
                free.table.free.remove(*start, *len);
            }
        }
        Change::Snaps { version, table } if *version > tables.snaps.version => {
            match denc::Denc::from_shared(table) {
                Ok(snaps) => (tables.snaps, tables.snaps_dirty) = (snaps, true),
                Err(e) => tracing::error!(%e, "a recorded table of snapshots cannot be read"),
            }
        }
        _ => {}
    }
}
