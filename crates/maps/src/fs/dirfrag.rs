//! A directory fragment's object: the header of its omap, its keys and its values.

use std::fmt::Write as _;

use bytes::Bytes;
use types::{DecodeError, Denc, Ino, Reader, SnapId, Writer};

use super::{FragInfo, InodeStore, InodeStoreBare, NestInfo, ScrubMark};
use crate::wire::record;

record! {
    /// The header of a fragment. The peer's `fnode_t`, 274 bytes.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    Fnode "fnode_t", compat 3, known 4, |f| 4; {
        /// At least that of every inode whose primary entry is here.
        version: u64,
        /// Snapshots up to this one have no entries here that no other needs.
        snap_purged_thru: SnapId,
        /// What is in the fragment.
        fragstat: FragInfo,
        /// The same, as the directory's inode was told.
        accounted_fragstat: FragInfo,
        /// What is in it and below.
        rstat: NestInfo,
        /// The same, as the directory's inode was told.
        accounted_rstat: NestInfo,
        /// What a scrub found broken: 1 fragstat, 2 rstat, 4 the tree of fragments.
        damage_flags: u32,
        /// The last scrub of it and all below.
        4 => recursive_scrub: ScrubMark,
        /// The last scrub of it alone.
        4 => localized_scrub: ScrubMark,
    }
}

/// The key of an entry: its name, `_`, and `head` or the last snapshot that has it, in hex.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DentryKey {
    /// The name: 1 to 255 bytes.
    pub name: Bytes,
    /// The last snapshot; [`SnapId::HEAD`] for an entry that is there now.
    pub last: SnapId,
}

impl DentryKey {
    /// The key of an entry that is there now.
    #[must_use]
    pub fn head(name: Bytes) -> Self {
        Self { name, last: SnapId::HEAD }
    }

    /// As in the omap.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        let mut key = Vec::with_capacity(self.name.len() + 17);
        key.extend_from_slice(&self.name);
        if self.last == SnapId::HEAD {
            key.extend_from_slice(b"_head");
        } else {
            let mut last = String::with_capacity(17);
            write!(last, "_{:x}", self.last.0).expect("a string takes all");
            key.extend_from_slice(last.as_bytes());
        }
        key.into()
    }

    /// Reads a key; `None` for what is none.
    #[must_use]
    pub fn parse(key: &Bytes) -> Option<Self> {
        let at = key.iter().rposition(|b| *b == b'_')?;
        let last = match &key[at + 1..] {
            b"head" => SnapId::HEAD,
            hex if !hex.is_empty() && hex.iter().all(u8::is_ascii_hexdigit) => {
                SnapId(u64::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()?)
            }
            _ => return None,
        };
        (at > 0).then(|| Self { name: key.slice(..at), last })
    }
}

/// Types of entries; `DT_*` of the C library.
pub mod dtype {
    /// A named pipe.
    pub const FIFO: u8 = 1;
    /// A character device.
    pub const CHR: u8 = 2;
    /// A directory.
    pub const DIR: u8 = 4;
    /// A block device.
    pub const BLK: u8 = 6;
    /// A regular file.
    pub const REG: u8 = 8;
    /// A symbolic link.
    pub const LNK: u8 = 10;
    /// A socket.
    pub const SOCK: u8 = 12;

    /// The type of an inode with this mode.
    #[must_use]
    pub const fn of_mode(mode: u32) -> u8 {
        (mode >> 12 & 15) as u8
    }
}

/// What an entry leads to.
#[derive(Clone, Debug, PartialEq)]
pub enum DentryLink {
    /// The inode itself.
    Primary(Box<InodeStore>),
    /// An inode whose primary entry is elsewhere.
    Remote {
        /// Its number.
        ino: Ino,
        /// Its type: see [`dtype`].
        d_type: u8,
    },
}

/// The value of an entry: u64 first snapshot, u8 type, and by type
/// `i` 2/1 { string, InodeStore }, `l` 2/1 { u64 ino, u8 d_type, string }; read are also
/// `I` (InodeStore without header) and `L` (u64 ino, u8 d_type) of releases up to 16.
#[derive(Clone, Debug, PartialEq)]
pub struct DentryValue {
    /// The first snapshot that has it.
    pub first: SnapId,
    /// The name as its maker wrote it, encrypted or in another case; empty for none.
    pub alternate_name: Bytes,
    /// Where it leads.
    pub link: DentryLink,
}

impl Denc for DentryValue {
    fn encode(&self, w: &mut Writer) {
        self.first.encode(w);
        match &self.link {
            DentryLink::Primary(store) => {
                w.u8(b'i');
                w.framed(2, 1, |w| {
                    w.blob(&self.alternate_name);
                    store.encode(w);
                });
            }
            DentryLink::Remote { ino, d_type } => {
                w.u8(b'l');
                w.framed(2, 1, |w| {
                    ino.encode(w);
                    w.u8(*d_type);
                    w.blob(&self.alternate_name);
                });
            }
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let first = Denc::decode(r)?;
        let primary = |store| DentryLink::Primary(Box::new(store));
        let (link, alternate_name) = match r.u8()? {
            b'i' => r.framed("primary entry", 2, |r, v| {
                let name = if v >= 2 { r.blob()? } else { Bytes::new() };
                Ok((primary(InodeStore::decode(r)?), name))
            })?,
            b'l' => r.framed("remote entry", 2, |r, v| {
                let link = DentryLink::Remote { ino: Denc::decode(r)?, d_type: r.u8()? };
                Ok((link, if v >= 2 { r.blob()? } else { Bytes::new() }))
            })?,
            b'I' => (primary(InodeStoreBare::decode(r)?.0), Bytes::new()),
            b'L' => (DentryLink::Remote { ino: Denc::decode(r)?, d_type: r.u8()? }, Bytes::new()),
            _ => {
                return Err(DecodeError::Invalid {
                    what: "directory entry",
                    rule: "its type is one of i, I, l, L",
                });
            }
        };
        Ok(Self { first, alternate_name, link })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        let key = |name: &'static str, last| DentryKey { name: name.into(), last };
        for (bytes, parsed) in [
            ("f_head", key("f", SnapId::HEAD)),
            ("old_2", key("old", SnapId(2))),
            ("a_b_c_ff", key("a_b_c", SnapId(255))),
            ("__head", key("_", SnapId::HEAD)),
        ] {
            let bytes = Bytes::from(bytes);
            assert_eq!(DentryKey::parse(&bytes), Some(parsed.clone()));
            assert_eq!(parsed.to_bytes(), bytes);
        }
        for bad in ["", "_head", "f", "f_", "f_xyz", "f_+1", "f_11111111111111111"] {
            assert_eq!(DentryKey::parse(&bad.into()), None, "{bad}");
        }
        let raw = Bytes::from_static(b"\xff\xfe_head");
        assert_eq!(DentryKey::parse(&raw).unwrap().to_bytes(), raw);
        assert_eq!([0o040_755, 0o100_644, 0o120_777].map(dtype::of_mode), [4, 8, 10]);
    }

    /// A hard link as 20.2.4 stored it, its old form, and a file's size there.
    #[test]
    fn values() {
        let stock = b"\x02\0\0\0\0\0\0\0l\x02\x01\x0d\0\0\0\x01\0\0\0\0\x01\0\0\x08\0\0\0\0";
        let value = DentryValue::from_bytes(stock).unwrap();
        let link = DentryLink::Remote { ino: Ino(0x100_0000_0001), d_type: dtype::REG };
        assert_eq!((value.first, &value.link), (SnapId(2), &link));
        assert_eq!(value.to_bytes(), &stock[..]);
        let old = b"\x02\0\0\0\0\0\0\0L\x01\0\0\0\0\x01\0\0\x08";
        assert_eq!(DentryValue::from_bytes(old), Ok(value));
        let mut store = InodeStore::default();
        store.inode.mode = 0o100_644;
        let bare = InodeStoreBare(store.clone()).to_bytes();
        let file = DentryValue {
            first: SnapId(2),
            alternate_name: Bytes::new(),
            link: DentryLink::Primary(Box::new(store)),
        };
        assert_eq!(file.to_bytes().len(), 510);
        let old = [&b"\x02\0\0\0\0\0\0\0I"[..], &bare].concat();
        assert_eq!(DentryValue::from_bytes(&old), Ok(file));
        assert!(DentryValue::from_bytes(b"\0\0\0\0\0\0\0\0x").is_err());
        assert_eq!(Fnode::default().to_bytes().len(), 274);
    }
}
