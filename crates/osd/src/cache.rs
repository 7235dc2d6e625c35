//! Object data kept in memory as it was written, for the reads that follow.
//!
//! What is kept are the buffers that came over the wire: large ones are copied neither on
//! the way in nor out. Only PGs that are read here are kept: those that this OSD leads. Of a
//! coded object its primary keeps what it sent to the other shards, too, and these nothing:
//! most of its reads ask nobody. Reads do not let anything in: a scan over more data than
//! fits does not drive out what is here. What was used since it was last looked at stays for
//! another round.
//!
//! The budget is small at first and grows while it is too small: a page that is touched for
//! the first time costs more than all other work on what is written there, and one that was
//! let go is there for the next write.
//!
//! Invariants: a kept range equals what the store returns for it, or another shard's store
//! once it has all that this primary sent; the sum of all ranges stays within the budget.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::{Bytes, BytesMut};
use messages::Mutation;
use types::{HObject, PgId, SpgId};

/// Whose data: a shard of a PG as it is stored here, or as it was sent to another OSD.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Of {
    Own(SpgId),
    Sent(SpgId),
}

type Key = (Of, HObject);

/// Smaller data is copied: it would hold a larger buffer.
const COPIED_MAX: usize = 16 << 10;
/// Larger writes to coding shards are not kept.
const CODING_MAX: usize = 64 << 10;
/// Ranges of an object that may lie side by side before they are joined.
const RANGES_MAX: usize = 64;
/// What an object costs beside its data.
const OBJECT_COST: usize = 512;
/// The budget of a cache that grows, at first.
const GROWS_FROM: usize = 128 << 20;
/// Such a cache grows by one byte for so many that are let go for room.
const GROWS_BY_ONE_OF: usize = 8;

#[derive(Default)]
struct Entry {
    /// Ranges by their first byte; none overlap.
    ranges: BTreeMap<u64, Bytes>,
    /// Bytes in all of them.
    bytes: usize,
    /// Tells this entry's place in `order` from those of earlier ones.
    stamp: u64,
    /// Read or written since it was put where it is in `order`.
    used: bool,
}

impl Entry {
    fn cost(&self) -> usize {
        self.bytes + OBJECT_COST
    }

    /// Takes out what lies in `from..to`.
    fn cut(&mut self, from: u64, to: u64) {
        let before = self.ranges.range(..from).next_back().map(|(at, data)| (*at, data.clone()));
        if let Some((at, mut data)) = before
            && at + data.len() as u64 > from
        {
            let end = at + data.len() as u64;
            if end > to {
                self.ranges.insert(to, data.slice((to - at) as usize..));
            }
            data.truncate((from - at) as usize);
            self.ranges.insert(at, data);
            self.bytes -= (end.min(to) - from) as usize;
        }
        let inside: Vec<u64> = self.ranges.range(from..to).map(|(at, _)| *at).collect();
        for at in inside {
            let data = self.ranges.remove(&at).expect("it was just seen");
            self.bytes -= data.len();
            let end = at + data.len() as u64;
            if end > to {
                self.bytes += (end - to) as usize;
                self.ranges.insert(to, data.slice((to - at) as usize..));
            }
        }
    }

    fn put(&mut self, off: u64, data: &Bytes) {
        self.cut(off, off + data.len() as u64);
        let data =
            if data.len() < COPIED_MAX { Bytes::copy_from_slice(data) } else { data.clone() };
        self.bytes += data.len();
        self.ranges.insert(off, data);
        if self.ranges.len() > RANGES_MAX {
            self.join();
        }
    }

    /// Makes one range of those that touch each other.
    fn join(&mut self) {
        let mut all = std::mem::take(&mut self.ranges).into_iter().peekable();
        while let Some((at, first)) = all.next() {
            let mut end = at + first.len() as u64;
            let mut run = vec![first];
            while let Some((_, data)) = all.next_if(|(next, _)| *next == end) {
                end += data.len() as u64;
                run.push(data);
            }
            let data = if run.len() == 1 { run.remove(0) } else { run.concat().into() };
            self.ranges.insert(at, data);
        }
        if self.ranges.len() > RANGES_MAX / 2 {
            // Scattered: the largest stay.
            let mut by_len: Vec<(usize, u64)> =
                self.ranges.iter().map(|(at, data)| (data.len(), *at)).collect();
            by_len.sort_unstable();
            for (len, at) in &by_len[..by_len.len() - RANGES_MAX / 2] {
                self.ranges.remove(at);
                self.bytes -= len;
            }
        }
    }

    fn read(&self, off: u64, end: u64) -> Option<Bytes> {
        let (at, data) = self.ranges.range(..=off).next_back()?;
        let skip = (off - at) as usize;
        let len = (end - off) as usize;
        if skip + len <= data.len() {
            return Some(data.slice(skip..skip + len));
        }
        let mut out = BytesMut::with_capacity(len);
        out.extend_from_slice(data.get(skip..)?);
        let mut next = at + data.len() as u64;
        for (at, data) in self.ranges.range(next..end) {
            if *at != next {
                return None;
            }
            let n = data.len().min(len - out.len());
            out.extend_from_slice(&data[..n]);
            next += data.len() as u64;
        }
        (out.len() == len).then(|| out.freeze())
    }
}

#[derive(Default)]
struct Inner {
    budget: usize,
    /// What the budget may grow to.
    budget_max: usize,
    bytes: usize,
    stamp: u64,
    entries: HashMap<Of, HashMap<HObject, Entry>>,
    /// How many there are.
    count: usize,
    /// Oldest first; places of entries that are gone are passed over.
    order: VecDeque<(u64, Key)>,
    read_here: HashSet<PgId>,
}

impl Inner {
    fn entry(&mut self, key: &Key) -> Option<&mut Entry> {
        self.entries.get_mut(&key.0)?.get_mut(&key.1)
    }

    fn forget(&mut self, key: &Key) {
        let Some(all) = self.entries.get_mut(&key.0) else { return };
        if let Some(entry) = all.remove(&key.1) {
            self.bytes -= entry.cost();
            self.count -= 1;
        }
        if all.is_empty() {
            self.entries.remove(&key.0);
        }
    }

    fn forget_all(&mut self, of: Of) {
        if let Some(all) = self.entries.remove(&of) {
            self.bytes -= all.values().map(Entry::cost).sum::<usize>();
            self.count -= all.len();
        }
    }

    fn cut(&mut self, key: &Key, from: u64, to: u64) {
        let Some(entry) = self.entry(key) else { return };
        let before = entry.bytes;
        entry.cut(from, to);
        let gone = before - entry.bytes;
        if gone > entry.bytes {
            // What is left must not hold buffers that are mostly gone.
            entry.ranges.values_mut().for_each(|data| *data = Bytes::copy_from_slice(data));
        }
        let empty = entry.ranges.is_empty();
        self.bytes -= gone;
        if empty {
            self.forget(key);
        }
    }

    fn keep(&mut self, key: Key, off: u64, data: &Bytes) {
        if data.len() > self.budget / 2 {
            return self.cut(&key, off, off + data.len() as u64);
        }
        match self.entry(&key) {
            Some(entry) => {
                let before = entry.cost();
                entry.put(off, data);
                entry.used = true;
                let after = entry.cost();
                self.bytes = self.bytes - before + after;
            }
            None => {
                self.stamp += 1;
                let mut entry = Entry { stamp: self.stamp, ..Entry::default() };
                entry.put(off, data);
                self.bytes += entry.cost();
                self.count += 1;
                self.order.push_back((self.stamp, key.clone()));
                self.entries.entry(key.0).or_default().insert(key.1, entry);
            }
        }
        while self.bytes > self.budget || self.order.len() > 2 * self.count + 64 {
            let Some((stamp, key)) = self.order.pop_front() else { break };
            let within = self.bytes <= self.budget;
            let Some(entry) = self.entry(&key).filter(|e| e.stamp == stamp) else {
                continue;
            };
            if within || std::mem::take(&mut entry.used) {
                self.order.push_back((stamp, key));
            } else {
                let more = entry.cost() / GROWS_BY_ONE_OF;
                self.budget = self.budget_max.min(self.budget + more);
                self.forget(&key);
            }
        }
    }

    fn change(&mut self, of: Of, o: &HObject, m: &Mutation, keeps: bool) {
        match m {
            Mutation::Write { off, data } if keeps && !data.is_empty() => {
                self.keep((of, o.detached()), *off, data);
            }
            _ if !self.entries.contains_key(&of) => {}
            Mutation::Write { off, data } => {
                self.cut(&(of, o.clone()), *off, *off + data.len() as u64);
            }
            Mutation::Zero { off, len } | Mutation::CloneRange { off, len, .. } => {
                self.cut(&(of, o.clone()), *off, off.saturating_add(*len));
            }
            Mutation::Truncate(size) => self.cut(&(of, o.clone()), *size, u64::MAX),
            Mutation::Remove | Mutation::CloneFrom(_) => self.forget(&(of, o.clone())),
            _ => {}
        }
    }

    fn read(&mut self, of: Of, o: &HObject, off: u64, len: u64) -> Option<Bytes> {
        let entry = self.entries.get_mut(&of)?.get_mut(o)?;
        let data = entry.read(off, off.checked_add(len)?)?;
        entry.used = true;
        Some(data)
    }
}

/// The cache. Clones share it: the store's adapter fills it, the driver says which PGs
/// count. All live on one thread; the lock is never contended.
#[derive(Clone, Default)]
pub struct DataCache(Arc<Mutex<Inner>>);

impl DataCache {
    /// Of at most `budget` bytes of data.
    #[must_use]
    pub fn new(budget: usize) -> Self {
        let inner = Inner { budget, budget_max: budget, ..Inner::default() };
        Self(Arc::new(Mutex::new(inner)))
    }

    /// Of at most `budget` bytes of data, and at first of no more than 128 MiB: it grows by
    /// an eighth of what is let go for room.
    #[must_use]
    pub fn growing(budget: usize) -> Self {
        let cache = Self::new(budget);
        cache.inner().budget = budget.min(GROWS_FROM);
        cache
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("no panic while held")
    }

    /// Which PGs are read here; data of all others is let go.
    pub fn set_read_here(&self, pgs: HashSet<PgId>) {
        let mut inner = self.inner();
        let is_gone = |of: &&Of| {
            let (Of::Own(pg) | Of::Sent(pg)) = of;
            !pgs.contains(&pg.pg)
        };
        let gone: Vec<Of> = inner.entries.keys().filter(is_gone).copied().collect();
        for of in gone {
            inner.forget_all(of);
        }
        inner.read_here = pgs;
    }

    /// Bytes held.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.inner().bytes
    }

    /// Notes a change to an object, before the store is told of it.
    pub fn on_change(&self, pg: SpgId, o: &HObject, m: &Mutation) {
        let mut inner = self.inner();
        let keeps = matches!(m, Mutation::Write { .. }) && inner.read_here.contains(&pg.pg);
        inner.change(Of::Own(pg), o, m, keeps);
    }

    /// Notes a change to an object's shard elsewhere, which this OSD has thought out.
    /// Large data of `coding` shards is not kept: reads never ask for it, small writes do.
    pub fn on_sent(&self, shard: SpgId, o: &HObject, m: &Mutation, coding: bool) {
        let large = matches!(m, Mutation::Write { data, .. } if data.len() > CODING_MAX);
        self.inner().change(Of::Sent(shard), o, m, !(coding && large));
    }

    /// A collection is gone, or some of its objects have left it.
    pub fn on_drop(&self, pg: SpgId) {
        self.inner().forget_all(Of::Own(pg));
    }

    /// What was sent to a shard may have been taken back.
    pub fn forget_sent(&self, shard: SpgId) {
        self.inner().forget_all(Of::Sent(shard));
    }

    /// The bytes, when all of them are here.
    #[must_use]
    pub fn read(&self, pg: SpgId, o: &HObject, off: u64, len: u64) -> Option<Bytes> {
        self.inner().read(Of::Own(pg), o, off, len)
    }

    /// Bytes of a shard elsewhere as they will be there, when all of them are here.
    #[must_use]
    pub fn read_sent(&self, shard: SpgId, o: &HObject, off: u64, len: u64) -> Option<Bytes> {
        self.inner().read(Of::Sent(shard), o, off, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::{Random, Seeded};
    use types::PoolId;

    fn object(n: u64) -> HObject {
        HObject::head(PoolId(1), Bytes::new(), Bytes::new(), Bytes::from(format!("o{n}")))
    }

    /// Whatever is written, cut, zeroed and removed: a range that is here is what a plain
    /// model of the objects has, and the budget holds.
    #[test]
    fn agrees_with_a_model() {
        const BUDGET: usize = 9_000;
        let (cache, mut random) = (DataCache::new(BUDGET), Seeded(7));
        let pg = SpgId::from(PgId::new(1, 0));
        cache.set_read_here(HashSet::from([pg.pg]));
        let mut model: Vec<Vec<u8>> = vec![Vec::new(); 8];
        let mut hits = 0;
        for round in 0..20_000u32 {
            let n = random.u64() % 8;
            let (o, object_model) = (object(n), &mut model[n as usize]);
            let off = if random.u64() % 2 == 0 { 0 } else { random.u64() % 900 };
            let len = random.u64() % 1_200;
            let (from, to) = (off as usize, (off + len) as usize);
            let m = match random.u64() % 6 {
                0 => Mutation::Truncate(off),
                1 => Mutation::Remove,
                2 => Mutation::Zero { off, len },
                _ => Mutation::Write { off, data: vec![round as u8; len as usize].into() },
            };
            match &m {
                Mutation::Truncate(_) => object_model.resize(from, 0),
                Mutation::Remove => object_model.clear(),
                Mutation::Zero { .. } | Mutation::Write { .. } if len > 0 => {
                    let size = object_model.len().max(to);
                    object_model.resize(size, 0);
                    let fill = if matches!(m, Mutation::Zero { .. }) { 0 } else { round as u8 };
                    object_model[from..to].fill(fill);
                }
                _ => {}
            }
            cache.on_change(pg, &o, &m);
            assert!(cache.bytes() <= BUDGET);
            let (off, len) = (random.u64() % 500, 1 + random.u64() % 500);
            if let Some(found) = cache.read(pg, &o, off, len) {
                hits += 1;
                assert_eq!(
                    found,
                    object_model[off as usize..(off + len) as usize],
                    "round {round}"
                );
            }
        }
        assert!(hits > 1_000, "the test reads what is there: {hits}");
        // There were never more than eight entries: the dead ones' places were cleared.
        let places = cache.inner().order.len();
        assert!(places <= 2 * 8 + 65, "{places} places");
        cache.set_read_here(HashSet::new());
        assert_eq!(cache.bytes(), 0);
    }

    /// A cache that has to let go grows; one that does not stays as it is.
    #[test]
    fn it_grows_with_use() {
        let cache = DataCache::growing(1 << 30);
        let pg = SpgId::from(PgId::new(1, 0));
        cache.set_read_here(HashSet::from([pg.pg]));
        let data = Bytes::from(vec![1; 4 << 20]);
        let mut written = 0;
        let mut write = |mib: u64| {
            for _ in 0..mib / 4 {
                written += 1;
                let m = Mutation::Write { off: 0, data: data.clone() };
                cache.on_change(pg, &object(written), &m);
            }
            cache.bytes() >> 20
        };
        assert_eq!(write(100), 100);
        assert_eq!(write(24), 124);
        assert_eq!(write(64), 132, "128 MiB, and an eighth of what did not fit, in whole objects");
        assert!((240..=256).contains(&write(1_024)));
        assert!((1_016..1_024).contains(&write(8_192)), "no more than it may");
    }

    /// Pieces of an object are read as one, however many there are, and what is used stays.
    #[test]
    fn pieces_make_a_whole() {
        let cache = DataCache::new(100_000);
        let pg = SpgId::from(PgId::new(1, 0));
        cache.set_read_here(HashSet::from([pg.pg]));
        let write = |n: u64, off: u64, byte: u8, len: usize| {
            cache.on_change(pg, &object(n), &Mutation::Write { off, data: vec![byte; len].into() });
        };
        write(1, 0, 1, 40_000);
        for i in (0..200).rev() {
            write(1, i * 200, i as u8, 100);
        }
        let found = cache.read(pg, &object(1), 0, 40_000).expect("all of it");
        assert!(
            (0..40_000).all(|at| found[at] == if at % 200 < 100 { (at / 200) as u8 } else { 1 })
        );
        assert_eq!(cache.bytes(), 40_000 + OBJECT_COST);
        write(2, 0, 2, 40_000);
        assert!(cache.read(pg, &object(1), 10, 10).is_some());
        write(3, 0, 3, 40_000);
        assert!(cache.read(pg, &object(1), 0, 40_000).is_some(), "it was used");
        assert!(cache.read(pg, &object(2), 0, 10).is_none(), "it was not");
        cache.on_change(pg, &object(1), &Mutation::Truncate(5));
        assert_eq!(cache.read(pg, &object(1), 0, 5).as_deref(), Some(&[0u8; 5][..]));
        assert!(cache.read(pg, &object(1), 0, 6).is_none());
    }
}
