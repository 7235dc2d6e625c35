//! Tables of a rank that are one object each.

use types::{DecodeError, Denc, Reader, Writer};

use super::InoIntervals;
use crate::wire::record;

record! {
    /// Which inode numbers a rank has left. The peer's `InoTable`.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    InoTable "InoTable", compat 2, known 2, |f| 2; {
        /// No inode has them, and no session reserved them.
        free: InoIntervals,
    }
}

/// A table's object: u64 version, then the table. The peer's `MDSTable`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableObject<T> {
    /// Counts changes.
    pub version: u64,
    /// The table.
    pub table: T,
}

impl<T: Denc> Denc for TableObject<T> {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.version);
        self.table.encode(w);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { version: r.u64()?, table: T::decode(r)? })
    }
}

record! {
    /// A change of the snapshot table that some rank prepared. The peer's
    /// `mds_table_pending_t`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    TablePending "mds_table_pending_t", compat 2, known 2, |f| 2; {
        /// The asking rank's number for it.
        reqid: u64,
        /// The asking rank.
        mds: i32,
        /// The table's number for it.
        tid: u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rank 0's in a new file system of 20.2.4.
    #[test]
    fn fresh_inode_table() {
        let free = InoIntervals::from_iter([(1 << 40, 1 << 40)]);
        let object = TableObject { version: 0, table: InoTable { free } };
        let stock =
            b"\0\0\0\0\0\0\0\0\x02\x02\x14\0\0\0\x01\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0";
        assert_eq!(object.to_bytes(), &stock[..]);
        assert_eq!(TableObject::from_bytes(stock), Ok(object));
    }
}
