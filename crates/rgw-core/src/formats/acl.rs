//! Access control lists, as they are stored.

use std::collections::BTreeMap;

use types::{DecodeError, Denc, Reader, Writer};

use super::{decode_pairs, encode_pairs};

/// Who a grant is for: `ACLGranteeType`, `ENCODE_START(2, 2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum GranteeType {
    /// By id.
    User = 0,
    /// By email address.
    Email = 1,
    /// A group.
    Group = 2,
    /// Something a later release knows.
    Unknown = 3,
    /// Pages that lead here; Swift's.
    Referer = 4,
}

impl Denc for GranteeType {
    fn encode(&self, w: &mut Writer) {
        w.framed(2, 2, |w| w.u32(*self as u32));
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("ACLGranteeType", 2, |r, _| {
            Ok(match r.u32()? {
                0 => Self::User,
                1 => Self::Email,
                2 => Self::Group,
                4 => Self::Referer,
                _ => Self::Unknown,
            })
        })
    }
}

/// A grant: `ACLGrant`.
///
/// Wire: `ENCODE_START(5, 3)`. Source: `rgw_acl.h`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AclGrant {
    /// Which of the fields below names the grantee.
    pub kind: GranteeType,
    /// A user's or account's id.
    pub id: String,
    /// An address that was not looked up.
    pub email: String,
    /// 1 read, 2 write, 4 and 8 the same of the list.
    pub permission: i32,
    /// The user's name, for people.
    pub name: String,
    /// 1 everybody, 2 everybody with a key.
    pub group: u32,
    /// Pages, by a pattern.
    pub referer: String,
}

impl Denc for AclGrant {
    fn encode(&self, w: &mut Writer) {
        w.framed(5, 3, |w| {
            self.kind.encode(w);
            w.str(&self.id);
            w.str(""); // a group's URI, of releases long gone
            w.str(&self.email);
            w.framed(2, 2, |w| w.i32(self.permission));
            w.str(&self.name);
            w.u32(self.group);
            w.str(&self.referer);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("ACLGrant", 5, |r, v| {
            let (kind, id) = (Denc::decode(r)?, r.string()?);
            r.string()?;
            let email = r.string()?;
            let permission = r.framed("ACLPermission", 2, |r, _| r.i32())?;
            let name = r.string()?;
            let group = if v > 1 { r.u32()? } else { 0 };
            let referer = if v >= 5 { r.string()? } else { String::new() };
            Ok(Self { kind, id, email, permission, name, group, referer })
        })
    }
}

/// Grants, once by user and group, once as they were made: `RGWAccessControlList`.
///
/// Wire: `ENCODE_START(4, 3)`; v4 added the pages. Source: `rgw_acl.h`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AclList {
    /// Permissions by user's id.
    pub users: BTreeMap<String, i32>,
    /// All grants, by user's id (empty for groups), ids more than once.
    pub grants: Vec<(String, AclGrant)>,
    /// Permissions by group.
    pub groups: BTreeMap<u32, i32>,
    /// Permissions by page: pattern and bits.
    pub referers: Vec<Referer>,
}

/// Permissions of pages: `ACLReferer`, `ENCODE_START(1, 1)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Referer {
    /// A pattern.
    pub pattern: String,
    /// As a grant's.
    pub permission: u32,
}

impl Denc for Referer {
    fn encode(&self, w: &mut Writer) {
        w.framed(1, 1, |w| {
            w.str(&self.pattern);
            w.u32(self.permission);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("ACLReferer", 1, |r, _| Ok(Self { pattern: r.string()?, permission: r.u32()? }))
    }
}

impl Denc for AclList {
    fn encode(&self, w: &mut Writer) {
        w.framed(4, 3, |w| {
            w.bool(true); // that the maps below are filled
            self.users.encode(w);
            encode_pairs(w, &self.grants);
            self.groups.encode(w);
            self.referers.encode(w);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("RGWAccessControlList", 4, |r, v| {
            r.bool()?;
            let (users, grants) = (Denc::decode(r)?, decode_pairs(r)?);
            let groups = if v >= 2 { Denc::decode(r)? } else { BTreeMap::new() };
            let referers = if v >= 4 { Denc::decode(r)? } else { Vec::new() };
            Ok(Self { users, grants, groups, referers })
        })
    }
}

/// An owner: `ACLOwner`, `ENCODE_START(3, 2)`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AclOwner {
    /// `[TENANT$]UID`, or an account's id.
    pub id: String,
    /// For people.
    pub display_name: String,
}

impl Denc for AclOwner {
    fn encode(&self, w: &mut Writer) {
        w.framed(3, 2, |w| {
            w.str(&self.id);
            w.str(&self.display_name);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("ACLOwner", 3, |r, _| Ok(Self { id: r.string()?, display_name: r.string()? }))
    }
}

/// What stands in the attribute `user.rgw.acl`: `RGWAccessControlPolicy`, `ENCODE_START(2, 2)`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AclPolicy {
    /// Its owner.
    pub owner: AclOwner,
    /// Its grants.
    pub list: AclList,
}

impl Denc for AclPolicy {
    fn encode(&self, w: &mut Writer) {
        w.framed(2, 2, |w| {
            self.owner.encode(w);
            self.list.encode(w);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("RGWAccessControlPolicy", 2, |r, _| {
            Ok(Self { owner: Denc::decode(r)?, list: Denc::decode(r)? })
        })
    }
}
