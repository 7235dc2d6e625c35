//! Accounts: their containers, what those hold, and metadata.

use rgw_core::formats::UserInfo;
use rgw_core::gateway::attr_text;
use rgw_core::meta::Attrs;
use rgw_core::quota::Usage;
use rgw_core::together;
use rgw_proto::authorize::ALL;
use rgw_proto::request::Method;
use rgw_proto::swift::listing::{self, Container, Window};
use rgw_proto::swift::{self as proto};
use rgw_proto::{Code, Error, Result};
use std::collections::BTreeMap;

use super::{listed_time, timestamp};
use crate::answer::Answer;
use crate::buckets::owner_of;
use crate::objects::nul;
use crate::request::Asked;
use crate::server::Server;

/// Names of metadata that an account or a container may have.
pub(super) const METADATA_MAX: usize = 256;
/// What names of attributes begin with that are metadata.
pub(super) const META: &str = "x-amz-meta-";
/// Containers that are asked at once what they hold: a read of each shard of each.
const ASKED_AT_ONCE: usize = 8;
/// Bytes that an entry may take while it becomes an answer.
const ENTRY_BYTES: u64 = 1 << 10;

/// What containers of one placement hold.
#[derive(Clone, Copy, Default)]
struct Held {
    containers: u64,
    usage: Usage,
}

/// Sets and removes attributes that are metadata.
///
/// # Errors
/// [`Code::InvalidRequest`] where there would be too many.
pub(super) fn set_metadata(attrs: &mut Attrs, changes: &[(String, Option<String>)]) -> Result<()> {
    for (name, value) in changes {
        let name = format!("{META}{name}");
        match value {
            Some(value) => attrs.insert(name, nul(value)),
            None => attrs.remove(&name),
        };
    }
    if attrs.keys().filter(|name| name.starts_with(META)).count() > METADATA_MAX {
        let text = "An account or a container has at most 256 names of metadata.";
        return Err(Error::new(Code::InvalidRequest, text));
    }
    Ok(())
}

impl Server {
    /// GET and HEAD of an account.
    pub(super) async fn list_account(&self, asked: &Asked) -> Result<Answer> {
        let user = asked.user()?;
        asked.check(None, None, None)?;
        let dialect = Self::dialect(asked);
        let query = &asked.head.query;
        let window = Window::of_account(query)?;
        let is_head = asked.head.method == Method::Head;
        let all = self.gateway.buckets_of(&owner_of(user)).await?;
        let _share = self.needed.need(all.len() as u64 * ENTRY_BYTES)?;
        let settings = self.settings.swift.as_ref();
        let is_false = |text: &str| ["false", "0", "no", "off"].contains(&text);
        let counts = settings.is_none_or(|s| s.needs_stats)
            && !query.get("stats").is_some_and(|text| is_false(&text.to_ascii_lowercase()));
        let policies = self.gateway.zone.placements.keys();
        let mut by_policy: BTreeMap<String, Held> =
            policies.map(|name| (name.clone(), Held::default())).collect();
        let mut found = Vec::new();
        for some in all.chunks(ASKED_AT_ONCE) {
            let asks = some.iter().map(|(name, made)| async move {
                if !counts {
                    return Ok(Some((name, *made, None)));
                }
                let bucket = match self.gateway.bucket(&user.id.tenant, name).await {
                    // It is being removed.
                    Err(error) if error.code == Code::NoSuchBucket => return Ok(None),
                    other => other?,
                };
                let usage = self.gateway.usage(&bucket).await?;
                Ok::<_, Error>(Some((name, bucket.info.created, Some((bucket, usage)))))
            });
            for one in together::all(asks).await {
                let Some((name, made, held)) = one? else { continue };
                if let Some((bucket, usage)) = &held {
                    let policy = bucket.info.placement.split('/').next().unwrap_or_default();
                    let sum = by_policy.entry(policy.to_owned()).or_default();
                    sum.containers += 1;
                    sum.usage.add(*usage);
                }
                if window.holds(name) {
                    let holds = held.map(|(_, usage)| (usage.objects, usage.bytes));
                    found.push(Container { name: name.clone(), holds, made: listed_time(made) });
                }
            }
        }
        if window.is_reverse {
            found.reverse();
        }
        found.truncate(usize::try_from(window.limit).unwrap_or(usize::MAX));
        let answer = self.account_headers(asked, user, all.len() as u64, &by_policy).await?;
        if is_head {
            return Ok(dialect.body(answer.status(204), String::new()));
        }
        let text = listing::containers(&user.display_name, &found, dialect.format);
        Ok(dialect.list(answer, text))
    }

    async fn account_headers(
        &self,
        asked: &Asked,
        user: &UserInfo,
        containers: u64,
        by_policy: &BTreeMap<String, Held>,
    ) -> Result<Answer> {
        let mut total = Usage::default();
        by_policy.values().for_each(|held| total.add(held.usage));
        let now = self.gateway.now();
        let mut answer = Answer::new(200)
            .header("X-Timestamp", timestamp(now))
            .header("X-Account-Container-Count", containers.to_string())
            .header("X-Account-Object-Count", total.objects.to_string())
            .header("X-Account-Bytes-Used", total.bytes.to_string())
            .header("X-Account-Bytes-Used-Actual", total.rounded.to_string())
            .header("Accept-Ranges", "bytes");
        for (policy, held) in by_policy {
            let name = |what: &str| format!("X-Account-Storage-Policy-{policy}-{what}");
            answer = answer
                .header(&name("Container-Count"), held.containers.to_string())
                .header(&name("Object-Count"), held.usage.objects.to_string())
                .header(&name("Bytes-Used"), held.usage.bytes.to_string())
                .header(&name("Bytes-Used-Actual"), held.usage.rounded.to_string());
        }
        // Keys are for who may set them.
        if asked.sender.identity().mask == ALL {
            let keys = [(0, "X-Account-Meta-Temp-Url-Key"), (1, "X-Account-Meta-Temp-Url-Key-2")];
            for (n, name) in keys {
                let key = user.keys.temp_urls.get(&n).filter(|key| !key.is_empty());
                answer = answer.maybe(name, key.cloned());
            }
        }
        let quota = &user.limits.user_quota;
        if quota.is_enabled {
            let told = |n: i64| (n >= 0).then(|| n.to_string());
            answer = answer
                .maybe("X-Account-Meta-Quota-Bytes", told(quota.bytes_max))
                .maybe("X-Account-Meta-Quota-Count", told(quota.objects_max));
        }
        let most = user.limits.buckets_max;
        let most = (most > 0).then(|| most.to_string());
        answer = answer.maybe("X-Account-Meta-Quota-Containers", most);
        if let Some((_, attrs)) = self.gateway.known_user(&user.id.text()).await? {
            for (name, value) in attrs {
                if let Some(name) = name.strip_prefix(META) {
                    answer = answer.header(&format!("X-Account-Meta-{name}"), attr_text(&value));
                }
            }
        }
        Ok(answer)
    }

    /// Sets an account's metadata and its keys of temporary URLs.
    pub(super) async fn post_account(&self, asked: &Asked) -> Result<Answer> {
        let user = asked.user()?;
        asked.check(None, None, None)?;
        let identity = asked.sender.identity();
        let (mut changes, mut keys, mut quota) = (Vec::new(), Vec::new(), Vec::new());
        for (name, value) in proto::metadata(&asked.head.headers, "account")? {
            match name.as_str() {
                "temp-url-key" => keys.push((0, value.unwrap_or_default())),
                "temp-url-key-2" => keys.push((1, value.unwrap_or_default())),
                "quota-bytes" | "quota-count" => quota.push((name, value)),
                _ => changes.push((name, value)),
            }
        }
        if !keys.is_empty() && identity.mask != ALL {
            let text = "Keys of temporary URLs are set with the key of a subuser of full access.";
            return Err(Error::new(Code::AccessDenied, text));
        }
        if !quota.is_empty() && !identity.is_admin {
            let text = "An account's quota is set by administrators: radosgw-admin quota set.";
            return Err(Error::new(Code::AccessDenied, text));
        }
        let mut bounds = Vec::new();
        for (name, value) in quota {
            bounds.push((name == "quota-bytes", quota_of(value.as_deref())?));
        }
        let change = |user: &mut UserInfo, attrs: &mut Attrs| {
            for (n, key) in &keys {
                match key.is_empty() {
                    true => user.keys.temp_urls.remove(n),
                    false => user.keys.temp_urls.insert(*n, key.clone()),
                };
            }
            let quota = &mut user.limits.user_quota;
            for (is_bytes, most) in &bounds {
                *(if *is_bytes { &mut quota.bytes_max } else { &mut quota.objects_max }) = *most;
                quota.is_enabled = quota.bytes_max >= 0 || quota.objects_max >= 0;
            }
            set_metadata(attrs, &changes)
        };
        self.gateway.alter_user(&user.id.text(), change).await?;
        Ok(Answer::new(204).header("Content-Type", "text/plain; charset=utf-8"))
    }
}

/// A bound; -1 for none.
pub(super) fn quota_of(value: Option<&str>) -> Result<i64> {
    let Some(text) = value else { return Ok(-1) };
    let bad =
        |_| Error::new(Code::InvalidArgument, "A quota is a number; leave it empty for none.");
    Ok(text.parse::<i64>().map_err(bad)?.max(-1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_has_a_bound() {
        let mut attrs = Attrs::new();
        let some = |n: usize| vec![(format!("n{n}"), Some("v".to_owned()))];
        (0..METADATA_MAX).for_each(|n| set_metadata(&mut attrs, &some(n)).unwrap());
        let more = set_metadata(&mut attrs, &some(METADATA_MAX));
        assert_eq!(more.unwrap_err().code, Code::InvalidRequest);
        set_metadata(&mut attrs, &[("n0".into(), None), (format!("n{METADATA_MAX}"), None)])
            .unwrap();
        assert_eq!(attrs.len(), METADATA_MAX - 1);
        assert_eq!(quota_of(Some("3")), Ok(3));
        assert_eq!((quota_of(None), quota_of(Some("-7"))), (Ok(-1), Ok(-1)));
        assert!(quota_of(Some("abc")).is_err());
    }
}
