//! Operations on objects.

use std::collections::VecDeque;
use std::rc::Rc;

use rgw_core::crypt::{Cipher, Sealing, part_at};
use rgw_core::formats::ObjectTags;
use rgw_core::gateway::attr_text;
use rgw_core::meta::{Attrs, BucketAt};
use rgw_core::multipart::part_of;
use rgw_core::names::RawKey;
use rgw_core::notify::Happened;
use rgw_core::object::{HEAD_BYTES, ObjectAt};
use rgw_core::put::{Incoming as Put, NewHead, STRIPE_BYTES};
use rgw_proto::acl::Acl;
use rgw_proto::body::config::Ownership;
use rgw_proto::body::notification::Event;
use rgw_proto::body::{self as proto, Delete, config};
use rgw_proto::checksum::Sums;
use rgw_proto::condition::{Conditions, Current, Range};
use rgw_proto::operation::Operation as Op;
use rgw_proto::request::Headers;
use rgw_proto::xml::Writer;
use rgw_proto::{Code, Error, Result, uri};
use tokio::sync::mpsc;
use types::{Bytes, Denc};

use crate::OnRados;
use crate::acl;
use crate::answer::Answer;
use crate::append;
use crate::body::Received;
use crate::buckets::time;
use crate::config::stored_ownership;
use crate::crypt::{ObjectKey, PREFIX};
use crate::memory::{SPARE_BYTES, Share};
use crate::request::{Asked, Rules};
use crate::server::Server;
use crate::source::{Reads, Source, aligned};

/// Reads of one GET that are under way at once.
const READS_MAX: usize = 4;

/// Headers that are kept with an object, and the names of their attributes.
pub(crate) const KEPT: [(&str, &str); 6] = [
    ("content-type", "content_type"),
    ("cache-control", "cache_control"),
    ("content-disposition", "content_disposition"),
    ("content-encoding", "content_encoding"),
    ("content-language", "content_language"),
    ("expires", "expires"),
];

/// Attributes of one head that another never takes over.
pub(crate) const OWN: [&str; 7] = [
    "idtag",
    "tail_tag",
    "manifest",
    "pg_ver",
    "source_zone",
    "object-retention",
    "object-legal-hold",
];

/// Text with a NUL behind it, as upstream keeps headers.
pub fn nul(text: &str) -> Bytes {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(0);
    bytes.into()
}

/// What of a request's headers is kept with the object.
pub fn kept(headers: &Headers) -> Result<Attrs> {
    let mut out = Attrs::new();
    for (header, attr) in KEPT {
        let Some(value) = headers.get(header) else { continue };
        let value = if header == "content-encoding" {
            // It describes the request, not the object.
            let words = value.split(',').map(str::trim).filter(|w| *w != "aws-chunked");
            words.collect::<Vec<_>>().join(",")
        } else {
            value.to_owned()
        };
        if !value.is_empty() {
            out.insert(attr.to_owned(), nul(&value));
        }
    }
    for (name, value) in headers.with_prefix("x-amz-meta-") {
        out.insert(name.to_owned(), nul(value));
    }
    if let Some(value) = headers.single("x-amz-website-redirect-location")? {
        out.insert("x-amz-website-redirect-location".into(), nul(value));
    }
    if let Some(class) = headers.single("x-amz-storage-class")?.filter(|c| *c != "STANDARD") {
        out.insert("storage_class".into(), class.to_owned().into());
    }
    if let Some(text) = headers.single("x-amz-tagging")? {
        let tags = config::header_tags(text)?;
        if !tags.is_empty() {
            out.insert("x-amz-tagging".into(), tag_bytes(tags));
        }
    }
    Ok(out)
}

/// How tags are stored.
pub fn tag_bytes(tags: config::Tags) -> Bytes {
    ObjectTags(tags.into_iter().collect()).to_bytes()
}

/// Tags that are stored.
pub fn stored_tags(attrs: &Attrs) -> config::Tags {
    let tags = attrs.get("x-amz-tagging").and_then(|bytes| ObjectTags::from_bytes(bytes).ok());
    tags.map(|tags| tags.0.into_iter().collect()).unwrap_or_default()
}

/// Attributes that the bytes themselves give.
pub fn of_sums(attrs: &mut Attrs, sums: &Sums) {
    attrs.insert("etag".into(), uri::to_hex(&sums.md5).into());
    if let Some(sum) = &sums.sum {
        crate::sums::note(attrs, sum);
    }
}

pub(crate) fn current<'a>(etag: &'a str, object: &ObjectAt) -> Current<'a> {
    Current { etag, modified: time(object.mtime) }
}

/// An object to be stored, but for its bytes.
pub struct NewObject<'a> {
    /// Its key.
    pub name: &'a str,
    /// Its attributes.
    pub attrs: Attrs,
    /// What must hold for what it replaces.
    pub conditions: &'a Conditions,
    /// What its bytes are encrypted with.
    pub key: Option<ObjectKey>,
    /// Of a copy: its ETag and checksum are the source's.
    pub is_copy: bool,
}

impl Server {
    /// The list that an object gets. Public ones are refused where the bucket blocks them.
    pub(crate) fn new_acl(&self, asked: &Asked, bucket: &BucketAt) -> Result<Acl> {
        self.new_acl_of(asked, bucket, &asked.head.headers)
    }

    /// As [`Server::new_acl`], from other headers: those that a form stands for.
    pub(crate) fn new_acl_of(
        &self,
        asked: &Asked,
        bucket: &BucketAt,
        headers: &Headers,
    ) -> Result<Acl> {
        let owner = asked.owner();
        let bucket_owner = bucket.info.owner.text();
        let ownership = stored_ownership(&bucket.attrs)?.unwrap_or_default();
        let full = headers.get("x-amz-acl") == Some("bucket-owner-full-control");
        let of_bucket = || acl::of(&bucket.attrs).owner;
        match ownership {
            Ownership::BucketOwnerEnforced => {
                let has_list = headers.get("x-amz-acl").is_some()
                    || headers.with_prefix("x-amz-grant-").next().is_some();
                return match has_list && !full {
                    true => Err(Code::AccessControlListNotSupported.into()),
                    false => Ok(Acl::private(of_bucket())),
                };
            }
            Ownership::BucketOwnerPreferred if full => return Ok(Acl::private(of_bucket())),
            _ => {}
        }
        let list = Acl::of_headers(headers, &owner, &bucket_owner)?;
        let list = list.unwrap_or_else(|| Acl::private(owner));
        if list.is_public() && Rules::of(bucket)?.block.block_acls {
            let text = "The bucket blocks public access control lists.";
            return Err(Error::new(Code::AccessDenied, text));
        }
        Ok(list)
    }

    /// An operation on an object: looked up first where its own list decides.
    pub(crate) async fn on_object(
        self: &Rc<Self>,
        asked: &Asked,
        bucket: &BucketAt,
        body: Received,
    ) -> Result<Answer> {
        let key = asked.key()?.as_str();
        let version = asked.version();
        let at = Some((key, version));
        match asked.operation {
            Op::Preflight => return self.preflight(asked, bucket),
            Op::PutObject => {
                asked.check(Some(bucket), at, None)?;
                return self.put_object(asked, bucket, body).await;
            }
            Op::AppendObject => {
                asked.check(Some(bucket), at, None)?;
                return self.append_object(asked, bucket, body).await;
            }
            Op::CopyObject => {
                asked.check(Some(bucket), at, None)?;
                return self.copy_object(asked, bucket).await;
            }
            Op::DeleteObject => {
                asked.check(Some(bucket), at, None)?;
                return self.delete_object(asked, bucket, key, version).await;
            }
            Op::CreateMultipartUpload
            | Op::UploadPart
            | Op::UploadPartCopy
            | Op::CompleteMultipartUpload
            | Op::AbortMultipartUpload
            | Op::ListParts => {
                asked.check(Some(bucket), at, None)?;
                return self.on_upload(asked, bucket, body).await;
            }
            _ => {}
        }
        let object = self.found(asked, bucket).await?;
        match asked.operation {
            Op::GetObject | Op::HeadObject => self.get_object(asked, bucket, object),
            Op::GetObjectAcl => Ok(Answer::xml(acl::of(&object.attrs).to_xml())),
            Op::PutObjectAcl => {
                let list = self.acl_of_request(asked, bucket, acl::of(&object.attrs), body).await?;
                let set = [("acl".to_owned(), acl::encode(&list))].into();
                self.gateway.change_attrs(bucket, &object, set, &[]).await?;
                Ok(Answer::new(200))
            }
            Op::GetObjectTagging => {
                Ok(Answer::xml(config::tags_to_xml(&stored_tags(&object.attrs))))
            }
            Op::PutObjectTagging => {
                let body = self.document(asked, body).await?;
                let tags = config::tags(&body, config::OBJECT_TAGS_MAX)?;
                let set = [("x-amz-tagging".to_owned(), tag_bytes(tags))].into();
                self.gateway.change_attrs(bucket, &object, set, &[]).await?;
                Ok(Answer::new(200))
            }
            Op::DeleteObjectTagging => {
                let unset = &["x-amz-tagging"];
                self.gateway.change_attrs(bucket, &object, Attrs::new(), unset).await?;
                Ok(Answer::new(204))
            }
            Op::GetObjectAttributes => Ok(attributes(asked, &object)),
            _ => self.lock_of_object(asked, bucket, &object, body).await,
        }
    }

    /// The object that a request names, where its sender may do with it what is asked for.
    pub(crate) async fn found(&self, asked: &Asked, bucket: &BucketAt) -> Result<ObjectAt> {
        let (key, version) = (asked.key()?.as_str(), asked.version());
        let mut share = self.sent.share();
        let prefetch = asked.operation == Op::GetObject && share.grow(HEAD_BYTES);
        let mut found = self.gateway.object(bucket, key, version, prefetch).await?;
        if let Ok(object) = &mut found {
            object.prefetched = share.hold(std::mem::take(&mut object.prefetched));
        }
        asked.check(Some(bucket), Some((key, version)), found.as_ref().ok())?;
        found.map_err(|_| Error::from(Code::NoSuchKey))
    }

    /// The new list of a bucket or object: of headers, or of the body.
    pub(crate) async fn acl_of_request(
        &self,
        asked: &Asked,
        bucket: &BucketAt,
        now: Acl,
        body: Received,
    ) -> Result<Acl> {
        if stored_ownership(&bucket.attrs)? == Some(Ownership::BucketOwnerEnforced) {
            return Err(Code::AccessControlListNotSupported.into());
        }
        let body = self.document(asked, body).await?;
        let bucket_owner = bucket.info.owner.text();
        let list = match Acl::of_headers(&asked.head.headers, &now.owner, &bucket_owner)? {
            Some(list) => list,
            None => Acl::parse(&body)?,
        };
        if list.owner.id != now.owner.id {
            return Err(Error::new(Code::AccessDenied, "An owner does not change by its list."));
        }
        for grant in &list.grants {
            match &grant.grantee {
                rgw_proto::acl::Grantee::Email(_) => {
                    return Err(Code::UnresolvableGrantByEmailAddress.into());
                }
                rgw_proto::acl::Grantee::User(id) if *id != now.owner.id => {
                    let user = self.gateway.user(id).await?;
                    user.ok_or_else(|| {
                        Error::new(Code::InvalidArgument, format!("No user has the id {id:?}."))
                    })?;
                }
                _ => {}
            }
        }
        if list.is_public() && Rules::of(bucket)?.block.block_acls {
            let text = "The bucket blocks public access control lists.";
            return Err(Error::new(Code::AccessDenied, text));
        }
        Ok(list)
    }

    async fn put_object(&self, asked: &Asked, bucket: &BucketAt, body: Received) -> Result<Answer> {
        let headers = &asked.head.headers;
        let conditions = Conditions::of(headers, "")?;
        let mut attrs = kept(headers)?;
        attrs.insert("acl".into(), acl::encode(&self.new_acl(asked, bucket)?));
        self.lock_of_headers(bucket, headers, &mut attrs)?;
        let name = asked.key()?.as_str();
        let key = self.new_key(asked, bucket, headers, name)?;
        let reader = self.data(asked, body)?;
        self.gateway.check_quota(bucket, reader.len.unwrap_or(0)).await?;
        let new = NewObject { name, attrs, conditions: &conditions, key, is_copy: false };
        let (answer, _) = self.store((asked, Event::PUT), bucket, new, reader).await?;
        Ok(answer)
    }

    /// Stores an object's bytes under a name, and tells of it. Returns an answer without a body, and the ETag.
    pub(crate) async fn store(
        &self,
        (asked, event): (&Asked, Event),
        bucket: &BucketAt,
        new: NewObject<'_>,
        reader: impl Source,
    ) -> Result<(Answer, String)> {
        let reserved = self.reserve(bucket, event, new.name, &new.attrs).await?;
        match self.store_untold(bucket, new, reader).await {
            Ok((answer, what)) => {
                self.tell(asked, bucket, reserved, &what).await;
                Ok((answer, what.etag))
            }
            Err(error) => {
                self.gateway.abort_events(reserved).await;
                Err(error)
            }
        }
    }

    async fn store_untold(
        &self,
        bucket: &BucketAt,
        new: NewObject<'_>,
        mut reader: impl Source,
    ) -> Result<(Answer, Happened)> {
        let NewObject { name, mut attrs, conditions, key: customer, is_copy } = new;
        let mut sealing = customer.as_ref().map(|key| Sealing::new(key.cipher()));
        if let Some(key) = &customer {
            key.note(&mut attrs);
        }
        let instance =
            if bucket.keeps_versions() { self.gateway.new_version() } else { String::new() };
        let key = RawKey { name: name.to_owned(), instance, ns: String::new() };
        let class = attrs.get("storage_class").map(|v| attr_text(v)).unwrap_or_default();
        let mut incoming = self.gateway.begin(bucket, &key, &class).await?;
        let mut share = self.share_of_put(&mut incoming, reader.len());
        let mut took = Ok(());
        loop {
            match reader.next().await {
                Ok(Some(bytes)) => {
                    let bytes = sealing.as_mut().map_or(bytes.clone(), |s| s.push(&bytes));
                    took = take(&mut incoming, &mut share, &bytes).await;
                }
                Ok(None) => break,
                Err(error) => took = Err(error),
            }
            if took.is_err() {
                break;
            }
        }
        if let (Ok(()), Some(sealing)) = (&took, &mut sealing) {
            took = incoming.push(&sealing.finish()).await;
        }
        let mut sums = match took {
            Ok(()) => match incoming.flush().await {
                Ok(()) => reader.finish(),
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        // A body whose length was not told is judged by now.
        if let Ok(known) = &sums
            && let Err(error) = self.gateway.check_quota(bucket, known.len).await
        {
            sums = Err(error);
        }
        let sums = match sums {
            Ok(sums) => sums,
            Err(error) => {
                incoming.abandon().await;
                return Err(error);
            }
        };
        if !is_copy {
            of_sums(&mut attrs, &sums);
        }
        let etag = attrs.get("etag").map(|etag| attr_text(etag)).unwrap_or_default();
        let expires =
            crate::config::expiration(bucket, name, &attrs, sums.len, crate::request::now());
        let placement = placement(bucket, &class);
        let object = self.gateway.object_name(bucket, &key);
        let written = incoming.written(object, &placement);
        let mtime = types::UTime::from_nanos(rt::now().wall_ns);
        let new = NewHead {
            key: key.clone(),
            data: written.head,
            manifest: written.manifest,
            attrs,
            mtime,
            conditions,
            same_tail: None,
            tag: None,
            gone: Vec::new(),
            over: None,
        };
        if let Err(error) = self.gateway.write_head(bucket, new).await {
            // Only where it is sure that no head names the tail.
            if matches!(error.code, Code::PreconditionFailed | Code::NoSuchKey) {
                self.gateway.remove_places(&written.tails).await;
            }
            return Err(error);
        }
        let version = self.link(bucket, &key).await?;
        let mut answer = Answer::new(200).header("ETag", format!("\"{etag}\""));
        answer = answer.maybe("x-amz-expiration", expires);
        if let Some(sum) = &sums.sum {
            answer = answer
                .header(sum.algorithm.header(), sum.base64())
                .header("x-amz-checksum-type", "FULL_OBJECT");
        }
        if let Some(key) = &customer {
            answer = key.tell_writer(answer);
        }
        let what =
            Happened { key: key.name, size: sums.len, etag, version: key.instance, at: mtime };
        Ok((answer.maybe("x-amz-version-id", version), what))
    }

    /// What a put may hold: enough for the usual way, or nothing, and then it goes in small pieces.
    pub(crate) fn share_of_put(&self, incoming: &mut Put<OnRados>, len: Option<u64>) -> Share {
        let mut share = self.received.share();
        let needs = incoming.needs();
        if !share.grow(len.map_or(needs, |len| len.min(needs))) {
            incoming.save_memory(SPARE_BYTES);
        }
        share
    }

    /// Has the plain name lead to what was written; the version's id, in buckets with versions.
    pub(crate) async fn link(&self, bucket: &BucketAt, key: &RawKey) -> Result<Option<String>> {
        if !key.instance.is_empty() {
            self.gateway.link_version(bucket, &key.name, &key.instance, None).await?;
            return Ok(Some(key.instance.clone()));
        }
        if !bucket.is_versioned() {
            return Ok(None);
        }
        if self.gateway.has_versions(bucket, &key.name).await? {
            self.gateway.link_version(bucket, &key.name, "", None).await?;
        }
        Ok(Some("null".into()))
    }

    pub(crate) fn get_object(
        self: &Rc<Self>,
        asked: &Asked,
        bucket: &BucketAt,
        object: ObjectAt,
    ) -> Result<Answer> {
        is_readable(&object)?;
        let headers = &asked.head.headers;
        let customer = self.object_key(asked, &object.attrs, PREFIX)?;
        let query = &asked.head.query;
        let etag = object.text("etag");
        Conditions::of(headers, "")?.check_read(current(&etag, &object))?;
        let (mut from, mut len, mut partial) = (0, object.size, false);
        let mut parts = None;
        if let Some(text) = query.get("partNumber") {
            let number = text.parse().ok().and_then(|n| part_of(&object, n));
            let (start, bytes, all) = number.ok_or_else(|| Error::from(Code::InvalidPart))?;
            (from, len, partial) = (start, bytes, true);
            parts = Some(all).filter(|n| *n > 0);
        } else if let Some(range) = headers.single("range")?.and_then(Range::parse) {
            (from, len) = range.within(object.size)?;
            partial = true;
        }
        let mut answer = Answer::new(if partial { 206 } else { 200 })
            .header("ETag", format!("\"{etag}\""))
            .header("Last-Modified", time(object.mtime).http())
            .header("Accept-Ranges", "bytes")
            .header("x-rgw-object-type", object.appended().map_or("Normal", |_| "Appendable"))
            .maybe(append::NEXT, object.appended().map(|_| object.size.to_string()));
        if partial && object.size > 0 {
            let last = from + len - 1;
            answer = answer.header("Content-Range", format!("bytes {from}-{last}/{}", object.size));
        }
        for (header, attr) in KEPT {
            let wanted = query.get(&format!("response-{header}"));
            if wanted.is_some() && asked.user.is_none() {
                let text = "response-* wants a signed request.";
                return Err(Error::new(Code::InvalidRequest, text));
            }
            let stored = object.text(attr);
            let value = wanted.map(str::to_owned).or(Some(stored).filter(|v| !v.is_empty()));
            let value =
                value.or((attr == "content_type").then(|| "binary/octet-stream".to_owned()));
            if value.as_ref().is_some_and(|v| v.chars().any(char::is_control)) {
                return Err(Error::new(
                    Code::InvalidArgument,
                    "A header has no control characters.",
                ));
            }
            answer = answer.maybe(header, value);
        }
        for (name, value) in &object.attrs {
            if name.starts_with("x-amz-meta-") || name == "x-amz-website-redirect-location" {
                answer = answer.header(name, attr_text(value));
            }
        }
        answer = answer.maybe("x-amz-mp-parts-count", parts.map(|n| n.to_string()));
        let tags = stored_tags(&object.attrs).len();
        answer = answer.maybe("x-amz-tagging-count", (tags > 0).then(|| tags.to_string()));
        let class = object.text("storage_class");
        answer = answer.maybe("x-amz-storage-class", Some(class).filter(|c| !c.is_empty()));
        if bucket.is_versioned() {
            answer = answer.header("x-amz-version-id", version_id(&object));
        }
        answer = crate::config::lock_headers(answer, &object);
        if query.get("versionId").is_none() {
            let (name, modified) = (&object.key.name, time(object.mtime));
            let expires =
                crate::config::expiration(bucket, name, &object.attrs, object.size, modified);
            answer = answer.maybe("x-amz-expiration", expires);
        }
        if headers.get("x-amz-checksum-mode").is_some_and(|m| m.eq_ignore_ascii_case("ENABLED"))
            && !partial
            && let Some(sum) = crate::sums::shown(&object.attrs, &etag)
        {
            answer = answer
                .header(sum.algorithm.header(), sum.text)
                .header("x-amz-checksum-type", sum.kind);
        }
        if let Some(key) = &customer {
            answer = key.tell(answer);
        }
        answer = self.cors_headers(asked, bucket, answer);
        if asked.operation == Op::HeadObject {
            return Ok(answer.header("Content-Length", len.to_string()));
        }
        let cipher = customer.map(|key| key.cipher());
        Ok(self.send(bucket, object, answer, (from, len), cipher))
    }

    /// Has the bytes of an object follow an answer.
    pub(crate) fn send(
        self: &Rc<Self>,
        bucket: &BucketAt,
        object: ObjectAt,
        answer: Answer,
        (from, len): (u64, u64),
        cipher: Option<Cipher>,
    ) -> Answer {
        let end = from + len;
        let in_head = object.manifest.as_ref().is_none_or(|m| end <= m.head_size);
        if cipher.is_none() && in_head && end <= object.prefetched.len() as u64 {
            return answer.bytes(object.prefetched.slice(from as usize..end as usize));
        }
        let (sender, pieces) = mpsc::channel(1);
        let (server, bucket) = (self.clone(), Rc::new(bucket.clone()));
        let object = Rc::new(object);
        tokio::task::spawn_local(async move {
            server.pour(&bucket, &object, (from, len), cipher, &sender).await;
        });
        answer.pieces(pieces, len)
    }

    /// Sends a run of an object's bytes, piece by piece. Returns whether all went.
    pub(crate) async fn pour(
        self: &Rc<Self>,
        bucket: &Rc<BucketAt>,
        object: &Rc<ObjectAt>,
        (from, len): (u64, u64),
        cipher: Option<Cipher>,
        sender: &mpsc::Sender<std::io::Result<Bytes>>,
    ) -> bool {
        let end = from + len;
        let parts = object.manifest.as_ref().map(|m| m.part_bounds()).unwrap_or_default();
        let (first, last) = match &cipher {
            Some(_) => aligned(&parts, object.size, from, end),
            None => (from, end),
        };
        let mut reads = Reads::new(self.gateway.reads(bucket, object, first, last - first));
        let mut under_way = VecDeque::new();
        let mut at = first;
        loop {
            while under_way.len() < READS_MAX {
                let mut share = self.sent.share();
                let most = match share.grow(reads.next_len()) {
                    true => HEAD_BYTES,
                    // Others hold the memory: one small piece after the other.
                    false if under_way.is_empty() => SPARE_BYTES,
                    false => break,
                };
                let Some(read) = reads.next(most) else { break };
                let (server, bucket) = (self.clone(), bucket.clone());
                let object = object.clone();
                under_way.push_back(tokio::task::spawn_local(async move {
                    let piece = server.gateway.read(&bucket, &object, &read).await;
                    (piece, share)
                }));
            }
            let Some(next) = under_way.pop_front() else { return true };
            let piece = match next.await {
                Ok((Ok(piece), share)) => {
                    let begin = at;
                    at += piece.len() as u64;
                    Ok(share.hold(match &cipher {
                        Some(cipher) => {
                            let (part, _) = part_at(&parts, object.size, begin);
                            let mut open = piece.to_vec();
                            cipher.decrypt(begin - part, &mut open);
                            let (cut, keep) = (from.max(begin), end.min(at).max(from.max(begin)));
                            Bytes::from(open).slice((cut - begin) as usize..(keep - begin) as usize)
                        }
                        None => piece,
                    }))
                }
                Ok((Err(error), _)) => {
                    tracing::warn!("a GET of {} ends early: {error}", object.key.name);
                    Err(std::io::Error::other(error))
                }
                Err(error) => Err(std::io::Error::other(error)),
            };
            let failed = piece.is_err();
            if sender.send(piece).await.is_err() || failed {
                under_way.iter().for_each(tokio::task::JoinHandle::abort);
                return false;
            }
        }
    }

    pub(crate) async fn delete_object(
        &self,
        asked: &Asked,
        bucket: &BucketAt,
        key: &str,
        version: Option<&str>,
    ) -> Result<Answer> {
        let (version, is_marker) = self.remove(asked, bucket, key, version).await?;
        let marker = is_marker.then_some("true");
        Ok(Answer::new(204).maybe("x-amz-version-id", version).maybe("x-amz-delete-marker", marker))
    }

    /// Deletes an object, or a version, and tells nobody.
    pub(crate) async fn remove_untold(
        &self,
        asked: &Asked,
        bucket: &BucketAt,
        name: &str,
        version: Option<&str>,
    ) -> Result<(Option<String>, bool)> {
        let conditions = match asked.operation {
            Op::DeleteObject => Conditions::of(&asked.head.headers, "")?,
            _ => Conditions::default(),
        };
        let check = |object: Option<&ObjectAt>| -> Result<()> {
            let Some(object) = object else { return Ok(()) };
            self.check_unlocked(asked, bucket, object)?;
            let etag = object.text("etag");
            match &conditions.fits {
                Some(tags) if !tags.fits(&etag) => Err(Code::PreconditionFailed.into()),
                _ => Ok(()),
            }
        };
        let plain = RawKey { name: name.into(), ..RawKey::default() };
        if !bucket.is_versioned() {
            if version.is_some_and(|v| v != "null") {
                return Ok((version.map(str::to_owned), false));
            }
            self.gateway.remove_exact(bucket, &plain, check).await?;
            return Ok((None, false));
        }
        match version {
            None => {
                if conditions.fits.is_some() {
                    let found = self.gateway.object(bucket, name, None, false).await?;
                    if let Ok(object) = &found {
                        let etag = object.text("etag");
                        if conditions.fits.as_ref().is_some_and(|tags| !tags.fits(&etag)) {
                            return Err(Code::PreconditionFailed.into());
                        }
                    }
                }
                let keeps = bucket.keeps_versions();
                let instance = if keeps { self.gateway.new_version() } else { String::new() };
                if !keeps {
                    let null = self.gateway.object(bucket, name, Some("null"), false).await?;
                    check(null.as_ref().ok())?;
                }
                let owner = asked.owner();
                let owner = (owner.id, owner.display_name);
                self.gateway.link_version(bucket, name, &instance, Some(owner)).await?;
                let id = if keeps { instance } else { "null".into() };
                Ok((Some(id), true))
            }
            Some(id) => {
                let found = self.gateway.object(bucket, name, Some(id), false).await?;
                check(found.as_ref().ok())?;
                let is_marker = match &found {
                    Ok(_) => false,
                    Err(_) => self.gateway.is_marker(bucket, name, id).await?,
                };
                let instance = if id == "null" { "" } else { id };
                self.gateway.unlink_version(bucket, name, instance).await?;
                Ok((Some(id.to_owned()), is_marker))
            }
        }
    }

    pub(crate) async fn delete_objects(
        &self,
        asked: &Asked,
        bucket: &BucketAt,
        body: Received,
    ) -> Result<Answer> {
        let headers = &asked.head.headers;
        let sums = headers.with_prefix("x-amz-checksum-").next().is_some();
        let is_summed = headers.get("content-md5").is_some()
            || sums
            || headers.get("x-amz-trailer").is_some()
            || asked
                .proof
                .as_ref()
                .is_some_and(|p| matches!(p.payload, rgw_proto::sig::Payload::Sha256(_)));
        if !is_summed {
            let text = "The body wants Content-MD5 or a checksum.";
            return Err(Error::new(Code::InvalidRequest, text));
        }
        // Whoever may delete nothing at all does not have the body read.
        let asks = Delete::parse(&self.document(asked, body).await?)?;
        let mut w = Writer::document();
        w.open_root("DeleteResult");
        for doomed in &asks.objects {
            let key = doomed.key.as_str();
            let version = doomed.version.as_deref().filter(|v| !v.is_empty());
            let done = match asked.check(Some(bucket), Some((key, version)), None) {
                Ok(()) => self.remove_one(asked, bucket, doomed, key, version).await,
                Err(error) => Err(error),
            };
            match done {
                Ok(_) if asks.quiet => {}
                Ok((id, is_marker)) => {
                    w.open("Deleted").text("Key", key);
                    w.maybe("VersionId", version);
                    if is_marker {
                        w.value("DeleteMarker", true);
                        w.maybe("DeleteMarkerVersionId", id.as_deref());
                    }
                    w.close("Deleted");
                }
                Err(error) => {
                    w.open("Error").text("Key", key).maybe("VersionId", version);
                    w.text("Code", error.code.name()).text("Message", &error.message);
                    w.close("Error");
                }
            }
        }
        w.close("DeleteResult");
        Ok(Answer::xml(w.finish()))
    }

    async fn remove_one(
        &self,
        asked: &Asked,
        bucket: &BucketAt,
        doomed: &proto::Doomed,
        key: &str,
        version: Option<&str>,
    ) -> Result<(Option<String>, bool)> {
        if doomed.etag.is_some() || doomed.modified.is_some() || doomed.size.is_some() {
            let found = self.gateway.object(bucket, key, version, false).await?;
            if let Ok(object) = &found {
                let etag = object.text("etag");
                let fits = doomed.etag.as_ref().is_none_or(|tags| tags.fits(&etag))
                    && doomed.modified.is_none_or(|at| at == time(object.mtime))
                    && doomed.size.is_none_or(|size| size == object.size);
                if !fits {
                    return Err(Code::PreconditionFailed.into());
                }
            }
        }
        self.remove(asked, bucket, key, version).await
    }
}

/// Takes bytes of a put within its share: what is under way ends before, where the share has no room for more.
pub(crate) async fn take(
    incoming: &mut Put<OnRados>,
    share: &mut Share,
    bytes: &[u8],
) -> Result<()> {
    let holds = incoming.holds() + bytes.len() as u64;
    if share.bytes() > 0 && holds > share.bytes() && !share.grow(STRIPE_BYTES) {
        incoming.settle().await?;
    }
    incoming.push(bytes).await
}

/// `PLACEMENT[/CLASS]` of an object.
pub(crate) fn placement(bucket: &BucketAt, class: &str) -> String {
    match (class, bucket.info.placement.split('/').next()) {
        ("" | "STANDARD", _) => bucket.info.placement.clone(),
        (class, name) => format!("{}/{class}", name.unwrap_or_default()),
    }
}

/// A version's id, as clients see it.
pub fn version_id(object: &ObjectAt) -> String {
    match object.key.instance.as_str() {
        "" => "null".into(),
        id => id.to_owned(),
    }
}

fn attributes(asked: &Asked, object: &ObjectAt) -> Answer {
    let wanted = asked.head.headers.joined("x-amz-object-attributes");
    let wants = |name: &str| wanted.split(',').any(|w| w.trim() == name);
    let mut w = Writer::document();
    w.open_root("GetObjectAttributesResponse");
    if wants("ETag") {
        w.text("ETag", &object.text("etag"));
    }
    if wants("Checksum")
        && let Some(sum) = crate::sums::shown(&object.attrs, &object.text("etag"))
    {
        let name = format!("Checksum{}", sum.algorithm.name());
        w.open("Checksum").text(&name, &sum.text).text("ChecksumType", sum.kind).close("Checksum");
    }
    if wants("StorageClass") {
        let class = object.text("storage_class");
        w.text("StorageClass", if class.is_empty() { "STANDARD" } else { &class });
    }
    if wants("ObjectSize") {
        w.value("ObjectSize", object.size);
    }
    w.close("GetObjectAttributesResponse");
    Answer::xml(w.finish()).header("Last-Modified", time(object.mtime).http())
}

/// Refuses an object whose data is compressed (501): only stock's gateways read those.
pub(crate) fn is_readable(object: &ObjectAt) -> Result<()> {
    if object.attrs.contains_key("compression") {
        let text = "The object is compressed, which is not built: stock radosgw reads it.";
        return Err(Error::new(Code::NotImplemented, text));
    }
    Ok(())
}
