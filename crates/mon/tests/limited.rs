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
    // Lists are cut by the module: by pool and namespace, with the rights of the command.
    for (cmd, in_b) in [(asks("rbd task list"), false), (asks(list), false)] {
        let fsid = a.mon.state().fsid;
        let cmd = vec![Bytes::from(cmd)];
        a.say(one, &MonCommand { fsid, cmd, ..MonCommand::default() });
        a.settle();
        let (_, caller) = a.modules.pop().expect("the module is asked");
        let may = |pool, nspace| caller.may("rbd_support", pool, nspace);
        assert!(may("a", "") && may("a", "n") && may("b", "") == in_b && !may("", ""));
        assert!(!caller.may("balancer", "a", ""));
    }
    // Who may run one command of the module may not touch images by it.
    let flatten = "allow command \"rbd task add flatten\" with image_spec=a/i";
    let named = client(&mut a, "client.named", &[("mon", "allow r"), ("mgr", flatten)]);
    let cmd = serde_json::json!({"prefix": "rbd task add flatten", "image_spec": "a/i"});
    assert!(!asked(&mut a, named, &cmd.to_string()));
    let viewer = [("mon", "profile rbd"), ("mgr", "profile rbd-read-only")];
    let viewer = client(&mut a, "client.viewer", &viewer);
    assert!(asked(&mut a, viewer, &asks("rbd task list")));
    let cancel = r#"{"prefix":"rbd task cancel","task_id":"x"}"#;
    assert!(!asked(&mut a, viewer, cancel) && asked(&mut a, one, cancel));
    assert!(!asked(&mut a, viewer, remove));
}

/// Commands for a monitor itself take all rights on the service `mon`. What is the cluster's is
/// judged as by the other way.
#[test]
fn telling_a_monitor_takes_all_rights_on_it() {
    let mut a = Alone::new();
    let tell = |a: &mut Alone, conn: ConnId, cmd: &str| {
        let cmd = vec![Bytes::copy_from_slice(cmd.as_bytes())];
        a.say(conn, &Command { cmd, ..Command::default() });
        a.settle();
        CommandReply::decode(&a.heard(conn)[0]).unwrap().r
    };
    let show = r#"{"prefix":"config show"}"#;
    let get_key = r#"{"prefix":"config-key get","key":"k"}"#;
    let new = r#"{"prefix":"osd new","uuid":"00000000-0000-0000-0000-000000000001"}"#;
    for (i, (mon, may)) in [
        ("allow *", true),
        ("allow rwx", true),
        ("profile mon", true),
        ("allow service mon rwx", true),
        ("allow rw", false),
        ("allow r, allow service osd rwx", false),
        ("profile osd", false),
        ("profile bootstrap-osd", false),
        ("allow * network 10.0.0.0/8", false),
    ]
    .into_iter()
    .enumerate()
    {
        let conn = client(&mut a, &format!("client.t{i}"), &[("mon", mon)]);
        for own in [show, &asks("sessions"), &asks("get_command_descriptions")] {
            assert_eq!(tell(&mut a, conn, own), if may { 0 } else { EACCES }, "{mon}: {own}");
        }
        // No key of the key/value store, no OSD, but for who may have it as a command.
        let r = tell(&mut a, conn, get_key);
        assert_eq!(r, if mon == "allow *" { -2 } else { EACCES }, "{mon}");
        if mon == "profile mon" || mon == "allow service mon rwx" {
            assert_eq!(tell(&mut a, conn, new), EACCES, "{mon}");
        }
        assert_eq!(tell(&mut a, conn, &asks("nosuch")), if may { EINVAL } else { EACCES });
    }
}

/// At the manager a grant holds from its network, and who has none that holds is told nothing.
#[test]
fn networks_count_at_the_manager() {
    let mut a = Alone::new();
    for (caps, here, none) in [
        ("allow r", 0, EINVAL),
        ("allow r network 127.0.0.0/8", 0, EINVAL),
        ("allow * network 10.0.0.0/8", EACCES, EACCES),
        ("profile rbd network 10.0.0.0/8", EACCES, EACCES),
        ("", EACCES, EACCES),
    ] {
        let conn = a.connect_at_mgr("client.n", caps);
        assert_eq!(a.run_at_mgr(conn, &asks("pg dump")).unwrap().0, here, "{caps}");
        for cmd in [&asks("nosuch"), r#"{"format":"json"}"#, r#"{"prefix":""}"#] {
            assert_eq!(a.run_at_mgr(conn, cmd).unwrap().0, none, "{caps}: {cmd}");
        }
    }
}

/// OSD maps take a right on OSDs and no other; a command is known by its exact words.
#[test]
fn the_least_that_is_needed() {
    let mut a = Alone::new();
    for (mon, may) in [("allow service osd r", true), ("allow service mon r", false)] {
        let conn = client(&mut a, &format!("client.m{may}"), &[("mon", mon)]);
        a.subscribe(conn, &[("osdmap", 0, 0)]);
        a.settle();
        assert_eq!(!a.heard(conn).is_empty(), may, "{mon}");
    }
    let admin = a.admin();
    for prefix in [" auth ls", "auth  ls", "auth ls ", "auth,ls", "injectargs"] {
        assert_eq!(a.run(admin, &asks(prefix)).0, EINVAL, "{prefix}");
    }
    let rx = client(&mut a, "client.rx", &[("mon", "allow rx")]);
    assert_eq!(a.run(rx, &asks("auth dump-keys")).0, EACCES);
    assert_eq!(a.run(admin, r#"{"prefix":"auth dump-keys","format":"json"}"#).0, 0);
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

/// A grant is judged by what the command will do, not by words that were added to it.
#[test]
fn bootstrap_keys_make_what_they_are_for() {
    let mut a = Alone::new();
    let mut n = 0;
    let mut make = |a: &mut Alone,
                    boot: &str,
                    entity: &str,
                    caps: &[&str],
                    extra: &[(&str, &str)]| {
        let caps_of = format!("profile bootstrap-{boot}");
        let conn =
            a.connect_as(&format!("client.bootstrap-{boot}"), &caps_of, Features::ALL, addr(0, 9));
        n += 1;
        let entity = format!("{entity}{n}");
        let mut cmd =
            serde_json::json!({"prefix": "auth get-or-create", "entity": entity, "caps": caps});
        for (key, value) in extra {
            cmd[*key] = (*value).into();
        }
        let r = a.run(conn, &cmd.to_string()).0;
        assert_eq!(a.mon.state().auth.get(&name(&entity)).is_some(), r == 0, "{cmd}");
        r
    };
    let rbd = [("caps_mon", "profile rbd"), ("caps_osd", "profile rbd pool=a")];
    let all = ["mon", "allow *", "osd", "allow *"];
    assert_eq!(make(&mut a, "rbd", "client.evil", &all, &rbd), EACCES);
    assert_eq!(make(&mut a, "rbd", "client.evil", &[], &rbd), EACCES);
    let mds = [("caps_mon", "allow profile mds"), ("caps_osd", "allow rwx"), ("caps_mds", "allow")];
    assert_eq!(make(&mut a, "mds", "mds.evil", &all, &mds), EACCES);
    // Honest ones.
    let honest: &[(&str, &str, &[&str])] = &[
        (
            "rbd",
            "client.a",
            &["mon", "profile rbd", "osd", "profile rbd pool=a, profile rbd-read-only"],
        ),
        (
            "rbd",
            "client.a",
            &["mon", "profile rbd", "osd", "profile rbd", "mgr", "profile rbd pool=a"],
        ),
        ("rbd-mirror", "client.a", &["mon", "profile rbd-mirror", "osd", "profile rbd"]),
        ("mds", "mds.a", &["osd", "allow rwx", "mds", "allow", "mon", "allow profile mds"]),
        ("mgr", "mgr.a", &["mon", "allow profile mgr", "osd", "allow *", "mds", "allow *"]),
        ("mgr", "mgr.a", &["mon", "allow profile mgr"]),
        ("rgw", "client.rgw.a", &["osd", "allow rwx", "mon", "allow rw"]),
    ];
    for (boot, entity, caps) in honest {
        assert_eq!(make(&mut a, boot, entity, caps, &[]), 0, "{boot} {caps:?}");
    }
    // More than the profile names, services that it does not name, a grant behind a grant, a
    // service that is named twice.
    let greedy: &[(&str, &str, &[&str])] = &[
        ("rbd", "client.b", &["mon", "profile rbd", "osd", "profile rbd", "mgr", "allow *"]),
        ("rbd", "client.b", &["mon", "profile rbd", "osd", "profile rbd", "mds", "allow *"]),
        ("rbd", "client.b", &["mon", "profile rbd", "osd", "profile rbd pool=a; allow *"]),
        ("rbd", "client.b", &["mon", "allow *", "osd", "profile rbd", "mon", "profile rbd"]),
        ("mds", "client.b", &["osd", "allow rwx", "mds", "allow", "mon", "allow profile mds"]),
        ("mgr", "mgr.b", &["mon", "allow profile mgr", "mgr", "allow *"]),
        ("rgw", "client.rgw.b", &["osd", "allow rwx", "mon", "allow rw", "mgr", "allow *"]),
    ];
    for (boot, entity, caps) in greedy {
        assert_eq!(make(&mut a, boot, entity, caps, &[]), EACCES, "{boot} {caps:?}");
    }
}

/// A service that is named twice has the first of its caps.
#[test]
fn the_first_of_two_caps_counts() {
    let mut a = Alone::new();
    let admin = a.admin();
    let caps = ["mon", "allow r", "mon", "allow *"];
    for prefix in ["auth add", "auth caps", "auth get-or-create"] {
        let entity = if prefix == "auth get-or-create" { "client.y" } else { "client.x" };
        let cmd = serde_json::json!({"prefix": prefix, "entity": entity, "caps": caps});
        assert_eq!(a.run(admin, &cmd.to_string()).0, 0);
        assert_eq!(a.mon.state().auth.get(&name(entity)).unwrap().caps["mon"], "allow r");
    }
}

/// `profile rbd` may keep out one instance of a client: no range, no host, and nothing is let
/// in again.
#[test]
fn one_instance_may_be_kept_out() {
    let mut a = Alone::new();
    for profile in
        ["profile rbd", "profile rbd-read-only", "profile simple-rados-client-with-blocklist"]
    {
        let conn = a.connect_as("client.rbd", profile, Features::ALL, addr(0, 3));
        for (cmd, want) in [
            (r#"{"prefix":"osd blocklist","blocklistop":"add","addr":"10.0.0.1:0/71"}"#, 0),
            (r#"{"prefix":"osd blacklist","blacklistop":"add","addr":"10.0.0.1:0/72"}"#, 0),
            (
                r#"{"prefix":"osd blocklist","range":"range","blocklistop":"add","addr":"127.0.0.0/8"}"#,
                EACCES,
            ),
            (
                r#"{"prefix":"osd blocklist","range":"","blocklistop":"add","addr":"127.0.0.0/8"}"#,
                EACCES,
            ),
            (
                r#"{"prefix":"osd blocklist","range":true,"blocklistop":"add","addr":"0.0.0.0/8"}"#,
                EACCES,
            ),
            (r#"{"prefix":"osd blocklist","blocklistop":"add","addr":"10.0.0.2:0/0"}"#, EACCES),
            (r#"{"prefix":"osd blocklist","blocklistop":"add","addr":"10.0.0.2/0"}"#, EACCES),
            (r#"{"prefix":"osd blocklist","blocklistop":"add","addr":"10.0.0.2"}"#, EACCES),
            (r#"{"prefix":"osd blocklist","blocklistop":"rm","addr":"10.0.0.1:0/71"}"#, EACCES),
            (
                r#"{"prefix":"osd blacklist","blacklistop":"add","blocklistop":"rm","addr":"10.0.0.1:0/72"}"#,
                0,
            ),
            (
                r#"{"prefix":"osd blacklist","blacklistop":"add","range":"range","addr":"10.0.0.0/8"}"#,
                0,
            ),
        ] {
            // The command's former name is in the profiles of images alone.
            let named = profile.contains("rbd") || !cmd.contains("osd blacklist");
            let want = if named { want } else { EACCES };
            assert_eq!(a.run(conn, cmd).0, want, "{profile}: {cmd}");
        }
        assert!(a.map().range_blocklist.is_empty(), "{profile}");
        assert!(a.map().blocklist.len() >= 2, "{profile}: what was kept out stays so");
    }
}

/// The monitors' key leaves for nobody but who has all rights.
#[test]
fn the_monitors_key_stays() {
    let mut a = Alone::new();
    let admin = a.admin();
    for caps in ["allow rwx", "profile role-definer", "allow service auth *"] {
        let conn = a.connect_as("client.keys", caps, Features::ALL, addr(0, 3));
        for prefix in [
            "auth get",
            "auth export",
            "auth get-key",
            "auth print-key",
            "auth rotate",
            "auth caps",
        ] {
            let cmd =
                serde_json::json!({"prefix": prefix, "entity": "mon.", "caps": ["mon", "allow r"]});
            assert_eq!(a.run(conn, &cmd.to_string()).0, EACCES, "{caps}: {prefix}");
        }
        let ring =
            Bytes::from_static(b"[mon.]\n\tkey = AQAaQ2dl+FnaLxAAGZwuWS2kKoIIU0pIVCWjtQ==\n");
        assert_eq!(a.run_with(conn, &asks("auth import"), ring).0, EACCES);
        assert_eq!(a.run(conn, r#"{"prefix":"auth get","entity":"client.admin"}"#).0, 0);
    }
    assert_eq!(a.run(admin, r#"{"prefix":"auth get","entity":"mon."}"#).0, 0);
}

/// No command of keys takes the last full rights away, unless that is said to be meant.
#[test]
fn the_last_administrator_stays() {
    const EPERM: i32 = -1;
    let mut a = Alone::new();
    let admin = a.admin();
    let ring = |caps: &str| {
        let key = "AQAaQ2dl+FnaLxAAGZwuWS2kKoIIU0pIVCWjtQ==";
        Bytes::from(format!("[client.admin]\n\tkey = {key}\n{caps}"))
    };
    let before = a.mon.state().auth.get(&name("client.admin")).cloned();
    let (r, rs, _) = a.run_with(admin, &asks("auth import"), ring(""));
    assert!(r == EINVAL && rs.contains("no caps supplied"), "{rs}");
    assert_eq!(
        a.run_with(admin, &asks("auth import"), ring("\tcaps mon = \"allow r\"\n")).0,
        EPERM
    );
    let weaker = r#"{"prefix":"auth caps","entity":"client.admin","caps":["mon","allow r"]}"#;
    let bound = r#"{"prefix":"auth caps","entity":"client.admin","caps":["mon","allow * network 1.0.0.0/8"]}"#;
    let remove = r#"{"prefix":"auth rm","entity":"client.admin"}"#;
    for cmd in [weaker, bound, remove, r#"{"prefix":"auth del","entity":"client.admin"}"#] {
        let (r, rs, _) = a.run(admin, cmd);
        assert!(r == EPERM && rs.contains("--yes-i-really-mean-it"), "{cmd}: {rs}");
    }
    assert_eq!(a.mon.state().auth.get(&name("client.admin")).cloned(), before);
    // With another one, or when it is meant.
    client(&mut a, "client.other", &[("mon", "allow *")]);
    assert_eq!(a.run(admin, remove).0, 0);
    let meant = r#"{"prefix":"auth rm","entity":"client.other","yes_i_really_mean_it":true}"#;
    assert_eq!(a.run(admin, r#"{"prefix":"auth rm","entity":"client.other"}"#).0, EPERM);
    assert_eq!(a.run(admin, meant).0, 0);
}

/// Who may make snapshots of his own: whoever may write in the pool as such, as with the peer.
#[test]
fn self_managed_snapshots() {
    let mut a = Alone::with_osds().0;
    let admin = a.admin();
    assert_eq!(a.pool_op(admin, pool_op::CREATE, 0, "a", 0).r, 0);
    let enable = r#"{"prefix":"osd pool application enable","pool":"a","app":"rbd"}"#;
    assert_eq!(a.run(admin, enable).0, 0);
    for (i, (osd, may)) in [
        ("allow rw pool=a", true),
        ("allow rw pool=a object_prefix foo", true),
        ("allow rw pool=a namespace=n", true),
        ("allow rw", true),
        ("profile rbd pool=a", true),
        ("profile rbd", true),
        ("allow r pool=a", false),
        ("allow rw pool=b", false),
        ("allow rw object_prefix foo", true),
        ("allow rw namespace=n", true),
        ("allow rw tag rbd *=*", false),
        ("profile rbd-read-only pool=a", false),
        ("allow rw pool=a network 10.0.0.0/8", false),
    ]
    .into_iter()
    .enumerate()
    {
        let conn = client(&mut a, &format!("client.s{i}"), &[("mon", "allow r"), ("osd", osd)]);
        let r = a.pool_op(conn, pool_op::CREATE_UNMANAGED_SNAP, 1, "", 0).r;
        assert_eq!(r, if may { 0 } else { -1 }, "{osd}");
    }
}

/// Secrets stand in no line of the log, in none of an earlier release either, and not in what a
/// refused command leaves there.
#[test]
fn secrets_are_not_logged() {
    let mut a = Alone::new();
    let admin = a.admin();
    let weak = a.connect_as("client.x", "allow r", Features::ALL, addr(0, 3));
    for cmd in [
        r#"{"prefix":"config-key set","key":"dm-crypt/osd/x/luks","val":"S3CRET"}"#,
        r#"{"prefix":"config-key put","key":"k","val":"S3CRET"}"#,
        r#"{"prefix":"config set","who":"mgr","name":"mgr/dashboard/PWD","value":"S3CRET","force":true}"#,
    ] {
        assert_eq!(a.run(admin, cmd).0, 0);
        assert_eq!(a.run(weak, cmd).0, EACCES);
    }
    let log: Vec<String> = a.mon.state().log.entries.iter().map(|(_, e)| e.msg.clone()).collect();
    assert!(log.iter().all(|line| !line.contains("S3CRET")), "{log:?}");
    for shown in [
        "cmd=[{prefix=config-key set, key=dm-crypt/osd/x/luks}]: dispatch",
        "cmd='[{prefix=config set, name=mgr/dashboard/PWD, who=mgr}]': finished",
        "cmd=[{prefix=config-key put, key=k}]:  access denied",
    ] {
        assert!(log.iter().any(|line| line.ends_with(shown)), "{shown}");
    }
}

/// What anybody says takes a bounded part of the log, and looks like one line.
#[test]
fn the_log_is_bounded_in_bytes() {
    let mut a = Alone::new();
    let weak = a.connect_as("client.x", "allow rw", Features::ALL, addr(0, 3));
    let long = "y".repeat(1_000_000);
    let cmd = serde_json::json!({"prefix": "auth ls", "x": long}).to_string();
    assert_eq!(a.run(weak, &cmd).0, EACCES);
    let cmd = serde_json::json!({"prefix": "log", "logtext": [long]}).to_string();
    assert_eq!(a.run(weak, &cmd).0, 0);
    let entry = LogEntry {
        channel: "cluster".repeat(1000),
        msg: "a\n2026-01-01 forged".repeat(300),
        ..LogEntry::default()
    };
    for _ in 0..20 {
        let fsid = a.mon.state().fsid;
        a.say(weak, &LogMsg { fsid, entries: vec![entry.clone(); 200], ..LogMsg::default() });
        a.settle();
    }
    let log = &a.mon.state().log;
    assert!(log.entries.iter().all(|(_, e)| e.msg.len() <= 4096 && !e.msg.contains('\n')));
    let bytes: usize = log.entries.iter().map(|(_, e)| e.msg.len()).sum();
    assert!(bytes < 9 << 20 && log.entries.len() > 1000, "{bytes}");
    let written: usize = a.log.iter().map(|(_, data)| data.len()).sum();
    assert!(written < 40 << 20, "what is written is cut too: {written}");
}

/// A monitor obeys the modes that it is told, and refuses promises that it cannot keep.
#[test]
fn security_options_are_refused_or_obeyed() {
    let mut a = Alone::new();
    let admin = a.admin();
    let set = |a: &mut Alone, name: &str, value: &str| {
        let cmd = serde_json::json!(
            {"prefix": "config set", "who": "global", "name": name, "value": value, "force": true});
        a.run(admin, &cmd.to_string()).0
    };
    assert_eq!(set(&mut a, "ms_mon_service_mode", "secure"), 0);
    assert_eq!(set(&mut a, "ms_mon_service_mode", "very-secure"), EINVAL);
    assert_eq!(set(&mut a, "ms_service_mode", ""), EINVAL);
    assert_eq!(set(&mut a, "auth_client_required", "gss"), EINVAL);
    assert_eq!(set(&mut a, "cephx_require_version", "3"), EINVAL);
    let mut crc = a.mon.auth().connection();
    let step = crc.request(
        a.now,
        types::EntityKind::CLIENT,
        &"127.0.0.1:1".parse().unwrap(),
        auth::handshake::method::CEPHX,
        &[auth::handshake::con_mode::CRC],
        &[],
    );
    assert!(matches!(step, auth::ServerStep::Refuse { result: -95, .. }), "{step:?}");
}

/// Each limit that kernels and libraries have: the last value that is well, and the first that
/// is refused.
#[test]
fn maps_stay_within_clients_limits() {
    let mut a = Alone::with_osds().0;
    let admin = a.admin();
    assert_eq!(a.pool_op(admin, pool_op::CREATE, 0, "p", 0).r, 0);
    let gate = r#"{"prefix":"osd set-require-min-compat-client","version":"luminous","yes_i_really_mean_it":true}"#;
    assert_eq!(a.run(admin, gate).0, 0);
    let ids = |n: usize| (0..n).map(|i| (i % 3).to_string()).collect::<Vec<_>>();
    let ask = |prefix: &str, ids: Vec<String>| {
        serde_json::json!({"prefix": prefix, "pgid": "1.0", "id": ids}).to_string()
    };
    assert_eq!(a.run(admin, &ask("osd pg-temp", ids(3))).0, 0);
    assert_eq!(a.run(admin, &ask("osd pg-temp", ids(33))).0, EINVAL);
    assert_eq!(a.run(admin, &ask("osd pg-upmap", ids(33))).0, EINVAL);
    assert_eq!(a.run(admin, &ask("osd pg-upmap-items", vec!["0".into(), "1".into()])).0, 0);
    let create = |n: usize| {
        serde_json::json!({"prefix": "osd pool create", "pool": "n".repeat(n), "pg_num": 1})
            .to_string()
    };
    assert_eq!(a.run(admin, &create(255)).0, 0);
    assert_eq!(a.run(admin, &create(256)).0, EINVAL);
    let bucket = |n: usize| {
        let cmd = serde_json::json!(
            {"prefix": "osd crush add-bucket", "name": "b".repeat(n), "type": "host"});
        cmd.to_string()
    };
    // Its shadow's name has the class behind it.
    let (r, _, classes) = a.run(admin, r#"{"prefix":"osd crush class ls"}"#);
    let classes: Vec<String> = serde_json::from_slice(&classes).unwrap();
    let longest = classes.iter().map(String::len).max().unwrap();
    let last = 255 - "~".len() - longest;
    assert_eq!((r, a.run(admin, &bucket(last)).0), (0, 0));
    assert_eq!(a.run(admin, &bucket(last + 1)).0, EINVAL);
    // A CRUSH map whose bucket is of a type without a name.
    let (_, _, map) = a.run(admin, r#"{"prefix":"osd getcrushmap"}"#);
    assert_eq!(a.run_with(admin, r#"{"prefix":"osd setcrushmap"}"#, map.clone()).0, 0);
    let root = b"\x04\x00\x00\x00root";
    let at = map.windows(root.len()).rposition(|w| w == root).unwrap();
    let mut broken = map.to_vec();
    let number = at - 4; // the type's number stands before its name
    broken[number] ^= 0x40;
    let (r, rs, _) = a.run_with(admin, r#"{"prefix":"osd setcrushmap"}"#, broken.into());
    assert!(r == EINVAL && rs.contains("has no name"), "{rs}");
}
