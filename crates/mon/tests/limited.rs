//! Limited users: what they may do by which door, and what they may not whatever they say.

mod alone;

use alone::{Alone, addr, name};
use bytes::Bytes;
use denc::Features;
use env::ConnId;
use messages::*;

const EACCES: i32 = -13;
const EINVAL: i32 = -22;

/// A client with a key and caps, connected to the monitor.
fn client(a: &mut Alone, who: &str, caps: &[(&str, &str)]) -> ConnId {
    let admin = a.admin();
    let words: Vec<&str> = caps.iter().flat_map(|(service, cap)| [*service, *cap]).collect();
    let cmd = serde_json::json!({"prefix": "auth get-or-create", "entity": who, "caps": words});
    assert_eq!(a.run(admin, &cmd.to_string()).0, 0, "{who}");
    let mon = caps.iter().find(|(service, _)| *service == "mon").map_or("", |(_, cap)| cap);
    a.connect_as(who, mon, Features::TENTACLE_WORD, addr(0, 5))
}

fn asks(prefix: &str) -> String {
    serde_json::json!({ "prefix": prefix }).to_string()
}

/// Caps at the manager are no caps at the monitors: by its door, nothing of theirs is run and
/// nothing that they take is heard.
#[test]
fn managers_caps_are_not_monitors() {
    let mut a = Alone::new();
    for caps in ["allow *", "allow rw", "allow r", "allow service auth rwx, allow rwx"] {
        let conn = a.connect_at_mgr("client.m", caps);
        for cmd in [
            r#"{"prefix":"auth get","entity":"client.admin"}"#,
            r#"{"prefix":"auth get-or-create","entity":"client.evil","caps":["mon","allow *"]}"#,
            r#"{"prefix":"auth ls"}"#,
            r#"{"prefix":"config-key dump"}"#,
            r#"{"prefix":"config set","who":"global","name":"debug_ms","value":"1"}"#,
            r#"{"prefix":"osd pool create","pool":"p"}"#,
            r#"{"prefix":"osd out","ids":["0"]}"#,
            r#"{"prefix":"log","logtext":["x"]}"#,
            r#"{"prefix":"status"}"#,
        ] {
            let (r, rs, out) = a.run_at_mgr(conn, cmd).unwrap();
            let prefix = cli::Args::parse(&[cmd]).unwrap().prefix().to_owned();
            assert_eq!(
                (r, rs, out),
                (EINVAL, format!("No handler found for '{prefix}'"), Bytes::new()),
                "{caps}"
            );
            // The same as a command for the daemon itself.
            let cmd = vec![Bytes::copy_from_slice(cmd.as_bytes())];
            a.say(conn, &Command { cmd: cmd.clone(), ..Command::default() });
            a.settle();
            let heard = a.heard(conn);
            assert_eq!(CommandReply::decode(&heard[0]).unwrap().r, EINVAL, "{caps}");
            // And as one for the monitor: it is not there.
            let fsid = a.mon.state().fsid;
            a.say(conn, &MonCommand { fsid, cmd, ..MonCommand::default() });
            a.settle();
            assert!(a.heard(conn).is_empty(), "{caps}");
        }
        a.subscribe(conn, &[("osdmap", 0, 0), ("monmap", 0, 0), ("config", 0, 0)]);
        a.say(conn, &MonGetMap::default());
        a.settle();
        assert!(a.heard(conn).is_empty());
    }
    assert!(a.mon.state().auth.get(&name("client.evil")).is_none());
    assert!(a.mon.state().osdmap.pools.is_empty());
    // Nobody's caps, no answer about what there is.
    let conn = a.connect_at_mgr("client.m", "");
    assert_eq!(a.run_at_mgr(conn, &asks("auth ls")).unwrap().0, EACCES);
    assert_eq!(a.run_at_mgr(conn, &asks("pg dump")).unwrap().0, EACCES);
    // What is the manager's is run there.
    let conn = a.connect_at_mgr("client.m", "allow r");
    assert_eq!(a.run_at_mgr(conn, &asks("pg dump")).unwrap().0, 0);
    let (r, rs, _) = a.run_at_mgr(conn, &asks("balancer off")).unwrap();
    assert!(r == EACCES && rs.contains("does your client key have mgr caps"));
}

/// What modules of the manager answer takes the manager's caps, by both doors.
#[test]
fn modules_take_managers_caps() {
    let mut a = Alone::new();
    let rw = client(&mut a, "client.rw", &[("mon", "allow rw")]);
    let (r, rs, _) = a.run(rw, &asks("rbd task list"));
    assert!(r == EACCES && rs.contains("does your client key have mgr caps"), "{rs}");
    assert_eq!(a.run(rw, &asks("balancer status")).0, EACCES);
    assert_eq!(a.run(rw, &asks("pg dump")).0, 0, "by the monitors' caps, as with the peer");
    let rbd = [("mon", "profile rbd"), ("mgr", "profile rbd"), ("osd", "profile rbd")];
    let rbd = client(&mut a, "client.rbd", &rbd);
    let remove = r#"{"prefix":"rbd task add remove","image_spec":"a/img"}"#;
    let asked = |a: &mut Alone, conn: ConnId, cmd: &str| {
        let fsid = a.mon.state().fsid;
        let cmd = vec![Bytes::copy_from_slice(cmd.as_bytes())];
        a.say(conn, &MonCommand { fsid, cmd, ..MonCommand::default() });
        a.settle();
        let refused = a.heard(conn).iter().any(|e| MonCommandAck::decode(e).unwrap().r == EACCES);
        let taken = std::mem::take(&mut a.modules).len() == 1;
        assert_ne!(refused, taken);
        taken
    };
    for cmd in [&asks("rbd task list"), &asks("rbd perf image stats"), remove] {
        assert!(asked(&mut a, rbd, cmd), "{cmd}");
    }
    assert_eq!(a.run(rbd, &asks("balancer status")).0, EACCES);
    // A grant for one pool is for that pool, and for nothing that is about all.
    let one = [("mon", "profile rbd"), ("mgr", "profile rbd pool=a"), ("osd", "profile rbd")];
    let one = client(&mut a, "client.one", &one);
    assert!(asked(&mut a, one, remove));
    let spec = |what: &str, spec: &str| {
        serde_json::json!({"prefix": what, "image_spec": spec, "level_spec": spec, "pool_spec": spec}).to_string()
    };
    for (other, taken) in [("a/n/img", true), ("b/img", false), ("img", false), ("b/a/img", false)]
    {
        assert_eq!(asked(&mut a, one, &spec("rbd task add remove", other)), taken, "{other}");
    }
    let (stats, list) = ("rbd perf image stats", "rbd trash purge schedule list");
    for (what, arg, pool, taken) in [
        (stats, "pool_spec", "a", true),
        (stats, "pool_spec", "b", false),
        (stats, "pool_spec", "", false),
        (list, "level_spec", "a/", true),
        (list, "level_spec", "b/", false),
        (list, "level_spec", "b/a", false),
    ] {
        let cmd = serde_json::json!({"prefix": what, arg: pool}).to_string();
        assert_eq!(asked(&mut a, one, &cmd), taken, "{cmd}");
    }
    assert!(!asked(&mut a, one, &asks("rbd task list")));
    let viewer = [("mon", "profile rbd"), ("mgr", "profile rbd-read-only")];
    let viewer = client(&mut a, "client.viewer", &viewer);
    assert!(asked(&mut a, viewer, &asks("rbd task list")));
    assert!(!asked(&mut a, viewer, remove));
}

/// Settings of others are told to those alone who may read settings.
#[test]
fn settings_of_others_stay_theirs() {
    let mut a = Alone::new();
    let admin = a.admin();
    let set = r#"{"prefix":"config set","who":"mgr","name":"mgr/dashboard/PWD","value":"secret","force":true}"#;
    assert_eq!(a.run(admin, set).0, 0);
    let ask = |a: &mut Alone, conn| {
        a.say(conn, &GetConfig { name: name("mgr.x"), ..GetConfig::default() });
        a.settle();
        ConfigMsg::decode(&a.heard(conn)[0]).unwrap().config.contains_key("mgr/dashboard/PWD")
    };
    assert!(ask(&mut a, admin));
    let weak = a.connect_as("client.x", "profile rbd", Features::ALL, addr(0, 3));
    assert!(!ask(&mut a, weak));
}
