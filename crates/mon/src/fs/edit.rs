//! One change of the file systems, with what it does to the OSD map.

use std::collections::{BTreeMap, BTreeSet};

use maps::{Filesystem, FsMap, Incremental, MdsInfo, MdsMap, MdsState, PgPool, mds_flag};
use messages::LogPriority;
use types::{AddrKind, AddrVec, Epoch, PoolId, UTime};

use crate::ClusterState;

/// The extended part of maps made here, read by everybody since release 19.
const MAP_EV: u16 = 19;

/// A change of the file systems being made. Nothing of it is there before the monitor took it in:
/// see [`crate::Outcome::FileSystems`].
#[derive(Clone, Debug)]
pub struct Edit {
    /// The map as it will be; its epoch is the next.
    pub(crate) map: FsMap,
    now: UTime,
    dirty: bool,
    /// Servers that lose a rank: their addresses.
    fence: Vec<AddrVec>,
    /// File systems whose ranks they held.
    fenced: BTreeSet<i32>,
    /// Pools changed.
    pools: BTreeMap<PoolId, PgPool>,
    /// Sessions of servers that leave the map.
    pub(crate) gone: Vec<u64>,
    /// For the cluster log.
    pub(crate) lines: Vec<(LogPriority, String)>,
}

/// A pool with an application's pair set.
pub(crate) fn application(pool: &mut PgPool, key: &str, fs_name: &str) {
    let pairs = pool.application_metadata.entry("cephfs".to_owned()).or_default();
    pairs.insert(key.to_owned(), fs_name.to_owned());
}

impl Edit {
    /// Begins with the newest map.
    pub(crate) fn new(map: &FsMap, now: UTime) -> Self {
        let map = FsMap { epoch: Epoch(map.epoch.0 + 1), btime: now, ..map.clone() };
        Self {
            map,
            now,
            dirty: false,
            fence: Vec::new(),
            fenced: BTreeSet::new(),
            pools: BTreeMap::new(),
            gone: Vec::new(),
            lines: Vec::new(),
        }
    }

    /// Whether there is something to commit.
    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty
    }

    /// Addresses that are shut out.
    #[cfg(test)]
    pub(crate) fn fence(&self) -> &[AddrVec] {
        &self.fence
    }

    /// Says that the map changes, where nothing else tells.
    pub(crate) fn touch(&mut self) {
        self.dirty = true;
    }

    pub(crate) fn info(&mut self, line: String) {
        self.lines.push((LogPriority::INFO, line));
    }

    /// A file system to be changed: its map gets this epoch.
    pub(crate) fn fs(&mut self, fscid: i32) -> Option<&mut Filesystem> {
        let (epoch, now) = (self.map.epoch, self.now);
        let fs = self.map.filesystems.iter_mut().find(|fs| fs.fscid == fscid)?;
        fs.mds_map.epoch = epoch;
        fs.mds_map.modified = now;
        self.dirty = true;
        Some(fs)
    }

    /// The map of a file system to be changed.
    pub(crate) fn mds_map(&mut self, fscid: i32) -> Option<&mut MdsMap> {
        self.fs(fscid).map(|fs| &mut fs.mds_map)
    }

    /// A server to be changed; it, or its file system's map, gets this epoch.
    pub(crate) fn server(&mut self, gid: u64) -> Option<&mut MdsInfo> {
        let fscid = *self.map.mds_roles.get(&gid)?;
        if fscid != -1 {
            return self.mds_map(fscid)?.mds_info.get_mut(&gid);
        }
        self.dirty = true;
        self.map.standby_epochs.insert(gid, self.map.epoch);
        self.map.standby_daemons.get_mut(&gid)
    }

    /// A server that waits comes to the map.
    pub(crate) fn insert(&mut self, info: MdsInfo) {
        self.dirty = true;
        self.map.mds_roles.insert(info.gid, -1);
        self.map.standby_epochs.insert(info.gid, self.map.epoch);
        self.map.standby_daemons.insert(info.gid, info);
    }

    /// Takes a server that waits out of the list of those.
    fn enlist(&mut self, gid: u64, fscid: i32) -> Option<()> {
        if let Some(info) = self.map.standby_daemons.remove(&gid) {
            self.map.standby_epochs.remove(&gid);
            self.map.mds_roles.insert(gid, fscid);
            self.mds_map(fscid)?.mds_info.insert(gid, info);
        }
        Some(())
    }

    /// A standby, or who follows the rank, gets the rank: it makes it where it never was, starts it
    /// where it was stopped, and otherwise recovers it.
    pub(crate) fn promote(&mut self, gid: u64, fscid: i32, rank: i32) -> Option<()> {
        self.enlist(gid, fscid)?;
        let epoch = self.map.epoch;
        let map = self.mds_map(fscid)?;
        let state = if map.stopped.remove(&rank) {
            MdsState::STARTING
        } else if !map.r#in.contains(&rank) {
            MdsState::CREATING
        } else {
            map.failed.remove(&rank);
            MdsState::REPLAY
        };
        let info = map.mds_info.get_mut(&gid)?;
        info.state = state;
        info.rank = rank;
        info.inc = i32::try_from(epoch.0).unwrap_or(i32::MAX);
        map.inc.insert(rank, info.inc);
        map.compat = info.compat.clone();
        map.r#in.insert(rank);
        map.up.insert(rank, gid);
        Some(())
    }

    /// A standby follows a rank's journal.
    pub(crate) fn follow(&mut self, gid: u64, fscid: i32, rank: i32) -> Option<()> {
        self.enlist(gid, fscid)?;
        let info = self.mds_map(fscid)?.mds_info.get_mut(&gid)?;
        info.state = MdsState::STANDBY_REPLAY;
        info.rank = rank;
        Some(())
    }

    /// A server leaves the map: its rank fails; one that it was making is forgotten, one that it
    /// was starting is stopped as before. It is shut out where it held the rank.
    pub(crate) fn fail(&mut self, gid: u64) {
        let Some(info) = self.map.server(gid).cloned() else { return };
        if info.rank >= 0
            && info.state != MdsState::STANDBY_REPLAY
            && let Some(fs) = self.map.of_server(gid)
        {
            self.fenced.insert(fs.fscid);
            self.fence.push(info.addrs);
        }
        self.erase(gid);
    }

    /// [`Edit::fail`] without shutting the server out.
    pub(crate) fn erase(&mut self, gid: u64) {
        let fscid = self.map.mds_roles.remove(&gid);
        self.gone.push(gid);
        self.dirty = true;
        self.map.standby_daemons.remove(&gid);
        self.map.standby_epochs.remove(&gid);
        let Some(map) = fscid.and_then(|id| self.mds_map(id)) else { return };
        let Some(info) = map.mds_info.remove(&gid) else { return };
        if info.state == MdsState::STANDBY_REPLAY {
            return;
        }
        map.up.remove(&info.rank);
        match info.state {
            MdsState::CREATING => drop(map.r#in.remove(&info.rank)),
            MdsState::STARTING => {
                map.r#in.remove(&info.rank);
                map.stopped.insert(info.rank);
            }
            _ => drop(map.failed.insert(info.rank)),
        }
    }

    /// A rank's server found its metadata damaged: nobody gets the rank before it is repaired.
    /// `gid` may be the one that follows it.
    pub(crate) fn damaged(&mut self, gid: u64) -> Option<()> {
        let (fscid, rank) = (self.map.of_server(gid)?.fscid, self.map.server(gid)?.rank);
        let map = &self.map.by_id(fscid)?.mds_map;
        let follower = map.follower_of(rank).map(|i| i.gid);
        let holder = map.up.get(&rank).copied();
        for gid in follower.into_iter().chain(holder) {
            self.fail(gid);
        }
        let map = self.mds_map(fscid)?;
        map.failed.remove(&rank);
        map.damaged.insert(rank);
        Some(())
    }

    /// A damaged rank has failed only; `false` where it is not damaged.
    pub(crate) fn undamaged(&mut self, fscid: i32, rank: i32) -> bool {
        if !self.map.by_id(fscid).is_some_and(|fs| fs.mds_map.damaged.contains(&rank)) {
            return false;
        }
        if let Some(map) = self.mds_map(fscid) {
            map.damaged.remove(&rank);
            map.failed.insert(rank);
        }
        true
    }

    /// A rank was given up in order; who followed it leaves too.
    pub(crate) fn stop(&mut self, gid: u64) -> Option<()> {
        let fscid = self.map.of_server(gid)?.fscid;
        let map = self.mds_map(fscid)?;
        let rank = map.mds_info.remove(&gid)?.rank;
        map.up.remove(&rank);
        map.r#in.remove(&rank);
        map.stopped.insert(rank);
        let follower = map.follower_of(rank).map(|i| i.gid);
        self.map.mds_roles.remove(&gid);
        self.gone.push(gid);
        if let Some(follower) = follower {
            self.erase(follower);
        }
        Some(())
    }

    /// A new file system; its number is the next one, or `fscid`.
    pub(crate) fn create(
        &mut self,
        name: &str,
        pools: (PoolId, PoolId),
        fscid: Option<i32>,
        recover: bool,
    ) -> i32 {
        let next = i32::try_from(self.map.next_fscid).unwrap_or(i32::MAX);
        let fscid = fscid.unwrap_or(next);
        self.map.next_fscid = self.map.next_fscid.max(u64::try_from(fscid).unwrap_or(0) + 1);
        let mut map = MdsMap {
            ev: MAP_EV,
            fs_name: name.to_owned(),
            metadata_pool: pools.0,
            data_pools: vec![pools.1],
            compat: self.map.default_compat.clone(),
            created: self.now,
            enabled: true,
            ..MdsMap::default()
        };
        if recover {
            // A rank that has failed is recovered, not made; and not before somebody says so.
            map.r#in.insert(0);
            map.failed.insert(0);
            map.flags |= mds_flag::NOT_JOINABLE;
        }
        self.map.filesystems.push(Filesystem { fscid, mds_map: map, ..Filesystem::default() });
        self.map.filesystems.sort_by_key(|fs| fs.fscid);
        if self.map.filesystems.len() == 1 {
            self.map.legacy_client_fscid = fscid;
        }
        self.fs(fscid);
        fscid
    }

    /// A file system has one rank again, which has failed; its settings are a new one's.
    pub(crate) fn reset(&mut self, fscid: i32) -> Option<()> {
        let (now, compat) = (self.now, self.map.default_compat.clone());
        let map = self.mds_map(fscid)?;
        *map = MdsMap {
            ev: MAP_EV,
            epoch: map.epoch,
            fs_name: map.fs_name.clone(),
            metadata_pool: map.metadata_pool,
            data_pools: map.data_pools.clone(),
            compat,
            inc: map.inc.clone(),
            stopped: map.stopped.clone(),
            last_failure_osd_epoch: map.last_failure_osd_epoch,
            created: now,
            modified: now,
            enabled: true,
            standby_count_wanted: map.standby_count_wanted,
            r#in: BTreeSet::from([0]),
            failed: BTreeSet::from([0]),
            ..MdsMap::default()
        };
        Some(())
    }

    /// A file system is no more; who followed its ranks leaves.
    pub(crate) fn remove(&mut self, fscid: i32) {
        let Some(fs) = self.map.by_id(fscid) else { return };
        for gid in fs.mds_map.mds_info.keys().copied().collect::<Vec<_>>() {
            self.fail(gid);
        }
        self.map.filesystems.retain(|fs| fs.fscid != fscid);
        self.fenced.remove(&fscid);
        if self.map.legacy_client_fscid == fscid {
            self.map.legacy_client_fscid = -1;
        }
        self.dirty = true;
    }

    /// A pool to be changed together with the map.
    pub(crate) fn pool(&mut self, state: &ClusterState, id: PoolId) -> Option<&mut PgPool> {
        let known = state.osdmap.pool(id)?;
        Some(self.pools.entry(id).or_insert_with(|| known.clone()))
    }

    /// The OSD map's part, on top of the newest map; `blocked_s` is how long who lost a rank is
    /// shut out. `None` where there is none.
    pub(crate) fn osd_change(&self, state: &ClusterState, blocked_s: u64) -> Option<Incremental> {
        let mut inc = state.osd_change();
        let sec = u64::from(self.now.sec).saturating_add(blocked_s);
        let until = UTime { sec: u32::try_from(sec).unwrap_or(u32::MAX), ..self.now };
        for addr in self.fence.iter().flat_map(|addrs| &addrs.0) {
            // Entries are without protocol, as the peer files them.
            inc.new_blocklist.insert(addr.with_kind(AddrKind::ANY), until);
        }
        for (id, pool) in &self.pools {
            let pool = PgPool { last_change: inc.epoch, ..pool.clone() };
            inc.new_pools.insert(*id, pool);
        }
        (!inc.new_blocklist.is_empty() || !inc.new_pools.is_empty()).then_some(inc)
    }

    /// The map to commit, where the OSD map's part is in epoch `osd_epoch`.
    pub(crate) fn finish(mut self, osd_epoch: Epoch) -> FsMap {
        let epoch = self.map.epoch;
        for fs in &mut self.map.filesystems {
            let map = &mut fs.mds_map;
            if self.fenced.contains(&fs.fscid) {
                map.last_failure_osd_epoch = osd_epoch;
            }
            if map.epoch == epoch {
                // As the peer: every server since release 14 knows it, whether it is used or not.
                map.compat.incompat.insert(7, "mds uses inline data");
                // Who coordinates quiescing: the lowest rank that is active.
                let active = map.mds_info.values().filter(|i| i.state == MdsState::ACTIVE);
                map.qdb_cluster_members = active.clone().map(|i| i.gid).collect();
                map.qdb_cluster_leader = active.min_by_key(|i| i.rank).map_or(0, |i| i.gid);
            }
        }
        check(&self.map);
        self.map
    }
}

/// What holds of every map that is committed.
fn check(map: &FsMap) {
    for (gid, fscid) in &map.mds_roles {
        assert!(map.server(*gid).is_some(), "mds {gid} has a role in {fscid} and is nowhere");
    }
    for gid in map.standby_daemons.keys() {
        assert!(map.mds_roles.get(gid) == Some(&-1), "standby {gid} has a role");
        assert!(map.standby_epochs.contains_key(gid), "standby {gid} has no epoch");
    }
    for fs in &map.filesystems {
        let m = &fs.mds_map;
        for (rank, gid) in &m.up {
            let holds = m.mds_info.get(gid).is_some_and(|i| i.rank == *rank);
            assert!(holds && m.r#in.contains(rank), "rank {rank} is up without its server");
            assert!(!m.failed.contains(rank), "rank {rank} is up and has failed");
        }
    }
}
