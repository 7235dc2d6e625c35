//! How an image's bytes lie in its objects: what images allow of [`striper`]'s layouts.

pub use striper::Piece;
use striper::Striping;

use crate::error::{Error, Result};

/// Orders (log2 of the object size in bytes) that images may have.
pub const ORDERS: std::ops::RangeInclusive<u8> = 12..=25;

/// Sizes in bytes; made by [`Layout::new`], so `stripe_unit` divides the object size and
/// neither of these is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    order: u8,
    striping: Striping,
}

impl Layout {
    /// Checks a layout. A stripe unit of 0 is the object's size, a count of 0 is 1.
    ///
    /// # Errors
    /// [`Error::Invalid`].
    pub fn new(order: u8, stripe_unit: u64, stripe_count: u64) -> Result<Self> {
        if !ORDERS.contains(&order) {
            return Err(Error::Invalid(format!("objects have 2^12 to 2^25 bytes, not 2^{order}")));
        }
        let size = 1u64 << order;
        let stripe_unit = if stripe_unit == 0 { size } else { stripe_unit };
        if stripe_unit > size || !size.is_multiple_of(stripe_unit) {
            return Err(Error::Invalid(format!(
                "a stripe unit of {stripe_unit} does not divide objects of {size} bytes"
            )));
        }
        let stripe_count = stripe_count.max(1);
        if stripe_count > 1 << 20 {
            return Err(Error::Invalid(format!("{stripe_count} stripes are too many")));
        }
        let striping = Striping::new(size, stripe_unit, stripe_count)
            .map_err(|e| Error::Invalid(e.to_string()))?;
        Ok(Self { order, striping })
    }

    /// log2 of the objects' size.
    #[must_use]
    pub fn order(&self) -> u8 {
        self.order
    }

    /// Bytes of an object.
    #[must_use]
    pub fn object_size(&self) -> u64 {
        self.striping.object_size()
    }

    /// Bytes of a stripe unit.
    #[must_use]
    pub fn stripe_unit(&self) -> u64 {
        self.striping.stripe_unit()
    }

    /// Objects in a set.
    #[must_use]
    pub fn stripe_count(&self) -> u64 {
        self.striping.stripe_count()
    }

    /// Whether the image needs the feature `striping`.
    #[must_use]
    pub fn is_fancy(&self) -> bool {
        self.stripe_unit() != self.object_size() || self.stripe_count() != 1
    }

    /// Objects that an image of `size` bytes may have.
    #[must_use]
    pub fn object_count(&self, size: u64) -> u64 {
        self.striping.object_count(size)
    }

    /// The pieces of a range, in order; pieces that touch within an object are one.
    #[must_use]
    pub fn pieces(&self, off: u64, len: u64) -> Vec<Piece> {
        self.striping.pieces(off, len).collect()
    }

    /// Where a part of an object lies in the image: (offset in the image, bytes), in the
    /// object's order.
    #[must_use]
    pub fn image_extents(&self, object: u64, off: u64, len: u64) -> Vec<(u64, u64)> {
        self.striping.file_extents(object, off, len).collect()
    }

    /// As [`Layout::image_extents`] of a whole object, cut off at `end` of the image.
    #[must_use]
    pub fn extents_below(&self, object: u64, end: u64) -> Vec<(u64, u64)> {
        let whole = self.image_extents(object, 0, self.object_size());
        let cut = |(off, len): (u64, u64)| (off, len.min(end.saturating_sub(off)));
        whole.into_iter().map(cut).filter(|(_, len)| *len > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn layouts_are_checked() {
        assert!(Layout::new(11, 0, 0).is_err());
        assert!(Layout::new(26, 0, 0).is_err());
        assert!(Layout::new(22, 3 << 20, 1).is_err());
        assert!(Layout::new(22, 8 << 20, 1).is_err());
        assert!(!Layout::new(22, 0, 0).unwrap().is_fancy());
        assert!(Layout::new(22, 64 << 10, 4).unwrap().is_fancy());
    }

    /// Two objects in a set, two units in an object: units 0 2 | 1 3, then the next set.
    #[test]
    fn units_go_round() {
        let layout = Layout::new(13, 4096, 2).unwrap();
        let unit = |n: u64| layout.pieces(n * 4096, 4096)[0];
        let places: Vec<(u64, u64)> = (0..6).map(|n| (unit(n).object, unit(n).off)).collect();
        assert_eq!(places, [(0, 0), (1, 0), (0, 4096), (1, 4096), (2, 0), (3, 0)]);
        assert_eq!(layout.object_count(4096 + 1), 2);
        assert_eq!(layout.object_count(4 * 4096), 2);
        assert_eq!(layout.object_count(4 * 4096 + 1), 3);
        let plain = Layout::new(22, 0, 0).unwrap();
        let piece = |object, off, len, at| Piece { object, off, len, at };
        let size = 4 << 20;
        assert_eq!(
            plain.pieces(size - 10, size + 20),
            [piece(0, size - 10, 10, 0), piece(1, 0, size, 10), piece(2, 0, 10, size + 10)]
        );
    }

    proptest! {
        /// Pieces cover the range once, in order, and each leads back to its bytes.
        #[test]
        fn pieces_and_extents_are_inverse(
            order in 12u8..20, unit in 0u8..6, count in 1u64..7,
            off in 0u64..1 << 24, len in 1u64..1 << 21,
        ) {
            let layout = Layout::new(order, 1 << order >> unit, count).unwrap();
            let mut at = 0;
            let objects = layout.object_count(off + len);
            for piece in layout.pieces(off, len) {
                prop_assert_eq!(piece.at, at);
                prop_assert!(piece.object < objects);
                prop_assert!(piece.off + piece.len <= layout.object_size());
                let back = layout.image_extents(piece.object, piece.off, piece.len);
                prop_assert_eq!(back[0].0, off + at);
                let sum: u64 = back.iter().map(|(_, len)| len).sum();
                prop_assert_eq!(sum, piece.len);
                at += piece.len;
            }
            prop_assert_eq!(at, len);
        }
    }
}
