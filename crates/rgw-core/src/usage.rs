//! The usage log: what was done in the buckets of each user, by hour.
//!
//! Source: `rgw_log.cc`, `rgw_rados.cc` (`usage_log_hash`).

use std::collections::BTreeMap;

use cls::client::rgw::{UsageAddOp, UsageInfo, UsageReadOp, UsageReadRet, UsageTrimOp};
pub use cls::client::rgw::{UsageData, UsageEntry};
use rgw_proto::{Code, Error, Result};
use types::{Bytes, Denc, Errno};

use crate::formats::Pool;
use crate::gateway::{Gateway, decoded, failed};
use crate::names::linux_hash;
use crate::objects::{Objects, Place, PoolUse, Vector};

/// Objects of the log: `rgw_usage_max_shards`; a user's records are in one.
const SHARDS: u32 = 32;

/// Records of one answer of the class, and of one request.
const PAGE: u32 = 1_000;
const READ_MAX: usize = 65_536;
/// Pages that one object of the log is trimmed by.
const ROUNDS_MAX: u32 = 10_000;
/// ENODATA: the class has removed all that there was to remove.
const NODATA: Errno = Errno(-61);

/// Which records are meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Whose; empty for all.
    pub user: String,
    /// Of which bucket; empty for all.
    pub bucket: String,
    /// From this second on.
    pub from_s: u64,
    /// Before this second.
    pub to_s: u64,
}

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

    /// Objects of the log that a user's records may be in.
    fn usage_places(&self, user: &str) -> Vec<Place> {
        let at = |n: u32| Place::new(&self.zone.usage, format!("usage.{n}"));
        match user {
            "" => (0..SHARDS).map(at).collect(),
            user => vec![at(linux_hash(user.as_bytes()) % SHARDS)],
        }
    }

    /// Reads records, by user, hour and bucket.
    ///
    /// # Errors
    /// [`Code::InvalidRequest`] for more than 65,536 of them; of RADOS.
    pub async fn read_usage(&self, wanted: &Wanted) -> Result<Vec<UsageEntry>> {
        let mut out: BTreeMap<(Bytes, u64, Bytes), UsageEntry> = BTreeMap::new();
        for at in self.usage_places(&wanted.user) {
            let mut iter = Bytes::new();
            loop {
                let op = UsageReadOp {
                    start: wanted.from_s,
                    end: wanted.to_s,
                    owner: wanted.user.clone().into(),
                    bucket: wanted.bucket.clone().into(),
                    iter,
                    max: PAGE,
                };
                let vector = Vector::read().call("rgw", "user_usage_log_read", op.to_bytes());
                let page: UsageReadRet = match self.objects.operate(&at, vector).await {
                    Err(Errno::NOENT) => break,
                    other => {
                        let data = other.and_then(|a| a.data(0));
                        decoded(&data.map_err(failed("reading the usage log"))?, "The usage log")?
                    }
                };
                for (of, mut entry) in page.usage {
                    // Of one user and bucket the class adds the hours up, unless it is asked for one hour.
                    entry.owner = of.user.clone();
                    let key = (of.user, entry.epoch, of.bucket);
                    match out.get_mut(&key) {
                        Some(known) => add(known, &entry),
                        None => drop(out.insert(key, entry)),
                    }
                }
                if out.len() > READ_MAX {
                    let text = "More than 65,536 records are meant: name a uid, or start and end.";
                    return Err(Error::new(Code::InvalidRequest, text));
                }
                if !page.truncated {
                    break;
                }
                iter = page.next;
            }
        }
        Ok(out.into_values().collect())
    }

    /// Removes records.
    ///
    /// # Errors
    /// Of RADOS; records of objects of the log that come later stay then.
    pub async fn trim_usage(&self, wanted: &Wanted) -> Result<()> {
        let op = UsageTrimOp {
            start: wanted.from_s,
            end: wanted.to_s,
            user: wanted.user.clone().into(),
            bucket: wanted.bucket.clone().into(),
        };
        for at in self.usage_places(&wanted.user) {
            for round in 0.. {
                let vector = Vector::write().call("rgw", "user_usage_log_trim", op.to_bytes());
                match self.objects.operate(&at, vector).await {
                    // A page of other buckets' records: the class does not look behind it.
                    Ok(_) if round == ROUNDS_MAX => {
                        let text = "The log is too long to find one bucket's records: name a time.";
                        return Err(Error::new(Code::InvalidRequest, text));
                    }
                    Ok(_) => {}
                    Err(Errno::NOENT | NODATA) => break,
                    Err(errno) => return Err(failed("trimming the usage log")(errno)),
                }
            }
        }
        Ok(())
    }
}

fn add(to: &mut UsageEntry, more: &UsageEntry) {
    let sum = |to: &mut UsageData, more: &UsageData| {
        to.sent = to.sent.saturating_add(more.sent);
        to.received = to.received.saturating_add(more.received);
        to.ops = to.ops.saturating_add(more.ops);
        to.successful = to.successful.saturating_add(more.successful);
    };
    sum(&mut to.total, &more.total);
    for (category, data) in &more.by_category {
        sum(to.by_category.entry(category.clone()).or_default(), data);
    }
}
