//! The mapping: from a rule and a number to devices.
//!
//! The peer's order of hashing, retrying and rejecting is kept exactly, quirks included;
//! what would crash the peer (a bucket that is not there, an empty one in an MSR rule)
//! counts as a bad item here.
//!
//! Cost: per descent, each bucket on the way hashes all its items (straw2, straw, list) or
//! a few (tree, uniform). Nothing is allocated once a [`Scratch`] has grown.
//!
//! Source: the peer's `crush/mapper.c`.

use std::cell::Cell;

use crate::hash::{HASH_RJENKINS1, hash32_2, hash32_3, hash32_3_each, hash32_4};
use crate::ln::{below_top, ln};
use crate::model::{
    Bucket, ChooseArg, ChooseArgs, CrushMap, DEFAULT_CHOOSE_ARGS, ITEM_NONE, ITEM_UNDEF, Op,
    Weights, slot,
};

/// Working space of the mapping, to be used again by the next.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(crate) from: Vec<i32>,
    pub(crate) to: Vec<i32>,
    pub(crate) leaves: Vec<i32>,
    pub(crate) undo: Vec<(usize, usize, i32)>,
    /// Counts choices by how many retries they took, when set; as `--show-choose-tries`.
    pub choose_tries: Option<Vec<u32>>,
    /// Whether the last mapping was turned away by a device that is out, or partly so.
    pub turned_away: bool,
}

impl Scratch {
    fn count_tries(&mut self, retries: u32, total: u32) {
        if let Some(counts) = &mut self.choose_tries
            && retries <= total
            && let Some(count) = counts.get_mut(retries as usize)
        {
            *count += 1;
        }
    }
}

/// What is fixed for one mapping.
pub(crate) struct Input<'a> {
    pub(crate) map: &'a CrushMap,
    pub(crate) x: u32,
    pub(crate) weights: &'a [u32],
    pub(crate) args: Option<&'a ChooseArgs>,
    /// See [`Scratch::turned_away`].
    turned_away: Cell<bool>,
}

impl CrushMap {
    /// Whether every device that a mapping by this rule accepts is in its result. Then a
    /// device that takes less than before changes only the mappings that have it, and one
    /// that takes more only those that were turned away ([`Scratch::turned_away`]).
    #[must_use]
    pub fn shows_all_it_accepts(&self, rule: u32) -> bool {
        // With several of them the last may have no room for all that was chosen.
        let emits = |s: &crate::Step| s.known() == Some(Op::Emit);
        self.rule(rule)
            .is_none_or(|r| !r.is_msr() && r.steps.iter().filter(|s| emits(s)).count() == 1)
    }

    /// The devices that `rule` gives for `x`, at most `result_max`.
    ///
    /// - `weights`: per device, the share of `x` it takes, 16.16: 0 for out, 0x10000 for
    ///   all; devices beyond its end are out.
    /// - `choose_args`: the weight set to use, by pool; where that pool has none the
    ///   default one ([`DEFAULT_CHOOSE_ARGS`]) serves; `None` for no weight set at all.
    ///
    /// Rules that choose "indep" leave [`ITEM_NONE`] where they fail. A rule that is not
    /// there gives nothing. No check of the rule is made: what it chooses may be a bucket.
    #[must_use]
    pub fn do_rule(
        &self,
        rule: u32,
        x: u32,
        result_max: usize,
        weights: &[u32],
        choose_args: Option<i64>,
    ) -> Vec<i32> {
        let mut out = Vec::new();
        let mut scratch = Scratch::default();
        self.do_rule_into(rule, x, result_max, weights, choose_args, &mut scratch, &mut out);
        out
    }

    /// As [`CrushMap::do_rule`], into `out` (what it held is dropped), and without
    /// allocating when `scratch` and `out` have been used for a rule as large before.
    #[expect(clippy::too_many_arguments, reason = "do_rule's, and two buffers")]
    pub fn do_rule_into(
        &self,
        rule: u32,
        x: u32,
        result_max: usize,
        weights: &[u32],
        choose_args: Option<i64>,
        scratch: &mut Scratch,
        out: &mut Vec<i32>,
    ) {
        out.clear();
        scratch.turned_away = false;
        let Some(rule) = self.rule(rule) else { return };
        let args = choose_args.and_then(|id| {
            self.choose_args.get(&id).or_else(|| self.choose_args.get(&DEFAULT_CHOOSE_ARGS))
        });
        let input = Input { map: self, x, weights, args, turned_away: Cell::new(false) };
        let max = result_max.min(i32::MAX as usize);
        if rule.is_msr() {
            crate::msr::do_rule(&input, rule, max, scratch, out);
        } else {
            input.do_rule(rule, max, scratch, out);
        }
        scratch.turned_away = input.turned_away.get();
    }
}

/// What a choose step is told.
struct Choose {
    numrep: i32,
    kind: i32,
    tries: u32,
    recurse_tries: u32,
    local_retries: u32,
    local_fallback_retries: u32,
    to_leaf: bool,
    vary_r: u32,
    stable: bool,
}

impl<'a> Input<'a> {
    fn do_rule(
        &self,
        rule: &crate::Rule,
        result_max: usize,
        scratch: &mut Scratch,
        out: &mut Vec<i32>,
    ) {
        let tunables = &self.map.tunables;
        // The tunable counts retries, a step's argument counts tries.
        let mut tries = tunables.choose_total_tries.wrapping_add(1);
        let mut leaf_tries = 0;
        let mut local_retries = tunables.choose_local_tries;
        let mut local_fallback_retries = tunables.choose_local_fallback_tries;
        let mut vary_r = u32::from(tunables.chooseleaf_vary_r);
        let mut stable = tunables.chooseleaf_stable != 0;

        let mut from = std::mem::take(&mut scratch.from);
        let mut to = std::mem::take(&mut scratch.to);
        let mut leaves = std::mem::take(&mut scratch.leaves);
        from.clear();
        for step in &rule.steps {
            let Some(op) = step.known() else { continue };
            match op {
                Op::Take => {
                    let there = if step.arg1 >= 0 {
                        step.arg1 < self.map.max_devices
                    } else {
                        self.map.bucket(step.arg1).is_some()
                    };
                    if there && result_max > 0 {
                        from.clear();
                        from.push(step.arg1);
                    }
                }
                Op::SetChooseTries if step.arg1 > 0 => tries = step.arg1 as u32,
                Op::SetChooseleafTries if step.arg1 > 0 => leaf_tries = step.arg1 as u32,
                Op::SetChooseLocalTries if step.arg1 >= 0 => local_retries = step.arg1 as u32,
                Op::SetChooseLocalFallbackTries if step.arg1 >= 0 => {
                    local_fallback_retries = step.arg1 as u32;
                }
                Op::SetChooseleafVaryR if step.arg1 >= 0 => vary_r = step.arg1 as u32,
                Op::SetChooseleafStable if step.arg1 >= 0 => stable = step.arg1 != 0,
                Op::ChooseFirstn | Op::ChooseleafFirstn | Op::ChooseIndep | Op::ChooseleafIndep => {
                    if from.is_empty() {
                        continue;
                    }
                    let firstn = matches!(op, Op::ChooseFirstn | Op::ChooseleafFirstn);
                    // 0 and below count from the size of the result.
                    let mut numrep = step.arg1;
                    if numrep <= 0 {
                        numrep = numrep.wrapping_add(result_max as i32);
                    }
                    let recurse_tries = match (leaf_tries, firstn) {
                        (0, true) if tunables.chooseleaf_descend_once != 0 => 1,
                        (0, true) => tries,
                        (0, false) => 1,
                        (n, _) => n,
                    };
                    let choose = Choose {
                        numrep,
                        kind: step.arg2,
                        tries,
                        recurse_tries,
                        local_retries,
                        local_fallback_retries,
                        to_leaf: matches!(op, Op::ChooseleafFirstn | Op::ChooseleafIndep),
                        vary_r,
                        stable,
                    };
                    to.clear();
                    to.resize(result_max, ITEM_NONE);
                    leaves.clear();
                    leaves.resize(result_max, ITEM_NONE);
                    let mut len = 0;
                    for item in &from {
                        if numrep <= 0 {
                            continue;
                        }
                        // Not a bucket: probably a hole.
                        let Some(bucket) = self.map.bucket(*item) else { continue };
                        let (to, leaves) = (&mut to[len..], &mut leaves[len..]);
                        let room = to.len();
                        if firstn {
                            let space = (to, Some(leaves));
                            len += self.firstn(bucket, &choose, space, 0, room, 0, scratch);
                        } else {
                            let n = room.min(numrep as usize);
                            self.indep(bucket, &choose, (to, Some(leaves)), 0, n, 0, scratch);
                            len += n;
                        }
                    }
                    if choose.to_leaf {
                        to[..len].copy_from_slice(&leaves[..len]);
                    }
                    to.truncate(len);
                    std::mem::swap(&mut from, &mut to);
                }
                Op::Emit => {
                    let room = result_max - out.len();
                    out.extend_from_slice(&from[..from.len().min(room)]);
                    from.clear();
                }
                _ => {}
            }
        }
        (scratch.from, scratch.to, scratch.leaves) = (from, to, leaves);
    }

    /// Chooses `numrep` distinct items of a type beneath `bucket` into `out` from `outpos`
    /// on, at most `room`; failed ones are left out. Gives the end of what is filled.
    #[expect(clippy::too_many_arguments, reason = "the recursion's state")]
    fn firstn(
        &self,
        bucket: &Bucket,
        c: &Choose,
        (out, mut out2): (&mut [i32], Option<&mut [i32]>),
        mut outpos: usize,
        room: usize,
        parent_r: i32,
        scratch: &mut Scratch,
    ) -> usize {
        let mut count = room;
        let mut rep = if c.stable { 0 } else { outpos as i32 };
        while rep < c.numrep && count > 0 {
            let mut ftotal = 0u32;
            // The descent, tried again from the top until an item fits.
            let item = 'descent: loop {
                let mut at = bucket;
                let mut flocal = 0u32;
                // Through the buckets on the way, tried again in one of them.
                loop {
                    let r = rep.wrapping_add(parent_r).wrapping_add(ftotal as i32);
                    let size = at.items.len() as u32;
                    let mut collide = false;
                    let mut reject = size == 0;
                    if !reject {
                        let item = if c.local_fallback_retries > 0
                            && flocal >= size >> 1
                            && flocal > c.local_fallback_retries
                        {
                            perm_choose(at, self.x, r as u32)
                        } else {
                            self.choose_in(at, r as u32, outpos)
                        };
                        if item >= self.map.max_devices {
                            break 'descent None;
                        }
                        let below = if item < 0 {
                            match self.map.bucket(item) {
                                Some(below) => Some(below),
                                None => break 'descent None,
                            }
                        } else {
                            None
                        };
                        if below.map_or(0, |b| i32::from(b.kind)) != c.kind {
                            let Some(below) = below else { break 'descent None };
                            at = below;
                            continue;
                        }
                        collide = out[..outpos].contains(&item);
                        if !collide && c.to_leaf {
                            if let Some(below) = below {
                                let sub_r =
                                    if c.vary_r == 0 { 0 } else { r.wrapping_shr(c.vary_r - 1) };
                                let leaf = Choose {
                                    numrep: if c.stable { 1 } else { outpos as i32 + 1 },
                                    kind: 0,
                                    tries: c.recurse_tries,
                                    recurse_tries: 0,
                                    to_leaf: false,
                                    ..*c
                                };
                                let space = (out2.as_deref_mut().unwrap_or(&mut []), None);
                                let end =
                                    self.firstn(below, &leaf, space, outpos, count, sub_r, scratch);
                                reject = end <= outpos;
                            } else if let Some(out2) = &mut out2 {
                                out2[outpos] = item;
                            }
                        }
                        if !reject && !collide && below.is_none() {
                            reject = self.is_out(item);
                        }
                        if !reject && !collide {
                            break 'descent Some(item);
                        }
                    }
                    ftotal = ftotal.wrapping_add(1);
                    flocal += 1;
                    let again_here = (collide && flocal <= c.local_retries)
                        || (c.local_fallback_retries > 0
                            && flocal <= size.wrapping_add(c.local_fallback_retries));
                    if again_here {
                        continue;
                    }
                    if ftotal < c.tries {
                        continue 'descent;
                    }
                    break 'descent None;
                }
            };
            rep += 1;
            let Some(item) = item else { continue };
            out[outpos] = item;
            outpos += 1;
            count -= 1;
            scratch.count_tries(ftotal, self.map.tunables.choose_total_tries);
        }
        outpos
    }

    /// Chooses items of a type beneath `bucket` into `left` places of `out` from `outpos`
    /// on, all places in turn, so that a failed one moves no other; what fails stays
    /// [`ITEM_NONE`].
    #[expect(clippy::too_many_arguments, reason = "the recursion's state")]
    fn indep(
        &self,
        bucket: &Bucket,
        c: &Choose,
        (out, mut out2): (&mut [i32], Option<&mut [i32]>),
        outpos: usize,
        mut left: usize,
        parent_r: i32,
        scratch: &mut Scratch,
    ) {
        let end = outpos + left;
        out[outpos..end].fill(ITEM_UNDEF);
        if let Some(out2) = &mut out2 {
            out2[outpos..end].fill(ITEM_UNDEF);
        }
        let mut ftotal = 0u32;
        while left > 0 && ftotal < c.tries {
            for rep in outpos..end {
                if out[rep] != ITEM_UNDEF {
                    continue;
                }
                let mut at = bucket;
                loop {
                    let size = at.items.len() as u32;
                    // A step that shares no divisor with the size of a uniform bucket.
                    let uniform = matches!(at.weights, Weights::Uniform { .. });
                    let stride = if uniform && size.is_multiple_of(c.numrep as u32) {
                        (c.numrep as u32).wrapping_add(1)
                    } else {
                        c.numrep as u32
                    };
                    let r = (rep as u32)
                        .wrapping_add(parent_r as u32)
                        .wrapping_add(stride.wrapping_mul(ftotal));
                    if size == 0 {
                        break;
                    }
                    let item = self.choose_in(at, r, outpos);
                    let below = self.map.bucket(item);
                    let bad = item >= self.map.max_devices || (item < 0 && below.is_none());
                    let wanted = below.map_or(0, |b| i32::from(b.kind)) == c.kind;
                    if bad || (!wanted && item >= 0) {
                        out[rep] = ITEM_NONE;
                        if let Some(out2) = &mut out2 {
                            out2[rep] = ITEM_NONE;
                        }
                        left -= 1;
                        break;
                    }
                    if !wanted && let Some(below) = below {
                        at = below;
                        continue;
                    }
                    if out[outpos..end].contains(&item) {
                        break;
                    }
                    if c.to_leaf
                        && let Some(out2) = out2.as_deref_mut()
                    {
                        if let Some(below) = below {
                            let leaf = Choose {
                                kind: 0,
                                tries: c.recurse_tries,
                                recurse_tries: 0,
                                to_leaf: false,
                                ..*c
                            };
                            let space = (&mut *out2, None);
                            self.indep(below, &leaf, space, rep, 1, r as i32, scratch);
                            if out2[rep] == ITEM_NONE {
                                break;
                            }
                        } else {
                            out2[rep] = item;
                        }
                    }
                    if below.is_none() && self.is_out(item) {
                        break;
                    }
                    out[rep] = item;
                    left -= 1;
                    break;
                }
            }
            ftotal += 1;
        }
        for out in [Some(out), out2].into_iter().flatten() {
            for item in &mut out[outpos..end] {
                if *item == ITEM_UNDEF {
                    *item = ITEM_NONE;
                }
            }
        }
        scratch.count_tries(ftotal, self.map.tunables.choose_total_tries);
    }

    /// Whether the device rejects `x`: its weight is the chance that it does not.
    pub(crate) fn is_out(&self, item: i32) -> bool {
        let weight = usize::try_from(item).ok().and_then(|i| self.weights.get(i));
        let out = match weight {
            None | Some(0) => true,
            Some(0x10000..) => false,
            Some(weight) => hash32_2(self.x, item as u32) & 0xffff >= *weight,
        };
        if out {
            self.turned_away.set(true);
        }
        out
    }

    /// The item that `bucket`, which has some, gives for try `r`.
    pub(crate) fn choose_in(&self, bucket: &Bucket, r: u32, position: usize) -> i32 {
        let b = bucket;
        match &b.weights {
            Weights::Uniform { .. } => perm_choose(b, self.x, r),
            Weights::List { items, sums } => list_choose(b, items, sums, self.x, r),
            Weights::Tree { nodes } => tree_choose(b, nodes, self.x, r),
            Weights::Straw { straws, .. } => straw_choose(b, straws, self.x, r),
            Weights::Straw2 { items } => {
                let arg = self.args.and_then(|args| args.args.get(slot(b.id)?));
                straw2_choose(b, items, arg, position, self.x, r)
            }
        }
    }
}

/// The item at place `r` of a permutation that `x` and the bucket decide.
///
/// The permutation swaps place `p` with one at or behind it, for `p` from 0 up; what ends
/// at a place is found by going back through the swaps, so no list is needed.
fn perm_choose(b: &Bucket, x: u32, r: u32) -> i32 {
    let size = b.items.len() as u32;
    let at = r % size;
    let mut place = at;
    for p in (0..=at.min(size.saturating_sub(2))).rev() {
        let with = p + rjenkins(b, || hash32_3(x, b.id as u32, p)) % (size - p);
        if place == p {
            place = with;
        } else if place == with {
            place = p;
        }
    }
    b.items[place as usize]
}

/// The hash, or 0 for a bucket whose hash is not known.
#[inline(always)]
fn rjenkins(b: &Bucket, hash: impl FnOnce() -> u32) -> u32 {
    if b.hash == HASH_RJENKINS1 { hash() } else { 0 }
}

fn list_choose(b: &Bucket, weights: &[u32], sums: &[u32], x: u32, r: u32) -> i32 {
    for ((item, weight), sum) in b.items.iter().zip(weights).zip(sums).rev() {
        let w = rjenkins(b, || hash32_4(x, *item as u32, r, b.id as u32)) & 0xffff;
        if (u64::from(w) * u64::from(*sum)) >> 16 < u64::from(*weight) {
            return *item;
        }
    }
    b.items[0]
}

fn tree_choose(b: &Bucket, nodes: &[u32], x: u32, r: u32) -> i32 {
    let weight = |n: usize| nodes.get(n).copied().unwrap_or(0);
    let mut n = nodes.len() >> 1;
    // The lowest set bit is a node's height; leaves are odd.
    while n != 0 && n & 1 == 0 {
        let half = 1 << (n.trailing_zeros() - 1);
        let hash = rjenkins(b, || hash32_4(x, n as u32, r, b.id as u32));
        let t = (u64::from(hash) * u64::from(weight(n))) >> 32;
        n = if t < u64::from(weight(n - half)) { n - half } else { n + half };
    }
    b.items.get(n >> 1).copied().unwrap_or(ITEM_NONE)
}

fn straw_choose(b: &Bucket, straws: &[u32], x: u32, r: u32) -> i32 {
    let mut high = (b.items[0], 0);
    for (i, (item, straw)) in b.items.iter().zip(straws).enumerate() {
        let draw = rjenkins(b, || hash32_3(x, *item as u32, r)) & 0xffff;
        let draw = u64::from(draw) * u64::from(*straw);
        if i == 0 || draw > high.1 {
            high = (*item, draw);
        }
    }
    high.0
}

/// The item with the highest draw: an exponential variable, by the item's weight.
///
/// A draw is `-(depth / weight)` for `depth = below_top(hash)`; so an item beats the best
/// one, `-best`, when `depth < best * weight`: a product for each item, and a division
/// only for those that win.
fn straw2_choose(
    b: &Bucket,
    weights: &[u32],
    arg: Option<&ChooseArg>,
    position: usize,
    x: u32,
    r: u32,
) -> i32 {
    const HASHED_AT_ONCE: usize = 64;
    let mut weights = weights;
    let mut ids = &b.items[..];
    if let Some(arg) = arg {
        if let Some(last) = arg.weight_set.len().checked_sub(1) {
            weights = &arg.weight_set[position.min(last)];
        }
        if !arg.ids.is_empty() {
            ids = &arg.ids;
        }
    }
    if b.hash != HASH_RJENKINS1 {
        return straw2_choose_slow(b, weights, ids, x, r);
    }
    let mut high = 0;
    // Weight 0 draws lower than all else; as does the empty beginning.
    let mut best = u64::MAX;
    // What the best one had. Depth falls as the hash rises (65534 and 65535 change places):
    // who has no more of either than the best one loses, without a logarithm.
    let (mut best_u, mut best_weight) = (0, 0);
    let mut wins = |i: usize, hash: u32, weight: u32| {
        let u = (hash & 0xffff) as u16;
        if u <= best_u && weight <= best_weight {
            return;
        }
        let depth = below_top(u);
        if u128::from(depth) < u128::from(best) * u128::from(weight) {
            best = depth / u64::from(weight);
            high = i;
            (best_u, best_weight) = (u.min(65533), weight);
        }
    };
    let n = ids.len().min(weights.len());
    let (ids, weights) = (&ids[..n], &weights[..n]);
    if weights.iter().any(|w| *w >= 1 << 31) {
        return straw2_choose_slow(b, weights, ids, x, r);
    }
    let mut hashes = [0; HASHED_AT_ONCE];
    for (part, (ids, weights)) in
        ids.chunks(HASHED_AT_ONCE).zip(weights.chunks(HASHED_AT_ONCE)).enumerate()
    {
        hash32_3_each(x, ids, r, &mut hashes);
        for (i, (hash, weight)) in hashes.iter().zip(weights).enumerate() {
            wins(part * HASHED_AT_ONCE + i, *hash, *weight);
        }
    }
    b.items.get(high).copied().unwrap_or(ITEM_NONE)
}

/// The same by the book. Weights from 2^31 on are negative to the peer.
#[cold]
fn straw2_choose_slow(b: &Bucket, weights: &[u32], ids: &[i32], x: u32, r: u32) -> i32 {
    let mut high = (0, 0);
    for (i, (id, weight)) in ids.iter().zip(weights).enumerate() {
        let u = rjenkins(b, || hash32_3(x, *id as u32, r)) & 0xffff;
        let draw = match *weight as i32 {
            0 => i64::MIN,
            weight => (ln(u as u16) as i64 - (1 << 48)) / i64::from(weight),
        };
        if i == 0 || draw > high.1 {
            high = (i, draw);
        }
    }
    b.items.get(high.0).copied().unwrap_or(ITEM_NONE)
}
