//! Stock's JSON of what is stored.

use rgw_core::formats::{
    AccessKey, AccountInfo, AclPolicy, Bucket, Caps, Owner, Placement, Pool, Quota, SubUser,
    UserInfo, ZoneParams,
};
use rgw_core::meta::BucketAt;
use rgw_core::quota::Usage;
use rgw_core::quota::{Header, Stats};
use rgw_core::ratelimit::Ratelimit;
use rgw_core::usage::UsageData;
use rgw_proto::admin::cap_word;
use rgw_proto::time::Time;
use serde_json::{Map, Value, json};
use types::UTime;

/// Names of an index's categories.
const CATEGORIES: [&str; 5] =
    ["rgw.none", "rgw.main", "rgw.shadow", "rgw.multimeta", "rgw.cloudtiered"];

/// Permissions of subusers, by bits.
pub const PERMISSIONS: [(&str, u32); 4] =
    [("full-control", 15), ("read-write", 3), ("read", 1), ("write", 2)];

/// `2026-11-30T00:19:26.557918Z`.
pub fn time(at: UTime) -> String {
    let whole = Time(i64::from(at.sec)).to_string();
    let whole = whole.split(['.', 'Z']).next().unwrap_or_default().to_owned();
    format!("{whole}.{:06}Z", at.nsec / 1_000)
}

fn kib(bytes: i64) -> i64 {
    bytes.saturating_add(1_023) / 1_024
}

pub fn quota(quota: &Quota) -> Value {
    json!({
        "enabled": quota.is_enabled,
        "check_on_raw": quota.on_raw,
        "max_size": quota.bytes_max,
        "max_size_kb": kib(quota.bytes_max),
        "max_objects": quota.objects_max,
    })
}

pub fn ratelimit(limit: &Ratelimit) -> Value {
    json!({
        "max_read_ops": limit.read_ops,
        "max_write_ops": limit.write_ops,
        "max_read_bytes": limit.read_bytes,
        "max_write_bytes": limit.write_bytes,
        "enabled": limit.is_enabled,
    })
}

pub fn permission(bits: u32) -> &'static str {
    PERMISSIONS.iter().find(|(_, all)| *all == bits).map_or("<none>", |(word, _)| word)
}

pub fn subusers(user: &UserInfo) -> Value {
    let uid = user.id.text();
    let one = |sub: &SubUser| json!({"id": format!("{uid}:{}", sub.name), "permissions": permission(sub.permissions)});
    user.subusers.values().map(one).collect()
}

fn whose(user: &UserInfo, key: &AccessKey) -> String {
    let uid = user.id.text();
    if key.subuser.is_empty() { uid } else { format!("{uid}:{}", key.subuser) }
}

/// S3 keys; metadata has times in them.
pub fn keys(user: &UserInfo, with_times: bool) -> Value {
    let one = |key: &AccessKey| {
        let mut one = json!({
            "user": whose(user, key),
            "access_key": key.id,
            "secret_key": key.key,
            "active": key.is_active,
        });
        if with_times {
            one["create_date"] = time(key.created).into();
        }
        one
    };
    user.keys.s3.values().map(one).collect()
}

pub fn swift_keys(user: &UserInfo, with_times: bool) -> Value {
    let one = |key: &AccessKey| {
        let mut one =
            json!({"user": whose(user, key), "secret_key": key.key, "active": key.is_active});
        if with_times {
            one["create_date"] = time(key.created).into();
        }
        one
    };
    user.keys.swift.values().map(one).collect()
}

pub fn caps(caps: &Caps) -> Value {
    caps.0.iter().map(|(name, bits)| json!({"type": name, "perm": cap_word(*bits)})).collect()
}

/// `read, write, delete`.
fn op_mask(bits: u32) -> String {
    let words = [(1, "read"), (2, "write"), (4, "delete")];
    let words: Vec<_> = words.iter().filter(|(bit, _)| bits & bit != 0).map(|w| w.1).collect();
    if words.is_empty() { "<none>".into() } else { words.join(", ") }
}

fn kind(user: &UserInfo) -> &'static str {
    match user.kind {
        1 => "rgw",
        2 => "keystone",
        3 => "ldap",
        6 => "root",
        _ => "none",
    }
}

/// What `info` and metadata both tell of a user.
fn common(user: &UserInfo, keys: Value, swift_keys: Value) -> Map<String, Value> {
    let limits = &user.limits;
    let (placement, class) =
        user.placement.default.split_once('/').unwrap_or((&user.placement.default, ""));
    let temp_urls: Vec<_> =
        user.keys.temp_urls.iter().map(|(n, key)| json!({"key": n, "val": key})).collect();
    let tags: Vec<_> = user.tags.iter().map(|(k, v)| json!({"key": k, "val": v})).collect();
    let value = json!({
        "display_name": user.display_name,
        "email": user.email,
        "suspended": u8::from(limits.is_suspended),
        "max_buckets": limits.buckets_max,
        "subusers": subusers(user),
        "keys": keys,
        "swift_keys": swift_keys,
        "caps": caps(&limits.caps),
        "op_mask": op_mask(limits.op_mask),
        "default_placement": placement,
        "default_storage_class": class,
        "placement_tags": user.placement.tags,
        "bucket_quota": quota(&limits.bucket_quota),
        "user_quota": quota(&limits.user_quota),
        "temp_url_keys": temp_urls,
        "type": kind(user),
        "mfa_ids": user.keys.mfa_ids,
        "account_id": user.account_id,
        "path": if user.path.is_empty() { "/" } else { &user.path },
        "create_date": time(user.created),
        "tags": tags,
        "group_ids": user.group_ids,
    });
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// A user; without keys for who may not see them.
pub fn user(user: &UserInfo, with_keys: bool, used: Option<&Usage>) -> Value {
    let mut out = common(user, keys(user, false), swift_keys(user, false));
    if !with_keys {
        out.remove("keys");
        out.remove("swift_keys");
    }
    out.insert("full_user_id".into(), user.id.text().into());
    out.insert("tenant".into(), user.id.tenant.clone().into());
    out.insert("user_id".into(), user.id.id.clone().into());
    out.insert("system".into(), user.limits.is_system.into());
    out.insert("admin".into(), user.limits.is_admin.into());
    if let Some(used) = used {
        let kib = |bytes: u64| bytes.div_ceil(1_024);
        let stats = json!({
            "size": used.bytes,
            "size_actual": used.rounded,
            "size_utilized": used.bytes,
            "size_kb": kib(used.bytes),
            "size_kb_actual": kib(used.rounded),
            "size_kb_utilized": kib(used.bytes),
            "num_objects": used.objects,
        });
        out.insert("stats".into(), stats);
    }
    out.into()
}

/// A user as metadata.
pub fn user_data(user: &UserInfo, attrs: Value) -> Value {
    let mut out = common(user, keys(user, true), swift_keys(user, true));
    out.insert("user_id".into(), user.id.text().into());
    for (name, is_set) in [("system", user.limits.is_system), ("admin", user.limits.is_admin)] {
        // Told of those that are, as stock does.
        if is_set {
            out.insert(name.into(), true.into());
        }
    }
    out.insert("attrs".into(), attrs);
    out.into()
}

pub fn account(account: &AccountInfo) -> Value {
    let [users, roles, groups] = account.users_roles_groups_max;
    json!({
        "id": account.id,
        "tenant": account.tenant,
        "name": account.name,
        "email": account.email,
        "quota": quota(&account.quota),
        "bucket_quota": quota(&account.bucket_quota),
        "max_users": users,
        "max_roles": roles,
        "max_groups": groups,
        "max_buckets": account.buckets_max,
        "max_access_keys": account.keys_max,
    })
}

fn pool(pool: &Pool) -> String {
    if pool.ns.is_empty() { pool.name.clone() } else { format!("{}:{}", pool.name, pool.ns) }
}

fn explicit(bucket: &Bucket) -> Value {
    let none = Default::default();
    let [data, extra, index] = bucket.explicit_pools.as_ref().unwrap_or(&none);
    json!({"data_pool": pool(data), "data_extra_pool": pool(extra), "index_pool": pool(index)})
}

fn stats(stats: &Stats) -> Value {
    let kib = |bytes: u64| bytes.div_ceil(1_024);
    json!({
        "size": stats.size,
        "size_actual": stats.rounded,
        "size_utilized": stats.actual,
        "size_kb": kib(stats.size),
        "size_kb_actual": kib(stats.rounded),
        "size_kb_utilized": kib(stats.actual),
        "num_objects": stats.entries,
    })
}

/// A bucket with what it holds, as the heads of its index say.
pub fn bucket(at: &BucketAt, heads: &[Header], written: UTime) -> Value {
    let info = &at.info;
    let mut used = std::collections::BTreeMap::<u8, Stats>::new();
    for (category, more) in heads.iter().flat_map(|head| &head.stats) {
        used.entry(*category).or_default().add(more);
    }
    let name = |n: u8| CATEGORIES.get(usize::from(n)).copied().unwrap_or("unknown");
    let used: Map<String, Value> =
        used.iter().map(|(n, all)| (name(*n).to_owned(), stats(all))).collect();
    let by_shard = |text: &dyn Fn(&Header) -> String| {
        let all = heads.iter().enumerate().map(|(n, head)| format!("{n}#{}", text(head)));
        all.collect::<Vec<_>>().join(",")
    };
    let versioning = match (at.is_versioned(), at.keeps_versions()) {
        (false, _) => "off",
        (true, true) => "enabled",
        (true, false) => "suspended",
    };
    let resharding = ["None", "InProgress", "InLogrecord"];
    let resharding = resharding.get(usize::from(info.layout.resharding)).unwrap_or(&"Unknown");
    let judged = info.layout.judged;
    let is_indexless = info.layout.current.is_indexless;
    json!({
        "bucket": info.bucket.name,
        "tenant": info.bucket.tenant,
        "versioning": versioning,
        "zonegroup": info.zonegroup,
        "placement_rule": info.placement,
        "explicit_placement": explicit(&info.bucket),
        "id": info.bucket.id,
        "marker": info.bucket.marker,
        "index_type": if is_indexless { "Indexless" } else { "Normal" },
        "index_generation": info.layout.current.generation,
        "reshard_status": resharding,
        "judge_reshard_lock_time": format!("{}.{:06}", judged.sec, judged.nsec / 1_000),
        "object_lock_enabled": info.lock.is_some(),
        "mfa_enabled": info.flags & rgw_core::formats::bucket_flags::MFA != 0,
        "owner": info.owner.text(),
        "num_shards": info.layout.current.index.shards,
        "ver": by_shard(&|head| head.ver.to_string()),
        "master_ver": by_shard(&|head| head.master_ver.to_string()),
        "max_marker": by_shard(&|head| String::from_utf8_lossy(&head.max_marker).into_owned()),
        "usage": used,
        "mtime": time(written),
        "creation_time": time(info.created),
        "bucket_quota": quota(&info.quota),
        "read_tracker": at.version().0,
    })
}

/// An entry point as metadata.
pub fn entry(bucket: &Bucket, owner: &Owner, created: UTime, is_linked: bool) -> Value {
    json!({
        "bucket": {
            "name": bucket.name,
            "marker": bucket.marker,
            "bucket_id": bucket.id,
            "tenant": bucket.tenant,
            "explicit_placement": explicit(bucket),
        },
        "owner": owner.text(),
        "creation_time": time(created),
        "linked": is_linked,
        "has_bucket_info": false,
    })
}

/// A list of access.
pub fn policy(acl: &AclPolicy) -> Value {
    let users: Vec<_> =
        acl.list.users.iter().map(|(id, bits)| json!({"user": id, "acl": bits})).collect();
    let groups: Vec<_> =
        acl.list.groups.iter().map(|(n, bits)| json!({"group": n, "acl": bits})).collect();
    let grants = acl.list.grants.iter().map(|(id, grant)| {
        let mut one = json!({"type": {"type": grant.kind as u32}});
        match grant.kind {
            rgw_core::formats::GranteeType::Group => one["group"] = grant.group.into(),
            rgw_core::formats::GranteeType::Email => one["email"] = grant.email.clone().into(),
            rgw_core::formats::GranteeType::Referer => {
                one["url_spec"] = grant.referer.clone().into();
            }
            _ => {
                one["id"] = grant.id.clone().into();
                one["name"] = grant.name.clone().into();
            }
        }
        one["permission"] = json!({"flags": grant.permission});
        json!({"id": id, "grant": one})
    });
    let grants: Vec<_> = grants.collect();
    json!({
        "acl": {"acl_user_map": users, "acl_group_map": groups, "grant_map": grants},
        "owner": {"id": acl.owner.id, "display_name": acl.owner.display_name},
    })
}

/// What was sent, received and done; bytes of S3 Select, which is not built, are none.
pub fn usage(data: &UsageData) -> Map<String, Value> {
    let value = json!({
        "bytes_sent": data.sent,
        "bytes_received": data.received,
        "ops": data.ops,
        "successful_ops": data.successful,
    });
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

fn placement(placement: &Placement) -> Value {
    let mut classes: Map<String, Value> = placement
        .classes
        .iter()
        .map(|(name, at)| {
            let at = at.as_ref().map(|at| json!({"data_pool": pool(at)})).unwrap_or(json!({}));
            (name.clone(), at)
        })
        .collect();
    classes
        .entry("STANDARD".to_owned())
        .or_insert_with(|| json!({"data_pool": pool(&placement.data)}));
    json!({
        "index_pool": pool(&placement.index),
        "storage_classes": classes,
        "data_extra_pool": pool(&placement.extra),
        "index_type": u8::from(placement.is_indexless),
        "inline_data": true,
    })
}

/// A zone; the key that zones have for each other is not told.
pub fn zone(zone: &ZoneParams) -> Value {
    let placements: Vec<_> =
        zone.placements.iter().map(|(n, at)| json!({"key": n, "val": placement(at)})).collect();
    json!({
        "id": zone.id,
        "name": zone.name,
        "domain_root": pool(&zone.domain_root),
        "control_pool": pool(&zone.control),
        "dedup_pool": pool(&zone.logs.dedup),
        "gc_pool": pool(&zone.gc),
        "lc_pool": pool(&zone.lifecycle),
        "log_pool": pool(&zone.logs.log),
        "intent_log_pool": pool(&zone.logs.intent),
        "usage_log_pool": pool(&zone.usage),
        "roles_pool": pool(&zone.iam.roles),
        "reshard_pool": pool(&zone.logs.reshard),
        "user_keys_pool": pool(&zone.users.keys),
        "user_email_pool": pool(&zone.users.email),
        "user_swift_pool": pool(&zone.users.swift),
        "user_uid_pool": pool(&zone.users.uid),
        "otp_pool": pool(&zone.logs.otp),
        "notif_pool": pool(&zone.logs.notif),
        "topics_pool": pool(&zone.iam.topics),
        "account_pool": pool(&zone.iam.accounts),
        "group_pool": pool(&zone.iam.groups),
        "bucket_logging_pool": pool(&zone.logs.bucket_logging),
        "system_key": {"access_key": "", "secret_key": ""},
        "placement_pools": placements,
        "realm_id": "",
        "restore_pool": pool(&zone.logs.restore),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_words() {
        let at = UTime { sec: 1_795_996_766, nsec: 557_918_999 };
        assert_eq!(time(at), "2026-11-29T23:59:26.557918Z");
        assert_eq!(
            (op_mask(7), op_mask(1), op_mask(0)),
            ("read, write, delete".into(), "read".into(), "<none>".into())
        );
        assert_eq!(
            (permission(15), permission(3), permission(0)),
            ("full-control", "read-write", "<none>")
        );
        assert_eq!((kib(-1), kib(10_000), kib(0)), (0, 10, 0));
    }
}
