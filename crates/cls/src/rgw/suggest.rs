//! Corrections: a listing found an entry that does not agree with the object's head, and
//! says what the entry should be.

use bytes::Bytes;
use denc::{Denc, Reader};
use types::{Errno, OpResult};

use super::index::{log, put, read_header, remove, write_header};
use super::keys::entry_key;
use super::types::{BiLog, DirEntry, Packed, modify};
use crate::keys::absent;
use crate::{DONE, Object, Reply};

const REMOVE: u8 = b'r';
const UPDATE: u8 = b'u';
/// Set in the operation: it goes to the index log.
const LOGGED: u8 = 0x80;
/// For how long an operation may be under way, where nothing else is said, seconds.
const TAG_TIMEOUT_S: u64 = 120;

fn parse(input: &Bytes) -> OpResult<Vec<(u8, DirEntry)>> {
    let mut r = Reader::shared(input);
    let mut changes = Vec::new();
    while r.left() > 0 {
        changes.push(Denc::decode(&mut r).map_err(|_| Errno::INVAL)?);
    }
    Ok(changes)
}

pub(super) fn suggest(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let mut header = read_header(o)?;
    header.guard(o)?;
    let settings = o.settings();
    let timeout_s = [header.tag_timeout, settings.pending_expiration_s]
        .into_iter()
        .find(|secs| *secs > 0)
        .unwrap_or(TAG_TIMEOUT_S);
    let now = o.now();
    let mut is_changed = false;
    for (op, mut change) in parse(input)? {
        let idx = entry_key(&change.key);
        let Some(raw) = absent(o.omap_get(&idx)).map_err(|_| Errno::INVAL)? else { continue };
        let mut disk = if raw.is_empty() {
            DirEntry::default()
        } else {
            DirEntry::decode(&mut Reader::shared(&raw)).map_err(|_| Errno::INVAL)?
        };
        let expires = |sec: u32, nsec: u32| (u64::from(sec).saturating_add(timeout_s), nsec);
        disk.pending
            .retain(|(_, p)| (u64::from(now.sec), now.nsec) <= expires(p.time.sec, p.time.nsec));
        // An operation has ended since, or one is under way: the next listing tells.
        if change.index_ver.0 < disk.index_ver.0 || !disk.pending.is_empty() {
            continue;
        }
        let kind = op & !LOGGED;
        if kind != REMOVE && kind != UPDATE {
            continue;
        }
        is_changed |= disk.exists || kind == UPDATE;
        header.uncount(&disk);
        let is_logged = op & LOGGED != 0 && !header.syncstopped;
        let (logged, what) = if kind == REMOVE {
            remove(o, &mut header, &idx, &change.key)?;
            (is_logged && disk.exists, (disk, modify::DEL))
        } else {
            header.count(&change.meta);
            change.index_ver = Packed(header.ver);
            put(o, &mut header, &idx, &change)?;
            (is_logged, (change, modify::ADD))
        };
        if logged {
            let (entry, op) = what;
            let entry = BiLog {
                object: entry.key.name,
                instance: entry.key.instance,
                time: entry.meta.mtime,
                ver: entry.ver,
                tag: entry.tag,
                op,
                index_ver: Packed(header.ver),
                ..BiLog::default()
            };
            log(o, &mut header, entry)?;
        }
        is_changed |= header.is_logged();
    }
    if is_changed { write_header(o, &mut header) } else { Ok(DONE) }
}
