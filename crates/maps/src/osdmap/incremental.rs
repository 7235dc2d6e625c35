//! What changes from one epoch of the OSD map to the next.

use std::collections::{BTreeMap, BTreeSet};

use stdx::crc32c;
use types::{
    AddrVec, Bytes, DecodeError, Denc, EntityAddr, Epoch, Features, OsdId, PgId, PoolId, Reader,
    UTime, Uuid, Writer,
};

use super::wire::AddrMap;
use super::{CrushPart, OsdMap, OsdMapFlags, OsdXInfo, SIGNIFICANT_FEATURES, Stretch};
use crate::pool::PgPool;
use crate::wire::{SnapIntervals, put_addr_map};

/// A delta of the OSD map. The peer's `OSDMap::Incremental`.
///
/// Wire: wrapper 8/7 { client section, OSD section, u32 crc, u32 full_crc }; the first crc
/// covers the bytes before it and `full_crc`. Client section: v9 for peers with
/// SERVER_REEF, else 8; 6 without NAUTILUS, 5 without MIMIC, 3 without LUMINOUS. OSD
/// section: v9, 10 when stretch mode changes, 11 with ranges, 12 with crimson; 6 without
/// NAUTILUS, 2 without LUMINOUS.
#[derive(Clone, Debug, PartialEq)]
pub struct Incremental {
    /// The cluster.
    pub fsid: Uuid,
    /// The epoch it leads to.
    pub epoch: Epoch,
    /// When it was made.
    pub modified: UTime,
    /// The highest pool id ever used.
    pub new_pool_max: Option<i64>,
    /// All flags.
    pub new_flags: Option<OsdMapFlags>,
    /// A whole map that replaces everything; empty for none.
    pub fullmap: Bytes,
    /// A CRUSH map; empty for none.
    pub crush: Bytes,
    /// Room for OSDs.
    pub new_max_osd: Option<i32>,
    /// Pools made or changed.
    pub new_pools: BTreeMap<PoolId, PgPool>,
    /// Pools named or renamed.
    pub new_pool_names: BTreeMap<PoolId, String>,
    /// Pools deleted.
    pub old_pools: BTreeSet<PoolId>,
    /// OSDs marked up, and where clients talk to them.
    pub new_up_client: BTreeMap<OsdId, AddrVec>,
    /// State bits **flipped**; 0 means UP.
    pub new_state: BTreeMap<OsdId, u32>,
    /// Weights.
    pub new_weight: BTreeMap<OsdId, u32>,
    /// Acting sets; empty removes.
    pub new_pg_temp: BTreeMap<PgId, Vec<OsdId>>,
    /// Primaries; -1 removes.
    pub new_primary_temp: BTreeMap<PgId, OsdId>,
    /// Affinities.
    pub new_primary_affinity: BTreeMap<OsdId, u32>,
    /// Erasure-code profiles set.
    pub new_erasure_code_profiles: BTreeMap<String, BTreeMap<String, String>>,
    /// Erasure-code profiles removed.
    pub old_erasure_code_profiles: Vec<String>,
    /// Placements set.
    pub new_pg_upmap: BTreeMap<PgId, Vec<OsdId>>,
    /// Placements removed.
    pub old_pg_upmap: BTreeSet<PgId>,
    /// Replacements set.
    pub new_pg_upmap_items: BTreeMap<PgId, Vec<(OsdId, OsdId)>>,
    /// Replacements removed.
    pub old_pg_upmap_items: BTreeSet<PgId>,
    /// Snapshots removed.
    pub new_removed_snaps: BTreeMap<PoolId, SnapIntervals>,
    /// Snapshots trimmed.
    pub new_purged_snaps: BTreeMap<PoolId, SnapIntervals>,
    /// When an OSD went up or down; zero for no change.
    pub new_last_up_change: UTime,
    /// When an OSD went in or out; zero for no change.
    pub new_last_in_change: UTime,
    /// Primaries chosen by hand.
    pub new_pg_upmap_primary: BTreeMap<PgId, OsdId>,
    /// Such choices removed.
    pub old_pg_upmap_primary: BTreeSet<PgId>,
    /// Heartbeat addresses, cluster side, of OSDs marked up.
    pub new_hb_back_up: BTreeMap<OsdId, AddrVec>,
    /// OSDs known alive through an epoch.
    pub new_up_thru: BTreeMap<OsdId, Epoch>,
    /// Clean intervals.
    pub new_last_clean_interval: BTreeMap<OsdId, (Epoch, Epoch)>,
    /// OSDs declared lost.
    pub new_lost: BTreeMap<OsdId, Epoch>,
    /// Clients shut out, until when.
    pub new_blocklist: BTreeMap<EntityAddr, UTime>,
    /// Clients let in again.
    pub old_blocklist: Vec<EntityAddr>,
    /// Cluster addresses of OSDs marked up.
    pub new_up_cluster: BTreeMap<OsdId, AddrVec>,
    /// Long without meaning.
    pub cluster_snapshot: String,
    /// Incarnations.
    pub new_uuid: BTreeMap<OsdId, Uuid>,
    /// More about OSDs.
    pub new_xinfo: BTreeMap<OsdId, OsdXInfo>,
    /// Heartbeat addresses, client side, of OSDs marked up.
    pub new_hb_front_up: BTreeMap<OsdId, AddrVec>,
    /// Which features the map was stored with. Written as the writer's features, which
    /// therefore are best given as [`SIGNIFICANT_FEATURES`] of them.
    pub encode_features: Features,
    /// A ratio.
    pub new_nearfull_ratio: Option<f32>,
    /// A ratio.
    pub new_full_ratio: Option<f32>,
    /// A ratio.
    pub new_backfillfull_ratio: Option<f32>,
    /// A release number.
    pub new_require_min_compat_client: Option<u8>,
    /// A release number.
    pub new_require_osd_release: Option<u8>,
    /// Flags by CRUSH node; 0 removes.
    pub new_crush_node_flags: BTreeMap<i32, u32>,
    /// Flags by device class; 0 removes.
    pub new_device_class_flags: BTreeMap<i32, u32>,
    /// Stretch mode.
    pub new_stretch: Option<Stretch>,
    /// Ranges shut out, until when.
    pub new_range_blocklist: BTreeMap<EntityAddr, UTime>,
    /// Ranges let in again.
    pub old_range_blocklist: Vec<EntityAddr>,
    /// Whether crimson OSDs may join.
    pub new_allow_crimson: Option<bool>,
    /// The crc of the full map this leads to, written with [`Self::encode_features`].
    pub full_crc: u32,
}

impl Default for Incremental {
    fn default() -> Self {
        Self {
            fsid: Uuid::default(),
            epoch: Epoch(0),
            modified: UTime::ZERO,
            new_pool_max: None,
            new_flags: None,
            fullmap: Bytes::new(),
            crush: Bytes::new(),
            new_max_osd: None,
            new_pools: BTreeMap::new(),
            new_pool_names: BTreeMap::new(),
            old_pools: BTreeSet::new(),
            new_up_client: BTreeMap::new(),
            new_state: BTreeMap::new(),
            new_weight: BTreeMap::new(),
            new_pg_temp: BTreeMap::new(),
            new_primary_temp: BTreeMap::new(),
            new_primary_affinity: BTreeMap::new(),
            new_erasure_code_profiles: BTreeMap::new(),
            old_erasure_code_profiles: Vec::new(),
            new_pg_upmap: BTreeMap::new(),
            old_pg_upmap: BTreeSet::new(),
            new_pg_upmap_items: BTreeMap::new(),
            old_pg_upmap_items: BTreeSet::new(),
            new_removed_snaps: BTreeMap::new(),
            new_purged_snaps: BTreeMap::new(),
            new_last_up_change: UTime::ZERO,
            new_last_in_change: UTime::ZERO,
            new_pg_upmap_primary: BTreeMap::new(),
            old_pg_upmap_primary: BTreeSet::new(),
            new_hb_back_up: BTreeMap::new(),
            new_up_thru: BTreeMap::new(),
            new_last_clean_interval: BTreeMap::new(),
            new_lost: BTreeMap::new(),
            new_blocklist: BTreeMap::new(),
            old_blocklist: Vec::new(),
            new_up_cluster: BTreeMap::new(),
            cluster_snapshot: String::new(),
            new_uuid: BTreeMap::new(),
            new_xinfo: BTreeMap::new(),
            new_hb_front_up: BTreeMap::new(),
            encode_features: Features::NONE,
            new_nearfull_ratio: None,
            new_full_ratio: None,
            new_backfillfull_ratio: None,
            new_require_min_compat_client: None,
            new_require_osd_release: None,
            new_crush_node_flags: BTreeMap::new(),
            new_device_class_flags: BTreeMap::new(),
            new_stretch: None,
            new_range_blocklist: BTreeMap::new(),
            old_range_blocklist: Vec::new(),
            new_allow_crimson: None,
            full_crc: 0,
        }
    }
}

impl Incremental {
    /// A delta that changes nothing yet.
    #[must_use]
    pub fn new(fsid: Uuid, epoch: Epoch) -> Self {
        Self { fsid, epoch, ..Self::default() }
    }

    /// Whether it changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let nothing = Self {
            modified: self.modified,
            encode_features: self.encode_features,
            full_crc: self.full_crc,
            ..Self::new(self.fsid, self.epoch)
        };
        *self == nothing
    }

    /// The pool as it will be: from here when it changes here already, else from `map`, to
    /// be changed further.
    pub fn pool_mut(&mut self, map: &OsdMap, id: PoolId) -> Option<&mut PgPool> {
        if let std::collections::btree_map::Entry::Vacant(e) = self.new_pools.entry(id) {
            e.insert(map.pool(id)?.clone());
        }
        self.new_pools.get_mut(&id)
    }

    /// The crc-checked delta of `map` to the next epoch, applied and stored: fills in
    /// [`Self::full_crc`], and gives the delta and the full map as bytes, both encoded with
    /// `features`.
    ///
    /// # Errors
    /// As [`OsdMap::apply_incremental`].
    pub fn seal(
        &mut self,
        map: &OsdMap,
        features: Features,
    ) -> Result<SealedEpoch, super::ApplyError> {
        let features = features & SIGNIFICANT_FEATURES;
        let mut next = map.clone();
        next.apply_incremental(self)?;
        let (full, crc) = next.encode_with_crc(features);
        self.full_crc = crc;
        self.encode_features = features;
        Ok(SealedEpoch { map: next, full, crc, incremental: self.to_bytes_for(features) })
    }

    /// Encoded for a peer with other features than it was stored with: the maps inside
    /// are written anew as well.
    ///
    /// # Errors
    /// [`DecodeError`] when a map inside cannot be read.
    pub fn reencode(&self, features: Features) -> Result<Bytes, DecodeError> {
        let features = features & SIGNIFICANT_FEATURES;
        let mut inc = self.clone();
        if !inc.fullmap.is_empty() {
            inc.fullmap = OsdMap::from_shared(&inc.fullmap)?.to_bytes_for(features);
        }
        if !inc.crush.is_empty() {
            inc.crush = CrushPart::from_bytes(&inc.crush)?.bytes_for(features);
        }
        Ok(inc.to_bytes_for(features))
    }

    fn client_version(f: Features) -> u8 {
        if !f.has(Features::SERVER_LUMINOUS) {
            3
        } else if !f.has(Features::SERVER_MIMIC) {
            5
        } else if !f.has(Features::SERVER_NAUTILUS) {
            6
        } else if !f.has(Features::SERVER_REEF) {
            8
        } else {
            9
        }
    }

    fn osd_version(&self, f: Features) -> u8 {
        let base = if !f.has(Features::SERVER_LUMINOUS) {
            2
        } else if !f.has(Features::SERVER_NAUTILUS) {
            6
        } else {
            9
        };
        if self.new_allow_crimson.is_some() {
            12
        } else if !self.new_range_blocklist.is_empty() || !self.old_range_blocklist.is_empty() {
            11
        } else if self.new_stretch.is_some() {
            10
        } else {
            base
        }
    }

    fn encode_client(&self, w: &mut Writer, v: u8) {
        self.fsid.encode(w);
        self.epoch.encode(w);
        self.modified.encode(w);
        w.i64(self.new_pool_max.unwrap_or(-1));
        w.i32(self.new_flags.map_or(-1, |f| f.0 as i32));
        w.blob(&self.fullmap);
        w.blob(&self.crush);
        w.i32(self.new_max_osd.unwrap_or(-1));
        self.new_pools.encode(w);
        self.new_pool_names.encode(w);
        self.old_pools.encode(w);
        put_addrs(w, &self.new_up_client, v >= 7);
        if v >= 5 {
            self.new_state.encode(w);
        } else {
            w.seq(&self.new_state, |w, (osd, s)| {
                osd.encode(w);
                w.u8(*s as u8);
            });
        }
        self.new_weight.encode(w);
        self.new_pg_temp.encode(w);
        self.new_primary_temp.encode(w);
        self.new_primary_affinity.encode(w);
        self.new_erasure_code_profiles.encode(w);
        self.old_erasure_code_profiles.encode(w);
        if v >= 4 {
            self.new_pg_upmap.encode(w);
            self.old_pg_upmap.encode(w);
            self.new_pg_upmap_items.encode(w);
            self.old_pg_upmap_items.encode(w);
        }
        if v >= 6 {
            self.new_removed_snaps.encode(w);
            self.new_purged_snaps.encode(w);
        }
        if v >= 8 {
            self.new_last_up_change.encode(w);
            self.new_last_in_change.encode(w);
        }
        if v >= 9 {
            self.new_pg_upmap_primary.encode(w);
            self.old_pg_upmap_primary.encode(w);
        }
    }

    fn encode_osd(&self, w: &mut Writer, v: u8) {
        put_addrs(w, &self.new_hb_back_up, v >= 7);
        self.new_up_thru.encode(w);
        self.new_last_clean_interval.encode(w);
        self.new_lost.encode(w);
        put_addr_map(w, self.new_blocklist.iter());
        self.old_blocklist.encode(w);
        put_addrs(w, &self.new_up_cluster, v >= 7);
        w.str(&self.cluster_snapshot);
        self.new_uuid.encode(w);
        self.new_xinfo.encode(w);
        put_addrs(w, &self.new_hb_front_up, v >= 7);
        w.u64(w.features().0);
        if v >= 3 {
            w.f32(self.new_nearfull_ratio.unwrap_or(-1.0));
            w.f32(self.new_full_ratio.unwrap_or(-1.0));
            w.f32(self.new_backfillfull_ratio.unwrap_or(-1.0));
        }
        if v >= 6 {
            w.u8(self.new_require_min_compat_client.unwrap_or(0xff));
            w.u8(self.new_require_osd_release.unwrap_or(0xff));
        }
        if v >= 8 {
            self.new_crush_node_flags.encode(w);
        }
        if v >= 9 {
            self.new_device_class_flags.encode(w);
        }
        if v >= 10 {
            let s = self.new_stretch.unwrap_or_default();
            w.bool(self.new_stretch.is_some());
            w.u32(s.bucket_count);
            w.u32(s.degraded);
            w.u32(s.recovering);
            w.i32(s.bucket);
            w.bool(s.enabled);
        }
        if v >= 11 {
            put_addr_map(w, self.new_range_blocklist.iter());
            self.old_range_blocklist.encode(w);
        }
        if v >= 12 {
            w.u8(match self.new_allow_crimson {
                None => 0,
                Some(true) => 1,
                Some(false) => 2,
            });
        }
    }

    fn decode_client(&mut self, r: &mut Reader<'_>, v: u8) -> Result<(), DecodeError> {
        self.fsid = Denc::decode(r)?;
        self.epoch = Denc::decode(r)?;
        self.modified = Denc::decode(r)?;
        self.new_pool_max = Some(r.i64()?).filter(|x| *x != -1);
        self.new_flags = Some(r.i32()?).filter(|x| *x >= 0).map(|x| OsdMapFlags(x as u32));
        self.fullmap = r.blob()?;
        self.crush = r.blob()?;
        self.new_max_osd = Some(r.i32()?).filter(|x| *x >= 0);
        self.new_pools = Denc::decode(r)?;
        self.new_pool_names = Denc::decode(r)?;
        self.old_pools = Denc::decode(r)?;
        self.new_up_client = Denc::decode(r)?; // reads single addresses too
        self.new_state = if v >= 5 {
            Denc::decode(r)?
        } else {
            let old: BTreeMap<OsdId, u8> = Denc::decode(r)?;
            old.into_iter().map(|(osd, s)| (osd, u32::from(s))).collect()
        };
        self.new_weight = Denc::decode(r)?;
        self.new_pg_temp = Denc::decode(r)?;
        self.new_primary_temp = Denc::decode(r)?;
        self.new_primary_affinity = Denc::decode(r)?;
        self.new_erasure_code_profiles = Denc::decode(r)?;
        self.old_erasure_code_profiles = Denc::decode(r)?;
        if v >= 4 {
            self.new_pg_upmap = Denc::decode(r)?;
            self.old_pg_upmap = Denc::decode(r)?;
            self.new_pg_upmap_items = Denc::decode(r)?;
            self.old_pg_upmap_items = Denc::decode(r)?;
        }
        if v >= 6 {
            self.new_removed_snaps = Denc::decode(r)?;
            self.new_purged_snaps = Denc::decode(r)?;
        }
        if v >= 8 {
            self.new_last_up_change = Denc::decode(r)?;
            self.new_last_in_change = Denc::decode(r)?;
        }
        if v >= 9 {
            self.new_pg_upmap_primary = Denc::decode(r)?;
            self.old_pg_upmap_primary = Denc::decode(r)?;
        }
        Ok(())
    }

    fn decode_osd(&mut self, r: &mut Reader<'_>, v: u8) -> Result<(), DecodeError> {
        self.new_hb_back_up = Denc::decode(r)?;
        self.new_up_thru = Denc::decode(r)?;
        self.new_last_clean_interval = Denc::decode(r)?;
        self.new_lost = Denc::decode(r)?;
        self.new_blocklist = AddrMap::decode(r)?;
        self.old_blocklist = Denc::decode(r)?;
        self.new_up_cluster = Denc::decode(r)?;
        self.cluster_snapshot = r.string()?;
        self.new_uuid = Denc::decode(r)?;
        self.new_xinfo = Denc::decode(r)?;
        self.new_hb_front_up = Denc::decode(r)?;
        self.encode_features = Features(if v >= 2 { r.u64()? } else { 0 });
        if v >= 3 {
            let ratio = |x: f32| Some(x).filter(|x| *x >= 0.0);
            self.new_nearfull_ratio = ratio(r.f32()?);
            self.new_full_ratio = ratio(r.f32()?);
            self.new_backfillfull_ratio = ratio(r.f32()?);
        }
        if v >= 6 {
            self.new_require_min_compat_client = Some(r.u8()?).filter(|x| *x < 0x80);
            self.new_require_osd_release = Some(r.u8()?).filter(|x| *x < 0x80);
        }
        if v >= 8 {
            self.new_crush_node_flags = Denc::decode(r)?;
        }
        if v >= 9 {
            self.new_device_class_flags = Denc::decode(r)?;
        }
        if v >= 10 {
            let changes = r.bool()?;
            let mut s = Stretch {
                bucket_count: r.u32()?,
                degraded: r.u32()?,
                recovering: r.u32()?,
                bucket: r.i32()?,
                enabled: false,
            };
            s.enabled = r.bool()?;
            self.new_stretch = changes.then_some(s);
        }
        if v >= 11 {
            self.new_range_blocklist = AddrMap::decode(r)?;
            self.old_range_blocklist = Denc::decode(r)?;
        }
        if v >= 12 {
            self.new_allow_crimson = match r.u8()? {
                1 => Some(true),
                2 => Some(false),
                _ => None,
            };
        }
        Ok(())
    }
}

/// An epoch as the monitor stores it.
#[derive(Clone, Debug)]
pub struct SealedEpoch {
    /// The new map.
    pub map: OsdMap,
    /// It, encoded.
    pub full: Bytes,
    /// The crc in `full`.
    pub crc: u32,
    /// The delta that leads to it, encoded.
    pub incremental: Bytes,
}

fn put_addrs(w: &mut Writer, map: &BTreeMap<OsdId, AddrVec>, vectors: bool) {
    w.seq(map, |w, (osd, addrs)| {
        osd.encode(w);
        if vectors {
            addrs.encode(w);
        } else {
            addrs.legacy().encode(w);
        }
    });
}

impl Denc for Incremental {
    fn encode(&self, w: &mut Writer) {
        let start = w.len();
        let mut crc_at = 0;
        w.framed(8, 7, |w| {
            let v = Self::client_version(w.features());
            w.framed(v, 1, |w| self.encode_client(w, v));
            let v = self.osd_version(w.features());
            w.framed(v, 1, |w| self.encode_osd(w, v));
            crc_at = w.len();
            w.u32(0);
            w.u32(self.full_crc);
        });
        let bytes = w.as_slice();
        let crc = crc32c(crc32c(!0, &bytes[start..crc_at]), &bytes[crc_at + 4..]);
        w.patch(crc_at, &crc.to_le_bytes());
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Self::get(r, true)
    }
}

impl Incremental {
    /// Reads a delta whatever its crc, for fuzzing.
    pub(crate) fn decode_unchecked(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Self::get(r, false)
    }

    fn get(r: &mut Reader<'_>, check: bool) -> Result<Self, DecodeError> {
        let start = r.offset();
        r.framed("OSDMap::Incremental", 8, |r, v| {
            r.require(v >= 7, "OSD map deltas are read from version 7 on")?;
            let mut inc = Self::default();
            r.framed("Incremental client section", 9, |r, v| inc.decode_client(r, v))?;
            r.framed("Incremental OSD section", 12, |r, v| inc.decode_osd(r, v))?;
            if v >= 8 {
                let crc_at = r.offset();
                let crc = r.u32()?;
                inc.full_crc = r.u32()?;
                r.rest();
                let end = r.offset();
                let computed =
                    crc32c(crc32c(!0, r.passed(start, crc_at)), r.passed(crc_at + 4, end));
                r.require(crc == computed || !check, "a delta's crc fits its bytes")?;
            }
            Ok(inc)
        })
    }
}
