//! Names of buckets and keys of objects, and what rules they keep.

use crate::error::{Code, Error, Result};

/// Bytes of the longest key.
pub const KEY_BYTES_MAX: usize = 1_024;

/// A bucket's name, with its tenant (empty for most).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BucketName {
    /// Empty, or letters, digits and `_`.
    pub tenant: String,
    /// Kept as sent; [`BucketName::check_new`] has the rules for new ones.
    pub name: String,
}

impl BucketName {
    /// Reads `NAME` or `TENANT:NAME`, as a path has it. Older buckets may have names that new ones must not have;
    /// here only what could not be a bucket of any time is refused.
    ///
    /// # Errors
    /// [`Code::InvalidBucketName`].
    pub fn parse(text: &str) -> Result<Self> {
        let (tenant, name) = text.split_once(':').unwrap_or(("", text));
        let word = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        let tenant_fits = tenant.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let name_fits = (3..=255).contains(&name.len()) && name.chars().all(word);
        if !tenant_fits || !name_fits {
            return Err(Code::InvalidBucketName.into());
        }
        Ok(Self { tenant: tenant.into(), name: name.into() })
    }

    /// Checks the rules for a new bucket: 3 to 63 of `a-z 0-9 - .`, first and last a letter or digit, no address, no
    /// `..`, `.-` or `-.`. With `relaxed` (`rgw_relaxed_s3_bucket_names`) up to 255 bytes, upper case and `_` too.
    ///
    /// # Errors
    /// [`Code::InvalidBucketName`].
    pub fn check_new(&self, relaxed: bool) -> Result<()> {
        let name = self.name.as_str();
        let length = if relaxed { 3..=255 } else { 3..=63 };
        let edge =
            |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        let edges = relaxed || (edge(name.chars().next()) && edge(name.chars().next_back()));
        let letters = relaxed || !name.chars().any(|c| c.is_ascii_uppercase() || c == '_');
        let pairs = relaxed || !["..", ".-", "-."].iter().any(|p| name.contains(p));
        let address = name.parse::<std::net::Ipv4Addr>().is_ok();
        if length.contains(&name.len()) && edges && letters && pairs && !address {
            return Ok(());
        }
        Err(Code::InvalidBucketName.into())
    }
}

/// The key of an object: UTF-8, 1 to 1,024 bytes, no NUL.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(String);

impl Key {
    /// Checks a decoded key.
    ///
    /// # Errors
    /// [`Code::InvalidObjectName`].
    pub fn new(bytes: Vec<u8>) -> Result<Self> {
        let bad = |what: &str| Error::new(Code::InvalidObjectName, what);
        if bytes.is_empty() || bytes.len() > KEY_BYTES_MAX {
            return Err(bad("A key has 1 to 1024 bytes."));
        }
        if bytes.contains(&0) {
            return Err(bad("A key has no NUL byte."));
        }
        String::from_utf8(bytes).map(Self).map_err(|_| bad("A key is UTF-8."))
    }

    /// The key's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_names() {
        let new = |name: &str, relaxed| {
            BucketName::parse(name).and_then(|b| b.check_new(relaxed)).is_ok()
        };
        for good in ["abc", "a.b", "a-b-1", "1ab", &"a".repeat(63), "tenant:abc"] {
            assert!(new(good, false), "{good}");
        }
        for bad in [
            "ab",
            "Abc",
            "a_b",
            "-ab",
            "ab-",
            ".ab",
            "a..b",
            "a.-b",
            "a-.b",
            "10.0.0.1",
            &"a".repeat(64),
            "a b",
            "a/b",
            "x:y:z",
        ] {
            assert!(!new(bad, false), "{bad}");
        }
        for good in ["Abc", "a_b", &"a".repeat(255)] {
            assert!(new(good, true), "{good}");
        }
        assert!(!new("10.0.0.1", true) && !new(&"a".repeat(256), true));
    }

    #[test]
    fn keys() {
        for bad in [vec![], vec![b'a'; 1_025], vec![b'a', 0], vec![0xff]] {
            assert_eq!(Key::new(bad).unwrap_err().code, Code::InvalidObjectName);
        }
        assert!(Key::new(vec![b'a'; 1_024]).is_ok());
    }
}
