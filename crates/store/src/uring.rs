//! Writes of a group as one submission to the kernel: all are under way at once. And small
//! reads, which the thread that asks for them has under way itself.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use io_uring::{IoUring, opcode, types};

use crate::buf::Pooled;

/// Writes of one submission.
const ENTRIES: u32 = 64;

pub(crate) struct Uring(IoUring);

impl Uring {
    /// `None` where the kernel or a container forbids it.
    pub fn new() -> Option<Self> {
        IoUring::new(ENTRIES).ok().map(Self)
    }

    /// Whether that many writes fit one submission.
    pub fn takes(writes: usize) -> bool {
        writes <= ENTRIES as usize
    }

    /// Writes all of `writes`, aligned for `fd`. `Ok(false)` when something
    /// was not done: the caller then does everything again its own way.
    ///
    /// # Errors
    /// When the ring itself does not work; nothing is under way then.
    #[allow(unsafe_code)]
    pub fn write_all(&mut self, fd: BorrowedFd<'_>, writes: &[(u64, &[u8])]) -> io::Result<bool> {
        let file = types::Fd(fd.as_raw_fd());
        let count = writes.len();
        if !Self::takes(count) || writes.iter().any(|w| u32::try_from(w.1.len()).is_err()) {
            return Ok(false);
        }
        {
            let mut queue = self.0.submission();
            for (i, (off, data)) in writes.iter().enumerate() {
                let entry = opcode::Write::new(file, data.as_ptr(), data.len() as u32)
                    .offset(*off)
                    .build()
                    .user_data(i as u64);
                // SAFETY: `data` outlives its use by the kernel: below, this function does
                // not return before every entry's completion was seen.
                unsafe { queue.push(&entry) }.map_err(io::Error::other)?;
            }
        }
        let (mut seen, mut whole) = (0, true);
        while seen < count {
            if let Err(e) = submit(&self.0, count - seen) {
                // The kernel may still read from the caller's memory: no way on from here.
                panic!("io_uring stopped working: {e}");
            }
            for done in self.0.completion() {
                seen += 1;
                let want = writes.get(done.user_data() as usize).map_or(0, |w| w.1.len());
                whole &= done.result() >= 0 && done.result() as usize == want;
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

/// Reads of one file that are under way.
pub(crate) struct ReadRing<T> {
    ring: IoUring,
    file: File,
    /// By their place here, with what the caller has to do with each.
    under_way: Vec<Option<(T, Pooled)>>,
    free: Vec<usize>,
}

impl<T> ReadRing<T> {
    /// `None` where the kernel or a container forbids it.
    pub fn new(file: File) -> Option<Self> {
        let ring = IoUring::new(ENTRIES).ok()?;
        let slots = ENTRIES as usize;
        let under_way = (0..slots).map(|_| None).collect();
        Some(Self { ring, file, under_way, free: (0..slots).collect() })
    }

    /// Readable when a read is done.
    pub fn fd(&self) -> io::Result<OwnedFd> {
        // SAFETY: the ring has its descriptor open for as long as it lives.
        #[allow(unsafe_code)]
        let fd = unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) };
        fd.try_clone_to_owned()
    }

    /// Whether another read may be begun.
    pub fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Reads that are begun and not done.
    pub fn len(&self) -> usize {
        self.under_way.len() - self.free.len()
    }

    /// Begins to fill `buf` from `off`; under way with the next [`ReadRing::submit`]. There is
    /// room.
    #[allow(unsafe_code)]
    pub fn begin(&mut self, of: T, off: u64, mut buf: Pooled) {
        let slot = self.free.pop().expect("the caller asked for room");
        let len = u32::try_from(buf.len()).expect("a small read");
        let file = types::Fd(self.file.as_fd().as_raw_fd());
        let entry = opcode::Read::new(file, buf.as_mut_ptr(), len)
            .offset(off)
            .build()
            .user_data(slot as u64);
        self.under_way[slot] = Some((of, buf));
        // SAFETY: the memory stays where it is and nobody else's until the entry's completion
        // was seen: `next` gives it out only then, and `end` waits or never does.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.expect("the queue has a place for each slot");
    }

    /// Begun, and the kernel does not know of them yet.
    pub fn untold(&mut self) -> usize {
        self.ring.submission().len()
    }

    /// Tells the kernel of what was begun, and waits for `wait` reads.
    ///
    /// # Errors
    /// When the ring does not work any more.
    pub fn submit(&mut self, wait: usize) -> io::Result<()> {
        submit(&self.ring, wait)
    }

    /// A read that is done, and its bytes where all of them came.
    pub fn next(&mut self) -> Option<(T, Option<Pooled>)> {
        loop {
            let entry = self.ring.completion().next()?;
            let slot = entry.user_data() as usize;
            let Some((of, buf)) = self.under_way.get_mut(slot).and_then(Option::take) else {
                continue;
            };
            self.free.push(slot);
            let whole = usize::try_from(entry.result()) == Ok(buf.len());
            return Some((of, whole.then_some(buf)));
        }
    }

    /// Waits for what is under way, as far as the ring does, and gives back what all of it was for.
    pub fn end(&mut self) -> Vec<T> {
        let mut all = Vec::new();
        while self.len() > 0 && self.submit(1).is_ok() {
            all.extend(std::iter::from_fn(|| self.next()).map(|(of, _)| of));
        }
        for (slot, left) in self.under_way.iter_mut().enumerate() {
            let Some((of, buf)) = left.take() else { continue };
            // What the kernel may still write to is nobody else's, ever.
            std::mem::forget(buf);
            self.free.push(slot);
            all.push(of);
        }
        all
    }
}

impl<T> Drop for ReadRing<T> {
    fn drop(&mut self) {
        self.end();
    }
}
