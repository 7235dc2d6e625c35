//! Which kinds of keys a cluster takes and makes: `mon set`, and what health says of it.

mod alone;

use alone::{Alone, name};
use auth::KeyKind;
use serde_json::{Value, json};

const EPERM: i32 = -1;
const EINVAL: i32 = -22;

fn set(a: &mut Alone, what: &str, value: &str) -> (i32, String) {
    let admin = a.admin();
    let cmd = json!({"prefix": "mon set", "name": format!("auth_{what}"), "value": value});
    let (r, rs, _) = a.run(admin, &cmd.to_string());
    (r, rs)
}

fn ask(a: &mut Alone, cmd: Value) -> (i32, String, Value) {
    let admin = a.admin();
    let (r, rs, out) = a.run(admin, &cmd.to_string());
    (r, rs, serde_json::from_slice(&out).unwrap_or_default())
}

/// Codes of health that are about keys, with severity and how many are meant.
fn codes(a: &mut Alone) -> Vec<(String, String, i64)> {
    a.tick(6_000);
    let (_, _, health) = ask(a, json!({"prefix": "health", "detail": "detail", "format": "json"}));
    let checks = health["checks"].as_object().unwrap();
    let auth = checks.iter().filter(|(code, _)| code.starts_with("AUTH_"));
    let read = |(code, check): (&String, &Value)| {
        let severity = check["severity"].as_str().unwrap().trim_start_matches("HEALTH_");
        (code.clone(), severity.to_owned(), check["summary"]["count"].as_i64().unwrap())
    };
    auth.map(read).collect()
}

fn code(name: &str, severity: &str, count: i64) -> (String, String, i64) {
    (format!("AUTH_INSECURE_{name}"), severity.to_owned(), count)
}

fn rotate(a: &mut Alone, who: &str) {
    let cmd = json!({"prefix": "auth rotate", "entity": who, "key_type": "aes256k"});
    assert_eq!(ask(a, cmd).0, 0, "{who}");
}

/// Sentences and codes as stock 20.2.4's.
#[test]
fn values_are_checked() {
    let mut a = Alone::new();
    let wrong = (EINVAL, "(22) Invalid argument".to_owned());
    for what in ["preferred_cipher", "service_cipher", "allowed_ciphers"] {
        assert_eq!(set(&mut a, what, "nonsense"), wrong, "{what}");
        assert_eq!(set(&mut a, what, "none"), wrong, "{what}");
    }
    assert_eq!(set(&mut a, "allowed_ciphers", "aes,nonsense"), wrong);
    assert_eq!(set(&mut a, "allowed_ciphers", " , ").0, EINVAL, "stock shuts out everybody by it");
    assert_eq!(set(&mut a, "nothing", "aes").0, EINVAL);
    let again = (0, "already set".to_owned());
    assert_eq!(set(&mut a, "allowed_ciphers", "aes256k,aes"), again);
    assert_eq!(set(&mut a, "preferred_cipher", "aes"), again);
    assert_eq!(set(&mut a, "preferred_cipher", "aes256k"), (0, String::new()));
    let (_, _, dump) = ask(&mut a, json!({"prefix": "mon dump", "format": "json"}));
    assert_eq!(dump["auth_preferred_cipher"], json!({"name": "aes256k", "value": 2}));
    let names = dump["auth_allowed_ciphers"].as_array().unwrap().iter().map(|c| c["name"].clone());
    assert_eq!(names.collect::<Vec<_>>(), ["aes", "aes256k"]);
}

/// Nobody can lock out the monitors, nor everybody who could change it back.
#[test]
fn somebody_stays_in() {
    let mut a = Alone::new();
    let (r, why) = set(&mut a, "allowed_ciphers", "aes256k");
    assert!(r == EPERM && why.contains("auth rotate mon."), "{why}");
    rotate(&mut a, "mon.");
    let (r, why) = set(&mut a, "allowed_ciphers", "aes256k");
    assert!(r == EPERM && why.contains("client.admin"), "{why}");
    rotate(&mut a, "client.admin");
    assert_eq!(set(&mut a, "allowed_ciphers", "aes256k"), (0, String::new()));
}

/// New keys are of the preferred kind; those that can be broken only while they may log in, or by
/// the option.
#[test]
fn new_keys_are_as_the_map_says() {
    let mut a = Alone::new();
    let make = |a: &mut Alone, who: &str, kind: Option<&str>| {
        let cmd =
            json!({"prefix": "auth get-or-create", "entity": who, "key_type": kind.unwrap_or("")});
        let (r, rs, _) = ask(a, cmd);
        let made = a.mon.state().auth.get(&name(who)).map(|e| e.key.kind);
        if r == 0 { Ok(made.unwrap()) } else { Err((r, rs)) }
    };
    assert_eq!(make(&mut a, "client.a", None), Ok(KeyKind::AES));
    set(&mut a, "preferred_cipher", "aes256k");
    assert_eq!(make(&mut a, "client.b", None), Ok(KeyKind::AES256K));
    assert_eq!(make(&mut a, "client.c", Some("aes")), Ok(KeyKind::AES));
    rotate(&mut a, "mon.");
    rotate(&mut a, "client.admin");
    set(&mut a, "allowed_ciphers", "aes256k");
    let why = "creating key with insecure key type (\"aes\") not allowed".to_owned();
    assert_eq!(make(&mut a, "client.d", Some("aes")), Err((EINVAL, why)));
    let option = json!({"prefix": "config set", "who": "mon", "name": "mon_auth_allow_insecure_key", "value": "true"});
    assert_eq!(ask(&mut a, option).0, 0);
    assert_eq!(make(&mut a, "client.d", Some("aes")), Ok(KeyKind::AES));
}

/// Nothing is said until somebody asks for the better kind, and nothing when all is of it.
#[test]
fn health_follows_what_was_asked_for() {
    let mut a = Alone::new();
    assert_eq!(codes(&mut a), []);
    set(&mut a, "preferred_cipher", "aes256k");
    let rotating = code("ROTATING_SERVICE_KEY_TYPE", "WARN", 5);
    let allowed = [code("KEYS_ALLOWED", "WARN", 1), code("KEYS_CREATABLE", "WARN", 1)];
    let [may_log_in, may_be_made] = allowed;
    let all = [
        code("CLIENT_KEY_TYPE", "WARN", 1),
        may_log_in.clone(),
        may_be_made.clone(),
        rotating.clone(),
        code("SERVICE_KEY_TYPE", "ERR", 4),
        code("SERVICE_TICKETS", "ERR", 1),
    ];
    assert_eq!(codes(&mut a), all);
    for who in ["mon.", "client.admin", "osd.0", "osd.1", "osd.2"] {
        rotate(&mut a, who);
    }
    set(&mut a, "service_cipher", "aes256k");
    assert_eq!(codes(&mut a), [may_log_in.clone(), may_be_made.clone(), rotating]);
    let epoch = |a: &Alone| a.mon.state().monmap.auth.as_ref().map(|auth| auth.epoch);
    let before = epoch(&a);
    assert_eq!(ask(&mut a, json!({"prefix": "auth wipe-rotating-service-keys"})).0, 0);
    assert!(epoch(&a) > before, "tickets are to be dropped");
    // AUTH's own keys stay until they fall due, as with stock.
    let left = code("ROTATING_SERVICE_KEY_TYPE", "WARN", 1);
    assert_eq!(codes(&mut a), [may_log_in, may_be_made, left.clone()]);
    set(&mut a, "allowed_ciphers", "aes256k");
    assert_eq!(codes(&mut a), [left]);
}
