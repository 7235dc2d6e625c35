//! `ceph dashboard …`: accounts and certificates, kept with the monitors' keys as stock keeps them.
//!
//! Who makes an account gives it caps, and who sets a password can log in as its account: both take what making
//! keys takes at the monitors, by the caller's own caps. Certificates take the manager's `rw`, as in stock.

use std::collections::BTreeMap;

use auth::{MonAccess, MonCap, Rights};
use bytes::Bytes;
use cli::Args;
use env::Random;
use mgr::Answer;
use serde_json::{Value, json};
use types::{EntityAddr, EntityKind, EntityName};

use crate::accounts::{self, Accounts, User};
use crate::cert::{self, PEM_BYTES_MAX, Pair};

const ENOENT: i32 = 2;
const EACCES: i32 = 13;
const EINVAL: i32 = 22;

/// Where the certificate is kept.
const CRT: &str = "mgr/dashboard/crt";
/// Where its key is kept.
const CRT_KEY: &str = "mgr/dashboard/key";

/// Where one manager's own certificate or key is kept.
fn own_key(mgr: &str, key: &str) -> String {
    key.replace("dashboard/", &format!("dashboard/{mgr}/"))
}

/// Who is asked: the monitors, as the manager itself.
pub trait Mons {
    /// Sends a command.
    fn ask(&self, command: Value, input: Bytes) -> impl Future<Output = Answer>;
}

/// Who sent a command.
#[derive(Clone, Debug)]
pub struct Caller {
    /// By its ticket.
    pub name: EntityName,
    /// From where.
    pub addr: EntityAddr,
}

/// What else follows from a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Then {
    /// Nothing else follows.
    Nothing,
    /// All sessions of an account end.
    End(String),
    /// There is another certificate.
    Certificate,
}

/// The manager that does it.
#[derive(Clone, Copy, Debug)]
pub struct Own<'a> {
    /// By which name the monitors know it.
    pub mgr: &'a str,
    /// The host's name, for a certificate.
    pub host: &'a str,
    /// Seconds since 1970.
    pub now_s: u64,
}

type Done = Result<(Answer, Then), Answer>;

fn says(text: impl Into<String>) -> Answer {
    Answer { out: text.into().into(), ..Answer::default() }
}

fn fails(errno: i32, why: impl Into<String>) -> Answer {
    Answer { r: -errno, rs: why.into(), ..Answer::default() }
}

/// Reads what is kept under a key of the monitors; `None`: nothing.
///
/// # Errors
/// What they answered.
pub async fn kept(mons: &impl Mons, key: &str) -> Result<Option<Bytes>, Answer> {
    let answer = mons.ask(json!({"prefix": "config-key get", "key": key}), Bytes::new()).await;
    match answer.r {
        0 => Ok(Some(answer.out)),
        r if r == -ENOENT => Ok(None),
        _ => Err(answer),
    }
}

/// Keeps a value.
async fn keep(mons: &impl Mons, key: &str, value: Bytes) -> Result<(), Answer> {
    let answer = mons.ask(json!({"prefix": "config-key set", "key": key}), value).await;
    if answer.r == 0 { Ok(()) } else { Err(answer) }
}

/// All accounts.
///
/// # Errors
/// What the monitors answered, or that what they keep cannot be read.
pub async fn load(mons: &impl Mons) -> Result<Accounts, Answer> {
    let text = kept(mons, accounts::KEY).await?.unwrap_or_default();
    Accounts::parse(&text).map_err(|why| fails(EINVAL, why))
}

async fn save(mons: &impl Mons, accounts: &Accounts) -> Result<(), Answer> {
    keep(mons, accounts::KEY, accounts.text().into()).await
}

/// The certificate and its key, one manager's own before that of all; where there is none, one that is signed with its own key is made and kept,
/// if `makes`.
///
/// # Errors
/// What the monitors answered, or that no key could be made.
pub async fn certificate(mons: &impl Mons, own: &Own<'_>, makes: bool) -> Result<Pair, Answer> {
    let text = |bytes: Bytes| String::from_utf8_lossy(&bytes).into_owned();
    let found = async |key: &str| match kept(mons, &own_key(own.mgr, key)).await? {
        None => kept(mons, key).await,
        known => Ok(known),
    };
    match (found(CRT).await?, found(CRT_KEY).await?) {
        (Some(crt), Some(key)) => Ok(Pair { crt: text(crt), key: text(key) }),
        (None, None) if makes => make_certificate(mons, own).await,
        _ => Err(fails(EINVAL, format!("one of {CRT} and {CRT_KEY} is missing"))),
    }
}

async fn make_certificate(mons: &impl Mons, own: &Own<'_>) -> Result<Pair, Answer> {
    let pair = cert::self_signed(own.host, own.now_s).map_err(|why| fails(EINVAL, why))?;
    keep(mons, CRT, pair.crt.clone().into()).await?;
    keep(mons, CRT_KEY, pair.key.clone().into()).await?;
    Ok(pair)
}

/// What `-i` brought, without the end of its last line.
fn input(bytes: &Bytes, what: &str) -> Result<String, Answer> {
    if bytes.is_empty() {
        let why = format!(
            "Input file not specified: Please specify the file containing {what} with \"-i\" option"
        );
        return Err(fails(EINVAL, why));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| fails(EINVAL, "the input is no text"))?;
    let text = text.trim_end_matches(['\r', '\n']);
    if text.trim().is_empty() {
        return Err(fails(EINVAL, format!("Empty input file: Please add {what} to the file")));
    }
    Ok(text.to_owned())
}

/// Whether the caller may make and remove keys at the monitors.
async fn may_make_keys(mons: &impl Mons, caller: &Caller) -> Result<(), Answer> {
    if caller.name.kind == EntityKind::MON {
        return Ok(());
    }
    let entity = caller.name.to_string();
    let ask = json!({"prefix": "auth get", "entity": entity, "format": "json"});
    let answer = mons.ask(ask, Bytes::new()).await;
    let all: Value = serde_json::from_slice(&answer.out).unwrap_or_default();
    let caps = MonCap::parse_lenient(all[0]["caps"]["mon"].as_str().unwrap_or_default());
    let may = answer.r == 0
        && caps.is_capable(&MonAccess {
            name: &caller.name,
            addr: &caller.addr,
            service: "auth",
            command: "auth get-or-create",
            args: &BTreeMap::new(),
            wants: Rights::RWX,
        });
    if may {
        return Ok(());
    }
    Err(fails(EACCES, format!("access denied: accounts have caps, and {entity} may not make keys")))
}

/// Makes the entity whose caps judge an account, unless somebody made it before: then its caps stay.
async fn make_entity(mons: &impl Mons, user: &str, role: Option<&str>) -> Result<(), Answer> {
    let entity = accounts::entity(user);
    let ask = json!({"prefix": "auth get", "entity": entity, "format": "json"});
    let known = mons.ask(ask, Bytes::new()).await;
    if known.r == 0 {
        return Ok(());
    }
    let caps = role.map(accounts::role_caps).unwrap_or_default();
    let make = json!({"prefix": "auth get-or-create", "entity": entity, "caps": caps});
    let made = mons.ask(make, Bytes::new()).await;
    if made.r == 0 { Ok(()) } else { Err(made) }
}

async fn hash(password: String, rng: &mut dyn Random) -> Result<String, Answer> {
    let mut salt = [0; 16];
    rng.fill(&mut salt);
    // It takes a quarter of a second: not on the thread that serves.
    let hashed = tokio::task::spawn_blocking(move || accounts::hash(&password, salt)).await;
    hashed.map_err(|err| fails(EINVAL, err.to_string()))?.map_err(|why| fails(EINVAL, why))
}

fn text_of(user: &User) -> Answer {
    says(accounts::line(&json!(user)))
}

fn names(all: impl Iterator<Item = impl Into<String>>) -> Answer {
    let all: Vec<Value> = all.map(|name| Value::String(name.into())).collect();
    says(accounts::line(&Value::Array(all)))
}

fn word(args: &Args, name: &str) -> Result<Option<String>, Answer> {
    let text = args.str(name).map_err(|err| fails(EINVAL, err.to_string()))?;
    Ok(text.filter(|text| !text.is_empty()).map(str::to_owned))
}

fn needed(args: &Args, name: &str) -> Result<String, Answer> {
    word(args, name)?.ok_or_else(|| fails(EINVAL, format!("{name} is missing")))
}

/// Runs one of the module's commands.
///
/// # Errors
/// The answer of a command that failed; nothing follows it.
pub async fn run(
    mons: &impl Mons,
    args: &Args,
    given: &Bytes,
    caller: &Caller,
    own: &Own<'_>,
    rng: &mut dyn Random,
) -> Done {
    let missing = |why: String| fails(ENOENT, why);
    match args.prefix() {
        "dashboard ac-role-show" => match word(args, "rolename")? {
            None => Ok((names(accounts::roles()), Then::Nothing)),
            Some(role) => {
                let found = accounts::role_json(&role);
                let found =
                    found.ok_or_else(|| missing(format!("Role '{role}' does not exist")))?;
                Ok((says(accounts::line(&found)), Then::Nothing))
            }
        },
        "dashboard ac-user-show" => {
            let accounts = load(mons).await?;
            match word(args, "username")? {
                None => Ok((names(accounts.names()), Then::Nothing)),
                Some(user) => {
                    let user = accounts.get(&user).map_err(missing)?;
                    Ok((text_of(user), Then::Nothing))
                }
            }
        }
        "dashboard ac-user-create" => create(mons, args, given, caller, own, rng).await,
        "dashboard ac-user-set-password" => {
            let (user, password) = (needed(args, "username")?, input(given, "password/secret")?);
            let mut accounts = load(mons).await?;
            accounts.get(&user).map_err(missing)?;
            may_make_keys(mons, caller).await?;
            if !args.flag("force_password") {
                accounts::check_password(&password).map_err(|why| fails(EINVAL, why))?;
            }
            let hash = hash(password, rng).await?;
            let found = accounts.get_mut(&user).map_err(missing)?;
            (found.password, found.last_update) = (Some(hash), own.now_s);
            let answer = text_of(found);
            save(mons, &accounts).await?;
            Ok((answer, Then::End(user)))
        }
        "dashboard ac-user-delete" => {
            let user = needed(args, "username")?;
            let mut accounts = load(mons).await?;
            accounts.get(&user).map_err(missing)?;
            may_make_keys(mons, caller).await?;
            accounts.remove(&user);
            save(mons, &accounts).await?;
            let rm = json!({"prefix": "auth rm", "entity": accounts::entity(&user)});
            let gone = mons.ask(rm, Bytes::new()).await;
            if gone.r != 0 && gone.r != -ENOENT {
                return Err(gone);
            }
            Ok((says(format!("User '{user}' deleted")), Then::End(user)))
        }
        "dashboard create-self-signed-cert" => {
            make_certificate(mons, own).await?;
            Ok((says("Self-signed certificate created"), Then::Certificate))
        }
        "dashboard set-ssl-certificate" => {
            set_pem(mons, args, given, ("certificate", CRT, "SSL certificate updated")).await
        }
        "dashboard set-ssl-certificate-key" => {
            set_pem(mons, args, given, ("certificate key", CRT_KEY, "SSL certificate key updated"))
                .await
        }
        other => Err(fails(EINVAL, format!("Command not found '{other}'"))),
    }
}

async fn create(
    mons: &impl Mons,
    args: &Args,
    given: &Bytes,
    caller: &Caller,
    own: &Own<'_>,
    rng: &mut dyn Random,
) -> Done {
    let (username, password) = (needed(args, "username")?, input(given, "password/secret")?);
    let role = word(args, "rolename")?;
    if let Some(role) = role.as_ref().filter(|role| accounts::role_json(role).is_none()) {
        return Err(fails(ENOENT, format!("Role '{role}' does not exist")));
    }
    if !args.flag("force_password") {
        accounts::check_password(&password).map_err(|why| fails(EINVAL, why))?;
    }
    let ends = args.int("pwd_expiration_date").map_err(|err| fails(EINVAL, err.to_string()))?;
    let ends = ends.and_then(|at| u64::try_from(at).ok()).filter(|at| *at > 0);
    if ends.is_some_and(|at| at < own.now_s) {
        return Err(fails(EINVAL, "The password expiration date must not be in the past"));
    }
    let mut accounts = load(mons).await?;
    if accounts.get(&username).is_ok() {
        return Ok((says(format!("User '{username}' already exists")), Then::Nothing));
    }
    may_make_keys(mons, caller).await?;
    let user = User {
        username: username.clone(),
        password: None,
        roles: role.iter().cloned().collect(),
        name: word(args, "name")?,
        email: word(args, "email")?,
        last_update: own.now_s,
        enabled: !args.has("enabled") || args.flag("enabled"),
        pwd_expiration_date: ends,
        pwd_update_required: args.flag("pwd_update_required"),
    };
    // What cannot be an account is refused before there is a key for it.
    accounts.add(user).map_err(|why| fails(EINVAL, why))?;
    let hash = hash(password, rng).await?;
    let user = accounts.get_mut(&username).map_err(|why| fails(ENOENT, why))?;
    user.password = Some(hash);
    let answer = text_of(user);
    make_entity(mons, &username, role.as_deref()).await?;
    save(mons, &accounts).await?;
    Ok((answer, Then::Nothing))
}

async fn set_pem(
    mons: &impl Mons,
    args: &Args,
    given: &Bytes,
    (what, key, done): (&str, &str, &str),
) -> Done {
    let key = match word(args, "mgr_id")? {
        None => key.to_owned(),
        Some(mgr) if mgr.contains('/') => return Err(fails(EINVAL, "that is no manager's name")),
        Some(mgr) => own_key(&mgr, key),
    };
    if given.is_empty() {
        let why = format!("Please specify the {what} with \"-i\" option");
        return Err(fails(EINVAL, why));
    }
    if given.len() > PEM_BYTES_MAX {
        return Err(fails(EINVAL, format!("a {what} has {PEM_BYTES_MAX} bytes at most")));
    }
    keep(mons, &key, given.clone()).await?;
    Ok((says(done), Then::Certificate))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use env::Seeded;

    use super::*;

    /// Keys and entities in memory.
    #[derive(Default)]
    struct Memory {
        keys: RefCell<BTreeMap<String, Bytes>>,
        caps: RefCell<BTreeMap<String, Value>>,
    }

    impl Mons for Memory {
        async fn ask(&self, command: Value, input: Bytes) -> Answer {
            let word = |name: &str| command[name].as_str().unwrap_or_default().to_owned();
            match word("prefix").as_str() {
                "config-key get" => match self.keys.borrow().get(&word("key")) {
                    Some(value) => Answer { out: value.clone(), ..Answer::default() },
                    None => fails(ENOENT, "none"),
                },
                "config-key set" => {
                    self.keys.borrow_mut().insert(word("key"), input);
                    Answer::default()
                }
                "auth get" => match self.caps.borrow().get(&word("entity")) {
                    Some(caps) => says(json!([{"caps": caps}]).to_string()),
                    None => fails(ENOENT, "none"),
                },
                "auth get-or-create" => {
                    let words: Vec<String> =
                        serde_json::from_value(command["caps"].clone()).unwrap();
                    let caps = words.chunks(2).map(|pair| (pair[0].clone(), json!(pair[1])));
                    self.caps.borrow_mut().insert(word("entity"), Value::Object(caps.collect()));
                    Answer::default()
                }
                "auth rm" => match self.caps.borrow_mut().remove(&word("entity")) {
                    Some(_) => Answer::default(),
                    None => fails(ENOENT, "none"),
                },
                other => panic!("{other} was not expected"),
            }
        }
    }

    impl Memory {
        fn new() -> Self {
            let this = Self::default();
            let caps = [
                ("client.admin", json!({"mon": "allow *", "mgr": "allow *"})),
                ("client.weak", json!({"mon": "allow r", "mgr": "allow rw"})),
            ];
            let caps = caps.map(|(name, caps)| (name.to_owned(), caps));
            this.caps.borrow_mut().extend(caps);
            this
        }

        fn run_as(&self, who: &str, args: &Args, input: &str) -> (i32, String, Then) {
            let caller = Caller { name: who.parse().unwrap(), addr: EntityAddr::default() };
            let own = Own { mgr: "x", host: "h1", now_s: 1_796_000_000 };
            let given = Bytes::copy_from_slice(input.as_bytes());
            let mut rng = Seeded(1);
            let run = run(self, args, &given, &caller, &own, &mut rng);
            let done = rt::run_local(run).unwrap();
            let (answer, then) = done.unwrap_or_else(|failed| (failed, Then::Nothing));
            let text = if answer.r == 0 {
                String::from_utf8(answer.out.to_vec()).unwrap()
            } else {
                answer.rs
            };
            (answer.r, text, then)
        }

        fn run(&self, args: Args, input: &str) -> (i32, String) {
            let (r, text, _) = self.run_as("client.admin", &args, input);
            (r, text)
        }
    }

    fn of(prefix: &str) -> Args {
        Args::new(&format!("dashboard {prefix}"))
    }

    /// As an operator of Kubernetes makes its account: created, created again, a password set, removed.
    #[test]
    fn an_account_lives() {
        let mons = Memory::new();
        let create =
            of("ac-user-create").with("username", "admin").with("rolename", "administrator");
        let (r, text) = mons.run(create.clone(), "first-secret\n");
        assert_eq!(r, 0, "{text}");
        let fields = text.split("\"password\": \"").collect::<Vec<_>>();
        assert_eq!(fields[0], "{\"username\": \"admin\", ");
        assert!(fields[1].starts_with("$2b$12$"), "{text}");
        let rest = "\"roles\": [\"administrator\"], \"name\": null, \"email\": null, \
                    \"lastUpdate\": 1796000000, \"enabled\": true, \"pwdExpirationDate\": null, \
                    \"pwdUpdateRequired\": false}";
        assert!(text.ends_with(rest), "{text}");
        assert_eq!(mons.caps.borrow()["client.dashboard.admin"]["mon"], "allow *");
        assert_eq!(mons.run(create, "other-secret"), (0, "User 'admin' already exists".into()));
        assert_eq!(mons.run(of("ac-user-show"), ""), (0, "[\"admin\"]".into()));
        assert_eq!(mons.run(of("ac-user-show").with("username", "admin"), ""), (0, text));
        let hash = |mons: &Memory| {
            let all = Accounts::parse(&mons.keys.borrow()[accounts::KEY]).unwrap();
            all.get("admin").unwrap().password.clone().unwrap()
        };
        assert!(accounts::verify("first-secret", &hash(&mons)));
        let set = of("ac-user-set-password").with("username", "admin");
        let (r, text, then) = mons.run_as("client.admin", &set, "second-secret");
        assert_eq!((r, then), (0, Then::End("admin".into())), "{text}");
        assert!(accounts::verify("second-secret", &hash(&mons)));
        let delete = of("ac-user-delete").with("username", "admin");
        let (_, text, then) = mons.run_as("client.admin", &delete, "");
        assert_eq!((text.as_str(), then), ("User 'admin' deleted", Then::End("admin".into())));
        assert!(!mons.caps.borrow().contains_key("client.dashboard.admin"));
        let gone = (-ENOENT, "User 'admin' does not exist".to_owned());
        for verb in ["ac-user-delete", "ac-user-show"] {
            assert_eq!(mons.run(of(verb).with("username", "admin"), ""), gone, "{verb}");
        }
    }

    #[test]
    fn refusals() {
        let mons = Memory::new();
        let create = |user: &str| of("ac-user-create").with("username", user);
        let (r, text) = mons.run(create("a"), "");
        assert_eq!((r, text.starts_with("Input file not specified")), (-EINVAL, true), "{text}");
        assert_eq!(mons.run(create("a"), "\n").0, -EINVAL);
        assert_eq!(mons.run(create("a"), "short"), (-EINVAL, "Password is too weak.".into()));
        let role = create("a").with("rolename", "king");
        assert_eq!(mons.run(role, "long-secret"), (-ENOENT, "Role 'king' does not exist".into()));
        assert_eq!(mons.run(create("a b"), "long-secret").0, -EINVAL);
        assert_eq!(mons.run(of("no-such"), "").0, -EINVAL);
        assert!(mons.keys.borrow().is_empty() && mons.caps.borrow().len() == 2, "nothing was made");
    }

    /// Who may not make keys makes no account, whose caps would be more than its own, and takes none over.
    #[test]
    fn nobody_climbs() {
        let mons = Memory::new();
        let create = of("ac-user-create").with("username", "x").with("rolename", "administrator");
        assert_eq!(mons.run_as("client.weak", &create, "long-secret").0, -EACCES);
        assert_eq!(mons.run_as("client.gone", &create, "long-secret").0, -EACCES);
        assert_eq!(mons.run(create, "long-secret").0, 0);
        let set = of("ac-user-set-password").with("username", "x");
        assert_eq!(mons.run_as("client.weak", &set, "long-secret").0, -EACCES);
        let delete = of("ac-user-delete").with("username", "x");
        assert_eq!(mons.run_as("client.weak", &delete, "").0, -EACCES);
        assert_eq!(mons.run_as("mon.", &set, "long-secret").0, 0, "the admin socket");
    }

    /// An entity that an operator made keeps its caps.
    #[test]
    fn caps_by_hand() {
        let mons = Memory::new();
        let own = json!({"mon": "allow r, allow command \"osd out\""});
        mons.caps.borrow_mut().insert("client.dashboard.ann".into(), own.clone());
        let create = of("ac-user-create").with("username", "ann").with("rolename", "administrator");
        assert_eq!(mons.run(create, "long-secret").0, 0);
        assert_eq!(mons.caps.borrow()["client.dashboard.ann"], own);
    }

    #[test]
    fn certificates() {
        let mons = Memory::new();
        let own = Own { mgr: "x", host: "h1", now_s: 1_796_000_000 };
        let pair = || rt::run_local(certificate(&mons, &own, true)).unwrap();
        assert!(rt::run_local(certificate(&mons, &own, false)).unwrap().is_err(), "none is made");
        let first = pair().unwrap();
        assert_eq!(pair().unwrap(), first, "it is kept");
        let (_, text, then) = mons.run_as("client.admin", &of("create-self-signed-cert"), "");
        assert_eq!((text.as_str(), then), ("Self-signed certificate created", Then::Certificate));
        assert_ne!(pair().unwrap(), first);
        let set = of("set-ssl-certificate");
        assert_eq!(mons.run(set.clone(), &first.crt), (0, "SSL certificate updated".into()));
        let key = of("set-ssl-certificate-key");
        assert_eq!(mons.run(key.clone(), &first.key), (0, "SSL certificate key updated".into()));
        assert_eq!(pair().unwrap(), first);
        assert_eq!(mons.run(set.clone(), "").0, -EINVAL);
        assert_eq!(mons.run(set.clone().with("mgr_id", "../x"), &first.crt).0, -EINVAL);
        for mgr in ["x", "y"] {
            // Another manager's counts for that one alone.
            let other = cert::self_signed("h2", 1_796_000_000).unwrap();
            assert_eq!(mons.run(set.clone().with("mgr_id", mgr), &other.crt).0, 0);
            assert_eq!(mons.run(key.clone().with("mgr_id", mgr), &other.key).0, 0);
            assert_eq!(pair().unwrap() == other, mgr == "x");
            mons.keys.borrow_mut().retain(|key, _| !key.starts_with("mgr/dashboard/x/"));
        }
        assert_eq!(mons.run(key, &"x".repeat(PEM_BYTES_MAX + 1)).0, -EINVAL);
        mons.keys.borrow_mut().remove(CRT);
        assert!(pair().is_err(), "half of a pair is not replaced");
    }

    #[test]
    fn roles() {
        let mons = Memory::new();
        let (_, text) = mons.run(of("ac-role-show"), "");
        let all = "[\"administrator\", \"read-only\", \"block-manager\", \"rgw-manager\", \
                   \"cluster-manager\", \"pool-manager\", \"cephfs-manager\", \"ganesha-manager\", \
                   \"smb-manager\"]";
        assert_eq!(text, all);
        let (_, text) = mons.run(of("ac-role-show").with("rolename", "pool-manager"), "");
        let role = "{\"name\": \"pool-manager\", \"description\": \"allows full permissions for the pool \
                    scope\", \"scopes_permissions\": {\"pool\": [\"read\", \"create\", \"update\", \
                    \"delete\"], \"grafana\": [\"read\"], \"prometheus\": [\"read\"]}}";
        assert_eq!(text, role);
        let none = mons.run(of("ac-role-show").with("rolename", "x"), "");
        assert_eq!(none, (-ENOENT, "Role 'x' does not exist".into()));
    }
}
