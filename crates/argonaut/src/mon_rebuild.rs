//! `argonaut store rebuild-mon`: a monitor out of the stores of OSDs, where every monitor is lost.
//!
//! OSDs keep the OSD map with its pools and CRUSH, and their own keys. What monitors alone knew is
//! gone: other keys than those of the given keyring, central settings, file systems, the log.
//! Upstream's way is `ceph-objectstore-tool --op update-mon-db` and `ceph-monstore-tool rebuild`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use auth::Keyring;
use bytes::Bytes;
use clap::Args;
use denc::Denc;
use env::Random;
use maps::MonMap;
use mon::{Mkfs, OsdHistory, quorum};
use osd::KeptMaps;
use types::{EntityKind, EntityName, OsdId, UTime};

use crate::mon_daemon::{self, KNOWN_MAP};
use crate::store_tool;

/// What the monitor is to be.
#[derive(Args)]
pub struct Asked {
    /// The monitor's name.
    #[arg(short, long)]
    id: String,
    /// Its data directory, without a monitor in it.
    #[arg(long)]
    mon_data: PathBuf,
    /// A map that names this monitor alone, as monmaptool makes it, with the cluster's fsid.
    #[arg(long)]
    monmap: PathBuf,
    /// Keys with their caps: of mon. and client.admin, and of whoever else is to get in.
    #[arg(long)]
    keyring: PathBuf,
}

fn keyring(path: &Path) -> Result<Keyring> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    Keyring::parse(&text).with_context(|| path.display().to_string())
}

fn name(kind: EntityKind, id: &str) -> EntityName {
    EntityName::new(kind, id)
}

/// The maps of the OSD that has the newest, and who else was looked at.
fn newest_of(osds: &[PathBuf], past_damage: bool) -> Result<KeptMaps> {
    let mut newest: Option<KeptMaps> = None;
    for data in osds {
        let Some(maps) = store_tool::maps(data, past_damage)? else {
            tell!("{}: has no OSD map yet", data.display());
            continue;
        };
        let (first, last) = (maps.base.epoch.0, maps.newest.epoch.0);
        tell!("osd.{}: OSD maps {first} to {last}", maps.whoami.0);
        if let Some(other) = &newest {
            ensure!(
                other.fsid == maps.fsid,
                "osd.{} is of cluster {}, and osd.{} of {}",
                maps.whoami.0,
                maps.fsid,
                other.whoami.0,
                other.fsid
            );
        }
        if newest.as_ref().is_none_or(|other| other.newest.epoch < maps.newest.epoch) {
            newest = Some(maps);
        }
    }
    newest.context("none of these OSDs has an OSD map")
}

/// Makes the monitor. The OSDs, which are down, stay as they are.
///
/// # Errors
/// When the stores are of several clusters, cannot be read or hold no map; when the monitor map or
/// the keyring does not fit; when there is a monitor already. Nothing is made then.
pub fn run(osds: &[PathBuf], past_damage: bool, asked: &Asked) -> Result<()> {
    let Asked { id, mon_data, monmap, keyring: given } = asked;
    let store = mon_data.join("store");
    if store.exists() {
        bail!("{} holds a monitor: move it away first", mon_data.display());
    }
    let raw = fs::read(monmap).with_context(|| monmap.display().to_string())?;
    let mut map =
        MonMap::from_shared(&Bytes::from(raw)).context("the file holds no monitor map")?;
    if map.mons.len() != 1 || !map.mons.contains_key(id) {
        let names: Vec<&str> = map.mons.keys().map(String::as_str).collect();
        bail!("the map names {names:?} and is to name '{id}' alone: others join later");
    }
    let mut keys = keyring(given)?;
    let [mon, admin] = [name(EntityKind::MON, ""), name(EntityKind::CLIENT, "admin")];
    for needed in [&mon, &admin] {
        ensure!(keys.key(needed).is_some(), "{}: no key of {needed}", given.display());
    }
    // What monitors let in by stands in their map: keys of the administrator's kind at least.
    if let Some(key) = keys.key(&admin) {
        map.auth = Some(mon_daemon::ciphers(key.kind));
    }
    let maps = newest_of(osds, past_damage)?;
    if map.fsid != maps.fsid {
        bail!("the monitor map is of cluster {}, and the OSDs of {}", map.fsid, maps.fsid);
    }
    for data in osds {
        let path = data.join("keyring");
        if path.exists() {
            let own = keyring(&path)?.entities.into_iter();
            let own = own.filter(|(name, _)| name.kind == EntityKind::OSD);
            for (name, key) in own {
                keys.entities.entry(name).or_insert(key);
            }
        }
    }
    let has_key = |osd: &OsdId| keys.key(&name(EntityKind::OSD, &osd.0.to_string())).is_some();
    let all = (0..maps.newest.max_osd).map(OsdId).filter(|osd| maps.newest.exists(*osd));
    let without: Vec<String> =
        all.filter(|osd| !has_key(osd)).map(|osd| format!("osd.{}", osd.0)).collect();
    let kept = Keyring {
        entities: keys
            .entities
            .get_key_value(&mon)
            .into_iter()
            .map(|(n, k)| (n.clone(), k.clone()))
            .collect(),
    };
    let mkfs = Mkfs {
        fsid: maps.fsid,
        now: UTime::from_nanos(rt::now().wall_ns),
        monmap: map,
        keyring: keys,
        ..Mkfs::default()
    };
    let epoch = maps.newest.epoch.0;
    let history = OsdHistory::kept(&maps.base, maps.deltas, &maps.newest);
    let state = mkfs.state_of_osds(maps.newest, history);
    fs::create_dir_all(mon_data).with_context(|| mon_data.display().to_string())?;
    daemon::write_durably(&mon_data.join(KNOWN_MAP), &state.monmap.to_bytes())?;
    daemon::write_secret(&mon_data.join("keyring"), &kept.to_string())?;
    daemon::mark_made(mon_data, mkfs.now)?;
    // Nobody else's: founders have small numbers, and these are many.
    let node = rt::OsRandom.u64() | 1 << 32;
    quorum::create_alone(&store, (node, id), 0, &state.to_bytes())?;
    daemon::write_durably(&mon_data.join("ready"), b"")?;
    say!("mon.{id} is made in {}, with OSD map {epoch}", mon_data.display());
    if !without.is_empty() {
        say!(
            "no key is known of {}: give their directories too, or `ceph auth import` their keys",
            without.join(", ")
        );
    }
    Ok(())
}
