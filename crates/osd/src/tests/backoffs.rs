//! Clients that are asked to hold back what cannot be done for long.

use denc::Features;
use messages::{Backoff, Message};
use types::{HObject, PgId, PoolId};

use super::cluster::Cluster;
use super::rules::{full, read, settle_maps};

const POOL: PoolId = PoolId(1);

impl Cluster {
    /// What the client was told to hold back and to send after all: of which PG, and how.
    fn told_to(&mut self) -> Vec<(PgId, u8)> {
        let told = std::mem::take(&mut self.told);
        let told = told.iter().filter(|e| e.kind == Backoff::KIND);
        told.map(|e| Backoff::decode(e).unwrap()).map(|m| (m.pg.pg, m.op)).collect()
    }
}

/// What clients want of a PG with too few copies is not in hand at its OSD: they are asked to hold it
/// back, once for a PG, and all of it is done in their order when there are enough copies.
#[test]
fn what_waits_for_copies_is_held_by_its_client() {
    let mut c = Cluster::ready(3, 3, 1, 1);
    c.run(POOL, "x", full(b"before"));
    for i in [1, 2] {
        c.kill(i);
        c.mark_down(i);
    }
    settle_maps(&mut c);
    let first = c.ask(POOL, "x", full(b"first"));
    let second = c.ask(POOL, "x", full(b"second"));
    let other = c.ask(POOL, "y", full(b"other"));
    let read = c.ask(POOL, "x", read());
    for _ in 0..10 {
        c.client_step();
        settle_maps(&mut c);
        c.tick(1_000);
    }
    assert!(c.answers.is_empty(), "{:?}", c.answers.keys());
    let (_, ops) = c.admin(0, r#"{"prefix":"dump_ops_in_flight"}"#);
    let ops: serde_json::Value = serde_json::from_str(&ops).unwrap();
    assert_eq!(ops["num_ops"], 0, "{ops}");
    let pg = PgId { pool: POOL, ps: 0 };
    assert_eq!(c.told_to(), [(pg, 1)]);

    c.start(1);
    c.start(2);
    c.settle();
    let told = c.told_to();
    assert_eq!(told.last(), Some(&(pg, 3)), "{told:?}");
    for tid in [first, second, other] {
        assert_eq!(c.answers[&tid].result, 0);
    }
    assert_eq!(c.answers[&read].ops[0].data.as_ref(), b"second");
    assert!(c.backoffs.is_empty(), "{:?}", c.backoffs);
}

/// A client that gives up while it holds back leaves nothing behind, and one that comes anew is asked
/// anew.
#[test]
fn who_leaves_is_forgotten() {
    let mut c = Cluster::ready(2, 2, 2, 1);
    c.kill(1);
    c.mark_down(1);
    settle_maps(&mut c);
    c.ask(POOL, "x", full(b"x"));
    c.client_step();
    settle_maps(&mut c);
    assert_eq!(c.told_to().len(), 1);
    c.break_client(0);
    c.client_step();
    settle_maps(&mut c);
    assert_eq!(c.told_to().len(), 1, "on its new connection");
    c.start(1);
    c.settle();
    assert_eq!(c.told_to().iter().filter(|(_, op)| *op == 3).count(), 1);
}

/// What a client sent before it knew that it was to hold back is dropped also when the PG serves
/// again by then: what it holds back comes first.
#[test]
fn what_overtakes_is_dropped() {
    let oid = HObject { name: b"x".as_slice().into(), pool: POOL, ..HObject::min() };
    let pg = types::SpgId { pg: PgId { pool: POOL, ps: 0 }, shard: types::ShardId::NONE };
    let (conn, features) = (env::ConnId(1), Features::TENTACLE_WORD);
    let mut all = crate::backoffs::Backoffs::default();
    let mut out = crate::outbox::Outbox::new();
    assert!(!all.drops(conn, pg, &oid));
    all.block((conn, features), (pg, 1), types::Epoch(5), &mut out);
    assert!(all.drops(conn, pg, &oid));
    all.release(pg, types::Epoch(6), &mut out);
    assert!(all.drops(conn, pg, &oid), "its acknowledgement is under way");
    let ack = |id| Backoff {
        pg,
        epoch: types::Epoch(5),
        op: 2,
        id,
        begin: HObject::min(),
        end: HObject::max(),
    };
    all.on_ack(conn, &ack(7));
    assert!(all.drops(conn, pg, &oid), "that is another's");
    all.on_ack(conn, &ack(1));
    assert!(!all.drops(conn, pg, &oid));
    // Known to hold back, it may send again at once.
    all.block((conn, features), (pg, 1), types::Epoch(7), &mut out);
    all.on_ack(conn, &ack(2));
    all.release(pg, types::Epoch(8), &mut out);
    assert!(!all.drops(conn, pg, &oid) && !all.has(pg));
}
