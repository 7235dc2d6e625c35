//! Tables of a rank: which inode numbers are free, and the snapshots there are.

use bytes::Bytes;
use maps::fs::{
    InoIntervals, InoTable, SessionMapHeader, SnapTable, SnapTableObject, TableObject, inos,
};
use types::{Denc, SnapId};

/// The tables, and since which journal object they, or sessions, are not written back.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    pub inos: TableObject<InoTable>,
    pub snaps: SnapTableObject,
    /// That of snapshots is not written back.
    pub snaps_dirty: bool,
    /// When the monitors were told last of snapshots that are gone.
    pub removed_told_ms: u64,
    /// Of the session map.
    pub sessions: u64,
    pub dirty_since: Option<u64>,
    /// A write is on its way; these many parts of it are left.
    pub writing: u32,
    pub writing_since: Option<u64>,
    pub written_ms: u64,
}

impl Tables {
    /// Those of a new file system.
    pub fn fresh(rank: u64) -> Self {
        let (first, count) = inos::of_rank(rank);
        let free = InoIntervals::from_iter([(first, count)]);
        let table = SnapTable {
            last_snap: SnapId(1),
            last_created: SnapId(1),
            last_destroyed: SnapId(1),
            snaprealm_v2_since: SnapId(2),
            ..SnapTable::default()
        };
        Self {
            inos: TableObject { version: 0, table: InoTable { free } },
            snaps: SnapTableObject { version: 1, table, ..SnapTableObject::default() },
            ..Self::default()
        }
    }

    /// Takes up to `count` numbers that follow one another: the first, and how many.
    pub fn take(&mut self, count: u64) -> Option<(u64, u64)> {
        let (start, len) = self.inos.table.free.iter().next()?;
        let len = len.min(count);
        self.inos.table.free.remove(start, len);
        self.inos.version += 1;
        Some((start, len))
    }

    pub fn sessions_header(&self) -> Bytes {
        SessionMapHeader { version: self.sessions }.to_bytes()
    }
}

/// Objects of the tables.
pub(crate) fn inotable_object(rank: i32) -> String {
    format!("mds{rank}_inotable")
}
pub(crate) fn sessionmap_object(rank: i32) -> String {
    format!("mds{rank}_sessionmap")
}
pub(crate) fn openfiles_object(rank: i32) -> String {
    format!("mds{rank}_openfiles.0")
}
pub(crate) const SNAPTABLE_OBJECT: &str = "mds_snaptable";
