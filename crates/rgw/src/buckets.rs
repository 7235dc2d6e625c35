//! Operations on buckets.

use rgw_core::formats::{Owner as BucketOwner, UserInfo};
use rgw_core::list;
use rgw_core::meta::{BucketAt, NewBucket};
use rgw_proto::acl::{Acl, Owner};
use rgw_proto::body::{config, listing};
use rgw_proto::{Code, Error, Result};

use crate::acl;
use crate::answer::Answer;
use crate::request::Asked;
use crate::server::Server;

/// Entries of one answer: `rgw_max_listing_results`.
pub const LISTED_MAX: u32 = 5_000;
/// Uploads that one page of their removal reads.
const UPLOADS_PAGE: usize = 1_000;

/// Bytes that an entry of a list may take while it becomes XML.
const ENTRY_BYTES: u64 = 4 << 10;

/// Seconds of a time.
pub fn time(at: types::UTime) -> rgw_proto::time::Time {
    rgw_proto::time::Time(i64::from(at.sec))
}

impl Server {
    pub(crate) async fn list_buckets(&self, asked: &Asked) -> Result<Answer> {
        let Some(user) = &asked.user else {
            return Ok(Answer::xml(listing::buckets(&asked.owner(), &[])));
        };
        asked.check(None, None, None)?;
        let all = self.gateway.buckets_of(&owner_of(user)).await?;
        let all: Vec<_> = all.into_iter().map(|(name, at)| (name, time(at))).collect();
        // The user, also where the buckets are its account's.
        let who = Owner { id: user.id.text(), display_name: user.display_name.clone() };
        Ok(Answer::xml(listing::buckets(&who, &all)))
    }

    pub(crate) async fn create_bucket(&self, asked: &Asked, body: Vec<u8>) -> Result<Answer> {
        let user = asked.user()?;
        asked.check(None, None, None)?;
        let name = asked.bucket_name()?;
        name.check_new(false)?;
        if name.tenant != user.id.tenant {
            let text = "A bucket is made in the tenant of its user.";
            return Err(Error::new(Code::AccessDenied, text));
        }
        let location = config::location(&body)?;
        let (group, placement) = location.split_once(':').unwrap_or((&location, ""));
        let here = &self.gateway.group;
        if !group.is_empty() && group != here.api_name && group != here.name {
            return Err(Code::IllegalLocationConstraintException.into());
        }
        let owner = asked.owner();
        let headers = &asked.head.headers;
        let list = Acl::of_headers(headers, &owner, &owner.id)?;
        let list = list.unwrap_or_else(|| Acl::private(owner));
        let is_locked = headers.get("x-amz-bucket-object-lock-enabled");
        let new = NewBucket {
            tenant: name.tenant.clone(),
            name: name.name.clone(),
            owner: owner_of(user),
            placement: placement.to_owned(),
            is_locked: is_locked.is_some_and(|v| v.eq_ignore_ascii_case("true")),
            attrs: [("acl".to_owned(), acl::encode(&list))].into(),
        };
        let most = asked.account.as_ref().map_or(user.limits.buckets_max, |a| a.buckets_max);
        self.gateway.make_bucket(new, most).await?;
        Ok(Answer::new(200).header("Location", format!("/{}", name.name)))
    }

    /// That a bucket is there; with `read-stats=true` what it holds, in stock's headers.
    pub(crate) async fn head_bucket(&self, asked: &Asked, bucket: &BucketAt) -> Result<Answer> {
        if asked.head.query.get("read-stats") != Some("true") {
            return Ok(Answer::new(200));
        }
        let usage = self.gateway.usage(bucket).await?;
        Ok(Answer::new(200)
            .header("X-RGW-Object-Count", usage.objects.to_string())
            .header("X-RGW-Bytes-Used", usage.bytes.to_string()))
    }

    pub(crate) async fn delete_bucket(&self, bucket: &BucketAt) -> Result<Answer> {
        if !self.gateway.is_empty(bucket).await? {
            return Err(Code::BucketNotEmpty.into());
        }
        loop {
            let query = list::Query { max: UPLOADS_PAGE, ..list::Query::default() };
            let page = self.gateway.uploads(bucket, &query).await?;
            for entry in &page.entries {
                let (name, id) = (&entry.key.name, &entry.key.instance);
                match self.gateway.upload(bucket, name, id).await {
                    Ok(upload) => self.gateway.abort_upload(bucket, &upload).await?,
                    Err(error) if error.code == Code::NoSuchUpload => {}
                    Err(error) => return Err(error),
                }
            }
            if page.next.is_none() {
                break;
            }
        }
        self.gateway.remove_bucket(bucket).await?;
        self.gateway.forget_topics(bucket).await?;
        Ok(Answer::new(204))
    }

    pub(crate) async fn list_objects(&self, asked: &Asked, bucket: &BucketAt) -> Result<Answer> {
        let window = listing::Window::of(&asked.head.query, "max-keys", LISTED_MAX)?;
        let share = self.needed.need(u64::from(window.entries_max) * ENTRY_BYTES)?;
        let start = listing::Start::of(&asked.head.query)?;
        let query = list::Query {
            prefix: window.prefix.clone(),
            delimiter: window.delimiter.clone(),
            after: (start.after().to_owned(), String::new()),
            max: window.entries_max as usize,
            ..list::Query::default()
        };
        let page = page(self.gateway.list(bucket, &query).await?, false);
        let name = &bucket.info.bucket.name;
        Ok(Answer::xml(listing::objects(name, &window, &start, &page)).held_by(share))
    }

    pub(crate) async fn list_versions(&self, asked: &Asked, bucket: &BucketAt) -> Result<Answer> {
        let window = listing::Window::of(&asked.head.query, "max-keys", LISTED_MAX)?;
        let share = self.needed.need(u64::from(window.entries_max) * ENTRY_BYTES)?;
        let text = |name: &str| asked.head.query.get(name).unwrap_or_default().to_owned();
        let from = listing::Marker { key: text("key-marker"), id: text("version-id-marker") };
        let query = list::Query {
            prefix: window.prefix.clone(),
            delimiter: window.delimiter.clone(),
            after: (from.key.clone(), from.id.clone()),
            max: window.entries_max as usize,
            versions: true,
            ns: "",
        };
        let page = page(self.gateway.list(bucket, &query).await?, true);
        let name = &bucket.info.bucket.name;
        Ok(Answer::xml(listing::versions(name, &window, &from, &page)).held_by(share))
    }

    pub(crate) async fn list_uploads(&self, asked: &Asked, bucket: &BucketAt) -> Result<Answer> {
        let window = listing::Window::of(&asked.head.query, "max-uploads", 1_000)?;
        let share = self.needed.need(u64::from(window.entries_max) * ENTRY_BYTES)?;
        let text = |name: &str| asked.head.query.get(name).unwrap_or_default().to_owned();
        let from = listing::Marker { key: text("key-marker"), id: text("upload-id-marker") };
        let query = list::Query {
            prefix: window.prefix.clone(),
            delimiter: window.delimiter.clone(),
            after: (from.key.clone(), from.id.clone()),
            max: window.entries_max as usize,
            ..list::Query::default()
        };
        let page = self.gateway.uploads(bucket, &query).await?;
        let all = page.entries.into_iter().map(|e| listing::Upload {
            key: e.key.name,
            id: e.key.instance,
            owner: Owner { id: e.owner.0, display_name: e.owner.1 },
            storage_class: class(e.storage_class),
            begun: time(e.mtime),
        });
        let all: Vec<_> = all.collect();
        let next = page.next.map(|(key, id)| listing::Marker { key, id });
        let name = &bucket.info.bucket.name;
        let text = listing::uploads(name, &window, &from, &all, &page.prefixes, next.as_ref());
        Ok(Answer::xml(text).held_by(share))
    }
}

/// Who owns what a user makes: the account, where the user is in one.
pub(crate) fn owner_of(user: &UserInfo) -> BucketOwner {
    match user.account_id.as_str() {
        "" => BucketOwner::User(user.id.clone()),
        id => BucketOwner::Account(id.to_owned()),
    }
}

fn class(name: String) -> String {
    if name.is_empty() { "STANDARD".into() } else { name }
}

fn page(page: list::Page, versions: bool) -> listing::Page {
    let entries = page.entries.into_iter().map(|e| listing::Entry {
        key: e.key.name,
        modified: time(e.mtime),
        etag: e.etag,
        size: e.size,
        storage_class: class(e.storage_class),
        owner: Owner { id: e.owner.0, display_name: e.owner.1 },
        version: versions.then_some(listing::Version {
            id: e.key.instance,
            is_latest: e.is_latest,
            is_marker: e.is_marker,
        }),
    });
    let next = page.next.map(|(key, id)| listing::Marker { key, id });
    listing::Page { entries: entries.collect(), prefixes: page.prefixes, next }
}
