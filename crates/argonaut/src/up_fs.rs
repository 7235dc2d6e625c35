//! Metadata servers, managers and the file system of a cluster that `argonaut up` makes.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use daemon::{asok, read_conf, write_durably};
use serde_json::{Value, json};
use types::{AddrKind, AddrVec};

use crate::layout::{Layout, mgr_id, mon_id, section};
use crate::supervise;

/// The file system that `--fs` makes; its pools have its name with `_metadata` and `_data` behind.
const NAME: &str = "cephfs";
/// How long monitors may take to answer what makes a file system.
const MAKE_MAX: Duration = Duration::from_secs(30);
/// How long a monitor may take to answer one command.
const ASOK_WAIT: Duration = Duration::from_secs(5);

/// The metadata servers that are there.
///
/// # Errors
/// When the directory cannot be read.
pub fn servers(layout: &Layout) -> Result<u32> {
    Ok(layout.daemons()?.iter().filter(|name| name.starts_with("mds.")).count() as u32)
}

/// Makes the directories of the first `count` metadata servers that are missing, and has
/// `ceph.conf` know where they are. Their keys come from the monitors.
///
/// # Errors
/// When files cannot be written.
pub fn add_servers(layout: &Layout, count: u32) -> Result<()> {
    add(layout, "mds", (0..count).map(mon_id))
}

/// The same of managers.
///
/// # Errors
/// As [`add_servers`].
pub fn add_managers(layout: &Layout, count: u32) -> Result<()> {
    add(layout, "mgr", (0..count).map(mgr_id))
}

fn add(layout: &Layout, kind: &str, ids: impl ExactSizeIterator<Item = String>) -> Result<()> {
    let path = layout.conf();
    if ids.len() > 0 && read_conf(&path)?.section(kind).next().is_none() {
        // Made by a release that had none of them.
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let section = section(kind, &layout.dir);
        write_durably(&path, format!("{}\n\n{section}", text.trim_end()).as_bytes())?;
    }
    for id in ids {
        let data = layout.data(&format!("{kind}.{id}"));
        if !data.join("ready").exists() {
            fs::create_dir_all(&data).with_context(|| data.display().to_string())?;
            write_durably(&data.join("ready"), b"")?;
        }
    }
    Ok(())
}

/// The caps of a manager's key.
pub const MGR_CAPS: [&str; 6] = ["mon", "allow profile mgr", "osd", "allow *", "mds", "allow *"];

/// Makes the file system, where there is none of its name.
///
/// # Errors
/// What the monitors refuse; when none answers.
pub fn make(layout: &Layout) -> Result<()> {
    if servers(layout)? == 0 {
        bail!("--fs wants metadata servers: --mds 2");
    }
    let mut seen = None;
    supervise::within(MAKE_MAX, || {
        let ls = json!({"prefix": "fs ls", "format": "json"});
        seen = ask(layout, &ls).ok().and_then(|text| serde_json::from_str::<Value>(&text).ok());
        seen.is_some()
    });
    let seen = seen.context("no monitor answers; why stands in its log: argonaut logs")?;
    if seen.as_array().into_iter().flatten().any(|fs| fs["name"] == NAME) {
        return Ok(());
    }
    let (meta, data) = (format!("{NAME}_metadata"), format!("{NAME}_data"));
    for pool in [&meta, &data] {
        told(layout, &json!({"prefix": "osd pool create", "pool": pool}))?;
    }
    told(layout, &json!({"prefix": "fs new", "fs_name": NAME, "metadata": meta, "data": data}))
}

/// Says how the file system is mounted, where it is the one that [`make`] made and a server has it.
///
/// # Errors
/// When the directory cannot be read.
pub fn tell(layout: &Layout) -> Result<()> {
    let ls = json!({"prefix": "fs ls", "format": "json"});
    if servers(layout)? == 0 || !ask(layout, &ls).is_ok_and(|text| text.contains(NAME)) {
        return Ok(());
    }
    say!("File system {NAME}:");
    say!("  ceph-fuse -c {} /mnt", layout.conf().display());
    if let Some(line) = kernel_mount(layout)? {
        say!("  {line}");
    }
    Ok(())
}

/// How Linux mounts it: by messenger v1, which each kernel has, where all monitors speak it.
fn kernel_mount(layout: &Layout) -> Result<Option<String>> {
    let path = layout.conf();
    let config = conf::Config::new(&read_conf(&path)?, "client", "admin", "", std::process::id());
    let members = rados::mon_members(&config)?;
    let of = |kind: AddrKind| -> Option<Vec<String>> {
        let one = |addrs: &AddrVec| {
            let addr = addrs.0.iter().find(|a| a.kind == kind)?;
            addr.sock.map(|sock| sock.to_string())
        };
        members.iter().map(one).collect()
    };
    let (mons, mode) = match of(AddrKind::LEGACY) {
        Some(mons) => (mons, ""),
        None => match of(AddrKind::MSGR2) {
            Some(mons) => (mons, ",ms_mode=prefer-crc"),
            None => return Ok(None),
        },
    };
    Ok(Some(format!(
        "mount -t ceph {}:/ /mnt -o name=admin,secret=$(ceph -c {} auth get-key client.admin){mode}",
        mons.join(","),
        path.display()
    )))
}

/// One command that must succeed.
fn told(layout: &Layout, command: &Value) -> Result<()> {
    let said = ask(layout, command)?;
    if said.starts_with("ERROR") {
        bail!("{}: {}", command["prefix"].as_str().unwrap_or_default(), said.trim_end());
    }
    Ok(())
}

/// Asks the first monitor that answers.
fn ask(layout: &Layout, command: &Value) -> Result<String> {
    let mut last = anyhow::anyhow!("there is no monitor");
    for mon in layout.daemons()?.iter().filter(|name| name.starts_with("mon.")) {
        let socket = layout.asok(mon);
        match asok::ask(Path::new(&socket), &command.to_string(), ASOK_WAIT) {
            Ok(said) => return Ok(said),
            Err(err) => last = err,
        }
    }
    Err(last)
}

/// The caps of a metadata server's key.
pub const MDS_CAPS: [&str; 8] = [
    "mon",
    "allow profile mds",
    "mgr",
    "allow profile mds",
    "osd",
    "allow rw tag cephfs *=*",
    "mds",
    "allow",
];
