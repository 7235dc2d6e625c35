//! A daemon's place in the network: who may connect, where it listens, how it finds the monitors,
//! and what it tells the cluster's log.

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result};
use auth::SharedRotatingKeys;
use conf::{Config, Key, key};
use messages::{Envelope, LogEntry, LogMsg, LogPriority, Message, Paxos};
use rados::{LinkConfig, MonLink, configured_key, mon_addrs};
use rt::{Messenger, Policy};
use types::{
    AddrKind, AddrVec, EntityAddr, EntityId, EntityKind, EntityName, Features, UTime, Uuid,
};

use crate::{FEATURES, hostname};

/// Makes a daemon's messengers, all with the same keys and bounds.
pub struct Doors {
    id: EntityId,
    nonce: u32,
    keys: SharedRotatingKeys,
    none: bool,
    limits: rt::Limits,
}

impl Doors {
    /// For a daemon that clients know as `id`. `nonce` tells this start of it from others at the
    /// same address.
    #[must_use]
    pub fn new(config: &Config, id: EntityId, nonce: u32) -> Self {
        Self {
            id,
            nonce,
            keys: MonLink::new_keys(),
            none: config.get(key::AUTH_SERVICE_REQUIRED) == "none",
            limits: rt::Limits::within(rt::raise_open_files(), 2),
        }
    }

    /// The keys by which tickets are opened; whoever holds the link to the monitors fills them.
    #[must_use]
    pub fn keys(&self) -> SharedRotatingKeys {
        self.keys.clone()
    }

    /// A messenger that listens nowhere yet and takes these modes of connections
    /// ([`rados::modes`]).
    #[must_use]
    pub fn messenger(
        &self,
        modes: &[u32],
        policy: impl Fn(EntityKind) -> Policy + 'static,
    ) -> Messenger {
        let door = MonLink::door(self.id.kind, self.keys.clone(), self.none, modes);
        Messenger::new(rt::Config {
            local: rt::Local {
                kind: self.id.kind,
                num: self.id.num,
                addrs: AddrVec::default(),
                nonce: self.nonce,
                features: FEATURES,
            },
            policy: Box::new(policy),
            auth: Box::new(move |_, _| door()),
            limits: self.limits,
        })
    }
}

/// Which modes of connections daemons accept.
pub(crate) const ACCEPTED_MODES: [Key<key::Str>; 4] = [
    key::MS_SERVICE_MODE,
    key::MS_CLUSTER_MODE,
    key::MS_MON_SERVICE_MODE,
    key::MS_MON_CLUSTER_MODE,
];

/// How clients by messenger v1 are served; `None` where they are not: `ms_bind_msgr1` is off, or a
/// mode is `secure` alone, which v1 cannot be.
#[must_use]
pub fn v1_rules(config: &Config) -> Option<rt::v1::Rules> {
    let plain = |mode: Key<key::Str>| {
        rados::modes(&config.get(mode)).contains(&auth::handshake::con_mode::CRC)
    };
    (config.get(key::MS_BIND_MSGR1) && ACCEPTED_MODES.into_iter().all(plain)).then(|| {
        rt::v1::Rules {
            sign: config.get(key::CEPHX_SIGN_MESSAGES),
            require_signatures: config.get(key::CEPHX_REQUIRE_SIGNATURES)
                || config.get(key::CEPHX_SERVICE_REQUIRE_SIGNATURES),
        }
    })
}

/// The ports that daemons other than monitors listen at.
const PORTS: std::ops::RangeInclusive<u16> = 6800..=7568;

/// Listens at the first free port that daemons use, with `v1` at the next free one for clients by
/// messenger v1, and makes that the messenger's address. Returns it and where v2 listens.
///
/// # Errors
/// When no port from 6800 to 7568 is free.
pub fn bind(
    messenger: &Messenger,
    ip: IpAddr,
    v1: Option<rt::v1::Rules>,
) -> Result<(AddrVec, SocketAddr)> {
    let none = "no free port from 6800 to 7568";
    let at = messenger.bind_range(ip, PORTS).context(none)?;
    let nonce = messenger.local().nonce;
    let mut addrs = vec![EntityAddr::msgr2(at, nonce)];
    if let Some(rules) = v1 {
        let at = messenger.bind_range_v1(ip, PORTS, rules).context(none)?;
        addrs.push(EntityAddr::msgr2(at, nonce).with_kind(AddrKind::LEGACY));
    }
    let addrs = AddrVec(addrs);
    messenger.set_local(|local| local.addrs = addrs.clone());
    Ok((addrs, at))
}

/// How a daemon connects to the monitors and to the other daemons: its key, where they are, which
/// modes it takes.
///
/// # Errors
/// When the options name no key, no monitors or no cluster.
pub fn link_config(
    config: &Config,
    name: EntityName,
    services: Vec<EntityKind>,
) -> Result<LinkConfig> {
    Ok(LinkConfig {
        key: configured_key(config, &name)?,
        name,
        mons: mon_addrs(config)?,
        fsid: fsid(config)?,
        hostname: hostname(),
        services,
        methods: vec![auth::handshake::method::CEPHX, auth::handshake::method::NONE],
        mon_modes: rados::modes(&config.get(key::MS_MON_CLIENT_MODE)),
        modes: rados::modes(&config.get(key::MS_CLUSTER_MODE)),
    })
}

/// The cluster that the options name.
///
/// # Errors
/// When they name none.
pub fn fsid(config: &Config) -> Result<Uuid> {
    config.get(key::FSID).parse().map_err(|why| anyhow::anyhow!("fsid: {why}"))
}

/// Makes a daemon's lines of the cluster's log.
pub struct ClusterLog {
    fsid: Uuid,
    name: EntityName,
    seq: Cell<u64>,
}

impl ClusterLog {
    /// Of a daemon by the name of its key.
    #[must_use]
    pub fn new(fsid: Uuid, name: EntityName) -> Self {
        Self { fsid, name, seq: Cell::new(0) }
    }

    /// The message to the monitors of one line; the daemon's own log has it, too.
    pub fn line(&self, rank: EntityId, addrs: AddrVec, prio: LogPriority, msg: String) -> Envelope {
        self.seq.set(self.seq.get() + 1);
        tracing::warn!("{msg}");
        let entry = LogEntry {
            name: self.name.clone(),
            rank,
            addrs,
            stamp: UTime::from_nanos(rt::now().wall_ns),
            seq: self.seq.get(),
            prio,
            msg,
            channel: "cluster".to_owned(),
        };
        let log = LogMsg { paxos: Paxos::default(), fsid: self.fsid, entries: vec![entry] };
        log.envelope(Features::ALL)
    }
}
