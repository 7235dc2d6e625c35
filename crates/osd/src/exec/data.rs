//! Operations on an object's bytes.

use bytes::{Bytes, BytesMut};
use denc::{Features, Writer};
use messages::{Mutation, OsdOp, op, op_flag};

use super::Exec;
use crate::object::{INFO_ATTR, ObjectInfo};
use crate::snapset::{self, Found};
use types::{Denc, Errno, OpResult, SnapId};

/// The bytes that a vector of reads wants of an object, offset and length, when just one of
/// its operations wants any; not cut at the object's end. Nothing when another operation
/// asks the store, too: what it finds later may be newer than these bytes.
#[must_use]
pub fn wanted(ops: &[OsdOp], size: u64) -> Option<(u64, u64)> {
    let wants =
        |o: &&OsdOp| matches!(o.code, op::READ | op::SPARSE_READ | op::CHECKSUM | op::CMPEXT);
    let mut found = ops.iter().filter(wants);
    let (Some(o), None) = (found.next(), found.next()) else { return None };
    if o.code == op::CHECKSUM {
        return None; // reads by rules of its own
    }
    // These see the record that is kept with the bytes.
    let of_record = |o: &OsdOp| matches!(o.code, op::STAT | op::ASSERT_VER);
    if !ops.iter().all(|o| wants(&o) || of_record(o)) {
        return None;
    }
    let len = if o.is_empty() && o.code == op::READ { size } else { o.len() };
    (len > 0 && o.off() < size).then(|| (o.off(), len))
}

impl Exec<'_> {
    /// Bytes of the object as this vector has left it, cut at its size.
    pub(super) fn bytes_at(&mut self, off: u64, len: u64) -> OpResult<Bytes> {
        let size = self.state.info.size;
        if off >= size || len == 0 {
            return Ok(Bytes::new());
        }
        let len = len.min(size - off);
        let base = match (self.origin(), &self.fetched) {
            (None, _) => Bytes::new(),
            (Some(o), _) if self.gathered.is_some() => {
                let all = self.gathered.into_iter().flatten();
                let has = |(of, at, data): &&(_, u64, Bytes)| {
                    of == o && *at <= off && off + len <= at + data.len() as u64
                };
                match all.into_iter().find(has) {
                    Some((_, at, data)) => {
                        let from = (off - at) as usize;
                        data.slice(from..from + len as usize)
                    }
                    None => match self.at_hand.and_then(|f| f(o, off, len)) {
                        Some(data) => data,
                        None => {
                            self.lacks = Some((o.clone(), off, len));
                            return Err(Errno::AGAIN);
                        }
                    },
                }
            }
            (Some(o), Some((at, data)))
                if o == self.oid && *at == off && data.len() as u64 >= len =>
            {
                data.slice(..len as usize)
            }
            (Some(o), _) => self.store.read(self.coll, o, off, len)?.unwrap_or_default(),
        };
        self.bytes_read += len;
        let changed = self.mutations.iter().any(|m| {
            matches!(
                m,
                Mutation::Write { .. }
                    | Mutation::Zero { .. }
                    | Mutation::Truncate(_)
                    | Mutation::Remove
            )
        });
        if !changed && base.len() as u64 == len {
            return Ok(base);
        }
        let mut buf = BytesMut::with_capacity(len as usize);
        buf.extend_from_slice(&base);
        buf.resize(len as usize, 0);
        let end = off + len;
        // The part of a..b that lies in the buffer, as indices into it.
        let clip = |a: u64, b: u64| {
            let (a, b) = (a.clamp(off, end), b.clamp(off, end));
            (a - off) as usize..(b - off) as usize
        };
        for m in &self.mutations {
            match m {
                Mutation::Write { off: at, data } => {
                    let span = clip(*at, at + data.len() as u64);
                    if !span.is_empty() {
                        let from = (off + span.start as u64 - at) as usize;
                        let piece = &data[from..from + span.len()];
                        buf[span].copy_from_slice(piece);
                    }
                }
                Mutation::Zero { off: at, len } => buf[clip(*at, at + len)].fill(0),
                Mutation::Truncate(size) => buf[clip(*size, u64::MAX)].fill(0),
                Mutation::Remove => buf.fill(0),
                _ => {}
            }
        }
        Ok(buf.freeze())
    }

    /// The object's size as the reader of `op` sees it: a truncation that it knows of and
    /// the object does not ends it earlier.
    fn size_for(&self, op: &OsdOp) -> u64 {
        let info = &self.state.info;
        let newer = op.truncate_seq() > info.truncate_seq;
        if newer { info.size.min(op.truncate_size()) } else { info.size }
    }

    pub(super) fn read(&mut self, op: &mut OsdOp) -> OpResult<i32> {
        let size = self.size_for(op);
        let (off, mut len) = (op.off(), op.len());
        if len == 0 {
            len = size;
        }
        len = if off >= size { 0 } else { len.min(size - off) };
        if !self.state.exists && len > 0 {
            return Err(Errno::NOENT);
        }
        op.data = self.bytes_at(off, len)?;
        op.put_u64(8, op.data.len() as u64);
        Ok(0)
    }

    pub(super) fn sparse_read(&mut self, op: &mut OsdOp) -> OpResult<i32> {
        let left = self.size_for(op).saturating_sub(op.off());
        let data = self.bytes_at(op.off(), op.len().min(left))?;
        let mut w = Writer::with_capacity(Features::ALL, data.len() + 32);
        w.u32(u32::from(!data.is_empty()));
        if !data.is_empty() {
            w.u64(op.off());
            w.u64(data.len() as u64);
        }
        w.blob(&data);
        op.put_u64(8, data.len() as u64);
        op.data = w.finish();
        Ok(0)
    }

    pub(super) fn mapext(&mut self, op: &mut OsdOp) -> OpResult<i32> {
        self.must_exist()?;
        let size = self.state.info.size;
        let len = if op.is_empty() { size } else { op.len() };
        let len = len.min(size.saturating_sub(op.off()));
        let mut w = Writer::new(Features::ALL);
        w.u32(u32::from(len > 0));
        if len > 0 {
            w.u64(op.off());
            w.u64(len);
        }
        op.data = w.finish();
        Ok(0)
    }

    /// `-(4095 + i)` where byte `i` is the first to differ.
    pub(super) fn cmpext(&mut self, op: &OsdOp, expected: &Bytes) -> OpResult<i32> {
        if op.len() != expected.len() as u64 {
            return Err(Errno::INVAL);
        }
        if op.truncate_seq() != 0 && op.truncate_seq() < self.state.info.truncate_seq {
            return Err(Errno::INVAL);
        }
        let found = self.bytes_at(op.off(), op.len())?;
        let differs =
            (0..expected.len()).find(|&i| expected[i] != found.get(i).copied().unwrap_or(0));
        differs.map_or(Ok(0), |i| Err(Errno(-4095 - i as i32)))
    }

    pub(super) fn checksum(&mut self, op: &mut OsdOp, input: &Bytes) -> OpResult<i32> {
        let (off, mut len, chunk, kind) = (op.u64(0), op.u64(8), op.u32(16), op.raw[20]);
        let size = self.state.info.size;
        if off == 0 && len == 0 {
            len = size;
        } else if off >= size {
            len = 0;
        } else if len > size - off {
            len = size - off;
            if chunk > 0 {
                len -= len % u64::from(chunk);
            }
        }
        if chunk > 0 && len % u64::from(chunk) != 0 {
            return Err(Errno::INVAL);
        }
        self.must_exist()?;
        let data = self.bytes_at(off, len)?;
        op.put_u64(8, len);
        op.data = super::checksum::checksums(kind, input, &data, chunk as usize)?;
        Ok(0)
    }

    fn check_extent(&self, off: u64, len: u64) -> OpResult<()> {
        let max = self.limits.object_size_max;
        if off >= max || len > max || off + len > max { Err(Errno::FBIG) } else { Ok(()) }
    }

    /// The newest of two views of a file's length wins; see `truncate_seq` in
    /// [`ObjectInfo`]. Returns how much of the write still counts.
    fn order_with_truncates(&mut self, op: &OsdOp, off: u64, len: u64) -> u64 {
        let (seq, cut) = (op.truncate_seq(), op.truncate_size());
        if seq == 1 && cut == u64::MAX {
            return len; // stands for "none"
        }
        let ours = self.state.info.truncate_seq;
        if ours > 0 && seq < ours && off + len > self.state.info.size {
            return self.state.info.size.saturating_sub(off); // overtaken by a truncation
        }
        if seq > ours {
            if self.state.exists && cut < self.limits.object_size_max {
                self.set_size(cut);
            }
            self.state.info.truncate_seq = seq;
            self.state.info.truncate_size = cut;
        }
        len
    }

    fn set_size(&mut self, size: u64) {
        self.mutations.push(Mutation::Truncate(size));
        self.state.info.size = size;
        self.user_modified();
    }

    pub(super) fn write(&mut self, op: &OsdOp, input: Bytes) -> OpResult<i32> {
        if op.len() != input.len() as u64 {
            return Err(Errno::INVAL);
        }
        let off = op.off();
        self.check_extent(off, op.len())?;
        self.check_append(off)?;
        let len = self.order_with_truncates(op, off, op.len());
        self.maybe_create();
        if len == 0 {
            if op.is_empty() && off > self.state.info.size {
                self.set_size(off);
            }
        } else {
            self.put_bytes(off, input.slice(..len as usize));
        }
        self.user_modified();
        Ok(0)
    }

    fn put_bytes(&mut self, off: u64, data: Bytes) {
        self.bytes_written += data.len() as u64;
        self.state.info.size = self.state.info.size.max(off + data.len() as u64);
        self.mutations.push(Mutation::Write { off, data });
    }

    pub(super) fn write_full(&mut self, op: &OsdOp, input: Bytes) -> OpResult<i32> {
        if op.len() != input.len() as u64 {
            return Err(Errno::INVAL);
        }
        self.check_extent(0, op.len())?;
        self.maybe_create();
        if self.state.info.size > op.len() {
            self.set_size(op.len());
        }
        if !input.is_empty() {
            self.put_bytes(0, input);
        }
        self.user_modified();
        Ok(0)
    }

    pub(super) fn write_same(&mut self, op: &OsdOp, pattern: Bytes) -> OpResult<i32> {
        let (off, len, data_len) = (op.u64(0), op.u64(8), op.u64(16));
        if len == 0 {
            return Ok(0);
        }
        if data_len == 0 || len % data_len != 0 || data_len != pattern.len() as u64 {
            return Err(Errno::INVAL);
        }
        self.check_extent(off, len)?;
        let write = OsdOp::extent(op::WRITE, off, len, Bytes::new());
        self.write(&write, pattern.repeat((len / data_len) as usize).into())
    }

    /// Pools that are only appended to, stripe by stripe, refuse everything else.
    fn check_append(&self, off: u64) -> OpResult<()> {
        let Some(unit) = self.append_unit else { return Ok(()) };
        let end = if self.state.exists { self.state.info.size } else { 0 };
        if off != end || !off.is_multiple_of(unit) { Err(Errno::OPNOTSUPP) } else { Ok(()) }
    }

    pub(super) fn zero(&mut self, op: &OsdOp) -> OpResult<i32> {
        if self.append_unit.is_some() {
            return Err(Errno::OPNOTSUPP);
        }
        let (off, len) = (op.off(), op.len());
        self.check_extent(off, len)?;
        let size = self.state.info.size;
        if !self.state.exists || len == 0 || off >= size {
            return Ok(0);
        }
        if off + len >= size {
            self.set_size(off);
        } else {
            self.mutations.push(Mutation::Zero { off, len });
        }
        self.user_modified();
        Ok(0)
    }

    pub(super) fn truncate(&mut self, op: &OsdOp) -> OpResult<i32> {
        if self.append_unit.is_some() {
            return Err(Errno::OPNOTSUPP);
        }
        if !self.state.exists {
            return Ok(0);
        }
        let size = op.off();
        if size > self.limits.object_size_max {
            return Err(Errno::FBIG);
        }
        let seq = op.truncate_seq();
        if seq != 0 {
            if size != op.truncate_size() {
                return Err(Errno::INVAL);
            }
            if seq <= self.state.info.truncate_seq {
                return Ok(0); // an older truncation than the one that was seen
            }
            self.state.info.truncate_seq = seq;
            self.state.info.truncate_size = size;
        }
        self.set_size(size);
        Ok(0)
    }

    pub(super) fn create(&mut self, op: &OsdOp) -> OpResult<i32> {
        if self.state.exists && op.flags & op_flag::EXCL != 0 {
            return Err(Errno::EXIST);
        }
        self.maybe_create();
        self.user_modified();
        Ok(0)
    }

    pub(super) fn delete(&mut self) -> OpResult<i32> {
        self.must_exist()?;
        // What came before in this vector is gone with the object.
        self.clear();
        let user_version = self.state.info.user_version;
        let snaps = self.state.info.snaps.take();
        self.state.exists = false;
        self.state.info = ObjectInfo { user_version, snaps, ..ObjectInfo::default() };
        self.user_modified();
        Ok(0)
    }

    /// What the object was, and what this vector did to it, is gone.
    fn clear(&mut self) {
        self.mutations.clear();
        self.rolled_back = None;
        if self.base.exists {
            self.mutations.push(Mutation::Remove);
        }
    }

    /// The object becomes again what it was at a snapshot.
    pub(super) fn rollback(&mut self, op: &OsdOp) -> OpResult<i32> {
        match snapset::find(self.base, SnapId(op.u64(0))) {
            Found::Head => self.touch_info(),
            Found::Nowhere if !self.state.info.watchers.is_empty() => return Err(Errno::BUSY),
            Found::Nowhere if self.state.exists => return self.delete(),
            Found::Nowhere => {}
            Found::Clone(snap) => {
                let clone = self.oid.with_snap(snap);
                let raw = self.store.attr(self.coll, &clone, INFO_ATTR)?.ok_or(Errno::IO)?;
                let was = ObjectInfo::from_shared(&raw).map_err(|e| {
                    tracing::error!(oid = %clone, "{e}");
                    Errno::IO
                })?;
                self.mutations.clear();
                self.mutations.push(Mutation::CloneFrom(clone.clone()));
                self.rolled_back = Some(clone);
                self.state.exists = true;
                self.state.info.size = was.size;
                self.state.info.omap = was.omap;
            }
        }
        self.user_modified();
        Ok(0)
    }

    pub(super) fn set_alloc_hint(&mut self, op: &OsdOp) -> OpResult<i32> {
        self.maybe_create();
        self.touch_info();
        self.state.info.expected_object_size = op.u64(0);
        self.state.info.expected_write_size = op.u64(8);
        self.state.info.alloc_hint_flags = op.u32(16);
        Ok(0)
    }

    /// The object becomes a copy of another, which the caller has fetched already.
    pub(super) fn copy_from(&mut self, op: &OsdOp) -> OpResult<i32> {
        let source = self.copy.ok_or(Errno::OPNOTSUPP)?;
        if let Some(e) = source.failed {
            return Err(e);
        }
        if !source.state.exists {
            return Err(Errno::NOENT);
        }
        let has_omap = !source.omap.is_empty() || !source.header.is_empty();
        if has_omap && !self.has_omap {
            return Err(Errno::OPNOTSUPP);
        }
        let wanted = op.u64(8);
        match source.state.info.user_version.cmp(&wanted) {
            std::cmp::Ordering::Less if wanted != 0 => return Err(Errno::OVERFLOW),
            std::cmp::Ordering::Greater if wanted != 0 => return Err(Errno::RANGE),
            _ => {}
        }
        if self.state.exists {
            self.clear();
        }
        self.mutations.push(Mutation::Touch);
        self.state.exists = true;
        let watchers = std::mem::take(&mut self.state.info.watchers);
        let snaps = self.state.info.snaps.take();
        self.state.info = ObjectInfo {
            user_version: self.state.info.user_version.max(source.state.info.user_version),
            size: 0,
            mtime: source.state.info.mtime,
            omap: source.state.info.omap,
            watchers,
            snaps,
            ..ObjectInfo::default()
        };
        if !source.data.is_empty() {
            self.put_bytes(0, source.data.clone());
        }
        if source.state.info.size > self.state.info.size {
            self.set_size(source.state.info.size);
        }
        for (name, value) in &source.attrs {
            self.mutations.push(Mutation::SetAttr(name.clone(), value.clone()));
        }
        if !source.header.is_empty() {
            self.mutations.push(Mutation::OmapHeader(source.header.clone()));
        }
        if !source.omap.is_empty() {
            self.mutations.push(Mutation::OmapSet(source.omap.clone()));
        }
        self.user_modified();
        Ok(0)
    }
}
