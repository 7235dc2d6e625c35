//! Sets of blocks, and what changes in them.

use std::collections::BTreeMap;
use std::ops::{Deref, Range};

/// The words that `start..start + len` touches, and the bits in each.
pub(crate) fn words_of(start: u64, len: u64) -> impl Iterator<Item = (usize, u64)> {
    let (mut at, end) = (start, start + len);
    std::iter::from_fn(move || {
        let n = (64 - at % 64).min(end - at);
        let mask = if n == 64 { !0 } else { ((1 << n) - 1) << (at % 64) };
        let i = (at / 64) as usize;
        at += n;
        (n > 0).then_some((i, mask))
    })
}

/// Bits of the last word for what is beyond the end, which is never free.
fn beyond(blocks: u64) -> u64 {
    if blocks.is_multiple_of(64) { 0 } else { !0 << (blocks % 64) }
}

/// A set of blocks, one bit each; a set bit is a used block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bitmap {
    words: Vec<u64>,
    /// A bit for each of `words`, set when all of its blocks are used: a search passes over 4,096
    /// such blocks at a time, for a device of TiB may be full from its start on.
    full: Vec<u64>,
    blocks: u64,
}

impl Bitmap {
    /// All free.
    pub fn new(blocks: u64) -> Self {
        let mut words = vec![0; blocks.div_ceil(64) as usize];
        if let Some(last) = words.last_mut() {
            *last = beyond(blocks);
        }
        let full = vec![0; words.len().div_ceil(64)];
        Self { words, full, blocks }
    }

    pub fn from_bytes(blocks: u64, bytes: &[u8]) -> Option<Self> {
        let mut map = Self::new(blocks);
        if bytes.len() != map.words.len() * 8 {
            return None;
        }
        for (i, raw) in bytes.chunks_exact(8).enumerate() {
            map.put_word(i, u64::from_le_bytes(raw.try_into().expect("eight bytes")));
        }
        Some(map)
    }

    /// Calls `f` with each word that `start..start + len` touches and the bits in it.
    pub fn each(&mut self, start: u64, len: u64, mut f: impl FnMut(&mut u64, u64)) {
        assert!(start + len <= self.blocks, "blocks {start}+{len} lie on the device");
        for (i, mask) in words_of(start, len) {
            f(&mut self.words[i], mask);
            self.note_full(i);
        }
    }

    /// Word `i` has changed.
    fn note_full(&mut self, i: usize) {
        let (of, bit) = (&mut self.full[i / 64], 1 << (i % 64));
        if self.words[i] == !0 {
            *of |= bit;
        } else {
            *of &= !bit;
        }
    }

    /// The first word from `i` on that has a free block.
    fn not_full_from(&self, i: usize) -> Option<usize> {
        let (mut of, mut passed) = (i / 64, (1 << (i % 64)) - 1);
        loop {
            let not_full = !(self.full.get(of)? | passed);
            if not_full != 0 {
                let word = of * 64 + not_full.trailing_zeros() as usize;
                return (word < self.words.len()).then_some(word);
            }
            (of, passed) = (of + 1, 0);
        }
    }

    /// Marks blocks used; whether all were free.
    pub fn set(&mut self, start: u64, len: u64) -> bool {
        let mut free = true;
        self.each(start, len, |w, mask| {
            free &= *w & mask == 0;
            *w |= mask;
        });
        free
    }

    /// Marks blocks free; whether all were used.
    pub fn clear(&mut self, start: u64, len: u64) -> bool {
        let mut used = true;
        self.each(start, len, |w, mask| {
            used &= *w & mask == mask;
            *w &= !mask;
        });
        used
    }

    pub fn free_count(&self) -> u64 {
        self.words.iter().map(|w| u64::from(w.count_zeros())).sum()
    }

    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Blocks 64 i and behind it, one bit each, the lowest first.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Gives word `i`, of those there are, another value.
    pub fn put_word(&mut self, i: usize, word: u64) {
        let beyond = if i + 1 == self.words.len() { beyond(self.blocks) } else { 0 };
        self.words[i] = word | beyond;
        self.note_full(i);
    }

    /// The first run of free blocks at or after `from`, cut at `max` blocks.
    pub fn run_from(&self, from: u64, max: u64) -> Option<(u64, u64)> {
        let mut word = (from / 64) as usize;
        let mut free = !self.words.get(word)? & !0 << (from % 64);
        if free == 0 {
            word = self.not_full_from(word + 1)?;
            free = !self.words[word];
        }
        let start = word as u64 * 64 + u64::from(free.trailing_zeros());
        let mut at = start;
        while at - start < max {
            let Some(w) = self.words.get((at / 64) as usize) else { break };
            let used = w >> (at % 64);
            let n = if used == 0 { 64 - at % 64 } else { u64::from(used.trailing_zeros()) };
            at += n;
            if used != 0 {
                break;
            }
        }
        Some((start, (at - start).min(max)))
    }
}

/// A set of a map's words.
#[derive(Clone, Debug, Default)]
pub(crate) struct WordSet(Vec<u64>);

impl WordSet {
    fn new(words: usize) -> Self {
        Self(vec![0; words.div_ceil(64)])
    }

    fn insert(&mut self, i: usize) {
        self.0[i / 64] |= 1 << (i % 64);
    }

    /// Those of blocks `start..start + len`.
    pub fn insert_blocks(&mut self, start: u64, len: u64) {
        words_of(start, len).for_each(|(i, _)| self.insert(i));
    }

    pub fn count(&self) -> u64 {
        self.0.iter().map(|bits| u64::from(bits.count_ones())).sum()
    }

    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        let some = self.0.iter().enumerate().filter(|(_, bits)| **bits != 0);
        some.flat_map(|(i, bits)| {
            let mut left = *bits;
            std::iter::from_fn(move || {
                let bit = left.trailing_zeros() as usize;
                let was = left;
                left &= left.wrapping_sub(1);
                (was != 0).then_some(i * 64 + bit)
            })
        })
    }
}

/// A map that is held now and then: it goes on changing, and can be read as it was; and tells which
/// of its words have changed from one time to the next.
#[derive(Debug)]
pub(crate) struct Tracked {
    map: Bitmap,
    /// Words that have changed since it was held.
    changed: WordSet,
    /// While it is held: how such words were.
    before: Option<BTreeMap<usize, u64>>,
}

impl Deref for Tracked {
    type Target = Bitmap;
    fn deref(&self) -> &Bitmap {
        &self.map
    }
}

impl Tracked {
    /// Nothing has changed yet.
    pub fn new(map: Bitmap) -> Self {
        let changed = WordSet::new(map.words.len());
        Self { map, changed, before: None }
    }

    fn note(&mut self, start: u64, len: u64) {
        for (i, _) in words_of(start, len) {
            self.changed.insert(i);
            if let Some(before) = &mut self.before {
                before.entry(i).or_insert(self.map.words[i]);
            }
        }
    }

    /// As [`Bitmap::set`].
    pub fn set(&mut self, start: u64, len: u64) -> bool {
        self.note(start, len);
        self.map.set(start, len)
    }

    /// As [`Bitmap::clear`].
    pub fn clear(&mut self, start: u64, len: u64) -> bool {
        self.note(start, len);
        self.map.clear(start, len)
    }

    /// Holds it as it is. Returns the words that changed since the last time; those of `uncounted`
    /// blocks among them, this time and the next, whatever becomes of them.
    pub fn hold(&mut self, uncounted: &[(u64, u64)]) -> WordSet {
        let mut next = WordSet::new(self.map.words.len());
        for (start, len) in uncounted {
            next.insert_blocks(*start, *len);
            self.changed.insert_blocks(*start, *len);
        }
        self.before = Some(BTreeMap::new());
        std::mem::replace(&mut self.changed, next)
    }

    /// Word `i` when it was held.
    pub fn held_word(&self, i: usize) -> u64 {
        let before = self.before.as_ref().and_then(|b| b.get(&i));
        before.copied().unwrap_or(self.map.words[i])
    }

    /// Such words, to `out`.
    pub fn held_words(&self, words: Range<usize>, out: &mut Vec<u64>) {
        out.clear();
        out.extend_from_slice(&self.map.words[words.clone()]);
        for (i, word) in self.before.iter().flat_map(|b| b.range(words.clone())) {
            out[i - words.start] = *word;
        }
    }

    /// Nobody asks any more how it was.
    pub fn let_go(&mut self) {
        self.before = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Free blocks are found wherever they are behind used ones, also after they came and went,
    /// and the map was written and read.
    #[test]
    fn far_holes_are_found() {
        const BLOCKS: u64 = (1 << 20) + 77;
        let mut map = Bitmap::new(BLOCKS);
        assert!(map.set(0, BLOCKS));
        assert_eq!(map.run_from(0, 8), None);
        let holes = [(3u64, 2u64), (64, 64), (4_095, 2), (300_000, 1), (BLOCKS - 1, 1)];
        for round in 0..2 {
            for (start, len) in holes {
                assert!(map.clear(start, len));
            }
            let mut at = 0;
            for hole in holes {
                assert_eq!(map.run_from(at, 100), Some(hole), "round {round}");
                at = hole.0 + hole.1;
            }
            assert_eq!(map.run_from(at, 100), None);
            let raw: Vec<u8> = map.words().iter().flat_map(|w| w.to_le_bytes()).collect();
            assert_eq!(Bitmap::from_bytes(BLOCKS, &raw).as_ref(), Some(&map));
            for (start, len) in holes {
                assert!(map.set(start, len));
            }
            assert_eq!(map.run_from(0, 8), None);
        }
    }

    /// What is held stays as it was, and each word that changed is told of, whenever it did.
    #[test]
    fn a_held_map_does_not_change() {
        const BLOCKS: u64 = 3_000;
        let mut chance = env::Seeded(7);
        let mut below = |n: u64| env::Random::u64(&mut chance) % n;
        let mut tracked = Tracked::new(Bitmap::new(BLOCKS));
        let mut last = (*tracked).clone();
        let mut uncounted_before = Vec::new();
        for _ in 0..200 {
            let change = |tracked: &mut Tracked, start, len, set| match set {
                true => tracked.set(start, len),
                false => tracked.clear(start, len),
            };
            for _ in 0..below(8) {
                let (start, set) = (below(BLOCKS - 200), below(2) == 0);
                change(&mut tracked, start, 1 + below(200), set);
            }
            let held = (*tracked).clone();
            let uncounted: Vec<_> = (0..below(3)).map(|_| (below(BLOCKS - 9), 9)).collect();
            let changed: Vec<usize> = tracked.hold(&uncounted).iter().collect();
            let mut want: Vec<usize> =
                (0..held.words.len()).filter(|i| held.words[*i] != last.words[*i]).collect();
            let both = uncounted.iter().chain(&uncounted_before);
            want.extend(both.flat_map(|(start, len)| words_of(*start, *len)).map(|(i, _)| i));
            assert!(want.iter().all(|i| changed.contains(i)), "{want:?} in {changed:?}");
            for _ in 0..below(8) {
                let (start, set) = (below(BLOCKS - 200), below(2) == 0);
                change(&mut tracked, start, 1 + below(200), set);
            }
            let all: Vec<u64> = (0..held.words.len()).map(|i| tracked.held_word(i)).collect();
            assert_eq!(all, held.words);
            let mut some = Vec::new();
            tracked.held_words(5..20, &mut some);
            assert_eq!(some, held.words[5..20]);
            tracked.let_go();
            (last, uncounted_before) = (held, uncounted);
        }
    }
}
