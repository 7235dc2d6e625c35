//! The group committer: everything queued goes out as one append and one flush.
//!
//! The owner adds records to the open group under a lock held for one copy; an I/O thread
//! takes the whole group, writes it with the data it points to and flushes. There are two
//! such threads, so that one group is written while the one before is being flushed. A group
//! that goes to the log alone the owner has under way itself, where it can (`logring`).
//! Groups become durable in their order: the last transaction's number is published, and
//! the owner woken, when a group and all before it are done. A group's header calls those
//! groups proven that were durable when it was taken.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};

use bytes::Bytes;
use env::Disk;

use crate::buf::AlignedBuf;
use crate::log::{HEADER, Place, Ring};
use crate::placement::LogDisk;
use crate::{Seq, StoreError, Waker};

/// Records of one group stay below this, or a sixteenth of the ring, except for one that is
/// larger alone.
const GROUP_BYTES: u64 = 2 << 20;
/// Data of one group stays about below this, so that small transactions behind large ones
/// need not wait for all of them.
const GROUP_DATA: u64 = 16 << 20;
/// Bytes that may wait for the I/O thread before the owner does.
const QUEUE_BYTES: u64 = 64 << 20;

#[derive(Default)]
struct Group {
    buf: AlignedBuf,
    first: Seq,
    last: Seq,
    count: u32,
    data: Vec<(u64, Bytes)>,
    data_bytes: u64,
}

impl Group {
    fn bytes(&self) -> u64 {
        self.buf.len() as u64 + self.data_bytes
    }
}

/// A group that is being written.
struct Flight {
    /// Behind it.
    end: Place,
    last: Seq,
    count: u32,
    /// The last transaction that its header calls durable.
    proves: Seq,
    done: bool,
}

/// What a thread writes.
pub(crate) struct Taken {
    group: Group,
    number: u64,
    pos: u64,
    /// The last durable group, and the superblock's generation.
    known: (u64, u64),
}

impl Taken {
    /// What goes to the log.
    pub fn bytes(&self) -> &[u8] {
        &self.group.buf
    }
}

/// What there is to write for the owner itself.
pub(crate) enum ForOwner {
    /// A group, complete, for this place of the log's device.
    Group(u64, Box<Taken>),
    /// A group that cannot be begun yet.
    Later,
    /// Nothing: there is no group, or threads have been told of it.
    Nothing,
}

/// Groups written at a time.
pub(crate) const FLIGHTS: usize = 2;

struct Queue {
    groups: VecDeque<Group>,
    /// Groups under way, in order.
    flights: VecDeque<Flight>,
    bytes: u64,
    /// Where the next group goes.
    head: Place,
    /// Where the oldest record still needed starts.
    tail: u64,
    /// The superblock's.
    generation: u64,
    /// The last finished transaction, and the place behind its group.
    finished: (Seq, Place),
    /// The last transaction before the checkpoint that is being made, once finished its place.
    mark: Option<(Seq, Option<Place>)>,
    spare: Vec<AlignedBuf>,
    /// I/O threads with nothing to do, and whether one of them was woken.
    idle: usize,
    kicked: bool,
    stop: bool,
    /// Part of the ring that is being written for the first time, by its preparer.
    preparing: Option<(u64, u64)>,
    /// Who sleeps until something is done. Waking nobody is a system call, too.
    waiters: usize,
}

/// Shared by the owner, the I/O thread and the checkpointer.
pub(crate) struct Committer {
    disk: Arc<dyn Disk>,
    log: LogDisk,
    ring: Ring,
    group_bytes: u64,
    queue: Mutex<Queue>,
    work: Condvar,
    done: Condvar,
    durable: AtomicU64,
    proven: AtomicU64,
    failed: OnceLock<String>,
    waker: Waker,
    /// Begins to write only when it is told to.
    gathers: bool,
}

impl Committer {
    pub fn new(
        disk: Arc<dyn Disk>,
        (log, ring): (LogDisk, Ring),
        (tail, generation): (u64, u64),
        head: Place,
        last: Seq,
        waker: Waker,
    ) -> Self {
        let queue = Queue {
            groups: VecDeque::new(),
            flights: VecDeque::new(),
            bytes: 0,
            head,
            tail,
            generation,
            finished: (last, head),
            mark: None,
            spare: Vec::new(),
            idle: 0,
            kicked: false,
            stop: false,
            preparing: None,
            waiters: 0,
        };
        Self {
            disk,
            log,
            ring,
            group_bytes: GROUP_BYTES.min(ring.len / 16),
            queue: Mutex::new(queue),
            work: Condvar::new(),
            done: Condvar::new(),
            durable: AtomicU64::new(last),
            proven: AtomicU64::new(0),
            failed: OnceLock::new(),
            waker,
            gathers: false,
        }
    }

    /// Whether writing begins only at [`Committer::begin`].
    pub fn gathering(self, gathers: bool) -> Self {
        Self { gathers, ..self }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("no holder of this lock panics")
    }

    /// Sleeps until something is done.
    fn wait_done<'a>(&self, mut q: MutexGuard<'a, Queue>) -> MutexGuard<'a, Queue> {
        q.waiters += 1;
        q = self.done.wait(q).expect("no holder of this lock panics");
        q.waiters -= 1;
        q
    }

    /// Lets go of the queue, and wakes who waits for what was done.
    fn tell_done(&self, q: MutexGuard<'_, Queue>) {
        let waiters = q.waiters;
        drop(q);
        if waiters > 0 {
            self.done.notify_all();
        }
    }

    /// Durable up to here.
    pub fn durable(&self) -> Seq {
        self.durable.load(Ordering::Acquire)
    }

    /// Durable up to here, and the log says so: replay never asks for the data of these.
    pub fn proven(&self) -> Seq {
        self.proven.load(Ordering::Acquire)
    }

    /// Why nothing is written any more.
    pub fn failed(&self) -> Option<StoreError> {
        self.failed.get().map(|why| StoreError::Stopped(why.clone()))
    }

    pub fn fail(&self, why: String) {
        tracing::error!(%why, "store stops");
        let _ = self.failed.set(why);
        let _guard = self.lock();
        self.work.notify_all();
        self.done.notify_all();
        (self.waker)();
    }

    pub fn wake_owner(&self) {
        (self.waker)();
    }

    /// Most that a record of `len` bytes may take of the ring.
    fn bound(len: u64) -> u64 {
        (len + 4 + HEADER as u64).next_multiple_of(4096)
    }

    /// Bytes of the ring that are needed, at most.
    fn ring_used(q: &Queue) -> u64 {
        let waiting: u64 = q.groups.iter().map(|g| g.buf.len() as u64 + 4096).sum();
        q.head.pos - q.tail + waiting
    }

    /// Whether the ring takes a record of `len` bytes now. One group's length is kept free
    /// for what is skipped at the ring's end.
    pub fn has_room(&self, len: u64) -> bool {
        let q = self.lock();
        let largest = q.groups.iter().map(|g| g.buf.len() as u64).max().unwrap_or(0);
        let skip = largest.max(self.group_bytes).max(len) + 8192;
        Self::ring_used(&q) + Self::bound(len) + 2 * skip <= self.ring.len
    }

    /// Whether the ring could take it were it empty but for what the store writes itself, for which
    /// a sixteenth is left.
    pub fn can_ever_take(&self, len: u64) -> bool {
        Self::bound(len) + 2 * (self.group_bytes.max(len) + 8192) <= self.ring.len / 16 * 15
    }

    /// Bytes of the largest record that [`Committer::can_ever_take`] admits.
    pub fn record_max(&self) -> u64 {
        let room = self.ring.len / 16 * 15;
        // `bound` adds a header and fills a block, each of two skips 8192 bytes.
        let len = room.saturating_sub(4 * 8192) / 3;
        if self.can_ever_take(len) { len } else { 0 }
    }

    /// Queues the record that `encode` appends, and data for the extents it names.
    pub fn push(
        &self,
        seq: Seq,
        encode: impl FnOnce(&mut AlignedBuf),
        data: impl IntoIterator<Item = (u64, Bytes)>,
    ) {
        let mut q = self.lock();
        let open = q.groups.back().is_some_and(|g| {
            g.count > 0
                && (g.buf.len() as u64) < self.group_bytes
                && g.data_bytes < GROUP_DATA
                && g.last != 0
        });
        let sealed = q.mark.is_some_and(|(s, _)| q.groups.back().is_some_and(|g| g.last == s));
        if !open || sealed {
            let mut buf = q.spare.pop().unwrap_or_else(|| AlignedBuf::with_capacity(256 << 10));
            buf.set_len(HEADER);
            q.groups.push_back(Group { buf, first: seq, ..Group::default() });
        }
        let g = q.groups.back_mut().expect("just made sure");
        let before = g.bytes();
        let at = g.buf.len();
        g.buf.put(&[0; 4]);
        encode(&mut g.buf);
        let len = u32::try_from(g.buf.len() - at - 4).expect("a record is below 4 GiB");
        g.buf[at..at + 4].copy_from_slice(&len.to_le_bytes());
        for (off, bytes) in data {
            g.data_bytes += bytes.len() as u64;
            g.data.push((off, bytes));
        }
        g.count += 1;
        g.last = seq;
        let added = g.bytes() - before;
        q.bytes += added;
        if !self.gathers {
            self.kick(q);
        }
    }

    /// Begins to write what is queued.
    pub fn begin(&self) {
        self.kick(self.lock());
    }

    /// Whether the owner should wait before it queues more.
    pub fn is_behind(&self) -> bool {
        self.lock().bytes > QUEUE_BYTES
    }

    /// Whether the oldest group should be written now: at once when none is, beside another
    /// when it is worth a write of its own.
    fn may_start(q: &Queue) -> bool {
        let (Some(g), n) = (q.groups.front(), q.flights.len()) else { return false };
        match q.flights.back() {
            None => true,
            Some(last) => {
                n < FLIGHTS && (q.groups.len() > 1 || g.data_bytes > 0 || 2 * g.count >= last.count)
            }
        }
    }

    /// Lets go of the queue, and wakes an idle thread where there is something to start: in
    /// this order, for a thread that wakes wants the queue.
    fn kick(&self, mut q: MutexGuard<'_, Queue>) {
        let wakes = q.idle > 0 && !q.kicked && Self::may_start(&q);
        q.kicked |= wakes;
        drop(q);
        if wakes {
            self.work.notify_one();
        }
    }

    /// Where the oldest group would go, and its length; `None` where there is none.
    fn place_of_next(&self, q: &Queue) -> Option<(u64, u64)> {
        let len = (q.groups.front()?.buf.len() as u64).next_multiple_of(4096);
        Some((self.ring.fit(q.head.pos, len), len))
    }

    /// Whether these bytes of the ring are being written for the first time.
    fn is_preparing(q: &Queue, (pos, len): (u64, u64)) -> bool {
        q.preparing.is_some_and(|(from, to)| pos < to && from < pos + len)
    }

    /// The oldest group, if it may be written now and goes to the log alone; threads are told
    /// of any other. There is a log.
    pub fn take_for_owner(&self) -> ForOwner {
        let q = self.lock();
        let Some(place) = self.place_of_next(&q) else { return ForOwner::Nothing };
        if self.failed.get().is_some() {
            // A group behind one that is missing would call it durable.
            return ForOwner::Nothing;
        }
        if !Self::may_start(&q) {
            return ForOwner::Later;
        }
        let alone = q.groups.front().is_some_and(|g| g.data.is_empty());
        if !alone || Self::is_preparing(&q, place) {
            self.kick(q);
            return ForOwner::Nothing;
        }
        let (q, taken) = self.take(q);
        drop(q);
        let mut taken = taken.expect("there is a group");
        let (at, _) = self.seal(&mut taken);
        ForOwner::Group(at, Box::new(taken))
    }

    /// Takes the oldest group for writing. The queue has one.
    fn take<'a>(&self, mut q: MutexGuard<'a, Queue>) -> (MutexGuard<'a, Queue>, Option<Taken>) {
        loop {
            let Some((pos, len)) = self.place_of_next(&q) else { return (q, None) };
            if Self::is_preparing(&q, (pos, len)) {
                q = self.wait_done(q);
                continue;
            }
            let ok = pos + len - q.tail <= self.ring.len;
            assert!(ok, "records still needed are not overwritten");
            let number = q.head.group;
            q.head = Place { group: number + 1, pos: pos + len };
            let group = q.groups.pop_front().expect("there is a front");
            let flight = Flight {
                end: q.head,
                last: group.last,
                count: group.count,
                proves: q.finished.0,
                done: false,
            };
            q.flights.push_back(flight);
            let known = (q.finished.1.group.saturating_sub(1), q.generation);
            return (q, Some(Taken { group, number, pos, known }));
        }
    }

    /// A group was written: it and those behind it that were done before are durable once
    /// all before it are. Whether any is now.
    pub fn finish(&self, taken: Taken) -> bool {
        let mut g = taken.group;
        let bytes = g.bytes();
        g.data.clear();
        let mut q = self.lock();
        q.bytes = q.bytes.saturating_sub(bytes);
        let mine = q.flights.iter_mut().find(|f| f.end.group == taken.number + 1);
        mine.expect("it stays until it is done").done = true;
        let mut some = false;
        while let Some(f) = q.flights.pop_front_if(|f| f.done) {
            some = true;
            self.proven.store(f.proves, Ordering::Release);
            q.finished = (f.last, f.end);
            if let Some((seq, None)) = q.mark
                && seq == f.last
            {
                q.mark = Some((seq, Some(f.end)));
            }
            self.durable.store(f.last, Ordering::Release);
        }
        if q.spare.len() < 3 && g.buf.len() as u64 <= 2 * GROUP_BYTES {
            g.buf.clear();
            q.spare.push(g.buf);
        }
        if some {
            self.tell_done(q);
        }
        some
    }

    /// As [`Committer::finish`], for an owner that may sleep.
    fn finish_behind(&self, taken: Taken) {
        if self.finish(taken) {
            (self.waker)();
        }
    }

    /// Writes a group by plain calls. Whether it could be.
    pub fn write(&self, mut taken: Taken) -> bool {
        match self.write_group(&mut taken) {
            Ok(()) => {
                self.finish_behind(taken);
                true
            }
            Err(e) => {
                self.fail(format!("writing group {} of the log: {e}", taken.number));
                false
            }
        }
    }

    /// Writes the oldest group. Returns whether there was one.
    pub fn step(&self) -> bool {
        if self.failed.get().is_some() {
            // A group behind one that is missing would call it durable.
            return false;
        }
        let (q, taken) = self.take(self.lock());
        drop(q);
        taken.is_some_and(|taken| self.write(taken))
    }

    /// Writes the two oldest groups, then flushes: as two threads may do it. Returns whether
    /// there were two.
    pub fn step_two(&self) -> bool {
        let q = self.lock();
        if self.failed.get().is_some() || q.groups.len() < 2 {
            return false;
        }
        let (q, one) = self.take(q);
        let (q, two) = self.take(q);
        drop(q);
        let mut both: Vec<Taken> = one.into_iter().chain(two).collect();
        let written = both.iter_mut().try_for_each(|taken| self.write_out(taken));
        match written.and_then(|()| self.flush()) {
            // The later one first: it must not count before the other.
            Ok(()) => both.into_iter().rev().for_each(|taken| self.finish_behind(taken)),
            Err(e) => self.fail(format!("writing two groups of the log: {e}")),
        }
        self.failed.get().is_none()
    }

    /// Writes the oldest group, as one thread may while another flushes; durable is it after
    /// [`Committer::end_step`]. `None` where there is none.
    pub fn begin_step(&self) -> Option<Taken> {
        if self.failed.get().is_some() {
            return None;
        }
        let (q, taken) = self.take(self.lock());
        drop(q);
        let mut taken = taken?;
        match self.write_out(&mut taken) {
            Ok(()) => Some(taken),
            Err(e) => {
                self.fail(format!("writing group {} of the log: {e}", taken.number));
                None
            }
        }
    }

    /// Flushes what [`Committer::begin_step`] wrote.
    pub fn end_step(&self, taken: Taken) {
        match self.flush() {
            Ok(()) => self.finish_behind(taken),
            Err(e) => self.fail(format!("flushing group {} of the log: {e}", taken.number)),
        }
    }

    /// Writes a group and its data, and flushes nothing.
    fn write_out(&self, t: &mut Taken) -> std::io::Result<()> {
        let (at, log) = self.seal(t);
        t.group.data.iter().try_for_each(|(off, data)| self.disk.write(*off, data))?;
        log.map_or(Ok(()), |log| log.write(at, &t.group.buf))
    }

    /// Flushes what [`Committer::write_out`] wrote.
    fn flush(&self) -> std::io::Result<()> {
        self.disk.flush()?;
        match &self.log {
            LogDisk::Own(log) => log.flush(),
            LogDisk::Shared(_) | LogDisk::Memory => Ok(()),
        }
    }

    /// Completes a group's block; where on which disk it goes.
    fn seal(&self, t: &mut Taken) -> (u64, Option<&Arc<dyn Disk>>) {
        let g = &mut t.group;
        if self.log.disk().is_some() {
            self.ring.seal(&mut g.buf, t.number, g.first, g.count, t.known);
        }
        (self.ring.device(t.pos), self.log.disk())
    }

    /// Makes a group durable, as far as the log's place allows.
    fn write_group(&self, t: &mut Taken) -> std::io::Result<()> {
        let (at, _) = self.seal(t);
        let data = t.group.data.iter().map(|(off, d)| (*off, d.as_ref()));
        let mut writes: Vec<(u64, &[u8])> = data.collect();
        match &self.log {
            LogDisk::Shared(_) => {
                writes.push((at, &t.group.buf));
                self.disk.commit(&writes)
            }
            LogDisk::Own(log) => {
                if !writes.is_empty() {
                    self.disk.commit(&writes)?;
                }
                log.commit(&[(at, &t.group.buf)])
            }
            // What comes before the next checkpoint counts only with it.
            LogDisk::Memory => writes.iter().try_for_each(|(off, d)| self.disk.write(*off, d)),
        }
    }

    /// An I/O thread: until told to stop, and nothing is left.
    pub fn run(&self) {
        let mut q = self.lock();
        loop {
            if self.failed.get().is_some() || (q.stop && q.groups.is_empty()) {
                return;
            }
            if !Self::may_start(&q) {
                q.idle += 1;
                q = self.work.wait(q).expect("no holder of this lock panics");
                q.idle -= 1;
                q.kicked = false;
                continue;
            }
            let (rest, taken) = self.take(q);
            // The other thread may have something to start, too.
            self.kick(rest);
            if taken.is_some_and(|taken| !self.write(taken)) {
                return;
            }
            q = self.lock();
        }
    }

    pub fn stop(&self) {
        self.lock().stop = true;
        self.work.notify_all();
    }

    /// Writes the part of the ring behind the log once, with zeros, so that no append waits
    /// for the file system to find it space. Only on the log's first time around; gives way
    /// to appends. Whether all of the ring has been written.
    ///
    /// # Errors
    /// The device's.
    pub fn prepare_ring(&self) -> std::io::Result<bool> {
        const PART: u64 = 1 << 20;
        const AHEAD: u64 = 4 << 20;
        let Some(disk) = self.log.disk() else { return Ok(true) };
        let zeros = AlignedBuf::zeroed(PART as usize);
        let mut next = 0;
        loop {
            let mut q = self.lock();
            if q.stop {
                return Ok(false);
            }
            let from = match q.head.pos {
                0 if next == 0 => 0,
                pos => next.max((pos + AHEAD).next_multiple_of(4096)),
            };
            if from >= self.ring.len {
                return Ok(true);
            }
            let to = (from + PART).min(self.ring.len);
            q.preparing = Some((from, to));
            drop(q);
            let result = disk.write(self.ring.off + from, &zeros[..(to - from) as usize]);
            let mut q = self.lock();
            q.preparing = None;
            self.tell_done(q);
            result?;
            next = to;
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }

    /// Sleeps until another group is finished, or a while.
    pub fn wait_a_group(&self) {
        self.begin();
        let mut q = self.lock();
        q.waiters += 1;
        let a_while = std::time::Duration::from_millis(50);
        (q, _) = self.done.wait_timeout(q, a_while).expect("no holder of this lock panics");
        q.waiters -= 1;
    }

    /// Sleeps until `seq` is durable.
    pub fn wait(&self, seq: Seq) -> Result<(), StoreError> {
        self.begin();
        let mut q = self.lock();
        while q.finished.0 < seq {
            if let Some(e) = self.failed() {
                return Err(e);
            }
            q = self.wait_done(q);
        }
        Ok(())
    }

    /// No later record joins the group of `seq`, the last one so far: a checkpoint of
    /// everything up to it begins.
    pub fn set_mark(&self, seq: Seq) {
        let mut q = self.lock();
        let place = (q.finished.0 == seq).then_some(q.finished.1);
        q.mark = Some((seq, place));
    }

    /// The place behind the marked transaction's group, once that is durable.
    pub fn marked(&self) -> Option<Place> {
        self.lock().mark.and_then(|(_, place)| place)
    }

    /// A checkpoint is durable: what lies before `tail` is no longer needed.
    pub fn set_tail(&self, tail: u64, generation: u64) {
        let mut q = self.lock();
        (q.tail, q.generation) = (tail, generation);
        q.mark = None;
        self.tell_done(q);
    }
}
