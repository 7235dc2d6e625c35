//! Changes to objects, as they are replicated and given to the store.

use bytes::Bytes;
use denc::{DecodeError, Denc, Reader, Writer};
use types::HObject;

/// One change to one object, as it is replicated and given to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// The object exists from here on.
    Touch,
    /// Bytes at an offset; grows the object.
    Write {
        /// Where.
        off: u64,
        /// What.
        data: Bytes,
    },
    /// Zeroes within or beyond the object; grows it.
    Zero {
        /// Where.
        off: u64,
        /// How many.
        len: u64,
    },
    /// The object ends here from now on.
    Truncate(u64),
    /// No such object any more: data, attributes and omap are gone.
    Remove,
    /// Sets an attribute; names are the store's, with the prefix that keeps users' apart.
    SetAttr(Bytes, Bytes),
    /// Removes one.
    RmAttr(Bytes),
    /// Sets the omap header.
    OmapHeader(Bytes),
    /// Sets omap entries.
    OmapSet(Vec<(Bytes, Bytes)>),
    /// Removes omap entries.
    OmapRm(Vec<Bytes>),
    /// Removes the omap entries from the first key on, up to and without the second.
    OmapRmRange(Bytes, Bytes),
    /// Removes header and entries.
    OmapClear,
    /// The object becomes a copy of another of the same PG, as that is now.
    CloneFrom(HObject),
    /// Bytes become those of another object of the same PG, at the same place, and share
    /// their space.
    CloneRange {
        /// Whose.
        from: HObject,
        /// Where.
        off: u64,
        /// How many.
        len: u64,
    },
    /// Changes nothing: bytes as they are before the changes that follow, for who may have to
    /// take these back.
    Was {
        /// Where.
        off: u64,
        /// What.
        data: Bytes,
    },
}

impl Mutation {
    fn encode(&self, w: &mut Writer) {
        match self {
            Self::Touch => w.u8(1),
            Self::Write { off, data } => {
                w.u8(2);
                w.u64(*off);
                w.u32(data.len() as u32);
            }
            Self::Zero { off, len } => {
                w.u8(3);
                w.u64(*off);
                w.u64(*len);
            }
            Self::Truncate(size) => {
                w.u8(4);
                w.u64(*size);
            }
            Self::Remove => w.u8(5),
            Self::SetAttr(name, value) => {
                w.u8(6);
                w.blob(name);
                w.blob(value);
            }
            Self::RmAttr(name) => {
                w.u8(7);
                w.blob(name);
            }
            Self::OmapHeader(header) => {
                w.u8(8);
                w.blob(header);
            }
            Self::OmapSet(entries) => {
                w.u8(9);
                entries.encode(w);
            }
            Self::OmapRm(keys) => {
                w.u8(10);
                keys.encode(w);
            }
            Self::OmapRmRange(begin, end) => {
                w.u8(11);
                w.blob(begin);
                w.blob(end);
            }
            Self::OmapClear => w.u8(12),
            Self::CloneFrom(oid) => {
                w.u8(13);
                oid.encode(w);
            }
            Self::CloneRange { from, off, len } => {
                w.u8(14);
                from.encode(w);
                w.u64(*off);
                w.u64(*len);
            }
            Self::Was { off, data } => {
                w.u8(15);
                w.u64(*off);
                w.blob(data);
            }
        }
    }

    /// `at` is how much of the data segment earlier writes have taken.
    fn decode(r: &mut Reader<'_>, data: &Bytes, at: &mut usize) -> Result<Self, DecodeError> {
        Ok(match r.u8()? {
            1 => Self::Touch,
            2 => {
                let (off, len) = (r.u64()?, r.u32()? as usize);
                let end = at.checked_add(len).filter(|end| *end <= data.len());
                let Some(end) = end else {
                    let left = data.len() - *at;
                    return Err(DecodeError::Short {
                        what: "write data",
                        at: *at,
                        need: len,
                        left,
                    });
                };
                let data = data.slice(*at..end);
                *at = end;
                Self::Write { off, data }
            }
            3 => Self::Zero { off: r.u64()?, len: r.u64()? },
            4 => Self::Truncate(r.u64()?),
            5 => Self::Remove,
            6 => Self::SetAttr(r.blob()?, r.blob()?),
            7 => Self::RmAttr(r.blob()?),
            8 => Self::OmapHeader(r.blob()?),
            9 => Self::OmapSet(Denc::decode(r)?),
            10 => Self::OmapRm(Denc::decode(r)?),
            11 => Self::OmapRmRange(r.blob()?, r.blob()?),
            12 => Self::OmapClear,
            13 => Self::CloneFrom(Denc::decode(r)?),
            14 => Self::CloneRange { from: Denc::decode(r)?, off: r.u64()?, len: r.u64()? },
            15 => Self::Was { off: r.u64()?, data: r.blob()? },
            _ => {
                return Err(DecodeError::Invalid { what: "Mutation", rule: "a kind from 1 to 15" });
            }
        })
    }
}

/// All changes of one operation to one object, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectChange {
    /// The object.
    pub oid: HObject,
    /// What happens to it.
    pub mutations: Vec<Mutation>,
}

pub(super) fn encode_changes(changes: &[ObjectChange], w: &mut Writer) {
    w.seq(changes, |w, change| {
        change.oid.encode(w);
        w.seq(&change.mutations, |w, m| m.encode(w));
    });
}

pub(super) fn decode_changes(
    r: &mut Reader<'_>,
    data: &Bytes,
) -> Result<Vec<ObjectChange>, DecodeError> {
    let mut at = 0;
    r.seq(|r| {
        let oid = Denc::decode(r)?;
        Ok(ObjectChange { oid, mutations: r.seq(|r| Mutation::decode(r, data, &mut at))? })
    })
}

/// Payloads of all writes joined; not copied where there is only one.
pub(super) fn join_writes(changes: &[ObjectChange]) -> Bytes {
    let writes = || {
        changes.iter().flat_map(|c| &c.mutations).filter_map(|m| match m {
            Mutation::Write { data, .. } if !data.is_empty() => Some(data),
            _ => None,
        })
    };
    let mut it = writes();
    match (it.next(), it.next()) {
        (None, _) => Bytes::new(),
        (Some(one), None) => one.clone(),
        _ => {
            let mut all = Vec::with_capacity(writes().map(Bytes::len).sum());
            writes().for_each(|data| all.extend_from_slice(data));
            all.into()
        }
    }
}
