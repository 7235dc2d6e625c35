//! Where PGs are: from an object to its PG, from a PG to its OSDs.
//!
//! ```text
//! name, key, namespace --hash--> raw PG --stable_mod pg_num--> PG
//! PG --pps--> CRUSH rule --> raw --upmap--> raw --without down OSDs--> up --pg_temp--> acting
//!                                     primary affinity picks the primary of up ^
//! ```
//!
//! Source: the peer's `OSDMap::_pg_to_up_acting_osds`; `tests/osdmaptool.rs` compares.

use crush::{Scratch, hash32_2};
use types::{HObject, ObjectLocator, OsdId, PgId, PoolId, stable_mod};

use super::{OsdMap, OsdMapFlags, WEIGHT_ONE};
use crate::pool::{PgPool, PoolFlags};

/// Who serves a PG.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PgSets {
    /// Who should; [`OsdId::NONE`] are holes, in erasure-coded pools only.
    pub up: Vec<OsdId>,
    /// The primary of `up`.
    pub up_primary: Option<OsdId>,
    /// Who does.
    pub acting: Vec<OsdId>,
    /// The primary: whom clients talk to.
    pub acting_primary: Option<OsdId>,
}

fn first_there(osds: &[OsdId]) -> Option<OsdId> {
    osds.iter().copied().find(|o| *o != OsdId::NONE)
}

impl PgPool {
    /// What CRUSH is given for a PG (or a raw PG) of this pool.
    #[must_use]
    pub fn pps(&self, pool: PoolId, ps: u32) -> u32 {
        let folded = stable_mod(ps, self.pgp_num);
        if self.has_flag(PoolFlags::HASHPSPOOL) {
            hash32_2(folded, pool.0 as u32)
        } else {
            folded.wrapping_add(pool.0 as u32)
        }
    }

    /// The order in which `pg_temp` of a pool with optimized erasure coding is stored:
    /// shards that may be primary come first. Other pools' sets stay as they are.
    #[must_use]
    pub fn temp_primary_first(&self, shards: &[OsdId]) -> Vec<OsdId> {
        if !self.has_flag(PoolFlags::EC_OPTIMIZATIONS) {
            return shards.to_vec();
        }
        let may = |i: &usize| !self.nonprimary_shards.contains(*i as u8);
        let (first, last): (Vec<usize>, Vec<usize>) = (0..shards.len()).partition(may);
        first.into_iter().chain(last).map(|i| shards[i]).collect()
    }

    /// Undoes [`Self::temp_primary_first`].
    #[must_use]
    pub fn temp_by_shard(&self, stored: &[OsdId]) -> Vec<OsdId> {
        if !self.has_flag(PoolFlags::EC_OPTIMIZATIONS) {
            return stored.to_vec();
        }
        let may = |i: &usize| !self.nonprimary_shards.contains(*i as u8);
        let (first, last): (Vec<usize>, Vec<usize>) = (0..stored.len()).partition(may);
        let mut out = stored.to_vec();
        for (from, to) in first.into_iter().chain(last).enumerate() {
            out[to] = stored[from];
        }
        out
    }
}

impl OsdMap {
    /// The raw PG of an object: its hash not yet folded to `pg_num`. `None` for an unknown
    /// pool.
    #[must_use]
    pub fn object_to_raw_pg(&self, name: &[u8], locator: &ObjectLocator) -> Option<PgId> {
        self.pool(locator.pool)?;
        let ps = if locator.hash >= 0 {
            locator.hash as u32
        } else {
            let key = if locator.key.is_empty() { name } else { &locator.key };
            HObject::hash_of(&locator.nspace, key)
        };
        Some(PgId { pool: locator.pool, ps })
    }

    /// The PG of an object. `None` for an unknown pool.
    #[must_use]
    pub fn object_to_pg(&self, name: &[u8], locator: &ObjectLocator) -> Option<PgId> {
        self.object_to_raw_pg(name, locator).and_then(|raw| self.raw_pg_to_pg(raw))
    }

    /// Folds a raw PG. `None` for an unknown pool.
    #[must_use]
    pub fn raw_pg_to_pg(&self, raw: PgId) -> Option<PgId> {
        self.pool(raw.pool).map(|pool| pool.raw_pg_to_pg(raw.pool, raw.ps))
    }

    /// What CRUSH gives for a PG, OSDs that do not exist removed; before upmap and states.
    #[must_use]
    pub fn pg_to_raw(&self, pg: PgId) -> Vec<OsdId> {
        let mut out = Vec::new();
        if let Some(pool) = self.pool(pg.pool) {
            let mut work = Work::default();
            self.choose(pool, pg, &mut work);
            self.existing(pool, &work.devices, &mut out);
        }
        out
    }

    /// As [`Self::pg_to_raw`], after upmap.
    #[must_use]
    pub fn pg_to_raw_upmap(&self, pg: PgId) -> Vec<OsdId> {
        let mut out = self.pg_to_raw(pg);
        if let Some(pool) = self.pool(pg.pool) {
            self.apply_upmap(pool, pg, &mut out);
        }
        out
    }

    /// Who serves a PG. Nobody, when the pool is unknown or has no such PG.
    ///
    /// Cost: one CRUSH mapping, microseconds; [`PgMapping`](super::PgMapping) keeps all.
    #[must_use]
    pub fn pg_to_up_acting(&self, pg: PgId) -> PgSets {
        let Some(pool) = self.pool(pg.pool).filter(|p| pg.ps < p.pg_num) else {
            return PgSets::default();
        };
        let mut work = Work::default();
        self.choose(pool, pg, &mut work);
        self.sets_of(pool, pg, &mut work)
    }

    /// CRUSH's choice for a PG, into `work.devices`.
    pub(super) fn choose(&self, pool: &PgPool, pg: PgId, work: &mut Work) {
        self.crush.do_rule_into(
            u32::from(pool.crush_rule),
            pool.pps(pg.pool, pg.ps),
            usize::from(pool.size),
            &self.osd_weight,
            Some(pg.pool.0),
            &mut work.scratch,
            &mut work.devices,
        );
    }

    /// Who serves a PG for which CRUSH chose `work.devices`.
    pub(super) fn sets_of(&self, pool: &PgPool, pg: PgId, work: &mut Work) -> PgSets {
        let (mut acting, mut acting_primary) = self.temp_osds(pool, pg);
        let raw = &mut work.raw;
        self.existing(pool, &work.devices, raw);
        self.apply_upmap(pool, pg, raw);
        let mut up = self.raw_to_up(pool, raw);
        let pps = || pool.pps(pg.pool, pg.ps);
        let up_primary = self.apply_affinity(pps, pool, &mut up).or_else(|| first_there(&up));
        if acting.is_empty() {
            acting.clone_from(&up);
            acting_primary = acting_primary.or(up_primary);
        }
        PgSets { up, up_primary, acting, acting_primary }
    }

    /// The devices that exist: others leave holes where places count.
    fn existing(&self, pool: &PgPool, devices: &[i32], out: &mut Vec<OsdId>) {
        out.clear();
        if pool.can_shift_osds() {
            out.extend(devices.iter().map(|d| OsdId(*d)).filter(|o| self.exists(*o)));
        } else {
            let hole = |o: OsdId| if self.exists(o) { o } else { OsdId::NONE };
            out.extend(devices.iter().map(|d| hole(OsdId(*d))));
        }
    }

    /// Whether an OSD with this number could be and is out: upmap does not choose it.
    fn is_marked_out(&self, osd: OsdId) -> bool {
        self.index(osd).is_some_and(|i| self.osd_weight[i] == 0)
    }

    fn apply_upmap(&self, pool: &PgPool, pg: PgId, raw: &mut Vec<OsdId>) {
        let pg = pool.raw_pg_to_pg(pg.pool, pg.ps);
        if let Some(osds) = self.pg_upmap.get(&pg) {
            if osds.iter().any(|o| self.is_marked_out(*o)) {
                return; // and none of the single replacements either
            }
            raw.clone_from(osds);
        }
        for (from, to) in self.pg_upmap_items.get(&pg).into_iter().flatten() {
            let mut at = None;
            let mut there_already = false;
            for (i, osd) in raw.iter().enumerate() {
                if osd == to {
                    there_already = true;
                    break;
                }
                if osd == from && at.is_none() && !self.is_marked_out(*to) {
                    at = Some(i);
                }
            }
            if let (Some(i), false) = (at, there_already) {
                raw[i] = *to;
            }
        }
        if let Some(primary) = self.pg_upmap_primaries.get(&pg)
            && self.weight(*primary) != 0
            && let Some(i) = raw.iter().skip(1).position(|o| o == primary)
        {
            raw.swap(0, i + 1);
        }
    }

    fn raw_to_up(&self, pool: &PgPool, raw: &[OsdId]) -> Vec<OsdId> {
        if pool.can_shift_osds() {
            raw.iter().copied().filter(|o| self.is_up(*o)).collect()
        } else {
            raw.iter().map(|o| if self.is_up(*o) { *o } else { OsdId::NONE }).collect()
        }
    }

    /// Picks the primary by affinity; in replicated pools it moves to the front. `None`
    /// when all have the default.
    fn apply_affinity(
        &self,
        pps: impl Fn() -> u32,
        pool: &PgPool,
        up: &mut [OsdId],
    ) -> Option<OsdId> {
        if self.primary_affinity.is_empty()
            || up.iter().all(|o| *o == OsdId::NONE || self.affinity(*o) == WEIGHT_ONE)
        {
            return None;
        }
        let pps = pps();
        let mut at = None;
        for (i, osd) in up.iter().enumerate() {
            if *osd == OsdId::NONE {
                continue;
            }
            let affinity = self.affinity(*osd);
            if affinity < WEIGHT_ONE && hash32_2(pps, osd.0 as u32) >> 16 >= affinity {
                at = at.or(Some(i)); // not this one, unless nobody else wants either
            } else {
                at = Some(i);
                break;
            }
        }
        let at = at?;
        let primary = up[at];
        if pool.can_shift_osds() {
            up[..=at].rotate_right(1);
        }
        Some(primary)
    }

    /// What `pg_temp` and `primary_temp` say.
    fn temp_osds(&self, pool: &PgPool, pg: PgId) -> (Vec<OsdId>, Option<OsdId>) {
        let mut osds = Vec::new();
        if let Some(stored) = self.pg_temp.get(&pg) {
            if pool.can_shift_osds() {
                osds.extend(stored.iter().copied().filter(|o| self.is_up(*o)));
            } else {
                let hole = |o: &OsdId| if self.is_up(*o) { *o } else { OsdId::NONE };
                osds.extend(stored.iter().map(hole));
            }
        }
        let primary = self.primary_temp.get(&pg).copied().or_else(|| first_there(&osds));
        if !osds.is_empty() && !pool.can_shift_osds() {
            osds = pool.temp_by_shard(&osds);
        }
        (osds, primary)
    }

    /// Whether the PG is on fewer OSDs than it should.
    #[must_use]
    pub fn is_undersized(&self, pool: &PgPool, acting: &[OsdId]) -> bool {
        acting.iter().filter(|o| **o != OsdId::NONE).count() < usize::from(pool.size)
    }
}

/// Buffers used again from PG to PG.
#[derive(Default)]
pub(super) struct Work {
    pub scratch: Scratch,
    pub devices: Vec<i32>,
    raw: Vec<OsdId>,
}

/// Whether a PG's members must agree anew between two maps: its sets or primaries changed,
/// or its pool's size, `min_size` or number of PGs did so that it matters, or a flag that
/// orders objects.
///
/// Source: the peer's `PastIntervals::is_new_interval`.
#[must_use]
pub fn is_new_interval(
    pg: PgId,
    (old_map, old): (&OsdMap, &PgSets),
    (new_map, new): (&OsdMap, &PgSets),
) -> bool {
    if old != new {
        return true;
    }
    let (Some(old_pool), Some(new_pool)) = (old_map.pool(pg.pool), new_map.pool(pg.pool)) else {
        return old_map.pool(pg.pool).is_some() != new_map.pool(pg.pool).is_some();
    };
    old_pool.size != new_pool.size
        || old_pool.min_size != new_pool.min_size
        || pg_num_matters(pg, old_pool.pg_num, new_pool.pg_num)
        || pg_num_matters(pg, old_pool.pg_num_pending, new_pool.pg_num_pending)
        || old_pool.peering_crush != new_pool.peering_crush
        || [OsdMapFlags::SORTBITWISE, OsdMapFlags::RECOVERY_DELETES]
            .iter()
            .any(|flag| old_map.has_flag(*flag) != new_map.has_flag(*flag))
}

/// Whether a PG splits, merges, comes to be or goes between two numbers of PGs.
#[must_use]
pub fn pg_num_matters(pg: PgId, old: u32, new: u32) -> bool {
    if old == new {
        return false;
    }
    // Split: some new PG folds onto it in the old count. Merge: the other way round.
    let (few, many) = (old.min(new), old.max(new));
    if pg.ps >= few {
        return true;
    }
    // Whatever folds onto it agrees with it in all bits but the highest of `few - 1`.
    let step = few.max(2).next_power_of_two() / 2;
    let first = few + (pg.ps.wrapping_sub(few) & (step - 1));
    (first..many).step_by(step as usize).any(|ps| stable_mod(ps, few) == pg.ps)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where objects go, as seen on a live 16.2.15 cluster: pool 7, 8 PGs.
    #[test]
    fn objects_to_pps() {
        let pool = PgPool::new(crate::PoolKind::REPLICATED, 3, 2, 0, 8);
        for (name, pg, pps) in [
            ("w1", 7, 0xb376_7d5e),
            ("rbd_header.abc", 2, 0x766a_37aa),
            ("a", 0, 0xf3f0_b185),
            ("xxxxxxxxxxxx", 6, 0x2170_7a02),
            ("xxxxxxxxxxxxx", 4, 0xd68a_f6de),
        ] {
            let hash = HObject::hash_of(b"", name.as_bytes());
            assert_eq!(pool.raw_pg_to_pg(PoolId(7), hash), PgId::new(7, pg), "{name}");
            assert_eq!(pool.pps(PoolId(7), hash), pps, "{name}");
        }
    }

    /// The stored order of optimized pools is a permutation that comes back.
    #[test]
    fn temp_order_comes_back() {
        let mut pool = PgPool::new(crate::PoolKind::ERASURE, 6, 4, 0, 8);
        pool.flags.set(PoolFlags::EC_OPTIMIZATIONS, true);
        pool.nonprimary_shards = crate::ShardSet(0b1_0110);
        let shards: Vec<_> = (10..16).map(OsdId).collect();
        let stored = pool.temp_primary_first(&shards);
        assert_eq!(stored.iter().map(|o| o.0).collect::<Vec<_>>(), [10, 13, 15, 11, 12, 14]);
        assert_eq!(pool.temp_by_shard(&stored), shards);
    }

    /// Doubling splits every PG; a step from 5 to 6 splits one.
    #[test]
    fn splits_and_merges_matter() {
        assert!((0..8).all(|ps| pg_num_matters(PgId::new(1, ps), 8, 16)));
        let touched: Vec<_> = (0..6).filter(|ps| pg_num_matters(PgId::new(1, *ps), 5, 6)).collect();
        assert_eq!(touched, [1, 5]);
        assert!(!pg_num_matters(PgId::new(1, 0), 5, 5));
        for few in 1..40 {
            for many in few + 1..80 {
                for ps in 0..few {
                    let splits = (few..many).any(|child| stable_mod(child, few) == ps);
                    assert_eq!(pg_num_matters(PgId::new(1, ps), few, many), splits);
                }
            }
        }
    }
}
