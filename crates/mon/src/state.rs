//! The replicated state.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use messages::LogEntry;
use types::{Epoch, OsdId, UTime, Uuid};

use crate::ConfigDb;

/// Everything the monitors agree on.
#[derive(Clone, Debug)]
pub struct ClusterState {
    /// The cluster.
    pub fsid: Uuid,
    /// When it was made.
    pub created: UTime,
    /// The monitors.
    pub monmap: maps::MonMap,
    /// The newest OSD map, with every change accepted so far.
    pub osdmap: maps::OsdMap,
    /// Committed OSD maps, by epoch.
    pub osd_history: OsdHistory,
    /// The manager: the monitors themselves.
    pub mgrmap: maps::MgrMap,
    /// File systems: none yet.
    pub fsmap: maps::FsMap,
    /// Central settings.
    pub config: ConfigDb,
    /// The key/value store of `ceph config-key`.
    pub config_key: BTreeMap<String, Bytes>,
    /// Keys, caps and rotating service keys.
    pub auth: auth::KeyServer,
    /// Cluster and audit log.
    pub log: ClusterLog,
    /// What OSDs said of themselves when they booted.
    pub osd_metadata: BTreeMap<OsdId, BTreeMap<String, String>>,
    /// What monitors said of themselves.
    pub mon_metadata: BTreeMap<String, BTreeMap<String, String>>,
    /// Muted health codes.
    pub health_mutes: BTreeMap<String, HealthMute>,
    /// Every global id below is handed out or about to be.
    pub global_ids_below: u64,
}

impl ClusterState {
    /// An empty OSD map change on top of the newest map.
    #[must_use]
    pub fn osd_change(&self) -> maps::Incremental {
        let mut inc = maps::Incremental::default();
        inc.fsid = self.fsid;
        inc.epoch = Epoch(self.osd_history.last.0 + 1);
        inc
    }
}

/// Committed OSD maps: a full one, what changed since, and the newest full one.
#[derive(Clone, Debug, Default)]
pub struct OsdHistory {
    /// The oldest epoch that can be told.
    pub first: Epoch,
    /// The newest committed epoch.
    pub last: Epoch,
    /// Encoded changes, `first + 1 ..= last`.
    pub incrementals: BTreeMap<Epoch, Bytes>,
    /// The full map of `first`, encoded.
    pub base: Bytes,
    /// The full map of `last`, encoded.
    pub newest: Bytes,
}

/// The last lines of the cluster and audit logs.
#[derive(Clone, Debug, Default)]
pub struct ClusterLog {
    /// Lines so far; a line's number is its version for subscribers.
    pub version: u64,
    /// The last lines, oldest first, with their numbers.
    pub entries: VecDeque<(u64, LogEntry)>,
}

/// How a health code is muted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealthMute {
    /// Until when; zero is for ever.
    pub until: UTime,
    /// Also when it clears and comes back.
    pub sticky: bool,
    /// What it said when muted.
    pub summary: String,
    /// How many it counted when muted.
    pub count: i64,
}
