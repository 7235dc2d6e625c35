//! Requests.

use bytes::Bytes;
use denc::{DecodeError, Denc, Features, Reader, Writer};
use types::{Epoch, Ino, UTime};

use super::{FscryptBlobs, RawArgs};
use crate::{Message, plain_message};

/// Operations. The peer's `CEPH_MDS_OP_*`; those with [`mds_op::WRITE`] change something.
#[allow(missing_docs)]
pub mod mds_op {
    pub const WRITE: u32 = 0x1000;
    macro_rules! ops {
        ($($name:ident = $op:literal $text:literal;)*) => {
            $(pub const $name: u32 = $op;)*
            /// The peer's name of an operation; `???` for none.
            #[must_use]
            pub const fn name(op: u32) -> &'static str {
                match op {
                    $($op => $text,)*
                    _ => "???",
                }
            }
        };
    }
    ops! {
        LOOKUP = 0x100 "lookup";
        GETATTR = 0x101 "getattr";
        LOOKUPHASH = 0x102 "lookuphash";
        LOOKUPPARENT = 0x103 "lookupparent";
        LOOKUPINO = 0x104 "lookupino";
        LOOKUPNAME = 0x105 "lookupname";
        GETVXATTR = 0x106 "getvxattr";
        GETFILELOCK = 0x110 "getfilelock";
        OPEN = 0x302 "open";
        READDIR = 0x305 "readdir";
        LOOKUPSNAP = 0x400 "lookupsnap";
        LSSNAP = 0x402 "lssnap";
        SETXATTR = 0x1105 "setxattr";
        RMXATTR = 0x1106 "rmxattr";
        SETLAYOUT = 0x1107 "setlayout";
        SETATTR = 0x1108 "setattr";
        SETFILELOCK = 0x1109 "setfilelock";
        SETDIRLAYOUT = 0x110a "setdirlayout";
        MKNOD = 0x1201 "mknod";
        LINK = 0x1202 "link";
        UNLINK = 0x1203 "unlink";
        RENAME = 0x1204 "rename";
        MKDIR = 0x1220 "mkdir";
        RMDIR = 0x1221 "rmdir";
        SYMLINK = 0x1222 "symlink";
        CREATE = 0x1301 "create";
        MKSNAP = 0x1400 "mksnap";
        RMSNAP = 0x1401 "rmsnap";
        RENAMESNAP = 0x1403 "renamesnap";
        READDIR_SNAPDIFF = 0x1404 "readdir_snapdiff";
        FILE_BLOCKDIFF = 0x1405 "file_blockdiff";
        UNINLINE_DATA = 0x150b "uninline_data";
    }
}

/// Flags of a request.
#[allow(missing_docs)]
pub mod request_flag {
    /// It was answered unsafely, and is sent again to a successor.
    pub const REPLAY: u32 = 1;
    /// The answer is to name the entry, also where there is none.
    pub const WANT_DENTRY: u32 = 2;
    /// The client acts as if it were answered: it has the caps for it.
    pub const ASYNC: u32 = 4;
}

/// A path from an inode: u8 1, u64 inode, string.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilePath {
    /// Where it begins; 0 for none.
    pub ino: Ino,
    /// Names and slashes; empty for the inode itself.
    pub path: Bytes,
}

impl Denc for FilePath {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        self.ino.encode(w);
        w.blob(&self.path);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.skip(1)?;
        Ok(Self { ino: Denc::decode(r)?, path: r.blob()? })
    }
}

/// Caps, and a lease, that a request gives back. The peer's `ceph_mds_request_release` with
/// the name behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct ReleaseItem {
    pub ino: Ino,
    pub cap_id: u64,
    /// What the client keeps.
    pub caps: u32,
    pub wanted: u32,
    pub seq: u32,
    pub issue_seq: u32,
    pub mseq: u32,
    pub dname_seq: u32,
    /// The entry whose lease is given back; empty for none.
    pub dname: Bytes,
}

impl Denc for ReleaseItem {
    fn encode(&self, w: &mut Writer) {
        self.ino.encode(w);
        w.u64(self.cap_id);
        for x in [self.caps, self.wanted, self.seq, self.issue_seq, self.mseq, self.dname_seq] {
            w.u32(x);
        }
        w.blob(&self.dname); // the length is the head's last field
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            ino: Denc::decode(r)?,
            cap_id: r.u64()?,
            caps: r.u32()?,
            wanted: r.u32()?,
            seq: r.u32()?,
            issue_seq: r.u32()?,
            mseq: r.u32()?,
            dname_seq: r.u32()?,
            dname: r.blob()?,
        })
    }
}

/// For whom a request is made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Caller {
    pub uid: u32,
    pub gid: u32,
    pub gids: Vec<u64>,
    /// Who will own what is made (head version 3); all ones where that is the caller.
    pub owner_uid: u32,
    pub owner_gid: u32,
}

impl Default for Caller {
    fn default() -> Self {
        Self { uid: 0, gid: 0, gids: Vec::new(), owner_uid: u32::MAX, owner_gid: u32::MAX }
    }
}

/// An operation on the tree. `MClientRequest`: version 4 from kernels, 5 from release 16, 6
/// since. The header's tid is the request's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientRequest {
    /// Version of the head: 1; 2 with counters of 32 bits, where the server has the feature
    /// `32bits_retry_fwd`; 3 with the owner, where it has `has_owner_uidgid`.
    pub head_version: u16,
    /// No request below is asked again.
    pub oldest_client_tid: u64,
    /// The client's MDS map.
    pub mdsmap_epoch: Epoch,
    /// [`request_flag`].
    pub flags: u32,
    /// How often it was sent again.
    pub num_retry: u32,
    /// How often another server was named.
    pub num_fwd: u32,
    /// [`mds_op`].
    pub op: u32,
    /// For whom.
    pub caller: Caller,
    /// The inode that the client chose, or was told before; 0 for none.
    pub ino: Ino,
    /// [`super::Args`].
    pub args: RawArgs,
    /// The inode, or the new name.
    pub path: FilePath,
    /// The second inode, old name, target or attribute's name.
    pub path2: FilePath,
    /// Caps given back.
    pub releases: Vec<ReleaseItem>,
    /// The client's time.
    pub stamp: UTime,
    /// The name's encrypted form (v5).
    pub alternate_name: Bytes,
    /// Encryption (v6).
    pub fscrypt: FscryptBlobs,
    /// An attribute's value, a snapshot's encoded [`maps::fs::SnapPayload`].
    pub data: Bytes,
}

impl Default for ClientRequest {
    fn default() -> Self {
        Self {
            head_version: 3,
            oldest_client_tid: 0,
            mdsmap_epoch: Epoch(0),
            flags: 0,
            num_retry: 0,
            num_fwd: 0,
            op: 0,
            caller: Caller::default(),
            ino: Ino(0),
            args: RawArgs::default(),
            path: FilePath::default(),
            path2: FilePath::default(),
            releases: Vec::new(),
            stamp: UTime::ZERO,
            alternate_name: Bytes::new(),
            fscrypt: FscryptBlobs::default(),
            data: Bytes::new(),
        }
    }
}

const HEAD_LEN_V3: u32 = 118;

impl Message for ClientRequest {
    const KIND: u16 = 24;
    const VERSION: u16 = 6;

    fn version_for(&self, features: Features) -> u16 {
        if maps::release(features) == 16 { 5 } else { Self::VERSION }
    }

    fn data(&self) -> Bytes {
        self.data.clone()
    }

    fn encode_front(&self, w: &mut Writer) {
        let version = self.head_version.clamp(1, 3);
        w.u16(version);
        w.u64(self.oldest_client_tid);
        self.mdsmap_epoch.encode(w);
        w.u32(self.flags);
        w.u8(self.num_retry as u8); // the low byte: readers of version 2 take the whole below
        w.u8(self.num_fwd as u8);
        w.u16(u16::try_from(self.releases.len()).expect("a request gives back few caps"));
        w.u32(self.op);
        w.u32(self.caller.uid);
        w.u32(self.caller.gid);
        self.ino.encode(w);
        w.raw(&self.args.0);
        if version >= 2 {
            w.u32(self.num_retry);
            w.u32(self.num_fwd);
        }
        if version >= 3 {
            w.u32(HEAD_LEN_V3);
            w.u32(self.caller.owner_uid);
            w.u32(self.caller.owner_gid);
        }
        self.path.encode(w);
        self.path2.encode(w);
        for release in &self.releases {
            release.encode(w);
        }
        self.stamp.encode(w);
        self.caller.gids.encode(w);
        w.blob(&self.alternate_name);
        if self.version_for(w.features()) >= 6 {
            w.blob(&self.fscrypt.auth);
            w.blob(&self.fscrypt.file);
        }
    }

    fn decode_front(r: &mut Reader<'_>, version: u16, data: &Bytes) -> Result<Self, DecodeError> {
        r.require(version >= 4, "requests are read from version 4 on")?;
        let start = r.offset();
        let head_version = r.u16()?;
        r.require(head_version >= 1, "a request's head has version 1 or later")?;
        let mut m = Self {
            head_version: head_version.min(3),
            oldest_client_tid: r.u64()?,
            mdsmap_epoch: Denc::decode(r)?,
            flags: r.u32()?,
            num_retry: r.u8()?.into(),
            num_fwd: r.u8()?.into(),
            data: data.clone(),
            ..Self::default()
        };
        let releases = r.u16()?;
        m.op = r.u32()?;
        (m.caller.uid, m.caller.gid) = (r.u32()?, r.u32()?);
        m.ino = Denc::decode(r)?;
        m.args = RawArgs(r.array()?);
        if head_version >= 2 {
            (m.num_retry, m.num_fwd) = (r.u32()?, r.u32()?);
        }
        if head_version >= 3 {
            let len = r.u32()? as usize;
            (m.caller.owner_uid, m.caller.owner_gid) = (r.u32()?, r.u32()?);
            let read = r.offset() - start;
            r.require(len >= read, "a request's head is as long as its version")?;
            r.skip(len - read)?;
        }
        m.path = Denc::decode(r)?;
        m.path2 = Denc::decode(r)?;
        for _ in 0..releases {
            m.releases.push(Denc::decode(r)?);
        }
        m.stamp = Denc::decode(r)?;
        m.caller.gids = Denc::decode(r)?;
        if version >= 5 {
            m.alternate_name = r.blob()?;
        }
        if version >= 6 {
            m.fscrypt = FscryptBlobs { auth: r.blob()?, file: r.blob()? };
        }
        Ok(m)
    }
}

plain_message! {
    /// Another server has what a request is about; the header's tid is the request's.
    /// `MClientRequestForward`.
    ClientRequestForward, 25;
    {
        /// That server's rank.
        dest_mds: i32,
        /// How often the request was sent on.
        num_fwd: i32,
        /// Always true: the client sends it again itself.
        client_must_resend: bool,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::Args;

    /// A getattr as 20.2.4 sends it, and heads of the other versions.
    #[test]
    fn heads() {
        let mut m = ClientRequest {
            oldest_client_tid: 1,
            mdsmap_epoch: Epoch(5),
            op: mds_op::GETATTR,
            path: FilePath { ino: Ino(1), path: Bytes::new() },
            args: Args::Mask(0x155).to_raw(),
            num_retry: 300,
            ..ClientRequest::default()
        };
        let env = m.envelope(Features::TENTACLE_WORD);
        assert_eq!((env.version, env.front.len()), (6, 168));
        assert_eq!(env.front[106..110], 118u32.to_le_bytes());
        assert_eq!(ClientRequest::decode(&env), Ok(m.clone()));
        // A longer head of a later version.
        let mut later = env.front.to_vec();
        later[0] = 4;
        later[106] += 4;
        later.splice(118..118, [9, 9, 9, 9]);
        let later = crate::Envelope { front: later.into(), ..env.clone() };
        assert_eq!(ClientRequest::decode(&later), Ok(m.clone()));
        let mut short = env.front.to_vec();
        short[106] -= 1;
        let short = crate::Envelope { front: short.into(), ..env };
        assert!(ClientRequest::decode(&short).is_err());
        for (version, len, retries) in [(1, 148, 44), (2, 156, 300)] {
            m.head_version = version;
            let env = m.envelope(Features::TENTACLE_WORD);
            assert_eq!(
                (env.front.len(), ClientRequest::decode(&env).unwrap().num_retry),
                (len, retries)
            );
        }
    }
}
