//! The log: a ring of groups, each one or more transactions made durable together.
//!
//! A group starts on a block with a header; behind it lie records, each `u32` length and
//! that many bytes, then zeros to the end of the block. Groups follow one another; where
//! one does not fit before the ring's end the next starts at the ring's beginning.
//!
//! | header at | | |
//! |---|---|---|
//! | 0 | u32 | magic |
//! | 4 | u32 | crc32c (seed -1) of everything from 8 to the end of the records |
//! | 8 | u64 | the store's salt: a ring left by another store never replays |
//! | 16 | u64 | mount: counts openings of the store; never falls along the log |
//! | 24 | u64 | group number, one more than the group's before it |
//! | 32 | u64 | number of the first transaction |
//! | 40 | u64 | the last group known durable when this one was written |
//! | 48 | u32 | records |
//! | 52 | u32 | bytes of all records, with their lengths |
//! | 56 | u64 | generation of the superblock when this was written: an older one is no start |
//!
//! Replay takes groups while number, salt, mount and checksum fit. A group after the last
//! proven one may have been cut off: its record can be whole while the data it points to
//! is not, so there the data's checksums are verified, too, and the log ends where one fails.

use bytes::Bytes;
use env::Disk;

use crate::buf::AlignedBuf;
use crate::space::read_past_caches;
use crate::{Seq, StoreError};

pub(crate) const MAGIC: u32 = 0x4c47_5241; // "ARGL"
pub(crate) const HEADER: usize = 64;
const BLOCK: u64 = 4096;

/// Where the log is on the device, and whose it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring {
    pub off: u64,
    pub len: u64,
    pub salt: u64,
    pub mount: u64,
}

/// A place in the log; positions count up and are folded into the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Place {
    /// Number of the next group.
    pub group: u64,
    /// Position after the last.
    pub pos: u64,
}

impl Ring {
    /// Where a group of `len` bytes goes when the log stands at `pos`.
    pub fn fit(&self, pos: u64, len: u64) -> u64 {
        if pos % self.len + len > self.len { pos.next_multiple_of(self.len) } else { pos }
    }

    pub fn device(&self, pos: u64) -> u64 {
        self.off + pos % self.len
    }

    /// Fills in the header of a group whose records are in `buf` from [`HEADER`] on, and
    /// pads. `known` is the last durable group and the superblock's generation.
    pub fn seal(
        &self,
        buf: &mut AlignedBuf,
        group: u64,
        first: Seq,
        count: u32,
        known: (u64, u64),
    ) {
        let len = (buf.len() - HEADER) as u32;
        let mut h = [0; HEADER];
        h[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        h[8..16].copy_from_slice(&self.salt.to_le_bytes());
        h[16..24].copy_from_slice(&self.mount.to_le_bytes());
        h[24..32].copy_from_slice(&group.to_le_bytes());
        h[32..40].copy_from_slice(&first.to_le_bytes());
        h[40..48].copy_from_slice(&known.0.to_le_bytes());
        h[56..64].copy_from_slice(&known.1.to_le_bytes());
        h[48..52].copy_from_slice(&count.to_le_bytes());
        h[52..56].copy_from_slice(&len.to_le_bytes());
        buf[..HEADER].copy_from_slice(&h);
        let crc = stdx::crc32c(!0, &buf[8..]);
        buf[4..8].copy_from_slice(&crc.to_le_bytes());
        buf.pad();
    }
}

/// A group read back.
pub(crate) struct Found {
    pub group: u64,
    pub first: Seq,
    pub proven: u64,
    pub mount: u64,
    pub generation: u64,
    pub records: Vec<Bytes>,
    /// Position behind it.
    pub end: u64,
}

fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(b[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(b: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(b[at..at + 8].try_into().expect("eight bytes"))
}

/// Reads the group `want` that starts at `pos`; `None` when it is not there whole.
fn read_at(
    disk: &dyn Disk,
    ring: &Ring,
    pos: u64,
    want: u64,
    mount: u64,
) -> Result<Option<Found>, StoreError> {
    let what = "reading the log";
    let room = ring.len - pos % ring.len;
    let mut head = [0; BLOCK as usize];
    read_past_caches(disk, ring.device(pos), &mut head).map_err(StoreError::io(what))?;
    let len = u32_at(&head, 52) as u64;
    let fits = u32_at(&head, 0) == MAGIC
        && u64_at(&head, 8) == ring.salt
        && u64_at(&head, 24) == want
        && (mount..ring.mount).contains(&u64_at(&head, 16))
        && HEADER as u64 + len <= room;
    if !fits {
        return Ok(None);
    }
    let total = HEADER + len as usize;
    let mut raw = vec![0; total];
    let have = total.min(head.len());
    raw[..have].copy_from_slice(&head[..have]);
    if total > have {
        read_past_caches(disk, ring.device(pos) + have as u64, &mut raw[have..])
            .map_err(StoreError::io(what))?;
    }
    if stdx::crc32c(!0, &raw[8..]) != u32_at(&raw, 4) {
        return Ok(None);
    }
    let raw = Bytes::from(raw);
    let count = u32_at(&raw, 48) as usize;
    let mut records = Vec::with_capacity(count.min(total / 4));
    let mut at = HEADER;
    for _ in 0..count {
        if at + 4 > total || at + 4 + u32_at(&raw, at) as usize > total {
            return Ok(None);
        }
        let end = at + 4 + u32_at(&raw, at) as usize;
        records.push(raw.slice(at + 4..end));
        at = end;
    }
    Ok(Some(Found {
        group: want,
        first: u64_at(&raw, 32),
        proven: u64_at(&raw, 40),
        mount: u64_at(&raw, 16),
        generation: u64_at(&raw, 56),
        records,
        end: pos + (total as u64).next_multiple_of(BLOCK),
    }))
}

/// Walks the log from a place; groups of mounts before `ring.mount` count, and never one of an
/// earlier mount than the group before it: such a one is what a power cut left of two that were
/// under way, without the first.
pub(crate) struct Reader<'a> {
    pub disk: &'a dyn Disk,
    pub ring: Ring,
    pub at: Place,
    mount: u64,
}

impl<'a> Reader<'a> {
    /// Whatever lies before `at` is of `mount`.
    pub fn new(disk: &'a dyn Disk, ring: Ring, at: Place, mount: u64) -> Self {
        Self { disk, ring, at, mount }
    }

    /// Whether a group behind the log's end says that the one missing here was durable: then
    /// it has not been cut off, it is damaged. Looks as far as groups commonly reach.
    pub fn lost(&self) -> Result<Option<u64>, StoreError> {
        const FAR: u64 = 8 << 20;
        let Place { group, pos } = self.at;
        let here = pos % self.ring.len;
        let parts = [(here, FAR.min(self.ring.len - here)), (0, FAR.min(here))];
        for (from, len) in parts {
            let mut buf = vec![0; len as usize];
            let device = self.ring.off + from;
            read_past_caches(self.disk, device, &mut buf)
                .map_err(StoreError::io("reading the log"))?;
            for (i, head) in buf.chunks_exact(BLOCK as usize).enumerate() {
                let number = u64_at(head, 24);
                let later = u32_at(head, 0) == MAGIC
                    && u64_at(head, 8) == self.ring.salt
                    && number > group
                    && u64_at(head, 40) >= group;
                let at = from + i as u64 * BLOCK;
                if later && read_at(self.disk, &self.ring, at, number, self.mount)?.is_some() {
                    return Ok(Some(self.ring.device(pos)));
                }
            }
        }
        Ok(None)
    }

    /// The next group, or `None` at the log's end.
    pub fn next(&mut self) -> Result<Option<Found>, StoreError> {
        let Place { group, pos } = self.at;
        let mut found = read_at(self.disk, &self.ring, pos, group, self.mount)?;
        if found.is_none() && pos % self.ring.len != 0 {
            let start = pos.next_multiple_of(self.ring.len);
            found = read_at(self.disk, &self.ring, start, group, self.mount)?;
        }
        if let Some(f) = &found {
            self.at = Place { group: group + 1, pos: f.end };
            self.mount = f.mount;
        }
        Ok(found)
    }
}
