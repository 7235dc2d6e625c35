//! A file or block device as a [`Disk`]: direct writes, buffered reads.
//!
//! Reads go through the page cache. Direct writes drop the pages they overwrite from it,
//! and no block is read while it is written: what is in flight is read from memory.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use env::Disk;
use rustix::fs::{Advice, FlockOperation, OFlags};
use rustix::io::ReadWriteFlags;

use crate::StoreError;
use crate::ahead::Ahead;
use crate::buf::{ALIGN, AlignedBuf};
use crate::uring::Uring;

/// Bytes copied at a time where the caller's memory is not aligned.
const BOUNCE: usize = 1 << 20;

/// See the module.
pub struct FileDisk {
    /// For writes; direct where the file system can.
    direct: File,
    /// For reads.
    buffered: File,
    size: u64,
    aligned: bool,
    /// For what is under way at once, where it is wanted and allowed: those that nobody uses now.
    rings: Mutex<Option<Vec<Uring>>>,
    ahead: Option<Ahead>,
}

impl FileDisk {
    /// Makes a file of `size` bytes, sparse; a device is left as it is.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn create(path: &Path, size: u64) -> Result<(), StoreError> {
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(StoreError::io("creating the block file"))?;
        let meta = file.metadata().map_err(StoreError::io("creating the block file"))?;
        if meta.is_file() && meta.len() < size {
            file.set_len(size).map_err(StoreError::io("sizing the block file"))?;
        }
        file.sync_all().map_err(StoreError::io("creating the block file"))
    }

    /// Opens it for one process alone.
    ///
    /// # Errors
    /// [`StoreError::InUse`] when another process has it; [`StoreError::Io`].
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let what = "opening the block file";
        let open =
            |flags: i32| File::options().read(true).write(true).custom_flags(flags).open(path);
        let buffered = open(0).map_err(StoreError::io(what))?;
        // Without it a read of a few blocks would read much around them.
        let _ = rustix::fs::fadvise(&buffered, 0, None, Advice::Random);
        let (direct, aligned) = match open(OFlags::DIRECT.bits() as i32) {
            Ok(file) => (file, true),
            // Memory file systems have no direct I/O.
            Err(_) => (open(0).map_err(StoreError::io(what))?, false),
        };
        lock(&direct, path)?;
        let end = rustix::fs::seek(&direct, rustix::fs::SeekFrom::End(0));
        let size = end.map_err(|e| StoreError::io(what)(e.into()))?;
        let rings = Mutex::new(None);
        let size = size / 4096 * 4096;
        Ok(Self { direct, buffered, size, aligned, rings, ahead: None })
    }

    /// Uses io_uring from now on, where the kernel allows it: then the file to read from that
    /// way.
    pub fn use_io_uring(&self) -> Option<File> {
        *self.rings() = Uring::new().map(|ring| vec![ring]);
        self.rings().as_ref().and_then(|_| self.buffered.try_clone().ok())
    }

    /// Takes space for what will be written from now on, where it is a file that can have
    /// holes.
    pub fn take_ahead(&mut self) {
        let file = self.direct.try_clone();
        self.ahead = file.ok().and_then(|file| Ahead::new(file, self.size));
    }

    /// Tells where writing goes on, before it does.
    fn note(&self, writes: &[(u64, &[u8])]) {
        if let Some(ahead) = &self.ahead {
            writes.iter().for_each(|(off, data)| ahead.note(*off, data.len() as u64));
        }
    }

    /// As [`Disk::write`], of what was noted.
    fn put(&self, off: u64, data: &[u8]) -> io::Result<()> {
        assert!(
            off.is_multiple_of(ALIGN as u64) && data.len().is_multiple_of(ALIGN),
            "writes are in blocks"
        );
        if !self.is_aligned(data) {
            return self.write_bounced(off, data);
        }
        self.direct.write_all_at(data, off)
    }

    /// As [`Disk::write_many`], of what was noted.
    fn put_many(&self, writes: &[(u64, &[u8])]) -> io::Result<()> {
        // Memory that is not aligned is copied first, and its write done by the way.
        let (aligned, rest): (Vec<_>, Vec<_>) =
            writes.iter().copied().partition(|(_, data)| self.is_aligned(data));
        rest.into_iter().try_for_each(|(off, data)| self.put(off, data))?;
        for part in aligned.chunks(Uring::ENTRIES) {
            if part.len() > 1 && self.by_ring(|ring| ring.write_all(self.direct.as_fd(), part)) {
                continue;
            }
            part.iter().try_for_each(|(off, data)| self.put(*off, data))?;
        }
        Ok(())
    }

    /// The file to write to by io_uring.
    ///
    /// # Errors
    /// When no more descriptors can be had.
    pub(crate) fn for_writes(&self) -> io::Result<File> {
        self.direct.try_clone()
    }

    fn rings(&self) -> MutexGuard<'_, Option<Vec<Uring>>> {
        self.rings.lock().expect("no holder of this lock panics")
    }

    /// Does something by a ring that nobody else uses meanwhile; whether everything was done. What
    /// was not is done again by plain calls, which say why they cannot.
    fn by_ring(&self, all: impl FnOnce(&mut Uring) -> io::Result<bool>) -> bool {
        let ring = self.rings().as_mut().map(Vec::pop);
        let Some(mut ring) = ring.and_then(|free| free.or_else(Uring::new)) else {
            return false;
        };
        let done = all(&mut ring);
        let mut rings = self.rings();
        match done {
            Ok(whole) => {
                if let Some(rings) = &mut *rings {
                    rings.push(ring);
                }
                whole
            }
            Err(e) => {
                tracing::warn!("io_uring is not used any more: {e}");
                *rings = None;
                false
            }
        }
    }

    /// Writes and makes durable what it writes, with one call: on devices that can, it is one
    /// command, too. Whether it was done; where the file system cannot, or has room for a part
    /// only, plain calls follow.
    fn write_durably(&self, off: u64, data: &[u8]) -> io::Result<bool> {
        use rustix::io::Errno;
        let from = &[io::IoSlice::new(data)];
        match rustix::io::pwritev2(&self.direct, from, off, ReadWriteFlags::DSYNC) {
            Ok(n) => Ok(n == data.len()),
            Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS | Errno::INTR) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    fn is_aligned(&self, data: &[u8]) -> bool {
        !self.aligned || data.as_ptr().addr().is_multiple_of(512)
    }

    /// Whether that can be read past the caches.
    fn can_read_once(&self, off: u64, buf: &[u8]) -> bool {
        off.is_multiple_of(ALIGN as u64) && buf.len().is_multiple_of(ALIGN) && self.is_aligned(buf)
    }

    fn write_bounced(&self, off: u64, data: &[u8]) -> io::Result<()> {
        let mut bounce = AlignedBuf::with_capacity(BOUNCE.min(data.len()));
        for (i, part) in data.chunks(BOUNCE).enumerate() {
            bounce.clear();
            bounce.put(part);
            self.direct.write_all_at(&bounce, off + (i * BOUNCE) as u64)?;
        }
        Ok(())
    }
}

/// The calling thread gives way to others: for work that nobody waits for.
pub(crate) fn give_way() {
    const NICE: i32 = 10;
    let me = std::fs::read_link("/proc/thread-self").ok();
    let me = me.and_then(|path| path.file_name()?.to_str()?.parse().ok());
    let done = me.and_then(rustix::process::Pid::from_raw).map(|me| {
        // To the kernel a thread's number is as good as a process's.
        rustix::process::setpriority_process(Some(me), NICE)
    });
    if !matches!(done, Some(Ok(()))) {
        tracing::debug!("a background thread keeps its priority");
    }
}

/// Takes the file for this process. The lock is on the descriptor that is written through:
/// when its last owner was killed, the kernel may still be writing for it, and holds the
/// lock until it is done.
fn lock(file: &File, path: &Path) -> Result<(), StoreError> {
    const TRIES: u32 = 200;
    let pause = std::time::Duration::from_millis(10);
    for _ in 0..TRIES {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(pause),
            Err(e) => return Err(StoreError::io("locking the block file")(e.into())),
        }
    }
    Err(StoreError::InUse(path.display().to_string()))
}

impl Disk for FileDisk {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, off: u64, buf: &mut [u8]) -> io::Result<()> {
        self.buffered.read_exact_at(buf, off)
    }

    fn read_once(&self, off: u64, buf: &mut [u8]) -> io::Result<()> {
        if !self.can_read_once(off, buf) {
            return self.read(off, buf);
        }
        self.direct.read_exact_at(buf, off)
    }

    fn read_many(&self, reads: &mut [(u64, &mut [u8])], once: bool) -> io::Result<()> {
        for part in reads.chunks_mut(Uring::ENTRIES) {
            let once = once && part.iter().all(|(off, buf)| self.can_read_once(*off, buf));
            let file = if once { &self.direct } else { &self.buffered };
            if part.len() > 1 && self.by_ring(|ring| ring.read_all(file.as_fd(), part)) {
                continue;
            }
            part.iter_mut().try_for_each(|(off, buf)| file.read_exact_at(buf, *off))?;
        }
        Ok(())
    }

    fn read_cached(&self, off: u64, buf: &mut [u8]) -> bool {
        let len = buf.len();
        let into = &mut [io::IoSliceMut::new(buf)];
        rustix::io::preadv2(&self.buffered, into, off, ReadWriteFlags::NOWAIT) == Ok(len)
    }

    fn write(&self, off: u64, data: &[u8]) -> io::Result<()> {
        self.note(&[(off, data)]);
        self.put(off, data)
    }

    fn write_many(&self, writes: &[(u64, &[u8])]) -> io::Result<()> {
        self.note(writes);
        self.put_many(writes)
    }

    fn flush(&self) -> io::Result<()> {
        self.direct.sync_data()
    }

    fn commit(&self, writes: &[(u64, &[u8])]) -> io::Result<()> {
        self.note(writes);
        // By the ring, whose flush is another thread's, the same takes twice as long and twice
        // the switches.
        if let [(off, data)] = writes
            && self.is_aligned(data)
            && self.write_durably(*off, data)?
        {
            return Ok(());
        }
        self.put_many(writes)?;
        self.flush()
    }

    fn discard(&self, off: u64, len: u64) -> io::Result<()> {
        use rustix::fs::FallocateFlags;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&self.direct, flags, off, len)?)
    }
}
