//! The side that follows: writes, questions and activation from the primary.

use bytes::Bytes;
use denc::Denc;
use maps::PgShard;
use messages::{OsdPeer, PeerMsg, PgInfo, PgLogEntry, RepOp, RepOpReply};
use types::{EVersion, Epoch, HObject, SpgId};

use super::backfill::{Step, follow};
use super::coded::Want;
use super::merge::decode_entries;
use super::peering::list_page;
use super::room::Left;
use super::snaps::index_change;
use super::{Cx, Pg, State, Ticket, log_key, missing_key};
use crate::backing::StoreOp;
use crate::bulk::Marked;

impl Pg {
    /// A write of the primary. One that was seen before is acknowledged again, one that
    /// leaves a gap is dropped: the primary sends all again from the gap on when it learns
    /// that the connection was lost.
    pub(crate) fn on_rep_op(&mut self, from: PgShard, op: RepOp, cx: &mut Cx<'_>) {
        if op.interval != self.interval() || !self.is_led_by(&from) {
            return;
        }
        if self.round == 0 {
            return; // not activated: the primary does not write yet
        }
        let entry = match PgLogEntry::from_bytes(&op.entry) {
            Ok(entry) => entry.detached(),
            Err(e) => {
                tracing::error!(pg = %self.id, %from, "log entry: {e}");
                return;
            }
        };
        if entry.version <= self.log.head() {
            if entry.version <= self.committed {
                self.acknowledge(cx);
            }
            return;
        }
        if op.prev != self.log.head() {
            return;
        }
        let version = entry.version;
        let mut ops = Vec::with_capacity(op.changes.len() + 2);
        // What is left out for want of the object is not taken back either, but brought anew.
        let applies = |c| follow(&self.missing, c, &entry) == Step::Apply;
        if self.missing.is_empty() || op.changes.iter().all(applies) {
            self.note_undo(&entry, &op.changes, &mut ops, cx);
        }
        self.drop_undo(op.settled, &mut ops);
        let mut bytes = 0;
        let whole = op.changes.iter().map(|c| crate::bulk::carried(&c.mutations)).sum();
        for mut change in op.changes {
            crate::bulk::own(&mut change.mutations, whole);
            for m in &change.mutations {
                if let messages::Mutation::Write { data, .. } = m {
                    bytes += data.len() as u64;
                }
            }
            // The copies that act lack nothing of what is written.
            let step = if self.missing.is_empty() {
                Step::Apply
            } else {
                follow(&self.missing, &change, &entry)
            };
            match step {
                Step::Apply => {}
                Step::Lacks(v) => {
                    self.set_missing(change.oid.detached(), v, &mut ops);
                    continue;
                }
                Step::Gone => {
                    self.missing.remove(&change.oid);
                    ops.push(StoreOp::Rm(self.coll, missing_key(&change.oid)));
                }
            }
            if !change.oid.is_head() {
                index_change(cx.store, self.coll, &change.oid, &change.mutations, &mut ops);
            }
            ops.push(StoreOp::Object(self.coll, change.oid, change.mutations));
        }
        ops.push(StoreOp::Put(self.coll, log_key(version), op.entry));
        self.log.push(entry);
        self.trim_log(op.trim_to, &mut ops, cx);
        let counters = &mut cx.perf.osd;
        counters.subop += 1;
        counters.subop_w += 1;
        counters.subop_in_bytes += bytes;
        counters.subop_w_in_bytes += bytes;
        cx.submit(ops, Ticket::Log(self.id, self.interval(), version));
        self.tell_room(cx);
    }

    /// Forgets log entries up to `to`, and on disk what is too old to recognise resends.
    pub(crate) fn trim_log(&mut self, to: EVersion, ops: &mut Vec<StoreOp>, cx: &Cx<'_>) {
        if to > self.log.tail {
            self.log.trim(to);
            self.save_info(ops);
        }
        // Each by its key: a range would have to be read, with all that was removed before.
        let gone = self.log.trim_dups(cx.conf.log_bound(cx.pg_count));
        ops.extend(gone.into_iter().map(|v| StoreOp::Rm(self.coll, log_key(v))));
    }

    pub(crate) fn acknowledge(&mut self, cx: &mut Cx<'_>) {
        let to = self.primary();
        let reply = RepOpReply {
            pg: SpgId { pg: self.id.pg, shard: to.shard },
            from: self.id.shard,
            epoch: cx.map.epoch,
            interval: self.interval(),
            committed: self.committed,
        };
        cx.out.osd(to.osd, &reply);
    }

    /// Log entries up to `version` are durable here.
    pub(crate) fn on_log_durable(&mut self, interval: Epoch, version: EVersion, cx: &mut Cx<'_>) {
        self.committed = self.committed.max(version);
        if interval != self.interval() {
            return;
        }
        if !self.leads {
            self.acknowledge(cx);
        } else if self.may_read(cx) {
            self.advance_committed(cx);
        }
    }

    /// Everything but writes. `m.epoch` is not above the newest map here.
    pub(crate) fn on_peer(&mut self, from: PgShard, m: OsdPeer, cx: &mut Cx<'_>) {
        if !self.flushed && matches!(m.body, PeerMsg::Query | PeerMsg::GetLog(_)) {
            if !self.early.iter().any(|(o, e)| *o == from && *e == m) {
                self.early.push((from, m));
            }
            return;
        }
        match m.body {
            PeerMsg::Query => {
                self.refresh_info();
                let body = PeerMsg::Info { known: true, info: self.info.clone() };
                self.reply(from, m.interval, body, cx);
            }
            PeerMsg::GetLog(wanted) => {
                if m.interval < self.interval() {
                    return;
                }
                let since = self.log.floor(wanted).unwrap_or(self.log.tail);
                self.refresh_info();
                // The whole log may replace the asking side's.
                let whole = since == self.log.tail;
                let mut entries =
                    if whole { self.requests_below_tail(cx.store) } else { Vec::new() };
                entries.extend(self.log.after(since));
                let body = PeerMsg::Log {
                    since,
                    info: self.info.clone(),
                    entries,
                    missing: self.missing.iter().map(|(o, v)| (o.clone(), *v)).collect(),
                };
                self.reply(from, m.interval, body, cx);
            }
            PeerMsg::Scan(begin) => {
                if m.interval < self.interval() {
                    return;
                }
                match list_page(cx.store, self.coll, &begin) {
                    Ok((objects, end)) => {
                        let body = PeerMsg::Objects { begin, end, objects };
                        self.reply(from, m.interval, body, cx);
                    }
                    Err(e) => tracing::error!(pg = %self.id, "scan: {e}"),
                }
            }
            PeerMsg::Pull { oid, version, off, omap_after } => {
                if m.interval < self.interval() {
                    return;
                }
                self.answer_pull(from, m.interval, (&oid, version, off, &omap_after), cx);
            }
            PeerMsg::ShardRead { id, oid, version, off, len, attrs } => {
                if m.interval >= self.interval() {
                    let want = Want { oid, version, off, len, shards: Vec::new(), attrs };
                    self.on_shard_read(from, m.interval, id, &want, cx);
                }
            }
            PeerMsg::Info { known: true, .. }
                if m.interval > self.interval() && self.is_unneeded(from) =>
            {
                // It was down for longer than maps are kept, and takes the oldest that is left
                // for the interval's first.
                self.reply(from, m.interval, PeerMsg::Remove, cx);
            }
            _ if m.interval != self.interval() => {}
            PeerMsg::Info { known, info } => self.on_info(from, known, info, cx),
            PeerMsg::Log { since, info, entries, missing } => {
                self.on_log(from, since, info, &entries, missing, cx);
            }
            PeerMsg::Objects { begin, end, objects } => {
                self.on_objects(from, &begin, end, objects, cx);
            }
            PeerMsg::Activate { round, info, since, reset, entries, missing, surplus } => {
                if self.is_led_by(&from) {
                    self.on_activate(round, &info, since, reset, &entries, missing, surplus, cx);
                }
            }
            PeerMsg::Activated { round, missing, record_max } => {
                if let Some(peer) = self.peers.get_mut(&from) {
                    peer.record_max = record_max;
                }
                self.on_activated(from, round, missing, cx);
            }
            PeerMsg::Unrelated { round } => self.on_unrelated(from, round, cx),
            PeerMsg::Settle { history_les, last_epoch_clean } => {
                if self.is_led_by(&from) {
                    self.on_settle(history_les, last_epoch_clean, cx);
                }
            }
            PeerMsg::Push(push) => self.on_push(from, push, cx),
            PeerMsg::Scrub(m) => self.on_scrub_msg(from, m, cx),
            PeerMsg::BackfillAsk => self.on_backfill_ask(from, cx),
            PeerMsg::BackfillSlot { granted, full } => {
                self.on_backfill_slot(from, granted, full, cx);
            }
            PeerMsg::BackfillEnd => {
                if self.primary() == from {
                    cx.slots.backfills_lent.give_back(self.id);
                }
            }
            PeerMsg::RecoveryAsk => self.on_recovery_ask(from, cx),
            PeerMsg::RecoverySlot => self.on_recovery_slot(from, cx),
            PeerMsg::RecoveryEnd => {
                if self.primary() == from {
                    cx.slots.recoveries_lent.give_back(self.id);
                    self.recovery.turn_wanted = false;
                }
            }
            PeerMsg::Pushed { oid, version, off, omap_after, last } => {
                self.on_pushed(from, oid, version, off, omap_after, last, cx);
            }
            PeerMsg::Room { full, bare } => self.on_room(from, Left { full, bare }, cx),
            // The OSD's own affairs.
            PeerMsg::Remove
            | PeerMsg::CopyGet { .. }
            | PeerMsg::CopyPart { .. }
            | PeerMsg::TierAsk { .. }
            | PeerMsg::TierTold { .. } => {}
            PeerMsg::ShardData { id, result, size, attrs, data } => {
                let good = result >= 0;
                let answer = if good { Ok((size, attrs, data)) } else { Err(types::Errno(result)) };
                self.on_shard_data(from, id, answer, cx);
            }
            PeerMsg::Follow { since, entries } => self.on_follow(from, since, &entries, cx),
            PeerMsg::Settled(upto) => {
                if self.is_led_by(&from) {
                    self.on_settled(upto, cx);
                }
            }
        }
    }

    /// Answers in the asking side's interval, which may be ahead.
    pub(crate) fn reply(&self, to: PgShard, interval: Epoch, body: PeerMsg, cx: &mut Cx<'_>) {
        let pg = SpgId { pg: self.id.pg, shard: to.shard };
        let m = OsdPeer {
            pg,
            from: self.id.shard,
            epoch: cx.map.epoch,
            interval,
            felt: cx.felt(&body),
            body,
        };
        cx.out.osd(to.osd, &m);
    }

    #[allow(clippy::too_many_arguments)]
    fn on_activate(
        &mut self,
        round: u32,
        info: &PgInfo,
        since: EVersion,
        reset: bool,
        raw: &[Bytes],
        missing: Vec<(HObject, EVersion)>,
        surplus: Vec<HObject>,
        cx: &mut Cx<'_>,
    ) {
        let interval = self.interval();
        if round <= self.round {
            if round == self.round && self.state == State::Active {
                // It came twice: the answer was lost, or is on its way.
                let missing = self.missing.iter().map(|(o, v)| (o.clone(), *v)).collect();
                let record_max = cx.store.record_max();
                self.say(cx, self.primary(), PeerMsg::Activated { round, missing, record_max });
            }
            return;
        }
        let entries = match decode_entries(raw) {
            Ok(entries) => entries,
            Err(e) => {
                tracing::error!(pg = %self.id, "activation: {e}");
                return;
            }
        };
        let mut steps = Marked::default();
        if reset {
            let missing = missing.into_iter().map(|(o, v)| (o.detached(), v)).collect();
            let entries = entries.into_iter().zip(raw.iter().cloned());
            self.replace_log(since, entries, missing, surplus, &mut steps.ops, cx.store);
        } else if self.merge_log(since, entries, &mut steps, cx.store).is_err() {
            self.save_info(&mut steps.ops);
            cx.submit_marked(steps, Ticket::None);
            self.say(cx, self.primary(), PeerMsg::Unrelated { round });
            return;
        }
        self.adopt_history(info, true);
        self.info.counts = info.counts;
        // Writes are acknowledged without those that only follow: they vouch for none.
        if self.acts(&self.me(cx.me)) {
            self.info.last_epoch_started =
                self.info.last_epoch_started.max(info.last_epoch_started);
        }
        self.round = round;
        self.state = State::Inactive; // until it is durable
        self.save_info(&mut steps.ops);
        cx.submit_marked(steps, Ticket::Activated(self.id, interval, round));
    }

    fn on_settle(&mut self, history_les: Epoch, last_epoch_clean: Epoch, cx: &mut Cx<'_>) {
        let before = (self.info.history_les, self.info.last_epoch_clean);
        self.info.history_les = self.info.history_les.max(history_les);
        if last_epoch_clean > self.info.last_epoch_clean {
            self.info.last_epoch_clean = last_epoch_clean;
            self.info.past.retain(|i| i.last >= last_epoch_clean);
        }
        if before != (self.info.history_les, self.info.last_epoch_clean) {
            let mut ops = Vec::new();
            self.save_info(&mut ops);
            cx.submit(ops, Ticket::None);
        }
    }
}
