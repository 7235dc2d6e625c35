//! Uploads in parts.

use rgw_core::crypt::Sealing;
use rgw_core::formats::{Upload, UploadPart};
use rgw_core::gateway::attr_text;
use rgw_core::meta::{Attrs, BucketAt};
use rgw_core::multipart::{Completion, UploadAt};
use rgw_core::names::RawKey;
use rgw_core::notify::Happened;
use rgw_proto::acl::Owner;
use rgw_proto::body::notification::Event;
use rgw_proto::body::{self as proto, PARTS_MAX};
use rgw_proto::condition::{Conditions, Range};
use rgw_proto::operation::Operation as Op;
use rgw_proto::xml::Writer;
use rgw_proto::{Code, Error, Result, checksum, uri};
use types::Denc;

use crate::acl;
use crate::answer::Answer;
use crate::body::Received;
use crate::buckets::time;
use crate::crypt::{PREFIX, SOURCE_PREFIX};
use crate::objects::{kept, of_sums, take};
use crate::request::Asked;
use crate::server::Server;
use crate::source::{Opened, Source};
use crate::sums;

impl Server {
    pub(crate) async fn on_upload(
        &self,
        asked: &Asked,
        bucket: &BucketAt,
        body: Received,
    ) -> Result<Answer> {
        let key = asked.key()?.as_str();
        if asked.operation == Op::CreateMultipartUpload {
            return self.begin_upload(asked, bucket, key).await;
        }
        let id = asked.head.query.get("uploadId").unwrap_or_default();
        if asked.operation == Op::CompleteMultipartUpload {
            return self.complete_upload(asked, bucket, key, id, body).await;
        }
        let upload = self.gateway.upload(bucket, key, id).await?;
        match asked.operation {
            Op::UploadPart => self.upload_part(asked, bucket, &upload, body).await,
            Op::UploadPartCopy => self.copy_part(asked, bucket, &upload).await,
            Op::AbortMultipartUpload => {
                self.gateway.abort_upload(bucket, &upload).await?;
                Ok(Answer::new(204))
            }
            _ => self.list_parts(asked, bucket, &upload).await,
        }
    }

    async fn begin_upload(&self, asked: &Asked, bucket: &BucketAt, key: &str) -> Result<Answer> {
        let headers = &asked.head.headers;
        let mut attrs = kept(headers)?;
        attrs.insert("acl".into(), acl::encode(&self.new_acl(asked, bucket)?));
        self.lock_of_headers(bucket, headers, &mut attrs)?;
        let class = attrs.get("storage_class").map(|v| attr_text(v)).unwrap_or_default();
        let rule = bucket.info.placement.split('/').next().unwrap_or_default();
        let placement = match class.as_str() {
            "" => bucket.info.placement.clone(),
            class => format!("{rule}/{class}"),
        };
        if bucket.placement.data_of(&class).is_none() {
            let text = format!("The bucket's placement has no storage class {class:?}.");
            return Err(Error::new(Code::InvalidArgument, text));
        }
        let customer = self.new_key(asked, bucket, headers, key)?;
        if let Some(key) = &customer {
            key.note(&mut attrs);
        }
        let mut info = Upload { placement, ..Upload::default() };
        sums::of_upload(headers, &mut info)?;
        let id = self.gateway.begin_upload(bucket, key, &info, attrs).await?;
        let name = &bucket.info.bucket.name;
        let answer = Answer::xml(proto::upload_made(name, asked.key()?, &id));
        Ok(match &customer {
            Some(key) => key.tell_writer(answer),
            None => answer,
        })
    }

    fn part_number(asked: &Asked) -> Result<u32> {
        let number = asked.head.query.get("partNumber").and_then(|n| n.parse().ok());
        number.filter(|n| (1..=PARTS_MAX).contains(n)).ok_or_else(|| {
            Error::new(Code::InvalidArgument, "partNumber is a number from 1 to 10000.")
        })
    }

    fn part_attrs(upload: &UploadAt) -> Attrs {
        let acl = upload.attrs.get("acl").cloned();
        acl.map(|acl| ("acl".to_owned(), acl)).into_iter().collect()
    }

    async fn upload_part(
        &self,
        asked: &Asked,
        bucket: &BucketAt,
        upload: &UploadAt,
        body: Received,
    ) -> Result<Answer> {
        let number = Self::part_number(asked)?;
        let mut reader = self.data(asked, body)?;
        self.gateway.check_quota(bucket, reader.len.unwrap_or(0)).await?;
        let customer = self.object_key(asked, &upload.attrs, PREFIX)?;
        let mut sealing = customer.as_ref().map(|key| Sealing::new(key.cipher()));
        let mut incoming = self.gateway.begin_part(bucket, upload, number).await?;
        let mut share = self.share_of_put(&mut incoming, reader.len);
        let took = async {
            while let Some(bytes) = reader.next().await? {
                let bytes = sealing.as_mut().map_or(bytes.clone(), |s| s.push(&bytes));
                take(&mut incoming, &mut share, &bytes).await?;
            }
            if let Some(sealing) = &mut sealing {
                incoming.push(&sealing.finish()).await?;
            }
            incoming.flush().await?;
            reader.finish()
        };
        let summed = match took.await {
            Ok(summed) => summed,
            Err(error) => {
                incoming.abandon().await;
                return Err(error);
            }
        };
        let mut attrs = Self::part_attrs(upload);
        of_sums(&mut attrs, &summed);
        let etag = attr_text(&attrs["etag"]);
        let sum = summed.sum.as_ref().and_then(sums::of_part);
        self.gateway.end_part(bucket, upload, number, incoming, attrs, sum).await?;
        let mut answer = Answer::new(200).header("ETag", format!("\"{etag}\""));
        if let Some(key) = &customer {
            answer = key.tell(answer);
        }
        Ok(match &summed.sum {
            Some(sum) => answer.header(sum.algorithm.header(), sum.base64()),
            None => answer,
        })
    }

    async fn copy_part(
        &self,
        asked: &Asked,
        bucket: &BucketAt,
        upload: &UploadAt,
    ) -> Result<Answer> {
        let number = Self::part_number(asked)?;
        let (from, object) = self.source(asked).await?;
        let range = asked.head.headers.single("x-amz-copy-source-range")?;
        let (first, len) = match range {
            Some(text) => Range::of_source(text, object.size)?,
            None => (0, object.size),
        };
        let _place = self.place_of_copy(len).await?;
        self.gateway.check_quota(bucket, len).await?;
        let (open, seal) = (
            self.object_key(asked, &object.attrs, SOURCE_PREFIX)?,
            self.object_key(asked, &upload.attrs, PREFIX)?,
        );
        let mut sealing = seal.as_ref().map(|key| Sealing::new(key.cipher()));
        let mut incoming = self.gateway.begin_part(bucket, upload, number).await?;
        let mut source = Opened::new(self, &from, &object, open.as_ref(), (first, len));
        let took = async {
            while let Some(bytes) = source.next().await? {
                let bytes = sealing.as_mut().map_or(bytes.clone(), |s| s.push(&bytes));
                incoming.push(&bytes).await?;
            }
            if let Some(sealing) = &mut sealing {
                incoming.push(&sealing.finish()).await?;
            }
            incoming.flush().await?;
            source.finish()
        };
        let sums = match took.await {
            Ok(sums) => sums,
            Err(error) => {
                incoming.abandon().await;
                return Err(error);
            }
        };
        let etag = uri::to_hex(&sums.md5);
        let mut attrs = Self::part_attrs(upload);
        attrs.insert("etag".into(), etag.clone().into());
        self.gateway.end_part(bucket, upload, number, incoming, attrs, None).await?;
        let now = crate::request::now();
        let answer = Answer::xml(proto::copied(true, &etag, now));
        Ok(match &seal {
            Some(key) => key.tell(answer),
            None => answer,
        })
    }

    async fn complete_upload(
        &self,
        asked: &Asked,
        bucket: &BucketAt,
        key: &str,
        id: &str,
        body: Received,
    ) -> Result<Answer> {
        let wanted = proto::parts(&self.document(asked, body).await?)?;
        let name = &bucket.info.bucket.name;
        let location = format!("/{name}/{}", uri::encode(key.as_bytes(), true));
        let upload = match self.gateway.upload(bucket, key, id).await {
            Ok(upload) => upload,
            Err(error) if error.code == Code::NoSuchUpload => {
                // Completed before, and the answer did not arrive: the object is what the list makes.
                let mut sums = Vec::new();
                for part in &wanted {
                    sums.extend(uri::from_hex(&part.etag).unwrap_or_default());
                }
                let etag = format!("{}-{}", uri::to_hex(&checksum::md5(&sums)), wanted.len());
                let found = self.gateway.object(bucket, key, None, false).await?;
                if !found.is_ok_and(|object| object.text("etag") == etag) {
                    return Err(error);
                }
                let text = proto::upload_completed(&location, name, asked.key()?, &etag, None);
                return Ok(Answer::xml(text));
            }
            Err(error) => return Err(error),
        };
        let instance =
            if bucket.keeps_versions() { self.gateway.new_version() } else { String::new() };
        let raw = RawKey { name: key.to_owned(), instance, ns: String::new() };
        let conditions = Conditions::of(&asked.head.headers, "")?;
        let least = self.settings.part_bytes_min;
        let made = |parts: &[&UploadPart]| sums::of_parts(&asked.head.headers, &upload.info, parts);
        let completion = Completion {
            key: raw.clone(),
            parts: &wanted,
            conditions: &conditions,
            part_min: least,
            made: &made,
        };
        let reserved = self.reserve(bucket, Event::COMPLETE, key, &upload.attrs).await?;
        let completing = async {
            let (etag, attrs) = self.gateway.complete_upload(bucket, &upload, completion).await?;
            let version = self.link(bucket, &raw).await?;
            Ok::<_, Error>((etag, attrs, version))
        };
        let (etag, attrs, version) = match completing.await {
            Ok(done) => done,
            Err(error) => {
                self.gateway.abort_events(reserved).await;
                return Err(error);
            }
        };
        if !reserved.is_empty() {
            let of = Some(raw.instance.as_str()).filter(|instance| !instance.is_empty());
            let made = self.gateway.object(bucket, key, of, false).await.ok();
            let made = made.and_then(|found| found.ok());
            let what = Happened {
                key: key.to_owned(),
                size: made.as_ref().map_or(0, |object| object.size),
                etag: etag.clone(),
                version: raw.instance.clone(),
                at: made.map_or_else(|| self.gateway.now(), |object| object.mtime),
            };
            self.tell(asked, bucket, reserved, &what).await;
        }
        let shown = sums::shown(&attrs, &etag);
        let sum = shown.as_ref().map(|s| (s.algorithm, s.text.as_str(), s.kind));
        let text = proto::upload_completed(&location, name, asked.key()?, &etag, sum);
        Ok(Answer::xml(text).maybe("x-amz-version-id", version))
    }

    async fn list_parts(
        &self,
        asked: &Asked,
        bucket: &BucketAt,
        upload: &UploadAt,
    ) -> Result<Answer> {
        let query = &asked.head.query;
        let number = |name: &str, default: u32| -> Result<u32> {
            let text = query.get(name).filter(|t| !t.is_empty());
            let bad =
                |_| Error::new(Code::InvalidArgument, format!("{name} is a number from 0 on."));
            text.map_or(Ok(default), |t| t.parse().map_err(bad))
        };
        let max = number("max-parts", 1_000)?.min(1_000);
        let after = number("part-number-marker", 0)?;
        let parts = self.gateway.parts(bucket, upload).await?;
        let list =
            upload.attrs.get("acl").and_then(|b| rgw_core::formats::AclPolicy::from_bytes(b).ok());
        let owner = list.map(|l| Owner { id: l.owner.id, display_name: l.owner.display_name });
        let owner = owner.unwrap_or_default();
        let mut w = Writer::document();
        w.open_root("ListPartsResult")
            .text("Bucket", &bucket.info.bucket.name)
            .text("Key", &upload.name)
            .text("UploadId", &upload.id);
        owner.write(&mut w, "Initiator");
        owner.write(&mut w, "Owner");
        let class = upload.attrs.get("storage_class").map(|v| attr_text(v));
        w.text("StorageClass", class.as_deref().unwrap_or("STANDARD"));
        let page: Vec<_> = parts.range(after + 1..).take(max as usize).collect();
        let more = parts.range(after + 1..).count() > page.len();
        w.value("PartNumberMarker", after);
        w.value("NextPartNumberMarker", page.last().map_or(0, |(n, _)| **n));
        w.value("MaxParts", max).value("IsTruncated", more);
        for (number, part) in page {
            w.open("Part")
                .value("PartNumber", number)
                .value("LastModified", time(part.modified))
                .text("ETag", &format!("\"{}\"", part.etag))
                .value("Size", part.accounted_size)
                .close("Part");
        }
        w.close("ListPartsResult");
        Ok(Answer::xml(w.finish()))
    }
}
