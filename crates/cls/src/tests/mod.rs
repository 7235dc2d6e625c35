//! An object in memory, and calls of methods on it as an operation makes them.

mod cas;
mod cmpomap;
pub(crate) mod corpus;
mod journal;
mod log;
mod queue;
mod rbd;
mod rbd_mirror;
mod user;
mod wasm;

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use denc::{Denc, Features};
use types::{
    EntityAddr, EntityId, EntityInst, EntityKind, Errno, HObject, OpResult, PoolId, UTime,
};

use crate::{Object, Page, READS, Reply, Settings, WRITES};

/// An object, and what an operation would know.
#[derive(Clone)]
pub(crate) struct Mem {
    id: HObject,
    pub(crate) is_there: bool,
    pub(crate) data: BytesMut,
    pub(crate) attrs: BTreeMap<Bytes, Bytes>,
    pub(crate) omap: BTreeMap<Bytes, Bytes>,
    pub(crate) header: Bytes,
    pub(crate) now: UTime,
    pub(crate) watchers: Vec<EntityInst>,
    pub(crate) snapset_seq: u64,
    pub(crate) settings: Settings,
    version: u64,
    seed: u8,
    flags: u8,
    /// Attributes, omap and its header as they were before the call: what is read.
    /// Modules read what they wrote themselves: `None`.
    seen: Option<Seen>,
}

type Pairs = BTreeMap<Bytes, Bytes>;

#[derive(Clone, Default)]
struct Seen {
    attrs: Pairs,
    omap: Pairs,
    header: Bytes,
}

impl Mem {
    pub(crate) fn new() -> Self {
        let name = Bytes::from_static(b"object");
        Self {
            id: HObject::head(PoolId(1), Bytes::new(), Bytes::new(), name),
            is_there: false,
            data: BytesMut::new(),
            attrs: BTreeMap::new(),
            omap: BTreeMap::new(),
            header: Bytes::new(),
            now: UTime { sec: 1000, nsec: 0 },
            watchers: Vec::new(),
            snapset_seq: 0,
            settings: Settings::default(),
            version: 0,
            seed: 0,
            flags: 0,
            seen: None,
        }
    }

    /// One that exists.
    pub(crate) fn created() -> Self {
        Self { is_there: true, ..Self::new() }
    }

    /// Calls a method; what a failed one did is undone.
    pub(crate) fn call(&mut self, class: &str, method: &str, input: &Bytes) -> OpResult<Reply> {
        let method = crate::find(class.as_bytes(), method.as_bytes())?;
        let before = self.clone();
        self.flags = method.flags;
        self.seen = Some(Seen {
            attrs: self.attrs.clone(),
            omap: self.omap.clone(),
            header: self.header.clone(),
        });
        let result = (method.run)(self, input);
        self.seen = None;
        match &result {
            Ok(_) if method.flags & WRITES != 0 => self.version += 1,
            Ok(_) => {}
            Err(_) => *self = before,
        }
        result
    }

    /// Calls a method with an encoded parameter, for nothing.
    pub(crate) fn run(&mut self, class: &str, method: &str, input: &impl Denc) -> OpResult<()> {
        self.call(class, method, &input.to_bytes()).map(drop)
    }

    /// Calls a method and decodes all that it answers.
    pub(crate) fn ask<T: Denc>(
        &mut self,
        class: &str,
        method: &str,
        input: &impl Denc,
    ) -> OpResult<T> {
        let reply = self.call(class, method, &input.to_bytes())?;
        Ok(T::from_bytes(&reply.data).expect("the answer has this type"))
    }

    /// No method takes input that is cut off.
    pub(crate) fn refuses_short_input(&mut self, class: &str, methods: &[&str]) {
        for method in methods {
            let result = self.call(class, method, &Bytes::from_static(&[1]));
            assert_eq!(result, Err(Errno::INVAL), "{class}.{method}");
        }
    }

    fn reads(&self) -> OpResult<()> {
        if self.flags & READS == 0 { Err(Errno::IO) } else { self.there() }
    }

    fn there(&self) -> OpResult<()> {
        if self.is_there { Ok(()) } else { Err(Errno::NOENT) }
    }

    fn writes(&self) -> OpResult<()> {
        if self.flags & WRITES == 0 { Err(Errno::IO) } else { Ok(()) }
    }

    fn creates(&mut self) -> OpResult<()> {
        self.writes()?;
        self.is_there = true;
        Ok(())
    }
}

/// No parameters.
pub(crate) struct Nothing;

impl Denc for Nothing {
    fn encode(&self, _: &mut denc::Writer) {}
    fn decode(_: &mut denc::Reader<'_>) -> Result<Self, denc::DecodeError> {
        Ok(Self)
    }
}

pub(crate) fn bytes(s: &str) -> Bytes {
    Bytes::copy_from_slice(s.as_bytes())
}

impl Object for Mem {
    fn id(&self) -> &HObject {
        &self.id
    }
    fn stat(&mut self) -> OpResult<(u64, UTime)> {
        self.there()?;
        Ok((self.data.len() as u64, self.now))
    }
    fn version(&self) -> u64 {
        self.version
    }
    fn pg_version(&self) -> u64 {
        self.version + 100
    }
    fn op_index(&self) -> u32 {
        1
    }
    fn settings(&self) -> Settings {
        self.settings
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
        for b in out {
            self.seed = self.seed.wrapping_mul(5).wrapping_add(1);
            *b = self.seed;
        }
    }
    fn read(&mut self, off: u64, len: u64) -> OpResult<Bytes> {
        self.reads()?;
        let size = self.data.len() as u64;
        let (from, to) = (off.min(size), off.saturating_add(len).min(size));
        Ok(Bytes::copy_from_slice(&self.data[from as usize..to as usize]))
    }
    fn write(&mut self, off: u64, data: Bytes) -> OpResult<()> {
        self.creates()?;
        let end = off as usize + data.len();
        if self.data.len() < end {
            self.data.resize(end, 0);
        }
        self.data[off as usize..end].copy_from_slice(&data);
        Ok(())
    }
    fn write_full(&mut self, data: Bytes) -> OpResult<()> {
        self.creates()?;
        self.data = BytesMut::from(&data[..]);
        Ok(())
    }
    fn zero(&mut self, off: u64, len: u64) -> OpResult<()> {
        self.creates()?;
        let size = self.data.len() as u64;
        let (from, to) = (off.min(size), off.saturating_add(len).min(size));
        self.data[from as usize..to as usize].fill(0);
        Ok(())
    }
    fn truncate(&mut self, size: u64) -> OpResult<()> {
        self.creates()?;
        self.data.resize(size as usize, 0);
        Ok(())
    }
    fn create(&mut self, exclusive: bool) -> OpResult<()> {
        self.writes()?;
        if exclusive && self.is_there {
            return Err(Errno::EXIST);
        }
        self.is_there = true;
        Ok(())
    }
    fn remove(&mut self) -> OpResult<()> {
        self.writes()?;
        self.there()?;
        let seen = self.seen.take();
        *self =
            Self { flags: self.flags, version: self.version, now: self.now, seen, ..Self::new() };
        Ok(())
    }
    fn attr(&mut self, name: &[u8]) -> OpResult<Bytes> {
        self.reads()?;
        self.seen.as_ref().map_or(&self.attrs, |s| &s.attrs).get(name).cloned().ok_or(Errno::NODATA)
    }
    fn attrs(&mut self) -> OpResult<Vec<(Bytes, Bytes)>> {
        self.reads()?;
        Ok(self.seen.as_ref().map_or(&self.attrs, |s| &s.attrs).clone().into_iter().collect())
    }
    fn set_attr(&mut self, name: &[u8], value: Bytes) -> OpResult<()> {
        self.creates()?;
        self.attrs.insert(Bytes::copy_from_slice(name), value);
        Ok(())
    }
    fn rm_attr(&mut self, name: &[u8]) -> OpResult<()> {
        self.writes()?;
        self.there()?;
        self.attrs.remove(name);
        Ok(())
    }
    fn omap_header(&mut self) -> OpResult<Bytes> {
        self.reads()?;
        Ok(self.seen.as_ref().map_or(&self.header, |s| &s.header).clone())
    }
    fn omap_set_header(&mut self, header: Bytes) -> OpResult<()> {
        self.creates()?;
        self.header = header;
        Ok(())
    }
    fn omap_get(&mut self, key: &[u8]) -> OpResult<Bytes> {
        self.reads()?;
        self.seen.as_ref().map_or(&self.omap, |s| &s.omap).get(key).cloned().ok_or(Errno::NOENT)
    }
    fn omap_page(&mut self, after: &[u8], prefix: &[u8], max: u64) -> OpResult<Page> {
        self.reads()?;
        let omap = self.seen.as_ref().map_or(&self.omap, |s| &s.omap);
        let mut found = omap
            .iter()
            .filter(|(k, _)| &k[..] > after && k.starts_with(prefix))
            .map(|(k, v)| (k.clone(), v.clone()));
        let pairs: Vec<_> = found.by_ref().take(max as usize).collect();
        Ok((pairs, found.next().is_some()))
    }
    fn omap_set(&mut self, pairs: Vec<(Bytes, Bytes)>) -> OpResult<()> {
        self.creates()?;
        self.omap.extend(pairs);
        Ok(())
    }
    fn omap_rm(&mut self, keys: Vec<Bytes>) -> OpResult<()> {
        self.writes()?;
        self.there()?;
        for key in keys {
            self.omap.remove(&key);
        }
        Ok(())
    }
    fn omap_rm_range(&mut self, from: Bytes, to: Bytes) -> OpResult<()> {
        self.writes()?;
        self.there()?;
        self.omap.retain(|k, _| *k < from || *k >= to);
        Ok(())
    }
    fn omap_clear(&mut self) -> OpResult<()> {
        self.writes()?;
        self.there()?;
        self.omap.clear();
        self.header = Bytes::new();
        Ok(())
    }
    fn watchers(&mut self) -> OpResult<Vec<EntityInst>> {
        self.there()?;
        Ok(self.watchers.clone())
    }
    fn snapset_seq(&mut self) -> OpResult<u64> {
        self.there()?;
        Ok(self.snapset_seq)
    }
}
