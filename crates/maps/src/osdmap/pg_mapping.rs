//! All PGs of a map and who serves them, kept from map to map.
//!
//! Most changes of a map leave CRUSH's choice as it is for most PGs, and the choice is what
//! costs. So it is kept, with what it was made from, and made anew only where it may differ:
//!
//! | what changed | chosen anew |
//! |---|---|
//! | OSDs up or down, affinity, upmap, temporary sets | nothing |
//! | an OSD's weight fell | the PGs that CRUSH gave it |
//! | an OSD's weight rose | the PGs that some OSD had turned away |
//! | CRUSH map, the pool's rule, size or `pgp_num` | all, of that pool |

use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;

use types::{OsdId, PgId, PoolId};

use super::mapping::{PgSets, Work};
use super::{CrushPart, OsdMap};
use crate::pool::{PgPool, PoolFlags};

/// Most PGs of one pool that a [`PgMapping`] keeps, so that a broken map cannot take all
/// memory; far beyond any pool.
const PGS_MAX: u32 = 1 << 20;
/// From so many PGs on threads share the work: some ten milliseconds of it.
const SHARED_FROM: u32 = 4_096;
const THREADS_MAX: usize = 4;

/// All PGs of a map and who serves them, computed once.
#[derive(Clone, Debug, Default)]
pub struct PgMapping {
    pools: BTreeMap<PoolId, Vec<PgSets>>,
    chosen: BTreeMap<PoolId, Chosen>,
    crush: CrushPart,
    weights: Arc<Vec<u32>>,
}

/// CRUSH's choice for each PG of a pool, and what of the pool it was made from.
#[derive(Clone, Debug)]
struct Chosen {
    rule: u8,
    size: u8,
    pgp_num: u32,
    hashed: bool,
    /// `size` for each PG.
    devices: Vec<i32>,
    pgs: Vec<Choice>,
}

#[derive(Clone, Copy, Debug)]
struct Choice {
    /// How many devices there are.
    len: u8,
    /// Whether an OSD that is out, or partly so, was tried.
    turned_away: bool,
}

impl Chosen {
    fn new(pool: &PgPool) -> Self {
        Self {
            rule: pool.crush_rule,
            size: pool.size,
            pgp_num: pool.pgp_num,
            hashed: pool.has_flag(PoolFlags::HASHPSPOOL),
            devices: Vec::new(),
            pgs: Vec::new(),
        }
    }

    /// Whether choices for `pool` are made from the same.
    fn fits(&self, pool: &PgPool) -> bool {
        self.rule == pool.crush_rule
            && self.size == pool.size
            && self.pgp_num == pool.pgp_num
            && self.hashed == pool.has_flag(PoolFlags::HASHPSPOOL)
    }

    fn get(&self, ps: u32) -> Option<(&[i32], bool)> {
        let choice = self.pgs.get(ps as usize)?;
        let at = ps as usize * usize::from(self.size);
        let devices = self.devices.get(at..at + usize::from(choice.len))?;
        Some((devices, choice.turned_away))
    }

    fn push(&mut self, devices: &[i32], turned_away: bool) {
        let room = usize::from(self.size);
        let len = devices.len().min(room);
        self.devices.extend_from_slice(&devices[..len]);
        self.devices.resize(self.devices.len() + room - len, crush::ITEM_NONE);
        self.pgs.push(Choice { len: len as u8, turned_away });
    }

    /// The choices for the PGs that follow.
    fn extend(&mut self, next: Self) {
        self.devices.extend(next.devices);
        self.pgs.extend(next.pgs);
    }
}

/// How OSDs' weights differ from before.
struct Shift {
    /// By OSD: whether it takes less.
    less: Vec<bool>,
    any_more: bool,
}

impl Shift {
    /// An OSD that a map has no weight for takes nothing.
    fn between(old: &[u32], new: &[u32]) -> Self {
        let weight = |of: &[u32], i: usize| of.get(i).copied().unwrap_or(0);
        let all = 0..old.len().max(new.len());
        Self {
            less: all.clone().map(|i| weight(new, i) < weight(old, i)).collect(),
            any_more: all.clone().any(|i| weight(new, i) > weight(old, i)),
        }
    }

    /// Whether CRUSH may choose otherwise now than `devices`.
    fn matters(&self, devices: &[i32], turned_away: bool) -> bool {
        let less = |d: &i32| usize::try_from(*d).is_ok_and(|i| self.less.get(i) == Some(&true));
        (self.any_more && turned_away) || devices.iter().any(less)
    }
}

/// A pool whose PGs are placed.
#[derive(Clone, Copy)]
struct PoolIn<'a> {
    map: &'a OsdMap,
    id: PoolId,
    pool: &'a PgPool,
    /// What was chosen before, where it may be so still.
    old: Option<&'a Chosen>,
    shift: &'a Shift,
}

impl PoolIn<'_> {
    /// The first `pgs` PGs: where they are, and what CRUSH chose. By several threads where
    /// all of many are chosen anew.
    fn place(self, pgs: u32) -> (Vec<PgSets>, Chosen) {
        if self.old.is_some() || pgs < SHARED_FROM {
            return self.place_part(0..pgs);
        }
        let threads = thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        let part = pgs.div_ceil(threads as u32);
        thread::scope(|scope| {
            let others: Vec<_> = (1..threads as u32)
                .map(|i| (i * part).min(pgs)..((i + 1) * part).min(pgs))
                .map(|part| scope.spawn(move || self.place_part(part)))
                .collect();
            let (mut sets, mut chosen) = self.place_part(0..part.min(pgs));
            for other in others {
                let (more_sets, more) = match other.join() {
                    Ok(placed) => placed,
                    Err(panic) => resume_unwind(panic),
                };
                sets.extend(more_sets);
                chosen.extend(more);
            }
            (sets, chosen)
        })
    }

    fn place_part(self, part: Range<u32>) -> (Vec<PgSets>, Chosen) {
        let Self { map, pool, old, shift, .. } = self;
        let mut work = Work::default();
        let mut chosen = Chosen::new(pool);
        let sets = |ps| {
            let kept = old.and_then(|o| o.get(ps)).filter(|(d, away)| !shift.matters(d, *away));
            if let Some((devices, turned_away)) = kept {
                work.devices.clear();
                work.devices.extend_from_slice(devices);
                work.scratch.turned_away = turned_away;
            } else {
                map.choose(pool, PgId { pool: self.id, ps }, &mut work);
            }
            chosen.push(&work.devices, work.scratch.turned_away);
            map.sets_of(pool, PgId { pool: self.id, ps }, &mut work)
        };
        (part.map(sets).collect(), chosen)
    }
}

impl PgMapping {
    /// Maps all PGs.
    ///
    /// Cost: one CRUSH mapping for each PG, microseconds; from 4,096 PGs of a pool on
    /// shared among up to four threads.
    #[must_use]
    pub fn new(map: &OsdMap) -> Self {
        Self::default().next(map)
    }

    /// The mapping by `map`, which may be any map: the nearer to the one that this mapping
    /// is of, the cheaper.
    #[must_use]
    pub fn next(&self, map: &OsdMap) -> Self {
        let same_crush = Arc::ptr_eq(self.crush.map(), map.crush.map()) || self.crush == map.crush;
        let shift = Shift::between(&self.weights, &map.osd_weight);
        let mut next = Self {
            pools: BTreeMap::new(),
            chosen: BTreeMap::new(),
            crush: map.crush.clone(),
            weights: Arc::clone(&map.osd_weight),
        };
        for (id, pool) in map.pools.iter() {
            let shown = same_crush && map.crush.shows_all_it_accepts(u32::from(pool.crush_rule));
            let old = self.chosen.get(id).filter(|old| shown && old.fits(pool));
            let pool = PoolIn { map, id: *id, pool, old, shift: &shift };
            let (sets, chosen) = pool.place(pool.pool.pg_num.min(PGS_MAX));
            next.pools.insert(*id, sets);
            next.chosen.insert(*id, chosen);
        }
        next
    }

    /// Who serves a PG; `None` when there is no such PG.
    #[must_use]
    pub fn get(&self, pg: PgId) -> Option<&PgSets> {
        self.pools.get(&pg.pool)?.get(pg.ps as usize)
    }

    /// All PGs in order.
    pub fn iter(&self) -> impl Iterator<Item = (PgId, &PgSets)> {
        self.pools.iter().flat_map(|(pool, pgs)| {
            (0u32..).zip(pgs).map(|(ps, sets)| (PgId { pool: *pool, ps }, sets))
        })
    }

    /// Number of PGs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pools.values().map(Vec::len).sum()
    }

    /// Whether there is no PG.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The PGs in whose up or acting set an OSD stands.
    pub fn pgs_of(&self, osd: OsdId) -> impl Iterator<Item = (PgId, &PgSets)> {
        self.iter().filter(move |(_, s)| s.up.contains(&osd) || s.acting.contains(&osd))
    }
}
