//! Streams of bytes in runs of blocks that are not next to one another.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use denc::{DecodeError, Denc, Reader, Writer};
use env::Disk;

use crate::StoreError;
use crate::alloc::{Alloc, Area};
use crate::buf::{AlignedBuf, Pool};
use crate::onode::BLOCK;

type Result<T> = std::result::Result<T, StoreError>;

/// Runs of blocks `(start, len)`, in stream order. A stream on a device that is full of holes has as
/// many as blocks, and places in it are found all the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Runs {
    runs: Vec<(u64, u64)>,
    /// Blocks of the stream up to the end of each.
    ends: Vec<u64>,
}

impl Runs {
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.runs.iter().copied()
    }

    /// How many they are.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    pub fn blocks(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Appends, joining runs that touch.
    pub fn push(&mut self, start: u64, len: u64) {
        match (self.runs.last_mut(), self.ends.last_mut()) {
            (Some((s, l)), Some(end)) if s.checked_add(*l) == Some(start) => {
                *l += len;
                *end = end.saturating_add(len);
            }
            _ => self.append(start, len),
        }
    }

    fn append(&mut self, start: u64, len: u64) {
        self.ends.push(self.blocks().saturating_add(len));
        self.runs.push((start, len));
    }

    pub fn extend(&mut self, other: &Self) {
        other.iter().for_each(|(start, len)| self.push(start, len));
    }

    /// Where `len` bytes of the stream from `off` lie: on the device, and which of them. Fewer
    /// where the stream ends before.
    fn parts(&self, off: u64, len: usize) -> impl Iterator<Item = (u64, Range<usize>)> {
        let end = off + len as u64;
        let first = self.ends.partition_point(|end| end.saturating_mul(BLOCK) <= off);
        let mut at = first.checked_sub(1).map_or(0, |before| self.ends[before]) * BLOCK;
        let runs = self.runs[first..].iter().map_while(move |(start, blocks)| {
            let from = at;
            at = at.saturating_add(blocks.saturating_mul(BLOCK));
            let (lo, hi) = (from.max(off), at.min(end));
            let part = ((lo.max(off) - off) as usize)..((hi.max(off) - off) as usize);
            (lo < end).then(|| (start.saturating_mul(BLOCK).saturating_add(lo - from), part))
        });
        runs.filter(|(_, part)| !part.is_empty())
    }

    /// What to read for `out`, the stream from `off` on: where on the device, and into what.
    fn reads<'a>(&self, off: u64, mut out: &'a mut [u8]) -> Result<Vec<(u64, &'a mut [u8])>> {
        let mut reads = Vec::new();
        for (device, part) in self.parts(off, out.len()) {
            reads.extend(out.split_off_mut(..part.len()).map(|to| (device, to)));
        }
        if !out.is_empty() {
            return Err(StoreError::Format("a stream is shorter than its description".into()));
        }
        Ok(reads)
    }

    /// Reads `len` bytes of the stream from `off`; past the caches when `once`.
    pub fn read(&self, disk: &dyn Disk, off: u64, len: usize, once: bool) -> Result<Vec<u8>> {
        let mut out = vec![0; len];
        for (device, part) in self.reads(off, &mut out)? {
            let read = match once {
                true => read_past_caches(disk, device, part),
                false => disk.read(device, part),
            };
            read.map_err(StoreError::io("reading a stream"))?;
        }
        Ok(out)
    }

    /// As [`Runs::read`] past the caches, into a buffer of `pool`.
    pub fn read_pooled(&self, disk: &dyn Disk, off: u64, len: usize, pool: &Pool) -> Result<Bytes> {
        let first = off / BLOCK * BLOCK;
        let end = (off + len as u64).next_multiple_of(BLOCK);
        let mut buf = pool.take((end - first) as usize);
        let mut reads = self.reads(first, &mut buf)?;
        disk.read_many(&mut reads, true).map_err(StoreError::io("reading a stream"))?;
        let skip = (off - first) as usize;
        Ok(buf.freeze().slice(skip..skip + len))
    }

    /// Reads and verifies `len` bytes of the stream from `off`. What does not fit is read
    /// once more past the caches before it is called damaged.
    pub fn read_verified(
        &self,
        disk: &dyn Disk,
        (off, len): (u64, usize),
        crc: u32,
        what: &dyn Fn() -> String,
    ) -> Result<Bytes> {
        for once in [false, true] {
            let raw = self.read(disk, off, len, once)?;
            if stdx::crc32c(!0, &raw) == crc {
                return Ok(raw.into());
            }
        }
        Err(StoreError::Corrupt { what: what(), offset: off, device: self.device(off) })
    }

    /// Where byte `off` of the stream lies on the device.
    pub fn device(&self, off: u64) -> u64 {
        self.parts(off, 1).next().map_or(0, |(device, _)| device)
    }
}

impl Denc for Runs {
    fn encode(&self, w: &mut Writer) {
        self.runs.encode(w);
    }
    fn decode(r: &mut Reader<'_>) -> std::result::Result<Self, DecodeError> {
        let mut runs = Self::default();
        let all: Vec<(u64, u64)> = Denc::decode(r)?;
        all.into_iter().for_each(|(start, len)| runs.append(start, len));
        Ok(runs)
    }
}

/// A stream that is read as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stream {
    pub runs: Runs,
    /// In bytes.
    pub len: u64,
    /// crc32c of them.
    pub crc: u32,
}

impl Stream {
    /// Reads and verifies it, past the caches. What does not fit is read once more before it is
    /// called damaged.
    pub fn read(&self, disk: &dyn Disk, what: &str) -> Result<Bytes> {
        let end = self.runs.blocks().saturating_mul(BLOCK);
        if self.len > end {
            return Err(StoreError::Format(format!("{what}: shorter than its description")));
        }
        for _ in 0..2 {
            let raw = self.runs.read_pooled(disk, 0, self.len as usize, &Pool::default())?;
            if stdx::crc32c(!0, &raw) == self.crc {
                return Ok(raw);
            }
        }
        let device = self.runs.device(0);
        Err(StoreError::Corrupt { what: what.to_owned(), offset: 0, device })
    }
}

impl Denc for Stream {
    fn encode(&self, w: &mut Writer) {
        self.runs.encode(w);
        w.u64(self.len);
        w.u32(self.crc);
    }
    fn decode(r: &mut Reader<'_>) -> std::result::Result<Self, DecodeError> {
        Ok(Self { runs: Denc::decode(r)?, len: r.u64()?, crc: r.u32()? })
    }
}

/// Runs of blocks that were taken.
pub(crate) type Ledger = Arc<Mutex<Vec<(u64, u64)>>>;

/// Where a checkpoint writes: the device and its free space.
#[derive(Clone)]
pub(crate) struct Space {
    pub disk: Arc<dyn Disk>,
    pub alloc: Arc<Mutex<Alloc>>,
    /// Where what is taken is noted, when no checkpoint may count it as used yet.
    pub ledger: Option<Ledger>,
}

impl Space {
    pub fn alloc(&self, blocks: u64, area: Area) -> Result<Vec<(u64, u64)>> {
        self.take(&mut self.alloc.lock().expect("no holder of this lock panics"), blocks, area)
    }

    /// As [`Space::alloc`]; fewer, and at least one, where no more are free.
    pub fn alloc_up_to(&self, blocks: u64, area: Area) -> Result<Vec<(u64, u64)>> {
        let mut alloc = self.alloc.lock().expect("no holder of this lock panics");
        let blocks = blocks.min(alloc.free()).max(1);
        self.take(&mut alloc, blocks, area)
    }

    fn take(&self, alloc: &mut Alloc, blocks: u64, area: Area) -> Result<Vec<(u64, u64)>> {
        let available = alloc.free() * BLOCK;
        let runs = alloc.alloc(blocks, area);
        let runs = runs.ok_or(StoreError::NoSpace { need: blocks * BLOCK, available })?;
        // Both locks are held here and where a checkpoint begins.
        if let Some(ledger) = &self.ledger {
            ledger.lock().expect("no holder of this lock panics").extend(&runs);
        }
        Ok(runs)
    }

    /// Writes `buf`, whole blocks, to `runs` in stream order; as many as it has.
    pub fn write(&self, runs: &[(u64, u64)], buf: &[u8]) -> std::io::Result<()> {
        let mut rest = buf;
        let writes: Vec<(u64, &[u8])> = runs
            .iter()
            .map_while(|(start, len)| {
                let part = rest.split_off(..rest.len().min((len * BLOCK) as usize))?;
                (!part.is_empty()).then_some((start * BLOCK, part))
            })
            .collect();
        self.disk.write_many(&writes)
    }

    /// Writes all of a stream to free space.
    pub fn write_stream(&self, bytes: &[u8]) -> Result<Stream> {
        let mut out = StreamWriter::new(self.clone());
        out.put(bytes)?;
        let (runs, len) = out.finish()?;
        Ok(Stream { runs, len, crc: stdx::crc32c(!0, bytes) })
    }

    pub fn release(&self, start: u64, len: u64) {
        self.alloc.lock().expect("no holder of this lock panics").release(start, len);
    }
}

/// Bytes handed to the device at a time.
const CHUNK: usize = 1 << 20;

/// Appends a stream to free space. Dropped unfinished, its blocks stay taken until the
/// store is opened again: that happens only when the store stops.
pub(crate) struct StreamWriter {
    space: Space,
    buf: AlignedBuf,
    pub runs: Runs,
    /// Bytes in the stream, those in `buf` included.
    pub len: u64,
}

impl StreamWriter {
    pub fn new(space: Space) -> Self {
        Self { space, buf: AlignedBuf::with_capacity(CHUNK), runs: Runs::default(), len: 0 }
    }

    pub fn put(&mut self, bytes: &[u8]) -> Result<()> {
        for part in bytes.chunks(CHUNK) {
            let room = CHUNK - self.buf.len();
            let (now, later) = part.split_at(part.len().min(room));
            self.buf.put(now);
            if self.buf.len() == CHUNK {
                self.write_out()?;
            }
            self.buf.put(later);
        }
        self.len += bytes.len() as u64;
        Ok(())
    }

    fn write_out(&mut self) -> Result<()> {
        self.buf.pad();
        let runs = self.space.alloc(self.buf.len() as u64 / BLOCK, Area::Packed)?;
        let written = self.space.write(&runs, &self.buf);
        written.map_err(StoreError::io("writing a checkpoint"))?;
        runs.into_iter().for_each(|(start, len)| self.runs.push(start, len));
        self.buf.clear();
        Ok(())
    }

    pub fn finish(mut self) -> Result<(Runs, u64)> {
        if !self.buf.is_empty() {
            self.write_out()?;
        }
        Ok((self.runs, self.len))
    }
}

/// Packs single blocks into runs, in the order in which they come.
pub(crate) struct BlockWriter {
    space: Space,
    /// Blocks for the first of those in `ready`.
    buf: AlignedBuf,
    /// Blocks taken and not yet written to, as `(start, len)`.
    ready: Vec<(u64, u64)>,
    /// The run where the next one goes, and how many of its blocks have theirs.
    next: (usize, u64),
}

impl BlockWriter {
    pub fn new(space: Space) -> Self {
        let buf = AlignedBuf::with_capacity(CHUNK);
        Self { space, buf, ready: Vec::new(), next: (0, 0) }
    }

    /// Queues one block; where it will be.
    pub fn put(&mut self, block: &[u8]) -> Result<u64> {
        if self.next.0 == self.ready.len() {
            self.write_out()?;
            self.ready = self.space.alloc_up_to(CHUNK as u64 / BLOCK, Area::Packed)?;
        }
        let (run, used) = self.next;
        let (start, len) = self.ready[run];
        self.buf.put(block);
        self.next = if used + 1 == len { (run + 1, 0) } else { (run, used + 1) };
        Ok(start + used)
    }

    /// Writes what is queued and gives the rest back.
    fn write_out(&mut self) -> Result<()> {
        let ready = std::mem::take(&mut self.ready);
        let written = self.space.write(&ready, &self.buf);
        written.map_err(StoreError::io("writing small data to its place"))?;
        let (run, used) = std::mem::take(&mut self.next);
        for (i, (start, len)) in ready.into_iter().enumerate().skip(run) {
            let used = if i == run { used } else { 0 };
            self.space.release(start + used, len - used);
        }
        self.buf.clear();
        Ok(())
    }

    pub fn finish(mut self) -> Result<()> {
        self.write_out()
    }
}

/// Reads from anywhere, past the caches below.
pub(crate) fn read_past_caches(disk: &dyn Disk, off: u64, out: &mut [u8]) -> std::io::Result<()> {
    let first = off / BLOCK * BLOCK;
    let end = (off + out.len() as u64).next_multiple_of(BLOCK);
    let mut buf = AlignedBuf::zeroed((end - first) as usize);
    disk.read_once(first, &mut buf)?;
    let skip = (off - first) as usize;
    out.copy_from_slice(&buf[skip..skip + out.len()]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each byte is where the runs say, wherever reading begins and ends.
    #[test]
    fn places_in_many_runs_are_found() {
        let mut runs = Runs::default();
        // Those that touch are one.
        for (start, len) in [(10, 1), (11, 2), (5, 3), (100, 1), (50, 4), (20, 1)] {
            runs.push(start, len);
        }
        assert_eq!((runs.len(), runs.blocks()), (5, 12));
        let blocks: Vec<u64> = runs.iter().flat_map(|(start, len)| start..start + len).collect();
        assert_eq!(Runs::from_bytes(&runs.to_bytes()).as_ref(), Ok(&runs));
        let end = runs.blocks() * BLOCK;
        for off in (0..end + 5_000).step_by(1_365) {
            for len in [0usize, 1, 100, 4_096, 9_000, 60_000] {
                let mut at = off;
                for (device, part) in runs.parts(off, len) {
                    assert_eq!(part.start as u64, at - off);
                    for i in [0, part.len() as u64 - 1] {
                        let place = blocks[((at + i) / BLOCK) as usize] * BLOCK + (at + i) % BLOCK;
                        assert_eq!(device + i, place, "{off} {len}");
                    }
                    at += part.len() as u64;
                }
                assert_eq!(at.max(off), end.clamp(off, off + len as u64), "{off} {len}");
            }
        }
    }
}
