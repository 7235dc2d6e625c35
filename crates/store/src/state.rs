//! The store's state in memory over its tables: what reads see.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use denc::Denc;
use types::{HObject, PoolId};

use crate::buf::Pool;
use crate::cache::Cache;
use crate::fetch::{Found, ReadPlan, Run, Way};
use crate::keys::{self, Key};
use crate::onode::{BLOCK, Onode};
use crate::pack::Compression;
use crate::part::{Part, hash};
use crate::space::Space;
use crate::table::{Block, Slot, Table};
use crate::{Coll, OpenOptions, PoolStats, Seq, StoreError, Transaction};

type Result<T> = std::result::Result<T, StoreError>;

/// What memory says of a key.
#[derive(Clone, Debug)]
pub(crate) enum Entry {
    Onode(Arc<Onode>),
    Value(Bytes),
    Removed,
}

impl Entry {
    fn onode(&self) -> Result<Option<Arc<Onode>>> {
        match self {
            Self::Onode(o) => Ok(Some(o.clone())),
            Self::Value(_) => Err(StoreError::Invalid("a value is not an onode")),
            Self::Removed => Ok(None),
        }
    }
}

/// An onode, if there is one, that was looked for below the changes since the last
/// checkpoint; `None` when it was not looked for there.
pub(crate) type Seen = Option<Option<Arc<Onode>>>;

/// What is known of a transaction's targets, by their index.
#[derive(Default)]
pub(crate) struct Known {
    keys: Vec<Option<Key>>,
    /// Counts as long as `active` does not have the key.
    seen: Vec<Seen>,
}

impl Known {
    /// Nothing yet, of so many.
    pub fn of(targets: usize) -> Self {
        Self { keys: vec![None; targets], seen: vec![None; targets] }
    }

    /// The key of target `t`, and what was seen of it: that only once.
    pub fn take(&mut self, state: &State, txn: &Transaction, t: u32) -> Result<(Key, Seen)> {
        let t = t as usize;
        let key = match &self.keys[t] {
            Some(key) => key.clone(),
            None => {
                let (c, o) = &txn.targets[t];
                self.keys[t].insert(keys::onode(state.coll(*c)?, o)).clone()
            }
        };
        Ok((key, self.seen[t].take()))
    }

    /// Reads the onode of target `t`, which is about to change, where that may still fail.
    pub fn look(&mut self, state: &State, txn: &Transaction, t: u32) -> Result<()> {
        let (key, _) = self.take(state, txn, t)?;
        self.seen[t as usize] = state.take_onode(&key)?;
        Ok(())
    }

    /// Collections change: nothing is known any more.
    pub fn forget(&mut self) {
        self.keys.fill(None);
        self.seen.fill(None);
    }
}

pub(crate) type Map = BTreeMap<Key, Entry>;

/// Changes up to `seq`, being written to tables.
pub(crate) struct Frozen {
    pub map: Map,
    pub seq: Seq,
}

pub(crate) struct Caches {
    pub onodes: Cache<Key, Arc<Onode>>,
    /// By the table's number.
    pub tables: Cache<(u64, Of), Cached>,
}

/// A place in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Of {
    Block(usize),
    Part(usize),
}

#[derive(Clone)]
pub(crate) enum Cached {
    Block(Arc<Block>),
    Part(Arc<Part>),
}

impl Caches {
    pub fn new(options: &OpenOptions) -> Self {
        Self {
            onodes: Cache::new(options.onode_cache_bytes),
            tables: Cache::new(options.table_cache_bytes),
        }
    }
}

pub(crate) struct State {
    pub space: Space,
    /// Changes since the last checkpoint began.
    pub active: Map,
    pub active_bytes: u64,
    /// Blocks that small data in memory will need, at most.
    pub active_blocks: u64,
    pub frozen: Option<Arc<Frozen>>,
    pub frozen_bytes: u64,
    pub frozen_blocks: u64,
    /// Oldest first.
    pub tables: Arc<Vec<Arc<Table>>>,
    pub colls: BTreeMap<Coll, u32>,
    /// Collections without a name that are not swept yet, and the key from which on they may
    /// hold something.
    pub dead: BTreeMap<u32, Key>,
    /// Those of them that could not be read.
    pub stuck: BTreeSet<u32>,
    pub next_id: u64,
    pub next_coll: u32,
    /// The last collection that tables may know of.
    pub tables_coll: u32,
    pub pools: BTreeMap<PoolId, PoolStats>,
    /// How data is compressed from now on.
    pub compression: BTreeMap<PoolId, Compression>,
    /// Pools that may have compressed data.
    pub packing: BTreeSet<PoolId>,
    /// While a checkpoint runs: where onodes went, by id.
    pub renamed: HashMap<u64, Key>,
    /// Data on its way to the device, by first block.
    pub flight: BTreeMap<u64, (Bytes, Seq)>,
    /// Blocks that the transaction being applied let go of.
    pub freed: Vec<(u64, u64)>,
    pub caches: RefCell<Caches>,
    /// Memory for tables: for indices that stay, half at most, and for what comes and goes.
    pub table_cache_bytes: u64,
    pub pool: Pool,
}

/// Blocks that one `S` key counts.
pub(crate) const SHARED_BLOCKS: u64 = 64;
/// Reads of so many blocks go past the page cache.
const LARGE_READ: u64 = (128 << 10) / BLOCK;
/// Bytes of one read at most.
const READ_MAX: u64 = 1 << 30;

/// One source of a merged scan.
enum Source<'a> {
    Memory(std::iter::Peekable<std::collections::btree_map::Range<'a, Key, Entry>>),
    Table(Walk<'a>),
}

/// What a walk is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// Large values are not read, and are empty.
    Keys,
    Values,
}

/// A table from some entry on.
struct Walk<'a> {
    table: &'a Arc<Table>,
    wanted: Wanted,
    /// The part of the index that was used last.
    part: Option<(usize, Arc<Part>)>,
    block: Option<Arc<Block>>,
    /// Those behind it that were read with it.
    ahead: VecDeque<Arc<Block>>,
    /// The one that is next, of those that were not.
    number: usize,
    at: usize,
    /// Blocks that it has walked through: with the third it is a long way.
    walked: usize,
}

impl<'a> Walk<'a> {
    fn key(&self) -> Option<&[u8]> {
        self.block.as_ref().map(|b| b.key(self.at))
    }
}

impl State {
    /// Whether the pool may have compressed data.
    pub fn packs(&self, pool: PoolId) -> bool {
        self.packing.contains(&pool)
    }

    pub fn coll(&self, c: Coll) -> Result<u32> {
        self.colls.get(&c).copied().ok_or(StoreError::NoCollection(c))
    }

    /// Bytes that the index of a table which takes the place of `old` may have in memory.
    pub fn index_room(&self, old: &[Arc<Table>]) -> u64 {
        let stay = self.tables.iter().filter(|t| old.iter().all(|o| o.meta.id != t.meta.id));
        let kept: u64 = stay.map(|t| t.kept_bytes()).sum();
        (self.table_cache_bytes / 2).saturating_sub(kept)
    }

    /// Others are there now: what comes and goes has the room that their indices leave. Those of
    /// tables of before may be larger than half.
    pub fn tables_changed(&mut self) {
        let kept: u64 = self.tables.iter().map(|t| t.kept_bytes()).sum();
        let limit = self.table_cache_bytes - kept.min(self.table_cache_bytes / 2);
        self.caches.get_mut().tables.set_limit(limit);
    }

    /// Part `p` of a table's index.
    fn part(&self, table: &Table, p: usize) -> Result<Arc<Part>> {
        if let Some(part) = table.kept(&*self.space.disk, p)? {
            return Ok(part.clone());
        }
        let key = (table.meta.id, Of::Part(p));
        if let Some(Cached::Part(part)) = self.caches.borrow_mut().tables.get(&key) {
            return Ok(part);
        }
        let part = Arc::new(table.read_part(&*self.space.disk, p)?);
        let (bytes, cached) = (part.footprint(), Cached::Part(part.clone()));
        self.caches.borrow_mut().tables.put(key, cached, bytes);
        Ok(part)
    }

    /// Block `i` of part `p`.
    fn block(
        &self,
        table: &Table,
        (p, part): (usize, &Part),
        i: usize,
        wanted: Wanted,
    ) -> Result<Arc<Block>> {
        let key = (table.meta.id, Of::Block(table.first_block(p) + i));
        if let Some(Cached::Block(block)) = self.caches.borrow_mut().tables.get(&key) {
            return Ok(block);
        }
        if wanted == Wanted::Keys && part.is_large(i) {
            return table.read_key(&*self.space.disk, part, i).map(Arc::new);
        }
        let block = Arc::new(table.read_block(&*self.space.disk, part, i)?);
        let (bytes, cached) = (block.bytes() as u64 + 64, Cached::Block(block.clone()));
        self.caches.borrow_mut().tables.put(key, cached, bytes);
        Ok(block)
    }

    /// As [`State::block`], with those of the part behind it that have keys below `end`, as far as
    /// they are read at once.
    fn blocks(
        &self,
        table: &Table,
        (p, part): (usize, &Part),
        i: usize,
        end: &[u8],
        wanted: Wanted,
    ) -> Result<VecDeque<Arc<Block>>> {
        if part.is_large(i) {
            return Ok([self.block(table, (p, part), i, wanted)?].into());
        }
        let key = |n: usize| (table.meta.id, Of::Block(table.first_block(p) + i + n));
        if let Some(Cached::Block(block)) = self.caches.borrow_mut().tables.get(&key(0)) {
            return Ok([block].into());
        }
        let read = table.read_blocks(&*self.space.disk, part, i, end)?;
        let mut caches = self.caches.borrow_mut();
        let keep = |(n, block): (usize, Block)| {
            let bytes = block.bytes() as u64 + 64;
            let block = Arc::new(block);
            caches.tables.put(key(n), Cached::Block(block.clone()), bytes);
            block
        };
        Ok(read.into_iter().enumerate().map(keep).collect())
    }

    fn in_memory(&self, key: &Key) -> Option<&Entry> {
        self.active.get(key).or_else(|| self.frozen.as_ref()?.map.get(key))
    }

    fn in_tables(&self, key: &[u8]) -> Result<Option<Bytes>> {
        if keys::coll_id(key).is_some_and(|id| id > self.tables_coll) {
            return Ok(None);
        }
        let h = hash(key);
        for table in self.tables.iter().rev() {
            let Some(p) = table.part_of(key) else { continue };
            let part = self.part(table, p)?;
            if !part.may_have(h) {
                continue;
            }
            let block = self.block(table, (p, &part), part.block_of(key), Wanted::Values)?;
            let at = block.lower_bound(key);
            if at < block.len() && block.key(at) == key {
                return Ok(match block.slot(at) {
                    Slot::Value(v) => Some(v),
                    Slot::Removed => None,
                });
            }
        }
        Ok(None)
    }

    pub fn is_in_memory(&self, key: &Key) -> bool {
        self.in_memory(key).is_some()
    }

    pub fn get(&self, key: &Key) -> Result<Option<Bytes>> {
        match self.in_memory(key) {
            Some(Entry::Value(v)) => Ok(Some(v.clone())),
            Some(Entry::Onode(_)) => Err(StoreError::Invalid("an onode is not a value")),
            Some(Entry::Removed) => Ok(None),
            None => self.in_tables(key),
        }
    }

    pub fn onode(&self, key: &Key) -> Result<Option<Arc<Onode>>> {
        if let Some(entry) = self.in_memory(key) {
            return entry.onode();
        }
        if let Some(o) = self.caches.borrow_mut().onodes.get(key) {
            return Ok(Some(o));
        }
        let o = self.stored(key)?;
        if let Some(o) = &o {
            let mut caches = self.caches.borrow_mut();
            caches.onodes.put(key.clone(), o.clone(), o.footprint());
        }
        Ok(o)
    }

    /// As [`State::onode`], for one that is about to change: what `active` does not have
    /// leaves the cache.
    pub fn take_onode(&self, key: &Key) -> Result<Seen> {
        if self.active.contains_key(key) {
            return Ok(None);
        }
        if let Some(entry) = self.frozen.as_ref().and_then(|f| f.map.get(key)) {
            return entry.onode().map(Some);
        }
        if let Some(o) = self.caches.borrow_mut().onodes.take(key) {
            return Ok(Some(Some(o)));
        }
        self.stored(key).map(Some)
    }

    fn stored(&self, key: &Key) -> Result<Option<Arc<Onode>>> {
        let Some(raw) = self.in_tables(key)? else { return Ok(None) };
        // Copied out, so that a cached onode does not hold the table's whole block.
        let o = Onode::from_bytes(&raw).map_err(|e| {
            StoreError::Format(format!("onode of {:?}: {e}", keys::parse_onode(key)))
        })?;
        Ok(Some(Arc::new(o)))
    }

    pub fn object(&self, c: Coll, o: &HObject) -> Result<Arc<Onode>> {
        let key = keys::onode(self.coll(c)?, o);
        self.onode(&key)?.ok_or_else(|| StoreError::NoObject(format!("{c} {o}")))
    }

    /// Calls `f` with each key from `from` on and below `end`, in order, until it says
    /// `false`. Values of onodes in memory are `None`.
    pub fn scan(
        &self,
        from: Bound<&[u8]>,
        end: &[u8],
        f: &mut dyn FnMut(&[u8], Option<&Bytes>) -> bool,
    ) -> Result<()> {
        self.walk(from, end, Wanted::Values, f)
    }

    /// As [`State::scan`], without the values: large ones are not read.
    pub fn scan_keys(
        &self,
        from: Bound<&[u8]>,
        end: &[u8],
        f: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<()> {
        self.walk(from, end, Wanted::Keys, &mut |k, _| f(k))
    }

    fn walk(
        &self,
        from: Bound<&[u8]>,
        end: &[u8],
        wanted: Wanted,
        f: &mut dyn FnMut(&[u8], Option<&Bytes>) -> bool,
    ) -> Result<()> {
        let start = match from {
            Bound::Included(k) | Bound::Excluded(k) => k,
            Bound::Unbounded => &[],
        };
        if start >= end {
            return Ok(());
        }
        let skip_first = matches!(from, Bound::Excluded(_));
        let range = (Bound::Included(start), Bound::Excluded(end));
        let mut sources = vec![Source::Memory(self.active.range::<[u8], _>(range).peekable())];
        if let Some(frozen) = &self.frozen {
            sources.push(Source::Memory(frozen.map.range::<[u8], _>(range).peekable()));
        }
        for table in self.tables.iter().rev() {
            let (part, ahead) = (None, VecDeque::new());
            let (number, at, walked) = (0, 0, 0);
            let mut walk = Walk { table, wanted, part, block: None, ahead, number, at, walked };
            if let Some(p) = table.part_of(start) {
                let part = self.part(table, p)?;
                let i = part.block_of(start);
                let block = self.block(table, (p, &part), i, wanted)?;
                (walk.at, walk.number) = (block.lower_bound(start), table.first_block(p) + i + 1);
                (walk.part, walk.block) = (Some((p, part)), Some(block));
            } else {
                walk.block = self.next_below(&mut walk, end)?;
            }
            self.fill(&mut walk, end)?;
            sources.push(Source::Table(walk));
        }
        let mut key = Vec::new();
        loop {
            // The newest source with the smallest key; there are few.
            let mut best: Option<(usize, &[u8])> = None;
            for (i, s) in sources.iter_mut().enumerate() {
                let k: Option<&[u8]> = match s {
                    Source::Memory(m) => m.peek().map(|(k, _)| &***k),
                    Source::Table(walk) => walk.key(),
                };
                if let Some(k) = k
                    && k < end
                    && best.is_none_or(|(_, b)| k < b)
                {
                    best = Some((i, k));
                }
            }
            let Some((winner, k)) = best else { return Ok(()) };
            key.clear();
            key.extend_from_slice(k);
            let wanted = !(skip_first && key == start);
            let go_on = !wanted
                || match &mut sources[winner] {
                    Source::Memory(m) => match m.peek().expect("it was the smallest").1 {
                        Entry::Onode(_) => f(&key, None),
                        Entry::Value(v) => f(&key, Some(v)),
                        Entry::Removed => true,
                    },
                    Source::Table(walk) => {
                        match walk.block.as_ref().expect("it was the smallest").slot(walk.at) {
                            Slot::Value(v) => f(&key, Some(&v)),
                            Slot::Removed => true,
                        }
                    }
                };
            if !go_on {
                return Ok(());
            }
            for s in &mut sources[winner..] {
                match s {
                    Source::Memory(m) => {
                        m.next_if(|(k, _)| ***k == *key);
                    }
                    Source::Table(walk) => {
                        if walk.key().is_some_and(|k| k == key) {
                            walk.at += 1;
                            self.fill(walk, end)?;
                        }
                    }
                }
            }
        }
    }

    /// Makes it stand at an entry, or at its end; nothing from `end` on is wanted.
    fn fill(&self, walk: &mut Walk<'_>, end: &[u8]) -> Result<()> {
        while walk.block.as_ref().is_some_and(|b| walk.at >= b.len()) {
            (walk.block, walk.at) = (None, 0);
            walk.block = self.next_below(walk, end)?;
        }
        Ok(())
    }

    /// The next block, if it has keys below `end`.
    fn next_below(&self, walk: &mut Walk<'_>, end: &[u8]) -> Result<Option<Arc<Block>>> {
        if walk.ahead.is_empty()
            && let Some(p) = walk.table.part_with(walk.number)
            && walk.table.part_has_below(p, end)
        {
            let part = match walk.part.take() {
                Some((at, part)) if at == p => part,
                _ => self.part(walk.table, p)?,
            };
            let i = walk.number - walk.table.first_block(p);
            if part.has_below(i, end) {
                walk.walked += 1;
                walk.ahead = match walk.walked {
                    ..3 => [self.block(walk.table, (p, &part), i, walk.wanted)?].into(),
                    _ => self.blocks(walk.table, (p, &part), i, end, walk.wanted)?,
                };
                walk.number += walk.ahead.len();
            }
            walk.part = Some((p, part));
        }
        Ok(walk.ahead.pop_front())
    }

    /// All keys of a range.
    pub fn keys_in(&self, from: &[u8], end: &[u8]) -> Result<Vec<Key>> {
        let mut out = Vec::new();
        self.scan_keys(Bound::Included(from), end, &mut |k| {
            out.push(k.into());
            true
        })?;
        Ok(out)
    }

    /// Data on its way to the device, where all of the run is.
    fn in_flight(&self, phys: u64, blocks: u64) -> Option<Bytes> {
        let (start, (data, _)) = self.flight.range(..=phys).next_back()?;
        let from = ((phys - start) * BLOCK) as usize;
        let to = from + (blocks * BLOCK) as usize;
        (to <= data.len()).then(|| data.slice(from..to))
    }

    /// Data of an object; `name` is for errors. At most to its end.
    pub fn read_data(
        &self,
        o: &Arc<Onode>,
        name: &dyn Fn() -> String,
        off: u64,
        len: u64,
    ) -> Result<Bytes> {
        match self.look(o, off, len)? {
            Found::Here(data) => Ok(data),
            Found::OnDevice(plan) => plan.run(&*self.space.disk, &self.pool, name),
        }
    }

    /// What is in memory of a range of an object, or else how to read it.
    pub fn look(&self, o: &Arc<Onode>, off: u64, len: u64) -> Result<Found> {
        let end = off.saturating_add(len).min(o.size);
        if off >= end {
            return Ok(Found::Here(Bytes::new()));
        }
        if let Some(p) = o.pieces.get(o.piece_from(off))
            && p.off <= off
            && end <= p.end()
        {
            let data = p.data.slice((off - p.off) as usize..(end - p.off) as usize);
            return Ok(Found::Here(data));
        }
        if end - off > READ_MAX {
            return Err(StoreError::Invalid("a read is 1 GiB at most"));
        }
        let (first, last) = (off / BLOCK, end.div_ceil(BLOCK));
        let base = first * BLOCK;
        if !self.flight.is_empty()
            && o.pieces_in(off, end).next().is_none()
            && let Some(e) = o.extent_of(first)
            && e.packed.is_none()
            && last <= e.end()
            && let Some(data) = self.in_flight(e.phys + (first - e.at), last - first)
        {
            return Ok(Found::Here(data.slice((off - base) as usize..(end - base) as usize)));
        }
        let runs: Vec<Run> = o
            .extents_in(first, last)
            .map(|e| {
                let (lo, hi) = (e.at.max(first), e.end().min(last));
                let (phys, blocks) = match e.packed {
                    None => (e.phys + (lo - e.at), hi - lo),
                    Some(_) => (e.phys, e.device_blocks()),
                };
                Run { at: lo, end: hi, phys, data: self.in_flight(phys, blocks) }
            })
            .collect();
        // Past the page cache, which costs three times the CPU: who reads large data again
        // keeps it himself.
        let way = if last - first >= LARGE_READ { Way::Direct } else { Way::Cached };
        let onode = o.clone();
        Ok(Found::OnDevice(ReadPlan { onode, off, end, runs, way }))
    }

    /// Space kept for writing the changes in memory, in bytes.
    pub fn kept_for_changes(&self) -> u64 {
        2 * (self.active_bytes + self.frozen_bytes)
            + (self.active_blocks + self.frozen_blocks) * BLOCK
    }

    /// Space that transactions may use, in bytes; `pending` blocks are about to be free, and
    /// a merge has taken `merge` blocks of what is kept for it.
    pub fn available(&self, pending: u64, merge: u64) -> u64 {
        let (left, kept) = self.left(pending, merge);
        left.saturating_sub(kept)
    }

    /// As [`State::available`], for those that give back what they take: half of what is kept for
    /// removals, too.
    pub fn available_to_free(&self, pending: u64, merge: u64) -> u64 {
        let (left, kept) = self.left(pending, merge);
        left.saturating_sub(kept / 2)
    }

    /// Space for transactions and for removals, and how much is kept for these, in bytes.
    fn left(&self, pending: u64, merge: u64) -> (u64, u64) {
        let alloc = self.space.alloc.lock().expect("no holder of this lock panics");
        let free = (alloc.free() + pending) * BLOCK;
        let total = alloc.used.blocks() * BLOCK;
        drop(alloc);
        let tables: u64 = self.tables.iter().map(|t| t.bytes()).sum();
        // A merge writes all tables anew before the old ones go.
        let own = tables.saturating_sub(merge * BLOCK) + self.kept_for_changes();
        (free.saturating_sub(own), (total / 64).max(8 << 20).min(total / 8))
    }
}
