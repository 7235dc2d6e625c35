//! `log` and `timeindex`: order, pages, trimming.

use bytes::Bytes;
use types::{Errno, UTime};

use super::{Mem, Nothing, bytes};
use crate::log::{AddOp, Entry, Info, InfoOp, ListOp, Listed, TrimOp};
use crate::timeindex;

fn at(sec: u32) -> UTime {
    UTime { sec, nsec: 5_000 }
}

fn entry(sec: u32, name: &str) -> Entry {
    Entry { name: bytes(name), time: at(sec), ..Entry::default() }
}

fn names(o: &mut Mem, op: &ListOp) -> (Vec<Bytes>, Listed) {
    let listed: Listed = o.ask("log", "list", op).unwrap();
    (listed.entries.iter().map(|e| e.name.clone()).collect(), listed)
}

#[test]
fn log_keeps_order() {
    let mut o = Mem::new();
    assert_eq!(o.run("log", "list", &ListOp::default()), Err(Errno::NOENT));
    assert_eq!(
        o.run("log", "trim", &TrimOp { to: at(9), ..TrimOp::default() }),
        Err(Errno::NODATA)
    );
    for (sec, name) in [(3, "c"), (1, "a"), (2, "b")] {
        let add = AddOp { entries: vec![entry(sec, name)], monotonic: false };
        o.run("log", "add", &add).unwrap();
    }
    let (all, listed) = names(&mut o, &ListOp::default());
    assert_eq!(all, ["a", "b", "c"]);
    assert!(!listed.truncated);
    assert!(listed.entries[0].id.starts_with(b"1_0000000001.000005_"));
    let (some, listed) = names(&mut o, &ListOp { max: 2, ..ListOp::default() });
    assert_eq!(some, ["a", "b"]);
    assert!(listed.truncated);
    let (rest, _) = names(&mut o, &ListOp { marker: listed.marker, ..ListOp::default() });
    assert_eq!(rest, ["c"]);
    let (bounded, _) = names(&mut o, &ListOp { from: at(1), to: at(3), ..ListOp::default() });
    assert_eq!(bounded, ["a", "b"]);
    let info: Info = o.ask("log", "info", &InfoOp::default()).unwrap();
    assert_eq!(info.header.max_time, at(3));
    // Both ends are trimmed, then nothing is left there.
    let trim = TrimOp { from: UTime::ZERO, to: at(2), ..TrimOp::default() };
    o.run("log", "trim", &trim).unwrap();
    assert_eq!(o.run("log", "trim", &trim), Err(Errno::NODATA));
    assert_eq!(names(&mut o, &ListOp::default()).0, ["c"]);
    o.refuses_short_input("log", &["add", "list", "trim", "info"]);
}

/// Entries of one time are all kept, and a monotonic log raises what is late.
#[test]
fn log_tells_entries_apart() {
    let mut o = Mem::new();
    let entries = (0..10).map(|n| entry(5, &n.to_string())).collect();
    o.run("log", "add", &AddOp { entries, monotonic: true }).unwrap();
    o.run("log", "add", &AddOp { entries: vec![entry(1, "late")], monotonic: true }).unwrap();
    let (all, listed) = names(&mut o, &ListOp::default());
    assert_eq!(all.len(), 11);
    let late = listed.entries.iter().find(|e| e.name == "late").unwrap();
    assert!(late.id.starts_with(b"1_0000000005."));
    let to_marker = listed.marker;
    o.run("log", "trim", &TrimOp { to_marker, ..TrimOp::default() }).unwrap();
    assert_eq!(names(&mut o, &ListOp::default()).0.len(), 0);
}

#[test]
fn timeindex() {
    let mut o = Mem::new();
    let entries = [(2, "b"), (1, "a"), (3, "c")].map(|(sec, name)| timeindex::Entry {
        time: at(sec),
        name: bytes(name),
        value: bytes("v"),
    });
    o.run("timeindex", "add", &timeindex::AddOp { entries: entries.to_vec() }).unwrap();
    let op = timeindex::ListOp { from: UTime::ZERO, to: at(3), max: 1000, ..Default::default() };
    let listed: timeindex::Listed = o.ask("timeindex", "list", &op).unwrap();
    let found: Vec<_> = listed.entries.iter().map(|e| (e.time.sec, e.name.clone())).collect();
    assert_eq!(found, [(1, bytes("a")), (2, bytes("b"))]);
    assert!(!listed.truncated);
    let op = timeindex::ListOp { max: 1, ..op };
    let listed: timeindex::Listed = o.ask("timeindex", "list", &op).unwrap();
    assert!(listed.truncated);
    let trim = timeindex::TrimOp { to: at(2), ..Default::default() };
    o.run("timeindex", "trim", &trim).unwrap();
    assert_eq!(o.omap.len(), 1);
    assert_eq!(o.run("timeindex", "trim", &trim), Err(Errno::NODATA));
    o.refuses_short_input("timeindex", &["add", "list", "trim"]);
    assert_eq!(o.run("timeindex", "nothing", &Nothing), Err(Errno::OPNOTSUPP));
}
