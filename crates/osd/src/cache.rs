//! Object data kept in memory as it was written, for the reads that follow.
//!
//! What is kept is the beginning of an object, as the buffers that came over the wire:
//! nothing is copied on the way in or out. Only PGs that this OSD leads are kept, since
//! only they are read here. Reads do not let anything in: a scan over more data than fits
//! does not drive out what is here.
//!
//! Invariants: a kept range equals what the store returns for it; the sum of all ranges
//! stays within the budget.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use messages::Mutation;
use types::{HObject, PgId, SpgId};

type Key = (SpgId, HObject);

struct Entry {
    /// The object's first bytes.
    head: Bytes,
    /// Tells this entry's place in `order` from those of earlier ones.
    stamp: u64,
}

#[derive(Default)]
struct Inner {
    budget: usize,
    bytes: usize,
    stamp: u64,
    entries: HashMap<Key, Entry>,
    /// Oldest first; places of entries that are gone are passed over.
    order: VecDeque<(u64, Key)>,
    led: HashSet<PgId>,
}

/// The cache. Clones share it: the store's adapter fills it, the driver says which PGs
/// count. All live on one thread; the lock is never contended.
#[derive(Clone, Default)]
pub struct DataCache(Arc<Mutex<Inner>>);

impl Inner {
    fn forget(&mut self, key: &Key) {
        if let Some(entry) = self.entries.remove(key) {
            self.bytes -= entry.head.len();
        }
    }

    fn cut(&mut self, key: &Key, len: u64) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if len == 0 {
            return self.forget(key);
        }
        if len < entry.head.len() {
            self.bytes -= entry.head.len() - len;
            entry.head.truncate(len);
        }
    }

    fn keep(&mut self, key: Key, head: Bytes) {
        self.forget(&key);
        if head.len() > self.budget {
            return;
        }
        self.stamp += 1;
        self.bytes += head.len();
        self.order.push_back((self.stamp, key.clone()));
        self.entries.insert(key, Entry { head, stamp: self.stamp });
        while self.bytes > self.budget || self.order.len() > 2 * self.entries.len() + 64 {
            let Some((stamp, key)) = self.order.pop_front() else { break };
            if self.entries.get(&key).is_some_and(|e| e.stamp == stamp) {
                if self.bytes > self.budget {
                    self.forget(&key);
                } else {
                    self.order.push_back((stamp, key)); // passed over only to drop the dead
                }
            }
        }
    }
}

impl DataCache {
    /// Of at most `budget` bytes of data.
    #[must_use]
    pub fn new(budget: usize) -> Self {
        Self(Arc::new(Mutex::new(Inner { budget, ..Inner::default() })))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("no panic while held")
    }

    /// Which PGs are read here; data of all others is let go.
    pub fn set_led(&self, led: HashSet<PgId>) {
        let mut inner = self.inner();
        let gone: Vec<Key> =
            inner.entries.keys().filter(|(pg, _)| !led.contains(&pg.pg)).cloned().collect();
        for key in gone {
            inner.forget(&key);
        }
        inner.led = led;
    }

    /// Bytes of data held.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.inner().bytes
    }

    /// Notes a change to an object, before the store is told of it.
    pub fn on_change(&self, pg: SpgId, o: &HObject, m: &Mutation) {
        let mut inner = self.inner();
        let known = |inner: &Inner, key: &Key| inner.entries.get(key).map_or(0, |e| e.head.len());
        match m {
            Mutation::Write { off: 0, data } if !data.is_empty() => {
                if !inner.led.contains(&pg.pg) {
                    return;
                }
                let key = (pg, o.detached());
                if data.len() >= known(&inner, &key) {
                    inner.keep(key, data.clone());
                } else {
                    inner.forget(&key);
                }
            }
            Mutation::Write { off, data } if !data.is_empty() && !inner.entries.is_empty() => {
                inner.cut(&(pg, o.clone()), *off);
            }
            Mutation::Zero { off, .. } | Mutation::CloneRange { off, .. } => {
                inner.cut(&(pg, o.clone()), *off)
            }
            Mutation::Truncate(size) => inner.cut(&(pg, o.clone()), *size),
            Mutation::Remove | Mutation::CloneFrom(_) => inner.forget(&(pg, o.clone())),
            _ => {}
        }
    }

    /// A collection is gone, or some of its objects have left it.
    pub fn on_drop(&self, pg: SpgId) {
        let mut inner = self.inner();
        let gone: Vec<Key> = inner.entries.keys().filter(|k| k.0 == pg).cloned().collect();
        for key in gone {
            inner.forget(&key);
        }
    }

    /// The bytes, when all of them are here.
    #[must_use]
    pub fn read(&self, pg: SpgId, o: &HObject, off: u64, len: u64) -> Option<Bytes> {
        let inner = self.inner();
        if inner.entries.is_empty() {
            return None;
        }
        let entry = inner.entries.get(&(pg, o.clone()))?;
        let end = off.checked_add(len).filter(|end| *end <= entry.head.len() as u64)?;
        Some(entry.head.slice(off as usize..end as usize))
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
        const BUDGET: usize = 5_000;
        let (cache, mut random) = (DataCache::new(BUDGET), Seeded(7));
        let pg = SpgId::from(PgId::new(1, 0));
        cache.set_led(HashSet::from([pg.pg]));
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
        cache.set_led(HashSet::new());
        assert_eq!(cache.bytes(), 0);
    }
}
