//! Clients' messages on their way to the leader, and the answers on their way back.
//!
//! A monitor keeps each message that only a leader can answer until the leader says that
//! nothing more comes for it, and sends it again to the next one: it is handled at least
//! once. The leader gives each client of another monitor a connection of its own numbering
//! (a proxy) and serves it like its own clients.
//!
//! Answers carry the entry that they were computed from; the client's monitor passes them
//! on when it knows the log that far. So what a client sees never goes back in time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use env::ConnId;
use messages::*;
use types::Epoch;

use super::others::Standing;
use super::{Monitor, Output, Wish};
use crate::doors::{Cost, Kind};
use crate::peer::{self, PeerSays, Who};
use crate::session::Session;
use crate::{Reply, Subscription};

/// Connections that are another monitor's.
const PROXY: u64 = 1 << 62;
/// Callers at the admin socket, as connections.
const LOCAL: u64 = 1 << 61;
/// Messages that may wait for a leader.
const FORWARDS_MAX: usize = 100_000;

/// Bytes of clients' messages that may wait until this monitor knows whether it leads.
const HELD_BYTES_MAX: usize = 256 << 20;

/// Bytes that another monitor passes on for a client.
fn carried(says: &PeerSays) -> usize {
    match says {
        PeerSays::Forward { env, .. } => env.size(),
        _ => 0,
    }
}

/// Whether the client is connected to another monitor.
pub(super) fn is_proxy(conn: ConnId) -> bool {
    conn.0 & PROXY != 0 && conn.0 & (1 << 63) == 0
}

fn is_local(conn: ConnId) -> bool {
    conn.0 & (PROXY | LOCAL | 1 << 63) == LOCAL
}

/// A message that only a leader can answer.
struct Kept {
    conn: ConnId,
    env: Envelope,
}

/// What is answered from a state that is not older than the question.
enum Read {
    Message(Envelope),
    /// A subscription to OSD maps of a client that has none yet.
    OsdMaps(Subscription),
}

/// Something that waits for the log.
enum Later {
    Route { conn: ConnId, env: Option<Envelope> },
    CatchUp { conn: ConnId, has: Epoch, subscribe: bool },
    Reads(Vec<(ConnId, Read)>),
}

/// What a monitor has on its way to the leader and back.
#[derive(Default)]
pub(super) struct Forwards {
    kept: BTreeMap<u64, Kept>,
    unsent: BTreeSet<u64>,
    next_rid: u64,
    /// Clients that the leader knows.
    told: BTreeSet<ConnId>,
    later: VecDeque<(u64, Later)>,
    /// Reads that were asked for, under this number, and those that come after them.
    reading: Option<(u64, Vec<(ConnId, Read)>)>,
    reads: Vec<(ConnId, Read)>,
    next_read: u64,
    // The leader's side.
    proxies: BTreeMap<ConnId, (u64, ConnId)>,
    proxy_of: BTreeMap<(u64, ConnId), ConnId>,
    next_proxy: u64,
    /// Bytes of clients in `Monitor::held`.
    held_bytes: usize,
}

impl Monitor {
    /// A client's message: answered here or on its way to the leader.
    pub(super) fn take(&mut self, conn: ConnId, env: &Envelope) {
        let Some(session) = self.sessions.get(&conn) else { return };
        let Some(kind) = Kind::of(env.kind) else {
            tracing::debug!("message {:#x} is not for monitors", env.kind);
            return;
        };
        let rule = kind.rule();
        if let Err(why) = rule.admits(session) {
            tracing::warn!("{kind:?} of {}: {why}", session.info.name);
            return; // before it is kept for anybody
        }
        match (rule.cost, self.others.standing) {
            (Cost::Here, _) => self.dispatch_or_drop(conn, env),
            (Cost::Read, Standing::Following(_)) => {
                self.put_aside(conn, env);
                self.forwards.reads.push((conn, Read::Message(env.clone())));
                self.ask_reads();
            }
            (Cost::LeaderOnce, Standing::Following(leader)) => {
                self.send_forward(leader, 0, conn, env.clone());
            }
            (Cost::LeaderOnce, Standing::Electing) => {}
            (Cost::Read | Cost::Leader | Cost::LeaderOnce, _) => self.keep(conn, env.clone()),
        }
    }

    /// Keeps a message until a leader has answered it.
    pub(super) fn keep(&mut self, conn: ConnId, env: Envelope) {
        if self.forwards.kept.len() >= FORWARDS_MAX {
            return self.drop_session(conn, "too much is waiting for a leader");
        }
        self.put_aside(conn, &env);
        self.forwards.next_rid += 1;
        let rid = self.forwards.next_rid;
        self.forwards.kept.insert(rid, Kept { conn, env });
        self.forwards.unsent.insert(rid);
        self.pump();
    }

    fn let_go(&mut self, rid: u64) {
        if let Some(Kept { conn, env }) = self.forwards.kept.remove(&rid) {
            self.take_back(conn, &env);
        }
    }

    /// Counts to a session what waits for a leader, its answer, or a commit.
    pub(super) fn put_aside(&mut self, conn: ConnId, env: &Envelope) {
        if let Some(session) = self.sessions.get_mut(&conn) {
            session.aside.add(env.size());
        }
    }

    /// Something that was put aside waits no more.
    pub(super) fn take_back(&mut self, conn: ConnId, env: &Envelope) {
        if let Some(session) = self.sessions.get_mut(&conn) {
            session.aside.remove(env.size());
        }
    }

    /// Whether so much waits for a session that nothing more is to be read from it.
    #[must_use]
    pub fn is_held(&self, conn: ConnId) -> bool {
        self.sessions.get(&conn).is_some_and(|session| session.aside.is_full())
    }

    /// A command at the admin socket that only a leader can answer.
    pub(super) fn keep_local(&mut self, id: u64, cmd: &[bytes::Bytes], input: &bytes::Bytes) {
        let command = MonCommand {
            paxos: Paxos::default(),
            fsid: self.state.fsid,
            cmd: cmd.to_vec(),
            input: input.clone(),
        };
        let env = command.envelope(denc::Features::ALL).with_tid(id);
        self.keep(ConnId(LOCAL | id), env);
    }

    /// Whoever leads may be another, or have forgotten: everything unanswered goes again.
    pub(super) fn leader_changed(&mut self) {
        let f = &mut self.forwards;
        f.told.clear();
        f.unsent = f.kept.keys().copied().collect();
        if let Some((_, mut reads)) = f.reading.take() {
            reads.append(&mut f.reads);
            f.reads = reads;
        }
    }

    /// Sends, or serves, what waits, as far as that can be done now.
    pub(super) fn pump(&mut self) {
        if self.pumping {
            return;
        }
        self.pumping = true;
        self.pump_all();
        self.pumping = false;
    }

    fn pump_all(&mut self) {
        let now_ms = self.now.mono_ms();
        match self.others.standing {
            Standing::Electing => {}
            Standing::Leading => {
                if !self.others.is_fresh(self.config.node, now_ms) {
                    return;
                }
                for (conn, read) in std::mem::take(&mut self.forwards.reads) {
                    match read {
                        Read::Message(env) => {
                            self.take_back(conn, &env);
                            self.keep(conn, env);
                        }
                        Read::OsdMaps(sub) => self.subscribe_first(conn, sub),
                    }
                }
                while let Some((node, says)) = self.held.pop_front() {
                    self.forwards.held_bytes -= carried(&says);
                    self.on_forwarding(node, says);
                }
                while let Some(rid) = self.forwards.unsent.pop_first() {
                    let Some(kept) = self.forwards.kept.get(&rid) else { continue };
                    let (conn, env) = (kept.conn, kept.env.clone());
                    self.serve(None, rid, conn, &env);
                }
            }
            Standing::Following(leader) => {
                if !self.others.connected().any(|n| n == leader) {
                    return;
                }
                self.ask_reads();
                while let Some(rid) = self.forwards.unsent.pop_first() {
                    let Some(kept) = self.forwards.kept.get(&rid) else { continue };
                    let (conn, env) = (kept.conn, kept.env.clone());
                    self.send_forward(leader, rid, conn, env);
                }
            }
        }
    }

    fn send_forward(&mut self, leader: u64, rid: u64, conn: ConnId, env: Envelope) {
        let who = if self.forwards.told.insert(conn) {
            match self.sessions.get(&conn) {
                Some(session) => Some(peer::who(session)),
                None if is_local(conn) => Some(self.local_who()),
                None => return,
            }
        } else {
            None
        };
        let says = PeerSays::Forward { rid, conn, who, env };
        self.out.push(Wish::Says { node: leader, says });
    }

    fn local_who(&self) -> Box<Who> {
        let info = self.local_session();
        let identity = ::auth::PeerIdentity {
            name: info.name.clone(),
            allow_all: true,
            ..::auth::PeerIdentity::default()
        };
        let peer = crate::PeerInfo {
            identity,
            entity: info.entity,
            features: info.features,
            addrs: info.addrs,
            at_mgr: false,
        };
        peer::who(&Session::new(ConnId(0), peer))
    }

    /// Subscribes a client that has no OSD map, once this monitor knows all that was acknowledged
    /// before: it judges by the map what exists, and another monitor may have answered it before.
    pub(super) fn subscribe_read(&mut self, conn: ConnId, sub: Subscription) {
        self.forwards.reads.push((conn, Read::OsdMaps(sub)));
        self.pump();
    }

    /// Asks the leader for the place in the log at which what waits may be read. Not before the
    /// leader has told who agrees, for answers tell that too.
    pub(super) fn ask_reads(&mut self) {
        let Standing::Following(leader) = self.others.standing else { return };
        if self.volatile.quorum.leader.is_empty() {
            return;
        }
        let connected = self.others.connected().any(|n| n == leader);
        if !connected || self.forwards.reading.is_some() || self.forwards.reads.is_empty() {
            return;
        }
        self.forwards.next_read += 1;
        let id = self.forwards.next_read;
        self.forwards.reading = Some((id, std::mem::take(&mut self.forwards.reads)));
        self.out.push(Wish::Says { node: leader, says: PeerSays::ReadAsk { id } });
    }

    /// Answers a message as the leader; `to`: the monitor it came by.
    fn serve(&mut self, to: Option<u64>, rid: u64, conn: ConnId, env: &Envelope) {
        self.serving = Some((to, rid));
        if is_local(conn) {
            if let Ok(msg) = MonCommand::decode(env) {
                self.local_command(conn.0 & !LOCAL, &msg.cmd, &msg.input);
            }
        } else if self.sessions.contains_key(&conn) {
            self.dispatch_or_drop(conn, env);
        }
        if let Some((to, rid)) = self.serving.take()
            && rid != 0
        {
            self.emit(Wish::Served { to, rid });
        }
    }

    /// Nothing more comes for a message.
    pub(super) fn served(&mut self, to: Option<u64>, rid: u64) -> Option<(u64, PeerSays)> {
        match to {
            Some(node) => Some((node, PeerSays::Done { rid })),
            None => {
                self.let_go(rid);
                None
            }
        }
    }

    // ----- what other monitors say about it -----

    pub(super) fn on_forwarding(&mut self, node: u64, says: PeerSays) {
        match says {
            PeerSays::Forward { .. } | PeerSays::ReadAsk { .. } => {
                if self.others.is_fresh(self.config.node, self.now.mono_ms()) {
                    self.on_asked(node, says);
                } else if !matches!(self.others.standing, Standing::Following(_))
                    && self.held.len() < FORWARDS_MAX
                    && self.forwards.held_bytes < HELD_BYTES_MAX
                {
                    // It may be this monitor that leads, in a moment.
                    self.forwards.held_bytes += carried(&says);
                    self.held.push_back((node, says));
                }
            }
            PeerSays::Gone { conn } => {
                if let Some(proxy) = self.forwards.proxy_of.remove(&(node, conn)) {
                    self.forget_proxy(proxy);
                }
            }
            PeerSays::Route { conn, index, env } => self.later(index, Later::Route { conn, env }),
            PeerSays::CatchUp { conn, index, has, subscribe } => {
                self.later(index, Later::CatchUp { conn, has, subscribe });
            }
            PeerSays::Done { rid } => {
                self.let_go(rid);
                self.forwards.unsent.remove(&rid);
            }
            PeerSays::ReadAt { id, index } => {
                if self.forwards.reading.as_ref().is_some_and(|r| r.0 == id)
                    && let Some((_, reads)) = self.forwards.reading.take()
                {
                    self.later(index, Later::Reads(reads));
                    self.ask_reads();
                }
            }
            _ => {}
        }
    }

    fn on_asked(&mut self, node: u64, says: PeerSays) {
        match says {
            PeerSays::ReadAsk { id } => {
                let says = PeerSays::ReadAt { id, index: self.applied };
                self.out.push(Wish::Says { node, says });
            }
            PeerSays::Forward { rid, conn, who, env } => {
                let Some(proxy) = self.proxy(node, conn, who) else {
                    // Whose it is was said before this monitor forgot: from the beginning.
                    let says = PeerSays::Route { conn, index: 0, env: None };
                    return self.out.push(Wish::Says { node, says });
                };
                let is_over = self.sessions.get(&proxy).is_some_and(|s| s.aside.is_over());
                if is_over || self.gated.len() > super::GATED_MAX {
                    return self.drop_session(proxy, "too much is waiting for commits");
                }
                self.serve(Some(node), rid, proxy, &env);
            }
            _ => {}
        }
    }

    /// The connection number of another monitor's client.
    fn proxy(&mut self, node: u64, conn: ConnId, who: Option<Box<Who>>) -> Option<ConnId> {
        let known = self.forwards.proxy_of.get(&(node, conn)).copied();
        let Some(who) = who else { return known };
        let proxy = known.unwrap_or_else(|| {
            self.forwards.next_proxy += 1;
            ConnId(PROXY | self.forwards.next_proxy)
        });
        self.forwards.proxy_of.insert((node, conn), proxy);
        self.forwards.proxies.insert(proxy, (node, conn));
        let (info, hostname) = peer::peer_info(*who);
        self.on_opened(self.now, proxy, info);
        if let Some(session) = self.sessions.get_mut(&proxy) {
            session.info.hostname = hostname;
        }
        Some(proxy)
    }

    fn forget_proxy(&mut self, proxy: ConnId) {
        self.note_left(proxy);
        self.forwards.proxies.remove(&proxy);
        self.sessions.remove(&proxy);
    }

    pub(super) fn forget_proxies_of(&mut self, node: u64) {
        let all: Vec<_> =
            self.forwards.proxy_of.extract_if(.., |(n, _), _| *n == node).map(|(_, p)| p).collect();
        for proxy in all {
            self.forget_proxy(proxy);
        }
    }

    pub(super) fn forget_all_proxies(&mut self) {
        for (_, proxy) in std::mem::take(&mut self.forwards.proxy_of) {
            self.forget_proxy(proxy);
        }
    }

    /// A client is gone: nothing waits for its answers.
    pub(super) fn forget_session(&mut self, conn: ConnId) {
        self.note_left(conn);
        if let Some((node, remote)) = self.forwards.proxies.remove(&conn) {
            self.forwards.proxy_of.remove(&(node, remote));
        }
        if self.sessions.remove(&conn).is_some_and(|session| session.aside.holds()) {
            self.gated.retain(|(_, wish)| !wish.sends_to(conn));
        }
        self.volatile.services.forget(conn);
        self.forwards.kept.retain(|_, k| k.conn != conn);
        self.forwards.reads.retain(|(c, _)| *c != conn);
        if self.forwards.told.remove(&conn)
            && let Standing::Following(leader) = self.others.standing
        {
            self.out.push(Wish::Says { node: leader, says: PeerSays::Gone { conn } });
        }
    }

    /// Where another monitor's client is to be reached.
    pub(super) fn route_to(&self, conn: ConnId) -> Option<(u64, ConnId)> {
        self.forwards.proxies.get(&conn).copied()
    }

    /// Closes a client's connection, wherever that is.
    pub(super) fn close_output(&mut self, conn: ConnId) -> Wish {
        match self.forwards.proxies.get(&conn) {
            Some(&(node, conn)) => {
                Wish::Says { node, says: PeerSays::Route { conn, index: 0, env: None } }
            }
            None => Wish::Do(Output::Close { conn }),
        }
    }

    /// Has another monitor's client caught up there; `false` where it is a client here.
    pub(super) fn catch_up_there(&mut self, conn: ConnId, has: Epoch, subscribe: bool) -> bool {
        let Some(&(node, conn)) = self.forwards.proxies.get(&conn) else { return false };
        // It waits, as answers do, for the batch being made.
        self.emit(Wish::CatchUp { node, conn, has, subscribe });
        true
    }

    // ----- what waits for the log -----

    fn later(&mut self, index: u64, what: Later) {
        self.forwards.later.push_back((index, what));
        self.deliver_later();
    }

    /// Does what waited for the log as far as it is known now.
    pub(super) fn deliver_later(&mut self) {
        while self.forwards.later.front().is_some_and(|(index, _)| *index <= self.applied) {
            let Some((_, what)) = self.forwards.later.pop_front() else { return };
            match what {
                Later::Route { conn, env: Some(env) } if is_local(conn) => {
                    if let Ok(ack) = MonCommandAck::decode(&env) {
                        let reply = Reply { r: ack.r, rs: ack.rs, out: ack.output };
                        let id = conn.0 & !LOCAL;
                        self.out.push(Wish::Do(Output::Local { id, reply }));
                    }
                }
                Later::Route { conn, env: Some(env) } => {
                    if self.sessions.contains_key(&conn) {
                        self.out.push(Wish::Do(Output::Send { conn, env }));
                    }
                }
                Later::Route { conn, env: None } => {
                    if self.sessions.contains_key(&conn) {
                        self.drop_session(conn, "the leader wants it closed");
                    }
                }
                Later::CatchUp { conn, has, subscribe } => {
                    if subscribe {
                        self.osd_boot_waits(conn, has);
                    }
                    self.catch_up(conn, has);
                }
                Later::Reads(reads) => {
                    for (conn, read) in reads {
                        if !self.sessions.contains_key(&conn) {
                            continue;
                        }
                        match read {
                            Read::Message(env) => {
                                self.take_back(conn, &env);
                                self.dispatch_or_drop(conn, &env);
                            }
                            Read::OsdMaps(sub) => self.subscribe_first(conn, sub),
                        }
                    }
                }
            }
        }
    }
}
