//! What a server is told when it starts, and who talks to it.

use std::collections::BTreeMap;
use std::sync::Arc;

use auth::caps::MdsCap;
use maps::OsdMap;
use types::{EntityAddr, EntityId, EntityName, Epoch, Features, PoolId, SnapId};

/// What a server is told when it starts.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Its name, without `mds.`.
    pub name: String,
    /// The number of its session with the monitors; names it in maps.
    pub gid: u64,
    /// What may be changed by options.
    pub options: Options,
}

/// Options, in the units of their names.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// `mds_beacon_interval`.
    pub beacon_interval_ms: u64,
    /// `mds_reconnect_timeout`.
    pub reconnect_timeout_ms: u64,
    /// `mds_early_reply`: changes are answered before they are durable.
    pub early_reply: bool,
    /// `mds_client_prealloc_inos`.
    pub prealloc_inos: u64,
    /// Records that are not written back to the tree yet: beyond so many bytes the oldest
    /// directories are written.
    pub journal_bytes_max: u64,
    /// A changed directory is written back after this time at the latest.
    pub writeback_ms: u64,
    /// `mds_max_purge_files`.
    pub purge_files_max: usize,
    /// `mds_bal_fragment_size_max`: a fragment takes no more entries (ENOSPC).
    pub fragment_entries_max: usize,
    /// `mds_bal_split_size`: a fragment with more is split.
    pub split_entries: usize,
    /// `mds_bal_merge_size`: the fragments of a directory with fewer are merged.
    pub merge_entries: usize,
    /// `mds_session_blocklist_on_evict`, of silent clients, too.
    pub blocklist: bool,
    /// `mds_cache_memory_limit`.
    pub cache_bytes_max: u64,
    /// `mds_max_caps_per_client`.
    pub caps_per_client_max: usize,
    /// Who listings are held back for.
    pub throttle: Throttle,
    /// `mds_op_history_size`.
    pub op_history_size: usize,
    /// `mds_op_history_duration`.
    pub op_history_secs: u64,
    /// `mds_op_complaint_time`: a request in hand for longer counts as blocked.
    pub op_complaint_secs: f64,
}

/// When a client is made to wait with its listings: while it holds many caps, and was given many by
/// listings lately.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throttle {
    /// `mds_session_cap_acquisition_throttle`.
    pub acquired: u64,
    /// `mds_session_cap_acquisition_decay_rate`: after this time half of them count.
    pub half_life_ms: u64,
    /// `mds_session_max_caps_throttle_ratio`, times [`Options::caps_per_client_max`].
    pub held_ratio: f64,
    /// `mds_cap_acquisition_throttle_retry_request_timeout`.
    pub retry_ms: u64,
}

impl Default for Throttle {
    fn default() -> Self {
        Self { acquired: 100_000, half_life_ms: 30_000, held_ratio: 1.1, retry_ms: 500 }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            beacon_interval_ms: 1_000,
            reconnect_timeout_ms: 45_000,
            early_reply: true,
            prealloc_inos: 1_000,
            journal_bytes_max: 32 << 20,
            writeback_ms: 5_000,
            purge_files_max: 64,
            fragment_entries_max: 100_000,
            split_entries: 10_000,
            merge_entries: 50,
            blocklist: true,
            cache_bytes_max: 4 << 30,
            caps_per_client_max: 1 << 20,
            throttle: Throttle::default(),
            op_history_size: 20,
            op_history_secs: 600,
            op_complaint_secs: 30.0,
        }
    }
}

/// What a client's ticket proves, and where it is.
#[derive(Clone, Debug)]
pub struct Peer {
    /// By which key: `client.admin`.
    pub name: EntityName,
    /// The session with the monitors: `client.4120`.
    pub id: EntityId,
    /// What the ticket allows at metadata servers.
    pub caps: MdsCap,
    /// Where it is, with its nonce.
    pub addr: EntityAddr,
    /// Its feature word.
    pub features: Features,
}

/// What a map of OSDs says that matters here.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OsdNews {
    /// Its epoch.
    pub epoch: Epoch,
    /// All pools by name.
    pub pools: BTreeMap<PoolId, String>,
    /// Pools that take no more data.
    pub full: Vec<PoolId>,
    /// The newest snapshot that each pool knows of.
    pub snap_seqs: BTreeMap<PoolId, SnapId>,
    /// The map itself: clients that it shuts out have no session.
    pub map: Arc<OsdMap>,
}
