//! Buckets: making them, and changing their items and weights.
//!
//! All weights are 16.16 fixed point; sums that would not fit are refused where the peer
//! refuses them.
//!
//! Source: the peer's `crush/builder.c`.

use crate::error::{CrushError, ErrorKind};
use crate::model::{Bucket, BucketAlg, CrushMap, Rule, Weights, slot};

/// Most items of a tree bucket: its node count is a byte on the wire.
pub(crate) const TREE_ITEMS_MAX: usize = 64;

/// The node of a tree bucket that is item `i`.
pub(crate) fn tree_node(i: usize) -> usize {
    2 * i + 1
}

fn tree_depth(size: usize) -> u32 {
    match size {
        0 => 0,
        _ => 1 + (usize::BITS - (size - 1).leading_zeros()),
    }
}

fn tree_parent(n: usize) -> usize {
    let height = n.trailing_zeros();
    if n & (1 << (height + 1)) != 0 { n - (1 << height) } else { n + (1 << height) }
}

fn range() -> CrushError {
    CrushError::new(ErrorKind::Range, "the sum of weights is out of range")
}

fn add(a: u32, b: u32) -> Result<u32, CrushError> {
    a.checked_add(b).ok_or_else(range)
}

impl Bucket {
    /// A bucket with items and their weights; a uniform one takes the first weight for all.
    ///
    /// # Errors
    /// `ERANGE` for sums out of range; `EINVAL` for a tree with more than 64 items.
    pub(crate) fn new(
        alg: BucketAlg,
        hash: u8,
        kind: u16,
        items: &[(i32, u32)],
        straw_calc_version: u8,
    ) -> Result<Self, CrushError> {
        let ids = items.iter().map(|(id, _)| *id).collect();
        let list: Vec<u32> = items.iter().map(|(_, weight)| *weight).collect();
        let sum = list.iter().try_fold(0, |sum, weight| add(sum, *weight));
        let mut weight = 0;
        let weights = match alg {
            BucketAlg::Uniform => {
                let item = list.first().copied().unwrap_or(0);
                let size = u32::try_from(list.len()).map_err(|_| range())?;
                weight = size.checked_mul(item).ok_or_else(range)?;
                Weights::Uniform { item }
            }
            BucketAlg::List => {
                let mut sums = Vec::with_capacity(list.len());
                for item in &list {
                    weight = add(weight, *item)?;
                    sums.push(weight);
                }
                Weights::List { items: list, sums }
            }
            BucketAlg::Tree => {
                let mut tree = Self {
                    id: 0,
                    kind,
                    hash,
                    weight: 0,
                    items: Vec::new(),
                    weights: Weights::Tree { nodes: Vec::new() },
                };
                for (item, weight) in items {
                    tree.add_item(*item, *weight, straw_calc_version)?;
                }
                return Ok(tree);
            }
            BucketAlg::Straw => {
                weight = sum?;
                let straws = straws(&list, straw_calc_version);
                Weights::Straw { items: list, straws }
            }
            BucketAlg::Straw2 => {
                weight = sum?;
                Weights::Straw2 { items: list }
            }
        };
        Ok(Self { id: 0, kind, hash, weight, items: ids, weights })
    }

    /// Where `item` is.
    #[must_use]
    pub fn position(&self, item: i32) -> Option<usize> {
        self.items.iter().position(|i| *i == item)
    }

    /// Appends an item.
    ///
    /// # Errors
    /// As [`Bucket::new`]; the bucket is then as before.
    pub(crate) fn add_item(
        &mut self,
        item: i32,
        weight: u32,
        straw_calc_version: u8,
    ) -> Result<(), CrushError> {
        let sum = add(self.weight, weight)?;
        let size = self.items.len() + 1;
        match &mut self.weights {
            Weights::Uniform { item } => {
                if size == 1 {
                    *item = weight;
                } else if *item != weight {
                    return Err(CrushError::new(
                        ErrorKind::Invalid,
                        "items of a uniform bucket must have the same weight",
                    ));
                }
            }
            Weights::List { items, sums } => {
                sums.push(add(sums.last().copied().unwrap_or(0), weight)?);
                items.push(weight);
            }
            Weights::Tree { nodes } => {
                if size > TREE_ITEMS_MAX {
                    return Err(CrushError::new(
                        ErrorKind::Invalid,
                        "a tree bucket has room for 64 items",
                    ));
                }
                let depth = tree_depth(size);
                nodes.resize(1 << depth, 0);
                let mut node = tree_node(size - 1);
                nodes[node] = weight;
                let root = nodes.len() / 2;
                if depth >= 2 && node - 1 == root {
                    // The tree grew: what was its root is now the left half.
                    nodes[root] = nodes[root / 2];
                }
                for _ in 1..depth {
                    node = tree_parent(node);
                    nodes[node] = nodes[node].saturating_add(weight);
                }
            }
            Weights::Straw { items, straws: lengths } => {
                items.push(weight);
                *lengths = straws(items, straw_calc_version);
            }
            Weights::Straw2 { items } => items.push(weight),
        }
        self.items.push(item);
        self.weight = sum;
        Ok(())
    }

    /// Takes the first `item` out. A tree keeps its place, with weight 0, unless it was
    /// the last; then trailing places of weight 0 go too.
    pub(crate) fn remove_item(&mut self, item: i32, straw_calc_version: u8) -> bool {
        let Some(at) = self.position(item) else { return false };
        let weight = self.item_weight(at);
        self.weight = self.weight.saturating_sub(weight);
        match &mut self.weights {
            Weights::Uniform { .. } => {}
            Weights::List { items, sums } => {
                items.remove(at);
                sums.remove(at);
                for sum in &mut sums[at..] {
                    *sum = sum.wrapping_sub(weight);
                }
            }
            Weights::Tree { nodes } => {
                let mut node = tree_node(at);
                nodes[node] = 0;
                for _ in 1..tree_depth(self.items.len()) {
                    node = tree_parent(node);
                    if let Some(n) = nodes.get_mut(node) {
                        *n = n.wrapping_sub(weight);
                    }
                }
                let mut size = self.items.len();
                while size > 0 && nodes[tree_node(size - 1)] == 0 {
                    size -= 1;
                }
                if tree_depth(size) != tree_depth(self.items.len()) {
                    // An empty tree still has its root node.
                    nodes.truncate(1 << tree_depth(size));
                }
                self.items.truncate(size);
                return true;
            }
            Weights::Straw { items, straws: lengths } => {
                items.remove(at);
                *lengths = straws(items, straw_calc_version);
            }
            Weights::Straw2 { items } => {
                items.remove(at);
            }
        }
        self.items.remove(at);
        true
    }

    /// Gives the first `item` another weight (a uniform bucket: all its items), and tells
    /// by how much the bucket's weight grew.
    pub(crate) fn set_item_weight(
        &mut self,
        item: i32,
        weight: u32,
        straw_calc_version: u8,
    ) -> i32 {
        let Some(at) = self.position(item) else { return 0 };
        let size = self.items.len();
        let diff = weight.wrapping_sub(self.item_weight(at));
        match &mut self.weights {
            Weights::Uniform { item } => {
                *item = weight;
                self.weight = weight.wrapping_mul(size as u32);
                return diff.wrapping_mul(size as u32) as i32;
            }
            Weights::List { items, sums } => {
                items[at] = weight;
                for sum in &mut sums[at..] {
                    *sum = sum.wrapping_add(diff);
                }
            }
            Weights::Tree { nodes } => {
                let mut node = tree_node(at);
                nodes[node] = weight;
                for _ in 1..tree_depth(size) {
                    node = tree_parent(node);
                    if let Some(n) = nodes.get_mut(node) {
                        *n = n.wrapping_add(diff);
                    }
                }
            }
            Weights::Straw { items, straws: lengths } => {
                items[at] = weight;
                *lengths = straws(items, straw_calc_version);
            }
            Weights::Straw2 { items } => items[at] = weight,
        }
        self.weight = self.weight.wrapping_add(diff);
        diff as i32
    }

    /// Takes over the weights of the buckets among the items, and sums up anew.
    ///
    /// # Errors
    /// `ERANGE`.
    pub(crate) fn reweight(
        &mut self,
        weight_of: impl Fn(i32) -> Option<u32>,
        straw_calc_version: u8,
    ) -> Result<(), CrushError> {
        let mut sum = 0;
        if let Weights::Uniform { item } = &mut self.weights {
            let mut buckets = 0;
            for id in self.items.iter().filter(|id| **id < 0) {
                sum = add(sum, weight_of(*id).unwrap_or(0))?;
                buckets += 1;
            }
            if buckets > self.items.len() as u32 - buckets {
                *item = sum / buckets;
            }
            self.weight = item.wrapping_mul(self.items.len() as u32);
            return Ok(());
        }
        for (i, id) in self.items.iter().enumerate() {
            let weight = match &mut self.weights {
                Weights::List { items, .. }
                | Weights::Straw { items, .. }
                | Weights::Straw2 { items } => &mut items[i],
                Weights::Tree { nodes } => &mut nodes[tree_node(i)],
                Weights::Uniform { .. } => unreachable!("returned above"),
            };
            if *id < 0
                && let Some(of_bucket) = weight_of(*id)
            {
                *weight = of_bucket;
            }
            sum = add(sum, *weight)?;
        }
        self.weight = sum;
        if let Weights::Straw { items, straws: lengths } = &mut self.weights {
            *lengths = straws(items, straw_calc_version);
        }
        Ok(())
    }
}

/// The lengths of the straws for a straw bucket's weights. Version 0 treats equal weights
/// wrongly, and is what old maps were built with.
///
/// Floating point, in the peer's order of operations.
fn straws(weights: &[u32], version: u8) -> Vec<u32> {
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by_key(|i| weights[*i]); // stable, as the peer's insertion sort
    let mut out = vec![0; weights.len()];
    let mut left = weights.len() as i32;
    let (mut straw, mut below, mut last) = (1.0f64, 0.0f64, 0.0f64);
    let mut i = 0;
    while i < order.len() {
        let weight = weights[order[i]];
        if weight == 0 {
            i += 1;
            if version > 0 {
                left -= 1;
            }
            continue;
        }
        out[order[i]] = fixed(straw);
        i += 1;
        let Some(next) = order.get(i).map(|n| weights[*n]) else { break };
        if version == 0 {
            if next == weight {
                continue;
            }
            below += (f64::from(weight) - last) * f64::from(left);
            left -= order[i..].iter().take_while(|n| weights[**n] == next).count() as i32;
        } else {
            below += (f64::from(weight) - last) * f64::from(left);
            left -= 1;
        }
        let above = f64::from((left as u32).wrapping_mul(next.wrapping_sub(weight)));
        let share = below / (below + above);
        straw *= (1.0 / share).powf(1.0 / f64::from(left));
        last = f64::from(weight);
    }
    out
}

/// `straw` as 16.16. Beyond the range of 64 bits the peer's machines give 0.
fn fixed(straw: f64) -> u32 {
    let scaled = straw * 65536.0;
    if scaled.abs() < 9.2e18 { scaled as i64 as u32 } else { 0 }
}

impl CrushMap {
    /// Makes a bucket in the slot of `id`, or in the first free one for 0, and gives its id.
    /// Slots double when they run out. `choose_args` is the caller's.
    ///
    /// # Errors
    /// `EEXIST` for a slot in use; `EINVAL` for an id above 0 or far beyond what is there.
    pub(crate) fn place_bucket(&mut self, id: i32, mut bucket: Bucket) -> Result<i32, CrushError> {
        let at = if id == 0 {
            self.buckets.iter().position(Option::is_none).unwrap_or(self.buckets.len())
        } else {
            slot(id).ok_or_else(|| CrushError::new(ErrorKind::Invalid, "bucket ids are below 0"))?
        };
        if at >= SLOTS_MAX {
            return Err(CrushError::new(ErrorKind::Invalid, "bucket id out of range"));
        }
        let mut slots = self.buckets.len();
        while at >= slots {
            slots = if slots == 0 { 8 } else { slots * 2 };
        }
        self.buckets.resize(slots, None);
        if self.buckets[at].is_some() {
            return Err(CrushError::new(ErrorKind::Exists, "bucket id is taken"));
        }
        bucket.id = -1 - at as i32;
        let id = bucket.id;
        self.buckets[at] = Some(bucket);
        Ok(id)
    }

    /// Puts a rule in slot `id`, or in the first free one, and gives its id.
    ///
    /// # Errors
    /// `EINVAL` beyond 256 rules.
    pub(crate) fn place_rule(&mut self, id: Option<u32>, rule: Rule) -> Result<u32, CrushError> {
        let at = id.map_or_else(
            || self.rules.iter().position(Option::is_none).unwrap_or(self.rules.len()),
            |id| id as usize,
        );
        if at > u8::MAX.into() {
            return Err(CrushError::new(ErrorKind::Invalid, "there is room for 256 rules"));
        }
        if at >= self.rules.len() {
            self.rules.resize(at + 1, None);
        }
        self.rules[at] = Some(rule);
        Ok(at as u32)
    }

    /// The algorithm new buckets get: the best that is allowed.
    #[must_use]
    pub fn default_bucket_alg(&self) -> Option<BucketAlg> {
        let allowed = self.tunables.allowed_bucket_algs;
        [BucketAlg::Straw2, BucketAlg::Straw, BucketAlg::Tree, BucketAlg::List, BucketAlg::Uniform]
            .into_iter()
            .find(|alg| allowed & (1 << *alg as u32) != 0)
    }
}

/// Bound on bucket slots that text or an operator can ask for.
const SLOTS_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(b: &Bucket) -> &[u32] {
        match &b.weights {
            Weights::Tree { nodes } => nodes,
            _ => panic!("a tree"),
        }
    }

    /// Each inner node of a tree weighs what its halves weigh, through growing and
    /// shrinking.
    #[test]
    fn trees_add_up() {
        let mut b = Bucket::new(BucketAlg::Tree, 0, 1, &[], 1).unwrap();
        let check = |b: &Bucket| {
            let sum: u32 = (0..b.items.len()).map(|i| b.item_weight(i)).sum();
            assert_eq!(b.weight, sum);
            let n = nodes(b);
            assert_eq!(n.get(n.len() / 2).copied().unwrap_or(0), sum);
        };
        for i in 0..64 {
            b.add_item(i, 0x10000 + i as u32, 1).unwrap();
            check(&b);
        }
        assert!(b.add_item(64, 1, 1).is_err());
        b.set_item_weight(7, 5, 1);
        check(&b);
        for i in (0..64).rev() {
            assert!(b.remove_item(i, 1));
            check(&b);
        }
        assert!(!b.remove_item(0, 1));
    }

    /// Straws of unequal weights, as the peer cuts them.
    #[test]
    fn straw_lengths() {
        assert_eq!(straws(&[0x10000, 0x10000, 0x10000], 1), [0x10000; 3]);
        assert_eq!(straws(&[0, 0x10000], 1), [0, 0x10000]);
        let s = straws(&[0x10000, 0x20000, 0x30000], 1);
        assert!(s[0] < s[1] && s[1] < s[2]);
    }
}
