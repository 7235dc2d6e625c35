//! Who is connected, and what they want to be told.

use std::collections::BTreeMap;

use auth::{MgrAccess, MgrCap, MonAccess, MonCap, PeerIdentity, Rights};
use env::ConnId;
use types::{AddrVec, EntityId, EntityKind, EntityName, Features};

use crate::Reply;
use crate::monitor::PeerInfo;

const EACCES: i32 = 13;
const EINVAL: i32 = 22;

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
    /// Its addresses; the first has the socket's IP.
    pub addrs: AddrVec,
    /// What both sides know.
    pub features: Features,
    /// What it may do at the monitors: nothing, when its ticket is for the manager.
    pub caps: MonCap,
    /// What it may do at the manager, where its ticket is for that; `None`: as the key
    /// database says.
    pub mgr_caps: Option<MgrCap>,
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
    pub aside: Aside,
}

/// What waits for a session: its messages until a leader has answered them, and answers until
/// what they tell is committed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Aside {
    messages: usize,
    bytes: usize,
}

/// Messages that may wait for a session before nothing more is read from it.
pub(crate) const ASIDE_MAX: usize = 256;

/// The same in bytes.
pub(crate) const ASIDE_BYTES_MAX: usize = 32 << 20;

impl Aside {
    pub fn add(&mut self, bytes: usize) {
        self.messages += 1;
        self.bytes += bytes;
    }

    pub fn remove(&mut self, bytes: usize) {
        self.messages = self.messages.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    pub fn holds(&self) -> bool {
        self.messages > 0
    }

    pub fn is_full(&self) -> bool {
        self.messages >= ASIDE_MAX || self.bytes >= ASIDE_BYTES_MAX
    }

    /// So much that the session goes: it was not held in time, or is another monitor's.
    pub fn is_over(&self) -> bool {
        self.messages >= 16 * ASIDE_MAX || self.bytes >= 16 * ASIDE_BYTES_MAX
    }
}

impl Session {
    /// For a connection that completed its handshake.
    pub fn new(conn: ConnId, peer: PeerInfo) -> Self {
        let identity = peer.identity;
        // A ticket's caps are in the language of the service that it is for.
        let (caps, mgr_caps) = match (identity.allow_all, peer.at_mgr) {
            (true, true) => (MonCap::default(), Some(MgrCap::allow_all())),
            (true, false) => (MonCap::allow_all(), Some(MgrCap::allow_all())),
            (false, true) => (MonCap::default(), Some(MgrCap::parse_lenient(&identity.caps))),
            (false, false) => (MonCap::parse_lenient(&identity.caps), None),
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
                mgr_caps,
                hostname: String::new(),
            },
            identity,
            subs: BTreeMap::new(),
            aside: Aside::default(),
            config_sent: None,
            at_mgr: peer.at_mgr,
        }
    }

    /// Whether the peer may do `what` (of `rwx`) with a service (`osd`, `log`, ...).
    pub fn may(&self, service: &str, what: &str) -> bool {
        may(&self.info, service, what)
    }
}

/// `rwx` and parts of it as rights.
#[must_use]
pub fn rights(what: &str) -> Rights {
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

/// Whether a peer may do everything at the monitors, from where it is.
pub(crate) fn is_administrator(info: &SessionInfo) -> bool {
    // No grant but `allow *` has all these bits for a service without a name.
    info.caps.is_capable(&MonAccess {
        name: &info.name,
        addr: &info.addrs.front(),
        service: "",
        command: "",
        args: &BTreeMap::new(),
        wants: Rights::ANY,
    })
}

/// Whether a peer with these caps may do anything at the manager, from where it is.
pub(crate) fn may_anything_at_mgr(info: &SessionInfo, caps: &MgrCap) -> bool {
    info.name.kind == EntityKind::MON
        || caps.is_capable(&MgrAccess {
            name: &info.name,
            addr: &info.addrs.front(),
            service: "",
            module: "",
            command: "",
            args: &BTreeMap::new(),
            wants: Rights::NONE,
        })
}

/// The manager's refusal, in the peer's words.
pub(crate) fn mgr_denies() -> Reply {
    Reply::err(
        EACCES,
        "access denied: does your client key have mgr caps? See \
         http://docs.ceph.com/en/latest/mgr/administrator/#client-authentication",
    )
}

/// The answer to a command that is none of the manager's: who may do nothing there does not
/// even hear that.
#[must_use]
pub fn no_handler(info: &SessionInfo, caps: &MgrCap, prefix: &str) -> Reply {
    if may_anything_at_mgr(info, caps) {
        Reply::err(EINVAL, format!("No handler found for '{prefix}'"))
    } else {
        mgr_denies()
    }
}

/// The command that a peer with these caps means and may run at the manager, or what to answer.
///
/// # Errors
/// EINVAL for what is no command of the manager; EACCES for what the caps do not allow.
pub fn judge_at_mgr(
    info: &SessionInfo,
    caps: &MgrCap,
    args: &cli::Args,
) -> Result<&'static cli::Command, Reply> {
    let known = cli::find(args).filter(|known| known.flags.has(cli::Flags::MGR));
    let known = known.ok_or_else(|| no_handler(info, caps, args.prefix()))?;
    if may_run_at_mgr(info, caps, known, args) { Ok(known) } else { Err(mgr_denies()) }
}

/// Whether a peer with these caps may run a command of the manager. What it touches is looked at
/// where the command names it; lists are cut to what the caller may see by who makes them.
pub(crate) fn may_run_at_mgr(
    info: &SessionInfo,
    caps: &MgrCap,
    command: &cli::Command,
    args: &cli::Args,
) -> bool {
    if info.name.kind == EntityKind::MON {
        return true;
    }
    let module = command.manager_module();
    let asks = |prefix: &str, args: &BTreeMap<String, String>| {
        caps.is_capable(&MgrAccess {
            name: &info.name,
            addr: &info.addrs.front(),
            service: if module.is_some() { "py" } else { command.module },
            module: module.unwrap_or_default(),
            command: prefix,
            args,
            wants: rights(command.perm),
        })
    };
    let given = args.judged(&command.sig);
    if !asks(args.prefix(), &given) {
        return false;
    }
    // A grant for this module may be bound to pools and namespaces.
    let scope = image_scope(&given);
    let is_scoped = !scope.is_empty() || args.prefix().starts_with("rbd perf ");
    module != Some("rbd_support") || !is_scoped || asks("", &scope)
}

/// The pool and namespace that a command about images names; neither, where it is about all.
fn image_scope(args: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let has = |name: &str| args.get(name).filter(|text| !text.is_empty());
    let mut scope = BTreeMap::new();
    let (pool, nspace) = if let Some(spec) = has("image_spec").or_else(|| has("image_id_spec")) {
        match spec.split('/').collect::<Vec<_>>().as_slice() {
            [_image] => ("rbd", Some("")),
            [pool, _image] => (*pool, Some("")),
            [pool, nspace, ..] => (*pool, Some(*nspace)),
            [] => return scope,
        }
    } else if let Some(spec) = has("level_spec") {
        // POOL/, POOL/NS/, POOL/IMAGE, POOL/NS/IMAGE
        match spec.split('/').collect::<Vec<_>>().as_slice() {
            [pool, ""] | [pool] => (*pool, None),
            [pool, _image] => (*pool, Some("")),
            [pool, nspace, ..] => (*pool, Some(*nspace)),
            [] => return scope,
        }
    } else if let Some(spec) = has("pool_spec") {
        let (pool, nspace) = spec.split_once('/').unwrap_or((spec, ""));
        (pool, Some(nspace))
    } else {
        return scope;
    };
    scope.insert("pool".to_owned(), pool.to_owned());
    if let Some(nspace) = nspace {
        scope.insert("namespace".to_owned(), nspace.to_owned());
    }
    scope
}
