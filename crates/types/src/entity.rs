//! Who takes part: daemons and clients.

use std::fmt;
use std::str::FromStr;

use denc::{DecodeError, Denc, Reader, Writer};

use crate::EntityAddr;

/// The kinds of participants; also the services that tickets are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntityKind(pub u8);

impl EntityKind {
    /// Monitor.
    pub const MON: Self = Self(0x01);
    /// Metadata server.
    pub const MDS: Self = Self(0x02);
    /// Object storage daemon.
    pub const OSD: Self = Self(0x04);
    /// Client.
    #[allow(missing_docs)]
    pub const CLIENT: Self = Self(0x08);
    /// Manager.
    pub const MGR: Self = Self(0x10);
    /// The monitors' ticket service; never a participant.
    pub const AUTH: Self = Self(0x20);
    /// Any.
    pub const ANY: Self = Self(0xff);

    /// The peer's name of the kind: `mon`, `osd`, ...; `unknown` for the rest.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MON => "mon",
            Self::MDS => "mds",
            Self::OSD => "osd",
            Self::CLIENT => "client",
            Self::MGR => "mgr",
            Self::AUTH => "auth",
            _ => "unknown",
        }
    }

    /// The kind with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::MON, Self::MDS, Self::OSD, Self::CLIENT, Self::MGR, Self::AUTH]
            .into_iter()
            .find(|k| k.name() == name)
    }
}

/// A participant by kind and number: `osd.3`, `client.4123`. The peer's `entity_name_t`:
/// u8 kind, i64 number; -1 means "no number yet", printed `?`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntityId {
    /// Its kind.
    pub kind: EntityKind,
    /// Rank, OSD number or global id.
    pub num: i64,
}

impl EntityId {
    /// Kind and number.
    #[must_use]
    pub const fn new(kind: EntityKind, num: i64) -> Self {
        Self { kind, num }
    }
}

impl fmt::Display for EntityId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.num < 0 {
            write!(f, "{}.?", self.kind.name())
        } else {
            write!(f, "{}.{}", self.kind.name(), self.num)
        }
    }
}

impl Denc for EntityId {
    fn encode(&self, w: &mut Writer) {
        w.u8(self.kind.0);
        w.i64(self.num);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { kind: EntityKind(r.u8()?), num: r.i64()? })
    }
}

/// A participant by the name its key is filed under: `client.admin`, `osd.3`, `mon.`. The
/// peer's `EntityName`: u32 kind, string id.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntityName {
    /// Its kind.
    pub kind: EntityKind,
    /// What follows the dot.
    pub id: String,
}

impl EntityName {
    /// Kind and id.
    #[must_use]
    pub fn new(kind: EntityKind, id: impl Into<String>) -> Self {
        Self { kind, id: id.into() }
    }
}

impl fmt::Display for EntityName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.kind.name(), self.id)
    }
}

impl FromStr for EntityName {
    type Err = &'static str;

    /// Reads `KIND.ID`; the id may be empty and may hold further dots.
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let (kind, id) =
            s.split_once('.').ok_or("an entity is TYPE.ID, for example client.admin")?;
        let kind = EntityKind::from_name(kind)
            .ok_or("an entity's type is one of mon, mds, osd, client, mgr, auth")?;
        Ok(Self::new(kind, id))
    }
}

impl Denc for EntityName {
    fn encode(&self, w: &mut Writer) {
        w.u32(u32::from(self.kind.0));
        w.str(&self.id);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let kind = u8::try_from(r.u32()?).map_err(|_| DecodeError::Invalid {
            what: "EntityName",
            rule: "its type fits a byte",
        })?;
        Ok(Self { kind: EntityKind(kind), id: r.string()? })
    }
}

/// A participant and its address. The peer's `entity_inst_t`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntityInst {
    /// Who.
    pub name: EntityId,
    /// Where.
    pub addr: EntityAddr,
}

impl fmt::Display for EntityInst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.addr)
    }
}

impl Denc for EntityInst {
    fn encode(&self, w: &mut Writer) {
        self.name.encode(w);
        self.addr.encode(w);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { name: Denc::decode(r)?, addr: Denc::decode(r)? })
    }
}
