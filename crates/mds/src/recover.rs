//! The size of a file whose writer is gone: what it wrote and did not tell is found in the objects.
//!
//! A client writes up to the end of its range ([`maps::fs::ClientRange`]), which is recorded before
//! it may. While a range of a client stands that has no session, nobody gets caps that tell of the
//! file's size, and no answer has it; the objects from the known size to the range's end are asked
//! for theirs.
//!
//! Source: the peer's `RecoveryQueue.cc`.

use maps::fs::object_name;
use types::{Errno, Ino, SnapId, UTime};

use crate::rank::{Job, Rank};
use crate::request::{Op, Stop};
use crate::tree::Txn;
use crate::{Io, IoAnswer, IoData, IoOp};

/// Files that are looked at at the same time: the peer's `mds_max_file_recover`.
const FILES_MAX: usize = 32;

/// One file that is looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Recovery {
    left: usize,
    size: u64,
    mtime_ns: u64,
}

impl Rank {
    /// Whether a client may have written more than is known.
    pub fn is_unsettled(&self, ino: Ino) -> bool {
        let Some(node) = self.tree.node(ino) else { return false };
        let mut ranges = node.store.inode.file.client_ranges.keys();
        ranges.any(|client| !self.sessions.by_client.contains_key(client))
    }

    /// Waits until the size of a file is known.
    pub fn need_size(&mut self, ino: Ino) -> Op<()> {
        if !self.is_unsettled(ino) {
            return Ok(());
        }
        self.purger.unsettled.insert(ino);
        self.recover_tick();
        Err(Stop::Caps(ino))
    }

    pub fn recover_tick(&mut self) {
        while !self.boot.is_leaving()
            && self.purger.recovering.len() < FILES_MAX
            && let Some(ino) = self.purger.unsettled.pop_first()
        {
            if !self.purger.recovering.contains_key(&ino) && self.is_unsettled(ino) {
                self.recover(ino);
            }
        }
    }

    fn recover(&mut self, ino: Ino) {
        let file = &self.tree.at(ino).store.inode;
        let (layout, size) = (file.layout.clone(), file.file.size);
        let end = file.file.client_ranges.values().map(|r| r.last).max().unwrap_or(0);
        let objects = match layout.striping() {
            Ok(s) if end > size => s.object_extents(size, end - size),
            _ => Vec::new(),
        };
        let mut recovery = Recovery { size, ..Recovery::default() };
        for e in objects {
            recovery.left += 1;
            let id = self.job(Job::Probed(ino, e.object));
            let io = Io {
                id,
                pool: layout.pool,
                object: object_name(ino, e.object),
                nspace: layout.pool_ns.clone(),
                snapc: (SnapId(0), Vec::new()),
                ops: vec![IoOp::Stat],
            };
            self.fx.push(crate::Effect::Io(io));
        }
        self.purger.recovering.insert(ino, recovery);
        if recovery.left == 0 {
            self.recovered(ino);
        }
    }

    pub fn size_probed(&mut self, ino: Ino, object: u64, result: Result<IoAnswer, Errno>) {
        let striping = self.tree.node(ino).map(|n| n.store.inode.layout.striping());
        let Some(recovery) = self.purger.recovering.get_mut(&ino) else { return };
        recovery.left -= 1;
        match result.as_ref().map(|a| &a.0[..]) {
            Ok([IoData::Stat { size, mtime_ns }]) if *size > 0 => {
                if let Some(Ok(striping)) = striping
                    && let Some(last) = striping.file_offset(object, *size - 1)
                {
                    recovery.size = recovery.size.max(last + 1);
                    recovery.mtime_ns = recovery.mtime_ns.max(*mtime_ns);
                }
            }
            Ok(_) => {}
            Err(e) if *e == Errno::NOENT => {}
            Err(e) => {
                // Whoever asks for the size has it looked for again.
                tracing::warn!(%ino, ?e, "an object of a file whose writer is gone");
                self.purger.recovering.remove(&ino);
                self.requests.wake_caps(ino);
                return;
            }
        }
        if recovery.left == 0 {
            self.recovered(ino);
        }
    }

    fn recovered(&mut self, ino: Ino) {
        let Some(found) = self.purger.recovering.remove(&ino) else { return };
        if self.tree.node(ino).is_none() {
            return;
        }
        let mut txn = Txn::at(self.world.time());
        self.tree.cow(&mut txn, ino);
        let sessions = &self.sessions.by_client;
        let i = &mut self.tree.at_mut(ino).store.inode;
        i.file.client_ranges.retain(|client, _| sessions.contains_key(client));
        if found.size > i.file.size {
            i.file.size = found.size;
            i.file.max_size_ever = i.file.max_size_ever.max(found.size);
            i.dir.rstat.rbytes = found.size as i64;
            i.times.mtime = i.times.mtime.max(UTime::from_nanos(found.mtime_ns));
            i.times.ctime = i.times.ctime.max(i.times.mtime);
            i.versions.change_attr += 1;
        }
        self.tree.touch(&mut txn, ino);
        self.commit(txn);
        self.eval(ino);
        self.requests.wake_caps(ino);
        self.eval_stray(ino);
    }
}
