//! Reads or writes in many places as one submission to the kernel: all are under way at once. And
//! small reads and appends to the log, which the thread that asks for them has under way itself.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use io_uring::{IoUring, opcode, squeue, types};

use crate::buf::Pooled;

const ENTRIES: u32 = 64;

pub(crate) struct Uring(IoUring);

impl Uring {
    /// Entries of one submission.
    pub const ENTRIES: usize = ENTRIES as usize;

    /// `None` where the kernel or a container forbids it.
    pub fn new() -> Option<Self> {
        IoUring::new(ENTRIES).ok().map(Self)
    }

    /// Writes all of `writes`, aligned for `fd`. `Ok(false)` when something
    /// was not done: the caller then does everything again its own way.
    ///
    /// # Errors
    /// When the ring itself does not work; nothing is under way then.
    pub fn write_all(&mut self, fd: BorrowedFd<'_>, writes: &[(u64, &[u8])]) -> io::Result<bool> {
        let file = types::Fd(fd.as_raw_fd());
        let all = writes.iter().map(|(off, data)| {
            let entry = opcode::Write::new(file, data.as_ptr(), data.len() as u32);
            (entry.offset(*off).build(), data.len())
        });
        self.all(all)
    }

    /// Fills all of `reads`, as [`Uring::write_all`] writes.
    ///
    /// # Errors
    /// As there.
    pub fn read_all(
        &mut self,
        fd: BorrowedFd<'_>,
        reads: &mut [(u64, &mut [u8])],
    ) -> io::Result<bool> {
        let file = types::Fd(fd.as_raw_fd());
        let all = reads.iter_mut().map(|(off, data)| {
            let entry = opcode::Read::new(file, data.as_mut_ptr(), data.len() as u32);
            (entry.offset(*off).build(), data.len())
        });
        self.all(all)
    }

    /// Does all of `entries` at once, each with so many bytes of memory that the caller has for
    /// longer than this takes; whether everything was done.
    #[allow(unsafe_code)]
    fn all(
        &mut self,
        entries: impl ExactSizeIterator<Item = (squeue::Entry, usize)>,
    ) -> io::Result<bool> {
        let count = entries.len();
        if count > Self::ENTRIES {
            return Ok(false);
        }
        let mut want = Vec::with_capacity(count);
        let entries: Vec<_> = entries
            .map(|(entry, len)| {
                want.push(len);
                entry.user_data(want.len() as u64 - 1)
            })
            .collect();
        if want.iter().any(|len| u32::try_from(*len).is_err()) {
            return Ok(false);
        }
        // SAFETY: the memory outlives its use by the kernel: below, this function does
        // not return before every entry's completion was seen.
        unsafe { self.0.submission().push_multiple(&entries) }.map_err(io::Error::other)?;
        let (mut seen, mut whole) = (0, true);
        while seen < count {
            if let Err(e) = submit(&self.0, count - seen) {
                // The kernel may still use the caller's memory: no way on from here.
                panic!("io_uring stopped working: {e}");
            }
            for done in self.0.completion() {
                seen += 1;
                let want = want.get(done.user_data() as usize).copied();
                whole &= usize::try_from(done.result()).ok() == want;
            }
        }
        Ok(whole)
    }
}

/// Tells the kernel of what was begun, and waits until `wait` entries are done; fewer when it is
/// busy or was interrupted, and what it was not told of stays for the next time.
fn submit(ring: &IoUring, wait: usize) -> io::Result<()> {
    use io::ErrorKind::{Interrupted, ResourceBusy, WouldBlock};
    match ring.submit_and_wait(wait) {
        Err(e) if !matches!(e.kind(), Interrupted | WouldBlock | ResourceBusy) => Err(e),
        _ => Ok(()),
    }
}

/// What is under way in one file; each `T` holds the memory that the kernel reads or fills,
/// in a place of its own that stays where it is when the `T` is moved.
pub(crate) struct Ring<T> {
    ring: IoUring,
    file: File,
    under_way: Vec<Option<T>>,
    /// Places in `under_way`.
    free: Vec<usize>,
}

impl<T> Ring<T> {
    /// `None` where the kernel or a container forbids it.
    pub fn new(file: File) -> Option<Self> {
        let ring = IoUring::new(ENTRIES).ok()?;
        let slots = ENTRIES as usize;
        let under_way = (0..slots).map(|_| None).collect();
        Some(Self { ring, file, under_way, free: (0..slots).collect() })
    }

    /// Readable when something is done.
    pub fn fd(&self) -> io::Result<OwnedFd> {
        // SAFETY: the ring has its descriptor open for as long as it lives.
        #[allow(unsafe_code)]
        let fd = unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) };
        fd.try_clone_to_owned()
    }

    /// Whether more may be begun.
    pub fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// What is begun and not done.
    pub fn len(&self) -> usize {
        self.under_way.len() - self.free.len()
    }

    /// Begins to fill what `memory` gives of `held` from `off`. There is room, here and below.
    pub fn read(&mut self, mut held: T, off: u64, memory: impl FnOnce(&mut T) -> &mut [u8]) {
        let (file, memory) = (types::Fd(self.file.as_raw_fd()), memory(&mut held));
        let len = u32::try_from(memory.len()).expect("a small read");
        let entry = opcode::Read::new(file, memory.as_mut_ptr(), len).offset(off).build();
        self.begin(held, entry);
    }

    /// Begins to write what `memory` gives of `held` to `off`, and to make it durable.
    pub fn write_durably(&mut self, held: T, off: u64, memory: impl FnOnce(&T) -> &[u8]) {
        let (file, memory) = (types::Fd(self.file.as_raw_fd()), memory(&held));
        // Of more the kernel writes a part, as it does of what is as long as this says.
        let len = u32::try_from(memory.len()).unwrap_or(u32::MAX);
        let flags = rustix::io::ReadWriteFlags::DSYNC.bits() as i32;
        let entry = opcode::Write::new(file, memory.as_ptr(), len).offset(off).rw_flags(flags);
        self.begin(held, entry.build());
    }

    /// Under way with the next [`Ring::submit`].
    #[allow(unsafe_code)]
    fn begin(&mut self, held: T, entry: squeue::Entry) {
        let slot = self.free.pop().expect("the caller asked for room");
        self.under_way[slot] = Some(held);
        // SAFETY: the memory stays where it is and nobody else's until the entry's completion
        // was seen: `next` gives it out only then, and `end` waits or never does.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(slot as u64)) };
        pushed.expect("the queue has a place for each slot");
    }

    /// Begun, and the kernel does not know of it yet.
    pub fn untold(&mut self) -> usize {
        self.ring.submission().len()
    }

    /// Tells the kernel of what was begun, and waits for `wait` to be done.
    ///
    /// # Errors
    /// When the ring does not work any more.
    pub fn submit(&mut self, wait: usize) -> io::Result<()> {
        submit(&self.ring, wait)
    }

    /// Something that is done, and how many of its bytes; `None` of those where it failed.
    pub fn next(&mut self) -> Option<(T, Option<usize>)> {
        loop {
            let entry = self.ring.completion().next()?;
            let slot = entry.user_data() as usize;
            let Some(held) = self.under_way.get_mut(slot).and_then(Option::take) else {
                continue;
            };
            self.free.push(slot);
            return Some((held, usize::try_from(entry.result()).ok()));
        }
    }

    /// Waits for what is under way, as far as the ring does. What is left then is given to
    /// `lost`, which must keep its memory for ever: the kernel may still use it.
    pub fn end(&mut self, mut done: impl FnMut(T), lost: impl FnMut(T)) {
        while self.len() > 0 && self.submit(1).is_ok() {
            std::iter::from_fn(|| self.next()).for_each(|(held, _)| done(held));
        }
        self.under_way.iter_mut().filter_map(Option::take).for_each(lost);
        self.free = (0..self.under_way.len()).collect();
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        self.end(drop, std::mem::forget);
    }
}

/// Reads of one file that are under way, each with what the caller has to do with it.
pub(crate) struct ReadRing<T>(Ring<(T, Pooled)>);

impl<T> ReadRing<T> {
    /// `None` where the kernel or a container forbids it.
    pub fn new(file: File) -> Option<Self> {
        Ring::new(file).map(Self)
    }

    /// Readable when a read is done.
    pub fn fd(&self) -> io::Result<OwnedFd> {
        self.0.fd()
    }

    /// Whether another read may be begun.
    pub fn has_room(&self) -> bool {
        self.0.has_room()
    }

    /// Reads that are begun and not done.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Begins to fill `buf` from `off`; under way with the next [`ReadRing::submit`]. There is
    /// room.
    pub fn begin(&mut self, of: T, off: u64, buf: Pooled) {
        self.0.read((of, buf), off, |(_, buf)| buf);
    }

    /// Begun, and the kernel does not know of them yet.
    pub fn untold(&mut self) -> usize {
        self.0.untold()
    }

    /// Tells the kernel of what was begun, and waits for `wait` reads.
    ///
    /// # Errors
    /// When the ring does not work any more.
    pub fn submit(&mut self, wait: usize) -> io::Result<()> {
        self.0.submit(wait)
    }

    /// A read that is done, and its bytes where all of them came.
    pub fn next(&mut self) -> Option<(T, Option<Pooled>)> {
        let ((of, buf), done) = self.0.next()?;
        let whole = done == Some(buf.len());
        Some((of, whole.then_some(buf)))
    }

    /// Waits for what is under way, as far as the ring does, and gives back what all of it was for.
    pub fn end(&mut self) -> Vec<T> {
        let all = std::cell::RefCell::new(Vec::new());
        self.0.end(
            |(of, _)| all.borrow_mut().push(of),
            |(of, buf)| {
                std::mem::forget(buf);
                all.borrow_mut().push(of);
            },
        );
        all.into_inner()
    }
}
