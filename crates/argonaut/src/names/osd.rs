//! `ceph-osd`.
//!
//! Source: upstream's `ceph_osd.cc`, `osd/OSD.cc` (`mkfs`, `write_meta`).

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use auth::{CryptoKey, KeyKind, Keyring};
use bytes::Bytes;
use conf::{Config, Key, Source, key};
use daemon::write_durably;
use denc::Denc;
use env::Random;
use maps::MonMap;
use rt::OsRandom;
use store::Label;
use types::{EntityKind, EntityName, UTime, Uuid};

use super::flags::{Own, flag, with_value};
use super::setup::{self, Kind, LOG_FILE, Ready};
use super::{Done, Failed, others};
use crate::{osd_daemon, osd_mkfs};

pub const FLAGS: &[Own] = &[
    flag(&["--mkfs"]),
    flag(&["--mkkey"]),
    flag(&["--mkjournal"]),
    flag(&["--flush-journal"]),
    flag(&["--dump-journal"]),
    flag(&["--convert-filestore"]),
    flag(&["--run-benchmark"]),
    flag(&["--check-wants-journal"]),
    flag(&["--check-allows-journal"]),
    flag(&["--check-needs-journal"]),
    flag(&["--get-cluster-fsid"]),
    flag(&["--get-osd-fsid", "--get-osd-uuid"]),
    flag(&["--get-journal-fsid", "--get-journal-uuid"]),
    with_value(&["--get-device-fsid"]),
    with_value(&["--osdspec-affinity"]),
];

const KIND: Kind = Kind {
    entity: "osd",
    id: "",
    defaults: &[LOG_FILE, (key::KEYRING.name(), "$osd_data/keyring")],
    flags: FLAGS,
    usage: "usage: ceph-osd -i <ID> [flags]
  --mkfs                    make an OSD's data
  --mkkey                   make a key in its keyring
  --monmap FILE             with --mkfs: the cluster's monitor map
  --osd-uuid UUID           with --mkfs: the OSD's incarnation
  --osd-data DIR            where the data is
  --osdspec-affinity SPEC   with --mkfs: what it was made by
  --get-device-fsid PATH    print the incarnation of the OSD on a device
  --get-osd-fsid, --get-cluster-fsid
  --check-wants-journal, --check-allows-journal, --check-needs-journal

",
};

/// The kind of store in a data directory, as upstream calls the one that takes a whole device.
const STORE: &str = "bluestore";
/// What upstream calls its format of an OSD.
pub const MAGIC: &str = "ceph osd volume v026";

/// `ceph-osd`.
pub fn run(args: &[String]) -> Done {
    let Some(ready) = setup::ready(&KIND, args)? else { return Ok(0) };
    let given = &ready.given;
    if let Some(word) = given.rest.first() {
        return Err(Failed::said(format!("unrecognized arg {word}")));
    }
    others::is_of(&KIND, &ready)?;
    if let Some(path) = given.value("--get-device-fsid") {
        // A data directory will do, too.
        let at = Path::new(path);
        let block = if at.is_dir() { at.join("block") } else { at.to_owned() };
        let peeked = store::peek(&block)
            .map_err(|err| Failed::said(format!("failed to get device fsid for {path}: {err}")))?;
        say!("{}", peeked.osd_uuid);
        return Ok(0);
    }
    let Ok(number) = osd_mkfs::number(&ready.id) else {
        return Err(Failed::said("must specify '-i #' where # is the osd number"));
    };
    let data = PathBuf::from(ready.config.get(key::OSD_DATA));
    if given.has("--mkfs") || given.has("--mkkey") {
        setup::become_daemon(&ready.config)?;
        if given.has("--mkfs") {
            mkfs(&ready, number, &data).map_err(|why| in_words(&data, why))?;
        }
        if given.has("--mkkey") {
            mkkey(&ready.config, &ready.id)?;
        }
        return Ok(0);
    }
    for (flag, answer) in [
        ("--check-wants-journal", "wants"),
        ("--check-allows-journal", "allows"),
        ("--check-needs-journal", "needs"),
    ] {
        if given.has(flag) {
            say!("{answer} journal: no");
            return Ok(1);
        }
    }
    for flag in [
        "--mkjournal",
        "--flush-journal",
        "--dump-journal",
        "--convert-filestore",
        "--get-journal-fsid",
        "--run-benchmark",
    ] {
        if given.has(flag) {
            let why = "is for stores with a journal of upstream's, which this is not";
            return Err(Failed::Why(anyhow::anyhow!("{flag} {why}")));
        }
    }
    if given.has("--get-cluster-fsid") || given.has("--get-osd-fsid") {
        let peeked = store::peek(&data.join("block")).map_err(|err| {
            let shown = data.display();
            Failed::said(format!(" ** ERROR: unable to open OSD superblock on {shown}: {err}"))
        })?;
        match given.has("--get-cluster-fsid") {
            true => say!("{}", peeked.fsid),
            false => say!("{}", peeked.osd_uuid),
        }
        return Ok(0);
    }
    let mut config = ready.config.clone();
    if config.get(key::FSID).is_empty() {
        // Its data knows the cluster.
        let peeked = store::peek(&data.join("block")).map_err(|err| {
            let shown = data.display();
            Failed::said(format!(" ** ERROR: unable to open OSD superblock on {shown}: {err}"))
        })?;
        set(&mut config, key::FSID, &peeked.fsid.to_string())?;
    }
    if let Some(code) = setup::start(&ready)? {
        return Ok(code);
    }
    osd_daemon::main(config, &ready.id)?;
    Ok(0)
}

fn set<K>(config: &mut Config, key: Key<K>, value: &str) -> Result<()> {
    config.set(Source::CommandLine, key.name(), value).map_err(anyhow::Error::msg)
}

fn in_words(data: &Path, why: anyhow::Error) -> Failed {
    let shown = data.display();
    let words = " ** ERROR: error creating empty object store in";
    Failed::said(format!("{words} {shown}: {}", crate::say::Why(&why)))
}

/// The cluster: of the monitor map that was given, or of the options.
fn cluster(config: &Config) -> Result<Uuid> {
    let path = config.get(key::MONMAP);
    let known = match config.get(key::FSID).as_str() {
        "" => None,
        _ => Some(daemon::fsid(config)?),
    };
    if path.is_empty() {
        return known.context("of which cluster? Give --monmap FILE, or fsid in ceph.conf");
    }
    let bytes = fs::read(&path).with_context(|| path.clone())?;
    let map = MonMap::from_shared(&Bytes::from(bytes)).with_context(|| path.clone())?;
    match known.filter(|known| *known != map.fsid) {
        Some(known) => bail!("{path} is of cluster {}, ceph.conf of {known}", map.fsid),
        None => Ok(map.fsid),
    }
}

fn mkfs(ready: &Ready, number: i32, data: &Path) -> Result<()> {
    let mut config = ready.config.clone();
    let kind = config.get(key::OSD_OBJECTSTORE);
    if kind != STORE {
        bail!(
            "osd_objectstore = {kind}: there is one object store here, and it is asked for as {STORE}"
        );
    }
    let fsid = cluster(&config)?;
    let key = match setup::key(ready) {
        Ok(key) => key,
        Err(why) => bail!("{why}"),
    };
    let asked = match config.get(key::OSD_UUID).as_str() {
        "" => None,
        text => Some(text.parse::<Uuid>().map_err(|why| anyhow::anyhow!("osd_uuid: {why}"))?),
    };
    if data.join("ready").exists() {
        return same_again(data, fsid, number, asked);
    }
    let uuid = asked.unwrap_or_else(|| {
        let mut raw = [0; 16];
        OsRandom.fill(&mut raw);
        Uuid::from_random(raw)
    });
    if config.is_set(key::BLUESTORE_BLOCK_SIZE) && !config.is_set(key::OSD_DEVICE_BYTES) {
        let bytes = config.get(key::BLUESTORE_BLOCK_SIZE).to_string();
        set(&mut config, key::OSD_DEVICE_BYTES, &bytes)?;
    }
    osd_mkfs::mkfs(data, fsid, number, uuid, &config, false)?;
    let key = keep_key(data, number, key)?;
    let affinity = ready.given.value("--osdspec-affinity").unwrap_or_default();
    let facts = [
        ("ceph_fsid", fsid.to_string()),
        ("fsid", uuid.to_string()),
        ("whoami", number.to_string()),
        ("type", STORE.to_owned()),
        ("magic", MAGIC.to_owned()),
        ("require_osd_release", String::new()),
        ("osdspec_affinity", affinity.to_owned()),
    ];
    for (name, value) in &facts {
        if !value.is_empty() {
            write_durably(&data.join(name), format!("{value}\n").as_bytes())?;
        }
    }
    let mut label = Label::from([("type".to_owned(), STORE.to_owned())]);
    label.extend(key.map(|key| ("osd_key".to_owned(), key.to_base64())));
    if !affinity.is_empty() {
        label.insert("osdspec_affinity".to_owned(), affinity.to_owned());
    }
    osd_mkfs::finish(data)?;
    label.extend(daemon::made(data));
    store::write_label(&data.join("block"), &label)?;
    tell!("created object store {} for osd.{number} fsid {fsid}", data.display());
    Ok(())
}

/// The key goes into the data directory's keyring where that has none. Returns the key that is there.
fn keep_key(data: &Path, number: i32, key: Option<CryptoKey>) -> Result<Option<CryptoKey>> {
    let path = data.join("keyring");
    let name = EntityName::new(EntityKind::OSD, number.to_string());
    if path.exists() {
        let there = rados::key_in(&path, &name).ok();
        return Ok(key.or(there));
    }
    if let Some(key) = &key {
        let keyring = Keyring::of(name, key.clone());
        daemon::write_secret(&path, &keyring.to_string())?;
    }
    Ok(key)
}

/// Making the same OSD once more is done already; another one is refused.
fn same_again(data: &Path, fsid: Uuid, number: i32, uuid: Option<Uuid>) -> Result<()> {
    let there = store::peek(&data.join("block"))?;
    if there.fsid != fsid || there.osd.0 != number || uuid.is_some_and(|u| u != there.osd_uuid) {
        bail!(
            "it holds osd.{} of cluster {} with fsid {} already",
            there.osd.0,
            there.fsid,
            there.osd_uuid
        );
    }
    tell!("{} holds this OSD already", data.display());
    Ok(())
}

/// Makes a key in the OSD's keyring where there is none.
fn mkkey(config: &Config, id: &str) -> Result<()> {
    let path = config.get(key::KEYRING);
    let name = EntityName::new(EntityKind::OSD, id);
    let mut keyring = match fs::read_to_string(&path) {
        Ok(text) => Keyring::parse(&text).with_context(|| path.clone())?,
        Err(err) if err.kind() == std::io::ErrorKind::NotFound => Keyring::default(),
        Err(err) => return Err(err).context(path),
    };
    if keyring.key(&name).is_some_and(|key| !key.is_none()) {
        tell!("already have key in keyring {path}");
        return Ok(());
    }
    let now = UTime::from_nanos(rt::now().wall_ns);
    let key = CryptoKey::generate(KeyKind::AES, now, &mut OsRandom);
    keyring.entities.entry(name).or_default().key = key;
    daemon::write_secret(Path::new(&path), &keyring.to_string())?;
    tell!("created new key in keyring {path}");
    Ok(())
}
