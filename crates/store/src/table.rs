//! A sorted table: keys and values written once, in order, and never changed.
//!
//! A table is a stream of blocks, with an index of them in parts. A block holds entries
//! (`u32` key length, `u32` value length or `u32::MAX` for "removed", key, value), then the
//! `u32` offset of each, then their `u32` number. A part stands behind the blocks it is for, and
//! has each one's first key, place, length and crc32c, and a filter of their keys. At the end
//! stands the same of the parts: this alone stays in memory, with the parts of a small table. Those
//! of large ones come and go like blocks, so what is on the device takes no memory.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use denc::{DecodeError, Denc, Reader, Writer};
use env::Disk;

use crate::StoreError;
use crate::buf::Pool;
use crate::part::{
    BlockEntry, ENTRY, Filter, IndexEntry, PART_BYTES, Part, READ_AHEAD, hash, u32_at,
};
use crate::space::{Runs, Space, StreamWriter};

/// Entries of a block stay below this, except for one that is larger alone.
const BLOCK_BYTES: usize = 12 << 10;
const REMOVED: u32 = u32::MAX;

/// What a table says of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    Value(Bytes),
    Removed,
}

fn put_entry(block: &mut Vec<u8>, key: &[u8], value: Option<&[u8]>) {
    block.extend_from_slice(&(key.len() as u32).to_le_bytes());
    let len = value.map_or(REMOVED, |v| u32::try_from(v.len()).expect("a value fits u32"));
    block.extend_from_slice(&len.to_le_bytes());
    block.extend_from_slice(key);
    block.extend_from_slice(value.unwrap_or_default());
}

/// One block, verified.
pub(crate) struct Block {
    data: Bytes,
    offsets: usize,
    count: usize,
}

impl Block {
    fn parse(data: Bytes) -> Option<Self> {
        let tail = data.len().checked_sub(4)?;
        let count = u32_at(&data, tail);
        let offsets = tail.checked_sub(count.checked_mul(4)?)?;
        let block = Self { data, offsets, count };
        // Checked once here, so that the rest may index.
        for i in 0..count {
            let at = u32_at(&block.data, offsets + 4 * i);
            if at + 8 > offsets {
                return None;
            }
            let (k, v) = (u32_at(&block.data, at), u32_at(&block.data, at + 4));
            let v = if v == REMOVED as usize { 0 } else { v };
            if at + 8 + k + v > offsets {
                return None;
            }
        }
        Some(block)
    }

    /// One entry with an empty value.
    fn of_key(key: &[u8]) -> Self {
        let mut data = Vec::with_capacity(8 + key.len() + 4);
        put_entry(&mut data, key, Some(&[]));
        let offsets = data.len();
        data.extend_from_slice(&0u32.to_le_bytes());
        Self { data: data.into(), offsets, count: 1 }
    }

    pub fn len(&self) -> usize {
        self.count
    }

    pub fn bytes(&self) -> usize {
        self.data.len()
    }

    pub fn key(&self, i: usize) -> &[u8] {
        let at = u32_at(&self.data, self.offsets + 4 * i);
        &self.data[at + 8..at + 8 + u32_at(&self.data, at)]
    }

    pub fn slot(&self, i: usize) -> Slot {
        let at = u32_at(&self.data, self.offsets + 4 * i);
        let (k, v) = (u32_at(&self.data, at), u32_at(&self.data, at + 4));
        if v == REMOVED as usize {
            return Slot::Removed;
        }
        Slot::Value(self.data.slice(at + 8 + k..at + 8 + k + v))
    }

    /// The first entry not below `key`.
    pub fn lower_bound(&self, key: &[u8]) -> usize {
        let (mut lo, mut hi) = (0, self.count);
        while lo < hi {
            let mid = (lo + hi) / 2;
            if self.key(mid) < key { lo = mid + 1 } else { hi = mid }
        }
        lo
    }
}

/// A table's description in the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Meta {
    pub id: u64,
    pub runs: Runs,
    pub entries: u64,
    /// Bytes of keys and values of omap.
    pub omap_bytes: u64,
    /// Of the list of parts.
    pub index_off: u64,
    pub index_len: u32,
    pub index_crc: u32,
    /// Whether there is one: tables of before have one part, and that stands there.
    pub in_parts: bool,
}

impl Denc for Meta {
    fn encode(&self, w: &mut Writer) {
        let version = if self.in_parts { 2 } else { 1 };
        w.framed(version, version, |w| {
            w.u64(self.id);
            self.runs.encode(w);
            w.u64(self.entries);
            w.u64(self.omap_bytes);
            w.u64(self.index_off);
            w.u32(self.index_len);
            w.u32(self.index_crc);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("table", 2, |r, version| {
            Ok(Self {
                id: r.u64()?,
                runs: Denc::decode(r)?,
                entries: r.u64()?,
                omap_bytes: r.u64()?,
                index_off: r.u64()?,
                index_len: r.u32()?,
                index_crc: r.u32()?,
                in_parts: version >= 2,
            })
        })
    }
}

/// A part, as the table knows it.
struct PartEntry {
    at: IndexEntry,
    /// Blocks of the parts before it.
    before: usize,
}

pub(crate) struct Table {
    pub meta: Meta,
    parts: Vec<PartEntry>,
    /// Blocks.
    count: usize,
    /// The parts, where they are small or of before, each from when it was first asked for.
    kept: Option<Vec<OnceLock<Arc<Part>>>>,
    /// Bytes of these, once all were.
    kept_bytes: u64,
}

impl Table {
    /// Reads the list of parts. These stay in memory where they have at most `keep` bytes in all; what
    /// cannot be read of them is missed by who asks for it, and no reason not to open the rest.
    pub fn open(disk: &dyn Disk, meta: Meta, keep: u64) -> Result<Self, StoreError> {
        let what = || format!("index of table {}", meta.id);
        let broken = |e: DecodeError| StoreError::Format(format!("{}: {e}", what()));
        let place = (meta.index_off, meta.index_len as usize);
        let raw = meta.runs.read_verified(disk, place, meta.index_crc, &what)?;
        if !meta.in_parts {
            let part = Part::of_before(&raw);
            let part = part.ok_or_else(|| StoreError::Format(format!("{}: malformed", what())))?;
            let first = part.key(0).into();
            let (off, len, crc) = (meta.index_off, meta.index_len, meta.index_crc);
            let parts = vec![PartEntry { at: IndexEntry { first, off, len, crc }, before: 0 }];
            let (count, kept_bytes) = (part.len(), part.footprint());
            let kept = Some(vec![OnceLock::from(Arc::new(part))]);
            return Ok(Self { meta, parts, count, kept, kept_bytes });
        }
        let mut r = Reader::new(&raw);
        let mut count = 0;
        let parts = r.seq(|r| {
            let (at, before) = (IndexEntry::decode(r)?, count);
            count += r.u32()? as usize;
            Ok(PartEntry { at, before })
        });
        let parts = parts.map_err(broken)?;
        let stays = parts.iter().map(|p| u64::from(p.at.len)).sum::<u64>() <= keep;
        let kept = stays.then(|| parts.iter().map(|_| OnceLock::new()).collect());
        Ok(Self::new(meta, parts, count, kept))
    }

    fn new(
        meta: Meta,
        parts: Vec<PartEntry>,
        count: usize,
        kept: Option<Vec<OnceLock<Arc<Part>>>>,
    ) -> Self {
        let bytes = |p: &PartEntry| Part::footprint_of(p.at.len.into());
        let kept_bytes = kept.as_ref().map_or(0, |_| parts.iter().map(bytes).sum());
        Self { meta, parts, count, kept, kept_bytes }
    }

    pub fn bytes(&self) -> u64 {
        self.meta.runs.blocks() * 4096
    }

    /// Bytes of its index that stay in memory.
    pub fn kept_bytes(&self) -> u64 {
        self.kept_bytes
    }

    /// Parts of its index.
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// The part for `key`; `None` where all keys are behind it.
    pub fn part_of(&self, key: &[u8]) -> Option<usize> {
        self.parts.partition_point(|p| *p.at.first <= *key).checked_sub(1)
    }

    /// The part that has block `number`; `None` behind the last block.
    pub fn part_with(&self, number: usize) -> Option<usize> {
        let behind = || self.parts.partition_point(|p| p.before <= number) - 1;
        (number < self.count).then(behind)
    }

    /// The number of the first block of part `p`.
    pub fn first_block(&self, p: usize) -> usize {
        self.parts[p].before
    }

    /// Whether part `p` has keys below `end`.
    pub fn part_has_below(&self, p: usize, end: &[u8]) -> bool {
        *self.parts[p].at.first < *end
    }

    /// Where its last blocks end in the stream, and the last part begins.
    #[cfg(test)]
    pub fn blocks_end(&self) -> u64 {
        self.parts.last().map_or(0, |p| p.at.off)
    }

    /// Where the part for `key` begins on the device.
    #[cfg(test)]
    pub fn part_place(&self, key: &[u8]) -> u64 {
        let p = self.part_of(key).expect("there is one");
        self.meta.runs.device(self.parts[p].at.off)
    }

    /// Part `p`, where parts stay in memory; `None` where they come and go.
    pub fn kept(&self, disk: &dyn Disk, p: usize) -> Result<Option<&Arc<Part>>, StoreError> {
        let Some(kept) = self.kept.as_ref().map(|kept| &kept[p]) else { return Ok(None) };
        if kept.get().is_none() {
            let part = Arc::new(self.read_part(disk, p)?);
            // Of two who read it one keeps it.
            let _ = kept.set(part);
        }
        Ok(kept.get())
    }

    /// Part `p`, from memory where parts stay there.
    fn part(&self, disk: &dyn Disk, p: usize) -> Result<Arc<Part>, StoreError> {
        match self.kept(disk, p)? {
            Some(part) => Ok(part.clone()),
            None => self.read_part(disk, p).map(Arc::new),
        }
    }

    pub fn read_part(&self, disk: &dyn Disk, p: usize) -> Result<Part, StoreError> {
        let what = || format!("index of table {}, part {p}", self.meta.id);
        let IndexEntry { off, len, crc, .. } = self.parts[p].at;
        let raw = self.meta.runs.read_verified(disk, (off, len as usize), crc, &what)?;
        let end = self.parts.get(p + 1).map_or(self.count, |next| next.before);
        let blocks = end - self.parts[p].before;
        let part = if self.meta.in_parts { Part::parse(raw) } else { Part::of_before(&raw) };
        let part = part.filter(|part| part.len() == blocks);
        part.ok_or_else(|| StoreError::Format(format!("{}: malformed", what())))
    }

    /// Block `i` of a part.
    pub fn read_block(&self, disk: &dyn Disk, part: &Part, i: usize) -> Result<Block, StoreError> {
        let e = part.block(i);
        let what = || format!("table {}", self.meta.id);
        let place = (e.off, e.len as usize);
        let data = self.meta.runs.read_verified(disk, place, e.crc, &what)?;
        self.parse(data, &e)
    }

    /// As [`Table::read_block`], but where the block is one large value, and the index has all of
    /// its key, an empty value is in its place: 4 KiB are read, whatever the value's length. The
    /// part's checksum vouches for the key.
    pub fn read_key(&self, disk: &dyn Disk, part: &Part, i: usize) -> Result<Block, StoreError> {
        if part.is_large(i) {
            let (e, key) = (part.block(i), part.key(i));
            let head = self.meta.runs.read(disk, e.off, 8 + key.len(), false)?;
            if u32_at(&head, 0) == key.len() && head[8..] == *key {
                return Ok(Block::of_key(key));
            }
        }
        self.read_block(disk, part, i)
    }

    fn parse(&self, data: Bytes, e: &BlockEntry) -> Result<Block, StoreError> {
        let (id, off) = (self.meta.id, e.off);
        Block::parse(data)
            .ok_or_else(|| StoreError::Format(format!("table {id}: block at {off} is malformed")))
    }

    /// Reads and verifies block `i` of a part and those behind it that have keys below `end`, some
    /// [`READ_AHEAD`] bytes at once. Each has its memory to itself: it may be kept.
    pub fn read_blocks(
        &self,
        disk: &dyn Disk,
        part: &Part,
        i: usize,
        end: &[u8],
    ) -> Result<Vec<Block>, StoreError> {
        let below = (i..part.len()).take_while(|i| part.has_below(*i, end));
        let Some((first, len)) = part.stretch(i, below.count()) else {
            return Ok([self.read_block(disk, part, i)?].into());
        };
        let raw = Bytes::from(self.meta.runs.read(disk, first, len, false)?);
        let blocks = self.parse_all(disk, part, i, &raw, Bytes::copy_from_slice);
        blocks.collect()
    }

    /// As [`Table::read_blocks`] for all that follow, past all caches and in memory that they
    /// share.
    fn read_once(
        &self,
        disk: &dyn Disk,
        part: &Part,
        i: usize,
        pool: &Pool,
    ) -> Result<VecDeque<Block>, StoreError> {
        let Some((first, len)) = part.stretch(i, usize::MAX) else {
            return Ok([self.read_block(disk, part, i)?].into());
        };
        let raw = self.meta.runs.read_pooled(disk, first, len, pool)?;
        let blocks = self.parse_all(disk, part, i, &raw, |bytes| raw.slice_ref(bytes));
        blocks.collect()
    }

    /// The blocks of a part from `i` on that are in `raw`, each as `bytes` gives its bytes.
    fn parse_all<'a>(
        &'a self,
        disk: &'a dyn Disk,
        part: &'a Part,
        i: usize,
        raw: &'a [u8],
        bytes: impl Fn(&'a [u8]) -> Bytes + 'a,
    ) -> impl Iterator<Item = Result<Block, StoreError>> + 'a {
        let first = part.block(i).off;
        let place = move |e: &BlockEntry| {
            let at = e.off.wrapping_sub(first) as usize;
            at..at + e.len as usize
        };
        let within = (i..part.len()).map(|i| (i, part.block(i)));
        let within = within.take_while(move |(_, e)| place(e).end <= raw.len());
        within.map(move |(i, e)| {
            let data = &raw[place(&e)];
            if stdx::crc32c(!0, data) == e.crc {
                self.parse(bytes(data), &e)
            } else {
                self.read_block(disk, part, i) // once more, and by itself
            }
        })
    }
}

/// Reads a table from its first key on, past all caches: it goes away soon.
pub(crate) struct Cursor {
    table: Arc<Table>,
    pool: Pool,
    /// The part that is next.
    next_part: usize,
    /// The one whose blocks are read, and the next of these.
    part: Option<Arc<Part>>,
    next_block: usize,
    /// Those that were read: it stands in the first.
    blocks: VecDeque<Block>,
    at: usize,
}

impl Cursor {
    pub fn new(table: Arc<Table>) -> Self {
        let (pool, blocks) = (Pool::default(), VecDeque::new());
        Self { table, pool, next_part: 0, part: None, next_block: 0, blocks, at: 0 }
    }

    /// The entry it stands at; reads the next blocks where need be.
    pub fn peek(&mut self, disk: &dyn Disk) -> Result<Option<&[u8]>, StoreError> {
        while self.blocks.front().is_none_or(|b| self.at >= b.len()) {
            self.at = 0;
            self.blocks.pop_front();
            if self.blocks.is_empty() && !self.read(disk)? {
                return Ok(None);
            }
        }
        Ok(self.blocks.front().map(|b| b.key(self.at)))
    }

    /// Reads what is next; whether there is any.
    fn read(&mut self, disk: &dyn Disk) -> Result<bool, StoreError> {
        let done = |part: &Arc<Part>| self.next_block >= part.len();
        if self.part.as_ref().is_none_or(done) {
            let p = self.next_part;
            if p >= self.table.parts.len() {
                return Ok(false);
            }
            self.part = Some(self.table.part(disk, p)?);
            (self.next_part, self.next_block) = (p + 1, 0);
        }
        let part = self.part.as_ref().expect("just made sure");
        self.blocks = self.table.read_once(disk, part, self.next_block, &self.pool)?;
        self.next_block += self.blocks.len();
        Ok(true)
    }

    /// The value of the entry last peeked at; moves on.
    pub fn take(&mut self) -> Slot {
        let slot = self.blocks.front().expect("peeked at").slot(self.at);
        self.at += 1;
        slot
    }
}

/// Writes a table in key order.
pub(crate) struct Builder {
    out: StreamWriter,
    block: Vec<u8>,
    offsets: Vec<u32>,
    first: Box<[u8]>,
    /// Of the part that grows: its blocks, its bytes but for the filter's, its keys' hashes.
    index: Vec<IndexEntry>,
    index_bytes: usize,
    hashes: Vec<u64>,
    parts: Vec<PartEntry>,
    count: usize,
    /// Those parts, as long as they have at most so many bytes.
    kept: Option<Vec<OnceLock<Arc<Part>>>>,
    keep: u64,
    parts_bytes: u64,
    entries: u64,
    omap_bytes: u64,
    last: Vec<u8>,
}

impl Builder {
    /// The table keeps its parts in memory when they have at most `keep` bytes in all.
    pub fn new(space: Space, keep: u64) -> Self {
        Self {
            out: StreamWriter::new(space),
            block: Vec::with_capacity(2 * BLOCK_BYTES),
            offsets: Vec::new(),
            first: Box::default(),
            index: Vec::new(),
            index_bytes: 0,
            hashes: Vec::new(),
            parts: Vec::new(),
            count: 0,
            kept: Some(Vec::new()),
            keep,
            parts_bytes: 0,
            entries: 0,
            omap_bytes: 0,
            last: Vec::new(),
        }
    }

    pub fn add(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), StoreError> {
        assert!(self.entries == 0 || *self.last < *key, "keys come in order");
        let bytes = 8 + key.len() + value.map_or(0, <[u8]>::len);
        if !self.offsets.is_empty() && self.block.len() + bytes > BLOCK_BYTES {
            self.end_block()?;
        }
        if self.offsets.is_empty() {
            // As much of it as tells it from what is before; all of it before a large value, so that
            // who wants the key need not read the value ([`Table::read_key`]).
            let same = self.last.iter().zip(key).take_while(|(a, b)| a == b).count();
            let len = if bytes > READ_AHEAD { key.len() } else { key.len().min(same + 1) };
            self.first = key[..len].into();
        }
        if key[0] == crate::keys::OMAP && value.is_some() {
            self.omap_bytes += bytes as u64 - 18;
        }
        self.last.clear();
        self.last.extend_from_slice(key);
        self.offsets.push(self.block.len() as u32);
        self.hashes.push(hash(key));
        self.entries += 1;
        put_entry(&mut self.block, key, value);
        Ok(())
    }

    fn end_block(&mut self) -> Result<(), StoreError> {
        for off in &self.offsets {
            self.block.extend_from_slice(&off.to_le_bytes());
        }
        self.block.extend_from_slice(&(self.offsets.len() as u32).to_le_bytes());
        self.index_bytes += self.first.len() + ENTRY;
        self.index.push(IndexEntry {
            first: std::mem::take(&mut self.first),
            off: self.out.len,
            len: self.block.len() as u32,
            crc: stdx::crc32c(!0, &self.block),
        });
        self.out.put(&self.block)?;
        self.block.clear();
        self.offsets.clear();
        if self.index_bytes + Filter::bytes(self.hashes.len()) >= PART_BYTES {
            self.end_part()?;
        }
        Ok(())
    }

    fn end_part(&mut self) -> Result<(), StoreError> {
        let raw = Part::encode(&self.index, &Filter::new(&self.hashes));
        let first = self.index[0].first.clone();
        let blocks = self.index.len();
        self.index.clear();
        self.hashes.clear();
        self.index_bytes = 0;
        let (off, len, crc) = (self.out.len, raw.len() as u32, stdx::crc32c(!0, &raw));
        let at = IndexEntry { first, off, len, crc };
        self.parts.push(PartEntry { at, before: self.count });
        self.count += blocks;
        self.out.put(&raw)?;
        self.parts_bytes += u64::from(len);
        match &mut self.kept {
            Some(kept) if self.parts_bytes <= self.keep => {
                // As large as it is, and no larger.
                let part = Part::parse(Bytes::copy_from_slice(&raw));
                kept.push(Arc::new(part.expect("it was just made")).into());
            }
            kept => *kept = None,
        }
        Ok(())
    }

    /// Ends the table; `None` when nothing was added.
    pub fn finish(mut self, id: u64) -> Result<Option<Table>, StoreError> {
        if self.entries == 0 {
            return Ok(None);
        }
        if !self.offsets.is_empty() {
            self.end_block()?;
        }
        if !self.index.is_empty() {
            self.end_part()?;
        }
        let mut w = Writer::with_capacity(denc::Features::ALL, 64 << 10);
        let ends = self.parts.iter().skip(1).map(|p| p.before).chain([self.count]);
        let parts: Vec<_> = self.parts.iter().zip(ends).collect();
        w.seq(&parts, |w, (part, end)| {
            part.at.encode(w);
            w.u32((end - part.before) as u32);
        });
        let raw = w.finish();
        let index_off = self.out.len;
        self.out.put(&raw)?;
        let (runs, _) = self.out.finish()?;
        let meta = Meta {
            id,
            runs,
            entries: self.entries,
            omap_bytes: self.omap_bytes,
            index_off,
            index_len: raw.len() as u32,
            index_crc: stdx::crc32c(!0, &raw),
            in_parts: true,
        };
        let Self { parts, count, kept, .. } = self;
        Ok(Some(Table::new(meta, parts, count, kept)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::SimDisk;
    use crate::alloc::Alloc;
    use crate::bitmap::Bitmap;
    use crate::onode::BLOCK;

    const BLOCKS: u64 = 32 << 10;
    const KEYS: u32 = 40_000;

    fn space() -> Space {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(BLOCKS * BLOCK, false));
        let alloc = Arc::new(Mutex::new(Alloc::new(Bitmap::new(BLOCKS))));
        Space { disk, alloc, ledger: None }
    }

    /// Every second number is a key; every eighth of these says "removed".
    fn key(n: u32) -> Vec<u8> {
        [&b"some longer key "[..], &n.to_be_bytes()].concat()
    }

    fn value(n: u32) -> Option<Vec<u8>> {
        (!n.is_multiple_of(16)).then(|| vec![n as u8; 300])
    }

    fn build(space: &Space, keep: u64) -> Table {
        let mut out = Builder::new(space.clone(), keep);
        for n in (0..2 * KEYS).step_by(2) {
            out.add(&key(n), value(n).as_deref()).expect("there is room");
        }
        out.finish(7).expect("there is room").expect("it has keys")
    }

    /// As tables were before they had parts: one index of all blocks at the end.
    fn of_before(space: &Space, table: &Table) -> Meta {
        let mut index = Vec::new();
        for p in 0..table.parts.len() {
            let part = table.read_part(&*space.disk, p).expect("it is there");
            index.extend((0..part.len()).map(|i| {
                let BlockEntry { off, len, crc } = part.block(i);
                IndexEntry { first: part.key(i).into(), off, len, crc }
            }));
        }
        let hashes: Vec<u64> = (0..2 * KEYS).step_by(2).map(|n| hash(&key(n))).collect();
        let mut w = Writer::new(denc::Features::ALL);
        w.seq(&index, |w, e| e.encode(w));
        Filter::new(&hashes).words.encode(&mut w);
        let raw = w.finish();
        let end = space.write_stream(&raw).expect("there is room");
        let mut meta = table.meta.clone();
        meta.index_off = meta.runs.blocks() * BLOCK;
        (meta.index_len, meta.index_crc, meta.in_parts) = (end.len as u32, end.crc, false);
        meta.runs.extend(&end.runs);
        meta
    }

    fn find(space: &Space, table: &Table, key: &[u8]) -> Option<Slot> {
        let p = table.part_of(key)?;
        let part = table.part(&*space.disk, p).expect("it is there");
        if !part.may_have(hash(key)) {
            return None;
        }
        let block = table.read_block(&*space.disk, &part, part.block_of(key));
        let block = block.expect("it is there");
        let at = block.lower_bound(key);
        (at < block.len() && block.key(at) == key).then(|| block.slot(at))
    }

    fn slot(n: u32) -> Slot {
        value(n).map_or(Slot::Removed, |v| Slot::Value(v.into()))
    }

    /// Each key is found, and none that is not there, whether the index is in memory, is not, or
    /// is of before; one after the other they come in order.
    #[test]
    fn keys_are_found_by_parts() {
        let space = space();
        for keep in [0, 1 << 20] {
            let built = build(&space, keep);
            assert!(built.parts.len() > 6, "{} parts", built.parts.len());
            let meta = Meta::from_bytes(&built.meta.to_bytes()).expect("as it was written");
            let opened = Table::open(&*space.disk, meta, keep).expect("it is there");
            let before = of_before(&space, &built);
            let before = Meta::from_bytes(&before.to_bytes()).expect("as it was written");
            let before = Table::open(&*space.disk, before, keep).expect("it is there");
            assert_eq!((built.kept.is_some(), opened.kept.is_some()), (keep > 0, keep > 0));
            assert_eq!((before.parts.len(), before.count), (1, built.count));
            for table in [built, opened, before] {
                for n in (0..2 * KEYS).step_by(97).chain([1, 2 * KEYS - 2, 2 * KEYS - 1]) {
                    let want = n.is_multiple_of(2).then(|| slot(n));
                    assert_eq!(find(&space, &table, &key(n)), want, "{n}");
                }
                assert_eq!(find(&space, &table, b"a"), None);
                let blocks = |p| table.part_with(p).map(|of| p - table.first_block(of));
                assert!((0..table.count).all(|n| blocks(n).is_some()), "each is in a part");
                assert_eq!(blocks(table.count), None);
                let mut cursor = Cursor::new(Arc::new(table));
                for n in (0..2 * KEYS).step_by(2) {
                    let found = cursor.peek(&*space.disk).expect("it is there");
                    assert_eq!(found, Some(&*key(n)));
                    assert_eq!(cursor.take(), slot(n));
                }
                assert_eq!(cursor.peek(&*space.disk).expect("it is there"), None);
            }
        }
    }

    /// The key of a large value is read without the value, and of a table of before with it.
    #[test]
    fn keys_are_read_without_large_values() {
        let disk = Arc::new(SimDisk::new(BLOCKS * BLOCK, false));
        let alloc = Arc::new(Mutex::new(Alloc::new(Bitmap::new(BLOCKS))));
        let space = Space { disk: disk.clone(), alloc, ledger: None };
        let mut out = Builder::new(space.clone(), 0);
        let large = vec![3; 8 << 20];
        let keys = [&b"a"[..], b"b, with a large value", b"c"];
        for (key, value) in keys.iter().zip([&b"1"[..], &large, b"2"]) {
            out.add(key, Some(value)).expect("there is room");
        }
        let table = out.finish(1).expect("there is room").expect("it has keys");
        let part = table.read_part(&*disk, 0).expect("it is there");
        assert_eq!((part.len(), part.is_large(0), part.is_large(1)), (3, false, true));
        let off = part.block(1).off;
        // As tables of before have it: no more of the key than tells it from the one before.
        let mut index: Vec<_> = (0..3)
            .map(|i| {
                let BlockEntry { off, len, crc } = part.block(i);
                IndexEntry { first: part.key(i)[..1].into(), off, len, crc }
            })
            .collect();
        index[1].first = b"b"[..].into();
        let short = Part::parse(Part::encode(&index, &Filter::new(&[1]))).expect("well made");
        let found = table.read_key(&*disk, &short, 1).expect("it is there");
        assert_eq!((found.key(0), found.slot(0)), (keys[1], Slot::Value(large.into())));
        disk.make_unreadable(table.meta.runs.device(off + (1 << 20)), 1 << 20);
        let found = table.read_key(&*disk, &part, 1).expect("the value is not read");
        assert_eq!((found.len(), found.key(0)), (1, keys[1]));
        assert!(table.read_block(&*disk, &part, 1).is_err());
    }

    /// What stays in memory of a large table is a small part of its index.
    #[test]
    fn a_large_table_takes_little_memory() {
        let table = build(&space(), 1_000);
        let parts: u64 = table.parts.iter().map(|p| u64::from(p.at.len)).sum();
        let listed: usize =
            table.parts.iter().map(|p| size_of::<PartEntry>() + p.at.first.len()).sum();
        assert!(table.kept.is_none() && 50 * listed as u64 <= parts, "{listed} of {parts}");
    }

    /// A part that is damaged, or another's, is told.
    #[test]
    fn a_damaged_part_is_told() {
        let space = space();
        let mut table = build(&space, 0);
        let at = table.meta.runs.device(table.parts[3].at.off + 50);
        let mut block = vec![0; BLOCK as usize];
        space.disk.read(at / BLOCK * BLOCK, &mut block).expect("it is there");
        block[(at % BLOCK) as usize] ^= 4;
        space.disk.write(at / BLOCK * BLOCK, &block).expect("it is there");
        let told = |table: &Table, p| match table.read_part(&*space.disk, p) {
            Ok(_) => String::new(),
            Err(e) => e.to_string(),
        };
        assert!(told(&table, 3).contains("index of table 7, part 3"), "{}", told(&table, 3));
        assert_eq!(told(&table, 2), "");
        table.parts[5].before += 1;
        assert!(told(&table, 5).contains("malformed"), "{}", told(&table, 5));
    }
}
