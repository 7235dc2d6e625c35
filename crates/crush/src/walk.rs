//! The hierarchy as a list, in the order in which trees are shown.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::CrushMap;

/// A bucket or device at one of its places.
#[derive(Debug, Clone, PartialEq)]
pub struct TreeNode {
    /// The item.
    pub id: i32,
    /// The bucket it stands in here; `None` for roots.
    pub parent: Option<i32>,
    /// How many buckets are above it here.
    pub depth: usize,
    /// Its weight here.
    pub weight: f32,
    /// What it has, in the order that dumps list it: the reverse of how it is shown.
    pub children: Vec<i32>,
}

impl TreeNode {
    /// Whether it is a bucket.
    #[must_use]
    pub fn is_bucket(&self) -> bool {
        self.id < 0
    }
}

impl CrushMap {
    /// All nodes, each after its parent: roots in ascending order of ids; in a bucket
    /// first buckets by name, then devices by class and id. `keep` tells which items are
    /// shown at all, with what is beneath them.
    #[must_use]
    pub fn tree(&self, shadows: bool, keep: impl Fn(i32) -> bool) -> Vec<TreeNode> {
        let roots = if shadows { self.roots() } else { self.nonshadow_roots() };
        let mut out = Vec::new();
        for root in roots.into_iter().filter(|root| keep(*root)) {
            let weight = self.bucket(root).map_or(0, |b| b.weight) as f32 / 65536.0;
            let mut open =
                vec![TreeNode { id: root, parent: None, depth: 0, weight, children: Vec::new() }];
            while let Some(mut node) = open.pop() {
                let sorted = self.shown_items(node.id, &keep);
                for (id, weight) in sorted.into_values().rev() {
                    node.children.push(id);
                    open.push(TreeNode {
                        id,
                        parent: Some(node.id),
                        depth: node.depth + 1,
                        weight,
                        children: Vec::new(),
                    });
                }
                out.push(node);
            }
        }
        out
    }

    /// Items and weights, by what they are sorted by.
    fn shown_items(
        &self,
        bucket: i32,
        keep: &impl Fn(i32) -> bool,
    ) -> BTreeMap<String, (i32, f32)> {
        let mut out = BTreeMap::new();
        let Some(bucket) = self.bucket(bucket) else { return out };
        for (i, item) in bucket.items.iter().enumerate().filter(|(_, item)| keep(**item)) {
            let key = if *item >= 0 {
                format!("{}_osd.{item:08}", self.class_name_of(*item).unwrap_or(""))
            } else {
                format!("_{}", self.names.get(*item).unwrap_or(""))
            };
            out.insert(key, (*item, bucket.item_weight(i) as f32 / 65536.0));
        }
        out
    }

    /// Devices with a name that stand in no bucket of `tree`.
    #[must_use]
    pub fn strays(&self, tree: &[TreeNode]) -> Vec<i32> {
        let seen: BTreeSet<i32> = tree.iter().map(|node| node.id).collect();
        self.names.iter().map(|(id, _)| id).filter(|id| *id >= 0 && !seen.contains(id)).collect()
    }

    /// The weight of an item in each weight set (by its first position) at the place in
    /// `parent`; `None` for sets that say nothing about that bucket.
    #[must_use]
    pub fn weight_set_weights(&self, parent: Option<i32>, item: i32) -> Vec<(i64, Option<f32>)> {
        let of = |args: &crate::ChooseArgs| {
            let parent = parent?;
            let at = self.bucket(parent)?.position(item)?;
            let weights = args.get(parent)?.weight_set().first()?;
            Some(*weights.get(at)? as f32 / 65536.0)
        };
        self.choose_args.iter().map(|(id, args)| (*id, of(args))).collect()
    }
}
