//! What a driver that checks the OSD may see of its PGs.

use std::collections::BTreeSet;

use denc::Denc;
use maps::PgState;
use types::{EVersion, Epoch, HObject, OsdId, SnapId, SpgId};

use crate::core::Osd;
use crate::memory::{Collection, Object};
use crate::object::{INFO_ATTR, ObjectInfo};
use crate::pg::{Pg, clone_of_key, index_all};

/// One PG as it stands.
#[derive(Clone, Debug)]
pub struct PgSummary {
    /// Which.
    pub id: SpgId,
    /// Whether this OSD leads it.
    pub leads: bool,
    /// Its state as it is reported.
    pub state: PgState,
    /// Whether nothing is left to do for it.
    pub clean: bool,
    /// Its interval.
    pub interval: Epoch,
    /// Who serves.
    pub acting: Vec<OsdId>,
    /// The last write in its log.
    pub last_update: EVersion,
    /// Writes up to here are on all acting copies, as the leader knows.
    pub committed: EVersion,
    /// Log entries kept.
    pub log_entries: usize,
    /// Objects that this copy lacks.
    pub missing: usize,
    /// Whether no request and no write is under way.
    pub quiet: bool,
    /// Why it does not go on, for people.
    pub why: String,
}

impl Pg {
    fn is_quiet(&self) -> bool {
        self.in_flight.is_empty()
            && self.waiting.is_empty()
            && self.unleased.is_empty()
            && self.blocked.is_empty()
            && self.copying.is_empty()
            && self.fetching.is_empty()
            && self.waiting_whole.is_empty()
            && self.obcs.values().all(|o| o.waiting.is_empty())
            && self.tier.is_quiet()
    }

    fn why(&self) -> String {
        let peers: Vec<_> = self
            .peers
            .iter()
            .map(|(o, p)| {
                let version = p.info.as_ref().map(|i| i.last_update.to_string());
                (o.to_string(), p.answered, version, p.activated, p.missing.len())
            })
            .collect();
        let unfound: Vec<String> = self
            .unfound_objects()
            .map(|(o, v)| {
                let vain = self.not_at(o).into_iter().flatten().map(ToString::to_string);
                format!("{o} {v} not at {:?}", vain.collect::<Vec<_>>())
            })
            .collect();
        format!(
            "{:?} flushed {} auth {:?} blocked by {:?} missing {} unfound {unfound:?} peers (osd, \
             answered, version, activated, missing) {peers:?} waiting {} blocked {} in flight {} past {:?}; {}",
            self.state,
            self.flushed,
            self.auth.map(|o| o.to_string()),
            self.blocked_by.iter().map(|o| o.0).collect::<Vec<_>>(),
            self.missing.len(),
            self.waiting.len(),
            self.blocked.values().map(std::collections::VecDeque::len).sum::<usize>(),
            self.in_flight.len(),
            self.info.past.iter().map(|i| (i.first.0, i.last.0)).collect::<Vec<_>>(),
            self.held_text()
        )
    }

    /// Where requests wait, beside what the states tell.
    fn held_text(&self) -> String {
        let blocked: Vec<_> =
            self.blocked.iter().map(|(o, ops)| format!("{o} {}", ops.len())).collect();
        let busy = |o: &super::pg::Obc| o.writer || o.readers + o.in_flight > 0;
        let objects: Vec<_> = self
            .obcs
            .iter()
            .filter(|(_, o)| busy(o) || !o.waiting.is_empty())
            .map(|(id, o)| {
                let (w, r, f) = (o.writer, o.readers, o.in_flight);
                format!("{id} writer {w} readers {r} in flight {f} waiting {}", o.waiting.len())
            })
            .collect();
        format!(
            "unleased {}, behind {blocked:?}, copying {:?}, fetching {}, whole {}, no room {}, \
             objects {objects:?}, cache quiet {}",
            self.unleased.len(),
            self.copying.keys().map(ToString::to_string).collect::<Vec<_>>(),
            self.fetching.len(),
            self.waiting_whole.len(),
            self.room.held(),
            self.tier.is_quiet()
        )
    }
}

impl Osd {
    /// Every PG that has a copy here.
    #[must_use]
    pub fn pg_summaries(&self) -> Vec<PgSummary> {
        let summary = |pg: &Pg| PgSummary {
            id: pg.id,
            leads: pg.leads,
            state: pg.reported_state(),
            clean: pg.is_clean(),
            interval: pg.interval(),
            acting: pg.info.acting.clone(),
            last_update: pg.log.head(),
            committed: pg.committed_by_all,
            log_entries: pg.log.entries.len(),
            missing: pg.missing.len(),
            quiet: pg.is_quiet(),
            why: pg.why(),
        };
        self.pgs.values().map(summary).collect()
    }
}

fn record_of(o: &Object) -> Option<ObjectInfo> {
    ObjectInfo::from_bytes(o.attrs.get(INFO_ATTR)?).ok()
}

/// The version that a copy's object is of.
#[must_use]
pub fn version_of(o: &Object) -> Option<EVersion> {
    Some(record_of(o)?.version)
}

/// Objects and clones of a cache tier's copy that its base has not as they are.
#[must_use]
pub fn dirty(copy: &Collection) -> BTreeSet<HObject> {
    let all = copy.objects.iter().filter(|(_, o)| !record_of(o).is_some_and(|info| info.clean));
    all.map(|(oid, _)| oid.clone()).collect()
}

/// The clones of a copy are just those that their heads name, none serves a snapshot that
/// was `removed`, and the index from snapshots names just these. In a cache tier clones that
/// are named may be absent, and heads may stand for nothing.
///
/// # Errors
/// What is wrong.
pub fn clones_fit(copy: &Collection, removed: &BTreeSet<u64>, cache: bool) -> Result<(), String> {
    let record = |oid: &HObject| {
        let o = copy.objects.get(oid).ok_or_else(|| format!("{oid} is not there"))?;
        let raw = o.attrs.get(INFO_ATTR).ok_or_else(|| format!("{oid} has no record"))?;
        ObjectInfo::from_bytes(raw).map_err(|e| format!("{oid}: {e}"))
    };
    let mut named = BTreeSet::new();
    let mut served = BTreeSet::new();
    for oid in copy.objects.keys().filter(|o| o.is_head()) {
        let head = record(oid)?;
        let Some(set) = head.snaps.as_deref() else { continue };
        if head.whiteout && set.clones.is_empty() && !cache {
            return Err(format!("{oid} is kept for nothing"));
        }
        for clone in &set.clones {
            let it = oid.with_snap(*clone);
            if cache && !copy.objects.contains_key(&it) {
                let named = set.clone_snaps.get(clone).into_iter().flatten();
                if let Some(snap) = named.into_iter().find(|s| removed.contains(&s.0)) {
                    return Err(format!("{oid} names {snap}, which was removed, for {it}"));
                }
                continue;
            }
            let snaps = record(&it)?.clone_snaps;
            if set.clone_snaps.get(clone) != Some(&snaps) || snaps.is_empty() {
                return Err(format!("{it} serves {snaps:?}, and its head says otherwise"));
            }
            if let Some(snap) = snaps.iter().find(|s| removed.contains(&s.0)) {
                return Err(format!("{it} still serves {snap}, which was removed"));
            }
            served.extend(snaps.into_iter().map(|snap| (snap, it.clone())));
            named.insert(it);
        }
    }
    let own = |o: &&HObject| !o.is_head() && o.snap != SnapId::DIR && o.pool.0 >= 0;
    if let Some(stray) = copy.objects.keys().filter(own).find(|o| !named.contains(*o)) {
        return Err(format!("{stray} is named by no head"));
    }
    let (first, end) = index_all();
    let mut index = BTreeSet::new();
    for (key, _) in copy.keys.range(first..end) {
        let snap = key.get(1..9).and_then(|s| s.try_into().ok()).map(u64::from_be_bytes);
        let clone = clone_of_key(key).map_err(|e| e.to_string())?;
        index.insert((SnapId(snap.ok_or("a short key in the index")?), clone));
    }
    match index.symmetric_difference(&served).next() {
        Some((snap, clone)) => Err(format!("the index and {clone} differ about {snap}")),
        None => Ok(()),
    }
}
