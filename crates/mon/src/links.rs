//! A monitor's connections to the others: each dials every other and speaks on the
//! connection that it dialled; answers to a log's questions come back on the same one.
//!
//! A connection counts from the moment both have said who they are, and until it breaks or
//! nothing was heard of the other for [`SILENT_MS`]. Who carries bytes is the world, behind
//! [`Wire`].

use std::collections::BTreeMap;

use bytes::Bytes;
use env::{ConnId, Now};
use maps::MonMap;
use messages::Envelope;
use types::{AddrVec, Uuid};

use crate::peer::{LOG_ANSWER, LOG_ASK, PeerSays, SAYS};
use crate::quorum::Call;
use crate::vitals::{VITALS, Vitals};

/// Silence after which a connection is made anew.
const SILENT_MS: u64 = 3_000;
/// The first pause before dialling again; it doubles.
const PAUSE_MIN_MS: u64 = 20;
/// The longest pause.
const PAUSE_MAX_MS: u64 = 500;

/// What carries messages between monitors.
pub trait Wire {
    /// Begins to dial. [`Links::on_opened`] or [`Links::lost`] tells how it went.
    fn dial(&mut self, addrs: &AddrVec) -> ConnId;

    /// Sends, in order; nothing where the connection is gone.
    fn send(&mut self, conn: ConnId, env: Envelope);

    /// Ends a connection.
    fn close(&mut self, conn: ConnId);
}

/// Who this monitor is to the others.
#[derive(Clone, Debug)]
pub struct Me {
    /// The cluster.
    pub fsid: Uuid,
    /// Its number in the quorum.
    pub node: u64,
    /// Its name in the monitor map.
    pub name: String,
}

/// What happened among the monitors.
#[derive(Debug)]
pub enum PeerEvent {
    /// One can be spoken to.
    Up(u64, String),
    /// One that can be spoken to dialled this monitor; what it said on an earlier connection may
    /// be lost.
    Dialled(u64),
    /// One cannot any more.
    Down(u64),
    /// One said something.
    Says(u64, PeerSays),
    /// The leader asks how this one fares, or is told.
    Vitals(u64, Vitals),
    /// One's log asks this one's; the answer goes to the connection under the number.
    Ask(ConnId, u64, Bytes),
    /// One's log admitted what it was sent at a time.
    Admitted(u64, u64),
}

#[derive(Default)]
struct Link {
    addrs: AddrVec,
    conn: Option<ConnId>,
    /// Known once it has said so on `conn`.
    node: Option<u64>,
    retry_at_ms: u64,
    pause_ms: u64,
}

struct Waiting {
    conn: ConnId,
    node: u64,
    sent_ms: u64,
    answer: tokio::sync::oneshot::Sender<Bytes>,
}

/// See the module's page.
pub struct Links {
    me: Me,
    /// By name.
    links: BTreeMap<String, Link>,
    dialled: BTreeMap<ConnId, String>,
    /// Connections that others dialled, and whose they are.
    accepted: BTreeMap<ConnId, Option<u64>>,
    heard_ms: BTreeMap<u64, u64>,
    calls: BTreeMap<u64, Waiting>,
    next_tid: u64,
}

impl Links {
    /// None yet.
    #[must_use]
    pub fn new(me: Me) -> Self {
        Self {
            me,
            links: BTreeMap::new(),
            dialled: BTreeMap::new(),
            accepted: BTreeMap::new(),
            heard_ms: BTreeMap::new(),
            calls: BTreeMap::new(),
            next_tid: 0,
        }
    }

    /// This monitor's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.me.name
    }

    /// Whether a connection is another monitor's.
    #[must_use]
    pub fn owns(&self, conn: ConnId) -> bool {
        self.dialled.contains_key(&conn) || self.accepted.contains_key(&conn)
    }

    /// Dials whom the map names and is not connected; to be called often. `voters` are those
    /// that count in the log: connections to them stay, in the map or not.
    pub fn tick(
        &mut self,
        now: Now,
        map: &MonMap,
        voters: &BTreeMap<u64, String>,
        wire: &mut dyn Wire,
    ) -> Vec<PeerEvent> {
        let now_ms = now.mono_ms();
        let mut events = Vec::new();
        for info in map.mons.values() {
            if info.name == self.me.name {
                continue;
            }
            let link = self.links.entry(info.name.clone()).or_default();
            if link.addrs != info.addrs {
                link.addrs = info.addrs.clone();
                link.retry_at_ms = 0;
                let old = link.conn;
                if let Some(conn) = old {
                    wire.close(conn);
                    events.extend(self.lost(now, conn));
                }
            }
        }
        let stays = |n: &String| map.mons.contains_key(n) || voters.values().any(|v| v == n);
        let gone: Vec<String> = self.links.keys().filter(|n| !stays(n)).cloned().collect();
        for name in gone {
            if let Some(Link { conn: Some(conn), .. }) = self.links.get(&name) {
                let conn = *conn;
                wire.close(conn);
                events.extend(self.lost(now, conn));
            }
            self.links.remove(&name);
        }
        let silent: Vec<ConnId> = self
            .links
            .values()
            .filter(|l| {
                let heard = l.node.and_then(|n| self.heard_ms.get(&n));
                heard.is_some_and(|t| now_ms > t + SILENT_MS)
            })
            .filter_map(|l| l.conn)
            .collect();
        for conn in silent {
            wire.close(conn);
            events.extend(self.lost(now, conn));
        }
        let due = self.links.iter().filter(|(_, l)| l.conn.is_none() && now_ms >= l.retry_at_ms);
        for name in due.map(|(n, _)| n.clone()).collect::<Vec<_>>() {
            self.dial(&name, wire);
        }
        events
    }

    fn dial(&mut self, name: &str, wire: &mut dyn Wire) {
        let Some(link) = self.links.get_mut(name) else { return };
        let conn = wire.dial(&link.addrs);
        link.conn = Some(conn);
        link.node = None;
        self.dialled.insert(conn, name.to_owned());
    }

    fn hello(&self) -> Envelope {
        let Me { fsid, node, name, .. } = &self.me;
        PeerSays::Hello { fsid: *fsid, node: *node, name: name.clone() }.envelope()
    }

    /// A connection that was dialled here, or by another monitor, is open.
    pub fn on_opened(&mut self, now: Now, conn: ConnId, wire: &mut dyn Wire) {
        if self.dialled.contains_key(&conn) {
            wire.send(conn, self.hello());
            return;
        }
        self.accepted.insert(conn, None);
        // Who dials is there: no need to wait before dialling back.
        for link in self.links.values_mut().filter(|l| l.conn.is_none()) {
            link.retry_at_ms = now.mono_ms();
        }
    }

    /// A connection is over.
    pub fn lost(&mut self, now: Now, conn: ConnId) -> Vec<PeerEvent> {
        let was = self.accepted.remove(&conn).flatten();
        self.calls.retain(|_, w| w.conn != conn);
        let Some(name) = self.dialled.remove(&conn) else {
            let lost = was.filter(|node| self.conn_of(*node).is_none());
            return lost.map(PeerEvent::Down).into_iter().collect();
        };
        let Some(link) = self.links.get_mut(&name).filter(|l| l.conn == Some(conn)) else {
            return Vec::new();
        };
        link.conn = None;
        link.pause_ms = (link.pause_ms * 2).clamp(PAUSE_MIN_MS, PAUSE_MAX_MS);
        link.retry_at_ms = now.mono_ms() + link.pause_ms;
        link.node.take().map(PeerEvent::Down).into_iter().collect()
    }

    /// A message on a connection of another monitor.
    pub fn on_message(
        &mut self,
        now: Now,
        conn: ConnId,
        env: &Envelope,
        wire: &mut dyn Wire,
    ) -> Vec<PeerEvent> {
        let now_ms = now.mono_ms();
        let from = match self.dialled.get(&conn) {
            Some(name) => self.links.get(name).and_then(|l| l.node),
            None => self.accepted.get(&conn).copied().flatten(),
        };
        if let Some(node) = from {
            self.heard_ms.insert(node, now_ms);
        }
        match env.kind {
            SAYS => match (PeerSays::decode(env), from) {
                (Ok(PeerSays::Hello { fsid, node, name }), _) => {
                    return self.on_hello(now_ms, conn, (fsid, node, name), wire);
                }
                (Ok(says), Some(node)) => return vec![PeerEvent::Says(node, says)],
                (Ok(_), None) => {}
                (Err(e), _) => {
                    tracing::warn!("from another monitor: {e}");
                    wire.close(conn);
                    return self.lost(now, conn);
                }
            },
            VITALS => {
                if let (Ok(vitals), Some(node)) = (Vitals::decode(env), from) {
                    return vec![PeerEvent::Vitals(node, vitals)];
                }
            }
            LOG_ASK if from.is_some() => {
                return vec![PeerEvent::Ask(conn, env.tid, env.front.clone())];
            }
            LOG_ANSWER => {
                if let Some(waiting) = self.calls.remove(&env.tid) {
                    let admitted = Call::admits(&env.front);
                    waiting.answer.send(env.front.clone()).ok();
                    if admitted {
                        return vec![PeerEvent::Admitted(waiting.node, waiting.sent_ms)];
                    }
                }
            }
            _ => {}
        }
        Vec::new()
    }

    fn on_hello(
        &mut self,
        now_ms: u64,
        conn: ConnId,
        (fsid, node, name): (Uuid, u64, String),
        wire: &mut dyn Wire,
    ) -> Vec<PeerEvent> {
        if fsid != self.me.fsid || node == self.me.node {
            tracing::warn!("mon.{name} ({node}) is of cluster {fsid}, or this one's twin");
            wire.close(conn);
            self.accepted.remove(&conn);
            return Vec::new();
        }
        self.heard_ms.insert(node, now_ms);
        if let Some(known) = self.accepted.get_mut(&conn) {
            *known = Some(node);
            wire.send(conn, self.hello());
            // Whom the map does not name cannot be dialled; it can be spoken to all the same.
            let dialled = self.links.values().any(|l| l.node == Some(node));
            return vec![if dialled {
                PeerEvent::Dialled(node)
            } else {
                PeerEvent::Up(node, name)
            }];
        }
        let Some(link) = self.dialled.get(&conn).and_then(|n| self.links.get_mut(n)) else {
            return Vec::new();
        };
        link.node = Some(node);
        link.pause_ms = 0;
        vec![PeerEvent::Up(node, name)]
    }

    /// The connection that was dialled, or else one that the other dialled: whoever was
    /// just started may know too old a monitor map to dial, and yet be needed by the log.
    fn conn_of(&self, node: u64) -> Option<ConnId> {
        let dialled = self.links.values().find(|l| l.node == Some(node)).and_then(|l| l.conn);
        let accepted = || self.accepted.iter().find(|(_, n)| **n == Some(node)).map(|(c, _)| *c);
        dialled.or_else(accepted)
    }

    /// Says something; lost where the other cannot be reached.
    pub fn send(&self, node: u64, env: Envelope, wire: &mut dyn Wire) {
        if let Some(conn) = self.conn_of(node) {
            wire.send(conn, env);
        }
    }

    /// Carries a log's question; dropped where the other cannot be reached.
    pub fn call(&mut self, now: Now, call: Call, wire: &mut dyn Wire) {
        let Some(conn) = self.conn_of(call.to) else { return };
        self.next_tid += 1;
        let waiting = Waiting { conn, node: call.to, sent_ms: now.mono_ms(), answer: call.answer };
        self.calls.retain(|_, w| !w.answer.is_closed());
        self.calls.insert(self.next_tid, waiting);
        wire.send(conn, own_message(LOG_ASK, self.next_tid, call.body));
    }
}

/// A message of one of our own kinds from a monitor to another: high priority, version 1.
#[must_use]
pub fn own_message(kind: u16, tid: u64, front: Bytes) -> Envelope {
    Envelope {
        kind,
        tid,
        front,
        priority: messages::PRIO_HIGH,
        version: 1,
        compat: 1,
        ..Envelope::default()
    }
}
