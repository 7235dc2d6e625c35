//! Snapshots of directories: realms, the table of all, and what clients are told.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use types::{DecodeError, Denc, Ino, PoolId, Reader, SnapId, UTime, Writer};

use super::{ByteMap, TablePending};
use crate::wire::{plain, record, release};

record! {
    /// A snapshot of a directory. The peer's `SnapInfo`: v3, and v4 since release 19.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    SnapInfo "SnapInfo", compat 2, known 4, |f| if release(f) >= 19 { 4 } else { 3 }; {
        /// Its id.
        snapid: SnapId,
        /// The directory.
        ino: Ino,
        /// When it was made.
        stamp: UTime,
        /// Its name.
        name: Bytes,
        /// What was said of it.
        3 => metadata: ByteMap,
        /// Its encrypted name.
        4 => alternate_name: Bytes,
    }
}

record! {
    /// A realm that another was below of; none is written since release 13. The peer's
    /// `snaplink_t`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    SnapLink "snaplink_t", compat 2, known 2, |f| 2; {
        /// The directory.
        ino: Ino,
        /// Since this snapshot.
        first: SnapId,
    }
}

record! {
    /// A realm as it is stored with its inode. The peer's `sr_t`: v6 in release 16, v7 since.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    SnapRealm "sr_t", compat 4, known 7, |f| if release(f) >= 18 { 7 } else { 6 }; {
        /// The newest change of its snapshots.
        seq: SnapId,
        /// Since when it is a realm.
        created: SnapId,
        /// The newest snapshot made.
        last_created: SnapId,
        /// The newest removal.
        last_destroyed: SnapId,
        /// Since when it is below its parent.
        current_parent_since: SnapId,
        /// Its own snapshots.
        snaps: BTreeMap<SnapId, SnapInfo>,
        /// As releases up to 12 kept what is now in the next field.
        past_parents: BTreeMap<SnapId, SnapLink>,
        /// Snapshots of realms that it was below of.
        5 => past_parent_snaps: BTreeSet<SnapId>,
        /// [`SnapRealm::PARENT_GLOBAL`], [`SnapRealm::SUBVOLUME`].
        6 => flags: u32,
        /// When it changed.
        7 => last_modified: UTime,
        /// Counts changes for clients.
        7 => change_attr: u64,
    }
}

impl SnapRealm {
    /// Its parent is the global realm: it has several names.
    pub const PARENT_GLOBAL: u32 = 1;
    /// Nothing is linked or renamed across its border.
    pub const SUBVOLUME: u32 = 2;
}

record! {
    /// All snapshots of a file system. The peer's `SnapServer`, in a
    /// [`SnapTableObject`].
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    SnapTable "SnapServer", compat 3, known 5, |f| 5; {
        /// The newest id given.
        last_snap: SnapId,
        /// All that exist.
        snaps: BTreeMap<SnapId, SnapInfo>,
        /// Removed ones that the monitors were not told yet, by data pool.
        need_to_purge: BTreeMap<i32, Vec<SnapId>>,
        /// Prepared: to be made or renamed, by transaction.
        pending_update: BTreeMap<u64, SnapInfo>,
        /// Prepared: to be removed, and the id of the change.
        pending_destroy: BTreeMap<u64, (SnapId, SnapId)>,
        /// Prepared: a change of realms alone.
        4 => pending_noop: BTreeSet<u64>,
        /// The newest snapshot made.
        5 => last_created: SnapId,
        /// The newest removal.
        5 => last_destroyed: SnapId,
        /// Since when realms have no past parents.
        5 => snaprealm_v2_since: SnapId,
    }
}

impl SnapTable {
    /// What the pool's number has to fit for [`SnapTable::need_to_purge`].
    #[must_use]
    pub fn purge_key(pool: PoolId) -> Option<i32> {
        i32::try_from(pool.0).ok()
    }
}

plain! {
    /// `mds_snaptable`, the object of a file system's first rank.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    SnapTableObject {
        /// Counts changes.
        version: u64,
        /// The table.
        table: SnapTable,
        /// What ranks prepared, by transaction.
        pending: BTreeMap<u64, TablePending>,
    }
}

record! {
    /// What a client says of a snapshot that it asks for. The peer's `SnapPayload`.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    SnapPayload "SnapPayload", compat 1, known 1, |f| 1; {
        /// Words and values.
        metadata: ByteMap,
    }
}

/// A realm as clients are told. The peer's `SnapRealmInfo`: `ceph_mds_snap_realm` of 48
/// bytes, whose two counts say how many u64 follow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapRealmInfo {
    /// The directory.
    pub ino: Ino,
    /// Since when it is a realm.
    pub created: SnapId,
    /// The realm above; 0 for the root's.
    pub parent: Ino,
    /// Since when that is above.
    pub parent_since: SnapId,
    /// The newest change.
    pub seq: SnapId,
    /// Its snapshots, newest first.
    pub snaps: Vec<SnapId>,
    /// Those of realms it was below of, newest first.
    pub prior_parent_snaps: Vec<SnapId>,
}

impl Denc for SnapRealmInfo {
    fn encode(&self, w: &mut Writer) {
        for x in [self.ino.0, self.created.0, self.parent.0, self.parent_since.0, self.seq.0] {
            w.u64(x);
        }
        let count = |n: usize| u32::try_from(n).expect("a count fits u32");
        w.u32(count(self.snaps.len()));
        w.u32(count(self.prior_parent_snaps.len()));
        for snap in self.snaps.iter().chain(&self.prior_parent_snaps) {
            snap.encode(w);
        }
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut info = Self {
            ino: Denc::decode(r)?,
            created: Denc::decode(r)?,
            parent: Denc::decode(r)?,
            parent_since: Denc::decode(r)?,
            seq: Denc::decode(r)?,
            ..Self::default()
        };
        let (own, prior) = (r.u32()? as usize, r.u32()? as usize);
        let fits = own.checked_add(prior).is_some_and(|n| n <= r.left() / 8);
        r.require(fits, "a realm's snapshots fit into its bytes")?;
        let read = |r: &mut Reader<'_>, n| {
            (0..n).map(|_| SnapId::decode(r)).collect::<Result<Vec<_>, _>>()
        };
        info.snaps = read(r, own)?;
        info.prior_parent_snaps = read(r, prior)?;
        Ok(info)
    }
}

/// The same for clients with the feature `new_snaprealm_info`. The peer's `SnapRealmInfoNew`:
/// 1/1; 2/1 with flags, which releases after 20.2 write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapRealmInfoNew {
    /// The realm.
    pub info: SnapRealmInfo,
    /// When it changed.
    pub last_modified: UTime,
    /// Counts changes.
    pub change_attr: u64,
    /// Flags, where the sender has them.
    pub flags: Option<u32>,
}

impl Denc for SnapRealmInfoNew {
    fn encode(&self, w: &mut Writer) {
        w.framed(1 + u8::from(self.flags.is_some()), 1, |w| {
            self.info.encode(w);
            self.last_modified.encode(w);
            w.u64(self.change_attr);
            if let Some(flags) = self.flags {
                w.u32(flags);
            }
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("SnapRealmInfoNew", 2, |r, v| {
            Ok(Self {
                info: Denc::decode(r)?,
                last_modified: Denc::decode(r)?,
                change_attr: r.u64()?,
                flags: if v >= 2 { Some(r.u32()?) } else { None },
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A new file system's.
    #[test]
    fn fresh_table() {
        let table = SnapTable {
            last_snap: SnapId(1),
            last_created: SnapId(1),
            last_destroyed: SnapId(1),
            snaprealm_v2_since: SnapId(2),
            ..SnapTable::default()
        };
        let object = SnapTableObject { version: 1, table, pending: BTreeMap::new() };
        let bytes = object.to_bytes();
        assert_eq!(bytes.len(), 8 + 6 + 8 + 5 * 4 + 3 * 8 + 4);
        assert_eq!(bytes[..14], [1, 0, 0, 0, 0, 0, 0, 0, 5, 3, 52, 0, 0, 0]);
        assert_eq!(SnapTableObject::from_bytes(&bytes), Ok(object));
        assert_eq!(SnapPayload::default().to_bytes(), &b"\x01\x01\x04\0\0\0\0\0\0\0"[..]);
    }

    #[test]
    fn sizes() {
        assert_eq!(SnapRealm::default().to_bytes().len(), 6 + 72);
        let mut bytes = SnapRealmInfo::default().to_bytes().to_vec();
        assert_eq!(bytes.len(), 48);
        bytes[44..48].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(SnapRealmInfo::from_bytes(&bytes).is_err(), "counts beyond the bytes");
    }
}
