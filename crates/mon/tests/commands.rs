//! Commands against transcripts of a stock cluster, `vectors/commands/`: the same command,
//! the same return code, line for the user and output.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use auth::{CryptoKey, KeyKind};
use bytes::Bytes;
use env::{ConnId, Now, Seeded};
use maps::{MonInfo, MonMap};
use messages::{Message, MonCommand, MonCommandAck};
use mon::{Mkfs, MonConfig, Monitor, Output, PeerInfo, Reply, quorum};
use types::{AddrKind, AddrVec, EntityAddr, EntityId, EntityKind, Features, UTime, Uuid};

const FSID: [u8; 16] = [7; 16];
const ADMIN: ConnId = ConnId(1);

fn addrs(ports: [u16; 2]) -> AddrVec {
    let at = |port| EntityAddr::msgr2(SocketAddr::from(([127, 0, 0, 1], port)), 0);
    AddrVec(vec![at(ports[0]), at(ports[1]).with_kind(AddrKind::LEGACY)])
}

/// A monitor with one OSD's key and a client with all rights.
struct Alone {
    mon: Monitor,
    now: Now,
    index: u64,
    acks: Vec<MonCommandAck>,
    local: Vec<Reply>,
}

impl Alone {
    fn new() -> Self {
        let fsid = Uuid::from_random(FSID);
        let at = UTime { sec: 1_700_000_000, nsec: 0 };
        let a = MonInfo { name: "a".into(), addrs: addrs([44700, 44701]), ..MonInfo::default() };
        let monmap = MonMap::new(fsid, at, 20, vec![a]);
        let mut mkfs = Mkfs { fsid, now: at, monmap, ..Mkfs::default() };
        let key = CryptoKey::generate(KeyKind::AES, at, &mut Seeded(1));
        mkfs.add_key("mon.".parse().unwrap(), key.clone());
        mkfs.add_key("client.admin".parse().unwrap(), key);
        let now = Now { mono_ns: 5_000_000_000_000, wall_ns: 1_700_000_100_000_000_000 };
        let metadata = [("ceph_version", "VERSION"), ("hostname", "vm"), ("arch", "x86_64")];
        let metadata = metadata.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        let config = MonConfig { name: "a".into(), metadata, ..MonConfig::default() };
        let auth_rng: auth::SharedRandom = Arc::new(Mutex::new(Seeded(99)));
        let state = mkfs.to_state_bytes();
        let mon = Monitor::new(config, &state, now, Box::new(Seeded(5)), auth_rng).unwrap();
        let mut this = Self { mon, now, index: 0, acks: Vec::new(), local: Vec::new() };
        this.mon.lead(now, mon::quorum::Ballot { term: 1, node: 0 });
        this.settle();
        let any = EntityAddr {
            kind: AddrKind::ANY,
            nonce: 2_756_597_515,
            sock: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
        };
        let peer = PeerInfo {
            identity: auth::PeerIdentity {
                name: "client.admin".parse().unwrap(),
                allow_all: true,
                ..auth::PeerIdentity::default()
            },
            entity: EntityId::new(EntityKind::CLIENT, -1),
            features: Features::TENTACLE_WORD,
            addrs: any.into(),
            at_mgr: false,
        };
        this.mon.on_opened(now, ADMIN, peer);
        this
    }

    /// Commits everything, until nothing more is proposed.
    fn settle(&mut self) {
        loop {
            let outputs = self.mon.poll();
            if outputs.is_empty() {
                return;
            }
            for output in outputs {
                match output {
                    Output::Propose { token, data } => {
                        self.index += 1;
                        let index = self.index;
                        let event = quorum::Event::Committed { index, origin: 0, token, data };
                        self.mon.on_quorum(self.now, event).unwrap();
                    }
                    Output::Send { env, .. } if env.kind == MonCommandAck::KIND => {
                        self.acks.push(MonCommandAck::decode(&env).unwrap());
                    }
                    Output::Local { reply, .. } => self.local.push(reply),
                    _ => {}
                }
            }
        }
    }

    /// As a client sends it.
    fn command(&mut self, json: &str, input: &Bytes) -> Reply {
        self.send(json, input);
        let ack = self.acks.pop().expect("an answer");
        Reply { r: ack.r, rs: ack.rs, out: ack.output }
    }

    fn send(&mut self, json: &str, input: &Bytes) {
        let msg = MonCommand {
            fsid: Uuid::from_random(FSID),
            cmd: vec![Bytes::copy_from_slice(json.as_bytes())],
            input: input.clone(),
            ..MonCommand::default()
        };
        self.mon.on_message(self.now, ADMIN, &msg.envelope(Features::TENTACLE_WORD));
        self.settle();
    }

    /// As the admin socket hands it in.
    fn ask(&mut self, json: &str) -> Reply {
        self.mon.on_admin_command(self.now, 1, json.as_bytes(), &Bytes::new());
        self.settle();
        self.local.pop().expect("an answer")
    }
}

/// Replaces keys, times and the cluster's id.
fn normalized(text: &str) -> String {
    let mut out = String::new();
    let word = |c: char| c.is_ascii_alphanumeric() || "+/=:.-".contains(c);
    let mut rest = text;
    while let Some(start) = rest.find(word) {
        let end = rest[start..].find(|c| !word(c)).map_or(rest.len(), |n| start + n);
        out.push_str(&rest[..start]);
        out.push_str(&replaced(&rest[start..end]));
        rest = &rest[end..];
    }
    out += rest;
    out.split_inclusive('\n').map(without_seq).collect()
}

/// A line of the cluster log without its number.
fn without_seq(line: &str) -> String {
    if let Some((head, tail)) = line.split_once(" : cluster ")
        && let Some((head, _)) = head.rsplit_once(' ')
    {
        return format!("{head} SEQ : cluster {tail}");
    }
    if line.trim_start().starts_with("\"seq\": ") {
        return "        \"seq\": SEQ,\n".into();
    }
    line.to_owned()
}

fn replaced(token: &str) -> String {
    let is_key = token.len() >= 40 && token.ends_with('=');
    let is_stamp = token.len() == 31 && token.contains('T') && token.ends_with("+0000");
    if is_key {
        "KEY".into()
    } else if is_stamp {
        "STAMP".into()
    } else {
        token.replace(&Uuid::from_random(FSID).to_string(), "FSID")
    }
}

fn shown(reply: &Reply) -> String {
    let mut text = format!("rc {}\n", reply.r);
    if !reply.rs.is_empty() {
        text += &format!("rs {}\n", serde_json::to_string(&reply.rs).unwrap());
    }
    let output = String::from_utf8_lossy(&reply.out);
    text += &output;
    if !output.is_empty() && !output.ends_with('\n') {
        text += "\n\\ no newline\n";
    }
    normalized(&text)
}

/// Runs a transcript and tells every difference at once.
fn play(name: &str, run: impl Fn(&mut Alone, &str, &Bytes) -> Reply) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/commands").join(name);
    let text = std::fs::read_to_string(&path).unwrap();
    let mut alone = Alone::new();
    let (mut differences, mut count) = (String::new(), 0);
    for block in format!("\n{text}").split("\n> ").skip(1) {
        let (line, wanted) = block.split_once('\n').unwrap_or((block, ""));
        let (json, input) = match line.split_once(" < ") {
            Some((json, input)) => (json, serde_json::from_str::<String>(input).unwrap()),
            None => (line, String::new()),
        };
        let got = shown(&run(&mut alone, json, &Bytes::from(input)));
        count += 1;
        if got.trim_end_matches('\n') != wanted.trim_end_matches('\n') {
            differences += &format!("> {line}\n--- wanted\n{wanted}\n--- got\n{got}\n");
        }
    }
    assert!(differences.is_empty(), "{name}:\n{differences}");
    assert!(count > 5, "{name} holds a transcript");
}

fn as_client(name: &str) {
    play(name, |alone, json, input| alone.command(json, input));
}

#[test]
fn keys_and_caps() {
    as_client("auth.txt");
}

#[test]
fn settings() {
    as_client("config.txt");
}

#[test]
fn key_value_store() {
    as_client("config-key.txt");
}

#[test]
fn cluster_log() {
    as_client("log.txt");
}

#[test]
fn monitors() {
    as_client("mons.txt");
}

#[test]
fn what_the_manager_answers() {
    as_client("manager.txt");
}

#[test]
fn the_monitor_itself() {
    play("tell-mon.txt", |alone, json, _| alone.ask(json));
}

/// No command panics, whatever its arguments are.
#[test]
fn odd_arguments_are_answered() {
    let long = "x".repeat(3000);
    let odd = [
        serde_json::json!("x"),
        serde_json::json!(""),
        serde_json::json!("osd.99999999999"),
        serde_json::json!("0.0"),
        serde_json::json!("\u{0}\u{1f600}/[]=,:"),
        serde_json::json!(long),
        serde_json::json!(-1),
        serde_json::json!(0),
        serde_json::json!(i64::MAX),
        serde_json::json!(u64::MAX),
        serde_json::json!(1e308),
        serde_json::json!(["a", "b", "c"]),
        serde_json::json!([0, -1, null]),
        serde_json::json!(true),
        serde_json::json!(null),
        serde_json::json!({"a": 1}),
    ];
    let mut alone = Alone::new();
    let tell = cli::MON_TELL.iter().filter_map(|(text, _)| cli::Sig::parse(text));
    let own: Vec<(String, cli::Sig, bool)> = tell.map(|sig| (sig.prefix(), sig, true)).collect();
    let all = cli::commands().iter().map(|c| (c.prefix.clone(), c.sig.clone(), false));
    for (prefix, sig, local) in all.chain(own) {
        for value in &odd {
            for format in ["plain", "json", "xml", "table"] {
                let mut command = serde_json::json!({ "prefix": prefix, "format": format });
                for arg in sig.args() {
                    command[arg.name] = value.clone();
                }
                let json = command.to_string();
                if local {
                    alone.ask(&json);
                } else if !matches!(prefix.as_str(), "tell") {
                    alone.send(&json, &Bytes::from_static(b"\xff[client.x]\nkey = 1\n"));
                    alone.acks.clear();
                }
            }
        }
    }
    assert_eq!(alone.command(r#"{"prefix": "fsid"}"#, &Bytes::new()).r, 0);
}
