//! The store as its owner sees it.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use bytes::Bytes;
use env::Disk;
use types::{HObject, OsdId, PoolId, Uuid};

use crate::alloc::{Alloc, Area, Bitmap};
use crate::buf::AlignedBuf;
use crate::cache::Cache;
use crate::checkpoint::{self, Job, Outcome};
use crate::commit::Committer;
use crate::file::FileDisk;
use crate::keys;
use crate::log::{Found, Place, Reader, Ring};
use crate::onode::BLOCK;
use crate::space::{Runs, Space};
use crate::state::{Caches, Entry, Frozen, Map, State, read_blocks};
use crate::superblock::{LOG_OFF, Manifest, Superblock};
use crate::table::Table;
use crate::transaction::{Op, Placed, Released};
use crate::{Coll, StoreError, Transaction, record};

/// Counts submitted transactions; durable up to here means all of them up to here.
pub type Seq = u64;

/// Called from the store's I/O thread, once per durable group: wakes the owner, which then
/// asks [`Store::durable`] or runs [`Store::complete`].
pub type Waker = Box<dyn Fn() + Send + Sync>;

/// How a store is made.
#[derive(Clone, Debug)]
pub struct MkfsOptions {
    /// The cluster it belongs to.
    pub fsid: Uuid,
    /// The OSD's number.
    pub osd: OsdId,
    /// The OSD's incarnation.
    pub osd_uuid: Uuid,
    /// Bytes of the file to create; a device has its own size.
    pub size: u64,
    /// Bytes of the log ring.
    pub log_bytes: u64,
}

impl Default for MkfsOptions {
    fn default() -> Self {
        Self {
            fsid: Uuid::default(),
            osd: OsdId(0),
            osd_uuid: Uuid::default(),
            size: 10 << 30,
            log_bytes: 256 << 20,
        }
    }
}

/// How a store is opened.
pub struct OpenOptions {
    /// Refuse another cluster's store.
    pub fsid: Option<Uuid>,
    /// Refuse another OSD's store.
    pub osd: Option<OsdId>,
    /// Bytes of log after which a checkpoint begins; 0 is a quarter of the log.
    pub checkpoint_bytes: u64,
    /// Memory for clean object metadata.
    pub onode_cache_bytes: u64,
    /// Memory for blocks of key tables.
    pub table_cache_bytes: u64,
    /// Use io_uring where the kernel allows it.
    pub io_uring: bool,
    /// Write from threads of the store's own. Without, [`Store::step`] and
    /// [`Store::step_checkpoint`] write when they are called: for simulation.
    pub threads: bool,
    /// Called once per durable group.
    pub waker: Waker,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            fsid: None,
            osd: None,
            checkpoint_bytes: 0,
            onode_cache_bytes: 32 << 20,
            table_cache_bytes: 16 << 20,
            io_uring: true,
            threads: true,
            waker: Box::new(|| {}),
        }
    }
}

/// What is known of an object without reading it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Bytes of data, holes included.
    pub size: u64,
    /// Bytes of space it uses, shared ones included.
    pub allocated: u64,
}

/// A part of a collection's listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// Objects in order.
    pub objects: Vec<HObject>,
    /// Where to go on; [`HObject::max`] at the end.
    pub next: HObject,
}

/// What one pool uses on this OSD.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Objects, clones among them.
    pub objects: u64,
    /// Bytes of data as clients see them.
    pub stored: u64,
    /// Bytes of space they use.
    pub allocated: u64,
    /// Bytes of omap keys and values.
    pub omap: u64,
}

/// What the device holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatFs {
    /// Bytes of the device.
    pub total: u64,
    /// Bytes used by data, keys, log and the rest.
    pub used: u64,
    /// Bytes that transactions may still use.
    pub available: u64,
    /// Bytes of object data, as clients see them.
    pub stored: u64,
    /// Bytes of space used by object data.
    pub allocated: u64,
    /// Bytes of omap.
    pub omap: u64,
    /// Bytes used by the store itself: log, tables, reserve.
    pub internal: u64,
    /// By pool.
    pub pools: BTreeMap<PoolId, PoolStats>,
}

struct Threads {
    io: JoinHandle<()>,
    checkpointer: JoinHandle<()>,
    jobs: SyncSender<Job>,
}

/// An open store; see the crate's page.
pub struct Store {
    state: State,
    commit: Arc<Committer>,
    superblock: Superblock,
    seq: Seq,
    next_table: u64,
    checkpoint_bytes: u64,
    /// Bytes of records since the last freeze.
    since_freeze: u64,
    /// Freed blocks that must rest: until the log says that who freed them is durable, and
    /// while a checkpoint is under way.
    resting: VecDeque<(Seq, u64, u64)>,
    resting_blocks: u64,
    callbacks: VecDeque<(Seq, Box<dyn FnOnce() + Send>)>,
    threads: Option<Threads>,
    /// A checkpoint that waits for its owner to run it, where there are no threads.
    job: Option<Job>,
    outcomes: Receiver<Result<Outcome>>,
    outcome_sender: Sender<Result<Outcome>>,
    /// Space for the large data of the transaction in hand.
    prepared: VecDeque<(u64, u64)>,
    stopped: bool,
}

type Result<T> = std::result::Result<T, StoreError>;

/// Data from here on goes to extents at once.
const LARGE: u64 = 64 << 10;
/// Pieces below this are copied, so that a few bytes do not keep a large buffer alive.
const SMALL: usize = 512;
/// Largest object, in bytes.
const OBJECT_MAX: u64 = 1 << 40;

impl Store {
    /// Makes an empty store in the file (created, sparse) or device `path`.
    ///
    /// # Errors
    /// [`StoreError::Format`] when it holds a store already or is too small;
    /// [`StoreError::Io`].
    pub fn mkfs(path: &Path, options: &MkfsOptions) -> Result<()> {
        FileDisk::create(path, options.size)?;
        let disk = FileDisk::open(path)?;
        if Superblock::is_present(&disk) {
            return Err(StoreError::Format(format!("{}: holds a store", path.display())));
        }
        Self::mkfs_on(Arc::new(disk), options)
    }

    /// As [`Store::mkfs`], on any disk; what it held is lost.
    ///
    /// # Errors
    /// As [`Store::mkfs`].
    pub fn mkfs_on(disk: Arc<dyn Disk>, options: &MkfsOptions) -> Result<()> {
        let log_len = options.log_bytes.next_multiple_of(BLOCK);
        let size = disk.size() / BLOCK * BLOCK;
        if log_len < LOG_MIN || size < LOG_OFF + log_len + (8 << 20) {
            return Err(StoreError::Format(format!(
                "a store of {size} bytes with a log of {log_len} is too small"
            )));
        }
        // Old headers of the ring must not be taken for this store's.
        let mut salt = [0; 8];
        salt.copy_from_slice(&options.osd_uuid.0[..8]);
        let salt = u64::from_le_bytes(salt) ^ u64::from(stdx::crc32c(size as u32, &options.fsid.0));
        let superblock = Superblock {
            generation: 0,
            fsid: options.fsid,
            osd: options.osd,
            osd_uuid: options.osd_uuid,
            size,
            log_len,
            salt,
            mount: 0,
            manifest: Runs::default(),
            manifest_len: 0,
            manifest_crc: 0,
        };
        let mut used = Bitmap::new(size / BLOCK);
        used.set(0, superblock.first_block());
        let alloc = Arc::new(Mutex::new(Alloc::new(used.clone())));
        let space = Space { disk: disk.clone(), alloc };
        // The first group of an older store in the ring, if any, goes.
        disk.commit(&[(LOG_OFF, &AlignedBuf::zeroed(BLOCK as usize))])
            .map_err(StoreError::io("clearing the log"))?;
        checkpoint::write_manifest(&space, &checkpoint::empty(&used), &superblock)?;
        Ok(())
    }

    /// Opens a store and replays its log: all that was acknowledged is there again.
    ///
    /// # Errors
    /// [`StoreError::Format`] when it is not a store, of a newer format, another
    /// cluster's or OSD's, or in use; [`StoreError::Corrupt`]; [`StoreError::Io`].
    pub fn open(path: &Path, options: OpenOptions) -> Result<Self> {
        let disk = FileDisk::open(path)?;
        Self::open_on(Arc::new(disk), options)
    }

    /// As [`Store::open`], on any disk.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_on(disk: Arc<dyn Disk>, options: OpenOptions) -> Result<Self> {
        let mut superblock = Superblock::read(&*disk)?;
        if options.fsid.is_some_and(|fsid| fsid != superblock.fsid) {
            let fsid = superblock.fsid;
            return Err(StoreError::Format(format!("the store belongs to cluster {fsid}")));
        }
        if options.osd.is_some_and(|osd| osd != superblock.osd) {
            let osd = superblock.osd;
            return Err(StoreError::Format(format!("the store belongs to osd.{osd}")));
        }
        let manifest = Manifest::read(&*disk, &superblock)?;
        let mut state = load(&disk, &superblock, &manifest, &options)?;
        superblock.generation += 1;
        superblock.mount += 1;
        let ring = Ring {
            off: LOG_OFF,
            len: superblock.log_len,
            salt: superblock.salt,
            mount: superblock.mount,
        };
        let start = Place { group: manifest.log_group, pos: manifest.log_pos };
        let (seq, head) = replay(&mut state, ring, start, manifest.seq)?;
        // From here on the log holds groups of this mount; it also makes durable what the
        // last run had written and not flushed.
        superblock.write(&*disk)?;

        let commit = Arc::new(Committer::new(
            disk.clone(),
            ring,
            manifest.log_pos,
            head,
            seq,
            options.waker,
        ));
        let checkpoint_bytes = match options.checkpoint_bytes {
            0 => ring.len / 4,
            n => n.min(ring.len / 2),
        };
        let (outcome_sender, outcomes) = channel();
        let threads = options
            .threads
            .then(|| start_threads(&state.space, &commit, &outcome_sender))
            .transpose()?;
        let mut store = Self {
            state,
            commit,
            superblock,
            seq,
            next_table: manifest.next_table,
            checkpoint_bytes,
            since_freeze: head.pos - start.pos,
            resting: VecDeque::new(),
            resting_blocks: 0,
            callbacks: VecDeque::new(),
            threads,
            job: None,
            outcomes,
            outcome_sender,
            prepared: VecDeque::new(),
            stopped: false,
        };
        store.release_leftovers()?;
        Ok(store)
    }

    /// What a checkpoint noted as released, when the run ended before it was.
    fn release_leftovers(&mut self) -> Result<()> {
        let mut left: BTreeMap<u64, Vec<Released>> = BTreeMap::new();
        self.state.scan(Bound::Included(&[keys::RELEASE]), &[keys::RELEASE + 1], &mut |k, v| {
            let phys = v
                .and_then(|v| v.get(..8))
                .map(|raw| u64::from_le_bytes(raw.try_into().expect("eight bytes")));
            if let (Some((ckpt, index)), Some(phys)) = (keys::parse_release(k), phys) {
                left.entry(ckpt).or_default().push(Released { index, phys, done: false });
            }
            true
        })?;
        for (ckpt, items) in left {
            self.submit_own(Op::Release(ckpt, items))?;
        }
        Ok(())
    }

    /// Waits until all is durable, writes a checkpoint and stops the threads.
    ///
    /// # Errors
    /// [`StoreError::Stopped`] when an earlier write failed.
    pub fn close(mut self) -> Result<()> {
        self.checkpoint()?;
        self.stop();
        Ok(())
    }

    /// Makes everything durable and frees the log. Waits for it.
    ///
    /// # Errors
    /// As [`Store::complete`].
    pub fn checkpoint(&mut self) -> Result<()> {
        self.sync()?;
        self.finish_checkpoint()?;
        self.freeze()?;
        self.finish_checkpoint()?;
        self.sync()
    }

    fn stop(&mut self) {
        if let Some(Threads { io, checkpointer, jobs }) = self.threads.take() {
            drop(jobs);
            self.commit.stop();
            for thread in [io, checkpointer] {
                if thread.join().is_err() {
                    tracing::error!("a thread of the store panicked");
                }
            }
        }
    }

    /// The cluster, the OSD and its incarnation for which it was made.
    #[must_use]
    pub fn identity(&self) -> (Uuid, OsdId, Uuid) {
        (self.superblock.fsid, self.superblock.osd, self.superblock.osd_uuid)
    }

    /// Applies `txn`: reads see it from now on; it is durable once [`Store::durable`] has
    /// reached the returned number, which counts up.
    ///
    /// # Errors
    /// Nothing was applied: [`StoreError::NoSpace`], [`StoreError::NoCollection`],
    /// [`StoreError::NoObject`] (a clone's source), [`StoreError::Invalid`],
    /// [`StoreError::Corrupt`] (data to be copied), [`StoreError::Stopped`].
    pub fn submit(&mut self, mut txn: Transaction) -> Result<Seq> {
        self.background()?;
        self.validate(&txn)?;
        self.make_room(&txn)?;
        let seq = self.seq + 1;
        let applied = self.apply(seq, &mut txn);
        for (start, len) in self.prepared.drain(..) {
            self.state.space.release(start, len);
        }
        match applied {
            Ok(data) => {
                self.queue(seq, &txn, data);
                self.freeze_if_due()?;
                Ok(seq)
            }
            Err(e) => {
                // Part of it may be applied: nothing may follow.
                self.commit.fail(format!("transaction {seq}: {e}"));
                self.stopped = true;
                Err(StoreError::Stopped(e.to_string()))
            }
        }
    }

    /// As [`Store::submit`]; `on_durable` runs in [`Store::complete`] once it is durable.
    ///
    /// # Errors
    /// As [`Store::submit`]; `on_durable` is dropped.
    pub fn submit_then(
        &mut self,
        txn: Transaction,
        on_durable: Box<dyn FnOnce() + Send>,
    ) -> Result<Seq> {
        let seq = self.submit(txn)?;
        self.callbacks.push_back((seq, on_durable));
        Ok(seq)
    }

    /// A transaction of the store's own: no checks.
    fn submit_own(&mut self, op: Op) -> Result<()> {
        let txn = Transaction { targets: Vec::new(), ops: vec![op] };
        let seq = self.seq + 1;
        self.state.apply(seq, &txn, false)?;
        self.queue(seq, &txn, Vec::new());
        Ok(())
    }

    /// What can be refused is refused here, before anything is changed.
    fn validate(&self, txn: &Transaction) -> Result<()> {
        let mut made: Vec<Coll> = Vec::new();
        let mut touched: Vec<u32> = Vec::new();
        let has = |made: &[Coll], c: Coll| {
            if made.contains(&c) || self.state.colls.contains_key(&c) {
                return Ok(());
            }
            Err(StoreError::NoCollection(c))
        };
        for op in &txn.ops {
            match op {
                Op::CreateCollection(c) => made.push(*c),
                Op::RemoveCollection(_) | Op::Release(..) | Op::Extents(..) => {}
                Op::Split(a, b, _) | Op::Merge(a, b) => {
                    has(&made, *a)?;
                    has(&made, *b)?;
                }
                Op::CollSet(c, ..) | Op::CollRm(c, ..) | Op::CollRmRange(c, ..) => has(&made, *c)?,
                Op::Clone(s, d) | Op::Rename(s, d) | Op::CloneRange { src: s, dst: d, .. } => {
                    let ((cs, os), (cd, _)) =
                        (&txn.targets[*s as usize], &txn.targets[*d as usize]);
                    has(&made, *cs)?;
                    has(&made, *cd)?;
                    if !touched.contains(s) {
                        if made.contains(cs) {
                            return Err(StoreError::NoObject(format!("{cs} {os}")));
                        }
                        let o = self.state.object(*cs, os)?;
                        if let Op::CloneRange { src_off, len, dst_off, .. } = op {
                            range(*dst_off, *len)?;
                            // What will be copied must be readable.
                            let name = || os.to_string();
                            self.state.read_data(&o, &name, *src_off, *len)?;
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
                    let (c, o) = &txn.targets[*t as usize];
                    has(&made, *c)?;
                    match op {
                        Op::Write(_, off, data) => range(*off, data.len() as u64)?,
                        Op::Zero(_, off, len) => range(*off, *len)?,
                        Op::Truncate(_, size) => range(*size, 0)?,
                        _ => {}
                    }
                    // Its onode is read here, where that may fail.
                    if !touched.contains(t) && self.state.colls.contains_key(c) {
                        self.state.onode(&keys::onode(self.state.coll(*c)?, o))?;
                    }
                    touched.push(*t);
                }
            }
        }
        Ok(())
    }

    /// Refuses what does not fit, and waits while the log or the queue is full.
    fn make_room(&mut self, txn: &Transaction) -> Result<()> {
        let (mut need, mut record, mut grows) = (0, 256, false);
        let (mut clones, mut blocks) = (false, 0);
        for (_, o) in &txn.targets {
            record += 64 + (o.nspace.len() + o.key.len() + o.name.len()) as u64;
        }
        let sum = |pairs: &[(Bytes, Bytes)]| -> u64 {
            pairs.iter().map(|(k, v)| (k.len() + v.len() + 8) as u64).sum()
        };
        for op in &txn.ops {
            let bytes = match op {
                Op::Write(_, _, data) => {
                    grows = true;
                    need += (data.len() as u64).next_multiple_of(BLOCK) + BLOCK;
                    if data.len() as u64 >= LARGE {
                        blocks += data.len() as u64 / BLOCK;
                    }
                    data.len() as u64
                }
                Op::SetAttrs(_, pairs) => sum(pairs),
                Op::OmapSet(_, pairs) => {
                    grows = true;
                    need += 2 * sum(pairs);
                    sum(pairs)
                }
                Op::OmapSetHeader(_, v) => v.len() as u64,
                Op::CollSet(_, k, v) => (k.len() + v.len()) as u64,
                Op::OmapRmKeys(_, keys) => keys.iter().map(|k| k.len() as u64 + 4).sum(),
                Op::CloneRange { len, .. } => {
                    grows = true;
                    need += len + 2 * BLOCK;
                    blocks += len / BLOCK;
                    *len
                }
                Op::Clone(..) => {
                    clones = true;
                    0
                }
                _ => 0,
            };
            record += 64 + bytes;
        }
        if grows {
            let available = self.state.available(self.resting_blocks);
            if need > available {
                return Err(StoreError::NoSpace { need, available });
            }
        }
        if !self.commit.can_ever_take(record) {
            return Err(StoreError::Invalid("the transaction is larger than the log takes"));
        }
        if clones && self.clones_unsettled(txn)? {
            self.finish_checkpoint()?;
        }
        while self.commit.is_behind() || !self.commit.has_room(record) {
            if !self.commit.has_room(record) && self.state.frozen.is_none() {
                self.freeze()?;
            }
            self.wait_a_little()?;
        }
        self.prepare(blocks)
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
                    Some(Entry::Onode(f)) => f.id == o.id && !f.pieces.is_empty(),
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
    fn apply(&mut self, seq: Seq, txn: &mut Transaction) -> Result<Vec<(u64, Bytes)>> {
        let mut data = Vec::new();
        if txn.ops.iter().any(|op| match op {
            Op::Write(_, _, d) => d.len() as u64 >= LARGE,
            Op::CloneRange { .. } => true,
            _ => false,
        }) {
            // Whether a range can be shared depends on the changes before it.
            for op in std::mem::take(&mut txn.ops) {
                let from = txn.ops.len();
                self.lower(seq, txn, op, &mut data)?;
                let part =
                    Transaction { targets: txn.targets.clone(), ops: txn.ops[from..].to_vec() };
                self.state.apply(seq, &part, false)?;
            }
        } else {
            self.state.apply(seq, txn, false)?;
        }
        Ok(data)
    }

    fn lower(
        &mut self,
        seq: Seq,
        txn: &mut Transaction,
        op: Op,
        data: &mut Vec<(u64, Bytes)>,
    ) -> Result<()> {
        match op {
            Op::Write(t, off, bytes) => self.lower_write(seq, txn, t, off, bytes, data)?,
            Op::CloneRange { src, dst, src_off, len, dst_off } => {
                let (c, o) = &txn.targets[src as usize];
                let (dc, d) = &txn.targets[dst as usize];
                let from = self.state.object(*c, o)?;
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
                    && from.pieces_in(src_off, blocks_end).next().is_none();
                if shareable {
                    txn.ops.push(Op::CloneRange { src, dst, src_off, len, dst_off });
                } else {
                    let name = || o.to_string();
                    let bytes = self.state.read_data(&from, &name, src_off, len)?;
                    self.lower_write(seq, txn, dst, dst_off, bytes, data)?;
                }
            }
            op => txn.ops.push(op),
        }
        Ok(())
    }

    /// Whole blocks of large data go to extents, its ends ride in the log.
    fn lower_write(
        &mut self,
        seq: Seq,
        txn: &mut Transaction,
        t: u32,
        off: u64,
        bytes: Bytes,
        data: &mut Vec<(u64, Bytes)>,
    ) -> Result<()> {
        let end = off + bytes.len() as u64;
        let (first, last) = (off.div_ceil(BLOCK), end / BLOCK);
        if last < first || (last - first) * BLOCK < LARGE {
            let bytes = if bytes.len() < SMALL { Bytes::copy_from_slice(&bytes) } else { bytes };
            txn.ops.push(Op::Write(t, off, bytes));
            return Ok(());
        }
        let cut = |from: u64, to: u64| bytes.slice((from - off) as usize..(to - off) as usize);
        if off < first * BLOCK {
            txn.ops.push(Op::Write(t, off, cut(off, first * BLOCK)));
        }
        let middle = cut(first * BLOCK, last * BLOCK);
        let runs = self.prepared(last - first);
        let crcs = middle.chunks_exact(BLOCK as usize).map(|b| stdx::crc32c(!0, b)).collect();
        let mut at = 0;
        for (start, len) in &runs {
            let bytes = (len * BLOCK) as usize;
            let part = middle.slice(at..at + bytes);
            self.state.flight.insert(*start, (part.clone(), seq));
            data.push((start * BLOCK, part));
            at += bytes;
        }
        let placed = Placed { at: first, size: last * BLOCK, runs, crcs };
        txn.ops.push(Op::Extents(t, Box::new(placed)));
        if last * BLOCK < end {
            txn.ops.push(Op::Write(t, last * BLOCK, cut(last * BLOCK, end)));
        }
        Ok(())
    }

    /// Sets space for `blocks` blocks of data aside; where only resting blocks are left,
    /// waits for them.
    fn prepare(&mut self, blocks: u64) -> Result<()> {
        if blocks == 0 {
            return Ok(());
        }
        loop {
            match self.state.space.alloc(blocks, Area::Data) {
                Err(StoreError::NoSpace { .. }) if !self.resting.is_empty() => {
                    self.finish_checkpoint()?;
                    // The next group says that the ones before are durable.
                    self.sync()?;
                    self.submit_own(Op::Release(0, Vec::new()))?;
                    self.sync()?;
                    self.settle_resting();
                }
                Err(e) => return Err(e),
                Ok(runs) => {
                    self.prepared = runs.into();
                    return Ok(());
                }
            }
        }
    }

    /// Takes from what [`Store::prepare`] set aside.
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

    fn queue(&mut self, seq: Seq, txn: &Transaction, data: Vec<(u64, Bytes)>) {
        self.seq = self.seq.max(seq);
        for (start, blocks) in self.state.freed.drain(..) {
            self.resting.push_back((seq, start, blocks));
            self.resting_blocks += blocks;
        }
        let mut bytes = 0;
        self.commit.push(
            seq,
            |buf| {
                let before = buf.len();
                record::encode(txn, buf);
                bytes = (buf.len() - before) as u64;
            },
            data,
        );
        self.since_freeze += bytes;
    }

    /// The last transaction that is durable, with all before it. One atomic load.
    #[must_use]
    pub fn durable(&self) -> Seq {
        self.commit.durable()
    }

    /// The last transaction submitted.
    #[must_use]
    pub fn submitted(&self) -> Seq {
        self.seq
    }

    /// Runs the callbacks of what has become durable, in order, and does the owner's part
    /// of background work. To be called after each wake-up. Returns [`Store::durable`].
    ///
    /// # Errors
    /// [`StoreError::Stopped`] when a write failed: nothing after it will become durable.
    pub fn complete(&mut self) -> Result<Seq> {
        let result = self.background();
        let durable = self.durable();
        while self.callbacks.front().is_some_and(|(seq, _)| *seq <= durable) {
            let (_, run) = self.callbacks.pop_front().expect("there is a front");
            run();
        }
        result.map(|()| durable)
    }

    /// Waits until everything submitted is durable, and runs the callbacks.
    ///
    /// # Errors
    /// As [`Store::complete`].
    pub fn sync(&mut self) -> Result<()> {
        if self.threads.is_none() {
            while self.commit.step() {}
        }
        self.commit.wait(self.seq)?;
        self.complete().map(drop)
    }

    /// Without threads: writes one group. Returns whether there was one.
    pub fn step(&mut self) -> bool {
        self.threads.is_none() && self.commit.step()
    }

    /// Without threads: makes the checkpoint that has begun, if one has; the next
    /// [`Store::complete`] takes it over. Returns whether there was one.
    pub fn step_checkpoint(&mut self) -> bool {
        let Some(job) = self.job.take() else { return false };
        // It waits for the transactions before it.
        while self.commit.durable() < job.frozen.seq && self.commit.step() {}
        let outcome = checkpoint::run(&self.state.space, &self.commit, job);
        self.outcome_sender.send(outcome).expect("the receiver is ours");
        true
    }

    /// Without threads: begins a checkpoint, where none is under way.
    ///
    /// # Errors
    /// As [`Store::complete`].
    pub fn begin_checkpoint(&mut self) -> Result<()> {
        self.freeze()
    }

    fn wait_a_little(&mut self) -> Result<()> {
        match &self.threads {
            None => {
                let _ = self.commit.step() || self.step_checkpoint();
            }
            Some(threads) if threads.checkpointer.is_finished() || threads.io.is_finished() => {
                self.commit.fail("a thread of the store is gone".into());
            }
            Some(_) => self.commit.wait_a_group(),
        }
        self.background()
    }

    /// The owner's part of what goes on behind: blocks that have rested, data that has
    /// arrived, a checkpoint that is done.
    fn background(&mut self) -> Result<()> {
        if self.stopped {
            return Err(StoreError::Stopped("an earlier transaction failed".into()));
        }
        if let Some(e) = self.commit.failed() {
            return Err(e);
        }
        if !self.state.flight.is_empty() {
            let durable = self.commit.durable();
            self.state.flight.retain(|_, (_, seq)| *seq > durable);
        }
        if self.state.frozen.is_some()
            && let Ok(outcome) = self.outcomes.try_recv()
        {
            let taken = outcome.and_then(|o| self.install(o));
            if let Err(e) = taken {
                self.commit.fail(format!("checkpoint: {e}"));
                return Err(StoreError::Stopped(e.to_string()));
            }
        }
        self.settle_resting();
        Ok(())
    }

    fn settle_resting(&mut self) {
        if self.state.frozen.is_some() || self.resting.is_empty() {
            return;
        }
        let proven = self.commit.proven();
        let mut alloc = self.state.space.alloc.lock().expect("no holder of this lock panics");
        while let Some((seq, start, blocks)) = self.resting.front().copied() {
            if seq > proven {
                break;
            }
            alloc.release(start, blocks);
            self.resting_blocks -= blocks;
            self.resting.pop_front();
        }
    }

    fn freeze_if_due(&mut self) -> Result<()> {
        if self.since_freeze >= self.checkpoint_bytes && self.state.frozen.is_none() {
            return self.freeze();
        }
        Ok(())
    }

    /// Begins a checkpoint of everything submitted.
    fn freeze(&mut self) -> Result<()> {
        if self.state.frozen.is_some() {
            return Ok(());
        }
        let state = &mut self.state;
        let frozen = Arc::new(Frozen { map: std::mem::take(&mut state.active), seq: self.seq });
        self.commit.set_mark(self.seq);
        let mut used =
            state.space.alloc.lock().expect("no holder of this lock panics").used.clone();
        for (_, start, blocks) in &self.resting {
            used.clear(*start, *blocks);
        }
        state.frozen = Some(frozen.clone());
        state.frozen_bytes = std::mem::take(&mut state.active_bytes);
        state.frozen_blocks = std::mem::take(&mut state.active_blocks);
        let pools = state.pools.iter();
        let job = Job {
            frozen,
            tables: state.tables.clone(),
            superblock: self.superblock.clone(),
            used,
            next_id: state.next_id,
            next_coll: state.next_coll,
            next_table: self.next_table,
            pools: pools.map(|(p, s)| (p.0, (s.objects, s.stored, s.allocated))).collect(),
        };
        self.since_freeze = 0;
        match &self.threads {
            Some(threads) => threads
                .jobs
                .send(job)
                .map_err(|_| StoreError::Stopped("the checkpointer is gone".into())),
            None => {
                self.job = Some(job);
                Ok(())
            }
        }
    }

    /// Waits for the checkpoint under way, if one is, and takes it over.
    fn finish_checkpoint(&mut self) -> Result<()> {
        while self.state.frozen.is_some() {
            self.wait_a_little()?;
        }
        Ok(())
    }

    /// Takes over a finished checkpoint.
    fn install(&mut self, done: Outcome) -> Result<()> {
        let frozen = self.state.frozen.take().expect("a checkpoint was under way");
        assert_eq!(frozen.seq, done.seq, "checkpoints come back one by one");
        let state = &mut self.state;
        state.tables = done.tables;
        (state.frozen_bytes, state.frozen_blocks) = (0, 0);
        self.superblock = done.superblock;
        self.next_table = done.next_table;
        let mut releases = Vec::new();
        for m in done.moved {
            let key = state.renamed.get(&m.id).unwrap_or(&m.key).clone();
            let pool = keys::parse_onode(&key).map_or(PoolId(0), |o| o.pool);
            let mut freed = Vec::new();
            let (flags, grown) = match state.active.get_mut(&key) {
                Some(Entry::Onode(o)) if o.id == m.id => {
                    let o = Arc::make_mut(o);
                    let before = o.allocated();
                    let flags = o.settle(done.seq, &m.blocks, &mut freed);
                    (flags, o.allocated() - before)
                }
                // It was removed meanwhile: its new blocks are not needed.
                Some(_) => {
                    let none = vec![false; m.blocks.len()];
                    freed.extend(m.blocks.iter().map(|s| crate::onode::Freed {
                        phys: s.phys,
                        blocks: 1,
                        shared: false,
                    }));
                    (none, 0)
                }
                None => {
                    let mut bases = 0;
                    for s in &m.blocks {
                        let Some(phys) = s.base else { continue };
                        bases += 1;
                        if s.release.is_none() {
                            freed.push(crate::onode::Freed { phys, blocks: 1, shared: false });
                        }
                    }
                    let bytes = m.onode.footprint();
                    state.caches.borrow_mut().onodes.put(key, m.onode, bytes);
                    (vec![true; m.blocks.len()], (m.blocks.len() as u64 - bases) * BLOCK)
                }
            };
            state.pools.entry(pool).or_default().allocated += grown;
            for (s, taken) in m.blocks.iter().zip(flags) {
                if let (Some(index), Some(phys)) = (s.release, s.base) {
                    releases.push(Released { index, phys, done: !taken });
                }
            }
            state.freed.extend(freed.iter().map(|f| (f.phys, f.blocks)));
        }
        state.renamed.clear();
        let mut alloc = state.space.alloc.lock().expect("no holder of this lock panics");
        for (start, len) in done.freed {
            alloc.release(start, len);
        }
        drop(alloc);
        self.commit.set_tail(done.place.pos);
        for (start, blocks) in self.state.freed.drain(..) {
            self.resting.push_back((self.seq, start, blocks));
            self.resting_blocks += blocks;
        }
        if !releases.is_empty() {
            self.submit_own(Op::Release(done.seq, releases))?;
        }
        Ok(())
    }

    /// All collections, in order.
    #[must_use]
    pub fn list_collections(&self) -> Vec<Coll> {
        self.state.colls.keys().copied().collect()
    }

    /// Whether the collection exists.
    #[must_use]
    pub fn collection_exists(&self, c: impl Into<Coll>) -> bool {
        self.state.colls.contains_key(&c.into())
    }

    /// Whether the object exists; not so when its collection does not.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`], [`StoreError::Io`]; so all reads below.
    pub fn exists(&self, c: impl Into<Coll>, o: &HObject) -> Result<bool> {
        match self.state.coll(c.into()) {
            Ok(id) => Ok(self.state.onode(&keys::onode(id, o))?.is_some()),
            Err(_) => Ok(false),
        }
    }

    /// Size and space.
    ///
    /// # Errors
    /// [`StoreError::NoObject`], [`StoreError::NoCollection`]; so all reads of objects.
    pub fn stat(&self, c: impl Into<Coll>, o: &HObject) -> Result<Stat> {
        let o = self.state.object(c.into(), o)?;
        Ok(Stat { size: o.size, allocated: o.allocated() })
    }

    /// Data from `off`, at most `len` bytes, less where the object ends. Holes are zeros.
    ///
    /// # Errors
    /// As [`Store::stat`].
    pub fn read(&self, c: impl Into<Coll>, o: &HObject, off: u64, len: u64) -> Result<Bytes> {
        let c = c.into();
        let onode = self.state.object(c, o)?;
        self.state.read_data(&onode, &|| format!("{c} {o}"), off, len)
    }

    /// The parts of `off..off + len` that hold data, as `(offset, length)`, ascending and
    /// apart; what is between them reads as zeros.
    ///
    /// # Errors
    /// As [`Store::stat`].
    pub fn fiemap(
        &self,
        c: impl Into<Coll>,
        o: &HObject,
        off: u64,
        len: u64,
    ) -> Result<Vec<(u64, u64)>> {
        let o = self.state.object(c.into(), o)?;
        let end = off.saturating_add(len).min(o.size);
        Ok(if off < end { o.data_ranges(off, end) } else { Vec::new() })
    }

    /// One attribute.
    ///
    /// # Errors
    /// As [`Store::stat`].
    pub fn get_attr(&self, c: impl Into<Coll>, o: &HObject, name: &[u8]) -> Result<Option<Bytes>> {
        Ok(self.state.object(c.into(), o)?.attr(name).cloned())
    }

    /// All attributes.
    ///
    /// # Errors
    /// As [`Store::stat`].
    pub fn get_attrs(&self, c: impl Into<Coll>, o: &HObject) -> Result<BTreeMap<Bytes, Bytes>> {
        Ok(self.state.object(c.into(), o)?.attrs.iter().cloned().collect())
    }

    /// The omap header; empty when never set.
    ///
    /// # Errors
    /// As [`Store::stat`].
    pub fn omap_get_header(&self, c: impl Into<Coll>, o: &HObject) -> Result<Bytes> {
        let id = self.state.object(c.into(), o)?.omap;
        if id == 0 {
            return Ok(Bytes::new());
        }
        Ok(self.state.get(&keys::omap_header(id))?.unwrap_or_default())
    }

    /// Omap pairs in key order from `start`, at most `max`.
    ///
    /// # Errors
    /// As [`Store::stat`].
    pub fn omap_iter(
        &self,
        c: impl Into<Coll>,
        o: &HObject,
        start: Bound<&[u8]>,
        max: usize,
    ) -> Result<Vec<(Bytes, Bytes)>> {
        let mut out = Vec::new();
        if max > 0 {
            self.omap_walk(c, o, start, &mut |k, v| {
                out.push((Bytes::copy_from_slice(k), v.clone()));
                out.len() < max
            })?;
        }
        Ok(out)
    }

    /// Calls `f` with each omap pair from `start` on, in key order, until it says `false`.
    ///
    /// # Errors
    /// As [`Store::stat`].
    pub fn omap_walk(
        &self,
        c: impl Into<Coll>,
        o: &HObject,
        start: Bound<&[u8]>,
        f: &mut dyn FnMut(&[u8], &Bytes) -> bool,
    ) -> Result<()> {
        let id = self.state.object(c.into(), o)?.omap;
        if id == 0 {
            return Ok(());
        }
        let from = start.map(|k| keys::omap(id, k));
        let from = match &from {
            Bound::Included(k) => Bound::Included(&**k),
            Bound::Excluded(k) => Bound::Excluded(&**k),
            Bound::Unbounded => Bound::Included(&*keys::omap(id, b"")),
        };
        self.state.scan(from, &keys::omap_end(id), &mut |k, v| {
            v.is_none_or(|v| f(&k[keys::OMAP_PREFIX..], v))
        })
    }

    /// Those of `keys` that exist, with their values.
    ///
    /// # Errors
    /// As [`Store::stat`].
    pub fn omap_get_keys(
        &self,
        c: impl Into<Coll>,
        o: &HObject,
        keys: &[Bytes],
    ) -> Result<BTreeMap<Bytes, Bytes>> {
        let id = self.state.object(c.into(), o)?.omap;
        let mut out = BTreeMap::new();
        for key in keys {
            if id != 0
                && let Some(v) = self.state.get(&keys::omap(id, key))?
            {
                out.insert(key.clone(), v);
            }
        }
        Ok(out)
    }

    /// Objects in order from `from` (itself included), at most `max`.
    ///
    /// # Errors
    /// [`StoreError::NoCollection`].
    pub fn list(&self, c: impl Into<Coll>, from: &HObject, max: usize) -> Result<Listing> {
        let id = self.state.coll(c.into())?;
        let (start, end) = (keys::onode(id, from), keys::coll_end(keys::ONODE, id));
        let (mut objects, mut next) = (Vec::new(), HObject::max());
        let mut broken = false;
        self.state.scan(Bound::Included(&start), &end, &mut |k, _| {
            let Some(o) = keys::parse_onode(k) else {
                broken = true;
                return false;
            };
            if objects.len() == max {
                next = o;
                return false;
            }
            objects.push(o);
            true
        })?;
        if broken {
            return Err(StoreError::Format("a key of an object is malformed".into()));
        }
        Ok(Listing { objects, next })
    }

    /// One key of the collection.
    ///
    /// # Errors
    /// [`StoreError::NoCollection`].
    pub fn coll_get(&self, c: impl Into<Coll>, key: &[u8]) -> Result<Option<Bytes>> {
        self.state.get(&keys::coll_key(self.state.coll(c.into())?, key))
    }

    /// Pairs of the collection in key order from `start`, at most `max`.
    ///
    /// # Errors
    /// [`StoreError::NoCollection`].
    pub fn coll_iter(
        &self,
        c: impl Into<Coll>,
        start: Bound<&[u8]>,
        max: usize,
    ) -> Result<Vec<(Bytes, Bytes)>> {
        let mut out = Vec::new();
        if max > 0 {
            self.coll_walk(c, start, Bound::Unbounded, &mut |k, v| {
                out.push((Bytes::copy_from_slice(k), v.clone()));
                out.len() < max
            })?;
        }
        Ok(out)
    }

    /// Calls `f` with each pair of the collection from `start` to `end`, in key order, until
    /// it says `false`.
    ///
    /// # Errors
    /// [`StoreError::NoCollection`].
    pub fn coll_walk(
        &self,
        c: impl Into<Coll>,
        start: Bound<&[u8]>,
        end: Bound<&[u8]>,
        f: &mut dyn FnMut(&[u8], &Bytes) -> bool,
    ) -> Result<()> {
        let id = self.state.coll(c.into())?;
        let from = start.map(|k| keys::coll_key(id, k));
        let from = match &from {
            Bound::Included(k) => Bound::Included(&**k),
            Bound::Excluded(k) => Bound::Excluded(&**k),
            Bound::Unbounded => Bound::Included(&*keys::coll_key(id, b"")),
        };
        let end = match end {
            Bound::Excluded(k) => keys::coll_key(id, k),
            // The next key in order is the same with a zero byte behind it.
            Bound::Included(k) => [&*keys::coll_key(id, k), &[0]].concat().into(),
            Bound::Unbounded => keys::coll_end(keys::COLL_KEY, id),
        };
        self.state.scan(from, &end, &mut |k, v| v.is_none_or(|v| f(&k[keys::COLL_PREFIX..], v)))
    }

    /// What is used and what is left.
    #[must_use]
    pub fn statfs(&self) -> StatFs {
        let state = &self.state;
        let alloc = state.space.alloc.lock().expect("no holder of this lock panics");
        let total = alloc.used.blocks() * BLOCK;
        let free = (alloc.free() + self.resting_blocks) * BLOCK;
        drop(alloc);
        let tables: u64 = state.tables.iter().map(|t| t.bytes()).sum();
        let omap = state.tables.iter().map(|t| t.meta.omap_bytes).sum();
        let available = state.available(self.resting_blocks);
        let (mut stored, mut allocated) = (0, 0);
        for pool in state.pools.values() {
            stored += pool.stored;
            allocated += pool.allocated;
        }
        StatFs {
            total,
            used: total - free,
            available,
            stored,
            allocated,
            omap,
            internal: LOG_OFF + self.superblock.log_len + tables,
            pools: state.pools.clone(),
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Smallest log that works: two groups in the making and one in the ring.
const LOG_MIN: u64 = 16 << 20;

fn range(off: u64, len: u64) -> Result<()> {
    match off.checked_add(len) {
        Some(end) if end <= OBJECT_MAX => Ok(()),
        _ => Err(StoreError::Invalid("an object is 1 TiB at most")),
    }
}

fn start_threads(
    space: &Space,
    commit: &Arc<Committer>,
    outcomes: &Sender<Result<Outcome>>,
) -> Result<Threads> {
    let what = "starting a thread";
    let (jobs, received) = sync_channel::<Job>(1);
    let for_io = commit.clone();
    let io = std::thread::Builder::new()
        .name("store-log".into())
        .spawn(move || for_io.run())
        .map_err(StoreError::io(what))?;
    let (space, commit, outcomes) = (space.clone(), commit.clone(), outcomes.clone());
    let checkpointer = std::thread::Builder::new()
        .name("store-ckpt".into())
        .spawn(move || {
            for job in received {
                let outcome = checkpoint::run(&space, &commit, job);
                if outcomes.send(outcome).is_err() {
                    return;
                }
                commit.wake_owner();
            }
        })
        .map_err(StoreError::io(what))?;
    Ok(Threads { io, checkpointer, jobs })
}

/// The state of the last checkpoint.
fn load(
    disk: &Arc<dyn Disk>,
    superblock: &Superblock,
    manifest: &Manifest,
    options: &OpenOptions,
) -> Result<State> {
    let mut used = Bitmap::from_bytes(superblock.size / BLOCK, &manifest.used)
        .ok_or_else(|| StoreError::Format("the map of used blocks has a wrong size".into()))?;
    for (start, len) in &superblock.manifest.0 {
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
        space: Space { disk: disk.clone(), alloc },
        active: Map::new(),
        active_bytes: 0,
        active_blocks: 0,
        frozen: None,
        frozen_bytes: 0,
        frozen_blocks: 0,
        tables: Arc::new(tables),
        colls: BTreeMap::new(),
        next_id: manifest.next_id,
        next_coll: manifest.next_coll,
        pools: BTreeMap::new(),
        renamed: HashMap::new(),
        flight: BTreeMap::new(),
        freed: Vec::new(),
        caches: RefCell::new(Caches {
            onodes: Cache::new(options.onode_cache_bytes),
            blocks: Cache::new(options.table_cache_bytes),
        }),
    };
    for (pool, (objects, (stored, allocated))) in &manifest.pools {
        let stats =
            PoolStats { objects: *objects, stored: *stored, allocated: *allocated, omap: 0 };
        state.pools.insert(PoolId(*pool), stats);
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
    Ok(state)
}

/// Applies the log from `start`. Returns the last transaction and where the log goes on.
fn replay(state: &mut State, ring: Ring, start: Place, mut seq: Seq) -> Result<(Seq, Place)> {
    let disk = state.space.disk.clone();
    let mut log = Reader::new(&*disk, ring, start);
    let mut place = start;
    // Groups that no later one has called durable yet.
    let mut unproven: VecDeque<Found> = VecDeque::new();
    loop {
        let next = log.next()?;
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
                    return Ok((seq, place));
                }
            }
            let group = unproven.pop_front().expect("there is a front");
            if group.first != seq + 1 {
                return Err(StoreError::Format(format!(
                    "the log goes on with transaction {} after {seq}",
                    group.first
                )));
            }
            for raw in &group.records {
                seq += 1;
                state.apply(seq, &record::decode(raw)?, true)?;
                let mut alloc = state.space.alloc.lock().expect("no holder of this lock panics");
                for (start, blocks) in state.freed.drain(..) {
                    alloc.release(start, blocks);
                }
            }
            place = Place { group: group.group + 1, pos: group.end };
        }
        match next {
            Some(group) => unproven.push_back(group),
            None => return Ok((seq, place)),
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
                match read_blocks(&*state.space.disk, *start, mine, &mut buf, &name, 0) {
                    Ok(()) => {}
                    Err(StoreError::Corrupt { .. }) => return Ok(false),
                    Err(e) => return Err(e),
                }
            }
        }
    }
    Ok(true)
}
