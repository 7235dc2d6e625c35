//! Clocks and disks of monitors, as the leader learns of them.

mod alone;

use std::collections::BTreeMap;

use alone::{Alone, addr, mkfs};
use env::ConnId;
use maps::MonInfo;
use mon::quorum::Event;
use mon::vitals::{Disk, Vitals};

/// A leader that two others follow.
fn leader() -> (Alone, ConnId) {
    let mut mkfs = mkfs();
    for (name, port) in [("b", 3301), ("c", 3302)] {
        let info = MonInfo { name: name.into(), addrs: addr(port, 0), ..MonInfo::default() };
        mkfs.monmap.mons.insert(name.into(), info);
    }
    mkfs.monmap.ranks = vec!["a".into(), "b".into(), "c".into()];
    let mut a = Alone::start(mkfs.to_state_bytes(), Vec::new());
    let names = [(0, "a"), (1, "b"), (2, "c")];
    let voters: BTreeMap<u64, String> = names.map(|(id, n)| (id, n.to_owned())).into();
    a.mon.on_quorum(a.now, Event::Members { voters, learners: Default::default() }).unwrap();
    for (node, name) in [(1, "b"), (2, "c")] {
        a.mon.on_peer_up(a.now, node, name);
    }
    a.until_asked();
    let admin = a.admin();
    (a, admin)
}

impl Alone {
    /// Time passes, and the others follow.
    fn followed_for(&mut self, ms: u64) {
        for _ in 0..ms.div_ceil(100) {
            for node in [1, 2] {
                self.mon.on_admitted(node, self.now.mono_ms());
            }
            self.tick(100);
        }
    }

    /// Until the others are asked.
    fn until_asked(&mut self) {
        self.vitals.clear();
        for _ in 0..100 {
            if !self.vitals.is_empty() {
                return;
            }
            self.followed_for(100);
        }
        panic!("nobody is asked");
    }

    /// The others answer what was asked: their clocks are ahead by so many ms, their disks so.
    fn answer(&mut self, ahead_ms: [i64; 2], disk: Disk) {
        for (node, vitals) in std::mem::take(&mut self.vitals) {
            let Vitals::Ask { stamp_ns } = vitals else { panic!("{vitals:?}") };
            let mut later = self.now;
            later.mono_ns += 2_000_000;
            later.wall_ns += 2_000_000;
            let ahead_ns = ahead_ms[node as usize - 1] * 1_000_000;
            let wall_ns = later.wall_ns.saturating_add_signed(ahead_ns);
            self.mon.on_vitals(later, node, Vitals::Answer { stamp_ns, wall_ns, disk });
        }
    }

    fn health(&mut self, admin: ConnId) -> serde_json::Value {
        self.json(admin, r#"{"prefix":"health","detail":"detail","format":"json"}"#)
    }

    fn json(&mut self, admin: ConnId, cmd: &str) -> serde_json::Value {
        let (r, rs, out) = self.run(admin, cmd);
        assert_eq!(r, 0, "{rs}");
        serde_json::from_slice(&out).unwrap()
    }
}

const ROOM: Disk = Disk { total: 100 << 30, available: 80 << 30, data: 1 << 20 };

/// Clocks that are off by more than `mon_clock_drift_allowed` are named with their skew, until they
/// are right again.
#[test]
fn skewed_clocks_are_named() {
    let (mut a, admin) = leader();
    assert_eq!(a.vitals.len(), 2, "each of the others is asked once");
    a.answer([0, 0], ROOM);
    let status = a.json(admin, r#"{"prefix":"time-sync-status","format":"json"}"#);
    assert_eq!(status["time_skew_status"]["b"]["health"], "HEALTH_OK");
    assert_eq!(status["timechecks"]["round_status"], "finished");
    assert!(a.health(admin)["checks"].get("MON_CLOCK_SKEW").is_none());

    a.until_asked();
    let status = a.json(admin, r#"{"prefix":"time-sync-status","format":"json"}"#);
    assert_eq!(status["timechecks"]["round_status"], "on-going");
    a.answer([-500, 30], ROOM);
    let check = a.health(admin)["checks"]["MON_CLOCK_SKEW"].clone();
    assert_eq!(check["severity"], "HEALTH_WARN");
    assert_eq!(check["summary"]["message"], "clock skew detected on mon.b");
    let detail = check["detail"][0]["message"].as_str().unwrap();
    assert!(detail.starts_with("mon.b clock skew 0.49"), "{detail}");
    assert!(detail.contains("s > max 0.05s (latency 0.0"), "{detail}");
    let status = a.json(admin, r#"{"prefix":"time-sync-status","format":"json"}"#);
    let b = &status["time_skew_status"]["b"];
    assert!((b["skew"].as_f64().unwrap() + 0.498).abs() < 0.02, "{b}");
    assert_eq!(b["health"], "HEALTH_WARN");
    assert_eq!(status["time_skew_status"]["c"]["health"], "HEALTH_OK");

    let more =
        r#"{"prefix":"config set","who":"mon","name":"mon_clock_drift_allowed","value":"1"}"#;
    assert_eq!(a.run(admin, more).0, 0);
    a.followed_for(1_100);
    assert!(a.health(admin)["checks"].get("MON_CLOCK_SKEW").is_none());
}

/// Disks that run full are told, the fuller ones as an error; so is much data of a monitor itself.
#[test]
fn full_disks_are_named() {
    let (mut a, admin) = leader();
    a.mon.on_disk(Disk { available: 20 << 30, ..ROOM });
    a.answer([0, 0], ROOM);
    a.until_asked();
    a.answer([0, 0], Disk { available: 4 << 30, data: 16 << 30, ..ROOM });
    let checks = a.health(admin)["checks"].clone();
    let low = &checks["MON_DISK_LOW"];
    assert_eq!(low["summary"]["message"], "mon a is low on available space");
    assert_eq!(low["detail"][0]["message"], "mon.a has 20% avail");
    let crit = &checks["MON_DISK_CRIT"];
    assert_eq!(crit["severity"], "HEALTH_ERR");
    assert_eq!(crit["summary"]["message"], "mons b,c are very low on available space");
    assert_eq!(crit["detail"][1]["message"], "mon.c has 4% avail");
    let big = &checks["MON_DISK_BIG"];
    assert_eq!(big["summary"]["message"], "mons b,c are using a lot of disk space");
    assert_eq!(big["detail"][0]["message"], "mon.b is 16 GiB >= mon_data_size_warn (15 GiB)");
}

/// A follower answers the leader's question.
#[test]
fn a_follower_answers() {
    let mut b = Alone::following(mkfs().to_state_bytes());
    b.mon.on_disk(ROOM);
    b.mon.on_vitals(b.now, 0, Vitals::Ask { stamp_ns: 7 });
    b.poll();
    let wall_ns = b.now.wall_ns;
    let answer = Vitals::Answer { stamp_ns: 7, wall_ns, disk: ROOM };
    assert_eq!(b.vitals, [(0, answer)]);
}
