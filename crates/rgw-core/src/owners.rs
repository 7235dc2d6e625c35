//! Giving a bucket to another owner, and taking it from the list of its owner's.
//!
//! Source: `RGWBucket::link`, `RGWBucketAdminOp::unlink`, `RGWBucketCtl::do_link_bucket`.

use cls::client::user;
use rgw_proto::{Code, Error, Result};
use types::{Denc, Reader};

use crate::formats::{AclGrant, AclPolicy, EntryPoint, GranteeType, Owner};
use crate::gateway::{Gateway, decoded, failed};
use crate::meta::{BucketAt, no_bucket};
use crate::objects::{Objects, Vector};

/// READ, WRITE, READ_ACP, WRITE_ACP.
const FULL_CONTROL: i32 = 15;

/// A list with another owner: what it granted the one before is the new one's.
fn hand_over(acl: &mut AclPolicy, id: &str, display_name: &str) {
    let old = std::mem::replace(&mut acl.owner.id, id.to_owned());
    acl.owner.display_name = display_name.to_owned();
    acl.list.users.remove(&old);
    acl.list.grants.retain(|(who, grant)| grant.kind != GranteeType::User || *who != old);
    acl.list.users.insert(id.to_owned(), FULL_CONTROL);
    acl.list.grants.retain(|(who, grant)| grant.kind != GranteeType::User || who != id);
    let grant = AclGrant {
        kind: GranteeType::User,
        id: id.to_owned(),
        email: String::new(),
        permission: FULL_CONTROL,
        name: display_name.to_owned(),
        group: 0,
        referer: String::new(),
    };
    acl.list.grants.push((id.to_owned(), grant));
    acl.list.grants.sort_by(|a, b| a.0.cmp(&b.0));
}

impl<O: Objects> Gateway<O> {
    /// Gives a bucket to an owner of the same tenant, who has it listed from then on.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`] for an owner of another tenant; [`Code::ConcurrentModification`]; of RADOS.
    pub async fn give_bucket(
        &self,
        bucket: &BucketAt,
        owner: &Owner,
        display_name: &str,
    ) -> Result<()> {
        let tenant = match owner {
            Owner::User(user) => Some(user.tenant.as_str()),
            Owner::Account(_) => None,
        };
        if tenant.is_some_and(|tenant| tenant != bucket.info.bucket.tenant) {
            let text = "The bucket is another tenant's: radosgw-admin bucket link renames it.";
            return Err(Error::new(Code::InvalidArgument, text));
        }
        self.unlist_bucket(bucket, &bucket.info.owner).await?;
        let id = owner.text();
        let change = |now: &mut BucketAt| -> Result<()> {
            now.info.owner = owner.clone();
            if let Some(bytes) = now.attrs.get("acl") {
                let read = AclPolicy::decode(&mut Reader::shared(bytes));
                let mut acl =
                    read.map_err(|_| crate::gateway::garbled("The bucket's list of access"))?;
                hand_over(&mut acl, &id, display_name);
                now.attrs.insert("acl".into(), acl.to_bytes());
            }
            Ok(())
        };
        self.change_bucket(&bucket.info.bucket, change).await?;
        self.link(owner, &bucket.info.bucket, bucket.info.created).await?;
        self.set_linked(bucket, owner, true).await
    }

    /// Takes a bucket from the list of an owner's: it stays, and stays the owner's.
    ///
    /// # Errors
    /// Of RADOS.
    pub async fn unlink_bucket(&self, bucket: &BucketAt, owner: &Owner) -> Result<()> {
        self.unlist_bucket(bucket, owner).await?;
        self.set_linked(bucket, &bucket.info.owner, false).await
    }

    async fn unlist_bucket(&self, bucket: &BucketAt, owner: &Owner) -> Result<()> {
        let op = user::RemoveOp { bucket: crate::meta::user_bucket(&bucket.info.bucket) };
        let vector = Vector::write().call("user", "remove_bucket", op.to_bytes());
        match self.objects.operate(&self.buckets_place(owner), vector).await {
            Ok(_) | Err(types::Errno::NOENT) => Ok(()),
            Err(errno) => Err(failed("taking the bucket from its owner's")(errno)),
        }
    }

    async fn set_linked(&self, bucket: &BucketAt, owner: &Owner, is_linked: bool) -> Result<()> {
        let at = self.entry_place(&bucket.info.bucket.tenant, &bucket.info.bucket.name);
        let raw = self.read_meta(&at).await.map_err(no_bucket)?;
        let mut entry: EntryPoint = decoded(&raw.data, "The bucket's entry point")?;
        (entry.owner, entry.is_linked) = (owner.clone(), is_linked);
        let written = self.write_meta(&at, entry.to_bytes(), &raw.attrs, Some(&raw.version)).await;
        written.map_err(failed("writing the bucket's entry point"))
    }
}
