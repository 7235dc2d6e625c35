//! What a change becomes before the log has it: large data gets its place, compressed where
//! its pool says so; ranges are shared or copied; compressed blocks are changed as a whole.

use std::sync::Arc;

use bytes::Bytes;

use crate::alloc::Area;
use crate::fetch::in_runs;
use crate::keys;
use crate::onode::{BLOCK, Extent, Onode};
use crate::pack::{Compression, PART_MAX};
use crate::submit::{LARGE, Needs};
use crate::transaction::{Blob, Op, Placed, Target};
use crate::{Seq, Store, StoreError, Transaction};

type Result<T> = std::result::Result<T, StoreError>;

/// Pieces below this are copied, so that a few bytes do not keep a large buffer alive.
const SMALL: usize = 512;
static ZEROS: [u8; BLOCK as usize] = [0; BLOCK as usize];

/// So many parts of one write that cannot be compressed say that the rest cannot, either.
const HOPELESS: u32 = 4;

/// Data that changes of a transaction may have made compressed data of, by the target and in
/// blocks of the largest blob.
#[derive(Default)]
pub(crate) struct Given(Vec<(Target, u64)>);

impl Given {
    fn largest(&self, t: Target) -> u64 {
        self.0.iter().filter(|(of, _)| *of == t).map(|(_, blocks)| *blocks).max().unwrap_or(0)
    }

    /// What `op` gives, which counts for the changes behind it.
    pub(crate) fn note(&mut self, store: &Store, txn: &Transaction, op: &Op) -> Result<()> {
        let (t, blocks) = match op {
            Op::Write(t, _, data) => (*t, data.len() as u64 / BLOCK),
            Op::CloneRange { src, dst, len, .. } => (*dst, (len / BLOCK).max(self.largest(*src))),
            Op::Clone(s, d) | Op::Rename(s, d) => {
                let old = store.packed_target(txn, *s)?;
                let blobs = old.iter().flat_map(|o| &o.extents).filter(|e| e.packed.is_some());
                let of_old = blobs.map(Extent::device_blocks).max().unwrap_or(0);
                (*d, of_old.max(self.largest(*s)))
            }
            _ => return Ok(()),
        };
        if blocks > 0 && store.state.packs(txn.targets[t as usize].1.pool) {
            self.0.push((t, blocks.min(PART_MAX)));
        }
        Ok(())
    }
}

/// The blocks `at..end` of the target are `raw` in `runs`.
fn note_runs(
    l: &mut Lowering<'_>,
    (t, at, end): (Target, u64, u64),
    raw: &Bytes,
    runs: Vec<(u64, u64)>,
    blob: Option<Blob>,
) {
    let crcs = match l.txn.sums.of(raw) {
        Some(sums) => sums.blocks().to_vec(),
        None => raw.chunks_exact(BLOCK as usize).map(|b| stdx::crc32c(!0, b)).collect(),
    };
    let placed = Placed { at, size: end * BLOCK, runs, crcs, blob, damaged: false };
    l.txn.ops.push(Op::Extents(t, Box::new(placed)));
}

/// A write under way.
struct Lowering<'a> {
    seq: Seq,
    txn: &'a mut Transaction,
    data: &'a mut Vec<(u64, Bytes)>,
}

impl Store {
    /// How data of a pool is compressed from now on.
    pub fn set_compression(&mut self, pool: types::PoolId, how: Option<Compression>) {
        match how {
            Some(how) => {
                self.state.packing.insert(pool);
                self.state.compression.insert(pool, how)
            }
            None => self.state.compression.remove(&pool),
        };
    }

    /// Appends to `txn` what `op` becomes, and to `data` what is to be written for it.
    pub(crate) fn lower(
        &mut self,
        seq: Seq,
        txn: &mut Transaction,
        op: Op,
        data: &mut Vec<(u64, Bytes)>,
    ) -> Result<()> {
        let mut l = Lowering { seq, txn, data };
        match op {
            Op::Write(t, off, bytes) => self.lower_write(&mut l, t, off, bytes)?,
            Op::Zero(t, off, len) => self.lower_zero(&mut l, t, off, len)?,
            Op::Truncate(t, size) => self.lower_truncate(&mut l, t, size)?,
            Op::CloneRange { src, dst, src_off, len, dst_off } => {
                let (c, o) = &l.txn.targets[src as usize];
                let (dc, d) = &l.txn.targets[dst as usize];
                let Some(from) = self.state.onode(&keys::onode(self.state.coll(*c)?, o))? else {
                    return Ok(());
                };
                let end = (src_off + len).min(from.size).max(src_off);
                let len = end - src_off;
                let to_size = match self.state.onode(&keys::onode(self.state.coll(*dc)?, d))? {
                    Some(to) => to.size,
                    None => 0,
                };
                let whole_end = len % BLOCK == 0 || (end == from.size && dst_off + len >= to_size);
                let blocks_end = end.next_multiple_of(BLOCK);
                let shareable = src_off % BLOCK == 0
                    && dst_off % BLOCK == 0
                    && whole_end
                    && from.pieces_in(src_off, blocks_end).next().is_none()
                    && !from.is_packed(src_off / BLOCK, blocks_end / BLOCK);
                if shareable {
                    l.txn.ops.push(Op::CloneRange { src, dst, src_off, len, dst_off });
                } else {
                    let name = || o.to_string();
                    match self.state.read_data(&from, &name, src_off, len) {
                        Ok(bytes) => self.lower_write(&mut l, dst, dst_off, bytes)?,
                        Err(StoreError::Corrupt { .. } | StoreError::Io { .. }) => {
                            self.lower_damaged(&mut l, dst, dst_off, len)?;
                        }
                        Err(e) => return Err(e),
                    }
                }
            }
            op => txn.ops.push(op),
        }
        Ok(())
    }

    /// The target as the changes before left it, where some of it is compressed.
    fn packed_target(&self, txn: &Transaction, t: Target) -> Result<Option<Arc<Onode>>> {
        let (c, o) = &txn.targets[t as usize];
        if !self.state.packs(o.pool) {
            return Ok(None);
        }
        let Ok(coll) = self.state.coll(*c) else { return Ok(None) };
        let found = self.state.onode(&keys::onode(coll, o))?;
        Ok(found.filter(|o| o.extents.iter().any(|e| e.packed.is_some())))
    }

    /// What else a change may take for what it leaves of compressed data; `given` is what the
    /// changes before it have put there.
    pub(crate) fn needs_unpacked(
        &self,
        txn: &Transaction,
        op: &Op,
        given: &Given,
        needs: &mut Needs,
    ) -> Result<()> {
        let (t, off, end) = match op {
            Op::Write(t, off, data) => (*t, *off, off.saturating_add(data.len() as u64)),
            Op::Zero(t, off, len) => (*t, *off, off.saturating_add(*len)),
            Op::Truncate(t, size) => (*t, *size, u64::MAX - BLOCK),
            Op::CloneRange { dst, len, dst_off, .. } => {
                (*dst, *dst_off, dst_off.saturating_add(*len))
            }
            _ => return Ok(()),
        };
        let old = self.packed_target(txn, t)?;
        let before = given.largest(t);
        if old.is_none() && before == 0 {
            return Ok(());
        }
        // A block at each end, and what is left of the blobs there, in blocks or in the log.
        let mut bytes = 0;
        for at in [off / BLOCK, end.div_ceil(BLOCK).saturating_sub(1)] {
            let cut = |e: &&Extent| e.at * BLOCK < off || end < e.end() * BLOCK;
            let found = old.as_ref().and_then(|o| o.extent_of(at));
            let found = found.filter(|e| e.packed.is_some()).filter(cut);
            let blob = found.map_or(0, Extent::device_blocks).max(before);
            if blob > 0 {
                bytes += (blob + 2) * BLOCK;
                needs.blocks += 1;
            }
        }
        if bytes > 0 {
            needs.space += bytes;
            needs.record += bytes;
            match op {
                Op::Zero(..) | Op::Truncate(..) => needs.cuts = true,
                _ => needs.grows = true,
            }
        }
        Ok(())
    }

    /// Whole blocks of large data go to extents, its ends ride in the log.
    fn lower_write(
        &mut self,
        l: &mut Lowering<'_>,
        t: Target,
        off: u64,
        bytes: Bytes,
    ) -> Result<()> {
        let end = off + bytes.len() as u64;
        let old = self.packed_target(l.txn, t)?;
        let (first, last) = (off.div_ceil(BLOCK), end / BLOCK);
        if last < first || (last - first) * BLOCK < LARGE {
            let bytes = if bytes.len() < SMALL { Bytes::copy_from_slice(&bytes) } else { bytes };
            self.put_small(l, t, old.as_ref(), off, bytes)?;
            return self.leave_blobs(l, t, old.as_ref(), off, end);
        }
        let cut = |from: u64, to: u64| bytes.slice((from - off) as usize..(to - off) as usize);
        if off < first * BLOCK {
            self.put_small(l, t, old.as_ref(), off, cut(off, first * BLOCK))?;
        }
        let middle = cut(first * BLOCK, last * BLOCK);
        self.place(&mut *l, t, first, &middle);
        if last * BLOCK < end {
            self.put_small(l, t, old.as_ref(), last * BLOCK, cut(last * BLOCK, end))?;
        }
        self.leave_blobs(l, t, old.as_ref(), off, end)
    }

    /// Gives whole blocks of data, from the object's block `at` on, their place.
    fn place(&mut self, l: &mut Lowering<'_>, t: Target, at: u64, data: &Bytes) {
        let pool = l.txn.targets[t as usize].1.pool;
        let how = self.state.compression.get(&pool).copied();
        let Some(how) = how.filter(|c| c.wants(l.txn.hint(t))) else {
            return self.place_plain(l, t, at, data);
        };
        let part = (how.part_blocks() * BLOCK) as usize;
        let (mut plain, mut refused) = (0, 0);
        for from in (0..data.len()).step_by(part) {
            let bytes = data.slice(from..data.len().min(from + part));
            if refused == HOPELESS && plain == 0 {
                break;
            }
            let packed = how.pack(&bytes).and_then(|raw| {
                let blocks = (raw.len() as u64).div_ceil(BLOCK);
                Some((raw, self.prepared_run(blocks)?))
            });
            let Some((mut raw, start)) = packed else {
                refused += 1;
                continue;
            };
            self.place_plain(l, t, at + plain as u64 / BLOCK, &data.slice(plain..from));
            plain = from + bytes.len();
            let (algorithm, packed_bytes) = (how.algorithm, raw.len() as u32);
            raw.resize(raw.len().next_multiple_of(BLOCK as usize), 0);
            let blocks = (bytes.len() as u64 / BLOCK) as u32;
            let blob = Some(Blob { algorithm, bytes: packed_bytes, blocks });
            let at = at + from as u64 / BLOCK;
            let raw = Bytes::from(raw);
            let runs = vec![(start, raw.len() as u64 / BLOCK)];
            self.place_runs(l, (t, at, at + u64::from(blocks)), &raw, runs, blob);
        }
        self.place_plain(l, t, at + plain as u64 / BLOCK, &data.slice(plain..));
    }

    fn place_plain(&mut self, l: &mut Lowering<'_>, t: Target, at: u64, data: &Bytes) {
        if !data.is_empty() {
            let blocks = data.len() as u64 / BLOCK;
            let whole = (t, at, at + blocks);
            if let Some(runs) = self.take_staged(data) {
                return note_runs(l, whole, data, runs, None);
            }
            let runs = self.prepared(blocks);
            self.place_runs(l, whole, data, runs, None);
        }
    }

    /// `raw` goes to `runs`, and is the blocks `at..end` of the target.
    fn place_runs(
        &mut self,
        l: &mut Lowering<'_>,
        (t, at, end): (Target, u64, u64),
        raw: &Bytes,
        runs: Vec<(u64, u64)>,
        blob: Option<Blob>,
    ) {
        for (off, part) in in_runs(raw, &runs) {
            self.state.flight.insert(off / BLOCK, (part.clone(), l.seq));
            l.data.push((off, part));
        }
        note_runs(l, (t, at, end), raw, runs, blob);
    }

    /// Data for the log. Where it is a part of a compressed block, all of the block.
    fn put_small(
        &mut self,
        l: &mut Lowering<'_>,
        t: Target,
        old: Option<&Arc<Onode>>,
        off: u64,
        bytes: Bytes,
    ) -> Result<()> {
        let end = off + bytes.len() as u64;
        let Some(old) = old.filter(|old| packed_ends(old, off, end)) else {
            l.txn.ops.push(Op::Write(t, off, bytes));
            return Ok(());
        };
        for (from, to) in around_blocks(off, end) {
            let part = bytes.slice((from - off) as usize..(to - off) as usize);
            if is_partial(from, to) && old.is_packed(from / BLOCK, from / BLOCK + 1) {
                self.put_block(l, t, old, (from, &part))?;
            } else {
                l.txn.ops.push(Op::Write(t, from, part));
            }
        }
        Ok(())
    }

    /// A compressed block with some of it changed.
    fn put_block(
        &mut self,
        l: &mut Lowering<'_>,
        t: Target,
        old: &Arc<Onode>,
        (off, bytes): (u64, &[u8]),
    ) -> Result<()> {
        let at = off / BLOCK;
        let name = || l.txn.targets[t as usize].1.to_string();
        let read = self.state.read_data(old, &name, at * BLOCK, BLOCK);
        let mut block = vec![0; BLOCK as usize];
        if let Ok(data) = &read {
            block[..data.len()].copy_from_slice(data);
        }
        let from = (off - at * BLOCK) as usize;
        block[from..from + bytes.len()].copy_from_slice(bytes);
        match read {
            Ok(_) => l.txn.ops.push(Op::Write(t, at * BLOCK, block.into())),
            Err(_) => {
                let runs = self.prepared(1);
                self.put_damaged(l, t, (at, (at + 1) * BLOCK), runs);
            }
        }
        Ok(())
    }

    /// Blocks, from `at` on, of which some could not be read: they must not pass for whole.
    fn put_damaged(
        &mut self,
        l: &mut Lowering<'_>,
        t: Target,
        (at, size): (u64, u64),
        runs: Vec<(u64, u64)>,
    ) {
        let mut crcs = Vec::new();
        for (start, blocks) in &runs {
            crcs.resize(crcs.len() + *blocks as usize, stdx::crc32c(!0, &ZEROS));
            self.state.flight.remove(start);
            l.data.push((start * BLOCK, vec![0; (blocks * BLOCK) as usize].into()));
        }
        let placed = Placed { at, size, runs, crcs, blob: None, damaged: true };
        l.txn.ops.push(Op::Extents(t, Box::new(placed)));
    }

    /// Bytes that were to be copied and cannot be read: neither can the copy, in all blocks that
    /// it touches.
    fn lower_damaged(&mut self, l: &mut Lowering<'_>, t: Target, off: u64, len: u64) -> Result<()> {
        let (at, size) = (off / BLOCK, off + len);
        let blocks = size.div_ceil(BLOCK) - at;
        // Nothing was set aside for this; the transaction was not let in without room for it.
        let runs = self.state.space.alloc(blocks, Area::Data)?;
        self.put_damaged(l, t, (at, size), runs);
        Ok(())
    }

    fn lower_zero(&mut self, l: &mut Lowering<'_>, t: Target, off: u64, len: u64) -> Result<()> {
        let end = off + len;
        let old = self.packed_target(l.txn, t)?;
        let Some(old) = old.filter(|old| len > 0 && packed_ends(old, off, end)) else {
            l.txn.ops.push(Op::Zero(t, off, len));
            return Ok(());
        };
        for (from, to) in around_blocks(off, end) {
            if is_partial(from, to) && old.is_packed(from / BLOCK, from / BLOCK + 1) {
                self.put_block(l, t, &old, (from, &ZEROS[..(to - from) as usize]))?;
            } else {
                l.txn.ops.push(Op::Zero(t, from, to - from));
            }
        }
        self.leave_blobs(l, t, Some(&old), off, end)
    }

    fn lower_truncate(&mut self, l: &mut Lowering<'_>, t: Target, size: u64) -> Result<()> {
        let at = size / BLOCK;
        let old = self.packed_target(l.txn, t)?;
        let Some(old) = old.filter(|old| size < old.size && old.is_packed(at, at + 1)) else {
            l.txn.ops.push(Op::Truncate(t, size));
            return Ok(());
        };
        l.txn.ops.push(Op::Truncate(t, at * BLOCK));
        if !size.is_multiple_of(BLOCK) {
            let name = || l.txn.targets[t as usize].1.to_string();
            match self.state.read_data(&old, &name, at * BLOCK, size - at * BLOCK) {
                Ok(data) => l.txn.ops.push(Op::Write(t, at * BLOCK, data)),
                Err(_) => {
                    let runs = self.prepared(1);
                    self.put_damaged(l, t, (at, size), runs);
                }
            }
        }
        self.leave_blobs(l, t, Some(&old), size, old.size)
    }

    /// Blobs at the ends of a change to the bytes `off..end` of which too little is left:
    /// that is written as it is.
    fn leave_blobs(
        &mut self,
        l: &mut Lowering<'_>,
        t: Target,
        old: Option<&Arc<Onode>>,
        off: u64,
        end: u64,
    ) -> Result<()> {
        let Some(old) = old.filter(|_| off < end) else { return Ok(()) };
        let (first, last) = (off / BLOCK, end.div_ceil(BLOCK));
        let mut blobs: Vec<(u64, u64)> = [first, last - 1]
            .iter()
            .filter_map(|at| old.extent_of(*at).filter(|e| e.packed.is_some()))
            .map(|e| (e.phys, e.device_blocks()))
            .collect();
        blobs.dedup();
        for (phys, blocks) in blobs {
            let mut left = Vec::new();
            for e in old.extents.iter().filter(|e| e.packed.is_some() && e.phys == phys) {
                for (from, to) in [(e.at, e.end().min(first)), (e.at.max(last), e.end())] {
                    if from < to {
                        left.push((from, to));
                    }
                }
            }
            if left.iter().map(|(from, to)| to - from).sum::<u64>() > blocks {
                continue;
            }
            let name = || l.txn.targets[t as usize].1.to_string();
            let read = |(from, to): &(u64, u64)| {
                let data = self.state.read_data(old, &name, from * BLOCK, (to - from) * BLOCK);
                data.map(|data| Op::Write(t, from * BLOCK, data))
            };
            // What cannot be read stays where it is.
            if let Ok(writes) = left.iter().map(read).collect::<Result<Vec<Op>>>() {
                l.txn.ops.extend(writes);
            }
        }
        Ok(())
    }

    /// Takes from what was set aside.
    fn prepared(&mut self, mut blocks: u64) -> Vec<(u64, u64)> {
        let mut out = Vec::new();
        while blocks > 0 {
            let (start, len) = self.prepared.pop_front().expect("enough was set aside");
            let n = len.min(blocks);
            if n < len {
                self.prepared.push_front((start + n, len - n));
            }
            out.push((start, n));
            blocks -= n;
        }
        out
    }

    /// One run of what was set aside, where there is one so long.
    fn prepared_run(&mut self, blocks: u64) -> Option<u64> {
        let i = self.prepared.iter().position(|(_, len)| *len >= blocks)?;
        let (start, len) = &mut self.prepared[i];
        let found = *start;
        (*start, *len) = (*start + blocks, *len - blocks);
        if *len == 0 {
            self.prepared.remove(i);
        }
        Some(found)
    }
}

fn is_partial(from: u64, to: u64) -> bool {
    !from.is_multiple_of(BLOCK) || !to.is_multiple_of(BLOCK)
}

/// The parts of `off..end` before its first whole block, of whole blocks, and behind.
fn around_blocks(off: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
    let first = off.next_multiple_of(BLOCK).min(end);
    let last = (end / BLOCK * BLOCK).max(first);
    [(off, first), (first, last), (last, end)].into_iter().filter(|(from, to)| from < to)
}

/// Whether the block at either end of `off..end` is compressed and changes only in part.
fn packed_ends(o: &Onode, off: u64, end: u64) -> bool {
    let partial = |at: u64| !at.is_multiple_of(BLOCK) && o.is_packed(at / BLOCK, at / BLOCK + 1);
    partial(off) || partial(end)
}
