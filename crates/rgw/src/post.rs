//! Uploads by forms: fields first, then the file, and a signature over the policy that bounds both.

use rgw_core::meta::BucketAt;
use rgw_proto::authorize::Sender;
use rgw_proto::body::config;
use rgw_proto::body::notification::Event;
use rgw_proto::checksum::{self, Expected, Sums};
use rgw_proto::condition::Conditions;
use rgw_proto::form::{Decoder, Fields, Policy};
use rgw_proto::name::Key;
use rgw_proto::operation::Operation;
use rgw_proto::request::{Headers, Target};
use rgw_proto::sig::Claim;
use rgw_proto::sig::form::FormClaim;
use rgw_proto::xml::Writer;
use rgw_proto::{Code, Error, Result, uri};
use types::Bytes;

use crate::acl;
use crate::answer::Answer;
use crate::body::{Reader, Received};
use crate::objects::{NewObject, kept, tag_bytes};
use crate::request::{Asked, account_of, check_mask, identity_of, now, secret_of};
use crate::server::Server;
use crate::source::Source as ByteSource;

/// The file of a form, on its way in.
struct File {
    reader: Reader,
    decoder: Decoder,
    /// Bytes that came with the last field.
    first: Option<Bytes>,
    sums: checksum::Body,
    policy: Option<Policy>,
    taken: u64,
}

impl ByteSource for File {
    fn len(&self) -> Option<u64> {
        None
    }

    async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            let bytes = match self.first.take() {
                Some(first) => first,
                None => {
                    let Some(raw) = self.reader.next().await? else { return Ok(None) };
                    let mut out = Vec::with_capacity(raw.len());
                    self.decoder.push(&raw, &mut out)?;
                    out.into()
                }
            };
            if bytes.is_empty() {
                continue;
            }
            self.taken += bytes.len() as u64;
            if self.policy.as_ref().is_some_and(|policy| self.taken > policy.length().1) {
                return Err(Code::EntityTooLarge.into());
            }
            self.sums.update(&bytes);
            return Ok(Some(bytes));
        }
    }

    fn finish(self) -> Result<Sums> {
        self.reader.finish()?;
        self.decoder.finish()?;
        if let Some(policy) = &self.policy {
            policy.check_length(self.taken)?;
        }
        self.sums.finish(&[])
    }
}

/// Fields that stand for headers of a PUT.
fn headers_of(fields: &Fields) -> Result<Headers> {
    const PLAIN: [&str; 6] = [
        "cache-control",
        "content-disposition",
        "content-encoding",
        "content-language",
        "content-type",
        "expires",
    ];
    let signs = ["x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-signature"];
    let kept = fields.iter().filter_map(|(name, value)| match name {
        "acl" => Some(("x-amz-acl", value)),
        name if PLAIN.contains(&name) => Some((name, value)),
        name if name.starts_with("x-amz-") && !signs.contains(&name) => Some((name, value)),
        _ => None,
    });
    Headers::new(kept)
}

impl Server {
    pub(crate) async fn post_object(
        &self,
        asked: &Asked,
        bucket: &BucketAt,
        body: Received,
    ) -> Result<Answer> {
        if asked.user.is_some() {
            let text = "A form brings its signature in fields: leave out Authorization.";
            return Err(Error::new(Code::InvalidArgument, text));
        }
        let mut decoder =
            Decoder::new(asked.head.headers.single("content-type")?.unwrap_or_default())?;
        let mut reader = self.data(asked, body)?;
        let mut first = Vec::new();
        while !decoder.has_fields() {
            let Some(raw) = reader.next().await? else {
                return Err(Error::new(Code::InvalidRequest, "The form ends before its file."));
            };
            decoder.push(&raw, &mut first)?;
        }
        let fields = decoder.fields().clone();
        let key = Key::new(fields.key(decoder.file().0)?.into_bytes())?;
        let (sender, policy) = self.of_form(asked, bucket, &fields, &key).await?;
        sender.check(Some(bucket), Some((key.as_str(), None)), None)?;
        let headers = headers_of(&fields)?;
        let mut attrs = kept(&headers)?;
        if let Some(xml) = fields.get("tagging") {
            let tags = config::tags(xml.as_bytes(), config::OBJECT_TAGS_MAX)?;
            attrs.insert("x-amz-tagging".into(), tag_bytes(tags));
        }
        let list = self.new_acl_of(&sender, bucket, &headers)?;
        attrs.insert("acl".into(), acl::encode(&list));
        self.lock_of_headers(bucket, &headers, &mut attrs)?;
        let sums = checksum::Body::new(Expected::of(&headers)?);
        let first = Some(Bytes::from(first));
        let file = File { reader, decoder, first, sums, policy, taken: 0 };
        let none = Conditions::default();
        let customer = self.new_key(asked, bucket, &headers, key.as_str())?;
        let name = key.as_str();
        let new = NewObject { name, attrs, conditions: &none, key: customer, is_copy: false };
        let cause = (&sender, Event::POST);
        let (stored, etag) = self.store(cause, bucket, new, file).await?;
        self.form_answer(bucket, &fields, &key, &etag, stored)
    }

    /// Who sent a form, and the policy that it keeps to.
    async fn of_form(
        &self,
        asked: &Asked,
        bucket: &BucketAt,
        fields: &Fields,
        key: &Key,
    ) -> Result<(Asked, Option<Policy>)> {
        let name = bucket.info.bucket.name.as_str();
        let mut out = asked.clone();
        if let Some(named) = asked.target.bucket() {
            out.target = Target::Object(named.clone(), key.clone());
        }
        let Some(claim) = FormClaim::of(fields)? else {
            out.sender = Sender::anonymous(&Claim::Anonymous, Operation::PostObject)?;
            let policy = fields.get("policy").map(Policy::parse).transpose()?;
            if let Some(policy) = &policy {
                policy.check(fields, name, key.as_str(), now())?;
            }
            return Ok((out, policy));
        };
        let (user, attrs) = self.gateway.user_by_key(&claim.access_key).await?;
        let proof = claim.verify(secret_of(&user, &claim.access_key)?)?;
        if user.limits.is_suspended {
            return Err(Code::UserSuspended.into());
        }
        let policy = Policy::parse(&claim.policy)?;
        policy.check(fields, name, key.as_str(), now())?;
        check_mask(&user, Operation::PostObject)?;
        out.sender = Sender::of_form(&proof, identity_of(&self.gateway, &user, &attrs).await?);
        out.account = account_of(&self.gateway, &user).await?;
        out.user = Some(user);
        Ok((out, Some(policy)))
    }

    fn form_answer(
        &self,
        bucket: &BucketAt,
        fields: &Fields,
        key: &Key,
        etag: &str,
        stored: Answer,
    ) -> Result<Answer> {
        let name = &bucket.info.bucket.name;
        let quoted = format!("\"{etag}\"");
        let location = format!("/{name}/{}", uri::encode(key.as_str().as_bytes(), true));
        let redirect = fields.get("success_action_redirect").or_else(|| fields.get("redirect"));
        if let Some(url) = redirect.filter(|url| is_url(url)) {
            let code = |text: &str| uri::encode(text.as_bytes(), false);
            let join = if url.contains('?') { '&' } else { '?' };
            let query =
                format!("bucket={}&key={}&etag={}", code(name), code(key.as_str()), code(&quoted));
            return Ok(stored.status(303).header("Location", format!("{url}{join}{query}")));
        }
        Ok(match fields.get("success_action_status") {
            Some("200") => stored.status(200),
            Some("201") => {
                let mut w = Writer::document();
                w.open("PostResponse").text("Location", &location).text("Bucket", name);
                w.text("Key", key.as_str()).text("ETag", &quoted).close("PostResponse");
                let stored = stored.status(201).header("Content-Type", "application/xml");
                stored.header("Location", location).bytes(w.finish().into())
            }
            _ => stored.status(204),
        })
    }
}

/// Whether an answer may send a browser there.
fn is_url(url: &str) -> bool {
    let is_web = url.starts_with("http://") || url.starts_with("https://");
    is_web && url.bytes().all(|b| b.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browsers_are_sent_to_urls_only() {
        assert!(is_url("https://a.example/x?y=1"));
        for bad in ["javascript:alert(1)", "/x", "http://a\r\nSet-Cookie: b", "http://a b", ""] {
            assert!(!is_url(bad), "{bad:?}");
        }
    }
}
