//! Device classes, and the shadow buckets behind them: for each bucket and class a copy
//! `name~class` with only the devices of that class, so that rules can take it.
//!
//! Shadow trees are built anew by each edit; a shadow bucket keeps the id it had, since
//! placement hashes ids, and no other gets it.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{CrushError, ErrorKind};
use crate::model::{Bucket, ChooseArg, CrushMap, Op, Weights};
use crate::query::is_valid_name;

type Shadows = BTreeMap<i32, BTreeMap<i32, i32>>;

/// What building shadow trees needs to remember.
struct Build<'a> {
    old: &'a Shadows,
    used: BTreeSet<i32>,
    /// No slot above this one is free.
    next: i32,
    /// Per weight set and shadow bucket, its weight by position.
    weights: BTreeMap<(i64, i32), Vec<u32>>,
}

impl CrushMap {
    /// The number of a class, which is made if it is not there.
    ///
    /// # Errors
    /// `EINVAL` for a name that may not be given.
    pub fn get_or_create_class(&mut self, name: &str) -> Result<i32, CrushError> {
        if !is_valid_name(name) {
            let message = format!("'{name}' does not match [-_.0-9a-zA-Z]+");
            return Err(CrushError::new(ErrorKind::Invalid, message));
        }
        Ok(self.class_id(name))
    }

    pub(crate) fn class_id(&mut self, name: &str) -> i32 {
        if let Some(id) = self.class_names.id(name) {
            return id;
        }
        let next = self.class_names.last_id().map_or(0, |id| id.wrapping_add(1));
        let id = if next >= 0 {
            next
        } else {
            (0..).find(|id| !self.class_names.contains(*id)).expect("not all numbers are used")
        };
        self.class_names.set(id, name);
        id
    }

    /// Puts a device into a class, for `osd crush set-device-class`; gives whether that
    /// changed anything.
    ///
    /// # Errors
    /// `EBUSY` when it is in another class, `ENOENT` for a device that is not there,
    /// `EINVAL` for a bucket or a bad name.
    pub fn update_device_class(&mut self, id: i32, class: &str) -> Result<bool, CrushError> {
        let Some(name) = self.names.get(id).map(str::to_owned) else {
            let message = format!("osd.{id} does not have a name");
            return Err(CrushError::new(ErrorKind::NotFound, message));
        };
        if let Some(old) = self.class_name_of(id).filter(|old| *old != class) {
            let message = format!(
                "osd.{id} has already bound to class '{old}', can not reset class to '{class}'; \
                 use 'ceph osd crush rm-device-class <id>' to remove old class first"
            );
            return Err(CrushError::new(ErrorKind::Busy, message));
        }
        if id < 0 {
            let message = format!("{name} id {id} is negative");
            return Err(CrushError::new(ErrorKind::Invalid, message));
        }
        let number = self.get_or_create_class(class)?;
        if self.class_of(id) == Some(number) {
            return Ok(false);
        }
        self.class_of.insert(id, number);
        self.rebuild_roots_with_classes()?;
        Ok(true)
    }

    /// Takes a device out of its class; gives whether it was in one.
    ///
    /// # Errors
    /// `ENOENT` for a device that is not there.
    pub fn remove_device_class(&mut self, id: i32) -> Result<bool, CrushError> {
        if !self.names.contains(id) {
            let message = format!("osd.{id} does not have a name");
            return Err(CrushError::new(ErrorKind::NotFound, message));
        }
        if self.class_of.remove(&id).is_none() {
            return Ok(false);
        }
        self.rebuild_roots_with_classes()?;
        Ok(true)
    }

    /// Puts all devices beneath a bucket into a class, without building shadow trees.
    ///
    /// # Errors
    /// `ENOENT` when there is no such bucket.
    pub fn set_subtree_class(&mut self, subtree: &str, class: &str) -> Result<(), CrushError> {
        let id = self.names.id(subtree).filter(|id| self.bucket(*id).is_some());
        let id = id.ok_or_else(|| {
            CrushError::new(ErrorKind::NotFound, format!("'{subtree}' does not exist"))
        })?;
        let class = self.get_or_create_class(class)?;
        for item in self.leaves(id) {
            self.class_of.insert(item, class);
        }
        Ok(())
    }

    /// Renames a class and its shadow buckets.
    ///
    /// # Errors
    /// `ENOENT` and `EEXIST`.
    pub fn rename_class(&mut self, from: &str, to: &str) -> Result<(), CrushError> {
        let id = self.class_names.id(from).ok_or_else(|| {
            CrushError::new(ErrorKind::NotFound, format!("class '{from}' does not exist"))
        })?;
        if self.class_names.id(to).is_some() {
            let message = format!("class '{to}' already exists");
            return Err(CrushError::new(ErrorKind::Exists, message));
        }
        let shadows: Vec<i32> =
            self.class_of.range(..0).filter(|(_, c)| **c == id).map(|(item, _)| *item).collect();
        for item in shadows {
            if let Some((name, _)) = self.names.get(item).and_then(|name| name.split_once('~')) {
                let name = format!("{name}~{to}");
                self.names.set(item, name);
            }
        }
        self.class_names.set(id, to);
        Ok(())
    }

    /// The rules that take a shadow bucket of the class, by number of the class.
    #[must_use]
    pub fn rules_using_class(&self, class: i32) -> Vec<u32> {
        let uses = |take: i32| {
            self.class_buckets.values().any(|shadows| shadows.get(&class) == Some(&take))
        };
        let takes = |rule: &crate::Rule| {
            rule.steps.iter().any(|s| s.known() == Some(Op::Take) && uses(s.arg1))
        };
        self.rules().filter(|(_, rule)| takes(rule)).map(|(id, _)| id).collect()
    }

    /// Drops a class that no rule uses, and takes its devices out of it
    /// (`osd crush class rm`).
    ///
    /// # Errors
    /// `ENOENT`; `EBUSY` naming the rules.
    pub fn remove_class(&mut self, class: &str) -> Result<(), CrushError> {
        let id = self.class_names.id(class).ok_or_else(|| {
            CrushError::new(ErrorKind::NotFound, format!("class '{class}' does not exist"))
        })?;
        let rules = self.rules_using_class(id);
        if !rules.is_empty() {
            let name =
                |rule: &u32| format!("'{}'", self.rule_names.get(*rule as i32).unwrap_or_default());
            let names: Vec<String> = rules.iter().map(name).collect();
            let message = format!("still referenced by crush_rule(s): {}", names.join(","));
            return Err(CrushError::new(ErrorKind::Busy, message));
        }
        self.class_of.retain(|item, c| *item < 0 || *c != id);
        self.rebuild_roots_with_classes()
    }

    /// Builds all shadow trees anew. Classes that no device has and no rule uses go.
    ///
    /// # Errors
    /// `EINVAL` when the map cannot have them: too many, or a bucket without a name.
    pub fn rebuild_roots_with_classes(&mut self) -> Result<(), CrushError> {
        let old = std::mem::take(&mut self.class_buckets);
        // Which classes live is asked of the old shadow buckets.
        let mut alive: BTreeSet<i32> = self.class_of.range(0..).map(|(_, c)| *c).collect();
        let takes = self.takes();
        for shadows in old.values() {
            alive
                .extend(shadows.iter().filter(|(_, s)| takes.contains(s)).map(|(class, _)| *class));
        }
        let dead: Vec<i32> =
            self.class_names.iter().map(|(id, _)| id).filter(|id| !alive.contains(id)).collect();
        for class in dead {
            self.class_names.remove(class);
        }
        let shadows = self.shadow_roots();
        for root in &shadows {
            self.remove_root(*root);
        }
        if !shadows.is_empty() {
            // Only then does the peer tidy up weight sets.
            self.fit_choose_args();
        }
        self.class_buckets.clear();
        self.populate_classes(&old)
    }

    /// Builds shadow trees for all classes, with the ids that `old` says.
    pub(crate) fn populate_classes(&mut self, old: &Shadows) -> Result<(), CrushError> {
        let used = old.values().flat_map(BTreeMap::values).copied().collect();
        let mut build = Build { old, used, next: -1, weights: BTreeMap::new() };
        let classes: Vec<i32> = self.class_names.iter().map(|(id, _)| id).collect();
        for root in self.nonshadow_roots() {
            for class in &classes {
                self.clone_for_class(root, *class, &mut build)?;
            }
        }
        Ok(())
    }

    fn clone_for_class(
        &mut self,
        original: i32,
        class: i32,
        build: &mut Build<'_>,
    ) -> Result<i32, CrushError> {
        let bad = |message: String| CrushError::new(ErrorKind::Invalid, message);
        let (Some(name), Some(class_name)) =
            (self.names.get(original), self.class_names.get(class))
        else {
            return Err(bad(format!("bucket {original} has no name")));
        };
        let copy_name = format!("{name}~{class_name}");
        if let Some(known) = self.names.id(&copy_name) {
            return Ok(known);
        }
        let from = self.bucket(original).cloned();
        let from = from.ok_or_else(|| bad(format!("bucket {original} does not exist")))?;
        let version = self.tunables.straw_calc_version;
        let mut copy = Bucket::new(from.alg(), from.hash, from.kind, &[], version)?;
        // Where in the original each item of the copy is.
        let mut places = Vec::new();
        for (i, item) in from.items.iter().enumerate() {
            let (item, weight) = if *item >= 0 {
                if self.class_of(*item) != Some(class) {
                    continue;
                }
                (*item, from.item_weight(i))
            } else {
                let child = self.clone_for_class(*item, class, build)?;
                (child, self.bucket(child).map_or(0, Bucket::weight))
            };
            if let Weights::Uniform { item: same } = &mut copy.weights {
                // Shadows of uniform buckets need not weigh the same; the last counts.
                *same = weight;
                copy.items.push(item);
                copy.weight = copy.weight.saturating_add(weight);
            } else {
                copy.add_item(item, weight, version)?;
            }
            places.push(i);
        }
        let kept = build.old.get(&original).and_then(|classes| classes.get(&class)).copied();
        let id = kept.unwrap_or_else(|| {
            let mut id = build.next;
            while self.bucket(id).is_some() || build.used.contains(&id) {
                id -= 1;
            }
            build.next = id;
            id
        });
        let items = copy.items.clone();
        self.place_bucket(id, copy)?;
        self.class_of.insert(id, class);
        self.names.set(id, copy_name);
        self.class_buckets.entry(original).or_default().insert(class, id);

        for (set, args) in &mut self.choose_args {
            let Some(of_original) = args.get(original).cloned() else { continue };
            let positions = of_original.weight_set.len();
            let mut weight_set = Vec::with_capacity(positions);
            for (s, weights) in of_original.weight_set.iter().enumerate() {
                let mut sum = vec![0u32; positions];
                let of_item = |(item, place): (&i32, &usize)| {
                    if *item >= 0 {
                        weights.get(*place).copied().unwrap_or(0)
                    } else {
                        let below = build.weights.get(&(*set, *item));
                        below.and_then(|w| w.get(s)).copied().unwrap_or(0)
                    }
                };
                let copied: Vec<u32> = items.iter().zip(&places).map(of_item).collect();
                sum[s] = copied.iter().fold(0, |sum, w| sum.wrapping_add(*w));
                weight_set.push(copied);
                // Only the last position's sum is kept, as the peer keeps it.
                build.weights.insert((*set, id), sum);
            }
            *args.slot_mut(id) = ChooseArg { weight_set, ids: Vec::new() };
        }
        Ok(id)
    }
}
