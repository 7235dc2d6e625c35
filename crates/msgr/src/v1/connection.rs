//! One TCP connection of messenger v1 that came in, from banner to end.
//!
//! ```text
//!  Banner ► Connect ─► Deciding ─► Seq ─► Ready                  OSDs, metadata servers, manager
//!            ▲  │ challenge, features, bad authorizer
//!            └──┘ retry, reset
//!
//!  Banner ► Connect ─► Seq ─► Hello ─► Ready                     monitors: MAuth in `Hello`
//! ```
//! `Deciding` is passed over on lossy connections, `Seq` where the client lacks RECONNECT_SEQ. Up to
//! `Connect`, and at a monitor in all states but `Ready`, nothing the client says may be trusted.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use auth::handshake::{con_mode, method};
use auth::{AuthDone, MessageSigner, ServerAuth, ServerStep, proto};
use bytes::buf::Limit;
use bytes::{Buf, Bytes, BytesMut};
use denc::{Denc, Features, Writer};
use env::Now;
use messages::{Auth, AuthReply, Envelope, Message};
use stdx::crc32c;
use types::{AddrKind, EntityAddr, EntityId, EntityKind, UTime};

use super::reader::{Item, Reader, Seals};
use super::wire::{
    ADDR_LEN, BANNER, CONNECT_LEN, Connect, ConnectReply, FLAG_LOSSY, Footer, Header, flag, tag,
};
use super::{Ask, Rules};
use crate::Fault;
use crate::connection::{Acceptor, Event, HANDSHAKE_BYTES_MAX, Local, OUT_BYTES_LOW, Peer};
use crate::frame::HANDSHAKE_MAX;
use crate::session::{Policy, Session, Verdict};
use crate::writer::FrameWriter;

const EOPNOTSUPP: i32 = -95;

/// In the order of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Banner,
    Connect,
    /// Waits for [`Accepted::decide`].
    Deciding,
    /// Waits for the number of the last message that the client received.
    Seq,
    /// At a monitor: waits until MAuth messages have proved who is there.
    Hello,
    Ready,
}

/// How far the authentication is.
#[derive(Default)]
struct Knocking {
    auth: Option<Box<dyn ServerAuth>>,
    /// The method under way, while the next answer belongs to it.
    method: Option<u32>,
    proof: Option<AuthDone>,
}

/// One TCP connection that came in.
pub struct Accepted {
    local: Arc<Local>,
    acceptor: Rc<dyn Acceptor>,
    rules: Rules,
    phase: Phase,
    reader: Reader,
    writer: FrameWriter,
    seals: Seals,
    session: Session,
    peer: Peer,
    knocking: Knocking,
    /// Whose authorizer is awaited, or which waits for a verdict.
    asked: Option<Connect>,
    events: VecDeque<Event>,
    in_flight: usize,
    /// Raw bytes taken before the client had proved itself.
    taken: usize,
    closed: bool,
}

/// The number of the protocol that a kind of daemon speaks with clients.
const fn protocol_version(kind: EntityKind) -> u32 {
    match kind {
        EntityKind::OSD => 24,
        EntityKind::MDS => 32,
        EntityKind::MON => 15,
        _ => 0,
    }
}

impl Accepted {
    /// A connection that came in from `sock`.
    #[must_use]
    pub fn new(
        local: Arc<Local>,
        acceptor: Rc<dyn Acceptor>,
        rules: Rules,
        sock: SocketAddr,
    ) -> Self {
        let mut writer = FrameWriter::new();
        writer.record = None;
        let mut hello = Writer::new(Features::NONE);
        hello.raw(BANNER);
        local.addrs.legacy().encode(&mut hello);
        EntityAddr { kind: AddrKind::LEGACY, nonce: 0, sock: Some(sock) }.encode(&mut hello);
        writer.raw(hello.as_slice());
        let mut session = Session::new(Policy::stateless_server());
        session.legacy = true;
        Self {
            local,
            acceptor,
            rules,
            phase: Phase::Banner,
            reader: Reader::new(),
            writer,
            seals: Seals::default(),
            session,
            peer: Peer { sock: Some(sock), ..Peer::default() },
            knocking: Knocking::default(),
            asked: None,
            events: VecDeque::new(),
            in_flight: 0,
            taken: 0,
            closed: false,
        }
    }

    /// See [`crate::Connection::read_buf`].
    pub fn read_buf(&mut self) -> Limit<&mut BytesMut> {
        self.reader.intake.read_buf()
    }

    /// See [`crate::Connection::lend_stage`].
    pub fn lend_stage(&mut self, spare: &mut Option<BytesMut>) {
        self.reader.intake.lend_stage(spare);
    }

    /// See [`crate::Connection::reclaim_stage`].
    pub fn reclaim_stage(&mut self, spare: &mut Option<BytesMut>) {
        self.reader.intake.reclaim_stage(spare);
    }

    /// See [`crate::Connection::wants_read`].
    #[must_use]
    pub fn wants_read(&self) -> bool {
        !self.reader.hold && self.phase != Phase::Deciding
    }

    /// See [`crate::Connection::release`].
    pub fn release(&mut self, cost: usize) {
        self.in_flight = self.in_flight.saturating_sub(cost);
        self.reader.hold = self.in_flight >= self.session.policy.budget_bytes;
    }

    /// Whether the handshake is over, at a monitor with what proves who is there.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.phase == Phase::Ready
    }

    /// Whether the client has proved its identity.
    #[must_use]
    pub fn is_authenticated(&self) -> bool {
        self.knocking.proof.is_some() || self.is_ready()
    }

    /// See [`crate::Connection::progress`].
    #[must_use]
    pub fn progress(&self) -> u8 {
        self.phase as u8
    }

    /// The other side, as far as it is known.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// The lasting half.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Bytes held of unfinished messages, and of messages waiting for the socket.
    #[must_use]
    pub fn held(&self) -> usize {
        self.reader.held() + self.writer.len()
    }

    /// The connection broke: what is left of a lossless session. What was sent stays so until the
    /// client has told what it received.
    #[must_use]
    pub fn into_session(self) -> Session {
        self.session
    }

    /// See [`crate::Connection::send`].
    ///
    /// # Errors
    /// [`Fault::TooLarge`] when a segment is beyond what a peer may take.
    pub fn send(&mut self, env: Envelope) -> Result<(), Fault> {
        self.session.send(env)
    }

    /// Asks the client whether it lives; it repeats `stamp`.
    pub fn keepalive(&mut self, stamp: UTime) {
        if self.is_ready() {
            let mut raw = [tag::KEEPALIVE2; 9];
            raw[1..5].copy_from_slice(&stamp.sec.to_le_bytes());
            raw[5..].copy_from_slice(&stamp.nsec.to_le_bytes());
            self.writer.raw(&raw);
        }
    }

    /// See [`crate::Connection::prepare`].
    pub fn prepare(&mut self) -> bool {
        if matches!(self.phase, Phase::Ready | Phase::Hello) {
            while self.writer.len() < OUT_BYTES_LOW {
                let Some((seq, env)) = self.session.pop() else { break };
                self.put_message(seq, &env);
            }
            if self.session.is_lossless() && self.session.acked_seq < self.session.in_seq {
                self.session.acked_seq = self.session.in_seq;
                let mut raw = [tag::ACK; 9];
                raw[1..].copy_from_slice(&self.session.in_seq.to_le_bytes());
                self.writer.raw(&raw);
            }
        }
        self.writer.len() > 0
    }

    fn put_message(&mut self, seq: u64, env: &Envelope) {
        let len = |bytes: &Bytes| u32::try_from(bytes.len()).expect("segments are limited");
        let mut header = Header {
            seq,
            tid: env.tid,
            kind: env.kind,
            priority: env.priority,
            version: env.version,
            front_len: len(&env.front),
            middle_len: len(&env.middle),
            data_len: len(&env.data),
            data_off: env.data_off,
            src: (self.local.kind.0, self.local.num.max(0)),
            compat: env.compat,
            crc: 0,
        };
        let segments = [&env.front, &env.middle, &env.data];
        self.writer.raw(&[tag::MSG]);
        self.writer.raw(&header.encode());
        for segment in segments {
            self.writer.segment(segment);
        }
        let crcs = segments.map(|s| crc32c(0, s));
        let mut footer = Footer { crcs, signature: 0, flags: flag::COMPLETE };
        if let Some(signer) = &self.seals.signer {
            footer.signature = signer.sign(footer.signed_words(&header));
            footer.flags |= flag::SIGNED;
        }
        self.writer.raw(&footer.encode(!self.seals.long));
    }

    /// See [`crate::Connection::slices`].
    pub fn slices<'a>(&'a self, out: &mut [IoSlice<'a>]) -> usize {
        self.writer.slices(out)
    }

    /// See [`crate::Connection::advance`].
    pub fn advance(&mut self, n: usize) {
        self.writer.advance(n);
    }

    /// Bytes waiting for the socket.
    #[must_use]
    pub fn unwritten(&self) -> usize {
        self.writer.len()
    }

    /// See [`crate::Connection::poll`].
    ///
    /// # Errors
    /// The connection is over, by the client's breach of the protocol or by a refusal.
    pub fn poll(&mut self, now: Now) -> Result<Option<Event>, Fault> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            if self.closed {
                return Err(Fault::Closed);
            }
            if self.phase != Phase::Ready && self.taken > HANDSHAKE_BYTES_MAX {
                return Err(Fault::Frame("the handshake is too long"));
            }
            let went_on = match self.phase {
                Phase::Banner => self.on_banner()?,
                Phase::Connect => self.on_connect_bytes(now)?,
                Phase::Deciding => false,
                Phase::Seq => self.on_seq(),
                Phase::Hello | Phase::Ready => match self.reader.next(&self.seals)? {
                    None => false,
                    Some(item) => {
                        if let Some(message) = self.on_item(now, item)? {
                            return Ok(Some(message));
                        }
                        true
                    }
                },
            };
            if !went_on {
                return Ok(None);
            }
        }
    }

    fn on_banner(&mut self) -> Result<bool, Fault> {
        let raw = &self.reader.intake.stage;
        let known = raw.len().min(BANNER.len());
        if raw[..known] != BANNER[..known] {
            return Err(Fault::Banner);
        }
        if raw.len() < BANNER.len() + ADDR_LEN {
            return Ok(false);
        }
        let mut addr = EntityAddr::from_bytes(&raw[BANNER.len()..BANNER.len() + ADDR_LEN])?;
        self.reader.intake.stage.advance(BANNER.len() + ADDR_LEN);
        self.taken += BANNER.len() + ADDR_LEN;
        let seen = self.peer.sock.expect("set at the beginning");
        let port = addr.sock.map_or(0, |sock| sock.port());
        // A client that does not listen may not know its IP; and whoever names another one is not
        // believed.
        addr.kind = AddrKind::LEGACY;
        addr.sock = Some(SocketAddr::new(seen.ip().to_canonical(), port));
        self.peer.addrs = addr.into();
        self.phase = Phase::Connect;
        Ok(true)
    }

    /// The connect and the authorizer behind it.
    fn on_connect_bytes(&mut self, now: Now) -> Result<bool, Fault> {
        let connect = match self.asked {
            Some(connect) => connect,
            None => {
                let Some(raw) = self.reader.intake.array::<CONNECT_LEN>() else {
                    return Ok(false);
                };
                let connect = Connect::parse(&raw);
                if connect.authorizer_len > HANDSHAKE_MAX {
                    return Err(Fault::Frame("the authorizer is too long"));
                }
                self.taken += CONNECT_LEN + connect.authorizer_len as usize;
                self.asked = Some(connect);
                connect
            }
        };
        let len = connect.authorizer_len as usize;
        let authorizer = if len == 0 {
            BytesMut::new()
        } else {
            match self.reader.intake.gather(len, || BytesMut::with_capacity(len)) {
                Some(authorizer) => authorizer,
                None => return Ok(false),
            }
        };
        self.asked = None;
        self.on_connect(now, connect, &authorizer)?;
        Ok(true)
    }

    fn required(&self) -> Features {
        let signed =
            if self.rules.require_signatures { Features::MSG_AUTH } else { Features::NONE };
        // Authorizers without a challenge can be replayed.
        self.session.policy.required | Features::MSG_ADDR2 | Features::CEPHX_V2 | signed
    }

    fn reply(&mut self, tag: u8, connect: &Connect, change: impl FnOnce(&mut ConnectReply)) {
        let mut reply = ConnectReply {
            tag,
            features: (connect.features & self.local.features.0) | self.required().0,
            protocol_version: protocol_version(self.local.kind),
            flags: if self.session.policy.lossy { FLAG_LOSSY } else { 0 },
            ..ConnectReply::default()
        };
        change(&mut reply);
        self.writer.raw(&reply.encode());
    }

    fn on_connect(&mut self, now: Now, connect: Connect, authorizer: &[u8]) -> Result<(), Fault> {
        let kind = u8::try_from(connect.host_type).map(EntityKind).unwrap_or_default();
        if kind != EntityKind::CLIENT {
            return Err(Fault::WrongPeer("daemons speak messenger v2"));
        }
        self.peer.id = EntityId::new(kind, -1);
        self.session.policy = self.acceptor.policy(kind);
        if connect.protocol_version != protocol_version(self.local.kind) {
            self.reply(tag::BADPROTOVER, &connect, |_| ());
            return Ok(());
        }
        if Features(connect.features).missing(self.required()).0 != 0 {
            self.reply(tag::FEATURES, &connect, |_| ());
            return Ok(());
        }
        if self.local.kind == EntityKind::MON {
            return self.welcome(&connect, &Bytes::new());
        }
        let method = connect.authorizer_protocol;
        match self.ask_auth(now, method, authorizer) {
            ServerStep::More(challenge) => {
                let len = challenge.len() as u32;
                self.reply(tag::CHALLENGE_AUTHORIZER, &connect, |r| r.authorizer_len = len);
                self.writer.raw(&challenge);
                Ok(())
            }
            ServerStep::Refuse { .. } => {
                self.reply(tag::BADAUTHORIZER, &connect, |_| ());
                Ok(())
            }
            ServerStep::Leave => Err(Fault::NotNow),
            ServerStep::Done(done) => {
                self.peer.identity = done.peer.clone();
                self.peer.id.num = i64::try_from(done.global_id).unwrap_or(-1);
                let reply = done.payload.clone();
                self.knocking.proof = Some(*done);
                if self.session.policy.lossy {
                    return self.welcome(&connect, &reply);
                }
                self.events.push_back(Event::Connect(Ask {
                    addrs: self.peer.addrs.clone(),
                    global_seq: connect.global_seq.into(),
                    connect_seq: connect.connect_seq.into(),
                }));
                self.asked = Some(connect);
                self.phase = Phase::Deciding;
                Ok(())
            }
        }
    }

    /// One step of the authentication; a refusal is told to the log.
    fn ask_auth(&mut self, now: Now, method: u32, payload: &[u8]) -> ServerStep {
        let sock = self.peer.sock.expect("set at the beginning");
        let kind = self.peer.id.kind;
        let acceptor = self.acceptor.clone();
        let auth = self.knocking.auth.get_or_insert_with(|| acceptor.auth(kind, sock));
        let goes_on = self.knocking.method == Some(method);
        let step = if goes_on {
            auth.more(now, payload)
        } else {
            let from = EntityAddr { kind: AddrKind::LEGACY, nonce: 0, sock: Some(sock) };
            auth.request(now, kind, &from, method, &[con_mode::CRC], payload)
        };
        match &step {
            ServerStep::More(_) => self.knocking.method = Some(method),
            ServerStep::Refuse { .. } => {
                if let Some(reason) = auth.refusal() {
                    self.events.push_back(Event::AuthRefused(reason.to_owned()));
                }
                self.knocking.method = None;
            }
            ServerStep::Leave | ServerStep::Done(_) => {}
        }
        step
    }

    /// The connection is accepted.
    fn welcome(&mut self, connect: &Connect, authorizer: &Bytes) -> Result<(), Fault> {
        self.session.peer_global_seq = connect.global_seq.into();
        self.session.connect_seq = u64::from(connect.connect_seq) + 1;
        self.peer.features = Features(connect.features) & self.local.features;
        self.seals.long = self.peer.features.has(Features::MSG_AUTH);
        let key = self.knocking.proof.as_ref().map(|proof| proof.session_key.clone());
        self.seals.signer = key
            .filter(|_| self.rules.sign && self.seals.long)
            .and_then(|key| MessageSigner::new(&key));
        let tells = self.peer.features.has(Features::RECONNECT_SEQ);
        let (connect_seq, len) = (connect.connect_seq.wrapping_add(1), authorizer.len() as u32);
        self.reply(if tells { tag::SEQ } else { tag::READY }, connect, |r| {
            r.global_seq = connect.global_seq;
            r.connect_seq = connect_seq;
            r.authorizer_len = len;
        });
        self.writer.raw(authorizer);
        if tells {
            self.writer.raw(&self.session.in_seq.to_le_bytes());
            self.session.acked_seq = self.session.in_seq;
            self.phase = Phase::Seq;
        } else {
            self.begin(0);
        }
        Ok(())
    }

    fn on_seq(&mut self) -> bool {
        let Some(raw) = self.reader.intake.array::<8>() else { return false };
        self.taken += raw.len();
        self.begin(u64::from_le_bytes(raw));
        true
    }

    /// Messages may come and go; the client has those up to `seq` of an earlier connection.
    fn begin(&mut self, seq: u64) {
        let resumed = self.session.out_seq > 0 || self.session.in_seq > 0;
        self.session.on_ack(seq);
        self.session.requeue();
        if self.local.kind == EntityKind::MON {
            self.phase = Phase::Hello;
        } else {
            self.become_ready(resumed);
        }
    }

    fn become_ready(&mut self, resumed: bool) {
        self.phase = Phase::Ready;
        self.reader.ready = true;
        self.peer.lossy = self.session.policy.lossy;
        self.events.push_back(Event::Ready { resumed });
    }

    fn on_item(&mut self, now: Now, item: Item) -> Result<Option<Event>, Fault> {
        match item {
            Item::Ack(seq) => self.session.on_ack(seq),
            Item::Keepalive2(stamp) => {
                if self.phase == Phase::Hello {
                    self.taken += stamp.len();
                }
                self.writer.raw(&[tag::KEEPALIVE2_ACK]);
                self.writer.raw(&stamp);
            }
            Item::Keepalive2Ack(raw) => {
                return Ok(self.is_ready().then(|| {
                    let word = |i: usize| {
                        u32::from_le_bytes(raw[i..i + 4].try_into().expect("four bytes"))
                    };
                    Event::KeepaliveAck(UTime { sec: word(0), nsec: word(4) })
                }));
            }
            Item::Close => self.closed = true,
            Item::Message { header, segments: [front, middle, data], data_sums } => {
                if !self.session.on_message(header.seq) {
                    return Ok(None); // a duplicate, sent again after a break
                }
                let env = Envelope {
                    tid: header.tid,
                    kind: header.kind,
                    priority: header.priority,
                    version: header.version,
                    compat: header.compat,
                    data_off: header.data_off,
                    front,
                    middle,
                    data,
                    data_sums,
                };
                if self.phase == Phase::Hello {
                    self.on_hello(now, &env)?;
                    return Ok(None);
                }
                let cost = env.size();
                self.in_flight += cost;
                self.reader.hold = self.in_flight >= self.session.policy.budget_bytes;
                return Ok(Some(Event::Message { env, cost }));
            }
        }
        Ok(None)
    }

    /// At a monitor, from a client that has not proved who it is. All but MAuth is passed over.
    fn on_hello(&mut self, now: Now, env: &Envelope) -> Result<(), Fault> {
        self.taken += env.size() + CONNECT_LEN;
        if env.kind != Auth::KIND {
            return Ok(());
        }
        let ask = Auth::decode(env)?;
        let (protocol, step) = if ask.protocol == method::UNKNOWN {
            self.knocking.method = None;
            self.choose_method(now, &ask.payload)?
        } else {
            match self.knocking.method {
                Some(method) if method == ask.protocol => {
                    (method, self.ask_auth(now, method, &ask.payload))
                }
                _ => return Err(Fault::Frame("authentication begins with a choice of methods")),
            }
        };
        // A client that hears of another number begins anew.
        let global_id = self.knocking.auth.as_ref().map_or(0, |auth| auth.global_id());
        let mut reply = AuthReply {
            protocol,
            result: 0,
            global_id,
            payload: Bytes::new(),
            message: String::new(),
        };
        match step {
            ServerStep::Leave => return Err(Fault::NotNow),
            ServerStep::More(payload) => reply.payload = payload,
            ServerStep::Refuse { result, .. } => reply.result = result,
            ServerStep::Done(done) => {
                reply.payload = done.payload.clone();
                reply.global_id = done.global_id;
                self.peer.identity = done.peer.clone();
                self.peer.id.num = i64::try_from(done.global_id).unwrap_or(-1);
                self.knocking.proof = Some(*done);
            }
        }
        self.session.push(reply.envelope(self.peer.features));
        if self.knocking.proof.is_some() {
            self.become_ready(false);
        }
        Ok(())
    }

    /// The client's first MAuth: version 1, methods, name, claimed global id.
    fn choose_method(&mut self, now: Now, payload: &Bytes) -> Result<(u32, ServerStep), Fault> {
        let mut r = denc::Reader::new(payload);
        let _version = r.u8()?;
        let methods: Vec<u32> = Denc::decode(&mut r)?;
        let mut claim = vec![proto::MODE_MON];
        claim.extend_from_slice(&r.rest());
        let mut last = None;
        for method in [method::CEPHX, method::NONE] {
            if !methods.contains(&method) {
                continue;
            }
            let step = self.ask_auth(now, method, &claim);
            if !matches!(step, ServerStep::Refuse { result: EOPNOTSUPP, .. }) {
                return Ok((method, step));
            }
            last = Some((method, step));
        }
        let none = ServerStep::Refuse {
            result: EOPNOTSUPP,
            allowed_methods: Vec::new(),
            allowed_modes: Vec::new(),
        };
        Ok(last.unwrap_or((method::CEPHX, none)))
    }

    /// Answers [`Event::Connect`]. `session` is the one to adopt.
    ///
    /// # Errors
    /// [`Fault::Replaced`] for [`Verdict::Stale`].
    ///
    /// # Panics
    /// When nothing was asked, or a verdict to adopt comes without a session.
    pub fn decide(&mut self, verdict: Verdict, session: Option<Session>) -> Result<(), Fault> {
        assert!(self.phase == Phase::Deciding, "a verdict answers a question");
        let connect = self.asked.take().expect("set with the phase");
        let authorizer = self.knocking.proof.as_ref().expect("set before").payload.clone();
        self.phase = Phase::Connect;
        match verdict {
            Verdict::Stale => return Err(Fault::Replaced),
            Verdict::Wait => self.reply(tag::WAIT, &connect, |_| ()),
            Verdict::Reset { .. } => self.reply(tag::RESETSESSION, &connect, |_| ()),
            Verdict::Retry(seq) => {
                self.reply(tag::RETRY_SESSION, &connect, |r| r.connect_seq = seq as u32);
            }
            Verdict::RetryGlobal(seq) => {
                self.reply(tag::RETRY_GLOBAL, &connect, |r| r.global_seq = seq as u32);
            }
            Verdict::Fresh | Verdict::AdoptReset => return self.welcome(&connect, &authorizer),
            Verdict::Adopt => {
                let policy = self.session.policy;
                self.session = session.expect("there is one to adopt");
                self.session.policy = policy;
                return self.welcome(&connect, &authorizer);
            }
        }
        Ok(())
    }
}
