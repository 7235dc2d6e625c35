//! `cmpomap`: comparisons, defaults, errors.

use std::collections::BTreeMap;

use bytes::Bytes;
use denc::Denc;
use types::Errno;

use super::{Mem, bytes};
use crate::cmpomap::{CompareOp, RemoveOp};

const CLASS: &str = "cmpomap";

fn op(mode: u8, comparison: u8, key: &str, value: Bytes, default: Option<Bytes>) -> CompareOp {
    CompareOp { mode, comparison, values: BTreeMap::from([(bytes(key), value)]), default }
}

#[test]
fn compares() {
    let mut o = Mem::created();
    o.omap.insert(bytes("s"), bytes("b"));
    o.omap.insert(bytes("n"), 5u64.to_bytes());
    o.omap.insert(bytes("bad"), bytes("x"));
    o.omap.insert(bytes("empty"), Bytes::new());
    // EQ, NE, GT, GTE, LT, LTE, with the input on the left.
    for (input, wanted) in
        [("a", [0, 1, 0, 0, 1, 1]), ("b", [1, 0, 0, 1, 0, 1]), ("c", [0, 1, 1, 1, 0, 0])]
    {
        for (comparison, holds) in wanted.into_iter().enumerate() {
            let op = op(1, comparison as u8 + 1, "s", bytes(input), None);
            let expected = if holds == 1 { Ok(()) } else { Err(Errno::CANCELED) };
            assert_eq!(o.run(CLASS, "cmp_vals", &op), expected, "{input} {comparison}");
        }
    }
    let n = |x: u64| x.to_bytes();
    assert_eq!(o.run(CLASS, "cmp_vals", &op(2, 3, "n", n(6), None)), Ok(()));
    assert_eq!(o.run(CLASS, "cmp_vals", &op(2, 1, "empty", n(0), None)), Ok(()));
    assert_eq!(o.run(CLASS, "cmp_vals", &op(2, 1, "bad", n(0), None)), Err(Errno::IO));
    assert_eq!(o.run(CLASS, "cmp_vals", &op(2, 1, "n", bytes("1"), None)), Err(Errno::INVAL));
    assert_eq!(o.run(CLASS, "cmp_vals", &op(3, 1, "n", n(5), None)), Err(Errno::INVAL));
    assert_eq!(o.run(CLASS, "cmp_vals", &op(2, 7, "n", n(5), None)), Err(Errno::INVAL));
    assert_eq!(o.run(CLASS, "cmp_vals", &op(2, 1, "none", n(5), None)), Err(Errno::CANCELED));
    assert_eq!(o.run(CLASS, "cmp_vals", &op(2, 1, "none", n(5), Some(n(5)))), Ok(()));
    assert_eq!(Mem::new().run(CLASS, "cmp_vals", &op(1, 1, "s", n(5), None)), Err(Errno::NOENT));
    o.refuses_short_input(CLASS, &["cmp_vals", "cmp_set_vals", "cmp_rm_keys"]);
}

#[test]
fn sets_and_removes() {
    let mut o = Mem::created();
    o.omap.insert(bytes("a"), 5u64.to_bytes());
    o.omap.insert(bytes("bad"), bytes("x"));
    let values = |pairs: &[(&str, u64)]| {
        pairs.iter().map(|(k, n)| (bytes(k), n.to_bytes())).collect::<BTreeMap<_, _>>()
    };
    // Greater ones are set; what is no number or is missing is left alone.
    let op = CompareOp {
        mode: 2,
        comparison: 3,
        values: values(&[("a", 6), ("bad", 9), ("new", 9)]),
        default: None,
    };
    o.run(CLASS, "cmp_set_vals", &op).unwrap();
    assert_eq!(o.omap[&bytes("a")], 6u64.to_bytes());
    assert_eq!(o.omap[&bytes("bad")], bytes("x"));
    assert!(!o.omap.contains_key(&bytes("new")));
    o.run(CLASS, "cmp_set_vals", &CompareOp { default: Some(Bytes::new()), ..op }).unwrap();
    assert_eq!(o.omap[&bytes("new")], 9u64.to_bytes());
    let rm = RemoveOp { mode: 2, comparison: 1, values: values(&[("a", 6), ("bad", 1), ("x", 1)]) };
    o.run(CLASS, "cmp_rm_keys", &rm).unwrap();
    assert!(!o.omap.contains_key(&bytes("a")));
    assert!(o.omap.contains_key(&bytes("bad")));
    let rm = RemoveOp { comparison: 9, values: values(&[("new", 9)]), ..rm };
    assert_eq!(o.run(CLASS, "cmp_rm_keys", &rm), Err(Errno::INVAL));
}
