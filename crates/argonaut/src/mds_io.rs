//! A metadata server's requests for I/O, carried out by the client library.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use mds::{Io, IoAnswer, IoData, IoOp};
use rados::{Cluster, Error, Pending, ReadOp, Reply, Slot, SnapContext, WriteOp};
use types::Errno;

/// Where a step's answer is, and how it is read.
enum Wanted {
    Nothing,
    Bytes(Slot<Bytes>),
    Stat(Slot<rados::ObjectStat>),
    Range(Slot<(BTreeMap<Bytes, Bytes>, bool)>),
    Keys(Slot<BTreeMap<Bytes, Bytes>>),
}

/// A request that was sent.
pub struct Sent {
    pending: Pending,
    wanted: Vec<Wanted>,
}

impl Sent {
    /// Waits for the answer, one part for each step.
    ///
    /// # Errors
    /// What the OSDs said; EIO where their answer cannot be read or never comes.
    pub async fn answer(self) -> Result<IoAnswer, Errno> {
        let reply = self.pending.answer().await.map_err(|err| errno(&err))?;
        let parts = self.wanted.iter().map(|wanted| part(&reply, wanted).map_err(|e| errno(&e)));
        parts.collect::<Result<_, _>>().map(IoAnswer)
    }
}

fn errno(err: &Error) -> Errno {
    match err.code() {
        Some(code) => Errno(-code),
        None => {
            tracing::error!("a request for I/O: {err}");
            Errno::IO
        }
    }
}

fn part(reply: &Reply, wanted: &Wanted) -> rados::Result<IoData> {
    Ok(match wanted {
        Wanted::Nothing => IoData::Done,
        Wanted::Bytes(slot) => IoData::Bytes(reply.get(*slot)?),
        Wanted::Stat(slot) => {
            let stat = reply.get(*slot)?;
            IoData::Stat { size: stat.size, mtime_ns: stat.mtime.nanos() }
        }
        Wanted::Range(slot) => {
            let (pairs, more) = reply.get(*slot)?;
            IoData::Omap { pairs, more }
        }
        Wanted::Keys(slot) => IoData::Omap { pairs: reply.get(*slot)?, more: false },
    })
}

/// Sends a request before it returns: those on one object are executed in the order of the calls.
///
/// # Errors
/// EINVAL for steps that read and steps that write in one request, or without steps.
pub fn begin(cluster: &Cluster, io: Io) -> Result<Sent, Errno> {
    let (seq, snaps) = io.snapc;
    // Without room nothing could be removed, and no journal be trimmed.
    let pool = cluster.pool_by_id(io.pool).namespace(io.nspace).even_full();
    let pool = pool.with_snaps(SnapContext { seq, snaps });
    let name = io.object.as_bytes();
    let writes = io.ops.iter().any(IoOp::is_write);
    if io.ops.is_empty() {
        return Err(Errno::INVAL);
    }
    if writes {
        let mut op = WriteOp::new();
        let wanted = io.ops.into_iter().map(|step| write_step(&mut op, step));
        let wanted = wanted.collect::<Result<_, _>>()?;
        return Ok(Sent { pending: pool.begin_write(name, op), wanted });
    }
    let mut op = ReadOp::new();
    let wanted = io.ops.into_iter().map(|step| read_step(&mut op, step));
    let wanted = wanted.collect::<Result<_, _>>()?;
    Ok(Sent { pending: pool.begin_read(name, op), wanted })
}

fn read_step(op: &mut ReadOp, step: IoOp) -> Result<Wanted, Errno> {
    Ok(match step {
        IoOp::Read { off, len } => Wanted::Bytes(op.read(off, len)),
        IoOp::Stat => Wanted::Stat(op.stat()),
        IoOp::OmapHeader => Wanted::Bytes(op.get_omap_header()),
        IoOp::OmapRange { after, max } => Wanted::Range(op.get_omap(&after, b"", max)),
        IoOp::OmapKeys(keys) => {
            Wanted::Keys(op.get_omap_by_keys(&keys.into_iter().collect::<BTreeSet<_>>()))
        }
        IoOp::GetXattr(name) => Wanted::Bytes(op.get_xattr(&name)),
        IoOp::AssertVersion(version) => {
            op.assert_version(version);
            Wanted::Nothing
        }
        IoOp::Write { .. }
        | IoOp::WriteFull(_)
        | IoOp::Append(_)
        | IoOp::Truncate(_)
        | IoOp::TrimTruncate { .. }
        | IoOp::Zero { .. }
        | IoOp::Create { .. }
        | IoOp::Remove
        | IoOp::OmapSet(_)
        | IoOp::OmapRemove(_)
        | IoOp::OmapSetHeader(_)
        | IoOp::OmapClear
        | IoOp::SetXattr(..)
        | IoOp::RmXattr(_) => return Err(Errno::INVAL),
    })
}

fn write_step(op: &mut WriteOp, step: IoOp) -> Result<Wanted, Errno> {
    match step {
        IoOp::Write { off, data } => op.write(off, data),
        IoOp::WriteFull(data) => op.write_full(data),
        IoOp::Append(data) => op.append(data),
        IoOp::Truncate(size) => op.truncate(size),
        IoOp::TrimTruncate { size, seq } => op.trim_truncate(size, seq),
        IoOp::Zero { off, len } => op.zero(off, len),
        IoOp::Create { exclusive } => op.create(exclusive),
        IoOp::Remove => op.remove(),
        IoOp::OmapSet(pairs) => op.set_omap(&pairs.into_iter().collect()),
        IoOp::OmapRemove(keys) => op.rm_omap_keys(&keys.into_iter().collect()),
        IoOp::OmapSetHeader(header) => op.set_omap_header(header),
        IoOp::OmapClear => op.clear_omap(),
        IoOp::SetXattr(name, value) => op.set_xattr(&name, &value),
        IoOp::RmXattr(name) => op.rm_xattr(&name),
        IoOp::AssertVersion(version) => op.assert_version(version),
        IoOp::Read { .. }
        | IoOp::Stat
        | IoOp::OmapHeader
        | IoOp::OmapRange { .. }
        | IoOp::OmapKeys(_)
        | IoOp::GetXattr(_) => return Err(Errno::INVAL),
    };
    Ok(Wanted::Nothing)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One request reads or writes, and each step has its part of the answer.
    #[test]
    fn steps_of_two_kinds_do_not_mix() {
        let (mut read, mut write) = (ReadOp::new(), WriteOp::new());
        assert!(read_step(&mut read, IoOp::Stat).is_ok());
        assert!(read_step(&mut read, IoOp::AssertVersion(3)).is_ok());
        assert!(read_step(&mut read, IoOp::OmapKeys(vec!["a".into()])).is_ok());
        assert!(read_step(&mut read, IoOp::Remove).is_err_and(|e| e == Errno::INVAL));
        assert!(write_step(&mut write, IoOp::Create { exclusive: true }).is_ok());
        assert!(write_step(&mut write, IoOp::OmapSet(vec![("k".into(), "v".into())])).is_ok());
        assert!(write_step(&mut write, IoOp::Stat).is_err_and(|e| e == Errno::INVAL));
        assert_eq!((read.len(), write.len()), (3, 2), "what is refused adds no step");
    }
}
