//! Managers at a monitor: who becomes active, what is answered meanwhile, who is shut out.

mod alone;

use std::collections::BTreeMap;

use alone::{Alone, addr, name};
use auth::{CryptoKey, KeyKind};
use bytes::Bytes;
use denc::{Denc, Features};
use env::{ConnId, Seeded};
use maps::{MgrMap, ModuleInfo};
use messages::*;
use types::UTime;

const OURS: (&str, &str) = ("implementation", "argonaut");

/// A manager's session and its number.
fn manager(a: &mut Alone, id: &str, port: u16) -> (ConnId, u64) {
    let caps = "allow profile mgr";
    let conn = a.connect_as(&format!("mgr.{id}"), caps, Features::REEF_WORD, addr(port, 9));
    (conn, 4000 + conn.0)
}

fn beacon(a: &mut Alone, (conn, gid): (ConnId, u64), id: &str, port: u16, available: bool) {
    let pairs = [OURS, ("hostname", "h1"), ("ceph_version", "v1")];
    let module = |name: &str| ModuleInfo { name: name.into(), can_run: true, ..Default::default() };
    a.say(
        conn,
        &MgrBeacon {
            addrs: addr(port, 9),
            gid,
            available,
            name: id.into(),
            fsid: a.mon.state().fsid,
            metadata: pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
            services: BTreeMap::from([("prometheus".into(), format!("http://h1:{port}/"))]),
            modules: vec![module("prometheus"), module("rbd_support")],
            clients: vec![("rbd_support".into(), addr(port + 1, 10))],
            ..MgrBeacon::default()
        },
    );
    a.settle();
}

fn key_of(id: &str) -> (types::EntityName, CryptoKey) {
    (name(&format!("mgr.{id}")), CryptoKey::generate(KeyKind::AES, UTime::ZERO, &mut Seeded(77)))
}

fn with_keys() -> Alone {
    let mut mkfs = alone::mkfs();
    for id in ["x", "y"] {
        let (name, key) = key_of(id);
        mkfs.add_key(name, key);
    }
    Alone::start(mkfs.to_state_bytes(), Vec::new())
}

fn text(a: &mut Alone, conn: ConnId, command: &str) -> String {
    let (r, rs, out) = a.run(conn, command);
    assert_eq!(r, 0, "{command}: {rs}");
    String::from_utf8(out.to_vec()).unwrap() + &rs
}

/// Two managers: one serves, one waits; the first one silent, the other takes over, and the first is
/// blocklisted with its clients. Whoever asked for the map is told each time.
#[test]
fn one_serves_and_one_takes_over() {
    let mut a = with_keys();
    let (admin, watcher) = (a.admin(), a.admin());
    a.subscribe(watcher, &[("mgrmap", 0, 0)]);
    let (x, y) = (manager(&mut a, "x", 6900), manager(&mut a, "y", 6910));
    beacon(&mut a, x, "x", 6900, false);
    beacon(&mut a, x, "x", 6900, true);
    beacon(&mut a, y, "y", 6910, false);
    let stat = text(&mut a, admin, r#"{"prefix":"mgr stat"}"#);
    assert!(
        stat.contains(r#""active_name": "x""#) && stat.contains(r#""num_standby": 1"#),
        "{stat}"
    );
    let services = text(&mut a, admin, r#"{"prefix":"mgr services"}"#);
    assert!(services.contains("http://h1:6900/"), "{services}");
    let metadata = text(&mut a, admin, r#"{"prefix":"mgr metadata"}"#);
    assert_eq!(metadata.matches(r#""hostname": "h1""#).count(), 2, "{metadata}");
    let versions = text(&mut a, admin, r#"{"prefix":"versions"}"#);
    assert!(versions.contains(r#""v1": 2"#), "{versions}");
    let maps = a.heard(watcher).into_iter().filter(|e| e.kind == 0x704);
    let last = MgrMap::from_shared(&maps.last().expect("the map").front).unwrap();
    assert_eq!((last.active_gid, last.active_addrs), (x.1, addr(6900, 9)));
    assert_eq!(last.standbys[&y.1].name, "y");
    let epoch = a.map().epoch;
    for _ in 0..16 {
        a.tick(2_000);
        beacon(&mut a, y, "y", 6910, false);
    }
    beacon(&mut a, y, "y", 6910, true);
    let map = a.mon.state().mgrmap.clone();
    assert_eq!((&*map.active_name, map.available, map.standbys.len()), ("y", true, 0));
    assert_eq!(map.last_failure_osd_epoch.0, epoch.0 + 1);
    for shut_out in [addr(6900, 9), addr(6901, 10)] {
        assert!(a.map().is_blocklisted(&shut_out), "{shut_out}");
    }
    assert!(!a.map().is_blocklisted(&addr(6910, 9)));
}

/// Without a manager the monitor says so, and answers; with `mgr fail` another one serves.
#[test]
fn health_and_fail() {
    let mut a = with_keys();
    let admin = a.admin();
    let health = r#"{"prefix":"health"}"#;
    assert!(!text(&mut a, admin, health).contains("mgr"), "none was ever there");
    let x = manager(&mut a, "x", 6900);
    beacon(&mut a, x, "x", 6900, true);
    assert!(!text(&mut a, admin, health).contains("mgr"));
    assert_eq!(
        text(&mut a, admin, r#"{"prefix":"mgr fail","who":"z"}"#),
        "Daemon not found 'z', already failed?"
    );
    assert_eq!(text(&mut a, admin, r#"{"prefix":"mgr fail"}"#), "");
    a.tick(1_000);
    let detail = text(&mut a, admin, r#"{"prefix":"health","detail":"detail"}"#);
    assert!(detail.contains("[WRN] MGR_DOWN: no active mgr"), "{detail}");
    assert!(text(&mut a, admin, r#"{"prefix":"pg stat"}"#).contains("pgs"));
    text(&mut a, admin, r#"{"prefix":"auth rm","entity":"mgr.x"}"#);
    a.tick(1_000);
    assert!(!text(&mut a, admin, health).contains("mgr"), "nobody expects one");
}

/// Who is no manager, speaks for another or is of another implementation is not taken.
#[test]
fn strangers_are_not_taken() {
    let mut a = with_keys();
    let own = a.mon.state().mgrmap.epoch;
    let x = manager(&mut a, "x", 6900);
    beacon(&mut a, (x.0, x.1 + 1), "x", 6900, true);
    beacon(&mut a, x, "y", 6900, true);
    let client = a.connect_as("client.x", "allow *", Features::REEF_WORD, addr(6900, 9));
    beacon(&mut a, (client, 4000 + client.0), "x", 6900, true);
    let weak = a.connect_as("mgr.x", "allow r", Features::REEF_WORD, addr(6900, 9));
    beacon(&mut a, (weak, 4000 + weak.0), "x", 6900, true);
    let fsid = a.mon.state().fsid;
    let (gid, stock) =
        (x.1, MgrBeacon { available: true, name: "x".into(), fsid, ..MgrBeacon::default() });
    a.say(x.0, &MgrBeacon { gid, ..stock });
    a.settle();
    assert_eq!(a.mon.state().mgrmap.epoch, own);
    assert!(a.mon.state().mgr_metadata.is_empty());
}

/// A module's command goes to the manager's process and its answer to the caller; what a failed
/// manager had under way is answered, too.
#[test]
fn modules_are_asked_there() {
    let mut a = with_keys();
    let admin = a.admin();
    let (x, y) = (manager(&mut a, "x", 6900), manager(&mut a, "y", 6910));
    let command = vec![Bytes::from_static(br#"{"prefix":"rbd task list"}"#)];
    let ask = MonCommand { fsid: a.mon.state().fsid, cmd: command, ..MonCommand::default() };
    a.say(admin, &ask);
    a.settle();
    assert_eq!(a.modules.len(), 1, "beside the monitor, while no manager is registered");
    beacon(&mut a, x, "x", 6900, true);
    a.say(admin, &ask);
    a.settle();
    let heard = a.heard(admin);
    let ack = MonCommandAck::decode(heard.last().expect("an answer")).unwrap();
    assert_eq!(ack.r, -11, "it has not begun yet: {}", ack.rs);
    beacon(&mut a, x, "x", 6900, true);
    a.say(admin, &ask);
    a.settle();
    let tid = a.tid;
    let asked = a.heard(x.0);
    let env = asked.iter().find(|e| e.kind == ManagerAsk::KIND).expect("it is asked");
    let seen = ManagerAsk::decode(env).unwrap();
    assert_eq!((&*seen.name.to_string(), &*seen.perm), ("client.admin", "r"));
    let answer = MgrCommandReply { r: 0, rs: String::new(), output: Bytes::from_static(b"[7]") };
    // Nobody but the active manager answers.
    for (conn, told) in [(y.0, false), (x.0, true)] {
        let reply = answer.envelope(Features::ALL).with_tid(env.tid);
        a.mon.on_message(a.now, conn, &reply);
        a.settle();
        let heard = a.heard(admin);
        let ack = heard.iter().find(|e| e.kind == MonCommandAck::KIND);
        assert_eq!(ack.is_some(), told);
        if let Some(ack) = ack {
            assert_eq!(ack.tid, tid);
            assert_eq!(MonCommandAck::decode(ack).unwrap().output, "[7]");
        }
    }
    a.say(admin, &ask);
    a.settle();
    beacon(&mut a, y, "y", 6910, false);
    assert!(a.heard(admin).is_empty());
    let other = a.admin();
    text(&mut a, other, r#"{"prefix":"mgr fail"}"#);
    let heard = a.heard(admin);
    let ack = MonCommandAck::decode(heard.last().expect("an answer")).unwrap();
    assert_eq!(ack.r, -11, "{}", ack.rs);
    assert_eq!(a.modules.len(), 1);
}

/// Services that registered with the active manager are shown as if they had registered here.
#[test]
fn services_are_reported() {
    let mut a = with_keys();
    let admin = a.admin();
    let (x, y) = (manager(&mut a, "x", 6900), manager(&mut a, "y", 6910));
    beacon(&mut a, x, "x", 6900, true);
    beacon(&mut a, y, "y", 6910, false);
    let mut report = ManagerReport { gid: x.1, ..ManagerReport::default() };
    let mut service = maps::Service::default();
    service.daemons.insert("a".into(), maps::ServiceDaemon::default());
    report.map.services.insert("rgw".into(), service);
    let dump = r#"{"prefix":"service dump"}"#;
    a.say(y.0, &ManagerReport { gid: y.1, ..report.clone() });
    assert!(!text(&mut a, admin, dump).contains("rgw"), "it is not the active one");
    a.say(x.0, &report);
    assert!(text(&mut a, admin, dump).contains("rgw"));
    text(&mut a, admin, r#"{"prefix":"mgr fail"}"#);
    assert!(!text(&mut a, admin, dump).contains("rgw"), "they register again with the next one");
}

/// The active manager may run each of the manager's commands: it judged its caller. One that waits
/// may not.
#[test]
fn the_manager_asks_for_others() {
    let mut a = with_keys();
    let (x, y) = (manager(&mut a, "x", 6900), manager(&mut a, "y", 6910));
    beacon(&mut a, x, "x", 6900, true);
    beacon(&mut a, y, "y", 6910, false);
    let scrub = r#"{"prefix":"pg dump","dumpcontents":["sum"]}"#;
    assert_eq!(a.run(x.0, scrub).0, 0);
    assert_eq!(a.run(y.0, scrub).0, -13);
}
