//! Every way to refuse a handshake, as upstream's clients see it: they look up the method that a
//! refusal names among their own and abort where it is not there, and they show its errno.

mod common;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, RwLock};

use auth::handshake::{con_mode, method};
use auth::*;
use bytes::Bytes;
use common::{run, server_addr, sock};
use denc::Features;
use env::{Now, Seeded};
use msgr::{Acceptor, Connection, Dial, Event, Fault, Local, Policy};
use types::{AddrVec, EntityKind, EntityName, UTime};

const EACCES: i32 = -13;
const EOPNOTSUPP: i32 = -95;

/// What a refusal said: method, errno, allowed methods, allowed modes.
type Said = (u32, i32, Vec<u32>, Vec<u32>);

/// Changes a payload on its way.
type Spoil = fn(Bytes) -> Bytes;

/// A client that notes refusals, and may spoil what it sends in a round.
struct Watched {
    inner: Box<dyn ClientAuth>,
    said: Arc<Mutex<Vec<Said>>>,
    /// Changes what is sent in AUTH_REQUEST (0) or AUTH_REQUEST_MORE (1).
    spoil: Option<(usize, Spoil)>,
}

impl Watched {
    fn spoilt(&self, round: usize, payload: Bytes) -> Bytes {
        match self.spoil {
            Some((at, change)) if at == round => change(payload),
            _ => payload,
        }
    }
}

impl ClientAuth for Watched {
    fn start(&mut self, now: Now) -> Result<ClientStart, AuthError> {
        let start = self.inner.start(now)?;
        Ok(ClientStart { payload: self.spoilt(0, start.payload), ..start })
    }
    fn bad_method(
        &mut self,
        _now: Now,
        method: u32,
        result: i32,
        methods: &[u32],
        modes: &[u32],
    ) -> Result<ClientStart, AuthError> {
        self.said.lock().unwrap().push((method, result, methods.to_vec(), modes.to_vec()));
        Err(AuthError::Refused { result, allowed_methods: methods.to_vec() })
    }
    fn more(&mut self, now: Now, payload: &[u8]) -> Result<Bytes, AuthError> {
        let answer = self.inner.more(now, payload)?;
        Ok(self.spoilt(1, answer))
    }
    fn done(&mut self, now: Now, id: u64, mode: u32, p: &[u8]) -> Result<ClientDone, AuthError> {
        self.inner.done(now, id, mode, p)
    }
}

struct Door<F>(F);

impl<F: Fn() -> Box<dyn ServerAuth>> Acceptor for Door<F> {
    fn auth(&self, _kind: EntityKind, _from: SocketAddr) -> Box<dyn ServerAuth> {
        (self.0)()
    }
    fn policy(&self, _kind: EntityKind) -> Policy {
        Policy::stateless_server()
    }
}

/// A client's handshake with a door; `Err` holds the refusals it was told.
fn knock(
    client: Watched,
    door: impl Fn() -> Box<dyn ServerAuth> + 'static,
) -> Result<(), Vec<Said>> {
    let said = client.said.clone();
    let local = Local {
        kind: EntityKind::OSD,
        num: 0,
        addrs: AddrVec(vec![server_addr()]),
        nonce: 11010,
        features: Features::PACIFIC_WORD,
    };
    let mut b = Connection::accept(Arc::new(local.clone()), Rc::new(Door(door)), sock());
    let local = Local { kind: EntityKind::CLIENT, addrs: AddrVec::default(), ..local };
    let dial = Dial {
        addr: server_addr(),
        addrs: server_addr().into(),
        kind: EntityKind::OSD,
        policy: Policy::lossy_client(),
        global_seq: 1,
        cookie: 55,
    };
    let to = server_addr().sock.unwrap();
    let mut a = Connection::dial(Arc::new(local), dial, Box::new(client), None, to);
    let (mut at_a, mut at_b) = (vec![], vec![]);
    match run(&mut a, &mut b, 4096, &mut at_a, &mut at_b) {
        Ok(()) => {
            assert!(a.is_ready() && b.is_ready());
            Ok(())
        }
        Err(Fault::Auth(AuthError::Refused { .. })) => {
            assert!(at_b.iter().any(|e| matches!(e, Event::AuthRefused(_))), "the log hears it");
            Err(said.lock().unwrap().clone())
        }
        Err(other) => panic!("{other}"),
    }
}

fn rng(seed: u64) -> SharedRandom {
    Arc::new(Mutex::new(Seeded(seed)))
}

fn name(s: &str) -> EntityName {
    s.parse().unwrap()
}

struct Cluster {
    mon: MonAuth,
    settings: MonAuthSettings,
    keys: KeyServer,
    rotating: SharedRotatingKeys,
}

impl Cluster {
    fn new() -> Self {
        let mut seed = Seeded(9);
        let settings = MonAuthSettings::default();
        let mut keys = KeyServer::default();
        for (who, caps) in [
            ("client.admin", &[("mon", "allow *"), ("osd", "allow *")][..]),
            ("client.nocaps", &[]),
        ] {
            let key = CryptoKey::generate(KeyKind::AES, UTime::ZERO, &mut seed);
            let caps: BTreeMap<_, _> =
                caps.iter().map(|(s, c)| (s.to_string(), c.to_string())).collect();
            keys.set(name(who), key, caps);
        }
        let planned = keys.plan_rotation(UTime::ZERO, &settings.policy, &mut seed).unwrap();
        keys.apply_rotation(&planned).unwrap();
        let mon = MonAuth::new(settings.clone(), rng(1));
        mon.set_keys(keys.clone());
        mon.add_global_ids(4100..4200);
        let secrets = keys.rotating(EntityKind::OSD).unwrap().clone();
        let rotating = Arc::new(RwLock::new(RotatingKeys::from(secrets)));
        Self { mon, settings, keys, rotating }
    }

    fn tickets(&self, who: &str) -> SharedTickets {
        let key = self.keys.get(&name(who)).unwrap().key.clone();
        Tickets::new(name(who), key).shared()
    }

    fn to_mon(&self, tickets: &SharedTickets, secure: bool) -> Watched {
        let services = service_mask(&[EntityKind::AUTH, EntityKind::MON, EntityKind::OSD]);
        let settings = ClientAuthSettings::cephx(secure);
        let inner = Box::new(MonClientAuth::new(settings, tickets.clone(), services, rng(2)));
        Watched { inner, said: Arc::default(), spoil: None }
    }

    fn to_osd(&self, tickets: &SharedTickets, secure: bool) -> Watched {
        let settings = ClientAuthSettings::cephx(secure);
        let inner = AuthorizerClientAuth::new(settings, tickets.clone(), EntityKind::OSD, rng(4));
        Watched { inner: Box::new(inner), said: Arc::default(), spoil: None }
    }

    fn at_mon(&self, client: Watched) -> Result<(), Vec<Said>> {
        let mon = self.mon.clone();
        knock(client, move || mon.connection())
    }

    fn at_osd(&self, client: Watched) -> Result<(), Vec<Said>> {
        let keys = self.rotating.clone();
        let settings = ServiceAuthSettings::cephx(EntityKind::OSD);
        let door = move || -> Box<dyn ServerAuth> {
            Box::new(ServiceAuth::new(settings.clone(), keys.clone(), rng(3)))
        };
        knock(client, door)
    }
}

fn refusal(result: i32) -> Result<(), Vec<Said>> {
    let modes = vec![con_mode::SECURE, con_mode::CRC];
    Err(vec![(method::CEPHX, result, vec![method::CEPHX], modes)])
}

/// Drops the last byte.
fn cut(payload: Bytes) -> Bytes {
    payload.slice(..payload.len() - 1)
}

/// Turns the bits of the last byte.
fn flip(payload: Bytes) -> Bytes {
    let mut bytes = payload.to_vec();
    *bytes.last_mut().unwrap() ^= 0xff;
    bytes.into()
}

fn nothing(_: Bytes) -> Bytes {
    Bytes::new()
}

#[test]
fn a_monitor_refuses_by_the_clients_method() {
    for secure in [false, true] {
        let c = Cluster::new();
        let wrong = CryptoKey::generate(KeyKind::AES, UTime::ZERO, &mut Seeded(77));
        let tickets = |who, key: &CryptoKey| Tickets::new(name(who), key.clone()).shared();
        let refused = refusal(EACCES);
        assert_eq!(c.at_mon(c.to_mon(&tickets("client.admin", &wrong), secure)), refused, "key");
        assert_eq!(c.at_mon(c.to_mon(&tickets("client.no", &wrong), secure)), refused, "entity");
        assert_eq!(c.at_mon(c.to_mon(&c.tickets("client.nocaps"), secure)), refused, "no caps");
        for (round, spoil) in [(0, cut as Spoil), (0, nothing), (1, cut), (1, nothing)] {
            let client = c.to_mon(&c.tickets("client.admin"), secure);
            let client = Watched { spoil: Some((round, spoil)), ..client };
            assert_eq!(c.at_mon(client), refused, "spoilt in round {round}");
        }

        // It worked, and at its next connection its key is gone.
        let admin = c.tickets("client.admin");
        assert_eq!(c.at_mon(c.to_mon(&admin, secure)), Ok(()));
        let mut keys = c.keys.clone();
        keys.remove(&name("client.admin"));
        c.mon.set_keys(keys);
        assert_eq!(c.at_mon(c.to_mon(&admin, secure)), refused, "removed while it ran");
        c.mon.set_keys(c.keys.clone());

        let settings =
            MonAuthSettings { allowed_ciphers: vec![KeyKind::AES256K], ..c.settings.clone() };
        c.mon.set_settings(settings);
        assert_eq!(c.at_mon(c.to_mon(&c.tickets("client.admin"), secure)), refused, "kind of key");

        // A refusal of a mode names it before any challenge.
        let settings = MonAuthSettings { modes: vec![3], ..c.settings.clone() };
        c.mon.set_settings(settings);
        let got = c.at_mon(c.to_mon(&c.tickets("client.admin"), secure));
        assert_eq!(got, Err(vec![(method::CEPHX, EOPNOTSUPP, vec![method::CEPHX], vec![3])]));
    }
}

#[test]
fn an_osd_refuses_by_the_clients_method() {
    for secure in [false, true] {
        let c = Cluster::new();
        let admin = c.tickets("client.admin");
        assert_eq!(c.at_mon(c.to_mon(&admin, secure)), Ok(()));
        assert_eq!(c.at_osd(c.to_osd(&admin, secure)), Ok(()));
        let refused = refusal(EACCES);
        for (round, spoil) in
            [(0, cut as Spoil), (0, flip), (0, nothing), (1, cut), (1, flip), (1, nothing)]
        {
            let client = Watched { spoil: Some((round, spoil)), ..c.to_osd(&admin, secure) };
            assert_eq!(c.at_osd(client), refused, "spoilt in round {round}");
        }
        // The keys of its ticket are not known here any more.
        c.rotating.write().unwrap().secrets.secrets.clear();
        assert_eq!(c.at_osd(c.to_osd(&admin, secure)), refused, "unknown ticket");
    }
}
