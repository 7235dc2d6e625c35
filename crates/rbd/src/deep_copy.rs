//! Copying an image object by object, with what its snapshots show, into another that has the
//! same snapshots.
//!
//! An object of the destination is written once for each state of the source that differs from
//! the one before, oldest first, each time in the snapshot context of before that state: so
//! the OSD keeps a version for each snapshot. Each of these operations asserts that the object
//! has seen no snapshot as new as its own context's: what an earlier attempt or a client that
//! wrote in the meantime has copied already is passed over (ERANGE). Breaking off between two of
//! them leaves the object as some snapshot shows it; to copy it again finishes it.
//!
//! Layouts may differ. Where the source is a clone, objects that it does not have stay absent
//! and go on showing the parent, unless the copy is to be flat; an object of which the source
//! has but parts gets the rest from the parent, because from then on it hides it.
//!
//! Source: the peer's `librbd/deep_copy/ObjectCopyRequest.cc`.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use cls::client::{feature, state};
use denc::Denc;
use rados::{ObjectSnaps, SnapContext, WriteOp};
use types::SnapId;

use crate::calls::HEAD;
use crate::diff::{At, number, object_changes, shown};
use crate::error::{ENOENT, Result, is};
use crate::image::{Header, Image};
use crate::io::is_zero;
use crate::lock::Owned;
use crate::names;

/// Zeros are told from data in blocks of so many bytes.
const BLOCK: u64 = 4096;
const ERANGE: i32 = 34;
/// `ASSERT_SNAPC_SEQ_GT_SNAPSET_SEQ`.
const NEWER_THAN_SEEN: u8 = 0;

/// A state of the source, oldest first.
#[derive(Debug)]
struct Stage {
    from: At,
    /// States of the destination that show it and nothing of a later stage, oldest first.
    to: Vec<At>,
    /// Bytes of the image.
    size: u64,
    /// How much of the source shows its parent.
    overlap: u64,
    /// How much of the destination shows its own parent.
    hides: u64,
    context: SnapContext,
}

/// A part of a destination's object, with the source's object that has the same bytes.
struct Part {
    /// First byte in the destination's object.
    at: u64,
    /// First byte in the image.
    image: u64,
    len: u64,
    /// First byte in the source's object.
    off: u64,
    versions: Option<ObjectSnaps>,
}

/// What a part looks like in a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    Absent,
    /// So many of its bytes are the parent's.
    Parent(u64),
    /// This version of the source's object.
    Own(usize),
}

/// Bytes of a destination's object that come from the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    at: u64,
    image: u64,
    len: u64,
}

impl Part {
    fn look(&self, stage: &Stage) -> Look {
        if self.image >= stage.size {
            return Look::Absent;
        }
        if let Some(version) = self.versions.as_ref().and_then(|v| shown(v, number(stage.from))) {
            return Look::Own(version);
        }
        match stage.overlap.saturating_sub(self.image).min(self.len) {
            0 => Look::Absent,
            below => Look::Parent(below),
        }
    }

    fn whole(&self) -> Range {
        Range { at: self.at, image: self.image, len: self.len }
    }

    /// What differs between two stages, in order.
    fn changes(&self, was: Look, is: Look, from: At, to: At) -> Vec<Range> {
        match (&self.versions, was, is) {
            _ if was == is => Vec::new(),
            (Some(versions), Look::Own(_), Look::Own(_)) => {
                let end = self.off + self.len;
                let cut = |off: u64, len: u64| {
                    let (start, end) = (off.max(self.off), (off + len).min(end));
                    let by = start.saturating_sub(self.off);
                    let (at, image) = (self.at + by, self.image + by);
                    Range { at, image, len: end.saturating_sub(start) }
                };
                let changes = object_changes(versions, number(from), number(to)).into_iter();
                changes.map(|c| cut(c.off, c.len)).filter(|r| r.len > 0).collect()
            }
            _ => vec![self.whole()],
        }
    }
}

/// Pieces of `data`, which begins at `at` in its object: where each begins, its bytes, and
/// whether these are all zero. Neighbours differ in the last.
fn runs(at: u64, data: &Bytes) -> Vec<(u64, Bytes, bool)> {
    let mut found: Vec<(usize, usize, bool)> = Vec::new();
    let mut pos = 0;
    while pos < data.len() {
        let in_block = (at + pos as u64) % BLOCK;
        let end = (pos + (BLOCK - in_block) as usize).min(data.len());
        let zero = is_zero(&data[pos..end]);
        match found.last_mut() {
            Some(last) if last.2 == zero => last.1 = end,
            _ => found.push((pos, end, zero)),
        }
        pos = end;
    }
    let run = |(start, end, zero)| (at + start as u64, data.slice(start..end), zero);
    found.into_iter().map(run).collect()
}

/// The states of `from` that `to` is to have, as [`DeepCopy::new`] has it.
fn stages(from: &Header, to: &Header, seqs: &BTreeMap<u64, u64>, overlap: u64) -> Vec<Stage> {
    let mut context = SnapContext::default();
    let mut stages = Vec::new();
    for (source, dest) in seqs.iter().filter(|(source, _)| **source != HEAD) {
        let there = to.snaps.iter().find(|s| s.id == *dest);
        if let Some(snap) = from.snaps.iter().find(|s| s.id == *source) {
            stages.push(Stage {
                from: Some(snap.id),
                to: there.iter().map(|s| Some(s.id)).collect(),
                size: snap.size,
                overlap: snap.overlap.unwrap_or(0),
                hides: there.and_then(|s| s.overlap).unwrap_or(0),
                context: context.clone(),
            });
        }
        context.seq = SnapId(*dest);
        if there.is_some() {
            context.snaps.insert(0, SnapId(*dest));
        }
    }
    // Snapshots made since show the source as it is, as the image itself does.
    let later: Vec<_> = to.snaps.iter().filter(|s| s.id > context.seq.0).collect();
    let shows = later.iter().map(|s| s.size).chain([to.size]).max().unwrap_or(0);
    let hides = later.iter().map(|s| s.overlap).chain([to.overlap]).flatten().max();
    stages.push(Stage {
        from: None,
        to: later.iter().map(|s| Some(s.id)).chain([None]).collect(),
        size: shows.min(from.size).min(overlap),
        overlap: from.overlap.unwrap_or(0),
        hides: hides.unwrap_or(0),
        context,
    });
    stages
}

/// Adds the writing of runs to an object of `end` bytes; its bytes then. Nothing is added for
/// zeros behind its end: a step that changes nothing would count as a change in object maps.
fn add_runs(op: &mut WriteOp, runs: Vec<(u64, Bytes, bool)>, mut end: u64) -> u64 {
    for (at, data, zero) in runs {
        let to = at + data.len() as u64;
        if !zero {
            op.write(at, data);
            end = end.max(to);
        } else if at < end && to >= end {
            op.truncate(at);
            end = at;
        } else if at < end {
            op.zero(at, to - at);
        }
    }
    end
}

/// A copy at work.
pub(crate) struct DeepCopy {
    source: Image,
    dest: Image,
    stages: Vec<Stage>,
    flatten: bool,
}

impl DeepCopy {
    /// `seqs` gives the destination's snapshots by those of the source; `overlap` is how many
    /// bytes of the image come from the source.
    pub(crate) fn new(
        source: &Image,
        dest: &Image,
        seqs: &BTreeMap<u64, u64>,
        overlap: u64,
        flatten: bool,
    ) -> Self {
        let stages = stages(&source.header(), &dest.header(), seqs, overlap);
        Self { source: source.clone(), dest: dest.clone(), stages, flatten }
    }

    /// How many objects of the destination there may be to copy.
    pub(crate) fn object_count(&self) -> u64 {
        let sizes = self.stages.iter().map(|s| s.size);
        self.dest.layout().object_count(sizes.max().unwrap_or(0))
    }

    /// Whether an object may need more than one operation.
    pub(crate) fn has_snaps(&self) -> bool {
        self.stages.len() > 1
    }

    async fn parts(&self, object: u64) -> Result<Vec<Part>> {
        let (to, from) = (self.dest.layout(), self.source.layout());
        let mut parts = Vec::new();
        let mut at = 0;
        for (image, len) in to.image_extents(object, 0, to.object_size()) {
            for piece in from.pieces(image, len) {
                let versions = self.source.versions(piece.object).await?;
                let (at, image) = (at + piece.at, image + piece.at);
                parts.push(Part { at, image, len: piece.len, off: piece.off, versions });
            }
            at += len;
        }
        Ok(parts)
    }

    /// Copies one object of the destination, as far as that is not done.
    pub(crate) async fn object(&self, object: u64) -> Result<()> {
        let owned = self.dest.enter().await?;
        let parts = self.parts(object).await?;
        // Bytes of the object so far; none where it is not there.
        let mut end: Option<u64> = None;
        let mut before: Option<(At, Vec<Look>)> = None;
        for stage in &self.stages {
            let looks: Vec<Look> = parts.iter().map(|p| p.look(stage)).collect();
            let counts = |look: &Look| match look {
                Look::Absent => false,
                Look::Parent(_) => self.flatten,
                Look::Own(_) => true,
            };
            let mut op = WriteOp::new();
            let seen = (stage.context.seq.0, NEWER_THAN_SEEN);
            op.exec("rbd", "assert_snapc_seq", &seen.to_bytes());
            if looks.iter().any(counts) {
                let ranges = match before.as_ref().filter(|_| end.is_some()) {
                    None => parts.iter().map(Part::whole).collect(),
                    Some((from, was)) => {
                        let pairs = parts.iter().zip(was.iter().zip(&looks));
                        pairs.flat_map(|(p, (a, b))| p.changes(*a, *b, *from, stage.from)).collect()
                    }
                };
                end = self.fill(&mut op, stage, object, ranges, end).await?;
            } else if end.take().is_some() {
                op.remove();
            }
            let written = op.len() > 1;
            if end.is_some() {
                self.mark(&owned, stage, object, written).await?;
            }
            if written {
                self.send(stage, object, op).await?;
            }
            before = Some((stage.from, looks));
        }
        Ok(())
    }

    /// Adds what makes an object of a stage of what it was before, of `end` bytes; its bytes
    /// then.
    async fn fill(
        &self,
        op: &mut WriteOp,
        stage: &Stage,
        object: u64,
        ranges: Vec<Range>,
        end: Option<u64>,
    ) -> Result<Option<u64>> {
        let size = self.dest.layout().object_size();
        let mut writes = Vec::new();
        for range in ranges {
            let there = range.len.min(stage.size.saturating_sub(range.image));
            let data = match there {
                0 => Bytes::new(),
                _ => self.source.read_at(stage.from, range.image, there).await?,
            };
            let mut whole = BytesMut::from(&data[..]);
            whole.resize(range.len as usize, 0);
            writes.extend(runs(range.at, &whole.freeze()));
        }
        let hides = !self.dest.layout().extents_below(object, stage.hides).is_empty();
        let has_data = writes.iter().any(|(_, _, zero)| !zero);
        if end.is_none() {
            if !has_data && !hides {
                return Ok(None);
            }
            op.create(false);
        }
        if has_data {
            op.alloc_hint(size, size, 0);
        }
        Ok(Some(add_runs(op, writes, end.unwrap_or(0))))
    }

    async fn send(&self, stage: &Stage, object: u64, op: WriteOp) -> Result<()> {
        let io = self.dest.data_io().with_snaps(stage.context.clone());
        let _slot = self.dest.slot().await;
        match io.write_op(&self.dest.object(object), op).await {
            Err(err) if is(&err, ERANGE) || is(&err, ENOENT) => Ok(()),
            other => Ok(other.map(drop)?),
        }
    }

    /// Says in the maps of all states that show a stage that the object is there.
    async fn mark(&self, owned: &Owned, stage: &Stage, object: u64, written: bool) -> Result<()> {
        let header = self.dest.header().clone();
        if !owned.locked || !header.has(feature::OBJECT_MAP) {
            return Ok(());
        }
        let later =
            if header.has(feature::FAST_DIFF) { state::EXISTS_CLEAN } else { state::EXISTS };
        let mut to = if written { state::EXISTS } else { later };
        for at in &stage.to {
            let Some(id) = at else {
                self.dest.mark(owned, object, object + 1, to).await?;
                continue;
            };
            let is_there = |s: &&crate::Snapshot| {
                let sound = s.flags & names::FLAG_OBJECT_MAP_INVALID == 0;
                s.id == *id && sound && object < self.dest.layout().object_count(s.size)
            };
            if header.snaps.iter().any(|s| is_there(&s)) {
                self.dest.mark_snap(*id, object, to).await?;
                to = later;
            }
        }
        Ok(())
    }

    /// Makes the source as the destination is, but for snapshots: what was written to the
    /// destination since it is one. `progress` is told of objects done, of all.
    pub(crate) async fn revert(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        let (size, layout) = (self.dest.size(), self.dest.layout());
        if self.source.size() != size {
            self.source.resize(size, &mut |_, _| {}).await?;
        }
        let last = self.stages.last().map_or(0, |s| s.context.seq.0);
        let since = self.dest.header().snaps.iter().any(|s| s.id == last).then_some(last);
        let count = layout.object_count(size);
        for object in 0..count {
            progress(object, count);
            let Some(mut versions) = self.dest.versions(object).await? else { continue };
            if self.has_snaps() {
                // Whoever copied it may have been broken off.
                self.object(object).await?;
                versions = self.dest.versions(object).await?.unwrap_or_default();
            }
            if shown(&versions, HEAD).is_none() {
                continue;
            }
            let old = since.filter(|snap| shown(&versions, *snap).is_some());
            let changes = match old {
                Some(snap) => object_changes(&versions, snap, HEAD),
                None => {
                    let len = layout.object_size();
                    vec![crate::Changed { off: 0, len, exists: true }]
                }
            };
            for c in changes {
                for (off, len) in layout.image_extents(object, c.off, c.len) {
                    self.revert_range(off, len.min(size.saturating_sub(off))).await?;
                }
            }
        }
        Ok(())
    }

    async fn revert_range(&self, off: u64, len: u64) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let (new, old) = (self.dest.read(off, len).await?, self.source.read(off, len).await?);
        for at in (0..len).step_by(BLOCK as usize) {
            let block = at as usize..(at + BLOCK).min(len) as usize;
            let data = new.slice(block.clone());
            if data == old[block] {
                continue;
            }
            match is_zero(&data) {
                true => self.source.write_zeroes(off + at, data.len() as u64).await?,
                false => self.source.write(off + at, data).await?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rados::ObjectClone;

    use super::*;

    proptest! {
        /// Runs cover the data once, in order, and alternate; none is longer than it must be.
        #[test]
        fn runs_cover(at in 0u64..20_000, blocks in prop::collection::vec(any::<bool>(), 0..8)) {
            let data: Vec<u8> = blocks.iter().flat_map(|b| vec![u8::from(*b); 3_000]).collect();
            let data = Bytes::from(data);
            let found = runs(at, &data);
            let joined: Vec<u8> = found.iter().flat_map(|(_, d, _)| d.to_vec()).collect();
            prop_assert_eq!(joined, data.to_vec());
            let mut next = at;
            for (start, part, zero) in &found {
                prop_assert_eq!(*start, next);
                prop_assert_eq!(*zero, is_zero(part));
                next += part.len() as u64;
            }
            prop_assert!(found.windows(2).all(|w| w[0].2 != w[1].2 && w[1].0 % BLOCK == 0));
        }
    }

    /// Snapshots 2 and 5 became 12 and 15, of which 12 was removed; 20 was made since, the
    /// image made smaller after that.
    #[test]
    fn stages_have_their_contexts() {
        let from = Header::for_test(100, &[(2, 50, None), (5, 90, Some(30))]);
        let to = Header::for_test(40, &[(15, 90, Some(30)), (20, 95, None)]);
        let found = stages(&from, &to, &BTreeMap::from([(2, 12), (5, 15)]), 100);
        let shown = |s: &Stage| {
            let snaps: Vec<u64> = s.context.snaps.iter().map(|s| s.0).collect();
            (s.from, s.to.clone(), s.size, s.overlap, s.hides, s.context.seq.0, snaps)
        };
        let want = [
            (Some(2), vec![], 50, 0, 0, 0, vec![]),
            (Some(5), vec![Some(15)], 90, 30, 30, 12, vec![]),
            (None, vec![Some(20), None], 95, 0, 0, 15, vec![15]),
        ];
        assert_eq!(found.iter().map(shown).collect::<Vec<_>>(), want);
        // What only came from elsewhere does not count.
        assert_eq!(stages(&from, &to, &BTreeMap::new(), 60)[0].size, 60);
    }

    #[test]
    fn zeros_cut_and_are_not_written() {
        let data =
            |at: u64, len: usize, zero: bool| (at, Bytes::from(vec![u8::from(!zero); len]), zero);
        let steps = |runs: Vec<_>, end| {
            let mut op = WriteOp::new();
            (add_runs(&mut op, runs, end), op.len())
        };
        assert_eq!(steps(vec![data(0, 4096, true)], 0), (0, 0));
        assert_eq!(steps(vec![data(4096, 4096, true)], 4096), (4096, 0));
        assert_eq!(steps(vec![data(4096, 4096, true)], 5000), (4096, 1));
        assert_eq!(steps(vec![data(0, 4096, true)], 9000), (9000, 1));
        assert_eq!(steps(vec![data(0, 4096, true), data(4096, 10, false)], 4096), (4106, 2));
    }

    fn stage(from: At, size: u64, overlap: u64) -> Stage {
        let context = SnapContext::default();
        Stage { from, to: vec![from], size, overlap, hides: 0, context }
    }

    /// Bytes 100 to 200 of an object that was written at first, of which 150 to 160 were
    /// overwritten after snapshot 4 and that was removed after snapshot 7.
    fn part() -> Part {
        let version = |id, snaps: &[u64], overlap: &[(u64, u64)]| ObjectClone {
            id: SnapId(id),
            snaps: snaps.iter().map(|s| SnapId(*s)).collect(),
            overlap: overlap.to_vec(),
            size: 4096,
        };
        let clones = vec![version(4, &[4], &[(0, 150), (160, 3936)]), version(7, &[7], &[])];
        let versions = Some(ObjectSnaps { clones, seq: SnapId(7) });
        Part { at: 1000, image: 5000, len: 100, off: 100, versions }
    }

    #[test]
    fn parts_look_and_change() {
        let part = part();
        let (old, new, now) =
            (stage(Some(4), 9000, 0), stage(Some(7), 9000, 0), stage(None, 9000, 0));
        let looks = [&old, &new, &now].map(|s| part.look(s));
        assert_eq!(looks, [Look::Own(0), Look::Own(1), Look::Absent]);
        let changed = part.changes(looks[0], looks[1], old.from, new.from);
        assert_eq!(changed, [Range { at: 1050, image: 5050, len: 10 }]);
        assert_eq!(part.changes(looks[1], looks[1], new.from, new.from), []);
        assert_eq!(part.changes(looks[1], looks[2], new.from, now.from), [part.whole()]);
        // Behind the end is nothing; where the object is not there the parent shows.
        assert_eq!(part.look(&stage(Some(4), 5000, 0)), Look::Absent);
        assert_eq!(part.look(&stage(None, 9000, 5060)), Look::Parent(60));
        assert_eq!(part.look(&stage(None, 9000, 9000)), Look::Parent(100));
    }
}
