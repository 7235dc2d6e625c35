//! An open image: what its header says, and where its parts are.

use std::cell::{Ref, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use bytes::Bytes;
use cls::client::{ParentSpec, SnapInfo, SnapKind, feature};
use rados::{IoCtx, ReadOp, Slot, SnapContext};
use types::{PoolId, SnapId, UTime};

use crate::calls::{self, HEAD, answer, ask, ask_plain};
use crate::error::{Error, Result, absent};
use crate::lock::Lock;
use crate::{Layout, migration, names};

/// Operations on objects that an image has in flight at once.
const IN_FLIGHT_MAX: usize = 64;

/// A snapshot, as the header has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Its number in the pool.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// What it is for.
    pub kind: SnapKind,
    /// Bytes.
    pub size: u64,
    /// When it was made.
    pub time: UTime,
    /// Clones of the second kind.
    pub children: u32,
    /// Whether it may not be removed: 1 while it is unprotected, 2 yes.
    pub protection: u8,
    /// The object map's flags.
    pub flags: u64,
    /// How much of it shows the parent.
    pub overlap: Option<u64>,
}

impl Snapshot {
    /// Whether it may be cloned in the first way, and may not be removed.
    #[must_use]
    pub fn is_protected(&self) -> bool {
        self.protection == 2
    }

    /// Whether it was removed and waits for its last clone, which is gone.
    pub(crate) fn is_trashed(&self) -> bool {
        matches!(self.kind, SnapKind::Trash { .. }) && self.children == 0
    }

    /// Whether its user made it, and did not remove it yet.
    #[must_use]
    pub fn is_users(&self) -> bool {
        self.kind == SnapKind::User
    }
}

/// What the header says.
#[derive(Clone, Debug)]
pub struct Header {
    /// Bytes.
    pub size: u64,
    /// See `RBD_FEATURE_*`.
    pub features: u64,
    /// See [`names::FLAG_OBJECT_MAP_INVALID`].
    pub flags: u64,
    /// See `RBD_OPERATION_FEATURE_*`.
    pub op_features: u64,
    /// Oldest first.
    pub snaps: Vec<Snapshot>,
    /// The newest snapshot there has ever been.
    pub snap_seq: u64,
    /// What it was cloned from; kept while any snapshot shows it.
    pub parent: Option<ParentSpec>,
    /// How much of the image still shows the parent.
    pub overlap: Option<u64>,
    /// When it was made.
    pub created: UTime,
    /// When it was last read, by those who note it.
    pub accessed: UTime,
    /// When it was last written.
    pub modified: UTime,
}

impl Header {
    /// Whether the image has a feature.
    #[must_use]
    pub fn has(&self, bits: u64) -> bool {
        self.features & bits == bits
    }

    /// Size and overlap with the parent of the image, or of a snapshot.
    pub(crate) fn extent(&self, snap: Option<u64>) -> Result<(u64, u64)> {
        match snap {
            None => Ok((self.size, self.overlap.unwrap_or(0))),
            Some(id) => {
                let snap = self.snaps.iter().find(|s| s.id == id);
                let snap = snap.ok_or_else(|| Error::NoSnap(id.to_string()))?;
                Ok((snap.size, snap.overlap.unwrap_or(0)))
            }
        }
    }

    /// A user's snapshot by its name.
    ///
    /// # Errors
    /// [`Error::NoSnap`].
    pub fn snap(&self, name: &str) -> Result<&Snapshot> {
        let found = self.snaps.iter().find(|s| s.is_users() && s.name == name);
        found.ok_or_else(|| Error::NoSnap(name.to_owned()))
    }

    /// One with snapshots: number, size and overlap.
    #[cfg(test)]
    pub(crate) fn for_test(size: u64, snaps: &[(u64, u64, Option<u64>)]) -> Self {
        let snap = |(id, size, overlap): &(u64, u64, Option<u64>)| Snapshot {
            id: *id,
            name: format!("s{id}"),
            kind: SnapKind::User,
            size: *size,
            time: UTime::ZERO,
            children: 0,
            protection: 0,
            flags: 0,
            overlap: *overlap,
        };
        Self {
            size,
            features: 0,
            flags: 0,
            op_features: 0,
            snap_seq: snaps.last().map_or(0, |s| s.0),
            snaps: snaps.iter().map(snap).collect(),
            parent: None,
            overlap: None,
            created: UTime::ZERO,
            accessed: UTime::ZERO,
            modified: UTime::ZERO,
        }
    }

    pub(crate) fn snap_context(&self) -> SnapContext {
        SnapContext {
            seq: SnapId(self.snap_seq),
            snaps: self.snaps.iter().rev().map(|s| SnapId(s.id)).collect(),
        }
    }
}

/// What shows where an image has no object of its own.
#[derive(Clone)]
pub(crate) struct ParentView {
    pub(crate) image: Image,
    below: Below,
}

/// Which state of another image that is.
#[derive(Clone, PartialEq, Eq)]
enum Below {
    /// The snapshot that was cloned, whatever state is looked at.
    Cloned(u64),
    /// That of the image from which this one migrates: its snapshots' numbers by ours. What
    /// was snapshotted here since shows the source as it is.
    Source(BTreeMap<u64, u64>),
}

impl ParentView {
    /// Which snapshot of the parent shows in a snapshot of the child, or in the child itself.
    pub(crate) fn at(&self, snap: Option<u64>) -> Option<u64> {
        match &self.below {
            Below::Cloned(snap) => Some(*snap),
            Below::Source(seqs) => seqs.get(&snap?).copied(),
        }
    }
}

pub(crate) struct Inner {
    /// The pool and namespace of the header.
    pub(crate) io: IoCtx,
    /// The pool of the data.
    pub(crate) data: IoCtx,
    pub(crate) name: RefCell<String>,
    pub(crate) id: String,
    pub(crate) layout: Layout,
    pub(crate) prefix: String,
    pub(crate) read_only: bool,
    /// Opened to end or to do a migration: the source does not show.
    raw: bool,
    pub(crate) header: RefCell<Header>,
    pub(crate) parent: RefCell<Option<ParentView>>,
    pub(crate) lock: Lock,
    pub(crate) slots: tokio::sync::Semaphore,
}

/// An open image. Copies share it. Close one that was written with [`Image::close`]: its
/// lock is kept otherwise until others find its owner gone.
#[derive(Clone)]
pub struct Image(pub(crate) Rc<Inner>);

/// A way to an image that does not keep it open.
pub(crate) struct WeakImage(Weak<Inner>);

impl WeakImage {
    pub(crate) fn get(&self) -> Option<Image> {
        self.0.upgrade().map(Image)
    }
}

/// Who wants what of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// To read: no lock, no watch.
    Read,
    /// To write: the header is watched, and the exclusive lock taken at the first write.
    Write,
}

/// Looks up an image's id by its name.
///
/// # Errors
/// [`Error::NoImage`].
pub async fn image_id(io: &IoCtx, name: &str) -> Result<String> {
    let found: Option<Bytes> =
        absent(calls::get(io, &names::id_object(name), "get_id", b"").await)?;
    match found {
        Some(id) => Ok(calls::string(&id)),
        None if absent(io.stat(format!("{name}.rbd").as_bytes()).await)?.is_some() => {
            Err(Error::Unsupported(format!("'{name}' is an image of the first format")))
        }
        None => Err(Error::NoImage(name.to_owned())),
    }
}

impl Image {
    /// Opens an image.
    ///
    /// # Errors
    /// [`Error::NoImage`]; [`Error::Unsupported`] for features that this client does not know,
    /// or that it does not write: journaling, migrating, dirty-cache.
    pub async fn open(io: &IoCtx, name: &str, mode: Mode) -> Result<Self> {
        let id = image_id(io, name).await?;
        Self::open_id(io, name, &id, mode).await
    }

    /// Opens an image by its id: one in the trash has no name.
    ///
    /// # Errors
    /// As [`Image::open`].
    pub async fn open_id(io: &IoCtx, name: &str, id: &str, mode: Mode) -> Result<Self> {
        Self::open_as(io, name, id, mode, false).await
    }

    /// Opens either side of a migration to be written, as if it did not migrate.
    pub(crate) async fn open_raw(io: &IoCtx, name: &str, id: &str) -> Result<Self> {
        Self::open_as(io, name, id, Mode::Write, true).await
    }

    async fn open_as(io: &IoCtx, name: &str, id: &str, mode: Mode, raw: bool) -> Result<Self> {
        let head = names::header(id);
        let mut op = ReadOp::new();
        let features = ask(&mut op, "get_features", (HEAD, mode == Mode::Read));
        let size = ask(&mut op, "get_size", HEAD);
        let prefix = ask_plain(&mut op, "get_object_prefix");
        let data_pool = ask_plain(&mut op, "get_data_pool");
        let reply = match io.read_op(&head, op).await {
            Err(err) if crate::error::is(&err, crate::error::ENOENT) => {
                return Err(Error::NoImage(name.to_owned()));
            }
            other => other?,
        };
        let (features, incompatible): (u64, u64) = answer(&reply, features)?;
        let unknown = incompatible & !feature::ALL;
        let migrating = if raw { 0 } else { feature::MIGRATING };
        let unwritable = features & (feature::JOURNALING | migrating | feature::DIRTY_CACHE);
        if unknown != 0 {
            let names = names::feature_names(unknown).join(", ");
            return Err(Error::Unsupported(format!("'{name}' has the features {names}")));
        }
        if mode == Mode::Write && unwritable != 0 {
            let names = names::feature_names(unwritable).join(", ");
            return Err(Error::Unsupported(format!("writing '{name}', which has {names}")));
        }
        let (order, _): (u8, u64) = answer(&reply, size)?;
        let (mut unit, mut count) = (0, 0);
        if features & feature::STRIPINGV2 != 0 {
            (unit, count) = calls::get(io, &head, "get_stripe_unit_count", b"").await?;
        }
        let layout = Layout::new(order, unit, count)?;
        let prefix = calls::string(&answer(&reply, prefix)?);
        let data = match answer::<i64>(&reply, data_pool)? {
            -1 => io.clone(),
            pool => io.cluster().pool_by_id(PoolId(pool)).namespace(io.nspace().clone()),
        };
        let header = read_header(io, &head).await?;
        let image = Self(Rc::new(Inner {
            io: io.clone(),
            data,
            name: RefCell::new(name.to_owned()),
            id: id.to_owned(),
            layout,
            prefix,
            read_only: mode == Mode::Read,
            raw,
            header: RefCell::new(header.clone()),
            parent: RefCell::default(),
            lock: Lock::default(),
            slots: tokio::sync::Semaphore::new(IN_FLIGHT_MAX),
        }));
        image.take_header(header).await?;
        if mode == Mode::Write {
            image.start_watch().await?;
        }
        Ok(image)
    }

    pub(crate) fn weak(&self) -> WeakImage {
        WeakImage(Rc::downgrade(&self.0))
    }

    /// From now on the header is this one. Of an image that migrates what is not here shows the
    /// source.
    async fn take_header(&self, mut header: Header) -> Result<()> {
        let seqs = match header.has(feature::MIGRATING) && !self.0.raw {
            true => migration::show_source(&self.0.io, &self.header_object(), &mut header).await?,
            false => None,
        };
        *self.0.header.borrow_mut() = header;
        self.follow_parent(seqs).await
    }

    /// Opens the parent that the header names, where it is not open yet.
    async fn follow_parent(&self, seqs: Option<BTreeMap<u64, u64>>) -> Result<()> {
        let Some(spec) = self.header().parent.clone() else {
            self.0.parent.borrow_mut().take();
            return Ok(());
        };
        let below = seqs.map_or(Below::Cloned(spec.snap), Below::Source);
        let known =
            self.0.parent.borrow().as_ref().map(|p| (p.image.0.id.clone(), p.below.clone()));
        let id = calls::string(&spec.image);
        if known == Some((id.clone(), below.clone())) {
            return Ok(());
        }
        let io = self.0.io.cluster().pool_by_id(PoolId(spec.pool)).namespace(spec.nspace);
        let image = Box::pin(Self::open_id(&io, &id, &id, Mode::Read)).await?;
        if let Below::Cloned(snap) = below {
            image.header().extent(Some(snap))?;
        }
        *self.0.parent.borrow_mut() = Some(ParentView { image, below });
        Ok(())
    }

    /// Reads the header again: what others changed is seen from then on.
    ///
    /// # Errors
    /// [`Error::NoImage`] when it was removed.
    pub async fn refresh(&self) -> Result<()> {
        let header = read_header(&self.0.io, &self.header_object()).await?;
        self.take_header(header).await
    }

    /// What the header said when it was last read.
    #[must_use]
    pub fn header(&self) -> Ref<'_, Header> {
        self.0.header.borrow()
    }

    /// Bytes, as of the last look at the header.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.header().size
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> String {
        self.0.name.borrow().clone()
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// How its bytes lie in objects.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.0.layout
    }

    /// What its data objects' names begin with.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.0.prefix
    }

    /// The pool of its header.
    #[must_use]
    pub fn io(&self) -> &IoCtx {
        &self.0.io
    }

    /// The pool of its data.
    #[must_use]
    pub fn data_io(&self) -> &IoCtx {
        &self.0.data
    }

    pub(crate) fn header_object(&self) -> Vec<u8> {
        names::header(&self.0.id)
    }

    pub(crate) fn object(&self, number: u64) -> Vec<u8> {
        format!("{}.{number:016x}", self.0.prefix).into_bytes()
    }

    pub(crate) fn parent(&self) -> Option<ParentView> {
        self.0.parent.borrow().clone()
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.0.read_only { Err(Error::ReadOnly) } else { Ok(()) }
    }

    /// The parent's pool, namespace, image name or id, snapshot name and overlap, for people;
    /// the source of a migration is none.
    #[must_use]
    pub fn parent_info(&self) -> Option<ParentInfo> {
        let view = self.parent()?;
        let Below::Cloned(snap) = view.below else { return None };
        let header = view.image.header();
        let snap = header.snaps.iter().find(|s| s.id == snap)?.name.clone();
        let io = view.image.io();
        Some(ParentInfo {
            pool: io.pool_id(),
            nspace: calls::string(io.nspace()),
            id: view.image.id().to_owned(),
            snap,
            overlap: self.header().overlap,
        })
    }

    /// Settings and notes that its users keep with it.
    ///
    /// # Errors
    /// As the cluster says.
    pub async fn metadata(&self) -> Result<Vec<(Bytes, Bytes)>> {
        calls::pages::<Bytes>(&self.0.io, &self.header_object(), "metadata_list").await
    }

    /// Sets some.
    ///
    /// # Errors
    /// As the cluster says.
    pub async fn set_metadata(&self, pairs: Vec<(Bytes, Bytes)>) -> Result<()> {
        self.check_writable()?;
        Ok(calls::set(&self.0.io, &self.header_object(), "metadata_set", pairs).await?)
    }

    /// Who watches the header: clients that write the image or serve it.
    ///
    /// # Errors
    /// As the cluster says.
    pub async fn watchers(&self) -> Result<Vec<rados::Watcher>> {
        let mut op = ReadOp::new();
        let slot = op.list_watchers();
        Ok(self.0.io.read_op(&self.header_object(), op).await?.get(slot)?)
    }
}

/// For people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentInfo {
    /// Its pool.
    pub pool: PoolId,
    /// Its namespace.
    pub nspace: String,
    /// Its id; [`crate::pool::name_of`] gives the name.
    pub id: String,
    /// Which of its snapshots was cloned.
    pub snap: String,
    /// How much of it still shows, in bytes.
    pub overlap: Option<u64>,
}

struct SnapSlots {
    id: u64,
    info: Slot<Bytes>,
    flags: Slot<Bytes>,
    protection: Slot<Bytes>,
    overlap: Slot<Bytes>,
}

/// Reads a header. When a snapshot goes between the two reads it begins anew.
async fn read_header(io: &IoCtx, head: &[u8]) -> Result<Header> {
    loop {
        let mut op = ReadOp::new();
        let size = ask(&mut op, "get_size", HEAD);
        let features = ask(&mut op, "get_features", (HEAD, true));
        let flags = ask(&mut op, "get_flags", HEAD);
        let op_features = ask_plain(&mut op, "op_features_get");
        let context = ask_plain(&mut op, "get_snapcontext");
        let parent = ask_plain(&mut op, "parent_get");
        let overlap = ask(&mut op, "parent_overlap_get", HEAD);
        let created = ask_plain(&mut op, "get_create_timestamp");
        let accessed = ask_plain(&mut op, "get_access_timestamp");
        let modified = ask_plain(&mut op, "get_modify_timestamp");
        let reply = io.read_op(head, op).await?;
        let (_, size): (u8, u64) = answer(&reply, size)?;
        let (snap_seq, mut ids): (u64, Vec<u64>) = answer(&reply, context)?;
        ids.sort_unstable();
        let parent: ParentSpec = answer(&reply, parent)?;
        let features: (u64, u64) = answer(&reply, features)?;
        let mut header = Header {
            size,
            features: features.0,
            flags: answer(&reply, flags)?,
            op_features: answer(&reply, op_features)?,
            snaps: Vec::new(),
            snap_seq,
            parent: (parent.pool >= 0 && !parent.image.is_empty()).then_some(parent),
            overlap: answer(&reply, overlap)?,
            created: answer(&reply, created)?,
            accessed: answer(&reply, accessed)?,
            modified: answer(&reply, modified)?,
        };
        if ids.is_empty() {
            return Ok(header);
        }
        match read_snaps(io, head, &ids).await {
            Err(Error::Rados(err)) if crate::error::is(&err, crate::error::ENOENT) => {}
            other => {
                header.snaps = other?;
                return Ok(header);
            }
        }
    }
}

async fn read_snaps(io: &IoCtx, head: &[u8], ids: &[u64]) -> Result<Vec<Snapshot>> {
    let mut snaps = Vec::with_capacity(ids.len());
    for some in ids.chunks(100) {
        let mut op = ReadOp::new();
        let slots: Vec<SnapSlots> = some
            .iter()
            .map(|id| SnapSlots {
                id: *id,
                info: ask(&mut op, "snapshot_get", *id),
                flags: ask(&mut op, "get_flags", *id),
                protection: ask(&mut op, "get_protection_status", *id),
                overlap: ask(&mut op, "parent_overlap_get", *id),
            })
            .collect();
        let reply = io.read_op(head, op).await?;
        for slot in slots {
            let info: SnapInfo = answer(&reply, slot.info)?;
            snaps.push(Snapshot {
                id: slot.id,
                name: calls::string(&info.name),
                kind: info.kind,
                size: info.size,
                time: info.time,
                children: info.children,
                protection: answer(&reply, slot.protection)?,
                flags: answer(&reply, slot.flags)?,
                overlap: answer(&reply, slot.overlap)?,
            });
        }
    }
    Ok(snaps)
}

/// A name that images and snapshots may have.
pub(crate) fn check_name(what: &str, name: &str) -> Result<()> {
    let fine = !name.is_empty() && !name.contains(['@', '/']);
    if fine {
        return Ok(());
    }
    Err(Error::Invalid(format!("'{name}' is no name for {what}: none of '@' and '/', not empty")))
}
