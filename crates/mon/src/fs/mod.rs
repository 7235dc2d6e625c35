//! File systems: which metadata servers there are, which rank each has, and what becomes of
//! ranks whose server is gone.
//!
//! ```text
//!  beacon ──▶ beacon ─┐
//!  round  ──▶ plan ───┼─▶ Edit ──▶ blocklist (OSD map) and FSMap, one entry of the log
//!  command ───────────┘
//! ```
//! What may be trusted: a server that held a rank is blocklisted in the entry that takes its rank
//! away, and the file system's map names that OSD map (`last_failure_osd_epoch`): its successor
//! reads the journal under no older one. What is known of beacons is this leader's alone: a new
//! leader gives every server a whole grace.
//!
//! Source: the peer's `mon/MDSMonitor.cc`, `mds/FSMap.cc`.

pub(crate) mod beacon;
mod edit;
pub(crate) mod health;
pub(crate) mod plan;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use auth::Rights;
use maps::FsMap;

use crate::SessionInfo;

pub use edit::Edit;
pub(crate) use edit::application;
pub use plan::Watch;

/// Whether a peer's caps (`mon 'allow r fsname=NAME'`) are for this file system.
pub(crate) fn may(info: &SessionInfo, name: &str, rights: Rights) -> bool {
    crate::session::is_administrator(info) || info.caps.is_capable_of_fs(name, rights)
}

/// What a peer may know of: file systems that its caps are for, and who serves them.
pub(crate) fn visible<'a>(map: &'a FsMap, info: &SessionInfo) -> Cow<'a, FsMap> {
    let sees = |fs: &maps::Filesystem| may(info, &fs.mds_map.fs_name, Rights::R);
    if map.filesystems.iter().all(sees) {
        return Cow::Borrowed(map);
    }
    let mut map = map.clone();
    map.filesystems.retain(sees);
    let known: Vec<i32> = map.filesystems.iter().map(|fs| fs.fscid).collect();
    map.mds_roles.retain(|_, fscid| *fscid == -1 || known.contains(fscid));
    if !known.contains(&map.legacy_client_fscid) {
        map.legacy_client_fscid = -1;
    }
    Cow::Owned(map)
}
