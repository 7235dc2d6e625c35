//! Hash maps for what is looked up with every request.

use std::collections::{HashMap, HashSet};

/// A map whose hash costs less than the standard one's. Its seed is the process's own, so that
/// who chooses keys (names of objects) does not know which ones meet.
pub type FastMap<K, V> = HashMap<K, V, foldhash::quality::RandomState>;

/// As [`FastMap`].
pub type FastSet<K> = HashSet<K, foldhash::quality::RandomState>;
