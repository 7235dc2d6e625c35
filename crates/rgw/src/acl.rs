//! Access control lists: as they are stored, and as requests have them.

use rgw_core::formats::{AclGrant, AclList, AclOwner, AclPolicy, GranteeType, Referer};
use rgw_core::meta::Attrs;
use rgw_proto::acl::{Acl, Grant, Grantee, Owner, Permission};
use rgw_proto::swift::acl as swift;
use types::{Bytes, Denc};

const ALL_USERS: u32 = 1;
const AUTHENTICATED: u32 = 2;
/// `RGW_PERM_READ_OBJS`, `RGW_PERM_WRITE_OBJS`: of Swift's grants.
const READ_OBJECTS: i32 = 0x10;
const WRITE_OBJECTS: i32 = 0x20;

/// As attributes hold it.
pub fn encode(acl: &Acl) -> Bytes {
    let mut list = AclList::default();
    let blank = |permission| AclGrant {
        kind: GranteeType::User,
        id: String::new(),
        email: String::new(),
        permission,
        name: String::new(),
        group: 0,
        referer: String::new(),
    };
    for grant in &acl.grants {
        let bits = grant.permission.bits() as i32;
        let mut stored = blank(bits);
        match &grant.grantee {
            Grantee::User(id) => {
                *list.users.entry(id.clone()).or_default() |= bits;
                stored.id = id.clone();
                if *id == acl.owner.id {
                    stored.name = acl.owner.display_name.clone();
                }
            }
            // Addresses are looked up before a list is stored; one that is here grants nothing.
            Grantee::Email(email) => {
                stored.kind = GranteeType::Email;
                stored.email = email.clone();
            }
            Grantee::AllUsers | Grantee::Authenticated => {
                let all = grant.grantee == Grantee::AllUsers;
                stored.group = if all { ALL_USERS } else { AUTHENTICATED };
                stored.kind = GranteeType::Group;
                *list.groups.entry(stored.group).or_default() |= bits;
            }
        }
        list.grants.push((stored.id.clone(), stored));
    }
    for grant in &acl.swift.0 {
        let bits = if grant.writes { WRITE_OBJECTS } else { READ_OBJECTS };
        let mut stored = blank(bits);
        match &grant.who {
            swift::Who::User(id) => {
                *list.users.entry(id.clone()).or_default() |= bits;
                stored.id = id.clone();
            }
            swift::Who::Referer(pattern, allows) => {
                stored.kind = GranteeType::Referer;
                stored.permission = if *allows { bits } else { 0 };
                stored.referer = pattern.clone();
                let permission = stored.permission as u32;
                if *allows && pattern == "*" {
                    // By this S3's requests are judged, which stock does not ask for pages.
                    *list.groups.entry(ALL_USERS).or_default() |= bits;
                }
                list.referers.push(Referer { pattern: pattern.clone(), permission });
            }
        }
        list.grants.push((stored.id.clone(), stored));
    }
    list.grants.sort_by(|a, b| a.0.cmp(&b.0));
    let owner = &acl.owner;
    let owner = AclOwner { id: owner.id.clone(), display_name: owner.display_name.clone() };
    AclPolicy { owner, list }.to_bytes()
}

/// As a bucket or object has it. Where there is none, or it cannot be read, nobody is granted anything.
pub fn of(attrs: &Attrs) -> Acl {
    let stored = attrs.get("acl").and_then(|bytes| AclPolicy::from_bytes(bytes).ok());
    let stored = stored.unwrap_or_default();
    let owner = Owner { id: stored.owner.id, display_name: stored.owner.display_name };
    let (mut grants, mut of_swift) = (Vec::new(), swift::Grants::default());
    for (_, grant) in stored.list.grants {
        swift_grants(&grant, &mut of_swift);
        let grantee = match (grant.kind, grant.group) {
            (GranteeType::User, _) => Grantee::User(grant.id),
            (GranteeType::Group, ALL_USERS) => Grantee::AllUsers,
            (GranteeType::Group, AUTHENTICATED) => Grantee::Authenticated,
            _ => continue,
        };
        let bits = grant.permission as u32 & 15;
        if bits == Permission::FullControl.bits() {
            grants.push(Grant { grantee, permission: Permission::FullControl });
            continue;
        }
        let single =
            [Permission::Read, Permission::Write, Permission::ReadAcp, Permission::WriteAcp];
        for permission in single.into_iter().filter(|p| bits & p.bits() != 0) {
            grants.push(Grant { grantee: grantee.clone(), permission });
        }
    }
    Acl { owner, grants, swift: of_swift }
}

/// What of a stored grant is Swift's.
fn swift_grants(grant: &AclGrant, out: &mut swift::Grants) {
    if grant.kind == GranteeType::Referer {
        // What is not granted is denied: only reading can be either.
        let who = swift::Who::Referer(grant.referer.clone(), grant.permission & READ_OBJECTS != 0);
        out.0.push(swift::Grant { who, writes: false });
    }
    if grant.kind != GranteeType::User {
        return;
    }
    for (bit, writes) in [(READ_OBJECTS, false), (WRITE_OBJECTS, true)] {
        if grant.permission & bit != 0 {
            out.0.push(swift::Grant { who: swift::Who::User(grant.id.clone()), writes });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_come_back() {
        let owner = Owner { id: "main".into(), display_name: "M".into() };
        let acl = Acl::canned("public-read", owner, "main").unwrap();
        let attrs = Attrs::from([("acl".to_owned(), encode(&acl))]);
        let mut back = of(&attrs);
        back.grants.sort();
        let mut want = acl;
        want.grants.sort();
        assert_eq!(back, want);
    }

    /// A list as stock 20.2.4 stored it for `X-Container-Read: .r:*,.rlistings,other,.r:-bad.com` and
    /// `X-Container-Write: other,zz`, and the one that is stored here for the same.
    #[test]
    fn lists_of_swift_are_those_of_stock() {
        let owner = Owner { id: "main".into(), display_name: "The main user".into() };
        let grants = swift::Grants::parse(".r:*,.rlistings,other,.r:-bad.com", "other,zz").unwrap();
        let bytes = encode(&Acl { swift: grants, ..Acl::private(owner) });
        let stored = AclPolicy::from_bytes(&bytes).unwrap().list;
        let users: Vec<_> = stored.users.iter().map(|(id, bits)| (id.as_str(), *bits)).collect();
        assert_eq!(users, [(".rlistings", 0x10), ("main", 15), ("other", 0x30), ("zz", 0x20)]);
        let grants: Vec<_> = stored
            .grants
            .iter()
            .map(|(id, g)| (id.as_str(), g.kind as u32, g.permission, g.referer.as_str()))
            .collect();
        assert_eq!(
            grants,
            [
                ("", 4, 0x10, "*"),
                ("", 4, 0, "bad.com"),
                (".rlistings", 0, 0x10, ""),
                ("main", 0, 15, ""),
                ("other", 0, 0x10, ""),
                ("other", 0, 0x20, ""),
                ("zz", 0, 0x20, ""),
            ]
        );
        let pages: Vec<_> =
            stored.referers.iter().map(|r| (r.pattern.as_str(), r.permission)).collect();
        assert_eq!(pages, [("*", 0x10), ("bad.com", 0)]);
        assert_eq!(stored.groups, [(ALL_USERS, 0x10)].into());
        let back = of(&Attrs::from([("acl".to_owned(), bytes)]));
        assert_eq!(back.swift.header(false), ".r:*,.r:-bad.com,.rlistings,other");
        assert_eq!(back.swift.header(true), "other,zz");
    }
}
