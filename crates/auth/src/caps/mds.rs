//! Caps at the metadata servers.
//!
//! ```text
//! caps  := "allow" | grant ((";" | ",") grant)*
//! grant := "allow" ("*" | "all" | "r" | "rw"[f][p][s]) ["fsname="name] ["path="path] ["root_squash"]
//!          ["uid="n] ["gids="n,n] ["network" net]
//! ```

use std::fmt;

use types::{EntityAddr, MdsCapAuth, MdsMatch};

use super::{CapError, Cursor, Network, Parsed, holds_at, put_list, put_network};

/// What is asked of an inode, or allowed by a grant, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MdsMay(pub u32);

impl MdsMay {
    /// Read.
    pub const READ: Self = Self(1);
    /// Write.
    pub const WRITE: Self = Self(2);
    /// Search, execute.
    pub const EXECUTE: Self = Self(4);
    /// Change the owner.
    pub const CHOWN: Self = Self(16);
    /// Change the group.
    pub const CHGRP: Self = Self(32);
    /// Set layouts and quotas (`p`).
    pub const SET_VXATTR: Self = Self(64);
    /// Make and remove snapshots (`s`).
    pub const SNAPSHOT: Self = Self(128);
    /// Write although the cluster is full (`f`).
    pub const FULL: Self = Self(256);

    const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// One right of an [`MdsCap`]. The peer's `MDSCapGrant`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MdsGrant {
    /// Everything (`*`).
    pub all: bool,
    /// READ, WRITE, SET_VXATTR, SNAPSHOT, FULL.
    pub allow: MdsMay,
    /// Whom and what it is about.
    pub matches: MdsMatch,
    /// Only from there.
    pub network: Option<Network>,
}

/// What an entity may do at the metadata servers. The peer's `MDSAuthCaps`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MdsCap {
    text: String,
    grants: Vec<MdsGrant>,
}

/// What somebody wants to do to an inode.
#[derive(Clone, Copy, Debug)]
pub struct MdsAccess<'a> {
    /// The file system.
    pub fs_name: &'a str,
    /// The inode's path, without leading slash.
    pub path: &'a str,
    /// Its owner.
    pub inode_uid: u32,
    /// Its group.
    pub inode_gid: u32,
    /// Its mode bits.
    pub inode_mode: u32,
    /// Who asks.
    pub caller_uid: u32,
    /// Their group.
    pub caller_gid: u32,
    /// Their further groups.
    pub caller_gids: &'a [u64],
    /// What is asked.
    pub wants: MdsMay,
    /// With CHOWN.
    pub new_uid: u32,
    /// With CHGRP.
    pub new_gid: u32,
    /// From where.
    pub addr: &'a EntityAddr,
}

fn is_about_all(m: &MdsMatch) -> bool {
    m.uid == -1 && m.path.is_empty() && m.fs_name.is_empty()
}

fn is_about(m: &MdsMatch, a: &MdsAccess<'_>) -> bool {
    if !m.fs_name.is_empty() && m.fs_name != a.fs_name {
        return false;
    }
    if m.uid != -1 {
        if m.uid != i64::from(a.caller_uid) {
            return false;
        }
        let own = m.gids.contains(&a.caller_gid)
            || a.caller_gids.iter().any(|g| m.gids.iter().any(|m| u64::from(*m) == *g));
        if !m.gids.is_empty() && !own {
            return false;
        }
    }
    m.matches_path(a.path)
}

impl MdsGrant {
    fn is_capable(&self, a: &MdsAccess<'_>) -> bool {
        let wants = |may| a.wants.meets(may);
        if !holds_at(self.network.as_ref(), a.addr) || !is_about(&self.matches, a) {
            return false;
        }
        let reads = wants(MdsMay::READ) || wants(MdsMay::EXECUTE);
        let lacks = |asked: bool, may| asked && !self.all && !self.allow.meets(may);
        if lacks(reads, MdsMay::READ)
            || lacks(wants(MdsMay::WRITE), MdsMay::WRITE)
            || lacks(wants(MdsMay::SET_VXATTR), MdsMay::SET_VXATTR)
            || lacks(wants(MdsMay::SNAPSHOT), MdsMay::SNAPSHOT)
            || lacks(wants(MdsMay::FULL), MdsMay::FULL)
        {
            return false;
        }
        let root = a.caller_uid == 0 || a.caller_gid == 0;
        if self.matches.root_squash && root && wants(MdsMay::WRITE) {
            return false;
        }
        self.matches.uid == -1 || self.unix_permits(a)
    }

    /// A grant for one user is bound by the file's mode as well.
    fn unix_permits(&self, a: &MdsAccess<'_>) -> bool {
        let wants = |may| a.wants.meets(may);
        let mine = |gid: u32| {
            self.matches.gids.contains(&gid)
                && (gid == a.caller_gid || a.caller_gids.contains(&u64::from(gid)))
        };
        let owner = a.inode_uid == a.caller_uid;
        if wants(MdsMay::CHOWN) && (a.new_uid != a.caller_uid || !owner) {
            return false;
        }
        if wants(MdsMay::CHGRP) && (!owner || !mine(a.new_gid)) {
            return false;
        }
        let shift = if owner {
            6
        } else if mine(a.inode_gid) {
            3
        } else {
            0
        };
        let bits = a.inode_mode >> shift;
        (!wants(MdsMay::READ) || bits & 4 != 0)
            && (!wants(MdsMay::WRITE) || bits & 2 != 0)
            && (!wants(MdsMay::EXECUTE) || bits & 1 != 0)
    }
}

const READ_WRITE: u32 = MdsMay::READ.0 | MdsMay::WRITE.0;

impl MdsCap {
    /// Everything.
    #[must_use]
    pub fn allow_all() -> Self {
        let grants = vec![MdsGrant { all: true, ..MdsGrant::default() }];
        Self { text: "allow *".into(), grants }
    }

    /// Reads a capability.
    ///
    /// # Errors
    /// [`CapError::Stopped`], [`CapError::MdsFlags`].
    pub fn parse(text: &str) -> Result<Self, CapError> {
        if text == "allow" {
            // Long ago this was all there was.
            let allow = MdsMay(READ_WRITE | MdsMay::SET_VXATTR.0 | MdsMay::SNAPSHOT.0);
            let grants = vec![MdsGrant { allow, ..MdsGrant::default() }];
            return Ok(Self { text: text.to_owned(), grants });
        }
        let mut c = Cursor::new(text);
        c.any_spaces();
        let grants = c.list(grant, Cursor::spaced_separator);
        let rest = c.rest().trim_start_matches(|ch: char| ch.is_ascii_whitespace() || ch == '\x0b');
        match grants {
            Some(grants) if rest.is_empty() => Ok(Self { text: text.to_owned(), grants }),
            _ if rest.contains("allow") => Err(CapError::MdsFlags),
            _ => Err(CapError::Stopped {
                service: "mds",
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

    /// Its parts.
    #[must_use]
    pub fn grants(&self) -> &[MdsGrant] {
        &self.grants
    }

    /// Whether everything is allowed.
    #[must_use]
    pub fn is_allow_all(&self) -> bool {
        self.grants.iter().any(|g| g.all && is_about_all(&g.matches))
    }

    /// Whether `a` is allowed; one grant must cover all of it.
    #[must_use]
    pub fn is_capable(&self, a: &MdsAccess<'_>) -> bool {
        self.grants.iter().any(|g| g.is_capable(a))
    }

    /// Whether something below or at `path` may be allowed.
    #[must_use]
    pub fn is_path_capable(&self, path: &str) -> bool {
        self.grants.iter().any(|g| g.matches.matches_path(path))
    }

    /// Whether file system `name` is allowed at all.
    #[must_use]
    pub fn is_fs_capable(&self, name: &str) -> bool {
        self.grants.iter().any(|g| g.matches.fs_name.is_empty() || g.matches.fs_name == name)
    }

    /// What clients are told of it.
    #[must_use]
    pub fn auths(&self) -> Vec<MdsCapAuth> {
        self.grants
            .iter()
            .map(|g| MdsCapAuth {
                matches: g.matches.clone(),
                readable: g.all || g.allow.meets(MdsMay::READ),
                writeable: g.all || g.allow.meets(MdsMay::WRITE),
            })
            .collect()
    }
}

fn grant(c: &mut Cursor<'_>) -> Parsed<MdsGrant> {
    c.lit("allow")?;
    c.spaces()?;
    let all = c.lit("*").or_else(|| c.lit("all")).is_some();
    let mut allow = MdsMay::default();
    if !all {
        let (_, bits) = FLAGS.iter().find(|(flags, _)| c.lit(flags).is_some())?;
        allow = MdsMay(*bits);
    }
    let mut matches = MdsMatch::default();
    if let Some(name) =
        setting(c, "fsname=", |c| c.run(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b)))
    {
        matches.fs_name = name.to_owned();
    }
    if let Some(path) = setting(c, "path=", |c| c.quoted(true).or_else(|| c.word())) {
        matches.path = path.trim_start_matches('/').to_owned();
    }
    matches.root_squash = setting(c, "root_squash", |_| Some(())).is_some();
    if let Some(uid) = setting(c, "uid=", number) {
        matches.uid = i64::from(uid);
    }
    let gids = setting(c, "gids=", |c| c.list(number, |c| c.lit(",")));
    matches.gids = gids.unwrap_or_default();
    matches.gids.sort_unstable();
    Some(MdsGrant { all, allow, matches, network: c.network(Cursor::spaces) })
}

/// Longer ones first.
const FLAGS: [(&str, u32); 9] = {
    let (p, s, f) = (MdsMay::SET_VXATTR.0, MdsMay::SNAPSHOT.0, MdsMay::FULL.0);
    [
        ("rwfps", READ_WRITE | f | p | s),
        ("rwps", READ_WRITE | p | s),
        ("rwfp", READ_WRITE | f | p),
        ("rwfs", READ_WRITE | f | s),
        ("rwp", READ_WRITE | p),
        ("rws", READ_WRITE | s),
        ("rwf", READ_WRITE | f),
        ("rw", READ_WRITE),
        ("r", MdsMay::READ.0),
    ]
};

fn setting<'a, T>(
    c: &mut Cursor<'a>,
    name: &str,
    value: impl FnOnce(&mut Cursor<'a>) -> Parsed<T>,
) -> Option<T> {
    c.attempt(|c| {
        c.spaces()?;
        c.lit(name)?;
        value(c)
    })
}

fn number(c: &mut Cursor<'_>) -> Parsed<u32> {
    c.attempt(|c| c.run(|b| b.is_ascii_digit())?.parse().ok())
}

impl fmt::Display for MdsGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = FLAGS.iter().find(|(_, bits)| *bits == self.allow.0).map_or("", |(s, _)| s);
        write!(f, "allow {}", if self.all { "*" } else { flags })?;
        let m = &self.matches;
        if !m.fs_name.is_empty() {
            write!(f, " fsname={}", m.fs_name)?;
        }
        if !m.path.is_empty() {
            let quote = if m.path.contains('"') { '\'' } else { '"' };
            write!(f, " path={quote}/{}{quote}", m.path)?;
        }
        if m.root_squash {
            f.write_str(" root_squash")?;
        }
        if m.uid != -1 {
            write!(f, " uid={}", m.uid)?;
        }
        for (i, gid) in m.gids.iter().enumerate() {
            write!(f, "{}{gid}", if i == 0 { " gids=" } else { "," })?;
        }
        put_network(f, self.network.as_ref())
    }
}

/// In canonical form.
impl fmt::Display for MdsCap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        put_list(f, &self.grants)
    }
}
