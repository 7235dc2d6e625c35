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
//! fits. Cost: the states are few, because few changes are open at a time.

use std::collections::{BTreeMap, BTreeSet};

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
}

/// What a client is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// A result code and nothing else.
    Code(i32),
    /// The object.
    Object(Model),
}

const NOENT: i32 = -2;
const EXIST: i32 = -17;

impl Model {
    /// What the operation gives, and the object after it.
    #[must_use]
    pub fn apply(&self, ask: &Ask) -> (Told, Self) {
        let mut next = self.clone();
        next.exists = true;
        match ask {
            Ask::Read if self.exists => return (Told::Object(self.clone()), self.clone()),
            Ask::Read => return (Told::Code(NOENT), self.clone()),
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
            Ask::Create if self.exists => return (Told::Code(EXIST), self.clone()),
            Ask::Create => {}
            Ask::Delete if self.exists => next = Self::default(),
            Ask::Delete => return (Told::Code(NOENT), self.clone()),
        }
        (Told::Code(0), next)
    }
}

/// One operation of one client.
#[derive(Clone, Debug)]
pub struct Record {
    /// Who.
    pub client: usize,
    /// What.
    pub ask: Ask,
    /// The answer; `None` when there was none.
    pub told: Option<Told>,
    /// When, virtual ns; for people.
    pub times: (u64, u64),
}

/// The operations on one object.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Operations, by number.
    pub records: Vec<Record>,
    /// Begins (`true`) and ends of operations, in order.
    steps: Vec<(usize, bool)>,
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

impl History {
    /// A request leaves its client; its number.
    pub fn begin(&mut self, client: usize, ask: Ask, now: u64) -> usize {
        self.records.push(Record { client, ask, told: None, times: (now, u64::MAX) });
        self.steps.push((self.records.len() - 1, true));
        self.records.len() - 1
    }

    /// Its answer is there.
    pub fn end(&mut self, id: usize, told: Told, now: u64) {
        self.records[id].told = Some(told);
        self.records[id].times.1 = now;
        self.steps.push((id, false));
    }

    /// Whether some order explains all answers.
    ///
    /// # Errors
    /// The first answer that no order explains, with what was possible; or that too much is
    /// open at a time to tell.
    pub fn check(&self) -> Result<BTreeSet<Model>, Doubt> {
        // Open operations, by bit; and states with the bits of those that took effect.
        let mut open: Vec<Option<usize>> = vec![None; OPEN_MAX];
        let mut states: BTreeSet<(Model, u64)> = BTreeSet::from([(Model::default(), 0)]);
        for &(id, begins) in &self.steps {
            if begins {
                let at = open.iter().position(Option::is_none).ok_or(Doubt::TooMuch)?;
                open[at] = Some(id);
                states = states.into_iter().map(|(m, b)| self.with_idle(&open, m, b)).collect();
                continue;
            }
            let at = open.iter().position(|o| *o == Some(id)).expect("it began");
            let bit = 1u64 << at;
            let (mut done, mut todo) = (BTreeSet::new(), Vec::new());
            let mut seen: BTreeSet<(Model, u64)> = BTreeSet::new();
            for s in &states {
                todo.push(s.clone());
            }
            while let Some((model, bits)) = todo.pop() {
                if bits & bit != 0 {
                    done.insert((model, bits & !bit));
                    continue;
                }
                if !seen.insert((model.clone(), bits)) {
                    continue;
                }
                if seen.len() > STATES_MAX {
                    return Err(Doubt::TooMuch);
                }
                for (i, op) in open.iter().enumerate() {
                    let Some(op) = op.filter(|_| bits & 1 << i == 0) else { continue };
                    let record = &self.records[op];
                    let (told, next) = model.apply(&record.ask);
                    if record.told.as_ref().is_none_or(|t| *t == told) {
                        todo.push(self.with_idle(&open, next, bits | 1 << i));
                    }
                }
            }
            if done.is_empty() {
                return Err(Doubt::Wrong(self.explain(id, &open, &states)));
            }
            open[at] = None;
            states = done;
        }
        Ok(states.into_iter().map(|(m, _)| m).collect())
    }

    /// What can change nothing and fits the state has had its moment: none is better.
    fn with_idle(&self, open: &[Option<usize>], model: Model, mut bits: u64) -> (Model, u64) {
        for (i, op) in open.iter().enumerate() {
            let Some(op) = op.filter(|_| bits & 1 << i == 0) else { continue };
            let record = &self.records[op];
            let idle = record.ask == Ask::Read || matches!(record.told, Some(Told::Code(..0)));
            if idle && record.told == Some(model.apply(&record.ask).0) {
                bits |= 1 << i;
            }
        }
        (model, bits)
    }

    fn explain(
        &self,
        id: usize,
        open: &[Option<usize>],
        states: &BTreeSet<(Model, u64)>,
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

    fn history(steps: &[(usize, Ask, Option<Told>)]) -> History {
        // Each begins and ends before the next.
        let mut h = History::default();
        for (client, ask, told) in steps {
            let id = h.begin(*client, ask.clone(), 0);
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
        assert_eq!(h.check().unwrap(), BTreeSet::from([Model::default()]));
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
            assert!(h.check().is_err(), "{wrong:?}");
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
            h.check().unwrap();
        }
        let h = history(&[
            (2, Ask::Append(7), None),
            (0, Ask::WriteFull(1), ok),
            (1, Ask::Read, Some(object(&[7]))),
        ]);
        assert!(h.check().is_err(), "it cannot take back what came later");
    }

    /// What changes nothing where it could have been first may still be what changed
    /// something later.
    #[test]
    fn changes_are_not_hurried() {
        let ok = Some(Told::Code(0));
        let mut h = history(&[(0, Ask::WriteFull(1), ok.clone())]);
        let rm = h.begin(1, Ask::RmOmap(3), 0);
        let set = h.begin(0, Ask::SetOmap(3, 9), 0);
        h.end(set, Told::Code(0), 0);
        h.end(rm, Told::Code(0), 0);
        let r = h.begin(2, Ask::Read, 0);
        h.end(r, object(&[1]), 0);
        h.check().unwrap();
    }

    /// Two that overlap may go either way, but reads must agree on which.
    #[test]
    fn readers_agree() {
        let mut h = History::default();
        let (a, b) = (h.begin(0, Ask::WriteFull(1), 0), h.begin(1, Ask::WriteFull(2), 0));
        let r = h.begin(2, Ask::Read, 0);
        h.end(r, object(&[1]), 0);
        let r = h.begin(2, Ask::Read, 0);
        h.end(r, object(&[2]), 0);
        let mut worse = h.clone();
        h.end(a, Told::Code(0), 0);
        h.end(b, Told::Code(0), 0);
        h.check().unwrap();
        let r = worse.begin(2, Ask::Read, 0);
        worse.end(r, object(&[1]), 0);
        assert!(worse.check().is_err());
    }
}
