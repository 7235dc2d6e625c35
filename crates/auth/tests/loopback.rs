//! Both sides of every handshake against each other, in memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, RwLock};

use auth::handshake::{con_mode, method};
use auth::*;
use env::{Now, Random, Seeded};
use types::{EntityAddr, EntityKind, EntityName, UTime};

const SERVICES: u32 =
    service_mask(&[EntityKind::AUTH, EntityKind::MON, EntityKind::OSD, EntityKind::MGR]);

fn at(secs: u64) -> Now {
    Now { mono_ns: secs * 1_000_000_000, wall_ns: (1_700_000_000 + secs) * 1_000_000_000 }
}

fn wall(now: Now) -> UTime {
    UTime::from_nanos(now.wall_ns)
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
    fn new(kind: KeyKind, service_cipher: KeyKind) -> Self {
        let mut seed = Seeded(9);
        let mut settings = MonAuthSettings {
            mon_key: Some(CryptoKey::generate(kind, UTime::ZERO, &mut seed)),
            ..Default::default()
        };
        settings.policy.service_cipher = service_cipher;
        let mut keys = KeyServer::default();
        for (who, caps) in [
            ("client.admin", &[("mon", "allow *"), ("osd", "allow rw")][..]),
            ("client.nothing", &[]),
            ("osd.0", &[("mon", "allow profile osd"), ("osd", "allow *")]),
        ] {
            let key = CryptoKey::generate(kind, UTime::ZERO, &mut seed);
            let caps: BTreeMap<_, _> =
                caps.iter().map(|(s, c)| (s.to_string(), c.to_string())).collect();
            keys.set(name(who), key, caps);
        }
        let planned = keys.plan_rotation(wall(at(0)), &settings.policy, &mut seed).unwrap();
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

    fn osd(&self) -> Box<dyn ServerAuth> {
        let settings = ServiceAuthSettings::cephx(EntityKind::OSD);
        Box::new(ServiceAuth::new(settings, self.rotating.clone(), rng(3)))
    }
}

/// Runs a handshake; `Err` is the server's or client's refusal.
fn run(
    now: Now,
    client: &mut dyn ClientAuth,
    server: &mut dyn ServerAuth,
) -> Result<(ClientDone, AuthDone), String> {
    let addr: EntityAddr = "127.0.0.1:1234".parse().unwrap();
    let mut start = client.start(now).map_err(|e| e.to_string())?;
    let mut step =
        server.request(now, EntityKind::CLIENT, &addr, start.method, &start.modes, &start.payload);
    for _ in 0..10 {
        match step {
            ServerStep::More(payload) => {
                let answer = client.more(now, &payload).map_err(|e| e.to_string())?;
                step = server.more(now, &answer);
            }
            ServerStep::Done(done) => {
                let mine = client
                    .done(now, done.global_id, done.con_mode, &done.payload)
                    .map_err(|e| e.to_string())?;
                return Ok((mine, *done));
            }
            ServerStep::Leave => panic!("the server takes no clients"),
            ServerStep::Refuse { result, allowed_methods, allowed_modes } => {
                start = client
                    .bad_method(now, start.method, result, &allowed_methods, &allowed_modes)
                    .map_err(|e| format!("{e}; {}", server.refusal().unwrap_or("-")))?;
                step = server.request(
                    now,
                    EntityKind::CLIENT,
                    &addr,
                    start.method,
                    &start.modes,
                    &start.payload,
                );
            }
        }
    }
    panic!("the handshake does not end");
}

fn to_mon(c: &Cluster, tickets: &SharedTickets, secure: bool) -> MonClientAuth {
    let _ = c;
    MonClientAuth::new(ClientAuthSettings::cephx(secure), tickets.clone(), SERVICES, rng(2))
}

fn to_osd(tickets: &SharedTickets, secure: bool) -> AuthorizerClientAuth {
    let settings = ClientAuthSettings::cephx(secure);
    AuthorizerClientAuth::new(settings, tickets.clone(), EntityKind::OSD, rng(4))
}

/// Each kind of key and mode: both sides agree on session key, secret and identity.
#[test]
fn both_sides_agree() {
    let kinds = [KeyKind::AES, KeyKind::AES256K];
    for (kind, cipher) in kinds.into_iter().flat_map(|k| kinds.map(|c| (k, c))) {
        for secure in [false, true] {
            let c = Cluster::new(kind, cipher);
            let tickets = c.tickets("client.admin");
            let (mine, theirs) =
                run(at(1), &mut to_mon(&c, &tickets, secure), &mut *c.mon.connection()).unwrap();
            assert_eq!(mine.session_key, theirs.session_key);
            assert_eq!(mine.session_key.len(), kind.secret_len());
            assert_eq!(mine.connection_secret, theirs.connection_secret);
            assert_eq!(mine.connection_secret.len(), if secure { 64 } else { 0 });
            assert_eq!(theirs.con_mode, if secure { con_mode::SECURE } else { con_mode::CRC });
            assert_eq!((mine.global_id, theirs.global_id), (4100, 4100));
            assert_eq!(theirs.peer.name, name("client.admin"));
            assert_eq!(theirs.peer.caps, "allow *");
            assert!(theirs.peer.global_id_proven);

            let (mine, theirs) = run(at(2), &mut to_osd(&tickets, secure), &mut *c.osd()).unwrap();
            assert_eq!(mine.session_key, theirs.session_key);
            assert_eq!(mine.session_key.len(), kind.min(cipher).secret_len());
            assert_eq!(mine.connection_secret, theirs.connection_secret);
            assert_eq!(mine.connection_secret.len(), if secure { 64 } else { 0 });
            assert_eq!(theirs.peer.caps, "allow rw");
            assert_eq!((theirs.peer.global_id, theirs.global_id), (4100, 4100));
            assert_eq!(theirs.peer.expires, wall(at(1 + 3600)));
        }
    }
}

/// A client that comes back shows its old ticket and keeps its number; without the ticket,
/// or with another client's, the number is not given.
#[test]
fn global_id_needs_its_ticket() {
    let c = Cluster::new(KeyKind::AES, KeyKind::AES);
    let tickets = c.tickets("client.admin");
    run(at(1), &mut to_mon(&c, &tickets, true), &mut *c.mon.connection()).unwrap();
    let (again, _) =
        run(at(50), &mut to_mon(&c, &tickets, true), &mut *c.mon.connection()).unwrap();
    assert_eq!(again.global_id, 4100);

    // Another holder claims the number with its own ticket.
    let thief = c.tickets("osd.0");
    let (own, _) = run(at(60), &mut to_mon(&c, &thief, true), &mut *c.mon.connection()).unwrap();
    assert_eq!(own.global_id, 4101);
    thief.lock().unwrap().global_id = 4100;
    let mut conn = c.mon.connection();
    let (own, _) = run(at(61), &mut to_mon(&c, &thief, true), &mut *conn).unwrap();
    assert_eq!(own.global_id, 4102, "once more, as a stranger");
    assert!(conn.refusal().unwrap().contains("global id 4100 claimed with the ticket of another"));
}

#[test]
fn refusals() {
    let c = Cluster::new(KeyKind::AES, KeyKind::AES);
    let refused = |tickets: &SharedTickets| {
        run(at(1), &mut to_mon(&c, tickets, true), &mut *c.mon.connection()).unwrap_err()
    };
    let wrong = CryptoKey::generate(KeyKind::AES, UTime::ZERO, &mut Seeded(77));
    let why = refused(&Tickets::new(name("client.admin"), wrong.clone()).shared());
    assert!(why.contains("-13") && why.contains("wrong key"), "{why}");
    assert!(why.contains("client.admin") && why.contains("127.0.0.1:1234"), "{why}");
    let why = refused(&Tickets::new(name("client.nobody"), wrong).shared());
    assert!(why.contains("no such entity"), "{why}");
    let why = refused(&c.tickets("client.nothing"));
    assert!(why.contains("no mon caps"), "{why}");

    let mut settings = c.settings.clone();
    settings.allowed_ciphers = vec![KeyKind::AES256K];
    c.mon.set_settings(settings);
    let why = refused(&c.tickets("client.admin"));
    assert!(why.contains("keys of type aes are not allowed"), "{why}");
    c.mon.set_settings(c.settings.clone());

    // Only what both allow.
    let tickets = c.tickets("client.admin");
    let mut none = MonClientAuth::new(
        ClientAuthSettings { methods: vec![method::NONE], modes: vec![con_mode::CRC] },
        tickets.clone(),
        SERVICES,
        rng(2),
    );
    let why = run(at(1), &mut none, &mut *c.mon.connection()).unwrap_err();
    assert!(why.contains("-95"), "{why}");
    assert!(to_osd(&tickets, true).start(at(1)).is_err(), "no ticket yet");
}

/// Method none: everybody is who they say.
#[test]
fn method_none() {
    let c = Cluster::new(KeyKind::AES, KeyKind::AES);
    let methods = vec![method::NONE, method::CEPHX];
    c.mon.set_settings(MonAuthSettings { methods: methods.clone(), ..c.settings.clone() });
    let tickets = c.tickets("client.admin");
    let offer = ClientAuthSettings { methods, modes: vec![con_mode::SECURE, con_mode::CRC] };
    let mut client = MonClientAuth::new(offer.clone(), tickets.clone(), SERVICES, rng(2));
    let (mine, theirs) = run(at(1), &mut client, &mut *c.mon.connection()).unwrap();
    assert!(mine.session_key.is_empty() && theirs.session_key.is_empty());
    assert_eq!((mine.global_id, theirs.con_mode), (4100, con_mode::CRC));
    assert!(theirs.peer.allow_all);

    let settings = ServiceAuthSettings {
        service: EntityKind::OSD,
        methods: vec![method::NONE],
        modes: vec![con_mode::CRC],
    };
    let mut osd = ServiceAuth::new(settings, c.rotating.clone(), rng(3));
    let mut client = AuthorizerClientAuth::new(offer, tickets, EntityKind::OSD, rng(4));
    let (_, theirs) = run(at(1), &mut client, &mut osd).unwrap();
    assert_eq!((theirs.global_id, theirs.peer.name), (4100, name("client.admin")));
}

/// Tickets are renewed by message at three quarters of their life, and the keys they are
/// sealed with roll on under them.
#[test]
fn renewal_and_rotation() {
    for kind in [KeyKind::AES, KeyKind::AES256K] {
        let mut c = Cluster::new(kind, kind);
        let mut seed = Seeded(5);
        let tickets = c.tickets("osd.0");
        let (_, theirs) =
            run(at(1), &mut to_mon(&c, &tickets, true), &mut *c.mon.connection()).unwrap();
        let mut peer = theirs.peer;
        let (mut renewed, mut reauthenticated, mut fetched) = (0, 0, 0);
        for minute in 1..60 * 24 * 6 {
            let now = at(minute * 60);
            if let Some(planned) = c.keys.plan_rotation(wall(now), &c.settings.policy, &mut seed) {
                c.keys.apply_rotation(&planned).unwrap();
                c.mon.set_keys(c.keys.clone());
            }
            let mut t = tickets.lock().unwrap();
            let need = t.needs_renewal(now, SERVICES);
            if let Some(payload) = t.renewal(now, SERVICES, &mut seed).unwrap() {
                let answer = c.mon.on_mauth(now, &peer, &payload);
                assert_eq!((answer.result, &answer.refusal), (0, &None));
                assert_eq!(t.on_reply(now, &answer.payload), Ok(None));
                if let Some(p) = answer.peer {
                    assert_ne!(need & 0x20, 0);
                    reauthenticated += 1;
                    peer = p;
                } else {
                    assert_eq!(need & 0x20, 0);
                }
                renewed += 1;
                assert_eq!(t.needs_renewal(now, SERVICES), 0, "minute {minute}");
            }
            let stale = c.rotating.read().unwrap().needs_renewal(now, 3600);
            if stale {
                let answer = c.mon.on_mauth(now, &peer, &Tickets::rotating_request());
                let secrets = t.on_reply(now, &answer.payload).unwrap().unwrap();
                assert_eq!(&secrets, c.keys.rotating(EntityKind::OSD).unwrap());
                c.rotating.write().unwrap().secrets = secrets;
                fetched += 1;
            }
            drop(t);
            run(now, &mut to_osd(&tickets, minute % 2 == 0), &mut *c.osd())
                .unwrap_or_else(|e| panic!("minute {minute}: {e}"));
        }
        assert!(renewed >= 6 * 24, "{renewed} renewals");
        assert!((2..=3).contains(&reauthenticated), "{reauthenticated} AUTH tickets");
        assert!((6 * 24 - 5..=6 * 24 + 5).contains(&fetched), "{fetched} rotations");
    }
}

/// Three monitors whose clocks are two minutes apart, and daemons and clients on either side of them:
/// whichever monitor gives a ticket or leads when keys are made, every OSD takes it, for hours.
#[test]
fn clocks_that_are_minutes_apart() {
    const APART_S: u64 = 120;
    const START_S: u64 = 1_000;
    let mut c = Cluster::new(KeyKind::AES, KeyKind::AES);
    let mut seed = Seeded(6);
    let mons: Vec<MonAuth> = (0..3)
        .map(|n| {
            let mon = MonAuth::new(c.settings.clone(), rng(20 + n));
            mon.set_keys(c.keys.clone());
            mon.add_global_ids(5000 + n * 100_000..5000 + (n + 1) * 100_000);
            mon
        })
        .collect();
    let by = |clock: usize, second: u64| at(START_S + second + clock as u64 * APART_S - APART_S);
    // By the clock of each an OSD, and a client that keeps its tickets.
    let mut osds: Vec<SharedRotatingKeys> = Vec::new();
    for _ in 0..3 {
        let secrets = c.keys.rotating(EntityKind::OSD).unwrap().clone();
        osds.push(Arc::new(RwLock::new(RotatingKeys::from(secrets))));
    }
    let mut clients: Vec<SharedTickets> = (0..3).map(|_| c.tickets("client.admin")).collect();
    let mut rotations = 0;
    for step in 0..150 {
        let second = step as u64 * 200;
        let leader = step / 7 % 3;
        let planned = c.keys.plan_rotation(wall(by(leader, second)), &c.settings.policy, &mut seed);
        if let Some(planned) = planned {
            c.keys.apply_rotation(&planned).unwrap();
            mons.iter().for_each(|mon| mon.set_keys(c.keys.clone()));
            rotations += 1;
        }
        for (clock, osd) in osds.iter().enumerate() {
            // A ticket of a key that it does not know makes it ask, too.
            if osd.read().unwrap().needs_renewal(by(clock, second), 3600) {
                let secrets = c.keys.rotating(EntityKind::OSD).unwrap().clone();
                *osd.write().unwrap() = secrets.into();
            }
        }
        for (clock, tickets) in clients.iter_mut().enumerate() {
            let now = by(clock, second);
            for (n, mon) in mons.iter().enumerate() {
                let new = c.tickets("client.admin");
                // The monitor goes by its own clock, which only its side of the handshake sees.
                let mut there = Apart { server: mon.connection(), now: by(n, second) };
                run(now, &mut to_mon(&c, &new, true), &mut there)
                    .unwrap_or_else(|e| panic!("{second} s, client {clock}, mon {n}: {e}"));
                if n == step % 3 && step % 10 == 0 {
                    *tickets = new;
                }
            }
            for (o, keys) in osds.iter().enumerate() {
                let settings = ServiceAuthSettings::cephx(EntityKind::OSD);
                let server = Box::new(ServiceAuth::new(settings, keys.clone(), rng(3)));
                let mut there = Apart { server, now: by(o, second) };
                run(now, &mut to_osd(tickets, true), &mut there)
                    .unwrap_or_else(|e| panic!("{second} s, client {clock}, osd {o}: {e}"));
            }
        }
    }
    assert!(rotations > 5, "{rotations}");
}

/// A server whose clock is another than its client's.
struct Apart {
    server: Box<dyn ServerAuth>,
    now: Now,
}

impl ServerAuth for Apart {
    fn request(
        &mut self,
        _: Now,
        kind: EntityKind,
        addr: &EntityAddr,
        method: u32,
        modes: &[u32],
        payload: &[u8],
    ) -> ServerStep {
        self.server.request(self.now, kind, addr, method, modes, payload)
    }

    fn more(&mut self, _: Now, payload: &[u8]) -> ServerStep {
        self.server.more(self.now, payload)
    }
}

/// Monitors show each other tickets they seal themselves.
#[test]
fn between_monitors() {
    let c = Cluster::new(KeyKind::AES, KeyKind::AES);
    let mut client = AuthorizerClientAuth::between_mons(
        ClientAuthSettings::cephx(true),
        name("mon.b"),
        c.settings.mon_key.clone().unwrap(),
        rng(6),
    );
    let (mine, theirs) = run(at(1), &mut client, &mut *c.mon.connection()).unwrap();
    assert_eq!(mine.session_key, theirs.session_key);
    assert!(theirs.peer.allow_all);
    assert_eq!(theirs.peer.name, name("mon.b"));
    // A client's ticket for the monitors is not such a one.
    let tickets = c.tickets("client.admin");
    run(at(1), &mut to_mon(&c, &tickets, true), &mut *c.mon.connection()).unwrap();
    let mut client = AuthorizerClientAuth::new(
        ClientAuthSettings::cephx(true),
        tickets,
        EntityKind::MON,
        rng(6),
    );
    let (_, theirs) = run(at(1), &mut client, &mut *c.mon.connection()).unwrap();
    assert!(!theirs.peer.allow_all);
    assert_eq!(theirs.peer.caps, "allow *");
}

/// Changed, cut and invented payloads at every step: refused or ignored, never a panic, and
/// never an identity.
#[test]
fn mutations() {
    let mut seed = Seeded(42);
    let addr: EntityAddr = "127.0.0.1:1234".parse().unwrap();
    let c = Cluster::new(KeyKind::AES256K, KeyKind::AES256K);
    c.mon.add_global_ids(5000..1_000_000);
    let tickets = c.tickets("client.admin");
    let (_, theirs) =
        run(at(1), &mut to_mon(&c, &tickets, true), &mut *c.mon.connection()).unwrap();
    let mut mutate = |payload: &[u8]| {
        let mut p = payload.to_vec();
        for _ in 0..=seed.u64() % 3 {
            let i = seed.u64() as usize;
            match seed.u64() % 4 {
                0 if !p.is_empty() => {
                    let n = p.len();
                    p[i % n] ^= 1 << (seed.u64() % 8);
                }
                1 => p.truncate(i % (p.len() + 1)),
                2 => p.insert(i % (p.len() + 1), seed.u64() as u8),
                _ => {
                    let n = p.len();
                    if n >= 4 {
                        let at = i % (n - 3);
                        p[at..at + 4].copy_from_slice(&0xffff_fff0u32.to_le_bytes());
                    }
                }
            }
        }
        p
    };
    for round in 0..3000 {
        let secure = round % 2 == 0;
        let (mut client, mut server): (Box<dyn ClientAuth>, Box<dyn ServerAuth>) = if round % 3 == 0
        {
            (Box::new(to_osd(&tickets, secure)), c.osd())
        } else {
            let fresh = c.tickets("client.admin");
            (Box::new(to_mon(&c, &fresh, secure)), c.mon.connection())
        };
        let start = client.start(at(2)).unwrap();
        let bad = mutate(&start.payload);
        let step = server.request(at(2), EntityKind::CLIENT, &addr, 2, &start.modes, &bad);
        assert!(!matches!(step, ServerStep::Done(_)));
        let step =
            server.request(at(2), EntityKind::CLIENT, &addr, 2, &start.modes, &start.payload);
        let ServerStep::More(challenge) = step else { panic!("{step:?}") };
        let _ = client.more(at(2), &mutate(&challenge));
        let answer = client.more(at(2), &challenge).unwrap();
        let bad = mutate(&answer);
        if let ServerStep::Done(done) = server.more(at(2), &bad) {
            // Bits nobody signs: version bytes and the mask of tickets.
            assert_eq!(done.peer.name, name("client.admin"));
            let _ = client.done(at(2), done.global_id, done.con_mode, &mutate(&done.payload));
        }
        let _ = client.done(at(2), 1, 2, &mutate(&answer));
        let payload =
            tickets.lock().unwrap().renewal(at(3000), SERVICES, &mut Seeded(round)).unwrap();
        let answer = c.mon.on_mauth(at(3000), &theirs.peer, &mutate(&payload.unwrap()));
        let _ = tickets.lock().unwrap().clone().on_reply(at(3000), &mutate(&answer.payload));
    }
}

/// A request for tickets is opened by a ticket of the monitors alone: one of another service,
/// which whoever has that service's keys can make for anybody, opens nothing.
#[test]
fn tickets_are_for_monitors_tickets() {
    let c = Cluster::new(KeyKind::AES, KeyKind::AES);
    let now = at(10);
    let tickets = c.tickets("client.admin");
    let (_, done) = run(now, &mut to_mon(&c, &tickets, true), c.mon.connection().as_mut()).unwrap();
    let ask = |ticket_of: EntityKind| {
        let settings = ClientAuthSettings::cephx(true);
        let mut shows = AuthorizerClientAuth::new(settings, tickets.clone(), ticket_of, rng(4));
        let mut payload = 0x0200_u16.to_le_bytes().to_vec();
        payload.extend_from_slice(&shows.start(now).unwrap().payload);
        payload.push(1);
        payload.extend_from_slice(&SERVICES.to_le_bytes());
        c.mon.on_mauth(now, &done.peer, &payload)
    };
    let good = ask(EntityKind::AUTH);
    assert!(good.result >= 0 && !good.payload.is_empty(), "{:?}", good.refusal);
    let forged = ask(EntityKind::OSD);
    assert!(forged.result < 0, "a ticket for OSDs opened the monitors'");
}

/// After new service keys were made, a ticket sealed with one makes the daemon ask for them; then
/// it is taken. Tickets of keys that are gone make nobody ask.
#[test]
fn unknown_keys_are_asked_for() {
    let mut c = Cluster::new(KeyKind::AES, KeyKind::AES);
    let now = at(10);
    let old = c.tickets("client.admin");
    run(now, &mut to_mon(&c, &old, true), c.mon.connection().as_mut()).unwrap();
    let wiped = c.keys.plan_wipe(wall(now), &c.settings.policy, &mut Seeded(77));
    c.keys.apply_rotation(&wiped).unwrap();
    c.mon.set_keys(c.keys.clone());
    let new = c.tickets("client.admin");
    run(now, &mut to_mon(&c, &new, true), c.mon.connection().as_mut()).unwrap();
    let asks = |c: &Cluster| c.rotating.read().unwrap().needs_renewal(now, 3600);
    assert!(!asks(&c));
    assert!(run(now, &mut to_osd(&new, true), c.osd().as_mut()).is_err());
    assert!(asks(&c), "the keys are too old");
    let secrets = c.keys.rotating(EntityKind::OSD).unwrap().clone();
    *c.rotating.write().unwrap() = secrets.into();
    assert!(!asks(&c));
    // A client that was refused has given its ticket up and asks for another.
    run(now, &mut to_mon(&c, &new, true), c.mon.connection().as_mut()).unwrap();
    run(now, &mut to_osd(&new, true), c.osd().as_mut()).unwrap();
    assert!(run(now, &mut to_osd(&old, true), c.osd().as_mut()).is_err());
    assert!(!asks(&c), "nothing is to be had for a ticket of an earlier key");
}

/// A monitor that takes secure connections alone takes no other; what is for monitors is so.
#[test]
fn monitors_obey_their_modes() {
    use auth::handshake::con_mode;
    let c = Cluster::new(KeyKind::AES, KeyKind::AES);
    let now = at(10);
    let login = |secure_only: bool| {
        let settings = ClientAuthSettings {
            modes: if secure_only { vec![con_mode::SECURE] } else { vec![con_mode::CRC] },
            ..ClientAuthSettings::cephx(true)
        };
        let tickets = c.tickets("client.admin");
        let mut client = MonClientAuth::new(settings, tickets, SERVICES, rng(2));
        run(now, &mut client, c.mon.connection().as_mut()).map(|(_, done)| done.con_mode)
    };
    assert_eq!(login(false), Ok(con_mode::CRC));
    let modes = con_mode::by_names("secure");
    c.mon.set_settings(MonAuthSettings { modes, ..c.settings.clone() });
    assert!(login(false).is_err());
    assert_eq!(login(true), Ok(con_mode::SECURE));
    assert_eq!(con_mode::by_names("secure, crc"), [con_mode::SECURE, con_mode::CRC]);
}
