//! Snapshots of an image: made, removed, protected, gone back to.
//!
//! Source: the peer's `librbd/operation/Snapshot*Request.cc`, `object_map/Snapshot*.cc`.

use std::collections::BTreeSet;

use bytes::Bytes;
use cls::client::{ChildSpec, SnapKind, feature, state};
use denc::Denc;
use rados::WriteOp;
use types::SnapId;

use crate::calls::{self, tell};
use crate::error::{EBUSY, EEXIST, ESTALE, Error, Result, absent, is};
use crate::image::{Image, check_name};
use crate::lock::Owned;
use crate::names;

const UNPROTECTED: u8 = 0;
const UNPROTECTING: u8 = 1;
const PROTECTED: u8 = 2;

impl Image {
    /// Makes a snapshot; its number.
    ///
    /// # Errors
    /// [`Error::Exists`].
    pub async fn create_snap(&self, name: &str) -> Result<u64> {
        check_name("a snapshot", name)?;
        self.create_snap_of(name, SnapKind::User).await
    }

    /// Makes a snapshot for what it is for.
    pub(crate) async fn create_snap_of(&self, name: &str, kind: SnapKind) -> Result<u64> {
        let owned = self.enter_alone().await?;
        if self.header().snap(name).is_ok() {
            return Err(Error::Exists(name.to_owned()));
        }
        let id = loop {
            let id = self.data_io().create_own_snap().await?;
            match self.add_snap(name, id.0, kind.clone()).await {
                Ok(()) => break id,
                Err(err) => {
                    self.data_io().remove_own_snap(id).await?;
                    match err {
                        Error::Rados(err) if is(&err, EEXIST) => {
                            return Err(Error::Exists(name.to_owned()));
                        }
                        // Another snapshot was faster: ours must be newer than it.
                        Error::Rados(err) if is(&err, ESTALE) => {}
                        other => return Err(other),
                    }
                }
            }
        };
        self.snap_object_map(&owned, id.0).await?;
        self.refresh().await?;
        drop(owned);
        self.tell_update().await?;
        Ok(id.0)
    }

    async fn add_snap(&self, name: &str, id: u64, kind: SnapKind) -> Result<()> {
        let params = ((calls::text(name), id), kind);
        let head = self.header_object();
        let Err(err) = calls::set(self.io(), &head, "snapshot_add", params).await else {
            return Ok(());
        };
        // It may be there by a request whose answer was lost.
        self.refresh().await?;
        if self.header().snaps.iter().any(|s| s.id == id) { Ok(()) } else { Err(err.into()) }
    }

    /// The snapshot's object map is the image's as it is now; in that one, what is there is
    /// clean from now on.
    async fn snap_object_map(&self, owned: &Owned, snap: u64) -> Result<()> {
        if owned.map.borrow().is_none() {
            return Ok(());
        }
        let map = names::object_map(self.id(), None);
        let raw = self.io().read(&map, 0, 0).await?;
        self.io().write_full(&names::object_map(self.id(), Some(snap)), raw).await?;
        if !self.header().has(feature::FAST_DIFF) {
            return Ok(());
        }
        let mut op = WriteOp::new();
        calls::assert_locked(&mut op);
        op.exec("rbd", "object_map_snap_add", b"");
        self.io().write_op(&map, op).await?;
        if let Some(map) = owned.map.borrow_mut().as_mut() {
            for i in 0..map.count() {
                if map.state(i) == state::EXISTS {
                    map.set_state(i, state::EXISTS_CLEAN);
                }
            }
        }
        Ok(())
    }

    /// Removes a snapshot. One with clones of the second kind goes to the image's own trash,
    /// and with its last clone.
    ///
    /// # Errors
    /// [`Error::NoSnap`]; [`Error::Busy`] when it is protected.
    pub async fn remove_snap(&self, name: &str) -> Result<()> {
        self.check_writable()?;
        self.refresh().await?;
        let snap = self.header().snap(name)?.clone();
        if snap.is_protected() {
            return Err(Error::Busy(format!("snapshot '{name}' is protected")));
        }
        if snap.children == 0 {
            return self.remove_snap_id(snap.id).await;
        }
        let owned = self.enter_alone().await?;
        let head = self.header_object();
        calls::set(self.io(), &head, "snapshot_trash_add", snap.id).await?;
        self.refresh().await?;
        drop(owned);
        self.tell_update().await
    }

    /// Removes a snapshot by its number, whatever it is for.
    pub(crate) async fn remove_snap_id(&self, id: u64) -> Result<()> {
        let owned = self.enter_alone().await?;
        let head = self.header_object();
        if self.header().has(feature::OBJECT_MAP) {
            self.remove_snap_map(&owned, id).await?;
        }
        // The parent knows this clone as long as it or any of its snapshots shows it.
        let last_to_show = {
            let header = self.header();
            let shows = |s: &&crate::Snapshot| s.overlap.is_some();
            let mut others = header.snaps.iter().filter(|s| s.id != id).filter(shows);
            let own = header.snaps.iter().any(|s| s.id == id && s.overlap.is_some());
            own && others.next().is_none() && header.overlap.is_none()
        };
        if last_to_show {
            self.detach_from_parent().await?;
        }
        match calls::set(self.io(), &head, "snapshot_remove", id).await {
            Err(err) if is(&err, EBUSY) => {
                return Err(Error::Busy(format!("snapshot {id} has clones or is protected")));
            }
            other => absent(other)?,
        };
        self.data_io().remove_own_snap(SnapId(id)).await?;
        self.refresh().await?;
        drop(owned);
        self.tell_update().await
    }

    /// The next newer map takes over what only this snapshot had seen change.
    async fn remove_snap_map(&self, owned: &Owned, id: u64) -> Result<()> {
        let own = names::object_map(self.id(), Some(id));
        if self.header().has(feature::FAST_DIFF) {
            let next = self.header().snaps.iter().map(|s| s.id).find(|other| *other > id);
            if let Err(err) = self.merge_snap_map(owned, id, next).await {
                tracing::warn!("image {}: object map of snapshot {id}: {err}", self.id());
                self.invalidate_map(next).await?;
            }
        }
        absent(self.io().remove(&own).await)?;
        Ok(())
    }

    async fn merge_snap_map(&self, owned: &Owned, id: u64, next: Option<u64>) -> Result<()> {
        let map = self.load_object_map(Some(id)).await?;
        let mut op = WriteOp::new();
        if next.is_none() {
            calls::assert_locked(&mut op);
        }
        tell(&mut op, "object_map_snap_remove", map.clone());
        self.io().write_op(&names::object_map(self.id(), next), op).await?;
        if next.is_some() {
            return Ok(());
        }
        if let Some(head) = owned.map.borrow_mut().as_mut() {
            for i in 0..head.count() {
                let changed = i >= map.count() || map.state(i) == state::EXISTS;
                if changed && head.state(i) == state::EXISTS_CLEAN {
                    head.set_state(i, state::EXISTS);
                }
            }
        }
        Ok(())
    }

    /// Gives a snapshot another name.
    ///
    /// # Errors
    /// [`Error::NoSnap`], [`Error::Exists`].
    pub async fn rename_snap(&self, from: &str, to: &str) -> Result<()> {
        check_name("a snapshot", to)?;
        self.check_writable()?;
        let id = self.header().snap(from)?.id;
        let head = self.header_object();
        match calls::set(self.io(), &head, "snapshot_rename", (id, calls::text(to))).await {
            Err(err) if is(&err, EEXIST) => return Err(Error::Exists(to.to_owned())),
            other => other?,
        }
        self.refresh().await?;
        self.tell_update().await
    }

    async fn set_protection(&self, id: u64, protection: u8) -> Result<()> {
        let head = self.header_object();
        calls::set(self.io(), &head, "set_protection_status", (id, protection)).await?;
        self.refresh().await?;
        self.tell_update().await
    }

    /// Keeps a snapshot from being removed: clones of the first kind need it.
    ///
    /// # Errors
    /// [`Error::NoSnap`].
    pub async fn protect_snap(&self, name: &str) -> Result<()> {
        self.check_writable()?;
        if !self.header().has(feature::LAYERING) {
            return Err(Error::Unsupported("clones of an image without layering".to_owned()));
        }
        let snap = self.header().snap(name)?.clone();
        if snap.is_protected() {
            return Err(Error::Busy(format!("snapshot '{name}' is protected already")));
        }
        self.set_protection(snap.id, PROTECTED).await
    }

    /// Ends the protection, when no pool has clones of the snapshot.
    ///
    /// # Errors
    /// [`Error::Busy`] with the clones.
    pub async fn unprotect_snap(&self, name: &str) -> Result<()> {
        self.check_writable()?;
        let snap = self.header().snap(name)?.clone();
        if !snap.is_protected() {
            return Err(Error::Invalid(format!("snapshot '{name}' is not protected")));
        }
        // From here on no clone is made: looking for them misses none.
        self.set_protection(snap.id, UNPROTECTING).await?;
        match self.child_names(snap.id).await {
            Ok(found) if found.is_empty() => self.set_protection(snap.id, UNPROTECTED).await,
            other => {
                self.set_protection(snap.id, PROTECTED).await?;
                let found: Vec<String> =
                    other?.iter().map(|(pool, _, name)| format!("{pool}/{name}")).collect();
                Err(Error::Busy(format!("snapshot '{name}' has the clones {}", found.join(", "))))
            }
        }
    }

    /// Clones of a snapshot, of both kinds: of the first in all pools.
    ///
    /// # Errors
    /// EACCES when this client may not read one of the pools; as the cluster says.
    pub async fn children(&self, snap: u64) -> Result<Vec<ChildSpec>> {
        let head = self.header_object();
        let found: Option<Vec<ChildSpec>> =
            absent(calls::get(self.io(), &head, "children_list", &snap.to_bytes()).await)?;
        let mut children = found.unwrap_or_default();
        let cluster = self.io().cluster().clone();
        let pools: Vec<_> = cluster.map().pools.keys().copied().collect();
        let key = ((self.io().pool_id().0, calls::text(self.id())), snap).to_bytes();
        for pool in pools {
            let nspace = self.io().nspace().clone();
            let io = cluster.pool_by_id(pool).namespace(nspace.clone());
            let ids: Option<BTreeSet<Bytes>> =
                absent(calls::get(&io, names::CHILDREN, "get_children", &key).await)?;
            let spec = |image| ChildSpec { pool: pool.0, image, nspace: nspace.clone() };
            children.extend(ids.unwrap_or_default().into_iter().map(spec));
        }
        Ok(children)
    }

    /// Makes the image what it was in a snapshot. `progress` is told of objects done, of all.
    ///
    /// # Errors
    /// [`Error::NoSnap`].
    pub async fn rollback(&self, name: &str, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        const BATCH: u64 = 256;
        let owned = self.enter_alone().await?;
        let snap = self.header().snap(name)?.clone();
        if self.size() != snap.size {
            self.resize_locked(&owned, snap.size, &mut |_, _| {}).await?;
        }
        let count = self.layout().object_count(snap.size);
        self.mark_for_rollback(&owned, snap.id, count).await?;
        let io = self.data_io().with_snaps(self.header().snap_context());
        let mut at = 0;
        while at < count {
            let next = (at + BATCH).min(count);
            let numbers: Vec<u64> = (at..next).filter(|i| owned.may_exist(*i)).collect();
            let (image, io, id) = (self.clone(), io.clone(), SnapId(snap.id));
            let gone: Vec<Option<u64>> = crate::io::each(numbers, move |i| {
                let (image, io) = (image.clone(), io.clone());
                async move {
                    let name = image.object(i);
                    absent(io.rollback(&name, id).await)?;
                    let is_there = absent(io.stat(&name).await)?.is_some();
                    Ok((!is_there).then_some(i))
                }
            })
            .await?;
            for i in gone.into_iter().flatten() {
                self.mark(&owned, i, i + 1, state::PENDING).await?;
                self.mark(&owned, i, i + 1, state::NONEXISTENT).await?;
            }
            at = next;
            progress(at, count);
        }
        self.refresh().await?;
        drop(owned);
        self.tell_update().await
    }

    /// All that was there or is may differ from the newest snapshot afterwards.
    async fn mark_for_rollback(&self, owned: &Owned, snap: u64, count: u64) -> Result<()> {
        if owned.map.borrow().is_none() {
            return Ok(());
        }
        match self.load_object_map(Some(snap)).await {
            Ok(old) => {
                for i in 0..count {
                    if old.state(i) != state::NONEXISTENT || owned.may_exist(i) {
                        self.mark(owned, i, i + 1, state::EXISTS).await?;
                    }
                }
            }
            Err(err) => {
                tracing::warn!("image {}: object map: {err}", self.id());
                self.invalidate_map(None).await?;
                owned.map.borrow_mut().take();
            }
        }
        Ok(())
    }
}
