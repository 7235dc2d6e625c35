//! Operations on attributes and omap.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use denc::{Denc, Features, Reader, Writer};
use messages::{Mutation, OsdOp};

use super::Exec;
use crate::object::{INFO_ATTR, user_attr};
use types::{Errno, HObject, OpResult};

fn parse<T>(input: &Bytes) -> OpResult<T>
where
    T: Denc,
{
    T::decode(&mut Reader::shared(input)).map_err(|_| Errno::INVAL)
}

/// Name and value of an attribute operation.
fn name_and_value(op: &OsdOp, input: &Bytes) -> OpResult<(Bytes, Bytes)> {
    let (name_len, value_len) = (op.u32(0) as usize, op.u32(4) as usize);
    match name_len.checked_add(value_len) {
        Some(all) if all <= input.len() && name_len > 0 => {
            Ok((input.slice(..name_len), input.slice(name_len..all)))
        }
        _ => Err(Errno::INVAL),
    }
}

fn compare(cmp_op: u8, order: std::cmp::Ordering) -> OpResult<bool> {
    Ok(match cmp_op {
        1 => order.is_eq(),
        2 => order.is_ne(),
        3 => order.is_gt(),
        4 => order.is_ge(),
        5 => order.is_lt(),
        6 => order.is_le(),
        _ => return Err(Errno::INVAL),
    })
}

/// The number at the start of a text, as C's `atoll`; 0 when there is none.
fn leading_number(text: &[u8]) -> u64 {
    let text = text.trim_ascii_start();
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let n = digits
        .iter()
        .take_while(|b| b.is_ascii_digit())
        .fold(0u64, |n, b| n.saturating_mul(10).saturating_add(u64::from(b - b'0')));
    if negative { n.wrapping_neg() } else { n }
}

impl Exec<'_> {
    /// The object as it was before the vector: attributes and omap are read from there,
    /// whatever the vector has changed since, as the peer does. Clients count on it: the
    /// gateway overwrites its records by \[delete, create, check of the old version, ...\].
    fn before(&self) -> Option<&HObject> {
        self.base.exists.then_some(self.oid)
    }

    /// Attributes are read of an object that the vector has removed, too.
    ///
    /// # Errors
    /// ENOENT where it neither was there nor is.
    pub(super) fn must_have_attrs(&self) -> OpResult<()> {
        if self.base.exists { Ok(()) } else { self.must_exist() }
    }

    /// Changes that reads see all the same: a module's, in the call that made them.
    fn visible(&self) -> &[Mutation] {
        self.visible_from.and_then(|from| self.mutations.get(from..)).unwrap_or_default()
    }

    pub(super) fn attr_before(&self, name: &Bytes) -> OpResult<Option<Bytes>> {
        for m in self.visible().iter().rev() {
            match m {
                Mutation::SetAttr(n, value) if n == name => return Ok(Some(value.clone())),
                Mutation::RmAttr(n) if n == name => return Ok(None),
                Mutation::Remove => return Ok(None),
                _ => {}
            }
        }
        let Some(origin) = self.before() else { return Ok(None) };
        Ok(self.store.attr(self.coll, origin, name)?)
    }

    /// Users' attributes, without the prefix.
    pub(crate) fn attrs_before(&self) -> OpResult<BTreeMap<Bytes, Bytes>> {
        let mut all = BTreeMap::new();
        if let Some(origin) = self.before() {
            all.extend(self.store.attrs(self.coll, origin)?);
        }
        for m in self.visible() {
            match m {
                Mutation::SetAttr(name, value) => {
                    all.insert(name.clone(), value.clone());
                }
                Mutation::RmAttr(name) => {
                    all.remove(name);
                }
                Mutation::Remove => all.clear(),
                _ => {}
            }
        }
        Ok(all
            .into_iter()
            .filter(|(name, _)| name.len() > 1 && name[0] == b'_' && name != INFO_ATTR)
            .map(|(name, value)| (name.slice(1..), value))
            .collect())
    }

    pub(super) fn getxattr(&mut self, op: &mut OsdOp, input: &Bytes) -> OpResult<i32> {
        self.must_have_attrs()?;
        let (name, _) = name_and_value(op, input)?;
        let value = self.attr_before(&user_attr(&name))?.ok_or(Errno::NODATA)?;
        op.put_u32(4, value.len() as u32);
        op.data = value;
        Ok(0)
    }

    pub(super) fn getxattrs(&mut self, op: &mut OsdOp) -> OpResult<i32> {
        self.must_have_attrs()?;
        op.data = self.attrs_before()?.to_bytes();
        Ok(0)
    }

    pub(super) fn cmpxattr(&mut self, op: &OsdOp, input: &Bytes) -> OpResult<i32> {
        let (name, operand) = name_and_value(op, input)?;
        self.must_have_attrs()?;
        let value = self.attr_before(&user_attr(&name))?.unwrap_or_default();
        let order = match op.raw[9] {
            1 => operand.cmp(&value),
            2 => {
                let wanted = parse::<u64>(&operand)?;
                wanted.cmp(&leading_number(&value))
            }
            _ => return Err(Errno::INVAL),
        };
        if compare(op.raw[8], order)? { Ok(1) } else { Err(Errno::CANCELED) }
    }

    pub(super) fn setxattr(&mut self, op: &OsdOp, input: &Bytes) -> OpResult<i32> {
        let limits = self.limits;
        if limits.attr_size_max > 0 && u64::from(op.u32(4)) > limits.attr_size_max {
            return Err(Errno::FBIG);
        }
        if op.u32(0) as usize > limits.attr_name_max {
            return Err(Errno::NAMETOOLONG);
        }
        let (name, value) = name_and_value(op, input)?;
        self.maybe_create();
        self.mutations.push(Mutation::SetAttr(user_attr(&name), value));
        self.user_modified();
        Ok(0)
    }

    pub(super) fn rmxattr(&mut self, op: &OsdOp, input: &Bytes) -> OpResult<i32> {
        let (name, _) = name_and_value(op, input)?;
        self.must_exist()?;
        self.mutations.push(Mutation::RmAttr(user_attr(&name)));
        self.user_modified();
        Ok(0)
    }

    /// Whether the omap is not read as it was before.
    fn omap_changed(&self) -> bool {
        self.visible().iter().any(|m| {
            matches!(
                m,
                Mutation::OmapSet(_)
                    | Mutation::OmapRm(_)
                    | Mutation::OmapRmRange(..)
                    | Mutation::OmapClear
                    | Mutation::Remove
            )
        })
    }

    /// Walks the omap from the first key not below `from`.
    fn omap_walk(&self, from: &[u8], mut each: impl FnMut(&[u8], &Bytes) -> bool) -> OpResult<()> {
        if !self.omap_changed() {
            if let Some(origin) = self.before() {
                self.store.omap_walk(self.coll, origin, from, &mut each)?;
            }
            return Ok(());
        }
        let mut all = BTreeMap::new();
        if let Some(origin) = self.before() {
            self.store.omap_walk(self.coll, origin, b"", &mut |k, v| {
                all.insert(Bytes::copy_from_slice(k), v.clone());
                true
            })?;
        }
        for m in self.visible() {
            match m {
                Mutation::OmapSet(entries) => all.extend(entries.iter().cloned()),
                Mutation::OmapRm(keys) => keys.iter().for_each(|k| {
                    all.remove(k);
                }),
                Mutation::OmapRmRange(begin, end) => all.retain(|k, _| k < begin || k >= end),
                Mutation::OmapClear | Mutation::Remove => all.clear(),
                _ => {}
            }
        }
        for (k, v) in &all {
            if k.as_ref() >= from && !each(k.as_ref(), v) {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn omap_value(&self, key: &Bytes) -> OpResult<Option<Bytes>> {
        if !self.omap_changed() {
            let Some(origin) = self.before() else { return Ok(None) };
            return Ok(self.store.omap_get(self.coll, origin, key)?);
        }
        let mut found = None;
        self.omap_walk(key, |k, v| {
            if k == key {
                found = Some(v.clone());
            }
            false
        })?;
        Ok(found)
    }

    /// Entries after `start_after` that begin with `prefix`, at most `max` and at most as
    /// many as an answer may hold; and whether there are more.
    pub(super) fn omap_page(
        &self,
        start_after: &Bytes,
        max: u64,
        prefix: &[u8],
        mut each: impl FnMut(&[u8], &Bytes) -> usize,
    ) -> OpResult<(u32, bool)> {
        let max = max.min(self.limits.omap_entries_max);
        let (mut n, mut bytes, mut more) = (0u64, 0usize, false);
        let from = if prefix > start_after.as_ref() { prefix } else { start_after.as_ref() };
        self.omap_walk(from, |k, v| {
            if k == start_after && !start_after.is_empty() {
                return true;
            }
            if !k.starts_with(prefix) {
                return k < prefix;
            }
            if n >= max || bytes >= self.limits.omap_bytes_max {
                more = true;
                return false;
            }
            n += 1;
            bytes += each(k, v);
            true
        })?;
        Ok((n as u32, more))
    }

    pub(super) fn omap_get_keys(&mut self, op: &mut OsdOp, input: &Bytes) -> OpResult<i32> {
        self.must_exist()?;
        let (start_after, max) = parse::<(Bytes, u64)>(input)?;
        let mut w = Writer::new(Features::ALL);
        w.u32(0);
        let (n, more) = self.omap_page(&start_after, max, b"", |k, _| {
            w.blob(k);
            k.len() + 4
        })?;
        w.patch(0, &n.to_le_bytes());
        w.bool(more);
        op.data = w.finish();
        Ok(0)
    }

    pub(super) fn omap_get_vals(&mut self, op: &mut OsdOp, input: &Bytes) -> OpResult<i32> {
        self.must_exist()?;
        let (start_after, (max, prefix)) = parse::<(Bytes, (u64, Bytes))>(input)?;
        let mut w = Writer::new(Features::ALL);
        w.u32(0);
        let (n, more) = self.omap_page(&start_after, max, &prefix, |k, v| {
            w.blob(k);
            w.blob(v);
            k.len() + v.len() + 8
        })?;
        w.patch(0, &n.to_le_bytes());
        w.bool(more);
        op.data = w.finish();
        Ok(0)
    }

    pub(super) fn omap_get_header(&mut self, op: &mut OsdOp) -> OpResult<i32> {
        self.must_exist()?;
        op.data = self.header_before()?;
        Ok(0)
    }

    pub(super) fn header_before(&self) -> OpResult<Bytes> {
        for m in self.visible().iter().rev() {
            match m {
                Mutation::OmapHeader(header) => return Ok(header.clone()),
                Mutation::OmapClear | Mutation::Remove => return Ok(Bytes::new()),
                _ => {}
            }
        }
        let Some(origin) = self.before() else { return Ok(Bytes::new()) };
        Ok(self.store.omap_header(self.coll, origin)?)
    }

    pub(super) fn omap_get_vals_by_keys(&mut self, op: &mut OsdOp, input: &Bytes) -> OpResult<i32> {
        self.must_exist()?;
        let keys = parse::<BTreeSet<Bytes>>(input)?;
        let mut w = Writer::new(Features::ALL);
        w.u32(0);
        let mut n = 0u32;
        for key in &keys {
            if let Some(value) = self.omap_value(key)? {
                w.blob(key);
                w.blob(&value);
                n += 1;
            }
        }
        w.patch(0, &n.to_le_bytes());
        op.data = w.finish();
        Ok(0)
    }

    pub(super) fn omap_cmp(&mut self, input: &Bytes) -> OpResult<i32> {
        self.must_exist()?;
        let wanted = parse::<BTreeMap<Bytes, (Bytes, i32)>>(input)?;
        for (key, (operand, cmp_op)) in &wanted {
            let value = self.omap_value(key)?.unwrap_or_default();
            let holds = match cmp_op {
                1 => value == operand,
                3 => value > operand,
                5 => value < operand,
                _ => return Err(Errno::INVAL),
            };
            if !holds {
                return Err(Errno::CANCELED);
            }
        }
        Ok(0)
    }

    fn omap_modified(&mut self) {
        self.state.info.omap = true;
        self.user_modified();
    }

    pub(super) fn omap_set_vals(&mut self, input: &Bytes) -> OpResult<i32> {
        self.set_pairs(parse::<Vec<(Bytes, Bytes)>>(input)?);
        Ok(0)
    }

    pub(super) fn set_pairs(&mut self, pairs: Vec<(Bytes, Bytes)>) {
        self.maybe_create();
        if !pairs.is_empty() {
            self.mutations.push(Mutation::OmapSet(pairs));
        }
        self.omap_modified();
    }

    pub(super) fn omap_set_header(&mut self, header: Bytes) -> OpResult<i32> {
        self.maybe_create();
        self.mutations.push(Mutation::OmapHeader(header));
        self.omap_modified();
        Ok(0)
    }

    pub(super) fn omap_clear(&mut self) -> OpResult<i32> {
        self.must_exist()?;
        self.mutations.push(Mutation::OmapClear);
        self.state.info.omap = false;
        self.user_modified();
        Ok(0)
    }

    pub(super) fn omap_rm_keys(&mut self, input: &Bytes) -> OpResult<i32> {
        self.must_exist()?;
        let keys = parse::<Vec<Bytes>>(input)?;
        if !keys.is_empty() {
            self.mutations.push(Mutation::OmapRm(keys));
        }
        self.user_modified();
        Ok(0)
    }

    pub(super) fn omap_rm_key_range(&mut self, input: &Bytes) -> OpResult<i32> {
        self.must_exist()?;
        let (begin, end) = parse::<(Bytes, Bytes)>(input)?;
        if begin < end {
            self.mutations.push(Mutation::OmapRmRange(begin, end));
        }
        self.user_modified();
        Ok(0)
    }
}
