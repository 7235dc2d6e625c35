//! A disk: bytes that are durable once flushed.

use std::io;

/// A file or device as a store sees it. Offsets, lengths of writes and their alignment are
/// multiples of 4096; reads may be anywhere.
pub trait Disk: Send + Sync {
    /// Its size in bytes.
    fn size(&self) -> u64;

    /// Fills `buf` from `off` with what was last written there, flushed or not.
    ///
    /// # Errors
    /// The device's.
    fn read(&self, off: u64, buf: &mut [u8]) -> io::Result<()>;

    /// As [`Disk::read`], for data that is hardly wanted again soon: no cache below keeps it
    /// where that can be had. Offset and length in blocks.
    ///
    /// # Errors
    /// The device's.
    fn read_once(&self, off: u64, buf: &mut [u8]) -> io::Result<()> {
        self.read(off, buf)
    }

    /// As [`Disk::read`] for each of `reads`, or [`Disk::read_once`]: under way at once where that
    /// can be had, for what is small and in many places.
    ///
    /// # Errors
    /// The device's.
    fn read_many(&self, reads: &mut [(u64, &mut [u8])], once: bool) -> io::Result<()> {
        reads.iter_mut().try_for_each(|(off, buf)| match once {
            true => self.read_once(*off, buf),
            false => self.read(*off, buf),
        })
    }

    /// As [`Disk::read`], when that needs no device; whether it did. `buf` is anything
    /// otherwise.
    fn read_cached(&self, off: u64, buf: &mut [u8]) -> bool {
        let _ = (off, buf);
        false
    }

    /// Writes `data` at `off`: seen by reads when this returns, durable after
    /// [`Disk::flush`]. Until then a power cut may leave any part of it, in sectors of
    /// 512 bytes.
    ///
    /// # Errors
    /// The device's; then what is there is unknown.
    fn write(&self, off: u64, data: &[u8]) -> io::Result<()>;

    /// As [`Disk::write`] for each of `writes`, in any order: under way at once where that can be
    /// had, for what is small and in many places.
    ///
    /// # Errors
    /// As there; then what is at any of the places is unknown.
    fn write_many(&self, writes: &[(u64, &[u8])]) -> io::Result<()> {
        writes.iter().try_for_each(|(off, data)| self.write(*off, data))
    }

    /// Makes every write that has returned durable.
    ///
    /// # Errors
    /// The device's; then nothing is known of any write since the last flush.
    fn flush(&self) -> io::Result<()>;

    /// Writes all of `writes`, in any order, and makes these durable: writes before them still
    /// need a flush.
    ///
    /// # Errors
    /// As [`Disk::flush`].
    fn commit(&self, writes: &[(u64, &[u8])]) -> io::Result<()> {
        self.write_many(writes)?;
        self.flush()
    }

    /// Tells the device that a range holds nothing of worth; it may read as anything.
    ///
    /// # Errors
    /// The device's.
    fn discard(&self, off: u64, len: u64) -> io::Result<()> {
        let _ = (off, len);
        Ok(())
    }
}
