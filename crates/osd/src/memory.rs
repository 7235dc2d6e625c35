//! An [`ObjectStore`] in memory, on a disk that loses what was not flushed.
//!
//! For worlds that have no device: the tests of this crate and the simulator. What is
//! submitted is seen at once and durable when the world flushes it, some transactions at a
//! time; a crash keeps what was flushed and some of what followed, in order. That is what
//! `ObjectStore` promises, and no more.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::backing::{Coll, Fetched, ObjectStore, Space, StoreError, StoreOp};
use bytes::{Bytes, BytesMut};
use messages::{Mutation, ObjectChange};
use types::{HObject, SpgId};

/// An object as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Object {
    /// Its data.
    pub data: BytesMut,
    /// Its attributes.
    pub attrs: BTreeMap<Bytes, Bytes>,
    /// Its omap header.
    pub header: Bytes,
    /// Its omap.
    pub omap: BTreeMap<Bytes, Bytes>,
}

/// A collection as it is stored.
#[derive(Clone, Debug, Default)]
pub struct Collection {
    /// Its objects.
    pub objects: BTreeMap<HObject, Object>,
    /// Its keys.
    pub keys: BTreeMap<Bytes, Bytes>,
}

type State = BTreeMap<Coll, Collection>;

/// Objects whose data cannot be read.
type Damaged = BTreeSet<(Coll, HObject)>;

/// What is behind a [`MemStore`].
#[derive(Default)]
pub struct Inner {
    /// With all that was submitted.
    pub now: State,
    disk: State,
    queue: VecDeque<(u64, Vec<StoreOp>)>,
    durable: u64,
    polled: u64,
    /// Bytes that were asked for, with their numbers: they come with the next poll.
    late: VecDeque<(u64, Bytes)>,
    fetches: u64,
    /// Bytes it has left, of 1 TiB; all of it unless told.
    pub available: Option<u64>,
    /// Bytes of the device, instead of 1 TiB; what objects take of them counts.
    pub capacity: Option<u64>,
    /// It was given more than there was room for.
    refused: Option<String>,
    /// Says that this is durable all the same.
    pub deaf: bool,
    /// Objects whose data cannot be read, until they are written anew.
    pub damaged: Damaged,
    /// Those among what is flushed.
    damaged_disk: Damaged,
    /// Says that all is durable as soon as it is submitted.
    pub lies: bool,
    sent: Sent,
    /// Bytes that a transaction takes of a log at most; any number unless told.
    pub record_max: Option<u64>,
}

/// What other shards were sent.
struct Sent(crate::DataCache);

impl Default for Sent {
    fn default() -> Self {
        Self(crate::DataCache::new(256 << 10))
    }
}

/// The store, shared with the world.
#[derive(Clone, Default)]
pub struct MemStore(pub Arc<Mutex<Inner>>);

fn mutate(objects: &mut BTreeMap<HObject, Object>, oid: &HObject, m: &Mutation) {
    match m {
        Mutation::Remove => {
            objects.remove(oid);
            return;
        }
        Mutation::CloneFrom(src) => {
            let copy = objects[src].clone();
            objects.insert(oid.clone(), copy);
            return;
        }
        Mutation::Was { .. } => return,
        _ => {}
    }
    if let Mutation::CloneRange { from, off, len } = m {
        let data = objects[from].data[*off as usize..(off + len) as usize].to_vec();
        let write = Mutation::Write { off: *off, data: data.into() };
        return mutate(objects, oid, &write);
    }
    let o = objects.entry(oid.clone()).or_default();
    let grow = |o: &mut Object, to: usize| {
        if o.data.len() < to {
            o.data.resize(to, 0);
        }
    };
    match m {
        Mutation::Touch
        | Mutation::Remove
        | Mutation::CloneFrom(_)
        | Mutation::CloneRange { .. }
        | Mutation::Was { .. } => {}
        Mutation::Write { off, data } => {
            let off = *off as usize;
            grow(o, off + data.len());
            o.data[off..off + data.len()].copy_from_slice(data);
        }
        Mutation::Zero { off, len } => {
            let (off, end) = (*off as usize, (off + len) as usize);
            grow(o, end);
            o.data[off..end].fill(0);
        }
        Mutation::Truncate(size) => o.data.resize(*size as usize, 0),
        Mutation::SetAttr(k, v) => {
            o.attrs.insert(k.clone(), v.clone());
        }
        Mutation::RmAttr(k) => {
            o.attrs.remove(k);
        }
        Mutation::OmapHeader(h) => o.header = h.clone(),
        Mutation::OmapSet(all) => o.omap.extend(all.iter().cloned()),
        Mutation::OmapRm(keys) => keys.iter().for_each(|k| {
            o.omap.remove(k);
        }),
        Mutation::OmapRmRange(a, b) => o.omap.retain(|k, _| k < a || k >= b),
        Mutation::OmapClear => {
            o.omap.clear();
            o.header = Bytes::new();
        }
    }
}

fn apply(state: &mut State, ops: &[StoreOp]) {
    for op in ops {
        let missing = "the collection exists";
        match op {
            StoreOp::Create(c) => {
                state.entry(*c).or_default();
            }
            StoreOp::Drop(c) => {
                state.remove(c);
            }
            StoreOp::Object(c, oid, all) => {
                let objects = &mut state.get_mut(c).expect(missing).objects;
                all.iter().for_each(|m| mutate(objects, oid, m));
            }
            StoreOp::Put(c, k, v) => {
                state.get_mut(c).expect(missing).keys.insert(k.clone(), v.clone());
            }
            StoreOp::Rm(c, k) => {
                state.get_mut(c).expect(missing).keys.remove(k);
            }
            StoreOp::RmRange(c, a, b) => {
                state.get_mut(c).expect(missing).keys.retain(|k, _| k < a || k >= b);
            }
            StoreOp::Split(from, to, bits) => {
                let mask = (1u64 << bits) as u32 - 1;
                let all = &mut state.get_mut(from).expect(missing).objects;
                let moved: Vec<_> = all.extract_if(.., |o, _| o.hash & mask == to.pg.ps).collect();
                state.get_mut(&Coll::Pg(*to)).expect(missing).objects.extend(moved);
            }
            StoreOp::Merge(from, to) => {
                let moved = std::mem::take(&mut state.get_mut(from).expect(missing).objects);
                state.get_mut(to).expect(missing).objects.extend(moved);
            }
            StoreOp::TakesBack => {}
        }
    }
}

/// What cannot be read after these operations on `state`, which come next.
fn follow_damage(damaged: &mut Damaged, state: &State, ops: &[StoreOp]) {
    if damaged.is_empty() {
        return;
    }
    for op in ops {
        match op {
            StoreOp::Drop(c) => damaged.retain(|(of, _)| of != c),
            StoreOp::Split(from, to, bits) => {
                let mask = (1u64 << bits) as u32 - 1;
                let moves = |(of, o): &(Coll, HObject)| of == from && o.hash & mask == to.pg.ps;
                let moved: Vec<_> = damaged.extract_if(.., moves).collect();
                damaged.extend(moved.into_iter().map(|(_, o)| (Coll::Pg(*to), o)));
            }
            StoreOp::Object(c, oid, all) => {
                let here = (*c, oid.clone());
                if state.get(c).is_none_or(|c| !c.objects.contains_key(oid)) {
                    damaged.remove(&here);
                }
                for m in all {
                    match m {
                        Mutation::Remove | Mutation::Truncate(0) => drop(damaged.remove(&here)),
                        Mutation::CloneFrom(from) | Mutation::CloneRange { from, .. }
                            if damaged.contains(&(*c, from.clone())) =>
                        {
                            damaged.insert(here.clone());
                        }
                        Mutation::CloneFrom(_) => drop(damaged.remove(&here)),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
}

/// What an object takes beside its data, bytes.
const OBJECT_COSTS: u64 = 32;

/// What a transaction may take, at most; 0 when it only removes, takes back, or is about small
/// keys, for which there is always room.
fn takes(state: &State, ops: &[StoreOp]) -> u64 {
    if ops.contains(&StoreOp::TakesBack) {
        return 0;
    }
    let mut bytes = 0;
    let removed = |o: &HObject| {
        let removes = |m: &Mutation| matches!(m, Mutation::Remove);
        ops.iter()
            .any(|op| matches!(op, StoreOp::Object(_, r, all) if r == o && all.iter().any(removes)))
    };
    for op in ops {
        let StoreOp::Object(c, _, all) = op else { continue };
        let size = |o: &HObject| state.get(c).and_then(|c| c.objects.get(o)).map(Object::bytes);
        bytes += all
            .iter()
            .map(|m| match m {
                Mutation::Write { data, .. } => OBJECT_COSTS + data.len() as u64,
                Mutation::OmapSet(all) => all.iter().map(|(k, v)| (k.len() + v.len()) as u64).sum(),
                Mutation::CloneRange { len, .. } => *len,
                Mutation::CloneFrom(from) if !removed(from) => size(from).unwrap_or(0),
                _ => 0,
            })
            .sum::<u64>();
    }
    bytes
}

impl Object {
    /// What it takes of the device, bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let omap: usize = self.omap.iter().map(|(k, v)| k.len() + v.len()).sum();
        OBJECT_COSTS + (self.data.len() + omap) as u64
    }
}

impl Inner {
    /// One of three is in a cache.
    fn mostly_late(&mut self, data: Bytes) -> Fetched {
        self.fetches += 1;
        let id = self.fetches;
        if id.is_multiple_of(3) {
            return Fetched::Here(data);
        }
        self.late.push_back((id, data));
        Fetched::Later(id)
    }

    /// Bytes of the device, and those that transactions may still use.
    pub fn room(&self) -> (u64, u64) {
        match self.capacity {
            Some(total) => (total, total.saturating_sub(self.taken())),
            None => (1 << 40, self.available.unwrap_or(1 << 40)),
        }
    }

    /// Bytes that objects take.
    pub fn taken(&self) -> u64 {
        self.now.values().flat_map(|c| c.objects.values()).map(Object::bytes).sum()
    }

    /// The data of an object cannot be read any more, until it is written anew.
    pub fn spoil(&mut self, coll: Coll, oid: HObject) {
        self.damaged.insert((coll, oid.clone()));
        self.damaged_disk.insert((coll, oid));
    }

    /// Makes up to `n` transactions durable.
    pub fn flush(&mut self, n: usize) {
        for _ in 0..n {
            let Some((ticket, ops)) = self.queue.pop_front() else { return };
            follow_damage(&mut self.damaged_disk, &self.disk, &ops);
            apply(&mut self.disk, &ops);
            self.durable = ticket;
        }
    }

    /// Transactions that are not durable.
    pub fn queued(&self) -> usize {
        self.queue.len() + self.late.len()
    }

    /// The process ends: `kept` of the queued transactions were flushed all the same.
    pub fn crash(&mut self, kept: usize) {
        self.flush(kept);
        self.queue.clear();
        self.late.clear();
        self.sent = Sent::default();
        self.now = self.disk.clone();
        self.damaged = self.damaged_disk.clone();
        (self.durable, self.polled, self.refused) = (0, 0, None);
    }
}

impl MemStore {
    /// What is in it.
    ///
    /// # Panics
    /// When a checker panicked in here before.
    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("nothing panics in here")
    }

    fn object<T>(&self, c: Coll, o: &HObject, f: impl FnOnce(&Object) -> T) -> Option<T> {
        self.lock().now.get(&c)?.objects.get(o).map(f)
    }
}

impl ObjectStore for MemStore {
    fn poll(&mut self) -> Result<Option<u64>, StoreError> {
        let mut i = self.lock();
        if let Some(why) = &i.refused {
            return Err(StoreError(format!("no more writes: {why}")));
        }
        let durable = if i.lies { i.queue.back().map_or(i.durable, |q| q.0) } else { i.durable };
        let fresh = (durable > i.polled).then_some(durable);
        i.polled = durable.max(i.polled);
        Ok(fresh)
    }

    fn is_stopped(&self) -> bool {
        self.lock().refused.is_some()
    }

    fn submit(&mut self, ops: Vec<StoreOp>, ticket: u64) {
        let mut i = self.lock();
        let record = crate::bulk::record_of_ops(&ops);
        if let Some(max) = i.record_max.filter(|max| record > *max) {
            i.refused = Some(format!("a transaction takes {record} bytes of the log, of {max}"));
        }
        if i.refused.is_none() && i.capacity.is_some() {
            let (takes, available) = (takes(&i.now, &ops), i.room().1);
            if takes > 0 && takes > available {
                let objects = ops.iter().filter(|op| matches!(op, StoreOp::Object(..)));
                let objects: Vec<_> = objects.collect();
                let why = format!("{takes} bytes do not fit into {available}: {objects:?}");
                i.refused = Some(why);
            }
        }
        if i.refused.is_some() && i.deaf {
            i.refused = None;
            i.queue.push_back((ticket, Vec::new()));
            return;
        }
        if i.refused.is_some() {
            return;
        }
        let Inner { damaged, now, .. } = &mut *i;
        follow_damage(damaged, now, &ops);
        apply(&mut i.now, &ops);
        i.queue.push_back((ticket, ops));
    }

    fn record_max(&self) -> u64 {
        self.lock().record_max.unwrap_or(u64::MAX)
    }

    fn at_hand(&self, c: Coll, o: &HObject, off: u64, len: u64) -> Option<Bytes> {
        // So that both ways are gone.
        if o.hash.is_multiple_of(2) { self.read(c, o, off, len).ok().flatten() } else { None }
    }

    fn note_sent(&mut self, shard: SpgId, change: &ObjectChange, coding: bool) {
        let sent = &self.lock().sent.0;
        change.mutations.iter().for_each(|m| sent.on_sent(shard, &change.oid, m, coding));
    }

    fn sent_at_hand(&self, shard: SpgId, o: &HObject, off: u64, len: u64) -> Option<Bytes> {
        // So that both ways are gone.
        if o.hash & 2 == 0 { self.lock().sent.0.read_sent(shard, o, off, len) } else { None }
    }

    fn forget_sent(&mut self, shard: SpgId) {
        self.lock().sent.0.forget_sent(shard);
    }

    fn read(&self, c: Coll, o: &HObject, off: u64, len: u64) -> Result<Option<Bytes>, StoreError> {
        let damaged = !self.lock().damaged.is_empty();
        if damaged && self.lock().damaged.contains(&(c, o.clone())) {
            return Err(StoreError(format!("{o}: a checksum is wrong")));
        }
        Ok(self.object(c, o, |o| {
            let size = o.data.len();
            let from = (off as usize).min(size);
            let to = (off.saturating_add(len) as usize).min(size);
            Bytes::copy_from_slice(&o.data[from..to])
        }))
    }

    fn fetch(
        &mut self,
        c: Coll,
        o: &HObject,
        off: u64,
        len: u64,
    ) -> Result<Option<Fetched>, StoreError> {
        let data = self.read(c, o, off, len)?;
        Ok(data.map(|data| self.lock().mostly_late(data)))
    }

    fn stage(&mut self, _pool: types::PoolId, data: &Bytes) -> Option<Fetched> {
        Some(self.lock().mostly_late(data.clone()))
    }

    fn size(&self, c: Coll, o: &HObject) -> Result<Option<u64>, StoreError> {
        Ok(self.object(c, o, |o| o.data.len() as u64))
    }

    fn fetched(&mut self) -> Option<(u64, Result<Bytes, StoreError>)> {
        let (id, data) = self.lock().late.pop_front()?;
        Some((id, Ok(data)))
    }

    fn attr(&self, c: Coll, o: &HObject, name: &[u8]) -> Result<Option<Bytes>, StoreError> {
        Ok(self.object(c, o, |o| o.attrs.get(name).cloned()).flatten())
    }

    fn attrs(&self, c: Coll, o: &HObject) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        let all = self.object(c, o, |o| o.attrs.clone().into_iter().collect());
        Ok(all.unwrap_or_default())
    }

    fn attrs_bytes(&self, c: Coll, o: &HObject) -> Result<u64, StoreError> {
        let sum = |o: &Object| o.attrs.iter().map(|(k, v)| crate::bulk::attr_bytes(k, v)).sum();
        Ok(self.object(c, o, sum).unwrap_or_default())
    }

    fn omap_header(&self, c: Coll, o: &HObject) -> Result<Bytes, StoreError> {
        Ok(self.object(c, o, |o| o.header.clone()).unwrap_or_default())
    }

    fn omap_get(&self, c: Coll, o: &HObject, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        Ok(self.object(c, o, |o| o.omap.get(key).cloned()).flatten())
    }

    fn omap_walk(
        &self,
        c: Coll,
        o: &HObject,
        from: &[u8],
        each: &mut dyn FnMut(&[u8], &Bytes) -> bool,
    ) -> Result<(), StoreError> {
        let all = self.object(c, o, |o| o.omap.clone()).unwrap_or_default();
        for (k, v) in all.iter().filter(|(k, _)| k.as_ref() >= from) {
            if !each(k, v) {
                break;
            }
        }
        Ok(())
    }

    fn list(&self, c: Coll, from: &HObject, max: usize) -> Result<Vec<HObject>, StoreError> {
        let i = self.lock();
        let Some(coll) = i.now.get(&c) else { return Ok(Vec::new()) };
        Ok(coll.objects.range(from..).take(max).map(|(o, _)| o.clone()).collect())
    }

    fn get(&self, c: Coll, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        Ok(self.lock().now.get(&c).and_then(|c| c.keys.get(key).cloned()))
    }

    fn walk(
        &self,
        c: Coll,
        from: &[u8],
        to: &[u8],
        each: &mut dyn FnMut(&[u8], &Bytes) -> bool,
    ) -> Result<(), StoreError> {
        let keys = self.lock().now.get(&c).map(|c| c.keys.clone()).unwrap_or_default();
        for (k, v) in keys.iter().filter(|(k, _)| k.as_ref() >= from && k.as_ref() < to) {
            if !each(k, v) {
                break;
            }
        }
        Ok(())
    }

    fn collections(&self) -> Vec<Coll> {
        self.lock().now.keys().copied().collect()
    }

    fn space(&self) -> Space {
        let (total, available) = self.lock().room();
        Space { total, available, ..Space::default() }
    }
}
