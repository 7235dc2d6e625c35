//! A bounded cache of two generations: what is used stays, a scan passes through.

use std::hash::Hash;

use stdx::FastMap;

pub(crate) struct Cache<K, V> {
    young: FastMap<K, (V, u64)>,
    old: FastMap<K, (V, u64)>,
    young_bytes: u64,
    limit: u64,
}

impl<K: Hash + Eq + Clone, V: Clone> Cache<K, V> {
    /// Holds about `limit` bytes at most.
    pub fn new(limit: u64) -> Self {
        Self { young: FastMap::default(), old: FastMap::default(), young_bytes: 0, limit }
    }

    /// From now on about so many.
    pub fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    pub fn get(&mut self, key: &K) -> Option<V> {
        if let Some((v, _)) = self.young.get(key) {
            return Some(v.clone());
        }
        let (k, (v, bytes)) = self.old.remove_entry(key)?;
        self.put(k, v.clone(), bytes);
        Some(v)
    }

    pub fn put(&mut self, key: K, value: V, bytes: u64) {
        if self.young_bytes + bytes > self.limit / 2 {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        if let Some((_, before)) = self.young.insert(key, (value, bytes)) {
            self.young_bytes -= before;
        }
        self.young_bytes += bytes;
    }

    /// What was there is there no longer.
    pub fn take(&mut self, key: &K) -> Option<V> {
        if let Some((v, bytes)) = self.young.remove(key) {
            self.young_bytes -= bytes;
            self.old.remove(key);
            return Some(v);
        }
        self.old.remove(key).map(|(v, _)| v)
    }
}
