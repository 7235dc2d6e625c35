//! Filters of listings (PGNLS_FILTER): which of a PG's objects a client is told of.
//!
//! Source: the peer's `PGLSPlainFilter`, and the filters that `cls_cephfs` and `cls_hello`
//! register.

use bytes::Bytes;
use denc::{DecodeError, Denc, Reader};
use types::{Errno, OpResult};

/// The end of the name of a file's first object.
const FIRST_OBJECT: &[u8] = b".00000000";

/// A filter with its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filter {
    /// `plain`, `hello.hello`: objects that have an attribute with just this value.
    HasAttr {
        /// As it is stored: users' own begin with `_`.
        attr: Bytes,
        /// The value.
        value: Bytes,
    },
    /// `cephfs.inode_tag`: first objects of files, but for those that carry this tag.
    NotTagged {
        /// Empty for all first objects.
        tag: Bytes,
    },
}

impl Filter {
    /// Reads a filter's name and parameters. What comes behind them is left.
    ///
    /// # Errors
    /// EINVAL: no such filter, or parameters that cannot be read.
    pub fn parse(r: &mut Reader<'_>) -> OpResult<Self> {
        Self::decode(r).map_err(|_| Errno::INVAL)?.ok_or(Errno::INVAL)
    }

    fn decode(r: &mut Reader<'_>) -> Result<Option<Self>, DecodeError> {
        let name = r.blob()?;
        Ok(match &*name {
            b"plain" | b"hello.hello" => Some(Self::HasAttr { attr: r.blob()?, value: r.blob()? }),
            b"cephfs.inode_tag" => {
                let tag = r.framed("InodeTagFilterArgs", 1, |r, _| r.blob())?;
                Some(Self::NotTagged { tag })
            }
            _ => None,
        })
    }

    /// The attribute that it wants to see, as it is stored.
    #[must_use]
    pub fn attr(&self) -> Option<&[u8]> {
        match self {
            Self::HasAttr { attr, .. } => Some(attr),
            Self::NotTagged { tag } if tag.is_empty() => None,
            Self::NotTagged { .. } => Some(b"_scrub_tag"),
        }
    }

    /// Whether an object of this name passes, where `attr` is what it has of [`Filter::attr`].
    #[must_use]
    pub fn passes(&self, name: &[u8], attr: Option<&Bytes>) -> bool {
        match self {
            Self::HasAttr { value, .. } => attr == Some(value),
            Self::NotTagged { tag } => {
                let has = attr.and_then(|raw| Bytes::decode(&mut Reader::shared(raw)).ok());
                name.ends_with(FIRST_OBJECT) && (tag.is_empty() || has.as_ref() != Some(tag))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use denc::{Features, Writer};

    use super::*;

    fn parsed(f: impl FnOnce(&mut Writer)) -> OpResult<Filter> {
        let mut w = Writer::new(Features::ALL);
        f(&mut w);
        Filter::parse(&mut Reader::shared(&w.finish()))
    }

    /// First objects pass that carry no tag, another one, or something that is none.
    #[test]
    fn tagged_inodes_are_left_out() {
        let tagged = |tag: &str| Bytes::copy_from_slice(tag.as_bytes()).to_bytes();
        let filter = |tag: &'static [u8]| {
            parsed(|w| {
                w.blob(b"cephfs.inode_tag");
                w.framed(1, 1, |w| w.blob(tag));
            })
        };
        let f = filter(b"seen").unwrap();
        assert_eq!(f.attr(), Some(&b"_scrub_tag"[..]));
        let first = b"10000000000.00000000";
        assert!(f.passes(first, None));
        assert!(f.passes(first, Some(&tagged("other"))));
        assert!(f.passes(first, Some(&Bytes::from_static(b"\xff"))));
        assert!(!f.passes(first, Some(&tagged("seen"))));
        assert!(!f.passes(b"10000000000.00000001", None));
        assert!(!f.passes(b"0000000", None));
        let all = filter(b"").unwrap();
        assert_eq!(all.attr(), None);
        assert!(all.passes(first, None) && !all.passes(b"x", None));
    }

    #[test]
    fn attributes_are_compared() {
        for name in [&b"plain"[..], b"hello.hello"] {
            let f = parsed(|w| {
                w.blob(name);
                w.blob(b"_theattr");
                w.blob(b"theval");
            });
            let f = f.unwrap();
            assert_eq!(f.attr(), Some(&b"_theattr"[..]));
            assert!(f.passes(b"any", Some(&Bytes::from_static(b"theval"))));
            assert!(!f.passes(b"any", Some(&Bytes::from_static(b"thevalu"))));
            assert!(!f.passes(b"any", None));
        }
    }

    #[test]
    fn others_are_refused() {
        for name in [&b""[..], b"cephfs", b"cephfs.", b".inode_tag", b"lock.lock"] {
            assert_eq!(parsed(|w| w.blob(name)), Err(Errno::INVAL));
        }
        assert_eq!(parsed(|w| w.blob(b"cephfs.inode_tag")), Err(Errno::INVAL));
    }
}
