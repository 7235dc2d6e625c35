//! Names of an image's objects.

use cls::client::feature;

/// A pool's images: names and ids, both ways.
pub(crate) const DIRECTORY: &[u8] = b"rbd_directory";
/// Clones of the first kind, by their parents.
pub(crate) const CHILDREN: &[u8] = b"rbd_children";
/// Images that wait to be removed.
pub(crate) const TRASH: &[u8] = b"rbd_trash";
/// What is mirrored, and for whom.
pub(crate) const MIRRORING: &[u8] = b"rbd_mirroring";
/// The exclusive lock, on the header.
pub(crate) const LOCK: &str = "rbd_lock";
/// The tag of locks that clients take by themselves, as opposed to `rbd lock add`.
pub(crate) const LOCK_TAG: &str = "internal";

/// Features of new images: layering, exclusive-lock, object-map, fast-diff, deep-flatten.
pub const DEFAULT_FEATURES: u64 = feature::LAYERING
    | feature::EXCLUSIVE_LOCK
    | feature::OBJECT_MAP
    | feature::FAST_DIFF
    | feature::DEEP_FLATTEN;

/// Bit of an image's flags: its object map says nothing.
pub const FLAG_OBJECT_MAP_INVALID: u64 = 1;
/// Bit of an image's flags: its object map does not tell what changed.
pub const FLAG_FAST_DIFF_INVALID: u64 = 2;

const FEATURES: [(u64, &str); 12] = [
    (feature::LAYERING, "layering"),
    (feature::STRIPINGV2, "striping"),
    (feature::EXCLUSIVE_LOCK, "exclusive-lock"),
    (feature::OBJECT_MAP, "object-map"),
    (feature::FAST_DIFF, "fast-diff"),
    (feature::DEEP_FLATTEN, "deep-flatten"),
    (feature::JOURNALING, "journaling"),
    (feature::DATA_POOL, "data-pool"),
    (feature::OPERATIONS, "operations"),
    (feature::MIGRATING, "migrating"),
    (feature::NON_PRIMARY, "non-primary"),
    (feature::DIRTY_CACHE, "dirty-cache"),
];

/// Features by their names; numbers of those that have none here.
#[must_use]
pub fn feature_names(features: u64) -> Vec<String> {
    let known = FEATURES.iter().filter(|(bit, _)| features & bit != 0);
    let mut names: Vec<String> = known.map(|(_, name)| (*name).to_owned()).collect();
    let unknown = features & !feature::ALL;
    if unknown != 0 {
        names.push(format!("{unknown:#x}"));
    }
    names
}

/// A feature's bit by its name.
#[must_use]
pub fn feature_bit(name: &str) -> Option<u64> {
    FEATURES.iter().find(|(_, n)| *n == name).map(|(bit, _)| *bit)
}

pub(crate) fn id_object(name: &str) -> Vec<u8> {
    format!("rbd_id.{name}").into_bytes()
}

pub(crate) fn header(id: &str) -> Vec<u8> {
    format!("rbd_header.{id}").into_bytes()
}

pub(crate) fn group_header(id: &str) -> Vec<u8> {
    format!("rbd_group_header.{id}").into_bytes()
}

/// What the image was besides its data in a mirror snapshot: one of several objects.
pub(crate) fn mirror_state(id: &str, snap: u64, number: usize) -> Vec<u8> {
    format!("rbd_mirror_snapshot.{id}.{snap}.{number}").into_bytes()
}

/// Of the image, or of one of its snapshots.
pub(crate) fn object_map(id: &str, snap: Option<u64>) -> Vec<u8> {
    match snap {
        None => format!("rbd_object_map.{id}"),
        Some(snap) => format!("rbd_object_map.{id}.{snap:016x}"),
    }
    .into_bytes()
}
