//! The store as its owner sees it.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use bytes::Bytes;
use env::Disk;
use types::{HObject, OsdId, PoolId, Uuid};

use crate::alloc::Alloc;
use crate::behind::start_threads;
use crate::bitmap::Bitmap;
use crate::checkpoint::{self, Job, Moved, Outcome, Own};
use crate::commit::{Committer, Taken};
use crate::discard::Discards;
use crate::fetch::Fetches;
use crate::file::FileDisk;
use crate::install::Unchanged;
use crate::keys;
use crate::logring::LogRing;
use crate::merge::Merging;
use crate::onode::BLOCK;
use crate::overlay::Overlay;
use crate::placement::{self, LogDisk, LogPlacement};
use crate::space::{Ledger, Space, Stream};
use crate::stage::Staged;
use crate::state::{Frozen, Known, State};
use crate::superblock::{LOG_OFF, Manifest, Superblock, Used};
use crate::sweep::{self, Bounds, Sweeps};
use crate::transaction::{Op, Released};
use crate::usedmap::UsedMap;
use crate::{StoreError, Transaction, open, record};

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
    /// Where the log is.
    pub log: LogPlacement,
    /// The file or device of a log of its own; `journal` beside the block file without.
    pub log_path: Option<PathBuf>,
}

impl Default for MkfsOptions {
    fn default() -> Self {
        Self {
            fsid: Uuid::default(),
            osd: OsdId(0),
            osd_uuid: Uuid::default(),
            size: 10 << 30,
            log_bytes: 256 << 20,
            log: LogPlacement::Device,
            log_path: None,
        }
    }
}

/// How a store is opened.
pub struct OpenOptions {
    /// Refuse another cluster's store.
    pub fsid: Option<Uuid>,
    /// Refuse another OSD's store.
    pub osd: Option<OsdId>,
    /// The file or device of a log of its own; `journal` beside the block file without.
    pub log_path: Option<PathBuf>,
    /// Bytes of log after which a checkpoint begins: at most half of the log and a 64th of
    /// the device; 0 is a quarter of the log. The more it is, the less is written more than once.
    /// A checkpoint begins, too, when changes take three times as much memory, and no more come in while
    /// there are as many beside those of a checkpoint under way.
    pub checkpoint_bytes: u64,
    /// Memory for clean object metadata.
    pub onode_cache_bytes: u64,
    /// Memory for blocks of key tables.
    pub table_cache_bytes: u64,
    /// Use io_uring where the kernel allows it.
    pub io_uring: bool,
    /// A damaged log ends where the damage is: for [`Store::look`] alone.
    pub past_damage: bool,
    /// Write from threads of the store's own. Without, [`Store::step`] and
    /// [`Store::step_checkpoint`] write when they are called: for simulation.
    pub threads: bool,
    /// Called once per durable group.
    pub waker: Waker,
    /// Tell the device what has become free: `bdev_enable_discard`.
    pub discard: bool,
    /// Begin to write only at [`Store::kick`], so that all that is submitted meanwhile
    /// becomes one group.
    pub gather: bool,
    /// Objects of removed collections that the owner lets go of at a time, at most; so many
    /// times 16 of their keys.
    pub sweep_objects: usize,
    /// Checkpoints write what changed in the map of used blocks behind the map until that is so
    /// many bytes, and on, while it is a small part of the map; then all of the map anew.
    pub map_changes_bytes: u64,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            fsid: None,
            osd: None,
            log_path: None,
            checkpoint_bytes: 0,
            onode_cache_bytes: 32 << 20,
            table_cache_bytes: 16 << 20,
            io_uring: true,
            past_damage: false,
            threads: true,
            waker: Box::new(|| {}),
            discard: false,
            gather: false,
            sweep_objects: sweep::OBJECTS,
            map_changes_bytes: 64 << 10,
        }
    }
}

/// What a store holds in memory: how many, and their bytes, about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Objects' metadata that is as it is on the device.
    pub onodes: (usize, u64),
    /// Parts of tables of keys.
    pub tables: (usize, u64),
    /// Bytes of tables' indices.
    pub indices: u64,
    /// Changes since the last checkpoint.
    pub changes: (usize, u64),
    /// Data on its way to the device.
    pub flight: (usize, u64),
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
    /// Bytes of space that compressed data takes.
    pub compressed: u64,
    /// Bytes that it is when it is read.
    pub uncompressed: u64,
}

impl PoolStats {
    /// As [`crate::onode::Onode::packed`] counts.
    pub(crate) fn add_packed(&mut self, (device, data): (u64, u64)) {
        self.compressed += device;
        self.uncompressed += data;
    }

    pub(crate) fn sub_packed(&mut self, (device, data): (u64, u64)) {
        self.compressed = self.compressed.saturating_sub(device);
        self.uncompressed = self.uncompressed.saturating_sub(data);
    }
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

/// What the checkpointer is given.
pub(crate) enum Work {
    Checkpoint(Box<Job>),
    /// Memory of a finished checkpoint, to be given back off the owner's path.
    Drop(Arc<Frozen>, Unchanged),
}

pub(crate) struct Threads {
    pub(crate) io: Vec<JoinHandle<()>>,
    /// Says in the end whether the log is all written.
    pub(crate) preparer: Option<JoinHandle<bool>>,
    pub(crate) checkpointer: JoinHandle<()>,
    pub(crate) jobs: SyncSender<Work>,
}

/// An open store; see the crate's page.
pub struct Store {
    pub(crate) state: State,
    pub(crate) commit: Arc<Committer>,
    pub(crate) superblock: Superblock,
    /// What the last checkpoint wrote about itself.
    pub(crate) own: Arc<Own>,
    pub(crate) map_changes_bytes: u64,
    pub(crate) seq: Seq,
    pub(crate) opened_at: Seq,
    /// The last transaction in a durable checkpoint.
    pub(crate) checkpointed: Seq,
    pub(crate) next_table: u64,
    pub(crate) checkpoint_bytes: u64,
    /// Bytes of records since the last freeze.
    pub(crate) since_freeze: u64,
    /// Freed blocks that must rest: until the log says that who freed them is durable, and
    /// while a checkpoint is under way.
    pub(crate) resting: VecDeque<(Seq, u64, u64)>,
    pub(crate) resting_blocks: u64,
    /// Runs of blocks that ever came to rest.
    pub(crate) freed_runs: u64,
    pub(crate) fetches: Fetches,
    /// Readable when small reads, or appends to the log, are done; until the owner takes them.
    pub(crate) ring_fds: Vec<OwnedFd>,
    /// What of the log the owner has under way itself.
    pub(crate) log_ring: Option<LogRing>,
    pub(crate) callbacks: VecDeque<(Seq, Box<dyn FnOnce() + Send>)>,
    pub(crate) threads: Option<Threads>,
    /// A checkpoint that waits for its owner to run it, where there are no threads.
    pub(crate) job: Option<Job>,
    /// Groups that are written and not flushed, where there are no threads.
    pub(crate) begun: VecDeque<Taken>,
    pub(crate) outcomes: Receiver<Result<Outcome>>,
    pub(crate) outcome_sender: Sender<Result<Outcome>>,
    /// Space for the large data of the transaction in hand.
    pub(crate) prepared: VecDeque<(u64, u64)>,
    pub(crate) stopped: bool,
    /// Objects whose onodes a finished checkpoint left for the cache.
    pub(crate) warm: Vec<Moved>,
    pub(crate) merging: Option<Merging>,
    /// Space that the merge under way has taken.
    pub(crate) ledger: Ledger,
    /// Blocks of tables that a merge replaced, and no checkpoint has left out yet; and those
    /// that the checkpoint under way leaves out.
    pub(crate) retired: Vec<(u64, u64)>,
    pub(crate) retiring: Vec<(u64, u64)>,
    pub(crate) discards: Discards,
    /// Data that is durable, or will be, ahead of its transaction.
    pub(crate) staged: Vec<Staged>,
    /// A table could not be read: no more merges until the store is opened again.
    pub(crate) merges_fail: bool,
    pub(crate) sweeps: Sweeps,
}

type Result<T> = std::result::Result<T, StoreError>;

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
        let log = match options.log {
            LogPlacement::Own => {
                let path = options.log_path.clone().unwrap_or_else(|| placement::beside(path));
                Some(placement::create(&path, options)?)
            }
            LogPlacement::Device | LogPlacement::Memory => None,
        };
        Self::mkfs_with(Arc::new(disk), log, options)
    }

    /// As [`Store::mkfs`], on any disk; what it held is lost.
    ///
    /// # Errors
    /// As [`Store::mkfs`].
    pub fn mkfs_on(disk: Arc<dyn Disk>, options: &MkfsOptions) -> Result<()> {
        Self::mkfs_with(disk, None, options)
    }

    /// As [`Store::mkfs_on`]; `log` is for [`LogPlacement::Own`].
    ///
    /// # Errors
    /// As [`Store::mkfs`].
    pub fn mkfs_with(
        disk: Arc<dyn Disk>,
        log: Option<Arc<dyn Disk>>,
        options: &MkfsOptions,
    ) -> Result<()> {
        let log_len = options.log_bytes.next_multiple_of(BLOCK);
        let size = disk.size() / BLOCK * BLOCK;
        let here = if options.log == LogPlacement::Device { log_len } else { 0 };
        if log_len < LOG_MIN || size < LOG_OFF + here + (8 << 20) {
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
            placement: options.log,
            mount: 0,
            log_ready: options.log == LogPlacement::Memory,
            manifest: Stream::default(),
            lists: 0,
        };
        let mut used = Bitmap::new(size / BLOCK);
        used.set(0, superblock.first_block());
        let alloc = Arc::new(Mutex::new(Alloc::new(used)));
        let space = Space { disk: disk.clone(), alloc, ledger: None };
        placement::make(log.as_deref(), &*disk, &superblock)?;
        let map = UsedMap::begin(&space)?;
        crate::label::clear(&*disk)?;
        checkpoint::write_manifest(&space, &checkpoint::empty(map), &superblock)?;
        Ok(())
    }

    /// Opens a store and replays its log: all that was acknowledged is there again.
    ///
    /// # Errors
    /// [`StoreError::Format`] when it is not a store, of a newer format, another
    /// cluster's or OSD's, or in use; [`StoreError::Corrupt`]; [`StoreError::Io`].
    pub fn open(path: &Path, options: OpenOptions) -> Result<Self> {
        let mut disk = FileDisk::open(path)?;
        if options.threads && !options.discard {
            disk.take_ahead();
        }
        let reads = options.io_uring.then(|| disk.use_io_uring()).flatten();
        if options.io_uring && reads.is_none() {
            tracing::info!("io_uring is not allowed here; reading and writing by plain calls");
        }
        let (log, appends) = match Superblock::read(&disk)?.placement {
            LogPlacement::Own => {
                let log = options.log_path.clone().unwrap_or_else(|| placement::beside(path));
                let log = FileDisk::open(&log)?;
                let appends = log.for_writes().ok();
                (Some(Arc::new(log) as Arc<dyn Disk>), appends)
            }
            LogPlacement::Device => (None, disk.for_writes().ok()),
            LogPlacement::Memory => (None, None),
        };
        let gathers = options.gather && options.threads;
        let mut store = Self::open_with(Arc::new(disk), log, options)?;
        if let Some(reads) = reads {
            store.ring_fds.extend(store.fetches.read_by_ring(reads));
            let ring = appends.filter(|_| gathers);
            if let Some((ring, fd)) = ring.and_then(|f| LogRing::new(f, store.commit.clone())) {
                store.log_ring = Some(ring);
                store.ring_fds.push(fd);
            }
        }
        Ok(store)
    }

    /// A look at a store whose log is damaged: what was written before the damage is there, nothing of
    /// what came after, and nothing that is written here stays. What is told of a store like this is
    /// no more than a copy that was away: it must not serve as the OSD's own.
    ///
    /// # Errors
    /// As [`Store::open`], of what else is damaged.
    pub fn look(path: &Path, waker: Waker) -> Result<Self> {
        let disk: Arc<dyn Disk> = Arc::new(FileDisk::open(path)?);
        let log = match Superblock::read(&*disk)?.placement {
            LogPlacement::Own => Some(Arc::new(FileDisk::open(&placement::beside(path))?) as _),
            LogPlacement::Device | LogPlacement::Memory => None,
        };
        let options = OpenOptions { waker, io_uring: false, ..OpenOptions::default() };
        Self::look_on(disk, log, options)
    }

    /// As [`Store::look`], on any disk.
    ///
    /// # Errors
    /// As [`Store::look`].
    pub fn look_on(
        disk: Arc<dyn Disk>,
        log: Option<Arc<dyn Disk>>,
        options: OpenOptions,
    ) -> Result<Self> {
        let over = |disk| Arc::new(Overlay::new(disk)) as Arc<dyn Disk>;
        let options = OpenOptions { past_damage: true, ..options };
        Self::open_with(over(disk), log.map(over), options)
    }

    /// As [`Store::open`], on any disk.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_on(disk: Arc<dyn Disk>, options: OpenOptions) -> Result<Self> {
        Self::open_with(disk, None, options)
    }

    /// As [`Store::open_on`]; `log` is for [`LogPlacement::Own`].
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_with(
        disk: Arc<dyn Disk>,
        log: Option<Arc<dyn Disk>>,
        options: OpenOptions,
    ) -> Result<Self> {
        let mut superblock = Superblock::read(&*disk)?;
        if options.fsid.is_some_and(|fsid| fsid != superblock.fsid) {
            let fsid = superblock.fsid;
            return Err(StoreError::Format(format!("the store belongs to cluster {fsid}")));
        }
        if options.osd.is_some_and(|osd| osd != superblock.osd) {
            let osd = superblock.osd;
            return Err(StoreError::Format(format!("the store belongs to osd.{osd}")));
        }
        let (manifest, blocks) = Manifest::read(&*disk, &superblock)?;
        let map = match &manifest.used {
            Used::Here(_) => None,
            Used::Apart(map) => Some(map.clone()),
        };
        let own = Own { manifest: blocks, map };
        let mut state = open::load(&disk, &superblock, &manifest, &own, &options)?;
        let generation = superblock.generation;
        let (log, ring) = placement::find(&disk, log, &superblock)?;
        superblock.generation += 1;
        superblock.mount += 1;
        let start = manifest.place();
        let (mut seq, mut head, mut resting) = (manifest.seq, start, Vec::new());
        if let Some(log) = log.disk() {
            let from = (generation, options.past_damage);
            let found = open::replay(&mut state, &**log, ring, from, &manifest)?;
            (seq, head, resting) = (found.seq, found.place, found.resting);
        }
        // What the last run had written and not flushed is durable before anything builds on it:
        // the data of its last groups, and the superblock that was just read.
        disk.flush().map_err(StoreError::io("flushing the device"))?;
        if let LogDisk::Own(log) = &log {
            log.flush().map_err(StoreError::io("flushing the log"))?;
        }
        // From here on the log holds groups of this mount.
        superblock.write(&*disk)?;

        let at = (manifest.log_pos, superblock.generation);
        let commit = Committer::new(disk.clone(), (log, ring), at, head, seq, options.waker);
        let commit = Arc::new(commit.gathering(options.gather));
        let checkpoint_bytes = match options.checkpoint_bytes {
            0 => ring.len / 4,
            n => n.min(ring.len / 2).min((superblock.size / 64).max(1 << 20)),
        };
        let (outcome_sender, outcomes) = channel();
        let threads = options
            .threads
            .then(|| start_threads(&state.space, &commit, &outcome_sender, superblock.log_ready))
            .transpose()?;
        let fetches = Fetches::new(disk, state.pool.clone(), commit.clone());
        let mut store = Self {
            state,
            commit,
            superblock,
            own: Arc::new(own),
            map_changes_bytes: options.map_changes_bytes,
            seq,
            opened_at: seq,
            checkpointed: manifest.seq,
            next_table: manifest.next_table,
            checkpoint_bytes,
            since_freeze: head.pos - start.pos,
            resting: VecDeque::new(),
            resting_blocks: 0,
            freed_runs: 0,
            fetches,
            ring_fds: Vec::new(),
            log_ring: None,
            callbacks: VecDeque::new(),
            threads,
            job: None,
            begun: VecDeque::new(),
            outcomes,
            outcome_sender,
            prepared: VecDeque::new(),
            stopped: false,
            warm: Vec::new(),
            merging: None,
            ledger: Arc::default(),
            retired: Vec::new(),
            retiring: Vec::new(),
            discards: Discards::new(options.discard),
            staged: Vec::new(),
            merges_fail: false,
            sweeps: Sweeps { bounds: Bounds::new(options.sweep_objects), last: 0, ended: false },
        };
        for (seq, freed) in resting {
            store.rest(seq, vec![freed]);
        }
        if options.discard {
            let mut alloc = store.state.space.alloc.lock().expect("no holder of this lock panics");
            alloc.track_stale();
        }
        store.release_leftovers()?;
        // The rest follows: who has just opened the store waits for this group.
        store.sweep_if_due()?;
        store.begin_merge();
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
        self.give_up_merge();
        // None begins any more.
        self.merges_fail = true;
        self.sweeps.ended = true;
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
        self.give_up_merge();
        self.finish_discard();
        self.fetches.stop();
        self.log_ring = None;
        if let Some(Threads { io, preparer, checkpointer, jobs }) = self.threads.take() {
            drop(jobs);
            self.commit.stop();
            if preparer.is_some_and(|p| p.join().is_err()) {
                tracing::error!("the preparer of the log panicked");
            }
            for thread in io.into_iter().chain([checkpointer]) {
                if thread.join().is_err() {
                    tracing::error!("a thread of the store panicked");
                }
            }
        }
    }

    /// What it holds in memory.
    #[must_use]
    pub fn memory(&self) -> Memory {
        let caches = self.state.caches.borrow();
        let frozen = self.state.frozen.as_ref().map_or(0, |f| f.map.len());
        let flight = self.state.flight.values();
        Memory {
            onodes: caches.onodes.held(),
            tables: caches.tables.held(),
            indices: self.state.tables.iter().map(|t| t.kept_bytes()).sum(),
            changes: (
                self.state.active.len() + frozen,
                self.state.active_bytes + self.state.frozen_bytes,
            ),
            flight: (self.state.flight.len(), flight.map(|(data, _)| data.len() as u64).sum()),
        }
    }

    /// The cluster, the OSD and its incarnation for which it was made.
    #[must_use]
    pub fn identity(&self) -> (Uuid, OsdId, Uuid) {
        (self.superblock.fsid, self.superblock.osd, self.superblock.osd_uuid)
    }

    /// Where the log is: in [`LogPlacement::Memory`] what is acknowledged is not safe.
    #[must_use]
    pub fn log_placement(&self) -> LogPlacement {
        self.superblock.placement
    }

    /// Applies `txn`: reads see it from now on; it is durable once [`Store::durable`] has
    /// reached the returned number, which counts up.
    ///
    /// # Errors
    /// Nothing was applied: [`StoreError::NoSpace`], [`StoreError::NoCollection`],
    /// [`StoreError::NoObject`] (a clone's source), [`StoreError::Invalid`],
    /// [`StoreError::Corrupt`] (metadata), [`StoreError::Stopped`]. Data to be copied that cannot
    /// be read is no error: it cannot be read in the copy either.
    pub fn submit(&mut self, mut txn: Transaction) -> Result<Seq> {
        self.background()?;
        let mut known = self.validate(&txn)?;
        let before = self.checkpointed;
        self.make_room(&txn)?;
        if self.checkpointed != before {
            // The checkpoint moved what it wrote.
            known.forget();
        }
        let seq = self.seq + 1;
        let applied = self.apply(seq, &mut txn, &mut known);
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
    pub(crate) fn submit_own(&mut self, op: Op) -> Result<()> {
        let txn = Transaction { ops: vec![op], ..Transaction::default() };
        let seq = self.seq + 1;
        self.state.apply(seq, &txn, &mut Known::default(), false)?;
        self.queue(seq, &txn, Vec::new());
        Ok(())
    }

    pub(crate) fn queue(&mut self, seq: Seq, txn: &Transaction, data: Vec<(u64, Bytes)>) {
        self.seq = self.seq.max(seq);
        let freed = std::mem::take(&mut self.state.freed);
        self.rest(seq, freed);
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

    /// Begins to write what was submitted; see [`OpenOptions::gather`].
    pub fn kick(&mut self) {
        match &mut self.log_ring {
            Some(ring) => ring.begin(),
            None => self.commit.begin(),
        }
    }

    /// What is readable when [`Store::complete`] or [`Store::fetched`] may have something for
    /// which nobody is woken. Given once, and only where the kernel allows io_uring.
    pub fn ring_fds(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.ring_fds)
    }

    /// Waits until a part of the log is written that nobody is woken for; not at all where none
    /// is under way, which it tells.
    pub fn wait_written(&mut self) -> bool {
        self.log_ring.as_mut().is_some_and(LogRing::wait)
    }

    /// Takes over what the owner has written itself.
    fn reap(&mut self) {
        if let Some(ring) = &mut self.log_ring {
            ring.reap();
        }
        self.log_ring.take_if(|ring| ring.is_over());
    }

    /// The last transaction submitted.
    #[must_use]
    pub fn submitted(&self) -> Seq {
        self.seq
    }

    /// The last transaction that was found when the store was opened.
    #[must_use]
    pub fn opened_at(&self) -> Seq {
        self.opened_at
    }

    /// Runs the callbacks of what has become durable, in order, and does the owner's part
    /// of background work, among it a step of what removed collections leave to do. To be
    /// called after each wake-up. Returns [`Store::durable`].
    ///
    /// # Errors
    /// [`StoreError::Stopped`] when a write failed: nothing after it will become durable.
    pub fn complete(&mut self) -> Result<Seq> {
        let durable = self.look_after()?;
        self.sweep_if_due()?;
        Ok(durable)
    }

    /// As [`Store::complete`], but sweeps nothing.
    fn look_after(&mut self) -> Result<Seq> {
        self.reap();
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
        self.await_all()?;
        self.sweep_if_due()
    }

    /// As [`Store::sync`], but sweeps nothing: no checkpoint begins, and what rests may be free
    /// behind it.
    pub(crate) fn await_all(&mut self) -> Result<()> {
        if self.threads.is_none() {
            while self.step() {}
        }
        self.kick();
        while self.durable() < self.seq && self.wait_written() {}
        self.commit.wait(self.seq)?;
        self.look_after().map(drop)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Smallest log that works: a record of less than large data takes a part of it only.
const LOG_MIN: u64 = 1 << 20;
