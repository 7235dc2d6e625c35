//! The newest monitor map that a monitor has seen, kept beside its log.
//!
//! A monitor that starts knows its last snapshot and what of its log it knows to be committed.
//! Both can be older than the map that added it, so neither has to tell where it listens or
//! where the others are by now.

use bytes::Bytes;
use denc::{DecodeError, Denc};
use maps::MonMap;
use types::AddrVec;

/// See the module's page.
#[derive(Debug)]
pub struct KnownMap {
    map: MonMap,
    /// The state's own, where it was older than what was kept.
    older: Option<MonMap>,
    unsaved: bool,
}

impl KnownMap {
    /// The newer one of the state's map and of the `kept` one ([`KnownMap::to_save`]).
    ///
    /// # Errors
    /// When `kept` is no monitor map.
    pub fn new(state: &MonMap, kept: Option<&Bytes>) -> Result<Self, DecodeError> {
        let kept = kept.map(MonMap::from_shared).transpose()?;
        match kept.filter(|k| k.fsid == state.fsid && k.epoch >= state.epoch) {
            Some(map) => Ok(Self { map, older: Some(state.clone()), unsaved: false }),
            None => Ok(Self { map: state.clone(), older: None, unsaved: true }),
        }
    }

    /// Takes a map of the state over where it is newer.
    pub fn see(&mut self, state: &MonMap) {
        if state.epoch > self.map.epoch {
            *self = Self { map: state.clone(), older: None, unsaved: true };
        }
    }

    /// The bytes to keep where they changed since the last call.
    #[must_use]
    pub fn to_save(&mut self) -> Option<Bytes> {
        std::mem::take(&mut self.unsaved).then(|| self.map.to_bytes())
    }

    /// The map.
    #[must_use]
    pub fn map(&self) -> &MonMap {
        &self.map
    }

    /// Where the monitor of this name listens: by the newest map that names it.
    #[must_use]
    pub fn addrs_of(&self, name: &str) -> Option<&AddrVec> {
        let named = |map: &'_ MonMap| map.mons.contains_key(name);
        let map = std::iter::once(&self.map).chain(&self.older).find(|map| named(map))?;
        map.mons.get(name).map(|info| &info.addrs)
    }
}
