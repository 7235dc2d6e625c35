//! Space of a sparse file, taken ahead of what is written to it.
//!
//! A write to a hole makes the file system look for space while it holds the file for itself
//! (ext4: the inode's exclusive lock), and everything else that is written to the file then
//! waits for it: appends to the log for the data of a checkpoint. So a thread takes space in
//! pieces, before the first write to each where writes go on from one to the next. A file
//! stays small: it has at most a piece and a half more than was ever written near each place
//! where writing goes on.

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use rustix::fs::FallocateFlags;

use crate::file::give_way;

/// Bytes of a piece, at most; and the part of the file that it is, where that is less.
const PIECE: u64 = 64 << 20;
const PART: u64 = 256;
/// A file system with less left than so many pieces keeps it for what is written.
const LEFT: u64 = 16;

/// See the module.
pub(crate) struct Ahead {
    piece: u64,
    pieces: u64,
    /// A bit for each piece that the thread was told to take.
    told: Vec<AtomicU64>,
    /// Dropped first: then the thread ends.
    sender: Option<Sender<u64>>,
    thread: Option<JoinHandle<()>>,
}

impl Ahead {
    /// For a file of `size` bytes; `None` for what is not one, or where no thread can be had.
    pub fn new(file: File, size: u64) -> Option<Self> {
        if !file.metadata().is_ok_and(|meta| meta.is_file()) {
            return None;
        }
        let piece = (size / PART).next_multiple_of(1 << 20).clamp(1 << 20, PIECE);
        let pieces = size.div_ceil(piece);
        let told = (0..pieces.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        let (sender, received) = channel::<u64>();
        let take = move || {
            give_way();
            for i in received {
                let off = i * piece;
                if let Err(why) = take(&file, off, piece.min(size - off), LEFT * piece) {
                    tracing::debug!(off, "no space is taken ahead any more: {why}");
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("store-space".into()).spawn(take).ok()?;
        Some(Self { piece, pieces, told, sender: Some(sender), thread: Some(thread) })
    }

    /// These bytes are about to be written.
    pub fn note(&self, off: u64, len: u64) {
        let last = (off + len + self.piece / 2) / self.piece;
        (off / self.piece..=last.min(self.pieces - 1)).for_each(|i| self.tell(i));
    }

    fn tell(&self, i: u64) {
        let (word, bit) = (&self.told[(i / 64) as usize], 1 << (i % 64));
        if word.load(Ordering::Relaxed) & bit == 0
            && word.fetch_or(bit, Ordering::Relaxed) & bit == 0
            && let Some(sender) = &self.sender
        {
            // It may have given up.
            let _ = sender.send(i);
        }
    }
}

impl Drop for Ahead {
    /// The file is another's afterwards.
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Finds these bytes of the file space, where they have none; what they hold stays. Why not,
/// where it cannot be done or less than `left` bytes would be free.
fn take(file: &File, off: u64, len: u64, left: u64) -> std::io::Result<()> {
    let fs = rustix::fs::fstatvfs(file.as_fd())?;
    if fs.f_bavail.saturating_mul(fs.f_frsize) < left {
        return Err(std::io::Error::other("the file system is nearly full"));
    }
    Ok(rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, off, len)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileExt, MetadataExt};

    use super::*;

    /// Where writing goes on the file has space beforehand, elsewhere it has none, and what it
    /// holds stays.
    #[test]
    fn space_is_taken_where_writing_goes_on() {
        const SIZE: u64 = 1 << 30;
        const PIECE: u64 = SIZE / PART;
        let path = std::env::temp_dir().join(format!("store-ahead-{}", std::process::id()));
        let open =
            || File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let file = open().unwrap();
        file.set_len(SIZE).unwrap();
        file.write_all_at(&[7; 4096], 3 * PIECE).unwrap();
        let space = || file.metadata().unwrap().blocks() * 512;
        let with = |notes: &[(u64, u64)]| {
            let ahead = Ahead::new(open().unwrap(), SIZE).unwrap();
            notes.iter().for_each(|(off, len)| ahead.note(*off, *len));
            drop(ahead);
            space()
        };
        assert_eq!(with(&[]), 4096);
        if with(&[(0, 4096)]) == 4096 {
            eprintln!("left out: this file system takes no space ahead, or is nearly full");
            return std::fs::remove_file(&path).unwrap();
        }
        // Some file systems count the blocks of their own maps, too.
        let near = |space: u64, pieces: u64| space / PIECE == pieces;
        assert!(near(space(), 1), "{}", space());
        assert!(near(with(&[(PIECE / 2, 4096), (PIECE / 2, 8192)]), 2), "the next one, once");
        let got = with(&[(3 * PIECE, 4096), (SIZE - 4096, 4096)]);
        assert!(near(got, 4), "{got}: none behind the end");
        let mut kept = [0; 4096];
        file.read_exact_at(&mut kept, 3 * PIECE).unwrap();
        assert_eq!((kept, file.metadata().unwrap().len()), ([7; 4096], SIZE));
        std::fs::remove_file(&path).unwrap();
    }

    /// Nothing is taken of a file system that has hardly any left.
    #[test]
    fn what_is_nearly_full_is_left_alone() {
        let path = std::env::temp_dir().join(format!("store-ahead-full-{}", std::process::id()));
        let file = File::create(&path).unwrap();
        assert!(take(&file, 0, 4096, u64::MAX).is_err());
        assert_eq!(file.metadata().unwrap().blocks(), 0);
        std::fs::remove_file(&path).unwrap();
    }
}
