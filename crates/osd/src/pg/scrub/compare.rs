//! Which of an object's copies count, and what is wrong with the others.
//!
//! A copy can be believed when it can be read and its record fits it. Of these the newest
//! version counts, and of different contents of one version the one that most copies have;
//! where as many have another, the primary's.
//!
//! Source: bits as in the peer's `librados::err_t`, `obj_err_t`.

use denc::{Denc, Features, Writer};
use maps::PgShard;
use messages::{LogKind, ScrubObject};
use types::{EVersion, HObject};

use crate::coding::Coding;
use crate::object::{INFO_ATTR, ObjectInfo};

/// What is wrong with one copy.
pub(crate) mod shard {
    pub const MISSING: u64 = 1 << 1;
    pub const STAT_ERR: u64 = 1 << 2;
    pub const READ_ERR: u64 = 1 << 3;
    pub const DATA_DIGEST: u64 = 1 << 9;
    pub const OMAP_DIGEST: u64 = 1 << 10;
    pub const SIZE: u64 = 1 << 11;
    pub const EC_HASH: u64 = 1 << 12;
    pub const INFO_MISSING: u64 = 1 << 14;
    pub const INFO_CORRUPTED: u64 = 1 << 15;
    pub const SNAPSET_CORRUPTED: u64 = 1 << 17;
    pub const OBJ_SIZE_INFO: u64 = 1 << 18;
    /// What only reading shows.
    pub const DEEP: u64 = READ_ERR | DATA_DIGEST | OMAP_DIGEST | EC_HASH;
    /// Bits and their names.
    pub const NAMES: [(u64, &str); 11] = [
        (MISSING, "missing"),
        (STAT_ERR, "stat_error"),
        (READ_ERR, "read_error"),
        (DATA_DIGEST, "data_digest_mismatch_info"),
        (OMAP_DIGEST, "omap_digest_mismatch_info"),
        (SIZE, "size_mismatch_info"),
        (EC_HASH, "ec_hash_mismatch"),
        (INFO_MISSING, "info_missing"),
        (INFO_CORRUPTED, "info_corrupted"),
        (SNAPSET_CORRUPTED, "snapset_corrupted"),
        (OBJ_SIZE_INFO, "obj_size_info_mismatch"),
    ];
}

/// How copies differ.
pub(crate) mod object {
    pub const INFO: u64 = 1 << 1;
    pub const DATA_DIGEST: u64 = 1 << 4;
    pub const OMAP_DIGEST: u64 = 1 << 5;
    pub const SIZE: u64 = 1 << 6;
    pub const ATTR_VALUE: u64 = 1 << 7;
    pub const ATTR_NAME: u64 = 1 << 8;
    /// What only reading shows.
    pub const DEEP: u64 = DATA_DIGEST | OMAP_DIGEST;
    /// Bits and their names.
    pub const NAMES: [(u64, &str); 6] = [
        (INFO, "object_info_inconsistency"),
        (DATA_DIGEST, "data_digest_mismatch"),
        (OMAP_DIGEST, "omap_digest_mismatch"),
        (SIZE, "size_mismatch"),
        (ATTR_VALUE, "attr_value_mismatch"),
        (ATTR_NAME, "attr_name_mismatch"),
    ];
}

/// The names of the bits that are set.
pub(crate) fn names(bits: u64, of: &[(u64, &'static str)]) -> String {
    let set: Vec<&str> = of.iter().filter(|(b, _)| bits & b != 0).map(|(_, n)| *n).collect();
    set.join("+")
}

/// One copy as it was found.
#[derive(Clone, Debug)]
pub(crate) struct Shard {
    pub osd: PgShard,
    pub errors: u64,
    /// How it differs from the copy that counts.
    pub differs: u64,
    pub object: Option<ScrubObject>,
    pub counts: bool,
}

impl Shard {
    pub fn is_bad(&self) -> bool {
        self.errors != 0 || self.differs != 0
    }

    /// Whether only reading shows it.
    pub fn is_deep(&self) -> bool {
        self.errors & !shard::DEEP == 0 && self.differs & !object::DEEP == 0
    }
}

/// An object whose copies are not all whole and equal.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub oid: HObject,
    /// How copies differ.
    pub errors: u64,
    pub shards: Vec<Shard>,
    /// The version that counts; `None` when no copy can be believed.
    pub version: Option<EVersion>,
    pub user_version: u64,
    /// The log says that the object was removed: copies of it are left over.
    pub surplus: bool,
}

impl Finding {
    pub fn bad(&self) -> impl Iterator<Item = &Shard> {
        self.shards.iter().filter(|s| s.is_bad())
    }

    /// Whether only reading shows it.
    pub fn is_deep(&self) -> bool {
        self.bad().all(Shard::is_deep)
    }
}

fn record(o: &ScrubObject) -> Option<Result<ObjectInfo, denc::DecodeError>> {
    let raw = o.attrs.iter().find(|(name, _)| name == INFO_ATTR)?;
    Some(ObjectInfo::from_bytes(&raw.1))
}

/// What is wrong with a copy by itself.
fn alone(o: Option<&ScrubObject>, coding: Option<&Coding>) -> (u64, Option<ObjectInfo>) {
    let Some(o) = o else { return (shard::MISSING, None) };
    let mut errors = 0;
    if o.stat_error {
        return (shard::STAT_ERR, None);
    }
    if o.read_error {
        errors |= shard::READ_ERR;
    }
    match record(o) {
        None => (errors | shard::INFO_MISSING, None),
        Some(Err(_)) => (errors | shard::INFO_CORRUPTED, None),
        Some(Ok(info)) => {
            let size = coding.map_or(info.size, |c| c.shard_size(info.size));
            if size != o.size {
                errors |= shard::OBJ_SIZE_INFO;
            }
            (errors, Some(info))
        }
    }
}

/// How `b` differs from `a`, which counts.
/// Shards of an erasure code have different data.
fn differences(a: &ScrubObject, b: &ScrubObject, coded: bool) -> u64 {
    let mut bits = 0;
    if a.size != b.size {
        bits |= object::SIZE;
    }
    if !coded && a.data.is_some() && b.data.is_some() && a.data != b.data {
        bits |= object::DATA_DIGEST;
    }
    if a.omap.is_some() && b.omap.is_some() && a.omap != b.omap {
        bits |= object::OMAP_DIGEST;
    }
    for (name, value) in &a.attrs {
        match b.attrs.iter().find(|(n, _)| n == name) {
            None => bits |= object::ATTR_NAME,
            Some((_, other)) if other != value => {
                bits |= if name == INFO_ATTR { object::INFO } else { object::ATTR_VALUE };
            }
            Some(_) => {}
        }
    }
    if b.attrs.iter().any(|(name, _)| !a.attrs.iter().any(|(n, _)| n == name)) {
        bits |= object::ATTR_NAME;
    }
    bits
}

/// What copies have, nothing wrong with any.
pub(crate) fn all_shards(copies: &[(PgShard, Option<&ScrubObject>)]) -> Vec<Shard> {
    let shard = |(osd, o): &(PgShard, Option<&ScrubObject>)| Shard {
        osd: *osd,
        errors: 0,
        differs: 0,
        object: (*o).cloned(),
        counts: false,
    };
    copies.iter().map(shard).collect()
}

/// Compares the copies of an object; `None` when all are whole and equal. `last` is what the
/// log says of it last.
pub(crate) fn compare(
    oid: &HObject,
    copies: &[(PgShard, Option<&ScrubObject>)],
    primary: PgShard,
    last: Option<LogKind>,
    coding: Option<&Coding>,
) -> Option<Finding> {
    let looked: Vec<(u64, Option<ObjectInfo>)> =
        copies.iter().map(|(_, o)| alone(*o, coding)).collect();
    let newest = looked
        .iter()
        .filter(|(errors, _)| *errors == 0)
        .filter_map(|(_, info)| info.as_ref())
        .map(|info| info.version)
        .max();
    // How many agree with a copy that may count.
    let votes = |at: usize| {
        let a = copies[at].1.expect("it has no errors");
        (0..copies.len())
            .filter(|i| looked[*i].0 == 0)
            .filter(|i| copies[*i].1.is_some_and(|b| differences(a, b, coding.is_some()) == 0))
            .count()
    };
    let auth = (0..copies.len())
        .filter(|i| looked[*i].0 == 0)
        .filter(|i| looked[*i].1.as_ref().map(|x| x.version) == newest)
        .max_by_key(|i| (votes(*i), copies[*i].0 == primary, std::cmp::Reverse(*i)));
    let surplus = last == Some(LogKind::Delete);
    let sure = auth.is_some_and(|a| votes(a) * 2 > copies.len());
    let mut f = Finding {
        oid: oid.clone(),
        errors: 0,
        shards: Vec::with_capacity(copies.len()),
        version: auth.and(newest),
        user_version: auth.and_then(|a| looked[a].1.as_ref()).map_or(0, |i| i.user_version),
        surplus,
    };
    for (i, (osd, o)) in copies.iter().enumerate() {
        let mut s = Shard {
            osd: *osd,
            errors: looked[i].0,
            differs: 0,
            object: (*o).cloned(),
            counts: auth == Some(i),
        };
        if let (Some(a), Some(o)) = (auth.and_then(|a| copies[a].1), *o)
            && !o.stat_error
        {
            s.differs = differences(a, o, coding.is_some());
            if s.differs & object::SIZE != 0 {
                s.errors |= shard::SIZE;
            }
            if sure && s.differs & object::DATA_DIGEST != 0 {
                s.errors |= shard::DATA_DIGEST;
            }
            if sure && s.differs & object::OMAP_DIGEST != 0 {
                s.errors |= shard::OMAP_DIGEST;
            }
        }
        if surplus && o.is_some() && s.errors == 0 {
            s.errors |= shard::INFO_CORRUPTED;
        }
        if surplus && o.is_none() {
            s.errors = 0;
        }
        f.errors |= s.differs;
        f.shards.push(s);
    }
    f.shards.iter().any(Shard::is_bad).then_some(f)
}

/// The record as the peer's tools read it.
fn peer_record(oid: &HObject, info: &ObjectInfo) -> maps::ObjectInfo {
    maps::ObjectInfo {
        soid: oid.clone(),
        version: info.version,
        size: info.size,
        mtime: info.mtime,
        truncate_seq: u64::from(info.truncate_seq),
        truncate_size: info.truncate_size,
        user_version: info.user_version,
        flags: maps::ObjectInfo::DIRTY | if info.omap { maps::ObjectInfo::OMAP } else { 0 },
        local_mtime: info.mtime,
        expected_object_size: info.expected_object_size,
        expected_write_size: info.expected_write_size,
        alloc_hint_flags: info.alloc_hint_flags,
        ..maps::ObjectInfo::default()
    }
}

impl Finding {
    /// The peer's `inconsistent_obj_t`, 2/2.
    pub fn encode(&self, primary: PgShard, features: Features) -> bytes::Bytes {
        let mut w = Writer::new(features);
        w.framed(2, 2, |w| {
            w.u64(self.errors);
            encode_object_id(w, &self.oid);
            w.u64(self.user_version);
            w.u32(self.shards.len() as u32);
            let mut union = 0;
            let mut shards: Vec<&Shard> = self.shards.iter().collect();
            shards.sort_by_key(|s| s.osd);
            for s in shards {
                union |= s.errors;
                w.framed(1, 1, |w| {
                    w.i32(s.osd.osd.0);
                    w.u8(s.osd.shard.0 as u8); // 255: no shard of an erasure code
                });
                s.encode(w, &self.oid, primary);
            }
            w.u64(union);
        });
        w.finish()
    }
}

impl Shard {
    /// The peer's `shard_info_t`, 3/3.
    fn encode(&self, w: &mut Writer, oid: &HObject, primary: PgShard) {
        w.framed(3, 3, |w| {
            w.u64(self.errors);
            w.bool(self.osd == primary);
            let Some(o) = self.object.as_ref().filter(|_| self.errors & shard::MISSING == 0) else {
                return;
            };
            w.seq(&o.attrs, |w, (name, value)| {
                w.blob(name);
                match (name == INFO_ATTR, ObjectInfo::from_bytes(value)) {
                    (true, Ok(info)) => {
                        let mut inner = Writer::new(w.features());
                        peer_record(oid, &info).encode(&mut inner);
                        w.blob(&inner.finish());
                    }
                    _ => w.blob(value),
                }
            });
            w.u64(o.size);
            w.bool(o.omap.is_some());
            w.u32(o.omap.map_or(0, |x| x.crc));
            w.bool(o.data.is_some());
            w.u32(o.data.unwrap_or(0));
            w.bool(self.counts);
        });
    }
}

/// The peer's `librados::object_id_t`, 1/1.
pub(crate) fn encode_object_id(w: &mut Writer, oid: &HObject) {
    w.framed(1, 1, |w| {
        w.blob(&oid.name);
        w.blob(&oid.nspace);
        w.blob(&oid.key);
        w.u64(oid.snap.0);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn osd(i: i32) -> PgShard {
        PgShard { osd: types::OsdId(i), shard: types::ShardId::NONE }
    }

    fn copy(version: u64, size: u64, data: u32) -> ScrubObject {
        let info = ObjectInfo { version: EVersion::new(1, version), size, ..ObjectInfo::default() };
        ScrubObject {
            size,
            attrs: vec![(Bytes::from_static(INFO_ATTR), info.to_bytes())],
            data: Some(data),
            ..ScrubObject::default()
        }
    }

    fn verdict(copies: &[Option<ScrubObject>], last: Option<LogKind>) -> Option<(Vec<i32>, i32)> {
        let all: Vec<(PgShard, Option<&ScrubObject>)> =
            copies.iter().enumerate().map(|(i, c)| (osd(i as i32), c.as_ref())).collect();
        let f = compare(&HObject::min(), &all, osd(0), last, None)?;
        let bad = f.bad().map(|s| s.osd.osd.0).collect();
        Some((bad, f.shards.iter().find(|s| s.counts).map_or(-1, |s| s.osd.osd.0)))
    }

    /// Who is believed: readable before unreadable, new before old, many before few, the
    /// primary before others; and who is bad.
    #[test]
    fn who_counts() {
        let (good, other, old) = (|| Some(copy(5, 9, 1)), || Some(copy(5, 9, 2)), copy(4, 9, 1));
        let torn = || Some(ScrubObject { read_error: true, data: None, ..copy(5, 9, 1) });
        let short = Some(ScrubObject { size: 3, ..copy(5, 9, 1) });
        assert_eq!(verdict(&[good(), good(), good()], None), None);
        assert_eq!(verdict(&[torn(), good(), good()], None), Some((vec![0], 1)));
        assert_eq!(verdict(&[good(), None, good()], None), Some((vec![1], 0)));
        assert_eq!(verdict(&[other(), good(), good()], None), Some((vec![0], 1)));
        assert_eq!(verdict(&[other(), good()], None), Some((vec![1], 0)));
        assert_eq!(verdict(&[Some(old), good()], None), Some((vec![0], 1)));
        assert_eq!(verdict(&[short, good()], None), Some((vec![0], 1)));
        assert_eq!(verdict(&[torn(), torn()], None), Some((vec![0, 1], -1)));
        assert_eq!(verdict(&[None, None, good()], None), Some((vec![0, 1], 2)));
        assert_eq!(verdict(&[None, None, good()], Some(LogKind::Delete)), Some((vec![2], 2)));
        assert_eq!(verdict(&[Some(ScrubObject::default()), good()], None), Some((vec![0], 1)));
    }

    /// Errors that a light scrub cannot see are told apart.
    #[test]
    fn deep_and_shallow() {
        let all = [copy(5, 9, 1), copy(5, 9, 2), copy(5, 9, 1)];
        let copies: Vec<_> = (0..3).map(|i| (osd(i), Some(&all[i as usize]))).collect();
        let f = compare(&HObject::min(), &copies, osd(0), None, None).unwrap();
        assert!(f.is_deep());
        assert_eq!(names(f.shards[1].errors, &shard::NAMES), "data_digest_mismatch_info");
        assert_eq!(names(f.errors, &object::NAMES), "data_digest_mismatch");
    }
}
