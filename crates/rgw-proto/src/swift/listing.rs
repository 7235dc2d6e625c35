//! Lists of containers and objects, as Swift writes them.

use serde_json::{Map, Value, json};

use super::Format;
use crate::error::{Code, Error, Result};
use crate::time::Time;
use crate::uri::Query;
use crate::xml::Writer;

/// Entries of a list: `container_listing_limit` of `/info`.
pub const LISTED_MAX: u64 = 10_000;

/// A time with milliseconds, as lists have it.
#[must_use]
pub fn time(at: Time, ms: u32) -> String {
    let text = at.to_string();
    let seconds = text.split('.').next().unwrap_or_default().trim_end_matches('Z');
    format!("{seconds}.{ms:03}Z")
}

/// What of a list is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// At most so many.
    pub limit: u64,
    /// Behind this name.
    pub marker: String,
    /// Before this name; empty: to the end.
    pub end_marker: String,
    /// Names that begin so.
    pub prefix: String,
    /// Where names are folded; empty: nowhere. Of containers only.
    pub delimiter: String,
    /// The name of a directory that is left out of its own list.
    pub directory: String,
    /// From the last name to the first. Of accounts only, as of stock.
    pub is_reverse: bool,
}

impl Window {
    /// Reads the query of a list of containers.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`] for a limit that is no number, [`Code::PreconditionFailed`] for one that is too large or
    /// negative.
    pub fn of_account(query: &Query) -> Result<Self> {
        let get = |name: &str| query.get(name).unwrap_or_default().to_owned();
        let limit = number(query)?.unwrap_or(LISTED_MAX as i64);
        let limit = u64::try_from(limit).ok().filter(|limit| *limit <= LISTED_MAX);
        let limit = limit.ok_or_else(|| {
            Error::new(Code::PreconditionFailed, "limit is at most 10000, and not negative.")
        })?;
        Ok(Self {
            limit,
            marker: get("marker"),
            end_marker: get("end_marker"),
            prefix: get("prefix"),
            is_reverse: ["true", "1", "yes", "on", "t", "y"]
                .contains(&get("reverse").to_ascii_lowercase().as_str()),
            ..Self::default()
        })
    }

    /// Reads the query of a list of objects. A larger limit is cut, a negative one is none at all, as of stock.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`] for a limit that is no number, and `path` beside `prefix` or `delimiter`.
    pub fn of_container(query: &Query) -> Result<Self> {
        let get = |name: &str| query.get(name).unwrap_or_default().to_owned();
        let limit = number(query)?.map_or(LISTED_MAX, |n| u64::try_from(n).unwrap_or(0));
        let mut out = Self {
            limit: limit.min(LISTED_MAX),
            marker: get("marker"),
            end_marker: get("end_marker"),
            prefix: get("prefix"),
            delimiter: get("delimiter"),
            ..Self::default()
        };
        if let Some(path) = query.get("path") {
            if !out.prefix.is_empty() || !out.delimiter.is_empty() {
                let text = "path stands alone, without prefix and delimiter.";
                return Err(Error::new(Code::InvalidArgument, text));
            }
            out.delimiter = "/".into();
            out.prefix = match path {
                "" => String::new(),
                path if path.ends_with('/') => path.to_owned(),
                path => format!("{path}/"),
            };
            out.directory = out.prefix.clone();
        }
        Ok(out)
    }

    /// Whether a name is in it, by its markers.
    #[must_use]
    pub fn holds(&self, name: &str) -> bool {
        let (after, before) = match self.is_reverse {
            false => (&self.marker, &self.end_marker),
            true => (&self.end_marker, &self.marker),
        };
        name.starts_with(&self.prefix)
            && (after.is_empty() || name > after.as_str())
            && (before.is_empty() || name < before.as_str())
    }
}

fn number(query: &Query) -> Result<Option<i64>> {
    let text = query.get("limit").filter(|text| !text.is_empty());
    let bad = |_| Error::new(Code::InvalidArgument, "limit is a number.");
    text.map(|text| text.parse::<i64>().map_err(bad)).transpose()
}

/// A container in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// Its name.
    pub name: String,
    /// Objects and bytes; `None` where they are not asked for.
    pub holds: Option<(u64, u64)>,
    /// When it was made, as [`time`].
    pub made: String,
}

/// An object in a list, or a prefix of several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// An object.
    Object {
        /// Its key.
        name: String,
        /// Its ETag, without quotes.
        hash: String,
        /// Its length.
        bytes: u64,
        /// Its kind; empty for none.
        content_type: String,
        /// When it was changed, as [`time`].
        modified: String,
    },
    /// A prefix.
    Subdir(String),
}

impl Entry {
    /// The key or prefix.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Object { name, .. } | Self::Subdir(name) => name,
        }
    }
}

/// Text of an attribute of XML.
fn attribute(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() => out.push_str(&format!("&#{};", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}

/// Lines, with no line's end behind the last, as stock writes them.
fn lines<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join("\n")
}

/// A list of containers; `account` is the user's name for people.
#[must_use]
pub fn containers(account: &str, all: &[Container], format: Format) -> String {
    match format {
        Format::Plain => lines(all.iter().map(|c| c.name.as_str())),
        Format::Json => {
            let one = |c: &Container| {
                let mut map = Map::from_iter([("name".to_owned(), json!(c.name))]);
                if let Some((count, bytes)) = c.holds {
                    map.insert("count".into(), json!(count));
                    map.insert("bytes".into(), json!(bytes));
                    map.insert("last_modified".into(), json!(c.made));
                }
                Value::Object(map)
            };
            Value::Array(all.iter().map(one).collect()).to_string()
        }
        Format::Xml => {
            let mut w = Writer::document();
            w.open(&format!("account name=\"{}\"", attribute(account)));
            for c in all {
                w.open("container").text("name", &c.name);
                if let Some((count, bytes)) = c.holds {
                    w.value("count", count).value("bytes", bytes);
                    w.text("last_modified", &c.made);
                }
                w.close("container");
            }
            w.close("account");
            w.finish()
        }
    }
}

/// A list of objects.
#[must_use]
pub fn objects(container: &str, all: &[Entry], format: Format) -> String {
    match format {
        Format::Plain => lines(all.iter().map(Entry::name)),
        Format::Json => {
            let one = |entry: &Entry| match entry {
                Entry::Subdir(name) => json!({ "subdir": name }),
                Entry::Object { name, hash, bytes, content_type, modified } => {
                    let mut map = Map::from_iter([
                        ("name".to_owned(), json!(name)),
                        ("hash".to_owned(), json!(hash)),
                        ("bytes".to_owned(), json!(bytes)),
                        ("last_modified".to_owned(), json!(modified)),
                    ]);
                    if !content_type.is_empty() {
                        map.insert("content_type".into(), json!(content_type));
                    }
                    Value::Object(map)
                }
            };
            Value::Array(all.iter().map(one).collect()).to_string()
        }
        Format::Xml => {
            let mut w = Writer::document();
            w.open(&format!("container name=\"{}\"", attribute(container)));
            for entry in all {
                match entry {
                    Entry::Subdir(name) => {
                        w.open(&format!("subdir name=\"{}\"", attribute(name)));
                        w.text("name", name).close("subdir");
                    }
                    Entry::Object { name, hash, bytes, content_type, modified } => {
                        w.open("object").text("name", name).text("hash", hash);
                        w.value("bytes", bytes);
                        let kind = Some(content_type.as_str()).filter(|kind| !kind.is_empty());
                        w.maybe("content_type", kind);
                        w.text("last_modified", modified).close("object");
                    }
                }
            }
            w.close("container");
            w.finish()
        }
    }
}

/// What the deletion of many objects came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deleted {
    /// How many are gone now.
    pub deleted: u64,
    /// How many were not there.
    pub missing: u64,
    /// Paths that stay, and HTTP's status of why.
    pub failed: Vec<(String, u16)>,
}

/// HTTP's line for the statuses that deletions have.
fn status_line(status: u16) -> String {
    let words = match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        409 => "Conflict",
        _ => "Internal Server Error",
    };
    format!("{status} {words}")
}

impl Deleted {
    /// The answer's body. Its status is within: the answer's own is 200, as of stock.
    #[must_use]
    pub fn body(&self, format: Format) -> String {
        let nothing = self.deleted + self.missing == 0 && self.failed.is_empty();
        let (status, text) = match self.failed.iter().find(|(_, s)| ![403, 404].contains(s)) {
            _ if nothing => (400, "Invalid bulk delete."),
            Some((_, status)) => (*status, ""),
            None if !self.failed.is_empty() => (400, ""),
            None => (200, ""),
        };
        let status = status_line(status);
        match format {
            Format::Json => {
                let errors = self.failed.iter().map(|(path, s)| json!([path, status_line(*s)]));
                json!({
                    "Number Deleted": self.deleted,
                    "Number Not Found": self.missing,
                    "Response Body": text,
                    "Response Status": status,
                    "Errors": errors.collect::<Vec<_>>(),
                })
                .to_string()
            }
            Format::Xml => {
                let mut w = Writer::document();
                w.open("delete").value("number_deleted", self.deleted);
                w.value("number_not_found", self.missing).text("response_body", text);
                w.text("response_status", &status).open("errors");
                for (path, s) in &self.failed {
                    w.open("object").text("name", path).text("status", &status_line(*s));
                    w.close("object");
                }
                w.close("errors").close("delete");
                w.finish()
            }
            Format::Plain => {
                let errors =
                    self.failed.iter().map(|(path, s)| format!("\n{path}, {}", status_line(*s)));
                format!(
                    "Number Deleted: {}\nNumber Not Found: {}\nResponse Body: {text}\nResponse Status: {status}\nErrors: {}",
                    self.deleted,
                    self.missing,
                    errors.collect::<String>()
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(query: &str) -> Result<Window> {
        Window::of_container(&Query::parse(query)?)
    }

    #[test]
    fn windows() {
        let dir = window("path=dir").unwrap();
        assert_eq!((dir.prefix.as_str(), dir.delimiter.as_str()), ("dir/", "/"));
        assert_eq!(window("path=dir/").unwrap().prefix, "dir/");
        assert_eq!(window("path=").unwrap().prefix, "");
        assert_eq!(window("path=d&delimiter=/").unwrap_err().code, Code::InvalidArgument);
        assert_eq!(window("limit=20000").unwrap().limit, LISTED_MAX);
        assert_eq!(window("limit=-1").unwrap().limit, 0);
        assert_eq!(window("limit=x").unwrap_err().code, Code::InvalidArgument);
        let account = |query: &str| Window::of_account(&Query::parse(query).unwrap());
        assert_eq!(account("limit=-1").unwrap_err().code, Code::PreconditionFailed);
        assert_eq!(account("limit=10001").unwrap_err().code, Code::PreconditionFailed);
        let range = account("marker=b&end_marker=d").unwrap();
        let held = |w: &Window| -> Vec<_> {
            ["a", "b", "c", "d", "e"].into_iter().filter(|n| w.holds(n)).collect()
        };
        assert_eq!(held(&range), ["c"]);
        assert_eq!(held(&account("reverse=true&marker=d&end_marker=a").unwrap()), ["b", "c"]);
    }

    /// As stock 20.2.4 writes them.
    #[test]
    fn forms() {
        let entries = [
            Entry::Object {
                name: "a&<".into(),
                hash: "h".into(),
                bytes: 1,
                content_type: "text/plain".into(),
                modified: time(Time(1_796_013_012), 400),
            },
            Entry::Subdir("dir/".into()),
        ];
        assert_eq!(objects("c", &entries, Format::Plain), "a&<\ndir/");
        assert_eq!(
            objects("c", &entries, Format::Xml),
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?><container name=\"c\"><object><name>a&amp;&lt;</name><hash>h</hash>\
             <bytes>1</bytes><content_type>text/plain</content_type><last_modified>2026-11-30T04:30:12.400Z</last_modified>\
             </object><subdir name=\"dir/\"><name>dir/</name></subdir></container>"
        );
        let json: Value = serde_json::from_str(&objects("c", &entries, Format::Json)).unwrap();
        assert_eq!(json[1], json!({"subdir": "dir/"}));
        assert_eq!(json[0]["last_modified"], "2026-11-30T04:30:12.400Z");
        let all = [Container { name: "c".into(), holds: Some((1, 2)), made: "t".into() }];
        assert_eq!(
            containers("a\"b", &all, Format::Xml),
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?><account name=\"a&quot;b\"><container><name>c</name><count>1</count>\
             <bytes>2</bytes><last_modified>t</last_modified></container></account>"
        );
        assert_eq!(objects("c", &[], Format::Json), "[]");
    }

    #[test]
    fn deletions() {
        let of = |deleted, missing, failed: &[(&str, u16)]| {
            let failed = failed.iter().map(|(p, s)| ((*p).to_owned(), *s)).collect();
            let text = Deleted { deleted, missing, failed }.body(Format::Json);
            let json: Value = serde_json::from_str(&text).unwrap();
            json["Response Status"].as_str().unwrap().to_owned()
        };
        assert_eq!(of(2, 1, &[]), "200 OK");
        assert_eq!(of(0, 0, &[]), "400 Bad Request");
        assert_eq!(of(1, 0, &[("c/o", 403)]), "400 Bad Request");
        assert_eq!(of(1, 0, &[("c", 409), ("c/o", 403)]), "409 Conflict");
        let text = Deleted { deleted: 0, missing: 0, failed: vec![("c/o".into(), 400)] };
        assert_eq!(
            text.body(Format::Plain),
            "Number Deleted: 0\nNumber Not Found: 0\nResponse Body: \nResponse Status: 400 Bad Request\nErrors: \nc/o, 400 Bad Request"
        );
    }
}
