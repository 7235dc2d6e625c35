//! Writes of a group as one submission to the kernel: all are under way at once.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::{IoUring, opcode, types};

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
            match self.0.submit_and_wait(count - seen) {
                Ok(_) => {}
                Err(e)
                    if matches!(
                        e.kind(),
                        io::ErrorKind::Interrupted
                            | io::ErrorKind::WouldBlock
                            | io::ErrorKind::ResourceBusy
                    ) => {}
                // The kernel may still read from the caller's memory: no way on from here.
                Err(e) => panic!("io_uring stopped working: {e}"),
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
