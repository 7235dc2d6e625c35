//! Buckets: entry points, instances, layouts of their indices.

use std::collections::BTreeMap;

use types::{DecodeError, Denc, Reader, UTime, Writer};

use super::{Opaque, Quota, StoredWebsite, UserId};

/// Bits of [`BucketInfo::flags`].
pub mod bucket_flags {
    /// All is refused.
    pub const SUSPENDED: u32 = 1;
    /// Versions are kept, or were.
    pub const VERSIONED: u32 = 2;
    /// Versions were kept.
    pub const VERSIONS_SUSPENDED: u32 = 4;
    /// Other zones do not copy it.
    pub const DATASYNC_DISABLED: u32 = 8;
    /// Deletes of versions want a second factor.
    pub const MFA: u32 = 0x10;
    /// Objects can be locked.
    pub const OBJECT_LOCK: u32 = 0x20;
    /// It was deleted, and other zones do not know yet.
    pub const DELETED: u32 = 0x40;
}

/// A pool with a namespace: `rgw_pool`, `ENCODE_START(10, 10)`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    /// The pool's name.
    pub name: String,
    /// Empty for none.
    pub ns: String,
}

impl Denc for Pool {
    fn encode(&self, w: &mut Writer) {
        w.framed(10, 10, |w| {
            w.str(&self.name);
            w.str(&self.ns);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("rgw_pool", 10, |r, _| Ok(Self { name: r.string()?, ns: r.string()? }))
    }
}

/// A bucket's name and ids: `rgw_bucket`.
///
/// Wire: `ENCODE_START(10, 10)`. Source: `rgw_bucket_types.h`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    /// Its name.
    pub name: String,
    /// What its objects' names begin with.
    pub marker: String,
    /// What its index is named by.
    pub id: String,
    /// Empty for most.
    pub tenant: String,
    /// Data, extra and index pool, of buckets older than placements.
    pub explicit_pools: Option<[Pool; 3]>,
}

impl Denc for Bucket {
    fn encode(&self, w: &mut Writer) {
        w.framed(10, 10, |w| {
            w.str(&self.name);
            w.str(&self.marker);
            w.str(&self.id);
            w.str(&self.tenant);
            w.bool(self.explicit_pools.is_some());
            for pool in self.explicit_pools.iter().flatten() {
                pool.encode(w);
            }
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("rgw_bucket", 10, |r, v| {
            r.require(v >= 10, "buckets are read from version 10 on")?;
            let (name, marker, id, tenant) = (r.string()?, r.string()?, r.string()?, r.string()?);
            let explicit_pools = if r.bool()? {
                Some([Denc::decode(r)?, Denc::decode(r)?, Denc::decode(r)?])
            } else {
                None
            };
            Ok(Self { name, marker, id, tenant, explicit_pools })
        })
    }
}

/// Who owns a bucket, in the newest structs: a variant of `rgw_user` and `rgw_account_id`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A user.
    User(UserId),
    /// An account, by id.
    Account(String),
}

impl Default for Owner {
    fn default() -> Self {
        Self::User(UserId::default())
    }
}

impl Owner {
    /// The "versioned" form: the version is the variant's number.
    fn encode_versioned(&self, w: &mut Writer) {
        match self {
            Self::User(user) => w.framed(0, 0, |w| user.encode(w)),
            Self::Account(id) => w.framed(1, 1, |w| w.str(id)),
        }
    }

    fn decode_versioned(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("rgw_owner", 1, |r, v| {
            Ok(if v == 0 { Self::User(Denc::decode(r)?) } else { Self::Account(r.string()?) })
        })
    }

    /// The "converted" form: a user as before there were accounts.
    pub(crate) fn encode_converted(&self, w: &mut Writer) {
        match self {
            Self::User(user) => user.encode(w),
            Self::Account(id) => w.framed(0x81, 0x81, |w| w.str(id)),
        }
    }

    pub(crate) fn decode_converted(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        if r.peek_u8()? == 0x81 {
            return r.framed("rgw_owner", 0x81, |r, _| Ok(Self::Account(r.string()?)));
        }
        Denc::decode(r).map(Self::User)
    }

    /// What stands in the field for the user's id alone.
    fn uid(&self) -> &str {
        match self {
            Self::User(user) => &user.id,
            Self::Account(_) => "",
        }
    }
}

/// What a bucket's name leads to: `RGWBucketEntryPoint`.
///
/// Wire: `ENCODE_START(10, 8)`; v9 added the owner as a struct, v10 the time with its fraction. Source: `rgw_common.h`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntryPoint {
    /// The bucket.
    pub bucket: Bucket,
    /// Its owner.
    pub owner: Owner,
    /// Whether a user has it in the list of buckets.
    pub is_linked: bool,
    /// When it was made.
    pub created: UTime,
}

impl Denc for EntryPoint {
    fn encode(&self, w: &mut Writer) {
        w.framed(10, 8, |w| {
            self.bucket.encode(w);
            w.str(self.owner.uid());
            w.bool(self.is_linked);
            w.u64(self.created.sec.into());
            self.owner.encode_converted(w);
            self.created.encode(w);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("RGWBucketEntryPoint", 10, |r, v| {
            r.require(v >= 9, "entry points are read from version 9 on")?;
            let bucket = Bucket::decode(r)?;
            r.string()?;
            let (is_linked, sec) = (r.bool()?, r.u64()?);
            let owner = Owner::decode_converted(r)?;
            let whole = UTime { sec: u32::try_from(sec).unwrap_or(u32::MAX), nsec: 0 };
            let created = if v >= 10 { UTime::decode(r)? } else { whole };
            Ok(Self { bucket, owner, is_linked, created })
        })
    }
}

/// How an index is cut into shards: `bucket_index_normal_layout`.
///
/// Wire: `ENCODE_START(2, 1)`; v2 added `shards_min`. Source: `rgw_bucket_layout.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Index {
    /// Shards; 0 in old buckets stands for one object without a number.
    pub shards: u32,
    /// 0: by the key's hash.
    pub hash: u8,
    /// Resharding goes not below.
    pub shards_min: u32,
}

impl Default for Index {
    fn default() -> Self {
        Self { shards: 1, hash: 0, shards_min: 1 }
    }
}

impl Denc for Index {
    fn encode(&self, w: &mut Writer) {
        w.framed(2, 1, |w| {
            w.u32(self.shards);
            w.u8(self.hash);
            w.u32(self.shards_min);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("bucket_index_normal_layout", 2, |r, v| {
            let (shards, hash) = (r.u32()?, r.u8()?);
            Ok(Self { shards, hash, shards_min: if v >= 2 { r.u32()? } else { 1 } })
        })
    }
}

/// A generation of an index: `bucket_index_layout_generation`, with `bucket_index_layout` in it, each `ENCODE_START(1, 1)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexGeneration {
    /// Counts reshardings.
    pub generation: u64,
    /// Whether the bucket has no index at all.
    pub is_indexless: bool,
    /// Its shards.
    pub index: Index,
}

impl Denc for IndexGeneration {
    fn encode(&self, w: &mut Writer) {
        w.framed(1, 1, |w| {
            w.u64(self.generation);
            w.framed(1, 1, |w| {
                w.u8(self.is_indexless.into());
                self.index.encode(w);
            });
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("bucket_index_layout_generation", 1, |r, _| {
            let generation = r.u64()?;
            r.framed("bucket_index_layout", 1, |r, _| {
                let kind = r.u8()?;
                r.require(kind <= 1, "an index is normal or missing")?;
                Ok(Self { generation, is_indexless: kind == 1, index: Denc::decode(r)? })
            })
        })
    }
}

/// A generation of a log in the index: `bucket_log_layout_generation` and what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogGeneration {
    /// Counts with the index's.
    pub generation: u64,
    /// 0: in the index; 1: deleted.
    pub kind: u8,
    /// The index's generation that it is in.
    pub index_generation: u64,
    /// The index's shards.
    pub index: Index,
}

impl Denc for LogGeneration {
    fn encode(&self, w: &mut Writer) {
        w.framed(1, 1, |w| {
            w.u64(self.generation);
            w.framed(1, 1, |w| {
                w.u8(self.kind);
                w.framed(1, 1, |w| {
                    w.u64(self.index_generation);
                    self.index.encode(w);
                });
            });
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("bucket_log_layout_generation", 1, |r, _| {
            let generation = r.u64()?;
            r.framed("bucket_log_layout", 1, |r, _| {
                let kind = r.u8()?;
                r.framed("bucket_index_log_layout", 1, |r, _| {
                    Ok(Self {
                        generation,
                        kind,
                        index_generation: r.u64()?,
                        index: Denc::decode(r)?,
                    })
                })
            })
        })
    }
}

/// The generations of a bucket's index and log: `BucketLayout`.
///
/// Wire: `ENCODE_START(3, 1)`; v2 added the logs, v3 `judged`. Source: `rgw_bucket_layout.h`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// 0 none, 1 in progress, 2 in the log's record.
    pub resharding: u8,
    /// In use.
    pub current: IndexGeneration,
    /// What resharding fills.
    pub target: Option<IndexGeneration>,
    /// Oldest first.
    pub logs: Vec<LogGeneration>,
    /// When resharding to fewer shards was last judged.
    pub judged: UTime,
}

impl Denc for Layout {
    fn encode(&self, w: &mut Writer) {
        w.framed(3, 1, |w| {
            w.u8(self.resharding);
            self.current.encode(w);
            self.target.encode(w);
            self.logs.encode(w);
            self.judged.encode(w);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("BucketLayout", 3, |r, v| {
            let (resharding, current, target) = (r.u8()?, Denc::decode(r)?, Denc::decode(r)?);
            let logs = if v >= 2 { Denc::decode(r)? } else { Vec::new() };
            let judged = if v >= 3 { Denc::decode(r)? } else { UTime::ZERO };
            Ok(Self { resharding, current, target, logs, judged })
        })
    }
}

/// How long new objects are locked: `ObjectLockRule` and the `DefaultRetention` in it, each `ENCODE_START(1, 1)`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockRule {
    /// `GOVERNANCE` or `COMPLIANCE`.
    pub mode: String,
    /// Days; 0 where there are years.
    pub days: i32,
    /// Years; 0 where there are days.
    pub years: i32,
}

impl Denc for LockRule {
    fn encode(&self, w: &mut Writer) {
        w.framed(1, 1, |w| {
            w.framed(1, 1, |w| {
                w.str(&self.mode);
                w.i32(self.days);
                w.i32(self.years);
            });
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("ObjectLockRule", 1, |r, _| {
            r.framed("DefaultRetention", 1, |r, _| {
                Ok(Self { mode: r.string()?, days: r.i32()?, years: r.i32()? })
            })
        })
    }
}

/// How new objects are locked: `RGWObjectLock`, `ENCODE_START(1, 1)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectLock {
    /// Always so where it is stored.
    pub is_enabled: bool,
    /// What an object gets that names no lock itself.
    pub rule: Option<LockRule>,
}

impl Denc for ObjectLock {
    fn encode(&self, w: &mut Writer) {
        w.framed(1, 1, |w| {
            w.bool(self.is_enabled);
            self.rule.encode(w);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("RGWObjectLock", 1, |r, _| {
            Ok(Self { is_enabled: r.bool()?, rule: Denc::decode(r)? })
        })
    }
}

/// A bucket's instance: `RGWBucketInfo`.
///
/// Wire: `ENCODE_START(24, 4)`; v23 added the owner's namespace, v24 the owner as a variant. Source: `rgw_common.h`; read
/// from v22 on, as releases from 16 on write it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BucketInfo {
    /// Name and ids.
    pub bucket: Bucket,
    /// Its owner.
    pub owner: Owner,
    /// [`bucket_flags`].
    pub flags: u32,
    /// Id of its zone group.
    pub zonegroup: String,
    /// When it was made.
    pub created: UTime,
    /// `PLACEMENT[/CLASS]`.
    pub placement: String,
    /// Always so in buckets of today.
    pub has_instance: bool,
    /// Its quota.
    pub quota: Quota,
    /// Whether the requester pays.
    pub requester_pays: bool,
    /// What it shows as a website.
    pub website: Option<StoredWebsite>,
    /// Where Swift's versions go.
    pub swift_versions: Option<String>,
    /// Attributes that a search engine indexes.
    pub mdsearch: BTreeMap<String, u32>,
    /// Resharding as before there were generations: status, and the new instance's id.
    pub old_reshard: (u8, String),
    /// With [`bucket_flags::OBJECT_LOCK`].
    pub lock: Option<ObjectLock>,
    /// `rgw_sync_policy_info`.
    pub sync_policy: Option<Opaque>,
    /// Its index.
    pub layout: Layout,
}

impl Denc for BucketInfo {
    fn encode(&self, w: &mut Writer) {
        let is_locked = self.flags & bucket_flags::OBJECT_LOCK != 0;
        assert!(is_locked == self.lock.is_some(), "the flag says whether a lock is stored");
        let (tenant, ns) = match &self.owner {
            Owner::User(user) => (user.tenant.as_str(), user.ns.as_str()),
            Owner::Account(_) => ("", ""),
        };
        w.framed(24, 4, |w| {
            self.bucket.encode(w);
            w.str(self.owner.uid());
            w.u32(self.flags);
            w.str(&self.zonegroup);
            w.u64(self.created.sec.into());
            w.str(&self.placement);
            w.bool(self.has_instance);
            self.quota.encode(w);
            w.bool(self.requester_pays);
            w.str(tenant);
            self.website.encode(w);
            self.swift_versions.encode(w);
            self.created.encode(w);
            self.mdsearch.encode(w);
            w.u8(self.old_reshard.0);
            w.str(&self.old_reshard.1);
            if let Some(lock) = &self.lock {
                lock.encode(w);
            }
            self.sync_policy.encode(w);
            self.layout.encode(w);
            w.str(ns);
            self.owner.encode_versioned(w);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("RGWBucketInfo", 24, |r, v| {
            r.require(v >= 22, "bucket instances are read from version 22 on")?;
            let bucket = Bucket::decode(r)?;
            let mut user = UserId { id: r.string()?, ..UserId::default() };
            let (flags, zonegroup, _sec) = (r.u32()?, r.string()?, r.u64()?);
            let (placement, has_instance, quota) = (r.string()?, r.bool()?, Quota::decode(r)?);
            let requester_pays = r.bool()?;
            user.tenant = r.string()?;
            let (website, swift_versions) = (Denc::decode(r)?, Denc::decode(r)?);
            let (created, mdsearch) = (UTime::decode(r)?, Denc::decode(r)?);
            let old_reshard = (r.u8()?, r.string()?);
            let lock =
                if flags & bucket_flags::OBJECT_LOCK == 0 { None } else { Some(Denc::decode(r)?) };
            let (sync_policy, layout) = (Denc::decode(r)?, Denc::decode(r)?);
            if v >= 23 {
                user.ns = r.string()?;
            }
            let owner = if v >= 24 { Owner::decode_versioned(r)? } else { Owner::User(user) };
            Ok(Self {
                bucket,
                owner,
                flags,
                zonegroup,
                created,
                placement,
                has_instance,
                quota,
                requester_pays,
                website,
                swift_versions,
                mdsearch,
                old_reshard,
                lock,
                sync_policy,
                layout,
            })
        })
    }
}
