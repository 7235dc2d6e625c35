//! Attributes of objects: tags, locks, what a key's current version is.

use types::{DecodeError, Denc, Reader, UTime, Writer};

use super::{ObjectName, decode_pairs, encode_pairs};

/// Tags of an object or bucket: `RGWObjTags`, `ENCODE_START(1, 1)`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectTags(pub Vec<(String, String)>);

impl Denc for ObjectTags {
    fn encode(&self, w: &mut Writer) {
        w.framed(1, 1, |w| encode_pairs(w, &self.0));
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("RGWObjTags", 1, |r, _| Ok(Self(decode_pairs(r)?)))
    }
}

/// Until when an object is locked: `RGWObjectRetention`.
///
/// Wire: `ENCODE_START(2, 1)`: mode, time in 32 bits each of seconds and nanoseconds; v2 added the time in nanoseconds.
/// Source: `rgw_object_lock.h`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectRetention {
    /// `GOVERNANCE` or `COMPLIANCE`.
    pub mode: String,
    /// Nanoseconds since 1970.
    pub until_ns: u64,
}

impl Denc for ObjectRetention {
    fn encode(&self, w: &mut Writer) {
        let part = |n: u64| u32::try_from(n & u64::from(u32::MAX)).expect("masked");
        let (sec, nsec) =
            (part(self.until_ns / 1_000_000_000), part(self.until_ns % 1_000_000_000));
        w.framed(2, 1, |w| {
            w.str(&self.mode);
            UTime { sec, nsec }.encode(w);
            w.u64(self.until_ns);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("RGWObjectRetention", 2, |r, v| {
            let (mode, until) = (r.string()?, UTime::decode(r)?);
            let ns = u64::from(until.sec) * 1_000_000_000 + u64::from(until.nsec);
            Ok(Self { mode, until_ns: if v >= 2 { r.u64()? } else { ns } })
        })
    }
}

/// Whether an object is held: `RGWObjectLegalHold`, `ENCODE_START(1, 1)`; `ON` or `OFF`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LegalHold(pub String);

impl Denc for LegalHold {
    fn encode(&self, w: &mut Writer) {
        w.framed(1, 1, |w| w.str(&self.0));
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("RGWObjectLegalHold", 1, |r, _| Ok(Self(r.string()?)))
    }
}

/// Which version a key leads to: `RGWOLHInfo`, `ENCODE_START(1, 1)`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OlhInfo {
    /// The version's object.
    pub target: ObjectName,
    /// Whether the version is a delete marker.
    pub is_removed: bool,
}

impl Denc for OlhInfo {
    fn encode(&self, w: &mut Writer) {
        w.framed(1, 1, |w| {
            self.target.encode(w);
            w.bool(self.is_removed);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("RGWOLHInfo", 1, |r, _| {
            Ok(Self { target: Denc::decode(r)?, is_removed: r.bool()? })
        })
    }
}

/// A change of a key's current version under way: `RGWOLHPendingInfo`, `ENCODE_START(1, 1)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OlhPending(pub UTime);

impl Denc for OlhPending {
    fn encode(&self, w: &mut Writer) {
        w.framed(1, 1, |w| self.0.encode(w));
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("RGWOLHPendingInfo", 1, |r, _| Ok(Self(Denc::decode(r)?)))
    }
}
