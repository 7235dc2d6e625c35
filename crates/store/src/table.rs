//! A sorted table: keys and values written once, in order, and never changed.
//!
//! A table is a stream of blocks, then its index and its filter. A block holds entries
//! (`u32` key length, `u32` value length or `u32::MAX` for "removed", key, value), then the
//! `u32` offset of each, then their `u32` number. The index has each block's first key,
//! place, length and crc32c; index and filter stay in memory.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use denc::{DecodeError, Denc, Reader, Writer};
use env::Disk;

use crate::StoreError;
use crate::buf::Pool;
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

/// One block, verified.
pub(crate) struct Block {
    data: Bytes,
    offsets: usize,
    count: usize,
}

fn u32_at(b: &[u8], at: usize) -> usize {
    u32::from_le_bytes(b[at..at + 4].try_into().expect("four bytes")) as usize
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

#[derive(Clone, Debug)]
struct IndexEntry {
    first: Box<[u8]>,
    off: u64,
    len: u32,
    crc: u32,
}

/// A table's description in the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Meta {
    pub id: u64,
    pub runs: Runs,
    pub entries: u64,
    /// Bytes of keys and values of omap.
    pub omap_bytes: u64,
    pub index_off: u64,
    pub index_len: u32,
    pub index_crc: u32,
}

impl Denc for Meta {
    fn encode(&self, w: &mut Writer) {
        w.framed(1, 1, |w| {
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
        r.framed("table", 1, |r, _| {
            Ok(Self {
                id: r.u64()?,
                runs: Denc::decode(r)?,
                entries: r.u64()?,
                omap_bytes: r.u64()?,
                index_off: r.u64()?,
                index_len: r.u32()?,
                index_crc: r.u32()?,
            })
        })
    }
}

pub(crate) struct Table {
    pub meta: Meta,
    index: Vec<IndexEntry>,
    filter: Filter,
}

impl Table {
    /// Reads index and filter.
    pub fn open(disk: &dyn Disk, meta: Meta) -> Result<Self, StoreError> {
        let what = || format!("index of table {}", meta.id);
        let place = (meta.index_off, meta.index_len as usize);
        let raw = meta.runs.read_verified(disk, place, meta.index_crc, &what)?;
        let mut r = Reader::shared(&raw);
        let read = |r: &mut Reader<'_>| {
            let index = r.seq(|r| {
                let first = r.blob_ref()?.into();
                Ok(IndexEntry { first, off: r.u64()?, len: r.u32()?, crc: r.u32()? })
            })?;
            Ok::<_, DecodeError>((index, Filter { words: Denc::decode(r)? }))
        };
        let (index, filter) =
            read(&mut r).map_err(|e| StoreError::Format(format!("{}: {e}", what())))?;
        Ok(Self { meta, index, filter })
    }

    pub fn bytes(&self) -> u64 {
        self.meta.runs.blocks() * 4096
    }

    pub fn block_count(&self) -> usize {
        self.index.len()
    }

    /// The block that holds `key`, if any does.
    pub fn block_of(&self, key: &[u8]) -> Option<usize> {
        self.index.partition_point(|e| *e.first <= *key).checked_sub(1)
    }

    pub fn may_have(&self, hash: u64) -> bool {
        self.filter.may_have(hash)
    }

    pub fn read_block(&self, disk: &dyn Disk, i: usize) -> Result<Block, StoreError> {
        let e = &self.index[i];
        let what = || format!("table {}", self.meta.id);
        let place = (e.off, e.len as usize);
        let data = self.meta.runs.read_verified(disk, place, e.crc, &what)?;
        self.parse(data, i)
    }

    fn parse(&self, data: Bytes, i: usize) -> Result<Block, StoreError> {
        let id = self.meta.id;
        Block::parse(data)
            .ok_or_else(|| StoreError::Format(format!("table {id}: block {i} is malformed")))
    }

    /// Whether block `i` is there and has keys below `end`.
    pub fn has_below(&self, i: usize, end: &[u8]) -> bool {
        self.index.get(i).is_some_and(|e| *e.first < *end)
    }

    /// Reads and verifies block `i` and those behind it that have keys below `end`, some
    /// [`READ_AHEAD`] bytes at once. Each has its memory to itself: it may be kept.
    pub fn read_blocks(
        &self,
        disk: &dyn Disk,
        i: usize,
        end: &[u8],
    ) -> Result<Vec<Block>, StoreError> {
        let below = self.index[i..].iter().take_while(|e| *e.first < *end);
        let Some((first, len)) = self.stretch(i, below.count()) else {
            return Ok([self.read_block(disk, i)?].into());
        };
        let raw = Bytes::from(self.meta.runs.read(disk, first, len, false)?);
        let blocks = self.parse_all(disk, i, &raw, Bytes::copy_from_slice);
        blocks.collect()
    }

    /// As [`Table::read_blocks`] for all that follow, past all caches and in memory that they
    /// share.
    fn read_once(
        &self,
        disk: &dyn Disk,
        i: usize,
        pool: &Pool,
    ) -> Result<VecDeque<Block>, StoreError> {
        let Some((first, len)) = self.stretch(i, usize::MAX) else {
            return Ok([self.read_block(disk, i)?].into());
        };
        let raw = self.meta.runs.read_pooled(disk, first, len, pool)?;
        let blocks = self.parse_all(disk, i, &raw, |part| raw.slice_ref(part));
        blocks.collect()
    }

    /// Where so many blocks from `i` on are, as far as they are read at once; `None` where that
    /// is not more than one.
    fn stretch(&self, i: usize, most: usize) -> Option<(u64, usize)> {
        let first = self.index[i].off;
        let ends = self.index[i..].iter().map(|e| (e.off - first) as usize + e.len as usize);
        let ends = ends.take(most).take_while(|end| *end <= READ_AHEAD);
        let (n, len) = ends.fold((0, 0), |(n, _), end| (n + 1, end));
        (n > 1).then_some((first, len))
    }

    /// The blocks from `i` on that are in `raw`, each as `part` gives its bytes.
    fn parse_all<'a>(
        &'a self,
        disk: &'a dyn Disk,
        i: usize,
        raw: &'a [u8],
        part: impl Fn(&'a [u8]) -> Bytes + 'a,
    ) -> impl Iterator<Item = Result<Block, StoreError>> + 'a {
        let first = self.index[i].off;
        let place = move |e: &IndexEntry| {
            let at = (e.off - first) as usize;
            at..at + e.len as usize
        };
        let within = self.index[i..].iter().take_while(move |e| place(e).end <= raw.len());
        within.enumerate().map(move |(n, e)| {
            let data = &raw[place(e)];
            if stdx::crc32c(!0, data) == e.crc {
                self.parse(part(data), i + n)
            } else {
                self.read_block(disk, i + n) // once more, and by itself
            }
        })
    }
}

/// What is read at once where one block after the other is wanted: short beside what each read
/// costs.
const READ_AHEAD: usize = 128 << 10;

/// Reads a table from its first key on, past all caches: it goes away soon.
pub(crate) struct Cursor {
    table: Arc<Table>,
    pool: Pool,
    next_block: usize,
    /// Those that were read: it stands in the first.
    blocks: VecDeque<Block>,
    at: usize,
}

impl Cursor {
    pub fn new(table: Arc<Table>) -> Self {
        Self { table, pool: Pool::default(), next_block: 0, blocks: VecDeque::new(), at: 0 }
    }

    /// The entry it stands at; reads the next blocks where need be.
    pub fn peek(&mut self, disk: &dyn Disk) -> Result<Option<&[u8]>, StoreError> {
        while self.blocks.front().is_none_or(|b| self.at >= b.len()) {
            self.at = 0;
            self.blocks.pop_front();
            if self.blocks.is_empty() {
                if self.next_block >= self.table.block_count() {
                    return Ok(None);
                }
                self.blocks = self.table.read_once(disk, self.next_block, &self.pool)?;
                self.next_block += self.blocks.len();
            }
        }
        Ok(self.blocks.front().map(|b| b.key(self.at)))
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
    index: Vec<IndexEntry>,
    hashes: Vec<u64>,
    omap_bytes: u64,
    last: Vec<u8>,
}

impl Builder {
    pub fn new(space: Space) -> Self {
        Self {
            out: StreamWriter::new(space),
            block: Vec::with_capacity(2 * BLOCK_BYTES),
            offsets: Vec::new(),
            first: Box::default(),
            index: Vec::new(),
            hashes: Vec::new(),
            omap_bytes: 0,
            last: Vec::new(),
        }
    }

    pub fn add(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), StoreError> {
        assert!(self.hashes.is_empty() || *self.last < *key, "keys come in order");
        self.last.clear();
        self.last.extend_from_slice(key);
        let bytes = 8 + key.len() + value.map_or(0, <[u8]>::len);
        if !self.offsets.is_empty() && self.block.len() + bytes > BLOCK_BYTES {
            self.end_block()?;
        }
        if self.offsets.is_empty() {
            self.first = key.into();
        }
        if key[0] == crate::keys::OMAP && value.is_some() {
            self.omap_bytes += bytes as u64 - 18;
        }
        self.offsets.push(self.block.len() as u32);
        self.hashes.push(hash(key));
        self.block.extend_from_slice(&(key.len() as u32).to_le_bytes());
        let len = value.map_or(REMOVED, |v| u32::try_from(v.len()).expect("a value fits u32"));
        self.block.extend_from_slice(&len.to_le_bytes());
        self.block.extend_from_slice(key);
        self.block.extend_from_slice(value.unwrap_or_default());
        Ok(())
    }

    fn end_block(&mut self) -> Result<(), StoreError> {
        for off in &self.offsets {
            self.block.extend_from_slice(&off.to_le_bytes());
        }
        self.block.extend_from_slice(&(self.offsets.len() as u32).to_le_bytes());
        self.index.push(IndexEntry {
            first: std::mem::take(&mut self.first),
            off: self.out.len,
            len: self.block.len() as u32,
            crc: stdx::crc32c(!0, &self.block),
        });
        self.out.put(&self.block)?;
        self.block.clear();
        self.offsets.clear();
        Ok(())
    }

    /// Ends the table; `None` when nothing was added.
    pub fn finish(mut self, id: u64) -> Result<Option<Table>, StoreError> {
        if self.hashes.is_empty() {
            return Ok(None);
        }
        if !self.offsets.is_empty() {
            self.end_block()?;
        }
        let filter = Filter::new(&self.hashes);
        let mut w = Writer::with_capacity(denc::Features::ALL, 64 << 10);
        w.seq(&self.index, |w, e| {
            w.blob(&e.first);
            w.u64(e.off);
            w.u32(e.len);
            w.u32(e.crc);
        });
        filter.words.encode(&mut w);
        let raw = w.finish();
        let index_off = self.out.len;
        self.out.put(&raw)?;
        let (runs, _) = self.out.finish()?;
        let meta = Meta {
            id,
            runs,
            entries: self.hashes.len() as u64,
            omap_bytes: self.omap_bytes,
            index_off,
            index_len: raw.len() as u32,
            index_crc: stdx::crc32c(!0, &raw),
        };
        Ok(Some(Table { meta, index: self.index, filter }))
    }
}

/// A Bloom filter of ten bits for a key, six of them set: 1 % of absent keys pass.
struct Filter {
    words: Vec<u64>,
}

impl Filter {
    fn new(hashes: &[u64]) -> Self {
        let mut words = vec![0; (hashes.len() * 10).div_ceil(64).max(1)];
        for hash in hashes {
            for bit in bits(*hash, words.len()) {
                words[bit / 64] |= 1 << (bit % 64);
            }
        }
        Self { words }
    }

    fn may_have(&self, hash: u64) -> bool {
        !self.words.is_empty()
            && bits(hash, self.words.len()).all(|b| self.words[b / 64] >> (b % 64) & 1 == 1)
    }
}

fn bits(hash: u64, words: usize) -> impl Iterator<Item = usize> {
    let (n, step) = (words as u64 * 64, hash >> 32 | 1);
    (0..6).map(move |i| (hash.wrapping_add(step.wrapping_mul(i)) % n) as usize)
}

/// A hash of a key, the same on every machine: it is in tables.
pub(crate) fn hash(key: &[u8]) -> u64 {
    const K: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut h = key.len() as u64;
    for part in key.chunks(8) {
        let mut raw = [0; 8];
        raw[..part.len()].copy_from_slice(part);
        h = (h ^ u64::from_le_bytes(raw)).wrapping_mul(K);
        h ^= h >> 32;
    }
    h = h.wrapping_mul(K);
    h ^ h >> 29
}
