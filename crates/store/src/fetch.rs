//! Reads of object data from the device: what to read, and how it is read while the store's
//! owner goes on. Small reads the owner has under way itself, by io_uring; all others, and
//! where that is not allowed, threads do.
//!
//! Invariants: a plan names blocks that nobody writes to while it is carried out: whoever
//! begins a [`Fetch`] keeps the blocks that are freed from then on out of use until it is
//! done ([`Fetches::oldest`]).

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use env::Disk;
use stdx::BlockSums;
use types::HObject;

use crate::buf::{Pool, Pooled};
use crate::commit::Committer;
use crate::onode::{BLOCK, Extent, Onode};
use crate::space::read_past_caches;
use crate::uring::ReadRing;
use crate::{Coll, StoreError};

type Result<T> = std::result::Result<T, StoreError>;

/// Where a range of an object is.
pub(crate) enum Found {
    Here(Bytes),
    OnDevice(ReadPlan),
}

/// A run of the object's blocks `at..end`, from `phys` on the device; where they are
/// compressed, `phys` and `data` are the whole blob's.
pub(crate) struct Run {
    pub at: u64,
    pub end: u64,
    pub phys: u64,
    /// The data, while it is on its way to the device.
    pub data: Option<Bytes>,
}

/// How data is read from the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Through the caches below.
    Cached,
    /// Past them.
    Direct,
    /// Past them, [`STEP`] by [`STEP`]: a device does one thing after the other, and others'
    /// flushes wait behind a large one.
    Gently,
}

impl Way {
    fn read(self, disk: &dyn Disk, off: u64, out: &mut [u8]) -> std::io::Result<()> {
        match self {
            Self::Cached => disk.read(off, out),
            Self::Direct => disk.read_once(off, out),
            Self::Gently => {
                let mut steps = out.chunks_mut(STEP).enumerate();
                steps.try_for_each(|(i, step)| disk.read_once(off + (i * STEP) as u64, step))
            }
        }
    }
}

/// Bytes of a step of [`Way::Gently`].
const STEP: usize = 128 << 10;

/// How to read the bytes `off..end` of an object.
pub(crate) struct ReadPlan {
    pub onode: Arc<Onode>,
    pub off: u64,
    pub end: u64,
    pub runs: Vec<Run>,
    pub way: Way,
}

impl ReadPlan {
    fn blocks(&self) -> (u64, u64) {
        (self.off / BLOCK, self.end.div_ceil(BLOCK))
    }

    fn extent(&self, run: &Run) -> &Extent {
        self.onode.extent_of(run.at).expect("the run was cut from this extent")
    }

    fn crcs(&self, run: &Run) -> &[u32] {
        let e = self.extent(run);
        match e.packed {
            None => &e.crcs[(run.at - e.at) as usize..(run.end - e.at) as usize],
            Some(_) => &e.crcs,
        }
    }

    /// Puts a run's data into `out`; `read` gets what is on the device. Not so when that
    /// declines, or when a blob does not give what it should.
    fn fill(
        &self,
        pool: &Pool,
        run: &Run,
        out: &mut [u8],
        read: &mut dyn FnMut(&Run, &mut [u8]) -> Result<bool>,
    ) -> Result<bool> {
        let e = self.extent(run);
        match (&run.data, &e.packed) {
            (Some(data), None) => out.copy_from_slice(data),
            (None, None) => return read(run, out),
            (Some(data), Some(p)) => return Ok(p.unpack(data, run.at - e.at, out)),
            (None, Some(p)) => {
                let mut raw = pool.take((e.device_blocks() * BLOCK) as usize);
                return Ok(read(run, &mut raw)? && p.unpack(&raw, run.at - e.at, out));
            }
        }
        Ok(true)
    }

    /// The sums of what is asked for, from those of its blocks: where it is whole blocks of large
    /// data with nothing over or between them.
    fn sums(&self) -> Option<BlockSums> {
        let (first, last) = self.blocks();
        let whole = (first * BLOCK, last * BLOCK) == (self.off, self.end);
        if !whole
            || last - first <= SMALL
            || self.onode.pieces_in(self.off, self.end).next().is_some()
        {
            return None;
        }
        let mut at = first;
        for run in &self.runs {
            if run.at != at || self.extent(run).packed.is_some() {
                return None;
            }
            at = run.end;
        }
        let all = self.runs.iter().flat_map(|run| self.crcs(run).iter().copied());
        if at == last { BlockSums::from_blocks(all) } else { None }
    }

    /// Reads the runs that are on the device as they are, as many at once as the way allows;
    /// whether it did.
    fn read_at_once(&self, disk: &dyn Disk, buf: &mut [u8]) -> bool {
        let step = if self.way == Way::Gently { STEP } else { usize::MAX };
        let (mut at, mut rest, mut reads) = (self.blocks().0, buf, Vec::new());
        for run in &self.runs {
            // What lies between it and the one before, and its own.
            let mut up_to = |block: u64| {
                let blocks = block - std::mem::replace(&mut at, block);
                rest.split_off_mut(..(blocks * BLOCK) as usize)
            };
            let (_, out) = (up_to(run.at), up_to(run.end));
            if run.data.is_none() && self.extent(run).packed.is_none() {
                let mut off = run.phys * BLOCK;
                for part in out.unwrap_or_default().chunks_mut(step) {
                    let end = off + part.len() as u64;
                    reads.push((std::mem::replace(&mut off, end), part));
                }
            }
        }
        let mut reads = &mut reads[..];
        if reads.len() < 2 {
            return false; // there is nothing to gain
        }
        while !reads.is_empty() {
            let mut bytes = 0;
            let fits = |(_, part): &&(u64, &mut [u8])| {
                bytes += part.len();
                bytes <= step
            };
            let n = reads.iter().take_while(fits).count();
            let now = reads.split_off_mut(..n).unwrap_or_default();
            if disk.read_many(now, self.way != Way::Cached).is_err() {
                return false;
            }
        }
        true
    }

    /// Fills the gaps between runs with zeros, what is in memory from there, and lets
    /// `read` do the others, when `begin` has had a look at all of it. Returns the bytes asked
    /// for; `None` as soon as `read` says `false`.
    fn gather(
        &self,
        pool: &Pool,
        begin: impl FnOnce(&mut [u8]),
        read: &mut dyn FnMut(&Run, &mut [u8]) -> Result<bool>,
    ) -> Result<Option<Bytes>> {
        let (first, last) = self.blocks();
        let at = |block: u64| ((block - first) * BLOCK) as usize;
        let mut buf = pool.take(at(last));
        begin(&mut buf);
        let mut filled = 0;
        for run in &self.runs {
            buf[filled..at(run.at)].fill(0);
            filled = at(run.end);
            let out = &mut buf[at(run.at)..at(run.end)];
            if !self.fill(pool, run, out, read)? {
                return Ok(None);
            }
        }
        buf[filled..].fill(0);
        Ok(Some(self.finish(buf)))
    }

    /// From the plan's blocks as the device has them the bytes asked for, with what lies over
    /// them.
    fn finish(&self, mut buf: Pooled) -> Bytes {
        let (first, last) = self.blocks();
        let base = first * BLOCK;
        for p in self.onode.pieces_in(base, last * BLOCK) {
            let (lo, hi) = (p.off.max(base), p.end().min(last * BLOCK));
            buf[(lo - base) as usize..(hi - base) as usize]
                .copy_from_slice(&p.data[(lo - p.off) as usize..(hi - p.off) as usize]);
        }
        let all = buf.freeze();
        all.slice((self.off - base) as usize..(self.end - base) as usize)
    }

    /// The one run of all of the plan's blocks, when it is a small one that has to be read as
    /// it is.
    fn small(&self) -> Option<&Run> {
        let [run] = self.runs.as_slice() else { return None };
        let whole = (run.at, run.end) == self.blocks() && run.end - run.at <= SMALL;
        let plain = run.data.is_none() && self.extent(run).packed.is_none();
        (whole && plain && self.way == Way::Cached).then_some(run)
    }

    /// Reads and verifies. `name` is for errors.
    pub fn run(&self, disk: &dyn Disk, pool: &Pool, name: &dyn Fn() -> String) -> Result<Bytes> {
        let there = Cell::new(false);
        let begin = |buf: &mut [u8]| there.set(self.read_at_once(disk, buf));
        let data = self.gather(pool, begin, &mut |run, out| {
            let crcs = self.crcs(run);
            let is_there = there.get() && self.extent(run).packed.is_none();
            if !is_there || first_wrong(out, crcs).is_some() {
                read_blocks(disk, run.phys, crcs, out, self.way, name, run.at * BLOCK)?;
            }
            Ok(true)
        })?;
        // The reader never declines.
        data.ok_or_else(|| StoreError::Format(format!("{}: compressed data is malformed", name())))
    }

    /// The bytes, when a cache below has them and every checksum fits.
    pub fn run_cached(&self, disk: &dyn Disk, pool: &Pool) -> Option<Bytes> {
        let read = &mut |run: &Run, out: &mut [u8]| {
            let there = disk.read_cached(run.phys * BLOCK, out);
            Ok(there && first_wrong(out, self.crcs(run)).is_none())
        };
        self.gather(pool, |_| (), read).ok().flatten()
    }
}

fn first_wrong(data: &[u8], crcs: &[u32]) -> Option<usize> {
    let blocks = data.chunks_exact(BLOCK as usize).zip(crcs);
    blocks.enumerate().find(|(_, (b, crc))| stdx::crc32c(!0, b) != **crc).map(|(i, _)| i)
}

/// Reads blocks and verifies each. What does not fit is read once more, past the caches, before
/// it is called damaged.
pub(crate) fn read_blocks(
    disk: &dyn Disk,
    phys: u64,
    crcs: &[u32],
    out: &mut [u8],
    way: Way,
    name: &dyn Fn() -> String,
    offset: u64,
) -> Result<()> {
    let what = "reading data";
    way.read(disk, phys * BLOCK, out).map_err(StoreError::io(what))?;
    if first_wrong(out, crcs).is_none() {
        return Ok(());
    }
    read_past_caches(disk, phys * BLOCK, out).map_err(StoreError::io(what))?;
    let Some(i) = first_wrong(out, crcs) else {
        tracing::warn!(device = phys * BLOCK, "a checksum fitted only on the second reading");
        return Ok(());
    };
    let (offset, device) = (offset + i as u64 * BLOCK, (phys + i as u64) * BLOCK);
    let what = name();
    tracing::error!(object = %what, offset, device, "checksum mismatch");
    Err(StoreError::Corrupt { what, offset, device })
}

/// Names a read that is under way.
pub type FetchId = u64;

/// What [`crate::Store::fetch`] found.
#[derive(Debug)]
pub enum Fetch {
    /// The data.
    Ready(Bytes),
    /// [`crate::Store::fetched`] gives it later.
    Later(FetchId),
}

struct Job {
    id: FetchId,
    plan: ReadPlan,
    /// Whose data it is, for errors.
    of: (Coll, HObject),
}

/// Data that is made durable at its place ahead of the transaction that refers to it.
struct Ahead {
    id: FetchId,
    /// Parts of it, and where they go on the device.
    writes: Vec<(u64, Bytes)>,
    data: Bytes,
}

/// What is written ahead is durable after so many bytes each. A device that has taken much at
/// once makes the next flush wait for it, whoever's it is.
const AHEAD_STEP: usize = 128 << 10;

impl Ahead {
    fn run(&self, disk: &dyn Disk) -> Result<()> {
        for (off, data) in &self.writes {
            for (i, step) in data.chunks(AHEAD_STEP).enumerate() {
                let off = off + (i * AHEAD_STEP) as u64;
                disk.commit(&[(off, step)]).map_err(StoreError::io("writing data ahead"))?;
            }
        }
        Ok(())
    }
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    ahead: VecDeque<Ahead>,
    /// Data is being written ahead: by one thread at a time.
    writing: bool,
    idle: usize,
    closed: bool,
}

/// Threads at most: as many reads are under way on the device.
const THREADS_MAX: usize = 16;
/// Blocks of a read that is not worth a thread.
const SMALL: u64 = 16;
/// So many small reads are not held back for those that may follow.
const TOLD_AT: usize = 16;
/// After so many reads in a row that no cache below had, so many are not looked for there.
const MISSES: u32 = 32;
const PASSED: u32 = 7;

struct Shared {
    queue: Mutex<Queue>,
    more: Condvar,
    disk: Arc<dyn Disk>,
    pool: Pool,
    commit: Arc<Committer>,
    /// The owner was woken and has not found nothing more since: it need not be woken again.
    told: AtomicBool,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("no holder of this lock panics")
    }

    fn work(&self, done: &Sender<Done>) {
        loop {
            let mut queue = self.queue();
            let task = loop {
                if let Some(job) = queue.jobs.pop_front() {
                    break Task::Read(job);
                }
                if !queue.writing
                    && let Some(ahead) = queue.ahead.pop_front()
                {
                    queue.writing = true;
                    break Task::Write(ahead);
                }
                if queue.closed {
                    return;
                }
                queue.idle += 1;
                queue = self.more.wait(queue).expect("no holder of this lock panics");
                queue.idle -= 1;
            };
            drop(queue);
            let result = match task {
                Task::Read(job) => {
                    let name = || format!("{} {}", job.of.0, job.of.1);
                    let data = job.plan.run(&*self.disk, &self.pool, &name);
                    (job.id, data.map(|data| (data, job.plan.sums())))
                }
                Task::Write(ahead) => {
                    let written = ahead.run(&*self.disk);
                    // Who looks for work finds the next: this thread, if no other.
                    self.queue().writing = false;
                    (ahead.id, written.map(|()| (ahead.data, None)))
                }
            };
            if done.send(result).is_err() {
                return;
            }
            if !self.told.swap(true, Ordering::SeqCst) {
                self.commit.wake_owner();
            }
        }
    }
}

enum Task {
    Read(Job),
    Write(Ahead),
}

/// What was read, and its sums where they are known.
pub type Summed = (Bytes, Option<BlockSums>);

type Done = (FetchId, Result<Summed>);

/// Makes `data` durable in runs of blocks, at once.
pub(crate) fn write_ahead(disk: &dyn Disk, data: &Bytes, runs: &[(u64, u64)]) -> Result<()> {
    Ahead { id: 0, writes: in_runs(data, runs).collect(), data: Bytes::new() }.run(disk)
}

/// The parts of `data` in each run of blocks, and where they go on the device.
pub(crate) fn in_runs(data: &Bytes, runs: &[(u64, u64)]) -> impl Iterator<Item = (u64, Bytes)> {
    let mut from = 0;
    runs.iter().map(move |(start, len)| {
        let bytes = (len * BLOCK) as usize;
        from += bytes;
        (start * BLOCK, data.slice(from - bytes..from))
    })
}

/// Reads under way, and the threads of those that are not small, which begin with the first.
pub(crate) struct Fetches {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    done: Receiver<Done>,
    finished: Sender<Done>,
    /// Small reads.
    ring: Option<ReadRing<Job>>,
    next: FetchId,
    /// Looks into the caches below that found nothing, one after the other; and those left out
    /// since.
    misses: u32,
    passed: u32,
    /// Reads under way, with how many freed runs of blocks each found in rest or gone.
    under_way: BTreeMap<FetchId, u64>,
}

impl Fetches {
    pub fn new(disk: Arc<dyn Disk>, pool: Pool, commit: Arc<Committer>) -> Self {
        let (finished, done) = channel();
        let (queue, more) = (Mutex::default(), Condvar::new());
        let told = AtomicBool::new(false);
        let shared = Arc::new(Shared { queue, more, disk, pool, commit, told });
        Self {
            shared,
            threads: Vec::new(),
            done,
            finished,
            ring: None,
            next: 0,
            misses: 0,
            passed: 0,
            under_way: BTreeMap::new(),
        }
    }

    /// From now on small data is read by io_uring, from the disk's file; what becomes readable
    /// when some was. `None` where the kernel does not allow it.
    pub fn read_by_ring(&mut self, file: File) -> Option<OwnedFd> {
        let ring = ReadRing::new(file)?;
        let fd = ring.fd().ok()?;
        self.ring = Some(ring);
        Some(fd)
    }

    /// The bytes, when a cache below has them. Where many were not there, only now and then one
    /// is looked for: that costs as much as to have it read.
    pub fn look_in_cache(&mut self, plan: &ReadPlan) -> Option<Bytes> {
        if self.misses >= MISSES && self.passed < PASSED {
            self.passed += 1;
            return None;
        }
        self.passed = 0;
        let data = plan.run_cached(&*self.shared.disk, &self.shared.pool);
        self.misses = if data.is_some() { 0 } else { self.misses.saturating_add(1) };
        data
    }

    /// Begins one. `freed` counts the runs of blocks that were freed before.
    pub fn begin(&mut self, plan: ReadPlan, of: (Coll, HObject), freed: u64) -> Result<FetchId> {
        self.next += 1;
        let id = self.next;
        let small = plan.small().map(|run| (run.phys * BLOCK, (run.end - run.at) * BLOCK));
        let job = Job { id, plan, of };
        match (&mut self.ring, small) {
            (Some(ring), Some((off, len))) if ring.has_room() => {
                ring.begin(job, off, self.shared.pool.take(len as usize));
                if ring.untold() >= TOLD_AT {
                    self.submit(0);
                }
            }
            _ => self.give(job)?,
        }
        self.under_way.insert(id, freed);
        Ok(id)
    }

    /// Has the kernel begin the small reads that it does not know of.
    pub fn kick(&mut self) {
        if self.ring.as_mut().is_some_and(|ring| ring.untold() > 0) {
            self.submit(0);
        }
    }

    fn submit(&mut self, wait: usize) {
        let Some(Err(e)) = self.ring.as_mut().map(|ring| ring.submit(wait)) else { return };
        tracing::warn!("io_uring is not used for reads any more: {e}");
        let jobs = self.ring.take().map(|mut ring| ring.end());
        for job in jobs.into_iter().flatten() {
            let id = job.id;
            if let Err(e) = self.give(job) {
                let _ = self.finished.send((id, Err(e)));
                self.shared.commit.wake_owner();
            }
        }
    }

    /// Begins to make `data` durable in runs of blocks. `freed` as for [`Fetches::begin`].
    pub fn begin_ahead(
        &mut self,
        data: &Bytes,
        runs: &[(u64, u64)],
        freed: u64,
    ) -> Result<FetchId> {
        self.next += 1;
        let ahead =
            Ahead { id: self.next, writes: in_runs(data, runs).collect(), data: data.clone() };
        self.hand_over(|queue| queue.ahead.push_back(ahead))?;
        self.under_way.insert(self.next, freed);
        Ok(self.next)
    }

    /// Has a thread do it.
    fn give(&mut self, job: Job) -> Result<()> {
        self.hand_over(|queue| queue.jobs.push_back(job))
    }

    fn hand_over(&mut self, put: impl FnOnce(&mut Queue)) -> Result<()> {
        let mut queue = self.shared.queue();
        let waiting = queue.jobs.len() + queue.ahead.len();
        if waiting >= queue.idle && self.threads.len() < THREADS_MAX {
            let (shared, done) = (self.shared.clone(), self.finished.clone());
            let thread = std::thread::Builder::new()
                .name("store-read".into())
                .spawn(move || shared.work(&done))
                .map_err(StoreError::io("starting a thread"));
            match thread {
                Ok(thread) => self.threads.push(thread),
                Err(e) if self.threads.is_empty() => return Err(e),
                Err(_) => {} // those there are take it
            }
        }
        put(&mut queue);
        let wakes = queue.idle > 0;
        drop(queue);
        if wakes {
            self.shared.more.notify_one();
        }
        Ok(())
    }

    /// A small read that is done. What did not come whole, or is not what it should be, goes to a
    /// thread: that reads once more, and tells what is wrong.
    fn next_small(&mut self) -> Option<Done> {
        loop {
            let (job, buf) = self.ring.as_mut()?.next()?;
            let id = job.id;
            let crcs = job.plan.crcs(job.plan.small().expect("only small ones are in the ring"));
            let data = match buf.filter(|buf| first_wrong(buf, crcs).is_none()) {
                Some(buf) => Ok((job.plan.finish(buf), None)),
                None => match self.give(job) {
                    Ok(()) => continue,
                    Err(e) => Err(e),
                },
            };
            self.under_way.remove(&id);
            return Some((id, data));
        }
    }

    /// Waits until one is done, or a while; not at all where none is under way.
    pub fn wait(&mut self) {
        const A_WHILE: Duration = Duration::from_millis(100);
        if self.ring.as_ref().is_some_and(|ring| ring.len() > 0) {
            self.submit(1);
        } else if !self.under_way.is_empty()
            && let Ok(done) = self.done.recv_timeout(A_WHILE)
        {
            let _ = self.finished.send(done);
        }
    }

    /// One that is done. The owner is woken again for later ones after there was none.
    pub fn next_done(&mut self) -> Option<Done> {
        if self.under_way.is_empty() {
            self.shared.told.store(false, Ordering::SeqCst);
            return None;
        }
        let small = self.next_small();
        if small.is_some() {
            return small;
        }
        self.kick();
        let done = self.done.try_recv().or_else(|_| {
            self.shared.told.store(false, Ordering::SeqCst);
            self.done.try_recv()
        });
        let (id, data) = done.ok()?;
        self.under_way.remove(&id);
        Some((id, data))
    }

    /// What was freed after so many runs of blocks may still be read.
    pub fn oldest(&self) -> Option<u64> {
        self.under_way.first_key_value().map(|(_, freed)| *freed)
    }

    /// Ends the threads; what is under way is lost.
    pub fn stop(&mut self) {
        self.ring = None;
        let mut queue = self.shared.queue();
        queue.closed = true;
        queue.jobs.clear();
        queue.ahead.clear();
        drop(queue);
        self.shared.more.notify_all();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread that reads panicked");
            }
        }
    }
}
