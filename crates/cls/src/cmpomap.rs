//! `cmpomap`: comparisons with values of the omap, and changes where they hold.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use bytes::Bytes;
use denc::{Denc, Reader};
use types::{Errno, OpResult};

use crate::keys::absent;
use crate::{Class, DONE, Object, READS, Reply, WRITES, method, params, record};

pub(crate) const CLASS: Class = Class {
    name: "cmpomap",
    methods: &[
        method("cmp_vals", READS, cmp_vals),
        method("cmp_set_vals", READS | WRITES, cmp_set_vals),
        method("cmp_rm_keys", READS | WRITES, cmp_rm_keys),
    ],
};

const MODE_STRING: u8 = 1;
const MODE_U64: u8 = 2;

record! {
    /// Of `cmp_vals` and `cmp_set_vals`.
    CompareOp(1, 1) {
        mode: u8,
        comparison: u8,
        values: BTreeMap<Bytes, Bytes>,
        default: Option<Bytes>,
    }
}
record! { RemoveOp(1, 1) { mode: u8, comparison: u8, values: BTreeMap<Bytes, Bytes>, } }

/// Whether the input compares with a stored value as asked.
fn holds(mode: u8, comparison: u8, input: &Bytes, value: &Bytes) -> OpResult<bool> {
    let order = match mode {
        MODE_STRING => input.cmp(value),
        MODE_U64 => {
            let input = u64::decode(&mut Reader::new(input)).map_err(|_| Errno::INVAL)?;
            // An empty value counts as zero.
            let value = if value.is_empty() {
                0
            } else {
                u64::decode(&mut Reader::new(value)).map_err(|_| Errno::IO)?
            };
            input.cmp(&value)
        }
        _ => return Err(Errno::INVAL),
    };
    Ok(match comparison {
        1 => order == Ordering::Equal,
        2 => order != Ordering::Equal,
        3 => order == Ordering::Greater,
        4 => order != Ordering::Less,
        5 => order == Ordering::Less,
        6 => order != Ordering::Greater,
        _ => return Err(Errno::INVAL),
    })
}

/// As [`holds`]; a stored value that is no number does not compare.
fn holds_or_not(mode: u8, comparison: u8, input: &Bytes, value: &Bytes) -> OpResult<bool> {
    match holds(mode, comparison, input, value) {
        Err(Errno::IO) => Ok(false),
        other => other,
    }
}

/// The stored values; ENOENT without the object.
fn values_of(
    o: &mut dyn Object,
    wanted: &BTreeMap<Bytes, Bytes>,
) -> OpResult<BTreeMap<Bytes, Bytes>> {
    o.stat()?;
    let mut found = BTreeMap::new();
    for key in wanted.keys() {
        if let Some(value) = absent(o.omap_get(key))? {
            found.insert(key.clone(), value);
        }
    }
    Ok(found)
}

fn cmp_vals(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: CompareOp = params(input)?;
    let found = values_of(o, &op.values)?;
    for (key, wanted) in &op.values {
        let value = found.get(key).or(op.default.as_ref()).ok_or(Errno::CANCELED)?;
        if !holds(op.mode, op.comparison, wanted, value)? {
            return Err(Errno::CANCELED);
        }
    }
    Ok(DONE)
}

fn cmp_set_vals(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: CompareOp = params(input)?;
    // Where the object is not there, neither are its values.
    let found = absent(values_of(o, &op.values))?.unwrap_or_default();
    let mut set = Vec::new();
    for (key, input) in op.values {
        let Some(value) = found.get(&key).or(op.default.as_ref()) else { continue };
        if holds_or_not(op.mode, op.comparison, &input, value)? {
            set.push((key, input));
        }
    }
    if !set.is_empty() {
        o.omap_set(set)?;
    }
    Ok(DONE)
}

fn cmp_rm_keys(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: RemoveOp = params(input)?;
    let found = absent(values_of(o, &op.values))?.unwrap_or_default();
    let mut rm = Vec::new();
    for (key, input) in op.values {
        let Some(value) = found.get(&key) else { continue };
        if holds_or_not(op.mode, op.comparison, &input, value)? {
            rm.push(key);
        }
    }
    if !rm.is_empty() {
        o.omap_rm(rm)?;
    }
    Ok(DONE)
}
