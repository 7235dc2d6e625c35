//! The messenger of one process: listening, dialling, sending, and telling the role.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use auth::{ClientAuth, ServerAuth};
use bytes::BytesMut;
use env::{ConnId, Random};
use messages::Envelope;
use msgr::{Acceptor, Dial, Fault, Local, Peer, Policy, v1};
use tokio::net::TcpSocket;
use types::{AddrVec, EntityKind, UTime};

use crate::conn::{self, Conn};
use crate::crowd::Crowd;
use crate::stream::{self, Stream};
use crate::{OsRandom, now};

/// Makes the authentication object of the next attempt to connect.
pub type Redial = Box<dyn FnMut() -> Box<dyn ClientAuth>>;

/// Bounds on what strangers can occupy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Accepted connections in all; beyond, new ones are closed at once.
    pub connections_max: usize,
    /// Of these, connections that have not proved who they are; beyond, one of them goes. The others
    /// are kept for who has.
    pub unproved_max: usize,
    /// Of these, connections of one IP.
    pub unproved_per_ip_max: usize,
    /// Time from accept (or connect) to the end of the handshake.
    pub handshake_ms: u64,
    /// Bytes that may wait for a peer that does not read.
    pub backlog_bytes_max: usize,
    /// The same of a peer with a gate ([`Messenger::set_gate`]).
    pub gated_backlog_bytes_max: usize,
    /// A peer with a gate for which bytes wait, and which takes none for so long, is closed.
    pub gated_stuck_ms: u64,
    /// Silence after which a lossy connection is closed.
    pub idle_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 50_000,
            unproved_max: 4_096,
            unproved_per_ip_max: 256,
            handshake_ms: 10_000,
            backlog_bytes_max: 1 << 30,
            gated_backlog_bytes_max: 256 << 20,
            gated_stuck_ms: 60_000,
            idle_ms: 900_000,
        }
    }
}

/// Files of a process that are no connections of its messengers: stores, logs, sockets it dials.
const OTHER_FILES: u64 = 128;

impl Limits {
    /// So that `messengers` of them together stay below a limit of open files.
    #[must_use]
    pub fn within(files: u64, messengers: u64) -> Self {
        let most = Self::default();
        let files = files.saturating_sub(OTHER_FILES.min(files / 2)) / messengers.max(1);
        let connections_max = usize::try_from(files).unwrap_or(usize::MAX).max(8);
        let connections_max = connections_max.min(most.connections_max);
        let unproved_max = most.unproved_max.min(connections_max / 4);
        Self { connections_max, unproved_max, ..most }
    }
}

/// Who we are and whom we let in.
pub struct Config {
    /// Who we are; may change later by [`Messenger::set_local`].
    pub local: Local,
    /// How accepted connections with each kind of peer behave.
    pub policy: Box<dyn Fn(EntityKind) -> Policy>,
    /// Makes the authentication object of one accepted connection.
    pub auth: Box<dyn Fn(EntityKind, SocketAddr) -> Box<dyn ServerAuth>>,
    /// Bounds.
    pub limits: Limits,
}

/// Why a connection is over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseWhy {
    /// The peer closed it.
    #[error("closed by the peer")]
    Eof,
    /// The system says so.
    #[error("{0}")]
    Io(io::ErrorKind),
    /// One side broke the protocol, or refused.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The handshake took too long.
    #[error("no handshake in time")]
    HandshakeTimeout,
    /// Nothing was heard for long.
    #[error("idle")]
    Idle,
    /// The peer does not read what it is sent.
    #[error("the peer does not read")]
    Slow,
    /// Too many connections.
    #[error("too many connections")]
    Crowded,
    /// The peer lost a lossless session; what was queued is gone.
    #[error("the peer started anew")]
    RemoteReset,
    /// We closed it.
    #[error("closed here")]
    Local,
}

impl CloseWhy {
    /// Whether it ends even a lossless session.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Self::Local | Self::RemoteReset | Self::Crowded | Self::Slow)
    }
}

impl From<io::Error> for CloseWhy {
    fn from(e: io::Error) -> Self {
        Self::Io(e.kind())
    }
}

/// What happens to a role's connections.
#[derive(Debug)]
pub enum NetEvent {
    /// The handshake is over: messages may come and go.
    Opened {
        /// Which.
        conn: ConnId,
        /// The other side.
        peer: Rc<Peer>,
    },
    /// A message.
    Message {
        /// From whom.
        conn: ConnId,
        /// It.
        env: Envelope,
        /// Counts against the connection's byte budget until dropped. Whoever works on a
        /// message for longer than the call keeps it as long; others let it fall.
        hold: Hold,
    },
    /// It is over; nothing comes or goes any more. Not told after [`Messenger::close`].
    Closed {
        /// Which.
        conn: ConnId,
        /// Why.
        why: CloseWhy,
    },
    /// The peer answered [`Messenger::keepalive`].
    Alive {
        /// Which.
        conn: ConnId,
        /// The stamp it repeated.
        stamp: UTime,
    },
}

impl NetEvent {
    /// Which connection it is about.
    #[must_use]
    pub const fn conn(&self) -> ConnId {
        match self {
            Self::Opened { conn, .. }
            | Self::Message { conn, .. }
            | Self::Closed { conn, .. }
            | Self::Alive { conn, .. } => *conn,
        }
    }
}

/// A message's share of its connection's byte budget; given back on drop.
pub struct Hold {
    pub(crate) conn: Rc<Conn>,
    pub(crate) cost: usize,
    pub(crate) life: u64,
}

impl std::fmt::Debug for Hold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hold({} bytes of {:?})", self.cost, self.conn.id)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.cost > 0 {
            self.conn.release(self.cost, self.life);
        }
    }
}

type Handler = Box<dyn FnMut(NetEvent)>;

/// Asked before more is read of a connection: with the bytes that were sent to its peer and not
/// taken yet, and whether it is held already. True when nothing more is to be read now.
pub type Gate = Box<dyn Fn(usize, bool) -> bool>;

/// Held connections that are looked at after each batch; all are once a second.
const HELD_LOOKED_AT: usize = 8;

pub(crate) struct Doors {
    policy: Box<dyn Fn(EntityKind) -> Policy>,
    auth: Box<dyn Fn(EntityKind, SocketAddr) -> Box<dyn ServerAuth>>,
}

impl Acceptor for Doors {
    fn auth(&self, kind: EntityKind, from: SocketAddr) -> Box<dyn ServerAuth> {
        (self.auth)(kind, from)
    }
    fn policy(&self, kind: EntityKind) -> Policy {
        (self.policy)(kind)
    }
}

pub(crate) struct Inner {
    pub(crate) local: RefCell<Arc<Local>>,
    pub(crate) doors: Rc<Doors>,
    pub(crate) limits: Limits,
    handler: RefCell<Option<Handler>>,
    /// Events that came before there was a handler.
    early: RefCell<VecDeque<NetEvent>>,
    pub(crate) conns: RefCell<HashMap<ConnId, Rc<Conn>>>,
    /// Lossless sessions by their peer's addresses.
    pub(crate) lossless: RefCell<HashMap<AddrVec, Rc<Conn>>>,
    /// Accepted ones whose peers are unknown.
    crowd: RefCell<Crowd>,
    /// How many of `conns` have no socket any more, as they made room for others.
    shed: Cell<usize>,
    next_id: Cell<u64>,
    global_seq: Cell<u64>,
    /// Connections with something to write.
    dirty: RefCell<Vec<Rc<Conn>>>,
    /// A task that will write at its end is running.
    batching: Cell<bool>,
    flusher: RefCell<Option<Waker>>,
    /// Connections that are not read as their gates are closed; each in turn is looked at again.
    held: RefCell<VecDeque<Rc<Conn>>>,
    /// The read buffer that connections without unfinished frames share.
    pub(crate) spare: RefCell<Option<BytesMut>>,
}

/// The messenger of a process. Clones share it.
#[derive(Clone)]
pub struct Messenger(Rc<Inner>);

impl Messenger {
    /// A messenger that listens nowhere yet. Must be called on the thread and within the
    /// runtime that it is to live on, see [`crate::run_local`].
    #[must_use]
    pub fn new(config: Config) -> Self {
        let Config { local, policy, auth, limits } = config;
        let inner = Rc::new(Inner {
            local: RefCell::new(Arc::new(local)),
            doors: Rc::new(Doors { policy, auth }),
            limits,
            handler: RefCell::new(None),
            early: RefCell::default(),
            conns: RefCell::default(),
            lossless: RefCell::default(),
            crowd: RefCell::default(),
            shed: Cell::new(0),
            next_id: Cell::new(1),
            global_seq: Cell::new(0),
            dirty: RefCell::default(),
            batching: Cell::new(false),
            flusher: RefCell::new(None),
            held: RefCell::default(),
            spare: RefCell::default(),
        });
        let weak = Rc::downgrade(&inner);
        tokio::task::spawn_local(std::future::poll_fn(move |cx| {
            let Some(inner) = weak.upgrade() else { return Poll::Ready(()) };
            *inner.flusher.borrow_mut() = Some(cx.waker().clone());
            inner.flush();
            Poll::Pending
        }));
        let weak = Rc::downgrade(&inner);
        tokio::task::spawn_local(async move {
            let mut tick = tokio::time::interval(Duration::from_secs(1));
            tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                tick.tick().await;
                let Some(inner) = weak.upgrade() else { return };
                inner.on_tick();
            }
        });
        Self(inner)
    }

    /// Sets whom events go to, first those that came already. The handler may call the
    /// messenger; it is not called again from within.
    pub fn set_handler(&self, mut handler: impl FnMut(NetEvent) + 'static) {
        for event in self.0.early.take() {
            handler(event);
        }
        *self.0.handler.borrow_mut() = Some(Box::new(handler));
    }

    /// Listens; port 0 takes a free one. Returns where.
    ///
    /// # Errors
    /// What the system says.
    pub fn bind(&self, at: SocketAddr) -> io::Result<SocketAddr> {
        self.bind_for(at, None)
    }

    /// Listens for clients by messenger v1; port 0 takes a free one. Returns where. What is said there
    /// of ourselves is the v1 address among those of [`Self::local`].
    ///
    /// # Errors
    /// What the system says.
    pub fn bind_v1(&self, at: SocketAddr, rules: v1::Rules) -> io::Result<SocketAddr> {
        self.bind_for(at, Some(rules))
    }

    fn bind_for(&self, at: SocketAddr, v1: Option<v1::Rules>) -> io::Result<SocketAddr> {
        let socket = if at.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        socket.bind(at)?;
        let listener = socket.listen(1024)?;
        let at = listener.local_addr()?;
        let weak = Rc::downgrade(&self.0);
        tokio::task::spawn_local(async move {
            loop {
                let accepted = listener.accept().await;
                let Some(inner) = weak.upgrade() else { return };
                match accepted {
                    Ok((stream, from)) => inner.on_accept(Stream::Tcp(stream), from, v1),
                    Err(e) => {
                        tracing::warn!("accept on {at}: {e}");
                        drop(inner);
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                }
            }
        });
        Ok(at)
    }

    /// Listens for daemons on this host beside `at`, where it listens already: they need no
    /// TCP. Where that cannot be had they use TCP.
    pub fn listen_near(&self, at: SocketAddr) {
        let listener = match stream::listen(at) {
            Ok(listener) => listener,
            Err(e) => return tracing::info!("{at}: daemons on this host use TCP: {e}"),
        };
        let weak = Rc::downgrade(&self.0);
        tokio::task::spawn_local(async move {
            loop {
                let accepted = listener.accept().await;
                let Some(inner) = weak.upgrade() else { return };
                match accepted {
                    Ok((stream, _)) if stream::is_trusted(&stream) => {
                        inner.on_accept(Stream::Near(stream), SocketAddr::new(at.ip(), 0), None);
                    }
                    Ok(_) => tracing::info!("{at}: another user's process is not let in"),
                    Err(e) => {
                        tracing::warn!("accept beside {at}: {e}");
                        drop(inner);
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                }
            }
        });
    }

    /// Listens on the first free port of `ports`.
    ///
    /// # Errors
    /// What the system says about the last one.
    pub fn bind_range(
        &self,
        ip: IpAddr,
        ports: std::ops::RangeInclusive<u16>,
    ) -> io::Result<SocketAddr> {
        self.bind_range_for(ip, ports, None)
    }

    /// As [`Self::bind_v1`], on the first free port of `ports`.
    ///
    /// # Errors
    /// What the system says about the last one.
    pub fn bind_range_v1(
        &self,
        ip: IpAddr,
        ports: std::ops::RangeInclusive<u16>,
        rules: v1::Rules,
    ) -> io::Result<SocketAddr> {
        self.bind_range_for(ip, ports, Some(rules))
    }

    fn bind_range_for(
        &self,
        ip: IpAddr,
        ports: std::ops::RangeInclusive<u16>,
        v1: Option<v1::Rules>,
    ) -> io::Result<SocketAddr> {
        let mut last = io::Error::from(io::ErrorKind::InvalidInput);
        for port in ports {
            match self.bind_for(SocketAddr::new(ip, port), v1) {
                Ok(at) => return Ok(at),
                Err(e) => last = e,
            }
        }
        Err(last)
    }

    /// Who we are.
    #[must_use]
    pub fn local(&self) -> Arc<Local> {
        self.0.local.borrow().clone()
    }

    /// Changes who we are, for connections that begin from now on.
    pub fn set_local(&self, change: impl FnOnce(&mut Local)) {
        change(Arc::make_mut(&mut self.0.local.borrow_mut()));
    }

    /// Connects to a daemon. Messages may be sent at once; [`NetEvent::Opened`] or
    /// [`NetEvent::Closed`] follows. With a lossless policy it connects again after breaks,
    /// each time with another object from `auth`, until it is closed; and where a session
    /// with these addresses exists, whoever began it, that is the answer, and no further
    /// [`NetEvent::Opened`] comes if it was open.
    pub fn connect(
        &self,
        addrs: impl Into<AddrVec>,
        kind: EntityKind,
        policy: Policy,
        auth: Redial,
    ) -> ConnId {
        self.connect_by(addrs.into(), kind, policy, auth, false)
    }

    /// As [`Messenger::connect`], but not by TCP to a daemon on this host that listens for such
    /// connections ([`Messenger::listen_near`]). Not for what is to find out whether the network works.
    pub fn connect_near(
        &self,
        addrs: impl Into<AddrVec>,
        kind: EntityKind,
        policy: Policy,
        auth: Redial,
    ) -> ConnId {
        self.connect_by(addrs.into(), kind, policy, auth, true)
    }

    fn connect_by(
        &self,
        addrs: AddrVec,
        kind: EntityKind,
        policy: Policy,
        auth: Redial,
        near: bool,
    ) -> ConnId {
        let addr = addrs.msgr2().unwrap_or_else(|| addrs.front());
        let cookie = OsRandom.u64();
        let dial = Dial { addr, addrs: addrs.clone(), kind, policy, global_seq: 0, cookie };
        if !policy.lossy
            && let Some(conn) = self.0.lossless.borrow().get(&addrs)
        {
            conn.set_dial(&self.0, dial, auth);
            return conn.id;
        }
        let conn = Conn::new(self.0.take_id(), Some((dial, auth)), near);
        self.0.conns.borrow_mut().insert(conn.id, conn.clone());
        if !policy.lossy {
            self.0.lossless.borrow_mut().insert(addrs, conn.clone());
        }
        let id = conn.id;
        tokio::task::spawn_local(conn::run(self.0.clone(), conn));
        id
    }

    /// Sends a message; nothing happens when the connection is over. It leaves with all
    /// others of the batch when control is back in the messenger.
    pub fn send(&self, conn: ConnId, env: Envelope) {
        let found = self.0.conns.borrow().get(&conn).cloned();
        if let Some(conn) = found {
            conn.send(&self.0, env);
        }
    }

    /// Asks whether the peer lives: [`NetEvent::Alive`] with `stamp` follows if it does.
    pub fn keepalive(&self, conn: ConnId, stamp: UTime) {
        let found = self.0.conns.borrow().get(&conn).cloned();
        if let Some(conn) = found {
            conn.keepalive(&self.0, stamp);
        }
    }

    /// Writes now what was sent; otherwise the messenger does soon.
    pub fn flush(&self) {
        self.0.flush();
    }

    /// Ends a connection; what was sent leaves first as far as the socket takes it. No
    /// event follows.
    pub fn close(&self, conn: ConnId) {
        self.0.flush();
        if let Some(conn) = self.0.forget(conn) {
            conn.close(CloseWhy::Local);
        }
    }

    /// The other side of an open connection.
    #[must_use]
    pub fn peer(&self, conn: ConnId) -> Option<Rc<Peer>> {
        self.0.conns.borrow().get(&conn).and_then(|conn| conn.peer())
    }

    /// From now on `conn` is read only while `gate` is open. What one connection costs is held against
    /// that connection alone: whatever others wait for is read all the time.
    pub fn set_gate(&self, conn: ConnId, gate: Gate) {
        if let Some(conn) = self.0.conns.borrow().get(&conn) {
            conn.set_gate(gate);
        }
    }

    /// How many connections are not read now as their gates are closed.
    #[must_use]
    pub fn held(&self) -> usize {
        self.0.held.borrow().len()
    }

    /// Our own IP as the peer of `conn` sees it.
    #[must_use]
    pub fn seen_as(&self, conn: ConnId) -> Option<SocketAddr> {
        self.0.conns.borrow().get(&conn).and_then(|conn| conn.seen_as())
    }

    /// Bytes sent to `conn` that its peer has not taken yet.
    #[must_use]
    pub fn backlog(&self, conn: ConnId) -> usize {
        self.0.conns.borrow().get(&conn).map_or(0, |conn| conn.backlog())
    }

    /// How many connections there are.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.0.conns.borrow().len()
    }
}

impl Inner {
    fn take_id(&self) -> ConnId {
        let id = self.next_id.get();
        self.next_id.set(id + 1);
        ConnId(id)
    }

    /// Takes a connection off the lists.
    pub(crate) fn forget(&self, id: ConnId) -> Option<Rc<Conn>> {
        let conn = self.conns.borrow_mut().remove(&id)?;
        if conn.is_shed() {
            self.shed.set(self.shed.get() - 1);
        }
        if conn.is_lossless() {
            self.lossless.borrow_mut().retain(|_, other| other.id != id);
        }
        Some(conn)
    }

    /// Higher than any before, and at least `floor + 1`.
    pub(crate) fn take_global_seq(&self, floor: u64) -> u64 {
        let seq = self.global_seq.get().max(floor) + 1;
        self.global_seq.set(seq);
        seq
    }

    pub(crate) fn deliver(&self, event: NetEvent) {
        match &mut *self.handler.borrow_mut() {
            Some(handler) => handler(event),
            None => self.early.borrow_mut().push_back(event),
        }
    }

    /// Runs `work`; what it sends is written at its end.
    pub(crate) fn batch<T>(&self, work: impl FnOnce() -> T) -> T {
        let outer = self.batching.replace(true);
        let out = work();
        self.batching.set(outer);
        if !outer {
            self.flush();
        }
        out
    }

    pub(crate) fn mark_dirty(&self, conn: Rc<Conn>) {
        self.dirty.borrow_mut().push(conn);
        if !self.batching.get()
            && let Some(waker) = &*self.flusher.borrow()
        {
            waker.wake_by_ref();
        }
    }

    pub(crate) fn flush(&self) {
        loop {
            let Some(conn) = self.dirty.borrow_mut().pop() else { break };
            conn.write();
        }
        self.look_at_held(HELD_LOOKED_AT);
    }

    /// A connection is read no more until its gate opens.
    pub(crate) fn hold(&self, conn: Rc<Conn>) {
        self.held.borrow_mut().push_back(conn);
    }

    /// Reads of those again whose gates have opened.
    fn look_at_held(&self, most: usize) {
        let most = most.min(self.held.borrow().len());
        for _ in 0..most {
            let Some(conn) = self.held.borrow_mut().pop_front() else { return };
            if conn.stays_held() {
                self.held.borrow_mut().push_back(conn);
            } else {
                conn.wake();
            }
        }
    }

    fn on_accept(self: &Rc<Self>, stream: Stream, from: SocketAddr, v1: Option<v1::Rules>) {
        let mut crowd = self.crowd.borrow_mut();
        let open = || self.conns.borrow().len() - self.shed.get();
        if open() >= self.limits.connections_max {
            if !crowd.shed_one() {
                tracing::debug!("{from}: too many connections");
                return;
            }
            self.shed.set(self.shed.get() + 1);
        }
        let conn = Conn::new(self.take_id(), None, false);
        let Limits { unproved_per_ip_max, unproved_max, .. } = self.limits;
        let shed = crowd.admit(from.ip(), conn.clone(), unproved_per_ip_max, unproved_max);
        drop(crowd);
        self.shed.set(self.shed.get() + shed);
        self.conns.borrow_mut().insert(conn.id, conn.clone());
        conn.accepted(self, stream, from, v1);
        tokio::task::spawn_local(conn::run(self.clone(), conn));
    }

    fn on_tick(&self) {
        self.crowd.borrow_mut().settle();
        let now_ms = now().mono_ms();
        let conns: Vec<_> = self.conns.borrow().values().cloned().collect();
        for conn in conns {
            conn.on_tick(now_ms, &self.limits);
        }
        self.look_at_held(usize::MAX);
    }
}
