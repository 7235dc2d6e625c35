//! Objects: uploads, reads, metadata, copies, deletions.

use std::rc::Rc;

use rgw_core::expiry;
use rgw_core::gateway::attr_text;
use rgw_core::meta::{Attrs, BucketAt};
use rgw_core::names::RawKey;
use rgw_core::object::{HEAD_BYTES, ObjectAt};
use rgw_proto::body::notification::Event;
use rgw_proto::checksum::Sums;
use rgw_proto::condition::{Conditions, Range};
use rgw_proto::operation::Operation as Op;
use rgw_proto::request::Headers;
use rgw_proto::swift::request::{Call, content_type, delete_at};
use rgw_proto::swift::{self as proto};
use rgw_proto::{Code, Error, Result, uri};
use types::Bytes;

use super::account::META;
use super::large::{self, Large};
use super::timestamp;
use crate::acl;
use crate::answer::Answer;
use crate::body::{PUT_BYTES_MAX, Reader, Received};
use crate::buckets::time;
use crate::crypt::PREFIX;
use crate::objects::{KEPT, NewObject, OWN, current, nul};
use crate::request::{Asked, now};
use crate::server::Server;
use crate::source::Source;

/// A body whose ETag was told before.
struct Checked<S> {
    body: S,
    etag: Option<String>,
}

impl<S: Source> Source for Checked<S> {
    fn len(&self) -> Option<u64> {
        self.body.len()
    }

    async fn next(&mut self) -> Result<Option<Bytes>> {
        self.body.next().await
    }

    fn finish(self) -> Result<Sums> {
        let sums = self.body.finish()?;
        match &self.etag {
            Some(etag) if *etag != uri::to_hex(&sums.md5) => {
                Err(Error::new(Code::UnprocessableEntity, "The body's MD5 is not its ETag."))
            }
            _ => Ok(sums),
        }
    }
}

/// An ETag that a request tells, without quotes.
pub(super) fn told_etag(headers: &Headers) -> Result<Option<String>> {
    let etag = headers.single("etag")?.filter(|etag| !etag.is_empty());
    Ok(etag.map(|etag| etag.trim_matches('"').to_ascii_lowercase()))
}

/// What of a request's headers is kept with an object: kind, coding, and metadata.
pub(super) fn kept(headers: &Headers) -> Result<Attrs> {
    let mut out = Attrs::new();
    for (header, attr) in KEPT {
        if let Some(value) = headers.get(header).filter(|value| !value.is_empty()) {
            out.insert(attr.to_owned(), nul(value));
        }
    }
    for (name, value) in proto::metadata(headers, "object")? {
        if let Some(value) = value {
            out.insert(format!("{META}{name}"), nul(&value));
        }
    }
    Ok(out)
}

/// The prefix of a dynamic large object, as it is stored.
fn manifest(headers: &Headers) -> Result<Option<Bytes>> {
    let Some(text) = headers.single("x-object-manifest")? else { return Ok(None) };
    large::prefix(text)?;
    Ok(Some(nul(text)))
}

impl Server {
    /// Refuses writes where stock would keep the old object elsewhere.
    pub(super) fn check_versions(&self, bucket: &BucketAt) -> Result<()> {
        let has = self.settings.swift.as_ref().is_some_and(|s| s.has_versions);
        if has && bucket.info.swift_versions.as_deref().is_some_and(|to| !to.is_empty()) {
            let text = "The container keeps old objects elsewhere (X-Versions-Location), which is not built here: \
                 stock radosgw writes it, or unset rgw_swift_versioning_enabled.";
            return Err(Error::new(Code::NotImplemented, text));
        }
        Ok(())
    }

    /// An operation on an object.
    pub(super) async fn on_swift_object(
        self: &Rc<Self>,
        asked: &Asked,
        call: &Call,
        bucket: &BucketAt,
        key: &str,
        body: Received,
    ) -> Result<Answer> {
        let at = Some((key, None));
        match asked.operation {
            Op::PutObject => {
                asked.check(Some(bucket), at, None)?;
                self.check_versions(bucket)?;
                return match asked.head.query.get("multipart-manifest") {
                    None => self.put_swift(asked, bucket, key, body).await,
                    Some("put") => self.put_static(asked, bucket, key, body).await,
                    Some(_) => {
                        let text = "multipart-manifest is put, with PUT.";
                        Err(Error::new(Code::InvalidArgument, text))
                    }
                };
            }
            Op::CopyObject => {
                asked.check(Some(bucket), at, None)?;
                self.check_versions(bucket)?;
                return self.copy_swift(asked, call, bucket, key).await;
            }
            Op::DeleteObject => {
                asked.check(Some(bucket), at, None)?;
                self.check_versions(bucket)?;
                return match asked.head.query.get("multipart-manifest") {
                    Some("delete") => self.delete_static(asked, bucket, key).await,
                    _ => {
                        self.delete_swift(asked, bucket, key).await?;
                        Ok(Answer::new(204).header("Content-Type", "text/plain; charset=utf-8"))
                    }
                };
            }
            _ => {}
        }
        let mut share = self.sent.share();
        let prefetch = asked.operation == Op::GetObject && share.grow(HEAD_BYTES);
        let mut found = self.gateway.object(bucket, key, None, prefetch).await?;
        if let Ok(object) = &mut found {
            object.prefetched = share.hold(std::mem::take(&mut object.prefetched));
        }
        asked.check(Some(bucket), at, found.as_ref().ok())?;
        let object = living(found.ok(), self)?;
        match asked.operation {
            Op::PutObjectMetadata => self.post_swift(asked, bucket, &object).await,
            Op::GetObject | Op::HeadObject => self.get_swift(asked, bucket, object).await,
            _ => Err(Code::MethodNotAllowed.into()),
        }
    }

    /// Adds what every new object has: its list, its bucket's lock, and when it ends.
    pub(super) async fn complete_attrs(
        &self,
        asked: &Asked,
        bucket: &BucketAt,
        key: &str,
        attrs: &mut Attrs,
    ) -> Result<()> {
        let none = Headers::default();
        let list = self.new_acl_of(asked, bucket, &none)?;
        attrs.insert("acl".into(), acl::encode(&list));
        self.lock_of_headers(bucket, &none, attrs)?;
        if let Some(at) = delete_at(&asked.head.headers, now().0)? {
            self.end_at(bucket, key, at, attrs).await?;
        }
        Ok(())
    }

    async fn end_at(&self, bucket: &BucketAt, key: &str, at: i64, attrs: &mut Attrs) -> Result<()> {
        if bucket.is_versioned() {
            let text =
                "X-Delete-At in a bucket with versions is not built here: set a lifecycle rule.";
            return Err(Error::new(Code::NotImplemented, text));
        }
        let raw = RawKey { name: key.to_owned(), ..RawKey::default() };
        self.gateway.note_end(bucket, &raw, at).await?;
        attrs.insert(expiry::DELETE_AT.into(), expiry::encode(at));
        Ok(())
    }

    async fn put_swift(
        &self,
        asked: &Asked,
        bucket: &BucketAt,
        key: &str,
        body: Received,
    ) -> Result<Answer> {
        let headers = &asked.head.headers;
        let conditions = Conditions::of(headers, "")?;
        let mut attrs = kept(headers)?;
        if !attrs.contains_key("content_type")
            && let Some(kind) = content_type(key)
        {
            attrs.insert("content_type".into(), nul(kind));
        }
        if let Some(manifest) = manifest(headers)? {
            attrs.insert(large::DYNAMIC.into(), manifest);
        }
        let etag = told_etag(headers)?;
        let reader = Reader::plain(body, &asked.head, PUT_BYTES_MAX)?;
        self.complete_attrs(asked, bucket, key, &mut attrs).await?;
        self.gateway.check_quota(bucket, reader.len.unwrap_or(0)).await?;
        self.store_swift(asked, bucket, (key, attrs), &conditions, reader, etag).await
    }

    /// Stores an object's bytes.
    pub(super) async fn store_swift(
        &self,
        asked: &Asked,
        bucket: &BucketAt,
        (name, attrs): (&str, Attrs),
        conditions: &Conditions,
        body: impl Source,
        etag: Option<String>,
    ) -> Result<Answer> {
        let key = self.new_key(asked, bucket, &Headers::default(), name)?;
        let new = NewObject { name, attrs, conditions, key, is_copy: false };
        let cause = (asked, Event::PUT);
        let (_, etag) = self.store(cause, bucket, new, Checked { body, etag }).await?;
        Ok(Answer::new(201)
            .header("ETag", etag)
            .header("Last-Modified", now().http())
            .header("Content-Type", "text/plain; charset=utf-8"))
    }

    async fn get_swift(
        self: &Rc<Self>,
        asked: &Asked,
        bucket: &BucketAt,
        object: ObjectAt,
    ) -> Result<Answer> {
        crate::objects::is_readable(&object)?;
        let headers = &asked.head.headers;
        let shows = asked.head.query.get("multipart-manifest") == Some("get");
        let large = match shows {
            true if object.attrs.contains_key(large::STATIC) => {
                return large::shown(asked, &object, Self::object_headers(asked, &object, None));
            }
            true => None,
            false => self.large(asked, bucket, &object).await?,
        };
        let etag = match &large {
            Some(large) => large.etag.clone(),
            None => object.text("etag"),
        };
        Conditions::of(headers, "")?.check_read(current(&etag, &object))?;
        let size = large.as_ref().map_or(object.size, |large| large.size);
        let (mut from, mut len, mut status) = (0, size, 200);
        if let Some(range) = headers.single("range")?.and_then(Range::parse) {
            (from, len) = range.within(size)?;
            status = 206;
        }
        let mut answer = Self::object_headers(asked, &object, large.as_ref()).status(status);
        if status == 206 {
            let last = from + len - 1;
            answer = answer.header("Content-Range", format!("bytes {from}-{last}/{size}"));
        }
        answer = self.cors_headers(asked, bucket, answer);
        if asked.operation == Op::HeadObject {
            return Ok(answer.header("Content-Length", len.to_string()));
        }
        match large {
            Some(large) => self.send_large(asked, large, answer, (from, len)).await,
            None => {
                let customer = self.object_key(asked, &object.attrs, PREFIX)?;
                let cipher = customer.map(|key| key.cipher());
                Ok(self.send(bucket, object, answer, (from, len), cipher))
            }
        }
    }

    /// What is told of an object beside its bytes.
    fn object_headers(asked: &Asked, object: &ObjectAt, large: Option<&Large>) -> Answer {
        // Large objects' ETags stand in quotes, others do not.
        let etag = match large {
            Some(large) => format!("\"{}\"", large.etag),
            None => object.text("etag"),
        };
        let mut answer = Answer::new(200)
            .header("ETag", etag)
            .header("Last-Modified", time(object.mtime).http())
            .header("X-Timestamp", timestamp(object.mtime))
            .header("Accept-Ranges", "bytes");
        for (header, attr) in KEPT {
            let value = Some(object.text(attr)).filter(|value| !value.is_empty());
            let value =
                value.or((attr == "content_type").then(|| "binary/octet-stream".to_owned()));
            let value = match attr {
                "content_disposition" => disposition(asked, value),
                _ => value,
            };
            answer = answer.maybe(header, value);
        }
        for (name, value) in &object.attrs {
            if let Some(name) = name.strip_prefix(META) {
                answer = answer.header(&format!("X-Object-Meta-{name}"), attr_text(value));
            }
        }
        let is_static = object.attrs.contains_key(large::STATIC);
        answer = answer.maybe("X-Static-Large-Object", is_static.then_some("True"));
        let prefix = object.attrs.get(large::DYNAMIC).map(|value| attr_text(value));
        answer = answer.maybe("X-Object-Manifest", prefix);
        let ends = expiry::of(&object.attrs).map(|at| at.sec.to_string());
        answer.maybe("X-Delete-At", ends)
    }

    /// Replaces an object's metadata. Its kind, coding, end and manifest stay unless others are told.
    async fn post_swift(
        &self,
        asked: &Asked,
        bucket: &BucketAt,
        object: &ObjectAt,
    ) -> Result<Answer> {
        let headers = &asked.head.headers;
        let mut set = kept(headers)?;
        if let Some(manifest) = manifest(headers)? {
            set.insert(large::DYNAMIC.into(), manifest);
        }
        let mut gone: Vec<&str> =
            object.attrs.keys().map(String::as_str).filter(|name| name.starts_with(META)).collect();
        if let Some(at) = delete_at(headers, now().0)? {
            self.end_at(bucket, &object.key.name, at, &mut set).await?;
        } else if headers.get("x-remove-delete-at").is_some() {
            gone.push(expiry::DELETE_AT);
        }
        gone.retain(|name| !set.contains_key(*name) && object.attrs.contains_key(*name));
        self.gateway.change_attrs(bucket, object, set, &gone).await?;
        Ok(Answer::new(202).header("Content-Type", "text/plain; charset=utf-8"))
    }

    async fn copy_swift(
        &self,
        asked: &Asked,
        call: &Call,
        bucket: &BucketAt,
        key: &str,
    ) -> Result<Answer> {
        let (container, source) = call.source.as_ref().ok_or(Code::BadURL)?;
        let from = self.container(asked, container).await?;
        let object = self.source_at(asked, &from, source.as_str(), None).await?;
        let object = living(Some(object), self)?;
        let _place = self.place_of_copy(object.size).await?;
        self.gateway.check_quota(bucket, object.size).await?;
        let headers = &asked.head.headers;
        let is_fresh =
            headers.get("x-fresh-metadata").is_some_and(|v| v.eq_ignore_ascii_case("true"));
        let mut attrs = object.attrs.clone();
        let ends = |name: &str| name == expiry::DELETE_AT;
        attrs.retain(|name, _| {
            !OWN.contains(&name.as_str()) && !name.starts_with("olh.") && !ends(name)
        });
        if is_fresh {
            attrs.retain(|name, _| !name.starts_with(META));
        }
        attrs.extend(kept(headers)?);
        self.complete_attrs(asked, bucket, key, &mut attrs).await?;
        let shown = ObjectAt { attrs: attrs.clone(), ..object.clone() };
        let none = Headers::default();
        let (_, etag, at) =
            self.copy_as(asked, (&from, &object), bucket, (key, attrs), &none).await?;
        let source = uri::encode(format!("{container}/{}", source.as_str()).as_bytes(), true);
        let account = from.info.owner.text();
        let told = Self::object_headers(asked, &shown, None);
        Ok(told
            .status(201)
            .replace("ETag", etag)
            .replace("Last-Modified", at.http())
            .header("X-Copied-From", source)
            .header("X-Copied-From-Account", uri::encode(account.as_bytes(), false))
            .header("X-Copied-From-Last-Modified", time(object.mtime).http()))
    }

    /// Deletes an object that is there.
    pub(super) async fn delete_swift(
        &self,
        asked: &Asked,
        bucket: &BucketAt,
        key: &str,
    ) -> Result<()> {
        let found = self.gateway.object(bucket, key, None, false).await?;
        living(found.ok(), self)?;
        self.remove(asked, bucket, key, None).await.map(drop)
    }
}

/// An object that is there and has not ended.
pub(super) fn living(found: Option<ObjectAt>, server: &Server) -> Result<ObjectAt> {
    let now = server.gateway.now();
    let object = found.filter(|o| expiry::of(&o.attrs).is_none_or(|at| at > now));
    object.ok_or_else(|| Code::NoSuchKey.into())
}

/// What a browser does with an object: of temporary URLs it keeps it, under the name that the URL tells, or shows it.
fn disposition(asked: &Asked, stored: Option<String>) -> Option<String> {
    let query = &asked.head.query;
    if query.get("temp_url_sig").is_none() {
        return stored;
    }
    if query.has("inline") {
        return Some("inline".into());
    }
    let attachment =
        |name: &str| format!("attachment; filename=\"{}\"", uri::encode(name.as_bytes(), false));
    match query.get("filename").filter(|name| !name.is_empty()) {
        Some(name) => Some(attachment(name)),
        None => {
            let name = asked.key().map(|key| key.as_str().to_owned()).unwrap_or_default();
            stored.or(Some(attachment(&name)))
        }
    }
}

#[cfg(test)]
mod tests {
    use rgw_proto::checksum::{Body, Expected};

    use super::*;

    #[test]
    fn what_is_kept() {
        let headers = |all: &[(&str, &str)]| Headers::new(all.iter().copied()).unwrap();
        let attrs = kept(&headers(&[
            ("Content-Type", "a/b"),
            ("X-Object-Meta-Foo_Bar", "1"),
            ("X-Object-Meta-Empty", ""),
            ("X-Container-Meta-A", "x"),
            ("x-amz-acl", "public-read"),
        ]))
        .unwrap();
        let names: Vec<_> = attrs.keys().map(String::as_str).collect();
        assert_eq!(names, ["content_type", "x-amz-meta-empty", "x-amz-meta-foo-bar"]);
        assert_eq!(told_etag(&headers(&[("ETag", "\"AB\"")])).unwrap().as_deref(), Some("ab"));
        assert!(manifest(&headers(&[("X-Object-Manifest", "seg")])).is_err());
    }

    struct Text(Body);

    impl Source for Text {
        fn len(&self) -> Option<u64> {
            None
        }

        async fn next(&mut self) -> Result<Option<Bytes>> {
            Ok(None)
        }

        fn finish(self) -> Result<Sums> {
            self.0.finish(&[])
        }
    }

    #[test]
    fn etags_are_held_to() {
        let finish = |etag: Option<&str>| {
            let mut body = Body::new(Expected::default());
            body.update(b"hello");
            Checked { body: Text(body), etag: etag.map(str::to_owned) }.finish().map(|s| s.len)
        };
        assert_eq!(finish(None), Ok(5));
        assert_eq!(finish(Some("5d41402abc4b2a76b9719d911017c592")), Ok(5));
        for bad in ["5d41402abc4b2a76b9719d911017c593", "bad", "5d41402abc4b2a76b9719d911017c5"] {
            assert_eq!(finish(Some(bad)).unwrap_err().code, Code::UnprocessableEntity, "{bad}");
        }
    }
}
