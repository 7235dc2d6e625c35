//! Migrations: an image moves to another pool, namespace, name or layout while it is used.
//!
//! ```text
//!   prepare (librbd)     execute          execute           commit
//!  ---------> prepared ---------> executing ---------> executed ---------> the source is gone
//!                 |                   |                   |
//!                 +-------------------+-------------------+--- abort ---> the destination is
//! ```
//!
//! Both headers have a `MigrationSpec` that names the other side; the source is in the trash and
//! is not written any more. The destination has the source's snapshots from the beginning, and
//! what it has no object for shows the source. Executing copies object by object. What was
//! written to the destination is given to the source when the migration is taken back.
//!
//! Not here: preparing; sources outside of the cluster; sources of the first format; images that
//! are mirrored (these are executed, but the end has to come from librbd).
//!
//! Source: the peer's `librbd/api/Migration.cc`, `image/RefreshRequest.cc`.

use std::collections::BTreeMap;

use cls::client::{
    ChildSpec, GroupImage, GroupImageStatus, GroupSpec, Migration, ParentSpec, op_feature,
};
use denc::Denc;
use rados::IoCtx;
use types::PoolId;

use crate::calls::{self, HEAD};
use crate::deep_copy::DeepCopy;
use crate::error::{EEXIST, EINVAL, ENOENT, Error, Result, absent, is};
use crate::image::{Header, Image, Mode, image_id};
use crate::notify::Notice;
use crate::{names, pool, trash};

/// `MIGRATION_HEADER_TYPE_SRC` and `_DST`.
const SOURCE: u8 = 1;
const DESTINATION: u8 = 2;

/// How far a migration is. `MIGRATION_STATE_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It failed.
    Error = 0,
    /// The destination is being made.
    Preparing = 1,
    /// The destination can be used.
    Prepared = 2,
    /// Being copied, or broken off while it was.
    Executing = 3,
    /// All is copied.
    Executed = 4,
    /// Being taken back.
    Aborting = 5,
}

impl State {
    fn of(number: u8) -> Self {
        let all =
            [Self::Preparing, Self::Prepared, Self::Executing, Self::Executed, Self::Aborting];
        all.into_iter().find(|s| *s as u8 == number).unwrap_or(Self::Error)
    }
}

/// One of the two images.
#[derive(Clone)]
pub struct Side {
    /// Its pool and namespace.
    pub io: IoCtx,
    /// Its name; the source has it no more.
    pub name: String,
    /// Its id.
    pub id: String,
}

impl Side {
    fn header(&self) -> Vec<u8> {
        names::header(&self.id)
    }

    /// What its header says of the migration; none where it does not migrate or is not there.
    async fn spec(&self) -> Result<Option<Migration>> {
        match calls::get(&self.io, &self.header(), "migration_get", b"").await {
            Err(err) if is(&err, EINVAL) || is(&err, ENOENT) => Ok(None),
            other => Ok(Some(other?)),
        }
    }

    fn other(&self, spec: &Migration) -> Self {
        let pool = self.io.cluster().pool_by_id(PoolId(spec.pool));
        Self {
            io: pool.namespace(spec.nspace.clone()),
            name: calls::string(&spec.name),
            id: calls::string(&spec.image),
        }
    }

    async fn set_state(&self, state: State, description: &str) -> Result<()> {
        let params = (state as u8, calls::text(description));
        Ok(calls::set(&self.io, &self.header(), "migration_set_state", params).await?)
    }

    /// It migrates no more.
    async fn release(&self) -> Result<()> {
        let (head, update) = (self.header(), Notice::HeaderUpdate);
        absent(self.io.exec_write(&head, "rbd", "migration_remove", b"").await)?;
        absent(self.io.notify(&head, update.to_bytes(), pool::PATIENCE).await)?;
        Ok(())
    }
}

/// A migration, found by the name of either image.
pub struct Found {
    /// Where the image was.
    pub source: Side,
    /// Where it goes.
    pub dest: Side,
    /// How far it is.
    pub state: State,
    spec: Migration,
    /// The destination's header knows of it.
    dest_migrates: bool,
}

fn not_migrating(name: &str) -> Error {
    Error::Invalid(format!("'{name}' is not migrating"))
}

/// The source with this name among those in the trash.
async fn in_trash(io: &IoCtx, name: &str) -> Result<Option<Side>> {
    let all = trash::list(io).await?.into_iter();
    let mut found = all.filter(|t| t.source == trash::MIGRATION && t.name == name);
    Ok(found.next().map(|t| Side { io: io.clone(), name: t.name, id: t.id }))
}

/// The source whose destination had this name: either side may have gone before the other knew.
async fn by_destination(io: &IoCtx, name: &str) -> Result<Option<Side>> {
    let cluster = io.cluster();
    let map = cluster.map();
    let pools = map.pools.iter().filter(|(_, p)| p.application_metadata.contains_key("rbd"));
    for (id, _) in pools {
        let pool = cluster.pool_by_id(*id);
        let mut nspaces = vec![String::new()];
        nspaces.extend(pool::namespaces(&pool).await?);
        for nspace in nspaces {
            let at = pool.namespace(nspace);
            for t in trash::list(&at).await? {
                let side = Side { io: at.clone(), name: t.name, id: t.id };
                let Some(spec) = side.spec().await? else { continue };
                let dest = (PoolId(spec.pool), &spec.nspace, calls::string(&spec.name));
                if spec.header == SOURCE && dest == (io.pool_id(), io.nspace(), name.to_owned()) {
                    return Ok(Some(side));
                }
            }
        }
    }
    Ok(None)
}

/// The migration of the image with this name, or that had it before.
///
/// # Errors
/// [`Error::NoImage`]; [`Error::Invalid`] when it is not migrating; [`Error::Unsupported`] for
/// sources that are no images of the second format.
pub async fn find(io: &IoCtx, name: &str) -> Result<Found> {
    let side = match image_id(io, name).await {
        Ok(id) => Some(Side { io: io.clone(), name: name.to_owned(), id }),
        Err(Error::NoImage(_)) => in_trash(io, name).await?,
        Err(err) => return Err(err),
    };
    let is_there = side.is_some();
    let (side, spec) = match side {
        Some(side) => {
            let spec = side.spec().await?;
            (Some(side), spec)
        }
        None => (None, None),
    };
    let (side, spec) = match (side, spec) {
        (Some(side), Some(spec)) => (side, spec),
        _ => {
            let none =
                || if is_there { not_migrating(name) } else { Error::NoImage(name.to_owned()) };
            let side = by_destination(io, name).await?.ok_or_else(none)?;
            let spec = side.spec().await?.ok_or_else(none)?;
            (side, spec)
        }
    };
    let other = side.other(&spec);
    if spec.header == DESTINATION {
        check_source(name, &spec)?;
        let state = State::of(spec.state);
        return Ok(Found { source: other, dest: side, state, spec, dest_migrates: true });
    }
    match other.spec().await?.filter(|s| s.header == DESTINATION) {
        Some(spec) => {
            let state = State::of(spec.state);
            Ok(Found { source: side, dest: other, state, spec, dest_migrates: true })
        }
        None => {
            let state = State::of(spec.state);
            Ok(Found { source: side, dest: other, state, spec, dest_migrates: false })
        }
    }
}

fn check_source(name: &str, spec: &Migration) -> Result<()> {
    if spec.pool < 0 || !spec.source.is_empty() {
        let what = format!("'{name}' is imported from outside: '{}'", calls::string(&spec.source));
        return Err(Error::Unsupported(format!("{what}; librbd migrates it")));
    }
    if spec.image.is_empty() {
        let source = calls::string(&spec.name);
        let what = format!("'{name}' migrates from '{source}' of the first format");
        return Err(Error::Unsupported(format!("{what}; librbd does it")));
    }
    Ok(())
}

/// For reading an image that migrates: makes the header say that the source is its parent.
/// Gives the source's snapshots by the image's own; none for the source itself, and where all is
/// copied.
pub(crate) async fn show_source(
    io: &IoCtx,
    head: &[u8],
    header: &mut Header,
) -> Result<Option<BTreeMap<u64, u64>>> {
    let spec: Migration = match calls::get(io, head, "migration_get", b"").await {
        // It ended in between.
        Err(err) if is(&err, EINVAL) => return Ok(None),
        other => other?,
    };
    if spec.header != DESTINATION || State::of(spec.state) == State::Executed {
        return Ok(None);
    }
    check_source("the image", &spec)?;
    Ok(Some(overlay(&spec, header)))
}

/// The header of a destination as if it were the source's clone; the source's snapshots by the
/// destination's.
fn overlay(spec: &Migration, header: &mut Header) -> BTreeMap<u64, u64> {
    let (pool, nspace, image) = (spec.pool, spec.nspace.clone(), spec.image.clone());
    header.parent = Some(ParentSpec { pool, nspace, image, snap: HEAD });
    header.overlap = Some(header.size.min(spec.overlap));
    let own = spec.snap_seqs.iter().filter(|(source, _)| **source != HEAD);
    let seqs: BTreeMap<u64, u64> = own.map(|(source, dest)| (*dest, *source)).collect();
    for snap in &mut header.snaps {
        let most = if seqs.contains_key(&snap.id) { snap.size } else { spec.overlap };
        snap.overlap = Some(snap.size.min(most));
    }
    seqs
}

/// A migration that is being executed. Close it, however it ended.
pub struct Execution {
    found: Found,
    dest: Image,
    source: Image,
}

/// Opens both images of a migration to copy what is not copied yet.
///
/// # Errors
/// As [`find`]; [`Error::Invalid`] when it is not prepared.
pub async fn open(io: &IoCtx, name: &str) -> Result<Execution> {
    let found = find(io, name).await?;
    if !found.dest_migrates || !matches!(found.state, State::Prepared | State::Executing) {
        return Err(Error::Invalid(format!("the migration is {:?}, not prepared", found.state)));
    }
    let Side { io, name, id } = &found.source;
    let source = Image::open_id(io, name, id, Mode::Read).await?;
    let Side { io, name, id } = &found.dest;
    let dest = Image::open_raw(io, name, id).await?;
    Ok(Execution { found, dest, source })
}

impl Execution {
    /// Copies all objects. `progress` is told of objects done, of all. What was copied before it
    /// was broken off need not be copied again.
    ///
    /// # Errors
    /// As the cluster says.
    pub async fn run(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        const BATCH: u64 = 16;
        self.set_state(State::Executing, "").await?;
        let copy = std::rc::Rc::new(self.found.copy(&self.source, &self.dest));
        let count = copy.object_count();
        let (mut at, mut told) = (0, 0);
        while at < count {
            let next = (at + BATCH).min(count);
            // The gate is let go in between: others may want the lock.
            crate::io::each((at..next).collect(), |object| {
                let copy = copy.clone();
                async move { copy.object(object).await }
            })
            .await?;
            at = next;
            progress(at, count);
            if at * 100 / count > told {
                told = at * 100 / count;
                self.set_state(State::Executing, &format!("{told}% complete")).await?;
            }
        }
        self.set_state(State::Executed, "").await?;
        self.dest.tell_update().await
    }

    async fn set_state(&self, state: State, description: &str) -> Result<()> {
        self.found.source.set_state(state, description).await?;
        self.found.dest.set_state(state, description).await
    }

    /// Ends what is open.
    ///
    /// # Errors
    /// As [`Image::close`].
    pub async fn close(self) -> Result<()> {
        self.dest.close().await
    }
}

/// Ends a migration that is executed: the source goes.
///
/// # Errors
/// As [`find`]; [`Error::Invalid`] when it is not executed; [`Error::Busy`] when somebody needs
/// the source.
pub async fn commit(io: &IoCtx, name: &str, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
    let found = find(io, name).await?;
    if found.state != State::Executed {
        return Err(Error::Invalid(format!("the migration is {:?}, not executed", found.state)));
    }
    found.check_mirroring()?;
    if !found.dest_migrates && absent(found.dest.io.stat(&found.dest.header()).await)?.is_none() {
        return Err(Error::Invalid("the destination is gone".to_owned()));
    }
    let Side { io, name, id } = &found.source;
    let source = Image::open_raw(io, name, id).await?;
    let done = found.commit(&source, progress).await;
    done.and(source.close().await)?;
    absent(calls::set(io, names::TRASH, "trash_remove", calls::text(id)).await)?;
    Ok(())
}

/// Takes a migration back: the source is what it was, with what was written to the destination
/// since; the destination goes, with the snapshots that were made of it.
///
/// # Errors
/// As [`find`]; [`Error::Busy`] when somebody uses the destination or has clones of its own
/// snapshots; [`Error::Invalid`] when it is committed already.
pub async fn abort(io: &IoCtx, name: &str, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
    let found = find(io, name).await?;
    found.check_mirroring()?;
    let Side { io, name, id } = &found.dest;
    let mut group = GroupSpec::default();
    match Image::open_raw(io, name, id).await {
        Ok(_) if !found.dest_migrates && found.state == State::Executed => {
            return Err(Error::Invalid("the migration is committed, but for its end".to_owned()));
        }
        Ok(dest) => {
            let done = found.abort_open(&dest, progress).await;
            let closed = dest.close().await;
            group = done?;
            closed?;
        }
        Err(Error::NoImage(_)) => {}
        Err(err) => return Err(err),
    }
    // The name may be left of a removal that was broken off.
    if image_id(io, name).await.is_ok_and(|found| found == *id) {
        pool::remove_name(io, name, id).await?;
    }
    let Side { io, name, id } = &found.source;
    match trash::restore(io, id, Some(name)).await {
        // It was restored before.
        Err(Error::NoImage(_)) if image_id(io, name).await.is_ok_and(|found| found == *id) => {}
        other => drop(other?),
    }
    join_group(&found.source, &group).await?;
    found.source.release().await
}

impl Found {
    fn check_mirroring(&self) -> Result<()> {
        match self.spec.mirroring {
            false => Ok(()),
            true => {
                let what = "the end of migrations of mirrored images; librbd does it";
                Err(Error::Unsupported(what.to_owned()))
            }
        }
    }

    fn copy(&self, source: &Image, dest: &Image) -> DeepCopy {
        let Migration { snap_seqs, overlap, flatten, .. } = &self.spec;
        DeepCopy::new(source, dest, snap_seqs, *overlap, *flatten)
    }

    async fn commit(&self, source: &Image, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        let snaps = source.header().snaps.clone();
        for snap in &snaps {
            if !snap.is_users() || !source.children(snap.id).await?.is_empty() {
                let name = &snap.name;
                return Err(Error::Busy(format!("the source's snapshot '{name}' is needed")));
            }
        }
        if self.dest_migrates {
            self.dest.release().await?;
        }
        remove_snaps(source).await?;
        pool::remove_open(source, progress).await
    }

    /// Gives back what the destination has, and removes it; the group that it was in.
    async fn abort_open(
        &self,
        dest: &Image,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<GroupSpec> {
        if let Some(other) = dest.other_watcher().await? {
            return Err(Error::Busy(other));
        }
        if self.dest_migrates {
            self.source.set_state(State::Aborting, "").await?;
            self.dest.set_state(State::Aborting, "").await?;
            let Side { io, name, id } = &self.source;
            let source = Image::open_raw(io, name, id).await?;
            let done = async {
                self.copy(&source, dest).revert(progress).await?;
                self.relink_children(&source, dest).await
            };
            let done = done.await;
            done.and(source.close().await)?;
        }
        remove_snaps(dest).await?;
        let group = leave_group(&self.dest).await?;
        pool::remove_open(dest, progress).await?;
        Ok(group)
    }

    /// Clones of the destination's snapshots become clones of the source's again.
    async fn relink_children(&self, source: &Image, dest: &Image) -> Result<()> {
        for (to, from) in self.spec.snap_seqs.iter().filter(|(to, _)| **to != HEAD) {
            let is_there = |image: &Image, id: u64| image.header().snaps.iter().any(|s| s.id == id);
            if !is_there(source, *to) {
                continue;
            }
            let moved = match is_there(dest, *from) {
                true => dest.children(*from).await?,
                false => Vec::new(),
            };
            for child in &moved {
                self.relink_child(child, *from, *to, true).await?;
            }
            // Those that a preparation broken off had not taken away from the source yet.
            for child in source.children(*to).await?.iter().filter(|c| !moved.contains(c)) {
                self.relink_child(child, *from, *to, false).await?;
            }
        }
        Ok(())
    }

    async fn relink_child(
        &self,
        child: &ChildSpec,
        from: u64,
        to: u64,
        listed: bool,
    ) -> Result<()> {
        let pool = self.source.io.cluster().pool_by_id(PoolId(child.pool));
        let io = pool.namespace(child.nspace.clone());
        let id = calls::string(&child.image);
        let head = names::header(&id);
        let spec = |side: &Side, snap| ParentSpec {
            pool: side.io.pool_id().0,
            nspace: side.io.nspace().clone(),
            image: calls::text(&side.id),
            snap,
        };
        let (old, new) = (spec(&self.dest, from), spec(&self.source, to));
        let image = Image::open_id(&io, &id, &id, Mode::Read).await?;
        let header = image.header().clone();
        if header.parent.as_ref() == Some(&old) {
            let overlap = header.overlap.or_else(|| header.snaps.iter().find_map(|s| s.overlap));
            let params = ((new.clone(), overlap.unwrap_or(0)), true);
            calls::set(&io, &head, "parent_attach", params).await?;
        } else if header.parent.as_ref() != Some(&new) {
            return Err(Error::Busy(format!("'{id}' is a clone of neither of the two images")));
        }
        if listed && header.op_features & op_feature::CLONE_CHILD != 0 {
            let (from, to) = ((from, child.clone()), (to, child.clone()));
            let source = &self.source;
            match calls::set(&source.io, &source.header(), "child_attach", to).await {
                Err(err) if is(&err, EEXIST) => {}
                other => other?,
            }
            let dest = &self.dest;
            absent(calls::set(&dest.io, &dest.header(), "child_detach", from).await)?;
        } else if listed {
            let params = pool::old_child(&new, &id);
            match calls::set(&io, names::CHILDREN, "add_child", params).await {
                Err(err) if is(&err, EEXIST) => {}
                other => other?,
            }
            let params = pool::old_child(&old, &id);
            absent(calls::set(&io, names::CHILDREN, "remove_child", params).await)?;
        }
        absent(io.notify(&head, Notice::HeaderUpdate.to_bytes(), pool::PATIENCE).await)?;
        Ok(())
    }
}

/// Removes an image's snapshots, newest first, protected ones too.
async fn remove_snaps(image: &Image) -> Result<()> {
    let snaps = image.header().snaps.clone();
    for snap in snaps.iter().rev() {
        if snap.is_protected() {
            image.unprotect_snap(&snap.name).await?;
        }
        image.remove_snap_id(snap.id).await?;
    }
    Ok(())
}

fn group_of(side: &Side, group: &GroupSpec) -> (IoCtx, Vec<u8>, GroupImage) {
    let pool = side.io.cluster().pool_by_id(PoolId(group.pool));
    let image = GroupImage { image: calls::text(&side.id), pool: side.io.pool_id().0 };
    let io = pool.namespace(side.io.nspace().clone());
    (io, names::group_header(&calls::string(&group.group)), image)
}

/// States of an image in its group. `GROUP_IMAGE_LINK_STATE_*`.
const ATTACHED: u8 = 0;
const INCOMPLETE: u8 = 1;

/// Takes an image out of its group; which one that was.
async fn leave_group(side: &Side) -> Result<GroupSpec> {
    let group: GroupSpec = calls::get(&side.io, &side.header(), "image_group_get", b"").await?;
    if group.pool < 0 {
        return Ok(group);
    }
    let (io, head, spec) = group_of(side, &group);
    let leaving = GroupImageStatus { spec: spec.clone(), state: INCOMPLETE };
    calls::set(&io, &head, "group_image_set", leaving).await?;
    absent(calls::set(&side.io, &side.header(), "image_group_remove", group.clone()).await)?;
    absent(calls::set(&io, &head, "group_image_remove", spec).await)?;
    Ok(group)
}

async fn join_group(side: &Side, group: &GroupSpec) -> Result<()> {
    if group.pool < 0 {
        return Ok(());
    }
    let (io, head, spec) = group_of(side, group);
    let status = |state| GroupImageStatus { spec: spec.clone(), state };
    calls::set(&io, &head, "group_image_set", status(INCOMPLETE)).await?;
    calls::set(&side.io, &side.header(), "image_group_add", group.clone()).await?;
    Ok(calls::set(&io, &head, "group_image_set", status(ATTACHED)).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The image was 100 bytes when it was prepared, 200 in its first snapshot, and is 150 now.
    #[test]
    fn the_source_shows_below_the_overlap() {
        let spec = Migration {
            header: DESTINATION,
            pool: 3,
            image: "abc".into(),
            snap_seqs: BTreeMap::from([(4, 14), (HEAD, HEAD)]),
            overlap: 100,
            ..Migration::default()
        };
        let mut header = Header::for_test(150, &[(14, 200, None), (20, 120, Some(7))]);
        assert_eq!(overlay(&spec, &mut header), BTreeMap::from([(14, 4)]));
        let parent = header.parent.as_ref().unwrap();
        assert_eq!((parent.pool, parent.image.as_ref()), (3, b"abc".as_slice()));
        let overlaps: Vec<_> = header.snaps.iter().map(|s| s.overlap).collect();
        assert_eq!((header.overlap, overlaps), (Some(100), vec![Some(200), Some(100)]));
    }

    #[test]
    fn foreign_sources_are_refused() {
        let spec = Migration { pool: 3, image: "abc".into(), ..Migration::default() };
        assert!(check_source("x", &spec).is_ok());
        let first_format = Migration { image: "".into(), ..spec.clone() };
        let outside = Migration { pool: -1, source: "{\"type\":\"raw\"}".into(), ..spec };
        for bad in [first_format, outside] {
            assert_eq!(check_source("x", &bad).unwrap_err().errno(), 95);
        }
    }

    #[test]
    fn states_are_the_peers() {
        let numbers = (0..=6).map(|n| State::of(n) as u8).collect::<Vec<_>>();
        assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 0]);
    }
}
