//! Tails that no head names any more: they go into a queue, and a collector deletes them later, so that readers that
//! began before still end.

use cls::client::{refcount, rgw::Key as IndexKey, rgw_gc, version};
use types::{Bytes, Denc, Errno, OpResult};

use crate::formats::Manifest;
use crate::gateway::Gateway;
use crate::meta::BucketAt;
use crate::objects::{Objects, Place, Step, Vector};
use crate::together;

/// Queues: `rgw_gc_max_objs`.
const QUEUES: u64 = 32;
/// The hash's seed, and the prime that upstream takes it by.
const SEED: u64 = 8_675_309;
const PRIME: u64 = 7_877;
/// How long a tail is kept, s: `rgw_gc_obj_min_wait`.
const WAIT_S: u32 = 2 * 3_600;

impl<O: Objects> Gateway<O> {
    /// Where the tail objects of a manifest are.
    pub(crate) fn tail_places(&self, bucket: &BucketAt, manifest: &Manifest) -> Vec<Place> {
        let stripes = manifest.stripes().into_iter();
        stripes.filter_map(|s| self.tail_place(bucket, manifest, &s)).collect()
    }

    /// Has the tail of an object that is gone deleted, later. Where the queue does not take it, it is deleted at once.
    pub(crate) async fn collect(&self, bucket: &BucketAt, manifest: &Manifest, tag: &str) {
        let tails = self.tail_places(bucket, manifest);
        self.collect_places(tails, tag).await;
    }

    /// As [`Gateway::collect`], of objects by name.
    pub(crate) async fn collect_places(&self, tails: Vec<Place>, tag: &str) {
        if tails.is_empty() {
            return;
        }
        if self.enqueue(&tails, tag).await.is_ok() {
            return;
        }
        let tag = Bytes::from(tag.to_owned());
        let puts = tails.iter().map(|at| {
            let op = refcount::TagOp { tag: tag.clone(), implicit: true };
            let vector = Vector::write().call("refcount", "put", op.to_bytes());
            self.objects.operate(at, vector)
        });
        together::all(puts).await;
    }

    async fn enqueue(&self, tails: &[Place], tag: &str) -> OpResult<()> {
        let objs = tails.iter().map(|at| rgw_gc::Target {
            pool: at.pool.name.clone().into(),
            name: at.name.clone().into(),
            loc: at.locator.clone().unwrap_or_default().into(),
            key: IndexKey::default(),
        });
        let chain = rgw_gc::Chain { objs: objs.collect() };
        let info = rgw_gc::Info { tag: tag.to_owned().into(), chain, ..rgw_gc::Info::default() };
        let op = rgw_gc::SetEntry { expiration_s: WAIT_S, info }.to_bytes();
        let n = stdx::xxh64(SEED, tag.as_bytes()) % PRIME % QUEUES;
        let at = Place::new(&self.zone.gc, format!("gc.{n}"));
        let one = version::Version { ver: 1, tag: Bytes::new() };
        // Queues of today have version 1; a gateway makes them at its start.
        let condition = version::Condition { version: one, kind: 3 };
        let check = version::IncOp { conditions: vec![condition], ..Default::default() };
        let vector = Vector::write()
            .call("version", "check_conds", check.to_bytes())
            .call("rgw_gc", "rgw_gc_queue_enqueue", op.clone());
        match self.objects.operate(&at, vector).await {
            // No queue yet: the older form, which collectors read too.
            Err(Errno::CANCELED | Errno::NOENT) => {
                let vector = Vector::write()
                    .step(Step::Create(false))
                    .call("rgw", "gc_set_entry", op);
                self.objects.operate(&at, vector).await.map(drop)
            }
            other => other.map(drop),
        }
    }
}
