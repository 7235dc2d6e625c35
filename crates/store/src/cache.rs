//! A bounded cache of two generations: what is used stays, a scan passes through.

use std::hash::Hash;

use stdx::FastMap;

pub(crate) struct Cache<K, V> {
    young: FastMap<K, (V, u64)>,
    old: FastMap<K, (V, u64)>,
    young_bytes: u64,
    old_bytes: u64,
    limit: u64,
}

impl<K: Hash + Eq + Clone, V: Clone> Cache<K, V> {
    /// Holds about `limit` bytes at most.
    pub fn new(limit: u64) -> Self {
        let (young, old) = (FastMap::default(), FastMap::default());
        Self { young, old, young_bytes: 0, old_bytes: 0, limit }
    }

    /// What is held: how many, and their bytes.
    pub fn held(&self) -> (usize, u64) {
        (self.young.len() + self.old.len(), self.young_bytes + self.old_bytes)
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
        self.old_bytes -= bytes;
        self.put(k, v.clone(), bytes);
        Some(v)
    }

    pub fn put(&mut self, key: K, value: V, bytes: u64) {
        if self.young_bytes + bytes > self.limit / 2 {
            self.old = std::mem::take(&mut self.young);
            self.old_bytes = std::mem::take(&mut self.young_bytes);
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
            self.forget_old(key);
            return Some(v);
        }
        self.forget_old(key)
    }

    fn forget_old(&mut self, key: &K) -> Option<V> {
        let (v, bytes) = self.old.remove(key)?;
        self.old_bytes -= bytes;
        Some(v)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said to be held is what is there.
    #[test]
    fn held_bytes_are_those_of_what_is_there() {
        let mut cache = Cache::new(100);
        let there = |c: &Cache<u32, u32>| {
            let all = c.young.values().chain(c.old.values());
            (c.young.len() + c.old.len(), all.map(|(_, bytes)| bytes).sum::<u64>())
        };
        for i in 0..200u32 {
            let key = i * 7 % 13;
            match i % 4 {
                0 | 1 => cache.put(key, i, u64::from(i % 9) + 1),
                2 => drop(cache.get(&key)),
                _ => drop(cache.take(&key)),
            }
            assert_eq!(cache.held(), there(&cache), "after step {i}");
        }
        assert!(cache.held().1 > 0);
    }
}
