//! `cas`: chunks named by their contents, which go with their last reference.
//!
//! References are kept in an attribute: by object, or, where those would not fit, by hash,
//! by pool, or as a count alone. What is coarse tells fewer wrong puts.

use std::collections::BTreeMap;

use bytes::Bytes;
use denc::{DecodeError, Denc, Reader, Writer};
use types::{Errno, HObject, OpResult};

use crate::{
    Class, DONE, NOLINK, NOMSG, Object, READS, Reply, WRITES, method, params, record, stored,
};

pub(crate) const CLASS: Class = Class {
    name: "cas",
    methods: &[
        method("chunk_create_or_get_ref", READS | WRITES, create_or_get),
        method("chunk_get_ref", READS | WRITES, get),
        method("chunk_put_ref", READS | WRITES, put),
        method("references_chunk", READS, references),
    ],
};

const ATTR: &[u8] = b"chunk_refs";
/// The contents must be those that are there.
const VERIFY: u64 = 1;
/// Beyond it, references become coarser: attributes have a limit.
const ENCODED_MAX: usize = 60_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CreateOp {
    pub(crate) source: HObject,
    pub(crate) flags: u64,
    pub(crate) data: Bytes,
}

impl Denc for CreateOp {
    fn encode(&self, w: &mut Writer) {
        w.framed(1, 1, |w| {
            self.source.encode(w);
            self.flags.encode(w);
            self.data.encode(w);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("cls_cas_chunk_create_or_get_ref_op", 1, |r, _| {
            Ok(Self { source: Denc::decode(r)?, flags: r.u64()?, data: r.blob()? })
        })
    }
}

/// Of `chunk_get_ref` and `chunk_put_ref`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RefOp {
    pub(crate) source: HObject,
}

impl Denc for RefOp {
    fn encode(&self, w: &mut Writer) {
        w.framed(1, 1, |w| self.source.encode(w));
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("cls_cas_chunk_ref_op", 1, |r, _| Ok(Self { source: Denc::decode(r)? }))
    }
}

record! { CountForm(1, 1) { total: u64, } }

/// `chunk_refs_t`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refs {
    /// How often by each object.
    Objects(BTreeMap<HObject, u64>),
    /// By pool and the lowest bits of the object's hash.
    Hashes { total: u64, bits: u32, counts: BTreeMap<(i64, u32), u64> },
    /// By pool.
    Pools { total: u64, counts: BTreeMap<i64, u64> },
    /// How many.
    Count(u64),
}

impl Default for Refs {
    fn default() -> Self {
        Self::Objects(BTreeMap::new())
    }
}

fn put_varint(w: &mut Writer, mut x: u64) {
    while x >= 0x80 {
        w.u8(x as u8 | 0x80);
        x >>= 7;
    }
    w.u8(x as u8);
}

fn varint(r: &mut Reader<'_>) -> Result<u64, DecodeError> {
    let mut x = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = r.u8()?;
        x |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(x);
        }
    }
    r.require(false, "a varint has at most ten bytes")?;
    Ok(x)
}

fn put_signed(w: &mut Writer, x: i64) {
    put_varint(w, x.unsigned_abs() << 1 | u64::from(x < 0));
}

fn signed(r: &mut Reader<'_>) -> Result<i64, DecodeError> {
    let x = varint(r)?;
    let magnitude = (x >> 1) as i64;
    Ok(if x & 1 == 1 { -magnitude } else { magnitude })
}

fn mask(bits: u32) -> u32 {
    u32::MAX.checked_shr(32 - bits.min(32)).unwrap_or(0)
}

fn drop_one<K: Ord>(counts: &mut BTreeMap<K, u64>, key: &K) -> bool {
    let Some(n) = counts.get_mut(key) else { return false };
    *n = n.saturating_sub(1);
    if *n == 0 {
        counts.remove(key);
    }
    true
}

impl Refs {
    fn total(&self) -> u64 {
        match self {
            Self::Objects(objects) => objects.values().sum(),
            Self::Hashes { total, .. } | Self::Pools { total, .. } | Self::Count(total) => *total,
        }
    }

    fn get(&mut self, o: HObject) {
        match self {
            Self::Objects(objects) => *objects.entry(o).or_default() += 1,
            Self::Hashes { total, bits, counts } => {
                *counts.entry((o.pool.0, o.hash & mask(*bits))).or_default() += 1;
                *total += 1;
            }
            Self::Pools { total, counts } => {
                *counts.entry(o.pool.0).or_default() += 1;
                *total += 1;
            }
            Self::Count(total) => *total += 1,
        }
    }

    /// Whether there was such a reference.
    fn put(&mut self, o: &HObject) -> bool {
        let found = match self {
            Self::Objects(objects) => return drop_one(objects, o),
            Self::Hashes { total, bits, counts } => {
                let found = drop_one(counts, &(o.pool.0, o.hash & mask(*bits)));
                *total = total.saturating_sub(u64::from(found));
                found
            }
            Self::Pools { total, counts } => {
                let found = drop_one(counts, &o.pool.0);
                *total = total.saturating_sub(u64::from(found));
                found
            }
            Self::Count(total) => {
                let found = *total > 0;
                *total = total.saturating_sub(1);
                found
            }
        };
        if self.total() == 0 {
            *self = Self::default();
        }
        found
    }

    fn coarser(self) -> Self {
        let total = self.total();
        match self {
            Self::Objects(objects) => {
                let mut counts = BTreeMap::new();
                for (o, n) in objects {
                    *counts.entry((o.pool.0, o.hash)).or_default() += n;
                }
                Self::Hashes { total, bits: 32, counts }
            }
            Self::Hashes { bits, counts: old, .. } if bits > 1 => {
                let bits = bits - 1;
                let mut counts = BTreeMap::new();
                for ((pool, hash), n) in old {
                    *counts.entry((pool, hash & mask(bits))).or_default() += n;
                }
                Self::Hashes { total, bits, counts }
            }
            Self::Hashes { counts: old, .. } => {
                let mut counts = BTreeMap::new();
                for ((pool, _), n) in old {
                    *counts.entry(pool).or_default() += n;
                }
                Self::Pools { total, counts }
            }
            Self::Pools { .. } | Self::Count(_) => Self::Count(total),
        }
    }
}

impl Denc for Refs {
    fn encode(&self, w: &mut Writer) {
        w.framed(1, 1, |w| match self {
            Self::Objects(objects) => {
                w.u8(1);
                w.framed(1, 1, |w| {
                    w.u32(self.total() as u32);
                    for (o, n) in objects {
                        for _ in 0..*n {
                            o.encode(w);
                        }
                    }
                });
            }
            Self::Hashes { total, bits, counts } => {
                w.u8(2);
                w.framed(1, 1, |w| {
                    put_varint(w, *total);
                    put_varint(w, u64::from(*bits));
                    put_varint(w, counts.len() as u64);
                    for ((pool, hash), n) in counts {
                        put_signed(w, *pool);
                        w.raw(&hash.to_le_bytes()[..bits.div_ceil(8).min(4) as usize]);
                        put_varint(w, *n);
                    }
                });
            }
            Self::Pools { total, counts } => {
                w.u8(4);
                w.framed(1, 1, |w| {
                    put_varint(w, *total);
                    put_varint(w, counts.len() as u64);
                    for (pool, n) in counts {
                        put_signed(w, *pool);
                        put_varint(w, *n);
                    }
                });
            }
            Self::Count(total) => {
                w.u8(5);
                CountForm { total: *total }.encode(w);
            }
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("chunk_refs_t", 1, |r, _| match r.u8()? {
            1 => r.framed("chunk_refs_by_object_t", 1, |r, _| {
                let mut objects = BTreeMap::new();
                for o in r.seq(HObject::decode)? {
                    *objects.entry(o).or_default() += 1;
                }
                Ok(Self::Objects(objects))
            }),
            2 => r.framed("chunk_refs_by_hash_t", 1, |r, _| {
                let (total, bits, n) = (varint(r)?, varint(r)?, varint(r)?);
                r.require((1..=32).contains(&bits), "a hash has 1 to 32 bits")?;
                let bits = bits as u32;
                let mut counts = BTreeMap::new();
                for _ in 0..n {
                    let pool = signed(r)?;
                    let mut hash = [0; 4];
                    let len = bits.div_ceil(8) as usize;
                    hash[..len].copy_from_slice(r.take("hash", len)?);
                    counts.insert((pool, u32::from_le_bytes(hash)), varint(r)?);
                }
                Ok(Self::Hashes { total, bits, counts })
            }),
            4 => r.framed("chunk_refs_by_pool_t", 1, |r, _| {
                let (total, n) = (varint(r)?, varint(r)?);
                let mut counts = BTreeMap::new();
                for _ in 0..n {
                    let pool = signed(r)?;
                    counts.insert(pool, varint(r)?);
                }
                Ok(Self::Pools { total, counts })
            }),
            5 => Ok(Self::Count(CountForm::decode(r)?.total)),
            _ => Err(DecodeError::Invalid { what: "chunk_refs_t", rule: "the kind is unknown" }),
        })
    }
}

/// ENOENT without the object.
fn load(o: &mut dyn Object) -> OpResult<Refs> {
    match o.attr(ATTR) {
        Ok(raw) => stored(&raw),
        Err(Errno::NODATA) => Ok(Refs::default()),
        Err(e) => Err(e),
    }
}

fn save(o: &mut dyn Object, mut refs: Refs) -> OpResult<Reply> {
    let mut raw = refs.to_bytes();
    while raw.len() > ENCODED_MAX && !matches!(refs, Refs::Count(_)) {
        refs = refs.coarser();
        raw = refs.to_bytes();
    }
    o.set_attr(ATTR, raw)?;
    Ok(DONE)
}

fn create_or_get(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: CreateOp = params(input)?;
    let mut refs = match load(o) {
        Err(Errno::NOENT) => {
            o.write_full(op.data)?;
            Refs::default()
        }
        Err(e) => return Err(e),
        Ok(refs) => {
            if op.flags & VERIFY != 0 {
                let (size, _) = o.stat()?;
                if o.read(0, size)? != op.data {
                    return Err(NOMSG);
                }
            }
            refs
        }
    };
    refs.get(op.source);
    save(o, refs)
}

fn get(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: RefOp = params(input)?;
    let mut refs = load(o)?;
    refs.get(op.source);
    save(o, refs)
}

fn put(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: RefOp = params(input)?;
    let mut refs = load(o)?;
    if !refs.put(&op.source) {
        return Err(NOLINK);
    }
    if refs.total() == 0 {
        o.remove()?;
        return Ok(DONE);
    }
    save(o, refs)
}

/// Objects here consist of no chunks of others: none is ever referred to.
fn references(_: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let _: Bytes = params(input)?;
    Err(NOLINK)
}
