//! Items of the purge queue: inodes whose objects are to go.

use striper::FileLayout;
use types::{DecodeError, Denc, Ino, PoolId, Reader, UTime, Writer};

use super::FragTree;
use crate::snap::SnapContext;

/// What is to be done. The peer's `PurgeItem::Action`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PurgeAction(pub u8);

impl PurgeAction {
    /// Nothing is to be done.
    pub const NONE: Self = Self(0);
    /// A file's objects go, and its backtraces.
    pub const FILE: Self = Self(1);
    /// A file's objects go but the first, which is emptied.
    pub const TRUNCATE: Self = Self(2);
    /// A directory's fragments go, and its backtrace.
    pub const DIR: Self = Self(3);
}

/// One inode to purge. The peer's `PurgeItem`, 2/1; bytes behind its fields are padding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PurgeItem {
    /// What to do.
    pub action: PurgeAction,
    /// Whose objects.
    pub ino: Ino,
    /// No object is beyond this many bytes.
    pub size: u64,
    /// Where they are.
    pub layout: FileLayout,
    /// Pools with older backtraces.
    pub old_pools: Vec<PoolId>,
    /// Snapshots that keep their objects.
    pub snapc: SnapContext,
    /// A directory's fragments.
    pub fragtree: FragTree,
    /// When it was queued (v2).
    pub stamp: UTime,
}

impl Denc for PurgeItem {
    fn encode(&self, w: &mut Writer) {
        w.framed(2, 1, |w| {
            w.u8(self.action.0);
            self.ino.encode(w);
            w.u64(self.size);
            self.layout.encode(w);
            self.old_pools.encode(w);
            self.snapc.encode(w);
            self.fragtree.encode(w);
            self.stamp.encode(w);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("PurgeItem", 2, |r, v| {
            Ok(Self {
                action: PurgeAction(r.u8()?),
                ino: Denc::decode(r)?,
                size: r.u64()?,
                layout: Denc::decode(r)?,
                old_pools: Denc::decode(r)?,
                snapc: Denc::decode(r)?,
                fragtree: Denc::decode(r)?,
                stamp: if v >= 2 { Denc::decode(r)? } else { UTime::ZERO },
            })
        })
    }
}
