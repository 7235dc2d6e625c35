//! Locks on parts of files: `fcntl` by bytes, `flock` on the whole.

use messages::fs::{FileLock, HeldLocks};

/// Which table a lock is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    Fcntl,
    Flock,
}

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

    /// Sets or removes a lock without conflict; replaces the owner's own in that range.
    pub fn set(&mut self, rule: Rule, wanted: &FileLock) {
        let table = self.table(rule);
        let mut kept = Vec::with_capacity(table.len() + 2);
        for lock in table.drain(..) {
            if !same_owner(&lock, wanted) || !overlap(&lock, wanted) {
                kept.push(lock);
                continue;
            }
            if lock.start < wanted.start {
                kept.push(FileLock { length: wanted.start - lock.start, ..lock });
            }
            let (until, cut) = (end(&lock), end(wanted));
            if until > cut {
                let length = if lock.length == 0 { 0 } else { until - cut };
                kept.push(FileLock { start: cut, length, ..lock });
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
        *table = kept;
    }

    /// Takes over what a client held before this server began.
    pub fn restore(&mut self, client: i64, held: &HeldLocks) {
        for (rule, locks) in [(Rule::Fcntl, &held.fcntl), (Rule::Flock, &held.flock)] {
            for lock in locks {
                self.set(rule, &FileLock { client, ..*lock });
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(client: i64, start: u64, length: u64, kind: u8) -> FileLock {
        FileLock { start, length, client, owner: 1, pid: 1, kind }
    }

    #[test]
    fn ranges_split_and_join_owners() {
        let mut l = FileLocks::default();
        l.set(Rule::Fcntl, &lock(1, 0, 0, 2));
        assert!(l.conflict(Rule::Fcntl, &lock(2, 50, 1, 1)).is_some());
        assert!(l.conflict(Rule::Flock, &lock(2, 50, 1, 1)).is_none());
        l.set(Rule::Fcntl, &lock(1, 10, 10, UNLOCK));
        assert!(l.conflict(Rule::Fcntl, &lock(2, 10, 10, 2)).is_none());
        assert!(l.conflict(Rule::Fcntl, &lock(2, 9, 1, 2)).is_some());
        assert!(l.conflict(Rule::Fcntl, &lock(2, 20, 1, 2)).is_some());
        l.set(Rule::Fcntl, &lock(1, 0, 5, 1));
        assert!(l.conflict(Rule::Fcntl, &lock(2, 0, 5, 1)).is_none(), "both share");
        assert!(l.conflict(Rule::Fcntl, &lock(2, 0, 6, 1)).is_some());
        let three = |start| FileLock { start, length: 10, ..lock(3, 0, 0, 2) };
        for start in [100, 120, 110] {
            l.set(Rule::Flock, &three(start));
        }
        let found = l.conflict(Rule::Flock, &lock(2, 125, 1, 1)).unwrap();
        assert_eq!((found.start, found.length), (100, 30), "neighbours are one");
        let alone = FileLock { owner: 1 << 63, ..lock(4, 200, 1, 2) };
        l.set(Rule::Fcntl, &alone);
        l.set(Rule::Fcntl, &FileLock { pid: 77, kind: UNLOCK, ..alone });
        let left = l.conflict(Rule::Fcntl, &lock(2, 200, 1, 2));
        assert_eq!(left.map(|l| l.client), Some(1), "it is gone, whatever its process");
        assert!(l.drop_client(1) && !l.drop_client(1));
        assert!(l.conflict(Rule::Fcntl, &lock(2, 0, 0, 2)).is_none());
    }
}
