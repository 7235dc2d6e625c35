//! A block that says what is on a device: the superblock, the header of a log.
//!
//! u64 magic, u32 format, u32 crc32c of everything behind it, u32 length, so many bytes,
//! zeros to the end of the block.

use crate::StoreError;
use crate::buf::AlignedBuf;
use crate::onode::BLOCK;

/// What such a block is called, how it begins, and the newest format that is known.
pub(crate) struct Header {
    pub name: &'static str,
    pub magic: u64,
    pub format: u32,
}

impl Header {
    /// The block around `body`.
    pub fn seal(&self, body: &[u8]) -> AlignedBuf {
        let mut buf = AlignedBuf::with_capacity(BLOCK as usize);
        buf.put(&self.magic.to_le_bytes());
        buf.put(&self.format.to_le_bytes());
        buf.put(&[0; 4]);
        buf.put(&(body.len() as u32).to_le_bytes());
        buf.put(body);
        assert!(buf.len() <= BLOCK as usize, "a header is one block");
        buf.pad();
        let crc = stdx::crc32c(!0, &buf[16..]);
        buf[12..16].copy_from_slice(&crc.to_le_bytes());
        buf
    }

    /// What [`Header::seal`] was given; `None` where nothing of the kind is.
    ///
    /// # Errors
    /// [`StoreError::Format`] for a damaged one, [`StoreError::NewerFormat`].
    pub fn unseal<'a>(
        &self,
        raw: &'a [u8; BLOCK as usize],
    ) -> Result<Option<&'a [u8]>, StoreError> {
        let word = |at: usize| u32::from_le_bytes(raw[at..at + 4].try_into().expect("four"));
        if raw[..8] != self.magic.to_le_bytes() {
            return Ok(None);
        }
        if stdx::crc32c(!0, &raw[16..]) != word(12) {
            return Err(self.broken("checksum mismatch"));
        }
        if word(8) > self.format {
            return Err(StoreError::NewerFormat { found: word(8), known: self.format });
        }
        Ok(Some(raw.get(20..20 + word(16) as usize).unwrap_or_default()))
    }

    pub fn broken(&self, why: &str) -> StoreError {
        StoreError::Format(format!("{}: {why}", self.name))
    }
}
