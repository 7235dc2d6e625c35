//! What an image was cloned from, and its migration.

use bytes::Bytes;
use denc::Reader;
use types::{Errno, OpResult};

use super::header::{require, set_op_features};
use super::types::{HEAD, Migration, Parent, ParentSpec, Snap};
use super::{feature, op_feature, snap, snap_key};
use crate::keys::{self, answer, read, read_if, remove_if, write};
use crate::{DONE, NOEXEC, NXIO, Object, Reply, XDEV, arg, params};

/// ENOEXEC is not an error where nothing is layered.
fn is_layered(o: &mut dyn Object) -> OpResult<bool> {
    match require(o, feature::LAYERING) {
        Ok(()) => Ok(true),
        Err(NOEXEC) => Ok(false),
        Err(e) => Err(e),
    }
}

/// The older form, which knows no namespaces.
pub(super) fn get_old(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let id: u64 = params(input)?;
    o.stat()?;
    let mut parent = Parent::default();
    if is_layered(o)? {
        parent = read_if(o, b"parent")?.unwrap_or_default();
        if !parent.nspace.is_empty() {
            return Err(XDEV);
        }
        if id != HEAD {
            let snap = read_if::<Snap>(o, &snap_key(id))?.unwrap_or_default();
            if snap.parent.exists() {
                parent = snap.parent;
            } else if snap.overlap.is_some() {
                if !parent.exists() {
                    return Err(Errno::INVAL);
                }
                parent.overlap = snap.overlap;
            } else {
                parent = Parent::default();
            }
        }
    }
    answer(&((parent.pool, parent.image), (parent.snap, parent.overlap.unwrap_or(0))))
}

fn attach(o: &mut dyn Object, mut parent: Parent, again: bool) -> OpResult<Reply> {
    o.stat()?;
    require(o, feature::LAYERING)?;
    let overlap = parent.overlap.filter(|overlap| *overlap > 0).ok_or(Errno::INVAL)?;
    if !parent.exists() {
        return Err(Errno::INVAL);
    }
    if let Some(mut old) = read_if::<Parent>(o, b"parent")? {
        let had_overlap = old.overlap.is_some();
        old.overlap = parent.overlap;
        if (had_overlap || old != parent) && !again {
            return Err(Errno::EXIST);
        }
    }
    let size: u64 = read(o, b"size")?;
    parent.overlap = Some(overlap.min(size));
    write(o, b"parent", &parent).map(keys::done)
}

pub(super) fn set_old(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let ((pool, image), (snap, overlap)): ((i64, Bytes), (u64, u64)) = params(input)?;
    let parent = Parent { pool, nspace: Bytes::new(), image, snap, overlap: Some(overlap) };
    attach(o, parent, false)
}

pub(super) fn attach_method(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let mut r = Reader::shared(input);
    let (spec, overlap): (ParentSpec, u64) = (arg(&mut r)?, arg(&mut r)?);
    let again: bool = if r.left() > 0 { arg(&mut r)? } else { false };
    let ParentSpec { pool, nspace, image, snap } = spec;
    attach(o, Parent { pool, nspace, image, snap, overlap: Some(overlap) }, again)
}

fn detach(o: &mut dyn Object, is_old: bool) -> OpResult<Reply> {
    o.stat()?;
    let features: u64 = read_if(o, b"features")?.unwrap_or(0);
    if features & feature::LAYERING == 0 {
        return Err(NOEXEC);
    }
    let mut parent: Parent = read(o, b"parent")?;
    if is_old && !parent.nspace.is_empty() {
        return Err(XDEV);
    }
    if parent.overlap.is_none() {
        return Err(Errno::NOENT);
    }
    let mut of_parent = Vec::new();
    snap::each(o, |snap| {
        if snap.parent.pool != -1 || snap.overlap.is_some() {
            of_parent.push(snap);
        }
        Ok(())
    })?;
    let mut kept = !of_parent.is_empty();
    if features & feature::DEEP_FLATTEN != 0 {
        for snap in of_parent {
            let key = snap_key(snap.id);
            snap::save(o, Snap { parent: Parent::default(), overlap: None, ..snap }, &key)?;
        }
        kept = false;
    }
    if kept {
        // Snapshots still show the parent.
        parent.overlap = None;
        write(o, b"parent", &parent)?;
    } else {
        remove_if(o, b"parent")?;
        set_op_features(o, 0, op_feature::CLONE_CHILD)?;
    }
    Ok(DONE)
}

pub(super) fn remove_old(o: &mut dyn Object, _: &Bytes) -> OpResult<Reply> {
    detach(o, true)
}

pub(super) fn detach_method(o: &mut dyn Object, _: &Bytes) -> OpResult<Reply> {
    detach(o, false)
}

pub(super) fn get(o: &mut dyn Object, _: &Bytes) -> OpResult<Reply> {
    o.stat()?;
    let mut parent = Parent::default();
    if is_layered(o)? {
        match read_if(o, b"parent")? {
            Some(found) => parent = found,
            // In headers of old each snapshot names it.
            None => snap::each(o, |snap| {
                if snap.parent.exists() {
                    parent = snap.parent;
                }
                Ok(())
            })?,
        }
    }
    let Parent { pool, nspace, image, snap, .. } = parent;
    answer(&ParentSpec { pool, nspace, image, snap })
}

pub(super) fn get_overlap(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let id: u64 = params(input)?;
    o.stat()?;
    let mut overlap = None;
    if is_layered(o)? {
        overlap = if id == HEAD {
            read_if::<Parent>(o, b"parent")?.and_then(|p| p.overlap)
        } else {
            let snap: Snap = read(o, &snap_key(id))?;
            snap.overlap.or(if snap.parent.exists() { snap.parent.overlap } else { None })
        };
    }
    answer(&overlap)
}

/// The first line of a header of the old format, with its zero byte.
const OLD_TEXT: &[u8] = b"<<< Rados Block Device Image >>>\n\0";
/// The same while the image migrates.
const OLD_MIGRATING: &[u8] = b"<<< Migrating RBD Image      >>>\n\0";
/// `MIGRATION_HEADER_TYPE_SRC` and `_DST`.
const SOURCE: u8 = 1;
const DESTINATION: u8 = 2;

/// What the first line of an old header says: whether it migrates.
fn old_migrates(o: &mut dyn Object) -> OpResult<bool> {
    match o.read(0, OLD_TEXT.len() as u64)? {
        text if text == OLD_TEXT => Ok(false),
        text if text == OLD_MIGRATING => Ok(true),
        _ => Err(NXIO),
    }
}

pub(super) fn migration_set(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let spec: Migration = params(input)?;
    if keys::exists(o, b"migration")? {
        return Err(Errno::EXIST);
    }
    match read_if::<u64>(o, b"features")? {
        None => {
            if old_migrates(o)? {
                return Err(Errno::EXIST);
            }
            if spec.header != SOURCE {
                return Err(Errno::INVAL);
            }
            o.write(0, Bytes::from_static(OLD_MIGRATING))?;
        }
        Some(features) if features & feature::MIGRATING != 0 => {
            if spec.header != DESTINATION {
                return Err(Errno::EXIST);
            }
        }
        Some(features) => write(o, b"features", &(features | feature::MIGRATING))?,
    }
    write(o, b"migration", &spec).map(keys::done)
}

fn migration(o: &mut dyn Object) -> OpResult<Migration> {
    match read_if::<u64>(o, b"features")? {
        None if !old_migrates(o)? => return Err(Errno::INVAL),
        Some(features) if features & feature::MIGRATING == 0 => return Err(Errno::INVAL),
        _ => {}
    }
    read(o, b"migration")
}

pub(super) fn migration_set_state(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let (state, description): (u8, Bytes) = params(input)?;
    let spec = Migration { state, description, ..migration(o)? };
    write(o, b"migration", &spec).map(keys::done)
}

pub(super) fn migration_get(o: &mut dyn Object, _: &Bytes) -> OpResult<Reply> {
    answer(&migration(o)?)
}

pub(super) fn migration_remove(o: &mut dyn Object, _: &Bytes) -> OpResult<Reply> {
    remove_if(o, b"migration")?;
    match read_if::<u64>(o, b"features")? {
        None => {
            if old_migrates(o)? {
                o.write(0, Bytes::from_static(OLD_TEXT))?;
            }
        }
        Some(features) if features & feature::MIGRATING != 0 => {
            write(o, b"features", &(features & !feature::MIGRATING))?;
        }
        Some(_) => {}
    }
    Ok(DONE)
}
