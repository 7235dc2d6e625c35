//! Ranks and servers: beacons, silence, damage, standbys.

use std::net::SocketAddr;

use maps::{CompatSet, FsMap, MdsState, mds_flag};
use messages::Paxos;
use messages::fs::MdsBeacon;
use types::{AddrVec, EntityAddr, Epoch, PoolId, UTime};

use super::beacon::{self, Answer, COMPLAINT_BYTES_MAX, COMPLAINTS_MAX};
use super::plan::{self, Terms};
use super::{Edit, Watch};

const GRACE_MS: u64 = 15_000;

/// Monitors without their log: what is committed is the map at once.
struct Fs {
    map: FsMap,
    watch: Watch,
    now_ms: u64,
    shaken: bool,
    /// Addresses that were shut out, and the OSD map that did.
    fenced: Vec<AddrVec>,
    osd_epoch: u32,
}

fn addrs(gid: u64) -> AddrVec {
    EntityAddr::msgr2(SocketAddr::from(([127, 0, 0, 1], 7000)), gid as u32).into()
}

impl Fs {
    fn new() -> Self {
        let now = UTime { sec: 1, nsec: 0 };
        Self {
            map: FsMap::new(Epoch(1), now),
            watch: Watch::default(),
            now_ms: 1_000_000,
            shaken: false,
            fenced: Vec::new(),
            osd_epoch: 10,
        }
    }

    fn edit(&self) -> Edit {
        Edit::new(&self.map, UTime { sec: (self.now_ms / 1000) as u32, nsec: 0 })
    }

    fn commit(&mut self, edit: Edit) {
        if !edit.is_dirty() {
            return;
        }
        let shut = edit.fence().to_vec();
        if !shut.is_empty() {
            self.osd_epoch += 1;
        }
        self.fenced.extend(shut);
        for gid in edit.gone.clone() {
            self.watch.forget(gid, "", self.now_ms);
        }
        self.map = edit.finish(Epoch(self.osd_epoch));
    }

    fn round(&mut self) {
        let terms = Terms {
            grace_ms: GRACE_MS,
            interval_ms: 4000,
            mon_down_grace_ms: 60_000,
            quorum_is_shaken: self.shaken,
            now_ms: self.now_ms,
        };
        let (mut edit, before) = (self.edit(), self.map.clone());
        plan::round(&mut edit, &mut self.watch, &terms, &before);
        self.commit(edit);
    }

    /// Time passes, with a round each second; these servers say that they are well.
    fn pass(&mut self, seconds: u64, heard: &[u64]) {
        for _ in 0..seconds {
            self.now_ms += 1000;
            for gid in heard {
                if let Some(info) = self.map.server(*gid) {
                    let state = info.state;
                    self.beacon(*gid, state);
                }
            }
            self.round();
        }
    }

    fn beacon_at(&mut self, gid: u64, state: MdsState, epoch: u32) -> Answer {
        let msg = self.message(gid, state);
        self.say(&MdsBeacon { paxos: Paxos { version: u64::from(epoch) }, ..msg })
    }

    fn message(&self, gid: u64, state: MdsState) -> MdsBeacon {
        MdsBeacon {
            gid,
            state,
            seq: self.map.server(gid).map_or(1, |i| i.state_seq + 1),
            name: format!("m{gid}"),
            compat: maps::fs::compat_supported(),
            ..MdsBeacon::default()
        }
    }

    fn say(&mut self, msg: &MdsBeacon) -> Answer {
        let mut edit = self.edit();
        let at = (true, self.now_ms);
        let said = beacon::take(&mut edit, &mut self.watch, msg, &addrs(msg.gid), at);
        self.commit(edit);
        said
    }

    /// A beacon of a server that knows the newest map.
    fn beacon(&mut self, gid: u64, state: MdsState) -> Answer {
        let epoch = beacon::effective_epoch(&self.map, gid).unwrap_or(0);
        self.beacon_at(gid, state, epoch)
    }

    fn boot(&mut self, gid: u64) {
        assert_eq!(self.beacon_at(gid, MdsState::BOOT, 0), Answer::Taken);
    }

    fn make(&mut self, name: &str, pool: i64) -> i32 {
        let mut edit = self.edit();
        let fscid = edit.create(name, (PoolId(pool), PoolId(pool + 1)), None, false);
        self.commit(edit);
        fscid
    }

    fn state(&self, gid: u64) -> Option<MdsState> {
        self.map.server(gid).map(|i| i.state)
    }

    fn set(&mut self, fscid: i32, set: impl FnOnce(&mut maps::MdsMap)) {
        let mut edit = self.edit();
        set(edit.mds_map(fscid).unwrap());
        self.commit(edit);
    }

    /// A file system with server 1 active and servers 2 up to `last` waiting.
    fn served(last: u64) -> (Self, i32) {
        let mut fs = Self::new();
        let fscid = fs.make("a", 1);
        for gid in 1..=last {
            fs.boot(gid);
            if gid == 1 {
                fs.round();
            }
        }
        assert_eq!(fs.state(1), Some(MdsState::CREATING));
        fs.beacon(1, MdsState::ACTIVE);
        (fs, fscid)
    }
}

#[test]
fn a_rank_is_made() {
    let (mut fs, fscid) = Fs::served(2);
    assert_eq!((fs.state(1), fs.state(2)), (Some(MdsState::ACTIVE), Some(MdsState::STANDBY)));
    let map = &fs.map.by_id(fscid).unwrap().mds_map;
    assert_eq!((map.qdb_cluster_leader, map.ev), (1, 19));
    assert_eq!(map.compat, maps::fs::compat_supported(), "that of its server");
    assert_eq!(fs.map.legacy_client_fscid, fscid);
    fs.pass(2, &[1, 2]);
    assert_eq!(fs.map.by_id(fscid).unwrap().mds_map.standby_count_wanted, 1);
    assert!(fs.fenced.is_empty());
}

/// Whoever is silent for the grace loses its rank, is shut out in the OSD map that the successor
/// waits for, and starts anew when it comes back.
#[test]
fn silence_costs_the_rank() {
    let (mut fs, fscid) = Fs::served(2);
    fs.pass(14, &[2]);
    assert_eq!(fs.state(1), Some(MdsState::ACTIVE), "within the grace");
    fs.pass(3, &[2]);
    assert_eq!((fs.state(1), fs.state(2)), (None, Some(MdsState::REPLAY)));
    assert_eq!(fs.fenced, [addrs(1)]);
    let map = &fs.map.by_id(fscid).unwrap().mds_map;
    assert_eq!(map.last_failure_osd_epoch, Epoch(fs.osd_epoch), "the map that shuts it out");
    assert_eq!(fs.beacon_at(1, MdsState::ACTIVE, 5), Answer::NullMap);
    for state in [MdsState::RECONNECT, MdsState::REJOIN, MdsState::ACTIVE] {
        assert_eq!(fs.beacon(2, state), Answer::Taken);
    }
    assert!(!fs.map.by_id(fscid).unwrap().mds_map.is_degraded());
}

/// Whoever is heard is not laggy, and keeps its rank for ever.
#[test]
fn who_is_heard_stays() {
    let (mut fs, _) = Fs::served(2);
    fs.pass(200, &[1, 2]);
    assert_eq!(fs.state(1), Some(MdsState::ACTIVE));
    assert!(fs.map.servers().all(|info| !info.is_laggy()));
}

/// Nobody is replaced while no beacon at all comes, after a pause of the monitor itself, or
/// before the longer grace where a monitor is missing.
#[test]
fn the_monitors_own_silence_is_no_servers() {
    let (mut fs, _) = Fs::served(2);
    fs.pass(40, &[]);
    assert!(fs.map.server(1).unwrap().is_laggy());
    assert_eq!(fs.state(1), Some(MdsState::ACTIVE), "nobody was heard");
    fs.beacon(1, MdsState::ACTIVE);
    assert!(!fs.map.server(1).unwrap().is_laggy());
    let (mut fs, _) = Fs::served(2);
    fs.pass(1, &[1, 2]);
    fs.now_ms += 60_000;
    fs.pass(2, &[2]);
    assert_eq!(fs.state(1), Some(MdsState::ACTIVE), "this monitor was late");
    let (mut fs, _) = Fs::served(2);
    fs.shaken = true;
    fs.pass(50, &[2]);
    assert_eq!(fs.state(1), Some(MdsState::ACTIVE), "its beacons may be elsewhere");
    fs.pass(15, &[2]);
    assert_eq!(fs.state(1), None);
}

/// A new leader has heard of nobody: everybody has a whole grace.
#[test]
fn a_new_leader_blames_nobody() {
    let (mut fs, _) = Fs::served(2);
    fs.pass(10, &[2]);
    fs.watch = Watch::default();
    fs.pass(14, &[2]);
    assert_eq!(fs.state(1), Some(MdsState::ACTIVE));
}

#[test]
fn wishes_are_judged() {
    let (mut fs, _) = Fs::served(3);
    let epoch = beacon::effective_epoch(&fs.map, 1).unwrap();
    assert_eq!(fs.beacon_at(1, MdsState::STOPPING, epoch - 1), Answer::Ack(epoch), "old map");
    assert_eq!(fs.beacon_at(9, MdsState::ACTIVE, 1), Answer::NullMap, "nobody knows it");
    assert_eq!(fs.beacon(3, MdsState::ACTIVE), Answer::NullMap, "a standby has no wishes");
    assert_eq!(fs.state(3), None);
    let again = fs.beacon_at(2, MdsState::BOOT, fs.map.standby_epochs[&2].0);
    assert_eq!(again, Answer::Silence, "it came before");
    let msg = MdsBeacon {
        paxos: Paxos { version: u64::from(beacon::effective_epoch(&fs.map, 2).unwrap()) },
        gid: 2,
        state: MdsState::STANDBY,
        seq: 9,
        name: "m2".into(),
        compat: CompatSet::default(),
        ..MdsBeacon::default()
    };
    assert_eq!(fs.say(&msg), Answer::NullMap, "its features changed");
    assert_eq!(fs.state(2), None);
}

/// One of the same name that starts replaces the one before, which is shut out if it had a rank.
#[test]
fn names_are_unique() {
    let (mut fs, _) = Fs::served(1);
    let msg = MdsBeacon {
        gid: 7,
        state: MdsState::BOOT,
        seq: 1,
        name: "m1".into(),
        compat: maps::fs::compat_supported(),
        ..MdsBeacon::default()
    };
    assert_eq!(fs.say(&msg), Answer::Taken);
    assert_eq!((fs.state(1), fs.state(7)), (None, Some(MdsState::STANDBY)));
    assert_eq!(fs.fenced, [addrs(1)]);
    fs.round();
    assert_eq!(fs.state(7), Some(MdsState::REPLAY), "it recovers what it had");
}

/// A rank that was being made is forgotten with its server; one that was being started is stopped.
#[test]
fn unfinished_ranks_are_as_before() {
    let mut fs = Fs::new();
    let fscid = fs.make("a", 1);
    fs.boot(1);
    fs.round();
    assert_eq!(fs.beacon(1, MdsState::DNE), Answer::Ack(fs.map.epoch.0));
    assert!(fs.map.by_id(fscid).unwrap().mds_map.r#in.is_empty());
    assert_eq!(fs.fenced, [addrs(1)], "it may have written");
    fs.set(fscid, |map| map.stopped.extend([0]));
    fs.boot(2);
    fs.round();
    assert_eq!(fs.state(2), Some(MdsState::STARTING));
    fs.beacon(2, MdsState::DNE);
    let map = &fs.map.by_id(fscid).unwrap().mds_map;
    assert!(map.stopped.contains(&0) && map.r#in.is_empty());
}

#[test]
fn damage_waits_for_repair() {
    let (mut fs, fscid) = Fs::served(2);
    fs.beacon(1, MdsState::DAMAGED);
    fs.pass(3, &[2]);
    assert_eq!((fs.state(1), fs.state(2)), (None, Some(MdsState::STANDBY)));
    assert_eq!(fs.fenced, [addrs(1)]);
    let mut edit = fs.edit();
    assert!(edit.undamaged(fscid, 0) && !edit.undamaged(fscid, 0));
    fs.commit(edit);
    fs.round();
    assert_eq!(fs.state(2), Some(MdsState::REPLAY));
}

/// Ranks come with `max_mds` one by one and go from the last; what follows a rank goes with it.
#[test]
fn ranks_come_and_go() {
    let (mut fs, fscid) = Fs::served(4);
    fs.set(fscid, |map| {
        map.max_mds = 2;
        map.flags |= mds_flag::ALLOW_STANDBY_REPLAY;
    });
    fs.round();
    assert_eq!(fs.state(2), Some(MdsState::CREATING));
    fs.round();
    assert_eq!(fs.state(3), Some(MdsState::STANDBY), "nobody follows while a rank is made");
    fs.beacon(2, MdsState::ACTIVE);
    fs.round();
    let followers = [fs.state(3), fs.state(4)];
    assert_eq!(followers, [Some(MdsState::STANDBY_REPLAY); 2]);
    fs.set(fscid, |map| map.max_mds = 1);
    fs.round();
    assert_eq!((fs.state(1), fs.state(2)), (Some(MdsState::ACTIVE), Some(MdsState::STOPPING)));
    assert_eq!(fs.beacon(2, MdsState::STOPPED), Answer::NullMap);
    let map = &fs.map.by_id(fscid).unwrap().mds_map;
    assert!(map.stopped.contains(&1) && map.r#in.len() == 1 && map.mds_info.len() == 2);
    assert!(fs.fenced.is_empty(), "who goes in order may write until it is gone");
    // The follower is first when its rank fails.
    fs.boot(9);
    let follower = fs.map.by_id(fscid).unwrap().mds_map.follower_of(0).unwrap().gid;
    let mut edit = fs.edit();
    edit.fail(1);
    fs.commit(edit);
    fs.round();
    assert_eq!(fs.state(follower), Some(MdsState::REPLAY));
}

/// A standby that prefers the file system takes the rank of one that does not; a frozen one stays.
#[test]
fn affinity() {
    let (mut fs, fscid) = Fs::served(1);
    fs.boot(2);
    let prefer = |fs: &mut Fs| {
        let mut edit = fs.edit();
        edit.server(2).unwrap().join_fscid = fscid;
        fs.commit(edit);
        fs.round();
    };
    let mut frozen = fs.edit();
    frozen.server(1).unwrap().flags = maps::MdsInfo::FROZEN;
    fs.commit(frozen);
    prefer(&mut fs);
    assert_eq!(fs.state(1), Some(MdsState::ACTIVE));
    let mut thawed = fs.edit();
    thawed.server(1).unwrap().flags = 0;
    fs.commit(thawed);
    fs.round();
    assert_eq!((fs.state(1), fs.state(2)), (None, Some(MdsState::REPLAY)));
}

/// A file system that may not be joined keeps its failed ranks; another has its own.
#[test]
fn failed_on_purpose() {
    let (mut fs, fscid) = Fs::served(3);
    let other = fs.make("b", 5);
    fs.round();
    assert_eq!(fs.map.of_server(2).map(|f| f.fscid), Some(other));
    fs.set(fscid, |map| map.flags |= mds_flag::NOT_JOINABLE);
    let mut edit = fs.edit();
    edit.fail(1);
    fs.commit(edit);
    fs.pass(3, &[2, 3]);
    assert_eq!(fs.state(3), Some(MdsState::STANDBY));
    assert!(fs.map.by_id(fscid).unwrap().mds_map.failed.contains(&0));
    let epoch = fs.map.by_id(other).unwrap().mds_map.last_failure_osd_epoch;
    assert_eq!(epoch, Epoch(0), "nothing failed there");
}

/// Who has caps for one file system knows of no other, nor of who serves it.
#[test]
fn caps_hide_file_systems() {
    let (mut fs, fscid) = Fs::served(2);
    let other = fs.make("b", 5);
    fs.round();
    let peer = |caps: &str| crate::SessionInfo {
        conn: env::ConnId(1),
        name: "client.x".parse().unwrap(),
        entity: types::EntityId::new(types::EntityKind::CLIENT, 5),
        global_id: 5,
        addrs: addrs(5),
        features: types::Features::ALL,
        caps: auth::MonCap::parse_lenient(caps),
        mgr_caps: None,
        hostname: String::new(),
    };
    let seen = |caps: &str| {
        let map = super::visible(&fs.map, &peer(caps));
        let ids: Vec<i32> = map.filesystems.iter().map(|fs| fs.fscid).collect();
        (ids, map.servers().count(), map.legacy_client_fscid)
    };
    assert_eq!(seen("allow r"), (vec![fscid, other], 2, fscid));
    assert_eq!(seen("allow *"), (vec![fscid, other], 2, fscid));
    assert_eq!(seen("profile mds"), (vec![fscid, other], 2, fscid));
    assert_eq!(seen("allow r fsname=b"), (vec![other], 1, -1));
    assert_eq!(seen("allow r fsname=c"), (vec![], 0, -1));
    assert!(!super::may(&peer("allow r fsname=b"), "b", auth::Rights::W));
    assert!(super::may(&peer("allow rw fsname=b"), "b", auth::Rights::W));
}

/// A state of the version before, which had nothing of what servers say of themselves, is read; and
/// what they say comes back out of the log and the state.
#[test]
fn states_of_before() {
    use denc::Denc;
    let mut state = crate::Mkfs::default().state();
    let mut bytes = state.to_bytes().to_vec();
    bytes[0] = 3;
    let cut = bytes.len() - 4; // an empty map
    bytes.truncate(cut);
    let len = u32::try_from(cut - 6).unwrap();
    bytes[2..6].copy_from_slice(&len.to_le_bytes());
    let old = crate::ClusterState::from_bytes(&bytes).unwrap();
    assert!(old.mds_metadata.is_empty() && old.fsmap == state.fsmap);
    let metadata = Some([("arch".to_owned(), "x".to_owned())].into());
    let mutation = crate::Mutation::MdsMetadata { gid: 7, metadata };
    let read = crate::Mutation::from_bytes(&mutation.to_bytes()).unwrap();
    state.apply(&read).unwrap();
    let state = crate::ClusterState::from_bytes(&state.to_bytes()).unwrap();
    assert_eq!(state.mds_metadata[&7]["arch"], "x");
}

/// A server that complains without end makes the monitors keep so much and no more.
#[test]
fn complaints_are_bounded() {
    let (mut fs, _) = Fs::served(2);
    let metric = maps::fs::MdsHealthMetric {
        kind: 1,
        message: "\u{e9}".repeat(COMPLAINT_BYTES_MAX),
        metadata: (0..100).map(|n| (format!("word{n}"), "v".repeat(1000))).collect(),
        ..Default::default()
    };
    let said = MdsBeacon {
        health: maps::fs::MdsHealth { metrics: vec![metric; COMPLAINTS_MAX + 1] },
        paxos: Paxos { version: u64::from(beacon::effective_epoch(&fs.map, 2).unwrap()) },
        ..fs.message(2, MdsState::STANDBY)
    };
    fs.say(&said);
    let kept = &fs.watch.health[&2].metrics;
    assert_eq!(kept.len(), COMPLAINTS_MAX);
    let bytes = |m: &maps::fs::MdsHealthMetric| {
        let words: usize = m.metadata.iter().map(|(k, v)| k.len() + v.len()).sum();
        (m.message.len(), words)
    };
    assert!(kept.iter().map(bytes).all(|(text, words)| {
        text == COMPLAINT_BYTES_MAX && (3000..=COMPLAINT_BYTES_MAX).contains(&words)
    }));
}
