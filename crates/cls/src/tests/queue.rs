//! `queue` and `2pc_queue`: the ring turns, markers hold, reservations count.

use bytes::Bytes;
use types::{Errno, UTime};

use super::{Mem, Nothing, bytes};
use crate::queue::{CapacityRet, EnqueueOp, InitOp, ListOp, Listed, RemoveOp};
use crate::two_phase_queue as tpq;

fn queue_of(size: u64) -> Mem {
    let mut o = Mem::created();
    o.run("queue", "queue_init", &InitOp { size, ..InitOp::default() }).unwrap();
    o
}

fn enqueue(o: &mut Mem, entries: &[&str]) -> Result<(), Errno> {
    let entries = entries.iter().map(|e| bytes(e)).collect();
    o.run("queue", "queue_enqueue", &EnqueueOp { entries })
}

fn list(o: &mut Mem, max: u64, start: &Bytes) -> Listed {
    let op = ListOp { max, start: start.clone(), end: Bytes::new() };
    o.ask("queue", "queue_list_entries", &op).unwrap()
}

fn data(listed: &Listed) -> Vec<Bytes> {
    listed.entries.iter().map(|e| e.data.clone()).collect()
}

#[test]
fn ring_turns() {
    let mut o = Mem::new();
    assert_eq!(o.run("queue", "queue_get_capacity", &Nothing), Err(Errno::NOENT));
    o = Mem::created();
    assert_eq!(o.run("queue", "queue_get_capacity", &Nothing), Err(Errno::INVAL));
    o = queue_of(100);
    let again = InitOp { size: 1, ..InitOp::default() };
    assert_eq!(o.run("queue", "queue_init", &again), Err(Errno::EXIST));
    let ret: CapacityRet = o.ask("queue", "queue_get_capacity", &Nothing).unwrap();
    assert_eq!(ret.capacity, 100);
    assert!(list(&mut o, 10, &Bytes::new()).entries.is_empty());
    // 3 * 30 bytes fit, a fourth does not; all or none of a call is kept.
    let entry = "twenty bytes of data";
    enqueue(&mut o, &[entry, entry]).unwrap();
    assert_eq!(enqueue(&mut o, &[entry, entry]), Err(Errno::NOSPC));
    let mut expected = vec![entry; 2];
    for turn in 0..50 {
        let fresh = format!("{turn:020}");
        enqueue(&mut o, &[&fresh]).unwrap();
        let listed = list(&mut o, 1, &Bytes::new());
        assert!(listed.truncated);
        assert_eq!(listed.entries[0].data, expected[0]);
        // The rest, from there on.
        let rest = list(&mut o, 100, &listed.next);
        assert!(!rest.truncated);
        assert_eq!(data(&rest), [expected[1], &fresh]);
        o.run("queue", "queue_remove_entries", &RemoveOp { end: listed.next }).unwrap();
        expected = vec![expected[1], Box::leak(fresh.into_boxed_str())];
    }
    assert_eq!(
        o.run("queue", "queue_remove_entries", &RemoveOp { end: bytes("9/1030") }),
        Err(Errno::INVAL)
    );
    let end = list(&mut o, 100, &Bytes::new()).next;
    o.run("queue", "queue_remove_entries", &RemoveOp { end }).unwrap();
    assert!(list(&mut o, 10, &Bytes::new()).entries.is_empty());
    o.refuses_short_input("queue", &["queue_enqueue", "queue_list_entries"]);
}

#[test]
fn full_ring_is_told_from_an_empty_one() {
    let mut o = queue_of(30);
    enqueue(&mut o, &["twenty bytes of data"]).unwrap();
    assert_eq!(enqueue(&mut o, &[""]), Err(Errno::NOSPC));
    // Also when it becomes full in the middle of a call.
    let mut other = queue_of(30);
    assert_eq!(enqueue(&mut other, &["twenty bytes of data", ""]), Err(Errno::NOSPC));
    let listed = list(&mut o, 10, &Bytes::new());
    assert_eq!(listed.entries.len(), 1);
    o.run("queue", "queue_remove_entries", &RemoveOp { end: listed.next }).unwrap();
    enqueue(&mut o, &["twenty bytes of data"]).unwrap();
}

/// A head that lies about its offsets is refused.
#[test]
fn hostile_head() {
    let mut o = queue_of(100);
    enqueue(&mut o, &["x"]).unwrap();
    for at in 10..80 {
        let mut bad = o.clone();
        bad.data[at] ^= 0xff;
        let op = ListOp { max: u64::MAX, ..ListOp::default() };
        let _ = bad.run("queue", "queue_list_entries", &op);
        let _ = enqueue(&mut bad, &["more"]);
        let _ = bad.run("queue", "queue_remove_entries", &RemoveOp { end: bytes("0/1035") });
    }
    let op = ListOp { max: 1, start: bytes("0/1025"), end: Bytes::new() };
    assert_eq!(o.run("queue", "queue_list_entries", &op), Err(Errno::INVAL));
}

#[test]
fn two_phases() {
    const CLASS: &str = "2pc_queue";
    let mut o = Mem::created();
    o.run(CLASS, "2pc_queue_init", &InitOp { size: 1000, ..InitOp::default() }).unwrap();
    let reserve = |o: &mut Mem, size, entries| {
        o.ask::<tpq::Id>(CLASS, "2pc_queue_reserve", &tpq::ReserveOp { size, entries })
    };
    assert_eq!(reserve(&mut o, 0, 1), Err(Errno::INVAL));
    assert_eq!(reserve(&mut o, 1, 0), Err(Errno::INVAL));
    let first = reserve(&mut o, 400, 2).unwrap();
    assert_eq!(first.id, 1);
    let second = reserve(&mut o, 400, 2).unwrap();
    assert_eq!(reserve(&mut o, 400, 2), Err(Errno::NOSPC));
    let commit = |id, n: usize| tpq::CommitOp { id, entries: vec![vec![b'x'; n].into(); 2] };
    assert_eq!(o.run(CLASS, "2pc_queue_commit", &commit(9, 1)), Err(Errno::NOENT));
    assert_eq!(o.run(CLASS, "2pc_queue_commit", &commit(first.id, 201)), Err(Errno::INVAL));
    o.run(CLASS, "2pc_queue_commit", &commit(first.id, 200)).unwrap();
    o.run(CLASS, "2pc_queue_abort", &second).unwrap();
    o.run(CLASS, "2pc_queue_abort", &second).unwrap();
    let stats: tpq::StatsRet = o.ask(CLASS, "2pc_queue_get_topic_stats", &Nothing).unwrap();
    assert_eq!((stats.size, stats.entries), (420, 2));
    reserve(&mut o, 500, 1).unwrap();
    let left: tpq::ReservationsRet = o.ask(CLASS, "2pc_queue_list_reservations", &Nothing).unwrap();
    assert_eq!(left.reservations.keys().copied().collect::<Vec<_>>(), [3]);
    let expire = |sec| tpq::ExpireOp { before: UTime { sec, nsec: 0 } };
    o.run(CLASS, "2pc_queue_expire_reservations", &expire(1000)).unwrap();
    assert_eq!(reserve(&mut o, 500, 1), Err(Errno::NOSPC));
    o.run(CLASS, "2pc_queue_expire_reservations", &expire(1001)).unwrap();
    reserve(&mut o, 500, 1).unwrap();
    let listed: Listed =
        o.ask(CLASS, "2pc_queue_list_entries", &ListOp { max: 10, ..ListOp::default() }).unwrap();
    assert_eq!(listed.entries.len(), 2);
    let remove = tpq::RemoveOp { end: listed.next, count: 0 };
    o.run(CLASS, "2pc_queue_remove_entries", &remove).unwrap();
    let stats: tpq::StatsRet = o.ask(CLASS, "2pc_queue_get_topic_stats", &Nothing).unwrap();
    assert_eq!((stats.size, stats.entries), (0, 0));
}

/// Reservations beyond the head's room go to the attribute and come back from there.
#[test]
fn many_reservations() {
    const CLASS: &str = "2pc_queue";
    let mut o = Mem::created();
    o.run(CLASS, "2pc_queue_init", &InitOp { size: 1 << 20, ..InitOp::default() }).unwrap();
    for _ in 0..1200 {
        let op = tpq::ReserveOp { size: 1, entries: 1 };
        o.run(CLASS, "2pc_queue_reserve", &op).unwrap();
    }
    assert!(o.attrs.contains_key(&bytes("cls_queue_urgent_data")));
    let all: tpq::ReservationsRet = o.ask(CLASS, "2pc_queue_list_reservations", &Nothing).unwrap();
    assert_eq!(all.reservations.len(), 1200);
    for id in 1..=1200 {
        o.run(CLASS, "2pc_queue_commit", &tpq::CommitOp { id, entries: vec![bytes("x")] }).unwrap();
    }
    let none: tpq::ReservationsRet = o.ask(CLASS, "2pc_queue_list_reservations", &Nothing).unwrap();
    assert!(none.reservations.is_empty());
}

/// A queue is made in an object that is not there, too.
#[test]
fn a_queue_makes_its_object() {
    let mut o = Mem::new();
    let op = InitOp { size: 1000, user_room: 0, user_data: Bytes::new() };
    o.run("queue", "queue_init", &op).unwrap();
    assert!(o.is_there);
    assert_eq!(o.run("queue", "queue_init", &op), Err(Errno::EXIST));
}
