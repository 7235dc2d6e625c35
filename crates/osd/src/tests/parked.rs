//! What waits at an OSD is its sender's: counted, bounded, and gone with the connection.

use bytes::Bytes;
use env::ConnId;
use messages::{Envelope, MOsdOp, Message, OsdOp, op};
use types::{Epoch, Features, PoolId};

use super::cluster::Cluster;
use crate::Effect;

const POOL: PoolId = PoolId(1);

fn full(bytes: usize) -> Vec<OsdOp> {
    vec![OsdOp::extent(op::WRITEFULL, 0, bytes as u64, vec![1; bytes].into())]
}

/// A request of the client that names a map.
fn naming(c: &mut Cluster, epoch: Epoch, bytes: usize) -> Envelope {
    let tid = c.ask(POOL, "o", full(bytes));
    let mut msg: MOsdOp = c.asked.pop_back().expect("just asked").msg;
    let map = &c.map;
    msg.pg.pg = map.pool(POOL).unwrap().raw_pg_to_pg(POOL, msg.hash);
    msg.epoch = epoch;
    msg.envelope(Features::TENTACLE_WORD).with_tid(tid)
}

fn arrives(c: &mut Cluster, e: Envelope) {
    let conn = c.client_conn(0);
    c.event(0, |osd, now, out| osd.on_message(now, conn, e, out));
}

fn in_hand(c: &Cluster) -> u64 {
    c.nodes[0].osd.as_ref().unwrap().request_bytes().0
}

fn waiting(c: &Cluster) -> usize {
    c.nodes[0].osd.as_ref().unwrap().c.waiting.len()
}

fn closed(c: &Cluster) -> bool {
    let conn: ConnId = c.client_conn(0);
    c.effects_seen.contains(&Effect::Close(conn))
}

/// What names a map of the future counts to what clients have in hand, and goes with its
/// connection, which is closed when it parks more than its share.
#[test]
fn what_waits_for_a_map_is_counted_and_bounded() {
    let mut c = Cluster::ready(1, 1, 1, 1);
    let soon = Epoch(c.map.epoch.0 + 5);
    for n in 1..=10 {
        let e = naming(&mut c, soon, 1 << 20);
        arrives(&mut c, e);
        assert!(in_hand(&c) >= n << 20, "{n}: {}", in_hand(&c));
    }
    assert_eq!(waiting(&c), 10);
    c.break_client(0);
    assert_eq!((waiting(&c), in_hand(&c)), (0, 0));

    let max = c.nodes[0].osd.as_ref().unwrap().request_bytes().1;
    let mut sent = 0;
    while !closed(&c) {
        let e = naming(&mut c, soon, 1 << 20);
        arrives(&mut c, e);
        sent += 1;
        assert!(in_hand(&c) <= max / 4 && sent <= max >> 20, "{sent} are held");
    }
    assert_eq!((waiting(&c), in_hand(&c)), (0, 0));
}

/// A map far ahead is not waited for, nor one that does not come.
#[test]
fn maps_that_do_not_come_are_not_waited_for() {
    let mut c = Cluster::ready(1, 1, 1, 1);
    let e = naming(&mut c, Epoch(1_000_000), 10);
    arrives(&mut c, e);
    assert!(closed(&c) && waiting(&c) == 0);

    let mut c = Cluster::ready(1, 1, 1, 1);
    let next = Epoch(c.map.epoch.0 + 1);
    let e = naming(&mut c, next, 10);
    arrives(&mut c, e);
    c.tick(59_000);
    assert!(!closed(&c) && waiting(&c) == 1);
    c.tick(2_000);
    assert!(closed(&c) && waiting(&c) == 0);
}

/// A client that may do nothing parks nothing: it is refused at once.
#[test]
fn without_caps_nothing_waits() {
    let mut c = Cluster::ready(1, 1, 1, 1);
    c.caps = String::new();
    c.break_client(0);
    let next = Epoch(c.map.epoch.0 + 1);
    let e = naming(&mut c, next, 10);
    arrives(&mut c, e);
    assert_eq!((waiting(&c), in_hand(&c)), (0, 0));
    assert!(c.has_answer(0));
}

/// Requests that wait in a PG are dropped with their connection, and the client's resend is done.
#[test]
fn what_waits_in_a_pg_goes_with_its_connection() {
    let mut c = Cluster::ready(3, 3, 1, 1);
    c.run(POOL, "o", full(10));
    let pg = c.map.pool(POOL).unwrap().raw_pg_to_pg(POOL, 0);
    let to = c.map.pg_to_up_acting(pg).acting_primary.unwrap().0 as usize;
    for i in (0..3).filter(|i| *i != to) {
        c.held.insert((i, to));
    }
    // A write that its copies do not answer, and reads behind it.
    let first = c.ask(POOL, "o", full(20));
    for _ in 0..10 {
        c.ask(POOL, "o", vec![OsdOp::extent(op::READ, 0, 0, Bytes::new())]);
    }
    c.client_step();
    for _ in 0..2_000 {
        c.step();
    }
    let parked = |c: &Cluster| {
        let osd = c.nodes[to].osd.as_ref().unwrap();
        osd.pgs.values().flat_map(|p| p.obcs.values()).map(|o| o.waiting.len()).sum::<usize>()
    };
    assert_eq!(parked(&c), 10);
    c.break_client(to);
    assert_eq!(parked(&c), 0);
    c.held.clear();
    assert_eq!(c.wait(first).result, 0);
    c.settle();
}
