//! Reading from an open store.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use types::HObject;

use crate::fetch::{Found, Summed, Way};
use crate::keys;
use crate::onode::BLOCK;
use crate::{Coll, Fetch, FetchId, Listing, Stat, StatFs, Store, StoreError};

type Result<T> = std::result::Result<T, StoreError>;

impl Store {
    /// All collections, in order.
    #[must_use]
    pub fn list_collections(&self) -> Vec<Coll> {
        self.state.colls.keys().copied().collect()
    }

    /// Whether the collection exists.
    #[must_use]
    pub fn collection_exists(&self, c: impl Into<Coll>) -> bool {
        self.state.colls.contains_key(&c.into())
    }

    /// Whether the object exists; not so when its collection does not.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`], [`StoreError::Io`]; so all reads below.
    pub fn exists(&self, c: impl Into<Coll>, o: &HObject) -> Result<bool> {
        match self.state.coll(c.into()) {
            Ok(id) => Ok(self.state.onode(&keys::onode(id, o))?.is_some()),
            Err(_) => Ok(false),
        }
    }

    /// Size and space.
    ///
    /// # Errors
    /// [`StoreError::NoObject`], [`StoreError::NoCollection`]; so all reads of objects.
    pub fn stat(&self, c: impl Into<Coll>, o: &HObject) -> Result<Stat> {
        let o = self.state.object(c.into(), o)?;
        Ok(Stat { size: o.size, allocated: o.allocated() })
    }

    /// Data from `off`, at most `len` bytes, less where the object ends. Holes are zeros.
    /// What is asked for and lies before the end may be 1 GiB.
    ///
    /// # Errors
    /// As [`Store::stat`].
    pub fn read(&self, c: impl Into<Coll>, o: &HObject, off: u64, len: u64) -> Result<Bytes> {
        let c = c.into();
        let onode = self.state.object(c, o)?;
        self.state.read_data(&onode, &|| format!("{c} {o}"), off, len)
    }

    /// As [`Store::read`], but without waiting for the device: what is not in memory is read
    /// meanwhile, from [`Store::kick_reads`] on at the latest, and [`Store::fetched`] gives it after a
    /// wake-up, or when one of [`Store::ring_fds`] is readable. It is the data of now, whatever is
    /// submitted meanwhile.
    ///
    /// # Errors
    /// As [`Store::stat`].
    pub fn fetch(&mut self, c: impl Into<Coll>, o: &HObject, off: u64, len: u64) -> Result<Fetch> {
        self.fetch_from(c.into(), o, (off, len), |way| way)
    }

    /// As [`Store::fetch`], for one who can wait better than others: large data is read in
    /// steps, between which the device serves those.
    ///
    /// # Errors
    /// As [`Store::stat`].
    pub fn fetch_gently(
        &mut self,
        c: impl Into<Coll>,
        o: &HObject,
        off: u64,
        len: u64,
    ) -> Result<Fetch> {
        let way = |way| if way == Way::Direct { Way::Gently } else { way };
        self.fetch_from(c.into(), o, (off, len), way)
    }

    /// As [`Store::fetch_gently`], past the page cache: what is on the device itself, verified.
    /// What is still on its way there is given as it is in memory.
    ///
    /// # Errors
    /// As [`Store::stat`].
    pub fn fetch_device(
        &mut self,
        c: impl Into<Coll>,
        o: &HObject,
        off: u64,
        len: u64,
    ) -> Result<Fetch> {
        self.fetch_from(c.into(), o, (off, len), |_| Way::Gently)
    }

    /// `way` gives how it is read from how it would be.
    fn fetch_from(
        &mut self,
        c: Coll,
        o: &HObject,
        (off, len): (u64, u64),
        way: impl Fn(Way) -> Way,
    ) -> Result<Fetch> {
        let onode = self.state.object(c, o)?;
        let mut plan = match self.state.look(&onode, off, len)? {
            Found::Here(data) => return Ok(Fetch::Ready(data)),
            Found::OnDevice(plan) => plan,
        };
        plan.way = way(plan.way);
        if plan.way == Way::Cached
            && let Some(data) = self.fetches.look_in_cache(&plan)
        {
            return Ok(Fetch::Ready(data));
        }
        if self.threads.is_none() {
            let (disk, pool) = (&*self.state.space.disk, &self.state.pool);
            return plan.run(disk, pool, &|| format!("{c} {o}")).map(Fetch::Ready);
        }
        self.fetches.begin(plan, (c, o.clone()), self.freed_runs).map(Fetch::Later)
    }

    /// A [`Store::fetch`] that is done; `None` when none is.
    pub fn fetched(&mut self) -> Option<(FetchId, Result<Bytes>)> {
        let (id, done) = self.fetched_with_sums()?;
        Some((id, done.map(|(data, _)| data)))
    }

    /// As [`Store::fetched`], with the sums of the data where it is large and whole blocks: those
    /// that it was verified by.
    pub fn fetched_with_sums(&mut self) -> Option<(FetchId, Result<Summed>)> {
        let (id, done) = self.fetches.next_done()?;
        self.stage_done(id, done.is_ok());
        Some((id, done))
    }

    /// Begins to read what was asked for by [`Store::fetch`]. To be called before the owner sleeps.
    pub fn kick_reads(&mut self) {
        self.fetches.kick();
    }

    /// Waits until a [`Store::fetch`] may be done; not at all where none is under way.
    pub fn wait_fetched(&mut self) {
        self.fetches.wait();
    }

    /// The parts of `off..off + len` that hold data, as `(offset, length)`, ascending and
    /// apart; what is between them reads as zeros.
    ///
    /// # Errors
    /// As [`Store::stat`].
    pub fn fiemap(
        &self,
        c: impl Into<Coll>,
        o: &HObject,
        off: u64,
        len: u64,
    ) -> Result<Vec<(u64, u64)>> {
        let o = self.state.object(c.into(), o)?;
        let end = off.saturating_add(len).min(o.size);
        Ok(if off < end { o.data_ranges(off, end) } else { Vec::new() })
    }

    /// Where on the device the object's data is, as `(offset, length)` in bytes: nothing of what
    /// is in the log or with the object's metadata. For who spoils it.
    ///
    /// # Errors
    /// As [`Store::stat`].
    pub fn device_ranges(&self, c: impl Into<Coll>, o: &HObject) -> Result<Vec<(u64, u64)>> {
        let o = self.state.object(c.into(), o)?;
        Ok(o.device_runs().map(|f| (f.phys * BLOCK, f.blocks * BLOCK)).collect())
    }

    /// One attribute.
    ///
    /// # Errors
    /// As [`Store::stat`].
    pub fn get_attr(&self, c: impl Into<Coll>, o: &HObject, name: &[u8]) -> Result<Option<Bytes>> {
        Ok(self.state.object(c.into(), o)?.attrs.get(name).cloned())
    }

    /// All attributes.
    ///
    /// # Errors
    /// As [`Store::stat`].
    pub fn get_attrs(&self, c: impl Into<Coll>, o: &HObject) -> Result<BTreeMap<Bytes, Bytes>> {
        Ok(self
            .state
            .object(c.into(), o)?
            .attrs
            .iter()
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect())
    }

    /// Bytes of all attributes, names and values, and 64 more for each: what they take in memory.
    /// At no cost, however many there are.
    ///
    /// # Errors
    /// As [`Store::stat`].
    pub fn attrs_bytes(&self, c: impl Into<Coll>, o: &HObject) -> Result<u64> {
        Ok(self.state.object(c.into(), o)?.attrs.bytes())
    }

    /// The omap header; empty when never set.
    ///
    /// # Errors
    /// As [`Store::stat`].
    pub fn omap_get_header(&self, c: impl Into<Coll>, o: &HObject) -> Result<Bytes> {
        let id = self.state.object(c.into(), o)?.omap;
        if id == 0 {
            return Ok(Bytes::new());
        }
        Ok(self.state.get(&keys::omap_header(id))?.unwrap_or_default())
    }

    /// Omap pairs in key order from `start`, at most `max`.
    ///
    /// # Errors
    /// As [`Store::stat`].
    pub fn omap_iter(
        &self,
        c: impl Into<Coll>,
        o: &HObject,
        start: Bound<&[u8]>,
        max: usize,
    ) -> Result<Vec<(Bytes, Bytes)>> {
        let mut out = Vec::new();
        if max > 0 {
            self.omap_walk(c, o, start, &mut |k, v| {
                out.push((Bytes::copy_from_slice(k), v.clone()));
                out.len() < max
            })?;
        }
        Ok(out)
    }

    /// Calls `f` with each omap pair from `start` on, in key order, until it says `false`.
    ///
    /// # Errors
    /// As [`Store::stat`].
    pub fn omap_walk(
        &self,
        c: impl Into<Coll>,
        o: &HObject,
        start: Bound<&[u8]>,
        f: &mut dyn FnMut(&[u8], &Bytes) -> bool,
    ) -> Result<()> {
        let id = self.state.object(c.into(), o)?.omap;
        if id == 0 {
            return Ok(());
        }
        let from = start.map(|k| keys::omap(id, k));
        let from = match &from {
            Bound::Included(k) => Bound::Included(&**k),
            Bound::Excluded(k) => Bound::Excluded(&**k),
            Bound::Unbounded => Bound::Included(&*keys::omap(id, b"")),
        };
        self.state.scan(from, &keys::omap_end(id), &mut |k, v| {
            v.is_none_or(|v| f(&k[keys::OMAP_PREFIX..], v))
        })
    }

    /// Those of `keys` that exist, with their values.
    ///
    /// # Errors
    /// As [`Store::stat`].
    pub fn omap_get_keys(
        &self,
        c: impl Into<Coll>,
        o: &HObject,
        keys: &[Bytes],
    ) -> Result<BTreeMap<Bytes, Bytes>> {
        let id = self.state.object(c.into(), o)?.omap;
        let mut out = BTreeMap::new();
        for key in keys {
            if id != 0
                && let Some(v) = self.state.get(&keys::omap(id, key))?
            {
                out.insert(key.clone(), v);
            }
        }
        Ok(out)
    }

    /// Objects in order from `from` (itself included), at most `max`.
    ///
    /// # Errors
    /// [`StoreError::NoCollection`].
    pub fn list(&self, c: impl Into<Coll>, from: &HObject, max: usize) -> Result<Listing> {
        let id = self.state.coll(c.into())?;
        let (start, end) = (keys::onode(id, from), keys::coll_end(keys::ONODE, id));
        let (mut objects, mut next) = (Vec::new(), HObject::max());
        let mut broken = false;
        self.state.scan_keys(Bound::Included(&start), &end, &mut |k| {
            let Some(o) = keys::parse_onode(k) else {
                broken = true;
                return false;
            };
            if objects.len() == max {
                next = o;
                return false;
            }
            objects.push(o);
            true
        })?;
        if broken {
            return Err(StoreError::Format("a key of an object is malformed".into()));
        }
        Ok(Listing { objects, next })
    }

    /// One key of the collection.
    ///
    /// # Errors
    /// [`StoreError::NoCollection`].
    pub fn coll_get(&self, c: impl Into<Coll>, key: &[u8]) -> Result<Option<Bytes>> {
        self.state.get(&keys::coll_key(self.state.coll(c.into())?, key))
    }

    /// Pairs of the collection in key order from `start`, at most `max`.
    ///
    /// # Errors
    /// [`StoreError::NoCollection`].
    pub fn coll_iter(
        &self,
        c: impl Into<Coll>,
        start: Bound<&[u8]>,
        max: usize,
    ) -> Result<Vec<(Bytes, Bytes)>> {
        let mut out = Vec::new();
        if max > 0 {
            self.coll_walk(c, start, Bound::Unbounded, &mut |k, v| {
                out.push((Bytes::copy_from_slice(k), v.clone()));
                out.len() < max
            })?;
        }
        Ok(out)
    }

    /// Calls `f` with each pair of the collection from `start` to `end`, in key order, until
    /// it says `false`.
    ///
    /// # Errors
    /// [`StoreError::NoCollection`].
    pub fn coll_walk(
        &self,
        c: impl Into<Coll>,
        start: Bound<&[u8]>,
        end: Bound<&[u8]>,
        f: &mut dyn FnMut(&[u8], &Bytes) -> bool,
    ) -> Result<()> {
        let id = self.state.coll(c.into())?;
        let from = start.map(|k| keys::coll_key(id, k));
        let from = match &from {
            Bound::Included(k) => Bound::Included(&**k),
            Bound::Excluded(k) => Bound::Excluded(&**k),
            Bound::Unbounded => Bound::Included(&*keys::coll_key(id, b"")),
        };
        let end = match end {
            Bound::Excluded(k) => keys::coll_key(id, k),
            // The next key in order is the same with a zero byte behind it.
            Bound::Included(k) => [&*keys::coll_key(id, k), &[0]].concat().into(),
            Bound::Unbounded => keys::coll_end(keys::COLL_KEY, id),
        };
        self.state.scan(from, &end, &mut |k, v| v.is_none_or(|v| f(&k[keys::COLL_PREFIX..], v)))
    }

    /// Bytes of the device, and those that transactions may still use, as
    /// [`Store::statfs`] has them. Cheap.
    #[must_use]
    pub fn room(&self) -> (u64, u64) {
        let available = self.state.available(self.soon_free(), self.merge_blocks());
        (self.superblock.size, available)
    }

    /// What is used and what is left.
    #[must_use]
    pub fn statfs(&self) -> StatFs {
        let state = &self.state;
        let alloc = state.space.alloc.lock().expect("no holder of this lock panics");
        let free = (alloc.free() + self.soon_free()) * BLOCK;
        drop(alloc);
        let (total, available) = self.room();
        let tables: u64 = state.tables.iter().map(|t| t.bytes()).sum();
        let omap = state.tables.iter().map(|t| t.meta.omap_bytes).sum();
        let (mut stored, mut allocated) = (0, 0);
        for pool in state.pools.values() {
            stored += pool.stored;
            allocated += pool.allocated;
        }
        StatFs {
            total,
            used: total - free,
            available,
            stored,
            allocated,
            omap,
            internal: self.superblock.first_block() * BLOCK + tables,
            pools: state.pools.clone(),
        }
    }
}
