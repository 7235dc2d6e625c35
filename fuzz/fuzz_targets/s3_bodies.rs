//! XML bodies of S3: what is read comes back from what is written.
#![no_main]
use rgw_proto::acl::Acl;
use rgw_proto::authorize::PublicAccessBlock;
use rgw_proto::body::config::{self, Encryption, ObjectLock, Retention, Versioning};
use rgw_proto::body::{Delete, cors, lifecycle, parts, website::Website};
use rgw_proto::xml::Element;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if Element::parse(data).is_err() {
        return;
    }
    let _ = (Delete::parse(data), parts(data), config::location(data), Versioning::parse(data), PublicAccessBlock::parse(data));
    let _ = (ObjectLock::parse(data), Retention::parse(data), Encryption::parse(data), config::tags(data, 10), Acl::parse(data));
    // What XML cannot hold comes out as another character.
    let holds = |c: char| c >= ' ' && c != '\u{fffe}' && c != '\u{ffff}';
    if !std::str::from_utf8(data).is_ok_and(|t| !t.contains("&#") && t.chars().all(holds)) {
        return;
    }
    if let Ok(rules) = cors::parse(data) {
        assert_eq!(cors::parse(cors::to_xml(&rules).as_bytes()), Ok(rules));
    }
    if let Ok(site) = Website::parse(data) {
        assert_eq!(Website::parse(site.to_xml().as_bytes()), Ok(site));
    }
    if let Ok(rules) = lifecycle::parse(data) {
        assert!(lifecycle::parse(lifecycle::to_xml(&rules).as_bytes()).is_ok());
    }
});
