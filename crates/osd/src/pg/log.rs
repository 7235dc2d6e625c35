//! The PG log: the newest writes in order, and what their resends are told.
//!
//! On disk each entry is one key of the PG's collection, ordered as versions are. Entries
//! below the tail stay there for a while: they recognise resends (`dups`) and cost nothing
//! to keep, for they are removed many at a time. A copy that began anew has them without their
//! objects but for the hash, many in one entry.
//!
//! Both are bounded by number and by bytes. What [`PgLog::plan_trim`] gives is never above what
//! is durable on all acting copies.
//!
//! Source: the peer's `PGLog`, `pg_log_dup_t`; the form on disk is ours.

use std::cmp::Reverse;
use std::collections::VecDeque;

use bytes::Bytes;
use denc::{Denc, Features, Writer};
use messages::{Answered, LogKind, PgLogEntry};
use stdx::FastMap;
use types::{EVersion, HObject, ReqId};

/// Prefix of log keys.
const LOG: u8 = b'l';
/// So many entries are kept, whatever they take.
const ENTRIES_MIN: usize = 16;
/// So many requests are remembered beyond the log, whatever they take, where so many are wanted.
const DUPS_MIN: usize = 256;

/// What a log may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Entries.
    pub entries: usize,
    /// Requests remembered from below the tail.
    pub dups: usize,
    /// Bytes of the entries; and as many of what requests are remembered by.
    pub bytes: usize,
}

/// So many requests one entry tells a copy of that begins anew.
const TOLD_AT_ONCE: usize = 64;

/// Requests of which one entry will tell.
#[derive(Default)]
struct Told<'a> {
    /// The newest one's.
    version: EVersion,
    /// One with outputs, the last.
    own: Option<(ReqId, &'a Dup)>,
    answered: Vec<Answered>,
}

impl<'a> Told<'a> {
    fn add(&mut self, reqid: ReqId, dup: &'a Dup) {
        self.version = dup.version;
        if !dup.returns.is_empty() && self.own.is_none() {
            self.own = Some((reqid, dup));
            return;
        }
        self.answered.push(dup.answered(reqid));
    }

    fn entry(self) -> PgLogEntry {
        let newest = self.answered.iter().map(|a| a.user_version).max().unwrap_or_default();
        let (reqid, user_version, result, returns) = match self.own {
            Some((reqid, dup)) => (reqid, dup.user_version, dup.result, dup.returns.clone()),
            None => (ReqId::default(), newest, 0, Vec::new()),
        };
        let hash = self.own.map_or(0, |(_, dup)| dup.hash);
        PgLogEntry {
            version: self.version,
            kind: LogKind::Error,
            oid: HObject { hash, ..HObject::default() },
            reqid,
            user_version,
            result,
            returns,
            answered: self.answered,
            ..PgLogEntry::default()
        }
    }
}

/// Encodes entries, thousands of them, in one piece of memory of about `bytes`.
pub(crate) fn encode_all<'a>(
    entries: impl IntoIterator<Item = &'a PgLogEntry>,
    bytes: usize,
) -> Vec<Bytes> {
    let mut w = Writer::with_capacity(Features::ALL, bytes.min(4 << 20));
    let ends = entries.into_iter().map(|e| {
        e.encode(&mut w);
        w.len()
    });
    let ends: Vec<usize> = ends.collect();
    let (all, mut from) = (w.finish(), 0);
    ends.into_iter().map(|end| all.slice(std::mem::replace(&mut from, end)..end)).collect()
}

/// Whether it is time to trim: many at a time, so that not every write has to.
fn is_beyond(is: usize, bound: usize) -> bool {
    is > bound.saturating_add(bound / 8)
}

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
    /// The object's hash; 0 where that is not known.
    pub hash: u32,
    /// Results and outputs, for those that wanted them.
    pub returns: Vec<(i32, Bytes)>,
}

impl Dup {
    fn answered(&self, reqid: ReqId) -> Answered {
        let &Self { user_version, result, hash, .. } = self;
        Answered { reqid, user_version, result, hash }
    }
}

/// The log of one copy.
#[derive(Clone, Debug, Default)]
pub struct PgLog {
    /// Oldest first; all above `tail`.
    pub entries: VecDeque<PgLogEntry>,
    /// Entries up to here are not in `entries`.
    pub tail: EVersion,
    /// By request: of all entries and of older ones.
    dups: FastMap<ReqId, Dup>,
    /// Bytes of `entries`.
    bytes: usize,
    /// Which `dups` are older than the tail, oldest first, and bytes of what is on disk for them.
    old: VecDeque<(EVersion, ReqId, usize)>,
    /// Bytes on disk for `old`.
    old_bytes: usize,
    /// Entries that `old` is of. What a promoted object was asked before it came counts with the
    /// entry that tells of it, or few such would displace all others.
    old_entries: usize,
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
        self.bytes += entry.bytes();
        self.entries.push_back(entry);
    }

    fn remember(&mut self, e: &PgLogEntry) {
        for a in &e.answered {
            let dup = Dup {
                version: e.version,
                user_version: a.user_version,
                result: a.result,
                hash: if e.is_of_requests() { a.hash } else { e.oid.hash },
                returns: Vec::new(),
            };
            self.dups.entry(a.reqid).or_insert(dup);
        }
        if e.reqid.client.num == 0 && e.reqid.tid == 0 {
            return; // the OSD's own
        }
        let dup = Dup {
            version: e.version,
            user_version: e.user_version,
            result: e.result,
            hash: e.oid.hash,
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
            self.bytes -= e.bytes();
            self.outlive(&e);
        }
    }

    /// Up to where to trim for `bound`, when it is time; else the tail. Nothing above `upto`
    /// goes, and the newest entries stay even if they are larger than the bound.
    #[must_use]
    pub fn plan_trim(&self, bound: Bound, upto: EVersion) -> EVersion {
        let len = self.entries.len();
        let many = len >= bound.entries + bound.entries / 8 + ENTRIES_MIN;
        let large = len > ENTRIES_MIN && is_beyond(self.bytes, bound.bytes);
        if !many && !large {
            return self.tail;
        }
        let (mut to, mut bytes) = (self.tail, self.bytes);
        for (n, e) in self.entries.iter().enumerate().take(len - ENTRIES_MIN.min(len)) {
            let fits = len - n <= bound.entries && bytes <= bound.bytes;
            if fits || e.version > upto {
                break;
            }
            (to, bytes) = (e.version, bytes - e.bytes());
        }
        to
    }

    /// The entry's requests are still recognised for a while.
    fn outlive(&mut self, e: &PgLogEntry) {
        let bytes = e.bytes();
        self.old_bytes += bytes;
        self.old_entries += 1;
        self.old.extend(e.answered.iter().map(|a| (e.version, a.reqid, 0)));
        self.old.push_back((e.version, e.reqid, bytes));
    }

    /// Requests that changed the object, or another with its hash, and what they were told: of all
    /// that are remembered, whatever the copy they come from; the newest `max`.
    #[must_use]
    pub fn answered(&self, oid: &HObject, max: usize) -> Vec<Answered> {
        let mut of: Vec<_> = self.dups.iter().filter(|(_, dup)| dup.hash == oid.hash).collect();
        of.sort_unstable_by_key(|(reqid, dup)| (Reverse(dup.version), **reqid));
        of.into_iter().take(max).map(|(reqid, dup)| dup.answered(*reqid)).collect()
    }

    /// Forgets the oldest requests beyond `bound`, when it is time; returns the versions of the
    /// entries that are not needed on disk any more, oldest first.
    pub fn trim_dups(&mut self, bound: Bound) -> Vec<EVersion> {
        let least = bound.dups.min(DUPS_MIN);
        let many = self.old_entries > bound.dups + bound.dups / 8 + ENTRIES_MIN;
        let large =
            self.old_entries > least + ENTRIES_MIN && is_beyond(self.old_bytes, bound.bytes);
        let mut gone = Vec::new();
        if !many && !large {
            return gone;
        }
        while let Some(&(version, reqid, bytes)) = self.old.front() {
            let fits = self.old_entries <= bound.dups && self.old_bytes <= bound.bytes;
            // An entry goes with all its requests.
            if gone.last() != Some(&version) {
                if fits || self.old_entries <= least {
                    break;
                }
                gone.push(version);
            }
            self.old.pop_front();
            self.old_bytes -= bytes;
            self.old_entries -= usize::from(bytes > 0); // the entry itself is its last
            if self.dups.get(&reqid).is_some_and(|d| d.version == version) {
                self.dups.remove(&reqid);
            }
        }
        gone
    }

    /// Bytes of the entries, and of what is on disk of requests from below the tail.
    #[must_use]
    pub fn bytes(&self) -> (usize, usize) {
        (self.bytes, self.old_bytes)
    }

    /// What it holds in memory: how many entries and requests, and their bytes.
    #[must_use]
    pub fn in_memory(&self) -> (usize, usize) {
        let dups = self.dups.len() * size_of::<(ReqId, Dup)>();
        let old = self.old.len() * size_of::<(EVersion, ReqId, usize)>();
        (self.entries.len() + self.dups.len(), self.bytes + dups + old)
    }

    /// The oldest entry from below the tail that requests are remembered by, and how many these
    /// are.
    #[must_use]
    pub fn oldest_old(&self) -> Option<(EVersion, usize)> {
        self.old.front().map(|(version, ..)| (*version, self.old_entries))
    }

    /// Where the tail is of a copy of this log with its newest `least` entries, and all above
    /// `upto`.
    #[must_use]
    pub fn shortened(&self, least: usize, upto: EVersion) -> EVersion {
        let safe = self.entries.partition_point(|e| e.version <= upto);
        let n = self.entries.len().saturating_sub(least).min(safe);
        n.checked_sub(1).map_or(self.tail, |n| self.entries[n].version)
    }

    /// The newest `max` requests at most up to `tail`, for a copy whose log begins there:
    /// in entries that tell of nothing else, oldest first, each of [`TOLD_AT_ONCE`] or so.
    #[must_use]
    pub fn requests_upto(&self, tail: EVersion, max: usize) -> Vec<PgLogEntry> {
        let upto = self.entries.partition_point(|e| e.version <= tail);
        let here = self.entries.range(..upto).rev().flat_map(|e| {
            std::iter::once(&e.reqid)
                .chain(e.answered.iter().rev().map(|a| &a.reqid))
                .map(|reqid| (e.version, reqid))
        });
        let below = self.old.iter().rev().map(|(version, reqid, _)| (*version, reqid));
        let known = |(version, reqid)| {
            let dup = self.dups.get(reqid).filter(|d| d.version == version)?;
            Some((*reqid, dup))
        };
        let mut newest: Vec<(ReqId, &Dup)> =
            here.chain(below).filter_map(known).take(max).collect();
        newest.reverse();
        let mut all = Vec::with_capacity(newest.len() / TOLD_AT_ONCE + 1);
        let mut told = Told::default();
        for (reqid, dup) in newest {
            // Those of one entry stay in one: versions rise.
            let next = dup.version > told.version;
            if next && (told.answered.len() >= TOLD_AT_ONCE || told.own.is_some()) {
                all.push(std::mem::take(&mut told).entry());
            }
            told.add(reqid, dup);
        }
        if told.version != EVersion::ZERO {
            all.push(told.entry());
        }
        all
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
            self.bytes -= e.bytes();
            for reqid in e.answered.iter().map(|a| &a.reqid).chain([&e.reqid]) {
                if self.dups.get(reqid).is_some_and(|d| d.version == e.version) {
                    self.dups.remove(reqid);
                }
            }
            gone.push(e);
        }
        gone
    }

    /// The log reaches back to `tail`: `below` are all entries from there to the tail it has, which
    /// another copy still had.
    pub fn reach_back(&mut self, tail: EVersion, below: &[PgLogEntry]) {
        while let Some(&(version, _, bytes)) = self.old.back()
            && version > tail
        {
            self.old.pop_back();
            self.old_bytes -= bytes;
            self.old_entries -= usize::from(bytes > 0);
        }
        for e in below.iter().rev() {
            self.remember(e);
            self.bytes += e.bytes();
            self.entries.push_front(e.clone());
        }
        self.tail = tail;
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
        encode_all(self.entries.iter().skip(n), self.bytes)
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
        assert!(log.trim_dups(Bound { dups: 0, ..LARGE }).is_empty(), "too few to be worth it");
        assert_eq!(log.floor(EVersion::new(3, 8)), Some(EVersion::new(3, 8)));
        assert_eq!(log.floor(EVersion::new(9, 1)), Some(EVersion::new(3, 10)));
        assert_eq!(log.floor(EVersion::new(3, 5)), None);
        let gone = log.rewind(EVersion::new(3, 8));
        assert_eq!(gone.iter().map(|e| e.version.version).collect::<Vec<_>>(), [10, 9]);
        assert!(log.dup(&entry(9).reqid).is_none());
    }

    const LARGE: Bound = Bound { entries: 1 << 20, dups: 1 << 20, bytes: 1 << 30 };

    fn versions(all: std::ops::RangeInclusive<u64>) -> Vec<EVersion> {
        all.map(|v| EVersion::new(3, v)).collect()
    }

    fn log(entries: u64) -> PgLog {
        let mut log = PgLog::default();
        (1..=entries).for_each(|v| log.push(entry(v)));
        log
    }

    /// Entries and requests beyond the bound by number go, many at a time.
    #[test]
    fn bounded_by_number() {
        let bound = Bound { entries: 40, dups: 20, ..LARGE };
        let mut log = log(60);
        assert_eq!(log.plan_trim(bound, EVersion::new(3, 60)), log.tail, "not yet");
        log.push(entry(61));
        let to = log.plan_trim(bound, EVersion::new(3, 61));
        assert_eq!(to, EVersion::new(3, 21));
        assert_eq!(log.plan_trim(bound, EVersion::new(3, 7)), EVersion::new(3, 7));
        log.trim(to);
        assert_eq!(log.trim_dups(bound), []);
        log.trim(EVersion::new(3, 40));
        assert_eq!((log.trim_dups(bound), log.old_len()), (versions(1..=20), 20));
        assert!(log.dup(&entry(20).reqid).is_none() && log.dup(&entry(21).reqid).is_some());
    }

    /// As much as fits is kept, and always some; what is not everywhere stays.
    #[test]
    fn bounded_by_bytes() {
        let each = entry(1).bytes();
        let bound = Bound { bytes: 100 * each, ..LARGE };
        let mut log = log(112);
        assert_eq!(log.bytes(), (112 * each, 0));
        let all = EVersion::new(9, 0);
        assert_eq!(log.plan_trim(bound, all), log.tail, "not yet");
        log.push(entry(113));
        assert_eq!(log.plan_trim(bound, EVersion::new(3, 4)), EVersion::new(3, 4));
        assert_eq!(log.plan_trim(bound, EVersion::ZERO), log.tail);
        log.trim(log.plan_trim(bound, all));
        assert_eq!((log.tail, log.bytes()), (EVersion::new(3, 13), (100 * each, 13 * each)));

        let mut big = entry(114);
        big.oid.name = vec![b'n'; 200 * each].into();
        log.push(big);
        log.trim(log.plan_trim(bound, all));
        assert_eq!(log.entries.len(), ENTRIES_MIN, "larger than the bound, and kept");

        (115..1_000).for_each(|v| log.push(entry(v)));
        log.trim(EVersion::new(3, 990));
        assert_eq!(log.bytes().0, 9 * each);
        let gone = log.trim_dups(bound);
        assert_eq!((gone, log.old_len()), (versions(1..=990 - DUPS_MIN as u64), DUPS_MIN));
        let bound = Bound { bytes: 400 * each, ..LARGE };
        (1_000..1_500).for_each(|v| log.push(entry(v)));
        log.trim(EVersion::new(3, 1_499));
        assert!(!log.trim_dups(bound).is_empty());
        assert_eq!((log.old_len(), log.bytes()), (400, (0, 400 * each)));
    }

    /// What promoted objects were asked elsewhere does not displace what was asked here.
    #[test]
    fn requests_from_elsewhere_do_not_count() {
        let mut log = PgLog::default();
        let from = |v: u64| EntityId::new(EntityKind::CLIENT, 9_000 + v as i64);
        for v in 1..=400u64 {
            let other = |tid| Answered {
                reqid: ReqId { client: from(v), tid, inc: 0 },
                ..Answered::default()
            };
            log.push(PgLogEntry { answered: (0..24).map(other).collect(), ..entry(v) });
        }
        log.trim(EVersion::new(3, 399));
        let bound = Bound { bytes: 0, ..LARGE };
        assert_eq!(log.trim_dups(bound), versions(1..=399 - DUPS_MIN as u64));
        assert!(log.dup(&entry(399 - DUPS_MIN as u64 + 1).reqid).is_some());
        assert_eq!(log.old_len(), DUPS_MIN * 25);
        log.reset(EVersion::ZERO);
        assert_eq!(log.in_memory(), (0, 0));
    }

    /// A copy that begins anew gets the newest entries, more where not all have them, and those
    /// below for as many requests as are wanted.
    #[test]
    fn shortened_for_a_new_copy() {
        let v = |n| EVersion::new(3, n);
        let mut log = log(60);
        assert_eq!(log.shortened(10, v(60)), v(50));
        assert_eq!(log.shortened(10, v(45)), v(45), "not all have 46");
        assert_eq!(log.shortened(10, EVersion::ZERO), EVersion::ZERO);
        assert_eq!(log.shortened(100, v(60)), EVersion::ZERO);
        log.trim(v(40));
        assert_eq!(log.shortened(10, v(60)), v(50));
        assert_eq!(log.oldest_old(), Some((v(1), 40)));
        assert_eq!(PgLog::default().oldest_old(), None);
    }

    /// A copy that begins anew recognises requests from here and from below the tail, as many as
    /// it is to, and answers them as this one does; it is told in few entries, and forgets them
    /// like others.
    #[test]
    fn requests_go_to_a_new_copy_together() {
        let v = |n| EVersion::new(3, n);
        let mut log = log(200);
        let of = |hash, e: PgLogEntry| PgLogEntry {
            oid: HObject { hash, name: Bytes::from_static(b"x"), ..HObject::default() },
            ..e
        };
        let mut wants = of(7, entry(201));
        wants.returns = vec![(-5, Bytes::from_static(b"out"))];
        log.push(wants.clone());
        // One that came from another tier, with what it was asked there.
        let there = |tid| ReqId { tid: 1_000 + tid, ..entry(1).reqid };
        let asked = |tid| Answered { reqid: there(tid), user_version: tid, result: -2, hash: 0 };
        log.push(of(7, PgLogEntry { answered: (0..70).map(asked).collect(), ..entry(202) }));
        log.push(PgLogEntry { reqid: ReqId::default(), ..entry(203) }); // the OSD's own
        (204..=300).for_each(|v| log.push(if v % 50 == 0 { of(9, entry(v)) } else { entry(v) }));
        log.trim(v(150));
        let told = log.requests_upto(v(290), usize::MAX);
        let versions: Vec<_> = told.iter().map(|e| e.version.version).collect();
        assert_eq!(versions, [64, 128, 192, 201, 202, 267, 290]);
        assert!(told.iter().all(PgLogEntry::is_of_requests));
        let mut copy = PgLog::default();
        copy.reset(v(290));
        let read_back = |e: PgLogEntry| PgLogEntry::from_bytes(&e.to_bytes()).unwrap();
        told.into_iter().for_each(|e| copy.load(read_back(e)));
        log.entries.iter().filter(|e| e.version > v(290)).for_each(|e| copy.push(e.clone()));
        // By their objects, too, newest first.
        for (hash, count, first) in [(7, 72, entry(202).reqid), (9, 2, entry(300).reqid)] {
            let told = |l: &PgLog| {
                let all = l.answered(&of(hash, entry(1)).oid, 1000);
                all.into_iter().map(|a| (a.reqid, a.result)).collect::<Vec<_>>()
            };
            assert_eq!((told(&log).len(), told(&log).contains(&(first, 0))), (count, true));
            let sorted = |mut all: Vec<_>| {
                all.sort_unstable();
                all
            };
            assert_eq!(sorted(told(&copy)), sorted(told(&log)), "{hash}");
        }
        assert_eq!(log.answered(&of(9, entry(1)).oid, 1)[0].reqid, entry(300).reqid);
        let both = |reqid: &ReqId| {
            let what = |l: &PgLog| {
                let d = l.dup(reqid).cloned()?;
                Some((d.user_version, d.result, d.returns))
            };
            assert_eq!(what(&copy), what(&log), "{reqid}");
            what(&copy).is_some()
        };
        assert!((1..=300).filter(|v| *v != 203).all(|v| both(&entry(v).reqid)));
        assert!((0..70).all(|tid| both(&there(tid))) && !both(&ReqId::default()));
        assert_eq!((copy.last_user(), copy.entries.len()), (300, 10));

        let few = log.requests_upto(v(290), 100);
        let known: usize = few.iter().map(|e| e.answered.len()).sum();
        assert_eq!((known, few[0].answered[0].reqid), (100, there(58)), "the newest");
        let none = Bound { entries: 0, dups: 0, bytes: 0 };
        copy.trim(v(300));
        copy.trim_dups(none);
        assert_eq!((copy.old_len(), copy.dup_count(), copy.bytes()), (0, 0, (0, 0)));
    }

    /// What goes takes its bytes along, whichever way it goes.
    #[test]
    fn bytes_are_those_of_what_is_there() {
        let mut log = log(20);
        log.trim(EVersion::new(3, 5));
        log.rewind(EVersion::new(3, 12));
        let sum = |l: &PgLog| l.entries.iter().map(PgLogEntry::bytes).sum::<usize>();
        assert_eq!(log.bytes(), (sum(&log), 5 * entry(1).bytes()));
        let mut loaded = PgLog { tail: EVersion::new(3, 8), ..PgLog::default() };
        (1..=10).for_each(|v| loaded.load(entry(v)));
        assert_eq!(loaded.bytes(), (sum(&loaded), 8 * entry(1).bytes()));
        log.reset(EVersion::ZERO);
        assert_eq!((log.bytes(), log.in_memory()), ((0, 0), (0, 0)));
    }

    /// Keys sort as versions do.
    #[test]
    fn keys_are_ordered() {
        let v = [EVersion::new(1, 300), EVersion::new(2, 4), EVersion::new(2, 260)];
        assert!(v.windows(2).all(|w| log_key(w[0]) < log_key(w[1])));
    }
}
