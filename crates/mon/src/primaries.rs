//! Spreading reads evenly: exceptions to who leads a PG (`pg_upmap_primaries`), where the
//! copies stay as they are.
//!
//! In a replicated pool an OSD should lead PGs in proportion to those that it holds and to its
//! primary affinity. No data moves for it.
//!
//! Source: the peer's `OSDMap::balance_primaries`; the choice among equals is ours.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use maps::OsdMap;
use types::{OsdId, PgId, PoolId};

/// Who is to lead; none: whom CRUSH says.
pub type Leaders = BTreeMap<PgId, Option<OsdId>>;

/// PGs of a pool: who may lead each, by CRUSH's order, and who does.
struct Pool {
    members: BTreeMap<PgId, Vec<OsdId>>,
    leads: BTreeMap<PgId, OsdId>,
    /// PGs led less PGs due.
    excess: BTreeMap<OsdId, f64>,
}

impl Pool {
    fn new(map: &OsdMap, id: PoolId, pg_num: u32) -> Self {
        let mut p =
            Self { members: BTreeMap::new(), leads: BTreeMap::new(), excess: BTreeMap::new() };
        let mut held: BTreeMap<OsdId, f64> = BTreeMap::new();
        for ps in 0..pg_num {
            let pg = PgId { pool: id, ps };
            let sets = map.pg_to_up_acting(pg);
            let Some(leader) = sets.up_primary else { continue };
            let members: Vec<OsdId> =
                sets.up.iter().copied().filter(|o| *o != OsdId::NONE).collect();
            for osd in &members {
                *held.entry(*osd).or_default() += f64::from(map.affinity(*osd)) / 65_536.0;
            }
            p.members.insert(pg, members);
            p.leads.insert(pg, leader);
        }
        let total: f64 = held.values().sum();
        for (osd, share) in held {
            let due = if total > 0.0 { share * p.leads.len() as f64 / total } else { 0.0 };
            p.excess.insert(osd, -due);
        }
        for osd in p.leads.values() {
            *p.excess.entry(*osd).or_default() += 1.0;
        }
        p
    }

    /// The change that helps most: from whom leads too many to whom leads too few.
    fn best(&self, done: &Leaders) -> Option<(PgId, OsdId)> {
        let gain = |pg: &PgId, to: OsdId| self.excess[&self.leads[pg]] - self.excess[&to];
        let open = self.members.iter().filter(|(pg, _)| !done.contains_key(pg));
        let all = open.flat_map(|(pg, members)| members.iter().map(|to| (*pg, *to)));
        let (pg, to) = all.max_by(|a, b| gain(&a.0, a.1).total_cmp(&gain(&b.0, b.1)))?;
        (gain(&pg, to) > 1.0).then_some((pg, to))
    }
}

/// Up to `changes` new leaders in the pools named (all replicated ones, if none is).
///
/// Cost: two CRUSH mappings for each PG, then `O(changes * PGs)`.
#[must_use]
pub fn plan(map: &OsdMap, changes: usize, only: &BTreeSet<PoolId>) -> Leaders {
    let mut plan = Leaders::new();
    let mut plain = map.clone();
    plain.pg_upmap_primaries = Arc::default();
    for (id, pool) in map.pools.iter() {
        let wanted = only.is_empty() || only.contains(id);
        if !wanted || pool.is_erasure() || pool.size < 2 || pool.pg_num_target < pool.pg_num {
            continue;
        }
        let mut p = Pool::new(map, *id, pool.pg_num);
        while plan.len() < changes {
            let Some((pg, to)) = p.best(&plan) else { break };
            let from = p.leads.insert(pg, to);
            for (osd, by) in [(from, -1.0), (Some(to), 1.0)] {
                if let Some(e) = osd.and_then(|o| p.excess.get_mut(&o)) {
                    *e += by;
                }
            }
            let by_crush = plain.pg_to_up_acting(pg).up_primary == Some(to);
            // What the map will make of it counts, not what was meant.
            let mut trial = map.clone();
            let leaders = Arc::make_mut(&mut trial.pg_upmap_primaries);
            if by_crush {
                leaders.remove(&pg)
            } else {
                leaders.insert(pg, to)
            };
            if trial.pg_to_up_acting(pg).up_primary == Some(to) {
                plan.insert(pg, (!by_crush).then_some(to));
            } else {
                // An affinity below one has the last word on this PG.
                p.members.remove(&pg);
                p.leads.insert(pg, from.unwrap_or(to));
                for (osd, by) in [(from, 1.0), (Some(to), -1.0)] {
                    if let Some(e) = osd.and_then(|o| p.excess.get_mut(&o)) {
                        *e += by;
                    }
                }
            }
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balance::tests::hosts;

    fn spread(map: &OsdMap) -> f64 {
        let p = Pool::new(map, PoolId(1), map.pool(PoolId(1)).unwrap().pg_num);
        p.excess.values().fold(0.0, |worst: f64, e| worst.max(e.abs()))
    }

    /// On random clusters leaders end up even, copies stay where they are, and what CRUSH says
    /// anyway needs no exception.
    #[test]
    fn even_leaders() {
        for seed in 0..4usize {
            let mut map = hosts(4 + seed, 1 + seed % 3, 64);
            let pgs = (0..64).map(|ps| PgId { pool: PoolId(1), ps });
            let sets = |map: &OsdMap| -> Vec<BTreeSet<OsdId>> {
                pgs.clone().map(|pg| map.pg_to_up_acting(pg).up.into_iter().collect()).collect()
            };
            let (before, copies) = (spread(&map), sets(&map));
            for _ in 0..100 {
                let plan = plan(&map, 10, &BTreeSet::new());
                if plan.is_empty() {
                    break;
                }
                let leaders = Arc::make_mut(&mut map.pg_upmap_primaries);
                for (pg, leader) in plan {
                    match leader {
                        Some(osd) => leaders.insert(pg, osd),
                        None => leaders.remove(&pg),
                    };
                }
            }
            assert!(spread(&map) <= 1.5 && spread(&map) < before, "seed {seed}: {before}");
            assert_eq!(sets(&map), copies, "seed {seed}");
            let mut plain = map.clone();
            plain.pg_upmap_primaries = Arc::default();
            for (pg, leader) in map.pg_upmap_primaries.iter() {
                assert_eq!(map.pg_to_up_acting(*pg).up_primary, Some(*leader));
                assert_ne!(plain.pg_to_up_acting(*pg).up_primary, Some(*leader), "{pg}");
            }
        }
    }

    #[test]
    fn other_pools_are_let_be() {
        let map = hosts(4, 3, 64);
        assert!(!plan(&map, 10, &BTreeSet::from([PoolId(1)])).is_empty());
        assert!(plan(&map, 10, &BTreeSet::from([PoolId(2)])).is_empty());
    }
}
