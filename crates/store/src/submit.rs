//! Taking a transaction: refuse, make room, and give large data its place.

use bytes::Bytes;

use crate::alloc::Area;
use crate::keys;
use crate::lower::Given;
use crate::merge;
use crate::onode::{BLOCK, OBJECT_MAX};
use crate::placement::LogPlacement;
use crate::state::{Entry, Known};
use crate::transaction::Op;
use crate::{Coll, Seq, Store, StoreError, Transaction};

type Result<T> = std::result::Result<T, StoreError>;

/// Data from here on goes to extents at once.
pub(crate) const LARGE: u64 = 64 << 10;
/// What a transaction takes, at most.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Needs {
    /// Bytes of space.
    pub space: u64,
    /// Bytes of the log.
    pub record: u64,
    /// Blocks for large data.
    pub blocks: u64,
    /// Whether it takes space that others could have.
    pub grows: bool,
    /// Whether it cuts compressed data, of which the rest is written anew before any is free.
    pub cuts: bool,
    /// Whether it undoes what others did.
    takes_back: bool,
    clones: bool,
}

impl Needs {
    /// Whether there has to be space for it.
    fn wants_space(&self) -> bool {
        self.grows || self.cuts
    }

    /// Whether that may be space which is kept for removals: it gives back what it takes.
    fn frees(&self) -> bool {
        self.takes_back || !self.grows
    }
}

fn range(off: u64, len: u64) -> Result<()> {
    match off.checked_add(len) {
        Some(end) if end <= OBJECT_MAX => Ok(()),
        _ => Err(StoreError::Invalid("an object is 1 TiB at most")),
    }
}

/// Bytes of the log that data of this length takes, at most.
fn in_log(len: u64) -> u64 {
    // Two ends of less than a block, and a checksum and perhaps a run for each block.
    if len < LARGE + 2 * BLOCK { len } else { 2 * BLOCK + len / BLOCK * 20 }
}

impl Store {
    /// What can be refused is refused here, before anything is changed. What was seen of the
    /// transaction's objects on the way.
    pub(crate) fn validate(&self, txn: &Transaction) -> Result<Known> {
        let mut known = Known::of(txn.targets.len());
        let mut made: Vec<Coll> = Vec::new();
        let mut touched: Vec<u32> = Vec::new();
        // Objects come from elsewhere: what is there is not known before it is done.
        let mut moved = false;
        let has = |made: &[Coll], c: Coll| {
            if made.contains(&c) || self.state.colls.contains_key(&c) {
                return Ok(());
            }
            Err(StoreError::NoCollection(c))
        };
        for op in &txn.ops {
            match op {
                Op::CreateCollection(c) if self.state.colls.contains_key(c) => {}
                Op::CreateCollection(c) => made.push(*c),
                Op::RemoveCollection(_)
                | Op::DropCollection(_)
                | Op::Sweep(..)
                | Op::Release(..)
                | Op::Extents(..) => {}
                Op::Split(a, b, _) | Op::Merge(a, b) => {
                    has(&made, *a)?;
                    has(&made, *b)?;
                    moved = true;
                }
                Op::CollSet(c, ..) | Op::CollRm(c, ..) | Op::CollRmRange(c, ..) => has(&made, *c)?,
                Op::Clone(s, d) | Op::Rename(s, d) | Op::CloneRange { src: s, dst: d, .. } => {
                    let ((cs, os), (cd, _)) =
                        (&txn.targets[*s as usize], &txn.targets[*d as usize]);
                    has(&made, *cs)?;
                    has(&made, *cd)?;
                    if !touched.contains(s) && !moved {
                        if made.contains(cs) {
                            return Err(StoreError::NoObject(format!("{cs} {os}")));
                        }
                        self.state.object(*cs, os)?;
                        if let Op::CloneRange { len, dst_off, .. } = op {
                            range(*dst_off, *len)?;
                        }
                    }
                    touched.push(*d);
                }
                Op::Touch(t)
                | Op::Remove(t)
                | Op::SetAttrs(t, _)
                | Op::RmAttr(t, _)
                | Op::RmAttrs(t)
                | Op::OmapSet(t, _)
                | Op::OmapRmKeys(t, _)
                | Op::OmapRmRange(t, ..)
                | Op::OmapClear(t)
                | Op::OmapSetHeader(t, _)
                | Op::Write(t, ..)
                | Op::Zero(t, ..)
                | Op::Truncate(t, _) => {
                    let c = &txn.targets[*t as usize].0;
                    has(&made, *c)?;
                    match op {
                        Op::Write(_, off, data) => range(*off, data.len() as u64)?,
                        Op::Zero(_, off, len) => range(*off, *len)?,
                        Op::Truncate(_, size) => range(*size, 0)?,
                        _ => {}
                    }
                    // Its onode is read here, where that may fail.
                    if !touched.contains(t) && self.state.colls.contains_key(c) {
                        known.look(&self.state, txn, *t)?;
                    }
                    touched.push(*t);
                }
            }
        }
        Ok(known)
    }

    /// What a transaction takes.
    fn needs(&self, txn: &Transaction) -> Result<Needs> {
        let mut needs = Needs { record: 256, takes_back: txn.takes_back, ..Needs::default() };
        for (_, o) in &txn.targets {
            needs.record += 64 + (o.nspace.len() + o.key.len() + o.name.len()) as u64;
        }
        let sum = |pairs: &[(Bytes, Bytes)]| -> u64 {
            pairs.iter().map(|(k, v)| (k.len() + v.len() + 8) as u64).sum()
        };
        let mut given = Given::default();
        for op in &txn.ops {
            let bytes = match op {
                Op::Write(_, _, data) => {
                    needs.grows = true;
                    needs.space += (data.len() as u64).next_multiple_of(BLOCK) + BLOCK;
                    if data.len() as u64 >= LARGE {
                        needs.blocks += data.len() as u64 / BLOCK;
                    }
                    in_log(data.len() as u64)
                }
                Op::SetAttrs(_, pairs) => sum(pairs),
                Op::OmapSet(_, pairs) => {
                    needs.grows = true;
                    needs.space += 2 * sum(pairs);
                    sum(pairs)
                }
                Op::OmapSetHeader(_, v) => v.len() as u64,
                Op::CollSet(_, k, v) => (k.len() + v.len()) as u64,
                Op::OmapRmKeys(_, keys) => keys.iter().map(|k| k.len() as u64 + 4).sum(),
                Op::CloneRange { len, .. } => {
                    needs.grows = true;
                    needs.space += len + 2 * BLOCK;
                    needs.blocks += len / BLOCK;
                    in_log(*len) + 64
                }
                Op::Clone(s, _) => {
                    needs.clones = true;
                    // What is moved aside shares its blocks until it is removed: none more.
                    let moved = txn.ops.iter().any(|op| matches!(op, Op::Remove(t) if t == s));
                    let (c, o) = &txn.targets[*s as usize];
                    if !moved
                        && let Ok(id) = self.state.coll(*c)
                        && let Some(o) = self.state.onode(&keys::onode(id, o))?
                    {
                        needs.grows |= !o.pieces.is_empty();
                        needs.space += o.piece_blocks().len() as u64 * BLOCK;
                    }
                    0
                }
                _ => 0,
            };
            needs.record += 64 + bytes;
            self.needs_unpacked(txn, op, &given, &mut needs)?;
            given.note(self, txn, op)?;
        }
        Ok(needs)
    }

    /// Whether there is room for `txn` now: if so, [`Store::submit`] does not refuse it for
    /// want of space. It may do more than this says, as it waits for what is about to be
    /// free. What only removes, and the small keys of a PG's log, always fit: space is kept
    /// for them, of which half is also for what cuts compressed data and for
    /// [`Transaction::take_back`]. Of removed collections only what has been swept counts. Costs
    /// no I/O but for the onode of a clone's source.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`]; [`StoreError::TooLarge`] when the log could never take it.
    pub fn would_fit(&self, txn: &Transaction) -> Result<()> {
        let needs = self.needs(txn)?;
        self.require_log(needs.record)?;
        let available = self.available(0, needs.frees());
        if needs.wants_space() && needs.space > available {
            return Err(StoreError::NoSpace { need: needs.space, available });
        }
        Ok(())
    }

    /// Bytes that a transaction's record in the log may have: all that is not an object's data of
    /// 64 KiB and more, and of such data 20 bytes for each block. Beyond is refused
    /// with [`StoreError::TooLarge`]. About 31% of the log.
    #[must_use]
    pub fn record_max(&self) -> u64 {
        self.commit.record_max()
    }

    /// Bytes that a change takes of the log at most for what it leaves of the compressed data that it
    /// cuts: beside [`Store::record_max`]'s count.
    #[must_use]
    pub fn cut_max(&self) -> u64 {
        2 * (crate::pack::PART_MAX + 2) * BLOCK
    }

    fn require_log(&self, record: u64) -> Result<()> {
        if self.commit.can_ever_take(record) {
            return Ok(());
        }
        Err(StoreError::TooLarge { record, max: self.commit.record_max() })
    }

    /// Space for a transaction, in bytes, when `pending` blocks more are free.
    fn available(&self, pending: u64, frees: bool) -> u64 {
        match frees {
            true => self.state.available_to_free(pending, self.merge_blocks()),
            false => self.state.available(pending, self.merge_blocks()),
        }
    }

    /// Refuses what does not fit, and waits while the log or the queue is full.
    pub(crate) fn make_room(&mut self, txn: &Transaction) -> Result<()> {
        let needs = self.needs(txn)?;
        if needs.wants_space() {
            self.require(needs.space, needs.frees())?;
        }
        let Needs { record, blocks, clones, .. } = needs;
        self.require_log(record)?;
        if self.is_heavy() || clones && self.clones_unsettled(txn)? {
            self.finish_checkpoint()?;
        }
        self.await_room(record)?;
        self.prepare(blocks)
    }

    /// Waits while the log has no room for a record of so many bytes, or the queue is full.
    pub(crate) fn await_room(&mut self, record: u64) -> Result<()> {
        while self.commit.is_behind() || !self.commit.has_room(record) {
            if !self.commit.has_room(record) && self.state.frozen.is_none() {
                self.freeze()?;
            }
            self.wait_a_little()?;
        }
        Ok(())
    }

    /// Whether an object to be cloned has small data that the checkpoint under way is
    /// moving: its clone would share blocks which the moved object no longer has.
    fn clones_unsettled(&self, txn: &Transaction) -> Result<bool> {
        let Some(frozen) = &self.state.frozen else { return Ok(false) };
        for op in &txn.ops {
            let Op::Clone(s, _) = op else { continue };
            let (c, o) = &txn.targets[*s as usize];
            let Ok(id) = self.state.coll(*c) else { continue };
            let key = keys::onode(id, o);
            if let Some(o) = self.state.onode(&key)? {
                let moving = match frozen.map.get(&key) {
                    Some(Entry::Onode(f)) => f.id == o.id && !f.pieces.is_empty() && !f.is_tiny(),
                    _ => false,
                };
                if moving || self.state.renamed.contains_key(&o.id) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Applies each change as the log will have it: large data is given its place. Returns
    /// the data to write.
    pub(crate) fn apply(
        &mut self,
        seq: Seq,
        txn: &mut Transaction,
        known: &mut Known,
    ) -> Result<Vec<(u64, Bytes)>> {
        let mut data = Vec::new();
        if txn.ops.iter().any(|op| match op {
            Op::Write(_, _, d) if d.len() as u64 >= LARGE => true,
            Op::Write(t, ..) | Op::Zero(t, ..) | Op::Truncate(t, _) => {
                self.state.packs(txn.targets[*t as usize].1.pool)
            }
            Op::CloneRange { .. } => true,
            _ => false,
        }) {
            // What becomes of a change depends on those before it.
            for op in std::mem::take(&mut txn.ops) {
                let from = txn.ops.len();
                self.lower(seq, txn, op, &mut data)?;
                let (targets, ops) = (txn.targets.clone(), txn.ops[from..].to_vec());
                let part = Transaction { targets, ops, ..Transaction::default() };
                self.state.apply(seq, &part, known, false)?;
            }
        } else {
            self.state.apply(seq, txn, known, false)?;
        }
        Ok(data)
    }

    /// Sets space for `blocks` blocks of data aside.
    fn prepare(&mut self, blocks: u64) -> Result<()> {
        if blocks == 0 {
            return Ok(());
        }
        // There is enough: `require` saw to it, and only a checkpoint takes space meanwhile,
        // from what is kept for it.
        self.prepared = self.state.space.alloc(blocks, Area::Data)?.into();
        Ok(())
    }

    /// Makes sure that `need` bytes can be taken now; waits where space is about to be free.
    fn require(&mut self, need: u64, frees: bool) -> Result<()> {
        if need <= self.available(0, frees) {
            return Ok(());
        }
        // What was removed counts as free, whether or not it has been swept.
        self.sweep_for(need)?;
        let available = self.available(self.soon_free(), frees);
        // What is kept for the changes in memory is free when they are written, but for what
        // they take. Only for a good deal of it: a full store must not write a checkpoint
        // for each transaction.
        let kept = self.state.kept_for_changes();
        let worth = kept >= need.max(self.superblock.size / 256);
        if need <= available || worth {
            if need > available {
                self.finish_checkpoint()?;
                self.freeze()?;
            }
            self.reclaim()?;
            if need <= self.available(0, frees) {
                return Ok(());
            }
        }
        // Tables hold what newer ones have replaced.
        if merge::shrinks_by(&self.state.tables).is_some_and(|bytes| bytes >= need) {
            self.merge_all()?;
            self.reclaim()?;
            if need <= self.available(0, frees) {
                return Ok(());
            }
        }
        Err(StoreError::NoSpace { need, available })
    }

    /// Makes free what is about to be.
    fn reclaim(&mut self) -> Result<()> {
        self.finish_checkpoint()?;
        let by_checkpoint = self.superblock.placement == LogPlacement::Memory;
        if !self.retired.is_empty() || by_checkpoint {
            self.freeze()?;
            self.finish_checkpoint()?;
        }
        self.await_all()?;
        // The next group says that the ones before are durable.
        self.submit_own(Op::Release(0, Vec::new()))?;
        self.await_all()?;
        self.settle_resting(u64::MAX);
        self.finish_discard();
        Ok(())
    }

    /// Blocks that need only a while to be free.
    pub(crate) fn soon_free(&self) -> u64 {
        self.resting_blocks + self.retired_blocks() + self.discards.blocks()
    }

    /// Blocks that a merge under way has taken, of those kept for it.
    pub(crate) fn merge_blocks(&self) -> u64 {
        let ledger = self.ledger.lock().expect("no holder of this lock panics");
        ledger.iter().map(|(_, len)| len).sum()
    }

    /// Blocks of tables that were merged, and are free after the next checkpoint.
    pub(crate) fn retired_blocks(&self) -> u64 {
        self.retired.iter().chain(&self.retiring).map(|(_, len)| len).sum()
    }
}
