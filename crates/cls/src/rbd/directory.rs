//! Directories of a pool: images by name and id, the trash, namespaces; and the id objects.

use bytes::Bytes;
use types::{Errno, OpResult};

use super::types::TrashSpec;
use crate::keys::{self, Step, absent, answer, exists, key, list, read, read_if, walk, write};
use crate::{BADF, DONE, Object, Reply, STALE, params, stored};

const NAME: &[u8] = b"name_";
const ID: &[u8] = b"id_";
const READY: u8 = 0;
const ADD_DISABLED: u8 = 1;

/// Letters and digits, at least one.
fn is_id(id: &[u8]) -> bool {
    !id.is_empty() && id.iter().all(u8::is_ascii_alphanumeric)
}

pub(super) fn get_id(o: &mut dyn Object, _: &Bytes) -> OpResult<Reply> {
    let (size, _) = o.stat()?;
    if size == 0 {
        return Err(Errno::NOENT);
    }
    let id: Bytes = stored(&o.read(0, size)?)?;
    answer(&id)
}

pub(super) fn set_id(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let (size, _) = o.stat()?;
    let id: Bytes = params(input)?;
    if !is_id(&id) {
        return Err(Errno::INVAL);
    }
    if size != 0 {
        return Err(Errno::EXIST);
    }
    o.write(0, denc::Denc::to_bytes(&id))?;
    Ok(DONE)
}

fn add(o: &mut dyn Object, name: Bytes, id: Bytes, unique: bool) -> OpResult<Reply> {
    if name.is_empty() || !is_id(&id) {
        return Err(Errno::INVAL);
    }
    let (name_key, id_key) = (key(NAME, &name), key(ID, &id));
    if exists(o, &name_key)? {
        return Err(Errno::EXIST);
    }
    if unique && exists(o, &id_key)? {
        return Err(BADF);
    }
    write(o, &name_key, &id)?;
    write(o, &id_key, &name).map(keys::done)
}

fn remove(o: &mut dyn Object, name: &Bytes, id: &Bytes) -> OpResult<Reply> {
    let (name_key, id_key) = (key(NAME, name), key(ID, id));
    let stored_id: Bytes = read(o, &name_key)?;
    let stored_name: Bytes = read(o, &id_key)?;
    // It was renamed meanwhile.
    if stored_id != *id || stored_name != *name {
        return Err(STALE);
    }
    o.omap_rm(vec![name_key, id_key])?;
    Ok(DONE)
}

/// Of images and of groups.
pub(super) fn dir_add(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    o.create(false)?;
    let (name, id): (Bytes, Bytes) = params(input)?;
    add(o, name, id, true)
}

pub(super) fn dir_remove(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let (name, id): (Bytes, Bytes) = params(input)?;
    remove(o, &name, &id)
}

pub(super) fn dir_rename(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let ((from, to), id): ((Bytes, Bytes), Bytes) = params(input)?;
    // The new name may be the old one: what was there until now counts.
    let to_exists = exists(o, &key(NAME, &to))?;
    remove(o, &from, &id)?;
    if to_exists {
        return Err(Errno::EXIST);
    }
    add(o, to, id, false)
}

pub(super) fn dir_get_id(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let name: Bytes = params(input)?;
    answer(&read::<Bytes>(o, &key(NAME, &name))?)
}

pub(super) fn dir_get_name(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let id: Bytes = params(input)?;
    answer(&read::<Bytes>(o, &key(ID, &id))?)
}

pub(super) fn dir_list(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let (start, max): (Bytes, u64) = params(input)?;
    answer(&list::<Bytes>(o, NAME, &start, max)?)
}

pub(super) fn dir_state_assert(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let state: u8 = params(input)?;
    if read::<u8>(o, b"state")? == state { Ok(DONE) } else { Err(Errno::NOENT) }
}

pub(super) fn dir_state_set(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let state: u8 = params(input)?;
    let is_there = absent(o.stat())?.is_some();
    match state {
        READY => {}
        ADD_DISABLED => {
            if !is_there {
                return Err(Errno::NOENT);
            }
            if !o.omap_page(NAME, NAME, 1)?.0.is_empty() {
                return Err(Errno::BUSY);
            }
        }
        _ => return Err(Errno::INVAL),
    }
    write(o, b"state", &state).map(keys::done)
}

pub(super) fn trash_add(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    o.create(false)?;
    let (id, spec): (Bytes, TrashSpec) = params(input)?;
    if !is_id(&id) {
        return Err(Errno::INVAL);
    }
    let key = key(ID, &id);
    if read_if::<TrashSpec>(o, &key)?.is_some() {
        return Err(Errno::EXIST);
    }
    write(o, &key, &spec).map(keys::done)
}

pub(super) fn trash_remove(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let id: Bytes = params(input)?;
    let key = key(ID, &id);
    o.omap_get(&key)?;
    keys::remove(o, &key).map(keys::done)
}

pub(super) fn trash_list(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let (start, max): (Bytes, u64) = params(input)?;
    answer(&list::<TrashSpec>(o, ID, &start, max)?)
}

pub(super) fn trash_get(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let id: Bytes = params(input)?;
    Ok(o.omap_get(&key(ID, &id))?.into())
}

pub(super) fn trash_state_set(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let ((id, state), expected): ((Bytes, u8), u8) = params(input)?;
    let key = key(ID, &id);
    let spec: TrashSpec = read(o, &key)?;
    if spec.state == expected {
        write(o, &key, &TrashSpec { state, ..spec })?;
    } else if spec.state != state {
        return Err(STALE);
    }
    Ok(DONE)
}

pub(super) fn namespace_add(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let name: Bytes = params(input)?;
    let key = key(NAME, &name);
    if exists(o, &key)? {
        return Err(Errno::EXIST);
    }
    o.omap_set(vec![(key, Bytes::new())])?;
    Ok(DONE)
}

pub(super) fn namespace_remove(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let name: Bytes = params(input)?;
    let key = key(NAME, &name);
    o.omap_get(&key)?;
    keys::remove(o, &key).map(keys::done)
}

pub(super) fn namespace_list(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let (start, max): (Bytes, u64) = params(input)?;
    o.stat()?;
    let mut names: Vec<Bytes> = Vec::new();
    if max > 0 {
        walk(o, &key(NAME, &start), NAME, |key, _| {
            names.push(key.slice(NAME.len()..));
            Ok(if names.len() as u64 >= max { Step::Enough } else { Step::Next })
        })?;
    }
    answer(&names)
}
