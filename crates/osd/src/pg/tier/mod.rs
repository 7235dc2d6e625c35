//! A PG of a cache tier: what comes for objects that are not here, or that the base has to
//! be told of.
//!
//! ```text
//!              miss: promote (a copy of the base's, or a whiteout where it has none)
//!   absent ────────────────────────────────────────────────▶ clean ◀──── flush done
//!     ▲  └── miss: proxied, stays absent                    │    │            │
//!     └───────────────────── evict ─────────────────────────┘    └─ write ─▶ dirty
//! ```
//!
//! What may be trusted: a *dirty* object is newer than the base's, a *clean* one is what the
//! base had when it became clean, and nobody but this PG changes the base's object while it
//! is here. A *whiteout* is an object that does not exist: clean, the base has none; dirty,
//! the base is to delete it. An absent object is what the base says, its clones too: the
//! head's [`maps::SnapSet`] names clones that need not be here.
//!
//! At most one thing that others must wait for is under way for an object: `busy`. Requests
//! for it wait in [`Pg::blocked`] meanwhile. All of this is lost with the interval; requests
//! begin anew, and the base recognises what it did already.
//!
//! Source: the peer's `PrimaryLogPG::{maybe_handle_cache_detail, promote_object, start_flush,
//! agent_work}`.

mod agent;
mod flush;
pub(crate) mod hits;
mod promote;
mod sweep;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use denc::Denc;
use maps::{BloomParams, CacheMode, PgPool};
use messages::{
    Answered, LogKind, MOsdOpReply, Mutation, ObjectChange, PgLogEntry, Touched, op, op_flag,
    req_flag,
};
use types::{EVersion, Errno, HObject, PoolId, ReqId, SnapId, UTime};

use super::ops::Answer;
use super::{Cx, Pg};
use crate::object::{INFO_ATTR, ObjectState};
use crate::session::{ClientOp, enqueue};
use crate::snapset::{self, Found};
use crate::tier::AskWanted;

/// What a pool that is a cache means for its PGs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CacheView {
    pub base: PoolId,
    pub mode: CacheMode,
    /// The base has no omap.
    pub base_erasure: bool,
    /// Kind of hit sets, see [`maps::HitSetParams`]; 0 for none.
    pub hit_kind: u8,
    /// How filters of hit sets are wanted; the error is for all sets together.
    pub hit_bloom: BloomParams,
    pub hit_period_s: u32,
    pub hit_count: u32,
    pub read_recency: u32,
    pub write_recency: u32,
    /// For one PG; 0 for no bound.
    pub objects_target: u64,
    pub bytes_target: u64,
    /// Millionths of the targets.
    pub dirty_micro: u64,
    pub dirty_high_micro: u64,
    pub full_micro: u64,
    pub flush_age_s: u32,
    pub evict_age_s: u32,
}

impl CacheView {
    pub(crate) fn of(map: &maps::OsdMap, pool: &PgPool) -> Option<Arc<Self>> {
        if !pool.is_tier() || pool.mode() == CacheMode::None {
            return None;
        }
        let base = PoolId(pool.tier_of);
        let share = |n: u64| if n == 0 { 0 } else { (n / u64::from(pool.pg_num.max(1))).max(1) };
        Some(Arc::new(Self {
            base,
            mode: pool.mode(),
            base_erasure: map.pool(base).is_some_and(PgPool::is_erasure),
            hit_kind: if pool.hit_set_period == 0 || pool.hit_set_count == 0 {
                0
            } else {
                pool.hit_set_params.kind
            },
            hit_bloom: pool.hit_set_params.bloom().unwrap_or_default(),
            hit_period_s: pool.hit_set_period,
            hit_count: pool.hit_set_count,
            read_recency: pool.min_read_recency_for_promote,
            write_recency: pool.min_write_recency_for_promote,
            objects_target: share(pool.target_max_objects),
            bytes_target: share(pool.target_max_bytes),
            dirty_micro: pool.cache_target_dirty_ratio_micro.into(),
            dirty_high_micro: pool.cache_target_dirty_high_ratio_micro.into(),
            full_micro: pool.cache_target_full_ratio_micro.into(),
            flush_age_s: pool.cache_min_flush_age,
            evict_age_s: pool.cache_min_evict_age,
        }))
    }
}

/// What an object's requests wait for.
#[derive(Debug)]
enum Busy {
    /// The object, or a clone of it, is fetched; the fetch has this number.
    Promote(HObject, u64),
    /// A write is done by the base.
    Proxy,
    /// The object is flushed.
    Flush,
}

/// What was asked of the base.
#[derive(Debug)]
enum Asked {
    /// A client's request; whether it keeps others waiting.
    Proxy(Box<ClientOp>, bool),
    /// A step of a flush.
    Flush(HObject),
}

/// What only PGs of cache tiers have.
#[derive(Debug, Default)]
pub(crate) struct Tier {
    next: u64,
    /// By head.
    busy: BTreeMap<HObject, Busy>,
    asked: BTreeMap<u64, Asked>,
    /// By head or clone.
    flushes: BTreeMap<HObject, flush::Flush>,
    pub(crate) hits: hits::Hits,
    agent: agent::Agent,
    sweep: sweep::Sweep,
    /// Requests that wait until something was evicted.
    full: VecDeque<Box<ClientOp>>,
}

impl Tier {
    /// Whether an answer of the base is awaited under this name.
    pub(crate) fn awaits(&self, token: u64) -> bool {
        self.asked.contains_key(&token)
    }

    /// Whether that fetch is a promotion under way.
    pub(crate) fn promotes(&self, oid: &HObject, seq: u64) -> bool {
        let head = oid.with_snap(SnapId::HEAD);
        matches!(self.busy.get(&head), Some(Busy::Promote(o, s)) if o == oid && *s == seq)
    }

    /// Whether nothing is under way.
    pub(crate) fn is_quiet(&self) -> bool {
        self.busy.is_empty()
            && self.asked.is_empty()
            && self.flushes.is_empty()
            && self.full.is_empty()
    }

    /// Whether requests for the object wait for something that is not its recovery.
    pub(crate) fn holds(&self, head: &HObject) -> bool {
        self.busy.contains_key(head)
    }

    /// Whether the object or a clone of it is on its way to the base.
    pub(crate) fn flushes_some(&self, head: &HObject) -> bool {
        self.flushes.keys().any(|o| o.with_snap(SnapId::HEAD) == *head)
    }

    /// Requests that it has, all of which begin anew.
    pub(crate) fn take_ops(&mut self) -> VecDeque<Box<ClientOp>> {
        let mut ops = std::mem::take(&mut self.full);
        for asked in std::mem::take(&mut self.asked).into_values() {
            if let Asked::Proxy(op, _) = asked {
                ops.push_back(op);
            }
        }
        for f in std::mem::take(&mut self.flushes).into_values() {
            ops.extend(f.op);
            ops.extend(f.behind);
        }
        self.busy.clear();
        self.sweep = sweep::Sweep::default();
        self.agent.reset();
        ops
    }

    /// Requests under way, for who lists them.
    pub(crate) fn ops(&self) -> impl Iterator<Item = &ClientOp> {
        let proxied = self.asked.values().filter_map(|a| match a {
            Asked::Proxy(op, _) => Some(&**op),
            Asked::Flush(_) => None,
        });
        let flushes = self.flushes.values().flat_map(|f| f.op.iter().chain(&f.behind));
        proxied.chain(flushes.map(|op| &**op)).chain(self.full.iter().map(|op| &**op))
    }

    /// Names for fetches and questions; apart from the numbers of clients' requests.
    fn token(&mut self) -> u64 {
        self.next += 1;
        1 << 63 | self.next
    }
}

/// The single operation on the cache itself, if the request is one.
fn cache_op(op: &ClientOp) -> Option<u16> {
    let code = op.msg.ops.iter().map(|o| o.code).find(|c| is_cache_op(*c))?;
    Some(if op.msg.ops.len() == 1 { code } else { 0 })
}

/// Whether the operation is about the object in the cache, whatever it is for clients.
pub(crate) const fn is_cache_op(code: u16) -> bool {
    matches!(code, op::CACHE_FLUSH | op::CACHE_TRY_FLUSH | op::CACHE_EVICT)
}

/// Whether it only makes sense on an object that is here.
fn must_promote(op: &ClientOp) -> bool {
    let here = [op::WATCH, op::NOTIFY, op::NOTIFY_ACK, op::LIST_WATCHERS, op::CACHE_PIN];
    op.msg.ops.iter().any(|o| here.contains(&o.code))
}

/// Whether it is no reason to bring the object here.
fn skips_promote(op: &ClientOp) -> bool {
    let [only] = &op.msg.ops[..] else { return false };
    let passing = op_flag::FADVISE_NOCACHE | op_flag::FADVISE_DONTNEED;
    match only.code {
        op::DELETE => true,
        op::READ | op::SYNC_READ | op::SPARSE_READ | op::CHECKSUM | op::WRITEFULL => {
            only.flags & passing != 0
        }
        _ => false,
    }
}

impl Pg {
    /// A request on its way to its object; `None` when the cache has taken it.
    pub(crate) fn through_cache(
        &mut self,
        mut op: Box<ClientOp>,
        writes: bool,
        cx: &mut Cx<'_>,
    ) -> Option<Box<ClientOp>> {
        if let Some(code) = cache_op(&op) {
            self.run_cache_op(op, code, cx);
            return None;
        }
        let Some(view) = self.pool.cache.clone() else { return Some(op) };
        if op.msg.flags & req_flag::IGNORE_CACHE != 0 {
            return Some(op);
        }
        let first = !std::mem::replace(&mut op.hit, true);
        let known = view.hit_kind != 0 && self.note_hit(&op.oid, first, cx);
        // An archive may have taken its place in memory.
        if let Err(e) = self.load_obc(&op.oid, cx) {
            tracing::error!(pg = %self.id, "{e}");
            Answer::error(&op, Errno::IO).send(&op, cx);
            return None;
        }
        let ordered = writes || op.msg.flags & req_flag::RWORDERED != 0;
        if ordered && self.tier.full.iter().any(|o| o.oid == op.oid) {
            self.tier.full.push_back(op); // behind one that waits for room in the cache
            return None;
        }
        match self.lacks_for(&op, cx) {
            Err(e) => {
                tracing::error!(pg = %self.id, "{e}");
                Answer::error(&op, Errno::IO).send(&op, cx);
            }
            Ok(Some(lacks)) => self.miss(op, lacks, &view, ordered, known, cx),
            Ok(None) if view.mode == CacheMode::Readonly && writes && !must_promote(&op) => {
                // What the base is about to change must not be read here any more.
                if self.drop_copies(&op.oid, cx) {
                    self.proxy(op, &view, true, cx);
                } else {
                    return Some(op);
                }
            }
            Ok(None) => return Some(op),
        }
        None
    }

    /// What the request needs and the cache has not: the object, or one of its clones.
    fn lacks_for(
        &self,
        op: &ClientOp,
        cx: &Cx<'_>,
    ) -> Result<Option<HObject>, crate::backing::StoreError> {
        let state = &self.obcs[&op.oid].state;
        if !state.is_stored() {
            return Ok(Some(op.oid.detached()));
        }
        let rollbacks = op.msg.ops.iter().filter(|o| o.code == op::ROLLBACK);
        let read = Some(op.msg.snapid).filter(|s| !matches!(*s, SnapId::HEAD | SnapId::DIR));
        for snap in rollbacks.map(|o| SnapId(o.u64(0))).chain(read) {
            if let Found::Clone(clone) = snapset::find(state, snap) {
                let clone = op.oid.with_snap(clone);
                if !self.missing.contains_key(&clone) && !self.has_object(&clone, cx)? {
                    return Ok(Some(clone.detached()));
                }
            }
        }
        Ok(None)
    }

    fn has_object(&self, oid: &HObject, cx: &Cx<'_>) -> Result<bool, crate::backing::StoreError> {
        Ok(cx.store.attr(self.coll, oid, INFO_ATTR)?.is_some())
    }

    /// The object is not here. Rules of the modes: the peer's.
    fn miss(
        &mut self,
        op: Box<ClientOp>,
        lacks: HObject,
        view: &Arc<CacheView>,
        ordered: bool,
        known: bool,
        cx: &mut Cx<'_>,
    ) {
        // A head that is here is rolled back here, to a clone that is here.
        let must = must_promote(&op) || !lacks.is_head() && op.may_write();
        match view.mode {
            CacheMode::None => {}
            CacheMode::Writeback if self.tier.agent.full => {
                if ordered || must {
                    self.tier.full.push_back(op);
                } else {
                    self.proxy(op, view, false, cx);
                }
            }
            CacheMode::Writeback => {
                let skip = skips_promote(&op);
                let recency = if ordered { view.write_recency } else { view.read_recency };
                let used = view.hit_kind == 0 || self.tier.hits.is_recent(&lacks, recency, known);
                if must || (used && !skip && (ordered || view.hit_kind == 0)) {
                    self.promote(Some(op), lacks, view, cx);
                    return;
                }
                self.proxy(op, view, ordered, cx);
                // It is read from the base meanwhile.
                if used && !skip && !ordered && cx.may_start() {
                    self.promote(None, lacks, view, cx);
                }
            }
            CacheMode::Readonly if !ordered || must => self.promote(Some(op), lacks, view, cx),
            CacheMode::Proxy if must => self.promote(Some(op), lacks, view, cx),
            CacheMode::Proxy | CacheMode::Readonly => self.proxy(op, view, ordered, cx),
            CacheMode::Readproxy | CacheMode::Forward | CacheMode::Readforward => {
                if !ordered && !must {
                    self.proxy(op, view, false, cx);
                } else if self.tier.agent.full {
                    self.tier.full.push_back(op);
                } else {
                    self.promote(Some(op), lacks, view, cx);
                }
            }
        }
    }

    /// Requests for the object wait from here on, until [`Pg::let_go`].
    fn hold_for(&mut self, head: &HObject, why: Busy) {
        let head = head.detached();
        self.blocked.entry(head.clone()).or_default();
        let was = self.tier.busy.insert(head, why);
        assert!(was.is_none(), "one thing at a time for an object");
    }

    fn let_go(&mut self, head: &HObject, cx: &mut Cx<'_>) {
        if self.tier.busy.remove(head).is_some() {
            let ops = self.blocked.remove(head).unwrap_or_default();
            self.go_on(ops, cx);
        }
    }

    /// The base does it. A write keeps others waiting, so that what comes behind it finds it
    /// done, also by a promotion.
    fn proxy(&mut self, op: Box<ClientOp>, view: &CacheView, holds: bool, cx: &mut Cx<'_>) {
        let token = self.tier.token();
        let mut msg = op.msg.clone();
        msg.reqid = op.reqid;
        msg.locator.pool = view.base;
        msg.flags |= req_flag::IGNORE_OVERLAY;
        msg.flags &= !(req_flag::BALANCE_READS | req_flag::LOCALIZE_READS);
        let from = (self.id, token);
        cx.asks.push(AskWanted {
            from,
            base: view.base,
            who: op.by.who,
            addr: op.by.addr,
            op: msg,
        });
        if holds {
            self.hold_for(&op.oid.clone(), Busy::Proxy);
        }
        self.tier.asked.insert(token, Asked::Proxy(op, holds));
    }

    /// The base has answered.
    pub(crate) fn on_base_answer(&mut self, token: u64, reply: MOsdOpReply, cx: &mut Cx<'_>) {
        match self.tier.asked.remove(&token) {
            Some(Asked::Proxy(mut op, holds)) => {
                let head = op.oid.detached();
                if self.may_read(cx) {
                    let answer = Answer {
                        result: reply.result,
                        rvals: reply.rvals,
                        ops: reply.ops,
                        version: reply.replay_version,
                        user_version: reply.user_version,
                    };
                    op.waited = true;
                    answer.send(&op, cx);
                } else if holds {
                    // Somebody else may lead, and have it: first of all when it is known.
                    enqueue(self.blocked.entry(head.clone()).or_default(), op);
                } else {
                    self.go_on([op], cx);
                }
                if holds {
                    self.let_go(&head, cx);
                }
            }
            Some(Asked::Flush(oid)) => self.on_flush_answer(&oid, reply.result, cx),
            None => {}
        }
    }

    /// A change of the cache's own to an object or a clone: after it, the object is `after`,
    /// or not here when that is not stored. `op` is answered with success when it is durable.
    ///
    /// The head's context must be in memory.
    #[allow(clippy::too_many_arguments)]
    fn tier_write(
        &mut self,
        oid: &HObject,
        mut mutations: Vec<Mutation>,
        mut after: ObjectState,
        answered: Vec<Answered>,
        op: Option<Box<ClientOp>>,
        cx: &mut Cx<'_>,
    ) -> Result<(), crate::backing::StoreError> {
        let head = oid.with_snap(SnapId::HEAD).detached();
        let head_was = self.obcs[&head].state.clone();
        let was = if oid.is_head() {
            head_was.clone()
        } else {
            Self::read_state(cx.store, self.coll, oid)?
        };
        let version = self.next_version(cx);
        let stored = after.is_stored();
        if stored {
            after.info.version = version;
        }
        let set = head_was.info.snaps.clone().unwrap_or_default();
        let bytes = |s: &ObjectState| match s.exists {
            true if oid.is_head() => s.info.size as i64,
            true => snapset::own_bytes(&set, oid.snap),
            false => 0,
        };
        let one = |on: bool| i64::from(on);
        let mut counts = self.counts();
        counts.objects += one(stored) - one(was.is_stored());
        counts.bytes += bytes(&after) - bytes(&was);
        counts.clean += one(stored && after.info.clean) - one(was.is_stored() && was.info.clean);
        let omap = |s: &ObjectState| one(s.exists && s.info.omap);
        counts.omap_objects += omap(&after) - omap(&was);
        if !oid.is_head() {
            counts.clones += one(stored) - one(was.is_stored());
        }
        let prior = |s: &ObjectState| if s.is_stored() { s.info.version } else { EVersion::ZERO };
        let kind = if stored { LogKind::Modify } else { LogKind::Delete };
        let user = if oid.is_head() { after.info.user_version } else { 0 };
        let mut entry = PgLogEntry {
            version,
            prior: prior(&head_was),
            kind,
            oid: head.clone(),
            reqid: op.as_ref().map_or(ReqId::default(), |op| op.reqid),
            user_version: self.last_user_version().max(user),
            mtime: UTime::from_nanos(cx.now.wall_ns),
            counts,
            answered,
            ..PgLogEntry::default()
        };
        let replies = op.into_iter().map(|op| {
            let answer = Answer::error(&op, Errno(0));
            (op, Answer { version, user_version: head_was.info.user_version, ..answer })
        });
        let replies = replies.collect();
        if oid.is_head() {
            let change = ObjectChange { oid: head, mutations };
            self.submit_write(None, change, entry, after, replies, cx);
            return Ok(());
        }
        entry.kind = LogKind::Modify;
        entry.also = vec![Touched { oid: oid.detached(), kind, prior: prior(&was) }];
        if stored {
            let attr = Bytes::from_static(INFO_ATTR);
            mutations.push(Mutation::SetAttr(attr, after.info.to_bytes()));
        }
        let clone = ObjectChange { oid: oid.detached(), mutations };
        let mut head_now = head_was;
        head_now.info.version = version;
        let change = ObjectChange { oid: head, mutations: Vec::new() };
        self.submit_write(Some(clone), change, entry, head_now, replies, cx);
        Ok(())
    }

    /// What a client's write leaves in a cache: instead of nothing a whiteout, which the base
    /// is still to be told of; with IGNORE_CACHE, nothing.
    pub(crate) fn note_whiteout(
        &self,
        op: &ClientOp,
        before: &ObjectState,
        after: &mut ObjectState,
        mutations: &mut Vec<Mutation>,
    ) {
        if after.exists {
            after.info.whiteout = false;
            return;
        }
        let ignored = op.msg.flags & req_flag::IGNORE_CACHE != 0;
        if self.pool.cache.is_none() || after.info.whiteout || ignored {
            return;
        }
        after.info.whiteout = true;
        if before.is_stored() && !mutations.iter().any(|m| matches!(m, Mutation::Remove)) {
            mutations.push(Mutation::Remove);
        }
        mutations.push(Mutation::Touch);
    }

    /// Bytes of the clones that are here.
    pub(crate) fn clone_bytes(
        &self,
        oid: &HObject,
        set: &maps::SnapSet,
        cx: &Cx<'_>,
    ) -> Result<i64, crate::backing::StoreError> {
        if self.pool.cache.is_none() {
            return Ok(snapset::clone_bytes(set));
        }
        snapset::bytes_here(cx.store, self.coll, oid, set)
    }

    /// Once in a while.
    pub(crate) fn tick_tier(&mut self, cx: &mut Cx<'_>) {
        self.follow_hits(cx);
        if self.pool.cache.is_none() {
            let ops = std::mem::take(&mut self.tier.full);
            self.go_on(ops, cx);
            return;
        }
        self.kick_agent(cx);
    }
}
