//! What the OSD asks of an object store, so that its logic runs over the real one and over
//! one in memory alike.

use std::collections::BTreeMap;

use bytes::Bytes;
use messages::{Mutation, ObjectChange};
use store::Compression;
use types::{HObject, PoolId, SpgId};

/// Where objects and keys live: one collection for each PG, and one for the OSD itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Coll {
    /// Maps and the OSD's own records; keys only.
    Meta,
    /// A PG's copy; in erasure-coded pools one shard of it.
    Pg(SpgId),
}

/// One step of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreOp {
    /// The collection exists from here on; nothing if it did.
    Create(Coll),
    /// The collection and all in it are gone.
    Drop(Coll),
    /// Changes to one object, in order.
    Object(Coll, HObject, Vec<Mutation>),
    /// Sets a key of the collection itself.
    Put(Coll, Bytes, Bytes),
    /// Removes one.
    Rm(Coll, Bytes),
    /// Removes the keys from the first on, up to and without the second.
    RmRange(Coll, Bytes, Bytes),
    /// Moves the objects whose hash, in its lowest bits (so many), is the number of the PG
    /// to that PG's collection. Both exist.
    Split(Coll, SpgId, u32),
    /// Moves all objects of the first to the second. Both exist; no data is rewritten.
    Merge(Coll, Coll),
    /// The transaction undoes what earlier ones did: it gives back what it takes, and is not
    /// refused for want of space.
    TakesBack,
}

/// The store cannot read what it should have: a checksum failed or the device did.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("store: {0}")]
pub struct StoreError(pub String);

/// Space, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// All there is.
    pub total: u64,
    /// Free.
    pub available: u64,
    /// Taken by objects' data.
    pub data: u64,
    /// Objects' data as clients see it.
    pub stored: u64,
    /// Taken by keys and omap.
    pub omap: u64,
    /// Taken by the store itself.
    pub internal: u64,
}

/// What compression does for a pool, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolSpace {
    /// Space that compressed data takes.
    pub compressed: u64,
    /// The data that it is.
    pub uncompressed: u64,
}

/// What [`ObjectStore::fetch`] found.
#[derive(Clone, Debug)]
pub enum Fetched {
    /// The bytes.
    Here(Bytes),
    /// They are being read; [`ObjectStore::fetched`] gives them under this number.
    Later(u64),
}

/// An object store.
///
/// - A submitted transaction is seen by every later read, all of it or nothing.
/// - It is durable when its ticket comes back (`Osd::on_durable`); tickets come back in the
///   order of submission.
/// - After a crash the store holds some prefix of what was submitted, and at least all of
///   which the tickets came back.
pub trait ObjectStore: Send {
    /// What has become durable since the last call: the newest ticket.
    ///
    /// # Errors
    /// [`StoreError`] when nothing more will ever become durable; the OSD has to stop.
    fn poll(&mut self) -> Result<Option<u64>, StoreError>;

    /// What it holds in memory, by the peer's names: how many, and their bytes, about.
    fn memory(&self) -> Vec<(&'static str, usize, u64)> {
        Vec::new()
    }

    /// Whether it takes nothing more, as [`ObjectStore::poll`] will say: what was submitted is
    /// not to be seen.
    fn is_stopped(&self) -> bool;

    /// Takes a transaction. One that it has no room for is dropped, and all later ones; the
    /// next [`ObjectStore::poll`] says why.
    fn submit(&mut self, ops: Vec<StoreOp>, ticket: u64);

    /// Begins to make durable what was submitted; it may have begun before.
    fn kick(&mut self) {}

    /// Begins to write changes in memory to their places, if they take more than `least` bytes.
    fn spill(&mut self, _least: u64) {}

    /// Begins to read what was asked for by [`ObjectStore::fetch`].
    fn kick_reads(&mut self) {}

    /// Bytes of an object from `off` on, at most `len`, fewer at its end; `None` when there
    /// is no such object.
    ///
    /// # Errors
    /// [`StoreError`].
    fn read(&self, c: Coll, o: &HObject, off: u64, len: u64) -> Result<Option<Bytes>, StoreError>;

    /// Bytes of an object that cost nothing to read; `None` when they are elsewhere.
    fn at_hand(&self, _c: Coll, _o: &HObject, _off: u64, _len: u64) -> Option<Bytes> {
        None
    }

    /// Notes what another OSD's shard of an object becomes, for [`ObjectStore::sent_at_hand`].
    /// Of a shard that is only coding, large data is not worth its memory.
    fn note_sent(&mut self, _shard: SpgId, _change: &ObjectChange, _coding: bool) {}

    /// Bytes of another OSD's shard, as they are when it has done all that was noted.
    fn sent_at_hand(&self, _shard: SpgId, _o: &HObject, _off: u64, _len: u64) -> Option<Bytes> {
        None
    }

    /// What was noted of a shard may not come to be.
    fn forget_sent(&mut self, _shard: SpgId) {}

    /// As [`ObjectStore::read`], but what is not in memory comes later, as it is now.
    ///
    /// # Errors
    /// [`StoreError`].
    fn fetch(
        &mut self,
        c: Coll,
        o: &HObject,
        off: u64,
        len: u64,
    ) -> Result<Option<Fetched>, StoreError> {
        Ok(self.read(c, o, off, len)?.map(Fetched::Here))
    }

    /// Bytes that have come, with their number; `None` when there are none.
    fn fetched(&mut self) -> Option<(u64, Result<Bytes, StoreError>)> {
        None
    }

    /// As [`ObjectStore::fetch`], for one who can wait better than clients do.
    ///
    /// # Errors
    /// [`StoreError`].
    fn fetch_gently(
        &mut self,
        c: Coll,
        o: &HObject,
        off: u64,
        len: u64,
    ) -> Result<Option<Fetched>, StoreError> {
        self.fetch(c, o, off, len)
    }

    /// Makes data durable, gently, ahead of a transaction that writes these very bytes in a pool: that waits
    /// for no data then, and nobody behind it. [`Fetched`] says when it may be submitted; whoever has
    /// that calls [`ObjectStore::unstage`] afterwards. `None` where it would not help.
    fn stage(&mut self, _pool: PoolId, _data: &Bytes) -> Option<Fetched> {
        None
    }

    /// What was staged was written, or will not be.
    fn unstage(&mut self, _data: &Bytes) {}

    /// As [`ObjectStore::fetch_gently`], from the device itself wherever there is one: what caches
    /// have says nothing about it.
    ///
    /// # Errors
    /// [`StoreError`].
    fn fetch_verified(
        &mut self,
        c: Coll,
        o: &HObject,
        off: u64,
        len: u64,
    ) -> Result<Option<Fetched>, StoreError> {
        self.fetch_gently(c, o, off, len)
    }

    /// Bytes of data, as the store has them; `None` when there is no such object.
    ///
    /// # Errors
    /// [`StoreError`].
    fn size(&self, c: Coll, o: &HObject) -> Result<Option<u64>, StoreError>;

    /// One attribute.
    ///
    /// # Errors
    /// [`StoreError`].
    fn attr(&self, c: Coll, o: &HObject, name: &[u8]) -> Result<Option<Bytes>, StoreError>;

    /// All attributes, by name.
    ///
    /// # Errors
    /// [`StoreError`].
    fn attrs(&self, c: Coll, o: &HObject) -> Result<Vec<(Bytes, Bytes)>, StoreError>;

    /// Bytes of all attributes, names and values, and 64 more for each; 0 where the object is not there.
    ///
    /// # Errors
    /// As [`ObjectStore::attrs`].
    fn attrs_bytes(&self, c: Coll, o: &HObject) -> Result<u64, StoreError>;

    /// The omap header; empty when there is none.
    ///
    /// # Errors
    /// [`StoreError`].
    fn omap_header(&self, c: Coll, o: &HObject) -> Result<Bytes, StoreError>;

    /// One omap value.
    ///
    /// # Errors
    /// [`StoreError`].
    fn omap_get(&self, c: Coll, o: &HObject, key: &[u8]) -> Result<Option<Bytes>, StoreError>;

    /// Walks omap entries in key order from the first key not below `from`, until `each`
    /// says `false`.
    ///
    /// # Errors
    /// [`StoreError`].
    fn omap_walk(
        &self,
        c: Coll,
        o: &HObject,
        from: &[u8],
        each: &mut dyn FnMut(&[u8], &Bytes) -> bool,
    ) -> Result<(), StoreError>;

    /// At most `max` objects in [`HObject`] order from the first not below `from`.
    ///
    /// # Errors
    /// [`StoreError`].
    fn list(&self, c: Coll, from: &HObject, max: usize) -> Result<Vec<HObject>, StoreError>;

    /// A key of the collection.
    ///
    /// # Errors
    /// [`StoreError`].
    fn get(&self, c: Coll, key: &[u8]) -> Result<Option<Bytes>, StoreError>;

    /// Walks keys of the collection in order within `from..to`, until `each` says `false`.
    ///
    /// # Errors
    /// [`StoreError`].
    fn walk(
        &self,
        c: Coll,
        from: &[u8],
        to: &[u8],
        each: &mut dyn FnMut(&[u8], &Bytes) -> bool,
    ) -> Result<(), StoreError>;

    /// Bytes of the log that one transaction may take ([`crate::bulk::record_of_ops`]): a larger
    /// one must not be submitted.
    fn record_max(&self) -> u64 {
        u64::MAX
    }

    /// Bytes of the log that a step takes more, at most, when it cuts what the store has compressed
    /// of a pool; 0 where nothing is.
    fn cut_takes(&self, _pool: PoolId) -> u64 {
        0
    }

    /// Every collection.
    fn collections(&self) -> Vec<Coll>;

    /// Compresses the data of these pools from now on, and of no others.
    fn compress(&mut self, _pools: &BTreeMap<PoolId, Compression>) {}

    /// Pools with compressed data.
    fn compressed(&self) -> BTreeMap<PoolId, PoolSpace> {
        BTreeMap::new()
    }

    /// Space left and used.
    fn space(&self) -> Space;

    /// Bytes of the device, and those that may still be used: asked before each write.
    fn room(&self) -> (u64, u64) {
        let space = self.space();
        (space.total, space.available)
    }
}
