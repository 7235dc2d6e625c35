//! What a file or device holds, told by the marks that file systems, volume managers and disks'
//! tables leave: those that `wipefs` knows of, of what is in use today, and this program's own.
//!
//! Source: the offsets are in the formats' own documents; libblkid looks at the same.

use std::io;

/// Reads from a place; fewer bytes at the end.
pub trait Read {
    /// Fills `buf` from `off` on; returns how many bytes there were.
    fn read_at(&self, off: u64, buf: &mut [u8]) -> io::Result<usize>;
}

impl Read for std::fs::File {
    fn read_at(&self, off: u64, buf: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            let at = off + done as u64;
            match std::os::unix::fs::FileExt::read_at(self, &mut buf[done..], at)? {
                0 => break,
                n => done += n,
            }
        }
        Ok(done)
    }
}

/// A mark that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// What it belongs to.
    pub name: &'static str,
    /// Where it is, in bytes.
    pub off: u64,
    /// Its bytes.
    pub len: usize,
}

const K: u64 = 1 << 10;

/// Marks that stand at one place each: what, where, bytes.
const FIXED: &[(&str, u64, &[u8])] = &[
    ("argonaut store", 0, b"ARGOSTOR"),
    ("argonaut store", 64 * K, b"ARGOSTOR"),
    ("bluestore", 0, b"bluestore block device"),
    ("LUKS", 0, b"LUKS\xba\xbe"),
    ("LUKS (second header)", 16 * K, b"SKUL\xba\xbe"),
    ("xfs", 0, b"XFSB"),
    ("ext2, ext3 or ext4", 0x438, &[0x53, 0xef]),
    ("btrfs", 64 * K + 0x40, b"_BHRfS_M"),
    ("f2fs", K, &[0x10, 0x20, 0xf5, 0xf2]),
    ("bcache", 4 * K + 24, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"),
    ("bcachefs", 4 * K + 24, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef"),
    ("swap", 4 * K - 10, b"SWAPSPACE2"),
    ("swap", 8 * K - 10, b"SWAPSPACE2"),
    ("swap", 16 * K - 10, b"SWAPSPACE2"),
    ("swap", 64 * K - 10, b"SWAPSPACE2"),
    ("suspended system", 4 * K - 10, b"S1SUSPEND"),
    ("LVM physical volume", 0x18, b"LVM2 001"),
    ("LVM physical volume", 0x218, b"LVM2 001"),
    ("LVM physical volume", 0x418, b"LVM2 001"),
    ("LVM physical volume", 0x618, b"LVM2 001"),
    ("GPT", 512, b"EFI PART"),
    ("GPT", 4 * K, b"EFI PART"),
    ("md RAID member", 0, &[0xfc, 0x4e, 0x2b, 0xa9]),
    ("md RAID member", 4 * K, &[0xfc, 0x4e, 0x2b, 0xa9]),
    ("VDO", 0, b"dmvdo001"),
    ("dm-integrity", 0, b"integrt\0"),
    ("NTFS", 3, b"NTFS    "),
    ("exFAT", 3, b"EXFAT   "),
    ("FAT", 0x36, b"FAT1"),
    ("FAT", 0x52, b"FAT32   "),
    ("ISO 9660", 32 * K + 1, b"CD001"),
    ("squashfs", 0, b"hsqs"),
    ("erofs", K, &[0xe2, 0xe1, 0xf5, 0xe0]),
    ("JFS", 32 * K, b"JFS1"),
    ("ReiserFS", 64 * K + 0x34, b"ReIsEr"),
    ("OCFS2", 4 * K, b"OCFSV2"),
    ("GFS2", 64 * K, &[0x01, 0x16, 0x19, 0x70]),
    ("NILFS2", K + 6, &[0x34, 0x34]),
    ("HFS+", K, b"H+\0"),
    ("APFS", 32, b"NXSB"),
    ("qcow2 image", 0, b"QFI\xfb"),
    ("VMDK image", 0, b"KDMV"),
    ("VHDX image", 0, b"vhdxfile"),
    ("DOS partition table or boot sector", 510, &[0x55, 0xaa]),
];

const MD: &[u8] = &[0xfc, 0x4e, 0x2b, 0xa9];
/// ZFS: four labels of 256 KiB, two at each end; the upper half of each is of uberblocks.
const ZFS_LABEL: u64 = 256 * K;
const UBERBLOCK: [u8; 8] = 0x00ba_b10cu64.to_le_bytes();

fn is_at(from: &dyn Read, off: u64, want: &[u8]) -> io::Result<bool> {
    let mut buf = [0; 32];
    let buf = &mut buf[..want.len()];
    Ok(from.read_at(off, buf)? == want.len() && *buf == *want)
}

/// All marks within a place of `size` bytes.
///
/// # Errors
/// What the system says.
pub fn marks(from: &dyn Read, size: u64) -> io::Result<Vec<Mark>> {
    let mut found = Vec::new();
    let mut look = |name, off: u64, want: &[u8]| -> io::Result<()> {
        if is_at(from, off, want)? {
            found.push(Mark { name, off, len: want.len() });
        }
        Ok(())
    };
    for (name, off, want) in FIXED {
        look(name, *off, want)?;
    }
    for sector in [512, 4 * K] {
        if let Some(last) = (size / sector).checked_sub(1) {
            look("GPT (second copy)", last * sector, b"EFI PART")?;
        }
    }
    // 1.0 has its superblock 8 KiB before the end or a little more, 0.90 in the last whole 64 KiB.
    if let Some(sectors) = (size / 512).checked_sub(16) {
        look("md RAID member", (sectors & !7) * 512, MD)?;
    }
    if let Some(at) = (size & !(64 * K - 1)).checked_sub(64 * K) {
        look("md RAID member", at, MD)?;
    }
    let whole = size & !(ZFS_LABEL - 1);
    let mut labels = vec![0, ZFS_LABEL];
    labels.extend([2, 1].iter().filter_map(|n| whole.checked_sub(n * ZFS_LABEL)));
    labels.sort_unstable();
    labels.dedup();
    let mut ring = vec![0; (ZFS_LABEL / 2) as usize];
    for label in labels {
        let at = label + ZFS_LABEL / 2;
        let n = from.read_at(at, &mut ring)?;
        for (i, block) in ring[..n].chunks_exact(1024).enumerate() {
            let mut swapped = UBERBLOCK;
            swapped.reverse();
            if block.starts_with(&UBERBLOCK) || block.starts_with(&swapped) {
                found.push(Mark { name: "ZFS", off: at + i as u64 * 1024, len: 8 });
            }
        }
    }
    Ok(found)
}

/// The marks' names, each once.
#[must_use]
pub fn names(marks: &[Mark]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for mark in marks {
        if !names.contains(&mark.name) {
            names.push(mark.name);
        }
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Sparse(u64, Vec<(u64, Vec<u8>)>);

    impl Read for Sparse {
        fn read_at(&self, off: u64, buf: &mut [u8]) -> io::Result<usize> {
            let n = (self.0.saturating_sub(off) as usize).min(buf.len());
            for (i, byte) in buf[..n].iter_mut().enumerate() {
                let at = off + i as u64;
                let part = self.1.iter().find(|(o, d)| *o <= at && at < o + d.len() as u64);
                *byte = part.map_or(0, |(o, d)| d[(at - o) as usize]);
            }
            Ok(n)
        }
    }

    #[test]
    fn each_mark_is_found_where_it_stands() {
        const SIZE: u64 = (10 << 20) + 4096;
        assert_eq!(marks(&Sparse(SIZE, vec![]), SIZE).expect("readable"), []);
        assert_eq!(marks(&Sparse(0, vec![]), 0).expect("readable"), []);
        for (name, off, bytes) in FIXED {
            let disk = Sparse(SIZE, vec![(*off, bytes.to_vec())]);
            let found = marks(&disk, SIZE).expect("readable");
            assert_eq!(found, [Mark { name, off: *off, len: bytes.len() }]);
        }
        let late = [
            ("GPT (second copy)", SIZE - 512, b"EFI PART".to_vec()),
            ("GPT (second copy)", SIZE - 4096, b"EFI PART".to_vec()),
            ("md RAID member", SIZE - 8192, MD.to_vec()),
            ("md RAID member", (10 << 20) - (64 << 10), MD.to_vec()),
            ("ZFS", (128 << 10) + 5 * 1024, UBERBLOCK.to_vec()),
            ("ZFS", (10 << 20) - (128 << 10), UBERBLOCK.iter().rev().copied().collect()),
        ];
        for (name, off, bytes) in late {
            let found = marks(&Sparse(SIZE, vec![(off, bytes)]), SIZE).expect("readable");
            assert_eq!(found.iter().map(|m| (m.name, m.off)).collect::<Vec<_>>(), [(name, off)]);
        }
    }
}
