//! File systems: beacons, what happens to ranks as time passes, and taking changes in.

use conf::Key;
use conf::key::{self, Float};
use env::ConnId;
use maps::{FsMap, MdsMap, MdsState};
use messages::fs::{MdsBeacon, MdsLoadTargets};
use messages::{MdsMapMsg, Paxos};
use types::Epoch;

use super::Monitor;
use crate::fs::Edit;
use crate::fs::beacon::{self, Answer};
use crate::fs::plan::{self, Terms, Watch};
use crate::{Mutation, Subscription};

/// Bytes of what a server says of itself.
const METADATA_BYTES_MAX: usize = 64 << 10;

/// What a server is sent that has no place in any map, later than whatever it has: it starts anew.
fn null_map() -> MdsMap {
    MdsMap { epoch: Epoch(u32::MAX), ev: 19, ..MdsMap::default() }
}

impl Monitor {
    fn seconds_ms(&self, key: Key<Float>) -> u64 {
        (self.option(key).clamp(0.0, 1e9) * 1000.0) as u64
    }

    pub(super) fn fs_edit(&self) -> Edit {
        Edit::new(&self.state.fsmap, self.wall())
    }

    /// Takes a change in, all but the map's mutation, which is handed back: the OSD map's part goes
    /// first, so that its epoch is known.
    pub(super) fn fs_mutation(&mut self, edit: Edit) -> Mutation {
        let blocked_s = self.seconds_ms(key::MON_MDS_BLOCKLIST_INTERVAL) / 1000;
        if let Some(inc) = edit.osd_change(&self.state, blocked_s) {
            self.propose(Mutation::Osd(Box::new(inc)));
        }
        // The epoch being filled, which that part is in now.
        let osd_epoch = Epoch(self.state.osd_history.last.0 + 1);
        for (prio, line) in &edit.lines {
            self.log(*prio, line.clone());
        }
        let now_ms = self.now.mono_ms();
        for gid in &edit.gone {
            let name = self.state.fsmap.server(*gid).map_or("", |info| info.name.as_str());
            self.volatile.mds.forget(*gid, name, now_ms);
        }
        self.health_stale = true;
        let gone = edit.gone.clone();
        let map = Mutation::FsMap(Box::new(edit.finish(osd_epoch)));
        let mut all = vec![map];
        let known = gone.into_iter().filter(|gid| self.state.mds_metadata.contains_key(gid));
        all.extend(known.map(|gid| Mutation::MdsMetadata { gid, metadata: None }));
        if all.len() == 1 { all.remove(0) } else { Mutation::Batch(all) }
    }

    fn fs_commit(&mut self, edit: Edit) {
        let mutation = self.fs_mutation(edit);
        self.propose(mutation);
    }

    /// The leader begins: nobody was heard yet.
    pub(super) fn fs_begin(&mut self) {
        self.volatile.mds = Watch::default();
        if self.state.fsmap.default_compat.incompat.names.is_empty() {
            // Made by a release that had no file systems.
            let mut edit = self.fs_edit();
            edit.map.default_compat = maps::fs::compat_default();
            edit.touch();
            self.fs_commit(edit);
        }
    }

    pub(super) fn fs_round(&mut self) {
        let fsmap = &self.state.fsmap;
        if fsmap.mds_roles.is_empty() && fsmap.filesystems.is_empty() {
            return;
        }
        let quorum = &self.volatile.quorum;
        let now_ms = self.now.mono_ms();
        let mon_down_grace_ms = self.option(key::MDS_BEACON_MON_DOWN_GRACE).as_millis() as u64;
        let age_ms = now_ms.saturating_sub(quorum.since_mono_ms);
        let down = quorum.quorum.len() < self.state.monmap.mons.len();
        let terms = Terms {
            grace_ms: self.seconds_ms(key::MDS_BEACON_GRACE),
            interval_ms: self.seconds_ms(key::MDS_BEACON_INTERVAL),
            mon_down_grace_ms,
            quorum_is_shaken: down || age_ms < mon_down_grace_ms,
            now_ms,
        };
        let mut edit = self.fs_edit();
        plan::round(&mut edit, &mut self.volatile.mds, &terms, &self.state.fsmap);
        if edit.is_dirty() {
            self.fs_commit(edit);
        }
    }

    fn send_null_map(&mut self, conn: ConnId, tid: u64) {
        let Some(session) = self.sessions.get(&conn) else { return };
        let map = null_map();
        let (epoch, features) = (map.epoch, session.info.features);
        let map = denc::Denc::to_bytes_for(&map, features);
        let msg = MdsMapMsg { fsid: self.state.fsid, epoch, map, fs_name: String::new() };
        self.tell(conn, tid, &msg);
    }

    pub(super) fn on_mds_beacon(&mut self, conn: ConnId, tid: u64, msg: MdsBeacon) {
        let Some(session) = self.sessions.get(&conn) else { return };
        let info = &session.info;
        if msg.fsid != self.state.fsid {
            return tracing::warn!("a beacon of {} is for cluster {}", info.name, msg.fsid);
        }
        // Nobody speaks for another.
        if info.global_id != msg.gid || info.name.id != msg.name {
            return tracing::warn!("{} speaks for mds.{} {}", info.name, msg.name, msg.gid);
        }
        let addrs = info.addrs.clone();
        if addrs.front().sock.is_none_or(|sock| sock.port() == 0) {
            return tracing::warn!("a beacon of {} comes from {addrs}, without a port", info.name);
        }
        let (unique, now_ms) = (self.option(key::MDS_ENFORCE_UNIQUE_NAME), self.now.mono_ms());
        let mut edit = self.fs_edit();
        let said = beacon::take(&mut edit, &mut self.volatile.mds, &msg, &addrs, (unique, now_ms));
        let newest = edit.map.epoch.0;
        if edit.is_dirty() {
            let booted = !self.state.fsmap.mds_roles.contains_key(&msg.gid);
            self.fs_commit(edit);
            let bytes = msg.sys_info.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>();
            if booted && !msg.sys_info.is_empty() && bytes <= METADATA_BYTES_MAX {
                let metadata = Some(msg.sys_info.clone());
                self.propose(Mutation::MdsMetadata { gid: msg.gid, metadata });
            }
        } else {
            self.health_stale = true;
            for (prio, line) in edit.lines {
                self.log(prio, line);
            }
        }
        let epoch = match said {
            Answer::Silence => return,
            Answer::NullMap => return self.send_null_map(conn, tid),
            Answer::Ack(epoch) => epoch,
            Answer::Taken => newest,
        };
        let reply = MdsBeacon {
            paxos: Paxos { version: u64::from(epoch) },
            fsid: msg.fsid,
            gid: msg.gid,
            state: msg.state,
            seq: msg.seq,
            name: msg.name,
            features: denc::Features::ALL.0,
            ..MdsBeacon::default()
        };
        let reply = match reply.state {
            // Only a server's own beacon says what it runs on.
            MdsState::BOOT => MdsBeacon { sys_info: Default::default(), ..reply },
            _ => reply,
        };
        self.tell(conn, tid, &reply);
    }

    pub(super) fn on_mds_targets(&mut self, conn: ConnId, msg: &MdsLoadTargets) {
        let Some(session) = self.sessions.get(&conn) else { return };
        if session.info.global_id != msg.gid {
            return tracing::warn!("{} speaks for mds {}", session.info.name, msg.gid);
        }
        let known = self.state.fsmap.server(msg.gid);
        if known.is_none_or(|info| info.rank < 0 || info.export_targets == msg.targets) {
            return;
        }
        let mut edit = self.fs_edit();
        if let Some(info) = edit.server(msg.gid) {
            info.export_targets = msg.targets.clone();
            self.fs_commit(edit);
        }
    }

    /// A map for `mdsmap`: to a server its file system's, or its own entry while it waits; to
    /// clients the one they asked for by number, or the default one.
    pub(super) fn send_mdsmap(&mut self, conn: ConnId, name: &str, sub: Subscription) {
        let Some(session) = self.sessions.get(&conn) else { return };
        let (features, fsmap) = (session.info.features, &self.state.fsmap);
        let is_server = session.info.name.kind == types::EntityKind::MDS;
        let (epoch, map) = if is_server {
            let (gid, addrs) = (session.info.global_id, &session.info.addrs);
            let own = fsmap.server(gid).or_else(|| fsmap.server_at(addrs)).map(|info| info.gid);
            let map = match own.and_then(|gid| fsmap.of_server(gid)) {
                Some(fs) => fs.mds_map.clone(),
                None => waiting_map(fsmap, own),
            };
            (map.epoch, denc::Denc::to_bytes_for(&map, features))
        } else {
            let wanted = match name.strip_prefix("mdsmap.") {
                Some(id) => id.parse().ok(),
                None => Some(fsmap.legacy_client_fscid),
            };
            let sees = |fs: &&maps::Filesystem| {
                crate::fs::may(&session.info, &fs.mds_map.fs_name, ::auth::Rights::R)
            };
            let Some(fs) = wanted.and_then(|id| fsmap.by_id(id)).filter(sees) else { return };
            (fs.mds_map.epoch, denc::Denc::to_bytes_for(&fs.mds_map, features))
        };
        if self.newer(conn, name, sub, epoch) {
            let msg = MdsMapMsg { fsid: self.state.fsid, epoch, map, fs_name: String::new() };
            self.tell(conn, 0, &msg);
        }
    }
}

/// What a server without a rank is told: an empty map with itself in it.
fn waiting_map(fsmap: &FsMap, gid: Option<u64>) -> MdsMap {
    let mut map = null_map();
    map.epoch = fsmap.epoch;
    if let Some(info) = gid.and_then(|gid| fsmap.standby_daemons.get(&gid)) {
        map.epoch = fsmap.standby_epochs.get(&info.gid).copied().unwrap_or(fsmap.epoch);
        map.mds_info.insert(info.gid, info.clone());
    }
    map
}
