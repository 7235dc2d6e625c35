//! What a driver that checks the OSD may see of its PGs.

use maps::PgState;
use types::{EVersion, Epoch, OsdId, SpgId};

use crate::core::Osd;
use crate::pg::Pg;

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
    /// Log entries kept.
    pub log_entries: usize,
    /// Objects that this copy lacks.
    pub missing: usize,
    /// Why it does not go on, for people.
    pub why: String,
}

impl Pg {
    fn why(&self) -> String {
        let peers: Vec<_> = self
            .peers
            .iter()
            .map(|(o, p)| {
                (o.to_string(), p.answered, p.info.is_some(), p.activated, p.missing.len())
            })
            .collect();
        format!(
            "{:?} flushed {} auth {:?} blocked by {:?} unfound {} peers (osd, answered, has, \
             activated, missing) {peers:?} waiting {} blocked {} in flight {} past {:?}",
            self.state,
            self.flushed,
            self.auth.map(|o| o.to_string()),
            self.blocked_by.iter().map(|o| o.0).collect::<Vec<_>>(),
            self.unfound(),
            self.waiting.len(),
            self.blocked.values().map(std::collections::VecDeque::len).sum::<usize>(),
            self.in_flight.len(),
            self.info.past.iter().map(|i| (i.first.0, i.last.0)).collect::<Vec<_>>()
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
            log_entries: pg.log.entries.len(),
            missing: pg.missing.len(),
            why: pg.why(),
        };
        self.pgs.values().map(summary).collect()
    }
}
