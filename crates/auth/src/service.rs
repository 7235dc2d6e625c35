//! Authorizers, the service's side: a peer shows a ticket of the monitors, answers a fresh
//! challenge with the session key in it, and gets a proof back.

use std::sync::{Arc, Mutex, RwLock};

use bytes::Bytes;
use denc::{Denc, Features, Reader, Writer};
use env::{Now, Random};
use types::{EntityAddr, EntityKind, EntityName, UTime};

use crate::handshake::{con_mode, method};
use crate::proto::{
    self, Authorize, AuthorizeChallenge, AuthorizeReply, AuthorizerHead, RotatingSecrets,
    TicketInfo,
};
use crate::{AuthDone, AuthError, CryptoKey, PeerIdentity, ServerAuth, ServerStep, Usage};

/// A source of chance shared by the connections of a daemon.
pub type SharedRandom = Arc<Mutex<dyn Random>>;

pub(crate) const EPERM: i32 = -1;
pub(crate) const EACCES: i32 = -13;
pub(crate) const EINVAL: i32 = -22;
pub(crate) const EOPNOTSUPP: i32 = -95;

/// The time tickets are made and judged by.
pub(crate) fn wall(now: Now) -> UTime {
    UTime::from_nanos(now.wall_ns)
}

/// Bytes of a connection secret in secure mode.
pub(crate) const CON_SECRET_LEN: usize = 64;

pub(crate) fn connection_secret(mode: u32, rng: &mut dyn Random) -> Bytes {
    if mode != con_mode::SECURE {
        return Bytes::new();
    }
    let mut secret = vec![0; CON_SECRET_LEN];
    rng.fill(&mut secret);
    secret.into()
}

/// The first of the client's modes that is allowed.
pub(crate) fn pick_mode(preferred: &[u32], allowed: &[u32]) -> Option<u32> {
    preferred.iter().copied().find(|m| allowed.contains(m))
}

/// A daemon's copy of its service's rotating keys; it renews them from the monitor and its
/// connections read them.
#[derive(Clone, Debug, Default)]
pub struct RotatingKeys {
    /// The keys.
    pub secrets: RotatingSecrets,
    /// A ticket came that is sealed with a later key than these: the monitors made new ones.
    missed: bool,
}

/// Rotating keys shared by a daemon's connections.
pub type SharedRotatingKeys = Arc<RwLock<RotatingKeys>>;

impl From<RotatingSecrets> for RotatingKeys {
    fn from(secrets: RotatingSecrets) -> Self {
        Self { secrets, missed: false }
    }
}

impl RotatingKeys {
    /// Whether the monitor must be asked for newer keys. Keys are renewed a little late
    /// (30 s, or a quarter of the tickets' life), so that the monitor has made them; at once when
    /// a ticket needs a later one. Whoever asks keeps a pause: a ticket's key is what its sender says.
    #[must_use]
    pub fn needs_renewal(&self, now: Now, service_ticket_ttl_secs: u32) -> bool {
        let late = (service_ticket_ttl_secs / 4).min(30);
        let now = wall(now);
        self.missed
            || self.secrets.needs_new(UTime { sec: now.sec.saturating_sub(late), nsec: now.nsec })
    }

    /// Whether tickets can be opened at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.secrets.secrets.is_empty()
    }

    fn key(&self, id: u64) -> Option<&CryptoKey> {
        self.secrets.secrets.get(&id).map(|k| &k.key)
    }
}

/// A ticket opened and its holder's proof checked.
pub(crate) struct Verified {
    pub info: TicketInfo,
    pub authorize: Authorize,
}

/// Opens an authorizer; `key` finds the key with which a service's ticket is sealed. Leaves
/// the reader behind it.
pub(crate) fn open_authorizer(
    r: &mut Reader<'_>,
    key: impl FnOnce(EntityKind, u64) -> Option<CryptoKey>,
) -> Result<Verified, AuthError> {
    let head = AuthorizerHead::decode(r)?;
    let service = u8::try_from(head.service)
        .map(EntityKind)
        .map_err(|_| AuthError::Protocol("a ticket for no service"))?;
    let key = key(service, head.ticket.secret_id)
        .ok_or(AuthError::Undecryptable("ticket: its key is not known here"))?;
    let info: TicketInfo = key.open(Usage::TICKET_INFO, &head.ticket.blob, "ticket")?;
    if info.ticket.global_id != head.global_id {
        return Err(AuthError::Protocol("the authorizer's global id is not its ticket's"));
    }
    let authorize = proto::open_blob(r, &info.session_key, Usage::AUTHORIZE, "authorizer")?;
    Ok(Verified { info, authorize })
}

/// What a ticket says of its holder.
pub(crate) fn identity(info: &TicketInfo) -> Result<PeerIdentity, AuthError> {
    let ticket = &info.ticket;
    Ok(PeerIdentity {
        name: ticket.name.clone(),
        global_id: ticket.global_id,
        caps: ticket.caps.text()?,
        allow_all: ticket.caps.allow_all,
        created: ticket.created,
        expires: ticket.expires,
        flags: ticket.flags,
        global_id_proven: true,
        server_challenge: 0,
    })
}

/// Verifies one authorizer over its two rounds.
#[derive(Default)]
pub(crate) struct AuthorizerCheck {
    challenge: Option<u64>,
}

impl AuthorizerCheck {
    /// One round: a challenge to send, or the end of the handshake.
    pub(crate) fn round(
        &mut self,
        payload: &[u8],
        mode: u32,
        rng: &SharedRandom,
        key: impl FnOnce(EntityKind, u64) -> Option<CryptoKey>,
    ) -> Result<ServerStep, AuthError> {
        let mut rng = rng.lock().expect("no panic while held");
        let Verified { info, authorize } = open_authorizer(&mut Reader::new(payload), key)?;
        let session_key = &info.session_key;
        let challenge = match self.challenge {
            Some(challenge) if authorize.have_challenge => challenge,
            _ => {
                let server_challenge = rng.u64();
                self.challenge = Some(server_challenge);
                let challenge = AuthorizeChallenge { server_challenge };
                let sealed = session_key.seal(Usage::AUTHORIZE_CHALLENGE, &challenge, &mut *rng)?;
                return Ok(ServerStep::More(sealed.into()));
            }
        };
        if authorize.server_challenge_plus_one != challenge.wrapping_add(1) {
            return Err(AuthError::Protocol("the challenge was answered wrongly"));
        }
        let connection_secret = connection_secret(mode, &mut *rng);
        let reply = AuthorizeReply {
            nonce_plus_one: authorize.nonce.wrapping_add(1),
            connection_secret: connection_secret.clone(),
        };
        let mut w = Writer::new(Features::ALL);
        proto::seal_blob(&mut w, session_key, Usage::AUTHORIZE_REPLY, &reply, &mut *rng)?;
        Ok(ServerStep::Done(Box::new(AuthDone {
            global_id: info.ticket.global_id,
            con_mode: mode,
            payload: w.finish(),
            session_key: session_key.secret().clone(),
            connection_secret,
            peer: identity(&info)?,
        })))
    }
}

/// The payload of method none to a service or a monitor behind its mode byte.
pub(crate) fn none_identity(r: &mut Reader<'_>) -> Result<PeerIdentity, AuthError> {
    let (name, global_id) = (EntityName::decode(r)?, r.u64()?);
    Ok(PeerIdentity { name, global_id, allow_all: true, ..Default::default() })
}

/// What a daemon accepts.
#[derive(Clone, Debug)]
pub struct ServiceAuthSettings {
    /// The daemon's own kind: tickets for other services are refused.
    pub service: EntityKind,
    /// See [`method`]; the first is the preferred one.
    pub methods: Vec<u32>,
    /// See [`con_mode`]; the client chooses among them.
    pub modes: Vec<u32>,
}

impl ServiceAuthSettings {
    /// cephx in both modes.
    #[must_use]
    pub fn cephx(service: EntityKind) -> Self {
        Self { service, methods: vec![method::CEPHX], modes: vec![con_mode::SECURE, con_mode::CRC] }
    }
}

/// The server's side at an OSD, MDS or manager.
pub struct ServiceAuth {
    settings: ServiceAuthSettings,
    keys: SharedRotatingKeys,
    rng: SharedRandom,
    mode: u32,
    check: AuthorizerCheck,
    peer: String,
    refusal: Option<String>,
}

impl ServiceAuth {
    /// For one connection.
    #[must_use]
    pub fn new(settings: ServiceAuthSettings, keys: SharedRotatingKeys, rng: SharedRandom) -> Self {
        Self {
            settings,
            keys,
            rng,
            mode: 0,
            check: AuthorizerCheck::default(),
            peer: String::new(),
            refusal: None,
        }
    }

    fn refuse(&mut self, result: i32, why: &str) -> ServerStep {
        self.refusal = Some(format!("{}: {why}", self.peer));
        self.mode = 0; // only another AUTH_REQUEST may follow
        ServerStep::Refuse {
            result,
            allowed_methods: self.settings.methods.clone(),
            allowed_modes: self.settings.modes.clone(),
        }
    }

    fn round(&mut self, payload: &[u8]) -> ServerStep {
        let keys = self.keys.read().expect("no panic while held");
        let service = self.settings.service;
        let last = keys.secrets.secrets.keys().next_back().copied().unwrap_or(0);
        let mut missed = false;
        let find = |s: EntityKind, id| {
            if s != service {
                return None;
            }
            missed = id > last;
            keys.key(id).cloned()
        };
        let step = self.check.round(payload, self.mode, &self.rng, find);
        let news = missed && !keys.missed;
        drop(keys);
        if news {
            self.keys.write().expect("no panic while held").missed = true;
        }
        match step {
            Ok(step) => step,
            Err(e) => self.refuse(EACCES, &e.to_string()),
        }
    }
}

impl ServerAuth for ServiceAuth {
    fn request(
        &mut self,
        _now: Now,
        peer_kind: EntityKind,
        peer_addr: &EntityAddr,
        method: u32,
        modes: &[u32],
        payload: &[u8],
    ) -> ServerStep {
        self.peer = format!("{} at {peer_addr}", peer_kind.name());
        self.check = AuthorizerCheck::default();
        self.mode = 0;
        if !self.settings.methods.contains(&method) {
            return self.refuse(EOPNOTSUPP, &format!("method {method} is not allowed"));
        }
        let crc_only = [con_mode::CRC];
        let allowed = if method == method::NONE { &crc_only[..] } else { &self.settings.modes };
        let Some(mode) = pick_mode(modes, allowed) else {
            return self.refuse(EOPNOTSUPP, &format!("none of its modes {modes:?} is allowed"));
        };
        let mut r = Reader::new(payload);
        if method == method::NONE {
            return match r.u8().map_err(AuthError::from).and_then(|_| none_identity(&mut r)) {
                Ok(peer) => none_done(peer.global_id, peer),
                Err(e) => self.refuse(EACCES, &e.to_string()),
            };
        }
        self.mode = mode;
        self.round(payload)
    }

    fn more(&mut self, _now: Now, payload: &[u8]) -> ServerStep {
        if self.mode == 0 {
            return self.refuse(EINVAL, "AUTH_REQUEST_MORE without AUTH_REQUEST");
        }
        self.round(payload)
    }

    fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }
}

/// The end of a handshake with method none.
pub(crate) fn none_done(global_id: u64, mut peer: PeerIdentity) -> ServerStep {
    peer.global_id = global_id;
    ServerStep::Done(Box::new(AuthDone {
        global_id,
        con_mode: con_mode::CRC,
        payload: Bytes::new(),
        session_key: Bytes::new(),
        connection_secret: Bytes::new(),
        peer,
    }))
}
