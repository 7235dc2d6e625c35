//! Object classes that operators uploaded: kept here, sent to every OSD.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use denc::{DecodeError, Denc, Reader, Writer};

/// Modules in all, and their bytes together: each OSD has all of them in memory.
pub(crate) const MODULES_MAX: usize = 64;
pub(crate) const ALL_BYTES_MAX: usize = 32 << 20;

/// The modules, by the names of their classes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Classes {
    /// Changes so far: the version that OSDs subscribe to.
    pub version: u64,
    /// Those that are here now.
    pub modules: BTreeMap<String, ClassModule>,
}

/// A module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassModule {
    /// The change that brought it.
    pub version: u64,
    /// Its bytes; they were checked when they came.
    pub code: Bytes,
}

impl Classes {
    /// Takes a module, or removes it.
    pub(crate) fn set(&mut self, name: &str, code: Option<&Bytes>) {
        self.version += 1;
        match code {
            Some(code) => {
                let module = ClassModule { version: self.version, code: code.clone() };
                self.modules.insert(name.to_owned(), module);
            }
            None => {
                self.modules.remove(name);
            }
        }
    }

    /// Bytes of all but this one.
    pub(crate) fn bytes_without(&self, name: &str) -> usize {
        self.modules.iter().filter(|(n, _)| *n != name).map(|(_, m)| m.code.len()).sum()
    }

    /// What somebody must be told, message by message, who knows everything before version
    /// `from`: a module each, oldest first, since messages have a bound. Who has heard a part of
    /// them goes on behind the version of the last one heard.
    pub(crate) fn since(&self, from: u64) -> Vec<messages::ClassModules> {
        let mut new: Vec<_> = self.modules.iter().filter(|(_, m)| m.version >= from).collect();
        new.sort_by_key(|(_, m)| m.version);
        let present: BTreeSet<String> = self.modules.keys().cloned().collect();
        let mut all: Vec<_> = new
            .into_iter()
            .map(|(name, m)| messages::ClassModules {
                version: m.version,
                present: present.clone(),
                changed: [(name.clone(), m.code.clone())].into(),
            })
            .collect();
        match all.last_mut() {
            Some(last) => last.version = self.version,
            None => all.push(messages::ClassModules {
                version: self.version,
                present,
                changed: BTreeMap::new(),
            }),
        }
        all
    }
}

impl Denc for ClassModule {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.version);
        self.code.encode(w);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { version: r.u64()?, code: Denc::decode(r)? })
    }
}

impl Denc for Classes {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.version);
        self.modules.encode(w);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { version: r.u64()?, modules: Denc::decode(r)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever knows version `n` is told what came after it, and what is there at all.
    #[test]
    fn news_are_what_came_after() {
        let mut all = Classes::default();
        let code = |b: u8| Bytes::from(vec![b]);
        all.set("a", Some(&code(1)));
        all.set("b", Some(&code(2)));
        all.set("a", Some(&code(3)));
        all.set("b", None);
        all.set("c", Some(&code(4)));
        assert_eq!(all.version, 5);
        for (from, wanted) in [
            (0, vec![(3, "a"), (5, "c")]),
            (3, vec![(3, "a"), (5, "c")]),
            (4, vec![(5, "c")]),
            (5, vec![(5, "c")]),
        ] {
            let news = all.since(from);
            assert!(news.iter().all(|m| m.present.iter().eq(["a", "c"]) && m.changed.len() == 1));
            let told: Vec<(u64, &str)> = news
                .iter()
                .map(|m| (m.version, m.changed.keys().next().unwrap().as_str()))
                .collect();
            assert_eq!(told, wanted);
        }
        assert_eq!(all.bytes_without("a"), 1);
        all.set("c", None);
        let news = all.since(6);
        assert!(news.len() == 1 && news[0].version == 6 && news[0].changed.is_empty());
        assert_eq!(Classes::from_bytes(&all.to_bytes()), Ok(all));
    }
}
