//! What cephx puts on the wire: challenges, tickets, authorizers.
//!
//! Most of these are "old" versioned structs: one version byte and no length, so unknown
//! versions are read as far as they are known. Source: the peer's
//! `auth/cephx/CephxProtocol.h`, `auth/Auth.h`.

use std::collections::BTreeMap;

use bytes::Bytes;
use denc::{DecodeError, Denc, Reader, Writer};
use env::Random;
use types::{EntityName, UTime};

use crate::{AuthError, CryptoKey, KeyKind};

/// First byte of an AUTH_REQUEST to a service: an authorizer follows.
pub const MODE_AUTHORIZER: u8 = 1;
/// First byte of an AUTH_REQUEST to a monitor; 10 to 19 mean the same.
pub const MODE_MON: u8 = 10;
/// The last of them.
pub const MODE_MON_MAX: u8 = 19;

/// The kinds of requests to the monitors' ticket service.
pub mod request {
    /// Prove the own key and get the AUTH ticket.
    pub const AUTH_SESSION_KEY: u16 = 0x0100;
    /// Get tickets for services with the AUTH ticket.
    pub const PRINCIPAL_SESSION_KEY: u16 = 0x0200;
    /// Get the own service's rotating keys.
    pub const ROTATING_KEY: u16 = 0x0400;
}

fn version(w: &mut Writer, v: u8) {
    w.u8(v);
}

macro_rules! wire {
    ($(#[$doc:meta])* $name:ident v $v:literal { $($(#[$fdoc:meta])* $field:ident: $t:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $name { $($(#[$fdoc])* pub $field: $t,)* }
        impl Denc for $name {
            fn encode(&self, w: &mut Writer) {
                version(w, $v);
                $(self.$field.encode(w);)*
            }
            fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
                let _version = r.u8()?;
                Ok(Self { $($field: Denc::decode(r)?,)* })
            }
        }
    };
}

wire! {
    /// The monitor's challenge. The peer's `CephXServerChallenge`.
    ServerChallenge v 1 {
        /// Random.
        server_challenge: u64,
    }
}
wire! {
    /// A ticket as its holder carries it. The peer's `CephXTicketBlob`.
    TicketBlob v 1 {
        /// Which of the service's rotating keys opens it; all ones: the monitors' own key.
        secret_id: u64,
        /// Sealed [`TicketInfo`].
        blob: Bytes,
    }
}
wire! {
    /// What a ticket holds. The peer's `CephXServiceTicketInfo`.
    TicketInfo v 1 {
        /// Who holds it, and for how long.
        ticket: AuthTicket,
        /// Shared by holder and service.
        session_key: CryptoKey,
    }
}
wire! {
    /// A ticket's part for its holder. The peer's `CephXServiceTicket`.
    ServiceTicket v 1 {
        /// Shared by holder and service.
        session_key: CryptoKey,
        /// How long it is good, from receipt.
        validity: UTime,
    }
}
wire! {
    /// Which tickets are wanted: a mask of kinds. The peer's `CephXServiceTicketRequest`.
    ServiceTicketRequest v 1 {
        /// The mask.
        keys: u32,
    }
}
wire! {
    /// A service's challenge. The peer's `CephXAuthorizeChallenge`.
    AuthorizeChallenge v 1 {
        /// Random.
        server_challenge: u64,
    }
}

/// One of a service's rotating keys. The peer's `ExpiringCryptoKey`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpiringKey {
    /// The key.
    pub key: CryptoKey,
    /// When no new ticket is made with it any more.
    pub expiration: UTime,
}

impl Denc for ExpiringKey {
    fn encode(&self, w: &mut Writer) {
        version(w, 1);
        self.key.encode(w);
        self.expiration.encode(w);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let _version = r.u8()?;
        Ok(Self { key: Denc::decode(r)?, expiration: Denc::decode(r)? })
    }
}

/// A service's keys: previous, current, next. The peer's `RotatingSecrets`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RotatingSecrets {
    /// By id; ids only grow.
    pub secrets: BTreeMap<u64, ExpiringKey>,
    /// The highest id so far.
    pub max_ver: u64,
}

impl Denc for RotatingSecrets {
    fn encode(&self, w: &mut Writer) {
        version(w, 1);
        self.secrets.encode(w);
        w.u64(self.max_ver);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let _version = r.u8()?;
        Ok(Self { secrets: Denc::decode(r)?, max_ver: r.u64()? })
    }
}

/// How many keys a service has at a time.
pub const ROTATING_KEYS: usize = 3;

impl RotatingSecrets {
    /// Whether a key must be added: there are too few, or the current one has expired.
    #[must_use]
    pub fn needs_new(&self, now: UTime) -> bool {
        let current = self.secrets.values().nth(1);
        self.secrets.len() < ROTATING_KEYS || current.is_none_or(|k| k.expiration <= now)
    }

    /// Adds keys until none is needed; they last `ttl_secs` each, one after another.
    pub fn extend(&mut self, now: UTime, ttl_secs: u32, kind: KeyKind, rng: &mut dyn Random) {
        while self.needs_new(now) {
            let start = match self.secrets.values().next_back() {
                None => now,
                Some(next) => now.plus_secs(ttl_secs).max(next.expiration),
            };
            let key = CryptoKey::generate(kind, now, rng);
            self.max_ver += 1;
            let expiration = start.plus_secs(ttl_secs);
            self.secrets.insert(self.max_ver, ExpiringKey { key, expiration });
            while self.secrets.len() > ROTATING_KEYS {
                self.secrets.pop_first();
            }
            if expiration.sec == u32::MAX {
                break; // the end of time: nothing can be added that lasts longer
            }
        }
    }

    /// The key that new tickets are sealed with: the second oldest, or the next one when
    /// that has expired.
    #[must_use]
    pub fn current(&self, now: UTime) -> Option<(u64, &ExpiringKey)> {
        let mut keys = self.secrets.iter().skip(usize::from(self.secrets.len() > 1));
        let (id, key) = keys.next()?;
        let chosen =
            if key.expiration < now { keys.next().unwrap_or((id, key)) } else { (id, key) };
        Some((*chosen.0, chosen.1))
    }

    /// Shortens a ticket's life so that it does not outlive the newest key.
    #[must_use]
    pub fn cap_ttl(&self, now: UTime, ttl_secs: u32) -> u32 {
        let end = self.secrets.values().next_back().map_or(now.sec, |k| k.expiration.sec);
        ttl_secs.min(end.saturating_sub(now.sec))
    }
}

/// Caps as a ticket carries them. The peer's `AuthCapsInfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CapsInfo {
    /// Everything is allowed.
    pub allow_all: bool,
    /// An encoded string, or nothing.
    pub caps: Bytes,
}

impl CapsInfo {
    /// With this text.
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        Self { allow_all: false, caps: text.to_owned().to_bytes() }
    }

    /// The text; empty when there is none.
    ///
    /// # Errors
    /// [`DecodeError`] when the bytes are not an encoded string.
    pub fn text(&self) -> Result<String, DecodeError> {
        if self.caps.is_empty() { Ok(String::new()) } else { Reader::new(&self.caps).string() }
    }
}

impl Denc for CapsInfo {
    fn encode(&self, w: &mut Writer) {
        version(w, 1);
        w.bool(self.allow_all);
        w.blob(&self.caps);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let _version = r.u8()?;
        Ok(Self { allow_all: r.bool()?, caps: r.blob()? })
    }
}

/// Who holds a ticket, for how long, with which caps. The peer's `AuthTicket`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthTicket {
    /// The name its key is filed under.
    pub name: EntityName,
    /// Its cluster-wide unique number.
    pub global_id: u64,
    /// When it was made.
    pub created: UTime,
    /// When it ends.
    pub expires: UTime,
    /// For the service the ticket is for.
    pub caps: CapsInfo,
    /// No bit is in use.
    pub flags: u32,
}

impl Denc for AuthTicket {
    fn encode(&self, w: &mut Writer) {
        version(w, 2);
        self.name.encode(w);
        w.u64(self.global_id);
        w.u64(u64::MAX); // the old auid
        self.created.encode(w);
        self.expires.encode(w);
        self.caps.encode(w);
        w.u32(self.flags);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let version = r.u8()?;
        let (name, global_id) = (Denc::decode(r)?, r.u64()?);
        if version >= 2 {
            r.u64()?;
        }
        Ok(Self {
            name,
            global_id,
            created: Denc::decode(r)?,
            expires: Denc::decode(r)?,
            caps: Denc::decode(r)?,
            flags: r.u32()?,
        })
    }
}

/// The proof of a client's key. The peer's `CephXAuthenticate`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Authenticate {
    /// 1 to 3: below 2 there are no `other_keys`, below 3 the old ticket may be missing.
    pub version: u8,
    /// Random.
    pub client_challenge: u64,
    /// See [`CryptoKey::answer_challenge`].
    pub key: u64,
    /// The ticket that goes with a claimed global id; empty blob: none.
    pub old_ticket: TicketBlob,
    /// Mask of services whose tickets are wanted too.
    pub other_keys: u32,
    /// v3's way to say that a ticket was left out on purpose; true for older versions.
    pub old_ticket_may_be_omitted: bool,
}

impl Denc for Authenticate {
    fn encode(&self, w: &mut Writer) {
        version(w, self.version);
        w.u64(self.client_challenge);
        w.u64(self.key);
        self.old_ticket.encode(w);
        if self.version >= 2 {
            w.u32(self.other_keys);
        }
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let version = r.u8()?;
        Ok(Self {
            version,
            client_challenge: r.u64()?,
            key: r.u64()?,
            old_ticket: Denc::decode(r)?,
            other_keys: if version >= 2 { r.u32()? } else { 0 },
            old_ticket_may_be_omitted: version < 3,
        })
    }
}

/// The sealed part of an authorizer. The peer's `CephXAuthorize`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Authorize {
    /// Random, answered plus one.
    pub nonce: u64,
    /// Whether the challenge is answered.
    pub have_challenge: bool,
    /// The answer.
    pub server_challenge_plus_one: u64,
}

impl Denc for Authorize {
    fn encode(&self, w: &mut Writer) {
        version(w, 2);
        w.u64(self.nonce);
        w.bool(self.have_challenge);
        w.u64(self.server_challenge_plus_one);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (version, nonce) = (r.u8()?, r.u64()?);
        if version < 2 {
            return Ok(Self { nonce, ..Self::default() });
        }
        Ok(Self { nonce, have_challenge: r.bool()?, server_challenge_plus_one: r.u64()? })
    }
}

/// A service's last word. The peer's `CephXAuthorizeReply`: v2 only with a secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthorizeReply {
    /// The client's nonce plus one.
    pub nonce_plus_one: u64,
    /// 64 bytes in secure mode.
    pub connection_secret: Bytes,
}

impl Denc for AuthorizeReply {
    fn encode(&self, w: &mut Writer) {
        let v2 = !self.connection_secret.is_empty();
        version(w, 1 + u8::from(v2));
        w.u64(self.nonce_plus_one);
        if v2 {
            w.blob(&self.connection_secret);
        }
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (version, nonce_plus_one) = (r.u8()?, r.u64()?);
        let connection_secret = if version >= 2 { r.blob()? } else { Bytes::new() };
        Ok(Self { nonce_plus_one, connection_secret })
    }
}

/// An authorizer in front of its sealed part: version 1, global id, service, ticket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthorizerHead {
    /// The holder's number.
    pub global_id: u64,
    /// The service the ticket is for.
    pub service: u32,
    /// The ticket.
    pub ticket: TicketBlob,
}

impl Denc for AuthorizerHead {
    fn encode(&self, w: &mut Writer) {
        version(w, 1);
        w.u64(self.global_id);
        w.u32(self.service);
        self.ticket.encode(w);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let _version = r.u8()?;
        Ok(Self { global_id: r.u64()?, service: r.u32()?, ticket: Denc::decode(r)? })
    }
}

/// Kind and result of an answer. The peer's `CephXResponseHeader`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseHeader {
    /// See [`request`].
    pub request_type: u16,
    /// Negative errno or 0.
    pub status: i32,
}

impl Denc for ResponseHeader {
    fn encode(&self, w: &mut Writer) {
        w.u16(self.request_type);
        w.i32(self.status);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { request_type: r.u16()?, status: r.i32()? })
    }
}

/// Reads the blob after a length: the peer's `decode_decrypt`.
pub(crate) fn open_blob<T: Denc>(
    r: &mut Reader<'_>,
    key: &CryptoKey,
    usage: crate::Usage,
    what: &'static str,
) -> Result<T, AuthError> {
    key.open(usage, r.blob_ref()?, what)
}

/// Writes length and blob: the peer's `encode_encrypt`.
pub(crate) fn seal_blob<T: Denc>(
    w: &mut Writer,
    key: &CryptoKey,
    usage: crate::Usage,
    value: &T,
    rng: &mut dyn Random,
) -> Result<(), AuthError> {
    w.blob(&key.seal(usage, value, rng)?);
    Ok(())
}
