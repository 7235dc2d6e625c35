//! A monitor's connections to the others: each dials every other and speaks on the
//! connection that it dialled; answers to a log's questions come back on the same one.
//!
//! A connection counts from the moment both have said who they are, and until it breaks or
//! nothing was heard of the other for [`SILENT_MS`].

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use auth::{AuthorizerClientAuth, ClientAuth, ClientAuthSettings, CryptoKey, SharedRandom};
use bytes::Bytes;
use env::{ConnId, Now};
use maps::MonMap;
use messages::Envelope;
use mon::peer::{LOG_ANSWER, LOG_ASK, PeerSays, SAYS};
use mon::quorum::Call;
use rt::{Messenger, OsRandom, Policy, Redial};
use types::{AddrVec, EntityKind, EntityName, Uuid};

/// Silence after which a connection is made anew.
const SILENT_MS: u64 = 3_000;
/// The first pause before dialling again; it doubles.
const PAUSE_MIN_MS: u64 = 20;
/// The longest pause.
const PAUSE_MAX_MS: u64 = 500;

/// Who this monitor is to the others.
pub struct Me {
    pub fsid: Uuid,
    pub node: u64,
    pub name: String,
    pub key: CryptoKey,
    pub auth_none: bool,
}

/// What happened among the monitors.
pub enum PeerEvent {
    /// One can be spoken to.
    Up(u64, String),
    /// One cannot any more.
    Down(u64),
    /// One said something.
    Says(u64, PeerSays),
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
pub struct Peers {
    me: Me,
    messenger: Messenger,
    /// By name.
    links: BTreeMap<String, Link>,
    dialled: HashMap<ConnId, String>,
    /// Connections that others dialled, and whose they are.
    accepted: HashMap<ConnId, Option<u64>>,
    heard_ms: HashMap<u64, u64>,
    calls: HashMap<u64, Waiting>,
    next_tid: u64,
    random: SharedRandom,
}

impl Peers {
    pub fn new(me: Me, messenger: Messenger) -> Self {
        Self {
            me,
            messenger,
            links: BTreeMap::new(),
            dialled: HashMap::new(),
            accepted: HashMap::new(),
            heard_ms: HashMap::new(),
            calls: HashMap::new(),
            next_tid: 0,
            random: Arc::new(Mutex::new(OsRandom)),
        }
    }

    /// Whether a connection is another monitor's.
    pub fn owns(&self, conn: ConnId) -> bool {
        self.dialled.contains_key(&conn) || self.accepted.contains_key(&conn)
    }

    /// Whether a ticket proves the monitors' own key.
    pub fn proves(identity: &auth::PeerIdentity) -> bool {
        identity.name.kind == EntityKind::MON && identity.allow_all
    }

    /// Dials whom the map names and is not connected; to be called often.
    pub fn tick(&mut self, now: Now, map: &MonMap) -> Vec<PeerEvent> {
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
                    self.messenger.close(conn);
                    events.extend(self.lost(now, conn));
                }
            }
        }
        let gone: Vec<String> =
            self.links.keys().filter(|n| !map.mons.contains_key(*n)).cloned().collect();
        for name in gone {
            if let Some(Link { conn: Some(conn), .. }) = self.links.get(&name) {
                let conn = *conn;
                self.messenger.close(conn);
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
            self.messenger.close(conn);
            events.extend(self.lost(now, conn));
        }
        let due = self.links.iter().filter(|(_, l)| l.conn.is_none() && now_ms >= l.retry_at_ms);
        for name in due.map(|(n, _)| n.clone()).collect::<Vec<_>>() {
            self.dial(&name);
        }
        events
    }

    fn dial(&mut self, name: &str) {
        let redial = self.redial();
        let Some(link) = self.links.get_mut(name) else { return };
        let policy = Policy::lossy_client();
        let conn = self.messenger.connect(link.addrs.clone(), EntityKind::MON, policy, redial);
        link.conn = Some(conn);
        link.node = None;
        self.dialled.insert(conn, name.to_owned());
    }

    fn redial(&self) -> Redial {
        let mut settings = ClientAuthSettings::cephx(true);
        if self.me.auth_none {
            settings.methods = vec![auth::handshake::method::NONE];
        }
        let name = EntityName::new(EntityKind::MON, self.me.name.clone());
        let (key, random) = (self.me.key.clone(), self.random.clone());
        Box::new(move || -> Box<dyn ClientAuth> {
            Box::new(AuthorizerClientAuth::between_mons(
                settings.clone(),
                name.clone(),
                key.clone(),
                random.clone(),
            ))
        })
    }

    fn hello(&self) -> Envelope {
        let Me { fsid, node, name, .. } = &self.me;
        PeerSays::Hello { fsid: *fsid, node: *node, name: name.clone() }.envelope()
    }

    /// A connection that was dialled here, or by another monitor, is open.
    pub fn on_opened(&mut self, now: Now, conn: ConnId) {
        if self.dialled.contains_key(&conn) {
            self.messenger.send(conn, self.hello());
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
        self.accepted.remove(&conn);
        let Some(name) = self.dialled.remove(&conn) else { return Vec::new() };
        self.calls.retain(|_, w| w.conn != conn);
        let Some(link) = self.links.get_mut(&name).filter(|l| l.conn == Some(conn)) else {
            return Vec::new();
        };
        link.conn = None;
        link.pause_ms = (link.pause_ms * 2).clamp(PAUSE_MIN_MS, PAUSE_MAX_MS);
        link.retry_at_ms = now.mono_ms() + link.pause_ms;
        link.node.take().map(PeerEvent::Down).into_iter().collect()
    }

    /// A message on a connection of another monitor.
    pub fn on_message(&mut self, now: Now, conn: ConnId, env: &Envelope) -> Vec<PeerEvent> {
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
                    return self.on_hello(now_ms, conn, fsid, node, name);
                }
                (Ok(says), Some(node)) => return vec![PeerEvent::Says(node, says)],
                (Ok(_), None) => {}
                (Err(e), _) => {
                    tracing::warn!("from another monitor: {e}");
                    self.messenger.close(conn);
                    return self.lost(now, conn);
                }
            },
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
        fsid: Uuid,
        node: u64,
        name: String,
    ) -> Vec<PeerEvent> {
        if fsid != self.me.fsid || node == self.me.node {
            tracing::warn!("mon.{name} ({node}) is of cluster {fsid}, or this one's twin");
            self.messenger.close(conn);
            self.accepted.remove(&conn);
            return Vec::new();
        }
        self.heard_ms.insert(node, now_ms);
        if let Some(known) = self.accepted.get_mut(&conn) {
            *known = Some(node);
            self.messenger.send(conn, self.hello());
            return Vec::new();
        }
        let Some(link) = self.dialled.get(&conn).and_then(|n| self.links.get_mut(n)) else {
            return Vec::new();
        };
        link.node = Some(node);
        link.pause_ms = 0;
        vec![PeerEvent::Up(node, name)]
    }

    fn conn_of(&self, node: u64) -> Option<ConnId> {
        self.links.values().find(|l| l.node == Some(node)).and_then(|l| l.conn)
    }

    /// Says something; lost where the other cannot be reached.
    pub fn send(&self, node: u64, env: Envelope) {
        if let Some(conn) = self.conn_of(node) {
            self.messenger.send(conn, env);
        }
    }

    /// Carries a log's question; dropped where the other cannot be reached.
    pub fn call(&mut self, now: Now, call: Call) {
        let Some(conn) = self.conn_of(call.to) else { return };
        self.next_tid += 1;
        let waiting = Waiting { conn, node: call.to, sent_ms: now.mono_ms(), answer: call.answer };
        self.calls.retain(|_, w| !w.answer.is_closed());
        self.calls.insert(self.next_tid, waiting);
        self.messenger.send(conn, log_message(LOG_ASK, self.next_tid, call.body));
    }
}

/// A question to another log, or an answer.
pub fn log_message(kind: u16, tid: u64, front: Bytes) -> Envelope {
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
