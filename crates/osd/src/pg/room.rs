//! Room: what becomes of writes and of recovery when a store is nearly full.
//!
//! | full is | known by | a write that grows, of a client | of one that asks to try |
//! |---|---|---|---|
//! | the pool, or all | the map's flag | dropped: its client sends it again once the flag is gone | ENOSPC; EDQUOT for a quota |
//! | the store here, or a copy's | `osd_failsafe_full_ratio`; a copy says so | held until there is room or the map says full, for [`HOLD_MS`] at most, then ENOSPC | ENOSPC |
//!
//! Reads that are ordered among writes are dropped with the map's flag, too: clients hold writes
//! back by it and send such reads on, ahead of them; once it is gone they send all again.
//!
//! What shrinks always goes through, but never before what its client asked of the object
//! earlier: with the map's flag, all of a client's writes from before are dropped alike.
//! Copies accept all that the primary ordered. One whose store cannot take it stops, without
//! an answer ([`crate::StoreBacking`]).
//!
//! Source: the peer's `PrimaryLogPG::do_op` (`last_epoch_marked_full`) and
//! `OSDService::check_failsafe_full`. There a write is dropped at the failsafe ratio, and
//! waits for ever when the map is never marked full; holding it is ours.

use std::collections::{BTreeMap, VecDeque};

use maps::PgShard;
use messages::{Mutation, PeerMsg, Push, req_flag};
use types::{Epoch, Errno, HObject};

use super::backfill::Target;
use super::{Cx, Pg, State};
use crate::object::ObjectState;
use crate::session::{ClientOp, enqueue};

/// So long a write waits for room while no map says that there is none.
const HOLD_MS: u64 = 30_000;
/// A copy that had no room for what it was brought counts as full for this long.
const REFUSED_MS: u64 = 5_000;
/// A copy that is full says so again after this long.
const TELL_MS: u64 = 2_000;
/// And is believed for this long.
const BELIEVE_MS: u64 = 5 * TELL_MS;
/// With less than this, bytes, or less than a 16th of the store, only what leaves no clone fits.
const BARE: u64 = 16 << 20;

/// See the module.
#[derive(Default)]
pub(crate) struct Room {
    /// Writes that wait for room, and those of their clients behind them.
    held: VecDeque<Box<ClientOp>>,
    /// Some were tried again in this interval.
    retried: bool,
    /// The first map of the last run of maps in which the pool is full.
    marked_full: Epoch,
    /// The first map after that in which it is not.
    cleared: Epoch,
    /// What the primary was told last, and when, monotonic ms.
    told: Option<(Left, u64)>,
    /// When a part of an object did not fit here, monotonic ms.
    refused_ms: Option<u64>,
    /// Copies without room, and how long this is believed, monotonic ms.
    full: BTreeMap<PgShard, (Left, u64)>,
}

/// What is left in a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Left {
    /// No more data is taken.
    pub full: bool,
    /// Not even clones fit.
    pub bare: bool,
}

impl Room {
    /// Takes what waits; what is known of copies is void.
    pub fn end_interval(&mut self) -> VecDeque<Box<ClientOp>> {
        (self.told, self.refused_ms, self.retried) = (None, None, false);
        self.full.clear();
        std::mem::take(&mut self.held)
    }

    /// Whether its client asked something of the object before that waits for room.
    pub fn is_behind(&self, op: &ClientOp) -> bool {
        self.held.iter().any(|o| came_before(o, op))
    }

    /// Those that wait, for who lists them.
    pub fn ops(&self) -> impl Iterator<Item = &ClientOp> {
        self.held.iter().map(|op| &**op)
    }

    /// Drops those that are gone.
    pub fn forget(&mut self, gone: &dyn Fn(&ClientOp) -> bool) {
        self.held.retain(|op| !gone(op));
    }

    /// How many wait.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// It waits for room.
    pub fn hold(&mut self, op: Box<ClientOp>) {
        enqueue(&mut self.held, op.afresh());
    }

    /// The pool is full as of this map, and was not before it; or the other way round.
    pub fn on_mark(&mut self, full: bool, epoch: Epoch) {
        *(if full { &mut self.marked_full } else { &mut self.cleared }) = epoch;
    }
}

/// Whether so many bytes leave a store, of this size and with so much left, more than bare.
fn fits((total, available): (u64, u64), bytes: u64) -> bool {
    available >= bytes + BARE.min(total / 16)
}

fn left_of(room: (u64, u64), cx: &Cx<'_>) -> Left {
    let full = cx.conf.is_store_full(room);
    Left { full, bare: full && !fits(room, 0) }
}

fn left_here(cx: &Cx<'_>) -> Left {
    left_of(cx.store.room(), cx)
}

/// Whether a step may take space that removals cannot count on.
pub(crate) fn takes_space(m: &Mutation) -> bool {
    matches!(
        m,
        Mutation::Write { .. }
            | Mutation::OmapSet(_)
            | Mutation::CloneRange { .. }
            | Mutation::CloneFrom(_)
    )
}

/// Bytes that a request brings.
fn brought(op: &ClientOp) -> u64 {
    op.msg.ops.iter().map(|o| o.data.len() as u64).sum()
}

/// Whether one client asked both of one object, `a` first.
fn came_before(a: &ClientOp, b: &ClientOp) -> bool {
    a.by.who == b.by.who && a.oid == b.oid && a.seq < b.seq
}

/// Whether it has waited for room long enough.
fn has_waited(op: &ClientOp, cx: &Cx<'_>) -> bool {
    cx.now.mono_ns >= op.came_ns + HOLD_MS * 1_000_000
}

fn minds_full(op: &ClientOp) -> bool {
    op.msg.flags & (req_flag::FULL_TRY | req_flag::FULL_FORCE) == 0 && op.origin.is_none()
}

impl Pg {
    /// Gives a write back if there is room for what it makes of its object; `data` is whether
    /// it writes data or omap. Overwrites take space, too, before they free any. What it is
    /// refused with stands in the log, as any answer: a resend that found room would come
    /// behind what its client asked later.
    pub(crate) fn find_room(
        &mut self,
        op: Box<ClientOp>,
        before: &ObjectState,
        (after, data): (&ObjectState, bool),
        cx: &mut Cx<'_>,
    ) -> Option<(Box<ClientOp>, Result<(), Errno>)> {
        if minds_full(&op) && op.msg.epoch < self.room.marked_full {
            return None; // its client sends it again, in order
        }
        // One that is tried again may come behind what its client asked later.
        let waiting = || self.obcs.get(&op.oid).into_iter().flat_map(|o| &o.waiting);
        if self.room.is_behind(&op) || self.room.retried && waiting().any(|o| came_before(o, &op)) {
            self.room.hold(op);
            return None;
        }
        if std::ptr::eq(before, after) {
            return Some((op, Ok(()))); // it changes nothing
        }
        let same = before.exists == after.exists && before.info.size == after.info.size;
        let shrinks = !after.exists || (before.exists && after.info.size < before.info.size);
        let room = cx.store.room();
        let has_room = match self.least(left_of(room, cx), cx) {
            // What is moved aside and removed at once takes nothing.
            Left { bare: true, .. } => {
                let kept = self.is_coded() || self.leaves_clone(&op, before, cx);
                !data && (!after.exists || !kept)
            }
            Left { full: true, .. } => !data || shrinks,
            Left { .. } => !data || fits(room, brought(&op)),
        };
        if !has_room {
            if minds_full(&op) && self.pool.is_full() {
                return None; // dropped
            }
            // A copy is held each time it is made.
            if !minds_full(&op) || has_waited(&op, cx) {
                return Some((op, Err(Errno::NOSPC)));
            }
            self.room.hold(op);
            return None;
        }
        if shrinks || same || op.is_full_forced() || !self.pool.is_full() {
            return Some((op, Ok(())));
        }
        if minds_full(&op) {
            return None; // dropped
        }
        let quota = maps::PoolFlags(self.pool.flags).has(maps::PoolFlags::FULL_QUOTA);
        Some((op, Err(if quota { Errno::DQUOT } else { Errno::NOSPC })))
    }

    /// Whether an operation only removes its object, which is here, while the copies that lack
    /// it have no room to be brought it first. They need not: with the removal they lack
    /// nothing.
    pub(crate) fn removes_what_copies_lack(&self, op: &ClientOp, cx: &Cx<'_>) -> bool {
        let removes = op.msg.ops.iter().all(|o| o.code == messages::op::DELETE);
        removes
            && !self.is_coded()
            && !self.missing.contains_key(&op.oid)
            && self.peers.iter().all(|(o, p)| {
                !self.acts(o) || !p.missing.contains_key(&op.oid) || self.is_full_at(o, cx)
            })
    }

    /// Whether the map or a store of the PG's is full.
    pub(crate) fn is_full_somewhere(&self, cx: &Cx<'_>) -> bool {
        self.pool.is_full() || self.least(left_here(cx), cx).full
    }

    /// Whether a read that is ordered among writes is sent again by its client, behind the writes
    /// that wait there for room (the peer's `Objecter::_scan_requests`): the pool is full by the
    /// newest map, or by the client's.
    pub(crate) fn comes_again(&self, op: &ClientOp) -> bool {
        minds_full(op) && (op.msg.epoch < self.room.cleared || self.pool.is_full())
    }

    /// What is left here, where there is so much, or with a copy: where it is least.
    fn least(&self, mut least: Left, cx: &Cx<'_>) -> Left {
        for (o, (left, until)) in &self.room.full {
            let counts = self.acts(o) || self.peers.get(o).is_some_and(|p| p.target.follows());
            if counts && cx.now.mono_ms() < *until {
                least.full |= left.full;
                least.bare |= left.bare;
            }
        }
        least
    }

    /// Whether that copy's store takes no more data.
    pub(crate) fn is_full_at(&self, copy: &PgShard, cx: &Cx<'_>) -> bool {
        let now = cx.now.mono_ms();
        self.room.full.get(copy).is_some_and(|(left, until)| left.full && now < *until)
    }

    /// What waits for room is tried again, or given up.
    pub(crate) fn tick_room(&mut self, cx: &mut Cx<'_>) {
        self.tell_room(cx);
        if self.room.held.is_empty() || !self.leads || self.state != State::Active {
            return;
        }
        let late = self.room.held.iter().any(|op| has_waited(op, cx));
        if late || !self.least(left_here(cx), cx).full || self.pool.is_full() {
            self.room.retried = true;
            for op in std::mem::take(&mut self.room.held) {
                self.on_op(op, cx);
            }
        }
    }

    /// A copy tells its primary that its store is full, and when it is not any more.
    pub(crate) fn tell_room(&mut self, cx: &mut Cx<'_>) {
        if self.leads || self.round == 0 {
            return;
        }
        let (mut left, now) = (left_here(cx), cx.now.mono_ms());
        left.full |= self.room.refused_ms.is_some_and(|at| now < at + REFUSED_MS);
        let due = match self.room.told {
            Some((was, at)) => was != left || left.full && now >= at + TELL_MS,
            None => left.full,
        };
        if due {
            self.room.told = Some((left, now));
            let Left { full, bare } = left;
            self.say(cx, self.primary(), PeerMsg::Room { full, bare });
        }
    }

    /// A copy says what is left of its store.
    pub(crate) fn on_room(&mut self, from: PgShard, left: Left, cx: &mut Cx<'_>) {
        if !self.leads {
            return;
        }
        let was = self.is_full_at(&from, cx);
        if left.full {
            self.room.full.insert(from, (left, cx.now.mono_ms() + BELIEVE_MS));
        } else {
            self.room.full.remove(&from);
        }
        if was == left.full {
            return;
        }
        self.stats_dirty = true;
        if self.peers.get(&from).is_some_and(|p| p.target != Target::No) {
            self.target_full = left.full;
        }
        if !left.full {
            self.tick_room(cx);
            self.kick_recovery(cx);
            return;
        }
        // Removals need not wait for it any more.
        let lacks: Vec<HObject> = match self.peers.get(&from) {
            Some(p) => {
                let lacks = |o: &&HObject| p.missing.contains_key(*o) && !self.is_held(o);
                self.blocked.keys().filter(lacks).cloned().collect()
            }
            None => return,
        };
        for oid in lacks {
            for op in self.blocked.remove(&oid).unwrap_or_default() {
                self.do_op(op, cx);
            }
        }
    }

    /// Whether a part of an object that is brought here would not fit. Recovery stops at the
    /// failsafe ratio; what a request waits for goes on until the store is full indeed.
    pub(crate) fn is_too_much(&mut self, push: &Push, cx: &mut Cx<'_>) -> bool {
        let omap: usize = push.omap.iter().map(|(k, v)| k.len() + v.len()).sum();
        let bytes = (push.data.len() + 2 * omap) as u64;
        let refused = bytes > 0 && !fits(cx.store.room(), bytes);
        if refused {
            self.room.refused_ms = Some(cx.now.mono_ms());
            self.tell_room(cx);
        }
        refused
    }

    /// Whether what acting copies lack cannot be brought there, as no store has room for it.
    pub(super) fn recovery_lacks_room(&self, cx: &Cx<'_>) -> bool {
        if !self.missing.is_empty() {
            return left_here(cx).full;
        }
        let mut lacking = self
            .peers
            .iter()
            .filter(|(o, p)| p.activated && !p.missing.is_empty() && self.acts(o))
            .peekable();
        lacking.peek().is_some() && lacking.all(|(o, _)| self.is_full_at(o, cx))
    }
}
