//! Conditions on ETag and date, and ranges.
//!
//! Source: RFC 9110 §13 and §14; orders and answers as `rgw_op.cc` and `rgw_rados.cc` have them. Stock compares an ETag
//! by its stored length only, so that a longer one matches too; ours compares it whole.

use crate::error::{Code, Error, Result};
use crate::request::Headers;
use crate::time::Time;

/// ETags of a header that one must match, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tags {
    /// `*`: any object that is there.
    Any,
    /// These, without quotes.
    These(Vec<String>),
}

impl Tags {
    /// Reads `*` or a list of ETags, quoted or not, weak or not.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        if text.trim() == "*" {
            return Self::Any;
        }
        let bare = |tag: &str| {
            let tag = tag.trim();
            let tag = tag.strip_prefix("W/").unwrap_or(tag);
            tag.strip_prefix('"').and_then(|t| t.strip_suffix('"')).unwrap_or(tag).to_owned()
        };
        Self::These(text.split(',').map(bare).filter(|t| !t.is_empty()).collect())
    }

    /// Whether an object with this ETag is one of them.
    #[must_use]
    pub fn fits(&self, etag: &str) -> bool {
        match self {
            Self::Any => true,
            Self::These(tags) => tags.iter().any(|t| t == etag.trim_matches('"')),
        }
    }
}

/// The object that conditions are held against.
#[derive(Clone, Copy, Debug)]
pub struct Current<'a> {
    /// Without quotes.
    pub etag: &'a str,
    /// Cut to seconds: headers have no more.
    pub modified: Time,
}

/// The conditions of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// If-Match.
    pub fits: Option<Tags>,
    /// If-None-Match.
    pub fits_not: Option<Tags>,
    /// If-Modified-Since.
    pub newer_than: Option<Time>,
    /// If-Unmodified-Since.
    pub not_newer_than: Option<Time>,
}

impl Conditions {
    /// Reads `If-*`; with `x-amz-copy-source-` before the names it reads those of a copy's source. A date that is none
    /// is no condition (RFC 9110).
    ///
    /// # Errors
    /// [`Code::InvalidRequest`] where a header is there twice.
    pub fn of(headers: &Headers, prefix: &str) -> Result<Self> {
        let get = |name: &str| headers.single(&format!("{prefix}{name}"));
        let date = |text: Option<&str>| {
            text.and_then(|t| Time::parse_http(t).or_else(|| Time::parse_iso(t)))
        };
        Ok(Self {
            fits: get("if-match")?.map(Tags::parse),
            fits_not: get("if-none-match")?.map(Tags::parse),
            newer_than: date(get("if-modified-since")?),
            not_newer_than: date(get("if-unmodified-since")?),
        })
    }

    /// Whether there are any.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Judges a read: If-Match before If-Unmodified-Since, If-None-Match before If-Modified-Since.
    ///
    /// # Errors
    /// [`Code::PreconditionFailed`], [`Code::NotModified`].
    pub fn check_read(&self, now: Current<'_>) -> Result<()> {
        let refused = match (&self.fits, self.not_newer_than) {
            (Some(tags), _) => !tags.fits(now.etag),
            (None, Some(time)) => now.modified > time,
            (None, None) => false,
        };
        if refused {
            return Err(Code::PreconditionFailed.into());
        }
        let unchanged = match (&self.fits_not, self.newer_than) {
            (Some(tags), _) => tags.fits(now.etag),
            (None, Some(time)) => now.modified <= time,
            (None, None) => false,
        };
        if unchanged { Err(Code::NotModified.into()) } else { Ok(()) }
    }

    /// Judges a copy's source: what would be "not modified" for a read is a failed condition.
    ///
    /// # Errors
    /// [`Code::PreconditionFailed`].
    pub fn check_source(&self, now: Current<'_>) -> Result<()> {
        self.check_read(now).map_err(|_| Code::PreconditionFailed.into())
    }

    /// Judges a write over what is there now; `None` stands for no object, or a delete marker.
    ///
    /// # Errors
    /// [`Code::NoSuchKey`] for If-Match where nothing is; [`Code::PreconditionFailed`].
    pub fn check_write(&self, now: Option<Current<'_>>) -> Result<()> {
        match (&self.fits, now) {
            (Some(_), None) => return Err(Code::NoSuchKey.into()),
            (Some(tags), Some(now)) if !tags.fits(now.etag) => {
                return Err(Code::PreconditionFailed.into());
            }
            _ => {}
        }
        match (&self.fits_not, now) {
            (Some(tags), Some(now)) if tags.fits(now.etag) => Err(Code::PreconditionFailed.into()),
            _ => Ok(()),
        }
    }
}

/// A range of `Range: bytes=…`, before the object's length is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// From this byte to that one, both in it.
    Bytes(u64, u64),
    /// From this byte to the end.
    From(u64),
    /// So many of the last bytes.
    Last(u64),
}

impl Range {
    /// Reads the header; of several ranges the first. `None` for what is no range: HTTP ignores it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let first = text.trim().strip_prefix("bytes=")?.split(',').next()?.trim();
        let (from, to) = first.split_once('-')?;
        let (from, to) = (from.trim(), to.trim());
        let number = |text: &str| {
            text.parse::<u64>().ok().filter(|_| text.bytes().all(|b| b.is_ascii_digit()))
        };
        match (from, to) {
            ("", to) => Some(Self::Last(number(to)?)),
            (from, "") => Some(Self::From(number(from)?)),
            (from, to) => {
                let (from, to) = (number(from)?, number(to)?);
                (from <= to).then_some(Self::Bytes(from, to))
            }
        }
    }

    /// Offset and length of what is read from `len` bytes; the length is not zero.
    ///
    /// # Errors
    /// [`Code::InvalidRange`] where no byte is in the range.
    pub fn within(self, len: u64) -> Result<(u64, u64)> {
        let (from, to) = match self {
            Self::Bytes(from, to) => (from, to.saturating_add(1).min(len)),
            Self::From(from) => (from, len),
            Self::Last(n) => (len.saturating_sub(n), len),
        };
        if from >= to {
            return Err(Error::new(Code::InvalidRange, format!("The object has {len} bytes.")));
        }
        Ok((from, to - from))
    }

    /// Reads `x-amz-copy-source-range`, whose both ends are needed and must be in the source.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`], [`Code::InvalidRange`].
    pub fn of_source(text: &str, len: u64) -> Result<(u64, u64)> {
        match Self::parse(text).filter(|_| !text.contains(',')) {
            Some(Self::Bytes(from, to)) if to < len => Ok((from, to - from + 1)),
            Some(Self::Bytes(..)) => Err(Code::InvalidRange.into()),
            _ => Err(Error::new(
                Code::InvalidArgument,
                "x-amz-copy-source-range is bytes=FIRST-LAST.",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn conditions(headers: &[(&str, &str)]) -> Conditions {
        Conditions::of(&Headers::new(headers.iter().copied()).unwrap(), "").unwrap()
    }

    const NOW: Current<'_> = Current { etag: "abc", modified: Time(1_000_000) };
    const AT: &str = "Mon, 12 Jan 1970 13:46:40 GMT";
    const BEFORE: &str = "Mon, 12 Jan 1970 13:46:39 GMT";

    #[test]
    fn reads() {
        for (headers, want) in [
            (&[("if-match", "\"abc\"")][..], None),
            (&[("if-match", "x, \"abc\"")], None),
            (&[("if-match", "*")], None),
            (&[("if-match", "\"abcd\"")], Some(Code::PreconditionFailed)),
            (&[("if-match", "\"ab\"")], Some(Code::PreconditionFailed)),
            (&[("if-none-match", "W/\"abc\"")], Some(Code::NotModified)),
            (&[("if-none-match", "\"abcd\"")], None),
            (&[("if-modified-since", AT)], Some(Code::NotModified)),
            (&[("if-modified-since", BEFORE)], None),
            (&[("if-unmodified-since", AT)], None),
            (&[("if-unmodified-since", BEFORE)], Some(Code::PreconditionFailed)),
            (&[("if-match", "abc"), ("if-unmodified-since", BEFORE)], None),
            (&[("if-none-match", "x"), ("if-modified-since", AT)], None),
            (&[("if-modified-since", "never")], None),
        ] {
            assert_eq!(
                conditions(headers).check_read(NOW).err().map(|e| e.code),
                want,
                "{headers:?}"
            );
        }
    }

    #[test]
    fn writes() {
        let write = |header, value, now| {
            conditions(&[(header, value)]).check_write(now).err().map(|e| e.code)
        };
        assert_eq!(write("if-match", "*", None), Some(Code::NoSuchKey));
        assert_eq!(write("if-match", "abc", Some(NOW)), None);
        assert_eq!(write("if-match", "abcd", Some(NOW)), Some(Code::PreconditionFailed));
        assert_eq!(write("if-none-match", "*", None), None);
        assert_eq!(write("if-none-match", "*", Some(NOW)), Some(Code::PreconditionFailed));
        assert_eq!(write("if-none-match", "x", Some(NOW)), None);
    }

    proptest! {
        /// A range is what a slice of the bytes is.
        #[test]
        fn ranges_are_slices(len in 0u64..20, from in 0u64..25, to in 0u64..25) {
            let within = |text: String| Range::parse(&text).map(|r| r.within(len).ok());
            let all: Vec<u64> = (0..len).collect();
            let slice = |a: u64, b: u64| {
                let part: Vec<_> = all.iter().filter(|x| (a..b).contains(*x)).collect();
                part.first().map(|first| (**first, part.len() as u64))
            };
            prop_assert_eq!(within(format!("bytes={from}-")), Some(slice(from, len)));
            prop_assert_eq!(within(format!("bytes=-{to}")), Some(slice(len.saturating_sub(to), len)));
            let both = within(format!("bytes={from}-{to},0-0"));
            prop_assert_eq!(both, (from <= to).then(|| slice(from, to + 1)));
        }

        /// No text makes the parsers panic.
        #[test]
        fn any_text(text in any::<String>()) {
            let _ = (Range::parse(&text).map(|r| r.within(7)), Range::of_source(&text, 7), Tags::parse(&text));
        }
    }
}
