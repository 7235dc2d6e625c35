//! Objects that go back to the base, and objects that leave the cache.
//!
//! ```text
//!   dirty ──▶ base deletes what ──▶ base copies the object ──▶ clean, if it was not
//!             snapshots lacked      from here, or deletes it   written since
//! ```
//!
//! Older clones go before newer ones, and these before the head: each flush tells the base
//! the snapshots that were taken before it, so the base makes the very clones that are here.
//! A flush that is not to keep writers waiting (`CACHE_TRY_FLUSH`, the agent's) ends with
//! EBUSY when somebody wrote meanwhile: the copy names the version it wants. None begins while a
//! write is not on all copies: the base would be told of what may still be undone.
//!
//! The base learns which requests made the object what it is, for their resends come there once
//! the cache is gone: with a copy as copies tell it, with a delete as the operation's input.

use std::collections::VecDeque;

use denc::{Denc, Features, Writer};
use maps::SnapSet;
use messages::{MOsdOp, Mutation, OsdOp, copy_flag, op, req_flag};
use types::{Epoch, Errno, HObject, ObjectLocator, ReqId, SnapId, SpgId};

use super::{Asked, Busy, CacheView};
use crate::object::ObjectState;
use crate::pg::ops::Answer;
use crate::pg::{Cx, Pg};
use crate::session::{ClientOp, enqueue};
use crate::snapset::{self, Found};
use crate::tier::AskWanted;

/// An object on its way to the base.
#[derive(Debug)]
pub(super) struct Flush {
    /// Who wants it; nobody when it is the agent.
    pub op: Option<Box<ClientOp>>,
    /// Others that want it as well.
    pub behind: VecDeque<Box<ClientOp>>,
    /// What is flushed.
    user_version: u64,
    holds: bool,
    removal: bool,
    /// What is still to be done behind the step under way.
    next: Option<(SnapId, Vec<SnapId>)>,
}

/// The snapshots up to `seq` that clones serve, newest first: the context of a write that
/// knew no newer one. The peer's `SnapSet::get_ssc_as_of`.
fn context_at(set: &SnapSet, seq: SnapId) -> (SnapId, Vec<SnapId>) {
    let mut snaps: Vec<SnapId> =
        set.clone_snaps.values().flatten().copied().filter(|s| *s <= seq).collect();
    snaps.sort_unstable_by(|a, b| b.cmp(a));
    snaps.dedup();
    (seq, snaps)
}

impl Pg {
    /// `CACHE_FLUSH`, `CACHE_TRY_FLUSH`, `CACHE_EVICT`; 0 for a vector with more in it.
    pub(super) fn run_cache_op(&mut self, mut op: Box<ClientOp>, code: u16, cx: &mut Cx<'_>) {
        let done = match (code, &self.pool.cache) {
            (0, _) => Err(Errno::OPNOTSUPP),
            (_, None) => Err(Errno::INVAL),
            _ => self.aim_cache_op(&op),
        };
        let oid = match done {
            Ok(oid) => oid,
            Err(e) => return Answer::error(&op, e).send(&op, cx),
        };
        if self.is_degraded(&oid) {
            op.waited = true;
            enqueue(self.blocked.entry(op.oid.detached()).or_default(), op);
            self.recover_first(&oid, cx);
            return;
        }
        let state = match self.state_of(&oid, cx) {
            Ok(state) => state,
            Err(e) => {
                tracing::error!(pg = %self.id, "{e}");
                return Answer::error(&op, Errno::IO).send(&op, cx);
            }
        };
        let e = if !state.is_stored() {
            Errno::NOENT
        } else if state.info.pinned {
            Errno::PERM
        } else if code == op::CACHE_EVICT {
            match self.may_evict(&oid, &state, cx) {
                Ok(()) => return self.evict(&oid, Some(op), cx),
                Err(e) => e,
            }
        } else if state.info.clean {
            Errno(0)
        } else {
            let Some(quiet) = self.behind_writes(op) else { return };
            match self.start_flush(&oid, &state, quiet, code == op::CACHE_FLUSH, cx) {
                Ok(()) => return,
                Err((back, e)) => {
                    op = back;
                    e
                }
            }
        };
        Answer::error(&op, e).send(&op, cx);
    }

    /// The head or clone that the operation names.
    fn aim_cache_op(&self, op: &ClientOp) -> Result<HObject, Errno> {
        let state = &self.obcs[&op.oid].state;
        let snap = op.msg.snapid;
        if matches!(snap, SnapId::HEAD | SnapId::DIR) {
            return Ok(op.oid.detached());
        }
        match snapset::find(state, snap) {
            Found::Head => Ok(op.oid.detached()),
            Found::Clone(clone) => Ok(op.oid.with_snap(clone).detached()),
            Found::Nowhere => Err(Errno::NOENT),
        }
    }

    pub(super) fn state_of(
        &self,
        oid: &HObject,
        cx: &Cx<'_>,
    ) -> Result<ObjectState, crate::backing::StoreError> {
        match self.obcs.get(oid) {
            Some(obc) => Ok(obc.state.clone()),
            None => Self::read_state(cx.store, self.coll, oid),
        }
    }

    /// Whether the object may leave the cache.
    ///
    /// # Errors
    /// EBUSY: dirty, watched, or a head with clones here; EIO.
    pub(super) fn may_evict(
        &self,
        oid: &HObject,
        state: &ObjectState,
        cx: &Cx<'_>,
    ) -> Result<(), Errno> {
        if !state.info.clean || !state.info.watchers.is_empty() {
            return Err(Errno::BUSY);
        }
        let set = state.info.snaps.as_deref().filter(|_| oid.is_head());
        for clone in set.into_iter().flat_map(|s| &s.clones) {
            let clone = oid.with_snap(*clone);
            if self.missing.contains_key(&clone) || self.has_object(&clone, cx)? {
                return Err(Errno::BUSY);
            }
        }
        Ok(())
    }

    /// The object leaves the cache.
    pub(super) fn evict(&mut self, oid: &HObject, op: Option<Box<ClientOp>>, cx: &mut Cx<'_>) {
        let gone = ObjectState::default();
        let mut done = self.tier_write(oid, vec![Mutation::Remove], gone, Vec::new(), op, cx);
        if !oid.is_head() && done.is_ok() {
            // Trimming left it to the index, which has it no more.
            done = self.forget_absent(&oid.with_snap(SnapId::HEAD).detached(), cx);
        }
        if let Err(e) = done {
            tracing::error!(pg = %self.id, %oid, "evicting: {e}");
        }
    }

    /// Drops the object and all its clones from the cache; `false` when something of it is
    /// dirty or in use.
    pub(super) fn drop_copies(&mut self, head: &HObject, cx: &mut Cx<'_>) -> bool {
        let head = head.detached();
        let clones = self.obcs[&head].state.info.snaps.clone();
        let clones = clones.iter().flat_map(|s| &s.clones).map(|c| head.with_snap(*c));
        for oid in clones.collect::<Vec<_>>().into_iter().chain([head]) {
            if self.is_degraded(&oid) {
                return false;
            }
            match self.state_of(&oid, cx) {
                Ok(state) if !state.is_stored() => {}
                Ok(state) if self.may_evict(&oid, &state, cx).is_ok() => self.evict(&oid, None, cx),
                _ => return false,
            }
        }
        true
    }

    /// Sends a dirty object to the base.
    ///
    /// # Errors
    /// The request back, and why not: EBUSY, an older clone is dirty; EOPNOTSUPP, the base
    /// has no omap; EIO.
    fn start_flush(
        &mut self,
        oid: &HObject,
        state: &ObjectState,
        op: Box<ClientOp>,
        holds: bool,
        cx: &mut Cx<'_>,
    ) -> Result<(), (Box<ClientOp>, Errno)> {
        if let Some(f) = self.tier.flushes.get_mut(oid) {
            f.behind.push_back(op);
            return Ok(());
        }
        let view = self.pool.cache.clone().expect("looked at");
        match self.begin_flush(oid, state, holds, &view, cx) {
            Ok(()) => {
                self.tier.flushes.get_mut(oid).expect("just begun").op = Some(op);
                Ok(())
            }
            Err(e) => Err((op, e)),
        }
    }

    /// As [`Pg::start_flush`], for nobody yet.
    pub(super) fn begin_flush(
        &mut self,
        oid: &HObject,
        state: &ObjectState,
        holds: bool,
        view: &CacheView,
        cx: &mut Cx<'_>,
    ) -> Result<(), Errno> {
        if state.exists && state.info.omap && view.base_erasure {
            return Err(Errno::OPNOTSUPP);
        }
        let head = oid.with_snap(SnapId::HEAD).detached();
        let set = self.state_of(&head, cx)?.info.snaps.unwrap_or_default();
        let older: Vec<SnapId> = set.clones.iter().copied().take_while(|c| *c < oid.snap).collect();
        for clone in &older {
            let it = head.with_snap(*clone);
            if self.missing.contains_key(&it) {
                return Err(Errno::BUSY);
            }
            let it = Self::read_state(cx.store, self.coll, &it)?;
            if it.is_stored() && !it.info.clean {
                return Err(Errno::BUSY);
            }
        }
        // The newest snapshot that its first write knew of.
        let seq = if oid.is_head() {
            set.seq
        } else {
            let first = set.clone_snaps.get(&oid.snap).and_then(|s| s.last());
            SnapId(first.ok_or(Errno::IO)?.0.saturating_sub(1))
        };
        let before = older.last().copied().unwrap_or(SnapId(0));
        let mut f = Flush {
            op: None,
            behind: VecDeque::new(),
            user_version: state.info.user_version,
            holds,
            removal: state.info.whiteout,
            next: None,
        };
        if holds {
            self.hold_for(&head, Busy::Flush);
        }
        let mtime = state.info.mtime;
        if before == seq || f.removal {
            let step = self.flush_op(oid, &f, context_at(&set, before), mtime, view);
            self.ask_flush(oid, step, view, cx);
        } else {
            // Between the clone before it and its own time there was nothing: the base's
            // object, which is that clone's content, must not serve those snapshots.
            f.next = Some(context_at(&set, seq));
            let delete = OsdOp::new(op::DELETE, bytes::Bytes::new());
            let step = self.base_op(oid, delete, context_at(&set, before), mtime, view);
            self.ask_flush(oid, step, view, cx);
        }
        self.tier.flushes.insert(oid.detached(), f);
        Ok(())
    }

    fn ask_flush(&mut self, oid: &HObject, op: MOsdOp, view: &CacheView, cx: &mut Cx<'_>) {
        let token = self.tier.token();
        self.tier.asked.insert(token, Asked::Flush(oid.detached()));
        let (who, addr) = (types::EntityId::default(), types::EntityAddr::default());
        cx.asks.push(AskWanted { from: (self.id, token), base: view.base, who, addr, op });
    }

    /// The base takes the object over, or deletes its own.
    fn flush_op(
        &self,
        oid: &HObject,
        f: &Flush,
        context: (SnapId, Vec<SnapId>),
        mtime: types::UTime,
        view: &CacheView,
    ) -> MOsdOp {
        if f.removal {
            let delete = OsdOp::new(op::DELETE, self.requests_of(oid).to_bytes());
            return self.base_op(oid, delete, context, mtime, view);
        }
        let mut w = Writer::new(Features::ALL);
        w.blob(&oid.name);
        ObjectLocator {
            pool: oid.pool,
            key: oid.key.clone(),
            nspace: oid.nspace.clone(),
            ..ObjectLocator::default()
        }
        .encode(&mut w);
        let mut copy = OsdOp::new(op::COPY_FROM, w.finish());
        copy.put_u64(0, oid.snap.0);
        copy.put_u64(8, f.user_version);
        copy.raw[16] = copy_flag::FLUSH
            | copy_flag::IGNORE_OVERLAY
            | copy_flag::IGNORE_CACHE
            | copy_flag::MAP_SNAP_CLONE;
        self.base_op(oid, copy, context, mtime, view)
    }

    fn base_op(
        &self,
        oid: &HObject,
        op: OsdOp,
        (snap_seq, snaps): (SnapId, Vec<SnapId>),
        mtime: types::UTime,
        view: &CacheView,
    ) -> MOsdOp {
        MOsdOp {
            pg: SpgId::default(),
            hash: oid.hash,
            epoch: Epoch(0),
            flags: req_flag::WRITE
                | req_flag::ONDISK
                | req_flag::IGNORE_OVERLAY
                | req_flag::ENFORCE_SNAPC,
            reqid: ReqId::default(),
            client_inc: 0,
            mtime,
            locator: ObjectLocator {
                pool: view.base,
                key: oid.key.clone(),
                nspace: oid.nspace.clone(),
                ..ObjectLocator::default()
            },
            oid: oid.name.clone(),
            ops: vec![op],
            snapid: SnapId::HEAD,
            snap_seq,
            snaps,
            retry_attempt: 0,
            features: 0,
        }
    }

    /// The base has done a step, or not.
    pub(super) fn on_flush_answer(&mut self, oid: &HObject, result: i32, cx: &mut Cx<'_>) {
        let Some(f) = self.tier.flushes.get_mut(oid) else { return };
        let deletes = f.removal || f.next.is_some();
        let done = result >= 0 || (deletes && result == Errno::NOENT.0);
        if done
            && let Some(context) = f.next.take()
            && let Some(view) = self.pool.cache.clone()
            && let Ok(state) = self.state_of(oid, cx)
        {
            let f = &self.tier.flushes[oid];
            let step = self.flush_op(oid, f, context, state.info.mtime, &view);
            self.ask_flush(oid, step, &view, cx);
            return;
        }
        let f = self.tier.flushes.remove(oid).expect("looked at");
        let head = oid.with_snap(SnapId::HEAD).detached();
        let agents = f.op.is_none();
        let e = match done {
            true => self.mark_clean(oid, &f, cx),
            false => Err(Errno::BUSY),
        };
        if !done {
            tracing::debug!(pg = %self.id, %oid, result, "not flushed");
        }
        if let Some(op) = f.op {
            // That it is clean is to be durable first.
            match e {
                Ok(()) => self.answer_flushed(op, cx),
                Err(e) => Answer::error(&op, e).send(&op, cx),
            }
        }
        if f.holds {
            self.let_go(&head, cx);
        }
        self.go_on(f.behind, cx);
        if agents {
            self.agent_done(cx);
        }
    }

    /// Notes that the base has what is here, if it is still the same.
    fn mark_clean(&mut self, oid: &HObject, f: &Flush, cx: &mut Cx<'_>) -> Result<(), Errno> {
        let head = oid.with_snap(SnapId::HEAD).detached();
        if self.is_degraded(oid) || self.is_degraded(&head) || !self.may_read(cx) {
            return Err(Errno::BUSY);
        }
        self.load_obc(&head, cx)?;
        let mut state = self.state_of(oid, cx)?;
        if !state.is_stored() || state.info.user_version != f.user_version {
            return Err(Errno::BUSY);
        }
        if !state.info.clean {
            state.info.clean = true;
            self.tier_write(oid, vec![Mutation::Touch], state, Vec::new(), None, cx)?;
        }
        Ok(())
    }

    /// Success, once everything before it is durable everywhere.
    fn answer_flushed(&mut self, op: Box<ClientOp>, cx: &mut Cx<'_>) {
        let answer = Answer::error(&op, Errno(0));
        match self.in_flight.back_mut() {
            Some(last) => last.replies.push((op, answer)),
            None => answer.send(&op, cx),
        }
    }
}
