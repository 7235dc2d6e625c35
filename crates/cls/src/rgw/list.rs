//! Listing a bucket: plain entries in order, of versions the current one or all.

use std::collections::BTreeMap;

use bytes::Bytes;
use denc::Denc;
use types::{Errno, OpResult};

use super::index::read_header;
use super::keys::{self, after_delimiter, after_versions, instance_key, list_key, name_of};
use super::types::{Dir, DirEntry, Key, flag};
use crate::keys::{absent, answer, read};
use crate::{Object, Page, Reply, params, record, stored};

/// Reads of the omap in one call, so that it ends where few entries are to be shown.
const READS_MAX: usize = 8;

record! {
    /// `rgw_cls_list_op`.
    ListOp(6, 4) {
        max: u32,
        prefix: Bytes,
        start_after: Key,
        list_versions: bool = 5,
        delimiter: Bytes = 6,
    }
}
record! {
    /// `rgw_cls_list_ret`.
    ListRet(4, 2) { dir: Dir, truncated: bool, marker: Key = 4, }
}

/// Where a listing goes on after a version, or after an object.
fn start_key(o: &mut dyn Object, after: &Key) -> OpResult<Bytes> {
    if after.instance.is_empty() {
        return Ok(after.name.clone());
    }
    let mut key = after.clone();
    if key.instance == "null" {
        key.instance = Bytes::new();
    }
    Ok(match absent(read::<DirEntry>(o, &instance_key(&key)))? {
        Some(entry) => list_key(&entry),
        None => after_versions(&after.name),
    })
}

/// Pairs of plain entries; the region of special keys is passed over.
fn plain_page(o: &mut dyn Object, after: &[u8], prefix: &[u8], max: u64) -> OpResult<Page> {
    let (mut pairs, more) = o.omap_page(after, prefix, max)?;
    let has_special = pairs.iter().any(|(key, _)| !keys::is_plain(key));
    if !has_special {
        return Ok((pairs, more));
    }
    pairs.retain(|(key, _)| keys::is_plain(key));
    if !more || pairs.len() as u64 >= max {
        return Ok((pairs, more));
    }
    let behind: &[u8] = &[keys::SPECIAL + 1];
    let last = pairs.last().map_or(behind, |(key, _)| key.as_ref());
    let after = Bytes::copy_from_slice(last.max(behind));
    let (rest, more) = o.omap_page(&after, prefix, max - pairs.len() as u64)?;
    pairs.extend(rest);
    Ok((pairs, more))
}

fn common_prefix(name: &[u8], op: &ListOp) -> Option<Bytes> {
    let rest = name.get(op.prefix.len()..)?;
    let len = op.delimiter.len();
    if len == 0 {
        return None;
    }
    let at = rest.windows(len).position(|w| w == op.delimiter)?;
    Some(Bytes::copy_from_slice(&name[..op.prefix.len() + at + len]))
}

pub(super) fn list(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: ListOp = params(input)?;
    let header = read_header(o)?;
    let mut entries = BTreeMap::new();
    if op.max == 0 {
        let dir = Dir { header, entries };
        return answer(&ListRet { dir, ..ListRet::default() });
    }
    let max = op.max as usize;
    let has_delimiter = !op.delimiter.is_empty();
    let mut after = start_key(o, &op.start_after)?;
    if has_delimiter && after > op.prefix && after.ends_with(&op.delimiter) {
        after = after_delimiter(&after);
    }
    let mut marker = Key::default();
    let (mut more, mut is_done) = (true, false);
    let mut last_prefix = Bytes::new();
    for _ in 0..READS_MAX {
        if !more || is_done || entries.len() >= max {
            break;
        }
        let (pairs, is_more) = plain_page(o, &after, &op.prefix, (max - entries.len()) as u64)?;
        more = is_more;
        is_done = pairs.is_empty();
        let mut at = 0;
        while let Some((key, value)) = pairs.get(at) {
            let entry: DirEntry = stored(value).map_err(|_| Errno::INVAL)?;
            after = key.clone();
            marker = entry.key.clone();
            at += 1;
            let Some(name) = name_of(key) else { continue };
            if !entry.is_valid() {
                continue;
            }
            let skip_to =
                if !op.list_versions && (!entry.is_visible() || op.start_after.name == name) {
                    after_versions(&name)
                } else if let Some(common) = common_prefix(&name, &op) {
                    if common == last_prefix {
                        continue;
                    }
                    let key = Key { name: common.clone(), instance: Bytes::new() };
                    let flags = flag::COMMON_PREFIX;
                    entries.insert(common.clone(), DirEntry { key, flags, ..DirEntry::default() });
                    let skip_to = after_delimiter(&common);
                    last_prefix = common;
                    skip_to
                } else {
                    entries.insert(key.clone(), entry);
                    continue;
                };
            at = at.max(pairs.partition_point(|(key, _)| *key < skip_to));
            marker = Key { name: skip_to.clone(), instance: Bytes::new() };
            after = skip_to;
        }
    }
    let truncated = more && !is_done;
    if !truncated {
        marker = Key::default();
    }
    let has_none = entries.is_empty();
    let dir = Dir { header, entries };
    let data = ListRet { dir, truncated, marker }.to_bytes();
    // The caller asks again from the marker on.
    let value = if truncated && has_none { Errno::FBIG.0 } else { 0 };
    Ok(Reply { value, data })
}
