//! Objects that releases 16 to 20 encoded: read, and written again byte for byte.
//!
//! `ARGONAUT_CORPUS` names the unpacked corpus: `RELEASE/objects/TYPE/HASH`.

use std::path::Path;

use auth::proto::*;
use auth::{CryptoKey, EntityAuth, KeyServer, MonCap};
use denc::{Denc, Reader};

/// Reads every object of a type; how many, and the first that was written differently.
fn check<T: Denc>(release: &Path, name: &str, rewritten: fn(&[u8]) -> bool) -> usize {
    let Ok(dir) = std::fs::read_dir(release.join("objects").join(name)) else { return 0 };
    let mut n = 0;
    for entry in dir {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        let mut r = Reader::new(&bytes);
        let value = T::decode(&mut r).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert_eq!(r.left(), 0, "{}: bytes are left", path.display());
        if !rewritten(&bytes) {
            assert_eq!(value.to_bytes(), bytes, "{}", path.display());
        }
        // Cut short anywhere: refused or read, never a panic.
        for cut in 0..bytes.len() {
            let _ = T::decode(&mut Reader::new(&bytes[..cut]));
        }
        n += 1;
    }
    n
}

#[test]
fn corpus() {
    let Some(corpus) = std::env::var_os("ARGONAUT_CORPUS") else {
        eprintln!("skipped: ARGONAUT_CORPUS does not name the unpacked object corpus");
        return;
    };
    let never = |_: &[u8]| false;
    let mut total = 0;
    for release in std::fs::read_dir(&corpus).expect("the corpus can be read") {
        let release = release.unwrap().path();
        let r = release.as_path();
        if !r.join("objects").is_dir() {
            continue;
        }
        let counts = [
            check::<CapsInfo>(r, "AuthCapsInfo", never),
            check::<AuthTicket>(r, "AuthTicket", never),
            check::<Authenticate>(r, "CephXAuthenticate", never),
            // v1 has no challenge; it is written as v2.
            check::<Authorize>(r, "CephXAuthorize", |b| b[0] < 2),
            check::<AuthorizeChallenge>(r, "CephXAuthorizeChallenge", never),
            check::<AuthorizeReply>(r, "CephXAuthorizeReply", never),
            check::<(u64, u64)>(r, "CephXChallengeBlob", never),
            check::<u16>(r, "CephXRequestHeader", never),
            check::<ResponseHeader>(r, "CephXResponseHeader", never),
            check::<ServerChallenge>(r, "CephXServerChallenge", never),
            check::<ServiceTicket>(r, "CephXServiceTicket", never),
            check::<TicketInfo>(r, "CephXServiceTicketInfo", never),
            check::<ServiceTicketRequest>(r, "CephXServiceTicketRequest", never),
            check::<TicketBlob>(r, "CephXTicketBlob", never),
            check::<CryptoKey>(r, "CryptoKey", never),
            check::<EntityAuth>(r, "EntityAuth", |b| b[0] < 3),
            check::<ExpiringKey>(r, "ExpiringCryptoKey", never),
            check::<KeyServer>(r, "KeyServerData", has_old_entities),
            check::<KeyServer>(r, "KeyServer", has_old_entities),
            check::<RotatingSecrets>(r, "RotatingSecrets", never),
            check::<MonCap>(r, "MonCap", never),
            check::<types::MdsMatch>(r, "MDSCapMatch", never),
            check::<types::MdsCapAuth>(r, "MDSCapAuth", never),
        ];
        total += counts.iter().sum::<usize>();
    }
    assert!(total > 100, "only {total} objects found in {}", Path::new(&corpus).display());
    eprintln!("{total} objects");
}

/// Whether entities were written as v2, without a pending key.
fn has_old_entities(bytes: &[u8]) -> bool {
    // version 1, u64, u64, count, then kind, id and the first entity's version
    let at = 21 + 4;
    let Some(len) = bytes.get(at..at + 4) else { return false };
    let len = u32::from_le_bytes(len.try_into().unwrap()) as usize;
    bytes.get(at + 4 + len).is_some_and(|v| *v < 3)
}
