//! Operations of clients: the order of a PG's writes, and the answers.
//!
//! A write is executed against the projected state, logged, and submitted here and to all
//! acting copies at once; many are in flight. Answers go out in the order of versions, when
//! all copies are durable. A read of an object with writes in flight waits for them, and so
//! does everything that comes for this object after such a read.

use bytes::Bytes;
use messages::{
    LogKind, MOsdOpReply, Message, Mutation, ObjectChange, OsdOp, PgLogEntry, req_flag,
};
use types::{EVersion, HObject, SnapId, UTime};

use super::room::takes_space;
use super::snaps::Kept;
use super::{Cx, Obc, Pg, State};
use crate::backoffs::Backoffs;
use crate::copy::{CopyWanted, Source};
use crate::exec::{CopyContent, Exec, WatchEvent};
use crate::object::ObjectState;
use crate::session::{ClientOp, enqueue};
use crate::snapset::{self, Found};
use types::Errno;

/// `osd_max_write_op_reply_len`: bytes of output of one operation of a write.
const WRITE_REPLY_MAX: usize = 64;

/// What a client is told.
#[derive(Debug, Default)]
pub struct Answer {
    /// 0 or more, or -errno.
    pub result: i32,
    /// Result of each operation.
    pub rvals: Vec<i32>,
    /// The operations with their outputs.
    pub ops: Vec<OsdOp>,
    /// The write's place; zero for reads.
    pub version: EVersion,
    /// The object's version for users.
    pub user_version: u64,
}

impl Answer {
    /// An error of the whole request; nothing was executed.
    #[must_use]
    pub fn error(op: &ClientOp, e: Errno) -> Self {
        Self { result: e.0, rvals: vec![0; op.msg.ops.len()], ..Self::empty(op) }
    }

    /// The request's operations without any output.
    fn empty(op: &ClientOp) -> Self {
        let ops = op.msg.ops.iter();
        Self {
            ops: ops.map(|o| OsdOp { data: Bytes::new(), ..o.clone() }).collect(),
            rvals: vec![0; op.msg.ops.len()],
            ..Self::default()
        }
    }

    /// A write's results are kept with its log entry: too much output is an error.
    fn bound(&mut self) {
        for (op, rval) in self.ops.iter_mut().zip(&mut self.rvals) {
            if op.data.len() > WRITE_REPLY_MAX {
                op.data = Bytes::new();
                *rval = Errno::OVERFLOW.0;
                self.result = Errno::OVERFLOW.0;
            }
        }
    }

    /// Sends it.
    pub fn send(self, op: &ClientOp, cx: &mut Cx<'_>) {
        let mask = !(req_flag::ACK | req_flag::ONNVRAM | req_flag::ONDISK);
        let mut reply = MOsdOpReply {
            oid: op.msg.oid.clone(),
            pg: op.msg.pg.pg,
            flags: op.msg.flags & mask | req_flag::ACK | req_flag::ONDISK,
            result: self.result,
            bad_replay_version: self.version,
            epoch: cx.map.epoch,
            ops: self.ops,
            retry_attempt: op.msg.retry_attempt,
            rvals: self.rvals,
            replay_version: self.version,
            user_version: self.user_version,
        };
        let out: u64 = reply.ops.iter().map(|o| o.data.len() as u64).sum();
        if op.origin.is_some() {
            op.tell_tier(reply, cx.map.epoch, cx.out);
            return;
        }
        cx.perf.on_answer(op, out, cx.now);
        if !op.waited {
            let written: u64 = op.msg.ops.iter().map(|o| o.data.len() as u64).sum();
            let kind = if op.may_write() { (true, written) } else { (false, out) };
            cx.pace.on_answer(&cx.conf.pace, kind, op.came_ns, cx.now);
        }
        for o in &mut reply.ops {
            o.data = op.share.carry(std::mem::take(&mut o.data));
        }
        cx.out.conn(op.conn, reply.envelope(op.by.features).with_tid(op.tid));
    }
}

fn is_copy(o: &OsdOp) -> bool {
    matches!(o.code, messages::op::COPY_FROM | messages::op::COPY_FROM2)
}

/// What executing a vector gave.
struct Outcome {
    answer: Answer,
    /// Bytes that must be gathered first; all else is void then.
    lacks: Option<(HObject, u64, u64)>,
    state: ObjectState,
    mutations: Vec<Mutation>,
    user_modify: bool,
    events: Vec<WatchEvent>,
    bytes_written: u64,
    bytes_read: u64,
}

impl Outcome {
    fn failed(op: &ClientOp, e: Errno, state: ObjectState) -> Self {
        Self {
            answer: Answer::error(op, e),
            lacks: None,
            state,
            mutations: Vec::new(),
            user_modify: false,
            events: Vec::new(),
            bytes_written: 0,
            bytes_read: 0,
        }
    }
}

impl Pg {
    /// A request that belongs here.
    pub(crate) fn on_op(&mut self, op: Box<ClientOp>, cx: &mut Cx<'_>) {
        if !self.leads
            && op.msg.flags & (req_flag::BALANCE_READS | req_flag::LOCALIZE_READS) != 0
            && self.acts(&self.me(cx.me))
        {
            // A copy does not know which of its writes are acknowledged: the primary does.
            Answer::error(&op, Errno::AGAIN).send(&op, cx);
            return;
        }
        if !self.leads
            || op.msg.epoch < self.info.same_primary_since.max(self.split_at)
            || !self.is_home_of(&op)
            || op.msg.epoch < self.pool.last_force_op_resend
        {
            return; // misdirected, or sent again by its client anyway
        }
        if !self.is_serving() || !self.waiting.is_empty() {
            if let Some(mut op) = self.back_off(op, cx) {
                op.waited = true;
                self.waiting.push_back(op);
            }
            return;
        }
        self.do_op(op, cx);
    }

    /// Whether what clients want here has to wait for longer than peering takes: for OSDs that are
    /// not there.
    fn waits_for_osds(&self) -> bool {
        let peered = self.state == State::Active && (!self.has_enough() || self.is_merging());
        let down = self.state == State::GetInfo && !self.blocked_by.is_empty();
        self.leads && (peered || down)
    }

    /// Drops a request that waits for OSDs and asks its client to hold it back; gives it back where it
    /// is to wait here.
    fn back_off(&mut self, op: Box<ClientOp>, cx: &mut Cx<'_>) -> Option<Box<ClientOp>> {
        let (features, id) = (op.by.features, self.id);
        let knows = Backoffs::understands(features) && op.origin.is_none() && op.msg.pg == id;
        if !knows || !self.waits_for_osds() {
            return Some(op);
        }
        let pool = (id, self.pool.pg_num);
        cx.backoffs.block((op.conn, features), pool, cx.map.epoch, cx.out);
        None
    }

    /// Clients that were asked to hold back go on.
    pub(crate) fn release_backoffs(&mut self, cx: &mut Cx<'_>) {
        cx.backoffs.release(self.id, cx.map.epoch, cx.out);
    }

    /// What came while the PG peered is held back by its clients where it waits for OSDs now.
    pub(crate) fn tick_backoffs(&mut self, cx: &mut Cx<'_>) {
        if !self.waits_for_osds() {
            if cx.backoffs.has(self.id) {
                self.release_backoffs(cx);
            }
            return;
        }
        for op in std::mem::take(&mut self.waiting) {
            let stays = self.back_off(op, cx);
            self.waiting.extend(stays);
        }
    }

    /// Whether the object is in this PG; after a split it may be in a child.
    fn is_home_of(&self, op: &ClientOp) -> bool {
        op.is_pg_op() || types::stable_mod(op.oid.hash, self.pool.pg_num) == self.id.pg.ps
    }

    /// The PG serves again.
    pub(crate) fn run_waiting(&mut self, cx: &mut Cx<'_>) {
        if self.is_serving() && cx.backoffs.has(self.id) {
            self.release_backoffs(cx);
        }
        while self.is_serving()
            && let Some(op) = self.waiting.pop_front()
        {
            if !self.is_home_of(&op) {
                continue; // its client sends it to the child
            }
            self.do_op(op, cx);
        }
    }

    pub(crate) fn do_op(&mut self, mut op: Box<ClientOp>, cx: &mut Cx<'_>) {
        if op.is_fenced(cx.map) {
            // However long it has waited.
            Answer::error(&op, Errno::BLOCKLISTED).send(&op, cx);
            return;
        }
        op.oid.snap = SnapId::HEAD; // which clone is meant shows when the head is quiet
        if self.state != State::Active {
            self.waiting.push_back(op);
            return;
        }
        if op.is_pg_op() {
            self.do_pg_op(op, cx);
            return;
        }
        if let Some(from) = &op.origin
            && crate::tier::asker(cx.map, from.osd, &op.msg).is_none()
        {
            return; // who leads the cache now asks for itself
        }
        let refused = op.refused_call(&cx.conf.classes);
        let writes = op.may_write() || refused.is_some();
        if writes && op.msg.retry_attempt > 0 && op.dup.is_none() {
            op.dup = self.log.dup(&op.reqid).cloned().map(Box::new);
        }
        // An answer, even a repeated one, is given when all acting copies have the object.
        let waits = writes && self.is_degraded(&op.oid) && !self.removes_what_copies_lack(&op, cx);
        if waits || self.missing.contains_key(&op.oid) {
            let oid = op.oid.detached();
            op.waited = true;
            enqueue(self.blocked.entry(oid.clone()).or_default(), op);
            self.recover_first(&oid, cx);
            return;
        }
        if let Some(waiting) = self.blocked.get_mut(&op.oid) {
            op.waited = true;
            enqueue(waiting, op); // behind those that came before
            return;
        }
        // Reads that are ordered among writes wait with them.
        let ordered = writes || op.msg.flags & req_flag::RWORDERED != 0;
        if ordered && !writes && self.comes_again(&op) {
            return;
        }
        if ordered && self.room.is_behind(&op) {
            self.room.hold(op);
            return;
        }
        if ordered && self.scrub.blocks(&op.oid) {
            self.scrub.wait(op);
            return;
        }
        if writes && self.answer_dup(&op, cx).is_none() {
            return;
        }
        if let Err(e) = self.load_obc(&op.oid, cx) {
            tracing::error!(pg = %self.id, "{e}");
            if let Some(op) = self.wait_for_mending(op, cx) {
                Answer::error(&op, Errno::IO).send(&op, cx);
            }
            return;
        }
        let obc = self.obcs.get_mut(&op.oid).expect("just put there");
        if !obc.waiting.is_empty()
            || obc.writer
            || (writes && obc.readers > 0)
            || (!writes && obc.in_flight > 0)
        {
            enqueue(&mut obc.waiting, op);
            return;
        }
        let elsewhere = self.pool.cache.is_some() && !obc.state.is_stored();
        if let Some(e) = refused.filter(|_| !elsewhere) {
            // In the log as any answer, for its class may come before it is sent again. What
            // a cache passes on is refused, or remembered, by the pool behind it.
            let failed = Outcome::failed(&op, e, obc.state.clone());
            return self.write(op, failed, cx);
        }
        let Some(op) = self.through_cache(op, writes, cx) else { return };
        if writes && op.copy.is_none() && op.msg.ops.iter().any(is_copy) {
            self.start_copy(op, cx);
            return;
        }
        self.execute(op, writes, cx);
    }

    /// Takes the object's context into memory.
    pub(crate) fn load_obc(
        &mut self,
        oid: &HObject,
        cx: &Cx<'_>,
    ) -> Result<(), crate::backing::StoreError> {
        if !self.obcs.contains_key(oid) {
            let state = Self::read_state(cx.store, self.coll, oid)?;
            self.trim_obcs(cx.conf.object_contexts_max);
            let oid = oid.detached();
            self.watches.populate(&oid, &state.info.watchers, cx.now);
            self.obcs.insert(oid, Obc { state, ..Obc::default() });
        }
        Ok(())
    }

    /// While writes of its object are under way the request waits, to be tried again behind them;
    /// else it is given back.
    pub(super) fn behind_writes(&mut self, op: Box<ClientOp>) -> Option<Box<ClientOp>> {
        match self.obcs.get_mut(&op.oid).filter(|o| o.in_flight > 0) {
            Some(obc) => {
                obc.waiting.push_back(op);
                None
            }
            None => Some(op),
        }
    }

    /// The source of a COPY_FROM is fetched first; its object waits.
    fn start_copy(&mut self, op: Box<ClientOp>, cx: &mut Cx<'_>) {
        let mut found = op.msg.ops.iter().filter(|o| is_copy(o));
        let source = found.next().and_then(Source::parse);
        let (Some(source), None) = (source, found.next()) else {
            Answer::error(&op, Errno::INVAL).send(&op, cx);
            return;
        };
        let oid = op.oid.detached();
        self.blocked.entry(oid.clone()).or_default();
        cx.copies.push(CopyWanted { target: (self.id, oid.clone()), seq: op.seq, source });
        self.copying.insert(oid, op);
    }

    /// The source is here.
    pub(crate) fn on_copied(&mut self, oid: &HObject, seq: u64, c: CopyContent, cx: &mut Cx<'_>) {
        if self.tier.promotes(oid, seq) {
            return self.on_promoted(oid, c, cx);
        }
        if self.copying.get(oid).is_none_or(|op| op.seq != seq) {
            return;
        }
        let mut op = self.copying.remove(oid).expect("just seen");
        op.copy = Some(c.into());
        let behind = self.blocked.remove(oid).unwrap_or_default();
        self.go_on(std::iter::once(op).chain(behind), cx);
    }

    /// A part of an object, or of what it was at a snapshot, for copying; `None` while it is
    /// not quiet, not readable, or may be elsewhere; `absent` when there is no such object.
    pub(crate) fn copy_part(
        &mut self,
        oid: &HObject,
        off: u64,
        omap_after: &Bytes,
        cx: &mut Cx<'_>,
    ) -> Option<messages::Push> {
        let head = oid.with_snap(SnapId::HEAD);
        let busy = self.obcs.get(&head).is_some_and(|o| o.in_flight > 0);
        // Who asks may not know yet that the PG was divided, or is led elsewhere.
        let here = types::stable_mod(oid.hash, self.pool.pg_num) == self.id.pg.ps;
        if !self.is_serving() || !self.may_read(cx) || !here || busy {
            return None;
        }
        if self.missing.contains_key(&head) {
            self.recover_first(&head, cx);
            return None;
        }
        let absent = messages::Push { oid: oid.clone(), absent: true, ..Default::default() };
        let mut state = Self::read_state(cx.store, self.coll, &head).ok()?;
        let mut source = head;
        let caches = self.pool.cache.is_some();
        match snapset::find(&state, oid.snap) {
            Found::Head => {}
            // A cache wants to know of the clones, too.
            Found::Nowhere if oid.snap == SnapId::DIR && state.is_stored() => {}
            Found::Nowhere if caches && !state.is_stored() => {
                self.promote_to_copy(&source, cx);
                return None;
            }
            Found::Nowhere => return Some(absent),
            Found::Clone(snap) => {
                source.snap = snap;
                if self.missing.contains_key(&source) {
                    self.recover_first(&source, cx);
                    return None;
                }
                state = Self::read_state(cx.store, self.coll, &source).ok()?;
                if caches && !state.is_stored() {
                    self.promote_to_copy(&source, cx);
                    return None;
                }
            }
        }
        let version = state.info.version;
        if self.is_coded() {
            return self.coded_copy_part(&source, &state, off, cx);
        }
        let part = self.read_part(&source, version, off, omap_after, cx);
        if part.absent {
            // It cannot be read: it is asked for again if another copy takes its place.
            let mended = self.mend_own(&source, cx) || self.missing.contains_key(&source);
            return (!mended).then(|| crate::copy::unreadable(oid.clone(), version, off));
        }
        Some(part)
    }

    /// `None` when the request was answered before: its answer is sent, or will be with the
    /// first one's.
    fn answer_dup(&mut self, op: &ClientOp, cx: &mut Cx<'_>) -> Option<()> {
        let Some(dup) = self.log.dup(&op.reqid).or(op.dup.as_deref()) else { return Some(()) };
        let mut answer = Answer::empty(op);
        answer.result = dup.result;
        answer.version = dup.version;
        answer.user_version = if dup.result < 0 { 0 } else { dup.user_version };
        for (i, (rval, out)) in dup.returns.iter().enumerate().take(answer.ops.len()) {
            answer.rvals[i] = *rval;
            answer.ops[i].data = out.clone();
        }
        let version = dup.version;
        if version <= self.committed_by_all {
            if answer.result >= 0 && !self.watch_again(op, cx) {
                answer.result = Errno::NOTCONN.0;
            }
            answer.send(op, cx);
        } else if let Some(f) = self.in_flight.iter_mut().find(|f| f.version == version) {
            f.replies.push((Box::new(op.clone()), answer));
        }
        None
    }

    fn trim_obcs(&mut self, max: usize) {
        if self.obcs.len() >= max {
            self.obcs.retain(|_, o| {
                o.in_flight > 0 || o.writer || o.readers > 0 || !o.waiting.is_empty()
            });
        }
    }

    fn run_vector(
        &self,
        op: &ClientOp,
        base: &ObjectState,
        writes: bool,
        fetched: Option<(u64, Bytes)>,
        cx: &Cx<'_>,
    ) -> Outcome {
        let mut ops = op.msg.ops.clone();
        let mut rvals = vec![0; ops.len()];
        let store: &dyn crate::backing::ObjectStore = &*cx.store;
        let at_hand = |o: &HObject, off, len| self.object_at_hand(store, o, off, len);
        let mut exec = Exec::new(store, self.coll, &op.oid, base, &cx.conf.limits, &op.classes);
        exec.may_write = writes;
        exec.has_omap = !self.pool.erasure;
        if let Some(c) = &self.pool.coding {
            exec.gathered = Some(&op.prefetched);
            exec.at_hand = Some(&at_hand);
            exec.append_unit = self.pool.append_only.then(|| c.stripe());
        }
        exec.mtime = op.msg.mtime;
        exec.pg_version = self.last_user_version();
        exec.copy = op.copy.as_deref();
        exec.fetched = fetched;
        exec.asker = op.by;
        exec.now = UTime::from_nanos(cx.now.wall_ns);
        exec.seed = cx.now.wall_ns ^ op.reqid.tid.rotate_left(32) ^ u64::from(op.oid.hash);
        exec.next_notify_id = u64::from(cx.map.epoch.0) << 32 | u64::from(self.watches.counter);
        let result = exec.run(&mut ops, &mut rvals);
        let user_version = exec.base.info.user_version;
        Outcome {
            answer: Answer { result, rvals, ops, version: EVersion::ZERO, user_version },
            lacks: exec.lacks,
            state: exec.state,
            mutations: exec.mutations,
            user_modify: exec.user_modify,
            events: exec.events,
            bytes_written: exec.bytes_written,
            bytes_read: exec.bytes_read,
        }
    }

    pub(crate) fn execute(&mut self, op: Box<ClientOp>, writes: bool, cx: &mut Cx<'_>) {
        if !writes {
            self.read(op, cx);
            return;
        }
        if let Some(clone) = self.lacks_for_rollback(&op) {
            self.blocked.entry(op.oid.detached()).or_default().push_back(op);
            self.recover_first(&clone, cx);
            return;
        }
        let obc = &self.obcs[&op.oid];
        let seen = obc.state.info.snaps.as_ref().map_or(SnapId(0), |s| s.seq);
        if op.msg.flags & req_flag::ORDERSNAP != 0 && self.write_seq(&op) < seen {
            Answer::error(&op, Errno::OLDSNAPC).send(&op, cx);
            return;
        }
        let outcome = self.run_vector(&op, &obc.state, true, None, cx);
        if let Some(lacks) = outcome.lacks {
            self.prefetch(op, true, lacks, cx);
            return;
        }
        if let Some(c) = self.pool.coding.clone()
            && outcome.answer.result >= 0
            && op.old.is_none()
        {
            let plan = self.plan_write(&outcome.mutations, &obc.state, cx);
            if let Some(old) = plan.and_then(|p| p.needs(&c)) {
                self.prefetch_old(op, old, cx);
                return;
            }
        }
        self.read_bytes += outcome.bytes_read;
        let op = if Self::is_store_error(outcome.answer.result) {
            let Some(op) = self.wait_for_mending(op, cx) else { return };
            op
        } else {
            op
        };
        // A sign of life may come twice; everything else is answered once, also when it had
        // nothing to do: its resend may find the object changed by others.
        let is_ping = |e: &WatchEvent| matches!(e, WatchEvent::Ping(_));
        let pings = !outcome.events.is_empty() && outcome.events.iter().all(is_ping);
        if outcome.answer.result >= 0 && outcome.mutations.is_empty() && pings {
            // It may say what is not durable yet.
            let Some(op) = self.behind_writes(op) else { return };
            self.on_watch_events(&op, outcome.events, cx);
            outcome.answer.send(&op, cx);
            return;
        }
        self.write(op, outcome, cx);
    }

    /// A vector that changes nothing, on an object without writes in flight. Data that is
    /// not in memory comes later; the answer then shows the object as it is now.
    fn read(&mut self, mut op: Box<ClientOp>, cx: &mut Cx<'_>) {
        use crate::backing::Fetched;
        let aimed = self.aim(&op);
        let at_clone;
        let mut state = &self.obcs[&op.oid].state;
        if let Ok(Some(clone)) = aimed {
            op.oid.snap = clone;
            if self.missing.contains_key(&op.oid) {
                let oid = op.oid.detached();
                op.waited = true;
                self.blocked.entry(oid.clone()).or_default().push_back(op);
                self.recover_first(&oid, cx);
                return;
            }
            at_clone = match Self::read_state(cx.store, self.coll, &op.oid) {
                Ok(state) => state,
                Err(e) => {
                    tracing::error!(pg = %self.id, "{e}");
                    Answer::error(&op, Errno::IO).send(&op, cx);
                    return;
                }
            };
            state = &at_clone;
        }
        // Of a head that is gone its clones can still be listed.
        let lists = op.msg.snapid == SnapId::DIR && state.info.whiteout;
        if aimed.is_err() || !(state.exists || lists) {
            Answer::error(&op, Errno::NOENT).send(&op, cx);
            return;
        }
        if self.is_coded() {
            let outcome = self.run_vector(&op, state, false, None, cx);
            match outcome.lacks {
                Some(lacks) => self.prefetch(op, false, lacks, cx),
                None => self.answer_read(op, outcome, cx),
            }
            return;
        }
        let mut fetched = None;
        if let Some((off, len)) = crate::exec::wanted(&op.msg.ops, state.info.size) {
            // What cannot be read is tried again, and answered for, by the vector itself.
            match cx.store.fetch(self.coll, &op.oid, off, len) {
                Ok(Some(Fetched::Here(data))) => fetched = Some((off, data)),
                Ok(Some(Fetched::Later(id))) => {
                    cx.fetches.insert(id, self.id);
                    let state = state.clone();
                    self.fetching.insert(id, (op, state));
                    return;
                }
                Ok(None) | Err(_) => {}
            }
        }
        let outcome = self.run_vector(&op, state, false, fetched, cx);
        self.answer_read(op, outcome, cx);
    }

    /// The store has read what a read waits for.
    pub(crate) fn on_fetched(
        &mut self,
        id: u64,
        data: Result<Bytes, crate::backing::StoreError>,
        cx: &mut Cx<'_>,
    ) {
        let Some((op, state)) = self.fetching.remove(&id) else {
            if !self.shard_fetched(id, &data, cx) && !self.part_fetched(id, &data, cx) {
                self.scrub_fetched(id, &data, cx);
            }
            return;
        };
        let Some((off, _)) = crate::exec::wanted(&op.msg.ops, state.info.size) else { return };
        match data {
            Ok(data) => {
                let outcome = self.run_vector(&op, &state, false, Some((off, data)), cx);
                self.answer_read(op, outcome, cx);
            }
            Err(e) => {
                tracing::error!(pg = %self.id, "{e}");
                if let Some(op) = self.wait_for_mending(op, cx) {
                    Answer::error(&op, Errno::IO).send(&op, cx);
                }
            }
        }
    }

    fn answer_read(&mut self, op: Box<ClientOp>, outcome: Outcome, cx: &mut Cx<'_>) {
        let op = if Self::is_store_error(outcome.answer.result) {
            let Some(op) = self.wait_for_mending(op, cx) else { return };
            op
        } else {
            op
        };
        self.reads += 1;
        self.read_bytes += outcome.bytes_read;
        if outcome.answer.result >= 0 {
            self.on_watch_events(&op, outcome.events, cx);
        }
        outcome.answer.send(&op, cx);
    }

    /// Orders a write, or the failure of one.
    fn write(&mut self, op: Box<ClientOp>, mut outcome: Outcome, cx: &mut Cx<'_>) {
        if outcome.answer.result >= 0 && op.msg.flags & req_flag::RETURNVEC != 0 {
            outcome.answer.bound();
        }
        let mut failed = outcome.answer.result < 0;
        let mut unchanged = failed || outcome.mutations.is_empty();
        let oid = self.obcs.get_key_value(&op.oid).expect("its context is held").0.clone();
        let before = self.obcs[&oid].state.clone();
        let data = !unchanged && outcome.mutations.iter().any(takes_space);
        let after = if unchanged { &before } else { &outcome.state };
        let Some((mut op, room)) = self.find_room(op, &before, (after, data), cx) else { return };
        let room = room.and_then(|()| match unchanged {
            true => Ok(()),
            false => self.require_log(&oid, &before, &outcome.state, &outcome.mutations, cx),
        });
        if let Err(e) = room {
            outcome.answer = Answer::error(&op, e);
            (failed, unchanged) = (true, true);
        }
        if !unchanged && !failed {
            // The store writes an object's attributes with whatever changes of it.
            op.share.hold(cx.store.attrs_bytes(self.coll, &oid).unwrap_or_default());
        }
        let version = self.next_version(cx);
        let mut kept = Kept::default();
        // What changes nothing for users leaves them the object's version; so is its resend told.
        let mut user_version = before.info.user_version;
        if failed || (!unchanged && outcome.user_modify) {
            user_version = user_version.max(self.last_user_version());
        }
        if failed {
            outcome.mutations.clear();
            outcome.state = before.clone();
            outcome.answer.version = EVersion::ZERO;
            outcome.answer.user_version = 0;
        } else if unchanged {
            outcome.state = before.clone();
            outcome.answer.version = version;
        } else {
            user_version += u64::from(outcome.user_modify);
            if let Some(flushed) = op.flushed() {
                user_version = flushed.state.info.user_version; // what users know it by
            }
            kept = self.make_writeable(
                &op,
                &before,
                &mut outcome.state,
                &mut outcome.mutations,
                version,
                cx,
            );
            self.note_whiteout(&op, &before, &mut outcome.state, &mut outcome.mutations);
            let stored = outcome.state.is_stored();
            let info = &mut outcome.state.info;
            if stored {
                info.version = version;
                info.user_version = user_version;
                if outcome.user_modify {
                    info.mtime = if op.msg.mtime.is_zero() {
                        UTime::from_nanos(cx.now.wall_ns)
                    } else {
                        op.msg.mtime
                    };
                }
            }
            outcome.answer.version = version;
            outcome.answer.user_version = user_version;
        }
        // What changed nothing may say what it found.
        if !unchanged && op.msg.flags & req_flag::RETURNVEC == 0 {
            outcome.answer.result = 0;
            outcome.answer.ops.iter_mut().for_each(|o| o.data = Bytes::new());
        }
        let keep = op.msg.flags & req_flag::RETURNVEC != 0 && !failed;
        let entry = PgLogEntry {
            version,
            prior: if before.is_stored() { before.info.version } else { EVersion::ZERO },
            kind: match (unchanged, outcome.state.is_stored()) {
                (true, _) => LogKind::Error,
                (false, true) => LogKind::Modify,
                (false, false) => LogKind::Delete,
            },
            oid: oid.clone(),
            reqid: op.reqid,
            user_version,
            mtime: op.msg.mtime,
            result: outcome.answer.result,
            returns: if keep {
                let a = &outcome.answer;
                a.rvals.iter().copied().zip(a.ops.iter().map(|o| o.data.clone())).collect()
            } else {
                Vec::new()
            },
            counts: self.counts_after(&before, &outcome, &kept, unchanged),
            also: kept.touched(),
            answered: op.told_requests(),
        };
        let events = std::mem::take(&mut outcome.events);
        let who = (op.conn, op.by);
        let old = op.old.take();
        let answer = outcome.answer;
        let reply = vec![(op, answer)];
        let change = ObjectChange { oid: oid.clone(), mutations: outcome.mutations };
        self.submit_change(kept.clone, change, entry, outcome.state, reply, old, cx);
        if !events.is_empty() && !failed {
            self.on_write_watch_events(&oid, who, events, cx);
        }
    }

    fn counts_after(
        &self,
        before: &ObjectState,
        o: &Outcome,
        kept: &Kept,
        unchanged: bool,
    ) -> messages::PgCounts {
        let mut c = self.counts();
        if !unchanged {
            let size = |s: &ObjectState| if s.exists { s.info.size as i64 } else { 0 };
            let omap = |s: &ObjectState| i64::from(s.exists && s.info.omap);
            let clones = i64::from(kept.clone.is_some());
            c.objects += i64::from(o.state.is_stored()) - i64::from(before.is_stored()) + clones;
            c.clones += clones;
            c.bytes += size(&o.state) - size(before) + kept.bytes;
            c.omap_objects += omap(&o.state) - omap(before) + kept.omap_objects;
            let clean = |s: &ObjectState| i64::from(s.is_stored() && s.info.clean);
            c.clean += clean(&o.state) - clean(before);
            c.clean += if kept.clone.is_some() { clean(before) } else { 0 };
            c.writes += 1;
            c.write_bytes += o.bytes_written as i64;
        }
        c
    }
}
