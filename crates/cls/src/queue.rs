//! `queue`: entries in a ring in an object's data, behind a head of fixed room.
//!
//! ```text
//! 0        2       10                room of the head         size
//! | 0xDEAD | length | head, and what its user keeps there ... | ring ... |
//! entry: 0xBEEF, u64 length, bytes; it may wrap at the ring's end.
//! ```
//!
//! A marker is a generation, one more with each turn around the ring, and an offset.

use bytes::{Bytes, BytesMut};
use denc::{DecodeError, Denc, Reader, Writer};
use types::{Errno, OpResult};

use crate::keys::answer;
use crate::{Class, DONE, Object, READS, Reply, WRITES, method, params, record};

pub(crate) const CLASS: Class = Class {
    name: "queue",
    methods: &[
        method("queue_init", READS | WRITES, init_method),
        method("queue_get_capacity", READS, capacity),
        method("queue_enqueue", READS | WRITES, enqueue_method),
        method("queue_list_entries", READS, list_method),
        method("queue_remove_entries", READS | WRITES, remove_method),
    ],
};

const HEAD_ROOM: u64 = 1024;
const HEAD_MAGIC: u16 = 0xDEAD;
const ENTRY_MAGIC: u16 = 0xBEEF;
/// Magic and length before an entry or the head.
pub(crate) const OVERHEAD: u64 = 10;
/// What one listing reads at most, so that it ends.
const LISTED_BYTES_MAX: u64 = 64 << 20;

record! {
    /// `cls_queue_marker`.
    Marker(1, 1) { generation: u64, offset: u64, }
}
record! {
    /// `cls_queue_head`.
    Head(1, 1) {
        room: u64,
        front: Marker,
        tail: Marker,
        size: u64,
        user_room: u64,
        user_data: Bytes,
    }
}
record! { InitOp(1, 1) { size: u64, user_room: u64, user_data: Bytes, } }
record! { EnqueueOp(1, 1) { entries: Vec<Bytes>, } }
record! { ListOp(2, 1) { max: u64, start: Bytes, end: Bytes = 2, } }
record! {
    /// `cls_queue_entry`.
    Entry(1, 1) { data: Bytes, marker: Bytes, }
}
record! { Listed(1, 1) { truncated: bool, next: Bytes, entries: Vec<Entry>, } }
record! { RemoveOp(1, 1) { end: Bytes, } }
record! { CapacityRet(1, 1) { capacity: u64, } }

impl Marker {
    fn text(&self) -> Bytes {
        format!("{}/{}", self.generation, self.offset).into()
    }

    /// Zero for what is no marker.
    fn parse(text: &[u8]) -> Self {
        let parse = || {
            let (generation, offset) = std::str::from_utf8(text).ok()?.split_once('/')?;
            Some(Self { generation: generation.parse().ok()?, offset: offset.parse().ok()? })
        };
        parse().unwrap_or_default()
    }
}

impl Head {
    fn is_empty(&self) -> bool {
        self.front == self.tail
    }

    /// Bytes of the ring that no entry takes.
    pub(crate) fn free(&self) -> u64 {
        // A full ring has its tail where its front is, a turn later.
        if self.tail.offset == self.front.offset && self.tail != self.front {
            return 0;
        }
        if self.tail.offset >= self.front.offset {
            (self.size - self.tail.offset) + (self.front.offset - self.room)
        } else {
            self.front.offset - self.tail.offset
        }
    }

    /// Whether the offsets lie where they may.
    fn is_sound(&self) -> bool {
        let in_ring = |m: &Marker| (self.room..=self.size).contains(&m.offset);
        self.room <= self.size && in_ring(&self.front) && in_ring(&self.tail)
    }

    /// Its bytes without what the user keeps there.
    fn from_start(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let head = Self::decode(r)?;
        r.require(head.is_sound(), "the queue's offsets lie in its ring")?;
        Ok(head)
    }
}

/// The head; EINVAL when there is none yet.
pub(crate) fn read_head(o: &mut dyn Object) -> OpResult<Head> {
    let mut raw = o.read(0, HEAD_ROOM)?;
    let mut r = Reader::shared(&raw);
    if r.u16() != Ok(HEAD_MAGIC) {
        return Err(Errno::INVAL);
    }
    let len = r.u64().map_err(|_| Errno::INVAL)?;
    if len > HEAD_ROOM - OVERHEAD {
        let rest = o.read(HEAD_ROOM, len - (HEAD_ROOM - OVERHEAD))?;
        raw = [raw, rest].concat().into();
    }
    Head::from_start(&mut Reader::shared(&raw.slice(OVERHEAD as usize..))).map_err(|_| Errno::INVAL)
}

pub(crate) fn write_head(o: &mut dyn Object, head: &Head) -> OpResult<Reply> {
    let raw = head.to_bytes();
    let mut w = Writer::with_capacity(o.features(), raw.len() + OVERHEAD as usize);
    w.u16(HEAD_MAGIC);
    w.u64(raw.len() as u64);
    w.raw(&raw);
    o.write(0, w.finish())?;
    Ok(DONE)
}

/// Makes a queue of an object.
///
/// # Errors
/// EEXIST when there is one; ENOENT without the object.
pub(crate) fn init(o: &mut dyn Object, op: InitOp) -> OpResult<Reply> {
    match read_head(o) {
        Ok(_) => return Err(Errno::EXIST),
        // No queue, or no object.
        Err(Errno::INVAL | Errno::NOENT) => {}
        Err(e) => return Err(e),
    }
    let room = HEAD_ROOM.checked_add(op.user_room).ok_or(Errno::INVAL)?;
    let start = Marker { generation: 0, offset: room };
    let head = Head {
        room,
        size: op.size.checked_add(room).ok_or(Errno::INVAL)?,
        user_room: op.user_room,
        user_data: op.user_data,
        front: start.clone(),
        tail: start,
    };
    write_head(o, &head)
}

/// Adds entries; the head is the caller's to write.
///
/// # Errors
/// ENOSPC.
pub(crate) fn enqueue(o: &mut dyn Object, entries: Vec<Bytes>, head: &mut Head) -> OpResult<()> {
    if head.free() == 0 {
        return Err(Errno::NOSPC);
    }
    for data in entries {
        let mut w = Writer::with_capacity(o.features(), data.len() + OVERHEAD as usize);
        w.u16(ENTRY_MAGIC);
        w.u64(data.len() as u64);
        w.raw(&data);
        let entry = w.finish();
        let len = entry.len() as u64;
        let at = head.tail.offset;
        // Where the ring's end comes before its front.
        let until_wrap = if at >= head.front.offset { head.size - at } else { len };
        if len > head.free() {
            return Err(Errno::NOSPC);
        }
        if len <= until_wrap {
            o.write(at, entry)?;
            head.tail.offset += len;
        } else {
            let rest = entry.slice(until_wrap as usize..);
            if until_wrap > 0 {
                o.write(at, entry.slice(..until_wrap as usize))?;
            }
            head.tail.generation += 1;
            head.tail.offset = head.room + rest.len() as u64;
            o.write(head.room, rest)?;
        }
        if head.tail.offset == head.size {
            head.tail = Marker { generation: head.tail.generation + 1, offset: head.room };
        }
    }
    Ok(())
}

/// Bytes of the ring from a place on, over its end if need be.
fn read_ring(o: &mut dyn Object, head: &Head, at: u64, len: u64) -> OpResult<Bytes> {
    let first = len.min(head.size - at);
    let data = o.read(at, first)?;
    if first == len {
        return Ok(data);
    }
    let mut whole = BytesMut::from(&data[..]);
    whole.extend_from_slice(&o.read(head.room, len - first)?);
    Ok(whole.freeze())
}

/// Entries from a marker on, or from the front.
///
/// # Errors
/// EINVAL where there is no entry.
pub(crate) fn list(o: &mut dyn Object, op: &ListOp, head: &Head) -> OpResult<Listed> {
    let mut at = Marker::parse(&op.start);
    if head.is_empty() {
        return Ok(Listed { truncated: false, next: head.front.text(), entries: Vec::new() });
    }
    if at.offset == 0 {
        at = head.front.clone();
    }
    let end = Marker::parse(&op.end);
    let mut ret = Listed::default();
    let mut bytes = 0;
    while at != head.tail {
        if ret.entries.len() as u64 >= op.max && !ret.entries.is_empty()
            || bytes > LISTED_BYTES_MAX
            || end.offset != 0 && at == end
        {
            break;
        }
        let in_ring = (head.room..head.size).contains(&at.offset);
        let used = if (at.generation, at.offset) < (head.tail.generation, head.tail.offset) {
            (head.tail.generation - at.generation)
                .checked_mul(head.size - head.room)
                .and_then(|turns| (turns + head.tail.offset).checked_sub(at.offset))
        } else {
            None
        };
        let Some(used) = used.filter(|_| in_ring) else { return Err(Errno::INVAL) };
        if used < OVERHEAD || used > head.size - head.room {
            return Err(Errno::INVAL);
        }
        let start = read_ring(o, head, at.offset, OVERHEAD)?;
        let mut r = Reader::new(&start);
        let (magic, len) = (r.u16(), r.u64());
        let (Ok(ENTRY_MAGIC), Ok(len)) = (magic, len) else { return Err(Errno::INVAL) };
        if len > used - OVERHEAD {
            return Err(Errno::INVAL);
        }
        let marker = at.text();
        let step = |at: &Marker, n: u64| {
            let offset = at.offset + n;
            if offset >= head.size {
                let offset = offset - head.size + head.room;
                Marker { generation: at.generation + 1, offset }
            } else {
                Marker { generation: at.generation, offset }
            }
        };
        let data = read_ring(o, head, step(&at, OVERHEAD).offset, len)?;
        ret.entries.push(Entry { data, marker });
        bytes += len;
        at = step(&at, OVERHEAD + len);
    }
    ret.truncated = at != head.tail;
    ret.next = at.text();
    Ok(ret)
}

/// Removes the entries before a marker; the head is the caller's to write.
///
/// # Errors
/// EINVAL for a marker that is not in the queue.
pub(crate) fn remove(o: &mut dyn Object, end: &[u8], head: &mut Head) -> OpResult<()> {
    if head.is_empty() {
        return Ok(());
    }
    let end = Marker::parse(end);
    let front = &head.front;
    if end == *front {
        return Ok(());
    }
    if end.generation == front.generation && (front.offset..=head.size).contains(&end.offset) {
        o.zero(front.offset, end.offset - front.offset)?;
    } else if end.generation == front.generation.wrapping_add(1)
        && (head.room..=front.offset).contains(&end.offset)
    {
        if head.size > front.offset {
            o.zero(front.offset, head.size - front.offset)?;
        }
        if end.offset > head.room {
            o.zero(head.room, end.offset - head.room)?;
        }
    } else {
        return Err(Errno::INVAL);
    }
    head.front = end;
    if head.front.offset == head.size {
        head.front = Marker { generation: head.front.generation + 1, offset: head.room };
    }
    Ok(())
}

fn init_method(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    init(o, params(input)?)
}

pub(crate) fn capacity(o: &mut dyn Object, _: &Bytes) -> OpResult<Reply> {
    let head = read_head(o)?;
    answer(&CapacityRet { capacity: head.size - head.room })
}

fn enqueue_method(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: EnqueueOp = params(input)?;
    let mut head = read_head(o)?;
    enqueue(o, op.entries, &mut head)?;
    write_head(o, &head)
}

pub(crate) fn list_method(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: ListOp = params(input)?;
    let head = read_head(o)?;
    answer(&list(o, &op, &head)?)
}

fn remove_method(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: RemoveOp = params(input)?;
    let mut head = read_head(o)?;
    remove(o, &op.end, &mut head)?;
    write_head(o, &head)
}
