//! One connection on tokio: the task that moves its bytes.
//!
//! A task reads until the socket is empty, hands each event to the role at once, and at
//! the end of the batch everything the role sent, to whichever connection, is written with
//! one system call per connection. Tasks sleep only for reading; a write that the socket
//! does not take whole wakes the task to wait for room.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use env::{ConnId, Random};
use messages::Envelope;
use msgr::{Connection, Dial, Event, Fault, Machine, Peer, Session, Verdict, v1};
use tokio::net::TcpSocket;
use types::{EntityAddr, EntityKind, UTime};

use crate::messenger::{CloseWhy, Gate, Hold, Inner, Limits, NetEvent, Redial};
use crate::stream::{self, Stream};
use crate::{OsRandom, now};

/// Reads of one connection before others get a turn.
const READS_PER_TURN: u32 = 32;
/// Time that the messages of one gated connection may take before others get a turn: of small
/// requests one read brings hundreds.
const TURN_NS: u64 = 500_000;
/// Pieces per write.
const SLICES: usize = 64;

pub(crate) struct Conn {
    pub(crate) id: ConnId,
    /// While there is a TCP connection.
    machine: RefCell<Option<Machine>>,
    stream: RefCell<Option<Stream>>,
    /// While there is none: what the next one continues.
    session: RefCell<Option<Session>>,
    /// How to connect (again).
    dial: RefCell<Option<(Dial, Redial)>>,
    /// And whether not by TCP where the peer is on this host.
    near: bool,
    peer: RefCell<Option<Rc<Peer>>>,
    waker: RefCell<Option<Waker>>,
    closing: RefCell<Option<CloseWhy>>,
    /// Counts TCP connections under this id; a task of an earlier one must end.
    life: Cell<u64>,
    /// There is a task for it.
    tasked: Cell<bool>,
    opened: Cell<bool>,
    /// Closed to make room for others.
    shed: Cell<bool>,
    dirty: Cell<bool>,
    /// The socket was full.
    blocked: Cell<bool>,
    /// When the TCP connection began, and when the peer was last heard.
    since_ms: Cell<u64>,
    heard_ms: Cell<u64>,
    turnstile: Turnstile,
}

/// What decides whether more is read of a connection.
#[derive(Default)]
struct Turnstile {
    gate: RefCell<Option<Gate>>,
    /// The gate is closed, and the messenger looks at it from time to time.
    held: Cell<bool>,
    /// The socket took something since the last tick.
    taken: Cell<bool>,
    /// The last tick at which nothing waited for the socket, or it had taken something.
    moved_ms: Cell<u64>,
}

/// What a task goes on with.
enum Turn {
    /// The TCP connection is over.
    End(CloseWhy),
    /// The TCP connection now serves this session.
    Become(Rc<Conn>),
}

impl From<CloseWhy> for Turn {
    fn from(why: CloseWhy) -> Self {
        Self::End(why)
    }
}

impl From<Fault> for Turn {
    fn from(fault: Fault) -> Self {
        Self::End(fault.into())
    }
}

impl Conn {
    pub(crate) fn new(id: ConnId, dial: Option<(Dial, Redial)>, near: bool) -> Rc<Self> {
        let now_ms = now().mono_ms();
        let session = dial.as_ref().map(|(dial, _)| Session::new(dial.policy));
        Rc::new(Self {
            id,
            machine: RefCell::new(None),
            stream: RefCell::new(None),
            session: RefCell::new(session),
            dial: RefCell::new(dial),
            near,
            peer: RefCell::new(None),
            waker: RefCell::new(None),
            closing: RefCell::new(None),
            life: Cell::new(0),
            tasked: Cell::new(false),
            opened: Cell::new(false),
            shed: Cell::new(false),
            dirty: Cell::new(false),
            blocked: Cell::new(false),
            since_ms: Cell::new(now_ms),
            heard_ms: Cell::new(now_ms),
            turnstile: Turnstile { moved_ms: Cell::new(now_ms), ..Turnstile::default() },
        })
    }

    pub(crate) fn set_gate(&self, gate: Gate) {
        *self.turnstile.gate.borrow_mut() = Some(gate);
    }

    fn is_gated(&self) -> bool {
        self.turnstile.gate.borrow().is_some()
    }

    /// Whether nothing is wanted of this peer now; if so the messenger looks again.
    fn is_held(self: &Rc<Self>, inner: &Inner, machine: &Machine) -> bool {
        let t = &self.turnstile;
        let gate = t.gate.borrow();
        let Some(gate) = gate.as_ref().filter(|_| machine.is_ready()) else { return false };
        if t.held.get() {
            return true;
        }
        let held = gate(machine.session().bytes() + machine.unwritten(), false);
        if held {
            t.held.set(true);
            inner.hold(self.clone());
        }
        held
    }

    /// Whether the gate of a held connection is still closed.
    pub(crate) fn stays_held(&self) -> bool {
        let t = &self.turnstile;
        let lives = self.closing.borrow().is_none() && self.machine.borrow().is_some();
        let closed = |gate: &Gate| gate(self.backlog(), true);
        let held = lives && t.gate.borrow().as_ref().is_some_and(closed);
        t.held.set(held);
        held
    }

    /// A TCP connection came in; with rules at a port of messenger v1.
    pub(crate) fn accepted(
        &self,
        inner: &Inner,
        stream: Stream,
        from: SocketAddr,
        v1: Option<v1::Rules>,
    ) {
        let (local, doors) = (inner.local.borrow().clone(), inner.doors.clone());
        let machine = match v1 {
            Some(rules) => Machine::V1(Box::new(v1::Accepted::new(local, doors, rules, from))),
            None => Machine::V2(Box::new(Connection::accept(local, doors, from))),
        };
        self.begin(machine, stream);
    }

    /// A TCP connection stands.
    fn begin(&self, machine: Machine, stream: Stream) {
        if let Err(e) = stream.set_up() {
            tracing::debug!("a socket's options: {e}");
        }
        let now_ms = now().mono_ms();
        self.since_ms.set(now_ms);
        self.heard_ms.set(now_ms);
        self.blocked.set(false);
        *self.closing.borrow_mut() = None;
        self.life.set(self.life.get() + 1);
        *self.machine.borrow_mut() = Some(machine);
        *self.stream.borrow_mut() = Some(stream);
    }

    /// Allows to connect again where so far only the peer could.
    pub(crate) fn set_dial(self: &Rc<Self>, inner: &Rc<Inner>, dial: Dial, auth: Redial) {
        self.dial.borrow_mut().get_or_insert((dial, auth));
        if !self.tasked.get() {
            tokio::task::spawn_local(run(inner.clone(), self.clone()));
        }
    }

    pub(crate) fn is_lossless(&self) -> bool {
        match &*self.machine.borrow() {
            Some(machine) => machine.session().is_lossless(),
            None => self.session.borrow().as_ref().is_some_and(Session::is_lossless),
        }
    }

    pub(crate) fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    pub(crate) fn peer(&self) -> Option<Rc<Peer>> {
        self.peer.borrow().clone()
    }

    pub(crate) fn seen_as(&self) -> Option<SocketAddr> {
        self.machine.borrow().as_ref().and_then(Machine::seen_as)
    }

    pub(crate) fn backlog(&self) -> usize {
        let parked = self.session.borrow().as_ref().map_or(0, Session::bytes);
        let machine = self.machine.borrow();
        parked + machine.as_ref().map_or(0, |m| m.session().bytes() + m.unwritten())
    }

    /// Whether it came in, lives, and its peer has not proved who it is.
    pub(crate) fn is_unproved(&self) -> bool {
        self.dial.borrow().is_none()
            && !self.opened.get()
            && self.closing.borrow().is_none()
            && self.machine.borrow().as_ref().is_some_and(|m| !m.is_authenticated())
    }

    /// How far its handshake is.
    pub(crate) fn progress(&self) -> u8 {
        self.machine.borrow().as_ref().map_or(0, Machine::progress)
    }

    /// Ends it: its socket is closed now, the rest when its task has a turn.
    pub(crate) fn shed(&self) {
        *self.stream.borrow_mut() = None;
        self.shed.set(true);
        self.close(CloseWhy::Crowded);
    }

    /// Whether it holds no socket any more, though its task has not ended.
    pub(crate) fn is_shed(&self) -> bool {
        self.shed.get()
    }

    /// Ends it; its task notices.
    pub(crate) fn close(&self, why: CloseWhy) {
        self.closing.borrow_mut().get_or_insert(why);
        self.wake();
    }

    pub(crate) fn release(&self, cost: usize, life: u64) {
        if life != self.life.get() {
            return;
        }
        if let Some(machine) = &mut *self.machine.borrow_mut() {
            let held = !machine.wants_read();
            machine.release(cost);
            if held && machine.wants_read() {
                self.wake();
            }
        }
    }

    fn soil(self: &Rc<Self>, inner: &Inner) {
        if !self.dirty.replace(true) {
            inner.mark_dirty(self.clone());
        }
    }

    pub(crate) fn send(self: &Rc<Self>, inner: &Inner, env: Envelope) {
        let limits = &inner.limits;
        let max = match self.is_gated() {
            true => limits.gated_backlog_bytes_max,
            false => limits.backlog_bytes_max,
        };
        let sent = match &mut *self.machine.borrow_mut() {
            Some(machine) if machine.session().bytes() + machine.unwritten() > max => {
                self.close(CloseWhy::Slow);
                Ok(false)
            }
            Some(machine) => machine.send(env).map(|()| machine.is_ready()),
            None => match &mut *self.session.borrow_mut() {
                Some(session) => session.send(env).map(|()| false),
                None => Ok(false),
            },
        };
        match sent {
            Ok(true) => self.soil(inner),
            Ok(false) => {}
            Err(fault) => self.close(fault.into()),
        }
    }

    pub(crate) fn keepalive(self: &Rc<Self>, inner: &Inner, stamp: UTime) {
        let done = match &mut *self.machine.borrow_mut() {
            Some(machine) => machine.keepalive(stamp),
            None => Ok(()),
        };
        match done {
            Ok(()) => self.soil(inner),
            Err(fault) => self.close(fault.into()),
        }
    }

    /// Writes until nothing is left or the socket is full.
    pub(crate) fn write(&self) {
        self.dirty.set(false);
        if self.blocked.get() {
            return; // the task writes when there is room
        }
        if let Err(why) = self.try_write() {
            self.close(why);
        }
        if self.blocked.get() {
            self.wake();
        }
    }

    fn try_write(&self) -> Result<(), CloseWhy> {
        let (mut machine, stream) = (self.machine.borrow_mut(), self.stream.borrow());
        let (Some(machine), Some(stream)) = (&mut *machine, &*stream) else { return Ok(()) };
        while machine.prepare()? {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let n = machine.slices(&mut slices);
            match stream.try_write_vectored(&slices[..n]) {
                Ok(n) => {
                    machine.advance(n);
                    self.turnstile.taken.set(true);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.blocked.set(true);
                    return Ok(());
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    /// Handshakes and silence have limits.
    pub(crate) fn on_tick(&self, now_ms: u64, limits: &Limits) {
        let (ready, lossy) = match &*self.machine.borrow() {
            Some(machine) => (machine.is_ready(), machine.peer().lossy),
            None => return,
        };
        if !ready && now_ms > self.since_ms.get() + limits.handshake_ms {
            self.close(CloseWhy::HandshakeTimeout);
        } else if ready && lossy && now_ms > self.heard_ms.get() + limits.idle_ms {
            self.close(CloseWhy::Idle);
        }
        let t = &self.turnstile;
        if t.taken.replace(false) || self.backlog() == 0 {
            t.moved_ms.set(now_ms);
        } else if self.is_gated() && now_ms > t.moved_ms.get() + limits.gated_stuck_ms {
            self.close(CloseWhy::Slow);
        }
        // What is not read does not show its end.
        if t.held.get() && self.stream.borrow().as_ref().is_some_and(Stream::is_closed_by_peer) {
            self.close(CloseWhy::Eof);
        }
    }

    fn poll_read(self: &Rc<Self>, cx: &mut Context<'_>, inner: &Inner) -> Poll<io::Result<usize>> {
        let (mut machine, mut stream) = (self.machine.borrow_mut(), self.stream.borrow_mut());
        let (Some(machine), Some(stream)) = (&mut *machine, &mut *stream) else {
            return Poll::Pending;
        };
        if self.is_held(inner, machine) || !machine.wants_read() {
            return Poll::Pending;
        }
        machine.lend_stage(&mut inner.spare.borrow_mut());
        let read = {
            let mut buf = machine.read_buf();
            stream.poll_read_buf(cx, &mut buf)
        };
        if read.is_pending() {
            machine.reclaim_stage(&mut inner.spare.borrow_mut());
        }
        read
    }

    /// One turn of the task: reads, tells the role, writes.
    fn turn(self: &Rc<Self>, cx: &mut Context<'_>, inner: &Rc<Inner>, life: u64) -> Poll<Turn> {
        {
            let mut waker = self.waker.borrow_mut();
            if !waker.as_ref().is_some_and(|old| old.will_wake(cx.waker())) {
                *waker = Some(cx.waker().clone());
            }
        }
        // Frames may be left over from when the role held too much.
        match self.handle(inner, life) {
            Err(turn) => return Poll::Ready(turn),
            Ok(true) => {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Ok(false) => {}
        }
        for _ in 0..READS_PER_TURN {
            if self.life.get() != life {
                return Poll::Ready(Turn::End(Fault::Replaced.into()));
            }
            if let Some(why) = self.closing.borrow().clone() {
                return Poll::Ready(Turn::End(why));
            }
            if self.blocked.get() {
                let ready = match &*self.stream.borrow() {
                    Some(stream) => stream.poll_write_ready(cx),
                    None => Poll::Pending,
                };
                if ready.is_ready() {
                    self.blocked.set(false);
                    self.write();
                    continue;
                }
            }
            match self.poll_read(cx, inner) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Turn::End(CloseWhy::Eof)),
                Poll::Ready(Ok(_)) => {
                    let done = self.handle(inner, life);
                    if let Some(machine) = &mut *self.machine.borrow_mut() {
                        machine.reclaim_stage(&mut inner.spare.borrow_mut());
                    }
                    match done {
                        Err(turn) => return Poll::Ready(turn),
                        Ok(true) => break,
                        Ok(false) => {}
                    }
                }
                Poll::Ready(Err(e)) if e.kind() == io::ErrorKind::Interrupted => {}
                Poll::Ready(Err(e)) => return Poll::Ready(Turn::End(e.into())),
                Poll::Pending => return Poll::Pending,
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Acts on everything that was received.
    ///
    /// Returns whether there is more: others have their turn first.
    fn handle(self: &Rc<Self>, inner: &Rc<Inner>, life: u64) -> Result<bool, Turn> {
        let begun = now();
        let mut more = false;
        let mut now = begun;
        loop {
            if self.life.get() != life || self.closing.borrow().is_some() {
                return Ok(false);
            }
            if now.mono_ns > begun.mono_ns + TURN_NS {
                more = true;
                break;
            }
            let event = match &mut *self.machine.borrow_mut() {
                // What one read brought may be many requests.
                Some(machine) if self.is_held(inner, machine) => None,
                Some(machine) => machine.poll(now)?,
                None => return Ok(false),
            };
            let conn = self.id;
            match event {
                None => break,
                Some(Event::Message { env, cost }) => {
                    let hold = Hold { conn: self.clone(), cost, life };
                    inner.deliver(NetEvent::Message { conn, env, hold });
                    if self.is_gated() {
                        now = crate::now();
                    }
                }
                Some(Event::Ready { .. }) => self.on_ready(inner),
                Some(Event::KeepaliveAck(stamp)) => inner.deliver(NetEvent::Alive { conn, stamp }),
                Some(Event::AuthRefused(reason)) => tracing::info!("refused: {reason}"),
                Some(Event::RemoteReset) => return Err(CloseWhy::RemoteReset.into()),
                Some(Event::Ident(ask)) => {
                    let existing = inner.lossless.borrow().get(&ask.addrs).cloned();
                    let mine = self.my_addr(inner);
                    let verdict = match &existing {
                        Some(old) => old.judged(|session, connecting| {
                            msgr::judge_ident(session, connecting, mine, &ask)
                        }),
                        None => Verdict::Fresh,
                    };
                    self.on_verdict(inner, verdict, existing, ask.addrs)?;
                }
                Some(Event::Resume(ask)) => {
                    let existing = inner.lossless.borrow().get(&ask.addrs).cloned();
                    let mine = self.my_addr(inner);
                    let resetcheck =
                        self.machine.borrow().as_ref().is_some_and(|m| m.policy().resetcheck);
                    let verdict = match &existing {
                        Some(old) => old.judged(|session, connecting| {
                            msgr::judge_resume(session, connecting, mine, resetcheck, &ask)
                        }),
                        None => Verdict::Reset { full: true },
                    };
                    self.on_verdict(inner, verdict, existing, ask.addrs)?;
                }
                Some(Event::Connect(ask)) => {
                    let existing = inner.lossless.borrow().get(&ask.addrs).cloned();
                    let verdict = match &existing {
                        Some(old) => self.judged_v1(old, &ask),
                        None => msgr::v1::judge_connect(None, false, false, &ask),
                    };
                    self.on_verdict(inner, verdict, existing, ask.addrs)?;
                }
            }
        }
        self.heard_ms.set(now.mono_ms());
        // Handshake frames, acks and keepalives are answered without the role.
        let unwritten = match &mut *self.machine.borrow_mut() {
            Some(machine) => machine.prepare()?,
            None => false,
        };
        if unwritten {
            self.soil(inner);
        }
        Ok(more)
    }

    fn on_ready(self: &Rc<Self>, inner: &Rc<Inner>) {
        let peer = match &*self.machine.borrow() {
            Some(machine) => Rc::new(machine.peer().clone()),
            None => return,
        };
        let is_client = |kind| kind == EntityKind::CLIENT;
        if !is_client(peer.id.kind)
            && !is_client(inner.local.borrow().kind)
            && let Some(stream) = &*self.stream.borrow()
            && let Err(e) = stream.end_when_cut()
        {
            tracing::debug!("a socket's options: {e}");
        }
        *self.peer.borrow_mut() = Some(peer.clone());
        if !self.opened.replace(true) {
            inner.deliver(NetEvent::Opened { conn: self.id, peer });
        }
    }

    fn my_addr(&self, inner: &Inner) -> EntityAddr {
        inner.local.borrow().addrs.msgr2().unwrap_or_default()
    }

    /// Asks `judge` about this session; it also learns whether we are just dialling.
    fn judged(&self, judge: impl FnOnce(Option<&Session>, bool) -> Verdict) -> Verdict {
        let machine = self.machine.borrow();
        let dialling = self.dial.borrow().is_some();
        match &*machine {
            Some(machine) => judge(Some(machine.session()), dialling && !machine.is_ready()),
            None => judge(self.session.borrow().as_ref(), false),
        }
    }

    /// The same of a client by messenger v1, which is known by what it proved, too.
    fn judged_v1(&self, old: &Conn, ask: &v1::Ask) -> Verdict {
        let asks = self.machine.borrow().as_ref().map(|m| m.peer().identity.clone());
        let whose = |peer: Rc<Peer>| (peer.identity.name.clone(), peer.identity.global_id);
        let same = asks.map(|id| (id.name, id.global_id)) == old.peer().map(whose);
        let machine = old.machine.borrow();
        match &*machine {
            Some(m) => v1::judge_connect(Some(m.session()), same, m.is_ready(), ask),
            None => v1::judge_connect(old.session.borrow().as_ref(), same, true, ask),
        }
    }

    /// What is left of the session; the TCP connection is gone.
    fn take_session(&self) -> Option<Session> {
        *self.stream.borrow_mut() = None;
        let machine = self.machine.borrow_mut().take();
        machine.map(Machine::into_session).or_else(|| self.session.borrow_mut().take())
    }

    fn on_verdict(
        self: &Rc<Self>,
        inner: &Rc<Inner>,
        verdict: Verdict,
        existing: Option<Rc<Conn>>,
        addrs: types::AddrVec,
    ) -> Result<(), Turn> {
        let decide = |verdict, session| match &mut *self.machine.borrow_mut() {
            Some(machine) => machine.decide(verdict, session, OsRandom.u64()),
            None => Ok(()),
        };
        match (verdict, existing) {
            (Verdict::Adopt, Some(old)) => {
                let known = old.peer().map_or_else(Peer::default, |peer| (*peer).clone());
                let Some(session) = old.take_session() else {
                    return Err(Turn::End(Fault::Replaced.into()));
                };
                if let Err(fault) = decide(verdict, Some((session, known))) {
                    old.life.set(old.life.get() + 1);
                    if inner.forget(old.id).is_some() && old.opened.get() {
                        let why = fault.clone().into();
                        inner.deliver(NetEvent::Closed { conn: old.id, why });
                    }
                    return Err(fault.into());
                }
                let (machine, stream) = (self.machine.take(), self.stream.take());
                if let (Some(machine), Some(stream)) = (machine, stream) {
                    old.begin(machine, stream);
                }
                old.wake(); // its earlier task ends
                Err(Turn::Become(old))
            }
            (Verdict::AdoptReset | Verdict::Fresh, old) => {
                if let Some(old) = old
                    && inner.forget(old.id).is_some()
                {
                    old.life.set(old.life.get() + 1);
                    old.close(CloseWhy::Local);
                    if old.opened.get() {
                        let why = CloseWhy::RemoteReset;
                        inner.deliver(NetEvent::Closed { conn: old.id, why });
                    }
                }
                inner.lossless.borrow_mut().insert(addrs, self.clone());
                Ok(decide(Verdict::Fresh, None)?)
            }
            (verdict, _) => Ok(decide(verdict, None)?),
        }
    }

    async fn connect(&self, to: SocketAddr) -> io::Result<Stream> {
        if self.near
            && let Some(stream) = stream::connect(to).await
        {
            return Ok(Stream::Near(stream));
        }
        let socket = if to.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.connect(to).await.map(Stream::Tcp)
    }

    /// Connects once.
    async fn dial(&self, inner: &Inner) -> Result<(), CloseWhy> {
        let (to, mut dial, auth) = match &mut *self.dial.borrow_mut() {
            Some((dial, redial)) => {
                let to = dial.addr.sock.ok_or(CloseWhy::Io(io::ErrorKind::AddrNotAvailable))?;
                dial.global_seq = inner.take_global_seq(dial.global_seq);
                (to, dial.clone(), redial())
            }
            None => return Err(CloseWhy::Eof),
        };
        let life = self.life.get();
        let limit = Duration::from_millis(inner.limits.handshake_ms);
        let connecting = tokio::time::timeout(limit, self.connect(to));
        let stream = connecting.await.map_err(|_| CloseWhy::HandshakeTimeout)??;
        if self.life.get() != life || self.closing.borrow().is_some() {
            return Err(Fault::Replaced.into());
        }
        let session = self.session.borrow_mut().take();
        dial.policy = session.as_ref().map_or(dial.policy, Session::policy);
        let local = inner.local.borrow().clone();
        let machine = Connection::dial(local, dial, auth, session, to);
        self.begin(Machine::V2(Box::new(machine)), stream);
        Ok(())
    }
}

/// A connection's task: drives TCP connections as long as there is one or can be.
pub(crate) async fn run(inner: Rc<Inner>, conn: Rc<Conn>) {
    conn.tasked.set(true);
    let mut conn = conn;
    let mut backoff_ms = 200;
    loop {
        let before = conn.life.get();
        let connected =
            if conn.machine.borrow().is_some() { Ok(()) } else { conn.dial(&inner).await };
        if connected.is_err() && conn.life.get() != before {
            return; // the peer's own connection came first and has its own task
        }
        let life = conn.life.get();
        let turn = match connected {
            Err(why) => Turn::End(why),
            Ok(()) => {
                conn.write();
                let turn = |cx: &mut Context<'_>| inner.batch(|| conn.turn(cx, &inner, life));
                poll_fn(turn).await
            }
        };
        let why = match turn {
            Turn::Become(session) => {
                inner.forget(conn.id);
                session.tasked.set(true);
                session.soil(&inner);
                conn = session;
                continue;
            }
            Turn::End(why) => why,
        };
        if conn.life.get() != life {
            return; // a newer TCP connection has its own task
        }
        let why = conn.closing.borrow().clone().unwrap_or(why);
        let can_dial = conn.dial.borrow().is_some();
        let goes_on = conn.is_lossless() && !why.is_final() && (conn.opened.get() || can_dial);
        let session = conn.take_session();
        *conn.waker.borrow_mut() = None;
        if !goes_on {
            let told = inner.forget(conn.id).is_some() && (conn.opened.get() || can_dial);
            if told && why != CloseWhy::Local {
                inner.batch(|| inner.deliver(NetEvent::Closed { conn: conn.id, why }));
            }
            return;
        }
        tracing::debug!("{:?} broke: {why}", conn.id);
        *conn.session.borrow_mut() = session;
        *conn.closing.borrow_mut() = None;
        if !can_dial {
            conn.tasked.set(false);
            return; // the peer comes back, or the role closes it
        }
        if conn.heard_ms.get() > conn.since_ms.get() {
            backoff_ms = 200;
        }
        tokio::time::sleep(Duration::from_millis(backoff_ms)).await;
        backoff_ms = (backoff_ms * 2).min(15_000);
        if conn.life.get() != life || !inner.conns.borrow().contains_key(&conn.id) {
            return;
        }
    }
}
