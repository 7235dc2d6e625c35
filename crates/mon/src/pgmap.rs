//! PG statistics as the leader keeps them: each PG's last report, sums, rates, usage.

use std::collections::BTreeMap;

use bytes::Bytes;
use denc::{Denc, Features, Writer};
use maps::{OsdMap, OsdStat, PgMapping, PgPool, PgStat, PgState, PoolStat};
use types::{OsdId, PgId, PoolId, UTime};

use crate::ClusterState;

/// PG statistics: as reported by each PG's primary.
#[derive(Clone, Debug, Default)]
pub struct PgMap {
    /// Reports so far; the `version` of `pg dump`.
    pub version: u64,
    /// When the last came.
    pub stamp: UTime,
    /// Each PG's last report; PGs that never reported stand here with no state bit
    /// (`unknown`) and the sets the map gives them.
    pub pgs: BTreeMap<PgId, PgStat>,
    /// Each OSD's last report.
    pub osds: BTreeMap<OsdId, OsdStat>,
    /// OSDs with slow operations: how many, and the oldest's age in ms.
    pub slow: BTreeMap<OsdId, (u32, u64)>,
    /// Compressed data of each OSD, by pool: bytes it takes, bytes it is.
    pub compressed: BTreeMap<OsdId, BTreeMap<PoolId, (u64, u64)>>,
    /// Sums over each pool's PGs.
    pub pools: BTreeMap<PoolId, PoolStat>,
    /// Changes per second, of the whole cluster.
    pub rates: Rates,
    /// Changes per second, by pool.
    pub pool_rates: BTreeMap<PoolId, Rates>,
    /// Since when PGs do not serve (monotonic milliseconds).
    pub inactive_since: BTreeMap<PgId, u64>,
    /// Since when PGs are not clean (monotonic milliseconds).
    pub unclean_since: BTreeMap<PgId, u64>,
    /// What the rates were computed from.
    before: BTreeMap<PoolId, (u64, maps::ObjectStatSum)>,
}

/// What happens per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Bytes read.
    pub rd_bytes: f64,
    /// Bytes written.
    pub wr_bytes: f64,
    /// Read operations.
    pub rd_ops: f64,
    /// Write operations.
    pub wr_ops: f64,
    /// Bytes recovered.
    pub recovered_bytes: f64,
    /// Objects recovered.
    pub recovered_objects: f64,
    /// Keys recovered.
    pub recovered_keys: f64,
}

/// Space in KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// All of it.
    pub kb: u64,
    /// Used of it.
    pub kb_used: u64,
    /// Free.
    pub kb_avail: u64,
    /// Objects stored.
    pub num_objects: u64,
}

/// An OSD that is out has no space that counts, whether it is up or not; as the peer's manager
/// has it.
fn without_space(stat: &OsdStat) -> OsdStat {
    OsdStat { seq: stat.seq, ..OsdStat::default() }
}

/// Which part of an OSD's space is used; `None` for an OSD without any.
#[must_use]
pub fn used_ratio(stat: &OsdStat) -> Option<f64> {
    let total = stat.statfs.total;
    (total > 0).then(|| total.saturating_sub(stat.statfs.available) as f64 / total as f64)
}

impl PgMap {
    /// Takes an OSD's report.
    pub(crate) fn report(
        &mut self,
        stamp: UTime,
        now_ms: u64,
        map: &OsdMap,
        osd: OsdId,
        stat: OsdStat,
        pgs: Vec<(PgId, PgStat)>,
    ) {
        self.version += 1;
        self.stamp = stamp;
        if map.exists(osd) {
            self.osds.insert(osd, if map.is_in(osd) { stat } else { without_space(&stat) });
        }
        for (pg, stat) in pgs {
            if !map.have_pg(pg) {
                continue;
            }
            // A report of an earlier primary comes too late.
            let newer = self.pgs.get(&pg).is_none_or(|known| {
                (known.reported_epoch, known.reported_seq)
                    <= (stat.reported_epoch, stat.reported_seq)
            });
            if newer {
                self.put(pg, stat, now_ms);
            }
        }
    }

    fn put(&mut self, pg: PgId, stat: PgStat, now_ms: u64) {
        self.note_times(pg, stat.state, now_ms);
        let pool = self.pools.entry(pg.pool).or_default();
        add(pool, &stat, 1);
        if let Some(old) = self.pgs.insert(pg, stat) {
            add(self.pools.entry(pg.pool).or_default(), &old, -1);
        }
    }

    fn note_times(&mut self, pg: PgId, state: PgState, now_ms: u64) {
        if state.has(PgState::ACTIVE) {
            self.inactive_since.remove(&pg);
        } else {
            self.inactive_since.entry(pg).or_insert(now_ms);
        }
        if state.has(PgState::CLEAN) && !state.has(PgState::STALE) {
            self.unclean_since.remove(&pg);
        } else {
            self.unclean_since.entry(pg).or_insert(now_ms);
        }
    }

    /// Follows the map: PGs that are new or gone, PGs whose primary is down.
    pub(crate) fn follow(&mut self, map: &OsdMap, mapping: &PgMapping, now_ms: u64) {
        self.osds.retain(|osd, _| map.exists(*osd));
        for (_, stat) in self.osds.iter_mut().filter(|(osd, _)| !map.is_in(**osd)) {
            *stat = without_space(stat);
        }
        self.compressed.retain(|osd, _| map.exists(*osd));
        self.slow.retain(|osd, _| map.is_up(*osd));
        let gone: Vec<PgId> = self.pgs.keys().filter(|pg| !map.have_pg(**pg)).copied().collect();
        for pg in gone {
            if let Some(old) = self.pgs.remove(&pg)
                && let Some(pool) = self.pools.get_mut(&pg.pool)
            {
                add(pool, &old, -1);
            }
            self.inactive_since.remove(&pg);
            self.unclean_since.remove(&pg);
        }
        self.pools.retain(|id, _| map.pool(*id).is_some());
        self.pool_rates.retain(|id, _| map.pool(*id).is_some());
        self.before.retain(|id, _| map.pool(*id).is_some());
        for id in map.pools.keys() {
            self.pools.entry(*id).or_default();
        }
        let mut stale = Vec::new();
        for (pg, sets) in mapping.iter() {
            match self.pgs.get(&pg) {
                None => {
                    let stat = PgStat {
                        up: sets.up.clone(),
                        acting: sets.acting.clone(),
                        up_primary: sets.up_primary.unwrap_or(OsdId(-1)),
                        acting_primary: sets.acting_primary.unwrap_or(OsdId(-1)),
                        ..PgStat::default()
                    };
                    self.put(pg, stat, now_ms);
                }
                Some(known) => {
                    let dead = known.state.0 != 0 && !map.is_up(known.acting_primary);
                    if dead && !known.state.has(PgState::STALE) {
                        stale.push(pg);
                    }
                }
            }
        }
        for pg in stale {
            if let Some(stat) = self.pgs.get_mut(&pg) {
                stat.state.set(PgState::STALE, true);
                let state = stat.state;
                self.note_times(pg, state, now_ms);
            }
        }
    }

    /// Computes rates from what was counted since the last call, about a second apart.
    pub(crate) fn compute_rates(&mut self, now_ms: u64) {
        let mut all = Rates::default();
        for (id, pool) in &self.pools {
            let sum = pool.stats.sum;
            let entry = self.before.entry(*id).or_insert((now_ms, sum));
            let secs = now_ms.saturating_sub(entry.0) as f64 / 1000.0;
            if secs < 4.5 {
                if let Some(known) = self.pool_rates.get(id) {
                    all.add(known);
                }
                continue;
            }
            let per = |new: i64, old: i64| new.saturating_sub(old).max(0) as f64 / secs;
            let old = entry.1;
            let rates = Rates {
                rd_bytes: per(sum.num_rd_kb, old.num_rd_kb) * 1024.0,
                wr_bytes: per(sum.num_wr_kb, old.num_wr_kb) * 1024.0,
                rd_ops: per(sum.num_rd, old.num_rd),
                wr_ops: per(sum.num_wr, old.num_wr),
                recovered_bytes: per(sum.num_bytes_recovered, old.num_bytes_recovered),
                recovered_objects: per(sum.num_objects_recovered, old.num_objects_recovered),
                recovered_keys: per(sum.num_keys_recovered, old.num_keys_recovered),
            };
            *entry = (now_ms, sum);
            all.add(&rates);
            self.pool_rates.insert(*id, rates);
        }
        self.rates = all;
    }

    /// The cluster's space.
    #[must_use]
    pub fn statfs(&self) -> Usage {
        let (mut total, mut avail) = (0u64, 0u64);
        for stat in self.osds.values() {
            total = total.saturating_add(stat.statfs.total);
            avail = avail.saturating_add(stat.statfs.available);
        }
        let objects = self.pools.values().map(|p| p.stats.sum.num_objects);
        let num_objects = objects.fold(0i64, i64::saturating_add);
        Usage {
            kb: total >> 10,
            kb_used: total.saturating_sub(avail) >> 10,
            kb_avail: avail >> 10,
            num_objects: num_objects.max(0) as u64,
        }
    }

    /// Bytes that can still be written to a pool: what its emptiest... fullest OSD allows,
    /// times all, divided by the copies.
    #[must_use]
    pub fn max_avail(&self, map: &OsdMap, pool: &PgPool) -> u64 {
        let rule = u32::from(pool.crush_rule);
        let weights = crate::crushops::rule_weights(&map.crush, rule);
        let total: f64 = weights.values().sum();
        if total <= 0.0 {
            return 0;
        }
        let mut least = f64::INFINITY;
        for (osd, weight) in &weights {
            if *weight <= 0.0 || !map.is_in(*osd) {
                continue;
            }
            let Some(stat) = self.osds.get(osd) else { continue };
            // What lies above the full ratio is not for users.
            let kept = stat.statfs.total as f64 * (1.0 - f64::from(map.full_ratio));
            let avail = (stat.statfs.available as f64 - kept).max(0.0);
            least = least.min(avail / (weight / total));
        }
        if least.is_finite() { (least / raw_used_rate(map, pool)) as u64 } else { 0 }
    }

    /// Compressed data of a pool on all OSDs: bytes it takes, bytes it is.
    #[must_use]
    pub fn pool_compressed(&self, id: PoolId) -> (u64, u64) {
        let of = self.compressed.values().filter_map(|pools| pools.get(&id));
        of.fold((0, 0), |sum, (a, b)| (sum.0.saturating_add(*a), sum.1.saturating_add(*b)))
    }

    /// Space that a pool takes on all OSDs, bytes, from its PGs' counts.
    #[must_use]
    pub fn pool_raw_used(&self, map: &OsdMap, id: PoolId) -> u64 {
        let sum = self.pools.get(&id).map(|p| p.stats.sum).unwrap_or_default();
        let rate = map.pool(id).map_or(1.0, |p| raw_used_rate(map, p));
        let positive = |n: i64| u64::try_from(n).unwrap_or(0);
        // Copies that are not there yet take no space.
        let copies = positive(sum.num_object_copies);
        let missing = positive(sum.num_objects_degraded).min(copies);
        let there = if copies > 0 { 1.0 - missing as f64 / copies as f64 } else { 1.0 };
        let (compressed, uncompressed) = self.pool_compressed(id);
        let stored = positive(sum.num_bytes).saturating_add(positive(sum.num_omap_bytes));
        let whole = (stored as f64 * rate * there) as u64;
        whole.saturating_sub(uncompressed.saturating_sub(compressed))
    }

    /// One pool's space, as `statfs` on a file system over it shows it.
    #[must_use]
    pub fn pool_statfs(&self, map: &OsdMap, id: PoolId, pool: &PgPool) -> Usage {
        let sum = self.pools.get(&id).map(|p| p.stats.sum).unwrap_or_default();
        let used = sum.num_bytes.max(0) as u64;
        let avail = self.max_avail(map, pool);
        Usage {
            kb: used.saturating_add(avail) >> 10,
            kb_used: used >> 10,
            kb_avail: avail >> 10,
            num_objects: sum.num_objects.max(0) as u64,
        }
    }

    /// The front of a `MGetPoolStatsReply`.
    pub(crate) fn pool_stats_reply(
        &self,
        state: &ClusterState,
        names: &[String],
        features: Features,
    ) -> Bytes {
        let mut found = BTreeMap::new();
        for name in names {
            if let Some(id) = state.osdmap.pool_by_name(name) {
                let mut stat = self.pools.get(&id).cloned().unwrap_or_default();
                let (takes, is) = self.pool_compressed(id);
                stat.store_stats.data_compressed = takes as i64;
                stat.store_stats.data_compressed_allocated = takes as i64;
                stat.store_stats.data_compressed_original = is as i64;
                found.insert(name.clone(), stat);
            }
        }
        let mut w = Writer::new(features);
        messages::Paxos { version: self.version }.encode(&mut w);
        state.fsid.encode(&mut w);
        found.encode(&mut w);
        w.bool(false); // usage is not told by pool by the stores
        w.finish()
    }
}

/// Raw bytes per byte stored.
#[must_use]
pub fn raw_used_rate(map: &OsdMap, pool: &PgPool) -> f64 {
    if pool.is_replicated() {
        return f64::from(pool.size.max(1));
    }
    let profile = map.erasure_code_profiles.get(&pool.erasure_code_profile);
    let num = |key: &str| {
        profile.and_then(|p| p.get(key)).and_then(|v| v.parse::<f64>().ok()).unwrap_or(0.0)
    };
    let (k, m) = (num("k"), num("m"));
    if k > 0.0 { (k + m) / k } else { 1.0 }
}

fn add(pool: &mut PoolStat, stat: &PgStat, sign: i64) {
    if sign > 0 {
        pool.stats.sum.add(&stat.stats.sum);
    } else {
        pool.stats.sum.sub(&stat.stats.sum);
    }
    // Reports are not trusted to be small.
    let add = |to: &mut i64, n: i64| *to = to.wrapping_add(n.wrapping_mul(sign));
    add(&mut pool.log_size, stat.log_size);
    add(&mut pool.ondisk_log_size, stat.ondisk_log_size);
    let add = |to: &mut i32, n: usize| *to = to.wrapping_add((n as i32).wrapping_mul(sign as i32));
    add(&mut pool.up, stat.up.len());
    add(&mut pool.acting, stat.acting.len());
}

impl Rates {
    fn add(&mut self, other: &Self) {
        self.rd_bytes += other.rd_bytes;
        self.wr_bytes += other.wr_bytes;
        self.rd_ops += other.rd_ops;
        self.wr_ops += other.wr_ops;
        self.recovered_bytes += other.recovered_bytes;
        self.recovered_objects += other.recovered_objects;
        self.recovered_keys += other.recovered_keys;
    }
}
