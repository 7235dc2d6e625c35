//! Temporary URLs: a method, a path and an end, signed with a key of the account or of the container.
//!
//! ```text
//!   HMAC(key, ["ip=" RANGE \n] METHOD \n EXPIRES \n (PATH | "prefix:" PATH OF THE CONTAINER / PREFIX))
//! ```
//!
//! The path is decoded, with or without what stands before `/v1`. The length of the signature says its digest: SHA-1,
//! SHA-256 or SHA-512; or `sha256:` and base64. HEAD is allowed by the URLs of GET and PUT too.
//!
//! Source: OpenStack's `tempurl` middleware; stock 20.2.4 ignores `temp_url_ip_range` and keys of containers.

use std::net::IpAddr;

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE, URL_SAFE_NO_PAD};

use crate::error::{Code, Error, Result};
use crate::request::{Head, Method};
use crate::time::Time;
use crate::uri;

/// What a URL claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TempUrl {
    signature: String,
    expires: String,
    prefix: Option<String>,
    ip_range: Option<String>,
}

/// That a URL's signature was right: for the one method and object of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant(());

/// What is signed, of a request.
#[derive(Clone, Copy, Debug)]
pub struct Signed<'a> {
    /// Its method.
    pub method: Method,
    /// The decoded path, from its first `/`.
    pub path: &'a str,
    /// Bytes of the path before `/v1`.
    pub entry_len: usize,
    /// The object, the path's end.
    pub object: &'a str,
    /// Who sent it.
    pub peer: Option<IpAddr>,
}

fn denied(text: &str) -> Error {
    Error::new(Code::AccessDenied, text)
}

/// The bytes of a signature, and the digest that its form says.
fn signature(text: &str) -> Option<(hmac::Algorithm, Vec<u8>)> {
    let sha1 = hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY;
    if let Some((digest, sum)) = text.split_once(':') {
        let engines = [&URL_SAFE, &URL_SAFE_NO_PAD, &STANDARD];
        let bytes = engines.iter().find_map(|engine| engine.decode(sum).ok())?;
        let algorithm = match digest {
            "sha1" => sha1,
            "sha256" => hmac::HMAC_SHA256,
            "sha512" => hmac::HMAC_SHA512,
            _ => return None,
        };
        return Some((algorithm, bytes));
    }
    let algorithm = match text.len() {
        40 => sha1,
        64 => hmac::HMAC_SHA256,
        128 => hmac::HMAC_SHA512,
        _ => return None,
    };
    Some((algorithm, uri::from_hex(text)?))
}

/// Whether an address is in `ADDRESS[/BITS]`; `None` for what is no range.
fn is_within(range: &str, peer: IpAddr) -> Option<bool> {
    let (net, bits) = match range.split_once('/') {
        Some((net, bits)) => (net.parse::<IpAddr>().ok()?, Some(bits.parse::<u32>().ok()?)),
        None => (range.parse::<IpAddr>().ok()?, None),
    };
    let same = |a: u128, b: u128, width: u32| {
        let bits = bits.unwrap_or(width);
        (bits <= width).then(|| bits == 0 || a >> (width - bits) == b >> (width - bits))
    };
    match (net, peer.to_canonical()) {
        (IpAddr::V4(a), IpAddr::V4(b)) => same(a.to_bits().into(), b.to_bits().into(), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => same(a.to_bits(), b.to_bits(), 128),
        (IpAddr::V4(_), _) => bits.is_none_or(|bits| bits <= 32).then_some(false),
        (IpAddr::V6(_), _) => bits.is_none_or(|bits| bits <= 128).then_some(false),
    }
}

impl TempUrl {
    /// Reads what a URL claims; `None` where it claims nothing.
    ///
    /// # Errors
    /// [`Code::InvalidToken`] where one of signature and end is missing.
    pub fn of(head: &Head) -> Result<Option<Self>> {
        let get = |name: &str| head.query.get(name).map(str::to_owned);
        if get("temp_url_sig").is_none() && get("temp_url_expires").is_none() {
            return Ok(None);
        }
        let needed = |name: &str| {
            get(name).filter(|value| !value.is_empty()).ok_or_else(|| {
                Error::new(Code::InvalidToken, format!("A temporary URL has {name} with a value."))
            })
        };
        Ok(Some(Self {
            signature: needed("temp_url_sig")?,
            expires: needed("temp_url_expires")?,
            prefix: get("temp_url_prefix"),
            ip_range: get("temp_url_ip_range").filter(|range| !range.is_empty()),
        }))
    }

    /// Proves it by one of the keys, in constant time for each.
    ///
    /// # Errors
    /// [`Code::ExpiredToken`] where it has ended; [`Code::AccessDenied`] where no key made the signature, or address or
    /// prefix do not fit.
    pub fn verify<'a>(
        &self,
        signed: &Signed<'_>,
        keys: impl IntoIterator<Item = &'a str>,
        now: Time,
    ) -> Result<Grant> {
        let ends = self.expires.parse::<i64>().ok();
        let is_over = ends.is_none_or(|ends| ends <= now.0);
        if is_over {
            let text = "The temporary URL has ended: temp_url_expires is seconds since 1970.";
            return Err(Error::new(Code::ExpiredToken, text));
        }
        if let Some(range) = &self.ip_range {
            match signed.peer.and_then(|peer| is_within(range, peer)) {
                Some(true) => {}
                Some(false) => return Err(denied("The temporary URL is for other addresses.")),
                None => return Err(denied("temp_url_ip_range is ADDRESS or ADDRESS/BITS.")),
            }
        }
        let container = signed.path.strip_suffix(signed.object).unwrap_or_default();
        let mut paths = vec![signed.path.to_owned()];
        if let Some(prefix) = &self.prefix {
            if !signed.object.starts_with(prefix.as_str()) {
                return Err(denied("The object is none of the temporary URL's prefix."));
            }
            paths = vec![format!("{container}{prefix}")];
        }
        let bare = paths[0].get(signed.entry_len..).map(str::to_owned);
        paths.extend(bare.filter(|_| signed.entry_len > 0));
        let kind = if self.prefix.is_some() { "prefix:" } else { "" };
        let bad = || {
            denied("The temporary URL's signature fits no key of the account or of the container.")
        };
        let (algorithm, sum) = signature(&self.signature).ok_or_else(bad)?;
        let methods: &[&str] = match signed.method {
            Method::Head => &["HEAD", "GET", "PUT"],
            other => &[other.name()],
        };
        let range = self.ip_range.as_ref().map_or(String::new(), |range| format!("ip={range}\n"));
        for key in keys.into_iter().filter(|key| !key.is_empty()) {
            let key = hmac::Key::new(algorithm, key.as_bytes());
            for path in &paths {
                for method in methods {
                    let text = format!("{range}{method}\n{}\n{kind}{path}", self.expires);
                    if hmac::verify(&key, text.as_bytes(), &sum).is_ok() {
                        return Ok(Grant(()));
                    }
                }
            }
        }
        Err(bad())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Headers;

    const PATH: &str = "/swift/v1/con/dir/a.txt";

    fn sign(algorithm: hmac::Algorithm, key: &str, text: &str) -> String {
        let tag = hmac::sign(&hmac::Key::new(algorithm, key.as_bytes()), text.as_bytes());
        uri::to_hex(tag.as_ref())
    }

    fn sha1(key: &str, text: &str) -> String {
        sign(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, key, text)
    }

    fn verify(method: Method, query: &str, now: i64) -> std::result::Result<(), Code> {
        let head = Head::new(method, &format!("{PATH}?{query}"), Headers::default())
            .map_err(|e| e.code)?;
        let url = TempUrl::of(&head).map_err(|e| e.code)?.ok_or(Code::NotFound)?;
        let peer = Some("127.0.0.1".parse().unwrap());
        let object = "dir/a.txt";
        let signed = Signed { method, path: PATH, entry_len: 6, object, peer };
        url.verify(&signed, ["", "k1", "k2"], Time(now)).map(drop).map_err(|e| e.code)
    }

    #[test]
    fn signatures() {
        let text = format!("GET\n1000\n{PATH}");
        let url = |sum: &str| format!("temp_url_sig={sum}&temp_url_expires=1000");
        let right = sha1("k1", &text);
        assert_eq!(verify(Method::Get, &url(&right), 999), Ok(()));
        assert_eq!(verify(Method::Get, &url(&sha1("k2", &text)), 999), Ok(()));
        assert_eq!(verify(Method::Head, &url(&right), 999), Ok(()));
        assert_eq!(verify(Method::Get, &url(&right), 1_000), Err(Code::ExpiredToken));
        assert_eq!(verify(Method::Put, &url(&right), 999), Err(Code::AccessDenied));
        assert_eq!(verify(Method::Delete, &url(&right), 999), Err(Code::AccessDenied));
        assert_eq!(verify(Method::Get, &url(&sha1("", &text)), 0), Err(Code::AccessDenied));
        assert_eq!(verify(Method::Get, &url(&sha1("k3", &text)), 0), Err(Code::AccessDenied));
        assert_eq!(verify(Method::Get, &url(""), 0), Err(Code::InvalidToken));
        assert_eq!(verify(Method::Get, "temp_url_sig=x", 0), Err(Code::InvalidToken));
        let bare = sha1("k1", "GET\n1000\n/v1/con/dir/a.txt");
        assert_eq!(verify(Method::Get, &url(&bare), 0), Ok(()));
        for algorithm in [hmac::HMAC_SHA256, hmac::HMAC_SHA512] {
            assert_eq!(verify(Method::Get, &url(&sign(algorithm, "k1", &text)), 0), Ok(()));
        }
        let sum = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, b"k1"), text.as_bytes());
        let sum = format!("sha256:{}", URL_SAFE.encode(sum.as_ref()));
        assert_eq!(verify(Method::Get, &url(&sum), 0), Ok(()));
        // A signature of GET is none of another digest, cut, or of the same sum once more.
        for bad in [&right[..39], &format!("{right}00"), &format!("sha256:{right}")] {
            assert_eq!(verify(Method::Get, &url(bad), 0), Err(Code::AccessDenied), "{bad}");
        }
    }

    #[test]
    fn prefixes_and_addresses() {
        let prefixed = |prefix: &str| {
            let sum = sha1("k1", &format!("GET\n1000\nprefix:/swift/v1/con/{prefix}"));
            format!("temp_url_sig={sum}&temp_url_expires=1000&temp_url_prefix={prefix}")
        };
        assert_eq!(verify(Method::Get, &prefixed("dir/"), 0), Ok(()));
        assert_eq!(verify(Method::Get, &prefixed(""), 0), Ok(()));
        assert_eq!(verify(Method::Get, &prefixed("other"), 0), Err(Code::AccessDenied));
        let other = prefixed("dir/").replace("temp_url_prefix=dir/", "temp_url_prefix=di");
        assert_eq!(verify(Method::Get, &other, 0), Err(Code::AccessDenied));
        let ranged = |range: &str| {
            let sum = sha1("k1", &format!("ip={range}\nGET\n1000\n{PATH}"));
            format!("temp_url_sig={sum}&temp_url_expires=1000&temp_url_ip_range={range}")
        };
        for (range, want) in [
            ("127.0.0.1", Ok(())),
            ("127.0.0.0/8", Ok(())),
            ("0.0.0.0/0", Ok(())),
            ("10.0.0.0/8", Err(Code::AccessDenied)),
            ("::/0", Err(Code::AccessDenied)),
            ("127.0.0.1/33", Err(Code::AccessDenied)),
            ("bad", Err(Code::AccessDenied)),
        ] {
            assert_eq!(verify(Method::Get, &ranged(range), 0), want, "{range}");
        }
        // A range that the signature does not cover is no range.
        let sum = sha1("k1", &format!("GET\n1000\n{PATH}"));
        let added = format!("temp_url_sig={sum}&temp_url_expires=1000&temp_url_ip_range=127.0.0.1");
        assert_eq!(verify(Method::Get, &added, 0), Err(Code::AccessDenied));
    }
}
