//! Images and differences as streams of bytes: what `rbd export`, `export-diff` and their
//! counterparts write and read.
//!
//! ```text
//! diff, version 1   "rbd diff v1\n" records 'e'
//! diff, version 2   "rbd diff v2\n" records 'e'; each record's tag is followed by u64 its length
//!   'f' name        the snapshot it goes from           't' name     the one it goes to
//!   'p' u8          whether that one is protected (2)   's' u64      the image's size then
//!   'w' u64 u64 ..  offset, length, data                'z' u64 u64  offset, length: zeros
//! image, version 1  the bytes
//! image, version 2  "rbd image v2\n" records 'E' "rbd image diffs v2\n" u64 count, diffs (2)
//!   'O' u64 order   'T' u64 features   'U' u64 stripe unit   'C' u64 stripe count
//!   'M' key value   one of the image's metadata
//! ```
//!
//! All numbers are little-endian; names are u32 length and bytes. This module knows no files
//! and no images.
//!
//! Source: the peer's `doc/dev/rbd-diff.rst`, `doc/dev/rbd-export.rst`, `tools/rbd/Utils.h`.

use crate::error::{Error, Result};

/// Begins a diff of version 1.
pub const DIFF_V1: &[u8] = b"rbd diff v1\n";
/// Begins a diff of version 2.
pub const DIFF_V2: &[u8] = b"rbd diff v2\n";
/// Begins an image of version 2.
pub const IMAGE_V2: &[u8] = b"rbd image v2\n";
/// Comes before an image's diffs.
pub const IMAGE_DIFFS_V2: &[u8] = b"rbd image diffs v2\n";

/// Longest name or value that is read, in bytes.
const NAME_MAX: u64 = 64 << 10;
/// Longest run of data in one record: the peer's are an object's.
const DATA_MAX: u64 = 1 << 30;

/// Of a diff or an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// Records without lengths.
    V1,
    /// With.
    V2,
}

/// One record of a diff. The data of [`Record::Write`] follows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The snapshot that must be there before.
    From(String),
    /// The snapshot that is made afterwards.
    To(String),
    /// Whether it is protected then.
    Protected(bool),
    /// Bytes of the image.
    Size(u64),
    /// `len` bytes at `off`; they follow.
    Write {
        /// First byte.
        off: u64,
        /// Bytes.
        len: u64,
    },
    /// Zeros.
    Zero {
        /// First byte.
        off: u64,
        /// Bytes.
        len: u64,
    },
    /// A record of a later version, passed over.
    Unknown(u8),
    /// The end.
    End,
}

fn text(out: &mut Vec<u8>, text: &[u8]) {
    out.extend((text.len() as u32).to_le_bytes());
    out.extend(text);
}

impl Record {
    /// Appends the record; not the data.
    pub fn put(&self, version: Version, out: &mut Vec<u8>) {
        let (tag, extra) = match self {
            Self::From(_) => (b'f', 0),
            Self::To(_) => (b't', 0),
            Self::Protected(_) => (b'p', 0),
            Self::Size(_) => (b's', 0),
            Self::Write { len, .. } => (b'w', *len),
            Self::Zero { .. } => (b'z', 0),
            Self::Unknown(tag) => (*tag, 0),
            Self::End => return out.push(b'e'),
        };
        let mut body = Vec::new();
        match self {
            Self::From(name) | Self::To(name) => text(&mut body, name.as_bytes()),
            Self::Protected(yes) => body.push(u8::from(*yes)),
            Self::Size(size) => body.extend(size.to_le_bytes()),
            Self::Write { off, len } | Self::Zero { off, len } => {
                body.extend(off.to_le_bytes());
                body.extend(len.to_le_bytes());
            }
            Self::Unknown(_) | Self::End => {}
        }
        out.push(tag);
        if version == Version::V2 {
            out.extend((body.len() as u64 + extra).to_le_bytes());
        }
        out.extend(body);
    }
}

/// One record of an image's head, version 2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Head {
    /// log2 of its objects' bytes.
    Order(u64),
    /// `RBD_FEATURE_*`.
    Features(u64),
    /// Bytes.
    StripeUnit(u64),
    /// Objects.
    StripeCount(u64),
    /// One of its metadata.
    Meta(Vec<u8>, Vec<u8>),
    /// A record of a later version, passed over.
    Unknown(u8),
    /// The end.
    End,
}

impl Head {
    /// Appends the record.
    pub fn put(&self, out: &mut Vec<u8>) {
        let number = |tag: u8, x: u64, out: &mut Vec<u8>| {
            out.push(tag);
            out.extend(8u64.to_le_bytes());
            out.extend(x.to_le_bytes());
        };
        match self {
            Self::Order(x) => number(b'O', *x, out),
            Self::Features(x) => number(b'T', *x, out),
            Self::StripeUnit(x) => number(b'U', *x, out),
            Self::StripeCount(x) => number(b'C', *x, out),
            Self::Meta(key, value) => {
                out.push(b'M');
                out.extend((key.len() as u64 + value.len() as u64 + 8).to_le_bytes());
                text(out, key);
                text(out, value);
            }
            Self::Unknown(_) => {}
            Self::End => out.push(b'E'),
        }
    }
}

/// Where bytes come from.
pub trait Source {
    /// Fills the buffer.
    ///
    /// # Errors
    /// At the end, before it is full, `UnexpectedEof`.
    fn fill(&mut self, buffer: &mut [u8]) -> std::io::Result<()>;
}

impl<R: std::io::Read> Source for R {
    fn fill(&mut self, buffer: &mut [u8]) -> std::io::Result<()> {
        self.read_exact(buffer)
    }
}

fn bytes<const N: usize>(source: &mut dyn Source) -> Result<[u8; N]> {
    let mut buffer = [0; N];
    source.fill(&mut buffer)?;
    Ok(buffer)
}

fn u64_of(source: &mut dyn Source) -> Result<u64> {
    bytes(source).map(u64::from_le_bytes)
}

fn damaged<T>(what: &str) -> Result<T> {
    Err(Error::Stream(what.to_owned()))
}

fn read_text(source: &mut dyn Source) -> Result<Vec<u8>> {
    let len = u32::from_le_bytes(bytes(source)?);
    if u64::from(len) > NAME_MAX {
        return damaged("a name is too long");
    }
    let mut text = vec![0; len as usize];
    source.fill(&mut text)?;
    Ok(text)
}

fn skip(source: &mut dyn Source, mut len: u64) -> Result<()> {
    let mut buffer = [0; 4096];
    while len > 0 {
        let some = len.min(4096) as usize;
        source.fill(&mut buffer[..some])?;
        len -= some as u64;
    }
    Ok(())
}

fn read_name(source: &mut dyn Source) -> Result<String> {
    String::from_utf8(read_text(source)?).or_else(|_| damaged("a name is not UTF-8"))
}

/// Reads the line that begins a diff.
///
/// # Errors
/// [`Error::Stream`] when it is none.
pub fn read_banner(source: &mut dyn Source) -> Result<Version> {
    match &bytes::<12>(source)? {
        b if &b[..] == DIFF_V1 => Ok(Version::V1),
        b if &b[..] == DIFF_V2 => Ok(Version::V2),
        _ => damaged("it does not begin as a diff does"),
    }
}

/// Reads a given line.
///
/// # Errors
/// [`Error::Stream`] when another is there.
pub fn expect(source: &mut dyn Source, line: &[u8]) -> Result<()> {
    let mut found = vec![0; line.len()];
    source.fill(&mut found)?;
    if found == line {
        return Ok(());
    }
    damaged(&format!("'{}' is missing", String::from_utf8_lossy(line).trim_end()))
}

/// Reads one record of a diff; the data of a write is left to be read.
///
/// # Errors
/// [`Error::Stream`], [`Error::Io`] at the stream's end.
pub fn read_record(source: &mut dyn Source, version: Version) -> Result<Record> {
    let [tag] = bytes(source)?;
    if tag == b'e' {
        return Ok(Record::End);
    }
    let len = match version {
        Version::V1 => None,
        Version::V2 => Some(u64_of(source)?),
    };
    let (record, read) = match tag {
        b'f' | b't' => {
            let name = read_name(source)?;
            let read = name.len() as u64 + 4;
            (if tag == b'f' { Record::From(name) } else { Record::To(name) }, read)
        }
        // 16.2 says 8 of the one byte that it writes.
        b'p' if version == Version::V2 => {
            let read = if len == Some(8) { 8 } else { 1 };
            (Record::Protected(bytes::<1>(source)?[0] != 0), read)
        }
        b's' => (Record::Size(u64_of(source)?), 8),
        b'w' | b'z' => {
            let (off, len) = (u64_of(source)?, u64_of(source)?);
            if off.checked_add(len).is_none() {
                return damaged("a range goes beyond all images");
            }
            if tag == b'w' && len > DATA_MAX {
                return damaged("a run of data is too long");
            }
            match tag {
                b'w' => (Record::Write { off, len }, 16 + len),
                _ => (Record::Zero { off, len }, 16),
            }
        }
        tag => match len {
            Some(len) => {
                skip(source, len)?;
                (Record::Unknown(tag), len)
            }
            None => return damaged(&format!("a record of the unknown kind {tag:#x}")),
        },
    };
    if len.is_some_and(|len| len != read) {
        return damaged("a record's length is not that of its parts");
    }
    Ok(record)
}

/// Reads one record of an image's head.
///
/// # Errors
/// As [`read_record`].
pub fn read_head(source: &mut dyn Source) -> Result<Head> {
    let [tag] = bytes(source)?;
    if tag == b'E' {
        return Ok(Head::End);
    }
    let len = u64_of(source)?;
    let (head, read) = match tag {
        b'O' => (Head::Order(u64_of(source)?), 8),
        b'T' => (Head::Features(u64_of(source)?), 8),
        b'U' => (Head::StripeUnit(u64_of(source)?), 8),
        b'C' => (Head::StripeCount(u64_of(source)?), 8),
        b'M' => {
            let (key, value) = (read_text(source)?, read_text(source)?);
            let read = (key.len() + value.len()) as u64 + 8;
            (Head::Meta(key, value), read)
        }
        tag => {
            skip(source, len)?;
            (Head::Unknown(tag), len)
        }
    };
    if len != read {
        return damaged("a record's length is not that of its parts");
    }
    Ok(head)
}

/// Reads a number, little-endian.
///
/// # Errors
/// [`Error::Io`] at the stream's end.
pub fn read_u64(source: &mut dyn Source) -> Result<u64> {
    u64_of(source)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn records() -> Vec<Record> {
        vec![
            Record::From("a".to_owned()),
            Record::To("bc".to_owned()),
            Record::Size(1 << 30),
            Record::Write { off: 4096, len: 3 },
            Record::Zero { off: 0, len: 4096 },
            Record::End,
        ]
    }

    #[test]
    fn records_come_back_in_both_versions() {
        for version in [Version::V1, Version::V2] {
            let mut out = Vec::new();
            for record in records() {
                record.put(version, &mut out);
                if matches!(record, Record::Write { .. }) {
                    out.extend(b"xyz");
                }
            }
            let mut source = &out[..];
            for record in records() {
                assert_eq!(read_record(&mut source, version).unwrap(), record);
                if matches!(record, Record::Write { .. }) {
                    skip(&mut source, 3).unwrap();
                }
            }
            assert!(source.is_empty());
        }
    }

    /// As the peer writes it: tag, offset, length; with the length of all in version 2.
    #[test]
    fn a_write_has_the_peers_bytes() {
        let record = Record::Write { off: 1, len: 2 };
        let mut out = Vec::new();
        record.put(Version::V1, &mut out);
        assert_eq!(out, [&b"w\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0"[..]].concat());
        out.clear();
        record.put(Version::V2, &mut out);
        assert_eq!(out[..9], *b"w\x12\0\0\0\0\0\0\0");
    }

    /// The length that 16.2 writes is not that of what it writes.
    #[test]
    fn protection_is_read_in_both_lengths() {
        for len in [1u64, 8] {
            let raw = [&b"p"[..], &len.to_le_bytes(), &[1], b"e"].concat();
            let mut source = &raw[..];
            assert_eq!(read_record(&mut source, Version::V2).unwrap(), Record::Protected(true));
            assert_eq!(read_record(&mut source, Version::V2).unwrap(), Record::End);
        }
    }

    #[test]
    fn heads_come_back() {
        let heads = [
            Head::Order(22),
            Head::Features(61),
            Head::StripeUnit(4096),
            Head::StripeCount(2),
            Head::Meta(b"k".to_vec(), b"v".to_vec()),
            Head::End,
        ];
        let mut out = Vec::new();
        heads.iter().for_each(|head| head.put(&mut out));
        let mut source = &out[..];
        for head in heads {
            assert_eq!(read_head(&mut source).unwrap(), head);
        }
    }

    proptest! {
        /// Any bytes give a record or an error, and allocate no more than a name may have.
        #[test]
        fn damaged_streams_are_errors(data: Vec<u8>, v2: bool) {
            let version = if v2 { Version::V2 } else { Version::V1 };
            let mut source = &data[..];
            while read_record(&mut source, version).is_ok_and(|r| r != Record::End) {}
            let mut source = &data[..];
            while read_head(&mut source).is_ok_and(|h| h != Head::End) {}
            let mut source = &data[..];
            let _ = read_banner(&mut source);
        }
    }
}
