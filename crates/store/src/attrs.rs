//! An object's attributes, by name.
//!
//! Most objects have a few, which lie side by side. A client may give an object a million, one
//! at a time: then they are in a tree, so that one more costs no more than the one before; and what
//! they take in memory is known without a look at each.

use std::collections::BTreeMap;

use bytes::Bytes;
use denc::{DecodeError, Denc, Reader, Writer};

/// So many at most lie side by side.
const SMALL_MAX: usize = 32;
/// What one takes in memory beside its bytes, about.
const EACH: u64 = 64;

/// See above. Names are unique.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attrs {
    all: All,
    bytes: u64,
}

#[derive(Clone, Debug)]
enum All {
    /// Sorted by name.
    Few(Vec<(Bytes, Bytes)>),
    Many(BTreeMap<Bytes, Bytes>),
}

impl PartialEq for All {
    /// Whatever they lie in.
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for All {}

impl All {
    fn iter(&self) -> Box<dyn Iterator<Item = (&Bytes, &Bytes)> + '_> {
        match self {
            Self::Few(all) => Box::new(all.iter().map(|(k, v)| (k, v))),
            Self::Many(all) => Box::new(all.iter()),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Few(all) => all.len(),
            Self::Many(all) => all.len(),
        }
    }
}

impl Default for Attrs {
    fn default() -> Self {
        Self { all: All::Few(Vec::new()), bytes: 0 }
    }
}

fn cost(name: &[u8], value: &[u8]) -> u64 {
    (name.len() + value.len()) as u64 + EACH
}

impl Attrs {
    /// What they take in memory, about.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        self.all.iter()
    }

    pub fn get(&self, name: &[u8]) -> Option<&Bytes> {
        match &self.all {
            All::Few(all) => {
                let at = all.binary_search_by(|(k, _)| k.as_ref().cmp(name)).ok()?;
                Some(&all[at].1)
            }
            All::Many(all) => all.get(name),
        }
    }

    pub fn set(&mut self, name: Bytes, value: Bytes) {
        self.bytes += cost(&name, &value);
        let len = name.len();
        let before = match &mut self.all {
            All::Few(all) => match all.binary_search_by(|(k, _)| k.cmp(&name)) {
                Ok(at) => Some(std::mem::replace(&mut all[at].1, value)),
                Err(at) if all.len() < SMALL_MAX => {
                    all.insert(at, (name, value));
                    None
                }
                Err(_) => {
                    let mut many: BTreeMap<_, _> = std::mem::take(all).into_iter().collect();
                    many.insert(name, value);
                    self.all = All::Many(many);
                    None
                }
            },
            All::Many(all) => all.insert(name, value),
        };
        self.bytes -= before.map_or(0, |value| len as u64 + value.len() as u64 + EACH);
    }

    pub fn remove(&mut self, name: &[u8]) {
        let before = match &mut self.all {
            All::Few(all) => {
                let at = all.binary_search_by(|(k, _)| k.as_ref().cmp(name));
                at.ok().map(|at| all.remove(at).1)
            }
            All::Many(all) => all.remove(name),
        };
        self.bytes -= before.map_or(0, |value| cost(name, &value));
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

impl FromIterator<(Bytes, Bytes)> for Attrs {
    fn from_iter<I: IntoIterator<Item = (Bytes, Bytes)>>(all: I) -> Self {
        let mut attrs = Self::default();
        all.into_iter().for_each(|(k, v)| attrs.set(k, v));
        attrs
    }
}

/// As a list of pairs.
impl Denc for Attrs {
    fn encode(&self, w: &mut Writer) {
        w.u32(self.all.len() as u32);
        for (k, v) in self.iter() {
            k.encode(w);
            v.encode(w);
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let all: Vec<(Bytes, Bytes)> = Denc::decode(r)?;
        let bytes = all.iter().map(|(k, v)| cost(k, v)).sum();
        let sorted = all.windows(2).all(|w| w[0].0 < w[1].0);
        if !sorted {
            return Ok(all.into_iter().collect());
        }
        let all = match all.len() > SMALL_MAX {
            true => All::Many(all.into_iter().collect()),
            false => All::Few(all),
        };
        Ok(Self { all, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever is set and removed, they are what a map would be, encode as its pairs do, and
        /// know what they take.
        #[test]
        fn as_a_map(steps in proptest::collection::vec((0u8..80, proptest::option::of(0usize..9)), 0..300)) {
            let (mut attrs, mut map) = (Attrs::default(), BTreeMap::new());
            for (name, len) in steps {
                let name = Bytes::from(vec![name; 1 + name as usize % 3]);
                match len {
                    Some(len) => {
                        attrs.set(name.clone(), vec![7; len].into());
                        map.insert(name, Bytes::from(vec![7; len]));
                    }
                    None => {
                        attrs.remove(&name);
                        map.remove(&name);
                    }
                }
            }
            let pairs: Vec<(Bytes, Bytes)> = map.clone().into_iter().collect();
            prop_assert!(attrs.iter().map(|(k, v)| (k.clone(), v.clone())).eq(map.clone()));
            prop_assert!(map.iter().all(|(k, v)| attrs.get(k) == Some(v)));
            prop_assert_eq!(attrs.bytes(), map.iter().map(|(k, v)| cost(k, v)).sum::<u64>());
            prop_assert_eq!(attrs.to_bytes(), pairs.to_bytes());
            let read = Attrs::from_bytes(&attrs.to_bytes()).expect("just written");
            prop_assert_eq!(read.bytes(), attrs.bytes());
            prop_assert_eq!(read, attrs);
        }
    }
}
