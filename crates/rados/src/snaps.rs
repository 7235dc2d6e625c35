//! Snapshots: of a pool, made by the monitors and the same for all; or of a client's own
//! making, where the client says at each write which snapshots there are.
//!
//! ```no_run
//! # async fn f(io: rados::IoCtx) -> Result<(), rados::Error> {
//! use rados::SnapContext;
//!
//! let snap = io.create_own_snap().await?;
//! let io = io.with_snaps(SnapContext { seq: snap, snaps: vec![snap] });
//! io.write_full(b"object", "new".into()).await?;
//! println!("before: {:?}", io.at_snap(snap).read(b"object", 0, 100).await?);
//! io.rollback(b"object", snap).await?;
//! io.remove_own_snap(snap).await?;
//! # Ok(()) }
//! ```

use denc::{Features, Reader};
use messages::{Message, PoolOp, PoolOpReply, pool_op};
use types::{SnapId, UTime};

use crate::error::{Error, Result};
use crate::{IoCtx, WriteOp};

/// Which snapshots the objects that a client writes are in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapContext {
    /// The newest snapshot there has ever been.
    pub seq: SnapId,
    /// Those that exist, newest first.
    pub snaps: Vec<SnapId>,
}

/// A snapshot of a whole pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSnap {
    /// Its number.
    pub id: SnapId,
    /// Its name.
    pub name: String,
    /// When it was made.
    pub time: UTime,
}

impl IoCtx {
    async fn pool_op(&self, op: u32, snap: SnapId, name: &str) -> Result<PoolOpReply> {
        let message = PoolOp {
            fsid: self.cluster().map().fsid,
            pool: self.pool_id().0 as u32,
            op,
            snapid: snap,
            name: name.to_owned(),
            ..PoolOp::default()
        };
        let answer = self.cluster().0.ask_mon(message.envelope(Features::ALL)).await?;
        let reply = PoolOpReply::decode(&answer)?;
        if reply.r < 0 {
            return Err(Error::errno(&format!("pool {}", self.pool_id()), reply.r));
        }
        self.cluster().0.wait_map(reply.epoch).await.map_err(|_| Error::Gone)?;
        Ok(reply)
    }

    /// A new number for a snapshot of this client's own. The pool can have no snapshots made
    /// by [`IoCtx::create_pool_snap`] then, nor the other way round: EINVAL.
    ///
    /// # Errors
    /// [`Error::Errno`] as the monitors say.
    pub async fn create_own_snap(&self) -> Result<SnapId> {
        let reply = self.pool_op(pool_op::CREATE_UNMANAGED_SNAP, SnapId(0), "").await?;
        let data = reply.data.unwrap_or_default();
        Ok(SnapId(Reader::new(&data).u64()?))
    }

    /// Gives a number back; the OSDs free what only that snapshot shows.
    ///
    /// # Errors
    /// ENOENT for a number that was never given out.
    pub async fn remove_own_snap(&self, snap: SnapId) -> Result<()> {
        self.pool_op(pool_op::DELETE_UNMANAGED_SNAP, snap, "").await.map(drop)
    }

    /// Makes an object what it was in a snapshot; one that was not there then is removed.
    ///
    /// # Errors
    /// As [`IoCtx::write_op`].
    pub async fn rollback(&self, object: &[u8], snap: SnapId) -> Result<()> {
        let mut op = WriteOp::new();
        op.rollback(snap);
        self.write_op(object, op).await.map(drop)
    }

    /// Makes a snapshot of the pool.
    ///
    /// # Errors
    /// EEXIST; EINVAL in a pool with snapshots of clients' own.
    pub async fn create_pool_snap(&self, name: &str) -> Result<()> {
        self.pool_op(pool_op::CREATE_SNAP, SnapId(0), name).await.map(drop)
    }

    /// Removes one.
    ///
    /// # Errors
    /// ENOENT.
    pub async fn remove_pool_snap(&self, name: &str) -> Result<()> {
        self.pool_op(pool_op::DELETE_SNAP, SnapId(0), name).await.map(drop)
    }

    /// The pool's snapshots, oldest first.
    #[must_use]
    pub fn pool_snaps(&self) -> Vec<PoolSnap> {
        let map = self.cluster().map();
        let snaps = map.pool(self.pool_id()).into_iter().flat_map(|p| p.snaps.values());
        snaps.map(|s| PoolSnap { id: s.id, name: s.name.clone(), time: s.stamp }).collect()
    }

    /// Whether a number was given back and its traces are being removed.
    #[must_use]
    pub fn is_removed_snap(&self, snap: SnapId) -> bool {
        let map = self.cluster().map();
        map.removed_snaps_queue.get(&self.pool_id()).is_some_and(|q| q.contains(snap.0))
    }
}
