//! The monitor client: one session with any monitor, kept alive by finding another.
//!
//! ```text
//!            connect            opened
//!   Idle ──────────▶ Hunting ─────────▶ Open
//!                    ▲  │ timeout, closed │ closed, silent
//!                    └──┴─────────────────┘
//! ```
//! - *Hunting*: a connection is being made; nothing may be sent. After [`HUNT_MS`] the
//!   next monitor is tried; after a failure at once, but once all have failed there is a
//!   pause that doubles, from [`PAUSE_MIN_MS`] to [`PAUSE_MAX_MS`].
//! - *Open*: the handshake is done. Subscriptions and unanswered requests were sent again
//!   on entering, so that a request is answered once at least. A monitor that says nothing
//!   for [`PROBE_MS`] is asked something, and left after [`SILENT_MS`].
//!
//! Invariants: no I/O and no clock; requests keep their tid for life; a subscription
//! never goes back to a version that was delivered.
//!
//! Source: the peer's `mon/MonClient.cc`, `mon/MonSub.cc`.

mod renewal;

use std::collections::BTreeMap;

use auth::AuthError;
use bytes::Bytes;
use denc::{Denc, Features};
use env::{Now, Random};
use messages::{
    Auth, AuthReply, Envelope, Message, MonCommand, MonCommandAck, MonGetMap, MonGetVersion,
    MonGetVersionReply, MonMapMsg, MonSubscribe, OsdMapMsg, Paxos, Subscription,
};
use types::{EntityAddr, Epoch, Uuid};

pub use renewal::{Renewal, ServiceKeys, TicketRenewal};

/// How long one monitor may take to open a session.
pub const HUNT_MS: u64 = 3_000;
/// The first pause after no monitor took us.
pub const PAUSE_MIN_MS: u64 = 50;
/// The longest pause after no monitor took us.
pub const PAUSE_MAX_MS: u64 = 500;
/// Milliseconds between two looks at the tickets.
const RENEW_MS: u64 = 1_000;
/// How long an answer about tickets may take before it is asked for again.
const RENEW_ANSWER_MS: u64 = 10_000;
/// After this silence the monitor is asked something that it always answers.
pub const PROBE_MS: u64 = 5_000;
/// After this silence the monitor is given up.
pub const SILENT_MS: u64 = 15_000;
/// Requests that may wait for a monitor.
pub const REQUESTS_MAX: usize = 10_000;

/// What the client wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum Out {
    /// Connect to this monitor; answer by [`MonClient::on_opened`] or
    /// [`MonClient::on_closed`].
    Connect(EntityAddr),
    /// Close the connection, also one that is being made.
    Close,
    /// Send over the open connection.
    Send(Envelope),
    /// Something for the owner.
    Event(Event),
}

/// What the owner is told.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A session is open.
    Opened,
    /// A command's answer.
    Command {
        /// What [`MonClient::command`] gave.
        tid: u64,
        /// The answer.
        ack: MonCommandAck,
    },
    /// The newest version of a map.
    Version {
        /// What [`MonClient::get_version`] gave.
        tid: u64,
        /// Newest and oldest.
        reply: MonGetVersionReply,
    },
    /// Any other answer to [`MonClient::request`].
    Answer {
        /// What [`MonClient::request`] gave.
        tid: u64,
        /// The message.
        envelope: Envelope,
    },
    /// A message nobody asked for by tid: maps, settings, log entries. OSD maps among
    /// them; tell [`MonClient::got`] which version is held.
    Message(Envelope),
    /// The monitors refused the last renewal of tickets; a new session is being opened.
    RenewalFailed(AuthError),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Idle,
    Hunting { until_ms: u64, dialling: bool },
    Open,
}

/// A request that waits for its answer.
#[derive(Clone, Debug)]
enum Request {
    Ready(Envelope),
    /// Commands name the cluster: they wait until it is known.
    Command(MonCommand),
}

#[derive(Clone, Debug)]
struct Wanted {
    start: u64,
    onetime: bool,
}

/// See the crate's page.
pub struct MonClient {
    fsid: Uuid,
    hostname: String,
    mons: Vec<EntityAddr>,
    at: usize,
    /// Monitors that failed since the last session.
    failed: usize,
    pause_ms: u64,
    state: State,
    subs: BTreeMap<String, Wanted>,
    requests: BTreeMap<u64, Request>,
    next_tid: u64,
    monmap_epoch: Epoch,
    /// Of the last monitor map; none before the first.
    auth_epoch: Option<u32>,
    renew_at_ms: u64,
    renewing_since_ms: Option<u64>,
    heard_ms: u64,
    /// The tid of the question that only wants a sign of life.
    probe: Option<u64>,
}

impl MonClient {
    /// A client of the monitors at `mons`, tried in a random order. Where `fsid` is not
    /// known yet, the first monitor map tells it, and commands wait for that.
    #[must_use]
    pub fn new(
        mut mons: Vec<EntityAddr>,
        fsid: Uuid,
        hostname: String,
        random: &mut dyn Random,
    ) -> Self {
        for i in (1..mons.len()).rev() {
            mons.swap(i, (random.u64() % (i as u64 + 1)) as usize);
        }
        Self {
            fsid,
            hostname,
            mons,
            at: 0,
            failed: 0,
            pause_ms: 0,
            state: State::Idle,
            subs: BTreeMap::new(),
            requests: BTreeMap::new(),
            next_tid: 0,
            monmap_epoch: Epoch(0),
            auth_epoch: None,
            renew_at_ms: 0,
            renewing_since_ms: None,
            heard_ms: 0,
            probe: None,
        }
    }

    /// Whether a session is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// The cluster, as the first map names it: commands carry it.
    pub fn set_fsid(&mut self, fsid: Uuid) {
        self.fsid = fsid;
    }

    /// A monitor map came: the cluster, where its monitors are, whether tickets still count.
    fn on_monmap(&mut self, raw: &Bytes, renewal: &mut dyn Renewal, out: &mut Vec<Out>) {
        let Ok(map) = maps::MonMap::from_shared(raw) else { return };
        if !self.knows_cluster() {
            self.fsid = map.fsid;
            for (tid, request) in &mut self.requests {
                if let Request::Command(command) = request {
                    command.fsid = map.fsid;
                    let envelope = command.envelope(Features::ALL).with_tid(*tid);
                    out.push(Out::Send(envelope.clone()));
                    *request = Request::Ready(envelope);
                }
            }
        }
        let by_rank = map.ranks.iter().filter_map(|name| map.mons.get(name)?.addrs.msgr2());
        self.set_mons(by_rank.collect(), map.epoch);
        let auth_epoch = map.auth.map_or(0, |auth| auth.epoch);
        if self.auth_epoch.is_some_and(|last| last < auth_epoch) {
            renewal.forget();
        }
        self.auth_epoch = Some(auth_epoch);
    }

    fn knows_cluster(&self) -> bool {
        self.fsid != Uuid::default()
    }

    /// Replaces the monitors' addresses, as a new monitor map names them.
    pub fn set_mons(&mut self, mons: Vec<EntityAddr>, epoch: Epoch) {
        if !mons.is_empty() && epoch >= self.monmap_epoch {
            let current = self.mons.get(self.at % self.mons.len().max(1)).copied();
            self.at = mons.iter().position(|m| Some(*m) == current).unwrap_or(0);
            self.mons = mons;
            self.monmap_epoch = epoch;
        }
    }

    /// Begins to look for a monitor.
    pub fn start(&mut self, now: Now, out: &mut Vec<Out>) {
        if self.state == State::Idle {
            self.hunt(now, out);
        }
    }

    fn hunt(&mut self, now: Now, out: &mut Vec<Out>) {
        self.state = State::Hunting { until_ms: now.mono_ms() + HUNT_MS, dialling: true };
        self.renewing_since_ms = None;
        if let Some(addr) = self.mons.get(self.at % self.mons.len().max(1)) {
            out.push(Out::Connect(*addr));
        }
    }

    /// The session's handshake is done.
    ///
    /// After: everything wanted and everything unanswered was sent.
    pub fn on_opened(&mut self, now: Now, out: &mut Vec<Out>) {
        self.state = State::Open;
        (self.failed, self.pause_ms) = (0, 0);
        self.heard_ms = now.mono_ms();
        self.probe = None;
        self.renew_at_ms = now.mono_ms();
        out.push(Out::Send(MonGetMap {}.envelope(Features::ALL)));
        let all: Vec<String> = self.subs.keys().cloned().collect();
        self.send_subs(&all, out);
        for request in self.requests.values() {
            if let Request::Ready(envelope) = request {
                out.push(Out::Send(envelope.clone()));
            }
        }
        out.push(Out::Event(Event::Opened));
    }

    /// The connection ended or could not be made.
    pub fn on_closed(&mut self, now: Now, out: &mut Vec<Out>) {
        match self.state {
            State::Idle => {}
            State::Open => {
                self.at += 1;
                self.hunt(now, out);
            }
            State::Hunting { .. } => {
                self.at += 1;
                self.failed += 1;
                if !self.failed.is_multiple_of(self.mons.len().max(1)) {
                    return self.hunt(now, out);
                }
                // The next attempt waits for the tick: refused connections fail at once.
                self.pause_ms = (self.pause_ms * 2).clamp(PAUSE_MIN_MS, PAUSE_MAX_MS);
                let until_ms = now.mono_ms() + self.pause_ms;
                self.state = State::Hunting { until_ms, dialling: false };
            }
        }
    }

    /// To be called a few times a second.
    pub fn on_tick(&mut self, now: Now, renewal: &mut dyn Renewal, out: &mut Vec<Out>) {
        match self.state {
            State::Hunting { until_ms, dialling: true } if now.mono_ms() >= until_ms => {
                self.leave(now, out);
            }
            State::Hunting { until_ms, dialling: false } if now.mono_ms() >= until_ms => {
                self.hunt(now, out);
            }
            State::Open if now.mono_ms() >= self.heard_ms + SILENT_MS => self.leave(now, out),
            State::Open => {
                self.probe(now, out);
                self.renew(now, renewal, out);
            }
            _ => {}
        }
    }

    /// Gives this monitor up for another.
    fn leave(&mut self, now: Now, out: &mut Vec<Out>) {
        out.push(Out::Close);
        self.at += 1;
        self.hunt(now, out);
    }

    fn probe(&mut self, now: Now, out: &mut Vec<Out>) {
        if self.probe.is_none() && now.mono_ms() >= self.heard_ms + PROBE_MS {
            self.next_tid += 1;
            self.probe = Some(self.next_tid);
            let message = MonGetVersion { handle: self.next_tid, what: "monmap".to_owned() };
            out.push(Out::Send(message.envelope(Features::ALL).with_tid(self.next_tid)));
        }
    }

    fn renew(&mut self, now: Now, renewal: &mut dyn Renewal, out: &mut Vec<Out>) {
        if now.mono_ms() < self.renew_at_ms {
            return;
        }
        self.renew_at_ms = now.mono_ms() + RENEW_MS;
        let waiting = self.renewing_since_ms.is_some_and(|t| now.mono_ms() < t + RENEW_ANSWER_MS);
        if !waiting && let Some(payload) = renewal.request(now) {
            self.renewing_since_ms = Some(now.mono_ms());
            let request = Auth {
                paxos: Paxos::default(),
                protocol: 2,
                payload,
                monmap_epoch: self.monmap_epoch,
            };
            out.push(Out::Send(request.envelope(Features::ALL)));
        }
    }

    /// Subscribes to a map from version `start` on; 0 is "the latest, whatever it is".
    pub fn subscribe(&mut self, what: &str, start: u64, onetime: bool, out: &mut Vec<Out>) {
        self.subs.insert(what.to_owned(), Wanted { start, onetime });
        self.send_subs(&[what.to_owned()], out);
    }

    /// Version `version` of a map is held: later sessions ask from the next one on. A
    /// subscription for one answer is done with it.
    pub fn got(&mut self, what: &str, version: u64) {
        if let Some(wanted) = self.subs.get_mut(what)
            && version >= wanted.start
        {
            if wanted.onetime {
                self.subs.remove(what);
            } else {
                wanted.start = version + 1;
            }
        }
    }

    fn send_subs(&self, names: &[String], out: &mut Vec<Out>) {
        if self.state != State::Open || names.is_empty() {
            return;
        }
        let what = names.iter().filter_map(|name| {
            let wanted = self.subs.get(name)?;
            let flags = if wanted.onetime { Subscription::ONETIME } else { 0 };
            Some((name.clone(), Subscription { start: wanted.start, flags }))
        });
        let message = MonSubscribe { what: what.collect(), hostname: self.hostname.clone() };
        out.push(Out::Send(message.envelope(Features::ALL)));
    }

    fn next_request(&mut self) -> Option<u64> {
        if self.requests.len() >= REQUESTS_MAX {
            return None;
        }
        self.next_tid += 1;
        Some(self.next_tid)
    }

    /// Sends a request that is answered under its tid, now or in a later session; `None`
    /// when too many wait.
    pub fn request(&mut self, envelope: Envelope, out: &mut Vec<Out>) -> Option<u64> {
        let tid = self.next_request()?;
        let envelope = envelope.with_tid(tid);
        if self.state == State::Open {
            out.push(Out::Send(envelope.clone()));
        }
        self.requests.insert(tid, Request::Ready(envelope));
        Some(tid)
    }

    /// Sends a command, a JSON object. As [`MonClient::request`].
    pub fn command(&mut self, json: &str, input: Bytes, out: &mut Vec<Out>) -> Option<u64> {
        let command = MonCommand {
            paxos: Paxos::default(),
            fsid: self.fsid,
            cmd: vec![Bytes::copy_from_slice(json.as_bytes())],
            input,
        };
        if self.knows_cluster() {
            return self.request(command.envelope(Features::ALL), out);
        }
        let tid = self.next_request()?;
        self.requests.insert(tid, Request::Command(command));
        Some(tid)
    }

    /// Asks for the newest version of a map. As [`MonClient::request`].
    pub fn get_version(&mut self, what: &str, out: &mut Vec<Out>) -> Option<u64> {
        let message = MonGetVersion { handle: self.next_tid + 1, what: what.to_owned() };
        self.request(message.envelope(Features::ALL), out)
    }

    /// Nobody waits for the answer any more.
    pub fn forget(&mut self, tid: u64) {
        self.requests.remove(&tid);
    }

    /// Sends a message that is lost when no session is open.
    pub fn send(&self, envelope: Envelope, out: &mut Vec<Out>) {
        if self.state == State::Open {
            out.push(Out::Send(envelope));
        }
    }

    /// A message from the monitor.
    pub fn on_message(
        &mut self,
        now: Now,
        envelope: Envelope,
        renewal: &mut dyn Renewal,
        out: &mut Vec<Out>,
    ) {
        if self.state != State::Open {
            return; // from a connection that was given up
        }
        self.heard_ms = now.mono_ms();
        match envelope.kind {
            AuthReply::KIND => {
                self.renewing_since_ms = None;
                let answered = match AuthReply::decode(&envelope) {
                    Ok(reply) => renewal.answer(now, reply.result, &reply.payload),
                    Err(err) => Err(err.into()),
                };
                match answered {
                    // Another ticket may be due: ask at the next tick.
                    Ok(()) => self.renew_at_ms = now.mono_ms(),
                    // A new handshake gets new ones, or the reason why not.
                    Err(err) => {
                        out.push(Out::Event(Event::RenewalFailed(err)));
                        self.leave(now, out);
                    }
                }
            }
            MonGetVersionReply::KIND => {
                // The handle names the request: the monitor's tid is its own.
                if let Ok(reply) = MonGetVersionReply::decode(&envelope) {
                    if self.probe == Some(reply.handle) {
                        self.probe = None;
                    } else if self.requests.remove(&reply.handle).is_some() {
                        out.push(Out::Event(Event::Version { tid: reply.handle, reply }));
                    }
                }
            }
            MonCommandAck::KIND => {
                if let Ok(ack) = MonCommandAck::decode(&envelope)
                    && self.requests.remove(&envelope.tid).is_some()
                {
                    out.push(Out::Event(Event::Command { tid: envelope.tid, ack }));
                }
            }
            MonMapMsg::KIND => {
                if let Ok(message) = MonMapMsg::decode(&envelope) {
                    self.on_monmap(&message.monmap, renewal, out);
                }
                out.push(Out::Event(Event::Message(envelope)));
            }
            OsdMapMsg::KIND => out.push(Out::Event(Event::Message(envelope))),
            _ => {
                let tid = envelope.tid;
                out.push(Out::Event(if self.requests.remove(&tid).is_some() {
                    Event::Answer { tid, envelope }
                } else {
                    Event::Message(envelope)
                }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::Seeded;

    struct NoRenewal;
    impl Renewal for NoRenewal {
        fn request(&mut self, _: Now) -> Option<Bytes> {
            None
        }
        fn answer(&mut self, _: Now, _: i32, _: &[u8]) -> Result<(), AuthError> {
            Ok(())
        }
    }

    fn at(ms: u64) -> Now {
        Now { mono_ns: ms * 1_000_000, wall_ns: 0 }
    }

    fn client() -> MonClient {
        let mons = ["1.1.1.1:1", "1.1.1.1:2"].map(|s| s.parse().unwrap()).to_vec();
        MonClient::new(mons, Uuid([7; 16]), "h".into(), &mut Seeded(1))
    }

    fn sent(out: &[Out]) -> Vec<u16> {
        out.iter().filter_map(|o| if let Out::Send(e) = o { Some(e.kind) } else { None }).collect()
    }

    /// What was wanted and asked before a session, or in a lost one, is sent in the next.
    #[test]
    fn sends_again_after_reconnect() {
        let (mut c, mut out) = (client(), vec![]);
        c.start(at(0), &mut out);
        let Out::Connect(first) = out[0] else { panic!("{out:?}") };
        c.subscribe("osdmap", 0, false, &mut out);
        let tid = c.command("{}", Bytes::new(), &mut out).unwrap();
        assert!(sent(&out).is_empty());
        out.clear();
        c.on_opened(at(1), &mut out);
        assert_eq!(sent(&out), [MonGetMap::KIND, MonSubscribe::KIND, MonCommand::KIND]);
        c.got("osdmap", 7);
        out.clear();
        c.on_closed(at(2), &mut out);
        assert!(matches!(out[0], Out::Connect(second) if second != first));
        out.clear();
        c.on_opened(at(3), &mut out);
        let Out::Send(subs) = &out[1] else { panic!("{out:?}") };
        assert_eq!(MonSubscribe::decode(subs).unwrap().what["osdmap"].start, 8);
        let ack = MonCommandAck::default().envelope(Features::ALL).with_tid(tid);
        out.clear();
        c.on_message(at(4), ack.clone(), &mut NoRenewal, &mut out);
        assert!(matches!(out[0], Out::Event(Event::Command { tid: t, .. }) if t == tid));
        out.clear();
        c.on_message(at(5), ack, &mut NoRenewal, &mut out);
        assert!(out.is_empty(), "a second answer is nobody's");
    }

    /// A monitor that does not answer is left for the next one.
    #[test]
    fn hunts() {
        let (mut c, mut out) = (client(), vec![]);
        c.start(at(0), &mut out);
        out.clear();
        c.on_tick(at(HUNT_MS - 1), &mut NoRenewal, &mut out);
        assert!(out.is_empty());
        c.on_tick(at(HUNT_MS), &mut NoRenewal, &mut out);
        assert!(matches!(out[..], [Out::Close, Out::Connect(_)]));
        out.clear();
        let mut tried = 1;
        loop {
            c.on_closed(at(HUNT_MS + 10), &mut out);
            if out.is_empty() {
                break;
            }
            assert!(matches!(out[..], [Out::Connect(_)]), "the next one at once");
            tried += 1;
            out.clear();
        }
        assert_eq!(tried, c.mons.len(), "a pause once all have failed");
        c.on_tick(at(HUNT_MS + 10 + PAUSE_MIN_MS), &mut NoRenewal, &mut out);
        assert!(matches!(out[..], [Out::Connect(_)]));
    }
    /// A silent monitor is asked once, then left; a sign of life keeps it.
    #[test]
    fn leaves_the_silent() {
        let (mut c, mut out) = (client(), vec![]);
        c.start(at(0), &mut out);
        c.on_opened(at(0), &mut out);
        out.clear();
        c.on_tick(at(PROBE_MS), &mut NoRenewal, &mut out);
        c.on_tick(at(PROBE_MS + 250), &mut NoRenewal, &mut out);
        assert_eq!(sent(&out), [MonGetVersion::KIND]);
        let Out::Send(probe) = &out[0] else { panic!() };
        let handle = MonGetVersion::decode(probe).unwrap().handle;
        let reply = MonGetVersionReply { handle, ..Default::default() };
        out.clear();
        let alive = PROBE_MS + 500;
        c.on_message(at(alive), reply.envelope(Features::ALL), &mut NoRenewal, &mut out);
        assert!(out.is_empty(), "nobody asked for that answer");
        c.on_tick(at(alive + SILENT_MS - 1), &mut NoRenewal, &mut out);
        assert_eq!(sent(&out), [MonGetVersion::KIND]);
        out.clear();
        c.on_tick(at(alive + SILENT_MS), &mut NoRenewal, &mut out);
        assert!(matches!(out[..], [Out::Close, Out::Connect(_)]));
        assert!(!c.is_open());
    }

    /// Tickets that cannot be renewed: the session is opened anew.
    #[test]
    fn refused_renewal_reconnects() {
        struct Refused;
        impl Renewal for Refused {
            fn request(&mut self, _: Now) -> Option<Bytes> {
                Some(Bytes::new())
            }
            fn answer(&mut self, _: Now, result: i32, _: &[u8]) -> Result<(), AuthError> {
                Err(AuthError::Refused { result, allowed_methods: vec![] })
            }
        }
        let (mut c, mut out) = (client(), vec![]);
        c.start(at(0), &mut out);
        c.on_opened(at(0), &mut out);
        out.clear();
        c.on_tick(at(RENEW_MS), &mut Refused, &mut out);
        assert_eq!(sent(&out), [Auth::KIND]);
        out.clear();
        let reply = AuthReply { result: -13, ..Default::default() };
        c.on_message(at(RENEW_MS), reply.envelope(Features::ALL), &mut Refused, &mut out);
        assert!(matches!(
            out[..],
            [Out::Event(Event::RenewalFailed(_)), Out::Close, Out::Connect(_)]
        ));
    }
    /// The first monitor map tells the cluster, for commands that waited, and all monitors.
    #[test]
    fn learns_from_the_map() {
        let mut c = MonClient::new(
            vec!["1.1.1.1:1".parse().unwrap()],
            Uuid::default(),
            "h".into(),
            &mut Seeded(1),
        );
        let mut out = vec![];
        let tid = c.command("{}", Bytes::new(), &mut out).unwrap();
        c.start(at(0), &mut out);
        c.on_opened(at(0), &mut out);
        assert_eq!(sent(&out), [MonGetMap::KIND]);
        out.clear();
        let mut map = maps::MonMap { fsid: Uuid([9; 16]), epoch: Epoch(3), ..Default::default() };
        for (name, addr) in [("a", "1.1.1.1:1"), ("b", "1.1.1.1:2")] {
            let addrs = types::AddrVec(vec![addr.parse().unwrap()]);
            let info = maps::MonInfo { name: name.into(), addrs, ..Default::default() };
            map.mons.insert(name.into(), info);
            map.ranks.push(name.into());
        }
        let message = MonMapMsg { monmap: map.to_bytes() }.envelope(Features::ALL);
        c.on_message(at(1), message, &mut NoRenewal, &mut out);
        assert_eq!(sent(&out), [MonCommand::KIND]);
        let Out::Send(command) = &out[0] else { panic!() };
        assert_eq!((command.tid, MonCommand::decode(command).unwrap().fsid), (tid, map.fsid));
        out.clear();
        c.on_closed(at(2), &mut out);
        assert_eq!(out, [Out::Connect("1.1.1.1:2".parse().unwrap())]);
        out.clear();
        c.on_opened(at(3), &mut out);
        assert_eq!(sent(&out), [MonGetMap::KIND, MonCommand::KIND], "unanswered: once more");
    }
}
