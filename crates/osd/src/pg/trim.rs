//! Trimming: clones that serve only removed snapshots go, in the background.
//!
//! The map queues what was removed. Whoever leads a clean PG looks each queued snapshot up
//! in the index, takes it out of the clones that serve it, as ordinary writes that all
//! copies log, and when none is left and all are durable tells the monitors; a snapshot that
//! every PG has trimmed leaves the queue. Nothing of this is on disk: a new primary looks
//! again, finds what is left in the index, and says so.
//!
//! Bounds: `osd_max_trimming_pgs` at once on an OSD, `osd_pg_max_concurrent_snap_trims`
//! clones at once in each, `osd_snap_trim_sleep` between two of them.
//!
//! Source: the peer's `PrimaryLogPG::{SnapTrimmer, trim_object}`.

use std::collections::VecDeque;

use maps::OsdMapFlags;
use messages::{LogKind, Mutation, ObjectChange, PgLogEntry, Touched};
use stdx::IntervalSet;
use types::{Denc, EVersion, HObject, ReqId, SnapId};

use super::snaps::{clone_of_key, index_key, index_range};
use super::{Cx, Pg, State, Ticket};
use crate::backing::{StoreError, StoreOp};
use crate::object::{INFO_ATTR, ObjectState};
use crate::snapset;

/// Behind by more than this, trimming does not catch up.
const BACKLOG_MS: u64 = 1_000;
/// What trimming one clone counts for beside clients, bytes.
const TRIM_COST: u64 = 64 << 10;

/// What is trimmed and what was.
#[derive(Debug, Default)]
pub(crate) struct Trim {
    /// Queued snapshots of which no clone is left.
    pub purged: IntervalSet,
    /// How many are still to be trimmed.
    pub queued: u64,
    /// Counted among the PGs that trim on this OSD.
    pub running: bool,
    /// It cannot go on: the index or an object cannot be read.
    pub failed: bool,
    /// Clones trimmed since the interval began.
    pub trimmed: u64,
    /// Trims that are not durable everywhere.
    in_flight: VecDeque<EVersion>,
    /// Not before, monotonic ms.
    next_ms: u64,
}

/// What became of one entry of the index.
enum Done {
    /// A write is on its way.
    Submitted,
    /// The entry was of no use and is gone.
    Stale,
    /// The object is being recovered.
    Busy,
}

impl Pg {
    pub(crate) fn drop_trim(&mut self, cx: &mut Cx<'_>) {
        self.stop_trim(cx);
        self.trim = Trim::default();
    }

    fn stop_trim(&mut self, cx: &mut Cx<'_>) {
        if std::mem::take(&mut self.trim.running) {
            *cx.trimming -= 1;
            self.stats_dirty = true;
        }
    }

    /// Whether there is work and nothing but a place among the trimming PGs is missing.
    pub(crate) fn waits_to_trim(&self) -> bool {
        self.trim.queued > 0 && !self.trim.running && !self.trim.failed && self.is_clean()
    }

    /// Goes on as far as the bounds allow.
    pub(crate) fn kick_trim(&mut self, cx: &mut Cx<'_>) {
        if !self.leads || self.state != State::Active || self.is_merging() {
            return;
        }
        let Some(queue) = cx.map.removed_snaps_queue.get(&self.id.pg.pool) else {
            if !self.trim.purged.is_empty() || self.trim.queued > 0 {
                self.drop_trim(cx);
                self.stats_dirty = true;
            }
            return;
        };
        let purged = self.trim.purged.intersection(queue);
        let mut left = queue.0.clone();
        left.subtract(&purged);
        if purged != self.trim.purged || self.trim.queued != left.size() {
            (self.trim.purged, self.trim.queued) = (purged, left.size());
            self.stats_dirty = true;
        }
        let forbidden = cx.map.flags.has(OsdMapFlags::NOSNAPTRIM);
        if left.is_empty() || !self.is_clean() || forbidden || self.trim.failed {
            self.stop_trim(cx);
            return;
        }
        if !self.trim.running {
            if *cx.trimming >= cx.conf.trimming_pgs_max {
                return;
            }
            *cx.trimming += 1;
            self.trim.running = true;
            self.stats_dirty = true;
        }
        if let Err(e) = self.trim_some(&left, cx) {
            tracing::error!(pg = %self.id, "trimming: {e}");
            self.trim.failed = true;
            self.stop_trim(cx);
        }
    }

    fn trim_some(&mut self, left: &IntervalSet, cx: &mut Cx<'_>) -> Result<(), StoreError> {
        let now = cx.now.mono_ms();
        for snap in left.iter().flat_map(|(start, len)| start..start + len).map(SnapId) {
            loop {
                if self.trim.in_flight.len() >= cx.conf.snap_trims_max || now < self.trim.next_ms {
                    return Ok(());
                }
                if cx.store.is_stopped() {
                    return Ok(()); // the index would stay as it is
                }
                let Some(clone) = self.indexed(snap, cx)? else { break };
                if !cx.may_move() {
                    cx.pace.wait(self.id);
                    return Ok(());
                }
                match self.trim_one(snap, &clone, cx)? {
                    Done::Submitted => {
                        cx.pace.charge(TRIM_COST, cx.now);
                        let since = self.trim.next_ms.max(now.saturating_sub(BACKLOG_MS));
                        self.trim.next_ms = since + cx.conf.snap_trim_sleep_ms;
                    }
                    Done::Stale => {}
                    Done::Busy => return Ok(()),
                }
            }
            if !self.sweep_absent(left, cx)? {
                return Ok(()); // heads of a cache still name it
            }
            if !self.trim.in_flight.is_empty() {
                return Ok(()); // what is reported as gone must be durable
            }
            self.trim.purged.insert(snap.0, 1);
            self.trim.queued -= 1;
            self.stats_dirty = true;
        }
        self.stop_trim(cx);
        Ok(())
    }

    /// A clone that the index has for a snapshot.
    fn indexed(&self, snap: SnapId, cx: &Cx<'_>) -> Result<Option<HObject>, StoreError> {
        let (from, to) = index_range(snap);
        let mut found = None;
        cx.store.walk(self.coll, &from, &to, &mut |key, _| {
            found = Some(clone_of_key(key));
            false
        })?;
        found.transpose().map_err(|e| StoreError(format!("snapshot {}: {e}", snap.0)))
    }

    /// Takes the snapshot, and all others that were removed, out of the clone.
    fn trim_one(
        &mut self,
        snap: SnapId,
        clone: &HObject,
        cx: &mut Cx<'_>,
    ) -> Result<Done, StoreError> {
        let head = clone.with_snap(SnapId::HEAD);
        if self.is_degraded(&head) || self.is_degraded(clone) || self.tier.flushes_some(&head) {
            return Ok(Done::Busy);
        }
        self.load_obc(&head, cx)?;
        let before = self.obcs[&head].state.clone();
        let set = before.info.snaps.as_deref();
        let Some(serves) =
            set.and_then(|s| s.clone_snaps.get(&clone.snap)).filter(|s| s.contains(&snap))
        else {
            tracing::warn!(pg = %self.id, oid = %clone, snap = snap.0, "no such clone any more");
            cx.submit(vec![StoreOp::Rm(self.coll, index_key(snap, clone))], Ticket::None);
            return Ok(Done::Stale);
        };
        let queue = cx.map.removed_snaps_queue.get(&self.id.pg.pool);
        let gone = |s: &SnapId| *s == snap || queue.is_some_and(|q| q.contains(s.0));
        let stays: Vec<SnapId> = serves.iter().copied().filter(|s| !gone(s)).collect();
        let mut set = set.cloned().unwrap_or_default();
        let ObjectState { exists, info: mut record } =
            Self::read_state(cx.store, self.coll, clone)?;
        let prior = if exists { record.version } else { EVersion::ZERO };
        let version = self.next_version(cx);
        let mut counts = self.counts();
        let (kind, mutations);
        if stays.is_empty() {
            counts.bytes -= self.clone_bytes(&head, &set, cx)?;
            snapset::remove_clone(&mut set, clone.snap);
            counts.bytes += self.clone_bytes(&head, &set, cx)?;
            counts.clean -= i64::from(exists && record.clean);
            counts.objects -= 1;
            counts.clones -= 1;
            counts.omap_objects -= i64::from(exists && record.omap);
            (kind, mutations) = (LogKind::Delete, vec![Mutation::Remove]);
        } else {
            set.clone_snaps.insert(clone.snap, stays.clone());
            (record.version, record.clone_snaps) = (version, stays);
            let attr = bytes::Bytes::from_static(INFO_ATTR);
            kind = LogKind::Modify;
            mutations = vec![Mutation::SetAttr(attr, record.to_bytes())];
        }
        let mut after = before.clone();
        // A head that is gone was kept for its clones alone, but for one of a cache tier.
        let whole = set.clones.is_empty() && !before.exists && self.pool.cache.is_none();
        if whole {
            after = ObjectState::default();
            counts.objects -= 1;
        } else {
            after.info.version = version;
            after.info.snaps = Some(set.into());
        }
        let entry = PgLogEntry {
            version,
            prior: before.info.version,
            kind: if whole { LogKind::Delete } else { LogKind::Modify },
            oid: head.clone(),
            reqid: ReqId::default(),
            user_version: self.last_user_version().max(before.info.user_version),
            mtime: before.info.mtime,
            result: 0,
            returns: Vec::new(),
            counts,
            also: vec![Touched { oid: clone.clone(), kind, prior }],
            answered: Vec::new(),
        };
        let change = ObjectChange {
            oid: head,
            mutations: if whole { vec![Mutation::Remove] } else { Vec::new() },
        };
        let clone = ObjectChange { oid: clone.clone(), mutations };
        self.submit_write(Some(clone), change, entry, after, Vec::new(), cx);
        self.trim.in_flight.push_back(version);
        self.trim.trimmed += 1;
        Ok(Done::Submitted)
    }

    /// A head was changed for trimming; it is done when that is durable.
    pub(crate) fn note_trim(&mut self) {
        self.trim.in_flight.push_back(self.log.head());
        self.trim.trimmed += 1;
    }

    /// Writes up to `all` are durable on all copies.
    pub(crate) fn on_trim_committed(&mut self, all: EVersion, cx: &mut Cx<'_>) {
        if self.trim.in_flight.front().is_none_or(|v| *v > all) {
            return;
        }
        while self.trim.in_flight.front().is_some_and(|v| *v <= all) {
            self.trim.in_flight.pop_front();
        }
        self.kick_trim(cx);
    }
}
