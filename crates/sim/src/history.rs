//! What clients asked and were told, and whether some order of it all explains that.
//!
//! Each object is a small machine ([`Model`]). A history is linearizable when every
//! operation can be given one moment between its request and its answer so that the
//! machine, run in the order of those moments, gives exactly the answers that were given.
//! An operation without an answer may have happened at any time after its request, or
//! never.
//!
//! The check runs along the history and keeps every state the object may be in, together
//! with which of the open operations have taken effect in it. An operation's end keeps the
//! states in which it has. What changes nothing takes effect in the first state that it
//! fits. What one client changes in one object happens in the order in which it asked.
//! Cost: the states are few, because few changes are open at a time.
//!
//! Snapshots are part of the machine: each change names those that its client knows, and
//! keeps the object as it was for those that are new. A copy of another object may be of
//! any state that the other's history allows while the copy was asked ([`Possible`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::uploads::{STEPS, UNKNOWN, mixed};

/// An object as clients see it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Model {
    /// Whether it is there.
    pub exists: bool,
    /// The values written or appended, oldest first.
    pub data: Vec<u64>,
    /// Its attribute.
    pub attr: Option<u64>,
    /// Its omap.
    pub omap: BTreeMap<u8, u64>,
}

/// What a client asks. Every value is used once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Everything of the object, in one operation.
    Read,
    /// Replaces the data.
    WriteFull(u64),
    /// Appends.
    Append(u64),
    /// Sets the attribute.
    SetAttr(u64),
    /// Sets an omap entry.
    SetOmap(u8, u64),
    /// Removes an omap entry, and makes the object.
    RmOmap(u8),
    /// Appends, sets attribute and omap entry, all or nothing.
    All(u8, u64),
    /// Makes the object, which must not be there.
    Create,
    /// Removes it.
    Delete,
    /// Everything of the object as it was at a snapshot.
    ReadAt(u64),
    /// Makes the object what it was at a snapshot.
    Rollback(u64),
    /// Makes the object what another is.
    CopyFrom(String),
    /// Calls the method of an uploaded class, which changes the attribute.
    Call(u64),
}

impl Ask {
    /// Whether it changes nothing, whatever becomes of it.
    #[must_use]
    pub fn is_read(&self) -> bool {
        matches!(self, Self::Read | Self::ReadAt(_))
    }
}

/// The snapshots that a client knows when it asks for a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snaps {
    /// The newest there ever was.
    pub seq: u64,
    /// Those that are kept, newest first.
    pub kept: Vec<u64>,
}

/// What an object was, for some snapshots.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kept {
    /// The newest snapshot when it was made.
    id: u64,
    /// The snapshots that it serves, newest first.
    snaps: Vec<u64>,
    content: Model,
}

/// An object with its past.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct State {
    /// As it is now.
    pub head: Model,
    /// The newest snapshot that a change knew.
    seq: u64,
    /// Oldest first.
    kept: Arc<Vec<Kept>>,
}

/// Virtual ns, from and to.
pub type Span = (u64, u64);

/// What another object may be, in a span of time; `None` where it may be absent.
pub type Possible = BTreeSet<Option<Model>>;

/// What a client is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// A result code and nothing else.
    Code(i32),
    /// The object.
    Object(Model),
}

const NOENT: i32 = -2;
/// There was no room, and nothing was changed.
const NOSPC: i32 = -28;
const EXIST: i32 = -17;

impl State {
    /// The object at a snapshot.
    fn at(&self, snap: u64) -> Option<&Model> {
        if snap > self.seq {
            return Some(&self.head).filter(|m| m.exists);
        }
        let kept = self.kept.iter().find(|k| k.id >= snap)?;
        (kept.snaps.last()? <= &snap).then_some(&kept.content)
    }

    /// The object after it became `next`.
    fn turn_to(&self, next: Model, snaps: &Snaps, gone: &BTreeSet<u64>) -> Vec<Self> {
        let mut seqs = vec![self.seq];
        if !self.head.exists && self.kept.is_empty() && self.seq > snaps.seq {
            seqs.push(0); // all that was kept is trimmed, and with it what it knew
        }
        let one = |seq: u64| {
            let fresh = snaps.kept.iter().copied().filter(|s| *s > seq && !gone.contains(s));
            let fresh: Vec<u64> = fresh.collect();
            let (seq, mut kept) = (seq.max(snaps.seq), self.kept.clone());
            if self.head.exists && !fresh.is_empty() {
                let content = self.head.clone();
                Arc::make_mut(&mut kept).push(Kept { id: snaps.seq, snaps: fresh, content });
            }
            // Nothing of it is left, or a clone that is not trimmed yet keeps what it knew.
            let vanishes = !next.exists && kept.is_empty();
            let knows = Self { head: next.clone(), seq, kept };
            let forgot = vanishes.then(|| Self { seq: 0, ..knows.clone() });
            forgot.into_iter().chain((!vanishes || !gone.is_empty()).then_some(knows))
        };
        seqs.into_iter().flat_map(one).collect()
    }

    /// A snapshot is not asked for any more.
    fn forget(mut self, snap: u64) -> Self {
        if self.kept.iter().any(|k| k.snaps.contains(&snap)) {
            let kept = Arc::make_mut(&mut self.kept);
            kept.iter_mut().for_each(|k| k.snaps.retain(|s| *s != snap));
            kept.retain(|k| !k.snaps.is_empty());
        }
        self
    }

    /// What an operation may give, and the object after it.
    fn apply(
        &self,
        r: &Record,
        copied: Option<&Possible>,
        gone: &BTreeSet<u64>,
    ) -> Vec<(Told, Self)> {
        let as_read = |m: Option<&Model>| match m {
            Some(m) => Told::Object(m.clone()),
            None => Told::Code(NOENT),
        };
        let refused = |code| vec![(Told::Code(code), self.clone())];
        let done = |next: Model| -> Vec<(Told, Self)> {
            let all = self.turn_to(next, &r.snaps, gone).into_iter();
            all.map(|s| (Told::Code(0), s)).collect()
        };
        let mut next = self.head.clone();
        next.exists = true;
        match &r.ask {
            Ask::Read => {
                let head = Some(&self.head).filter(|m| m.exists);
                return vec![(as_read(head), self.clone())];
            }
            Ask::ReadAt(snap) => return vec![(as_read(self.at(*snap)), self.clone())],
            Ask::WriteFull(v) => next.data = vec![*v],
            Ask::Append(v) => next.data.push(*v),
            Ask::SetAttr(v) => next.attr = Some(*v),
            Ask::SetOmap(k, v) => drop(next.omap.insert(*k, *v)),
            Ask::RmOmap(k) => drop(next.omap.remove(k)),
            Ask::All(k, v) => {
                next.data.push(*v);
                next.attr = Some(*v);
                next.omap.insert(*k, *v);
            }
            Ask::Create if self.head.exists => return refused(EXIST),
            Ask::Create => {}
            Ask::Delete if self.head.exists => next = Model::default(),
            Ask::Delete => return refused(NOENT),
            Ask::Rollback(snap) => {
                next = self.at(*snap).cloned().unwrap_or_default();
                if !next.exists && !self.head.exists {
                    return refused(0); // nothing is written, and the snapshots it knew leave no trace
                }
            }
            Ask::Call(v) => {
                // Who knows which version, or of one at all, is the OSD's affair.
                let mut all = refused(UNKNOWN);
                for step in STEPS {
                    next.attr = Some(mixed(self.head.attr, *v, step));
                    all.extend(done(next.clone()));
                }
                return all;
            }
            Ask::CopyFrom(_) => {
                let mut all = Vec::new();
                for content in copied.into_iter().flatten() {
                    match content {
                        Some(content) => all.extend(done(content.clone())),
                        None => all.extend(refused(NOENT)),
                    }
                }
                return all;
            }
        }
        done(next)
    }
}

/// One operation of one client.
#[derive(Clone, Debug)]
pub struct Record {
    /// Who; a client that takes the place of another is somebody else.
    pub client: u64,
    /// What.
    pub ask: Ask,
    /// The snapshots that it knew.
    pub snaps: Snaps,
    /// The answer; `None` when there was none.
    pub told: Option<Told>,
    /// When, virtual ns; for people.
    pub times: Span,
}

/// What happens in a history.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// An operation is asked.
    Begin(usize),
    /// It is answered.
    End(usize),
    /// A snapshot is removed: nobody asks for it any more.
    Forget(u64),
}

/// The operations on one object.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Operations, by number.
    pub records: Vec<Record>,
    /// Disks may be full: a change that nobody had an answer to may have been refused.
    pub no_room: bool,
    /// What happened, in order, and when.
    steps: Vec<(Step, u64)>,
}

/// Open operations are told apart by a bit each.
const OPEN_MAX: usize = 64;
/// More states than this are given up on: the test asks for too much at a time.
const STATES_MAX: usize = 200_000;

/// Why a history is not found to be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// No order explains it.
    Wrong(String),
    /// Too many orders are possible to look at all.
    TooMuch,
}

/// Where a check has come to.
struct Check<'a> {
    history: &'a History,
    copies: &'a BTreeMap<usize, Possible>,
    /// Open operations, by bit.
    open: Vec<Option<usize>>,
    /// What the object may be, with the bits of the operations that took effect.
    states: BTreeSet<(State, u64)>,
    /// Snapshots that were removed.
    gone: BTreeSet<u64>,
}

impl Check<'_> {
    /// The open operations that may be next, as bit and number: each client's changes in their
    /// order.
    fn next(&self, bits: u64) -> Vec<(usize, usize)> {
        let all = self.next_beside(bits).into_iter();
        all.filter(|n| n.2 == 0).map(|(i, id, _)| (i, id)).collect()
    }

    /// As [`Check::next`]; and those that may be if changes of their clients, by their bits, were
    /// refused for room and nobody heard of it.
    fn next_beside(&self, bits: u64) -> Vec<(usize, usize, u64)> {
        let waiting = self.open.iter().enumerate().filter(|(i, _)| bits & 1 << i == 0);
        let waiting: Vec<(usize, usize)> = waiting.filter_map(|(i, o)| Some((i, (*o)?))).collect();
        let record = |id: usize| &self.history.records[id];
        let may = |&(i, id): &(usize, usize)| {
            let it = record(id);
            let before = waiting.iter().filter(|(_, other)| {
                let o = record(*other);
                *other < id && o.client == it.client && !it.ask.is_read() && !o.ask.is_read()
            });
            let mut refused = 0;
            for (bit, other) in before {
                if !self.history.no_room || record(*other).told.is_some() {
                    return None;
                }
                refused |= 1 << bit;
            }
            Some((i, id, refused))
        };
        waiting.iter().filter_map(may).collect()
    }

    fn apply(&self, state: &State, id: usize) -> Vec<(Told, State)> {
        let record = &self.history.records[id];
        if record.told == Some(Told::Code(NOSPC)) && !record.ask.is_read() {
            return vec![(Told::Code(NOSPC), state.clone())];
        }
        let mut all = state.apply(record, self.copies.get(&id), &self.gone);
        all.retain(|(told, _)| record.told.as_ref().is_none_or(|t| t == told));
        all
    }

    /// What can change nothing and fits the state has had its moment: none is better.
    fn with_idle(&self, state: State, mut bits: u64) -> (State, u64) {
        loop {
            let idle = self.next(bits).into_iter().find(|(_, id)| {
                let record = &self.history.records[*id];
                let idle = match &record.told {
                    Some(Told::Code(..0)) => true,
                    Some(_) => record.ask.is_read(),
                    None => false,
                };
                idle && !self.apply(&state, *id).is_empty()
            });
            let Some((i, _)) = idle else { return (state, bits) };
            bits |= 1 << i;
        }
    }

    /// All states that the object may be in by now, with what has taken effect; an
    /// operation's `bit` ends the search where it has.
    fn reach(&self, bit: u64) -> Result<BTreeSet<(State, u64)>, Doubt> {
        let mut todo: Vec<(State, u64)> = self.states.iter().cloned().collect();
        let mut seen: BTreeSet<(State, u64)> = BTreeSet::new();
        while let Some((state, bits)) = todo.pop() {
            if !seen.insert((state.clone(), bits)) || bits & bit != 0 {
                continue;
            }
            if seen.len() > STATES_MAX {
                return Err(Doubt::TooMuch);
            }
            for (i, id, refused) in self.next_beside(bits) {
                for (_, next) in self.apply(&state, id) {
                    todo.push(self.with_idle(next, bits | refused | 1 << i));
                }
            }
        }
        Ok(seen)
    }

    fn step(&mut self, step: Step) -> Result<(), Doubt> {
        match step {
            Step::Forget(snap) => {
                self.gone.insert(snap);
                let states = std::mem::take(&mut self.states).into_iter();
                self.states = states.map(|(s, bits)| (s.forget(snap), bits)).collect();
            }
            Step::Begin(id) => {
                let at = self.open.iter().position(Option::is_none).ok_or(Doubt::TooMuch)?;
                self.open[at] = Some(id);
                let states = std::mem::take(&mut self.states).into_iter();
                self.states = states.map(|(s, bits)| self.with_idle(s, bits)).collect();
            }
            Step::End(id) => {
                let at = self.open.iter().position(|o| *o == Some(id)).expect("it began");
                let bit = 1u64 << at;
                let done = self.reach(bit)?.into_iter().filter(|(_, bits)| bits & bit != 0);
                let done: BTreeSet<_> = done.map(|(s, bits)| (s, bits & !bit)).collect();
                if done.is_empty() {
                    let why = self.history.explain(id, &self.open, &self.states);
                    return Err(Doubt::Wrong(why));
                }
                self.open[at] = None;
                self.states = done;
            }
        }
        Ok(())
    }
}

impl History {
    /// A request leaves its client, which knows these snapshots; its number.
    pub fn begin(&mut self, client: u64, ask: Ask, snaps: Snaps, now: u64) -> usize {
        let times = (now, u64::MAX);
        self.records.push(Record { client, ask, snaps, told: None, times });
        let id = self.records.len() - 1;
        self.steps.push((Step::Begin(id), now));
        id
    }

    /// Its answer is there.
    pub fn end(&mut self, id: usize, told: Told, now: u64) {
        self.records[id].told = Some(told);
        self.records[id].times.1 = now;
        self.steps.push((Step::End(id), now));
    }

    /// A snapshot is removed; nothing open asks for it.
    pub fn forget(&mut self, snap: u64, now: u64) {
        self.steps.push((Step::Forget(snap), now));
    }

    fn start<'a>(&'a self, copies: &'a BTreeMap<usize, Possible>) -> Check<'a> {
        Check {
            history: self,
            copies,
            open: vec![None; OPEN_MAX],
            states: BTreeSet::from([(State::default(), 0)]),
            gone: BTreeSet::new(),
        }
    }

    /// Whether some order explains all answers, where copies are of what is possible.
    ///
    /// # Errors
    /// The first answer that no order explains, with what was possible; or that too much is
    /// open at a time to tell.
    pub fn check(&self, copies: &BTreeMap<usize, Possible>) -> Result<BTreeSet<State>, Doubt> {
        let mut check = self.start(copies);
        for (step, _) in &self.steps {
            check.step(*step)?;
        }
        Ok(check.states.into_iter().map(|(s, _)| s).collect())
    }

    /// What the object may be in each of these spans of time.
    ///
    /// # Errors
    /// As [`History::check`].
    pub fn possible(&self, spans: &[Span]) -> Result<Vec<Possible>, Doubt> {
        let mut found = vec![Possible::new(); spans.len()];
        let nothing = BTreeMap::new();
        let mut check = self.start(&nothing);
        let first = self.steps.first().map_or(u64::MAX, |(_, t)| *t);
        for ((from, _), found) in spans.iter().zip(&mut found) {
            if *from <= first {
                found.insert(None);
            }
        }
        for (i, (step, at)) in self.steps.iter().enumerate() {
            check.step(*step)?;
            let until = self.steps.get(i + 1).map_or(u64::MAX, |(_, t)| *t);
            let within = |(from, to): Span| from <= until && *at <= to;
            if !spans.iter().any(|span| within(*span)) {
                continue;
            }
            let all = check.reach(0)?;
            let all: Possible =
                all.into_iter().map(|(s, _)| Some(s.head).filter(|m| m.exists)).collect();
            for (span, found) in spans.iter().zip(&mut found) {
                if within(*span) {
                    found.extend(all.iter().cloned());
                }
            }
        }
        Ok(found)
    }

    fn explain(
        &self,
        id: usize,
        open: &[Option<usize>],
        states: &BTreeSet<(State, u64)>,
    ) -> String {
        use std::fmt::Write as _;
        let r = &self.records[id];
        let mut text = format!("no order explains operation {id}: {r:?}\n  states before it:");
        for (m, bits) in states.iter().take(6) {
            let _ = write!(text, "\n    {m:?} after {bits:b}");
        }
        text.push_str("\n  open with it:");
        for op in open.iter().flatten() {
            let _ = write!(text, "\n    {op}: {:?}", self.records[*op]);
        }
        text.push_str("\n  before it:");
        for (i, r) in self.records.iter().enumerate().take(id).skip(id.saturating_sub(12)) {
            let _ = write!(text, "\n    {i}: {r:?}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(h: &History) -> Result<BTreeSet<State>, Doubt> {
        h.check(&BTreeMap::new())
    }

    fn begin(h: &mut History, client: u64, ask: Ask) -> usize {
        h.begin(client, ask, Snaps::default(), 0)
    }

    fn history(steps: &[(u64, Ask, Option<Told>)]) -> History {
        // Each begins and ends before the next.
        let mut h = History::default();
        for (client, ask, told) in steps {
            let id = begin(&mut h, *client, ask.clone());
            if let Some(told) = told {
                h.end(id, told.clone(), 0);
            }
        }
        h
    }

    fn object(data: &[u64]) -> Told {
        Told::Object(Model { exists: true, data: data.to_vec(), ..Model::default() })
    }

    #[test]
    fn what_was_written_is_read() {
        let ok = Some(Told::Code(0));
        let h = history(&[
            (0, Ask::Append(1), ok.clone()),
            (0, Ask::Append(2), ok.clone()),
            (1, Ask::Read, Some(object(&[1, 2]))),
            (1, Ask::Delete, ok),
            (0, Ask::Read, Some(Told::Code(NOENT))),
        ]);
        assert_eq!(check(&h).unwrap(), BTreeSet::from([State::default()]));
    }

    /// A lost write, a stale read, a write done twice and a reordered one are all seen.
    #[test]
    fn what_cannot_be_is_found() {
        let ok = Some(Told::Code(0));
        for wrong in [&[1][..], &[], &[1, 2, 2], &[2, 1]] {
            let h = history(&[
                (0, Ask::Append(1), ok.clone()),
                (0, Ask::Append(2), ok.clone()),
                (1, Ask::Read, Some(object(wrong))),
            ]);
            assert!(check(&h).is_err(), "{wrong:?}");
        }
    }

    /// What was never answered may have happened, at any time, or not.
    #[test]
    fn open_operations_may_be_either() {
        let ok = Some(Told::Code(0));
        for read in [&[1][..], &[1, 7]] {
            let h = history(&[
                (0, Ask::Append(1), ok.clone()),
                (2, Ask::Append(7), None),
                (1, Ask::Read, Some(object(read))),
            ]);
            check(&h).unwrap();
        }
        let h = history(&[
            (2, Ask::Append(7), None),
            (0, Ask::WriteFull(1), ok),
            (1, Ask::Read, Some(object(&[7]))),
        ]);
        assert!(check(&h).is_err(), "it cannot take back what came later");
    }

    /// A change that was refused for room, unheard, keeps none of its client's from happening.
    #[test]
    fn without_room_open_operations_may_be_refused() {
        let mut h = history(&[
            (2, Ask::Append(7), None),
            (2, Ask::Append(8), None),
            (1, Ask::Read, Some(object(&[8]))),
        ]);
        assert!(check(&h).is_err());
        h.no_room = true;
        check(&h).unwrap();
    }

    /// What changes nothing where it could have been first may still be what changed
    /// something later.
    #[test]
    fn changes_are_not_hurried() {
        let ok = Some(Told::Code(0));
        let mut h = history(&[(0, Ask::WriteFull(1), ok.clone())]);
        let rm = begin(&mut h, 1, Ask::RmOmap(3));
        let set = begin(&mut h, 0, Ask::SetOmap(3, 9));
        h.end(set, Told::Code(0), 0);
        h.end(rm, Told::Code(0), 0);
        let r = begin(&mut h, 2, Ask::Read);
        h.end(r, object(&[1]), 0);
        check(&h).unwrap();
    }

    /// Two that overlap may go either way, but reads must agree on which.
    #[test]
    fn readers_agree() {
        let mut h = History::default();
        let (a, b) = (begin(&mut h, 0, Ask::WriteFull(1)), begin(&mut h, 1, Ask::WriteFull(2)));
        let r = begin(&mut h, 2, Ask::Read);
        h.end(r, object(&[1]), 0);
        let r = begin(&mut h, 2, Ask::Read);
        h.end(r, object(&[2]), 0);
        let mut worse = h.clone();
        h.end(a, Told::Code(0), 0);
        h.end(b, Told::Code(0), 0);
        check(&h).unwrap();
        let r = begin(&mut worse, 2, Ask::Read);
        worse.end(r, object(&[1]), 0);
        assert!(check(&worse).is_err());
    }

    /// What one client asks of an object happens in its order.
    #[test]
    fn changes_of_one_client_keep_their_order() {
        let read = |h: &mut History| {
            let r = begin(h, 7, Ask::Read);
            h.end(r, object(&[2, 1]), 0);
        };
        for (second, right) in [(0, false), (1, true)] {
            let mut h = History::default();
            let (a, b) = (begin(&mut h, 0, Ask::Append(1)), begin(&mut h, second, Ask::Append(2)));
            h.end(b, Told::Code(0), 0);
            h.end(a, Told::Code(0), 0);
            read(&mut h);
            assert_eq!(check(&h).is_ok(), right);
        }
    }

    fn knows(kept: &[u64]) -> Snaps {
        Snaps { seq: kept.first().copied().unwrap_or(0), kept: kept.to_vec() }
    }

    fn done(h: &mut History, ask: Ask, kept: &[u64]) {
        let id = h.begin(0, ask, knows(kept), 0);
        h.end(id, Told::Code(0), 0);
    }

    fn reads(h: &History, ask: Ask, told: Told) -> bool {
        let mut h = h.clone();
        let id = begin(&mut h, 1, ask);
        h.end(id, told, 0);
        check(&h).is_ok()
    }

    /// A snapshot is the object before the first change that knew of it, and rolling back
    /// gives that again.
    #[test]
    fn snapshots_are_what_was() {
        let mut h = History::default();
        done(&mut h, Ask::WriteFull(1), &[3]);
        done(&mut h, Ask::WriteFull(2), &[5, 4, 3]);
        done(&mut h, Ask::Delete, &[6, 5, 4, 3]);
        let sees = |snap, told| reads(&h, Ask::ReadAt(snap), told);
        assert!(sees(3, Told::Code(NOENT)), "it came later");
        assert!(sees(4, object(&[1])) && sees(5, object(&[1])) && sees(6, object(&[2])));
        assert!(!sees(4, object(&[2])) && !sees(6, Told::Code(NOENT)));
        assert!(sees(7, Told::Code(NOENT)), "nothing changed since");
        done(&mut h, Ask::Rollback(5), &[7, 6, 5]);
        assert!(reads(&h, Ask::Read, object(&[1])));
        done(&mut h, Ask::Rollback(3), &[7, 6, 5]);
        assert!(reads(&h, Ask::Read, Told::Code(NOENT)));
        h.forget(5, 0);
        h.forget(6, 0);
        assert!(reads(&h, Ask::ReadAt(4), object(&[1])));
    }

    /// Rolling back what is not there to when it was not writes nothing: snapshots that only
    /// this request knew are not known to the object.
    #[test]
    fn rolling_back_nothing_leaves_no_trace() {
        let mut h = History::default();
        done(&mut h, Ask::WriteFull(1), &[4]);
        done(&mut h, Ask::Delete, &[5, 4]);
        done(&mut h, Ask::Rollback(6), &[9, 6, 5, 4]);
        done(&mut h, Ask::WriteFull(2), &[5, 4]);
        assert!(reads(&h, Ask::ReadAt(9), object(&[2])));
        assert!(!reads(&h, Ask::ReadAt(9), Told::Code(NOENT)));
        assert!(reads(&h, Ask::ReadAt(5), object(&[1])));
    }

    /// A copy is of one state that its source had while it was asked.
    #[test]
    fn copies_are_of_one_state() {
        let mut source = History::default();
        for (at, v) in [(10, 1), (20, 2), (30, 3)] {
            let id = source.begin(0, Ask::WriteFull(v), Snaps::default(), at);
            source.end(id, Told::Code(0), at + 5);
        }
        let possible = source.possible(&[(0, 5), (16, 19), (16, 22), (26, 90)]).unwrap();
        let sees = |i: usize, v: u64| {
            let m = Model { exists: true, data: vec![v], ..Model::default() };
            possible[i].contains(&Some(m))
        };
        assert_eq!(possible[0], Possible::from([None]));
        assert!(sees(1, 1) && !sees(1, 2) && sees(2, 2) && !sees(2, 3) && !sees(3, 1));
        for (read, right) in [(2, true), (3, false)] {
            let mut h = History::default();
            let copy = begin(&mut h, 0, Ask::CopyFrom("source".into()));
            h.end(copy, Told::Code(0), 0);
            let r = begin(&mut h, 0, Ask::Read);
            h.end(r, object(&[read]), 0);
            let copies = BTreeMap::from([(copy, possible[2].clone())]);
            assert_eq!(h.check(&copies).is_ok(), right);
        }
    }
}
