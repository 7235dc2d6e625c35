//! Object data kept in memory as it was written, for the reads that follow.
//!
//! What is kept are the buffers that came over the wire: large ones are copied neither on
//! the way in nor out. Only PGs that are read here are kept: those that this OSD leads. Of a
//! coded object its primary keeps what it sent to the other shards, too, and these nothing:
//! most of its reads ask nobody. Reads do not let anything in: a scan over more data than
//! fits does not drive out what is here. What was used since it was last looked at stays for
//! another round.
//!
//! The budget is small at first and grows with use: a page that is touched for the first
//! time costs more than all other work on what is written there, and one that was let go is
//! there for the next write. Until it is all there, large writes drive nothing out, and grow it for
//! one object of 64; small ones take the place of what was not used lately, and grow it by an
//! eighth of their bytes. Once there was no room for either, moments without work are used to
//! touch the memory for more ([`DataCache::take_memory`]).
//!
//! Invariants: a kept range equals what the store returns for it, or another shard's store
//! once it has all that this primary sent; the sum of all ranges stays within the budget.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::{Bytes, BytesMut};
use messages::Mutation;
use stdx::{BlockSums, FastMap, FastSet};
use store::KnownSums;
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
/// Ranges of an object that may lie side by side before they are joined: as many as a usual
/// object of the peer's images has blocks.
const RANGES_MAX: usize = 1024;
/// Where that leaves more, the largest of them stay.
const RANGES_KEPT: usize = RANGES_MAX / 4 * 3;
/// They are joined to ranges of so many bytes at most, so that each byte is copied but a few
/// times, however many come.
const JOINED_MAX: usize = 64 << 10;
/// What an object costs beside its data, and what each of its ranges does.
const OBJECT_COST: usize = 512;
const RANGE_COST: usize = 96;
/// The budget of a cache that grows, at first.
const GROWS_FROM: usize = 256 << 20;
/// Such a cache grows for large writes to one object of so many.
const GROWS_FOR_ONE_OF: u32 = 64;
/// Large in this sense.
const LARGE: usize = 64 << 10;
/// And by this part of what else is written.
const GROWS_BY_ONE_OF: usize = 8;
/// Memory for later is taken in blocks of so many bytes: no smaller than what messages bring,
/// for which blocks that do not lie side by side are of no use.
const BLOCK: usize = 4 << 20;

#[derive(Default)]
struct Entry {
    /// Ranges by their first byte; none overlap.
    ranges: BTreeMap<u64, Bytes>,
    /// Bytes in all of them.
    bytes: usize,
    /// Those of the range that begins there, where they are known and it was the last to change.
    sums: Option<(u64, BlockSums)>,
    /// Tells this entry's place in `order` from those of earlier ones.
    stamp: u64,
    /// Read or written since it was put where it is in `order`.
    used: bool,
}

impl Entry {
    fn cost(&self) -> usize {
        let sums = self.sums.as_ref().map_or(0, |(_, sums)| size_of_val(sums.blocks()));
        self.bytes + sums + OBJECT_COST + RANGE_COST * self.ranges.len()
    }

    /// Takes out what lies in `from..to`.
    fn cut(&mut self, from: u64, to: u64) {
        self.sums = None;
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

    /// Writes into the range that holds all of these bytes already, if nobody else looks at
    /// its buffer: small overwrites of a large object would cut it into ever more ranges.
    fn overwrite(&mut self, off: u64, data: &Bytes) -> bool {
        let Some((at, kept)) = self.ranges.range_mut(..=off).next_back() else { return false };
        let from = (off - at) as usize;
        if from + data.len() > kept.len() {
            return false;
        }
        match std::mem::take(kept).try_into_mut() {
            Ok(mut own) => {
                own[from..from + data.len()].copy_from_slice(data);
                *kept = own.freeze();
                true
            }
            Err(shared) => {
                *kept = shared;
                false
            }
        }
    }

    fn put(&mut self, off: u64, data: &Bytes, sums: Option<BlockSums>) {
        self.sums = None;
        if data.len() < COPIED_MAX && self.overwrite(off, data) {
            return;
        }
        self.cut(off, off + data.len() as u64);
        let data =
            if data.len() < COPIED_MAX { Bytes::copy_from_slice(data) } else { data.clone() };
        self.bytes += data.len();
        self.ranges.insert(off, data);
        self.sums = sums.map(|sums| (off, sums));
        if self.ranges.len() > RANGES_MAX {
            self.join();
        }
    }

    /// Makes one range of those that touch each other, while it is not too large.
    fn join(&mut self) {
        self.sums = None;
        let mut all = std::mem::take(&mut self.ranges).into_iter().peekable();
        while let Some((at, first)) = all.next() {
            let mut len = first.len();
            let mut run = vec![first];
            let fits = |len: usize, next: u64, data: &Bytes| {
                next == at + len as u64 && len + data.len() <= JOINED_MAX
            };
            while let Some((_, data)) = all.next_if(|(next, data)| fits(len, *next, data)) {
                len += data.len();
                run.push(data);
            }
            let data = if run.len() == 1 { run.remove(0) } else { run.concat().into() };
            self.ranges.insert(at, data);
        }
        if self.ranges.len() > RANGES_KEPT {
            let mut by_len: Vec<(usize, u64)> =
                self.ranges.iter().map(|(at, data)| (data.len(), *at)).collect();
            by_len.sort_unstable();
            for (len, at) in &by_len[..by_len.len() - RANGES_KEPT] {
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

/// Whether a growing cache grows for large writes to this object: for all of its shards, or
/// none. The hash's low bits say the PG.
fn grows_for(o: &HObject) -> bool {
    (o.hash.wrapping_mul(0x9e37_79b1) >> 16).is_multiple_of(GROWS_FOR_ONE_OF)
}

#[derive(Default)]
struct Inner {
    budget: usize,
    /// What the budget may grow to.
    budget_max: usize,
    /// Something was not kept, for want of budget.
    wanted: bool,
    /// Data passes through the roles as [`Bytes`] and nothing else. What is known of it is noted here
    /// by whoever brings it, and found by whoever takes it on.
    in_hand: KnownSums,
    /// Touched and not used yet; within the budget. Let go block by block as data comes.
    reserve: Vec<Vec<u8>>,
    /// Bytes kept since the last block was let go.
    came: usize,
    bytes: usize,
    stamp: u64,
    entries: FastMap<Of, FastMap<HObject, Entry>>,
    /// How many there are.
    count: usize,
    /// Oldest first; places of entries that are gone are passed over.
    order: VecDeque<(u64, Key)>,
    read_here: FastSet<PgId>,
}

impl Inner {
    fn entry(&mut self, of: Of, o: &HObject) -> Option<&mut Entry> {
        self.entries.get_mut(&of)?.get_mut(o)
    }

    fn forget(&mut self, of: Of, o: &HObject) {
        let Some(all) = self.entries.get_mut(&of) else { return };
        if let Some(entry) = all.remove(o) {
            self.bytes -= entry.cost();
            self.count -= 1;
        }
        if all.is_empty() {
            self.entries.remove(&of);
        }
    }

    fn forget_all(&mut self, of: Of) {
        if let Some(all) = self.entries.remove(&of) {
            self.bytes -= all.values().map(Entry::cost).sum::<usize>();
            self.count -= all.len();
        }
    }

    fn cut(&mut self, of: Of, o: &HObject, from: u64, to: u64) {
        let Some(entry) = self.entry(of, o) else { return };
        let (before, cost) = (entry.bytes, entry.cost());
        entry.cut(from, to);
        if before - entry.bytes > entry.bytes {
            // What is left must not hold buffers that are mostly gone.
            entry.ranges.values_mut().for_each(|data| *data = Bytes::copy_from_slice(data));
        }
        let (empty, after) = (entry.ranges.is_empty(), entry.cost());
        self.bytes = self.bytes - cost + after;
        if empty {
            self.forget(of, o);
        }
        self.evict();
    }

    fn keep(&mut self, of: Of, o: &HObject, off: u64, data: &Bytes) {
        let sums = self.in_hand.of(data).cloned();
        if data.len() > self.budget / 2 {
            return self.cut(of, o, off, off + data.len() as u64);
        }
        if self.budget < self.budget_max {
            let large = data.len() >= LARGE;
            if large {
                // What it replaces makes room for it.
                self.cut(of, o, off, off + data.len() as u64);
            } else if self.wanted {
                let more = data.len().div_ceil(GROWS_BY_ONE_OF);
                self.budget = (self.budget + more).min(self.budget_max);
            }
            let with_it = self.bytes + data.len() + OBJECT_COST + RANGE_COST;
            if with_it > self.budget {
                if large && grows_for(o) {
                    self.budget = with_it.min(self.budget_max);
                } else {
                    self.wanted = true;
                    if large {
                        return;
                    }
                }
            }
        }
        if let Some(entry) = self.entry(of, o) {
            let before = entry.cost();
            entry.put(off, data, sums);
            entry.used = true;
            let after = entry.cost();
            self.bytes = self.bytes - before + after;
        } else {
            self.stamp += 1;
            let mut entry = Entry { stamp: self.stamp, ..Entry::default() };
            entry.put(off, data, sums);
            self.bytes += entry.cost();
            self.count += 1;
            let o = o.detached();
            self.order.push_back((self.stamp, (of, o.clone())));
            self.entries.entry(of).or_default().insert(o, entry);
        }
        // What was taken for later is for the next buffers.
        self.came += data.len();
        let left = self.reserve.len().saturating_sub(self.came / BLOCK);
        self.came %= BLOCK;
        self.reserve.truncate(left.min(self.budget.saturating_sub(self.bytes) / BLOCK));
        self.evict();
    }

    /// Lets go what was not used lately, until the budget holds.
    fn evict(&mut self) {
        while self.bytes > self.budget || self.order.len() > 2 * self.count + 64 {
            let Some((stamp, (of, o))) = self.order.pop_front() else { break };
            let within = self.bytes <= self.budget;
            let Some(entry) = self.entry(of, &o).filter(|e| e.stamp == stamp) else {
                continue;
            };
            if within || std::mem::take(&mut entry.used) {
                self.order.push_back((stamp, (of, o)));
            } else {
                self.forget(of, &o);
            }
        }
    }

    fn change(&mut self, of: Of, o: &HObject, m: &Mutation, keeps: bool) {
        match m {
            Mutation::Write { off, data } if keeps && !data.is_empty() => {
                self.keep(of, o, *off, data);
            }
            _ if !self.entries.contains_key(&of) => {}
            Mutation::Write { off, data } => {
                self.cut(of, o, *off, *off + data.len() as u64);
            }
            Mutation::Zero { off, len } | Mutation::CloneRange { off, len, .. } => {
                self.cut(of, o, *off, off.saturating_add(*len));
            }
            Mutation::Truncate(size) => self.cut(of, o, *size, u64::MAX),
            Mutation::Remove | Mutation::CloneFrom(_) => self.forget(of, o),
            _ => {}
        }
    }

    fn read(&mut self, of: Of, o: &HObject, off: u64, len: u64) -> Option<Bytes> {
        let entry = self.entries.get_mut(&of)?.get_mut(o)?;
        let data = entry.read(off, off.checked_add(len)?)?;
        entry.used = true;
        if let Some((at, sums)) = &entry.sums
            && *at == off
        {
            self.in_hand.note(&data, sums);
        }
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

    /// Of at most `budget` bytes of data, and at first of no more than 256 MiB: it grows by
    /// what is written in little pieces, and by a little of the rest.
    #[must_use]
    pub fn growing(budget: usize) -> Self {
        let cache = Self::new(budget);
        cache.inner().budget = budget.min(GROWS_FROM);
        cache
    }

    /// With nothing else to do: takes up to `bytes` of memory for what could not be kept
    /// before, and touches it, two microseconds and more for each page.
    pub fn take_memory(&self, bytes: usize) {
        let mut inner = self.inner();
        for _ in 0..bytes / BLOCK {
            let with_it = inner.bytes + (inner.reserve.len() + 1) * BLOCK;
            if !inner.wanted || with_it > inner.budget_max {
                return;
            }
            inner.budget = inner.budget.max(with_it);
            inner.reserve.push(vec![1; BLOCK]);
        }
    }

    /// Gives back what was taken and is not used. Gives whether there was any.
    pub fn give_memory(&self) -> bool {
        let mut inner = self.inner();
        inner.wanted = false;
        let taken = std::mem::take(&mut inner.reserve).len() * BLOCK;
        let least = inner.budget_max.min(GROWS_FROM);
        inner.budget = least.max(inner.budget - taken);
        taken > 0
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("no panic while held")
    }

    /// Which PGs are read here; data of all others is let go.
    pub fn set_read_here(&self, pgs: FastSet<PgId>) {
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

    /// Objects of which something is held.
    #[must_use]
    pub fn objects(&self) -> usize {
        self.inner().entries.values().map(|all| all.len()).sum()
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

    /// The sums of data that is in hand, until [`DataCache::let_go`]: they are kept with it, and
    /// given with it.
    pub fn note_sums(&self, data: &Bytes, sums: &BlockSums) {
        self.inner().in_hand.note(data, sums);
    }

    /// The sums of exactly this data, where it was noted, or came from here.
    #[must_use]
    pub fn sums_of(&self, data: &Bytes) -> Option<BlockSums> {
        self.inner().in_hand.of(data).cloned()
    }

    /// Nothing is in hand any more.
    pub fn let_go(&self) {
        self.inner().in_hand.clear();
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

    /// A PG whose data the cache keeps.
    fn led_here(cache: &DataCache) -> SpgId {
        let pg = SpgId::from(PgId::new(1, 0));
        cache.set_read_here([pg.pg].into_iter().collect());
        pg
    }

    /// Whatever is written, cut, zeroed and removed: a range that is here is what a plain
    /// model of the objects has, and the budget holds.
    #[test]
    fn agrees_with_a_model() {
        const BUDGET: usize = 9_000;
        let (cache, mut random) = (DataCache::new(BUDGET), Seeded(7));
        let pg = led_here(&cache);
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
        cache.set_read_here(FastSet::default());
        assert_eq!(cache.bytes(), 0);
    }

    /// The sums that come with what is read are those of its bytes, however it was changed since they
    /// were noted; and what is not in hand any more has none.
    #[test]
    fn sums_are_those_of_the_data() {
        let (cache, mut random) = (DataCache::new(1 << 20), Seeded(11));
        let pg = led_here(&cache);
        let mut known = 0;
        for round in 0..5_000u32 {
            let o = object(random.u64() % 3);
            let (block, blocks) = (random.u64() % 8, 1 + random.u64() % 8);
            let small = (block * 4096 + random.u64() % 4096, 1 + random.u64() % 4096);
            let (off, len) = match random.u64() % 3 {
                0 => small,
                _ => (block * 4096, blocks * 4096),
            };
            let data: Bytes = (0..len).map(|i| (i * 7 + u64::from(round)) as u8).collect();
            if let Some(sums) = BlockSums::of(&data) {
                cache.note_sums(&data, &sums);
            }
            let m = match random.u64() % 8 {
                0 => Mutation::Truncate(off),
                1 => Mutation::Zero { off, len },
                _ => Mutation::Write { off, data },
            };
            cache.on_change(pg, &o, &m);
            cache.let_go();
            for at in 0..8 {
                for n in 1..9 {
                    let Some(data) = cache.read(pg, &o, at * 4096, n * 4096) else { continue };
                    if let Some(sums) = cache.sums_of(&data) {
                        known += 1;
                        assert_eq!(Some(sums), BlockSums::of(&data), "round {round}");
                    }
                    cache.let_go();
                    assert_eq!(cache.sums_of(&data), None, "it is not in hand");
                }
            }
        }
        assert!(known > 1_000, "some were known: {known}");
    }

    /// A cache that is full grows, for large writes slowly, and keeps what it has; what it
    /// does not keep is not there.
    #[test]
    fn it_grows_with_use() {
        const MIB: u64 = 1 << 20;
        let cache = DataCache::growing(1 << 30);
        let pg = led_here(&cache);
        let data = Bytes::from(vec![1; 4 << 20]);
        let write = |n: u64, len: usize| {
            let m = Mutation::Write { off: 0, data: data.slice(..len) };
            cache.on_change(pg, &object(n), &m);
            cache.bytes() as u64 / MIB
        };
        let large = |objects: std::ops::Range<u64>| {
            objects.map(|n| write(n, data.len())).last().expect("some")
        };
        let is_here = |n: u64| cache.read(pg, &object(n), 0, 4096).is_some();
        assert_eq!(large(0..63), 252);
        let grown = large(63..963);
        assert!((280..340).contains(&grown), "900 more, of 4 MiB: {grown} MiB");
        assert!((0..63).all(is_here));
        let new = Mutation::Write { off: 0, data: vec![2; 4 << 20].into() };
        (0..63).for_each(|n| cache.on_change(pg, &object(n), &new));
        let now = |n| cache.read(pg, &object(n), 0, 1).is_some_and(|found| found[..] == [2]);
        assert!((0..63).all(now), "what is replaced needs no room");
        (100..163).for_each(|n| cache.on_change(pg, &object(n), &new));
        assert!((100..163).all(|n| now(n) == is_here(n)));
        let before = cache.bytes() as u64 / MIB;
        for n in 0..32 * 1024 {
            write(100_000 + n, 4096);
        }
        let kept = (100_000..132_768).filter(|n| is_here(*n)).count();
        assert!(kept > 20_000, "little pieces drive out what was not used: {kept}");
        let old = (0..63).chain(100..963).filter(|n| is_here(*n)).count() as u64;
        assert!((1..before / 4).contains(&old), "what was used has its second chance: {old}");
        let grown = cache.bytes() as u64 / MIB - before;
        assert!((12..32).contains(&grown), "and grow it slowly: {grown} MiB for 128");
        large(2_000..16_000);
        assert!((1_016..1_024).contains(&large(14_000..14_001)), "no more than it may");
        assert!(!(0..63).any(is_here), "and all of it is used for what is new");
    }

    /// What a cache could not keep it has room for after moments without work; what is not
    /// used of that goes back.
    #[test]
    fn it_takes_memory_when_idle() {
        const MIB: usize = 1 << 20;
        let cache = DataCache::growing(1 << 30);
        let pg = led_here(&cache);
        let data = Bytes::from(vec![1; 4 << 20]);
        let write = |n: u64| {
            let m = Mutation::Write { off: 0, data: data.clone() };
            cache.on_change(pg, &object(n), &m);
            cache.read(pg, &object(n), 0, 1).is_some()
        };
        let taken = || cache.inner().reserve.len() * BLOCK;
        let unused = || cache.0.lock().map(|i| i.budget - i.bytes).expect("not held");
        cache.take_memory(8 * MIB);
        assert_eq!(taken(), 0, "nothing was wanted");
        let left_out = (0..200).find(|n| !write(*n)).expect("more than fits");
        cache.take_memory(100 * MIB);
        assert_eq!(taken(), 100 * MIB);
        assert_eq!(unused(), 100 * MIB);
        assert!(write(left_out) && (1_000..1_023).all(write), "24 of them have room now");
        assert!(taken() <= 8 * MIB);
        assert!(!(2_000..2_050).all(write));
        cache.take_memory(200 * MIB);
        assert!(cache.give_memory());
        assert_eq!((taken(), unused()), (0, 0));
        assert!(!cache.give_memory());
        cache.take_memory(8 * MIB);
        assert_eq!(taken(), 0);
    }

    /// Pieces of an object are read as one, however many there are, and what is used stays.
    #[test]
    fn pieces_make_a_whole() {
        let cache = DataCache::new(100_000);
        let pg = led_here(&cache);
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
        assert_eq!(cache.bytes(), 40_000 + OBJECT_COST + RANGE_COST);
        write(2, 0, 2, 40_000);
        assert!(cache.read(pg, &object(1), 10, 10).is_some());
        write(3, 0, 3, 40_000);
        assert!(cache.read(pg, &object(1), 0, 40_000).is_some(), "it was used");
        assert!(cache.read(pg, &object(2), 0, 10).is_none(), "it was not");
        cache.on_change(pg, &object(1), &Mutation::Truncate(5));
        assert_eq!(cache.read(pg, &object(1), 0, 5).as_deref(), Some(&[0u8; 5][..]));
        assert!(cache.read(pg, &object(1), 0, 6).is_none());
    }

    /// Many small writes: in an object that is here each takes the place of what was there,
    /// unless somebody reads that; elsewhere they become ranges of some length.
    #[test]
    fn small_writes_are_copied_once() {
        let cache = DataCache::new(10 << 20);
        let pg = led_here(&cache);
        let write = |n: u64, off: u64, byte: u8, len: usize| {
            cache.on_change(pg, &object(n), &Mutation::Write { off, data: vec![byte; len].into() });
        };
        let ranges = |n| {
            let mut inner = cache.inner();
            let all = &inner.entry(Of::Own(pg), &object(n)).expect("it").ranges;
            (all.len(), all.values().map(Bytes::len).max().expect("some"))
        };
        write(1, 0, 1, 40_000);
        for i in 0..300 {
            write(1, i * 37 % 390 * 100, 2, 100);
        }
        assert_eq!(ranges(1), (1, 40_000));
        let before = cache.read(pg, &object(1), 0, 40_000).expect("all of it");
        let twos = before.iter().filter(|b| **b == 2).count();
        write(1, 0, 3, 10);
        assert_eq!(before.iter().filter(|b| **b == 2).count(), twos, "what was read stays");
        let after = cache.read(pg, &object(1), 0, 40_000).expect("all of it");
        assert_eq!((after[..10].to_vec(), &after[10..]), (vec![3; 10], &before[10..]));
        assert_eq!(ranges(1).0, 2);

        for i in 0..2_048 {
            write(2, i * 3 % 2_048 * 2_048, (i % 251) as u8, 2_048);
        }
        let (many, longest) = ranges(2);
        assert!(many <= RANGES_MAX && (4_096..=JOINED_MAX).contains(&longest), "{many} {longest}");
        let whole = cache.read(pg, &object(2), 0, 4 << 20).expect("all of it");
        assert!((0..2_048).all(|i| whole[i * 3 % 2_048 * 2_048] == (i % 251) as u8));
    }
}
