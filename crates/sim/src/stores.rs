//! What is under an OSD: the store in memory, or the real one over a disk in memory.

use std::sync::MutexGuard;

use osd::memory::{Collection, Inner, MemStore};
use osd::{Coll, ObjectStore};

use crate::real::RealStore;

/// An OSD's store, shared with it.
#[derive(Clone)]
pub enum OsdStore {
    /// In memory, flushed as the world says.
    Memory(MemStore),
    /// The real one.
    Real(RealStore),
}

impl OsdStore {
    /// As the OSD has it.
    #[must_use]
    pub fn backing(&self) -> Box<dyn ObjectStore> {
        match self {
            Self::Memory(store) => Box::new(store.clone()),
            Self::Real(store) => Box::new(store.clone()),
        }
    }

    /// The one in memory.
    ///
    /// # Panics
    /// When it is the real one.
    pub fn memory(&self) -> MutexGuard<'_, Inner> {
        match self {
            Self::Memory(store) => store.lock(),
            Self::Real(_) => panic!("this is played with the store in memory only"),
        }
    }

    /// The real one, where it is that.
    #[must_use]
    pub fn real(&self) -> Option<&RealStore> {
        match self {
            Self::Memory(_) => None,
            Self::Real(store) => Some(store),
        }
    }

    /// Its collections.
    #[must_use]
    pub fn collections(&self) -> Vec<Coll> {
        match self {
            Self::Memory(store) => store.lock().now.keys().copied().collect(),
            Self::Real(store) => store.collections(),
        }
    }

    /// Shows a collection, where there is one.
    pub fn with<T>(&self, c: Coll, f: impl FnOnce(Option<&Collection>) -> T) -> T {
        match self {
            Self::Memory(store) => f(store.lock().now.get(&c)),
            Self::Real(store) => f(store.collection(c).as_deref()),
        }
    }

    /// Whether its disk may stop its OSD, for want of space or by failing.
    #[must_use]
    pub fn is_in_trouble(&self) -> bool {
        match self {
            Self::Memory(store) => store.lock().capacity.is_some(),
            Self::Real(store) => store.is_in_trouble(),
        }
    }

    /// Objects whose data cannot be read.
    #[must_use]
    pub fn unreadable(&self) -> usize {
        match self {
            Self::Memory(store) => store.lock().damaged.len(),
            Self::Real(store) => store.unreadable(),
        }
    }
}
