//! Objects in memory with the class methods that OSDs run, and a client that may die before any of its operations.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use cls::{Object, Page, READS, Reply, WRITES};
use types::{
    Bytes, EntityAddr, EntityId, EntityKind, Errno, Features, HObject, OpResult, PoolId, UTime,
};

use crate::formats::Pool;
use crate::objects::{Answer, Answers, Objects, Place, PoolUse, Step, Vector};

type Pairs = BTreeMap<Bytes, Bytes>;

/// One object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) data: Bytes,
    pub(super) attrs: Pairs,
    pub(super) omap: Pairs,
    header: Bytes,
    mtime: UTime,
}

/// All objects, by pool, namespace and name.
#[derive(Default)]
struct Store {
    asked: u64,
    told: Vec<(String, Bytes)>,
    objects: BTreeMap<(String, String, String), Stored>,
    pools: BTreeSet<String>,
    version: u64,
    now: UTime,
    random: u64,
    clients: u64,
}

/// A client of the store.
#[derive(Clone)]
pub(super) struct Memory {
    store: Rc<RefCell<Store>>,
    /// Operations until the client dies; `None`: it lives.
    left: Rc<RefCell<Option<u64>>>,
    id: u64,
}

/// An object within a vector: what is read is as it was before.
struct Call<'a> {
    id: HObject,
    now: UTime,
    version: u64,
    random: u64,
    flags: u8,
    before: &'a Option<Stored>,
    after: &'a mut Option<Stored>,
}

impl Call<'_> {
    fn seen(&self) -> OpResult<&Stored> {
        static NONE: std::sync::LazyLock<Stored> = std::sync::LazyLock::new(Stored::default);
        if self.flags & READS == 0 {
            return Err(Errno::IO);
        }
        self.after.as_ref().ok_or(Errno::NOENT)?;
        Ok(self.before.as_ref().unwrap_or(&NONE))
    }

    fn there(&mut self) -> OpResult<&mut Stored> {
        if self.flags & WRITES == 0 {
            return Err(Errno::IO);
        }
        self.after.as_mut().ok_or(Errno::NOENT)
    }

    fn made(&mut self) -> OpResult<&mut Stored> {
        if self.flags & WRITES == 0 {
            return Err(Errno::IO);
        }
        Ok(self.after.get_or_insert_default())
    }
}

impl Object for Call<'_> {
    fn id(&self) -> &HObject {
        &self.id
    }
    fn stat(&mut self) -> OpResult<(u64, UTime)> {
        let now = self.after.as_ref().ok_or(Errno::NOENT)?;
        Ok((now.data.len() as u64, now.mtime))
    }
    fn version(&self) -> u64 {
        self.version
    }
    fn pg_version(&self) -> u64 {
        self.version
    }
    fn op_index(&self) -> u32 {
        1
    }
    fn settings(&self) -> cls::Settings {
        cls::Settings::default()
    }
    fn now(&self) -> UTime {
        self.now
    }
    fn caller(&self) -> (EntityId, EntityAddr) {
        (EntityId::new(EntityKind::CLIENT, 7), EntityAddr::default())
    }
    fn features(&self) -> Features {
        Features::ALL
    }
    fn random(&mut self, out: &mut [u8]) {
        for byte in out {
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = (self.random >> 56) as u8;
        }
    }
    fn read(&mut self, off: u64, len: u64) -> OpResult<Bytes> {
        let data = self.seen()?.data.clone();
        let size = data.len() as u64;
        Ok(data.slice(off.min(size) as usize..off.saturating_add(len).min(size) as usize))
    }
    fn write(&mut self, off: u64, data: Bytes) -> OpResult<()> {
        let object = self.made()?;
        let mut all = object.data.to_vec();
        let end = off as usize + data.len();
        all.resize(all.len().max(end), 0);
        all[off as usize..end].copy_from_slice(&data);
        object.data = all.into();
        Ok(())
    }
    fn write_full(&mut self, data: Bytes) -> OpResult<()> {
        self.made()?.data = data;
        Ok(())
    }
    fn zero(&mut self, off: u64, len: u64) -> OpResult<()> {
        self.write(off, vec![0; len as usize].into())
    }
    fn truncate(&mut self, size: u64) -> OpResult<()> {
        let object = self.made()?;
        let mut all = object.data.to_vec();
        all.resize(size as usize, 0);
        object.data = all.into();
        Ok(())
    }
    fn create(&mut self, exclusive: bool) -> OpResult<()> {
        if exclusive && self.after.is_some() {
            return Err(Errno::EXIST);
        }
        self.made().map(drop)
    }
    fn remove(&mut self) -> OpResult<()> {
        self.there()?;
        *self.after = None;
        Ok(())
    }
    fn attr(&mut self, name: &[u8]) -> OpResult<Bytes> {
        self.seen()?.attrs.get(name).cloned().ok_or(Errno::NODATA)
    }
    fn attrs(&mut self) -> OpResult<Vec<(Bytes, Bytes)>> {
        Ok(self.seen()?.attrs.clone().into_iter().collect())
    }
    fn set_attr(&mut self, name: &[u8], value: Bytes) -> OpResult<()> {
        self.made()?.attrs.insert(Bytes::copy_from_slice(name), value);
        Ok(())
    }
    fn rm_attr(&mut self, name: &[u8]) -> OpResult<()> {
        self.there()?.attrs.remove(name);
        Ok(())
    }
    fn omap_header(&mut self) -> OpResult<Bytes> {
        Ok(self.seen()?.header.clone())
    }
    fn omap_set_header(&mut self, header: Bytes) -> OpResult<()> {
        self.made()?.header = header;
        Ok(())
    }
    fn omap_get(&mut self, key: &[u8]) -> OpResult<Bytes> {
        self.seen()?.omap.get(key).cloned().ok_or(Errno::NOENT)
    }
    fn omap_page(&mut self, after: &[u8], prefix: &[u8], max: u64) -> OpResult<Page> {
        let omap = &self.seen()?.omap;
        let fits = |(k, _): &(&Bytes, &Bytes)| &k[..] > after && k.starts_with(prefix);
        let mut found = omap.iter().filter(fits).map(|(k, v)| (k.clone(), v.clone()));
        let pairs = found.by_ref().take(max as usize).collect();
        Ok((pairs, found.next().is_some()))
    }
    fn omap_set(&mut self, pairs: Vec<(Bytes, Bytes)>) -> OpResult<()> {
        self.made()?.omap.extend(pairs);
        Ok(())
    }
    fn omap_rm(&mut self, keys: Vec<Bytes>) -> OpResult<()> {
        let object = self.there()?;
        keys.iter().for_each(|key| drop(object.omap.remove(key)));
        Ok(())
    }
    fn omap_rm_range(&mut self, from: Bytes, to: Bytes) -> OpResult<()> {
        self.there()?.omap.retain(|k, _| *k < from || *k >= to);
        Ok(())
    }
    fn omap_clear(&mut self) -> OpResult<()> {
        let object = self.there()?;
        object.omap.clear();
        object.header = Bytes::new();
        Ok(())
    }
}

impl Call<'_> {
    fn step(&mut self, step: &Step) -> OpResult<Answer> {
        // Plain steps may do all; methods what they are marked for.
        self.flags = READS | WRITES;
        let name = |name: &str| Bytes::copy_from_slice(name.as_bytes());
        match step {
            Step::AssertExists => self.there().map(drop)?,
            Step::Create(exclusive) => self.create(*exclusive)?,
            Step::Remove => self.remove()?,
            Step::WriteFull(data) => self.write_full(data.clone())?,
            Step::Write(off, data) => self.write(*off, data.clone())?,
            Step::AllocHint(_) => self.made().map(drop)?,
            Step::SetAttr(attr, value) => self.set_attr(attr.as_bytes(), value.clone())?,
            Step::RmAttr(attr) => self.rm_attr(attr.as_bytes())?,
            Step::CmpAttr(attr, value) => {
                let now = self.seen()?.attrs.get(&name(attr)).cloned().unwrap_or_default();
                if now != *value {
                    return Err(Errno::CANCELED);
                }
            }
            Step::CmpAttrAtLeast(attr, value) => {
                let now = self.seen()?.attrs.get(&name(attr)).cloned().unwrap_or_default();
                let now = std::str::from_utf8(&now).ok().and_then(|t| t.parse().ok());
                if *value < now.unwrap_or(0) {
                    return Err(Errno::CANCELED);
                }
            }
            Step::RmPairs(keys) => self.omap_rm(keys.iter().cloned().collect())?,
            Step::SetPairs(pairs) => self.omap_set(pairs.clone().into_iter().collect())?,
            Step::Call(class, method, input) => {
                let method = cls::find(class.as_bytes(), method.as_bytes())?;
                self.flags = method.flags;
                let reply: Reply = (method.run)(self, input)?;
                return match reply.value {
                    0.. => Ok(Answer::Data(reply.data)),
                    _ if reply.value == Errno::FBIG.0 => Ok(Answer::Data(reply.data)),
                    error => Err(Errno(error)),
                };
            }
            Step::Read(off, len) => return self.read(*off, *len).map(Answer::Data),
            Step::Stat => return self.stat().map(|(size, mtime)| Answer::Stat(size, mtime)),
            Step::Attrs => {
                let text = |bytes: Bytes| String::from_utf8(bytes.to_vec()).expect("a name");
                let attrs = self.attrs()?.into_iter().map(|(n, v)| (text(n), v));
                return Ok(Answer::Attrs(attrs.collect()));
            }
            Step::Pairs(after, max) => {
                let (pairs, more) = self.omap_page(after, b"", *max)?;
                return Ok(Answer::Pairs(pairs.into_iter().collect(), more));
            }
        }
        Ok(Answer::None)
    }
}

impl Memory {
    pub(super) fn new() -> Self {
        let now = UTime { sec: 1_800_000_000, nsec: 0 };
        let store = Store { now, random: 1, ..Store::default() };
        Self { store: Rc::new(RefCell::new(store)), left: Rc::default(), id: 1 }
    }

    /// A further client of the same store.
    pub(super) fn another(&self) -> Self {
        let mut store = self.store.borrow_mut();
        store.clients += 1;
        let id = 1 + store.clients;
        Self { store: self.store.clone(), left: Rc::default(), id }
    }

    /// Has the client die before it sends its `n`th operation from now on.
    pub(super) fn dies_before(&self, n: u64) {
        *self.left.borrow_mut() = Some(n);
    }

    /// Whether it died.
    pub(super) fn is_dead(&self) -> bool {
        *self.left.borrow() == Some(0)
    }

    /// Operations so far, of all clients.
    pub(super) fn asked(&self) -> u64 {
        self.store.borrow().asked
    }

    /// What was told since this was called last: by which object, what.
    pub(super) fn told(&self) -> Vec<(String, Bytes)> {
        std::mem::take(&mut self.store.borrow_mut().told)
    }

    /// Lets time pass.
    pub(super) fn pass(&self, seconds: u32) {
        self.store.borrow_mut().now.sec += seconds;
    }

    /// Names of all objects of a pool.
    pub(super) fn names(&self, pool: &str) -> Vec<String> {
        let store = self.store.borrow();
        store.objects.keys().filter(|k| k.0 == pool).map(|k| k.2.clone()).collect()
    }

    /// All bytes of a pool's objects: data and values of omaps.
    pub(super) fn stored(&self, pool: &str) -> Vec<Vec<u8>> {
        let store = self.store.borrow();
        let objects = store.objects.iter().filter(|(k, _)| k.0 == pool);
        let bytes = objects.flat_map(|(_, o)| std::iter::once(&o.data).chain(o.omap.values()));
        bytes.map(|b| b.to_vec()).collect()
    }

    /// Changes an object behind everybody's back.
    pub(super) fn change(&self, pool: &str, name: &str, change: impl FnOnce(&mut Stored)) {
        let mut store = self.store.borrow_mut();
        let mut found = store.objects.iter_mut().filter(|(k, _)| k.0 == pool && k.2 == name);
        change(found.next().expect("the object is there").1);
    }
}

impl Objects for Memory {
    async fn operate(&self, at: &Place, vector: Vector) -> OpResult<Answers> {
        if let Some(left) = self.left.borrow_mut().as_mut() {
            if *left == 0 {
                return Err(Errno::IO);
            }
            *left -= 1;
            if *left == 0 {
                return Err(Errno::IO);
            }
        }
        let mut store = self.store.borrow_mut();
        store.asked += 1;
        let key = (at.pool.name.clone(), at.pool.ns.clone(), at.name.clone());
        if !store.pools.contains(&at.pool.name) {
            return Err(Errno::NOENT);
        }
        let before = store.objects.get(&key).cloned();
        let mut after = before.clone();
        store.random = store.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(7);
        let name = Bytes::copy_from_slice(at.name.as_bytes());
        let mut call = Call {
            id: HObject::head(PoolId(1), Bytes::new(), Bytes::new(), name),
            now: store.now,
            version: store.version + 1,
            random: store.random,
            flags: 0,
            before: &before,
            after: &mut after,
        };
        let mut steps = Vec::new();
        for (step, may_fail) in &vector.steps {
            let answer = call.step(step);
            if let (Err(errno), false) = (&answer, may_fail) {
                return Err(*errno);
            }
            steps.push(answer);
        }
        if !vector.writes {
            if before.is_none() {
                return Err(Errno::NOENT);
            }
            assert_eq!(before, after, "a vector that reads changes nothing: {vector:?}");
            return Ok(Answers { version: store.version, steps });
        }
        store.version += 1;
        let version = store.version;
        match after {
            Some(mut object) => {
                object.mtime = vector.mtime.unwrap_or(store.now);
                store.objects.insert(key, object);
            }
            None => drop(store.objects.remove(&key)),
        }
        Ok(Answers { version, steps: if vector.returns { steps } else { Vec::new() } })
    }

    async fn names(&self, pool: &Pool) -> OpResult<Vec<String>> {
        let store = self.store.borrow();
        let within = store.objects.keys().filter(|key| key.0 == pool.name && key.1 == pool.ns);
        Ok(within.map(|key| key.2.clone()).collect())
    }

    async fn make_pool(&self, pool: &Pool, _why: PoolUse) -> OpResult<()> {
        self.store.borrow_mut().pools.insert(pool.name.clone());
        Ok(())
    }

    async fn notify(&self, at: &Place, payload: Bytes) -> OpResult<()> {
        self.store.borrow_mut().told.push((at.name.clone(), payload));
        Ok(())
    }

    fn pool_id(&self, pool: &Pool) -> Option<i64> {
        let store = self.store.borrow();
        store.pools.iter().position(|p| *p == pool.name).map(|n| n as i64 + 1)
    }

    fn alignment(&self, _pool: &Pool) -> u64 {
        12 << 10
    }

    async fn sleep_ms(&self, _ms: u64) {
        self.store.borrow_mut().now.sec += 1;
    }

    fn now(&self) -> UTime {
        let mut store = self.store.borrow_mut();
        store.now.nsec = (store.now.nsec + 1_000) % 1_000_000_000;
        store.now
    }

    fn random(&self, out: &mut [u8]) {
        let mut store = self.store.borrow_mut();
        for byte in out {
            store.random = store.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(3);
            *byte = (store.random >> 48) as u8;
        }
    }

    fn client_id(&self) -> u64 {
        self.id
    }
}

/// Runs a future that never waits.
pub(super) fn now<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("nothing in memory waits"),
    }
}
