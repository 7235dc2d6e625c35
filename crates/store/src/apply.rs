//! Applying transactions to the state in memory: the same code for what is submitted and
//! for what the log replays, so that both come to the same state.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use stdx::IntervalSet;
use types::{HObject, PoolId};

use crate::keys::{self, Key};
use crate::onode::{BLOCK, Crcs, Extent, Freed, Onode, TINY};
use crate::pack::Packed;
use crate::state::{Entry, Known, SHARED_BLOCKS, Seen, State};
use crate::sweep::Bounds;
use crate::transaction::{Op, Target, Transaction};
use crate::{Coll, Seq, StoreError};

type Result<T> = std::result::Result<T, StoreError>;

/// Forgets what the checkpoint before cared for, in an onode that was not changed since.
fn fresh(o: &mut Arc<Onode>) {
    if !o.dropped.is_empty() {
        Arc::make_mut(o).dropped = IntervalSet::new();
    }
}

/// An object that a change names.
struct Named {
    key: Key,
    pool: PoolId,
    seen: Seen,
}

impl State {
    /// Applies all of `txn`. In replay, also takes the space it names.
    ///
    /// An error is a failed read of metadata, or bytes that contradict themselves: the
    /// state is then in between, and the store must stop.
    pub fn apply(
        &mut self,
        seq: Seq,
        txn: &Transaction,
        known: &mut Known,
        replay: bool,
    ) -> Result<()> {
        txn.ops.iter().try_for_each(|op| self.apply_op(seq, txn, op, known, replay))
    }

    fn target(&self, txn: &Transaction, t: Target, known: &mut Known) -> Result<Named> {
        let (key, seen) = known.take(self, txn, t)?;
        Ok(Named { key, pool: txn.targets[t as usize].1.pool, seen })
    }

    /// Changes an onode by `f`; it is made when absent.
    fn edit<R>(&mut self, name: &mut Named, f: impl FnOnce(&mut Onode) -> R) -> Result<R> {
        if let Some(Entry::Onode(o)) = self.active.get_mut(&name.key) {
            return Ok(f(Arc::make_mut(o)));
        }
        let found = match name.seen.take() {
            Some(seen) if !self.active.contains_key(&name.key) => {
                // Since it was seen, somebody else may have looked, too.
                self.caches.borrow_mut().onodes.take(&name.key);
                seen
            }
            // Where `active` has it after all, it was removed.
            _ => self.take_onode(&name.key)?.unwrap_or_default(),
        };
        let mut onode = match found {
            Some(mut o) => {
                fresh(&mut o);
                o
            }
            None => {
                self.next_id += 1;
                self.pools.entry(name.pool).or_default().objects += 1;
                Arc::new(Onode { id: self.next_id, ..Onode::default() })
            }
        };
        // All of it is written, however little of it changes.
        self.active_bytes += 512 + onode.attrs.bytes();
        let result = f(Arc::make_mut(&mut onode));
        self.active.insert(name.key.clone(), Entry::Onode(onode));
        Ok(result)
    }

    /// Changes data by `f`, and accounts for it.
    fn edit_data(
        &mut self,
        name: &mut Named,
        f: impl FnOnce(&mut Onode, &mut Vec<Freed>),
    ) -> Result<()> {
        let mut freed = Vec::new();
        let packs = self.packs(name.pool);
        let packed = |o: &Onode| if packs { o.packed() } else { (0, 0) };
        let (before, after) = self.edit(name, |o| {
            let before = (o.size, packed(o));
            f(o, &mut freed);
            (before, (o.size, packed(o)))
        })?;
        let stats = self.pools.entry(name.pool).or_default();
        stats.stored = stats.stored + after.0 - before.0;
        stats.add_packed(after.1);
        stats.sub_packed(before.1);
        self.let_go(name.pool, &freed)
    }

    /// Blocks an object no longer refers to.
    fn let_go(&mut self, pool: PoolId, freed: &[Freed]) -> Result<()> {
        for f in freed {
            let stats = self.pools.entry(pool).or_default();
            stats.allocated = stats.allocated.saturating_sub(f.blocks * BLOCK);
            if f.shared {
                self.unshare(f.phys, f.blocks)?;
            } else {
                self.freed.push((f.phys, f.blocks));
            }
        }
        Ok(())
    }

    /// Changes the reference counts of blocks.
    fn counts(
        &mut self,
        phys: u64,
        blocks: u64,
        mut f: impl FnMut(&mut u32, u64, &mut Vec<(u64, u64)>),
    ) -> Result<()> {
        let (mut at, end) = (phys, phys + blocks);
        while at < end {
            let group = at / SHARED_BLOCKS;
            let key = keys::numbered(keys::SHARED, group);
            let mut counts = [0u32; SHARED_BLOCKS as usize];
            if let Some(raw) = self.get(&key)? {
                for (n, raw) in counts.iter_mut().zip(raw.chunks_exact(4)) {
                    *n = u32::from_le_bytes(raw.try_into().expect("four bytes"));
                }
            }
            let to = end.min((group + 1) * SHARED_BLOCKS);
            for block in at..to {
                f(&mut counts[(block % SHARED_BLOCKS) as usize], block, &mut self.freed);
            }
            let entry = if counts.iter().all(|n| *n == 0) {
                Entry::Removed
            } else {
                Entry::Value(counts.iter().flat_map(|n| n.to_le_bytes()).collect())
            };
            self.put(key, entry);
            at = to;
        }
        Ok(())
    }

    /// One more object refers to these blocks; two, when they were not shared.
    fn share(&mut self, phys: u64, blocks: u64) -> Result<()> {
        self.counts(phys, blocks, |n, _, _| *n = if *n == 0 { 2 } else { *n + 1 })
    }

    /// One object less refers to these shared blocks.
    pub fn unshare(&mut self, phys: u64, blocks: u64) -> Result<()> {
        self.counts(phys, blocks, |n, block, freed| {
            *n = n.saturating_sub(1);
            if *n == 0 {
                freed.push((block, 1));
            }
        })
    }

    pub fn put(&mut self, key: Key, entry: Entry) {
        let value = if let Entry::Value(v) = &entry { v.len() } else { 0 };
        self.active_bytes += (key.len() + value + 64) as u64;
        self.active.insert(key, entry);
    }

    fn remove_onode(&mut self, key: &Key, pool: PoolId) -> Result<()> {
        match self.onode(key)? {
            Some(o) => self.remove_known(key, pool, &o),
            None => Ok(()),
        }
    }

    /// Removes an object of which this is the onode. Fails only when references to blocks cannot
    /// be read.
    pub fn remove_known(&mut self, key: &Key, pool: PoolId, o: &Onode) -> Result<()> {
        let stats = self.pools.entry(pool).or_default();
        stats.objects = stats.objects.saturating_sub(1);
        stats.stored = stats.stored.saturating_sub(o.size);
        stats.sub_packed(o.packed());
        self.let_go(pool, &o.all_freed())?;
        self.kill_omap(o.omap);
        self.caches.borrow_mut().onodes.take(key);
        self.put(key.clone(), Entry::Removed);
        Ok(())
    }

    /// The keys of a dead omap go when tables are merged.
    fn kill_omap(&mut self, id: u64) {
        if id != 0 {
            self.put(keys::numbered(keys::DEAD, id), Entry::Value(Bytes::new()));
        }
    }

    /// The object's omap id; given one when it has none.
    fn omap_id(&mut self, name: &mut Named) -> Result<u64> {
        let id = self.edit(name, |o| o.omap)?;
        if id != 0 {
            return Ok(id);
        }
        self.next_id += 1;
        let id = self.next_id;
        self.edit(name, |o| o.omap = id)?;
        Ok(id)
    }

    fn remove_range(&mut self, from: &[u8], end: &[u8]) -> Result<()> {
        for key in self.keys_in(from, end)? {
            self.put(key, Entry::Removed);
        }
        Ok(())
    }

    /// Notes where an onode went, for a checkpoint that is under way.
    fn note_move(&mut self, id: u64, to: &Key) {
        if self.frozen.is_some() {
            self.renamed.insert(id, to.clone());
        }
    }

    fn move_onode(&mut self, from: &Key, to: Key, pools: (PoolId, PoolId)) -> Result<()> {
        let Some(mut o) = self.onode(from)? else { return Ok(()) };
        if !self.active.contains_key(from) {
            fresh(&mut o);
        }
        self.remove_onode(&to, pools.1)?;
        self.note_move(o.id, &to);
        let (size, allocated, packed) = (o.size, o.allocated(), o.packed());
        if pools.0 != pools.1 && self.packs(pools.0) {
            self.packing.insert(pools.1);
        }
        let old = self.pools.entry(pools.0).or_default();
        old.objects = old.objects.saturating_sub(1);
        old.stored = old.stored.saturating_sub(size);
        old.allocated = old.allocated.saturating_sub(allocated);
        old.sub_packed(packed);
        let new = self.pools.entry(pools.1).or_default();
        new.objects += 1;
        new.stored += size;
        new.allocated += allocated;
        new.add_packed(packed);
        self.caches.borrow_mut().onodes.take(from);
        self.put(from.clone(), Entry::Removed);
        self.put(to, Entry::Onode(o));
        Ok(())
    }

    /// Onode keys of a collection whose objects satisfy `want`.
    fn onodes_of(&self, coll: u32, want: impl Fn(&HObject) -> bool) -> Result<Vec<(Key, HObject)>> {
        let from = keys::onode(coll, &HObject::min());
        let all = self.keys_in(&from[..keys::COLL_PREFIX], &keys::coll_end(keys::ONODE, coll))?;
        Ok(all
            .into_iter()
            .filter_map(|k| keys::parse_onode(&k).map(|o| (k, o)))
            .filter(|(_, o)| want(o))
            .collect())
    }

    fn clone_onode(&mut self, seq: Seq, src: &mut Named, dst: &Named) -> Result<()> {
        if src.key == dst.key {
            return Ok(());
        }
        let pool = dst.pool;
        self.remove_onode(&dst.key, pool)?;
        let mut copy = self.edit(src, |o| {
            let copy = o.clone();
            for e in &mut o.extents {
                e.shared = true;
            }
            copy
        })?;
        self.next_id += 1;
        copy.id = self.next_id;
        copy.dropped = IntervalSet::new();
        for f in copy.device_runs().collect::<Vec<_>>() {
            self.share(f.phys, f.blocks)?;
        }
        for e in &mut copy.extents {
            e.shared = true;
        }
        if pool != src.pool && self.packs(src.pool) {
            self.packing.insert(pool);
        }
        for p in &mut copy.pieces {
            p.seq = seq;
        }
        if copy.omap != 0 {
            self.next_id += 1;
            let (from, to) = (copy.omap, self.next_id);
            let mut pairs = Vec::new();
            let start = keys::omap_header(from);
            self.scan(Bound::Included(&start), &keys::omap_end(from), &mut |k, v| {
                let mut key = k.to_vec();
                key[1..9].copy_from_slice(&to.to_be_bytes());
                pairs.push((Key::from(key), v.cloned().unwrap_or_default()));
                true
            })?;
            for (k, v) in pairs {
                self.put(k, Entry::Value(v));
            }
            copy.omap = to;
        }
        let stats = self.pools.entry(pool).or_default();
        stats.objects += 1;
        stats.stored += copy.size;
        stats.allocated += copy.allocated();
        stats.add_packed(copy.packed());
        self.active_blocks += copy.piece_blocks().len() as u64;
        self.active_bytes += copy.footprint();
        self.put(dst.key.clone(), Entry::Onode(Arc::new(copy)));
        Ok(())
    }

    /// Shares blocks; the source has no data in memory there, and none that is compressed
    /// (see `Store::lower`).
    fn clone_blocks(
        &mut self,
        seq: Seq,
        (src, dst): (&mut Named, &mut Named),
        (src_off, len, dst_off): (u64, u64, u64),
    ) -> Result<()> {
        let (first, last) = (src_off / BLOCK, (src_off + len).div_ceil(BLOCK));
        let parts: Vec<Extent> = self.edit(src, |o| {
            // Only what is shared gets the mark: cut the extents at the range's ends.
            let mut cut = Vec::with_capacity(o.extents.len() + 2);
            for e in std::mem::take(&mut o.extents) {
                for (from, to) in [(0, first), (first, last), (last, u64::MAX)] {
                    if e.at.max(from) < e.end().min(to) {
                        let mut part = e.part(from, to);
                        part.shared |= from == first && to == last;
                        cut.push(part);
                    }
                }
            }
            o.extents = cut;
            o.extents_in(first, last).cloned().collect()
        })?;
        // Before anything is let go: both may be the same object.
        for e in &parts {
            self.share(e.phys, e.blocks())?;
        }
        self.edit_data(dst, |o, freed| o.zero(seq, dst_off, len, freed))?;
        for mut e in parts {
            self.pools.entry(dst.pool).or_default().allocated += e.blocks() * BLOCK;
            e.at = e.at - first + dst_off / BLOCK;
            self.edit_data(dst, |o, freed| o.put_extent(e, 0, freed))?;
        }
        Ok(())
    }

    #[allow(clippy::too_many_lines)] // one arm for each kind of change
    fn apply_op(
        &mut self,
        seq: Seq,
        txn: &Transaction,
        op: &Op,
        known: &mut Known,
        replay: bool,
    ) -> Result<()> {
        match op {
            Op::CreateCollection(c) => {
                if !self.colls.contains_key(c) {
                    self.next_coll += 1;
                    self.colls.insert(*c, self.next_coll);
                    let id = Bytes::copy_from_slice(&self.next_coll.to_le_bytes());
                    self.put(keys::coll(*c), Entry::Value(id));
                }
            }
            Op::RemoveCollection(c) => {
                known.forget();
                if let Some(id) = self.colls.get(c).copied() {
                    for (key, o) in self.onodes_of(id, |_| true)? {
                        self.remove_onode(&key, o.pool)?;
                    }
                    let first = keys::coll_key(id, b"");
                    self.remove_range(&first, &keys::coll_end(keys::COLL_KEY, id))?;
                    self.colls.remove(c);
                    self.put(keys::coll(*c), Entry::Removed);
                }
            }
            Op::DropCollection(c) => {
                known.forget();
                if let Some(id) = self.colls.remove(c) {
                    self.put(keys::coll(*c), Entry::Removed);
                    self.put(keys::dead_coll(id), Entry::Value(Bytes::new()));
                    self.bury(id);
                }
            }
            // What cannot be read stays: no error.
            Op::Sweep(id, 0) => self.forget_dead(*id),
            Op::Sweep(id, n) => drop(self.sweep(*id, Bounds::exactly(*n))),
            Op::Split(src, dst, bits) => {
                let Coll::Pg(pg) = dst else { return Ok(()) };
                let mask = 1u32.checked_shl(*bits).map_or(u32::MAX, |b| b - 1);
                let (from, to) = (self.coll(*src)?, self.coll(*dst)?);
                let ps = pg.pg.ps & mask;
                for (key, o) in self.onodes_of(from, |o| o.hash & mask == ps)? {
                    self.move_onode(&key, keys::moved(&key, to), (o.pool, o.pool))?;
                }
            }
            Op::Merge(src, dst) => {
                let (from, to) = (self.coll(*src)?, self.coll(*dst)?);
                if from != to {
                    for (key, o) in self.onodes_of(from, |_| true)? {
                        self.move_onode(&key, keys::moved(&key, to), (o.pool, o.pool))?;
                    }
                }
            }
            Op::Touch(t) => {
                let mut o = self.target(txn, *t, known)?;
                self.edit(&mut o, |_| ())?;
            }
            Op::Write(t, off, data) => {
                let mut o = self.target(txn, *t, known)?;
                // More of it than a tiny object has goes to blocks.
                self.active_bytes += (data.len() as u64).min(TINY) + 64;
                let end = (off + data.len() as u64).div_ceil(BLOCK);
                self.active_blocks += end - off / BLOCK;
                // Where nothing is compressed the extents, which are many, need no look.
                let packs = self.packs(o.pool);
                self.edit_data(&mut o, |o, freed| {
                    if packs {
                        o.drop_packed(*off, data.len() as u64, freed);
                    }
                    o.write(seq, *off, data.clone());
                })?;
            }
            Op::Zero(t, off, len) => {
                let mut o = self.target(txn, *t, known)?;
                self.active_blocks += 2;
                self.edit_data(&mut o, |o, freed| o.zero(seq, *off, *len, freed))?;
            }
            Op::Truncate(t, size) => {
                let mut o = self.target(txn, *t, known)?;
                self.active_blocks += 1;
                self.edit_data(&mut o, |o, freed| o.truncate(seq, *size, freed))?;
            }
            Op::Remove(t) => {
                let o = self.target(txn, *t, known)?;
                self.remove_onode(&o.key, o.pool)?;
            }
            Op::Clone(s, d) => {
                let mut src = self.target(txn, *s, known)?;
                let dst = self.target(txn, *d, known)?;
                self.clone_onode(seq, &mut src, &dst)?;
            }
            Op::CloneRange { src, dst, src_off, len, dst_off } => {
                let mut src = self.target(txn, *src, known)?;
                let mut dst = self.target(txn, *dst, known)?;
                self.clone_blocks(seq, (&mut src, &mut dst), (*src_off, *len, *dst_off))?;
            }
            Op::Rename(s, d) => {
                let src = self.target(txn, *s, known)?;
                let dst = self.target(txn, *d, known)?;
                if src.key != dst.key {
                    self.move_onode(&src.key, dst.key, (src.pool, dst.pool))?;
                }
            }
            Op::SetAttrs(t, pairs) => {
                let mut o = self.target(txn, *t, known)?;
                let bytes = pairs.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>() as u64;
                self.active_bytes += bytes;
                self.edit(&mut o, |o| {
                    for (k, v) in pairs {
                        o.attrs.set(k.clone(), v.clone());
                    }
                })?;
            }
            Op::RmAttr(t, name) => {
                let mut o = self.target(txn, *t, known)?;
                self.edit(&mut o, |o| o.attrs.remove(name))?;
            }
            Op::RmAttrs(t) => {
                let mut o = self.target(txn, *t, known)?;
                self.edit(&mut o, |o| o.attrs.clear())?;
            }
            Op::OmapSet(t, pairs) => {
                let mut o = self.target(txn, *t, known)?;
                let id = self.omap_id(&mut o)?;
                for (k, v) in pairs {
                    self.put(keys::omap(id, k), Entry::Value(v.clone()));
                }
            }
            Op::OmapRmKeys(t, list) => {
                let mut o = self.target(txn, *t, known)?;
                let id = self.edit(&mut o, |o| o.omap)?;
                if id != 0 {
                    for k in list {
                        self.put(keys::omap(id, k), Entry::Removed);
                    }
                }
            }
            Op::OmapRmRange(t, first, end) => {
                let mut o = self.target(txn, *t, known)?;
                let id = self.edit(&mut o, |o| o.omap)?;
                if id != 0 {
                    self.remove_range(&keys::omap(id, first), &keys::omap(id, end))?;
                }
            }
            Op::OmapClear(t) => {
                let mut o = self.target(txn, *t, known)?;
                let id = self.edit(&mut o, |o| std::mem::take(&mut o.omap))?;
                self.kill_omap(id);
            }
            Op::OmapSetHeader(t, header) => {
                let mut o = self.target(txn, *t, known)?;
                let id = self.omap_id(&mut o)?;
                self.put(keys::omap_header(id), Entry::Value(header.clone()));
            }
            Op::CollSet(c, k, v) => {
                let key = keys::coll_key(self.coll(*c)?, k);
                self.put(key, Entry::Value(v.clone()));
            }
            Op::CollRm(c, k) => {
                let key = keys::coll_key(self.coll(*c)?, k);
                self.put(key, Entry::Removed);
            }
            Op::CollRmRange(c, first, end) => {
                let id = self.coll(*c)?;
                self.remove_range(&keys::coll_key(id, first), &keys::coll_key(id, end))?;
            }
            Op::Extents(t, p) => {
                let mut o = self.target(txn, *t, known)?;
                if replay {
                    let mut alloc = self.space.alloc.lock().expect("no holder of this lock panics");
                    for (start, len) in &p.runs {
                        if !alloc.take(*start, *len) {
                            return Err(StoreError::Format(format!(
                                "transaction {seq} of the log names blocks {start}+{len}, \
                                 which are in use"
                            )));
                        }
                    }
                }
                self.active_bytes += 64 + 4 * p.crcs.len() as u64;
                if p.blob.is_some() {
                    self.packing.insert(o.pool);
                }
                let (mut at, mut crcs) = (p.at, p.crcs.as_slice());
                for (start, len) in &p.runs {
                    let (mine, rest) = crcs.split_at(*len as usize);
                    let (phys, mut crcs_here) = (*start, Crcs::from_slice(mine));
                    if p.damaged {
                        crcs_here.iter_mut().for_each(|crc| *crc = !*crc);
                    }
                    let packed = p.blob.as_ref().map(Packed::all_of);
                    let e = Extent { at, phys, shared: false, crcs: crcs_here, packed };
                    self.pools.entry(o.pool).or_default().allocated += len * BLOCK;
                    self.edit_data(&mut o, |o, freed| o.put_extent(e, p.size, freed))?;
                    (at, crcs) = (at + len, rest);
                }
            }
            Op::Release(ckpt, items) => {
                for r in items {
                    self.put(keys::release(*ckpt, r.index), Entry::Removed);
                    if !r.done {
                        self.unshare(r.phys, 1)?;
                    }
                }
            }
        }
        Ok(())
    }
}
