//! The real store under an OSD: `store::Store` without threads over a disk in memory that
//! loses power, behind the adapter that the daemon uses.
//!
//! The world says when it writes: a group of transactions is written when the OSD has done
//! with an event, and flushed an event later; another may be written meanwhile, as by the
//! store's second thread. Checkpoints and merges are made an event after they have become due.
//! What the power cut leaves is opened again, and checked (`fsck`) before the OSD starts on it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use env::Random;
use messages::ObjectChange;
use osd::memory::{Collection, Object};
use osd::{Coll, DataCache, ObjectStore, Space, StoreBacking, StoreError, StoreOp, backing};
use stdx::FastSet;
use store::{LogPlacement, MkfsOptions, OpenOptions, Seq, Store, Transaction};
use types::{HObject, OsdId, PgId, SpgId, Uuid};

use crate::disk::TornDisk;

/// Bytes of a disk.
const DISK: u64 = 96 << 20;
/// Bytes of its log.
pub(crate) const LOG: u64 = 4 << 20;
/// Objects listed at a time.
const PART: usize = 1_000;

/// What is drawn for each disk.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    /// Bytes of log from one checkpoint to the next.
    pub checkpoint_bytes: u64,
    /// The store tells its device what is free.
    pub discard: bool,
    /// Bytes of each of the store's caches of metadata.
    pub cache_bytes: u64,
}

impl Habits {
    /// Those of one disk.
    #[must_use]
    pub fn draw(chance: &mut dyn Random) -> Self {
        let mut of = |all: &[u64]| all[(chance.u64() % all.len() as u64) as usize];
        Self {
            checkpoint_bytes: of(&[16 << 10, 64 << 10, 64 << 10, 256 << 10]),
            discard: of(&[0, 0, 1]) == 1,
            cache_bytes: of(&[16 << 10, 1 << 20]),
        }
    }
}

struct Inner {
    disk: Arc<TornDisk>,
    habits: Habits,
    /// While the process runs.
    open: Option<StoreBacking>,
    cache: DataCache,
    /// Data that was asked for, with its number: it comes with the next poll.
    late: VecDeque<(u64, Result<Bytes, StoreError>)>,
    fetches: u64,
    /// Something was spoilt, and some object may not be readable since.
    suspect: bool,
    /// Something was spoilt at some time: what mended it may be lost with the power.
    spoilt: bool,
    /// Somebody else's data may be on the disk.
    crowded: bool,
    /// The last ticket that the OSD gave.
    ticket: u64,
    /// What collections held after this transaction.
    seen: (Seq, BTreeMap<Coll, Arc<Collection>>),
}

/// A store and its disk, shared with the world.
#[derive(Clone)]
pub struct RealStore(Arc<Mutex<Inner>>);

impl RealStore {
    /// An empty store on an empty disk.
    ///
    /// # Panics
    /// When none can be made.
    #[must_use]
    pub fn new(fsid: Uuid, osd: usize, osd_uuid: Uuid, habits: Habits) -> Self {
        let disk = Arc::new(TornDisk::new(DISK));
        let options = MkfsOptions {
            fsid,
            osd: OsdId(osd as i32),
            osd_uuid,
            size: DISK,
            log_bytes: LOG,
            log: LogPlacement::Device,
            log_path: None,
        };
        Store::mkfs_on(disk.clone(), &options).expect("an empty disk takes a store");
        disk.settle();
        Self(Arc::new(Mutex::new(Inner {
            disk,
            habits,
            open: None,
            cache: DataCache::new(0),
            late: VecDeque::new(),
            fetches: 0,
            suspect: false,
            spoilt: false,
            crowded: false,
            ticket: 0,
            seen: (0, BTreeMap::new()),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("nothing panics in here")
    }

    fn open<T>(&self, f: impl FnOnce(&StoreBacking) -> T) -> T {
        f(self.lock().open.as_ref().expect("the store is open"))
    }

    /// `None` while no process runs.
    fn store<T>(&self, f: impl FnOnce(&mut Store) -> T) -> Option<T> {
        self.lock().open.as_mut().map(|open| f(open.store_mut()))
    }

    /// The disk.
    #[must_use]
    pub fn disk(&self) -> Arc<TornDisk> {
        self.lock().disk.clone()
    }

    /// Opens what the disk holds.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn start(&self) -> Result<(), String> {
        let mut inner = self.lock();
        let habits = inner.habits;
        let options = OpenOptions {
            checkpoint_bytes: habits.checkpoint_bytes,
            onode_cache_bytes: habits.cache_bytes,
            table_cache_bytes: habits.cache_bytes,
            discard: habits.discard,
            io_uring: false,
            threads: false,
            ..OpenOptions::default()
        };
        let mut store = Store::open_on(inner.disk.clone(), options)
            .map_err(|e| format!("its store does not open: {e}"))?;
        let report = store.fsck(false).map_err(|e| format!("fsck: {e}"))?;
        if !report.errors.is_empty() {
            return Err(format!("fsck: {}", report.errors.join("; ")));
        }
        if !inner.crowded {
            remove_others(&mut store);
        }
        inner.cache = DataCache::new(256 << 10);
        let cache = inner.cache.clone();
        inner.open = Some(StoreBacking::new(store, cache));
        inner.seen = (0, BTreeMap::new());
        inner.ticket = 0;
        Ok(())
    }

    /// The process ends, and what was not flushed may be lost. Whether a checkpoint was under
    /// way, some of which may be there.
    pub fn crash(&self, chance: &mut dyn Random) -> bool {
        let mut inner = self.lock();
        let Inner { open, disk, late, suspect, spoilt, .. } = &mut *inner;
        *suspect |= *spoilt;
        let mut half = false;
        if let Some(open) = open
            && open.store().is_checkpoint_ready()
            && !chance.u64().is_multiple_of(4)
        {
            disk.aside();
            half = open.store_mut().step_checkpoint();
        }
        *open = None;
        late.clear();
        disk.cut(chance);
        half
    }

    /// Begins to write what was submitted. Whether there was anything, and room for it beside
    /// what is being written.
    pub fn begin_group(&self) -> bool {
        self.store(Store::begin_group).unwrap_or(false)
    }

    /// Groups that are being written.
    #[must_use]
    pub fn groups_begun(&self) -> usize {
        self.store(|s| s.groups_begun()).unwrap_or(0)
    }

    /// The disk has written a group.
    pub fn end_group(&self) {
        self.store(Store::end_group);
    }

    /// Whether data waits that was asked for.
    #[must_use]
    pub fn has_late(&self) -> bool {
        !self.lock().late.is_empty()
    }

    /// Whether a checkpoint or a merge is due.
    #[must_use]
    pub fn has_work_behind(&self) -> bool {
        self.store(|s| s.has_work_behind()).unwrap_or(false)
    }

    /// Makes one. What.
    pub fn work_behind(&self) -> &'static str {
        let what = |s: &mut Store| match () {
            () if s.step_checkpoint() => "writes a checkpoint",
            () if s.step_merge() => "merges tables",
            () => "has nothing to do",
        };
        self.store(what).unwrap_or("is closed")
    }

    /// Which PGs are led here: what is written to them is kept in memory.
    pub fn set_read_here(&self, pgs: FastSet<PgId>) {
        self.lock().cache.set_read_here(pgs);
    }

    /// Everything in order, data too; what is not.
    #[must_use]
    pub fn check(&self) -> Vec<String> {
        match self.store(|s| s.fsck(true)) {
            Some(Ok(report)) => report.errors,
            Some(Err(e)) => vec![e.to_string()],
            None => Vec::new(),
        }
    }

    /// Its collections.
    #[must_use]
    pub fn collections(&self) -> Vec<Coll> {
        self.lock().open.as_ref().map(ObjectStore::collections).unwrap_or_default()
    }

    /// A collection's objects; `None` when it is not there. What cannot be read is told by data
    /// that nobody writes.
    #[must_use]
    pub fn collection(&self, c: Coll) -> Option<Arc<Collection>> {
        let mut inner = self.lock();
        let Inner { open, seen, suspect, .. } = &mut *inner;
        let open = open.as_ref()?;
        let at = open.store().submitted();
        if seen.0 != at || *suspect {
            *seen = (at, BTreeMap::new());
        }
        if let Some(known) = seen.1.get(&c) {
            return Some(known.clone());
        }
        let mut all = Collection::default();
        for o in objects(open, c)? {
            let object = object(open, c, &o)
                .unwrap_or_else(|e| Object { data: e.0.as_bytes().into(), ..Object::default() });
            all.objects.insert(o, object);
        }
        let keys = open.store().coll_iter(c, Bound::Unbounded, usize::MAX);
        all.keys.extend(keys.unwrap_or_default());
        let all = Arc::new(all);
        seen.1.insert(c, all.clone());
        Some(all)
    }

    fn ranges(&self, c: Coll, o: &HObject) -> Vec<(u64, u64)> {
        self.store(|s| s.device_ranges(c, o).unwrap_or_default()).unwrap_or_default()
    }

    /// Whether an object has data in blocks of its own.
    #[must_use]
    pub fn has_blocks(&self, c: Coll, o: &HObject) -> bool {
        !self.ranges(c, o).is_empty()
    }

    /// A bit of an object's data flips on the disk, the one that `at` tells, or its block cannot
    /// be read any more. Whether something happened.
    #[must_use]
    pub fn spoil(&self, c: Coll, o: &HObject, at: u64) -> bool {
        let ranges = self.ranges(c, o);
        let mut inner = self.lock();
        let Inner { disk, suspect, spoilt: once, .. } = &mut *inner;
        let all: u64 = ranges.iter().map(|(_, len)| len).sum();
        let mut left = at % all.max(1);
        for (off, len) in ranges {
            if left < len {
                let spoilt = if at.is_multiple_of(3) {
                    disk.make_unreadable(off + left);
                    true
                } else {
                    disk.flip(off + left, at as u8)
                };
                *suspect |= spoilt;
                *once |= spoilt;
                return spoilt;
            }
            left -= len;
        }
        false
    }

    /// Objects whose data cannot be read.
    #[must_use]
    pub fn unreadable(&self) -> usize {
        let mut inner = self.lock();
        let Inner { open: Some(open), suspect, .. } = &mut *inner else { return 0 };
        if !*suspect {
            return 0;
        }
        let mut found = 0;
        for c in open.collections() {
            let all = objects(open, c).unwrap_or_default();
            found += all.iter().filter(|o| data(open, c, o).is_err()).count();
        }
        *suspect = found > 0;
        found
    }

    /// Somebody else takes all but so many bytes of what is available, for zeros; nothing while
    /// no process runs. What was available.
    pub fn crowd(&self, leave: u64) -> u64 {
        self.lock().crowded = true;
        let take = |s: &mut Store| {
            let (_, available) = s.room();
            let whole = s.stat(store::Coll::Meta, &others()).map_or(0, |stat| stat.size);
            let mut at = whole.next_multiple_of(OTHERS_PART);
            while s.room().1 > leave + 2 * OTHERS_PART {
                let mut txn = Transaction::new();
                txn.write(store::Coll::Meta, &others(), at, ZEROS.into());
                if s.submit(txn).is_err() {
                    break;
                }
                at += OTHERS_PART;
            }
            available
        };
        self.store(take).unwrap_or(0)
    }

    /// Whether others have space here, or writes fail, or are going to.
    #[must_use]
    pub fn is_in_trouble(&self) -> bool {
        let inner = self.lock();
        inner.crowded || inner.disk.is_failing()
    }

    /// Their data goes, now or when the process starts.
    pub fn make_room(&self) {
        self.lock().crowded = false;
        self.store(remove_others);
    }

    /// Somebody changes what is stored, and the OSD knows nothing of it.
    pub fn meddle(&self, ops: Vec<StoreOp>) {
        let mut inner = self.lock();
        let ticket = inner.ticket; // it says once more what that one says
        if let Some(open) = &mut inner.open {
            open.submit(ops, ticket);
        }
    }
}

/// Bytes that others write at a time.
const OTHERS_PART: u64 = 512 << 10;
static ZEROS: &[u8] = &[0; OTHERS_PART as usize];

/// What others have on the disk: no OSD looks there.
fn others() -> HObject {
    HObject { name: Bytes::from_static(b"others"), ..HObject::min() }
}

fn remove_others(s: &mut Store) {
    if s.exists(store::Coll::Meta, &others()).unwrap_or(false) {
        let mut txn = Transaction::new();
        txn.remove(store::Coll::Meta, &others());
        drop(s.submit(txn));
    }
}

fn objects(open: &StoreBacking, c: Coll) -> Option<Vec<HObject>> {
    if !open.collections().contains(&c) {
        return None;
    }
    let mut all: Vec<HObject> = Vec::new();
    let mut known = BTreeSet::new();
    loop {
        let from = all.last().cloned().unwrap_or_else(HObject::min);
        let more = open.list(c, &from, PART).unwrap_or_default();
        let n = all.len();
        all.extend(more.into_iter().filter(|o| known.insert(o.clone())));
        if all.len() == n {
            return Some(all);
        }
    }
}

/// From the store itself: what the adapter has in memory says nothing about it.
fn data(open: &StoreBacking, c: Coll, o: &HObject) -> Result<Bytes, StoreError> {
    open.store().read(c, o, 0, u64::MAX).map_err(|e| StoreError(e.to_string()))
}

fn object(open: &StoreBacking, c: Coll, o: &HObject) -> Result<Object, StoreError> {
    Ok(Object {
        data: data(open, c, o)?[..].into(),
        attrs: open.attrs(c, o)?.into_iter().collect(),
        header: open.omap_header(c, o)?,
        omap: pairs(|each| open.omap_walk(c, o, b"", each))?.into_iter().collect(),
    })
}

type Result<T, E = StoreError> = std::result::Result<T, E>;
type Each<'a> = &'a mut dyn FnMut(&[u8], &Bytes) -> bool;
type Pairs = Vec<(Bytes, Bytes)>;

/// All that a walk gives.
fn pairs(walk: impl FnOnce(Each<'_>) -> Result<()>) -> Result<Pairs> {
    let mut all = Pairs::new();
    walk(&mut |k, v| {
        all.push((Bytes::copy_from_slice(k), v.clone()));
        true
    })?;
    Ok(all)
}

fn tell(all: Pairs, each: Each<'_>) {
    let _ = all.iter().all(|(k, v)| each(k, v));
}

impl Inner {
    /// Two of three reads take a while; the data is that of now.
    fn later(
        &mut self,
        read: Result<Option<backing::Fetched>>,
    ) -> Result<Option<backing::Fetched>> {
        self.fetches += 1;
        let id = self.fetches;
        if id.is_multiple_of(3) {
            return read;
        }
        let data = match read {
            Ok(Some(backing::Fetched::Here(data))) => Ok(data),
            Ok(other) => return Ok(other),
            Err(e) => Err(e),
        };
        self.late.push_back((id, data));
        Ok(Some(backing::Fetched::Later(id)))
    }

    fn opened(&mut self) -> &mut StoreBacking {
        self.open.as_mut().expect("the store is open")
    }
}

impl ObjectStore for RealStore {
    fn poll(&mut self) -> Result<Option<u64>> {
        let mut inner = self.lock();
        let newest = inner.opened().poll();
        // What is known of now has happened.
        inner.disk.settle();
        newest
    }

    fn is_stopped(&self) -> bool {
        self.open(ObjectStore::is_stopped)
    }

    fn submit(&mut self, ops: Vec<StoreOp>, ticket: u64) {
        let mut inner = self.lock();
        inner.ticket = ticket;
        inner.opened().submit(ops, ticket);
    }

    fn kick(&mut self) {
        self.lock().opened().kick();
    }

    fn read(&self, c: Coll, o: &HObject, off: u64, len: u64) -> Result<Option<Bytes>> {
        self.open(|s| s.read(c, o, off, len))
    }

    fn at_hand(&self, c: Coll, o: &HObject, off: u64, len: u64) -> Option<Bytes> {
        self.open(|s| s.at_hand(c, o, off, len))
    }

    fn note_sent(&mut self, shard: SpgId, change: &ObjectChange, coding: bool) {
        self.lock().opened().note_sent(shard, change, coding);
    }

    fn sent_at_hand(&self, shard: SpgId, o: &HObject, off: u64, len: u64) -> Option<Bytes> {
        self.open(|s| s.sent_at_hand(shard, o, off, len))
    }

    fn forget_sent(&mut self, shard: SpgId) {
        self.lock().opened().forget_sent(shard);
    }

    fn fetch(
        &mut self,
        c: Coll,
        o: &HObject,
        off: u64,
        len: u64,
    ) -> Result<Option<backing::Fetched>> {
        let mut inner = self.lock();
        let read = inner.opened().fetch(c, o, off, len);
        inner.later(read)
    }

    fn fetched(&mut self) -> Option<(u64, Result<Bytes>)> {
        self.lock().late.pop_front()
    }

    /// What is too little for it comes late, too.
    fn stage(&mut self, pool: types::PoolId, data: &Bytes) -> Option<backing::Fetched> {
        let mut inner = self.lock();
        let staged = inner.opened().stage(pool, data);
        let here = staged.unwrap_or_else(|| backing::Fetched::Here(data.clone()));
        inner.later(Ok(Some(here))).ok()?
    }

    fn unstage(&mut self, data: &Bytes) {
        self.lock().opened().unstage(data);
    }

    fn fetch_gently(
        &mut self,
        c: Coll,
        o: &HObject,
        off: u64,
        len: u64,
    ) -> Result<Option<backing::Fetched>> {
        let mut inner = self.lock();
        let read = inner.opened().fetch_gently(c, o, off, len);
        inner.later(read)
    }

    fn fetch_verified(
        &mut self,
        c: Coll,
        o: &HObject,
        off: u64,
        len: u64,
    ) -> Result<Option<backing::Fetched>> {
        let mut inner = self.lock();
        let read = inner.opened().fetch_verified(c, o, off, len);
        inner.later(read)
    }

    fn size(&self, c: Coll, o: &HObject) -> Result<Option<u64>> {
        self.open(|s| s.size(c, o))
    }

    fn attr(&self, c: Coll, o: &HObject, name: &[u8]) -> Result<Option<Bytes>> {
        self.open(|s| s.attr(c, o, name))
    }

    fn attrs(&self, c: Coll, o: &HObject) -> Result<Vec<(Bytes, Bytes)>> {
        self.open(|s| s.attrs(c, o))
    }

    fn attrs_bytes(&self, c: Coll, o: &HObject) -> Result<u64> {
        self.open(|s| s.attrs_bytes(c, o))
    }

    fn omap_header(&self, c: Coll, o: &HObject) -> Result<Bytes> {
        self.open(|s| s.omap_header(c, o))
    }

    fn omap_get(&self, c: Coll, o: &HObject, key: &[u8]) -> Result<Option<Bytes>> {
        self.open(|s| s.omap_get(c, o, key))
    }

    fn omap_walk(
        &self,
        c: Coll,
        o: &HObject,
        from: &[u8],
        each: &mut dyn FnMut(&[u8], &Bytes) -> bool,
    ) -> Result<()> {
        let all = pairs(|each| self.open(|s| s.omap_walk(c, o, from, each)))?;
        tell(all, each); // which may ask for more
        Ok(())
    }

    fn list(&self, c: Coll, from: &HObject, max: usize) -> Result<Vec<HObject>> {
        self.open(|s| s.list(c, from, max))
    }

    fn get(&self, c: Coll, key: &[u8]) -> Result<Option<Bytes>> {
        self.open(|s| s.get(c, key))
    }

    fn walk(
        &self,
        c: Coll,
        from: &[u8],
        to: &[u8],
        each: &mut dyn FnMut(&[u8], &Bytes) -> bool,
    ) -> Result<()> {
        tell(pairs(|each| self.open(|s| s.walk(c, from, to, each)))?, each);
        Ok(())
    }

    fn collections(&self) -> Vec<Coll> {
        self.open(ObjectStore::collections)
    }

    fn compress(&mut self, pools: &BTreeMap<types::PoolId, store::Compression>) {
        self.lock().opened().compress(pools);
    }

    fn compressed(&self) -> BTreeMap<types::PoolId, osd::PoolSpace> {
        self.open(ObjectStore::compressed)
    }

    fn record_max(&self) -> u64 {
        self.open(ObjectStore::record_max)
    }

    fn cut_takes(&self, pool: types::PoolId) -> u64 {
        self.open(|store| store.cut_takes(pool))
    }

    fn space(&self) -> Space {
        self.open(ObjectStore::space)
    }

    fn room(&self) -> (u64, u64) {
        self.open(ObjectStore::room)
    }
}
