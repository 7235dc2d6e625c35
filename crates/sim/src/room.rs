//! Disks that fill up: somebody else takes space on them, or an operator grows them. In a
//! share of the seeds, so that what the others draw stays as it was.
//!
//! Checked: OSDs that are given more than they can hold stop, and do not go on stopping;
//! writes refused for want of space have changed nothing; with all disks full, removing
//! everything makes room, and what waited goes on by itself.

use maps::{OsdState, PoolFlags};
use osd::Coll;

use crate::history::Ask;
use crate::stores::OsdStore;
use crate::world::{Event, Mend, Node, SEC, World};

/// Beyond so many stops for want of space in a row, an OSD has not learnt from the first.
const STOPS_MAX: u64 = 12;
/// Virtual seconds in which removals make room, and writes go on.
const DRAIN_SECS: u64 = 200;
/// What a disk has beyond what is on it, bytes: as little as a value or two.
const SPARE: u64 = 1_500;
/// What a real store has left at most.
const REAL_SPARE: u64 = 8 << 20;
/// What every store keeps, bytes, when all are full: a small write of what is taken back.
const KEPT: u64 = 64;
/// The smallest disk when all are full, bytes: it holds two values.
const LEAST: u64 = 1_200;

impl World {
    /// Whether disks fill up in this run.
    pub(crate) fn has_small_disks(&self) -> bool {
        self.settings.small_disks
    }

    /// What objects take on an OSD's disk, bytes.
    fn taken(&self, i: usize) -> u64 {
        self.osds[i].store.memory().taken()
    }

    /// Somebody takes space on a disk, for a while.
    pub(crate) fn fill_disk(&mut self, i: usize) {
        if let Some(store) = self.osds[i].store.real().cloned() {
            let ns = self.chance.within(2 * SEC, 60 * SEC);
            let leave = self.chance.within(0, REAL_SPARE);
            let before = store.crowd(leave);
            self.tell(|| format!("osd.{i} has {leave} bytes left of {before}"));
            self.flush_later(i);
            return self.after(ns, Event::Mend(Mend::Room(i)));
        }
        let taken = self.taken(i);
        let capacity = taken + self.chance.within(0, taken / 3 + SPARE);
        self.tell(|| format!("osd.{i} has {taken} of {capacity} bytes taken"));
        self.set_capacity(i, Some(capacity));
        let ns = self.chance.within(2 * SEC, 60 * SEC);
        self.after(ns, Event::Mend(Mend::Room(i)));
    }

    /// Whether some disk is that full, percent. Its pools are from 95 on.
    fn some_disk_has(&self, percent: u64) -> bool {
        (0..self.osds.len()).any(|i| {
            let capacity = self.osds[i].store.memory().capacity.unwrap_or(u64::MAX);
            u128::from(self.taken(i)) * 100 >= u128::from(capacity) * u128::from(percent)
        })
    }

    /// Whether some copy lacks an object of its PG, or has an older one, and its disk has no room
    /// for it.
    fn some_disk_lacks_room(&self) -> bool {
        let stores: Vec<_> = self.osds.iter().map(|o| o.store.memory()).collect();
        stores.iter().any(|here| {
            let (total, available) = here.room();
            here.now.iter().any(|(coll, own)| {
                let Coll::Pg(pg) = coll else { return false };
                let others = stores.iter().flat_map(|s| &s.now);
                others
                    .filter(|(c, _)| matches!(c, Coll::Pg(of) if of.pg == pg.pg))
                    .flat_map(|(_, other)| &other.objects)
                    .filter(|(oid, other)| {
                        own.objects
                            .get(*oid)
                            .is_none_or(|o| osd::version_of(o) < osd::version_of(other))
                    })
                    .any(|(_, object)| available < object.bytes() + total / 16)
            })
        })
    }

    fn set_capacity(&mut self, i: usize, capacity: Option<u64>) {
        self.osds[i].store.memory().capacity = capacity;
        self.osds[i].stops = 0;
    }

    /// A disk has all its room again.
    pub(crate) fn make_room(&mut self, i: usize) {
        match self.osds[i].store.clone() {
            OsdStore::Memory(store) => store.lock().capacity = None,
            OsdStore::Real(store) => {
                store.make_room();
                self.flush_later(i);
            }
        }
        self.osds[i].stops = 0;
    }

    /// The store told an OSD to stop. It is started again, as by an init system.
    pub(crate) fn osd_stops(&mut self, i: usize, why: &str) {
        self.tell(|| format!("osd.{i} stops: {why}"));
        self.kill_osd(i);
        let failed = self.osds[i].store.real().is_some_and(|s| s.disk().has_failed());
        let wants_space = self.has_small_disks() && !failed;
        let kind = if wants_space { "stopped for want of space" } else { "stopped by its disk" };
        *self.faults.entry(kind).or_default() += 1;
        self.osds[i].stops += 1;
        if wants_space && self.osds[i].stops > STOPS_MAX {
            self.complain(format!("osd.{i} stops over and over: {why}"));
        }
        let ns = self.chance.within(SEC, 20 * SEC);
        self.after(ns, Event::Start(Node::Osd(i)));
    }

    /// Trouble has ended, but all disks are full: what is removed makes room.
    pub(crate) fn drain(&mut self) {
        if self.settings.real_store {
            return; // what others have there is more than what could be removed
        }
        let taken: Vec<u64> = (0..self.osds.len()).map(|i| self.taken(i)).collect();
        if taken.iter().all(|t| *t < LEAST) {
            return; // nothing is full enough
        }
        for (i, taken) in taken.into_iter().enumerate() {
            let spare = KEPT + self.chance.within(0, taken / 40);
            self.set_capacity(i, Some((taken + spare).max(LEAST)));
        }
        let marked = |w: &mut Self| {
            let Some(map) = w.newest() else { return false };
            map.pool(w.pool).is_some_and(|p| p.has_flag(PoolFlags::FULL))
        };
        if !self.run_until(60, marked) {
            // What was removed before may have made room meanwhile.
            if !self.some_disk_has(98) {
                return (0..self.osds.len()).for_each(|i| self.set_capacity(i, None));
            }
            let map = self.newest();
            let full =
                map.map_or(0, |m| m.osds().filter(|o| m.state(*o).has(OsdState::FULL)).count());
            let disks: Vec<_> = (0..self.osds.len())
                .map(|i| (self.taken(i), self.osds[i].store.memory().capacity))
                .collect();
            self.complain(format!(
                "the pool is not marked full, {full} OSDs are, with {disks:?} taken"
            ));
            return;
        }
        // A write now waits, and must go on by itself.
        let late = (0..self.clients.len()).find(|i| !self.clients[*i].tries);
        if let Some(i) = late {
            self.value += 1;
            let ask = Ask::Append(self.value);
            self.ask(i, "late".into(), ask);
        }
        self.remove_all_snaps();
        let names: Vec<String> = self.histories.keys().cloned().collect();
        let by = self.remover;
        for name in names {
            if !name.starts_with(crate::operators::KEY_PREFIX) && name != "late" {
                self.ask(by, name, Ask::Delete);
            }
        }
        let removed = |w: &mut Self| w.clients[w.remover].open.is_empty();
        let drained = self.run_until(DRAIN_SECS, removed);
        // What nobody removes (operators' keys, other pools) may keep a disk full, and what
        // waited may fill it again.
        let answered = |w: &mut Self| w.clients.iter().all(|c| c.open.is_empty());
        let full = |w: &mut Self| w.some_disk_has(90);
        let goes_on = drained && (full(self) || self.run_until(DRAIN_SECS, answered) || full(self));
        if !goes_on && !self.is_clean() && (self.some_disk_has(75) || self.some_disk_lacks_room()) {
            // A request waits for copies that lack its object, and these for room for the
            // whole of it: somebody has to make it.
            *self.faults.entry("full disks with copies that lack objects").or_default() += 1;
        } else if !goes_on {
            let open: Vec<String> = self
                .clients
                .iter()
                .enumerate()
                .flat_map(|(i, c)| c.open.values().map(move |o| (i, o)))
                .take(4)
                .map(|(i, o)| format!("client {i} {} {:?}", o.name, o.ask))
                .collect();
            let left: Vec<u64> = (0..self.osds.len()).map(|i| self.taken(i)).collect();
            self.complain(format!(
                "with full disks, removals do not make room: {open:?} wait, {left:?} bytes \
                 are taken; {}",
                self.why_not_clean()
            ));
        }
        for i in 0..self.osds.len() {
            self.set_capacity(i, None);
        }
    }
}
