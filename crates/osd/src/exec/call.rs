//! Methods of object classes, on the object as it was before the vector.

use bytes::Bytes;
use cls::{Callable, Object, Page, READS, Registry, WRITES};
use denc::Features;
use messages::{Mutation, OsdOp, op, op_flag};
use types::{EntityAddr, EntityId, EntityInst, HObject, UTime};

use super::Exec;
use crate::object::user_attr;
use types::{Errno, OpResult};

/// Class, method and parameters of a CALL.
fn parse<'a>(call: &OsdOp, input: &'a Bytes) -> OpResult<(&'a [u8], &'a [u8], Bytes)> {
    let (class, method) = (usize::from(call.raw[0]), usize::from(call.raw[1]));
    let params = class + method;
    if params > input.len() {
        return Err(Errno::INVAL);
    }
    let len = call.u32(3) as usize;
    if len > input.len() - params {
        return Err(Errno::INVAL);
    }
    Ok((&input[..class], &input[class..params], input.slice(params..params + len)))
}

/// The method that a CALL names.
///
/// # Errors
/// EINVAL for names that are cut off; EOPNOTSUPP for classes and methods that are not here.
pub fn find_method<'r>(call: &OsdOp, classes: &'r Registry) -> OpResult<Callable<'r>> {
    let (class, method, _) = parse(call, &call.data)?;
    classes.find(class, method)
}

/// Whether a CALL can be done, where `allowed` are the built-in classes that may be called at
/// all. Modules may always: that they were uploaded says so.
///
/// # Errors
/// EPERM for other classes; as [`find_method`].
pub fn check_call(call: &OsdOp, allowed: &ClassList, classes: &Registry) -> OpResult<()> {
    let (class, _, _) = parse(call, &call.data)?;
    if !allowed.has(class) && !classes.has_module(class) {
        return Err(Errno::PERM);
    }
    find_method(call, classes).map(drop)
}

/// `osd_class_load_list`: names of classes, or `*` for all there are.
#[derive(Clone, Debug)]
pub struct ClassList(std::sync::Arc<str>);

impl ClassList {
    /// From the option's text.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    pub(crate) fn has(&self, class: &[u8]) -> bool {
        self.0.split([' ', ',', ';', '\t']).any(|name| name == "*" || name.as_bytes() == class)
    }
}

/// Whether a CALL may change the object.
#[must_use]
pub fn call_writes(call: &OsdOp, classes: &Registry) -> bool {
    find_method(call, classes).is_ok_and(|m| m.flags() & WRITES != 0)
}

/// The object in the hands of a method.
struct View<'e, 'a> {
    exec: &'e mut Exec<'a>,
    flags: u8,
}

impl<'a> View<'_, 'a> {
    fn reading(&mut self) -> OpResult<&mut Exec<'a>> {
        if self.flags & READS == 0 {
            tracing::error!("a method that is not marked as reading reads");
            return Err(Errno::IO);
        }
        Ok(self.exec)
    }

    fn writing(&mut self) -> OpResult<&mut Exec<'a>> {
        if self.flags & WRITES == 0 {
            tracing::error!("a method that is not marked as writing writes");
            return Err(Errno::IO);
        }
        Ok(self.exec)
    }

    fn omap_writing(&mut self) -> OpResult<&mut Exec<'a>> {
        let exec = self.writing()?;
        if exec.has_omap { Ok(exec) } else { Err(Errno::OPNOTSUPP) }
    }
}

impl Object for View<'_, '_> {
    fn id(&self) -> &HObject {
        self.exec.oid
    }

    fn stat(&mut self) -> OpResult<(u64, UTime)> {
        self.exec.must_exist()?;
        Ok((self.exec.state.info.size, self.exec.state.info.mtime))
    }

    fn version(&self) -> u64 {
        self.exec.base.info.user_version
    }

    fn pg_version(&self) -> u64 {
        self.exec.pg_version
    }

    fn op_index(&self) -> u32 {
        self.exec.op_index
    }

    fn settings(&self) -> cls::Settings {
        let omap_entries_max = self.exec.limits.omap_entries_max;
        cls::Settings { omap_entries_max, ..self.exec.limits.settings }
    }

    fn now(&self) -> UTime {
        self.exec.now
    }

    fn caller(&self) -> (EntityId, EntityAddr) {
        (self.exec.asker.who, self.exec.asker.addr)
    }

    fn features(&self) -> Features {
        self.exec.asker.features
    }

    fn random(&mut self, out: &mut [u8]) {
        self.exec.fill_random(out);
    }

    fn read(&mut self, off: u64, len: u64) -> OpResult<Bytes> {
        let exec = self.reading()?;
        exec.must_exist()?;
        exec.bytes_at(off, len)
    }

    fn write(&mut self, off: u64, data: Bytes) -> OpResult<()> {
        let write = OsdOp::extent(op::WRITE, off, data.len() as u64, Bytes::new());
        self.writing()?.write(&write, data).map(drop)
    }

    fn write_full(&mut self, data: Bytes) -> OpResult<()> {
        let write = OsdOp::extent(op::WRITEFULL, 0, data.len() as u64, Bytes::new());
        self.writing()?.write_full(&write, data).map(drop)
    }

    fn zero(&mut self, off: u64, len: u64) -> OpResult<()> {
        self.writing()?.zero(&OsdOp::extent(op::ZERO, off, len, Bytes::new())).map(drop)
    }

    fn truncate(&mut self, size: u64) -> OpResult<()> {
        self.writing()?.truncate(&OsdOp::extent(op::TRUNCATE, size, 0, Bytes::new())).map(drop)
    }

    fn create(&mut self, exclusive: bool) -> OpResult<()> {
        let mut create = OsdOp::extent(op::CREATE, 0, 0, Bytes::new());
        create.flags = if exclusive { op_flag::EXCL } else { 0 };
        self.writing()?.create(&create).map(drop)
    }

    fn remove(&mut self) -> OpResult<()> {
        self.writing()?.delete().map(drop)
    }

    fn attr(&mut self, name: &[u8]) -> OpResult<Bytes> {
        let exec = self.reading()?;
        exec.must_have_attrs()?;
        exec.attr_before(&user_attr(name))?.ok_or(Errno::NODATA)
    }

    fn attrs(&mut self) -> OpResult<Vec<(Bytes, Bytes)>> {
        let exec = self.reading()?;
        exec.must_have_attrs()?;
        Ok(exec.attrs_before()?.into_iter().collect())
    }

    fn set_attr(&mut self, name: &[u8], value: Bytes) -> OpResult<()> {
        let exec = self.writing()?;
        exec.maybe_create();
        exec.mutations.push(Mutation::SetAttr(user_attr(name), value));
        exec.user_modified();
        Ok(())
    }

    fn rm_attr(&mut self, name: &[u8]) -> OpResult<()> {
        let exec = self.writing()?;
        exec.must_exist()?;
        exec.mutations.push(Mutation::RmAttr(user_attr(name)));
        exec.user_modified();
        Ok(())
    }

    fn omap_header(&mut self) -> OpResult<Bytes> {
        let exec = self.reading()?;
        exec.must_exist()?;
        exec.header_before()
    }

    fn omap_set_header(&mut self, header: Bytes) -> OpResult<()> {
        self.omap_writing()?.omap_set_header(header).map(drop)
    }

    fn omap_get(&mut self, key: &[u8]) -> OpResult<Bytes> {
        let exec = self.reading()?;
        exec.must_exist()?;
        exec.omap_value(&Bytes::copy_from_slice(key))?.ok_or(Errno::NOENT)
    }

    fn omap_page(&mut self, after: &[u8], prefix: &[u8], max: u64) -> OpResult<Page> {
        let exec = self.reading()?;
        exec.must_exist()?;
        let mut pairs = Vec::new();
        let after = Bytes::copy_from_slice(after);
        let (_, more) = exec.omap_page(&after, max, prefix, |k, v| {
            pairs.push((Bytes::copy_from_slice(k), v.clone()));
            k.len() + v.len() + 8
        })?;
        Ok((pairs, more))
    }

    fn omap_set(&mut self, pairs: Vec<(Bytes, Bytes)>) -> OpResult<()> {
        let exec = self.omap_writing()?;
        exec.set_pairs(pairs);
        Ok(())
    }

    fn omap_rm(&mut self, keys: Vec<Bytes>) -> OpResult<()> {
        let exec = self.omap_writing()?;
        exec.must_exist()?;
        exec.mutations.push(Mutation::OmapRm(keys));
        exec.user_modified();
        Ok(())
    }

    fn omap_rm_range(&mut self, from: Bytes, to: Bytes) -> OpResult<()> {
        let exec = self.omap_writing()?;
        exec.must_exist()?;
        exec.mutations.push(Mutation::OmapRmRange(from, to));
        exec.user_modified();
        Ok(())
    }

    fn omap_clear(&mut self) -> OpResult<()> {
        self.omap_writing()?.omap_clear().map(drop)
    }

    fn snapset_seq(&mut self) -> OpResult<u64> {
        let info = &self.exec.base.info;
        if !self.exec.state.exists && !info.whiteout {
            return Err(Errno::NOENT);
        }
        Ok(info.snaps.as_ref().map_or(0, |s| s.seq.0))
    }

    fn watchers(&mut self) -> OpResult<Vec<EntityInst>> {
        self.exec.must_exist()?;
        let watchers = self.exec.state.info.watchers.iter();
        Ok(watchers.map(|w| EntityInst { name: w.who, addr: w.addr }).collect())
    }
}

impl Exec<'_> {
    pub(super) fn call(&mut self, call: &mut OsdOp, input: &Bytes) -> OpResult<i32> {
        let (class, name, params) = parse(call, input)?;
        let classes = self.classes;
        let method = classes.find(class, name)?;
        let mut budget = self.budget;
        // A module reads what it wrote; built-in methods do not, as the peer's.
        if matches!(method, Callable::Module(_)) {
            self.visible_from = Some(self.mutations.len());
        }
        let mut view = View { exec: self, flags: method.flags() };
        let result = method.call(&mut view, &params, &mut budget);
        self.budget = budget;
        self.visible_from = None;
        let reply = result?;
        call.put_u64(8, reply.data.len() as u64);
        call.data = reply.data;
        if reply.value < 0 { Err(Errno(reply.value)) } else { Ok(reply.value) }
    }

    /// Bytes from the seed of this vector.
    fn fill_random(&mut self, out: &mut [u8]) {
        for part in out.chunks_mut(8) {
            // splitmix64
            self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.seed;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^= z >> 31;
            part.copy_from_slice(&z.to_le_bytes()[..part.len()]);
        }
    }
}
