//! The trash: images without a name that wait to be removed, or to be taken back.

use cls::client::TrashSpec;
use denc::Denc;
use rados::{IoCtx, WriteOp};
use types::UTime;

use crate::calls::{self, tell};
use crate::error::{EEXIST, Error, Result, absent, is};
use crate::image::{Image, Mode, check_name, image_id};
use crate::{names, pool};

/// An image in the trash.
#[derive(Clone, Debug)]
pub struct Trashed {
    /// Its id, by which it comes back.
    pub id: String,
    /// The name it had.
    pub name: String,
    /// When it was thrown away.
    pub deleted: UTime,
    /// Until when it is not to be removed.
    pub deferred: UTime,
    /// How it came here: 0 by its user, others by daemons.
    pub source: u8,
    state: u8,
}

/// Thrown away by its user, or with the last thing that needed it. `TRASH_IMAGE_SOURCE_*`.
const USERS: [u8; 2] = [0, 4];
/// The source of a migration. `TRASH_IMAGE_SOURCE_MIGRATION`.
pub(crate) const MIGRATION: u8 = 2;
/// States of an image in the trash. `TRASH_IMAGE_STATE_*`.
const NORMAL: u8 = 0;
const MOVING: u8 = 1;
const REMOVING: u8 = 2;
const RESTORING: u8 = 3;

fn now() -> UTime {
    UTime::from_nanos(rt::now().wall_ns)
}

/// Throws an image away; its id. It is not removed before `delay_secs` are over. Its clones
/// go on.
///
/// # Errors
/// [`Error::Busy`] when somebody uses it.
pub async fn put(io: &IoCtx, name: &str, delay_secs: u32) -> Result<String> {
    let image = Image::open(io, name, Mode::Write).await?;
    let id = image.id().to_owned();
    let free = match image.other_watcher().await {
        Ok(None) => image.acquire_lock().await,
        Ok(Some(other)) => Err(Error::Busy(other)),
        Err(err) => Err(err),
    };
    image.close().await?;
    free?;
    let deleted = now();
    let deferred = deleted.plus_secs(delay_secs);
    let spec = TrashSpec { source: 0, name: calls::text(name), deleted, deferred, state: MOVING };
    match calls::set(io, names::TRASH, "trash_add", (calls::text(&id), spec)).await {
        Err(err) if is(&err, EEXIST) => {}
        other => other?,
    }
    absent(io.remove(&names::id_object(name)).await)?;
    let params = (calls::text(name), calls::text(&id));
    absent(calls::set(io, names::DIRECTORY, "dir_remove_image", params).await)?;
    let params = ((calls::text(&id), NORMAL), MOVING);
    calls::set(io, names::TRASH, "trash_state_set", params).await?;
    Ok(id)
}

/// What is in the trash.
///
/// # Errors
/// As the cluster says.
pub async fn list(io: &IoCtx) -> Result<Vec<Trashed>> {
    let found = calls::pages::<TrashSpec>(io, names::TRASH, "trash_list").await?;
    let trashed = |(id, spec): &(bytes::Bytes, TrashSpec)| Trashed {
        id: calls::string(id),
        name: calls::string(&spec.name),
        deleted: spec.deleted,
        deferred: spec.deferred,
        source: spec.source,
        state: spec.state,
    };
    Ok(found.iter().map(trashed).collect())
}

async fn entry(io: &IoCtx, id: &str) -> Result<TrashSpec> {
    let params = calls::text(id).to_bytes();
    let spec = absent(calls::get(io, names::TRASH, "trash_get", &params).await)?;
    spec.ok_or_else(|| Error::NoImage(id.to_owned()))
}

/// Takes an image back, under its old name or another; the name.
///
/// # Errors
/// [`Error::NoImage`], [`Error::Exists`].
pub async fn restore(io: &IoCtx, id: &str, name: Option<&str>) -> Result<String> {
    let spec = entry(io, id).await?;
    let name = name.map_or_else(|| calls::string(&spec.name), str::to_owned);
    check_name("an image", &name)?;
    let params = ((calls::text(id), RESTORING), spec.state);
    calls::set(io, names::TRASH, "trash_state_set", params).await?;
    let mut op = WriteOp::new();
    op.create(true);
    tell(&mut op, "set_id", calls::text(id));
    if let Err(err) = io.write_op(&names::id_object(&name), op).await {
        let again = is(&err, EEXIST) && image_id(io, &name).await? == id;
        if !again {
            let params = ((calls::text(id), NORMAL), RESTORING);
            calls::set(io, names::TRASH, "trash_state_set", params).await?;
            return Err(if is(&err, EEXIST) { Error::Exists(name) } else { err.into() });
        }
    }
    let params = (calls::text(&name), calls::text(id));
    match calls::set(io, names::DIRECTORY, "dir_add_image", params).await {
        Err(err) if is(&err, EEXIST) => {}
        other => other?,
    }
    absent(calls::set(io, names::TRASH, "trash_remove", calls::text(id)).await)?;
    Ok(name)
}

/// Removes an image from the trash for good.
///
/// # Errors
/// [`Error::Busy`] before its time is over, unless `force`; and when it has snapshots.
pub async fn remove(
    io: &IoCtx,
    id: &str,
    force: bool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let spec = entry(io, id).await?;
    if !force && spec.deferred.nanos() > now().nanos() {
        return Err(Error::Busy(format!("it is to be kept until {}", spec.deferred)));
    }
    pool::remove_image(io, id, id, progress).await?;
    absent(calls::set(io, names::TRASH, "trash_remove", calls::text(id)).await)?;
    Ok(())
}

/// Removes all images whose time is over, as far as nothing needs them; how many went, and
/// what kept the first that did not.
///
/// # Errors
/// As the cluster says.
pub async fn purge(io: &IoCtx) -> Result<(usize, Option<Error>)> {
    let now = now().nanos();
    let due = |t: &Trashed| {
        USERS.contains(&t.source)
            && matches!(t.state, NORMAL | REMOVING)
            && t.deferred.nanos() <= now
    };
    let mut waiting: Vec<String> = list(io).await?.into_iter().filter(due).map(|t| t.id).collect();
    let mut gone = 0;
    // A clone that goes may let its parent go.
    loop {
        let (mut left, mut why) = (Vec::new(), None);
        let before = waiting.len();
        for id in waiting {
            match remove(io, &id, false, &mut |_, _| {}).await {
                Ok(()) => gone += 1,
                Err(Error::NoImage(_)) => {}
                Err(err @ (Error::Busy(_) | Error::Unsupported(_))) => {
                    why.get_or_insert(err);
                    left.push(id);
                }
                Err(err) => return Err(err),
            }
        }
        if left.is_empty() || left.len() == before {
            return Ok((gone, why));
        }
        waiting = left;
    }
}
