//! Changing weights, so that every bucket weighs what its items do, in the hierarchy and
//! in each weight set.

use crate::error::{CrushError, ErrorKind};
use crate::model::{BucketAlg, ChooseArg, CrushMap};
use crate::query::Location;

/// A weight as operators write it, in 16.16.
///
/// # Errors
/// `EOVERFLOW` below 0 and from 32768 on.
pub fn fixed_weight(weight: f64) -> Result<u32, CrushError> {
    // Single precision, as the peer: what it stores shows in `osd crush dump`.
    let fixed = (weight as f32 * 65536.0).trunc();
    if fixed >= 0.0 && fixed <= i32::MAX as f32 && fixed as i64 <= i64::from(i32::MAX) {
        Ok(fixed as u32)
    } else {
        Err(CrushError::new(ErrorKind::Overflow, format!("weight {weight} is out of range")))
    }
}

/// A weight that went through single precision, as some of the peer's edits do.
pub(crate) fn through_float(weight: u32) -> u32 {
    (weight as i32 as f32) as i32 as u32
}

impl CrushMap {
    fn straw_version(&self) -> u8 {
        self.tunables.straw_calc_version
    }

    /// Sets the weight of an item in every bucket that has it, and of the buckets above.
    /// With `update_weight_sets`, its weight in weight sets becomes the same; else those
    /// keep what they have. Gives in how many buckets it was.
    ///
    /// # Errors
    /// `ENOENT` when no bucket has it.
    pub fn adjust_item_weight(
        &mut self,
        id: i32,
        weight: u32,
        update_weight_sets: bool,
    ) -> Result<usize, CrushError> {
        let mut changed = 0;
        for at in 0..self.buckets.len() {
            if self.buckets[at].is_some() {
                let bucket = -1 - at as i32;
                changed += usize::from(
                    self.adjust_item_weight_in_bucket(id, weight, bucket, update_weight_sets) > 0,
                );
            }
        }
        if changed == 0 {
            let message = format!("item {id} is in no bucket");
            return Err(CrushError::new(ErrorKind::NotFound, message));
        }
        Ok(changed)
    }

    /// As [`CrushMap::adjust_item_weight`], in the buckets that `location` names.
    ///
    /// # Errors
    /// `ENOENT` when none of them has it.
    pub fn adjust_item_weight_in_loc(
        &mut self,
        id: i32,
        weight: u32,
        location: &Location,
        update_weight_sets: bool,
    ) -> Result<usize, CrushError> {
        let mut changed = 0;
        for name in location.values() {
            let Some(bucket) = self.names.id(name).filter(|b| self.bucket(*b).is_some()) else {
                continue;
            };
            changed += usize::from(
                self.adjust_item_weight_in_bucket(id, weight, bucket, update_weight_sets) > 0,
            );
        }
        if changed == 0 {
            let message = format!("item {id} is not in {location:?}");
            return Err(CrushError::new(ErrorKind::NotFound, message));
        }
        Ok(changed)
    }

    /// Sets the weight of an item in one bucket, and of the buckets above; gives how often
    /// the bucket has it.
    pub(crate) fn adjust_item_weight_in_bucket(
        &mut self,
        id: i32,
        weight: u32,
        bucket_id: i32,
        update_weight_sets: bool,
    ) -> usize {
        let version = self.straw_version();
        let Some(bucket) = self.bucket(bucket_id) else { return 0 };
        let times = bucket.items.iter().filter(|i| **i == id).count();
        for _ in 0..times {
            if update_weight_sets {
                let at = self.bucket(bucket_id).and_then(|b| b.position(id)).expect("counted");
                for args in self.choose_args.values_mut() {
                    for weights in
                        args.get_mut(bucket_id).map_or(&mut [][..], |a| &mut a.weight_set)
                    {
                        if let Some(w) = weights.get_mut(at) {
                            *w = weight;
                        }
                    }
                }
            }
            let bucket = self.bucket_mut(bucket_id).expect("looked up above");
            bucket.set_item_weight(id, weight, version);
            let sum = bucket.weight;
            let _ = self.adjust_item_weight(bucket_id, sum, false);
        }
        // Weight sets keep adding up, whether the item was there or not.
        let sets: Vec<i64> = self.choose_args.keys().copied().collect();
        for set in sets {
            let arg = self.choose_args.get(&set).and_then(|args| args.get(bucket_id));
            let Some(arg) = arg.filter(|a| !a.weight_set.is_empty()) else { continue };
            let sums = sums(arg);
            let _ = self.choose_args_adjust_item_weight(set, bucket_id, &sums);
        }
        times
    }

    /// Sets the weight of every device beneath `id`, and of all buckets on the way.
    ///
    /// # Errors
    /// `ENOENT` when `id` is no bucket.
    pub fn adjust_subtree_weight(
        &mut self,
        id: i32,
        weight: u32,
        update_weight_sets: bool,
    ) -> Result<usize, CrushError> {
        if self.bucket(id).is_none() {
            let message = format!("bucket {id} does not exist");
            return Err(CrushError::new(ErrorKind::NotFound, message));
        }
        let mut changed = 0;
        let mut open = std::collections::VecDeque::from([id]);
        while let Some(at) = open.pop_front() {
            let items = self.bucket(at).map(|b| b.items.clone()).unwrap_or_default();
            for item in items {
                if item >= 0 {
                    self.adjust_item_weight_in_bucket(item, weight, at, update_weight_sets);
                    changed += 1;
                } else if self.bucket(item).is_some() {
                    open.push_back(item);
                }
            }
        }
        self.rebuild_roots_with_classes()?;
        Ok(changed)
    }

    /// Sums up all buckets anew from their devices' weights.
    ///
    /// # Errors
    /// `ERANGE` when a sum does not fit.
    pub fn reweight(&mut self) -> Result<(), CrushError> {
        for root in self.nonshadow_roots() {
            self.reweight_bucket(root)?;
            let sets: Vec<i64> = self.choose_args.keys().copied().collect();
            for set in sets {
                self.reweight_weight_set(set, root);
            }
        }
        self.rebuild_roots_with_classes()
    }

    fn reweight_bucket(&mut self, id: i32) -> Result<(), CrushError> {
        let Some(bucket) = self.bucket(id) else { return Ok(()) };
        let below: Vec<i32> = bucket.items.iter().copied().filter(|i| *i < 0).collect();
        for item in below {
            self.reweight_bucket(item)?;
        }
        let version = self.straw_version();
        let mut bucket = self.bucket(id).expect("looked up above").clone();
        bucket.reweight(|item| self.bucket(item).map(|b| b.weight), version)?;
        *self.bucket_mut(id).expect("looked up above") = bucket;
        Ok(())
    }

    /// Sums up a weight set beneath `id`; gives the sum per position.
    fn reweight_weight_set(&mut self, set: i64, id: i32) -> Vec<u32> {
        let items = self.bucket(id).map(|b| b.items.clone()).unwrap_or_default();
        let positions = |map: &Self, id| {
            map.choose_args.get(&set).and_then(|a| a.get(id)).map_or(0, |a| a.weight_set.len())
        };
        let n = positions(self, id);
        let mut sums = vec![0u32; n];
        for (i, item) in items.into_iter().enumerate() {
            let below = (item < 0).then(|| self.reweight_weight_set(set, item));
            let arg = self.choose_args.get_mut(&set).and_then(|a| a.get_mut(id));
            let Some(arg) = arg else { continue };
            for (pos, sum) in sums.iter_mut().enumerate() {
                // The peer reads and writes the first position here for all of them.
                let Some(weight) = arg.weight_set[0].get_mut(i) else { continue };
                if let Some(below) = &below {
                    *weight = below.get(pos).copied().unwrap_or(0);
                }
                *sum = sum.wrapping_add(*weight);
            }
        }
        sums
    }

    /// Makes weight set `id` with `positions` positions, equal to the buckets' weights;
    /// false when it is there already. ([`crate::DEFAULT_CHOOSE_ARGS`] for the compat one.)
    pub fn create_choose_args(&mut self, id: i64, positions: usize) -> bool {
        if self.choose_args.contains_key(&id) || positions == 0 {
            return false;
        }
        let arg = |bucket: &Option<crate::Bucket>| match bucket {
            Some(b) if b.alg() == BucketAlg::Straw2 => {
                let weights = (0..b.items.len()).map(|i| b.item_weight(i)).collect();
                ChooseArg { weight_set: vec![weights; positions], ids: Vec::new() }
            }
            _ => ChooseArg::default(),
        };
        let args = self.buckets.iter().map(arg).collect();
        self.choose_args.insert(id, crate::ChooseArgs { args });
        true
    }

    /// Drops weight set `id`.
    pub fn remove_choose_args(&mut self, id: i64) -> bool {
        self.choose_args.remove(&id).is_some()
    }

    /// Drops all weight sets.
    pub fn clear_choose_args(&mut self) {
        self.choose_args.clear();
    }

    /// Sets an item's weight, per position, in a weight set, and those of the buckets
    /// above. Buckets that have no weights in the set get their own.
    ///
    /// # Errors
    /// `ENOENT` when nothing changed.
    pub fn choose_args_adjust_item_weight(
        &mut self,
        set: i64,
        id: i32,
        weight: &[u32],
    ) -> Result<usize, CrushError> {
        let mut changed = 0;
        if self.choose_args.contains_key(&set) {
            for at in 0..self.buckets.len() {
                if self.buckets[at].is_some() {
                    changed += self.choose_args_adjust_in(set, -1 - at as i32, id, weight);
                }
            }
        }
        if changed == 0 {
            let message = format!("item {id} not found in crush map");
            return Err(CrushError::new(ErrorKind::NotFound, message));
        }
        Ok(changed)
    }

    fn choose_args_adjust_in(&mut self, set: i64, at: i32, id: i32, weight: &[u32]) -> usize {
        let mut changed = 0;
        let (Some(args), Some(bucket)) = (self.choose_args.get_mut(&set), {
            self.buckets.get(crate::model::slot(at).unwrap_or(usize::MAX)).and_then(Option::as_ref)
        }) else {
            return 0;
        };
        let positions = args.positions();
        let arg = args.slot_mut(at);
        if arg.weight_set.is_empty() {
            let weights = (0..bucket.items.len()).map(|i| bucket.item_weight(i)).collect();
            arg.weight_set = vec![weights; positions];
            changed += 1;
        }
        if arg.weight_set.len() != weight.len() {
            return 0;
        }
        for (i, _) in bucket.items.iter().enumerate().filter(|(_, item)| **item == id) {
            for (weights, weight) in arg.weight_set.iter_mut().zip(weight) {
                if let Some(w) = weights.get_mut(i) {
                    *w = *weight;
                }
            }
            changed += 1;
        }
        if changed > 0 {
            let sums = sums(arg);
            let _ = self.choose_args_adjust_item_weight(set, at, &sums);
        }
        changed
    }
}

fn sums(arg: &ChooseArg) -> Vec<u32> {
    let sum = |weights: &Vec<u32>| weights.iter().fold(0u32, |sum, w| sum.wrapping_add(*w));
    arg.weight_set.iter().map(sum).collect()
}
