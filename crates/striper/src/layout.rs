//! A file's layout as it stands in inodes, messages and extended attributes.

use bytes::Bytes;
use denc::{DecodeError, Denc, Reader, Writer};
use types::PoolId;

use crate::{LayoutError, Striping};

/// Where a file's bytes are. The peer's `file_layout_t`, 2/2: u32 stripe unit, stripe count,
/// object size, i64 pool, string namespace; 30 bytes without a namespace.
///
/// Sizes that a peer sent are unchecked; [`FileLayout::striping`] is the way out. All zero
/// with pool -1 is "none": what a directory without a layout of its own has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileLayout {
    /// Bytes of a stripe unit.
    pub stripe_unit: u32,
    /// Objects in a set.
    pub stripe_count: u32,
    /// Bytes of an object.
    pub object_size: u32,
    /// The pool; -1 for none.
    pub pool: PoolId,
    /// The namespace in the pool.
    pub pool_ns: Bytes,
}

impl Default for FileLayout {
    fn default() -> Self {
        Self {
            stripe_unit: 0,
            stripe_count: 0,
            object_size: 0,
            pool: PoolId(-1),
            pool_ns: Bytes::new(),
        }
    }
}

impl FileLayout {
    /// Stripe units and objects are multiples of this many bytes.
    pub const ALIGNMENT: u32 = 64 << 10;
    /// Bytes of the old form.
    pub const LEGACY_LEN: usize = 28;

    /// Objects of 4 MiB, one to a set, in `pool`: what a new file system's root has.
    #[must_use]
    pub fn plain(pool: PoolId) -> Self {
        let size = 4 << 20;
        Self { stripe_unit: size, stripe_count: 1, object_size: size, pool, pool_ns: Bytes::new() }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// The arithmetic of this layout.
    ///
    /// # Errors
    /// [`LayoutError`] for sizes that the peer refuses, too (EINVAL for a client).
    pub fn striping(&self) -> Result<Striping, LayoutError> {
        let aligned = |size: u32| size.is_multiple_of(Self::ALIGNMENT);
        if !aligned(self.stripe_unit) || !aligned(self.object_size) {
            return Err(LayoutError::Unaligned);
        }
        Striping::new(self.object_size.into(), self.stripe_unit.into(), self.stripe_count.into())
    }

    /// Writes the peer's `ceph_file_layout`, 28 bytes without namespace: u32 stripe unit,
    /// stripe count, object size, three zeros, u32 pool (0 for none).
    pub fn encode_legacy(&self, w: &mut Writer) {
        w.u32(self.stripe_unit);
        w.u32(self.stripe_count);
        w.u32(self.object_size);
        w.raw(&[0; 12]);
        w.u32(u32::try_from(self.pool.0).unwrap_or(0));
    }

    /// Reads what [`FileLayout::encode_legacy`] writes; zeros everywhere are "none".
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    pub fn decode_legacy(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (stripe_unit, stripe_count, object_size) = (r.u32()?, r.u32()?, r.u32()?);
        r.skip(12)?;
        let pool = i64::from(r.u32()?);
        let none = pool == 0 && stripe_unit == 0 && stripe_count == 0 && object_size == 0;
        Ok(Self {
            stripe_unit,
            stripe_count,
            object_size,
            pool: PoolId(if none { -1 } else { pool }),
            pool_ns: Bytes::new(),
        })
    }
}

impl Denc for FileLayout {
    fn encode(&self, w: &mut Writer) {
        w.framed(2, 2, |w| {
            w.u32(self.stripe_unit);
            w.u32(self.stripe_count);
            w.u32(self.object_size);
            self.pool.encode(w);
            w.blob(&self.pool_ns);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        // Before version 2 there was no header: the low byte of a stripe unit is zero.
        if r.peek_u8()? == 0 {
            return Self::decode_legacy(r);
        }
        r.framed("file_layout_t", 2, |r, _| {
            Ok(Self {
                stripe_unit: r.u32()?,
                stripe_count: r.u32()?,
                object_size: r.u32()?,
                pool: Denc::decode(r)?,
                pool_ns: r.blob()?,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        let layout = FileLayout::plain(PoolId(3));
        let bytes = layout.to_bytes();
        assert_eq!(bytes.len(), 30);
        assert_eq!(FileLayout::from_bytes(&bytes), Ok(layout.clone()));
        let mut w = Writer::new(denc::Features::ALL);
        layout.encode_legacy(&mut w);
        let old = w.finish();
        assert_eq!(old.len(), FileLayout::LEGACY_LEN);
        assert_eq!(FileLayout::from_bytes(&old), Ok(layout));
        assert_eq!(FileLayout::from_bytes(&[0; 28]), Ok(FileLayout::default()));
        assert!(FileLayout::default().is_none());
    }

    #[test]
    fn sizes_that_the_peer_refuses() {
        let with = |unit, count, size| {
            let plain = FileLayout::plain(PoolId(1));
            FileLayout { stripe_unit: unit, stripe_count: count, object_size: size, ..plain }
                .striping()
        };
        assert_eq!(with(65536, 1, 65536).unwrap().object_size(), 65536);
        assert_eq!(with(65535, 1, 65536), Err(LayoutError::Unaligned));
        assert_eq!(with(65536, 1, 65537), Err(LayoutError::Unaligned));
        assert_eq!(with(65536, 0, 65536), Err(LayoutError::Zero));
        assert_eq!(with(0, 1, 65536), Err(LayoutError::Zero));
        assert_eq!(with(1 << 17, 1, 65536), Err(LayoutError::Uneven));
        assert!(with(1 << 31, u32::MAX, 1 << 31).is_ok());
    }
}
