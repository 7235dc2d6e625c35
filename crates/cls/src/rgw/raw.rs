//! The index as it is stored: pairs read, written and listed for repair and resharding, and
//! the logs that lie among them.

use std::collections::BTreeMap;

use bytes::Bytes;
use types::{Errno, OpResult};

use super::index::{read_header, write_header};
use super::keys::{self, bi_type, entry_key, is_after, olh_key};
use super::types::{BiEntry, BiLog, DirEntry, Header, Key, Olh, Stats, bi};
use crate::keys::{absent, answer};
use crate::{DONE, Object, Reply, params, record, stored};

/// Entries of one `bi_list`.
const LIST_MAX: u32 = 1000;

record! { GetOp(1, 1) { key: Key, kind: u8, } }
record! {
    /// Of `bi_put`, and what `bi_get` answers.
    EntryOp(1, 1) { entry: BiEntry, }
}
record! { PutEntriesOp(1, 1) { entries: Vec<BiEntry>, check_existing: bool, } }
record! { ListOp(2, 1) { max: u32, name: Bytes, marker: Bytes, reshardlog: bool = 2, } }
record! { ListRet(1, 1) { entries: Vec<BiEntry>, truncated: bool, } }
record! { LogListOp(1, 1) { marker: Bytes, max: u32, } }
record! { LogListRet(1, 1) { entries: Vec<BiLog>, truncated: bool, } }
record! { LogTrimOp(1, 1) { start: Bytes, end: Bytes, } }

pub(super) fn get(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: GetOp = params(input)?;
    let idx = match op.kind {
        bi::PLAIN => op.key.name,
        bi::INSTANCE => entry_key(&op.key),
        bi::OLH => olh_key(&op.key.name),
        _ => return Err(Errno::INVAL),
    };
    let data = o.omap_get(&idx)?;
    answer(&EntryOp { entry: BiEntry { kind: op.kind, idx, data } })
}

pub(super) fn put(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let BiEntry { kind, idx, data } = params::<EntryOp>(input)?.entry;
    if kind == bi::DELETED {
        // The shard need not be there: then the key is not.
        absent(o.omap_rm(vec![idx]))?;
    } else {
        o.omap_set(vec![(idx, data)])?;
    }
    Ok(DONE)
}

/// What a pair counts in the header: category and sums, if it counts.
fn counted(kind: u8, data: &Bytes) -> OpResult<Option<(u8, Stats)>> {
    if kind == bi::OLH {
        stored::<Olh>(data)?;
        return Ok(None);
    }
    let entry: DirEntry = stored(data)?;
    let counts = match kind {
        bi::PLAIN => entry.exists && entry.flags == 0,
        bi::INSTANCE => entry.exists,
        _ => false,
    };
    Ok(counts.then(|| (entry.meta.category, Stats::of(&entry.meta))))
}

pub(super) fn put_entries(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: PutEntriesOp = params(input)?;
    if op.entries.len() as u64 > o.settings().omap_entries_max {
        return Err(Errno::TOOBIG);
    }
    let mut header: Header = read_header(o)?;
    header.guard(o)?;
    if op.check_existing {
        let mut seen: Vec<&Bytes> = op.entries.iter().map(|entry| &entry.idx).collect();
        seen.sort();
        seen.dedup();
        for idx in seen {
            let Some(data) = absent(o.omap_get(idx))? else { continue };
            if let Some((category, stats)) = counted(bi_type(idx), &data)? {
                header.stats.entry(category).or_default().sub(&stats);
            }
        }
    }
    let mut removed = Vec::new();
    let mut set = BTreeMap::new();
    for BiEntry { kind, idx, data } in op.entries {
        if kind == bi::DELETED {
            removed.push(idx);
            continue;
        }
        let what = counted(kind, &data).map_err(|_| Errno::INVAL)?;
        if let Some((category, stats)) = what {
            header.stats.entry(category).or_default().add(&stats);
        }
        set.entry(idx).or_insert(data);
    }
    if !removed.is_empty() {
        o.omap_rm(removed)?;
    }
    o.omap_set(set.into_iter().collect())?;
    write_header(o, &mut header)
}

/// A listing in the making.
struct Listing<'a> {
    name: &'a Bytes,
    marker: &'a Bytes,
    max: u64,
    entries: Vec<BiEntry>,
}

impl Listing<'_> {
    fn room(&self) -> u64 {
        self.max - self.entries.len() as u64
    }

    /// Plain entries after `after`, before `end`. Returns whether there are more.
    fn plain(&mut self, o: &mut dyn Object, after: &[u8], end: Option<&[u8]>) -> OpResult<bool> {
        let (pairs, more) = o.omap_page(after, self.name, self.room())?;
        for (idx, data) in pairs {
            if end.is_some_and(|end| idx.as_ref() >= end) {
                return Ok(false);
            }
            let entry: DirEntry = stored(&data)?;
            // Entries of longer names come behind all of this one.
            if !self.name.is_empty() && entry.key.name > *self.name {
                return Ok(false);
            }
            self.entries.push(BiEntry { kind: bi::PLAIN, idx, data });
        }
        Ok(more)
    }

    /// Entries of a kind whose keys begin with `first`. Returns whether there are more.
    fn special(
        &mut self,
        o: &mut dyn Object,
        kind: u8,
        first: &Bytes,
        name_of: fn(&Bytes) -> OpResult<Bytes>,
    ) -> OpResult<bool> {
        let has_begun = is_after(self.marker, first);
        let start = if has_begun { self.marker } else { first };
        let mut pairs = Vec::new();
        if !has_begun && self.marker != first {
            pairs.extend(absent(o.omap_get(start))?.map(|data| (start.clone(), data)));
        }
        // One more tells whether there are more.
        let wanted = self.room() + 1 - pairs.len() as u64;
        let (rest, mut more) = o.omap_page(start, first, wanted)?;
        pairs.extend(rest);
        for (idx, data) in pairs {
            if self.room() == 0 {
                more = true;
                break;
            }
            if !self.name.is_empty() && name_of(&data)? != *self.name {
                return Ok(false);
            }
            if self.name.is_empty() {
                name_of(&data)?;
            }
            self.entries.push(BiEntry { kind, idx, data });
        }
        Ok(more)
    }
}

fn list_reshard_log(o: &mut dyn Object, op: &ListOp) -> OpResult<Reply> {
    let after = [keys::RESHARD_LOG, &op.marker].concat();
    let (pairs, truncated) = o.omap_page(&after, keys::RESHARD_LOG, u64::from(op.max))?;
    let mut entries = Vec::with_capacity(pairs.len());
    for (key, data) in pairs {
        let mut entry: BiEntry = stored(&data)?;
        if entry.kind != bi::DELETED {
            entry.kind = bi_type(&key[keys::RESHARD_LOG.len()..]);
        }
        entries.push(entry);
    }
    answer(&ListRet { entries, truncated })
}

/// Plain entries before the special ones, versions, OLH entries, plain entries behind.
pub(super) fn list(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: ListOp = params(input)?;
    if op.reshardlog {
        return list_reshard_log(o, &op);
    }
    let max = u64::from(op.max.min(LIST_MAX));
    let mut list = Listing { name: &op.name, marker: &op.marker, max, entries: Vec::new() };
    let special: &[u8] = &[keys::SPECIAL];
    let mut more = false;
    if op.marker.as_ref() < special {
        more = list.plain(o, &op.marker, Some(special))?;
    }
    if !more {
        let first: Bytes = if op.name.is_empty() {
            Bytes::from_static(keys::INSTANCE)
        } else {
            keys::instance_key(&Key { name: op.name.clone(), instance: Bytes::new() })
        };
        let name_of = |data: &Bytes| stored::<DirEntry>(data).map(|entry| entry.key.name);
        more = list.special(o, bi::INSTANCE, &first, name_of)?;
    }
    if !more {
        let name_of = |data: &Bytes| stored::<Olh>(data).map(|entry| entry.key.name);
        more = list.special(o, bi::OLH, &olh_key(&op.name), name_of)?;
    }
    if !more {
        let after = op.marker.as_ref().max(keys::SPECIAL_END);
        more = list.plain(o, after, None)?;
    }
    answer(&ListRet { entries: list.entries, truncated: more })
}

pub(super) fn log_list(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: LogListOp = params(input)?;
    let after = [keys::LOG, &op.marker].concat();
    let (pairs, truncated) = o.omap_page(&after, keys::LOG, u64::from(op.max))?;
    let entries = pairs.iter().map(|(_, value)| stored(value)).collect::<OpResult<_>>()?;
    answer(&LogListRet { entries, truncated })
}

/// Removes the keys after `begin`, up to `end` without it; ENODATA where there are none.
fn trim(o: &mut dyn Object, begin: &[u8], end: Bytes) -> OpResult<()> {
    let (pairs, _) = o.omap_page(begin, b"", 1)?;
    match pairs.into_iter().next() {
        Some((first, _)) if first <= end => o.omap_rm_range(first, end),
        _ => Err(Errno::NODATA),
    }
}

pub(super) fn log_trim(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: LogTrimOp = params(input)?;
    let begin = [keys::LOG, &op.start].concat();
    let end = if op.end.is_empty() {
        Bytes::from_static(keys::INSTANCE)
    } else {
        // Behind the last one that goes.
        [keys::LOG, &op.end, b"\0"].concat().into()
    };
    trim(o, &begin, end)?;
    Ok(DONE)
}

pub(super) fn reshard_log_trim(o: &mut dyn Object, _: &Bytes) -> OpResult<Reply> {
    let mut header = read_header(o)?;
    trim(o, keys::RESHARD_LOG, Bytes::from_static(keys::SPECIAL_END))?;
    header.reshardlog_entries = 0;
    write_header(o, &mut header)
}
