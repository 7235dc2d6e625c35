//! Mirroring of a pool's images to other clusters: mode, peers, images, the daemons' words
//! on each image, and which daemon has which.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use denc::Reader;
use types::{EntityInst, Errno, OpResult};

use super::types::{
    ImageMap, ImageStatus, MirrorImage, MirrorPeer, RX, RX_TX, SiteStatus, Snap, SnapKind,
    StoredStatus, TX, sanitized,
};
use super::{snap, snap_key};
use crate::keys::{
    self, Step, absent, answer, exists, key, list, read, read_if, remove_if, walk, write,
};
use crate::{DONE, Object, Reply, STALE, arg, params, stored};

const UUID: &[u8] = b"mirror_uuid";
const MODE: &[u8] = b"mirror_mode";
const REMOTE_NAMESPACE: &[u8] = b"remote_namespace";
const PEER: &[u8] = b"mirror_peer_";
const IMAGE: &[u8] = b"image_";
const GLOBAL: &[u8] = b"global_";
const STATUS: &[u8] = b"status_global_";
const REMOTE_STATUS: &[u8] = b"remote_status_global_";
const INSTANCE: &[u8] = b"instance_";
const IMAGE_MAP: &[u8] = b"image_map_";

const MODE_DISABLED: u32 = 0;
/// Of images, of the pool, and ready for either.
const MODE_LAST: u32 = 3;

const IMAGE_DISABLING: u8 = 0;
const IMAGE_ENABLED: u8 = 1;

const UNKNOWN: u8 = 0;
const ERROR: u8 = 1;

pub(super) fn uuid_get(o: &mut dyn Object, _: &Bytes) -> OpResult<Reply> {
    // Stored without its length.
    answer(&o.omap_get(UUID)?)
}

/// EINVAL while mirroring is on.
fn must_be_off(o: &mut dyn Object) -> OpResult<()> {
    match read_if::<u32>(o, MODE)? {
        None | Some(MODE_DISABLED) => Ok(()),
        Some(_) => Err(Errno::INVAL),
    }
}

pub(super) fn uuid_set(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let uuid: Bytes = params(input)?;
    if uuid.is_empty() {
        return Err(Errno::INVAL);
    }
    must_be_off(o)?;
    o.omap_set(vec![(Bytes::from_static(UUID), uuid)])?;
    Ok(DONE)
}

pub(super) fn mode_get(o: &mut dyn Object, _: &Bytes) -> OpResult<Reply> {
    answer(&read::<u32>(o, MODE)?)
}

pub(super) fn mode_set(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let mode: u32 = params(input)?;
    if mode > MODE_LAST {
        return Err(Errno::INVAL);
    }
    if mode != MODE_DISABLED {
        if !exists(o, UUID)? {
            return Err(Errno::INVAL);
        }
        return write(o, MODE, &mode).map(keys::done);
    }
    if !peers(o)?.is_empty() {
        return Err(Errno::BUSY);
    }
    remove_if(o, MODE)?;
    remove_if(o, REMOTE_NAMESPACE)?;
    remove_if(o, UUID)?;
    Ok(DONE)
}

pub(super) fn remote_namespace_get(o: &mut dyn Object, _: &Bytes) -> OpResult<Reply> {
    answer(&read::<Bytes>(o, REMOTE_NAMESPACE)?)
}

pub(super) fn remote_namespace_set(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let nspace: Bytes = params(input)?;
    must_be_off(o)?;
    write(o, REMOTE_NAMESPACE, &nspace).map(keys::done)
}

fn peers(o: &mut dyn Object) -> OpResult<Vec<MirrorPeer>> {
    let found = absent(list::<MirrorPeer>(o, PEER, b"", u64::MAX))?.unwrap_or_default();
    Ok(found.into_iter().map(|(_, peer)| peer).collect())
}

fn write_peer(o: &mut dyn Object, peer: &MirrorPeer) -> OpResult<Reply> {
    write(o, &key(PEER, &peer.uuid), peer).map(keys::done)
}

fn must_be_on(o: &mut dyn Object) -> OpResult<()> {
    match read_if::<u32>(o, MODE)? {
        None | Some(MODE_DISABLED) => Err(Errno::INVAL),
        Some(_) => Ok(()),
    }
}

/// A peer says that it mirrors from here.
pub(super) fn peer_ping(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let ((site, mirror_uuid), direction): ((Bytes, Bytes), u8) = params(input)?;
    if direction != TX {
        return Err(Errno::INVAL);
    }
    must_be_on(o)?;
    if site.is_empty() || mirror_uuid.is_empty() {
        return Err(Errno::INVAL);
    }
    let peers = peers(o)?;
    let by_site = peers.iter().find(|p| p.site == site);
    let settled = by_site.is_some_and(|p| p.mirror_uuid.is_empty() || p.mirror_uuid == mirror_uuid);
    let by_uuid = if settled { None } else { peers.iter().find(|p| p.mirror_uuid == mirror_uuid) };
    let mut peer = match (by_site, by_uuid) {
        // Two peers: the site's name stays with the other.
        (Some(_), Some(peer)) => peer.clone(),
        (None, Some(peer)) => MirrorPeer { site: site.clone(), ..peer.clone() },
        (Some(peer), None) => MirrorPeer { mirror_uuid, ..peer.clone() },
        (None, None) => {
            let uuid = loop {
                let uuid = snap::uuid(o);
                if !exists(o, &key(PEER, &uuid))? {
                    break uuid;
                }
            };
            MirrorPeer { uuid, site, mirror_uuid, direction: TX, ..MirrorPeer::default() }
        }
    };
    if peer.direction == RX {
        peer.direction = RX_TX;
    }
    peer.last_seen = o.now();
    if !peer.is_valid() {
        return Err(Errno::INVAL);
    }
    write_peer(o, &peer)
}

pub(super) fn peer_list(o: &mut dyn Object, _: &Bytes) -> OpResult<Reply> {
    o.stat()?;
    answer(&peers(o)?)
}

pub(super) fn peer_add(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let peer: MirrorPeer = params(input)?;
    must_be_on(o)?;
    if !peer.is_valid() || peer.uuid == o.omap_get(UUID)? || peer.direction == TX {
        return Err(Errno::INVAL);
    }
    for other in peers(o)? {
        if other.uuid == peer.uuid {
            return Err(STALE);
        }
        let same_mirror = !peer.mirror_uuid.is_empty() && other.mirror_uuid == peer.mirror_uuid;
        if other.site == peer.site || same_mirror {
            return Err(Errno::EXIST);
        }
    }
    write_peer(o, &peer)
}

pub(super) fn peer_remove(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let uuid: Bytes = params(input)?;
    remove_if(o, &key(PEER, &uuid)).map(keys::done)
}

pub(super) fn peer_set_client(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let (uuid, client): (Bytes, Bytes) = params(input)?;
    let peer: MirrorPeer = read(o, &key(PEER, &uuid))?;
    write_peer(o, &MirrorPeer { client, ..peer })
}

pub(super) fn peer_set_cluster(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let (uuid, site): (Bytes, Bytes) = params(input)?;
    let peers = peers(o)?;
    if peers.iter().any(|p| p.uuid != uuid && p.site == site) {
        return Err(Errno::EXIST);
    }
    let peer = peers.into_iter().find(|p| p.uuid == uuid).ok_or(Errno::NOENT)?;
    write_peer(o, &MirrorPeer { site, ..peer })
}

pub(super) fn peer_set_direction(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let (uuid, direction): (Bytes, u8) = params(input)?;
    let peer: MirrorPeer = read(o, &key(PEER, &uuid))?;
    write_peer(o, &MirrorPeer { direction, ..peer })
}

pub(super) fn image_list(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let (start, max): (Bytes, u64) = params(input)?;
    let images = images(o, &start, max)?;
    answer(&images.into_iter().map(|(id, i)| (id, i.global_id)).collect::<Vec<_>>())
}

/// Mirrored images by id. Their keys begin as those of the daemons' map do.
fn images(o: &mut dyn Object, start: &Bytes, max: u64) -> OpResult<Vec<(Bytes, MirrorImage)>> {
    o.stat()?;
    let mut found = Vec::new();
    if max > 0 {
        walk(o, &key(IMAGE, start), IMAGE, |key, raw| {
            if key.starts_with(IMAGE_MAP) {
                return Ok(Step::Next);
            }
            found.push((key.slice(IMAGE.len()..), stored(raw)?));
            Ok(if found.len() as u64 >= max { Step::Enough } else { Step::Next })
        })?;
    }
    Ok(found)
}

pub(super) fn image_get_id(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let global: Bytes = params(input)?;
    answer(&read::<Bytes>(o, &key(GLOBAL, &global))?)
}

pub(super) fn image_get(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let id: Bytes = params(input)?;
    answer(&read::<MirrorImage>(o, &key(IMAGE, &id))?)
}

pub(super) fn image_set(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let (id, image): (Bytes, MirrorImage) = params(input)?;
    let image_key = key(IMAGE, &id);
    let global_key = key(GLOBAL, &image.global_id);
    match read_if::<MirrorImage>(o, &image_key)? {
        None => {
            if read_if::<Bytes>(o, &global_key)?.is_some() {
                return Err(Errno::EXIST);
            }
            // It was disabled meanwhile.
            if image.state == IMAGE_DISABLING {
                return Err(Errno::NOENT);
            }
        }
        Some(old) if old.global_id != image.global_id => return Err(Errno::INVAL),
        Some(_) => {}
    }
    write(o, &image_key, &image)?;
    write(o, &global_key, &id).map(keys::done)
}

pub(super) fn image_remove(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let id: Bytes = params(input)?;
    let image_key = key(IMAGE, &id);
    let image: MirrorImage = read(o, &image_key)?;
    if image.state != IMAGE_DISABLING {
        return Err(Errno::BUSY);
    }
    o.omap_rm(vec![image_key, key(GLOBAL, &image.global_id)])?;
    remove_statuses(o, &image.global_id)
}

/// What the keys of other sites' words on an image begin with.
fn remote_prefix(global: &Bytes) -> Bytes {
    [REMOTE_STATUS, &global[..], b"_"].concat().into()
}

fn status_key(global: &Bytes, site: &Bytes) -> Bytes {
    if site.is_empty() { key(STATUS, global) } else { key(&remote_prefix(global), site) }
}

pub(super) fn status_set(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let (global, status): (Bytes, SiteStatus) = params(input)?;
    let id = read_if::<Bytes>(o, &key(GLOBAL, &global));
    let Ok(Some(id)) = id else { return Ok(DONE) };
    let image = read_if::<MirrorImage>(o, &key(IMAGE, &id));
    if !matches!(image, Ok(Some(image)) if image.state == IMAGE_ENABLED) {
        return Ok(DONE);
    }
    let (name, addr) = o.caller();
    let key = status_key(&global, &status.site);
    let updated = o.now();
    let status = SiteStatus { site: Bytes::new(), up: false, updated, ..status };
    write(o, &key, &StoredStatus { origin: sanitized(name, addr), status }).map(keys::done)
}

fn remove_statuses(o: &mut dyn Object, global: &Bytes) -> OpResult<Reply> {
    let prefix = remote_prefix(global);
    let mut gone = vec![key(STATUS, global)];
    absent(walk(o, &prefix, &prefix, |key, _| {
        gone.push(key.clone());
        Ok(Step::Next)
    }))?;
    absent(o.omap_rm(gone))?;
    Ok(DONE)
}

pub(super) fn status_remove(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let global: Bytes = params(input)?;
    remove_statuses(o, &global)
}

/// The daemons that are there.
fn watchers(o: &mut dyn Object) -> OpResult<BTreeSet<EntityInst>> {
    let watchers = absent(o.watchers())?.unwrap_or_default();
    Ok(watchers.into_iter().map(|w| sanitized(w.name, w.addr)).collect())
}

fn with_site(raw: StoredStatus, site: Bytes, up: &BTreeSet<EntityInst>) -> SiteStatus {
    SiteStatus { site, up: up.contains(&raw.origin), ..raw.status }
}

fn status_of(
    o: &mut dyn Object,
    global: &Bytes,
    up: &BTreeSet<EntityInst>,
) -> OpResult<Option<ImageStatus>> {
    let local = read_if::<StoredStatus>(o, &key(STATUS, global))?;
    let local = local.map(|raw| with_site(raw, Bytes::new(), up));
    let remote = absent(list::<StoredStatus>(o, &remote_prefix(global), b"", u64::MAX))?;
    let remote: Vec<_> = remote
        .unwrap_or_default()
        .into_iter()
        .map(|(site, raw)| with_site(raw, site, up))
        .collect();
    if local.is_none() && remote.is_empty() {
        return Ok(None);
    }
    Ok(Some(ImageStatus { local, remote }))
}

pub(super) fn status_get(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let global: Bytes = params(input)?;
    let up = watchers(o)?;
    answer(&status_of(o, &global, &up)?.ok_or(Errno::NOENT)?)
}

pub(super) fn status_list(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let (start, max): (Bytes, u64) = params(input)?;
    let up = watchers(o)?;
    let images = images(o, &start, max)?;
    let mut statuses = Vec::new();
    for (id, image) in &images {
        if let Ok(Some(status)) = status_of(o, &image.global_id, &up) {
            statuses.push((id.clone(), status));
        }
    }
    answer(&(images, statuses))
}

/// One word for an image: the worst of those that count in this direction.
fn summary(direction: u8, sites: &BTreeSet<Bytes>, status: &ImageStatus) -> u8 {
    let local = status.local.as_ref().filter(|s| s.up).map(|s| s.state);
    let mut state = if direction == TX { None } else { local };
    let mut unheard = 0;
    if direction != RX {
        unheard = sites.len();
        for remote in &status.remote {
            if unheard > 0 && sites.contains(&remote.site) {
                unheard -= 1;
            }
            let seen = if remote.up { remote.state } else { UNKNOWN };
            state = Some(match state {
                _ if remote.state == ERROR => ERROR,
                None => seen,
                Some(ERROR) => ERROR,
                Some(state) => state.min(seen),
            });
        }
    }
    state.filter(|_| unheard == 0).unwrap_or(UNKNOWN)
}

pub(super) fn status_summary(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let mut r = Reader::shared(input);
    let peers: Vec<MirrorPeer> = if r.left() > 0 { arg(&mut r)? } else { Vec::new() };
    let mut direction = peers.first().map_or(RX, |p| p.direction);
    let mut sites = BTreeSet::new();
    for peer in peers.into_iter().filter(|p| p.direction != RX) {
        if direction != peer.direction {
            direction = RX_TX;
        }
        sites.insert(peer.mirror_uuid);
    }
    let up = watchers(o)?;
    let mut counts: BTreeMap<u8, i32> = BTreeMap::new();
    for (_, image) in images(o, &Bytes::new(), u64::MAX)? {
        let status = status_of(o, &image.global_id, &up)?.unwrap_or_default();
        *counts.entry(summary(direction, &sites, &status)).or_default() += 1;
    }
    answer(&counts)
}

/// Forgets what daemons said that are gone.
pub(super) fn status_remove_down(o: &mut dyn Object, _: &Bytes) -> OpResult<Reply> {
    let up = watchers(o)?;
    let mut gone = Vec::new();
    for prefix in [STATUS, REMOTE_STATUS] {
        walk(o, prefix, prefix, |key, raw| {
            let status: StoredStatus = stored(raw)?;
            if !up.contains(&status.origin) {
                gone.push(key.clone());
            }
            Ok(Step::Next)
        })?;
    }
    if !gone.is_empty() {
        o.omap_rm(gone)?;
    }
    Ok(DONE)
}

/// Which daemon has an image here; ESTALE when it is gone.
fn instance_of(
    o: &mut dyn Object,
    global: &Bytes,
    up: &BTreeSet<EntityInst>,
) -> OpResult<EntityInst> {
    let status: StoredStatus = read(o, &key(STATUS, global))?;
    if up.contains(&status.origin) { Ok(status.origin) } else { Err(STALE) }
}

pub(super) fn instance_get(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let global: Bytes = params(input)?;
    let up = watchers(o)?;
    let instance = instance_of(o, &global, &up)?;
    Ok(denc::Denc::to_bytes_for(&instance, o.features()).into())
}

pub(super) fn instance_list(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let (start, max): (Bytes, u64) = params(input)?;
    let up = watchers(o)?;
    let mut found = Vec::new();
    for (id, image) in images(o, &start, u64::MAX)? {
        if found.len() as u64 >= max {
            break;
        }
        if let Ok(instance) = instance_of(o, &image.global_id, &up) {
            found.push((id, instance));
        }
    }
    Ok(denc::Denc::to_bytes_for(&found, o.features()).into())
}

pub(super) fn instances_list(o: &mut dyn Object, _: &Bytes) -> OpResult<Reply> {
    let mut ids: Vec<Bytes> = Vec::new();
    walk(o, INSTANCE, INSTANCE, |key, _| {
        ids.push(key.slice(INSTANCE.len()..));
        Ok(Step::Next)
    })?;
    answer(&ids)
}

pub(super) fn instances_add(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let id: Bytes = params(input)?;
    o.omap_set(vec![(key(INSTANCE, &id), Bytes::new())])?;
    Ok(DONE)
}

pub(super) fn instances_remove(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let id: Bytes = params(input)?;
    keys::remove(o, &key(INSTANCE, &id)).map(keys::done)
}

pub(super) fn map_list(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let (start, max): (Bytes, u64) = params(input)?;
    let found = list::<ImageMap>(o, IMAGE_MAP, &start, max);
    answer(&found.map_err(|e| if e == Errno::IO { Errno::INVAL } else { e })?)
}

pub(super) fn map_update(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let (global, map): (Bytes, ImageMap) = params(input)?;
    write(o, &key(IMAGE_MAP, &global), &map).map(keys::done)
}

pub(super) fn map_remove(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let global: Bytes = params(input)?;
    remove_if(o, &key(IMAGE_MAP, &global)).map(keys::done)
}

/// States of snapshots that were copied from elsewhere.
const NON_PRIMARY: [u8; 2] = [2, 3];

pub(super) fn snapshot_unlink_peer(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let (id, peer): (u64, Bytes) = params(input)?;
    let key = snap_key(id);
    let mut snap: Snap = read(o, &key)?;
    let SnapKind::Mirror(mirror) = &mut snap.kind else { return Err(Errno::INVAL) };
    if !mirror.peers.remove(&peer) {
        return Err(Errno::NOENT);
    }
    snap::save(o, snap, &key)
}

pub(super) fn snapshot_set_progress(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let ((id, complete), last_copied): ((u64, bool), u64) = params(input)?;
    let key = snap_key(id);
    let mut snap: Snap = read(o, &key)?;
    let SnapKind::Mirror(mirror) = &mut snap.kind else { return Err(Errno::INVAL) };
    mirror.complete = complete;
    if NON_PRIMARY.contains(&mirror.state) {
        mirror.last_copied = last_copied;
    }
    snap::save(o, snap, &key)
}
