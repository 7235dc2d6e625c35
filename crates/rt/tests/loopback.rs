//! Messengers over loopback sockets.

use std::cell::RefCell;
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use auth::{
    AuthDone, AuthError, ClientAuth, ClientDone, ClientStart, PeerIdentity, ServerAuth, ServerStep,
};
use bytes::Bytes;
use denc::Features;
use env::{ConnId, Now};
use messages::Envelope;
use rt::{Config, Limits, Local, Messenger, NetEvent, Policy, run_local};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use types::{AddrVec, EntityAddr, EntityKind};

/// One round; the mode is the client's first.
struct OpenDoor;

impl ServerAuth for OpenDoor {
    fn request(
        &mut self,
        _now: Now,
        _kind: EntityKind,
        _addr: &EntityAddr,
        _method: u32,
        modes: &[u32],
        _payload: &[u8],
    ) -> ServerStep {
        let mode = modes[0];
        ServerStep::Done(Box::new(AuthDone {
            global_id: 5,
            con_mode: mode,
            payload: Bytes::new(),
            session_key: Bytes::from_static(&[1; 16]),
            connection_secret: Bytes::from(vec![2; if mode == 2 { 64 } else { 0 }]),
            peer: PeerIdentity { global_id: 5, ..PeerIdentity::default() },
        }))
    }
    fn more(&mut self, _now: Now, _payload: &[u8]) -> ServerStep {
        ServerStep::Refuse { result: -22, allowed_methods: vec![], allowed_modes: vec![] }
    }
}

struct Knock(u32);

impl ClientAuth for Knock {
    fn start(&mut self, _now: Now) -> Result<ClientStart, AuthError> {
        Ok(ClientStart { method: 2, modes: vec![self.0], payload: Bytes::new() })
    }
    fn bad_method(
        &mut self,
        _now: Now,
        _method: u32,
        result: i32,
        _methods: &[u32],
        _modes: &[u32],
    ) -> Result<ClientStart, AuthError> {
        Err(AuthError::Refused { result, allowed_methods: vec![] })
    }
    fn more(&mut self, _now: Now, _payload: &[u8]) -> Result<Bytes, AuthError> {
        Err(AuthError::Protocol("one round only"))
    }
    fn done(&mut self, _now: Now, id: u64, mode: u32, _p: &[u8]) -> Result<ClientDone, AuthError> {
        Ok(ClientDone {
            global_id: id,
            session_key: Bytes::from_static(&[1; 16]),
            connection_secret: Bytes::from(vec![2; if mode == 2 { 64 } else { 0 }]),
        })
    }
}

fn messenger(kind: EntityKind, policy: Policy, limits: Limits) -> Messenger {
    Messenger::new(Config {
        local: Local {
            kind,
            num: 3,
            addrs: AddrVec::default(),
            nonce: 99,
            features: Features::PACIFIC_WORD,
        },
        policy: Box::new(move |_| policy),
        auth: Box::new(|_, _| Box::new(OpenDoor)),
        limits,
    })
}

/// Binds and takes the address for its own.
fn listen(m: &Messenger) -> EntityAddr {
    let at = m.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let addr = EntityAddr::msgr2(at, 99);
    m.set_local(|local| local.addrs = addr.into());
    addr
}

fn knock(mode: u32) -> rt::Redial {
    Box::new(move || Box::new(Knock(mode)))
}

/// Sends every message back.
fn echo(m: &Messenger) {
    let back = m.clone();
    m.set_handler(move |event| {
        if let NetEvent::Message { conn, env, .. } = event {
            back.send(conn, env);
        }
    });
}

type Log = Rc<RefCell<Vec<NetEvent>>>;

fn log(m: &Messenger) -> Log {
    let log = Log::default();
    let sink = log.clone();
    m.set_handler(move |event| sink.borrow_mut().push(event));
    log
}

async fn until(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if done() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("never happened: {what}");
}

fn test(work: impl Future<Output = ()>) {
    run_local(async { tokio::time::timeout(Duration::from_secs(120), work).await.unwrap() })
        .unwrap();
}

fn message(tid: u64, data: usize) -> Envelope {
    let data = (0..data).map(|i| (i as u64 * 13 + tid) as u8).collect();
    Envelope { tid, kind: 42, front: Bytes::from_static(b"front"), data, ..Envelope::default() }
}

fn tids(log: &Log, of: ConnId) -> Vec<u64> {
    log.borrow()
        .iter()
        .filter_map(|event| match event {
            NetEvent::Message { conn, env, .. } if *conn == of => Some(env.tid),
            _ => None,
        })
        .collect()
}

#[test]
fn echoes_in_both_modes() {
    test(async {
        for mode in [1, 2] {
            let server = messenger(EntityKind::OSD, Policy::stateless_server(), Limits::default());
            let addr = listen(&server);
            echo(&server);
            let client = messenger(EntityKind::CLIENT, Policy::lossy_client(), Limits::default());
            let got = log(&client);
            let conn = client.connect(addr, EntityKind::OSD, Policy::lossy_client(), knock(mode));
            let sizes = [0, 10, 4096, 100_000, 9_000_000];
            for (tid, &size) in sizes.iter().enumerate() {
                client.send(conn, message(tid as u64, size));
            }
            until("all echoes", || tids(&got, conn).len() == sizes.len()).await;
            for event in got.borrow().iter() {
                match event {
                    NetEvent::Opened { peer, .. } => assert_eq!(peer.id.to_string(), "osd.3"),
                    NetEvent::Message { env, .. } => {
                        assert!(*env == message(env.tid, sizes[env.tid as usize]));
                    }
                    other => panic!("{other:?}"),
                }
            }
            client.close(conn);
            until("the server's end", || server.connections() == 0).await;
            assert_eq!(client.connections(), 0);
        }
    });
}

/// What never becomes a peer is gone in time, and does not keep others out.
/// A daemon on the same host is reached without TCP, where both want that; the bytes are the same, and
/// the end of one side is noticed as ever. Who does not listen so is reached by TCP.
#[test]
fn near_daemons_need_no_tcp() {
    test(async {
        for (near, mode) in [(true, 1), (true, 2), (false, 1)] {
            let policy = Policy::stateless_server();
            let server = messenger(EntityKind::OSD, policy, Limits::default());
            let at = listen(&server);
            if near {
                server.listen_near(at.sock.unwrap());
            }
            let seen = log(&server);
            let limits = Limits::default();
            let client = messenger(EntityKind::OSD, Policy::lossy_client(), limits);
            let told = log(&client);
            let dial = Policy::lossy_client();
            let conn = client.connect_near(at, EntityKind::OSD, dial, knock(mode));
            let sizes = [0, 3, 100_000, 5_000_000];
            for (tid, data) in sizes.into_iter().enumerate() {
                client.send(conn, message(tid as u64, data));
            }
            let got = || -> Vec<usize> {
                let seen = seen.borrow();
                let sizes = seen.iter().filter_map(|e| match e {
                    NetEvent::Message { env, .. } => Some(env.data.len()),
                    _ => None,
                });
                sizes.collect()
            };
            until("all arrive", || got().len() == sizes.len()).await;
            assert_eq!(got(), sizes);
            let there = seen.borrow().iter().find_map(|e| match e {
                NetEvent::Opened { conn, peer } => Some((*conn, peer.sock.unwrap())),
                _ => None,
            });
            let (there, from) = there.expect("it was opened");
            assert_eq!(from.port() == 0, near, "only TCP has a port: {from}");
            server.close(there);
            let closed = |e: &NetEvent| matches!(e, NetEvent::Closed { conn: c, .. } if *c == conn);
            until("it is noticed", || told.borrow().iter().any(closed)).await;
        }
    });
}

/// As many at once as there is room for in a process: those that say nothing give way to those that
/// do, and one that has proved itself stays.
#[test]
fn a_burst_of_strangers_is_bounded() {
    let files = rt::raise_open_files();
    test(async move {
        let burst = (files.saturating_sub(200) / 2).min(3000) as usize;
        let limits = Limits { unproved_per_ip_max: 100, ..Limits::within(files, 1) };
        let server = messenger(EntityKind::OSD, Policy::stateless_server(), limits);
        let addr = listen(&server);
        echo(&server);
        let client = messenger(EntityKind::CLIENT, Policy::lossy_client(), Limits::default());
        let got = log(&client);
        let early = client.connect(addr, EntityKind::OSD, Policy::lossy_client(), knock(1));
        client.send(early, message(1, 1));
        until("the echo", || tids(&got, early) == [1]).await;
        let mut strangers = vec![];
        for _ in 0..burst {
            let mut stranger = TcpStream::connect(addr.sock.unwrap()).await.unwrap();
            // Many are closed already.
            let _ = stranger.write_all(b"ceph v2\n").await;
            strangers.push(stranger);
        }
        let late = client.connect(addr, EntityKind::OSD, Policy::lossy_client(), knock(1));
        client.send(late, message(2, 1));
        until("the newcomer's echo", || tids(&got, late) == [2]).await;
        until("the bound", || server.connections() <= 102).await;
        client.send(early, message(3, 1));
        until("the early one's echo", || tids(&got, early) == [1, 3]).await;
        drop(strangers);
    });
}

/// The bound of all, and of what a small limit of open files leaves.
#[test]
fn limits_fit_open_files() {
    for files in [64, 1024, 4096, 1 << 20, u64::MAX] {
        let limits = Limits::within(files, 2);
        assert!(limits.connections_max as u64 * 2 < files, "{files}: {limits:?}");
        assert!(limits.unproved_max * 4 <= limits.connections_max, "{files}: {limits:?}");
    }
    test(async {
        let limits = Limits { connections_max: 12, unproved_max: 6, ..Limits::default() };
        let server = messenger(EntityKind::OSD, Policy::stateless_server(), limits);
        let addr = listen(&server);
        let client = messenger(EntityKind::CLIENT, Policy::lossy_client(), Limits::default());
        let got = log(&client);
        let knock_once = || client.connect(addr, EntityKind::OSD, Policy::lossy_client(), knock(1));
        let opened = |conn| {
            got.borrow().iter().any(|e| matches!(e, NetEvent::Opened { conn: c, .. } if *c == conn))
        };
        let mut strangers = vec![];
        for _ in 0..20 {
            strangers.push(TcpStream::connect(addr.sock.unwrap()).await.unwrap());
        }
        // All the room that is kept for them, though strangers wait all the time.
        for _ in 0..11 {
            let conn = knock_once();
            until("it opens", || opened(conn)).await;
        }
        until("no room for strangers but one", || server.connections() <= 12).await;
    });
}

#[test]
fn strangers_are_bounded() {
    test(async {
        let limits = Limits { unproved_per_ip_max: 10, handshake_ms: 1500, ..Limits::default() };
        let server = messenger(EntityKind::OSD, Policy::stateless_server(), limits);
        let addr = listen(&server);
        echo(&server);
        let mut strangers = vec![];
        for _ in 0..50 {
            strangers.push(TcpStream::connect(addr.sock.unwrap()).await.unwrap());
        }
        until("the cap", || server.connections() <= 11).await;
        let client = messenger(EntityKind::CLIENT, Policy::lossy_client(), Limits::default());
        let got = log(&client);
        let conn = client.connect(addr, EntityKind::OSD, Policy::lossy_client(), knock(1));
        client.send(conn, message(1, 1));
        until("the echo", || tids(&got, conn) == [1]).await;
        until("the timeout", || server.connections() == 1).await;
        let mut noise = TcpStream::connect(addr.sock.unwrap()).await.unwrap();
        noise.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        let mut answer = vec![];
        let _ = noise.read_to_end(&mut answer).await;
        assert_eq!(&answer[..8], b"ceph v2\n");
    });
}

#[test]
fn refusals_are_told() {
    test(async {
        let client = messenger(EntityKind::CLIENT, Policy::lossy_client(), Limits::default());
        let got = log(&client);
        let nobody: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let to = EntityAddr::msgr2(nobody, 0);
        let conn = client.connect(to, EntityKind::MON, Policy::lossy_client(), knock(1));
        client.send(conn, message(1, 1));
        until(
            "the end",
            || matches!(got.borrow().last(), Some(NetEvent::Closed { conn: c, .. }) if *c == conn),
        )
        .await;
        // Another incarnation of the daemon than the one wanted.
        let server = messenger(EntityKind::OSD, Policy::stateless_server(), Limits::default());
        let mut addr = listen(&server);
        addr.nonce += 1;
        let conn = client.connect(addr, EntityKind::OSD, Policy::lossy_client(), knock(1));
        until(
            "the end",
            || matches!(got.borrow().last(), Some(NetEvent::Closed { conn: c, .. }) if *c == conn),
        )
        .await;
    });
}

/// Forwards between the sides and dies after some bytes, again and again.
fn cutting_proxy(to: SocketAddr, mut cuts: Vec<usize>) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    tokio::task::spawn_local(async move {
        loop {
            let (mut near, _) = listener.accept().await.unwrap();
            let mut far = TcpStream::connect(to).await.unwrap();
            let mut left = cuts.pop().unwrap_or(usize::MAX);
            let (mut up, mut down) = (vec![0; 3000], vec![0; 3000]);
            while left > 0 {
                let moved = tokio::select! {
                    n = near.read(&mut up) => {
                        let n = n.unwrap_or(0).min(left);
                        if far.write_all(&up[..n]).await.is_err() { 0 } else { n }
                    }
                    n = far.read(&mut down) => {
                        let n = n.unwrap_or(0).min(left);
                        if near.write_all(&down[..n]).await.is_err() { 0 } else { n }
                    }
                };
                if moved == 0 {
                    break;
                }
                left -= moved;
            }
        }
    });
    at
}

/// A lossless session over sockets that break: every message once and in order, under one
/// id, with one opening.
#[test]
fn lossless_sessions_survive() {
    test(async {
        for mode in [1, 2] {
            let server = messenger(EntityKind::MDS, Policy::stateful_server(), Limits::default());
            let real = listen(&server);
            echo(&server);
            let cuts = vec![40_000, 9_000, 1500, 700, 100, 30_000, 5_000];
            let at = cutting_proxy(real.sock.unwrap(), cuts);
            let addr = EntityAddr::msgr2(at, 99);
            server.set_local(|local| local.addrs = addr.into());
            let client = messenger(EntityKind::CLIENT, Policy::lossy_client(), Limits::default());
            client.set_local(|local| local.nonce = 7);
            let got = log(&client);
            let lossless = Policy::lossless_client();
            let conn = client.connect(addr, EntityKind::MDS, lossless, knock(mode));
            for tid in 0..100 {
                client.send(conn, message(tid, 1000));
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            until("all echoes", || tids(&got, conn).len() >= 100).await;
            assert_eq!(tids(&got, conn), (0..100).collect::<Vec<_>>());
            assert_eq!(got.borrow().len(), 101, "one opening and the echoes");
            assert_eq!(client.backlog(conn), 0);
        }
    });
}

/// Two daemons dial each other at the same moment: one session comes of it.
#[test]
fn peers_dial_each_other() {
    test(async {
        for _ in 0..20 {
            let sides: Vec<_> = (0..2)
                .map(|_| {
                    let m = messenger(EntityKind::OSD, Policy::lossless_peer(), Limits::default());
                    (m.clone(), listen(&m), log(&m))
                })
                .collect();
            let peer = Policy::lossless_peer();
            let conns: Vec<_> = (0..2)
                .map(|i| sides[i].0.connect(sides[1 - i].1, EntityKind::OSD, peer, knock(1)))
                .collect();
            for tid in 0..30 {
                for i in 0..2 {
                    sides[i].0.send(conns[i], message(tid, 5000));
                }
                if tid % 7 == 0 {
                    tokio::task::yield_now().await;
                }
            }
            for i in 0..2 {
                until("all messages", || tids(&sides[i].2, conns[i]).len() >= 30).await;
                assert_eq!(tids(&sides[i].2, conns[i]), (0..30).collect::<Vec<_>>());
            }
            until("one connection each", || sides.iter().all(|s| s.0.connections() == 1)).await;
            for (_, _, log) in &sides {
                let opened = |e: &&NetEvent| matches!(e, NetEvent::Opened { .. });
                assert_eq!(log.borrow().iter().filter(opened).count(), 1);
            }
        }
    });
}

/// A connection with a closed gate is not read; others are, and so is it once the gate is open.
#[test]
fn one_connection_is_held() {
    test(async {
        let server = messenger(EntityKind::OSD, Policy::stateless_server(), Limits::default());
        let addr = listen(&server);
        let got = Log::default();
        let (sink, gates) = (got.clone(), server.clone());
        let closed = Rc::new(std::cell::Cell::new(true));
        let gate = closed.clone();
        server.set_handler(move |event| {
            let first = !sink.borrow().iter().any(|e| matches!(e, NetEvent::Opened { .. }));
            if let NetEvent::Opened { conn, .. } = event
                && first
            {
                let gate = gate.clone();
                gates.set_gate(conn, Box::new(move |_, _| gate.get()));
            }
            sink.borrow_mut().push(event);
        });
        let opened = |n| {
            let opened = |e: &&NetEvent| matches!(e, NetEvent::Opened { .. });
            got.borrow().iter().filter(opened).count() == n
        };
        let mut peers = Vec::new();
        for n in 1..3 {
            let peer = messenger(EntityKind::CLIENT, Policy::lossy_client(), Limits::default());
            let conn = peer.connect(addr, EntityKind::OSD, Policy::lossy_client(), knock(1));
            peers.push((peer, conn));
            until("it is open", || opened(n)).await;
        }
        let from = |tids: std::ops::Range<u64>| {
            tids.filter(|tid| {
                let is =
                    |e: &NetEvent| matches!(e, NetEvent::Message { env, .. } if env.tid == *tid);
                got.borrow().iter().any(is)
            })
            .count()
        };
        for tid in 0..10 {
            peers[0].0.send(peers[0].1, message(tid, 100_000));
            peers[1].0.send(peers[1].1, message(100 + tid, 100_000));
        }
        until("the other's", || from(100..110) == 10).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!((from(0..10), server.held()), (0, 1));
        closed.set(false);
        until("the held one's", || from(0..10) == 10).await;
        assert_eq!(server.held(), 0);

        // What is not read is noticed when it ends, all the same.
        closed.set(true);
        peers[0].0.send(peers[0].1, message(10, 100_000));
        until("it is held", || server.held() == 1).await;
        peers[0].0.close(peers[0].1);
        until("it is over", || got.borrow().iter().any(|e| matches!(e, NetEvent::Closed { .. })))
            .await;
    });
}

/// What one read of the socket brought is not delivered either once the gate is closed.
#[test]
fn a_connection_is_held_between_two_messages() {
    test(async {
        let server = messenger(EntityKind::OSD, Policy::stateless_server(), Limits::default());
        let addr = listen(&server);
        let got = Log::default();
        let (sink, gates) = (got.clone(), server.clone());
        let allowed = Rc::new(std::cell::Cell::new(1));
        let most = allowed.clone();
        server.set_handler(move |event| {
            if let NetEvent::Opened { conn, .. } = event {
                let (most, sink) = (most.clone(), sink.clone());
                let messages = move || messages_in(&sink);
                gates.set_gate(conn, Box::new(move |_, _| messages() >= most.get()));
            }
            sink.borrow_mut().push(event);
        });
        let client = messenger(EntityKind::CLIENT, Policy::lossy_client(), Limits::default());
        let conn = client.connect(addr, EntityKind::OSD, Policy::lossy_client(), knock(1));
        for tid in 0..10 {
            client.send(conn, message(tid, 10));
        }
        for n in 1..=10 {
            until("the next", || messages_in(&got) >= n).await;
            tokio::time::sleep(Duration::from_millis(10)).await;
            assert_eq!(messages_in(&got), n);
            allowed.set(n + 1);
        }
    });
}

fn messages_in(log: &Log) -> usize {
    log.borrow().iter().filter(|e| matches!(e, NetEvent::Message { .. })).count()
}

/// Who takes no answers is told so to the gate, is not given more than it may have waiting, and is
/// closed after a time without any progress.
#[test]
fn answers_that_are_not_taken_are_bounded() {
    test(async {
        let limits = Limits {
            gated_backlog_bytes_max: 40 << 20,
            gated_stuck_ms: 1_500,
            ..Limits::default()
        };
        for more in [false, true] {
            let server = messenger(EntityKind::OSD, Policy::stateless_server(), limits);
            let addr = listen(&server);
            let got = Log::default();
            let (sink, gates) = (got.clone(), server.clone());
            let seen = Rc::new(std::cell::Cell::new(0));
            let most = seen.clone();
            server.set_handler(move |event| {
                if let NetEvent::Opened { conn, .. } = event {
                    let most = most.clone();
                    let gate = move |unread: usize, _| {
                        most.set(unread.max(most.get()));
                        unread > 1 << 20
                    };
                    gates.set_gate(conn, Box::new(gate));
                }
                sink.borrow_mut().push(event);
            });
            // It shows itself and then reads nothing: what comes is held by its role.
            let policy = Policy::lossy_client().with_budget(1);
            let client = messenger(EntityKind::CLIENT, policy, Limits::default());
            let held = Log::default();
            let sink = held.clone();
            client.set_handler(move |event| sink.borrow_mut().push(event));
            let conn = client.connect(addr, EntityKind::OSD, policy, knock(1));
            let opened = || {
                got.borrow()
                    .iter()
                    .find(|e| matches!(e, NetEvent::Opened { .. }))
                    .map(NetEvent::conn)
            };
            until("it is open", || opened().is_some()).await;
            let to = opened().expect("just seen");
            let answers = if more { 60 } else { 30 };
            for tid in 0..answers {
                server.send(to, message(tid, 1 << 20));
            }
            client.send(conn, message(99, 10));
            let slow = || {
                let slow =
                    |e: &NetEvent| matches!(e, NetEvent::Closed { why: rt::CloseWhy::Slow, .. });
                got.borrow().iter().any(slow)
            };
            until("it is closed", slow).await;
            assert_eq!(messages_in(&got), 0, "its request is not read");
            assert!(more || seen.get() > 10 << 20, "{}", seen.get());
        }
    });
}

/// Whoever holds messages stops the stream, and letting go of them starts it again.
#[test]
fn holds_push_back() {
    test(async {
        let policy = Policy::stateless_server().with_budget(50_000);
        let server = messenger(EntityKind::OSD, policy, Limits::default());
        let addr = listen(&server);
        let got = log(&server);
        let client = messenger(EntityKind::CLIENT, Policy::lossy_client(), Limits::default());
        let conn = client.connect(addr, EntityKind::OSD, Policy::lossy_client(), knock(1));
        for tid in 0..100 {
            client.send(conn, message(tid, 9_995));
        }
        let count = |got: &Log| {
            let message = |e: &&NetEvent| matches!(e, NetEvent::Message { .. });
            got.borrow().iter().filter(message).count()
        };
        until("the first", || count(&got) == 5).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(count(&got), 5);
        let mut seen = 0;
        while seen < 100 {
            until("more", || count(&got) > 0).await;
            seen += count(&got);
            got.borrow_mut().clear();
        }
    });
}

/// A client of messenger v1, by hand: what it says up to the end of the handshake, and what it is answered
/// there: the tag, connect_seq, and where it is told the last number that was received.
async fn dial_v1(at: SocketAddr, seqs: &[[u32; 2]]) -> (TcpStream, u8, u32, u64) {
    use denc::Denc;
    let mut s = TcpStream::connect(at).await.unwrap();
    let mut hello = b"ceph v027".to_vec();
    let me: EntityAddr = "v1:127.0.0.1:0/77".parse().unwrap();
    hello.extend(me.to_bytes_for(Features::NONE));
    s.write_all(&hello).await.unwrap();
    s.read_exact(&mut [0; 9 + 2 * 136]).await.unwrap();
    let (mut reply, mut seq) = ([0; 26], [0; 8]);
    for [global_seq, connect_seq] in seqs {
        // Without signatures.
        let features = Features::PACIFIC_WORD.0 & !Features::MSG_AUTH.0;
        let mut connect = features.to_le_bytes().to_vec();
        for word in [8, *global_seq, *connect_seq, 32, 2, 0] {
            connect.extend_from_slice(&word.to_le_bytes());
        }
        connect.push(0);
        s.write_all(&connect).await.unwrap();
        s.read_exact(&mut reply).await.unwrap();
    }
    if reply[0] == 13 {
        s.read_exact(&mut seq).await.unwrap();
        s.write_all(&[0; 8]).await.unwrap();
    }
    let connect_seq = u32::from_le_bytes(reply[13..17].try_into().unwrap());
    (s, reply[0], connect_seq, u64::from_le_bytes(seq))
}

/// An empty message of v1 without a signature.
fn message_v1(seq: u64) -> Vec<u8> {
    let mut raw = vec![7];
    raw.extend_from_slice(&seq.to_le_bytes());
    raw.extend_from_slice(&[0; 8]);
    raw.extend_from_slice(&[24, 0, 127, 0, 1, 0]);
    raw.extend_from_slice(&[0; 14]);
    raw.extend_from_slice(&[8, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
    let crc = stdx::crc32c(0, &raw[1..]);
    raw.extend_from_slice(&crc.to_le_bytes());
    raw.extend_from_slice(&[0; 12]);
    raw.push(1);
    raw
}

/// The numbers of the messages that come until there are `n`; acknowledgements are passed over.
async fn read_v1(s: &mut TcpStream, n: usize) -> Vec<u64> {
    let mut seqs = Vec::new();
    while seqs.len() < n {
        let mut head = [0; 9];
        s.read_exact(&mut head).await.unwrap();
        if head[0] == 7 {
            s.read_exact(&mut [0; 53 - 8 + 13]).await.unwrap();
            seqs.push(u64::from_le_bytes(head[1..].try_into().unwrap()));
        }
    }
    seqs
}

/// A client of messenger v1 whose connection breaks goes on where it was, and the role hears nothing of
/// it; one that starts anew is told as that.
#[test]
fn sessions_of_v1_go_on() {
    test(async {
        let m = messenger(EntityKind::MDS, Policy::stateful_server(), Limits::default());
        let at = m.bind_v1("127.0.0.1:0".parse().unwrap(), rt::v1::Rules::default()).unwrap();
        m.set_local(|local| local.addrs = EntityAddr::msgr2(at, 99).into());
        let (back, seen) = (m.clone(), Rc::new(RefCell::new((0, 0, 0))));
        let count = seen.clone();
        m.set_handler(move |event| match event {
            NetEvent::Opened { peer, .. } => {
                assert_eq!((peer.id.num, peer.lossy), (5, false));
                count.borrow_mut().0 += 1;
            }
            NetEvent::Message { conn, env, .. } => {
                count.borrow_mut().1 += 1;
                back.send(conn, env);
            }
            NetEvent::Closed { .. } => count.borrow_mut().2 += 1,
            NetEvent::Alive { .. } => {}
        });
        let (mut s, tag, connect_seq, _) = dial_v1(at, &[[1, 0]]).await;
        assert_eq!((tag, connect_seq), (13, 1));
        s.write_all(&[message_v1(1), message_v1(2)].concat()).await.unwrap();
        assert_eq!(read_v1(&mut s, 2).await, [1, 2]);
        drop(s);
        // It says the same number again, as kernels do, and then the one that it is told.
        let (_, tag, next, _) = dial_v1(at, &[[2, 1]]).await;
        assert_eq!((tag, next), (4, 2));
        let (mut s, tag, _, last) = dial_v1(at, &[[3, 1], [3, 2]]).await;
        assert_eq!((tag, last), (13, 2));
        assert_eq!(read_v1(&mut s, 2).await, [1, 2], "it said that it had received nothing");
        s.write_all(&[message_v1(2), message_v1(3)].concat()).await.unwrap();
        assert_eq!(read_v1(&mut s, 1).await, [3]);
        assert_eq!(*seen.borrow(), (1, 3, 0));
        // Another connection with an old number does not take it.
        let (_, tag, _, _) = dial_v1(at, &[[2, 9]]).await;
        assert_eq!(tag, 5, "RETRY_GLOBAL");
        let (mut s, tag, connect_seq, last) = dial_v1(at, &[[4, 0]]).await;
        assert_eq!((tag, connect_seq, last), (13, 1, 0));
        s.write_all(&message_v1(1)).await.unwrap();
        assert_eq!(read_v1(&mut s, 1).await, [1]);
        assert_eq!(*seen.borrow(), (2, 4, 1));
    });
}
