//! Percent-encoding, as S3 and its signatures use it.

use crate::error::{Code, Error, Result};

/// Undoes percent-encoding. `plus_is_blank` holds in queries, never in paths.
///
/// # Errors
/// [`Code::InvalidArgument`] for `%` without two hex digits.
pub fn decode(text: &str, plus_is_blank: bool) -> Result<Vec<u8>> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'%' => {
                let digits =
                    bytes.get(at + 1..at + 3).and_then(|d| Some(hex(d[0])? << 4 | hex(d[1])?));
                let bad = || {
                    Error::new(
                        Code::InvalidArgument,
                        "'%' in the URL wants two hex digits behind it.",
                    )
                };
                out.push(digits.ok_or_else(bad)?);
                at += 3;
                continue;
            }
            b'+' if plus_is_blank => out.push(b' '),
            byte => out.push(byte),
        }
        at += 1;
    }
    Ok(out)
}

/// As [`decode`], of text.
///
/// # Errors
/// As there; [`Code::InvalidArgument`] where what comes out is no UTF-8.
pub fn decode_text(text: &str, plus_is_blank: bool) -> Result<String> {
    let bytes = decode(text, plus_is_blank)?;
    String::from_utf8(bytes)
        .map_err(|_| Error::new(Code::InvalidArgument, "The URL is no UTF-8 once decoded."))
}

/// Encodes all but unreserved characters; `/` stays where `keep_slash` is set.
#[must_use]
pub fn encode(bytes: &[u8], keep_slash: bool) -> String {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut out = String::with_capacity(bytes.len());
    for &byte in bytes {
        let plain =
            byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) || (keep_slash && byte == b'/');
        if plain {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push(char::from(HEX[usize::from(byte >> 4)]));
            out.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
    out
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|d| u8::try_from(d).ok())
}

/// Bytes as lower-case hex digits.
#[must_use]
pub fn to_hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, b| {
        write!(out, "{b:02x}").expect("a String takes all");
        out
    })
}

/// Reads hex digits; `None` where there is something else.
#[must_use]
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|p| Some(hex(p[0])? << 4 | hex(*p.get(1)?)?)).collect()
}

/// The query of a URL: names and values as decoded text, in the order sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, Option<String>)>);

/// Parameters that a query may have.
const PARAMETERS_MAX: usize = 128;

impl Query {
    /// Reads what stands behind `?`, without it.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`] for bad encoding, more than 128 parameters, or a name that comes twice: two readers
    /// could each take another value.
    pub fn parse(raw: &str) -> Result<Self> {
        let mut out: Vec<(String, Option<String>)> = Vec::new();
        for pair in raw.split('&').filter(|p| !p.is_empty()) {
            let (name, value) = pair.split_once('=').map_or((pair, None), |(n, v)| (n, Some(v)));
            let name = decode_text(name, true)?;
            if out.iter().any(|(n, _)| *n == name) {
                return Err(Error::new(
                    Code::InvalidArgument,
                    format!("The parameter {name} is there twice."),
                ));
            }
            if out.len() == PARAMETERS_MAX {
                return Err(Error::new(
                    Code::InvalidArgument,
                    "The URL has more than 128 parameters.",
                ));
            }
            out.push((name, value.map(|v| decode_text(v, true)).transpose()?));
        }
        Ok(Self(out))
    }

    /// Whether a parameter is there, with or without a value.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(n, _)| n == name)
    }

    /// A parameter's value, empty where it has none; `None` where it is not there.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_deref().unwrap_or_default())
    }

    /// All parameters in the order sent; a value is `None` where no `=` stood.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.0.iter().map(|(n, v)| (n.as_str(), v.as_deref()))
    }

    /// The sorted form that signatures of version 4 cover, without the parameter named.
    #[must_use]
    pub fn canonical(&self, without: &str) -> String {
        let pairs = self.0.iter().filter(|(n, _)| n != without);
        let value = |v: &Option<String>| encode(v.as_deref().unwrap_or_default().as_bytes(), false);
        let mut pairs: Vec<_> =
            pairs.map(|(n, v)| (encode(n.as_bytes(), false), value(v))).collect();
        pairs.sort();
        pairs.iter().map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>().join("&")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Any bytes come back from their encoding.
        #[test]
        fn encoding_comes_back(bytes in any::<Vec<u8>>(), slash in any::<bool>()) {
            prop_assert_eq!(decode(&encode(&bytes, slash), true).unwrap(), bytes);
        }

        /// No text makes the parsers panic.
        #[test]
        fn any_text_is_read_or_refused(text in any::<String>()) {
            let _ = Query::parse(&text).map(|q| q.canonical("X"));
            let _ = from_hex(&text);
        }
    }

    #[test]
    fn queries() {
        let q = Query::parse("versions&prefix=a+b%2Fc&x=").unwrap();
        assert!(q.has("versions") && q.get("prefix") == Some("a b/c") && q.get("x") == Some(""));
        assert_eq!(q.canonical("x"), "prefix=a%20b%2Fc&versions=");
        for bad in ["a=%", "a=%4", "a=%zz", "a=%ff", "a&a=1"] {
            assert_eq!(Query::parse(bad).unwrap_err().code, Code::InvalidArgument, "{bad}");
        }
    }
}
