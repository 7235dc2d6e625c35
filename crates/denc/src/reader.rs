//! Reading a peer's bytes without trusting them.

use crate::{Bytes, DecodeError};

/// How deep versioned structs may stand in one another.
pub const DEPTH_MAX: u32 = 64;

/// A cursor over bytes of unknown quality.
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Where the innermost versioned struct ends.
    end: usize,
    depth: u32,
    /// The buffer behind `bytes`, so that blobs can share it.
    owner: Option<&'a Bytes>,
}

macro_rules! le {
    ($($t:ident)*) => {$(
        /// The next little-endian value.
        ///
        /// # Errors
        /// [`DecodeError::Short`].
        pub fn $t(&mut self) -> Result<$t, DecodeError> {
            let raw = self.take(stringify!($t), size_of::<$t>())?;
            Ok($t::from_le_bytes(raw.try_into().expect("taken whole")))
        }
    )*};
}

impl<'a> Reader<'a> {
    /// Reads `bytes`; blobs are copied out.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, end: bytes.len(), depth: 0, owner: None }
    }

    /// Reads `bytes`; blobs share their buffer.
    #[must_use]
    pub fn shared(bytes: &'a Bytes) -> Self {
        Self { owner: Some(bytes), ..Self::new(bytes) }
    }

    le!(u8 u16 u32 u64 i8 i16 i32 i64 f32 f64);

    /// Bytes left in the innermost struct.
    #[must_use]
    pub fn left(&self) -> usize {
        self.end - self.at
    }

    /// Offset from the start of the outermost buffer.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.at
    }

    /// The bytes between two offsets already passed; what a checksum covers.
    #[must_use]
    pub fn passed(&self, from: usize, to: usize) -> &'a [u8] {
        &self.bytes[from..to.min(self.at)]
    }

    /// The next byte, without moving.
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    pub fn peek_u8(&self) -> Result<u8, DecodeError> {
        if self.left() == 0 {
            return Err(self.short("u8", 1));
        }
        Ok(self.bytes[self.at])
    }

    fn short(&self, what: &'static str, need: usize) -> DecodeError {
        DecodeError::Short { what, at: self.at, need, left: self.left() }
    }

    /// The next `n` bytes as they are.
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    pub fn take(&mut self, what: &'static str, n: usize) -> Result<&'a [u8], DecodeError> {
        if n > self.left() {
            return Err(self.short(what, n));
        }
        let raw = &self.bytes[self.at..self.at + n];
        self.at += n;
        Ok(raw)
    }

    /// The next `N` bytes as an array.
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        Ok(self.take("array", N)?.try_into().expect("taken whole"))
    }

    /// Moves on by `n` bytes.
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    pub fn skip(&mut self, n: usize) -> Result<(), DecodeError> {
        self.take("skipped field", n).map(drop)
    }

    /// All bytes left in the innermost struct, shared where the reader is.
    pub fn rest(&mut self) -> Bytes {
        let n = self.left();
        self.share(n).expect("what is left is there")
    }

    /// The next `n` bytes, shared where the reader is.
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    pub fn share(&mut self, n: usize) -> Result<Bytes, DecodeError> {
        let owner = self.owner;
        let raw = self.take("bytes", n)?;
        Ok(owner.map_or_else(|| Bytes::copy_from_slice(raw), |b| b.slice_ref(raw)))
    }

    /// One byte; anything but 0 is true.
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        Ok(self.u8()? != 0)
    }

    /// u32 length, then bytes, borrowed.
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    pub fn blob_ref(&mut self) -> Result<&'a [u8], DecodeError> {
        let n = self.u32()? as usize;
        self.take("blob", n)
    }

    /// u32 length, then bytes, shared where the reader is.
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    pub fn blob(&mut self) -> Result<Bytes, DecodeError> {
        let n = self.u32()? as usize;
        self.share(n)
    }

    /// u32 length, then UTF-8. The peer's strings are bytes; names that are not UTF-8 are
    /// refused here, and types that may carry any bytes use [`Reader::blob`].
    ///
    /// # Errors
    /// [`DecodeError::Short`]; [`DecodeError::Invalid`] when it is not UTF-8.
    pub fn string(&mut self) -> Result<String, DecodeError> {
        let raw = self.blob_ref()?;
        match std::str::from_utf8(raw) {
            Ok(s) => Ok(s.to_owned()),
            Err(_) => Err(DecodeError::Invalid { what: "string", rule: "must be UTF-8" }),
        }
    }

    /// u32 count, then that many items. Space is reserved for no more items than bytes
    /// are left, and grows only as items are read.
    ///
    /// # Errors
    /// [`DecodeError::Short`] for a count beyond the bytes left (each item has at least
    /// one byte), and the items' own.
    pub fn seq<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let n = self.u32()? as usize;
        if n > self.left() {
            return Err(self.short("items", n));
        }
        let mut out = Vec::with_capacity(n.min(1024));
        for _ in 0..n {
            out.push(item(self)?);
        }
        Ok(out)
    }

    /// A versioned struct (`DECODE_START`/`DECODE_FINISH`): u8 version, u8 compat, u32
    /// length, body. `body` gets the sender's version; what it leaves unread is skipped.
    ///
    /// # Errors
    /// [`DecodeError::TooNew`] when compat is above `known`; [`DecodeError::Short`];
    /// [`DecodeError::Invalid`] beyond [`DEPTH_MAX`].
    pub fn framed<T>(
        &mut self,
        what: &'static str,
        known: u8,
        body: impl FnOnce(&mut Self, u8) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        let (version, compat) = (self.u8()?, self.u8()?);
        self.framed_body(what, known, version, compat, body)
    }

    /// As [`Reader::framed`] where the two version bytes were read already.
    ///
    /// # Errors
    /// As [`Reader::framed`].
    pub fn framed_body<T>(
        &mut self,
        what: &'static str,
        known: u8,
        version: u8,
        compat: u8,
        body: impl FnOnce(&mut Self, u8) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        if compat > known {
            return Err(DecodeError::TooNew { what, compat, known });
        }
        let len = self.u32()? as usize;
        if len > self.left() {
            return Err(self.short(what, len));
        }
        if self.depth == DEPTH_MAX {
            return Err(DecodeError::Invalid { what, rule: "structs are nested too deeply" });
        }
        let outer = std::mem::replace(&mut self.end, self.at + len);
        self.depth += 1;
        let value = body(self, version);
        self.depth -= 1;
        if value.is_ok() {
            self.at = self.end;
        }
        self.end = outer;
        value
    }

    /// `Ok` when `rule` holds.
    ///
    /// # Errors
    /// [`DecodeError::Invalid`].
    pub fn require(&self, holds: bool, rule: &'static str) -> Result<(), DecodeError> {
        if holds { Ok(()) } else { Err(DecodeError::Invalid { what: "value", rule }) }
    }

    /// `Ok` when nothing is left.
    ///
    /// # Errors
    /// [`DecodeError::Invalid`].
    pub fn finish(&self) -> Result<(), DecodeError> {
        if self.left() == 0 {
            Ok(())
        } else {
            Err(DecodeError::Invalid { what: "buffer", rule: "bytes are left over" })
        }
    }
}
