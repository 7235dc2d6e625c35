//! Bits that flip, and objects that vanish, without the store's notice, when all else is well:
//! one copy in three differs from the others. Scrubs must find it and bring back what the
//! others have, asked to repair or by themselves.

use std::collections::BTreeMap;

use osd::Coll;
use osd::memory::Object;
use serde_json::json;
use types::{HObject, PgId};

use crate::world::World;

/// So many objects are damaged at most.
const FLIPS_MAX: u64 = 3;
/// Virtual seconds a round of scrubs takes at most.
const ROUND_SECS: u64 = 40;
/// The attribute with an object's record: that it is damaged shows by itself.
const RECORD: &[u8] = b"_";

fn flip(bytes: &[u8], at: usize) -> Vec<u8> {
    let mut new = bytes.to_vec();
    new[at / 8 % bytes.len()] ^= 1 << (at % 8);
    new
}

/// Changes one of `of`'s values that are not empty; whether there was one.
fn flip_one(of: &mut BTreeMap<bytes::Bytes, bytes::Bytes>, at: usize) -> bool {
    let full: Vec<_> = of.iter().filter(|(k, v)| *k != RECORD && !v.is_empty()).collect();
    let Some((k, v)) = full.get(at % full.len().max(1)) else { return false };
    let (k, v) = ((*k).clone(), flip(v, at));
    of.insert(k, v.into());
    true
}

impl World {
    /// Each object once at most, in a pool of which most copies are always right.
    pub(crate) fn flip_some(&mut self) -> Vec<(PgId, HObject)> {
        let Some(map) = self.newest() else { return Vec::new() };
        let enough = map.pool(self.pool).is_some_and(|p| p.size >= 3);
        if self.settings.coded.is_some() || !enough || self.spoiled() > 0 || !self.is_clean() {
            return Vec::new();
        }
        let mut all = Vec::new();
        for pg in self.pgs(&map) {
            let acting = map.pg_to_up_acting(pg).acting;
            let Some(first) = acting.first() else { continue };
            let store = self.osds[Self::osd_index(*first)].store.lock();
            let objects = store.now.get(&Coll::Pg(pg.into())).into_iter().flat_map(|c| &c.objects);
            all.extend(objects.filter(|(o, _)| o.pool.0 >= 0).map(|(o, _)| (pg, o.clone())));
        }
        let mut flipped = Vec::new();
        for _ in 0..self.chance.within(0, FLIPS_MAX) {
            if all.is_empty() {
                break;
            }
            let nth = self.chance.index(all.len());
            let (pg, oid) = all.swap_remove(nth);
            let i = Self::osd_index(self.chance.of(&map.pg_to_up_acting(pg).acting));
            let (kind, at) = (self.chance.index(5), self.chance.index(1 << 16));
            let what = self.damage(i, pg, &oid, kind, at);
            self.tell(|| format!("osd.{i} has another {what} of {oid}"));
            if !what.is_empty() {
                *self.faults.entry("bits flipped unnoticed").or_default() += 1;
                flipped.push((pg, oid));
            }
        }
        flipped
    }

    fn damage(&self, i: usize, pg: PgId, oid: &HObject, kind: usize, at: usize) -> &'static str {
        let mut store = self.osds[i].store.lock();
        let Some(c) = store.now.get_mut(&Coll::Pg(pg.into())) else { return "" };
        let Some(o) = c.objects.get_mut(oid) else { return "" };
        match kind {
            0 | 1 if !o.data.is_empty() => {
                o.data = flip(&o.data, at)[..].into();
                "data"
            }
            2 if flip_one(&mut o.attrs, at) => "attribute",
            3 if flip_one(&mut o.omap, at) => "omap",
            4 => {
                c.objects.remove(oid);
                "existence"
            }
            _ => "",
        }
    }

    fn all_equal(&self, pg: PgId, oid: &HObject) -> bool {
        let Some(map) = self.newest() else { return false };
        let copy = |osd| -> Option<Object> {
            let store = self.osds.get(Self::osd_index(osd))?.store.lock();
            store.now.get(&Coll::Pg(pg.into()))?.objects.get(oid).cloned()
        };
        let mut copies = map.pg_to_up_acting(pg).acting.into_iter().map(copy);
        let first = copies.next().flatten();
        copies.all(|c| c == first)
    }

    /// What was damaged is found and mended.
    pub(crate) fn mend_flipped(&mut self, flipped: &[(PgId, HObject)]) {
        if flipped.is_empty() {
            return;
        }
        let by_itself = self.settings.auto_repair;
        let all_equal = |w: &mut Self| flipped.iter().all(|(pg, oid)| w.all_equal(*pg, oid));
        for _ in 0..4 {
            let what = if by_itself { "pg deep-scrub" } else { "pg repair" };
            let pgs: std::collections::BTreeSet<PgId> = flipped.iter().map(|f| f.0).collect();
            for pg in pgs {
                self.command(json!({"prefix": what, "pgid": pg.to_string()}));
            }
            if self.run_until(ROUND_SECS, |w| all_equal(w) && w.is_clean()) {
                return;
            }
        }
        let left: Vec<String> = flipped
            .iter()
            .filter(|(pg, oid)| !self.all_equal(*pg, oid))
            .map(|(pg, oid)| format!("{oid} in {pg}"))
            .collect();
        let why = self.why_not_clean();
        self.complain(format!("damage is not mended (by itself: {by_itself}): {left:?}; {why}"));
    }
}
