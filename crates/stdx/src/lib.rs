//! What the standard library lacks and every layer needs: CRC-32C in the peer's
//! convention and sums that go with data, sets of intervals, maps with a fast hash. No I/O, no clock, no dependency on our other crates.

mod crc;
mod interval_set;
mod map;
mod say;
mod sums;
mod xxh;

pub use crc::{CRC_BLOCK, crc32c, crc32c_append_block, crc32c_combine};
pub use interval_set::IntervalSet;
pub use map::{FastMap, FastSet};
pub use say::SayBudget;
pub use sums::BlockSums;
pub use xxh::{xxh32, xxh64};
