//! The engine `store` behind the OSD's [`ObjectStore`].

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use bytes::Bytes;
use messages::{Mutation, ObjectChange};
use store::{Compression, Seq, Store, Transaction};
use types::{HObject, PoolId, SpgId};

use crate::DataCache;
use crate::backing::{Coll, Fetched, ObjectStore, PoolSpace, Space, StoreError, StoreOp};
use crate::compression;

/// A [`Store`] and the tickets of what is on its way to the disk.
pub struct StoreBacking {
    store: Store,
    cache: DataCache,
    open: VecDeque<(Seq, u64)>,
    /// Why it takes no more transactions: the OSD has to stop.
    refused: Option<StoreError>,
    compress: BTreeMap<PoolId, Compression>,
}

impl From<Coll> for store::Coll {
    fn from(c: Coll) -> Self {
        match c {
            Coll::Meta => Self::Meta,
            Coll::Pg(pg) => Self::Pg(pg),
        }
    }
}

/// What is not there reads as nothing.
fn absent<T>(r: Result<T, store::StoreError>) -> Result<Option<T>, StoreError> {
    use store::StoreError as E;
    match r {
        Ok(x) => Ok(Some(x)),
        Err(E::NoObject(_) | E::NoCollection(_)) => Ok(None),
        Err(e) => Err(StoreError(e.to_string())),
    }
}

fn later(f: store::Fetch) -> Fetched {
    match f {
        store::Fetch::Ready(data) => Fetched::Here(data),
        store::Fetch::Later(id) => Fetched::Later(id),
    }
}

impl StoreBacking {
    /// Takes over an open store, whose data `cache` keeps in memory.
    #[must_use]
    pub fn new(store: Store, cache: DataCache) -> Self {
        Self { store, cache, open: VecDeque::new(), refused: None, compress: BTreeMap::new() }
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The store; for worlds that play its device. What is submitted here has no ticket.
    pub fn store_mut(&mut self) -> &mut Store {
        &mut self.store
    }

    /// Gives the store back; for closing it.
    #[must_use]
    pub fn into_inner(self) -> Store {
        self.store
    }

    fn apply(&self, txn: &mut Transaction, op: StoreOp) {
        match &op {
            StoreOp::Object(Coll::Pg(pg), o, mutations) => {
                mutations.iter().for_each(|m| self.cache.on_change(*pg, o, m));
            }
            // Of a split, what stays would stay right; what moves is not worth telling apart.
            StoreOp::Split(Coll::Pg(pg), ..)
            | StoreOp::Merge(Coll::Pg(pg), _)
            | StoreOp::Drop(Coll::Pg(pg)) => {
                self.cache.on_drop(*pg);
            }
            _ => {}
        }
        match op {
            StoreOp::Create(c) => {
                if !self.store.collection_exists(c) {
                    txn.create_collection(c);
                }
            }
            StoreOp::Drop(c) => {
                if self.store.collection_exists(c) {
                    txn.remove_collection(c);
                }
            }
            StoreOp::Put(c, k, v) => {
                txn.coll_set(c, k, v);
            }
            StoreOp::Rm(c, k) => {
                txn.coll_rm(c, k);
            }
            StoreOp::RmRange(c, a, b) => {
                txn.coll_rm_range(c, a, b);
            }
            StoreOp::Split(from, to, bits) => {
                txn.split_collection(from, to, bits);
            }
            StoreOp::Merge(from, to) => {
                txn.merge_collection(from, to);
            }
            StoreOp::TakesBack => {
                txn.take_back();
            }
            StoreOp::Object(c, o, mutations) => {
                let c = c.into();
                if self.compress.contains_key(&o.pool) {
                    txn.expect(c, &o, compression::hint(&mutations));
                }
                for m in mutations {
                    if let Mutation::Write { data, .. } = &m
                        && let Some(sums) = self.cache.sums_of(data)
                    {
                        txn.know_sums(data, &sums);
                    }
                    mutate(txn, c, &o, m);
                }
            }
        }
    }
}

fn mutate(txn: &mut Transaction, c: store::Coll, o: &HObject, m: Mutation) {
    match m {
        Mutation::Touch => txn.touch(c, o),
        Mutation::Write { off, data } => txn.write(c, o, off, data),
        Mutation::Zero { off, len } => txn.zero(c, o, off, len),
        Mutation::Truncate(size) => txn.truncate(c, o, size),
        Mutation::Remove => txn.remove(c, o),
        Mutation::SetAttr(name, value) => txn.set_attr(c, o, name, value),
        Mutation::RmAttr(name) => txn.rm_attr(c, o, name),
        Mutation::OmapHeader(header) => txn.omap_set_header(c, o, header),
        Mutation::OmapSet(pairs) => txn.omap_set(c, o, pairs),
        Mutation::OmapRm(keys) => txn.omap_rm_keys(c, o, keys),
        Mutation::OmapRmRange(a, b) => txn.omap_rm_range(c, o, a, b),
        Mutation::OmapClear => txn.omap_clear(c, o),
        Mutation::CloneFrom(src) => txn.clone_object(c, &src, o),
        Mutation::Was { .. } => return,
        Mutation::CloneRange { from, off, len } => txn.clone_range(c, &from, o, off, len, off),
    };
}

impl ObjectStore for StoreBacking {
    fn memory(&self) -> Vec<(&'static str, usize, u64)> {
        let m = self.store.memory();
        vec![
            ("bluestore_cache_data", self.cache.objects(), self.cache.bytes() as u64),
            ("bluestore_cache_onode", m.onodes.0, m.onodes.1),
            ("bluestore_cache_meta", m.tables.0, m.tables.1 + m.indices),
            ("bluestore_txc", m.changes.0, m.changes.1),
            ("bluestore_writing", m.flight.0, m.flight.1),
        ]
    }

    fn poll(&mut self) -> Result<Option<u64>, StoreError> {
        if let Some(e) = &self.refused {
            return Err(e.clone());
        }
        #[cfg(any(test, fuzzing))]
        while self.store.step() || self.store.step_checkpoint() {}
        let durable = self.store.complete().map_err(|e| StoreError(e.to_string()))?;
        let mut newest = None;
        while self.open.front().is_some_and(|(seq, _)| *seq <= durable) {
            newest = self.open.pop_front().map(|(_, ticket)| ticket);
        }
        Ok(newest)
    }

    fn is_stopped(&self) -> bool {
        self.refused.is_some()
    }

    /// A transaction for which the store or its log has no room, or which it can no longer write, is
    /// the last: no later one is taken, none comes back durable, and [`ObjectStore::poll`] tells the
    /// OSD to stop. So nothing is acknowledged that is not there.
    ///
    /// # Panics
    /// When the transaction is wrong: a stopped OSD loses less than one that believes in
    /// writes that are nowhere.
    fn submit(&mut self, ops: Vec<StoreOp>, ticket: u64) {
        if self.refused.is_some() {
            return;
        }
        let mut txn = Transaction::new();
        for op in ops {
            self.apply(&mut txn, op);
        }
        match self.store.submit(txn) {
            Ok(seq) => self.open.push_back((seq, ticket)),
            Err(
                e @ (store::StoreError::NoSpace { .. }
                | store::StoreError::TooLarge { .. }
                | store::StoreError::Io { .. }
                | store::StoreError::Stopped(_)),
            ) => self.refused = Some(StoreError(format!("no more writes: {e}"))),
            Err(e) => panic!("the store refused a transaction: {e}"),
        }
    }

    fn kick(&mut self) {
        self.store.kick();
    }

    fn spill(&mut self, least: u64) {
        if self.refused.is_none()
            && let Err(e) = self.store.spill(least)
        {
            self.refused = Some(StoreError(format!("no more writes: {e}")));
        }
    }

    fn kick_reads(&mut self) {
        self.store.kick_reads();
    }

    fn at_hand(&self, c: Coll, o: &HObject, off: u64, len: u64) -> Option<Bytes> {
        let Coll::Pg(pg) = c else { return None };
        self.cache.read(pg, o, off, len)
    }

    fn note_sent(&mut self, shard: SpgId, change: &ObjectChange, coding: bool) {
        change.mutations.iter().for_each(|m| self.cache.on_sent(shard, &change.oid, m, coding));
    }

    fn sent_at_hand(&self, shard: SpgId, o: &HObject, off: u64, len: u64) -> Option<Bytes> {
        self.cache.read_sent(shard, o, off, len)
    }

    fn forget_sent(&mut self, shard: SpgId) {
        self.cache.forget_sent(shard);
    }

    fn read(&self, c: Coll, o: &HObject, off: u64, len: u64) -> Result<Option<Bytes>, StoreError> {
        if let Some(data) = self.at_hand(c, o, off, len) {
            return Ok(Some(data));
        }
        absent(self.store.read(c, o, off, len))
    }

    fn fetch(
        &mut self,
        c: Coll,
        o: &HObject,
        off: u64,
        len: u64,
    ) -> Result<Option<Fetched>, StoreError> {
        if let Some(data) = self.at_hand(c, o, off, len) {
            return Ok(Some(Fetched::Here(data)));
        }
        Ok(absent(self.store.fetch(c, o, off, len))?.map(later))
    }

    fn fetch_gently(
        &mut self,
        c: Coll,
        o: &HObject,
        off: u64,
        len: u64,
    ) -> Result<Option<Fetched>, StoreError> {
        if let Some(data) = self.at_hand(c, o, off, len) {
            return Ok(Some(Fetched::Here(data)));
        }
        Ok(absent(self.store.fetch_gently(c, o, off, len))?.map(later))
    }

    fn stage(&mut self, pool: PoolId, data: &Bytes) -> Option<Fetched> {
        if self.compress.contains_key(&pool) {
            return None; // other bytes are written
        }
        match self.store.stage(data) {
            Ok(staged) => staged.map(later),
            // The transaction meets what it is.
            Err(e) => {
                tracing::warn!("data is not written ahead: {e}");
                None
            }
        }
    }

    fn unstage(&mut self, data: &Bytes) {
        self.store.unstage(data);
    }

    fn fetch_verified(
        &mut self,
        c: Coll,
        o: &HObject,
        off: u64,
        len: u64,
    ) -> Result<Option<Fetched>, StoreError> {
        Ok(absent(self.store.fetch_device(c, o, off, len))?.map(later))
    }

    fn size(&self, c: Coll, o: &HObject) -> Result<Option<u64>, StoreError> {
        Ok(absent(self.store.stat(c, o))?.map(|s| s.size))
    }

    fn fetched(&mut self) -> Option<(u64, Result<Bytes, StoreError>)> {
        let (id, read) = self.store.fetched_with_sums()?;
        let read = read.map(|(data, sums)| {
            sums.iter().for_each(|sums| self.cache.note_sums(&data, sums));
            data
        });
        Some((id, read.map_err(|e| StoreError(e.to_string()))))
    }

    fn attr(&self, c: Coll, o: &HObject, name: &[u8]) -> Result<Option<Bytes>, StoreError> {
        Ok(absent(self.store.get_attr(c, o, name))?.flatten())
    }

    fn attrs(&self, c: Coll, o: &HObject) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        Ok(absent(self.store.get_attrs(c, o))?.unwrap_or_default().into_iter().collect())
    }

    fn attrs_bytes(&self, c: Coll, o: &HObject) -> Result<u64, StoreError> {
        Ok(absent(self.store.attrs_bytes(c, o))?.unwrap_or_default())
    }

    fn omap_header(&self, c: Coll, o: &HObject) -> Result<Bytes, StoreError> {
        Ok(absent(self.store.omap_get_header(c, o))?.unwrap_or_default())
    }

    fn omap_get(&self, c: Coll, o: &HObject, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let keys = [Bytes::copy_from_slice(key)];
        let found = absent(self.store.omap_get_keys(c, o, &keys))?.unwrap_or_default();
        Ok(found.into_values().next())
    }

    fn omap_walk(
        &self,
        c: Coll,
        o: &HObject,
        from: &[u8],
        each: &mut dyn FnMut(&[u8], &Bytes) -> bool,
    ) -> Result<(), StoreError> {
        absent(self.store.omap_walk(c, o, Bound::Included(from), each)).map(drop)
    }

    fn list(&self, c: Coll, from: &HObject, max: usize) -> Result<Vec<HObject>, StoreError> {
        Ok(absent(self.store.list(c, from, max))?.map(|l| l.objects).unwrap_or_default())
    }

    fn get(&self, c: Coll, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        Ok(absent(self.store.coll_get(c, key))?.flatten())
    }

    fn walk(
        &self,
        c: Coll,
        from: &[u8],
        to: &[u8],
        each: &mut dyn FnMut(&[u8], &Bytes) -> bool,
    ) -> Result<(), StoreError> {
        let (from, to) = (Bound::Included(from), Bound::Excluded(to));
        absent(self.store.coll_walk(c, from, to, each)).map(drop)
    }

    fn collections(&self) -> Vec<Coll> {
        self.store
            .list_collections()
            .into_iter()
            .map(|c| match c {
                store::Coll::Meta => Coll::Meta,
                store::Coll::Pg(spg) => Coll::Pg(spg),
            })
            .collect()
    }

    fn record_max(&self) -> u64 {
        self.store.record_max()
    }

    fn cut_takes(&self, pool: PoolId) -> u64 {
        let packed = || self.store.statfs().pools.get(&pool).is_some_and(|s| s.uncompressed > 0);
        if self.compress.contains_key(&pool) || packed() { self.store.cut_max() } else { 0 }
    }

    fn compress(&mut self, pools: &BTreeMap<PoolId, Compression>) {
        for pool in self.compress.keys().chain(pools.keys()) {
            self.store.set_compression(*pool, pools.get(pool).copied());
        }
        self.compress.clone_from(pools);
    }

    fn compressed(&self) -> BTreeMap<PoolId, PoolSpace> {
        let pools = self.store.statfs().pools.into_iter();
        pools
            .filter(|(_, s)| s.uncompressed > 0)
            .map(|(pool, s)| {
                let (compressed, uncompressed) = (s.compressed, s.uncompressed);
                (pool, PoolSpace { compressed, uncompressed })
            })
            .collect()
    }

    fn room(&self) -> (u64, u64) {
        self.store.room()
    }

    fn space(&self) -> Space {
        let s = self.store.statfs();
        Space {
            total: s.total,
            available: s.available,
            data: s.allocated,
            stored: s.stored,
            omap: s.omap,
            internal: s.internal,
        }
    }
}
