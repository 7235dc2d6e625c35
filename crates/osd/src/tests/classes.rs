//! Uploaded classes in a cluster: who may call them, what a call leaves, what comes and goes.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use messages::{ClassModules, Message, OsdOp, op, op_flag};
use types::{Features, PoolId};

use super::cluster::Cluster;

const POOL: PoolId = PoolId(1);

/// Methods `get` (r), `put` (w), `inc` (rw: adds one to the byte that the object is), `cheat`
/// (r, but it writes), `spin`.
fn module(step: u8) -> Bytes {
    let abi = cls::wasm::ABI;
    let method = |flags: &str, name: &str, code: &str| {
        format!("(func (export \"{abi}:{flags}:{name}\") (result i32) {code})")
    };
    let read = "(call $read (i64.const 0) (i32.const 0) (i32.const 1))";
    let write = "(call $write_full (i32.const 0) (i32.const 1))";
    let text = format!(
        "(module
            (import \"{abi}\" \"read\" (func $read (param i64 i32 i32) (result i32)))
            (import \"{abi}\" \"write_full\" (func $write_full (param i32 i32) (result i32)))
            (import \"{abi}\" \"output\" (func $output (param i32 i32) (result i32)))
            (memory (export \"memory\") 1) {}{}{}{}{})",
        method("r", "get", &format!("(drop {read}) (call $output (i32.const 0) (i32.const 1))")),
        method("w", "put", write),
        method(
            "rw",
            "inc",
            &format!(
                "(drop {read}) (i32.store8 (i32.const 0)
                   (i32.add (i32.load8_u (i32.const 0)) (i32.const {step}))) {write}"
            )
        ),
        method("r", "cheat", write),
        method("rw", "spin", &format!("(drop {write}) (loop $l (br $l)) (i32.const 0)")),
    );
    wat::parse_str(text).unwrap().into()
}

fn call(class: &str, method: &str) -> OsdOp {
    let mut call = OsdOp::new(op::CALL, Bytes::from([class, method].concat()));
    call.raw[0] = class.len() as u8;
    call.raw[1] = method.len() as u8;
    call
}

fn read() -> OsdOp {
    OsdOp::extent(op::READ, 0, 0, Bytes::new())
}

fn tell(c: &mut Cluster, version: u64, all: &[&str], changed: &[(&str, Bytes)]) {
    let news = ClassModules {
        version,
        present: all.iter().map(|s| (*s).to_owned()).collect::<BTreeSet<_>>(),
        changed: changed
            .iter()
            .map(|(name, code)| ((*name).to_owned(), code.clone()))
            .collect::<BTreeMap<_, _>>(),
    };
    for i in 0..c.nodes.len() {
        let e = news.envelope(Features::ALL);
        c.event(i, |osd, now, out| osd.on_mon_message(now, &e, out));
    }
}

fn result(c: &mut Cluster, ops: Vec<OsdOp>) -> i32 {
    c.run(POOL, "o", ops).result
}

/// A class is called once it came, by its newest module, and not any more when it is gone. It
/// is told of late, twice, or by a monitor that is behind: nothing changes.
#[test]
fn classes_come_and_go() {
    let mut c = Cluster::ready(3, 3, 4, 1);
    assert_eq!(result(&mut c, vec![call("mine", "inc")]), -1, "no built-in class on the list");
    tell(&mut c, 1, &["mine"], &[("mine", module(1))]);
    assert_eq!(result(&mut c, vec![call("mine", "inc")]), 0);
    assert_eq!(result(&mut c, vec![call("mine", "nothing")]), -95);
    assert_eq!(&*c.run(POOL, "o", vec![call("mine", "get")]).ops[0].data, [1]);
    tell(&mut c, 3, &["mine"], &[("mine", module(10))]);
    tell(&mut c, 1, &["mine"], &[("mine", module(1))]);
    tell(&mut c, 3, &["mine"], &[]);
    assert_eq!(result(&mut c, vec![call("mine", "inc"), call("mine", "inc")]), 0);
    assert_eq!(&*c.run(POOL, "o", vec![call("mine", "get")]).ops[0].data, [21]);
    let (r, shown) = c.admin(1, "{\"prefix\":\"cls ls\"}");
    assert!(
        r == 0 && shown.contains("\"version\": 3") && shown.contains("\"spin\": \"rw\""),
        "{shown}"
    );
    // One that cannot be used takes nothing else with it, and is not the old one.
    tell(&mut c, 4, &["bad", "mine"], &[("bad", Bytes::from_static(b"\0asm"))]);
    assert_eq!(result(&mut c, vec![call("mine", "put")]), 0);
    assert_eq!(result(&mut c, vec![call("bad", "put")]), -1);
    assert!(c.admin(0, "{\"prefix\":\"cls ls\"}").1.contains("not a valid module"));
    tell(&mut c, 5, &[], &[]);
    assert_eq!(result(&mut c, vec![call("mine", "get")]), -1);
    // What was written is on every copy.
    c.settle();
    for i in 0..3 {
        c.scrub_all(i);
    }
    c.settle();
    assert_eq!(&*c.run(POOL, "o", vec![read()]).ops[0].data, [0]);
}

/// A method that never ends, one that writes though it says it reads: the vector fails whole,
/// is logged if it may write, and the OSD goes on.
#[test]
fn bad_methods_leave_nothing() {
    let mut c = Cluster::ready(2, 2, 1, 1);
    tell(&mut c, 1, &["mine"], &[("mine", module(1))]);
    assert_eq!(result(&mut c, vec![call("mine", "inc")]), 0);
    let write = OsdOp::extent(op::WRITEFULL, 0, 3, Bytes::from_static(b"new"));
    assert_eq!(result(&mut c, vec![write.clone(), call("mine", "spin")]), -110);
    assert_eq!(result(&mut c, vec![call("mine", "cheat")]), -5);
    assert_eq!(&*c.run(POOL, "o", vec![read()]).ops[0].data, [1]);
    // With a failure that may be, the vector goes on, but not on new fuel.
    let mut spin = call("mine", "spin");
    spin.flags |= op_flag::FAILOK;
    assert_eq!(result(&mut c, vec![spin, call("mine", "inc")]), -110);
    assert_eq!(result(&mut c, vec![call("mine", "inc")]), 0);
    assert_eq!(&*c.run(POOL, "o", vec![call("mine", "get")]).ops[0].data, [2]);
}

/// Caps say who may call what, as for built-in classes: by name, by what a method does.
#[test]
fn capabilities_count_for_uploaded_classes() {
    let mut c = Cluster::ready(1, 1, 1, 1);
    tell(&mut c, 1, &["mine"], &[("mine", module(1))]);
    assert_eq!(result(&mut c, vec![call("mine", "inc")]), 0);
    for (caps, get, put, inc) in [
        ("allow *", 0, 0, 0),
        ("allow rwx", 0, 0, 0),
        ("allow rw", -1, -1, -1),
        ("allow class-read", 0, -1, -1),
        ("allow class-write", -1, 0, -1),
        ("allow class-read class-write", 0, 0, 0),
        ("allow class mine", 0, 0, 0),
        ("allow class mine get", 0, -1, -1),
        ("allow class other", -1, -1, -1),
        ("allow x object_prefix other", -1, -1, -1),
    ] {
        c.caps = caps.into();
        c.break_client(0);
        for (method, wanted) in [("get", get), ("put", put), ("inc", inc)] {
            assert_eq!(result(&mut c, vec![call("mine", method)]), wanted, "{caps}: {method}");
        }
    }
}

/// What was executed while the class was there is answered as it was then, when it is sent
/// again to an OSD that does not know of the class any more, or not yet.
#[test]
fn calls_are_remembered_longer_than_classes() {
    let mut c = Cluster::ready(2, 2, 1, 1);
    tell(&mut c, 1, &["mine"], &[("mine", module(1))]);
    let tid = c.ask(POOL, "o", vec![call("mine", "inc")]);
    let sent = c.asked.back().unwrap().msg.clone();
    assert_eq!(c.wait(tid).result, 0);
    tell(&mut c, 2, &[], &[]);
    for (tid, result) in [(tid, 0), (tid + 1_000, -1)] {
        let again = c.ask(POOL, "o", vec![call("mine", "inc")]);
        let asked = &mut c.asked.back_mut().unwrap().msg;
        let client = types::EntityId::new(types::EntityKind::CLIENT, 4100);
        asked.reqid = types::ReqId { client, tid, inc: sent.reqid.inc };
        asked.retry_attempt = 1;
        assert_eq!(c.wait(again).result, result);
    }
    assert_eq!(&*c.run(POOL, "o", vec![read()]).ops[0].data, [1]);
}
