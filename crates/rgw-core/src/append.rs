//! Objects that grow at their end.
//!
//! ```text
//!   head, empty: manifest, etag, append_part_num ──> _multipart_KEY.RANDOM_.1, .2, …   each append a part with stripes
//! ```
//!
//! An append writes its bytes as a new part, then the head over the one that it began from. Where another write came
//! between, the head stays, and the part is removed.
//!
//! Source: `rgw_putobj_processor.cc` (`AppendObjectProcessor`).

use rgw_proto::checksum::appended_etag;
use rgw_proto::condition::Conditions;
use rgw_proto::{Code, Error, Result};
use types::{Bytes, UTime};

use crate::formats::Manifest;
use crate::gateway::{Gateway, failed};
use crate::meta::{Attrs, BucketAt};
use crate::names::RawKey;
use crate::object::ObjectAt;
use crate::objects::{Objects, PoolUse};
use crate::put::{Incoming, NewHead, Over, STRIPE_BYTES};

/// The attribute that says how many parts were appended: a number of 8 bytes, little end first.
const PARTS: &str = "append_part_num";
/// Runs of parts of one size that a manifest may have.
const RULES_MAX: usize = 10_000;

/// An object that is about to grow, as it was found.
pub struct Appending {
    /// What is there; `None` for a new object.
    pub base: Option<ObjectAt>,
    key: RawKey,
    part: u32,
}

/// What goes with bytes that are appended.
pub struct Added<'a> {
    /// Attributes of the request, but for its ETag: they take the place of all that were there.
    pub attrs: Attrs,
    /// Sum of the bytes.
    pub md5: [u8; 16],
    /// When it was.
    pub mtime: UTime,
    /// What must hold for the object as it was.
    pub conditions: &'a Conditions,
    /// `PLACEMENT[/CLASS]` of a new object.
    pub placement: &'a str,
}

impl ObjectAt {
    /// How many parts were appended; `None` of an object that was made otherwise.
    #[must_use]
    pub fn appended(&self) -> Option<u64> {
        let bytes = self.attrs.get(PARTS)?;
        Some(u64::from_le_bytes(bytes.as_ref().try_into().ok()?))
    }
}

impl Appending {
    /// Bytes that are there: where the next ones go.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.base.as_ref().map_or(0, |base| base.size)
    }
}

impl<O: Objects> Gateway<O> {
    /// Looks at what an append would go to.
    ///
    /// # Errors
    /// [`Code::ObjectNotAppendable`] for what was made otherwise; [`Code::InvalidBucketState`] in buckets with versions; of
    /// RADOS.
    pub async fn appending(&self, bucket: &BucketAt, name: &str) -> Result<Appending> {
        if bucket.is_versioned() {
            let text = "Objects of buckets with versions are not appended to.";
            return Err(Error::new(Code::InvalidBucketState, text));
        }
        let key = RawKey { name: name.to_owned(), ..RawKey::default() };
        let base = self.state(bucket, &key, false).await?;
        let Some(found) = &base else { return Ok(Appending { base, key, part: 1 }) };
        let parts = found.appended().and_then(|n| u32::try_from(n).ok()?.checked_add(1));
        let fits = |m: &Manifest| !m.is_explicit && m.head_size == 0 && m.tier.0.is_empty();
        match (parts, &found.manifest) {
            (Some(part), Some(manifest)) if fits(manifest) => {
                if manifest.rules.len() >= RULES_MAX {
                    let text =
                        "The object has too many parts of different sizes: copy it to a new one.";
                    return Err(Error::new(Code::InvalidRequest, text));
                }
                Ok(Appending { base, key, part })
            }
            _ => Err(Code::ObjectNotAppendable.into()),
        }
    }

    /// Begins to take the bytes. `class` is the storage class of a new object; one that is there keeps its own.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`] where the placement has no such class.
    pub async fn begin_append(
        &self,
        bucket: &BucketAt,
        to: &Appending,
        class: &str,
    ) -> Result<Incoming<O>> {
        let manifest = to.base.as_ref().and_then(|base| base.manifest.as_ref());
        let own = bucket.info.placement.split_once('/').map_or("", |(_, class)| class);
        let class = match manifest {
            Some(m) => m.tail_placement.split_once('/').map_or("", |(_, class)| class),
            None if class.is_empty() => own,
            None => class,
        };
        let Some(pool) = bucket.placement.data_of(class).cloned() else {
            let text = format!("The bucket's placement has no storage class {class:?}.");
            return Err(Error::new(Code::InvalidArgument, text));
        };
        let pool = match &bucket.info.bucket.explicit_pools {
            Some(pools) => pools[0].clone(),
            None => pool,
        };
        for pool in [&bucket.placement.data, &pool] {
            let made = self.make_pool(pool, PoolUse::Data).await;
            made.map_err(failed("making the pool of data"))?;
        }
        let Some(manifest) = manifest else {
            let prefix = format!("{}.{}_", to.key.name, self.random_mixed(31));
            return Ok(self.incoming(bucket, &to.key, pool, &prefix, to.part, 0));
        };
        let instance = manifest.tail_instance.as_ref().unwrap_or(&manifest.head.instance);
        let key = RawKey { instance: instance.clone(), ..to.key.clone() };
        let incoming = self.incoming(bucket, &key, pool, &manifest.prefix, to.part, 0);
        Ok(incoming.in_tail_of(manifest.tail_marker()))
    }

    /// Has the object end with the bytes that were taken. Returns its ETag and length. The caller has flushed.
    ///
    /// # Errors
    /// [`Code::PositionNotEqualToLength`] where another write came between; of the conditions, which are about the
    /// object as it was; of RADOS. Where no head names what was taken, that is removed.
    pub async fn append(
        &self,
        bucket: &BucketAt,
        to: Appending,
        mut incoming: Incoming<O>,
        added: Added<'_>,
    ) -> Result<(String, u64)> {
        let Added { mut attrs, md5, mtime, conditions, placement } = added;
        let Appending { base, key, part } = to;
        let (prefix, len) = (incoming.prefix().to_owned(), incoming.size());
        let old = base.as_ref().map(|base| base.text("etag"));
        let Some(etag) = appended_etag(old.as_deref(), &md5, part) else {
            incoming.abandon().await;
            return Err(Code::ObjectNotAppendable.into());
        };
        attrs.insert("etag".into(), etag.clone().into());
        attrs.insert(PARTS.into(), Bytes::copy_from_slice(&u64::from(part).to_le_bytes()));
        match base.as_ref().and_then(|base| base.attrs.get("storage_class")) {
            Some(class) => _ = attrs.insert("storage_class".into(), class.clone()),
            None if base.is_some() => _ = attrs.remove("storage_class"),
            None => {}
        }
        let written = incoming.written(self.object_name(bucket, &key), placement);
        let manifest = match base.as_ref().and_then(|base| base.manifest.clone()) {
            Some(mut manifest) => {
                manifest.append_part(part, len, STRIPE_BYTES, &prefix);
                manifest
            }
            None => written.manifest,
        };
        let size = manifest.size;
        let new = NewHead {
            key,
            data: Bytes::new(),
            manifest,
            attrs,
            mtime,
            conditions,
            same_tail: base.as_ref().map(ObjectAt::tail_tag),
            tag: None,
            gone: Vec::new(),
            over: Some(Over::of(base.as_ref())),
        };
        match self.write_head(bucket, new).await {
            Ok(()) => Ok((etag, size)),
            Err(error) => {
                let unnamed =
                    [Code::PositionNotEqualToLength, Code::PreconditionFailed, Code::NoSuchKey];
                if unnamed.contains(&error.code) {
                    self.remove_places(&written.tails).await;
                }
                Err(error)
            }
        }
    }
}
