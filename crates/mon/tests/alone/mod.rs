//! One monitor without a network: what it is told, and what it says.
#![allow(dead_code, reason = "each test takes what it needs")]

pub mod proved;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use auth::{CryptoKey, KeyKind, PeerIdentity};
use bytes::Bytes;
use denc::{Denc, Features};
use env::{ConnId, Now, Seeded};
use maps::{Incremental, MonInfo, MonMap, OsdMap};
use messages::*;
use mon::vitals::{VITALS, Vitals};
use mon::{Mkfs, MonConfig, Monitor, Output, PeerInfo, peer::PeerSays, quorum};
use types::{AddrVec, EntityAddr, EntityId, EntityName, Epoch, OsdId, UTime, Uuid};

pub fn addr(port: u16, nonce: u32) -> AddrVec {
    EntityAddr::msgr2(SocketAddr::from(([127, 0, 0, 1], port)), nonce).into()
}

pub fn name(text: &str) -> EntityName {
    text.parse().unwrap()
}

pub fn key(seed: u64) -> CryptoKey {
    CryptoKey::generate(KeyKind::AES, UTime::ZERO, &mut Seeded(seed))
}

pub fn mkfs() -> Mkfs {
    let fsid = Uuid::from_random([7; 16]);
    let at = UTime { sec: 1_700_000_000, nsec: 0 };
    let a = MonInfo { name: "a".into(), addrs: addr(3300, 0), ..MonInfo::default() };
    let mut mkfs = Mkfs {
        fsid,
        now: at,
        monmap: MonMap::new(fsid, at, 18, vec![a]),
        chooseleaf_kind: 0,
        config: vec![("global".into(), "mon_allow_pool_delete".into(), "true".into())],
        ..Mkfs::default()
    };
    mkfs.add_key(name("mon."), key(1));
    mkfs.add_key(name("client.admin"), key(2));
    for osd in 0..3 {
        mkfs.add_key(name(&format!("osd.{osd}")), key(10 + osd));
    }
    mkfs
}

/// When a monitor begins.
const START: Now = Now { mono_ns: 5_000_000_000_000, wall_ns: 1_700_000_100_000_000_000 };

/// One monitor with a log that commits whatever is proposed, when told to.
pub struct Alone {
    pub mon: Monitor,
    pub now: Now,
    pub first: Bytes,
    pub log: Vec<(u64, Bytes)>,
    pub proposed: Vec<(u64, Bytes)>,
    pub sent: Vec<(ConnId, Envelope)>,
    pub said: Vec<(u64, PeerSays)>,
    pub vitals: Vec<(u64, Vitals)>,
    pub probed: Vec<(OsdId, AddrVec)>,
    pub closed: Vec<ConnId>,
    pub modules: Vec<(cli::Args, auth::MgrCaller)>,
    pub next_conn: u64,
    pub tid: u64,
}

impl Alone {
    pub fn start(state: Bytes, log: Vec<(u64, Bytes)>) -> Self {
        let now = START;
        let config = MonConfig { name: "a".into(), ..MonConfig::default() };
        let auth_rng: auth::SharedRandom = Arc::new(Mutex::new(Seeded(99)));
        let rng = Box::new(Seeded(now.wall_ns ^ log.len() as u64));
        let mut mon = Monitor::new(config, &state, now, rng, auth_rng).unwrap();
        for (index, (token, data)) in log.iter().enumerate() {
            let index = index as u64 + 1;
            let event =
                quorum::Event::Committed { index, origin: 0, token: *token, data: data.clone() };
            mon.on_quorum(now, event).unwrap();
        }
        mon.lead(now, quorum::Ballot { term: 1, node: 0 });
        let mut this = Self::with(mon, now, state, log);
        this.settle();
        this
    }

    fn with(mon: Monitor, now: Now, first: Bytes, log: Vec<(u64, Bytes)>) -> Self {
        Self {
            mon,
            now,
            first,
            log,
            proposed: Vec::new(),
            sent: Vec::new(),
            said: Vec::new(),
            vitals: Vec::new(),
            probed: Vec::new(),
            closed: Vec::new(),
            modules: Vec::new(),
            next_conn: 1,
            tid: 0,
        }
    }

    /// A monitor with the number 1 that follows the one with the number 0.
    pub fn following(state: Bytes) -> Self {
        let now = START;
        let config = MonConfig { name: "b".into(), node: 1, ..MonConfig::default() };
        let auth_rng: auth::SharedRandom = Arc::new(Mutex::new(Seeded(98)));
        let mut mon = Monitor::new(config, &state, now, Box::new(Seeded(3)), auth_rng).unwrap();
        let ballot = quorum::Ballot { term: 1, node: 0 };
        mon.on_quorum(now, quorum::Event::Standing { ballot, leader: Some(0) }).unwrap();
        mon.on_peer_up(now, 0, "a");
        let mut this = Self::with(mon, now, state, Vec::new());
        this.news(ballot);
        this
    }

    /// The state that a follower has which was given that log.
    pub fn following_log(state: Bytes, log: &[(u64, Bytes)]) -> Bytes {
        let mut this = Self::following(state);
        for (index, (token, data)) in log.iter().enumerate() {
            let index = index as u64 + 1;
            let (token, data) = (*token, data.clone());
            let event = quorum::Event::Committed { index, origin: 0, token, data };
            this.mon.on_quorum(this.now, event).unwrap();
            this.mon.poll();
        }
        this.mon.state().to_bytes()
    }

    /// The leader of that election, number 0, tells who agrees.
    pub fn news(&mut self, ballot: quorum::Ballot) {
        let news = mon::peer::QuorumNews {
            election_epoch: ballot.term as u32 * 2 + 2,
            leader: "a".into(),
            names: vec!["a".into()],
            age_ms: 0,
        };
        self.mon.on_peer_says(self.now, 0, PeerSays::Quorum(news));
    }

    pub fn new() -> Self {
        Self::start(mkfs().to_state_bytes(), Vec::new())
    }

    pub fn poll(&mut self) {
        for output in self.mon.poll() {
            match output {
                Output::Send { conn, env } => self.sent.push((conn, env)),
                Output::Close { conn } => self.closed.push(conn),
                Output::Propose { token, data } => self.proposed.push((token, data)),
                Output::Module { args, caller, .. } => self.modules.push((args, *caller)),
                Output::Probe { osd, addrs } => self.probed.push((osd, addrs)),
                Output::Snapshot { .. } | Output::Local { .. } => {}
                Output::Peer { node, env } if env.kind == VITALS => {
                    self.vitals.push((node, Vitals::decode(&env).unwrap()));
                }
                Output::Peer { node, env } => {
                    self.said.push((node, PeerSays::decode(&env).unwrap()));
                }
            }
        }
    }

    /// Commits everything, until nothing more is proposed.
    pub fn settle(&mut self) {
        self.poll();
        while !self.proposed.is_empty() {
            for (token, data) in std::mem::take(&mut self.proposed) {
                self.log.push((token, data.clone()));
                let index = self.log.len() as u64;
                let event = quorum::Event::Committed { index, origin: 0, token, data };
                self.mon.on_quorum(self.now, event).unwrap();
            }
            self.poll();
        }
    }

    pub fn tick(&mut self, ms: u64) {
        for _ in 0..ms.div_ceil(100) {
            self.now.mono_ns += 100_000_000;
            self.now.wall_ns += 100_000_000;
            self.mon.on_tick(self.now);
            self.settle();
        }
    }

    pub fn connect_as(
        &mut self,
        who: &str,
        caps: &str,
        features: Features,
        addrs: AddrVec,
    ) -> ConnId {
        self.connect_by(who, caps, features, addrs, false)
    }

    /// By the manager's door, with the caps of a ticket for that.
    pub fn connect_at_mgr(&mut self, who: &str, caps: &str) -> ConnId {
        self.connect_by(who, caps, Features::TENTACLE_WORD, addr(0, 78), true)
    }

    fn connect_by(
        &mut self,
        who: &str,
        caps: &str,
        features: Features,
        addrs: AddrVec,
        at_mgr: bool,
    ) -> ConnId {
        let conn = ConnId(self.next_conn);
        self.next_conn += 1;
        let who = name(who);
        let num = who.id.parse().unwrap_or(4000 + conn.0 as i64);
        let peer = PeerInfo {
            entity: EntityId::new(who.kind, num),
            identity: PeerIdentity {
                name: who,
                global_id: 4000 + conn.0,
                caps: caps.into(),
                ..PeerIdentity::default()
            },
            features,
            addrs,
            at_mgr,
        };
        self.mon.on_opened(self.now, conn, peer);
        conn
    }

    pub fn admin(&mut self) -> ConnId {
        self.connect_as("client.admin", "allow *", Features::TENTACLE_WORD, addr(0, 77))
    }

    pub fn say<M: Message>(&mut self, conn: ConnId, message: &M) {
        self.tid += 1;
        self.say_again(conn, message);
    }

    /// Under the number of the last message, as clients do that had no answer.
    pub fn say_again<M: Message>(&mut self, conn: ConnId, message: &M) {
        let env = message.envelope(Features::ALL).with_tid(self.tid);
        self.mon.on_message(self.now, conn, &env);
    }

    /// Sends a command and takes its answer: errno or 0, the line, the output.
    pub fn run(&mut self, conn: ConnId, cmd: &str) -> (i32, String, Bytes) {
        self.run_with(conn, cmd, Bytes::new())
    }

    pub fn run_with(&mut self, conn: ConnId, cmd: &str, input: Bytes) -> (i32, String, Bytes) {
        let (fsid, cmd) = (self.mon.state().fsid, vec![Bytes::copy_from_slice(cmd.as_bytes())]);
        self.say(conn, &MonCommand { fsid, cmd, input, ..MonCommand::default() });
        self.settle();
        let heard = self.heard(conn);
        let ack = heard.iter().find(|e| e.kind == MonCommandAck::KIND).expect("an answer");
        let ack = MonCommandAck::decode(ack).unwrap();
        (ack.r, ack.rs, ack.output)
    }

    /// The same by the manager's door. `None`: handed to a module.
    pub fn run_at_mgr(&mut self, conn: ConnId, cmd: &str) -> Option<(i32, String, Bytes)> {
        let cmd = vec![Bytes::copy_from_slice(cmd.as_bytes())];
        self.say(conn, &MgrCommand { cmd, ..MgrCommand::default() });
        self.settle();
        let heard = self.heard(conn);
        let ack = heard.iter().find(|e| e.kind == MgrCommandReply::KIND)?;
        let ack = MgrCommandReply::decode(ack).unwrap();
        Some((ack.r, ack.rs, ack.output))
    }

    /// Takes what was sent to `conn`.
    pub fn heard(&mut self, conn: ConnId) -> Vec<Envelope> {
        let (mine, rest) = std::mem::take(&mut self.sent).into_iter().partition(|s| s.0 == conn);
        self.sent = rest;
        let mine: Vec<(ConnId, Envelope)> = mine;
        mine.into_iter().map(|s| s.1).collect()
    }

    pub fn subscribe(&mut self, conn: ConnId, what: &[(&str, u64, u8)]) {
        let what =
            what.iter().map(|(n, s, f)| ((*n).into(), Subscription { start: *s, flags: *f }));
        self.say(conn, &MonSubscribe { what: what.collect(), hostname: "here".into() });
    }

    pub fn boot(&mut self, osd: i32, nonce: u32) -> ConnId {
        self.boot_with(osd, nonce, Epoch(1))
    }

    /// As one that has the map of `epoch`.
    pub fn boot_with(&mut self, osd: i32, nonce: u32, epoch: Epoch) -> ConnId {
        self.boot_again(osd, nonce, epoch, Epoch(0))
    }

    /// As a process that was up before, since `boot_epoch`.
    pub fn boot_again(&mut self, osd: i32, nonce: u32, epoch: Epoch, boot_epoch: Epoch) -> ConnId {
        let port = 6800 + osd as u16 * 4;
        let conn = self.connect_as(
            &format!("osd.{osd}"),
            "allow profile osd",
            Features::REEF_WORD,
            addr(port, nonce),
        );
        self.subscribe(conn, &[("osdmap", 1, 0)]);
        let metadata = BTreeMap::from([("hostname".to_owned(), "here".to_owned())]);
        self.say(
            conn,
            &OsdBoot {
                osd: OsdId(osd),
                uuid: Uuid::from_random([osd as u8 + 1; 16]),
                epoch,
                boot_epoch,
                client: addr(port, nonce),
                cluster: addr(port + 1, nonce),
                hb_front: addr(port + 2, nonce),
                hb_back: addr(port + 3, nonce),
                metadata,
                features: Features::REEF_WORD.0,
                device_bytes: 1 << 40,
                device_class: "ssd".into(),
                ..OsdBoot::default()
            },
        );
        conn
    }

    pub fn with_osds() -> (Self, Vec<ConnId>) {
        let mut a = Self::new();
        let osds = (0..3).map(|o| a.boot(o, 5)).collect();
        a.settle();
        (a, osds)
    }

    pub fn map(&self) -> &OsdMap {
        &self.mon.state().osdmap
    }

    pub fn ask_pool_op(&mut self, conn: ConnId, op: u32, pool: i64, name: &str, snap: u64) {
        self.say(
            conn,
            &PoolOp {
                fsid: self.mon.state().fsid,
                pool: pool as u32,
                op,
                name: name.into(),
                snapid: types::SnapId(snap),
                crush_rule: -1,
                ..PoolOp::default()
            },
        );
    }

    pub fn pool_op(
        &mut self,
        conn: ConnId,
        op: u32,
        pool: i64,
        name: &str,
        snap: u64,
    ) -> PoolOpReply {
        self.ask_pool_op(conn, op, pool, name, snap);
        self.settle();
        let replies = self.heard(conn);
        let reply = replies.iter().find(|e| e.kind == PoolOpReply::KIND).expect("an answer");
        assert_eq!(reply.tid, self.tid);
        PoolOpReply::decode(reply).unwrap()
    }
}

/// What a peer with `features` makes of the maps it was sent.
pub fn follow(map: &mut Option<OsdMap>, heard: &[Envelope]) {
    for env in heard.iter().filter(|e| e.kind == OsdMapMsg::KIND) {
        let msg = OsdMapMsg::decode(env).unwrap();
        for full in msg.fulls.values() {
            *map = Some(OsdMap::from_shared(full).unwrap());
        }
        for (epoch, inc) in &msg.incrementals {
            let map = map.as_mut().expect("a full map comes first");
            if *epoch <= map.epoch {
                continue;
            }
            let inc = Incremental::from_shared(inc).unwrap();
            assert_eq!(inc.epoch, *epoch);
            map.apply_incremental(&inc).unwrap();
        }
    }
}
