//! A linear map between chunks, ready to be run over data.

use crate::gf::Field;
use crate::matrix::Rows;
use crate::region::{self, Factor};

/// How the bytes of a chunk are elements of the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Each byte is one.
    Bytes,
    /// Each little-endian word of the field's width (16 or 32 bits) is one.
    Words(Field),
    /// Chunks are cut into groups of `w` packets of `packet` bytes; a coding packet is the
    /// sum of data packets of its group. jerasure's bit-matrix layout.
    Packets {
        /// Packets of a group.
        w: usize,
        /// Bytes of a packet.
        packet: usize,
    },
}

impl Shape {
    /// Where its matrices live.
    pub(crate) fn field(self) -> Field {
        match self {
            Shape::Bytes => Field::BYTES,
            Shape::Words(field) => field,
            Shape::Packets { .. } => Field::BITS,
        }
    }

    /// Rows and columns of a matrix per chunk.
    pub(crate) fn block(self) -> usize {
        match self {
            Shape::Packets { w, .. } => w,
            _ => 1,
        }
    }

    /// Chunks must be a multiple of this many bytes.
    pub(crate) fn alignment(self) -> usize {
        match self {
            Shape::Bytes => 1,
            Shape::Words(field) => field.width() as usize / 8,
            Shape::Packets { w, packet } => w * packet,
        }
    }
}

/// Results as sums of scaled inputs.
#[derive(Clone)]
pub(crate) enum Plan {
    Bytes(Vec<Vec<Factor>>),
    Words(Field, Rows),
    /// Per result packet the input packets it sums, as (chunk, packet of the group).
    Packets {
        sums: Vec<Vec<(usize, usize)>>,
        w: usize,
        packet: usize,
    },
}

impl Plan {
    /// From a matrix with `shape.block()` rows per result and columns per input.
    pub(crate) fn new(shape: Shape, rows: &Rows) -> Plan {
        match shape {
            Shape::Bytes => {
                let factors = |row: &Vec<u32>| row.iter().map(|&n| Factor::new(n as u8)).collect();
                Plan::Bytes(rows.iter().map(factors).collect())
            }
            Shape::Words(field) => Plan::Words(field, rows.clone()),
            Shape::Packets { w, packet } => {
                let ones = |row: &Vec<u32>| {
                    let set = row.iter().enumerate().filter(|(_, bit)| **bit == 1);
                    set.map(|(at, _)| (at / w, at % w)).collect()
                };
                Plan::Packets { sums: rows.iter().map(ones).collect(), w, packet }
            }
        }
    }

    /// Computes all results; adds to what is there if `add`.
    ///
    /// # Panics
    /// Unless all runs have one length, a multiple of the shape's alignment, and their
    /// numbers are the plan's.
    pub(crate) fn run(&self, from: &[&[u8]], to: &mut [&mut [u8]], add: bool) {
        match self {
            Plan::Bytes(rows) => region::combine(rows, from, to, add),
            Plan::Words(field, rows) => {
                for (row, to) in rows.iter().zip(to) {
                    if !add {
                        to.fill(0);
                    }
                    for (&factor, from) in row.iter().zip(from) {
                        add_words(*field, factor, from, to);
                    }
                }
            }
            Plan::Packets { sums, w, packet } => {
                let len = from[0].len();
                let mut runs: Vec<&[u8]> = Vec::with_capacity(from.len() * w);
                for group in (0..len).step_by(w * packet) {
                    for (row, sum) in sums.iter().enumerate() {
                        let start = |x: usize| group + x * packet;
                        runs.clear();
                        runs.extend(sum.iter().map(|&(c, x)| &from[c][start(x)..start(x + 1)]));
                        let result = &mut to[row / w][start(row % w)..start(row % w + 1)];
                        region::xor(&runs, result, add);
                    }
                }
            }
        }
    }
}

/// `to += factor * from`, word by word.
fn add_words(field: Field, factor: u32, from: &[u8], to: &mut [u8]) {
    if factor == 0 {
        return;
    }
    if factor == 1 {
        return region::xor(&[from], to, true);
    }
    // Products of the factor with each value of each byte of a word.
    let bytes = field.width() as usize / 8;
    let tables: Vec<[u32; 256]> = (0..bytes)
        .map(|at| std::array::from_fn(|n| field.mul((n as u32) << (8 * at), factor)))
        .collect();
    assert_eq!(from.len(), to.len(), "runs of one length");
    assert_eq!(from.len() % bytes, 0, "whole words");
    for (from, to) in from.chunks_exact(bytes).zip(to.chunks_exact_mut(bytes)) {
        let word = from.iter().zip(&tables).fold(0, |sum, (&x, t)| sum ^ t[usize::from(x)]);
        for (to, x) in to.iter_mut().zip(word.to_le_bytes()) {
            *to ^= x;
        }
    }
}
