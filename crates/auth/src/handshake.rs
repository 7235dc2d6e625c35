//! The seam between authentication and the messenger: one object per connection, without
//! I/O, driven through the handshake frames.
//!
//! ```text
//! client                                  server
//! start() ── AUTH_REQUEST ──────────────▶ request()
//! bad_method() ◀── AUTH_BAD_METHOD ────── Refuse   (from any state; then start anew or close)
//! more()  ◀── AUTH_REPLY_MORE ─────────── More
//!         ── AUTH_REQUEST_MORE ─────────▶ more()
//! done()  ◀── AUTH_DONE ───────────────── Done
//! ```
//!
//! Both sides then hold the same session key (signatures) and connection secret (secure
//! mode); only the server's [`PeerIdentity`] may be trusted for authorization.

use bytes::Bytes;
use env::Now;
use types::{EntityAddr, EntityKind, EntityName, UTime};

/// Authentication methods as numbered on the wire.
pub mod method {
    /// Nothing chosen yet.
    pub const UNKNOWN: u32 = 0;
    /// No authentication: everybody is who they say.
    pub const NONE: u32 = 1;
    /// Shared secrets and tickets.
    pub const CEPHX: u32 = 2;
}

/// Connection modes as numbered on the wire.
pub mod con_mode {
    /// Checksums only.
    pub const CRC: u32 = 1;
    /// AES-128-GCM.
    pub const SECURE: u32 = 2;

    /// Modes by their names in options: `crc secure`, in order of preference.
    #[must_use]
    pub fn by_names(text: &str) -> Vec<u32> {
        let by_name = |word: &str| match word {
            "crc" => Some(CRC),
            "secure" => Some(SECURE),
            _ => None,
        };
        text.split([' ', ',', ';']).filter_map(by_name).collect()
    }
}

/// Who the peer of a connection is, as proven by its ticket, and what it may do here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerIdentity {
    /// The name its key is filed under.
    pub name: EntityName,
    /// Its cluster-wide unique number.
    pub global_id: u64,
    /// The capability text for this service; empty means it may do nothing.
    pub caps: String,
    /// Whether `caps` does not matter: everything is allowed.
    pub allow_all: bool,
    /// When the ticket was made.
    pub created: UTime,
    /// When the ticket ends.
    pub expires: UTime,
    /// Bits of the ticket; none is in use.
    pub flags: u32,
    /// Whether it claimed back its `global_id` with a ticket, or got a fresh one.
    pub global_id_proven: bool,
    /// At a monitor: the challenge of the handshake, which later tickets asked for by
    /// message answer again.
    pub server_challenge: u64,
}

/// What a completed handshake gives the server's side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthDone {
    /// For AUTH_DONE.
    pub global_id: u64,
    /// The chosen mode, see [`con_mode`].
    pub con_mode: u32,
    /// For AUTH_DONE.
    pub payload: Bytes,
    /// Key of the signatures; empty: method none, signatures are zero.
    pub session_key: Bytes,
    /// 64 bytes in secure mode, else empty.
    pub connection_secret: Bytes,
    /// Whom the connection now belongs to.
    pub peer: PeerIdentity,
}

/// What the server answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerStep {
    /// AUTH_REPLY_MORE with this payload.
    More(Bytes),
    /// AUTH_DONE.
    Done(Box<AuthDone>),
    /// AUTH_BAD_METHOD, with the method that the client asked for; the client may send another
    /// AUTH_REQUEST on the same connection.
    Refuse {
        /// Negative errno.
        result: i32,
        /// Methods to try instead.
        allowed_methods: Vec<u32>,
        /// Modes to try instead.
        allowed_modes: Vec<u32>,
    },
    /// Nothing: the connection ends, and the client tries another server.
    Leave,
}

/// The server's side of one connection's handshake.
pub trait ServerAuth: Send {
    /// AUTH_REQUEST came; `modes` are the client's in its order of preference and
    /// `peer_kind` is what its HELLO said.
    fn request(
        &mut self,
        now: Now,
        peer_kind: EntityKind,
        peer_addr: &EntityAddr,
        method: u32,
        modes: &[u32],
        payload: &[u8],
    ) -> ServerStep;

    /// AUTH_REQUEST_MORE came.
    fn more(&mut self, now: Now, payload: &[u8]) -> ServerStep;

    /// The number that the client is to have, while its challenge is out; 0 where it is not known.
    /// By messenger v1 monitors tell it with the challenge.
    fn global_id(&self) -> u64 {
        0
    }

    /// Why the last step was [`ServerStep::Refuse`], for the log: entity, address, reason.
    fn refusal(&self) -> Option<&str> {
        None
    }
}

/// The client's AUTH_REQUEST.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientStart {
    /// See [`method`].
    pub method: u32,
    /// In order of preference, see [`con_mode`].
    pub modes: Vec<u32>,
    /// The method's first message.
    pub payload: Bytes,
}

/// What a completed handshake gives the client's side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientDone {
    /// Given or confirmed by the monitor.
    pub global_id: u64,
    /// Key of the signatures; empty: method none, signatures are zero.
    pub session_key: Bytes,
    /// 64 bytes in secure mode, else empty.
    pub connection_secret: Bytes,
}

/// Why a handshake cannot go on. Logged by whoever drops the connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AuthError {
    /// The peer's bytes are not what the step asks for.
    #[error("malformed authentication payload: {0}")]
    Malformed(#[from] denc::DecodeError),
    /// Something sealed could not be opened: another key, or altered bytes.
    #[error("cannot decrypt {0}: wrong key or altered bytes")]
    Undecryptable(&'static str),
    /// The server refused, and there is nothing else to try.
    #[error("refused by the server: error {result}, it allows methods {allowed_methods:?}")]
    Refused {
        /// Negative errno.
        result: i32,
        /// What the server would take.
        allowed_methods: Vec<u32>,
    },
    /// No ticket for the service is at hand; ask the monitor for one and connect again.
    #[error("no ticket for service {0} yet")]
    NoTicket(&'static str),
    /// The peer broke the protocol.
    #[error("authentication protocol: {0}")]
    Protocol(&'static str),
}

impl AuthError {
    /// The negative errno that upstream programs show for it.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::Malformed(_) | Self::Protocol(_) => -22,
            Self::Undecryptable(_) => -1,
            Self::Refused { result, .. } => *result,
            Self::NoTicket(_) => -11,
        }
    }
}

/// The client's side of one connection's handshake.
pub trait ClientAuth: Send {
    /// Builds AUTH_REQUEST.
    ///
    /// # Errors
    /// [`AuthError::NoTicket`] when the service's ticket is missing.
    fn start(&mut self, now: Now) -> Result<ClientStart, AuthError>;

    /// AUTH_BAD_METHOD came: either another AUTH_REQUEST, or the end.
    ///
    /// # Errors
    /// [`AuthError::Refused`] when nothing else can be tried.
    fn bad_method(
        &mut self,
        now: Now,
        method: u32,
        result: i32,
        allowed_methods: &[u32],
        allowed_modes: &[u32],
    ) -> Result<ClientStart, AuthError>;

    /// AUTH_REPLY_MORE came; the payload of AUTH_REQUEST_MORE.
    ///
    /// # Errors
    /// As [`AuthError`] says; the connection must be dropped.
    fn more(&mut self, now: Now, payload: &[u8]) -> Result<Bytes, AuthError>;

    /// AUTH_DONE came.
    ///
    /// # Errors
    /// As [`AuthError`] says; the connection must be dropped.
    fn done(
        &mut self,
        now: Now,
        global_id: u64,
        con_mode: u32,
        payload: &[u8],
    ) -> Result<ClientDone, AuthError>;
}
