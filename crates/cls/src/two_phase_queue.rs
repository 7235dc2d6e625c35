//! `2pc_queue`: a [`queue`](crate::queue) whose room is reserved before entries are
//! committed to it.
//!
//! Reservations are kept in the head; those that do not fit there in an attribute.

use std::collections::BTreeMap;

use bytes::Bytes;
use denc::Denc;
use types::{Errno, OpResult, UTime};

use crate::keys::answer;
use crate::queue::{self, Head, InitOp, ListOp, OVERHEAD, read_head, write_head};
use crate::{Class, DONE, Object, READS, Reply, WRITES, method, params, record};

pub(crate) const CLASS: Class = Class {
    name: "2pc_queue",
    methods: &[
        method("2pc_queue_init", READS | WRITES, init),
        method("2pc_queue_get_capacity", READS, queue::capacity),
        method("2pc_queue_get_topic_stats", READS, stats),
        method("2pc_queue_reserve", READS | WRITES, reserve),
        method("2pc_queue_commit", READS | WRITES, commit),
        method("2pc_queue_abort", READS | WRITES, abort),
        method("2pc_queue_list_reservations", READS, list_reservations),
        method("2pc_queue_list_entries", READS, queue::list_method),
        method("2pc_queue_remove_entries", READS | WRITES, remove_entries),
        method("2pc_queue_expire_reservations", READS | WRITES, expire),
    ],
};

const ATTR: &[u8] = b"cls_queue_urgent_data";
/// Room for about a thousand reservations.
const USER_ROOM: u64 = 23_552;

record! {
    /// `cls_2pc_reservation`.
    Reservation(2, 1) { size: u64, time: UTime, entries: u32 = 2, }
}
type Reservations = BTreeMap<u32, Reservation>;
record! {
    /// `cls_2pc_urgent_data`.
    Reserved(2, 1) {
        size: u64,
        last_id: u32,
        reservations: Reservations,
        has_more: bool,
        committed: u32 = 2,
    }
}
record! { ReserveOp(1, 1) { size: u64, entries: u32, } }
record! {
    /// What `reserve` answers and `abort` takes.
    Id(1, 1) { id: u32, }
}
record! { CommitOp(1, 1) { id: u32, entries: Vec<Bytes>, } }
record! { ExpireOp(1, 1) { before: UTime, } }
record! { ReservationsRet(1, 1) { reservations: Reservations, } }
record! { RemoveOp(2, 1) { end: Bytes, count: u32 = 2, } }
record! { StatsRet(1, 1) { size: u64, entries: u32, } }

fn load(o: &mut dyn Object) -> OpResult<(Head, Reserved)> {
    let head = read_head(o)?;
    let reserved = params(&head.user_data)?;
    Ok((head, reserved))
}

fn save(o: &mut dyn Object, mut head: Head, reserved: &Reserved) -> OpResult<Reply> {
    head.user_data = reserved.to_bytes();
    write_head(o, &head)
}

/// The reservations in the attribute.
fn load_more(o: &mut dyn Object) -> OpResult<Reservations> {
    match o.attr(ATTR) {
        Ok(raw) => params(&raw),
        Err(Errno::NODATA | Errno::NOENT) => Ok(Reservations::new()),
        Err(e) => Err(e),
    }
}

fn init(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: InitOp = params(input)?;
    let user_data = Reserved::default().to_bytes();
    queue::init(o, InitOp { size: op.size, user_room: USER_ROOM, user_data })
}

/// Bytes and entries in the queue.
fn stats(o: &mut dyn Object, _: &Bytes) -> OpResult<Reply> {
    let (head, reserved) = load(o)?;
    let size = head.size - head.room - head.free();
    answer(&StatsRet { size, entries: reserved.committed })
}

fn reserve(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: ReserveOp = params(input)?;
    if op.size == 0 || op.entries == 0 {
        return Err(Errno::INVAL);
    }
    let (head, mut reserved) = load(o)?;
    let overhead = u64::from(op.entries) * OVERHEAD;
    let wanted = op.size.checked_add(overhead).ok_or(Errno::NOSPC)?;
    if wanted.checked_add(reserved.size).is_none_or(|sum| sum > head.free()) {
        return Err(Errno::NOSPC);
    }
    reserved.size += wanted;
    reserved.last_id = reserved.last_id.wrapping_add(1);
    let id = reserved.last_id;
    let reservation = Reservation { size: op.size, time: o.now(), entries: op.entries };
    if reserved.reservations.insert(id, reservation.clone()).is_some() {
        return Err(Errno::AGAIN);
    }
    if reserved.to_bytes().len() as u64 > head.user_room {
        let mut more = load_more(o)?;
        if more.insert(id, reservation).is_some() {
            return Err(Errno::AGAIN);
        }
        o.set_attr(ATTR, more.to_bytes())?;
        reserved.has_more = true;
        reserved.reservations.remove(&id);
    }
    save(o, head, &reserved)?;
    answer(&Id { id })
}

/// Takes a reservation out of head or attribute.
fn take(o: &mut dyn Object, reserved: &mut Reserved, id: u32) -> OpResult<Option<Reservation>> {
    if let Some(found) = reserved.reservations.remove(&id) {
        return Ok(Some(found));
    }
    if !reserved.has_more {
        return Ok(None);
    }
    let mut more = load_more(o)?;
    let found = more.remove(&id);
    if found.is_some() {
        o.set_attr(ATTR, more.to_bytes())?;
    }
    Ok(found)
}

/// What a reservation takes of the ring.
fn taken(r: &Reservation) -> u64 {
    r.size.saturating_add(u64::from(r.entries) * OVERHEAD)
}

fn commit(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: CommitOp = params(input)?;
    let (mut head, mut reserved) = load(o)?;
    let found = take(o, &mut reserved, op.id)?.ok_or(Errno::NOENT)?;
    let size: u64 = op.entries.iter().map(|data| data.len() as u64).sum();
    if found.size < size {
        return Err(Errno::INVAL);
    }
    queue::enqueue(o, op.entries, &mut head)?;
    reserved.size = reserved.size.saturating_sub(taken(&found));
    reserved.committed = reserved.committed.wrapping_add(found.entries);
    save(o, head, &reserved)
}

fn abort(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: Id = params(input)?;
    let (head, mut reserved) = load(o)?;
    let Some(found) = take(o, &mut reserved, op.id)? else { return Ok(DONE) };
    reserved.size = reserved.size.saturating_sub(taken(&found));
    save(o, head, &reserved)
}

fn list_reservations(o: &mut dyn Object, _: &Bytes) -> OpResult<Reply> {
    let (_, mut reserved) = load(o)?;
    if reserved.has_more {
        for (id, more) in load_more(o)? {
            reserved.reservations.entry(id).or_insert(more);
        }
    }
    answer(&ReservationsRet { reservations: reserved.reservations })
}

fn remove_entries(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: RemoveOp = params(input)?;
    let (mut head, mut reserved) = load(o)?;
    let mut count = op.count;
    if count == 0 {
        // Callers of old do not say how many entries go.
        let all = ListOp { max: u64::MAX, start: Bytes::new(), end: op.end.clone() };
        count = queue::list(o, &all, &head)?.entries.len() as u32;
    }
    queue::remove(o, &op.end, &mut head)?;
    reserved.committed = reserved.committed.wrapping_sub(count);
    save(o, head, &reserved)
}

fn expire(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: ExpireOp = params(input)?;
    let (head, mut reserved) = load(o)?;
    let mut freed = 0u64;
    let mut stale = |r: &Reservation| {
        let is_stale = r.time < op.before;
        if is_stale {
            freed = freed.saturating_add(taken(r));
        }
        is_stale
    };
    let before = reserved.reservations.len();
    reserved.reservations.retain(|_, r| !stale(r));
    let mut changed = reserved.reservations.len() < before;
    if reserved.has_more {
        let mut more = load_more(o)?;
        let before = more.len();
        more.retain(|_, r| !stale(r));
        if more.len() < before {
            changed = true;
            o.set_attr(ATTR, more.to_bytes())?;
        }
    }
    if !changed {
        return Ok(DONE);
    }
    reserved.size = reserved.size.saturating_sub(freed);
    save(o, head, &reserved)
}
