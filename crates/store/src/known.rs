//! The sums of large buffers, where they are known.

use bytes::Bytes;
use stdx::BlockSums;

/// Buffers at a time: more are not looked through for one.
const MAX: usize = 64;

/// Sums by the buffer whose they are: one is told from others by where it is, and stays there as
/// long as it is held here.
#[derive(Clone, Debug, Default)]
pub struct KnownSums(Vec<(Bytes, BlockSums)>);

impl KnownSums {
    /// These are the sums of this data. Not noted where they cannot be, or there are many already.
    pub fn note(&mut self, data: &Bytes, sums: &BlockSums) {
        if self.0.len() < MAX && data.len() == sums.data_len() {
            self.0.push((data.clone(), sums.clone()));
        }
    }

    /// The sums of exactly this data, where they were noted.
    #[must_use]
    pub fn of(&self, data: &Bytes) -> Option<&BlockSums> {
        let place = (data.as_ptr(), data.len());
        let found = self.0.iter().find(|(of, _)| (of.as_ptr(), of.len()) == place);
        found.map(|(_, sums)| sums)
    }

    /// Whether none are known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes over what `other` knows.
    pub fn append(&mut self, other: Self) {
        other.0.iter().for_each(|(data, sums)| self.note(data, sums));
    }

    /// Lets go of all.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
