//! `log`: entries in the order of their times; the omap's header knows the newest.

use bytes::Bytes;
use denc::{DecodeError, Denc, Reader, Writer};
use types::{Errno, OpResult, UTime};

use crate::keys::{absent, answer};
use crate::timeindex::time_prefix;
use crate::{Class, DONE, Object, READS, Reply, WRITES, method, params, record, stored};

pub(crate) const CLASS: Class = Class {
    name: "log",
    methods: &[
        method("add", READS | WRITES, add),
        method("list", READS, list),
        method("trim", READS | WRITES, trim),
        method("info", READS, info),
    ],
};

const PREFIX: &[u8] = b"1_";
const AT_ONCE_MAX: u64 = 1000;

record! {
    /// `cls_log_entry`.
    Entry(2, 1) { section: Bytes, name: Bytes, time: UTime, data: Bytes, id: Bytes = 2, }
}
record! {
    /// `cls_log_header`.
    Header(1, 1) { max_marker: Bytes, max_time: UTime, }
}
record! { ListOp(1, 1) { from: UTime, marker: Bytes, to: UTime, max: i32, } }
record! { Listed(1, 1) { entries: Vec<Entry>, marker: Bytes, truncated: bool, } }
record! {
    TrimOp(2, 1) { from: UTime, to: UTime, from_marker: Bytes = 2, to_marker: Bytes = 2, }
}
record! { InfoOp(1, 1) { } }
record! { Info(1, 1) { header: Header, } }

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AddOp {
    pub(crate) entries: Vec<Entry>,
    /// Times before the newest are raised to it.
    pub(crate) monotonic: bool,
}

impl Denc for AddOp {
    fn encode(&self, w: &mut Writer) {
        w.framed(2, 1, |w| {
            self.entries.encode(w);
            self.monotonic.encode(w);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("cls_log_add_op", 2, |r, v| {
            Ok(Self { entries: Denc::decode(r)?, monotonic: if v >= 2 { r.bool()? } else { true } })
        })
    }
}

/// The header; the default when there is none or it makes no sense.
fn header(o: &mut dyn Object) -> OpResult<Header> {
    let raw = o.omap_header()?;
    Ok(if raw.is_empty() { Header::default() } else { stored(&raw).unwrap_or_default() })
}

fn add(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: AddOp = params(input)?;
    let mut header = absent(header(o))?.unwrap_or_default();
    let mut pairs: Vec<(Bytes, Bytes)> = Vec::with_capacity(op.entries.len());
    // Entries of one vector share its version: which of its operations this is tells them apart,
    // and within one call a number does. What the vector wrote before cannot be seen from here.
    let call = format!("{}.{}", o.pg_version(), o.op_index());
    let mut number = 0u64;
    for mut entry in op.entries {
        let mut time = entry.time;
        if op.monotonic && time < header.max_time {
            time = header.max_time;
        } else if time > header.max_time {
            header.max_time = time;
        }
        if entry.id.is_empty() {
            loop {
                let prefix = time_prefix(time);
                entry.id = match number {
                    0 => format!("{prefix}{call}").into(),
                    n => format!("{prefix}{call}.{n}").into(),
                };
                number += 1;
                if absent(o.omap_get(&entry.id))?.is_none() {
                    break;
                }
            }
        }
        if entry.id > header.max_marker {
            header.max_marker.clone_from(&entry.id);
        }
        pairs.push((entry.id.clone(), entry.to_bytes()));
    }
    if !pairs.is_empty() {
        o.omap_set(pairs)?;
    }
    o.omap_set_header(header.to_bytes())?;
    Ok(DONE)
}

fn list(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: ListOp = params(input)?;
    let from = if op.marker.is_empty() { time_prefix(op.from).into() } else { op.marker };
    let to = (!op.from.is_zero() && op.to >= op.from).then(|| time_prefix(op.to));
    let max = match op.max as u32 as u64 {
        0 => AT_ONCE_MAX,
        max => max.min(AT_ONCE_MAX),
    };
    let (pairs, mut truncated) = o.omap_page(&from, PREFIX, max)?;
    let mut entries = Vec::new();
    let mut marker = Bytes::new();
    for (key, value) in pairs {
        marker.clone_from(&key);
        if to.as_ref().is_some_and(|to| key[..key.len().min(to.len())] >= *to.as_bytes()) {
            truncated = false;
            break;
        }
        entries.extend(stored::<Entry>(&value).ok());
    }
    answer(&Listed { entries, marker, truncated })
}

fn trim(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: TrimOp = params(input)?;
    let from = if op.from_marker.is_empty() { time_prefix(op.from).into() } else { op.from_marker };
    // The end is included.
    let to: Bytes = if op.to_marker.is_empty() {
        let end = UTime::from_nanos(op.to.nanos().saturating_add(1_000_000));
        time_prefix(end).into()
    } else {
        [&op.to_marker[..], b"\0"].concat().into()
    };
    let (first, _) = absent(o.omap_page(&from, b"", 1))?.unwrap_or_default();
    let Some((first, _)) = first.into_iter().next().filter(|(key, _)| *key <= to) else {
        return Err(Errno::NODATA);
    };
    o.omap_rm_range(first, to)?;
    Ok(DONE)
}

fn info(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let _: InfoOp = params(input)?;
    let header = header(o)?;
    answer(&Info { header })
}
