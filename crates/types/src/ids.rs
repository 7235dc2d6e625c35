//! Numbers that name things, each its own type.

use std::fmt;
use std::str::FromStr;

use denc::{DecodeError, Denc, Reader, Writer};

use crate::{EntityId, reverse_bits};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($t:ident)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $t);
        impl Denc for $name {
            fn encode(&self, w: &mut Writer) {
                w.$t(self.0);
            }
            fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
                r.$t().map(Self)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

id! {
    /// An OSD's number.
    OsdId(i32)
}
id! {
    /// A pool's number; the peer's `pool id`, 1 and up.
    PoolId(i64)
}
id! {
    /// The version of an OSD map; the peer's `epoch_t`.
    Epoch(u32)
}
id! {
    /// A snapshot's number; the peer's `snapid_t`.
    SnapId(u64)
}
id! {
    /// Position in an erasure-coded set; -1 in replicated pools. The peer's `shard_id_t`.
    ShardId(i8)
}

id! {
    /// An inode's number; the peer's `inodeno_t`.
    Ino(u64)
}

impl fmt::LowerHex for Ino {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, f)
    }
}

impl OsdId {
    /// A hole in an erasure-coded set, or no primary: CRUSH's `CRUSH_ITEM_NONE`.
    pub const NONE: Self = Self(0x7fff_ffff);
}

impl SnapId {
    /// The object itself, not a snapshot of it (`CEPH_NOSNAP`).
    pub const HEAD: Self = Self(-2i64 as u64);
    /// The set of snapshots (`CEPH_SNAPDIR`).
    pub const DIR: Self = Self(-1i64 as u64);
}

impl ShardId {
    /// Not an erasure-coded shard.
    pub const NONE: Self = Self(-1);
}

/// 16 raw bytes; prints as 8-4-4-4-12 hex. The peer's `uuid_d`; cluster ids (`fsid`) and
/// OSD incarnations.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// Makes 16 random bytes a version-4 UUID.
    #[must_use]
    pub const fn from_random(mut bytes: [u8; 16]) -> Self {
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        Self(bytes)
    }

    /// Whether all bytes are zero.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.0 == [0; 16]
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, b) in self.0.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{b:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Uuid {
    type Err = &'static str;

    /// Reads 8-4-4-4-12 hex digits.
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        const WRONG: &str = "a UUID is 8-4-4-4-12 hexadecimal digits";
        let parts: Vec<&str> = s.split('-').collect();
        if !s.is_ascii() || parts.iter().map(|p| p.len()).ne([8, 4, 4, 4, 12]) {
            return Err(WRONG);
        }
        let hex = parts.concat();
        let mut out = [0; 16];
        for (i, byte) in out.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).map_err(|_| WRONG)?;
        }
        Ok(Self(out))
    }
}

impl Denc for Uuid {
    fn encode(&self, w: &mut Writer) {
        w.raw(&self.0);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.array().map(Self)
    }
}

/// The place of a write in a PG's history: epoch first when comparing, version first on
/// the wire. The peer's `eversion_t`, printed `epoch'version`.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EVersion {
    /// Epoch of the map in which the write was ordered.
    pub epoch: Epoch,
    /// Counts the PG's writes.
    pub version: u64,
}

impl EVersion {
    /// Before any write.
    pub const ZERO: Self = Self { epoch: Epoch(0), version: 0 };

    /// `epoch'version`.
    #[must_use]
    pub const fn new(epoch: u32, version: u64) -> Self {
        Self { epoch: Epoch(epoch), version }
    }
}

impl fmt::Display for EVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}'{}", self.epoch, self.version)
    }
}

impl fmt::Debug for EVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Denc for EVersion {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.version);
        self.epoch.encode(w);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let version = r.u64()?;
        Ok(Self { version, epoch: Denc::decode(r)? })
    }
}

/// A placement group: pool and number. The peer's `pg_t`, printed `pool.hex`.
///
/// Wire: u8 1, u64 pool, u32 ps, i32 -1 (a preferred OSD, long without meaning).
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PgId {
    /// Its pool.
    pub pool: PoolId,
    /// Its number in the pool, below `pg_num`; or, before folding, an object's hash.
    pub ps: u32,
}

impl PgId {
    /// Pool and number.
    #[must_use]
    pub const fn new(pool: i64, ps: u32) -> Self {
        Self { pool: PoolId(pool), ps }
    }

    /// The number of hash bits that tell this PG's objects from its siblings', and the
    /// half-open range of bit-reversed hashes it holds, when the pool has `pg_num` PGs.
    /// The end is 2^32 for the last PG, hence u64.
    #[must_use]
    pub fn hash_range(&self, pg_num: u32) -> (u64, u64) {
        let mut bits = 32 - pg_num.max(1).saturating_sub(1).leading_zeros();
        // Where pg_num is no power of two, the PGs not yet split keep one bit less.
        if bits > 0 && self.ps & !(1u32.checked_shl(bits - 1).unwrap_or(0)) == self.ps {
            let twin = u64::from(self.ps) | 1 << (bits - 1);
            if twin >= u64::from(pg_num) {
                bits -= 1;
            }
        }
        let start = u64::from(reverse_bits(self.ps));
        (start, start + (1u64 << (32 - bits)))
    }
}

impl fmt::Display for PgId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:x}", self.pool, self.ps)
    }
}

impl fmt::Debug for PgId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PgId {
    type Err = &'static str;

    /// Reads `POOL.HEX`.
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        const WRONG: &str = "a PG is POOL.HEX, for example 3.1f";
        let (pool, ps) = s.split_once('.').ok_or(WRONG)?;
        let ps = u32::from_str_radix(ps, 16).map_err(|_| WRONG)?;
        Ok(Self::new(pool.parse().map_err(|_| WRONG)?, ps))
    }
}

impl Denc for PgId {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.u64(self.pool.0 as u64);
        w.u32(self.ps);
        w.i32(-1);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let v = r.u8()?;
        r.require(v >= 1, "pg_t is version 1 or later")?;
        let (pool, ps) = (r.u64()? as i64, r.u32()?);
        let _preferred = r.i32()?;
        Ok(Self::new(pool, ps))
    }
}

/// A PG and, in erasure-coded pools, which shard of it. The peer's `spg_t`, 1/1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpgId {
    /// The PG.
    pub pg: PgId,
    /// The shard; [`ShardId::NONE`] in replicated pools.
    pub shard: ShardId,
}

impl From<PgId> for SpgId {
    /// The one of a replicated pool.
    fn from(pg: PgId) -> Self {
        Self { pg, shard: ShardId::NONE }
    }
}

impl Default for SpgId {
    fn default() -> Self {
        Self { pg: PgId::default(), shard: ShardId::NONE }
    }
}

impl fmt::Display for SpgId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.pg)?;
        if self.shard == ShardId::NONE { Ok(()) } else { write!(f, "s{}", self.shard) }
    }
}

impl Denc for SpgId {
    fn encode(&self, w: &mut Writer) {
        w.framed(1, 1, |w| {
            self.pg.encode(w);
            self.shard.encode(w);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("spg_t", 1, |r, _| Ok(Self { pg: Denc::decode(r)?, shard: Denc::decode(r)? }))
    }
}

/// Names one client operation across resends. The peer's `osd_reqid_t`, 2/2: entity,
/// u64 tid, i32 inc.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReqId {
    /// Who asked.
    pub client: EntityId,
    /// The client's counter.
    pub tid: u64,
    /// The client's incarnation.
    pub inc: i32,
}

impl fmt::Display for ReqId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}:{}", self.client, self.inc, self.tid)
    }
}

impl Denc for ReqId {
    fn encode(&self, w: &mut Writer) {
        w.framed(2, 2, |w| {
            self.client.encode(w);
            w.u64(self.tid);
            w.i32(self.inc);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("osd_reqid_t", 2, |r, _| {
            Ok(Self { client: Denc::decode(r)?, tid: r.u64()?, inc: r.i32()? })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stable_mod;

    #[test]
    fn uuids_and_pgs_print_and_parse() {
        let s = "6b29fc40-ca47-1067-b31d-00dd010662da";
        assert_eq!(s.parse::<Uuid>().unwrap().to_string(), s);
        assert!("6b29fc40-ca47-1067-b31d".parse::<Uuid>().is_err());
        assert_eq!("3.1f".parse(), Ok(PgId::new(3, 0x1f)));
        assert_eq!(PgId::new(3, 0x1f).to_string(), "3.1f");
        assert!("3".parse::<PgId>().is_err());
    }

    /// The ranges of all PGs tile the hash space, and each holds exactly what folds to it.
    #[test]
    fn hash_ranges_tile() {
        for pg_num in 1..70u32 {
            let mut ranges: Vec<_> =
                (0..pg_num).map(|ps| PgId::new(1, ps).hash_range(pg_num)).collect();
            ranges.sort_unstable();
            assert_eq!(ranges[0].0, 0, "{pg_num}");
            assert!(ranges.windows(2).all(|w| w[0].1 == w[1].0), "{pg_num}");
            assert_eq!(ranges.last().unwrap().1, 1 << 32, "{pg_num}");
            for hash in (0..5000u32).map(|i| i.wrapping_mul(2_654_435_761)) {
                let (lo, hi) = PgId::new(1, stable_mod(hash, pg_num)).hash_range(pg_num);
                assert!((lo..hi).contains(&u64::from(reverse_bits(hash))), "{pg_num} {hash:x}");
            }
        }
    }
}
