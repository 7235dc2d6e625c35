//! Writing what a peer with given features reads.

use crate::{Bytes, BytesMut, Features};

/// A growing buffer and the features of whoever will read it.
pub struct Writer {
    buf: BytesMut,
    features: Features,
}

macro_rules! le {
    ($($t:ident)*) => {$(
        /// Appends little-endian.
        pub fn $t(&mut self, x: $t) {
            self.buf.extend_from_slice(&x.to_le_bytes());
        }
    )*};
}

impl Writer {
    /// An empty buffer for a peer with `features`.
    #[must_use]
    pub fn new(features: Features) -> Self {
        Self::with_capacity(features, 256)
    }

    /// As [`Writer::new`] with room for `capacity` bytes.
    #[must_use]
    pub fn with_capacity(features: Features, capacity: usize) -> Self {
        Self { buf: BytesMut::with_capacity(capacity), features }
    }

    le!(u8 u16 u32 u64 i8 i16 i32 i64 f32 f64);

    /// Whom this is written for.
    #[must_use]
    pub fn features(&self) -> Features {
        self.features
    }

    /// Whether the reader has all of `feature`.
    #[must_use]
    pub fn has(&self, feature: Features) -> bool {
        self.features.has(feature)
    }

    /// Bytes so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buf.len()
    }

    /// Whether nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buf.is_empty()
    }

    /// What was written so far.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.buf
    }

    /// Ends writing.
    #[must_use]
    pub fn finish(self) -> Bytes {
        self.buf.freeze()
    }

    /// One byte, 0 or 1.
    pub fn bool(&mut self, x: bool) {
        self.u8(u8::from(x));
    }

    /// The bytes as they are, without a length.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.buf.extend_from_slice(bytes);
    }

    /// u32 length, then bytes.
    ///
    /// # Panics
    /// From 4 GiB on, where the length has no form on the wire.
    pub fn blob(&mut self, bytes: &[u8]) {
        self.u32(u32::try_from(bytes.len()).expect("a blob is below 4 GiB"));
        self.raw(bytes);
    }

    /// As [`Writer::blob`].
    pub fn str(&mut self, s: &str) {
        self.blob(s.as_bytes());
    }

    /// u32 count, then each item by `item`.
    pub fn seq<I: IntoIterator>(&mut self, items: I, mut item: impl FnMut(&mut Self, I::Item))
    where
        I::IntoIter: ExactSizeIterator,
    {
        let items = items.into_iter();
        self.u32(u32::try_from(items.len()).expect("a count fits u32"));
        for x in items {
            item(self, x);
        }
    }

    /// A versioned struct (`ENCODE_START`/`ENCODE_FINISH`): u8 version, u8 compat, u32
    /// length of what `body` writes.
    pub fn framed<T>(&mut self, version: u8, compat: u8, body: impl FnOnce(&mut Self) -> T) -> T {
        self.u8(version);
        self.u8(compat);
        self.sized(body)
    }

    /// u32 length of what `body` writes, then that: a `bufferlist` holding an encoding.
    pub fn sized<T>(&mut self, body: impl FnOnce(&mut Self) -> T) -> T {
        let at = self.buf.len();
        self.u32(0);
        let out = body(self);
        let len = u32::try_from(self.buf.len() - at - 4).expect("a struct is below 4 GiB");
        self.buf[at..at + 4].copy_from_slice(&len.to_le_bytes());
        out
    }

    /// Overwrites `bytes.len()` bytes at `at`, which must have been written already.
    pub fn patch(&mut self, at: usize, bytes: &[u8]) {
        self.buf[at..at + bytes.len()].copy_from_slice(bytes);
    }
}
