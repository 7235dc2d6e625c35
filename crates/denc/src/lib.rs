//! The wire's encoding: little-endian primitives, length-prefixed strings and containers,
//! and versioned structs that old and new peers both read.
//!
//! Invariants:
//! - a [`Reader`] never reads past its bytes and never allocates more than the bytes
//!   that are left can fill;
//! - nesting of versioned structs is bounded by [`DEPTH_MAX`];
//! - a [`Writer`] carries the [`Features`] of the peer it writes for, so each type
//!   chooses its version in one place.
//!
//! Source: the peer's `include/encoding.h`, `include/denc.h`, `include/ceph_features.h`.

mod features;
mod reader;
mod writer;

use std::collections::{BTreeMap, BTreeSet};

pub use bytes::{Bytes, BytesMut};
pub use features::Features;
pub use reader::{DEPTH_MAX, Reader};
pub use writer::Writer;

/// Why a peer's bytes could not be read. Counted, and logged once by whoever drops the
/// connection; never a panic: the sender may be newer, broken or hostile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes end before the field does.
    #[error("{what}: needs {need} bytes at offset {at}, {left} left")]
    Short {
        /// The type or field being read.
        what: &'static str,
        /// Offset from the start of the outermost buffer.
        at: usize,
        /// Bytes wanted.
        need: usize,
        /// Bytes there.
        left: usize,
    },
    /// The struct's compat version is beyond what is known here.
    #[error("{what}: the sender asks for version {compat} or later, this reader knows {known}")]
    TooNew {
        /// The type being read.
        what: &'static str,
        /// Its struct_compat.
        compat: u8,
        /// The newest version known here.
        known: u8,
    },
    /// A value breaks a rule of its type.
    #[error("{what}: {rule}")]
    Invalid {
        /// The type or field being read.
        what: &'static str,
        /// The rule it breaks.
        rule: &'static str,
    },
}

/// A type with one form on the wire, for each set of peer features.
pub trait Denc: Sized {
    /// Appends the form that a peer with `w.features()` reads.
    fn encode(&self, w: &mut Writer);

    /// Reads one value and leaves the reader behind it.
    ///
    /// # Errors
    /// [`DecodeError`] for bytes that are short, too new or break the type's rules.
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError>;

    /// Encoded for a peer that has every feature ([`Features::ALL`]).
    fn to_bytes(&self) -> Bytes {
        self.to_bytes_for(Features::ALL)
    }

    /// Encoded for a peer with `features`.
    fn to_bytes_for(&self, features: Features) -> Bytes {
        let mut w = Writer::new(features);
        self.encode(&mut w);
        w.finish()
    }

    /// Reads a value that must fill `bytes` to the end.
    ///
    /// # Errors
    /// As [`Denc::decode`], and [`DecodeError::Invalid`] when bytes are left over.
    fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let value = Self::decode(&mut r)?;
        r.finish()?;
        Ok(value)
    }

    /// As [`Denc::from_bytes`]; [`Bytes`] fields share `bytes` instead of being copied.
    ///
    /// # Errors
    /// As [`Denc::from_bytes`].
    fn from_shared(bytes: &Bytes) -> Result<Self, DecodeError> {
        let mut r = Reader::shared(bytes);
        let value = Self::decode(&mut r)?;
        r.finish()?;
        Ok(value)
    }
}

macro_rules! primitive {
    ($($t:ident)*) => {$(
        impl Denc for $t {
            fn encode(&self, w: &mut Writer) {
                w.$t(*self);
            }
            fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
                r.$t()
            }
        }
    )*};
}
primitive!(u8 u16 u32 u64 i8 i16 i32 i64 f32 f64 bool);

impl Denc for String {
    fn encode(&self, w: &mut Writer) {
        w.str(self);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.string()
    }
}

/// A `bufferlist`: u32 length, then the bytes.
impl Denc for Bytes {
    fn encode(&self, w: &mut Writer) {
        w.blob(self);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.blob()
    }
}

impl<T: Denc> Denc for Vec<T> {
    fn encode(&self, w: &mut Writer) {
        w.seq(self, |w, x| x.encode(w));
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.seq(T::decode)
    }
}

impl<T: Denc + Ord> Denc for BTreeSet<T> {
    fn encode(&self, w: &mut Writer) {
        w.seq(self, |w, x| x.encode(w));
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(r.seq(T::decode)?.into_iter().collect())
    }
}

impl<K: Denc + Ord, V: Denc> Denc for BTreeMap<K, V> {
    fn encode(&self, w: &mut Writer) {
        w.seq(self, |w, (k, v)| {
            k.encode(w);
            v.encode(w);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(r.seq(|r| Ok((K::decode(r)?, V::decode(r)?)))?.into_iter().collect())
    }
}

impl<A: Denc, B: Denc> Denc for (A, B) {
    fn encode(&self, w: &mut Writer) {
        self.0.encode(w);
        self.1.encode(w);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok((A::decode(r)?, B::decode(r)?))
    }
}

/// `optional<T>`: u8 present, then the value.
impl<T: Denc> Denc for Option<T> {
    fn encode(&self, w: &mut Writer) {
        w.bool(self.is_some());
        if let Some(x) = self {
            x.encode(w);
        }
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(if r.bool()? { Some(T::decode(r)?) } else { None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    struct V2 {
        a: u32,
        b: Option<String>,
    }
    impl Denc for V2 {
        fn encode(&self, w: &mut Writer) {
            w.framed(2, 1, |w| {
                self.a.encode(w);
                self.b.encode(w);
            });
        }
        fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
            r.framed("V2", 2, |r, v| {
                Ok(Self { a: r.u32()?, b: if v >= 2 { Denc::decode(r)? } else { None } })
            })
        }
    }

    /// Old writers lack fields, new writers add some; both are read.
    #[test]
    fn versions_meet() {
        let now = V2 { a: 7, b: Some("x".into()) };
        assert_eq!(V2::from_bytes(&now.to_bytes()), Ok(now));
        let old = [1, 1, 4, 0, 0, 0, 7, 0, 0, 0];
        assert_eq!(V2::from_bytes(&old), Ok(V2 { a: 7, b: None }));
        let newer = [3, 2, 6, 0, 0, 0, 7, 0, 0, 0, 0, 99];
        assert_eq!(V2::from_bytes(&newer), Ok(V2 { a: 7, b: None }));
        let too_new = [4, 3, 4, 0, 0, 0, 7, 0, 0, 0];
        assert!(matches!(V2::from_bytes(&too_new), Err(DecodeError::TooNew { .. })));
    }

    /// A count that the bytes cannot hold is refused before anything is allocated.
    #[test]
    fn hostile_counts() {
        let huge = [0xff, 0xff, 0xff, 0xff, 1, 2, 3];
        assert!(matches!(Vec::<u8>::from_bytes(&huge), Err(DecodeError::Short { .. })));
        assert!(matches!(String::from_bytes(&huge), Err(DecodeError::Short { .. })));
        assert!(matches!(Bytes::from_bytes(&huge), Err(DecodeError::Short { .. })));
        assert!(BTreeMap::<u8, Vec<u64>>::from_bytes(&huge).is_err());
    }

    /// Structs inside structs end at a fixed depth instead of at the end of the stack.
    #[test]
    fn hostile_depth() {
        fn nest(r: &mut Reader<'_>) -> Result<(), DecodeError> {
            r.framed("nest", 1, |r, _| nest(r))
        }
        let mut bytes = Vec::new();
        for depth in (0..10_000u32).rev() {
            bytes.extend([1, 1]);
            bytes.extend((depth * 6).to_le_bytes());
        }
        let err = nest(&mut Reader::new(&bytes)).unwrap_err();
        assert!(matches!(err, DecodeError::Invalid { rule, .. } if rule.contains("nested")));
    }

    /// Shared decoding points into the caller's buffer.
    #[test]
    fn shares_blobs() {
        let outer = Bytes::from_static(b"abc").to_bytes();
        let blob = Bytes::from_shared(&outer).unwrap();
        assert_eq!(blob.as_ptr(), outer[4..].as_ptr());
    }
}
