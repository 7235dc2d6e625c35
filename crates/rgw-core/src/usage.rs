//! The usage log: what was done in the buckets of each user, by hour.
//!
//! Source: `rgw_log.cc`, `rgw_rados.cc` (`usage_log_hash`).

use std::collections::BTreeMap;

use cls::client::rgw::{UsageAddOp, UsageData, UsageEntry, UsageInfo};
use rgw_proto::Result;
use types::{Bytes, Denc};

use crate::formats::Pool;
use crate::gateway::{Gateway, failed};
use crate::names::linux_hash;
use crate::objects::{Objects, Place, PoolUse, Vector};

/// Objects of the log: `rgw_usage_max_shards`; a user's records are in one.
const SHARDS: u32 = 32;

/// What is counted together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Record {
    /// Whose bucket it is, or who asked where there is none.
    pub user: String,
    /// The bucket; `-` for one that is not there, empty for none.
    pub bucket: String,
    /// Beginning of the hour, s since 1970.
    pub hour_s: u64,
    /// The operation, in stock's words.
    pub category: &'static str,
}

/// How much of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Bytes of answers.
    pub sent: u64,
    /// Bytes of requests.
    pub received: u64,
    /// Requests in all.
    pub ops: u64,
    /// Those without an error.
    pub successful: u64,
}

impl Counted {
    /// Adds more.
    pub fn add(&mut self, more: Self) {
        self.sent += more.sent;
        self.received += more.received;
        self.ops += more.ops;
        self.successful += more.successful;
    }
}

impl<O: Objects> Gateway<O> {
    /// Writes records.
    ///
    /// # Errors
    /// Of RADOS; records of users that come later are not written then.
    pub async fn write_usage(&self, records: BTreeMap<Record, Counted>) -> Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        let pool = Pool { ns: String::new(), ..self.zone.usage.clone() };
        self.make_pool(&pool, PoolUse::Meta).await.map_err(failed("making the pool of logs"))?;
        let mut by_user: BTreeMap<String, BTreeMap<(String, u64), UsageEntry>> = BTreeMap::new();
        for (record, counted) in records {
            let entries = by_user.entry(record.user.clone()).or_default();
            let entry =
                entries.entry((record.bucket.clone(), record.hour_s)).or_insert_with(|| {
                    UsageEntry {
                        owner: record.user.into(),
                        bucket: record.bucket.into(),
                        epoch: record.hour_s,
                        ..UsageEntry::default()
                    }
                });
            let data = UsageData {
                sent: counted.sent,
                received: counted.received,
                ops: counted.ops,
                successful: counted.successful,
            };
            entry.total.sent += data.sent;
            entry.total.received += data.received;
            entry.total.ops += data.ops;
            entry.total.successful += data.successful;
            entry.by_category.insert(Bytes::from_static(record.category.as_bytes()), data);
        }
        for (user, entries) in by_user {
            let n = linux_hash(user.as_bytes()) % SHARDS;
            let at = Place::new(&self.zone.usage, format!("usage.{n}"));
            let info = UsageInfo { entries: entries.into_values().collect() };
            let op = UsageAddOp { info, user: user.into() };
            let vector = Vector::write().call("rgw", "user_usage_log_add", op.to_bytes());
            self.objects.operate(&at, vector).await.map_err(failed("writing the usage log"))?;
        }
        Ok(())
    }
}
