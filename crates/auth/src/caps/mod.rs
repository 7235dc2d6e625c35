//! Capabilities: what an entity may do at each kind of daemon, as text with the peer's
//! grammar, parsed once and checked per request.
//!
//! The grammars are the peer's, with its habits: alternatives are tried in order, the first
//! that fits is kept, and what is left over is an error that names where reading stopped.

mod mds;
mod mgr;
mod mon;
mod osd;

use std::fmt;
use std::net::IpAddr;

use types::EntityAddr;

pub use mds::{MdsAccess, MdsCap, MdsGrant, MdsMay};
pub use mgr::{MgrAccess, MgrCaller, MgrCap, MgrGrant};
pub use mon::{MonAccess, MonCap, MonGrant};
pub use osd::{ClassCall, OsdAccess, OsdCap, OsdGrant, PoolApps};

/// Why a capability's text is refused; prints what the peer's monitor answers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CapError {
    /// Reading stopped before the end.
    #[error("{service} capability parse failed, stopped at '{rest}' of '{text}'")]
    Stopped {
        /// `mon`, `osd`, `mds` or `mgr`.
        service: &'static str,
        /// What could not be read.
        rest: String,
        /// All of it.
        text: String,
    },
    /// Reading stopped at the end: something is missing.
    #[error("{service} capability parse failed, stopped at end of '{text}'")]
    Ended {
        /// `mon` or `mgr`.
        service: &'static str,
        /// All of it.
        text: String,
    },
    /// An MDS capability's flags.
    #[error(
        "Permission flags in MDS capability string must be '*' or 'all' or must start with 'r'"
    )]
    MdsFlags,
    /// A manager profile that does not exist, or keys it does not know.
    #[error("mgr capability parse failed during profile evaluation: {0}")]
    MgrProfile(String),
    /// Caps for a service that has none.
    #[error("unknown cap type '{0}'")]
    UnknownService(String),
}

/// Whether `text` is a capability for `service`, as the monitor checks it before keeping it.
///
/// # Errors
/// [`CapError`], with what to answer.
pub fn check(service: &str, text: &str) -> Result<(), CapError> {
    match service {
        "mon" => MonCap::parse(text).map(drop),
        "osd" => OsdCap::parse(text).map(drop),
        "mds" => MdsCap::parse(text).map(drop),
        "mgr" => MgrCap::parse(text).map(drop),
        other => Err(CapError::UnknownService(other.to_owned())),
    }
}

/// Rights as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights(pub u8);

impl Rights {
    /// None.
    pub const NONE: Self = Self(0);
    /// Read.
    pub const R: Self = Self(1);
    /// Write.
    pub const W: Self = Self(2);
    /// Execute.
    pub const X: Self = Self(4);
    /// All three, still bound to what the grant names.
    pub const RWX: Self = Self(7);
    /// Everything.
    pub const ANY: Self = Self(0xff);

    /// Whether all of `other` is here.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// As bits of three questions.
    #[must_use]
    pub const fn asked(read: bool, write: bool, exec: bool) -> Self {
        Self(read as u8 | (write as u8) << 1 | (exec as u8) << 2)
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::ANY {
            return f.write_str("*");
        }
        for (bit, c) in [(Self::R, 'r'), (Self::W, 'w'), (Self::X, 'x')] {
            if self.has(bit) {
                write!(f, "{c}")?;
            }
        }
        Ok(())
    }
}

/// Where a grant holds: `network 10.0.0.0/8`. One that is no network holds nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    text: String,
    range: Option<(IpAddr, u32)>,
}

impl Network {
    fn new(text: &str) -> Self {
        let range = text.rsplit_once('/').and_then(|(ip, bits)| {
            let ip = ip.strip_prefix('[').map_or(ip, |ip| ip.strip_suffix(']').unwrap_or(ip));
            let (ip, bits) = (ip.parse::<IpAddr>().ok()?, bits.parse::<u32>().ok()?);
            (bits <= if ip.is_ipv4() { 32 } else { 128 }).then_some((ip, bits))
        });
        Self { text: text.to_owned(), range }
    }

    /// Whether the address is in it.
    #[must_use]
    pub fn contains(&self, addr: &EntityAddr) -> bool {
        let (Some((net, bits)), Some(sock)) = (self.range, addr.sock) else { return false };
        match (net, sock.ip()) {
            (IpAddr::V4(net), IpAddr::V4(ip)) => {
                let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
                (u32::from(net) ^ u32::from(ip)) & mask == 0
            }
            (IpAddr::V6(net), IpAddr::V6(ip)) => {
                let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
                (u128::from(net) ^ u128::from(ip)) & mask == 0
            }
            _ => false,
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Whether a grant bound to `network` holds for `addr`.
fn holds_at(network: Option<&Network>, addr: &EntityAddr) -> bool {
    network.is_none_or(|n| n.contains(addr))
}

/// How an argument of a command must look.
#[derive(Clone, Debug)]
pub enum Constraint {
    /// `k=v`.
    Equal(String),
    /// `k prefix v`.
    Prefix(String),
    /// `k regex v`: the whole argument; an expression that is none matches nothing.
    Regex(String, Option<regex_lite::Regex>),
    /// Begins with `daemon-private/NAME/`, NAME being the entity itself.
    DaemonPrivate,
    /// Is not given.
    Absent,
}

impl PartialEq for Constraint {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Equal(a), Self::Equal(b))
            | (Self::Prefix(a), Self::Prefix(b))
            | (Self::Regex(a, _), Self::Regex(b, _)) => a == b,
            (Self::DaemonPrivate, Self::DaemonPrivate) | (Self::Absent, Self::Absent) => true,
            _ => false,
        }
    }
}

impl Eq for Constraint {}

/// Bytes a compiled expression of a capability may take.
const REGEX_BYTES_MAX: usize = 1 << 18;

impl Constraint {
    fn regex(text: &str) -> Self {
        let whole = format!("^(?:{text})$");
        let compiled =
            regex_lite::RegexBuilder::new(&whole).size_limit(REGEX_BYTES_MAX).build().ok();
        Self::Regex(text.to_owned(), compiled)
    }

    /// Whether an argument fits, or may be missing.
    fn fits(&self, value: Option<&String>, name: &types::EntityName) -> bool {
        match value {
            None => matches!(self, Self::Absent),
            Some(value) => self.allows(value, name),
        }
    }

    fn allows(&self, value: &str, name: &types::EntityName) -> bool {
        match self {
            Self::Absent => false,
            Self::Equal(v) => value == v,
            Self::Prefix(v) => value.starts_with(v.as_str()),
            Self::Regex(_, re) => re.as_ref().is_some_and(|re| re.is_match(value)),
            Self::DaemonPrivate => value
                .strip_prefix("daemon-private/")
                .and_then(|rest| rest.strip_prefix(&name.to_string()))
                .is_some_and(|rest| rest.starts_with('/')),
        }
    }
}

/// Quotes what is not one plain word, as the peer does.
struct MaybeQuoted<'a>(&'a str);

impl fmt::Display for MaybeQuoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_') {
            f.write_str(self.0)
        } else {
            write!(f, "\"{}\"", self.0)
        }
    }
}

/// A cursor over a capability's text. Each method moves on when it fits, and stays otherwise.
struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

type Parsed<T> = Option<T>;

const WORD: &[u8] = b"_./-";
const NETWORK: &[u8] = b"/.:][";

impl<'a> Cursor<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Tries `f`; steps back when it does not fit.
    fn attempt<T>(&mut self, f: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        let at = self.at;
        let got = f(self);
        if got.is_none() {
            self.at = at;
        }
        got
    }

    fn lit(&mut self, s: &str) -> Parsed<()> {
        self.rest().starts_with(s).then(|| self.at += s.len())
    }

    /// One or more bytes that `f` takes; ASCII only, so that steps stay on characters.
    fn run(&mut self, f: impl Fn(u8) -> bool) -> Parsed<&'a str> {
        let rest = self.rest();
        let len = rest.bytes().take_while(|b| b.is_ascii() && f(*b)).count();
        (len > 0).then(|| {
            self.at += len;
            &rest[..len]
        })
    }

    /// One or more of space, newline, tab.
    fn spaces(&mut self) -> Parsed<()> {
        self.run(|b| matches!(b, b' ' | b'\n' | b'\t')).map(drop)
    }

    /// One or more of every white space there is.
    fn any_spaces(&mut self) -> Parsed<()> {
        self.run(|b| b.is_ascii_whitespace() || b == 0x0b).map(drop)
    }

    fn word(&mut self) -> Parsed<&'a str> {
        self.run(|b| b.is_ascii_alphanumeric() || WORD.contains(&b))
    }

    /// Within `"` or `'`; not empty, unless `empty` allows it.
    fn quoted(&mut self, empty: bool) -> Parsed<&'a str> {
        self.attempt(|c| {
            let quote = c.rest().chars().next().filter(|q| matches!(q, '"' | '\''))?;
            c.at += 1;
            let end = c.rest().find(quote).filter(|end| empty || *end > 0)?;
            let inner = &c.rest()[..end];
            c.at += end + 1;
            Some(inner)
        })
    }

    fn string(&mut self) -> Parsed<&'a str> {
        self.quoted(false).or_else(|| self.word())
    }

    /// `network` and what follows; `spaces` is the grammar's idea of white space.
    fn network(&mut self, spaces: fn(&mut Self) -> Parsed<()>) -> Option<Network> {
        self.attempt(|c| {
            spaces(c)?;
            c.lit("network")?;
            spaces(c)?;
            c.run(|b| b.is_ascii_hexdigit() || NETWORK.contains(&b)).map(Network::new)
        })
    }

    /// `NAME=VALUE` or `NAME VALUE` up to the value.
    fn key(&mut self, name: &str) -> Parsed<()> {
        self.lit(name)?;
        self.lit("=").or_else(|| self.spaces())
    }

    /// `*`, `all`, or some of `r`, `w`, `x` in this order.
    fn rwx(&mut self) -> Parsed<Rights> {
        if self.lit("*").or_else(|| self.lit("all")).is_some() {
            return Some(Rights::ANY);
        }
        let mut rights = Rights::NONE;
        for (c, bit) in [("r", Rights::R), ("w", Rights::W), ("x", Rights::X)] {
            if self.lit(c).is_some() {
                rights = rights.with(bit);
            }
        }
        (rights != Rights::NONE).then_some(rights)
    }

    /// `key=value`, `key prefix value`, `key regex value`, one or more. `loose`: the equal
    /// sign may have spaces around it.
    fn arguments(&mut self, loose: bool) -> Parsed<Vec<(String, Constraint)>> {
        let mut out = vec![self.argument(loose)?];
        while let Some(next) = self.attempt(|c| {
            c.spaces()?;
            c.argument(loose)
        }) {
            out.push(next);
        }
        Some(out)
    }

    fn argument(&mut self, loose: bool) -> Parsed<(String, Constraint)> {
        self.attempt(|c| {
            let key = c.string()?.to_owned();
            let equal = c.attempt(|c| {
                if loose {
                    c.spaces();
                }
                c.lit("=")?;
                if loose {
                    c.spaces();
                }
                c.string().map(|v| Constraint::Equal(v.to_owned()))
            });
            let constraint = equal.or_else(|| {
                c.spaces()?;
                let kind =
                    c.lit("prefix").map(|()| true).or_else(|| c.lit("regex").map(|()| false))?;
                c.spaces()?;
                let value = c.string()?;
                Some(if kind {
                    Constraint::Prefix(value.to_owned())
                } else {
                    Constraint::regex(value)
                })
            })?;
            Some((key, constraint))
        })
    }

    /// `item` separated by `separator`; at least one.
    fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Parsed<T>,
        separator: fn(&mut Self) -> Parsed<()>,
    ) -> Parsed<Vec<T>> {
        let mut out = vec![self.attempt(&mut item)?];
        while let Some(next) = self.attempt(|c| {
            separator(c)?;
            item(c)
        }) {
            out.push(next);
        }
        Some(out)
    }

    /// `;` or `,`, spaces around it.
    fn spaced_separator(&mut self) -> Parsed<()> {
        self.run(|b| b == b' ');
        self.lit(";").or_else(|| self.lit(","))?;
        self.run(|b| b == b' ');
        Some(())
    }
}

fn put_network(f: &mut fmt::Formatter<'_>, network: Option<&Network>) -> fmt::Result {
    match network {
        Some(network) => write!(f, " network {network}"),
        None => Ok(()),
    }
}

fn put_list<T: fmt::Display>(f: &mut fmt::Formatter<'_>, items: &[T]) -> fmt::Result {
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            f.write_str(", ")?;
        }
        item.fmt(f)?;
    }
    Ok(())
}
