//! The sums of large data that is in hand, while it is.
//!
//! Data passes through the roles as [`Bytes`] and nothing else. What is known of it is noted here
//! by whoever brings it (the wire, the store, the cache), and found by whoever takes it on: by
//! the buffer it is, which stays what it is as long as it is held here.

use bytes::Bytes;
use stdx::BlockSums;

/// Buffers at a time: more are not looked through for one.
const MAX: usize = 64;

#[derive(Default)]
pub(crate) struct InHand(Vec<(Bytes, BlockSums)>);

impl InHand {
    /// These are the sums of this data.
    pub fn note(&mut self, data: &Bytes, sums: &BlockSums) {
        if self.0.len() < MAX && data.len() == sums.data_len() {
            self.0.push((data.clone(), sums.clone()));
        }
    }

    /// The sums of exactly this data, where they were noted.
    pub fn of(&self, data: &Bytes) -> Option<BlockSums> {
        let place = (data.as_ptr(), data.len());
        let found = self.0.iter().find(|(of, _)| (of.as_ptr(), of.len()) == place);
        found.map(|(_, sums)| sums.clone())
    }

    /// Lets go of all.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
