//! Names of ids, searched both ways.

use std::collections::BTreeMap;

/// A map from ids to names that also finds ids by name. Names given by old maps may
/// collide; then the name finds the highest id that has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NameMap {
    by_id: BTreeMap<i32, String>,
    by_name: BTreeMap<String, i32>,
}

impl NameMap {
    /// The name of `id`.
    #[must_use]
    pub fn get(&self, id: i32) -> Option<&str> {
        self.by_id.get(&id).map(String::as_str)
    }

    /// The id named `name`.
    #[must_use]
    pub fn id(&self, name: &str) -> Option<i32> {
        self.by_name.get(name).copied()
    }

    /// Whether `id` has a name.
    #[must_use]
    pub fn contains(&self, id: i32) -> bool {
        self.by_id.contains_key(&id)
    }

    /// Ids and names in ascending order of ids.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (i32, &str)> + ExactSizeIterator {
        self.by_id.iter().map(|(id, name)| (*id, name.as_str()))
    }

    /// How many ids have names.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether no id has a name.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// The highest id that has a name.
    #[must_use]
    pub fn last_id(&self) -> Option<i32> {
        self.by_id.last_key_value().map(|(id, _)| *id)
    }

    /// Names `id`, in place of the name it had.
    pub(crate) fn set(&mut self, id: i32, name: impl Into<String>) {
        let name = name.into();
        self.remove(id);
        let known = self.by_name.entry(name.clone()).or_insert(id);
        *known = id.max(*known);
        self.by_id.insert(id, name);
    }

    /// Forgets the name of `id`.
    pub(crate) fn remove(&mut self, id: i32) {
        let Some(name) = self.by_id.remove(&id) else { return };
        if self.by_name.get(&name) == Some(&id) {
            // Another id may have the same name, in maps from before names were checked.
            let other = self.by_id.iter().rev().find(|(_, n)| **n == name).map(|(id, _)| *id);
            match other {
                Some(other) => self.by_name.insert(name, other),
                None => self.by_name.remove(&name),
            };
        }
    }
}

impl FromIterator<(i32, String)> for NameMap {
    fn from_iter<T: IntoIterator<Item = (i32, String)>>(iter: T) -> Self {
        let mut out = Self::default();
        for (id, name) in iter {
            out.set(id, name);
        }
        out
    }
}
