//! Clones: images that begin as another's snapshot and copy from it what they write.
//!
//! Of the first kind are those whose parent's snapshot is protected, with an entry in the
//! pool's `rbd_children`; of the second those that the parent's header lists itself: their
//! snapshot can be removed, and goes with the last of them.
//!
//! Source: the peer's `librbd/image/CloneRequest.cc`, `operation/FlattenRequest.cc`.

use cls::client::{ChildSpec, ParentSpec, feature, op_feature};
use rados::{IoCtx, WriteOp};

use crate::calls::{self, tell};
use crate::error::{Error, Result, absent};
use crate::image::Image;
use crate::names;
use crate::pool::{self, Create};

/// Which clones are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// The second, when the cluster requires clients of mimic or later.
    #[default]
    Auto,
    /// The first.
    One,
    /// The second.
    Two,
}

/// The first release whose clients know the second kind.
const MIMIC: u8 = 13;

/// Makes `name` from a snapshot of `parent`. `wanted` says what differs from the parent: its
/// size is not looked at.
///
/// # Errors
/// [`Error::Invalid`] when the first kind is made and the snapshot is not protected.
pub async fn clone(
    parent: &Image,
    snap: &str,
    io: &IoCtx,
    name: &str,
    kind: Kind,
    wanted: Option<Create>,
) -> Result<()> {
    parent.refresh().await?;
    let (snap, features) = {
        let header = parent.header();
        (header.snap(snap)?.clone(), header.features)
    };
    if features & feature::LAYERING == 0 {
        return Err(Error::Unsupported("clones of an image without layering".to_owned()));
    }
    let second = match kind {
        Kind::One => false,
        Kind::Two => true,
        Kind::Auto => io.cluster().map().require_min_compat_client >= MIMIC,
    };
    if !second && !snap.is_protected() {
        let how = "protect it, or make a clone of the second kind";
        return Err(Error::Invalid(format!("snapshot '{}' is not protected: {how}", snap.name)));
    }
    if !second && parent.io().nspace() != io.nspace() {
        return Err(Error::Invalid("clones in other namespaces are of the second kind".to_owned()));
    }
    let mut create = wanted.unwrap_or_else(|| Create {
        order: parent.layout().order(),
        features: features & names::DEFAULT_FEATURES,
        ..Create::default()
    });
    create.size = snap.size;
    if create.features & feature::LAYERING == 0 {
        return Err(Error::Invalid("a clone has the feature layering".to_owned()));
    }
    let id = pool::create(io, name, &create).await?;
    let spec = ParentSpec {
        pool: parent.io().pool_id().0,
        nspace: parent.io().nspace().clone(),
        image: calls::text(parent.id()),
        snap: snap.id,
    };
    if let Err(err) = attach(parent, io, &id, &spec, snap.size, second).await {
        pool::remove(io, name, &mut |_, _| {}).await.ok();
        return Err(err);
    }
    let metadata = parent.metadata().await?;
    if !metadata.is_empty() {
        calls::set(io, &names::header(&id), "metadata_set", metadata).await?;
    }
    Ok(())
}

async fn attach(
    parent: &Image,
    io: &IoCtx,
    id: &str,
    spec: &ParentSpec,
    size: u64,
    second: bool,
) -> Result<()> {
    // Of an empty parent nothing shows.
    if size == 0 {
        return Ok(());
    }
    let mut op = WriteOp::new();
    tell(&mut op, "parent_attach", ((spec.clone(), size), false));
    if second {
        let bit = op_feature::CLONE_CHILD;
        tell(&mut op, "op_features_set", (bit, bit));
    }
    io.write_op(&names::header(id), op).await?;
    if second {
        let (pool, nspace) = (io.pool_id().0, io.nspace().clone());
        let child = ChildSpec { pool, image: calls::text(id), nspace };
        let head = parent.header_object();
        calls::set(parent.io(), &head, "child_attach", (spec.snap, child)).await?;
        return Ok(());
    }
    calls::set(io, names::CHILDREN, "add_child", pool::old_child(spec, id)).await?;
    // It may have been unprotected before the entry was there to be seen.
    parent.refresh().await?;
    let still = parent.header().snaps.iter().any(|s| s.id == spec.snap && s.is_protected());
    if still { Ok(()) } else { Err(Error::Busy("the snapshot is being unprotected".to_owned())) }
}

impl Image {
    /// Copies all that still shows the parent, and ends being its clone. `progress` is told of
    /// objects done, of all.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an image that is no clone.
    pub async fn flatten(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        const BATCH: u64 = 16;
        self.check_writable()?;
        let Some(overlap) = self.header().overlap.filter(|_| self.header().parent.is_some()) else {
            return Err(Error::Invalid(format!("'{}' is no clone", self.name())));
        };
        let count = self.layout().object_count(overlap);
        let mut at = 0;
        while at < count {
            let next = (at + BATCH).min(count);
            let image = self.clone();
            // The gate is let go in between: others may want the lock.
            crate::io::each((at..next).collect(), move |object| {
                let image = image.clone();
                async move { image.flatten_object(object).await }
            })
            .await?;
            at = next;
            progress(at, count);
        }
        let owned = self.enter_alone().await?;
        let keeps = !self.header().has(feature::DEEP_FLATTEN)
            && self.header().snaps.iter().any(|s| s.overlap.is_some());
        if !keeps {
            self.detach_from_parent().await?;
        }
        let head = self.header_object();
        absent(self.io().exec_write(&head, "rbd", "parent_detach", b"").await)?;
        self.refresh().await?;
        drop(owned);
        self.tell_update().await
    }

    /// A snapshot's clones: pool, namespace and name, or id for one in the trash.
    ///
    /// # Errors
    /// As [`Image::children`].
    pub async fn child_names(&self, snap: u64) -> Result<Vec<(String, String, String)>> {
        let cluster = self.io().cluster().clone();
        let mut names = Vec::new();
        for child in self.children(snap).await? {
            let pool = types::PoolId(child.pool);
            let io = cluster.pool_by_id(pool).namespace(child.nspace.clone());
            let id = calls::string(&child.image);
            let name = pool::name_of(&io, &id).await?.unwrap_or(id);
            let pool = cluster.map().pool_name(pool).unwrap_or("?").to_owned();
            names.push((pool, calls::string(&child.nspace), name));
        }
        Ok(names)
    }
}
