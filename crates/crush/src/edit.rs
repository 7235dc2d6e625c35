//! Moving things about: what `osd crush add`, `move`, `link`, `rm` and their kin do.
//!
//! Source: the peer's `CrushWrapper`; the order of effects is kept, since it decides the
//! ids of new buckets.

use crate::error::{CrushError, ErrorKind};
use crate::model::{Bucket, BucketAlg, CrushMap, Weights};
use crate::query::{Location, is_valid_name};
use crate::weight::through_float;

fn invalid(message: impl Into<String>) -> CrushError {
    CrushError::new(ErrorKind::Invalid, message)
}

fn check_name(name: &str) -> Result<(), CrushError> {
    if is_valid_name(name) {
        return Ok(());
    }
    Err(invalid(format!("'{name}' does not match [-_.0-9a-zA-Z]+")))
}

fn check_location(location: &Location) -> Result<(), CrushError> {
    location.iter().try_for_each(|(kind, name)| check_name(kind).and(check_name(name)))
}

impl CrushMap {
    /// Names a type.
    pub fn set_type_name(&mut self, kind: u16, name: &str) {
        self.types.set(kind.into(), name);
    }

    /// Names an item.
    ///
    /// # Errors
    /// `EINVAL` for a name that may not be given, or a device id out of range.
    pub fn set_item_name(&mut self, id: i32, name: &str) -> Result<(), CrushError> {
        check_name(name)?;
        if id >= crate::DEVICES_MAX {
            return Err(invalid(format!("device id {id} is out of range")));
        }
        self.names.set(id, name);
        Ok(())
    }

    /// Makes a bucket, in the slot of `id` or in the first free one, and gives its id. The
    /// algorithm is by default the best that is allowed.
    ///
    /// # Errors
    /// `EEXIST` for an id in use; `EINVAL` when no algorithm is allowed; `ERANGE` for
    /// weights that do not add up; `ELOOP` for buckets that stand in one another.
    pub fn add_bucket(
        &mut self,
        id: Option<i32>,
        alg: Option<BucketAlg>,
        kind: u16,
        items: &[(i32, u32)],
    ) -> Result<i32, CrushError> {
        let alg = alg.or_else(|| self.default_bucket_alg());
        let alg = alg.ok_or_else(|| invalid("no bucket algorithm is allowed"))?;
        let version = self.tunables.straw_calc_version;
        let bucket = Bucket::new(alg, 0, kind, items, version)?;
        self.add_made_bucket(id, bucket)
    }

    /// Places a bucket, with its weights in every weight set.
    pub(crate) fn add_made_bucket(
        &mut self,
        id: Option<i32>,
        bucket: Bucket,
    ) -> Result<i32, CrushError> {
        let weights: Vec<u32> = (0..bucket.items.len()).map(|i| bucket.item_weight(i)).collect();
        let id = self.place_bucket(id.unwrap_or(0), bucket)?;
        for args in self.choose_args.values_mut() {
            if !weights.is_empty() {
                let positions = args.positions();
                args.slot_mut(id).weight_set = vec![weights.clone(); positions];
            }
        }
        Ok(id)
    }

    /// Makes an empty bucket with a name, at no place: `osd crush add-bucket`.
    ///
    /// # Errors
    /// `EEXIST` for a name in use; `EINVAL` for a bad one or an unknown type, or for type 0.
    pub fn add_named_bucket(&mut self, name: &str, kind: &str) -> Result<i32, CrushError> {
        check_name(name)?;
        if self.names.id(name).is_some() {
            return Err(CrushError::new(ErrorKind::Exists, format!("'{name}' already exists")));
        }
        let kind = self.types.id(kind).and_then(|k| u16::try_from(k).ok()).filter(|k| *k > 0);
        let kind = kind.ok_or_else(|| invalid("not the type of a bucket"))?;
        let id = self.add_bucket(None, None, kind, &[])?;
        self.names.set(id, name);
        Ok(id)
    }

    /// Turns every straw bucket into a straw2 bucket with the same items and weights.
    pub fn straw_to_straw2(&mut self) {
        for bucket in self.buckets.iter_mut().flatten() {
            if let Weights::Straw { items, .. } = &mut bucket.weights {
                bucket.weights = Weights::Straw2 { items: std::mem::take(items) };
            }
        }
    }

    /// Appends an item to a bucket and to its weight sets; buckets above are not changed.
    fn bucket_add_item(&mut self, id: i32, item: i32, weight: u32) -> Result<(), CrushError> {
        let version = self.tunables.straw_calc_version;
        let bucket = self.bucket_mut(id).ok_or_else(|| invalid("no such bucket"))?;
        bucket.add_item(item, weight, version)?;
        for args in self.choose_args.values_mut() {
            if let Some(arg) = args.get_mut(id) {
                arg.weight_set.iter_mut().for_each(|weights| weights.push(weight));
                if !arg.ids.is_empty() {
                    arg.ids.push(item);
                }
            }
        }
        Ok(())
    }

    /// Takes an item out of a bucket and of its weight sets; buckets above are not changed.
    fn bucket_remove_item(&mut self, id: i32, item: i32) {
        let version = self.tunables.straw_calc_version;
        let Some(bucket) = self.bucket_mut(id) else { return };
        let Some(at) = bucket.position(item) else { return };
        let size = bucket.items.len();
        bucket.remove_item(item, version);
        let left = bucket.items.len();
        if left == size {
            return; // a tree keeps the place
        }
        for args in self.choose_args.values_mut() {
            if let Some(arg) = args.get_mut(id) {
                for weights in &mut arg.weight_set {
                    if at < weights.len() {
                        weights.remove(at);
                    }
                    weights.truncate(left);
                }
                if at < arg.ids.len() {
                    arg.ids.remove(at);
                }
                arg.ids.truncate(left);
            }
        }
    }

    /// Puts an item where `location` says: into the innermost bucket that it names, which
    /// is made if it is not there, as are those further out up to the first that is. With
    /// `init_weight_sets`, a device has its weight in weight sets as well, else 0.
    ///
    /// # Errors
    /// `EEXIST` when the name is another item's; `EINVAL` when the place makes no sense or
    /// has it already; `ELOOP` for a bucket beneath itself; `EOVERFLOW` by weight.
    pub fn insert_item(
        &mut self,
        item: i32,
        weight: u32,
        name: &str,
        location: &Location,
        init_weight_sets: bool,
    ) -> Result<(), CrushError> {
        check_name(name)?;
        check_location(location)?;
        if item >= crate::DEVICES_MAX {
            return Err(invalid(format!("device id {item} is out of range")));
        }
        match self.names.id(name) {
            Some(known) if known != item => {
                let message = format!("name '{name}' already exists as id {known}");
                return Err(CrushError::new(ErrorKind::Exists, message));
            }
            Some(_) => {}
            None => self.names.set(item, name),
        }
        let mut at = item;
        let types: Vec<(i32, String)> = self.types.iter().map(|(n, t)| (n, t.to_owned())).collect();
        for (kind, type_name) in &types {
            let Some(name) = location.get(type_name).filter(|_| *kind != 0) else { continue };
            let kind = u16::try_from(*kind).map_err(|_| invalid("a type out of range"))?;
            let Some(id) = self.names.id(name) else {
                at = self.add_bucket(None, None, kind, &[(at, 0)])?;
                self.names.set(at, name.as_str());
                continue;
            };
            let Some(bucket) = self.bucket(id) else {
                return Err(invalid(format!("'{name}' is not a bucket")));
            };
            let bucket_kind = bucket.kind;
            if self.subtree_contains(id, at) {
                return Err(invalid(format!("item {at} already exists beneath {id}")));
            }
            if bucket_kind != kind {
                let is = self.type_name(bucket_kind).unwrap_or("?");
                return Err(invalid(format!("'{name}' has type '{is}', not '{type_name}'")));
            }
            if self.subtree_contains(at, id) {
                let message = format!("{at} already contains {id}; cannot form loop");
                return Err(CrushError::new(ErrorKind::Loop, message));
            }
            self.bucket_add_item(id, at, 0)?;
            break;
        }
        let sets = item >= 0 && init_weight_sets;
        if self.adjust_item_weight_in_loc(item, weight, location, sets).is_err() {
            return Err(invalid(format!("didn't find anywhere to add item {item}")));
        }
        self.check_shape().map_err(invalid)?;
        self.max_devices = self.max_devices.max(item.saturating_add(1));
        self.rebuild_roots_with_classes()
    }

    /// Moves a bucket.
    ///
    /// # Errors
    /// `EINVAL` for a device, `ENOENT` for what is not there, and those of
    /// [`CrushMap::insert_item`].
    pub fn move_bucket(&mut self, id: i32, location: &Location) -> Result<(), CrushError> {
        let (name, weight) = self.named_bucket(id)?;
        let parent = self.parent(id).map(Bucket::id);
        if let Some(parent) = parent {
            self.adjust_item_weight_in_bucket(id, 0, parent, true);
            self.bucket_remove_item(parent, id);
        }
        self.insert_item(id, through_float(weight), &name, location, false)
    }

    /// Puts a bucket at one more place.
    ///
    /// # Errors
    /// As [`CrushMap::move_bucket`].
    pub fn link_bucket(&mut self, id: i32, location: &Location) -> Result<(), CrushError> {
        let (name, weight) = self.named_bucket(id)?;
        self.insert_item(id, through_float(weight), &name, location, true)
    }

    fn named_bucket(&self, id: i32) -> Result<(String, u32), CrushError> {
        if id >= 0 {
            return Err(invalid(format!("item {id} is not a bucket")));
        }
        match (self.names.get(id), self.bucket(id)) {
            (Some(name), Some(bucket)) => Ok((name.to_owned(), bucket.weight)),
            _ => {
                let message = format!("bucket {id} does not exist");
                Err(CrushError::new(ErrorKind::NotFound, message))
            }
        }
    }

    /// Exchanges what two buckets have: items, weights and names; ids stay.
    ///
    /// # Errors
    /// `EINVAL` when one is no bucket or above the other.
    pub fn swap_bucket(&mut self, a: i32, b: i32) -> Result<(), CrushError> {
        let (_, a_weight) = self.named_bucket(a).map_err(|e| invalid(e.message))?;
        let (_, b_weight) = self.named_bucket(b).map_err(|e| invalid(e.message))?;
        let above = |child, of| {
            let mut at = self.parent(child);
            while let Some(parent) = at {
                if parent.id == of {
                    return true;
                }
                at = self.parent(parent.id);
            }
            false
        };
        if a == b || above(a, b) || above(b, a) {
            return Err(invalid("one bucket is above the other"));
        }
        let _ = self.adjust_item_weight(a, b_weight, true);
        let _ = self.adjust_item_weight(b, a_weight, true);
        let take = |map: &mut Self, id| {
            let bucket = map.bucket(id).expect("a named bucket");
            let items: Vec<(i32, u32)> =
                bucket.items.iter().enumerate().map(|(i, x)| (*x, bucket.item_weight(i))).collect();
            for (item, _) in &items {
                map.bucket_remove_item(id, *item);
            }
            items
        };
        let mut of_a = take(self, a);
        of_a.sort_by_key(|(item, _)| *item); // the peer keeps these in a map
        of_a.dedup_by_key(|(item, _)| *item);
        let of_b = take(self, b);
        for (item, weight) in of_b {
            self.bucket_add_item(a, item, weight)?;
        }
        for (item, weight) in of_a {
            self.bucket_add_item(b, item, weight)?;
        }
        self.check_shape().map_err(invalid)?;
        let (a_name, b_name) = (self.names.get(a), self.names.get(b));
        let names = (a_name.unwrap_or("").to_owned(), b_name.unwrap_or("").to_owned());
        self.names.set(a, names.1);
        self.names.set(b, names.0);
        self.rebuild_roots_with_classes()
    }

    /// Puts an item where `location` says unless it is there; one that is elsewhere keeps
    /// its weight. Gives whether anything changed.
    ///
    /// # Errors
    /// Those of [`CrushMap::insert_item`].
    pub fn create_or_move_item(
        &mut self,
        item: i32,
        weight: u32,
        name: &str,
        location: &Location,
        init_weight_sets: bool,
    ) -> Result<bool, CrushError> {
        check_name(name)?;
        if self.check_item_loc(item, location).is_some() {
            return Ok(false);
        }
        let mut weight = weight;
        if self.is_in_a_bucket(item) {
            weight = self.item_weight(item).map_or(weight, through_float);
            let _ = self.remove_item(item, true);
        }
        self.insert_item(item, weight, name, location, init_weight_sets)?;
        Ok(true)
    }

    /// Puts an item where `location` says, with that weight and name. Gives whether
    /// anything changed.
    ///
    /// # Errors
    /// Those of [`CrushMap::insert_item`].
    pub fn update_item(
        &mut self,
        item: i32,
        weight: u32,
        name: &str,
        location: &Location,
    ) -> Result<bool, CrushError> {
        check_name(name)?;
        check_location(location)?;
        let Some(old) = self.check_item_loc(item, location) else {
            if self.names.contains(item) {
                let _ = self.remove_item(item, true);
            }
            self.insert_item(item, weight, name, location, true)?;
            return Ok(true);
        };
        let mut changed = false;
        if old != weight {
            self.adjust_item_weight_in_loc(item, weight, location, true)?;
            self.rebuild_roots_with_classes()?;
            changed = true;
        }
        if self.names.get(item) != Some(name) {
            self.names.set(item, name);
            changed = true;
        }
        Ok(changed)
    }

    /// Takes an item out of all buckets, and forgets it; with `unlink_only`, a bucket
    /// stays, at no place.
    ///
    /// # Errors
    /// `ENOENT` when it is nowhere, `ENOTEMPTY` for a bucket with items, `EBUSY` for one
    /// that a rule or class uses.
    pub fn remove_item(&mut self, item: i32, unlink_only: bool) -> Result<(), CrushError> {
        if item < 0 && !unlink_only {
            self.check_removable(item)?;
            if self.bucket_is_in_use(item) {
                let message = format!("bucket {item} is in use");
                return Err(CrushError::new(ErrorKind::Busy, message));
            }
        }
        let mut found = false;
        for at in 0..self.buckets.len() {
            found |= self.remove_from(-1 - at as i32, item);
        }
        if self.maybe_remove_last_instance(item, unlink_only)? || found {
            return Ok(());
        }
        Err(CrushError::new(ErrorKind::NotFound, format!("item {item} does not exist")))
    }

    fn check_removable(&self, item: i32) -> Result<(), CrushError> {
        match self.bucket(item) {
            None => {
                let message = format!("bucket {item} does not exist");
                Err(CrushError::new(ErrorKind::NotFound, message))
            }
            Some(bucket) if !bucket.items.is_empty() => {
                let message = format!("bucket {item} has {} items", bucket.items.len());
                Err(CrushError::new(ErrorKind::NotEmpty, message))
            }
            Some(_) => Ok(()),
        }
    }

    /// Takes all instances of `item` out of one bucket.
    fn remove_from(&mut self, bucket: i32, item: i32) -> bool {
        let mut found = false;
        let mut i = 0;
        while let Some(id) = self.bucket(bucket).and_then(|b| b.items.get(i)).copied() {
            if id == item {
                self.adjust_item_weight_in_bucket(item, 0, bucket, true);
                self.bucket_remove_item(bucket, item);
                found = true;
            }
            i += 1;
        }
        found
    }

    /// As [`CrushMap::remove_item`], but only beneath `ancestor`.
    ///
    /// # Errors
    /// As there, and `EINVAL` when `ancestor` is no bucket.
    pub fn remove_item_under(
        &mut self,
        item: i32,
        ancestor: i32,
        unlink_only: bool,
    ) -> Result<(), CrushError> {
        if !unlink_only && self.bucket_is_in_use(item) {
            return Err(CrushError::new(ErrorKind::Busy, format!("bucket {item} is in use")));
        }
        if self.bucket(ancestor).is_none() {
            return Err(invalid(format!("bucket {ancestor} does not exist")));
        }
        let mut found = false;
        let mut i = 0;
        while let Some(id) = self.bucket(ancestor).and_then(|b| b.items.get(i)).copied() {
            if id == item {
                self.adjust_item_weight_in_bucket(item, 0, ancestor, true);
                self.bucket_remove_item(ancestor, item);
                found = true;
            } else if id < 0 {
                found |= self.remove_item_under(item, id, unlink_only).is_ok();
            }
            i += 1;
        }
        if !found {
            let message = format!("item {item} is not beneath {ancestor}");
            return Err(CrushError::new(ErrorKind::NotFound, message));
        }
        if item < 0 && !unlink_only {
            self.check_removable(item)?;
        }
        self.maybe_remove_last_instance(item, unlink_only)?;
        Ok(())
    }

    /// Forgets an item that is in no bucket any more.
    fn maybe_remove_last_instance(
        &mut self,
        item: i32,
        unlink_only: bool,
    ) -> Result<bool, CrushError> {
        if self.is_in_a_bucket(item) || (item < 0 && self.bucket_is_in_use(item)) {
            return Ok(false);
        }
        if item < 0 && !unlink_only {
            self.drop_bucket(item);
            self.fit_choose_args();
        }
        if (item >= 0 || !unlink_only) && self.names.contains(item) {
            self.names.remove(item);
            if item >= 0 && !unlink_only {
                self.class_of.remove(&item);
            }
        }
        self.rebuild_roots_with_classes()?;
        Ok(true)
    }

    fn drop_bucket(&mut self, id: i32) {
        if let Some(bucket) = crate::model::slot(id).and_then(|at| self.buckets.get_mut(at)) {
            *bucket = None;
        }
        self.class_buckets.remove(&id);
        self.class_of.remove(&id);
    }

    /// Drops a bucket and all beneath it, with their names.
    pub(crate) fn remove_root(&mut self, id: i32) {
        let Some(bucket) = self.bucket(id) else { return };
        let below: Vec<i32> = bucket.items.iter().copied().filter(|i| *i < 0).collect();
        for item in below {
            self.remove_root(item);
        }
        self.drop_bucket(id);
        self.names.remove(id);
    }

    /// Whether a rule takes the bucket or one of its shadow buckets, or it is a shadow
    /// bucket itself.
    #[must_use]
    pub fn bucket_is_in_use(&self, item: i32) -> bool {
        if self.class_buckets.values().any(|shadows| shadows.values().any(|s| *s == item)) {
            return true;
        }
        for (id, _) in self.rules() {
            let steps = &self.rule(id).expect("iterated").steps;
            for step in steps.iter().filter(|s| s.known() == Some(crate::Op::Take)) {
                match self.split_id_class(step.arg1) {
                    Err(_) => return false,
                    Ok((original, _)) if step.arg1 == item || original == item => return true,
                    Ok(_) => {}
                }
            }
        }
        false
    }

    /// Renames any item.
    ///
    /// # Errors
    /// `ENOENT`, `EEXIST`, `EALREADY` (the old name is gone and the new one is there) and
    /// `EINVAL`, as `osd crush rename-bucket` tells them apart.
    pub fn rename_item(&mut self, from: &str, to: &str) -> Result<(), CrushError> {
        self.can_rename_item(from, to)?;
        let id = self.names.id(from).expect("checked");
        self.set_item_name(id, to)
    }

    fn can_rename_item(&self, from: &str, to: &str) -> Result<(), CrushError> {
        let (kind, message) = match (self.names.id(from).is_some(), self.names.id(to).is_some()) {
            (true, true) => (ErrorKind::Exists, format!("dstname = '{to}' already exists")),
            (true, false) if is_valid_name(to) => return Ok(()),
            (true, false) => {
                (ErrorKind::Invalid, format!("dstname = '{to}' does not match [-_.0-9a-zA-Z]+"))
            }
            (false, true) => (
                ErrorKind::Already,
                format!("srcname = '{from}' does not exist and dstname = '{to}' already exists"),
            ),
            (false, false) => (ErrorKind::NotFound, format!("srcname = '{from}' does not exist")),
        };
        Err(CrushError::new(kind, message))
    }

    /// Renames a bucket.
    ///
    /// # Errors
    /// Those of [`CrushMap::rename_item`], and `ENOTDIR` for a device.
    pub fn rename_bucket(&mut self, from: &str, to: &str) -> Result<(), CrushError> {
        self.can_rename_item(from, to)?;
        let id = self.names.id(from).expect("checked");
        if id >= 0 {
            let message =
                format!("srcname = '{from}' is not a bucket because its id = {id} is >= 0");
            return Err(CrushError::new(ErrorKind::NotABucket, message));
        }
        self.set_item_name(id, to)
    }
}
