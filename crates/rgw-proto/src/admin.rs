//! Calls of the Admin Ops API, by method, path and query, and who may make them.
//!
//! ```text
//!   /admin/RESOURCE[?SUBRESOURCE&..] ──> Call ──> the cap it needs ──> authorize: admin or system user, or that cap
//! ```
//!
//! A table says for each resource and subresource which methods it takes; what no row has is refused.
//!
//! Source: `rgw_rest_user.cc`, `rgw_rest_bucket.cc`, `rgw_rest_usage.cc`, `rgw_rest_metadata.cc`, `rgw_rest_account.cc`,
//! `rgw_rest_ratelimit.cc` for calls and caps; `rgw_common.cc` (`RGWUserCaps`) for the caps' spelling.

use std::collections::BTreeMap;

use crate::error::{Code, Error, Result};
use crate::request::{Head, Method};
use crate::sig::Proof;

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the table beside them says what they are")]
pub enum Call {
    UserInfo,
    UserList,
    UserCreate,
    UserModify,
    UserRemove,
    SubuserCreate,
    SubuserModify,
    SubuserRemove,
    KeyCreate,
    KeyRemove,
    CapsAdd,
    CapsRemove,
    QuotaGet,
    QuotaSet,
    BucketInfo,
    BucketPolicy,
    BucketLink,
    BucketUnlink,
    BucketRemove,
    BucketQuota,
    ObjectRemove,
    UsageGet,
    UsageTrim,
    RatelimitGet,
    RatelimitSet,
    AccountGet,
    AccountCreate,
    AccountModify,
    AccountRemove,
    AccountQuota,
    MetadataGet,
    MetadataMyself,
    Info,
    Zone,
}

/// Reading, of a cap.
pub const READ: u32 = 1;
/// Writing, of a cap.
pub const WRITE: u32 = 2;

use Method::{Delete, Get, Post, Put};

/// Resource, subresource, method, call, cap and what of it is needed. The subresource is empty where none is there.
const TABLE: &[(&str, &str, Method, Call, &str, u32)] = &[
    ("user", "", Get, Call::UserInfo, "users", READ),
    ("user", "list", Get, Call::UserList, "users", READ),
    ("user", "quota", Get, Call::QuotaGet, "users", READ),
    ("user", "", Put, Call::UserCreate, "users", WRITE),
    ("user", "subuser", Put, Call::SubuserCreate, "users", WRITE),
    ("user", "key", Put, Call::KeyCreate, "users", WRITE),
    ("user", "caps", Put, Call::CapsAdd, "users", WRITE),
    ("user", "quota", Put, Call::QuotaSet, "users", WRITE),
    ("user", "", Post, Call::UserModify, "users", WRITE),
    ("user", "subuser", Post, Call::SubuserModify, "users", WRITE),
    ("user", "", Delete, Call::UserRemove, "users", WRITE),
    ("user", "subuser", Delete, Call::SubuserRemove, "users", WRITE),
    ("user", "key", Delete, Call::KeyRemove, "users", WRITE),
    ("user", "caps", Delete, Call::CapsRemove, "users", WRITE),
    ("bucket", "", Get, Call::BucketInfo, "buckets", READ),
    ("bucket", "policy", Get, Call::BucketPolicy, "buckets", READ),
    ("bucket", "", Put, Call::BucketLink, "buckets", WRITE),
    ("bucket", "quota", Put, Call::BucketQuota, "buckets", WRITE),
    ("bucket", "", Post, Call::BucketUnlink, "buckets", WRITE),
    ("bucket", "", Delete, Call::BucketRemove, "buckets", WRITE),
    ("bucket", "object", Delete, Call::ObjectRemove, "buckets", WRITE),
    ("usage", "", Get, Call::UsageGet, "usage", READ),
    ("usage", "", Delete, Call::UsageTrim, "usage", WRITE),
    ("ratelimit", "", Get, Call::RatelimitGet, "ratelimit", READ),
    ("ratelimit", "", Post, Call::RatelimitSet, "ratelimit", WRITE),
    ("account", "", Get, Call::AccountGet, "accounts", READ),
    ("account", "", Post, Call::AccountCreate, "accounts", WRITE),
    ("account", "", Put, Call::AccountModify, "accounts", WRITE),
    ("account", "quota", Put, Call::AccountQuota, "accounts", WRITE),
    ("account", "", Delete, Call::AccountRemove, "accounts", WRITE),
    ("metadata", "", Get, Call::MetadataGet, "metadata", READ),
    ("metadata", "myself", Get, Call::MetadataMyself, "metadata", READ),
    ("info", "", Get, Call::Info, "info", READ),
    ("config", "", Get, Call::Zone, "zone", READ),
];

/// Resources and subresources that stock has and that are not built.
const NOT_BUILT: &[(&str, &str)] =
    &[("log", ""), ("realm", ""), ("bucket", "sync"), ("bucket", "index")];

/// Names that caps may have. Source: `RGWUserCaps::is_valid_cap_type`.
const CAPS: &[&str] = &[
    "user",
    "users",
    "buckets",
    "metadata",
    "info",
    "usage",
    "zone",
    "bilog",
    "mdlog",
    "datalog",
    "roles",
    "user-policy",
    "amz-cache",
    "oidc-provider",
    "user-info-without-keys",
    "ratelimit",
    "accounts",
];

/// A call, and the rest of its path: section and key of metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// What it does.
    pub call: Call,
    /// What stands behind the resource in the path, decoded; empty for most.
    pub rest: String,
}

/// The path behind the entry of the API (`rgw_admin_entry`), without slashes at its ends; `None` for requests that are
/// not of this API.
#[must_use]
pub fn path_of<'a>(path: &'a str, entry: &str) -> Option<&'a str> {
    let rest = path.strip_prefix('/')?.strip_prefix(entry)?;
    match rest.as_bytes().first() {
        None | Some(b'/') => Some(rest.trim_matches('/')),
        Some(_) => None,
    }
}

impl Asked {
    /// What is asked for by the path behind the entry.
    ///
    /// # Errors
    /// [`Code::MethodNotAllowed`] for what this API has not; [`Code::NotImplemented`] for what stock has and this
    /// gateway has not.
    pub fn of(path: &str, head: &Head) -> Result<Self> {
        let (resource, rest) = path.split_once('/').unwrap_or((path, ""));
        let of_resource = || TABLE.iter().filter(|row| row.0 == resource);
        // Names of subresources are names of parameters, too: the first that this method has counts, as at stock's.
        let first = |fits: &dyn Fn(&Method) -> bool| {
            let has = |name: &str| {
                !name.is_empty() && of_resource().any(|row| row.1 == name && fits(&row.2))
            };
            head.query.iter().map(|(name, _)| name).find(|name| has(name))
        };
        let found = first(&|method| *method == head.method).or_else(|| first(&|_| true));
        let found = found.unwrap_or_default();
        let stocks = NOT_BUILT.iter().filter(|(name, _)| *name == resource);
        if stocks.into_iter().any(|(_, name)| name.is_empty() || head.query.has(name)) {
            let text = format!(
                "/admin/{resource} is not built here: use radosgw-admin, or stock radosgw."
            );
            return Err(Error::new(Code::NotImplemented, text));
        }
        if resource != "metadata" && !rest.is_empty() {
            return Err(Code::MethodNotAllowed.into());
        }
        let row = of_resource().find(|row| row.1 == found && row.2 == head.method);
        let row = row.ok_or_else(|| Error::from(Code::MethodNotAllowed))?;
        Ok(Self { call: row.3, rest: crate::uri::decode_text(rest, false)? })
    }
}

/// Who makes calls: a user whose signature was right.
#[derive(Clone, Debug)]
pub struct Manager {
    caps: BTreeMap<String, u32>,
    is_admin: bool,
}

impl Manager {
    /// The user who was proven; `is_admin` of admin and system users.
    #[must_use]
    pub fn proven(_proof: &Proof, caps: &BTreeMap<String, u32>, is_admin: bool) -> Self {
        Self { caps: caps.clone(), is_admin }
    }

    /// Whether the user is an administrator or has a cap with all of `need`.
    #[must_use]
    pub fn has(&self, cap: &str, need: u32) -> bool {
        self.is_admin || self.caps.get(cap).is_some_and(|has| has & need == need)
    }
}

/// Judges a call: the one place that says yes.
///
/// # Errors
/// [`Code::AccessDenied`], with the cap that is missing.
pub fn authorize(manager: &Manager, call: Call) -> Result<()> {
    let row = TABLE.iter().find(|row| row.3 == call).expect("each call has a row");
    let (cap, need) = (row.4, row.5);
    let keyless = call == Call::UserInfo && manager.has("user-info-without-keys", READ);
    if keyless || manager.has(cap, need) {
        return Ok(());
    }
    let word = if need == WRITE { "write" } else { "read" };
    let text = format!(
        "The user lacks the cap {cap}={word} (radosgw-admin caps add --caps=\"{cap}={word}\")."
    );
    Err(Error::new(Code::AccessDenied, text))
}

/// Reads `users=*;buckets=read,write`.
///
/// # Errors
/// [`Code::InvalidCapability`].
pub fn parse_caps(text: &str) -> Result<BTreeMap<String, u32>> {
    let bad = |what: &str| {
        let text = format!("{what:?} is no cap: a list has NAME=read|write|* with ; between.");
        Error::new(Code::InvalidCapability, text)
    };
    let mut out = BTreeMap::new();
    for one in text.split(';').map(str::trim).filter(|one| !one.is_empty()) {
        let (name, words) = one.split_once('=').ok_or_else(|| bad(one))?;
        let name = name.trim();
        if !CAPS.contains(&name) {
            return Err(bad(one));
        }
        let mut bits = 0;
        for word in words.split([',', ' ']).filter(|word| !word.is_empty()) {
            bits |= match word {
                "*" => READ | WRITE,
                "read" => READ,
                "write" => WRITE,
                _ => return Err(bad(one)),
            };
        }
        *out.entry(name.to_owned()).or_default() |= bits;
    }
    if out.is_empty() {
        return Err(bad(text));
    }
    Ok(out)
}

/// A cap's bits, in stock's words.
#[must_use]
pub fn cap_word(bits: u32) -> &'static str {
    match bits & (READ | WRITE) {
        READ => "read",
        WRITE => "write",
        0 => "<none>",
        _ => "*",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::request::Headers;

    fn asked(method: Method, target: &str) -> Result<Call> {
        let head = Head::new(method, target, Headers::new([("host", "h")]).unwrap())?;
        let path = path_of(&head.path, "admin").expect("of the API");
        Asked::of(path, &head).map(|asked| asked.call)
    }

    #[test]
    fn calls() {
        for (method, target, want) in [
            (Get, "/admin/user?uid=a", Ok(Call::UserInfo)),
            (Get, "/admin/user?list", Ok(Call::UserList)),
            (Get, "/admin/user/?quota&uid=a", Ok(Call::QuotaGet)),
            (Put, "/admin/user?quota=&uid=a", Ok(Call::QuotaSet)),
            (Delete, "/admin/user?key", Ok(Call::KeyRemove)),
            (Delete, "/admin/bucket?object&bucket=b", Ok(Call::ObjectRemove)),
            (Put, "/admin/user?key&uid=a&subuser=a:b", Ok(Call::KeyCreate)),
            (Put, "/admin/user?subuser=a:b&uid=a&key=", Ok(Call::SubuserCreate)),
            (Get, "/admin/bucket?bucket=b&object=k&policy", Ok(Call::BucketPolicy)),
            (Get, "/admin/metadata/user?key=a", Ok(Call::MetadataGet)),
            (Get, "/admin/metadata/user?myself", Ok(Call::MetadataMyself)),
            (Get, "/admin", Err(Code::MethodNotAllowed)),
            (Get, "/admin/", Err(Code::MethodNotAllowed)),
            (Get, "/admin/bogus", Err(Code::MethodNotAllowed)),
            (Get, "/admin/user/more", Err(Code::MethodNotAllowed)),
            (Post, "/admin/user?key", Err(Code::MethodNotAllowed)),
            (Put, "/admin/bucket?sync&bucket=b", Err(Code::NotImplemented)),
            (Get, "/admin/log?type=data", Err(Code::NotImplemented)),
            (Get, "/admin/bucket?index&bucket=b", Err(Code::NotImplemented)),
            (Delete, "/admin/metadata/user?key=a", Err(Code::MethodNotAllowed)),
        ] {
            assert_eq!(asked(method, target).map_err(|e| e.code), want, "{target}");
        }
        for other in ["/administrator", "/adm", "/", "/bucket/admin"] {
            assert_eq!(path_of(other, "admin"), None, "{other}");
        }
    }

    /// Each call needs its cap, and reading is not writing.
    #[test]
    fn caps_decide() {
        let of = |text: &str| Manager { caps: parse_caps(text).unwrap(), is_admin: false };
        let nobody = Manager { caps: BTreeMap::new(), is_admin: false };
        let admin = Manager { caps: BTreeMap::new(), is_admin: true };
        for row in TABLE {
            assert!(authorize(&admin, row.3).is_ok());
            assert!(authorize(&nobody, row.3).is_err(), "{:?}", row.3);
            let (read, write) = (of(&format!("{}=read", row.4)), of(&format!("{}=write", row.4)));
            assert_eq!(authorize(&read, row.3).is_ok(), row.5 == READ, "{:?}", row.3);
            assert_eq!(authorize(&write, row.3).is_ok(), row.5 == WRITE, "{:?}", row.3);
            assert!(authorize(&of(&format!("{}=*", row.4)), row.3).is_ok());
        }
        assert!(authorize(&of("user-info-without-keys=read"), Call::UserInfo).is_ok());
        assert!(authorize(&of("user-info-without-keys=*"), Call::UserModify).is_err());
    }

    #[test]
    fn caps_are_read() {
        let caps = parse_caps(" users=*; buckets=read ;usage=read,write").unwrap();
        assert_eq!(
            caps,
            [("buckets", 1), ("usage", 3), ("users", 3)].map(|(n, b)| (n.to_owned(), b)).into()
        );
        for bad in ["", ";", "users", "nonsense=read", "users=all"] {
            assert_eq!(parse_caps(bad).unwrap_err().code, Code::InvalidCapability, "{bad}");
        }
    }

    proptest! {
        /// No text makes it panic.
        #[test]
        fn any_text(text in any::<String>()) {
            let _ = (parse_caps(&text), path_of(&text, "admin"), asked(Get, &format!("/admin/{text}")));
        }
    }
}
