//! What stands at the first object of each inode, by which it is found without its parent.

use bytes::Bytes;
use types::{Ino, PoolId};

use crate::wire::record;

record! {
    /// One step up. The peer's `inode_backpointer_t`.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    Backpointer "inode_backpointer_t", compat 2, known 2, |f| 2; {
        /// The directory.
        dirino: Ino,
        /// The name in it.
        dname: Bytes,
        /// The version of the inode with this name when this was written; the newest is true.
        version: u64,
    }
}

record! {
    /// Where an inode is. The peer's `inode_backtrace_t`, extended attribute `parent`.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    Backtrace "inode_backtrace_t", compat 4, known 5, |f| 5; {
        /// The inode.
        ino: Ino,
        /// Its directory, that one's directory, up to the root.
        ancestors: Vec<Backpointer>,
        /// The pool of its data; of the metadata for a directory.
        pool: PoolId,
        /// Pools that have older ones.
        5 => old_pools: Vec<PoolId>,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Denc;

    /// As 20.2.4 stored that of the first stray directory.
    #[test]
    fn of_a_stray_directory() {
        let stock = b"\x05\x04\x38\0\0\0\0\x06\0\0\0\0\0\0\x01\0\0\0\x02\x02\x1a\0\0\0\
            \0\x01\0\0\0\0\0\0\x06\0\0\0stray0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0";
        let trace = Backtrace::from_bytes(stock).unwrap();
        assert_eq!((trace.ino, trace.pool), (Ino(0x600), PoolId(1)));
        assert_eq!(trace.ancestors[0].dname, "stray0");
        assert_eq!(trace.to_bytes(), &stock[..]);
    }
}
