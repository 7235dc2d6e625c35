//! What a caller wants changed, all of it or nothing.

use bytes::Bytes;
use std::fmt;
use stdx::BlockSums;
use types::{HObject, SpgId};

use crate::known::KnownSums;
use crate::pack::{Algorithm, Compressible};

/// A set of objects that is created, listed and removed as one: a PG's, or the OSD's own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Coll {
    /// The OSD's own things: superblock, maps.
    Meta,
    /// A PG.
    Pg(SpgId),
}

impl From<SpgId> for Coll {
    fn from(pg: SpgId) -> Self {
        Self::Pg(pg)
    }
}

impl fmt::Display for Coll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Meta => f.write_str("meta"),
            Self::Pg(pg) => write!(f, "{pg}"),
        }
    }
}

impl fmt::Debug for Coll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An object as a transaction names it: an index into its table of targets.
pub(crate) type Target = u32;

/// One change. Objects that a change needs and that are absent are created, except where
/// it says otherwise.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    CreateCollection(Coll),
    /// At once with all it holds: in logs of older versions only, where others may have got the
    /// space right behind it.
    RemoveCollection(Coll),
    /// Takes the name away; what the collection holds is swept, see `sweep`.
    DropCollection(Coll),
    /// The first `.1` objects, or when none are left keys, of the dead collection `.0` go; with
    /// 0 its mark.
    Sweep(u32, u32),
    /// Objects of `.0` whose hash, modulo 2^`.2`, is that of `.1` move there.
    Split(Coll, Coll, u32),
    /// All objects of `.0` move to `.1`; the collection stays, empty.
    Merge(Coll, Coll),
    Touch(Target),
    Write(Target, u64, Bytes),
    Zero(Target, u64, u64),
    Truncate(Target, u64),
    Remove(Target),
    Clone(Target, Target),
    CloneRange {
        src: Target,
        dst: Target,
        src_off: u64,
        len: u64,
        dst_off: u64,
    },
    Rename(Target, Target),
    SetAttrs(Target, Vec<(Bytes, Bytes)>),
    RmAttr(Target, Bytes),
    RmAttrs(Target),
    OmapSet(Target, Vec<(Bytes, Bytes)>),
    OmapRmKeys(Target, Vec<Bytes>),
    OmapRmRange(Target, Bytes, Bytes),
    OmapClear(Target),
    OmapSetHeader(Target, Bytes),
    CollSet(Coll, Bytes, Bytes),
    CollRm(Coll, Bytes),
    CollRmRange(Coll, Bytes, Bytes),
    /// Data that is on the device, in whole blocks: first block of the object, runs on the
    /// device, checksums, and the size the object has at least.
    Extents(Target, Box<Placed>),
    /// Blocks that checkpoint `.0` took out of shared use.
    Release(u64, Vec<Released>),
}

/// See [`Op::Extents`].
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub at: u64,
    pub size: u64,
    pub runs: Vec<(u64, u64)>,
    pub crcs: Vec<u32>,
    /// Compressed: then there is one run.
    pub blob: Option<Blob>,
    /// Nobody knows what it was: it cannot be read, though the device has what was written.
    pub damaged: bool,
}

impl Placed {
    /// Blocks of the object.
    pub fn blocks(&self) -> u64 {
        self.blob.map_or(self.crcs.len() as u64, |b| u64::from(b.blocks))
    }
}

/// How data was compressed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blob {
    pub algorithm: Algorithm,
    /// Compressed bytes.
    pub bytes: u32,
    /// Blocks it holds.
    pub blocks: u32,
}

/// A shared block that an object no longer refers to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Released {
    /// Its index among the checkpoint's.
    pub index: u32,
    pub phys: u64,
    /// The object let go of it already, in this run of the store; not so in replay, where
    /// it never had it. Not stored.
    pub done: bool,
}

/// Changes to any number of objects, applied in order and as one.
///
/// Building one costs no copy of payload: [`Bytes`] are kept as they are.
#[derive(Clone, Debug, Default)]
pub struct Transaction {
    pub(crate) targets: Vec<(Coll, HObject)>,
    pub(crate) ops: Vec<Op>,
    /// What is known of the targets' data. Not in the log.
    pub(crate) hints: Vec<(Target, Compressible)>,
    /// What is known of data that is written. Not in the log.
    pub(crate) sums: KnownSums,
    /// See [`Transaction::take_back`]. Not in the log.
    pub(crate) takes_back: bool,
}

impl Transaction {
    /// No changes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether nothing is to be changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Number of changes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// It undoes what other transactions did, and gives back at least what it takes once it is
    /// done: so it goes through where only removals do, with space that is kept for them.
    pub fn take_back(&mut self) -> &mut Self {
        self.takes_back = true;
        self
    }

    /// Appends the changes of `other`.
    pub fn append(&mut self, other: Self) {
        let takes_back = self.takes_back || other.takes_back;
        if self.ops.is_empty() && self.hints.is_empty() && self.sums.is_empty() {
            *self = Self { takes_back, ..other };
            return;
        }
        self.takes_back = takes_back;
        self.sums.append(other.sums);
        let base = self.targets.len() as u32;
        self.targets.extend(other.targets);
        self.hints.extend(other.hints.into_iter().map(|(t, hint)| (t + base, hint)));
        self.ops.extend(other.ops.into_iter().map(|mut op| {
            match &mut op {
                Op::Touch(t)
                | Op::Write(t, ..)
                | Op::Zero(t, ..)
                | Op::Truncate(t, _)
                | Op::Remove(t)
                | Op::SetAttrs(t, _)
                | Op::RmAttr(t, _)
                | Op::RmAttrs(t)
                | Op::OmapSet(t, _)
                | Op::OmapRmKeys(t, _)
                | Op::OmapRmRange(t, ..)
                | Op::OmapClear(t)
                | Op::OmapSetHeader(t, _)
                | Op::Extents(t, _) => *t += base,
                Op::Clone(s, d) | Op::Rename(s, d) | Op::CloneRange { src: s, dst: d, .. } => {
                    *s += base;
                    *d += base;
                }
                Op::CreateCollection(_)
                | Op::RemoveCollection(_)
                | Op::DropCollection(_)
                | Op::Sweep(..)
                | Op::Split(..)
                | Op::Merge(..)
                | Op::CollSet(..)
                | Op::CollRm(..)
                | Op::CollRmRange(..)
                | Op::Release(..) => {}
            }
            op
        }));
    }

    fn target(&mut self, c: Coll, o: &HObject) -> Target {
        // A transaction names one to three objects, the last one most often.
        let found = self.targets.iter().rposition(|(tc, to)| *tc == c && to == o);
        found.unwrap_or_else(|| {
            self.targets.push((c, o.clone()));
            self.targets.len() - 1
        }) as Target
    }

    fn on(&mut self, c: impl Into<Coll>, o: &HObject, op: impl FnOnce(Target) -> Op) -> &mut Self {
        let target = self.target(c.into(), o);
        self.ops.push(op(target));
        self
    }

    fn on_two(
        &mut self,
        c: impl Into<Coll>,
        src: &HObject,
        dst: &HObject,
        op: impl FnOnce(Target, Target) -> Op,
    ) -> &mut Self {
        let c = c.into();
        let (src, dst) = (self.target(c, src), self.target(c, dst));
        self.ops.push(op(src, dst));
        self
    }

    /// The collection exists from here on; nothing if it did.
    pub fn create_collection(&mut self, c: impl Into<Coll>) -> &mut Self {
        self.ops.push(Op::CreateCollection(c.into()));
        self
    }

    /// Removes the collection with all its objects and keys: for reads at once, and in the same
    /// time whatever it holds. Their space comes back behind that, see
    /// [`crate::Store::dead_collections`].
    pub fn remove_collection(&mut self, c: impl Into<Coll>) -> &mut Self {
        self.ops.push(Op::DropCollection(c.into()));
        self
    }

    /// Moves the objects of `src` that belong to `dst` once the PG is told apart by the
    /// lowest `bits` bits of the hash (`dst`'s number among them). Both exist; keys of the
    /// collections stay. No data is rewritten.
    pub fn split_collection(&mut self, src: impl Into<Coll>, dst: SpgId, bits: u32) -> &mut Self {
        self.ops.push(Op::Split(src.into(), dst.into(), bits));
        self
    }

    /// Moves all objects of `src` into `dst`. Both exist; keys of the collections stay.
    pub fn merge_collection(&mut self, src: impl Into<Coll>, dst: impl Into<Coll>) -> &mut Self {
        self.ops.push(Op::Merge(src.into(), dst.into()));
        self
    }

    /// Makes the object exist.
    pub fn touch(&mut self, c: impl Into<Coll>, o: &HObject) -> &mut Self {
        self.on(c, o, Op::Touch)
    }

    /// Writes `data` at `off`; a gap before it reads as zeros.
    pub fn write(&mut self, c: impl Into<Coll>, o: &HObject, off: u64, data: Bytes) -> &mut Self {
        self.on(c, o, |t| Op::Write(t, off, data))
    }

    /// The data that it writes, as it was given.
    pub fn written(&self) -> impl Iterator<Item = &Bytes> {
        self.ops.iter().filter_map(|op| match op {
            Op::Write(_, _, data) => Some(data),
            _ => None,
        })
    }

    /// The sums of `data`, which is written by this transaction: the store believes them, and
    /// reads will find damage where they are wrong.
    pub fn know_sums(&mut self, data: &Bytes, sums: &BlockSums) -> &mut Self {
        self.sums.note(data, sums);
        self
    }

    /// Replaces all data by `data`; attributes and omap stay.
    pub fn write_full(&mut self, c: impl Into<Coll>, o: &HObject, data: Bytes) -> &mut Self {
        let t = self.target(c.into(), o);
        self.ops.push(Op::Truncate(t, 0));
        self.ops.push(Op::Write(t, 0, data));
        self
    }

    /// Makes a range read as zeros and frees its space; extends the object where the range
    /// passes its end, as the peer's `zero` does in the store.
    pub fn zero(&mut self, c: impl Into<Coll>, o: &HObject, off: u64, len: u64) -> &mut Self {
        self.on(c, o, |t| Op::Zero(t, off, len))
    }

    /// Sets the size; what is beyond is freed, what is new reads as zeros.
    pub fn truncate(&mut self, c: impl Into<Coll>, o: &HObject, size: u64) -> &mut Self {
        self.on(c, o, |t| Op::Truncate(t, size))
    }

    /// Removes the object with data, attributes and omap; no object, no error.
    pub fn remove(&mut self, c: impl Into<Coll>, o: &HObject) -> &mut Self {
        self.on(c, o, Op::Remove)
    }

    /// Makes `dst` a copy of `src` (data shared, attributes, omap), replacing what it was.
    /// Refused when `src` is absent.
    pub fn clone_object(&mut self, c: impl Into<Coll>, src: &HObject, dst: &HObject) -> &mut Self {
        self.on_two(c, src, dst, Op::Clone)
    }

    /// Copies `len` bytes of data from `src` at `src_off` to `dst` at `dst_off`; block-aligned
    /// parts are shared. Refused when `src` is absent.
    pub fn clone_range(
        &mut self,
        c: impl Into<Coll>,
        src: &HObject,
        dst: &HObject,
        src_off: u64,
        len: u64,
        dst_off: u64,
    ) -> &mut Self {
        self.on_two(c, src, dst, |src, dst| Op::CloneRange { src, dst, src_off, len, dst_off })
    }

    /// Gives `src` the name `dst`, replacing what that was. Refused when `src` is absent.
    pub fn rename(&mut self, c: impl Into<Coll>, src: &HObject, dst: &HObject) -> &mut Self {
        self.on_two(c, src, dst, Op::Rename)
    }

    /// As [`Transaction::rename`], into another collection (a recovered object leaving its
    /// temporary name, say).
    pub fn move_object(
        &mut self,
        src_coll: impl Into<Coll>,
        src: &HObject,
        dst_coll: impl Into<Coll>,
        dst: &HObject,
    ) -> &mut Self {
        let (src, dst) = (self.target(src_coll.into(), src), self.target(dst_coll.into(), dst));
        self.ops.push(Op::Rename(src, dst));
        self
    }

    /// Sets one attribute.
    pub fn set_attr(
        &mut self,
        c: impl Into<Coll>,
        o: &HObject,
        name: impl Into<Bytes>,
        value: Bytes,
    ) -> &mut Self {
        let name = name.into();
        self.on(c, o, |t| Op::SetAttrs(t, vec![(name, value)]))
    }

    /// Sets several attributes.
    pub fn set_attrs(
        &mut self,
        c: impl Into<Coll>,
        o: &HObject,
        attrs: impl IntoIterator<Item = (Bytes, Bytes)>,
    ) -> &mut Self {
        self.on(c, o, |t| Op::SetAttrs(t, attrs.into_iter().collect()))
    }

    /// Removes one attribute; absent is fine.
    pub fn rm_attr(
        &mut self,
        c: impl Into<Coll>,
        o: &HObject,
        name: impl Into<Bytes>,
    ) -> &mut Self {
        let name = name.into();
        self.on(c, o, |t| Op::RmAttr(t, name))
    }

    /// Removes all attributes.
    pub fn rm_attrs(&mut self, c: impl Into<Coll>, o: &HObject) -> &mut Self {
        self.on(c, o, Op::RmAttrs)
    }

    /// Sets omap keys.
    pub fn omap_set(
        &mut self,
        c: impl Into<Coll>,
        o: &HObject,
        pairs: impl IntoIterator<Item = (Bytes, Bytes)>,
    ) -> &mut Self {
        self.on(c, o, |t| Op::OmapSet(t, pairs.into_iter().collect()))
    }

    /// Removes omap keys; absent is fine.
    pub fn omap_rm_keys(
        &mut self,
        c: impl Into<Coll>,
        o: &HObject,
        keys: impl IntoIterator<Item = Bytes>,
    ) -> &mut Self {
        self.on(c, o, |t| Op::OmapRmKeys(t, keys.into_iter().collect()))
    }

    /// Removes the omap keys `first..end`.
    pub fn omap_rm_range(
        &mut self,
        c: impl Into<Coll>,
        o: &HObject,
        first: Bytes,
        end: Bytes,
    ) -> &mut Self {
        self.on(c, o, |t| Op::OmapRmRange(t, first, end))
    }

    /// Removes all omap keys and the header.
    pub fn omap_clear(&mut self, c: impl Into<Coll>, o: &HObject) -> &mut Self {
        self.on(c, o, Op::OmapClear)
    }

    /// Sets the omap header.
    pub fn omap_set_header(&mut self, c: impl Into<Coll>, o: &HObject, header: Bytes) -> &mut Self {
        self.on(c, o, |t| Op::OmapSetHeader(t, header))
    }

    /// Sets a key of the collection itself: PG log entries, PG info. Costs its bytes in
    /// the log and one entry in memory.
    pub fn coll_set(
        &mut self,
        c: impl Into<Coll>,
        key: impl Into<Bytes>,
        value: Bytes,
    ) -> &mut Self {
        self.ops.push(Op::CollSet(c.into(), key.into(), value));
        self
    }

    /// Removes a key of the collection; absent is fine.
    pub fn coll_rm(&mut self, c: impl Into<Coll>, key: impl Into<Bytes>) -> &mut Self {
        self.ops.push(Op::CollRm(c.into(), key.into()));
        self
    }

    /// Removes the keys `first..end` of the collection.
    pub fn coll_rm_range(
        &mut self,
        c: impl Into<Coll>,
        first: impl Into<Bytes>,
        end: impl Into<Bytes>,
    ) -> &mut Self {
        self.ops.push(Op::CollRmRange(c.into(), first.into(), end.into()));
        self
    }

    /// Says what to expect of the data that this transaction writes to the object, for pools
    /// that compress. No change by itself.
    pub fn expect(&mut self, c: impl Into<Coll>, o: &HObject, hint: Compressible) -> &mut Self {
        let t = self.target(c.into(), o);
        self.hints.push((t, hint));
        self
    }

    /// What is expected of the data of target `t`.
    pub(crate) fn hint(&self, t: Target) -> Compressible {
        let hint = self.hints.iter().rfind(|(target, _)| *target == t);
        hint.map_or(Compressible::Unknown, |(_, hint)| *hint)
    }
}
