//! One object's metadata: size, attributes, and where its data is.
//!
//! Data is in two layers: extents on the device, in whole blocks, and pieces in memory on
//! top of them, which the log holds and the next checkpoint writes to blocks of their own.
//!
//! Invariants:
//! - extents are in order, apart, and never touch a block twice; pieces likewise by bytes;
//! - a block that lost only part of its data (zeroed, truncated) has pieces of zeros where
//!   the rest was, so that a piece never goes away unless another covers it or its whole
//!   block goes, which is noted in `dropped`. [`Onode::settle`] relies on this;
//! - beyond `size` within the last block everything reads as zeros.

use std::collections::BTreeSet;

use bytes::Bytes;
use denc::{DecodeError, Denc, Reader, Writer};
use smallvec::SmallVec;
use stdx::IntervalSet;

use crate::attrs::Attrs;
use crate::pack::{Algorithm, PART_MAX, Packed};
use crate::varint;

/// Bytes of a block: the unit of space, of checksums and of direct I/O.
pub(crate) const BLOCK: u64 = 4096;

/// Data of objects up to this size is kept with the onode.
pub(crate) const TINY: u64 = 1024;

/// Largest object, in bytes.
pub(crate) const OBJECT_MAX: u64 = 1 << 40;

/// Checksums of blocks. Those of few are kept in place: an image written at random has an extent
/// for each block, and each change under a checkpoint copies them all.
pub(crate) type Crcs = SmallVec<[u32; 4]>;

/// A run of blocks of an object, and the run of blocks on the device that has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// First block in the object.
    pub at: u64,
    /// First block on the device.
    pub phys: u64,
    /// Whether other objects may refer to it, too: then `S` keys count.
    pub shared: bool,
    /// crc32c of each block on the device.
    pub crcs: Crcs,
    /// Where they are compressed: `phys` is where the blob begins, of which this may show a
    /// part.
    pub packed: Option<Packed>,
}

impl Extent {
    /// Blocks of the object.
    pub fn blocks(&self) -> u64 {
        self.packed.map_or(self.crcs.len() as u64, |p| u64::from(p.shown))
    }

    /// Blocks on the device.
    pub fn device_blocks(&self) -> u64 {
        self.crcs.len() as u64
    }

    pub fn end(&self) -> u64 {
        self.at + self.blocks()
    }

    /// Becomes one with the next extent, where that continues it in the object and on the device;
    /// whether it does.
    fn takes(&mut self, next: &Extent) -> bool {
        let joins = self.end() == next.at
            && self.phys + self.blocks() == next.phys
            && self.shared == next.shared
            && self.packed.is_none()
            && next.packed.is_none();
        if joins {
            self.crcs.extend_from_slice(&next.crcs);
        }
        joins
    }

    /// The part that lies in the object's blocks `from..to`.
    pub fn part(&self, from: u64, to: u64) -> Self {
        let (from, to) = (from.max(self.at), to.min(self.end()));
        let skip = from - self.at;
        if let Some(p) = self.packed {
            let (from_in, shown) = (p.from + skip as u32, (to - from) as u32);
            let packed = Some(Packed { from: from_in, shown, ..p });
            return Self { at: from, packed, ..self.clone() };
        }
        Self {
            at: from,
            phys: self.phys + skip,
            shared: self.shared,
            crcs: Crcs::from_slice(&self.crcs[skip as usize..(to - self.at) as usize]),
            packed: None,
        }
    }
}

/// Puts an extent behind the others.
fn push(all: &mut Vec<Extent>, e: Extent) {
    if !all.last_mut().is_some_and(|last| last.takes(&e)) {
        all.push(e);
    }
}

/// Blocks on the device that an object no longer refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Freed {
    pub phys: u64,
    pub blocks: u64,
    pub shared: bool,
}

/// Data of the log that has no blocks yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub off: u64,
    /// The transaction that wrote it.
    pub seq: u64,
    pub data: Bytes,
}

impl Piece {
    pub fn end(&self) -> u64 {
        self.off + self.data.len() as u64
    }
}

/// A block the checkpoint wrote: what was under it, and what it is now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settled {
    pub at: u64,
    pub base: Option<u64>,
    /// Where `base` is shared, the index under which the checkpoint noted that it is no
    /// longer referred to.
    pub release: Option<u32>,
    pub phys: u64,
    pub crc: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Onode {
    /// Unique in the store's life.
    pub id: u64,
    pub size: u64,
    /// Names its omap; 0 for none.
    pub omap: u64,
    pub attrs: Attrs,
    pub extents: Vec<Extent>,
    pub pieces: Vec<Piece>,
    /// Blocks whose data was let go as a whole since the last checkpoint began. Not stored.
    pub dropped: IntervalSet,
}

static ZEROS: [u8; BLOCK as usize] = [0; BLOCK as usize];

impl Onode {
    /// Bytes of space on the device.
    pub fn allocated(&self) -> u64 {
        self.device_runs().map(|f| f.blocks).sum::<u64>() * BLOCK
    }

    /// What it refers to on the device; each blob once.
    pub fn device_runs(&self) -> impl Iterator<Item = Freed> {
        let mut blobs = BTreeSet::new();
        let own = move |e: &&Extent| e.packed.is_none() || blobs.insert(e.phys);
        self.extents.iter().filter(own).map(|e| Freed {
            phys: e.phys,
            blocks: e.device_blocks(),
            shared: e.shared,
        })
    }

    /// Bytes on the device of its compressed data, and bytes of data that they are.
    pub fn packed(&self) -> (u64, u64) {
        let mut blobs = BTreeSet::new();
        let (mut device, mut data) = (0, 0);
        for e in self.extents.iter().filter(|e| e.packed.is_some()) {
            data += e.blocks() * BLOCK;
            device += if blobs.insert(e.phys) { e.device_blocks() * BLOCK } else { 0 };
        }
        (device, data)
    }

    /// Whether any of the blocks `from..to` is compressed.
    pub fn is_packed(&self, from: u64, to: u64) -> bool {
        self.extents_in(from, to).any(|e| e.packed.is_some())
    }

    /// About what it takes in memory.
    pub fn footprint(&self) -> u64 {
        let extents: usize = self.extents.iter().map(|e| e.crcs.len() * 4 + 48).sum();
        let pieces: usize = self.pieces.iter().map(|p| p.data.len() + 48).sum();
        (extents + pieces + 256) as u64 + self.attrs.bytes()
    }

    /// Index of the first extent that ends behind `block`.
    fn extent_from(&self, block: u64) -> usize {
        self.extents.partition_point(|e| e.end() <= block)
    }

    /// Index of the first piece that ends behind `off`.
    pub fn piece_from(&self, off: u64) -> usize {
        self.pieces.partition_point(|p| p.end() <= off)
    }

    /// The extent that holds `block`.
    pub fn extent_of(&self, block: u64) -> Option<&Extent> {
        self.extents.get(self.extent_from(block)).filter(|e| e.at <= block)
    }

    /// Extents from the first on that ends behind `block`.
    pub fn extents_from(&self, block: u64) -> &[Extent] {
        &self.extents[self.extent_from(block)..]
    }

    /// Extents that touch the blocks `from..to`.
    pub fn extents_in(&self, from: u64, to: u64) -> impl Iterator<Item = &Extent> {
        self.extents_from(from).iter().take_while(move |e| e.at < to)
    }

    /// Pieces that touch the bytes `from..to`.
    pub fn pieces_in(&self, from: u64, to: u64) -> impl Iterator<Item = &Piece> {
        self.pieces[self.piece_from(from)..].iter().take_while(move |p| p.off < to)
    }

    fn drop_extents(&mut self, from: u64, to: u64, freed: &mut Vec<Freed>) {
        let first = self.extent_from(from);
        let last = first + self.extents[first..].partition_point(|e| e.at < to);
        if first == last {
            return;
        }
        let (mut keep, mut blobs) = (Vec::new(), Vec::<Freed>::new());
        for e in &self.extents[first..last] {
            let (lo, hi) = (from.max(e.at), to.min(e.end()));
            if e.packed.is_some() {
                blobs.push(Freed { phys: e.phys, blocks: e.device_blocks(), shared: e.shared });
            } else {
                let phys = e.phys + (lo - e.at);
                freed.push(Freed { phys, blocks: hi - lo, shared: e.shared });
            }
            if e.at < lo {
                keep.push(e.part(e.at, lo));
            }
            if hi < e.end() {
                keep.push(e.part(hi, e.end()));
            }
        }
        self.extents.splice(first..last, keep);
        // A blob goes with the last extent that shows some of it.
        blobs.dedup_by_key(|f| f.phys);
        for (i, blob) in blobs.iter().enumerate() {
            let again = blobs[..i].iter().any(|b| b.phys == blob.phys);
            if !again && !self.shows(blob.phys) {
                freed.push(*blob);
            }
        }
    }

    /// Whether an extent shows some of the blob at `phys`.
    fn shows(&self, phys: u64) -> bool {
        self.extents.iter().any(|e| e.packed.is_some() && e.phys == phys)
    }

    fn drop_pieces(&mut self, from: u64, to: u64) {
        let first = self.piece_from(from);
        let last = first + self.pieces[first..].partition_point(|p| p.off < to);
        if first == last {
            return;
        }
        let mut keep = Vec::new();
        for p in &self.pieces[first..last] {
            if p.off < from {
                let data = p.data.slice(..(from - p.off) as usize);
                keep.push(Piece { data, ..p.clone() });
            }
            if to < p.end() {
                let data = p.data.slice((to - p.off) as usize..);
                keep.push(Piece { off: to, seq: p.seq, data });
            }
        }
        self.pieces.splice(first..last, keep);
    }

    fn put_piece(&mut self, piece: Piece) {
        // Appending to the last piece's end is the common case and finds nothing to drop.
        self.drop_pieces(piece.off, piece.end());
        let at = self.piece_from(piece.off);
        self.pieces.insert(at, piece);
    }

    /// Data that rides in the log. None of the blocks it touches is compressed
    /// ([`Onode::drop_packed`]).
    pub fn write(&mut self, seq: u64, off: u64, data: Bytes) {
        if data.is_empty() {
            return;
        }
        self.size = self.size.max(off + data.len() as u64);
        self.put_piece(Piece { off, seq, data });
    }

    /// Drops what is compressed of the blocks that `len` bytes from `off` on touch: they are
    /// written as a whole.
    pub fn drop_packed(&mut self, off: u64, len: u64, freed: &mut Vec<Freed>) {
        let (first, last) = (off / BLOCK, (off + len).div_ceil(BLOCK));
        let mut at = first;
        let next = |o: &Self, at| {
            let e = o.extents_in(at, last).find(|e| e.packed.is_some())?;
            Some((e.at.max(first), e.end().min(last)))
        };
        while let Some((from, to)) = next(self, at) {
            self.drop_extents(from, to, freed);
            at = to;
        }
    }

    /// Data that is on the device already. Covers whole blocks.
    pub fn put_extent(&mut self, extent: Extent, size: u64, freed: &mut Vec<Freed>) {
        self.drop_blocks(extent.at, extent.end(), freed);
        self.size = self.size.max(size);
        self.insert_extent(extent);
    }

    /// Whole blocks become a hole.
    fn drop_blocks(&mut self, from: u64, to: u64, freed: &mut Vec<Freed>) {
        self.dropped.insert(from, to - from);
        self.drop_extents(from, to, freed);
        self.drop_pieces(from * BLOCK, to * BLOCK);
    }

    /// Part of one block becomes zeros.
    fn zero_part(&mut self, seq: u64, from: u64, to: u64) {
        let block = from / BLOCK;
        let (lo, hi) = (block * BLOCK, (block + 1) * BLOCK);
        let used = self.extent_of(block).is_some() || self.pieces_in(lo, hi).next().is_some();
        if used && from < to {
            let data = Bytes::from_static(&ZEROS[..(to - from) as usize]);
            self.put_piece(Piece { off: from, seq, data });
        }
    }

    fn punch(&mut self, seq: u64, from: u64, to: u64, freed: &mut Vec<Freed>) {
        let (first, last) = (from.div_ceil(BLOCK), to / BLOCK);
        if first > last {
            self.zero_part(seq, from, to); // within one block
            return;
        }
        self.zero_part(seq, from, first * BLOCK);
        self.drop_blocks(first, last, freed);
        self.zero_part(seq, last * BLOCK, to);
    }

    /// Makes a range zeros; extends the object to its end.
    pub fn zero(&mut self, seq: u64, off: u64, len: u64, freed: &mut Vec<Freed>) {
        if len == 0 {
            return;
        }
        let end = off + len;
        // Where the range reaches the end of the object, so does what is lost of its block.
        let to = if end >= self.size { end.next_multiple_of(BLOCK) } else { end };
        self.punch(seq, off, to, freed);
        self.size = self.size.max(end);
    }

    pub fn truncate(&mut self, seq: u64, size: u64, freed: &mut Vec<Freed>) {
        if size < self.size {
            self.punch(seq, size, self.size.next_multiple_of(BLOCK), freed);
        }
        self.size = size;
    }

    /// Everything it has on the device.
    pub fn all_freed(&self) -> Vec<Freed> {
        self.device_runs().collect()
    }

    /// Blocks that have pieces, ascending.
    pub fn piece_blocks(&self) -> Vec<u64> {
        let mut out = Vec::new();
        for p in &self.pieces {
            let first = p.off / BLOCK;
            let first = out.last().map_or(first, |last: &u64| first.max(last + 1));
            out.extend(first..p.end().div_ceil(BLOCK));
        }
        out
    }

    /// Takes over blocks that the checkpoint of everything up to `seq` wrote, in their order,
    /// where they still are what the object's newer pieces lie on; whether so, for each. Adds
    /// to `freed` what is not needed: blocks that were under the new ones (but for shared
    /// ones), or the new ones where the object went on.
    pub fn settle(&mut self, seq: u64, blocks: &[Settled], freed: &mut Vec<Freed>) -> Vec<bool> {
        let same: Vec<bool> = blocks.iter().map(|s| !self.dropped.contains(s.at)).collect();
        let mut taken = Vec::with_capacity(blocks.len());
        for (s, same) in blocks.iter().zip(&same) {
            if *same {
                taken.push(*s);
            } else {
                freed.push(Freed { phys: s.phys, blocks: 1, shared: false });
            }
        }
        self.place(&taken, freed);
        self.drop_old_pieces(seq, &taken);
        same
    }

    /// As a checkpoint writes it that put all of its pieces into `blocks`.
    pub fn settled(&self, blocks: &[Settled]) -> Self {
        let mut o = Self {
            attrs: self.attrs.clone(),
            extents: self.extents.clone(),
            pieces: Vec::new(),
            dropped: IntervalSet::new(),
            ..*self
        };
        o.place(blocks, &mut Vec::new());
        o
    }

    /// Puts blocks in the place of what was there, in one go through all extents. None of what
    /// they cover is compressed.
    fn place(&mut self, blocks: &[Settled], freed: &mut Vec<Freed>) {
        let old = std::mem::take(&mut self.extents);
        let mut all = Vec::with_capacity(old.len() + blocks.len());
        let mut next = blocks.iter().peekable();
        let block = |s: &Settled| {
            let crcs = Crcs::from_slice(&[s.crc]);
            Extent { at: s.at, phys: s.phys, shared: false, crcs, packed: None }
        };
        for e in old {
            let (at, end) = (e.at, e.end());
            let mut rest = at; // of the extent, from here on
            while let Some(s) = next.next_if(|s| s.at < end) {
                if s.at >= at {
                    debug_assert!(e.packed.is_none(), "no data lies over a blob");
                    if rest < s.at {
                        push(&mut all, e.part(rest, s.at));
                    }
                    if !e.shared {
                        freed.push(Freed { phys: e.phys + (s.at - at), blocks: 1, shared: false });
                    }
                    rest = s.at + 1;
                }
                push(&mut all, block(s));
            }
            if rest == at {
                push(&mut all, e);
            } else if rest < end {
                push(&mut all, e.part(rest, end));
            }
        }
        next.for_each(|s| push(&mut all, block(s)));
        self.extents = all;
    }

    /// Drops what `blocks` have of pieces up to `seq`.
    fn drop_old_pieces(&mut self, seq: u64, blocks: &[Settled]) {
        let mut all = Vec::with_capacity(self.pieces.len());
        for p in std::mem::take(&mut self.pieces) {
            if p.seq > seq {
                all.push(p);
                continue;
            }
            let (mut rest, end) = (p.off, p.end());
            let mut keep = |from: u64, to: u64| {
                if from < to {
                    let data = p.data.slice((from - p.off) as usize..(to - p.off) as usize);
                    all.push(Piece { off: from, seq: p.seq, data });
                }
            };
            let first = blocks.partition_point(|s| (s.at + 1) * BLOCK <= p.off);
            for s in blocks[first..].iter().take_while(|s| s.at * BLOCK < end) {
                keep(rest, s.at * BLOCK);
                rest = (s.at + 1) * BLOCK;
            }
            keep(rest, end);
        }
        self.pieces = all;
    }

    fn insert_extent(&mut self, extent: Extent) {
        let at = self.extent_from(extent.at);
        self.extents.insert(at, extent);
    }

    /// Parts of `from..to` with data, in bytes, joined where they touch.
    pub fn data_ranges(&self, from: u64, to: u64) -> Vec<(u64, u64)> {
        let mut set = IntervalSet::new();
        let (first, last) = (from / BLOCK, to.div_ceil(BLOCK));
        for e in self.extents_in(first, last) {
            let (lo, hi) = ((e.at * BLOCK).max(from), (e.end() * BLOCK).min(to));
            set.insert(lo, hi - lo);
        }
        for p in self.pieces_in(from, to) {
            let (lo, hi) = (p.off.max(from), p.end().min(to));
            set.insert(lo, hi - lo);
        }
        set.iter().collect()
    }

    /// Whether its data is so little that it stays with the onode.
    pub fn is_tiny(&self) -> bool {
        self.extents.is_empty() && self.size <= TINY
    }

    /// The form in tables.
    pub fn to_value(&self) -> Bytes {
        let settled = self.pieces.is_empty() || self.is_tiny();
        assert!(settled, "a checkpointed onode has its data in blocks, or little of it");
        self.to_bytes()
    }
}

fn extents(r: &mut Reader<'_>, version: u8) -> Result<Vec<Extent>, DecodeError> {
    let (mut end, mut phys_end) = (0u64, 0u64);
    r.seq(|r| {
        let at = end.checked_add(varint::get(r)?);
        let phys = phys_end.checked_add_signed(varint::unfold(varint::get(r)?));
        let mut head = varint::get(r)?;
        let mut is_packed = false;
        if version >= 3 {
            is_packed = head & 1 == 1;
            head >>= 1;
        }
        let (device, shared) = (head >> 1, head & 1 == 1);
        let packed = if is_packed { Some(packed(r, device)?) } else { None };
        r.require(device <= r.left() as u64 / 4, "each block has a checksum")?;
        let crcs = (0..device).map(|_| r.u32()).collect::<Result<Crcs, _>>()?;
        let blocks = packed.map_or(device, |p| u64::from(p.shown));
        let ends = |x: Option<u64>, n| x.and_then(|x| Some((x, x.checked_add(n)?)));
        let (Some((at, at_end)), Some((phys, to))) = (ends(at, blocks), ends(phys, device)) else {
            return Err(DecodeError::Invalid { what: "extent", rule: "on the device" });
        };
        (end, phys_end) = (at_end, to);
        Ok(Extent { at, phys, shared, crcs, packed })
    })
}

/// What an extent shows of a blob of `device` blocks.
pub(crate) fn packed(r: &mut Reader<'_>, device: u64) -> Result<Packed, DecodeError> {
    let Some(algorithm) = Algorithm::from_number(r.u8()?) else {
        return Err(DecodeError::Invalid { what: "compressed extent", rule: "of a known kind" });
    };
    let mut n = || varint::get(r).map(|n| u32::try_from(n).unwrap_or(u32::MAX));
    let p = Packed { algorithm, bytes: n()?, whole: n()?, from: n()?, shown: n()? };
    let fits = p.shown > 0
        && u64::from(p.from) + u64::from(p.shown) <= u64::from(p.whole)
        && u64::from(p.whole) <= PART_MAX
        && u64::from(p.bytes) <= device.saturating_mul(BLOCK);
    r.require(fits, "a compressed extent shows a part of its blob")?;
    Ok(p)
}

pub(crate) fn put_packed(w: &mut Writer, p: &Packed) {
    w.u8(p.algorithm.number());
    for n in [p.bytes, p.whole, p.from, p.shown] {
        varint::put(w, u64::from(n));
    }
}

/// As they were before.
fn extents_1(r: &mut Reader<'_>) -> Result<Vec<Extent>, DecodeError> {
    r.seq(|r| {
        let (at, phys, shared) = (r.u64()?, r.u64()?, r.bool()?);
        Ok(Extent { at, phys, shared, crcs: r.seq(|r| r.u32())?.into(), packed: None })
    })
}

impl Denc for Onode {
    fn encode(&self, w: &mut Writer) {
        let packs = self.extents.iter().any(|e| e.packed.is_some());
        let version = if packs { 3 } else { 2 };
        w.framed(version, version, |w| {
            w.u64(self.id);
            w.u64(self.size);
            w.u64(self.omap);
            self.attrs.encode(w);
            // Most extents begin where the one before ends, in the object and nearly so on
            // the device.
            let (mut at, mut phys) = (0, 0);
            w.seq(&self.extents, |w, e| {
                varint::put(w, e.at - at);
                varint::put(w, varint::fold(e.phys as i64 - phys as i64));
                let head = e.device_blocks() << 1 | u64::from(e.shared);
                if packs {
                    varint::put(w, head << 1 | u64::from(e.packed.is_some()));
                } else {
                    varint::put(w, head);
                }
                if let Some(p) = e.packed {
                    put_packed(w, &p);
                }
                e.crcs.iter().for_each(|crc| w.u32(*crc));
                (at, phys) = (e.end(), e.phys + e.device_blocks());
            });
            w.seq(&self.pieces, |w, p| {
                w.u64(p.off);
                w.blob(&p.data);
            });
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("onode", 3, |r, version| {
            Ok(Self {
                id: r.u64()?,
                size: r.u64()?,
                omap: r.u64()?,
                attrs: Denc::decode(r)?,
                extents: if version == 1 { extents_1(r)? } else { extents(r, version)? },
                pieces: r.seq(|r| Ok(Piece { off: r.u64()?, seq: 0, data: r.blob()? }))?,
                dropped: IntervalSet::new(),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use denc::Features;
    use proptest::prelude::*;

    /// As the first stores wrote it.
    fn old_bytes(o: &Onode) -> Bytes {
        let mut w = Writer::new(Features::ALL);
        w.framed(1, 1, |w| {
            w.u64(o.id);
            w.u64(o.size);
            w.u64(o.omap);
            o.attrs.encode(w);
            w.seq(&o.extents, |w, e| {
                w.u64(e.at);
                w.u64(e.phys);
                w.bool(e.shared);
                w.seq(&e.crcs, |w, crc| w.u32(*crc));
            });
            w.seq(&o.pieces, |w, p| {
                w.u64(p.off);
                w.blob(&p.data);
            });
        });
        w.finish()
    }

    proptest! {
        #[test]
        fn extents_come_back(
            parts in prop::collection::vec(
                (0u64..4, 0u64..1 << 40, 1usize..20, any::<bool>(), prop::option::of(0u32..30)),
                0..9,
            )
        ) {
            let mut o = Onode { id: 7, size: 1 << 30, omap: 3, ..Onode::default() };
            let mut end = 0;
            for (gap, phys, n, shared, from) in parts {
                let crcs = (0..n as u32).map(|i| i ^ phys as u32).collect();
                let bytes = n as u32 * 4000;
                let packed = from.map(|from| Packed {
                    algorithm: Algorithm::Lz4, bytes, whole: 40, from, shown: 40 - from,
                });
                o.extents.push(Extent { at: end + gap, phys, shared, crcs, packed });
                end = o.extents.last().expect("it was just put there").end();
            }
            prop_assert_eq!(&Onode::from_bytes(&o.to_bytes()), &Ok(o.clone()));
            for e in &mut o.extents {
                e.packed = None;
            }
            o.extents.dedup_by(|b, a| a.end() > b.at);
            prop_assert_eq!(Onode::from_bytes(&old_bytes(&o)), Ok(o));
        }

        /// As if each block were put there by itself.
        #[test]
        fn blocks_settle_in_one_go(
            parts in prop::collection::vec((0u64..3, 1u64..6, any::<bool>()), 0..9),
            written in prop::collection::vec((0u64..40 * BLOCK, 1usize..9_000, 1u64..4), 0..9),
            at in prop::collection::btree_set((0u64..40, any::<bool>()), 0..30),
        ) {
            let mut o = Onode { size: 1 << 30, ..Onode::default() };
            let mut end = 0;
            for (gap, n, shared) in parts {
                let crcs = (0..n as u32).collect();
                let at = end + gap;
                o.extents.push(Extent { at, phys: 1_000 + at, shared, crcs, packed: None });
                end = at + n;
            }
            o.extents.dedup_by(|next, e| e.takes(next));
            for (off, len, seq) in written {
                o.put_piece(Piece { off, seq, data: vec![seq as u8; len].into() });
            }
            let mut blocks: Vec<Settled> = Vec::new();
            for (at, gone) in at {
                if gone {
                    o.dropped.insert(at, 1);
                }
                if blocks.last().is_none_or(|s| s.at < at) {
                    let crc = at as u32;
                    blocks.push(Settled { at, base: None, release: None, phys: 5_000 + at, crc });
                }
            }
            let (mut each, mut freed_each) = (o.clone(), Vec::new());
            for s in &blocks {
                if each.dropped.contains(s.at) {
                    freed_each.push(Freed { phys: s.phys, blocks: 1, shared: false });
                    continue;
                }
                let (mut base, crcs) = (Vec::new(), Crcs::from_slice(&[s.crc]));
                each.drop_extents(s.at, s.at + 1, &mut base);
                freed_each.extend(base.into_iter().filter(|f| !f.shared));
                each.insert_extent(Extent { at: s.at, phys: s.phys, shared: false, crcs, packed: None });
                let (lo, hi) = (s.at * BLOCK, (s.at + 1) * BLOCK);
                let old: Vec<_> = each.pieces_in(lo, hi).filter(|p| p.seq <= 2).cloned().collect();
                old.iter().for_each(|p| each.drop_pieces(p.off.max(lo), p.end().min(hi)));
            }
            each.extents.dedup_by(|next, e| e.takes(next));
            let mut freed = Vec::new();
            let same = o.settle(2, &blocks, &mut freed);
            prop_assert_eq!(same, blocks.iter().map(|s| !o.dropped.contains(s.at)).collect::<Vec<_>>());
            freed.sort_unstable_by_key(|f| f.phys);
            freed_each.sort_unstable_by_key(|f| f.phys);
            prop_assert_eq!(freed, freed_each);
            prop_assert_eq!(o, each);
        }

        #[test]
        fn damaged_ones_are_refused(raw in prop::collection::vec(any::<u8>(), 0..60)) {
            let mut w = Writer::new(Features::ALL);
            w.framed(3, 3, |w| w.raw(&raw));
            let _ = Onode::from_bytes(&w.finish()); // no panic, no great allocation
        }
    }

    /// An object of sixteen blocks, each written alone, where checkpoints put them.
    #[test]
    fn scattered_blocks_are_small() {
        let phys = |at| 700_000 + at * 977;
        let extent = |at| Extent {
            at,
            phys: phys(at),
            shared: false,
            crcs: Crcs::from_slice(&[1]),
            packed: None,
        };
        let o = Onode { extents: (0..16).map(extent).collect(), ..Onode::default() };
        assert!(o.to_bytes().len() - Onode::default().to_bytes().len() <= 16 * 9);
    }
}
