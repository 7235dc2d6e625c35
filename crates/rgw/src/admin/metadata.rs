//! Metadata: sections, their keys, and what stands behind one; and what the gateway says of itself.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use rgw_core::formats::Pool;
use rgw_core::gateway::ATTR;
use rgw_core::meta::Attrs;
use rgw_core::objects::Objects;
use rgw_proto::{Code, Error, Result};
use serde_json::{Value, json};
use types::UTime;

use super::json::time;
use super::{Asked, said};
use crate::answer::Answer;
use crate::server::Server;

/// Sections that this gateway tells of.
const SECTIONS: [&str; 5] = ["account", "bucket", "bucket.instance", "roles", "user"];
/// Keys of one answer where a marker is asked for.
const LISTED_MAX: usize = 1_000;
/// Bytes that the names of a pool may take while they are sorted.
const NAMES_BYTES: u64 = 64 << 20;
const INSTANCE: &str = ".bucket.meta.";

fn no_section(name: &str) -> Error {
    let text = format!("No section of metadata is called {name:?}, or it has no such key.");
    Error::new(Code::NoSuchKey, text)
}

fn record(key: String, version: &(u64, String), written: UTime, data: Value) -> Answer {
    said(&json!({
        "key": key,
        "ver": {"tag": version.1, "ver": version.0},
        "mtime": time(written),
        "data": data,
    }))
}

/// Attributes in base64, by their whole names.
fn attrs(attrs: &Attrs) -> Value {
    let one = |(name, value): (&String, &types::Bytes)| json!({"key": format!("{ATTR}{name}"), "val": STANDARD.encode(value)});
    attrs.iter().map(one).collect()
}

impl Server {
    /// All keys of a section, in order.
    pub(super) async fn section_keys(&self, section: &str) -> Result<Vec<String>> {
        let zone = &self.gateway.zone;
        let (pool, key): (&Pool, fn(&str) -> Option<&str>) = match section {
            "user" => (&zone.users.uid, |name| Some(name).filter(|n| !n.ends_with(".buckets"))),
            "bucket" => (&zone.domain_root, |name| Some(name).filter(|n| !n.starts_with('.'))),
            "bucket.instance" => (&zone.domain_root, |name| name.strip_prefix(INSTANCE)),
            "account" => (&zone.iam.accounts, |name| name.strip_prefix("account.")),
            "roles" => (&zone.iam.roles, |name| name.strip_prefix("roles.")),
            _ => return Err(no_section(section)),
        };
        let _held = self.needed.need(NAMES_BYTES)?;
        let names = self.gateway.objects.names(pool).await;
        let names = names.map_err(rgw_core::gateway::failed("listing metadata"))?;
        let mut keys: Vec<String> =
            names.iter().filter_map(|name| key(name)).map(str::to_owned).collect();
        keys.sort_unstable();
        Ok(keys)
    }

    /// Lists a section: as a plain list, or with a marker in pages.
    pub(super) async fn list_section(
        &self,
        asked: &Asked,
        section: &str,
        default: usize,
        in_pages: bool,
    ) -> Result<Answer> {
        let keys = self.section_keys(section).await?;
        let most = asked.number::<usize>("max-entries")?;
        if !in_pages && most.is_none() {
            return Ok(said(&keys.into()));
        }
        let most = most.unwrap_or(default).clamp(1, LISTED_MAX);
        let after = match asked.text("marker") {
            "" => String::new(),
            text => {
                let bytes = URL_SAFE_NO_PAD.decode(text).ok();
                let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
                let bad =
                    || Error::new(Code::InvalidArgument, "The marker is none of this gateway's.");
                text.ok_or_else(bad)?
            }
        };
        let mut left = keys.into_iter().filter(|key| after.is_empty() || *key > after);
        let page: Vec<String> = left.by_ref().take(most).collect();
        let more = left.next().is_some();
        let mut out = json!({"keys": page, "truncated": more, "count": page.len()});
        if let (true, Some(last)) = (more, page.last()) {
            out["marker"] = URL_SAFE_NO_PAD.encode(last).into();
        }
        Ok(said(&out))
    }

    pub(super) async fn metadata_get(&self, asked: &Asked) -> Result<Answer> {
        let section = asked.rest.as_str();
        if section.is_empty() {
            return Ok(said(&json!(SECTIONS)));
        }
        let key = asked.text("key");
        if key.is_empty() {
            return self.list_section(asked, section, LISTED_MAX, false).await;
        }
        match section {
            "user" => self.user_metadata(key).await,
            "account" => {
                let (account, version, written) = self.gateway.account_record(key).await?;
                let mut data = super::json::account(&account);
                data["attrs"] = json!([]);
                Ok(record(format!("account:{key}"), &version, written, data))
            }
            "bucket" => {
                let (tenant, name) = key.split_once('/').unwrap_or(("", key));
                let absent = |error: Error| match error.code {
                    Code::NoSuchBucket => no_section(section),
                    _ => error,
                };
                let (entry, version) =
                    self.gateway.entry_point(tenant, name).await.map_err(absent)?;
                let bucket = rgw_core::formats::Bucket {
                    name: name.to_owned(),
                    tenant: tenant.to_owned(),
                    ..entry.bucket.clone()
                };
                let written = self.gateway.written_at(&bucket, true).await.map_err(absent)?;
                let data =
                    super::json::entry(&entry.bucket, &entry.owner, entry.created, entry.is_linked);
                Ok(record(format!("bucket:{key}"), &version, written, data))
            }
            "bucket.instance" | "roles" => {
                let text = format!(
                    "Records of {section} are not told here: radosgw-admin metadata get does."
                );
                Err(Error::new(Code::NotImplemented, text))
            }
            _ => Err(no_section(section)),
        }
    }

    pub(super) async fn user_metadata(&self, uid: &str) -> Result<Answer> {
        let found = match self.gateway.user_record(uid).await {
            Err(error) if error.code == Code::NoSuchUser => return Err(no_section("user")),
            other => other?,
        };
        let data = super::json::user_data(&found.user, attrs(&found.attrs));
        Ok(record(format!("user:{uid}"), &found.version, found.written, data))
    }

    pub(super) fn info(&self) -> Answer {
        let id = self.gateway.objects.cluster_id();
        said(&json!({"info": {"storage_backends": [{"name": "rados", "cluster_id": id}]}}))
    }

    pub(super) fn zone_info(&self, asked: &Asked) -> Result<Answer> {
        match asked.text("type") {
            "zone" => Ok(said(&super::json::zone(&self.gateway.zone))),
            _ => Err(Error::new(Code::NotImplemented, "Of configurations only type=zone is told.")),
        }
    }
}
