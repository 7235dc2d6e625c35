//! How much buckets hold, and what quotas allow.

pub use cls::client::rgw::{Header, Stats};
use cls::client::rgw::{ListOp, ListRet};
use rgw_proto::{Code, Error, Result};
use types::Denc;

use crate::formats::{Owner, Quota};
use crate::gateway::{Gateway, decoded, failed};
use crate::meta::BucketAt;
use crate::objects::{Objects, Vector};
use crate::together;

/// What each object takes at least, where quotas count rounded bytes.
const ROUND: u64 = 4_096;

/// What a bucket holds, as its index counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Objects, versions, and uploads under way.
    pub objects: u64,
    /// Bytes of all of them.
    pub bytes: u64,
    /// The same, each object up to the next 4,096.
    pub rounded: u64,
}

impl Usage {
    /// Adds what another bucket holds.
    pub fn add(&mut self, other: Self) {
        self.objects = self.objects.saturating_add(other.objects);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.rounded = self.rounded.saturating_add(other.rounded);
    }

    /// Whether one object of `bytes` more keeps a quota.
    ///
    /// # Errors
    /// [`Code::QuotaExceeded`], with what is used up.
    pub fn check(&self, quota: &Quota, whose: &str, bytes: u64) -> Result<()> {
        if !quota.is_enabled {
            return Ok(());
        }
        if let Ok(most) = u64::try_from(quota.objects_max)
            && self.objects >= most
        {
            let text = format!("The quota of {whose} is {most} objects, which are there.");
            return Err(Error::new(Code::QuotaExceeded, text));
        }
        let Ok(most) = u64::try_from(quota.bytes_max) else { return Ok(()) };
        let (used, more) = match quota.on_raw {
            true => (self.bytes, bytes),
            false => (self.rounded, bytes.div_ceil(ROUND).saturating_mul(ROUND)),
        };
        if used.saturating_add(more) > most {
            let text = format!("The quota of {whose} is {most} bytes, {used} are used.");
            return Err(Error::new(Code::QuotaExceeded, text));
        }
        Ok(())
    }
}

impl<O: Objects> Gateway<O> {
    /// What a bucket holds: one read of each shard.
    ///
    /// # Errors
    /// Of RADOS, of any shard.
    pub async fn usage(&self, bucket: &BucketAt) -> Result<Usage> {
        let mut out = Usage::default();
        for head in self.index_heads(bucket).await? {
            for stats in head.stats.values() {
                let (objects, bytes) = (stats.entries, stats.size);
                out.add(Usage { objects, bytes, rounded: stats.rounded });
            }
        }
        Ok(out)
    }

    /// The heads of a bucket's index, by shard: one read of each. None of buckets without an index.
    ///
    /// # Errors
    /// Of RADOS, of any shard.
    pub async fn index_heads(&self, bucket: &BucketAt) -> Result<Vec<Header>> {
        let error = match self.heads_in(bucket).await {
            Err(error) => error,
            heads => return heads,
        };
        // What is known of the bucket may be older than its resharding.
        let now = self.bucket_instance(&bucket.info.bucket).await?;
        match now.info.layout == bucket.info.layout {
            true => Err(error),
            false => self.heads_in(&now).await,
        }
    }

    async fn heads_in(&self, bucket: &BucketAt) -> Result<Vec<Header>> {
        let mut out = Vec::new();
        if bucket.info.layout.current.is_indexless {
            return Ok(out);
        }
        let all = bucket.index_places();
        let input = ListOp { max: 0, ..ListOp::default() }.to_bytes();
        let reads = all.iter().map(|at| {
            let vector = Vector::read().call("rgw", "bucket_list", input.clone());
            self.objects.operate(at, vector)
        });
        for answers in together::all(reads).await {
            let data = answers.and_then(|a| a.data(0));
            let data = data.map_err(failed("reading a shard of the bucket's index"))?;
            let page: ListRet = decoded(&data, "The head of the bucket's index")?;
            out.push(page.dir.header);
        }
        Ok(out)
    }

    /// The quotas that a bucket's owner gives: of each bucket, and of all.
    async fn quotas_of(&self, owner: &Owner) -> Result<(Quota, Quota)> {
        Ok(match owner {
            Owner::User(id) => {
                let limits = self.user(&id.text()).await?.unwrap_or_default().limits;
                (limits.bucket_quota, limits.user_quota)
            }
            Owner::Account(id) => {
                let account = self.account(id).await?;
                (account.bucket_quota, account.quota)
            }
        })
    }

    /// Whether the quotas of a bucket and of its owner allow one object of `bytes` more. Costs a look at the owner where
    /// none is enabled; an owner's quota costs a read of each shard of each of the owner's buckets.
    ///
    /// # Errors
    /// [`Code::QuotaExceeded`]; of RADOS.
    pub async fn check_quota(&self, bucket: &BucketAt, bytes: u64) -> Result<()> {
        let owner = &bucket.info.owner;
        let (of_each, of_all) = self.quotas_of(owner).await?;
        let of_bucket = match bucket.info.quota.is_enabled {
            true => bucket.info.quota,
            false => of_each,
        };
        if of_bucket.is_enabled {
            self.usage(bucket).await?.check(&of_bucket, "the bucket", bytes)?;
        }
        if !of_all.is_enabled {
            return Ok(());
        }
        let mut used = Usage::default();
        for (name, _) in self.buckets_of(owner).await? {
            match self.bucket(&bucket.info.bucket.tenant, &name).await {
                Ok(bucket) if bucket.info.owner == *owner => {
                    used.add(self.usage(&bucket).await?);
                }
                Ok(_) => {}
                Err(error) if error.code == Code::NoSuchBucket => {}
                Err(error) => return Err(error),
            }
        }
        let whose = match owner {
            Owner::User(_) => "the user",
            Owner::Account(_) => "the account",
        };
        used.check(&of_all, whose, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas() {
        let used = Usage { objects: 2, bytes: 10, rounded: 8_192 };
        let quota = |objects_max, bytes_max, on_raw| Quota {
            bytes_max,
            objects_max,
            is_enabled: true,
            on_raw,
        };
        let may = |quota: &Quota, bytes| used.check(quota, "x", bytes).is_ok();
        assert!(may(&quota(3, -1, false), u64::MAX) && !may(&quota(2, -1, false), 0));
        assert!(may(&quota(-1, 12_288, false), 4_096) && !may(&quota(-1, 12_288, false), 4_097));
        assert!(may(&quota(-1, 20, true), 10) && !may(&quota(-1, 20, true), 11));
        let off = Quota { is_enabled: false, ..quota(0, 0, false) };
        assert!(may(&off, 1));
    }
}
