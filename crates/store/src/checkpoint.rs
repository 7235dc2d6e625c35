//! Checkpoints: what the log holds goes to its place, and the log before it is free.
//!
//! The owner freezes its changes and goes on with empty ones; here the frozen ones are
//! written: small data to blocks of their own, onodes and keys to a new table, then the
//! manifest, then the superblock. Nothing
//! written so far replaces anything, so a crash at any point leaves the checkpoint before
//! it or this one. The owner then takes over the outcome.

use std::sync::Arc;

use crate::commit::Committer;
use crate::fetch::{Way, read_blocks};
use crate::install::Unchanged;
use crate::keys::{self, Key};
use crate::log::Place;
use crate::onode::{BLOCK, Onode, Piece, Settled};
use crate::space::{BlockWriter, Runs, Space};
use crate::state::{Entry, Frozen};
use crate::superblock::{Manifest, Named, Superblock, Used};
use crate::table::{Builder, Table};
use crate::usedmap::{Changes, UsedMap};
use crate::{PoolStats, Seq, StoreError};

type Result<T> = std::result::Result<T, StoreError>;

/// What the owner hands over.
pub(crate) struct Job {
    pub frozen: Arc<Frozen>,
    pub tables: Arc<Vec<Arc<Table>>>,
    pub superblock: Superblock,
    /// What the last checkpoint wrote about itself.
    pub own: Arc<Own>,
    /// What became of the blocks up to the frozen changes.
    pub changes: Changes,
    /// [`crate::OpenOptions::map_changes_bytes`]
    pub map_changes_bytes: u64,
    /// Bytes of its index that a table keeps in memory, at most.
    pub keep_index: u64,
    pub next_id: u64,
    pub next_coll: u32,
    /// The number for its table, the last given out.
    pub table: u64,
    /// By the pool's number.
    pub pools: std::collections::BTreeMap<i64, PoolStats>,
}

/// What a checkpoint wrote about itself; its map does not name these blocks.
pub(crate) struct Own {
    /// The manifest's.
    pub manifest: Runs,
    /// `None` in stores of before, where it is in the manifest.
    pub map: Option<UsedMap>,
}

impl Own {
    pub fn blocks(&self) -> impl Iterator<Item = (u64, u64)> {
        self.manifest.iter().chain(self.map.iter().flat_map(UsedMap::own))
    }
}

/// Small data of one object, in its place.
pub(crate) struct Moved {
    pub key: Key,
    pub id: u64,
    pub blocks: Vec<Settled>,
    /// The object as the table has it.
    pub onode: Arc<Onode>,
}

impl Moved {
    /// Bytes that it takes beyond what it had.
    pub fn new_bytes(&self) -> u64 {
        self.blocks.iter().filter(|s| s.base.is_none()).count() as u64 * BLOCK
    }
}

/// What the owner takes over.
pub(crate) struct Outcome {
    pub seq: Seq,
    pub superblock: Superblock,
    pub own: Own,
    /// What was frozen; `None` when that was nothing.
    pub table: Option<Arc<Table>>,
    pub moved: Vec<Moved>,
    /// What becomes of them where nothing has changed since.
    pub unchanged: Unchanged,
    /// Blocks of the last one's manifest, and of a map that was written anew.
    pub freed: Vec<(u64, u64)>,
    pub place: Place,
}

struct Run<'a> {
    space: &'a Space,
    job: Job,
    blocks: BlockWriter,
    moved: Vec<Moved>,
    /// Shared blocks let go, in order of their index.
    releases: Vec<u64>,
}

/// Makes one checkpoint. Returns when it is durable.
pub(crate) fn run(space: &Space, commit: &Committer, job: Job) -> Result<Outcome> {
    // Data under the pieces must have reached the device before it is read; and nothing may
    // be durable here that is not durable in the log.
    let seq = job.frozen.seq;
    commit.wait(seq)?;
    let mut run = Run {
        space,
        job,
        blocks: BlockWriter::new(space.clone()),
        moved: Vec::new(),
        releases: Vec::new(),
    };
    let mut tables: Vec<Arc<Table>> = run.job.tables.to_vec();
    let table = run.flush_frozen()?.map(Arc::new);
    if let Some(table) = &table {
        run.take_blocks(&table.meta.runs);
        tables.push(table.clone());
    }
    let Run { blocks, job, moved, .. } = run;
    let unchanged = Unchanged::of(&moved);
    blocks.finish()?;
    let last = &job.own;
    let map = job.changes.write(space, last.map.as_ref(), last.blocks(), job.map_changes_bytes)?;
    let place = commit.marked().expect("the last group before the checkpoint left its place");
    space.disk.flush().map_err(StoreError::io("flushing a checkpoint"))?;

    let new = Manifest {
        seq,
        log_group: place.group,
        log_pos: place.pos,
        next_id: job.next_id,
        next_coll: job.next_coll,
        next_table: job.table,
        tables: tables.iter().map(|t| t.meta.clone()).collect(),
        pools: job.pools.iter().map(|(p, s)| (*p, (s.objects, (s.stored, s.allocated)))).collect(),
        packed: job
            .pools
            .iter()
            .filter(|(_, s)| s.uncompressed > 0)
            .map(|(p, s)| (*p, (s.compressed, s.uncompressed)))
            .collect(),
        used: Used::Apart(map.clone()),
        mount: job.superblock.mount,
    };
    let (superblock, manifest) = write_manifest(space, &new, &job.superblock)?;
    let mut freed: Vec<_> = last.manifest.iter().collect();
    freed.extend(last.map.iter().filter(|last| !map.goes_on(last)).flat_map(UsedMap::own));
    let own = Own { manifest, map: Some(map) };
    Ok(Outcome { seq, superblock, own, table, moved, unchanged, freed, place })
}

/// Writes the manifest to free space, flushes, then the superblock that names it. Returns that, and
/// the manifest's blocks.
pub(crate) fn write_manifest(
    space: &Space,
    manifest: &Manifest,
    before: &Superblock,
) -> Result<(Superblock, Runs)> {
    let Named { stream, lists, blocks } = manifest.write(space)?;
    space.disk.flush().map_err(StoreError::io("flushing the manifest"))?;
    let generation = before.generation + 1;
    let superblock = Superblock { generation, manifest: stream, lists, ..before.clone() };
    superblock.write(&*space.disk)?;
    Ok((superblock, blocks))
}

impl Run<'_> {
    fn take_blocks(&mut self, runs: &Runs) {
        for (start, len) in runs.iter() {
            self.job.changes.take(start, len);
        }
    }

    /// The frozen changes as a table; `None` when there are none.
    fn flush_frozen(&mut self) -> Result<Option<Table>> {
        let frozen = self.job.frozen.clone();
        let mut out = Builder::new(self.space.clone(), self.job.keep_index);
        // With nothing below there is nothing to hide.
        let hides = !self.job.tables.is_empty();
        let mut released = false;
        for (key, entry) in &frozen.map {
            if !released && key[0] >= keys::RELEASE {
                released = true;
                // Older notes of the same kind are removed by changes, and sort before.
                while_older(&frozen, &mut out, hides)?;
                self.put_releases(&mut out)?;
            }
            if key[0] == keys::RELEASE {
                continue;
            }
            match entry {
                Entry::Value(v) => out.add(key, Some(v))?,
                Entry::Removed if hides => out.add(key, None)?,
                Entry::Removed => {}
                Entry::Onode(o) if o.pieces.is_empty() || o.is_tiny() => {
                    out.add(key, Some(&o.to_value()))?;
                }
                Entry::Onode(o) => {
                    let settled = self.settle(key, o)?;
                    out.add(key, Some(&settled.to_value()))?;
                }
            }
        }
        if !released {
            self.put_releases(&mut out)?;
        }
        out.finish(self.job.table)
    }

    fn put_releases(&mut self, out: &mut Builder) -> Result<()> {
        let seq = self.job.frozen.seq;
        for (i, phys) in self.releases.iter().enumerate() {
            out.add(&keys::release(seq, i as u32), Some(&phys.to_le_bytes()))?;
        }
        Ok(())
    }

    /// Writes the pieces of an object to blocks.
    fn settle(&mut self, key: &Key, o: &Onode) -> Result<Arc<Onode>> {
        let name = || keys::parse_onode(key).map_or_else(String::new, |o| o.to_string());
        let mut settled = Vec::new();
        let mut new_blocks = 0;
        let mut block = vec![0; BLOCK as usize];
        let blocks = o.piece_blocks();
        // Both are in order: what is passed is not searched again.
        let mut extents = blocks.first().map_or(&[][..], |at| o.extents_from(*at));
        let mut rest = &o.pieces[..];
        for at in blocks {
            let (lo, hi) = (at * BLOCK, (at + 1) * BLOCK);
            while let [e, more @ ..] = extents
                && e.end() <= at
            {
                extents = more;
            }
            while let [p, more @ ..] = rest
                && p.end() <= lo
            {
                rest = more;
            }
            let base = extents.first().filter(|e| e.at <= at);
            if base.is_some_and(|e| e.packed.is_some()) {
                return Err(StoreError::Format(format!("{}: data lies over a blob", name())));
            }
            let pieces = &rest[..rest.iter().take_while(|p| p.off < hi).count()];
            let mut intact = true;
            let whole = match pieces {
                [p] if p.off <= lo && hi <= p.end() => {
                    &p.data[(lo - p.off) as usize..(hi - p.off) as usize]
                }
                _ => {
                    // Behind its end nothing is wanted of what was there.
                    let end = hi.min(o.size);
                    let part = |p: &&Piece| p.end().min(end).saturating_sub(p.off.max(lo));
                    let covered: u64 = pieces.iter().map(|p| part(&p)).sum();
                    block.fill(0);
                    if let Some(e) = base
                        && covered < end.saturating_sub(lo)
                    {
                        let i = at - e.at;
                        let crc = &e.crcs[i as usize..=i as usize];
                        let (disk, phys) = (&*self.space.disk, e.phys + i);
                        let read = read_blocks(disk, phys, crc, &mut block, Way::Cached, &name, lo);
                        intact = read.is_ok();
                    }
                    for p in pieces {
                        let (from, to) = (p.off.max(lo), p.end().min(hi));
                        block[(from - lo) as usize..(to - lo) as usize].copy_from_slice(
                            &p.data[(from - p.off) as usize..(to - p.off) as usize],
                        );
                    }
                    &block[..]
                }
            };
            let phys = self.blocks.put(whole)?;
            let good = stdx::crc32c(!0, whole);
            // What was there could not be read: the block must not pass for whole.
            let crc = if intact { good } else { !good };
            self.job.changes.take(phys, 1);
            let release = match base {
                Some(e) if e.shared => {
                    self.releases.push(e.phys + (at - e.at));
                    Some(self.releases.len() as u32 - 1)
                }
                Some(e) => {
                    self.job.changes.free(e.phys + (at - e.at), 1);
                    None
                }
                None => {
                    new_blocks += 1;
                    None
                }
            };
            let base = base.map(|e| e.phys + (at - e.at));
            settled.push(Settled { at, base, release, phys, crc });
        }
        let onode = Arc::new(o.settled(&settled));
        self.job.pools.entry(keys::pool(key)).or_default().allocated += new_blocks * BLOCK;
        let moved = Moved { key: key.clone(), id: o.id, blocks: settled, onode: onode.clone() };
        self.moved.push(moved);
        Ok(onode)
    }
}

/// Adds the frozen changes to notes of earlier checkpoints.
fn while_older(frozen: &Frozen, out: &mut Builder, hides: bool) -> Result<()> {
    let range = Key::from(vec![keys::RELEASE])..Key::from(vec![keys::RELEASE + 1]);
    for (key, entry) in frozen.map.range(range) {
        match entry {
            Entry::Value(v) => out.add(key, Some(v))?,
            Entry::Removed if hides => out.add(key, None)?,
            _ => {}
        }
    }
    Ok(())
}

/// The state of a store that has just been made.
pub(crate) fn empty(used: UsedMap) -> Manifest {
    Manifest {
        seq: 0,
        log_group: 1,
        log_pos: 0,
        next_id: 0,
        next_coll: 0,
        next_table: 0,
        tables: Vec::new(),
        pools: Vec::new(),
        packed: Vec::new(),
        used: Used::Apart(used),
        mount: 0,
    }
}
