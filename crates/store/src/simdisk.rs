//! A disk in memory that can lose power.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use env::{Disk, Random};

/// What was asked of the disk, in order.
#[derive(Clone, Debug)]
pub enum DiskEvent {
    /// Bytes written at an offset.
    Write(u64, Bytes),
    /// Everything before is durable.
    Flush,
    /// What was written before to `.1` bytes from `.0` on is durable.
    FlushPart(u64, u64),
    /// A mark of the test's own.
    Mark(u64),
}

/// What goes wrong with one call, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskFault {
    /// A write or flush is refused for want of space (`ENOSPC`).
    NoSpace,
    /// A write is called done and is nowhere.
    Lost,
    /// A write is called done and lies at this offset instead.
    Misdirected(u64),
    /// A read fails (`EIO`).
    Read,
}

const PAGE: u64 = 4096;

#[derive(Default)]
struct Inner {
    /// What reads see; absent pages are zeros.
    pages: BTreeMap<u64, Arc<Vec<u8>>>,
    events: Vec<DiskEvent>,
    record: bool,
    /// Calls until one fails; none when 0.
    fail_in: u64,
    failed: bool,
    /// Calls of its kind until it happens.
    fault: Option<(u64, DiskFault)>,
    /// Parts that cannot be read.
    unreadable: Vec<(u64, u64)>,
}

impl Inner {
    fn write(&mut self, off: u64, data: &[u8]) {
        let mut done = 0;
        while done < data.len() {
            let at = off + done as u64;
            let (page, skip) = (at / PAGE, (at % PAGE) as usize);
            let n = (data.len() - done).min(PAGE as usize - skip);
            let page = self.pages.entry(page).or_insert_with(|| Arc::new(vec![0; PAGE as usize]));
            Arc::make_mut(page)[skip..skip + n].copy_from_slice(&data[done..done + n]);
            done += n;
        }
    }

    /// The fault that is due, where it is one of those that `concerns` the call.
    fn fault(&mut self, concerns: impl Fn(DiskFault) -> bool) -> Option<DiskFault> {
        let (left, fault) = self.fault.as_mut()?;
        if !concerns(*fault) {
            return None;
        }
        *left -= 1;
        (*left == 0).then(|| self.fault.take().expect("just seen").1)
    }

    fn may_fail(&mut self) -> io::Result<()> {
        if self.fail_in > 0 {
            self.fail_in -= 1;
            self.failed |= self.fail_in == 0;
        }
        if self.failed { Err(io::Error::other("the disk is broken")) } else { Ok(()) }
    }
}

/// See the module. Keeps the order of writes and flushes, from which the contents after a
/// power cut can be made.
pub struct SimDisk {
    size: u64,
    inner: Mutex<Inner>,
}

impl SimDisk {
    /// Zeros. `record` keeps every write, for [`SimDisk::events`].
    #[must_use]
    pub fn new(size: u64, record: bool) -> Self {
        Self { size, inner: Mutex::new(Inner { record, ..Inner::default() }) }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().expect("no holder of this lock panics")
    }

    /// Notes something in the order of writes.
    pub fn mark(&self, n: u64) {
        self.lock().events.push(DiskEvent::Mark(n));
    }

    /// All writes, flushes and marks so far.
    #[must_use]
    pub fn events(&self) -> Vec<DiskEvent> {
        self.lock().events.clone()
    }

    /// The `n`th write or flush from now on fails, and all after it. 0 for never.
    pub fn fail_in(&self, n: u64) {
        let mut inner = self.lock();
        (inner.fail_in, inner.failed) = (n, false);
    }

    /// The `n`th call from now on that `fault` concerns meets it; `None` for no more.
    pub fn fault_in(&self, fault: Option<(u64, DiskFault)>) {
        self.lock().fault = fault.map(|(n, fault)| (n.max(1), fault));
    }

    /// Whether a fault still waits.
    #[must_use]
    pub fn is_fault_due(&self) -> bool {
        self.lock().fault.is_some()
    }

    /// Reads of any byte of `off..off + len` fail from now on.
    pub fn make_unreadable(&self, off: u64, len: u64) {
        self.lock().unreadable.push((off, off + len));
    }

    /// Flips one bit.
    pub fn flip(&self, off: u64, bit: u8) {
        let mut inner = self.lock();
        let page =
            inner.pages.entry(off / PAGE).or_insert_with(|| Arc::new(vec![0; PAGE as usize]));
        Arc::make_mut(page)[(off % PAGE) as usize] ^= 1 << (bit % 8);
    }

    /// Offsets of pages that were ever written.
    #[must_use]
    pub fn written(&self) -> Vec<u64> {
        self.lock().pages.keys().map(|p| p * PAGE).collect()
    }

    /// Forgets the writes and flushes so far.
    pub fn forget_events(&self) {
        self.lock().events.clear();
    }

    /// Applies one event as a disk without a cache would.
    pub fn apply(&self, event: &DiskEvent) {
        if let DiskEvent::Write(off, data) = event {
            self.lock().write(*off, data);
        }
    }

    /// Applies writes of which the disk may have done any part when the power went: each is
    /// dropped, kept, or torn at sectors of 512 bytes, in any order.
    pub fn apply_unflushed(&self, writes: &[DiskEvent], random: &mut dyn Random) {
        let mut inner = self.lock();
        let mut order: Vec<usize> = (0..writes.len()).collect();
        for i in (1..order.len()).rev() {
            if random.u64().is_multiple_of(4) {
                order.swap(i, (random.u64() % (i as u64 + 1)) as usize);
            }
        }
        let mood = random.u64() % 4;
        for i in order {
            let DiskEvent::Write(off, data) = &writes[i] else { continue };
            match if mood == 3 { random.u64() % 3 } else { mood } {
                0 => {}
                1 => inner.write(*off, data),
                _ => {
                    for (n, sector) in data.chunks(512).enumerate() {
                        if random.u64().is_multiple_of(2) {
                            inner.write(off + n as u64 * 512, sector);
                        }
                    }
                }
            }
        }
    }

    /// A disk with the same contents, and no memory of how they came.
    #[must_use]
    pub fn copy(&self, record: bool) -> Self {
        let pages = self.lock().pages.clone();
        Self { size: self.size, inner: Mutex::new(Inner { pages, record, ..Inner::default() }) }
    }
}

impl SimDisk {
    /// A part of it that is flushed by itself, as a device of its own.
    #[must_use]
    pub fn part(self: &Arc<Self>, off: u64, size: u64) -> SimPart {
        assert!(off.is_multiple_of(PAGE) && off + size <= self.size, "it lies on the disk");
        SimPart { disk: self.clone(), off, size }
    }

    /// Makes only `writes` durable, each in its turn.
    fn commit_at(&self, to: u64, writes: &[(u64, &[u8])]) -> io::Result<()> {
        for (off, data) in writes {
            self.write(to + off, data)?;
        }
        writes.iter().try_for_each(|(off, data)| {
            self.flush_event(DiskEvent::FlushPart(to + off, data.len() as u64))
        })
    }

    fn flush_event(&self, event: DiskEvent) -> io::Result<()> {
        let mut inner = self.lock();
        inner.may_fail()?;
        if inner.fault(|f| f == DiskFault::NoSpace).is_some() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if inner.record {
            inner.events.push(event);
        }
        Ok(())
    }
}

/// See [`SimDisk::part`].
pub struct SimPart {
    disk: Arc<SimDisk>,
    off: u64,
    size: u64,
}

impl Disk for SimPart {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, off: u64, buf: &mut [u8]) -> io::Result<()> {
        if off + buf.len() as u64 > self.size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.disk.read(self.off + off, buf)
    }

    fn write(&self, off: u64, data: &[u8]) -> io::Result<()> {
        assert!(off + data.len() as u64 <= self.size, "writes lie on the disk");
        self.disk.write(self.off + off, data)
    }

    fn flush(&self) -> io::Result<()> {
        self.disk.flush_event(DiskEvent::FlushPart(self.off, self.size))
    }

    fn commit(&self, writes: &[(u64, &[u8])]) -> io::Result<()> {
        let inside = |(off, data): &(u64, &[u8])| off + data.len() as u64 <= self.size;
        assert!(writes.iter().all(inside), "writes lie on the disk");
        self.disk.commit_at(self.off, writes)
    }

    fn discard(&self, off: u64, len: u64) -> io::Result<()> {
        assert!(off + len <= self.size, "what is discarded lies on the disk");
        self.disk.discard(self.off + off, len)
    }
}

impl Disk for SimDisk {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, off: u64, buf: &mut [u8]) -> io::Result<()> {
        if off + buf.len() as u64 > self.size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut inner = self.lock();
        let end = off + buf.len() as u64;
        let bad = inner.unreadable.iter().any(|(from, to)| *from < end && off < *to);
        if bad || inner.fault(|f| f == DiskFault::Read).is_some() {
            return Err(io::Error::other("the disk cannot read this"));
        }
        let mut done = 0;
        while done < buf.len() {
            let at = off + done as u64;
            let skip = (at % PAGE) as usize;
            let n = (buf.len() - done).min(PAGE as usize - skip);
            match inner.pages.get(&(at / PAGE)) {
                Some(page) => buf[done..done + n].copy_from_slice(&page[skip..skip + n]),
                None => buf[done..done + n].fill(0),
            }
            done += n;
        }
        Ok(())
    }

    fn write(&self, off: u64, data: &[u8]) -> io::Result<()> {
        assert!(
            off.is_multiple_of(PAGE) && (data.len() as u64).is_multiple_of(PAGE),
            "writes are in blocks"
        );
        assert!(off + data.len() as u64 <= self.size, "writes lie on the disk");
        let mut inner = self.lock();
        inner.may_fail()?;
        match inner.fault(|f| f != DiskFault::Read) {
            None => inner.write(off, data),
            Some(DiskFault::Misdirected(to)) => {
                let to = to / PAGE * PAGE % (self.size - data.len() as u64 + PAGE);
                inner.write(to, data);
            }
            Some(DiskFault::Lost | DiskFault::Read) => return Ok(()),
            Some(DiskFault::NoSpace) => return Err(io::ErrorKind::StorageFull.into()),
        }
        if inner.record {
            inner.events.push(DiskEvent::Write(off, Bytes::copy_from_slice(data)));
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.flush_event(DiskEvent::Flush)
    }

    fn commit(&self, writes: &[(u64, &[u8])]) -> io::Result<()> {
        self.commit_at(0, writes)
    }

    /// What is thrown away reads as anything: here as a pattern that nobody writes.
    fn discard(&self, off: u64, len: u64) -> io::Result<()> {
        assert!(off + len <= self.size, "what is discarded lies on the disk");
        let rubbish = vec![0xdc; len as usize];
        let mut inner = self.lock();
        inner.may_fail()?;
        inner.write(off, &rubbish);
        if inner.record {
            inner.events.push(DiskEvent::Write(off, rubbish.into()));
        }
        Ok(())
    }
}
