//! Operators drain OSDs while nothing else is wrong. Redundancy never falls by that: at every
//! moment each object is on as many OSDs, or of a coded pool on as many shards, as its pool says.

use std::collections::{BTreeMap, BTreeSet};

use osd::{Coll, PgSummary};
use serde_json::json;
use types::{EVersion, HObject, OsdId, PgId};

use crate::world::{SEC, World};

/// Drains that follow each other.
const DRAINS: usize = 4;
/// Virtual seconds after which the last of them is done.
const DONE_SECS: u64 = 120;

/// Where an object is, by version: on which OSDs, or as which shards.
type Places = BTreeMap<EVersion, BTreeSet<usize>>;

impl World {
    /// Whether this run begins with drains: every coded pool whose disks have room, and every
    /// fourth other one. What planted bugs are found by is left as it was.
    pub(crate) fn has_drains(&self) -> bool {
        let s = &self.settings;
        let counts = s.coded.is_some() || self.seed % 4 == 1;
        self.plant.is_none() && s.tier.is_none() && !s.small_disks && counts
    }

    /// Some drains, with clients at work, and all of it undone.
    pub(crate) fn play_drains(&mut self) {
        if !self.run_until(60, |w| w.operators_idle() && w.is_clean()) {
            let why = self.why_not_clean();
            return self.complain(format!("not clean before drains: {why}"));
        }
        for _ in 0..DRAINS {
            let how = self.drain_some();
            *self.deeds.entry(how).or_default() += 1;
            // Some follow before the one before has ended.
            let secs = [4, 15, DONE_SECS][self.chance.index(3)];
            let now = self.now;
            self.run_until(secs, |w| {
                w.check_redundancy(how);
                w.now > now + 3 * SEC && w.operators_idle() && w.is_clean()
            });
        }
        self.undo_drains();
        let done = |w: &mut Self| {
            w.check_redundancy("undo");
            w.operators_idle() && w.is_clean()
        };
        if !self.run_until(DONE_SECS, done) {
            let why = self.why_not_clean();
            self.complain(format!("drains do not end: {why}"));
        }
    }

    /// An operator drains an OSD or two; how.
    fn drain_some(&mut self) -> &'static str {
        let Some(map) = self.newest() else { return "nothing" };
        let i = self.chance.index(self.osds.len());
        let name = format!("osd.{i}");
        match self.chance.below(7) {
            0..=1 => {
                self.command(json!({"prefix": "osd out", "ids": [i.to_string()]}));
                "drains by out"
            }
            2 => {
                let other = self.chance.index(self.osds.len());
                let ids = [i.to_string(), other.to_string()];
                self.command(json!({"prefix": "osd out", "ids": ids}));
                "drains by out of two"
            }
            3 => {
                let w = self.chance.within(0, 8) as f64 / 10.0;
                self.command(json!({"prefix": "osd reweight", "id": i, "weight": w}));
                "drains by reweight"
            }
            4 => {
                let w = self.chance.within(0, 8) as f64 / 10.0;
                self.command(json!({"prefix": "osd crush reweight", "name": name, "weight": w}));
                "drains by CRUSH weight"
            }
            5 => {
                self.command(json!({"prefix": "osd crush rm", "name": name}));
                "drains by CRUSH removal"
            }
            _ => {
                for pg in self.pgs(&map) {
                    let up = map.pg_to_up_acting(pg).up;
                    let free: Vec<i32> = (0..self.osds.len() as i32)
                        .filter(|o| !up.contains(&OsdId(*o)) && map.is_up(OsdId(*o)))
                        .collect();
                    if up.contains(&OsdId(i as i32)) && !free.is_empty() {
                        let pair = [i as i32, self.chance.of(&free)];
                        self.command(json!({"prefix": "osd pg-upmap-items",
                            "pgid": pg.to_string(), "id": pair}));
                    }
                }
                "drains by upmap"
            }
        }
    }

    fn undo_drains(&mut self) {
        let Some(map) = self.newest() else { return };
        for pg in self.pgs(&map) {
            let pgid = pg.to_string();
            self.command(json!({"prefix": "osd rm-pg-upmap-items", "pgid": pgid}));
        }
        for i in 0..self.osds.len() {
            self.command(json!({"prefix": "osd in", "ids": [i.to_string()]}));
            self.command(json!({"prefix": "osd reweight", "id": i, "weight": 1.0}));
            let args = ["root=default".to_owned(), format!("host=h{i}")];
            self.command(json!({"prefix": "osd crush add", "id": i, "weight": 1.0, "args": args}));
        }
    }

    /// Every object that a PG which serves has is on as many OSDs, or shards, as the pool says, in a
    /// version that is not older than what all acting copies have.
    fn check_redundancy(&mut self, how: &str) {
        let Some(map) = self.newest() else { return };
        let mut led = BTreeMap::new();
        let roles = self.osds.iter().enumerate().filter_map(|(i, p)| Some((i, p.role.as_ref()?)));
        for (i, role) in roles {
            let all = role.pg_summaries().into_iter();
            let serves = |s: &PgSummary| s.leads && s.state.has(maps::PgState::ACTIVE);
            led.extend(all.filter(serves).map(|s| (s.id.pg, (i, s))));
        }
        let there = self.all_objects();
        for (pg, objects) in there.iter().filter(|(pg, _)| self.pools().any(|id| id == pg.pool)) {
            let size = map.pool(pg.pool).map_or(0, |p| usize::from(p.size));
            let Some((leader, summary)) = led.get(pg) else { continue }; // on its way to the next
            if let Some(why) = self.redundancy_wrong((*leader, summary), objects, size) {
                return self.complain(format!("{how}: {pg} {why}"));
            }
        }
    }

    /// All objects that are stored, by PG: in which versions, and where.
    fn all_objects(&self) -> BTreeMap<PgId, BTreeMap<HObject, Places>> {
        let mut there: BTreeMap<PgId, BTreeMap<HObject, Places>> = BTreeMap::new();
        for (i, p) in self.osds.iter().enumerate() {
            for coll in p.store.collections() {
                let Coll::Pg(spg) = coll else { continue };
                let place = usize::try_from(spg.shard.0).unwrap_or(i);
                let of = there.entry(spg.pg).or_default();
                p.store.with(coll, |c| {
                    let all = c.into_iter().flat_map(|c| &c.objects);
                    for (oid, o) in all.filter(|(o, _)| o.is_head() && o.pool == spg.pg.pool) {
                        if let Some(version) = osd::version_of(o) {
                            let places = of.entry(oid.clone()).or_default();
                            places.entry(version).or_default().insert(place);
                        }
                    }
                });
            }
        }
        there
    }

    fn redundancy_wrong(
        &self,
        (leader, summary): (usize, &PgSummary),
        objects: &BTreeMap<HObject, Places>,
        size: usize,
    ) -> Option<String> {
        let coll = Coll::Pg(summary.id);
        let has = |oid| {
            self.osds[leader].store.with(coll, |c| c.is_some_and(|c| c.objects.contains_key(oid)))
        };
        for (oid, versions) in objects {
            // What was written last and is on all; what came after may be on its way.
            let known = versions.keys().rev().find(|v| **v <= summary.committed).copied();
            let Some(known) = known else { continue };
            let places: BTreeSet<usize> =
                versions.range(known..).flat_map(|(_, places)| places).copied().collect();
            // What is in flight may remove it, from one after the other.
            if places.len() < size && has(oid) && summary.last_update == summary.committed {
                return Some(format!(
                    "{} acting {:?} has {oid} {known} only at {places:?}: {}",
                    summary.state,
                    summary.acting.iter().map(|o| o.0).collect::<Vec<_>>(),
                    summary.why
                ));
            }
        }
        None
    }
}
