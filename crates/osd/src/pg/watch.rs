//! Watches and notifications.
//!
//! A watch is part of its object's record and so outlives the OSD; who is connected for it
//! is known here alone. A watch whose client is silent for its timeout is removed from the
//! record. A notification ends when all watchers that were there have answered or are gone,
//! or when its time is over.
//!
//! Source: the peer's `osd/Watch.cc`.

use std::collections::BTreeMap;

use bytes::Bytes;
use denc::{Features, Writer};
use env::{ConnId, Now};
use messages::{Message, OsdOp, WatchNotify, op};
use types::{EVersion, EntityAddr, EntityId, HObject};

use super::{Cx, Pg};
use crate::exec::{Asker, WatchEvent, shuts_out};
use crate::object::WatchRecord;
use crate::session::ClientOp;
use types::Errno;

/// Payloads of one client's open notifications in a PG, in bytes. Each is kept until all watchers
/// have answered, or for a time that its client chooses. One larger payload alone is taken.
const OWN_NOTIFY_BYTES_MAX: usize = 4 << 20;
/// And how many of them may be open.
const OWN_NOTIFIES_MAX: usize = 1024;

#[derive(Debug)]
struct Watch {
    who: EntityId,
    cookie: u64,
    addr: EntityAddr,
    /// Where its client is, as the socket said when it was asked for; nowhere after a new interval.
    from: EntityAddr,
    timeout_s: u32,
    conn: Option<ConnId>,
    deadline_ms: u64,
    /// The write that takes it out of the record: until that is everywhere it may come back,
    /// and notifications wait for it.
    ending: Option<EVersion>,
}

#[derive(Debug)]
struct Notify {
    oid: HObject,
    conn: ConnId,
    cookie: u64,
    gid: u64,
    deadline_ms: u64,
    payload: Bytes,
    pending: Vec<(EntityId, u64)>,
    replies: Vec<(u64, u64, Bytes)>,
}

impl Notify {
    fn send(&self, id: u64, watch: u64, to: ConnId, cx: &mut Cx<'_>) {
        let m = WatchNotify {
            pad: 1,
            opcode: 1,
            cookie: watch,
            ver: 0,
            notify_id: id,
            payload: self.payload.clone(),
            return_code: 0,
            notifier_gid: self.gid,
            replies: Bytes::new(),
        };
        cx.out.conn(to, m.envelope(Features::ALL));
    }
}

/// Who watches what over which connection.
#[derive(Debug, Default)]
pub struct Watches {
    by_object: BTreeMap<HObject, Vec<Watch>>,
    notifies: BTreeMap<u64, Notify>,
    /// Counts notifications.
    pub(crate) counter: u32,
}

impl Watches {
    pub(crate) fn clear(&mut self) {
        self.by_object.clear();
        self.notifies.clear();
    }

    /// A new interval, led by the same OSD: what was on its way to the record may be void, and
    /// is written again.
    pub(crate) fn on_interval(&mut self) {
        self.by_object.values_mut().flatten().for_each(|w| w.ending = None);
    }

    /// Takes over the watches of a PG that becomes part of this one.
    pub(crate) fn take_over(&mut self, other: Self) {
        self.by_object.extend(other.by_object);
        for (id, notify) in other.notifies {
            self.notifies.entry(id).or_insert(notify);
        }
        self.counter = self.counter.max(other.counter);
    }

    /// Takes over the watches of a record; their clients have their timeout to come back.
    pub(crate) fn populate(&mut self, oid: &HObject, records: &[WatchRecord], now: Now) {
        for r in records {
            let all = self.by_object.entry(oid.clone()).or_default();
            if !all.iter().any(|w| w.who == r.who && w.cookie == r.cookie) {
                all.push(Watch {
                    who: r.who,
                    cookie: r.cookie,
                    addr: r.addr,
                    from: EntityAddr::default(),
                    timeout_s: r.timeout_s,
                    conn: None,
                    deadline_ms: now.mono_ms() + u64::from(r.timeout_s) * 1000,
                    ending: None,
                });
            }
        }
    }

    /// Whether a client may have one more notification open, with a payload of so many bytes.
    fn has_room_for(&self, gid: u64, bytes: usize) -> bool {
        let own = self.notifies.values().filter(|n| n.gid == gid);
        let (count, held) = own.fold((0, 0), |(c, b), n| (c + 1, b + n.payload.len()));
        count == 0 || (count < OWN_NOTIFIES_MAX && held + bytes <= OWN_NOTIFY_BYTES_MAX)
    }

    /// Watches of this connection stay until their time is over.
    pub(crate) fn on_closed(&mut self, conn: ConnId) {
        for w in self.by_object.values_mut().flatten() {
            if w.conn == Some(conn) {
                w.conn = None;
            }
        }
    }

    fn matching(
        &self,
        is: impl Fn(&Watch) -> bool,
    ) -> Vec<(HObject, EntityId, u64, Option<ConnId>)> {
        let all = self.by_object.iter();
        let found = |(o, all)| {
            let all: &Vec<Watch> = all;
            let o: &HObject = o;
            let one = |w: &Watch| (o.clone(), w.who, w.cookie, w.conn);
            all.iter().filter(|w| is(w)).map(one).collect::<Vec<_>>()
        };
        all.flat_map(found).collect()
    }

    /// Object, client, cookie and whether the client is connected.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&HObject, EntityId, u64, bool)> {
        self.by_object
            .iter()
            .flat_map(|(o, all)| all.iter().map(move |w| (o, w.who, w.cookie, w.conn.is_some())))
    }
}

/// Tells a notifier that its notification has ended.
fn complete(cookie: u64, id: u64, gid: u64, return_code: i32, replies: Bytes) -> WatchNotify {
    WatchNotify {
        pad: 1,
        opcode: 2,
        cookie,
        ver: 0,
        notify_id: id,
        payload: Bytes::new(),
        return_code,
        notifier_gid: gid,
        replies,
    }
}

/// Whether it begins a watch, or takes one up again.
fn begins(o: &OsdOp) -> bool {
    o.code == op::WATCH && matches!(o.raw[16], 1 | 3 | 5)
}

impl Pg {
    /// Events of a vector that changed nothing.
    pub(crate) fn on_watch_events(
        &mut self,
        op: &ClientOp,
        events: Vec<WatchEvent>,
        cx: &mut Cx<'_>,
    ) {
        if !events.is_empty() {
            let oid = op.oid.detached();
            self.on_write_watch_events(&oid, (op.conn, op.by), events, cx);
        }
    }

    pub(crate) fn on_write_watch_events(
        &mut self,
        oid: &HObject,
        (conn, by): (ConnId, Asker),
        events: Vec<WatchEvent>,
        cx: &mut Cx<'_>,
    ) {
        let Asker { who, addr, from, .. } = by;
        let now = cx.now.mono_ms();
        for event in events {
            match event {
                WatchEvent::Watch { cookie, timeout_s } => {
                    let all = self.watches.by_object.entry(oid.clone()).or_default();
                    let deadline_ms = now + u64::from(timeout_s) * 1000;
                    let conn = Some(conn);
                    let ending = None;
                    let watch =
                        Watch { who, cookie, addr, from, timeout_s, conn, deadline_ms, ending };
                    match all.iter_mut().find(|w| w.who == who && w.cookie == cookie) {
                        Some(w) => *w = watch,
                        None => all.push(watch),
                    }
                    self.send_waiting(oid, who, cookie, cx);
                }
                WatchEvent::Unwatch(cookie) => self.forget_watch(oid, who, cookie, cx),
                WatchEvent::Ping(cookie) => {
                    let all = self.watches.by_object.get_mut(oid);
                    let found = all.and_then(|all| {
                        all.iter_mut().find(|w| w.who == who && w.cookie == cookie)
                    });
                    if let Some(w) = found {
                        w.deadline_ms = now + u64::from(w.timeout_s) * 1000;
                        w.from = from;
                        if w.conn.replace(conn) != Some(conn) {
                            self.send_waiting(oid, who, cookie, cx);
                        }
                    }
                }
                WatchEvent::Notify { cookie, timeout_s, payload, id } => {
                    self.start_notify(oid, conn, who, (cookie, timeout_s, payload, id), cx);
                }
                WatchEvent::Ack { notify_id, cookie, reply } => {
                    if let Some(n) = self.watches.notifies.get_mut(&notify_id)
                        && let Some(at) = n.pending.iter().position(|p| *p == (who, cookie))
                    {
                        n.pending.remove(at);
                        let reply = Bytes::copy_from_slice(&reply);
                        n.replies.push((who.num as u64, cookie, reply));
                    }
                    self.finish_notifies(cx);
                }
            }
        }
    }

    /// A watch is connected: what was said since its last connection and still waits for it
    /// is said to it now.
    fn send_waiting(&self, oid: &HObject, who: EntityId, cookie: u64, cx: &mut Cx<'_>) {
        let all = self.watches.by_object.get(oid).into_iter().flatten();
        let mut watch = all.filter(|w| w.who == who && w.cookie == cookie);
        let Some(conn) = watch.next().and_then(|w| w.conn) else { return };
        for (id, n) in self.watches.notifies.iter().filter(|(_, n)| n.oid == *oid) {
            if n.pending.contains(&(who, cookie)) {
                n.send(*id, cookie, conn, cx);
            }
        }
    }

    /// A request to watch is answered: its client counts the time from now on, however long the
    /// write has taken.
    ///
    /// Source: the peer connects a watch when its write has been committed (`do_osd_op_effects`).
    pub(crate) fn watch_answered(&mut self, op: &ClientOp, cx: &Cx<'_>) {
        for o in op.msg.ops.iter().filter(|o| begins(o)) {
            let all = self.watches.by_object.get_mut(&op.oid).into_iter().flatten();
            for w in all.filter(|w| w.who == op.by.who && w.cookie == o.u64(0)) {
                w.deadline_ms = cx.now.mono_ms() + u64::from(w.timeout_s) * 1000;
            }
        }
    }

    /// A request to watch that was done before has come again: the watch belongs to this
    /// connection now. `false` when it has ended since.
    pub(crate) fn watch_again(&mut self, op: &ClientOp, cx: &mut Cx<'_>) -> bool {
        for o in op.msg.ops.iter().filter(|o| begins(o)) {
            if self.load_obc(&op.oid, cx).is_err() {
                continue; // whoever gives signs of life will hear of it
            }
            let cookie = o.u64(0);
            let all = self.watches.by_object.get_mut(&op.oid).into_iter().flatten();
            let same = |w: &&mut Watch| w.who == op.by.who && w.cookie == cookie;
            let Some(w) = all.into_iter().find(same).filter(|w| w.ending.is_none()) else {
                return false;
            };
            w.deadline_ms = cx.now.mono_ms() + u64::from(w.timeout_s) * 1000;
            w.from = op.by.from;
            if w.conn.replace(op.conn) != Some(op.conn) {
                self.send_waiting(&op.oid.detached(), op.by.who, cookie, cx);
            }
        }
        true
    }

    fn start_notify(
        &mut self,
        oid: &HObject,
        conn: ConnId,
        who: EntityId,
        (cookie, timeout_s, payload, id): (u64, u32, Bytes, u64),
        cx: &mut Cx<'_>,
    ) {
        self.watches.counter = self.watches.counter.wrapping_add(1);
        let gid = who.num as u64;
        if !self.watches.has_room_for(gid, payload.len()) {
            let m = complete(cookie, id, gid, Errno::MFILE.0, Bytes::new());
            return cx.out.conn(conn, m.envelope(Features::ALL));
        }
        let mut notify = Notify {
            oid: oid.clone(),
            conn,
            cookie,
            gid,
            deadline_ms: cx.now.mono_ms() + u64::from(timeout_s) * 1000,
            // Not a part of the request's buffer, which would stay in memory as a whole.
            payload: Bytes::copy_from_slice(&payload),
            pending: Vec::new(),
            replies: Vec::new(),
        };
        let all = self.watches.by_object.get(oid).into_iter().flatten();
        for w in all.filter(|w| w.ending.is_none()) {
            notify.pending.push((w.who, w.cookie));
            if let Some(to) = w.conn {
                notify.send(id, w.cookie, to, cx);
            }
        }
        self.watches.notifies.insert(id, notify);
        self.finish_notifies(cx);
    }

    /// Tells the notifiers of everything that has ended.
    fn finish_notifies(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now.mono_ms();
        let done: Vec<u64> = self
            .watches
            .notifies
            .iter()
            .filter(|(_, n)| n.pending.is_empty() || now >= n.deadline_ms)
            .map(|(id, _)| *id)
            .collect();
        for id in done {
            let mut n = self.watches.notifies.remove(&id).expect("listed");
            let return_code = if n.pending.is_empty() { 0 } else { Errno::TIMEDOUT.0 };
            n.replies.sort();
            let mut w = Writer::new(Features::ALL);
            w.seq(&n.replies, |w, (gid, cookie, reply)| {
                w.u64(*gid);
                w.u64(*cookie);
                w.blob(reply);
            });
            w.seq(&n.pending, |w, (who, cookie)| {
                w.u64(who.num as u64);
                w.u64(*cookie);
            });
            let m = complete(n.cookie, id, n.gid, return_code, w.finish());
            cx.out.conn(n.conn, m.envelope(Features::ALL));
        }
    }

    /// The watch is gone from the record; notifications do not wait for it any more.
    fn forget_watch(&mut self, oid: &HObject, who: EntityId, cookie: u64, cx: &mut Cx<'_>) {
        if let Some(all) = self.watches.by_object.get_mut(oid) {
            all.retain(|w| !(w.who == who && w.cookie == cookie));
            if all.is_empty() {
                self.watches.by_object.remove(oid);
            }
        }
        // Whoever has left is not waited for, and not missed.
        for n in self.watches.notifies.values_mut().filter(|n| n.oid == *oid) {
            n.pending.retain(|p| *p != (who, cookie));
        }
        self.finish_notifies(cx);
    }

    /// Ends what has waited long enough, and the watches of clients that are fenced: first in
    /// the record, and when that is on all copies for everybody.
    pub(crate) fn tick_watches(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now.mono_ms();
        let all = self.committed_by_all;
        let gone: Vec<(HObject, EntityId, u64, Option<ConnId>)> =
            self.watches.matching(|w| w.ending.is_some_and(|v| v <= all));
        for (oid, who, cookie, conn) in gone {
            if let Some(conn) = conn {
                let m = WatchNotify { pad: 1, opcode: 3, cookie, ..WatchNotify::default() };
                cx.out.conn(conn, m.envelope(Features::ALL));
            }
            self.forget_watch(&oid, who, cookie, cx);
        }
        let late = self.watches.matching(|w| {
            w.ending.is_none() && (now >= w.deadline_ms || shuts_out(cx.map, [w.addr, w.from]))
        });
        for (oid, who, cookie, _) in late {
            if self.is_degraded(&oid) || !self.is_serving() {
                continue;
            }
            let cached = self.obcs.get(&oid).map(|o| o.state.clone());
            let state = cached.or_else(|| Self::read_state(cx.store, self.coll, &oid).ok());
            // Without a write of its own it ends with those that are under way.
            let mut version = self.log.head();
            if let Some(mut state) = state.filter(|s| s.exists) {
                let before = state.info.watchers.len();
                std::sync::Arc::make_mut(&mut state.info.watchers)
                    .retain(|w| !(w.who == who && w.cookie == cookie));
                if state.info.watchers.len() < before {
                    self.obcs.entry(oid.clone()).or_default().state = state.clone();
                    self.write_record(&oid, state, cx);
                    version = self.log.head();
                }
            }
            let all = self.watches.by_object.get_mut(&oid).into_iter().flatten();
            for w in all.filter(|w| w.who == who && w.cookie == cookie) {
                w.ending = Some(version);
            }
        }
        self.finish_notifies(cx);
    }
}
