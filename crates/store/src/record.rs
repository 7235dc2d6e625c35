//! A transaction in the log.
//!
//! `u32` number of targets, each collection and object; `u32` number of changes, each a
//! `u8` kind and its fields in the order of [`Op`]; a target is `u32` into the table, bytes
//! are `u32` length and themselves, a list is `u32` length and its items.

use bytes::Bytes;
use denc::{DecodeError, Reader};
use types::{HObject, PgId, PoolId, ShardId, SnapId, SpgId};

use crate::buf::AlignedBuf;
use crate::onode::{BLOCK, OBJECT_MAX};
use crate::pack::{Algorithm, PART_MAX};
use crate::transaction::{Blob, Op, Placed, Released, Transaction};
use crate::{Coll, StoreError};

struct Out<'a>(&'a mut AlignedBuf);

impl Out<'_> {
    fn u8(&mut self, x: u8) {
        self.0.put(&[x]);
    }
    fn u32(&mut self, x: u32) {
        self.0.put(&x.to_le_bytes());
    }
    fn u64(&mut self, x: u64) {
        self.0.put(&x.to_le_bytes());
    }
    fn blob(&mut self, b: &[u8]) {
        self.u32(b.len() as u32);
        self.0.put(b);
    }
    fn coll(&mut self, c: Coll) {
        match c {
            Coll::Meta => self.u8(0),
            Coll::Pg(SpgId { pg, shard }) => {
                self.u8(1);
                self.u64(pg.pool.0 as u64);
                self.u32(pg.ps);
                self.u8(shard.0 as u8);
            }
        }
    }
    fn pairs(&mut self, pairs: &[(Bytes, Bytes)]) {
        self.u32(pairs.len() as u32);
        for (k, v) in pairs {
            self.blob(k);
            self.blob(v);
        }
    }
}

pub(crate) fn encode(txn: &Transaction, buf: &mut AlignedBuf) {
    let mut w = Out(buf);
    w.u32(txn.targets.len() as u32);
    for (c, o) in &txn.targets {
        w.coll(*c);
        w.u64(o.pool.0 as u64);
        w.u32(o.hash);
        w.u64(o.snap.0);
        w.blob(&o.nspace);
        w.blob(&o.key);
        w.blob(&o.name);
    }
    w.u32(txn.ops.len() as u32);
    for op in &txn.ops {
        encode_op(op, &mut w);
    }
}

fn encode_op(op: &Op, w: &mut Out<'_>) {
    match op {
        Op::CreateCollection(c) => {
            w.u8(1);
            w.coll(*c);
        }
        Op::RemoveCollection(c) => {
            w.u8(2);
            w.coll(*c);
        }
        Op::Split(src, dst, bits) => {
            w.u8(3);
            w.coll(*src);
            w.coll(*dst);
            w.u32(*bits);
        }
        Op::Merge(src, dst) => {
            w.u8(4);
            w.coll(*src);
            w.coll(*dst);
        }
        Op::Touch(t) => {
            w.u8(5);
            w.u32(*t);
        }
        Op::Write(t, off, data) => {
            w.u8(6);
            w.u32(*t);
            w.u64(*off);
            w.blob(data);
        }
        Op::Zero(t, off, len) => {
            w.u8(7);
            w.u32(*t);
            w.u64(*off);
            w.u64(*len);
        }
        Op::Truncate(t, size) => {
            w.u8(8);
            w.u32(*t);
            w.u64(*size);
        }
        Op::Remove(t) => {
            w.u8(9);
            w.u32(*t);
        }
        Op::Clone(s, d) => {
            w.u8(10);
            w.u32(*s);
            w.u32(*d);
        }
        Op::CloneRange { src, dst, src_off, len, dst_off } => {
            w.u8(11);
            w.u32(*src);
            w.u32(*dst);
            w.u64(*src_off);
            w.u64(*len);
            w.u64(*dst_off);
        }
        Op::Rename(s, d) => {
            w.u8(12);
            w.u32(*s);
            w.u32(*d);
        }
        Op::SetAttrs(t, pairs) => {
            w.u8(13);
            w.u32(*t);
            w.pairs(pairs);
        }
        Op::RmAttr(t, name) => {
            w.u8(14);
            w.u32(*t);
            w.blob(name);
        }
        Op::RmAttrs(t) => {
            w.u8(15);
            w.u32(*t);
        }
        Op::OmapSet(t, pairs) => {
            w.u8(16);
            w.u32(*t);
            w.pairs(pairs);
        }
        Op::OmapRmKeys(t, keys) => {
            w.u8(17);
            w.u32(*t);
            w.u32(keys.len() as u32);
            for k in keys {
                w.blob(k);
            }
        }
        Op::OmapRmRange(t, first, end) => {
            w.u8(18);
            w.u32(*t);
            w.blob(first);
            w.blob(end);
        }
        Op::OmapClear(t) => {
            w.u8(19);
            w.u32(*t);
        }
        Op::OmapSetHeader(t, header) => {
            w.u8(20);
            w.u32(*t);
            w.blob(header);
        }
        Op::CollSet(c, key, value) => {
            w.u8(21);
            w.coll(*c);
            w.blob(key);
            w.blob(value);
        }
        Op::CollRm(c, key) => {
            w.u8(22);
            w.coll(*c);
            w.blob(key);
        }
        Op::CollRmRange(c, first, end) => {
            w.u8(23);
            w.coll(*c);
            w.blob(first);
            w.blob(end);
        }
        Op::Extents(t, p) => {
            w.u8(match (p.blob.is_some(), p.damaged) {
                (false, false) => 24,
                (true, _) => 26,
                (false, true) => 27,
            });
            w.u32(*t);
            if let Some(b) = p.blob {
                w.u8(b.algorithm.number());
                w.u32(b.bytes);
                w.u32(b.blocks);
            }
            w.u64(p.at);
            w.u64(p.size);
            w.u32(p.runs.len() as u32);
            for (start, len) in &p.runs {
                w.u64(*start);
                w.u64(*len);
            }
            w.u32(p.crcs.len() as u32);
            for crc in &p.crcs {
                w.u32(*crc);
            }
        }
        Op::Release(ckpt, items) => {
            w.u8(25);
            w.u64(*ckpt);
            w.u32(items.len() as u32);
            for r in items {
                w.u32(r.index);
                w.u64(r.phys);
            }
        }
    }
}

fn coll(r: &mut Reader<'_>) -> Result<Coll, DecodeError> {
    if r.u8()? == 0 {
        return Ok(Coll::Meta);
    }
    let pool = PoolId(r.u64()? as i64);
    let pg = PgId { pool, ps: r.u32()? };
    Ok(Coll::Pg(SpgId { pg, shard: ShardId(r.u8()? as i8) }))
}

fn pairs(r: &mut Reader<'_>) -> Result<Vec<(Bytes, Bytes)>, DecodeError> {
    r.seq(|r| Ok((r.blob()?, r.blob()?)))
}

fn blob(r: &mut Reader<'_>) -> Result<Blob, DecodeError> {
    let Some(algorithm) = Algorithm::from_number(r.u8()?) else {
        return Err(DecodeError::Invalid { what: "compressed data", rule: "of a known kind" });
    };
    let (bytes, blocks) = (r.u32()?, r.u32()?);
    let fits = (1..=PART_MAX).contains(&u64::from(blocks));
    r.require(fits, "a blob has a bounded number of blocks")?;
    Ok(Blob { algorithm, bytes, blocks })
}

pub(crate) fn decode(raw: &Bytes) -> Result<Transaction, StoreError> {
    let mut r = Reader::shared(raw);
    let read = |r: &mut Reader<'_>| {
        let targets = r.seq(|r| {
            let c = coll(r)?;
            let (pool, hash) = (PoolId(r.u64()? as i64), r.u32()?);
            let snap = SnapId(r.u64()?);
            let (nspace, key, name) = (r.blob()?, r.blob()?, r.blob()?);
            Ok((c, HObject { pool, hash, nspace, key, name, snap, max: false }))
        })?;
        let ops = r.seq(|r| decode_op(r, targets.len() as u32))?;
        r.finish()?;
        Ok::<_, DecodeError>(Transaction { targets, ops, hints: Vec::new() })
    };
    read(&mut r).map_err(|e| StoreError::Format(format!("log record: {e}")))
}

fn decode_op(r: &mut Reader<'_>, targets: u32) -> Result<Op, DecodeError> {
    let target = |r: &mut Reader<'_>| {
        let t = r.u32()?;
        r.require(t < targets, "a target is in the record's table")?;
        Ok::<_, DecodeError>(t)
    };
    let op = match r.u8()? {
        1 => Op::CreateCollection(coll(r)?),
        2 => Op::RemoveCollection(coll(r)?),
        3 => Op::Split(coll(r)?, coll(r)?, r.u32()?),
        4 => Op::Merge(coll(r)?, coll(r)?),
        5 => Op::Touch(target(r)?),
        6 => Op::Write(target(r)?, r.u64()?, r.blob()?),
        7 => Op::Zero(target(r)?, r.u64()?, r.u64()?),
        8 => Op::Truncate(target(r)?, r.u64()?),
        9 => Op::Remove(target(r)?),
        10 => Op::Clone(target(r)?, target(r)?),
        11 => Op::CloneRange {
            src: target(r)?,
            dst: target(r)?,
            src_off: r.u64()?,
            len: r.u64()?,
            dst_off: r.u64()?,
        },
        12 => Op::Rename(target(r)?, target(r)?),
        13 => Op::SetAttrs(target(r)?, pairs(r)?),
        14 => Op::RmAttr(target(r)?, r.blob()?),
        15 => Op::RmAttrs(target(r)?),
        16 => Op::OmapSet(target(r)?, pairs(r)?),
        17 => Op::OmapRmKeys(target(r)?, r.seq(|r| r.blob())?),
        18 => Op::OmapRmRange(target(r)?, r.blob()?, r.blob()?),
        19 => Op::OmapClear(target(r)?),
        20 => Op::OmapSetHeader(target(r)?, r.blob()?),
        21 => Op::CollSet(coll(r)?, r.blob()?, r.blob()?),
        22 => Op::CollRm(coll(r)?, r.blob()?),
        23 => Op::CollRmRange(coll(r)?, r.blob()?, r.blob()?),
        kind @ (24 | 26 | 27) => {
            let t = target(r)?;
            let blob = if kind == 26 { Some(blob(r)?) } else { None };
            let (at, size) = (r.u64()?, r.u64()?);
            let runs = r.seq(|r| Ok((r.u64()?, r.u64()?)))?;
            let crcs = r.seq(|r| r.u32())?;
            let blocks = runs.iter().try_fold(0u64, |sum, (_, n)| sum.checked_add(*n));
            r.require(blocks == Some(crcs.len() as u64), "each block has a checksum")?;
            if let Some(b) = blob {
                let room = crcs.len() as u64 * BLOCK;
                let fits = runs.len() == 1 && u64::from(b.bytes) <= room;
                r.require(fits, "a blob lies in one run of blocks")?;
            }
            let damaged = kind == 27;
            Op::Extents(t, Box::new(Placed { at, size, runs, crcs, blob, damaged }))
        }
        25 => Op::Release(
            r.u64()?,
            r.seq(|r| Ok(Released { index: r.u32()?, phys: r.u64()?, done: false }))?,
        ),
        _ => return Err(DecodeError::Invalid { what: "op", rule: "of a known kind" }),
    };
    let ends = match &op {
        Op::Write(_, off, data) => [off.checked_add(data.len() as u64), None],
        Op::Zero(_, off, len) => [off.checked_add(*len), None],
        Op::Truncate(_, size) => [Some(*size), None],
        Op::CloneRange { src_off, len, dst_off, .. } => {
            [src_off.checked_add(*len), dst_off.checked_add(*len)]
        }
        Op::Extents(_, p) => {
            [p.at.checked_add(p.blocks()).and_then(|end| end.checked_mul(BLOCK)), Some(p.size)]
        }
        _ => return Ok(op),
    };
    let known = !matches!(op, Op::CloneRange { .. } | Op::Extents(..));
    let fits = |end: Option<u64>| end.is_some_and(|end| end <= OBJECT_MAX);
    r.require(fits(ends[0]) && (known || fits(ends[1])), "an object is 1 TiB at most")?;
    Ok(op)
}
