//! Changes in a bucket's index: announced, then completed or cancelled. A shard that is being resharded refuses; then
//! the bucket is read anew and the change made in the new shard.

use cls::client::rgw::{CompleteOp, EntryVer, GuardOp, Key as IndexKey, Meta, PrepareOp, modify};
use rgw_proto::Result;
use types::{Bytes, Denc, Errno, UTime};

use crate::gateway::{BUSY_RESHARDING, Gateway, failed};
use crate::meta::BucketAt;
use crate::names::{RawKey, shard_of};
use crate::objects::{Answers, Objects, Place, Step, Vector};

/// How often a shard that is resharded is asked again, and how long is waited between, ms.
const RESHARD_TRIES: u32 = 120;
const RESHARD_WAIT_MS: u64 = 250;

/// What the index says of an object.
#[derive(Clone, Debug, Default)]
pub struct IndexEntry {
    /// Length in bytes.
    pub size: u64,
    /// Time of change.
    pub mtime: UTime,
    /// Without quotes.
    pub etag: String,
    /// Owner: id and name for people.
    pub owner: (String, String),
    /// `text/plain`.
    pub content_type: String,
    /// Empty for `STANDARD`.
    pub storage_class: String,
    /// 1 for objects, 3 for uploads.
    pub category: u8,
}

impl IndexEntry {
    pub(crate) fn meta(&self) -> Meta {
        Meta {
            category: self.category,
            size: self.size,
            mtime: self.mtime,
            etag: self.etag.clone().into(),
            owner: self.owner.0.clone().into(),
            owner_name: self.owner.1.clone().into(),
            content_type: self.content_type.clone().into(),
            accounted_size: if self.category == 3 { 0 } else { self.size },
            storage_class: self.storage_class.clone().into(),
            ..Meta::default()
        }
    }
}

/// A change that was announced.
#[derive(Clone, Debug)]
pub struct Announced {
    key: RawKey,
    tag: Bytes,
    op: u8,
}

/// How an announced change ended.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// Number of the head's pool.
    pub pool: i64,
    /// Version of the head's PG.
    pub epoch: u64,
}

impl RawKey {
    pub(crate) fn index_key(&self) -> IndexKey {
        let instance = if self.instance == "null" { "" } else { self.instance.as_str() };
        IndexKey { name: self.index_name().into(), instance: instance.to_owned().into() }
    }

    /// What the shard is chosen by: of uploads and their parts the key that they are for.
    fn shard_name(&self) -> &str {
        if self.ns != "multipart" {
            return &self.name;
        }
        // NAME.UPLOADID.meta, NAME.UPLOADID.PART
        let upload = self.name.rsplit_once('.').map_or(self.name.as_str(), |(head, _)| head);
        upload.rsplit_once('.').map_or(upload, |(name, _)| name)
    }
}

impl<O: Objects> Gateway<O> {
    /// The shard of a key.
    pub(crate) fn shard(&self, bucket: &BucketAt, key: &RawKey) -> Place {
        let mut all = bucket.index_places();
        let n = match bucket.info.layout.current.index.shards {
            0 => 0,
            shards => shard_of(key.shard_name(), shards),
        };
        all.swap_remove(n as usize)
    }

    /// Runs a writing method in the shard of a key.
    ///
    /// # Errors
    /// Of the method.
    pub(crate) async fn index_write(
        &self,
        bucket: &BucketAt,
        key: &RawKey,
        method: &'static str,
        input: Bytes,
    ) -> types::OpResult<Answers> {
        let mut again: Option<BucketAt> = None;
        let guard = GuardOp { ret_err: BUSY_RESHARDING.0 }.to_bytes();
        for _ in 0..RESHARD_TRIES {
            let at = self.shard(again.as_ref().unwrap_or(bucket), key);
            let vector = Vector::write()
                .step(Step::AssertExists)
                .call("rgw", "guard_bucket_resharding", guard.clone())
                .call("rgw", method, input.clone());
            match self.objects.operate(&at, vector).await {
                // A shard that is gone belongs to a generation before the last resharding.
                Err(BUSY_RESHARDING | Errno::NOENT) => {
                    self.objects.sleep_ms(RESHARD_WAIT_MS).await;
                    let now = self.bucket_instance(&bucket.info.bucket).await;
                    let now = now.map_err(|_| Errno::NOENT)?;
                    let known = again.as_ref().unwrap_or(bucket);
                    let same = now.info.layout == known.info.layout;
                    let idle = now.info.layout.resharding == 0;
                    if same && idle && again.is_some() {
                        return Err(Errno::NOENT);
                    }
                    again = Some(now);
                }
                other => return other,
            }
        }
        Err(BUSY_RESHARDING)
    }

    /// Announces a change.
    ///
    /// # Errors
    /// Of RADOS.
    pub(crate) async fn announce(
        &self,
        bucket: &BucketAt,
        key: &RawKey,
        op: u8,
        tag: &str,
    ) -> Result<Announced> {
        let tag: Bytes = tag.to_owned().into();
        let announced = Announced { key: key.clone(), tag: tag.clone(), op };
        if bucket.info.layout.current.is_indexless {
            return Ok(announced);
        }
        let prepare = PrepareOp {
            op,
            tag,
            key: key.index_key(),
            zones: self.zones(bucket),
            ..PrepareOp::default()
        };
        let input = prepare.to_bytes();
        let done = self.index_write(bucket, key, "bucket_prepare_op", input).await;
        done.map_err(failed("announcing the change in the bucket's index"))?;
        Ok(announced)
    }

    fn zones(&self, bucket: &BucketAt) -> Vec<Bytes> {
        vec![format!("{}:{}", self.zone.id, bucket.key()).into()]
    }

    /// Completes an announced change. `gone` are keys whose entries go with it.
    ///
    /// # Errors
    /// Of RADOS.
    pub(crate) async fn complete(
        &self,
        bucket: &BucketAt,
        announced: Announced,
        done: Done,
        entry: &IndexEntry,
        gone: &[RawKey],
    ) -> Result<()> {
        let op = announced.op;
        self.end(bucket, announced, op, Some(done), entry, gone).await
    }

    /// Takes an announced change back; what fails here is mended by the next listing.
    pub(crate) async fn cancel(&self, bucket: &BucketAt, announced: Announced) {
        let entry = IndexEntry::default();
        let _ = self.end(bucket, announced, modify::CANCEL, None, &entry, &[]).await;
    }

    async fn end(
        &self,
        bucket: &BucketAt,
        announced: Announced,
        op: u8,
        done: Option<Done>,
        entry: &IndexEntry,
        gone: &[RawKey],
    ) -> Result<()> {
        if bucket.info.layout.current.is_indexless {
            return Ok(());
        }
        let ver =
            done.map_or_else(EntryVer::default, |d| EntryVer { pool: d.pool, epoch: d.epoch });
        let complete = CompleteOp {
            op,
            epoch: ver.epoch,
            meta: entry.meta(),
            tag: announced.tag,
            remove_objs: gone.iter().map(RawKey::index_key).collect(),
            ver,
            key: announced.key.index_key(),
            zones: self.zones(bucket),
            ..CompleteOp::default()
        };
        let input = complete.to_bytes();
        let ended = self.index_write(bucket, &announced.key, "bucket_complete_op", input).await;
        ended.map(drop).map_err(failed("completing the change in the bucket's index"))
    }
}
