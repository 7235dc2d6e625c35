//! Objects of a pool: single calls, and operations put together.

use std::collections::BTreeMap;

use bytes::Bytes;
use messages::{MOsdOpReply, OsdOp, req_flag};
use osdc::Request;
use tokio::sync::oneshot;
use types::{HObject, PoolId, SnapId, UTime};

use crate::error::{Error, Result};
use crate::snaps::SnapContext;
use crate::{Cluster, ObjectStat, ReadOp, Reply, Slot, WriteOp};

/// A pool, a namespace in it, a locator key, and the snapshots to write into or to read.
/// Copies are cheap; each method that changes one of these gives another value.
#[derive(Clone)]
pub struct IoCtx {
    cluster: Cluster,
    pool: PoolId,
    nspace: Bytes,
    key: Bytes,
    snap: SnapId,
    snaps: SnapContext,
    /// Added to the flags of every write.
    write_flags: u32,
}

/// The answer to an operation that was sent already. Who drops it does not stop the operation.
pub struct Pending {
    what: Bytes,
    answered: oneshot::Receiver<Result<MOsdOpReply>>,
}

impl Pending {
    /// Waits for the answer.
    ///
    /// # Errors
    /// [`Error::Errno`] of the first step that failed and was not allowed to; [`Error::Gone`].
    pub async fn answer(self) -> Result<Reply> {
        checked(&self.what, self.answered.await.map_err(|_| Error::Gone)??)
    }
}

impl IoCtx {
    pub(crate) fn new(cluster: Cluster, pool: PoolId) -> Self {
        let (nspace, key, snaps) = (Bytes::new(), Bytes::new(), SnapContext::default());
        Self { cluster, pool, nspace, key, snap: SnapId::HEAD, snaps, write_flags: 0 }
    }

    /// The pool's id.
    #[must_use]
    pub fn pool_id(&self) -> PoolId {
        self.pool
    }

    /// The client it belongs to.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The namespace; empty is the default one.
    #[must_use]
    pub fn nspace(&self) -> &Bytes {
        &self.nspace
    }

    /// The same pool, another namespace. `\x01` is all of them, in listings.
    #[must_use]
    pub fn namespace(&self, nspace: impl Into<Bytes>) -> Self {
        Self { nspace: nspace.into(), ..self.clone() }
    }

    /// Objects are placed by this key instead of their names; empty for the names.
    #[must_use]
    pub fn locator(&self, key: impl Into<Bytes>) -> Self {
        Self { key: key.into(), ..self.clone() }
    }

    /// Reads show the objects as they were in a snapshot; [`SnapId::HEAD`] is now.
    #[must_use]
    pub fn at_snap(&self, snap: SnapId) -> Self {
        Self { snap, ..self.clone() }
    }

    /// Writes keep what these snapshots show. In pools with snapshots of their own the
    /// empty context means these.
    #[must_use]
    pub fn with_snaps(&self, snaps: SnapContext) -> Self {
        Self { snaps, ..self.clone() }
    }

    /// Writes go on while the cluster or the pool is full (`FULL_FORCE`), as those of metadata
    /// servers must: without them nothing could be removed. OSDs without any room refuse them all
    /// the same.
    #[must_use]
    pub fn even_full(&self) -> Self {
        Self { write_flags: req_flag::FULL_FORCE, ..self.clone() }
    }

    fn begin(&self, object: HObject, name: &[u8], ops: Vec<OsdOp>, flags: u32) -> Pending {
        let request = self.request(object, None, ops, flags);
        let answered = self.cluster.0.begin(request);
        Pending { what: Bytes::copy_from_slice(name), answered }
    }

    /// As [`IoCtx::read_op`], sent before this returns: of operations on one object those that were
    /// begun first are executed first.
    #[must_use]
    pub fn begin_read(&self, name: &[u8], op: ReadOp) -> Pending {
        let object = self.object(name).with_snap(self.snap);
        self.begin(object, name, op.ops, req_flag::READ)
    }

    /// As [`IoCtx::write_op`], sent before this returns: see [`IoCtx::begin_read`].
    #[must_use]
    pub fn begin_write(&self, name: &[u8], op: WriteOp) -> Pending {
        let returns = if op.return_results { req_flag::RETURNVEC } else { 0 };
        self.begin(self.object(name), name, op.ops, req_flag::WRITE | returns)
    }

    pub(crate) fn object(&self, name: &[u8]) -> HObject {
        let (nspace, key) = (self.nspace.clone(), self.key.clone());
        HObject::head(self.pool, nspace, key, Bytes::copy_from_slice(name))
    }

    pub(crate) async fn submit(
        &self,
        object: HObject,
        pg: Option<u32>,
        ops: Vec<OsdOp>,
        flags: u32,
    ) -> Result<MOsdOpReply> {
        self.submit_at(object, pg, ops, flags, None).await
    }

    async fn submit_at(
        &self,
        object: HObject,
        pg: Option<u32>,
        ops: Vec<OsdOp>,
        flags: u32,
        mtime: Option<UTime>,
    ) -> Result<MOsdOpReply> {
        let mut request = self.request(object, pg, ops, flags);
        if request.flags & req_flag::WRITE != 0 {
            request.mtime = mtime.unwrap_or(request.mtime);
        }
        self.cluster.0.submit(request).await
    }

    fn request(&self, object: HObject, pg: Option<u32>, ops: Vec<OsdOp>, flags: u32) -> Request {
        let write = flags & req_flag::WRITE != 0;
        let flags = if write { flags | self.write_flags } else { flags };
        let mtime = if write { UTime::from_nanos(rt::now().wall_ns) } else { UTime::ZERO };
        let snaps = if write { self.write_snaps() } else { (SnapId(0), Vec::new()) };
        Request { object, pg, ops, flags, mtime, snaps }
    }

    fn write_snaps(&self) -> (SnapId, Vec<SnapId>) {
        if self.snaps != SnapContext::default() {
            return (self.snaps.seq, self.snaps.snaps.clone());
        }
        let map = self.cluster.map();
        match map.pool(self.pool).filter(|pool| !pool.snaps.is_empty()) {
            Some(pool) => (pool.snap_seq, pool.snaps.keys().rev().copied().collect()),
            None => (SnapId(0), Vec::new()),
        }
    }

    /// Runs reading steps on one object.
    ///
    /// # Errors
    /// [`Error::Errno`] of the first step that failed and was not allowed to.
    pub async fn read_op(&self, name: &[u8], op: ReadOp) -> Result<Reply> {
        let object = self.object(name).with_snap(self.snap);
        let reply = self.submit(object, None, op.ops, req_flag::READ).await?;
        checked(name, reply)
    }

    /// Runs writing steps on one object, all or nothing.
    ///
    /// # Errors
    /// As [`IoCtx::read_op`]; ESHUTDOWN when this client is blocklisted.
    pub async fn write_op(&self, name: &[u8], op: WriteOp) -> Result<Reply> {
        let returns = if op.return_results { req_flag::RETURNVEC } else { 0 };
        let flags = req_flag::WRITE | returns;
        let reply = self.submit_at(self.object(name), None, op.ops, flags, op.mtime).await?;
        checked(name, reply)
    }

    pub(crate) async fn raw_write(&self, name: &[u8], ops: Vec<OsdOp>) -> Result<Reply> {
        self.write_op(name, WriteOp { ops, ..WriteOp::default() }).await
    }

    async fn write_one(
        &self,
        name: &[u8],
        step: impl FnOnce(&mut WriteOp) -> &mut WriteOp,
    ) -> Result<()> {
        let mut op = WriteOp::new();
        step(&mut op);
        self.write_op(name, op).await.map(drop)
    }

    async fn read_one<T>(
        &self,
        name: &[u8],
        step: impl FnOnce(&mut ReadOp) -> Slot<T>,
    ) -> Result<T> {
        let mut op = ReadOp::new();
        let slot = step(&mut op);
        self.read_op(name, op).await?.get(slot)
    }

    /// Replaces the object's content.
    ///
    /// # Errors
    /// As [`IoCtx::write_op`].
    pub async fn write_full(&self, name: &[u8], data: Bytes) -> Result<()> {
        self.write_one(name, |op| op.write_full(data)).await
    }

    /// Writes at an offset.
    ///
    /// # Errors
    /// As [`IoCtx::write_op`].
    pub async fn write(&self, name: &[u8], off: u64, data: Bytes) -> Result<()> {
        self.write_one(name, |op| op.write(off, data)).await
    }

    /// Writes at the end.
    ///
    /// # Errors
    /// As [`IoCtx::write_op`].
    pub async fn append(&self, name: &[u8], data: Bytes) -> Result<()> {
        self.write_one(name, |op| op.append(data)).await
    }

    /// Makes the object; fails with EEXIST when it is there and `exclusive`.
    ///
    /// # Errors
    /// As [`IoCtx::write_op`].
    pub async fn create(&self, name: &[u8], exclusive: bool) -> Result<()> {
        self.write_one(name, |op| op.create(exclusive)).await
    }

    /// Cuts or extends.
    ///
    /// # Errors
    /// As [`IoCtx::write_op`].
    pub async fn truncate(&self, name: &[u8], size: u64) -> Result<()> {
        self.write_one(name, |op| op.truncate(size)).await
    }

    /// Removes the object.
    ///
    /// # Errors
    /// As [`IoCtx::write_op`]; ENOENT when there is none.
    pub async fn remove(&self, name: &[u8]) -> Result<()> {
        self.write_one(name, WriteOp::remove).await
    }

    /// Reads at most `len` bytes from `off`, fewer at the object's end.
    ///
    /// # Errors
    /// As [`IoCtx::read_op`].
    pub async fn read(&self, name: &[u8], off: u64, len: u64) -> Result<Bytes> {
        self.read_one(name, |op| op.read(off, len)).await
    }

    /// Size and time.
    ///
    /// # Errors
    /// As [`IoCtx::read_op`].
    pub async fn stat(&self, name: &[u8]) -> Result<ObjectStat> {
        self.read_one(name, ReadOp::stat).await
    }

    /// Calls a method that only reads; its output.
    ///
    /// # Errors
    /// As the method says; EOPNOTSUPP where there is none of that name.
    pub async fn exec(
        &self,
        name: &[u8],
        class: &str,
        method: &str,
        params: &[u8],
    ) -> Result<Bytes> {
        self.read_one(name, |op| op.exec(class, method, params)).await
    }

    /// Calls a method that writes, without output.
    ///
    /// # Errors
    /// As [`IoCtx::exec`].
    pub async fn exec_write(
        &self,
        name: &[u8],
        class: &str,
        method: &str,
        params: &[u8],
    ) -> Result<()> {
        let mut op = WriteOp::new();
        op.exec(class, method, params);
        self.write_op(name, op).await.map(drop)
    }

    /// Sets an attribute.
    ///
    /// # Errors
    /// As [`IoCtx::write_op`].
    pub async fn set_xattr(&self, name: &[u8], attr: &str, value: &[u8]) -> Result<()> {
        self.write_one(name, |op| op.set_xattr(attr, value)).await
    }

    /// One attribute.
    ///
    /// # Errors
    /// As [`IoCtx::read_op`]; ENODATA when it has none of that name.
    pub async fn get_xattr(&self, name: &[u8], attr: &str) -> Result<Bytes> {
        self.read_one(name, |op| op.get_xattr(attr)).await
    }

    /// All attributes.
    ///
    /// # Errors
    /// As [`IoCtx::read_op`].
    pub async fn get_xattrs(&self, name: &[u8]) -> Result<BTreeMap<Bytes, Bytes>> {
        self.read_one(name, ReadOp::get_xattrs).await
    }

    /// Sets omap pairs.
    ///
    /// # Errors
    /// As [`IoCtx::write_op`].
    pub async fn set_omap(&self, name: &[u8], pairs: BTreeMap<Bytes, Bytes>) -> Result<()> {
        self.write_one(name, |op| op.set_omap(&pairs)).await
    }

    /// Omap pairs behind `after`, at most `max`; whether there are more.
    ///
    /// # Errors
    /// As [`IoCtx::read_op`].
    pub async fn get_omap(
        &self,
        name: &[u8],
        after: &[u8],
        max: u64,
    ) -> Result<(BTreeMap<Bytes, Bytes>, bool)> {
        self.read_one(name, |op| op.get_omap(after, b"", max)).await
    }
}

fn checked(name: &[u8], reply: MOsdOpReply) -> Result<Reply> {
    let what = String::from_utf8_lossy(name).into_owned();
    if reply.result < 0 {
        return Err(Error::errno(&what, reply.result));
    }
    Ok(Reply::new(what, reply))
}
