//! What peers with a key may say to a leading monitor that has a state and a log: messages of
//! every kind, well formed and then changed, by clients, OSDs, metadata servers and managers, and
//! commands of the table with any arguments.
//!
//! Nothing of it may panic. Afterwards the state can be written and read again, the log makes the
//! same state of the first one, every map reads, and an honest administrator is answered.

use std::collections::BTreeMap;

use messages::fuzz::Choices;
use types::{EVersion, PgId, PoolId, SnapId};

use super::*;

/// Things that one input does.
const STEPS_MAX: usize = 40;

/// Numbers that this cluster knows.
const KNOWN: [u64; 6] = [4, 5, 6, 8, 4_001, 6_801];

/// Words that arguments of commands are made of.
const WORDS: &[&str] = &[
    "p",
    "q",
    "tier",
    "default",
    "osd.0",
    "osd.1",
    "osd.7",
    "0",
    "1",
    "2",
    "3",
    "-1",
    "127",
    "4294967295",
    "-2147483648",
    "9223372036854775807",
    "0.5",
    "1e308",
    "nan",
    "*",
    "all",
    "any",
    "",
    " ",
    "host",
    "here",
    "rack",
    "root=default",
    "host=here",
    "1.0",
    "1.7fffffff",
    "9.0",
    "replicated_rule",
    "replicated",
    "erasure",
    "k=2",
    "m=1",
    "k=255",
    "plugin=isa",
    "ssd",
    "client.admin",
    "client.x",
    "mon.",
    "mon.a",
    "osd",
    "mon",
    "allow *",
    "allow rwx",
    "profile osd",
    "global",
    "osd_max_backfills",
    "mon_allow_pool_delete",
    "size",
    "min_size",
    "pg_num",
    "pg_num_actual",
    "pgp_num",
    "crush_rule",
    "true",
    "false",
    "yes",
    "127.0.0.1:0/5",
    "10.0.0.0/8",
    "v2:127.0.0.1:6801/5",
    "a",
    "b",
    "cephfs",
    "x0",
    "9999-99-99",
    "7f7f7f7f-7f7f-7f7f-7f7f-7f7f7f7f7f7f",
    "squid",
    "tentacle",
    "noout",
    "read_balance",
    "upmap",
    "snap1",
    "ü\u{0}\u{1b}[0m",
    "--yes-i-really-mean-it",
];

fn word(c: &mut Choices<'_>) -> String {
    match c.below(12) {
        0 => c.edge(&KNOWN).to_string(),
        1 => (c.edge(&KNOWN) as i64).to_string(),
        2 => format!("{}{}", c.of(WORDS), c.of(WORDS)),
        3 => c.of(WORDS).repeat(1 + c.below(300) as usize),
        _ => (*c.of(WORDS)).to_owned(),
    }
}

fn argument(c: &mut Choices<'_>, arg: &cli::Arg) -> serde_json::Value {
    let one = |c: &mut Choices<'_>| match &arg.kind {
        cli::ArgKind::Choices(values) if !c.once_in(8) => (*c.of(values)).into(),
        cli::ArgKind::Int if !c.once_in(6) => (c.edge(&KNOWN) as i64).into(),
        cli::ArgKind::Float if !c.once_in(6) => {
            serde_json::json!(*c.of(&[0.0, -1.0, 0.5, 1.0, 1.5, 1e300, 3.0]))
        }
        cli::ArgKind::Bool if !c.once_in(6) => true.into(),
        cli::ArgKind::Named("Poolname") if !c.once_in(4) => (*c.of(&["p", "q", "tier"])).into(),
        cli::ArgKind::Named("OsdName") if !c.once_in(4) => (*c.of(&["0", "osd.1", "2"])).into(),
        cli::ArgKind::Named("Pgid") if !c.once_in(4) => (*c.of(&["1.0", "1.1", "2.0"])).into(),
        _ => word(c).into(),
    };
    if arg.repeats {
        let n = c.below(5);
        return (0..n).map(|_| one(c)).collect::<Vec<_>>().into();
    }
    one(c)
}

/// A command of the table with any arguments.
pub fn command(c: &mut Choices<'_>) -> String {
    let commands = cli::commands();
    let command = &commands[c.below(commands.len() as u64) as usize];
    let mut json = serde_json::Map::new();
    json.insert("prefix".into(), command.prefix.clone().into());
    for arg in command.sig.args() {
        if arg.required && !c.once_in(12) || c.once_in(3) {
            json.insert(arg.name.into(), argument(c, arg));
        }
    }
    if c.once_in(4) {
        json.insert("format".into(), (*c.of(&["json", "json-pretty", "xml", "plain", "x"])).into());
    }
    serde_json::Value::from(json).to_string()
}

fn input(c: &mut Choices<'_>, a: &Alone) -> Bytes {
    match c.below(6) {
        0 => a.map().crush.map().to_bytes(),
        1 => c.changed(&a.map().crush.map().to_bytes(), &KNOWN),
        2 => "[client.y]\n\tkey = AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA==\n".into(),
        3 => c.changed(&Bytes::from_static(b"[osd.0]\n\tcaps mon = \"allow *\"\n"), &[]),
        4 => word(c).into(),
        _ => Bytes::new(),
    }
}

/// The sender's own number, mostly.
fn own_id(c: &mut Choices<'_>, me: Option<i32>) -> OsdId {
    me.filter(|_| !c.once_in(6)).map_or_else(|| osd_id(c), OsdId)
}

fn osd_id(c: &mut Choices<'_>) -> OsdId {
    OsdId(*c.of(&[0, 1, 2, 3, 7, -1, i32::MAX, i32::MIN, 9_999]))
}

fn epoch(c: &mut Choices<'_>, a: &Alone) -> Epoch {
    Epoch(c.edge(&[u64::from(a.map().epoch.0), 1]) as u32)
}

fn pg(c: &mut Choices<'_>) -> PgId {
    PgId { pool: PoolId(*c.of(&[1, 2, 3, 0, -1, i64::MAX])), ps: c.edge(&[]) as u32 }
}

/// A message of some kind, as its sender would make it or not.
/// `of`: mostly what such a sender says.
fn message(c: &mut Choices<'_>, a: &Alone, of: Option<(&str, &str, bool)>) -> Envelope {
    let fsid = a.mon.state().fsid;
    let all = Features::ALL;
    let paxos = Paxos::default();
    let kinds: &[u64] = match of {
        Some((_, _, true)) => &[1, 1, 2, 26, 26],
        Some((who, ..)) if who.starts_with("osd") => &[3, 3, 4, 5, 6, 7, 8, 8, 9, 9, 9, 10, 11, 18],
        Some((who, ..)) if who.starts_with("mds") => &[20, 20, 20, 21, 22, 11],
        Some((who, ..)) if who.starts_with("mgr") => &[23, 23, 24, 25, 11],
        Some(_) => &[0, 0, 0, 0, 2, 11, 11, 12, 13, 14, 14, 15, 16, 17, 18, 19],
        None => &[],
    };
    let kind = if kinds.is_empty() { c.below(27) } else { *c.of(kinds) };
    let me = of.and_then(|(who, ..)| who.strip_prefix("osd.")?.parse().ok());
    match kind {
        0 => MonCommand {
            fsid,
            cmd: vec![command(c).into()],
            input: input(c, a),
            ..MonCommand::default()
        }
        .envelope(all),
        1 => MgrCommand { fsid, cmd: vec![command(c).into()], input: input(c, a) }.envelope(all),
        2 => Command { fsid, cmd: vec![command(c).into()], input: input(c, a) }.envelope(all),
        3 => {
            let osd = own_id(c, me);
            let port = 6800 + c.below(20) as u16;
            let nonce = c.below(9) as u32;
            let side = |c: &mut Choices<'_>, n| {
                if c.once_in(8) { AddrVec::default() } else { addr(port + n, nonce) }
            };
            let location: BTreeMap<String, String> =
                (0..c.below(3)).map(|_| (word(c), word(c))).collect();
            OsdBoot {
                osd,
                uuid: Uuid::from_random([(osd.0 as u8).wrapping_add(1); 16]),
                epoch: epoch(c, a),
                boot_epoch: epoch(c, a),
                client: side(c, 0),
                cluster: side(c, 1),
                hb_front: side(c, 2),
                hb_back: side(c, 3),
                metadata: [("hostname".into(), word(c))].into(),
                features: if c.once_in(4) { c.edge(&[]) } else { Features::REEF_WORD.0 },
                device_bytes: c.edge(&[1 << 40]),
                device_class: word(c),
                location,
            }
            .envelope(all)
        }
        4 => OsdAlive { osd: own_id(c, me), epoch: epoch(c, a), want_up_thru: epoch(c, a) }
            .envelope(all),
        5 => {
            let target = osd_id(c);
            let known = a.map().osd_addrs(target).cloned();
            OsdFailure {
                reporter: own_id(c, me),
                target,
                target_addrs: known.unwrap_or_default(),
                failed_for_ms: c.edge(&[]),
                alive: c.once_in(2),
                immediate: c.once_in(2),
                epoch: epoch(c, a),
            }
            .envelope(all)
        }
        6 => {
            OsdBeacon { osd: own_id(c, me), epoch: epoch(c, a), min_last_epoch_clean: epoch(c, a) }
                .envelope(all)
        }
        7 => OsdMarkMeDown { osd: own_id(c, me), epoch: epoch(c, a) }.envelope(all),
        8 => {
            let osd = own_id(c, me);
            let epoch = epoch(c, a);
            let pgs = (0..c.below(6)).map(|_| {
                let n = *c.of(&[0, 1, 2, 3, 40, 300]);
                (pg(c), (0..n).map(|_| osd_id(c)).collect())
            });
            PgTemp { osd, epoch, pgs: pgs.collect() }.envelope(all)
        }
        9 => {
            let stat = maps::PgStat {
                acting: vec![osd_id(c), osd_id(c)],
                up: vec![osd_id(c)],
                reported_epoch: epoch(c, a),
                ..maps::PgStat::default()
            };
            let stat = c.changed(&stat.to_bytes(), &KNOWN);
            let whole = c.changed(&maps::OsdStat::default().to_bytes(), &KNOWN);
            let pgs = (0..c.below(5)).map(|_| (pg(c), stat.clone())).collect();
            PgStats {
                osd: own_id(c, me),
                epoch: epoch(c, a),
                osd_stat: if c.once_in(2) { whole } else { maps::OsdStat::default().to_bytes() },
                pgs,
                removed: vec![pg(c)],
                slow_ops: c.edge(&[]) as u32,
                slow_ms: c.edge(&[]),
                compressed: [(PoolId(1), (c.edge(&[]), c.edge(&[])))].into(),
            }
            .envelope(all)
        }
        10 => {
            let version = |c: &mut Choices<'_>| EVersion {
                epoch: Epoch(c.edge(&[]) as u32),
                version: c.edge(&[]),
            };
            PgReadyToMerge {
                osd: own_id(c, me),
                epoch: epoch(c, a),
                source: pg(c),
                source_version: version(c),
                target_version: version(c),
                last_epoch_started: epoch(c, a),
                last_epoch_clean: epoch(c, a),
                ready: c.once_in(2),
            }
            .envelope(all)
        }
        11 => {
            let topics = [
                "osdmap",
                "monmap",
                "config",
                "mgrmap",
                "mgrdigest",
                "fsmap",
                "fsmap.user",
                "mdsmap",
                "mdsmap.cephfs",
                "servicemap",
                "log-info",
                "log-",
                "kv:",
                "kv:config/",
                "cls",
                "osd_pg_creates",
                "x",
            ];
            let what = (0..c.below(70)).map(|n| {
                let known = c.edge(&[u64::from(a.map().epoch.0)]);
                let name = if n < 17 { (*c.of(&topics)).to_owned() } else { format!("kv:{n}") };
                (name, Subscription { start: known, flags: c.byte() })
            });
            MonSubscribe { what: what.collect(), hostname: word(c) }.envelope(all)
        }
        12 => MonGetVersion { handle: c.edge(&[]), what: word(c) }.envelope(all),
        13 => MonGetOsdMap {
            paxos,
            full_first: epoch(c, a),
            full_last: epoch(c, a),
            inc_first: epoch(c, a),
            inc_last: epoch(c, a),
        }
        .envelope(all),
        14 => PoolOp {
            fsid,
            pool: c.edge(&[1, 2]) as u32,
            op: *c.of(&[1, 2, 3, 0x11, 0x12, 0x21, 0x22, 0x99]),
            auid: c.edge(&[]),
            snapid: SnapId(c.edge(&[1, 2])),
            name: word(c),
            crush_rule: c.edge(&[]) as i16,
            ..PoolOp::default()
        }
        .envelope(all),
        15 => {
            let data_pool = c.once_in(2).then(|| c.edge(&[1]) as i64);
            Statfs { fsid, data_pool, ..Statfs::default() }.envelope(all)
        }
        16 => GetPoolStats { fsid, pools: vec![word(c), "p".into()], ..GetPoolStats::default() }
            .envelope(all),
        17 => GetConfig { name: name("osd.0"), host: word(c), device_class: word(c) }.envelope(all),
        18 => {
            let entry = LogEntry { msg: word(c), channel: word(c), ..LogEntry::default() };
            let entries = vec![entry; 1 + c.below(20) as usize];
            LogMsg { fsid, entries, ..LogMsg::default() }.envelope(all)
        }
        19 => {
            let payload = (0..c.below(60)).map(|_| c.byte()).collect::<Vec<_>>().into();
            let protocol = c.below(4) as u32;
            Auth { protocol, payload, ..Auth::default() }.envelope(all)
        }
        20 => {
            let state = maps::MdsState(c.edge(&[9, 12, 13]) as i32);
            messages::fs::MdsBeacon {
                fsid,
                gid: c.edge(&[4_006, 4_007]),
                state: if c.once_in(2) { maps::MdsState::BOOT } else { state },
                seq: c.edge(&[]),
                name: (*c.of(&["a", "b", "", "x.y"])).to_owned(),
                compat: maps::fs::compat_supported(),
                fs: (*c.of(&["", "cephfs", "none"])).to_owned(),
                ..messages::fs::MdsBeacon::default()
            }
            .envelope(all)
        }
        21 => {
            let targets = (0..c.below(5)).map(|_| c.edge(&[]) as i32).collect();
            let gid = c.edge(&[4_006]);
            messages::fs::MdsLoadTargets { gid, targets, ..Default::default() }.envelope(all)
        }
        22 => {
            let snaps = (0..c.below(4)).map(|_| {
                let n = c.below(4);
                (c.edge(&[1]) as i32, (0..n).map(|_| SnapId(c.edge(&[1, 2]))).collect())
            });
            RemoveSnaps { paxos, snaps: snaps.collect() }.envelope(all)
        }
        23 => MgrBeacon {
            addrs: addr(7000 + c.below(9) as u16, c.below(5) as u32),
            gid: c.edge(&[4_007]),
            available: c.once_in(2),
            name: (*c.of(&["x", "y", ""])).to_owned(),
            fsid,
            services: [(word(c), word(c))].into(),
            features: c.edge(&[]),
            clients: vec![(word(c), addr(7100, 1))],
            ..MgrBeacon::default()
        }
        .envelope(all),
        24 => ManagerReport { gid: c.edge(&[4_007]), ..ManagerReport::default() }.envelope(all),
        25 => MgrCommandReply { r: c.edge(&[]) as i32, rs: word(c), output: input(c, a) }
            .envelope(all),
        _ => {
            let daemon = word(c);
            let said = [(word(c), word(c))].into();
            let registered = Some(([(word(c), word(c))].into(), said));
            match c.below(3) {
                0 => MgrOpen { daemon, service: word(c), registered }.envelope(all),
                1 => {
                    let status = Some([(word(c), word(c))].into());
                    MgrReport { daemon, service: word(c), status }.envelope(all)
                }
                _ => MgrClose { daemon, service: word(c) }.envelope(all),
            }
        }
    }
}

/// Who speaks: name and caps of the ticket, and by which door.
const PEERS: &[(&str, &str, bool)] = &[
    ("client.x", "allow rw", false),
    ("client.y", "allow *", false),
    ("client.z", "", false),
    ("mds.a", "allow profile mds", false),
    ("mds.b", "allow profile mds", false),
    ("mgr.x", "allow profile mgr", false),
    ("mgr.y", "allow profile mgr", false),
    ("osd.0", "allow profile osd", false),
    ("osd.1", "allow profile osd", false),
    ("osd.2", "allow profile osd", false),
    ("osd.7", "allow profile osd", false),
    ("client.m", "allow *", true),
    ("osd.1", "allow profile osd", true),
];

fn connect(a: &mut Alone, (who, caps, at_mgr): (&str, &str, bool)) -> ConnId {
    match at_mgr {
        true => a.connect_at_mgr(who, caps),
        false => a.connect_as(who, caps, Features::TENTACLE_WORD, addr(0, 5)),
    }
}

/// What an input did.
#[derive(Debug, Default)]
pub struct Seen {
    /// Messages that were told.
    pub messages: usize,
    /// Connections that were closed for what they said.
    pub closed: usize,
    /// Entries of the log that came of it.
    pub entries: usize,
    /// Commands that were done.
    pub done: usize,
    /// Commands that were refused.
    pub refused: usize,
}

/// Takes an input as what peers do; see the module.
///
/// # Panics
/// When something of it breaks the monitor.
pub fn run(input_bytes: &[u8]) -> Seen {
    let mut c = Choices::new(input_bytes);
    let (mut a, _) = Alone::with_osds();
    let admin = a.admin();
    for cmd in [
        r#"{"prefix":"osd pool create","pool":"p","pg_num":4}"#,
        r#"{"prefix":"osd pool create","pool":"q","pg_num":4}"#,
    ] {
        assert_eq!(a.run(admin, cmd).0, 0);
    }
    let mut seen = Seen::default();
    let before = a.log.len();
    let mut conns: Vec<ConnId> = PEERS.iter().map(|p| connect(&mut a, *p)).collect();
    for _ in 0..STEPS_MAX {
        if c.is_over() {
            break;
        }
        let who = c.below(PEERS.len() as u64) as usize;
        let mut conn = conns[who];
        let env = match c.below(12) {
            0 => {
                a.tick(100 * (1 + c.below(60)));
                continue;
            }
            1..=3 => {
                conn = admin;
                let (cmd, input) = (command(&mut c), input(&mut c, &a));
                let (fsid, cmd) = (a.mon.state().fsid, vec![cmd.into()]);
                MonCommand { fsid, cmd, input, ..MonCommand::default() }.envelope(Features::ALL)
            }
            4..=8 => message(&mut c, &a, Some(PEERS[who])),
            9 => message(&mut c, &a, None),
            _ => {
                let env = message(&mut c, &a, Some(PEERS[who]));
                c.changed_message(&env, &KNOWN)
            }
        };
        a.tid += 1;
        a.mon.on_message(a.now, conn, &env.with_tid(a.tid));
        seen.messages += 1;
        if !c.once_in(3) {
            a.settle();
        }
        for (i, conn) in conns.iter_mut().enumerate() {
            if a.closed.contains(conn) {
                seen.closed += 1;
                *conn = connect(&mut a, PEERS[i]);
            }
        }
    }
    a.settle();
    a.tick(3_000);
    seen.entries = a.log.len() - before;
    for env in a.heard(admin).iter().filter(|e| e.kind == MonCommandAck::KIND) {
        let r = MonCommandAck::decode(env).expect("an answer").r;
        *(if r == 0 { &mut seen.done } else { &mut seen.refused }) += 1;
    }
    holds(&mut a);
    seen
}

/// What must hold whatever was said.
fn holds(a: &mut Alone) {
    let state = a.mon.state().to_bytes();
    let again = mon::ClusterState::from_shared(&state).expect("a state is read again");
    assert!(again.to_bytes() == state, "a state read again is the same");
    // What another monitor makes of the log.
    let replay = Alone::following_log(a.first.clone(), &a.log);
    assert!(replay == state, "the log makes another state");
    let full = a.map().to_bytes_for(Features::ALL);
    let map = OsdMap::from_shared(&full).expect("the map is read");
    for pool in map.pools.keys() {
        let _ = map.pg_to_up_acting(PgId { pool: *pool, ps: 0 });
    }
    stays_within_clients_limits(&map);
    let admin = a.admin();
    for prefix in ["status", "osd dump", "health", "osd tree", "df", "pg dump", "auth ls"] {
        let cmd = serde_json::json!({"prefix": prefix, "format": "json"}).to_string();
        let (r, rs, _) = a.run(admin, &cmd);
        assert_eq!(r, 0, "{prefix}: {rs}");
    }
}

/// What kernels and libraries bear: 32 OSDs of one PG, names of 255 bytes, types that have names.
fn stays_within_clients_limits(map: &OsdMap) {
    let lists = map.pg_temp.values().map(Vec::len);
    let lists = lists.chain(map.pg_upmap.values().map(Vec::len));
    let lists = lists.chain(map.pg_upmap_items.values().map(Vec::len));
    let sizes = map.pools.values().map(|p| usize::from(p.size));
    assert!(lists.chain(sizes).all(|n| n <= 32), "more OSDs of a PG than clients take");
    let crush = map.crush.map();
    for bucket in crush.buckets() {
        assert!(crush.types().get(i32::from(bucket.kind())).is_some(), "a type without a name");
    }
    let names = [crush.types(), crush.names(), crush.rule_names(), crush.class_names()];
    let names = names.into_iter().flat_map(|all| all.iter().map(|(_, name)| name));
    let pools = (map.pools.keys()).filter_map(|p| map.pool_name(*p));
    let long = names.chain(pools).find(|name| name.len() > 255);
    assert_eq!(long, None, "a name longer than clients take");
}
