//! Large objects, and deletions of many.
//!
//! A dynamic one is an object whose attribute names a prefix: what is read are the objects that begin so, in order of
//! their names. A static one has the list of its segments in an attribute. Both are read segment by segment, each judged
//! for the sender as it comes; a segment that may not be read, or is another than it was, ends the answer early.
//!
//! Source: `rgw_op.cc` (`handle_user_manifest`, `handle_slo_manifest`); `RGWSLOInfo`, `rgw_slo_entry`,
//! `ENCODE_START(1, 1)`.

use std::io;
use std::rc::Rc;

use rgw_core::gateway::attr_text;
use rgw_core::list;
use rgw_core::meta::{Attrs, BucketAt};
use rgw_core::object::ObjectAt;
use rgw_core::together;
use rgw_proto::checksum::{self, Expected, Sums};
use rgw_proto::condition::Conditions;
use rgw_proto::operation::Operation as Op;
use rgw_proto::swift::large::{MANIFEST_BYTES_MAX, Segment, etag, overlap, parse, place};
use rgw_proto::swift::listing::Deleted;
use rgw_proto::swift::{self as proto, Format};
use rgw_proto::{Code, Error, Result, uri};
use serde_json::json;
use tokio::sync::mpsc;
use types::{Bytes, DecodeError, Denc, Features, Reader as Bits, Writer};

use super::Dialect;
use super::object::{living, told_etag};
use crate::answer::Answer;
use crate::body::{Reader, Received};
use crate::crypt::PREFIX;
use crate::objects::nul;
use crate::request::Asked;
use crate::server::Server;
use crate::source::Source;

/// The attribute of a static large object.
pub(super) const STATIC: &str = "slo_manifest";
/// The attribute of a dynamic one: `CONTAINER/PREFIX`, URL-encoded, and a NUL.
pub(super) const DYNAMIC: &str = "user_manifest";
/// Paths of one bulk deletion.
pub(super) const DELETES_MAX: usize = 1_000;
/// Bytes of its body.
const DELETES_BYTES_MAX: u64 = DELETES_MAX as u64 * 4 * 1_024;
/// Segments that one page of a dynamic object's list has.
const PAGE: usize = 1_000;
/// Segments of a dynamic object: as many as twenty lists of a container have.
const DYNAMIC_MAX: u64 = 200_000;
/// Segments that are looked up at once.
const ASKED_AT_ONCE: usize = 16;

/// A segment as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    path: String,
    etag: String,
    size: u64,
}

impl Denc for Stored {
    fn encode(&self, w: &mut Writer) {
        w.framed(1, 1, |w| {
            w.str(&self.path);
            w.str(&self.etag);
            w.u64(self.size);
        });
    }

    fn decode(r: &mut Bits<'_>) -> std::result::Result<Self, DecodeError> {
        r.framed("rgw_slo_entry", 1, |r, _| {
            Ok(Self { path: r.string()?, etag: r.string()?, size: r.u64()? })
        })
    }
}

fn encode(segments: &[Stored]) -> Bytes {
    let mut w = Writer::new(Features::ALL);
    w.framed(1, 1, |w| {
        w.seq(segments, |w, segment| segment.encode(w));
        w.u64(segments.iter().map(|s| s.size).sum());
    });
    w.finish()
}

fn decode(bytes: &Bytes) -> Result<Vec<Stored>> {
    let read = Bits::shared(bytes).framed("RGWSLOInfo", 1, |r, _| {
        let segments = r.seq(Stored::decode)?;
        r.u64()?;
        Ok(segments)
    });
    read.map_err(|_| Error::new(Code::InternalError, "The object's manifest cannot be read."))
}

/// Container and prefix of a dynamic large object.
///
/// # Errors
/// [`Code::InvalidArgument`].
pub(super) fn prefix(text: &str) -> Result<(String, String)> {
    let bad =
        || Error::new(Code::InvalidArgument, "X-Object-Manifest is CONTAINER/PREFIX, URL-encoded.");
    let (container, prefix) = text.split_once('/').ok_or_else(bad)?;
    let read = |text: &str| uri::decode_text(text, false).map_err(|_| bad());
    let (container, prefix) = (read(container)?, read(prefix)?);
    match container.is_empty() || prefix.is_empty() {
        true => Err(bad()),
        false => Ok((container, prefix)),
    }
}

/// A large object, to be read.
pub(super) struct Large {
    /// Of its segments' ETags, without quotes.
    pub etag: String,
    /// Of all its segments.
    pub size: u64,
    of: Of,
}

enum Of {
    /// The container that its segments are in, and their prefix.
    Prefix(Box<BucketAt>, String),
    Segments(Vec<Stored>),
}

/// The manifest of a static large object, as it was sent or with more words.
pub(super) fn shown(asked: &Asked, object: &ObjectAt, answer: Answer) -> Result<Answer> {
    let segments = decode(object.attrs.get(STATIC).unwrap_or(&Bytes::new()))?;
    let is_raw = asked.head.query.get("format") == Some("raw");
    let all = segments.iter().map(|s| match is_raw {
        true => json!({"path": s.path, "etag": s.etag, "size_bytes": s.size}),
        false => json!({"name": s.path, "hash": s.etag, "bytes": s.size, "sub_slo": false}),
    });
    let text = serde_json::Value::Array(all.collect()).to_string();
    let answer = answer.replace("ETag", uri::to_hex(&checksum::md5(text.as_bytes())));
    let answer = answer.replace("Content-Type", Format::Json.content_type());
    Ok(answer.bytes(text.into()))
}

/// A document as an object's bytes.
struct Document(Option<Bytes>, checksum::Body);

impl Source for Document {
    fn len(&self) -> Option<u64> {
        self.0.as_ref().map(|bytes| bytes.len() as u64)
    }

    async fn next(&mut self) -> Result<Option<Bytes>> {
        let bytes = self.0.take().filter(|bytes| !bytes.is_empty());
        if let Some(bytes) = &bytes {
            self.1.update(bytes);
        }
        Ok(bytes)
    }

    fn finish(self) -> Result<Sums> {
        self.1.finish(&[])
    }
}

impl Server {
    /// An object as a large one; `None` where it is none.
    pub(super) async fn large(
        &self,
        asked: &Asked,
        bucket: &BucketAt,
        object: &ObjectAt,
    ) -> Result<Option<Large>> {
        if let Some(bytes) = object.attrs.get(STATIC) {
            let segments = decode(bytes)?;
            let size = segments.iter().fold(0u64, |sum, s| sum.saturating_add(s.size));
            let etag = etag(segments.iter().map(|s| s.etag.as_str()));
            return Ok(Some(Large { etag, size, of: Of::Segments(segments) }));
        }
        let Some(text) = object.attrs.get(DYNAMIC) else { return Ok(None) };
        let (container, prefix) = prefix(&attr_text(text))?;
        let of = match container == bucket.info.bucket.name {
            true => bucket.clone(),
            false => {
                let missing = |error: Error| match error.code {
                    Code::NoSuchBucket => Code::NoSuchKey.into(),
                    _ => error,
                };
                self.container(asked, &container).await.map_err(missing)?
            }
        };
        let (mut sums, mut size, mut count) = (checksum::Body::new(Expected::default()), 0u64, 0);
        let mut after = String::new();
        loop {
            let page = self.segments(&of, &prefix, &after).await?;
            for entry in &page.entries {
                sums.update(entry.etag.as_bytes());
                size = size.saturating_add(entry.size);
                count += 1;
            }
            if count > DYNAMIC_MAX {
                let text = "The large object has more than 200000 segments.";
                return Err(Error::new(Code::InvalidRequest, text));
            }
            let Some((next, _)) = page.next else { break };
            after = next;
        }
        let etag = uri::to_hex(&sums.finish(&[])?.md5);
        Ok(Some(Large { etag, size, of: Of::Prefix(Box::new(of), prefix) }))
    }

    async fn segments(&self, bucket: &BucketAt, prefix: &str, after: &str) -> Result<list::Page> {
        let query = list::Query {
            prefix: prefix.to_owned(),
            after: (after.to_owned(), String::new()),
            max: PAGE,
            ..list::Query::default()
        };
        self.gateway.list(bucket, &query).await
    }

    /// A segment that the sender may read, and that is the one that was listed.
    async fn segment(
        &self,
        asked: &Asked,
        bucket: &BucketAt,
        key: &str,
        (etag, size): (&str, u64),
    ) -> Result<ObjectAt> {
        let found = self.gateway.object(bucket, key, None, false).await?;
        let sender = asked.sender.also(Op::GetObject);
        asked.check_as(sender, Some(bucket), Some((key, None)), found.as_ref().ok())?;
        let object = living(found.ok(), self)?;
        if object.size != size || (!etag.is_empty() && object.text("etag") != etag) {
            let text = format!("The segment {key} is another one than the large object names.");
            return Err(Error::new(Code::OperationAborted, text));
        }
        if object.attrs.contains_key("compression") {
            let text = "A segment is compressed, which is not built: stock radosgw reads it.";
            return Err(Error::new(Code::NotImplemented, text));
        }
        Ok(object)
    }

    /// Has a run of a large object's bytes follow an answer. The first segment is looked up before.
    pub(super) async fn send_large(
        self: &Rc<Self>,
        asked: &Asked,
        large: Large,
        answer: Answer,
        (from, len): (u64, u64),
    ) -> Result<Answer> {
        if len == 0 {
            return Ok(answer);
        }
        let (sender, pieces) = mpsc::channel(1);
        let (ready, begun) = tokio::sync::oneshot::channel();
        let (server, asked) = (self.clone(), asked.clone());
        tokio::task::spawn_local(async move {
            let mut ready = Some(ready);
            let run = (from, from + len);
            let done = server.pour_large(&asked, &large, run, &sender, &mut ready).await;
            let Err(error) = done else { return };
            tracing::warn!("a GET of a large object ends early: {error}");
            if let Some(ready) = ready {
                let _ = ready.send(Err(error));
            } else {
                let _ = sender.send(Err(io::Error::other(error))).await;
            }
        });
        match begun.await {
            Ok(begun) => begun?,
            Err(_) => {
                return Err(Error::new(Code::InternalError, "The large object has no bytes."));
            }
        }
        Ok(answer.pieces(pieces, len))
    }

    async fn pour_large(
        self: &Rc<Self>,
        asked: &Asked,
        large: &Large,
        run: (u64, u64),
        sender: &mpsc::Sender<io::Result<Bytes>>,
        ready: &mut Option<tokio::sync::oneshot::Sender<Result<()>>>,
    ) -> Result<()> {
        let mut at = 0u64;
        match &large.of {
            Of::Segments(segments) => {
                for segment in segments {
                    if let Some(part) = overlap(at, segment.size, run) {
                        let (container, key) = place(&segment.path)?;
                        let bucket = Rc::new(self.container(asked, &container).await?);
                        let told = (segment.etag.as_str(), segment.size);
                        let object = self.segment(asked, &bucket, key.as_str(), told).await?;
                        if !self.pour_segment(asked, bucket, object, part, sender, ready).await? {
                            return Ok(());
                        }
                    }
                    at += segment.size;
                }
            }
            Of::Prefix(bucket, prefix) => {
                let bucket = Rc::new((**bucket).clone());
                let mut after = String::new();
                while at < run.1 {
                    let page = self.segments(&bucket, prefix, &after).await?;
                    for entry in &page.entries {
                        if let Some(part) = overlap(at, entry.size, run) {
                            let told = (entry.etag.as_str(), entry.size);
                            let key = &entry.key.name;
                            let object = self.segment(asked, &bucket, key, told).await?;
                            let bucket = bucket.clone();
                            if !self
                                .pour_segment(asked, bucket, object, part, sender, ready)
                                .await?
                            {
                                return Ok(());
                            }
                        }
                        at += entry.size;
                    }
                    let Some((next, _)) = page.next else { break };
                    after = next;
                }
            }
        }
        Ok(())
    }

    async fn pour_segment(
        self: &Rc<Self>,
        asked: &Asked,
        bucket: Rc<BucketAt>,
        object: ObjectAt,
        part: (u64, u64),
        sender: &mpsc::Sender<io::Result<Bytes>>,
        ready: &mut Option<tokio::sync::oneshot::Sender<Result<()>>>,
    ) -> Result<bool> {
        let customer = self.object_key(asked, &object.attrs, PREFIX)?;
        if let Some(ready) = ready.take() {
            let _ = ready.send(Ok(()));
        }
        let cipher = customer.map(|key| key.cipher());
        Ok(self.pour(&bucket, &Rc::new(object), part, cipher, sender).await)
    }

    /// Looks a segment up that a manifest names.
    async fn check_segment(&self, asked: &Asked, segment: &Segment) -> Result<Stored> {
        let bucket = self.container(asked, &segment.container).await?;
        let key = segment.key.as_str();
        let found = self.gateway.object(&bucket, key, None, false).await?;
        let sender = asked.sender.also(Op::GetObject);
        asked.check_as(sender, Some(&bucket), Some((key, None)), found.as_ref().ok())?;
        let object = living(found.ok(), self)?;
        let bad =
            |text: &str| Error::new(Code::InvalidArgument, format!("{}: {text}", segment.path));
        if object.attrs.contains_key(STATIC) || object.attrs.contains_key(DYNAMIC) {
            let text = format!("{}: large objects of large objects are not built.", segment.path);
            return Err(Error::new(Code::NotImplemented, text));
        }
        if segment.size.is_some_and(|size| size != object.size) {
            return Err(bad("size_bytes is not the segment's size."));
        }
        let etag = object.text("etag");
        if !segment.etag.is_empty() && segment.etag != etag {
            return Err(bad("etag is not the segment's ETag."));
        }
        Ok(Stored { path: segment.path.clone(), etag, size: object.size })
    }

    /// Makes a static large object.
    pub(super) async fn put_static(
        &self,
        asked: &Asked,
        bucket: &BucketAt,
        key: &str,
        body: Received,
    ) -> Result<Answer> {
        let headers = &asked.head.headers;
        let conditions = Conditions::of(headers, "")?;
        let reader = Reader::plain(body, &asked.head, MANIFEST_BYTES_MAX)?;
        let _held = self.needed.need(reader.len.unwrap_or(MANIFEST_BYTES_MAX))?;
        let sent = reader.document().await?;
        let segments = parse(&sent)?;
        let mut stored = Vec::with_capacity(segments.len());
        for some in segments.chunks(ASKED_AT_ONCE) {
            let checks = some.iter().map(|segment| self.check_segment(asked, segment));
            for one in together::all(checks).await {
                stored.push(one?);
            }
        }
        let etag = etag(stored.iter().map(|s| s.etag.as_str()));
        if told_etag(headers)?.is_some_and(|told| told != etag) {
            let text = "The ETag is not that of the segments' ETags.";
            return Err(Error::new(Code::UnprocessableEntity, text));
        }
        let mut attrs: Attrs = super::object::kept(headers)?;
        if !attrs.contains_key("content_type")
            && let Some(kind) = proto::request::content_type(key)
        {
            attrs.insert("content_type".into(), nul(kind));
        }
        attrs.insert(STATIC.into(), encode(&stored));
        self.complete_attrs(asked, bucket, key, &mut attrs).await?;
        self.gateway.check_quota(bucket, sent.len() as u64).await?;
        let document = Document(Some(sent.into()), checksum::Body::new(Expected::default()));
        let new = (key, attrs);
        let answer = self.store_swift(asked, bucket, new, &conditions, document, None).await?;
        Ok(answer.replace("ETag", format!("\"{etag}\"")))
    }

    /// Deletes a static large object with its segments, which go first: one that stays keeps the list.
    pub(super) async fn delete_static(
        &self,
        asked: &Asked,
        bucket: &BucketAt,
        key: &str,
    ) -> Result<Answer> {
        let dialect = Self::dialect(asked);
        let own = format!("{}/{key}", bucket.info.bucket.name);
        let found = self.gateway.object(bucket, key, None, false).await?;
        let mut done = Deleted::default();
        let Ok(object) = living(found.ok(), self) else {
            done.missing = 1;
            return Ok(deleted(dialect, &done));
        };
        let Some(bytes) = object.attrs.get(STATIC) else {
            done.failed.push((own, 400));
            return Ok(deleted(dialect, &done));
        };
        let paths: Vec<String> = decode(bytes)?.into_iter().map(|s| s.path).collect();
        self.delete_paths(asked, &paths, &mut done).await;
        if done.failed.is_empty() {
            self.delete_paths(asked, &[own], &mut done).await;
        }
        Ok(deleted(dialect, &done))
    }

    /// Deletes what a body names, a line each, URL-encoded.
    pub(super) async fn bulk_delete(&self, asked: &Asked, body: Received) -> Result<Answer> {
        asked.user()?;
        let dialect = Self::dialect(asked);
        let reader = Reader::plain(body, &asked.head, DELETES_BYTES_MAX)?;
        let _held = self.needed.need(reader.len.unwrap_or(DELETES_BYTES_MAX))?;
        let text = reader.document().await?;
        let bad = |text: &str| Error::new(Code::InvalidArgument, text);
        let text = String::from_utf8(text).map_err(|_| bad("The body is no UTF-8."))?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let lines = lines.map(|line| uri::decode_text(line, false));
        let paths: Vec<String> = lines.collect::<Result<_>>()?;
        if paths.len() > DELETES_MAX {
            return Err(bad("One request deletes at most 1000 objects and containers."));
        }
        let mut done = Deleted::default();
        self.delete_paths(asked, &paths, &mut done).await;
        Ok(deleted(dialect, &done))
    }

    /// Deletes objects and containers, each judged for the sender.
    async fn delete_paths(&self, asked: &Asked, paths: &[String], done: &mut Deleted) {
        for path in paths {
            match self.delete_path(asked, path).await {
                Ok(()) => done.deleted += 1,
                Err(error) if [Code::NoSuchKey, Code::NoSuchBucket].contains(&error.code) => {
                    done.missing += 1;
                }
                Err(error) => {
                    let path = path.trim_start_matches('/').to_owned();
                    done.failed.push((path, proto::status(error.code, false).0));
                }
            }
        }
    }

    async fn delete_path(&self, asked: &Asked, path: &str) -> Result<()> {
        let path = path.trim_start_matches('/');
        let tenant = match asked.target.bucket() {
            Some(bucket) => bucket.tenant.clone(),
            None => asked.user()?.id.tenant.clone(),
        };
        let (name, key) = path.split_once('/').unwrap_or((path, ""));
        if name.is_empty() {
            return Err(Code::InvalidBucketName.into());
        }
        let bucket = crate::server::not_suspended(self.gateway.bucket(&tenant, name).await?)?;
        if key.is_empty() {
            asked.check_as(asked.sender.also(Op::DeleteBucket), Some(&bucket), None, None)?;
            return self.delete_bucket(&bucket).await.map(drop);
        }
        let sender = asked.sender.also(Op::DeleteObject);
        asked.check_as(sender, Some(&bucket), Some((key, None)), None)?;
        self.check_versions(&bucket)?;
        self.delete_swift(asked, &bucket, key).await
    }
}

fn deleted(dialect: Dialect, done: &Deleted) -> Answer {
    dialect.body(Answer::new(200), done.body(dialect.format))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As stock 20.2.4 stored one segment.
    #[test]
    fn manifests_are_those_of_stock() {
        let hex = "01014a0000000100000001013800000008000000".to_owned()
            + &uri::to_hex(b"/seg/p/0")
            + "20000000"
            + &uri::to_hex(b"c6f057b86584942e415435ffb1fa93d4")
            + "03000000000000000300000000000000";
        let segment = Stored {
            path: "/seg/p/0".into(),
            etag: "c6f057b86584942e415435ffb1fa93d4".into(),
            size: 3,
        };
        let bytes = encode(std::slice::from_ref(&segment));
        assert_eq!(uri::to_hex(&bytes), hex);
        assert_eq!(decode(&bytes).unwrap(), [segment]);
        assert!(decode(&bytes.slice(..20)).is_err());
    }

    #[test]
    fn prefixes() {
        assert_eq!(prefix("seg/p%2F/x").unwrap(), ("seg".into(), "p//x".into()));
        for bad in ["seg", "/p", "seg/", "%zz/x", ""] {
            assert_eq!(prefix(bad).unwrap_err().code, Code::InvalidArgument, "{bad}");
        }
    }
}
