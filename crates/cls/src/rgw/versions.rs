//! Versions of an object: which is the current one (its OLH entry), in which order they are
//! listed, and what the gateway has still to do to the object's heads (the OLH log).
//!
//! Reads see the index as it was before the call, whatever the call has changed already: a
//! plain entry that is being converted is still found as a plain one.

use bytes::Bytes;
use types::{Errno, OpResult, UTime};

use super::index::{self, find, log, put, read_header, write_header, write_header_if_logged};
use super::keys::{instance_key, list_key, marker_key, olh_key};
use super::types::{
    BiLog, DirEntry, EntryVer, Header, Key, Meta, Olh, OlhLog, OlhLogs, Packed, flag, modify,
    olh_op,
};
use crate::keys::{absent, answer, read};
use crate::{DONE, Object, Reply, params, record, stored};

/// Epochs of the log in one answer.
const LOG_MAX: usize = 1000;
/// Flag of the index log: the operation was one on a version.
const VERSIONED_OP: u16 = 1;
/// The epoch of a plain entry that became a version; the first version's is the next.
const CONVERTED: u64 = 1;

record! {
    /// `rgw_cls_link_olh_op`.
    LinkOp(5, 1) {
        key: Key,
        olh_tag: Bytes,
        delete_marker: bool,
        op_tag: Bytes,
        meta: Meta,
        olh_epoch: u64,
        log_op: bool,
        bilog_flags: u16,
        unmod_since_sec: u64 = 2,
        unmod_since: UTime = 3,
        high_precision: bool = 4,
        zones: Vec<Bytes> = 5,
    }
}
record! {
    /// `rgw_cls_unlink_instance_op`.
    UnlinkOp(3, 1) {
        key: Key,
        op_tag: Bytes,
        olh_epoch: u64,
        log_op: bool,
        bilog_flags: u16,
        olh_tag: Bytes = 2,
        zones: Vec<Bytes> = 3,
    }
}
record! { ReadLogOp(1, 1) { olh: Key, ver_marker: u64, olh_tag: Bytes, } }
record! { ReadLogRet(1, 1) { log: OlhLogs, truncated: bool, } }
record! { TrimLogOp(1, 1) { olh: Key, ver: u64, olh_tag: Bytes, } }
record! { ClearOp(1, 1) { key: Key, olh_tag: Bytes, } }

/// A version's own entry and its key.
struct Version {
    key: Key,
    idx: Bytes,
    entry: DirEntry,
}

impl Version {
    /// The version, and whether it is there. Without an instance: the null version's data, or
    /// its delete marker where `marker_first` and there is one.
    fn load(o: &mut dyn Object, key: &Key, marker_first: bool) -> OpResult<(Self, bool)> {
        let (idx, found) = find(o, key, marker_first && key.instance.is_empty())?;
        let is_there = found.is_some();
        Ok((Self { key: key.clone(), idx, entry: found.unwrap_or_default() }, is_there))
    }

    /// A version that must be there.
    fn must(o: &mut dyn Object, key: &Key) -> OpResult<Self> {
        match Self::load(o, key, true)? {
            (version, true) => Ok(version),
            (_, false) => Err(Errno::NOENT),
        }
    }

    fn remove_listed(&self, o: &mut dyn Object, header: &mut Header) -> OpResult<()> {
        index::remove(o, header, &list_key(&self.entry), &self.entry.key)
    }

    fn remove(&self, o: &mut dyn Object, header: &mut Header) -> OpResult<()> {
        index::remove(o, header, &self.idx, &self.key)
    }

    /// Writes the version's own entry and the listed one.
    fn write(&mut self, o: &mut dyn Object, header: &mut Header) -> OpResult<()> {
        let is_null_marker = self.entry.is_delete_marker() && self.entry.key.instance.is_empty();
        self.idx = if is_null_marker { marker_key(&self.key) } else { instance_key(&self.key) };
        put(o, header, &self.idx, &self.entry)?;
        put(o, header, &list_key(&self.entry), &self.entry)
    }

    /// Gives the version a place in the list.
    fn place(
        &mut self,
        o: &mut dyn Object,
        header: &mut Header,
        epoch: u64,
        is_current: bool,
    ) -> OpResult<()> {
        if self.entry.versioned_epoch > 0 {
            self.remove_listed(o, header)?;
        }
        self.entry.versioned_epoch = epoch;
        self.entry.flags |= flag::VER | if is_current { flag::CURRENT } else { 0 };
        self.write(o, header)
    }

    /// The key of the next older version.
    fn next_older(&self, o: &mut dyn Object) -> OpResult<Option<Key>> {
        let (pairs, _) = o.omap_page(&list_key(&self.entry), &self.key.name, 1)?;
        let Some((_, value)) = pairs.first() else { return Ok(None) };
        let entry: DirEntry = stored(value)?;
        Ok(Some(entry.key).filter(|key| key.name == self.key.name))
    }
}

impl Olh {
    /// Takes the next epoch, or the caller's. False: a later change is known already.
    fn begin(&mut self, epoch: u64) -> bool {
        match epoch {
            0 if self.epoch == 0 => self.epoch = CONVERTED + 1,
            0 => self.epoch = self.epoch.saturating_add(1),
            _ if epoch < self.epoch => return false,
            _ => self.epoch = epoch,
        }
        true
    }

    /// Logs under the entry's own epoch.
    fn log(&mut self, epoch: u64, op: u8, op_tag: &Bytes, key: &Key, delete_marker: bool) {
        let (op_tag, key) = (op_tag.clone(), key.clone());
        let entry = OlhLog { epoch, op, op_tag, key, delete_marker };
        self.log.entry(self.epoch).or_default().push(entry);
    }
}

/// Turns the plain entry, if there is one, into a version, and writes the placeholder.
fn convert_plain(
    o: &mut dyn Object,
    header: &mut Header,
    name: &Bytes,
    demote: bool,
    is_listed: bool,
) -> OpResult<()> {
    let key = Key { name: name.clone(), instance: Bytes::new() };
    if let (_, Some(mut entry)) = find(o, &key, false)? {
        entry.versioned_epoch = CONVERTED;
        entry.flags |= flag::VER;
        if demote {
            entry.flags &= !flag::CURRENT;
        }
        put(o, header, &instance_key(&key), &entry)?;
        if is_listed {
            put(o, header, &list_key(&entry), &entry)?;
        }
    }
    let placeholder = DirEntry { key, flags: flag::VER_MARKER, ..DirEntry::default() };
    put(o, header, name, &placeholder)
}

/// Whole seconds, or all.
pub(super) fn precise(time: UTime, high_precision: bool) -> UTime {
    if high_precision { time } else { UTime { nsec: 0, ..time } }
}

pub(super) fn link(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let mut op: LinkOp = params(input)?;
    let mut header = read_header(o)?;
    header.guard(o)?;
    let (mut version, mut existed) = Version::load(o, &op.key, op.delete_marker)?;
    // A delete marker has no head that had been written before.
    if !existed && !op.delete_marker {
        return Err(Errno::NOENT);
    }
    if existed && !op.unmod_since.is_zero() {
        let mtime = precise(version.entry.meta.mtime, op.high_precision);
        if mtime >= precise(op.unmod_since, op.high_precision) {
            return Ok(DONE);
        }
    }
    let removing;
    if op.key.instance.is_empty() {
        // The null version's data and its delete marker have an entry each; the new one takes
        // the other's place.
        let (other, is_there) = Version::load(o, &op.key, !op.delete_marker)?;
        existed = is_there && !other.entry.is_delete_marker();
        if is_there && other.entry.is_delete_marker() != op.delete_marker {
            other.remove_listed(o, &mut header)?;
        }
        removing = existed && op.delete_marker;
        if !removing {
            other.remove(o, &mut header)?;
        }
    } else {
        removing = existed && !version.entry.is_delete_marker() && op.delete_marker;
    }
    if op.delete_marker {
        // What an older entry of this key was is of no interest, but for its place.
        version.entry.key = op.key.clone();
        version.entry.flags = flag::DELETE_MARKER;
        version.entry.meta = op.meta.clone();
        version.entry.tag = Bytes::from_static(b"delete-marker");
    }
    let olh_idx = olh_key(&op.key.name);
    let found: Option<Olh> = absent(read(o, &olh_idx))?;
    let olh_found = found.is_some();
    let mut olh = found.unwrap_or_default();
    let epoch_before = olh.epoch;
    if !olh.begin(op.olh_epoch) {
        version.place(o, &mut header, op.olh_epoch, false)?;
        if removing {
            olh.log(op.olh_epoch, olh_op::REMOVE_INSTANCE, &op.op_tag, &op.key, false);
            put(o, &mut header, &olh_idx, &olh)?;
        }
        return write_header_if_logged(o, &mut header);
    }
    let promote = olh.epoch > epoch_before
        || (olh.epoch == epoch_before && olh.key.instance >= op.key.instance);
    if olh_found {
        if op.olh_tag != olh.tag {
            if !olh.pending_removal {
                return Err(Errno::CANCELED);
            }
            // The object was gone, and is another one now.
            olh.tag.clone_from(&op.olh_tag);
        }
        if promote && olh.exists && olh.key != op.key {
            let mut old = Version::must(o, &olh.key)?;
            old.entry.flags &= !flag::CURRENT;
            old.write(o, &mut header)?;
        }
        olh.pending_removal = false;
    } else {
        let is_null_marker = op.key.instance.is_empty() && op.delete_marker;
        convert_plain(o, &mut header, &op.key.name, promote, !is_null_marker)?;
        olh.tag.clone_from(&op.olh_tag);
        if op.key.instance.is_empty() {
            version.entry.versioned_epoch = CONVERTED;
        }
    }
    let epoch = olh.epoch;
    olh.log(epoch, olh_op::LINK, &op.op_tag, &op.key, op.delete_marker);
    if removing {
        olh.log(epoch, olh_op::REMOVE_INSTANCE, &op.op_tag, &op.key, false);
    }
    if promote {
        olh.key = op.key.clone();
        olh.delete_marker = op.delete_marker;
    }
    olh.exists = true;
    put(o, &mut header, &olh_idx, &olh)?;
    version.place(o, &mut header, epoch, promote)?;
    if !op.log_op || header.syncstopped {
        return write_header_if_logged(o, &mut header);
    }
    let meta = &mut version.entry.meta;
    let mut entry = BiLog {
        object: op.key.name,
        instance: op.key.instance,
        time: meta.mtime,
        ver: EntryVer { epoch: if op.olh_epoch > 0 { op.olh_epoch } else { epoch }, pool: -1 },
        tag: op.op_tag,
        op: modify::LINK_OLH,
        index_ver: Packed(header.ver),
        flags: op.bilog_flags | VERSIONED_OP,
        zones: std::mem::take(&mut op.zones),
        ..BiLog::default()
    };
    if op.delete_marker {
        entry.op = modify::LINK_OLH_DM;
        entry.owner = std::mem::take(&mut meta.owner);
        entry.owner_name = std::mem::take(&mut meta.owner_name);
    }
    log(o, &mut header, entry)?;
    write_header(o, &mut header)
}

pub(super) fn unlink(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: UnlinkOp = params(input)?;
    let mut header = read_header(o)?;
    header.guard(o)?;
    let mut version = Version::must(o, &op.key)?;
    let olh_idx = olh_key(&op.key.name);
    let found: Option<Olh> = absent(read(o, &olh_idx))?;
    let olh_found = found.is_some();
    let mut olh = found.unwrap_or_default();
    if !olh_found {
        convert_plain(o, &mut header, &op.key.name, true, true)?;
        olh.key = op.key.clone();
        olh.tag.clone_from(&op.olh_tag);
        version.entry.versioned_epoch = CONVERTED;
    }
    let is_marker = version.entry.is_delete_marker();
    if !olh.begin(op.olh_epoch) {
        version.remove_listed(o, &mut header)?;
        if !is_marker {
            olh.log(op.olh_epoch, olh_op::REMOVE_INSTANCE, &op.op_tag, &op.key, false);
            put(o, &mut header, &olh_idx, &olh)?;
        }
        return write_header_if_logged(o, &mut header);
    }
    let epoch = olh.epoch;
    if olh.key == op.key {
        match version.next_older(o)? {
            Some(key) => {
                // It keeps its place in the list.
                let mut next = Version::must(o, &key)?;
                next.entry.flags |= flag::VER | flag::CURRENT;
                next.write(o, &mut header)?;
                olh.delete_marker = next.entry.is_delete_marker();
                olh.log(epoch, olh_op::LINK, &op.op_tag, &key, olh.delete_marker);
                olh.key = key;
            }
            None => {
                // The name stays: a reshard finds the shard by it.
                olh.key = Key { name: op.key.name.clone(), instance: Bytes::new() };
                olh.delete_marker = false;
                let key = olh.key.clone();
                olh.log(epoch, olh_op::UNLINK, &op.op_tag, &key, false);
                olh.exists = false;
                olh.pending_removal = true;
            }
        }
    }
    if is_marker {
        version.remove(o, &mut header)?;
    } else {
        // The gateway removes the head, and the entry when that is done.
        olh.log(epoch, olh_op::REMOVE_INSTANCE, &op.op_tag, &op.key, false);
    }
    version.remove_listed(o, &mut header)?;
    put(o, &mut header, &olh_idx, &olh)?;
    if !op.log_op || header.syncstopped {
        return write_header_if_logged(o, &mut header);
    }
    let entry = BiLog {
        object: op.key.name,
        instance: op.key.instance,
        time: version.entry.meta.mtime,
        ver: EntryVer { epoch: if op.olh_epoch > 0 { op.olh_epoch } else { epoch }, pool: -1 },
        tag: op.op_tag,
        op: modify::UNLINK_INSTANCE,
        index_ver: Packed(header.ver),
        flags: op.bilog_flags | VERSIONED_OP,
        zones: op.zones,
        ..BiLog::default()
    };
    log(o, &mut header, entry)?;
    write_header(o, &mut header)
}

/// The OLH entry of an object, which must have this tag. An entry that is not there counts
/// as an empty one.
fn tagged(o: &mut dyn Object, key: &Key, tag: &Bytes) -> OpResult<Olh> {
    if !key.instance.is_empty() {
        return Err(Errno::INVAL);
    }
    let olh: Olh = absent(read(o, &olh_key(&key.name)))?.unwrap_or_default();
    if olh.tag == *tag { Ok(olh) } else { Err(Errno::CANCELED) }
}

pub(super) fn read_log(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: ReadLogOp = params(input)?;
    let olh = tagged(o, &op.olh, &op.olh_tag)?;
    let mut after = olh.log.into_iter().filter(|(epoch, _)| *epoch > op.ver_marker);
    let log: OlhLogs = after.by_ref().take(LOG_MAX).collect();
    answer(&ReadLogRet { log, truncated: after.next().is_some() })
}

pub(super) fn trim_log(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: TrimLogOp = params(input)?;
    let mut olh = tagged(o, &op.olh, &op.olh_tag)?;
    olh.log.retain(|epoch, _| *epoch > op.ver);
    let mut header = read_header(o)?;
    header.guard(o)?;
    put(o, &mut header, &olh_key(&op.olh.name), &olh)?;
    write_header_if_logged(o, &mut header)
}

pub(super) fn clear(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: ClearOp = params(input)?;
    if !op.key.instance.is_empty() {
        return Err(Errno::INVAL);
    }
    let mut header = read_header(o)?;
    header.guard(o)?;
    let idx = olh_key(&op.key.name);
    let olh: Olh = read(o, &idx)?;
    if olh.tag != op.olh_tag {
        return Err(Errno::CANCELED);
    }
    index::remove(o, &mut header, &idx, &olh.key)?;
    let plain: Option<DirEntry> = absent(read(o, &op.key.name))?;
    if let Some(entry) = plain.filter(|entry| !entry.is_valid()) {
        index::remove(o, &mut header, &op.key.name, &entry.key)?;
    }
    write_header_if_logged(o, &mut header)
}
