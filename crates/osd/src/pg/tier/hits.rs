//! Which objects were used lately: hit sets.
//!
//! The primary notes what is used in the set of now. When that is complete it becomes an
//! object of the PG, its *archive*, written through the log as any other; so who leads the PG
//! next has it. Archives carry the PG's own hash, stay with it when it is divided, and have
//! times in their names: the list of them is what is in the store.
//!
//! Whatever goes wrong with hit sets delays promotions and makes evictions less well chosen;
//! nothing else depends on them.
//!
//! Source: the peer's `osd/HitSet.h`, `PrimaryLogPG::{hit_set_persist, hit_set_trim,
//! hit_set_apply_log, maybe_promote}`.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;
use denc::Denc;
use env::Now;
use maps::{BloomParams, HitSet};
use messages::Mutation;
use types::{Epoch, Errno, HObject, OpResult, PgId, SnapId, UTime};

use super::CacheView;
use crate::backing::{ObjectStore, StoreError};
use crate::object::{ObjectInfo, ObjectState};
use crate::pg::{Cx, Pg, own_from};

/// The peer's own namespace, never listed; `osd_hit_set_namespace` as it is by default.
pub(crate) const INTERNAL_NAMESPACE: &[u8] = b".ceph-internal";
/// `osd_hit_set_min_size` and `osd_hit_set_max_size`: objects that a filter is made for. A set
/// of another kind is complete with the larger number.
const SIZE: std::ops::RangeInclusive<u64> = 1_000..=100_000;
/// Archives looked for; more than any pool keeps.
const ARCHIVES_MAX: usize = 4_096;

/// A set that is complete.
#[derive(Debug)]
struct Past {
    begin: UTime,
    end: UTime,
    oid: HObject,
    bytes: u64,
    /// `None` until it could be read.
    set: Option<HitSet>,
}

#[derive(Debug, Default)]
pub(crate) struct Hits {
    /// Since when this OSD leads the PG, and the interval in which archives were listed.
    led: (Epoch, Epoch),
    /// Kind, and how its filter is wanted.
    params: (u8, BloomParams),
    begin: UTime,
    now: HitSet,
    /// Oldest first.
    past: VecDeque<Past>,
}

impl Hits {
    /// Whether the object is in the set of now.
    pub fn has(&self, oid: &HObject) -> bool {
        self.now.contains(oid)
    }

    /// Whether it was used within this set or the last.
    pub fn is_warm(&self, oid: &HObject) -> bool {
        self.has(oid) || self.past.back().is_some_and(|p| p.has(oid))
    }

    /// Whether it is in so many of the newest sets; `now` says whether it was in that of now
    /// before this request.
    pub fn is_recent(&self, oid: &HObject, recency: u32, now: bool) -> bool {
        if recency <= 1 {
            return recency == 0 || now;
        }
        let newest = self.past.iter().rev().take_while(|p| p.has(oid));
        now && newest.count() as u64 + 1 >= u64::from(recency)
    }

    /// Number and bytes of the archives.
    pub fn archived(&self) -> (i64, i64) {
        (self.past.len() as i64, self.past.iter().map(|p| p.bytes as i64).sum())
    }

    fn is_begun(&self) -> bool {
        !self.begin.is_zero()
    }

    /// The set of now ends, and is empty again from `at` on. A filter is made for as many
    /// objects as the set before, which is given back, would have had in a whole period.
    fn begin(&mut self, view: &CacheView, at: UTime) -> HitSet {
        let mut bloom = view.hit_bloom;
        bloom.fpp_micro = match bloom.fpp_micro / view.hit_count.max(1) {
            0 => 10_000,
            micro => micro,
        };
        if bloom.target_size == 0 && self.is_begun() {
            let took = (at.seconds() - self.begin.seconds()).max(1.0);
            bloom.target_size =
                (self.now.unique() as f64 * f64::from(view.hit_period_s) / took) as u64;
        }
        bloom.target_size = bloom.target_size.clamp(*SIZE.start(), *SIZE.end());
        bloom.seed = u64::from(at.sec);
        self.begin = at;
        std::mem::replace(&mut self.now, HitSet::new(view.hit_kind, bloom))
    }

    fn is_due(&self, view: &CacheView, at: UTime) -> bool {
        let full = self.now.is_full() || self.now.unique() >= *SIZE.end();
        at > self.begin && (full || at >= self.begin.plus_secs(view.hit_period_s))
    }
}

impl Past {
    fn has(&self, oid: &HObject) -> bool {
        self.set.as_ref().is_some_and(|set| set.contains(oid))
    }
}

/// Names tell microseconds.
fn micros(now: Now) -> UTime {
    UTime::from_nanos(now.wall_ns / 1_000 * 1_000)
}

/// What names of a PG's archives begin with.
fn prefix(pg: PgId) -> String {
    format!("hit_set_{pg}_archive_")
}

fn archive(pg: PgId, begin: UTime, end: UTime) -> HObject {
    let name = format!("{}{}_{}", prefix(pg), begin.legacy(), end.legacy());
    HObject { name: Bytes::from(name), ..first_archive(pg) }
}

/// Below all archives of the PG, and above everything with a lesser hash or namespace.
fn first_archive(pg: PgId) -> HObject {
    HObject {
        pool: pg.pool,
        hash: pg.ps,
        nspace: Bytes::from_static(INTERNAL_NAMESPACE),
        snap: SnapId::HEAD,
        ..HObject::min()
    }
}

/// Begin and end of an archive of the PG, if it is one.
fn times_of(pg: PgId, oid: &HObject) -> Option<(UTime, UTime)> {
    let own = first_archive(pg);
    let ours =
        (oid.pool, oid.hash, &oid.nspace, oid.snap) == (own.pool, own.hash, &own.nspace, own.snap);
    let name = std::str::from_utf8(&oid.name).ok().filter(|_| ours)?;
    let (begin, end) = name.strip_prefix(&*prefix(pg))?.split_once('_')?;
    Some((UTime::from_legacy(begin)?, UTime::from_legacy(end)?))
}

impl Pg {
    /// The PG's archives, those too that are missing here; in order of their times.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(crate) fn archives(
        &self,
        store: &dyn ObjectStore,
    ) -> Result<BTreeSet<HObject>, StoreError> {
        let (pg, first) = (self.id.pg, first_archive(self.id.pg));
        let here = store.list(self.coll, &own_from(self.coll, &first), ARCHIVES_MAX)?;
        let missing = self.missing.range(first..).map(|(oid, _)| oid.clone());
        let near = |oid: &HObject| (oid.hash, &*oid.nspace) == (pg.ps, INTERNAL_NAMESPACE);
        let all = here.into_iter().take_while(near).chain(missing.take_while(near));
        Ok(all.filter(|oid| times_of(pg, oid).is_some()).collect())
    }

    /// Brings the hit sets up to now: lists what the PG has, reads what came since, begins
    /// another set when it is time; without hit sets in the pool, removes them all.
    pub(super) fn follow_hits(&mut self, cx: &mut Cx<'_>) {
        if self.is_coded() || !self.is_serving() {
            return;
        }
        if let Err(e) = self.try_follow_hits(cx) {
            tracing::error!(pg = %self.id, "hit sets: {e}");
        }
    }

    fn try_follow_hits(&mut self, cx: &mut Cx<'_>) -> Result<(), StoreError> {
        let led = (self.info.same_primary_since, self.interval());
        if self.tier.hits.led.0 != led.0 {
            self.tier.hits = Hits::default();
        }
        if self.tier.hits.led != led {
            self.list_hits(cx)?;
            self.tier.hits.led = led;
        }
        let Some(view) = self.pool.cache.clone().filter(|view| view.hit_kind != 0) else {
            let hits = &mut self.tier.hits;
            (hits.begin, hits.now) = (UTime::ZERO, HitSet::default());
            return self.trim_hits(0, cx);
        };
        self.read_hits(cx)?;
        let (at, params) = (micros(cx.now), (view.hit_kind, view.hit_bloom));
        if self.tier.hits.params != params || !self.tier.hits.is_begun() {
            self.tier.hits.params = params;
            self.tier.hits.begin(&view, at);
            self.note_logged_hits(cx)?;
        }
        if self.tier.hits.is_due(&view, at) {
            self.persist_hits(&view, at, cx)?;
        }
        Ok(())
    }

    /// Finds the archives; their content comes later.
    fn list_hits(&mut self, cx: &mut Cx<'_>) -> Result<(), StoreError> {
        let all = self.archives(cx.store)?;
        self.tier.hits.past.clear();
        for oid in all {
            let Some((begin, end)) = times_of(self.id.pg, &oid) else { continue };
            let past = Past { begin, end, oid: oid.detached(), bytes: 0, set: None };
            self.tier.hits.past.push_back(past);
        }
        Ok(())
    }

    /// Reads archives that are here and were not when it was tried last.
    fn read_hits(&mut self, cx: &mut Cx<'_>) -> Result<(), StoreError> {
        for past in self.tier.hits.past.iter_mut().filter(|p| p.set.is_none()) {
            if self.missing.contains_key(&past.oid) {
                continue;
            }
            let size = cx.store.size(self.coll, &past.oid)?.unwrap_or(0);
            let raw = cx.store.read(self.coll, &past.oid, 0, size)?.unwrap_or_default();
            past.bytes = size;
            past.set = Some(HitSet::from_bytes(&raw).unwrap_or_else(|e| {
                tracing::error!(oid = %past.oid, "a hit set: {e}");
                HitSet::default()
            }));
        }
        Ok(())
    }

    /// What was written since the last archive was, though another OSD led then. Who only
    /// read is not known.
    fn note_logged_hits(&mut self, cx: &mut Cx<'_>) -> Result<(), StoreError> {
        let from = match self.tier.hits.past.back() {
            Some(p) => Self::read_state(cx.store, self.coll, &p.oid)?.info.version,
            None => self.log.tail,
        };
        let after = self.log.entries.partition_point(|e| e.version <= from);
        for e in self.log.entries.iter().skip(after) {
            if e.oid.nspace != INTERNAL_NAMESPACE {
                self.tier.hits.now.insert(&e.oid.with_snap(SnapId::HEAD));
            }
        }
        Ok(())
    }

    /// Notes that an object is used; whether it was in the set of now before.
    pub(super) fn note_hit(&mut self, oid: &HObject, first: bool, cx: &mut Cx<'_>) -> bool {
        self.follow_hits(cx);
        let known = self.tier.hits.has(oid);
        if first {
            self.tier.hits.now.insert(oid);
        }
        known
    }

    /// Whether an archive can be written or removed now.
    fn may_archive(&self, oid: &HObject) -> bool {
        !self.is_degraded(oid) && !self.scrub.blocks(oid) && !self.blocked.contains_key(oid)
    }

    /// The set of now becomes an archive, and the oldest beyond the pool's number go. While
    /// that is not possible the set just goes on.
    fn persist_hits(
        &mut self,
        view: &CacheView,
        at: UTime,
        cx: &mut Cx<'_>,
    ) -> Result<(), StoreError> {
        let oid = archive(self.id.pg, self.tier.hits.begin, at);
        let all = self.tier.hits.past.iter().map(|p| &p.oid);
        if self.is_full_somewhere(cx)
            || !all.chain([&oid]).all(|oid| self.may_archive(oid))
            || self.has_object(&oid, cx)?
        {
            return Ok(());
        }
        self.load_obc(&oid, cx)?;
        let mut set = std::mem::take(&mut self.tier.hits.now);
        set.seal();
        let data = set.to_bytes();
        let bytes = data.len() as u64;
        // The base is not to be told of it.
        let info = ObjectInfo { size: bytes, mtime: at, clean: true, ..ObjectInfo::default() };
        let state = ObjectState { exists: true, info };
        let mutations = vec![Mutation::Touch, Mutation::Write { off: 0, data }];
        self.tier_write(&oid, mutations, state, Vec::new(), None, cx)?;
        let hits = &mut self.tier.hits;
        let (begin, end) = (hits.begin, at);
        hits.now = set;
        let set = hits.begin(view, at);
        hits.past.push_back(Past { begin, end, oid, bytes, set: Some(set) });
        self.trim_hits(view.hit_count as usize, cx)
    }

    /// Removes the oldest archives until `keep` are left.
    fn trim_hits(&mut self, keep: usize, cx: &mut Cx<'_>) -> Result<(), StoreError> {
        while self.tier.hits.past.len() > keep {
            let oid = self.tier.hits.past[0].oid.clone();
            if !self.may_archive(&oid) {
                return Ok(());
            }
            self.load_obc(&oid, cx)?;
            self.evict(&oid, None, cx);
            self.tier.hits.past.pop_front();
        }
        Ok(())
    }

    /// PG_HITSET_LS: begin and end of each set, the newest without an end.
    pub(crate) fn hit_set_list(&mut self, cx: &mut Cx<'_>) -> Bytes {
        self.follow_hits(cx);
        let hits = &self.tier.hits;
        let past = hits.past.iter().map(|p| (p.begin, p.end));
        let now = hits.is_begun().then_some((hits.begin, UTime::ZERO));
        let all: Vec<(UTime, UTime)> = past.chain(now).collect();
        all.to_bytes()
    }

    /// PG_HITSET_GET: the set of that time.
    ///
    /// # Errors
    /// ENOENT; EIO.
    pub(crate) fn hit_set_get(&mut self, at: UTime, cx: &mut Cx<'_>) -> OpResult<Bytes> {
        self.follow_hits(cx);
        let hits = &self.tier.hits;
        if hits.is_begun() && at >= hits.begin {
            return Ok(hits.now.to_bytes());
        }
        let found = hits.past.iter().find(|p| p.begin <= at && at <= p.end);
        let oid = &found.ok_or(Errno::NOENT)?.oid;
        let size = cx.store.size(self.coll, oid)?.ok_or(Errno::NOENT)?;
        cx.store.read(self.coll, oid, 0, size)?.ok_or(Errno::NOENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names are the peer's, and read back; others' are not taken for the PG's.
    #[test]
    fn archives_are_named_by_their_times() {
        let pg = PgId::new(2, 0x1a);
        let (begin, end) =
            (UTime { sec: 1_700_000_000, nsec: 5_000 }, UTime { sec: 1_700_000_010, nsec: 0 });
        let oid = archive(pg, begin, end);
        assert_eq!(
            oid.name,
            "hit_set_2.1a_archive_2023-11-14 22:13:20.000005Z_2023-11-14 22:13:30.000000Z"
        );
        assert_eq!((oid.hash, times_of(pg, &oid)), (0x1a, Some((begin, end))));
        assert!(first_archive(pg) < oid);
        assert_eq!(times_of(PgId::new(2, 0x1b), &oid), None);
        let other = HObject { nspace: Bytes::new(), ..oid };
        assert_eq!(times_of(pg, &other), None);
    }
}
