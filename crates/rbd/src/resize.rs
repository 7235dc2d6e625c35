//! An image's size.
//!
//! Source: the peer's `librbd/operation/ResizeRequest.cc`, `TrimRequest.cc`.

use std::collections::BTreeMap;

use cls::client::state;
use rados::WriteOp;

use crate::calls::{self, tell};
use crate::error::{ENOENT, ESTALE, Result, absent, is};
use crate::image::Image;
use crate::lock::Owned;
use crate::names;

impl Image {
    /// Changes the size, in bytes; what is cut off is gone but for snapshots. `progress` is
    /// told of objects removed, of all. To shrink is the caller's own decision: nothing is
    /// asked here.
    ///
    /// # Errors
    /// As [`Image::write`].
    pub async fn resize(&self, size: u64, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        let owned = self.enter_alone().await?;
        self.resize_locked(&owned, size, progress).await?;
        drop(owned);
        self.tell_update().await
    }

    pub(crate) async fn resize_locked(
        &self,
        owned: &Owned,
        size: u64,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<()> {
        let (old, count) = (self.size(), self.layout().object_count(size));
        let head = self.header_object();
        if size >= old {
            // Objects must be known to the map before they can be written.
            self.resize_map(owned, count).await?;
            calls::set(self.io(), &head, "set_size", size).await?;
            return self.refresh().await;
        }
        self.cut(owned, size, old).await?;
        self.remove_objects(owned, count, progress).await?;
        calls::set(self.io(), &head, "set_size", size).await?;
        self.refresh().await?;
        self.resize_map(owned, count).await
    }

    /// Cuts the objects that stay and reach beyond the new end.
    async fn cut(&self, owned: &Owned, size: u64, old: u64) -> Result<()> {
        let set = self.layout().object_size() * self.layout().stripe_count();
        let end = size.div_ceil(set).saturating_mul(set).min(old);
        if end <= size {
            return Ok(());
        }
        let count = self.layout().object_count(size);
        let pieces = self.layout().pieces(size, end - size).into_iter();
        // Where each object's first byte beyond the end is.
        let mut cuts: BTreeMap<u64, u64> = BTreeMap::new();
        for piece in pieces.filter(|piece| piece.object < count) {
            let at = cuts.entry(piece.object).or_insert(piece.off);
            *at = piece.off.min(*at);
        }
        let io = self.data_io().with_snaps(self.header().snap_context());
        for (object, at) in cuts.into_iter().filter(|(object, _)| owned.may_exist(*object)) {
            self.mark(owned, object, object + 1, state::EXISTS).await?;
            let mut op = WriteOp::new();
            op.assert_exists().truncate(at);
            absent(io.write_op(&self.object(object), op).await)?;
        }
        Ok(())
    }

    async fn resize_map(&self, owned: &Owned, count: u64) -> Result<()> {
        if owned.map.borrow().is_none() {
            return Ok(());
        }
        let mut op = WriteOp::new();
        calls::assert_locked(&mut op);
        tell(&mut op, "object_map_resize", (count, state::NONEXISTENT));
        match self.io().write_op(&names::object_map(self.id(), None), op).await {
            Err(err) if is(&err, ESTALE) || is(&err, ENOENT) => {
                tracing::warn!("image {}: object map: {err}", self.id());
                self.invalidate_map(None).await?;
                owned.map.borrow_mut().take();
            }
            other => {
                other?;
                let map = self.load_object_map(None).await?;
                *owned.map.borrow_mut() = Some(map);
            }
        }
        Ok(())
    }
}
