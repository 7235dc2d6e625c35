//! Metadata that is kept between requests: users, keys, entry points and instances of buckets.
//!
//! ```text
//!   off ── all `notify.N` are watched ──> on: what is read is kept
//!    ^                                     │ told of a change (any gateway, radosgw-admin): forgotten before the teller
//!    └── a watch is lost or silent ────────┘ goes on
//! ```
//!
//! Invariants: nothing is answered from here unless every watch was heard of within [`HEARD_MAX_S`]; what was read before a
//! change was told is never kept; objects that are missing are not remembered. Upstream tells of a removal *before* it,
//! so that such an object is not kept for a minute; we tell behind, and say so in the offset, which upstream does not use. Bounded in entries and bytes.
//!
//! Source: `svc_sys_obj_cache.cc`, `svc_notify.cc`, `rgw_cache.h`; `RGWCacheNotifyInfo`.

use std::cell::RefCell;
use std::collections::BTreeMap;

use cls::client::version;
use types::{Bytes, DecodeError, Denc, Features, Reader, UTime, Writer};

use crate::formats::Pool;
use crate::meta::Attrs;
use crate::names::linux_hash;
use crate::objects::Place;

/// Objects by which gateways tell one another of changes: `rgw_num_control_oids`.
pub const NOTIFY_OBJECTS: u32 = 8;
/// How long ago each watch was heard of at most, seconds.
pub const HEARD_MAX_S: u32 = 5;
/// How long an entry is kept: `rgw_cache_expiry_interval`.
const KEPT_S: u32 = 900;
/// Entries: `rgw_cache_lru_size`.
const ENTRIES_MAX: usize = 25_000;
/// Bytes of all entries.
const BYTES_MAX: usize = 64 << 20;
/// Bytes of one entry; a larger one is read each time.
const ENTRY_BYTES_MAX: usize = 1 << 20;
/// How long an object is not kept whose removal was announced, seconds.
const REMOVAL_S: u32 = 60;
/// Changes that are remembered, so that nothing read before them is kept.
const CHANGES_MAX: usize = 4_096;

/// `UPDATE_OBJ`.
const UPDATE: u32 = 0;
/// `INVALIDATE_OBJ`: the object is about to be removed, or changed.
const REMOVE: u32 = 1;
/// In the offset, of ours alone: the change is made.
const DONE: i64 = 1;

/// A metadata object as it was read.
#[derive(Clone, Debug)]
pub(crate) struct Raw {
    pub data: Bytes,
    pub attrs: Attrs,
    pub version: version::Version,
}

impl Raw {
    fn bytes(&self) -> usize {
        let attrs = self.attrs.iter().map(|(name, value)| name.len() + value.len() + 64);
        self.data.len() + attrs.sum::<usize>() + 256
    }
}

struct Entry {
    raw: Raw,
    until_s: u32,
    used: u64,
}

/// A change that was told, or made here.
struct Change {
    n: u64,
    /// Until when the object is not kept at all.
    until_s: u32,
}

/// What is kept.
#[derive(Default)]
pub struct Cache(RefCell<State>);

#[derive(Default)]
struct State {
    entries: BTreeMap<String, Entry>,
    /// Keys by when they were last used.
    order: BTreeMap<u64, String>,
    bytes: usize,
    /// Counts uses and changes.
    count: u64,
    changes: BTreeMap<String, Change>,
    /// What was read before this count is not kept.
    void_before: u64,
    /// When each watch was last heard of, seconds; 0 for never.
    heard_s: [u32; NOTIFY_OBJECTS as usize],
}

fn key(pool: &Pool, name: &str) -> String {
    format!("{}+{}+{name}", pool.name, pool.ns)
}

impl State {
    fn count(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    fn is_on(&self, now_s: u32) -> bool {
        self.heard_s.iter().all(|heard| now_s.abs_diff(*heard) <= HEARD_MAX_S)
    }

    fn drop_entry(&mut self, key: &str) {
        if let Some(entry) = self.entries.remove(key) {
            self.bytes -= entry.raw.bytes() + key.len();
            self.order.remove(&entry.used);
        }
    }

    fn clear(&mut self) {
        self.entries.clear();
        self.order.clear();
        self.changes.clear();
        self.bytes = 0;
        self.void_before = self.count();
    }

    fn change(&mut self, key: String, until_s: u32, now_s: u32) {
        self.drop_entry(&key);
        if self.changes.len() >= CHANGES_MAX {
            // Those of removals are kept: their objects may be there still.
            self.changes.retain(|_, change| change.until_s > now_s);
            self.void_before = self.count();
            if self.changes.len() >= CHANGES_MAX {
                // So many removals at once: their watches count as not heard of, which begins anew.
                self.heard_s = [0; NOTIFY_OBJECTS as usize];
                self.clear();
            }
        }
        let n = self.count();
        let before = self.changes.get(&key).map_or(0, |change| change.until_s);
        self.changes.insert(key, Change { n, until_s: until_s.max(before) });
    }
}

impl Cache {
    /// A watch of `notify.N` is in place, as its OSD said just now.
    pub fn hears(&self, n: u32, now: UTime) {
        self.0.borrow_mut().heard_s[n as usize] = now.sec;
    }

    /// A watch is lost: what was told since is not known.
    pub fn lost(&self, n: u32) {
        let mut state = self.0.borrow_mut();
        state.heard_s[n as usize] = 0;
        state.clear();
    }

    /// Takes what a gateway or radosgw-admin told.
    ///
    /// # Errors
    /// Where it cannot be read: it may be about anything, and all is forgotten.
    pub fn told(&self, payload: &Bytes, domain_root: &Pool, now: UTime) -> Result<(), DecodeError> {
        let mut state = self.0.borrow_mut();
        match read_change(payload) {
            Ok((is_done, pool, name)) => {
                let key = match name.as_str() {
                    // An object of the pool of buckets, by the name that stands for the pool's.
                    "" => key(domain_root, &pool.name),
                    name => key(&pool, name),
                };
                let until_s = if is_done { 0 } else { now.sec.saturating_add(REMOVAL_S) };
                state.change(key, until_s, now.sec);
                Ok(())
            }
            Err(error) => {
                state.clear();
                Err(error)
            }
        }
    }

    /// Forgets an object that was changed here.
    pub(crate) fn forget(&self, at: &Place, now: UTime) {
        self.0.borrow_mut().change(key(&at.pool, &at.name), 0, now.sec);
    }

    /// What is kept of an object.
    pub(crate) fn get(&self, at: &Place, now: UTime) -> Option<Raw> {
        let mut state = self.0.borrow_mut();
        if !state.is_on(now.sec) {
            return None;
        }
        let key = key(&at.pool, &at.name);
        let used = state.count();
        let entry = state.entries.get_mut(&key)?;
        if entry.until_s <= now.sec {
            state.drop_entry(&key);
            return None;
        }
        let before = std::mem::replace(&mut entry.used, used);
        let raw = entry.raw.clone();
        state.order.remove(&before);
        state.order.insert(used, key);
        Some(raw)
    }

    /// Before an object is read: what [`Cache::put`] wants.
    pub(crate) fn begin(&self) -> u64 {
        self.0.borrow_mut().count()
    }

    /// Keeps what was read since `begun`, unless a change was told meanwhile.
    pub(crate) fn put(&self, at: &Place, raw: &Raw, begun: u64, now: UTime) {
        let mut state = self.0.borrow_mut();
        let key = key(&at.pool, &at.name);
        let is_old = begun <= state.void_before
            || state.changes.get(&key).is_some_and(|c| c.n > begun || c.until_s > now.sec);
        let bytes = raw.bytes() + key.len();
        if is_old || bytes > ENTRY_BYTES_MAX || !state.is_on(now.sec) {
            return;
        }
        state.drop_entry(&key);
        let used = state.count();
        let until_s = now.sec.saturating_add(KEPT_S);
        state.entries.insert(key.clone(), Entry { raw: raw.clone(), until_s, used });
        state.order.insert(used, key);
        state.bytes += bytes;
        while state.entries.len() > ENTRIES_MAX || state.bytes > BYTES_MAX {
            let Some((_, oldest)) = state.order.pop_first() else { return };
            state.drop_entry(&oldest);
        }
    }
}

/// The object by which a change of a metadata object is told.
pub(crate) fn notify_object(at: &Place) -> String {
    let n = linux_hash(key(&at.pool, &at.name).as_bytes()) % NOTIFY_OBJECTS;
    format!("notify.{n}")
}

/// `RGWCacheNotifyInfo`, `ENCODE_START(2, 2)`, that has others forget an object.
pub(crate) fn change_bytes(at: &Place) -> Bytes {
    removal_bytes(at, DONE)
}

fn removal_bytes(at: &Place, offset: i64) -> Bytes {
    let mut w = Writer::new(Features::ALL);
    w.framed(2, 2, |w| {
        w.u32(REMOVE);
        w.framed(6, 6, |w| {
            at.pool.encode(w);
            w.str(&at.name);
            w.str("");
        });
        w.framed(5, 3, |w| {
            w.i32(0);
            w.u32(0);
            w.u32(0); // data
            w.u32(0); // attributes
            w.framed(2, 2, |w| {
                w.u64(0);
                UTime::ZERO.encode(w);
            });
            w.u32(0); // attributes that went
            w.u64(0);
            version::Version::default().encode(w);
        });
        w.i64(offset);
        w.str("");
    });
    w.finish()
}

/// What is told: whether it is done, pool, object. What the object became is not looked at: it is read when it is wanted.
fn read_change(payload: &Bytes) -> Result<(bool, Pool, String), DecodeError> {
    let mut r = Reader::shared(payload);
    r.framed("RGWCacheNotifyInfo", 2, |r, _| {
        let op = r.u32()?;
        r.require(op <= REMOVE, "a change is an update or a removal")?;
        let (pool, name) = r.framed("rgw_raw_obj", 6, |r, v| {
            r.require(v >= 6, "names of raw objects are read from version 6 on")?;
            let (pool, name) = (Pool::decode(r)?, r.string()?);
            let _locator = r.string()?;
            Ok((pool, name))
        })?;
        r.framed("ObjectCacheInfo", 5, |_, _| Ok(()))?;
        let offset = r.i64()?;
        Ok((op == UPDATE || offset == DONE, pool, name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(n: u32) -> UTime {
        UTime { sec: 1_000 + n, nsec: 0 }
    }

    fn place(name: &str) -> Place {
        Place::new(&Pool::parse("meta:root"), name)
    }

    fn raw(text: &str) -> Raw {
        let version = version::Version::default();
        Raw { data: Bytes::from(text.to_owned()), attrs: Attrs::new(), version }
    }

    fn on(now: UTime) -> Cache {
        let cache = Cache::default();
        (0..NOTIFY_OBJECTS).for_each(|n| cache.hears(n, now));
        cache
    }

    fn kept(cache: &Cache, name: &str, now: UTime) -> Option<Bytes> {
        cache.get(&place(name), now).map(|raw| raw.data)
    }

    #[test]
    fn only_while_all_watches_hold() {
        let cache = Cache::default();
        cache.put(&place("a"), &raw("1"), cache.begin(), at(0));
        assert_eq!(kept(&cache, "a", at(0)), None);
        let cache = on(at(0));
        cache.put(&place("a"), &raw("1"), cache.begin(), at(0));
        assert!(kept(&cache, "a", at(HEARD_MAX_S)).is_some());
        assert_eq!(kept(&cache, "a", at(HEARD_MAX_S + 1)), None, "it may have missed a change");
        let begun = cache.begin();
        cache.lost(3);
        cache.hears(3, at(1));
        assert_eq!(kept(&cache, "a", at(1)), None);
        cache.put(&place("a"), &raw("1"), begun, at(1));
        assert_eq!(kept(&cache, "a", at(1)), None, "it was read before the watch was lost");
    }

    #[test]
    fn what_was_read_before_a_change_is_not_kept() {
        let cache = on(at(0));
        let begun = cache.begin();
        cache.forget(&place("a"), at(0));
        cache.put(&place("a"), &raw("old"), begun, at(0));
        assert_eq!(kept(&cache, "a", at(0)), None);
        cache.put(&place("a"), &raw("new"), cache.begin(), at(0));
        assert!(kept(&cache, "a", at(0)).is_some());
        // One that is about to be removed can be read still.
        cache.told(&removal_bytes(&place("a"), 0), &Pool::default(), at(1)).unwrap();
        assert_eq!(kept(&cache, "a", at(1)), None);
        cache.put(&place("a"), &raw("doomed"), cache.begin(), at(1));
        assert_eq!(kept(&cache, "a", at(1)), None);
        let later = at(1 + REMOVAL_S);
        (0..NOTIFY_OBJECTS).for_each(|n| cache.hears(n, later));
        cache.put(&place("a"), &raw("made anew"), cache.begin(), later);
        assert!(kept(&cache, "a", later).is_some());
        cache.told(&Bytes::from_static(b"\x02\x02\x00"), &Pool::default(), later).unwrap_err();
        assert_eq!(kept(&cache, "a", later), None, "it may be about anything");
    }

    #[test]
    fn bounds() {
        let cache = on(at(0));
        let large = raw(&"x".repeat(ENTRY_BYTES_MAX / 2));
        for n in 0..200 {
            cache.put(&place(&n.to_string()), &large, cache.begin(), at(0));
            assert!(kept(&cache, "0", at(0)).is_some(), "it is used: {n}");
        }
        assert!(cache.0.borrow().bytes <= BYTES_MAX && kept(&cache, "1", at(0)).is_none());
        assert_eq!(cache.0.borrow().entries.len(), cache.0.borrow().order.len());
        cache.put(&place("huge"), &raw(&"x".repeat(ENTRY_BYTES_MAX)), cache.begin(), at(0));
        assert_eq!(kept(&cache, "huge", at(0)), None);
        let begun = cache.begin();
        for n in 0..3 * CHANGES_MAX {
            cache.forget(&place(&format!("change {n}")), at(0));
        }
        assert!(cache.0.borrow().changes.len() <= CHANGES_MAX);
        cache.put(&place("change 0"), &raw("old"), begun, at(0));
        assert_eq!(kept(&cache, "change 0", at(0)), None, "its change is forgotten, and counts");
        for n in 0..=CHANGES_MAX {
            let change = removal_bytes(&place(&format!("gone {n}")), 0);
            cache.told(&change, &Pool::default(), at(0)).unwrap();
        }
        assert_eq!(kept(&cache, "0", at(0)), None, "more removals than can be remembered");
        let expired = on(at(0));
        expired.put(&place("a"), &raw("1"), expired.begin(), at(0));
        (0..NOTIFY_OBJECTS).for_each(|n| expired.hears(n, at(KEPT_S)));
        assert_eq!(kept(&expired, "a", at(KEPT_S)), None);
    }
}
