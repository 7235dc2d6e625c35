//! Against the peer itself. Two variables choose what is there:
//! - `ARGONAUT_PEER_CONF`: the path of the ceph.conf of a running stock cluster with cephx,
//!   its `keyring` with `client.admin` beside it;
//! - `ARGONAUT_PEER_EXEC`: a command that runs the command behind it with upstream's client
//!   programs, `sudo chroot /roots/trixie` or just `env`; it sees the directory named by
//!   `ARGONAUT_PEER_DIR` at the same path.
//!
//! Without them the tests say so and pass.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use auth::handshake::con_mode;
use auth::{
    AuthorizerClientAuth, ClientAuthSettings, CryptoKey, KeyKind, KeyServer, Keyring, MonAuth,
    MonAuthSettings, MonClientAuth, SharedRandom, SharedTickets, TicketPolicy, Tickets,
};
use bytes::BufMut;
use denc::{Denc, Features};
use env::Random;
use messages::{
    Envelope, MdsMapMsg, Message, MonGetMap, MonMapMsg, MonSubscribe, OsdMapMsg, Subscription,
};
use msgr::{Connection, Dial, Event, Session};
use rt::{ConMode, Config, Limits, Local, Messenger, NetEvent, OsRandom, Policy, run_local};
use types::{AddrVec, EntityAddr, EntityKind, EntityName, UTime};

fn random() -> SharedRandom {
    Arc::new(Mutex::new(OsRandom))
}

fn client() -> Messenger {
    Messenger::new(Config {
        local: Local {
            kind: EntityKind::CLIENT,
            num: -1,
            addrs: AddrVec::default(),
            nonce: 4711,
            features: Features::PACIFIC_WORD,
        },
        policy: Box::new(|_| Policy::stateless_server()),
        auth: Box::new(|_, _| unreachable!("clients do not listen")),
        limits: Limits::default(),
    })
}

async fn until<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    for _ in 0..4000 {
        if let Some(out) = done() {
            return out;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("never happened: {what}");
}

fn test(work: impl Future<Output = ()>) {
    run_local(async { tokio::time::timeout(Duration::from_secs(60), work).await.unwrap() })
        .unwrap();
}

/// The monitor's address and the tickets of client.admin.
fn stock_cluster() -> Option<(EntityAddr, SharedTickets)> {
    let Ok(conf) = std::env::var("ARGONAUT_PEER_CONF") else {
        eprintln!("skipped: ARGONAUT_PEER_CONF names no running stock cluster");
        return None;
    };
    let text = std::fs::read_to_string(&conf).unwrap();
    let at = text.find("v2:").expect("mon host has a v2 address");
    let addr = text[at..].split([',', ']', '\n']).next().unwrap().parse().unwrap();
    let keyring = Path::new(&conf).with_file_name("keyring");
    let keyring = Keyring::parse(&std::fs::read_to_string(keyring).unwrap()).unwrap();
    let name: EntityName = "client.admin".parse().unwrap();
    let key = keyring.key(&name).unwrap().clone();
    Some((addr, Tickets::new(name, key).shared()))
}

type Inbox = Rc<RefCell<Vec<NetEvent>>>;

fn inbox(m: &Messenger) -> Inbox {
    let inbox = Inbox::default();
    let sink = inbox.clone();
    m.set_handler(move |event| sink.borrow_mut().push(event));
    inbox
}

fn first(inbox: &Inbox, kind: u16) -> Option<Envelope> {
    inbox.borrow().iter().find_map(|event| match event {
        NetEvent::Message { env, .. } if env.kind == kind => Some(env.clone()),
        NetEvent::Closed { why, .. } => panic!("closed: {why}"),
        _ => None,
    })
}

fn mode_of(inbox: &Inbox, kind: EntityKind) -> Option<ConMode> {
    inbox.borrow().iter().find_map(|event| match event {
        NetEvent::Opened { peer, .. } if peer.id.kind == kind => Some(peer.con_mode),
        _ => None,
    })
}

/// In both modes: the monitor's map from the monitor, and a session with an OSD by ticket.
#[test]
fn stock_daemons_take_us_for_a_client() {
    let Some((mon, tickets)) = stock_cluster() else { return };
    test(async move {
        for (secure_first, mode) in [(false, ConMode::Crc), (true, ConMode::Secure)] {
            let m = client();
            let got = inbox(&m);
            let settings = ClientAuthSettings::cephx(secure_first);
            let (held, asked) = (tickets.clone(), settings.clone());
            let conn = m.connect(
                mon,
                EntityKind::MON,
                Policy::lossy_client(),
                Box::new(move || {
                    Box::new(MonClientAuth::new(asked.clone(), held.clone(), 0x37, random()))
                }),
            );
            m.send(conn, MonGetMap {}.envelope(Features::PACIFIC_WORD));
            let env = until("the map", || first(&got, MonMapMsg::KIND)).await;
            assert!(MonMapMsg::decode(&env).is_ok());
            assert_eq!(mode_of(&got, EntityKind::MON), Some(mode));
            let what = [("osdmap".to_owned(), Subscription { start: 0, flags: 1 })];
            let ask = MonSubscribe { what: what.into(), hostname: String::new() };
            m.send(conn, ask.envelope(Features::PACIFIC_WORD));
            let env = until("the OSD map", || first(&got, OsdMapMsg::KIND)).await;
            let maps = OsdMapMsg::decode(&env).unwrap();
            let full = maps.fulls.values().next_back().expect("a full map comes first");
            let map = maps::OsdMap::from_shared(full).unwrap();
            let addrs = map.osd_addrs(types::OsdId(0)).expect("osd.0 has addresses").clone();
            m.send(conn, MonGetMap {}.envelope(Features::PACIFIC_WORD));
            let held = tickets.clone();
            let osd = m.connect(
                addrs,
                EntityKind::OSD,
                Policy::lossy_client(),
                Box::new(move || {
                    let (settings, held) = (settings.clone(), held.clone());
                    let osd = EntityKind::OSD;
                    Box::new(AuthorizerClientAuth::new(settings, held, osd, random()))
                }),
            );
            until("the OSD", || mode_of(&got, EntityKind::OSD)).await;
            assert_eq!(mode_of(&got, EntityKind::OSD), Some(mode));
            m.keepalive(osd, UTime { sec: 1, nsec: 2 });
            until("the OSD's sign of life", || {
                got.borrow().iter().find(|e| matches!(e, NetEvent::Alive { .. })).map(drop)
            })
            .await;
            m.close(osd);
            m.close(conn);
        }
    });
}

/// A monitor of which nothing works yet but the door, and the keyring of who may enter.
fn doorkeeper(key: &CryptoKey, allowed: Vec<u32>) -> (Messenger, EntityAddr) {
    let auth = MonAuth::new(MonAuthSettings { modes: allowed, ..Default::default() }, random());
    let mut keys = KeyServer::default();
    let caps = [("mon", "allow *"), ("osd", "allow *"), ("mds", "allow *"), ("mgr", "allow *")];
    let caps = caps.map(|(service, text)| (service.to_owned(), text.to_owned()));
    keys.set("client.admin".parse().unwrap(), key.clone(), caps.into());
    let now = UTime::from_nanos(rt::now().wall_ns);
    let planned = keys.plan_rotation(now, &TicketPolicy::default(), &mut OsRandom).unwrap();
    keys.apply_rotation(&planned).unwrap();
    auth.set_keys(keys);
    auth.add_global_ids(4100..5000);
    let m = Messenger::new(Config {
        local: Local {
            kind: EntityKind::MON,
            num: 0,
            addrs: AddrVec::default(),
            nonce: 0,
            features: Features::PACIFIC_WORD,
        },
        policy: Box::new(|_| Policy::stateless_server()),
        auth: Box::new(move |_, _| auth.connection()),
        limits: Limits::default(),
    });
    let addr = EntityAddr::msgr2(m.bind("127.0.0.1:0".parse().unwrap()).unwrap(), 0);
    m.set_local(|local| local.addrs = addr.into());
    (m, addr)
}

/// An upstream program gets through the handshake and asks for what it needs.
#[test]
fn stock_clients_take_us_for_a_monitor() {
    let (Ok(exec), Ok(dir)) =
        (std::env::var("ARGONAUT_PEER_EXEC"), std::env::var("ARGONAUT_PEER_DIR"))
    else {
        eprintln!("skipped: ARGONAUT_PEER_EXEC runs no upstream client");
        return;
    };
    test(async move {
        for (modes, mode) in [
            (vec![con_mode::CRC], ConMode::Crc),
            (vec![con_mode::SECURE, con_mode::CRC], ConMode::Secure),
        ] {
            let key = CryptoKey::generate(KeyKind::AES, UTime::ZERO, &mut OsRandom);
            let (m, addr) = doorkeeper(&key, modes);
            let dir = Path::new(&dir).join(format!("argonaut-door-{}", std::process::id()));
            std::fs::create_dir_all(&dir).unwrap();
            let keyring = dir.join("keyring");
            let text = format!("[client.admin]\n\tkey = {}\n", key.to_base64());
            std::fs::write(&keyring, text).unwrap();
            let mut words = exec.split_whitespace();
            let mut ceph = tokio::process::Command::new(words.next().unwrap())
                .args(words)
                .args(["ceph", "--conf", "/dev/null", "--connect-timeout", "10"])
                .args(["--mon-host", &format!("[{addr}]").replace("/0", "")])
                .args(["--keyring", &keyring.display().to_string(), "-s"])
                .stdin(std::process::Stdio::null())
                .kill_on_drop(true)
                .spawn()
                .unwrap();
            let (asked, opened) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(None)));
            let (asks, opens) = (asked.clone(), opened.clone());
            m.set_handler(move |event| match event {
                NetEvent::Opened { peer, .. } => {
                    assert_eq!(peer.identity.name.to_string(), "client.admin");
                    assert_eq!(peer.identity.caps, "allow *");
                    opens.set(Some(peer.con_mode));
                }
                NetEvent::Message { env, .. } => {
                    eprintln!("asks with message {} of {} bytes", env.kind, env.front.len());
                    asks.set(asks.get() + 1);
                }
                other => eprintln!("{other:?}"),
            });
            assert_eq!(until("the handshake", || opened.get()).await, mode);
            until("a question", || (asked.get() > 0).then_some(())).await;
            let _ = ceph.kill().await;
            let _ = std::fs::remove_dir_all(&dir);
        }
    });
}

/// One blocking TCP connection to a metadata server: up to `until`, which sees each event.
fn mds_connection(
    conn: &mut Connection,
    to: std::net::SocketAddr,
    mut until: impl FnMut(&mut Connection, Event) -> bool,
) {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut raw = [0; 4096];
    loop {
        while conn.prepare().unwrap() {
            let mut slices = [std::io::IoSlice::new(&[]); 16];
            let n = conn.slices(&mut slices);
            let n = stream.write_vectored(&slices[..n]).unwrap();
            conn.advance(n);
        }
        let n = stream.read(&mut raw).unwrap();
        assert!(n > 0, "the metadata server hung up");
        conn.read_buf().put_slice(&raw[..n]);
        while let Some(event) = conn.poll(rt::now()).unwrap() {
            if until(conn, event) {
                return;
            }
        }
    }
}

/// A session with a metadata server goes on over a second TCP connection.
#[test]
fn stock_mds_resumes_our_session() {
    let Some((mon, tickets)) = stock_cluster() else { return };
    let settings = ClientAuthSettings::cephx(false);
    let map = Rc::new(RefCell::new(None));
    let (found, held, asked) = (map.clone(), tickets.clone(), settings.clone());
    test(async move {
        let m = client();
        let got = inbox(&m);
        let auth = move || -> Box<dyn auth::ClientAuth> {
            Box::new(MonClientAuth::new(asked.clone(), held.clone(), 0x37, random()))
        };
        let conn = m.connect(mon, EntityKind::MON, Policy::lossy_client(), Box::new(auth));
        let what = [("mdsmap".to_owned(), Subscription { start: 0, flags: 1 })];
        let ask = MonSubscribe { what: what.into(), hostname: String::new() };
        m.send(conn, ask.envelope(Features::PACIFIC_WORD));
        let env = until("the map", || first(&got, MdsMapMsg::KIND)).await;
        let map = maps::MdsMap::from_shared(&MdsMapMsg::decode(&env).unwrap().map).unwrap();
        *found.borrow_mut() = map.mds_info.values().find(|info| info.rank == 0).cloned();
    });
    let Some(mds) = map.take() else {
        eprintln!("skipped: the stock cluster has no active metadata server");
        return;
    };
    let addr = mds.addrs.msgr2().unwrap();
    let local = Local {
        kind: EntityKind::CLIENT,
        num: tickets.lock().unwrap().global_id as i64,
        addrs: AddrVec::default(),
        nonce: rt::now().wall_ns as u32,
        features: Features::PACIFIC_WORD,
    };
    let dial = |global_seq, session: Option<Session>| {
        let dial = Dial {
            addr,
            addrs: mds.addrs.clone(),
            kind: EntityKind::MDS,
            policy: Policy::lossless_client(),
            global_seq,
            cookie: OsRandom.u64(),
        };
        let auth =
            AuthorizerClientAuth::new(settings.clone(), tickets.clone(), EntityKind::MDS, random());
        let local = Arc::new(local.clone());
        Connection::dial(local, dial, Box::new(auth), session, addr.sock.unwrap())
    };
    // CLIENT_SESSION "request open" in its oldest form; whatever the answer is, it is one.
    let open = Envelope {
        kind: 22,
        version: 1,
        compat: 1,
        front: vec![0; 28].into(),
        ..Default::default()
    };
    let mut first = dial(1, None);
    first.send(open.clone()).unwrap();
    mds_connection(&mut first, addr.sock.unwrap(), |_, event| match event {
        Event::Ready { resumed } => {
            assert!(!resumed);
            false
        }
        Event::Message { env, .. } => {
            eprintln!("answer: message {}", env.kind);
            true
        }
        _ => false,
    });
    assert!(!first.peer().lossy);
    // What the answer acknowledged is not sent again; what is sent now is.
    let mut session = first.into_session();
    assert_eq!(session.bytes(), 0);
    session.send(open).unwrap();
    let mut second = dial(2, Some(session));
    let mut ready = false;
    mds_connection(&mut second, addr.sock.unwrap(), |conn, event| {
        match event {
            Event::Ready { resumed } => {
                assert!(resumed, "the metadata server knows the session");
                ready = true;
                conn.keepalive(UTime { sec: 3, nsec: 4 }).unwrap();
            }
            Event::KeepaliveAck(stamp) => {
                assert_eq!(stamp, UTime { sec: 3, nsec: 4 });
                return true;
            }
            Event::RemoteReset => panic!("the session was lost"),
            _ => {}
        }
        false
    });
    assert!(ready);
}
