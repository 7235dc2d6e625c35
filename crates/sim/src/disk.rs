//! A disk that loses power: what was written since the last flush is lost, kept or torn.
//!
//! The store over it writes at once in the program, though time passes between what it does:
//! so what was written and flushed since the world last looked ([`TornDisk::settle`]) is
//! remembered in order, and a power cut may come at any place in it. A checkpoint that was
//! under way when the power went is written aside ([`TornDisk::aside`]) and cut at a place of
//! its own, for it goes on beside everything else.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Mutex, MutexGuard};

use bytes::Bytes;
use env::{Disk, Random};

/// What is written at a time, bytes.
const BLOCK: u64 = 4096;
/// What is written whole or not at all, bytes.
const SECTOR: usize = 512;
/// A disk that lies flushes once in so many times that the world looks.
const LIES: u64 = 40;

static ZEROS: [u8; BLOCK as usize] = [0; BLOCK as usize];

enum Event {
    /// Blocks in a row, from this one on.
    Write(u64, Vec<Bytes>),
    Flush,
}

/// Blocks by their number; absent ones are zeros.
type Blocks = BTreeMap<u64, Bytes>;

#[derive(Default)]
struct Inner {
    /// What a power cut cannot take away.
    safe: Blocks,
    /// What reads see, where it is not `safe`.
    newer: Blocks,
    events: Vec<Event>,
    aside: Option<Vec<Event>>,
    /// Blocks that cannot be read, until they are written anew.
    bad: BTreeSet<u64>,
    /// Writes and flushes until one fails, and all after it until the power goes; 0 for never.
    fails_in: u64,
    failed: bool,
    lies: bool,
    looks: u64,
    /// Flushes of what is written aside do nothing.
    loose: bool,
}

/// See the module.
pub struct TornDisk {
    size: u64,
    inner: Mutex<Inner>,
}

/// What a power cut leaves of `events`, of which it knows no more.
fn cut(safe: &mut Blocks, events: Vec<Event>, chance: &mut dyn Random) {
    let mut below = |n: usize| (chance.u64() % n.max(1) as u64) as usize;
    let at = if below(2) == 0 { events.len() } else { below(events.len() + 1) };
    let flushed = events[..at].iter().rposition(|e| matches!(e, Event::Flush)).map_or(0, |i| i + 1);
    let mut open = Vec::new();
    for (i, event) in events.into_iter().take(at).enumerate() {
        match event {
            Event::Write(first, blocks) if i < flushed => put(safe, first, blocks),
            Event::Write(first, blocks) => open.push((first, blocks)),
            Event::Flush => {}
        }
    }
    for i in (1..open.len()).rev() {
        if below(4) == 0 {
            open.swap(i, below(i + 1));
        }
    }
    let mood = below(4);
    for (first, blocks) in open {
        match if mood == 3 { below(3) } else { mood } {
            0 => {}
            1 => put(safe, first, blocks),
            _ => {
                for (block, new) in (first..).zip(blocks) {
                    let old = safe.get(&block).map_or_else(zeros, |b| b.to_vec());
                    let torn = old.chunks(SECTOR).zip(new.chunks(SECTOR));
                    let torn = torn.flat_map(|(old, new)| if below(2) == 0 { new } else { old });
                    let torn: Vec<u8> = torn.copied().collect();
                    safe.insert(block, torn.into());
                }
            }
        }
    }
}

fn zeros() -> Vec<u8> {
    vec![0; BLOCK as usize]
}

fn put(to: &mut Blocks, first: u64, blocks: Vec<Bytes>) {
    to.extend((first..).zip(blocks));
}

impl Inner {
    fn may_fail(&mut self) -> io::Result<()> {
        if self.fails_in > 0 {
            self.fails_in -= 1;
            self.failed |= self.fails_in == 0;
        }
        if self.failed { Err(io::Error::other("the disk does not answer")) } else { Ok(()) }
    }

    fn write(&mut self, first: u64, blocks: Vec<Bytes>) {
        let end = first + blocks.len() as u64;
        self.bad.retain(|b| !(first..end).contains(b));
        put(&mut self.newer, first, blocks.clone());
        let events = self.aside.as_mut().unwrap_or(&mut self.events);
        events.push(Event::Write(first, blocks));
    }
}

impl TornDisk {
    /// Zeros.
    #[must_use]
    pub fn new(size: u64) -> Self {
        Self { size, inner: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no holder of this lock panics")
    }

    /// Says that everything is flushed, and now and then it is.
    pub fn lie(&self) {
        self.lock().lies = true;
    }

    /// Flushes of checkpoints do nothing.
    pub fn loosen(&self) {
        self.lock().loose = true;
    }

    /// Somebody has seen the answers so far: what was flushed stays.
    pub fn settle(&self) {
        let mut inner = self.lock();
        inner.looks += 1;
        if inner.lies && inner.looks.is_multiple_of(LIES) {
            inner.events.push(Event::Flush);
        }
        let flushed = inner.events.iter().rposition(|e| matches!(e, Event::Flush));
        let Some(flushed) = flushed else { return };
        let rest = inner.events.split_off(flushed);
        let Inner { safe, newer, events, .. } = &mut *inner;
        for event in std::mem::replace(events, rest) {
            if let Event::Write(first, blocks) = event {
                put(safe, first, blocks);
            }
        }
        newer.clear();
        for event in events {
            if let Event::Write(first, blocks) = event {
                put(newer, *first, blocks.clone());
            }
        }
    }

    /// What is written from now on goes on beside what was written since the last flush; after
    /// it comes [`TornDisk::cut`].
    pub fn aside(&self) {
        self.settle();
        self.lock().aside = Some(Vec::new());
    }

    /// The power goes, and comes again.
    pub fn cut(&self, chance: &mut dyn Random) {
        let mut inner = self.lock();
        (inner.fails_in, inner.failed) = (0, false);
        let Inner { safe, newer, events, aside, .. } = &mut *inner;
        newer.clear();
        cut(safe, std::mem::take(events), chance);
        cut(safe, aside.take().unwrap_or_default(), chance);
    }

    /// The `n`th write or flush from now on fails, and all that follow until the power goes; 0
    /// for none.
    pub fn fail_in(&self, n: u64) {
        self.lock().fails_in = n;
    }

    /// Whether writes fail.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.lock().failed
    }

    /// Whether writes fail, or are going to.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        let inner = self.lock();
        inner.failed || inner.fails_in > 0
    }

    /// What is there cannot be read any more, until it is written anew.
    pub fn make_unreadable(&self, off: u64) {
        self.lock().bad.insert(off / BLOCK);
    }

    /// Flips a bit of what is safe here; `false` where newer data is on its way, which would
    /// cover it.
    pub fn flip(&self, off: u64, bit: u8) -> bool {
        let mut inner = self.lock();
        let block = off / BLOCK;
        if inner.newer.contains_key(&block) {
            return false;
        }
        let mut raw = inner.safe.get(&block).map_or_else(zeros, |b| b.to_vec());
        raw[(off % BLOCK) as usize] ^= 1 << (bit % 8);
        inner.safe.insert(block, raw.into());
        true
    }
}

impl Disk for TornDisk {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, off: u64, buf: &mut [u8]) -> io::Result<()> {
        if off + buf.len() as u64 > self.size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let inner = self.lock();
        let (first, end) = (off / BLOCK, (off + buf.len() as u64).div_ceil(BLOCK));
        if inner.bad.range(first..end).next().is_some() {
            return Err(io::Error::other("the disk cannot read this"));
        }
        let mut done = 0;
        while done < buf.len() {
            let at = off + done as u64;
            let skip = (at % BLOCK) as usize;
            let n = (buf.len() - done).min(BLOCK as usize - skip);
            let block = at / BLOCK;
            match inner.newer.get(&block).or_else(|| inner.safe.get(&block)) {
                Some(b) => buf[done..done + n].copy_from_slice(&b[skip..skip + n]),
                None => buf[done..done + n].fill(0),
            }
            done += n;
        }
        Ok(())
    }

    fn write(&self, off: u64, data: &[u8]) -> io::Result<()> {
        let whole = off.is_multiple_of(BLOCK) && (data.len() as u64).is_multiple_of(BLOCK);
        assert!(whole, "writes are in blocks");
        assert!(off + data.len() as u64 <= self.size, "writes lie on the disk");
        let keep = |b: &[u8]| match b == ZEROS {
            true => Bytes::from_static(&ZEROS),
            false => Bytes::copy_from_slice(b),
        };
        let blocks = data.chunks(BLOCK as usize).map(keep).collect();
        let mut inner = self.lock();
        inner.may_fail()?;
        inner.write(off / BLOCK, blocks);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let mut inner = self.lock();
        inner.may_fail()?;
        let Inner { events, aside, lies, loose, .. } = &mut *inner;
        match aside {
            Some(_) if *loose => {}
            Some(aside) => aside.push(Event::Flush),
            None if *lies => {}
            None => events.push(Event::Flush),
        }
        Ok(())
    }

    /// What is thrown away reads as anything: here as a pattern that nobody writes.
    fn discard(&self, off: u64, len: u64) -> io::Result<()> {
        assert!(off + len <= self.size, "what is discarded lies on the disk");
        let rubbish = Bytes::from(vec![0xdc; BLOCK as usize]);
        self.lock().write(off / BLOCK, vec![rubbish; (len / BLOCK) as usize]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::Seeded;

    const N: usize = BLOCK as usize;

    fn read(disk: &TornDisk, block: u64) -> Vec<u8> {
        let mut raw = vec![0; N];
        disk.read(block * BLOCK, &mut raw).unwrap();
        raw
    }

    fn is_mix(raw: &[u8], old: u8, new: u8) -> bool {
        raw.chunks(SECTOR).all(|s| s.iter().all(|b| *b == old) || s.iter().all(|b| *b == new))
    }

    /// What was flushed and seen stays; of what followed, any sector is old or new, and over many
    /// cuts there are lost, kept and torn writes.
    #[test]
    fn cuts_lose_keep_and_tear_what_was_not_flushed() {
        let mut seen = [false; 3];
        for seed in 0..200 {
            let disk = TornDisk::new(16 * BLOCK);
            disk.write(0, &[1; 2 * N]).unwrap();
            disk.flush().unwrap();
            disk.settle();
            disk.write(0, &[2; N]).unwrap();
            assert_eq!(read(&disk, 0), [2; N], "reads see the newest");
            disk.cut(&mut Seeded(seed));
            let raw = read(&disk, 0);
            assert!(is_mix(&raw, 1, 2), "seed {seed}");
            assert_eq!(read(&disk, 1), [1; N]);
            seen[if raw == [1; N] { 0 } else { 1 + usize::from(raw == [2; N]) }] = true;
        }
        assert_eq!(seen, [true; 3]);
    }

    /// A flush that nobody has seen return may have been reached or not; never what follows it
    /// without what comes before it.
    #[test]
    fn cuts_keep_the_order_of_flushes() {
        let (mut before, mut behind) = (false, false);
        for seed in 0..200 {
            let disk = TornDisk::new(16 * BLOCK);
            disk.write(0, &[1; N]).unwrap();
            disk.flush().unwrap();
            disk.write(BLOCK, &[1; N]).unwrap();
            disk.flush().unwrap();
            disk.cut(&mut Seeded(seed));
            let (first, second) = (read(&disk, 0) == [1; N], read(&disk, 1) != [0; N]);
            assert!(first || !second, "seed {seed}");
            before |= !first;
            behind |= second;
        }
        assert!(before && behind);
    }

    /// What is written aside is cut by itself: all else may be there and nothing of it, or the
    /// other way round.
    #[test]
    fn what_is_aside_is_cut_by_itself() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let disk = TornDisk::new(16 * BLOCK);
            disk.write(0, &[1; N]).unwrap();
            disk.aside();
            disk.write(BLOCK, &[1; N]).unwrap();
            disk.flush().unwrap();
            disk.cut(&mut Seeded(seed));
            seen.insert((read(&disk, 0) == [1; N], read(&disk, 1) == [1; N]));
        }
        assert_eq!(seen.len(), 4);
    }

    /// A disk that fails does so until the power goes; a bad block until it is written anew.
    #[test]
    fn failures() {
        let disk = TornDisk::new(16 * BLOCK);
        disk.fail_in(2);
        disk.write(0, &[1; N]).unwrap();
        assert!(disk.flush().is_err() && disk.write(0, &[2; N]).is_err());
        disk.cut(&mut Seeded(1));
        disk.write(0, &[3; N]).unwrap();
        disk.make_unreadable(5);
        assert!(disk.read(BLOCK - 1, &mut [0; 2]).is_err());
        disk.read(BLOCK, &mut [0; 2]).unwrap();
        disk.write(0, &[4; N]).unwrap();
        assert_eq!(read(&disk, 0), [4; N]);
    }

    /// A disk that lies loses what it called durable; one whose bit flipped reads it so.
    #[test]
    fn lies_and_flips() {
        let disk = TornDisk::new(16 * BLOCK);
        disk.lie();
        disk.write(0, &[1; N]).unwrap();
        disk.flush().unwrap();
        disk.settle();
        assert!(!disk.flip(7, 3), "it is on its way");
        let lost = |seed| {
            disk.write(0, &[1; N]).unwrap();
            disk.flush().unwrap();
            disk.settle();
            disk.cut(&mut Seeded(seed));
            let raw = read(&disk, 0);
            disk.lock().safe.clear();
            raw == [0; N]
        };
        assert!((0..20).any(lost));
        assert!(disk.flip(7, 3));
        assert_eq!(read(&disk, 0)[7], 8);
    }
}
