//! Mirroring by snapshots, this cluster's part: which images are mirrored, and the snapshots
//! of primary images from which daemons at other sites copy.
//!
//! A mirror snapshot names the peers that have not copied it yet. What a peer needs besides the
//! data (name, features, the user's snapshots, metadata) is written beside it, in objects
//! `rbd_mirror_snapshot.ID.SNAP.N`; only then the snapshot counts as complete.
//!
//! Source: the peer's `librbd/mirror/snapshot/{CreatePrimaryRequest, SetImageStateRequest,
//! UnlinkPeerRequest}.cc`, `Types.h`.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use cls::client::{MirrorImage, MirrorPeer, MirrorSnap, SnapKind, feature};
use denc::{Denc, Features, Writer};
use env::Random;
use rados::IoCtx;
use types::Uuid;

use crate::calls;
use crate::error::{ENOENT, Error, Result, absent, is};
use crate::image::{Header, Image, Snapshot};
use crate::names;

/// A pool's mode: images are mirrored one by one. `MIRROR_MODE_IMAGE`.
pub const MODE_IMAGE: u32 = 1;
/// An image's mode: by snapshots. `MIRROR_IMAGE_MODE_SNAPSHOT`.
pub const BY_SNAPSHOTS: u8 = 1;
/// An image's state. `MIRROR_IMAGE_STATE_ENABLED`.
pub const ENABLED: u8 = 1;
/// A snapshot's state: the image was primary, and stayed so. `MIRROR_SNAPSHOT_STATE_PRIMARY`.
const PRIMARY: u8 = 0;
/// Peers that only send to us. `MIRROR_PEER_DIRECTION_RX`.
const RX: u8 = 0;
/// Snapshots that wait for one peer, at most: `rbd_mirroring_max_mirroring_snapshots`.
const SNAPS_MAX: usize = 5;
/// Bytes of an object of an image's state: `rbd_default_order`.
const STATE_OBJECT: usize = 1 << 22;
/// Metadata of librbd's own; not sent, but for what encrypted images need.
const INTERNAL: &[u8] = b".rbd";
const ENCRYPTION: &[u8] = b".rbd_encryption";
/// Features that follow from others or from the image's state.
const IMPLICIT: u64 = feature::STRIPINGV2
    | feature::DATA_POOL
    | feature::FAST_DIFF
    | feature::OPERATIONS
    | feature::MIGRATING
    | feature::NON_PRIMARY
    | feature::DIRTY_CACHE;

/// A pool's, or a namespace's, mode; 0 where nothing is mirrored.
///
/// # Errors
/// As the cluster says.
pub async fn mode(io: &IoCtx) -> Result<u32> {
    let mode: Option<u32> = absent(calls::get(io, names::MIRRORING, "mirror_mode_get", b"").await)?;
    Ok(mode.unwrap_or(0))
}

/// How an image is mirrored, by its id; none when it is not.
///
/// # Errors
/// As the cluster says.
pub async fn image(io: &IoCtx, id: &str) -> Result<Option<MirrorImage>> {
    let params = calls::text(id).to_bytes();
    Ok(absent(calls::get(io, names::MIRRORING, "mirror_image_get", &params).await)?)
}

/// Ids of the images that are mirrored by snapshots.
///
/// # Errors
/// As the cluster says.
pub async fn images_by_snapshots(io: &IoCtx) -> Result<Vec<String>> {
    let all = calls::pages::<Bytes>(io, names::MIRRORING, "mirror_image_list").await?;
    let mut found = Vec::new();
    for (id, _) in all {
        let id = calls::string(&id);
        let wanted = |m: &MirrorImage| m.mode == BY_SNAPSHOTS && m.state == ENABLED;
        if image(io, &id).await?.as_ref().is_some_and(wanted) {
            found.push(id);
        }
    }
    Ok(found)
}

/// The peers of a pool that copy from here.
async fn receivers(io: &IoCtx) -> Result<BTreeSet<Bytes>> {
    let io = io.namespace(Bytes::new());
    let peers: Option<Vec<MirrorPeer>> =
        absent(calls::get(&io, names::MIRRORING, "mirror_peer_list", b"").await)?;
    let peers = peers.unwrap_or_default();
    Ok(peers.into_iter().filter(|p| p.direction != RX).map(|p| p.uuid).collect())
}

fn mirror(snap: &Snapshot) -> Option<&MirrorSnap> {
    if let SnapKind::Mirror(m) = &snap.kind { Some(m) } else { None }
}

/// Whether an image that is mirrored by snapshots may be written here: the newest mirror
/// snapshot says so.
#[must_use]
pub fn is_primary(header: &Header) -> bool {
    let newest = header.snaps.iter().rev().find_map(mirror);
    newest.is_some_and(|m| m.state == PRIMARY)
}

/// The oldest snapshot that a peer is not to wait for any more: one that was not finished, or
/// the newest but [`SNAPS_MAX`] since the image is primary.
fn surplus(header: &Header, peers: &BTreeSet<Bytes>) -> Option<(u64, Bytes)> {
    for peer in peers {
        let (mut count, mut last) = (0, 0);
        for snap in &header.snaps {
            let Some(m) = mirror(snap) else { continue };
            if m.state != PRIMARY {
                (count, last) = (0, 0);
                continue;
            }
            if !m.peers.is_empty() && !m.peers.contains(peer) {
                continue;
            }
            if m.peers.is_empty() || !m.complete {
                return Some((snap.id, peer.clone()));
            }
            count += 1;
            if count == SNAPS_MAX {
                last = snap.id;
            }
            if count > SNAPS_MAX {
                return Some((last, peer.clone()));
            }
        }
    }
    None
}

/// `ImageState` behind its header, `ImageStateHeader`: what the image is besides its data.
fn state_bytes(
    name: &str,
    header: &Header,
    snap_limit: u64,
    metadata: &BTreeMap<Bytes, Bytes>,
) -> Bytes {
    let mut w = Writer::new(Features::ALL);
    w.framed(1, 1, |w| {
        w.str(name);
        w.u64(header.features & !IMPLICIT);
        w.u64(snap_limit);
        let users: Vec<&Snapshot> = header.snaps.iter().filter(|s| s.is_users()).collect();
        w.u32(users.len() as u32);
        for snap in users {
            w.u64(snap.id);
            w.framed(1, 1, |w| {
                snap.kind.encode(w);
                w.str(&snap.name);
                w.u8(snap.protection);
            });
        }
        metadata.encode(w);
    });
    let state = w.finish();
    /// Frame and count.
    const HEADER: usize = 6 + 4;
    let mut w = Writer::new(Features::ALL);
    w.framed(1, 1, |w| w.u32((1 + (HEADER + state.len()) / STATE_OBJECT) as u32));
    let header = w.finish();
    assert_eq!(header.len(), HEADER, "the header's length is known beforehand");
    [header, state].concat().into()
}

impl Image {
    /// Makes a mirror snapshot of a primary image, and lets go of those that no peer needs; its
    /// number.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the image is not mirrored by snapshots or not primary, or when
    /// the pool has no peer that copies from here.
    pub async fn create_mirror_snap(&self) -> Result<u64> {
        let mirrored = image(self.io(), self.id()).await?;
        let Some(mirrored) = mirrored.filter(|m| m.mode == BY_SNAPSHOTS && m.state == ENABLED)
        else {
            return Err(Error::Invalid("the image is not mirrored by snapshots".to_owned()));
        };
        self.refresh().await?;
        if !is_primary(&self.header()) {
            return Err(Error::Invalid("the image is not primary here".to_owned()));
        }
        let peers = receivers(self.io()).await?;
        if peers.is_empty() {
            return Err(Error::Invalid("no peer of the pool copies from here".to_owned()));
        }
        let mut chance = [0; 16];
        rt::OsRandom.fill(&mut chance);
        let (global, unique) = (calls::string(&mirrored.global_id), Uuid::from_random(chance));
        let kind = MirrorSnap { state: PRIMARY, peers: peers.clone(), ..MirrorSnap::of_primary() };
        let name = format!(".mirror.primary.{global}.{unique}");
        let id = self.create_snap_of(&name, SnapKind::Mirror(Box::new(kind))).await?;
        self.write_mirror_state(id).await?;
        let head = self.header_object();
        let done = ((id, true), 0u64);
        calls::set(self.io(), &head, "mirror_image_snapshot_set_copy_progress", done).await?;
        self.refresh().await?;
        self.tell_update().await?;
        // None of this is fatal to the snapshot: the next one tries again.
        loop {
            let next = surplus(&self.header(), &peers);
            let Some((old, peer)) = next else { return Ok(id) };
            if let Err(err) = self.unlink_peer(old, &peer).await {
                tracing::warn!("image {}: mirror snapshot {old}: {err}", self.id());
                return Ok(id);
            }
        }
    }

    async fn write_mirror_state(&self, id: u64) -> Result<()> {
        let head = self.header_object();
        let limit: u64 = calls::get(self.io(), &head, "snapshot_get_limit", b"").await?;
        let mut metadata: BTreeMap<Bytes, Bytes> = self.metadata().await?.into_iter().collect();
        metadata.retain(|k, _| !k.starts_with(INTERNAL) || k.starts_with(ENCRYPTION));
        let state = state_bytes(&self.name(), &self.header(), limit, &metadata);
        // The first object, which tells of the others, comes last.
        let parts: Vec<(usize, Bytes)> =
            (0..state.len()).step_by(STATE_OBJECT).map(|at| (at, state.slice(at..))).collect();
        for (at, rest) in parts.into_iter().rev() {
            let part = rest.slice(..rest.len().min(STATE_OBJECT));
            let object = names::mirror_state(self.id(), id, at / STATE_OBJECT);
            self.io().write_full(&object, part).await?;
        }
        Ok(())
    }

    /// A peer is not to copy this snapshot any more; without a peer it goes, unless it is the
    /// newest.
    async fn unlink_peer(&self, id: u64, peer: &Bytes) -> Result<()> {
        loop {
            let (peers, is_newest) = {
                let header = self.header();
                let mut newer = header.snaps.iter().skip_while(|s| s.id != id);
                let snap = newer.next().ok_or_else(|| Error::NoSnap(id.to_string()))?;
                let m = mirror(snap).ok_or_else(|| Error::NoSnap(id.to_string()))?;
                (m.peers.clone(), newer.all(|s| mirror(s).is_none()))
            };
            let last = peers.iter().all(|p| p == peer);
            if last && !is_newest {
                return self.remove_mirror_snap(id).await;
            }
            if !peers.contains(peer) {
                return Ok(());
            }
            let head = self.header_object();
            let params = (id, peer.clone());
            match calls::set(self.io(), &head, "mirror_image_snapshot_unlink_peer", params).await {
                Err(err) if is(&err, ENOENT) => {}
                other => other?,
            }
            self.refresh().await?;
            self.tell_update().await?;
        }
    }

    async fn remove_mirror_snap(&self, id: u64) -> Result<()> {
        let mut number = 0;
        while absent(self.io().remove(&names::mirror_state(self.id(), id, number)).await)?.is_some()
        {
            number += 1;
        }
        self.remove_snap_id(id).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::UTime;

    fn snap(id: u64, kind: SnapKind) -> Snapshot {
        Snapshot {
            id,
            name: format!("s{id}"),
            kind,
            size: 0,
            time: UTime::ZERO,
            children: 0,
            protection: 0,
            flags: 0,
            overlap: None,
        }
    }

    fn header(snaps: Vec<Snapshot>) -> Header {
        Header {
            size: 0,
            features: crate::DEFAULT_FEATURES | feature::DATA_POOL,
            flags: 0,
            op_features: 0,
            snaps,
            snap_seq: 0,
            parent: None,
            overlap: None,
            created: UTime::ZERO,
            accessed: UTime::ZERO,
            modified: UTime::ZERO,
        }
    }

    fn of(state: u8, complete: bool, peers: &[&'static str]) -> SnapKind {
        let peers = peers.iter().map(|p| Bytes::from_static(p.as_bytes())).collect();
        SnapKind::Mirror(Box::new(MirrorSnap {
            state,
            complete,
            peers,
            ..MirrorSnap::of_primary()
        }))
    }

    /// The newest mirror snapshot decides; the user's say nothing.
    #[test]
    fn primary() {
        assert!(!is_primary(&header(vec![])));
        assert!(!is_primary(&header(vec![snap(1, SnapKind::User)])));
        let mut snaps = vec![snap(1, of(0, true, &[])), snap(2, SnapKind::User)];
        assert!(is_primary(&header(snaps.clone())));
        snaps.push(snap(3, of(1, true, &[])));
        assert!(!is_primary(&header(snaps)));
    }

    /// Five wait for a peer; what was not finished or waits for nobody goes first.
    #[test]
    fn what_is_let_go() {
        let a = BTreeSet::from([Bytes::from_static(b"a")]);
        let full: Vec<Snapshot> = (1..=5).map(|i| snap(i, of(0, true, &["a"]))).collect();
        assert_eq!(surplus(&header(full.clone()), &a), None);
        let more = [full.clone(), vec![snap(6, of(0, true, &["a"]))]].concat();
        assert_eq!(surplus(&header(more.clone()), &a), Some((5, Bytes::from_static(b"a"))));
        // Of another peer, or from before the image was promoted here.
        let b = BTreeSet::from([Bytes::from_static(b"b")]);
        assert_eq!(surplus(&header(more.clone()), &b), None);
        let promoted = [more, vec![snap(7, of(3, true, &[])), snap(8, of(0, true, &["a"]))]];
        let mut promoted = promoted.concat();
        promoted.retain(|s| s.id != 5);
        assert_eq!(surplus(&header(promoted), &a), None);
        let unfinished = vec![snap(1, of(0, false, &["a"])), snap(2, of(0, true, &["a"]))];
        assert_eq!(surplus(&header(unfinished), &a), Some((1, Bytes::from_static(b"a"))));
        let nobodys = vec![snap(1, of(0, true, &["a"])), snap(2, of(0, true, &[]))];
        assert_eq!(surplus(&header(nobodys), &a), Some((2, Bytes::from_static(b"a"))));
    }

    /// As the peer lays it out: frames of version 1, snapshots of users only, features that
    /// follow from others left out.
    #[test]
    fn state_as_the_peers() {
        let snaps = vec![snap(3, SnapKind::User), snap(4, of(0, true, &["a"]))];
        let metadata = BTreeMap::from([(Bytes::from_static(b"k"), Bytes::from_static(b"v"))]);
        let mut want: Vec<u8> = vec![1, 1, 4, 0, 0, 0, 1, 0, 0, 0];
        let mut body = vec![1, 0, 0, 0, b'i'];
        body.extend((1u64 | 4 | 8 | 32).to_le_bytes());
        body.extend(u64::MAX.to_le_bytes());
        body.extend([1, 0, 0, 0]);
        body.extend(3u64.to_le_bytes());
        let kind = [1, 1, 4, 0, 0, 0, 0, 0, 0, 0];
        body.extend([1, 1, 10 + 4 + 2 + 1, 0, 0, 0]);
        body.extend(kind);
        body.extend([2, 0, 0, 0, b's', b'3', 0]);
        body.extend([1, 0, 0, 0, 1, 0, 0, 0, b'k', 1, 0, 0, 0, b'v']);
        want.extend([1, 1]);
        want.extend((body.len() as u32).to_le_bytes());
        want.extend(body);
        assert_eq!(state_bytes("i", &header(snaps), u64::MAX, &metadata), want);
    }
}
