//! Access control lists: who is granted what on a bucket or an object.
//!
//! Source: `rgw_acl.h`, `rgw_acl_s3.cc`.

use crate::error::{Code, Error, Result};
use crate::request::Headers;
use crate::swift;
use crate::xml::{Element, Writer};

/// Grants in a list.
pub const GRANTS_MAX: usize = 100;
const ALL_USERS: &str = "http://acs.amazonaws.com/groups/global/AllUsers";
const AUTHENTICATED: &str = "http://acs.amazonaws.com/groups/global/AuthenticatedUsers";

/// What a grant allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Permission {
    /// List the bucket; read the object.
    Read,
    /// Write, overwrite and delete objects of the bucket.
    Write,
    /// Read this list.
    ReadAcp,
    /// Write this list.
    WriteAcp,
    /// All of these.
    FullControl,
}

impl Permission {
    const ALL: [Self; 5] =
        [Self::Read, Self::Write, Self::ReadAcp, Self::WriteAcp, Self::FullControl];

    /// As XML has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "READ",
            Self::Write => "WRITE",
            Self::ReadAcp => "READ_ACP",
            Self::WriteAcp => "WRITE_ACP",
            Self::FullControl => "FULL_CONTROL",
        }
    }

    fn header(self) -> &'static str {
        match self {
            Self::Read => "x-amz-grant-read",
            Self::Write => "x-amz-grant-write",
            Self::ReadAcp => "x-amz-grant-read-acp",
            Self::WriteAcp => "x-amz-grant-write-acp",
            Self::FullControl => "x-amz-grant-full-control",
        }
    }

    /// The bits of the stored form: 1, 2, 4, 8 and all of them.
    #[must_use]
    pub fn bits(self) -> u32 {
        match self {
            Self::Read => 1,
            Self::Write => 2,
            Self::ReadAcp => 4,
            Self::WriteAcp => 8,
            Self::FullControl => 15,
        }
    }
}

/// Who is granted something.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grantee {
    /// A user by id, or an account.
    User(String),
    /// A user by email address, to be looked up before the list is stored.
    Email(String),
    /// Everybody, without a key too.
    AllUsers,
    /// Everybody with a key.
    Authenticated,
}

impl Grantee {
    fn group(uri: &str) -> Result<Self> {
        match uri {
            ALL_USERS => Ok(Self::AllUsers),
            AUTHENTICATED => Ok(Self::Authenticated),
            _ => Err(Error::new(Code::InvalidArgument, format!("The group {uri:?} is not known."))),
        }
    }
}

/// One line of a list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grant {
    /// To whom.
    pub grantee: Grantee,
    /// What it allows.
    pub permission: Permission,
}

/// A user's id and the name that is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// `[TENANT$]UID`, or the id of an account.
    pub id: String,
    /// May be empty.
    pub display_name: String,
}

impl Owner {
    /// Writes `<NAME><ID/><DisplayName/></NAME>`.
    pub fn write(&self, w: &mut Writer, name: &str) {
        w.open(name).text("ID", &self.id).text("DisplayName", &self.display_name).close(name);
    }
}

/// An owner and grants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl {
    /// May always read and write the list itself.
    pub owner: Owner,
    /// At most [`GRANTS_MAX`].
    pub grants: Vec<Grant>,
    /// Those that Swift set, of buckets: who reads and writes their objects.
    pub swift: swift::acl::Grants,
}

fn grant(grantee: Grantee, permission: Permission) -> Grant {
    Grant { grantee, permission }
}

impl Acl {
    /// Full control for the owner alone.
    #[must_use]
    pub fn private(owner: Owner) -> Self {
        let grants = vec![grant(Grantee::User(owner.id.clone()), Permission::FullControl)];
        Self { owner, grants, swift: swift::acl::Grants::default() }
    }

    /// A canned list for an object or bucket of `owner`, in a bucket of `bucket_owner`.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`] for a name that is none.
    pub fn canned(name: &str, owner: Owner, bucket_owner: &str) -> Result<Self> {
        let mut acl = Self::private(owner);
        let mut add = |grantee, permission| acl.grants.push(grant(grantee, permission));
        let other = (acl.owner.id != bucket_owner).then(|| Grantee::User(bucket_owner.into()));
        match (name, other) {
            ("private", _) | ("bucket-owner-read" | "bucket-owner-full-control", None) => {}
            ("public-read", _) => add(Grantee::AllUsers, Permission::Read),
            ("public-read-write", _) => {
                add(Grantee::AllUsers, Permission::Read);
                add(Grantee::AllUsers, Permission::Write);
            }
            ("authenticated-read", _) => add(Grantee::Authenticated, Permission::Read),
            ("bucket-owner-read", Some(other)) => add(other, Permission::Read),
            ("bucket-owner-full-control", Some(other)) => add(other, Permission::FullControl),
            _ => {
                return Err(Error::new(
                    Code::InvalidArgument,
                    format!("The canned ACL {name:?} is not known."),
                ));
            }
        }
        Ok(acl)
    }

    /// Reads `x-amz-acl` or `x-amz-grant-*`; `None` where there is neither.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`] for both at once, unknown groups, or too many grants.
    pub fn of_headers(
        headers: &Headers,
        owner: &Owner,
        bucket_owner: &str,
    ) -> Result<Option<Self>> {
        let canned = headers.single("x-amz-acl")?;
        let mut grants = Vec::new();
        for permission in Permission::ALL {
            let Some(text) = headers.single(permission.header())? else { continue };
            for one in text.split(',') {
                let bad = || {
                    Error::new(
                        Code::InvalidArgument,
                        format!(
                            "{} is id=, uri= or emailAddress= with a value.",
                            permission.header()
                        ),
                    )
                };
                let (kind, value) = one.trim().split_once('=').ok_or_else(bad)?;
                let value = value.trim().trim_matches('"').to_owned();
                let grantee = match kind.trim() {
                    "id" => Grantee::User(value),
                    "emailAddress" => Grantee::Email(value),
                    "uri" => Grantee::group(&value)?,
                    _ => return Err(bad()),
                };
                grants.push(grant(grantee, permission));
            }
        }
        if grants.len() > GRANTS_MAX {
            return Err(Error::new(Code::InvalidArgument, "A list has at most 100 grants."));
        }
        match canned {
            Some(_) if !grants.is_empty() => Err(Error::new(
                Code::InvalidArgument,
                "x-amz-acl and x-amz-grant-* exclude each other.",
            )),
            Some(name) => Self::canned(name, owner.clone(), bucket_owner).map(Some),
            None if grants.is_empty() => Ok(None),
            None => {
                let swift = swift::acl::Grants::default();
                Ok(Some(Self { owner: owner.clone(), grants, swift }))
            }
        }
    }

    /// Reads `<AccessControlPolicy>`.
    ///
    /// # Errors
    /// [`Code::MalformedXML`], [`Code::MalformedACLError`], [`Code::InvalidArgument`].
    pub fn parse(body: &[u8]) -> Result<Self> {
        let root = Element::parse_as(body, "AccessControlPolicy")?;
        let owner = root.need("Owner")?;
        let display_name = owner.text_of("DisplayName")?.unwrap_or_default().into();
        let owner = Owner { id: owner.need_text("ID")?.into(), display_name };
        let mut grants = Vec::new();
        if let Some(list) = root.child("AccessControlList")? {
            for one in list.all("Grant") {
                grants.push(parse_grant(one)?);
            }
        }
        if grants.len() > GRANTS_MAX {
            return Err(Error::new(Code::MalformedACLError, "A list has at most 100 grants."));
        }
        Ok(Self { owner, grants, swift: swift::acl::Grants::default() })
    }

    /// The answer's body.
    #[must_use]
    pub fn to_xml(&self) -> String {
        let mut w = Writer::document();
        w.open_root("AccessControlPolicy");
        self.owner.write(&mut w, "Owner");
        w.open("AccessControlList");
        let xsi = |kind: &str| {
            format!(
                "Grantee xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" xsi:type=\"{kind}\""
            )
        };
        for grant in &self.grants {
            w.open("Grant");
            match &grant.grantee {
                Grantee::User(id) => {
                    w.open(&xsi("CanonicalUser")).text("ID", id);
                    let name =
                        Some(self.owner.display_name.as_str()).filter(|_| *id == self.owner.id);
                    w.maybe("DisplayName", name);
                }
                Grantee::Email(email) => {
                    w.open(&xsi("AmazonCustomerByEmail")).text("EmailAddress", email);
                }
                Grantee::AllUsers => {
                    w.open(&xsi("Group")).text("URI", ALL_USERS);
                }
                Grantee::Authenticated => {
                    w.open(&xsi("Group")).text("URI", AUTHENTICATED);
                }
            }
            w.close("Grantee").text("Permission", grant.permission.name()).close("Grant");
        }
        w.close("AccessControlList").close("AccessControlPolicy");
        w.finish()
    }

    /// Whether `who` has a permission; `None` is the anonymous user. With `ignore_public` grants to groups count for
    /// nothing.
    #[must_use]
    pub fn permits(&self, who: Option<&str>, permission: Permission, ignore_public: bool) -> bool {
        let owns = who == Some(self.owner.id.as_str());
        if owns && matches!(permission, Permission::ReadAcp | Permission::WriteAcp) {
            return true;
        }
        let granted = self.grants.iter().filter(|g| match &g.grantee {
            Grantee::User(id) => who == Some(id.as_str()),
            Grantee::Email(_) => false,
            Grantee::AllUsers => !ignore_public,
            Grantee::Authenticated => !ignore_public && who.is_some(),
        });
        let bits = granted.fold(0, |bits, g| bits | g.permission.bits());
        bits & permission.bits() == permission.bits()
    }

    /// Whether a group is granted anything.
    #[must_use]
    pub fn is_public(&self) -> bool {
        let by_group = |g: &Grant| matches!(g.grantee, Grantee::AllUsers | Grantee::Authenticated);
        self.grants.iter().any(by_group) || self.swift.is_public()
    }
}

fn parse_grant(one: &Element) -> Result<Grant> {
    let grantee = one.need("Grantee")?;
    let text = |name| grantee.need_text(name).map(str::to_owned);
    let kind = match grantee.kind.as_deref() {
        Some(kind) => kind,
        None => grantee.need_text("Type")?,
    };
    let who = match kind {
        "CanonicalUser" => Grantee::User(text("ID")?),
        "AmazonCustomerByEmail" => Grantee::Email(text("EmailAddress")?),
        "Group" => Grantee::group(grantee.need_text("URI")?)?,
        _ => {
            return Err(Error::new(
                Code::MalformedACLError,
                "A grantee is CanonicalUser, AmazonCustomerByEmail or Group.",
            ));
        }
    };
    let name = one.need_text("Permission")?;
    let permission = Permission::ALL.into_iter().find(|p| p.name() == name);
    let bad =
        || Error::new(Code::MalformedACLError, format!("The permission {name:?} is not known."));
    Ok(grant(who, permission.ok_or_else(bad)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn owner() -> Owner {
        Owner { id: "me".into(), display_name: "Me & <I>".into() }
    }

    proptest! {
        /// A list comes back from its XML.
        #[test]
        fn xml_comes_back(grants in prop::collection::vec((0usize..4, 0usize..5, "[ -~]{1,9}"), 0..9)) {
            let who = |kind, name: &str| match kind {
                0 => Grantee::User(name.trim().into()),
                1 => Grantee::Email(name.trim().into()),
                2 => Grantee::AllUsers,
                _ => Grantee::Authenticated,
            };
            let grants = grants.iter().map(|(kind, p, name)| grant(who(*kind, name), Permission::ALL[*p])).collect();
            let acl = Acl { grants, ..Acl::private(owner()) };
            prop_assert_eq!(Acl::parse(acl.to_xml().as_bytes()).unwrap(), acl);
        }
    }

    #[test]
    fn who_may_what() {
        use Permission::{FullControl, Read, ReadAcp, Write, WriteAcp};
        let acl = Acl::canned("public-read", owner(), "me").unwrap();
        assert!(acl.permits(Some("me"), FullControl, true) && acl.permits(None, Read, false));
        assert!(
            !acl.permits(None, Read, true)
                && !acl.permits(None, Write, false)
                && !acl.permits(Some("x"), ReadAcp, false)
        );
        let acl = Acl::canned("authenticated-read", owner(), "me").unwrap();
        assert!(
            acl.permits(Some("x"), Read, false)
                && !acl.permits(None, Read, false)
                && acl.is_public()
        );
        let acl = Acl::canned("bucket-owner-full-control", owner(), "boss").unwrap();
        assert!(acl.permits(Some("boss"), FullControl, false) && !acl.is_public());
        // The owner may always mend the list, and read nothing by that.
        let acl = Acl { grants: vec![], ..Acl::private(owner()) };
        assert!(acl.permits(Some("me"), WriteAcp, false) && !acl.permits(Some("me"), Read, false));
        assert!(Acl::canned("log-delivery-write", owner(), "me").is_err());
    }

    #[test]
    fn headers() {
        let of = |headers: &[(&str, &str)]| {
            Acl::of_headers(&Headers::new(headers.iter().copied()).unwrap(), &owner(), "me")
        };
        assert_eq!(of(&[]).unwrap(), None);
        let acl = of(&[(
            "x-amz-grant-read",
            "id=\"a\", uri=http://acs.amazonaws.com/groups/global/AllUsers",
        )])
        .unwrap()
        .unwrap();
        assert!(
            acl.permits(Some("a"), Permission::Read, true)
                && acl.permits(None, Permission::Read, false)
        );
        for bad in [
            &[("x-amz-acl", "x")][..],
            &[("x-amz-acl", "private"), ("x-amz-grant-read", "id=a")],
            &[("x-amz-grant-read", "a")],
            &[("x-amz-grant-read", "uri=x")],
        ] {
            assert_eq!(of(bad).unwrap_err().code, Code::InvalidArgument, "{bad:?}");
        }
    }
}
