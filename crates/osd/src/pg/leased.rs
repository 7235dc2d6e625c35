//! Serving only while the other acting copies promise that nobody serves elsewhere; the
//! promises are described in `lease`.
//!
//! Without a promise of each of them nothing is read and no write is acknowledged: what
//! comes and what becomes durable waits until the promises are back, or a map says that
//! somebody else leads.

use maps::PgShard;
use types::{EVersion, Epoch};

use super::{Cx, Pg, State};
use crate::session::ClientOp;

impl Pg {
    /// Whether what is here is the newest there is.
    pub(crate) fn may_read(&self, cx: &Cx<'_>) -> bool {
        let now = cx.now.mono_ms();
        !cx.leases.stopped
            && (now < self.lease_until_ms
                || self.others(cx.me).all(|c| now < cx.leases.held_until(c.osd)))
    }

    /// A request comes.
    pub(crate) fn admit(&mut self, op: Box<ClientOp>, cx: &mut Cx<'_>) {
        if self.is_serving() && (!self.unleased.is_empty() || !self.may_read(cx)) {
            self.unleased.push_back(op);
            return;
        }
        self.on_op(op, cx);
    }

    /// Operations whose object has come go on.
    pub(crate) fn go_on(&mut self, ops: impl IntoIterator<Item = Box<ClientOp>>, cx: &mut Cx<'_>) {
        if self.may_read(cx) {
            ops.into_iter().for_each(|op| self.do_op(op, cx));
            return;
        }
        // Before those that came since; they are told apart by their numbers.
        self.unleased.extend(ops);
        self.unleased.make_contiguous().sort_by_key(|op| op.seq);
    }

    /// A copy has made writes durable. What that acknowledges also lets reads go on.
    pub(crate) fn on_copy_committed(
        &mut self,
        from: PgShard,
        interval: Epoch,
        committed: EVersion,
        cx: &mut Cx<'_>,
    ) {
        if self.may_read(cx) {
            self.on_rep_op_reply(from, interval, committed, cx);
        } else if self.leads
            && interval == self.interval()
            && let Some(peer) = self.peers.get_mut(&from)
        {
            peer.committed = peer.committed.max(committed);
        }
    }

    /// What waited for promises goes on when they are there.
    pub(crate) fn resume(&mut self, cx: &mut Cx<'_>) {
        if self.state != State::Active || !self.leads || !self.may_read(cx) {
            return;
        }
        self.advance_committed(cx);
        self.run_waiting(cx);
        for op in std::mem::take(&mut self.unleased) {
            self.on_op(op, cx);
        }
    }

    /// When that OSD has answered for one of its copies, monotonic ms; the first time.
    fn answer_of(&self, osd: types::OsdId) -> Option<u64> {
        let of = self.peers.iter().filter(|(c, p)| c.osd == osd && p.answered);
        of.map(|(_, p)| p.answered_ms).min()
    }

    /// Until when, on this side's clock, an OSD that led the PG before may serve reads
    /// without knowing that it does not lead any more; 0 when none can.
    pub(crate) fn others_read_until(&self, cx: &Cx<'_>) -> u64 {
        let mut until = 0;
        for i in &self.info.past {
            let p = i.primary;
            if !i.maybe_went_rw || i.last < self.info.history_les || p == cx.me {
                continue;
            }
            let process_ended = cx.map.up_from(p) > i.last
                || cx.map.is_down(p) && cx.map.xinfo(p).dead_epoch >= cx.map.up_from(p);
            // Who is up and has answered knows of this interval.
            let knows = cx.map.is_up(p) && self.answer_of(p).is_some();
            if !cx.map.exists(p) || process_ended || knows || cx.map.info(p).lost_at > i.first {
                continue;
            }
            // Each of the others ends it by itself: it needed a promise of all.
            let mut ends = Vec::new();
            if i.acting.contains(&cx.me) {
                ends.push(cx.leases.given_until(p));
            }
            for o in i.acting.iter().filter(|o| **o != p && **o != cx.me) {
                if let Some(answered_ms) = self.answer_of(*o) {
                    ends.push(answered_ms + cx.leases.lease_ms);
                }
            }
            let end = ends.into_iter().min().unwrap_or(0);
            if cx.now.mono_ms() < end {
                tracing::debug!(pg = %self.id, first = i.first.0, last = i.last.0, osd = %p,
                    left_ms = end - cx.now.mono_ms(), "may still be reading");
            }
            until = until.max(end);
        }
        until
    }
}
