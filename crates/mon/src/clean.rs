//! What each new OSD map drops: exceptions to placement that are void, broken or needless.
//!
//! An exception that breaks the pool's rule puts two copies into one failure domain for good;
//! one whose target is out keeps data where nobody wants it. So every change of the map looks
//! at all of them again.
//!
//! Source: the peer's `OSDMap::check_pg_upmaps`, `clean_pg_upmaps` and `clean_temps`.

use std::collections::{BTreeMap, BTreeSet};

use maps::{Incremental, OsdMap};
use types::{OsdId, PgId};

/// The devices of rules with their weights in CRUSH.
type RuleWeights = BTreeMap<u8, Option<BTreeMap<i32, f32>>>;

/// Adds to `inc`, which leads to `map`, the ends of upmaps that `map` must not have.
pub(crate) fn clean(inc: &mut Incremental, map: &OsdMap) {
    clean_upmaps(inc, map);
    clean_primaries(inc, map);
}

/// Whether the PG is there, and not about to be merged into another.
fn stays(map: &OsdMap, pg: PgId) -> bool {
    map.have_pg(pg) && map.pool(pg.pool).is_some_and(|pool| pg.ps < pool.pg_num_pending)
}

/// Whether an OSD takes no data, wherever CRUSH has it.
fn is_void(map: &OsdMap, osd: OsdId) -> bool {
    osd != OsdId::NONE && (!map.exists(osd) || map.weight(osd) == 0)
}

/// Why an exception of `pg` cannot be, if so.
fn broken(map: &OsdMap, pg: PgId, weights: &mut RuleWeights) -> Option<String> {
    let pool = map.pool(pg.pool)?;
    let up = map.pg_to_raw_upmap(pg);
    let ids: Vec<i32> = up.iter().map(|osd| osd.0).collect();
    let rule = u32::from(pool.crush_rule);
    if let Err(why) = map.crush.verify_upmap(rule, usize::from(pool.size), &ids) {
        return Some(why);
    }
    let of_rule =
        weights.entry(pool.crush_rule).or_insert_with(|| map.crush.rule_weight_osd_map(rule));
    let of_rule = of_rule.as_ref()?;
    let void = |osd: &&OsdId| {
        let weight = of_rule.get(&osd.0).copied().unwrap_or(0.0);
        **osd != OsdId::NONE && (weight <= 0.0 || is_void(map, **osd))
    };
    up.iter().find(void).map(|osd| format!("osd.{osd} takes no data"))
}

fn clean_upmaps(inc: &mut Incremental, map: &OsdMap) {
    let mut weights = RuleWeights::new();
    let pgs: BTreeSet<PgId> =
        map.pg_upmap.keys().chain(map.pg_upmap_items.keys()).copied().collect();
    for pg in pgs {
        let (whole, pairs) = (map.pg_upmap.get(&pg), map.pg_upmap_items.get(&pg));
        let size = map.pool(pg.pool).map_or(0, |pool| usize::from(pool.size));
        let why = if !stays(map, pg) {
            Some("the PG is gone".to_owned())
        } else {
            broken(map, pg, &mut weights)
        };
        if let Some(why) = why {
            tracing::info!("upmap of pg {pg} ends: {why}");
            drop_whole(inc, map, pg);
            drop_pairs(inc, map, pg);
            continue;
        }
        let raw = map.pg_to_raw(pg);
        let ends = |osds: &Vec<OsdId>| {
            *osds == raw || osds.len() != size || osds.iter().any(|osd| is_void(map, *osd))
        };
        if whole.is_some_and(ends) {
            drop_whole(inc, map, pg);
        }
        let Some(pairs) = pairs else { continue };
        let useful = |(from, to): &&(OsdId, OsdId)| raw.contains(from) && !is_void(map, *to);
        let left: Vec<(OsdId, OsdId)> = pairs.iter().filter(useful).copied().collect();
        if left.is_empty() {
            drop_pairs(inc, map, pg);
        } else if left.len() < pairs.len() {
            inc.new_pg_upmap_items.insert(pg, left);
        }
    }
}

fn drop_whole(inc: &mut Incremental, map: &OsdMap, pg: PgId) {
    inc.new_pg_upmap.remove(&pg);
    if map.pg_upmap.contains_key(&pg) {
        inc.old_pg_upmap.insert(pg);
    }
}

fn drop_pairs(inc: &mut Incremental, map: &OsdMap, pg: PgId) {
    inc.new_pg_upmap_items.remove(&pg);
    if map.pg_upmap_items.contains_key(&pg) {
        inc.old_pg_upmap_items.insert(pg);
    }
}

/// A primary that CRUSH does not choose for the PG leads nothing.
fn clean_primaries(inc: &mut Incremental, map: &OsdMap) {
    for (pg, osd) in map.pg_upmap_primaries.iter() {
        let chosen = stays(map, *pg) && map.pg_to_raw_upmap(*pg).contains(osd);
        if !chosen || map.weight(*osd) == 0 {
            inc.new_pg_upmap_primary.remove(pg);
            inc.old_pg_upmap_primary.insert(*pg);
        }
    }
}

/// Ends acting sets of which nobody is up, that are what CRUSH gives anyway, or that are larger
/// than their pool, and primaries that are down or lead anyway. `inc` leads to `map`; what it
/// drops of upmaps counts in `map` already.
pub(crate) fn clean_temps(inc: &mut Incremental, map: &OsdMap) {
    for (pg, osds) in map.pg_temp.iter() {
        let needless = || {
            let Some(pool) = map.pool(pg.pool) else { return true };
            osds.len() > usize::from(pool.size)
                || pool.temp_by_shard(osds) == map.pg_to_up_acting(*pg).up
        };
        let led = osds.iter().any(|osd| map.is_up(*osd));
        if !map.have_pg(*pg) || !led || needless() {
            inc.new_pg_temp.insert(*pg, Vec::new());
        }
    }
    for (pg, osd) in map.primary_temp.iter() {
        let leads = || map.pg_to_up_acting(*pg).up_primary == Some(*osd);
        if !map.have_pg(*pg) || !map.is_up(*osd) || leads() {
            inc.new_primary_temp.insert(*pg, OsdId(-1));
        }
    }
}

#[cfg(test)]
mod tests {
    use maps::{CrushPart, OsdState, PgPool, PoolKind, WEIGHT_ONE};
    use types::{AddrVec, EntityAddr, Epoch, PoolId, UTime, Uuid};

    use super::*;
    use crate::osdinc::OpenOsd;

    const POOL: PoolId = PoolId(1);

    fn pg(ps: u32) -> PgId {
        PgId { pool: POOL, ps }
    }

    /// Hosts of two OSDs each, all up and in, and a pool of two copies on different hosts.
    fn cluster() -> OsdMap {
        let mut crush = crush::CrushMap::build_initial(1);
        for osd in 0..6 {
            let host = format!("h{}", osd / 2);
            let at = [("host".to_owned(), host), ("root".to_owned(), "default".to_owned())];
            crush.insert_item(osd, 0x1_0000, &format!("osd.{osd}"), &at.into(), true).unwrap();
        }
        let mut map = OsdMap::new(Uuid::default(), Epoch(1), UTime::ZERO, 20);
        map.crush = CrushPart::new(crush);
        let mut inc = Incremental::new(map.fsid, Epoch(2));
        inc.new_max_osd = Some(6);
        inc.new_pool_max = Some(1);
        inc.new_pools.insert(POOL, PgPool::new(PoolKind::REPLICATED, 2, 2, 0, 32));
        for osd in (0..6).map(OsdId) {
            inc.new_state.insert(osd, OsdState::EXISTS.0);
            inc.new_weight.insert(osd, WEIGHT_ONE);
            inc.new_up_client.insert(osd, AddrVec(vec![EntityAddr::default()]));
        }
        map.apply_incremental(&inc).expect("a first map");
        map
    }

    fn next(map: &OsdMap, change: impl FnOnce(&mut Incremental)) -> OsdMap {
        let mut inc = Incremental::new(map.fsid, Epoch(map.epoch.0 + 1));
        change(&mut inc);
        OpenOsd::new(map.clone(), inc).finish(UTime::default(), None).expect("sealed").1.map
    }

    fn other_host(map: &OsdMap, pg: PgId) -> (OsdId, OsdId, OsdId) {
        let up = map.pg_to_up_acting(pg).up;
        let (first, second) = (up[0], up[1]);
        let host = |osd: OsdId| osd.0 / 2;
        let free = (0..6).map(OsdId).find(|o| host(*o) != host(first) && host(*o) != host(second));
        (first, second, free.expect("a third host"))
    }

    /// A pair that puts both copies on one host ends with the epoch that was to bring it; one
    /// that keeps the rule stays, until its target is out, takes nothing in CRUSH, or is gone.
    /// That a target is down ends nothing.
    #[test]
    fn pairs_end_with_their_reasons() {
        let map = cluster();
        let (first, second, free) = other_host(&map, pg(0));
        let same_host = OsdId(first.0 ^ 1);
        let pair = |from, to| {
            move |inc: &mut Incremental| {
                inc.new_pg_upmap_items.insert(pg(0), vec![(from, to)]);
            }
        };
        let broken = next(&map, pair(second, same_host));
        assert!(broken.pg_upmap_items.is_empty(), "both on one host");
        let needless = next(&map, pair(free, second));
        assert!(needless.pg_upmap_items.is_empty(), "osd.{free} is not chosen");
        let good = next(&map, pair(second, free));
        assert_eq!(good.pg_upmap_items.len(), 1);
        let down = next(&good, |inc| {
            inc.new_state.insert(free, OsdState::UP.0);
        });
        assert_eq!(down.pg_upmap_items.len(), 1, "it may come back");
        let out = next(&good, |inc| {
            inc.new_weight.insert(free, 0);
        });
        assert!(out.pg_upmap_items.is_empty(), "its target is out");
        let drained = next(&good, |inc| {
            let mut crush = (**good.crush.map()).clone();
            crush.adjust_item_weight(free.0, 0, true).unwrap();
            inc.crush = denc::Denc::to_bytes(&crush);
        });
        assert!(drained.pg_upmap_items.is_empty(), "its target weighs nothing");
        let gone = next(&down, |inc| {
            inc.new_state.insert(free, OsdState::EXISTS.0);
        });
        assert!(gone.pg_upmap_items.is_empty(), "its target does not exist");
        let pool_gone = next(&good, |inc| {
            inc.old_pools.insert(POOL);
        });
        assert!(pool_gone.pg_upmap_items.is_empty());
    }

    /// Of several pairs, those that still move something stay.
    #[test]
    fn useful_pairs_stay() {
        let map = cluster();
        let (_, second, free) = other_host(&map, pg(0));
        let with = next(&map, |inc| {
            inc.new_pg_upmap_items.insert(pg(0), vec![(second, free), (free, second)]);
        });
        assert_eq!(with.pg_upmap_items.get(&pg(0)), Some(&vec![(second, free)]));
    }

    #[test]
    fn whole_sets_end_with_their_reasons() {
        let map = cluster();
        let (first, second, free) = other_host(&map, pg(0));
        let set = |osds: Vec<OsdId>| {
            next(&map, |inc| {
                inc.new_pg_upmap.insert(pg(0), osds);
            })
        };
        assert!(set(vec![first, OsdId(first.0 ^ 1)]).pg_upmap.is_empty(), "one host");
        assert!(set(vec![first, second]).pg_upmap.is_empty(), "as CRUSH has it");
        assert!(set(vec![first]).pg_upmap.is_empty(), "not the pool's size");
        let good = set(vec![first, free]);
        assert_eq!(good.pg_upmap.len(), 1);
        let out = next(&good, |inc| {
            inc.new_weight.insert(first, 0);
        });
        assert!(out.pg_upmap.is_empty());
    }

    /// A primary that is out is CRUSH's choice no more.
    #[test]
    fn primaries_end_when_they_are_not_chosen() {
        let map = cluster();
        let (_, second, free) = other_host(&map, pg(0));
        let lead = |osd| {
            next(&map, |inc| {
                inc.new_pg_upmap_primary.insert(pg(0), osd);
            })
        };
        assert!(lead(free).pg_upmap_primaries.is_empty());
        let good = lead(second);
        assert_eq!(good.pg_upmap_primaries.len(), 1);
        let out = next(&good, |inc| {
            inc.new_weight.insert(second, 0);
        });
        assert!(out.pg_upmap_primaries.is_empty());
    }

    /// Acting sets and primaries that change nothing, or that are down, end.
    #[test]
    fn needless_temps_end() {
        let map = cluster();
        let (first, second, free) = other_host(&map, pg(0));
        let temp = |osds: Vec<OsdId>| {
            next(&map, |inc| {
                inc.new_pg_temp.insert(pg(0), osds);
            })
        };
        assert!(temp(vec![first, second]).pg_temp.is_empty(), "as CRUSH has it");
        assert!(temp(vec![free, first, second]).pg_temp.is_empty(), "larger than the pool");
        let good = temp(vec![free, first]);
        assert_eq!(good.pg_temp.len(), 1);
        let down = |map: &OsdMap, osds: &[OsdId]| {
            next(map, |inc| {
                inc.new_state.extend(osds.iter().map(|osd| (*osd, OsdState::UP.0)));
            })
        };
        assert_eq!(down(&good, &[free]).pg_temp.len(), 1);
        assert!(down(&good, &[free, first]).pg_temp.is_empty(), "nobody of it is up");
        let lead = |osd| {
            next(&map, |inc| {
                inc.new_primary_temp.insert(pg(0), osd);
            })
        };
        assert!(lead(first).primary_temp.is_empty(), "it leads anyway");
        let other = lead(second);
        assert_eq!(other.primary_temp.len(), 1);
        assert!(down(&other, &[second]).primary_temp.is_empty());
    }
}
