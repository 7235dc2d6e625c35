//! Names of RADOS objects.
//!
//! Source: `rgw_obj_types.h` (`get_oid`, `get_index_key`), `rgw_rados.cc` (`get_bucket_index_objects`,
//! `rgw_shards_mod`), `ceph_hash.cc`.

/// A key as it is named in RADOS and in the index: `rgw_obj_key`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawKey {
    /// The object's key.
    pub name: String,
    /// 32 characters of a version; empty for plain ones, and for `null`.
    pub instance: String,
    /// `multipart`, `shadow`; empty for most.
    pub ns: String,
}

impl RawKey {
    /// What follows `MARKER_` in the name of the RADOS object.
    #[must_use]
    pub fn oid(&self) -> String {
        let instance = if self.instance == "null" { "" } else { self.instance.as_str() };
        match (self.ns.is_empty(), instance.is_empty()) {
            (true, true) if self.name.starts_with('_') => format!("_{}", self.name),
            (true, true) => self.name.clone(),
            (false, true) => format!("_{}_{}", self.ns, self.name),
            (_, false) => format!("_{}:{instance}_{}", self.ns, self.name),
        }
    }

    /// The name of the RADOS object, and the locator by which it is placed where that is another.
    #[must_use]
    pub fn object(&self, marker: &str) -> (String, Option<String>) {
        let oid = format!("{marker}_{}", self.oid());
        let escaped = self.ns.is_empty() && self.instance.is_empty() && self.name.starts_with('_');
        (oid, escaped.then(|| format!("{marker}_{}", self.name)))
    }

    /// The name in the bucket's index, without the version.
    #[must_use]
    pub fn index_name(&self) -> String {
        match self.ns.as_str() {
            "" if self.name.starts_with('_') => format!("_{}", self.name),
            "" => self.name.clone(),
            ns => format!("_{ns}_{}", self.name),
        }
    }
}

/// Linux's hash of names, which upstream chooses shards by: `ceph_str_hash_linux`.
#[must_use]
pub fn linux_hash(text: &[u8]) -> u32 {
    text.iter().fold(0u32, |hash, &byte| {
        let byte = u32::from(byte);
        hash.wrapping_add((byte << 4).wrapping_add(byte >> 4)).wrapping_mul(11)
    })
}

/// The largest prime below 8,192; with more shards than that, [`PRIME_LARGE`].
const PRIME: u32 = 7_877;
const PRIME_LARGE: u32 = 65_521;

/// The shard of a key's index, of `shards`.
///
/// `key` is the object's key, also for its versions and for parts of uploads.
#[must_use]
pub fn shard_of(key: &str, shards: u32) -> u32 {
    assert!(shards > 0, "an index has a shard");
    let hash = linux_hash(key.as_bytes());
    let hash = hash ^ ((hash & 0xff) << 24);
    if shards <= PRIME { hash % PRIME % shards } else { hash % PRIME_LARGE % shards }
}

/// The name of an index shard's RADOS object. With no shards (`None`) it is that of old buckets.
#[must_use]
pub fn index_object(bucket_id: &str, generation: u64, shard: Option<u32>) -> String {
    match (generation, shard) {
        (_, None) => format!(".dir.{bucket_id}"),
        (0, Some(shard)) => format!(".dir.{bucket_id}.{shard}"),
        (generation, Some(shard)) => format!(".dir.{bucket_id}.{generation}.{shard}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(ns: &str, name: &str, instance: &str) -> RawKey {
        RawKey { name: name.into(), instance: instance.into(), ns: ns.into() }
    }

    /// The table of names that a stock gateway was seen to use.
    #[test]
    fn names_of_objects() {
        for (key, oid, index) in [
            (key("", "a", ""), "a", "a"),
            (key("", "a", "null"), "a", "a"),
            (key("", "_a", ""), "__a", "__a"),
            (key("", "a", "V"), "_:V_a", "a"),
            (key("multipart", "a.2~x.1", ""), "_multipart_a.2~x.1", "_multipart_a.2~x.1"),
            (key("shadow", ".R_1", ""), "_shadow_.R_1", "_shadow_.R_1"),
            (key("ns", "a", "V"), "_ns:V_a", "_ns_a"),
        ] {
            assert_eq!((key.oid().as_str(), key.index_name().as_str()), (oid, index));
        }
        assert_eq!(key("", "_a", "").object("m"), ("m___a".into(), Some("m__a".into())));
        assert_eq!(key("", "a", "").object("m"), ("m_a".into(), None));
        assert_eq!(index_object("b", 0, Some(3)), ".dir.b.3");
        assert_eq!(index_object("b", 2, Some(3)), ".dir.b.2.3");
        assert_eq!(index_object("b", 0, None), ".dir.b");
    }
}
