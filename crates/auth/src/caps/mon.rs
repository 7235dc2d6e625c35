//! Caps at the monitors.
//!
//! ```text
//! caps    := grant ((";" | ",") grant)*
//! grant   := "allow" rwx ["network" net] ["fsname" name]
//!          | ["allow"] "profile" name ["network" net]
//!          | "allow" "service" name rwx ["network" net]
//!          | "allow" "command" name ["with" arg+] ["network" net]
//! arg     := key "=" value | key "prefix" value | key "regex" value
//! ```

use std::collections::BTreeMap;
use std::fmt;

use denc::{DecodeError, Denc, Reader, Writer};
use types::{EntityAddr, EntityName};

use super::{
    CapError, Constraint, Cursor, MaybeQuoted, Network, Parsed, Rights, holds_at, put_list,
    put_network,
};

/// One right of a [`MonCap`]. The peer's `MonCapGrant`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MonGrant {
    /// Only for this service: `osd`, `config-key`, ...
    pub service: String,
    /// What this profile grants, expanded.
    pub profile: String,
    /// Only this command.
    pub command: String,
    /// Its arguments must be there and look so.
    pub args: Vec<(String, Constraint)>,
    /// Which rights.
    pub allow: Rights,
    /// Only from there.
    pub network: Option<Network>,
    /// Only what concerns this file system.
    pub fs_name: String,
    expanded: Vec<MonGrant>,
}

/// What an entity may do at the monitors. The peer's `MonCap`: 4/4 { string }; a text that
/// cannot be parsed allows nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MonCap {
    text: String,
    grants: Vec<MonGrant>,
    /// `allow *` without any bound: nothing else needs to be looked at.
    unbound: bool,
}

/// What somebody wants to do at a monitor.
#[derive(Clone, Copy, Debug)]
pub struct MonAccess<'a> {
    /// Who: profiles of daemons grant each its own keys.
    pub name: &'a EntityName,
    /// From where.
    pub addr: &'a EntityAddr,
    /// The service that owns the matter: `mon`, `osd`, `auth`, ...
    pub service: &'a str,
    /// A command's prefix; empty for messages.
    pub command: &'a str,
    /// Its arguments as text.
    pub args: &'a BTreeMap<String, String>,
    /// The rights it takes.
    pub wants: Rights,
}

impl MonGrant {
    fn rights(allow: Rights) -> Self {
        Self { allow, ..Self::default() }
    }

    fn on(service: &str, allow: Rights) -> Self {
        Self { service: service.into(), allow, ..Self::default() }
    }

    fn run(command: &str) -> Self {
        Self { command: command.into(), ..Self::default() }
    }

    fn given(mut self, key: &str, constraint: Constraint) -> Self {
        self.args.push((key.into(), constraint));
        self
    }

    fn is_allow_all(&self) -> bool {
        self.allow == Rights::ANY
            && self.service.is_empty()
            && self.profile.is_empty()
            && self.command.is_empty()
            && self.fs_name.is_empty()
    }

    /// A grant that says which caps may be given, says so of every service for which any may.
    fn covers_caps(&self, a: &MonAccess<'_>) -> bool {
        let is_caps = |key: &str| key.starts_with("caps_");
        let conditions = || self.args.iter().map(|(key, _)| key.as_str()).filter(|k| is_caps(k));
        conditions().next().is_none()
            || a.args.keys().filter(|k| is_caps(k)).all(|k| conditions().any(|c| c == k))
    }

    fn allowed(&self, a: &MonAccess<'_>) -> Rights {
        if !self.profile.is_empty() {
            return self.expanded.iter().fold(Rights::NONE, |r, g| r.with(g.allowed(a)));
        }
        if !self.service.is_empty() {
            return if self.service == a.service { self.allow } else { Rights::NONE };
        }
        if !self.command.is_empty() {
            let fits = self.command == a.command
                && self.args.iter().all(|(key, c)| c.fits(a.args.get(key), a.name))
                && self.covers_caps(a);
            return if fits { Rights::RWX } else { Rights::NONE };
        }
        // Keys of the key/value store take `allow *` or a grant that names it.
        if a.service == "config-key" { Rights::NONE } else { self.allow }
    }
}

/// What a profile grants at the monitors. Unknown profiles grant nothing.
fn expand(profile: &str) -> Vec<MonGrant> {
    use MonGrant as G;
    const RW: Rights = Rights(3);
    const BLOCKLIST: (&str, &str) = ("osd blocklist", "blocklistop");
    let (r, w, all) = (Rights::R, Rights::W, Rights::RWX);
    let equal = |v: &str| Constraint::Equal(v.into());
    let prefix = |v: &str| Constraint::Prefix(v.into());
    let mut out = Vec::new();
    let on = |out: &mut Vec<G>, list: &[(&str, Rights)]| {
        out.extend(list.iter().map(|(service, rights)| G::on(service, *rights)));
    };
    // Only one instance of a client, never an address as such (nonce 0) nor a range. The command's
    // former name is not in every profile.
    let blocklist = |out: &mut Vec<G>, names: &[(&str, &str)]| {
        for (command, op) in names {
            let instance = Constraint::regex("^[^/]+/0*[1-9][0-9]*$");
            let add = G::run(command).given(op, equal("add")).given("addr", instance);
            out.push(add.given("range", Constraint::Absent));
        }
    };
    match profile {
        "read-only" => out.push(G::rights(r)),
        "read-write" => out.push(G::rights(RW)),
        "mon" => on(&mut out, &[("mon", all), ("log", all)]),
        "osd" => {
            on(&mut out, &[("osd", all), ("mon", r), ("pg", RW), ("log", w)]);
            let names = Constraint::regex(
                "^(osd_max_backfills|osd_recovery_max_active(.*)|osd_mclock_scheduler_(.*))",
            );
            out.push(G::run("config rm").given("name", names));
        }
        "mds" => {
            on(&mut out, &[("mds", all), ("mon", r), ("osd", r), ("log", w)]);
            out.extend(["osd pool rmsnap", "osd blocklist", "osd blacklist"].map(G::run));
        }
        "mgr" => {
            on(
                &mut out,
                &[
                    ("mgr", all),
                    ("log", RW),
                    ("mon", RW),
                    ("mds", RW),
                    ("fs", RW),
                    ("osd", RW),
                    ("auth", all),
                    ("config-key", RW),
                    ("config", RW),
                ],
            );
            out.extend(
                ["auth get-or-create", "auth caps", "auth rm", "smart", "heap", "dump_mempools"]
                    .map(G::run),
            );
        }
        "bootstrap-osd" => {
            on(&mut out, &[("mon", r), ("osd", r)]);
            out.extend(["mon getmap", "osd new", "osd purge-new"].map(G::run));
        }
        "bootstrap-mds" | "bootstrap-mgr" | "bootstrap-rgw" => {
            on(&mut out, &[("mon", r), ("osd", r)]);
            out.push(G::run("mon getmap"));
            let create = G::run("auth get-or-create");
            out.push(match profile {
                "bootstrap-mgr" => create
                    .clone()
                    .given("entity", prefix("mgr."))
                    .given("caps_mon", equal("allow profile mgr"))
                    .given("caps_osd", equal("allow *"))
                    .given("caps_mds", equal("allow *")),
                "bootstrap-mds" => create
                    .clone()
                    .given("entity", prefix("mds."))
                    .given("caps_mon", equal("allow profile mds"))
                    .given("caps_osd", equal("allow rwx"))
                    .given("caps_mds", equal("allow")),
                _ => create
                    .clone()
                    .given("entity", prefix("client.rgw."))
                    .given("caps_mon", equal("allow rw"))
                    .given("caps_osd", equal("allow rwx")),
            });
            if profile == "bootstrap-mgr" {
                // Without the caps that a manager's modules take.
                let create = create.given("entity", prefix("mgr."));
                out.push(create.given("caps_mon", equal("allow profile mgr")));
            }
        }
        "bootstrap-rbd" | "bootstrap-rbd-mirror" => {
            on(&mut out, &[("mon", r)]);
            let mon = if profile == "bootstrap-rbd" { "profile rbd" } else { "profile rbd-mirror" };
            // `;` begins another grant, as `,` does.
            let images = Constraint::regex(
                r#"^([ ,]*profile(=|[ ]+)['"]?rbd[^ ,;'"]*['"]?([ ]+pool(=|[ ]+)['"]?[^,;'"]+['"]?)?)+$"#,
            );
            let create = G::run("auth get-or-create")
                .given("entity", prefix("client."))
                .given("caps_mon", equal(mon))
                .given("caps_osd", images.clone());
            // With or without what modules of the manager take.
            out.push(create.clone().given("caps_mgr", images));
            out.push(create);
        }
        "fs-client" => on(&mut out, &[("mon", r), ("mds", r), ("osd", r), ("pg", r)]),
        "simple-rados-client" => on(&mut out, &[("mon", r), ("osd", r), ("pg", r)]),
        "simple-rados-client-with-blocklist" => {
            on(&mut out, &[("mon", r), ("osd", r), ("pg", r)]);
            blocklist(&mut out, &[BLOCKLIST]);
        }
        "crash" => on(&mut out, &[("mon", r)]),
        "cephfs-mirror" => {
            on(&mut out, &[("mon", r), ("mds", r), ("osd", r), ("pg", r)]);
            out.push(G::run("config-key get").given("key", prefix("cephfs/mirror/peer/")));
        }
        "role-definer" => on(&mut out, &[("mon", r), ("auth", all)]),
        _ => {}
    }
    if profile.starts_with("rbd") {
        on(&mut out, &[("mon", r), ("osd", r), ("pg", r)]);
        blocklist(&mut out, &[BLOCKLIST, ("osd blacklist", "blacklistop")]);
    }
    match profile {
        "rbd-mirror" => {
            out.push(G::run("config-key get").given("key", prefix("rbd/mirror/")));
        }
        "rbd-mirror-peer" => {
            let peer = Constraint::regex("rbd/mirror/[^/]+");
            out.push(G::run("config-key get").given("key", peer));
            out.push(G::run("config-key set").given("key", prefix("rbd/mirror/peer/")));
        }
        "mon" | "osd" | "mds" | "mgr" => {
            for verb in ["get", "put", "set", "exists", "delete"] {
                let command = format!("config-key {verb}");
                out.push(G::run(&command).given("key", Constraint::DaemonPrivate));
            }
        }
        _ => {}
    }
    out
}

impl MonCap {
    /// Everything.
    #[must_use]
    pub fn allow_all() -> Self {
        Self { text: "allow *".into(), grants: vec![MonGrant::rights(Rights::ANY)], unbound: true }
    }

    /// Reads a capability.
    ///
    /// # Errors
    /// [`CapError::Stopped`] and [`CapError::Ended`].
    pub fn parse(text: &str) -> Result<Self, CapError> {
        let mut c = Cursor::new(text);
        let grants = c.list(grant, Cursor::spaced_separator);
        match grants {
            Some(grants) if c.rest().is_empty() => {
                let unbound = grants.iter().any(|g| g.is_allow_all() && g.network.is_none());
                Ok(Self { text: text.to_owned(), grants, unbound })
            }
            _ if c.rest().is_empty() => {
                Err(CapError::Ended { service: "mon", text: text.to_owned() })
            }
            _ => Err(CapError::Stopped {
                service: "mon",
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
    pub fn grants(&self) -> &[MonGrant] {
        &self.grants
    }

    /// Whether some grant allows everything, from wherever it holds.
    #[must_use]
    pub fn is_allow_all(&self) -> bool {
        self.grants.iter().any(MonGrant::is_allow_all)
    }

    /// Whether `a` is allowed. Rights of several grants add up.
    #[must_use]
    pub fn is_capable(&self, a: &MonAccess<'_>) -> bool {
        if self.unbound {
            return true;
        }
        let mut allowed = Rights::NONE;
        self.grants.iter().filter(|g| holds_at(g.network.as_ref(), a.addr)).any(|g| {
            allowed = allowed.with(g.allowed(a));
            g.is_allow_all() || allowed.has(a.wants)
        })
    }

    /// Whether anything about file system `name` is allowed with one of `rights`.
    #[must_use]
    pub fn is_capable_of_fs(&self, name: &str, rights: Rights) -> bool {
        let fits =
            |g: &MonGrant| (g.fs_name.is_empty() || g.fs_name == name) && g.allow.0 & rights.0 != 0;
        self.grants.iter().any(|g| {
            g.is_allow_all()
                || fits(g)
                || g.expanded.iter().any(|p| (p.service == "fs" || p.service == "mds") && fits(p))
        })
    }
}

fn grant(c: &mut Cursor<'_>) -> Parsed<MonGrant> {
    c.spaces();
    let found = c
        .attempt(rwx_grant)
        .or_else(|| c.attempt(profile_grant))
        .or_else(|| c.attempt(service_grant))
        .or_else(|| c.attempt(command_grant))?;
    c.spaces();
    Some(found)
}

fn rwx_grant(c: &mut Cursor<'_>) -> Parsed<MonGrant> {
    c.lit("allow")?;
    c.spaces()?;
    let allow = c.rwx()?;
    let network = c.network(Cursor::spaces);
    let fs_name = c.attempt(|c| {
        c.spaces()?;
        c.key("fsname")?;
        c.run(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
    });
    let fs_name = fs_name.unwrap_or_default().to_owned();
    Some(MonGrant { allow, network, fs_name, ..MonGrant::default() })
}

fn profile_grant(c: &mut Cursor<'_>) -> Parsed<MonGrant> {
    c.attempt(|c| {
        c.lit("allow")?;
        c.spaces()
    });
    c.key("profile")?;
    let profile = c.string()?.to_owned();
    let network = c.network(Cursor::spaces);
    Some(MonGrant { expanded: expand(&profile), profile, network, ..MonGrant::default() })
}

fn service_grant(c: &mut Cursor<'_>) -> Parsed<MonGrant> {
    c.lit("allow")?;
    c.spaces()?;
    c.key("service")?;
    let service = c.string()?.to_owned();
    c.spaces()?;
    let allow = c.rwx()?;
    Some(MonGrant { service, allow, network: c.network(Cursor::spaces), ..MonGrant::default() })
}

fn command_grant(c: &mut Cursor<'_>) -> Parsed<MonGrant> {
    c.lit("allow")?;
    c.spaces()?;
    c.key("command")?;
    let command = c.string()?.to_owned();
    let args = c.attempt(|c| {
        c.spaces()?;
        c.lit("with")?;
        c.spaces()?;
        c.arguments(false)
    });
    let args = args.unwrap_or_default();
    Some(MonGrant { command, args, network: c.network(Cursor::spaces), ..MonGrant::default() })
}

impl fmt::Display for MonGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("allow")?;
        if !self.service.is_empty() {
            write!(f, " service {}", MaybeQuoted(&self.service))?;
        }
        if !self.command.is_empty() {
            write!(f, " command {}", MaybeQuoted(&self.command))?;
            if !self.args.is_empty() {
                f.write_str(" with")?;
            }
            for (key, constraint) in &self.args {
                let key = MaybeQuoted(key);
                match constraint {
                    Constraint::Equal(v) => write!(f, " {key}={}", MaybeQuoted(v))?,
                    Constraint::Prefix(v) => write!(f, " {key} prefix {}", MaybeQuoted(v))?,
                    Constraint::Regex(v, _) => write!(f, " {key} regex {}", MaybeQuoted(v))?,
                    Constraint::DaemonPrivate => write!(f, " {key} prefix daemon-private")?,
                    Constraint::Absent => write!(f, " {key} absent")?,
                }
            }
        }
        if !self.profile.is_empty() {
            write!(f, " profile {}", MaybeQuoted(&self.profile))?;
        }
        if self.allow != Rights::NONE {
            write!(f, " {}", self.allow)?;
        }
        put_network(f, self.network.as_ref())?;
        if !self.fs_name.is_empty() {
            write!(f, " fsname={}", self.fs_name)?;
        }
        Ok(())
    }
}

/// In canonical form.
impl fmt::Display for MonCap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        put_list(f, &self.grants)
    }
}

impl Denc for MonCap {
    fn encode(&self, w: &mut Writer) {
        w.framed(4, 4, |w| w.str(&self.text));
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("MonCap", 4, |r, _| Ok(Self::parse_lenient(&r.string()?)))
    }
}
