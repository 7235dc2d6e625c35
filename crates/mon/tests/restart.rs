//! The role on its real log: what was answered is there after the process is gone.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use auth::{CryptoKey, KeyKind, PeerIdentity};
use denc::{Denc, Features};
use env::{ConnId, Now, Seeded};
use maps::{MonInfo, MonMap};
use messages::*;
use mon::{Mkfs, MonConfig, Monitor, Output, PeerInfo, quorum};
use types::{AddrVec, EntityAddr, EntityId, EntityKind, UTime, Uuid};

struct Running {
    mon: Monitor,
    quorum: quorum::Quorum,
    events: tokio::sync::mpsc::UnboundedReceiver<quorum::Event>,
    sent: Vec<Envelope>,
    now: Now,
    snapshots: u32,
}

/// A store, in a directory that goes with it.
struct Place(PathBuf);

impl std::ops::Deref for Place {
    type Target = Path;
    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.0.parent().expect("it is in a directory"));
    }
}

fn place(name: &str) -> Place {
    let dir = std::env::temp_dir().join(format!("argonaut-mon-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    let fsid = Uuid::from_random([7; 16]);
    let at = UTime { sec: 1_700_000_000, nsec: 0 };
    let addr = EntityAddr::msgr2(SocketAddr::from(([127, 0, 0, 1], 3300)), 0);
    let a = MonInfo { name: "a".into(), addrs: addr.into(), ..MonInfo::default() };
    let mut mkfs =
        Mkfs { fsid, now: at, monmap: MonMap::new(fsid, at, 18, vec![a]), ..Mkfs::default() };
    let key = CryptoKey::generate(KeyKind::AES, at, &mut Seeded(1));
    mkfs.add_key("client.admin".parse().unwrap(), key);
    let path = dir.join("store");
    let founders = BTreeMap::from([(0, "a".to_owned())]);
    quorum::create(&path, 0, &founders, &mkfs.to_state_bytes()).unwrap();
    Place(path)
}

impl Running {
    async fn start(path: &Path, secs: u64) -> Self {
        let s = quorum::start(path).await.unwrap();
        let now = Now { mono_ns: secs * 1_000_000_000, wall_ns: (1_700_000_000 + secs) << 30 };
        let config = MonConfig { name: "a".into(), ..MonConfig::default() };
        let auth_rng: auth::SharedRandom = Arc::new(Mutex::new(Seeded(secs)));
        let mut mon =
            Monitor::new(config, &s.state, now, Box::new(Seeded(secs)), auth_rng).unwrap();
        let mut events = s.events;
        while !mon.leads() {
            let event = tokio::time::timeout(Duration::from_secs(20), events.recv()).await;
            mon.on_quorum(now, event.unwrap().unwrap()).unwrap();
        }
        let mut this = Self { mon, quorum: s.quorum, events, sent: Vec::new(), now, snapshots: 0 };
        this.drain().await;
        let peer = PeerInfo {
            identity: PeerIdentity {
                name: "client.admin".parse().unwrap(),
                caps: "allow *".into(),
                ..PeerIdentity::default()
            },
            entity: EntityId::new(EntityKind::CLIENT, 4100),
            features: Features::ALL,
            addrs: AddrVec::default(),
            at_mgr: false,
        };
        this.mon.on_opened(now, ConnId(1), peer);
        this
    }

    async fn drain(&mut self) {
        for output in self.mon.poll() {
            match output {
                Output::Send { env, .. } => self.sent.push(env),
                Output::Propose { token, data } => {
                    self.quorum.propose(token, data).await.unwrap();
                }
                Output::Snapshot { index, state } => {
                    self.snapshots += 1;
                    self.quorum.offer_snapshot(index, state).await.unwrap();
                }
                Output::Close { .. }
                | Output::Local { .. }
                | Output::Module { .. }
                | Output::Probe { .. }
                | Output::Peer { .. } => {}
            }
        }
    }

    /// Runs until an answer of that kind is there.
    async fn answer(&mut self, kind: u16) -> Envelope {
        loop {
            self.drain().await;
            if let Some(at) = self.sent.iter().position(|e| e.kind == kind) {
                return self.sent.swap_remove(at);
            }
            let event = tokio::time::timeout(Duration::from_secs(20), self.events.recv()).await;
            self.mon.on_quorum(self.now, event.unwrap().unwrap()).unwrap();
        }
    }

    async fn pool_op(&mut self, op: u32, pool: u32, name: &str) -> i32 {
        let msg = PoolOp {
            fsid: self.mon.state().fsid,
            pool,
            op,
            name: name.into(),
            crush_rule: -1,
            ..PoolOp::default()
        };
        self.mon.on_message(self.now, ConnId(1), &msg.envelope(Features::ALL));
        PoolOpReply::decode(&self.answer(PoolOpReply::KIND).await).unwrap().r
    }
}

fn run(f: impl Future<Output = ()>) {
    let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    rt.block_on(tokio::task::LocalSet::new().run_until(f));
}

/// Hundreds of changes over three lives, snapshots of the state among them; nothing that
/// was answered is missing, and no life differs from the one before.
#[test]
fn lives_through_restarts() {
    let path = place("lives");
    let mut want: BTreeMap<String, u64> = BTreeMap::new();
    let (mut last, mut snapshots) = (None, 0);
    for life in 0..3u64 {
        run(async {
            let mut r = Running::start(&path, 100 * (life + 1)).await;
            for (name, snaps) in &want {
                let id = r.mon.state().osdmap.pool_by_name(name).expect("the pool is there");
                assert_eq!(r.mon.state().osdmap.pools[&id].snap_seq.0, *snaps);
            }
            if let Some(last) = last.take() {
                let bytes: bytes::Bytes = last;
                let before = maps::OsdMap::from_shared(&bytes).unwrap();
                assert_eq!(before.pools, r.mon.state().osdmap.pools);
            }
            let name = format!("pool{life}");
            assert_eq!(r.pool_op(pool_op::CREATE, 0, &name).await, 0);
            let id = r.mon.state().osdmap.pool_by_name(&name).unwrap();
            for _ in 0..300 {
                assert_eq!(r.pool_op(pool_op::CREATE_UNMANAGED_SNAP, id.0 as u32, "").await, 0);
            }
            want.insert(name, 301);
            last = Some(r.mon.state().osdmap.to_bytes());
            snapshots += r.snapshots;
            r.quorum.stop().await;
        });
    }
    assert!(snapshots > 0, "the log does not grow for ever");
}
