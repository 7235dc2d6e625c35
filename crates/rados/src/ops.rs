//! Operations on one object, put together before they are sent: all of them happen or none.
//!
//! [`ReadOp`] and [`WriteOp`] collect steps; a step that answers gives a [`Slot`], which later
//! finds its answer in the [`Reply`], with its type:
//!
//! ```no_run
//! # async fn f(io: rados::IoCtx) -> Result<(), rados::Error> {
//! let mut op = rados::ReadOp::new();
//! let stat = op.stat();
//! let data = op.read(0, 4096);
//! let reply = io.read_op(b"object", op).await?;
//! println!("{} bytes in all, the first: {:?}", reply.get(stat)?.size, reply.get(data)?);
//! # Ok(()) }
//! ```
//!
//! Source: the peer's `ObjectReadOperation`, `ObjectWriteOperation` of `librados.hpp`, and
//! `objclass` layouts of `rados.h`.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use denc::{DecodeError, Denc, Features, Reader, Writer};
use messages::{MOsdOpReply, OsdOp, op, op_flag};
use types::{EntityAddr, EntityId, SnapId, UTime};

use crate::error::{Error, Result};

/// Where a step's answer is in the [`Reply`].
#[derive(Debug)]
pub struct Slot<T> {
    step: usize,
    read: fn(&Bytes) -> std::result::Result<T, DecodeError>,
}

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Slot<T> {}

/// What the OSD answered.
#[derive(Clone, Debug)]
pub struct Reply {
    what: String,
    reply: MOsdOpReply,
}

impl Reply {
    pub(crate) fn new(what: String, reply: MOsdOpReply) -> Self {
        Self { what, reply }
    }

    /// A step's answer.
    ///
    /// # Errors
    /// [`Error::Errno`] where the step failed and was allowed to; [`Error::Decode`].
    pub fn get<T>(&self, slot: Slot<T>) -> Result<T> {
        let rval = self.rval(slot);
        if rval < 0 {
            return Err(Error::errno(&self.what, rval));
        }
        let data = self.reply.ops.get(slot.step).map(|op| op.data.clone()).unwrap_or_default();
        Ok((slot.read)(&data)?)
    }

    /// A step's result as a number: what the class method returned, or -errno.
    #[must_use]
    pub fn rval<T>(&self, slot: Slot<T>) -> i32 {
        self.reply.rvals.get(slot.step).copied().unwrap_or(0)
    }

    /// A step's output as it came, also where the step failed: methods may answer and fail (EFBIG).
    #[must_use]
    pub fn output<T>(&self, slot: Slot<T>) -> Bytes {
        self.reply.ops.get(slot.step).map(|op| op.data.clone()).unwrap_or_default()
    }

    /// The object's version, as its users see it.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.reply.user_version
    }
}

/// How a stored value is compared with the one given: stored OP given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cmp {
    /// Equal.
    Eq = 1,
    /// Not equal.
    Ne = 2,
    /// The one given is greater.
    Gt = 3,
    /// It is greater or equal.
    Ge = 4,
    /// It is less.
    Lt = 5,
    /// It is less or equal.
    Le = 6,
}

/// Which checksum [`ReadOp::checksum`] computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Checksum {
    /// xxHash, 32 bits.
    XxHash32 = 0,
    /// xxHash, 64 bits.
    XxHash64 = 1,
    /// CRC-32C.
    Crc32c = 2,
}

/// Size and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectStat {
    /// Size in bytes.
    pub size: u64,
    /// When it was last written.
    pub mtime: UTime,
}

/// Data with holes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sparse {
    /// Lengths of what is there, by offset in the object, in bytes.
    pub extents: BTreeMap<u64, u64>,
    /// The data of all extents, one after another.
    pub data: Bytes,
}

/// Somebody who watches an object. `watch_item_t`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watcher {
    /// Whose watch it is.
    pub who: EntityId,
    /// Which of its watches.
    pub cookie: u64,
    /// Seconds without a sign of life until it is removed.
    pub timeout_secs: u32,
    /// Where it connects from.
    pub addr: EntityAddr,
}

/// One version of an object. `clone_info`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectClone {
    /// The newest snapshot it shows; [`SnapId::HEAD`] for the object as it is.
    pub id: SnapId,
    /// Snapshots that show it, oldest first.
    pub snaps: Vec<SnapId>,
    /// Extents (offset, length) that it shares with the next newer version.
    pub overlap: Vec<(u64, u64)>,
    /// Size in bytes.
    pub size: u64,
}

/// All versions of an object, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectSnaps {
    /// The versions.
    pub clones: Vec<ObjectClone>,
    /// The newest snapshot the object has seen.
    pub seq: SnapId,
}

fn whole(data: &Bytes) -> std::result::Result<Bytes, DecodeError> {
    Ok(data.clone())
}

fn decoded<T: Denc>(data: &Bytes) -> std::result::Result<T, DecodeError> {
    T::decode(&mut Reader::shared(data))
}

fn stat(data: &Bytes) -> std::result::Result<ObjectStat, DecodeError> {
    let mut r = Reader::new(data);
    Ok(ObjectStat { size: r.u64()?, mtime: Denc::decode(&mut r)? })
}

fn sparse(data: &Bytes) -> std::result::Result<Sparse, DecodeError> {
    let (extents, data): (BTreeMap<u64, u64>, Bytes) = decoded(data)?;
    let sum = extents.values().try_fold(0u64, |sum, len| sum.checked_add(*len));
    if sum != Some(data.len() as u64) {
        return Err(DecodeError::Invalid { what: "sparse read", rule: "data fills its extents" });
    }
    Ok(Sparse { extents, data })
}

fn watchers(data: &Bytes) -> std::result::Result<Vec<Watcher>, DecodeError> {
    Reader::shared(data).framed("obj_list_watch_response_t", 1, |r, _| {
        r.seq(|r| {
            r.framed("watch_item_t", 2, |r, v| {
                let (who, cookie, timeout_secs) = (Denc::decode(r)?, r.u64()?, r.u32()?);
                let addr = if v >= 2 { Denc::decode(r)? } else { EntityAddr::default() };
                Ok(Watcher { who, cookie, timeout_secs, addr })
            })
        })
    })
}

fn object_snaps(data: &Bytes) -> std::result::Result<ObjectSnaps, DecodeError> {
    Reader::shared(data).framed("obj_list_snap_response_t", 2, |r, v| {
        let clones = r.seq(|r| {
            r.framed("clone_info", 1, |r, _| {
                Ok(ObjectClone {
                    id: Denc::decode(r)?,
                    snaps: Denc::decode(r)?,
                    overlap: Denc::decode(r)?,
                    size: r.u64()?,
                })
            })
        })?;
        Ok(ObjectSnaps { clones, seq: if v >= 2 { Denc::decode(r)? } else { SnapId(0) } })
    })
}

fn input(body: impl FnOnce(&mut Writer)) -> Bytes {
    let mut w = Writer::new(Features::ALL);
    body(&mut w);
    w.finish()
}

fn with_len(code: u16, data: Bytes) -> OsdOp {
    OsdOp::extent(code, 0, data.len() as u64, data)
}

/// Steps that reads and writes have in common.
macro_rules! common {
    ($name:ident) => {
        impl $name {
            /// Without steps.
            #[must_use]
            pub fn new() -> Self {
                Self::default()
            }

            /// Steps so far.
            #[must_use]
            pub fn len(&self) -> usize {
                self.ops.len()
            }

            /// Whether there are none.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.ops.is_empty()
            }

            fn push(&mut self, op: OsdOp) -> &mut Self {
                self.ops.push(op);
                self
            }

            fn slot<T>(
                &mut self,
                op: OsdOp,
                read: fn(&Bytes) -> std::result::Result<T, DecodeError>,
            ) -> Slot<T> {
                self.ops.push(op);
                Slot { step: self.ops.len() - 1, read }
            }

            /// Lets the last step fail: the others happen all the same, and [`Reply::get`]
            /// tells.
            pub fn may_fail(&mut self) -> &mut Self {
                if let Some(last) = self.ops.last_mut() {
                    last.flags |= op_flag::FAILOK;
                }
                self
            }

            /// Sets hints of [`op_flag`] (`FADVISE_...`) on the last step.
            pub fn advise(&mut self, flags: u32) -> &mut Self {
                if let Some(last) = self.ops.last_mut() {
                    last.flags |= flags;
                }
                self
            }

            /// Says of the last step, which reads or writes a range, how often the object's file was cut
            /// and how much of this object the last cut left: OSDs know a step before a cut by it.
            pub fn truncated(&mut self, seq: u32, size: u64) -> &mut Self {
                if let Some(last) = self.ops.last_mut() {
                    last.put_u64(16, size);
                    last.put_u32(24, seq);
                }
                self
            }

            /// Fails with ENOENT unless the object is there.
            pub fn assert_exists(&mut self) -> &mut Self {
                self.push(OsdOp::new(op::STAT, Bytes::new()))
            }

            /// Fails with ERANGE when the object is older than this version, with EOVERFLOW
            /// when it is newer.
            pub fn assert_version(&mut self, version: u64) -> &mut Self {
                let mut assert = OsdOp::new(op::ASSERT_VER, Bytes::new());
                assert.put_u64(8, version);
                self.push(assert)
            }

            /// Compares data at `off`; a difference at byte `i` fails with errno 4095 + `i`.
            pub fn cmp_ext(&mut self, off: u64, data: Bytes) -> &mut Self {
                self.push(OsdOp::extent(op::CMPEXT, off, data.len() as u64, data))
            }

            /// Compares an attribute; fails with ECANCELED.
            pub fn cmp_xattr(&mut self, attr: &str, cmp: Cmp, value: &[u8]) -> &mut Self {
                let mut op = named(op::CMPXATTR, attr, value);
                op.raw[8] = cmp as u8;
                op.raw[9] = 1; // as strings
                self.push(op)
            }

            /// Compares an attribute that is a decimal number; fails with ECANCELED.
            pub fn cmp_xattr_u64(&mut self, attr: &str, cmp: Cmp, value: u64) -> &mut Self {
                let mut op = named(op::CMPXATTR, attr, &value.to_le_bytes());
                op.raw[8] = cmp as u8;
                op.raw[9] = 2; // as numbers
                self.push(op)
            }

            /// Compares a value of the omap (an absent one counts as empty); fails with
            /// ECANCELED.
            pub fn cmp_omap(&mut self, key: Bytes, cmp: Cmp, value: Bytes) -> &mut Self {
                let asserts = BTreeMap::from([(key, (value, cmp as i32))]);
                self.push(with_len(op::OMAP_CMP, asserts.to_bytes()))
            }

            /// Calls a method of an object class. Its output comes back from reads, and from
            /// writes that ask for it ([`WriteOp::return_results`]).
            pub fn exec(&mut self, class: &str, method: &str, params: &[u8]) -> Slot<Bytes> {
                let mut data = Vec::with_capacity(class.len() + method.len() + params.len());
                data.extend_from_slice(class.as_bytes());
                data.extend_from_slice(method.as_bytes());
                data.extend_from_slice(params);
                let mut call = OsdOp::new(op::CALL, data.into());
                call.raw[0] = class.len() as u8;
                call.raw[1] = method.len() as u8;
                call.put_u32(3, params.len() as u32);
                self.slot(call, whole)
            }
        }
    };
}

fn named(code: u16, name: &str, value: &[u8]) -> OsdOp {
    let mut op = OsdOp::new(code, [name.as_bytes(), value].concat().into());
    op.put_u32(0, name.len() as u32);
    op.put_u32(4, value.len() as u32);
    op
}

/// Steps that change nothing.
#[derive(Clone, Debug, Default)]
pub struct ReadOp {
    pub(crate) ops: Vec<OsdOp>,
}
common!(ReadOp);

impl ReadOp {
    /// Size and time.
    pub fn stat(&mut self) -> Slot<ObjectStat> {
        self.slot(OsdOp::new(op::STAT, Bytes::new()), stat)
    }

    /// At most `len` bytes from `off`, fewer at the object's end.
    pub fn read(&mut self, off: u64, len: u64) -> Slot<Bytes> {
        self.slot(OsdOp::extent(op::READ, off, len, Bytes::new()), whole)
    }

    /// As [`ReadOp::read`], without the holes.
    pub fn sparse_read(&mut self, off: u64, len: u64) -> Slot<Sparse> {
        self.slot(OsdOp::extent(op::SPARSE_READ, off, len, Bytes::new()), sparse)
    }

    /// Checksums of each `chunk` bytes of a range (0: of all of it), little-endian as they
    /// come; `init` is the seed, as long as the checksum.
    pub fn checksum(
        &mut self,
        kind: Checksum,
        init: &[u8],
        off: u64,
        len: u64,
        chunk: u32,
    ) -> Slot<Bytes> {
        let mut sum = OsdOp::extent(op::CHECKSUM, off, len, Bytes::copy_from_slice(init));
        sum.put_u32(16, chunk);
        sum.raw[20] = kind as u8;
        self.slot(sum, |data| Ok(data.slice(data.len().min(4)..)))
    }

    /// An attribute; ENODATA without it.
    pub fn get_xattr(&mut self, attr: &str) -> Slot<Bytes> {
        self.slot(named(op::GETXATTR, attr, b""), whole)
    }

    /// All attributes.
    pub fn get_xattrs(&mut self) -> Slot<BTreeMap<Bytes, Bytes>> {
        self.slot(OsdOp::new(op::GETXATTRS, Bytes::new()), decoded)
    }

    /// Omap pairs behind `after` whose keys begin with `prefix`, at most `max`; whether there
    /// are more.
    pub fn get_omap(
        &mut self,
        after: &[u8],
        prefix: &[u8],
        max: u64,
    ) -> Slot<(BTreeMap<Bytes, Bytes>, bool)> {
        let data = input(|w| {
            w.blob(after);
            w.u64(max);
            w.blob(prefix);
        });
        self.slot(with_len(op::OMAPGETVALS, data), decoded)
    }

    /// Omap keys behind `after`, at most `max`; whether there are more.
    pub fn get_omap_keys(&mut self, after: &[u8], max: u64) -> Slot<(BTreeSet<Bytes>, bool)> {
        let data = input(|w| {
            w.blob(after);
            w.u64(max);
        });
        self.slot(with_len(op::OMAPGETKEYS, data), decoded)
    }

    /// Omap pairs by their keys; absent ones are left out.
    pub fn get_omap_by_keys(&mut self, keys: &BTreeSet<Bytes>) -> Slot<BTreeMap<Bytes, Bytes>> {
        self.slot(with_len(op::OMAPGETVALSBYKEYS, keys.to_bytes()), decoded)
    }

    /// The omap's header.
    pub fn get_omap_header(&mut self) -> Slot<Bytes> {
        self.slot(OsdOp::new(op::OMAPGETHEADER, Bytes::new()), whole)
    }

    /// Who watches the object.
    pub fn list_watchers(&mut self) -> Slot<Vec<Watcher>> {
        self.slot(OsdOp::new(op::LIST_WATCHERS, Bytes::new()), watchers)
    }

    /// The object's versions. Alone in its operation, on an [`IoCtx::at_snap`] of
    /// [`SnapId::DIR`].
    ///
    /// [`IoCtx::at_snap`]: crate::IoCtx::at_snap
    pub fn list_snaps(&mut self) -> Slot<ObjectSnaps> {
        self.slot(OsdOp::new(op::LIST_SNAPS, Bytes::new()), object_snaps)
    }
}

/// Steps that change the object.
#[derive(Clone, Debug, Default)]
pub struct WriteOp {
    pub(crate) ops: Vec<OsdOp>,
    pub(crate) return_results: bool,
    pub(crate) mtime: Option<UTime>,
}
common!(WriteOp);

impl WriteOp {
    /// Asks for outputs and results of the steps (`RETURNVEC`).
    pub fn return_results(&mut self) -> &mut Self {
        self.return_results = true;
        self
    }

    /// The object's time of change will be `mtime`, and not now.
    pub fn mtime(&mut self, mtime: UTime) -> &mut Self {
        self.mtime = Some(mtime);
        self
    }

    /// Makes the object; fails with EEXIST when it is there and `exclusive`.
    pub fn create(&mut self, exclusive: bool) -> &mut Self {
        let mut create = OsdOp::new(op::CREATE, Bytes::new());
        create.flags = if exclusive { op_flag::EXCL } else { 0 };
        self.push(create)
    }

    /// Writes at an offset.
    pub fn write(&mut self, off: u64, data: Bytes) -> &mut Self {
        self.push(OsdOp::extent(op::WRITE, off, data.len() as u64, data))
    }

    /// Replaces the content.
    pub fn write_full(&mut self, data: Bytes) -> &mut Self {
        self.push(with_len(op::WRITEFULL, data))
    }

    /// Writes `data` over and over until `len` bytes are written, a multiple of its length.
    pub fn write_same(&mut self, off: u64, len: u64, data: Bytes) -> &mut Self {
        let mut same = OsdOp::extent(op::WRITESAME, off, len, Bytes::new());
        same.put_u64(16, data.len() as u64);
        same.data = data;
        self.push(same)
    }

    /// Writes at the end.
    pub fn append(&mut self, data: Bytes) -> &mut Self {
        self.push(with_len(op::APPEND, data))
    }

    /// Cuts or extends.
    pub fn truncate(&mut self, size: u64) -> &mut Self {
        self.push(OsdOp::extent(op::TRUNCATE, size, 0, Bytes::new()))
    }

    /// Cuts to `size` unless a cut with this `seq` or a later one was done already: what holds back
    /// one that comes late (`TRIMTRUNC`).
    pub fn trim_truncate(&mut self, size: u64, seq: u32) -> &mut Self {
        let mut op = OsdOp::extent(op::TRIMTRUNC, 0, 0, Bytes::new());
        op.put_u64(16, size);
        op.put_u32(24, seq);
        self.push(op)
    }

    /// Makes a hole.
    pub fn zero(&mut self, off: u64, len: u64) -> &mut Self {
        self.push(OsdOp::extent(op::ZERO, off, len, Bytes::new()))
    }

    /// Removes the object; ENOENT when there is none.
    pub fn remove(&mut self) -> &mut Self {
        self.push(OsdOp::new(op::DELETE, Bytes::new()))
    }

    /// Sets an attribute.
    pub fn set_xattr(&mut self, attr: &str, value: &[u8]) -> &mut Self {
        self.push(named(op::SETXATTR, attr, value))
    }

    /// Removes an attribute.
    pub fn rm_xattr(&mut self, attr: &str) -> &mut Self {
        self.push(named(op::RMXATTR, attr, b""))
    }

    /// Sets omap pairs.
    pub fn set_omap(&mut self, pairs: &BTreeMap<Bytes, Bytes>) -> &mut Self {
        self.push(with_len(op::OMAPSETVALS, pairs.to_bytes()))
    }

    /// Sets the omap's header.
    pub fn set_omap_header(&mut self, header: Bytes) -> &mut Self {
        self.push(with_len(op::OMAPSETHEADER, header))
    }

    /// Removes omap pairs.
    pub fn rm_omap_keys(&mut self, keys: &BTreeSet<Bytes>) -> &mut Self {
        self.push(with_len(op::OMAPRMKEYS, keys.to_bytes()))
    }

    /// Removes the omap pairs from `from` on, up to and without `to`.
    pub fn rm_omap_range(&mut self, from: &[u8], to: &[u8]) -> &mut Self {
        let range = (Bytes::copy_from_slice(from), Bytes::copy_from_slice(to));
        self.push(with_len(op::OMAPRMKEYRANGE, range.to_bytes()))
    }

    /// Removes all of the omap.
    pub fn clear_omap(&mut self) -> &mut Self {
        self.push(OsdOp::new(op::OMAPCLEAR, Bytes::new()))
    }

    /// Makes the object what it was in a snapshot of its pool or of the writer's own.
    pub fn rollback(&mut self, snap: SnapId) -> &mut Self {
        let mut back = OsdOp::new(op::ROLLBACK, Bytes::new());
        back.put_u64(0, snap.0);
        self.push(back)
    }

    /// Tells how large object and writes will be, in bytes.
    pub fn alloc_hint(&mut self, object_size: u64, write_size: u64, flags: u32) -> &mut Self {
        let mut hint = OsdOp::new(op::SETALLOCHINT, Bytes::new());
        hint.put_u64(0, object_size);
        hint.put_u64(8, write_size);
        hint.put_u32(16, flags);
        self.push(hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A slot finds the answer of its own step, and its error.
    #[test]
    fn slots_find_their_answers() {
        let mut op = ReadOp::new();
        let size = op.stat();
        let data = op.read(0, 3);
        let attr = op.get_xattr("a");
        op.may_fail();
        let mut ops = op.ops.clone();
        ops[0].data = (7u64, UTime { sec: 1, nsec: 2 }).to_bytes();
        ops[1].data = Bytes::from_static(b"abc");
        let reply = MOsdOpReply { ops, rvals: vec![0, 3, -61], ..MOsdOpReply::default() };
        let reply = Reply::new("o".to_owned(), reply);
        assert_eq!(reply.get(size).unwrap().size, 7);
        assert_eq!(reply.get(data).unwrap(), "abc");
        assert_eq!(reply.get(attr).unwrap_err().code(), Some(61));
        assert_eq!((op.ops[1].flags, op.ops[2].flags), (0, op_flag::FAILOK));
    }

    /// Extents that say more or less than the data has are an error, not a panic later.
    #[test]
    fn sparse_answers_must_fit() {
        let answer = |len: u64| (BTreeMap::from([(0u64, len)]), Bytes::from_static(b"abc"));
        assert!(sparse(&answer(3).to_bytes()).is_ok());
        assert!(sparse(&answer(4).to_bytes()).is_err());
        assert!(sparse(&answer(u64::MAX).to_bytes()).is_err());
    }
}
