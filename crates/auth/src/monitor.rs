//! The monitors' side: who proves a key gets tickets.
//!
//! ```text
//! AUTH_REQUEST  mode 10, name, claimed global id      ─▶ challenge
//! AUTH_REQUEST_MORE  Authenticate {answer, old ticket} ─▶ AUTH_DONE: AUTH ticket sealed with
//!                                                         the client's key, connection secret,
//!                                                         tickets for the services asked for
//! later, in MAuth messages: 0x0100 again, 0x0200 service tickets, 0x0400 rotating keys
//! ```
//!
//! A global id that a client claims back is believed only with the ticket that goes with it.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use denc::{Denc, Features, Reader, Writer};
use env::{Now, Random};
use types::{EntityAddr, EntityKind, EntityName, UTime};

use crate::handshake::{con_mode, method};
use crate::proto::{
    self, AuthTicket, Authenticate, CapsInfo, ResponseHeader, ServerChallenge, ServiceTicket,
    ServiceTicketRequest, TicketBlob, TicketInfo, request,
};
use crate::service::{
    AuthorizerCheck, EACCES, EINVAL, EOPNOTSUPP, EPERM, SharedRandom, connection_secret, none_done,
    none_identity, open_authorizer, pick_mode, wall,
};
use crate::{
    AuthDone, AuthError, CryptoKey, EntityAuth, KeyKind, KeyServer, PeerIdentity, ServerAuth,
    ServerStep, TicketPolicy, Usage,
};

/// How a monitor authenticates.
#[derive(Clone, Debug)]
pub struct MonAuthSettings {
    /// See [`method`]; the first is the preferred one.
    pub methods: Vec<u32>,
    /// See [`con_mode`]; the client chooses among them.
    pub modes: Vec<u32>,
    /// The same for other monitors.
    pub cluster_modes: Vec<u32>,
    /// Life times and kind of service keys.
    pub policy: TicketPolicy,
    /// `auth_allowed_ciphers`: kinds of keys that may authenticate.
    pub allowed_ciphers: Vec<KeyKind>,
    /// `auth_allow_insecure_global_id_reclaim`: clients before 16.2.1 may claim a global id
    /// without its ticket.
    pub allow_insecure_reclaim: bool,
    /// The key that all monitors share, `mon.` of their keyring.
    pub mon_key: Option<CryptoKey>,
}

impl Default for MonAuthSettings {
    fn default() -> Self {
        Self {
            methods: vec![method::CEPHX],
            modes: vec![con_mode::SECURE, con_mode::CRC],
            cluster_modes: vec![con_mode::SECURE, con_mode::CRC],
            policy: TicketPolicy::default(),
            allowed_ciphers: vec![KeyKind::AES, KeyKind::AES256K],
            allow_insecure_reclaim: false,
            mon_key: None,
        }
    }
}

#[derive(Debug, Default)]
struct Inner {
    keys: KeyServer,
    settings: MonAuthSettings,
    /// Free global ids, taken from the front of the first range.
    free_ids: Vec<Range<u64>>,
    /// Clients are to try another monitor.
    closed: bool,
}

/// What a monitor's connections share: its copy of the key database, its settings and its
/// share of the global ids. Cheap to clone; the monitor keeps it up to date.
#[derive(Clone)]
pub struct MonAuth {
    inner: Arc<Mutex<Inner>>,
    rng: SharedRandom,
}

/// The answer to an MAuth message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MAuthAnswer {
    /// Negative errno or 0.
    pub result: i32,
    /// For MAuthReply.
    pub payload: Bytes,
    /// Who the peer is from now on, when it authenticated anew.
    pub peer: Option<PeerIdentity>,
    /// Why `result` is negative, for the log.
    pub refusal: Option<String>,
}

/// Where a claimed global id stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IdClaim {
    New,
    Reclaim,
}

struct Failure {
    result: i32,
    why: String,
}

impl Failure {
    fn new(result: i32, why: impl Into<String>) -> Self {
        Self { result, why: why.into() }
    }
}

impl From<AuthError> for Failure {
    fn from(e: AuthError) -> Self {
        Self::new(EACCES, e.to_string())
    }
}

impl From<denc::DecodeError> for Failure {
    fn from(e: denc::DecodeError) -> Self {
        AuthError::from(e).into()
    }
}

struct Authenticated {
    payload: Bytes,
    session_key: CryptoKey,
    connection_secret: Bytes,
    peer: PeerIdentity,
}

/// Who asks for tickets.
struct Asker<'a> {
    name: &'a EntityName,
    global_id: u64,
    claim: IdClaim,
    server_challenge: u64,
}

/// What is put into one ticket.
struct Ticket {
    service: EntityKind,
    ticket: AuthTicket,
    session_key: CryptoKey,
    validity: UTime,
    sealing: CryptoKey,
    sealing_id: u64,
}

impl MonAuth {
    /// With nothing in it yet: everybody is refused.
    #[must_use]
    pub fn new(settings: MonAuthSettings, rng: SharedRandom) -> Self {
        let inner = Inner { settings, ..Inner::default() };
        Self { inner: Arc::new(Mutex::new(inner)), rng }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().expect("no panic while held")
    }

    /// The key database changed.
    pub fn set_keys(&self, keys: KeyServer) {
        self.lock().keys = keys;
    }

    /// Settings changed.
    pub fn set_settings(&self, settings: MonAuthSettings) {
        self.lock().settings = settings;
    }

    /// Gives this monitor global ids that nobody else was given and that the log holds.
    pub fn add_global_ids(&self, ids: Range<u64>) {
        if !ids.is_empty() {
            self.lock().free_ids.push(ids);
        }
    }

    /// Whether clients may come in; where not, as without global ids, their connections end
    /// without an answer and they try another monitor. Other monitors may always.
    pub fn set_open(&self, open: bool) {
        self.lock().closed = !open;
    }

    /// Whether clients may come in.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.lock().closed
    }

    /// How many global ids are left; ask for more in time, new clients are sent away without.
    #[must_use]
    pub fn global_ids_left(&self) -> u64 {
        self.lock().free_ids.iter().map(|r| r.end - r.start).sum()
    }

    /// For one connection.
    #[must_use]
    pub fn connection(&self) -> Box<dyn ServerAuth> {
        Box::new(MonServerAuth {
            auth: self.clone(),
            peer_kind: EntityKind::ANY,
            peer: String::new(),
            refusal: None,
            state: State::Idle,
        })
    }

    /// Answers an MAuth message of an authenticated peer.
    #[must_use]
    pub fn on_mauth(&self, now: Now, peer: &PeerIdentity, payload: &[u8]) -> MAuthAnswer {
        let inner = self.lock();
        let mut rng = self.rng.lock().expect("no panic while held");
        let mut out = Writer::new(Features::ALL);
        let done = inner.mauth(wall(now), peer, payload, &mut out, &mut *rng);
        match done {
            Ok(renewed) => {
                MAuthAnswer { result: 0, payload: out.finish(), peer: renewed, refusal: None }
            }
            Err(Failure { result, why }) => MAuthAnswer {
                result,
                payload: Bytes::new(),
                peer: None,
                refusal: Some(format!("{} ({}): {why}", peer.name, peer.global_id)),
            },
        }
    }
}

impl Inner {
    fn take_global_id(&mut self) -> Option<u64> {
        let first = self.free_ids.first_mut()?;
        let id = first.start;
        first.start += 1;
        if first.is_empty() {
            self.free_ids.remove(0);
        }
        Some(id)
    }

    /// An entity; the monitors' own key counts as one.
    fn entity(&self, name: &EntityName) -> Option<EntityAuth> {
        if let Some(found) = self.keys.get(name) {
            return Some(found.clone());
        }
        let key = self.settings.mon_key.clone()?;
        (name.kind == EntityKind::MON && name.id.is_empty()).then(|| EntityAuth {
            key,
            caps: [("mon".to_owned(), "allow *".to_owned())].into(),
            ..Default::default()
        })
    }

    /// The key that a ticket was sealed with.
    fn sealing_key(&self, service: EntityKind, id: u64) -> Option<CryptoKey> {
        if id == u64::MAX {
            return self.settings.mon_key.clone();
        }
        Some(self.keys.rotating(service)?.secrets.get(&id)?.key.clone())
    }

    /// A ticket for `service`. The session key's kind is the lower of `kind` and the kind of
    /// the service's key, so that both sides know it.
    fn make_ticket(
        &self,
        now: UTime,
        service: EntityKind,
        name: &EntityName,
        global_id: u64,
        kind: KeyKind,
        rng: &mut dyn Random,
    ) -> Result<Ticket, Failure> {
        let set = self.keys.rotating(service);
        let (sealing_id, sealing) = set
            .and_then(|s| s.current(now))
            .ok_or_else(|| Failure::new(EPERM, format!("no keys for {} yet", service.name())))?;
        let ttl = set.map_or(0, |s| s.cap_ttl(now, self.settings.policy.ttl_secs(service)));
        let kind = if service == EntityKind::AUTH { kind } else { kind.min(sealing.key.kind) };
        let caps = match service {
            EntityKind::AUTH => CapsInfo::default(),
            _ => self.keys.caps(name, service).map(CapsInfo::from_text).unwrap_or_default(),
        };
        Ok(Ticket {
            service,
            ticket: AuthTicket {
                name: name.clone(),
                global_id,
                created: now,
                expires: now.plus_secs(ttl),
                caps,
                flags: 0,
            },
            session_key: CryptoKey::generate(kind, now, rng),
            validity: UTime { sec: ttl, nsec: 0 },
            sealing: sealing.key.clone(),
            sealing_id,
        })
    }

    /// Checks a proof of an entity's key and makes what AUTH_DONE carries. `mode`: of the
    /// connection being made; none in MAuth messages, which get no connection secret.
    fn authenticate(
        &self,
        now: UTime,
        asker: &Asker<'_>,
        req: &Authenticate,
        mode: Option<u32>,
        rng: &mut dyn Random,
    ) -> Result<Authenticated, Failure> {
        let Asker { name, global_id, claim, server_challenge } = *asker;
        let entity = self.entity(name).ok_or_else(|| Failure::new(EACCES, "no such entity"))?;
        if server_challenge == 0 {
            return Err(Failure::new(EACCES, "no challenge was sent"));
        }
        let proves = |key: &CryptoKey| {
            key.answer_challenge(server_challenge, req.client_challenge) == Ok(req.key)
        };
        let key = [&entity.key, &entity.pending_key]
            .into_iter()
            .find(|k| !k.is_none() && proves(k))
            .ok_or_else(|| Failure::new(EACCES, "wrong key"))?;
        if !self.settings.allowed_ciphers.contains(&key.kind) {
            return Err(Failure::new(EACCES, format!("keys of type {} are not allowed", key.kind)));
        }
        let (old_session_key, proven) = self.check_claim(global_id, claim, req)?;
        let caps = entity.caps.get("mon").map_or("", String::as_str);
        if caps.is_empty() {
            return Err(Failure::new(EACCES, "no mon caps"));
        }

        let auth = self.make_ticket(now, EntityKind::AUTH, name, global_id, key.kind, rng)?;
        let session_key = auth.session_key.clone();
        let peer = PeerIdentity {
            name: name.clone(),
            global_id,
            caps: caps.to_owned(),
            allow_all: false,
            created: auth.ticket.created,
            expires: auth.ticket.expires,
            flags: 0,
            global_id_proven: proven,
            server_challenge,
        };
        let mut w = Writer::new(Features::ALL);
        ResponseHeader { request_type: request::AUTH_SESSION_KEY, status: 0 }.encode(&mut w);
        put_tickets(&mut w, key, &[auth], old_session_key.as_ref(), rng)?;
        let secret = mode.map(|mode| connection_secret(mode, rng));
        if req.other_keys != 0 {
            match &secret {
                None => w.u32(0),
                Some(secret) => {
                    let mut sealed = Writer::new(Features::ALL);
                    proto::seal_blob(&mut sealed, &session_key, Usage::CON_SECRET, secret, rng)?;
                    w.blob(sealed.as_slice());
                }
            }
            let tickets =
                self.service_tickets(now, req.other_keys, name, global_id, session_key.kind, rng);
            let mut extra = Writer::new(Features::ALL);
            if !tickets.is_empty() {
                put_tickets(&mut extra, &session_key, &tickets, None, rng)?;
            }
            w.blob(extra.as_slice());
        }
        Ok(Authenticated {
            payload: w.finish(),
            session_key,
            connection_secret: secret.unwrap_or_default(),
            peer,
        })
    }

    /// Whether the client may have the global id it claims, and the old ticket's session key
    /// with which the new ticket must then be sealed.
    fn check_claim(
        &self,
        global_id: u64,
        claim: IdClaim,
        req: &Authenticate,
    ) -> Result<(Option<CryptoKey>, bool), Failure> {
        if claim == IdClaim::New {
            if !req.old_ticket.blob.is_empty() {
                return Err(Failure::new(EINVAL, "an old ticket without a global id"));
            }
            return Ok((None, !req.old_ticket_may_be_omitted));
        }
        let opened = self
            .sealing_key(EntityKind::AUTH, req.old_ticket.secret_id)
            .filter(|_| !req.old_ticket.blob.is_empty())
            .and_then(|key| {
                key.open::<TicketInfo>(Usage::TICKET_INFO, &req.old_ticket.blob, "old ticket").ok()
            });
        let why = match opened {
            Some(old) if old.ticket.global_id == global_id => {
                return Ok((Some(old.session_key), true));
            }
            Some(_) => "with the ticket of another one",
            None if req.old_ticket.blob.is_empty() => "without its ticket",
            None => "with a ticket that does not open",
        };
        if self.settings.allow_insecure_reclaim && req.old_ticket_may_be_omitted {
            return Ok((None, false));
        }
        Err(Failure::new(EACCES, format!("global id {global_id} claimed {why}")))
    }

    /// Tickets for each service of the mask but AUTH; services without keys are left out.
    fn service_tickets(
        &self,
        now: UTime,
        mask: u32,
        name: &EntityName,
        global_id: u64,
        kind: KeyKind,
        rng: &mut dyn Random,
    ) -> Vec<Ticket> {
        let mut services = KeyServer::SERVICES;
        services.sort_unstable();
        services
            .into_iter()
            .filter(|s| *s != EntityKind::AUTH && mask & u32::from(s.0) != 0)
            .filter_map(|s| self.make_ticket(now, s, name, global_id, kind, rng).ok())
            .collect()
    }

    fn mauth(
        &self,
        now: UTime,
        peer: &PeerIdentity,
        payload: &[u8],
        out: &mut Writer,
        rng: &mut dyn Random,
    ) -> Result<Option<PeerIdentity>, Failure> {
        let mut r = Reader::new(payload);
        let request_type = r.u16()?;
        let mut header = ResponseHeader { request_type, status: 0 };
        match request_type {
            request::AUTH_SESSION_KEY => {
                let req = Authenticate::decode(&mut r)?;
                let asker = Asker {
                    name: &peer.name,
                    global_id: peer.global_id,
                    claim: IdClaim::Reclaim,
                    server_challenge: peer.server_challenge,
                };
                let done = self.authenticate(now, &asker, &req, None, rng)?;
                out.raw(&done.payload);
                Ok(Some(done.peer))
            }
            request::PRINCIPAL_SESSION_KEY => {
                // No challenge here: the peer authenticated on this connection already.
                // Only the monitors' own tickets stand for their holder: whoever has the keys of
                // another service can make tickets of that for anybody.
                let own = |service, id| {
                    (service == EntityKind::AUTH).then(|| self.sealing_key(service, id)).flatten()
                };
                let shown = open_authorizer(&mut r, own)?;
                let wanted = ServiceTicketRequest::decode(&mut r)?;
                let ticket = &shown.info.ticket;
                if self.entity(&ticket.name).is_none() {
                    return Err(Failure::new(EACCES, format!("{} is gone", ticket.name)));
                }
                let session_key = &shown.info.session_key;
                let tickets = self.service_tickets(
                    now,
                    wanted.keys,
                    &ticket.name,
                    ticket.global_id,
                    session_key.kind,
                    rng,
                );
                if tickets.is_empty() && wanted.keys & !u32::from(EntityKind::AUTH.0) != 0 {
                    header.status = EPERM;
                }
                header.encode(out);
                put_tickets(out, session_key, &tickets, None, rng)?;
                Ok(None)
            }
            request::ROTATING_KEY => {
                let entity =
                    self.entity(&peer.name).ok_or_else(|| Failure::new(EPERM, "no such entity"))?;
                let secrets = self
                    .keys
                    .rotating(peer.name.kind)
                    .ok_or_else(|| Failure::new(EPERM, "no rotating keys for its kind"))?;
                header.encode(out);
                proto::seal_blob(out, &entity.key, Usage::ROTATING_SECRETS, secrets, rng)?;
                Ok(None)
            }
            _ => Err(Failure::new(EINVAL, format!("unknown request {request_type:#06x}"))),
        }
    }
}

/// A ticket reply: version, count, and for each ticket the holder's part sealed with
/// `principal`, then the blob; sealed with the old session key where there was one.
fn put_tickets(
    w: &mut Writer,
    principal: &CryptoKey,
    tickets: &[Ticket],
    old_session_key: Option<&CryptoKey>,
    rng: &mut dyn Random,
) -> Result<(), AuthError> {
    w.u8(1);
    w.u32(tickets.len() as u32);
    for t in tickets {
        w.u32(u32::from(t.service.0));
        w.u8(1);
        let own = ServiceTicket { session_key: t.session_key.clone(), validity: t.validity };
        proto::seal_blob(w, principal, Usage::TICKET_SESSION_KEY, &own, rng)?;
        let info = TicketInfo { ticket: t.ticket.clone(), session_key: t.session_key.clone() };
        let blob = t.sealing.seal(Usage::TICKET_INFO, &info, rng)?.into();
        let blob = TicketBlob { secret_id: t.sealing_id, blob }.to_bytes();
        w.bool(old_session_key.is_some());
        match old_session_key {
            Some(key) => proto::seal_blob(w, key, Usage::TICKET_BLOB, &blob, rng)?,
            None => w.blob(&blob),
        }
    }
    Ok(())
}

enum State {
    Idle,
    /// A challenge is out.
    Challenged {
        mode: u32,
        name: EntityName,
        global_id: u64,
        claim: IdClaim,
        challenge: u64,
    },
    /// A ticket holder (another monitor) is being challenged.
    Authorizer {
        mode: u32,
        check: AuthorizerCheck,
    },
}

/// The server's side at a monitor.
struct MonServerAuth {
    auth: MonAuth,
    peer_kind: EntityKind,
    peer: String,
    refusal: Option<String>,
    state: State,
}

impl MonServerAuth {
    fn begin(&mut self, method: u32, modes: &[u32], payload: &[u8]) -> Result<ServerStep, Failure> {
        let mut inner = self.auth.lock();
        if !inner.settings.methods.contains(&method) {
            return Err(Failure::new(EOPNOTSUPP, format!("method {method} is not allowed")));
        }
        let crc_only = [con_mode::CRC];
        // Monitors show a ticket: that it is one is proven in the end, and looked at there.
        let as_monitor = payload.first() == Some(&proto::MODE_AUTHORIZER);
        let allowed = match (method, as_monitor) {
            (method::NONE, _) => &crc_only[..],
            (_, true) => &inner.settings.cluster_modes[..],
            (_, false) => &inner.settings.modes[..],
        };
        let mode = pick_mode(modes, allowed).ok_or_else(|| {
            Failure::new(EOPNOTSUPP, format!("none of its modes {modes:?} is allowed"))
        })?;
        let mut r = Reader::new(payload);
        let auth_mode = r.u8()?;
        if auth_mode == proto::MODE_AUTHORIZER {
            if method == method::NONE {
                let peer = none_identity(&mut r)?;
                return Ok(none_done(peer.global_id, peer));
            }
            drop(inner);
            self.state = State::Authorizer { mode, check: AuthorizerCheck::default() };
            return self.authorizer_round(payload);
        }
        if !(proto::MODE_MON..=proto::MODE_MON_MAX).contains(&auth_mode) {
            return Err(Failure::new(EOPNOTSUPP, format!("unknown auth mode {auth_mode}")));
        }
        let (name, claimed) = (EntityName::decode(&mut r)?, r.u64()?);
        self.peer = format!("{name} ({})", self.peer);
        if inner.closed {
            return Ok(ServerStep::Leave);
        }
        let claim = if claimed == 0 { IdClaim::New } else { IdClaim::Reclaim };
        let global_id = match claim {
            IdClaim::Reclaim => claimed,
            IdClaim::New => match inner.take_global_id() {
                Some(id) => id,
                None => return Ok(ServerStep::Leave),
            },
        };
        drop(inner);
        if method == method::NONE {
            let peer = PeerIdentity {
                name,
                allow_all: true,
                global_id_proven: true,
                ..Default::default()
            };
            return Ok(none_done(global_id, peer));
        }
        let challenge = self.auth.rng.lock().expect("no panic while held").u64().max(1);
        self.state = State::Challenged { mode, name, global_id, claim, challenge };
        Ok(ServerStep::More(ServerChallenge { server_challenge: challenge }.to_bytes()))
    }

    fn authorizer_round(&mut self, payload: &[u8]) -> Result<ServerStep, Failure> {
        let State::Authorizer { mode, check } = &mut self.state else {
            return Err(Failure::new(EINVAL, "no authorizer was shown"));
        };
        let inner = self.auth.inner.clone();
        let find = move |service: EntityKind, id: u64| {
            let inner = inner.lock().expect("no panic while held");
            (service == EntityKind::MON).then(|| inner.sealing_key(service, id)).flatten()
        };
        let step = check.round(payload, *mode, &self.auth.rng, find)?;
        if let ServerStep::Done(done) = &step {
            self.state = State::Idle;
            let kind = done.peer.name.kind;
            if kind != EntityKind::MON && !self.auth.lock().settings.modes.contains(&done.con_mode)
            {
                return Err(Failure::new(EOPNOTSUPP, "its mode is for monitors alone".to_owned()));
            }
        }
        Ok(step)
    }

    fn proceed(&mut self, now: Now, payload: &[u8]) -> Result<ServerStep, Failure> {
        if matches!(self.state, State::Authorizer { .. }) {
            return self.authorizer_round(payload);
        }
        let State::Challenged { mode, name, global_id, claim, challenge } =
            std::mem::replace(&mut self.state, State::Idle)
        else {
            return Err(Failure::new(EINVAL, "AUTH_REQUEST_MORE without AUTH_REQUEST"));
        };
        let mut r = Reader::new(payload);
        let request_type = r.u16()?;
        if request_type != request::AUTH_SESSION_KEY {
            return Err(Failure::new(EACCES, format!("request {request_type:#06x} unproven")));
        }
        let req = Authenticate::decode(&mut r)?;
        let asker = Asker { name: &name, global_id, claim, server_challenge: challenge };
        let inner = self.auth.lock();
        let mut rng = self.auth.rng.lock().expect("no panic while held");
        let done = inner.authenticate(wall(now), &asker, &req, Some(mode), &mut *rng)?;
        Ok(ServerStep::Done(Box::new(AuthDone {
            global_id,
            con_mode: mode,
            payload: done.payload,
            session_key: done.session_key.secret().clone(),
            connection_secret: done.connection_secret,
            peer: done.peer,
        })))
    }

    fn answer(&mut self, step: Result<ServerStep, Failure>) -> ServerStep {
        step.unwrap_or_else(|Failure { result, why }| {
            self.state = State::Idle;
            self.refusal = Some(format!("{}: {why}", self.peer));
            let settings = &self.auth.lock().settings;
            ServerStep::Refuse {
                result,
                allowed_methods: settings.methods.clone(),
                allowed_modes: settings.modes.clone(),
            }
        })
    }
}

impl ServerAuth for MonServerAuth {
    fn request(
        &mut self,
        _now: Now,
        peer_kind: EntityKind,
        peer_addr: &EntityAddr,
        method: u32,
        modes: &[u32],
        payload: &[u8],
    ) -> ServerStep {
        self.peer_kind = peer_kind;
        self.peer = format!("{} at {peer_addr}", peer_kind.name());
        self.state = State::Idle;
        let step = self.begin(method, modes, payload);
        self.answer(step)
    }

    fn more(&mut self, now: Now, payload: &[u8]) -> ServerStep {
        let step = self.proceed(now, payload);
        self.answer(step)
    }

    fn global_id(&self) -> u64 {
        match &self.state {
            State::Challenged { global_id, .. } => *global_id,
            State::Idle | State::Authorizer { .. } => 0,
        }
    }

    fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }
}
