//! Comparing the copies of a PG: what the primary asks for, what a copy answers, and what
//! is remembered of it.

use bytes::Bytes;
use denc::{DecodeError, Denc, Reader, Writer};
use types::{EVersion, HObject};

/// What is known of a PG's scrubs; kept with every copy. Times are wall-clock nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubHistory {
    /// The log's head when the last scrub ended.
    pub last: EVersion,
    /// When it ended.
    pub last_ns: u64,
    /// The log's head when the last deep scrub ended.
    pub last_deep: EVersion,
    /// When it ended.
    pub last_deep_ns: u64,
    /// When one last found nothing.
    pub last_clean_ns: u64,
    /// What was found that shows without reading data.
    pub shallow_errors: u32,
    /// What was found by reading data and omap.
    pub deep_errors: u32,
    /// Objects of the last scrub.
    pub objects: u64,
    /// How long the last one took, ms.
    pub duration_ms: u64,
    /// Objects mended, ever.
    pub repaired: u64,
    /// Keys and bytes of omap, as the last deep scrub counted them.
    pub omap: (u64, u64),
}

impl ScrubHistory {
    /// Errors known.
    #[must_use]
    pub fn errors(&self) -> u32 {
        self.shallow_errors.saturating_add(self.deep_errors)
    }
}

impl Denc for ScrubHistory {
    fn encode(&self, w: &mut Writer) {
        w.framed(1, 1, |w| {
            self.last.encode(w);
            w.u64(self.last_ns);
            self.last_deep.encode(w);
            w.u64(self.last_deep_ns);
            w.u64(self.last_clean_ns);
            w.u32(self.shallow_errors);
            w.u32(self.deep_errors);
            w.u64(self.objects);
            w.u64(self.duration_ms);
            w.u64(self.repaired);
            w.u64(self.omap.0);
            w.u64(self.omap.1);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("ScrubHistory", 1, |r, _| {
            Ok(Self {
                last: Denc::decode(r)?,
                last_ns: r.u64()?,
                last_deep: Denc::decode(r)?,
                last_deep_ns: r.u64()?,
                last_clean_ns: r.u64()?,
                shallow_errors: r.u32()?,
                deep_errors: r.u32()?,
                objects: r.u64()?,
                duration_ms: r.u64()?,
                repaired: r.u64()?,
                omap: (r.u64()?, r.u64()?),
            })
        })
    }
}

/// omap of one object of one copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OmapDigest {
    /// crc32c of header and entries.
    pub crc: u32,
    /// Entries.
    pub keys: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// One object of one copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubObject {
    /// Which.
    pub oid: HObject,
    /// Bytes of data as the store has them.
    pub size: u64,
    /// The store could not say what it has.
    pub stat_error: bool,
    /// Data or omap could not be read.
    pub read_error: bool,
    /// All attributes.
    pub attrs: Vec<(Bytes, Bytes)>,
    /// crc32c of the data; by deep scrubs.
    pub data: Option<u32>,
    /// The omap; by deep scrubs.
    pub omap: Option<OmapDigest>,
}

impl Denc for ScrubObject {
    fn encode(&self, w: &mut Writer) {
        self.oid.encode(w);
        w.u64(self.size);
        w.bool(self.stat_error);
        w.bool(self.read_error);
        self.attrs.encode(w);
        self.data.encode(w);
        w.bool(self.omap.is_some());
        if let Some(o) = self.omap {
            w.u32(o.crc);
            w.u64(o.keys);
            w.u64(o.bytes);
        }
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            oid: Denc::decode(r)?,
            size: r.u64()?,
            stat_error: r.bool()?,
            read_error: r.bool()?,
            attrs: Denc::decode(r)?,
            data: Denc::decode(r)?,
            omap: if r.bool()? {
                Some(OmapDigest { crc: r.u32()?, keys: r.u64()?, bytes: r.u64()? })
            } else {
                None
            },
        })
    }
}

/// What the copies of a PG tell each other for a scrub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScrubMsg {
    /// May this copy be scrubbed now? Answered by `Slot`.
    Reserve,
    /// Yes, until `Release`, the next interval or the primary's end; or no.
    Slot(bool),
    /// The scrub has ended.
    Release,
    /// What is in this range? Answered by `Chunk`.
    Ask {
        /// Counts the primary's questions: the answer to an earlier one is void.
        id: u32,
        /// Data and omap too.
        deep: bool,
        /// First object.
        begin: HObject,
        /// The first behind.
        end: HObject,
    },
    /// This.
    Chunk {
        /// The question's.
        id: u32,
        /// In order.
        objects: Vec<ScrubObject>,
    },
    /// What was found; to be kept.
    Result(ScrubHistory),
}

impl Denc for ScrubMsg {
    fn encode(&self, w: &mut Writer) {
        match self {
            Self::Reserve => w.u8(1),
            Self::Slot(yes) => {
                w.u8(2);
                w.bool(*yes);
            }
            Self::Release => w.u8(3),
            Self::Ask { id, deep, begin, end } => {
                w.u8(4);
                w.u32(*id);
                w.bool(*deep);
                begin.encode(w);
                end.encode(w);
            }
            Self::Chunk { id, objects } => {
                w.u8(5);
                w.u32(*id);
                objects.encode(w);
            }
            Self::Result(history) => {
                w.u8(6);
                history.encode(w);
            }
        }
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match r.u8()? {
            1 => Self::Reserve,
            2 => Self::Slot(r.bool()?),
            3 => Self::Release,
            4 => Self::Ask {
                id: r.u32()?,
                deep: r.bool()?,
                begin: Denc::decode(r)?,
                end: Denc::decode(r)?,
            },
            5 => Self::Chunk { id: r.u32()?, objects: Denc::decode(r)? },
            6 => Self::Result(Denc::decode(r)?),
            _ => return Err(DecodeError::Invalid { what: "ScrubMsg", rule: "a kind from 1 to 6" }),
        })
    }
}
