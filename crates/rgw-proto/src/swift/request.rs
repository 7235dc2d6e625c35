//! What a request of Swift asks for.
//!
//! ```text
//!   GET  /auth/v1.0                                   a token for X-Auth-User and X-Auth-Key
//!   GET  /PREFIX/info, /healthcheck, /crossdomain.xml what the gateway can
//!   …    /PREFIX/v1[/AUTH_ACCOUNT][/CONTAINER[/OBJECT]]
//! ```
//!
//! The path is cut at `/` before it is decoded, so that an encoded slash never moves an object into another container.
//! What is not built answers [`Code::NotImplemented`] and is never another operation.

use crate::error::{Code, Error, Result};
use crate::name::{BucketName, Key};
use crate::operation::Operation;
use crate::request::{Head, Headers, Method};
use crate::swift::temp_url::TempUrl;
use crate::swift::token::Token;
use crate::uri;

/// Bytes of a container's name.
pub const CONTAINER_BYTES_MAX: usize = 255;

/// Where Swift is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// The first part of its paths, without slashes; empty: none. `rgw_swift_url_prefix`.
    pub prefix: String,
    /// The first part of the paths of logins: `rgw_swift_auth_entry`.
    pub auth_entry: String,
    /// Whether the account stands in the path: `rgw_swift_account_in_url`.
    pub account_in_url: bool,
}

/// What a path is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// A login.
    Auth,
    /// What the gateway can.
    Info,
    /// Whether it serves.
    Healthcheck,
    /// What old browsers' plug-ins ask.
    CrossDomain,
    /// Accounts, containers, objects: the path behind the prefix, from `/v1` on, encoded.
    Storage(String),
    /// The prefix, and nothing that is known.
    Unknown,
}

impl Paths {
    /// What a path, still encoded, is for; `None` where it is no path of Swift.
    #[must_use]
    pub fn route(&self, path: &str) -> Option<Route> {
        let rest = path.strip_prefix('/')?;
        let (first, behind) = rest.split_once('/').unwrap_or((rest, ""));
        if first == self.auth_entry && !self.auth_entry.is_empty() {
            return Some(Route::Auth);
        }
        let is_version = |part: &str| ["v1", "v1.0"].contains(&part);
        if self.prefix.is_empty() {
            return match (first, behind) {
                (part, _) if is_version(part) => Some(Route::Storage(path.to_owned())),
                ("info", "") => Some(Route::Info),
                ("healthcheck", "") => Some(Route::Healthcheck),
                ("crossdomain.xml", "") => Some(Route::CrossDomain),
                _ => None,
            };
        }
        if first != self.prefix {
            return None;
        }
        Some(match behind {
            "info" => Route::Info,
            "healthcheck" => Route::Healthcheck,
            "crossdomain.xml" => Route::CrossDomain,
            behind if is_version(behind.split('/').next().unwrap_or_default()) => {
                Route::Storage(format!("/{behind}"))
            }
            _ => Route::Unknown,
        })
    }

    /// Bytes of a decoded path before `/v1`.
    #[must_use]
    pub fn entry_len(&self) -> usize {
        if self.prefix.is_empty() { 0 } else { self.prefix.len() + 1 }
    }
}

/// What a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The account.
    Account,
    /// A container.
    Container(String),
    /// An object.
    Object(String, Key),
}

/// A request for accounts, containers or objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The account that the path names, without `AUTH_`.
    pub account: Option<String>,
    /// What it is about; of copies what is written.
    pub subject: Subject,
    /// What it asks for.
    pub operation: Operation,
    /// What is copied: container and object.
    pub source: Option<(String, Key)>,
    /// Whether the path ends in the container's name and no slash behind it.
    pub is_bare: bool,
}

/// Who a request claims to be from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Nobody.
    Nobody,
    /// A subuser.
    Token(Token),
    /// Who has a key of the account or of the container.
    TempUrl(TempUrl),
}

impl Claim {
    /// Reads `X-Auth-Token`, or what a temporary URL has. The URL comes first, as of stock.
    ///
    /// # Errors
    /// [`Code::InvalidToken`] for what is neither.
    pub fn of(head: &Head) -> Result<Self> {
        if let Some(url) = TempUrl::of(head)? {
            return Ok(Self::TempUrl(url));
        }
        match head.headers.single("x-auth-token")? {
            None => Ok(Self::Nobody),
            Some(text) => Ok(Self::Token(Token::parse(text)?)),
        }
    }
}

fn bad_url(text: &str) -> Error {
    Error::new(Code::BadURL, text)
}

/// A container's decoded name.
fn container(encoded: &str) -> Result<String> {
    let name = uri::decode(encoded, false)?;
    let name = String::from_utf8(name).map_err(|_| bad_url("The container's name is no UTF-8."))?;
    let bad = |text: &str| Err(Error::new(Code::InvalidBucketName, text));
    if name.is_empty() || name.len() > CONTAINER_BYTES_MAX {
        return bad("A container's name has 1 to 255 bytes.");
    }
    if name.starts_with('.') || name.contains(['/', ':']) || name.chars().any(char::is_control) {
        return bad(
            "A container's name begins with no dot and has no '/', ':' or control character.",
        );
    }
    Ok(name)
}

/// `[/]CONTAINER/OBJECT`, encoded: of `X-Copy-From` and `Destination`.
fn location(text: &str, what: &str) -> Result<(String, Key)> {
    let text = text.trim_start_matches('/');
    let parts = text.split_once('/').filter(|(_, key)| !key.is_empty());
    let (name, key) =
        parts.ok_or_else(|| bad_url(&format!("{what} is CONTAINER/OBJECT, URL-encoded.")))?;
    Ok((container(name)?, Key::new(uri::decode(key, false)?)?))
}

/// Headers and parameters of what is not built.
const NOT_BUILT: [(&str, &str); 8] = [
    ("x-versions-location", "versions of objects"),
    ("x-history-location", "versions of objects"),
    ("x-account-access-control", "lists of access of accounts"),
    ("x-container-sync-to", "synchronization of containers"),
    ("x-container-sync-key", "synchronization of containers"),
    ("x-symlink-target", "links between objects"),
    ("x-destination-account", "copies between accounts: use the same account"),
    ("x-copy-from-account", "copies between accounts: use the same account"),
];

fn check_built(head: &Head) -> Result<()> {
    let not_built = |what: &str| {
        let text = format!("Swift's {what} are not built here: see COMPAT.md.");
        Err(Error::new(Code::NotImplemented, text))
    };
    for (name, what) in NOT_BUILT {
        if head.headers.get(name).is_some_and(|value| !value.is_empty()) {
            return not_built(what);
        }
    }
    if head.headers.with_prefix("x-container-meta-web-").any(|(_, value)| !value.is_empty()) {
        return not_built("websites of containers");
    }
    let kind = head.headers.get("content-type").unwrap_or_default().to_ascii_lowercase();
    if head.method == Method::Post && kind.starts_with("multipart/form-data") {
        return not_built("uploads by forms (FormPost)");
    }
    if head.query.has("extract-archive") {
        return not_built("uploads of archives (extract-archive)");
    }
    Ok(())
}

impl Call {
    /// Reads a request; `path` is of [`Route::Storage`].
    ///
    /// # Errors
    /// [`Code::InvalidBucketName`], [`Code::InvalidObjectName`], [`Code::BadURL`], [`Code::MethodNotAllowed`],
    /// [`Code::NotImplemented`].
    pub fn of(head: &Head, path: &str, paths: &Paths) -> Result<Self> {
        let mut rest = path.trim_start_matches('/');
        let mut next = || {
            let (part, behind) = rest.split_once('/').map_or((rest, None), |(p, b)| (p, Some(b)));
            rest = behind.unwrap_or_default();
            (part, behind.is_none())
        };
        next();
        let account = if paths.account_in_url {
            let name = uri::decode_text(next().0, false)?;
            let name = name.strip_prefix("AUTH_").or(name.strip_prefix("KEY_")).unwrap_or(&name);
            if name.is_empty() {
                return Err(Error::new(
                    Code::PreconditionFailed,
                    "The path wants an account behind /v1: AUTH_ and the user's id.",
                ));
            }
            Some(name.to_owned())
        } else {
            None
        };
        let (name, is_bare) = next();
        let subject = match (name, rest) {
            ("", "") => Subject::Account,
            (name, "") => Subject::Container(container(name)?),
            (name, key) => Subject::Object(container(name)?, Key::new(uri::decode(key, false)?)?),
        };
        check_built(head)?;
        let mut out =
            Self { account, subject, operation: Operation::Preflight, source: None, is_bare };
        out.operation = out.choose(head)?;
        Ok(out)
    }

    fn choose(&mut self, head: &Head) -> Result<Operation> {
        use Operation as Op;
        let refused = || Err(Code::MethodNotAllowed.into());
        let deletes = head.query.has("bulk-delete");
        Ok(match (&self.subject, head.method) {
            (_, Method::Options) => Op::Preflight,
            (Subject::Account, Method::Get | Method::Head) => Op::ListBuckets,
            (Subject::Account, Method::Post | Method::Delete) if deletes => Op::DeleteObjects,
            (Subject::Account, Method::Post) => Op::PutAccountMetadata,
            (Subject::Account, _) => return refused(),
            (Subject::Container(_), _) if deletes => {
                let text = "bulk-delete is asked for at the account: POST /v1?bulk-delete.";
                return Err(Error::new(Code::NotImplemented, text));
            }
            (Subject::Container(_), Method::Get) => Op::ListObjects,
            (Subject::Container(_), Method::Head) => Op::HeadBucket,
            (Subject::Container(_), Method::Put) => Op::CreateBucket,
            (Subject::Container(_), Method::Post) => Op::PutBucketMetadata,
            (Subject::Container(_), Method::Delete) => Op::DeleteBucket,
            (Subject::Container(_), Method::Copy) => return refused(),
            (Subject::Object(..), Method::Get) => Op::GetObject,
            (Subject::Object(..), Method::Head) => Op::HeadObject,
            (Subject::Object(..), Method::Post) => Op::PutObjectMetadata,
            (Subject::Object(..), Method::Delete) => Op::DeleteObject,
            (Subject::Object(..), Method::Put) => {
                let from = head.headers.single("x-copy-from")?;
                self.source = from.map(|text| location(text, "X-Copy-From")).transpose()?;
                if self.source.is_some() { Op::CopyObject } else { Op::PutObject }
            }
            (Subject::Object(name, key), Method::Copy) => {
                let to = head.headers.single("destination")?;
                let to = to.ok_or_else(|| bad_url("COPY wants Destination: CONTAINER/OBJECT."))?;
                self.source = Some((name.clone(), key.clone()));
                let (name, key) = location(to, "Destination")?;
                self.subject = Subject::Object(name, key);
                Op::CopyObject
            }
        })
    }

    /// The container, where there is one.
    #[must_use]
    pub fn container(&self) -> Option<&str> {
        match &self.subject {
            Subject::Account => None,
            Subject::Container(name) | Subject::Object(name, _) => Some(name),
        }
    }

    /// The bucket of a container, in a tenant.
    #[must_use]
    pub fn bucket(name: &str, tenant: &str) -> BucketName {
        BucketName { tenant: tenant.to_owned(), name: name.to_owned() }
    }
}

/// When an object shall end, s since 1970: `X-Delete-After` or `X-Delete-At`; `None` where that is not said.
///
/// # Errors
/// [`Code::InvalidArgument`] for what is no number, or is over.
pub fn delete_at(headers: &Headers, now: i64) -> Result<Option<i64>> {
    let bad = || {
        let text =
            "X-Delete-After is seconds from now, X-Delete-At seconds since 1970 and to come.";
        Error::new(Code::InvalidArgument, text)
    };
    let number = |name: &str| -> Result<Option<i64>> {
        let text = headers.single(name)?.filter(|text| !text.is_empty());
        text.map(|text| text.parse::<i64>().map_err(|_| bad())).transpose()
    };
    let at = match (number("x-delete-after")?, number("x-delete-at")?) {
        (Some(after), _) => now.checked_add(after).ok_or_else(bad)?,
        (None, Some(at)) => at,
        (None, None) => return Ok(None),
    };
    if at <= now || u32::try_from(at).is_err() {
        return Err(bad());
    }
    Ok(Some(at))
}

/// The kind of an object whose upload names none, by the end of its name.
///
/// Source: the kinds of RFC 2046's registry that stock's `/etc/mime.types` gives the commonest ends.
#[must_use]
pub fn content_type(name: &str) -> Option<&'static str> {
    const KINDS: &[(&str, &str)] = &[
        ("7z", "application/x-7z-compressed"),
        ("avi", "video/x-msvideo"),
        ("bin", "application/octet-stream"),
        ("bz2", "application/x-bzip"),
        ("css", "text/css"),
        ("csv", "text/csv"),
        ("gif", "image/gif"),
        ("gz", "application/gzip"),
        ("htm", "text/html"),
        ("html", "text/html"),
        ("ico", "image/vnd.microsoft.icon"),
        ("jpeg", "image/jpeg"),
        ("jpg", "image/jpeg"),
        ("js", "text/javascript"),
        ("json", "application/json"),
        ("md", "text/markdown"),
        ("mov", "video/quicktime"),
        ("mp3", "audio/mpeg"),
        ("mp4", "video/mp4"),
        ("mpeg", "video/mpeg"),
        ("mpg", "video/mpeg"),
        ("ogg", "audio/ogg"),
        ("pdf", "application/pdf"),
        ("png", "image/png"),
        ("svg", "image/svg+xml"),
        ("tar", "application/x-tar"),
        ("tgz", "application/gzip"),
        ("tif", "image/tiff"),
        ("tiff", "image/tiff"),
        ("txt", "text/plain"),
        ("wav", "audio/x-wav"),
        ("webm", "video/webm"),
        ("webp", "image/webp"),
        ("woff", "font/woff"),
        ("woff2", "font/woff2"),
        ("xml", "application/xml"),
        ("zip", "application/zip"),
    ];
    let (_, end) = name.rsplit_once('.')?;
    KINDS.iter().find(|(known, _)| *known == end).map(|(_, kind)| *kind)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn paths(account_in_url: bool) -> Paths {
        Paths { prefix: "swift".into(), auth_entry: "auth".into(), account_in_url }
    }

    fn call(method: &str, target: &str, headers: &[(&str, &str)], account: bool) -> Result<Call> {
        let headers = Headers::new(headers.iter().copied())?;
        let head = Head::new(Method::parse(method)?, target, headers)?;
        let paths = paths(account);
        match paths.route(&head.path) {
            Some(Route::Storage(path)) => Call::of(&head, &path, &paths),
            other => panic!("{target}: {other:?}"),
        }
    }

    fn object(container: &str, key: &str) -> Subject {
        Subject::Object(container.into(), Key::new(key.into()).unwrap())
    }

    #[test]
    fn routes() {
        let swift = paths(false);
        let root = Paths { prefix: String::new(), ..swift.clone() };
        for (path, want, at_root) in [
            ("/auth/v1.0", Some(Route::Auth), Some(Route::Auth)),
            ("/auth", Some(Route::Auth), Some(Route::Auth)),
            ("/author", None, None),
            ("/swift/v1", Some(Route::Storage("/v1".into())), None),
            ("/swift/v1.0/c", Some(Route::Storage("/v1.0/c".into())), None),
            ("/swift/v10", Some(Route::Unknown), None),
            ("/swift", Some(Route::Unknown), None),
            ("/swift/info", Some(Route::Info), None),
            ("/swifty/v1", None, None),
            ("/v1/c/o", None, Some(Route::Storage("/v1/c/o".into()))),
            ("/info", None, Some(Route::Info)),
            ("/bucket/v1", None, None),
        ] {
            assert_eq!(swift.route(path), want, "{path}");
            assert_eq!(root.route(path), at_root, "{path}");
        }
    }

    #[test]
    fn calls() {
        use Operation as Op;
        for (method, target, subject, operation) in [
            ("GET", "/swift/v1", Subject::Account, Op::ListBuckets),
            ("HEAD", "/swift/v1/", Subject::Account, Op::ListBuckets),
            ("POST", "/swift/v1", Subject::Account, Op::PutAccountMetadata),
            ("POST", "/swift/v1?bulk-delete", Subject::Account, Op::DeleteObjects),
            ("PUT", "/swift/v1/c", Subject::Container("c".into()), Op::CreateBucket),
            ("POST", "/swift/v1/a%20b", Subject::Container("a b".into()), Op::PutBucketMetadata),
            ("GET", "/swift/v1/c/", Subject::Container("c".into()), Op::ListObjects),
            ("GET", "/swift/v1/c/a/b%2Fc", object("c", "a/b/c"), Op::GetObject),
            ("GET", "/swift/v1/c//x", object("c", "/x"), Op::GetObject),
            ("POST", "/swift/v1/c/o", object("c", "o"), Op::PutObjectMetadata),
            ("DELETE", "/swift/v1/c/o", object("c", "o"), Op::DeleteObject),
            ("OPTIONS", "/swift/v1/c/o", object("c", "o"), Op::Preflight),
        ] {
            let call = call(method, target, &[], false).unwrap();
            assert_eq!((call.subject, call.operation), (subject, operation), "{method} {target}");
        }
        let with = call("GET", "/swift/v1/AUTH_ten$tim/c/o", &[], true).unwrap();
        assert_eq!((with.account.as_deref(), with.subject), (Some("ten$tim"), object("c", "o")));
        assert_eq!(call("GET", "/swift/v1", &[], true).unwrap_err().code, Code::PreconditionFailed);
    }

    #[test]
    fn copies() {
        let copy = call("COPY", "/swift/v1/c/o", &[("Destination", "/d/x%2Fy")], false).unwrap();
        assert_eq!(copy.subject, object("d", "x/y"));
        assert_eq!(copy.source, Some(("c".into(), Key::new("o".into()).unwrap())));
        let put = call("PUT", "/swift/v1/c/o", &[("X-Copy-From", "s/a/b")], false).unwrap();
        assert_eq!((&put.subject, put.operation), (&object("c", "o"), Operation::CopyObject));
        assert_eq!(put.source, Some(("s".into(), Key::new("a/b".into()).unwrap())));
        for (method, header, value) in [
            ("COPY", "Destination", "nokey"),
            ("COPY", "X", "d/x"),
            ("PUT", "X-Copy-From", "/c/"),
            ("PUT", "X-Copy-From", ""),
        ] {
            let error = call(method, "/swift/v1/c/o", &[(header, value)], false).unwrap_err();
            assert_eq!(error.code, Code::BadURL, "{method} {value}");
        }
    }

    /// What is not built is never another operation, and what is no name is refused.
    #[test]
    fn nothing_falls_through() {
        for (method, target, header, want) in [
            ("PUT", "/swift/v1?extract-archive=tar", "", Code::NotImplemented),
            ("PUT", "/swift/v1/c?extract-archive=tar", "", Code::NotImplemented),
            ("POST", "/swift/v1/c?bulk-delete", "", Code::NotImplemented),
            ("PUT", "/swift/v1/c", "X-Versions-Location", Code::NotImplemented),
            ("POST", "/swift/v1/c", "X-Container-Meta-Web-Index", Code::NotImplemented),
            ("POST", "/swift/v1", "X-Account-Access-Control", Code::NotImplemented),
            ("PUT", "/swift/v1/c/o", "X-Symlink-Target", Code::NotImplemented),
            ("PUT", "/swift/v1", "", Code::MethodNotAllowed),
            ("COPY", "/swift/v1/c", "", Code::MethodNotAllowed),
            ("PUT", "/swift/v1/.c", "", Code::InvalidBucketName),
            ("PUT", "/swift/v1/a:b", "", Code::InvalidBucketName),
            ("PUT", "/swift/v1/a%2Fb", "", Code::InvalidBucketName),
            ("PUT", "/swift/v1/a%00", "", Code::InvalidBucketName),
            ("GET", "/swift/v1//c", "", Code::InvalidBucketName),
            ("PUT", "/swift/v1/%ff", "", Code::BadURL),
            ("PUT", "/swift/v1/c/%ff", "", Code::InvalidObjectName),
        ] {
            let headers = [(header, "x")];
            let headers = if header.is_empty() { &[][..] } else { &headers };
            let error = call(method, target, headers, false).unwrap_err();
            assert_eq!(error.code, want, "{method} {target} {header}");
        }
        let form = [("Content-Type", "multipart/form-data; boundary=x")];
        for target in ["/swift/v1/c", "/swift/v1/c/o"] {
            let error = call("POST", target, &form, false).unwrap_err();
            assert_eq!(error.code, Code::NotImplemented, "{target}");
        }
        let long = format!("/swift/v1/{}", "y".repeat(256));
        assert_eq!(call("PUT", &long, &[], false).unwrap_err().code, Code::InvalidBucketName);
    }

    #[test]
    fn ends_of_objects() {
        let of = |name: &str, value: &str| {
            delete_at(&Headers::new([(name, value)]).unwrap(), 100).map_err(|e| e.code)
        };
        assert_eq!(of("X-Delete-At", "101"), Ok(Some(101)));
        assert_eq!(of("X-Delete-After", "5"), Ok(Some(105)));
        assert_eq!(of("X-Other", "5"), Ok(None));
        for bad in ["100", "-1", "abc", "99999999999999999999", "99999999999"] {
            assert_eq!(of("X-Delete-At", bad), Err(Code::InvalidArgument), "{bad}");
        }
        assert_eq!(of("X-Delete-After", "9223372036854775807"), Err(Code::InvalidArgument));
        assert_eq!(content_type("a/b.tar.gz"), Some("application/gzip"));
        assert_eq!((content_type("JPG"), content_type("x.JPG")), (None, None));
    }

    proptest! {
        /// No path makes the parser panic.
        #[test]
        fn any_path(path in any::<String>(), account in any::<bool>()) {
            let paths = paths(account);
            let head = Head::new(Method::Copy, &path, Headers::default());
            if let Ok(head) = head && let Some(Route::Storage(rest)) = paths.route(&head.path) {
                let _ = Call::of(&head, &rest, &paths);
            }
        }
    }
}
