//! What operators do with a cluster in trouble, beside what faults need: exceptions to
//! placement, flags, scrubs, another pool; and disks that spoil what they hold.

use conf::key;
use maps::OsdMap;
use osd::Coll;
use serde_json::json;
use types::{HObject, OsdId, PgId};

use crate::stores::OsdStore;
use crate::world::World;

/// Flags that are set and unset.
const FLAGS: [&str; 9] = [
    "noout",
    "nodown",
    "noup",
    "noin",
    "nobackfill",
    "norecover",
    "noscrub",
    "nodeep-scrub",
    "nosnaptrim",
];

impl World {
    fn some_pg(&mut self, map: &OsdMap) -> Option<PgId> {
        let all = self.pgs(map);
        (!all.is_empty()).then(|| self.chance.of(&all))
    }

    /// OSDs that are up, by the map.
    fn up(map: &OsdMap) -> Vec<OsdId> {
        (0..map.max_osd).map(OsdId).filter(|o| map.is_up(*o)).collect()
    }

    /// Once, before trouble.
    pub(crate) fn allow_all(&mut self) {
        self.command(json!({"prefix": "osd set-require-min-compat-client",
            "version": "luminous"}));
        self.command(json!({"prefix": "config set", "who": "mon",
            "name": key::MON_ALLOW_POOL_DELETE.name(), "value": "true"}));
    }

    /// An operator does something; what.
    pub(crate) fn menu(&mut self) -> &'static str {
        let Some(map) = self.newest() else { return "nothing" };
        let Some(pg) = self.some_pg(&map) else { return "nothing" };
        let (pgid, up) = (pg.to_string(), Self::up(&map));
        let acting = map.pg_to_up_acting(pg).acting;
        match self.chance.below(14) {
            0..=2 => {
                let others: Vec<OsdId> =
                    up.iter().copied().filter(|o| !acting.contains(o)).collect();
                let from: Vec<OsdId> = acting.into_iter().filter(|o| *o != OsdId::NONE).collect();
                if !others.is_empty() && !from.is_empty() {
                    let pair = [self.chance.of(&from).0, self.chance.of(&others).0];
                    self.command(json!({"prefix": "osd pg-upmap-items", "pgid": pgid,
                        "id": pair}));
                }
                "upmap"
            }
            3 => {
                self.command(json!({"prefix": "osd rm-pg-upmap-items", "pgid": pgid}));
                "rm upmap"
            }
            4 => {
                let mut to = up;
                while to.len() > self.settings.size {
                    let at = self.chance.index(to.len());
                    to.remove(at);
                }
                let to: Vec<i32> = to.into_iter().map(|o| o.0).collect();
                self.command(json!({"prefix": "osd pg-temp", "pgid": pgid, "id": to}));
                "pg_temp"
            }
            5 => {
                if !acting.is_empty() && self.settings.coded.is_none() {
                    let osd = self.chance.of(&acting).0;
                    self.command(json!({"prefix": "osd primary-temp", "pgid": pgid, "id": osd}));
                    self.primary_temps.insert(pg);
                }
                "primary_temp"
            }
            6..=7 => {
                let flag = self.chance.of(&FLAGS);
                let set = if self.chance.one_in(3) { "osd set" } else { "osd unset" };
                self.command(json!({"prefix": set, "key": flag}));
                "flags"
            }
            8..=9 => {
                let what = self.chance.of(&["pg scrub", "pg deep-scrub", "pg repair"]);
                self.command(json!({"prefix": what, "pgid": pgid}));
                "scrub"
            }
            10 => {
                let n = self.chance.within(1, 5);
                self.command(json!({"prefix": "osd pool create", "pool": "q", "pg_num": n,
                    "pgp_num": n}));
                "create a pool"
            }
            11..=12 => {
                self.fence_some();
                "blocklist a client"
            }
            _ => {
                self.remove_other_pool();
                "remove a pool"
            }
        }
    }

    fn remove_other_pool(&mut self) {
        self.command(json!({"prefix": "osd pool delete", "pool": "q", "pool2": "q",
            "yes_i_really_really_mean_it": true}));
    }

    /// Nothing that an operator did stands in the way of healing.
    pub(crate) fn menu_heal(&mut self) {
        for flag in FLAGS {
            self.command(json!({"prefix": "osd unset", "key": flag}));
        }
        self.remove_other_pool();
        // Only who set it takes it back, also where no monitor can tell now which PGs there are.
        for pg in std::mem::take(&mut self.primary_temps) {
            let pgid = pg.to_string();
            self.command(json!({"prefix": "osd rm-primary-temp", "pgid": pgid}));
        }
    }

    // ----- spoiled data -----

    /// Whether copies may be spoiled: each object has another that is whole, whatever one
    /// OSD less does, and no OSD is about to stop.
    fn may_spoil(&self) -> bool {
        let Some(map) = self.newest() else { return false };
        let Some(pool) = map.pool(self.pool) else { return false };
        let alone = self.settings.coded.map_or(1, |(k, _)| k);
        let (size, least) = (usize::from(pool.size), usize::from(pool.min_size));
        let stops = self.osds.iter().any(|o| o.store.is_in_trouble());
        let calm = self.cut.is_empty() && self.paused.is_empty() && !stops;
        size > alone + 1 && least > alone && calm && self.is_clean()
    }

    /// While a copy is spoiled nothing else goes wrong: only one more damage could be one
    /// too many. Whether that is so; everything is looked through now and then.
    pub(crate) fn is_mending(&mut self) -> bool {
        if self.spoiled() == 0 {
            return false;
        }
        if self.chance.one_in(3) {
            self.ask_repair();
        }
        true
    }

    fn ask_repair(&mut self) {
        let Some(map) = self.newest() else { return };
        for pg in self.pgs(&map) {
            self.command(json!({"prefix": "pg repair", "pgid": pg.to_string()}));
        }
    }

    /// The data of one copy of an object cannot be read any more.
    pub(crate) fn spoil_some(&mut self) {
        if !self.may_spoil() {
            return;
        }
        let Some(map) = self.newest() else { return };
        let mut all = Vec::new();
        for pg in self.pgs(&map) {
            for (at, osd) in map.pg_to_up_acting(pg).acting.into_iter().enumerate() {
                let Some(p) = self.osds.get(Self::osd_index(osd)) else { continue };
                let coll = Coll::Pg(self.shard(pg, at));
                let full: Vec<HObject> = p.store.with(coll, |c| {
                    let objects = c.into_iter().flat_map(|c| &c.objects);
                    let full = objects.filter(|(o, data)| o.pool.0 >= 0 && !data.data.is_empty());
                    full.map(|(o, _)| o.clone()).collect()
                });
                let here = |o: &HObject| p.store.real().is_none_or(|s| s.has_blocks(coll, o));
                let full = full.into_iter().filter(here);
                all.extend(full.map(|o| (Self::osd_index(osd), coll, o)));
            }
        }
        if all.is_empty() {
            return;
        }
        let at = self.chance.index(all.len());
        let (i, coll, oid) = all.swap_remove(at);
        self.tell(|| format!("osd.{i} cannot read {oid} any more"));
        match self.osds[i].store.clone() {
            OsdStore::Memory(store) => store.lock().spoil(coll, oid),
            OsdStore::Real(store) => {
                if !store.spoil(coll, &oid, self.chance.any()) {
                    return;
                }
            }
        }
        *self.faults.entry("spoiled copy").or_default() += 1;
    }

    /// Copies that cannot be read, where anybody needs them.
    pub(crate) fn spoiled(&self) -> usize {
        let left = self.osds.iter().enumerate().filter(|(i, _)| !self.gone.contains(i));
        left.map(|(_, p)| p.store.unreadable()).sum()
    }

    /// Everything is read and compared; whether nothing is spoiled then.
    pub(crate) fn repair_all(&mut self) -> bool {
        for _ in 0..6 {
            if self.spoiled() == 0 {
                return true;
            }
            self.ask_repair();
            self.run_until(30, |w| w.spoiled() == 0);
        }
        self.spoiled() == 0
    }

    /// As a collection is named on the OSD at this place of an acting set.
    pub(crate) fn shard(&self, pg: PgId, at: usize) -> types::SpgId {
        let shard = match self.settings.coded {
            Some(_) => types::ShardId(at as i8),
            None => types::ShardId::NONE,
        };
        types::SpgId { pg, shard }
    }
}
