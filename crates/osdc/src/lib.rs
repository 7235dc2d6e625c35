//! The objecter: finds the OSD for an operation, sends it there, and sends it again
//! elsewhere when the map or a connection changes.
//!
//! Invariants: no I/O and no clock; operations of one owner on one object reach an OSD in
//! the order of submission; each is answered at most once, whatever is sent again.
//!
//! Source: the peer's `osdc/Objecter.cc`; rules in `docs/protocols/`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use denc::Features;
use maps::{OsdMap, OsdMapFlags, PgSets, PoolFlags};
use messages::{Backoff, Envelope, MOsdOp, MOsdOpReply, Message, OsdOp, req_flag};
use types::{
    AddrVec, Epoch, HObject, ObjectLocator, OsdId, PgId, PoolId, ReqId, ShardId, SnapId, SpgId,
    UTime,
};

/// What an operation is about, before a map says where it goes.
#[derive(Clone, Debug)]
pub struct Request {
    /// The object; for listings any value whose `hash` names the PG.
    pub object: HObject,
    /// A whole PG is addressed by this number instead of an object.
    pub pg: Option<u32>,
    /// What to do.
    pub ops: Vec<OsdOp>,
    /// [`req_flag::READ`] or [`req_flag::WRITE`], and others.
    pub flags: u32,
    /// When it was written.
    pub mtime: UTime,
    /// Newest snapshot and snapshots, newest first.
    pub snaps: (SnapId, Vec<SnapId>),
}

impl Request {
    /// Whether it waits while its pool, or the whole cluster, is full.
    fn respects_full(&self) -> bool {
        self.flags & (req_flag::WRITE | req_flag::RWORDERED) != 0
            && self.flags & (req_flag::FULL_TRY | req_flag::FULL_FORCE) == 0
    }

    /// Whether it is not sent by this map. Source: the peer's `target_should_be_paused`, which
    /// lets reads pass that are ordered among the writes it holds back.
    fn is_paused(&self, map: &OsdMap) -> bool {
        let reads = self.flags & req_flag::READ != 0;
        let writes = self.flags & req_flag::WRITE != 0;
        reads && map.has_flag(OsdMapFlags::PAUSERD)
            || writes && map.has_flag(OsdMapFlags::PAUSEWR)
            || self.respects_full() && is_full(map, self.object.pool)
    }
}

/// The pool that serves a request: with an overlay its cache tier. Whole PGs are asked where
/// they are. Source: the peer's `Objecter::_calc_target`.
fn served_in(map: &OsdMap, request: &Request) -> PoolId {
    let own = request.object.pool;
    let Some(pool) = map.pool(own) else { return own };
    if request.pg.is_some() || request.flags & req_flag::IGNORE_OVERLAY != 0 {
        return own;
    }
    let writes = request.flags & req_flag::WRITE != 0;
    tier_or(own, if writes { pool.write_tier } else { pool.read_tier })
}

/// The pool named as a tier, or its own.
fn tier_or(own: PoolId, tier: i64) -> PoolId {
    if tier < 0 { own } else { PoolId(tier) }
}

/// Whether requests to the pool are sent again by this map: an overlay came or went.
fn sends_again(map: &OsdMap, was: Option<&OsdMap>, pool: PoolId) -> bool {
    let since = |map: &OsdMap| map.pool(pool).map(|p| p.last_force_op_resend);
    was.is_some_and(|was| since(was).is_some() && since(was) != since(map))
}

/// Whether this map divides the PG or merges it: its OSD drops what it was asked before.
fn divides(map: &OsdMap, was: Option<&OsdMap>, pg: PgId) -> bool {
    let pg_num = |map: &OsdMap| map.pool(pg.pool).map(|p| p.pg_num);
    let numbers = was.and_then(pg_num).zip(pg_num(map));
    numbers.is_some_and(|(old, new)| maps::pg_num_matters(pg, old, new))
}

fn is_full(map: &OsdMap, pool: PoolId) -> bool {
    map.has_flag(OsdMapFlags::FULL) || map.pool(pool).is_some_and(|p| p.has_flag(PoolFlags::FULL))
}

/// What the objecter wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum Out {
    /// Connect to an OSD; answer by [`Objecter::on_opened`] or [`Objecter::on_closed`].
    Connect(OsdId, AddrVec),
    /// Close the connection to an OSD.
    Close(OsdId),
    /// Send to an OSD over its open connection.
    Send(OsdId, Envelope),
    /// An operation's answer.
    Done(u64, Box<MOsdOpReply>),
    /// An operation cannot be done: its pool is gone (-ENOENT).
    Failed(u64, i32),
    /// A map from this epoch on is needed.
    WantMap(Epoch),
}

struct Op {
    request: Request,
    target: Option<(SpgId, OsdId)>,
    attempt: i32,
    sent: bool,
}

impl Op {
    /// The pool that serves it.
    fn pool(&self) -> PoolId {
        self.target.map_or(self.request.object.pool, |(pg, _)| pg.pg.pool)
    }

    /// The object in that pool.
    fn object(&self) -> HObject {
        HObject { pool: self.pool(), ..self.request.object.clone() }
    }
}

struct Session {
    addrs: AddrVec,
    open: Option<Features>,
    /// What this OSD wants held: ranges of objects, by PG and number.
    backoffs: BTreeMap<(SpgId, u64), (HObject, HObject)>,
}

/// Who serves an object. As long as it stays equal, the primary has not forgotten what only
/// it knows: who watches over which connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The PG.
    pub pg: SpgId,
    /// Its primary, which is up.
    pub osd: OsdId,
    /// All who serve it or should: another primary in between shows here.
    pub sets: PgSets,
    /// The pool's PGs: a split makes new intervals.
    pub pg_num: u32,
    /// How often maps were not seen one by one: what happened in between is not known.
    pub gaps: u64,
}

/// Values of [`Backoff::op`].
mod backoff_op {
    pub(crate) const BLOCK: u8 = 1;
    pub(crate) const ACK_BLOCK: u8 = 2;
    pub(crate) const UNBLOCK: u8 = 3;
}

impl Session {
    fn holds(&self, pg: SpgId, object: &HObject) -> bool {
        self.backoffs
            .range((pg, 0)..=(pg, u64::MAX))
            .any(|(_, (begin, end))| object == begin || (begin <= object && object < end))
    }
}

/// The primary of a PG and the shard it has, when it is up; and where it listens.
fn served_by(map: &OsdMap, pg: PgId) -> Option<((SpgId, OsdId), &AddrVec)> {
    let mapped = map.pg_to_up_acting(pg);
    let primary = mapped.acting_primary?;
    let addrs = map.osd_addrs(primary).filter(|_| map.is_up(primary))?;
    let shard = if map.pool(pg.pool)?.is_erasure() {
        let at = mapped.acting.iter().position(|o| *o == primary).unwrap_or(0);
        ShardId(at as i8)
    } else {
        ShardId::NONE
    };
    Some(((SpgId { pg, shard }, primary), addrs))
}

/// See the crate's page.
#[derive(Default)]
pub struct Objecter {
    map: Option<Arc<OsdMap>>,
    ops: BTreeMap<u64, Op>,
    sessions: BTreeMap<OsdId, Session>,
    next_tid: u64,
    gaps: u64,
}

impl Objecter {
    /// Without a map.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The newest map.
    #[must_use]
    pub fn map(&self) -> Option<&Arc<OsdMap>> {
        self.map.as_ref()
    }

    /// Operations without an answer.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.ops.len()
    }

    /// Takes an operation; its tid comes back with the answer.
    pub fn submit(&mut self, request: Request, out: &mut Vec<Out>) -> u64 {
        self.next_tid += 1;
        let tid = self.next_tid;
        self.ops.insert(tid, Op { request, target: None, attempt: -1, sent: false });
        self.aim(tid, out);
        tid
    }

    /// Nobody waits for the answer any more.
    pub fn cancel(&mut self, tid: u64) {
        self.ops.remove(&tid);
    }

    /// A newer map: what goes elsewhere by it is sent again. When maps between it and the
    /// last one were not seen everything is: an OSD that led a PG before and leads it now may
    /// not have in between, and forgets then what it was asked.
    pub fn on_map(&mut self, map: Arc<OsdMap>, out: &mut Vec<Out>) {
        if self.map.as_ref().is_some_and(|old| old.epoch >= map.epoch) {
            return;
        }
        if self.map.as_ref().is_some_and(|old| old.epoch.0 + 1 < map.epoch.0) {
            self.ops.values_mut().for_each(|op| op.sent = false);
            self.gaps += 1;
        }
        // An OSD drops writes from before its pool was full.
        let was = self.map.clone();
        for op in self.ops.values_mut().filter(|op| op.request.respects_full()) {
            let pool = op.request.object.pool;
            if is_full(&map, pool) || was.as_ref().is_some_and(|was| is_full(was, pool)) {
                op.sent = false;
            }
        }
        for op in self.ops.values_mut().filter(|op| op.sent) {
            let pools = [op.request.object.pool, op.pool()];
            op.sent = !pools.iter().any(|pool| sends_again(&map, was.as_deref(), *pool))
                && op.target.is_none_or(|(pg, _)| !divides(&map, was.as_deref(), pg.pg));
        }
        let gone: Vec<OsdId> = self
            .sessions
            .iter()
            .filter(|(osd, s)| !map.is_up(**osd) || map.osd_addrs(**osd) != Some(&s.addrs))
            .map(|(osd, _)| *osd)
            .collect();
        self.map = Some(map);
        for osd in gone {
            self.sessions.remove(&osd);
            out.push(Out::Close(osd));
            for op in self.ops.values_mut().filter(|op| op.target.is_some_and(|(_, o)| o == osd)) {
                op.sent = false;
            }
        }
        let tids: Vec<u64> = self.ops.keys().copied().collect();
        for tid in tids {
            self.aim(tid, out);
        }
        let used: BTreeSet<OsdId> = self.ops.values().filter_map(|op| Some(op.target?.1)).collect();
        debug_assert!(
            used.iter().all(|osd| self.sessions.contains_key(osd)),
            "a target has a session"
        );
    }

    /// Finds an operation's OSD and sends it there, unless it is there already.
    fn aim(&mut self, tid: u64, out: &mut Vec<Out>) {
        let Some(map) = self.map.clone() else {
            out.push(Out::WantMap(Epoch(0)));
            return;
        };
        let Some(op) = self.ops.get_mut(&tid) else { return };
        let Some(pool) = map.pool(op.request.object.pool) else {
            if op.request.object.pool.0 > i64::from(map.pool_max) {
                // Whoever knows of it has seen a newer map than this.
                out.push(Out::WantMap(Epoch(map.epoch.0 + 1)));
                return;
            }
            self.ops.remove(&tid);
            out.push(Out::Failed(tid, -2));
            return;
        };
        let at = served_in(&map, &op.request);
        let pool = map.pool(at).unwrap_or(pool);
        let pg = match op.request.pg {
            Some(ps) => PgId { pool: at, ps },
            None => pool.raw_pg_to_pg(at, op.request.object.hash),
        };
        let Some((target, addrs)) = served_by(&map, pg) else {
            // Nobody serves it now: a later map will name somebody.
            op.target = None;
            op.sent = false;
            out.push(Out::WantMap(Epoch(map.epoch.0 + 1)));
            return;
        };
        let primary = target.1;
        if op.target != Some(target) {
            op.target = Some(target);
            op.sent = false;
        }
        match self.sessions.get(&primary) {
            None => {
                let session =
                    Session { addrs: addrs.clone(), open: None, backoffs: BTreeMap::new() };
                self.sessions.insert(primary, session);
                out.push(Out::Connect(primary, addrs.clone()));
            }
            Some(Session { open: Some(features), .. }) => {
                let features = *features;
                self.send(tid, features, out);
            }
            Some(_) => {}
        }
    }

    fn send(&mut self, tid: u64, features: Features, out: &mut Vec<Out>) {
        let epoch = self.map.as_ref().map_or(Epoch(0), |m| m.epoch);
        let Some(op) = self.ops.get_mut(&tid) else { return };
        let Some((pg, osd)) = op.target else { return };
        if op.sent || self.sessions.get(&osd).is_some_and(|s| s.holds(pg, &op.object())) {
            return;
        }
        if self.map.as_ref().is_some_and(|map| op.request.is_paused(map)) {
            out.push(Out::WantMap(Epoch(epoch.0 + 1)));
            return;
        }
        op.sent = true;
        op.attempt += 1;
        let request = &op.request;
        let retry = if op.attempt > 0 { req_flag::RETRY } else { 0 };
        let message = MOsdOp {
            pg,
            hash: request.object.hash,
            epoch,
            flags: request.flags | req_flag::ONDISK | req_flag::KNOWN_REDIR | retry,
            reqid: ReqId::default(),
            client_inc: 0,
            mtime: request.mtime,
            locator: ObjectLocator {
                pool: pg.pg.pool,
                key: request.object.key.clone(),
                nspace: request.object.nspace.clone(),
                hash: request.pg.map_or(-1, i64::from),
            },
            oid: if request.pg.is_some() { Bytes::new() } else { request.object.name.clone() },
            ops: request.ops.clone(),
            snapid: request.object.snap,
            snap_seq: request.snaps.0,
            snaps: request.snaps.1.clone(),
            retry_attempt: op.attempt,
            features: features.0,
        };
        out.push(Out::Send(osd, message.envelope(features).with_tid(tid)));
    }

    /// The connection to an OSD is ready.
    pub fn on_opened(&mut self, osd: OsdId, features: Features, out: &mut Vec<Out>) {
        let Some(session) = self.sessions.get_mut(&osd) else { return };
        session.open = Some(features);
        let tids: Vec<u64> = self
            .ops
            .iter()
            .filter(|(_, op)| op.target.is_some_and(|t| t.1 == osd))
            .map(|(t, _)| *t)
            .collect();
        for tid in tids {
            self.send(tid, features, out);
        }
    }

    /// The connection to an OSD ended: what it had not answered is sent again over the
    /// next one. The driver waits a moment before it connects.
    pub fn on_closed(&mut self, osd: OsdId, out: &mut Vec<Out>) {
        if self.sessions.remove(&osd).is_none() {
            return;
        }
        let tids: Vec<u64> = self
            .ops
            .iter()
            .filter(|(_, op)| op.target.is_some_and(|t| t.1 == osd))
            .map(|(t, _)| *t)
            .collect();
        for tid in &tids {
            if let Some(op) = self.ops.get_mut(tid) {
                op.sent = false;
            }
        }
        if let Some(map) = &self.map {
            out.push(Out::WantMap(Epoch(map.epoch.0 + 1)));
        }
        for tid in tids {
            self.aim(tid, out);
        }
    }

    /// An answer. One of an earlier attempt, or of an operation that is done, is dropped.
    pub fn on_reply(&mut self, osd: OsdId, tid: u64, reply: MOsdOpReply, out: &mut Vec<Out>) {
        let Some(op) = self.ops.get_mut(&tid) else { return };
        let current = op.target.is_some_and(|t| t.1 == osd) && reply.retry_attempt == op.attempt;
        if !current || reply.ops.len() != op.request.ops.len() {
            return;
        }
        self.ops.remove(&tid);
        out.push(Out::Done(tid, Box::new(reply)));
    }

    /// The PGs of a pool, to list it.
    #[must_use]
    pub fn pg_count(&self, pool: PoolId) -> Option<u32> {
        Some(self.map.as_ref()?.pool(pool)?.pg_num)
    }

    /// Where changes of an object go by the newest map, and watches.
    #[must_use]
    pub fn place(&self, object: &HObject) -> Option<Place> {
        let map = self.map.as_ref()?;
        let at = tier_or(object.pool, map.pool(object.pool)?.write_tier);
        let pool = map.pool(at)?;
        let ((pg, osd), _) = served_by(map, pool.raw_pg_to_pg(at, object.hash))?;
        Some(Place {
            pg,
            osd,
            sets: map.pg_to_up_acting(pg.pg),
            pg_num: pool.pg_num,
            gaps: self.gaps,
        })
    }

    /// An OSD wants operations on a range of objects held, and has dropped what it had of
    /// them; or it is ready for them again.
    pub fn on_backoff(&mut self, osd: OsdId, msg: Backoff, out: &mut Vec<Out>) {
        let Some(session) = self.sessions.get_mut(&osd) else { return };
        let Some(features) = session.open else { return };
        let targeted = |op: &Op| op.target == Some((msg.pg, osd));
        match msg.op {
            backoff_op::BLOCK => {
                session.backoffs.insert((msg.pg, msg.id), (msg.begin.clone(), msg.end.clone()));
                for op in self.ops.values_mut().filter(|op| targeted(op)) {
                    if session.holds(msg.pg, &op.object()) {
                        op.sent = false;
                    }
                }
                let ack = Backoff { op: backoff_op::ACK_BLOCK, ..msg };
                out.push(Out::Send(osd, ack.envelope(features)));
            }
            backoff_op::UNBLOCK => {
                session.backoffs.remove(&(msg.pg, msg.id));
                let tids: Vec<u64> =
                    self.ops.iter().filter(|(_, op)| targeted(op)).map(|(t, _)| *t).collect();
                for tid in tids {
                    self.send(tid, features, out);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
