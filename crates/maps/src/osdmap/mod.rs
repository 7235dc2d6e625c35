//! The OSD map: which OSDs there are, which serve, which pools there are, and how PGs are
//! placed.

mod apply;
mod crush_part;
mod incremental;
mod mapping;
mod osd;
mod pg_mapping;
mod wire;

use std::collections::BTreeMap;
use std::sync::Arc;

use types::{
    AddrVec, DecodeError, Denc, EntityAddr, Epoch, Features, OsdId, PgId, PoolId, Reader, UTime,
    Uuid, Writer,
};

pub use apply::ApplyError;
pub use crush_part::CrushPart;
pub use incremental::{Incremental, SealedEpoch};
pub use mapping::{PgSets, is_new_interval, pg_num_matters};
pub use osd::{OsdInfo, OsdState, OsdXInfo};
pub use pg_mapping::PgMapping;
pub use wire::peek_epoch;

use crate::pool::PgPool;
use crate::wire::SnapIntervals;

/// Flags of the whole map; the peer's `CEPH_OSDMAP_*`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OsdMapFlags(pub u32);

macro_rules! flags {
    ($($(#[$doc:meta])* $name:ident = $bit:expr, $text:literal;)*) => {
        impl OsdMapFlags {
            $($(#[$doc])* pub const $name: Self = Self($bit);)*
            /// Flags and their names, in bit order.
            pub const NAMES: &'static [(Self, &'static str)] = &[$((Self::$name, $text)),*];
        }
    };
}
flags! {
    /// Long without meaning.
    NEARFULL = 1, "nearfull";
    /// No writes: the cluster is full (set by old releases).
    FULL = 1 << 1, "full";
    /// Reads wait.
    PAUSERD = 1 << 2, "pauserd";
    /// Writes wait.
    PAUSEWR = 1 << 3, "pausewr";
    /// Recovery waits.
    PAUSEREC = 1 << 4, "pauserec";
    /// No OSD is marked up.
    NOUP = 1 << 5, "noup";
    /// No OSD is marked down.
    NODOWN = 1 << 6, "nodown";
    /// No OSD is marked out.
    NOOUT = 1 << 7, "noout";
    /// No OSD is marked in.
    NOIN = 1 << 8, "noin";
    /// No backfill.
    NOBACKFILL = 1 << 9, "nobackfill";
    /// No recovery.
    NORECOVER = 1 << 10, "norecover";
    /// No scrubs.
    NOSCRUB = 1 << 11, "noscrub";
    /// No deep scrubs.
    NODEEP_SCRUB = 1 << 12, "nodeep-scrub";
    /// No cache tiering.
    NOTIERAGENT = 1 << 13, "notieragent";
    /// No backfill of PGs that are only misplaced.
    NOREBALANCE = 1 << 14, "norebalance";
    /// Objects are sorted by their hash's bits; always set.
    SORTBITWISE = 1 << 15, "sortbitwise";
    /// Old form of `require_osd_release`.
    REQUIRE_JEWEL = 1 << 16, "require_jewel_osds";
    /// Old form of `require_osd_release`.
    REQUIRE_KRAKEN = 1 << 17, "require_kraken_osds";
    /// Old form of `require_osd_release`.
    REQUIRE_LUMINOUS = 1 << 18, "require_luminous_osds";
    /// Deletions are done in recovery.
    RECOVERY_DELETES = 1 << 19, "recovery_deletes";
    /// Snapshot directories are gone.
    PURGED_SNAPDIRS = 1 << 20, "purged_snapdirs";
    /// No trimming of snapshots.
    NOSNAPTRIM = 1 << 21, "nosnaptrim";
    /// PG logs are bounded.
    PGLOG_HARDLIMIT = 1 << 22, "pglog_hardlimit";
    /// No automatic change of `pg_num`.
    NOAUTOSCALE = 1 << 23, "noautoscale";
}

impl OsdMapFlags {
    /// What a fresh cluster has.
    pub const FRESH: Self = Self(0x58_8000);

    /// Whether all bits of `other` are set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Sets or clears the bits of `other`.
    pub const fn set(&mut self, other: Self, on: bool) {
        if on {
            self.0 |= other.0;
        } else {
            self.0 &= !other.0;
        }
    }

    /// The flag with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|x| x.1 == name).map(|x| x.0)
    }
}

/// Comma-separated names, as the peer prints them.
impl std::fmt::Display for OsdMapFlags {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = Self::NAMES.iter().filter(|x| self.has(x.0)).map(|x| x.1).collect();
        f.write_str(&names.join(","))
    }
}

impl Denc for OsdMapFlags {
    fn encode(&self, w: &mut Writer) {
        w.u32(self.0);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.u32().map(Self)
    }
}

/// Feature bits that change how an OSD map is written, release 20.2.4; what such a
/// cluster's `encode_features` show. Two peers that agree in these read the same bytes.
pub const SIGNIFICANT_FEATURES: Features = Features(0x0f04_0880_9021_2a04);

/// As [`SIGNIFICANT_FEATURES`] in release 16.2.
pub const SIGNIFICANT_FEATURES_PACIFIC: Features = Features(0x0f00_0880_1021_2a04);

/// Weight 1.0, and the affinity of an OSD that is primary as often as its place says.
pub const WEIGHT_ONE: u32 = 0x1_0000;

/// The OSD map. The peer's `OSDMap`.
///
/// Cloning is cheap: big parts are shared until changed (`Arc::make_mut`), so many epochs
/// may be held at once.
///
/// Invariant: the vectors by OSD all are `max_osd` long, but `primary_affinity`, which is
/// empty as long as all have the default.
#[derive(Clone, Debug, PartialEq)]
pub struct OsdMap {
    /// The cluster.
    pub fsid: Uuid,
    /// Version of this map.
    pub epoch: Epoch,
    /// When the cluster was made.
    pub created: UTime,
    /// When this epoch was made.
    pub modified: UTime,
    /// Pools.
    pub pools: Arc<BTreeMap<PoolId, PgPool>>,
    /// Their names.
    pub pool_names: Arc<BTreeMap<PoolId, String>>,
    /// Highest pool id ever used.
    pub pool_max: i32,
    /// Flags.
    pub flags: OsdMapFlags,
    /// One more than the highest OSD number.
    pub max_osd: i32,
    /// State bits by OSD.
    pub osd_state: Arc<Vec<OsdState>>,
    /// 16.16 fixed point: 0 out, 0x10000 in.
    pub osd_weight: Arc<Vec<u32>>,
    /// Where clients talk to it.
    pub client_addrs: Arc<Vec<AddrVec>>,
    /// Acting sets that differ from the computed ones.
    pub pg_temp: Arc<BTreeMap<PgId, Vec<OsdId>>>,
    /// Primaries that differ from the computed ones.
    pub primary_temp: Arc<BTreeMap<PgId, OsdId>>,
    /// 16.16 fixed point; empty when all are 1.
    pub primary_affinity: Arc<Vec<u32>>,
    /// The CRUSH map.
    pub crush: CrushPart,
    /// Erasure-code profiles by name.
    pub erasure_code_profiles: Arc<BTreeMap<String, BTreeMap<String, String>>>,
    /// Placements that replace the computed ones.
    pub pg_upmap: Arc<BTreeMap<PgId, Vec<OsdId>>>,
    /// Single OSDs replaced in computed placements, from and to.
    pub pg_upmap_items: Arc<BTreeMap<PgId, Vec<(OsdId, OsdId)>>>,
    /// Counts changes of the CRUSH map.
    pub crush_version: i32,
    /// Snapshots removed in this epoch.
    pub new_removed_snaps: BTreeMap<PoolId, SnapIntervals>,
    /// Snapshots fully trimmed as of this epoch.
    pub new_purged_snaps: BTreeMap<PoolId, SnapIntervals>,
    /// When an OSD last went up or down.
    pub last_up_change: UTime,
    /// When an OSD last went in or out.
    pub last_in_change: UTime,
    /// Primaries chosen by hand. Peers without SERVER_REEF cannot be told.
    pub pg_upmap_primaries: Arc<BTreeMap<PgId, OsdId>>,
    /// Heartbeats, cluster side.
    pub hb_back_addrs: Arc<Vec<AddrVec>>,
    /// Epochs by OSD.
    pub osd_info: Arc<Vec<OsdInfo>>,
    /// Clients shut out, until when.
    pub blocklist: Arc<BTreeMap<EntityAddr, UTime>>,
    /// Where OSDs talk to it.
    pub cluster_addrs: Arc<Vec<AddrVec>>,
    /// Long without meaning.
    pub cluster_snapshot_epoch: Epoch,
    /// Long without meaning.
    pub cluster_snapshot: String,
    /// Incarnations by OSD.
    pub osd_uuid: Arc<Vec<Uuid>>,
    /// More by OSD.
    pub osd_xinfo: Arc<Vec<OsdXInfo>>,
    /// Heartbeats, client side.
    pub hb_front_addrs: Arc<Vec<AddrVec>>,
    /// Warn from this use on.
    pub nearfull_ratio: f32,
    /// No writes from this use on.
    pub full_ratio: f32,
    /// No backfill from this use on.
    pub backfillfull_ratio: f32,
    /// Oldest release a client may be; 0 is any.
    pub require_min_compat_client: u8,
    /// Oldest release an OSD may be.
    pub require_osd_release: u8,
    /// Removed snapshots that are still being trimmed.
    pub removed_snaps_queue: Arc<BTreeMap<PoolId, SnapIntervals>>,
    /// Flags (`OsdState::NOUP` and so on) by CRUSH node.
    pub crush_node_flags: BTreeMap<i32, u32>,
    /// Flags by device class.
    pub device_class_flags: BTreeMap<i32, u32>,
    /// Stretch mode.
    pub stretch: Stretch,
    /// Address ranges shut out, until when.
    pub range_blocklist: BTreeMap<EntityAddr, UTime>,
    /// Crimson OSDs may join.
    pub allow_crimson: bool,
}

/// Stretch mode of the map. On the wire only when enabled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stretch {
    /// Whether it is on.
    pub enabled: bool,
    /// Sites.
    pub bucket_count: u32,
    /// Sites left, when degraded; else 0.
    pub degraded: u32,
    /// Whether sites recover.
    pub recovering: u32,
    /// Type of the sites' buckets.
    pub bucket: i32,
}

impl Default for OsdMap {
    fn default() -> Self {
        Self {
            fsid: Uuid::default(),
            epoch: Epoch(0),
            created: UTime::ZERO,
            modified: UTime::ZERO,
            pools: Arc::default(),
            pool_names: Arc::default(),
            pool_max: 0,
            flags: OsdMapFlags::default(),
            max_osd: 0,
            osd_state: Arc::default(),
            osd_weight: Arc::default(),
            client_addrs: Arc::default(),
            pg_temp: Arc::default(),
            primary_temp: Arc::default(),
            primary_affinity: Arc::default(),
            crush: CrushPart::default(),
            erasure_code_profiles: Arc::default(),
            pg_upmap: Arc::default(),
            pg_upmap_items: Arc::default(),
            crush_version: 1,
            new_removed_snaps: BTreeMap::new(),
            new_purged_snaps: BTreeMap::new(),
            last_up_change: UTime::ZERO,
            last_in_change: UTime::ZERO,
            pg_upmap_primaries: Arc::default(),
            hb_back_addrs: Arc::default(),
            osd_info: Arc::default(),
            blocklist: Arc::default(),
            cluster_addrs: Arc::default(),
            cluster_snapshot_epoch: Epoch(0),
            cluster_snapshot: String::new(),
            osd_uuid: Arc::default(),
            osd_xinfo: Arc::default(),
            hb_front_addrs: Arc::default(),
            nearfull_ratio: 0.0,
            full_ratio: 0.0,
            backfillfull_ratio: 0.0,
            require_min_compat_client: 0,
            require_osd_release: 0,
            removed_snaps_queue: Arc::default(),
            crush_node_flags: BTreeMap::new(),
            device_class_flags: BTreeMap::new(),
            stretch: Stretch::default(),
            range_blocklist: BTreeMap::new(),
            allow_crimson: false,
        }
    }
}

impl OsdMap {
    /// A first map of a cluster without OSDs and pools: flags and ratios as a fresh
    /// cluster has them.
    #[must_use]
    pub fn new(fsid: Uuid, epoch: Epoch, now: UTime, require_osd_release: u8) -> Self {
        Self {
            fsid,
            epoch,
            created: now,
            modified: now,
            flags: OsdMapFlags::FRESH,
            nearfull_ratio: 0.85,
            full_ratio: 0.95,
            backfillfull_ratio: 0.90,
            require_osd_release,
            require_min_compat_client: 12,
            ..Self::default()
        }
    }

    fn index(&self, osd: OsdId) -> Option<usize> {
        usize::try_from(osd.0).ok().filter(|_| osd.0 < self.max_osd)
    }

    /// The state bits of an OSD; none beyond `max_osd`.
    #[must_use]
    pub fn state(&self, osd: OsdId) -> OsdState {
        self.index(osd).and_then(|i| self.osd_state.get(i)).copied().unwrap_or_default()
    }

    /// Whether the OSD has been created.
    #[must_use]
    pub fn exists(&self, osd: OsdId) -> bool {
        self.state(osd).has(OsdState::EXISTS)
    }

    /// Whether the OSD exists and serves.
    #[must_use]
    pub fn is_up(&self, osd: OsdId) -> bool {
        self.state(osd).has(OsdState(OsdState::EXISTS.0 | OsdState::UP.0))
    }

    /// Not [`Self::is_up`].
    #[must_use]
    pub fn is_down(&self, osd: OsdId) -> bool {
        !self.is_up(osd)
    }

    /// Whether the OSD exists and gets data.
    #[must_use]
    pub fn is_in(&self, osd: OsdId) -> bool {
        self.exists(osd) && self.weight(osd) != 0
    }

    /// Not [`Self::is_in`].
    #[must_use]
    pub fn is_out(&self, osd: OsdId) -> bool {
        !self.is_in(osd)
    }

    /// Its weight, 16.16; 0 beyond `max_osd`.
    #[must_use]
    pub fn weight(&self, osd: OsdId) -> u32 {
        self.index(osd).and_then(|i| self.osd_weight.get(i)).copied().unwrap_or(0)
    }

    /// Its primary affinity, 16.16.
    #[must_use]
    pub fn affinity(&self, osd: OsdId) -> u32 {
        self.index(osd).and_then(|i| self.primary_affinity.get(i)).copied().unwrap_or(WEIGHT_ONE)
    }

    /// Its epochs.
    #[must_use]
    pub fn info(&self, osd: OsdId) -> OsdInfo {
        self.index(osd).and_then(|i| self.osd_info.get(i)).copied().unwrap_or_default()
    }

    /// More about it.
    #[must_use]
    pub fn xinfo(&self, osd: OsdId) -> OsdXInfo {
        self.index(osd).and_then(|i| self.osd_xinfo.get(i)).copied().unwrap_or_default()
    }

    /// Its incarnation; zero when it never booted.
    #[must_use]
    pub fn uuid(&self, osd: OsdId) -> Uuid {
        self.index(osd).and_then(|i| self.osd_uuid.get(i)).copied().unwrap_or_default()
    }

    /// When it was marked up last.
    #[must_use]
    pub fn up_from(&self, osd: OsdId) -> Epoch {
        self.info(osd).up_from
    }

    /// Where clients talk to it.
    #[must_use]
    pub fn osd_addrs(&self, osd: OsdId) -> Option<&AddrVec> {
        self.client_addrs.get(self.index(osd)?)
    }

    /// Where OSDs talk to it.
    #[must_use]
    pub fn osd_cluster_addrs(&self, osd: OsdId) -> Option<&AddrVec> {
        self.cluster_addrs.get(self.index(osd)?)
    }

    /// Its heartbeat addresses, cluster side and client side.
    #[must_use]
    pub fn osd_hb_addrs(&self, osd: OsdId) -> Option<(&AddrVec, &AddrVec)> {
        let i = self.index(osd)?;
        Some((self.hb_back_addrs.get(i)?, self.hb_front_addrs.get(i)?))
    }

    /// The OSDs that exist, ascending.
    pub fn osds(&self) -> impl DoubleEndedIterator<Item = OsdId> + '_ {
        (0..self.max_osd).map(OsdId).filter(|o| self.exists(*o))
    }

    /// OSDs that exist, are up, are in.
    #[must_use]
    pub fn osd_counts(&self) -> (usize, usize, usize) {
        self.osds().fold((0, 0, 0), |(n, up, r#in), o| {
            (n + 1, up + usize::from(self.is_up(o)), r#in + usize::from(self.is_in(o)))
        })
    }

    /// The pool.
    #[must_use]
    pub fn pool(&self, id: PoolId) -> Option<&PgPool> {
        self.pools.get(&id)
    }

    /// The pool's name.
    #[must_use]
    pub fn pool_name(&self, id: PoolId) -> Option<&str> {
        self.pool_names.get(&id).map(String::as_str)
    }

    /// The pool with this name.
    #[must_use]
    pub fn pool_by_name(&self, name: &str) -> Option<PoolId> {
        self.pool_names.iter().find(|(_, n)| *n == name).map(|(id, _)| *id)
    }

    /// Whether a PG exists.
    #[must_use]
    pub fn have_pg(&self, pg: PgId) -> bool {
        self.pool(pg.pool).is_some_and(|p| pg.ps < p.pg_num)
    }

    /// Whether a flag is set.
    #[must_use]
    pub const fn has_flag(&self, flag: OsdMapFlags) -> bool {
        self.flags.has(flag)
    }

    /// Until when the client at `addr` is shut out, if it is: by its address, by its whole
    /// host (an entry with port and nonce 0), or by a range. The protocol does not matter.
    #[must_use]
    pub fn blocklisted_until(&self, addr: &EntityAddr) -> Option<UTime> {
        use std::net::SocketAddr;
        use types::AddrKind;
        if self.blocklist.is_empty() && self.range_blocklist.is_empty() {
            return None;
        }
        let host =
            EntityAddr { sock: addr.sock.map(|s| SocketAddr::new(s.ip(), 0)), nonce: 0, ..*addr };
        // Entries are filed under "any" since release 14 and under "v1" before.
        for a in [*addr, host] {
            for kind in [AddrKind::ANY, AddrKind::LEGACY, AddrKind::MSGR2] {
                if let Some(until) = self.blocklist.get(&a.with_kind(kind)) {
                    return Some(*until);
                }
            }
        }
        self.range_blocklist.iter().find(|(range, _)| in_range(range, addr)).map(|(_, t)| *t)
    }

    /// Whether any of these addresses is shut out.
    #[must_use]
    pub fn is_blocklisted(&self, addrs: &AddrVec) -> bool {
        addrs.0.iter().any(|a| self.blocklisted_until(a).is_some())
    }

    /// The features that all maps like this one are stored with: bits of
    /// [`SIGNIFICANT_FEATURES`] below what `require_osd_release` grants removed.
    #[must_use]
    pub const fn canonical_features(&self) -> Features {
        if self.require_osd_release >= 20 {
            SIGNIFICANT_FEATURES
        } else if self.require_osd_release >= 18 {
            Features(SIGNIFICANT_FEATURES_PACIFIC.0 | 1 << 31)
        } else {
            SIGNIFICANT_FEATURES_PACIFIC
        }
    }

    /// Makes room for OSDs below `max` (or takes it away).
    pub fn set_max_osd(&mut self, max: i32) {
        let n = usize::try_from(max).unwrap_or(0);
        self.max_osd = n as i32;
        fn resize<T: Clone>(v: &mut Arc<Vec<T>>, n: usize, fill: T) {
            if v.len() != n {
                Arc::make_mut(v).resize(n, fill);
            }
        }
        resize(&mut self.osd_state, n, OsdState::default());
        resize(&mut self.osd_weight, n, 0);
        resize(&mut self.client_addrs, n, AddrVec::default());
        resize(&mut self.cluster_addrs, n, AddrVec::default());
        resize(&mut self.hb_back_addrs, n, AddrVec::default());
        resize(&mut self.hb_front_addrs, n, AddrVec::default());
        resize(&mut self.osd_info, n, OsdInfo::default());
        resize(&mut self.osd_xinfo, n, OsdXInfo::default());
        resize(&mut self.osd_uuid, n, Uuid::default());
        if !self.primary_affinity.is_empty() {
            resize(&mut self.primary_affinity, n, WEIGHT_ONE);
        }
    }

    /// Sets an OSD's primary affinity; OSDs beyond `max_osd` are left alone.
    pub fn set_primary_affinity(&mut self, osd: OsdId, affinity: u32) {
        let Some(i) = self.index(osd) else { return };
        if self.primary_affinity.is_empty() {
            // The peer makes the vector even for the default, and its crc shows that.
            self.primary_affinity = Arc::new(vec![WEIGHT_ONE; self.max_osd as usize]);
        }
        Arc::make_mut(&mut self.primary_affinity)[i] = affinity;
    }
}

/// Whether `addr` lies in a range entry, whose nonce is the prefix length.
fn in_range(range: &EntityAddr, addr: &EntityAddr) -> bool {
    use std::net::IpAddr;
    let bits = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => (u128::from(ip.to_bits()) << 96, 32),
        IpAddr::V6(ip) => (ip.to_bits(), 128),
    };
    let (Some(range_sock), Some(sock)) = (range.sock, addr.sock) else { return false };
    let ((a, width), (b, other)) = (bits(range_sock.ip()), bits(sock.ip()));
    let prefix = range.nonce.min(width);
    width == other && (prefix == 0 || (a ^ b) >> (128 - prefix) == 0)
}
