//! `rgw_gc`: the S3 gateway's queue of what is to be deleted later, in a
//! [`queue`](crate::queue). A deletion may be put off: then its tag is in the queue's head
//! with the new time, or, where the head is full, in an attribute.

use std::collections::BTreeMap;

use bytes::Bytes;
use denc::Denc;
use types::{Errno, OpResult, UTime};

use crate::keys::answer;
use crate::queue::{self, Head, InitOp, ListOp, read_head, write_head};
use crate::{Class, Object, READS, Reply, WRITES, method, params, record};

pub(crate) const CLASS: Class = Class {
    name: "rgw_gc",
    methods: &[
        method("rgw_gc_queue_init", READS | WRITES, init),
        method("rgw_gc_queue_enqueue", READS | WRITES, enqueue),
        method("rgw_gc_queue_list_entries", READS, list),
        method("rgw_gc_queue_remove_entries", READS | WRITES, remove),
        method("rgw_gc_queue_update_entry", READS | WRITES, update),
    ],
};

const ATTR: &[u8] = b"cls_queue_urgent_data";
/// Room for deferred tags in the head, bytes: `rgw_gc_max_deferred_entries_size`.
const USER_ROOM: u64 = 3072;
/// Entries where the caller does not say how many.
const LIST_DEFAULT: u64 = 128;
/// Entries that one call looks at, so that it ends.
const LOOKED_AT_MAX: u64 = 100_000;

record! {
    /// `rgw_obj_index_key`, also called `cls_rgw_obj_key`.
    Key(1, 1) { name: Bytes, instance: Bytes, }
}
record! {
    /// `cls_rgw_obj`.
    Target(2, 1) { pool: Bytes, name: Bytes, loc: Bytes, key: Key = 2, }
}
record! {
    /// `cls_rgw_obj_chain`.
    Chain(1, 1) { objs: Vec<Target>, }
}
record! {
    /// `cls_rgw_gc_obj_info`.
    Info(1, 1) { tag: Bytes, chain: Chain, time: UTime, }
}
type Tags = BTreeMap<Bytes, UTime>;
record! {
    /// `cls_rgw_gc_urgent_data`.
    Deferred(1, 1) { tags: Tags, max: u32, in_head: u32, in_attr: u32, }
}
record! { Init(1, 1) { size: u64, deferred_max: u64, } }
record! {
    /// What `enqueue` and `update_entry` take.
    SetEntry(1, 1) { expiration_s: u32, info: Info, }
}
record! {
    /// `cls_rgw_gc_list_op`.
    List(2, 1) { marker: Bytes, max: u32, expired_only: bool = 2, }
}
record! {
    /// `cls_rgw_gc_list_ret`.
    Listed(2, 1) { entries: Vec<Info>, next: Bytes, truncated: bool, }
}
record! { Remove(1, 1) { count: u64, } }

fn load(o: &mut dyn Object) -> OpResult<(Head, Deferred)> {
    let head = read_head(o)?;
    let deferred =
        if head.user_data.is_empty() { Deferred::default() } else { params(&head.user_data)? };
    Ok((head, deferred))
}

fn save(o: &mut dyn Object, mut head: Head, deferred: &Deferred) -> OpResult<Reply> {
    head.user_data = deferred.to_bytes();
    write_head(o, &head)
}

fn attr_tags(o: &mut dyn Object) -> OpResult<Option<Tags>> {
    match o.attr(ATTR) {
        Ok(raw) => params(&raw).map(Some),
        Err(Errno::NOENT | Errno::NODATA) => Ok(None),
        Err(e) => Err(e),
    }
}

/// When the entry's tag was put off to, if it was.
fn put_off_to(deferred: &Deferred, attr: Option<&Tags>, tag: &Bytes) -> Option<UTime> {
    deferred.tags.get(tag).or_else(|| attr?.get(tag)).copied()
}

fn later(time: UTime, secs: u32) -> UTime {
    UTime { sec: time.sec.saturating_add(secs), ..time }
}

fn init(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: Init = params(input)?;
    let max = u32::try_from(op.deferred_max).unwrap_or(u32::MAX);
    let deferred = Deferred { max, ..Deferred::default() };
    let user_data = deferred.to_bytes();
    queue::init(o, InitOp { size: op.size, user_room: USER_ROOM, user_data })
}

fn enqueue(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let mut op: SetEntry = params(input)?;
    op.info.time = later(o.now(), op.expiration_s);
    let mut head = read_head(o)?;
    queue::enqueue(o, vec![op.info.to_bytes()], &mut head)?;
    write_head(o, &head)
}

/// Entries that were not put off.
fn list(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: List = params(input)?;
    let (head, deferred) = load(o)?;
    let attr = if deferred.in_attr > 0 { attr_tags(o)? } else { None };
    let max = if op.max == 0 { LIST_DEFAULT } else { u64::from(op.max) };
    let mut page = ListOp { max, start: op.marker, ..ListOp::default() };
    let now = o.now();
    let mut ret = Listed::default();
    let (mut count, mut looked_at) = (0, 0);
    loop {
        let found = queue::list(o, &page, &head)?;
        ret.truncated = found.truncated;
        ret.next = found.next.clone();
        for entry in &found.entries {
            let info: Info = params(&entry.data)?;
            looked_at += 1;
            let put_off = put_off_to(&deferred, attr.as_ref(), &info.tag);
            if put_off.is_some_and(|time| time > info.time) {
                continue;
            }
            count += 1;
            if !op.expired_only || info.time <= now {
                ret.entries.push(info);
            }
        }
        let enough = count >= max || looked_at >= LOOKED_AT_MAX;
        if enough || found.entries.is_empty() || !found.truncated {
            break;
        }
        page.max = max - count;
        page.start = found.next;
    }
    if !ret.truncated {
        ret.next = Bytes::new();
    }
    answer(&ret)
}

/// Removes so many entries that were not put off, and those between them.
fn remove(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: Remove = params(input)?;
    let (mut head, mut deferred) = load(o)?;
    let mut attr = if deferred.in_attr > 0 { attr_tags(o)? } else { None };
    let mut attr_changed = false;
    // One more tells where to end.
    let wanted = if op.count == 0 { LIST_DEFAULT } else { op.count }.saturating_add(1);
    let mut page = ListOp { max: wanted, ..ListOp::default() };
    let (mut count, mut end) = (0, None);
    loop {
        let found = queue::list(o, &page, &head)?;
        for entry in &found.entries {
            let info: Info = params(&entry.data)?;
            match put_off_to(&deferred, attr.as_ref(), &info.tag) {
                Some(time) if time > info.time => continue,
                Some(time) if time == info.time => {
                    // This is the entry that it was put off to.
                    if deferred.tags.remove(&info.tag).is_some() {
                        deferred.in_head = deferred.in_head.saturating_sub(1);
                    } else if attr.as_mut().is_some_and(|tags| tags.remove(&info.tag).is_some()) {
                        deferred.in_attr = deferred.in_attr.saturating_sub(1);
                        attr_changed = true;
                    }
                }
                _ => {}
            }
            count += 1;
        }
        let Some(last) = found.entries.last() else { break };
        if count >= wanted {
            end = Some(last.marker.clone());
            break;
        }
        if !found.truncated {
            end = Some(found.next);
            break;
        }
        page.max = wanted - count;
        page.start = found.next;
    }
    if let Some(end) = end {
        queue::remove(o, &end, &mut head)?;
    }
    if let Some(tags) = attr.filter(|_| attr_changed) {
        o.set_attr(ATTR, tags.to_bytes())?;
    }
    save(o, head, &deferred)
}

/// Puts an entry off.
fn update(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: SetEntry = params(input)?;
    let time = later(o.now(), op.expiration_s);
    let tag = op.info.tag;
    let head = read_head(o)?;
    let mut deferred: Deferred = params(&head.user_data)?;
    let attr = attr_tags(o)?;
    if let Some(slot) = deferred.tags.get_mut(&tag) {
        *slot = time;
    } else if attr.as_ref().is_some_and(|tags| tags.contains_key(&tag)) {
        let mut tags = attr.unwrap_or_default();
        tags.insert(tag, time);
        o.set_attr(ATTR, tags.to_bytes())?;
    } else {
        deferred.tags.insert(tag.clone(), time);
        deferred.in_head += 1;
        if deferred.to_bytes().len() as u64 > head.user_room {
            deferred.tags.remove(&tag);
            deferred.in_head -= 1;
            let mut tags = attr.unwrap_or_default();
            tags.insert(tag, time);
            deferred.in_attr += 1;
            o.set_attr(ATTR, tags.to_bytes())?;
        }
    }
    if deferred.in_head.saturating_add(deferred.in_attr) > deferred.max {
        return Err(Errno::NOSPC);
    }
    save(o, head, &deferred)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Mem;

    fn entry(tag: &'static str, expiration_s: u32) -> SetEntry {
        let info = Info { tag: Bytes::from_static(tag.as_bytes()), ..Info::default() };
        SetEntry { expiration_s, info }
    }

    fn tags(o: &mut Mem, expired_only: bool) -> Vec<Bytes> {
        let op = List { max: 10, expired_only, ..List::default() };
        let ret: Listed = o.ask("rgw_gc", "rgw_gc_queue_list_entries", &op).unwrap();
        ret.entries.into_iter().map(|info| info.tag).collect()
    }

    /// Entries come when their time has come, unless they were put off; many of those go to
    /// the attribute, and too many are refused.
    #[test]
    fn deletions_wait() {
        let mut o = Mem::created();
        let init = Init { size: 100_000, deferred_max: 100 };
        o.run("rgw_gc", "rgw_gc_queue_init", &init).unwrap();
        for (tag, secs) in [("a", 0), ("b", 0), ("c", 500)] {
            o.run("rgw_gc", "rgw_gc_queue_enqueue", &entry(tag, secs)).unwrap();
        }
        assert_eq!(tags(&mut o, true), ["a", "b"]);
        assert_eq!(tags(&mut o, false), ["a", "b", "c"]);
        o.run("rgw_gc", "rgw_gc_queue_update_entry", &entry("b", 60)).unwrap();
        assert_eq!(tags(&mut o, false), ["a", "c"]);
        o.run("rgw_gc", "rgw_gc_queue_remove_entries", &Remove { count: 1 }).unwrap();
        assert_eq!(tags(&mut o, false), ["c"]);
        o.run("rgw_gc", "rgw_gc_queue_remove_entries", &Remove { count: 5 }).unwrap();
        assert!(tags(&mut o, false).is_empty());

        let mut refused = 0;
        for n in 0..120 {
            let name = format!("{n:0>60}");
            let info = Info { tag: name.into(), ..Info::default() };
            let put_off = SetEntry { expiration_s: 9, info };
            match o.run("rgw_gc", "rgw_gc_queue_update_entry", &put_off) {
                Ok(()) => {}
                Err(e) => {
                    assert_eq!(e, Errno::NOSPC);
                    refused += 1;
                }
            }
        }
        assert_eq!(refused, 21, "100 may be put off, one was before");
        assert!(!Tags::from_bytes(&o.attrs[ATTR]).unwrap().is_empty());
        o.refuses_short_input("rgw_gc", &["rgw_gc_queue_init", "rgw_gc_queue_enqueue"]);
    }
}
