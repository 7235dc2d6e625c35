//! Bits that flip, and objects that vanish, without the store's notice, when all else is well:
//! one copy in three differs from the others. Scrubs must find it and bring back what the
//! others have, asked to repair or by themselves.

use std::collections::BTreeMap;

use bytes::Bytes;
use messages::Mutation;
use osd::memory::{Collection, Object};
use osd::{Coll, StoreOp};
use serde_json::json;
use types::{HObject, PgId};

use crate::stores::OsdStore;
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

/// One of `of`'s values that are not empty, changed, with its key.
fn flip_one(of: &BTreeMap<Bytes, Bytes>, at: usize) -> Option<(Bytes, Bytes)> {
    let full: Vec<_> = of.iter().filter(|(k, v)| *k != RECORD && !v.is_empty()).collect();
    let (k, v) = full.get(at % full.len().max(1))?;
    Some(((*k).clone(), flip(v, at).into()))
}

/// What is done to an object, and the name of it; `None` where it has nothing of that kind.
fn damage_of(o: &Object, kind: usize, at: usize) -> Option<(Mutation, &'static str)> {
    match kind {
        0 | 1 if !o.data.is_empty() => {
            let data = flip(&o.data, at).into();
            Some((Mutation::Write { off: 0, data }, "data"))
        }
        2 => flip_one(&o.attrs, at).map(|(k, v)| (Mutation::SetAttr(k, v), "attribute")),
        3 => flip_one(&o.omap, at).map(|pair| (Mutation::OmapSet(vec![pair]), "omap")),
        4 => Some((Mutation::Remove, "existence")),
        _ => None,
    }
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
            self.osds[Self::osd_index(*first)].store.with(Coll::Pg(pg.into()), |c| {
                let objects = c.into_iter().flat_map(|c| &c.objects);
                all.extend(objects.filter(|(o, _)| o.pool.0 >= 0).map(|(o, _)| (pg, o.clone())));
            });
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

    fn damage(
        &mut self,
        i: usize,
        pg: PgId,
        oid: &HObject,
        kind: usize,
        at: usize,
    ) -> &'static str {
        let coll = Coll::Pg(pg.into());
        let how = |c: Option<&Collection>| damage_of(c?.objects.get(oid)?, kind, at);
        let Some((mutation, what)) = self.osds[i].store.with(coll, how) else { return "" };
        match &self.osds[i].store {
            OsdStore::Memory(store) => {
                let mut store = store.lock();
                let objects = &mut store.now.get_mut(&coll).expect("it was just seen").objects;
                let o = objects.get_mut(oid).expect("it was just seen");
                match mutation {
                    Mutation::Write { data, .. } => o.data = data[..].into(),
                    Mutation::SetAttr(k, v) => drop(o.attrs.insert(k, v)),
                    Mutation::OmapSet(pairs) => o.omap.extend(pairs),
                    _ => drop(objects.remove(oid)),
                }
            }
            OsdStore::Real(store) => {
                store.meddle(vec![StoreOp::Object(coll, oid.clone(), vec![mutation])]);
                self.flush_later(i);
            }
        }
        what
    }

    fn all_equal(&self, pg: PgId, oid: &HObject) -> bool {
        let Some(map) = self.newest() else { return false };
        let copy = |osd| -> Option<Object> {
            let p = self.osds.get(Self::osd_index(osd))?;
            p.store.with(Coll::Pg(pg.into()), |c| c?.objects.get(oid).cloned())
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
