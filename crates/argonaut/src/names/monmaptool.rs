//! `monmaptool`: monitor maps in files.
//!
//! Source: upstream's `tools/monmaptool.cc`, `mon/MonMap.cc` (`print`, `build_initial`).

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;

use bytes::Bytes;
use conf::key;
use denc::Denc;
use env::Random;
use maps::{MonFeatures, MonInfo, MonMap, MonMapAuth};
use rados::{MON_PORTS, mon_members};
use rt::OsRandom;
use types::{AddrKind, AddrVec, EntityAddr, Epoch, UTime, Uuid, release};

use super::flags::{Given, Own, Setting, flag, with_value};
use super::setup::{self, Kind};
use super::{Done, Failed, reason};

const FLAGS: &[Own] = &[
    flag(&["--print", "-p"]),
    flag(&["--create"]),
    flag(&["--clobber"]),
    flag(&["--generate"]),
    flag(&["--set-initial-members"]),
    flag(&["--enable-all-features"]),
    flag(&["--optional"]),
    flag(&["--persistent"]),
    flag(&["--feature-list"]),
    with_value(&["--rm"]),
    with_value(&["--feature-set"]),
    with_value(&["--feature-unset"]),
    with_value(&["--set-min-mon-release"]),
    with_value(&["--auth-service-cipher"]),
    with_value(&["--auth-allowed-ciphers"]),
    with_value(&["--auth-preferred-cipher"]),
    Own { names: &["--add"], values: 2 },
    Own { names: &["--addv"], values: 2 },
];

const USAGE: &str = "usage: monmaptool [--print] [--create [--clobber] [--fsid uuid]]
        [--enable-all-features]
        [--generate] [--set-initial-members]
        [--add name 1.2.3.4:567] [--rm name]
        [--addv name [v2:1.2.4.5:567,v1:1.2.3.4:568]]
        [--feature-list [plain|parseable]]
        [--feature-set <value> [--optional|--persistent]]
        [--feature-unset <value> [--optional|--persistent]]
        [--set-min-mon-release <release-major-number>]
        [--auth-service-cipher <cipher>]
        [--auth-allowed-ciphers <cipher1,cipher2,...>]
        [--auth-preferred-cipher <cipher>]
        <mapfilename>";

const KIND: Kind = setup::tool(FLAGS, USAGE);

/// Key types by their numbers in a map.
const CIPHERS: [&str; 3] = ["none", "aes", "aes256k"];
/// The release of new maps.
const RELEASE: u8 = 20;

/// Upstream's exit code for what cannot be read or parsed.
const CODE: u8 = 255;

fn said(words: String) -> Failed {
    Failed::Said(format!("monmaptool: {words}"), CODE)
}

fn helpful(words: &str) -> Failed {
    Failed::said(format!("{words}\nmonmaptool -h for usage"))
}

/// `monmaptool`.
pub fn run(args: &[String]) -> Done {
    if args.is_empty() {
        return Err(Failed::said("monmaptool: -h or --help for usage"));
    }
    let mut given = super::flags::parse(FLAGS, args)?;
    if given.told(USAGE) {
        return Ok(0);
    }
    given.wrong.iter().for_each(|wrong| tell!("{wrong}\n"));
    let edits = edits(&given)?;
    let parseable = given.has("--feature-list")
        && take(&mut given.rest, |word| ["plain", "parseable"].contains(&word))
            .is_some_and(|how| how == "parseable");
    let path = match &given.rest[..] {
        [path] if !path.starts_with('-') => path.clone(),
        [] => return Err(helpful("monmaptool: must specify monmap filename")),
        _ => return Err(helpful("monmaptool: too many arguments")),
    };
    let changes = ["--feature-set", "--feature-unset", "--fsid"];
    let ciphers = ["--auth-service-cipher", "--auth-allowed-ciphers", "--auth-preferred-cipher"];
    let fsid =
        given.settings.iter().rev().find(|s| s.name == key::FSID.name()).map(|s| s.value.clone());
    say!("monmaptool: monmap file {path}");
    let create = given.has("--create");
    let changed = create
        || !edits.is_empty()
        || fsid.is_some()
        || given.has("--generate")
        || changes.iter().chain(&ciphers).any(|flag| given.has(flag));
    let mut map = if create { None } else { Some(read(&path)?) };
    if create && fs::exists(&path).unwrap_or(false) && !given.has("--clobber") {
        return Err(said(format!("{path} exists, --clobber to overwrite")));
    }
    if !changed && !given.has("--print") && !given.has("--feature-list") {
        return Err(helpful("no action specified"));
    }
    let map = map.get_or_insert_with(|| fresh(given.has("--enable-all-features")));
    if create {
        begin(map, &given, fsid.as_deref())?;
    }
    if given.has("--generate") {
        generate(map, &given)?;
    }
    if let Some(fsid) = &fsid {
        map.fsid = fsid.parse().map_err(|why| said(format!("fsid {fsid}: {why}")))?;
        say!("monmaptool: set fsid to {}", map.fsid);
    }
    edits.into_iter().try_for_each(|edit| apply(map, edit))?;
    set_ciphers(map, &given)?;
    set_features(map, &given)?;
    if given.has("--print") {
        print(map);
    }
    if given.has("--feature-list") {
        print_features(map, parseable);
    }
    if changed {
        let (epoch, count) = (map.epoch.0, map.mons.len());
        say!("monmaptool: writing epoch {epoch} to {path} ({count} monitors)");
        fs::write(&path, map.to_bytes())
            .map_err(|err| said(format!("error writing to {path}: {}", reason(&err))))?;
    }
    Ok(0)
}

fn take(words: &mut Vec<String>, is_it: impl Fn(&str) -> bool) -> Option<String> {
    let at = words.iter().position(|word| is_it(word))?;
    Some(words.remove(at))
}

fn fresh(all_features: bool) -> MonMap {
    let now = UTime::from_nanos(rt::now().wall_ns);
    let all = MonFeatures::NAMES.iter().fold(0, |bits, (bit, _)| bits | 1u64 << bit);
    let none = MonFeatures::default();
    MonMap {
        epoch: Epoch(0),
        created: now,
        last_changed: now,
        persistent_features: if all_features { MonFeatures { bits: all } } else { none },
        auth: Some(MonMapAuth {
            epoch: 0,
            service_cipher: 2,
            allowed_ciphers: BTreeSet::from([2]),
            preferred_cipher: 2,
        }),
        ..MonMap::default()
    }
}

/// What `--create` says and sets.
fn begin(map: &mut MonMap, given: &Given, fsid: Option<&str>) -> Result<(), Failed> {
    if fsid.is_none() && given.conf.is_none() {
        let mut raw = [0; 16];
        OsRandom.fill(&mut raw);
        map.fsid = Uuid::from_random(raw);
        say!("monmaptool: generated fsid {}", map.fsid);
    }
    map.min_mon_release = match given.value("--set-min-mon-release") {
        None => RELEASE,
        Some(text) => match text.parse::<u8>() {
            Ok(release) if release::name_of(release).is_some() => release,
            _ => return Err(said(format!("'{text}' is no release's number, as 20 is"))),
        },
    };
    say!("setting min_mon_release = {}", release_name(map.min_mon_release));
    Ok(())
}

fn release_name(number: u8) -> &'static str {
    release::name_of(number).unwrap_or("unknown")
}

fn read(path: &str) -> Result<MonMap, Failed> {
    let bytes =
        fs::read(path).map_err(|err| said(format!("couldn't open {path}: {}", reason(&err))))?;
    MonMap::from_shared(&Bytes::from(bytes)).map_err(|_| said("unable to read monmap file".into()))
}

enum Edit {
    Add(String, AddrVec),
    Remove(String),
}

/// The edits in their order.
fn edits(given: &Given) -> Result<Vec<Edit>, Failed> {
    let mut edits = Vec::new();
    for (flag, values) in &given.own {
        match (*flag, &values[..]) {
            ("--add", [name, text]) => edits.push(Edit::Add(name.clone(), legacy_addr(text)?)),
            ("--addv", [name, text]) => {
                let addrs = text.parse::<AddrVec>().map_err(|_| invalid(text))?;
                edits.push(Edit::Add(name.clone(), addrs));
            }
            ("--rm", [name]) => edits.push(Edit::Remove(name.clone())),
            _ => {}
        }
    }
    Ok(edits)
}

fn invalid(text: &str) -> Failed {
    said(format!("invalid ip:port '{text}'"))
}

/// One address, of the messenger that its port is of: without a port of v1, elsewhere than at its usual
/// port of v2.
fn legacy_addr(text: &str) -> Result<AddrVec, Failed> {
    let mut addr: EntityAddr = text.parse().map_err(|_| invalid(text))?;
    let explicit = text.starts_with("v1:") || text.starts_with("v2:");
    if let Some(sock) = &mut addr.sock {
        if sock.port() == 0 {
            *sock = SocketAddr::new(sock.ip(), MON_PORTS[1]);
            addr.kind = AddrKind::LEGACY;
        } else if !explicit && sock.port() == MON_PORTS[1] {
            addr.kind = AddrKind::LEGACY;
        }
    }
    Ok(AddrVec(vec![addr]))
}

fn apply(map: &mut MonMap, edit: Edit) -> Result<(), Failed> {
    match edit {
        Edit::Add(name, addrs) => {
            if map.mons.contains_key(&name) {
                return Err(helpful(&format!("monmaptool: map already contains mon.{name}")));
            }
            let is_there = |addr: &EntityAddr| map.mons.values().any(|m| m.addrs.0.contains(addr));
            if addrs.0.iter().any(is_there) {
                return Err(helpful(&format!(
                    "monmaptool: map already contains {}",
                    shown(&addrs)
                )));
            }
            add(map, name, addrs);
        }
        Edit::Remove(name) => {
            say!("monmaptool: removing {name}");
            if map.mons.remove(&name).is_none() {
                return Err(helpful(&format!("monmaptool: map does not contain {name}")));
            }
            map.disallowed_leaders.remove(&name);
        }
    }
    map.calc_ranks();
    Ok(())
}

fn add(map: &mut MonMap, name: String, addrs: AddrVec) {
    let info = MonInfo {
        name: name.clone(),
        addrs,
        time_added: Some(UTime::from_nanos(rt::now().wall_ns)),
        ..MonInfo::default()
    };
    map.mons.insert(name, info);
    map.calc_ranks();
}

fn shown(addrs: &AddrVec) -> String {
    addrs.to_string()
}

/// The monitors of `mon_host`; with `--set-initial-members` those of `mon_initial_members` alone.
fn generate(map: &mut MonMap, given: &Given) -> Result<(), Failed> {
    let mut copy = given.clone();
    copy.settings.retain(|s: &Setting| s.name != key::FSID.name());
    let (config, _) = setup::options(&KIND, &copy)?;
    if !config.get(key::FSID).is_empty()
        && !given.settings.iter().any(|s| s.name == key::FSID.name())
    {
        map.fsid = daemon::fsid(&config)?;
        say!("monmaptool: set fsid to {}", map.fsid);
    }
    let members = mon_members(&config)?;
    for (at, addrs) in members.into_iter().enumerate() {
        let name = format!("noname-{}", crate::layout::mon_id(at as u32));
        apply(map, Edit::Add(name, addrs))?;
    }
    if given.has("--set-initial-members") {
        let names = config.get(key::MON_INITIAL_MEMBERS);
        let names: Vec<&str> = names.split([',', ' ']).filter(|n| !n.is_empty()).collect();
        say!("initial_members {}, filtering seed monmap", names.join(","));
        let out: Vec<String> =
            map.mons.keys().filter(|name| !names.contains(&&***name)).cloned().collect();
        for name in out {
            if let Some(info) = map.mons.remove(&name) {
                say!("removed {}", shown(&info.addrs));
            }
        }
        for (at, name) in names.iter().enumerate() {
            if !map.mons.contains_key(*name) {
                let blank = format!("v1:0.0.0.0:0/{}", at + 1).parse().map_err(Failed::said)?;
                add(map, (*name).to_owned(), AddrVec(vec![blank]));
            }
        }
        map.calc_ranks();
    }
    Ok(())
}

fn cipher(text: &str) -> Result<i32, Failed> {
    let at = CIPHERS.iter().position(|name| *name == text.trim());
    at.map(|at| at as i32).ok_or_else(|| said(format!("'{text}' is no cipher: aes, aes256k")))
}

fn set_ciphers(map: &mut MonMap, given: &Given) -> Result<(), Failed> {
    let mut auth = map.auth.clone().unwrap_or_default();
    if let Some(text) = given.value("--auth-service-cipher") {
        auth.service_cipher = cipher(text)?;
    }
    if let Some(text) = given.value("--auth-allowed-ciphers") {
        auth.allowed_ciphers = text.split(',').map(cipher).collect::<Result<_, _>>()?;
    }
    if let Some(text) = given.value("--auth-preferred-cipher") {
        auth.preferred_cipher = cipher(text)?;
    }
    if map.auth.as_ref() != Some(&auth) && auth != MonMapAuth::default() {
        map.auth = Some(auth);
    }
    Ok(())
}

fn set_features(map: &mut MonMap, given: &Given) -> Result<(), Failed> {
    let both = given.has("--optional") == given.has("--persistent");
    for (flag, values) in &given.own {
        let set = match *flag {
            "--feature-set" => true,
            "--feature-unset" => false,
            _ => continue,
        };
        let text = values.first().map_or("", String::as_str);
        let by_name = MonFeatures::NAMES.iter().find(|(_, name)| *name == text);
        let bits = match (by_name, text.parse::<u64>()) {
            (Some((bit, _)), _) => 1 << bit,
            (None, Ok(bits)) => bits,
            (None, Err(_)) => {
                let why = format!("Expected option value to be integer, got '{text}'");
                let words =
                    format!("unknown features name '{text}' or unable to parse value: {why}");
                return Err(helpful(&words));
            }
        };
        let change = |features: &mut MonFeatures| {
            let now = features.bits;
            *features = MonFeatures { bits: if set { now | bits } else { now & !bits } };
        };
        if given.has("--optional") && !both {
            change(&mut map.optional_features);
        } else {
            change(&mut map.persistent_features);
        }
    }
    Ok(())
}

/// The map as `ceph mon dump` and this tool print it.
fn print(map: &MonMap) {
    say!("epoch {}", map.epoch.0);
    say!("fsid {}", map.fsid);
    say!("last_changed {}", map.last_changed);
    say!("created {}", map.created);
    say!("min_mon_release {} ({})", map.min_mon_release, release_name(map.min_mon_release));
    say!("election_strategy: {}", map.strategy);
    if map.stretch_mode {
        say!("stretch_mode_enabled 1");
        say!("tiebreaker_mon {}", map.tiebreaker);
    }
    if !map.disallowed_leaders.is_empty() {
        let names: Vec<&str> = map.disallowed_leaders.iter().map(String::as_str).collect();
        say!("disallowed_leaders {}", names.join(","));
    }
    for (rank, mon) in map.iter() {
        let location = mon.crush_loc.iter().map(|(k, v)| format!("{k}={v}"));
        let location = location.collect::<Vec<_>>().join(",");
        let place = if location.is_empty() {
            String::new()
        } else {
            format!("; crush_location {{{location}}}")
        };
        say!("{rank}: {} mon.{}{place}", shown(&mon.addrs), mon.name);
    }
    let auth = map.auth.clone().unwrap_or_default();
    let name = |number: i32| CIPHERS.get(number as usize).copied().unwrap_or("???");
    let allowed: Vec<&str> = auth.allowed_ciphers.iter().map(|number| name(*number)).collect();
    say!("auth_epoch {}", auth.epoch);
    say!("auth_service_cipher {}", name(auth.service_cipher));
    say!("auth_allowed_ciphers {}", allowed.join(","));
    say!("auth_preferred_cipher {}", name(auth.preferred_cipher));
}

fn print_features(map: &MonMap, parseable: bool) {
    let names = |features: u64| {
        let all = MonFeatures::NAMES.iter().filter(|(bit, _)| features & 1 << bit != 0);
        let all: Vec<String> = all.map(|(bit, name)| format!("{name}({})", 1u64 << bit)).collect();
        if all.is_empty() { "[none]".to_owned() } else { format!("[{}]", all.join(",")) }
    };
    let (persistent, optional) = (map.persistent_features.bits, map.optional_features.bits);
    if parseable {
        say!("monmap:persistent:{}", names(persistent));
        say!("monmap:optional:{}", names(optional));
        say!("monmap:required:{}", names(persistent | optional));
        say!("available:supported:{}", names(u64::MAX));
        say!("available:persistent:{}", names(u64::MAX));
        return;
    }
    say!("MONMAP FEATURES:");
    say!("    persistent: {}", names(persistent));
    say!("    optional:   {}", names(optional));
    say!("    required:   {}", names(persistent | optional));
    say!("");
    say!("AVAILABLE FEATURES:");
    say!("    supported:  {}", names(u64::MAX));
    say!("    persistent: {}", names(u64::MAX));
}
