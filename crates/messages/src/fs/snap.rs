//! Snapshots: what clients are told of realms.

use bytes::Bytes;
use denc::{DecodeError, Denc, Reader, Writer};
use maps::fs::{SnapRealmInfo, SnapRealmInfoNew};
use types::Ino;

use crate::Message;

/// What a [`ClientSnap`] says.
#[allow(missing_docs)]
pub mod snap_op {
    pub const UPDATE: u32 = 0;
    pub const CREATE: u32 = 1;
    pub const DESTROY: u32 = 2;
    pub const SPLIT: u32 = 3;
}

/// A realm changed. `MClientSnap`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientSnap {
    /// [`snap_op`].
    pub op: u32,
    /// The realm that was made out of another.
    pub split: Ino,
    /// Inodes that moved into it.
    pub split_inos: Vec<Ino>,
    /// Realms that moved below it.
    pub split_realms: Vec<Ino>,
    /// The realm and all above: see [`read_snap_trace`].
    pub trace: Bytes,
}

impl Message for ClientSnap {
    const KIND: u16 = 0x312;

    fn encode_front(&self, w: &mut Writer) {
        w.u32(self.op);
        self.split.encode(w);
        for len in [self.split_inos.len(), self.split_realms.len(), self.trace.len()] {
            w.u32(u32::try_from(len).expect("a message is below 4 GiB"));
        }
        for ino in self.split_inos.iter().chain(&self.split_realms) {
            ino.encode(w);
        }
        w.raw(&self.trace);
    }

    fn decode_front(r: &mut Reader<'_>, _: u16, _: &Bytes) -> Result<Self, DecodeError> {
        let (op, split) = (r.u32()?, Denc::decode(r)?);
        let [inos, realms, trace] = [r.u32()?, r.u32()?, r.u32()?].map(|n| n as usize);
        let fits = inos.checked_add(realms).is_some_and(|n| n <= r.left() / 8);
        r.require(fits, "the inodes of a split fit into the message")?;
        let read =
            |r: &mut Reader<'_>, n| (0..n).map(|_| Ino::decode(r)).collect::<Result<Vec<_>, _>>();
        Ok(Self {
            op,
            split,
            split_inos: read(r, inos)?,
            split_realms: read(r, realms)?,
            trace: r.share(trace)?,
        })
    }
}

fn read_all<T: Denc>(trace: &Bytes) -> Result<Vec<T>, DecodeError> {
    let mut r = Reader::shared(trace);
    let mut realms = Vec::new();
    while r.left() > 0 {
        realms.push(T::decode(&mut r)?);
    }
    Ok(realms)
}

/// The realms of a trace, the inode's first, the root's last.
///
/// # Errors
/// [`DecodeError`].
pub fn read_snap_trace(trace: &Bytes) -> Result<Vec<SnapRealmInfo>, DecodeError> {
    read_all(trace)
}

/// The same of a trace for a client with the feature `new_snaprealm_info`.
///
/// # Errors
/// [`DecodeError`].
pub fn read_snap_trace_new(trace: &Bytes) -> Result<Vec<SnapRealmInfoNew>, DecodeError> {
    read_all(trace)
}
