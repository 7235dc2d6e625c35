//! The client's side: prove the own key to a monitor, hold tickets, show them to services,
//! and renew them in time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use denc::{Denc, Features, Reader, Writer};
use env::{Now, Random};
use types::{EntityKind, EntityName, UTime};

use crate::handshake::{con_mode, method};
use crate::proto::{
    self, AuthTicket, Authenticate, Authorize, AuthorizeChallenge, AuthorizeReply, AuthorizerHead,
    CapsInfo, ResponseHeader, RotatingSecrets, ServerChallenge, ServiceTicket,
    ServiceTicketRequest, TicketBlob, TicketInfo, request,
};
use crate::service::{CON_SECRET_LEN, SharedRandom, wall};
use crate::{AuthError, ClientAuth, ClientDone, ClientStart, CryptoKey, Usage};

/// A mask of services: `EntityKind`s or'ed.
#[must_use]
pub const fn service_mask(kinds: &[EntityKind]) -> u32 {
    let (mut mask, mut i) = (0, 0);
    while i < kinds.len() {
        mask |= kinds[i].0 as u32;
        i += 1;
    }
    mask
}

/// A ticket at hand.
#[derive(Clone, Debug)]
struct Held {
    session_key: CryptoKey,
    blob: TicketBlob,
    expires: UTime,
    renew_after: UTime,
}

/// One entity's key and its tickets. Shared by the monitor client, which renews them, and
/// by the connections that show them.
#[derive(Clone, Debug)]
pub struct Tickets {
    /// Whose.
    pub name: EntityName,
    /// Its key; none with method none.
    pub key: CryptoKey,
    /// 0: none given yet.
    pub global_id: u64,
    held: BTreeMap<u32, Held>,
    /// Answers by message need the challenge of the connection's handshake.
    server_challenge: u64,
}

/// [`Tickets`] shared by the connections of a process.
pub type SharedTickets = Arc<Mutex<Tickets>>;

/// A ticket as received, not yet held.
type Received = (u32, ServiceTicket, TicketBlob);

impl Tickets {
    /// Without tickets yet.
    #[must_use]
    pub fn new(name: EntityName, key: CryptoKey) -> Self {
        Self { name, key, global_id: 0, held: BTreeMap::new(), server_challenge: 0 }
    }

    /// Shared.
    #[must_use]
    pub fn shared(self) -> SharedTickets {
        Arc::new(Mutex::new(self))
    }

    /// Whether a ticket for `service` is at hand and good.
    #[must_use]
    pub fn has(&self, now: Now, service: EntityKind) -> bool {
        self.held.get(&u32::from(service.0)).is_some_and(|h| wall(now) < h.expires)
    }

    /// Forgets the ticket for `service`, for example because the service refused it.
    pub fn invalidate(&mut self, service: EntityKind) {
        self.held.remove(&u32::from(service.0));
    }

    /// Forgets all service tickets: the monitors' auth epoch grew.
    pub fn invalidate_services(&mut self) {
        self.held.retain(|service, _| *service == u32::from(EntityKind::AUTH.0));
    }

    /// Which of the services in `wanted` need a new ticket now: three quarters of the old
    /// one's life are over, or there is none.
    #[must_use]
    pub fn needs_renewal(&self, now: Now, wanted: u32) -> u32 {
        let now = wall(now);
        (0..8)
            .map(|bit| 1 << bit & wanted)
            .filter(|s| *s != 0 && self.held.get(s).is_none_or(|h| now >= h.renew_after))
            .fold(0, |mask, s| mask | s)
    }

    /// The payload of an MAuth message that gets what [`Tickets::needs_renewal`] names;
    /// `None`: nothing is needed.
    ///
    /// # Errors
    /// [`AuthError::NoTicket`] without an AUTH ticket: the monitor must be connected anew.
    pub fn renewal(
        &self,
        now: Now,
        wanted: u32,
        rng: &mut dyn Random,
    ) -> Result<Option<Bytes>, AuthError> {
        let need = self.needs_renewal(now, wanted | AUTH);
        if need == 0 {
            return Ok(None);
        }
        let auth = self.held.get(&AUTH).ok_or(AuthError::NoTicket("auth"))?;
        let mut w = Writer::new(Features::ALL);
        if need & AUTH != 0 {
            self.put_authenticate(&mut w, self.server_challenge, wanted, Some(auth), rng)?;
        } else {
            w.u16(request::PRINCIPAL_SESSION_KEY);
            let authorize = Authorize { nonce: rng.u64(), ..Authorize::default() };
            put_authorizer(&mut w, AUTH, self.global_id, auth, &authorize, rng)?;
            ServiceTicketRequest { keys: need }.encode(&mut w);
        }
        Ok(Some(w.finish()))
    }

    /// The payload of an MAuth message that gets the own service's rotating keys.
    #[must_use]
    pub fn rotating_request() -> Bytes {
        let mut w = Writer::new(Features::ALL);
        w.u16(request::ROTATING_KEY);
        w.finish()
    }

    /// MAuthReply came: takes the tickets in it. Rotating keys are returned.
    ///
    /// # Errors
    /// As [`AuthError`] says; nothing is changed then.
    pub fn on_reply(
        &mut self,
        now: Now,
        payload: &[u8],
    ) -> Result<Option<RotatingSecrets>, AuthError> {
        let mut r = Reader::new(payload);
        let header = ResponseHeader::decode(&mut r)?;
        if header.status < 0 {
            let result = header.status;
            return Err(AuthError::Refused { result, allowed_methods: vec![method::CEPHX] });
        }
        match header.request_type {
            request::AUTH_SESSION_KEY => {
                let mut tickets = get_tickets(&mut r, &self.key, self.session_key())?;
                let session_key = session_key_of(&tickets)?;
                if r.left() != 0 {
                    r.blob_ref()?; // no connection secret in messages
                    let extra = r.blob_ref()?;
                    if !extra.is_empty() {
                        tickets.extend(get_tickets(&mut Reader::new(extra), &session_key, None)?);
                    }
                }
                self.take(now, tickets);
                Ok(None)
            }
            request::PRINCIPAL_SESSION_KEY => {
                let key = self.session_key().ok_or(AuthError::NoTicket("auth"))?;
                let tickets = get_tickets(&mut r, key, None)?;
                self.take(now, tickets);
                Ok(None)
            }
            request::ROTATING_KEY => {
                proto::open_blob(&mut r, &self.key, Usage::ROTATING_SECRETS, "rotating keys")
                    .map(Some)
            }
            _ => Err(AuthError::Protocol("an answer to a request that does not exist")),
        }
    }

    fn session_key(&self) -> Option<&CryptoKey> {
        self.held.get(&AUTH).map(|h| &h.session_key)
    }

    fn take(&mut self, now: Now, tickets: Vec<Received>) {
        let now = wall(now);
        for (service, ticket, blob) in tickets {
            let expires = now.plus_secs(ticket.validity.sec);
            let renew_after = now.plus_secs(ticket.validity.sec - ticket.validity.sec / 4);
            let session_key = ticket.session_key;
            self.held.insert(service, Held { session_key, blob, expires, renew_after });
        }
    }

    fn put_authenticate(
        &self,
        w: &mut Writer,
        server_challenge: u64,
        other_keys: u32,
        old: Option<&Held>,
        rng: &mut dyn Random,
    ) -> Result<(), AuthError> {
        w.u16(request::AUTH_SESSION_KEY);
        let client_challenge = rng.u64();
        let key = self.key.answer_challenge(server_challenge, client_challenge)?;
        let old_ticket = old.map(|h| h.blob.clone()).unwrap_or_default();
        Authenticate {
            version: 3,
            client_challenge,
            key,
            old_ticket,
            other_keys: other_keys | AUTH,
            old_ticket_may_be_omitted: false,
        }
        .encode(w);
        Ok(())
    }
}

const AUTH: u32 = EntityKind::AUTH.0 as u32;

fn put_authorizer(
    w: &mut Writer,
    service: u32,
    global_id: u64,
    held: &Held,
    authorize: &Authorize,
    rng: &mut dyn Random,
) -> Result<(), AuthError> {
    AuthorizerHead { global_id, service, ticket: held.blob.clone() }.encode(w);
    proto::seal_blob(w, &held.session_key, Usage::AUTHORIZE, authorize, rng)
}

/// Reads a ticket reply; `old_session_key` opens blobs that are sealed themselves.
fn get_tickets(
    r: &mut Reader<'_>,
    principal: &CryptoKey,
    old_session_key: Option<&CryptoKey>,
) -> Result<Vec<Received>, AuthError> {
    let _version = r.u8()?;
    let n = r.u32()?;
    let mut out = Vec::new();
    for _ in 0..n {
        let service = r.u32()?;
        let _version = r.u8()?;
        let ticket: ServiceTicket =
            proto::open_blob(r, principal, Usage::TICKET_SESSION_KEY, "ticket's session key")?;
        let blob = if r.bool()? {
            let key = old_session_key.ok_or(AuthError::NoTicket("auth"))?;
            proto::open_blob(r, key, Usage::TICKET_BLOB, "ticket blob")?
        } else {
            Bytes::copy_from_slice(r.blob_ref()?)
        };
        out.push((service, ticket, TicketBlob::decode(&mut Reader::shared(&blob))?));
    }
    Ok(out)
}

fn session_key_of(tickets: &[Received]) -> Result<CryptoKey, AuthError> {
    tickets
        .iter()
        .find(|(service, ..)| *service == AUTH)
        .map(|(_, ticket, _)| ticket.session_key.clone())
        .ok_or(AuthError::Protocol("the monitor gave no AUTH ticket"))
}

fn check_secret(secret: &Bytes, mode: u32) -> Result<(), AuthError> {
    if mode == con_mode::SECURE && secret.len() < CON_SECRET_LEN {
        return Err(AuthError::Protocol("no connection secret for a secure connection"));
    }
    Ok(())
}

fn refused(result: i32, allowed_methods: &[u32]) -> AuthError {
    AuthError::Refused { result, allowed_methods: allowed_methods.to_vec() }
}

/// What a client offers.
#[derive(Clone, Debug)]
pub struct ClientAuthSettings {
    /// `auth_client_required`: in order of preference, see [`method`].
    pub methods: Vec<u32>,
    /// In order of preference, see [`con_mode`].
    pub modes: Vec<u32>,
}

impl ClientAuthSettings {
    /// cephx; `secure` first as towards monitors, or `crc` first as towards OSDs.
    #[must_use]
    pub fn cephx(secure_first: bool) -> Self {
        let mut modes = vec![con_mode::CRC, con_mode::SECURE];
        if secure_first {
            modes.reverse();
        }
        Self { methods: vec![method::CEPHX], modes }
    }
}

fn offered_modes(settings: &ClientAuthSettings, method: u32) -> Vec<u32> {
    if method == method::NONE { vec![con_mode::CRC] } else { settings.modes.clone() }
}

/// The client's side towards a monitor. Takes the tickets into [`Tickets`] when done, unless
/// another connection was faster and got another global id.
pub struct MonClientAuth {
    settings: ClientAuthSettings,
    tickets: SharedTickets,
    wanted: u32,
    rng: SharedRandom,
    method: u32,
    claimed: u64,
    server_challenge: u64,
    /// The AUTH ticket shown as the old one; it opens the new one.
    old: Option<Held>,
}

impl MonClientAuth {
    /// For one connection; `wanted` is the mask of services whose tickets are needed.
    #[must_use]
    pub fn new(
        settings: ClientAuthSettings,
        tickets: SharedTickets,
        wanted: u32,
        rng: SharedRandom,
    ) -> Self {
        Self {
            settings,
            tickets,
            wanted,
            rng,
            method: method::UNKNOWN,
            claimed: 0,
            server_challenge: 0,
            old: None,
        }
    }

    fn request(&mut self, method: u32) -> ClientStart {
        let tickets = self.tickets.lock().expect("no panic while held");
        self.method = method;
        self.old = tickets.held.get(&AUTH).cloned();
        // Without its ticket an old number is not given back.
        self.claimed =
            if method == method::NONE || self.old.is_some() { tickets.global_id } else { 0 };
        let mut w = Writer::new(Features::ALL);
        w.u8(proto::MODE_MON);
        tickets.name.encode(&mut w);
        w.u64(self.claimed);
        let modes = offered_modes(&self.settings, method);
        ClientStart { method, modes, payload: w.finish() }
    }
}

impl ClientAuth for MonClientAuth {
    fn start(&mut self, _now: Now) -> Result<ClientStart, AuthError> {
        let first = *self
            .settings
            .methods
            .first()
            .ok_or(AuthError::Protocol("no authentication method is configured"))?;
        Ok(self.request(first))
    }

    fn bad_method(
        &mut self,
        _now: Now,
        method: u32,
        result: i32,
        allowed_methods: &[u32],
        _allowed_modes: &[u32],
    ) -> Result<ClientStart, AuthError> {
        if method == self.method && self.old.is_some() {
            // The old ticket may be what is wrong: once more, as a stranger.
            self.tickets.lock().expect("no panic while held").invalidate(EntityKind::AUTH);
            return Ok(self.request(method));
        }
        let tried = self.settings.methods.iter().position(|m| *m == self.method);
        let next = self.settings.methods[tried.map_or(0, |at| at + 1)..]
            .iter()
            .copied()
            .find(|m| allowed_methods.contains(m));
        match next {
            Some(method) => Ok(self.request(method)),
            None => Err(refused(result, allowed_methods)),
        }
    }

    fn more(&mut self, _now: Now, payload: &[u8]) -> Result<Bytes, AuthError> {
        if self.method != method::CEPHX {
            return Err(AuthError::Protocol("a challenge without cephx"));
        }
        let challenge = ServerChallenge::decode(&mut Reader::new(payload))?;
        self.server_challenge = challenge.server_challenge;
        let tickets = self.tickets.lock().expect("no panic while held");
        let mut rng = self.rng.lock().expect("no panic while held");
        let old = self.old.as_ref();
        let mut w = Writer::new(Features::ALL);
        tickets.put_authenticate(&mut w, self.server_challenge, self.wanted, old, &mut *rng)?;
        Ok(w.finish())
    }

    fn done(
        &mut self,
        now: Now,
        global_id: u64,
        mode: u32,
        payload: &[u8],
    ) -> Result<ClientDone, AuthError> {
        let mut tickets = self.tickets.lock().expect("no panic while held");
        let first = tickets.global_id == 0 || tickets.global_id == global_id;
        let same =
            first || tickets.global_id == self.claimed || !tickets.has(now, EntityKind::AUTH);
        if self.method == method::NONE {
            if same {
                tickets.global_id = global_id;
            }
            return Ok(ClientDone {
                global_id,
                session_key: Bytes::new(),
                connection_secret: Bytes::new(),
            });
        }
        let mut r = Reader::new(payload);
        let header = ResponseHeader::decode(&mut r)?;
        if header.status < 0 {
            return Err(refused(header.status, &[method::CEPHX]));
        }
        let old = self.old.as_ref().map(|h| &h.session_key);
        let mut received = get_tickets(&mut r, &tickets.key, old)?;
        let session_key = session_key_of(&received)?;
        let mut secret = Bytes::new();
        if r.left() != 0 {
            let sealed = r.blob_ref()?;
            if !sealed.is_empty() {
                let mut sealed = Reader::new(sealed);
                secret = proto::open_blob(
                    &mut sealed,
                    &session_key,
                    Usage::CON_SECRET,
                    "connection secret",
                )?;
            }
            let extra = r.blob_ref()?;
            if !extra.is_empty() {
                received.extend(get_tickets(&mut Reader::new(extra), &session_key, None)?);
            }
        }
        check_secret(&secret, mode)?;
        if same {
            tickets.global_id = global_id;
            tickets.server_challenge = self.server_challenge;
            tickets.take(now, received);
        }
        let session_key = session_key.secret().clone();
        Ok(ClientDone { global_id, session_key, connection_secret: secret })
    }
}

/// Where an authorizer comes from.
enum Source {
    /// A ticket at hand.
    Tickets(SharedTickets),
    /// A ticket made on the spot with the key that all monitors share.
    MonKey { name: EntityName, key: CryptoKey },
}

/// The client's side towards an OSD, MDS, manager or (from a monitor) another monitor.
pub struct AuthorizerClientAuth {
    settings: ClientAuthSettings,
    service: EntityKind,
    source: Source,
    rng: SharedRandom,
    method: u32,
    nonce: u64,
    shown: Option<(Held, u64)>,
}

impl AuthorizerClientAuth {
    /// For one connection to a daemon of kind `service`.
    #[must_use]
    pub fn new(
        settings: ClientAuthSettings,
        tickets: SharedTickets,
        service: EntityKind,
        rng: SharedRandom,
    ) -> Self {
        Self::with(settings, Source::Tickets(tickets), service, rng)
    }

    /// For one connection from monitor `name` to another.
    #[must_use]
    pub fn between_mons(
        settings: ClientAuthSettings,
        name: EntityName,
        key: CryptoKey,
        rng: SharedRandom,
    ) -> Self {
        Self::with(settings, Source::MonKey { name, key }, EntityKind::MON, rng)
    }

    fn with(
        settings: ClientAuthSettings,
        source: Source,
        service: EntityKind,
        rng: SharedRandom,
    ) -> Self {
        let method = settings.methods.first().copied().unwrap_or(method::CEPHX);
        Self { settings, service, source, rng, method, nonce: 0, shown: None }
    }

    /// The ticket to show, and the holder's number.
    fn ticket(&self, now: Now) -> Result<(Held, u64), AuthError> {
        match &self.source {
            Source::Tickets(tickets) => {
                let tickets = tickets.lock().expect("no panic while held");
                let held = tickets.held.get(&u32::from(self.service.0));
                let held = held.filter(|h| wall(now) < h.expires);
                let held = held.ok_or(AuthError::NoTicket(self.service.name()))?;
                Ok((held.clone(), tickets.global_id))
            }
            Source::MonKey { name, key } => {
                let mut rng = self.rng.lock().expect("no panic while held");
                let now = wall(now);
                let expires = now.plus_secs(3600);
                let session_key = CryptoKey::generate(key.kind, now, &mut *rng);
                let ticket = AuthTicket {
                    name: name.clone(),
                    global_id: 0,
                    created: now,
                    expires,
                    caps: CapsInfo { allow_all: true, caps: Bytes::new() },
                    flags: 0,
                };
                let info = TicketInfo { ticket, session_key: session_key.clone() };
                let blob = key.seal(Usage::TICKET_INFO, &info, &mut *rng)?.into();
                let blob = TicketBlob { secret_id: u64::MAX, blob };
                Ok((Held { session_key, blob, expires, renew_after: expires }, 0))
            }
        }
    }

    fn build(&mut self, answer: Option<u64>) -> Result<Bytes, AuthError> {
        let (held, global_id) =
            self.shown.as_ref().ok_or(AuthError::NoTicket(self.service.name()))?;
        let mut rng = self.rng.lock().expect("no panic while held");
        let authorize = Authorize {
            nonce: self.nonce,
            have_challenge: answer.is_some(),
            server_challenge_plus_one: answer.map_or(0, |a| a.wrapping_add(1)),
        };
        let mut w = Writer::new(Features::ALL);
        let service = u32::from(self.service.0);
        put_authorizer(&mut w, service, *global_id, held, &authorize, &mut *rng)?;
        Ok(w.finish())
    }

    fn request(&mut self, now: Now, method: u32) -> Result<ClientStart, AuthError> {
        self.method = method;
        let modes = offered_modes(&self.settings, method);
        let payload = if method == method::NONE {
            let mut w = Writer::new(Features::ALL);
            w.u8(proto::MODE_AUTHORIZER);
            match &self.source {
                Source::Tickets(tickets) => {
                    let tickets = tickets.lock().expect("no panic while held");
                    tickets.name.encode(&mut w);
                    w.u64(tickets.global_id);
                }
                Source::MonKey { name, .. } => {
                    name.encode(&mut w);
                    w.u64(0);
                }
            }
            w.finish()
        } else {
            self.shown = Some(self.ticket(now)?);
            self.nonce = self.rng.lock().expect("no panic while held").u64();
            self.build(None)?
        };
        Ok(ClientStart { method, modes, payload })
    }
}

impl ClientAuth for AuthorizerClientAuth {
    fn start(&mut self, now: Now) -> Result<ClientStart, AuthError> {
        self.request(now, self.method)
    }

    fn bad_method(
        &mut self,
        now: Now,
        method: u32,
        result: i32,
        allowed_methods: &[u32],
        _allowed_modes: &[u32],
    ) -> Result<ClientStart, AuthError> {
        if method == method::CEPHX && allowed_methods.contains(&method::CEPHX) {
            // The ticket was refused: the next attempt needs a newer one from the monitor.
            if let Source::Tickets(tickets) = &self.source {
                tickets.lock().expect("no panic while held").invalidate(self.service);
            }
            return Err(refused(result, allowed_methods));
        }
        let tried = self.settings.methods.iter().position(|m| *m == self.method);
        let next = self.settings.methods[tried.map_or(0, |at| at + 1)..]
            .iter()
            .copied()
            .find(|m| allowed_methods.contains(m));
        match next {
            Some(method) => self.request(now, method),
            None => Err(refused(result, allowed_methods)),
        }
    }

    fn more(&mut self, _now: Now, payload: &[u8]) -> Result<Bytes, AuthError> {
        let (held, _) = self.shown.as_ref().ok_or(AuthError::Protocol("an early challenge"))?;
        let challenge: AuthorizeChallenge =
            held.session_key.open(Usage::AUTHORIZE_CHALLENGE, payload, "challenge")?;
        self.build(Some(challenge.server_challenge))
    }

    fn done(
        &mut self,
        _now: Now,
        global_id: u64,
        mode: u32,
        payload: &[u8],
    ) -> Result<ClientDone, AuthError> {
        if self.method == method::NONE {
            return Ok(ClientDone {
                global_id,
                session_key: Bytes::new(),
                connection_secret: Bytes::new(),
            });
        }
        let (held, _) = self.shown.as_ref().ok_or(AuthError::Protocol("an early AUTH_DONE"))?;
        let reply: AuthorizeReply = proto::open_blob(
            &mut Reader::new(payload),
            &held.session_key,
            Usage::AUTHORIZE_REPLY,
            "authorizer's reply",
        )?;
        if reply.nonce_plus_one != self.nonce.wrapping_add(1) {
            return Err(AuthError::Protocol("the service answered another nonce"));
        }
        check_secret(&reply.connection_secret, mode)?;
        Ok(ClientDone {
            global_id,
            session_key: held.session_key.secret().clone(),
            connection_secret: reply.connection_secret,
        })
    }
}
