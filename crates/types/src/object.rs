//! Objects: their names, hashes and order.

use std::cmp::Ordering;
use std::fmt;

use denc::{Bytes, DecodeError, Denc, Reader, Writer};

use crate::{PoolId, SnapId};

/// The name hash of pools with `object_hash = rjenkins`: Jenkins' lookup2, by bytes.
///
/// Source: the peer's `ceph_str_hash_rjenkins`; checked against live placement.
#[must_use]
pub fn str_hash(name: &[u8]) -> u32 {
    let word = |k: &[u8]| k.iter().rev().fold(0u32, |acc, b| acc << 8 | u32::from(*b));
    let (mut a, mut b, mut c) = (0x9e37_79b9u32, 0x9e37_79b9u32, 0u32);
    let mut blocks = name.chunks_exact(12);
    for k in &mut blocks {
        a = a.wrapping_add(word(&k[0..4]));
        b = b.wrapping_add(word(&k[4..8]));
        c = c.wrapping_add(word(&k[8..12]));
        mix(&mut a, &mut b, &mut c);
    }
    let k = blocks.remainder();
    c = c.wrapping_add(name.len() as u32);
    if k.len() > 8 {
        c = c.wrapping_add(word(&k[8..]) << 8); // the lowest byte holds the length
    }
    if k.len() > 4 {
        b = b.wrapping_add(word(&k[4..k.len().min(8)]));
    }
    a = a.wrapping_add(word(&k[..k.len().min(4)]));
    mix(&mut a, &mut b, &mut c);
    c
}

fn mix(a: &mut u32, b: &mut u32, c: &mut u32) {
    let step = |x: &mut u32, y: u32, z: u32, s: u32| *x = x.wrapping_sub(y).wrapping_sub(z) ^ s;
    step(a, *b, *c, *c >> 13);
    step(b, *c, *a, *a << 8);
    step(c, *a, *b, *b >> 13);
    step(a, *b, *c, *c >> 12);
    step(b, *c, *a, *a << 16);
    step(c, *a, *b, *b >> 5);
    step(a, *b, *c, *c >> 3);
    step(b, *c, *a, *a << 10);
    step(c, *a, *b, *b >> 15);
}

/// Folds a hash to one of `n` PGs so that growing `n` splits PGs and moves nothing else.
///
/// Source: the peer's `ceph_stable_mod`.
#[must_use]
pub fn stable_mod(x: u32, n: u32) -> u32 {
    let mask = n.max(1).checked_next_power_of_two().map_or(u32::MAX, |p| p - 1);
    if x & mask < n { x & mask } else { x & mask >> 1 }
}

/// The bits of a hash in the order in which collections are listed.
#[must_use]
pub const fn reverse_bits(hash: u32) -> u32 {
    hash.reverse_bits()
}

/// An object or one of its snapshots, in listing order. The peer's `hobject_t`, 4/3.
///
/// Order: `max` last; then pool, bit-reversed hash, namespace, key (or name where the key
/// is empty), name, snapshot.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct HObject {
    /// Its pool; `i64::MIN` in the smallest value.
    pub pool: PoolId,
    /// Hash of namespace and name (or key).
    pub hash: u32,
    /// Namespace; empty is the default one.
    pub nspace: Bytes,
    /// Locator key; empty means the name is hashed.
    pub key: Bytes,
    /// The name.
    pub name: Bytes,
    /// Which snapshot; [`SnapId::HEAD`] for the object itself.
    pub snap: SnapId,
    /// Beyond every object.
    pub max: bool,
}

impl HObject {
    /// The smallest value; also what "no object" looks like on the wire.
    #[must_use]
    pub const fn min() -> Self {
        Self {
            pool: PoolId(i64::MIN),
            hash: 0,
            nspace: Bytes::new(),
            key: Bytes::new(),
            name: Bytes::new(),
            snap: SnapId(0),
            max: false,
        }
    }

    /// Beyond every object.
    #[must_use]
    pub fn max() -> Self {
        Self { max: true, ..Self::min() }
    }

    /// The head object of that name.
    #[must_use]
    pub fn head(pool: PoolId, nspace: Bytes, key: Bytes, name: Bytes) -> Self {
        let hash = Self::hash_of(&nspace, if key.is_empty() { &name } else { &key });
        Self { pool, hash, nspace, key, name, snap: SnapId::HEAD, max: false }
    }

    /// What places an object: the hash of `nspace ‖ 0x1f ‖ key`, or of `key` alone in the
    /// default namespace.
    #[must_use]
    pub fn hash_of(nspace: &[u8], key: &[u8]) -> u32 {
        if nspace.is_empty() {
            return str_hash(key);
        }
        let mut buf = Vec::with_capacity(nspace.len() + 1 + key.len());
        buf.extend_from_slice(nspace);
        buf.push(0x1f);
        buf.extend_from_slice(key);
        str_hash(&buf)
    }

    /// Whether it is the object itself.
    #[must_use]
    pub fn is_head(&self) -> bool {
        self.snap == SnapId::HEAD
    }

    /// The same object with another snapshot id.
    #[must_use]
    pub fn with_snap(&self, snap: SnapId) -> Self {
        Self { snap, ..self.clone() }
    }

    /// The effective key: what sorts, `key` or the name.
    #[must_use]
    pub fn effective_key(&self) -> &Bytes {
        if self.key.is_empty() { &self.name } else { &self.key }
    }

    /// A copy that shares no memory with the message it came from, for keeping.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self {
            nspace: Bytes::copy_from_slice(&self.nspace),
            key: Bytes::copy_from_slice(&self.key),
            name: Bytes::copy_from_slice(&self.name),
            ..*self
        }
    }
}

impl Default for HObject {
    fn default() -> Self {
        Self::min()
    }
}

impl Ord for HObject {
    fn cmp(&self, other: &Self) -> Ordering {
        self.max
            .cmp(&other.max)
            .then_with(|| self.pool.cmp(&other.pool))
            .then_with(|| reverse_bits(self.hash).cmp(&reverse_bits(other.hash)))
            .then_with(|| self.nspace.cmp(&other.nspace))
            .then_with(|| self.effective_key().cmp(other.effective_key()))
            .then_with(|| self.name.cmp(&other.name))
            .then_with(|| self.snap.cmp(&other.snap))
            // Keeps `cmp` equal to `eq`: a key that repeats the name is another value.
            .then_with(|| self.key.cmp(&other.key))
    }
}

impl PartialOrd for HObject {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// `pool:reversed-hash:nspace:key:name:snap`, as the peer logs objects.
impl fmt::Display for HObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.max {
            return f.write_str("MAX");
        }
        if *self == Self::min() {
            return f.write_str("MIN");
        }
        write!(
            f,
            "{}:{:08x}:{}:{}:{}:",
            self.pool,
            reverse_bits(self.hash),
            self.nspace.escape_ascii(),
            self.key.escape_ascii(),
            self.name.escape_ascii()
        )?;
        match self.snap {
            SnapId::HEAD => f.write_str("head"),
            SnapId::DIR => f.write_str("snapdir"),
            SnapId(s) => write!(f, "{s:x}"),
        }
    }
}

impl fmt::Debug for HObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Denc for HObject {
    fn encode(&self, w: &mut Writer) {
        w.framed(4, 3, |w| {
            w.blob(&self.key);
            w.blob(&self.name);
            self.snap.encode(w);
            w.u32(self.hash);
            w.bool(self.max);
            w.blob(&self.nspace);
            self.pool.encode(w);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("hobject_t", 4, |r, v| {
            let key = r.blob()?;
            let name = r.blob()?;
            let snap = SnapId::decode(r)?;
            let hash = r.u32()?;
            let max = r.bool()?;
            let (nspace, pool) =
                if v >= 4 { (r.blob()?, PoolId::decode(r)?) } else { (Bytes::new(), PoolId(-1)) };
            Ok(Self { pool, hash, nspace, key, name, snap, max })
        })
    }
}

/// Which pool an object is in and what is hashed to place it; part of `MOSDOp`.
///
/// Wire: `ENCODE_START(6, 3)`; v5 added `nspace`, v6 added `hash`. A set `hash` raises
/// compat to 6: an older reader would skip it and go to the wrong PG.
/// Source: the peer's `object_locator_t`; vectors in `vectors/types/object_locator_t/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectLocator {
    /// The pool; -1 when unset.
    pub pool: PoolId,
    /// Hashed in place of the object name; empty means "hash the name".
    pub key: Bytes,
    /// Namespace.
    pub nspace: Bytes,
    /// The placement hash itself; -1 means "hash `key` or the name". Never with `key`.
    pub hash: i64,
}

impl Default for ObjectLocator {
    fn default() -> Self {
        Self { pool: PoolId(-1), key: Bytes::new(), nspace: Bytes::new(), hash: -1 }
    }
}

impl Denc for ObjectLocator {
    fn encode(&self, w: &mut Writer) {
        assert!(self.hash == -1 || self.key.is_empty(), "hash and key exclude each other");
        w.framed(6, if self.hash == -1 { 3 } else { 6 }, |w| {
            self.pool.encode(w);
            w.i32(-1); // preferred OSD: long without meaning, still on the wire
            w.blob(&self.key);
            w.blob(&self.nspace);
            w.i64(self.hash);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("object_locator_t", 6, |r, v| {
            let pool = PoolId::decode(r)?;
            let _preferred = r.i32()?;
            let key = r.blob()?;
            let nspace = if v >= 5 { r.blob()? } else { Bytes::new() };
            let hash = if v >= 6 { r.i64()? } else { -1 };
            r.require(hash == -1 || key.is_empty(), "hash and key exclude each other")?;
            Ok(Self { pool, key, nspace, hash })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hashes seen on live 16.2.15 clusters.
    #[test]
    fn golden_hashes() {
        assert_eq!(str_hash(b"w1"), 0xe1ce_0e07);
        assert_eq!(str_hash(b"a"), 0x29ee_c818);
        assert_eq!(str_hash(b"rbd_header.abc"), 0x913a_bdc2);
        assert_eq!(str_hash(b"xxxxxxxxxxxx"), 0x665d_9c6e);
        assert_eq!(str_hash(b"xxxxxxxxxxxxx"), 0xe0f3_b364);
        assert_eq!(stable_mod(0xe1ce_0e07, 8), 7);
        assert_eq!(stable_mod(7, 6), 3);
    }

    #[test]
    fn ordered_by_reversed_hash() {
        let at = |hash| HObject { hash, pool: PoolId(1), ..HObject::min() };
        assert!(at(0x8000_0000) < at(1));
        assert!(HObject::min() < at(0) && at(!0) < HObject::max());
        let x = HObject::head(PoolId(1), Bytes::new(), Bytes::new(), Bytes::from_static(b"w1"));
        assert_eq!(HObject::from_bytes(&x.to_bytes()), Ok(x.clone()));
        assert_eq!(x.to_string(), "1:e0707387:::w1:head");
    }
}
