//! Users: keys, limits, quotas.

use std::collections::{BTreeMap, BTreeSet};

use types::{DecodeError, Denc, Reader, UTime, Writer};

use super::{decode_pairs, encode_pairs};

/// A user's id: `rgw_user`.
///
/// Wire: `ENCODE_START(2, 1)`; v2 added the namespace. Source: `rgw_user_types.h`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct UserId {
    /// Empty for most.
    pub tenant: String,
    /// The id proper.
    pub id: String,
    /// Empty but for users of foreign authorities.
    pub ns: String,
}

impl Denc for UserId {
    fn encode(&self, w: &mut Writer) {
        w.framed(2, 1, |w| {
            w.str(&self.tenant);
            w.str(&self.id);
            w.str(&self.ns);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("rgw_user", 2, |r, v| {
            let (tenant, id) = (r.string()?, r.string()?);
            Ok(Self { tenant, id, ns: if v >= 2 { r.string()? } else { String::new() } })
        })
    }
}

/// A key pair: `RGWAccessKey`.
///
/// Wire: `ENCODE_START(4, 2)`; v3 added `is_active`, v4 `created`. Source: `rgw_basic_types.h`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessKey {
    /// The access key; of Swift keys `UID:SUBUSER`.
    pub id: String,
    /// The secret.
    pub key: String,
    /// The subuser it belongs to; empty for most.
    pub subuser: String,
    /// Whether it may be used.
    pub is_active: bool,
    /// When it was made; zero where that is not known.
    pub created: UTime,
}

impl Denc for AccessKey {
    fn encode(&self, w: &mut Writer) {
        w.framed(4, 2, |w| {
            w.str(&self.id);
            w.str(&self.key);
            w.str(&self.subuser);
            w.bool(self.is_active);
            self.created.encode(w);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("RGWAccessKey", 4, |r, v| {
            let (id, key, subuser) = (r.string()?, r.string()?, r.string()?);
            let is_active = if v >= 3 { r.bool()? } else { true };
            let created = if v >= 4 { UTime::decode(r)? } else { UTime::ZERO };
            Ok(Self { id, key, subuser, is_active, created })
        })
    }
}

/// A subuser and its permissions: `RGWSubUser`, `ENCODE_START(2, 2)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubUser {
    /// Without the user's id.
    pub name: String,
    /// 1 read, 2 write, 15 full control.
    pub permissions: u32,
}

impl Denc for SubUser {
    fn encode(&self, w: &mut Writer) {
        w.framed(2, 2, |w| {
            w.str(&self.name);
            w.u32(self.permissions);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("RGWSubUser", 2, |r, _| Ok(Self { name: r.string()?, permissions: r.u32()? }))
    }
}

/// What a user may do by the Admin API: `RGWUserCaps`, `ENCODE_START(1, 1)`; 1 read, 2 write, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caps(pub BTreeMap<String, u32>);

impl Denc for Caps {
    fn encode(&self, w: &mut Writer) {
        w.framed(1, 1, |w| self.0.encode(w));
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("RGWUserCaps", 1, |r, _| Ok(Self(Denc::decode(r)?)))
    }
}

/// A bound on bytes and objects: `RGWQuotaInfo`.
///
/// Wire: `ENCODE_START(3, 1)`: KiB rounded away from zero, objects, enabled, bytes, raw. v2 added bytes, v3 raw.
/// Source: `rgw_quota_types.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Bytes; -1 for no bound.
    pub bytes_max: i64,
    /// Objects; -1 for no bound.
    pub objects_max: i64,
    /// Whether it is in force.
    pub is_enabled: bool,
    /// Whether bytes are those stored, rather than rounded ones.
    pub on_raw: bool,
}

impl Default for Quota {
    fn default() -> Self {
        Self { bytes_max: -1, objects_max: -1, is_enabled: false, on_raw: false }
    }
}

impl Denc for Quota {
    fn encode(&self, w: &mut Writer) {
        let kib =
            i64::try_from(self.bytes_max.unsigned_abs().div_ceil(1_024)).expect("2^63 / 1024 fits");
        w.framed(3, 1, |w| {
            w.i64(if self.bytes_max < 0 { -kib } else { kib });
            w.i64(self.objects_max);
            w.bool(self.is_enabled);
            w.i64(self.bytes_max);
            w.bool(self.on_raw);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("RGWQuotaInfo", 3, |r, v| {
            let (kib, objects_max, is_enabled) = (r.i64()?, r.i64()?, r.bool()?);
            let bytes_max = if v >= 2 { r.i64()? } else { kib.saturating_mul(1_024) };
            let on_raw = if v >= 3 { r.bool()? } else { false };
            Ok(Self { bytes_max, objects_max, is_enabled, on_raw })
        })
    }
}

/// An account: `RGWAccountInfo`, `ENCODE_START(2, 1)`; v2 added the quota of each bucket. Users of it share its buckets.
/// Source: `rgw_common.h`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountInfo {
    /// `RGW` and 17 digits.
    pub id: String,
    /// Empty for most.
    pub tenant: String,
    /// For people.
    pub name: String,
    /// May be empty.
    pub email: String,
    /// Of all its buckets together.
    pub quota: Quota,
    /// Users, roles, groups; 0 for no bound, negative for none at all.
    pub users_roles_groups_max: [i32; 3],
    /// Buckets that it may have.
    pub buckets_max: i32,
    /// Access keys of a user.
    pub keys_max: i32,
    /// Of each bucket.
    pub bucket_quota: Quota,
}

impl Denc for AccountInfo {
    fn encode(&self, w: &mut Writer) {
        w.framed(2, 1, |w| {
            w.str(&self.id);
            w.str(&self.tenant);
            w.str(&self.name);
            w.str(&self.email);
            self.quota.encode(w);
            self.users_roles_groups_max.iter().for_each(|most| w.i32(*most));
            w.i32(self.buckets_max);
            w.i32(self.keys_max);
            self.bucket_quota.encode(w);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("RGWAccountInfo", 2, |r, v| {
            Ok(Self {
                id: r.string()?,
                tenant: r.string()?,
                name: r.string()?,
                email: r.string()?,
                quota: Quota::decode(r)?,
                users_roles_groups_max: [r.i32()?, r.i32()?, r.i32()?],
                buckets_max: r.i32()?,
                keys_max: r.i32()?,
                bucket_quota: if v >= 2 { Quota::decode(r)? } else { Quota::default() },
            })
        })
    }
}

/// The keys of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserKeys {
    /// By access key.
    pub s3: BTreeMap<String, AccessKey>,
    /// By `UID:SUBUSER`.
    pub swift: BTreeMap<String, AccessKey>,
    /// Keys that sign temporary URLs, by number.
    pub temp_urls: BTreeMap<i32, String>,
    /// Serial numbers of second factors.
    pub mfa_ids: BTreeSet<String>,
}

/// What bounds a user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserLimits {
    /// Whether all is refused.
    pub is_suspended: bool,
    /// Buckets; 0 for no bound, negative for none at all.
    pub buckets_max: i32,
    /// By the Admin API.
    pub caps: Caps,
    /// 1 read, 2 write, 4 delete; 7 for most.
    pub op_mask: u32,
    /// Of each bucket.
    pub bucket_quota: Quota,
    /// Of all buckets together.
    pub user_quota: Quota,
    /// Whether it may act for others: gateways of other zones.
    pub is_system: bool,
    /// Whether policies and lists do not bound it.
    pub is_admin: bool,
}

/// Where a user's buckets go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserPlacement {
    /// `PLACEMENT[/CLASS]`; empty for the zone group's default.
    pub default: String,
    /// Tags by which placements are allowed.
    pub tags: Vec<String>,
}

/// A user: `RGWUserInfo`.
///
/// Wire: `ENCODE_START(23, 9)`; v22 added the namespace, v23 the account and what follows it. In front of the maps of
/// keys stand the first S3 and the first Swift key once more. Source: `rgw_user.h`; read from v19 on (release 16 wrote
/// v22).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserInfo {
    /// Its id.
    pub id: UserId,
    /// For people.
    pub display_name: String,
    /// May be empty.
    pub email: String,
    /// Its keys.
    pub keys: UserKeys,
    /// By name.
    pub subusers: BTreeMap<String, SubUser>,
    /// Its bounds.
    pub limits: UserLimits,
    /// Where its buckets go.
    pub placement: UserPlacement,
    /// 0 none, 1 rgw, 2 keystone, 3 ldap, 6 an account's root.
    pub kind: u32,
    /// Its account; empty for most.
    pub account_id: String,
    /// `/` or `/division/`; of users in accounts.
    pub path: String,
    /// Zero where that is not known.
    pub created: UTime,
    /// Tags by key, keys more than once.
    pub tags: Vec<(String, String)>,
    /// Groups of its account.
    pub group_ids: BTreeSet<String>,
}

impl Denc for UserInfo {
    fn encode(&self, w: &mut Writer) {
        let first = |keys: &BTreeMap<String, AccessKey>| {
            keys.values().next().map(|k| (k.id.clone(), k.key.clone())).unwrap_or_default()
        };
        w.framed(23, 9, |w| {
            w.u64(0); // a user's number of releases long gone
            let (access, secret) = first(&self.keys.s3);
            w.str(&access);
            w.str(&secret);
            w.str(&self.display_name);
            w.str(&self.email);
            let (swift_name, swift_key) = first(&self.keys.swift);
            w.str(&swift_name);
            w.str(&swift_key);
            w.str(&self.id.id);
            self.keys.s3.encode(w);
            self.subusers.encode(w);
            w.u8(self.limits.is_suspended.into());
            self.keys.swift.encode(w);
            w.i32(self.limits.buckets_max);
            self.limits.caps.encode(w);
            w.u32(self.limits.op_mask);
            w.u8(self.limits.is_system.into());
            w.str(&self.placement.default);
            self.placement.tags.encode(w);
            self.limits.bucket_quota.encode(w);
            self.keys.temp_urls.encode(w);
            self.limits.user_quota.encode(w);
            w.str(&self.id.tenant);
            w.u8(self.limits.is_admin.into());
            w.u32(self.kind);
            self.keys.mfa_ids.encode(w);
            w.str(""); // an assumed role, of releases long gone
            w.str(&self.id.ns);
            w.str(&self.account_id);
            w.str(&self.path);
            self.created.encode(w);
            encode_pairs(w, &self.tags);
            self.group_ids.encode(w);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("RGWUserInfo", 23, |r, v| {
            r.require(
                v >= 19,
                "users are read from version 19 on, as releases from 15 on write them",
            )?;
            let mut u = Self::default();
            r.u64()?;
            let (_access, _secret) = (r.string()?, r.string()?);
            (u.display_name, u.email) = (r.string()?, r.string()?);
            let (_swift_name, _swift_key) = (r.string()?, r.string()?);
            u.id.id = r.string()?;
            u.keys.s3 = Denc::decode(r)?;
            u.subusers = Denc::decode(r)?;
            u.limits.is_suspended = r.u8()? != 0;
            u.keys.swift = Denc::decode(r)?;
            u.limits.buckets_max = r.i32()?;
            u.limits.caps = Denc::decode(r)?;
            u.limits.op_mask = r.u32()?;
            u.limits.is_system = r.u8()? != 0;
            u.placement = UserPlacement { default: r.string()?, tags: Denc::decode(r)? };
            u.limits.bucket_quota = Denc::decode(r)?;
            u.keys.temp_urls = Denc::decode(r)?;
            u.limits.user_quota = Denc::decode(r)?;
            u.id.tenant = r.string()?;
            u.limits.is_admin = r.u8()? != 0;
            u.kind = r.u32()?;
            if v >= 20 {
                u.keys.mfa_ids = Denc::decode(r)?;
            }
            if v >= 21 {
                r.string()?;
            }
            if v >= 22 {
                u.id.ns = r.string()?;
            }
            if v >= 23 {
                (u.account_id, u.path) = (r.string()?, r.string()?);
                u.created = Denc::decode(r)?;
                u.tags = decode_pairs(r)?;
                u.group_ids = Denc::decode(r)?;
            }
            Ok(u)
        })
    }
}
