//! Parts of a table's index: where some blocks next to one another are, and a filter of their keys.

use bytes::Bytes;
use denc::{DecodeError, Denc, Reader, Writer};

pub(crate) fn u32_at(b: &[u8], at: usize) -> usize {
    u32::from_le_bytes(b[at..at + 4].try_into().expect("four bytes")) as usize
}

/// Where a block or a part is, and what its keys begin with.
#[derive(Clone, Debug)]
pub(crate) struct IndexEntry {
    pub first: Box<[u8]>,
    pub off: u64,
    pub len: u32,
    pub crc: u32,
}

impl IndexEntry {
    pub fn encode(&self, w: &mut Writer) {
        w.blob(&self.first);
        w.u64(self.off);
        w.u32(self.len);
        w.u32(self.crc);
    }

    pub fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let first = r.blob_ref()?.into();
        Ok(Self { first, off: r.u64()?, len: r.u32()?, crc: r.u32()? })
    }
}

/// Bytes of a part, about: what is read for one key of a large table, beside the block.
pub(crate) const PART_BYTES: usize = 4 << 10;

/// What is read at once where one block after the other is wanted: short beside what each read
/// costs.
pub(crate) const READ_AHEAD: usize = 128 << 10;

/// The index of blocks next to one another, and a filter of their keys, as they are on the device:
/// `u32` number of blocks; of each `u32` where its key ends, `u64` place, `u32` length, `u32`
/// crc32c; the keys, one behind the other; the filter's words. A block's key is not above its first,
/// and above all before it.
pub(crate) struct Part {
    raw: Bytes,
    blocks: usize,
    /// Where the filter begins.
    filter: usize,
}

/// Of a block in a part, but for its key.
pub(crate) struct BlockEntry {
    pub off: u64,
    pub len: u32,
    pub crc: u32,
}

pub(crate) const ENTRY: usize = 20;

impl Part {
    pub fn encode(index: &[IndexEntry], filter: &Filter) -> Bytes {
        let mut w = Writer::with_capacity(denc::Features::ALL, 2 * PART_BYTES);
        w.u32(index.len() as u32);
        let mut end = 0;
        for e in index {
            end += e.first.len() as u32;
            w.u32(end);
            w.u64(e.off);
            w.u32(e.len);
            w.u32(e.crc);
        }
        index.iter().for_each(|e| w.raw(&e.first));
        filter.words.iter().for_each(|word| w.u64(*word));
        w.finish()
    }

    pub fn parse(raw: Bytes) -> Option<Self> {
        let blocks = u32_at(raw.get(..4)?, 0);
        let keys = ENTRY.checked_mul(blocks)?.checked_add(4)?;
        if blocks == 0 || keys > raw.len() {
            return None;
        }
        let mut part = Self { raw, blocks, filter: keys };
        // Checked once here, so that the rest may index.
        let ends = (0..blocks).map(|i| u32_at(&part.raw, 4 + i * ENTRY));
        let in_order = ends.is_sorted();
        part.filter += u32_at(&part.raw, 4 + (blocks - 1) * ENTRY);
        let words = part.raw.len().checked_sub(part.filter)?;
        (in_order && words > 0 && words.is_multiple_of(8)).then_some(part)
    }

    /// As tables of before have it: an index of all blocks, and a filter.
    pub fn of_before(raw: &Bytes) -> Option<Self> {
        let mut r = Reader::new(raw);
        let index = r.seq(IndexEntry::decode).ok()?;
        let filter = Filter { words: Denc::decode(&mut r).ok()? };
        Self::parse(Self::encode(&index, &filter))
    }

    /// Blocks.
    pub fn len(&self) -> usize {
        self.blocks
    }

    /// Bytes of memory.
    pub fn footprint(&self) -> u64 {
        Self::footprint_of(self.raw.len() as u64)
    }

    pub fn footprint_of(len: u64) -> u64 {
        len + 128
    }

    pub fn key(&self, i: usize) -> &[u8] {
        let end = |i: usize| u32_at(&self.raw, 4 + i * ENTRY);
        let from = if i == 0 { 0 } else { end(i - 1) };
        let keys = 4 + self.blocks * ENTRY;
        &self.raw[keys + from..keys + end(i)]
    }

    pub fn block(&self, i: usize) -> BlockEntry {
        let at = 4 + i * ENTRY;
        let off = u64::from_le_bytes(self.raw[at + 4..at + 12].try_into().expect("eight bytes"));
        let word = |at| u32_at(&self.raw, at) as u32;
        BlockEntry { off, len: word(at + 12), crc: word(at + 16) }
    }

    /// Whether block `i` is one value that is longer than what is read at once.
    pub fn is_large(&self, i: usize) -> bool {
        self.block(i).len as usize > READ_AHEAD
    }

    pub fn may_have(&self, hash: u64) -> bool {
        let words = &self.raw[self.filter..];
        // Bit `b` of little-endian words is bit `b % 8` of byte `b / 8`.
        bits(hash, words.len() / 8).all(|b| words[b / 8] >> (b % 8) & 1 == 1)
    }

    /// The block that holds `key`, if any does.
    pub fn block_of(&self, key: &[u8]) -> usize {
        let (mut lo, mut hi) = (0, self.blocks);
        while lo < hi {
            let mid = (lo + hi) / 2;
            if self.key(mid) <= key { lo = mid + 1 } else { hi = mid }
        }
        lo.saturating_sub(1)
    }

    /// Whether block `i` may have keys below `end`.
    pub fn has_below(&self, i: usize, end: &[u8]) -> bool {
        i < self.blocks && self.key(i) < end
    }

    /// Where so many blocks from `i` on are, as far as they are read at once; `None` where that
    /// is not more than one.
    pub fn stretch(&self, i: usize, most: usize) -> Option<(u64, usize)> {
        let first = self.block(i).off;
        let ends = (i..self.blocks).map(|i| self.block(i));
        let ends = ends.map(|e| e.off.wrapping_sub(first) as usize + e.len as usize);
        let ends = ends.take(most).take_while(|end| *end <= READ_AHEAD);
        let (n, len) = ends.fold((0, 0), |(n, _), end| (n + 1, end));
        (n > 1).then_some((first, len))
    }
}

/// A Bloom filter of ten bits for a key, six of them set: 1 % of absent keys pass.
pub(crate) struct Filter {
    pub words: Vec<u64>,
}

impl Filter {
    /// Bytes of one for so many keys.
    pub fn bytes(keys: usize) -> usize {
        (keys * 10).div_ceil(64).max(1) * 8
    }

    pub fn new(hashes: &[u64]) -> Self {
        let mut words = vec![0; Self::bytes(hashes.len()) / 8];
        for hash in hashes {
            for bit in bits(*hash, words.len()) {
                words[bit / 64] |= 1 << (bit % 64);
            }
        }
        Self { words }
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
