//! What many types here share: versioned records, releases told from features, snapshot
//! intervals, and the peer's order of addresses.

use std::ops::{Deref, DerefMut};

use stdx::IntervalSet;
use types::{DecodeError, Denc, EntityAddr, Features, Reader, Writer};

/// The release whose forms a peer with these features writes itself: 20, 19, 18 or 16.
/// For types whose encodings the peer never made depend on features: every release reads
/// its own version and any later one.
#[must_use]
pub fn release(features: Features) -> u8 {
    if features.has(Features::SERVER_TENTACLE) {
        20
    } else if features.has(Features::SERVER_SQUID) {
        19
    } else if features.has(Features::SERVER_REEF | Features::SERVER_QUINCY) {
        18
    } else {
        16
    }
}

/// A versioned struct: fields in wire order, each with the version it came with.
///
/// `record! { /// doc Name "wire_name", compat 2, known 9, |f| 9; { field: Type, 3 => later: Type } }`
/// gives a struct with public fields and its [`Denc`]; `|f|` chooses the version written
/// for a reader's features. Fields an older writer lacks are `Default`.
macro_rules! record {
    ($(#[$meta:meta])* $name:ident $what:literal, compat $compat:expr, known $known:expr,
     |$f:ident| $version:expr; {
        $( $(#[$fmeta:meta])* $($since:literal =>)? $field:ident : $ty:ty ),* $(,)?
    }) => {
        $(#[$meta])*
        pub struct $name {
            $( $(#[$fmeta])* pub $field: $ty, )*
        }
        impl types::Denc for $name {
            fn encode(&self, w: &mut types::Writer) {
                let $f = w.features();
                let _ = $f;
                let version: u8 = $version;
                w.framed(version, $compat, |w| {
                    $( if version >= $crate::wire::since!($($since)?) {
                        types::Denc::encode(&self.$field, w);
                    } )*
                });
            }
            fn decode(r: &mut types::Reader<'_>) -> Result<Self, types::DecodeError> {
                r.framed($what, $known, |r, version| {
                    let _ = (&r, version);
                    Ok(Self { $(
                        $field: if version >= $crate::wire::since!($($since)?) {
                            types::Denc::decode(r)?
                        } else {
                            Default::default()
                        },
                    )* })
                })
            }
        }
    };
}

/// A struct whose fields stand one after another without version or length.
macro_rules! plain {
    ($(#[$meta:meta])* $name:ident {
        $( $(#[$fmeta:meta])* $field:ident : $ty:ty ),* $(,)?
    }) => {
        $(#[$meta])*
        pub struct $name {
            $( $(#[$fmeta])* pub $field: $ty, )*
        }
        impl types::Denc for $name {
            fn encode(&self, w: &mut types::Writer) {
                $( types::Denc::encode(&self.$field, w); )*
            }
            fn decode(r: &mut types::Reader<'_>) -> Result<Self, types::DecodeError> {
                Ok(Self { $( $field: types::Denc::decode(r)?, )* })
            }
        }
    };
}

/// The version a field came with; the first one unless told.
macro_rules! since {
    () => {
        1u8
    };
    ($version:literal) => {
        $version
    };
}

pub(crate) use {plain, record, since};

/// Snapshot ids as runs. The peer's `snap_interval_set_t` and `interval_set<snapid_t>`:
/// u32 count, then u64 start and u64 length of each run, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapIntervals(pub IntervalSet);

impl Deref for SnapIntervals {
    type Target = IntervalSet;
    fn deref(&self) -> &IntervalSet {
        &self.0
    }
}

impl DerefMut for SnapIntervals {
    fn deref_mut(&mut self) -> &mut IntervalSet {
        &mut self.0
    }
}

impl FromIterator<(u64, u64)> for SnapIntervals {
    fn from_iter<I: IntoIterator<Item = (u64, u64)>>(runs: I) -> Self {
        Self(runs.into_iter().collect())
    }
}

impl Denc for SnapIntervals {
    fn encode(&self, w: &mut Writer) {
        w.u32(u32::try_from(self.run_count()).expect("a count fits u32"));
        for (start, len) in self.iter() {
            w.u64(start);
            w.u64(len);
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut set = IntervalSet::new();
        r.seq(|r| {
            let (start, len) = (r.u64()?, r.u64()?);
            r.require(start.checked_add(len).is_some(), "an interval ends within u64")?;
            set.insert(start, len);
            Ok(())
        })?;
        Ok(Self(set))
    }
}

/// An address as the peer compares it: its memory, byte by byte.
pub(crate) fn addr_order(addr: &EntityAddr) -> [u8; 36] {
    use std::net::SocketAddr;
    let mut key = [0; 36];
    key[..4].copy_from_slice(&addr.kind.0.to_le_bytes());
    key[4..8].copy_from_slice(&addr.nonce.to_le_bytes());
    if let Some(sock) = &addr.sock {
        key[10..12].copy_from_slice(&sock.port().to_be_bytes());
        match sock {
            SocketAddr::V4(a) => {
                key[8] = 2;
                key[12..16].copy_from_slice(&a.ip().octets());
            }
            SocketAddr::V6(a) => {
                key[8] = 10;
                key[12..16].copy_from_slice(&a.flowinfo().to_be_bytes());
                key[16..32].copy_from_slice(&a.ip().octets());
                key[32..36].copy_from_slice(&a.scope_id().to_le_bytes());
            }
        }
    }
    key
}

/// Writes a map keyed by address in the peer's order.
pub(crate) fn put_addr_map<'a, V: Denc + 'a>(
    w: &mut Writer,
    map: impl Iterator<Item = (&'a EntityAddr, &'a V)>,
) {
    let mut sorted: Vec<_> = map.map(|(a, v)| (addr_order(a), a, v)).collect();
    sorted.sort_by_key(|x| x.0);
    w.seq(sorted, |w, (_, addr, value)| {
        addr.encode(w);
        value.encode(w);
    });
}

/// Writes a value's encoding as a `bufferlist`.
pub(crate) fn put_blob(w: &mut Writer, value: &impl Denc) {
    w.sized(|w| value.encode(w));
}

/// Reads a value from a `bufferlist`; bytes of a later version may follow it there.
pub(crate) fn get_blob<T: Denc>(r: &mut Reader<'_>) -> Result<T, DecodeError> {
    let bytes = r.blob()?;
    T::decode(&mut Reader::shared(&bytes))
}
