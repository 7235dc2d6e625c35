//! The PG log: the newest writes in order, and what their resends are told.
//!
//! On disk each entry is one key of the PG's collection, ordered as versions are. Entries
//! below the tail stay there for a while: they recognise resends (`dups`) and cost nothing
//! to keep, for they are removed many at a time.
//!
//! Source: the peer's `PGLog`, `pg_log_dup_t`; the form on disk is ours.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use denc::Denc;
use messages::{Answered, PgLogEntry};
use types::{EVersion, ReqId};

/// Prefix of log keys.
const LOG: u8 = b'l';

/// The key of an entry; sorts as versions do.
#[must_use]
pub fn log_key(v: EVersion) -> Bytes {
    let mut key = [LOG; 13];
    key[1..5].copy_from_slice(&v.epoch.0.to_be_bytes());
    key[5..].copy_from_slice(&v.version.to_be_bytes());
    Bytes::copy_from_slice(&key)
}

/// The version in such a key.
#[must_use]
pub fn version_of_key(key: &[u8]) -> Option<EVersion> {
    let epoch = u32::from_be_bytes(key.get(1..5)?.try_into().ok()?);
    let version = u64::from_be_bytes(key.get(5..13)?.try_into().ok()?);
    Some(EVersion::new(epoch, version))
}

/// The keys of all entries: from the first, up to but without the second.
#[must_use]
pub fn log_range() -> (Bytes, Bytes) {
    (Bytes::from_static(&[LOG]), Bytes::from_static(&[LOG + 1]))
}

/// What a resent write is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dup {
    /// The write's place.
    pub version: EVersion,
    /// The object's version for users.
    pub user_version: u64,
    /// The result.
    pub result: i32,
    /// Results and outputs, for those that wanted them.
    pub returns: Vec<(i32, Bytes)>,
}

/// The log of one copy.
#[derive(Clone, Debug, Default)]
pub struct PgLog {
    /// Oldest first; all above `tail`.
    pub entries: VecDeque<PgLogEntry>,
    /// Entries up to here are not in `entries`.
    pub tail: EVersion,
    /// By request: of all entries and of older ones.
    dups: HashMap<ReqId, Dup>,
    /// Which `dups` are older than the tail, oldest first.
    old: VecDeque<(EVersion, ReqId)>,
    /// The highest version for users in any entry seen.
    last_user: u64,
}

impl PgLog {
    /// The newest write.
    #[must_use]
    pub fn head(&self) -> EVersion {
        self.entries.back().map_or(self.tail, |e| e.version)
    }

    /// What a request that was answered before is told.
    #[must_use]
    pub fn dup(&self, reqid: &ReqId) -> Option<&Dup> {
        self.dups.get(reqid)
    }

    /// Number of requests remembered.
    #[must_use]
    pub fn dup_count(&self) -> usize {
        self.dups.len()
    }

    /// Appends the next write.
    ///
    /// # Panics
    /// When its version is not above the head: the order of writes is lost.
    pub fn push(&mut self, entry: PgLogEntry) {
        assert!(entry.version > self.head(), "log versions rise");
        self.last_user = self.last_user.max(entry.user_version);
        self.remember(&entry);
        self.entries.push_back(entry);
    }

    fn remember(&mut self, e: &PgLogEntry) {
        for a in &e.answered {
            let (version, returns) = (e.version, Vec::new());
            let dup = Dup { version, user_version: a.user_version, result: a.result, returns };
            self.dups.entry(a.reqid).or_insert(dup);
        }
        if e.reqid.client.num == 0 && e.reqid.tid == 0 {
            return; // the OSD's own
        }
        let dup = Dup {
            version: e.version,
            user_version: e.user_version,
            result: e.result,
            returns: e.returns.clone(),
        };
        self.dups.insert(e.reqid, dup);
    }

    /// Takes an entry found on disk; the tail must be set already and entries must come in
    /// order.
    pub fn load(&mut self, entry: PgLogEntry) {
        if entry.version > self.tail {
            self.push(entry);
        } else {
            self.last_user = self.last_user.max(entry.user_version);
            self.remember(&entry);
            self.outlive(&entry);
        }
    }

    /// The highest version for users so far; the next change for users is above it.
    #[must_use]
    pub fn last_user(&self) -> u64 {
        self.last_user
    }

    /// Moves the tail up to `to`; what falls out still recognises resends.
    pub fn trim(&mut self, to: EVersion) {
        while let Some(e) = self.entries.front()
            && e.version <= to
        {
            let e = self.entries.pop_front().expect("looked at");
            self.tail = e.version;
            self.outlive(&e);
        }
    }

    /// The entry's requests are still recognised for a while.
    fn outlive(&mut self, e: &PgLogEntry) {
        self.old.push_back((e.version, e.reqid));
        self.old.extend(e.answered.iter().map(|a| (e.version, a.reqid)));
    }

    /// Requests that changed the object lately, and what they were told; the newest `max`.
    #[must_use]
    pub fn answered(&self, oid: &types::HObject, max: usize) -> Vec<Answered> {
        let of = self.entries.iter().rev().filter(|e| e.oid == *oid);
        let all = of.flat_map(|e| {
            let own = Answered { reqid: e.reqid, user_version: e.user_version, result: e.result };
            std::iter::once(own).chain(e.answered.iter().copied())
        });
        all.filter(|a| a.reqid.client.num != 0 || a.reqid.tid != 0).take(max).collect()
    }

    /// Forgets the oldest requests beyond `max`; returns the version below which nothing
    /// is needed on disk any more, when something was forgotten.
    pub fn trim_dups(&mut self, max: usize) -> Option<EVersion> {
        let mut up_to = None;
        while self.old.len() > max {
            let (version, reqid) = self.old.pop_front().expect("counted");
            if self.dups.get(&reqid).is_some_and(|d| d.version == version) {
                self.dups.remove(&reqid);
            }
            up_to = Some(version);
        }
        up_to
    }

    /// Number of requests remembered from below the tail.
    #[must_use]
    pub fn old_len(&self) -> usize {
        self.old.len()
    }

    /// Removes and returns the entries above `to`, newest first.
    pub fn rewind(&mut self, to: EVersion) -> Vec<PgLogEntry> {
        let mut gone = Vec::new();
        while let Some(e) = self.entries.back()
            && e.version > to
        {
            let e = self.entries.pop_back().expect("looked at");
            for reqid in e.answered.iter().map(|a| &a.reqid).chain([&e.reqid]) {
                if self.dups.get(reqid).is_some_and(|d| d.version == e.version) {
                    self.dups.remove(reqid);
                }
            }
            gone.push(e);
        }
        gone
    }

    /// Forgets everything; the log starts anew behind `tail`.
    pub fn reset(&mut self, tail: EVersion) {
        *self = Self { tail, ..Self::default() };
    }

    /// The largest version in the log, or its tail, that is not above `v`: from there on a
    /// copy that ends at `v` needs the log. `None` when `v` is below the tail.
    #[must_use]
    pub fn floor(&self, v: EVersion) -> Option<EVersion> {
        if v < self.tail {
            return None;
        }
        let n = self.entries.partition_point(|e| e.version <= v);
        Some(if n == 0 { self.tail } else { self.entries[n - 1].version })
    }

    /// Whether `v` is the tail or one of the entries.
    #[must_use]
    pub fn contains(&self, v: EVersion) -> bool {
        self.floor(v) == Some(v)
    }

    /// Encoded entries above `v`, oldest first.
    #[must_use]
    pub fn after(&self, v: EVersion) -> Vec<Bytes> {
        let n = self.entries.partition_point(|e| e.version <= v);
        self.entries.iter().skip(n).map(Denc::to_bytes).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{EntityId, EntityKind};

    fn entry(v: u64) -> PgLogEntry {
        let client = EntityId::new(EntityKind::CLIENT, 4100);
        PgLogEntry {
            version: EVersion::new(3, v),
            reqid: ReqId { client, tid: v, inc: 0 },
            user_version: v,
            ..PgLogEntry::default()
        }
    }

    /// Trimmed entries are still recognised until they are too many.
    #[test]
    fn remembers_beyond_the_tail() {
        let mut log = PgLog::default();
        (1..=10).for_each(|v| log.push(entry(v)));
        log.trim(EVersion::new(3, 6));
        assert_eq!((log.entries.len(), log.tail), (4, EVersion::new(3, 6)));
        assert_eq!(log.dup(&entry(2).reqid).unwrap().user_version, 2);
        assert_eq!(log.trim_dups(3), Some(EVersion::new(3, 3)));
        assert!(log.dup(&entry(3).reqid).is_none() && log.dup(&entry(4).reqid).is_some());
        assert_eq!(log.floor(EVersion::new(3, 8)), Some(EVersion::new(3, 8)));
        assert_eq!(log.floor(EVersion::new(9, 1)), Some(EVersion::new(3, 10)));
        assert_eq!(log.floor(EVersion::new(3, 5)), None);
        let gone = log.rewind(EVersion::new(3, 8));
        assert_eq!(gone.iter().map(|e| e.version.version).collect::<Vec<_>>(), [10, 9]);
        assert!(log.dup(&entry(9).reqid).is_none());
    }

    /// Keys sort as versions do.
    #[test]
    fn keys_are_ordered() {
        let v = [EVersion::new(1, 300), EVersion::new(2, 4), EVersion::new(2, 260)];
        assert!(v.windows(2).all(|w| log_key(w[0]) < log_key(w[1])));
    }
}
