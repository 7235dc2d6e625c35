//! How many PGs pools should have: each OSD is to hold `mon_target_pg_per_osd` copies of PGs,
//! shared among pools by what they hold, or are said to hold one day.
//!
//! Pools under one CRUSH root share its PGs. First those without the flag `bulk` get their part
//! of what is left; of the bulk pools then those that hold more than an even share; the rest
//! share evenly. Rounded to a power of two, kept between `pg_num_min` and `pg_num_max`. A
//! number is changed only when it is off by more than the threshold.
//!
//! Source: the peer's `pybind/mgr/pg_autoscaler/module.py`.

use std::collections::{BTreeMap, BTreeSet};

use maps::{OsdMap, PgPool, PoolFlags, PoolOpt};
use types::{EntityKind, EntityName, OsdId, PoolId};

use crate::{PgMap, raw_used_rate};

/// PGs of a pool that says nothing else: the peer's `PG_NUM_MIN`.
const PG_NUM_MIN: u32 = 32;

/// What the plan depends on besides the maps.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// `mon_target_pg_per_osd`: copies of PGs on each OSD.
    pub per_osd: f64,
    /// `mgr/pg_autoscaler/threshold`: how many times too many or too few is too far off.
    pub threshold: f64,
}

/// By how much a pool may have too many or too few PGs, where nobody set it.
const THRESHOLD: f64 = 3.0;

/// `mgr/pg_autoscaler/threshold`; at least 1.
pub(crate) fn threshold(config: &crate::ConfigDb) -> f64 {
    let mgr = EntityName::new(EntityKind::MGR, "x");
    let set = config.get(&mgr, "mgr/pg_autoscaler/threshold").and_then(|v| v.parse().ok());
    set.unwrap_or(THRESHOLD).max(1.0)
}

/// What a pool has and should have.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Which.
    pub id: PoolId,
    /// The root of its CRUSH rule.
    pub root: i32,
    /// PGs it has, or is on its way to.
    pub now: u32,
    /// Space it takes on all OSDs, bytes.
    pub raw_used: u64,
    /// As it is, or as `target_size_bytes` has it, bytes.
    pub raw_expected: f64,
    /// Bytes taken for each byte stored.
    pub rate: f64,
    /// Space of the OSDs under the root, bytes.
    pub capacity: u64,
    /// Part of that which it takes.
    pub used_ratio: f64,
    /// Part that it counts for.
    pub ratio: f64,
    /// `target_size_bytes` that counts; 0 without.
    pub target_bytes: u64,
    /// `target_size_ratio`; 0 without.
    pub target_ratio: f64,
    /// That, among those of all pools under the root.
    pub effective_ratio: f64,
    /// `pg_autoscale_bias`
    pub bias: f64,
    /// PGs by its share alone.
    pub ideal: f64,
    /// PGs it should have.
    pub last: u32,
    /// It has the flag `bulk`.
    pub bulk: bool,
    /// Too far off, and to be changed.
    pub adjust: bool,
}

/// Pools under one root.
#[derive(Debug, Default)]
struct Root {
    osds: BTreeSet<OsdId>,
    capacity: u64,
    /// Copies of PGs not yet given away.
    left: f64,
    pools: usize,
    /// Pools that have got theirs.
    served: usize,
    target_ratios: f64,
    target_bytes: f64,
}

fn number(pool: &PgPool, name: &str, default: f64) -> f64 {
    match pool.opts.get(name) {
        Some(PoolOpt::Int(n)) => *n as f64,
        Some(PoolOpt::Double(d)) => *d,
        _ => default,
    }
}

/// The power of two nearest to the whole part; the lower of two equally near.
fn nearest_power_of_two(n: f64) -> u32 {
    let n = n.clamp(0.0, f64::from(1u32 << 30)) as u32;
    if n < 2 {
        return n;
    }
    let above = n.next_power_of_two();
    let below = above / 2;
    if n - below < above - n { below } else { above }
}

/// The first root that a pool's rule takes from.
fn root_of(map: &OsdMap, pool: &PgPool) -> Option<i32> {
    let rule = map.crush.rule(u32::from(pool.crush_rule))?;
    rule.steps.iter().find(|s| s.known() == Some(crush::Op::Take)).map(|s| s.arg1)
}

fn roots(map: &OsdMap, pgmap: &PgMap, bounds: &Bounds) -> BTreeMap<i32, Root> {
    let mut roots: BTreeMap<i32, Root> = BTreeMap::new();
    for pool in map.pools.values() {
        let Some(id) = root_of(map, pool) else { continue };
        let root = roots.entry(id).or_insert_with(|| Root {
            osds: map.crush.leaves(id).into_iter().map(OsdId).collect(),
            ..Root::default()
        });
        root.pools += 1;
        let ratio = number(pool, "target_size_ratio", 0.0);
        if ratio > 0.0 {
            root.target_ratios += ratio;
        } else {
            let bytes = number(pool, "target_size_bytes", 0.0);
            root.target_bytes += bytes * raw_used_rate(map, pool);
        }
    }
    for root in roots.values_mut() {
        let stats = root.osds.iter().filter_map(|o| pgmap.osds.get(o));
        root.capacity = stats.map(|s| s.statfs.total).sum();
        root.left = root.osds.len() as f64 * bounds.per_osd;
    }
    // Whose OSDs are another's too, nobody can tell what is due to whom.
    let shared = |id: &i32, root: &Root| {
        roots.iter().any(|(other, r)| other != id && !r.osds.is_disjoint(&root.osds))
    };
    let overlapping: Vec<i32> =
        roots.iter().filter(|(id, r)| shared(id, r)).map(|(id, _)| *id).collect();
    roots.retain(|id, _| !overlapping.contains(id));
    roots
}

impl Plan {
    /// Gives the pool `copies` of PGs.
    fn give(&mut self, pool: &PgPool, copies: f64, ratio: f64, bounds: &Bounds) {
        self.ideal = copies / f64::from(pool.size.max(1)) * self.bias;
        let least = number(pool, "pg_num_min", f64::from(PG_NUM_MIN)).max(1.0) as u32;
        let most = number(pool, "pg_num_max", 0.0) as u32;
        self.last = nearest_power_of_two(self.ideal).max(least);
        if most > 0 {
            self.last = self.last.min(most);
        }
        let (now, last) = (f64::from(self.now), f64::from(self.last));
        let off = last > now * bounds.threshold || last < now / bounds.threshold;
        let fits = (0.0..=1.0).contains(&ratio);
        self.adjust = off && fits && pool.pg_autoscale_mode == 2;
    }
}

/// What each pool should have, by pool; pools under roots that overlap or have no space are
/// left out.
#[must_use]
pub fn plan(map: &OsdMap, pgmap: &PgMap, bounds: &Bounds) -> Vec<Plan> {
    let mut roots = roots(map, pgmap, bounds);
    let mut plans: BTreeMap<PoolId, Plan> = BTreeMap::new();
    for (id, pool) in map.pools.iter() {
        let Some(at) = root_of(map, pool) else { continue };
        let Some(root) = roots.get(&at).filter(|r| r.capacity > 0) else { continue };
        let (rate, capacity) = (raw_used_rate(map, pool), root.capacity as f64);
        let target_ratio = number(pool, "target_size_ratio", 0.0);
        let target_bytes =
            if target_ratio == 0.0 { number(pool, "target_size_bytes", 0.0) } else { 0.0 };
        let raw_used = pgmap.pool_raw_used(map, *id);
        let raw_expected = (raw_used as f64).max(target_bytes * rate);
        let mut effective_ratio = target_ratio;
        if root.target_ratios > 0.0 {
            effective_ratio /= root.target_ratios;
        }
        effective_ratio *= 1.0 - (root.target_bytes / capacity).min(1.0);
        let plan = Plan {
            id: *id,
            root: at,
            now: pool.pg_num_target,
            raw_used,
            raw_expected,
            rate,
            capacity: root.capacity,
            used_ratio: raw_used as f64 / capacity,
            ratio: (raw_expected / capacity).max(effective_ratio),
            target_bytes: target_bytes as u64,
            target_ratio,
            effective_ratio,
            bias: number(pool, "pg_autoscale_bias", 1.0),
            ideal: 0.0,
            last: pool.pg_num_target,
            bulk: pool.has_flag(PoolFlags::BULK),
            adjust: false,
        };
        plans.insert(*id, plan);
    }
    let mut even = Vec::new();
    for bulk in [false, true] {
        for plan in plans.values_mut().filter(|p| p.bulk == bulk) {
            let (Some(pool), Some(root)) = (map.pool(plan.id), roots.get_mut(&plan.root)) else {
                continue;
            };
            if bulk && plan.ratio <= 1.0 / (root.pools - root.served).max(1) as f64 {
                even.push(plan.id);
                continue;
            }
            let copies = plan.ratio * root.left;
            root.left -= copies.trunc();
            root.served += 1;
            plan.give(pool, copies, plan.ratio, bounds);
        }
    }
    for id in even {
        let Some(plan) = plans.get_mut(&id) else { continue };
        let (Some(pool), Some(root)) = (map.pool(id), roots.get(&plan.root)) else { continue };
        let ratio = 1.0 / (root.pools - root.served).max(1) as f64;
        plan.give(pool, ratio * root.left, ratio, bounds);
    }
    plans.into_values().collect()
}

#[cfg(test)]
impl Default for Bounds {
    fn default() -> Self {
        Self { per_osd: 100.0, threshold: THRESHOLD }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use maps::{CrushPart, OsdStat, PoolKind, StoreStatfs};
    use types::{Epoch, UTime, Uuid};

    const GIB: u64 = 1 << 30;

    /// Ten OSDs of 100 GiB.
    fn cluster() -> (OsdMap, PgMap) {
        let weights: Vec<(i32, u32)> = (0..10).map(|o| (o, 0x1_0000)).collect();
        let crush = crush::CrushMap::build_simple("host", &weights, true).unwrap();
        let mut map = OsdMap::new(Uuid::default(), Epoch(1), UTime::ZERO, 20);
        map.crush = CrushPart::new(crush);
        map.set_max_osd(10);
        let mut pgmap = PgMap::default();
        for o in 0..10 {
            let statfs = StoreStatfs { total: 100 * GIB, ..StoreStatfs::default() };
            pgmap.osds.insert(OsdId(o), OsdStat::new(statfs));
        }
        (map, pgmap)
    }

    fn add(map: &mut OsdMap, pgmap: &mut PgMap, bytes: u64, f: impl FnOnce(&mut PgPool)) -> PoolId {
        let id = PoolId(map.pools.len() as i64 + 1);
        let mut pool = PgPool::new(PoolKind::REPLICATED, 3, 2, 0, 32);
        pool.pg_autoscale_mode = 2;
        f(&mut pool);
        std::sync::Arc::make_mut(&mut map.pools).insert(id, pool);
        let stat = pgmap.pools.entry(id).or_default();
        stat.stats.sum.num_bytes = bytes as i64;
        id
    }

    fn last(map: &OsdMap, pgmap: &PgMap, id: PoolId) -> (u32, bool) {
        let plans = plan(map, pgmap, &Bounds::default());
        let plan = plans.iter().find(|p| p.id == id).unwrap();
        (plan.last, plan.adjust)
    }

    /// A pool without anything keeps the least; one that takes 60 % of the space gets that part
    /// of 1,000 copies.
    #[test]
    fn what_pools_hold_counts() {
        let (mut map, mut pgmap) = cluster();
        let empty = add(&mut map, &mut pgmap, 0, |_| ());
        let large = add(&mut map, &mut pgmap, 200 * GIB, |_| ());
        assert_eq!(last(&map, &pgmap, empty), (32, false));
        assert_eq!(last(&map, &pgmap, large), (256, true)); // 600 / 3 = 200
        let shrunk = add(&mut map, &mut pgmap, 0, |p| p.pg_num_target = 128);
        assert_eq!(last(&map, &pgmap, shrunk), (32, true));
        let near = add(&mut map, &mut pgmap, 0, |p| p.pg_num_target = 96);
        assert_eq!(last(&map, &pgmap, near), (32, false), "not more than three times too many");
        let warned = add(&mut map, &mut pgmap, 0, |p| {
            (p.pg_num_target, p.pg_autoscale_mode) = (512, 1);
        });
        assert_eq!(last(&map, &pgmap, warned), (32, false), "only warned of");
    }

    /// Bulk pools share what is left evenly before they hold anything.
    #[test]
    fn bulk_pools_share_evenly() {
        let (mut map, mut pgmap) = cluster();
        let bulk = |p: &mut PgPool| p.flags.set(PoolFlags::BULK, true);
        let a = add(&mut map, &mut pgmap, 0, bulk);
        assert_eq!(last(&map, &pgmap, a), (256, true)); // 1,000 / 3 = 333
        let b = add(&mut map, &mut pgmap, 0, bulk);
        assert_eq!(last(&map, &pgmap, b), (128, true)); // 500 / 3 = 166
        let c = add(&mut map, &mut pgmap, 266 * GIB, bulk); // 80 %: more than its share
        assert_eq!(last(&map, &pgmap, c), (256, true)); // 798 / 3 = 266
        assert_eq!(last(&map, &pgmap, a).0, 32); // 202 / 2 / 3 = 33
    }

    /// What a pool is said to hold counts before it does, and bounds are kept.
    #[test]
    fn targets_and_bounds() {
        let (mut map, mut pgmap) = cluster();
        let bytes = add(&mut map, &mut pgmap, 0, |p| {
            p.opts.set("target_size_bytes", PoolOpt::Int(100 * GIB as i64));
        });
        assert_eq!(last(&map, &pgmap, bytes), (128, true)); // 300 / 3 = 100
        let ratio = add(&mut map, &mut pgmap, 0, |p| {
            p.opts.set("target_size_ratio", PoolOpt::Double(7.0));
        });
        let plans = plan(&map, &pgmap, &Bounds::default());
        let p = plans.iter().find(|p| p.id == ratio).unwrap();
        assert!((p.effective_ratio - 0.7).abs() < 1e-9, "what bytes leave: {p:?}");
        let least = add(&mut map, &mut pgmap, 0, |p| {
            p.opts.set("pg_num_min", PoolOpt::Int(4));
            p.opts.set("pg_autoscale_bias", PoolOpt::Double(4.0));
        });
        assert_eq!(last(&map, &pgmap, least), (4, true));
        let most = add(&mut map, &mut pgmap, 300 * GIB, |p| {
            p.opts.set("pg_num_max", PoolOpt::Int(64));
        });
        assert_eq!(last(&map, &pgmap, most).0, 64);
    }

    #[test]
    fn powers_of_two() {
        for (n, near) in [(0.0, 0), (1.9, 1), (2.0, 2), (3.0, 4), (5.9, 4), (6.0, 8), (97.0, 128)] {
            assert_eq!(nearest_power_of_two(n), near, "{n}");
        }
    }
}
