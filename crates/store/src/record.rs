//! A transaction in the log.
//!
//! `u32` [`SHORT`]; number of targets, each collection and object; number of changes, each a
//! `u8` kind and its fields in the order of [`Op`]; a target is a number into the table, bytes
//! are their length and themselves, a list is its length and its items. Numbers are as
//! [`varint`] has them, checksums and hashes `u32`.
//!
//! Records without the mark are of stores that were written before there was one: their numbers
//! are `u32` and `u64`. Who does not know the mark takes it for a number of targets that no
//! record can hold, and refuses to open the store.

use bytes::Bytes;
use denc::{DecodeError, Reader};
use types::{HObject, PgId, PoolId, ShardId, SnapId, SpgId};

use crate::buf::AlignedBuf;
use crate::onode::{BLOCK, OBJECT_MAX};
use crate::pack::{Algorithm, PART_MAX};
use crate::transaction::{Blob, Op, Placed, Released, Transaction};
use crate::varint::{self, fold, unfold};
use crate::{Coll, StoreError};

/// Numbers take as few bytes as they need.
const SHORT: u32 = 0xffff_ff02;

struct Out<'a>(&'a mut AlignedBuf);

impl Out<'_> {
    fn u8(&mut self, x: u8) {
        self.0.put(&[x]);
    }
    fn u32(&mut self, x: u32) {
        self.0.put(&x.to_le_bytes());
    }
    fn n(&mut self, x: impl Into<u64>) {
        let (raw, len) = varint::bytes(x.into());
        self.0.put(&raw[..len]);
    }
    fn len(&mut self, n: usize) {
        self.n(n as u64);
    }
    fn blob(&mut self, b: &[u8]) {
        self.len(b.len());
        self.0.put(b);
    }
    fn coll(&mut self, c: Coll) {
        match c {
            Coll::Meta => self.u8(0),
            Coll::Pg(SpgId { pg, shard }) => {
                self.u8(if shard == ShardId::NONE { 2 } else { 1 });
                self.n(fold(pg.pool.0));
                self.n(pg.ps);
                if shard != ShardId::NONE {
                    self.u8(shard.0 as u8);
                }
            }
        }
    }
    fn snap(&mut self, snap: SnapId) {
        self.n(snap.0.wrapping_add(HEAD_IS_NOUGHT));
    }
    fn pairs(&mut self, pairs: &[(Bytes, Bytes)]) {
        self.len(pairs.len());
        for (k, v) in pairs {
            self.blob(k);
            self.blob(v);
        }
    }
}

/// The snapshots that are none have the highest numbers, and are the most frequent.
const HEAD_IS_NOUGHT: u64 = 0u64.wrapping_sub(SnapId::HEAD.0);

pub(crate) fn encode(txn: &Transaction, buf: &mut AlignedBuf) {
    let mut w = Out(buf);
    w.u32(SHORT);
    w.len(txn.targets.len());
    for (c, o) in &txn.targets {
        w.coll(*c);
        w.n(fold(o.pool.0));
        w.u32(o.hash);
        w.snap(o.snap);
        w.blob(&o.nspace);
        w.blob(&o.key);
        w.blob(&o.name);
    }
    w.len(txn.ops.len());
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
            w.n(*bits);
        }
        Op::Merge(src, dst) => {
            w.u8(4);
            w.coll(*src);
            w.coll(*dst);
        }
        Op::Touch(t) => {
            w.u8(5);
            w.n(*t);
        }
        Op::Write(t, off, data) => {
            w.u8(6);
            w.n(*t);
            w.n(*off);
            w.blob(data);
        }
        Op::Zero(t, off, len) => {
            w.u8(7);
            w.n(*t);
            w.n(*off);
            w.n(*len);
        }
        Op::Truncate(t, size) => {
            w.u8(8);
            w.n(*t);
            w.n(*size);
        }
        Op::Remove(t) => {
            w.u8(9);
            w.n(*t);
        }
        Op::Clone(s, d) => {
            w.u8(10);
            w.n(*s);
            w.n(*d);
        }
        Op::CloneRange { src, dst, src_off, len, dst_off } => {
            w.u8(11);
            w.n(*src);
            w.n(*dst);
            w.n(*src_off);
            w.n(*len);
            w.n(*dst_off);
        }
        Op::Rename(s, d) => {
            w.u8(12);
            w.n(*s);
            w.n(*d);
        }
        Op::SetAttrs(t, pairs) => {
            w.u8(13);
            w.n(*t);
            w.pairs(pairs);
        }
        Op::RmAttr(t, name) => {
            w.u8(14);
            w.n(*t);
            w.blob(name);
        }
        Op::RmAttrs(t) => {
            w.u8(15);
            w.n(*t);
        }
        Op::OmapSet(t, pairs) => {
            w.u8(16);
            w.n(*t);
            w.pairs(pairs);
        }
        Op::OmapRmKeys(t, keys) => {
            w.u8(17);
            w.n(*t);
            w.len(keys.len());
            for k in keys {
                w.blob(k);
            }
        }
        Op::OmapRmRange(t, first, end) => {
            w.u8(18);
            w.n(*t);
            w.blob(first);
            w.blob(end);
        }
        Op::OmapClear(t) => {
            w.u8(19);
            w.n(*t);
        }
        Op::OmapSetHeader(t, header) => {
            w.u8(20);
            w.n(*t);
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
            w.n(*t);
            if let Some(b) = p.blob {
                w.u8(b.algorithm.number());
                w.n(b.bytes);
                w.n(b.blocks);
            }
            w.n(p.at);
            w.n(p.size);
            w.len(p.runs.len());
            for (start, len) in &p.runs {
                w.n(*start);
                w.n(*len);
            }
            w.len(p.crcs.len());
            for crc in &p.crcs {
                w.u32(*crc);
            }
        }
        Op::Release(ckpt, items) => {
            w.u8(25);
            w.n(*ckpt);
            w.len(items.len());
            for r in items {
                w.n(r.index);
                w.n(r.phys);
            }
        }
        Op::DropCollection(c) => {
            w.u8(28);
            w.coll(*c);
        }
        Op::Sweep(id, n) => {
            w.u8(29);
            w.n(*id);
            w.n(*n);
        }
    }
}

struct In<'a> {
    r: Reader<'a>,
    short: bool,
}

impl In<'_> {
    fn u8(&mut self) -> Result<u8, DecodeError> {
        self.r.u8()
    }

    fn u32(&mut self) -> Result<u32, DecodeError> {
        self.r.u32()
    }

    fn require(&self, holds: bool, rule: &'static str) -> Result<(), DecodeError> {
        self.r.require(holds, rule)
    }

    fn n32(&mut self) -> Result<u32, DecodeError> {
        if !self.short {
            return self.r.u32();
        }
        let n = varint::get(&mut self.r)?;
        self.require(u32::try_from(n).is_ok(), "a small number has 32 bits")?;
        Ok(n as u32)
    }

    fn n64(&mut self) -> Result<u64, DecodeError> {
        if self.short { varint::get(&mut self.r) } else { self.r.u64() }
    }

    fn pool(&mut self) -> Result<PoolId, DecodeError> {
        let n = self.n64()?;
        Ok(PoolId(if self.short { unfold(n) } else { n as i64 }))
    }

    fn snap(&mut self) -> Result<SnapId, DecodeError> {
        let n = self.n64()?;
        Ok(SnapId(if self.short { n.wrapping_sub(HEAD_IS_NOUGHT) } else { n }))
    }

    fn blob(&mut self) -> Result<Bytes, DecodeError> {
        let n = self.n32()? as usize;
        self.r.share(n)
    }

    fn seq<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let n = self.n32()? as usize;
        self.require(n <= self.r.left(), "each item has a byte at least")?;
        let mut all = Vec::with_capacity(n.min(1024));
        for _ in 0..n {
            all.push(item(self)?);
        }
        Ok(all)
    }
}

fn coll(r: &mut In<'_>) -> Result<Coll, DecodeError> {
    let kind = r.u8()?;
    if kind == 0 {
        return Ok(Coll::Meta);
    }
    r.require(kind <= 2, "a collection is of a known kind")?;
    let pg = PgId { pool: r.pool()?, ps: r.n32()? };
    let shard = if kind == 2 { ShardId::NONE } else { ShardId(r.u8()? as i8) };
    Ok(Coll::Pg(SpgId { pg, shard }))
}

fn pairs(r: &mut In<'_>) -> Result<Vec<(Bytes, Bytes)>, DecodeError> {
    r.seq(|r| Ok((r.blob()?, r.blob()?)))
}

fn blob(r: &mut In<'_>) -> Result<Blob, DecodeError> {
    let Some(algorithm) = Algorithm::from_number(r.u8()?) else {
        return Err(DecodeError::Invalid { what: "compressed data", rule: "of a known kind" });
    };
    let (bytes, blocks) = (r.n32()?, r.n32()?);
    let fits = (1..=PART_MAX).contains(&u64::from(blocks));
    r.require(fits, "a blob has a bounded number of blocks")?;
    Ok(Blob { algorithm, bytes, blocks })
}

pub(crate) fn decode(raw: &Bytes) -> Result<Transaction, StoreError> {
    let short = raw.starts_with(&SHORT.to_le_bytes());
    let mut r = In { r: Reader::shared(raw), short };
    let read = |r: &mut In<'_>| {
        if short {
            r.u32()?;
        }
        let targets = r.seq(|r| {
            let c = coll(r)?;
            let (pool, hash) = (r.pool()?, r.u32()?);
            let snap = r.snap()?;
            let (nspace, key, name) = (r.blob()?, r.blob()?, r.blob()?);
            Ok((c, HObject { pool, hash, nspace, key, name, snap, max: false }))
        })?;
        let ops = r.seq(|r| decode_op(r, targets.len() as u32))?;
        r.r.finish()?;
        Ok::<_, DecodeError>(Transaction { targets, ops, ..Transaction::default() })
    };
    read(&mut r).map_err(|e| StoreError::Format(format!("log record: {e}")))
}

fn decode_op(r: &mut In<'_>, targets: u32) -> Result<Op, DecodeError> {
    let target = |r: &mut In<'_>| {
        let t = r.n32()?;
        r.require(t < targets, "a target is in the record's table")?;
        Ok::<_, DecodeError>(t)
    };
    let op = match r.u8()? {
        1 => Op::CreateCollection(coll(r)?),
        2 => Op::RemoveCollection(coll(r)?),
        3 => Op::Split(coll(r)?, coll(r)?, r.n32()?),
        4 => Op::Merge(coll(r)?, coll(r)?),
        5 => Op::Touch(target(r)?),
        6 => Op::Write(target(r)?, r.n64()?, r.blob()?),
        7 => Op::Zero(target(r)?, r.n64()?, r.n64()?),
        8 => Op::Truncate(target(r)?, r.n64()?),
        9 => Op::Remove(target(r)?),
        10 => Op::Clone(target(r)?, target(r)?),
        11 => Op::CloneRange {
            src: target(r)?,
            dst: target(r)?,
            src_off: r.n64()?,
            len: r.n64()?,
            dst_off: r.n64()?,
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
            let (at, size) = (r.n64()?, r.n64()?);
            let runs = r.seq(|r| Ok((r.n64()?, r.n64()?)))?;
            let crcs = r.seq(In::u32)?;
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
            r.n64()?,
            r.seq(|r| Ok(Released { index: r.n32()?, phys: r.n64()?, done: false }))?,
        ),
        28 => Op::DropCollection(coll(r)?),
        29 => Op::Sweep(r.n32()?, r.n32()?),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Every kind of change, on objects of every kind.
    fn sample() -> Transaction {
        let b = |s: &'static str| Bytes::from_static(s.as_bytes());
        let pg =
            |pool, ps, shard| Coll::Pg(SpgId { pg: PgId::new(pool, ps), shard: ShardId(shard) });
        let (one, two) = (pg(1, 300, -1), pg(7, 2, 3));
        let object = |pool: i64, snap: SnapId, name: &'static str| HObject {
            pool: PoolId(pool),
            hash: 0x8000_0001,
            nspace: b("n"),
            key: Bytes::new(),
            name: b(name),
            snap,
            max: false,
        };
        let targets = vec![
            (one, object(1, SnapId::HEAD, "head")),
            (two, object(-5, SnapId(4), "temporary")),
            (Coll::Meta, object(i64::MIN, SnapId::DIR, "")),
        ];
        let placed = |blob, damaged| {
            let blocks = if blob { vec![(1 << 40, 2)] } else { vec![(5, 1), (1 << 40, 1)] };
            Box::new(Placed {
                at: 256,
                size: 1 << 21,
                runs: blocks,
                crcs: vec![1, 0xffff_ffff],
                blob: blob.then_some(Blob { algorithm: Algorithm::Zstd, bytes: 5000, blocks: 16 }),
                damaged,
            })
        };
        let pairs = || vec![(b("k"), b("v")), (b(""), Bytes::from(vec![7; 130]))];
        let ops = vec![
            Op::CreateCollection(one),
            Op::RemoveCollection(Coll::Meta),
            Op::Split(one, two, 9),
            Op::Merge(two, one),
            Op::Touch(2),
            Op::Write(0, 1 << 39, b("data")),
            Op::Zero(1, 5, 1 << 20),
            Op::Truncate(0, OBJECT_MAX),
            Op::Remove(1),
            Op::Clone(0, 1),
            Op::CloneRange { src: 0, dst: 1, src_off: 1, len: 2, dst_off: 3 },
            Op::Rename(1, 2),
            Op::SetAttrs(0, pairs()),
            Op::RmAttr(0, b("_")),
            Op::RmAttrs(0),
            Op::OmapSet(0, pairs()),
            Op::OmapRmKeys(0, vec![b("a"), b("")]),
            Op::OmapRmRange(0, b("a"), b("b")),
            Op::OmapClear(0),
            Op::OmapSetHeader(0, b("header")),
            Op::CollSet(one, b("log"), b("entry")),
            Op::CollRm(two, b("log")),
            Op::CollRmRange(Coll::Meta, b("a"), b("z")),
            Op::Extents(0, placed(false, false)),
            Op::Extents(0, placed(true, false)),
            Op::Extents(0, placed(false, true)),
            Op::Release(1 << 33, vec![Released { index: 3, phys: 1 << 41, done: false }]),
        ];
        Transaction { targets, ops, ..Transaction::default() }
    }

    /// With what came after the records that [`sample`] has a vector of.
    fn newest_sample() -> Transaction {
        let mut txn = sample();
        txn.ops.extend([Op::DropCollection(txn.targets[1].0), Op::Sweep(1 << 31, 300)]);
        txn
    }

    fn encoded(txn: &Transaction) -> Bytes {
        let mut buf = AlignedBuf::with_capacity(4096);
        encode(txn, &mut buf);
        Bytes::copy_from_slice(&buf)
    }

    fn shown(txn: &Transaction) -> String {
        format!("{:?} {:?}", txn.targets, txn.ops)
    }

    #[test]
    fn records_come_back() {
        let raw = encoded(&newest_sample());
        assert_eq!(shown(&decode(&raw).unwrap()), shown(&newest_sample()));
        for len in 0..raw.len() {
            assert!(decode(&raw.slice(..len)).is_err(), "{len} bytes of {}", raw.len());
        }
    }

    /// So a version that lacks a kind refuses the store, and does not pass it over.
    #[test]
    fn unknown_kinds_are_refused() {
        let mut txn = Transaction::new();
        txn.remove_collection(Coll::Meta);
        let raw = encoded(&txn);
        assert_eq!(raw[4..], [0, 1, 28, 0]);
        for kind in [0, 30, 255] {
            let mut raw = raw.to_vec();
            raw[6] = kind;
            assert!(matches!(decode(&raw.into()), Err(StoreError::Format(_))), "{kind}");
        }
    }

    /// What a record takes beside keys, names and data.
    #[test]
    fn records_are_short() {
        let c = Coll::Pg(SpgId { pg: PgId::new(3, 200), shard: ShardId::NONE });
        let o = HObject { pool: PoolId(3), snap: SnapId::HEAD, ..HObject::min() };
        let mut txn = Transaction::new();
        txn.write(c, &o, 1 << 20, Bytes::from(vec![0; 4096]));
        txn.coll_set(c, Bytes::new(), Bytes::new());
        assert_eq!(encoded(&txn).len() - 4096, 4 + 14 + 1 + 7 + 7);
    }

    /// A record as stores had them before numbers were short.
    #[test]
    fn older_records_are_read() {
        let raw = include_str!("../../../vectors/store/record-1.hex")
            .split_whitespace()
            .collect::<String>();
        let hex = |i| u8::from_str_radix(&raw[i..i + 2], 16).unwrap();
        let raw: Vec<u8> = (0..raw.len()).step_by(2).map(hex).collect();
        assert_eq!(shown(&decode(&raw.into()).unwrap()), shown(&sample()));
    }
}
