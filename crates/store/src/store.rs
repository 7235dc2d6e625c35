//! The store as its owner sees it.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;

use bytes::Bytes;
use types::{HObject, OsdId, PoolId, Uuid};

use crate::{Coll, StoreError, Transaction};

/// Counts submitted transactions; durable up to here means all of them up to here.
pub type Seq = u64;

/// Called from the store's I/O thread, once per durable group: wakes the owner, which then
/// asks [`Store::durable`] or runs [`Store::complete`].
pub type Waker = Box<dyn Fn() + Send + Sync>;

/// How a store is made.
#[derive(Clone, Debug)]
pub struct MkfsOptions {
    /// The cluster it belongs to.
    pub fsid: Uuid,
    /// The OSD's number.
    pub osd: OsdId,
    /// The OSD's incarnation.
    pub osd_uuid: Uuid,
    /// Bytes of the file to create; a device has its own size.
    pub size: u64,
    /// Bytes of the log ring.
    pub log_bytes: u64,
}

impl Default for MkfsOptions {
    fn default() -> Self {
        Self {
            fsid: Uuid::default(),
            osd: OsdId(0),
            osd_uuid: Uuid::default(),
            size: 10 << 30,
            log_bytes: 256 << 20,
        }
    }
}

/// How a store is opened.
pub struct OpenOptions {
    /// Refuse another cluster's store.
    pub fsid: Option<Uuid>,
    /// Refuse another OSD's store.
    pub osd: Option<OsdId>,
    /// Bytes of log after which a checkpoint begins; 0 is a quarter of the log.
    pub checkpoint_bytes: u64,
    /// Memory for clean object metadata.
    pub onode_cache_bytes: u64,
    /// Memory for blocks of key tables.
    pub table_cache_bytes: u64,
    /// Use io_uring where the kernel allows it.
    pub io_uring: bool,
    /// Called once per durable group.
    pub waker: Waker,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            fsid: None,
            osd: None,
            checkpoint_bytes: 0,
            onode_cache_bytes: 32 << 20,
            table_cache_bytes: 16 << 20,
            io_uring: true,
            waker: Box::new(|| {}),
        }
    }
}

/// What is known of an object without reading it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Bytes of data, holes included.
    pub size: u64,
    /// Bytes of space it uses, shared ones included.
    pub allocated: u64,
}

/// A part of a collection's listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// Objects in order.
    pub objects: Vec<HObject>,
    /// Where to go on; [`HObject::max`] at the end.
    pub next: HObject,
}

/// What one pool uses on this OSD.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Objects, clones among them.
    pub objects: u64,
    /// Bytes of data as clients see them.
    pub stored: u64,
    /// Bytes of space they use.
    pub allocated: u64,
    /// Bytes of omap keys and values.
    pub omap: u64,
}

/// What the device holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatFs {
    /// Bytes of the device.
    pub total: u64,
    /// Bytes used by data, keys, log and the rest.
    pub used: u64,
    /// Bytes that transactions may still use.
    pub available: u64,
    /// Bytes of object data, as clients see them.
    pub stored: u64,
    /// Bytes of space used by object data.
    pub allocated: u64,
    /// Bytes of omap.
    pub omap: u64,
    /// Bytes used by the store itself: log, tables, reserve.
    pub internal: u64,
    /// By pool.
    pub pools: BTreeMap<PoolId, PoolStats>,
}

/// An open store; see the crate's page.
pub struct Store {}

type Result<T> = std::result::Result<T, StoreError>;

impl Store {
    /// Makes an empty store in the file (created, sparse but for the log) or device `path`.
    ///
    /// # Errors
    /// [`StoreError::Format`] when it holds a store already; [`StoreError::Io`].
    pub fn mkfs(_path: &Path, _options: &MkfsOptions) -> Result<()> {
        Err(StoreError::Invalid("under construction"))
    }

    /// Opens a store and replays its log: all that was acknowledged is there again.
    ///
    /// # Errors
    /// [`StoreError::Format`] when it is not a store, of a newer format, another
    /// cluster's or OSD's, or in use; [`StoreError::Corrupt`]; [`StoreError::Io`].
    pub fn open(_path: &Path, _options: OpenOptions) -> Result<Self> {
        Err(StoreError::Invalid("under construction"))
    }

    /// Waits until all is durable, writes a checkpoint and stops the threads.
    ///
    /// # Errors
    /// [`StoreError::Stopped`] when an earlier write failed.
    pub fn close(self) -> Result<()> {
        Ok(())
    }

    /// The cluster and OSD it was made for.
    #[must_use]
    pub fn identity(&self) -> (Uuid, OsdId, Uuid) {
        (Uuid::default(), OsdId(0), Uuid::default())
    }

    /// Applies `txn`: reads see it from now on; it is durable once [`Store::durable`] has
    /// reached the returned number, which counts up by one per call.
    ///
    /// # Errors
    /// Nothing was applied: [`StoreError::NoSpace`], [`StoreError::NoCollection`],
    /// [`StoreError::NoObject`] (a clone's source), [`StoreError::CollectionExists`],
    /// [`StoreError::NotEmpty`], [`StoreError::Invalid`], [`StoreError::Stopped`].
    pub fn submit(&mut self, _txn: Transaction) -> Result<Seq> {
        Err(StoreError::Invalid("under construction"))
    }

    /// As [`Store::submit`]; `on_durable` runs in [`Store::complete`] once it is durable.
    ///
    /// # Errors
    /// As [`Store::submit`]; `on_durable` is dropped.
    pub fn submit_then(
        &mut self,
        _txn: Transaction,
        _on_durable: Box<dyn FnOnce() + Send>,
    ) -> Result<Seq> {
        Err(StoreError::Invalid("under construction"))
    }

    /// The last transaction that is durable, with all before it. One atomic load.
    #[must_use]
    pub fn durable(&self) -> Seq {
        0
    }

    /// The last transaction submitted.
    #[must_use]
    pub fn submitted(&self) -> Seq {
        0
    }

    /// Runs the callbacks of what has become durable, in order, and does the owner's part
    /// of background work. To be called after each wake-up. Returns [`Store::durable`].
    ///
    /// # Errors
    /// [`StoreError::Stopped`] when a write failed: nothing after it will become durable.
    pub fn complete(&mut self) -> Result<Seq> {
        Err(StoreError::Invalid("under construction"))
    }

    /// Waits until everything submitted is durable, and runs the callbacks.
    ///
    /// # Errors
    /// As [`Store::complete`].
    pub fn sync(&mut self) -> Result<()> {
        Err(StoreError::Invalid("under construction"))
    }

    /// All collections, in order.
    #[must_use]
    pub fn list_collections(&self) -> Vec<Coll> {
        Vec::new()
    }

    /// Whether the collection exists.
    #[must_use]
    pub fn collection_exists(&self, _c: impl Into<Coll>) -> bool {
        false
    }

    /// Whether the object exists; not so when its collection does not.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`], [`StoreError::Io`]; so all reads below.
    pub fn exists(&self, _c: impl Into<Coll>, _o: &HObject) -> Result<bool> {
        Err(StoreError::Invalid("under construction"))
    }

    /// Size and space.
    ///
    /// # Errors
    /// [`StoreError::NoObject`], [`StoreError::NoCollection`]; so all reads of objects.
    pub fn stat(&self, _c: impl Into<Coll>, _o: &HObject) -> Result<Stat> {
        Err(StoreError::Invalid("under construction"))
    }

    /// Data from `off`, at most `len` bytes, less where the object ends. Holes are zeros.
    ///
    /// # Errors
    /// As [`Store::stat`].
    pub fn read(&self, _c: impl Into<Coll>, _o: &HObject, _off: u64, _len: u64) -> Result<Bytes> {
        Err(StoreError::Invalid("under construction"))
    }

    /// The parts of `off..off + len` that hold data, as `(offset, length)`, ascending and
    /// apart; what is between them reads as zeros.
    ///
    /// # Errors
    /// As [`Store::stat`].
    pub fn fiemap(
        &self,
        _c: impl Into<Coll>,
        _o: &HObject,
        _off: u64,
        _len: u64,
    ) -> Result<Vec<(u64, u64)>> {
        Err(StoreError::Invalid("under construction"))
    }

    /// One attribute.
    ///
    /// # Errors
    /// As [`Store::stat`].
    pub fn get_attr(
        &self,
        _c: impl Into<Coll>,
        _o: &HObject,
        _name: &[u8],
    ) -> Result<Option<Bytes>> {
        Err(StoreError::Invalid("under construction"))
    }

    /// All attributes.
    ///
    /// # Errors
    /// As [`Store::stat`].
    pub fn get_attrs(&self, _c: impl Into<Coll>, _o: &HObject) -> Result<BTreeMap<Bytes, Bytes>> {
        Err(StoreError::Invalid("under construction"))
    }

    /// The omap header; empty when never set.
    ///
    /// # Errors
    /// As [`Store::stat`].
    pub fn omap_get_header(&self, _c: impl Into<Coll>, _o: &HObject) -> Result<Bytes> {
        Err(StoreError::Invalid("under construction"))
    }

    /// Omap pairs in key order from `start`, at most `max`.
    ///
    /// # Errors
    /// As [`Store::stat`].
    pub fn omap_iter(
        &self,
        _c: impl Into<Coll>,
        _o: &HObject,
        _start: Bound<&[u8]>,
        _max: usize,
    ) -> Result<Vec<(Bytes, Bytes)>> {
        Err(StoreError::Invalid("under construction"))
    }

    /// Those of `keys` that exist, with their values.
    ///
    /// # Errors
    /// As [`Store::stat`].
    pub fn omap_get_keys(
        &self,
        _c: impl Into<Coll>,
        _o: &HObject,
        _keys: &[Bytes],
    ) -> Result<BTreeMap<Bytes, Bytes>> {
        Err(StoreError::Invalid("under construction"))
    }

    /// Objects in order from `from` (itself included), at most `max`.
    ///
    /// # Errors
    /// [`StoreError::NoCollection`].
    pub fn list(&self, _c: impl Into<Coll>, _from: &HObject, _max: usize) -> Result<Listing> {
        Err(StoreError::Invalid("under construction"))
    }

    /// One key of the collection.
    ///
    /// # Errors
    /// [`StoreError::NoCollection`].
    pub fn coll_get(&self, _c: impl Into<Coll>, _key: &[u8]) -> Result<Option<Bytes>> {
        Err(StoreError::Invalid("under construction"))
    }

    /// Pairs of the collection in key order from `start`, at most `max`.
    ///
    /// # Errors
    /// [`StoreError::NoCollection`].
    pub fn coll_iter(
        &self,
        _c: impl Into<Coll>,
        _start: Bound<&[u8]>,
        _max: usize,
    ) -> Result<Vec<(Bytes, Bytes)>> {
        Err(StoreError::Invalid("under construction"))
    }

    /// What is used and what is left.
    #[must_use]
    pub fn statfs(&self) -> StatFs {
        StatFs::default()
    }
}
