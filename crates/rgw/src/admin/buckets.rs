//! Buckets: what they hold, whose they are, their quotas; and their removal with all that is in them.

use std::rc::Rc;

use rgw_core::formats::{AclPolicy, Owner};
use rgw_core::list;
use rgw_core::meta::BucketAt;
use rgw_core::names::RawKey;
use rgw_core::object::ObjectAt;
use rgw_proto::{Code, Error, Result};
use serde_json::Value;
use types::{Denc, Reader};

use super::{Asked, done, said, user_id};
use crate::answer::Answer;
use crate::server::Server;

/// Versions of a page of a removal.
const PAGE: usize = 1_000;

impl Asked {
    /// Tenant and name of the bucket that is named: `[TENANT/]BUCKET`.
    fn bucket(&self) -> Result<(String, String)> {
        let text = self.need("bucket")?;
        let (tenant, name) = text.split_once('/').unwrap_or(("", text));
        let uid = user_id(self.text("uid"));
        let tenant = if tenant.is_empty() { uid.tenant.as_str() } else { tenant };
        Ok((tenant.to_owned(), name.to_owned()))
    }
}

impl Server {
    async fn named_bucket(&self, asked: &Asked, absent: Code) -> Result<BucketAt> {
        let (tenant, name) = asked.bucket()?;
        match self.gateway.bucket_now(&tenant, &name).await {
            Err(error) if error.code == Code::NoSuchBucket => Err(absent.into()),
            other => other,
        }
    }

    async fn bucket_stats(&self, bucket: &BucketAt) -> Result<Value> {
        let heads = self.gateway.index_heads(bucket).await?;
        let written = self.gateway.written_at(&bucket.info.bucket, false).await?;
        Ok(super::json::bucket(bucket, &heads, written))
    }

    pub(super) async fn bucket_info(&self, asked: &Asked) -> Result<Answer> {
        if !asked.text("bucket").is_empty() {
            let bucket = self.named_bucket(asked, Code::NoSuchBucket).await?;
            return Ok(said(&self.bucket_stats(&bucket).await?));
        }
        let with_stats = asked.flag("stats")?.unwrap_or_default();
        let uid = asked.text("uid");
        let mut names: Vec<(String, String)> = Vec::new();
        if uid.is_empty() {
            for key in self.section_keys("bucket").await? {
                let (tenant, name) = key.split_once('/').unwrap_or(("", &key));
                names.push((tenant.to_owned(), name.to_owned()));
            }
        } else {
            let user = self.gateway.user(uid).await?;
            let user = user.ok_or_else(|| Error::from(Code::NoSuchUser))?;
            let owner = match user.account_id.as_str() {
                "" => Owner::User(user.id.clone()),
                id => Owner::Account(id.to_owned()),
            };
            let all = self.gateway.buckets_of(&owner).await?;
            names.extend(all.into_iter().map(|(name, _)| (user.id.tenant.clone(), name)));
        }
        let whole = |tenant: &str, name: &str| match tenant {
            "" => name.to_owned(),
            tenant => format!("{tenant}/{name}"),
        };
        if !with_stats {
            let all: Vec<Value> = match uid {
                "" => names.iter().map(|(tenant, name)| whole(tenant, name).into()).collect(),
                _ => names.into_iter().map(|(_, name)| name.into()).collect(),
            };
            return Ok(said(&all.into()));
        }
        // As long as the answer is: a bucket's takes a kilobyte, and more with many shards.
        let _held = self.needed.need(names.len() as u64 * 4_096)?;
        let mut all = Vec::with_capacity(names.len());
        for (tenant, name) in names {
            match self.gateway.bucket(&tenant, &name).await {
                Ok(bucket) => all.push(self.bucket_stats(&bucket).await?),
                Err(error) if error.code == Code::NoSuchBucket => {}
                Err(error) => return Err(error),
            }
        }
        Ok(said(&all.into()))
    }

    pub(super) async fn bucket_policy(&self, asked: &Asked) -> Result<Answer> {
        let bucket = self.named_bucket(asked, Code::NoSuchKey).await?;
        let attrs = match asked.text("object") {
            "" => bucket.attrs.clone(),
            name => self.any_object(&bucket, name).await?.attrs,
        };
        let bytes = attrs.get("acl").ok_or_else(|| Error::from(Code::NoSuchKey))?;
        let acl = AclPolicy::decode(&mut Reader::shared(bytes));
        let acl = acl.map_err(|_| Error::new(Code::InternalError, "The list cannot be read."))?;
        Ok(said(&super::json::policy(&acl)))
    }

    pub(super) async fn bucket_link(&self, asked: &Asked) -> Result<Answer> {
        let bucket = self.named_bucket(asked, Code::NoSuchKey).await?;
        match asked.text("bucket-id") {
            "" => {}
            id if id == bucket.info.bucket.id => {}
            _ => {
                let text = "The bucket of this name has another id.";
                return Err(Error::new(Code::InvalidArgument, text));
            }
        }
        if !asked.text("new-bucket-name").is_empty() {
            let text = "Renaming a bucket is not built here: radosgw-admin bucket link does it.";
            return Err(Error::new(Code::NotImplemented, text));
        }
        let (owner, name) = match asked.text("account-id") {
            "" => {
                let user = self.gateway.user(&asked.uid()?.text()).await?;
                let user = user.ok_or_else(|| Error::new(Code::NoSuchKey, "No such user."))?;
                if user.account_id.is_empty() {
                    (Owner::User(user.id), user.display_name)
                } else {
                    let account = self.gateway.account(&user.account_id).await?;
                    (Owner::Account(account.id), account.name)
                }
            }
            id => {
                let account = self.gateway.account_now(id).await?;
                let account =
                    account.ok_or_else(|| Error::new(Code::NoSuchKey, "No such account."))?;
                (Owner::Account(account.id), account.name)
            }
        };
        self.gateway.give_bucket(&bucket, &owner, &name).await?;
        Ok(done())
    }

    pub(super) async fn bucket_unlink(&self, asked: &Asked) -> Result<Answer> {
        let bucket = self.named_bucket(asked, Code::NoSuchKey).await?;
        let owner = match asked.text("account-id") {
            "" => Owner::User(asked.uid()?),
            id => Owner::Account(id.to_owned()),
        };
        self.gateway.unlink_bucket(&bucket, &owner).await?;
        Ok(done())
    }

    pub(super) async fn bucket_remove(self: &Rc<Self>, asked: &Asked) -> Result<Answer> {
        let bucket = self.named_bucket(asked, Code::NoSuchBucket).await?;
        if asked.flag("purge-objects")?.unwrap_or_default() {
            self.purge(&bucket).await?;
        }
        self.delete_bucket(&bucket).await?;
        Ok(done())
    }

    /// Removes all versions of all objects of a bucket, whatever locks them: who may call this, administers.
    pub(super) async fn purge(&self, bucket: &BucketAt) -> Result<()> {
        loop {
            let query = list::Query { max: PAGE, versions: true, ..list::Query::default() };
            let page = self.gateway.list(bucket, &query).await?;
            if page.entries.is_empty() {
                return Ok(());
            }
            for entry in page.entries {
                let (name, id) = (&entry.key.name, entry.key.instance.as_str());
                if bucket.is_versioned() {
                    let id = if id == "null" { "" } else { id };
                    self.gateway.unlink_version(bucket, name, id).await?;
                } else {
                    let key = RawKey { name: name.clone(), ..RawKey::default() };
                    self.gateway.remove_exact(bucket, &key, |_| Ok(())).await?;
                }
            }
        }
    }

    pub(super) async fn set_bucket_quota(
        &self,
        asked: &Asked,
        document: Option<Value>,
    ) -> Result<Answer> {
        asked.need("uid")?;
        let bucket = self.named_bucket(asked, Code::NoSuchKey).await?;
        let quota = asked.quota(document.as_ref(), bucket.info.quota)?;
        let change = |now: &mut BucketAt| -> Result<()> {
            now.info.quota = quota;
            Ok(())
        };
        self.gateway.change_bucket(&bucket.info.bucket, change).await?;
        Ok(done())
    }

    async fn any_object(&self, bucket: &BucketAt, name: &str) -> Result<ObjectAt> {
        let found = self.gateway.object(bucket, name, None, false).await?;
        found.map_err(|_| Code::NoSuchKey.into())
    }

    pub(super) async fn object_remove(&self, asked: &Asked) -> Result<Answer> {
        let bucket = self.named_bucket(asked, Code::NoSuchKey).await?;
        let name = asked.need("object")?;
        let found = self.any_object(&bucket, name).await?;
        if bucket.is_versioned() {
            self.gateway.unlink_version(&bucket, name, &found.key.instance).await?;
        } else {
            self.gateway.remove_exact(&bucket, &found.key, |_| Ok(())).await?;
        }
        Ok(done())
    }
}
