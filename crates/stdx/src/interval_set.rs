//! Sets of integers kept as disjoint, non-touching ranges.

use std::collections::BTreeMap;

/// A set of `u64` as maximal runs `start -> len`, in order.
///
/// Invariant: no run is empty, and between two runs lies at least one absent value.
/// Source: the peer's `interval_set<T>`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntervalSet {
    runs: BTreeMap<u64, u64>,
}

impl IntervalSet {
    /// The empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether nothing is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Number of runs.
    #[must_use]
    pub fn run_count(&self) -> usize {
        self.runs.len()
    }

    /// Number of values.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.runs.values().sum()
    }

    /// The runs as `(start, len)`, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> + '_ {
        self.runs.iter().map(|(&s, &l)| (s, l))
    }

    /// Whether `value` is in it.
    #[must_use]
    pub fn contains(&self, value: u64) -> bool {
        self.runs.range(..=value).next_back().is_some_and(|(&s, &l)| value - s < l)
    }

    /// Adds `start..start + len` (a union: parts may be present already).
    ///
    /// # Panics
    /// When the range passes `u64::MAX`.
    pub fn insert(&mut self, start: u64, len: u64) {
        if len == 0 {
            return;
        }
        let mut lo = start;
        let mut hi = start.checked_add(len).expect("interval ends within u64");
        if let Some((&s, &l)) = self.runs.range(..=lo).next_back()
            && s + l >= lo
        {
            lo = s;
            hi = hi.max(s + l);
        }
        while let Some((&s, &l)) = self.runs.range(lo..=hi).next() {
            hi = hi.max(s + l);
            self.runs.remove(&s);
        }
        self.runs.insert(lo, hi - lo);
    }

    /// Removes `start..start + len`; parts may be absent already.
    pub fn remove(&mut self, start: u64, len: u64) {
        let end = start.saturating_add(len);
        if len == 0 {
            return;
        }
        if let Some((&s, &l)) = self.runs.range(..start).next_back()
            && s + l > start
        {
            self.runs.insert(s, start - s);
            if s + l > end {
                self.runs.insert(end, s + l - end);
            }
        }
        while let Some((&s, &l)) = self.runs.range(start..end).next() {
            self.runs.remove(&s);
            if s + l > end {
                self.runs.insert(end, s + l - end);
            }
        }
    }

    /// Adds all of `other`.
    pub fn union(&mut self, other: &Self) {
        for (s, l) in other.iter() {
            self.insert(s, l);
        }
    }

    /// Removes all of `other`.
    pub fn subtract(&mut self, other: &Self) {
        for (s, l) in other.iter() {
            self.remove(s, l);
        }
    }

    /// What is in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut out = self.clone();
        let mut outside = self.clone();
        outside.subtract(other);
        out.subtract(&outside);
        out
    }
}

impl FromIterator<(u64, u64)> for IntervalSet {
    fn from_iter<I: IntoIterator<Item = (u64, u64)>>(runs: I) -> Self {
        let mut set = Self::new();
        for (s, l) in runs {
            set.insert(s, l);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every operation agrees with a plain bit set, for all small ranges.
    #[test]
    fn agrees_with_bits() {
        let (mut set, mut bits, mut x) = (IntervalSet::new(), [false; 64], 12345u64);
        for _ in 0..20_000 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (start, len, add) = ((x >> 33) % 48, (x >> 40) % 16, x >> 60 & 1 == 1);
            if add {
                set.insert(start, len)
            } else {
                set.remove(start, len)
            }
            bits[start as usize..(start + len) as usize].fill(add);
            assert_eq!(set.size() as usize, bits.iter().filter(|b| **b).count());
            assert!((0..64).all(|v| set.contains(v) == bits[v as usize]));
            let runs: Vec<_> = set.iter().collect();
            assert!(runs.windows(2).all(|w| w[0].0 + w[0].1 < w[1].0), "maximal and in order");
        }
    }
}
