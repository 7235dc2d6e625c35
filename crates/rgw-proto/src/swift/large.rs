//! Large objects: a prefix whose objects follow each other (dynamic), or a list of segments (static).
//!
//! Source: `rgw_op.h` (`rgw_slo_entry`), `rgw_rest_swift.cc`.

use serde::Deserialize;

use crate::checksum;
use crate::error::{Code, Error, Result};
use crate::name::Key;
use crate::uri;

/// Segments of a static large object: `rgw_max_slo_entries`.
pub const SEGMENTS_MAX: usize = 1_000;
/// Bytes of a manifest of as many: a key and what else a segment has, each.
pub const MANIFEST_BYTES_MAX: u64 = SEGMENTS_MAX as u64 * (1_024 + 128);

/// A segment, as a manifest names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// As it was sent.
    pub path: String,
    /// Its container.
    pub container: String,
    /// Its object.
    pub key: Key,
    /// The ETag that it must have, without quotes; empty for any.
    pub etag: String,
    /// The bytes that it must have; `None` for any.
    pub size: Option<u64>,
}

#[derive(Deserialize)]
struct Sent {
    path: String,
    #[serde(default)]
    etag: Option<String>,
    #[serde(default)]
    size_bytes: Option<serde_json::Value>,
    #[serde(default)]
    range: Option<String>,
    #[serde(default)]
    data: Option<String>,
}

/// Container and object of a path `/CONTAINER/OBJECT`; a manifest has it decoded.
///
/// # Errors
/// [`Code::InvalidArgument`].
pub fn place(path: &str) -> Result<(String, Key)> {
    let rest = path.trim_start_matches('/');
    let bad = || Error::new(Code::InvalidArgument, format!("{path:?}: it is /CONTAINER/OBJECT."));
    let (container, key) = rest.split_once('/').ok_or_else(bad)?;
    if container.is_empty() {
        return Err(bad());
    }
    Ok((container.to_owned(), Key::new(key.into()).map_err(|_| bad())?))
}

/// Reads the body of `PUT ?multipart-manifest=put`.
///
/// # Errors
/// [`Code::InvalidArgument`] for what is no list of 1 to 1,000 segments; [`Code::NotImplemented`] for ranges and data in
/// a segment.
pub fn parse(body: &[u8]) -> Result<Vec<Segment>> {
    let bad = |text: String| Error::new(Code::InvalidArgument, text);
    let sent: Vec<Sent> = serde_json::from_slice(body)
        .map_err(|why| bad(format!("The manifest is a JSON list of maps with path: {why}.")))?;
    if sent.is_empty() || sent.len() > SEGMENTS_MAX {
        return Err(bad("A manifest has 1 to 1000 segments.".into()));
    }
    let mut out = Vec::with_capacity(sent.len());
    for one in sent {
        if one.range.is_some() || one.data.is_some() {
            let text = "Ranges and data in a manifest's segments are not built here.";
            return Err(Error::new(Code::NotImplemented, text));
        }
        let size = match one.size_bytes {
            None | Some(serde_json::Value::Null) => None,
            Some(serde_json::Value::Number(n)) => Some(n.as_u64()),
            Some(serde_json::Value::String(text)) => Some(text.parse().ok()),
            Some(_) => Some(None),
        };
        let size = match size {
            Some(None) => return Err(bad(format!("{:?}: size_bytes is a number.", one.path))),
            Some(Some(size)) => Some(size),
            None => None,
        };
        let (container, key) = place(&one.path)?;
        let etag = one.etag.unwrap_or_default().trim_matches('"').to_owned();
        out.push(Segment { path: one.path, container, key, etag, size });
    }
    Ok(out)
}

/// The ETag of segments that follow each other, without quotes.
#[must_use]
pub fn etag<'a>(of_each: impl IntoIterator<Item = &'a str>) -> String {
    let all: String = of_each.into_iter().collect();
    uri::to_hex(&checksum::md5(all.as_bytes()))
}

/// The part of each piece that a run of the whole has: where it begins in the whole, and from which to which of its
/// bytes. `None` where the run has none of it.
#[must_use]
pub fn overlap(at: u64, len: u64, (from, end): (u64, u64)) -> Option<(u64, u64)> {
    let (first, last) = (from.max(at), end.min(at.saturating_add(len)));
    (first < last).then(|| (first - at, last - first))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn manifests() {
        let body = br#"[{"path": "/c/a/b", "etag": "\"x\"", "size_bytes": 3}, {"path": "c/d", "size_bytes": "4"}]"#;
        let segments = parse(body).unwrap();
        assert_eq!((segments[0].container.as_str(), segments[0].key.as_str()), ("c", "a/b"));
        assert_eq!((segments[0].etag.as_str(), segments[0].size), ("x", Some(3)));
        assert_eq!((segments[1].etag.as_str(), segments[1].size), ("", Some(4)));
        for bad in [
            "nojson",
            "{}",
            "[]",
            "[1]",
            r#"[{"path": "c"}]"#,
            r#"[{"path": "//"}]"#,
            r#"[{"path": "/c/"}]"#,
            r#"[{"path": "/c/o", "size_bytes": -1}]"#,
            r#"[{"path": "/c/o", "size_bytes": []}]"#,
        ] {
            assert_eq!(parse(bad.as_bytes()).unwrap_err().code, Code::InvalidArgument, "{bad}");
        }
        let many = format!("[{}]", vec![r#"{"path": "/c/o"}"#; SEGMENTS_MAX + 1].join(","));
        assert_eq!(parse(many.as_bytes()).unwrap_err().code, Code::InvalidArgument);
        let ranged = br#"[{"path": "/c/o", "range": "0-1"}]"#;
        assert_eq!(parse(ranged).unwrap_err().code, Code::NotImplemented);
        // What stock 20.2.4 answers for three segments `000`, `1111`, `22222`.
        let sums = ["000", "1111", "22222"].map(|t| uri::to_hex(&checksum::md5(t.as_bytes())));
        assert_eq!(etag(sums.iter().map(String::as_str)), "943e5a86882e62a454e582b104ffc0f9");
    }

    proptest! {
        /// A run of pieces is the run of the whole.
        #[test]
        fn runs(lens in prop::collection::vec(0u64..5, 0..6), from in 0u64..20, len in 0u64..20) {
            let total: u64 = lens.iter().sum();
            let run = (from.min(total), (from + len).min(total));
            let mut at = 0;
            let mut got = Vec::new();
            for piece in lens {
                if let Some((first, count)) = overlap(at, piece, run) {
                    prop_assert!(first + count <= piece);
                    got.extend(at + first..at + first + count);
                }
                at += piece;
            }
            prop_assert_eq!(got, (run.0..run.1).collect::<Vec<_>>());
        }

        /// No bytes make the parser panic.
        #[test]
        fn any_manifest(body in any::<Vec<u8>>()) {
            let _ = parse(&body);
        }
    }
}
