//! Against stock monitors, with a real messenger on a blocking socket.
//!
//! `ARGONAUT_PEER_CONF` is the path of a running stock cluster's ceph.conf, its `keyring`
//! with `client.admin` beside it. Without it the test says so and passes.

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, SystemTime};

use auth::{
    ClientAuthSettings, CryptoKey, KeyKind, Keyring, MonClientAuth, RotatingKeys, SharedRandom,
    SharedTickets, Tickets, service_mask,
};
use bytes::{BufMut, Bytes};
use denc::Features;
use env::{Now, Random, Seeded};
use messages::MonCommandAck;
use monc::{Event, MonClient, Out, ServiceKeys, TicketRenewal};
use msgr::{Connection, Dial, Fault, Local, Policy};
use types::{AddrVec, EntityAddr, EntityKind, EntityName, UTime, Uuid};

#[allow(clippy::disallowed_methods)]
fn now() -> Now {
    let wall_ns =
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64;
    Now { mono_ns: wall_ns, wall_ns }
}

fn chance() -> SharedRandom {
    Arc::new(Mutex::new(Seeded(now().wall_ns)))
}

/// One process's session with the monitors.
struct Link {
    client: MonClient,
    renewal: TicketRenewal,
    wanted: u32,
    secure: bool,
    conn: Option<(Connection, TcpStream)>,
    events: Vec<Event>,
    opened: u32,
    fault: Option<Fault>,
}

impl Link {
    fn new(
        mon: EntityAddr,
        tickets: &SharedTickets,
        own: Option<ServiceKeys>,
        secure: bool,
    ) -> Self {
        let kinds =
            [EntityKind::AUTH, EntityKind::MON, EntityKind::OSD, EntityKind::MDS, EntityKind::MGR];
        let wanted = service_mask(&kinds);
        let mut rng = Seeded(now().wall_ns);
        Self {
            client: MonClient::new(vec![mon], Uuid::default(), "host".into(), &mut rng),
            renewal: TicketRenewal::new(tickets.clone(), wanted, own, chance()),
            wanted,
            secure,
            conn: None,
            events: Vec::new(),
            opened: 0,
            fault: None,
        }
    }

    fn carry_out(&mut self, out: Vec<Out>) {
        for wish in out {
            match wish {
                Out::Connect(addr) => {
                    let sock = addr.sock.unwrap();
                    let stream = TcpStream::connect(sock).expect("the monitor listens");
                    stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
                    let local = Local {
                        kind: EntityKind::CLIENT,
                        num: -1,
                        addrs: AddrVec::default(),
                        nonce: Seeded(now().wall_ns).u64() as u32,
                        features: Features::TENTACLE_WORD,
                    };
                    let dial = Dial {
                        addr,
                        addrs: AddrVec::default(),
                        kind: EntityKind::MON,
                        policy: Policy::lossy_client(),
                        global_seq: 1,
                        cookie: 0,
                    };
                    let settings = ClientAuthSettings::cephx(self.secure);
                    let tickets = self.renewal.tickets().clone();
                    let auth = MonClientAuth::new(settings, tickets, self.wanted, chance());
                    let conn = Connection::dial(Arc::new(local), dial, Box::new(auth), None, sock);
                    self.conn = Some((conn, stream));
                }
                Out::Close => self.conn = None,
                Out::Send(env) => self.conn.as_mut().unwrap().0.send(env).unwrap(),
                Out::Event(event) => self.events.push(event),
            }
        }
    }

    /// Writes what waits, reads what comes within a moment.
    fn pump(&mut self) {
        let mut out = Vec::new();
        let Some((conn, stream)) = &mut self.conn else { return };
        while conn.prepare().unwrap() {
            let mut slices = [IoSlice::new(&[]); 16];
            let n = conn.slices(&mut slices);
            let n = stream.write_vectored(&slices[..n]).unwrap();
            conn.advance(n);
        }
        let mut raw = [0; 4096];
        let want = conn.read_buf().remaining_mut().min(raw.len());
        match stream.read(&mut raw[..want]) {
            Ok(0) => panic!("the monitor closed the connection"),
            Ok(n) => conn.read_buf().put_slice(&raw[..n]),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(e) => panic!("{e}"),
        }
        loop {
            match conn.poll(now()) {
                Err(fault) => {
                    self.fault = Some(fault);
                    return;
                }
                Ok(None) => break,
                Ok(Some(msgr::Event::Ready { .. })) => {
                    self.opened += 1;
                    self.client.on_opened(now(), &mut out);
                }
                Ok(Some(msgr::Event::Message { env, cost })) => {
                    conn.release(cost);
                    self.client.on_message(now(), env, &mut self.renewal, &mut out);
                }
                Ok(Some(_)) => {}
            }
        }
        self.client.on_tick(now(), &mut self.renewal, &mut out);
        self.carry_out(out);
    }

    fn until<T>(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> Option<T>) -> T {
        for _ in 0..500 {
            if let Some(found) = done(self) {
                return found;
            }
            self.pump();
        }
        panic!("{what} did not come; {:?} {:?}", self.fault, self.events);
    }

    fn start(&mut self) {
        let mut out = Vec::new();
        self.client.start(now(), &mut out);
        self.carry_out(out);
        self.until("a session", |l| l.client.is_open().then_some(()));
    }

    fn command(&mut self, json: &str) -> MonCommandAck {
        let mut out = Vec::new();
        let tid = self.client.command(json, Bytes::new(), &mut out).unwrap();
        self.carry_out(out);
        self.until(json, |l| {
            l.events.iter().find_map(|e| match e {
                Event::Command { tid: t, ack } if *t == tid => Some(ack.clone()),
                _ => None,
            })
        })
    }
}

#[test]
fn stock_monitors() {
    let Ok(conf) = std::env::var("ARGONAUT_PEER_CONF") else {
        eprintln!("skipped: ARGONAUT_PEER_CONF names no running stock cluster");
        return;
    };
    let text = std::fs::read_to_string(&conf).unwrap();
    let at = text.find("v2:").expect("mon host has a v2 address");
    let mon: EntityAddr = text[at..].split([',', ']', '\n']).next().unwrap().parse().unwrap();
    let ring = Path::new(&conf).with_file_name("keyring");
    let ring = Keyring::parse(&std::fs::read_to_string(ring).unwrap()).unwrap();
    let admin: EntityName = "client.admin".parse().unwrap();
    let key = ring.key(&admin).unwrap().clone();
    eprintln!("keys of type {}", key.kind);

    for secure in [false, true] {
        let tickets = Tickets::new(admin.clone(), key.clone()).shared();
        let mut link = Link::new(mon, &tickets, None, secure);
        link.start();
        let id = tickets.lock().unwrap().global_id;
        assert_ne!(id, 0);
        assert!(tickets.lock().unwrap().has(now(), EntityKind::MON));
        let mut out = Vec::new();
        let tid = link.client.get_version("osdmap", &mut out).unwrap();
        link.carry_out(out);
        link.until("a version", |l| {
            l.events.iter().find_map(|e| match e {
                Event::Version { tid: t, reply } if *t == tid => Some(reply.version),
                _ => None,
            })
        });

        // A lost service ticket is fetched by message.
        tickets.lock().unwrap().invalidate(EntityKind::OSD);
        link.until("a service ticket", |l| {
            let held = l.renewal.tickets().lock().unwrap();
            held.has(now(), EntityKind::OSD).then_some(())
        });

        // The AUTH ticket is renewed by message, with the old one as proof.
        let mut late = now();
        late.wall_ns += 60 * 3600 * 1_000_000_000;
        let payload = {
            let held = tickets.lock().unwrap();
            assert_ne!(held.needs_renewal(late, link.wanted) & 0x20, 0);
            held.renewal(late, link.wanted, &mut Seeded(now().wall_ns)).unwrap().unwrap()
        };
        let request = messages::Auth {
            paxos: messages::Paxos::default(),
            protocol: 2,
            payload,
            monmap_epoch: types::Epoch(0),
        };
        let envelope = messages::Message::envelope(&request, Features::ALL);
        let before = format!("{:?}", tickets.lock().unwrap());
        link.carry_out(vec![Out::Send(envelope)]);
        link.until("a new AUTH ticket", |_| {
            (format!("{:?}", tickets.lock().unwrap()) != before).then_some(())
        });
        assert_eq!(link.opened, 1, "no refusal: {:?}", link.events);

        // Back with the old ticket: the same number.
        link.conn = None;
        let mut out = Vec::new();
        link.client.on_closed(now(), &mut out);
        link.carry_out(out);
        link.until("the second session", |l| (l.opened == 2).then_some(()));
        assert_eq!(tickets.lock().unwrap().global_id, id);

        // A daemon fetches its service's keys.
        let ack = link.command(
            r#"{"prefix":"auth get-or-create","entity":"osd.77","caps":["mon","allow profile osd","osd","allow *"],"format":"plain"}"#,
        );
        assert_eq!(ack.r, 0, "{}", ack.rs);
        let osd: EntityName = "osd.77".parse().unwrap();
        let got = std::str::from_utf8(&ack.output).unwrap();
        let key = Keyring::parse(got).unwrap().key(&osd).unwrap().clone();
        let keys = Arc::new(RwLock::new(RotatingKeys::default()));
        let service = ServiceKeys { keys: keys.clone(), ticket_ttl_secs: 3600 };
        let mut daemon = Link::new(mon, &Tickets::new(osd, key).shared(), Some(service), secure);
        daemon.start();
        daemon.until("service keys", |_| (!keys.read().unwrap().is_empty()).then_some(()));
        assert_eq!(keys.read().unwrap().secrets.secrets.len(), 3);

        // A wrong key is refused.
        let wrong = CryptoKey::generate(KeyKind::AES, UTime::ZERO, &mut Seeded(1));
        let tickets = Tickets::new(admin.clone(), wrong).shared();
        let mut stranger = Link::new(mon, &tickets, None, secure);
        let mut out = Vec::new();
        stranger.client.start(now(), &mut out);
        stranger.carry_out(out);
        let fault = stranger.until("the refusal", |l| l.fault.take());
        assert!(fault.to_string().contains("error -13"), "{fault}");
    }
}
