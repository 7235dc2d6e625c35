//! Who may still be reading where: promises between OSDs, so that a primary that was cut
//! off does not show what others have overwritten.
//!
//! An OSD that answers a ping, or activates as a copy, promises the other side: for the
//! lease time I take part in nothing that makes what you lead stale, unless you know of it.
//! A primary serves as long as it holds such a promise of every other acting copy. Who
//! leads the PG after it waits until the promises that were given to it have ended.
//!
//! What may be trusted:
//! - The holder counts from when it *sent* what the promise answers, and a sixteenth less;
//!   the giver from when it answered. So the holder's always ends first, whatever the
//!   network does, while clocks run alike to within a sixteenth.
//! - A promise made with a map that the holder does not have yet counts once it has it: it
//!   then knows itself whether it still leads.
//! - A process that has begun anew may have promised anything to anybody: for one lease
//!   time after its start it says so.
//!
//! The peer does the same for each PG (`osd_pool_default_read_lease_ratio`,
//! `pg_lease_t`); here it is for each two OSDs, and costs no message.

use std::collections::BTreeMap;

use types::{Epoch, OsdId};

/// Promises held, and promises given.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    /// The lease time, ms.
    pub lease_ms: u64,
    /// This process ends and told the monitors that it serves no more.
    pub stopped: bool,
    /// When this process began, monotonic ms; 0 before its first event.
    started_ms: u64,
    /// Until when each OSD has promised, on this side's clock.
    held: BTreeMap<OsdId, Held>,
    /// Until when each OSD was promised, on this side's clock.
    given: BTreeMap<OsdId, u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Held {
    until_ms: u64,
    /// Made with a map that is not here yet.
    early: (Epoch, u64),
}

impl Leases {
    /// None yet.
    pub fn new(lease_ms: u64) -> Self {
        Self { lease_ms, ..Self::default() }
    }

    /// The first event.
    pub fn start(&mut self, now_ms: u64) {
        if self.started_ms == 0 {
            self.started_ms = now_ms.max(1);
        }
    }

    /// What a promise that answers something sent at `sent_ms` is good for.
    #[must_use]
    pub fn good_until(&self, sent_ms: u64) -> u64 {
        sent_ms + self.lease_ms - self.lease_ms / 16
    }

    /// An OSD answered what was sent to it at `sent_ms`; its map is `theirs`.
    pub fn on_promise(&mut self, from: OsdId, sent_ms: u64, theirs: Epoch, mine: Epoch) {
        let until = self.good_until(sent_ms);
        let held = self.held.entry(from).or_default();
        if theirs <= mine {
            held.until_ms = held.until_ms.max(until);
        } else if (theirs, until) > held.early {
            held.early = (theirs, until);
        }
    }

    /// A newer map is here.
    pub fn on_map(&mut self, mine: Epoch) {
        for held in self.held.values_mut().filter(|h| h.early.0 <= mine) {
            held.until_ms = held.until_ms.max(held.early.1);
            held.early = Default::default();
        }
    }

    /// Until when that OSD's promise holds.
    #[must_use]
    pub fn held_until(&self, osd: OsdId) -> u64 {
        self.held.get(&osd).map_or(0, |h| h.until_ms)
    }

    /// Promises.
    pub fn give(&mut self, to: OsdId, now_ms: u64) {
        self.given.insert(to, now_ms + self.lease_ms);
        if self.given.len() > 256 {
            self.given.retain(|_, until| *until > now_ms);
        }
    }

    /// Until when that OSD may hold a promise of this one, of this process or the last.
    #[must_use]
    pub fn given_until(&self, osd: OsdId) -> u64 {
        let given = self.given.get(&osd).copied().unwrap_or(0);
        given.max(self.started_ms + self.lease_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The holder's time ends before the giver's, however long the way was.
    #[test]
    fn holders_end_first() {
        let (p, r) = (OsdId(1), OsdId(2));
        for (there, back) in [(0, 0), (5, 900), (900, 5)] {
            let mut holder = Leases { lease_ms: 16_000, ..Leases::default() };
            let mut giver = Leases { lease_ms: 16_000, ..Leases::default() };
            let sent = 100_000;
            giver.give(p, sent + there);
            holder.on_promise(r, sent, Epoch(5), Epoch(5));
            let _ = back;
            assert!(holder.held_until(r) < giver.given_until(p));
        }
    }

    /// A promise from a newer map waits for the map.
    #[test]
    fn early_promises() {
        let r = OsdId(2);
        let mut holder = Leases { lease_ms: 16_000, ..Leases::default() };
        holder.on_promise(r, 1_000, Epoch(7), Epoch(5));
        assert_eq!(holder.held_until(r), 0);
        holder.on_map(Epoch(6));
        assert_eq!(holder.held_until(r), 0);
        holder.on_map(Epoch(7));
        assert_eq!(holder.held_until(r), 16_000);
    }

    /// Who has just begun may have promised anything.
    #[test]
    fn new_processes_are_careful() {
        let mut l = Leases { lease_ms: 16_000, ..Leases::default() };
        l.start(50_000);
        assert_eq!(l.given_until(OsdId(9)), 66_000);
    }
}
