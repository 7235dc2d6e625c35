//! `timeindex`: values under keys that begin with a time.

use bytes::Bytes;
use types::{Errno, OpResult, UTime};

use crate::keys::{absent, answer};
use crate::{Class, DONE, Object, READS, Reply, WRITES, method, params, record};

pub(crate) const CLASS: Class = Class {
    name: "timeindex",
    methods: &[
        method("add", READS | WRITES, add),
        method("list", READS, list),
        method("trim", READS | WRITES, trim),
    ],
};

const PREFIX: &[u8] = b"1_";
const AT_ONCE_MAX: u64 = 1000;
const NAME_MAX: usize = 255;

record! { Entry(1, 1) { time: UTime, name: Bytes, value: Bytes, } }
record! { AddOp(1, 1) { entries: Vec<Entry>, } }
record! { ListOp(1, 1) { from: UTime, marker: Bytes, to: UTime, max: i32, } }
record! { Listed(1, 1) { entries: Vec<Entry>, marker: Bytes, truncated: bool, } }
record! {
    TrimOp(1, 1) { from: UTime, to: UTime, from_marker: Bytes, to_marker: Bytes, }
}

/// What the keys of a time begin with; also in the class `log`.
pub(crate) fn time_prefix(t: UTime) -> String {
    format!("1_{:010}.{:06}_", t.sec, t.nsec / 1000)
}

/// Whether a key reaches a bound, compared as far as the bound is long.
fn cut<'a>(key: &'a [u8], bound: &[u8]) -> &'a [u8] {
    &key[..key.len().min(bound.len())]
}

/// Time and name in a key. The peer's does not read microseconds as such: it takes them
/// for nanoseconds, and names only up to the first blank.
fn parse(key: &[u8]) -> Option<(UTime, Bytes)> {
    let rest = key.strip_prefix(PREFIX)?;
    let at = rest.iter().position(|c| *c == b'_')?;
    let (sec, nsec) = std::str::from_utf8(&rest[..at]).ok()?.split_once('.')?;
    let name = &rest[at + 1..];
    let end = name.iter().position(u8::is_ascii_whitespace).unwrap_or(name.len());
    let name = Bytes::copy_from_slice(&name[..end.min(NAME_MAX)]);
    Some((UTime { sec: sec.parse().ok()?, nsec: nsec.parse().ok()? }, name))
}

fn add(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: AddOp = params(input)?;
    let pairs: Vec<_> = op
        .entries
        .into_iter()
        .map(|e| ([time_prefix(e.time).as_bytes(), &e.name].concat().into(), e.value))
        .collect();
    if !pairs.is_empty() {
        o.omap_set(pairs)?;
    }
    Ok(DONE)
}

fn from(marker: Bytes, time: UTime) -> Bytes {
    if marker.is_empty() { time_prefix(time).into() } else { marker }
}

fn list(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: ListOp = params(input)?;
    let from = from(op.marker, op.from);
    let to = (op.to >= op.from).then(|| time_prefix(op.to));
    // A negative number is a large one.
    let max = (op.max as u32 as u64).min(AT_ONCE_MAX);
    let (pairs, mut truncated) = o.omap_page(&from, PREFIX, max)?;
    let mut entries = Vec::new();
    let mut marker = Bytes::new();
    for (key, value) in pairs {
        marker.clone_from(&key);
        if to.as_ref().is_some_and(|to| cut(&key, to.as_bytes()) >= to.as_bytes()) {
            truncated = false;
            break;
        }
        if let Some((time, name)) = parse(&key) {
            entries.push(Entry { time, name, value });
        }
    }
    answer(&Listed { entries, marker, truncated })
}

fn trim(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: TrimOp = params(input)?;
    let from = from(op.from_marker, op.from);
    let to = self::from(op.to_marker, op.to);
    let (pairs, _) = absent(o.omap_page(&from, PREFIX, AT_ONCE_MAX))?.unwrap_or_default();
    let gone: Vec<_> =
        pairs.into_iter().map(|(key, _)| key).take_while(|key| cut(key, &to) <= &to[..]).collect();
    if gone.is_empty() {
        return Err(Errno::NODATA);
    }
    o.omap_rm(gone)?;
    Ok(DONE)
}
