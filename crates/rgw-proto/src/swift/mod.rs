//! Swift v1 without I/O: what a request says, who may send it, and what answers look like.
//!
//! ```text
//!   Head ──> Call (target, operation)          /PREFIX/v1[/AUTH_ACCOUNT][/CONTAINER[/OBJECT]]   (request)
//!    └────> Claim ── secret ──> Ticket         X-Auth-Token (token)
//!            └───── keys ─────> Grant          temp_url_sig (temp_url)
//!   Ticket or Grant ──> authorize::Sender, and from there as S3
//!   X-Container-Read, X-Container-Write ──> Grants (acl)
//! ```
//!
//! Containers and objects are buckets and objects of S3: nothing is stored twice.
//!
//! Source: OpenStack's object store API; what stock radosgw 20.2.4 answers (`rgw_rest_swift.cc`,
//! `rgw_swift_auth.cc`), where the two differ.

pub mod acl;
pub mod large;
pub mod listing;
pub mod request;
pub mod temp_url;
pub mod token;

use crate::error::{Code, Error};
use crate::request::Headers;

/// The form of an answer's body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// A line each.
    #[default]
    Plain,
    /// A list of maps.
    Json,
    /// Elements.
    Xml,
}

impl Format {
    /// Reads `format=`, else `Accept`: the first kind in it that is known.
    #[must_use]
    pub fn of(format: Option<&str>, headers: &Headers) -> Self {
        match format {
            Some("json") => return Self::Json,
            Some("xml") => return Self::Xml,
            Some("plain") => return Self::Plain,
            _ => {}
        }
        let accept = headers.get("accept").unwrap_or_default();
        let mut kinds = accept.split(',').map(|k| k.split(';').next().unwrap_or_default().trim());
        let known = kinds.find_map(|kind| match kind {
            "application/json" => Some(Self::Json),
            "application/xml" | "text/xml" => Some(Self::Xml),
            "text/plain" => Some(Self::Plain),
            _ => None,
        });
        known.unwrap_or_default()
    }

    /// Its Content-Type.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Plain => "text/plain; charset=utf-8",
            Self::Json => "application/json; charset=utf-8",
            Self::Xml => "application/xml; charset=utf-8",
        }
    }
}

/// HTTP's status and the name of an error, as Swift has them. `nobody` is a request for an object that proved no user:
/// it may try again with a token.
#[must_use]
pub fn status(code: Code, nobody: bool) -> (u16, &'static str) {
    match code {
        Code::AccessDenied if nobody => (401, "AccessDenied"),
        Code::InvalidToken | Code::ExpiredToken => (401, "AccessDenied"),
        Code::UserSuspended => (401, "UserSuspended"),
        Code::QuotaExceeded => (413, "QuotaExceeded"),
        Code::EntityTooLarge => (413, "EntityTooLarge"),
        Code::BucketNotEmpty => (409, "There was a conflict when trying to complete your request."),
        Code::BadURL => (412, "Bad URL"),
        Code::SlowDown => (498, "Rate Limited"),
        code => (code.status(), code.name()),
    }
}

/// An error's body; `bucket` is empty where the request names none.
#[must_use]
pub fn error_body(
    error: &Error,
    name: &str,
    format: Format,
    bucket: &str,
    id: &str,
    host: &str,
) -> String {
    match format {
        Format::Plain => format!("{name}\n{}\n", error.message),
        Format::Json => {
            let mut map = serde_json::json!({
                "Code": name,
                "Message": error.message,
                "RequestId": id,
                "HostId": host,
            });
            if !bucket.is_empty() {
                map["BucketName"] = bucket.into();
            }
            map.to_string()
        }
        Format::Xml => {
            let mut w = crate::xml::Writer::document();
            w.open("Error").text("Code", name).text("Message", &error.message);
            w.maybe("BucketName", Some(bucket).filter(|bucket| !bucket.is_empty()));
            w.text("RequestId", id).text("HostId", host).close("Error");
            w.finish()
        }
    }
}

/// What `X-SORT-Meta-NAME: VALUE` and `X-Remove-SORT-Meta-NAME` say: names in lower case, `_` as `-`; `None` removes.
/// An empty value removes too, of accounts and containers.
///
/// # Errors
/// [`Code::InvalidRequest`] for a name that is empty or twice there.
pub fn metadata(headers: &Headers, sort: &str) -> crate::Result<Vec<(String, Option<String>)>> {
    let mut out: Vec<(String, Option<String>)> = Vec::new();
    let mut add = |name: &str, value: Option<String>| {
        let name = name.replace('_', "-");
        if name.is_empty() || out.iter().any(|(known, _)| *known == name) {
            let text = format!("X-{sort}-Meta-{name}: a name is there once, and not empty.");
            return Err(Error::new(Code::InvalidRequest, text));
        }
        out.push((name, value));
        Ok(())
    };
    let (set, unset) = (format!("x-{sort}-meta-"), format!("x-remove-{sort}-meta-"));
    for (name, value) in headers.with_prefix(&set) {
        let value = Some(value.to_owned()).filter(|v| sort == "object" || !v.is_empty());
        add(&name[set.len()..], value)?;
    }
    for (name, _) in headers.with_prefix(&unset) {
        add(&name[unset.len()..], None)?;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(all: &[(&str, &str)]) -> Headers {
        Headers::new(all.iter().copied()).unwrap()
    }

    #[test]
    fn formats() {
        let of = |format, accept| Format::of(format, &headers(&[("Accept", accept)]));
        assert_eq!(of(Some("json"), "text/xml"), Format::Json);
        assert_eq!(of(Some("plain"), "application/json"), Format::Plain);
        assert_eq!(of(None, "text/html, application/json;q=0.9"), Format::Json);
        assert_eq!(of(Some("bogus"), "*/*"), Format::Plain);
    }

    #[test]
    fn names_of_metadata() {
        let found = metadata(
            &headers(&[
                ("X-Container-Meta-Foo_Bar", "1"),
                ("X-Container-Meta-Empty", ""),
                ("X-Remove-Container-Meta-Gone", "x"),
                ("X-Object-Meta-Other", "1"),
            ]),
            "container",
        );
        let want = [("foo-bar", Some("1")), ("empty", None), ("gone", None)];
        let want: Vec<_> =
            want.iter().map(|(n, v)| ((*n).to_owned(), v.map(str::to_owned))).collect();
        assert_eq!(found.unwrap(), want);
        let kept = metadata(&headers(&[("X-Object-Meta-A", "")]), "object").unwrap();
        assert_eq!(kept, [("a".to_owned(), Some(String::new()))]);
        for bad in [
            &[("X-Object-Meta-", "1")][..],
            &[("X-Object-Meta-A", "1"), ("X-Object-Meta-a", "2")],
            &[("X-Object-Meta-a-b", "1"), ("X-Object-Meta-a_b", "2")],
        ] {
            assert_eq!(metadata(&headers(bad), "object").unwrap_err().code, Code::InvalidRequest);
        }
    }

    #[test]
    fn statuses() {
        assert_eq!(status(Code::AccessDenied, true).0, 401);
        assert_eq!(status(Code::AccessDenied, false).0, 403);
        assert_eq!(status(Code::NoSuchBucket, true), (404, "NoSuchBucket"));
        let error = Error::from(Code::ExpiredToken);
        let body = |format| error_body(&error, "AccessDenied", format, "c<", "tx1", "h");
        let json: serde_json::Value = serde_json::from_str(&body(Format::Json)).unwrap();
        assert_eq!((&json["Code"], &json["BucketName"]), (&"AccessDenied".into(), &"c<".into()));
        assert!(body(Format::Xml).contains("<Code>AccessDenied</Code>"));
        assert!(body(Format::Xml).contains("<BucketName>c&lt;</BucketName>"));
        assert!(body(Format::Plain).starts_with("AccessDenied\n"));
    }
}
