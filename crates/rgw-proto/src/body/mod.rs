//! Bodies of requests and answers.

pub mod config;
pub mod cors;
pub mod lifecycle;
pub mod listing;
pub mod notification;
pub mod website;

use crate::checksum::{Algorithm, Sum};
use crate::condition::Tags;
use crate::error::{Code, Error, Result};
use crate::name::Key;
use crate::time::Time;
use crate::xml::{Element, Writer};

/// Keys of one `DeleteObjects`.
pub const DELETE_KEYS_MAX: usize = 1_000;
/// The highest number of a part, and how many an upload has at most.
pub const PARTS_MAX: u32 = 10_000;

pub(crate) fn malformed(text: impl Into<String>) -> Error {
    Error::new(Code::MalformedXML, text)
}

/// An object to be deleted, by `DeleteObjects`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doomed {
    /// Its key.
    pub key: Key,
    /// The version to remove; `None` for the current one.
    pub version: Option<String>,
    /// Only if its ETag is this one.
    pub etag: Option<Tags>,
    /// Only if it was modified then.
    pub modified: Option<Time>,
    /// Only if it has so many bytes.
    pub size: Option<u64>,
}

/// The body of `DeleteObjects`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delete {
    /// At most [`DELETE_KEYS_MAX`].
    pub objects: Vec<Doomed>,
    /// Whether only errors are told.
    pub quiet: bool,
}

impl Delete {
    /// Reads `<Delete>`.
    ///
    /// # Errors
    /// [`Code::MalformedXML`], for more than 1,000 keys too; [`Code::InvalidObjectName`].
    pub fn parse(body: &[u8]) -> Result<Self> {
        let root = Element::parse_as(body, "Delete")?;
        let objects = root.all("Object").map(|one| {
            let time = |text: &str| Time::parse_http(text).or_else(|| Time::parse_iso(text));
            let modified = one.text_of("LastModifiedTime")?;
            let modified =
                modified.map(|t| time(t).ok_or_else(|| malformed("LastModifiedTime is no date.")));
            Ok(Doomed {
                key: Key::new(one.need("Key")?.text.clone().into_bytes())?,
                version: one.text_of("VersionId")?.filter(|v| !v.is_empty()).map(str::to_owned),
                etag: one.text_of("ETag")?.map(Tags::parse),
                modified: modified.transpose()?,
                size: one.number("Size")?,
            })
        });
        let objects = objects.collect::<Result<Vec<_>>>()?;
        if objects.is_empty() || objects.len() > DELETE_KEYS_MAX {
            return Err(malformed("Delete names 1 to 1000 objects."));
        }
        Ok(Self { objects, quiet: root.flag("Quiet")?.unwrap_or(false) })
    }
}

/// A part that makes up an object, as its uploader lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// 1 to [`PARTS_MAX`].
    pub number: u32,
    /// Without quotes.
    pub etag: String,
    /// Its checksum, where it is told.
    pub sum: Option<Sum>,
}

/// Reads `<CompleteMultipartUpload>`: parts in ascending order.
///
/// # Errors
/// [`Code::MalformedXML`], [`Code::InvalidPartOrder`] (stock takes any order), [`Code::InvalidRequest`] for a checksum.
pub fn parts(body: &[u8]) -> Result<Vec<Part>> {
    let root = Element::parse_as(body, "CompleteMultipartUpload")?;
    let mut out: Vec<Part> = Vec::new();
    for one in root.all("Part") {
        let number = one.number("PartNumber")?.filter(|n| (1..=PARTS_MAX).contains(n));
        let number = number.ok_or_else(|| malformed("PartNumber is 1 to 10000."))?;
        if out.last().is_some_and(|last| last.number >= number) {
            return Err(Code::InvalidPartOrder.into());
        }
        let mut sum = None;
        for algorithm in Algorithm::ALL {
            if let Some(text) = one.text_of(&format!("Checksum{}", algorithm.name()))? {
                sum = Some(algorithm.sum(text)?);
            }
        }
        out.push(Part { number, etag: one.need_text("ETag")?.trim_matches('"').into(), sum });
    }
    if out.is_empty() {
        return Err(malformed("CompleteMultipartUpload lists no part."));
    }
    Ok(out)
}

/// The answer to the making of an upload.
#[must_use]
pub fn upload_made(bucket: &str, key: &Key, upload: &str) -> String {
    let mut w = Writer::document();
    w.open_root("InitiateMultipartUploadResult");
    w.text("Bucket", bucket).text("Key", key.as_str()).text("UploadId", upload);
    w.close("InitiateMultipartUploadResult");
    w.finish()
}

/// The answer to the completion of an upload.
#[must_use]
pub fn upload_completed(
    location: &str,
    bucket: &str,
    key: &Key,
    etag: &str,
    sum: Option<(Algorithm, &str, &str)>,
) -> String {
    let mut w = Writer::document();
    w.open_root("CompleteMultipartUploadResult");
    w.text("Location", location).text("Bucket", bucket).text("Key", key.as_str());
    w.text("ETag", &format!("\"{etag}\""));
    if let Some((algorithm, sum, kind)) = sum {
        w.text(&format!("Checksum{}", algorithm.name()), sum).text("ChecksumType", kind);
    }
    w.close("CompleteMultipartUploadResult");
    w.finish()
}

/// The answer to a copy: `CopyObjectResult`, or `CopyPartResult`.
#[must_use]
pub fn copied(part: bool, etag: &str, modified: Time) -> String {
    let name = if part { "CopyPartResult" } else { "CopyObjectResult" };
    let mut w = Writer::document();
    w.open_root(name)
        .value("LastModified", modified)
        .text("ETag", &format!("\"{etag}\""))
        .close(name);
    w.finish()
}

/// Where a copy comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The bucket.
    pub bucket: crate::name::BucketName,
    /// The object.
    pub key: Key,
    /// The version; `None` for the current one.
    pub version: Option<String>,
}

impl Source {
    /// Reads `x-amz-copy-source`: `[/]BUCKET/KEY[?versionId=ID]`, URL-coded. It is cut at `/` before it is decoded,
    /// and nothing in it is resolved.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`], [`Code::InvalidBucketName`], [`Code::InvalidObjectName`].
    pub fn parse(text: &str) -> Result<Self> {
        let text = text.strip_prefix('/').unwrap_or(text);
        let (path, version) = match text.rsplit_once("?versionId=") {
            Some((path, version)) => (path, Some(crate::uri::decode_text(version, false)?)),
            None => (text, None),
        };
        // Some encode the slash as well: then there is none.
        let decoded;
        let (bucket, key) = if let Some((bucket, key)) = path.split_once('/') {
            (crate::uri::decode_text(bucket, false)?, crate::uri::decode(key, false)?)
        } else {
            decoded = crate::uri::decode_text(path, false)?;
            let cut = decoded.strip_prefix('/').unwrap_or(&decoded).split_once('/');
            let (bucket, key) = cut.ok_or_else(|| {
                Error::new(Code::InvalidArgument, "x-amz-copy-source is BUCKET/KEY.")
            })?;
            (bucket.to_owned(), key.as_bytes().to_vec())
        };
        let version = version.filter(|v| !v.is_empty());
        Ok(Self { bucket: crate::name::BucketName::parse(&bucket)?, key: Key::new(key)?, version })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn deletes() {
        let body = b"<Delete><Object><Key> a&amp;b </Key><VersionId>null</VersionId></Object><Object><Key>c</Key>\
            <ETag>\"x\"</ETag><Size>3</Size></Object><Quiet>true</Quiet></Delete>";
        let delete = Delete::parse(body).unwrap();
        assert!(delete.quiet && delete.objects[0].version.as_deref() == Some("null"));
        assert_eq!(delete.objects[0].key.as_str(), " a&b ");
        assert_eq!(delete.objects[1].size, Some(3));
        let many = format!("<Delete>{}</Delete>", "<Object><Key>k</Key></Object>".repeat(1_001));
        for bad in ["<Delete/>", "<Delete><Object/></Delete>", "<Deletes/>", &many] {
            assert_eq!(Delete::parse(bad.as_bytes()).unwrap_err().code, Code::MalformedXML);
        }
    }

    #[test]
    fn lists_of_parts() {
        let list = |numbers: &[u32]| {
            let part =
                |n| format!("<Part><PartNumber>{n}</PartNumber><ETag>\"e{n}\"</ETag></Part>");
            let all: String = numbers.iter().map(part).collect();
            parts(format!("<CompleteMultipartUpload>{all}</CompleteMultipartUpload>").as_bytes())
        };
        let read = list(&[1, 3, 10_000]).unwrap();
        assert_eq!(read.iter().map(|p| p.number).collect::<Vec<_>>(), [1, 3, 10_000]);
        assert_eq!(read[1].etag, "e3");
        assert_eq!(list(&[2, 1]).unwrap_err().code, Code::InvalidPartOrder);
        assert_eq!(list(&[1, 1]).unwrap_err().code, Code::InvalidPartOrder);
        for bad in [&[][..], &[0], &[10_001]] {
            assert_eq!(list(bad).unwrap_err().code, Code::MalformedXML);
        }
        let all: Vec<u32> = (1..=PARTS_MAX).collect();
        assert_eq!(list(&all).unwrap().len(), 10_000);
    }

    #[test]
    fn sources() {
        let parse = |text| {
            Source::parse(text).map(|s| (s.bucket.name, s.key.as_str().to_owned(), s.version))
        };
        let want = ("bkt".to_owned(), "a b/c".to_owned(), None);
        for text in ["bkt/a%20b/c", "/bkt/a b/c", "bkt%2Fa%20b%2Fc", "%2Fbkt%2Fa%20b%2Fc"] {
            assert_eq!(parse(text).unwrap(), want, "{text}");
        }
        assert_eq!(parse("bkt/k?versionId=v%3D1").unwrap().2.as_deref(), Some("v=1"));
        // `..` is a key like others; an encoded slash behind a plain one stays in the key.
        assert_eq!(parse("bkt/../other/k").unwrap().1, "../other/k");
        assert_eq!(parse("bkt/..%2fother").unwrap().1, "../other");
        for bad in ["bkt", "bkt/", "/", "", "b%2/k", "bkt/%00"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        /// No text makes the readers panic.
        #[test]
        fn any_text(text in any::<String>()) {
            let _ = (Source::parse(&text), Delete::parse(text.as_bytes()), parts(text.as_bytes()));
        }
    }
}
