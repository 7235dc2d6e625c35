//! Who may do what: cephx keys, tickets and handshakes, keyring files and capabilities.
//!
//! Invariants: nothing here reads a clock, a file, a socket or a source of chance; the time
//! and randomness are handed in. Peers' bytes never panic: they end in a typed refusal.
//! Secrets never appear in `Debug` output.
//!
//! Source: the peer's `auth/`, `mon/MonCap`, `osd/OSDCap`, `mds/MDSAuthCaps`, `mgr/MgrCap`;
//! bytes checked against live 16.2.15 and 20.2.4 clusters.

pub mod caps;
mod client;
mod crypto;
pub mod handshake;
mod keyring;
mod keyserver;
mod monitor;
pub mod proto;
mod service;
mod signer;
#[cfg(test)]
mod testutil;

pub use caps::{
    CapError, ClassCall, MdsAccess, MdsCap, MdsMay, MgrAccess, MgrCaller, MgrCap, MonAccess,
    MonCap, OsdAccess, OsdCap, PoolApps, Rights,
};
pub use client::{
    AuthorizerClientAuth, ClientAuthSettings, MonClientAuth, SharedTickets, Tickets, service_mask,
};
pub use crypto::{CryptoKey, KeyError, KeyKind, Usage, sha256};
pub use handshake::{
    AuthDone, AuthError, ClientAuth, ClientDone, ClientStart, PeerIdentity, ServerAuth, ServerStep,
};
pub use keyring::{Keyring, KeyringError, KeyringFault};
pub use keyserver::{EntityAuth, KeyServer, TicketPolicy};
pub use monitor::{MAuthAnswer, MonAuth, MonAuthSettings};
pub use service::{
    RotatingKeys, ServiceAuth, ServiceAuthSettings, SharedRandom, SharedRotatingKeys,
};
pub use signer::MessageSigner;
