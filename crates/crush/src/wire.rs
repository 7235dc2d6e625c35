//! The binary form.
//!
//! Unversioned: what came later is appended, and a reader takes what is there. Which parts
//! a writer appends depends on the reader's features; see [`CrushMap`]'s `Denc`.

use std::collections::BTreeMap;

use denc::{DecodeError, Denc, Features, Reader, Writer};

use crate::builder::TREE_ITEMS_MAX;
use crate::model::{
    Bucket, BucketAlg, ChooseArg, ChooseArgs, CrushMap, DEFAULT_CHOOSE_ARGS, Rule, Step, Weights,
    slot,
};
use crate::{NameMap, Tunables};

const MAGIC: u32 = 0x0001_0000;

/// Wire: no version frame; `CRUSH_MAGIC`, then buckets, rules, names and tunables, then
/// - `chooseleaf_stable` for readers with `CRUSH_TUNABLES5`;
/// - device classes and weight sets for `SERVER_LUMINOUS`; older readers get the first
///   weight set in place of the weights of straw2 buckets;
/// - MSR tunables for `CRUSH_MSR`.
///
/// The size bounds of a rule's mask are 1 and 100 for `SERVER_QUINCY`, else as they came.
///
/// Reading fails for shapes that break the crate's invariants. `max_devices` is computed
/// from items and names; weight sets are trimmed to the buckets they are for.
/// Source: the peer's `CrushWrapper::encode` and `decode`.
impl Denc for CrushMap {
    fn encode(&self, w: &mut Writer) {
        w.u32(MAGIC);
        w.i32(self.buckets.len() as i32);
        w.u32(self.rules.len() as u32);
        w.i32(self.max_devices);
        let luminous = w.has(Features::SERVER_LUMINOUS);
        let compat = if luminous { None } else { self.choose_args.values().next() };
        for (i, bucket) in self.buckets.iter().enumerate() {
            match bucket {
                Some(b) => encode_bucket(b, compat.and_then(|c| c.args.get(i)), w),
                None => w.u32(0),
            }
        }
        for (i, rule) in self.rules.iter().enumerate() {
            w.u32(u32::from(rule.is_some()));
            let Some(rule) = rule else { continue };
            w.u32(rule.steps.len() as u32);
            w.u8(i as u8);
            w.u8(rule.kind);
            let quincy = w.has(Features::SERVER_QUINCY);
            w.u8(if quincy { 1 } else { rule.min_size });
            w.u8(if quincy { 100 } else { rule.max_size });
            for step in &rule.steps {
                w.u32(step.op);
                w.i32(step.arg1);
                w.i32(step.arg2);
            }
        }
        encode_names(&self.types, w);
        encode_names(&self.names, w);
        encode_names(&self.rule_names, w);
        let t = &self.tunables;
        w.u32(t.choose_local_tries);
        w.u32(t.choose_local_fallback_tries);
        w.u32(t.choose_total_tries);
        w.u32(t.chooseleaf_descend_once);
        w.u8(t.chooseleaf_vary_r);
        w.u8(t.straw_calc_version);
        w.u32(t.allowed_bucket_algs);
        if w.has(Features::CRUSH_TUNABLES5) {
            w.u8(t.chooseleaf_stable);
        }
        if luminous {
            self.class_of.encode(w);
            encode_names(&self.class_names, w);
            self.class_buckets.encode(w);
            w.u32(self.choose_args.len() as u32);
            for (id, args) in &self.choose_args {
                w.i64(*id);
                encode_choose_args(args, w);
            }
        }
        if w.has(Features::CRUSH_MSR) {
            w.u32(t.msr_descents);
            w.u32(t.msr_collision_tries);
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        if r.u32()? != MAGIC {
            return Err(invalid("bad magic number"));
        }
        let buckets = r.i32()?;
        let rules = r.u32()?;
        let _max_devices = r.i32()?;
        let mut map = Self { tunables: Tunables::legacy(), ..Self::default() };
        let buckets = count(r, u32::try_from(buckets).map_err(|_| invalid("buckets below 0"))?, 4)?;
        for i in 0..buckets {
            let bucket = decode_bucket(r)?;
            if bucket.as_ref().is_some_and(|b| slot(b.id) != Some(i)) {
                return Err(invalid("a bucket must be in its id's slot"));
            }
            map.buckets.push(bucket);
        }
        for i in 0..count(r, rules, 4)? {
            map.rules.push(decode_rule(r, i)?);
        }
        map.types = decode_old_names(r)?;
        map.names = decode_old_names(r)?;
        map.rule_names = decode_old_names(r)?;
        decode_tunables(r, &mut map.tunables)?;
        if r.left() > 0 {
            map.class_of = Denc::decode(r)?;
            map.class_names = BTreeMap::<i32, String>::decode(r)?.into_iter().collect();
            map.class_buckets = Denc::decode(r)?;
        }
        if r.left() > 0 {
            let n = r.u32()?;
            for _ in 0..count(r, n, 12)? {
                let id = r.i64()?;
                let args = decode_choose_args(r, &map.buckets)?;
                map.choose_args.insert(id, args);
            }
        }
        if r.left() > 0 {
            map.tunables.msr_descents = r.u32()?;
            map.tunables.msr_collision_tries = r.u32()?;
        }
        map.check_shape().map_err(invalid)?;
        map.fit_choose_args();
        map.finalize();
        Ok(map)
    }
}

fn invalid(rule: &'static str) -> DecodeError {
    DecodeError::Invalid { what: "CrushWrapper", rule }
}

/// `n` as a count of things that take `each` bytes or more.
fn count(r: &Reader<'_>, n: u32, each: usize) -> Result<usize, DecodeError> {
    let n = n as usize;
    let need = n.saturating_mul(each);
    if need > r.left() {
        return Err(DecodeError::Short { what: "items", at: r.offset(), need, left: r.left() });
    }
    Ok(n)
}

fn many<T>(
    n: usize,
    mut one: impl FnMut() -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let mut out = Vec::with_capacity(n);
    for _ in 0..n {
        out.push(one()?);
    }
    Ok(out)
}

fn encode_names(names: &NameMap, w: &mut Writer) {
    w.seq(names.iter(), |w, (id, name)| {
        w.i32(id);
        w.str(name);
    });
}

/// Old writers had 64-bit keys; then the upper half of the key stands where the length
/// should, and is 0.
fn decode_old_names(r: &mut Reader<'_>) -> Result<NameMap, DecodeError> {
    let pairs = r.seq(|r| {
        let id = r.i32()?;
        let mut len = r.u32()?;
        if len == 0 {
            len = r.u32()?;
        }
        let name = std::str::from_utf8(r.take("name", len as usize)?);
        Ok((id, name.map_err(|_| invalid("names must be UTF-8"))?.to_owned()))
    })?;
    Ok(pairs.into_iter().collect())
}

fn decode_tunables(r: &mut Reader<'_>, t: &mut Tunables) -> Result<(), DecodeError> {
    if r.left() > 0 {
        t.choose_local_tries = r.u32()?;
        t.choose_local_fallback_tries = r.u32()?;
        t.choose_total_tries = r.u32()?;
    }
    if r.left() > 0 {
        t.chooseleaf_descend_once = r.u32()?;
    }
    if r.left() > 0 {
        t.chooseleaf_vary_r = r.u8()?;
    }
    if r.left() > 0 {
        t.straw_calc_version = r.u8()?;
    }
    if r.left() > 0 {
        t.allowed_bucket_algs = r.u32()?;
    }
    if r.left() > 0 {
        t.chooseleaf_stable = r.u8()?;
    }
    Ok(())
}

fn encode_bucket(b: &Bucket, compat: Option<&ChooseArg>, w: &mut Writer) {
    w.u32(b.alg() as u32);
    w.i32(b.id);
    w.u16(b.kind);
    w.u8(b.alg() as u8);
    w.u8(b.hash);
    w.u32(b.weight);
    w.u32(b.items.len() as u32);
    for item in &b.items {
        w.i32(*item);
    }
    match &b.weights {
        Weights::Uniform { item } => w.u32(*item),
        Weights::List { items, sums: second } | Weights::Straw { items, straws: second } => {
            for (first, second) in items.iter().zip(second) {
                w.u32(*first);
                w.u32(*second);
            }
        }
        Weights::Tree { nodes } => {
            w.u8(nodes.len() as u8);
            for node in nodes {
                w.u32(*node);
            }
        }
        Weights::Straw2 { items } => {
            let compat = compat.and_then(|c| c.weight_set.first()).unwrap_or(items);
            for weight in compat {
                w.u32(*weight);
            }
        }
    }
}

fn decode_bucket(r: &mut Reader<'_>) -> Result<Option<Bucket>, DecodeError> {
    let alg = r.u32()?;
    if alg == 0 {
        return Ok(None);
    }
    let id = r.i32()?;
    let kind = r.u16()?;
    let same = r.u8()?;
    let known = BucketAlg::from_number(same).filter(|_| alg == u32::from(same));
    let alg = known.ok_or(invalid("unsupported bucket algorithm"))?;
    let hash = r.u8()?;
    let weight = r.u32()?;
    let size = r.u32()?;
    let size = count(r, size, 4)?;
    let items = many(size, || r.i32())?;
    let pairs = |r: &mut Reader<'_>| {
        let size = count(r, size as u32, 8)?;
        let pairs = many(size, || Ok((r.u32()?, r.u32()?)))?;
        Ok::<(Vec<_>, Vec<_>), DecodeError>(pairs.into_iter().unzip())
    };
    let weights = match alg {
        BucketAlg::Uniform => Weights::Uniform { item: r.u32()? },
        BucketAlg::List => {
            let (items, sums) = pairs(r)?;
            Weights::List { items, sums }
        }
        BucketAlg::Tree => {
            if size > TREE_ITEMS_MAX {
                return Err(invalid("a tree bucket this large has no nodes"));
            }
            let nodes = usize::from(r.u8()?);
            if size > 0 && nodes < 2 * size {
                return Err(invalid("a tree bucket needs a node for each item"));
            }
            Weights::Tree { nodes: many(nodes, || r.u32())? }
        }
        BucketAlg::Straw => {
            let (items, straws) = pairs(r)?;
            Weights::Straw { items, straws }
        }
        BucketAlg::Straw2 => {
            let size = count(r, size as u32, 4)?;
            Weights::Straw2 { items: many(size, || r.u32())? }
        }
    };
    Ok(Some(Bucket { id, kind, hash, weight, items, weights }))
}

fn decode_rule(r: &mut Reader<'_>, id: usize) -> Result<Option<Rule>, DecodeError> {
    if r.u32()? == 0 {
        return Ok(None);
    }
    let len = r.u32()?;
    if usize::from(r.u8()?) != id {
        return Err(invalid("ruleset must be the rule's id; the encoding is too old"));
    }
    let (kind, min_size, max_size) = (r.u8()?, r.u8()?, r.u8()?);
    let len = count(r, len, 12)?;
    let steps = many(len, || Ok(Step { op: r.u32()?, arg1: r.i32()?, arg2: r.i32()? }))?;
    Ok(Some(Rule { kind, min_size, max_size, steps }))
}

fn encode_choose_args(args: &ChooseArgs, w: &mut Writer) {
    let used = || (0u32..).zip(&args.args).filter(|(_, arg)| !arg.is_empty());
    w.u32(used().count() as u32);
    for (i, arg) in used() {
        w.u32(i);
        arg.weight_set.encode(w);
        arg.ids.encode(w);
    }
}

fn decode_choose_args(
    r: &mut Reader<'_>,
    buckets: &[Option<Bucket>],
) -> Result<ChooseArgs, DecodeError> {
    // Slots beyond the last used one are added afterwards, so that many empty weight sets
    // for many buckets do not multiply.
    let mut out = ChooseArgs::default();
    let n = r.u32()?;
    for _ in 0..count(r, n, 12)? {
        let i = r.u32()? as usize;
        if i >= buckets.len() {
            return Err(invalid("a weight set for a bucket that cannot be"));
        }
        let positions = r.u32()?;
        let positions = count(r, positions, 4)?;
        let weight_set = many(positions, || {
            let size = r.u32()?;
            let size = count(r, size, 4)?;
            many(size, || r.u32())
        })?;
        let ids = r.u32()?;
        let ids = count(r, ids, 4)?;
        let size = buckets[i].as_ref().map_or(0, |b| b.items.len());
        if ids > 0 && ids != size {
            return Err(invalid("a weight set must have an id for each item"));
        }
        let ids = many(ids, || r.i32())?;
        if out.args.len() <= i {
            out.args.resize(i + 1, ChooseArg::default());
        }
        out.args[i] = ChooseArg { weight_set, ids };
    }
    Ok(out)
}

impl CrushMap {
    /// Whether readers from before weight sets would place differently.
    #[must_use]
    pub fn has_incompat_choose_args(&self) -> bool {
        match self.choose_args.len() {
            0 => false,
            1 => self.choose_args.iter().any(|(id, args)| {
                *id != DEFAULT_CHOOSE_ARGS
                    || args.iter().any(|(_, a)| a.weight_set.len() != 1 || !a.ids.is_empty())
            }),
            _ => true,
        }
    }

    /// Makes weight sets fit their buckets: none for buckets that are gone or not straw2,
    /// and none too short or too long. Old releases wrote such.
    pub(crate) fn fit_choose_args(&mut self) {
        for args in self.choose_args.values_mut() {
            let positions = args.positions();
            for (arg, bucket) in args.args.iter_mut().zip(&self.buckets) {
                match bucket {
                    Some(b) if b.alg() == BucketAlg::Straw2 => {
                        if arg.weight_set.len() == positions {
                            for weights in &mut arg.weight_set {
                                weights.resize(b.items.len(), 0);
                            }
                        }
                    }
                    _ => *arg = ChooseArg::default(),
                }
            }
        }
    }

    /// What follows from the rest: `max_devices`, from the items and the names.
    pub(crate) fn finalize(&mut self) {
        let items = self.buckets.iter().flatten().flat_map(|b| &b.items).copied();
        let last = items.chain(self.names.last_id()).max();
        self.max_devices = last.map_or(0, |i| i.saturating_add(1).max(0));
    }
}
