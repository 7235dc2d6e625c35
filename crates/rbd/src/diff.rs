//! What differs between two states of an image: by object maps where they can be trusted
//! (fast-diff), else by each object's snapshots.
//!
//! Source: the peer's `librbd/api/DiffIterate.cc`, `object_map/DiffRequest.cc`,
//! `librados/snap_set_diff.cc`.

use cls::client::{ObjectMap, feature, state};
use rados::{ObjectSnaps, ReadOp};
use types::SnapId;

use crate::error::{Error, Result, absent};
use crate::image::{Header, Image};
use crate::names;

/// A range that differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    /// First byte in the image.
    pub off: u64,
    /// Bytes.
    pub len: u64,
    /// Whether there is data; zeros otherwise.
    pub exists: bool,
}

/// How an object differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Object {
    Same,
    Written,
    Removed,
}

/// Which of an object's versions a snapshot shows, or [`SnapId::HEAD`]; none where it was not
/// there.
pub(crate) fn shown(snaps: &ObjectSnaps, snap: u64) -> Option<usize> {
    // Clones list the snapshots that show them; one taken after the last write shows what is
    // now, if anything is.
    snaps.clones.iter().position(|c| match c.id {
        SnapId::HEAD => snap > snaps.seq.0,
        _ => c.snaps.contains(&SnapId(snap)),
    })
}

/// Ranges of one object that differ between two snapshots, by its versions. `from` 0 is
/// before all. In order; they do not overlap.
#[must_use]
pub fn object_changes(snaps: &ObjectSnaps, from: u64, to: u64) -> Vec<Changed> {
    let start = if from == 0 { None } else { shown(snaps, from) };
    let end = shown(snaps, to);
    let size = |at: Option<usize>| at.map_or(0, |at| snaps.clones[at].size);
    let (old_size, new_size) = (size(start), size(end));
    let mut changed: Vec<(u64, u64)> = Vec::new();
    match (start, end) {
        (None, None) => return Vec::new(),
        (Some(a), Some(b)) if a == b => return Vec::new(),
        (Some(a), Some(b)) if a < b => {
            for at in a..b {
                let version = &snaps.clones[at];
                let next = snaps.clones[at + 1].size.max(version.size);
                let mut kept = version.overlap.clone();
                kept.sort_unstable();
                let mut pos = 0;
                for (off, len) in kept {
                    if off > pos {
                        changed.push((pos, off));
                    }
                    pos = pos.max(off + len);
                }
                if pos < next {
                    changed.push((pos, next));
                }
            }
        }
        _ => changed.push((0, old_size.max(new_size))),
    }
    let end = old_size.max(new_size);
    changed.sort_unstable();
    let mut result: Vec<Changed> = Vec::new();
    let mut push = |off: u64, to: u64, exists: bool| {
        if off >= to {
            return;
        }
        match result.last_mut() {
            Some(last) if last.exists == exists && last.off + last.len >= off => {
                last.len = last.len.max(to - last.off);
            }
            _ => result.push(Changed { off, len: to - off, exists }),
        }
    };
    let mut done = 0;
    for (off, to) in changed {
        let (off, to) = (off.max(done), to.min(end));
        push(off, to.min(new_size), true);
        push(off.max(new_size), to, false);
        done = done.max(to);
    }
    result
}

/// Which snapshot, by number; the image as it is now without.
pub(crate) type At = Option<u64>;

pub(crate) fn number(at: At) -> u64 {
    at.unwrap_or(SnapId::HEAD.0)
}

impl Image {
    /// What differs between `from` (a snapshot's number; without: an image that never was) and
    /// `to`, object by object; `each` gets it in the order of the image's bytes as far as
    /// objects go, and `whole` objects where it is enough that they differ.
    ///
    /// # Errors
    /// [`Error::NoSnap`]; as the cluster says; what `each` returns.
    pub async fn diff(
        &self,
        from: At,
        to: At,
        whole: bool,
        each: &mut dyn FnMut(Changed) -> Result<()>,
    ) -> Result<()> {
        const BATCH: u64 = 256;
        let header = self.header().clone();
        let (size, overlap) = header.extent(to)?;
        if from.is_some() {
            header.extent(from)?;
        }
        if from.is_some_and(|from| from > number(to)) {
            return Err(Error::Invalid("a difference goes from older to newer".to_owned()));
        }
        let objects = self.fast_diff(&header, from, to).await?;
        let count = self.layout().object_count(size);
        let mut at = 0;
        while at < count {
            let next = (at + BATCH).min(count);
            let mut batch = Vec::new();
            for i in at..next {
                let known = objects.as_ref().map(|o| o[i as usize]);
                let shows = from.is_none() && !self.layout().extents_below(i, overlap).is_empty();
                if known == Some(Object::Same) && !shows {
                    continue;
                }
                batch.push((i, known));
            }
            let image = self.clone();
            let found = crate::io::each(batch, move |(i, known)| {
                let image = image.clone();
                async move { image.object_diff(i, known, from, to, overlap, whole).await }
            })
            .await?;
            for changed in found.into_iter().flatten() {
                // Objects end behind the image's end.
                let len = changed.len.min(size.saturating_sub(changed.off));
                if len > 0 {
                    each(Changed { len, ..changed })?;
                }
            }
            at = next;
        }
        Ok(())
    }

    /// All versions of a data object; none where it never was.
    pub(crate) async fn versions(&self, object: u64) -> Result<Option<ObjectSnaps>> {
        let mut op = ReadOp::new();
        let slot = op.list_snaps();
        let io = self.data_io().at_snap(SnapId::DIR);
        let _slot = self.slot().await;
        let reply = absent(io.read_op(&self.object(object), op).await)?;
        Ok(reply.map(|reply| reply.get(slot)).transpose()?)
    }

    /// Ranges of the image that an object holds and that differ.
    async fn object_diff(
        &self,
        object: u64,
        known: Option<Object>,
        from: At,
        to: At,
        overlap: u64,
        whole: bool,
    ) -> Result<Vec<Changed>> {
        let size = self.layout().object_size();
        let changes = match known {
            Some(Object::Same) => Vec::new(),
            Some(Object::Written) if whole => vec![Changed { off: 0, len: size, exists: true }],
            Some(Object::Removed) if whole => vec![Changed { off: 0, len: size, exists: false }],
            _ => match self.versions(object).await? {
                None => Vec::new(),
                Some(snaps) => {
                    let mut found = object_changes(&snaps, from.unwrap_or(0), number(to));
                    if whole && !found.is_empty() {
                        let exists = found.iter().any(|c| c.exists);
                        found = vec![Changed { off: 0, len: size, exists }];
                    }
                    found
                }
            },
        };
        if changes.is_empty() && from.is_none() {
            // Not written here: what shows is the parent's.
            let below = self.layout().extents_below(object, overlap).into_iter();
            return Ok(below.map(|(off, len)| Changed { off, len, exists: true }).collect());
        }
        let mut found = Vec::new();
        for c in changes {
            for (off, len) in self.layout().image_extents(object, c.off, c.len) {
                found.push(Changed { off, len, exists: c.exists });
            }
        }
        Ok(found)
    }

    /// How each object differs, by the object maps of all states between the two; none where
    /// one of them cannot be trusted.
    async fn fast_diff(&self, header: &Header, from: At, to: At) -> Result<Option<Vec<Object>>> {
        let bad = names::FLAG_FAST_DIFF_INVALID | names::FLAG_OBJECT_MAP_INVALID;
        if !header.has(feature::FAST_DIFF) {
            return Ok(None);
        }
        let mut states: Vec<At> = header
            .snaps
            .iter()
            .map(|s| s.id)
            .filter(|id| from.is_none_or(|from| *id >= from) && *id <= number(to))
            .map(Some)
            .collect();
        if to.is_none() {
            states.push(None);
        }
        let mut previous: Option<ObjectMap> = None;
        let mut result: Vec<Object> = Vec::new();
        for at in states {
            let (flags, size) = match at {
                None => (header.flags, header.size),
                Some(id) => {
                    let snap = header.snaps.iter().find(|s| s.id == id);
                    snap.map_or((bad, 0), |s| (s.flags, s.size))
                }
            };
            if flags & bad != 0 {
                return Ok(None);
            }
            let Ok(map) = self.load_object_map(at).await else { return Ok(None) };
            let count = self.layout().object_count(size);
            if map.count() < count {
                return Ok(None);
            }
            result.resize(count as usize, Object::Same);
            if !(from.is_some() && at == from) {
                for i in 0..count {
                    let was = previous.as_ref().map_or(0, |p| p.state(i));
                    let now = map.state(i);
                    let entry = &mut result[i as usize];
                    match (was, now) {
                        (state::NONEXISTENT, state::NONEXISTENT) => {}
                        (_, state::NONEXISTENT) => *entry = Object::Removed,
                        (_, state::EXISTS | state::PENDING) => *entry = Object::Written,
                        (state::NONEXISTENT, _) => *entry = Object::Written,
                        _ => {}
                    }
                }
            }
            previous = Some(map);
        }
        // What came and went since is as if it never was.
        if from.is_none() {
            for entry in result.iter_mut().filter(|e| **e == Object::Removed) {
                *entry = Object::Same;
            }
        }
        Ok(Some(result))
    }

    /// Bytes that the image, or a snapshot, uses beyond the snapshot before it: whole objects
    /// where the object maps can be trusted.
    ///
    /// # Errors
    /// As [`Image::diff`].
    pub async fn used(&self, from: At, to: At) -> Result<u64> {
        let mut used = 0;
        let fast = self.header().has(feature::FAST_DIFF);
        self.diff(from, to, fast, &mut |c| {
            used += if c.exists { c.len } else { 0 };
            Ok(())
        })
        .await?;
        Ok(used)
    }
}

#[cfg(test)]
mod tests {
    use rados::ObjectClone;

    use super::*;

    fn version(id: u64, snaps: &[u64], size: u64, overlap: &[(u64, u64)]) -> ObjectClone {
        let snaps = snaps.iter().map(|s| SnapId(*s)).collect();
        ObjectClone { id: SnapId(id), snaps, overlap: overlap.to_vec(), size }
    }

    fn changed(off: u64, len: u64, exists: bool) -> Changed {
        Changed { off, len, exists }
    }

    const HEAD: u64 = SnapId::HEAD.0;

    /// 100 bytes at snapshot 4; 10 at 20 overwritten before 7; cut to 50 since.
    fn history() -> ObjectSnaps {
        let clones = vec![
            version(4, &[4], 100, &[(0, 20), (30, 70)]),
            version(7, &[6, 7], 100, &[(0, 50)]),
            version(HEAD, &[], 50, &[]),
        ];
        ObjectSnaps { clones, seq: SnapId(7) }
    }

    #[test]
    fn versions_are_compared() {
        let h = history();
        assert_eq!(object_changes(&h, 4, 6), [changed(20, 10, true)]);
        assert_eq!(object_changes(&h, 6, 7), []);
        assert_eq!(object_changes(&h, 7, HEAD), [changed(50, 50, false)]);
        assert_eq!(object_changes(&h, 4, HEAD), [changed(20, 10, true), changed(50, 50, false)]);
        assert_eq!(object_changes(&h, 0, 4), [changed(0, 100, true)]);
        assert_eq!(object_changes(&h, 0, HEAD), [changed(0, 50, true)]);
        // A snapshot of after the last write.
        assert_eq!(object_changes(&h, 9, HEAD), []);
        assert_eq!(object_changes(&h, 7, 9), [changed(50, 50, false)]);
    }

    #[test]
    fn objects_come_and_go() {
        // Made after snapshot 4, there at 6, removed since.
        let clones = vec![version(6, &[6], 10, &[])];
        let gone = ObjectSnaps { clones, seq: SnapId(6) };
        assert_eq!(object_changes(&gone, 0, HEAD), []);
        assert_eq!(object_changes(&gone, 4, 6), [changed(0, 10, true)]);
        assert_eq!(object_changes(&gone, 6, HEAD), [changed(0, 10, false)]);
        assert_eq!(object_changes(&gone, 4, HEAD), []);
    }
}
