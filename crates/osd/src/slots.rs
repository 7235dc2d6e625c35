//! How many PGs of this OSD are scrubbed or copied at a time: some by PGs led here, some
//! lent to PGs led elsewhere.

use std::collections::BTreeSet;

use types::SpgId;

/// PGs that hold a slot of one kind.
#[derive(Debug, Default)]
pub struct Slots {
    held: BTreeSet<SpgId>,
    freed: bool,
    /// Somebody might have had one, and waits for something else.
    put_off: bool,
}

impl Slots {
    /// Takes one for `pg`, unless `max` others have theirs. One that holds it already keeps it.
    pub fn take(&mut self, pg: SpgId, max: usize) -> bool {
        let free = self.held.contains(&pg) || self.held.len() < max;
        if free {
            self.held.insert(pg);
        }
        free
    }

    /// Whether `pg` has one.
    #[must_use]
    pub fn has(&self, pg: SpgId) -> bool {
        self.held.contains(&pg)
    }

    /// Takes back those of which `keep` says no.
    pub fn retain(&mut self, keep: impl FnMut(&SpgId) -> bool) {
        let before = self.held.len();
        self.held.retain(keep);
        self.freed |= self.held.len() < before;
    }

    /// Gives it back.
    pub fn give_back(&mut self, pg: SpgId) {
        self.freed |= self.held.remove(&pg);
    }

    /// Who wanted one has to wait for something else than slots.
    pub fn put_off(&mut self) {
        self.put_off = true;
    }

    /// What was waited for has come: those that were put off may want one.
    pub fn go_on(&mut self) {
        self.freed |= std::mem::take(&mut self.put_off);
    }

    /// Whether one was given back since this was asked last.
    pub fn take_freed(&mut self) -> bool {
        std::mem::take(&mut self.freed)
    }

    /// Who has one.
    pub fn pgs(&self) -> impl Iterator<Item = &SpgId> {
        self.held.iter()
    }

    /// How many are taken.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.held.len()
    }
}

/// All slots of an OSD.
#[derive(Debug, Default)]
pub struct AllSlots {
    /// Scrubs of PGs led here.
    pub scrubs: Slots,
    /// Scrubs of PGs led elsewhere.
    pub scrubs_lent: Slots,
    /// PGs led here that bring back what acting copies lack.
    pub recoveries: Slots,
    /// PGs led elsewhere that do so here.
    pub recoveries_lent: Slots,
    /// PGs led here that are copied to where they should be.
    pub backfills: Slots,
    /// PGs led elsewhere that are copied here.
    pub backfills_lent: Slots,
}

impl AllSlots {
    /// The PG's interval, or its copy here, has ended.
    pub fn drop_pg(&mut self, pg: SpgId) {
        for slots in [
            &mut self.scrubs,
            &mut self.scrubs_lent,
            &mut self.recoveries,
            &mut self.recoveries_lent,
            &mut self.backfills,
            &mut self.backfills_lent,
        ] {
            slots.give_back(pg);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who was put off is asked again once.
    #[test]
    fn put_off() {
        let mut s = Slots::default();
        s.go_on();
        assert!(!s.take_freed());
        s.put_off();
        assert!(!s.take_freed(), "it still waits");
        s.go_on();
        assert!(s.take_freed() && !s.take_freed());
        s.go_on();
        assert!(!s.take_freed());
    }

    /// No more than asked for; who has one is not counted twice.
    #[test]
    fn bounded() {
        let (a, b, mut s): (SpgId, SpgId, _) =
            (types::PgId::new(1, 0).into(), types::PgId::new(1, 1).into(), Slots::default());
        assert!(s.take(a, 1) && s.take(a, 1) && !s.take(b, 1));
        s.give_back(a);
        assert!(s.take(b, 1));
        assert_eq!(s.taken(), 1);
    }
}
