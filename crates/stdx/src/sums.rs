//! The sums of data's blocks, which go with it where they are known.

use std::sync::Arc;

use crate::crc::{CRC_BLOCK, crc32c, crc32c_append_block};

/// `crc32c(!0, block)` of each [`CRC_BLOCK`] bytes of some data, which is whole blocks and at
/// least one. A clone is a reference.
///
/// Large data is summed by who receives it, by the store, and by who sends it on; this is so that
/// it need be gone through but once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockSums(Arc<[u32]>);

impl BlockSums {
    /// Goes through `data`; `None` where that is not whole blocks.
    #[must_use]
    pub fn of(data: &[u8]) -> Option<Self> {
        let (blocks, []) = data.as_chunks::<CRC_BLOCK>() else { return None };
        Self::from_blocks(blocks.iter().map(|block| crc32c(!0, block)))
    }

    /// Of blocks whose sums these are; `None` for no blocks.
    #[must_use]
    pub fn from_blocks(sums: impl IntoIterator<Item = u32>) -> Option<Self> {
        let sums: Arc<[u32]> = sums.into_iter().collect();
        (!sums.is_empty()).then_some(Self(sums))
    }

    /// One of each block.
    #[must_use]
    pub fn blocks(&self) -> &[u32] {
        &self.0
    }

    /// Bytes of the data.
    #[must_use]
    pub fn data_len(&self) -> usize {
        self.0.len() * CRC_BLOCK
    }

    /// `crc32c(!0, data)`, without looking at the data.
    #[must_use]
    pub fn crc(&self) -> u32 {
        self.0.iter().copied().fold(!0, crc32c_append_block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_whole_blocks() {
        let data: Vec<u8> = (0..3 * CRC_BLOCK as u32).map(|i| ((i * i) >> 5) as u8).collect();
        let sums = BlockSums::of(&data).expect("whole blocks");
        assert_eq!((sums.data_len(), sums.blocks().len()), (data.len(), 3));
        assert_eq!(sums.blocks()[1], crc32c(!0, &data[CRC_BLOCK..2 * CRC_BLOCK]));
        assert_eq!(sums.crc(), crc32c(!0, &data));
        assert_eq!(BlockSums::of(&data[1..]), None, "a part of a block");
        assert_eq!(BlockSums::of(&[]), None, "nothing");
    }
}
