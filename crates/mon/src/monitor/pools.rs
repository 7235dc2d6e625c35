//! Changes of pools asked for by messages: librados' pool and snapshot calls.

use std::collections::BTreeMap;

use bytes::Bytes;
use conf::key;
use env::ConnId;
use maps::PoolFlags;
use messages::{LogPriority, Message, PoolOp, RemoveSnaps, pool_op};
use types::{Epoch, PoolId, SnapId};

use super::Monitor;
use crate::{Mutation, limits, poolops};

const EPERM: i32 = -1;
const ENOENT: i32 = -2;
const EEXIST: i32 = -17;
const EINVAL: i32 = -22;
const EOPNOTSUPP: i32 = -95;

/// Ids of snapshots are below this: larger ones mean something else on the wire.
const SNAP_MAX: u64 = u64::MAX - 15;

/// What a pool operation comes to: a change and data for the reply, or an errno.
type Planned = Result<(Option<maps::Incremental>, Option<Bytes>), i32>;

impl Monitor {
    pub(super) fn on_pool_op(&mut self, conn: ConnId, tid: u64, msg: &PoolOp) {
        if msg.fsid != self.state.fsid {
            return;
        }
        let epoch = self.state.osdmap.epoch;
        if let Some(done) = self.answered(conn, PoolOp::KIND, tid) {
            let data = (!done.out.is_empty()).then(|| done.out.clone());
            return self.reply_pool_op(conn, tid, 0, epoch, data);
        }
        match self.plan_pool_op(conn, msg) {
            Ok((None, data)) => self.reply_pool_op(conn, tid, 0, epoch, data),
            Ok((Some(inc), _)) if limits::check(&inc).is_err() => {
                self.reply_pool_op(conn, tid, EINVAL, epoch, None);
            }
            Ok((Some(inc), data)) => {
                self.propose(Mutation::Osd(Box::new(inc)));
                let out = data.clone().unwrap_or_default();
                if let Some(m) = self.remember(conn, PoolOp::KIND, tid, "", &out) {
                    self.propose(m);
                }
                let epoch = self.state.osdmap.epoch;
                self.reply_pool_op(conn, tid, 0, epoch, data);
            }
            Err(r) => self.reply_pool_op(conn, tid, r, epoch, None),
        }
    }

    /// A metadata server has removed snapshots: the OSDs may drop what only these have. It says so
    /// again until a pool's `snap_seq` has reached the newest.
    pub(super) fn on_remove_snaps(&mut self, msg: &RemoveSnaps) {
        if let Some(inc) = self.plan_remove_snaps(&msg.snaps) {
            self.propose(Mutation::Osd(Box::new(inc)));
        }
    }

    fn plan_remove_snaps(
        &mut self,
        snaps: &BTreeMap<i32, Vec<SnapId>>,
    ) -> Option<maps::Incremental> {
        let next = Epoch(self.state.osd_history.last.0 + 1);
        let mut inc = self.state.osd_change();
        for (id, snaps) in snaps {
            let id = PoolId(i64::from(*id));
            let Some(pool) = self.state.osdmap.pool(id).filter(|p| !p.is_tier()) else { continue };
            let Some(newest) = snaps.iter().max().filter(|s| **s > pool.snap_seq) else { continue };
            let mut pool = pool.clone();
            pool.snap_seq = *newest;
            (pool.snap_epoch, pool.last_change) = (next, next);
            let removed = inc.new_removed_snaps.entry(id).or_default();
            for snap in snaps.iter().filter(|s| (1..SNAP_MAX).contains(&s.0)) {
                removed.insert(snap.0, 1);
            }
            inc.new_pools.insert(id, pool);
        }
        (!inc.new_pools.is_empty()).then_some(inc)
    }

    fn may_pool_op(&self, conn: ConnId, msg: &PoolOp) -> bool {
        let Some(session) = self.sessions.get(&conn) else { return false };
        if session.may("osd", "w") {
            return true;
        }
        // Profiles grant single commands: unmanaged snapshots count as such.
        let unmanaged =
            matches!(msg.op, pool_op::CREATE_UNMANAGED_SNAP | pool_op::DELETE_UNMANAGED_SNAP);
        let Some(pool) = self.state.osdmap.pool_name(PoolId(i64::from(msg.pool))) else {
            return false;
        };
        unmanaged && self.unmanaged_snaps_allowed(conn, pool)
    }

    /// A client that may write in the pool may make snapshots there, as the peer judges by
    /// the client's OSD caps.
    fn unmanaged_snaps_allowed(&self, conn: ConnId, pool: &str) -> bool {
        let Some(session) = self.sessions.get(&conn) else { return false };
        let by_command = ::auth::MonAccess {
            name: &session.info.name,
            addr: &session.info.addrs.front(),
            service: "osd",
            command: "osd pool op unmanaged-snap",
            args: &BTreeMap::from([("poolname".to_owned(), pool.to_owned())]),
            wants: ::auth::Rights::W,
        };
        if session.info.caps.is_capable(&by_command) {
            return true;
        }
        let text = self.state.auth.caps(&session.info.name, types::EntityKind::OSD).unwrap_or("");
        let caps = ::auth::OsdCap::parse_lenient(text);
        caps.may_snap(pool, &session.info.addrs.front())
    }

    fn plan_pool_op(&mut self, conn: ConnId, msg: &PoolOp) -> Planned {
        if !self.may_pool_op(conn, msg) {
            let name = self.sessions.get(&conn).map(|s| s.info.name.clone()).unwrap_or_default();
            self.audit(
                LogPriority::WARN,
                format!("pool operation {:#x} by {name}: access denied", msg.op),
            );
            return Err(EPERM);
        }
        if msg.op == pool_op::CREATE {
            let rule = u8::try_from(msg.crush_rule).ok();
            let wanted = poolops::NewPool { name: &msg.name, rule, ..Default::default() };
            let defaults = self.pool_defaults();
            return match poolops::plan_create(&self.state, self.wall(), &wanted, &defaults) {
                Ok(inc) => Ok((Some(inc), None)),
                Err(e) => Err(-e.errno),
            };
        }
        let id = PoolId(i64::from(msg.pool));
        let map = &self.state.osdmap;
        let Some(pool) = map.pool(id) else {
            // A pool that is gone already is deleted.
            return if msg.op == pool_op::DELETE { Ok((None, None)) } else { Err(ENOENT) };
        };
        let next = Epoch(self.state.osd_history.last.0 + 1);
        let mut inc = self.state.osd_change();
        let mut pool = pool.clone();
        let snaps = [
            pool_op::CREATE_SNAP,
            pool_op::DELETE_SNAP,
            pool_op::CREATE_UNMANAGED_SNAP,
            pool_op::DELETE_UNMANAGED_SNAP,
        ];
        if pool.is_tier() && snaps.contains(&msg.op) {
            return Err(EINVAL); // a tier has its base's
        }
        match msg.op {
            pool_op::DELETE => {
                if !self.option(key::MON_ALLOW_POOL_DELETE) {
                    return Err(EPERM);
                }
                let inc = poolops::plan_delete(&self.state, id).map_err(|e| -e.errno)?;
                return Ok((Some(inc), None));
            }
            pool_op::CREATE_SNAP => {
                if pool.has_flag(PoolFlags::SELFMANAGED_SNAPS) || msg.name.is_empty() {
                    return Err(EINVAL);
                }
                if pool.snaps.values().any(|s| s.name == msg.name) {
                    return Err(EEXIST);
                }
                poolops::add_snap(&mut pool, &msg.name, self.wall(), next);
            }
            pool_op::DELETE_SNAP => {
                if pool.has_flag(PoolFlags::SELFMANAGED_SNAPS) {
                    return Err(EINVAL);
                }
                let Some(snap) = pool.snaps.values().find(|s| s.name == msg.name).map(|s| s.id)
                else {
                    return Err(ENOENT);
                };
                poolops::remove_snap(&mut pool, snap, next);
                inc.new_removed_snaps.entry(id).or_default().insert(snap.0, 1);
            }
            pool_op::CREATE_UNMANAGED_SNAP => {
                if pool.has_flag(PoolFlags::POOL_SNAPS) {
                    return Err(EINVAL);
                }
                let snap = poolops::add_unmanaged_snap(&mut pool, next);
                inc.new_pools.insert(id, pool);
                return Ok((Some(inc), Some(Bytes::copy_from_slice(&snap.0.to_le_bytes()))));
            }
            pool_op::DELETE_UNMANAGED_SNAP => {
                if pool.has_flag(PoolFlags::POOL_SNAPS) {
                    return Err(EINVAL);
                }
                if msg.snapid > pool.snap_seq || msg.snapid == SnapId(0) {
                    return Err(ENOENT);
                }
                let removed = self.state.osdmap.removed_snaps_queue.get(&id);
                if removed.is_some_and(|q| q.contains(msg.snapid.0)) {
                    return Ok((None, None));
                }
                pool.flags.set(PoolFlags::SELFMANAGED_SNAPS, true);
                pool.snap_seq = SnapId(pool.snap_seq.0 + 1);
                pool.snap_epoch = next;
                pool.last_change = next;
                inc.new_removed_snaps.entry(id).or_default().insert(msg.snapid.0, 1);
            }
            _ => return Err(EOPNOTSUPP),
        }
        inc.new_pools.insert(id, pool);
        Ok((Some(inc), None))
    }

    /// What new pools get unless somebody says otherwise.
    pub(super) fn pool_defaults(&self) -> poolops::PoolDefaults {
        let num = |key| self.option::<conf::key::Uint>(key) as u32;
        poolops::PoolDefaults {
            size: num(key::OSD_POOL_DEFAULT_SIZE).clamp(1, 10) as u8,
            min_size: num(key::OSD_POOL_DEFAULT_MIN_SIZE) as u8,
            pg_num: num(key::OSD_POOL_DEFAULT_PG_NUM),
            pgp_num: num(key::OSD_POOL_DEFAULT_PGP_NUM),
            max_pg_per_osd: num(key::MON_MAX_PG_PER_OSD),
            autoscale: match self.option(key::OSD_POOL_DEFAULT_PG_AUTOSCALE_MODE).as_str() {
                "on" => 2,
                "warn" => 1,
                _ => 0,
            },
        }
    }
}
