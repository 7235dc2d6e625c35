//! `cas`: references come and go; coarser ones say the same in fewer words.

use bytes::Bytes;
use denc::Denc;
use types::{Errno, HObject, PoolId};

use super::{Mem, bytes};
use crate::cas::{CreateOp, RefOp, Refs};
use crate::{NOLINK, NOMSG};

const CLASS: &str = "cas";

fn object(pool: i64, name: &str) -> HObject {
    HObject::head(PoolId(pool), Bytes::new(), Bytes::new(), bytes(name))
}

#[test]
fn chunk_goes_with_its_last_reference() {
    let mut o = Mem::new();
    let of = |name| RefOp { source: object(1, name) };
    assert_eq!(o.run(CLASS, "chunk_get_ref", &of("a")), Err(Errno::NOENT));
    assert_eq!(o.run(CLASS, "chunk_put_ref", &of("a")), Err(Errno::NOENT));
    let mut create = CreateOp { source: object(1, "a"), flags: 0, data: bytes("data") };
    o.run(CLASS, "chunk_create_or_get_ref", &create).unwrap();
    assert_eq!(&o.data[..], b"data");
    create.flags = 1;
    o.run(CLASS, "chunk_create_or_get_ref", &create).unwrap();
    create.data = bytes("other");
    assert_eq!(o.run(CLASS, "chunk_create_or_get_ref", &create), Err(NOMSG));
    o.run(CLASS, "chunk_get_ref", &of("b")).unwrap();
    assert_eq!(o.run(CLASS, "chunk_put_ref", &of("c")), Err(NOLINK));
    o.run(CLASS, "chunk_put_ref", &of("a")).unwrap();
    o.run(CLASS, "chunk_put_ref", &of("a")).unwrap();
    assert_eq!(o.run(CLASS, "chunk_put_ref", &of("a")), Err(NOLINK));
    assert!(o.is_there);
    o.run(CLASS, "chunk_put_ref", &of("b")).unwrap();
    assert!(!o.is_there);
    assert_eq!(o.run(CLASS, "references_chunk", &bytes("x")), Err(NOLINK));
    o.refuses_short_input(
        CLASS,
        &["chunk_create_or_get_ref", "chunk_get_ref", "chunk_put_ref", "references_chunk"],
    );
}

#[test]
fn many_references_fit() {
    let mut o = Mem::new();
    let create = CreateOp { source: object(3, "first"), flags: 0, data: bytes("x") };
    o.run(CLASS, "chunk_create_or_get_ref", &create).unwrap();
    for n in 0..1200 {
        let op = RefOp { source: object(n % 3, &format!("object number {n}")) };
        o.run(CLASS, "chunk_get_ref", &op).unwrap();
    }
    let raw = o.attrs[&bytes("chunk_refs")].clone();
    assert!(raw.len() <= 60_000);
    let refs = Refs::from_bytes(&raw).unwrap();
    assert!(matches!(refs, Refs::Hashes { total: 1201, bits: 32, .. }));
    assert_eq!(refs.to_bytes(), raw);
    // Those of pools that never had one are still told.
    assert_eq!(o.run(CLASS, "chunk_put_ref", &RefOp { source: object(9, "x") }), Err(NOLINK));
    for n in 0..1200 {
        let op = RefOp { source: object(n % 3, &format!("object number {n}")) };
        o.run(CLASS, "chunk_put_ref", &op).unwrap();
    }
    o.run(CLASS, "chunk_put_ref", &RefOp { source: object(3, "first") }).unwrap();
    assert!(!o.is_there);
}
