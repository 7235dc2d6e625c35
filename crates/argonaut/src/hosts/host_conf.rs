//! A host's `ceph.conf`: what it says, and how it follows the monitors.

use std::fs;
use std::net::SocketAddr;

use anyhow::{Context, Result};
use conf::{Config, key};
use daemon::{read_conf, write_durably};
use serde_json::{Value, json};

use super::state::State;
use super::who::Who;
use crate::ceph_verb;
use crate::layout::{Layout, section};

/// The line that follows the monitors begins so.
const MON_HOST: &str = "    mon host = ";

/// Options of a host's `ceph.conf` that are its own: who it is, and where its files are.
pub const KEPT: [&str; 17] = [
    key::FSID.name(),
    key::MON_HOST.name(),
    key::MON_INITIAL_MEMBERS.name(),
    key::PUBLIC_NETWORK.name(),
    key::CLUSTER_NETWORK.name(),
    key::PUBLIC_ADDR.name(),
    key::CLUSTER_ADDR.name(),
    key::KEYRING.name(),
    key::RUN_DIR.name(),
    key::ADMIN_SOCKET.name(),
    key::LOG_FILE.name(),
    key::PID_FILE.name(),
    key::MON_DATA.name(),
    key::OSD_DATA.name(),
    key::MDS_DATA.name(),
    key::MGR_DATA.name(),
    key::CRUSH_LOCATION.name(),
];

/// The text of a host's `ceph.conf`; `mons` as in `mon host`.
#[must_use]
pub fn text(layout: &Layout, state: &State, mons: &str, size: u64) -> String {
    let dir = layout.dir.display();
    let State { fsid, name, network, .. } = state;
    let cluster = match state.cluster_network.as_str() {
        "" => String::new(),
        cluster => format!("    cluster network = {cluster}\n"),
    };
    let daemons: String =
        ["mon", "osd", "mds", "mgr"].iter().map(|kind| section(kind, &layout.dir) + "\n").collect();
    format!(
        "\
# Host {name} of a cluster, made by `argonaut init` or `argonaut join`.
[global]
    fsid = {fsid}
{MON_HOST}{mons}
    public network = {network}
{cluster}    auth cluster required = cephx
    auth service required = cephx
    auth client required = cephx
    keyring = {dir}/keyring
    run dir = {dir}/run
    admin socket = {dir}/run/ceph-$name.asok
    crush location = root=default host={name}
    osd pool default size = {size}

{daemons}[client]
    # Clients neither listen nor log here.
    admin socket =
    log file =
"
    )
}

/// The options of a host as a daemon of it has them.
///
/// # Errors
/// When `ceph.conf` cannot be read.
pub fn options(layout: &Layout) -> Result<Config> {
    Ok(Config::new(&read_conf(&layout.conf())?, "client", "admin", "", 0))
}

/// Where the monitors are, by `ceph.conf`; before it is there, as the token said.
#[must_use]
pub fn mons(layout: &Layout, state: &State) -> Vec<SocketAddr> {
    let said = options(layout).ok().and_then(|config| rados::mon_addrs(&config).ok());
    let said: Vec<SocketAddr> = said.into_iter().flatten().filter_map(|a| a.sock).collect();
    if said.is_empty() { state.mons.clone() } else { said }
}

/// `mon host` as the monitors say it now.
///
/// # Errors
/// When none answers.
pub fn mon_host(who: &Who) -> Result<String> {
    let map = who.json(&json!({"prefix": "mon dump", "format": "json"}))?;
    let all = map["mons"].as_array().into_iter().flatten();
    let of = |m: &Value| Some(ceph_verb::addrs(&m["public_addrs"])?.to_string().replace("/0", ""));
    let all: Vec<String> = all.filter_map(of).collect();
    if all.is_empty() {
        anyhow::bail!("the monitors say of no monitor where it is")
    }
    Ok(all.join(","))
}

/// Has `ceph.conf` say where the monitors are now. What else stands in it stays.
///
/// # Errors
/// When none answers, or it cannot be written.
pub fn follow(layout: &Layout, who: &Who) -> Result<()> {
    let path = layout.conf();
    let line = format!("{MON_HOST}{}", mon_host(who)?);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let new: Vec<&str> =
        text.lines().map(|old| if old.starts_with(MON_HOST) { &line } else { old }).collect();
    let new = new.join("\n") + "\n";
    if new != text {
        write_durably(&path, new.as_bytes())?;
    }
    Ok(())
}
