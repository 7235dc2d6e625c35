//! Clients that watch objects and notify each other: what `librados` does around the
//! objecter, and what everybody was told, for the checks.
//!
//! A watch is taken anew (reconnected) when its connection ends or its PG begins a new
//! interval, by the client's map; a notification without an end is sent again then.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use denc::{Features, Reader, Writer};
use messages::{MOsdOpReply, OsdOp, WatchNotify, op, req_flag};
use osdc::Request;
use types::{HObject, OsdId, PgId, SnapId, UTime};

use crate::plant::Plant;
use crate::world::{Event, MS, SEC, World};

/// Objects that are watched.
const OBJECTS: usize = 2;
/// Clients that watch.
const WATCHERS: usize = 4;
/// A watch ends when its client is silent for so long, seconds.
const WATCH_SECS: u32 = 10;
/// A notification waits for so long, seconds.
const NOTIFY_SECS: u32 = 6;
/// Between signs of life.
const PING: u64 = 3 * SEC;

const NOTCONN: i32 = -107;
const TIMEDOUT: i32 = -110;

/// A watch in one of its lives: the client's number and the watch's.
type Watch = (u64, u64);

/// The interval of a PG, as a client sees it.
type Place = (PgId, maps::PgSets, u8, u8);

/// Where a watch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// There is none.
    None,
    /// Asked for.
    Asked,
    /// The OSD said yes.
    Up,
}

/// A notification on its way.
struct Notify {
    cookie: u64,
    tid: u64,
    payload: Bytes,
    place: Option<Place>,
    /// Watches that there were when it was sent.
    there: BTreeSet<Watch>,
}

/// What an answer is about.
#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    Create,
    Watch(Option<Box<Place>>),
    Ping,
    Unwatch,
    Notify(u64),
    Ack,
}

/// A client that watches one object, and notifies those who do.
struct Watcher {
    client: usize,
    object: usize,
    cookie: u64,
    state: State,
    place: Option<Place>,
    /// Once it is up: it is to be taken anew.
    again: bool,
    pinged: u64,
    notify: Option<Notify>,
    asked: BTreeMap<u64, What>,
    made: bool,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Watching {
    all: Vec<Watcher>,
    counter: u64,
    /// Watches that are known to have ended to who had them.
    ended: BTreeSet<Watch>,
    /// Watches that a notification passed by: who had them must come to know.
    passed: Vec<(Watch, String)>,
    /// What was acknowledged, by watch and notification.
    acked: BTreeMap<(Watch, u64), Bytes>,
    /// Notifications that came to an end, and those of them that everybody acknowledged.
    pub(crate) done: (u64, u64),
    /// All acknowledge at once, and nobody may be missed.
    last: bool,
}

fn watch_op(cookie: u64, kind: u8) -> OsdOp {
    let mut o = OsdOp::new(op::WATCH, Bytes::new());
    o.put_u64(0, cookie);
    o.raw[16] = kind;
    o.put_u32(21, WATCH_SECS);
    o
}

fn notify_op(cookie: u64, payload: &[u8]) -> OsdOp {
    let mut w = Writer::new(Features::ALL);
    w.u32(1);
    w.u32(NOTIFY_SECS);
    w.blob(payload);
    let mut o = OsdOp::new(op::NOTIFY, w.finish());
    o.put_u64(0, cookie);
    o
}

fn ack_op(notify_id: u64, cookie: u64, reply: &[u8]) -> OsdOp {
    let mut w = Writer::new(Features::ALL);
    w.u64(notify_id);
    w.u64(cookie);
    w.blob(reply);
    OsdOp::new(op::NOTIFY_ACK, w.finish())
}

/// Who acknowledged with what, and who did not.
type Told = (Vec<(Watch, Bytes)>, Vec<Watch>);

fn told(raw: &Bytes) -> Result<Told, denc::DecodeError> {
    let mut r = Reader::shared(raw);
    let acked = r.seq(|r| Ok(((r.u64()?, r.u64()?), r.blob()?)))?;
    let missed = r.seq(|r| Ok((r.u64()?, r.u64()?)))?;
    Ok((acked, missed))
}

impl World {
    pub(crate) fn add_watchers(&mut self) {
        for k in 0..WATCHERS {
            let client = self.add_client(0);
            self.watching.all.push(Watcher {
                client,
                object: k % OBJECTS,
                cookie: 0,
                state: State::None,
                place: None,
                again: false,
                pinged: 0,
                notify: None,
                asked: BTreeMap::new(),
                made: false,
            });
            self.after(SEC, Event::Watch(k));
        }
    }

    fn watch_name(&self, k: usize) -> HObject {
        let name = Bytes::from(format!("w{}", self.watching.all[k].object));
        let hash = HObject::hash_of(b"", &name);
        HObject { pool: self.pool, hash, name, snap: SnapId::HEAD, ..HObject::min() }
    }

    /// The interval of a watcher's PG by its own map.
    fn watch_place(&self, k: usize) -> Option<Place> {
        let map = self.clients[self.watching.all[k].client].objecter.map()?;
        // With an overlay its cache keeps the watches.
        let at = match map.pool(self.pool)?.write_tier {
            ..0 => self.pool,
            tier => types::PoolId(tier),
        };
        let pool = map.pool(at)?;
        let pg = pool.raw_pg_to_pg(at, self.watch_name(k).hash);
        Some((pg, map.pg_to_up_acting(pg), pool.size, pool.min_size))
    }

    fn the_watch(&self, k: usize) -> Watch {
        let w = &self.watching.all[k];
        (self.clients[w.client].gid, w.cookie)
    }

    fn watch_ask(&mut self, k: usize, o: OsdOp, writes: bool, what: What) -> u64 {
        let i = self.watching.all[k].client;
        let wall = self.clock(crate::world::Node::Client(i)).wall_ns;
        let request = Request {
            object: self.watch_name(k),
            pg: None,
            ops: vec![o],
            flags: if writes { req_flag::WRITE } else { req_flag::READ },
            mtime: UTime::from_nanos(wall),
            snaps: (SnapId(0), Vec::new()),
        };
        let tid = self.client_do(i, |o, out| o.submit(request, out));
        self.tell(|| format!("watcher {k} (client {i}) asks {what:?} tid {tid}"));
        self.watching.all[k].asked.insert(tid, what);
        tid
    }

    /// The watch is gone, and its client knows.
    fn watch_ended(&mut self, k: usize) {
        let watch = self.the_watch(k);
        self.tell(|| format!("watcher {k} knows that its watch has ended"));
        self.watching.ended.insert(watch);
        let w = &mut self.watching.all[k];
        (w.state, w.again) = (State::None, false);
        w.asked.retain(|_, what| matches!(what, What::Create | What::Notify(_)));
    }

    /// Time for a watcher.
    pub(crate) fn watch_work(&mut self, k: usize) {
        let ns = self.chance.within(200 * MS, 1_500 * MS);
        self.after(ns, Event::Watch(k));
        let w = &self.watching.all[k];
        if !w.made {
            if w.asked.is_empty() {
                let body = Bytes::from_static(b"watch me");
                let o = OsdOp::extent(op::WRITEFULL, 0, body.len() as u64, body);
                self.watch_ask(k, o, true, What::Create);
            }
            return;
        }
        match w.state {
            State::None => self.begin_watch(k),
            State::Up if self.now >= w.pinged + PING => {
                let cookie = w.cookie;
                self.watching.all[k].pinged = self.now;
                if !self.watching.all[k].asked.values().any(|what| *what == What::Ping) {
                    self.watch_ask(k, watch_op(cookie, 7), true, What::Ping);
                }
            }
            _ => {}
        }
        if self.working && self.watching.all[k].notify.is_none() && self.chance.one_in(3) {
            self.begin_notify(k);
        }
        if self.trouble && self.chance.one_in(60) && self.watching.all[k].state == State::Up {
            let cookie = self.watching.all[k].cookie;
            self.watch_ended(k);
            self.watch_ask(k, watch_op(cookie, 0), true, What::Unwatch);
        }
    }

    fn begin_watch(&mut self, k: usize) {
        self.watching.counter += 1;
        let cookie = self.watching.counter;
        let place = self.watch_place(k);
        let w = &mut self.watching.all[k];
        (w.cookie, w.state, w.again) = (cookie, State::Asked, false);
        self.watch_ask(k, watch_op(cookie, 3), true, What::Watch(place.map(Box::new)));
    }

    fn begin_notify(&mut self, k: usize) {
        self.watching.counter += 1;
        let cookie = self.watching.counter;
        let payload = match &self.watching.all[k].notify {
            Some(n) => n.payload.clone(),
            None => format!("{k} says {cookie}").into(),
        };
        let object = self.watching.all[k].object;
        let same = (0..WATCHERS).filter(|o| self.watching.all[*o].object == object);
        let up = same.filter(|o| self.watching.all[*o].state == State::Up);
        let there = up.map(|o| self.the_watch(o)).collect();
        let place = self.watch_place(k);
        let tid = self.watch_ask(k, notify_op(cookie, &payload), false, What::Notify(cookie));
        self.watching.all[k].notify = Some(Notify { cookie, tid, payload, place, there });
    }

    /// A client was given up: so are its watches.
    pub(crate) fn watcher_dies(&mut self, i: usize) {
        for k in 0..self.watching.all.len() {
            if self.watching.all[k].client == i {
                self.watch_ended(k);
                let w = &mut self.watching.all[k];
                w.notify = None;
                w.asked.clear();
            }
        }
    }

    /// A connection to an OSD ended, or a newer map came, which may have `jumped` over others:
    /// what must be taken anew is.
    pub(crate) fn watch_look(&mut self, i: usize, closed: Option<OsdId>, jumped: bool) {
        for k in 0..self.watching.all.len() {
            if self.watching.all[k].client != i {
                continue;
            }
            let now = self.watch_place(k);
            let moved = |place: &Option<Place>| {
                jumped
                    || *place != now
                    || closed.is_some() && place.as_ref().and_then(|p| p.1.acting_primary) == closed
            };
            let w = &self.watching.all[k];
            if w.state == State::Up && moved(&w.place) {
                let cookie = w.cookie;
                let w = &mut self.watching.all[k];
                w.place.clone_from(&now);
                if w.asked.values().any(|what| matches!(what, What::Watch(_))) {
                    w.again = true;
                } else {
                    let what = What::Watch(now.clone().map(Box::new));
                    self.watch_ask(k, watch_op(cookie, 5), true, what);
                }
            }
            let w = &mut self.watching.all[k];
            if let Some(n) = w.notify.as_ref().filter(|n| moved(&n.place)) {
                let tid = n.tid;
                w.asked.remove(&tid);
                self.clients[i].objecter.cancel(tid);
                self.begin_notify(k);
            }
        }
    }

    /// An answer to a watcher's client; whether it is one to a watcher.
    pub(crate) fn watch_done(&mut self, i: usize, tid: u64, reply: &MOsdOpReply) -> bool {
        let mut all = self.watching.all.iter().enumerate();
        let found = all.find(|(_, w)| w.client == i && w.asked.contains_key(&tid));
        let Some(k) = found.map(|(k, _)| k) else {
            return self.watching.all.iter().any(|w| w.client == i);
        };
        let what = self.watching.all[k].asked.remove(&tid).expect("just seen");
        let r = reply.result;
        self.tell(|| format!("watcher {k} {what:?} -> {r}"));
        let now = self.watch_place(k);
        let no_room = r == types::Errno::NOSPC.0 && self.has_small_disks();
        if r == types::Errno::BLOCKLISTED.0 {
            // It is fenced: another process takes its place.
            self.replace_client(i);
            return true;
        }
        match what {
            What::Create if r == 0 => self.watching.all[k].made = true,
            What::Watch(at) if r == 0 => {
                let w = &mut self.watching.all[k];
                (w.state, w.pinged) = (State::Up, self.now);
                w.place = if w.again { None } else { at.map(|p| *p) };
                w.again = false;
                if w.place != now {
                    self.watch_look(i, None, false);
                }
            }
            What::Watch(_) | What::Ping if r == NOTCONN => self.watch_ended(k),
            // There was no room, and for long; it is asked again, or times out.
            What::Watch(_) if no_room => self.watch_ended(k),
            What::Create | What::Unwatch if no_room => {}
            What::Ping | What::Unwatch | What::Ack if r == 0 => {}
            What::Notify(_) if r == 0 => {}
            what => self.complain(format!("watcher {k} {what:?} is answered by {r}")),
        }
        true
    }

    /// A notification, or the end of one.
    pub(crate) fn watch_message(&mut self, i: usize, m: &WatchNotify) {
        for k in 0..self.watching.all.len() {
            let w = &self.watching.all[k];
            if w.client != i {
                continue;
            }
            match m.opcode {
                1 if w.cookie == m.cookie && w.state != State::None => {
                    // Some are slow, or never answer.
                    if self.trouble && self.chance.one_in(12) {
                        self.tell(|| format!("watcher {k} ignores {}", m.notify_id));
                        continue;
                    }
                    let watch = self.the_watch(k);
                    let own = Bytes::copy_from_slice(&m.payload);
                    self.watching.acked.insert((watch, m.notify_id), own);
                    let o = ack_op(m.notify_id, m.cookie, &m.payload);
                    self.watch_ask(k, o, false, What::Ack);
                }
                2 if w.notify.as_ref().is_some_and(|n| n.cookie == m.cookie) => {
                    self.notify_ends(k, m);
                }
                3 if w.cookie == m.cookie && w.state != State::None => self.watch_ended(k),
                _ => {}
            }
        }
    }

    fn notify_ends(&mut self, k: usize, m: &WatchNotify) {
        let notify = self.watching.all[k].notify.take().expect("the caller looked");
        let text = || format!("notification {:x} of watcher {k}", m.notify_id);
        let (mut acked, missed) = match told(&m.replies) {
            Ok(told) => told,
            Err(e) => return self.complain(format!("{}: {e}", text())),
        };
        if self.plant == Some(Plant::ForgottenWatchers) && self.chance.one_in(8) {
            acked.pop();
        }
        self.tell(|| format!("{} ends: {acked:?}, missed {missed:?}", text()));
        self.watching.done.0 += 1;
        self.watching.done.1 += u64::from(missed.is_empty());
        if m.return_code != if missed.is_empty() { 0 } else { TIMEDOUT } {
            self.complain(format!("{} ends with {}", text(), m.return_code));
        }
        for (watch, reply) in &acked {
            let said = self.watching.acked.get(&(*watch, m.notify_id));
            if said.is_none_or(|said| said != reply || *said != notify.payload) {
                self.complain(format!("{}: {watch:?} never said {reply:?}", text()));
            }
        }
        for watch in &notify.there {
            let known = acked.iter().any(|(w, _)| w == watch);
            if !known && !missed.contains(watch) {
                self.watching.passed.push((*watch, text()));
            }
            if self.watching.last && !known {
                self.complain(format!("{} does not reach {watch:?}, which lives", text()));
            }
        }
    }

    /// Nothing stands in the way any more: every watch is up or taken again, everybody is
    /// reached, and who had been passed by knows.
    pub(crate) fn check_watches(&mut self) {
        // A sign of life may have been answered so late that the watch's time is over soon after
        // trouble is: that comes first.
        self.run_until(2 * PING / SEC, |_| false);
        let quiet = |w: &Watcher| w.state == State::Up && w.asked.is_empty();
        let all_up = |w: &mut Self| w.watching.all.iter().all(quiet);
        if !self.run_until(60, |w| w.watching.all.iter().all(|w| w.notify.is_none()) && all_up(w)) {
            return self.complain("watches do not come up, or notifications do not end".into());
        }
        self.watching.last = true;
        for k in 0..self.watching.all.len() {
            self.begin_notify(k);
        }
        if !self.run_until(30, |w| w.watching.all.iter().all(|w| w.notify.is_none())) {
            self.complain("the last notifications do not end".into());
        }
        // Who still believes in a watch that is none finds out by its signs of life.
        self.run_until(2 * PING / SEC, |_| false);
        let ended = &self.watching.ended;
        let found = self.watching.passed.iter().find(|(watch, _)| !ended.contains(watch));
        if let Some((watch, text)) = found {
            let what = format!("{text} passed by {watch:?}, which never heard that it has ended");
            self.complain(what);
        }
    }

    /// Some watcher's client is fenced.
    pub(crate) fn fence_some(&mut self) {
        if self.watching.all.is_empty() {
            return;
        }
        let k = self.chance.index(self.watching.all.len());
        let gid = self.clients[self.watching.all[k].client].gid;
        let addr = crate::osds::client_addr(gid).to_string();
        let addr = addr.rsplit("v2:").next().unwrap_or_default().to_owned();
        self.command(serde_json::json!({"prefix": "osd blocklist", "blocklistop": "add",
            "addr": addr}));
    }
}
