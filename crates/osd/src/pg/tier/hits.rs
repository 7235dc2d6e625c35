//! Which objects were used lately: hit sets.
//!
//! They are kept by the primary alone and in memory: who leads the PG next begins anew. That
//! delays promotions and makes evictions less well chosen; nothing else depends on them.
//!
//! Source: the peer's `osd/HitSet.h`, `PrimaryLogPG::{hit_set_persist, maybe_promote}`.

use std::collections::{HashSet, VecDeque};

use bytes::Bytes;
use denc::{Denc, Features, Writer};
use env::Now;
use types::{Errno, HObject, OpResult, UTime};

use super::CacheView;
use crate::pg::Pg;

/// Objects in one set; beyond, what is used is not noted.
const HITS_MAX: usize = 100_000;

/// A set that is complete.
#[derive(Debug)]
struct Past {
    begin: UTime,
    end: UTime,
    objects: HashSet<HObject>,
}

#[derive(Debug, Default)]
pub(super) struct Hits {
    begin: UTime,
    objects: HashSet<HObject>,
    /// Oldest first.
    past: VecDeque<Past>,
}

impl Hits {
    /// Whether the object is in the set of now.
    pub fn has(&self, oid: &HObject) -> bool {
        self.objects.contains(oid)
    }

    /// Whether it was used within this set or the last.
    pub fn is_warm(&self, oid: &HObject) -> bool {
        self.has(oid) || self.past.back().is_some_and(|p| p.objects.contains(oid))
    }

    /// Whether it is in so many of the newest sets; `now` says whether it was in that of now
    /// before this request.
    pub fn is_recent(&self, oid: &HObject, recency: u32, now: bool) -> bool {
        if recency <= 1 {
            return recency == 0 || now;
        }
        let newest = self.past.iter().rev().take_while(|p| p.objects.contains(oid));
        now && newest.count() as u64 + 1 >= u64::from(recency)
    }

    pub fn insert(&mut self, oid: &HObject, view: &CacheView, now: Now) {
        self.roll(view, now);
        if self.objects.len() < HITS_MAX && !self.objects.contains(oid) {
            self.objects.insert(oid.detached());
        }
    }

    /// Begins another set when it is time.
    pub fn roll(&mut self, view: &CacheView, now: Now) {
        if view.hit_kind == 0 {
            *self = Self::default();
            return;
        }
        let at = UTime::from_nanos(now.wall_ns);
        if self.begin.is_zero() {
            self.begin = at;
        }
        let ends = self.begin.nanos() + u64::from(view.hit_period_s) * 1_000_000_000;
        if view.hit_period_s > 0 && now.wall_ns >= ends {
            let objects = std::mem::take(&mut self.objects);
            self.past.push_back(Past { begin: self.begin, end: at, objects });
            self.begin = at;
        }
        while self.past.len() > view.hit_count as usize {
            self.past.pop_front();
        }
    }
}

/// A hit set as clients read it: `HitSet`, 1/1, with exact hashes or objects.
fn encode(kind: u8, sealed: bool, objects: &HashSet<HObject>) -> OpResult<Bytes> {
    let mut w = Writer::new(Features::ALL);
    let mut sorted: Vec<&HObject> = objects.iter().collect();
    sorted.sort_unstable();
    match kind {
        1 | 2 => w.framed(1, 1, |w| {
            w.bool(sealed);
            w.u8(kind);
            w.framed(1, 1, |w| {
                w.u64(sorted.len() as u64);
                if kind == 1 {
                    let mut hashes: Vec<u32> = sorted.iter().map(|o| o.hash).collect();
                    hashes.sort_unstable();
                    hashes.dedup();
                    hashes.encode(w);
                } else {
                    w.seq(&sorted, |w, o| o.encode(w));
                }
            });
        }),
        _ => return Err(Errno::OPNOTSUPP),
    }
    Ok(w.finish())
}

impl Pg {
    /// PG_HITSET_LS: begin and end of each set, the newest without an end.
    pub(crate) fn hit_set_list(&self) -> Bytes {
        let hits = &self.tier.hits;
        let past = hits.past.iter().map(|p| (p.begin, p.end));
        let now = (!hits.begin.is_zero()).then_some((hits.begin, UTime::ZERO));
        let all: Vec<(UTime, UTime)> = past.chain(now).collect();
        all.to_bytes()
    }

    /// PG_HITSET_GET: the set of that time. Not for bloom filters.
    ///
    /// # Errors
    /// ENOENT, EOPNOTSUPP.
    pub(crate) fn hit_set_get(&self, at: UTime) -> OpResult<Bytes> {
        let kind = self.pool.cache.as_ref().map_or(0, |c| c.hit_kind);
        let hits = &self.tier.hits;
        if kind != 0 && !hits.begin.is_zero() && at >= hits.begin {
            return encode(kind, false, &hits.objects);
        }
        let found = hits.past.iter().find(|p| p.begin <= at && at <= p.end);
        encode(kind, true, &found.filter(|_| kind != 0).ok_or(Errno::NOENT)?.objects)
    }
}
