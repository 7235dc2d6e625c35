//! Keys of the ordered store: byte strings whose order is the order of what they name.
//!
//! | first byte | then | value |
//! |---|---|---|
//! | `C` | collection, encoded | u32 id |
//! | `D` | omap id, u64 big-endian | empty: this omap is dead, its keys may be dropped |
//! | `E` | collection id, u32 big-endian | empty: this collection is dead, and being swept |
//! | `M` | omap id, u64 big-endian; 0, or 1 and the user's key | omap header; omap value |
//! | `O` | collection id, u32 big-endian; the object in listing order | onode |
//! | `P` | collection id, u32 big-endian; the caller's key | the caller's value |
//! | `R` | checkpoint, u64 big-endian; index, u32 big-endian | u64 block: to be released from shared use |
//! | `S` | block / 64, u64 big-endian | u32 references of each of 64 blocks; 0 is not shared |

use std::ops::Bound;

use bytes::Bytes;
use types::{HObject, PgId, PoolId, ShardId, SnapId, SpgId};

use crate::Coll;

pub(crate) use crate::key::Key;

pub(crate) const COLL: u8 = b'C';
pub(crate) const DEAD: u8 = b'D';
pub(crate) const DEAD_COLL: u8 = b'E';
pub(crate) const OMAP: u8 = b'M';
pub(crate) const ONODE: u8 = b'O';
pub(crate) const COLL_KEY: u8 = b'P';
pub(crate) const RELEASE: u8 = b'R';
pub(crate) const SHARED: u8 = b'S';

/// All onodes.
pub(crate) const ONODES: (Bound<&[u8]>, Bound<&[u8]>) =
    (Bound::Included(&[ONODE]), Bound::Excluded(&[ONODE + 1]));

pub(crate) fn coll(c: Coll) -> Key {
    let mut k = vec![COLL];
    match c {
        Coll::Meta => k.push(0),
        Coll::Pg(SpgId { pg, shard }) => {
            k.push(1);
            k.extend_from_slice(&pg.pool.0.to_be_bytes());
            k.extend_from_slice(&pg.ps.to_be_bytes());
            k.push(shard.0 as u8);
        }
    }
    k.into()
}

pub(crate) fn parse_coll(k: &[u8]) -> Option<Coll> {
    match *k.get(1)? {
        0 if k.len() == 2 => Some(Coll::Meta),
        1 if k.len() == 15 => {
            let pool = i64::from_be_bytes(k[2..10].try_into().ok()?);
            let ps = u32::from_be_bytes(k[10..14].try_into().ok()?);
            let pg = PgId { pool: PoolId(pool), ps };
            Some(Coll::Pg(SpgId { pg, shard: ShardId(k[14] as i8) }))
        }
        _ => None,
    }
}

fn with_u64(first: u8, n: u64) -> Vec<u8> {
    let mut k = Vec::with_capacity(32);
    k.push(first);
    k.extend_from_slice(&n.to_be_bytes());
    k
}

pub(crate) fn numbered(first: u8, n: u64) -> Key {
    with_u64(first, n).into()
}

/// A block that checkpoint `ckpt` took out of shared use.
pub(crate) fn release(ckpt: u64, index: u32) -> Key {
    let mut k = with_u64(RELEASE, ckpt);
    k.extend_from_slice(&index.to_be_bytes());
    k.into()
}

/// Checkpoint and index of a key made by [`release`].
pub(crate) fn parse_release(k: &[u8]) -> Option<(u64, u32)> {
    let index = u32::from_be_bytes(k.get(9..13)?.try_into().ok()?);
    Some((number(k)?, index))
}

/// The number in a key made by [`numbered`].
pub(crate) fn number(k: &[u8]) -> Option<u64> {
    k.get(1..9).map(|raw| u64::from_be_bytes(raw.try_into().expect("eight bytes")))
}

pub(crate) fn omap_header(id: u64) -> Key {
    let mut k = with_u64(OMAP, id);
    k.push(0);
    k.into()
}

pub(crate) fn omap(id: u64, key: &[u8]) -> Key {
    let mut k = Vec::with_capacity(10 + key.len());
    k.push(OMAP);
    k.extend_from_slice(&id.to_be_bytes());
    k.push(1);
    k.extend_from_slice(key);
    k.into()
}

/// Behind the last key of that omap.
pub(crate) fn omap_end(id: u64) -> Key {
    let mut k = with_u64(OMAP, id);
    k.push(2);
    k.into()
}

/// Bytes of an omap key before the user's.
pub(crate) const OMAP_PREFIX: usize = 10;

/// Bytes of a collection's or object's key before the caller's.
pub(crate) const COLL_PREFIX: usize = 5;

fn in_coll(first: u8, id: u32, capacity: usize) -> Vec<u8> {
    let mut k = Vec::with_capacity(5 + capacity);
    k.push(first);
    k.extend_from_slice(&id.to_be_bytes());
    k
}

pub(crate) fn coll_key(id: u32, key: &[u8]) -> Key {
    let mut k = in_coll(COLL_KEY, id, key.len());
    k.extend_from_slice(key);
    k.into()
}

/// The mark of a dead collection.
pub(crate) fn dead_coll(id: u32) -> Key {
    in_coll(DEAD_COLL, id, 0).into()
}

/// The collection's number in a key of an object or a collection's, or a mark; `None` in others.
pub(crate) fn coll_id(k: &[u8]) -> Option<u32> {
    let raw = match *k.first()? {
        ONODE | COLL_KEY | DEAD_COLL => k.get(1..COLL_PREFIX)?,
        _ => return None,
    };
    Some(u32::from_be_bytes(raw.try_into().expect("four bytes")))
}

/// Before the first key of kind `first` in the collection.
pub(crate) fn coll_start(first: u8, id: u32) -> Key {
    in_coll(first, id, 0).into()
}

/// The first key of kind `first` in the collection after `id`.
pub(crate) fn coll_end(first: u8, id: u32) -> Key {
    match id.checked_add(1) {
        Some(next) => in_coll(first, next, 0).into(),
        None => vec![first + 1].into(),
    }
}

/// Bytes, ended so that a shorter one sorts before its continuations: 0 becomes 0 255, and
/// 0 1 ends.
fn put_escaped(k: &mut Vec<u8>, mut bytes: &[u8]) {
    while let Some(at) = bytes.iter().position(|b| *b == 0) {
        k.extend_from_slice(&bytes[..=at]);
        k.push(255);
        bytes = &bytes[at + 1..];
    }
    k.extend_from_slice(bytes);
    k.extend_from_slice(&[0, 1]);
}

fn get_escaped(k: &mut &[u8]) -> Option<Bytes> {
    let mut out = Vec::new();
    loop {
        let at = k.iter().position(|b| *b == 0)?;
        out.extend_from_slice(&k[..at]);
        let mark = *k.get(at + 1)?;
        *k = &k[at + 2..];
        match mark {
            1 => return Some(out.into()),
            255 => out.push(0),
            _ => return None,
        }
    }
}

pub(crate) fn onode(coll: u32, o: &HObject) -> Key {
    let mut k = in_coll(ONODE, coll, 48 + o.nspace.len() + o.key.len() + o.name.len());
    if o.max {
        k.push(1);
        return k.into();
    }
    k.push(0);
    k.extend_from_slice(&(o.pool.0 as u64 ^ 1 << 63).to_be_bytes());
    k.extend_from_slice(&o.hash.reverse_bits().to_be_bytes());
    put_escaped(&mut k, &o.nspace);
    put_escaped(&mut k, o.effective_key());
    put_escaped(&mut k, &o.name);
    k.extend_from_slice(&o.snap.0.to_be_bytes());
    k.extend_from_slice(&o.key);
    k.into()
}

/// The object in a key made by [`onode`].
pub(crate) fn parse_onode(k: &[u8]) -> Option<HObject> {
    let mut k = k.get(COLL_PREFIX..)?;
    if *k.first()? != 0 {
        return None;
    }
    let pool = (u64::from_be_bytes(k.get(1..9)?.try_into().ok()?) ^ 1 << 63) as i64;
    let hash = u32::from_be_bytes(k.get(9..13)?.try_into().ok()?).reverse_bits();
    k = &k[13..];
    let nspace = get_escaped(&mut k)?;
    let _effective = get_escaped(&mut k)?;
    let name = get_escaped(&mut k)?;
    let snap = SnapId(u64::from_be_bytes(k.get(..8)?.try_into().ok()?));
    let key = Bytes::copy_from_slice(&k[8..]);
    Some(HObject { pool: PoolId(pool), hash, nspace, key, name, snap, max: false })
}

/// The pool of the object in a key made by [`onode`].
pub(crate) fn pool(key: &[u8]) -> i64 {
    let raw = key.get(COLL_PREFIX + 1..COLL_PREFIX + 9);
    let raw = raw.map_or([0; 8], |raw| raw.try_into().expect("eight bytes"));
    (u64::from_be_bytes(raw) ^ 1 << 63) as i64
}

/// An object's key with another collection.
pub(crate) fn moved(key: &[u8], coll: u32) -> Key {
    let mut k = in_coll(ONODE, coll, key.len());
    k.extend_from_slice(&key[COLL_PREFIX..]);
    k.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name() -> impl Strategy<Value = Bytes> {
        prop::collection::vec(prop_oneof![0u8..3, 254u8.., Just(b'a')], 0..4).prop_map(Bytes::from)
    }

    fn object() -> impl Strategy<Value = HObject> {
        (-2i64..3, 0u32..4, name(), name(), name(), 0u64..3).prop_map(
            |(pool, hash, nspace, key, name, snap)| HObject {
                pool: PoolId(pool),
                hash: hash << 30 | hash,
                nspace,
                key,
                name,
                snap: if snap == 2 { SnapId::HEAD } else { SnapId(snap) },
                max: false,
            },
        )
    }

    proptest! {
        /// Keys sort as their objects do, and give them back.
        #[test]
        fn order_is_kept(a in object(), b in object()) {
            let (ka, kb) = (onode(7, &a), onode(7, &b));
            prop_assert_eq!(ka.cmp(&kb), a.cmp(&b));
            prop_assert_eq!(parse_onode(&ka), Some(a));
            prop_assert!(kb < onode(7, &HObject::max()) && kb < coll_end(ONODE, 7));
            prop_assert!(kb > onode(7, &HObject::min()));
        }
    }
}
