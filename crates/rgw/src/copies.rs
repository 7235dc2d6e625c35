//! Copies of objects.

use rgw_core::gateway::attr_text;
use rgw_core::meta::{Attrs, BucketAt};
use rgw_core::names::RawKey;
use rgw_core::notify::Happened;
use rgw_core::object::{HEAD_BYTES, ObjectAt};
use rgw_proto::body as proto;
use rgw_proto::body::notification::Event;
use rgw_proto::condition::Conditions;
use rgw_proto::operation::Operation as Op;
use rgw_proto::request::Headers;
use rgw_proto::{Code, Error, Result};
use tokio::sync::SemaphorePermit;

use crate::acl;
use crate::answer::Answer;
use crate::buckets::time;
use crate::crypt::SOURCE_PREFIX;
use crate::memory::Share;
use crate::objects::{NewObject, OWN, current, kept, placement, version_id};
use crate::request::Asked;
use crate::server::Server;
use crate::source::Opened;

/// Room for a copy, until it is dropped.
pub(crate) struct PlaceOfCopy<'a>(
    #[allow(dead_code, reason = "it is given back when this is dropped")] Option<Share>,
    #[allow(dead_code, reason = "as the share")] Option<SemaphorePermit<'a>>,
);

impl Server {
    /// An object that is copied, which the sender may read.
    pub(crate) async fn source_at(
        &self,
        asked: &Asked,
        bucket: &BucketAt,
        key: &str,
        version: Option<&str>,
    ) -> Result<ObjectAt> {
        let share = self.needed.need(HEAD_BYTES)?;
        let mut found = self.gateway.object(bucket, key, version, true).await?;
        if let Ok(object) = &mut found {
            object.prefetched = share.hold(std::mem::take(&mut object.prefetched));
        }
        let sender = asked.sender.also(Op::GetObject);
        asked.check_as(sender, Some(bucket), Some((key, version)), found.as_ref().ok())?;
        let object = found.map_err(|_| Error::from(Code::NoSuchKey))?;
        if object.attrs.contains_key("compression") {
            let text = "The source is compressed, which is not built: stock radosgw copies it.";
            return Err(Error::new(Code::NotImplemented, text));
        }
        Ok(object)
    }

    /// The source of a copy, which the sender may read.
    pub(crate) async fn source(&self, asked: &Asked) -> Result<(BucketAt, ObjectAt)> {
        let text = asked.head.headers.single("x-amz-copy-source")?.unwrap_or_default();
        let source = proto::Source::parse(text)?;
        let name = asked.with_tenant(&source.bucket);
        let bucket = self.gateway.bucket(&name.tenant, &name.name).await?;
        let (key, version) = (source.key.as_str(), source.version.as_deref());
        let object = self.source_at(asked, &bucket, key, version).await?;
        let etag = object.text("etag");
        let conditions = Conditions::of(&asked.head.headers, "x-amz-copy-source-")?;
        conditions.check_source(current(&etag, &object))?;
        Ok((bucket, object))
    }

    /// Room for a copy: small ones are counted, of large ones few go at once.
    pub(crate) async fn place_of_copy(&self, bytes: u64) -> Result<PlaceOfCopy<'_>> {
        if bytes <= HEAD_BYTES {
            return Ok(PlaceOfCopy(Some(self.needed.need(bytes)?), None));
        }
        Ok(PlaceOfCopy(None, Some(self.copies.acquire().await.expect("it is never closed"))))
    }

    pub(crate) async fn copy_object(&self, asked: &Asked, bucket: &BucketAt) -> Result<Answer> {
        let (from, object) = self.source(asked).await?;
        let _place = self.place_of_copy(object.size).await?;
        self.gateway.check_quota(bucket, object.size).await?;
        let headers = &asked.head.headers;
        let directive = |name: &str| -> Result<bool> {
            match headers.single(name)?.unwrap_or("COPY") {
                "COPY" => Ok(false),
                "REPLACE" => Ok(true),
                _ => Err(Error::new(Code::InvalidArgument, format!("{name} is COPY or REPLACE."))),
            }
        };
        let (replace, retag) =
            (directive("x-amz-metadata-directive")?, directive("x-amz-tagging-directive")?);
        let name = asked.key()?.as_str();
        let same = from.info.bucket == bucket.info.bucket && object.key.name == name;
        let asks_class = headers.get("x-amz-storage-class").is_some();
        if same
            && !replace
            && !asks_class
            && asked
                .head
                .headers
                .get("x-amz-copy-source")
                .is_some_and(|s| !s.contains("versionId="))
        {
            let text =
                "A copy of an object onto itself changes its metadata, storage class or tags.";
            return Err(Error::new(Code::InvalidRequest, text));
        }
        let mut attrs = object.attrs.clone();
        attrs.retain(|name, _| !OWN.contains(&name.as_str()) && !name.starts_with("olh."));
        let new = kept(headers)?;
        if replace {
            let tags = attrs.remove("x-amz-tagging");
            attrs.retain(|name, _| name == "etag" || name == "cksum");
            attrs.extend(tags.map(|tags| ("x-amz-tagging".to_owned(), tags)));
            attrs.extend(new.clone().into_iter().filter(|(name, _)| name != "x-amz-tagging"));
        }
        if retag {
            attrs.remove("x-amz-tagging");
            attrs.extend(new.get("x-amz-tagging").map(|t| ("x-amz-tagging".to_owned(), t.clone())));
        }
        attrs.remove("storage_class");
        attrs.extend(new.get("storage_class").map(|c| ("storage_class".to_owned(), c.clone())));
        attrs.insert("acl".into(), acl::encode(&self.new_acl(asked, bucket)?));
        self.lock_of_headers(bucket, headers, &mut attrs)?;
        let (answer, etag, at) =
            self.copy_as(asked, (&from, &object), bucket, (name, attrs), headers).await?;
        let text = proto::copied(false, &etag, at);
        let source = from.is_versioned().then(|| version_id(&object));
        let answer = answer.header("Content-Type", "application/xml").bytes(text.into());
        Ok(answer.maybe("x-amz-copy-source-version-id", source))
    }

    /// Copies an object's bytes under a name, with these attributes. Returns an answer without a body, the ETag, and
    /// when.
    pub(crate) async fn copy_as(
        &self,
        asked: &Asked,
        (from, object): (&BucketAt, &ObjectAt),
        bucket: &BucketAt,
        (name, mut attrs): (&str, Attrs),
        headers: &Headers,
    ) -> Result<(Answer, String, rgw_proto::time::Time)> {
        let (open, seal) = (
            self.object_key(asked, &object.attrs, SOURCE_PREFIX)?,
            self.new_key(asked, bucket, headers, name)?,
        );
        if open.is_some() || seal.is_some() {
            attrs.retain(|name, _| !name.starts_with("crypt."));
            let source = Opened::new(self, from, object, open.as_ref(), (0, object.size));
            let none = Conditions::default();
            let new = NewObject { name, attrs, conditions: &none, key: seal, is_copy: true };
            let cause = (asked, Event::COPY);
            let (stored, etag) = self.store(cause, bucket, new, source).await?;
            return Ok((stored, etag, crate::request::now()));
        }
        let class = attrs.get("storage_class").map(|v| attr_text(v)).unwrap_or_default();
        let instance =
            if bucket.keeps_versions() { self.gateway.new_version() } else { String::new() };
        let key = RawKey { name: name.to_owned(), instance, ns: String::new() };
        let mtime = types::UTime::from_nanos(rt::now().wall_ns);
        let placement = placement(bucket, &class);
        let what = Happened {
            key: name.to_owned(),
            size: object.size,
            etag: object.text("etag"),
            version: key.instance.clone(),
            at: mtime,
        };
        let of_new = attrs.clone();
        let copying = async {
            let (key, gateway) = (key.clone(), &self.gateway);
            gateway.copy(from, object, bucket, key.clone(), attrs, mtime, &placement).await?;
            self.link(bucket, &key).await
        };
        let event = (Event::COPY, &of_new, what);
        let version = self.telling(asked, bucket, event, copying).await?;
        let answer = Answer::new(200).maybe("x-amz-version-id", version);
        Ok((answer, object.text("etag"), time(mtime)))
    }
}
