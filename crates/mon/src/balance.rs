//! Spreading PGs evenly: exceptions to placement (`pg_upmap_items`) that move copies from OSDs
//! with too many to OSDs with too few, within what the CRUSH rule allows.
//!
//! An OSD should hold copies in proportion to its weight. As long as one is further from that
//! than the bound, a copy goes from the fullest to the emptiest that may take it: not in the
//! same failure domain as another copy of the PG, and reachable by the pool's rule. An exception
//! that no longer helps is taken back first: that moves data to where CRUSH has it anyway.
//!
//! Source: the peer's `OSDMap::calc_pg_upmaps`; the choice among equals is ours.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use maps::{OsdMap, PgPool};
use types::{OsdId, PgId};

use crate::crushops;

/// From and to, in the order in which they are applied; empty to take all back.
pub type Plan = BTreeMap<PgId, Vec<(OsdId, OsdId)>>;

/// How much is done at once.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Copies that an OSD may be from its share: the peer's `upmap_max_deviation`.
    pub deviation: f64,
    /// PGs changed: the peer's `upmap_max_optimizations`.
    pub changes: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { deviation: 5.0, changes: 10 }
    }
}

/// What a rule says, when it is simple enough: one choice below one root.
struct Domain {
    rule: u32,
    /// The type of bucket that holds one copy at most; 0 for devices.
    kind: u16,
}

fn domain(map: &OsdMap, pool: &PgPool) -> Option<Domain> {
    use crush::Op;
    let id = u32::from(pool.crush_rule);
    let mut kind = None;
    let (mut takes, mut emits) = (0, 0);
    for step in &map.crush.rule(id)?.steps {
        match step.known()? {
            Op::Take => takes += 1,
            Op::Emit => emits += 1,
            Op::ChooseleafFirstn | Op::ChooseleafIndep if kind.is_none() => {
                kind = Some(u16::try_from(step.arg2).ok()?);
            }
            Op::ChooseFirstn | Op::ChooseIndep if kind.is_none() && step.arg2 == 0 => {
                kind = Some(0);
            }
            Op::ChooseFirstn | Op::ChooseIndep | Op::ChooseleafFirstn | Op::ChooseleafIndep => {
                return None;
            }
            _ => {}
        }
    }
    (takes == 1 && emits == 1).then_some(Domain { rule: id, kind: kind? })
}

/// Copies that each OSD holds and should hold, and the PGs by OSD.
struct Spread<'a> {
    map: &'a OsdMap,
    /// Copies held less copies due.
    excess: BTreeMap<OsdId, f64>,
    on: BTreeMap<OsdId, BTreeSet<PgId>>,
    raw: BTreeMap<PgId, Vec<OsdId>>,
    domains: BTreeMap<types::PoolId, Domain>,
    /// Where an OSD is, by rule: its failure domain.
    place: BTreeMap<(u32, OsdId), i32>,
}

impl<'a> Spread<'a> {
    fn new(map: &'a OsdMap, only: &BTreeSet<types::PoolId>) -> Self {
        let mut s = Self {
            map,
            excess: BTreeMap::new(),
            on: BTreeMap::new(),
            raw: BTreeMap::new(),
            domains: BTreeMap::new(),
            place: BTreeMap::new(),
        };
        for (id, pool) in map.pools.iter() {
            if !only.is_empty() && !only.contains(id) {
                continue;
            }
            let Some(domain) = domain(map, pool) else { continue };
            if pool.pg_num_target < pool.pg_num {
                continue; // PGs that go must stay where their objects will be
            }
            let weights = crushops::rule_weights(&map.crush, domain.rule);
            let weight = |o: &OsdId, w: f64| {
                if map.is_up(*o) { w * f64::from(map.weight(*o)) / 65_536.0 } else { 0.0 }
            };
            let total: f64 = weights.iter().map(|(o, w)| weight(o, *w)).sum();
            if total <= 0.0 {
                continue;
            }
            for (osd, w) in &weights {
                let w = weight(osd, *w);
                if w <= 0.0 {
                    continue;
                }
                let copies = f64::from(pool.pg_num) * f64::from(pool.size);
                *s.excess.entry(*osd).or_default() -= copies * w / total;
                let at = match domain.kind {
                    0 => Some(osd.0),
                    kind => map.crush.parent_of_kind(osd.0, kind, Some(domain.rule)),
                };
                if let Some(at) = at {
                    s.place.insert((domain.rule, *osd), at);
                }
            }
            for ps in 0..pool.pg_num {
                let pg = PgId { pool: *id, ps };
                let raw = map.pg_to_raw_upmap(pg);
                for osd in raw.iter().filter(|o| **o != OsdId::NONE) {
                    s.on.entry(*osd).or_default().insert(pg);
                    if let Some(e) = s.excess.get_mut(osd) {
                        *e += 1.0;
                    }
                }
                s.raw.insert(pg, raw);
            }
            s.domains.insert(*id, domain);
        }
        s
    }

    fn worst(&self) -> f64 {
        self.excess.values().fold(0.0, |worst: f64, e| worst.max(e.abs()))
    }

    /// Whether the copy of `pg` on `from` may be on `to`.
    fn fits(&self, pg: PgId, from: OsdId, to: OsdId) -> bool {
        let Some(domain) = self.domains.get(&pg.pool) else { return false };
        let place = |o: OsdId| self.place.get(&(domain.rule, o));
        let Some(new) = place(to) else { return false };
        let raw = &self.raw[&pg];
        !raw.contains(&to)
            && raw.iter().all(|o| *o == from || *o == OsdId::NONE || place(*o) != Some(new))
    }

    fn shift(&mut self, pg: PgId, from: OsdId, to: OsdId) {
        for o in self.raw.get_mut(&pg).into_iter().flatten() {
            if *o == from {
                *o = to;
            }
        }
        if let Some(pgs) = self.on.get_mut(&from) {
            pgs.remove(&pg);
        }
        self.on.entry(to).or_default().insert(pg);
        for (osd, by) in [(from, -1.0), (to, 1.0)] {
            if let Some(e) = self.excess.get_mut(&osd) {
                *e += by;
            }
        }
    }
}

/// The exceptions with `from` sent to `to`, in as few steps as that takes.
fn with(items: &[(OsdId, OsdId)], from: OsdId, to: OsdId) -> Vec<(OsdId, OsdId)> {
    let mut items = items.to_vec();
    match items.iter().position(|(_, t)| *t == from) {
        // It was sent here from elsewhere: now further, or back.
        Some(at) if items[at].0 == to => drop(items.remove(at)),
        Some(at) => items[at].1 = to,
        None => items.push((from, to)),
    }
    items
}

/// The next changes, and the furthest an OSD is from its share before and after. Pools with
/// rules of several choices, or of several roots, stay as they are.
///
/// Cost: one CRUSH mapping for each PG, then `O(changes * PGs of an OSD * OSDs)`.
#[must_use]
pub fn plan(map: &OsdMap, bounds: &Bounds, only: &BTreeSet<types::PoolId>) -> (Plan, f64, f64) {
    let mut s = Spread::new(map, only);
    let before = s.worst();
    let mut plan = Plan::new();
    while plan.len() < bounds.changes && s.worst() > bounds.deviation {
        let mut full: Vec<(OsdId, f64)> = s.excess.iter().map(|(o, e)| (*o, *e)).collect();
        full.sort_by(|a, b| b.1.total_cmp(&a.1));
        let empty: Vec<OsdId> = full.iter().rev().map(|(o, _)| *o).collect();
        let Some((pg, from, to)) = best(&s, &full, &empty, bounds, &plan) else { break };
        let now = plan.get(&pg).or_else(|| map.pg_upmap_items.get(&pg));
        let items = with(now.map_or(&[][..], Vec::as_slice), from, to);
        // What the map will make of it counts, not what was meant.
        let mut trial = map.clone();
        if items.is_empty() {
            Arc::make_mut(&mut trial.pg_upmap_items).remove(&pg);
        } else {
            Arc::make_mut(&mut trial.pg_upmap_items).insert(pg, items.clone());
        }
        s.shift(pg, from, to);
        // In which order is not asked: who leads may be an exception of its own.
        let sorted = |raw: &[OsdId]| raw.iter().copied().collect::<BTreeSet<_>>();
        if sorted(&trial.pg_to_raw_upmap(pg)) != sorted(&s.raw[&pg]) {
            s.shift(pg, to, from);
            s.domains.remove(&pg.pool); // something else decides there
            continue;
        }
        plan.insert(pg, items);
    }
    (plan, before, s.worst())
}

/// The move from the fullest OSD to the emptiest that helps; taking an exception back first.
fn best(
    s: &Spread<'_>,
    full: &[(OsdId, f64)],
    empty: &[OsdId],
    bounds: &Bounds,
    plan: &Plan,
) -> Option<(PgId, OsdId, OsdId)> {
    let helps = |from: OsdId, to: OsdId| s.excess[&from] - s.excess[&to] > 1.0;
    for (from, excess) in full {
        let pgs = s.on.get(from)?;
        let movable = |pg: &&PgId| !s.map.pg_upmap.contains_key(pg) && !plan.contains_key(pg);
        for pg in pgs.iter().filter(movable) {
            for (back, to) in s.map.pg_upmap_items.get(pg).into_iter().flatten() {
                let known = s.excess.contains_key(back);
                if to == from && known && helps(*from, *back) && s.fits(*pg, *from, *back) {
                    return Some((*pg, *from, *back));
                }
            }
        }
        for to in empty {
            let far = *excess > bounds.deviation || -s.excess[to] > bounds.deviation;
            if !helps(*from, *to) || !far {
                break; // the others are fuller
            }
            if let Some(pg) = pgs.iter().filter(movable).find(|pg| s.fits(**pg, *from, *to)) {
                return Some((*pg, *from, *to));
            }
        }
    }
    None
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{Mkfs, Mutation};
    use types::{EntityAddr, PoolId, UTime, Uuid};

    /// So many hosts of one or more OSDs, unevenly, and a pool of three copies on them.
    pub(crate) fn hosts(hosts: usize, most: usize, pgs: u32) -> OsdMap {
        let fsid = Uuid::from_random([9; 16]);
        let now = UTime { sec: 1_795_183_789, nsec: 0 };
        let addr = EntityAddr::msgr2(([127, 0, 0, 1], 3300).into(), 0);
        let mon = maps::MonInfo { name: "a".into(), addrs: addr.into(), ..Default::default() };
        let monmap = maps::MonMap::new(fsid, now, 20, vec![mon]);
        let mut state = Mkfs { fsid, now, monmap, chooseleaf_kind: 1, ..Mkfs::default() }.state();
        let mut crush = (**state.osdmap.crush.map()).clone();
        let mut inc = state.osd_change();
        let mut osds = 0;
        for host in 0..hosts {
            for _ in 0..=host % most {
                let at = [("host", format!("h{host}")), ("root", "default".to_owned())];
                let at = at.map(|(k, v)| (k.to_owned(), v)).into();
                crush.insert_item(osds, 0x1_0000, &format!("osd.{osds}"), &at, true).unwrap();
                inc.new_state
                    .insert(OsdId(osds), (maps::OsdState::EXISTS.0) | maps::OsdState::UP.0);
                inc.new_weight.insert(OsdId(osds), maps::WEIGHT_ONE);
                inc.new_uuid.insert(OsdId(osds), Uuid::from_random([1; 16]));
                inc.new_up_client.insert(OsdId(osds), addr.into());
                inc.new_up_cluster.insert(OsdId(osds), addr.into());
                inc.new_hb_back_up.insert(OsdId(osds), addr.into());
                inc.new_hb_front_up.insert(OsdId(osds), addr.into());
                osds += 1;
            }
        }
        inc.new_max_osd = Some(osds);
        inc.crush = denc::Denc::to_bytes(&crush);
        let pool = PgPool {
            size: 3,
            min_size: 2,
            pg_num: pgs,
            pgp_num: pgs,
            pg_num_target: pgs,
            pgp_num_target: pgs,
            ..PgPool::default()
        };
        inc.new_pools.insert(PoolId(1), pool);
        inc.new_pool_names.insert(PoolId(1), "p".into());
        inc.new_pool_max = Some(1);
        inc.modified = now;
        inc.seal(&state.osdmap, state.osdmap.canonical_features()).unwrap();
        state.apply(&Mutation::Osd(Box::new(inc))).unwrap();
        state.osdmap.clone()
    }

    /// On random clusters all copies stay in different hosts, nobody gets what no rule gives,
    /// and the plan ends within the bound, or where nothing more can be done.
    #[test]
    fn evenly_and_apart() {
        for seed in 0..6u32 {
            let mut map = hosts(4 + seed as usize, 1 + seed as usize % 3, 64 << (seed % 3));
            let bounds = Bounds { deviation: 1.0, changes: 10 };
            let first = Spread::new(&map, &BTreeSet::new()).worst();
            let mut last = first;
            for _ in 0..200 {
                let (plan, before, after) = plan(&map, &bounds, &BTreeSet::new());
                assert!(after <= before + 1e-9, "seed {seed}");
                last = after;
                if plan.is_empty() {
                    break;
                }
                for (pg, items) in plan {
                    if items.is_empty() {
                        Arc::make_mut(&mut map.pg_upmap_items).remove(&pg);
                    } else {
                        Arc::make_mut(&mut map.pg_upmap_items).insert(pg, items);
                    }
                }
            }
            assert!(last <= 1.5 && last < first, "seed {seed}: {first} to {last}");
            for (id, pool) in map.pools.iter() {
                for ps in 0..pool.pg_num {
                    let raw = map.pg_to_raw_upmap(PgId { pool: *id, ps });
                    let at: BTreeSet<_> =
                        raw.iter().map(|o| map.crush.parent_of_kind(o.0, 1, None)).collect();
                    assert_eq!((raw.len(), at.len()), (3, 3), "seed {seed}: {id}.{ps:x} {raw:?}");
                }
            }
        }
    }

    #[test]
    fn exceptions_stay_short() {
        let o = OsdId;
        assert_eq!(with(&[], o(1), o(2)), [(o(1), o(2))]);
        assert_eq!(with(&[(o(1), o(2))], o(2), o(3)), [(o(1), o(3))]);
        assert_eq!(with(&[(o(1), o(2))], o(2), o(1)), []);
        assert_eq!(with(&[(o(1), o(2))], o(4), o(3)), [(o(1), o(2)), (o(4), o(3))]);
    }
}
