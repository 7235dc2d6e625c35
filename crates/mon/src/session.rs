//! Who is connected, and what they want to be told.

use std::collections::BTreeMap;

use auth::{MonAccess, MonCap, PeerIdentity, Rights};
use env::ConnId;
use types::{AddrVec, EntityId, EntityName, Features};

use crate::monitor::PeerInfo;

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
    pub caps: MonCap,
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

/// A connection's state.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub info: SessionInfo,
    pub identity: PeerIdentity,
    pub subs: BTreeMap<String, Subscription>,
    /// The settings it was sent last.
    pub config_sent: Option<BTreeMap<String, String>>,
    /// It is a connection to the manager's role.
    pub at_mgr: bool,
}

impl Session {
    /// For a connection that completed its handshake.
    pub fn new(conn: ConnId, peer: PeerInfo) -> Self {
        let identity = peer.identity;
        let caps = if identity.allow_all {
            MonCap::allow_all()
        } else {
            MonCap::parse_lenient(&identity.caps)
        };
        Self {
            info: SessionInfo {
                conn,
                name: identity.name.clone(),
                entity: peer.entity,
                global_id: identity.global_id,
                addrs: peer.addrs,
                features: peer.features,
                caps,
                hostname: String::new(),
            },
            identity,
            subs: BTreeMap::new(),
            config_sent: None,
            at_mgr: peer.at_mgr,
        }
    }

    /// Whether the peer may do `what` (of `rwx`) with a service (`osd`, `log`, ...).
    pub fn may(&self, service: &str, what: &str) -> bool {
        may(&self.info, service, what)
    }

    /// Whether it may know of what it asks for. Monitor map and settings are everybody's.
    pub fn may_subscribe(&self, name: &str) -> bool {
        match name {
            "monmap" | "config" => true,
            "osd_pg_creates" => self.may("osd", "w"),
            "osdmap" | "cls" => self.may("osd", "r"),
            _ if name.starts_with("mdsmap") || name.starts_with("fsmap") => self.may("mds", "r"),
            _ if name.starts_with("log-") => self.may("log", "r"),
            _ => self.may("mon", "r"),
        }
    }
}

/// `rwx` and parts of it as rights.
pub(crate) fn rights(what: &str) -> Rights {
    let mut all = Rights::NONE;
    for (c, right) in [('r', Rights::R), ('w', Rights::W), ('x', Rights::X)] {
        if what.contains(c) {
            all = all.with(right);
        }
    }
    all
}

/// Whether a peer may do `what` (of `rwx`) with a service.
pub(crate) fn may(info: &SessionInfo, service: &str, what: &str) -> bool {
    may_run(info, service, "", &BTreeMap::new(), what)
}

/// Whether a peer may run a command of a service that takes the rights `what`.
pub(crate) fn may_run(
    info: &SessionInfo,
    service: &str,
    command: &str,
    args: &BTreeMap<String, String>,
    what: &str,
) -> bool {
    info.caps.is_capable(&MonAccess {
        name: &info.name,
        addr: &info.addrs.front(),
        service,
        command,
        args,
        wants: rights(what),
    })
}
