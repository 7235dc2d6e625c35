//! Uploads in parts: an object that lists the parts, parts that are written like objects, and the head that names
//! them all in the end.

use std::collections::BTreeMap;

use cls::client::rgw::{RemoveOp, modify};
use cls::client::{self as lock, version};
use rgw_proto::body::Part;
use rgw_proto::checksum;
use rgw_proto::condition::Conditions;
use rgw_proto::{Code, Error, Result, uri};
use types::{Bytes, Denc, Errno, Features, OpResult, UTime, Writer};

use crate::formats::{Manifest, Opaque, Upload, UploadPart};
use crate::gateway::{ATTR, Gateway, decoded, failed, with_nul};
use crate::index::{Done, IndexEntry};
use crate::list::Query;
use crate::meta::{Attrs, BucketAt};
use crate::names::RawKey;
use crate::object::ObjectAt;
use crate::objects::{Objects, Place, PoolUse, Step, Vector};
use crate::put::{Incoming, NewHead, STRIPE_BYTES};

const MULTIPART: &str = "multipart";
/// How long a completion holds an upload, s.
const LOCK_S: u32 = 600;
const LOCK: &str = "RGWCompleteMultipart";

/// An upload under way.
#[derive(Clone, Debug)]
pub struct UploadAt {
    /// The object's key.
    pub name: String,
    /// `2~` and random letters.
    pub id: String,
    /// What was set when it was begun: the object's attributes.
    pub attrs: Attrs,
    /// When it was begun.
    pub begun: UTime,
    /// Where its parts go.
    pub info: Upload,
}

/// How an upload is completed.
pub struct Completion<'a> {
    /// The object's key, with the version that it gets.
    pub key: RawKey,
    /// The parts that it is made of.
    pub parts: &'a [Part],
    /// What must hold for what it replaces.
    pub conditions: &'a Conditions,
    /// Least bytes of a part that is not the last.
    pub part_min: u64,
    /// Attributes that the parts make: their checksum.
    pub made: &'a dyn Fn(&[&UploadPart]) -> Result<Attrs>,
}

impl UploadAt {
    fn meta_key(name: &str, id: &str) -> RawKey {
        RawKey { name: format!("{name}.{id}.meta"), instance: String::new(), ns: MULTIPART.into() }
    }

    /// What names of its parts begin with.
    fn prefix(&self) -> String {
        format!("{}.{}", self.name, self.id)
    }

    fn part_key(&self, prefix: &str, number: u32) -> RawKey {
        RawKey { name: format!("{prefix}.{number}"), instance: String::new(), ns: MULTIPART.into() }
    }
}

impl<O: Objects> Gateway<O> {
    pub(crate) fn upload_place(&self, bucket: &BucketAt, key: &RawKey) -> Place {
        let (name, locator) = key.object(&bucket.info.bucket.marker);
        let pool = match &bucket.info.bucket.explicit_pools {
            Some(pools) => &pools[1],
            None if bucket.placement.extra.name.is_empty() => &bucket.placement.data,
            None => &bucket.placement.extra,
        };
        Place { pool: pool.clone(), name, locator }
    }

    /// Begins an upload; its id.
    ///
    /// # Errors
    /// Of RADOS.
    pub async fn begin_upload(
        &self,
        bucket: &BucketAt,
        name: &str,
        info: &Upload,
        attrs: Attrs,
    ) -> Result<String> {
        let id = format!("2~{}", self.random_mixed(31));
        let key = UploadAt::meta_key(name, &id);
        let at = self.upload_place(bucket, &key);
        let made = self.make_pool(&at.pool, PoolUse::Meta).await;
        made.map_err(failed("making the pool of uploads"))?;
        let tag = self.new_tag();
        let announced = self.announce(bucket, &key, modify::ADD, &tag).await?;
        let now = self.objects.now();
        let set =
            |v: Vector, name: &str, value| v.step(Step::SetAttr(format!("{ATTR}{name}"), value));
        let mut vector = Vector::write().step(Step::Create(true));
        vector = set(vector, "idtag", with_nul(&tag));
        vector = set(vector, "tail_tag", with_nul(&tag));
        vector = vector.step(Step::WriteFull(info.to_bytes()));
        for (name, value) in &attrs {
            vector = set(vector, name, value.clone());
        }
        let epoch = match self.objects.operate(&at, vector.at(now)).await {
            Ok(answers) => answers.version,
            Err(errno) => {
                self.cancel(bucket, announced).await;
                return Err(failed("beginning the upload")(errno));
            }
        };
        let acl = attrs.get("acl").and_then(|b| crate::formats::AclPolicy::from_bytes(b).ok());
        let owner = acl.map(|acl| acl.owner).unwrap_or_default();
        let entry = IndexEntry {
            size: info.to_bytes().len() as u64,
            mtime: now,
            owner: (owner.id, owner.display_name),
            category: 3,
            ..IndexEntry::default()
        };
        let pool = self.objects.pool_id(&at.pool).unwrap_or(-1);
        self.complete(bucket, announced, Done { pool, epoch }, &entry, &[]).await?;
        Ok(id)
    }

    /// An upload.
    ///
    /// # Errors
    /// [`Code::NoSuchUpload`].
    pub async fn upload(&self, bucket: &BucketAt, name: &str, id: &str) -> Result<UploadAt> {
        let key = UploadAt::meta_key(name, id);
        let at = self.upload_place(bucket, &key);
        let vector = Vector::read().step(Step::Attrs).step(Step::Stat).step(Step::Read(0, 1 << 20));
        let answers = match self.objects.operate(&at, vector).await {
            Err(Errno::NOENT) => return Err(Code::NoSuchUpload.into()),
            other => other.map_err(failed("reading the upload"))?,
        };
        let read =
            || -> OpResult<_> { Ok((answers.attrs(0)?, answers.stat(1)?, answers.data(2)?)) };
        let (attrs, (_, begun), data) = read().map_err(failed("reading the upload"))?;
        let attrs = attrs.into_iter();
        let attrs = attrs.filter_map(|(n, v)| Some((n.strip_prefix(ATTR)?.to_owned(), v)));
        let info = decoded(&data, "The upload")?;
        Ok(UploadAt { name: name.into(), id: id.into(), attrs: attrs.collect(), begun, info })
    }

    /// Begins to take a part's bytes.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`] where the placement lost the storage class.
    pub async fn begin_part(
        &self,
        bucket: &BucketAt,
        upload: &UploadAt,
        number: u32,
    ) -> Result<Incoming<O>> {
        let class = upload.info.placement.split_once('/').map_or("", |(_, class)| class);
        let pool = bucket.placement.data_of(class).cloned().ok_or_else(|| {
            Error::new(Code::InvalidArgument, "The placement has no such storage class.")
        })?;
        self.make_pool(&pool, PoolUse::Data).await.map_err(failed("making the pool of data"))?;
        let key = RawKey { name: upload.name.clone(), ..RawKey::default() };
        Ok(self.incoming(bucket, &key, pool, &upload.prefix(), number, 0))
    }

    /// Ends a part: its bytes are in RADOS, now the upload lists it.
    ///
    /// # Errors
    /// [`Code::NoSuchUpload`] where the upload ended meanwhile.
    pub async fn end_part(
        &self,
        bucket: &BucketAt,
        upload: &UploadAt,
        number: u32,
        mut incoming: Incoming<O>,
        attrs: Attrs,
        sum: Option<Opaque>,
    ) -> Result<()> {
        let placement = upload.info.placement.clone();
        let prefix = incoming.prefix().to_owned();
        let object = RawKey { name: upload.name.clone(), ..RawKey::default() };
        let written = incoming.written(self.object_name(bucket, &object), &placement);
        let key = upload.part_key(&prefix, number);
        let tag = self.new_tag();
        let announced = self.announce(bucket, &key, modify::ADD, &tag).await?;
        let at = written.tails.first().cloned().expect("a part has a first object");
        let now = self.objects.now();
        let mut vector = Vector::write().step(Step::AssertExists);
        let id = [("idtag", with_nul(&tag)), ("tail_tag", with_nul(&tag))];
        let all = id.into_iter().chain([("manifest", written.manifest.to_bytes())]);
        for (name, value) in all.chain(attrs.iter().map(|(n, v)| (n.as_str(), v.clone()))) {
            vector = vector.step(Step::SetAttr(format!("{ATTR}{name}"), value));
        }
        let epoch = match self.objects.operate(&at, vector.at(now)).await {
            Ok(answers) => answers.version,
            Err(errno) => {
                self.cancel(bucket, announced).await;
                return Err(failed("writing the part")(errno));
            }
        };
        let etag = attrs.get("etag").map(|v| crate::gateway::attr_text(v)).unwrap_or_default();
        let size = written.manifest.size;
        let acl = attrs.get("acl").and_then(|b| crate::formats::AclPolicy::from_bytes(b).ok());
        let owner = acl.map(|acl| acl.owner).unwrap_or_default();
        let entry = IndexEntry {
            size,
            mtime: now,
            etag: etag.clone(),
            owner: (owner.id, owner.display_name),
            category: 1,
            ..IndexEntry::default()
        };
        let pool = self.objects.pool_id(&at.pool).unwrap_or(-1);
        self.complete(bucket, announced, Done { pool, epoch }, &entry, &[]).await?;
        let part = UploadPart {
            number,
            size,
            etag,
            modified: now,
            manifest: written.manifest,
            compression: UploadPart::uncompressed(),
            accounted_size: size,
            past_prefixes: Default::default(),
            sum,
        };
        self.record_part(bucket, upload, part).await
    }

    async fn record_part(
        &self,
        bucket: &BucketAt,
        upload: &UploadAt,
        part: UploadPart,
    ) -> Result<()> {
        let mut w = Writer::new(Features::ALL);
        w.framed(1, 1, |w| {
            w.str(&format!("part.{:08}", part.number));
            part.encode(w);
        });
        let at = self.upload_place(bucket, &UploadAt::meta_key(&upload.name, &upload.id));
        let vector = Vector::write()
            .step(Step::AssertExists)
            .call("rgw", "mp_upload_part_info_update", w.finish())
            .call("version", "inc", version::IncOp::default().to_bytes());
        match self.objects.operate(&at, vector).await {
            Err(Errno::NOENT) => Err(Code::NoSuchUpload.into()),
            // The same part twice at once: the other upload of it counts.
            Ok(_) | Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(failed("listing the part")(errno)),
        }
    }

    /// The parts of an upload by number.
    ///
    /// # Errors
    /// [`Code::NoSuchUpload`].
    pub async fn parts(
        &self,
        bucket: &BucketAt,
        upload: &UploadAt,
    ) -> Result<BTreeMap<u32, UploadPart>> {
        let at = self.upload_place(bucket, &UploadAt::meta_key(&upload.name, &upload.id));
        let pairs = match self.pairs(&at, "part.").await {
            Err(Errno::NOENT) => return Err(Code::NoSuchUpload.into()),
            other => other.map_err(failed("reading the upload's parts"))?,
        };
        let mut out = BTreeMap::new();
        for value in pairs.values() {
            let part: UploadPart = decoded(value, "The upload's part")?;
            out.insert(part.number, part);
        }
        Ok(out)
    }

    async fn lock_upload(&self, at: &Place, cookie: &str) -> OpResult<()> {
        let op = lock::LockOp {
            name: LOCK.into(),
            kind: lock::EXCLUSIVE,
            cookie: cookie.to_owned().into(),
            duration: UTime { sec: LOCK_S, nsec: 0 },
            ..lock::LockOp::default()
        };
        let vector = Vector::write().step(Step::AssertExists).call("lock", "lock", op.to_bytes());
        self.objects.operate(at, vector).await.map(drop)
    }

    async fn unlock_upload(&self, at: &Place, cookie: &str) {
        let op = lock::UnlockOp { name: LOCK.into(), cookie: cookie.to_owned().into() };
        let vector = Vector::write().step(Step::AssertExists).call("lock", "unlock", op.to_bytes());
        let _ = self.objects.operate(at, vector).await;
    }

    /// Completes an upload: the object's entity tag, and the attributes that its parts made.
    ///
    /// # Errors
    /// [`Code::InvalidPart`], [`Code::InvalidPartOrder`], [`Code::EntityTooSmall`], [`Code::NoSuchUpload`]; those of
    /// the conditions.
    pub async fn complete_upload(
        &self,
        bucket: &BucketAt,
        upload: &UploadAt,
        wanted: Completion<'_>,
    ) -> Result<(String, Attrs)> {
        let meta = UploadAt::meta_key(&upload.name, &upload.id);
        let at = self.upload_place(bucket, &meta);
        let cookie = self.random_mixed(16);
        match self.lock_upload(&at, &cookie).await {
            Ok(()) => {}
            Err(Errno::NOENT) => return Err(Code::NoSuchUpload.into()),
            Err(Errno::BUSY | Errno::EXIST) => {
                let text = "Another request completes this upload: ask again.";
                return Err(Error::new(Code::ServiceUnavailable, text));
            }
            Err(errno) => return Err(failed("locking the upload")(errno)),
        }
        let done = self.complete_locked(bucket, upload, wanted).await;
        if done.is_ok() {
            self.remove_upload(bucket, &meta, &at, &[]).await?;
        } else {
            self.unlock_upload(&at, &cookie).await;
        }
        done
    }

    async fn complete_locked(
        &self,
        bucket: &BucketAt,
        upload: &UploadAt,
        wanted: Completion<'_>,
    ) -> Result<(String, Attrs)> {
        let Completion { key, parts: wanted, conditions, part_min, made } = wanted;
        let have = self.parts(bucket, upload).await?;
        let mut sums = Vec::new();
        let mut parts = Vec::new();
        let mut listed = Vec::new();
        if wanted.windows(2).any(|w| w[0].number >= w[1].number) {
            return Err(Code::InvalidPartOrder.into());
        }
        for (n, want) in wanted.iter().enumerate() {
            let invalid = || {
                let text =
                    format!("Part {} was not uploaded, or its ETag is another one.", want.number);
                Error::new(Code::InvalidPart, text)
            };
            let part =
                have.get(&want.number).filter(|p| p.etag == want.etag).ok_or_else(invalid)?;
            if n + 1 < wanted.len() && part.accounted_size < part_min {
                return Err(Code::EntityTooSmall.into());
            }
            sums.extend(uri::from_hex(&part.etag).ok_or_else(invalid)?);
            parts.push((part.number, part.size, part.manifest.prefix.clone()));
            listed.push(part);
        }
        let etag = format!("{}-{}", uri::to_hex(&checksum::md5(&sums)), wanted.len());
        let name = self.object_name(bucket, &key);
        let placement = &upload.info.placement;
        let manifest = Manifest::of_parts(name, &parts, STRIPE_BYTES, &upload.prefix(), placement);
        let mut attrs = upload.attrs.clone();
        for own in ["idtag", "tail_tag", "manifest", "pg_ver", "source_zone"] {
            attrs.remove(own);
        }
        attrs.insert("etag".into(), etag.clone().into());
        let made = made(&listed)?;
        attrs.extend(made.clone());
        let new = NewHead {
            key,
            data: Bytes::new(),
            manifest,
            attrs,
            mtime: self.objects.now(),
            conditions,
            same_tail: None,
            tag: None,
            gone: have.values().map(|p| upload.part_key(&p.manifest.prefix, p.number)).collect(),
            over: None,
        };
        self.write_head(bucket, new).await?;
        // What was uploaded and is not of the object.
        let mut left = Vec::new();
        for part in have.values() {
            if !wanted.iter().any(|w| w.number == part.number) {
                left.extend(self.tail_places(bucket, &part.manifest));
            }
            left.extend(self.past_places(bucket, upload, part));
        }
        self.collect_places(left, &with_nul(&self.random_lower(32))).await;
        Ok((etag, made))
    }

    /// Objects of earlier uploads of a part.
    fn past_places(&self, bucket: &BucketAt, upload: &UploadAt, part: &UploadPart) -> Vec<Place> {
        let mut out = Vec::new();
        for prefix in &part.past_prefixes {
            // How large it was is not known: as large as a part of this upload may be found at all.
            let manifest = Manifest::of_part(
                part.manifest.head.clone(),
                part.number,
                part.size.max(STRIPE_BYTES),
                STRIPE_BYTES,
                prefix,
                &upload.info.placement,
            );
            out.extend(self.tail_places(bucket, &manifest));
        }
        out
    }

    async fn remove_upload(
        &self,
        bucket: &BucketAt,
        meta: &RawKey,
        at: &Place,
        gone: &[RawKey],
    ) -> Result<()> {
        let tag = self.new_tag();
        let announced = self.announce(bucket, meta, modify::DEL, &tag).await?;
        let remove = RemoveOp::default().to_bytes();
        let vector = Vector::write().call("rgw", "obj_remove", remove);
        let epoch = match self.objects.operate(at, vector).await {
            Ok(answers) => answers.version,
            Err(Errno::NOENT) => 0,
            Err(errno) => {
                self.cancel(bucket, announced).await;
                return Err(failed("removing the upload")(errno));
            }
        };
        let pool = self.objects.pool_id(&at.pool).unwrap_or(-1);
        let entry = IndexEntry { category: 3, ..IndexEntry::default() };
        self.complete(bucket, announced, Done { pool, epoch }, &entry, gone).await
    }

    /// Aborts an upload: its parts are collected.
    ///
    /// # Errors
    /// [`Code::NoSuchUpload`].
    pub async fn abort_upload(&self, bucket: &BucketAt, upload: &UploadAt) -> Result<()> {
        let have = self.parts(bucket, upload).await?;
        let mut tails = Vec::new();
        for part in have.values() {
            tails.extend(self.tail_places(bucket, &part.manifest));
            tails.extend(self.past_places(bucket, upload, part));
        }
        self.collect_places(tails, &with_nul(&self.random_lower(32))).await;
        let meta = UploadAt::meta_key(&upload.name, &upload.id);
        let at = self.upload_place(bucket, &meta);
        let gone: Vec<RawKey> =
            have.values().map(|p| upload.part_key(&p.manifest.prefix, p.number)).collect();
        self.remove_upload(bucket, &meta, &at, &gone).await
    }

    /// Uploads under way: key, id, owner, time; common prefixes; where the next page begins.
    ///
    /// # Errors
    /// Of RADOS.
    pub async fn uploads(&self, bucket: &BucketAt, query: &Query) -> Result<crate::list::Page> {
        let mut query = query.clone();
        query.ns = MULTIPART;
        let (key, id) = &query.after;
        if !key.is_empty() {
            // Names of uploads are KEY.ID.meta; behind all of a key where no id is given.
            let name = if id.is_empty() { format!("{key}.3") } else { format!("{key}.{id}.meta") };
            query.after = (name, String::new());
        }
        let mut out = crate::list::Page::default();
        let max = query.max;
        loop {
            query.max = max.saturating_add(1);
            let page = self.list(bucket, &query).await?;
            let next = page.next.clone();
            out.prefixes.extend(page.prefixes);
            for mut entry in page.entries {
                let Some(name) = entry.key.name.strip_suffix(".meta") else { continue };
                let Some((key, id)) = name.rsplit_once('.') else { continue };
                if out.entries.len() + out.prefixes.len() == max {
                    let last: Option<&crate::list::Entry> = out.entries.last();
                    out.next = last.map(|l| (l.key.name.clone(), l.key.instance.clone()));
                    return Ok(out);
                }
                (entry.key.instance, entry.key.name) = (id.to_owned(), key.to_owned());
                out.entries.push(entry);
            }
            match next {
                Some(next) => query.after = next,
                None => return Ok(out),
            }
        }
    }
}

/// Part `number` of an object that was uploaded in parts: first byte, length, how many there are.
#[must_use]
pub fn part_of(object: &ObjectAt, number: u32) -> Option<(u64, u64, usize)> {
    let bounds = object.manifest.as_ref().map(Manifest::part_bounds).unwrap_or_default();
    if bounds.is_empty() {
        return (number == 1).then_some((0, object.size, 0));
    }
    let found = bounds.iter().find(|b| b.0 == number)?;
    Some((found.1, found.2, bounds.len()))
}
