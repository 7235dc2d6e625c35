//! Listings: what is asked, and the answer's XML.

use crate::acl::Owner;
use crate::error::{Code, Error, Result};
use crate::time::Time;
use crate::uri::{self, Query};
use crate::xml::Writer;

/// Entries of a listing, where none are asked for.
pub const ENTRIES_DEFAULT: u32 = 1_000;

/// What of a bucket is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Keys that begin so.
    pub prefix: String,
    /// Keys are folded into common prefixes at it; empty: they are not.
    pub delimiter: String,
    /// At most so many entries and common prefixes together.
    pub entries_max: u32,
    /// Whether keys are URL-coded in the answer.
    pub url: bool,
}

impl Window {
    /// Reads `prefix`, `delimiter`, `encoding-type` and the number in the parameter named. `most` is
    /// `rgw_max_listing_results`.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`].
    pub fn of(query: &Query, number: &str, most: u32) -> Result<Self> {
        let text = |name: &str| query.get(name).unwrap_or_default().to_owned();
        let entries_max = match query.get(number).filter(|n| !n.is_empty()) {
            None => ENTRIES_DEFAULT,
            Some(n) => match n.parse::<u32>() {
                Ok(n) => n,
                Err(_) => {
                    return Err(Error::new(
                        Code::InvalidArgument,
                        format!("{number} is a number from 0 on."),
                    ));
                }
            },
        };
        let url = match query.get("encoding-type") {
            None | Some("") => false,
            Some("url") => true,
            Some(_) => return Err(Error::new(Code::InvalidArgument, "encoding-type is url.")),
        };
        Ok(Self {
            prefix: text("prefix"),
            delimiter: text("delimiter"),
            entries_max: entries_max.min(most),
            url,
        })
    }

    fn code(&self, text: &str) -> String {
        if self.url { uri::encode(text.as_bytes(), true) } else { text.to_owned() }
    }

    fn write(&self, w: &mut Writer, number: &str, is_truncated: bool) {
        w.text("Prefix", &self.code(&self.prefix)).value(number, self.entries_max);
        if !self.delimiter.is_empty() {
            w.text("Delimiter", &self.code(&self.delimiter));
        }
        if self.url {
            w.text("EncodingType", "url");
        }
        w.value("IsTruncated", is_truncated);
    }

    fn write_prefixes(&self, w: &mut Writer, prefixes: &[String]) {
        for prefix in prefixes {
            w.open("CommonPrefixes").text("Prefix", &self.code(prefix)).close("CommonPrefixes");
        }
    }
}

/// The beginning of a listing of objects, by version of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// Version 1: behind this key.
    Marker(String),
    /// Version 2.
    Token {
        /// From the answer before; decides where it is there.
        continuation: Option<String>,
        /// Behind this key, where there is no token.
        after: String,
        /// Whether owners are told.
        fetch_owner: bool,
    },
}

impl Start {
    /// Reads `list-type`, `marker`, `continuation-token`, `start-after`, `fetch-owner`.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`] for another `list-type`, and for a token that is empty.
    pub fn of(query: &Query) -> Result<Self> {
        let text = |name: &str| query.get(name).unwrap_or_default().to_owned();
        match query.get("list-type") {
            None | Some("1") => Ok(Self::Marker(text("marker"))),
            Some("2") => {
                let continuation = query.get("continuation-token").map(str::to_owned);
                if continuation.as_deref() == Some("") {
                    return Err(Error::new(Code::InvalidArgument, "continuation-token is empty."));
                }
                let fetch_owner = query.get("fetch-owner") == Some("true");
                Ok(Self::Token { continuation, after: text("start-after"), fetch_owner })
            }
            Some(_) => Err(Error::new(Code::InvalidArgument, "list-type is 2, or left out.")),
        }
    }

    /// The key behind which the listing begins; empty for its beginning.
    #[must_use]
    pub fn after(&self) -> &str {
        match self {
            Self::Marker(marker) => marker,
            Self::Token { continuation: Some(token), .. } => token,
            Self::Token { after, .. } => after,
        }
    }
}

/// An object, as listings tell it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its key.
    pub key: String,
    /// Its last change.
    pub modified: Time,
    /// Without quotes.
    pub etag: String,
    /// Length in bytes.
    pub size: u64,
    /// `STANDARD` for most.
    pub storage_class: String,
    /// Who owns it.
    pub owner: Owner,
    /// Its version, in listings of versions.
    pub version: Option<Version>,
}

/// What a listing of versions tells more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// `null` for what was written without versions.
    pub id: String,
    /// Whether it is the current one.
    pub is_latest: bool,
    /// Whether it is a delete marker.
    pub is_marker: bool,
}

impl Entry {
    fn write(&self, w: &mut Writer, window: &Window, with_owner: bool) {
        w.text("Key", &window.code(&self.key));
        if let Some(version) = &self.version {
            w.text("VersionId", &version.id).value("IsLatest", version.is_latest);
        }
        w.value("LastModified", self.modified);
        if !self.version.as_ref().is_some_and(|v| v.is_marker) {
            w.text("ETag", &format!("\"{}\"", self.etag))
                .value("Size", self.size)
                .text("StorageClass", &self.storage_class);
        }
        if with_owner {
            self.owner.write(w, "Owner");
        }
    }
}

/// A page of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// In order of their bytes.
    pub entries: Vec<Entry>,
    /// In order.
    pub prefixes: Vec<String>,
    /// Behind what the next page begins; `None` where this is the last.
    pub next: Option<Marker>,
}

/// Where a listing goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marker {
    /// A key or common prefix.
    pub key: String,
    /// A version or upload; empty where there is none.
    pub id: String,
}

/// The answer to `ListObjects`, versions 1 and 2.
#[must_use]
pub fn objects(bucket: &str, window: &Window, start: &Start, page: &Page) -> String {
    let mut w = Writer::document();
    w.open_root("ListBucketResult").text("Name", bucket);
    window.write(&mut w, "MaxKeys", page.next.is_some());
    let with_owner = match start {
        Start::Marker(marker) => {
            w.text("Marker", &window.code(marker));
            // Only with a delimiter: else the last key is the marker.
            if let Some(next) = page.next.as_ref().filter(|_| !window.delimiter.is_empty()) {
                w.text("NextMarker", &window.code(&next.key));
            }
            true
        }
        Start::Token { continuation, after, fetch_owner } => {
            w.maybe("ContinuationToken", continuation.as_deref());
            w.maybe("NextContinuationToken", page.next.as_ref().map(|n| n.key.as_str()));
            w.value("KeyCount", page.entries.len() + page.prefixes.len());
            w.maybe("StartAfter", Some(window.code(after).as_str()).filter(|a| !a.is_empty()));
            *fetch_owner
        }
    };
    for entry in &page.entries {
        w.open("Contents");
        entry.write(&mut w, window, with_owner);
        w.close("Contents");
    }
    window.write_prefixes(&mut w, &page.prefixes);
    w.close("ListBucketResult");
    w.finish()
}

/// The answer to `ListObjectVersions`.
#[must_use]
pub fn versions(bucket: &str, window: &Window, from: &Marker, page: &Page) -> String {
    let mut w = Writer::document();
    w.open_root("ListVersionsResult").text("Name", bucket);
    window.write(&mut w, "MaxKeys", page.next.is_some());
    w.text("KeyMarker", &window.code(&from.key)).text("VersionIdMarker", &from.id);
    if let Some(next) = &page.next {
        w.text("NextKeyMarker", &window.code(&next.key));
        w.maybe("NextVersionIdMarker", Some(next.id.as_str()).filter(|i| !i.is_empty()));
    }
    for entry in &page.entries {
        let name = if entry.version.as_ref().is_some_and(|v| v.is_marker) {
            "DeleteMarker"
        } else {
            "Version"
        };
        w.open(name);
        entry.write(&mut w, window, true);
        w.close(name);
    }
    window.write_prefixes(&mut w, &page.prefixes);
    w.close("ListVersionsResult");
    w.finish()
}

/// An upload under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upload {
    /// The key that it is for.
    pub key: String,
    /// Its id.
    pub id: String,
    /// Who began it.
    pub owner: Owner,
    /// `STANDARD` for most.
    pub storage_class: String,
    /// When it was begun.
    pub begun: Time,
}

/// The answer to `ListMultipartUploads`.
#[must_use]
pub fn uploads(
    bucket: &str,
    window: &Window,
    from: &Marker,
    all: &[Upload],
    prefixes: &[String],
    next: Option<&Marker>,
) -> String {
    let mut w = Writer::document();
    w.open_root("ListMultipartUploadsResult").text("Bucket", bucket);
    window.write(&mut w, "MaxUploads", next.is_some());
    w.text("KeyMarker", &window.code(&from.key)).text("UploadIdMarker", &from.id);
    if let Some(next) = next {
        w.text("NextKeyMarker", &window.code(&next.key)).text("NextUploadIdMarker", &next.id);
    }
    for upload in all {
        w.open("Upload").text("Key", &window.code(&upload.key)).text("UploadId", &upload.id);
        upload.owner.write(&mut w, "Initiator");
        upload.owner.write(&mut w, "Owner");
        w.text("StorageClass", &upload.storage_class)
            .value("Initiated", upload.begun)
            .close("Upload");
    }
    window.write_prefixes(&mut w, prefixes);
    w.close("ListMultipartUploadsResult");
    w.finish()
}

/// The answer to `ListBuckets`: names with the time of their making.
#[must_use]
pub fn buckets(owner: &Owner, all: &[(String, Time)]) -> String {
    let mut w = Writer::document();
    w.open_root("ListAllMyBucketsResult");
    owner.write(&mut w, "Owner");
    w.open("Buckets");
    for (name, made) in all {
        w.open("Bucket").text("Name", name).value("CreationDate", made).close("Bucket");
    }
    w.close("Buckets").close("ListAllMyBucketsResult");
    w.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xml::Element;

    fn query(text: &str) -> Query {
        Query::parse(text).unwrap()
    }

    #[test]
    fn what_is_asked() {
        let window = Window::of(
            &query("prefix=a%2F&delimiter=/&max-keys=7&encoding-type=url"),
            "max-keys",
            1_000,
        )
        .unwrap();
        assert_eq!(
            (window.prefix.as_str(), window.delimiter.as_str(), window.entries_max, window.url),
            ("a/", "/", 7, true)
        );
        assert_eq!(
            Window::of(&query("max-keys=99999"), "max-keys", 5_000).unwrap().entries_max,
            5_000
        );
        assert_eq!(Window::of(&query("max-keys="), "max-keys", 5_000).unwrap().entries_max, 1_000);
        for bad in ["max-keys=-1", "max-keys=x", "encoding-type=gzip"] {
            assert_eq!(
                Window::of(&query(bad), "max-keys", 1).unwrap_err().code,
                Code::InvalidArgument,
                "{bad}"
            );
        }
        assert_eq!(Start::of(&query("marker=m&start-after=x")).unwrap().after(), "m");
        assert_eq!(Start::of(&query("list-type=2&start-after=x")).unwrap().after(), "x");
        assert_eq!(
            Start::of(&query("list-type=2&start-after=x&continuation-token=t")).unwrap().after(),
            "t"
        );
        for bad in ["list-type=3", "list-type=2&continuation-token="] {
            assert!(Start::of(&query(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn answers_are_xml() {
        let entry = |key: &str, version| Entry {
            key: key.into(),
            modified: Time(0),
            etag: "e".into(),
            size: 3,
            storage_class: "STANDARD".into(),
            owner: Owner { id: "o".into(), display_name: "O".into() },
            version,
        };
        let marker = Some(Version { id: "v".into(), is_latest: true, is_marker: true });
        let next = Some(Marker { key: "p/".into(), id: String::new() });
        let page = Page { entries: vec![entry("a<b", None)], prefixes: vec!["p/".into()], next };
        for (asked, more) in
            [("delimiter=/", "NextMarker"), ("delimiter=/&list-type=2", "NextContinuationToken")]
        {
            let window = Window::of(&query(asked), "max-keys", 9).unwrap();
            let text = objects("bkt", &window, &Start::of(&query(asked)).unwrap(), &page);
            let root = Element::parse_as(text.as_bytes(), "ListBucketResult").unwrap();
            assert_eq!(root.need("Contents").unwrap().need_text("Key").unwrap(), "a<b");
            assert_eq!(root.need_text(more).unwrap(), "p/");
            assert_eq!(root.flag("IsTruncated").unwrap(), Some(true));
            assert_eq!(
                root.need("Contents").unwrap().child("Owner").unwrap().is_some(),
                more == "NextMarker"
            );
        }
        let window = Window::of(&query("encoding-type=url"), "max-keys", 9).unwrap();
        let page = Page { entries: vec![entry("a b/ä", marker)], ..Page::default() };
        let text = versions("bkt", &window, &Marker::default(), &page);
        let root = Element::parse_as(text.as_bytes(), "ListVersionsResult").unwrap();
        assert_eq!(root.need("DeleteMarker").unwrap().need_text("Key").unwrap(), "a%20b/%C3%A4");
        assert!(root.need("DeleteMarker").unwrap().child("ETag").unwrap().is_none());
    }
}
