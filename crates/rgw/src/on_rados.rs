//! The sequences' objects, in RADOS.

use std::time::Duration;

use bytes::Bytes;
use env::Random;
use rados::{Cluster, Cmp, Error, IoCtx, ReadOp, Reply, Slot, WriteOp};
use rgw_core::formats::Pool;
use rgw_core::objects::{Answer, Answers, Objects, Place, PoolUse, Step, Vector};
use types::{Errno, OpResult, UTime};

/// How long a notification waits for those who watch.
const NOTIFY_MAX: Duration = Duration::from_secs(10);

/// A client of RADOS. Clones share it.
#[derive(Clone)]
pub struct OnRados {
    cluster: Cluster,
}

impl OnRados {
    /// On a connected client.
    #[must_use]
    pub fn new(cluster: Cluster) -> Self {
        Self { cluster }
    }

    /// The cluster's id.
    pub(crate) fn cluster_id(&self) -> String {
        self.cluster.map().fsid.to_string()
    }

    pub(crate) async fn io(&self, at: &Place) -> OpResult<IoCtx> {
        let io = match self.cluster.map().pool_by_name(&at.pool.name) {
            Some(id) => self.cluster.pool_by_id(id),
            None => self.cluster.pool(&at.pool.name).await.map_err(|e| errno(&e))?,
        };
        let io = io.namespace(at.pool.ns.clone().into_bytes());
        Ok(match &at.locator {
            Some(key) => io.locator(key.clone().into_bytes()),
            None => io,
        })
    }
}

fn errno(error: &Error) -> Errno {
    match error {
        Error::Errno { errno, .. } => Errno(-errno),
        Error::Timeout(_) => Errno::TIMEDOUT,
        Error::Busy => Errno::BUSY,
        _ => Errno::IO,
    }
}

/// Where a step's answer will be.
enum Wanted {
    Nothing,
    Data(Slot<Bytes>),
    Stat(Slot<rados::ObjectStat>),
    Attrs(Slot<std::collections::BTreeMap<Bytes, Bytes>>),
    Pairs(Slot<(std::collections::BTreeMap<Bytes, Bytes>, bool)>),
}

impl Wanted {
    fn answer(&self, reply: &Reply) -> OpResult<Answer> {
        let failed = |e: Error| errno(&e);
        Ok(match self {
            Self::Nothing => Answer::None,
            // A class method may answer and say at once that there is more to look at.
            Self::Data(slot) if reply.rval(*slot) == Errno::FBIG.0 => {
                Answer::Data(reply.output(*slot))
            }
            Self::Data(slot) => Answer::Data(reply.get(*slot).map_err(failed)?),
            Self::Stat(slot) => {
                let stat = reply.get(*slot).map_err(failed)?;
                Answer::Stat(stat.size, stat.mtime)
            }
            Self::Attrs(slot) => {
                let attrs = reply.get(*slot).map_err(failed)?.into_iter();
                let text = |name: Bytes| String::from_utf8(name.to_vec()).ok();
                Answer::Attrs(attrs.filter_map(|(n, v)| Some((text(n)?, v))).collect())
            }
            Self::Pairs(slot) => {
                let (pairs, more) = reply.get(*slot).map_err(failed)?;
                Answer::Pairs(pairs, more)
            }
        })
    }
}

fn write(op: &mut WriteOp, step: Step) -> Wanted {
    match step {
        Step::AssertExists => op.assert_exists(),
        Step::Create(exclusive) => op.create(exclusive),
        Step::Remove => op.remove(),
        Step::WriteFull(data) => op.write_full(data),
        Step::Write(off, data) => op.write(off, data),
        Step::AllocHint(bytes) => op.alloc_hint(bytes, bytes, 0),
        Step::SetAttr(name, value) => op.set_xattr(&name, &value),
        Step::RmAttr(name) => op.rm_xattr(&name),
        Step::CmpAttr(name, value) => op.cmp_xattr(&name, Cmp::Eq, &value),
        Step::CmpAttrAtLeast(name, value) => op.cmp_xattr_u64(&name, Cmp::Ge, value),
        Step::Call(class, method, input) => return Wanted::Data(op.exec(class, method, &input)),
        Step::RmPairs(keys) => op.rm_omap_keys(&keys),
        Step::SetPairs(pairs) => op.set_omap(&pairs),
        Step::Read(..) | Step::Stat | Step::Attrs | Step::Pairs(..) => {
            panic!("a vector that writes reads nothing back")
        }
    };
    Wanted::Nothing
}

fn read(op: &mut ReadOp, step: Step) -> Wanted {
    match step {
        Step::AssertExists => {
            op.assert_exists();
            Wanted::Nothing
        }
        Step::CmpAttr(name, value) => {
            op.cmp_xattr(&name, Cmp::Eq, &value);
            Wanted::Nothing
        }
        Step::CmpAttrAtLeast(name, value) => {
            op.cmp_xattr_u64(&name, Cmp::Ge, value);
            Wanted::Nothing
        }
        Step::Call(class, method, input) => Wanted::Data(op.exec(class, method, &input)),
        Step::Read(off, len) => Wanted::Data(op.read(off, len)),
        Step::Stat => Wanted::Stat(op.stat()),
        Step::Attrs => Wanted::Attrs(op.get_xattrs()),
        Step::Pairs(after, max) => Wanted::Pairs(op.get_omap(&after, b"", max)),
        _ => panic!("a vector that reads changes nothing"),
    }
}

impl Objects for OnRados {
    async fn operate(&self, at: &Place, vector: Vector) -> OpResult<Answers> {
        let io = self.io(at).await?;
        if vector.writes {
            let mut op = WriteOp::new();
            let mut wanted = Vec::new();
            for (step, may_fail) in vector.steps {
                wanted.push(write(&mut op, step));
                if may_fail {
                    op.may_fail();
                }
            }
            if vector.returns {
                op.return_results();
            }
            if let Some(mtime) = vector.mtime {
                op.mtime(mtime);
            }
            let reply = io.write_op(at.name.as_bytes(), op).await.map_err(|e| errno(&e))?;
            let wanted = if vector.returns { wanted } else { Vec::new() };
            let steps = wanted.iter().map(|w| w.answer(&reply)).collect();
            return Ok(Answers { version: reply.version(), steps });
        }
        let mut op = ReadOp::new();
        let mut wanted = Vec::new();
        for (step, may_fail) in vector.steps {
            wanted.push(read(&mut op, step));
            if may_fail {
                op.may_fail();
            }
        }
        let reply = io.read_op(at.name.as_bytes(), op).await.map_err(|e| errno(&e))?;
        let steps = wanted.iter().map(|w| w.answer(&reply)).collect();
        Ok(Answers { version: reply.version(), steps })
    }

    async fn make_pool(&self, pool: &Pool, why: PoolUse) -> OpResult<()> {
        let name = &pool.name;
        let failed = |e: Error| errno(&e);
        // Names like .rgw.root want to be meant.
        let make = format!(
            r#"{{"prefix":"osd pool create","pool":"{name}","yes_i_really_mean_it":true}}"#
        );
        self.cluster.mon(&make).await.map_err(failed)?;
        let enable =
            format!(r#"{{"prefix":"osd pool application enable","pool":"{name}","app":"rgw"}}"#);
        self.cluster.mon(&enable).await.map_err(failed)?;
        // What helps the autoscaler only: a monitor that does not know it is no trouble.
        let tune = match why {
            PoolUse::Meta => ("pg_autoscale_bias", "4"),
            PoolUse::Data => ("bulk", "true"),
        };
        let set = format!(
            r#"{{"prefix":"osd pool set","pool":"{name}","var":"{}","val":"{}"}}"#,
            tune.0, tune.1
        );
        if let Err(error) = self.cluster.mon(&set).await {
            tracing::info!("pool {name}: {} stays as it is: {error}", tune.0);
        }
        self.cluster.wait_for_latest_map().await.map_err(failed)
    }

    async fn notify(&self, at: &Place, payload: Bytes) -> OpResult<()> {
        let io = self.io(at).await?;
        let told = io.notify(at.name.as_bytes(), payload, NOTIFY_MAX).await;
        told.map(drop).map_err(|e| errno(&e))
    }

    async fn names(&self, pool: &Pool) -> OpResult<Vec<String>> {
        if self.pool_id(pool).is_none() {
            return Ok(Vec::new());
        }
        let io = self.io(&Place::new(pool, "")).await?;
        let found = io.list().await.map_err(|e| errno(&e))?.into_iter();
        Ok(found.filter_map(|found| String::from_utf8(found.name.to_vec()).ok()).collect())
    }

    fn pool_id(&self, pool: &Pool) -> Option<i64> {
        let id = self.cluster.map().pool_by_name(&pool.name)?;
        Some(id.0)
    }

    fn alignment(&self, pool: &Pool) -> u64 {
        let map = self.cluster.map();
        let id = map.pool_by_name(&pool.name);
        let width = id.and_then(|id| map.pools.get(&id)).map_or(0, |pool| pool.stripe_width);
        u64::from(width.max(1))
    }

    async fn sleep_ms(&self, ms: u64) {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }

    fn now(&self) -> UTime {
        UTime::from_nanos(rt::now().wall_ns)
    }

    fn random(&self, out: &mut [u8]) {
        rt::OsRandom.fill(out);
    }

    fn client_id(&self) -> u64 {
        self.cluster.global_id()
    }
}
