//! A request as it came, before anything of it is believed: method, path, query, headers.

use crate::error::{Code, Error, Result};
use crate::name::{BucketName, Key};
use crate::uri::{self, Query};

/// A method that S3 has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "HTTP's names")]
pub enum Method {
    Get,
    Head,
    Put,
    Post,
    Delete,
    Options,
    /// Swift's alone.
    Copy,
}

impl Method {
    /// Reads HTTP's spelling.
    ///
    /// # Errors
    /// [`Code::MethodNotAllowed`].
    pub fn parse(text: &str) -> Result<Self> {
        Ok(match text {
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            "PUT" => Self::Put,
            "POST" => Self::Post,
            "DELETE" => Self::Delete,
            "OPTIONS" => Self::Options,
            "COPY" => Self::Copy,
            _ => return Err(Code::MethodNotAllowed.into()),
        })
    }

    /// HTTP's spelling, which signatures cover.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Put => "PUT",
            Self::Post => "POST",
            Self::Delete => "DELETE",
            Self::Options => "OPTIONS",
            Self::Copy => "COPY",
        }
    }
}

/// Headers by lower-case name, in the order they came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// Takes names in any case and values as text.
    ///
    /// # Errors
    /// [`Code::InvalidRequest`] where a value holds CR, LF or NUL: it could be echoed into an answer.
    pub fn new<N: AsRef<str>, V: Into<String>>(
        all: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Self> {
        let mut out = Vec::new();
        for (name, value) in all {
            let (name, value) = (name.as_ref().to_ascii_lowercase(), value.into());
            if value.contains(['\r', '\n', '\0']) {
                return Err(Error::new(
                    Code::InvalidRequest,
                    format!("The header {name} holds a line break or NUL."),
                ));
            }
            out.push((name, value));
        }
        Ok(Self(out))
    }

    /// The same but for some, by their lower-case names.
    #[must_use]
    pub fn without(&self, names: &[&str]) -> Self {
        Self(self.0.iter().filter(|(n, _)| !names.contains(&n.as_str())).cloned().collect())
    }

    /// A header's first value, trimmed.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, v)| v.trim())
    }

    /// The only value of a header that decides something.
    ///
    /// # Errors
    /// [`Code::InvalidRequest`] where it is there twice.
    pub fn single(&self, name: &str) -> Result<Option<&str>> {
        let mut all = self.0.iter().filter(|(n, _)| n == name);
        let first = all.next();
        if all.next().is_some() {
            return Err(Error::new(
                Code::InvalidRequest,
                format!("The header {name} is there twice."),
            ));
        }
        Ok(first.map(|(_, v)| v.trim()))
    }

    /// All headers whose name begins so.
    pub fn with_prefix<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.0
            .iter()
            .filter(move |(n, _)| n.starts_with(prefix))
            .map(|(n, v)| (n.as_str(), v.trim()))
    }

    /// Values of a name, trimmed and joined by commas: how signatures of version 2 cover them.
    #[must_use]
    pub fn joined(&self, name: &str) -> String {
        let values = self.0.iter().filter(|(n, _)| n == name).map(|(_, v)| v.trim());
        values.collect::<Vec<_>>().join(",")
    }

    /// The same with runs of blanks as one: how signatures of version 4 cover them.
    #[must_use]
    pub fn canonical(&self, name: &str) -> Option<String> {
        let values: Vec<String> = self
            .0
            .iter()
            .filter(|(n, _)| n == name)
            .map(|(_, v)| v.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        (!values.is_empty()).then(|| values.join(","))
    }
}

/// What came before the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// HTTP's method.
    pub method: Method,
    /// The path as sent, still encoded; begins with `/`.
    pub path: String,
    /// The query, decoded.
    pub query: Query,
    /// All headers; `host` is the authority of HTTP/2.
    pub headers: Headers,
}

impl Head {
    /// Takes the request line's target, `PATH[?QUERY]`, or the absolute form of it.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`] for bad encoding in the query; [`Code::InvalidRequest`] for a target that is no path.
    pub fn new(method: Method, target: &str, headers: Headers) -> Result<Self> {
        let bare = ["http://", "https://"].iter().find_map(|scheme| target.strip_prefix(scheme));
        let target = bare.map_or(target, |rest| rest.find('/').map_or("/", |at| &rest[at..]));
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        if !path.starts_with('/') {
            return Err(Error::new(Code::InvalidRequest, "The request's target is no path."));
        }
        Ok(Self { method, path: path.into(), query: Query::parse(query)?, headers })
    }

    /// The value of `host` without its port, in lower case.
    #[must_use]
    pub fn host(&self) -> String {
        let host = self.headers.get("host").unwrap_or_default().to_ascii_lowercase();
        match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name.to_owned(),
            _ => host,
        }
    }
}

/// What a URL names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The gateway itself.
    Service,
    /// A bucket.
    Bucket(BucketName),
    /// An object of a bucket.
    Object(BucketName, Key),
}

impl Target {
    /// Reads path and host. A host that ends in one of `dns_names` (lower case) with something before it names the
    /// bucket there, and the path is the key alone.
    ///
    /// The path is cut at `/` before it is decoded, so that an encoded slash never moves a key into another bucket.
    /// `.` and `..` are keys like others: nothing is resolved.
    ///
    /// # Errors
    /// [`Code::InvalidBucketName`], [`Code::InvalidObjectName`], [`Code::InvalidArgument`] for bad encoding.
    pub fn of(head: &Head, dns_names: &[String]) -> Result<Self> {
        let path = head.path.strip_prefix('/').unwrap_or(&head.path);
        let (bucket, key) = match virtual_bucket(&head.host(), dns_names) {
            Some(bucket) => (bucket, path),
            None => {
                let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
                (
                    uri::decode_text(bucket, false)
                        .map_err(|_| Error::from(Code::InvalidBucketName))?,
                    key,
                )
            }
        };
        if bucket.is_empty() {
            return if key.is_empty() {
                Ok(Self::Service)
            } else {
                Err(Code::InvalidBucketName.into())
            };
        }
        let bucket = BucketName::parse(&bucket)?;
        if key.is_empty() {
            return Ok(Self::Bucket(bucket));
        }
        Ok(Self::Object(bucket, Key::new(uri::decode(key, false)?)?))
    }

    /// The bucket, where there is one.
    #[must_use]
    pub fn bucket(&self) -> Option<&BucketName> {
        match self {
            Self::Service => None,
            Self::Bucket(bucket) | Self::Object(bucket, _) => Some(bucket),
        }
    }
}

/// The bucket in a host's name: what stands before the longest of `dns_names` that fits.
#[must_use]
pub fn virtual_bucket(host: &str, dns_names: &[String]) -> Option<String> {
    if dns_names.iter().any(|name| name == host) {
        return None;
    }
    let cut = |name: &String| {
        host.strip_suffix(name.as_str())?.strip_suffix('.').map(|b| (name.len(), b))
    };
    dns_names.iter().filter_map(cut).max_by_key(|(len, _)| *len).map(|(_, b)| b.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn target(host: &str, path: &str) -> Result<Target> {
        let headers = Headers::new([("Host", host)]).unwrap();
        Target::of(
            &Head::new(Method::Get, path, headers)?,
            &["s3.example.com".into(), "example.com".into()],
        )
    }

    fn object(bucket: &str, key: &str) -> Target {
        Target::Object(BucketName::parse(bucket).unwrap(), Key::new(key.into()).unwrap())
    }

    #[test]
    fn paths_and_hosts() {
        let bucket = Target::Bucket(BucketName::parse("abc").unwrap());
        assert_eq!(target("127.0.0.1:7480", "/").unwrap(), Target::Service);
        assert_eq!(target("s3.example.com", "/?x").unwrap(), Target::Service);
        assert_eq!(target("x", "/abc").unwrap(), bucket);
        assert_eq!(target("x", "/abc/").unwrap(), bucket);
        assert_eq!(target("ABC.s3.example.com:80", "/").unwrap(), bucket);
        assert_eq!(target("abc.example.com", "/k").unwrap(), object("abc", "k"));
        assert_eq!(target("x", "/t%3Aabc/k+%2Fl//m").unwrap(), object("t:abc", "k+/l//m"));
        assert_eq!(target("x", "http://h/abc/../def").unwrap(), object("abc", "../def"));
        for bad in ["/ab", "/abc%2Fdef", "//k", "/abc/%00", "/abc/%ff", "/abc/%4"] {
            assert!(target("x", bad).is_err(), "{bad}");
        }
    }

    proptest! {
        /// No path or host makes it panic, and a key never loses its bucket.
        #[test]
        fn any_path(path in any::<String>(), host in any::<String>()) {
            let _ = Headers::new([("host", host)]).and_then(|h| Head::new(Method::Get, &path, h)).and_then(|h| Target::of(&h, &["a".into()]));
        }
    }
}
