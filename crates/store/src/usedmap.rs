//! The map of used blocks as it is on the device: all of it, and what changed since.
//!
//! A map of a device of TiB has hundreds of MiB, and a checkpoint changes little of it. So each
//! writes the words that changed since the one before, behind what is there; and when that has
//! become much, the whole map anew. Each is a stream: runs of words, and their values unless all
//! are 0 or all are 1. What the streams do not name is free.
//!
//! While a checkpoint is made the map goes on changing. [`crate::bitmap::Tracked`] holds it as it
//! was, less what does not count: what nobody has yet, what rests, and what the last checkpoint
//! wrote about itself. Any word that is not written is as the last checkpoint has it: if that
//! took the block, it did so while the map was held, and so it has changed since; and what it let go
//! of rests, and does not count, or was given back, and has changed.

use denc::{DecodeError, Denc, Reader, Writer};
use env::Disk;

use crate::StoreError;
use crate::bitmap::{Bitmap, WordSet, words_of};
use crate::onode::BLOCK;
use crate::space::{Runs, Space, Stream, StreamWriter};
use crate::varint;

type Result<T> = std::result::Result<T, StoreError>;

/// Words of a run are all free, all used, or as they stand behind it.
const FREE: u64 = 0;
const USED: u64 = 1;
const MIXED: u64 = 2;

/// Changes are written behind the map until they are this part of it,
const DELTA_PART: u64 = 4;
/// or this part of what it would be if nothing in it were alike.
const WHOLE_PART: u64 = 32;
/// No more streams than this.
const STREAMS_MAX: usize = 256;
/// Bytes that a word takes, about, where it stands alone.
const WORD_BYTES: u64 = 11;
/// Words looked at while the owner waits.
const AT_ONCE: usize = 4_096;
const APART_AT_ONCE: usize = 512;

/// Where the map is: the first stream over blocks that are all free, each other one over those
/// before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UsedMap(Vec<Stream>);

impl UsedMap {
    /// Its own blocks.
    pub fn own(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().flat_map(|s| s.runs.iter())
    }

    /// The map, of so many blocks.
    pub fn read(&self, disk: &dyn Disk, blocks: u64) -> Result<Bitmap> {
        let mut map = Bitmap::new(blocks);
        for stream in &self.0 {
            let raw = stream.read(disk, "map of used blocks")?;
            apply(&mut map, &raw)
                .map_err(|e| StoreError::Format(format!("map of used blocks: {e}")))?;
        }
        Ok(map)
    }

    /// Writes the first one, of a device of which everything counts that is taken.
    pub fn begin(space: &Space) -> Result<Self> {
        let held = space.alloc.lock().expect("no holder of this lock panics").used.hold(&[]);
        Changes::new(held, Vec::new()).write(space, None, std::iter::empty(), 0)
    }

    /// Whether it is `last` and what changed since: that stays.
    pub fn goes_on(&self, last: &Self) -> bool {
        self.0.starts_with(&last.0)
    }

    /// Whether so many changed words of `words` go behind it, rather than all anew.
    fn takes(&self, changed: u64, words: usize, least: u64) -> bool {
        let Some((first, behind)) = self.0.split_first() else { return false };
        let behind: u64 = behind.iter().map(|s| s.runs.blocks()).sum();
        let all = behind * BLOCK + (changed * WORD_BYTES).next_multiple_of(BLOCK);
        let most = (first.len / DELTA_PART).max(words as u64 * 8 / WHOLE_PART).max(least);
        all <= most && self.0.len() < STREAMS_MAX
    }
}

impl Denc for UsedMap {
    fn encode(&self, w: &mut Writer) {
        self.0.encode(w);
    }
    fn decode(r: &mut Reader<'_>) -> std::result::Result<Self, DecodeError> {
        Ok(Self(Denc::decode(r)?))
    }
}

/// Gives `map` the words of a stream.
fn apply(map: &mut Bitmap, raw: &[u8]) -> std::result::Result<(), DecodeError> {
    let mut r = Reader::new(raw);
    let mut at = 0u64;
    let words = map.words().len() as u64;
    while r.left() > 0 {
        let gap = varint::get(&mut r)?;
        let run = varint::get(&mut r)?;
        let (len, kind) = (run >> 2, run & 3);
        let from = at.checked_add(gap).filter(|from| *from <= words);
        r.require(from.is_some_and(|from| len <= words - from), "words lie on the device")?;
        r.require(kind <= MIXED, "a run's kind is known")?;
        let from = from.unwrap_or_default();
        at = from + len;
        for i in from..at {
            let word = match kind {
                FREE => 0,
                USED => !0,
                _ => r.u64()?,
            };
            map.put_word(i as usize, word);
        }
    }
    Ok(())
}

/// A stream of words in order.
struct Words {
    out: StreamWriter,
    crc: u32,
    /// Behind the last run that was written.
    end: usize,
    /// The run that grows: first, number and kind of its words.
    run: (usize, usize, u64),
    values: Vec<u8>,
    /// What is not yet written.
    raw: Vec<u8>,
}

impl Words {
    fn new(space: &Space) -> Self {
        let out = StreamWriter::new(space.clone());
        Self { out, crc: !0, end: 0, run: (0, 0, FREE), values: Vec::new(), raw: Vec::new() }
    }

    fn put(&mut self, i: usize, word: u64) -> Result<()> {
        let kind = match word {
            0 => FREE,
            u64::MAX => USED,
            _ => MIXED,
        };
        let (first, len, of) = self.run;
        if i != first + len || kind != of || self.values.len() >= 8 * AT_ONCE {
            self.end_run()?;
            self.run = (i, 0, kind);
        }
        self.run.1 += 1;
        if kind == MIXED {
            self.values.extend_from_slice(&word.to_le_bytes());
        }
        Ok(())
    }

    fn end_run(&mut self) -> Result<()> {
        let (first, len, kind) = self.run;
        if len == 0 {
            return Ok(());
        }
        for n in [(first - self.end) as u64, (len as u64) << 2 | kind] {
            let (raw, len) = varint::bytes(n);
            self.raw.extend_from_slice(&raw[..len]);
        }
        self.raw.append(&mut self.values);
        self.end = first + len;
        if self.raw.len() >= 8 * AT_ONCE {
            self.write_out()?;
        }
        Ok(())
    }

    fn write_out(&mut self) -> Result<()> {
        self.crc = stdx::crc32c(self.crc, &self.raw);
        self.out.put(&self.raw)?;
        self.raw.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<Stream> {
        self.end_run()?;
        self.write_out()?;
        let (runs, len) = self.out.finish()?;
        Ok(Stream { runs, len, crc: self.crc })
    }
}

/// What a checkpoint makes of the map.
#[derive(Default)]
pub(crate) struct Changes {
    /// Words that may not be as the last checkpoint has them.
    words: WordSet,
    /// Blocks that were taken when the map was held, and do not count.
    uncounted: Vec<(u64, u64)>,
    /// Blocks that the checkpoint itself took and let go of.
    taken: Runs,
    freed: Runs,
}

impl Changes {
    pub fn new(words: WordSet, uncounted: Vec<(u64, u64)>) -> Self {
        Self { words, uncounted, ..Self::default() }
    }

    pub fn take(&mut self, start: u64, len: u64) {
        self.words.insert_blocks(start, len);
        self.taken.push(start, len);
    }

    pub fn free(&mut self, start: u64, len: u64) {
        self.words.insert_blocks(start, len);
        self.freed.push(start, len);
    }

    /// Writes them behind `last`, or all of the map anew, and lets go of the map. Nor do the blocks
    /// of `own` count. Changes go behind `last` while they are `least` bytes, whatever its size.
    pub fn write(
        self,
        space: &Space,
        last: Option<&UsedMap>,
        own: impl Iterator<Item = (u64, u64)>,
        least: u64,
    ) -> Result<UsedMap> {
        let alloc = || space.alloc.lock().expect("no holder of this lock panics");
        let count = alloc().used.words().len();
        let fits = |last: &&UsedMap| last.takes(self.words.count(), count, least);
        let last = last.filter(fits);
        let mut masks = self.masks(own);
        let mut out = Words::new(space);
        let mut values = Vec::new();
        if last.is_some() {
            let mut words = self.words.iter().peekable();
            while words.peek().is_some() {
                let some: Vec<usize> = words.by_ref().take(APART_AT_ONCE).collect();
                let held = alloc();
                values.clear();
                values.extend(some.iter().map(|i| held.used.held_word(*i)));
                drop(held);
                for (i, value) in some.into_iter().zip(&values) {
                    out.put(i, masks.of(i, *value))?;
                }
            }
        } else {
            for from in (0..count).step_by(AT_ONCE) {
                alloc().used.held_words(from..count.min(from + AT_ONCE), &mut values);
                for (i, value) in (from..).zip(&values) {
                    let word = masks.of(i, *value);
                    if word != 0 {
                        out.put(i, word)?;
                    }
                }
            }
        }
        let stream = out.finish()?;
        alloc().used.let_go();
        let mut map = last.cloned().unwrap_or_default();
        map.0.push(stream);
        Ok(map)
    }

    fn masks(&self, own: impl Iterator<Item = (u64, u64)>) -> Masks {
        let free = self.uncounted.iter().copied().chain(self.freed.iter()).chain(own);
        let free = free.flat_map(|(start, len)| words_of(start, len)).map(|(i, m)| (i, m, 0));
        let taken = self.taken.iter().flat_map(|(start, len)| words_of(start, len));
        let mut all: Vec<_> = free.chain(taken.map(|(i, m)| (i, 0, m))).collect();
        all.sort_unstable_by_key(|mask| mask.0);
        all.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same {
                (kept.1, kept.2) = (kept.1 | next.1, kept.2 | next.2);
            }
            same
        });
        Masks { all, next: 0 }
    }
}

/// By the word, in order: bits that are free, bits that are used.
struct Masks {
    all: Vec<(usize, u64, u64)>,
    next: usize,
}

impl Masks {
    /// The word as it counts; words are asked for in order.
    fn of(&mut self, i: usize, word: u64) -> u64 {
        while self.all.get(self.next).is_some_and(|mask| mask.0 < i) {
            self.next += 1;
        }
        match self.all.get(self.next) {
            Some((at, free, used)) if *at == i => word & !free | used,
            _ => word,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use proptest::prelude::*;

    use super::*;
    use crate::SimDisk;
    use crate::alloc::{Alloc, Area};
    use crate::onode::BLOCK;

    const BLOCKS: u64 = 40_000;

    /// Whatever is taken and given back between checkpoints, and while one is made: what is read
    /// is what counted when each began, and what it changed itself.
    #[test]
    fn a_map_is_read_as_it_counted() {
        for seed in 0..12 {
            let mut chance = env::Seeded(seed);
            let mut below = |n: u64| env::Random::u64(&mut chance) % n.max(1);
            let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(BLOCKS * BLOCK, false));
            let alloc = Arc::new(Mutex::new(Alloc::new(Bitmap::new(BLOCKS))));
            let space = Space { disk: disk.clone(), alloc: alloc.clone(), ledger: None };
            let alloc = || alloc.lock().expect("nobody panics");
            let mut last = UsedMap::begin(&space).expect("there is room");
            // Runs that count, and runs that are taken and do not.
            let (mut counted, mut uncounted) = (Vec::new(), Vec::new());
            let mut resting = Vec::new();
            let (mut most, mut anew) = (0, 0);
            for _ in 0..60 {
                let mut change =
                    |counted: &mut Vec<_>, uncounted: &mut Vec<_>, alloc: &mut Alloc| {
                        for _ in 0..below(12) {
                            let longest = 1 << below(10);
                            let runs = alloc.alloc(1 + below(longest), Area::Data);
                            let whose = if below(3) == 0 { &mut *uncounted } else { &mut *counted };
                            whose.extend(runs.expect("there is room"));
                            // Others become counted, or are given back.
                            if !uncounted.is_empty() && below(2) == 0 {
                                let i = below(uncounted.len() as u64) as usize;
                                counted.push(uncounted.swap_remove(i));
                            }
                            if counted.len() > 20 {
                                let i = below(counted.len() as u64) as usize;
                                let (start, len): (u64, u64) = counted.swap_remove(i);
                                alloc.release(start, len);
                            }
                        }
                    };
                change(&mut counted, &mut uncounted, &mut alloc());
                if resting.len() > 3 {
                    resting.drain(..2).for_each(|(start, len)| alloc().release(start, len));
                }
                let both: Vec<_> = uncounted.iter().chain(&resting).copied().collect();
                let held = alloc().used.hold(&both);
                let mut changes = Changes::new(held, both);
                let mut want = Bitmap::new(BLOCKS);
                counted.iter().for_each(|(start, len)| assert!(want.set(*start, *len)));
                // The checkpoint moves something, while others go on.
                let mut moved = None;
                if let Some(old) = counted.pop() {
                    want.clear(old.0, old.1);
                    changes.free(old.0, old.1);
                    let runs = alloc().alloc(old.1, Area::Packed).expect("there is room");
                    for (start, len) in &runs {
                        assert!(want.set(*start, *len));
                        changes.take(*start, *len);
                    }
                    moved = Some((old, runs));
                }
                change(&mut counted, &mut uncounted, &mut alloc());
                let least = if seed % 3 == 0 { 0 } else { 128 << 10 };
                let new = changes.write(&space, Some(&last), last.own(), least);
                let new = new.expect("there is room");
                assert_eq!(new.read(&*disk, BLOCKS).expect("it was written"), want);
                most = most.max(new.0.len());
                if !new.goes_on(&last) {
                    anew += 1;
                    last.own().for_each(|(start, len)| alloc().release(start, len));
                }
                last = new;
                // What was moved rests a while: it is taken, and does not count.
                if let Some((old, runs)) = moved {
                    resting.push(old);
                    counted.extend(runs);
                }
            }
            assert!(anew > 0, "seed {seed}");
            assert_eq!(most > 1, seed % 3 != 0, "seed {seed}: {most} streams");
        }
    }

    /// What is alike takes no space, on however large a device.
    #[test]
    fn runs_of_words_are_short() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(8 << 40, false));
        let blocks = (8 << 40) / BLOCK;
        let mut map = Bitmap::new(blocks);
        map.set(3, blocks / 2);
        map.set(blocks - 5, 2);
        let alloc = Arc::new(Mutex::new(Alloc::new(map.clone())));
        let space = Space { disk: disk.clone(), alloc, ledger: None };
        let written = UsedMap::begin(&space).expect("there is room");
        assert_eq!((written.0.len(), written.0[0].len), (1, 38));
        assert_eq!(written.read(&*disk, blocks).expect("it was written"), map);
    }

    proptest! {
        /// Bytes that are no map are an error, and nothing worse.
        #[test]
        fn any_bytes_are_a_map_or_an_error(raw: Vec<u8>) {
            let _ = apply(&mut Bitmap::new(1_000), &raw);
        }

        #[test]
        fn words_beyond_the_device_are_refused(gap in 14u64..80, len in 3u64..1 << 60) {
            let mut raw = Vec::new();
            for n in [gap, len << 2 | USED] {
                let (bytes, len) = varint::bytes(n);
                raw.extend_from_slice(&bytes[..len]);
            }
            prop_assert!(apply(&mut Bitmap::new(1_000), &raw).is_err());
        }
    }
}
