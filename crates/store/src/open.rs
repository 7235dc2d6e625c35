//! Opening: the last checkpoint, and the log after it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, Mutex};

use env::Disk;
use types::PoolId;

use crate::alloc::{Alloc, Bitmap};
use crate::buf::Pool;
use crate::cache::Cache;
use crate::fetch::{Way, read_blocks};
use crate::log::{Found, Place, Reader, Ring};
use crate::onode::BLOCK;
use crate::space::{Runs, Space};
use crate::state::{Caches, Known, Map, State};
use crate::superblock::{Manifest, Superblock};
use crate::table::Table;
use crate::transaction::Op;
use crate::{OpenOptions, PoolStats, Seq, StoreError, keys, record};

type Result<T> = std::result::Result<T, StoreError>;

/// The state of the last checkpoint, whose manifest is in `blocks`.
pub(crate) fn load(
    disk: &Arc<dyn Disk>,
    superblock: &Superblock,
    manifest: &Manifest,
    blocks: &Runs,
    options: &OpenOptions,
) -> Result<State> {
    let mut used = Bitmap::from_bytes(superblock.size / BLOCK, &manifest.used)
        .ok_or_else(|| StoreError::Format("the map of used blocks has a wrong size".into()))?;
    for (start, len) in &blocks.0 {
        if !used.set(*start, *len) {
            return Err(StoreError::Format("the manifest lies on used blocks".into()));
        }
    }
    let mut tables = Vec::new();
    for meta in &manifest.tables {
        tables.push(Arc::new(Table::open(&**disk, meta.clone())?));
    }
    let alloc = Arc::new(Mutex::new(Alloc::new(used)));
    let mut state = State {
        space: Space { disk: disk.clone(), alloc, ledger: None },
        active: Map::new(),
        active_bytes: 0,
        active_blocks: 0,
        frozen: None,
        frozen_bytes: 0,
        frozen_blocks: 0,
        tables: Arc::new(tables),
        colls: BTreeMap::new(),
        dead: BTreeMap::new(),
        stuck: BTreeSet::new(),
        next_id: manifest.next_id,
        next_coll: manifest.next_coll,
        pools: BTreeMap::new(),
        compression: BTreeMap::new(),
        packing: BTreeSet::new(),
        renamed: HashMap::new(),
        flight: BTreeMap::new(),
        freed: Vec::new(),
        caches: RefCell::new(Caches {
            onodes: Cache::new(options.onode_cache_bytes),
            blocks: Cache::new(options.table_cache_bytes),
        }),
        pool: Pool::default(),
    };
    for (pool, (objects, (stored, allocated))) in &manifest.pools {
        let (objects, stored, allocated) = (*objects, *stored, *allocated);
        let stats = PoolStats { objects, stored, allocated, ..PoolStats::default() };
        state.pools.insert(PoolId(*pool), stats);
    }
    for (pool, packed) in &manifest.packed {
        state.pools.entry(PoolId(*pool)).or_default().add_packed(*packed);
        state.packing.insert(PoolId(*pool));
    }
    let mut colls = BTreeMap::new();
    state.scan(Bound::Included(&[keys::COLL]), &[keys::COLL + 1], &mut |k, v| {
        let id = v.and_then(|v| v.get(..4)).map(|raw| raw.try_into().expect("four bytes"));
        if let (Some(c), Some(id)) = (keys::parse_coll(k), id) {
            colls.insert(c, u32::from_le_bytes(id));
        }
        true
    })?;
    state.colls = colls;
    let (from, end) = ([keys::DEAD_COLL], [keys::DEAD_COLL + 1]);
    for mark in state.keys_in(&from, &end)? {
        keys::coll_id(&mark).into_iter().for_each(|id| state.bury(id));
    }
    Ok(state)
}

/// What the log had.
pub(crate) struct Replayed {
    /// Its last transaction.
    pub seq: Seq,
    /// Where it goes on.
    pub place: Place,
    /// Runs of blocks that its last groups let go of, by transaction. No later group calls these
    /// proven: what they name is looked at again when this opening ends before one does, so
    /// nothing may be written there until then.
    pub resting: Vec<(Seq, (u64, u64))>,
}

/// Applies the log from the checkpoint that `manifest` tells of on; `generation` is that of the
/// superblock which named it.
pub(crate) fn replay(
    state: &mut State,
    disk: &dyn Disk,
    ring: Ring,
    generation: u64,
    manifest: &Manifest,
) -> Result<Replayed> {
    let mut done = Replayed { seq: manifest.seq, place: manifest.place(), resting: Vec::new() };
    let mut log = Reader::new(disk, ring, done.place, manifest.mount);
    // Groups that no later one has called durable yet.
    let mut unproven: VecDeque<Found> = VecDeque::new();
    loop {
        let next = log.next()?;
        if next.is_none()
            && let Some(device) = log.lost()?
        {
            let what = format!("group {} of the log", log.at.group);
            return Err(StoreError::Corrupt { what, offset: 0, device });
        }
        let proven = next.as_ref().map_or(0, |f| f.proven);
        while let Some(group) = unproven.front() {
            if group.group > proven {
                if next.is_some() {
                    break;
                }
                if !data_is_whole(state, group)? {
                    tracing::warn!(
                        group = group.group,
                        "the last group of the log was cut off and does not count"
                    );
                    return Ok(done);
                }
            }
            let group = unproven.pop_front().expect("there is a front");
            if group.generation > generation {
                // Space of this checkpoint may have been used again since.
                let what = "superblock: the log knows a newer one".to_owned();
                return Err(StoreError::Corrupt { what, offset: 0, device: 0 });
            }
            if group.first != done.seq + 1 {
                return Err(StoreError::Format(format!(
                    "the log goes on with transaction {} after {}",
                    group.first, done.seq
                )));
            }
            for raw in &group.records {
                done.seq += 1;
                let seq = done.seq;
                let txn = record::decode(raw)?;
                state.apply(seq, &txn, &mut Known::of(txn.targets.len()), true)?;
                let mut alloc = state.space.alloc.lock().expect("no holder of this lock panics");
                for (start, blocks) in state.freed.drain(..) {
                    if !alloc.give_back(start, blocks) {
                        return Err(StoreError::Format(format!(
                            "transaction {seq} of the log frees blocks {start}+{blocks}, \
                             which are free"
                        )));
                    }
                    if group.group > proven {
                        alloc.take(start, blocks);
                        done.resting.push((seq, (start, blocks)));
                    }
                }
            }
            done.place = Place { group: group.group + 1, pos: group.end };
        }
        match next {
            Some(group) => unproven.push_back(group),
            None => return Ok(done),
        }
    }
}

/// Whether the data that a group's records name is on the device.
fn data_is_whole(state: &State, group: &Found) -> Result<bool> {
    for raw in &group.records {
        for op in &record::decode(raw)?.ops {
            let Op::Extents(_, p) = op else { continue };
            let mut crcs = p.crcs.as_slice();
            for (start, len) in &p.runs {
                let (mine, rest) = crcs.split_at(*len as usize);
                crcs = rest;
                let mut buf = vec![0; mine.len() * BLOCK as usize];
                let name = || "the log's last group".to_owned();
                let disk = &*state.space.disk;
                match read_blocks(disk, *start, mine, &mut buf, Way::Direct, &name, 0) {
                    Ok(()) => {}
                    Err(StoreError::Corrupt { .. }) => return Ok(false),
                    Err(e) => return Err(e),
                }
            }
        }
    }
    Ok(true)
}
