//! What the standard library lacks and every layer needs: CRC-32C in the peer's
//! convention, sets of intervals, maps with a fast hash. No I/O, no clock, no dependency on our other crates.

mod crc;
mod interval_set;
mod map;

pub use crc::{crc32c, crc32c_combine};
pub use interval_set::IntervalSet;
pub use map::{FastMap, FastSet};
