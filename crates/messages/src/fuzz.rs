//! What fuzz targets of whole roles share: an input that is read as choices, and messages that
//! are changed by them.
//!
//! An input that ends reads as zeros, so every prefix of an input is one, too.

use bytes::{Bytes, BytesMut};

use crate::Envelope;

/// Numbers that lie at the edge of something.
const EDGES: [u64; 16] = [
    0,
    1,
    2,
    3,
    7,
    40,
    255,
    1_000,
    0x7fff,
    0xffff,
    1 << 20,
    i32::MAX as u64,
    u32::MAX as u64,
    1 << 40,
    i64::MAX as u64,
    u64::MAX,
];
/// Changes to one message.
const CHANGES_MAX: u64 = 6;
/// Bytes that one change puts in.
const PUT_IN_MAX: u64 = 64;

/// Choices, from an input's first byte to its last.
#[derive(Clone, Debug)]
pub struct Choices<'a> {
    left: &'a [u8],
}

impl<'a> Choices<'a> {
    /// All of them.
    #[must_use]
    pub fn new(input: &'a [u8]) -> Self {
        Self { left: input }
    }

    /// Whether none is left.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.left.is_empty()
    }

    /// The next byte; 0 when none is left.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.left.split_first() else { return 0 };
        self.left = rest;
        *first
    }

    /// A number below `n`; 0 when `n` is.
    pub fn below(&mut self, n: u64) -> u64 {
        let mut x = u64::from(self.byte());
        if n > 256 {
            x = x << 8 | u64::from(self.byte());
        }
        if n > 65_536 {
            x = x << 16 | u64::from(self.byte()) << 8 | u64::from(self.byte());
        }
        x % n.max(1)
    }

    /// One of them.
    ///
    /// # Panics
    /// When there is none.
    pub fn of<'t, T>(&mut self, all: &'t [T]) -> &'t T {
        &all[self.below(all.len() as u64) as usize]
    }

    /// True once in `n` times.
    pub fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == n - 1
    }

    /// A number that lies at the edge of something, or near one of `known`.
    pub fn edge(&mut self, known: &[u64]) -> u64 {
        let all = EDGES.len() + known.len();
        let n = self.below(all as u64) as usize;
        let base = EDGES.get(n).or_else(|| known.get(n - EDGES.len()));
        let near = [0, 0, 0, 1, u64::MAX, 2];
        base.copied().unwrap_or_default().wrapping_add(*self.of(&near))
    }

    /// Changes some bytes; mostly whole numbers, as lengths, ids and epochs are. `known` are
    /// numbers that mean something to the receiver.
    #[must_use]
    pub fn changed(&mut self, bytes: &Bytes, known: &[u64]) -> Bytes {
        let mut out = BytesMut::from(&bytes[..]);
        for _ in 0..=self.below(CHANGES_MAX) {
            let at = self.below(out.len() as u64 + 1) as usize;
            let room = out.len() - at;
            match self.below(8) {
                0 | 1 if room >= 4 => {
                    let x = self.edge(known) as u32;
                    out[at..at + 4].copy_from_slice(&x.to_le_bytes());
                }
                2 | 3 if room >= 8 => {
                    let x = self.edge(known);
                    out[at..at + 8].copy_from_slice(&x.to_le_bytes());
                }
                4 | 5 if room >= 1 => out[at] = self.byte(),
                6 => {
                    let mut with = out[..at].to_vec();
                    for _ in 0..self.below(PUT_IN_MAX) {
                        with.push(self.byte());
                    }
                    with.extend_from_slice(&out[at..]);
                    out = BytesMut::from(&with[..]);
                }
                7 if self.once_in(3) => out.truncate(at),
                _ => {
                    // What stands elsewhere.
                    let from = self.below(out.len() as u64 + 1) as usize;
                    let len = (self.below(32) as usize).min(room).min(out.len() - from);
                    out.copy_within(from..from + len, at);
                }
            }
        }
        out.freeze()
    }

    /// The message with some of it changed, once in a while nothing.
    #[must_use]
    pub fn changed_message(&mut self, envelope: &Envelope, known: &[u64]) -> Envelope {
        let mut e = envelope.clone();
        e.data_sums = None;
        match self.below(12) {
            0 => {}
            1 if !e.data.is_empty() => e.data = self.changed(&e.data, known),
            2 => e.version = u16::from(self.byte()),
            3 => {
                e.front = self.changed(&e.front, known);
                e.data = self.changed(&e.data, known);
            }
            _ => e.front = self.changed(&e.front, known),
        }
        e
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same input makes the same changes, and an input that is over changes nothing for ever.
    #[test]
    fn inputs_are_all_there_is() {
        let input: Vec<u8> = (0..=255).rev().collect();
        let bytes = Bytes::from(vec![9; 100]);
        let (mut a, mut b) = (Choices::new(&input), Choices::new(&input));
        let (one, other) = (a.changed(&bytes, &[5]), b.changed(&bytes, &[5]));
        assert_eq!(one, other);
        assert_ne!(one, bytes);
        let mut none = Choices::new(&[]);
        assert!(none.is_over() && none.below(7) == 0 && none.edge(&[]) == 0);
        assert_eq!(none.changed(&Bytes::new(), &[]).len(), 0);
    }
}
