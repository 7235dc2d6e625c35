//! What PGs, pools and OSDs count.

mod objects;

pub use objects::{ObjectStatCollection, ObjectStatSum, PoolStat, StoreStatfs};
