//! Hosts that join by a token and leave.

use serde_json::{Value, json};

use super::*;

struct Hosts(Cluster);

impl Hosts {
    fn new() -> Self {
        Self(Cluster::new())
    }

    /// A command of somebody with the caps that the key database has of him.
    fn of(&mut self, who: &str, words: &Value) -> Result<Value, (i32, String)> {
        let name: EntityName = who.parse().unwrap();
        let entity = self.0.state.auth.get(&name).unwrap_or_else(|| panic!("no {who}"));
        self.0.session.caps = MonCap::parse(&entity.caps["mon"]).unwrap();
        self.0.session.name = name;
        let json = words.to_string();
        let args = cli::Args::parse(&[&json]).unwrap();
        let known = cli::find(&args).unwrap();
        let info = &self.0.session;
        let judged = args.judged(&known.sig);
        if !crate::session::may_run(info, known.module, args.prefix(), &judged, known.perm) {
            return Err((13, "access denied".to_owned()));
        }
        let input = words["input"].as_str().unwrap_or_default().to_owned();
        let reply = self.0.run(&json, &Bytes::from(input));
        if reply.r < 0 {
            return Err((-reply.r, reply.rs));
        }
        Ok(serde_json::from_slice(&reply.out).unwrap_or(Value::Null))
    }

    fn admin(&mut self, words: &Value) -> Result<Value, (i32, String)> {
        self.of("client.admin", words)
    }

    /// A token; returns who may use it.
    fn token(&mut self) -> String {
        let told = self.admin(&json!({"prefix": "host token", "ttl": 600})).unwrap();
        format!("client.join.{}", told["id"].as_str().unwrap())
    }

    fn join(&mut self, who: &str, host: &str, nonce: char) -> Result<Value, (i32, String)> {
        let nonce: String = std::iter::repeat_n(nonce, 32).collect();
        let addr = format!("10.0.0.{}", host.len());
        let join = json!({"prefix": "host join", "name": host, "addr": addr, "nonce": nonce});
        self.of(who, &join)
    }

    fn has(&self, name: &str) -> bool {
        self.0.state.auth.get(&name.parse().unwrap()).is_some()
    }
}

fn why(refused: Result<Value, (i32, String)>) -> (i32, String) {
    refused.expect_err("it is refused")
}

/// A token is for one host, for a time, and for nothing else.
#[test]
fn a_token_opens_the_door_once() {
    let mut all = Hosts::new();
    let token = all.token();
    for other in [
        json!({"prefix": "osd dump"}),
        json!({"prefix": "host ls"}),
        json!({"prefix": "host token"}),
        json!({"prefix": "auth get", "entity": "client.admin"}),
        json!({"prefix": "host mon-add", "name": "two", "addr": "10.0.0.3"}),
    ] {
        assert_eq!(why(all.of(&token, &other)).0, 13, "{other}");
    }
    assert!(all.of(&token, &json!({"prefix": "host time"})).unwrap()["now_ns"].is_u64());
    let told = all.join(&token, "two", 'n').unwrap();
    // The answer was lost: the same host asks again, and nobody else may.
    assert_eq!(all.join(&token, "two", 'n').unwrap(), told);
    assert!(why(all.join(&token, "two", 'm')).1.contains("used by two"));
    assert!(why(all.join(&token, "three", 'n')).1.contains("used by two"));
    let arrive = json!({"prefix": "host arrive", "name": "two"});
    all.of("client.host.two", &arrive).unwrap();
    assert!(!all.has(&token), "its key is gone");
    all.of("client.host.two", &arrive).unwrap();
    let listed = all.admin(&json!({"prefix": "host token-ls", "format": "json"})).unwrap();
    assert_eq!(listed, json!([]));

    let long = all.admin(&json!({"prefix": "host token", "ttl": i64::MAX})).unwrap();
    let ends = long["ends"].as_u64().unwrap();
    assert!(ends <= all.0.now.wall_ns / 1_000_000_000 + 604_800, "a week at most");
    all.admin(&json!({"prefix": "host token-rm", "id": long["id"]})).unwrap();

    // Revoked, and over.
    let token = all.token();
    let id = token.strip_prefix("client.join.").unwrap();
    all.admin(&json!({"prefix": "host token-rm", "id": id})).unwrap();
    assert!(!all.has(&token));
    let token = all.token();
    all.0.now.wall_ns += 601_000_000_000;
    assert!(why(all.join(&token, "three", 'n')).1.contains("time is over"));
    // What is over goes when another is made.
    all.token();
    assert!(!all.has(&token));
    for _ in 1..64 {
        all.token();
    }
    assert_eq!(why(all.admin(&json!({"prefix": "host token"}))).0, 28);
}

/// A host's key is for its own name; the monitors' key goes to hosts that become monitors alone.
#[test]
fn a_host_speaks_for_itself() {
    let mut all = Hosts::new();
    for (host, addr) in [("two", "10.0.0.3"), ("three", "10.0.0.5"), ("fourth", "10.0.0.6")] {
        let token = all.token();
        all.join(&token, host, 'n').unwrap();
        let own = format!("client.host.{host}");
        all.of(&own, &json!({"prefix": "host arrive", "name": host})).unwrap();
        let add = json!({"prefix": "host mon-add", "name": host, "addr": addr});
        let told = all.of(&own, &add).unwrap();
        assert_eq!(told["key"].is_string(), host != "fourth", "{told}");
        assert_eq!(all.of(&own, &add).unwrap(), told, "asked again");
        let mgr = all.of(&own, &json!({"prefix": "host mgr-add", "name": host})).unwrap();
        assert_eq!(mgr["key"].is_string(), host != "fourth", "{mgr}");
    }
    let mons: Vec<_> = all.0.state.monmap.mons.keys().cloned().collect();
    assert_eq!(mons, ["a", "three", "two"]);
    let more =
        json!({"prefix": "host mon-add", "name": "fourth", "addr": "10.0.0.6", "more": true});
    assert!(all.of("client.host.fourth", &more).unwrap()["key"].is_string());
    for other in [
        json!({"prefix": "host mon-rm", "name": "three"}),
        json!({"prefix": "host leave", "name": "three"}),
        json!({"prefix": "host mon-rm", "name": "a"}),
        json!({"prefix": "host token"}),
        json!({"prefix": "auth get", "entity": "mon."}),
        json!({"prefix": "config-key get", "key": "argonaut/host/two"}),
        json!({"prefix": "osd purge", "id": 0, "yes_i_really_mean_it": true}),
    ] {
        assert_eq!(why(all.of("client.host.two", &other)).0, 13, "{other}");
    }
    // Another address than it joined with; somebody with rights on keys and not on everything.
    let add = json!({"prefix": "host mon-add", "name": "two", "addr": "10.9.9.9"});
    assert_eq!(why(all.of("client.host.two", &add)).0, 1);
    let caps = json!({"prefix": "auth get-or-create", "entity": "client.half",
        "caps": ["mon", "allow rwx"]});
    all.admin(&caps).unwrap();
    let add = json!({"prefix": "host mon-add", "name": "two", "addr": "10.0.0.3"});
    assert_eq!(why(all.of("client.half", &add)).0, 13);

    // The administrator's key goes to who was let in with it, and by an administrator alone.
    let token = json!({"prefix": "host token", "with_admin": true});
    assert_eq!(why(all.of("client.half", &token)).0, 13);
    let id = all.admin(&token).unwrap()["id"].as_str().unwrap().to_owned();
    all.join(&format!("client.join.{id}"), "seventh", 'n').unwrap();
    for (host, told) in [("seventh", true), ("two", false)] {
        let arrive = json!({"prefix": "host arrive", "name": host});
        let answer = all.of(&format!("client.host.{host}"), &arrive).unwrap();
        assert_eq!(answer["admin"].is_string(), told, "{host}: {answer}");
    }
}

/// Names that are in use, or none.
#[test]
fn names_are_taken_or_wrong() {
    let mut all = Hosts::new();
    let token = all.token();
    for (name, errno, said) in [
        ("a", 17, "mon.a"),
        ("vm", 17, "bucket vm"),
        ("", 22, "name"),
        ("x/y", 22, "no name"),
        ("7", 22, "no name"),
        ("-a", 22, "no name"),
    ] {
        let refused = why(all.join(&token, name, 'n'));
        assert!(refused.0 == errno && refused.1.contains(said), "{name}: {refused:?}");
    }
    all.join(&token, "two", 'n').unwrap();
    let token = all.token();
    assert!(why(all.join(&token, "two", 'n')).1.contains("--lost two"));
    assert!(why(all.join(&token, "new", 'n')).1.contains("address 10.0.0.3 is host two's"));
    let founder = all.admin(&json!({"prefix": "host token", "name": "a"})).unwrap();
    let founder = format!("client.join.{}", founder["id"].as_str().unwrap());
    assert!(why(all.join(&founder, "bb", 'n')).1.contains("for host a"));
    all.join(&founder, "a", 'n').unwrap();
}

/// OSDs are those that the host made; with them and a monitor it does not leave.
#[test]
fn a_host_leaves_without_a_trace() {
    let mut all = Hosts::new();
    let before = (all.0.state.auth.clone(), all.0.state.config_key.clone());
    let token = all.token();
    all.join(&token, "two", 'n').unwrap();
    let own = "client.host.two";
    let first = all.0.state.osdmap.uuid(OsdId(0)).to_string();
    let mut say = |words: Value| all.of(own, &words);
    say(json!({"prefix": "host arrive", "name": "two"})).unwrap();
    say(json!({"prefix": "host mgr-add", "name": "two"})).unwrap();
    say(json!({"prefix": "host mds-add", "name": "two"})).unwrap();
    let uuid = "11111111-2222-3333-4444-555555555555";
    let new = json!({"prefix": "host osd-new", "name": "two", "uuid": uuid, "input":
        r#"{"cephx_secret":"AQBzZW5sZWNobwoQAAAAAAAAAAAAAAAAAAAAAAAAAA=="}"#});
    let fresh = json!({"prefix": "host osd-new", "name": "two", "uuid": uuid});
    assert!(say(new).is_err(), "a damaged key is refused");
    assert_eq!(say(fresh.clone()).unwrap(), json!(3));
    assert_eq!(say(fresh).unwrap(), json!(3), "asked again");
    let none = json!({"prefix": "host osd-new", "name": "two",
        "uuid": "00000000-0000-0000-0000-000000000000"});
    assert_eq!(why(say(none)).0, 22, "that of a destroyed OSD");
    let taken = json!({"prefix": "host osd-new", "name": "two",
        "uuid": first});
    assert_eq!(why(say(taken)).0, 17, "another host's");
    let rm = |id: i32| json!({"prefix": "host osd-rm", "name": "two", "id": id});
    assert!(why(say(rm(0))).1.contains("not host two's"));
    let leave = json!({"prefix": "host leave", "name": "two"});
    assert!(why(say(leave.clone())).1.contains("osd.3"));
    say(json!({"prefix": "host osd-out", "name": "two"})).unwrap();
    say(rm(3)).unwrap();
    say(rm(3)).unwrap();
    say(json!({"prefix": "host mon-add", "name": "two", "addr": "10.0.0.3"})).unwrap();
    assert!(why(say(leave.clone())).1.contains("mon.two"));
    say(json!({"prefix": "host mon-rm", "name": "two"})).unwrap();
    say(leave).unwrap();
    let after = &all.0.state;
    assert_eq!(after.auth.entities, before.0.entities);
    assert_eq!(after.config_key, before.1);
    assert!(!after.osdmap.exists(OsdId(3)));
}
