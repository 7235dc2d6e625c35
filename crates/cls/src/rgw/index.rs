//! Entries and the header: an operation on an object is announced (`bucket_prepare_op`), and
//! ended (`bucket_complete_op`) once its head is written. The header sums up the entries.

use bytes::Bytes;
use denc::Denc;
use types::{Errno, OpResult, UTime};

use super::keys::{self, entry_key, instance_key, marker_key};
use super::types::{
    BiEntry, BiLog, Deleted, DirEntry, EntryVer, Header, Key, Meta, Packed, Pending, Resharding,
    Stats, StatsMap, bi, flag, modify,
};
use crate::keys::{Step, absent, answer, read, walk};
use crate::{DONE, Object, Reply, params, record, stored};

/// `ERR_BUSY_RESHARDING`: the gateway waits and tries again.
pub(super) const BUSY_RESHARDING: Errno = Errno(-2300);
/// An entry of the index log tells of an operation that has ended.
const COMPLETE: u8 = 1;

record! { TagTimeoutOp(1, 1) { tag_timeout: u64, } }
record! { UpdateStatsOp(2, 1) { absolute: bool, stats: StatsMap, dec_stats: StatsMap = 2, } }
record! { CheckRet(1, 1) { existing: Header, calculated: Header, } }
record! {
    /// `rgw_cls_obj_prepare_op`.
    PrepareOp(7, 5) {
        op: u8,
        tag: Bytes,
        locator: Bytes,
        log_op: bool,
        key: Key,
        bilog_flags: u16 = 6,
        zones: Vec<Bytes> = 7,
    }
}
record! {
    /// `rgw_cls_obj_complete_op`.
    CompleteOp(9, 7) {
        op: u8,
        epoch: u64,
        meta: Meta,
        tag: Bytes,
        locator: Bytes,
        remove_objs: Vec<Key>,
        ver: EntryVer,
        log_op: bool,
        key: Key,
        bilog_flags: u16 = 8,
        zones: Vec<Bytes> = 9,
    }
}
record! {
    /// Of `set_bucket_resharding` and `get_bucket_resharding`.
    ReshardingOp(1, 1) { entry: Resharding, }
}
record! {
    /// Of `clear_bucket_resharding` and `get_bucket_resharding`.
    EmptyOp(1, 1) { }
}
record! { GuardOp(1, 1) { ret_err: i32, } }

impl Header {
    /// Fails while the bucket is resharded, but while that is only logged.
    pub(super) fn guard(&self, o: &dyn Object) -> OpResult<()> {
        if self.is_busy(o) { Err(BUSY_RESHARDING) } else { Ok(()) }
    }

    fn is_busy(&self, o: &dyn Object) -> bool {
        match self.resharding.0 {
            Resharding::IN_PROGRESS => true,
            Resharding::IN_LOGRECORD => {
                self.reshardlog_entries >= o.settings().reshardlog_threshold
            }
            _ => false,
        }
    }

    pub(super) fn is_logged(&self) -> bool {
        self.resharding.0 == Resharding::IN_LOGRECORD
    }

    pub(super) fn count(&mut self, meta: &Meta) {
        self.stats.entry(meta.category).or_default().add(&Stats::of(meta));
    }

    /// Takes off what an entry counted.
    pub(super) fn uncount(&mut self, entry: &DirEntry) {
        if entry.exists {
            self.stats.entry(entry.meta.category).or_default().sub(&Stats::of(&entry.meta));
        }
    }
}

/// The header; the default where it is empty.
pub(super) fn read_header(o: &mut dyn Object) -> OpResult<Header> {
    let raw = o.omap_header()?;
    if raw.is_empty() { Ok(Header::default()) } else { stored(&raw) }
}

pub(super) fn write_header(o: &mut dyn Object, header: &mut Header) -> OpResult<Reply> {
    header.ver = header.ver.wrapping_add(1);
    o.omap_set_header(header.to_bytes())?;
    Ok(DONE)
}

/// Writes the header where only a reshard's log has changed it.
pub(super) fn write_header_if_logged(o: &mut dyn Object, header: &mut Header) -> OpResult<Reply> {
    if header.is_logged() { write_header(o, header) } else { Ok(DONE) }
}

fn log_for_reshard(o: &mut dyn Object, header: &mut Header, entry: &BiEntry) -> OpResult<()> {
    header.reshardlog_entries = header.reshardlog_entries.wrapping_add(1);
    crate::keys::write(o, &[keys::RESHARD_LOG, &entry.idx].concat(), entry)
}

/// Sets an entry of any kind.
pub(super) fn put(
    o: &mut dyn Object,
    header: &mut Header,
    idx: &Bytes,
    value: &impl Denc,
) -> OpResult<()> {
    let data = value.to_bytes();
    o.omap_set(vec![(idx.clone(), data.clone())])?;
    if header.is_logged() {
        log_for_reshard(o, header, &BiEntry { kind: bi::INVALID, idx: idx.clone(), data })?;
    }
    Ok(())
}

/// Removes an entry of any kind; it need not be there.
pub(super) fn remove(
    o: &mut dyn Object,
    header: &mut Header,
    idx: &Bytes,
    key: &Key,
) -> OpResult<()> {
    o.omap_rm(vec![idx.clone()])?;
    if header.is_logged() {
        let data = Deleted { key: key.clone() }.to_bytes();
        log_for_reshard(o, header, &BiEntry { kind: bi::DELETED, idx: idx.clone(), data })?;
    }
    Ok(())
}

/// The entry of an object or a version, and its key. Where the object has versions, an empty
/// instance means the null version; with `marker_first`, its delete marker before its data.
/// Without an entry: the key that it would have.
///
/// # Errors
/// EIO for entries that cannot be decoded.
pub(super) fn find(
    o: &mut dyn Object,
    key: &Key,
    marker_first: bool,
) -> OpResult<(Bytes, Option<DirEntry>)> {
    let idx = entry_key(key);
    let Some(entry) = absent(read::<DirEntry>(o, &idx))? else { return Ok((idx, None)) };
    if !key.instance.is_empty() || entry.is_valid() {
        return Ok((idx, Some(entry)));
    }
    if marker_first {
        let idx = marker_key(key);
        if let Some(entry) = absent(read(o, &idx))? {
            return Ok((idx, Some(entry)));
        }
    }
    let idx = instance_key(key);
    let entry = absent(read(o, &idx))?;
    Ok((idx, entry))
}

/// Adds to the index log; the header has to be written then.
pub(super) fn log(o: &mut dyn Object, header: &mut Header, mut entry: BiLog) -> OpResult<()> {
    let id = format!("{:011}.{}.{}", header.ver, o.pg_version(), o.op_index());
    entry.id = id.into();
    entry.state = COMPLETE;
    if entry.id > header.max_marker {
        header.max_marker.clone_from(&entry.id);
    }
    crate::keys::write(o, &[keys::LOG, &entry.id].concat(), &entry)
}

pub(super) fn init(o: &mut dyn Object, _: &Bytes) -> OpResult<Reply> {
    match o.omap_header() {
        Ok(header) if !header.is_empty() => return Err(Errno::INVAL),
        Ok(_) | Err(Errno::NOENT | Errno::NODATA) => {}
        Err(e) => return Err(e),
    }
    write_header(o, &mut Header::default())
}

pub(super) fn set_tag_timeout(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: TagTimeoutOp = params(input)?;
    let mut header = read_header(o)?;
    header.tag_timeout = op.tag_timeout;
    write_header(o, &mut header)
}

pub(super) fn update_stats(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: UpdateStatsOp = params(input)?;
    let mut header = read_header(o)?;
    if op.absolute && !op.dec_stats.is_empty() {
        return Err(Errno::INVAL);
    }
    for (category, stats) in &op.stats {
        let sum = header.stats.entry(*category).or_default();
        if op.absolute { *sum = *stats } else { sum.add(stats) }
    }
    for (category, stats) in &op.dec_stats {
        header.stats.entry(*category).or_default().sub(stats);
    }
    write_header(o, &mut header)
}

pub(super) fn prepare(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: PrepareOp = params(input)?;
    if op.tag.is_empty() {
        return Err(Errno::INVAL);
    }
    let mut header = read_header(o)?;
    header.guard(o)?;
    let (idx, found) = find(o, &op.key, false)?;
    let mut entry = found.unwrap_or_else(|| DirEntry {
        key: op.key,
        locator: op.locator,
        ..DirEntry::default()
    });
    entry.announce(op.tag, Pending { state: 0, time: o.now(), op: op.op });
    put(o, &mut header, &idx, &entry)?;
    Ok(DONE)
}

pub(super) fn complete(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let mut op: CompleteOp = params(input)?;
    // An unreadable header is EINVAL here, as the peer answers.
    let mut header = read_header(o).map_err(|_| Errno::INVAL)?;
    header.guard(o)?;
    let (idx, found) = find(o, &op.key, false)?;
    let on_disk = found.is_some();
    let mut entry = found.unwrap_or_else(|| DirEntry {
        key: op.key.clone(),
        ver: op.ver,
        meta: op.meta.clone(),
        locator: op.locator.clone(),
        ..DirEntry::default()
    });
    entry.index_ver = Packed(header.ver);
    entry.flags &= flag::VER;
    if !op.tag.is_empty() {
        let at = entry.pending.iter().position(|(tag, _)| *tag == op.tag).ok_or(Errno::INVAL)?;
        entry.pending.remove(at);
    }
    let is_canceled = op.op == modify::CANCEL && !op.tag.is_empty();
    let is_late =
        op.ver.pool == entry.ver.pool && op.ver.epoch != 0 && op.ver.epoch <= entry.ver.epoch;
    if !is_canceled && is_late {
        op.op = modify::CANCEL;
    }
    let mut is_logged = op.log_op && !header.syncstopped;
    entry.ver = op.ver;
    match op.op {
        modify::CANCEL => {
            is_logged = false;
            if !op.tag.is_empty() {
                if !entry.exists && entry.pending.is_empty() {
                    remove(o, &mut header, &idx, &entry.key)?;
                } else {
                    put(o, &mut header, &idx, &entry)?;
                }
            }
        }
        modify::DEL => {
            header.uncount(&entry);
            entry.meta = op.meta;
            if !on_disk {
                is_logged = false;
            } else if entry.pending.is_empty() {
                remove(o, &mut header, &idx, &entry.key)?;
            } else {
                entry.exists = false;
                put(o, &mut header, &idx, &entry)?;
            }
        }
        modify::ADD => {
            header.uncount(&entry);
            header.count(&op.meta);
            entry.meta = op.meta;
            entry.key = op.key.clone();
            entry.exists = true;
            entry.tag = op.tag.clone();
            put(o, &mut header, &idx, &entry)?;
        }
        _ => {}
    }
    if is_logged {
        let entry = BiLog {
            object: op.key.name,
            instance: op.key.instance,
            time: entry.meta.mtime,
            ver: entry.ver,
            tag: op.tag,
            op: op.op,
            index_ver: Packed(header.ver),
            flags: op.bilog_flags,
            zones: op.zones,
            ..BiLog::default()
        };
        log(o, &mut header, entry)?;
    }
    for key in &op.remove_objs {
        // Leftovers of an upload: a fault in one of them is not one of this operation.
        if let Ok((idx, Some(entry))) = find(o, key, false) {
            header.uncount(&entry);
            remove(o, &mut header, &idx, key)?;
        }
    }
    write_header(o, &mut header)
}

/// A header with the sums of what is there.
fn calculate(o: &mut dyn Object, existing: &Header) -> OpResult<Header> {
    let mut header = Header {
        tag_timeout: existing.tag_timeout,
        ver: existing.ver,
        syncstopped: existing.syncstopped,
        ..Header::default()
    };
    for region in [&b""[..], keys::SPECIAL_END] {
        walk(o, region, b"", |key, value| {
            if !keys::is_plain(key) {
                return Ok(Step::Enough);
            }
            let entry: DirEntry = stored(value)?;
            if entry.exists && entry.flags == 0 {
                header.count(&entry.meta);
            }
            Ok(Step::Next)
        })?;
    }
    walk(o, keys::INSTANCE, keys::INSTANCE, |_, value| {
        let entry: DirEntry = stored(value)?;
        if entry.exists {
            header.count(&entry.meta);
        }
        Ok(Step::Next)
    })?;
    Ok(header)
}

pub(super) fn check(o: &mut dyn Object, _: &Bytes) -> OpResult<Reply> {
    let existing = read_header(o)?;
    let calculated = calculate(o, &existing)?;
    answer(&CheckRet { existing, calculated })
}

pub(super) fn rebuild(o: &mut dyn Object, _: &Bytes) -> OpResult<Reply> {
    let existing = read_header(o)?;
    existing.guard(o)?;
    let mut header = calculate(o, &existing)?;
    write_header(o, &mut header)
}

pub(super) fn set_resharding(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: ReshardingOp = params(input)?;
    let mut header = read_header(o)?;
    header.resharding = op.entry;
    write_header(o, &mut header)
}

pub(super) fn clear_resharding(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let _: EmptyOp = params(input)?;
    let mut header = read_header(o)?;
    header.resharding = Resharding::default();
    write_header(o, &mut header)
}

/// Answers with the error that the caller chose.
pub(super) fn guard_resharding(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: GuardOp = params(input)?;
    let header = read_header(o)?;
    let value = if header.is_busy(o) { op.ret_err } else { 0 };
    Ok(Reply { value, data: Bytes::new() })
}

pub(super) fn get_resharding(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let _: EmptyOp = params(input)?;
    let entry = read_header(o)?.resharding;
    answer(&ReshardingOp { entry })
}

/// `bi_log_resync` and `bi_log_stop`: other zones begin again, or are told nothing any more.
fn log_switch(o: &mut dyn Object, op: u8, syncstopped: bool) -> OpResult<Reply> {
    let mut header = read_header(o)?;
    let time: UTime = o.now();
    log(o, &mut header, BiLog { time, op, ..BiLog::default() })?;
    header.syncstopped = syncstopped;
    write_header(o, &mut header)
}

pub(super) fn resync(o: &mut dyn Object, _: &Bytes) -> OpResult<Reply> {
    log_switch(o, modify::RESYNC, false)
}

pub(super) fn stop(o: &mut dyn Object, _: &Bytes) -> OpResult<Reply> {
    log_switch(o, modify::SYNCSTOP, true)
}
