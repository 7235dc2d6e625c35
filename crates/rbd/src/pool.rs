//! A pool's images: made, listed, renamed, removed.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use cls::client::{ChildSpec, ObjectMap, ParentSpec, feature, op_feature, state};
use denc::Denc;
use env::Random;
use rados::{IoCtx, WriteOp};
use types::PoolId;

use crate::calls::{self, tell};
use crate::error::{EEXIST, ENOENT, EOPNOTSUPP, ESTALE, Error, Result, absent, is};
use crate::image::{Image, Mode, check_name, image_id};
use crate::lock::Owned;
use crate::notify::Notice;
use crate::{Layout, names};

/// How long other clients of an image may take to answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// What a new image is like.
#[derive(Clone, Debug)]
pub struct Create {
    /// Bytes.
    pub size: u64,
    /// log2 of its objects' bytes.
    pub order: u8,
    /// See `RBD_FEATURE_*`. Features that follow from the rest (striping, data-pool) are set
    /// and cleared as they must be.
    pub features: u64,
    /// Bytes; 0 is the object's size.
    pub stripe_unit: u64,
    /// Objects; 0 is 1.
    pub stripe_count: u64,
    /// Where its data is, when it is not where the header is.
    pub data_pool: Option<PoolId>,
}

impl Default for Create {
    /// As the peer's: 4 MiB objects.
    fn default() -> Self {
        Self {
            size: 0,
            order: 22,
            features: names::DEFAULT_FEATURES,
            stripe_unit: 0,
            stripe_count: 0,
            data_pool: None,
        }
    }
}

/// A new image's id: the client's number and some chance, in hexadecimal.
fn new_id(io: &IoCtx) -> String {
    let chance = rt::OsRandom.u64() as u32;
    format!("{:x}{chance:x}", io.cluster().global_id())
}

/// The features of a new image, checked.
fn features_of(wanted: &Create, layout: &Layout, data_pool: bool) -> Result<u64> {
    let mut features = wanted.features & !(feature::STRIPINGV2 | feature::DATA_POOL);
    if features & feature::OBJECT_MAP != 0 {
        features |= feature::FAST_DIFF;
    }
    let lacks = |bit, other| features & bit != 0 && features & other == 0;
    if lacks(feature::FAST_DIFF, feature::OBJECT_MAP) {
        return Err(Error::Invalid("fast-diff needs object-map".to_owned()));
    }
    if lacks(feature::OBJECT_MAP, feature::EXCLUSIVE_LOCK) {
        return Err(Error::Invalid("object-map needs exclusive-lock".to_owned()));
    }
    let unmakeable = features & !names::DEFAULT_FEATURES;
    if unmakeable != 0 {
        let names = names::feature_names(unmakeable).join(", ");
        return Err(Error::Unsupported(format!("images with {names}")));
    }
    features |= if layout.is_fancy() { feature::STRIPINGV2 } else { 0 };
    features |= if data_pool { feature::DATA_POOL } else { 0 };
    Ok(features)
}

/// What says that a pool can hold images.
const INFO: &[u8] = b"rbd_info";
/// Its content once the pool was tried.
const VALIDATED: &[u8] = b"overwrite validated";

/// Tries whether a pool can hold images: objects can be overwritten, and it takes images' snapshots, not
/// its own. Does nothing where that was found before.
///
/// Source: the peer's `librbd/image/ValidatePoolRequest.cc`.
///
/// # Errors
/// EINVAL where the pool has snapshots of its own, EOPNOTSUPP where objects cannot be overwritten.
pub async fn validate(io: &IoCtx) -> Result<()> {
    if absent(io.read(INFO, 0, VALIDATED.len() as u64).await)?.is_some_and(|is| is == VALIDATED) {
        return Ok(());
    }
    let snap = io.create_own_snap().await?;
    io.remove_own_snap(snap).await?;
    io.write_full(INFO, Bytes::from_static(b"validate")).await?;
    Ok(io.write(INFO, 0, Bytes::from_static(VALIDATED)).await?)
}

/// Makes an image; its id.
///
/// # Errors
/// [`Error::Exists`]; [`Error::Invalid`] where the wishes do not go together.
pub async fn create(io: &IoCtx, name: &str, wanted: &Create) -> Result<String> {
    check_name("an image", name)?;
    let layout = Layout::new(wanted.order, wanted.stripe_unit, wanted.stripe_count)?;
    let data_pool = wanted.data_pool.filter(|pool| *pool != io.pool_id());
    let features = features_of(wanted, &layout, data_pool.is_some())?;
    if absent(io.stat(format!("{name}.rbd").as_bytes()).await)?.is_some() {
        return Err(Error::Exists(name.to_owned()));
    }
    let id = new_id(io);
    let exists = |err: rados::Error| match err.code() {
        Some(EEXIST) => Error::Exists(name.to_owned()),
        _ => err.into(),
    };
    // The directory first: whoever made an image of that name before has it there.
    let mut op = WriteOp::new();
    if !io.nspace().is_empty() {
        tell(&mut op, "dir_state_assert", 0u8);
    }
    tell(&mut op, "dir_add_image", (calls::text(name), calls::text(&id)));
    io.write_op(names::DIRECTORY, op).await.map_err(exists)?;
    let made = create_objects(io, name, &id, &layout, features, data_pool, wanted.size).await;
    if let Err(err) = made {
        io.remove(&names::header(&id)).await.ok();
        if image_id(io, name).await.is_ok_and(|found| found == id) {
            io.remove(&names::id_object(name)).await.ok();
        }
        let params = (calls::text(name), calls::text(&id));
        calls::set(io, names::DIRECTORY, "dir_remove_image", params).await.ok();
        return Err(match err {
            Error::Rados(err) => exists(err),
            other => other,
        });
    }
    Ok(id)
}

async fn create_objects(
    io: &IoCtx,
    name: &str,
    id: &str,
    layout: &Layout,
    features: u64,
    data_pool: Option<PoolId>,
    size: u64,
) -> Result<()> {
    let mut op = WriteOp::new();
    op.create(true);
    tell(&mut op, "set_id", calls::text(id));
    io.write_op(&names::id_object(name), op).await?;
    let prefix = match data_pool {
        None => format!("rbd_data.{id}"),
        Some(_) => format!("rbd_data.{}.{id}", io.pool_id()),
    };
    let mut op = WriteOp::new();
    op.create(true);
    let params = ((size, layout.order()), (features, calls::text(&prefix)));
    tell(&mut op, "create", (params, data_pool.map_or(-1i64, |pool| pool.0)));
    io.write_op(&names::header(id), op).await?;
    // Not in the same operation: the peer's methods do not see what it changed before them.
    if layout.is_fancy() {
        let params = (layout.stripe_unit(), layout.stripe_count());
        calls::set(io, &names::header(id), "set_stripe_unit_count", params).await?;
    }
    if features & feature::OBJECT_MAP != 0 {
        let params = (layout.object_count(size), state::NONEXISTENT);
        calls::set(io, &names::object_map(id, None), "object_map_resize", params).await?;
    }
    Ok(())
}

/// All images: names and ids, by name.
///
/// # Errors
/// As the cluster says.
pub async fn list(io: &IoCtx) -> Result<Vec<(String, String)>> {
    let found = calls::pages::<Bytes>(io, names::DIRECTORY, "dir_list").await?;
    Ok(found.iter().map(|(name, id)| (calls::string(name), calls::string(id))).collect())
}

/// The namespaces of a pool, but for the default one.
///
/// # Errors
/// As the cluster says.
pub async fn namespaces(io: &IoCtx) -> Result<Vec<String>> {
    const PAGE: u64 = 1024;
    let mut found: Vec<String> = Vec::new();
    loop {
        let after = found.last().map_or("", String::as_str);
        let params = (calls::text(after), PAGE).to_bytes();
        let page: Option<Vec<Bytes>> =
            absent(calls::get(io, b"rbd_namespace", "namespace_list", &params).await)?;
        let page = page.unwrap_or_default();
        found.extend(page.iter().map(calls::string));
        if (page.len() as u64) < PAGE {
            return Ok(found);
        }
    }
}

/// The name of the image with this id; none for one in the trash.
///
/// # Errors
/// As the cluster says.
pub async fn name_of(io: &IoCtx, id: &str) -> Result<Option<String>> {
    let params = calls::text(id).to_bytes();
    let name: Option<Bytes> =
        absent(calls::get(io, names::DIRECTORY, "dir_get_name", &params).await)?;
    Ok(name.as_ref().map(calls::string))
}

/// Gives an image another name.
///
/// # Errors
/// [`Error::NoImage`], [`Error::Exists`].
pub async fn rename(io: &IoCtx, from: &str, to: &str) -> Result<()> {
    check_name("an image", to)?;
    let id = image_id(io, from).await?;
    let mut op = WriteOp::new();
    op.create(true);
    tell(&mut op, "set_id", calls::text(&id));
    match io.write_op(&names::id_object(to), op).await {
        Err(err) if is(&err, EEXIST) => return Err(Error::Exists(to.to_owned())),
        other => other?,
    };
    let params = ((calls::text(from), calls::text(to)), calls::text(&id));
    match calls::set(io, names::DIRECTORY, "dir_rename_image", params).await {
        // Done by a request whose answer was lost.
        Err(err) if is(&err, ESTALE) && name_of(io, &id).await?.as_deref() == Some(to) => {}
        Err(err) => {
            io.remove(&names::id_object(to)).await.ok();
            return Err(err.into());
        }
        Ok(()) => {}
    }
    absent(io.remove(&names::id_object(from)).await)?;
    io.notify(&names::header(&id), Notice::HeaderUpdate.to_bytes(), PATIENCE).await?;
    Ok(())
}

/// Removes an image, its data first. `progress` is told how many of how many objects are
/// gone.
///
/// # Errors
/// [`Error::Busy`] when it has snapshots, or somebody uses it.
pub async fn remove(io: &IoCtx, name: &str, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
    let id = match image_id(io, name).await {
        Ok(id) => id,
        Err(Error::NoImage(_)) => {
            // A removal that was broken off may have left the directory's entry.
            let params = calls::text(name).to_bytes();
            let id: Option<Bytes> =
                absent(calls::get(io, names::DIRECTORY, "dir_get_id", &params).await)?;
            let Some(id) = id else { return Err(Error::NoImage(name.to_owned())) };
            let params = (calls::text(name), id);
            return Ok(calls::set(io, names::DIRECTORY, "dir_remove_image", params).await?);
        }
        Err(err) => return Err(err),
    };
    remove_image(io, name, &id, progress).await?;
    remove_name(io, name, &id).await
}

/// The last of an image that goes.
pub(crate) async fn remove_name(io: &IoCtx, name: &str, id: &str) -> Result<()> {
    absent(io.remove(&names::id_object(name)).await)?;
    let params = (calls::text(name), calls::text(id));
    absent(calls::set(io, names::DIRECTORY, "dir_remove_image", params).await)?;
    Ok(())
}

/// Data, object map, header; and the parent's word of this clone.
pub(crate) async fn remove_image(
    io: &IoCtx,
    name: &str,
    id: &str,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let image = match Image::open_id(io, name, id, Mode::Write).await {
        Ok(image) => image,
        // The header went before, the names did not.
        Err(Error::NoImage(_)) => return Ok(()),
        Err(err) => return Err(err),
    };
    let result = remove_open(&image, progress).await;
    let closed = image.close().await;
    result.and(closed)
}

pub(crate) async fn remove_open(image: &Image, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
    let has_snaps = || {
        let count = image.header().snaps.len();
        if count == 0 { Ok(()) } else { Err(Error::Busy(format!("it has {count} snapshots"))) }
    };
    has_snaps()?;
    if let Some(other) = image.other_watcher().await? {
        return Err(Error::Busy(other));
    }
    image.keep_lock(true);
    let owned = image.enter_alone().await?;
    has_snaps()?;
    image.remove_objects(&owned, 0, progress).await?;
    drop(owned);
    image.detach_from_parent().await?;
    image.release_lock().await?;
    absent(image.io().remove(&names::object_map(image.id(), None)).await)?;
    absent(image.io().remove(&image.header_object()).await)?;
    Ok(())
}

impl Image {
    /// Removes the data objects from number `first` on. With the gate held.
    pub(crate) async fn remove_objects(
        &self,
        owned: &Owned,
        first: u64,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<()> {
        const BATCH: u64 = 256;
        let map_count = owned.map.borrow().as_ref().map_or(0, ObjectMap::count);
        let end = self.layout().object_count(self.size()).max(map_count);
        let io = Rc::new(self.data_io().with_snaps(self.header().snap_context()));
        let mut at = first;
        while at < end {
            let next = (at + BATCH).min(end);
            let there: Vec<u64> = (at..next).filter(|i| owned.may_exist(*i)).collect();
            if let (Some(low), Some(high)) = (there.first(), there.last()) {
                let (low, high) = (*low, *high + 1);
                for i in &there {
                    self.mark(owned, *i, *i + 1, state::PENDING).await?;
                }
                let (image, io) = (self.clone(), io.clone());
                crate::io::each(there, move |i| {
                    let (io, name) = (io.clone(), image.object(i));
                    async move {
                        absent(io.remove(&name).await)?;
                        Ok(())
                    }
                })
                .await?;
                self.mark(owned, low, high, state::NONEXISTENT).await?;
            }
            at = next;
            progress(at - first, end - first);
        }
        Ok(())
    }

    /// Ends the parent's knowledge of this clone, where the header names one; a snapshot of
    /// the parent that only waited for this is removed.
    pub(crate) async fn detach_from_parent(&self) -> Result<()> {
        let header = self.header().clone();
        let Some(spec) = header.parent else { return Ok(()) };
        let pool = self.io().cluster().pool_by_id(PoolId(spec.pool));
        let parent_io = pool.namespace(spec.nspace.clone());
        if header.op_features & op_feature::CLONE_CHILD == 0 {
            let params = old_child(&spec, self.id());
            return match calls::set(self.io(), names::CHILDREN, "remove_child", params).await {
                Err(err) if is(&err, ENOENT) || is(&err, EOPNOTSUPP) => Ok(()),
                other => Ok(other?),
            };
        }
        let child = ChildSpec {
            pool: self.io().pool_id().0,
            image: calls::text(self.id()),
            nspace: self.io().nspace().clone(),
        };
        let id = calls::string(&spec.image);
        let head = names::header(&id);
        absent(calls::set(&parent_io, &head, "child_detach", (spec.snap, child)).await)?;
        Box::pin(remove_trashed_snap(&parent_io, &id, spec.snap)).await
    }

    /// Somebody else who watches the header, for people.
    pub(crate) async fn other_watcher(&self) -> Result<Option<String>> {
        let me = self.me();
        let is_me = |w: &rados::Watcher| w.who.num as u64 == me.gid && w.cookie == me.handle;
        let watchers = self.watchers().await?;
        let other = watchers.iter().find(|w| !is_me(w));
        Ok(other.map(|w| format!("{} at {} uses it", w.who, w.addr)))
    }
}

/// Parameters of `add_child` and `remove_child`.
pub(crate) fn old_child(spec: &ParentSpec, child: &str) -> impl Denc + use<> {
    (((spec.pool, spec.image.clone()), spec.snap), calls::text(child))
}

/// A snapshot in its image's trash goes with its last clone.
async fn remove_trashed_snap(io: &IoCtx, image: &str, snap: u64) -> Result<()> {
    let parent = Image::open_id(io, image, image, Mode::Read).await?;
    let waits = parent.header().snaps.iter().any(|s| s.id == snap && s.is_trashed());
    if !waits {
        return Ok(());
    }
    let parent = Image::open_id(io, image, image, Mode::Write).await?;
    let removed = parent.remove_snap_id(snap).await;
    let closed = parent.close().await;
    removed.and(closed)
}
