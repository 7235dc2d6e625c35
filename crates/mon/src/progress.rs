//! What the peer's progress module shows: how far recovery is, and when it will be done.
//!
//! One event for the whole cluster, from the moment on when a PG that served is not clean until
//! all are. Its progress is the part of its PGs that are clean again, a PG that is being copied
//! or recovered counting by its objects.
//!
//! Source: the peer's `pybind/mgr/progress/module.py` (`GlobalRecoveryEvent`).

use std::collections::{BTreeMap, VecDeque};

use env::Now;
use maps::{PgStat, PgState};
use types::{PgId, Uuid};

use crate::PgMap;

/// Ended events that are remembered: the peer's `max_completed_events`.
const COMPLETED_MAX: usize = 50;
/// PGs that are not clean for a shorter time do not begin an event: they peer.
const BEGIN_MS: u64 = 2_000;
/// Characters between the brackets of a bar.
const BAR: usize = 28;

/// An event under way.
#[derive(Clone, Debug)]
pub struct Event {
    /// Its name for programs.
    pub id: Uuid,
    /// When it began, wall ns.
    pub began_ns: u64,
    /// How long it goes on, ms.
    pub age_ms: u64,
    began_mono_ms: u64,
    /// From 0 to 1.
    pub progress: f64,
    /// Its PGs, and how many copies of objects lacked or lay wrong at most.
    pgs: BTreeMap<PgId, i64>,
}

/// An event that has ended.
#[derive(Clone, Debug)]
pub struct Completed {
    /// Its name for programs.
    pub id: Uuid,
    /// Wall ns.
    pub began_ns: u64,
    /// Wall ns.
    pub ended_ns: u64,
}

/// All events.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// What is under way.
    pub event: Option<Event>,
    /// What was, oldest first.
    pub completed: VecDeque<Completed>,
}

/// What an event is called.
pub const MESSAGE: &str = "Global Recovery Event";

fn lacking(stat: &PgStat) -> i64 {
    let sum = &stat.stats.sum;
    sum.num_objects_degraded.saturating_add(sum.num_objects_misplaced).max(0)
}

fn is_clean(stat: &PgStat) -> bool {
    stat.state.has(PgState::ACTIVE) && stat.state.has(PgState::CLEAN)
}

impl Progress {
    /// Once a second: what the reports say.
    pub(crate) fn update(&mut self, pgmap: &PgMap, now: Now) {
        let ms = now.mono_ms();
        // PGs that are being made were never clean.
        let served = |s: &PgStat| !s.last_clean.is_zero() && s.state.0 != 0;
        let unclean = pgmap.pgs.iter().filter(|(_, s)| served(s) && !is_clean(s));
        let unclean: Vec<(PgId, i64)> = unclean.map(|(pg, s)| (*pg, lacking(s))).collect();
        if self.event.is_none() {
            let since = |pg: &PgId| pgmap.unclean_since.get(pg).copied().unwrap_or(ms);
            if !unclean.iter().any(|(pg, _)| ms.saturating_sub(since(pg)) >= BEGIN_MS) {
                return;
            }
            let mut id = [0; 16];
            id[..8].copy_from_slice(&now.wall_ns.to_le_bytes());
            id[8..].copy_from_slice(&now.mono_ns.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
            self.event = Some(Event {
                id: Uuid::from_random(id),
                began_ns: now.wall_ns,
                began_mono_ms: ms,
                age_ms: 0,
                progress: 0.0,
                pgs: BTreeMap::new(),
            });
        }
        let event = self.event.as_mut().expect("made just now");
        event.age_ms = ms.saturating_sub(event.began_mono_ms);
        event.pgs.retain(|pg, _| pgmap.pgs.contains_key(pg));
        for (pg, lacks) in &unclean {
            let most = event.pgs.entry(*pg).or_default();
            *most = (*most).max(*lacks);
        }
        if unclean.is_empty() {
            let event = self.event.take().expect("looked at");
            let (id, began_ns) = (event.id, event.began_ns);
            self.completed.push_back(Completed { id, began_ns, ended_ns: now.wall_ns });
            while self.completed.len() > COMPLETED_MAX {
                self.completed.pop_front();
            }
            return;
        }
        let open: f64 = unclean
            .iter()
            .map(|(pg, lacks)| match event.pgs[pg] {
                0 => 1.0,
                most => *lacks as f64 / most as f64,
            })
            .sum();
        event.progress = (1.0 - open / event.pgs.len() as f64).clamp(0.0, 1.0);
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        (self.event, self.completed) = (None, VecDeque::new());
    }
}

impl Event {
    /// Seconds until it ends, if it goes on as it did; `None` when nobody can tell.
    #[must_use]
    pub fn remaining_s(&self) -> Option<u64> {
        let secs = self.age_ms as f64 / 1_000.0;
        (self.progress > 0.0).then(|| (secs * (1.0 - self.progress) / self.progress) as u64)
    }

    /// Its two lines as the peer prints them, the second so far to the right.
    #[must_use]
    pub fn lines(&self, indent: usize) -> String {
        let rest = self.remaining_s();
        let rest =
            rest.map_or_else(String::new, |s| format!("(remaining: {})", cli::age(s * 1_000)));
        format!(
            "{MESSAGE} ({})\n{:indent$}{} {rest}",
            cli::age(self.age_ms / 1_000 * 1_000),
            "",
            bar(self.progress)
        )
    }
}

/// `[=====.......]`
#[must_use]
pub fn bar(progress: f64) -> String {
    let done = ((progress * BAR as f64) as usize).min(BAR);
    format!("[{}{}]", "=".repeat(done), ".".repeat(BAR - done))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Now {
        Now { mono_ns: ms * 1_000_000, wall_ns: 5_000_000_000 + ms * 1_000_000 }
    }

    fn pg(ps: u32, clean: bool, misplaced: i64) -> (PgId, PgStat) {
        let mut s =
            PgStat { last_clean: types::UTime::from_nanos(1_000_000_000), ..PgStat::default() };
        s.state.set(PgState::ACTIVE, true);
        s.state.set(PgState::CLEAN, clean);
        s.stats.sum.num_objects_misplaced = misplaced;
        (PgId::new(1, ps), s)
    }

    fn map(pgs: &[(PgId, PgStat)]) -> PgMap {
        let mut m = PgMap::default();
        for (id, s) in pgs {
            if !is_clean(s) {
                m.unclean_since.insert(*id, 0);
            }
            m.pgs.insert(*id, s.clone());
        }
        m
    }

    /// It begins with a PG that is not clean for a while, follows objects, ends when all are
    /// clean, and is remembered.
    #[test]
    fn a_recovery_from_begin_to_end() {
        let mut p = Progress::default();
        p.update(&map(&[pg(0, false, 100), pg(1, true, 0)]), at(1_000));
        assert!(p.event.is_none(), "it may only be peering");
        p.update(&map(&[pg(0, false, 100), pg(1, false, 50), pg(2, true, 0)]), at(10_000));
        let event = p.event.as_ref().unwrap();
        assert_eq!((event.progress, event.remaining_s()), (0.0, None));
        p.update(&map(&[pg(0, false, 50), pg(1, true, 0), pg(2, true, 0)]), at(40_000));
        let event = p.event.as_ref().unwrap();
        assert_eq!((event.progress, event.remaining_s()), (0.75, Some(10)));
        assert_eq!(
            event.lines(6),
            "Global Recovery Event (30s)\n      [=====================.......] (remaining: 10s)"
        );
        p.update(&map(&[pg(0, true, 0), pg(1, true, 0)]), at(50_000));
        assert!(p.event.is_none());
        assert_eq!(p.completed.len(), 1);
        assert_eq!(p.completed[0].ended_ns - p.completed[0].began_ns, 40_000_000_000);
        p.clear();
        assert!(p.completed.is_empty());
    }
}
