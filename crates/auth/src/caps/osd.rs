//! Caps at the OSDs.
//!
//! ```text
//! caps    := grant ((";" | ",") grant)*
//! grant   := ("allow" spec match | "allow" match spec | "profile" name [pool [nspace]]) ["network" net]
//! spec    := "*" | "all" | [r][w][x] ["class-read"] ["class-write"] | "class" name [method]
//! match   := tag | nspace tag | [pool] [nspace] ["object_prefix" prefix]
//! pool    := "pool" name          nspace := "namespace" name["*"]
//! tag     := "tag" application key "=" value
//! ```
//!
//! The check runs on every operation: `allow *` is one test of a flag, and the rest compares
//! strings without allocating.

use std::collections::BTreeMap;
use std::fmt;

use types::EntityAddr;

use super::{CapError, Cursor, Network, Parsed, Rights, holds_at, put_list, put_network};

/// Rights at an OSD: [`Rights::R`], [`Rights::W`], and these.
const CLS_R: Rights = Rights(4);
const CLS_W: Rights = Rights(8);
const X: Rights = Rights(12);

/// A pool's applications: application to key to value.
pub type PoolApps = BTreeMap<String, BTreeMap<String, String>>;

/// One right of an [`OsdCap`]. The peer's `OSDCapGrant`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OsdGrant {
    pool: String,
    nspace: Option<String>,
    /// Application, key, value; `*` is any.
    tag: Option<(String, String, String)>,
    object_prefix: String,
    allow: Rights,
    class: String,
    method: String,
    profile: String,
    network: Option<Network>,
    expanded: Vec<OsdGrant>,
}

/// A call of an object class within an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassCall<'a> {
    /// The class.
    pub class: &'a str,
    /// Its method.
    pub method: &'a str,
    /// Whether the method reads.
    pub read: bool,
    /// Whether the method writes.
    pub write: bool,
    /// Whether `x` covers the class at all (`osd_class_default_list`).
    pub allowed: bool,
}

/// What an operation wants to do.
#[derive(Clone, Copy, Debug)]
pub struct OsdAccess<'a> {
    /// The pool's name.
    pub pool: &'a str,
    /// The object's namespace.
    pub nspace: &'a [u8],
    /// The pool's applications.
    pub apps: &'a PoolApps,
    /// The object's name.
    pub object: &'a [u8],
    /// Whether it reads.
    pub read: bool,
    /// Whether it writes.
    pub write: bool,
    /// The classes it calls.
    pub calls: &'a [ClassCall<'a>],
    /// From where.
    pub addr: &'a EntityAddr,
}

/// What an entity may do at the OSDs. The peer's `OSDCap`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OsdCap {
    text: String,
    grants: Vec<OsdGrant>,
    /// `allow *` without any bound: nothing else needs to be looked at.
    unbound: bool,
}

impl OsdGrant {
    fn expand(mut self) -> Self {
        let here = |allow| Self {
            pool: self.pool.clone(),
            nspace: self.nspace.clone(),
            allow,
            ..Self::default()
        };
        let object =
            |prefix: &str, allow| Self { object_prefix: prefix.into(), allow, ..Self::default() };
        let call = |mut grant: Self, method: &str| {
            grant.class = "rbd".into();
            grant.method = method.into();
            grant
        };
        let info = || Self {
            pool: self.pool.clone(),
            nspace: Some(String::new()),
            object_prefix: "rbd_info".into(),
            ..Self::default()
        };
        let header = || Self { object_prefix: "rbd_header.".into(), ..here(Rights::NONE) };
        self.expanded = match self.profile.as_str() {
            "read-only" => vec![here(Rights::R)],
            "read-write" => vec![here(Rights::R.with(Rights::W))],
            "rbd" => vec![
                object("rbd_info", Rights::R),
                object("rbd_children", CLS_R),
                object("rbd_mirroring", CLS_R),
                call(info(), "metadata_list"),
                here(Rights::R.with(Rights::W).with(X)),
            ],
            "rbd-read-only" => vec![
                call(info(), "metadata_list"),
                here(Rights::R.with(CLS_R)),
                call(header(), "child_attach"),
                call(header(), "child_detach"),
            ],
            _ => vec![],
        };
        self
    }

    fn matches_all(&self) -> bool {
        self.pool.is_empty()
            && self.nspace.is_none()
            && self.tag.is_none()
            && self.object_prefix.is_empty()
    }

    /// Whether it lets its holder make snapshots of his own in a pool: by a right to write there
    /// as such. The peer's `is_osd_writable` takes no grant by application tag, and does not look at
    /// namespaces and prefixes.
    fn may_snap(&self, pool: &str) -> bool {
        if !self.profile.is_empty() {
            return self.expanded.iter().any(|g| g.may_snap(pool));
        }
        self.allow.has(Rights::W)
            && self.tag.is_none()
            && (self.pool.is_empty() || self.pool == pool)
    }

    fn allows_all(&self) -> bool {
        self.allow == Rights::ANY && self.matches_all()
    }

    fn matches(&self, a: &OsdAccess<'_>) -> bool {
        if !self.pool.is_empty() && self.pool != a.pool {
            return false;
        }
        if let Some(nspace) = &self.nspace {
            let fits = match nspace.strip_suffix('*') {
                Some(prefix) => a.nspace.starts_with(prefix.as_bytes()),
                None => a.nspace == nspace.as_bytes(),
            };
            if !fits {
                return false;
            }
        }
        if let Some((app, key, value)) = &self.tag {
            let Some(pairs) = a.apps.get(app) else { return false };
            let fits = match (key.as_str(), value.as_str()) {
                ("*", "*") => true,
                ("*", value) => pairs.values().any(|v| v == value),
                (key, "*") => pairs.contains_key(key),
                (key, value) => pairs.get(key).is_some_and(|v| v == value),
            };
            if !fits {
                return false;
            }
        }
        a.object.starts_with(self.object_prefix.as_bytes())
    }

    /// `covered`: bit i is set once some grant allowed call i; it adds up over grants.
    fn is_capable(&self, a: &OsdAccess<'_>, covered: &mut Covered) -> bool {
        if !holds_at(self.network.as_ref(), a.addr) {
            return false;
        }
        if !self.profile.is_empty() {
            return self.expanded.iter().any(|g| g.is_capable(a, covered));
        }
        if !self.matches(a)
            || a.read && !self.allow.has(Rights::R)
            || a.write && !self.allow.has(Rights::W)
        {
            return false;
        }
        if a.calls.is_empty() || self.allow == Rights::ANY {
            return true;
        }
        for (i, call) in a.calls.iter().enumerate() {
            let named = !self.class.is_empty()
                && self.class == call.class
                && (self.method.is_empty() || self.method == call.method);
            let by_kind = call.allowed
                && (!call.read || self.allow.has(CLS_R))
                && (!call.write || self.allow.has(CLS_W));
            if named || by_kind {
                covered.set(i);
            }
        }
        covered.all(a.calls.len())
    }
}

/// A set of small numbers; on the heap from 64 on only.
#[derive(Default)]
struct Covered {
    low: u64,
    high: Vec<bool>,
}

impl Covered {
    fn set(&mut self, i: usize) {
        if i < 64 {
            self.low |= 1 << i;
            return;
        }
        if self.high.len() <= i - 64 {
            self.high.resize(i - 63, false);
        }
        self.high[i - 64] = true;
    }

    fn all(&self, n: usize) -> bool {
        let low = if n >= 64 { !0 } else { (1 << n) - 1 };
        self.low & low == low
            && (n <= 64 || self.high.len() >= n - 64 && self.high[..n - 64].iter().all(|b| *b))
    }
}

impl OsdCap {
    /// Everything.
    #[must_use]
    pub fn allow_all() -> Self {
        let grants = vec![OsdGrant { allow: Rights::ANY, ..OsdGrant::default() }];
        Self { text: "allow *".into(), grants, unbound: true }
    }

    /// Reads a capability.
    ///
    /// # Errors
    /// [`CapError::Stopped`].
    pub fn parse(text: &str) -> Result<Self, CapError> {
        let mut c = Cursor::new(text);
        c.any_spaces();
        let grants = c.list(grant, |c| c.lit(";").or_else(|| c.lit(",")));
        let rest = c.rest().trim_start_matches(|ch: char| ch.is_ascii_whitespace() || ch == '\x0b');
        match grants {
            Some(grants) if rest.is_empty() => {
                let unbound = grants.iter().any(|g| g.allows_all() && g.network.is_none());
                Ok(Self { text: text.to_owned(), grants, unbound })
            }
            _ => Err(CapError::Stopped {
                service: "osd",
                rest: rest.to_owned(),
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

    /// Whether the holder may make snapshots of his own in `pool` (self-managed ones), from
    /// `addr`.
    #[must_use]
    pub fn may_snap(&self, pool: &str, addr: &EntityAddr) -> bool {
        let here = |g: &&OsdGrant| holds_at(g.network.as_ref(), addr);
        self.grants.iter().filter(here).any(|g| g.may_snap(pool))
    }

    /// Its parts.
    #[must_use]
    pub fn grants(&self) -> &[OsdGrant] {
        &self.grants
    }

    /// Whether everything is allowed from there; what commands by `tell` take. The peer asks for
    /// `allow *` alone, wherever it holds.
    #[must_use]
    pub fn is_allow_all(&self, addr: &EntityAddr) -> bool {
        let holds = |g: &OsdGrant| g.allows_all() && holds_at(g.network.as_ref(), addr);
        self.unbound || self.grants.iter().any(holds)
    }

    /// Whether `a` is allowed. One grant must cover reading and writing; calls add up.
    #[must_use]
    pub fn is_capable(&self, a: &OsdAccess<'_>) -> bool {
        if self.unbound {
            return true;
        }
        let mut covered = Covered::default();
        self.grants.iter().any(|g| g.is_capable(a, &mut covered))
    }
}

fn blanks(c: &mut Cursor<'_>) {
    c.run(|b| b == b' ' || b == b'\t');
}

fn grant(c: &mut Cursor<'_>) -> Parsed<OsdGrant> {
    blanks(c);
    let spec_first = |c: &mut Cursor<'_>| {
        c.lit("allow")?;
        let found = spec(c)?;
        matching(c, found)
    };
    let match_first = |c: &mut Cursor<'_>| {
        c.lit("allow")?;
        let found = matching(c, OsdGrant::default())?;
        let with = spec(c)?;
        Some(OsdGrant { allow: with.allow, class: with.class, method: with.method, ..found })
    };
    let mut found =
        c.attempt(spec_first).or_else(|| c.attempt(match_first)).or_else(|| c.attempt(profile))?;
    found.network = c.network(Cursor::any_spaces);
    blanks(c);
    Some(found)
}

fn any_key(c: &mut Cursor<'_>, name: &str) -> Parsed<()> {
    c.any_spaces()?;
    c.lit(name)?;
    c.lit("=").or_else(|| c.any_spaces())
}

fn spec(c: &mut Cursor<'_>) -> Parsed<OsdGrant> {
    if let Some(allow) = rights(c) {
        return Some(OsdGrant { allow, ..OsdGrant::default() });
    }
    c.attempt(|c| {
        c.any_spaces()?;
        c.lit("class")?;
        c.any_spaces()?;
        let class = c.string()?.to_owned();
        let method = c.attempt(|c| {
            c.any_spaces()?;
            c.string()
        });
        let method = method.unwrap_or_default().to_owned();
        Some(OsdGrant { class, method, ..OsdGrant::default() })
    })
}

fn rights(c: &mut Cursor<'_>) -> Parsed<Rights> {
    let wildcard = c.attempt(|c| {
        c.any_spaces()?;
        c.lit("*").or_else(|| c.lit("all"))
    });
    if wildcard.is_some() {
        return Some(Rights::ANY);
    }
    let letters = c.attempt(|c| {
        c.any_spaces()?;
        let mut got = Rights::NONE;
        for (letter, bit) in [("r", Rights::R), ("w", Rights::W), ("x", X)] {
            if c.lit(letter).is_some() {
                got = got.with(bit);
            }
        }
        (got != Rights::NONE).then_some(got)
    });
    let mut got = letters.unwrap_or(Rights::NONE);
    for (word, bit) in [("class-read", CLS_R), ("class-write", CLS_W)] {
        let there = c.attempt(|c| {
            c.any_spaces()?;
            c.lit(word)
        });
        if there.is_some() {
            got = got.with(bit);
        }
    }
    (got != Rights::NONE).then_some(got)
}

fn pool(c: &mut Cursor<'_>) -> String {
    let found = c.attempt(|c| {
        any_key(c, "pool")?;
        c.string()
    });
    found.unwrap_or_default().to_owned()
}

fn nspace(c: &mut Cursor<'_>) -> Option<String> {
    c.attempt(|c| {
        any_key(c, "namespace")?;
        let mut name = c.quoted(true).or_else(|| c.word())?.to_owned();
        if c.lit("*").is_some() {
            name.push('*');
        }
        Some(name)
    })
}

fn tag(c: &mut Cursor<'_>) -> Option<(String, String, String)> {
    fn any_or_string(c: &mut Cursor<'_>) -> Parsed<String> {
        if c.lit("*").or_else(|| c.lit("all")).is_some() {
            return Some("*".to_owned());
        }
        c.string().map(str::to_owned)
    }
    c.attempt(|c| {
        c.any_spaces()?;
        c.lit("tag")?;
        c.any_spaces()?;
        let app = c.string()?.to_owned();
        c.any_spaces()?;
        let key = any_or_string(c)?;
        c.any_spaces();
        c.lit("=")?;
        c.any_spaces();
        Some((app, key, any_or_string(c)?))
    })
}

/// Adds where a grant holds; everything is optional, so it always fits.
fn matching(c: &mut Cursor<'_>, grant: OsdGrant) -> Parsed<OsdGrant> {
    if let Some(tag) = tag(c) {
        return Some(OsdGrant { tag: Some(tag), ..grant });
    }
    let both = c.attempt(|c| Some((nspace(c)?, tag(c)?)));
    if let Some((nspace, tag)) = both {
        return Some(OsdGrant { nspace: Some(nspace), tag: Some(tag), ..grant });
    }
    let (pool, nspace) = (pool(c), nspace(c));
    let object_prefix = c.attempt(|c| {
        c.any_spaces()?;
        c.lit("object_prefix")?;
        c.any_spaces()?;
        c.string()
    });
    let object_prefix = object_prefix.unwrap_or_default().to_owned();
    Some(OsdGrant { pool, nspace, object_prefix, ..grant })
}

fn profile(c: &mut Cursor<'_>) -> Parsed<OsdGrant> {
    c.lit("profile")?;
    c.lit("=").or_else(|| c.any_spaces())?;
    let profile = c.string()?.to_owned();
    let (pool, nspace) = (pool(c), nspace(c));
    Some(OsdGrant { profile, pool, nspace, ..OsdGrant::default() }.expand())
}

/// A string as the grammar reads it back.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |b: u8| b.is_ascii_alphanumeric() || super::WORD.contains(&b);
        if !self.0.is_empty() && self.0.bytes().all(plain) {
            f.write_str(self.0)
        } else if self.0.contains('"') {
            write!(f, "'{}'", self.0)
        } else {
            write!(f, "\"{}\"", self.0)
        }
    }
}

impl fmt::Display for OsdGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.profile.is_empty() {
            write!(f, "profile {}", Quoted(&self.profile))?;
        } else if !self.class.is_empty() {
            // The match stands first: behind a class, a word would be its method.
            f.write_str("allow")?;
            self.put_match(f)?;
            write!(f, " class {}", Quoted(&self.class))?;
            if !self.method.is_empty() {
                write!(f, " {}", Quoted(&self.method))?;
            }
            return put_network(f, self.network.as_ref());
        } else {
            f.write_str("allow")?;
            if self.allow == Rights::ANY {
                f.write_str(" *")?;
            } else {
                let x = self.allow.has(X);
                let letters =
                    [(self.allow.has(Rights::R), 'r'), (self.allow.has(Rights::W), 'w'), (x, 'x')];
                if letters.iter().any(|(there, _)| *there) {
                    f.write_str(" ")?;
                }
                for (_, letter) in letters.iter().filter(|(there, _)| *there) {
                    write!(f, "{letter}")?;
                }
                if !x && self.allow.has(CLS_R) {
                    f.write_str(" class-read")?;
                }
                if !x && self.allow.has(CLS_W) {
                    f.write_str(" class-write")?;
                }
            }
        }
        self.put_match(f)?;
        put_network(f, self.network.as_ref())
    }
}

impl OsdGrant {
    fn put_match(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.pool.is_empty() {
            write!(f, " pool={}", Quoted(&self.pool))?;
        }
        if let Some(nspace) = &self.nspace {
            write!(f, " namespace={}", Quoted(nspace))?;
        }
        if let Some((app, key, value)) = &self.tag {
            let any = |s: &str| if s == "*" { s.to_owned() } else { Quoted(s).to_string() };
            write!(f, " tag {} {}={}", Quoted(app), any(key), any(value))?;
        }
        if !self.object_prefix.is_empty() {
            write!(f, " object_prefix {}", Quoted(&self.object_prefix))?;
        }
        Ok(())
    }
}

/// In canonical form.
impl fmt::Display for OsdCap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        put_list(f, &self.grants)
    }
}
