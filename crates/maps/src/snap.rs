//! Snapshots of objects.

use std::collections::BTreeMap;

use types::{DecodeError, Denc, Reader, SnapId, Writer};

use crate::wire::{SnapIntervals, plain};

plain! {
    /// The snapshots a write has to keep. The peer's `SnapContext`.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    SnapContext {
        /// The newest snapshot.
        seq: SnapId,
        /// All that exist, newest first.
        snaps: Vec<SnapId>,
    }
}

impl SnapContext {
    /// Whether snapshots fall from `seq` down, as they must.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.seq.0 <= u64::MAX - 2
            && self.snaps.first().is_none_or(|s| *s <= self.seq && self.seq.0 > 0)
            && self.snaps.windows(2).all(|w| w[0] > w[1])
            && self.snaps.last().is_none_or(|s| s.0 > 0)
    }
}

/// An object's clones. The peer's `SnapSet`, 3/2.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapSet {
    /// The newest snapshot seen by a write.
    pub seq: SnapId,
    /// Snapshots, newest first, as before release 14.
    pub snaps: Vec<SnapId>,
    /// Clones, oldest first, each named by its newest snapshot.
    pub clones: Vec<SnapId>,
    /// Bytes each clone has in common with the next newer one.
    pub clone_overlap: BTreeMap<SnapId, SnapIntervals>,
    /// Bytes of each clone.
    pub clone_size: BTreeMap<SnapId, u64>,
    /// The snapshots each clone serves, newest first (v3).
    pub clone_snaps: BTreeMap<SnapId, Vec<SnapId>>,
}

impl Denc for SnapSet {
    fn encode(&self, w: &mut Writer) {
        w.framed(3, 2, |w| {
            self.seq.encode(w);
            w.bool(true); // the head exists, or a whiteout stands for it
            self.snaps.encode(w);
            self.clones.encode(w);
            self.clone_overlap.encode(w);
            self.clone_size.encode(w);
            self.clone_snaps.encode(w);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("SnapSet", 3, |r, v| {
            let seq = Denc::decode(r)?;
            let _ = r.bool()?;
            Ok(Self {
                seq,
                snaps: Denc::decode(r)?,
                clones: Denc::decode(r)?,
                clone_overlap: Denc::decode(r)?,
                clone_size: Denc::decode(r)?,
                clone_snaps: if v >= 3 { Denc::decode(r)? } else { BTreeMap::new() },
            })
        })
    }
}
