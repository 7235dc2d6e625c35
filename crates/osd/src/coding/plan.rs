//! From the changes of a vector to the changes of each shard.
//!
//! A stripe that is only partly written needs what it was: either the data chunks that are
//! not written, of which the coding chunks are computed anew, or the old bytes of the chunks
//! that are written and the old coding chunks, to which the difference is added. Whichever
//! reads fewer chunks is done. Stripes written whole, or to the object's end and beyond, need
//! nothing.

use bytes::Bytes;
use messages::Mutation;
use types::HObject;

use super::{Coding, INLINE_MAX};

/// Bytes that a vector writes: where, how many, and what; zeros without.
type Piece = (u64, u64, Option<Bytes>);

/// What a write must know of the object as it is: these shards' bytes in this range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Old {
    /// Of which object: the one that is written, or the clone that it is rolled back to.
    pub oid: Option<HObject>,
    /// First byte of the shards.
    pub off: u64,
    /// How many.
    pub len: u64,
    /// Which shards.
    pub shards: Vec<usize>,
}

/// A vector's changes, taken apart.
#[derive(Debug)]
pub(crate) struct WritePlan {
    /// What every shard does, before its data changes.
    common: Vec<Mutation>,
    /// What is written, in order; none reaches beyond the object's end as it was then.
    pieces: Vec<Piece>,
    /// Up to here the object's old bytes count.
    valid: u64,
    /// Bytes of the object whose data this goes on with.
    base: u64,
    /// The clone that is gone on with, instead of the object itself.
    rolled_back: Option<HObject>,
    /// Bytes of the object afterwards.
    pub size: u64,
}

/// Stripes from the first on, up to but without the second.
type Run = (u64, u64);

impl WritePlan {
    /// Takes `mutations` of an object of `size` bytes apart; `size_of` says how long a clone
    /// is.
    pub fn new(
        c: &Coding,
        mutations: &[Mutation],
        size: u64,
        mut size_of: impl FnMut(&HObject) -> u64,
    ) -> Self {
        let mut p = Self {
            common: Vec::new(),
            pieces: Vec::new(),
            valid: size,
            base: size,
            rolled_back: None,
            size,
        };
        for m in mutations {
            match m {
                Mutation::Write { off, data } => {
                    let len = data.len() as u64;
                    p.pieces.push((*off, len, Some(data.clone())));
                    p.size = p.size.max(off + len);
                }
                Mutation::Zero { off, len } => {
                    p.pieces.push((*off, *len, None));
                    p.size = p.size.max(off + len);
                }
                Mutation::Truncate(to) => p.cut(c, *to),
                Mutation::Remove => {
                    p.start_with(0, None);
                    p.common.push(m.clone());
                }
                Mutation::CloneFrom(source) => {
                    p.start_with(size_of(source), Some(source.clone()));
                    p.common.push(m.clone());
                }
                _ => p.common.push(m.clone()),
            }
        }
        p
    }

    fn start_with(&mut self, size: u64, rolled_back: Option<HObject>) {
        self.pieces.clear();
        (self.valid, self.base, self.size) = (size, size, size);
        self.rolled_back = rolled_back;
    }

    fn cut(&mut self, c: &Coding, to: u64) {
        if to < self.size {
            self.pieces.retain_mut(|(off, len, data)| {
                *len = (*len).min(to.saturating_sub(*off));
                if let Some(data) = data {
                    data.truncate(*len as usize);
                }
                *len > 0
            });
            // The rest of the last stripe becomes zero.
            let end = (to.div_ceil(c.stripe()) * c.stripe()).min(self.base);
            if to < end {
                self.pieces.push((to, end - to, None));
            }
            self.valid = self.valid.min(to);
        }
        self.size = to;
    }

    /// The stripes that change, in order and apart.
    fn runs(&self, c: &Coding) -> Vec<Run> {
        let mut all: Vec<Run> = self.pieces.iter().map(|(o, l, _)| c.stripes(*o, *l)).collect();
        all.sort_unstable();
        let mut runs: Vec<Run> = Vec::with_capacity(all.len());
        for (a, b) in all {
            match runs.last_mut() {
                Some(last) if a <= last.1 => last.1 = last.1.max(b),
                _ => runs.push((a, b)),
            }
        }
        runs
    }

    /// Whether what is written covers these bytes.
    fn covers(&self, from: u64, to: u64) -> bool {
        let mut at = from;
        // Few pieces: one pass for each step forward.
        while at < to {
            let next = self.pieces.iter().filter(|(o, l, _)| *o <= at && at < o + l);
            match next.map(|(o, l, _)| o + l).max() {
                Some(end) => at = end,
                None => return false,
            }
        }
        true
    }

    /// Whether any of these bytes is written.
    fn writes(&self, from: u64, to: u64) -> bool {
        self.pieces.iter().any(|(o, l, _)| *o < to && from < o + l)
    }

    /// Whether a stripe holds old bytes that stay.
    fn keeps(&self, c: &Coding, stripe: u64) -> bool {
        let (from, to) = (stripe * c.stripe(), ((stripe + 1) * c.stripe()).min(self.valid));
        from < to && !self.covers(from, to)
    }

    /// The stripes of which old bytes are needed: the first, and the one behind the last.
    fn needed(&self, c: &Coding) -> Option<Run> {
        let mut found: Option<Run> = None;
        for (a, b) in self.runs(c) {
            // Between the ends of pieces all stripes are alike.
            let mut at: Vec<u64> = self
                .pieces
                .iter()
                .flat_map(|(o, l, _)| [o / c.stripe(), (o + l - 1) / c.stripe()])
                .filter(|s| (a..b).contains(s))
                .collect();
            at.push(self.valid.min(self.base) / c.stripe());
            for s in at.into_iter().filter(|s| (a..b).contains(s) && self.keeps(c, *s)) {
                let (x, y) = found.unwrap_or((s, s + 1));
                found = Some((x.min(s), y.max(s + 1)));
            }
        }
        found
    }

    /// What must be read, if anything.
    pub fn needs(&self, c: &Coding) -> Option<Old> {
        let (a, b) = self.needed(c)?;
        let shards = match self.by_difference(c, (a, b)) {
            Some(touched) => touched.into_iter().chain(c.k..c.n()).collect(),
            None => (0..c.k).collect(),
        };
        let (off, len) = (a * c.unit, (b - a) * c.unit);
        Some(Old { oid: self.rolled_back.clone(), off, len, shards })
    }

    /// The data shards that change, when adding differences reads fewer chunks. Only where
    /// all that is written lies in these stripes and they are of the object as it is.
    fn by_difference(&self, c: &Coding, (a, b): Run) -> Option<Vec<usize>> {
        let touched: Vec<usize> = (0..c.k).filter(|i| self.touches(c, (a, b), *i)).collect();
        let whole = self.runs(c).iter().all(|r| r.0 >= a && r.1 <= b);
        let cheap = touched.len() + c.m < c.k;
        (whole && cheap && self.base == self.valid && self.size <= c.stripe() * b)
            .then_some(touched)
    }

    /// The bytes of these stripes, where one piece is all of them.
    fn whole_stripes(&self, c: &Coding, (a, b): Run) -> Option<Bytes> {
        let [(off, len, Some(bytes))] = self.pieces.as_slice() else { return None };
        let (from, to) = (a * c.stripe(), b * c.stripe());
        let covers = *off <= from && to <= off + len;
        covers.then(|| bytes.slice((from - off) as usize..(to - off) as usize))
    }

    /// Whether data shard `i` changes in these stripes.
    fn touches(&self, c: &Coding, (a, b): Run, i: usize) -> bool {
        (a..b).any(|s| {
            let from = s * c.stripe() + i as u64 * c.unit;
            self.writes(from, from + c.unit)
        })
    }

    /// The changes of each shard. `old` are the bytes that [`WritePlan::needs`] asked for,
    /// shards that were not asked for or cannot be written left out.
    ///
    /// # Panics
    /// Without bytes that are needed.
    pub fn shards(&self, c: &Coding, old: Option<&[Option<Bytes>]>) -> Vec<Vec<Mutation>> {
        let mut out = vec![self.common.clone(); c.n()];
        let (before, cut) = (c.shard_size(self.base), c.shard_size(self.valid));
        if cut < before {
            out.iter_mut().for_each(|m| m.push(Mutation::Truncate(cut)));
        }
        let needed = self.needed(c);
        for run in self.runs(c) {
            // Apart where old bytes begin and end to be needed.
            let mut parts = vec![run];
            if let Some((a, b)) = needed {
                parts = [
                    (run.0, a.clamp(run.0, run.1)),
                    (a.max(run.0), b.min(run.1)),
                    (b.clamp(run.0, run.1), run.1),
                ]
                .into_iter()
                .filter(|(x, y)| x < y)
                .collect();
            }
            for part in parts {
                let inside = needed.filter(|(a, b)| part.0 >= *a && part.1 <= *b);
                let old = inside.map(|n| (n.0 * c.unit, old.expect("it was read")));
                self.one_run(c, part, old, needed, &mut out);
            }
        }
        let after = c.shard_size(self.size);
        if after != cut {
            out.iter_mut().for_each(|m| m.push(Mutation::Truncate(after)));
        }
        out
    }

    fn one_run(
        &self,
        c: &Coding,
        (a, b): Run,
        old: Option<(u64, &[Option<Bytes>])>,
        needed: Option<Run>,
        out: &mut [Vec<Mutation>],
    ) {
        let len = ((b - a) * c.unit) as usize;
        let difference = old.and(needed).and_then(|n| self.by_difference(c, n));
        let old_of = |i: usize| {
            old.and_then(|(at, all)| {
                let from = (a * c.unit - at) as usize;
                all[i].as_ref().map(|s| s.slice(from..from + len))
            })
        };
        let changes = |i: usize| self.touches(c, (a, b), i);
        let off = a * c.unit;
        if let (Some(bytes), None) = (self.whole_stripes(c, (a, b)), old) {
            for (m, data) in out.iter_mut().zip(c.split(&bytes)) {
                m.push(Mutation::Write { off, data });
            }
            return;
        }
        // The new data chunks; of those that stay only where they are needed.
        let mut data: Vec<Vec<u8>> = Vec::with_capacity(c.k);
        for i in 0..c.k {
            let skip = difference.is_some() && !changes(i);
            data.push(match (skip, old_of(i)) {
                (true, _) => Vec::new(),
                (false, Some(old)) => old.to_vec(),
                (false, None) => {
                    assert!(old.is_none(), "data that stays was read");
                    vec![0; len]
                }
            });
        }
        for (off, l, bytes) in &self.pieces {
            let (from, to) = ((*off).max(a * c.stripe()), (off + l).min(b * c.stripe()));
            let mut pos = from;
            while pos < to {
                let chunk = pos / c.unit;
                let (i, row) = ((chunk % c.k as u64) as usize, chunk / c.k as u64 - a);
                let skip = pos % c.unit;
                let take = (c.unit - skip).min(to - pos);
                let at = (row * c.unit + skip) as usize;
                let to = &mut data[i][at..at + take as usize];
                match bytes {
                    Some(bytes) => {
                        let from = (pos - off) as usize;
                        to.copy_from_slice(&bytes[from..from + take as usize]);
                    }
                    None => to.fill(0),
                }
                pos += take;
            }
        }
        let mut coded: Vec<Vec<u8>>;
        match &difference {
            Some(touched) => {
                coded = (0..c.m)
                    .map(|p| old_of(c.k + p).map_or_else(Vec::new, |old| old.to_vec()))
                    .collect();
                for i in touched.iter().copied().filter(|i| changes(*i)) {
                    let old = old_of(i).expect("what changes was read");
                    let diff: Vec<u8> = old.iter().zip(&data[i]).map(|(x, y)| x ^ y).collect();
                    for (p, to) in coded.iter_mut().enumerate().filter(|(_, to)| !to.is_empty()) {
                        c.codec.delta(i, &diff, p, to);
                    }
                }
            }
            None => {
                coded = vec![vec![0; len]; c.m];
                let from: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
                let mut to: Vec<&mut [u8]> = coded.iter_mut().map(Vec::as_mut_slice).collect();
                c.codec.encode(&from, &mut to);
            }
        }
        let changed: Vec<bool> = (0..c.k).map(changes).collect();
        let mut was = |i: usize| {
            if let Some(data) = old_of(i).filter(|d| d.len() as u64 <= INLINE_MAX) {
                out[i].push(Mutation::Was { off, data });
            }
        };
        (0..c.k).filter(|i| changed[*i]).for_each(&mut was);
        (c.k..c.n()).for_each(&mut was);
        for (i, bytes) in data.into_iter().enumerate().filter(|(i, _)| changed[*i]) {
            out[i].push(Mutation::Write { off, data: bytes.into() });
        }
        for (p, bytes) in coded.into_iter().enumerate().filter(|(_, b)| !b.is_empty()) {
            out[c.k + p].push(Mutation::Write { off, data: bytes.into() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn coding(k: usize, m: usize, unit: u64) -> Coding {
        let pairs = [("k", k.to_string()), ("m", m.to_string()), ("plugin", "isa".to_owned())];
        let map: BTreeMap<String, String> =
            pairs.into_iter().map(|(a, b)| (a.to_owned(), b)).collect();
        let codec = ec::Codec::new(&ec::Profile::parse(&map).unwrap()).unwrap();
        Coding::new(codec, unit * k as u64).unwrap()
    }

    fn apply(shard: &mut Vec<u8>, all: &[Mutation]) {
        for m in all {
            match m {
                Mutation::Write { off, data } => {
                    let end = *off as usize + data.len();
                    if shard.len() < end {
                        shard.resize(end, 0);
                    }
                    shard[*off as usize..end].copy_from_slice(data);
                }
                Mutation::Truncate(to) => shard.resize(*to as usize, 0),
                Mutation::Remove => shard.clear(),
                _ => {}
            }
        }
    }

    fn model(object: &mut Vec<u8>, all: &[Mutation]) {
        for m in all {
            match m {
                Mutation::Zero { off, len } => {
                    let end = (off + len) as usize;
                    if object.len() < end {
                        object.resize(end, 0);
                    }
                    object[*off as usize..end].fill(0);
                }
                m => apply(object, std::slice::from_ref(m)),
            }
        }
    }

    /// Whatever a vector does: afterwards the data shards hold the object, the coding shards
    /// what is computed of it, all are equally long, and any `k` give it back.
    #[test]
    fn shards_hold_what_was_written() {
        let mut rnd = env::Seeded(7);
        let mut n = |max: u64| env::Random::u64(&mut rnd) % max.max(1);
        for (k, m) in [(2, 1), (4, 2), (6, 3), (8, 2)] {
            let c = coding(k, m, 16);
            let mut object: Vec<u8> = Vec::new();
            let mut shards = vec![Vec::new(); c.n()];
            let mut differences = 0;
            for round in 0..3_000u64 {
                let size = object.len() as u64;
                let all: Vec<Mutation> = (0..1 + n(3))
                    .map(|_| match n(12) {
                        0 => Mutation::Truncate(n(600)),
                        1 => Mutation::Zero { off: n(500), len: 1 + n(90) },
                        2 if n(8) == 0 => Mutation::Remove,
                        _ => {
                            let len = if n(2) == 0 { 1 + n(16) } else { 1 + n(300) };
                            let data = vec![round as u8 | 1; len as usize];
                            Mutation::Write { off: n(600), data: data.into() }
                        }
                    })
                    .collect();
                let plan = WritePlan::new(&c, &all, size, |_| 0);
                let needs = plan.needs(&c);
                differences += usize::from(needs.as_ref().is_some_and(|o| o.shards.len() < k));
                let old: Option<Vec<Option<Bytes>>> = needs.map(|o| {
                    (0..c.n())
                        .map(|i| {
                            o.shards.contains(&i).then(|| {
                                let mut part = shards[i].clone();
                                part.resize((o.off + o.len) as usize, 0);
                                Bytes::from(part.split_off(o.off as usize))
                            })
                        })
                        .collect()
                });
                let changes = plan.shards(&c, old.as_deref());
                model(&mut object, &all);
                assert_eq!(plan.size, object.len() as u64, "{all:?}");
                for (shard, change) in shards.iter_mut().zip(&changes) {
                    apply(shard, change);
                    assert_eq!(shard.len() as u64, c.shard_size(plan.size), "{all:?} {change:?}");
                }
                let now: Vec<Option<Bytes>> =
                    shards.iter().map(|s| Some(Bytes::from(s.clone()))).collect();
                assert!(c.agrees(&now).is_empty(), "round {round}: {all:?}");
                if !object.is_empty() {
                    let read = c.join(&now, 0, 0, object.len() as u64);
                    assert_eq!(read, object, "round {round}: {all:?}");
                }
            }
            assert!(differences > 0 || k < m + 2, "{k}+{m}: some writes add differences");
        }
    }
}
