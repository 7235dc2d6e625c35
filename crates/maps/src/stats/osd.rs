//! What an OSD reports of itself.

use std::collections::BTreeMap;

use types::{DecodeError, Denc, Epoch, Features, OsdId, Reader, Writer};

use super::StoreStatfs;
use crate::wire::record;

/// Peers that read latencies in nanoseconds.
const OS_PERF_STAT_NS: Features = Features(1 << 17 | 1 << 57 | 1 << 28);

record! {
    /// A histogram with a bucket for each power of two. The peer's `pow2_hist_t`.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    Pow2Hist "pow2_hist_t", compat 1, known 1, |f| 1; {
        /// How many in each bucket.
        buckets: Vec<i32>,
    }
}

/// How long the store takes. The peer's `objectstore_perf_stat_t`: v2/2 in ns, v1/1 in ms
/// for peers without OS_PERF_STAT_NS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StorePerf {
    /// Until a write is durable.
    pub commit_latency_ns: u64,
    /// Until it can be read.
    pub apply_latency_ns: u64,
}

impl Denc for StorePerf {
    fn encode(&self, w: &mut Writer) {
        if w.has(OS_PERF_STAT_NS) {
            w.framed(2, 2, |w| {
                w.u64(self.commit_latency_ns);
                w.u64(self.apply_latency_ns);
            });
        } else {
            w.framed(1, 1, |w| {
                w.u32((self.commit_latency_ns / 1_000_000) as u32);
                w.u32((self.apply_latency_ns / 1_000_000) as u32);
            });
        }
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("objectstore_perf_stat_t", 2, |r, v| {
            let mut latency =
                || Ok(if v >= 2 { r.u64()? } else { u64::from(r.u32()?) * 1_000_000 });
            Ok(Self { commit_latency_ns: latency()?, apply_latency_ns: latency()? })
        })
    }
}

/// How long heartbeats to one peer take, in µs, on one network: averages, minima and
/// maxima of the last 1, 5 and 15 minutes, and the last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PingTimes {
    /// Averages.
    pub average: [u32; 3],
    /// Minima.
    pub min: [u32; 3],
    /// Maxima.
    pub max: [u32; 3],
    /// The last one.
    pub last: u32,
}

impl Denc for PingTimes {
    fn encode(&self, w: &mut Writer) {
        for x in [self.average, self.min, self.max].as_flattened() {
            w.u32(*x);
        }
        w.u32(self.last);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut t = Self::default();
        for x in [&mut t.average, &mut t.min, &mut t.max].into_iter().flatten() {
            *x = r.u32()?;
        }
        t.last = r.u32()?;
        Ok(t)
    }
}

/// Heartbeats to one peer. The peer's `osd_stat_t::Interfaces`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeartbeatTimes {
    /// When; seconds since 1970.
    pub last_update: u32,
    /// On the cluster's network.
    pub back: PingTimes,
    /// On the public network.
    pub front: PingTimes,
}

impl Denc for HeartbeatTimes {
    fn encode(&self, w: &mut Writer) {
        w.u32(self.last_update);
        self.back.encode(w);
        self.front.encode(w);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { last_update: r.u32()?, back: Denc::decode(r)?, front: Denc::decode(r)? })
    }
}

/// What an OSD reports. The peer's `osd_stat_t`, 14/2. Read from v14.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OsdStat {
    /// Snapshots to trim.
    pub snap_trim_queue_len: i32,
    /// Snapshots being trimmed.
    pub num_snap_trimming: i32,
    /// OSDs it exchanges heartbeats with.
    pub hb_peers: Vec<OsdId>,
    /// How old waiting operations are.
    pub op_queue_age_hist: Pow2Hist,
    /// How long its store takes.
    pub os_perf_stat: StorePerf,
    /// When it was marked up.
    pub up_from: Epoch,
    /// Counts reports.
    pub seq: u64,
    /// PGs it has.
    pub num_pgs: u32,
    /// What it holds.
    pub statfs: StoreStatfs,
    /// What its store warns of, by OSD.
    pub os_alerts: BTreeMap<i32, BTreeMap<String, String>>,
    /// Shards repaired.
    pub num_shards_repaired: u64,
    /// OSDs summed up here.
    pub num_osds: u32,
    /// Of them, those that count space by pool.
    pub num_per_pool_osds: u32,
    /// Of them, those that count omap by pool.
    pub num_per_pool_omap_osds: u32,
    /// Heartbeats by OSD.
    pub hb_pingtime: BTreeMap<i32, HeartbeatTimes>,
    /// Sums in KiB that older peers read: all, used, available, data, omap, metadata. They
    /// are written as [`Self::statfs`] gives them, and kept here only as read.
    pub kb: [i64; 6],
}

impl OsdStat {
    /// An OSD's own report of what its store holds.
    #[must_use]
    pub fn new(statfs: StoreStatfs) -> Self {
        let mut stat = Self { statfs, num_osds: 1, num_per_pool_osds: 1, ..Self::default() };
        stat.num_per_pool_omap_osds = 1;
        stat.kb = stat.kb_of_statfs();
        stat
    }

    fn kb_of_statfs(&self) -> [i64; 6] {
        let s = &self.statfs;
        [
            (s.total >> 10) as i64,
            ((s.total.wrapping_sub(s.available)) >> 10) as i64,
            (s.available >> 10) as i64,
            s.allocated >> 10,
            s.omap_allocated >> 10,
            s.internal_metadata >> 10,
        ]
    }

    /// Adds all of `other`; what an OSD reports may be any number, so sums wrap.
    pub fn add(&mut self, other: &Self) {
        self.snap_trim_queue_len = self.snap_trim_queue_len.wrapping_add(other.snap_trim_queue_len);
        self.num_snap_trimming = self.num_snap_trimming.wrapping_add(other.num_snap_trimming);
        self.num_pgs = self.num_pgs.wrapping_add(other.num_pgs);
        self.statfs.add(&other.statfs);
        self.num_shards_repaired = self.num_shards_repaired.wrapping_add(other.num_shards_repaired);
        self.num_osds = self.num_osds.wrapping_add(other.num_osds);
        self.num_per_pool_osds = self.num_per_pool_osds.wrapping_add(other.num_per_pool_osds);
        self.num_per_pool_omap_osds =
            self.num_per_pool_omap_osds.wrapping_add(other.num_per_pool_omap_osds);
        for (osd, alerts) in &other.os_alerts {
            self.os_alerts.entry(*osd).or_default().extend(alerts.clone());
        }
        self.kb = self.kb_of_statfs();
    }
}

impl Denc for OsdStat {
    fn encode(&self, w: &mut Writer) {
        w.framed(14, 2, |w| {
            let kb = self.kb_of_statfs();
            for x in &kb[..3] {
                w.i64(*x);
            }
            w.i32(self.snap_trim_queue_len);
            w.i32(self.num_snap_trimming);
            self.hb_peers.encode(w);
            w.u32(0); // hb_out, long gone
            self.op_queue_age_hist.encode(w);
            self.os_perf_stat.encode(w);
            self.up_from.encode(w);
            w.u64(self.seq);
            w.u32(self.num_pgs);
            for x in &kb[3..] {
                w.i64(*x);
            }
            self.statfs.encode(w);
            self.os_alerts.encode(w);
            w.u64(self.num_shards_repaired);
            w.u32(self.num_osds);
            w.u32(self.num_per_pool_osds);
            w.u32(self.num_per_pool_omap_osds);
            self.hb_pingtime.encode(w);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("osd_stat_t", 14, |r, v| {
            r.require(v >= 14, "OSD statistics are read from version 14 on")?;
            let mut kb = [0; 6];
            for x in &mut kb[..3] {
                *x = r.i64()?;
            }
            let mut s = Self {
                snap_trim_queue_len: r.i32()?,
                num_snap_trimming: r.i32()?,
                hb_peers: Denc::decode(r)?,
                ..Self::default()
            };
            let _: Vec<OsdId> = Denc::decode(r)?;
            s.op_queue_age_hist = Denc::decode(r)?;
            s.os_perf_stat = Denc::decode(r)?;
            s.up_from = Denc::decode(r)?;
            s.seq = r.u64()?;
            s.num_pgs = r.u32()?;
            for x in &mut kb[3..] {
                *x = r.i64()?;
            }
            s.kb = kb;
            s.statfs = Denc::decode(r)?;
            s.os_alerts = Denc::decode(r)?;
            s.num_shards_repaired = r.u64()?;
            s.num_osds = r.u32()?;
            s.num_per_pool_osds = r.u32()?;
            s.num_per_pool_omap_osds = r.u32()?;
            s.hb_pingtime = Denc::decode(r)?;
            Ok(s)
        })
    }
}
