//! Requests under way, wherever they wait, for who lists them and for what is told of slow ones.

use env::Now;
use messages::{MOsdOp, Message};
use serde_json::{Value, json};
use types::{EntityAddr, EntityId, HObject, ReqId, UTime};

use crate::core::Osd;
use crate::parked::Waiting;
use crate::pg::Pg;
use crate::session::{ClientOp, object_of};

/// What is told of a request.
struct Told<'a> {
    msg: &'a MOsdOp,
    reqid: ReqId,
    oid: &'a HObject,
    who: EntityId,
    addr: EntityAddr,
    tid: u64,
    came_wall_ns: u64,
}

impl<'a> Told<'a> {
    fn of(op: &'a ClientOp) -> Self {
        Self {
            msg: &op.msg,
            reqid: op.reqid,
            oid: &op.oid,
            who: op.by.who,
            addr: op.by.addr,
            tid: op.tid,
            came_wall_ns: op.came_wall_ns,
        }
    }

    fn json(&self, age_ns: u64, point: &str) -> Value {
        let ops: Vec<String> = self.msg.ops.iter().map(|o| format!("{:#x}", o.code)).collect();
        json!({
            "description": format!(
                "osd_op({} {} {} [{}] e{})",
                self.reqid, self.msg.pg, self.oid, ops.join(","), self.msg.epoch
            ),
            "initiated_at": UTime::from_nanos(self.came_wall_ns).to_string(),
            "age": age_ns as f64 / 1e9,
            "duration": age_ns as f64 / 1e9,
            "type_data": {
                "flag_point": point,
                "client_info": {
                    "client": EntityId::to_string(&self.who),
                    "client_addr": self.addr.to_string(),
                    "tid": self.tid,
                },
            },
        })
    }
}

impl Pg {
    /// Every request that this PG has, and what it waits for.
    fn each_op(&self, add: &mut dyn FnMut(&ClientOp, &'static str)) {
        for f in &self.in_flight {
            f.replies.iter().for_each(|(op, _)| add(op, "waiting for sub ops"));
        }
        self.waiting.iter().for_each(|op| add(op, "waiting for peered"));
        self.unleased.iter().for_each(|op| add(op, "waiting for readable"));
        self.blocked.values().flatten().for_each(|op| add(op, "waiting for degraded object"));
        self.copying.values().for_each(|op| add(op, "waiting for the source of a copy"));
        self.fetching.values().for_each(|(op, _)| add(op, "reading"));
        self.coded.ops().for_each(|op| add(op, "waiting for shards"));
        self.room.ops().for_each(|op| add(op, "waiting for room"));
        self.tier.ops().for_each(|op| add(op, "waiting for the base tier"));
        self.scrub.waiting().for_each(|op| add(op, "waiting for scrub"));
        self.waiting_whole.iter().for_each(|op| add(op, "waiting for missing object"));
        for obc in self.obcs.values() {
            obc.waiting.iter().for_each(|op| add(op, "waiting for rw locks"));
        }
    }
}

impl Pg {
    /// Drops requests that wait for something and of which nothing was done: `gone` says which. What
    /// is executed, or being read for, goes on.
    ///
    /// Source: the peer's `PrimaryLogPG::can_discard_request`, asked when it is their turn.
    pub(crate) fn forget_parked(&mut self, gone: &dyn Fn(&ClientOp) -> bool) {
        let queues = [&mut self.waiting, &mut self.unleased, &mut self.waiting_whole];
        let blocked = self.blocked.values_mut();
        let busy = self.obcs.values_mut().map(|o| &mut o.waiting);
        for queue in queues.into_iter().chain(blocked).chain(busy).chain(self.scrub.waiting_mut()) {
            queue.retain(|op| !gone(op));
        }
        self.room.forget(gone);
    }
}

impl Osd {
    /// Every request that is read, and what it waits for. Not those that wait for a map.
    fn each_op(&self, add: &mut dyn FnMut(&ClientOp, &'static str)) {
        self.pgs.values().for_each(|pg| pg.each_op(add));
        self.c.homeless.values().flatten().for_each(|op| add(op, "waiting for pg"));
    }

    /// How many requests there are.
    pub(crate) fn ops_in_hand(&self) -> u64 {
        let mut n = 0;
        self.each_op(&mut |_, _| n += 1);
        n + self.c.waiting.requests().count() as u64
    }

    /// Requests that take longer than they may: how many, and the oldest's age in ms.
    pub(crate) fn slow_ops(&self, now: Now) -> (u32, u64) {
        let (mut n, mut oldest) = (0, 0);
        let mut add = |came_ns: u64| {
            let ms = now.mono_ns.saturating_sub(came_ns) / 1_000_000;
            if ms >= self.c.conf.complaint_ms {
                n += 1;
                oldest = ms.max(oldest);
            }
        };
        self.each_op(&mut |op, _| add(op.came_ns));
        self.c.waiting.requests().for_each(|w| add(w.came_ns));
        (n, oldest)
    }

    /// All of them that are at least that old, as `dump_ops_in_flight` shows them.
    pub(crate) fn ops_in_flight(&self, now: Now, older_than_ms: u64) -> Value {
        let age = |came_ns: u64| {
            let age = now.mono_ns.saturating_sub(came_ns);
            (age / 1_000_000 >= older_than_ms).then_some(age)
        };
        let mut ops = Vec::new();
        self.each_op(&mut |op, point| {
            ops.extend(age(op.came_ns).map(|age| Told::of(op).json(age, point)));
        });
        for w in self.c.waiting.requests() {
            ops.extend(age(w.came_ns).and_then(|age| self.waiting_json(w, now, age)));
        }
        if older_than_ms > 0 {
            json!({ "ops": ops, "num_blocked_ops": ops.len(),
                    "complaint_time": older_than_ms as f64 / 1000.0 })
        } else {
            json!({ "num_ops": ops.len(), "ops": ops })
        }
    }

    /// A request that waits for a map.
    fn waiting_json(&self, w: &Waiting, now: Now, age_ns: u64) -> Option<Value> {
        let (msg, session) =
            (MOsdOp::decode(&w.envelope).ok()?, self.c.sessions.by_conn.get(&w.conn)?);
        let oid = object_of(&msg);
        let told = Told {
            msg: &msg,
            reqid: ReqId { client: session.who, tid: w.envelope.tid, inc: msg.reqid.inc },
            oid: &oid,
            who: session.who,
            addr: session.addr,
            tid: w.envelope.tid,
            came_wall_ns: now.wall_ns.saturating_sub(age_ns),
        };
        Some(told.json(age_ns, "waiting for map"))
    }

    /// The slowest that were answered, as `dump_historic_ops` shows them.
    pub(crate) fn ops_behind(&self) -> Value {
        let all = &self.c.perf.slowest;
        let ops: Vec<Value> =
            all.iter().map(|p| Told::of(&p.what).json(p.took_ns, "done")).collect();
        json!({ "size": self.c.conf.history_size, "duration": 600, "num_ops": ops.len(), "ops": ops })
    }
}
