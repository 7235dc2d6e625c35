//! The OSD maps of a range of epochs, on disk: deltas as they came, and now and then a
//! whole map to start from.

use bytes::Bytes;
use denc::{DecodeError, Denc, Features, Reader, Writer};
use maps::{Incremental, OsdMap};
use types::{Epoch, OsdId, PgId, Uuid};

use crate::backing::{Coll, ObjectStore, StoreOp};

/// A whole map is kept for each epoch that divides by this.
const WHOLE_EVERY: u32 = 64;
/// Epochs kept at least.
pub const KEPT: u32 = 500;

const SUPER: Bytes = Bytes::from_static(b"S");

fn key(kind: u8, e: Epoch) -> Bytes {
    let b = e.0.to_be_bytes();
    Bytes::copy_from_slice(&[kind, b[0], b[1], b[2], b[3]])
}

/// What the OSD knows of itself. The peer's `OSDSuperblock`; the form on disk is ours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Superblock {
    /// The cluster.
    pub fsid: Uuid,
    /// The OSD.
    pub whoami: OsdId,
    /// Its incarnation.
    pub uuid: Uuid,
    /// Oldest map kept.
    pub oldest: Epoch,
    /// Newest map.
    pub newest: Epoch,
    /// PGs that were created in the map and had no OSD yet.
    pub unborn: Vec<PgId>,
}

impl Denc for Superblock {
    fn encode(&self, w: &mut Writer) {
        w.framed(1, 1, |w| {
            self.fsid.encode(w);
            self.whoami.encode(w);
            self.uuid.encode(w);
            self.oldest.encode(w);
            self.newest.encode(w);
            self.unborn.encode(w);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("Superblock", 1, |r, _| {
            Ok(Self {
                fsid: Denc::decode(r)?,
                whoami: Denc::decode(r)?,
                uuid: Denc::decode(r)?,
                oldest: Denc::decode(r)?,
                newest: Denc::decode(r)?,
                unborn: Denc::decode(r)?,
            })
        })
    }
}

impl Superblock {
    /// As it is on disk.
    ///
    /// # Errors
    /// A sentence.
    pub fn load(store: &dyn ObjectStore) -> Result<Option<Self>, String> {
        let raw = store.get(Coll::Meta, &SUPER).map_err(|e| e.to_string())?;
        raw.map(|raw| Self::from_bytes(&raw).map_err(|e| e.to_string())).transpose()
    }

    /// Writes it.
    pub fn save(&self, ops: &mut Vec<StoreOp>) {
        ops.push(StoreOp::Put(Coll::Meta, SUPER, self.to_bytes()));
    }
}

/// Keeps the step to `map` for later.
pub fn save_step(inc: Option<&Bytes>, map: &OsdMap, first: bool, ops: &mut Vec<StoreOp>) {
    let e = map.epoch;
    if let Some(inc) = inc {
        ops.push(StoreOp::Put(Coll::Meta, key(b'I', e), Bytes::copy_from_slice(inc)));
    }
    if first || inc.is_none() || e.0.is_multiple_of(WHOLE_EVERY) {
        let raw = map.to_bytes_for(Features::TENTACLE_WORD);
        ops.push(StoreOp::Put(Coll::Meta, key(b'F', e), raw));
    }
}

/// Forgets what is older than a whole map at or below `to`; returns the oldest epoch left.
pub fn trim(store: &dyn ObjectStore, to: Epoch, ops: &mut Vec<StoreOp>) -> Option<Epoch> {
    let mut base = None;
    let end = key(b'F', Epoch(to.0 + 1));
    store
        .walk(Coll::Meta, &key(b'F', Epoch(0)), &end, &mut |k, _| {
            base = k.get(1..5).map(|b| Epoch(u32::from_be_bytes(b.try_into().expect("four"))));
            true
        })
        .ok()?;
    let base = base?;
    ops.push(StoreOp::RmRange(Coll::Meta, key(b'F', Epoch(0)), key(b'F', base)));
    ops.push(StoreOp::RmRange(Coll::Meta, key(b'I', Epoch(0)), key(b'I', Epoch(base.0 + 1))));
    Some(base)
}

/// The delta that leads to `e`, as it came.
#[must_use]
pub fn delta(store: &dyn ObjectStore, e: Epoch) -> Option<Bytes> {
    store.get(Coll::Meta, &key(b'I', e)).ok().flatten()
}

/// The map of one epoch.
///
/// # Errors
/// A sentence, when it is not kept or cannot be read.
pub fn map_at(store: &dyn ObjectStore, e: Epoch) -> Result<OsdMap, String> {
    let mut whole = None;
    store
        .walk(Coll::Meta, &key(b'F', Epoch(0)), &key(b'F', Epoch(e.0 + 1)), &mut |_, v| {
            whole = Some(v.clone());
            true
        })
        .map_err(|e| e.to_string())?;
    let raw = whole.ok_or_else(|| format!("osdmap {e} is not kept"))?;
    let mut map = OsdMap::from_shared(&raw).map_err(|x| format!("osdmap {e}: {x}"))?;
    while map.epoch < e {
        map = next(store, &map)?;
    }
    Ok(map)
}

/// The map after `map`.
///
/// # Errors
/// A sentence, when it is not kept or cannot be read.
pub fn next(store: &dyn ObjectStore, map: &OsdMap) -> Result<OsdMap, String> {
    let e = Epoch(map.epoch.0 + 1);
    if let Some(raw) = delta(store, e) {
        let inc = Incremental::from_shared(&raw).map_err(|x| format!("osdmap {e}: {x}"))?;
        let mut map = map.clone();
        map.apply_incremental(&inc).map_err(|x| format!("osdmap {e}: {x}"))?;
        return Ok(map);
    }
    let raw = store.get(Coll::Meta, &key(b'F', e)).map_err(|x| x.to_string())?;
    let raw = raw.ok_or_else(|| format!("osdmap {e} is not kept"))?;
    OsdMap::from_shared(&raw).map_err(|x| format!("osdmap {e}: {x}"))
}

/// What a store keeps of its cluster's OSD maps: monitors can be made anew of it.
#[derive(Clone, Debug)]
pub struct KeptMaps {
    /// The cluster.
    pub fsid: Uuid,
    /// Whose store it is.
    pub whoami: OsdId,
    /// The oldest map from which each change up to the newest is kept.
    pub base: OsdMap,
    /// These changes as they came, by the epoch that each leads to.
    pub deltas: Vec<(Epoch, Bytes)>,
    /// The newest map.
    pub newest: OsdMap,
}

impl KeptMaps {
    /// Reads them; `None` where the store never saw a map. One map is applied per epoch kept.
    ///
    /// # Errors
    /// A sentence, when a map is missing or cannot be read.
    pub fn load(store: &dyn ObjectStore) -> Result<Option<Self>, String> {
        let Some(own) = Superblock::load(store)?.filter(|own| own.newest.0 > 0) else {
            return Ok(None);
        };
        let mut base = map_at(store, own.oldest)?;
        let (mut newest, mut deltas) = (base.clone(), Vec::new());
        while newest.epoch < own.newest {
            newest = next(store, &newest)?;
            if let Some(raw) = delta(store, newest.epoch) {
                deltas.push((newest.epoch, raw));
            } else {
                // A whole map came instead: what was before it leads nowhere.
                (base, deltas) = (newest.clone(), Vec::new());
            }
        }
        Ok(Some(Self { fsid: own.fsid, whoami: own.whoami, base, deltas, newest }))
    }
}
