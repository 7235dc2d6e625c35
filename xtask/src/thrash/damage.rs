//! Bytes of an object's copy, changed in a store's file behind the OSD's back.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, Result};
use rustix::fs::OFlags;

/// Bytes of a store's block.
pub const BLOCK: u64 = 4_096;

/// A store's file, past the page cache: what is cached may be older than what the OSD wrote.
pub struct StoreFile(File);

impl StoreFile {
    /// # Errors
    /// When it cannot be opened.
    pub fn open(path: &Path) -> Result<Self> {
        let mut options = File::options();
        options.read(true).write(true).custom_flags(OFlags::DIRECT.bits() as i32);
        Ok(Self(options.open(path).with_context(|| path.display().to_string())?))
    }

    /// Where the blocks are that are made of `mark` alone.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn blocks_of(&self, mark: &[u8]) -> Result<Vec<u64>> {
        const STEP: usize = 1 << 20;
        let (mut found, mut buf) = (Vec::new(), vec![0; STEP + BLOCK as usize]);
        let buf = aligned(&mut buf, STEP);
        for off in (0..self.0.metadata()?.len()).step_by(STEP) {
            let n = self.0.read_at(buf, off)?;
            let blocks = (off..).step_by(BLOCK as usize).zip(buf[..n].chunks(BLOCK as usize));
            found.extend(blocks.filter(|(_, b)| is_of(b, mark)).map(|(at, _)| at));
        }
        Ok(found)
    }

    /// Changes a bit of byte `at` of the block at `block`, if that is still made of `mark`
    /// alone. Whether it is. Nobody else may write it meanwhile.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub fn flip(&self, block: u64, at: u64, mark: &[u8]) -> Result<bool> {
        let mut buf = [0; 2 * BLOCK as usize];
        let buf = aligned(&mut buf, BLOCK as usize);
        self.0.read_exact_at(buf, block)?;
        let same = is_of(buf, mark);
        if same {
            buf[at as usize] ^= 0x20;
            self.0.write_all_at(buf, block)?;
            self.0.sync_all()?;
        }
        Ok(same)
    }
}

/// So many bytes of a buffer that is a block longer, where direct reads and writes take them.
fn aligned(buf: &mut [u8], bytes: usize) -> &mut [u8] {
    let skip = buf.as_ptr().align_offset(BLOCK as usize);
    &mut buf[skip..skip + bytes]
}

fn is_of(block: &[u8], mark: &[u8]) -> bool {
    block.chunks(mark.len()).all(|c| c == mark)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is not the mark any more stays as it is.
    #[test]
    fn only_what_is_marked_is_damaged() {
        let path = std::env::temp_dir().join(format!("damage-{}", std::process::id()));
        let mark = [b'm'; 64];
        let whole = [[0u8; 4096], [b'm'; 4096], [b'x'; 4096], [b'm'; 4096]].concat();
        std::fs::write(&path, &whole).unwrap();
        let file = StoreFile::open(&path).unwrap();
        assert_eq!(file.blocks_of(&mark).unwrap(), [4_096, 3 * 4_096]);
        assert!(!file.flip(2 * 4_096, 7, &mark).unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), whole);
        assert!(file.flip(4_096, 7, &mark).unwrap());
        let after = std::fs::read(&path).unwrap();
        let changed: Vec<usize> = (0..after.len()).filter(|i| after[*i] != whole[*i]).collect();
        assert_eq!(changed, [4_096 + 7]);
        assert_eq!(file.blocks_of(&mark).unwrap(), [3 * 4_096]);
        std::fs::remove_file(&path).unwrap();
    }
}
