//! Objects: their state, their bytes, and their end.

use cls::client::rgw::{RemoveOp, modify};
use rgw_proto::acl::Owner;
use rgw_proto::{Code, Result};
use types::{Bytes, Denc, Errno, OpResult, UTime};

use crate::formats::{Manifest, OlhInfo};
use crate::gateway::{ATTR, Gateway, attr_text, decoded, failed};
use crate::index::{Done, IndexEntry};
use crate::manifest::Stripe;
use crate::meta::{Attrs, BucketAt};
use crate::names::RawKey;
use crate::objects::{Objects, Place, Step, Vector};

/// Bytes that a head holds, and that a first read asks for: `rgw_max_chunk_size`.
pub const HEAD_BYTES: u64 = 4 << 20;
/// Attempts of a change that others come before.
pub(crate) const TRIES: u32 = 10;

/// An object that is there.
#[derive(Clone, Debug)]
pub struct ObjectAt {
    /// Its key, with the version that was found.
    pub key: RawKey,
    /// Attributes by name, without `user.rgw.`.
    pub attrs: Attrs,
    /// When it was last changed.
    pub mtime: UTime,
    /// Length in bytes.
    pub size: u64,
    /// Where its bytes are.
    pub manifest: Option<Manifest>,
    /// What of the head was read with it, from the head's beginning.
    pub prefetched: Bytes,
}

impl ObjectAt {
    /// An attribute as text; empty where it is missing.
    #[must_use]
    pub fn text(&self, name: &str) -> String {
        self.attrs.get(name).map(|value| attr_text(value)).unwrap_or_default()
    }

    /// The tag of the last write.
    pub(crate) fn id_tag(&self) -> Option<&Bytes> {
        self.attrs.get("idtag")
    }

    /// The tag that the tail is kept by, as it stands in the attribute: references are held and given
    /// up with its NUL, by upstream's gateways too (`RGWRados::copy_obj`, `RGWGC::send_chain`).
    pub(crate) fn tail_tag(&self) -> Bytes {
        let tag = self.attrs.get("tail_tag").or_else(|| self.attrs.get("idtag"));
        tag.cloned().unwrap_or_default()
    }

    /// Whether the plain name only leads to a version, and holds no object itself.
    pub(crate) fn is_link_only(&self) -> bool {
        !self.attrs.contains_key("etag") && self.attrs.contains_key("olh.idtag")
    }
}

/// Where a plain name leads.
pub(crate) enum Led {
    /// To an object.
    Object(Box<ObjectAt>),
    /// To a delete marker.
    Marker(String),
    /// It leads nowhere.
    Nothing,
}

impl<O: Objects> Gateway<O> {
    /// The RADOS object of a head.
    pub(crate) fn head_place(&self, bucket: &BucketAt, key: &RawKey) -> Place {
        let (name, locator) = key.object(&bucket.info.bucket.marker);
        let pool = match &bucket.info.bucket.explicit_pools {
            Some(pools) => &pools[0],
            None => &bucket.placement.data,
        };
        Place { pool: pool.clone(), name, locator }
    }

    /// The RADOS object of a stripe; `None` for the head.
    pub(crate) fn tail_place(
        &self,
        bucket: &BucketAt,
        manifest: &Manifest,
        stripe: &Stripe,
    ) -> Option<Place> {
        let (marker, key) = stripe.tail.as_ref()?;
        let (name, locator) = key.object(marker);
        let class = manifest.tail_placement.split_once('/').map_or("", |(_, class)| class);
        let pool = match &bucket.info.bucket.explicit_pools {
            Some(pools) => &pools[0],
            None => bucket.placement.data_of(class).unwrap_or(&bucket.placement.data),
        };
        Some(Place { pool: pool.clone(), name, locator })
    }

    /// Reads an object's state by its exact name; with `prefetch`, its first bytes too.
    pub(crate) async fn state(
        &self,
        bucket: &BucketAt,
        key: &RawKey,
        prefetch: bool,
    ) -> Result<Option<ObjectAt>> {
        let at = self.head_place(bucket, key);
        self.state_at(&at, key, prefetch).await
    }

    pub(crate) async fn state_at(
        &self,
        at: &Place,
        key: &RawKey,
        prefetch: bool,
    ) -> Result<Option<ObjectAt>> {
        let mut vector = Vector::read().step(Step::Attrs).step(Step::Stat);
        if prefetch {
            vector = vector.step(Step::Read(0, HEAD_BYTES));
        }
        let read = async || -> OpResult<_> {
            let answers = self.objects.operate(at, vector).await?;
            let prefetched = if prefetch { answers.data(2)? } else { Bytes::new() };
            Ok((answers.attrs(0)?, answers.stat(1)?, prefetched))
        };
        let (attrs, (size, mtime), prefetched) = match read().await {
            Err(Errno::NOENT) => return Ok(None),
            other => other.map_err(failed("reading the object"))?,
        };
        let attrs = attrs.into_iter();
        let attrs: Attrs =
            attrs.filter_map(|(n, v)| Some((n.strip_prefix(ATTR)?.to_owned(), v))).collect();
        let manifest = attrs.get("manifest").filter(|m| !m.is_empty());
        let manifest: Option<Manifest> =
            manifest.map(|bytes| decoded(bytes, "The manifest")).transpose()?;
        let size = manifest.as_ref().map_or(size, |m| m.size);
        Ok(Some(ObjectAt { key: key.clone(), attrs, mtime, size, manifest, prefetched }))
    }

    /// Follows a plain name to the current version.
    pub(crate) async fn led(&self, bucket: &BucketAt, name: &str, prefetch: bool) -> Result<Led> {
        let key = RawKey { name: name.into(), ..RawKey::default() };
        for _ in 0..TRIES {
            let Some(state) = self.state(bucket, &key, prefetch).await? else {
                return Ok(Led::Nothing);
            };
            if state.attrs.keys().any(|name| name.starts_with("olh.pending.")) {
                self.settle(bucket, &state).await?;
                let now = self.state(bucket, &key, prefetch).await?;
                let Some(now) = now else { return Ok(Led::Nothing) };
                match self.follow(bucket, now, prefetch).await? {
                    Some(led) => return Ok(led),
                    None => continue,
                }
            }
            if let Some(led) = self.follow(bucket, state.clone(), prefetch).await? {
                return Ok(led);
            }
            // The version is gone. Whoever removed it is about to say where the name leads now, or died: then the
            // index's log says it.
            self.settle(bucket, &state).await?;
        }
        Ok(Led::Nothing)
    }

    /// `None` where the version that was named is gone: the name leads elsewhere by now.
    async fn follow(
        &self,
        bucket: &BucketAt,
        state: ObjectAt,
        prefetch: bool,
    ) -> Result<Option<Led>> {
        let Some(info) = state.attrs.get("olh.info") else {
            let nothing = state.is_link_only();
            return Ok(Some(if nothing { Led::Nothing } else { Led::Object(Box::new(state)) }));
        };
        let info: OlhInfo = decoded(info, "The link to the current version")?;
        if info.is_removed {
            return Ok(Some(Led::Marker(info.target.instance)));
        }
        if info.target.instance.is_empty() || info.target.instance == "null" {
            let nothing = state.is_link_only();
            return Ok(Some(if nothing { Led::Nothing } else { Led::Object(Box::new(state)) }));
        }
        let key =
            RawKey { name: state.key.name, instance: info.target.instance, ns: String::new() };
        let found = self.state(bucket, &key, prefetch).await?;
        Ok(found.map(|state| Led::Object(Box::new(state))))
    }

    /// An object: its current version, or that named (`null` for the one without).
    ///
    /// # Errors
    /// [`Code::NoSuchKey`]; with it, whether a delete marker stands there, and its version.
    pub async fn object(
        &self,
        bucket: &BucketAt,
        name: &str,
        version: Option<&str>,
        prefetch: bool,
    ) -> Result<std::result::Result<ObjectAt, Option<String>>> {
        match version {
            Some(instance) => {
                let instance = if instance == "null" { "" } else { instance };
                let key =
                    RawKey { name: name.into(), instance: instance.into(), ns: String::new() };
                let found = self.state(bucket, &key, prefetch).await?;
                Ok(found.filter(|state| !state.is_link_only()).ok_or(None))
            }
            None => Ok(match self.led(bucket, name, prefetch).await? {
                Led::Object(state) => Ok(*state),
                Led::Marker(instance) => Err(Some(instance)),
                Led::Nothing => Err(None),
            }),
        }
    }

    /// Whether a plain name leads to versions.
    ///
    /// # Errors
    /// Of RADOS.
    pub async fn has_versions(&self, bucket: &BucketAt, name: &str) -> Result<bool> {
        let key = RawKey { name: name.into(), ..RawKey::default() };
        let state = self.state(bucket, &key, false).await?;
        Ok(state.is_some_and(|s| s.attrs.contains_key("olh.idtag")))
    }

    /// Whether a version is the delete marker that a plain name leads to.
    ///
    /// # Errors
    /// Of RADOS.
    pub async fn is_marker(&self, bucket: &BucketAt, name: &str, version: &str) -> Result<bool> {
        let version = if version == "null" { "" } else { version };
        Ok(matches!(self.led(bucket, name, false).await?, Led::Marker(id) if id == version))
    }

    /// What to read for a run of an object's bytes, in order: place, offset, length.
    #[must_use]
    pub fn reads(
        &self,
        bucket: &BucketAt,
        object: &ObjectAt,
        from: u64,
        len: u64,
    ) -> Vec<(Place, u64, u64)> {
        let head = self.head_place(bucket, &object.key);
        let Some(manifest) = &object.manifest else { return vec![(head, from, len)] };
        let end = from + len;
        let mut out = Vec::new();
        for stripe in manifest.stripes() {
            let (first, last) = (stripe.offset.max(from), (stripe.offset + stripe.len).min(end));
            if first < last {
                let at = self.tail_place(bucket, manifest, &stripe).unwrap_or_else(|| head.clone());
                out.push((at, stripe.at + first - stripe.offset, last - first));
            }
        }
        out
    }

    /// Reads one run. Of the head only while it is the one that was found.
    ///
    /// # Errors
    /// [`Code::InternalError`] where the object was overwritten meanwhile, or bytes are missing.
    pub async fn read(
        &self,
        bucket: &BucketAt,
        object: &ObjectAt,
        (at, offset, len): &(Place, u64, u64),
    ) -> Result<Bytes> {
        let is_head = *at == self.head_place(bucket, &object.key);
        let end = offset + len;
        if is_head && end <= object.prefetched.len() as u64 {
            return Ok(object.prefetched.slice(*offset as usize..end as usize));
        }
        let mut vector = Vector::read();
        let mut step = 0;
        if let Some(tag) = object.id_tag().filter(|_| is_head) {
            vector = vector.step(Step::CmpAttr(format!("{ATTR}idtag"), tag.clone()));
            step = 1;
        }
        let answers = self.objects.operate(at, vector.step(Step::Read(*offset, *len))).await;
        let data = answers.and_then(|a| a.data(step)).map_err(failed("reading the object"))?;
        if data.len() as u64 != *len {
            return Err(failed("reading the object: it ends too early")(Errno::IO));
        }
        Ok(data)
    }

    /// Removes an object of a bucket without versions, or one version's own object. Returns whether it was there.
    ///
    /// # Errors
    /// Those of `check`; of RADOS.
    pub async fn remove_exact(
        &self,
        bucket: &BucketAt,
        key: &RawKey,
        mut check: impl FnMut(Option<&ObjectAt>) -> Result<()>,
    ) -> Result<bool> {
        for _ in 0..TRIES {
            let state = self.state(bucket, key, false).await?;
            check(state.as_ref())?;
            let Some(state) = state else { return Ok(false) };
            let tag = self.new_tag();
            let announced = self.announce(bucket, key, modify::DEL, &tag).await?;
            let at = self.head_place(bucket, key);
            let mut vector = Vector::write();
            if let Some(tag) = state.id_tag() {
                vector = vector.step(Step::CmpAttr(format!("{ATTR}idtag"), tag.clone()));
            }
            let keep = RemoveOp { keep_prefixes: vec![format!("{ATTR}olh.").into()] };
            let vector = vector.call("rgw", "obj_remove", keep.to_bytes());
            let epoch = match self.objects.operate(&at, vector).await {
                Ok(answers) => answers.version,
                Err(Errno::CANCELED) => {
                    self.cancel(bucket, announced).await;
                    continue;
                }
                // Another request removed it: the index learns of it all the same.
                Err(Errno::NOENT) => 0,
                Err(errno) => {
                    self.cancel(bucket, announced).await;
                    return Err(failed("removing the object")(errno));
                }
            };
            let pool = self.objects.pool_id(&at.pool).unwrap_or(-1);
            let entry = IndexEntry { mtime: self.objects.now(), ..IndexEntry::default() };
            self.complete(bucket, announced, Done { pool, epoch }, &entry, &[]).await?;
            if let Some(manifest) = &state.manifest {
                self.collect(bucket, manifest, &state.tail_tag()).await;
            }
            return Ok(true);
        }
        Err(Code::ConcurrentModification.into())
    }

    /// Changes attributes of an object: `set` gets a value, `unset` goes.
    ///
    /// # Errors
    /// [`Code::NoSuchKey`]; [`Code::ConcurrentModification`].
    pub async fn change_attrs(
        &self,
        bucket: &BucketAt,
        object: &ObjectAt,
        set: Attrs,
        unset: &[&str],
    ) -> Result<()> {
        let tag = self.new_tag();
        let announced = self.announce(bucket, &object.key, modify::ADD, &tag).await?;
        let at = self.head_place(bucket, &object.key);
        let mut vector = Vector::write().step(Step::AssertExists);
        if let Some(tag) = object.id_tag() {
            vector = vector.step(Step::CmpAttr(format!("{ATTR}idtag"), tag.clone()));
        }
        let mut after = object.clone();
        for name in unset {
            if after.attrs.remove(*name).is_some() {
                vector = vector.step(Step::RmAttr(format!("{ATTR}{name}")));
            }
        }
        for (name, value) in set {
            vector = vector.step(Step::SetAttr(format!("{ATTR}{name}"), value.clone()));
            after.attrs.insert(name, value);
        }
        match self.objects.operate(&at, vector.at(object.mtime)).await {
            Ok(answers) => {
                let pool = self.objects.pool_id(&at.pool).unwrap_or(-1);
                let done = Done { pool, epoch: answers.version };
                self.complete(bucket, announced, done, &after.entry(), &[]).await
            }
            Err(errno) => {
                self.cancel(bucket, announced).await;
                Err(match errno {
                    Errno::NOENT => Code::NoSuchKey.into(),
                    errno => failed("changing the object's attributes")(errno),
                })
            }
        }
    }
}

impl ObjectAt {
    /// Who owns it, by its ACL.
    #[must_use]
    pub fn owner(&self) -> Owner {
        let acl = self
            .attrs
            .get("acl")
            .and_then(|bytes| crate::formats::AclPolicy::from_bytes(bytes).ok());
        let owner = acl.map(|acl| acl.owner).unwrap_or_default();
        Owner { id: owner.id, display_name: owner.display_name }
    }

    /// What the index says of it.
    #[must_use]
    pub fn entry(&self) -> IndexEntry {
        let owner = self.owner();
        IndexEntry {
            size: self.size,
            mtime: self.mtime,
            etag: self.text("etag"),
            owner: (owner.id, owner.display_name),
            content_type: self.text("content_type"),
            storage_class: self.text("storage_class"),
            category: 1,
        }
    }
}
