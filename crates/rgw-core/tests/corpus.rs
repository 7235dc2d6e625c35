//! Structs that releases 16 to 20 encoded: read, and written again byte for byte where they are of today's version.
//!
//! `ARGONAUT_CORPUS` names the unpacked corpus: `RELEASE/objects/TYPE/HASH`.

use std::path::Path;

use rgw_core::formats as f;
use types::{Denc, Reader};

/// Reads all objects of a type; how many. Those whose bytes hold older structs are not written again.
fn check<T: Denc + PartialEq + std::fmt::Debug>(
    release: &Path,
    name: &str,
    is_old: fn(&Path, &[u8]) -> bool,
) -> usize {
    let Ok(dir) = std::fs::read_dir(release.join("objects").join(name)) else { return 0 };
    let mut n = 0;
    for entry in dir {
        let path = entry.unwrap().path();
        let raw = std::fs::read(&path).unwrap();
        let mut r = Reader::new(&raw);
        let value = T::decode(&mut r).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert_eq!(r.left(), 0, "{}: bytes are left", path.display());
        let again = value.to_bytes();
        if is_old(release, &raw) {
            assert_eq!(T::from_bytes(&again).unwrap(), value, "{}", path.display());
        } else {
            assert_eq!(again, raw, "{}", path.display());
        }
        for cut in 0..raw.len().min(600) {
            let _ = T::decode(&mut Reader::new(&raw[..cut]));
        }
        n += 1;
    }
    n
}

fn never(_: &Path, _: &[u8]) -> bool {
    false
}

/// Written by a version before the one that is written now.
fn before<const N: u8>(_: &Path, raw: &[u8]) -> bool {
    raw[0] < N
}

/// Of another version than the one that is written: also a later one, whose further fields are not kept.
fn other_than<const N: u8>(_: &Path, raw: &[u8]) -> bool {
    raw[0] != N
}

/// Topics hold destinations of version 7 in release 19 and 20.2 alone.
fn not_19(release: &Path, _: &[u8]) -> bool {
    !release.file_name().is_some_and(|name| name.to_string_lossy().starts_with("19"))
}

/// Its layout and index came to today's versions in release 20.
fn before_20(release: &Path, _: &[u8]) -> bool {
    !release.file_name().is_some_and(|name| name.to_string_lossy().starts_with("20"))
}

#[test]
fn corpus() {
    let Some(corpus) = std::env::var_os("ARGONAUT_CORPUS") else {
        eprintln!("skipped: ARGONAUT_CORPUS does not name the unpacked object corpus");
        return;
    };
    let mut total = 0;
    for release in std::fs::read_dir(&corpus).expect("the corpus can be read") {
        let release = release.unwrap().path();
        let r = release.as_path();
        if !r.join("objects").is_dir() {
            continue;
        }
        let counts = [
            check::<f::UserId>(r, "rgw_user", before::<2>),
            check::<f::AccessKey>(r, "RGWAccessKey", before::<4>),
            check::<f::SubUser>(r, "RGWSubUser", never),
            check::<f::Caps>(r, "RGWUserCaps", never),
            check::<f::Quota>(r, "RGWQuotaInfo", never),
            check::<f::UserInfo>(r, "RGWUserInfo", before::<23>),
            check::<f::AccountInfo>(r, "RGWAccountInfo", before::<2>),
            check::<f::Pool>(r, "rgw_pool", never),
            check::<f::Bucket>(r, "rgw_bucket", never),
            check::<f::EntryPoint>(r, "RGWBucketEntryPoint", never),
            check::<f::BucketInfo>(r, "RGWBucketInfo", before_20),
            check::<f::Destination>(r, "rgw_pubsub_dest", other_than::<7>),
            check::<f::Topic>(r, "rgw_pubsub_topic", not_19),
            check::<f::BucketTopic>(r, "rgw_pubsub_topic_filter", not_19),
            check::<f::StoredFilter>(r, "rgw_s3_filter", never),
            check::<f::ObjectLock>(r, "RGWObjectLock", never),
            check::<f::GranteeType>(r, "ACLGranteeType", never),
            check::<f::AclGrant>(r, "ACLGrant", never),
            check::<f::AclOwner>(r, "ACLOwner", never),
            check::<f::AclList>(r, "RGWAccessControlList", never),
            check::<f::AclPolicy>(r, "RGWAccessControlPolicy", never),
            check::<f::ObjectName>(r, "rgw_obj", never),
            check::<f::ManifestPart>(r, "RGWObjManifestPart", never),
            check::<f::ManifestRule>(r, "RGWObjManifestRule", never),
            check::<f::Manifest>(r, "RGWObjManifest", before::<8>),
        ];
        let small = [
            check::<f::ObjectTags>(r, "RGWObjTags", never),
            check::<f::ObjectRetention>(r, "RGWObjectRetention", before::<2>),
            check::<f::LegalHold>(r, "RGWObjectLegalHold", never),
            check::<f::OlhInfo>(r, "RGWOLHInfo", never),
            check::<f::OlhPending>(r, "RGWOLHPendingInfo", never),
            check::<f::NamedId>(r, "RGWNameToId", never),
            check::<f::NamedId>(r, "RGWDefaultSystemMetaObjInfo", never),
            check::<f::LatestEpoch>(r, "RGWPeriodLatestEpochInfo", never),
            check::<f::Realm>(r, "RGWRealm", never),
        ];
        assert!(small.iter().filter(|n| **n > 0).count() >= 4, "{}: {small:?}", r.display());
        total += small.iter().sum::<usize>();
        let sum: usize = counts.iter().sum();
        assert!(counts.iter().filter(|n| **n > 0).count() >= 15, "{}: {counts:?}", r.display());
        total += sum;
    }
    println!("{total} objects");
    assert!(total > 300, "{total} objects");
}
