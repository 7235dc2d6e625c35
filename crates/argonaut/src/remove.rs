//! `argonaut rm`: removes what `argonaut up` made, and nothing else.
//!
//! `argonaut-cluster` in the directory says that `up` made the cluster, and which. Every entry must
//! be one that `up` or its daemons make; anything else, a link or a mount included, and the whole
//! directory stays as it is. The file is removed last, so that what was begun can be ended.

use std::fs;
use std::io::{BufRead, IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use conf::key;
use daemon::{read_conf, write_durably};

use crate::layout::{KINDS, Layout};
use crate::{hosts, supervise, target, up};

/// How far `up` came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Made {
    /// The cluster is being made for the first time: what is there may go.
    Begun,
    /// Monitors and OSDs were there, not yet the file system and the gateway.
    Stores,
    /// All of it was there.
    Whole,
    /// A host of a cluster, by `init` or `join`; `argonaut-host` says how far it came.
    Host,
}

/// What `up` leaves in a cluster's directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Marker {
    /// The cluster's id.
    pub fsid: String,
    /// How far it came.
    pub made: Made,
}

impl Marker {
    fn path(layout: &Layout) -> PathBuf {
        layout.dir.join("argonaut-cluster")
    }

    /// The marker of a directory; `None` where there is none, as in those of earlier versions.
    ///
    /// # Errors
    /// When it cannot be read, or is no marker.
    pub fn read(layout: &Layout) -> Result<Option<Self>> {
        let path = Self::path(layout);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e).with_context(|| path.display().to_string()),
        };
        let mut words = text.split_whitespace();
        let made = match words.next() {
            Some("begun") => Made::Begun,
            Some("stores") => Made::Stores,
            Some("whole") => Made::Whole,
            Some("host") => Made::Host,
            _ => bail!("{} says neither begun, stores, whole nor host", path.display()),
        };
        let fsid = words.next().with_context(|| path.display().to_string())?.to_owned();
        Ok(Some(Self { fsid, made }))
    }

    /// Writes it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, layout: &Layout) -> Result<()> {
        let made = match self.made {
            Made::Begun => "begun",
            Made::Stores => "stores",
            Made::Whole => "whole",
            Made::Host => "host",
        };
        let text = format!(
            "{made} {}\n# Made by argonaut, for `argonaut rm` and `argonaut leave`.\n",
            self.fsid
        );
        write_durably(&Self::path(layout), text.as_bytes())
    }
}

/// What an entry of a cluster's directory is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Dir,
    File,
    Link,
    Socket,
}

fn is_daemon(name: &str) -> bool {
    let Some((kind, id)) = name.split_once('.') else { return false };
    // The name of a host may be a monitor's.
    let named = |b: u8| match kind {
        "osd" => b.is_ascii_digit(),
        _ => b.is_ascii_alphanumeric() || b == b'-',
    };
    KINDS.contains(&kind) && !id.is_empty() && id.bytes().all(named)
}

/// Whether `up` or a daemon of its cluster makes an entry of this name and kind.
fn is_ours(path: &[&str], kind: Kind) -> bool {
    let is_log = |name: &str| {
        let stem = name.split_once(".log").map(|(stem, _)| stem);
        stem.is_some_and(|s| s == "supervise" || is_daemon(s))
    };
    match (path, kind) {
        (["run" | "log"], Kind::Dir) => true,
        ([name], Kind::Dir) => is_daemon(name),
        ([name], Kind::File) => matches!(
            name.strip_suffix(".new").unwrap_or(name),
            "ceph.conf"
                | "ceph"
                | "keyring"
                | "host"
                | "host.keyring"
                | "argonaut-cluster"
                | "argonaut-host"
        ),
        (["log", name], Kind::File) => is_log(name),
        (["run", name], Kind::File) => {
            *name == "supervisor.lock"
                || name
                    .strip_suffix(".new")
                    .unwrap_or(name)
                    .strip_suffix(".pid")
                    .is_some_and(|daemon| daemon == "supervise" || is_daemon(daemon))
                || name.strip_suffix(".stopped").is_some_and(is_daemon)
        }
        (["run", name], Kind::Socket) => {
            let daemon = name.strip_prefix("ceph-").and_then(|n| n.strip_suffix(".asok"));
            daemon.is_some_and(is_daemon) || *name == "supervise.sock"
        }
        ([daemon, name], Kind::File) => {
            is_daemon(daemon)
                && matches!(
                    name.strip_suffix(".new").unwrap_or(name),
                    "keyring"
                        | "ready"
                        | "making"
                        | "store"
                        | "store.before-inject"
                        | "monmap"
                        | "block"
                        | "journal"
                        | "ceph_version_when_created"
                        | "created_at"
                )
        }
        ([daemon, name], Kind::Link) => is_daemon(daemon) && matches!(*name, "block" | "journal"),
        _ => false,
    }
}

/// What is in a cluster's directory, what is in directories before them.
#[derive(Default, Debug)]
struct Found {
    ours: Vec<(PathBuf, Kind)>,
    foreign: Vec<PathBuf>,
}

fn walk(dir: &Path, names: &mut Vec<String>, device: u64, found: &mut Found) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        let meta = fs::symlink_metadata(&path).with_context(|| path.display().to_string())?;
        let kind = {
            use std::os::unix::fs::FileTypeExt;
            let kind = meta.file_type();
            match () {
                () if kind.is_dir() => Some(Kind::Dir),
                () if kind.is_file() => Some(Kind::File),
                () if kind.is_symlink() => Some(Kind::Link),
                () if kind.is_socket() => Some(Kind::Socket),
                () => None,
            }
        };
        let name = path.file_name().unwrap_or_default().to_str().unwrap_or("\0").to_owned();
        names.push(name);
        let place: Vec<&str> = names.iter().map(String::as_str).collect();
        match kind.filter(|kind| is_ours(&place, *kind) && meta.dev() == device) {
            Some(kind) => {
                if kind == Kind::Dir {
                    walk(&path, names, device, found)?;
                }
                found.ours.push((path, kind));
            }
            None => found.foreign.push(path),
        }
        names.pop();
    }
    Ok(())
}

fn look(layout: &Layout) -> Result<Found> {
    let mut found = Found::default();
    let device = fs::metadata(&layout.dir)?.dev();
    walk(&layout.dir, &mut Vec::new(), device, &mut found)?;
    if let Some(first) = found.foreign.first() {
        let more = match found.foreign.len() - 1 {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        bail!(
            "{} is not of this cluster{more}: nothing is removed; move it away first",
            first.display()
        );
    }
    Ok(found)
}

/// The cluster's id, when `up` made it in this directory. Earlier versions left no marker: then
/// ceph.conf must be what they wrote for this directory.
fn made_by_up(layout: &Layout) -> Result<String> {
    let dir = layout.dir.display();
    let marker = Marker::read(layout)?;
    if marker.is_none() && !layout.exists() {
        bail!("{dir} holds no cluster: argonaut up --dir {dir} makes one");
    }
    if !layout.exists() {
        return Ok(marker.map(|m| m.fsid).unwrap_or_default());
    }
    let config = conf::Config::new(&read_conf(&layout.conf())?, "client", "admin", "", 0);
    let fsid = config.get(key::FSID);
    match marker {
        Some(marker) if marker.fsid == fsid => return Ok(fsid),
        Some(marker) => bail!("{dir}: ceph.conf is of cluster {fsid}, made was {}", marker.fsid),
        None => {}
    }
    let text = fs::read_to_string(layout.conf())?;
    let whole = text.contains("# A cluster on one machine, made by `argonaut up`.")
        && text.contains(&format!("keyring = {dir}/keyring\n"))
        && text.contains(&format!("mon data = {dir}/mon.$id\n"))
        && text.contains(&format!("osd data = {dir}/osd.$id\n"))
        && layout.dir.join("keyring").is_file()
        && layout.daemons()?.iter().any(|d| d.starts_with("mon."));
    if !whole {
        bail!("{dir} was not made by argonaut up: nothing is removed; remove it by hand");
    }
    Ok(fsid)
}

fn confirm(layout: &Layout, fsid: &str, yes: bool) -> Result<()> {
    if yes {
        return Ok(());
    }
    let what = format!("cluster {fsid} in {} and all its data", layout.dir.display());
    if !std::io::stdin().is_terminal() {
        bail!("{what} would be removed: --yes says that you mean it");
    }
    let mut err = std::io::stderr();
    write!(err, "Remove {what}? Type yes: ")?;
    err.flush()?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    if line.trim() != "yes" {
        bail!("nothing is removed");
    }
    Ok(())
}

/// Stops the cluster and removes its data. Without `yes` a terminal is asked.
///
/// # Errors
/// When the directory was not made by `up`, holds something else or a daemon that does not end, or
/// nobody agrees; then nothing is removed.
pub fn remove(dir: &Path, yes: bool) -> Result<()> {
    let layout = Layout::new(dir)?;
    let fsid = made_by_up(&layout)?;
    look(&layout)?;
    hosts::may_remove(&layout)?;
    confirm(&layout, &fsid, yes)?;
    if layout.exists() {
        up::stop(dir)?;
    }
    clear(&layout)?;
    say!("removed {}", layout.dir.display());
    Ok(())
}

/// Removes a directory whose daemons have ended, its marks last.
///
/// # Errors
/// When it holds something else, or a daemon runs.
pub fn clear(layout: &Layout) -> Result<()> {
    // Now they have ended; a daemon that was started by hand holds its store.
    let found = look(layout)?;
    for (path, kind) in &found.ours {
        let store = path.ends_with("block") || path.ends_with("store");
        // A process that has just ended is gone a moment before its files are closed.
        let free = || supervise::within(Duration::from_secs(2), || !target::is_in_use(path));
        if store && *kind == Kind::File && !free() {
            bail!("a process has {} open: nothing is removed", path.display());
        }
    }
    let marks = [layout.conf(), Marker::path(layout)];
    for (path, kind) in found.ours.iter().filter(|(path, _)| !marks.contains(path)) {
        let done = if *kind == Kind::Dir { fs::remove_dir(path) } else { fs::remove_file(path) };
        done.with_context(|| path.display().to_string())?;
    }
    for path in marks {
        match fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(e).with_context(|| path.display().to_string());
            }
            _ => {}
        }
    }
    fs::remove_dir(&layout.dir).with_context(|| layout.dir.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Wanted;

    fn scratch(name: &str) -> Layout {
        let dir = std::env::temp_dir().join(format!("argonaut-rm-{name}-{}", std::process::id()));
        fs::remove_dir_all(&dir).ok();
        for inner in ["run", "log", "mon.a", "osd.0"] {
            fs::create_dir_all(dir.join(inner)).expect("a directory");
        }
        // Of each kind of daemon, what every daemon has.
        for kind in KINDS {
            let daemon = format!("{kind}.7");
            fs::create_dir_all(dir.join(&daemon)).expect("a directory");
            for file in [format!("{daemon}/ready"), format!("log/{daemon}.log")] {
                fs::write(dir.join(file), b"").expect("a file");
            }
        }
        let files = ["keyring", "mon.a/ready", "mon.a/store", "osd.0/ready", "osd.0/block"];
        for file in files.iter().chain(&["log/mon.a.log", "run/supervisor.lock"]) {
            fs::write(dir.join(file), b"").expect("a file");
        }
        let layout = Layout::new(&dir).expect("a path");
        let wanted = Wanted {
            mds: 1,
            mgrs: 1,
            mons: 1,
            osds: 1,
            size: 1,
            osd_bytes: 1 << 30,
            port: 3300,
            v1_port: 6789,
            addr: [127, 0, 0, 1].into(),
            auth: auth::KeyKind::AES,
        };
        fs::write(layout.conf(), layout.conf_text("some-fsid", &wanted)).expect("a file");
        layout
    }

    #[test]
    fn only_what_up_made_is_removed() {
        let layout = scratch("own");
        let dir = layout.dir.clone();
        let no = |why: &str| {
            let err = remove(&dir, true).expect_err(why).to_string();
            assert!(err.contains(why), "{err}");
            assert!(dir.join("osd.0/block").exists() && layout.conf().exists());
        };
        // Somebody's ceph.conf, with whatever beside it.
        let conf = fs::read_to_string(layout.conf()).expect("readable");
        fs::write(layout.conf(), conf.replace("made by", "like one of")).expect("written");
        no("was not made by argonaut up");
        fs::write(layout.conf(), conf.replace(&*dir.to_string_lossy(), "/elsewhere")).expect("ok");
        no("was not made by argonaut up");
        fs::write(layout.conf(), &conf).expect("written");
        Marker { fsid: "another".into(), made: Made::Whole }.write(&layout).expect("written");
        no("ceph.conf is of cluster some-fsid");
        Marker { fsid: "some-fsid".into(), made: Made::Whole }.write(&layout).expect("written");

        for foreign in ["notes.txt", "mon.a/notes", "log/notes", "run/x.pid", "osd.0/store.db"] {
            fs::write(dir.join(foreign), b"x").expect("written");
            no(foreign);
            fs::remove_file(dir.join(foreign)).expect("removed");
        }
        // A cluster below it, and a way out of it.
        fs::create_dir_all(dir.join("below/mon.a")).expect("a directory");
        no("below");
        fs::remove_dir_all(dir.join("below")).expect("removed");
        std::os::unix::fs::symlink("/etc", dir.join("mon.b")).expect("a link");
        no("mon.b");
        fs::remove_file(dir.join("mon.b")).expect("removed");

        let block = fs::File::open(dir.join("osd.0/block")).expect("there");
        rustix::fs::flock(&block, rustix::fs::FlockOperation::NonBlockingLockExclusive)
            .expect("locked");
        no("a process has");
        drop(block);
        let why = remove(&dir, false).expect_err("no terminal").to_string();
        assert!(why.contains("--yes"), "{why}");

        remove(&dir, true).expect("removed");
        assert!(!dir.exists());
    }

    #[test]
    fn clusters_without_a_marker_and_half_made_ones_go_too() {
        let layout = scratch("old");
        remove(&layout.dir, true).expect("an earlier version's");
        let layout = scratch("half");
        fs::remove_file(layout.conf()).expect("removed");
        remove(&layout.dir, true).expect_err("nobody knows");
        Marker { fsid: "f".into(), made: Made::Begun }.write(&layout).expect("written");
        remove(&layout.dir, true).expect("begun and not ended");
        assert!(!layout.dir.exists());
    }
}
