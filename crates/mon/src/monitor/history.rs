//! How many of the OSD maps that came to be are still needed.
//!
//! Who served a PG is told by the maps alone. A copy that was away reads there which others may have
//! taken writes meanwhile, and two OSDs name the time since which a PG's copies are the same by the epoch
//! in which each saw them change. So a map is forgotten only when
//!
//! - every OSD that is up has said that it has a later one, and
//! - every PG has been seen clean in it or in a later one: then all that was acknowledged is with
//!   those copies that the maps kept tell of.
//!
//! The peer does the same (`OSDMonitor::get_trim_to`, `LastEpochClean`).

use std::collections::BTreeMap;

use conf::key;
use maps::{OsdMap, PgStat, PgState};
use types::{Epoch, OsdId, PgId, PoolId};

use super::Monitor;
use crate::{Mutation, PgMap};

/// What the leader knows of the use of maps.
#[derive(Default)]
pub(super) struct MapUse {
    /// The newest map that each OSD said it has.
    osds: BTreeMap<OsdId, Epoch>,
    /// The newest map in which each pool was not yet; 0 for those of before this leader.
    pools: BTreeMap<PoolId, Epoch>,
    /// The newest map whose pools are in `pools`; nothing before the first.
    looked: Option<Epoch>,
}

impl MapUse {
    /// An OSD has the maps up to that one.
    pub(super) fn on_epoch(&mut self, osd: OsdId, epoch: Epoch) {
        let known = self.osds.entry(osd).or_default();
        *known = epoch.max(*known);
    }

    /// A process of that OSD begins, with the maps up to that one.
    pub(super) fn on_boot(&mut self, osd: OsdId, epoch: Epoch) {
        self.osds.insert(osd, epoch);
    }

    /// New pools get the time before which none of their PGs can have served.
    fn look(&mut self, map: &OsdMap) {
        let before = self.looked.unwrap_or_default();
        self.pools.retain(|id, _| map.pool(*id).is_some());
        for id in map.pools.keys() {
            self.pools.entry(*id).or_insert(before);
        }
        self.looked = Some(map.epoch);
    }

    /// The oldest map that somebody may still need; nothing while that is not known.
    fn oldest_needed(&self, map: &OsdMap, pgmap: &PgMap) -> Option<Epoch> {
        let mut oldest = map.epoch;
        for osd in map.osds().filter(|o| map.is_up(*o)) {
            oldest = oldest.min(*self.osds.get(&osd)?);
        }
        for (id, pool) in map.pools.iter() {
            for pg in (0..pool.pg_num).map(|ps| PgId { pool: *id, ps }) {
                let clean = match pgmap.pgs.get(&pg) {
                    Some(stat) if stat.reported_epoch > Epoch(0) => clean_at(stat),
                    _ => self.pools.get(id).copied().unwrap_or_default(),
                };
                oldest = oldest.min(clean);
            }
        }
        Some(oldest)
    }
}

/// The last map in which a PG was seen clean.
fn clean_at(stat: &PgStat) -> Epoch {
    if stat.state.has(PgState::CLEAN) { stat.reported_epoch } else { stat.last_epoch_clean }
}

impl Monitor {
    /// Forgets maps that nobody needs any more, beyond `mon_min_osdmap_epochs` of them; whoever
    /// needs them where `mon_osd_force_trim_to` says so.
    pub(super) fn trim_round(&mut self) {
        self.map_use.look(&self.state.osdmap);
        let keep = self.option(key::MON_MIN_OSDMAP_EPOCHS).max(1);
        let trim = self.option(key::PAXOS_SERVICE_TRIM_MIN).max(1);
        let history = &self.state.osd_history;
        let last = u64::from(history.last.0);
        if last < u64::from(history.first.0) + keep + trim || self.open.osd.is_some() {
            return;
        }
        let forced = self.option(key::MON_OSD_FORCE_TRIM_TO).max(0) as u64;
        let needed = if (1..last).contains(&forced) {
            Some(Epoch(forced as u32))
        } else {
            self.map_use.oldest_needed(&self.state.osdmap, &self.volatile.pgmap)
        };
        let Some(needed) = needed else { return };
        let first = needed.min(Epoch((last - keep) as u32));
        if u64::from(first.0) >= u64::from(history.first.0) + trim {
            self.propose(Mutation::TrimOsdMaps { first });
        }
    }
}

#[cfg(test)]
mod tests {
    use maps::{Incremental, OsdState, PgPool};
    use types::{UTime, Uuid};

    use super::*;

    fn map_with(osds: i32, pool: i64, epoch: u32) -> OsdMap {
        let mut map = OsdMap::new(Uuid::default(), Epoch(1), UTime::ZERO, 18);
        let mut inc = Incremental::new(Uuid::default(), Epoch(2));
        inc.new_max_osd = Some(osds);
        for o in (0..osds).map(OsdId) {
            inc.new_state.insert(o, OsdState::EXISTS.0 | OsdState::UP.0);
        }
        inc.new_pools.insert(PoolId(pool), PgPool { pg_num: 2, ..PgPool::default() });
        map.apply_incremental(&inc).unwrap();
        map.epoch = Epoch(epoch);
        map
    }

    fn stat(state: PgState, reported: u32, clean: u32) -> PgStat {
        let (reported_epoch, last_epoch_clean) = (Epoch(reported), Epoch(clean));
        PgStat { state, reported_epoch, last_epoch_clean, ..PgStat::default() }
    }

    /// Neither what an OSD lacks goes, nor what a PG was not clean since; and nothing while
    /// somebody has not been heard.
    #[test]
    fn what_is_needed_stays() {
        let map = map_with(2, 1, 900);
        let mut pgmap = PgMap::default();
        let pg = |ps| PgId { pool: PoolId(1), ps };
        let mut used = MapUse::default();
        used.look(&map);
        assert_eq!(used.oldest_needed(&map, &pgmap), None, "no OSD was heard");
        used.on_epoch(OsdId(0), Epoch(890));
        assert_eq!(used.oldest_needed(&map, &pgmap), None, "one OSD was not heard");
        used.on_epoch(OsdId(1), Epoch(700));
        assert_eq!(used.oldest_needed(&map, &pgmap), Some(Epoch(0)), "PGs were not heard");
        let mut clean = PgState::ACTIVE;
        clean.set(PgState::CLEAN, true);
        pgmap.pgs.insert(pg(0), stat(clean, 880, 5));
        assert_eq!(used.oldest_needed(&map, &pgmap), Some(Epoch(0)), "one PG was not heard");
        pgmap.pgs.insert(pg(1), stat(clean, 870, 5));
        assert_eq!(used.oldest_needed(&map, &pgmap), Some(Epoch(700)), "an OSD is behind");
        used.on_epoch(OsdId(1), Epoch(600));
        assert_eq!(used.oldest_needed(&map, &pgmap), Some(Epoch(700)), "it was said before");
        used.on_boot(OsdId(1), Epoch(600));
        assert_eq!(used.oldest_needed(&map, &pgmap), Some(Epoch(600)), "another process");
        used.on_epoch(OsdId(1), Epoch(900));
        assert_eq!(used.oldest_needed(&map, &pgmap), Some(Epoch(870)));
        pgmap.pgs.insert(pg(1), stat(PgState::ACTIVE, 899, 450));
        assert_eq!(used.oldest_needed(&map, &pgmap), Some(Epoch(450)), "a PG is not clean");
    }

    /// A pool that came to be under this leader does not hold maps of before.
    #[test]
    fn new_pools_hold_little() {
        let mut used = MapUse::default();
        used.look(&map_with(0, 1, 500));
        let map = map_with(0, 2, 600);
        used.look(&map);
        let needed = used.oldest_needed(&map, &PgMap::default());
        assert_eq!(needed, Some(Epoch(500)), "it was not there at 500");
    }
}
