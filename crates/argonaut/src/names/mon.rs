//! `ceph-mon`.
//!
//! Source: upstream's `ceph_mon.cc`, `mon/AuthMonitor.cc` (`create_initial_keys`).

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use auth::{CryptoKey, EntityAuth, KeyKind, Keyring};
use bytes::Bytes;
use conf::{Config, key};
use denc::Denc;
use maps::MonMap;
use rados::{MON_PORTS, mon_members};
use rt::OsRandom;
use types::{AddrKind, AddrVec, EntityAddr, EntityKind, EntityName, UTime, Uuid};

use super::flags::{Own, flag, with_value};
use super::setup::{self, Kind, LOG_FILE, Ready};
use super::{Done, Failed, others};
use crate::mon_daemon::{self, First};
use crate::mon_rescue;

pub const FLAGS: &[Own] = &[
    flag(&["--mkfs"]),
    flag(&["--compact"]),
    flag(&["--force-sync"]),
    flag(&["--yes-i-really-mean-it"]),
    flag(&["--use-mon-keyring"]),
    with_value(&["--osdmap"]),
    with_value(&["--inject-monmap"]),
    with_value(&["--extract-monmap"]),
    with_value(&["--set-crush-location"]),
];

const KIND: Kind = Kind {
    entity: "mon",
    id: "",
    defaults: &[LOG_FILE, (key::KEYRING.name(), "$mon_data/keyring")],
    flags: FLAGS,
    usage: "usage: ceph-mon -i <ID> [flags]
  --mkfs                 make a monitor's data
  --extract-monmap FILE  write its monitor map to a file
  --inject-monmap FILE   go on alone, with that monitor map
  --mon-data DIR         where the data is

",
};

/// `ceph-mon`.
pub fn run(args: &[String]) -> Done {
    let Some(ready) = setup::ready(&KIND, args)? else { return Ok(0) };
    let given = &ready.given;
    if !given.rest.is_empty() {
        let words = format!("too many arguments: [{}]", given.rest.join(","));
        return Err(Failed::said(words));
    }
    others::is_of(&KIND, &ready)?;
    if ready.id.is_empty() {
        return Err(Failed::said("must specify id (--id <id> or --name mon.<id>)"));
    }
    for (flag, what) in [
        ("--osdmap", "a cluster begins without OSDs here"),
        (
            "--force-sync",
            "`ceph mon rm`, then --mkfs with the map of `ceph mon getmap`, makes it anew",
        ),
        ("--compact", "a monitor's log is kept short by itself"),
        ("--set-crush-location", "stretch mode is not built"),
    ] {
        if given.has(flag) {
            return Err(Failed::Why(anyhow::anyhow!("{flag} is not built: {what}")));
        }
    }
    let data = PathBuf::from(ready.config.get(key::MON_DATA));
    let is_empty = fs::read_dir(&data).map_or(true, |mut entries| entries.next().is_none());
    if given.has("--mkfs") {
        if !is_empty {
            let shown = data.display();
            let what = "already exists and is not empty: monitor may already exist";
            return Err(Failed::Said(format!("'{shown}' {what}"), 0));
        }
        setup::become_daemon(&ready.config)?;
        mkfs(&ready, &data)?;
        return Ok(0);
    }
    if is_empty {
        let how = if data.exists() { "is empty" } else { "does not exist" };
        let words =
            format!("monitor data directory at '{}' {how}: have you run 'mkfs'?", data.display());
        return Err(Failed::said(words));
    }
    if let Some(path) = given.value("--extract-monmap") {
        setup::become_daemon(&ready.config)?;
        let map = mon_daemon::saved_map(&data)?.to_bytes();
        fs::write(path, map)
            .map_err(|err| Failed::said(format!("error writing monmap to {path}: {err}")))?;
        tell!("wrote monmap to {path}");
        return Ok(0);
    }
    if let Some(path) = given.value("--inject-monmap") {
        setup::become_daemon(&ready.config)?;
        let map = fs::read(path)
            .map_err(|err| Failed::said(format!("unable to read monmap from {path}: {err}")))?;
        mon_rescue::inject_map(&data, &ready.id, &Bytes::from(map))?;
        return Ok(0);
    }
    if let Some(code) = setup::start(&ready)? {
        return Ok(code);
    }
    enter(&ready.config, &ready.id, &data)?;
    mon_daemon::main(ready.config, &ready.id)?;
    Ok(0)
}

fn now() -> UTime {
    UTime::from_nanos(rt::now().wall_ns)
}

/// Makes the data of a first monitor, or of one that will join a cluster.
fn mkfs(ready: &Ready, data: &Path) -> Result<(), Failed> {
    let Ready { config, id, .. } = ready;
    let mut keyring = keyring(config)?;
    let mon = EntityName::new(EntityKind::MON, "");
    let Some(key) = keyring.entities.get(&mon).cloned() else {
        return Err(Failed::Why(anyhow::anyhow!(
            "{} holds no key of mon.",
            config.get(key::KEYRING)
        )));
    };
    let file = config.get(key::MONMAP);
    let mut map = match file.as_str() {
        "" => seed(config, id)?,
        path => {
            let bytes = fs::read(path)
                .map_err(|err| Failed::said(format!("ceph-mon: error reading {path}: {err}")))?;
            MonMap::from_shared(&Bytes::from(bytes)).map_err(|err| {
                Failed::said(format!("ceph-mon: error decoding monmap {path}: {err}"))
            })?
        }
    };
    if !config.get(key::FSID).is_empty() {
        map.fsid = daemon::fsid(config)?;
    }
    if map.fsid == Uuid::default() {
        let words = "ceph-mon: generated monmap has no fsid; use '--fsid <uuid>'";
        return Err(Failed::Said(words.to_owned(), 10));
    }
    claim(&mut map, id, own_ip(config))?;
    for info in map.mons.values_mut() {
        with_v2(&info.name, &mut info.addrs)?;
    }
    map.calc_ranks();
    // A map with an epoch is of a cluster that runs.
    if map.epoch.0 > 0 || !map.mons.contains_key(id) {
        mon_daemon::make_joiner(data, &map.to_bytes(), key)?;
        return Ok(());
    }
    let rules = daemon::v1_rules(config);
    let addrs = |info: &maps::MonInfo| {
        let mut addrs = info.addrs.clone();
        addrs.0.retain(|addr| rules.is_some() || addr.kind == AddrKind::MSGR2);
        (info.name.clone(), addrs)
    };
    let members = map.iter().map(|(_, info)| addrs(info)).collect();
    let kept = Keyring { entities: [(mon, key)].into() }.to_string();
    fill_in(&mut keyring);
    mon_daemon::make_founder(config, id, First { fsid: map.fsid, members, keyring, kept })?;
    Ok(())
}

/// The keys that a cluster begins with beside those of the keyring: of the administrator, and of those
/// who make daemons.
fn fill_in(keyring: &mut Keyring) {
    // Of the kind that the monitors' own key is of.
    let mon = keyring.key(&EntityName::new(EntityKind::MON, ""));
    let kind = mon.map(|key| key.kind).filter(|kind| kind.secret_len() > 0);
    let kind = kind.unwrap_or(KeyKind::AES);
    let mut add = |name: String, caps: &[(&str, &str)]| {
        let name = EntityName::new(EntityKind::CLIENT, name);
        let caps = caps.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        keyring.entities.entry(name).or_insert_with(|| {
            let key = CryptoKey::generate(kind, now(), &mut OsRandom);
            EntityAuth { key, caps, ..EntityAuth::default() }
        });
    };
    let all = ["mds", "mgr", "mon", "osd"].map(|service| (service, "allow *"));
    add("admin".to_owned(), &all);
    for what in ["mds", "mgr", "osd", "rbd", "rbd-mirror", "rgw"] {
        add(format!("bootstrap-{what}"), &[("mon", &format!("allow profile bootstrap-{what}"))]);
    }
}

fn keyring(config: &Config) -> Result<Keyring> {
    let paths = config.get(key::KEYRING);
    let first = paths.split([',', ';']).map(str::trim).find(|path| Path::new(path).exists());
    let path = first.with_context(|| format!("unable to find a keyring on {paths}"))?;
    let text = fs::read_to_string(path).with_context(|| path.to_owned())?;
    Keyring::parse(&text).with_context(|| path.to_owned())
}

/// The map of the first monitors that the options name. Where `mon_initial_members` does not name as
/// many as `mon_host`, the others are `noname-a`, ...
fn seed(config: &Config, id: &str) -> Result<MonMap> {
    let mut addrs = mon_members(config).unwrap_or_default();
    let names = config.get(key::MON_INITIAL_MEMBERS);
    let mut names: Vec<String> =
        names.split([',', ' ', ';']).filter(|n| !n.is_empty()).map(str::to_owned).collect();
    if addrs.is_empty()
        && let Some(ip) = own_ip(config)
    {
        addrs.push(at_usual_ports(ip));
    }
    if names.is_empty() && addrs.len() == 1 {
        names.push(id.to_owned());
    }
    if names.len() != addrs.len() {
        names = (0..addrs.len())
            .map(|i| format!("noname-{}", crate::layout::mon_id(i as u32)))
            .collect();
    }
    if addrs.is_empty() {
        bail!("no monitors: give --monmap FILE, or mon_host, or --public-addr");
    }
    let info = |(name, addrs)| maps::MonInfo { name, addrs, ..maps::MonInfo::default() };
    let mons = names.into_iter().zip(addrs).map(info).collect();
    let mut map = MonMap::new(Uuid::default(), now(), 0, mons);
    map.epoch = types::Epoch(0);
    Ok(map)
}

fn own_ip(config: &Config) -> Option<IpAddr> {
    let text = config.get(key::PUBLIC_ADDR);
    if text.is_empty() && config.get(key::PUBLIC_NETWORK).is_empty() {
        return None;
    }
    match text.parse::<EntityAddr>() {
        Ok(addr) => addr.sock.map(|sock| sock.ip()),
        Err(_) => daemon::address(config, "public").ok(),
    }
}

fn at_usual_ports(ip: IpAddr) -> AddrVec {
    let both = MON_PORTS.map(|port| EntityAddr::msgr2((ip, port).into(), 0));
    AddrVec(vec![both[0], both[1].with_kind(AddrKind::LEGACY)])
}

/// Takes an entry without a name that is at this host's address.
fn claim(map: &mut MonMap, id: &str, ip: Option<IpAddr>) -> Result<()> {
    if map.mons.contains_key(id) {
        return Ok(());
    }
    let is_here = |ip: IpAddr| std::net::UdpSocket::bind((ip, 0)).is_ok();
    let is_own = |at: IpAddr| ip.map_or_else(|| is_here(at), |ip| ip == at);
    let at = |info: &maps::MonInfo| info.addrs.0.iter().find_map(|a| Some(a.sock?.ip()));
    let mut nameless = map.mons.values().filter(|info| info.name.starts_with("noname-"));
    let Some(found) = nameless.find(|info| at(info).is_some_and(is_own)) else { return Ok(()) };
    let name = found.name.clone();
    if let Some(mut info) = map.mons.remove(&name) {
        id.clone_into(&mut info.name);
        map.mons.insert(id.to_owned(), info);
        map.calc_ranks();
    }
    Ok(())
}

/// Gives a monitor that has only messenger v1's usual port the one of v2.
fn with_v2(name: &str, addrs: &mut AddrVec) -> Result<()> {
    if addrs.msgr2().is_some() {
        return Ok(());
    }
    let v1 = addrs.0.iter().find_map(|a| a.sock).filter(|sock| sock.port() == MON_PORTS[1]);
    let v1 = v1.with_context(|| {
        format!(
            "the monitor map gives mon.{name} no address of messenger v2, which monitors need: \
             monmaptool --addv {name} [v2:IP:3300,v1:IP:6789]"
        )
    })?;
    *addrs = at_usual_ports(v1.ip());
    Ok(())
}

/// Has the cluster know this monitor, where the map that it was made from does not.
fn enter(config: &Config, id: &str, data: &Path) -> Result<()> {
    let path = data.join(mon_daemon::KNOWN_MAP);
    let Ok(bytes) = fs::read(&path) else { return Ok(()) };
    let map =
        MonMap::from_shared(&Bytes::from(bytes)).with_context(|| path.display().to_string())?;
    if map.mons.contains_key(id) {
        return Ok(());
    }
    let text = config.get(key::PUBLIC_ADDR);
    let addrs = match text.parse::<AddrVec>() {
        Ok(addrs) if addrs.0.iter().all(|a| a.sock.is_some_and(|s| s.port() != 0)) => addrs,
        _ => {
            let ip = own_ip(config).with_context(|| {
                format!(
                    "no public_addr or public_network specified, and mon.{id} not present in monmap \
                     or ceph.conf"
                )
            })?;
            at_usual_ports(ip)
        }
    };
    let mons = map.mons.values().filter_map(|info| info.addrs.msgr2()).collect();
    let keys = data.join("keyring");
    let key = rados::key_in(&keys, &EntityName::new(EntityKind::MON, ""))?;
    let known = mon_daemon::add(config, id, key, mons, &addrs)?;
    daemon::write_durably(&path, &known)
}
