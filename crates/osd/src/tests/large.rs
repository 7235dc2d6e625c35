//! Whatever a client puts into attributes and omap: it is there on all copies, or is refused before
//! anything of it is.

use bytes::Bytes;
use denc::{Denc, Writer};
use messages::{OsdOp, op, req_flag};
use types::{Features, PoolId};

use super::cluster::Cluster;
use super::coded::check_shards;
use super::copies::copy;
use super::ops::xattr;
use super::survive::check_copies;

const POOL: PoolId = PoolId(1);
const MSGSIZE: i32 = -90;
const FBIG: i32 = -27;

fn attr(name: &str, bytes: usize) -> Vec<OsdOp> {
    vec![xattr(op::SETXATTR, name, &"x".repeat(bytes))]
}

fn omap(keys: u32, bytes: usize) -> Vec<OsdOp> {
    let value = Bytes::from(vec![7; bytes]);
    let pairs: Vec<(Bytes, Bytes)> =
        (0..keys).map(|n| (n.to_string().into_bytes().into(), value.clone())).collect();
    let mut w = Writer::new(Features::ALL);
    pairs.encode(&mut w);
    vec![OsdOp::new(op::OMAPSETVALS, w.finish())]
}

fn header(bytes: usize) -> Vec<OsdOp> {
    vec![OsdOp::new(op::OMAPSETHEADER, vec![3; bytes].into())]
}

fn get(name: &str) -> Vec<OsdOp> {
    vec![xattr(op::GETXATTR, name, "")]
}

/// All logs take so many bytes in one transaction, from OSDs' next start on.
fn bound(c: &mut Cluster, bytes: &[u64]) {
    for (i, n) in bytes.iter().enumerate() {
        c.nodes[i].store.lock().record_max = Some(*n);
        c.kill(i);
        c.start(i);
    }
    c.settle();
}

/// Attributes and omap beyond what the messenger takes in a front go to the copies, and come back
/// to one that missed them, in copies and in shards.
#[test]
fn more_than_a_front_goes_to_all_copies() {
    let mut c = Cluster::ready(3, 3, 1, 1);
    for ops in [attr("a", 17 << 20), omap(17, 1 << 20), omap(20_000, 900), header(17 << 20)] {
        assert_eq!(c.run(POOL, "o", ops).result, 0);
    }
    c.settle();
    check_copies(&c);
    c.kill(1);
    c.mark_down(1);
    assert_eq!(c.run(POOL, "o", attr("b", 18 << 20)).result, 0);
    c.start(1);
    c.settle();
    check_copies(&c);
    assert_eq!(c.run(POOL, "p", copy("o", 0)).result, 0);
    assert_eq!(c.run(POOL, "p", get("b")).ops[0].data.len(), 18 << 20);
    c.settle();
    check_copies(&c);

    let mut c = Cluster::ready_coded(3, (2, 1), 1, 1);
    assert_eq!(c.run(POOL, "o", attr("a", 17 << 20)).result, 0);
    assert_eq!(c.run(POOL, "o", attr("a", 18 << 20)).result, 0, "and what takes it back");
    c.settle();
    check_shards(&c);
}

/// What one log does not take in a transaction is refused, whichever copy's log it is; nothing
/// of it is there, and the object goes on being written.
#[test]
fn what_a_log_does_not_take_is_refused() {
    for (coded, smallest) in [(false, 0), (false, 1), (false, 2), (true, 0), (true, 2)] {
        let mut c = match coded {
            false => Cluster::ready(3, 3, 2, 1),
            true => Cluster::ready_coded(3, (2, 1), 2, 1),
        };
        let mut sizes = [8 << 20; 3];
        sizes[smallest] = 2 << 20;
        bound(&mut c, &sizes);
        let mut all = vec![(attr("a", 2 << 20), MSGSIZE), (attr("b", 1 << 20), 0)];
        let both = [attr("c", 250 << 10), attr("d", 250 << 10)].concat();
        let many = (0..3000).map(|_| attr("e", 600).remove(0)).collect();
        all.extend([(both, 0), (many, MSGSIZE)]);
        if coded {
            // With what takes it back.
            all.push((attr("b", 1 << 20), MSGSIZE));
        } else {
            let both = [header(1 << 20), omap(800, 1000)].concat();
            all.extend([(omap(2000, 1000), MSGSIZE), (omap(1200, 1000), 0), (both, MSGSIZE)]);
        }
        for name in ["o", "p", "q"] {
            for (ops, want) in &all {
                let reply = c.run(POOL, name, ops.clone());
                assert_eq!(reply.result, *want, "{coded} {smallest} {name}");
            }
            assert_eq!(c.run(POOL, name, get("a")).result, -61);
            assert_eq!(c.run(POOL, name, get("b")).result, 0);
        }
        c.settle();
        match coded {
            false => check_copies(&c),
            true => check_shards(&c),
        }
        assert!(c.stopped.is_empty(), "no store was given what it does not take");
    }
}

/// An object that grew by several writes to more than one transaction takes is brought back whole
/// to a copy that lacks it; attributes have a bound in sum.
#[test]
fn what_grew_is_recovered() {
    for coded in [false, true] {
        let mut c = match coded {
            false => Cluster::ready(3, 3, 1, 3),
            true => Cluster::ready_coded(3, (2, 1), 1, 3),
        };
        bound(&mut c, &[2 << 20; 3]);
        c.kill(1);
        c.mark_down(1);
        c.run(POOL, "o", vec![OsdOp::extent(op::WRITE, 0, 100, vec![1; 100].into())]);
        let mut refused = 0;
        for n in 0..4 {
            match c.run(POOL, "o", attr(&n.to_string(), 400 << 10)).result {
                0 => {}
                FBIG => refused += 1,
                other => panic!("{other}"),
            }
        }
        assert_eq!(refused, 1, "with the bound of a log of this size");
        if !coded {
            assert_eq!(c.run(POOL, "o", header(1 << 20)).result, 0);
            for n in 0..6 {
                assert_eq!(c.run(POOL, "o", omap(1 + n, 200 << 10)).result, 0);
            }
        }
        c.start(1);
        c.settle();
        match coded {
            false => check_copies(&c),
            true => check_shards(&c),
        }
        assert!(c.stopped.is_empty());
    }
}

/// A copy, and what a cache would bring, of more than one transaction takes is refused; the request
/// is answered, and others go on.
#[test]
fn copies_of_what_grew_are_refused() {
    let mut c = Cluster::ready(3, 3, 1, 5);
    bound(&mut c, &[2 << 20; 3]);
    for n in 0..3 {
        let mut w = Writer::new(Features::ALL);
        vec![(Bytes::from(vec![n]), Bytes::from(vec![1; 700 << 10]))].encode(&mut w);
        let set = vec![OsdOp::new(op::OMAPSETVALS, w.finish())];
        assert_eq!(c.run(POOL, "large", set).result, 0);
    }
    c.run(POOL, "small", omap(3, 100));
    assert_eq!(c.run(POOL, "t", copy("large", 0)).result, MSGSIZE);
    assert_eq!(c.run(POOL, "t", copy("small", 0)).result, 0);
    c.make_tier(POOL, 3, 1);
    let touch = || vec![OsdOp::extent(op::WRITE, 0, 1, vec![1].into())];
    for name in ["large", "small", "large"] {
        let want = if name == "large" { MSGSIZE } else { 0 };
        assert_eq!(c.run(POOL, name, touch()).result, want, "{name}");
    }
    let past = c.run_with(POOL, "large", touch(), req_flag::IGNORE_OVERLAY);
    assert_eq!(past.result, 0, "in the base it is as it was");
    c.settle();
    assert!(c.stopped.is_empty());
}
