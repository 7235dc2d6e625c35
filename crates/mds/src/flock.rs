//! Locks on parts of files: `fcntl` by bytes, `flock` on the whole.

use std::collections::BTreeMap;

use messages::fs::{FileLock, HeldLocks};

/// Which table a lock is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    Fcntl,
    Flock,
}

/// Locks that one client may have on one file: each request looks at all of them.
const FILE_LOCKS_MAX: usize = 8192;

/// Locks that one client may have in all.
pub(crate) const CLIENT_LOCKS_MAX: usize = 1 << 16;

/// Requests of one client that wait for locks of one file.
const WAITERS_MAX: usize = 1024;

/// A client has as many locks, or waits for as many, as it may.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooMany;

/// The locks of one file.
#[derive(Debug, Default)]
pub(crate) struct FileLocks {
    held: HeldLocks,
}

const SHARED: u8 = 1;
const UNLOCK: u8 = 4;

fn end(lock: &FileLock) -> u64 {
    if lock.length == 0 { u64::MAX } else { lock.start.saturating_add(lock.length) }
}

fn overlap(a: &FileLock, b: &FileLock) -> bool {
    a.start < end(b) && b.start < end(a)
}

/// With this bit in `owner` that number alone tells who it is; older clients put the process beside
/// it.
const OWNER_ALONE: u64 = 1 << 63;

fn same_owner(a: &FileLock, b: &FileLock) -> bool {
    let same = a.client == b.client && a.owner == b.owner;
    same && (a.owner & OWNER_ALONE != 0 || a.pid == b.pid)
}

impl FileLocks {
    fn table(&mut self, rule: Rule) -> &mut Vec<FileLock> {
        match rule {
            Rule::Fcntl => &mut self.held.fcntl,
            Rule::Flock => &mut self.held.flock,
        }
    }

    /// A lock of somebody else that `wanted` cannot be beside.
    pub fn conflict(&self, rule: Rule, wanted: &FileLock) -> Option<FileLock> {
        let table = match rule {
            Rule::Fcntl => &self.held.fcntl,
            Rule::Flock => &self.held.flock,
        };
        let shared = wanted.kind == SHARED;
        let found = table.iter().find(|l| {
            overlap(l, wanted) && !same_owner(l, wanted) && !(shared && l.kind == SHARED)
        });
        found.copied()
    }

    /// Sets or removes a lock without conflict; replaces the owner's own in that range. Returns by how
    /// many the client's locks change, of which it may get `room` more at most: one that takes the
    /// middle out of a range has two then.
    ///
    /// # Errors
    /// When it would be too many; nothing is changed.
    pub fn set(&mut self, rule: Rule, wanted: &FileLock, room: usize) -> Result<isize, TooMany> {
        let count = |locks: &[FileLock]| locks.iter().filter(|l| l.client == wanted.client).count();
        let table = self.table(rule);
        let mut kept = Vec::with_capacity(table.len() + 2);
        for lock in table.iter() {
            if !same_owner(lock, wanted) || !overlap(lock, wanted) {
                kept.push(*lock);
                continue;
            }
            if lock.start < wanted.start {
                kept.push(FileLock { length: wanted.start - lock.start, ..*lock });
            }
            let (until, cut) = (end(lock), end(wanted));
            if until > cut {
                let length = if lock.length == 0 { 0 } else { until - cut };
                kept.push(FileLock { start: cut, length, ..*lock });
            }
        }
        if wanted.kind != UNLOCK {
            // What touches it and is the same is one lock with it.
            let mut whole = *wanted;
            kept.retain(|lock| {
                let touches = lock.start <= end(&whole) && whole.start <= end(lock);
                if lock.kind != whole.kind || !same_owner(lock, &whole) || !touches {
                    return true;
                }
                let until = end(lock).max(end(&whole));
                whole.start = whole.start.min(lock.start);
                whole.length = if until == u64::MAX { 0 } else { until - whole.start };
                false
            });
            kept.push(whole);
        }
        let (before, after) = (count(table), count(&kept));
        if after > before && (after > FILE_LOCKS_MAX || after - before > room) {
            return Err(TooMany);
        }
        *table = kept;
        Ok(after as isize - before as isize)
    }

    /// Takes over what a client held before this server began, `room` locks at most. Returns how many.
    pub fn restore(&mut self, client: i64, held: &HeldLocks, room: usize) -> usize {
        let mut taken = 0;
        for (rule, locks) in [(Rule::Fcntl, &held.fcntl), (Rule::Flock, &held.flock)] {
            for lock in locks {
                let left = room.saturating_sub(taken);
                let Ok(change) = self.set(rule, &FileLock { client, ..*lock }, left) else {
                    tracing::warn!(client, "it claims more locks than a client may have");
                    return taken;
                };
                taken = taken.saturating_add_signed(change);
            }
        }
        taken
    }

    pub fn is_empty(&self) -> bool {
        self.held.fcntl.is_empty() && self.held.flock.is_empty()
    }

    /// A client is gone. Returns whether it held any.
    pub fn drop_client(&mut self, client: i64) -> bool {
        let before = self.held.fcntl.len() + self.held.flock.len();
        self.held.fcntl.retain(|l| l.client != client);
        self.held.flock.retain(|l| l.client != client);
        self.held.fcntl.len() + self.held.flock.len() < before
    }
}

/// Requests that wait for locks of one file, by their numbers, and what they want.
#[derive(Debug, Default)]
pub(crate) struct LockQueue(BTreeMap<u64, (Rule, FileLock)>);

impl LockQueue {
    /// Adds a request.
    ///
    /// # Errors
    /// When its client has [`WAITERS_MAX`] here.
    pub fn add(&mut self, id: u64, rule: Rule, wanted: FileLock) -> Result<(), TooMany> {
        let beside = self.0.values().filter(|(_, l)| l.client == wanted.client).count();
        if beside >= WAITERS_MAX {
            return Err(TooMany);
        }
        self.0.insert(id, (rule, wanted));
        Ok(())
    }

    pub fn remove(&mut self, id: u64) {
        self.0.remove(&id);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes those that nothing is in the way of any more: of those that want a part of `changed`, or
    /// of all.
    pub fn take_free(&mut self, locks: &FileLocks, changed: Option<(Rule, &FileLock)>) -> Vec<u64> {
        let is_free = |_: &u64, (rule, wanted): &mut (Rule, FileLock)| {
            changed.is_none_or(|(table, l)| table == *rule && overlap(l, wanted))
                && locks.conflict(*rule, wanted).is_none()
        };
        self.0.extract_if(.., is_free).map(|(id, _)| id).collect()
    }

    /// Takes those of a client whose process gave up waiting.
    pub fn take_of(&mut self, client: i64, owner: u64, pid: u64) -> Vec<u64> {
        let is_its = |_: &u64, (_, l): &mut (Rule, FileLock)| {
            (l.client, l.owner, l.pid) == (client, owner, pid)
        };
        self.0.extract_if(.., is_its).map(|(id, _)| id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(client: i64, start: u64, length: u64, kind: u8) -> FileLock {
        FileLock { start, length, client, owner: 1, pid: 1, kind }
    }

    #[test]
    fn ranges_split_and_join_owners() {
        let mut l = FileLocks::default();
        l.set(Rule::Fcntl, &lock(1, 0, 0, 2), 100).unwrap();
        assert!(l.conflict(Rule::Fcntl, &lock(2, 50, 1, 1)).is_some());
        assert!(l.conflict(Rule::Flock, &lock(2, 50, 1, 1)).is_none());
        l.set(Rule::Fcntl, &lock(1, 10, 10, UNLOCK), 100).unwrap();
        assert!(l.conflict(Rule::Fcntl, &lock(2, 10, 10, 2)).is_none());
        assert!(l.conflict(Rule::Fcntl, &lock(2, 9, 1, 2)).is_some());
        assert!(l.conflict(Rule::Fcntl, &lock(2, 20, 1, 2)).is_some());
        l.set(Rule::Fcntl, &lock(1, 0, 5, 1), 100).unwrap();
        assert!(l.conflict(Rule::Fcntl, &lock(2, 0, 5, 1)).is_none(), "both share");
        assert!(l.conflict(Rule::Fcntl, &lock(2, 0, 6, 1)).is_some());
        let three = |start| FileLock { start, length: 10, ..lock(3, 0, 0, 2) };
        for start in [100, 120, 110] {
            l.set(Rule::Flock, &three(start), 100).unwrap();
        }
        let found = l.conflict(Rule::Flock, &lock(2, 125, 1, 1)).unwrap();
        assert_eq!((found.start, found.length), (100, 30), "neighbours are one");
        let alone = FileLock { owner: 1 << 63, ..lock(4, 200, 1, 2) };
        l.set(Rule::Fcntl, &alone, 100).unwrap();
        l.set(Rule::Fcntl, &FileLock { pid: 77, kind: UNLOCK, ..alone }, 100).unwrap();
        let left = l.conflict(Rule::Fcntl, &lock(2, 200, 1, 2));
        assert_eq!(left.map(|l| l.client), Some(1), "it is gone, whatever its process");
        assert!(l.drop_client(1) && !l.drop_client(1));
        assert!(l.conflict(Rule::Fcntl, &lock(2, 0, 0, 2)).is_none());
    }
    #[test]
    fn a_client_has_so_many_locks() {
        let mut l = FileLocks::default();
        for n in 0..FILE_LOCKS_MAX as u64 {
            assert_eq!(l.set(Rule::Fcntl, &lock(1, 2 * n, 1, 2), 1), Ok(1));
        }
        let next = 2 * FILE_LOCKS_MAX as u64;
        assert_eq!(l.set(Rule::Fcntl, &lock(1, next, 1, 2), 100), Err(TooMany));
        // Others are not held by it; nor is what makes fewer of them.
        assert_eq!(l.set(Rule::Fcntl, &lock(2, next, 10, 2), 100), Ok(1));
        assert_eq!(l.set(Rule::Fcntl, &lock(1, 0, 1, UNLOCK), 0), Ok(-1));
        assert_eq!(
            l.set(Rule::Fcntl, &lock(1, 0, next - 1, 2), 0),
            Ok(2 - FILE_LOCKS_MAX as isize)
        );
        // What an unlock splits is two locks.
        assert_eq!(l.set(Rule::Fcntl, &lock(2, next + 5, 1, UNLOCK), 0), Err(TooMany));
        assert_eq!(l.set(Rule::Fcntl, &lock(2, next + 5, 1, UNLOCK), 1), Ok(1));
        let held =
            HeldLocks { fcntl: (0..9).map(|n| lock(0, 2 * n, 1, 1)).collect(), flock: vec![] };
        let mut l = FileLocks::default();
        assert_eq!(l.restore(3, &held, 5), 5);
        assert_eq!(l.held.fcntl.len(), 5);
    }
    #[test]
    fn who_waits_is_woken_when_nothing_is_in_the_way() {
        let mut l = FileLocks::default();
        l.set(Rule::Fcntl, &lock(1, 0, 100, 2), 9).unwrap();
        let mut queue = LockQueue::default();
        for (id, start) in [(1, 0), (2, 50), (3, 90)] {
            queue.add(id, Rule::Fcntl, lock(2, start, 10, 2)).unwrap();
        }
        let free = lock(1, 50, 20, UNLOCK);
        assert!(queue.take_free(&l, Some((Rule::Fcntl, &free))).is_empty(), "all is held");
        l.set(Rule::Fcntl, &free, 9).unwrap();
        assert!(queue.take_free(&l, Some((Rule::Flock, &free))).is_empty(), "the other table");
        assert_eq!(queue.take_free(&l, Some((Rule::Fcntl, &free))), [2]);
        assert!(queue.take_of(1, 1, 1).is_empty());
        assert_eq!(queue.take_of(2, 1, 1), [1, 3]);
        for id in 0..WAITERS_MAX as u64 {
            queue.add(id, Rule::Fcntl, lock(2, 0, 1, 2)).unwrap();
        }
        assert_eq!(queue.add(9999, Rule::Fcntl, lock(2, 0, 1, 2)), Err(TooMany));
        queue.add(9999, Rule::Fcntl, lock(3, 0, 1, 2)).unwrap();
        l.drop_client(1);
        assert_eq!(queue.take_free(&l, None).len(), WAITERS_MAX + 1);
    }
}
