//! `argonaut up`, `down`, `status`, `logs`: a whole cluster on one machine.

use std::fs;
use std::io::{IsTerminal, Read, Seek, SeekFrom};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use conf::key;
use daemon::{asok, private, read_conf, write_durably, write_secret};
use env::Random;
use types::Uuid;

use crate::layout::{Asked, Layout, Wanted, mon_id};
use crate::remove::{Made, Marker};
use crate::{hosts, mon_daemon, osd_mkfs, supervise, up_fs, up_s3};

/// How long `up` waits for HEALTH_OK.
const HEALTHY_MAX: Duration = Duration::from_secs(60);

/// One line that is overwritten on a terminal, and nothing elsewhere.
struct Progress {
    terminal: bool,
}

impl Progress {
    fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal() }
    }

    fn say(&self, text: &str) {
        if self.terminal {
            crate::say::hint(format_args!("\r\x1b[K{text}"));
        }
    }

    fn done(&self) {
        if self.terminal {
            crate::say::hint(format_args!("\r\x1b[K"));
        }
    }
}

/// Makes the cluster if the directory has none, starts it, waits for HEALTH_OK.
///
/// # Errors
/// When it runs already with other daemons, cannot be made, or does not become healthy.
#[allow(clippy::disallowed_methods, reason = "the edge of the world: it waits for real processes")]
pub fn up(dir: &Path, asked: &Asked, foreground: bool) -> Result<()> {
    let start = Instant::now();
    let layout = Layout::new(dir)?;
    if hosts::start(&layout)? {
        return Ok(());
    }
    let progress = Progress::new();
    let fresh = !layout.exists();
    let missing = make(&layout, asked, &progress)?;
    let whole = Marker::read(&layout)?.is_none_or(|marker| marker.made == Made::Whole);
    let asked = &if whole { *asked } else { asked.whole() };
    up_fs::add_servers(&layout, asked.servers())?;
    up_fs::add_managers(&layout, asked.mgrs.unwrap_or(0))?;
    for entry in fs::read_dir(layout.run())?.flatten() {
        if entry.path().extension().is_some_and(|e| e == "stopped") {
            fs::remove_file(entry.path())?;
        }
    }
    if let Some(pid) = layout.running("supervise") {
        say!("the cluster in {} runs already (supervisor {pid})", layout.dir.display());
        let made = add_osds(&layout, &missing, asked.osd_bytes, &progress)?;
        make_fs(&layout, asked, &progress)?;
        let mut runs = || layout.running("supervise") == Some(pid);
        if wait_healthy(&layout, &progress, start, &mut runs)?.is_some() {
            for osd in &made {
                say!("osd.{osd} is new");
            }
            make_s3(&layout, asked, &progress)?;
            return tell_roles(&layout);
        }
        // It was ending: killed a moment ago, or told to stop.
        say!("supervisor {pid} has ended");
    }
    progress.say("starting daemons ...");
    let stop = foreground.then(supervise::stop_flag).transpose()?;
    let mut supervisor = supervise::spawn(&layout)?;
    let mut runs = || matches!(supervisor.try_wait(), Ok(None));
    let healthy = add_osds(&layout, &missing, asked.osd_bytes, &progress)
        .and_then(|_| wait_healthy(&layout, &progress, start, &mut runs));
    // Pools are made once all OSDs are there: their PGs begin whole.
    let healthy = healthy.and_then(|health| {
        if health.is_none() {
            return Ok(None);
        }
        if asked.fs != Some(true) && asked.s3 != Some(true) {
            finish(&layout)?;
            return Ok(health);
        }
        make_fs(&layout, asked, &progress)?;
        make_s3(&layout, asked, &progress)?;
        wait_healthy(&layout, &progress, start, &mut runs)
    });
    progress.done();
    let took = start.elapsed().as_secs_f64();
    match healthy.and_then(|h| h.context("the supervisor has ended")) {
        Ok(health) => {
            let what = if fresh { "new cluster" } else { "cluster" };
            say!("{health}: {what} in {} up after {took:.1} s", layout.dir.display());
        }
        Err(err) => {
            tell!("the daemons go on; their logs: argonaut logs --dir {}", layout.dir.display());
            return Err(err);
        }
    }
    let conf = layout.conf();
    say!("ceph.conf: {}", conf.display());
    say!("Try:");
    say!("  export CEPH_CONF={}", conf.display());
    say!("  ceph -s                       (without Ceph's packages: argonaut status)");
    say!("  ceph osd pool create test && ceph osd pool application enable test rados");
    say!("  rados -p test bench 10 write");
    say!("  argonaut down --dir {}", layout.dir.display());
    tell_roles(&layout)?;
    if let Some(stop) = stop {
        say!("running in the foreground; Ctrl-C stops the cluster");
        while !stop.load(Ordering::Relaxed) {
            if let Some(status) = supervisor.try_wait()? {
                bail!("the supervisor ended with {status}");
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        down(dir)?;
        supervisor.wait()?;
    }
    Ok(())
}

/// Makes the cluster where there is none. Returns the OSDs that are asked for and missing in one
/// that is there: the cluster must be asked whether it knows them.
fn make(layout: &Layout, asked: &Asked, progress: &Progress) -> Result<Vec<u32>> {
    if asked.mons.is_some_and(|n| n == 0 || n > 9 || n.is_multiple_of(2)) {
        bail!("--mons is 1, 3, 5, 7 or 9");
    }
    if asked.mds.is_some_and(|n| n > 26) {
        bail!("--mds is at most 26");
    }
    if asked.mgrs.is_some_and(|n| n > 26) {
        bail!("--mgrs is at most 26");
    }
    if asked.osds == Some(0) || asked.size.is_some_and(|n| n == 0 || n > 10) {
        bail!("--osds is 1 or more, --size is 1 to 10");
    }
    let mut chance = rt::OsRandom;
    let marker = Marker::read(layout)?;
    if !layout.exists() {
        let dir = layout.dir.display();
        match &marker {
            Some(marker) if marker.made != Made::Begun => bail!(
                "{dir}: ceph.conf of cluster {} is gone; put it back, or remove the cluster: \
                 argonaut rm --dir {dir}",
                marker.fsid
            ),
            Some(_) => {}
            None => {
                let mut there = fs::read_dir(&layout.dir).into_iter().flatten();
                if let Some(name) = there.find_map(|e| Some(e.ok()?.file_name())) {
                    let name = name.display();
                    bail!("{dir} holds '{name}' and no cluster: choose another --dir");
                }
            }
        }
        let mut raw = [0; 16];
        chance.fill(&mut raw);
        let fsid = Uuid::from_random(raw);
        let wanted = asked.of_new();
        let port = free_port(wanted.addr, wanted.port, wanted.mons)?;
        let v1_port = free_port(wanted.addr, wanted.v1_port, wanted.mons)?;
        let wanted = Wanted { port, v1_port, ..wanted };
        fs::create_dir_all(&layout.dir).with_context(|| format!("cannot make {dir}"))?;
        // From now on what is here is ours.
        Marker { fsid: fsid.to_string(), made: Made::Begun }.write(layout)?;
        make_dirs(layout)?;
        for i in 0..wanted.mons {
            progress.say(&format!("making monitor {} ...", mon_id(i)));
        }
        mon_daemon::mkfs_cluster(layout, fsid, &wanted, &mut chance)?;
        // Last: a directory with this file holds a whole cluster.
        write_durably(&layout.conf(), layout.conf_text(&fsid.to_string(), &wanted).as_bytes())?;
    }
    make_dirs(layout)?;
    for dir in [&layout.dir, &layout.run(), &layout.dir.join("log")] {
        private::tighten_dir(dir);
    }
    let conf = read_conf(&layout.conf())?;
    let half_made = matches!(Marker::read(layout)?, Some(Marker { made: Made::Begun, .. }));
    let osds = layout.daemons()?.iter().filter(|name| name.starts_with("osd.")).count() as u32;
    let wanted = match (half_made, asked.osds) {
        (true, _) => asked.of_new().osds,
        (false, wanted) => {
            fits(layout, &conf, asked)?;
            wanted.unwrap_or(osds)
        }
    };
    let missing = |i: &u32| !layout.data(&format!("osd.{i}")).join("ready").exists();
    let missing: Vec<u32> = (0..wanted).filter(missing).collect();
    if !half_made {
        return Ok(missing);
    }
    for i in missing {
        progress.say(&format!("making osd.{i} ..."));
        osd_mkfs::mkfs_local(layout, &conf, i, asked.osd_bytes, &mut chance)?;
    }
    // Last: from now on an OSD that is missing has lost its data.
    if let Some(Marker { fsid, made: Made::Begun }) = Marker::read(layout)? {
        Marker { fsid, made: Made::Stores }.write(layout)?;
    }
    tell_room(layout)?;
    Ok(Vec::new())
}

/// Refuses what was asked for and a cluster that is there does not have.
fn fits(layout: &Layout, conf: &conf::ConfFile, asked: &Asked) -> Result<()> {
    let path = layout.conf();
    let (path, dir) = (path.display(), layout.dir.display());
    let mons = layout.daemons()?.iter().filter(|name| name.starts_with("mon.")).count() as u32;
    if asked.mons.is_some_and(|n| n != mons) {
        bail!(
            "--mons is for a new cluster; the one in {dir} has {mons}: `argonaut mon join` adds one, \
             `ceph mon rm` removes one"
        );
    }
    let has = conf::Config::new(conf, "mon", "a", "", 0);
    let size = has.get(key::OSD_POOL_DEFAULT_SIZE);
    if asked.size.is_some_and(|n| u64::from(n) != size) {
        bail!("--size is for a new cluster: change `osd pool default size = {size}` in {path}");
    }
    let addr = has.get(key::PUBLIC_ADDR);
    if asked.addr.is_some_and(|a| a.to_string() != addr) {
        bail!("--addr is for a new cluster: the monitors of the one in {dir} are known as {addr}");
    }
    if let Some(kind) = asked.auth {
        let admin = "client.admin".parse().map_err(anyhow::Error::msg)?;
        if rados::key_in(&layout.dir.join("keyring"), &admin)?.kind != kind {
            bail!(
                "--auth is for a new cluster: `ceph mon set auth_preferred_cipher {kind}` and `ceph auth \
                 rotate` change the keys of the one in {dir}"
            );
        }
    }
    let hosts = has.get(key::MON_HOST);
    if asked.port.is_some_and(|p| !hosts.contains(&format!(":{p}"))) {
        tell!("--port is for a new cluster: the monitors of the one in {dir} listen at {hosts}");
    }
    Ok(())
}

/// Adds OSDs to a cluster that runs. One that the cluster knows already has lost its data: an
/// empty one with another incarnation would be refused.
fn add_osds(
    layout: &Layout,
    missing: &[u32],
    bytes: Option<u64>,
    progress: &Progress,
) -> Result<Vec<u32>> {
    let mut made = Vec::new();
    if missing.is_empty() {
        return Ok(made);
    }
    progress.say("asking which OSDs the cluster knows ...");
    let mut osds = None;
    supervise::within(HEALTHY_MAX / 2, || {
        osds = known_osds(layout);
        osds.is_some()
    });
    let osds = osds.context(
        "no monitor answers, so it is not known whether the OSDs that are missing are new; why stands \
         in the logs: argonaut logs",
    )?;
    let conf = read_conf(&layout.conf())?;
    for i in missing {
        if osds.contains(i) {
            tell!(
                "osd.{i} is of the cluster, and its data in {} is gone: argonaut osd replace {i} -c {} \
                 makes it anew, empty",
                layout.data(&format!("osd.{i}")).display(),
                layout.conf().display()
            );
            continue;
        }
        progress.say(&format!("making osd.{i} ..."));
        osd_mkfs::mkfs_local(layout, &conf, *i, bytes, &mut rt::OsRandom)?;
        made.push(*i);
    }
    tell_room(layout)?;
    Ok(made)
}

fn make_fs(layout: &Layout, asked: &Asked, progress: &Progress) -> Result<()> {
    if asked.fs != Some(true) {
        return Ok(());
    }
    progress.say("making a file system ...");
    up_fs::make(layout)
}

/// The gateway, the last thing of a new cluster.
fn make_s3(layout: &Layout, asked: &Asked, progress: &Progress) -> Result<()> {
    if asked.s3 == Some(true) {
        progress.say("making an object gateway ...");
        up_s3::make(layout, asked.addr)?;
    }
    finish(layout)
}

/// All that was asked for is there.
fn finish(layout: &Layout) -> Result<()> {
    if let Some(Marker { fsid, made: Made::Stores }) = Marker::read(layout)? {
        Marker { fsid, made: Made::Whole }.write(layout)?;
    }
    Ok(())
}

/// Says how the file system and the gateway are used, where there are any.
fn tell_roles(layout: &Layout) -> Result<()> {
    up_fs::tell(layout)?;
    up_s3::tell(layout)
}

/// The OSDs that have ever been up and were not destroyed, as a monitor says; nothing where none
/// answers.
fn known_osds(layout: &Layout) -> Option<Vec<u32>> {
    let daemons = layout.daemons().ok()?;
    let mons = daemons.iter().filter(|d| d.starts_with("mon."));
    let text = mons.into_iter().find_map(|name| {
        asok::ask(&layout.asok(name), r#"{"prefix":"osd dump","format":"json"}"#, ASOK_WAIT).ok()
    })?;
    let dump: serde_json::Value = serde_json::from_str(&text).ok()?;
    let has_lived = |osd: &&serde_json::Value| {
        let uuid = osd["uuid"].as_str().unwrap_or_default();
        uuid.bytes().any(|b| !matches!(b, b'0' | b'-'))
    };
    let osds = dump["osds"].as_array()?.iter().filter(has_lived);
    Some(osds.filter_map(|osd| osd["osd"].as_u64()).map(|id| id as u32).collect())
}

/// Says it when the file system has no room for what the OSDs' sparse files promise.
fn tell_room(layout: &Layout) -> Result<()> {
    use std::os::unix::fs::MetadataExt;
    let osds = layout.daemons()?.into_iter().filter(|name| name.starts_with("osd."));
    let unwritten = |name: String| {
        let block = fs::symlink_metadata(layout.data(&name).join("block")).ok()?;
        Some(if block.is_file() { block.len().saturating_sub(block.blocks() * 512) } else { 0 })
    };
    let promised: u64 = osds.filter_map(unwritten).sum();
    let there = rustix::fs::statvfs(&layout.dir).map_err(std::io::Error::from)?;
    let there = there.f_bavail * there.f_frsize;
    if promised > there {
        let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
        tell!(
            "the OSDs promise {:.1} GiB more than they take now, and the file system of {} has {:.1} \
             GiB: they end when it is full",
            gib(promised),
            layout.dir.display(),
            gib(there)
        );
    }
    Ok(())
}

fn make_dirs(layout: &Layout) -> Result<()> {
    for dir in ["run", "log"] {
        fs::create_dir_all(layout.dir.join(dir))
            .with_context(|| format!("cannot make {}", layout.dir.join(dir).display()))?;
    }
    Ok(())
}

/// The first of a run of ports that nobody listens on, from `wanted` on.
fn free_port(addr: Ipv4Addr, wanted: u16, count: u32) -> Result<u16> {
    TcpListener::bind((addr, 0)).with_context(|| format!("cannot listen at {addr}"))?;
    let free = |port: u16| TcpListener::bind((addr, port)).is_ok();
    let more = (wanted..=u16::MAX - count as u16).step_by(100).take(100);
    // Other daemons take theirs from this range at any time.
    let mut candidates = more.filter(|port| *port == wanted || !(6700..=7568).contains(port));
    candidates.find(|first| (0..count as u16).all(|i| free(first + i))).with_context(|| {
        format!("no free port for the monitors from {wanted} on: give one with --port")
    })
}

/// How long a daemon may take to answer.
const ASOK_WAIT: Duration = Duration::from_secs(2);
/// How long a warning lasts before it is taken for one that waiting does not mend.
const WARNING_SETTLED: Duration = Duration::from_secs(3);
/// The same while PGs are not clean, or a metadata server reads its journal: what recovery mends
/// changes sooner than this.
const DEGRADED_SETTLED: Duration = Duration::from_secs(10);

/// Whether every PG is active and clean.
fn all_clean(status: &serde_json::Value) -> bool {
    let states = status["pgmap"]["pgs_by_state"].as_array().map(Vec::as_slice).unwrap_or_default();
    let clean = states.iter().filter(|s| s["state_name"] == "active+clean");
    clean.map(|s| s["count"].as_u64().unwrap_or(0)).sum::<u64>()
        == status["pgmap"]["num_pgs"].as_u64().unwrap_or(0)
}

/// Whether every PG serves.
fn all_active(status: &serde_json::Value) -> bool {
    let mut states = status["pgmap"]["pgs_by_state"].as_array().into_iter().flatten();
    states.all(|s| s["state_name"].as_str().is_some_and(|name| name.starts_with("active")))
}

/// How many OSDs know that they are up. What the monitors say is not enough: after a crash their
/// map has those of before up, and a client that takes this map waits ten seconds for a better one.
fn booted<'a>(layout: &Layout, osds: impl Iterator<Item = &'a String>) -> u64 {
    let is_active = |name: &&String| {
        let text = asok::ask(&layout.asok(name), r#"{"prefix":"status"}"#, ASOK_WAIT);
        let status: serde_json::Value =
            text.ok().and_then(|t| serde_json::from_str(&t).ok()).unwrap_or_default();
        status["state"] == "active"
    };
    osds.filter(is_active).count() as u64
}

/// Waits until the cluster has all its OSDs up and is healthy. Warnings that have nothing
/// to do with its start, such as a pool that nobody named an application for, are told.
/// Nothing, once the supervisor no longer `runs`.
#[allow(clippy::disallowed_methods, reason = "the edge of the world: it waits for real processes")]
fn wait_healthy(
    layout: &Layout,
    progress: &Progress,
    start: Instant,
    runs: &mut dyn FnMut() -> bool,
) -> Result<Option<String>> {
    let daemons = layout.daemons()?;
    let all_osds = || daemons.iter().filter(|d| d.starts_with("osd."));
    let osds = all_osds().count() as u64;
    let first = layout.asok(daemons.first().context("there is no monitor")?);
    let mut last = String::from("no monitor answers");
    let mut why = Vec::new();
    let mut warned: Option<(Instant, serde_json::Value)> = None;
    while start.elapsed() < HEALTHY_MAX {
        if !runs() {
            return Ok(None);
        }
        // Any monitor will do: the first may be the one that is down.
        let mut mons = daemons.iter().filter(|d| d.starts_with("mon.")).map(|d| layout.asok(d));
        let listens = |path: &std::path::PathBuf| UnixStream::connect(path).is_ok();
        let socket = mons.find(listens).unwrap_or_else(|| first.clone());
        fetch_keys(layout, &daemons, &socket);
        let command = r#"{"prefix":"status","format":"json"}"#;
        let up = booted(layout, all_osds());
        if let Ok(text) = asok::ask(&socket, command, ASOK_WAIT) {
            let status: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
            let health = status["health"]["status"].as_str().unwrap_or("unknown").to_owned();
            let up = up.min(status["osdmap"]["num_up_osds"].as_u64().unwrap_or(0));
            if health == "HEALTH_OK" && up == osds && all_active(&status) {
                return Ok(Some(health));
            }
            let checks = status["health"]["checks"].clone();
            why = summaries(&checks);
            match &warned {
                Some((since, seen)) if *seen == checks && health == "HEALTH_WARN" => {
                    let heals = !all_clean(&status) || !checks["FS_DEGRADED"].is_null();
                    let settled = if heals { DEGRADED_SETTLED } else { WARNING_SETTLED };
                    if since.elapsed() > settled && up == osds {
                        why.iter().for_each(|line| tell!("{line}"));
                        return Ok(Some(health));
                    }
                }
                _ => warned = Some((Instant::now(), checks)),
            }
            last = format!("{health}, {up} of {osds} OSDs up");
            progress.say(&last);
        }
        std::thread::sleep(Duration::from_millis(30));
    }
    why.insert(0, format!("not healthy after {} s: {last}", HEALTHY_MAX.as_secs()));
    bail!("{}", why.join("\n  "))
}

/// What health says, a line for each check.
fn summaries(checks: &serde_json::Value) -> Vec<String> {
    let line = |(code, check): (&String, &serde_json::Value)| {
        format!("{code}: {}", check["summary"]["message"].as_str().unwrap_or_default())
    };
    checks.as_object().into_iter().flatten().map(line).collect()
}

/// Daemons that were added to a running cluster get their keys from its monitor.
fn fetch_keys(layout: &Layout, daemons: &[String], socket: &Path) {
    for name in daemons {
        let path = layout.data(name).join("keyring");
        if path.exists() || name == up_s3::NAME {
            continue;
        }
        let caps = match name.split('.').next() {
            Some("mds") => &up_fs::MDS_CAPS[..],
            Some("mgr") => &up_fs::MGR_CAPS[..],
            _ => &["mon", "allow profile osd", "mgr", "allow profile osd", "osd", "allow *"],
        };
        let command =
            serde_json::json!({"prefix": "auth get-or-create", "entity": name, "caps": caps});
        match asok::ask(socket, &command.to_string(), Duration::from_secs(5)) {
            Ok(keyring) if keyring.contains("key = ") => {
                if let Err(err) = write_secret(&path, &keyring) {
                    tell!("{}: {}", path.display(), crate::say::Why(&err));
                }
            }
            _ => return, // the monitor is not ready yet: asked again soon
        }
    }
}

/// Stops the cluster; its data stays.
///
/// # Errors
/// When the directory holds no cluster, or its processes do not end.
pub fn down(dir: &Path) -> Result<()> {
    let place = existing(dir)?.dir;
    match stop(dir)? {
        true => say!("stopped; the data stays in {}", place.display()),
        false => say!("the cluster in {} does not run", place.display()),
    }
    Ok(())
}

/// Stops all daemons. Returns whether any ran.
///
/// # Errors
/// As [`down`].
pub fn stop(dir: &Path) -> Result<bool> {
    stop_host(&existing(dir)?)
}

/// The same of a directory that may have no ceph.conf yet.
///
/// # Errors
/// As [`down`].
#[allow(clippy::disallowed_methods, reason = "the edge of the world: it waits for real processes")]
pub fn stop_host(layout: &Layout) -> Result<bool> {
    let mut running: Vec<(String, u32)> = Vec::new();
    for name in layout.daemons()?.into_iter().chain(["supervise".to_owned()]) {
        running.extend(layout.running(&name).map(|pid| (name, pid)));
    }
    if running.is_empty() {
        return Ok(false);
    }
    // The supervisor stops its daemons in order; without one they are told here.
    match running.iter().find(|(name, _)| name == "supervise") {
        Some((_, pid)) => supervise::signal(*pid, rustix::process::Signal::TERM),
        None => running
            .iter()
            .for_each(|(_, pid)| supervise::signal(*pid, rustix::process::Signal::TERM)),
    }
    let start = Instant::now();
    while running.iter().any(|(name, pid)| layout.running(name) == Some(*pid)) {
        if start.elapsed() > Duration::from_secs(30) {
            bail!("some daemons do not stop: {running:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(true)
}

/// The cluster in a directory.
///
/// # Errors
/// When it holds none.
pub fn existing(dir: &Path) -> Result<Layout> {
    let layout = Layout::new(dir)?;
    if !layout.exists() {
        bail!(
            "{} holds no cluster: argonaut up --dir {} makes one",
            layout.dir.display(),
            dir.display()
        );
    }
    Ok(layout)
}

/// Which daemons run, and what the cluster says of itself.
///
/// # Errors
/// When the directory holds no cluster, or no monitor answers.
pub fn status(dir: &Path) -> Result<()> {
    let layout = existing(dir)?;
    let daemons = layout.daemons()?;
    for name in &daemons {
        match layout.running(name) {
            Some(pid) => say!("{name:<8} runs, pid {pid}"),
            None if layout.stopped(name).exists() => say!("{name:<8} is stopped"),
            None => say!("{name:<8} is down: argonaut logs {name}"),
        }
    }
    // Any monitor knows; the first may be the one that is down.
    let mut last = anyhow::anyhow!("there is no monitor");
    for mon in daemons.iter().filter(|name| name.starts_with("mon.")) {
        match asok::ask(&layout.asok(mon), r#"{"prefix":"status"}"#, Duration::from_secs(10)) {
            Ok(status) => {
                say!("\n{}", status.trim_end_matches('\n'));
                return Ok(());
            }
            Err(err) => last = err,
        }
    }
    if hosts::is_host(&layout) {
        say!("\n{}", hosts::status(&layout)?.trim_end_matches('\n'));
        return Ok(());
    }
    if layout.running("supervise").is_none() {
        let dir = layout.dir.display();
        bail!("the cluster in {dir} is stopped: argonaut up --dir {dir} starts it");
    }
    Err(last.context("no monitor answers; its log says why: argonaut logs"))
}

/// Prints the logs, of one daemon or of all; with `follow` goes on.
///
/// # Errors
/// When the directory holds no cluster or no such log.
pub fn logs(dir: &Path, daemon: Option<&str>, follow: bool) -> Result<()> {
    let layout = existing(dir)?;
    let names = match daemon {
        Some(name) => vec![name.to_owned()],
        None => layout.daemons()?.into_iter().chain(["supervise".to_owned()]).collect(),
    };
    let mut places = vec![0u64; names.len()];
    loop {
        for (name, place) in names.iter().zip(&mut places) {
            let path = layout.log(name);
            let Ok(mut file) = fs::File::open(&path) else {
                if daemon.is_some() {
                    bail!("no log of {name}: the daemons are {}", layout.daemons()?.join(", "));
                }
                continue;
            };
            file.seek(SeekFrom::Start(*place))?;
            let mut text = String::new();
            *place += file.read_to_string(&mut text)? as u64;
            for line in text.lines() {
                say!("{name:<8} {line}");
            }
        }
        if !follow {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}
