//! The table of open files: which inodes a successor has to open.

use bytes::Bytes;
use types::{DecodeError, Denc, Ino, Reader, Writer};

use super::{Frag, MAGIC};

/// An open inode or one above it. The peer's `Anchor`, 2/1, and behind it in the table a
/// list of fragments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenFile {
    /// The inode.
    pub ino: Ino,
    /// Its directory.
    pub dirino: Ino,
    /// Its name there.
    pub name: Bytes,
    /// Its type: see [`super::dtype`].
    pub d_type: u8,
    /// Open fragments of a directory.
    pub frags: Vec<Frag>,
}

impl Denc for OpenFile {
    fn encode(&self, w: &mut Writer) {
        w.framed(2, 1, |w| {
            self.ino.encode(w);
            self.dirino.encode(w);
            w.blob(&self.name);
            w.u8(self.d_type);
            self.frags.encode(w);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("Anchor", 2, |r, v| {
            Ok(Self {
                ino: Denc::decode(r)?,
                dirino: Denc::decode(r)?,
                name: r.blob()?,
                d_type: r.u8()?,
                frags: if v >= 2 { Denc::decode(r)? } else { Vec::new() },
            })
        })
    }
}

impl OpenFile {
    /// As the value of a key.
    #[must_use]
    pub fn to_value(&self) -> Bytes {
        let mut w = Writer::new(types::Features::ALL);
        self.encode(&mut w);
        w.u32(0); // fragments as release 14 kept them
        w.finish()
    }

    /// Reads a value.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn from_value(value: &Bytes) -> Result<Self, DecodeError> {
        let mut r = Reader::shared(value);
        let mut open = Self::decode(&mut r)?;
        let outside: Vec<Frag> = Denc::decode(&mut r)?;
        if open.frags.is_empty() {
            open.frags = outside;
        }
        r.finish().map(|()| open)
    }
}

/// The key of an open inode: its number in hex.
#[must_use]
pub fn open_file_key(ino: Ino) -> String {
    format!("{:x}", ino.0)
}

/// The omap header of each object of the table: magic, then 1/1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFilesHeader {
    /// Counts commits; equal in all objects.
    pub version: u64,
    /// How many objects there are.
    pub objects: u32,
    /// 0; 1 and 2 in the middle of a commit by keys `_journal.<n>`.
    pub journal_state: u8,
}

impl Default for OpenFilesHeader {
    fn default() -> Self {
        Self { version: 0, objects: 1, journal_state: 0 }
    }
}

impl Denc for OpenFilesHeader {
    fn encode(&self, w: &mut Writer) {
        w.str(MAGIC);
        w.framed(1, 1, |w| {
            w.u64(self.version);
            w.u32(self.objects);
            w.u8(self.journal_state);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let magic = r.blob_ref()?;
        r.require(magic == MAGIC.as_bytes(), "a table of open files begins with its magic")?;
        r.framed("OpenFileTable", 1, |r, _| {
            Ok(Self { version: r.u64()?, objects: r.u32()?, journal_state: r.u8()? })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As 20.2.4 stored an open directory `d` of the root, and an empty table.
    #[test]
    fn of_stock() {
        let value = Bytes::from_static(
            b"\x02\x01\x1e\0\0\0\0\0\0\0\0\x01\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0d\x04\
              \x01\0\0\0\0\0\0\0\0\0\0\0",
        );
        let open = OpenFile::from_value(&value).unwrap();
        assert_eq!((open.dirino, &open.frags[..]), (Ino(1), &[Frag::ROOT][..]));
        assert_eq!(open.to_value(), value);
        assert_eq!(open_file_key(open.ino), "10000000000");
        let header = OpenFilesHeader { version: 7, ..OpenFilesHeader::default() };
        let stock =
            b"\x13\0\0\0ceph fs volume v011\x01\x01\x0d\0\0\0\x07\0\0\0\0\0\0\0\x01\0\0\0\0";
        assert_eq!(header.to_bytes(), &stock[..]);
        assert_eq!(OpenFilesHeader::from_bytes(stock), Ok(header));
    }
}
