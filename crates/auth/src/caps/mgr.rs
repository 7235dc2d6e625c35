//! Caps at the manager.
//!
//! ```text
//! caps  := grant ((";" | ",") grant)*
//! grant := "allow" rwx | ["allow"] "profile" name arg* | "allow" "service" name rwx
//!        | "allow" "module" name ["with" arg+] rwx | "allow" "command" name ["with" arg+]
//!        each with ["network" net]
//! ```

use std::collections::BTreeMap;
use std::fmt;

use types::{EntityAddr, EntityName};

use super::{
    CapError, Constraint, Cursor, MaybeQuoted, Network, Parsed, Rights, holds_at, put_list,
    put_network,
};

/// One right of an [`MgrCap`]. The peer's `MgrCapGrant`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MgrGrant {
    /// Only for this service.
    pub service: String,
    /// Only for this module's commands.
    pub module: String,
    /// What this profile grants, expanded.
    pub profile: String,
    /// Only this command.
    pub command: String,
    /// Arguments must be there and look so.
    pub args: Vec<(String, Constraint)>,
    /// Which rights.
    pub allow: Rights,
    /// Only from there.
    pub network: Option<Network>,
    expanded: Vec<MgrGrant>,
}

/// What an entity may do at the manager. The peer's `MgrCap`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MgrCap {
    text: String,
    grants: Vec<MgrGrant>,
    unbound: bool,
}

/// What somebody wants to do at the manager.
#[derive(Clone, Copy, Debug)]
pub struct MgrAccess<'a> {
    /// Who.
    pub name: &'a EntityName,
    /// From where.
    pub addr: &'a EntityAddr,
    /// The service that owns the matter.
    pub service: &'a str,
    /// The module that owns the command; empty: the manager itself.
    pub module: &'a str,
    /// A command's prefix; empty for messages.
    pub command: &'a str,
    /// Its arguments as text.
    pub args: &'a BTreeMap<String, String>,
    /// The rights it takes.
    pub wants: Rights,
}

/// Whose command a module answers. Each pool and namespace that the command touches is the module's
/// to judge: the dispatcher looks at the module alone (the peer's `ActivePyModule::is_authorized`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MgrCaller {
    /// Who.
    pub name: EntityName,
    /// From where.
    pub addr: EntityAddr,
    /// What it may do.
    pub caps: MgrCap,
    /// The rights that the command takes.
    pub wants: Rights,
}

impl MgrCaller {
    /// Whether `module` may do the command for its caller in a pool and namespace.
    #[must_use]
    pub fn may(&self, module: &str, pool: &str, nspace: &str) -> bool {
        let args = [("pool", pool), ("namespace", nspace)];
        self.caps.is_capable(&MgrAccess {
            name: &self.name,
            addr: &self.addr,
            service: "py",
            module,
            command: "",
            args: &args.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            wants: self.wants,
        })
    }
}

impl MgrGrant {
    fn is_allow_all(&self) -> bool {
        self.allow == Rights::ANY
            && self.service.is_empty()
            && self.module.is_empty()
            && self.profile.is_empty()
            && self.command.is_empty()
    }

    fn args_fit(&self, a: &MgrAccess<'_>) -> bool {
        self.args.iter().all(|(key, constraint)| constraint.fits(a.args.get(key), a.name))
    }

    fn allowed(&self, a: &MgrAccess<'_>) -> Rights {
        if !self.profile.is_empty() {
            return self.expanded.iter().fold(Rights::NONE, |r, g| r.with(g.allowed(a)));
        }
        if !self.service.is_empty() {
            return if self.service == a.service { self.allow } else { Rights::NONE };
        }
        if !self.module.is_empty() {
            // With a command at hand the module itself checks the arguments.
            let fits = self.module == a.module && (!a.command.is_empty() || self.args_fit(a));
            return if fits { self.allow } else { Rights::NONE };
        }
        if !self.command.is_empty() {
            let fits = self.command == a.command && self.args_fit(a);
            return if fits { Rights::ANY } else { Rights::NONE };
        }
        self.allow
    }
}

/// What a profile grants at the manager.
fn expand(profile: &str, args: &[(String, Constraint)]) -> Result<Vec<MgrGrant>, CapError> {
    let rights = |allow| MgrGrant { allow, ..MgrGrant::default() };
    const RW: Rights = Rights(3);
    Ok(match profile {
        "read-only" => vec![rights(Rights::R)],
        "read-write" => vec![rights(RW)],
        "crash" => vec![MgrGrant { command: "crash post".into(), ..MgrGrant::default() }],
        "osd" | "mds" => vec![],
        "rbd" | "rbd-read-only" => {
            if let Some((key, _)) = args.iter().find(|(k, _)| k != "pool" && k != "namespace") {
                let why = format!("profile '{profile}' does not recognize key '{key}'");
                return Err(CapError::MgrProfile(why));
            }
            vec![MgrGrant {
                module: "rbd_support".into(),
                args: args.to_vec(),
                allow: if profile == "rbd" { RW } else { Rights::R },
                ..MgrGrant::default()
            }]
        }
        _ => return Err(CapError::MgrProfile(format!("unrecognized profile '{profile}'"))),
    })
}

impl MgrCap {
    /// Everything.
    #[must_use]
    pub fn allow_all() -> Self {
        let grants = vec![MgrGrant { allow: Rights::ANY, ..MgrGrant::default() }];
        Self { text: "allow *".into(), grants, unbound: true }
    }

    /// Reads a capability.
    ///
    /// # Errors
    /// [`CapError`].
    pub fn parse(text: &str) -> Result<Self, CapError> {
        let mut c = Cursor::new(text);
        let grants = c.list(grant, Cursor::spaced_separator);
        match grants {
            Some(mut grants) if c.rest().is_empty() => {
                for g in grants.iter_mut().filter(|g| !g.profile.is_empty()) {
                    g.expanded = expand(&g.profile, &g.args)?;
                }
                let unbound = grants.iter().any(|g| g.is_allow_all() && g.network.is_none());
                Ok(Self { text: text.to_owned(), grants, unbound })
            }
            _ if c.rest().is_empty() => {
                Err(CapError::Ended { service: "mgr", text: text.to_owned() })
            }
            _ => Err(CapError::Stopped {
                service: "mgr",
                rest: c.rest().to_owned(),
                text: text.to_owned(),
            }),
        }
    }

    /// As a ticket's caps are used: what cannot be parsed allows nothing.
    #[must_use]
    pub fn parse_lenient(text: &str) -> Self {
        Self::parse(text).unwrap_or_default()
    }

    /// The text it was read from.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Its parts.
    #[must_use]
    pub fn grants(&self) -> &[MgrGrant] {
        &self.grants
    }

    /// Whether some grant allows everything, from wherever it holds.
    #[must_use]
    pub fn is_allow_all(&self) -> bool {
        self.grants.iter().any(MgrGrant::is_allow_all)
    }

    /// Whether `a` is allowed. Rights of several grants add up.
    #[must_use]
    pub fn is_capable(&self, a: &MgrAccess<'_>) -> bool {
        if self.unbound {
            return true;
        }
        let mut allowed = Rights::NONE;
        self.grants.iter().filter(|g| holds_at(g.network.as_ref(), a.addr)).any(|g| {
            allowed = allowed.with(g.allowed(a));
            g.is_allow_all() || allowed.has(a.wants)
        })
    }
}

fn grant(c: &mut Cursor<'_>) -> Parsed<MgrGrant> {
    c.spaces();
    let found = c
        .attempt(rwx_grant)
        .or_else(|| c.attempt(profile_grant))
        .or_else(|| c.attempt(service_grant))
        .or_else(|| c.attempt(module_grant))
        .or_else(|| c.attempt(command_grant))?;
    c.spaces();
    Some(found)
}

fn allow(c: &mut Cursor<'_>) -> Parsed<()> {
    c.lit("allow")?;
    c.spaces()
}

fn rwx_grant(c: &mut Cursor<'_>) -> Parsed<MgrGrant> {
    allow(c)?;
    Some(MgrGrant { allow: c.rwx()?, network: c.network(Cursor::spaces), ..MgrGrant::default() })
}

fn profile_grant(c: &mut Cursor<'_>) -> Parsed<MgrGrant> {
    c.attempt(allow);
    c.key("profile")?;
    let profile = c.string()?.to_owned();
    let args = c.attempt(|c| {
        c.spaces()?;
        c.arguments(true)
    });
    let args = args.unwrap_or_default();
    Some(MgrGrant { profile, args, network: c.network(Cursor::spaces), ..MgrGrant::default() })
}

fn service_grant(c: &mut Cursor<'_>) -> Parsed<MgrGrant> {
    allow(c)?;
    c.key("service")?;
    let service = c.string()?.to_owned();
    c.spaces()?;
    let allow = c.rwx()?;
    Some(MgrGrant { service, allow, network: c.network(Cursor::spaces), ..MgrGrant::default() })
}

fn with(c: &mut Cursor<'_>) -> Vec<(String, Constraint)> {
    let args = c.attempt(|c| {
        c.spaces()?;
        c.lit("with")?;
        c.spaces()?;
        c.arguments(true)
    });
    args.unwrap_or_default()
}

fn module_grant(c: &mut Cursor<'_>) -> Parsed<MgrGrant> {
    allow(c)?;
    c.key("module")?;
    let module = c.string()?.to_owned();
    let args = with(c);
    c.spaces()?;
    let allow = c.rwx()?;
    Some(MgrGrant {
        module,
        args,
        allow,
        network: c.network(Cursor::spaces),
        ..MgrGrant::default()
    })
}

fn command_grant(c: &mut Cursor<'_>) -> Parsed<MgrGrant> {
    allow(c)?;
    c.key("command")?;
    let command = c.string()?.to_owned();
    let args = with(c);
    Some(MgrGrant { command, args, network: c.network(Cursor::spaces), ..MgrGrant::default() })
}

impl fmt::Display for MgrGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.profile.is_empty() {
            f.write_str("allow")?;
            for (word, name) in [
                (" service ", &self.service),
                (" module ", &self.module),
                (" command ", &self.command),
            ] {
                if !name.is_empty() {
                    write!(f, "{word}{}", MaybeQuoted(name))?;
                }
            }
            if !self.args.is_empty() {
                f.write_str(" with")?;
            }
        } else {
            write!(f, "profile {}", MaybeQuoted(&self.profile))?;
        }
        for (key, constraint) in &self.args {
            let key = MaybeQuoted(key);
            match constraint {
                Constraint::Equal(v) => write!(f, " {key}={}", MaybeQuoted(v))?,
                Constraint::Prefix(v) => write!(f, " {key} prefix {}", MaybeQuoted(v))?,
                Constraint::Regex(v, _) => write!(f, " {key} regex {}", MaybeQuoted(v))?,
                Constraint::DaemonPrivate | Constraint::Absent => {}
            }
        }
        if self.allow != Rights::NONE {
            write!(f, " {}", self.allow)?;
        }
        put_network(f, self.network.as_ref())
    }
}

/// In canonical form.
impl fmt::Display for MgrCap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        put_list(f, &self.grants)
    }
}
