//! Free space of the device, in blocks.

use crate::bitmap::{Bitmap, Tracked};

/// Whom space is for: large data and what is packed together at checkpoints are kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Area {
    Data,
    Packed,
}

/// Gives out free blocks from the areas' starts on, so that a sparse file stays small and
/// what the file system has found space for is used again.
#[derive(Debug)]
pub(crate) struct Alloc {
    pub used: Tracked,
    free: u64,
    cursors: [u64; 2],
    /// Where long runs are looked for when there are only short ones at the cursor.
    far: [u64; 2],
    /// What was given back since data was last looked for behind its cursor, and of that the
    /// runs that are worth looking for elsewhere.
    freed: Freed,
    freed_far: Freed,
    /// Blocks among which nothing longer was found than at the cursor, by searches elsewhere in a
    /// row.
    barren: [u64; 2],
    /// Blocks given back since such searches are not made any more.
    freed_barren: u64,
    stale: Option<Stale>,
}

/// Blocks given back, and the first of them.
#[derive(Clone, Copy, Debug, Default)]
struct Freed {
    blocks: u64,
    lowest: u64,
}

impl Freed {
    fn add(&mut self, start: u64, len: u64) {
        self.lowest = if self.blocks == 0 { start } else { self.lowest.min(start) };
        self.blocks += len;
    }

    /// Puts a cursor where the first of so many blocks is, when there are so many.
    fn moves(&mut self, cursor: &mut u64, blocks: u64) {
        if self.blocks >= blocks {
            *cursor = self.lowest.min(*cursor);
            *self = Self::default();
        }
    }
}

/// Free blocks that were in use, and of which the device was not told.
#[derive(Debug)]
struct Stale {
    /// Set where there is nothing to tell.
    told: Bitmap,
    blocks: u64,
    /// Where the last search for them ended.
    cursor: u64,
}

/// Free runs looked at before a shorter one than wanted is taken.
const TRIES: usize = 512;
/// A run from here on is taken though more is wanted: 1 MiB is as good as contiguous.
const LONG: u64 = 256;
/// So many blocks given back, or this part of all, are used before what lies ahead: that may
/// be the file's first use of it, which costs the file system a commit of its journal, and
/// with it everybody's flushes.
const AGAIN_BLOCKS: u64 = 2_048;
const AGAIN_PART: u64 = 4_096;
/// Where there was nothing long on all of the device there may be when this part of it was given
/// back.
const BARREN_PART: u64 = 32;

impl Alloc {
    pub fn new(used: Bitmap) -> Self {
        let free = used.free_count();
        let cursors = Self::starts(&used);
        let freed = Freed::default();
        Self {
            used: Tracked::new(used),
            free,
            cursors,
            far: cursors,
            freed,
            freed_far: freed,
            barren: [0; 2],
            freed_barren: 0,
            stale: None,
        }
    }

    /// From now on remembers what becomes free, for [`Alloc::take_stale`].
    pub fn track_stale(&mut self) {
        let mut told = Bitmap::new(self.used.blocks());
        told.set(0, self.used.blocks());
        self.stale = Some(Stale { told, blocks: 0, cursor: 0 });
    }

    /// Blocks that [`Alloc::take_stale`] would find.
    pub fn stale(&self) -> u64 {
        self.stale.as_ref().map_or(0, |s| s.blocks)
    }

    /// Takes runs of blocks that became free, up to so many blocks: the device may be told.
    /// They are given back by [`Alloc::give_back_told`].
    pub fn take_stale(&mut self, mut blocks: u64) -> Vec<(u64, u64)> {
        let mut out = Vec::new();
        let mut wrapped = false;
        while blocks > 0
            && let Some(s) = &mut self.stale
        {
            let Some((start, len)) = s.told.run_from(s.cursor, blocks) else {
                if std::mem::replace(&mut wrapped, true) {
                    break;
                }
                s.cursor = 0;
                continue;
            };
            s.cursor = start + len;
            assert!(self.take(start, len), "what is stale is free");
            blocks -= len;
            out.push((start, len));
        }
        out
    }

    /// Gives back what [`Alloc::take_stale`] gave.
    pub fn give_back_told(&mut self, start: u64, len: u64) {
        self.free += len;
        assert!(self.used.clear(start, len), "it was taken");
    }

    /// Notes that blocks were taken, or have become free.
    fn note(&mut self, start: u64, len: u64, free: bool) {
        let Some(s) = &mut self.stale else { return };
        s.told.each(start, len, |w, mask| {
            let stale = u64::from((!*w & mask).count_ones());
            s.blocks -= stale;
            if free {
                *w &= !mask;
                s.blocks += u64::from(mask.count_ones());
            } else {
                *w |= mask;
            }
        });
    }

    /// Looks for free space from the start again: now and then, so that holes are found,
    /// and not each time, so that the search stays short.
    pub fn restart(&mut self) {
        self.cursors = Self::starts(&self.used);
        self.freed = Freed::default();
    }

    /// Where the areas start: packed space in the device's last quarter.
    fn starts(used: &Bitmap) -> [u64; 2] {
        [0, used.blocks() / 4 * 3]
    }

    /// Free blocks.
    pub fn free(&self) -> u64 {
        self.free
    }

    /// `blocks` blocks in as few runs `(start, len)` as a bounded search finds; `None`,
    /// and nothing taken, when fewer are free.
    pub fn alloc(&mut self, blocks: u64, area: Area) -> Option<Vec<(u64, u64)>> {
        if blocks > self.free {
            return None;
        }
        let again = AGAIN_BLOCKS.max(self.used.blocks() / AGAIN_PART);
        self.freed.moves(&mut self.cursors[Area::Data as usize], again);
        self.freed_far.moves(&mut self.far[Area::Data as usize], again);
        if self.freed_barren >= again.max(self.used.blocks() / BARREN_PART) {
            (self.barren, self.freed_barren) = ([0; 2], 0);
        }
        let mut out = Vec::new();
        let mut left = blocks;
        while left > 0 {
            for (start, len) in self.find(left, area as usize) {
                let was_free = self.used.set(start, len);
                assert!(was_free, "space is given out once");
                self.note(start, len, false);
                self.free -= len;
                left -= len;
                out.push((start, len));
            }
        }
        Some(out)
    }

    /// A run of `want` blocks, or a long one, or the longest of the next few. Where the ones at
    /// the cursor are short, as between the blocks of an object that was overwritten here and
    /// there, they are left for the time when their neighbours are freed, and one is looked for
    /// elsewhere. Where there is none on all of the device, several are taken.
    fn find(&mut self, want: u64, area: usize) -> Vec<(u64, u64)> {
        let near = self.next_few(self.cursors[area], want);
        let is_barren = self.barren[area] >= self.used.blocks();
        if near.longest < want.min(LONG).div_ceil(4) && !is_barren {
            let far = self.next_few(self.far[area], want);
            self.far[area] = far.looked_to;
            if far.longest > near.longest {
                self.barren[area] = 0;
                return far.longest();
            }
            self.barren[area] += far.passed;
            self.freed_barren = 0;
        }
        let runs = if is_barren { near.longer(want) } else { near.longest() };
        let last = runs.last().expect("free blocks are counted and must be found");
        self.cursors[area] = last.0 + last.1;
        runs
    }

    /// Free runs from `from` on, and around; no more behind one of `want` blocks, or a long one.
    fn next_few(&self, from: u64, want: u64) -> Few {
        let mut few = Few { runs: Vec::new(), longest: 0, looked_to: from, passed: 0 };
        let mut wrapped = false;
        while few.runs.len() < TRIES {
            // Around, no further than where it began.
            let run = self.used.run_from(few.looked_to, want);
            let run = run.filter(|(start, _)| !wrapped || *start < from);
            let Some((start, len)) = run else {
                if wrapped {
                    break;
                }
                (wrapped, few.looked_to) = (true, 0);
                continue;
            };
            let len = if wrapped { len.min(from - start) } else { len };
            few.looked_to = start + len;
            few.longest = few.longest.max(len);
            few.runs.push((start, len));
            if len >= want.min(LONG) {
                break;
            }
        }
        few.passed = if wrapped { self.used.blocks() } else { 0 } + few.looked_to - from;
        few
    }

    /// Marks what a log record or a table names as used.
    ///
    /// Returns whether it was free before.
    pub fn take(&mut self, start: u64, len: u64) -> bool {
        if start.checked_add(len).is_none_or(|end| end > self.used.blocks()) {
            return false;
        }
        let was_free = self.used.set(start, len);
        if was_free {
            self.note(start, len, false);
            self.free -= len;
        }
        was_free
    }

    /// Gives blocks back.
    pub fn release(&mut self, start: u64, len: u64) {
        assert!(self.give_back(start, len), "blocks {start}+{len} are freed once");
    }

    /// As [`Alloc::release`]; `false`, with nothing to rely on left, where they were free.
    pub fn give_back(&mut self, start: u64, len: u64) -> bool {
        if start.checked_add(len).is_none_or(|end| end > self.used.blocks()) {
            return false;
        }
        self.free += len;
        self.freed_barren += len;
        self.freed.add(start, len);
        if len >= LONG / 4 {
            self.freed_far.add(start, len);
        }
        self.note(start, len, true);
        self.used.clear(start, len)
    }
}

/// Free runs next to one another, and where the search for them ended.
struct Few {
    runs: Vec<(u64, u64)>,
    longest: u64,
    looked_to: u64,
    /// Blocks that it went over.
    passed: u64,
}

impl Few {
    /// The first of the longest.
    fn longest(self) -> Vec<(u64, u64)> {
        self.runs.into_iter().find(|run| run.1 == self.longest).into_iter().collect()
    }

    /// Those that are not much shorter than the longest, up to `want` blocks in all. Where space
    /// is in single blocks a search for each of them would look at all the others each time.
    fn longer(self, want: u64) -> Vec<(u64, u64)> {
        if self.longest >= want.min(LONG) {
            return self.longest();
        }
        let mut left = want;
        let longer = self.runs.into_iter().filter(|(_, len)| *len > self.longest / 2);
        let taken = longer.map_while(|(at, len)| {
            let len = len.min(left);
            left -= len;
            (len > 0).then_some((at, len))
        });
        taken.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was given back is used before what was never used.
    #[test]
    fn freed_space_goes_first() {
        let mut alloc = Alloc::new(Bitmap::new(1 << 20));
        let first = alloc.alloc(4_096, Area::Data).expect("there is room");
        let second = alloc.alloc(4_096, Area::Data).expect("there is room");
        assert_eq!((first[0].0, second[0].0), (0, 4_096));
        alloc.release(64, 128);
        assert_eq!(alloc.alloc(256, Area::Data), Some(vec![(8_192, 256)]), "not for a little");
        alloc.release(1_024, 3_000);
        assert_eq!(alloc.alloc(3_000, Area::Data), Some(vec![(1_024, 3_000)]));
        assert_eq!(alloc.alloc(256, Area::Data), Some(vec![(8_448, 256)]));
    }

    /// Nor is new space taken for what is written where there are only holes, while as much is
    /// given back.
    #[test]
    fn space_behind_holes_is_used_again() {
        let mut alloc = Alloc::new(Bitmap::new(1 << 20));
        alloc.alloc(1 << 16, Area::Data).expect("there is room");
        (0..1 << 16).step_by(2).for_each(|at| alloc.release(at, 1));
        for _ in 0..64 {
            let object = |_| alloc.alloc(1_024, Area::Data).expect("there is room");
            let objects: Vec<_> = (0..8).map(object).collect();
            for (start, len) in objects.into_iter().flatten() {
                assert!(start + len < 1 << 17, "block {start}");
                alloc.release(start, len);
            }
        }
    }

    /// Holes between blocks in use are left while there is space in one piece, and taken when
    /// there is none.
    #[test]
    fn large_data_is_not_spread_over_holes() {
        const BLOCKS: u64 = 1 << 16;
        let mut alloc = Alloc::new(Bitmap::new(BLOCKS));
        let first = alloc.alloc(BLOCKS / 2, Area::Data).expect("there is room");
        assert_eq!(first, vec![(0, BLOCKS / 2)]);
        // Every eighth block is given back, as those of an image that is written at random.
        (0..BLOCKS / 2).step_by(8).for_each(|at| alloc.release(at, 1));
        let mut runs = 0;
        while alloc.free() > BLOCKS / 8 {
            runs += alloc.alloc(1_024, Area::Data).expect("there is room").len();
        }
        assert!(runs < 64, "{runs} runs");
        let free = alloc.free();
        let rest = alloc.alloc(free, Area::Data).expect("there is room");
        assert_eq!((alloc.free(), rest.iter().map(|r| r.1).sum::<u64>()), (0, free));
    }

    /// Whatever the holes and the sizes are: as many blocks as were asked for, each given out
    /// once, while so many are free.
    #[test]
    fn random_holes_are_given_out_once() {
        const BLOCKS: u64 = 2_048;
        for seed in 0..4 {
            let mut chance = env::Seeded(seed);
            let mut below = |n: u64| env::Random::u64(&mut chance) % n;
            let mut alloc = Alloc::new(Bitmap::new(BLOCKS));
            let mut taken: Vec<u64> = Vec::new();
            for _ in 0..2_000 {
                if below(16) == 0 {
                    alloc.restart();
                }
                let most = 1 << below(10);
                let want = 1 + below(most);
                let area = if below(2) == 0 { Area::Data } else { Area::Packed };
                let free = alloc.free();
                assert_eq!(free, BLOCKS - taken.len() as u64);
                let got = alloc.alloc(want, area);
                assert_eq!(got.is_some(), want <= free);
                let runs = got.into_iter().flatten();
                taken.extend(runs.flat_map(|(start, len)| start..start + len));
                for _ in 0..below(2 * want) {
                    if !taken.is_empty() {
                        let i = below(taken.len() as u64) as usize;
                        alloc.release(taken.swap_remove(i), 1);
                    }
                }
            }
            taken.sort_unstable();
            taken.dedup();
            assert_eq!(alloc.free(), BLOCKS - taken.len() as u64);
            assert_eq!(alloc.free(), alloc.used.free_count());
        }
    }
}
