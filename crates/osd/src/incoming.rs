//! What other daemons and clients send: to which part of the OSD it goes, and what has to wait
//! for a newer map, or for its PG.

use env::{ConnId, Now};
use maps::{OsdMap, PgShard};
use messages::{
    Backoff, Command, Envelope, MOsdOp, Message, OsdMapMsg, OsdPart, OsdPeer, OsdPing, PeerMsg,
    RepOp, RepOpReply, op, req_flag,
};
use types::{Epoch, Errno, OsdId, PgId, SnapId, SpgId};

use crate::caps::Caps;
use crate::config::Config;
use crate::core::{Osd, PeerInfo};
use crate::doors::{Door, Kind};
use crate::exec::check_name;
use crate::outbox::{Effect, Outbox};
use crate::parked;
use crate::pg::Answer;
use crate::session::{ClientOp, Session};

/// Stands for the connection of this OSD to itself.
const LOOP: ConnId = ConnId(u64::MAX);
/// Requests that may wait for their PG to be here.
const HOMELESS_MAX: usize = 20_000;

impl Osd {
    /// A connection is there.
    pub fn on_open(&mut self, conn: ConnId, peer: PeerInfo) {
        let caps = if peer.allow_all { Caps::all() } else { Caps::parse(&peer.caps) };
        let session = Session {
            who: peer.who,
            name: peer.name,
            addr: peer.addr,
            from: peer.from,
            features: peer.features,
            caps,
            epoch: Epoch(0),
            load: self.c.load_bytes.another(),
            door: peer.door,
            told: stdx::SayBudget::default(),
        };
        self.c.sessions.by_conn.insert(conn, session);
    }

    /// What a client's connection has in hand: the driver asks it before it reads more. `None` for a
    /// daemon's, which is read all the time: clients may wait for what it says.
    #[must_use]
    pub fn load_of(&self, conn: ConnId) -> Option<crate::load::Load> {
        let session = self.c.sessions.by_conn.get(&conn)?;
        session.osd().is_none().then(|| session.load.clone())
    }

    /// A connection is gone.
    pub fn on_closed(&mut self, conn: ConnId) {
        self.c.sessions.by_conn.remove(&conn);
        self.c.sessions.parts.remove(&conn);
        self.c.waiting.on_closed(conn);
        self.c.backoffs.on_closed(conn);
        // Nobody would be told.
        let gone = |op: &ClientOp| op.conn == conn && op.origin.is_none();
        self.c.homeless.values_mut().for_each(|ops| ops.retain(|op| !gone(op)));
        self.c.homeless.retain(|_, ops| !ops.is_empty());
        for pg in self.pgs.values_mut() {
            pg.watches.on_closed(conn);
            pg.forget_parked(&gone);
        }
    }

    /// A message of a client or another OSD.
    pub fn on_message(&mut self, now: Now, conn: ConnId, e: Envelope, out: &mut Outbox) {
        if self.c.store.is_stopped() {
            return; // what is in memory is not what is stored: nothing may follow from it
        }
        let Some(session) = self.c.sessions.by_conn.get_mut(&conn) else { return };
        let osd = session.osd();
        let Some(kind) = Kind::of(e.kind) else {
            tracing::debug!("message {:#x} is not for OSDs", e.kind);
            return;
        };
        if let Err(why) = kind.rule().admits(session) {
            self.c.perf.own.messages_dropped += 1;
            if let Some(left_out) = session.tells(now) {
                let (entity, addr) = (&session.name, session.addr);
                tracing::warn!(%entity, %addr, left_out, "{kind:?}: {why}");
            }
            return; // as the peer: no answer
        }
        self.on_message_of(now, conn, osd, (kind, e), out);
        self.report_pg_temp(out);
        self.report_merges(now, out);
        self.run_freed_slots(now, out);
        self.run_paced(now, out);
        self.pump_copies_and_asks(now, out);
        self.loop_back(now, out);
    }

    /// What this OSD says to itself: where it has two shards of a PG of an erasure-coded pool.
    pub(crate) fn loop_back(&mut self, now: Now, out: &mut Outbox) {
        let me = self.c.id.whoami;
        let own = |e: &Effect| matches!(e, Effect::Osd(to, _) if *to == me);
        let mut from = 0;
        while let Some((at, Effect::Osd(_, e))) = out.take(from, own) {
            from = at;
            if let Some(kind) = Kind::of(e.kind) {
                self.on_message_of(now, LOOP, Some(me), (kind, e), out);
            }
        }
    }

    fn on_message_of(
        &mut self,
        now: Now,
        conn: ConnId,
        osd: Option<OsdId>,
        (kind, e): (Kind, Envelope),
        out: &mut Outbox,
    ) {
        let read = match (kind, osd) {
            (Kind::MOsdOp, _) => MOsdOp::decode(&e).map(|m| self.on_request(now, conn, m, e, out)),
            (Kind::RepOp, Some(from)) => RepOp::decode(&e).map(|m| {
                if self.is_timely(now, m.epoch, conn, e, out) {
                    let from = PgShard { osd: from, shard: m.from };
                    self.with_pg(now, m.pg, out, |pg, cx| pg.on_rep_op(from, m, cx));
                }
            }),
            (Kind::RepOpReply, Some(from)) => RepOpReply::decode(&e).map(|m| {
                if self.is_timely(now, m.epoch, conn, e, out) {
                    let from = PgShard { osd: from, shard: m.from };
                    self.with_pg(now, m.pg, out, |pg, cx| {
                        pg.on_copy_committed(from, m.interval, m.committed, cx);
                    });
                }
            }),
            (Kind::OsdPeer, Some(from)) => OsdPeer::decode(&e).map(|m| {
                if self.is_timely(now, m.epoch, conn, e, out) {
                    self.on_peer(now, PgShard { osd: from, shard: m.from }, m, out);
                }
            }),
            (Kind::OsdPart, Some(_)) => OsdPart::decode(&e).and_then(|part| {
                let parts = self.c.sessions.parts.entry(conn).or_default();
                let whole = parts.take(part);
                if parts.held() == 0 {
                    self.c.sessions.parts.remove(&conn);
                }
                // What is in parts is judged as if it were whole: both are OSDs' alone.
                if let Some(whole) = whole?
                    && let Some(kind) =
                        Kind::of(whole.kind).filter(|k| k.rule().door == Door::Cluster)
                {
                    self.on_message_of(now, conn, osd, (kind, whole), out);
                }
                Ok(())
            }),
            (Kind::OsdPing, Some(from)) => {
                OsdPing::decode(&e).map(|m| self.on_ping(now, conn, from, &m, out))
            }
            (Kind::OsdMapMsg, Some(_)) => {
                OsdMapMsg::decode(&e).map(|m| self.on_maps(now, &m, false, out))
            }
            (Kind::Backoff, _) => Backoff::decode(&e).map(|m| self.c.backoffs.on_ack(conn, &m)),
            (Kind::Command, _) => {
                Command::decode(&e).map(|m| self.on_command(now, conn, e.tid, &m, out))
            }
            (
                Kind::RepOp
                | Kind::RepOpReply
                | Kind::OsdPeer
                | Kind::OsdPart
                | Kind::OsdPing
                | Kind::OsdMapMsg,
                None,
            ) => Ok(()), // the table of doors lets none in
        };
        if let Err(x) = read {
            let who = self.c.sessions.by_conn.get(&conn).map(|s| (s.who, s.addr));
            tracing::warn!(?who, "broken message: {x}");
            out.push(Effect::Close(conn));
        }
    }

    /// Whether a message of an OSD can be handled with the map at hand; otherwise it waits
    /// for the one it was sent with, or is dropped.
    fn is_timely(
        &mut self,
        now: Now,
        epoch: Epoch,
        conn: ConnId,
        e: Envelope,
        out: &mut Outbox,
    ) -> bool {
        if epoch > self.c.map.epoch {
            self.wait_for_map(now, epoch, conn, e, out);
            return false;
        }
        if !self.c.booted {
            return false;
        }
        self.share_map(conn, epoch, out);
        true
    }

    fn wait_for_map(
        &mut self,
        now: Now,
        epoch: Epoch,
        conn: ConnId,
        envelope: Envelope,
        out: &mut Outbox,
    ) {
        let session = self.c.sessions.by_conn.get(&conn);
        let from = match session.filter(|s| s.osd().is_none()) {
            Some(s) => parked::From::Client { max: self.c.conf.request_bytes_max, load: &s.load },
            None => parked::From::Osd,
        };
        let epochs = (epoch, self.c.map.epoch);
        let put = self.c.waiting.put(now, epochs, (conn, from), envelope);
        if let Err(why) = put {
            self.c.perf.own.messages_dropped += 1;
            let who = session.map(|s| (s.who, s.addr));
            tracing::warn!(?who, "a connection is closed: {why}");
            self.c.waiting.on_closed(conn);
            out.push(Effect::Close(conn));
            return;
        }
        out.push(Effect::SubscribeMaps(Epoch(self.c.map.epoch.0 + 1)));
    }

    /// Maps that did not come in time are not waited for.
    pub(crate) fn tick_waiting(&mut self, now: Now, out: &mut Outbox) {
        for conn in self.c.waiting.overdue(now) {
            tracing::warn!(?conn, "a connection is closed: the map that it names does not come");
            self.c.waiting.on_closed(conn);
            if conn != LOOP {
                out.push(Effect::Close(conn));
            }
        }
    }

    /// A newer map is there: what waited for it goes on.
    pub(crate) fn run_waiting(&mut self, now: Now, out: &mut Outbox) {
        for w in self.c.waiting.take(self.c.map.epoch) {
            let own = Kind::of(w.envelope.kind).filter(|_| w.conn == LOOP);
            if let Some(kind) = own {
                let me = Some(self.c.id.whoami);
                self.on_message_of(now, LOOP, me, (kind, w.envelope), out);
            } else {
                self.on_message(now, w.conn, w.envelope, out);
            }
        }
    }

    fn on_request(&mut self, now: Now, conn: ConnId, mut m: MOsdOp, e: Envelope, out: &mut Outbox) {
        if m.epoch > self.c.map.epoch {
            let session = self.c.sessions.by_conn.get(&conn);
            if session.is_some_and(|s| s.caps.is_empty()) {
                // Whatever a map says of pools.
                let by = session.map(Session::asker).expect("just seen");
                let op = self.c.client_op(now, conn, by, e.tid, m, e.size());
                self.c.perf.own.caps_denied += 1;
                Answer::error(&op, Errno::PERM).send(&op, &mut self.c.cx(now, out));
                return;
            }
            self.wait_for_map(now, m.epoch, conn, e, out);
            return;
        }
        self.share_map(conn, m.epoch, out);
        if !self.c.booted || self.c.stopping {
            return;
        }
        let Some(session) = self.c.sessions.by_conn.get(&conn) else { return };
        if self.c.map.pool(m.pg.pg.pool).is_none() {
            return;
        }
        let by = session.asker();
        for op in &mut m.ops {
            op.data = crate::bulk::owned(&op.data, e.data.len());
        }
        let op = self.c.client_op(now, conn, by, e.tid, m, e.size());
        let Some(session) = self.c.sessions.by_conn.get_mut(&conn) else { return };
        let name = self.c.map.pool_name(op.msg.pg.pg.pool).unwrap_or("");
        // The peer looks for operations, classes and methods before it asks for caps.
        let refused = if op.msg.ops.is_empty() {
            Some(Errno::INVAL)
        } else if !session.caps.allows(&op, &session.from, &self.c.map) {
            self.c.perf.own.caps_denied += 1;
            if let Some(left_out) = session.tells(now) {
                tracing::warn!(
                    entity = %session.name, addr = %session.from, pool = name, left_out,
                    object = %op.msg.oid.escape_ascii(), "denied: the capabilities do not allow it"
                );
            }
            Some(op.refused_call(&self.c.conf.classes).unwrap_or(Errno::PERM))
        } else {
            None
        };
        self.admit_op(now, op, refused, out);
    }

    /// A request goes to its PG, unless it is `refused` already.
    pub(crate) fn admit_op(
        &mut self,
        now: Now,
        op: Box<ClientOp>,
        refused: Option<Errno>,
        out: &mut Outbox,
    ) {
        let refused = refused.or_else(|| refusal(&op, &self.c.map, &self.c.conf));
        let id = op.msg.pg.pg;
        let home = self.c.spg_of(id, self.c.id.whoami);
        let mut cx = self.c.cx(now, out);
        match (refused, self.pgs.get_mut(&home)) {
            (Some(e), _) => Answer::error(&op, e).send(&op, &mut cx),
            (None, _) if op.origin.is_none() && cx.backoffs.drops(op.conn, op.msg.pg, &op.oid) => {}
            (None, Some(pg)) => pg.admit(op, &mut cx),
            (None, None) => {
                let sets = self.c.mapping.get(id);
                let leads = sets.and_then(|s| s.acting_primary) == Some(self.c.id.whoami);
                let n: usize = self.c.homeless.values().map(Vec::len).sum();
                if leads && n < HOMELESS_MAX {
                    self.c.homeless.entry(id).or_default().push(op);
                } // else misdirected
            }
        }
    }

    fn on_peer(&mut self, now: Now, from: PgShard, m: OsdPeer, out: &mut Outbox) {
        self.c.pace.hear(m.felt, now);
        match m.body {
            PeerMsg::CopyGet { .. } => {
                let mut readable = true;
                self.with_pg(now, m.pg, out, |pg, cx| readable = pg.may_read(cx));
                if readable {
                    self.on_copy_get(now, from, &m, out); // else it is asked again
                }
                return;
            }
            PeerMsg::CopyPart { id, push, answered } => {
                return self.on_copy_answer(now, id, push, answered, out);
            }
            PeerMsg::TierAsk { .. } => return self.on_tier_ask(now, from.osd, m, out),
            PeerMsg::TierTold { id, reply } => return self.on_tier_told(now, id, *reply, out),
            _ => {}
        }
        if let Some(pg) = self.pgs.get_mut(&m.pg) {
            if m.body == PeerMsg::Remove {
                self.on_remove(&m);
            } else {
                if matches!(m.body, PeerMsg::Activate { .. }) {
                    self.c.leases.give(from.osd, now.mono_ms());
                }
                pg.on_peer(from, m, &mut self.c.cx(now, out));
            }
            return;
        }
        let reply = |body: PeerMsg, epoch: Epoch, out: &mut Outbox| {
            let pg = SpgId { shard: from.shard, ..m.pg };
            let (interval, from_shard) = (m.interval, m.pg.shard);
            out.osd(from.osd, &OsdPeer { pg, from: from_shard, epoch, interval, felt: 0, body });
        };
        match &m.body {
            PeerMsg::Query => {
                let body = PeerMsg::Info { known: false, info: messages::PgInfo::default() };
                reply(body, self.c.map.epoch, out);
            }
            // Copies may come; there is no PG yet that could remember who asked.
            PeerMsg::BackfillAsk => {
                let (granted, full) = crate::pg::lend_slot(m.pg, &mut self.c.cx(now, out));
                let body = PeerMsg::BackfillSlot { granted, full };
                reply(body, self.c.map.epoch, out);
            }
            PeerMsg::BackfillEnd => self.c.slots.backfills_lent.give_back(m.pg),
            // A PG that others have and that the map now wants here.
            PeerMsg::Info { known: true, info } | PeerMsg::Activate { info, .. }
                if self.adopt_pg(m.pg, info, m.interval) =>
            {
                self.c.leases.give(from.osd, now.mono_ms());
                let lent = self.c.slots.backfills_lent.has(m.pg);
                let mut cx = self.c.cx(now, out);
                let pg = self.pgs.get_mut(&m.pg).expect("just adopted");
                let id = m.pg;
                pg.on_interval(true, &mut cx);
                if lent {
                    cx.slots.backfills_lent.take(id, usize::MAX);
                }
                pg.on_peer(from, m, &mut cx);
                self.run_homeless(now, id.pg, out);
            }
            _ => {}
        }
    }

    /// The PG is here now.
    pub(crate) fn run_homeless(&mut self, now: Now, id: PgId, out: &mut Outbox) {
        for op in self.c.homeless.remove(&id).unwrap_or_default() {
            self.with_led(now, id, out, |pg, cx| pg.admit(op, cx));
        }
    }

    /// The primary says that this copy is not needed any more.
    fn on_remove(&mut self, m: &OsdPeer) {
        let me = self.c.id.whoami;
        let Some(pg) = self.pgs.get(&m.pg) else { return };
        if m.interval != pg.interval() || pg.belongs_here(me) {
            return;
        }
        tracing::info!(pg = %m.pg, "the copy is removed: it is elsewhere now");
        self.drop_pg(m.pg);
    }
}

/// Why a request cannot be done, whatever the object is.
fn refusal(o: &ClientOp, map: &OsdMap, conf: &Config) -> Option<Errno> {
    let m = &o.msg;
    if o.is_fenced(map) {
        return Some(Errno::BLOCKLISTED);
    }
    if o.is_pg_op() {
        return None;
    }
    if let Err(e) = check_name(&o.oid) {
        return Some(e);
    }
    if m.flags & req_flag::PARALLELEXEC != 0 {
        return Some(Errno::INVAL);
    }
    let writes = o.may_write();
    let on_cache = m.ops.iter().any(|x| crate::pg::tier::is_cache_op(x.code));
    if writes && !on_cache && m.snapid != SnapId::HEAD {
        return Some(Errno::INVAL);
    }
    // Snapshots are listed of the set of them, and nothing else is asked of that.
    let lists = |x: &messages::OsdOp| x.code == op::LIST_SNAPS;
    if m.ops.iter().any(|x| lists(x) != (m.snapid == SnapId::DIR)) {
        return Some(Errno::INVAL);
    }
    let snaps_valid = m.snaps.first().is_none_or(|s| *s <= m.snap_seq)
        && m.snaps.windows(2).all(|w| w[0] > w[1])
        && m.snap_seq < SnapId::HEAD;
    if writes && !snaps_valid {
        return Some(Errno::INVAL);
    }
    let payload: usize = m.ops.iter().map(|x| x.data.len()).sum();
    if writes && payload > conf.write_size_max {
        return Some(Errno::MSGSIZE);
    }
    None
}
