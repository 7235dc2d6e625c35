//! What every daemon does on its way up: options, log, pid file.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use conf::Config;

use crate::layout::read_conf;

/// Reads the options of `TYPE.ID` and says what in the file means nothing here.
///
/// # Errors
/// When the file cannot be read or parsed.
pub fn options(conf: &Path, kind: &str, id: &str) -> Result<Config> {
    let file = read_conf(conf)?;
    let config = Config::new(&file, kind, id, &hostname(), std::process::id());
    let unknown = config.unknown();
    if !unknown.is_empty() {
        tracing::warn!("{}: without meaning here: {}", conf.display(), unknown.join(", "));
    }
    Ok(config)
}

/// The host's short name.
#[must_use]
pub fn hostname() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    name.split('.').next().unwrap_or_default().to_owned()
}

/// Logs to standard error, which `argonaut up` points at the daemon's log file.
pub fn start_log() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("ARGONAUT_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info,openraft=warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .try_init()
        .ok();
}

/// Writes the pid file, where the options name one.
///
/// # Errors
/// When it cannot be written.
pub fn write_pid(config: &Config) -> Result<()> {
    let path = config.get("pid_file");
    if !path.is_empty() {
        fs::write(&path, format!("{}\n", std::process::id())).context(path)?;
    }
    Ok(())
}

/// What every daemon tells of itself: host, kernel, memory.
#[must_use]
pub fn metadata() -> std::collections::BTreeMap<String, String> {
    let uname = rustix::system::uname();
    let text = |s: &std::ffi::CStr| s.to_string_lossy().into_owned();
    let first = |path: &str, key: &str| {
        let file = fs::read_to_string(path).unwrap_or_default();
        let line = file.lines().find(|l| l.starts_with(key)).unwrap_or_default();
        line.split_once([':', '=']).map_or("", |(_, v)| v).trim().trim_matches('"').to_owned()
    };
    let pairs = [
        ("arch", text(uname.machine())),
        ("ceph_version", format!("argonaut {}", env!("CARGO_PKG_VERSION"))),
        ("ceph_version_short", env!("CARGO_PKG_VERSION").to_owned()),
        ("ceph_release", "reef".to_owned()),
        ("cpu", first("/proc/cpuinfo", "model name")),
        ("distro", first("/etc/os-release", "ID=")),
        ("distro_description", first("/etc/os-release", "PRETTY_NAME")),
        ("hostname", hostname()),
        ("kernel_version", text(uname.release())),
        ("kernel_description", text(uname.version())),
        ("mem_total_kb", first("/proc/meminfo", "MemTotal").trim_end_matches(" kB").to_owned()),
        ("os", text(uname.sysname())),
    ];
    pairs.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()
}
