//! Numbers with a meaning, and the names of objects.

use types::Ino;

/// Numbers of inodes that no client makes. `rank` is below 256.
pub mod inos {
    use types::Ino;

    /// The root.
    pub const ROOT: Ino = Ino(1);
    /// `.ceph`, reserved.
    pub const CEPH: Ino = Ino(2);
    /// The realm of inodes whose snapshots are no directory's alone.
    pub const GLOBAL_SNAPREALM: Ino = Ino(3);
    /// `lost+found`, made by the peer's recovery tools.
    pub const LOST_AND_FOUND: Ino = Ino(4);
    /// Stray directories of a rank.
    pub const STRAYS: u64 = 10;
    /// The first number that a client may ever name, but the ones below 0x100.
    pub const SYSTEM_END: Ino = Ino(0x1000);
    const RANKS: u64 = 0x100;

    /// `~mds<rank>`.
    #[must_use]
    pub const fn mds_dir(rank: u64) -> Ino {
        Ino(RANKS + rank)
    }
    /// A rank's journal.
    #[must_use]
    pub const fn journal(rank: u64) -> Ino {
        Ino(2 * RANKS + rank)
    }
    /// The other place of a rank's journal while its format changes.
    #[must_use]
    pub const fn journal_backup(rank: u64) -> Ino {
        Ino(3 * RANKS + rank)
    }
    /// What says where a rank's journal is.
    #[must_use]
    pub const fn journal_pointer(rank: u64) -> Ino {
        Ino(4 * RANKS + rank)
    }
    /// A rank's purge queue.
    #[must_use]
    pub const fn purge_queue(rank: u64) -> Ino {
        Ino(5 * RANKS + rank)
    }
    /// Stray directory `i` of a rank.
    #[must_use]
    pub const fn stray(rank: u64, i: u64) -> Ino {
        Ino(6 * RANKS + STRAYS * rank + i)
    }
    /// The rank and index of a stray directory.
    #[must_use]
    pub const fn stray_of(ino: Ino) -> Option<(u64, u64)> {
        if ino.0 < 6 * RANKS || ino.0 >= 6 * RANKS + STRAYS * RANKS {
            return None;
        }
        let n = ino.0 - 6 * RANKS;
        Some((n / STRAYS, n % STRAYS))
    }
    /// Whether clients must never name it.
    #[must_use]
    pub const fn is_private(ino: Ino) -> bool {
        ino.0 >= RANKS && ino.0 < SYSTEM_END.0
    }
    /// Whether it is a system directory: the root, `~mds<rank>` or a stray directory.
    #[must_use]
    pub const fn is_system(ino: Ino) -> bool {
        ino.0 < SYSTEM_END.0
    }
    /// The numbers that a rank hands out: first, and how many.
    #[must_use]
    pub const fn of_rank(rank: u64) -> (u64, u64) {
        ((rank + 1) << 40, 1 << 40)
    }
}

/// An object of an inode: of a file, by number of the object; of a directory, by
/// [`super::Frag::raw`].
#[must_use]
pub fn object_name(ino: Ino, number: u64) -> String {
    format!("{:x}.{number:08x}", ino.0)
}

/// The object that holds the inode of the root or of `~mds<rank>`.
#[must_use]
pub fn system_inode_object(ino: Ino) -> String {
    format!("{:x}.00000000.inode", ino.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(object_name(Ino(0x100_0000_0004), 0), "10000000004.00000000");
        assert_eq!(object_name(inos::stray(1, 0), 0x0180_0000), "60a.01800000");
        assert_eq!(object_name(Ino(1), 0x1_0000_0000), "1.100000000");
        assert_eq!(system_inode_object(inos::mds_dir(0)), "100.00000000.inode");
        assert_eq!(inos::stray_of(Ino(0x60b)), Some((1, 1)));
        assert_eq!(inos::stray_of(Ino(0x1000)), None);
        assert_eq!(inos::of_rank(0).0, 0x100_0000_0000);
        assert!(inos::is_private(Ino(0xfff)) && !inos::is_private(inos::ROOT));
    }
}
