//! `ceph-authtool`: keyring files.
//!
//! Source: upstream's `tools/ceph_authtool.cc`.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

use auth::{CryptoKey, EntityAuth, KeyKind, Keyring};
use conf::ConfFile;
use rt::OsRandom;
use types::{EntityName, UTime};

use super::flags::{self, Given, Own, flag, with_value};
use super::setup::{self, Kind};
use super::{Done, Failed, reason};

const FLAGS: &[Own] = &[
    flag(&["--gen-key", "-g"]),
    flag(&["--gen-print-key"]),
    flag(&["--create-keyring", "-C"]),
    flag(&["--print-key", "-p"]),
    flag(&["--list", "-l"]),
    with_value(&["--add-key", "-a"]),
    with_value(&["--key-type", "-t"]),
    with_value(&["--import-keyring"]),
    with_value(&["--caps"]),
    with_value(&["--mode"]),
    Own { names: &["--cap"], values: 2 },
];

const USAGE: &str = "usage: ceph-authtool keyringfile [OPTIONS]...
  -l, --list                     print the keyring
  -p, --print-key                print the key of the entity
  -C, --create-keyring           make a new keyring in place of what is there
  -g, --gen-key                  make a key for the entity
  -t, --key-type TYPE            aes (every release has it) or aes256k (since 20)
  --gen-print-key                print a new key, and store it nowhere
  --import-keyring FILE          take in all of another keyring
  -n, --name TYPE.ID             the entity (client.admin)
  -a, --add-key BASE64           the entity's key
  --cap SUBSYSTEM CAPABILITY     what the entity may do
  --caps FILE                    the same for all subsystems, from a file
  --mode MODE                    mode of a new file, as 0644 (0600)";

const KIND: Kind = setup::tool(FLAGS, USAGE);

fn usage(why: &str) -> Failed {
    Failed::said(format!("{why}\n{USAGE}"))
}

/// `ceph-authtool`.
pub fn run(args: &[String]) -> Done {
    if args.is_empty() {
        return Err(Failed::said("ceph-authtool: -h or --help for usage"));
    }
    let given = flags::parse(FLAGS, args).map_err(|why| match args.last() {
        Some(last) if args.iter().any(|arg| arg == "--cap") && last != "--cap" => {
            Failed::said("must give two arguments to --cap: key and val.")
        }
        _ => why,
    })?;
    if given.version {
        say!("{}", types::release::version());
        return Ok(0);
    }
    if given.help {
        return Err(Failed::said(USAGE));
    }
    let (kind, id) = setup::entity(&KIND, &given)?;
    let name: EntityName = format!("{kind}.{id}").parse().map_err(Failed::said)?;
    let key_kind = match given.value("--key-type") {
        None => KeyKind::AES,
        Some(text) => match KeyKind::cipher_named(text) {
            Some(kind) => kind,
            None => return Err(Failed::said(format!("invalid key type: {text}"))),
        },
    };
    let new_key =
        || CryptoKey::generate(key_kind, UTime::from_nanos(rt::now().wall_ns), &mut OsRandom);
    if given.has("--gen-print-key") {
        say!("{}", new_key().to_base64());
        return Ok(0);
    }
    let path = match &given.rest[..] {
        [] => return Err(usage("ceph-authtool: must specify filename")),
        [path] if !path.starts_with('-') => path,
        [first, .., word] if !first.starts_with('-') => {
            return Err(usage(&format!("ceph-authtool: unexpected '{word}'")));
        }
        [word, ..] => return Err(usage(&format!("ceph-authtool: unexpected '{word}'"))),
    };
    let changes = ["--gen-key", "--add-key", "--cap", "--caps", "--import-keyring"];
    let create = given.has("--create-keyring");
    let looks = given.has("--list") || given.has("--print-key");
    if !create && !looks && !changes.iter().any(|flag| given.has(flag)) {
        return Err(usage("no command specified"));
    }
    if given.has("--gen-key") && given.has("--add-key") {
        return Err(usage("can't both gen-key and add-key"));
    }
    let mode = match given.value("--mode") {
        None => 0o600,
        Some(text) => u32::from_str_radix(text, 8)
            .ok()
            .filter(|mode| mode & !0o7777 == 0)
            .ok_or_else(|| Failed::said(format!("'{text}' is no mode of a file, as 0644 is")))?,
    };
    let mut keyring = Keyring::default();
    if create {
        say!("creating {path}");
    } else {
        keyring = read(path)?;
    }
    change(&mut keyring, &given, path, &name, new_key)?;
    if given.has("--list") {
        say!("{}", keyring.to_string().trim_end());
    }
    if given.has("--print-key") {
        match keyring.key(&name) {
            Some(key) => say!("{}", key.to_base64()),
            None => return Err(Failed::said(format!("entity {name} not found"))),
        }
    }
    if create || changes.iter().any(|flag| given.has(flag)) {
        write(path, mode, &keyring.to_string()).map_err(|err| {
            let why = reason(&err);
            Failed::said(format!("{path}: failed to open file: {why}\ncould not write {path}"))
        })?;
    }
    Ok(0)
}

fn change(
    keyring: &mut Keyring,
    given: &Given,
    path: &str,
    name: &EntityName,
    new_key: impl Fn() -> CryptoKey,
) -> Result<(), Failed> {
    if let Some(from) = given.value("--import-keyring") {
        let other = read(from)?;
        say!("importing contents of {from} into {path}");
        keyring.entities.extend(other.entities);
    }
    if given.has("--gen-key") {
        let entity = EntityAuth { key: new_key(), ..EntityAuth::default() };
        keyring.entities.insert(name.clone(), entity);
    }
    if let Some(text) = given.value("--add-key") {
        let key = CryptoKey::from_base64(text)
            .map_err(|_| Failed::said(format!("can't decode key '{text}'")))?;
        keyring.entities.insert(name.clone(), EntityAuth { key, ..EntityAuth::default() });
        say!("added entity {name} auth(key={text})");
    }
    let mut caps = BTreeMap::new();
    if let Some(file) = given.value("--caps") {
        caps = read_caps(file)?;
    }
    for (flag, values) in &given.own {
        if let ("--cap", [service, cap]) = (*flag, &values[..]) {
            caps.insert(service.clone(), cap.clone());
        }
    }
    if !caps.is_empty() {
        let Some(entity) = keyring.entities.get_mut(name) else {
            return Err(Failed::said(format!(
                "can't find existing key for {name} and neither gen-key nor add-key specified"
            )));
        };
        entity.caps = caps;
    }
    Ok(())
}

fn read(path: &str) -> Result<Keyring, Failed> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(err) if err.kind() == std::io::ErrorKind::InvalidData => String::from("?"),
        Err(err) => {
            let why = reason(&err);
            return Err(Failed::said(format!("can't open {path}: can't open {path}: {why}")));
        }
    };
    Keyring::parse(&text).map_err(|_| Failed::said(format!("error reading file {path}")))
}

/// `SERVICE = CAPABILITY` in lines, in a section `[global]` or in none.
fn read_caps(path: &str) -> Result<BTreeMap<String, String>, Failed> {
    let text = fs::read_to_string(path).map_err(|err| {
        Failed::said(format!("could not open caps file {path}: {}", reason(&err)))
    })?;
    let file = ConfFile::parse(&format!("[global]\n{text}"));
    let file = file.map_err(|err| {
        let (line, what) = (err.line.saturating_sub(1), err.what);
        Failed::said(format!("line {line}: {what}\ncould not parse caps file {path}"))
    })?;
    let of_service = |service: &&str| ["mon", "osd", "mds", "mgr"].contains(service);
    let all = file.section("global").filter(|(service, _)| of_service(service));
    Ok(all.map(|(service, cap)| (service.to_owned(), cap.to_owned())).collect())
}

fn write(path: &str, mode: u32, text: &str) -> std::io::Result<()> {
    // The mode that was asked for, whatever this process leaves out by default.
    rustix::process::umask(rustix::fs::Mode::empty());
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
