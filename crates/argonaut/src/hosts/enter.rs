//! The steps of joining, which `init` goes, too: each finds out whether it was done.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use auth::{CryptoKey, EntityAuth, Keyring};
use conf::key;
use daemon::{write_durably, write_secret};
use serde_json::{Value, json};
use types::{EntityKind, EntityName};

use super::state::{Disk, State};
use super::who::Who;
use super::{checks, host_conf};
use crate::layout::Layout;
use crate::{mon_daemon, osd_new, supervise};

/// How long a monitor may take to be of the quorum, and OSDs to be up.
const UP_MAX: Duration = Duration::from_secs(90);
/// Between two looks at that.
const LOOK_PAUSE: Duration = Duration::from_millis(300);

/// What OSDs are wanted on a host, and what else it is to be.
#[derive(Clone, Debug, Default)]
pub struct Wish {
    /// Devices and files.
    pub disks: Vec<PathBuf>,
    /// Every disk that is free.
    pub all_disks: bool,
    /// OSDs in files of the host's directory.
    pub files: u32,
    /// One more than there are.
    pub one_more: bool,
    /// Bytes of each such file.
    pub bytes: Option<u64>,
    /// Overwrite what disks hold.
    pub force: bool,
    /// No monitor.
    pub no_mon: bool,
    /// A metadata server.
    pub mds: bool,
    /// A monitor also where three are there: up to five.
    pub more_mons: bool,
}

impl Wish {
    /// The devices that are named and are no OSDs yet, without those of `all`.
    ///
    /// # Errors
    /// When a path cannot be kept.
    pub fn named(&self, known: &[Disk]) -> Result<Vec<PathBuf>> {
        let known: Vec<PathBuf> = known.iter().filter_map(|d| d.device.clone()).collect();
        let mut disks = Vec::new();
        for disk in &self.disks {
            let disk = std::path::absolute(disk)?;
            if disk.to_str().is_none() {
                bail!("{}: a path that is no UTF-8 cannot be kept", disk.display());
            }
            if !known.contains(&disk) && !disks.contains(&disk) {
                disks.push(disk);
            }
        }
        Ok(disks)
    }

    /// The devices that are to be OSDs and are none yet.
    ///
    /// # Errors
    /// When one of them cannot be used.
    fn new_disks(&self, known: &[Disk]) -> Result<Vec<PathBuf>> {
        let mut disks = self.named(known)?;
        checks::disks(&disks, self.force)?;
        if self.all_disks {
            let known: Vec<PathBuf> = known.iter().filter_map(|d| d.device.clone()).collect();
            disks.extend(checks::free_disks(&known));
        }
        Ok(disks)
    }
}

/// The host's own key, where it has one.
///
/// # Errors
/// When it has none.
pub fn own(layout: &Layout, state: &State) -> Result<Who> {
    let path = layout.dir.join("host.keyring");
    Who::of_file(&path, Who::host_name(&state.name), host_conf::mons(layout, state))
}

fn step(words: &str) {
    say!("{words}");
}

/// Waits until something holds; `None` when it did not in time.
#[allow(clippy::disallowed_methods, reason = "the edge of the world: it waits for real processes")]
pub fn wait<T>(limit: Duration, mut look: impl FnMut() -> Result<Option<T>>) -> Result<Option<T>> {
    let end = Instant::now() + limit;
    loop {
        if let Some(found) = look()? {
            return Ok(Some(found));
        }
        if Instant::now() > end {
            return Ok(None);
        }
        std::thread::sleep(LOOK_PAUSE);
    }
}

/// Gives the token for the host's own key.
///
/// # Errors
/// When the monitors refuse, are not those of the token, or do not answer.
pub fn knock(layout: &Layout, state: &State) -> Result<()> {
    let token = state
        .token
        .as_ref()
        .context("this host has no key yet, and no token: argonaut join TOKEN, with a new one")?;
    let told = token.who().json(&json!({"prefix": "host join", "name": state.name,
        "addr": state.addr.to_string(), "nonce": state.nonce}))?;
    token.proves(&told)?;
    let key = told["key"].as_str().context("the monitors gave no key")?;
    let name = Who::host_name(&state.name);
    let own = Who { name, key: CryptoKey::from_base64(key)?, mons: state.mons.clone() };
    write_secret(&layout.dir.join("host.keyring"), &own.keyring())?;
    step("the token is taken: this host has a key of its own");
    Ok(())
}

/// What all hosts know: from then on the token is good for nothing.
fn arrive(layout: &Layout, state: &mut State) -> Result<()> {
    let who = own(layout, state)?;
    let told = who.json(&json!({"prefix": "host arrive", "name": state.name}))?;
    let shared = &told["shared"];
    let text = |name: &str| shared[name].as_str().unwrap_or_default().to_owned();
    state.network = text("network");
    state.cluster_network = text("osd_network");
    if let Some(key) = told["admin"].as_str() {
        let name = EntityName::new(EntityKind::CLIENT, "admin");
        let admin = Who { name, key: CryptoKey::from_base64(key)?, mons: Vec::new() };
        write_secret(&layout.dir.join("keyring"), &admin.keyring())?;
    }
    if !layout.exists() {
        let size = shared["size"].as_u64().unwrap_or(key::OSD_POOL_DEFAULT_SIZE.default());
        let mut text = host_conf::text(layout, state, &host_conf::mon_host(&who)?, size);
        text.push_str(shared["options"].as_str().unwrap_or_default());
        write_durably(&layout.conf(), text.as_bytes())?;
    }
    state.token = None;
    state.write(layout)?;
    step("ceph.conf is written");
    Ok(())
}

fn keyring(name: EntityName, key: &str) -> Result<String> {
    let entity = EntityAuth { key: CryptoKey::from_base64(key)?, ..EntityAuth::default() };
    Ok(Keyring { entities: [(name, entity)].into() }.to_string())
}

/// A monitor, where the cluster wants one more. Returns whether there is one.
fn add_mon(layout: &Layout, state: &State, wish: &Wish) -> Result<bool> {
    let data = layout.data(&format!("mon.{}", state.name));
    if data.join("ready").exists() {
        return Ok(true);
    }
    if wish.no_mon {
        return Ok(false);
    }
    checks::ports(state.addr)?;
    let who = own(layout, state)?;
    let told = who.json(&json!({"prefix": "host mon-add", "name": state.name,
        "addr": state.addr.to_string(), "more": wish.more_mons}))?;
    let Some(key) = told["key"].as_str() else { return Ok(false) };
    let known = wait(UP_MAX, || {
        let map = who.ask(&json!({"prefix": "mon getmap"}), String::new())?;
        let has: maps::MonMap = denc::Denc::from_shared(&map)?;
        Ok(has.mons.contains_key(&state.name).then_some(map))
    })?;
    let known = known.context("the monitors do not know the new one")?;
    // What a run before left half-made.
    fs::remove_file(data.join("store")).ok();
    let entity = EntityAuth { key: CryptoKey::from_base64(key)?, ..EntityAuth::default() };
    mon_daemon::make_joiner(&data, &known, entity)?;
    step(&format!("mon.{} is made", state.name));
    Ok(true)
}

/// A manager or a metadata server, where the cluster wants one more.
fn add_keyed(layout: &Layout, state: &State, kind: EntityKind) -> Result<()> {
    let name = EntityName::new(kind, state.name.clone());
    let data = layout.data(&name.to_string());
    if data.join("ready").exists() {
        return Ok(());
    }
    let words = json!({"prefix": format!("host {}-add", kind.name()), "name": state.name});
    let told = own(layout, state)?.json(&words)?;
    let Some(key) = told["key"].as_str() else { return Ok(()) };
    fs::create_dir_all(&data).with_context(|| data.display().to_string())?;
    write_secret(&data.join("keyring"), &keyring(name.clone(), key)?)?;
    write_durably(&data.join("ready"), b"")?;
    step(&format!("{name} is made"));
    Ok(())
}

/// Writes down the OSDs that are to be made, before the cluster hears of them.
fn plan_osds(layout: &Layout, state: &mut State, wish: &Wish) -> Result<()> {
    let mut new: Vec<Option<PathBuf>> =
        wish.new_disks(&state.osds)?.into_iter().map(Some).collect();
    let files = state.osds.iter().filter(|d| d.device.is_none()).count() as u32;
    let wanted = if wish.one_more { files + 1 } else { wish.files };
    new.extend((files..wanted).map(|_| None));
    for device in new {
        let drawn = osd_new::Secrets::draw(kind_of_keys(layout, state)?);
        let bytes = match &device {
            // A file keeps its size.
            Some(path) => fs::metadata(path).ok().filter(|m| m.is_file()).map(|m| m.len()),
            None => wish.bytes,
        };
        let bytes = bytes.filter(|n| *n > 0);
        state.osds.push(Disk { device, bytes, uuid: drawn.uuid, key: drawn.key, id: None });
    }
    state.write(layout)
}

/// OSDs' keys are of the kind of the host's own.
fn kind_of_keys(layout: &Layout, state: &State) -> Result<auth::KeyKind> {
    Ok(own(layout, state)?.key.kind)
}

fn make_osds(layout: &Layout, state: &mut State, force: bool) -> Result<()> {
    for at in 0..state.osds.len() {
        let disk = state.osds[at].clone();
        let secrets = osd_new::Secrets { uuid: disk.uuid, key: disk.key.clone() };
        let id = match disk.id {
            Some(id) => id,
            None => {
                let words = json!({"prefix": "host osd-new", "name": state.name,
                    "uuid": disk.uuid.to_string()});
                let out = own(layout, state)?.ask(&words, secrets.input())?;
                let text = String::from_utf8_lossy(&out);
                let id = text.trim().parse().with_context(|| format!("osd new said {text:?}"))?;
                state.osds[at].id = Some(id);
                state.write(layout)?;
                id
            }
        };
        let data = layout.data(&format!("osd.{id}"));
        if data.join("ready").exists() {
            continue;
        }
        // What is on it then is what a run before began.
        let force = force || data.join("making").exists();
        let device = disk.device.as_deref();
        osd_new::make(
            &layout.conf(),
            id,
            secrets,
            device,
            osd_new::Room { bytes: disk.bytes, force },
        )?;
        let place = device.map_or(Path::new("a file"), |d| d).display().to_string();
        step(&format!("osd.{id} is made on {place}"));
    }
    Ok(())
}

/// What the monitors say of this host in `host ls`.
///
/// # Errors
/// When none answers, or they know no such host.
pub fn seen(who: &Who, name: &str) -> Result<Value> {
    let all = who.json(&json!({"prefix": "host ls", "format": "json"}))?;
    let mut all = all.as_array().cloned().unwrap_or_default().into_iter();
    all.find(|h| h["name"] == name).with_context(|| format!("no host {name} joined this cluster"))
}

fn wait_quorum(who: &Who, name: &str, addr: IpAddr) -> Result<()> {
    let is_in = wait(UP_MAX, || {
        // It may be that there is no quorum for a moment.
        let said = who.json(&json!({"prefix": "quorum_status", "format": "json"})).ok();
        let said = said.unwrap_or_default();
        let mut names = said["quorum_names"].as_array().into_iter().flatten();
        Ok(names.any(|n| n == name).then_some(()))
    })?;
    is_in.with_context(|| {
        format!(
            "mon.{name} is not in the quorum after {} s: can the other monitors reach ports 3300 and \
             6789 of {addr}? Why may stand in its log: argonaut logs mon.{name}",
            UP_MAX.as_secs()
        )
    })?;
    step(&format!("mon.{name} is in the quorum"));
    Ok(())
}

fn wait_osds(who: &Who, state: &State) -> Result<()> {
    if state.osds.is_empty() {
        return Ok(());
    }
    let all_up = wait(UP_MAX, || {
        let host = seen(who, &state.name)?;
        let mut osds = host["osds"].as_array().into_iter().flatten();
        Ok(osds.all(|o| o["up"] == true).then_some(()))
    })?;
    all_up.with_context(|| {
        format!("not all OSDs are up after {} s: argonaut logs says why", UP_MAX.as_secs())
    })?;
    step(&format!("{} OSDs are up", state.osds.len()));
    Ok(())
}

/// Goes all steps from where an earlier run ended.
///
/// # Errors
/// At the step that fails; the same command goes on there.
pub fn enter(layout: &Layout, state: &mut State, wish: &Wish) -> Result<()> {
    if !layout.dir.join("host.keyring").exists() {
        knock(layout, state)?;
    }
    if state.token.is_some() || !layout.exists() {
        arrive(layout, state)?;
    }
    let found = daemon::address(&host_conf::options(layout)?, "public")?;
    if found != state.addr {
        bail!("this host joined as {}, and is {found} in {} now", state.addr, state.network);
    }
    let has_mon = add_mon(layout, state, wish)?;
    supervise::launch(layout)?;
    let who = own(layout, state)?;
    if has_mon {
        wait_quorum(&who, &state.name, state.addr)?;
    }
    add_keyed(layout, state, EntityKind::MGR)?;
    if wish.mds {
        add_keyed(layout, state, EntityKind::MDS)?;
    }
    plan_osds(layout, state, wish)?;
    make_osds(layout, state, wish.force)?;
    wait_osds(&who, state)?;
    host_conf::follow(layout, &who)
}
