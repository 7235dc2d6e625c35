//! Accounts of the dashboard as stock keeps them: `mgr/dashboard/accessdb_v2` of the monitors' keys.
//!
//! An account proves who somebody is. What it may do is judged by the monitors, by the caps of the
//! entity `client.dashboard.NAME`, which is made with it: a role is a set of caps at that moment.
//!
//! Source: stock's `pybind/mgr/dashboard/services/access_control.py` (fields, words of errors).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Where accounts are kept.
pub const KEY: &str = "mgr/dashboard/accessdb_v2";
/// Accounts at once.
const ACCOUNTS_MAX: usize = 1_000;
/// Longest name of an account.
const NAME_MAX: usize = 64;
/// Least characters of a password: stock's `PWD_POLICY_MIN_LENGTH`.
const PASSWORD_MIN: usize = 8;
/// Bytes of a password that bcrypt looks at.
const PASSWORD_MAX: usize = 72;
/// Rounds of bcrypt, as a power of two: stock's.
const BCRYPT_COST: u32 = 12;

/// What an account may do in a scope, as stock names it.
#[derive(Clone, Copy, PartialEq)]
enum May {
    /// `create`, `delete`, `read` and `update`, by name.
    All,
    /// The same, in the order that all roles but one have them in.
    Manage,
    /// `read`
    Read,
}

/// A role: what stock tells of it, and the caps that it stands for here.
struct Role {
    name: &'static str,
    description: &'static str,
    scopes: &'static [(&'static str, May)],
    caps: &'static [(&'static str, &'static str)],
}

const READ: (&str, &str) = ("mon", "allow r");
const READ_MGR: (&str, &str) = ("mgr", "allow r");

/// Stock's roles, in its order.
const ROLES: &[Role] = &[
    Role {
        name: "administrator",
        description: "allows full permissions for all security scopes",
        scopes: &[
            ("cephfs", May::All),
            ("config-opt", May::All),
            ("dashboard-settings", May::All),
            ("grafana", May::All),
            ("hosts", May::All),
            ("iscsi", May::All),
            ("log", May::All),
            ("manager", May::All),
            ("monitor", May::All),
            ("nfs-ganesha", May::All),
            ("nvme-of", May::All),
            ("osd", May::All),
            ("pool", May::All),
            ("prometheus", May::All),
            ("rbd-image", May::All),
            ("rbd-mirroring", May::All),
            ("rgw", May::All),
            ("smb", May::All),
            ("user", May::All),
        ],
        caps: &[("mon", "allow *"), ("mgr", "allow *"), ("osd", "allow *"), ("mds", "allow *")],
    },
    Role {
        name: "read-only",
        description: "allows read permission for all security scope except dashboard settings and config-opt",
        scopes: &[
            ("cephfs", May::Read),
            ("grafana", May::Read),
            ("hosts", May::Read),
            ("iscsi", May::Read),
            ("log", May::Read),
            ("manager", May::Read),
            ("monitor", May::Read),
            ("nfs-ganesha", May::Read),
            ("nvme-of", May::Read),
            ("osd", May::Read),
            ("pool", May::Read),
            ("prometheus", May::Read),
            ("rbd-image", May::Read),
            ("rbd-mirroring", May::Read),
            ("rgw", May::Read),
            ("smb", May::Read),
            ("user", May::Read),
        ],
        caps: &[READ, READ_MGR, ("osd", "allow r"), ("mds", "allow r")],
    },
    Role {
        name: "block-manager",
        description: "allows full permissions for rbd-image, rbd-mirroring, and iscsi scopes",
        scopes: &[
            ("rbd-image", May::Manage),
            ("pool", May::Read),
            ("iscsi", May::Manage),
            ("rbd-mirroring", May::Manage),
            ("grafana", May::Read),
            ("nvme-of", May::Manage),
            ("prometheus", May::Read),
        ],
        caps: &[
            ("mon", "allow r, profile rbd"),
            ("mgr", "allow r, allow module rbd_support rw"),
            ("osd", "profile rbd"),
        ],
    },
    Role {
        name: "rgw-manager",
        description: "allows full permissions for the rgw scope",
        scopes: &[("rgw", May::Manage), ("grafana", May::Read), ("prometheus", May::Read)],
        caps: &[READ, READ_MGR],
    },
    Role {
        name: "cluster-manager",
        description: "allows full permissions for the hosts, osd, mon, mgr,\n    and config-opt scopes",
        scopes: &[
            ("hosts", May::Manage),
            ("osd", May::Manage),
            ("monitor", May::Manage),
            ("manager", May::Manage),
            ("config-opt", May::Manage),
            ("log", May::Manage),
            ("grafana", May::Read),
            ("prometheus", May::Read),
        ],
        caps: &[("mon", "allow rw"), ("mgr", "allow rw"), ("osd", "allow r"), ("mds", "allow rw")],
    },
    Role {
        name: "pool-manager",
        description: "allows full permissions for the pool scope",
        scopes: &[("pool", May::Manage), ("grafana", May::Read), ("prometheus", May::Read)],
        caps: &[
            (
                "mon",
                "allow r, allow command \"osd pool create\", allow command \"osd pool set\", \
                 allow command \"osd pool set-quota\", allow command \"osd pool rename\", \
                 allow command \"osd pool application enable\", allow command \"osd pool delete\"",
            ),
            READ_MGR,
        ],
    },
    Role {
        name: "cephfs-manager",
        description: "allows full permissions for the cephfs scope",
        scopes: &[("cephfs", May::Manage), ("grafana", May::Read), ("prometheus", May::Read)],
        caps: &[READ, ("mgr", "allow r, allow module volumes rw"), ("mds", "allow rw")],
    },
    Role {
        name: "ganesha-manager",
        description: "allows full permissions for the nfs-ganesha scope",
        scopes: &[
            ("nfs-ganesha", May::Manage),
            ("cephfs", May::Manage),
            ("rgw", May::Manage),
            ("grafana", May::Read),
            ("smb", May::Read),
            ("prometheus", May::Read),
        ],
        caps: &[READ, READ_MGR],
    },
    Role {
        name: "smb-manager",
        description: "allows full permissions for the smb scope",
        scopes: &[
            ("smb", May::Manage),
            ("cephfs", May::Manage),
            ("rgw", May::Manage),
            ("grafana", May::Read),
            ("nfs-ganesha", May::Read),
            ("prometheus", May::Read),
        ],
        caps: &[READ, READ_MGR],
    },
];

/// Names of all roles.
pub fn roles() -> impl Iterator<Item = &'static str> {
    ROLES.iter().map(|role| role.name)
}

fn role(name: &str) -> Option<&'static Role> {
    ROLES.iter().find(|role| role.name == name)
}

/// What stock tells of a role.
#[must_use]
pub fn role_json(name: &str) -> Option<Value> {
    let role = role(name)?;
    let scopes = role.scopes.iter().map(|(scope, may)| {
        let may = match may {
            May::All => json!(["create", "delete", "read", "update"]),
            May::Manage => json!(["read", "create", "update", "delete"]),
            May::Read => json!(["read"]),
        };
        ((*scope).to_owned(), may)
    });
    let scopes: Map<String, Value> = scopes.collect();
    Some(json!({
        "name": role.name, "description": role.description, "scopes_permissions": scopes,
    }))
}

/// The caps that a role stands for: service and text, again and again, as commands take them.
#[must_use]
pub fn role_caps(name: &str) -> Vec<String> {
    let caps = role(name).map_or(&[][..], |role| role.caps);
    caps.iter().flat_map(|(service, text)| [(*service).to_owned(), (*text).to_owned()]).collect()
}

/// An account, with the fields of stock's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct User {
    /// The name to log in with; its entity is `client.dashboard.` and that.
    pub username: String,
    /// The password's hash by bcrypt; none: nobody can log in.
    pub password: Option<String>,
    /// Names of roles.
    #[serde(default)]
    pub roles: Vec<String>,
    /// Somebody's name.
    #[serde(default)]
    pub name: Option<String>,
    /// Somebody's address.
    #[serde(default)]
    pub email: Option<String>,
    /// Seconds since 1970.
    #[serde(default)]
    pub last_update: u64,
    /// Whether it may log in.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Seconds since 1970.
    #[serde(default)]
    pub pwd_expiration_date: Option<u64>,
    /// Whether it is to change its password.
    #[serde(default)]
    pub pwd_update_required: bool,
}

const fn yes() -> bool {
    true
}

impl User {
    /// Whether the account may log in now, its password apart.
    #[must_use]
    pub fn is_open(&self, now_s: u64) -> bool {
        self.enabled
            && self.password.as_ref().is_some_and(|hash| !hash.is_empty())
            && self.pwd_expiration_date.is_none_or(|end| end == 0 || end >= now_s)
    }
}

/// The entity whose caps judge what an account does.
#[must_use]
pub fn entity(user: &str) -> String {
    format!("client.dashboard.{user}")
}

/// All accounts, in the order in which they were made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Accounts {
    users: Vec<User>,
    /// Roles that somebody made at stock; kept as they are.
    roles: Map<String, Value>,
}

impl Accounts {
    /// Reads what is kept; nothing is no account.
    ///
    /// # Errors
    /// A sentence, when it cannot be understood: it is never replaced then.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        let bad = |err: serde_json::Error| format!("the accounts in {KEY} cannot be read: {err}");
        let all: Value = serde_json::from_slice(text).map_err(bad)?;
        let mut users = Vec::new();
        for one in all["users"].as_object().into_iter().flat_map(Map::values) {
            users.push(serde_json::from_value(one.clone()).map_err(bad)?);
        }
        let roles = all["roles"].as_object().cloned().unwrap_or_default();
        Ok(Self { users, roles })
    }

    /// What is kept.
    #[must_use]
    pub fn text(&self) -> String {
        let users = self.users.iter().map(|user| (user.username.clone(), json!(user)));
        let users: Map<String, Value> = users.collect();
        line(&json!({"users": users, "roles": self.roles, "version": 2}))
    }

    /// Names of all accounts.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.users.iter().map(|user| user.username.as_str())
    }

    /// An account.
    ///
    /// # Errors
    /// Stock's sentence, where there is none (ENOENT).
    pub fn get(&self, name: &str) -> Result<&User, String> {
        let found = self.users.iter().find(|user| user.username == name);
        found.ok_or_else(|| format!("User '{name}' does not exist"))
    }

    /// An account, to be changed.
    ///
    /// # Errors
    /// As [`Accounts::get`].
    pub fn get_mut(&mut self, name: &str) -> Result<&mut User, String> {
        let found = self.users.iter_mut().find(|user| user.username == name);
        found.ok_or_else(|| format!("User '{name}' does not exist"))
    }

    /// Adds an account.
    ///
    /// # Errors
    /// A sentence, when the name cannot be an entity's, or there are too many (EINVAL).
    pub fn add(&mut self, user: User) -> Result<&User, String> {
        check_name(&user.username)?;
        if self.users.len() >= ACCOUNTS_MAX {
            return Err(format!("there are {ACCOUNTS_MAX} accounts already"));
        }
        self.users.push(user);
        Ok(self.users.last().expect("it was just added"))
    }

    /// Removes an account.
    pub fn remove(&mut self, name: &str) {
        self.users.retain(|user| user.username != name);
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.@+".contains(c);
    if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(plain) {
        return Err(format!("'{name}' is no name of an account: a-z A-Z 0-9 - _ . @ +"));
    }
    Ok(())
}

/// Judges a password by stock's defaults.
///
/// # Errors
/// Stock's sentence (EINVAL).
pub fn check_password(password: &str) -> Result<(), String> {
    if password.chars().count() < PASSWORD_MIN {
        return Err("Password is too weak.".to_owned());
    }
    Ok(())
}

/// The hash that is kept of a password: bcrypt, `$2b$12$…`, as stock's. Takes a quarter of a second.
///
/// # Errors
/// A sentence, for passwords of which bcrypt would look at a part alone.
pub fn hash(password: &str, salt: [u8; 16]) -> Result<String, String> {
    hash_at(password, salt, BCRYPT_COST)
}

fn hash_at(password: &str, salt: [u8; 16], cost: u32) -> Result<String, String> {
    if password.len() > PASSWORD_MAX {
        return Err(format!("a password has {PASSWORD_MAX} bytes at most"));
    }
    let parts = bcrypt::hash_with_salt(password, cost, salt).map_err(|err| err.to_string())?;
    Ok(parts.to_string())
}

/// Whether a password is the hash's. Takes as long as [`hash`]; what is no hash is nobody's.
#[must_use]
pub fn verify(password: &str, hash: &str) -> bool {
    password.len() <= PASSWORD_MAX && bcrypt::verify(password, hash).unwrap_or(false)
}

/// A hash that no password has, to be compared where there is no account: so that an answer does not
/// tell by its time which accounts there are.
pub const NOBODY: &str = "$2b$12$aaaaaaaaaaaaaaaaaaaaaOaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

/// Json in one line, as Python's `json.dumps` writes it.
#[must_use]
pub fn line(value: &Value) -> String {
    use std::io::{self, Write};

    struct Python;

    impl serde_json::ser::Formatter for Python {
        fn begin_array_value<W: ?Sized + Write>(
            &mut self,
            w: &mut W,
            first: bool,
        ) -> io::Result<()> {
            w.write_all(if first { b"" } else { b", " })
        }
        fn begin_object_key<W: ?Sized + Write>(
            &mut self,
            w: &mut W,
            first: bool,
        ) -> io::Result<()> {
            w.write_all(if first { b"" } else { b", " })
        }
        fn begin_object_value<W: ?Sized + Write>(&mut self, w: &mut W) -> io::Result<()> {
            w.write_all(b": ")
        }
    }

    let mut text = Vec::new();
    let mut to = serde_json::Serializer::with_formatter(&mut text, Python);
    value.serialize(&mut to).expect("numbers and text into memory");
    String::from_utf8(text).expect("json is text")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What stock 20.2 keeps is read, and written the same.
    #[test]
    fn stocks_accounts() {
        let text = concat!(
            r#"{"users": {"admin": {"username": "admin", "#,
            r#""password": "$2b$12$eTsZ9NkDYXTAtAFDrmrbn.kQQlnlVvmDTIRKqSXI0Hy/f1RqeTCGe", "#,
            r#""roles": ["administrator"], "name": null, "email": null, "#,
            r#""lastUpdate": 1732912345, "enabled": true, "pwdExpirationDate": null, "#,
            r#""pwdUpdateRequired": false}}, "#,
            r#""roles": {"own": {"name": "own", "description": null, "scopes_permissions": {}}}, "#,
            r#""version": 2}"#
        );
        let accounts = Accounts::parse(text.as_bytes()).unwrap();
        assert_eq!(accounts.text(), text);
        assert_eq!(accounts.get("admin").unwrap().roles, ["administrator"]);
        assert_eq!(accounts.get("x").unwrap_err(), "User 'x' does not exist");
        assert!(Accounts::parse(b"{").is_err() && Accounts::parse(b"").unwrap().users.is_empty());
    }

    /// Known answers of bcrypt, made by other programs.
    #[test]
    fn passwords() {
        for (password, hash) in [
            ("U*U", "$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW"),
            ("", "$2a$05$CCCCCCCCCCCCCCCCCCCCC.7uG0VCzI2bS7j6ymqJi9CdcdxiRTWNy"),
        ] {
            assert!(verify(password, hash) && !verify("other", hash), "{password}");
        }
        let own = hash_at("secret12", [7; 16], 4).unwrap();
        assert!(
            own.starts_with("$2b$04$") && verify("secret12", &own) && !verify("secret13", &own)
        );
        assert!(hash(&"x".repeat(73), [0; 16]).is_err(), "its end would not count");
        let compared = bcrypt::verify("a", NOBODY);
        assert!(matches!(compared, Ok(false)), "it is a hash: comparing takes its time");
        assert!(!verify("a", NOBODY) && !verify("a", "") && !verify("a", "plain"));
        assert!(check_password("short").is_err() && check_password("long enough").is_ok());
    }

    #[test]
    fn names_are_entities() {
        let user = |name: &str| User {
            username: name.to_owned(),
            password: None,
            roles: Vec::new(),
            name: None,
            email: None,
            last_update: 0,
            enabled: true,
            pwd_expiration_date: None,
            pwd_update_required: false,
        };
        let mut accounts = Accounts::default();
        for bad in ["", "a b", "a\n[client.admin]", "ü", &"x".repeat(65)] {
            assert!(accounts.add(user(bad)).is_err(), "{bad:?}");
        }
        assert!(accounts.add(user("ann@example.org")).is_ok());
        assert!(!accounts.get("ann@example.org").unwrap().is_open(0), "it has no password");
        for n in 1..ACCOUNTS_MAX {
            accounts.add(user(&format!("u{n}"))).unwrap();
        }
        assert!(accounts.add(user("more")).is_err());
    }

    /// Every role's caps are such that monitors take.
    #[test]
    fn roles_are_caps() {
        for name in roles() {
            for pair in role_caps(name).chunks(2) {
                let parsed = match pair[0].as_str() {
                    "mon" => auth::MonCap::parse(&pair[1]).map(drop),
                    "mgr" => auth::MgrCap::parse(&pair[1]).map(drop),
                    "osd" => auth::OsdCap::parse(&pair[1]).map(drop),
                    _ => auth::MdsCap::parse(&pair[1]).map(drop),
                };
                assert!(parsed.is_ok(), "{name}: {pair:?}: {parsed:?}");
            }
            assert!(role_json(name).is_some());
        }
        assert!(role_caps("none").is_empty() && role_json("none").is_none());
    }
}
