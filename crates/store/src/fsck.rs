//! Checking that everything the store says of itself is true.

use std::collections::{HashMap, HashSet};
use std::ops::{Bound, Deref};

use types::PoolId;

use crate::bitmap::Bitmap;
use crate::keys::{self, Key};
use crate::onode::{BLOCK, Piece};
use crate::stage::Staged;
use crate::table::Table;
use crate::{PoolStats, Store, StoreError};

/// Bytes of data read at a time.
const PART: u64 = 4 << 20;

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FsckReport {
    /// Objects seen, but for those of removed collections.
    pub objects: u64,
    /// Bytes of data read and verified.
    pub verified: u64,
    /// What is wrong, in words; empty when nothing is.
    pub errors: Vec<String>,
}

impl Store {
    /// Compares space, reference counts and statistics with what objects and tables say;
    /// `deep` also reads and verifies all tables, before anything else, and all data. Waits for a
    /// checkpoint and a merge under way.
    ///
    /// # Errors
    /// When metadata that it needs cannot be read; what `deep` finds is in the report.
    pub fn fsck(&mut self, deep: bool) -> Result<FsckReport, StoreError> {
        self.finish_checkpoint()?;
        self.finish_merge();
        let mut report = FsckReport::default();
        let state = &self.state;
        if deep {
            report.errors = state.tables.iter().flat_map(|t| self.unreadable(t)).collect();
            if !report.errors.is_empty() {
                // Nothing can be said of what these tell.
                return Ok(report);
            }
        }
        let used =
            state.space.alloc.lock().expect("no holder of this lock panics").used.deref().clone();
        let mut seen = Bitmap::new(used.blocks());
        let mut errors = Vec::new();
        let mut take = |errors: &mut Vec<String>, start: u64, len: u64, what: &str| {
            if start.checked_add(len).is_none_or(|end| end > used.blocks()) {
                errors.push(format!("{what}: blocks {start}+{len} lie beyond the device"));
            } else if !seen.set(start, len) {
                errors.push(format!("{what}: blocks {start}+{len} are used twice"));
            }
        };
        take(&mut errors, 0, self.superblock.first_block(), "superblock and log");
        for (start, len) in self.own.blocks() {
            take(&mut errors, start, len, "manifest");
        }
        for table in state.tables.iter() {
            for (start, len) in table.meta.runs.iter() {
                take(&mut errors, start, len, "table");
            }
        }
        let ledger = self.ledger.lock().expect("no holder of this lock panics").clone();
        for (start, len) in self.retired.iter().chain(&self.retiring).chain(&ledger) {
            take(&mut errors, *start, *len, "merge");
        }
        for (_, start, len) in &self.resting {
            take(&mut errors, *start, *len, "resting space");
        }
        for (start, len) in &self.discards.runs {
            take(&mut errors, *start, *len, "discarded space");
        }
        for (start, len) in self.staged.iter().flat_map(Staged::runs) {
            take(&mut errors, start, len, "data written ahead");
        }
        let mut shared: HashMap<u64, u32> = HashMap::new();
        let mut pools: HashMap<PoolId, PoolStats> = HashMap::new();
        for key in state.keys_in(&[keys::ONODE], &[keys::ONODE + 1])? {
            let (Some(name), Some(o)) = (keys::parse_onode(&key), state.onode(&key)?) else {
                errors.push("a key of an object is malformed".into());
                continue;
            };
            let dead = keys::coll_id(&key).is_some_and(|id| state.dead.contains_key(&id));
            report.objects += u64::from(!dead);
            let stats = pools.entry(name.pool).or_default();
            stats.objects += 1;
            stats.stored += o.size;
            stats.allocated += o.allocated();
            stats.add_packed(o.packed());
            for f in o.device_runs() {
                if f.shared {
                    for block in f.phys..f.phys + f.blocks {
                        *shared.entry(block).or_default() += 1;
                    }
                } else {
                    take(&mut errors, f.phys, f.blocks, &name.to_string());
                }
            }
            let over = |p: &Piece| o.is_packed(p.off / BLOCK, p.end().div_ceil(BLOCK));
            if o.pieces.iter().any(over) {
                errors.push(format!("{name}: data of the log lies over compressed data"));
            }
            if o.extents.windows(2).any(|w| w[0].end() > w[1].at)
                || o.pieces.windows(2).any(|w| w[0].end() > w[1].off)
            {
                errors.push(format!("{name}: parts overlap"));
            }
            if o.extents.last().is_some_and(|e| e.end() > o.size.div_ceil(BLOCK)) {
                errors.push(format!("{name}: has data beyond its end"));
            }
            // Nobody reads what was removed.
            if deep && !dead {
                for (mut at, len) in o.data_ranges(0, o.size) {
                    let end = at + len;
                    while at < end {
                        match state.read_data(&o, &|| name.to_string(), at, PART.min(end - at)) {
                            Ok(data) => report.verified += data.len() as u64,
                            Err(e) => errors.push(e.to_string()),
                        }
                        at += PART;
                    }
                }
            }
        }
        for block in shared.keys() {
            take(&mut errors, *block, 1, "shared data");
        }
        let mut counted: HashMap<u64, u32> = HashMap::new();
        for key in state.keys_in(&[keys::SHARED], &[keys::SHARED + 1])? {
            let group = keys::number(&key).unwrap_or_default();
            let raw = state.get(&key)?.unwrap_or_default();
            for (i, raw) in raw.chunks_exact(4).enumerate() {
                let n = u32::from_le_bytes(raw.try_into().expect("four bytes"));
                if n > 0 {
                    counted.insert(group * 64 + i as u64, n);
                }
            }
        }
        for (block, n) in &counted {
            let real = shared.get(block).copied().unwrap_or(0);
            if real != *n {
                errors.push(format!("block {block} is counted {n} times, used {real} times"));
            }
        }
        for block in shared.keys().filter(|b| !counted.contains_key(b)) {
            errors.push(format!("block {block} is shared and not counted"));
        }
        if seen != used {
            let (a, b) = (seen.free_count(), used.free_count());
            errors.push(format!("{a} blocks are free, the map of used blocks says {b}"));
        }
        for (pool, said) in &state.pools {
            let real = pools.remove(pool).unwrap_or_default();
            if real != *said {
                errors.push(format!("pool {pool} has {real:?}, the statistics say {said:?}"));
            }
        }
        if !pools.is_empty() {
            errors.push("a pool has no statistics".into());
        }
        errors.extend(self.strays()?);
        report.errors = errors;
        Ok(report)
    }

    /// What cannot be read of a table.
    fn unreadable(&self, table: &Table) -> Vec<String> {
        let disk = &*self.state.space.disk;
        let mut errors = Vec::new();
        for p in 0..table.parts() {
            match table.read_part(disk, p) {
                Ok(part) => {
                    let blocks = (0..part.len()).map(|i| table.read_block(disk, &part, i));
                    errors.extend(blocks.filter_map(|read| read.err()).map(|e| e.to_string()));
                }
                Err(e) => errors.push(e.to_string()),
            }
        }
        errors
    }

    /// Numbers of collections that have objects or keys, and are neither in use nor being swept;
    /// or both.
    fn strays(&self) -> Result<Vec<String>, StoreError> {
        let state = &self.state;
        let live: HashSet<u32> = state.colls.values().copied().collect();
        let mut errors = Vec::new();
        for kind in [keys::ONODE, keys::COLL_KEY] {
            let mut from = Key::from(vec![kind]);
            loop {
                let mut found = None;
                state.scan_keys(Bound::Included(&from), &[kind + 1], &mut |k| {
                    found = keys::coll_id(k);
                    false
                })?;
                let Some(id) = found else { break };
                if live.contains(&id) == state.dead.contains_key(&id) {
                    let what = if live.contains(&id) { "both live and dead" } else { "nobody's" };
                    errors.push(format!("collection {id} is {what}"));
                }
                from = keys::coll_end(kind, id);
            }
        }
        Ok(errors)
    }
}
