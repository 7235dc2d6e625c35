//! Users and buckets: objects that are read and written whole, with a version that guards them.

use std::collections::BTreeMap;

use cls::client::{user, version};
use rgw_proto::{Code, Error, Result};
use types::{Bytes, Denc, Errno, OpResult, UTime};

use crate::cache::{Raw, change_bytes, notify_object};
use crate::formats::{
    AccountInfo, Bucket, BucketInfo, EntryPoint, Index, IndexGeneration, Layout, LogGeneration,
    Owner, Placement, Pool, UserId, UserInfo, bucket_flags,
};
use crate::gateway::{ATTR, Gateway, decoded, failed};
use crate::names::index_object;
use crate::objects::{Objects, Place, PoolUse, Step, Vector};
use crate::together;

/// Bytes that one read of metadata asks for.
const BYTES_MAX: u64 = 64 << 20;
/// Shards of a new bucket's index: `rgw_default_bucket_index_max_shards`.
const SHARDS: u32 = 11;
/// Buckets of a page of a user's list.
const BUCKETS_PAGE: i32 = 1_000;

/// What names of attributes begin with here that stand without `user.rgw.` in RADOS.
pub(crate) const BARE: &str = "//";

/// Attributes by name, without `user.rgw.`.
pub type Attrs = BTreeMap<String, Bytes>;

/// A bucket as it was read.
#[derive(Clone, Debug)]
pub struct BucketAt {
    /// What its instance says.
    pub info: BucketInfo,
    /// Attributes of the instance.
    pub attrs: Attrs,
    version: version::Version,
    /// Where its objects are.
    pub placement: Placement,
}

/// How a bucket is made.
#[derive(Clone, Debug, Default)]
pub struct NewBucket {
    /// Tenant and name.
    pub tenant: String,
    /// Its name.
    pub name: String,
    /// Its owner.
    pub owner: Owner,
    /// Placement asked for; empty for the default.
    pub placement: String,
    /// Whether objects can be locked.
    pub is_locked: bool,
    /// Attributes: at least `acl`.
    pub attrs: Attrs,
}

impl UserId {
    /// `[TENANT$][NS$]ID`.
    #[must_use]
    pub fn text(&self) -> String {
        match (self.tenant.is_empty(), self.ns.is_empty()) {
            (true, true) => self.id.clone(),
            (false, true) => format!("{}${}", self.tenant, self.id),
            (_, false) => format!("{}${}${}", self.tenant, self.ns, self.id),
        }
    }
}

impl Owner {
    /// What stands for the owner in ACLs and lists.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::User(user) => user.text(),
            Self::Account(id) => id.clone(),
        }
    }
}

impl BucketAt {
    /// Whether new objects get versions.
    #[must_use]
    pub fn keeps_versions(&self) -> bool {
        self.is_versioned() && self.info.flags & bucket_flags::VERSIONS_SUSPENDED == 0
    }

    /// Whether versions are kept, or were.
    #[must_use]
    pub fn is_versioned(&self) -> bool {
        self.info.flags & bucket_flags::VERSIONED != 0
    }

    /// Objects of the index, in the order of their shards.
    #[must_use]
    pub fn index_places(&self) -> Vec<Place> {
        let current = &self.info.layout.current;
        let pool = match &self.info.bucket.explicit_pools {
            Some(pools) => &pools[2],
            None => &self.placement.index,
        };
        let at =
            |shard| Place::new(pool, index_object(&self.info.bucket.id, current.generation, shard));
        match current.index.shards {
            0 => vec![at(None)],
            n => (0..n).map(|shard| at(Some(shard))).collect(),
        }
    }

    /// The version of its instance: a number that each write raises, and a tag.
    #[must_use]
    pub fn version(&self) -> (u64, String) {
        (self.version.ver, String::from_utf8_lossy(&self.version.tag).into_owned())
    }

    /// The text that names the bucket in logs: `[TENANT:]NAME:ID`.
    #[must_use]
    pub fn key(&self) -> String {
        let bucket = &self.info.bucket;
        match bucket.tenant.as_str() {
            "" => format!("{}:{}", bucket.name, bucket.id),
            tenant => format!("{tenant}:{}:{}", bucket.name, bucket.id),
        }
    }
}

fn entry_name(tenant: &str, name: &str) -> String {
    if tenant.is_empty() { name.to_owned() } else { format!("{tenant}/{name}") }
}

fn instance_name(bucket: &Bucket) -> String {
    match bucket.tenant.as_str() {
        "" => format!(".bucket.meta.{}:{}", bucket.name, bucket.id),
        tenant => format!(".bucket.meta.{tenant}:{}:{}", bucket.name, bucket.id),
    }
}

impl<O: Objects> Gateway<O> {
    pub(crate) async fn read_meta(&self, at: &Place) -> OpResult<Raw> {
        let vector = Vector::read()
            .call("version", "read", Bytes::new())
            .step(Step::Read(0, BYTES_MAX))
            .step(Step::Attrs);
        let answers = self.objects.operate(at, vector).await?;
        let version = version::SetOp::from_bytes(&answers.data(0)?).map_err(|_| Errno::IO)?.version;
        let attrs = answers.attrs(2)?.into_iter();
        let attrs = attrs.filter(|(name, _)| !name.starts_with("ceph."));
        let attrs = attrs.map(|(name, value)| match name.strip_prefix(ATTR) {
            Some(name) => (name.to_owned(), value),
            None => (format!("{BARE}{name}"), value),
        });
        Ok(Raw { data: answers.data(1)?, attrs: attrs.collect(), version })
    }

    /// As [`Gateway::read_meta`], from the cache where it is there.
    pub(crate) async fn known_meta(&self, at: &Place) -> OpResult<Raw> {
        if let Some(raw) = self.cache.get(at, self.objects.now()) {
            return Ok(raw);
        }
        let begun = self.cache.begin();
        let raw = self.read_meta(at).await?;
        self.cache.put(at, &raw, begun, self.objects.now());
        Ok(raw)
    }

    /// Whom an access key, or another name of a user, leads to.
    pub(crate) async fn known_lead(&self, at: &Place) -> OpResult<Bytes> {
        if let Some(raw) = self.cache.get(at, self.objects.now()) {
            return Ok(raw.data);
        }
        let begun = self.cache.begin();
        let vector = Vector::read().step(Step::Read(0, BYTES_MAX));
        let data = self.objects.operate(at, vector).await?.data(0)?;
        let raw = Raw { data, attrs: Attrs::new(), version: version::Version::default() };
        self.cache.put(at, &raw, begun, self.objects.now());
        Ok(raw.data)
    }

    /// Writes a metadata object: a new one, or over the version that was read.
    pub(crate) async fn write_meta(
        &self,
        at: &Place,
        data: Bytes,
        attrs: &Attrs,
        over: Option<&version::Version>,
    ) -> OpResult<()> {
        let mut vector = match over {
            None => {
                let version = version::Version { ver: 1, tag: self.random_mixed(24).into() };
                let set = version::SetOp { version }.to_bytes();
                Vector::write().step(Step::Create(true)).call("version", "set", set)
            }
            Some(read) => {
                let condition = version::Condition { version: read.clone(), kind: 1 };
                let check = version::IncOp { conditions: vec![condition], ..Default::default() };
                Vector::write()
                    .try_step(Step::Remove)
                    .step(Step::Create(false))
                    .call("version", "check_conds", check.to_bytes())
                    .call("version", "inc", version::IncOp::default().to_bytes())
            }
        };
        vector = vector.step(Step::WriteFull(data));
        for (name, value) in attrs {
            let name = match name.strip_prefix(BARE) {
                Some(bare) => bare.to_owned(),
                None => format!("{ATTR}{name}"),
            };
            vector = vector.step(Step::SetAttr(name, value.clone()));
        }
        self.change_meta(at, vector).await
    }

    /// Changes a metadata object, and tells of it. It is forgotten here also where the change may have failed.
    async fn change_meta(&self, at: &Place, vector: Vector) -> OpResult<()> {
        let changed = self.objects.operate(at, vector).await;
        self.cache.forget(at, self.objects.now());
        changed?;
        self.tell(at).await;
        Ok(())
    }

    pub(crate) async fn remove_meta(&self, at: &Place, read: &version::Version) -> OpResult<()> {
        let condition = version::Condition { version: read.clone(), kind: 1 };
        let check = version::IncOp { conditions: vec![condition], ..Default::default() };
        let vector = Vector::write()
            .call("version", "check_conds", check.to_bytes())
            .call("version", "inc", version::IncOp::default().to_bytes())
            .step(Step::Remove);
        self.change_meta(at, vector).await
    }

    /// Has other gateways forget what they know of a metadata object: `RGWCacheNotifyInfo`, to invalidate.
    pub(crate) async fn tell(&self, at: &Place) {
        self.cache.forget(at, self.objects.now());
        let place = Place::new(&self.zone.control, notify_object(at));
        // Nobody to tell is no error; who did not answer in time finds the change when its cache ends.
        let _ = self.objects.notify(&place, change_bytes(at)).await;
    }

    /// A user by access key, with attributes: those hold the user's policies.
    ///
    /// # Errors
    /// [`Code::InvalidAccessKeyId`] where no user has it.
    pub async fn user_by_key(&self, access_key: &str) -> Result<(UserInfo, Attrs)> {
        let at = Place::new(&self.zone.users.keys, access_key);
        let data = match self.known_lead(&at).await {
            Err(Errno::NOENT) => return Err(Code::InvalidAccessKeyId.into()),
            other => other.map_err(failed("reading the access key"))?,
        };
        let uid: String = decoded(&data, "The access key")?;
        let user = self.known_user(&uid).await?;
        user.ok_or_else(|| Error::from(Code::InvalidAccessKeyId))
    }

    /// A user by the name of a subuser, `UID:NAME`, that has a key of Swift; with attributes.
    ///
    /// # Errors
    /// [`Code::NoSuchUser`] where no user has it.
    pub async fn user_by_swift(&self, name: &str) -> Result<(UserInfo, Attrs)> {
        let at = Place::new(&self.zone.users.swift, name);
        let data = match self.known_lead(&at).await {
            Err(Errno::NOENT) => return Err(Code::NoSuchUser.into()),
            other => other.map_err(failed("reading the subuser"))?,
        };
        let uid: String = decoded(&data, "The subuser")?;
        let user = self.known_user(&uid).await?;
        user.ok_or_else(|| Error::from(Code::NoSuchUser))
    }

    /// A user by `[TENANT$]ID`, from the cache where it is there; `None` where there is none.
    ///
    /// # Errors
    /// Of RADOS.
    pub async fn user(&self, uid: &str) -> Result<Option<UserInfo>> {
        Ok(self.known_user(uid).await?.map(|(user, _)| user))
    }

    /// An account, from the cache where it is there.
    ///
    /// # Errors
    /// [`Code::InternalError`] where there is none: its users and buckets should have gone before it. Of RADOS.
    pub async fn account(&self, id: &str) -> Result<AccountInfo> {
        let at = Place::new(&self.zone.iam.accounts, format!("account.{id}"));
        let raw = self.known_meta(&at).await.map_err(failed(&format!("reading account {id}")))?;
        decoded(&raw.data, "The account")
    }

    /// As [`Gateway::user`], with attributes: those hold the user's policies.
    ///
    /// # Errors
    /// Of RADOS.
    pub async fn known_user(&self, uid: &str) -> Result<Option<(UserInfo, Attrs)>> {
        let at = Place::new(&self.zone.users.uid, uid);
        match self.known_meta(&at).await {
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(failed("reading the user")(errno)),
            Ok(raw) => Ok(Some((user_of(&raw.data)?, raw.attrs))),
        }
    }

    /// A user as it is now, with attributes and version.
    pub(crate) async fn user_raw(
        &self,
        uid: &str,
    ) -> Result<Option<(UserInfo, Attrs, version::Version)>> {
        let at = Place::new(&self.zone.users.uid, uid);
        match self.read_meta(&at).await {
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(failed("reading the user")(errno)),
            Ok(raw) => Ok(Some((user_of(&raw.data)?, raw.attrs, raw.version))),
        }
    }

    /// A bucket, from the cache where it is there.
    ///
    /// # Errors
    /// [`Code::NoSuchBucket`].
    pub async fn bucket(&self, tenant: &str, name: &str) -> Result<BucketAt> {
        let at = Place::new(&self.zone.domain_root, entry_name(tenant, name));
        let raw = self.known_meta(&at).await.map_err(no_bucket)?;
        let entry: EntryPoint = decoded(&raw.data, "The bucket's entry point")?;
        let at = Place::new(&self.zone.domain_root, instance_name(&entry.bucket));
        let raw = self.known_meta(&at).await.map_err(no_bucket)?;
        self.bucket_of(raw)
    }

    /// A bucket as it is now: for what no cache must be asked.
    ///
    /// # Errors
    /// As [`Gateway::bucket`].
    pub async fn bucket_now(&self, tenant: &str, name: &str) -> Result<BucketAt> {
        let at = Place::new(&self.zone.domain_root, entry_name(tenant, name));
        let raw = self.read_meta(&at).await.map_err(no_bucket)?;
        let entry: EntryPoint = decoded(&raw.data, "The bucket's entry point")?;
        self.bucket_instance(&entry.bucket).await
    }

    /// A bucket by its ids, as it is now.
    ///
    /// # Errors
    /// As [`Gateway::bucket`].
    pub async fn bucket_instance(&self, bucket: &Bucket) -> Result<BucketAt> {
        let at = Place::new(&self.zone.domain_root, instance_name(bucket));
        let raw = self.read_meta(&at).await.map_err(no_bucket)?;
        self.bucket_of(raw)
    }

    fn bucket_of(&self, raw: Raw) -> Result<BucketAt> {
        let info: BucketInfo = decoded(&raw.data, "The bucket")?;
        let name = info.placement.split('/').next().unwrap_or_default();
        let name = if name.is_empty() { "default-placement" } else { name };
        let Some(placement) = self.zone.placements.get(name).cloned() else {
            let text =
                format!("The zone has no placement {name}: the bucket's objects cannot be found.");
            return Err(Error::new(Code::ZonegroupDefaultPlacementMisconfiguration, text));
        };
        Ok(BucketAt { info, attrs: raw.attrs, version: raw.version, placement })
    }

    /// Writes a changed instance and its attributes. What others changed since it was read is kept:
    /// the caller reads anew.
    ///
    /// # Errors
    /// [`Code::ConcurrentModification`].
    pub async fn save_bucket(&self, bucket: &BucketAt) -> Result<()> {
        let at = Place::new(&self.zone.domain_root, instance_name(&bucket.info.bucket));
        let data = bucket.info.to_bytes();
        let written = self.write_meta(&at, data, &bucket.attrs, Some(&bucket.version)).await;
        written.map_err(failed("writing the bucket"))
    }

    /// Reads a bucket, changes it, writes it; again where another writer came between.
    ///
    /// # Errors
    /// Those of `change`; as [`Gateway::save_bucket`].
    pub async fn change_bucket(
        &self,
        bucket: &Bucket,
        mut change: impl FnMut(&mut BucketAt) -> Result<()>,
    ) -> Result<()> {
        let mut left = 10;
        loop {
            let mut now = self.bucket_instance(bucket).await?;
            change(&mut now)?;
            match self.save_bucket(&now).await {
                Err(error) if error.code == Code::ConcurrentModification && left > 0 => left -= 1,
                other => return other,
            }
        }
    }

    /// Makes a bucket. Returns whether it is new: `false` where the owner has it already.
    ///
    /// # Errors
    /// [`Code::BucketAlreadyExists`], [`Code::InvalidLocationConstraint`], [`Code::TooManyBuckets`].
    pub async fn make_bucket(&self, new: NewBucket, buckets_max: i32) -> Result<bool> {
        let entry_at = Place::new(&self.zone.domain_root, entry_name(&new.tenant, &new.name));
        match self.read_meta(&entry_at).await {
            Ok(raw) => return self.own_again(&raw, &new.owner).await,
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(failed("reading the bucket")(errno)),
        }
        if buckets_max < 0 {
            return Err(Code::TooManyBuckets.into());
        }
        if buckets_max > 0 && self.buckets_of(&new.owner).await?.len() >= buckets_max as usize {
            return Err(Code::TooManyBuckets.into());
        }
        let rule = if new.placement.is_empty() {
            match self.group.default_placement.as_str() {
                "" => "default-placement".to_owned(),
                rule => rule.to_owned(),
            }
        } else {
            new.placement.clone()
        };
        let name = rule.split('/').next().unwrap_or_default();
        let Some(placement) = self.zone.placements.get(name).cloned() else {
            let text = format!("The zone has no placement {name:?}.");
            return Err(Error::new(Code::InvalidLocationConstraint, text));
        };
        let bucket = self.new_instance(&new, rule, placement);
        let index = index_init(self, &bucket).await;
        index.map_err(failed("making the bucket's index"))?;
        let at = Place::new(&self.zone.domain_root, instance_name(&bucket.info.bucket));
        let written = self.write_meta(&at, bucket.info.to_bytes(), &bucket.attrs, None).await;
        written.map_err(failed("writing the bucket"))?;
        let entry = EntryPoint {
            bucket: bucket.info.bucket.clone(),
            owner: bucket.info.owner.clone(),
            is_linked: true,
            created: bucket.info.created,
        };
        match self.write_meta(&entry_at, entry.to_bytes(), &Attrs::new(), None).await {
            Ok(()) => {}
            Err(Errno::EXIST) => {
                // Another request was first: what was made here is of no use to anybody.
                let raw = self.read_meta(&at).await.map_err(failed("reading the bucket"))?;
                let _ = self.remove_meta(&at, &raw.version).await;
                self.remove_index(&bucket).await;
                let raw = self.read_meta(&entry_at).await.map_err(failed("reading the bucket"))?;
                return self.own_again(&raw, &new.owner).await;
            }
            Err(errno) => return Err(failed("writing the bucket's entry point")(errno)),
        }
        self.link(&new.owner, &bucket.info.bucket, bucket.info.created).await?;
        Ok(true)
    }

    async fn own_again(&self, raw: &Raw, owner: &Owner) -> Result<bool> {
        let entry: EntryPoint = decoded(&raw.data, "The bucket's entry point")?;
        if entry.owner != *owner {
            return Err(Code::BucketAlreadyExists.into());
        }
        // A gateway that died before it did this left the bucket out of the user's.
        self.link(owner, &entry.bucket, entry.created).await?;
        Ok(false)
    }

    fn new_instance(&self, new: &NewBucket, rule: String, placement: Placement) -> BucketAt {
        let id = self.new_bucket_id();
        let index = Index { shards: SHARDS, hash: 0, shards_min: SHARDS };
        let is_indexless = placement.is_indexless;
        let current = IndexGeneration { generation: 0, is_indexless, index };
        let log = LogGeneration { generation: 0, kind: 0, index_generation: 0, index };
        let lock =
            new.is_locked.then_some(crate::formats::ObjectLock { is_enabled: true, rule: None });
        let flags =
            if new.is_locked { bucket_flags::VERSIONED | bucket_flags::OBJECT_LOCK } else { 0 };
        let info = BucketInfo {
            bucket: Bucket {
                name: new.name.clone(),
                marker: id.clone(),
                id,
                tenant: new.tenant.clone(),
                explicit_pools: None,
            },
            owner: new.owner.clone(),
            flags,
            zonegroup: self.group.id.clone(),
            created: self.objects.now(),
            placement: rule,
            has_instance: true,
            lock,
            layout: Layout { current, logs: vec![log], ..Layout::default() },
            ..BucketInfo::default()
        };
        BucketAt { info, attrs: new.attrs.clone(), version: version::Version::default(), placement }
    }

    /// What a bucket's name leads to.
    pub(crate) fn entry_place(&self, tenant: &str, name: &str) -> Place {
        Place::new(&self.zone.domain_root, entry_name(tenant, name))
    }

    /// What a bucket's name leads to, with number and tag of its version.
    ///
    /// # Errors
    /// [`Code::NoSuchBucket`].
    pub async fn entry_point(
        &self,
        tenant: &str,
        name: &str,
    ) -> Result<(EntryPoint, (u64, String))> {
        let raw = self.read_meta(&self.entry_place(tenant, name)).await.map_err(no_bucket)?;
        let tag = String::from_utf8_lossy(&raw.version.tag).into_owned();
        Ok((decoded(&raw.data, "The bucket's entry point")?, (raw.version.ver, tag)))
    }

    /// When a bucket's instance, or its entry point, was written.
    ///
    /// # Errors
    /// [`Code::NoSuchBucket`].
    pub async fn written_at(&self, bucket: &Bucket, is_entry: bool) -> Result<UTime> {
        let name = match is_entry {
            true => entry_name(&bucket.tenant, &bucket.name),
            false => instance_name(bucket),
        };
        self.meta_time(&Place::new(&self.zone.domain_root, name)).await.map_err(no_bucket)
    }

    pub(crate) async fn meta_time(&self, at: &Place) -> OpResult<UTime> {
        let answers = self.objects.operate(at, Vector::read().step(Step::Stat)).await?;
        Ok(answers.stat(0)?.1)
    }

    /// The object that lists an owner's buckets.
    pub(crate) fn buckets_place(&self, owner: &Owner) -> Place {
        match owner {
            Owner::User(user) => {
                Place::new(&self.zone.users.uid, format!("{}.buckets", user.text()))
            }
            Owner::Account(id) => Place::new(&self.zone.iam.accounts, format!("buckets.{id}")),
        }
    }

    pub(crate) async fn link(&self, owner: &Owner, bucket: &Bucket, created: UTime) -> Result<()> {
        let entry = user::BucketEntry {
            bucket: user_bucket(bucket),
            created,
            synced: false,
            ..user::BucketEntry::default()
        };
        let op = user::SetOp { entries: vec![entry], add: true, time: self.objects.now() };
        let vector = Vector::write().call("user", "set_buckets_info", op.to_bytes());
        let linked = self.objects.operate(&self.buckets_place(owner), vector).await;
        linked.map(drop).map_err(failed("adding the bucket to the user's"))
    }

    /// Names and times of all buckets of a user or account, in order of names.
    ///
    /// # Errors
    /// Of RADOS.
    pub async fn buckets_of(&self, owner: &Owner) -> Result<Vec<(String, UTime)>> {
        let mut out = Vec::new();
        let mut marker = Bytes::new();
        loop {
            let op = user::ListOp { marker, max: BUCKETS_PAGE, end_marker: Bytes::new() };
            let vector = Vector::read().call("user", "list_buckets", op.to_bytes());
            let answers = match self.objects.operate(&self.buckets_place(owner), vector).await {
                Err(Errno::NOENT) => return Ok(out),
                other => other.map_err(failed("listing the user's buckets"))?,
            };
            let data = answers.data(0).map_err(failed("listing the user's buckets"))?;
            let page: user::Listed = decoded(&data, "The list of buckets")?;
            let name = |name: &Bytes| String::from_utf8_lossy(name).into_owned();
            out.extend(page.entries.iter().map(|e| (name(&e.bucket.name), e.created)));
            if !page.truncated {
                return Ok(out);
            }
            marker = page.marker;
        }
    }

    /// Removes a bucket that holds nothing; the caller has looked.
    ///
    /// # Errors
    /// [`Code::ConcurrentModification`]; of RADOS.
    pub async fn remove_bucket(&self, bucket: &BucketAt) -> Result<()> {
        let info = &bucket.info;
        let entry =
            Place::new(&self.zone.domain_root, entry_name(&info.bucket.tenant, &info.bucket.name));
        let raw = self.read_meta(&entry).await.map_err(failed("reading the bucket"))?;
        let removed = self.remove_meta(&entry, &raw.version).await;
        removed.map_err(failed("removing the bucket's entry point"))?;
        let at = Place::new(&self.zone.domain_root, instance_name(&info.bucket));
        let raw = self.read_meta(&at).await.map_err(failed("reading the bucket"))?;
        let removed = self.remove_meta(&at, &raw.version).await;
        removed.map_err(failed("removing the bucket"))?;
        self.remove_index(bucket).await;
        let op = user::RemoveOp { bucket: user_bucket(&info.bucket) };
        let vector = Vector::write().call("user", "remove_bucket", op.to_bytes());
        let unlinked = self.objects.operate(&self.buckets_place(&info.owner), vector).await;
        unlinked.map_err(failed("taking the bucket from its owner's"))?;
        Ok(())
    }

    async fn remove_index(&self, bucket: &BucketAt) {
        let all = bucket.index_places();
        let removals = all.iter().map(|at| {
            let vector = Vector::write().step(Step::Remove);
            self.objects.operate(at, vector)
        });
        together::all(removals).await;
    }

    /// Makes a pool of the placement where it is missing: only the first object of its kind does.
    pub(crate) async fn make_pool(&self, pool: &Pool, why: PoolUse) -> OpResult<()> {
        if self.objects.pool_id(pool).is_some() {
            return Ok(());
        }
        self.objects.make_pool(pool, why).await
    }
}

pub(crate) fn no_bucket(errno: Errno) -> Error {
    match errno {
        Errno::NOENT => Code::NoSuchBucket.into(),
        errno => failed("reading the bucket")(errno),
    }
}

fn user_of(data: &Bytes) -> Result<UserInfo> {
    let mut r = types::Reader::shared(data);
    let read = r.string().and_then(|_uid| UserInfo::decode(&mut r));
    read.map_err(|_| crate::gateway::garbled("The user"))
}

pub(crate) fn user_bucket(bucket: &Bucket) -> user::Bucket {
    user::Bucket {
        name: bucket.name.clone().into(),
        marker: bucket.marker.clone().into(),
        id: bucket.id.clone().into(),
        ..user::Bucket::default()
    }
}

async fn index_init<O: Objects>(gateway: &Gateway<O>, bucket: &BucketAt) -> OpResult<()> {
    if bucket.info.layout.current.is_indexless {
        return Ok(());
    }
    let all = bucket.index_places();
    gateway.make_pool(&all[0].pool, PoolUse::Meta).await?;
    let inits = all.iter().map(|at| {
        let vector =
            Vector::write().step(Step::Create(true)).call("rgw", "bucket_init_index", Bytes::new());
        gateway.objects.operate(at, vector)
    });
    together::all(inits).await.into_iter().try_for_each(|done| done.map(drop))
}
