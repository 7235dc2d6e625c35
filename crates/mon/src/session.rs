//! Who is connected, and what they want to be told.

use std::collections::BTreeMap;

use env::ConnId;
use types::{AddrVec, EntityId, EntityName, Features};

/// The peer of one connection.
#[derive(Clone, Debug)]
pub struct SessionInfo {
    /// The connection.
    pub conn: ConnId,
    /// Who it authenticated as: `client.admin`.
    pub name: EntityName,
    /// Its instance: `client.4123`, `osd.0`.
    pub entity: EntityId,
    /// Its number, unique for the cluster's life.
    pub global_id: u64,
    /// Its addresses.
    pub addrs: AddrVec,
    /// What both sides know.
    pub features: Features,
    /// What it may do here.
    pub caps: auth::MonCap,
    /// Its host, where it said so.
    pub hostname: String,
}

/// One thing a session wants to be told about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// The first epoch wanted; 0 is the latest, whatever it is.
    pub next: u64,
    /// Forgotten once answered.
    pub onetime: bool,
}

/// All of a session's subscriptions, by name.
pub type Subscriptions = BTreeMap<String, Subscription>;
