//! The usage log.

use std::collections::BTreeMap;

use rgw_core::usage::{UsageData, UsageEntry, Wanted};
use rgw_proto::time::Time;
use rgw_proto::{Code, Error, Result};
use serde_json::{Map, Value, json};

use super::{Asked, done, json, said};
use crate::answer::Answer;
use crate::server::Server;

/// Bytes that a record may take while it becomes JSON.
const RECORD_BYTES: u64 = 2_048;
/// Records that are held at most while an answer is made.
const RECORDS: u64 = 16_384;

impl Asked {
    fn second(&self, name: &str, default: u64) -> Result<u64> {
        let text = self.text(name).trim().replacen(' ', "T", 1);
        if text.is_empty() {
            return Ok(default);
        }
        let zoned = if text.contains('T') && !text.ends_with('Z') { text + "Z" } else { text };
        let at = Time::parse_iso(&zoned).and_then(|at| u64::try_from(at.0).ok());
        let bad = || format!("{name} is like 2026-01-02 or 2026-01-02 03:04:05.");
        at.ok_or_else(|| Error::new(Code::InvalidArgument, bad()))
    }

    fn usage_wanted(&self) -> Result<Wanted> {
        Ok(Wanted {
            user: self.text("uid").to_owned(),
            bucket: self.text("bucket").to_owned(),
            from_s: self.second("start", 0)?,
            to_s: self.second("end", i64::MAX as u64)?,
        })
    }
}

fn categories(all: &BTreeMap<String, UsageData>) -> Value {
    let one = |(name, data): (&String, &UsageData)| {
        let mut one = json::usage(data);
        one.insert("category".into(), name.clone().into());
        Value::from(one)
    };
    all.iter().map(one).collect()
}

fn add(to: &mut UsageData, more: &UsageData) {
    to.sent = to.sent.saturating_add(more.sent);
    to.received = to.received.saturating_add(more.received);
    to.ops = to.ops.saturating_add(more.ops);
    to.successful = to.successful.saturating_add(more.successful);
}

/// Those categories of a record that are wanted; all where none is named.
fn wanted(entry: &UsageEntry, names: &[&str]) -> BTreeMap<String, UsageData> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let all = entry.by_category.iter().map(|(name, data)| (text(name), data.clone()));
    all.filter(|(name, _)| names.is_empty() || names.contains(&name.as_str())).collect()
}

impl Server {
    pub(super) async fn usage_get(&self, asked: &Asked) -> Result<Answer> {
        let with_entries = asked.flag("show-entries")?.unwrap_or(true);
        let with_summary = asked.flag("show-summary")?.unwrap_or(true);
        let names: Vec<&str> =
            asked.text("categories").split(',').filter(|name| !name.is_empty()).collect();
        let _held = self.needed.need(RECORDS * RECORD_BYTES)?;
        let records = self.gateway.read_usage(&asked.usage_wanted()?).await?;
        if records.len() as u64 > RECORDS {
            let text = "More than 16,384 records are meant: name a uid, or start and end.";
            return Err(Error::new(Code::InvalidRequest, text));
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut entries: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        let mut sums: BTreeMap<String, BTreeMap<String, UsageData>> = BTreeMap::new();
        for entry in &records {
            let user = text(if entry.payer.is_empty() { &entry.owner } else { &entry.payer });
            let all = wanted(entry, &names);
            let sum = sums.entry(user.clone()).or_default();
            for (name, data) in &all {
                add(sum.entry(name.clone()).or_default(), data);
            }
            if with_entries {
                let hour = Time(i64::try_from(entry.epoch).unwrap_or_default()).to_string();
                let of = entries.entry(user).or_default();
                of.push(json!({
                    "bucket": text(&entry.bucket),
                    "time": hour.replace(".000Z", ".000000Z"),
                    "epoch": entry.epoch,
                    "owner": text(&entry.owner),
                    "categories": categories(&all),
                    "s3select": {"bytes_processed": 0, "bytes_returned": 0},
                }));
            }
        }
        let mut out = Map::new();
        if with_entries {
            let all = entries.into_iter().map(|(user, all)| json!({"user": user, "buckets": all}));
            out.insert("entries".into(), all.collect());
        }
        if with_summary {
            let one = |(user, all): (&String, &BTreeMap<String, UsageData>)| {
                let mut total = UsageData::default();
                all.values().for_each(|data| add(&mut total, data));
                let mut total = json::usage(&total);
                total.insert("bytes_processed".into(), 0.into());
                total.insert("bytes_returned".into(), 0.into());
                json!({"user": user, "categories": categories(all), "total": total})
            };
            out.insert("summary".into(), sums.iter().map(one).collect());
        }
        Ok(said(&out.into()))
    }

    pub(super) async fn usage_trim(&self, asked: &Asked) -> Result<Answer> {
        let wanted = asked.usage_wanted()?;
        let is_all = wanted.user.is_empty() && wanted.bucket.is_empty() && wanted.from_s == 0;
        if is_all && !asked.flag("remove-all")?.unwrap_or_default() {
            let text = "Without uid, bucket and start all records go: say remove-all=true.";
            return Err(Error::new(Code::InvalidArgument, text));
        }
        self.gateway.trim_usage(&wanted).await?;
        Ok(done())
    }
}
