//! What every daemon does on its way up: options, log, pid file.

use std::fs;
use std::io::Write;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Mutex;

use anyhow::{Context, Result, bail};
use conf::{ConfFile, Config, Key, key};
use types::release;

use crate::log_file::{LogFile, Twice};
use crate::log_lines::{LINES_PER_SECOND, LogLines};
use crate::net::ACCEPTED_MODES;
use crate::private;

/// Reads the options of `TYPE.ID`.
///
/// # Errors
/// When the file cannot be read or parsed.
pub fn options(conf: &Path, kind: &str, id: &str) -> Result<Config> {
    let file = read_conf(conf)?;
    Ok(Config::new(&file, kind, id, &hostname(), std::process::id()))
}

/// Refuses to start with an option that promises security and would not be obeyed.
///
/// # Errors
/// A sentence that names the option.
pub fn require_security(config: &Config) -> Result<()> {
    for (name, value) in config.all() {
        if let Some(why) = mon::security_refusal(name, &value) {
            bail!("{name} = {value}: {why}");
        }
    }
    let none = config.get(key::AUTH_SERVICE_REQUIRED) == "none";
    for mode in ACCEPTED_MODES {
        let (name, modes) = (mode.name(), config.get(mode));
        if none && !rados::modes(&modes).contains(&auth::handshake::con_mode::CRC) {
            bail!("{name} = {modes}: without cephx nobody has a key to encrypt with");
        }
    }
    Ok(())
}

/// Reads a `ceph.conf` and says which line is wrong, if one is.
///
/// # Errors
/// When it cannot be read or parsed.
pub fn read_conf(path: &Path) -> Result<ConfFile> {
    let text = fs::read_to_string(path)
        .with_context(|| format!("cannot read {}: give the path with -c", path.display()))?;
    match ConfFile::parse(&text) {
        Ok(file) => Ok(file),
        Err(err) => bail!("{}: {err}", path.display()),
    }
}

/// The host's short name.
#[must_use]
pub fn hostname() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    name.split('.').next().unwrap_or_default().to_owned()
}

/// Where a daemon listens on its `public` or `cluster` side: the address that the options
/// name, or this host's in a network that they name; the public one where nothing is said
/// of the other; by default the one that leads to the first monitor, else loopback.
///
/// # Errors
/// When the options are wrong, or this host is in none of the networks.
pub fn address(config: &Config, side: &str) -> Result<IpAddr> {
    let (addr, network) = match side {
        "cluster" => (key::CLUSTER_ADDR, key::CLUSTER_NETWORK),
        _ => (key::PUBLIC_ADDR, key::PUBLIC_NETWORK),
    };
    let (option, text) = (addr.name(), config.get(addr));
    // Upstream prints an address that nobody gave as a dash.
    if !text.is_empty() && text != "-" {
        return text.parse().with_context(|| format!("{option} = {text}: an IP address"));
    }
    let (option, text) = (network.name(), config.get(network));
    let networks: Vec<&str> = text.split([',', ' ']).filter(|n| !n.is_empty()).collect();
    for network in &networks {
        let (base, bits) = parse_network(network).with_context(|| format!("{option} = {text}"))?;
        if let Some(ip) = source_towards(base).filter(|ip| in_network(*ip, base, bits)) {
            return Ok(ip);
        }
    }
    match (networks.is_empty(), side) {
        (false, _) => bail!("{option} = {text}: this host has no address there"),
        (true, "cluster") => address(config, "public"),
        (true, _) => {
            let mons = rados::mon_addrs(config).unwrap_or_default();
            let mon = mons.iter().find_map(|mon| mon.sock);
            let found = mon.and_then(|mon| source_of(mon.ip()));
            Ok(found.unwrap_or(IpAddr::from([127, 0, 0, 1])))
        }
    }
}

fn parse_network(text: &str) -> Option<(IpAddr, u32)> {
    let (base, bits) = text.split_once('/')?;
    let (base, bits): (IpAddr, u32) = (base.parse().ok()?, bits.parse().ok()?);
    (bits <= if base.is_ipv4() { 32 } else { 128 }).then_some((base, bits))
}

fn in_network(ip: IpAddr, base: IpAddr, bits: u32) -> bool {
    match (ip, base) {
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            (a.to_bits() ^ b.to_bits()).checked_shr(32 - bits).unwrap_or(0) == 0
        }
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            (a.to_bits() ^ b.to_bits()).checked_shr(128 - bits).unwrap_or(0) == 0
        }
        _ => false,
    }
}

/// The address that this host would send from to a network; nothing is sent.
fn source_towards(base: IpAddr) -> Option<IpAddr> {
    // A neighbour, as the base itself may be no address of a host.
    let to = match base {
        IpAddr::V4(v4) => IpAddr::from((v4.to_bits() | 1).to_be_bytes()),
        IpAddr::V6(v6) => IpAddr::from((v6.to_bits() | 1).to_be_bytes()),
    };
    source_of(to)
}

/// The address that this host would send from to another; nothing is sent.
fn source_of(to: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = if to.is_ipv4() {
        std::net::Ipv4Addr::UNSPECIFIED.into()
    } else {
        std::net::Ipv6Addr::UNSPECIFIED.into()
    };
    let socket = std::net::UdpSocket::bind((any, 0)).ok()?;
    socket.connect((to, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// The number in front of `debug_osd = 10/20`, as a level of `tracing`.
fn level(config: &Config, option: Key<key::Str>) -> &'static str {
    let text = config.get(option);
    match text.split('/').next().unwrap_or_default().trim().parse::<u32>().unwrap_or(1) {
        0..=4 => "info",
        5..=14 => "debug",
        _ => "trace",
    }
}

/// Logs to `log_file`, or to standard error where none is named or `log_to_file` is off, to both by
/// `log_to_stderr`; as much as the `debug_*` options ask for. ARGONAUT_LOG sets levels by module
/// instead. The file is opened anew at SIGHUP. A file that nobody named and that cannot be opened is
/// told of, and standard error is the log.
///
/// # Errors
/// When a file that somebody named cannot be opened.
pub fn start_log(config: &Config) -> Result<()> {
    private::tighten(Path::new(&config.get(key::LOG_FILE)));
    // A task that panics takes the daemon with it: half of one serves nobody.
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        tell(info);
        std::process::abort();
    }));
    let levels = [key::DEBUG_MON, key::DEBUG_OSD, key::DEBUG_MDS, key::DEBUG_MS];
    let levels = levels.map(|option| level(config, option));
    let own = tracing_subscriber::EnvFilter::try_from_env("ARGONAUT_LOG");
    // Whoever asks for more wants all of it.
    let per_second = match own.is_err() && levels.iter().all(|l| *l == "info") {
        true => LINES_PER_SECOND,
        false => u32::MAX,
    };
    let filter = own.unwrap_or_else(|_| {
        let [mon, osd, mds, ms] = levels;
        tracing_subscriber::EnvFilter::new(format!(
            "info,openraft=error,openraft::replication=off,mon={mon},osd={osd},store={osd},mds={mds},msgr={ms},rt={ms},monc={ms}"
        ))
    });
    // What cannot be logged is lost: a disk that is full must not end a daemon.
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .log_internal_errors(false);
    match log_file(config)? {
        None => log.with_writer(LogLines::new(std::io::stderr(), per_second)).try_init().ok(),
        Some(file) if config.get(key::LOG_TO_STDERR) => {
            let both = Twice(file, std::io::stderr());
            log.with_writer(LogLines::new(both, per_second)).try_init().ok()
        }
        Some(file) => log.with_writer(LogLines::new(file, per_second)).try_init().ok(),
    };
    for wrong in config.wrong() {
        tracing::error!("ceph.conf: {wrong}");
    }
    let unknown = config.unknown();
    if !unknown.is_empty() {
        tracing::warn!("ceph.conf: unknown options: {}", unknown.join(", "));
    }
    let idle: Vec<&str> = config.without_effect().collect();
    if !idle.is_empty() {
        tracing::info!("ceph.conf: options without effect here: {}", idle.join(", "));
    }
    Ok(())
}

fn log_file(config: &Config) -> Result<Option<LogFile>> {
    let path = config.get(key::LOG_FILE);
    if path.is_empty() || !config.get(key::LOG_TO_FILE) {
        return Ok(None);
    }
    match LogFile::open(Path::new(&path)) {
        Ok(file) => Ok(Some(file)),
        Err(err) if !config.is_set(key::LOG_FILE) => {
            // Upstream's words and way.
            let words = format!("failed to open log file '{path}': {err}\n");
            std::io::stderr().write_all(words.as_bytes()).ok();
            Ok(None)
        }
        Err(err) => Err(err).context(path),
    }
}

/// What is done once this daemon serves.
static WHEN_UP: Mutex<Option<Box<dyn FnOnce() + Send>>> = Mutex::new(None);

/// Has `call` be called once this daemon serves: as it writes its pid file.
pub fn when_up(call: impl FnOnce() + Send + 'static) {
    *WHEN_UP.lock().expect("no panic while held") = Some(Box::new(call));
}

/// Writes the pid file, where the options name one, as the daemon serves from now on.
///
/// # Errors
/// When it cannot be written.
pub fn write_pid(config: &Config) -> Result<()> {
    let path = config.get(key::PID_FILE);
    if !path.is_empty() {
        replace_pid_file(Path::new(&path)).context(path)?;
    }
    let call = WHEN_UP.lock().expect("no panic while held").take();
    if let Some(call) = call {
        call();
    }
    Ok(())
}

/// Writes this process's number to a file. Whoever reads it finds the old number or the new one, never
/// an empty file.
///
/// # Errors
/// When `PATH.new` cannot be written, or takes the place of the file.
pub fn replace_pid_file(path: &Path) -> std::io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    fs::write(&new, format!("{}\n", std::process::id()))?;
    fs::rename(&new, path)
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
        ("ceph_release", release::NAME.to_owned()),
        ("ceph_version", release::version()),
        ("ceph_version_short", release::NUMBER.to_owned()),
        ("cpu", first("/proc/cpuinfo", "model name")),
        ("distro", first("/etc/os-release", "ID=")),
        ("distro_description", first("/etc/os-release", "PRETTY_NAME")),
        ("hostname", hostname()),
        ("kernel_version", text(uname.release())),
        ("implementation", release::IMPLEMENTATION.to_owned()),
        ("kernel_description", text(uname.version())),
        ("mem_swap_kb", first("/proc/meminfo", "SwapTotal").trim_end_matches(" kB").to_owned()),
        ("mem_total_kb", first("/proc/meminfo", "MemTotal").trim_end_matches(" kB").to_owned()),
        ("os", text(uname.sysname())),
    ];
    // Set by whoever starts containers.
    let told = [
        ("CONTAINER_IMAGE", "container_image"),
        ("POD_NAME", "pod_name"),
        ("POD_NAMESPACE", "pod_namespace"),
    ];
    let told = told.into_iter().filter_map(|(var, key)| Some((key, std::env::var(var).ok()?)));
    pairs.into_iter().chain(told).map(|(k, v)| (k.to_owned(), v)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_hold_their_addresses() {
        let (base, bits) = parse_network("192.0.2.0/24").expect("well formed");
        assert!(in_network([192, 0, 2, 7].into(), base, bits));
        assert!(!in_network([192, 0, 3, 7].into(), base, bits));
        assert!(in_network([8, 8, 8, 8].into(), [0, 0, 0, 0].into(), 0));
        assert!(!in_network([192, 0, 2, 1].into(), base, 32));
        for wrong in ["192.0.2.0", "192.0.2.0/33", "x/8", "::/129"] {
            assert_eq!(parse_network(wrong), None, "{wrong}");
        }
        assert_eq!(source_towards([127, 0, 0, 0].into()), Some([127, 0, 0, 1].into()));
    }
}
