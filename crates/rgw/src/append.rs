//! `PUT ?append&position=N`: bytes behind those that an object has.

use rgw_core::append::Added;
use rgw_core::gateway::attr_text;
use rgw_core::meta::BucketAt;
use rgw_core::notify::Happened;
use rgw_proto::body::notification::Event;
use rgw_proto::condition::Conditions;
use rgw_proto::uri::to_hex;
use rgw_proto::{Code, Error, Result};

use crate::acl;
use crate::answer::Answer;
use crate::body::Received;
use crate::objects::{is_readable, kept, placement, take};
use crate::request::Asked;
use crate::server::Server;

/// The header that says where the next bytes go.
pub const NEXT: &str = "x-rgw-next-append-position";

fn encrypted() -> Error {
    Error::new(
        Code::NotImplemented,
        "Encrypted objects are not appended to here: put them whole, or in parts.",
    )
}

impl Server {
    pub(crate) async fn append_object(
        &self,
        asked: &Asked,
        bucket: &BucketAt,
        body: Received,
    ) -> Result<Answer> {
        let (headers, name) = (&asked.head.headers, asked.key()?.as_str());
        let position = asked.head.query.get("position").and_then(|text| text.parse::<u64>().ok());
        let position = position.ok_or_else(|| {
            let text = "position is the object's length: the number of the first byte to append.";
            Error::new(Code::InvalidArgument, text)
        })?;
        let conditions = Conditions::of(headers, "")?;
        let mut attrs = kept(headers)?;
        attrs.insert("acl".into(), acl::encode(&self.new_acl(asked, bucket)?));
        self.lock_of_headers(bucket, headers, &mut attrs)?;
        if self.new_key(asked, bucket, headers, name)?.is_some() {
            return Err(encrypted());
        }
        let to = self.gateway.appending(bucket, name).await?;
        if let Some(base) = &to.base {
            is_readable(base)?;
            if base.attrs.keys().any(|name| name.starts_with("crypt.")) {
                return Err(encrypted());
            }
        }
        if position != to.size() {
            asked.came.noted.borrow_mut().next_append = Some(to.size());
            return Err(Code::PositionNotEqualToLength.into());
        }
        let mut reader = self.data(asked, body)?;
        self.gateway.check_quota(bucket, reader.len.unwrap_or(0)).await?;
        let event = Event::PUT;
        let reserved = self.reserve(bucket, event, name, &attrs).await?;
        let appended = async {
            let class = attrs.get("storage_class").map(|v| attr_text(v)).unwrap_or_default();
            let mut incoming = self.gateway.begin_append(bucket, &to, &class).await?;
            let mut share = self.share_of_put(&mut incoming, reader.len);
            let took = async {
                while let Some(bytes) = reader.next().await? {
                    take(&mut incoming, &mut share, &bytes).await?;
                }
                if incoming.size() > 0 {
                    incoming.flush().await?;
                }
                let sums = reader.finish()?;
                // A body whose length was not told is judged by now.
                self.gateway.check_quota(bucket, sums.len).await?;
                Ok(sums)
            };
            let sums = match took.await {
                Ok(sums) => sums,
                Err(error) => {
                    incoming.abandon().await;
                    return Err(error);
                }
            };
            let mtime = types::UTime::from_nanos(rt::now().wall_ns);
            let (md5, placement) = (sums.md5, placement(bucket, &class));
            let conditions = &conditions;
            let added = Added { attrs, md5, mtime, conditions, placement: &placement };
            let (etag, size) = self.gateway.append(bucket, to, incoming, added).await?;
            Ok((etag, size, mtime, md5))
        };
        let (etag, size, at, md5) = match appended.await {
            Ok(done) => done,
            Err(error) => {
                self.gateway.abort_events(reserved).await;
                return Err(error);
            }
        };
        let what = Happened { key: name.to_owned(), size, etag, version: String::new(), at };
        self.tell(asked, bucket, reserved, &what).await;
        // The ETag of what came, as stock answers it; the object's own is another one.
        let etag = format!("\"{}\"", to_hex(&md5));
        Ok(Answer::new(200).header("ETag", etag).header(NEXT, size.to_string()))
    }
}
