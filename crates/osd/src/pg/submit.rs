//! A write on its way: logged, sent to all acting copies, durable on all, answered in the order of
//! versions.

use bytes::Bytes;
use denc::Denc;
use maps::PgShard;
use messages::{LogKind, Message, Mutation, ObjectChange, PgLogEntry, RepOp};
use types::{EVersion, Errno, HObject, ReqId, UTime};

use super::ops::Answer;
use super::snaps::index_change;
use super::{Cx, InFlight, Pg, State, Ticket, log_key};
use crate::backing::StoreOp;
use crate::bulk;
use crate::object::{INFO_ATTR, ObjectState};
use crate::session::ClientOp;

impl Pg {
    pub(crate) fn next_version(&self, cx: &Cx<'_>) -> EVersion {
        EVersion { epoch: cx.map.epoch, version: self.log.head().version + 1 }
    }

    /// The log entry of a deletion that no client asked for.
    pub(crate) fn own_delete(&self, oid: &HObject, version: EVersion, cx: &Cx<'_>) -> PgLogEntry {
        PgLogEntry {
            version,
            kind: LogKind::Delete,
            oid: oid.clone(),
            user_version: self.last_user_version(),
            mtime: UTime::from_nanos(cx.now.wall_ns),
            counts: self.counts(),
            ..PgLogEntry::default()
        }
    }

    /// Bytes of the log that one write of this PG may take: what the log of each copy that gets it
    /// has room for.
    pub(crate) fn record_max(&self, cx: &Cx<'_>) -> u64 {
        let told = |p: &super::Peer| if p.record_max == 0 { bulk::UNTOLD } else { p.record_max };
        let others = self.peers.values().filter(|p| p.activated).map(told);
        let least = others.chain([cx.store.record_max()]).min().unwrap_or(0);
        least.saturating_sub(bulk::BESIDE)
    }

    /// Whether logs and messages take these changes of an object. They are known before anything
    /// is logged.
    ///
    /// # Errors
    /// EMSGSIZE for more than one transaction takes; EFBIG for an object whose attributes are more
    /// than [`bulk::ATTRS_MAX`] in sum.
    pub(crate) fn require_log(
        &self,
        oid: &HObject,
        before: &ObjectState,
        after: &ObjectState,
        mutations: &[Mutation],
        cx: &Cx<'_>,
    ) -> Result<(), Errno> {
        let max = self.record_max(cx);
        let cuts = bulk::cuts_of(mutations);
        // A clone made on the way takes a record of its own.
        let infos = bulk::record_of_info(&before.info) + bulk::record_of_info(&after.info);
        let mut bytes = bulk::record_of_all(mutations) + infos;
        if cuts > 16 {
            bytes += cuts * cx.store.cut_takes(self.id.pg.pool);
        }
        if bytes > max {
            return Err(Errno::MSGSIZE);
        }
        if let Some((was, attrs)) = bulk::attrs_after(&*cx.store, self.coll, oid, mutations) {
            if attrs > bulk::ATTRS_MAX.min(max) && attrs > was {
                return Err(Errno::FBIG);
            }
            if self.is_coded() {
                bytes += was; // with the write each shard keeps how it is taken back
            }
        }
        if bytes > max { Err(Errno::MSGSIZE) } else { Ok(()) }
    }

    /// As [`Pg::submit_change`], where no bytes are written.
    pub(crate) fn submit_write(
        &mut self,
        clone: Option<ObjectChange>,
        change: ObjectChange,
        entry: PgLogEntry,
        state: ObjectState,
        replies: Vec<(Box<ClientOp>, Answer)>,
        cx: &mut Cx<'_>,
    ) {
        self.submit_change(clone, change, entry, state, replies, None, cx);
    }

    /// Sends a write on its way: here, and to all acting copies; first what happens to a
    /// clone of the object, then to the object itself. In erasure-coded pools each shard gets
    /// its own part; `old` are the bytes that were gathered for it.
    ///
    /// After: the log ends with `entry`, and the object's context shows `state`.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn submit_change(
        &mut self,
        clone: Option<ObjectChange>,
        change: ObjectChange,
        entry: PgLogEntry,
        state: ObjectState,
        replies: Vec<(Box<ClientOp>, Answer)>,
        old: Option<Vec<Option<Bytes>>>,
        cx: &mut Cx<'_>,
    ) {
        let version = entry.version;
        let ObjectChange { oid, mut mutations } = change;
        self.scrub_sees_write(&entry);
        if entry.kind == LogKind::Modify {
            let attr = Bytes::from_static(INFO_ATTR);
            mutations.push(Mutation::SetAttr(attr, state.info.to_bytes()));
        }
        let raw = entry.to_bytes();
        let prev = self.log.head();
        let trim_to = self.log.plan_trim(cx.conf.log_bound(cx.pg_count), self.committed_by_all);
        let mut rep = RepOp {
            pg: self.id,
            from: self.id.shard,
            epoch: cx.map.epoch,
            interval: self.interval(),
            prev,
            trim_to,
            settled: self.settled_with_write(),
            entry: raw,
            changes: Vec::new(),
        };
        let mut sent = Vec::new();
        let me = self.me(cx.me);
        if self.pool.coding.is_some() {
            let change = ObjectChange { oid: oid.clone(), mutations };
            let before = match self.obcs.get(&oid) {
                Some(obc) => obc.state.clone(),
                None => Self::read_state(cx.store, self.coll, &oid).unwrap_or_default(),
            };
            let mut each = self.shard_changes(clone.as_ref(), &change, &before, old.as_deref(), cx);
            self.note_sent(&each, cx);
            let of = |c: &PgShard| each.get(c.shard.0 as usize).cloned().unwrap_or_default();
            self.note_followers(&entry, &of, cx);
            for copy in self.followers() {
                rep.pg.shard = copy.shard;
                rep.changes = of(&copy);
                let e = rep.envelope(types::Features::ALL);
                cx.out.push(crate::outbox::Effect::Osd(copy.osd, e));
            }
            for copy in self.acting_copies().filter(|c| *c != me).collect::<Vec<_>>() {
                rep.pg.shard = copy.shard;
                rep.changes = std::mem::take(&mut each[copy.shard.0 as usize]);
                let e = rep.envelope(types::Features::ALL);
                cx.out.push(crate::outbox::Effect::Osd(copy.osd, e.clone()));
                sent.push((Some(copy), e));
            }
            rep.pg.shard = me.shard;
            rep.changes = std::mem::take(&mut each[me.shard.0 as usize]);
        } else {
            rep.changes = match (clone, mutations.is_empty()) {
                (None, true) => Vec::new(),
                (None, false) => vec![ObjectChange { oid: oid.clone(), mutations }],
                (Some(clone), _) => vec![clone, ObjectChange { oid: oid.clone(), mutations }],
            };
            self.note_followers(&entry, &|_| rep.changes.clone(), cx);
            let mut envelope = None;
            for copy in self.acting_copies().filter(|c| *c != me).chain(self.followers()) {
                let e = envelope.get_or_insert_with(|| rep.envelope(types::Features::ALL));
                cx.out.push(crate::outbox::Effect::Osd(copy.osd, e.clone()));
            }
            sent.extend(envelope.map(|e| (None, e)));
        }
        let mut ops = Vec::with_capacity(3);
        self.note_undo(&entry, &rep.changes, &mut ops, cx);
        self.drop_undo(rep.settled, &mut ops);
        for change in rep.changes {
            if !change.oid.is_head() {
                index_change(cx.store, self.coll, &change.oid, &change.mutations, &mut ops);
            }
            ops.push(StoreOp::Object(self.coll, change.oid, change.mutations));
        }
        ops.push(StoreOp::Put(self.coll, log_key(version), rep.entry));
        self.log.push(entry);
        self.trim_log(trim_to, &mut ops, cx);
        let obc = self.obcs.entry(oid.clone()).or_default();
        obc.state = state;
        obc.in_flight += 1;
        self.in_flight.push_back(InFlight { version, oid, sent, replies });
        self.stats_dirty = true;
        cx.submit(ops, Ticket::Log(self.id, self.interval(), version));
    }

    /// The reply of a copy.
    pub(crate) fn on_rep_op_reply(
        &mut self,
        from: PgShard,
        interval: types::Epoch,
        committed: EVersion,
        cx: &mut Cx<'_>,
    ) {
        if !self.leads || interval != self.interval() || self.state != State::Active {
            return;
        }
        let Some(peer) = self.peers.get_mut(&from) else { return };
        if committed > peer.committed {
            peer.committed = committed;
            self.advance_committed(cx);
        }
    }

    /// Answers all writes that are durable everywhere.
    pub(crate) fn advance_committed(&mut self, cx: &mut Cx<'_>) {
        let mut all = self.committed;
        for o in self.others(cx.me) {
            all = all.min(self.peers.get(&o).map_or(EVersion::ZERO, |p| p.committed));
        }
        if all <= self.committed_by_all {
            return;
        }
        self.committed_by_all = all;
        while self.in_flight.front().is_some_and(|f| f.version <= all) {
            let f = self.in_flight.pop_front().expect("looked at");
            for (nth, (op, mut answer)) in f.replies.into_iter().enumerate() {
                // What came again meanwhile may be about a watch that has ended since.
                if nth > 0 && answer.result >= 0 && !self.watch_again(&op, cx) {
                    answer.result = Errno::NOTCONN.0;
                }
                self.watch_answered(&op, cx);
                answer.send(&op, cx);
            }
            let Some(obc) = self.obcs.get_mut(&f.oid) else { continue };
            obc.in_flight -= 1;
            if obc.in_flight == 0 {
                if !obc.waiting.is_empty() {
                    for op in std::mem::take(&mut obc.waiting) {
                        self.do_op(op, cx);
                    }
                }
                if self.recovery_wants(&f.oid) {
                    self.recover_first(&f.oid, cx);
                }
            }
        }
        self.on_trim_committed(all, cx);
        if self.scrub.running().is_some() {
            self.drive_scrub(cx);
        }
    }

    pub(crate) fn recovery_wants(&self, oid: &HObject) -> bool {
        self.peers.values().any(|p| p.activated && p.missing.contains_key(oid))
    }

    /// A change of the OSD's own making to an object's record.
    pub(crate) fn write_record(&mut self, oid: &HObject, state: ObjectState, cx: &mut Cx<'_>) {
        let before = self.obcs.get(oid).map(|o| o.state.clone()).unwrap_or_default();
        let version = self.next_version(cx);
        let mut state = state;
        state.info.version = version;
        let entry = PgLogEntry {
            version,
            prior: before.info.version,
            kind: LogKind::Modify,
            oid: oid.clone(),
            reqid: ReqId::default(),
            user_version: self.last_user_version().max(before.info.user_version),
            mtime: state.info.mtime,
            result: 0,
            returns: Vec::new(),
            counts: self.counts(),
            also: Vec::new(),
            answered: Vec::new(),
        };
        let change = ObjectChange { oid: oid.clone(), mutations: vec![Mutation::Touch] };
        self.submit_write(None, change, entry, state, Vec::new(), cx);
    }
}
