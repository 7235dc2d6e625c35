//! Caps: what a client may do with an inode without asking.

use bytes::Bytes;
use denc::{DecodeError, Denc, Features, Reader, Writer};
use maps::fs::InlineData;
use striper::FileLayout;
use types::{Ino, SnapId, UTime};

use super::FscryptBlobs;
use crate::{Envelope, Message};

/// What a [`ClientCaps`] says. The peer's `CEPH_CAP_OP_*`.
#[allow(missing_docs)]
pub mod cap_op {
    pub const GRANT: u32 = 0;
    pub const REVOKE: u32 = 1;
    pub const TRUNC: u32 = 2;
    pub const EXPORT: u32 = 3;
    pub const IMPORT: u32 = 4;
    pub const UPDATE: u32 = 5;
    pub const DROP: u32 = 6;
    pub const FLUSH: u32 = 7;
    pub const FLUSH_ACK: u32 = 8;
    pub const FLUSHSNAP: u32 = 9;
    pub const FLUSHSNAP_ACK: u32 = 10;
    pub const RELEASE: u32 = 11;
    pub const RENEW: u32 = 12;
}

/// The cap at the other server, of one that moves. The peer's `ceph_mds_cap_peer`, 21 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct CapPeer {
    pub cap_id: u64,
    /// Its issue seq.
    pub seq: u32,
    pub mseq: u32,
    pub mds: i32,
    pub flags: u8,
}

impl CapPeer {
    const LEN: usize = 21;
}

impl Denc for CapPeer {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.cap_id);
        w.u32(self.seq);
        w.u32(self.mseq);
        w.i32(self.mds);
        w.u8(self.flags);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { cap_id: r.u64()?, seq: r.u32()?, mseq: r.u32()?, mds: r.i32()?, flags: r.u8()? })
    }
}

/// Values that caps `A`, `L` and `X` are about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct CapAttrs {
    pub uid: u32,
    pub gid: u32,
    pub mode: u32,
    pub nlink: u32,
    pub xattr_version: u64,
    /// An encoded map, in the middle segment; empty when not said.
    pub xattrs: Bytes,
    /// v9.
    pub btime: UTime,
    /// v9.
    pub change_attr: u64,
}

/// Values that caps `F` are about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct CapFile {
    pub size: u64,
    pub max_size: u64,
    pub truncate_size: u64,
    pub truncate_seq: u32,
    pub mtime: UTime,
    pub atime: UTime,
    pub ctime: UTime,
    /// Its namespace since v8.
    pub layout: FileLayout,
    pub time_warp_seq: u32,
}

impl CapFile {
    const LEN: usize = 84;
}

/// What later versions added, beside single values of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct CapTail {
    /// Wait for this OSD map before I/O (v5).
    pub osd_epoch_barrier: u32,
    /// No flush below is asked again (v6).
    pub oldest_flush_tid: u64,
    /// For whom; all ones when not said (v7).
    pub caller_uid: u32,
    pub caller_gid: u32,
    /// 1 sync, 2 no capsnap, 4 pending capsnap (v10).
    pub flags: u32,
    /// Of a directory; -1 when not said (v11).
    pub nfiles: i64,
    pub nsubdirs: i64,
}

impl Default for CapTail {
    fn default() -> Self {
        Self {
            osd_epoch_barrier: 0,
            oldest_flush_tid: 0,
            caller_uid: u32::MAX,
            caller_gid: u32::MAX,
            flags: 0,
            nfiles: -1,
            nsubdirs: -1,
        }
    }
}

/// A cap changes, or what it is about was changed by it. `MClientCaps`: version 11 for peers
/// of release 16, 12 since; all before are read. The header's tid is a flush's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientCaps {
    /// [`cap_op`].
    pub op: u32,
    /// The inode.
    pub ino: Ino,
    /// Its realm.
    pub realm: Ino,
    /// The cap's number.
    pub cap_id: u64,
    /// Counts messages about the cap; a client repeats the last.
    pub seq: u32,
    /// The seq with which it was issued last.
    pub issue_seq: u32,
    /// What is held, or shall be.
    pub caps: u32,
    /// What the client wants.
    pub wanted: u32,
    /// What it changed.
    pub dirty: u32,
    /// Counts moves between servers.
    pub migrate_seq: u32,
    /// The newest snapshot that the changes are not part of.
    pub snap_follows: SnapId,
    /// Owner, names, attributes.
    pub attrs: CapAttrs,
    /// Size, times, layout; zeros in [`cap_op::EXPORT`].
    pub file: CapFile,
    /// The cap at the other server: in [`cap_op::EXPORT`] and [`cap_op::IMPORT`].
    pub peer: Option<CapPeer>,
    /// Realms: see [`super::read_snap_trace`].
    pub snap_trace: Bytes,
    /// An encoded [`super::HeldLocks`], or empty (v2).
    pub flock: Bytes,
    /// Bytes in the inode (v4).
    pub inline: InlineData,
    /// The rest.
    pub tail: CapTail,
    /// Encryption (v12).
    pub fscrypt: FscryptBlobs,
}

impl Message for ClientCaps {
    const KIND: u16 = 0x310;
    const VERSION: u16 = 12;

    fn version_for(&self, features: Features) -> u16 {
        if maps::release(features) == 16 { 11 } else { Self::VERSION }
    }

    fn envelope(&self, features: Features) -> Envelope {
        let mut w = Writer::with_capacity(features, 512);
        self.encode_front(&mut w);
        Envelope {
            kind: Self::KIND,
            priority: Self::PRIORITY,
            version: self.version_for(features),
            compat: Self::COMPAT,
            front: w.finish(),
            middle: self.attrs.xattrs.clone(),
            ..Envelope::default()
        }
    }

    fn decode(env: &Envelope) -> Result<Self, DecodeError> {
        if env.compat > Self::VERSION {
            return Err(DecodeError::TooNew {
                what: "client_caps",
                compat: env.compat.min(255) as u8,
                known: Self::VERSION as u8,
            });
        }
        let r = &mut Reader::shared(&env.front);
        let mut m = Self::decode_front(r, env.version, &env.data)?;
        m.attrs.xattrs = env.middle.clone();
        Ok(m)
    }

    fn encode_front(&self, w: &mut Writer) {
        let len = |bytes: &Bytes| u32::try_from(bytes.len()).expect("a message is below 4 GiB");
        w.u32(self.op);
        self.ino.encode(w);
        self.realm.encode(w);
        w.u64(self.cap_id);
        for x in [self.seq, self.issue_seq, self.caps, self.wanted, self.dirty, self.migrate_seq] {
            w.u32(x);
        }
        self.snap_follows.encode(w);
        w.u32(len(&self.snap_trace));
        let a = &self.attrs;
        for x in [a.uid, a.gid, a.mode, a.nlink, len(&a.xattrs)] {
            w.u32(x);
        }
        w.u64(a.xattr_version);
        if self.op == cap_op::EXPORT {
            self.peer.unwrap_or_default().encode(w);
            w.raw(&[0; CapFile::LEN - CapPeer::LEN]);
        } else {
            let f = &self.file;
            for x in [f.size, f.max_size, f.truncate_size] {
                w.u64(x);
            }
            w.u32(f.truncate_seq);
            for time in [f.mtime, f.atime, f.ctime] {
                time.encode(w);
            }
            f.layout.encode_legacy(w);
            w.u32(f.time_warp_seq);
        }
        w.raw(&self.snap_trace);
        w.blob(&self.flock);
        if self.op == cap_op::IMPORT {
            self.peer.unwrap_or_default().encode(w);
        }
        self.inline.encode(w);
        let t = &self.tail;
        w.u32(t.osd_epoch_barrier);
        w.u64(t.oldest_flush_tid);
        w.u32(t.caller_uid);
        w.u32(t.caller_gid);
        w.blob(&self.file.layout.pool_ns);
        a.btime.encode(w);
        w.u64(a.change_attr);
        w.u32(t.flags);
        w.i64(t.nfiles);
        w.i64(t.nsubdirs);
        if self.version_for(w.features()) >= 12 {
            w.blob(&self.fscrypt.auth);
            w.blob(&self.fscrypt.file);
        }
    }

    fn decode_front(r: &mut Reader<'_>, version: u16, _: &Bytes) -> Result<Self, DecodeError> {
        let mut m = Self {
            op: r.u32()?,
            ino: Denc::decode(r)?,
            realm: Denc::decode(r)?,
            cap_id: r.u64()?,
            seq: r.u32()?,
            issue_seq: r.u32()?,
            caps: r.u32()?,
            wanted: r.u32()?,
            dirty: r.u32()?,
            migrate_seq: r.u32()?,
            snap_follows: Denc::decode(r)?,
            ..Self::default()
        };
        let trace_len = r.u32()? as usize;
        let a = &mut m.attrs;
        (a.uid, a.gid, a.mode, a.nlink) = (r.u32()?, r.u32()?, r.u32()?, r.u32()?);
        r.u32()?; // the middle segment's length
        a.xattr_version = r.u64()?;
        if m.op == cap_op::EXPORT {
            m.peer = Some(Denc::decode(r)?);
            r.skip(CapFile::LEN - CapPeer::LEN)?;
        } else {
            m.file = CapFile {
                size: r.u64()?,
                max_size: r.u64()?,
                truncate_size: r.u64()?,
                truncate_seq: r.u32()?,
                mtime: Denc::decode(r)?,
                atime: Denc::decode(r)?,
                ctime: Denc::decode(r)?,
                layout: FileLayout::decode_legacy(r)?,
                time_warp_seq: r.u32()?,
            };
        }
        m.snap_trace = r.share(trace_len)?;
        if version >= 2 {
            m.flock = r.blob()?;
        }
        if version >= 3 && m.op == cap_op::IMPORT {
            m.peer = Some(Denc::decode(r)?);
        }
        if version >= 4 {
            m.inline = Denc::decode(r)?;
        }
        if version >= 5 {
            m.tail.osd_epoch_barrier = r.u32()?;
        }
        if version >= 6 {
            m.tail.oldest_flush_tid = r.u64()?;
        }
        if version >= 7 {
            (m.tail.caller_uid, m.tail.caller_gid) = (r.u32()?, r.u32()?);
        }
        if version >= 8 {
            m.file.layout.pool_ns = r.blob()?;
        }
        if version >= 9 {
            m.attrs.btime = Denc::decode(r)?;
            m.attrs.change_attr = r.u64()?;
        }
        if version >= 10 {
            m.tail.flags = r.u32()?;
        }
        if version >= 11 {
            (m.tail.nfiles, m.tail.nsubdirs) = (r.i64()?, r.i64()?);
        }
        if version >= 12 {
            m.fscrypt = FscryptBlobs { auth: r.blob()?, file: r.blob()? };
        }
        Ok(m)
    }
}

/// A cap that a client gives back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct ReleasedCap {
    pub ino: Ino,
    pub cap_id: u64,
    pub migrate_seq: u32,
    /// Its issue seq.
    pub seq: u32,
}

impl Denc for ReleasedCap {
    fn encode(&self, w: &mut Writer) {
        self.ino.encode(w);
        w.u64(self.cap_id);
        w.u32(self.migrate_seq);
        w.u32(self.seq);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { ino: Denc::decode(r)?, cap_id: r.u64()?, migrate_seq: r.u32()?, seq: r.u32()? })
    }
}

/// Caps that a client gives back. `MClientCapRelease`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientCapRelease {
    /// The caps that are given back.
    pub caps: Vec<ReleasedCap>,
    /// Who gets them next waits for this OSD map (v2).
    pub osd_epoch_barrier: u32,
}

impl Message for ClientCapRelease {
    const KIND: u16 = 0x313;
    const VERSION: u16 = 2;

    fn encode_front(&self, w: &mut Writer) {
        self.caps.encode(w);
        w.u32(self.osd_epoch_barrier);
    }
    fn decode_front(r: &mut Reader<'_>, version: u16, _: &Bytes) -> Result<Self, DecodeError> {
        let caps = Denc::decode(r)?;
        Ok(Self { caps, osd_epoch_barrier: if version >= 2 { r.u32()? } else { 0 } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Caps that move name the other server, each in its own place; sizes as seen live.
    #[test]
    fn moves() {
        let peer = Some(CapPeer { cap_id: 7, seq: 1, mseq: 2, mds: 1, flags: 1 });
        for (op, len) in [(cap_op::EXPORT, 260), (cap_op::IMPORT, 281), (cap_op::GRANT, 260)] {
            let moves = op != cap_op::GRANT;
            let mut m = ClientCaps { op, peer: peer.filter(|_| moves), ..ClientCaps::default() };
            m.attrs.xattrs = Bytes::from_static(&[0; 4]);
            let env = m.envelope(Features::TENTACLE_WORD);
            assert_eq!((env.front.len(), env.middle.len()), (len, 4));
            assert_eq!(ClientCaps::decode(&env), Ok(m));
        }
    }

    /// A kernel's version 10 ends before the counts of a directory.
    #[test]
    fn earlier_versions() {
        let m = ClientCaps { flock: "x".into(), ..ClientCaps::default() };
        let env = m.envelope(Features::PACIFIC_WORD);
        for (version, cut) in [(11, 0), (10, 16), (9, 20), (8, 36), (7, 40), (6, 48)] {
            let front = env.front.slice(..env.front.len() - cut);
            let old = Envelope { version, front, ..env.clone() };
            assert_eq!(ClientCaps::decode(&old), Ok(m.clone()), "version {version}");
        }
    }
}
