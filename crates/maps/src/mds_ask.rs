//! Questions about file systems and their servers.

use types::AddrVec;

use crate::mds::{Filesystem, FsMap, MdsInfo, MdsMap, MdsState, mds_flag};

impl MdsState {
    /// Whether a server in this state recovers its rank.
    #[must_use]
    pub const fn recovers(self) -> bool {
        self.0 >= Self::REPLAY.0 && self.0 <= Self::CLIENTREPLAY.0
    }

    /// Whether a server with a rank may go on to `next` by itself. The peer's
    /// `MDSMap::state_transition_valid`; damage may be found in each state.
    #[must_use]
    pub const fn may_become(self, next: Self) -> bool {
        if self.0 == next.0 || next.0 == Self::DAMAGED.0 {
            return true;
        }
        match self {
            Self::REPLAY => matches!(next, Self::RESOLVE | Self::RECONNECT),
            Self::REJOIN => matches!(next, Self::ACTIVE | Self::CLIENTREPLAY | Self::STOPPED),
            Self::RESOLVE | Self::RECONNECT | Self::CLIENTREPLAY => next.0 == self.0 + 1,
            _ => true,
        }
    }
}

impl MdsInfo {
    /// How log lines name it.
    #[must_use]
    pub fn human_name(&self) -> String {
        format!("daemon mds.{}", self.name)
    }
}

impl MdsMap {
    /// Whether [`mds_flag`] `bit` is set.
    #[must_use]
    pub const fn has_flag(&self, bit: u32) -> bool {
        self.flags & bit != 0
    }

    /// Whether ranks may be given out.
    #[must_use]
    pub const fn is_joinable(&self) -> bool {
        !self.has_flag(mds_flag::NOT_JOINABLE)
    }

    /// The server of a rank.
    #[must_use]
    pub fn server_of(&self, rank: i32) -> Option<&MdsInfo> {
        self.mds_info.get(self.up.get(&rank)?)
    }

    /// The server that follows a rank's journal.
    #[must_use]
    pub fn follower_of(&self, rank: i32) -> Option<&MdsInfo> {
        let follows = |i: &&MdsInfo| i.rank == rank && i.state == MdsState::STANDBY_REPLAY;
        self.mds_info.values().find(follows)
    }

    /// Whether a rank can be followed and is not.
    #[must_use]
    pub fn is_followable(&self, rank: i32) -> bool {
        self.server_of(rank).is_some_and(|i| i.state == MdsState::ACTIVE)
            && self.follower_of(rank).is_none()
    }

    /// How many servers are in a state.
    #[must_use]
    pub fn count(&self, state: MdsState) -> usize {
        self.mds_info.values().filter(|i| i.state == state).count()
    }

    /// Whether a rank has failed, is damaged or recovers.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        !self.failed.is_empty()
            || !self.damaged.is_empty()
            || self.mds_info.values().any(|i| i.state.recovers())
    }

    /// Whether ranks may come and go: none is on its way.
    #[must_use]
    pub fn is_resizeable(&self) -> bool {
        let moving = [MdsState::CREATING, MdsState::STARTING, MdsState::STOPPING];
        !self.is_degraded() && moving.iter().all(|s| self.count(*s) == 0)
    }

    /// Whether servers that know more than the file system's others may get a rank: nobody
    /// else would have to know it too.
    #[must_use]
    pub fn is_upgradeable(&self) -> bool {
        let alone = self.r#in.len() == 1 && self.up.len() == 1;
        let followed = self.has_flag(mds_flag::ALLOW_STANDBY_REPLAY);
        self.r#in.is_empty() || self.up.is_empty() || (alone && !followed)
    }

    /// How many standbys are missing where `standbys` wait.
    #[must_use]
    pub fn standbys_missing(&self, standbys: usize) -> usize {
        let there = standbys + self.count(MdsState::STANDBY_REPLAY);
        usize::try_from(self.standby_count_wanted).unwrap_or(0).saturating_sub(there)
    }
}

impl FsMap {
    /// A file system by its number.
    #[must_use]
    pub fn by_id(&self, fscid: i32) -> Option<&Filesystem> {
        self.filesystems.iter().find(|fs| fs.fscid == fscid)
    }

    /// A file system by its name.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<&Filesystem> {
        self.filesystems.iter().find(|fs| fs.mds_map.fs_name == name)
    }

    /// The file system that uses a pool.
    #[must_use]
    pub fn by_pool(&self, pool: types::PoolId) -> Option<&Filesystem> {
        let uses = |m: &MdsMap| m.metadata_pool == pool || m.data_pools.contains(&pool);
        self.filesystems.iter().find(|fs| uses(&fs.mds_map))
    }

    /// The file system that a server serves or follows.
    #[must_use]
    pub fn of_server(&self, gid: u64) -> Option<&Filesystem> {
        self.by_id(*self.mds_roles.get(&gid)?)
    }

    /// A server by its session.
    #[must_use]
    pub fn server(&self, gid: u64) -> Option<&MdsInfo> {
        match self.of_server(gid) {
            Some(fs) => fs.mds_map.mds_info.get(&gid),
            None => self.standby_daemons.get(&gid),
        }
    }

    /// All servers, by session.
    pub fn servers(&self) -> impl Iterator<Item = &MdsInfo> {
        self.mds_roles.keys().filter_map(|gid| self.server(*gid))
    }

    /// A server by its name; one with a rank before one that waits.
    #[must_use]
    pub fn server_named(&self, name: &str) -> Option<&MdsInfo> {
        let ranked = self.filesystems.iter().flat_map(|fs| fs.mds_map.mds_info.values());
        ranked.chain(self.standby_daemons.values()).find(|i| i.name == name)
    }

    /// A server by where it listens.
    #[must_use]
    pub fn server_at(&self, addrs: &AddrVec) -> Option<&MdsInfo> {
        self.servers().find(|i| i.addrs == *addrs)
    }

    /// The standby that would serve a file system best; `None` where none may. The peer's
    /// `FSMap::get_available_standby`.
    #[must_use]
    pub fn standby_for<'a>(&'a self, fs: &Filesystem) -> Option<&'a MdsInfo> {
        let map = &fs.mds_map;
        let grows = map.is_upgradeable();
        let picky = map.has_flag(mds_flag::REFUSE_STANDBY_FOR_ANOTHER_FS);
        let fits = |i: &&MdsInfo| {
            !i.is_laggy()
                && !i.is_frozen()
                && i.compat.writes(&map.compat)
                && (grows || map.compat.writes(&i.compat))
                && !(picky && i.join_fscid != -1 && i.join_fscid != fs.fscid)
        };
        let best = |i: &&MdsInfo| match i.join_fscid {
            own if own == fs.fscid => 0,
            -1 => 1,
            _ => 2,
        };
        self.standby_daemons.values().filter(fits).min_by_key(best)
    }

    /// Who would take over a rank: whoever follows it, or the best standby.
    #[must_use]
    pub fn replacement_for<'a>(&'a self, fs: &'a Filesystem, rank: i32) -> Option<&'a MdsInfo> {
        let follower = fs.mds_map.follower_of(rank).filter(|i| !i.is_laggy() && !i.is_frozen());
        follower.or_else(|| self.standby_for(fs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(gid: u64, rank: i32, state: MdsState, join_fscid: i32) -> MdsInfo {
        MdsInfo { gid, rank, state, join_fscid, name: format!("m{gid}"), ..MdsInfo::default() }
    }

    /// A server goes on to the next state, may skip what its rank does not need, and never goes
    /// back; damage may be found anywhere.
    #[test]
    fn states_follow_each_other() {
        use MdsState as S;
        let order = [S::REPLAY, S::RESOLVE, S::RECONNECT, S::REJOIN, S::CLIENTREPLAY, S::ACTIVE];
        let skips = [(S::REPLAY, S::RECONNECT), (S::REJOIN, S::ACTIVE)];
        for (i, from) in order.iter().enumerate().take(5) {
            for (j, to) in order.iter().enumerate() {
                let want = i == j || i + 1 == j || skips.contains(&(*from, *to));
                assert_eq!(from.may_become(*to), want, "{from} to {to}");
            }
            assert!(from.may_become(S::DAMAGED) && from.recovers());
        }
        assert!(S::CREATING.may_become(S::ACTIVE) && S::STOPPING.may_become(S::STOPPED));
    }

    /// A standby that prefers the file system comes first, then one without preference; what
    /// another file system prefers only where that is not refused.
    #[test]
    fn the_best_standby() {
        let mut fs = Filesystem { fscid: 1, ..Filesystem::default() };
        let mut map = FsMap::default();
        for (gid, join) in [(5, 2), (6, -1), (7, 1), (8, 1)] {
            map.standby_daemons.insert(gid, info(gid, -1, MdsState::STANDBY, join));
        }
        let best = |map: &FsMap, fs: &Filesystem| map.standby_for(fs).map(|i| i.gid);
        assert_eq!(best(&map, &fs), Some(7));
        map.standby_daemons.get_mut(&7).unwrap().laggy_since.sec = 1;
        map.standby_daemons.get_mut(&8).unwrap().flags = MdsInfo::FROZEN;
        assert_eq!(best(&map, &fs), Some(6));
        map.standby_daemons.remove(&6);
        assert_eq!(best(&map, &fs), Some(5));
        fs.mds_map.flags |= mds_flag::REFUSE_STANDBY_FOR_ANOTHER_FS;
        assert_eq!(best(&map, &fs), None);
        fs.mds_map.mds_info.insert(9, info(9, 0, MdsState::STANDBY_REPLAY, -1));
        assert_eq!(map.replacement_for(&fs, 0).map(|i| i.gid), Some(9));
        assert_eq!(map.replacement_for(&fs, 1), None);
    }

    /// A standby that cannot write what the file system has, or would write what its other
    /// servers do not know, gets no rank.
    #[test]
    fn compat_is_kept() {
        let mut fs = Filesystem { fscid: 1, ..Filesystem::default() };
        fs.mds_map.compat = crate::fs::compat_default();
        let mut map = FsMap::default();
        map.standby_daemons.insert(5, info(5, -1, MdsState::STANDBY, -1));
        assert!(map.standby_for(&fs).is_none());
        let one = map.standby_daemons.get_mut(&5).unwrap();
        one.compat = crate::fs::compat_supported();
        assert!(map.standby_for(&fs).is_some(), "nobody else serves it");
        fs.mds_map.r#in.extend([0, 1]);
        fs.mds_map.up.extend([(0, 1), (1, 2)]);
        assert!(map.standby_for(&fs).is_none(), "two others do not know inline data");
    }
}
