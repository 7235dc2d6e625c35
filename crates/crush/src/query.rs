//! Questions about the hierarchy: where things are, what is beneath what, which rules use
//! what.
//!
//! An item may be in several buckets; where one place is asked for, the bucket with the
//! highest id (the lowest slot) answers, and shadow buckets never do.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{CrushError, ErrorKind};
use crate::model::{Bucket, CrushMap, Op};

/// Where something is: type names and the names of buckets of those types.
pub type Location = BTreeMap<String, String>;

/// Whether a name may be given: letters, digits, `-`, `_` and `.`, at least one. Names of
/// shadow buckets, with their `~`, are not.
#[must_use]
pub fn is_valid_name(name: &str) -> bool {
    let good = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    !name.is_empty() && name.bytes().all(good)
}

/// Reads `type=name` words.
///
/// # Errors
/// `EINVAL` for a word without `=` or without a name.
pub fn parse_location<S: AsRef<str>>(words: &[S]) -> Result<Location, CrushError> {
    let mut out = Location::new();
    for word in words {
        match word.as_ref().split_once('=') {
            Some((kind, name)) if !name.is_empty() => out.insert(kind.into(), name.into()),
            _ => {
                let message = format!("'{}' is not type=name", word.as_ref());
                return Err(CrushError::new(ErrorKind::Invalid, message));
            }
        };
    }
    Ok(out)
}

impl CrushMap {
    /// The name of a type.
    #[must_use]
    pub fn type_name(&self, kind: u16) -> Option<&str> {
        self.types.get(kind.into())
    }

    /// Whether the item is a shadow bucket: the part of a bucket that has a device class.
    #[must_use]
    pub fn is_shadow(&self, id: i32) -> bool {
        self.names.get(id).is_some_and(|name| !is_valid_name(name))
    }

    /// For a shadow bucket its original and class; else the item itself and no class.
    ///
    /// # Errors
    /// `EINVAL` for items without a name, `ENOENT` when the original or class is gone.
    pub fn split_id_class(&self, id: i32) -> Result<(i32, Option<i32>), CrushError> {
        let name = self.names.get(id).ok_or_else(|| {
            CrushError::new(ErrorKind::Invalid, format!("item {id} does not exist"))
        })?;
        let Some((name, class)) = name.split_once('~') else { return Ok((id, None)) };
        match (self.names.id(name), self.class_names.id(class)) {
            (Some(original), Some(class)) => Ok((original, Some(class))),
            _ => Err(CrushError::new(ErrorKind::NotFound, format!("{name}~{class} is no more"))),
        }
    }

    /// The bucket that has `id` among its items.
    #[must_use]
    pub fn parent(&self, id: i32) -> Option<&Bucket> {
        self.buckets().find(|b| b.items.contains(&id) && !self.is_shadow(b.id))
    }

    /// Type and name of [`CrushMap::parent`].
    #[must_use]
    pub fn parent_location(&self, id: i32) -> Option<(&str, &str)> {
        let parent = self.parent(id)?;
        Some((self.type_name(parent.kind)?, self.names.get(parent.id)?))
    }

    /// Types and names of all buckets above `id`, innermost first.
    ///
    /// # Errors
    /// `ENOENT` for an id without a name.
    pub fn full_location_ordered(&self, id: i32) -> Result<Vec<(&str, &str)>, CrushError> {
        if !self.names.contains(id) {
            return Err(CrushError::new(ErrorKind::NotFound, format!("item {id} does not exist")));
        }
        let mut out = Vec::new();
        let mut at = id;
        while let Some(parent) = self.parent(at) {
            let (Some(kind), Some(name)) = (self.type_name(parent.kind), self.names.get(parent.id))
            else {
                break;
            };
            out.push((kind, name));
            at = parent.id;
        }
        Ok(out)
    }

    /// Types and names of all buckets above `id`; empty when it is nowhere.
    #[must_use]
    pub fn full_location(&self, id: i32) -> Location {
        let path = self.full_location_ordered(id).unwrap_or_default();
        // Of several buckets of a type, the innermost.
        let pairs = path.into_iter().rev();
        pairs.map(|(kind, name)| (kind.to_owned(), name.to_owned())).collect()
    }

    /// The number of the lowest type for which `id` is where `location` says; `None` when
    /// they share nothing.
    #[must_use]
    pub fn common_ancestor_distance(&self, id: i32, location: &[(String, String)]) -> Option<i32> {
        let at = self.full_location(id);
        self.types.iter().find_map(|(number, kind)| {
            let here = at.get(kind)?;
            location.iter().any(|(k, name)| k == kind && name == here).then_some(number)
        })
    }

    /// Whether `item` is `root` or beneath it.
    #[must_use]
    pub fn subtree_contains(&self, root: i32, item: i32) -> bool {
        root == item
            || self
                .bucket(root)
                .is_some_and(|b| b.items.iter().any(|i| self.subtree_contains(*i, item)))
    }

    /// Whether any bucket, shadow or not, has the item.
    #[must_use]
    pub fn is_in_a_bucket(&self, item: i32) -> bool {
        self.buckets().any(|b| b.items.contains(&item))
    }

    /// The nearest bucket of type `kind` above `item`. With a rule, only what the rule's
    /// `take` steps reach counts, shadow buckets included.
    #[must_use]
    pub fn parent_of_kind(&self, item: i32, kind: u16, rule: Option<u32>) -> Option<i32> {
        let Some(rule) = rule else {
            let mut at = self.parent(item)?;
            while at.kind != kind {
                at = self.parent(at.id)?;
            }
            return Some(at.id);
        };
        self.takes_of_rule(rule).into_iter().find_map(|root| {
            let mut candidates = Vec::new();
            self.children_of_kind(root, kind, false, &mut candidates);
            candidates.into_iter().find(|c| self.subtree_contains(*c, item))
        })
    }

    /// Appends what is beneath (or is) `id` and of type `kind` to `out`. Does not look
    /// beneath buckets of that type or a lower one.
    pub fn children_of_kind(&self, id: i32, kind: u16, no_shadow: bool, out: &mut Vec<i32>) {
        if id >= 0 {
            if kind == 0 {
                out.push(id);
            }
            return;
        }
        let Some(bucket) = self.bucket(id) else { return };
        if bucket.kind == kind {
            if !no_shadow || !self.is_shadow(id) {
                out.push(id);
            }
        } else if bucket.kind > kind {
            for item in &bucket.items {
                self.children_of_kind(*item, kind, no_shadow, out);
            }
        }
    }

    /// All buckets (or devices) of type `kind` that hang from some root.
    #[must_use]
    pub fn subtrees_of_kind(&self, kind: u16) -> Vec<i32> {
        let mut out = Vec::new();
        for root in self.roots() {
            self.children_of_kind(root, kind, true, &mut out);
        }
        out
    }

    /// All that is beneath `id`, at any depth.
    #[must_use]
    pub fn all_children(&self, id: i32) -> BTreeSet<i32> {
        let mut out = BTreeSet::new();
        let mut open = vec![id];
        while let Some(id) = open.pop() {
            for item in self.bucket(id).map_or(&[][..], |b| &b.items) {
                if out.insert(*item) {
                    open.push(*item);
                }
            }
        }
        out
    }

    /// The devices beneath (or that are) `id`, in ascending order.
    #[must_use]
    pub fn leaves(&self, id: i32) -> BTreeSet<i32> {
        if id >= 0 {
            return BTreeSet::from([id]);
        }
        self.all_children(id).into_iter().filter(|item| *item >= 0).collect()
    }

    /// The buckets without a parent, in ascending order.
    #[must_use]
    pub fn roots(&self) -> BTreeSet<i32> {
        let inner: BTreeSet<i32> = self.buckets().flat_map(|b| &b.items).copied().collect();
        self.buckets().map(Bucket::id).filter(|id| !inner.contains(id)).collect()
    }

    /// [`CrushMap::roots`] that are not shadow buckets.
    #[must_use]
    pub fn nonshadow_roots(&self) -> BTreeSet<i32> {
        let mut out = self.roots();
        out.retain(|id| !self.is_shadow(*id));
        out
    }

    /// [`CrushMap::roots`] that are shadow buckets.
    #[must_use]
    pub fn shadow_roots(&self) -> BTreeSet<i32> {
        let mut out = self.roots();
        out.retain(|id| self.is_shadow(*id));
        out
    }

    /// What rules take.
    #[must_use]
    pub fn takes(&self) -> BTreeSet<i32> {
        self.rules().flat_map(|(id, _)| self.takes_of_rule(id)).collect()
    }

    /// What one rule takes.
    #[must_use]
    pub fn takes_of_rule(&self, rule: u32) -> BTreeSet<i32> {
        let steps = self.rule(rule).map_or(&[][..], |r| &r.steps);
        steps.iter().filter(|s| s.known() == Some(Op::Take)).map(|s| s.arg1).collect()
    }

    /// The rules that take a shadow bucket of the class.
    #[must_use]
    pub fn rules_of_class(&self, class: &str) -> BTreeSet<u32> {
        let Some(class) = self.class_names.id(class) else { return BTreeSet::new() };
        let takes_class = |id: &u32| {
            let classes = |take| self.split_id_class(take).is_ok_and(|(_, c)| c == Some(class));
            self.takes_of_rule(*id).into_iter().any(classes)
        };
        self.rules().map(|(id, _)| id).filter(takes_class).collect()
    }

    /// The rules that may place on the device.
    #[must_use]
    pub fn rules_of_osd(&self, osd: i32) -> BTreeSet<u32> {
        let reaches =
            |id: &u32| self.takes_of_rule(*id).iter().any(|t| self.subtree_contains(*t, osd));
        self.rules().map(|(id, _)| id).filter(reaches).collect()
    }

    /// The lowest rule of that kind.
    #[must_use]
    pub fn first_rule(&self, kind: u8) -> Option<u32> {
        self.rules().find(|(_, rule)| rule.kind == kind).map(|(id, _)| id)
    }

    /// Whether the rule serves pools of that type (1 replicated, 3 erasure).
    #[must_use]
    pub fn rule_serves(&self, rule: u32, pool_type: u8) -> bool {
        use crate::model as m;
        self.rule(rule).is_some_and(|r| match pool_type {
            m::RULE_TYPE_REPLICATED => {
                matches!(r.kind, m::RULE_TYPE_REPLICATED | m::RULE_TYPE_MSR_FIRSTN)
            }
            m::RULE_TYPE_ERASURE => {
                matches!(r.kind, m::RULE_TYPE_ERASURE | m::RULE_TYPE_MSR_INDEP)
            }
            _ => false,
        })
    }

    /// The devices of a class.
    #[must_use]
    pub fn devices_of_class(&self, class: &str) -> BTreeSet<i32> {
        let Some(class) = self.class_names.id(class) else { return BTreeSet::new() };
        let of_class = self.class_of.range(0..).filter(|(_, c)| **c == class);
        of_class.map(|(item, _)| *item).collect()
    }

    /// The first weight that is found for an item, 16.16: a bucket's own or the one in its
    /// parent, whichever has the lower slot.
    #[must_use]
    pub fn item_weight(&self, id: i32) -> Option<u32> {
        self.buckets().find_map(|b| {
            if b.id == id {
                return Some(b.weight);
            }
            b.position(id).map(|at| b.item_weight(at))
        })
    }

    /// The weight of an item in one of the buckets that `location` names.
    #[must_use]
    pub fn item_weight_in(&self, id: i32, location: &Location) -> Option<u32> {
        location.values().find_map(|name| {
            let bucket = self.bucket(self.names.id(name)?)?;
            Some(bucket.item_weight(bucket.position(id)?))
        })
    }

    /// The weight of an item in the innermost bucket that `location` names, if it is there.
    /// Buckets further out are not looked at.
    #[must_use]
    pub fn check_item_loc(&self, item: i32, location: &Location) -> Option<u32> {
        for (number, kind) in self.types.iter() {
            let Some(name) = location.get(kind).filter(|_| number != 0) else { continue };
            let bucket = self.bucket(self.names.id(name)?)?;
            return Some(bucket.item_weight(bucket.position(item)?));
        }
        None
    }

    /// Each device's share of what a rule places, summing to 1 per `take` step.
    #[must_use]
    pub fn rule_weight_osd_map(&self, rule: u32) -> Option<BTreeMap<i32, f32>> {
        let mut out = BTreeMap::new();
        for step in &self.rule(rule)?.steps {
            if step.known() != Some(Op::Take) {
                continue;
            }
            let (sum, weights) = if step.arg1 >= 0 {
                (1.0, BTreeMap::from([(step.arg1, 1.0)]))
            } else {
                self.take_weights(step.arg1)
            };
            for (item, weight) in weights {
                *out.entry(item).or_insert(0.0) += weight / sum;
            }
        }
        Some(out)
    }

    /// The devices beneath `root` with their weights, and the sum.
    fn take_weights(&self, root: i32) -> (f32, BTreeMap<i32, f32>) {
        let mut sum = 0.0;
        let mut out = BTreeMap::new();
        let mut open = std::collections::VecDeque::from([root]);
        while let Some(id) = open.pop_front() {
            let Some(bucket) = self.bucket(id) else { continue };
            for (at, item) in bucket.items.iter().enumerate() {
                if *item >= 0 {
                    let weight = bucket.item_weight(at) as f32;
                    out.insert(*item, weight);
                    sum += weight;
                } else {
                    open.push_back(*item);
                }
            }
        }
        (sum, out)
    }
}
