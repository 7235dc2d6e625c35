//! Reading and writing: ranges of an image, in parallel over its objects.
//!
//! A clone's object that is not there shows the parent. The first write to it copies the
//! parent's bytes up: by the class method `copyup`, which does nothing where the object came
//! to be in the meantime, in the same operation as the write. Where the clone has snapshots,
//! these must show the parent's bytes as well: then the copy goes first, as if it were older
//! than all snapshots (a *deep* copy-up).
//!
//! Source: the peer's `librbd/io/ObjectRequest.cc`, `CopyupRequest.cc`.

use std::future::Future;
use std::pin::Pin;

use bytes::{Bytes, BytesMut};
use cls::client::{feature, state};
use rados::{IoCtx, SnapContext, WriteOp};
use types::SnapId;

use crate::diff::Changed;
use crate::error::{ENOENT, Error, Result, is};
use crate::image::Image;
use crate::layout::Piece;
use crate::lock::Owned;
use crate::names;

/// What is written to a part of an object.
#[derive(Clone, Debug)]
enum Change {
    Write(Bytes),
    /// Zeros: the object is cut or removed where that does it.
    Zero,
}

/// Bytes of an object that the image's range begins with, by where they belong.
type Part = (u64, Bytes);

/// Runs work on all items, each as a task; the image's slots bound how many objects are
/// worked on at once.
pub(crate) async fn each<T: 'static, R: 'static, F>(
    items: Vec<T>,
    mut work: impl FnMut(T) -> F,
) -> Result<Vec<R>>
where
    F: Future<Output = Result<R>> + 'static,
{
    if items.len() == 1 {
        let mut results = Vec::with_capacity(1);
        for item in items {
            results.push(work(item).await?);
        }
        return Ok(results);
    }
    let tasks: Vec<_> =
        items.into_iter().map(|item| tokio::task::spawn_local(work(item))).collect();
    let mut results = Vec::with_capacity(tasks.len());
    let mut failed = None;
    // All are waited for, also behind one that failed: nothing goes on unseen.
    for task in tasks {
        match task.await {
            Ok(Ok(result)) => results.push(result),
            Ok(Err(err)) => failed = failed.or(Some(err)),
            Err(err) => std::panic::resume_unwind(err.into_panic()),
        }
    }
    match failed {
        None => Ok(results),
        Some(err) => Err(err),
    }
}

/// Whether all bytes are zero.
#[must_use]
pub fn is_zero(data: &[u8]) -> bool {
    let (words, tail) = data.as_chunks::<32>();
    words.iter().all(|word| *word == [0; 32]) && tail.iter().all(|b| *b == 0)
}

impl Image {
    fn check_range(&self, off: u64, len: u64, size: u64) -> Result<()> {
        match off.checked_add(len) {
            Some(end) if end <= size => Ok(()),
            _ => Err(Error::Beyond { off, len, size }),
        }
    }

    /// Reads a range.
    ///
    /// # Errors
    /// [`Error::Beyond`]; as the cluster says.
    pub async fn read(&self, off: u64, len: u64) -> Result<Bytes> {
        self.read_at(None, off, len).await
    }

    /// Reads a range of a snapshot, by its number; of the image itself without.
    ///
    /// # Errors
    /// [`Error::NoSnap`]; as [`Image::read`].
    pub async fn read_at(&self, snap: Option<u64>, off: u64, len: u64) -> Result<Bytes> {
        let (size, overlap) = self.header().extent(snap)?;
        self.check_range(off, len, size)?;
        let image = self.clone();
        let parts = each(self.layout().pieces(off, len), move |piece| {
            let image = image.clone();
            async move { image.read_piece(snap, overlap, piece).await }
        })
        .await?;
        let mut parts: Vec<Part> = parts.into_iter().flatten().collect();
        if parts.len() == 1 && parts[0].1.len() as u64 == len {
            return Ok(parts.remove(0).1);
        }
        let mut whole = BytesMut::zeroed(len as usize);
        for (at, data) in parts {
            whole[at as usize..at as usize + data.len()].copy_from_slice(&data);
        }
        Ok(whole.freeze())
    }

    /// What is there of a piece; the rest is zeros.
    async fn read_piece(&self, snap: Option<u64>, overlap: u64, piece: Piece) -> Result<Vec<Part>> {
        let io = match snap {
            None => self.data_io().clone(),
            Some(id) => self.data_io().at_snap(SnapId(id)),
        };
        let read = {
            let _slot = self.slot().await;
            io.read(&self.object(piece.object), piece.off, piece.len).await
        };
        match read {
            Ok(data) => Ok(vec![(piece.at, data)]),
            Err(err) if is(&err, ENOENT) => {
                let extents = self.layout().image_extents(piece.object, piece.off, piece.len);
                let mut parts = Vec::new();
                let mut at = piece.at;
                for (off, len) in extents {
                    let below = len.min(overlap.saturating_sub(off));
                    if below > 0 {
                        parts.push((at, self.read_parent(snap, off, below).await?));
                    }
                    at += len;
                }
                Ok(parts)
            }
            Err(err) => Err(err.into()),
        }
    }

    /// Reads what the parent shows in a snapshot, below the overlap. Boxed: a parent may have
    /// one itself.
    fn read_parent(
        &self,
        snap: Option<u64>,
        off: u64,
        len: u64,
    ) -> Pin<Box<dyn Future<Output = Result<Bytes>>>> {
        let parent = self.parent();
        Box::pin(async move {
            let Some(parent) = parent else {
                return Ok(Bytes::from(vec![0; len as usize]));
            };
            let at = parent.at(snap);
            let (size, _) = parent.image.header().extent(at)?;
            let there = len.min(size.saturating_sub(off));
            let data = parent.image.read_at(at, off, there).await?;
            if there == len {
                return Ok(data);
            }
            let mut whole = BytesMut::zeroed(len as usize);
            whole[..data.len()].copy_from_slice(&data);
            Ok(whole.freeze())
        })
    }

    /// What of a range is allocated, in order and without gaps; for whole objects and their
    /// ends, as far as can be told without reading.
    ///
    /// # Errors
    /// As [`Image::read_at`].
    pub async fn allocated(&self, snap: Option<u64>, off: u64, len: u64) -> Result<Vec<Changed>> {
        let (size, overlap) = self.header().extent(snap)?;
        self.check_range(off, len, size)?;
        let image = self.clone();
        let found = each(self.layout().pieces(off, len), move |piece| {
            let image = image.clone();
            async move {
                let there = image.object_end(snap, overlap, piece.object).await?;
                let data = there.saturating_sub(piece.off).min(piece.len);
                Ok([(piece.at, data, true), (piece.at + data, piece.len - data, false)])
            }
        })
        .await?;
        let mut parts: Vec<Changed> = Vec::new();
        for (at, len, exists) in found.into_iter().flatten().filter(|(_, len, _)| *len > 0) {
            match parts.last_mut() {
                Some(last) if last.exists == exists => last.len += len,
                _ => parts.push(Changed { off: off + at, len, exists }),
            }
        }
        Ok(parts)
    }

    /// Where an object's data ends; its size where the parent may show.
    async fn object_end(&self, snap: Option<u64>, overlap: u64, object: u64) -> Result<u64> {
        let shows = !self.layout().extents_below(object, overlap).is_empty();
        let by_map = |owned: &Owned| owned.locked && !owned.may_exist(object);
        let absent_by_map = snap.is_none() && self.try_owned().is_some_and(|o| by_map(&o));
        if !absent_by_map || shows {
            let io = match snap {
                None => self.data_io().clone(),
                Some(id) => self.data_io().at_snap(SnapId(id)),
            };
            let _slot = self.slot().await;
            if let Some(stat) = crate::error::absent(io.stat(&self.object(object)).await)? {
                return Ok(stat.size);
            }
        }
        Ok(if shows { self.layout().object_size() } else { 0 })
    }

    pub(crate) async fn slot(&self) -> tokio::sync::SemaphorePermit<'_> {
        self.0.slots.acquire().await.expect("never closed")
    }

    /// Writes at an offset. Returns when it is durable.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::Beyond`], [`Error::Busy`] when the lock is not to be had;
    /// as the cluster says.
    pub async fn write(&self, off: u64, data: Bytes) -> Result<()> {
        let changes = |image: &Self| {
            let pieces = image.layout().pieces(off, data.len() as u64);
            let change = |p: Piece| {
                let part = data.slice(p.at as usize..(p.at + p.len) as usize);
                (p, Change::Write(part))
            };
            pieces.into_iter().map(change).collect()
        };
        self.change(off, data.len() as u64, changes).await
    }

    /// Makes a range zeros, and frees the room.
    ///
    /// # Errors
    /// As [`Image::write`].
    pub async fn discard(&self, off: u64, len: u64) -> Result<()> {
        self.write_zeroes(off, len).await
    }

    /// Makes a range zeros: objects are removed where that does it.
    ///
    /// # Errors
    /// As [`Image::write`].
    pub async fn write_zeroes(&self, off: u64, len: u64) -> Result<()> {
        // Not all objects of a large range at once.
        let step = self.layout().object_size() * self.layout().stripe_count() * 256;
        let end = off.saturating_add(len);
        let mut at = off;
        loop {
            let next = (at / step + 1).saturating_mul(step).min(end);
            let changes = |image: &Self| {
                let pieces = image.layout().pieces(at, next - at).into_iter();
                pieces.map(|piece| (piece, Change::Zero)).collect()
            };
            self.change(at, next - at, changes).await?;
            at = next;
            if at >= end {
                return Ok(());
            }
        }
    }

    /// Waits for nothing: a write that has returned is durable.
    ///
    /// # Errors
    /// None so far.
    pub async fn flush(&self) -> Result<()> {
        Ok(())
    }

    async fn change(
        &self,
        off: u64,
        len: u64,
        changes: impl FnOnce(&Self) -> Vec<(Piece, Change)>,
    ) -> Result<()> {
        let owned = self.enter().await?;
        self.check_range(off, len, self.size())?;
        let changes = changes(self);
        let (writes, zeros): (Vec<_>, Vec<_>) =
            changes.iter().partition(|(_, change)| matches!(change, Change::Write(_)));
        for (piece, _) in &writes {
            self.mark(&owned, piece.object, piece.object + 1, state::EXISTS).await?;
        }
        let overlap = self.header().overlap.unwrap_or(0);
        let mut removed = Vec::new();
        for (piece, _) in &zeros {
            // Where the parent shows, the object must stay and be empty.
            let shows = !self.layout().extents_below(piece.object, overlap).is_empty();
            let whole = piece.off == 0 && piece.len == self.layout().object_size();
            if whole && !shows {
                removed.push(piece.object);
                self.mark(&owned, piece.object, piece.object + 1, state::PENDING).await?;
            } else if owned.may_exist(piece.object) || shows {
                self.mark(&owned, piece.object, piece.object + 1, state::EXISTS).await?;
            }
        }
        let image = self.clone();
        let context = self.header().snap_context();
        let mut absent = Vec::new();
        for (piece, _) in &zeros {
            let shows = !self.layout().extents_below(piece.object, overlap).is_empty();
            if !shows && !owned.may_exist(piece.object) {
                absent.push(piece.object);
            }
        }
        let work: Vec<(Piece, Change)> =
            changes.into_iter().filter(|(piece, _)| !absent.contains(&piece.object)).collect();
        let maps = Maps::of(self, &owned);
        each(work, move |(piece, change)| {
            let (image, context, maps) = (image.clone(), context.clone(), maps.clone());
            async move { image.change_piece(piece, change, overlap, &context, &maps).await }
        })
        .await?;
        for object in removed {
            self.mark(&owned, object, object + 1, state::NONEXISTENT).await?;
        }
        Ok(())
    }

    async fn change_piece(
        &self,
        piece: Piece,
        change: Change,
        overlap: u64,
        context: &SnapContext,
        maps: &Maps,
    ) -> Result<()> {
        let io = self.data_io().with_snaps(context.clone());
        let name = self.object(piece.object);
        let below = self.layout().extents_below(piece.object, overlap);
        let size = self.layout().object_size();
        let whole = piece.off == 0 && piece.len == size;
        let mut op = WriteOp::new();
        // A write of the whole object needs nothing of the parent.
        let replaces = whole && context.snaps.is_empty();
        let copies = !below.is_empty() && !replaces;
        if copies {
            op.assert_exists();
        }
        self.add_change(&mut op, piece, &change, !below.is_empty());
        let result = {
            let _slot = self.slot().await;
            io.write_op(&name, op).await
        };
        match result {
            Ok(_) => Ok(()),
            Err(err) if is(&err, ENOENT) && copies => {
                let finish = |op: &mut WriteOp| self.add_change(op, piece, &change, true);
                self.copy_up(piece.object, &below, context, maps, Some(&finish)).await
            }
            // Nothing to remove or to cut.
            Err(err) if is(&err, ENOENT) && matches!(change, Change::Zero) => Ok(()),
            Err(err) => Err(err.into()),
        }
    }

    fn add_change(&self, op: &mut WriteOp, piece: Piece, change: &Change, shows_parent: bool) {
        let size = self.layout().object_size();
        match change {
            Change::Write(data) => {
                op.alloc_hint(size, size, 0);
                op.write(piece.off, data.clone());
            }
            Change::Zero if piece.off == 0 && piece.len == size && !shows_parent => {
                op.remove();
            }
            Change::Zero if piece.off + piece.len == size => {
                if shows_parent {
                    op.create(false);
                }
                op.truncate(piece.off);
            }
            Change::Zero => {
                op.zero(piece.off, piece.len);
            }
        }
    }

    /// Copies the parent's bytes into an object that is not there, and changes it in the same
    /// operation.
    async fn copy_up(
        &self,
        object: u64,
        below: &[(u64, u64)],
        context: &SnapContext,
        maps: &Maps,
        then: Option<&dyn Fn(&mut WriteOp)>,
    ) -> Result<()> {
        let name = self.object(object);
        let mut data = BytesMut::new();
        for (off, len) in below {
            data.extend_from_slice(&self.read_parent(None, *off, *len).await?);
        }
        let data = if is_zero(&data) { Bytes::new() } else { data.freeze() };
        let deep = !context.snaps.is_empty() && !data.is_empty();
        let _slot = self.slot().await;
        if deep {
            maps.mark_snaps(self, object).await?;
            let mut op = WriteOp::new();
            op.exec("rbd", "copyup", &data);
            self.data_io().with_snaps(SnapContext::default()).write_op(&name, op).await?;
        }
        let mut op = WriteOp::new();
        if !deep && (then.is_some() || !data.is_empty()) {
            op.exec("rbd", "copyup", &data);
        }
        if let Some(then) = then {
            then(&mut op);
        }
        if op.is_empty() {
            return Ok(());
        }
        let io: IoCtx = self.data_io().with_snaps(context.clone());
        io.write_op(&name, op).await?;
        Ok(())
    }

    /// Makes an object of a clone its own: copies the parent's bytes where it is not there.
    pub(crate) async fn flatten_object(&self, object: u64) -> Result<()> {
        let owned = self.enter().await?;
        let overlap = self.header().overlap.unwrap_or(0);
        let below = self.layout().extents_below(object, overlap);
        if below.is_empty() {
            return Ok(());
        }
        let name = self.object(object);
        let there = {
            let _slot = self.slot().await;
            crate::error::absent(self.data_io().stat(&name).await)?.is_some()
        };
        if there {
            return Ok(());
        }
        let mut zero = true;
        for (off, len) in &below {
            zero &= is_zero(&self.read_parent(None, *off, *len).await?);
        }
        if zero {
            return Ok(());
        }
        self.mark(&owned, object, object + 1, state::EXISTS).await?;
        let context = self.header().snap_context();
        self.copy_up(object, &below, &context, &Maps::of(self, &owned), None).await
    }
}

/// Object maps of snapshots that a deep copy-up changes: snapshots that show the parent show
/// the copy then.
#[derive(Clone)]
struct Maps {
    /// By number, oldest first, with how many objects still show the parent.
    snaps: Vec<(u64, u64)>,
    fast_diff: bool,
}

impl Maps {
    fn of(image: &Image, owned: &Owned) -> Self {
        let header = image.header();
        let has_map = owned.locked && header.has(feature::OBJECT_MAP);
        let snaps = header.snaps.iter().filter(|_| has_map);
        let snaps = snaps
            .filter(|s| s.flags & names::FLAG_OBJECT_MAP_INVALID == 0)
            .map(|s| (s.id, image.layout().object_count(s.size.min(s.overlap.unwrap_or(0)))));
        Self { snaps: snaps.collect(), fast_diff: header.has(feature::FAST_DIFF) }
    }

    async fn mark_snaps(&self, image: &Image, object: u64) -> Result<()> {
        let mut first = true;
        for (snap, count) in &self.snaps {
            if object >= *count {
                continue;
            }
            // The oldest sees it come, the later ones see no change.
            let to = if first || !self.fast_diff { state::EXISTS } else { state::EXISTS_CLEAN };
            first = false;
            image.mark_snap(*snap, object, to).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::is_zero;

    #[test]
    fn zeros_are_found_at_any_length() {
        for len in 0..100 {
            let mut data = vec![0; len];
            assert!(is_zero(&data));
            for at in 0..len {
                data[at] = 1;
                assert!(!is_zero(&data), "{at} of {len}");
                data[at] = 0;
            }
        }
    }
}
