//! Access control lists: as they are stored, and as requests have them.

use rgw_core::formats::{AclGrant, AclList, AclOwner, AclPolicy, GranteeType};
use rgw_core::meta::Attrs;
use rgw_proto::acl::{Acl, Grant, Grantee, Owner, Permission};
use types::{Bytes, Denc};

const ALL_USERS: u32 = 1;
const AUTHENTICATED: u32 = 2;

/// As attributes hold it.
pub fn encode(acl: &Acl) -> Bytes {
    let mut list = AclList::default();
    for grant in &acl.grants {
        let bits = grant.permission.bits() as i32;
        let mut stored = AclGrant {
            kind: GranteeType::User,
            id: String::new(),
            email: String::new(),
            permission: bits,
            name: String::new(),
            group: 0,
            referer: String::new(),
        };
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
    let mut grants = Vec::new();
    for (_, grant) in stored.list.grants {
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
    Acl { owner, grants }
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
}
