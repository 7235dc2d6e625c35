//! The arithmetic of stripes.

use std::fmt;

/// Sizes in bytes, checked by [`Striping::new`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Striping {
    object_size: u64,
    stripe_unit: u64,
    stripe_count: u64,
}

/// Why sizes are no layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutError {
    /// One of the sizes is zero.
    Zero,
    /// The stripe unit does not divide the object size.
    Uneven,
    /// A size of a file's layout is no multiple of 64 KiB.
    Unaligned,
    /// An object set has more than 2^63 bytes.
    Huge,
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Zero => "stripe unit, stripe count and object size must not be zero",
            Self::Uneven => "the object size must be a multiple of the stripe unit",
            Self::Unaligned => "stripe unit and object size must be multiples of 64 KiB",
            Self::Huge => "an object set has at most 2^63 bytes",
        })
    }
}

impl std::error::Error for LayoutError {}

/// A part of one object, and where it is in the file's range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Which object.
    pub object: u64,
    /// First byte in it.
    pub off: u64,
    /// Length in bytes.
    pub len: u64,
    /// First byte in the range that was asked for.
    pub at: u64,
}

/// All that a range has in one object; the peer's `ObjectExtent`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectExtent {
    /// Which object.
    pub object: u64,
    /// First byte in it.
    pub off: u64,
    /// Length in bytes.
    pub len: u64,
    /// The bytes' places in the range that was asked for, in the object's order: first byte
    /// and length of each run.
    pub buffers: Vec<(u64, u64)>,
}

impl Striping {
    /// Checks sizes.
    ///
    /// # Errors
    /// [`LayoutError`].
    pub fn new(object_size: u64, stripe_unit: u64, stripe_count: u64) -> Result<Self, LayoutError> {
        if object_size == 0 || stripe_unit == 0 || stripe_count == 0 {
            return Err(LayoutError::Zero);
        }
        if !object_size.is_multiple_of(stripe_unit) {
            return Err(LayoutError::Uneven);
        }
        if object_size.checked_mul(stripe_count).is_none_or(|set| set > 1 << 63) {
            return Err(LayoutError::Huge);
        }
        Ok(Self { object_size, stripe_unit, stripe_count })
    }

    /// Bytes of an object.
    #[must_use]
    pub const fn object_size(&self) -> u64 {
        self.object_size
    }

    /// Bytes of a stripe unit.
    #[must_use]
    pub const fn stripe_unit(&self) -> u64 {
        self.stripe_unit
    }

    /// Objects in a set.
    #[must_use]
    pub const fn stripe_count(&self) -> u64 {
        self.stripe_count
    }

    /// Bytes of an object set.
    #[must_use]
    pub const fn set_size(&self) -> u64 {
        self.object_size * self.stripe_count
    }

    const fn units_per_object(&self) -> u64 {
        self.object_size / self.stripe_unit
    }

    /// The object that holds a byte, and the byte's offset in it.
    #[must_use]
    pub const fn locate(&self, byte: u64) -> (u64, u64) {
        let (unit, within) = (byte / self.stripe_unit, byte % self.stripe_unit);
        let (stripe, column) = (unit / self.stripe_count, unit % self.stripe_count);
        let object = stripe / self.units_per_object() * self.stripe_count + column;
        (object, stripe % self.units_per_object() * self.stripe_unit + within)
    }

    /// Where a byte of an object lies in the file; `None` beyond `u64::MAX`.
    #[must_use]
    pub fn file_offset(&self, object: u64, off: u64) -> Option<u64> {
        let (set, column) = (object / self.stripe_count, object % self.stripe_count);
        let (row, within) = (off / self.stripe_unit, off % self.stripe_unit);
        let stripe = set.checked_mul(self.units_per_object())?.checked_add(row)?;
        let unit = stripe.checked_mul(self.stripe_count)?.checked_add(column)?;
        unit.checked_mul(self.stripe_unit)?.checked_add(within)
    }

    /// Objects that a file of `size` bytes may have: its objects are numbered below this.
    #[must_use]
    pub const fn object_count(&self, size: u64) -> u64 {
        let full = size / self.set_size() * self.stripe_count;
        let rest = (size % self.set_size()).div_ceil(self.stripe_unit);
        full + if rest < self.stripe_count { rest } else { self.stripe_count }
    }

    /// Bytes that a file of `size` bytes has in an object: what an object is cut to when the
    /// file is. The peer's `object_truncate_size`.
    #[must_use]
    pub const fn object_bytes(&self, object: u64, size: u64) -> u64 {
        let (set, column) = (object / self.stripe_count, object % self.stripe_count);
        let last_set = size / self.set_size();
        if set < last_set {
            return self.object_size;
        }
        if set > last_set {
            return 0;
        }
        // Whole rows of the last set, and in the row that is cut: all before the cut's column.
        let rest = size % self.set_size();
        let row_bytes = self.stripe_unit * self.stripe_count;
        let (rows, cut) = (rest / row_bytes, rest % row_bytes);
        let (cut_column, within) = (cut / self.stripe_unit, cut % self.stripe_unit);
        rows * self.stripe_unit
            + if column < cut_column {
                self.stripe_unit
            } else if column == cut_column {
                within
            } else {
                0
            }
    }

    /// The pieces of a range, in the file's order; pieces that touch within an object are
    /// one. A range that would end beyond `u64::MAX` ends there.
    pub fn pieces(&self, off: u64, len: u64) -> impl Iterator<Item = Piece> + use<> {
        let striping = *self;
        let len = len.min(u64::MAX - off);
        let mut at = 0;
        std::iter::from_fn(move || {
            if at == len {
                return None;
            }
            let (object, start) = striping.locate(off + at);
            let mut piece = Piece { object, off: start, len: 0, at };
            loop {
                let unit = striping.stripe_unit;
                let take = (unit - (off + at) % unit).min(len - at);
                piece.len += take;
                at += take;
                if at == len || striping.locate(off + at) != (object, start + piece.len) {
                    return Some(piece);
                }
            }
        })
    }

    /// The extents of a range by object, ascending; within a range each object has one. The
    /// peer's `Striper::file_to_extents`. Allocates for each stripe unit: the caller bounds
    /// `len`.
    #[must_use]
    pub fn object_extents(&self, off: u64, len: u64) -> Vec<ObjectExtent> {
        let mut extents: std::collections::BTreeMap<u64, ObjectExtent> = Default::default();
        for piece in self.pieces(off, len) {
            extents
                .entry(piece.object)
                .and_modify(|e| {
                    debug_assert_eq!(e.off + e.len, piece.off, "rows of an object touch");
                    e.len += piece.len;
                    e.buffers.push((piece.at, piece.len));
                })
                .or_insert_with(|| ObjectExtent {
                    object: piece.object,
                    off: piece.off,
                    len: piece.len,
                    buffers: vec![(piece.at, piece.len)],
                });
        }
        extents.into_values().collect()
    }

    /// Where a part of an object lies in the file: runs of (offset in the file, bytes), in
    /// the object's order. The peer's `extent_to_file`. Ends where the object or `u64` does.
    pub fn file_extents(
        &self,
        object: u64,
        off: u64,
        len: u64,
    ) -> impl Iterator<Item = (u64, u64)> + use<> {
        let striping = *self;
        let end = off.saturating_add(len).min(self.object_size);
        let mut at = off;
        std::iter::from_fn(move || {
            let mut run: Option<(u64, u64)> = None;
            while at < end {
                let Some(start) = striping.file_offset(object, at) else {
                    at = end;
                    break;
                };
                if run.is_some_and(|(o, l)| o + l != start) {
                    break;
                }
                let unit = striping.stripe_unit;
                let take = (unit - at % unit).min(end - at).min(u64::MAX - start);
                let (first, bytes) = run.unwrap_or((start, 0));
                run = Some((first, bytes + take));
                at = if take == 0 { end } else { at + take };
            }
            run.filter(|(_, bytes)| *bytes > 0)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(object_size: u64, unit: u64, count: u64) -> Striping {
        Striping::new(object_size, unit, count).unwrap()
    }

    #[test]
    fn sizes_are_checked() {
        assert_eq!(Striping::new(0, 1, 1), Err(LayoutError::Zero));
        assert_eq!(Striping::new(1, 0, 1), Err(LayoutError::Zero));
        assert_eq!(Striping::new(1, 1, 0), Err(LayoutError::Zero));
        assert_eq!(Striping::new(10, 3, 1), Err(LayoutError::Uneven));
        assert_eq!(Striping::new(3, 10, 1), Err(LayoutError::Uneven));
        assert_eq!(Striping::new(1 << 32, 1 << 16, u64::MAX), Err(LayoutError::Huge));
        assert!(Striping::new(u32::MAX.into(), u32::MAX.into(), 1 << 31).is_ok());
    }

    /// Two objects in a set, two units in an object: units 0 2 | 1 3, then the next set.
    #[test]
    fn units_go_round() {
        let striping = of(8, 4, 2);
        let places: Vec<(u64, u64)> = (0..6).map(|n| striping.locate(n * 4)).collect();
        assert_eq!(places, [(0, 0), (1, 0), (0, 4), (1, 4), (2, 0), (3, 0)]);
        assert_eq!([5, 16, 17].map(|size| striping.object_count(size)), [2, 2, 3]);
        let extents = striping.object_extents(2, 13);
        let extent = |object, off, len, buffers| ObjectExtent { object, off, len, buffers };
        assert_eq!(
            extents,
            [extent(0, 2, 6, vec![(0, 2), (6, 4)]), extent(1, 0, 7, vec![(2, 4), (10, 3)]),]
        );
    }

    /// Nothing overflows at the end of all numbers, and nothing runs on for ever.
    #[test]
    fn ends_of_the_range() {
        for striping in [of(8, 4, 2), of(1 << 22, 1 << 22, 1), of(1 << 32, 1 << 16, 1 << 20)] {
            let last = striping.pieces(u64::MAX - 10, u64::MAX).last().unwrap();
            assert_eq!(last.at + last.len, 10);
            assert_eq!(striping.pieces(u64::MAX, 7).count(), 0);
            let (object, off) = striping.locate(u64::MAX);
            assert_eq!(striping.file_offset(object, off), Some(u64::MAX));
            assert_eq!(striping.file_offset(u64::MAX, u64::MAX), None);
            assert_eq!(striping.file_extents(u64::MAX, 0, u64::MAX).count(), 0);
            assert!(striping.object_count(u64::MAX) > object);
            assert_eq!(striping.object_bytes(u64::MAX, u64::MAX), 0);
            assert_eq!(striping.object_bytes(0, u64::MAX), striping.object_size());
        }
    }

    proptest! {
        /// Pieces cover the range once, in order, and each leads back to its bytes.
        #[test]
        fn pieces_and_extents_are_inverse(
            order in 12u8..20, unit in 0u8..6, count in 1u64..7,
            off in 0u64..1 << 24, len in 1u64..1 << 21,
        ) {
            let striping = of(1 << order, 1 << order >> unit, count);
            let mut at = 0;
            let objects = striping.object_count(off + len);
            for piece in striping.pieces(off, len) {
                prop_assert_eq!(piece.at, at);
                prop_assert!(piece.object < objects);
                prop_assert!(piece.off + piece.len <= striping.object_size());
                let back: Vec<_> =
                    striping.file_extents(piece.object, piece.off, piece.len).collect();
                prop_assert_eq!(back[0].0, off + at);
                let sum: u64 = back.iter().map(|(_, len)| len).sum();
                prop_assert_eq!(sum, piece.len);
                at += piece.len;
            }
            prop_assert_eq!(at, len);
            let by_object = striping.object_extents(off, len);
            let bytes: u64 = by_object.iter().map(|e| e.len).sum();
            prop_assert_eq!(bytes, len);
            for extent in by_object {
                let mut at = extent.off;
                for (buffer, bytes) in extent.buffers {
                    prop_assert_eq!(striping.locate(off + buffer), (extent.object, at));
                    at += bytes;
                }
            }
        }

        /// What an object has of a file is as many bytes as lead to it, counted one by one.
        #[test]
        fn cut_objects_have_the_bytes_below(
            units in 1u64..5, unit in 1u64..5, count in 1u64..5, size in 0u64..300,
        ) {
            let striping = of(units * unit, unit, count);
            let mut counted = std::collections::BTreeMap::new();
            for byte in 0..size {
                *counted.entry(striping.locate(byte).0).or_insert(0u64) += 1;
            }
            for object in 0..striping.object_count(size) + 3 {
                let bytes = counted.get(&object).copied().unwrap_or(0);
                prop_assert_eq!(striping.object_bytes(object, size), bytes);
            }
            let last = counted.keys().last().map_or(0, |o| o + 1);
            prop_assert_eq!(striping.object_count(size), last);
        }
    }
}
