//! Who acts for a PG whose place changes: those that have its data, in the same epoch.
//!
//! An OSD that CRUSH newly chose has nothing. The PG's primary would see that in peering and ask
//! for `pg_temp`, which is another epoch, another interval and another peering while clients
//! wait. The epoch that moves the PG names the acting set of before instead. The peer's
//! `mon_osd_prime_pg_temp`.

use maps::{Incremental, OsdMap, PoolKind};
use types::{OsdId, PgId};

/// How many writes a PG has had, and how many are next to none.
pub(crate) type Writes<'a> = (&'a dyn Fn(PgId) -> u64, u64);

/// Adds to `inc`, which leads from `base` to `map`, acting sets that stay as they are: of PGs with
/// more than `few` writes, as `writes` counts them, that get a copy on an OSD which was up and had
/// none: who is behind by so many, `osd_async_recovery_min_cost`, acts all the same. In an
/// erasure-coded pool that is a shard's OSD that changes, or that CRUSH finds none for any more.
pub(crate) fn keep_acting(
    inc: &mut Incremental,
    (base, map): (&OsdMap, &OsdMap),
    (writes, few): Writes<'_>,
) {
    let moves = !inc.new_weight.is_empty()
        || !inc.crush.is_empty()
        || !inc.new_pg_upmap.is_empty()
        || !inc.old_pg_upmap.is_empty()
        || !inc.new_pg_upmap_items.is_empty()
        || !inc.old_pg_upmap_items.is_empty();
    if !moves {
        return;
    }
    for (id, pool) in map.pools.iter() {
        for pg in (0..pool.pg_num).map(|ps| PgId { pool: *id, ps }) {
            let asked = map.pg_temp.contains_key(&pg) || inc.new_pg_temp.contains_key(&pg);
            if asked || !base.have_pg(pg) || writes(pg) <= few {
                continue;
            }
            let (was, is) = (base.pg_to_up_acting(pg), map.pg_to_up_acting(pg));
            let coded = pool.kind == PoolKind::ERASURE;
            let there = || was.acting.iter().filter(|o| !coded || **o != OsdId::NONE);
            let has_none = |(s, o): (usize, &OsdId)| match coded {
                true if *o == OsdId::NONE => was.acting.get(s).is_some_and(|o| *o != OsdId::NONE),
                true => was.acting.get(s) != Some(o) && was.up.get(s) != Some(o) && base.is_up(*o),
                false => !was.acting.contains(o) && !was.up.contains(o) && base.is_up(*o),
            };
            let can_go_on = there().count() >= usize::from(pool.min_size.max(1))
                && there().all(|o| map.is_up(*o));
            if can_go_on && is.acting.iter().enumerate().any(has_none) {
                inc.new_pg_temp.insert(pg, pool.temp_primary_first(&was.acting));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use maps::{CrushPart, PgPool, WEIGHT_ONE};
    use types::{AddrVec, Denc, EntityAddr, Epoch, Features, PoolId, UTime, Uuid};

    use super::*;
    use crate::osdinc::OpenOsd;

    const POOL: PoolId = PoolId(1);

    /// Four hosts of one OSD, all up; the last one is out. A pool of two copies.
    fn cluster() -> OsdMap {
        let weights: Vec<(i32, u32)> = (0..4).map(|o| (o, 0x1_0000)).collect();
        let crush = crush::CrushMap::build_simple("osd", &weights, true).unwrap();
        let mut map = OsdMap::new(Uuid::default(), Epoch(1), UTime::ZERO, 20);
        map.crush = CrushPart::new(crush);
        let mut inc = Incremental::new(map.fsid, Epoch(2));
        inc.new_max_osd = Some(4);
        inc.new_pool_max = Some(1);
        inc.new_pools.insert(POOL, PgPool::new(PoolKind::REPLICATED, 2, 2, 0, 32));
        for osd in (0..4).map(OsdId) {
            inc.new_state.insert(osd, maps::OsdState::EXISTS.0);
            inc.new_weight.insert(osd, if osd.0 == 3 { 0 } else { WEIGHT_ONE });
            inc.new_up_client.insert(osd, AddrVec(vec![EntityAddr::default()]));
        }
        map.apply_incremental(&inc).expect("a first map");
        map
    }

    fn next(map: &OsdMap, writes: u64, change: impl FnOnce(&mut Incremental)) -> OsdMap {
        let mut inc = Incremental::new(map.fsid, Epoch(map.epoch.0 + 1));
        change(&mut inc);
        let open = OpenOsd::new(map.clone(), inc);
        open.finish(UTime::default(), Some((&|_| writes, 100))).expect("sealed").1.map
    }

    fn acting(map: &OsdMap) -> Vec<Vec<OsdId>> {
        (0..32).map(|ps| map.pg_to_up_acting(PgId { pool: POOL, ps }).acting).collect()
    }

    /// An OSD comes in: CRUSH chooses it, and who has the data goes on in the same epoch. So it is
    /// when one goes out. Where there is next to nothing, and for PGs that stay, nobody is named.
    #[test]
    fn who_has_the_data_goes_on() {
        let map = cluster();
        let weigh = |osd, weight| {
            move |inc: &mut Incremental| {
                inc.new_weight.insert(OsdId(osd), weight);
            }
        };
        let moved = next(&map, 101, weigh(3, WEIGHT_ONE));
        assert_eq!(acting(&moved), acting(&map));
        let temps = moved.pg_temp.len();
        assert!((5..32).contains(&temps), "{temps}");
        let up_3 = |pg: &PgId| moved.pg_to_up_acting(*pg).up.contains(&OsdId(3));
        assert!(moved.pg_temp.keys().all(up_3));
        let few = next(&map, 100, weigh(3, WEIGHT_ONE));
        assert!(few.pg_temp.is_empty() && acting(&few) != acting(&map));
        let out = next(&map, 101, weigh(0, 0));
        assert_eq!(acting(&out), acting(&map));
        // What was asked for stays, whatever moves next.
        let again = next(&moved, 101, weigh(0, 0));
        assert_eq!(acting(&again), acting(&map));
    }

    /// In an erasure-coded pool a shard's OSD goes on where another is chosen for it, and where
    /// nobody is.
    #[test]
    fn shards_stay_where_they_are() {
        let crush = |map: &OsdMap| {
            let mut crush = crush::CrushMap::clone(map.crush.map());
            let spread = crush::Spread {
                root: "default",
                failure_domain: "osd",
                failure_domains: 0,
                class: "",
            };
            let rule = crush.add_erasure_rule("coded", spread, 0).unwrap();
            (crush.to_bytes_for(Features::TENTACLE_WORD), rule as u8)
        };
        for (size, spare) in [(3, true), (4, false)] {
            let mut map = cluster();
            let mut inc = Incremental::new(map.fsid, Epoch(map.epoch.0 + 1));
            let (raw, rule) = crush(&map);
            inc.crush = raw;
            inc.new_weight.insert(OsdId(3), WEIGHT_ONE);
            let pool = PgPool::new(PoolKind::ERASURE, size, 2, rule, 32);
            inc.new_pools.insert(POOL, pool);
            map.apply_incremental(&inc).expect("another pool");
            let was = acting(&map);
            let out = next(&map, 101, |inc| {
                inc.new_weight.insert(OsdId(0), 0);
            });
            assert_eq!(acting(&out), was, "size {size}");
            let up = |ps| out.pg_to_up_acting(PgId { pool: POOL, ps }).up;
            assert!((0..32).all(|ps| !up(ps).contains(&OsdId(0))));
            let places = (0..32).flat_map(up).filter(|o| *o == OsdId::NONE).count();
            assert_eq!(places == 0, spare, "size {size}");
        }
    }

    /// Too few that are up cannot go on, and one that comes back has most of it: it acts at once.
    #[test]
    fn who_is_down_or_comes_back_is_not_waited_for() {
        let down = next(&cluster(), 101, |inc| {
            inc.new_state.insert(OsdId(0), 0);
        });
        assert!(down.pg_temp.is_empty());
        let out = next(&down, 101, |inc| {
            inc.new_weight.insert(OsdId(0), 0);
        });
        let short = |pg: PgId| down.pg_to_up_acting(pg).acting.len() < 2;
        assert!(!out.pg_temp.keys().any(|pg| short(*pg)), "they were below min_size");
        let back = next(&down, 101, |inc| {
            inc.new_up_client.insert(OsdId(0), AddrVec(vec![EntityAddr::default()]));
        });
        assert!(back.pg_temp.is_empty());
        assert_eq!(acting(&back), acting(&cluster()));
    }
}
