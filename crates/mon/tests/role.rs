//! A monitor on its own: what it is told, what it says, and what is left after a restart.

mod alone;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use alone::{Alone, addr, follow, key, mkfs, name};
use auth::handshake::con_mode;
use auth::{ClientAuth, ClientAuthSettings, MonClientAuth, ServerStep, SharedTickets, Tickets};
use bytes::Bytes;
use denc::{Denc, Features};
use env::{ConnId, Random, Seeded};
use maps::{MonMap, OsdState, PgStat, PgState};
use messages::*;
use mon::{MonConfig, Monitor, PeerInfo, quorum};
use types::{EntityAddr, EntityId, EntityKind, Epoch, OsdId, PgId, PoolId, UTime};

/// The first exchange of every client: maps and settings, each in its form.
#[test]
fn clients_get_maps_and_settings() {
    let mut a = Alone::new();
    let conn = a.admin();
    a.say(conn, &MonGetMap::default());
    a.subscribe(conn, &[("config", 0, 0), ("monmap", 0, 0)]);
    a.subscribe(conn, &[("mgrmap", 0, 0), ("osdmap", 0, 1)]);
    a.settle();
    let heard = a.heard(conn);
    let kinds: Vec<u16> = heard.iter().map(|e| e.kind).collect();
    assert_eq!(kinds, [4, 62, 4, 0x704, 41]);
    assert!(heard.iter().all(|e| e.priority == PRIO_HIGH));
    let monmap = MonMapMsg::decode(&heard[0]).unwrap().monmap;
    assert_eq!(MonMap::from_shared(&monmap).unwrap().fsid, a.mon.state().fsid);
    let config = ConfigMsg::decode(&heard[1]).unwrap().config;
    assert_eq!(config["mon_allow_pool_delete"], "true");
    let mut map = None;
    follow(&mut map, &heard);
    assert_eq!(map.unwrap().epoch, Epoch(1));
    a.say(conn, &MonGetVersion { handle: 5, what: "osdmap".into() });
    a.settle();
    let reply = MonGetVersionReply::decode(&a.heard(conn)[0]).unwrap();
    assert_eq!((reply.handle, reply.version, reply.oldest), (5, 1, 1));
}

/// Who asks once gets all that there is, however far behind: nobody asks again for the rest.
#[test]
fn asked_once_told_all() {
    let (mut a, _) = Alone::with_osds();
    let conn = a.admin();
    a.subscribe(conn, &[("osdmap", 0, 1)]);
    a.settle();
    let mut map = None;
    follow(&mut map, &a.heard(conn));
    let began = map.as_ref().unwrap().epoch;
    a.pool_op(conn, pool_op::CREATE, 0, "p", 0);
    for i in 0..120 {
        assert_eq!(a.pool_op(conn, pool_op::CREATE_SNAP, 1, &format!("s{i}"), 0).r, 0);
    }
    let newest = a.map().epoch;
    assert!(newest.0 > began.0 + 100);
    a.heard(conn);
    a.subscribe(conn, &[("osdmap", u64::from(began.0) + 1, 1)]);
    a.settle();
    follow(&mut map, &a.heard(conn));
    assert_eq!(map.unwrap().epoch, newest);
}

/// OSDs that boot together share an epoch, are placed, and everybody's increments lead
/// from the first map to the newest, for peers of every release.
#[test]
fn osds_boot_and_maps_follow() {
    let mut a = Alone::new();
    let peers: Vec<(ConnId, Features)> =
        [Features::PACIFIC_WORD, Features::REEF_WORD, Features::TENTACLE_WORD]
            .into_iter()
            .map(|f| (a.connect_as("client.x", "allow r", f, addr(0, f.0 as u32)), f))
            .collect();
    for (conn, _) in &peers {
        a.subscribe(*conn, &[("osdmap", 0, 0)]);
    }
    let osds: Vec<ConnId> = (0..3).map(|o| a.boot(o, 5)).collect();
    a.settle();
    assert_eq!(a.map().epoch, Epoch(2), "three boots, one epoch");
    assert_eq!(a.map().osd_counts(), (3, 3, 3));
    assert_eq!(a.map().crush.full_location(1)["host"], "here");
    assert_eq!(a.map().crush.class_name_of(2), Some("ssd"));
    let admin = a.admin();
    assert_eq!(a.pool_op(admin, pool_op::CREATE, 0, "data", 0).r, 0);
    let newest = a.map().clone();
    assert_eq!(newest.epoch, Epoch(3));
    for (conn, _) in &peers {
        let mut map = None;
        follow(&mut map, &a.heard(*conn));
        let map = map.unwrap();
        assert_eq!(map.epoch, newest.epoch);
        assert_eq!(map.client_addrs, newest.client_addrs);
        assert_eq!(map.pool_names, newest.pool_names);
    }
    let mut map = None;
    follow(&mut map, &a.heard(osds[0]));
    let map = map.unwrap();
    assert_eq!(map.to_bytes(), newest.to_bytes());
    assert!(map.pg_to_up_acting(PgId::new(1, 0)).acting.len() == 3);
    // The same request once more changes nothing.
    a.boot(0, 5);
    a.settle();
    assert_eq!(a.map().epoch, Epoch(3));
}

/// Nothing that depends on a change is told before the change is committed.
#[test]
fn answers_wait_for_the_log() {
    let (mut a, _) = Alone::with_osds();
    let (one, two) = (a.admin(), a.admin());
    a.ask_pool_op(one, pool_op::CREATE, 0, "p", 0);
    a.subscribe(two, &[("osdmap", 0, 1)]);
    a.poll();
    assert_eq!(a.proposed.len(), 1);
    assert!(a.heard(one).is_empty() && a.heard(two).is_empty());
    a.settle();
    assert_eq!(PoolOpReply::decode(&a.heard(one)[0]).unwrap().r, 0);
    assert_eq!(a.map().pool_by_name("p"), Some(PoolId(1)));
    // Asked for before the change was in any epoch, so told of the epoch before.
    let mut map = None;
    follow(&mut map, &a.heard(two));
    assert_eq!(map.unwrap().epoch, Epoch(2));
}

/// Answers that wait for the log are counted to whoever asked; with him they are gone.
#[test]
fn answers_that_wait_are_counted() {
    let (mut a, _) = Alone::with_osds();
    let (one, two) = (a.admin(), a.admin());
    a.ask_pool_op(one, pool_op::CREATE, 0, "p", 0);
    let fsid = a.mon.state().fsid;
    let dump = MonCommand {
        fsid,
        cmd: vec![r#"{"prefix": "osd dump", "format": "json-pretty"}"#.into()],
        ..MonCommand::default()
    };
    for _ in 0..100 {
        assert!(!a.mon.is_held(two));
        a.say(two, &dump);
    }
    assert!(!a.mon.is_held(two));
    for _ in 0..100 {
        a.say(two, &dump);
    }
    assert!(a.mon.is_held(two) && !a.mon.is_held(one));
    a.settle();
    assert_eq!(a.heard(two).len(), 200);
    assert!(!a.mon.is_held(two));
}

/// What waited for a change to be committed is not said by one who leads no more; whoever was to
/// hear it hears it once the change stands in the log after all.
#[test]
fn what_was_not_said_is_said_later() {
    let (mut a, _) = Alone::with_osds();
    let (one, two, three) = (a.admin(), a.admin(), a.admin());
    let last = u64::from(a.map().epoch.0);
    a.subscribe(two, &[("osdmap", last + 1, 0), ("config", 0, 0)]);
    a.subscribe(three, &[("osdmap", last + 1, 1)]);
    a.settle();
    a.heard(two);
    a.ask_pool_op(one, pool_op::CREATE, 0, "p", 0);
    let cmd = vec![
        r#"{"prefix": "config set", "who": "global", "name": "debug_ms", "value": "1"}"#.into(),
    ];
    let fsid = a.mon.state().fsid;
    a.say(one, &MonCommand { fsid, cmd, ..MonCommand::default() });
    // One that asks for the first time meanwhile.
    let four = a.admin();
    a.subscribe(four, &[("config", 0, 0)]);
    a.poll();
    assert_eq!(a.proposed.len(), 1);
    let ballot = quorum::Ballot { term: 2, node: 1 };
    a.mon.on_quorum(a.now, quorum::Event::Standing { ballot, leader: Some(1) }).unwrap();
    let applied = a.mon.rewind_to().expect("the state ran ahead");
    a.poll();
    assert!([two, three, four].into_iter().all(|conn| a.heard(conn).is_empty()));
    let proposed = std::mem::take(&mut a.proposed);
    let entries: Vec<Bytes> = a.log.iter().chain(&proposed).map(|(_, data)| data.clone()).collect();
    let index = applied + proposed.len() as u64;
    a.mon.on_rewound(a.now, index, &a.first.clone(), &entries).unwrap();
    a.poll();
    for (conn, kinds) in [
        (two, vec![OsdMapMsg::KIND, ConfigMsg::KIND]),
        (three, vec![OsdMapMsg::KIND]),
        (four, vec![ConfigMsg::KIND]),
    ] {
        let heard = a.heard(conn);
        for kind in kinds {
            assert!(heard.iter().any(|e| e.kind == kind), "{conn:?} lacks {kind}");
        }
    }
}

/// Pools and their snapshots by messages, with the peer's error numbers.
#[test]
fn pool_operations() {
    let (mut a, _) = Alone::with_osds();
    let conn = a.admin();
    assert_eq!(a.pool_op(conn, pool_op::CREATE, 0, "p", 0).r, 0);
    assert_eq!(a.pool_op(conn, pool_op::CREATE, 0, "p", 0).r, -17);
    assert_eq!(a.pool_op(conn, pool_op::CREATE_SNAP, 9, "s", 0).r, -2);
    let reply = a.pool_op(conn, pool_op::CREATE_SNAP, 1, "s", 0);
    assert_eq!((reply.r, reply.epoch), (0, a.map().epoch));
    assert_eq!(a.pool_op(conn, pool_op::CREATE_SNAP, 1, "s", 0).r, -17);
    assert_eq!(a.pool_op(conn, pool_op::CREATE_UNMANAGED_SNAP, 1, "", 0).r, -22);
    assert_eq!(a.pool_op(conn, pool_op::DELETE_SNAP, 1, "none", 0).r, -2);
    assert_eq!(a.pool_op(conn, pool_op::DELETE_SNAP, 1, "s", 0).r, 0);
    assert_eq!(a.pool_op(conn, pool_op::CREATE, 0, "q", 0).r, 0);
    for want in [2u64, 3] {
        let reply = a.pool_op(conn, pool_op::CREATE_UNMANAGED_SNAP, 2, "", 0);
        assert_eq!(reply.data.unwrap()[..], want.to_le_bytes());
    }
    assert_eq!(a.pool_op(conn, pool_op::DELETE_UNMANAGED_SNAP, 2, "", 3).r, 0);
    assert!(a.map().removed_snaps_queue[&PoolId(2)].contains(3));
    assert_eq!(a.pool_op(conn, pool_op::CREATE_SNAP, 2, "s", 0).r, -22);
    assert_eq!(a.pool_op(conn, pool_op::DELETE_SNAP, 2, "s", 0).r, -22);
    assert_eq!(a.pool_op(conn, pool_op::DELETE, 2, "", 0).r, 0);
    assert_eq!(a.pool_op(conn, pool_op::DELETE, 2, "", 0).r, 0);
    let weak = a.connect_as("client.weak", "allow r", Features::ALL, addr(0, 3));
    assert_eq!(a.pool_op(weak, pool_op::CREATE, 0, "w", 0).r, -1);
    assert_eq!(a.map().pools.len(), 1);
}

/// Commands: their answers and errors, who may run them, what the audit log holds.
#[test]
fn commands_run() {
    let (mut a, _) = Alone::with_osds();
    let admin = a.admin();
    let weak = a.connect_as("client.weak", "allow r", Features::ALL, addr(0, 3));
    let fsid = a.mon.state().fsid;
    let run = |a: &mut Alone, conn, cmd: &str| -> (i32, String, Bytes) {
        let cmd = vec![Bytes::copy_from_slice(cmd.as_bytes())];
        a.say(conn, &MonCommand { fsid, cmd: cmd.clone(), ..MonCommand::default() });
        a.settle();
        let heard = a.heard(conn);
        let ack = heard.iter().find(|e| e.kind == MonCommandAck::KIND).expect("an answer");
        assert_eq!(ack.tid, a.tid);
        let ack = MonCommandAck::decode(ack).unwrap();
        assert_eq!(ack.cmd, cmd);
        (ack.r, ack.rs, ack.output)
    };
    let (r, _, out) = run(&mut a, weak, r#"{"prefix":"get_command_descriptions"}"#);
    assert!(r == 0 && out.len() > 10_000);
    for bad in ["asdfqwer", "", "{}", r#"{"prefix":""}"#, r#"{"prefix":";;;,,,"}"#] {
        assert_eq!(run(&mut a, admin, bad).0, -22, "{bad}");
    }
    assert_eq!(run(&mut a, admin, r#"{"prefix":"no such thing"}"#).0, -22);
    let create = r#"{"prefix":"osd pool create","pool":"data","pg_num":8}"#;
    assert_eq!(run(&mut a, weak, create).0, -13);
    let (r, rs, _) = run(&mut a, admin, create);
    assert_eq!((r, rs.as_str()), (0, "pool 'data' created"));
    let (r, rs, _) = run(&mut a, admin, create);
    assert_eq!((r, rs.as_str()), (0, "pool 'data' already exists"));
    let (r, _, out) = run(&mut a, weak, r#"{"prefix":"status","format":"json"}"#);
    let status: serde_json::Value = serde_json::from_slice(&out).unwrap();
    assert_eq!((r, &status["fsid"]), (0, &serde_json::json!(fsid.to_string())));
    assert_eq!(status["osdmap"]["num_up_osds"], 3);
    assert_eq!(status["pgmap"]["num_pgs"], 8);
    // The manager's commands come by both ways.
    let at_mgr = a.connect_at_mgr("client.admin", "allow *");
    a.say(
        at_mgr,
        &MgrCommand {
            cmd: vec![Bytes::from_static(br#"{"prefix":"pg dump","target":["mon-mgr",""]}"#)],
            ..MgrCommand::default()
        },
    );
    a.settle();
    let reply = MgrCommandReply::decode(&a.heard(at_mgr)[0]).unwrap();
    assert_eq!(reply.r, 0);
    let log = &a.mon.state().log.entries;
    let audited =
        |text: &str| log.iter().any(|(_, e)| e.channel == "audit" && e.msg.ends_with(text));
    assert!(audited(":  access denied") && audited(": dispatch") && audited("': finished"));
    // Settings reach whoever they are for.
    a.subscribe(weak, &[("config", 0, 0)]);
    let set = r#"{"prefix":"config set","who":"client.weak","name":"debug_ms","value":"1"}"#;
    assert_eq!(run(&mut a, admin, set).0, 0);
    let heard = a.heard(weak);
    let config = ConfigMsg::decode(heard.iter().rfind(|e| e.kind == 62).unwrap()).unwrap().config;
    assert_eq!(config["debug_ms"], "1/1");
}

/// A module that is put reaches the OSDs that subscribed, and no client that may not know; one
/// that comes later gets all, one that comes back what it missed. What is no class is refused.
#[test]
fn classes_reach_osds() {
    let (mut a, osds) = Alone::with_osds();
    let admin = a.admin();
    let weak = a.connect_as("client.weak", "", Features::ALL, addr(0, 3));
    a.subscribe(osds[0], &[("cls", 0, 0)]);
    a.subscribe(weak, &[("cls", 0, 0)]);
    a.settle();
    let told = |a: &mut Alone, conn| -> Vec<(u64, Vec<String>, Vec<String>)> {
        let heard = a.heard(conn);
        let all = heard.iter().filter(|e| e.kind == ClassModules::KIND);
        all.map(|e| ClassModules::decode(e).unwrap())
            .map(|m| (m.version, m.present.into_iter().collect(), m.changed.into_keys().collect()))
            .collect()
    };
    let names = |all: &[&str]| all.iter().map(|s| (*s).to_owned()).collect::<Vec<String>>();
    assert_eq!(told(&mut a, osds[0]), [(0, vec![], vec![])]);
    let fsid = a.mon.state().fsid;
    let run = |a: &mut Alone, conn, cmd: &str, code: &[u8]| -> (i32, String) {
        let cmd = vec![Bytes::copy_from_slice(cmd.as_bytes())];
        let input = Bytes::copy_from_slice(code);
        a.say(conn, &MonCommand { fsid, cmd, input, ..MonCommand::default() });
        a.settle();
        let e = a.sent.iter().rposition(|(c, e)| *c == conn && e.kind == MonCommandAck::KIND);
        let ack = MonCommandAck::decode(&a.sent[e.unwrap()].1).unwrap();
        (ack.r, ack.rs)
    };
    // (module (memory (export "memory") 1)
    //   (func (export "argonaut_cls_v1:r:run") (result i32) (i32.const 0)))
    let mut code =
        b"\0asm\x01\0\0\0\x01\x05\x01\x60\0\x01\x7f\x03\x02\x01\0\x05\x03\x01\0\x01".to_vec();
    code.extend(b"\x07\x22\x02\x06memory\x02\0\x15argonaut_cls_v1:r:run\0\0");
    code.extend(b"\x0a\x06\x01\x04\0\x41\0\x0b");
    let put = |name: &str| format!(r#"{{"prefix":"cls put","name":"{name}"}}"#);
    assert_eq!(run(&mut a, weak, &put("mine"), &code).0, -13);
    assert_eq!(run(&mut a, admin, &put("mine"), &code), (0, "class 'mine' is version 1".into()));
    assert_eq!(told(&mut a, osds[0]), [(1, names(&["mine"]), names(&["mine"]))]);
    assert_eq!(run(&mut a, admin, &put("mine"), &code).0, 0, "again, and nothing new");
    assert_eq!(told(&mut a, osds[0]), []);
    for (name, code, says) in [
        ("rbd", &code[..], "built-in"),
        ("other", b"", "no module came"),
        ("other", &code[..20], "not a valid module"),
        ("../x", &code, "no name"),
    ] {
        let (r, rs) = run(&mut a, admin, &put(name), code);
        assert!(r == -22 && rs.contains(says), "{name}: {rs}");
    }
    assert_eq!(run(&mut a, admin, &put("two"), &code).0, 0);
    a.heard(osds[0]);
    // One that knows the first change, and one that knows nothing.
    a.subscribe(osds[1], &[("cls", 2, 0)]);
    a.subscribe(osds[2], &[("cls", 0, 0)]);
    a.settle();
    assert_eq!(told(&mut a, osds[1]), [(2, names(&["mine", "two"]), names(&["two"]))]);
    let both = names(&["mine", "two"]);
    assert_eq!(
        told(&mut a, osds[2]),
        [(1, both.clone(), names(&["mine"])), (2, both, names(&["two"]))]
    );
    let rm = r#"{"prefix":"cls rm","name":"mine"}"#;
    assert_eq!(run(&mut a, weak, rm, b"").0, -13);
    assert_eq!(run(&mut a, admin, rm, b"").0, 0);
    assert_eq!(run(&mut a, admin, rm, b"").0, -2);
    assert_eq!(told(&mut a, osds[0]), [(3, names(&["two"]), vec![])]);
    assert_eq!(told(&mut a, weak), []);
    // All of it is in the state.
    let again = Alone::start(a.mon.state().to_bytes(), Vec::new());
    assert_eq!(again.mon.state().classes, a.mon.state().classes);
    assert_eq!(again.mon.state().classes.modules["two"].code, code);
}

/// What was committed is there after a restart, byte for byte, and service goes on.
#[test]
fn restarts_with_the_same_state() {
    let (mut a, _) = Alone::with_osds();
    let conn = a.admin();
    assert_eq!(a.pool_op(conn, pool_op::CREATE, 0, "p", 0).r, 0);
    a.tick(3000);
    let before = a.mon.state().to_bytes();
    assert!(!a.log.is_empty());
    // From the first state and the log.
    let now = a.now;
    let config = MonConfig { name: "a".into(), ..MonConfig::default() };
    let auth_rng: auth::SharedRandom = Arc::new(Mutex::new(Seeded(99)));
    let mut again = Monitor::new(config, &a.first, now, Box::new(Seeded(3)), auth_rng).unwrap();
    for (at, (token, data)) in a.log.iter().enumerate() {
        let (index, data) = (at as u64 + 1, data.clone());
        let event = quorum::Event::Committed { index, origin: 0, token: *token, data };
        again.on_quorum(now, event).unwrap();
    }
    assert_eq!(again.state().to_bytes(), before);
    // From a snapshot.
    let mut b = Alone::start(before, Vec::new());
    assert_eq!(b.map().pool_by_name("p"), Some(PoolId(1)));
    let conn = b.admin();
    assert_eq!(b.pool_op(conn, pool_op::CREATE, 0, "q", 0).r, 0);
}

/// A pool whose rule asks for more hosts than there are is named, with the reason, at once; one
/// that is short of OSDs that are only down or out is not.
#[test]
fn pools_that_can_never_be_active_are_named() {
    let (mut a, _) = Alone::with_osds();
    let admin = a.admin();
    let run = |a: &mut Alone, words: &str| {
        assert_eq!(a.run(admin, words).0, 0, "{words}");
        a.tick(1_100);
    };
    let found = |a: &Alone| {
        let check = a.mon.volatile().health.checks.get("POOL_UNPLACEABLE");
        check.map(|c| (c.summary.clone(), c.detail.join("\n")))
    };
    run(
        &mut a,
        r#"{"prefix":"osd erasure-code-profile set","name":"o","profile":["k=2","m=1","crush-failure-domain=osd"]}"#,
    );
    run(
        &mut a,
        r#"{"prefix":"osd pool create","pool":"good","pg_num":8,"pool_type":"erasure","erasure_code_profile":"o"}"#,
    );
    run(&mut a, r#"{"prefix":"osd out","ids":["0","1","2"]}"#);
    assert_eq!(found(&a), None);
    run(&mut a, r#"{"prefix":"osd pool create","pool":"bad","pg_num":8,"pool_type":"erasure"}"#);
    let (summary, detail) = found(&a).expect("it is named");
    assert_eq!(summary, "1 pool(s) cannot become active");
    assert!(detail.contains("pool 'bad'") && detail.contains("1 of the 3 OSDs"), "{detail}");
}

/// An OSD that is marked down and may not come up again says with its wish to that it serves no
/// more: nobody waits for its leases then. One that has not heard of it yet may still serve.
#[test]
fn an_osd_that_may_not_boot_has_ended() {
    let (mut a, _) = Alone::with_osds();
    let admin = a.admin();
    assert_eq!(a.run(admin, r#"{"prefix":"osd set","key":"noup"}"#).0, 0);
    let before = a.map().epoch;
    assert_eq!(a.run(admin, r#"{"prefix":"osd down","ids":["1"]}"#).0, 0);
    assert!(a.map().is_down(OsdId(1)));
    let dead = |a: &Alone| a.map().xinfo(OsdId(1)).dead_epoch >= a.map().up_from(OsdId(1));
    a.boot_with(1, 5, before);
    a.settle();
    assert!(!dead(&a), "it may not know");
    let now = a.map().epoch;
    a.boot_with(1, 5, now);
    a.settle();
    assert!(a.map().is_down(OsdId(1)) && dead(&a));
    let now = a.map().epoch;
    a.boot_with(1, 5, now);
    a.settle();
    assert_eq!(a.map().epoch, now, "once is enough");
}

/// An OSD puts itself where it stands when it starts, not when it comes back, and not where it is told
/// not to by central settings for OSDs.
#[test]
fn an_osd_is_placed_when_it_starts() {
    let (mut a, _) = Alone::with_osds();
    let admin = a.admin();
    let host = |a: &Alone| a.map().crush.full_location(1)["host"].clone();
    let moved =
        r#"{"prefix":"osd crush set","id":1,"weight":1.0,"args":["root=default","host=h"]}"#;
    let down = r#"{"prefix":"osd down","ids":["1"]}"#;
    assert_eq!(a.run(admin, moved).0, 0);
    assert_eq!(host(&a), "h");
    assert_eq!(a.run(admin, down).0, 0);
    let now = a.map().epoch;
    a.boot_again(1, 5, now, Epoch(2));
    a.settle();
    assert!(a.map().is_up(OsdId(1)));
    assert_eq!(host(&a), "h", "it was up before");
    let not =
        r#"{"prefix":"config set","who":"osd","name":"osd_crush_update_on_start","value":"false"}"#;
    assert_eq!(a.run(admin, not).0, 0);
    a.boot(1, 6);
    a.settle();
    assert!(a.map().is_up(OsdId(1)));
    assert_eq!(host(&a), "h", "it is told not to");
    let one = r#"{"prefix":"config set","who":"osd.1","name":"osd_crush_update_on_start","value":"true"}"#;
    assert_eq!(a.run(admin, one).0, 0);
    a.boot(1, 7);
    a.settle();
    assert!(a.map().is_up(OsdId(1)));
    assert_eq!(host(&a), "here");
}

/// An OSD that stops, one that others miss, and what the map says of them.
#[test]
fn osds_go_down_and_out() {
    let (mut a, osds) = Alone::with_osds();
    a.say(osds[0], &OsdMarkMeDown { osd: OsdId(0), epoch: Epoch(2) });
    a.settle();
    assert!(a.map().is_down(OsdId(0)));
    let reporter = osds[1];
    a.say(
        reporter,
        &OsdFailure {
            reporter: OsdId(1),
            target: OsdId(2),
            target_addrs: addr(6808, 5),
            failed_for_ms: 21_000,
            epoch: Epoch(3),
            ..OsdFailure::default()
        },
    );
    a.settle();
    assert!(a.map().is_down(OsdId(2)), "the only other OSD says so");
    // Nobody speaks for another.
    a.say(reporter, &OsdMarkMeDown { osd: OsdId(2), epoch: Epoch(2) });
    let mut up = a.boot(2, 6);
    a.settle();
    assert!(a.map().is_up(OsdId(2)));
    assert_eq!(a.map().osd_addrs(OsdId(2)), Some(&addr(6808, 6)));
    // Back at once with another address: down and up are two epochs.
    let before = a.map().epoch;
    up = ConnId(up.0.max(a.boot(2, 7).0));
    a.settle();
    assert_eq!(a.map().epoch, Epoch(before.0 + 2));
    assert!(a.map().is_up(OsdId(2)));
    a.mon.on_closed(a.now, up);
    a.tick(1100);
    assert_eq!(a.mon.volatile().health.checks["OSD_DOWN"].summary, "1 osds down");
    a.tick(605_000);
    assert!(a.map().is_out(OsdId(0)));
    assert!(!a.mon.volatile().health.checks.contains_key("OSD_DOWN"));
    let log = &a.mon.state().log.entries;
    let has = |text: &str| log.iter().any(|(_, e)| e.msg.contains(text));
    assert!(has("osd.0 marked itself down") && has("Marking osd.0 out (has been down for 600"));
    assert!(has("Health check failed: 1 osds down (OSD_DOWN)"));
    // It is marked in again when it comes back.
    a.boot(0, 8);
    a.settle();
    assert!(a.map().is_in(OsdId(0)) && a.map().is_up(OsdId(0)));
    assert_eq!(a.map().state(OsdId(0)), OsdState(OsdState::EXISTS.0 | OsdState::UP.0));
}

/// Statistics of PGs become sums and health; a full quota becomes a flag.
#[test]
fn statistics_and_quotas() {
    let (mut a, osds) = Alone::with_osds();
    let admin = a.admin();
    assert_eq!(a.pool_op(admin, pool_op::CREATE, 0, "p", 0).r, 0);
    let pg = PgId::new(1, 0);
    let mut stat = PgStat {
        state: PgState(PgState::ACTIVE.0 | PgState::CLEAN.0),
        reported_epoch: Epoch(3),
        reported_seq: 1,
        ..PgStat::default()
    };
    stat.stats.sum.num_objects = 3;
    stat.stats.sum.num_bytes = 4096;
    let statfs = maps::StoreStatfs { total: 1 << 30, available: 1 << 29, ..Default::default() };
    a.say(
        osds[0],
        &PgStats {
            osd: OsdId(0),
            epoch: Epoch(3),
            osd_stat: maps::OsdStat::new(statfs).to_bytes(),
            pgs: BTreeMap::from([(pg, stat.to_bytes())]),
            ..PgStats::default()
        },
    );
    a.settle();
    assert!(a.heard(osds[0]).iter().any(|e| e.kind == PgStatsAck::KIND));
    let pgmap = &a.mon.volatile().pgmap;
    assert_eq!(pgmap.pools[&PoolId(1)].stats.sum.num_objects, 3);
    assert_eq!(pgmap.statfs().kb, 1 << 20);
    assert_eq!(pgmap.pgs.len(), 32, "the others are unknown");
    a.say(admin, &Statfs { fsid: a.mon.state().fsid, ..Statfs::default() });
    a.say(
        admin,
        &GetPoolStats {
            fsid: a.mon.state().fsid,
            pools: vec!["p".into(), "nope".into()],
            ..GetPoolStats::default()
        },
    );
    a.settle();
    let heard = a.heard(admin);
    assert_eq!(StatfsReply::decode(&heard[0]).unwrap().num_objects, 3);
    assert_eq!((heard[1].kind, heard[1].version), (59, 2));
    a.tick(2000);
    let health = &a.mon.volatile().health;
    assert!(health.checks.contains_key("POOL_APP_NOT_ENABLED"));
    // The space of an OSD that is out does not count, reported or not.
    let cmd = vec![Bytes::from_static(br#"{"prefix":"osd out","ids":["0"]}"#)];
    let fsid = a.mon.state().fsid;
    a.say(admin, &MonCommand { fsid, cmd, ..MonCommand::default() });
    a.settle();
    a.tick(2000);
    assert!(a.map().is_out(OsdId(0)));
    assert_eq!(a.mon.volatile().pgmap.statfs().kb, 0);
    let osd_stat = maps::OsdStat::new(statfs).to_bytes();
    a.say(osds[0], &PgStats { osd: OsdId(0), epoch: Epoch(4), osd_stat, ..PgStats::default() });
    a.settle();
    assert_eq!(a.mon.volatile().pgmap.statfs().kb, 0);
}

/// cephx from the first byte: a fresh client, its tickets, a renewal, a wrong key.
#[test]
fn authenticates_clients() {
    let mut a = Alone::new();
    let auth = a.mon.auth();
    let rng: auth::SharedRandom = Arc::new(Mutex::new(Seeded(5)));
    let attempt = |now, tickets: &SharedTickets| -> Option<auth::AuthDone> {
        let settings = ClientAuthSettings::cephx(true);
        let mut client = MonClientAuth::new(settings, tickets.clone(), 0x35, rng.clone());
        let mut server = auth.connection();
        let start = client.start(now).unwrap();
        let from = EntityAddr::default();
        let mut step = server.request(
            now,
            EntityKind::CLIENT,
            &from,
            start.method,
            &start.modes,
            &start.payload,
        );
        loop {
            match step {
                ServerStep::More(payload) => {
                    let more = client.more(now, &payload).unwrap();
                    step = server.more(now, &more);
                }
                ServerStep::Done(done) => {
                    let got =
                        client.done(now, done.global_id, done.con_mode, &done.payload).unwrap();
                    assert_eq!(got.session_key, done.session_key);
                    return Some(*done);
                }
                ServerStep::Leave => panic!("the monitor takes no clients"),
                ServerStep::Refuse { result, .. } => {
                    assert_eq!(result, -13);
                    assert!(server.refusal().is_some());
                    return None;
                }
            }
        }
    };
    let tickets = Tickets::new(name("client.admin"), key(2)).shared();
    let done = attempt(a.now, &tickets).expect("the right key");
    assert_eq!(done.con_mode, con_mode::SECURE);
    assert!(done.global_id >= 4096);
    assert!(tickets.lock().unwrap().has(a.now, EntityKind::OSD));
    let wrong = Tickets::new(name("client.admin"), key(3)).shared();
    assert!(attempt(a.now, &wrong).is_none());
    let nobody = Tickets::new(name("client.nobody"), key(2)).shared();
    assert!(attempt(a.now, &nobody).is_none());
    // An hour later its tickets are renewed over the session.
    let conn = ConnId(900);
    a.mon.on_opened(
        a.now,
        conn,
        PeerInfo {
            entity: EntityId::new(EntityKind::CLIENT, done.global_id as i64),
            identity: done.peer,
            features: Features::ALL,
            ..PeerInfo::default()
        },
    );
    a.tick(1000);
    a.now.mono_ns += 3000 * 1_000_000_000;
    a.now.wall_ns += 3000 * 1_000_000_000;
    a.tick(1000);
    let request = tickets.lock().unwrap().renewal(a.now, 0x35, &mut Seeded(8)).unwrap();
    let payload = request.expect("three quarters are over");
    a.say(conn, &Auth { protocol: 2, payload, ..Auth::default() });
    a.settle();
    let heard = a.heard(conn);
    let reply = AuthReply::decode(heard.iter().find(|e| e.kind == 18).unwrap()).unwrap();
    assert_eq!(reply.result, 0);
    tickets.lock().unwrap().on_reply(a.now, &reply.payload).unwrap();
    assert!(tickets.lock().unwrap().has(a.now, EntityKind::OSD));
    // Every client has its own number.
    let mut seen = std::collections::BTreeSet::from([done.global_id]);
    for _ in 0..600 {
        let fresh = Tickets::new(name("client.admin"), key(2)).shared();
        assert!(seen.insert(attempt(a.now, &fresh).expect("ids do not run out").global_id));
    }
}

/// Bytes from anywhere: the monitor answers, is silent or closes, and goes on.
#[test]
fn survives_hostile_messages() {
    let (mut a, osds) = Alone::with_osds();
    let mut conns = [a.admin(), osds[0]];
    let mut rng = Seeded(1);
    let valid: Vec<Envelope> = vec![
        MonSubscribe {
            what: BTreeMap::from([("osdmap".to_owned(), Subscription { start: 1, flags: 0 })]),
            hostname: "h".into(),
        }
        .envelope(Features::ALL),
        MonGetOsdMap { full_last: Epoch(9), inc_last: Epoch(!0), ..MonGetOsdMap::default() }
            .envelope(Features::ALL),
        PoolOp { fsid: a.mon.state().fsid, op: 0x21, ..PoolOp::default() }.envelope(Features::ALL),
        PgTemp {
            osd: OsdId(0),
            pgs: BTreeMap::from([(PgId::new(1, 0), vec![OsdId(2), OsdId(-5)])]),
            ..PgTemp::default()
        }
        .envelope(Features::ALL),
        OsdFailure { reporter: OsdId(0), target: OsdId(1), ..OsdFailure::default() }
            .envelope(Features::ALL),
        OsdAlive { osd: OsdId(0), want_up_thru: Epoch(!0), ..OsdAlive::default() }
            .envelope(Features::ALL),
        LogMsg { entries: vec![LogEntry::default()], ..LogMsg::default() }.envelope(Features::ALL),
        MonCommand {
            fsid: a.mon.state().fsid,
            cmd: vec![Bytes::from_static(b"{\"prefix\":\"osd dump\"}")],
            ..MonCommand::default()
        }
        .envelope(Features::ALL),
    ];
    for round in 0..8_000u32 {
        let which = (rng.u64() as usize) % conns.len();
        let mut env = if round % 3 == 0 {
            let kinds =
                [4, 5, 6, 13, 15, 17, 19, 41, 49, 50, 52, 58, 63, 97, 0x709, 0x8001, 0x8007];
            let mut front = vec![0; (rng.u64() % 200) as usize];
            rng.fill(&mut front);
            Envelope {
                kind: kinds[rng.u64() as usize % kinds.len()],
                version: (rng.u64() % 5) as u16,
                front: front.into(),
                ..Envelope::default()
            }
        } else {
            valid[rng.u64() as usize % valid.len()].clone()
        };
        let mut front = env.front.to_vec();
        for _ in 0..rng.u64() % 4 {
            if !front.is_empty() {
                let at = rng.u64() as usize % front.len();
                front[at] = rng.u64() as u8;
            }
        }
        front.truncate(front.len() - (rng.u64() % 2) as usize % (front.len() + 1).max(1));
        env.front = front.into();
        a.mon.on_message(a.now, conns[which], &env);
        if round % 16 == 0 {
            a.tick(100);
        } else {
            a.settle();
        }
        a.sent.clear();
        if a.closed.contains(&conns[which]) {
            a.closed.clear();
            conns[which] = if which == 0 { a.admin() } else { a.boot(0, 5) };
        }
    }
    let conn = a.admin();
    a.say(conn, &MonGetMap::default());
    a.settle();
    assert_eq!(a.heard(conn)[0].kind, 4);
}

/// A command that is asked once more, by the same client under the same number, is answered
/// as it was and not done again; also over another session, and after a restart.
#[test]
fn asked_twice_done_once() {
    let mut a = Alone::new();
    let fsid = a.mon.state().fsid;
    let cmd = r#"{"prefix":"osd pool rename","srcpool":"one","destpool":"two"}"#;
    let rename = MonCommand {
        fsid,
        cmd: vec![Bytes::copy_from_slice(cmd.as_bytes())],
        ..MonCommand::default()
    };
    let create = r#"{"prefix":"osd pool create","pool":"one","pg_num":1}"#;
    let create =
        MonCommand { cmd: vec![Bytes::copy_from_slice(create.as_bytes())], ..rename.clone() };
    let answer = |a: &mut Alone, conn| {
        a.settle();
        let heard = a.heard(conn);
        let ack = heard.iter().find(|e| e.kind == MonCommandAck::KIND).expect("an answer");
        let ack = MonCommandAck::decode(ack).unwrap();
        (ack.r, ack.rs)
    };
    let conn = a.admin();
    a.say(conn, &create);
    assert_eq!(answer(&mut a, conn).0, 0);
    a.say(conn, &rename);
    let first = answer(&mut a, conn);
    assert_eq!(first.0, 0);
    a.say_again(conn, &rename);
    assert_eq!(answer(&mut a, conn), first);
    a.mon.on_closed(a.now, conn);
    a.next_conn = conn.0; // the global id goes with it
    let conn = a.admin();
    a.say_again(conn, &rename);
    assert_eq!(answer(&mut a, conn), first);
    let mut b = Alone::start(a.first.clone(), a.log.clone());
    (b.tid, b.next_conn) = (a.tid, conn.0);
    let conn = b.admin();
    b.say_again(conn, &rename);
    assert_eq!(answer(&mut b, conn), first);
    b.say(conn, &rename);
    assert_ne!(answer(&mut b, conn), first, "asked anew, it is done anew");
}

/// Votes are ordered by the candidate's number within a term, so that a reign can end in the
/// term it began in.
#[test]
fn deposed_in_its_own_term() {
    let mut a = Alone::new();
    let standing = |term, node| quorum::Event::Standing {
        ballot: quorum::Ballot { term, node },
        leader: None,
    };
    a.mon.on_quorum(a.now, standing(1, 0)).unwrap();
    assert!(a.mon.leads(), "what was heard while it stood for election is old");
    a.mon.on_quorum(a.now, standing(1, 2)).unwrap();
    assert!(!a.mon.leads());
}

/// One that joins a cluster begins with a state of its own and is given the founders', which
/// covers no entry but the first, and all entries behind it.
#[test]
fn joins_with_the_founders_state() {
    let mut a = Alone::with_osds().0;
    a.tick(1000);
    let mut own = mkfs();
    own.now = UTime { sec: 1, nsec: 0 };
    let config = MonConfig { name: "d".into(), node: 77, ..MonConfig::default() };
    let auth_rng: auth::SharedRandom = Arc::new(Mutex::new(Seeded(1)));
    let rng = Box::new(Seeded(2));
    let mut d = Monitor::new(config, &own.to_state_bytes(), a.now, rng, auth_rng).unwrap();
    let restored = quorum::Event::Restored { index: 0, state: a.first.clone() };
    d.on_quorum(a.now, restored).unwrap();
    for (index, (token, data)) in a.log.iter().enumerate() {
        let (index, token, data) = (index as u64 + 1, *token, data.clone());
        d.on_quorum(a.now, quorum::Event::Committed { index, origin: 0, token, data }).unwrap();
    }
    assert_eq!(d.state().to_bytes(), a.mon.state().to_bytes());
}
