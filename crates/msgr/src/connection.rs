//! One TCP connection, from banner to end, in either role.
//!
//! ```text
//!  accepting:  Banner ► Hello ► Auth ► Signature ► Ident ─► Ready
//!                                                   │  ▲ Reset, Retry, missing features
//!                                                   ▼  │
//!                                              (driver's verdict; lossless only)
//!
//!  connecting: Banner ► Hello ► Auth ► Signature ► Asked ─► Ready
//! ```
//! Up to `Auth` nothing the peer says may be trusted; in `Signature` its key is proved, and
//! behind it the frames seen so far; in `Ready` [`Peer`] is complete.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use auth::{ClientAuth, PeerIdentity, ServerAuth, ServerStep};
use aws_lc_rs::{constant_time, hmac};
use bytes::buf::Limit;
use bytes::{Bytes, BytesMut};
use denc::{Denc, Features};
use env::Now;
use messages::Envelope;
use types::{AddrKind, AddrVec, EntityAddr, EntityId, EntityKind, UTime};

use crate::Fault;
use crate::control::{
    self, AuthBadMethod, AuthDone, AuthRequest, ClientIdent, FLAG_LOSSY, Hello, Reconnect,
    ServerIdent,
};
use crate::frame::{BANNER, Header, REVISION_1, tag};
use crate::reader::{Frame, FrameReader};
use crate::secure;
use crate::session::{Ident, Policy, Resume, Session, Verdict};
use crate::writer::FrameWriter;

/// Raw bytes that one side may send before its signature.
pub(crate) const HANDSHAKE_BYTES_MAX: usize = 256 << 10;
/// Messages are put on the wire while less than this waits for the socket.
pub(crate) const OUT_BYTES_LOW: usize = 512 << 10;

/// Whether frames are only checked or also encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConMode {
    /// CRC-32C on every segment.
    #[default]
    Crc,
    /// AES-128-GCM.
    Secure,
}

/// Who we are on a connection.
#[derive(Clone, Debug)]
pub struct Local {
    /// Our kind.
    pub kind: EntityKind,
    /// Our rank, id or global id; -1 while unknown.
    pub num: i64,
    /// Where we listen; blank for clients, who then show the address that the server sees.
    pub addrs: AddrVec,
    /// Tells our incarnations apart where `addrs` is blank.
    pub nonce: u32,
    /// What we support.
    pub features: Features,
}

/// The other side of a ready connection.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// Kind and number (rank, OSD id, global id).
    pub id: EntityId,
    /// Name, global id and caps as proved; on a connection we dialled only what we know:
    /// the global id is our own there.
    pub identity: PeerIdentity,
    /// Its addresses.
    pub addrs: AddrVec,
    /// The socket's other end.
    pub sock: Option<SocketAddr>,
    /// What both sides support: choose encodings by this.
    pub features: Features,
    /// Crc or secure.
    pub con_mode: ConMode,
    /// Whether a break of the connection ends it.
    pub lossy: bool,
    /// Whether we dialled.
    pub outgoing: bool,
}

impl Peer {
    /// The address by which caps judge the peer: the first that it named, with the socket's IP. Port
    /// and nonce are the peer's word.
    #[must_use]
    pub fn seen_addr(&self) -> EntityAddr {
        let mut addr = self.addrs.front();
        if let Some(seen) = self.sock {
            let at = addr.sock.get_or_insert(SocketAddr::new(seen.ip(), 0));
            at.set_ip(seen.ip().to_canonical());
        }
        addr
    }

    /// All addresses, [`Self::seen_addr`] first where what the peer named has another IP.
    #[must_use]
    pub fn seen_addrs(&self) -> AddrVec {
        let (seen, mut all) = (self.seen_addr(), self.addrs.clone());
        if all.front() != seen {
            all.0.insert(0, seen);
        }
        all
    }
}

/// Whom to connect to, and how.
#[derive(Clone, Debug)]
pub struct Dial {
    /// The address, with the nonce that the peer must show.
    pub addr: EntityAddr,
    /// All its addresses, as known from a map; may be blank.
    pub addrs: AddrVec,
    /// What it must be.
    pub kind: EntityKind,
    /// How to deal with breaks.
    pub policy: Policy,
    /// Higher than on any earlier connection of ours.
    pub global_seq: u64,
    /// Random; shown on lossless sessions.
    pub cookie: u64,
}

/// What an accepting connection asks its owner.
pub trait Acceptor {
    /// The authentication of one connection from a peer that says it is a `kind`.
    fn auth(&self, kind: EntityKind, from: SocketAddr) -> Box<dyn ServerAuth>;
    /// How connections with a `kind` behave.
    fn policy(&self, kind: EntityKind) -> Policy;
}

/// What came of the bytes received.
#[derive(Debug)]
pub enum Event {
    /// The handshake is over; [`Connection::peer`] is complete. On a resumed session it
    /// happens again.
    Ready {
        /// The session goes on where the last connection broke.
        resumed: bool,
    },
    /// A message.
    Message {
        /// It.
        env: Envelope,
        /// What to give back by [`Connection::release`] when it is done with.
        cost: usize,
    },
    /// A peer asks for a lossless session: call [`Connection::decide`].
    Ident(Ident),
    /// A peer asks for its old session: call [`Connection::decide`].
    Resume(Resume),
    /// A client of messenger v1 asks for a lossless session: call [`crate::Machine::decide`].
    Connect(crate::v1::Ask),
    /// The peer lost the session; what was queued for it is gone.
    RemoteReset,
    /// The peer answered a keepalive that carried this time.
    KeepaliveAck(UTime),
    /// Authentication was refused; the reason, for the log.
    AuthRefused(String),
}

enum Side {
    Accepting { acceptor: Rc<dyn Acceptor>, auth: Option<Knocking> },
    Dialling { dial: Dial, auth: Box<dyn ClientAuth> },
}

/// The authentication of an accepted connection.
struct Knocking {
    auth: Box<dyn ServerAuth>,
    /// The method of the AUTH_REQUEST under way. Every refusal of it names this method: upstream's
    /// clients look it up among their own and abort where it is not there. `None` before the
    /// first request and after a refusal.
    method: Option<u32>,
}

/// In the order of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Banner,
    Hello,
    Auth,
    Signature,
    /// Accepting: waits for CLIENT_IDENT or SESSION_RECONNECT.
    Ident,
    /// Accepting: waits for [`Connection::decide`].
    Deciding,
    /// Dialling: waits for the answer.
    Asked,
    Ready,
}

/// One TCP connection.
pub struct Connection {
    local: Arc<Local>,
    side: Side,
    phase: Phase,
    reader: FrameReader,
    writer: FrameWriter,
    session: Session,
    peer: Peer,
    /// What the peer's signature must be.
    expected: [u8; 32],
    con_mode: ConMode,
    /// The request that waits for a verdict.
    asked: Option<(ClientIdent, Option<Reconnect>)>,
    /// Our own address as the peer sees it.
    seen_as: Option<SocketAddr>,
    events: VecDeque<Event>,
    in_flight: usize,
}

fn signature(key: &[u8], raw: &[u8]) -> [u8; 32] {
    if key.is_empty() {
        return [0; 32];
    }
    let mac = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), raw);
    mac.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

impl Connection {
    fn new(local: Arc<Local>, side: Side, session: Session, sock: SocketAddr) -> Self {
        let mut writer = FrameWriter::new();
        let mut banner = [0; 26];
        banner[..8].copy_from_slice(BANNER);
        banner[8] = 16;
        banner[10] = REVISION_1 as u8;
        writer.raw(&banner);
        let outgoing = matches!(side, Side::Dialling { .. });
        Self {
            local,
            side,
            phase: Phase::Banner,
            reader: FrameReader::new(),
            writer,
            session,
            peer: Peer { sock: Some(sock), outgoing, ..Peer::default() },
            expected: [0; 32],
            con_mode: ConMode::Crc,
            asked: None,
            seen_as: None,
            events: VecDeque::new(),
            in_flight: 0,
        }
    }

    /// A connection that came in from `sock`.
    #[must_use]
    pub fn accept(local: Arc<Local>, acceptor: Rc<dyn Acceptor>, sock: SocketAddr) -> Self {
        let session = Session::new(Policy::stateless_server());
        Self::new(local, Side::Accepting { acceptor, auth: None }, session, sock)
    }

    /// A connection to `sock`, for a new session or one that broke.
    #[must_use]
    pub fn dial(
        local: Arc<Local>,
        dial: Dial,
        auth: Box<dyn ClientAuth>,
        session: Option<Session>,
        sock: SocketAddr,
    ) -> Self {
        let mut session = session.unwrap_or_else(|| Session::new(dial.policy));
        if session.is_lossless() && session.client_cookie == 0 {
            session.client_cookie = dial.cookie.max(1);
        }
        Self::new(local, Side::Dialling { dial, auth }, session, sock)
    }

    /// Where the next bytes from the socket belong; afterwards call [`Connection::poll`].
    pub fn read_buf(&mut self) -> Limit<&mut BytesMut> {
        self.reader.intake.read_buf()
    }

    /// Lends a read buffer for the next [`Connection::read_buf`]; idle connections need
    /// none of their own.
    pub fn lend_stage(&mut self, spare: &mut Option<BytesMut>) {
        self.reader.intake.lend_stage(spare);
    }

    /// Takes back a lent read buffer, unless it holds the beginning of a frame.
    pub fn reclaim_stage(&mut self, spare: &mut Option<BytesMut>) {
        self.reader.intake.reclaim_stage(spare);
    }

    /// Whether the socket should be read: not while the role holds too much, nor while a
    /// verdict is awaited.
    #[must_use]
    pub fn wants_read(&self) -> bool {
        !self.reader.hold && self.phase != Phase::Deciding
    }

    /// The role is done with messages of this cost.
    pub fn release(&mut self, cost: usize) {
        self.in_flight = self.in_flight.saturating_sub(cost);
        self.reader.hold = self.in_flight >= self.session.policy.budget_bytes;
    }

    /// Bytes of messages in the role's hands.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Whether the handshake is over.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.phase == Phase::Ready
    }

    /// Whether the peer has proved its identity.
    #[must_use]
    pub fn is_authenticated(&self) -> bool {
        matches!(self.phase, Phase::Ident | Phase::Deciding | Phase::Asked | Phase::Ready)
    }

    /// How far the handshake is: 0 before the peer has said anything, more with each step.
    #[must_use]
    pub fn progress(&self) -> u8 {
        self.phase as u8
    }

    /// The other side, as far as it is known.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// The policy in force.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.session.policy
    }

    /// The lasting half.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Our own IP as the server sees it; clients learn it so.
    #[must_use]
    pub fn seen_as(&self) -> Option<SocketAddr> {
        self.seen_as
    }

    /// Bytes held of unfinished frames, and of frames waiting for the socket.
    #[must_use]
    pub fn held(&self) -> usize {
        let records = self.reader.record.as_ref().map_or(0, Vec::len);
        self.reader.held() + self.writer.len() + records
    }

    /// The connection broke: what is left of a lossless session.
    #[must_use]
    pub fn into_session(self) -> Session {
        let mut session = self.session;
        session.requeue();
        if matches!(self.side, Side::Dialling { .. }) && session.server_cookie != 0 {
            session.connect_seq += 1; // the next attempt's
        }
        session
    }

    /// Queues a message; it leaves when the handshake is over.
    ///
    /// # Errors
    /// [`Fault::TooLarge`] when a segment is beyond what a peer may take.
    pub fn send(&mut self, env: Envelope) -> Result<(), Fault> {
        self.session.send(env)
    }

    /// Asks the peer whether it lives; it repeats `stamp`.
    ///
    /// # Errors
    /// [`Fault::Sealed`] when the nonces are used up.
    pub fn keepalive(&mut self, stamp: UTime) -> Result<(), Fault> {
        if self.is_ready() {
            self.put(tag::KEEPALIVE2, &stamp)?;
        }
        Ok(())
    }

    /// Puts queued messages on the wire, as many as the socket is to take soon. Returns
    /// whether there is anything to write.
    ///
    /// # Errors
    /// [`Fault::Sealed`] when the nonces are used up.
    pub fn prepare(&mut self) -> Result<bool, Fault> {
        if self.phase == Phase::Ready {
            while self.writer.len() < OUT_BYTES_LOW {
                let Some((seq, env)) = self.session.pop() else { break };
                let header = Header {
                    seq,
                    tid: env.tid,
                    kind: env.kind,
                    priority: env.priority,
                    version: env.version,
                    data_off: env.data_off,
                    ack_seq: self.session.in_seq,
                    compat: env.compat,
                };
                self.session.acked_seq = self.session.in_seq;
                self.writer.message(&header, &env)?;
            }
            if self.session.is_lossless() && self.session.acked_seq < self.session.in_seq {
                self.session.acked_seq = self.session.in_seq;
                self.put(tag::ACK, &self.session.in_seq.clone())?;
            }
        }
        Ok(self.writer.len() > 0)
    }

    /// Fills `out` with what to write next; returns how many entries are used.
    pub fn slices<'a>(&'a self, out: &mut [IoSlice<'a>]) -> usize {
        self.writer.slices(out)
    }

    /// The socket took the first `n` bytes.
    pub fn advance(&mut self, n: usize) {
        self.writer.advance(n);
    }

    /// Bytes waiting for the socket.
    #[must_use]
    pub fn unwritten(&self) -> usize {
        self.writer.len()
    }

    fn put(&mut self, tag: u8, payload: &impl Denc) -> Result<(), Fault> {
        self.writer.control(tag, &control::encode(payload))
    }

    /// Handles what was received until something is to be told; `None`: read more.
    ///
    /// # Errors
    /// The connection is over, by the peer's breach of the protocol or by its refusal.
    pub fn poll(&mut self, now: Now) -> Result<Option<Event>, Fault> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            if self.phase == Phase::Banner {
                if !self.on_banner()? {
                    return Ok(None);
                }
                continue;
            }
            if self.phase == Phase::Deciding {
                return Ok(None);
            }
            if self.reader.record.as_ref().is_some_and(|raw| raw.len() > HANDSHAKE_BYTES_MAX) {
                return Err(Fault::Frame("the handshake is too long"));
            }
            match self.reader.next()? {
                None => return Ok(None),
                Some(Frame::Message { header, front, middle, data, data_sums }) => {
                    self.session.on_ack(header.ack_seq);
                    if !self.session.on_message(header.seq) {
                        continue; // a duplicate, sent again after a break
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
                    let cost = env.size();
                    self.in_flight += cost;
                    self.reader.hold = self.in_flight >= self.session.policy.budget_bytes;
                    return Ok(Some(Event::Message { env, cost }));
                }
                Some(Frame::Control { tag, payload }) => self.on_control(now, tag, &payload)?,
            }
        }
    }

    fn on_banner(&mut self) -> Result<bool, Fault> {
        let raw = self.reader.peek();
        let known = raw.len().min(8);
        if raw[..known] != BANNER[..known] {
            return Err(Fault::Banner);
        }
        if raw.len() < 10 {
            return Ok(false);
        }
        let len = usize::from(u16::from_le_bytes([raw[8], raw[9]]));
        if !(16..=256).contains(&len) {
            return Err(Fault::Banner);
        }
        let Some(payload) = raw.get(10..10 + len) else { return Ok(false) };
        let word = |i: usize| u64::from_le_bytes(payload[i..i + 8].try_into().expect("8 bytes"));
        let (supported, required) = (word(0), word(8));
        if supported & REVISION_1 == 0 || required & !REVISION_1 != 0 {
            return Err(Fault::Banner);
        }
        self.reader.consume(10 + len);
        self.phase = Phase::Hello;
        let addr = match &self.side {
            Side::Dialling { dial, .. } => dial.addr,
            Side::Accepting { .. } => {
                let sock = self.peer.sock.expect("set at the beginning");
                EntityAddr::msgr2(sock, 0)
            }
        };
        self.put(tag::HELLO, &Hello { kind: self.local.kind.0, addr })?;
        Ok(true)
    }

    fn on_control(&mut self, now: Now, tag: u8, payload: &Bytes) -> Result<(), Fault> {
        let dialling = matches!(self.side, Side::Dialling { .. });
        match (self.phase, tag, dialling) {
            (Phase::Ready, tag::KEEPALIVE2, _) => {
                let stamp: UTime = control::decode(payload)?;
                self.put(tag::KEEPALIVE2_ACK, &stamp)
            }
            (Phase::Ready, tag::KEEPALIVE2_ACK, _) => {
                self.events.push_back(Event::KeepaliveAck(control::decode(payload)?));
                Ok(())
            }
            (Phase::Ready, tag::ACK, _) => {
                self.session.on_ack(control::decode(payload)?);
                Ok(())
            }
            (Phase::Hello, tag::HELLO, _) => self.on_hello(now, payload),
            (Phase::Auth, tag::AUTH_REQUEST | tag::AUTH_REQUEST_MORE, false) => {
                self.on_auth_request(now, tag, payload)
            }
            (Phase::Auth, tag::AUTH_BAD_METHOD | tag::AUTH_REPLY_MORE | tag::AUTH_DONE, true) => {
                self.on_auth_reply(now, tag, payload)
            }
            (Phase::Signature, tag::AUTH_SIGNATURE, _) => self.on_signature(payload),
            (Phase::Ident, tag::CLIENT_IDENT, false) => self.on_client_ident(payload),
            (Phase::Ident, tag::SESSION_RECONNECT, false) => self.on_reconnect(payload),
            (Phase::Asked, _, true) => self.on_session_reply(tag, payload),
            _ => Err(Fault::Unexpected { tag }),
        }
    }

    fn on_hello(&mut self, now: Now, payload: &Bytes) -> Result<(), Fault> {
        let hello: Hello = control::decode(payload)?;
        self.peer.id = EntityId::new(hello.kind(), -1);
        self.phase = Phase::Auth;
        match &mut self.side {
            Side::Accepting { acceptor, auth } => {
                let sock = self.peer.sock.expect("set at the beginning");
                *auth = Some(Knocking { auth: acceptor.auth(hello.kind(), sock), method: None });
                self.session.policy = acceptor.policy(hello.kind());
                Ok(())
            }
            Side::Dialling { dial, auth } => {
                if hello.kind() != dial.kind {
                    return Err(Fault::WrongPeer("another kind of daemon"));
                }
                self.seen_as = hello.addr.sock;
                let start = auth.start(now)?;
                self.request_auth(start)
            }
        }
    }

    fn request_auth(&mut self, start: auth::ClientStart) -> Result<(), Fault> {
        let auth::ClientStart { method, modes, payload } = start;
        self.put(tag::AUTH_REQUEST, &AuthRequest { method, modes, payload })
    }

    fn on_auth_request(&mut self, now: Now, tag: u8, payload: &Bytes) -> Result<(), Fault> {
        let Side::Accepting { auth: Some(Knocking { auth, method: asked }), .. } = &mut self.side
        else {
            return Err(Fault::Unexpected { tag });
        };
        let (method, step) = if tag == tag::AUTH_REQUEST {
            let ask: AuthRequest = control::decode(payload)?;
            let from = EntityAddr::msgr2(self.peer.sock.expect("set at the beginning"), 0);
            let kind = self.peer.id.kind;
            let step = auth.request(now, kind, &from, ask.method, &ask.modes, &ask.payload);
            (ask.method, step)
        } else {
            // It continues a request that was answered by AUTH_REPLY_MORE.
            let method = asked.ok_or(Fault::Unexpected { tag })?;
            let payload: Bytes = control::decode(payload)?;
            (method, auth.more(now, &payload))
        };
        *asked = matches!(step, ServerStep::More(_)).then_some(method);
        match step {
            ServerStep::More(reply) => self.put(tag::AUTH_REPLY_MORE, &reply),
            ServerStep::Refuse { result, allowed_methods, allowed_modes } => {
                if let Some(reason) = auth.refusal() {
                    self.events.push_back(Event::AuthRefused(reason.to_owned()));
                }
                let refusal = AuthBadMethod {
                    method,
                    result,
                    methods: allowed_methods,
                    modes: allowed_modes,
                };
                self.put(tag::AUTH_BAD_METHOD, &refusal)
            }
            ServerStep::Leave => Err(Fault::NotNow),
            ServerStep::Done(done) => {
                let auth::AuthDone {
                    global_id,
                    con_mode,
                    payload,
                    session_key,
                    connection_secret,
                    peer,
                } = *done;
                self.peer.identity = peer;
                self.put(tag::AUTH_DONE, &AuthDone { global_id, mode: con_mode, payload })?;
                self.sign(con_mode, &session_key, &connection_secret)
            }
        }
    }

    fn on_auth_reply(&mut self, now: Now, tag: u8, payload: &Bytes) -> Result<(), Fault> {
        let Side::Dialling { auth, .. } = &mut self.side else {
            return Err(Fault::Unexpected { tag });
        };
        match tag {
            tag::AUTH_BAD_METHOD => {
                let no: AuthBadMethod = control::decode(payload)?;
                let start = auth.bad_method(now, no.method, no.result, &no.methods, &no.modes)?;
                self.request_auth(start)
            }
            tag::AUTH_REPLY_MORE => {
                let payload: Bytes = control::decode(payload)?;
                let more = auth.more(now, &payload)?;
                self.put(tag::AUTH_REQUEST_MORE, &more)
            }
            _ => {
                let done: AuthDone = control::decode(payload)?;
                let ours = auth.done(now, done.global_id, done.mode, &done.payload)?;
                self.peer.identity.global_id = ours.global_id;
                self.sign(done.mode, &ours.session_key, &ours.connection_secret)
            }
        }
    }

    /// Both sides hold the key: prove it, and change to the agreed mode.
    fn sign(&mut self, mode: u32, key: &[u8], secret: &[u8]) -> Result<(), Fault> {
        let received = self.reader.record.take().unwrap_or_default();
        let sent = self.writer.record.take().unwrap_or_default();
        self.expected = signature(key, &sent);
        match mode {
            auth::handshake::con_mode::CRC => self.con_mode = ConMode::Crc,
            auth::handshake::con_mode::SECURE => {
                let (rx, tx) = match self.side {
                    Side::Accepting { .. } => secure::server_ciphers(secret)?,
                    Side::Dialling { .. } => secure::client_ciphers(secret)?,
                };
                self.reader.secure(rx);
                self.writer.secure(tx);
                self.con_mode = ConMode::Secure;
            }
            _ => return Err(Fault::Frame("the connection mode is crc or secure")),
        }
        self.peer.con_mode = self.con_mode;
        self.phase = Phase::Signature;
        self.writer.control(tag::AUTH_SIGNATURE, &signature(key, &received))
    }

    fn on_signature(&mut self, payload: &Bytes) -> Result<(), Fault> {
        if constant_time::verify_slices_are_equal(payload, &self.expected).is_err() {
            return Err(Fault::Frame("the peer's signature differs"));
        }
        if let Side::Accepting { .. } = self.side {
            self.phase = Phase::Ident;
            return Ok(());
        }
        self.phase = Phase::Asked;
        self.ask_session()
    }

    /// Our addresses on this connection.
    fn my_addrs(&self) -> AddrVec {
        if !self.local.addrs.is_blank() {
            return self.local.addrs.clone();
        }
        let mut sock = self.seen_as.or(self.peer.sock).expect("one of them is set");
        sock.set_port(0);
        EntityAddr { kind: AddrKind::ANY, nonce: self.local.nonce, sock: Some(sock) }.into()
    }

    fn required(&self) -> Features {
        self.session.policy.required | Features::MSG_ADDR2
    }

    /// Dialling: asks for a new session, or for the one that broke.
    fn ask_session(&mut self) -> Result<(), Fault> {
        let Side::Dialling { dial, .. } = &self.side else { unreachable!("only the dialler asks") };
        if self.session.server_cookie != 0 {
            let ask = Reconnect {
                addrs: self.my_addrs(),
                client_cookie: self.session.client_cookie,
                server_cookie: self.session.server_cookie,
                global_seq: dial.global_seq,
                connect_seq: self.session.connect_seq,
                msg_seq: self.session.in_seq,
            };
            return self.put(tag::SESSION_RECONNECT, &ask);
        }
        let ask = ClientIdent {
            addrs: self.my_addrs(),
            target: dial.addr,
            gid: self.local.num,
            global_seq: dial.global_seq,
            supported: self.local.features.0,
            required: self.required().0,
            flags: if self.session.policy.lossy { FLAG_LOSSY } else { 0 },
            cookie: self.session.client_cookie,
        };
        self.put(tag::CLIENT_IDENT, &ask)
    }

    fn on_session_reply(&mut self, tag: u8, payload: &Bytes) -> Result<(), Fault> {
        match tag {
            tag::SERVER_IDENT => self.on_server_ident(payload),
            tag::IDENT_MISSING_FEATURES => Err(Fault::Features(control::decode(payload)?)),
            tag::SESSION_RECONNECT_OK => {
                self.session.on_ack(control::decode(payload)?);
                self.session.requeue();
                self.become_ready(true);
                Ok(())
            }
            tag::SESSION_RESET => {
                if control::decode::<bool>(payload)? {
                    self.session.reset();
                    self.events.push_back(Event::RemoteReset);
                } else {
                    self.session.restart();
                }
                if let Side::Dialling { dial, .. } = &self.side
                    && self.session.client_cookie == 0
                {
                    self.session.client_cookie = dial.cookie.max(1);
                }
                self.ask_session()
            }
            tag::SESSION_RETRY => {
                self.session.connect_seq = control::decode::<u64>(payload)?.saturating_add(1);
                self.ask_session()
            }
            tag::SESSION_RETRY_GLOBAL => {
                let theirs: u64 = control::decode(payload)?;
                if let Side::Dialling { dial, .. } = &mut self.side {
                    dial.global_seq = dial.global_seq.max(theirs).saturating_add(1);
                }
                self.ask_session()
            }
            tag::WAIT => Err(Fault::Wait),
            _ => Err(Fault::Unexpected { tag }),
        }
    }

    /// The global seq last used, at least; the next connection's must be higher.
    #[must_use]
    pub fn global_seq(&self) -> u64 {
        match &self.side {
            Side::Dialling { dial, .. } => dial.global_seq,
            Side::Accepting { .. } => 0,
        }
    }

    fn on_server_ident(&mut self, payload: &Bytes) -> Result<(), Fault> {
        let ident: ServerIdent = control::decode(payload)?;
        let Side::Dialling { dial, .. } = &self.side else { unreachable!("only the dialler asks") };
        if !ident.addrs.0.contains(&dial.addr) {
            return Err(Fault::WrongPeer("another address or incarnation"));
        }
        let missing = self.local.features.missing(Features(ident.required)).0
            | Features(ident.supported).missing(self.required()).0;
        if missing != 0 {
            return Err(Fault::Features(missing));
        }
        self.peer.addrs = ident.addrs;
        self.peer.id.num = ident.gid;
        self.peer.features = self.local.features & Features(ident.supported);
        self.session.policy.lossy = ident.flags & FLAG_LOSSY != 0;
        self.session.server_cookie = ident.cookie;
        self.session.peer_global_seq = ident.global_seq;
        // A session that starts anew: what was sent before is sent again.
        self.session.requeue();
        (self.session.in_seq, self.session.acked_seq) = (0, 0);
        self.become_ready(false);
        Ok(())
    }

    fn become_ready(&mut self, resumed: bool) {
        self.phase = Phase::Ready;
        self.reader.ready = true;
        self.peer.lossy = self.session.policy.lossy;
        self.asked = None;
        self.events.push_back(Event::Ready { resumed });
    }

    fn on_client_ident(&mut self, payload: &Bytes) -> Result<(), Fault> {
        let ident: ClientIdent = control::decode(payload)?;
        if ident.addrs.0.is_empty() {
            return Err(Fault::Frame("a client names its address"));
        }
        if !self.local.addrs.0.contains(&ident.target) {
            return Err(Fault::WrongPeer("it wants another daemon"));
        }
        let missing = Features(ident.supported).missing(self.required()).0;
        if missing != 0 {
            return self.put(tag::IDENT_MISSING_FEATURES, &missing);
        }
        self.peer.addrs = ident.addrs.clone();
        self.peer.id.num = ident.gid;
        self.peer.features = self.local.features & Features(ident.supported);
        if self.session.policy.lossy {
            return self.welcome(&ident, 0);
        }
        self.events.push_back(Event::Ident(Ident {
            addrs: ident.addrs.clone(),
            client_cookie: ident.cookie,
            global_seq: ident.global_seq,
        }));
        self.asked = Some((ident, None));
        self.phase = Phase::Deciding;
        Ok(())
    }

    /// SERVER_IDENT: the session begins.
    fn welcome(&mut self, ident: &ClientIdent, cookie: u64) -> Result<(), Fault> {
        self.session.client_cookie = ident.cookie;
        self.session.server_cookie = cookie;
        self.session.peer_global_seq = ident.global_seq;
        let reply = ServerIdent {
            addrs: self.local.addrs.clone(),
            gid: self.local.num,
            global_seq: ident.global_seq,
            supported: self.local.features.0,
            required: self.required().0,
            flags: if self.session.policy.lossy { FLAG_LOSSY } else { 0 },
            cookie,
        };
        self.put(tag::SERVER_IDENT, &reply)?;
        self.become_ready(false);
        Ok(())
    }

    fn on_reconnect(&mut self, payload: &Bytes) -> Result<(), Fault> {
        let ask: Reconnect = control::decode(payload)?;
        if ask.addrs.0.is_empty() {
            return Err(Fault::Frame("a client names its address"));
        }
        if self.session.policy.lossy {
            return self.put(tag::SESSION_RESET, &true);
        }
        self.peer.addrs = ask.addrs.clone();
        self.events.push_back(Event::Resume(Resume {
            addrs: ask.addrs.clone(),
            client_cookie: ask.client_cookie,
            server_cookie: ask.server_cookie,
            global_seq: ask.global_seq,
            connect_seq: ask.connect_seq,
            msg_seq: ask.msg_seq,
        }));
        let none = ClientIdent {
            addrs: ask.addrs.clone(),
            target: EntityAddr::default(),
            gid: -1,
            global_seq: ask.global_seq,
            supported: 0,
            required: 0,
            flags: 0,
            cookie: ask.client_cookie,
        };
        self.asked = Some((none, Some(ask)));
        self.phase = Phase::Deciding;
        Ok(())
    }

    /// Answers [`Event::Ident`] or [`Event::Resume`]. `session` is the one to adopt, with
    /// its peer as it was known; `cookie` is random, for a session that begins.
    ///
    /// # Errors
    /// [`Fault::Replaced`] for [`Verdict::Stale`]; [`Fault::Sealed`].
    ///
    /// # Panics
    /// When nothing was asked, or a verdict to adopt comes without a session.
    pub fn decide(
        &mut self,
        verdict: Verdict,
        session: Option<(Session, Peer)>,
        cookie: u64,
    ) -> Result<(), Fault> {
        assert!(self.phase == Phase::Deciding, "a verdict answers a question");
        let (ident, resume) = self.asked.take().expect("set with the phase");
        self.phase = Phase::Ident;
        match verdict {
            Verdict::Stale => Err(Fault::Replaced),
            Verdict::Wait => self.writer.control(tag::WAIT, &[]),
            Verdict::Reset { full } => self.put(tag::SESSION_RESET, &full),
            Verdict::Retry(connect_seq) => self.put(tag::SESSION_RETRY, &connect_seq),
            Verdict::RetryGlobal(global_seq) => self.put(tag::SESSION_RETRY_GLOBAL, &global_seq),
            Verdict::Fresh => self.welcome(&ident, cookie.max(1)),
            Verdict::Adopt | Verdict::AdoptReset => {
                let (mut session, old) = session.expect("there is one to adopt");
                session.requeue();
                if verdict == Verdict::AdoptReset {
                    session.reset();
                    self.events.push_back(Event::RemoteReset);
                }
                session.policy = Policy { server: session.policy.server, ..self.session.policy };
                self.session = session;
                let Some(ask) = resume else {
                    (self.session.in_seq, self.session.acked_seq) = (0, 0);
                    self.session.connect_seq = 0;
                    return self.welcome(&ident, cookie.max(1));
                };
                self.peer.id = old.id;
                self.peer.features = old.features;
                self.session.connect_seq = ask.connect_seq;
                self.session.peer_global_seq = ask.global_seq;
                self.session.on_ack(ask.msg_seq);
                self.session.acked_seq = self.session.in_seq;
                self.put(tag::SESSION_RECONNECT_OK, &self.session.in_seq.clone())?;
                self.become_ready(true);
                Ok(())
            }
        }
    }
}
