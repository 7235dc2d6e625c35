//! Headers of the first format: a struct in the object's data.
//!
//! ```text
//! 0      40       64          68        76        80      88        96      100  104
//! | text | prefix | signature | version | options | size | snap_seq | count | 0 | length of names |
//! 112: for each snapshot u64 id, u64 size; then their names, each with a zero byte
//! ```

use bytes::{Bytes, BytesMut};
use denc::{Reader, Writer};
use types::{Errno, OpResult};

use crate::keys::read_if;
use crate::{DONE, Object, Reply, STALE, params};

const LEN: usize = 112;
const SIZE_AT: usize = 80;
const SEQ_AT: usize = 88;
const COUNT_AT: usize = 96;
const NAMES_LEN_AT: usize = 104;

/// A header and the snapshots in it, the newest first.
pub(super) struct Header {
    fixed: BytesMut,
    snaps: Vec<(u64, u64, Bytes)>,
}

impl Header {
    /// # Errors
    /// EINVAL for an object that is no such header.
    pub(super) fn load(o: &mut dyn Object) -> OpResult<Self> {
        let fixed = o.read(0, LEN as u64)?;
        if fixed.len() < LEN {
            return Err(Errno::INVAL);
        }
        let u64_at = |at: usize| u64::from_le_bytes(fixed[at..at + 8].try_into().expect("8 bytes"));
        let count = u32::from_le_bytes(fixed[COUNT_AT..COUNT_AT + 4].try_into().expect("4 bytes"));
        let names_len = u64_at(NAMES_LEN_AT);
        let ids_len = u64::from(count) * 16;
        let rest = o.read(LEN as u64, ids_len.saturating_add(names_len))?;
        if (rest.len() as u64) < ids_len.saturating_add(names_len) {
            return Err(Errno::INVAL);
        }
        let (ids, names) = (rest.slice(..ids_len as usize), rest.slice(ids_len as usize..));
        let mut r = Reader::new(&ids);
        let mut snaps = Vec::new();
        let mut at = 0;
        for _ in 0..count {
            let end = names[at..].iter().position(|b| *b == 0).ok_or(Errno::IO)?;
            let (id, size) = (r.u64().map_err(|_| Errno::IO)?, r.u64().map_err(|_| Errno::IO)?);
            snaps.push((id, size, names.slice(at..at + end)));
            at += end + 1;
        }
        Ok(Self { fixed: BytesMut::from(&fixed[..]), snaps })
    }

    pub(super) fn snap_count(&self) -> u64 {
        self.snaps.len() as u64
    }

    fn u64_at(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.fixed[at..at + 8].try_into().expect("8 bytes"))
    }

    fn save(mut self, o: &mut dyn Object) -> OpResult<Reply> {
        let names_len: usize = self.snaps.iter().map(|(_, _, name)| name.len() + 1).sum();
        let count = self.snaps.len() as u32;
        self.fixed[COUNT_AT..COUNT_AT + 4].copy_from_slice(&count.to_le_bytes());
        self.fixed[NAMES_LEN_AT..].copy_from_slice(&(names_len as u64).to_le_bytes());
        let mut w = Writer::new(o.features());
        w.raw(&self.fixed);
        for (id, size, _) in &self.snaps {
            w.u64(*id);
            w.u64(*size);
        }
        for (_, _, name) in &self.snaps {
            w.raw(name);
            w.u8(0);
        }
        o.write_full(w.finish())?;
        Ok(DONE)
    }
}

/// Names end at a zero byte.
fn is_name(name: &[u8]) -> bool {
    !name.contains(&0)
}

pub(super) fn list(o: &mut dyn Object, _: &Bytes) -> OpResult<Reply> {
    let header = Header::load(o)?;
    let mut w = Writer::new(o.features());
    w.u64(header.u64_at(SEQ_AT));
    w.u32(header.snaps.len() as u32);
    for (id, size, name) in &header.snaps {
        w.u64(*id);
        w.u64(*size);
        w.blob(name);
    }
    Ok(w.finish().into())
}

pub(super) fn add(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let mut header = Header::load(o)?;
    let (name, id): (Bytes, u64) = params(input)?;
    if !is_name(&name) {
        return Err(Errno::INVAL);
    }
    if header.u64_at(SEQ_AT) > id {
        return Err(STALE);
    }
    if header.snap_count() >= read_if(o, b"snap_limit")?.unwrap_or(u64::MAX) {
        return Err(Errno::DQUOT);
    }
    if header.snaps.iter().any(|(_, _, other)| *other == name) {
        return Err(Errno::EXIST);
    }
    header.fixed[SEQ_AT..SEQ_AT + 8].copy_from_slice(&id.to_le_bytes());
    let size = header.u64_at(SIZE_AT);
    header.snaps.insert(0, (id, size, name));
    header.save(o)
}

pub(super) fn remove(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let mut header = Header::load(o)?;
    let name: Bytes = params(input)?;
    let at = header.snaps.iter().position(|(_, _, other)| *other == name).ok_or(Errno::NOENT)?;
    header.snaps.remove(at);
    header.save(o)
}

pub(super) fn rename(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let mut header = Header::load(o)?;
    let (id, name): (u64, Bytes) = params(input)?;
    if !is_name(&name) {
        return Err(Errno::INVAL);
    }
    if header.snaps.iter().any(|(_, _, other)| *other == name) {
        return Err(Errno::EXIST);
    }
    let snap = header.snaps.iter_mut().find(|(other, ..)| *other == id).ok_or(Errno::NOENT)?;
    snap.2 = name;
    header.save(o)
}
