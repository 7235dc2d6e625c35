//! One epoch of the OSD map while it is being filled.

use std::collections::{BTreeMap, BTreeSet};

use maps::{Incremental, OsdMap, OsdState, SealedEpoch};
use types::{OsdId, PoolId, UTime};

use crate::clean;
use crate::temp::{Writes, keep_acting};

/// The map an epoch starts from and what was changed so far.
#[derive(Clone, Debug)]
pub(crate) struct OpenOsd {
    base: OsdMap,
    inc: Incremental,
}

fn overlap<K: Ord, V, W>(a: &BTreeMap<K, V>, b: &BTreeMap<K, W>) -> bool {
    a.keys().any(|k| b.contains_key(k))
}

fn meets<'a, K: Ord + 'a, V>(a: &BTreeMap<K, V>, b: impl IntoIterator<Item = &'a K>) -> bool {
    b.into_iter().any(|k| a.contains_key(k))
}

fn later<T: Copy>(a: &mut Option<T>, b: Option<T>) {
    *a = b.or(*a);
}

impl OpenOsd {
    /// Begins an epoch on top of `base` with a first change.
    pub(crate) fn new(base: OsdMap, inc: Incremental) -> Self {
        Self { base, inc }
    }

    /// The map with all changes so far, or why the newest cannot be made.
    pub(crate) fn result(&self) -> Result<OsdMap, maps::ApplyError> {
        let mut map = self.base.clone();
        map.apply_incremental(&self.inc)?;
        Ok(map)
    }

    /// Adds a later change. `false`, and nothing is changed, when both together in one
    /// epoch would not mean the same as one after the other.
    pub(crate) fn join(&mut self, b: &Incremental) -> bool {
        let a = &mut self.inc;
        // An OSD's ups and downs are told apart by epochs, and a weight changes states too.
        let touched = |i: &Incremental| -> BTreeSet<OsdId> {
            let states = i.new_state.keys().chain(i.new_up_client.keys());
            states.chain(i.new_weight.keys()).copied().collect()
        };
        let conflict = !a.fullmap.is_empty()
            || !b.fullmap.is_empty()
            || !touched(a).is_disjoint(&touched(b))
            || meets(&a.new_pools, &b.old_pools)
            || meets(&a.new_pool_names, &b.old_pools)
            || meets(&b.new_pools, &a.old_pools)
            || meets(&a.new_erasure_code_profiles, &b.old_erasure_code_profiles)
            || meets(&b.new_erasure_code_profiles, &a.old_erasure_code_profiles)
            || meets(&a.new_blocklist, &b.old_blocklist)
            || meets(&b.new_blocklist, &a.old_blocklist)
            || meets(&a.new_range_blocklist, &b.old_range_blocklist)
            || meets(&b.new_range_blocklist, &a.old_range_blocklist)
            || meets(&a.new_pg_upmap, &b.old_pg_upmap)
            || meets(&b.new_pg_upmap, &a.old_pg_upmap)
            || meets(&a.new_pg_upmap_items, &b.old_pg_upmap_items)
            || meets(&b.new_pg_upmap_items, &a.old_pg_upmap_items)
            || meets(&a.new_pg_upmap_primary, &b.old_pg_upmap_primary)
            || meets(&b.new_pg_upmap_primary, &a.old_pg_upmap_primary)
            || overlap(&a.new_lost, &b.new_lost);
        if conflict {
            return false;
        }
        let b = b.clone();
        later(&mut a.new_pool_max, b.new_pool_max);
        later(&mut a.new_flags, b.new_flags);
        later(&mut a.new_max_osd, b.new_max_osd);
        later(&mut a.new_nearfull_ratio, b.new_nearfull_ratio);
        later(&mut a.new_full_ratio, b.new_full_ratio);
        later(&mut a.new_backfillfull_ratio, b.new_backfillfull_ratio);
        later(&mut a.new_require_min_compat_client, b.new_require_min_compat_client);
        later(&mut a.new_require_osd_release, b.new_require_osd_release);
        later(&mut a.new_stretch, b.new_stretch);
        later(&mut a.new_allow_crimson, b.new_allow_crimson);
        if !b.crush.is_empty() {
            a.crush = b.crush;
        }
        a.new_pools.extend(b.new_pools);
        a.new_pool_names.extend(b.new_pool_names);
        a.old_pools.extend(b.old_pools);
        a.new_up_client.extend(b.new_up_client);
        a.new_state.extend(b.new_state);
        a.new_weight.extend(b.new_weight);
        a.new_pg_temp.extend(b.new_pg_temp);
        a.new_primary_temp.extend(b.new_primary_temp);
        a.new_primary_affinity.extend(b.new_primary_affinity);
        a.new_erasure_code_profiles.extend(b.new_erasure_code_profiles);
        a.old_erasure_code_profiles.extend(b.old_erasure_code_profiles);
        a.new_pg_upmap.extend(b.new_pg_upmap);
        a.old_pg_upmap.extend(b.old_pg_upmap);
        a.new_pg_upmap_items.extend(b.new_pg_upmap_items);
        a.old_pg_upmap_items.extend(b.old_pg_upmap_items);
        a.new_pg_upmap_primary.extend(b.new_pg_upmap_primary);
        a.old_pg_upmap_primary.extend(b.old_pg_upmap_primary);
        for (pool, snaps) in b.new_removed_snaps {
            a.new_removed_snaps.entry(pool).or_default().union(&snaps);
        }
        for (pool, snaps) in b.new_purged_snaps {
            a.new_purged_snaps.entry(pool).or_default().union(&snaps);
        }
        a.new_hb_back_up.extend(b.new_hb_back_up);
        a.new_up_thru.extend(b.new_up_thru);
        a.new_last_clean_interval.extend(b.new_last_clean_interval);
        a.new_lost.extend(b.new_lost);
        a.new_blocklist.extend(b.new_blocklist);
        a.old_blocklist.extend(b.old_blocklist);
        a.new_up_cluster.extend(b.new_up_cluster);
        a.new_uuid.extend(b.new_uuid);
        a.new_xinfo.extend(b.new_xinfo);
        a.new_hb_front_up.extend(b.new_hb_front_up);
        a.new_crush_node_flags.extend(b.new_crush_node_flags);
        a.new_device_class_flags.extend(b.new_device_class_flags);
        a.new_range_blocklist.extend(b.new_range_blocklist);
        a.old_range_blocklist.extend(b.old_range_blocklist);
        true
    }

    /// Ends the epoch: what follows from the changes is added, crcs are filled in. Without `writes`
    /// nobody is asked to go on acting.
    pub(crate) fn finish(
        mut self,
        now: UTime,
        writes: Option<Writes<'_>>,
    ) -> Result<(Incremental, SealedEpoch), maps::ApplyError> {
        let map = self.result()?;
        let inc = &mut self.inc;
        inc.modified = now;
        let ups = inc.new_state.values().any(|x| *x == 0 || x & OsdState::UP.0 != 0);
        if ups || !inc.new_up_client.is_empty() {
            inc.new_last_up_change = now;
        }
        if !inc.new_weight.is_empty() {
            inc.new_last_in_change = now;
        }
        follow_bases(inc, &map);
        if let Some(writes) = writes {
            keep_acting(inc, (&self.base, &map), writes);
        }
        clean::clean(inc, &map);
        if !map.pg_temp.is_empty() || !map.primary_temp.is_empty() {
            // Acting sets are compared with what CRUSH gives once the upmaps are clean.
            let map = self.result()?;
            clean::clean_temps(&mut self.inc, &map);
        }
        let sealed = self.inc.seal(&self.base, self.base.canonical_features())?;
        Ok((self.inc, sealed))
    }
}

/// Tiers take over snapshots and applications of the bases that change.
fn follow_bases(inc: &mut Incremental, map: &OsdMap) {
    let changed: Vec<PoolId> = inc.new_pools.keys().copied().collect();
    for id in changed {
        let Some(base) = map.pool(id).filter(|p| !p.tiers.is_empty()) else { continue };
        for tier in base.tiers.iter().map(|t| PoolId(*t as i64)) {
            let Some(of) = map.pool(tier).filter(|p| p.tier_of == id.0) else { continue };
            let pool = inc.new_pools.entry(tier).or_insert_with(|| of.clone());
            pool.follow_base(base);
            if let Some(snaps) = inc.new_removed_snaps.get(&id).cloned() {
                inc.new_removed_snaps.insert(tier, snaps);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::{Random, Seeded};
    use maps::{PgPool, PoolKind, WEIGHT_ONE};
    use types::{EntityAddr, Epoch, PgId, Uuid};

    fn random_change(rng: &mut Seeded, map: &OsdMap, epoch: Epoch) -> Incremental {
        let mut inc = Incremental::new(map.fsid, epoch);
        let osd = OsdId((rng.u64() % 4) as i32);
        let pool = PoolId((rng.u64() % 3) as i64 + 1);
        let addr = EntityAddr { nonce: (rng.u64() % 3) as u32, ..EntityAddr::default() };
        for _ in 0..=rng.u64() % 3 {
            match rng.u64() % 9 {
                0 => drop(inc.new_state.insert(osd, OsdState::UP.0)),
                1 => drop(inc.new_up_client.insert(osd, addr.into())),
                2 => drop(inc.new_weight.insert(osd, (rng.u64() % 2) as u32 * WEIGHT_ONE)),
                3 => {
                    let p = PgPool::new(PoolKind::REPLICATED, 3, 2, 0, (rng.u64() % 8) as u32 + 1);
                    inc.new_pools.insert(pool, p);
                    inc.new_pool_names.insert(pool, format!("p{pool}"));
                }
                4 if map.pools.contains_key(&pool) => drop(inc.old_pools.insert(pool)),
                5 => drop(inc.new_blocklist.insert(addr, UTime { sec: 9, nsec: 0 })),
                6 => inc.old_blocklist.push(addr),
                7 => drop(inc.new_pg_temp.insert(PgId::new(pool.0, 0), vec![osd])),
                _ => drop(inc.new_primary_affinity.insert(osd, (rng.u64() % 5) as u32)),
            }
        }
        inc
    }

    /// Changes that join mean the same as one after the other; those that would not, do
    /// not join and leave no trace.
    #[test]
    fn joined_is_one_after_the_other() {
        let mut rng = Seeded(11);
        let mut joined = 0;
        for _ in 0..3000 {
            let mut base = OsdMap::new(Uuid::default(), Epoch(1), UTime::ZERO, 18);
            base.set_max_osd(4);
            let mut first = random_change(&mut rng, &base, Epoch(2));
            first.new_up_client.insert(OsdId(3), Default::default());
            let open = OpenOsd::new(base.clone(), first);
            let Ok(middle) = open.result() else { continue };
            let second = random_change(&mut rng, &middle, Epoch(2));
            let mut both = open.clone();
            if !both.join(&second) {
                assert_eq!(both.inc, open.inc);
                continue;
            }
            joined += 1;
            let mut apart = middle.clone();
            apart
                .apply_incremental(&Incremental { epoch: Epoch(3), ..second.clone() })
                .expect("it applies alone");
            let together = both.result().expect("and with the other");
            assert_eq!(together.osd_state, apart.osd_state);
            assert_eq!(together.osd_weight, apart.osd_weight);
            // Applying writes the epoch into pools.
            let shape = |m: &OsdMap| -> Vec<(PoolId, u32)> {
                m.pools.iter().map(|(id, p)| (*id, p.pg_num)).collect()
            };
            assert_eq!(shape(&together), shape(&apart));
            assert_eq!(together.pool_names, apart.pool_names);
            assert_eq!(together.blocklist, apart.blocklist);
            assert_eq!(together.pg_temp, apart.pg_temp);
            assert_eq!(together.primary_affinity, apart.primary_affinity);
            assert_eq!(together.client_addrs, apart.client_addrs);
            let (inc, sealed) =
                both.finish(UTime { sec: 5, nsec: 0 }, None).expect("it can be sealed");
            let mut again = base.clone();
            again.apply_incremental(&inc).expect("everybody can follow");
            assert_eq!(again, sealed.map);
        }
        assert!(joined > 500, "{joined}");
    }
}
