//! The monitor in the world: the role over a log that takes its time. What is in the log
//! survives a crash; what was proposed and is not in it yet may or may not.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use auth::PeerIdentity;
use bytes::Bytes;
use env::ConnId;
use maps::{MonInfo, MonMap};
use messages::{Envelope, Message, MonCommand, MonCommandAck, Paxos};
use mon::{Mkfs, MonConfig, Monitor, Output};
use types::{AddrVec, EntityAddr, EntityId, EntityKind, EntityName, Features, UTime, Uuid};

use crate::osds::{client_addr, conn_of, id};
use crate::world::{Event, MS, Node, SEC, Settings, World};

/// The operator's connection.
const ADMIN: ConnId = ConnId(1);

/// The monitor, alive or not.
pub struct MonProc {
    pub(crate) role: Option<Monitor>,
    life: u64,
    term: u64,
    /// The state before the log, and the log: index, origin, token, data.
    base: Bytes,
    log: Vec<(u64, u64, u64, Bytes)>,
    index: u64,
    proposed: BTreeMap<u64, Bytes>,
    options: BTreeMap<String, String>,
    tid: u64,
    /// Answers to commands, by number.
    pub(crate) answers: BTreeMap<u64, (i32, String)>,
}

impl MonProc {
    pub(crate) fn new(fsid: Uuid, s: &Settings) -> Self {
        let created = UTime { sec: 1_799_999_000, nsec: 0 };
        let addr = EntityAddr::msgr2("127.0.0.1:3300".parse().expect("an address"), 0);
        let a = MonInfo { name: "a".into(), addrs: AddrVec(vec![addr]), ..MonInfo::default() };
        let mkfs = Mkfs {
            fsid,
            now: created,
            monmap: MonMap::new(fsid, created, 20, vec![a]),
            chooseleaf_kind: 0,
            ..Mkfs::default()
        };
        let options = [
            ("mon_allow_pool_delete", "true".to_owned()),
            ("mon_allow_pool_size_one", "true".to_owned()),
            ("osd_pool_default_size", s.size.to_string()),
            ("osd_pool_default_min_size", s.min_size.to_string()),
            ("osd_heartbeat_grace", (s.grace_ms as f64 / 1000.0).to_string()),
            ("mon_osd_down_out_interval", (s.trouble / SEC / 4).to_string()),
            ("mon_osd_min_up_ratio", "0".to_owned()),
            ("mon_osd_report_timeout", "60".to_owned()),
            ("mon_max_pg_per_osd", "10000".to_owned()),
        ];
        Self {
            role: None,
            life: 0,
            term: 0,
            base: mkfs.to_state_bytes(),
            log: Vec::new(),
            index: 0,
            proposed: BTreeMap::new(),
            options: options.map(|(k, v)| (k.to_owned(), v)).into(),
            tid: 0,
            answers: BTreeMap::new(),
        }
    }
}

impl World {
    pub(crate) fn start_mon(&mut self) {
        if self.mon.role.is_some() {
            return;
        }
        self.tell(|| "mon starts".into());
        self.clocks.remove(&Node::Mon);
        let now = self.clock(Node::Mon);
        let config = MonConfig {
            name: "a".into(),
            node: 1,
            options: self.mon.options.clone(),
            ..MonConfig::default()
        };
        let (a, b) = (self.chance.fork(), self.chance.fork());
        let m = &mut self.mon;
        let mut role = Monitor::new(config, &m.base, now, Box::new(a), Arc::new(Mutex::new(b)))
            .expect("its own state can be read");
        for (index, origin, token, data) in &m.log {
            let (index, origin, token, data) = (*index, *origin, *token, data.clone());
            role.on_quorum(now, mon::quorum::Event::Committed { index, origin, token, data })
                .expect("its own log can be read");
        }
        m.term += 1;
        m.life += 1;
        m.index += 1;
        let voters = [(1, "a".to_owned())].into();
        for event in [
            mon::quorum::Event::Members { voters, learners: BTreeMap::new() },
            mon::quorum::Event::Standing { term: m.term, leader: Some(1) },
            mon::quorum::Event::Began { index: m.index, term: m.term, node: 1 },
        ] {
            role.on_quorum(now, event).expect("it leads alone");
        }
        let admin = mon::PeerInfo {
            identity: PeerIdentity {
                name: EntityName::new(EntityKind::CLIENT, "admin"),
                global_id: 4_100,
                allow_all: true,
                ..PeerIdentity::default()
            },
            entity: EntityId::new(EntityKind::CLIENT, 4_100),
            features: Features::TENTACLE_WORD,
            addrs: client_addr(4_100).into(),
            at_mgr: false,
        };
        role.on_opened(now, ADMIN, admin);
        m.role = Some(role);
        let life = m.life;
        self.after(0, Event::Tick(Node::Mon, life));
        self.mon_out();
    }

    pub(crate) fn kill_mon(&mut self) {
        if self.mon.role.take().is_none() {
            return;
        }
        self.tell(|| "mon dies".into());
        self.mon.life += 1;
        self.paused.remove(&Node::Mon);
        for (token, data) in std::mem::take(&mut self.mon.proposed) {
            if self.chance.one_in(2) {
                self.mon.index += 1;
                self.mon.log.push((self.mon.index, 1, token, data));
            }
        }
        self.drop_conns(Node::Mon);
    }

    fn mon_do(&mut self, f: impl FnOnce(&mut Monitor, env::Now)) {
        let now = self.clock(Node::Mon);
        let Some(role) = self.mon.role.as_mut() else { return };
        f(role, now);
        self.mon_out();
    }

    fn mon_out(&mut self) {
        let outputs = self.mon.role.as_mut().map(Monitor::poll).unwrap_or_default();
        for output in outputs {
            match output {
                Output::Send { conn, env } if conn == ADMIN => self.admin_answer(&env),
                Output::Send { conn, env } => {
                    if let Some(c) = conn_of(conn) {
                        self.send(c, 1, env);
                    }
                }
                Output::Close { conn } => {
                    if let Some(c) = conn_of(conn) {
                        self.hang_up(c, 1);
                    }
                }
                Output::Propose { token, data } => {
                    self.mon.proposed.insert(token, data);
                    let ns = self.chance.within(MS, 30 * MS);
                    let life = self.mon.life;
                    self.after(ns, Event::Commit(life, token));
                }
                Output::Snapshot { index, state } => {
                    self.mon.base = state;
                    self.mon.log.retain(|e| e.0 > index);
                }
                Output::Local { .. } | Output::Peer { .. } => {}
            }
        }
    }

    pub(crate) fn mon_commit(&mut self, life: u64, token: u64) {
        if self.mon.life != life {
            return;
        }
        let Some(data) = self.mon.proposed.remove(&token) else { return };
        self.mon.index += 1;
        let index = self.mon.index;
        self.mon.log.push((index, 1, token, data.clone()));
        let event = mon::quorum::Event::Committed { index, origin: 1, token, data };
        self.mon_do(|mon, now| mon.on_quorum(now, event).expect("its own entry can be read"));
    }

    pub(crate) fn mon_tick(&mut self, life: u64) {
        if self.mon.life == life && self.mon.role.is_some() {
            self.mon_do(|mon, now| mon.on_tick(now));
            self.after(100 * MS, Event::Tick(Node::Mon, life));
        }
    }

    pub(crate) fn mon_opened(&mut self, c: usize) {
        let (entity, name, addr) = match self.conns[c].ends[0] {
            Node::Osd(i) => {
                let name = EntityName::new(EntityKind::OSD, i.to_string());
                (EntityId::new(EntityKind::OSD, i as i64), name, client_addr(i as u64))
            }
            Node::Client(i) => {
                let gid = self.clients[i].gid;
                let name = EntityName::new(EntityKind::CLIENT, "admin");
                (EntityId::new(EntityKind::CLIENT, gid as i64), name, client_addr(gid))
            }
            Node::Mon => return,
        };
        let identity = PeerIdentity {
            name,
            global_id: entity.num as u64,
            allow_all: true,
            ..PeerIdentity::default()
        };
        let features = Features::TENTACLE_WORD;
        let peer = mon::PeerInfo { identity, entity, features, addrs: addr.into(), at_mgr: false };
        self.mon_do(|mon, now| mon.on_opened(now, id(c), peer));
    }

    pub(crate) fn mon_closed(&mut self, c: usize) {
        self.mon_do(|mon, now| mon.on_closed(now, id(c)));
    }

    pub(crate) fn mon_message(&mut self, c: usize, e: &Envelope) {
        self.mon_do(|mon, now| mon.on_message(now, id(c), e));
    }

    /// The operator types a command; its number.
    pub(crate) fn command(&mut self, words: serde_json::Value) -> u64 {
        self.mon.tid += 1;
        let tid = self.mon.tid;
        self.tell(|| format!("operator: {words}"));
        let cmd = vec![Bytes::from(words.to_string())];
        let m = MonCommand { paxos: Paxos::default(), fsid: self.fsid, cmd, input: Bytes::new() };
        let e = m.envelope(Features::ALL).with_tid(tid);
        self.mon_do(|mon, now| mon.on_message(now, ADMIN, &e));
        tid
    }

    fn admin_answer(&mut self, e: &Envelope) {
        if e.kind == MonCommandAck::KIND
            && let Ok(m) = MonCommandAck::decode(e)
        {
            self.tell(|| format!("operator: {} {}", m.r, m.rs));
            self.mon.answers.insert(e.tid, (m.r, m.rs));
        }
    }
}
