//! Tails that no head names any more: they go into a queue, and a collector deletes them later, so that readers that
//! began before still end.

use cls::client::{
    self as lock, refcount,
    rgw::{GcRemoveOp, Key as IndexKey},
    rgw_gc, version,
};
use rgw_proto::Result;
use types::{Bytes, Denc, Errno, OpResult, UTime};

use crate::formats::Manifest;
use crate::formats::Pool;
use crate::gateway::{Gateway, decoded, failed};
use crate::meta::BucketAt;
use crate::objects::{Objects, Place, PoolUse, Step, Vector};
use crate::together;

/// Queues: `rgw_gc_max_objs`.
pub const QUEUES: u64 = 32;
/// Bytes of a queue: `rgw_gc_max_queue_size`.
const QUEUE_BYTES: u64 = 131_068 << 10;
/// Tails of a queue that may be put off: `rgw_gc_max_deferred`.
const DEFERRED_MAX: u64 = 50;
/// Tails that one round of a collector takes: `rgw_gc_max_trim_chunk` is smaller, a round may be larger.
const ROUND: u32 = 100;
/// How long a collector holds a queue, s: `rgw_gc_processor_max_time`.
const LOCK_S: u32 = 3_600;
const LOCK: &str = "gc_process";
/// Deletions under way at once: `rgw_gc_max_concurrent_io`.
const DELETES_MAX: usize = 10;
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
    pub(crate) async fn collect(&self, bucket: &BucketAt, manifest: &Manifest, tag: &Bytes) {
        let tails = self.tail_places(bucket, manifest);
        self.collect_places(tails, tag).await;
    }

    /// As [`Gateway::collect`], of objects by name.
    pub(crate) async fn collect_places(&self, tails: Vec<Place>, tag: &Bytes) {
        if tails.is_empty() {
            return;
        }
        if self.enqueue(&tails, tag).await.is_ok() {
            return;
        }
        let puts = tails.iter().map(|at| {
            let op = refcount::TagOp { tag: tag.clone(), implicit: true };
            let vector = Vector::write().call("refcount", "put", op.to_bytes());
            self.objects.operate(at, vector)
        });
        together::all(puts).await;
    }

    async fn enqueue(&self, tails: &[Place], tag: &Bytes) -> OpResult<()> {
        let objs = tails.iter().map(|at| rgw_gc::Target {
            pool: at.pool.name.clone().into(),
            name: at.name.clone().into(),
            loc: at.locator.clone().unwrap_or_default().into(),
            // Upstream reads the name from here: with an empty one it would delete nothing.
            key: IndexKey { name: at.name.clone().into(), instance: Bytes::new() },
        });
        let chain = rgw_gc::Chain { objs: objs.collect() };
        let info = rgw_gc::Info { tag: tag.clone(), chain, ..rgw_gc::Info::default() };
        let op = rgw_gc::SetEntry { expiration_s: WAIT_S, info }.to_bytes();
        let n = stdx::xxh64(SEED, tag) % PRIME % QUEUES;
        let at = Place::new(&self.zone.gc, format!("gc.{n}"));
        let one = version::Version { ver: 1, tag: Bytes::new() };
        // Queues of today have version 1; a gateway makes them at its start.
        let condition = version::Condition { version: one, kind: 3 };
        let check = version::IncOp { conditions: vec![condition], ..Default::default() };
        let vector = Vector::write().call("version", "check_conds", check.to_bytes()).call(
            "rgw_gc",
            "rgw_gc_queue_enqueue",
            op.clone(),
        );
        match self.objects.operate(&at, vector).await {
            // No queue yet: the older form, which collectors read too.
            Err(Errno::CANCELED | Errno::NOENT) => {
                let vector =
                    Vector::write().step(Step::Create(false)).call("rgw", "gc_set_entry", op);
                self.objects.operate(&at, vector).await.map(drop)
            }
            other => other.map(drop),
        }
    }

    fn queue(&self, n: u64) -> Place {
        Place::new(&self.zone.gc, format!("gc.{n}"))
    }

    /// Makes queues where there are none, as every gateway does at its start.
    ///
    /// # Errors
    /// Of RADOS.
    pub async fn make_queues(&self) -> Result<()> {
        let pool = Pool { ns: String::new(), ..self.zone.gc.clone() };
        self.make_pool(&pool, PoolUse::Meta).await.map_err(failed("making the pool of logs"))?;
        let first = version::Version { ver: 1, tag: Bytes::new() };
        let none = version::Condition { version: first.clone(), kind: 4 };
        let check = version::IncOp { conditions: vec![none], ..Default::default() }.to_bytes();
        let init = rgw_gc::Init { size: QUEUE_BYTES, deferred_max: DEFERRED_MAX }.to_bytes();
        let set = version::SetOp { version: first }.to_bytes();
        let all: Vec<Place> = (0..QUEUES).map(|n| self.queue(n)).collect();
        let inits = all.iter().map(|at| {
            let vector = Vector::write()
                .step(Step::Create(false))
                .call("version", "check_conds", check.clone())
                .call("rgw_gc", "rgw_gc_queue_init", init.clone())
                .call("version", "set", set.clone());
            self.objects.operate(at, vector)
        });
        for made in together::all(inits).await {
            match made {
                Ok(_) | Err(Errno::CANCELED) => {}
                Err(errno) => return Err(failed("making a queue of tails to delete")(errno)),
            }
        }
        Ok(())
    }

    /// Deletes the tails of queue `n` whose time has come; returns how many. Zero where another collector is at work.
    ///
    /// # Errors
    /// Of RADOS. Tails that were not deleted stay in the queue.
    pub async fn collect_queue(&self, n: u64) -> Result<u64> {
        let at = self.queue(n);
        let cookie = self.random_mixed(16);
        let op = lock::LockOp {
            name: LOCK.into(),
            kind: lock::EXCLUSIVE,
            cookie: cookie.clone().into(),
            duration: UTime { sec: LOCK_S, nsec: 0 },
            ..lock::LockOp::default()
        };
        let vector = Vector::write().step(Step::AssertExists).call("lock", "lock", op.to_bytes());
        match self.objects.operate(&at, vector).await {
            Ok(_) => {}
            Err(Errno::NOENT | Errno::BUSY | Errno::EXIST) => return Ok(0),
            Err(errno) => return Err(failed("locking a queue of tails to delete")(errno)),
        }
        let done = self.collect_locked(&at).await;
        let op = lock::UnlockOp { name: LOCK.into(), cookie: cookie.into() };
        let vector = Vector::write().call("lock", "unlock", op.to_bytes());
        // A lock that stays ends by itself.
        let _ = self.objects.operate(&at, vector).await;
        done
    }

    async fn collect_locked(&self, at: &Place) -> Result<u64> {
        let mut count = 0;
        // The older form, of gateways before the queue was made.
        loop {
            let op = rgw_gc::List { max: ROUND, expired_only: true, ..Default::default() };
            let found = self.listed_tails(at, "rgw", "gc_list", &op).await?;
            if found.is_empty() {
                break;
            }
            self.delete_tails(&found).await?;
            count += found.len() as u64;
            let op = GcRemoveOp { tags: found.into_iter().map(|info| info.tag).collect() };
            let vector = Vector::write().call("rgw", "gc_remove", op.to_bytes());
            let removed = self.objects.operate(at, vector).await;
            removed.map_err(failed("taking deleted tails from their list"))?;
        }
        loop {
            // Those that wait longer may stand before others: only what comes first is taken, so that what is removed
            // is what was deleted.
            let op = rgw_gc::List { max: ROUND, ..Default::default() };
            let mut found =
                self.listed_tails(at, "rgw_gc", "rgw_gc_queue_list_entries", &op).await?;
            let now = self.objects.now();
            let due = found.iter().take_while(|info| info.time <= now).count();
            found.truncate(due);
            if found.is_empty() {
                return Ok(count);
            }
            self.delete_tails(&found).await?;
            count += found.len() as u64;
            let op = rgw_gc::Remove { count: found.len() as u64 };
            let vector =
                Vector::write().call("rgw_gc", "rgw_gc_queue_remove_entries", op.to_bytes());
            let removed = self.objects.operate(at, vector).await;
            removed.map_err(failed("taking deleted tails from their queue"))?;
        }
    }

    async fn listed_tails(
        &self,
        at: &Place,
        class: &'static str,
        method: &'static str,
        op: &rgw_gc::List,
    ) -> Result<Vec<rgw_gc::Info>> {
        let vector = Vector::read().call(class, method, op.to_bytes());
        let answers = match self.objects.operate(at, vector).await {
            // No queue was made of it.
            Err(Errno::NOENT | Errno::INVAL) => return Ok(Vec::new()),
            other => other.map_err(failed("listing tails to delete"))?,
        };
        let data = answers.data(0).map_err(failed("listing tails to delete"))?;
        let listed: rgw_gc::Listed = decoded(&data, "The list of tails to delete")?;
        Ok(listed.entries)
    }

    /// Takes one owner from each tail object; the last one's removes it.
    async fn delete_tails(&self, all: &[rgw_gc::Info]) -> Result<()> {
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        let targets: Vec<(Place, Bytes)> = all
            .iter()
            .flat_map(|info| {
                info.chain.objs.iter().map(|target| {
                    let pool = Pool::parse(&text(&target.pool));
                    let locator = Some(text(&target.loc)).filter(|l| !l.is_empty());
                    let at = Place { pool, name: text(&target.name), locator };
                    let op = refcount::TagOp { tag: info.tag.clone(), implicit: true };
                    (at, op.to_bytes())
                })
            })
            .collect();
        for some in targets.chunks(DELETES_MAX) {
            let puts = some.iter().map(|(at, op)| {
                let vector = Vector::write().call("refcount", "put", op.clone());
                self.objects.operate(at, vector)
            });
            for put in together::all(puts).await {
                match put {
                    Ok(_) | Err(Errno::NOENT) => {}
                    Err(errno) => return Err(failed("deleting a tail")(errno)),
                }
            }
        }
        Ok(())
    }
}
