//! `refcount`: an object that goes with the last tag that refers to it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use denc::{DecodeError, Denc, Reader, Writer};
use types::{Errno, OpResult};

use crate::{Class, DONE, Object, READS, Reply, WRITES, method, params, record, stored};

pub(crate) const CLASS: Class = Class {
    name: "refcount",
    methods: &[
        method("get", READS | WRITES, get),
        method("put", READS | WRITES, put),
        method("set", READS | WRITES, set),
        method("read", READS, read),
    ],
};

const ATTR: &[u8] = b"refcount";

record! { TagOp(1, 1) { tag: Bytes, implicit: bool, } }
record! { Refs(1, 1) { refs: Vec<Bytes>, } }
record! { ReadOp(1, 1) { implicit: bool, } }

#[derive(Default)]
pub(crate) struct Count {
    refs: BTreeMap<Bytes, bool>,
    retired: BTreeSet<Bytes>,
}

impl Denc for Count {
    fn encode(&self, w: &mut Writer) {
        w.framed(2, 1, |w| {
            self.refs.encode(w);
            self.retired.encode(w);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("obj_refcount", 2, |r, v| {
            let refs = Denc::decode(r)?;
            let retired = if v >= 2 { Denc::decode(r)? } else { BTreeSet::new() };
            Ok(Self { refs, retired })
        })
    }
}

fn load(o: &mut dyn Object, implicit: bool) -> OpResult<Count> {
    match o.attr(ATTR) {
        Ok(raw) => stored(&raw),
        Err(Errno::NODATA) => {
            let mut count = Count::default();
            if implicit {
                count.refs.insert(Bytes::new(), true);
            }
            Ok(count)
        }
        Err(e) => Err(e),
    }
}

fn save(o: &mut dyn Object, count: &Count) -> OpResult<Reply> {
    o.set_attr(ATTR, count.to_bytes())?;
    Ok(DONE)
}

fn get(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: TagOp = params(input)?;
    let mut count = load(o, op.implicit)?;
    count.refs.insert(op.tag, true);
    save(o, &count)
}

fn put(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: TagOp = params(input)?;
    let mut count = load(o, op.implicit)?;
    if count.refs.is_empty() {
        return Err(Errno::INVAL);
    }
    let found = [op.tag.clone(), Bytes::new()]
        .into_iter()
        .take(if op.implicit { 2 } else { 1 })
        .find(|tag| count.refs.contains_key(tag));
    let Some(found) = found.filter(|_| !count.retired.contains(&op.tag)) else { return Ok(DONE) };
    count.retired.insert(op.tag);
    count.refs.remove(&found);
    if count.refs.is_empty() {
        o.remove()?;
        return Ok(DONE);
    }
    save(o, &count)
}

fn set(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: Refs = params(input)?;
    if op.refs.is_empty() {
        o.remove()?;
        return Ok(DONE);
    }
    let refs = op.refs.into_iter().map(|tag| (tag, true)).collect();
    save(o, &Count { refs, retired: BTreeSet::new() })
}

fn read(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: ReadOp = params(input)?;
    let count = load(o, op.implicit)?;
    Ok(Refs { refs: count.refs.into_keys().collect() }.to_bytes().into())
}
