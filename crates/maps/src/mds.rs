//! The file systems' maps.

use std::collections::{BTreeMap, BTreeSet};

use types::{AddrVec, DecodeError, Denc, Epoch, Features, PoolId, Reader, UTime, Writer};

use crate::features::{CompatSet, FeatureBits};
use crate::wire::{get_blob, put_blob, record, release};

/// What an MDS does. The peer's `MDSMap::DaemonState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MdsState(pub i32);

impl MdsState {
    /// No state: what a null map says.
    pub const NULL: Self = Self(-10);
    /// Ends; what the last beacon of a server says.
    pub const DNE: Self = Self(0);
    /// It gave its rank up.
    pub const STOPPED: Self = Self(-1);
    /// Starts; never in a map.
    pub const BOOT: Self = Self(-4);
    /// Waits for a rank.
    pub const STANDBY: Self = Self(-5);
    /// Makes a new rank.
    pub const CREATING: Self = Self(-6);
    /// Starts a stopped rank.
    pub const STARTING: Self = Self(-7);
    /// Follows a rank's journal.
    pub const STANDBY_REPLAY: Self = Self(-8);
    /// Reads the journal.
    pub const REPLAY: Self = Self(8);
    /// Resolves what was distributed.
    pub const RESOLVE: Self = Self(9);
    /// Waits for clients.
    pub const RECONNECT: Self = Self(10);
    /// Rejoins the distributed cache.
    pub const REJOIN: Self = Self(11);
    /// Repeats clients' operations.
    pub const CLIENTREPLAY: Self = Self(12);
    /// Serves clients.
    pub const ACTIVE: Self = Self(13);
    /// Gives its subtrees away.
    pub const STOPPING: Self = Self(14);
    /// Its rank's metadata is damaged.
    pub const DAMAGED: Self = Self(15);

    /// The peer's name; `???` for none of its states.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NULL => "null",
            Self::DNE => "down:dne",
            Self::STOPPED => "down:stopped",
            Self::DAMAGED => "down:damaged",
            Self::BOOT => "up:boot",
            Self::STANDBY => "up:standby",
            Self::STANDBY_REPLAY => "up:standby-replay",
            Self::CREATING => "up:creating",
            Self::STARTING => "up:starting",
            Self::REPLAY => "up:replay",
            Self::RESOLVE => "up:resolve",
            Self::RECONNECT => "up:reconnect",
            Self::REJOIN => "up:rejoin",
            Self::CLIENTREPLAY => "up:clientreplay",
            Self::ACTIVE => "up:active",
            Self::STOPPING => "up:stopping",
            _ => "???",
        }
    }
}

impl std::fmt::Display for MdsState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Flags of a file system: [`MdsMap::flags`].
pub mod mds_flag {
    /// No server gets a rank.
    pub const NOT_JOINABLE: u32 = 1;
    /// Snapshots may be made.
    pub const ALLOW_SNAPS: u32 = 2;
    /// Also with several ranks.
    pub const ALLOW_MULTIMDS_SNAPS: u32 = 0x10;
    /// Standbys follow ranks.
    pub const ALLOW_STANDBY_REPLAY: u32 = 0x20;
    /// No client may open a session.
    pub const REFUSE_CLIENT_SESSION: u32 = 0x40;
    /// No server gets a rank that prefers another file system.
    pub const REFUSE_STANDBY_FOR_ANOTHER_FS: u32 = 0x80;
    /// Ranks balance their load.
    pub const BALANCE_AUTOMATE: u32 = 0x100;
    /// A new file system's.
    pub const DEFAULT: u32 = ALLOW_SNAPS | ALLOW_MULTIMDS_SNAPS;

    /// Names as the peer's `flags_state` has them, in its order; the first one is set when
    /// its flag, [`NOT_JOINABLE`], is not.
    pub const NAMES: [(u32, &str); 7] = [
        (NOT_JOINABLE, "joinable"),
        (ALLOW_SNAPS, "allow_snaps"),
        (ALLOW_MULTIMDS_SNAPS, "allow_multimds_snaps"),
        (ALLOW_STANDBY_REPLAY, "allow_standby_replay"),
        (REFUSE_CLIENT_SESSION, "refuse_client_session"),
        (REFUSE_STANDBY_FOR_ANOTHER_FS, "refuse_standby_for_another_fs"),
        (BALANCE_AUTOMATE, "balance_automate"),
    ];

    /// Each name and whether it holds.
    pub fn states(flags: u32) -> impl Iterator<Item = (&'static str, bool)> {
        let holds = move |bit| (flags & bit != 0) != (bit == NOT_JOINABLE);
        NAMES.into_iter().map(move |(bit, name)| (name, holds(bit)))
    }
}

impl Default for MdsState {
    fn default() -> Self {
        Self::STANDBY
    }
}

impl Denc for MdsState {
    fn encode(&self, w: &mut Writer) {
        w.i32(self.0);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.i32().map(Self)
    }
}

/// One MDS. The peer's `MDSMap::mds_info_t`, 10/4; v9 without [`Self::compat`] as
/// 16.2.0 wrote it is read; v7 with one address without NAUTILUS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MdsInfo {
    /// Its session.
    pub gid: u64,
    /// Its name.
    pub name: String,
    /// Its rank; -1 for none.
    pub rank: i32,
    /// The rank's incarnation.
    pub inc: i32,
    /// What it does.
    pub state: MdsState,
    /// Counts its beacons.
    pub state_seq: u64,
    /// Where it listens.
    pub addrs: AddrVec,
    /// Since when nothing is heard of it; zero when it is well.
    pub laggy_since: UTime,
    /// Ranks it gives subtrees to.
    pub export_targets: BTreeSet<i32>,
    /// What it advertises.
    pub features: u64,
    /// The file system it prefers; -1 for any.
    pub join_fscid: i32,
    /// [`MdsInfo::FROZEN`].
    pub flags: u64,
    /// On-disk features it knows.
    pub compat: CompatSet,
}

impl MdsInfo {
    /// In [`Self::flags`]: it gets no rank and loses none.
    pub const FROZEN: u64 = 1;

    /// Whether it is frozen.
    #[must_use]
    pub const fn is_frozen(&self) -> bool {
        self.flags & Self::FROZEN != 0
    }

    /// Whether nothing is heard of it.
    #[must_use]
    pub const fn is_laggy(&self) -> bool {
        !self.laggy_since.is_zero()
    }
}

impl Default for MdsInfo {
    fn default() -> Self {
        Self {
            gid: 0,
            name: String::new(),
            rank: -1,
            inc: 0,
            state: MdsState::STANDBY,
            state_seq: 0,
            addrs: AddrVec::default(),
            laggy_since: UTime::ZERO,
            export_targets: BTreeSet::new(),
            features: 0,
            join_fscid: -1,
            flags: 0,
            compat: CompatSet::default(),
        }
    }
}

impl Denc for MdsInfo {
    fn encode(&self, w: &mut Writer) {
        let v = if w.has(Features::SERVER_NAUTILUS) { 10 } else { 7 };
        w.framed(v, 4, |w| {
            w.u64(self.gid);
            w.str(&self.name);
            w.i32(self.rank);
            w.i32(self.inc);
            self.state.encode(w);
            w.u64(self.state_seq);
            if v < 8 {
                self.addrs.legacy().encode(w);
            } else {
                self.addrs.encode(w);
            }
            self.laggy_since.encode(w);
            w.i32(-1); // standby_for_rank and name, long gone
            w.str("");
            self.export_targets.encode(w);
            w.u64(self.features);
            w.i32(self.join_fscid);
            w.bool(false); // standby_replay, long gone
            if v >= 9 {
                w.u64(self.flags);
            }
            if v >= 10 {
                self.compat.encode(w);
            }
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("MDSMap::mds_info_t", 10, |r, v| {
            r.require(v >= 7, "MDS infos are read from version 7 on")?;
            let mut m = Self {
                gid: r.u64()?,
                name: r.string()?,
                rank: r.i32()?,
                inc: r.i32()?,
                state: Denc::decode(r)?,
                state_seq: r.u64()?,
                addrs: Denc::decode(r)?,
                laggy_since: Denc::decode(r)?,
                ..Self::default()
            };
            let _ = (r.i32()?, r.blob_ref()?);
            m.export_targets = Denc::decode(r)?;
            m.features = r.u64()?;
            m.join_fscid = r.i32()?;
            let _ = r.bool()?;
            if v >= 9 {
                m.flags = r.u64()?;
            }
            if v >= 10 {
                m.compat = Denc::decode(r)?;
            }
            Ok(m)
        })
    }
}

/// One file system's ranks and pools. The peer's `MDSMap`, 5/4.
///
/// Its extended part has a version of its own, [`Self::ev`]: 16 in release 16.2, 18 in
/// 18.2, 19 in 20.2. Kernels misread 17 and later, so the part is written as the map says
/// and not as the reader's release could take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MdsMap {
    /// Version of the file-system map.
    pub epoch: Epoch,
    /// [`mds_flag`].
    pub flags: u32,
    /// Epoch of the last failure.
    pub last_failure: Epoch,
    /// Rank of the root.
    pub root: i32,
    /// Seconds.
    pub session_timeout: u32,
    /// Seconds.
    pub session_autoclose: u32,
    /// Largest file.
    pub max_file_size: u64,
    /// Ranks wanted.
    pub max_mds: i32,
    /// The MDSs by session.
    pub mds_info: BTreeMap<u64, MdsInfo>,
    /// Pools for file contents; the first is the default.
    pub data_pools: Vec<PoolId>,
    /// Without meaning; -1.
    pub cas_pool: i64,
    /// Version of the extended part.
    pub ev: u16,
    /// On-disk features.
    pub compat: CompatSet,
    /// The pool for metadata; -1 for none.
    pub metadata_pool: PoolId,
    /// When it was made.
    pub created: UTime,
    /// When it changed.
    pub modified: UTime,
    /// Rank of the table server.
    pub tableserver: i32,
    /// Ranks in use.
    pub r#in: BTreeSet<i32>,
    /// Incarnations by rank.
    pub inc: BTreeMap<i32, i32>,
    /// Sessions by rank.
    pub up: BTreeMap<i32, u64>,
    /// Ranks without MDS.
    pub failed: BTreeSet<i32>,
    /// Ranks stopped.
    pub stopped: BTreeSet<i32>,
    /// OSD map epoch of the last failure.
    pub last_failure_osd_epoch: Epoch,
    /// Features ever allowed.
    pub ever_allowed_features: u8,
    /// Features allowed.
    pub explicitly_allowed_features: u8,
    /// Small files inside inodes.
    pub inline_data: bool,
    /// Whether it serves.
    pub enabled: bool,
    /// Its name.
    pub fs_name: String,
    /// Ranks damaged.
    pub damaged: BTreeSet<i32>,
    /// The balancer's program.
    pub balancer: String,
    /// Standbys wanted; -1 is the default.
    pub standby_count_wanted: i32,
    /// `max_mds` before it was taken down.
    pub old_max_mds: i32,
    /// Long replaced by the next field.
    pub min_compat_client: u8,
    /// Features clients must have.
    pub required_client_features: FeatureBits,
    /// Ranks that balance, as a mask (ev 17).
    pub bal_rank_mask: String,
    /// Largest extended attributes (ev 18).
    pub max_xattr_size: u64,
    /// Leader of the quiesce database (ev 19).
    pub qdb_cluster_leader: u64,
    /// Members of it (ev 19).
    pub qdb_cluster_members: BTreeSet<u64>,
}

impl Default for MdsMap {
    fn default() -> Self {
        Self {
            epoch: Epoch(0),
            flags: mds_flag::DEFAULT,
            last_failure: Epoch(0),
            root: 0,
            session_timeout: 60,
            session_autoclose: 300,
            max_file_size: 1 << 40,
            max_mds: 1,
            mds_info: BTreeMap::new(),
            data_pools: Vec::new(),
            cas_pool: -1,
            ev: 16,
            compat: CompatSet::default(),
            metadata_pool: PoolId(-1),
            created: UTime::ZERO,
            modified: UTime::ZERO,
            tableserver: 0,
            r#in: BTreeSet::new(),
            inc: BTreeMap::new(),
            up: BTreeMap::new(),
            failed: BTreeSet::new(),
            stopped: BTreeSet::new(),
            last_failure_osd_epoch: Epoch(0),
            ever_allowed_features: 0,
            explicitly_allowed_features: 0,
            inline_data: false,
            enabled: false,
            fs_name: String::new(),
            damaged: BTreeSet::new(),
            balancer: String::new(),
            standby_count_wanted: -1,
            old_max_mds: 0,
            min_compat_client: 0,
            required_client_features: FeatureBits::default(),
            bal_rank_mask: "-1".to_owned(),
            max_xattr_size: 65536,
            qdb_cluster_leader: 0,
            qdb_cluster_members: BTreeSet::new(),
        }
    }
}

impl Denc for MdsMap {
    fn encode(&self, w: &mut Writer) {
        w.framed(5, 4, |w| {
            self.epoch.encode(w);
            w.u32(self.flags);
            self.last_failure.encode(w);
            w.i32(self.root);
            w.u32(self.session_timeout);
            w.u32(self.session_autoclose);
            w.u64(self.max_file_size);
            w.i32(self.max_mds);
            self.mds_info.encode(w);
            self.data_pools.encode(w);
            w.i64(self.cas_pool);
            w.u16(self.ev);
            self.compat.encode(w);
            self.metadata_pool.encode(w);
            self.created.encode(w);
            self.modified.encode(w);
            w.i32(self.tableserver);
            self.r#in.encode(w);
            self.inc.encode(w);
            self.up.encode(w);
            self.failed.encode(w);
            self.stopped.encode(w);
            self.last_failure_osd_epoch.encode(w);
            w.u8(self.ever_allowed_features);
            w.u8(self.explicitly_allowed_features);
            w.bool(self.inline_data);
            w.bool(self.enabled);
            w.str(&self.fs_name);
            self.damaged.encode(w);
            w.str(&self.balancer);
            w.i32(self.standby_count_wanted);
            w.i32(self.old_max_mds);
            w.u8(self.min_compat_client);
            self.required_client_features.encode(w);
            if self.ev >= 17 {
                w.str(&self.bal_rank_mask);
            }
            if self.ev >= 18 {
                w.u64(self.max_xattr_size);
            }
            if self.ev >= 19 {
                w.u64(self.qdb_cluster_leader);
                self.qdb_cluster_members.encode(w);
            }
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("MDSMap", 5, |r, v| {
            r.require(v >= 4, "MDS maps are read from version 4 on")?;
            let mut m = Self {
                epoch: Denc::decode(r)?,
                flags: r.u32()?,
                last_failure: Denc::decode(r)?,
                root: r.i32()?,
                session_timeout: r.u32()?,
                session_autoclose: r.u32()?,
                max_file_size: r.u64()?,
                max_mds: r.i32()?,
                mds_info: Denc::decode(r)?,
                data_pools: Denc::decode(r)?,
                cas_pool: r.i64()?,
                ev: r.u16()?,
                ..Self::default()
            };
            r.require((16..=19).contains(&m.ev), "an MDS map's extension is version 16 to 19")?;
            m.compat = Denc::decode(r)?;
            m.metadata_pool = Denc::decode(r)?;
            m.created = Denc::decode(r)?;
            m.modified = Denc::decode(r)?;
            m.tableserver = r.i32()?;
            m.r#in = Denc::decode(r)?;
            m.inc = Denc::decode(r)?;
            m.up = Denc::decode(r)?;
            m.failed = Denc::decode(r)?;
            m.stopped = Denc::decode(r)?;
            m.last_failure_osd_epoch = Denc::decode(r)?;
            m.ever_allowed_features = r.u8()?;
            m.explicitly_allowed_features = r.u8()?;
            m.inline_data = r.bool()?;
            m.enabled = r.bool()?;
            m.fs_name = r.string()?;
            m.damaged = Denc::decode(r)?;
            m.balancer = r.string()?;
            m.standby_count_wanted = r.i32()?;
            m.old_max_mds = r.i32()?;
            m.min_compat_client = r.u8()?;
            m.required_client_features = Denc::decode(r)?;
            if m.ev >= 17 {
                m.bal_rank_mask = r.string()?;
            }
            if m.ev >= 18 {
                m.max_xattr_size = r.u64()?;
            }
            if m.ev >= 19 {
                m.qdb_cluster_leader = r.u64()?;
                m.qdb_cluster_members = Denc::decode(r)?;
            }
            Ok(m)
        })
    }
}

record! {
    /// The other cluster of a mirror. The peer's `ClusterInfo`.
    #[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
    MirrorCluster "ClusterInfo", compat 1, known 1, |f| 1; {
        /// Whose key.
        client_name: String,
        /// Its name here.
        cluster_name: String,
        /// The file system there.
        fs_name: String,
    }
}

record! {
    /// Where a file system is mirrored to. The peer's `Peer`.
    #[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
    MirrorPeer "Peer", compat 1, known 1, |f| 1; {
        /// Its id.
        uuid: String,
        /// The cluster.
        remote: MirrorCluster,
    }
}

record! {
    /// Whether and where a file system is mirrored. The peer's `MirrorInfo`.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    MirrorInfo "MirrorInfo", compat 1, known 1, |f| 1; {
        /// Whether.
        mirrored: bool,
        /// Where.
        peers: BTreeSet<MirrorPeer>,
    }
}

/// A file system. The peer's `Filesystem`, 2/1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filesystem {
    /// Its number.
    pub fscid: i32,
    /// Its map.
    pub mds_map: MdsMap,
    /// Its mirrors.
    pub mirror: MirrorInfo,
}

impl Denc for Filesystem {
    fn encode(&self, w: &mut Writer) {
        w.framed(2, 1, |w| {
            w.i32(self.fscid);
            put_blob(w, &self.mds_map);
            self.mirror.encode(w);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("Filesystem", 2, |r, v| {
            Ok(Self {
                fscid: r.i32()?,
                mds_map: get_blob(r)?,
                mirror: if v >= 2 { Denc::decode(r)? } else { MirrorInfo::default() },
            })
        })
    }
}

/// All file systems and the MDSs that wait. The peer's `FSMap`.
///
/// Wire: compat 6; v8 for peers of releases 19 and 20, else v7. Read from v7.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsMap {
    /// Version of this map.
    pub epoch: Epoch,
    /// The number of the next file system.
    pub next_fscid: u64,
    /// The file system of clients that name none; -1 for none.
    pub legacy_client_fscid: i32,
    /// Features of new file systems.
    pub default_compat: CompatSet,
    /// Whether there may be several.
    pub enable_multiple: bool,
    /// The file systems.
    pub filesystems: Vec<Filesystem>,
    /// The file system each MDS serves; -1 for none.
    pub mds_roles: BTreeMap<u64, i32>,
    /// MDSs that wait.
    pub standby_daemons: BTreeMap<u64, MdsInfo>,
    /// When each of them changed.
    pub standby_epochs: BTreeMap<u64, Epoch>,
    /// Whether there ever were to be several.
    pub ever_enabled_multiple: bool,
    /// When the map was made (v8).
    pub btime: UTime,
}

impl Default for FsMap {
    fn default() -> Self {
        Self {
            epoch: Epoch(0),
            next_fscid: 1,
            legacy_client_fscid: -1,
            default_compat: CompatSet::default(),
            enable_multiple: true,
            filesystems: Vec::new(),
            mds_roles: BTreeMap::new(),
            standby_daemons: BTreeMap::new(),
            standby_epochs: BTreeMap::new(),
            ever_enabled_multiple: true,
            btime: UTime::ZERO,
        }
    }
}

impl FsMap {
    /// A first map without file systems.
    #[must_use]
    pub fn new(epoch: Epoch, now: UTime) -> Self {
        Self { epoch, btime: now, default_compat: crate::fs::compat_default(), ..Self::default() }
    }

    /// What clients that mount by name are told.
    #[must_use]
    pub fn user_map(&self) -> FsMapUser {
        FsMapUser {
            epoch: self.epoch,
            legacy_client_fscid: self.legacy_client_fscid,
            filesystems: self
                .filesystems
                .iter()
                .map(|fs| FsInfo { fscid: fs.fscid, name: fs.mds_map.fs_name.clone() })
                .collect(),
        }
    }
}

impl Denc for FsMap {
    fn encode(&self, w: &mut Writer) {
        let v = if release(w.features()) >= 19 { 8 } else { 7 };
        w.framed(v, 6, |w| {
            self.epoch.encode(w);
            w.u64(self.next_fscid);
            w.i32(self.legacy_client_fscid);
            self.default_compat.encode(w);
            w.bool(self.enable_multiple);
            self.filesystems.encode(w);
            self.mds_roles.encode(w);
            self.standby_daemons.encode(w);
            self.standby_epochs.encode(w);
            w.bool(self.ever_enabled_multiple);
            if v >= 8 {
                self.btime.encode(w);
            }
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("FSMap", 8, |r, v| {
            r.require(v >= 7, "file-system maps are read from version 7 on")?;
            Ok(Self {
                epoch: Denc::decode(r)?,
                next_fscid: r.u64()?,
                legacy_client_fscid: r.i32()?,
                default_compat: Denc::decode(r)?,
                enable_multiple: r.bool()?,
                filesystems: Denc::decode(r)?,
                mds_roles: Denc::decode(r)?,
                standby_daemons: Denc::decode(r)?,
                standby_epochs: Denc::decode(r)?,
                ever_enabled_multiple: r.bool()?,
                btime: if v >= 8 { Denc::decode(r)? } else { UTime::ZERO },
            })
        })
    }
}

record! {
    /// A file system's number and name. The peer's `FSMapUser::fs_info_t`.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    FsInfo "FSMapUser::fs_info_t", compat 1, known 1, |f| 1; {
        /// Its number.
        fscid: i32,
        /// Its name.
        name: String,
    }
}

record! {
    /// What clients need to mount by name. The peer's `FSMapUser`.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    FsMapUser "FSMapUser", compat 1, known 1, |f| 1; {
        /// Version of the map.
        epoch: Epoch,
        /// The default file system; -1 for none.
        legacy_client_fscid: i32,
        /// All of them.
        filesystems: Vec<FsInfo>,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_and_states() {
        let set = |flags| mds_flag::states(flags).filter(|s| s.1).map(|s| s.0).collect::<Vec<_>>();
        assert_eq!(set(mds_flag::DEFAULT), ["joinable", "allow_snaps", "allow_multimds_snaps"]);
        assert_eq!(set(0x121), ["allow_standby_replay", "balance_automate"]);
        assert_eq!(MdsMap::default().flags, 0x12);
        assert_eq!(MdsState::STANDBY_REPLAY.to_string(), "up:standby-replay");
        assert_eq!(MdsState(99).name(), "???");
        let frozen = MdsInfo { flags: MdsInfo::FROZEN, ..MdsInfo::default() };
        assert!(frozen.is_frozen() && !frozen.is_laggy());
    }
}
