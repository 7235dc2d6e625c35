//! `argonaut up` for tests: a cluster in a directory that upstream's clients see too.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Result, bail};

use crate::hosts::{Host, Hosts};
use crate::lab;
use crate::sh;

/// A running cluster; removed when dropped.
pub struct Cluster {
    /// Its directory, under [`lab::SHARE`].
    pub dir: PathBuf,
    /// How long `argonaut up` took, in seconds.
    pub up_s: f64,
    /// The network namespace it runs in, when it is not the host's.
    netns: Option<String>,
    /// The hosts that it runs on, when `argonaut up` did not start it.
    pub hosts: Option<Hosts>,
    /// Locked: the directory is this run's.
    _own: File,
}

/// The binary under test: the release build, made first if needed, or the one that
/// ARGONAUT_BIN names.
///
/// # Errors
/// When it does not build.
pub fn binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("ARGONAUT_BIN") {
        return Ok(path.into());
    }
    // Once: to see that nothing is to be built takes a fifth of a second of the CPU, and some ask
    // four times a second while they measure.
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    if let Some(path) = BUILT.get() {
        return Ok(path.clone());
    }
    let path = release("argonaut")?;
    Ok(BUILT.get_or_init(|| path).clone())
}

/// A program's release build, made first if needed. Each is built alone, though crates that both
/// share are then built twice, for the simulator chooses more features: a daemon that is tested and
/// measured is the one that users run, with the names that its profile knows (ADR 20).
///
/// # Errors
/// When it does not build.
pub fn release(name: &str) -> Result<PathBuf> {
    sh::run(&mut sh::cargo(&["build", "--quiet", "--release", "-p", name]))?;
    let target: PathBuf =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| sh::repo().join("target"), Into::into);
    Ok(target.join("release").join(name))
}

/// Makes a pool for images, `rbd`, and an erasure-coded one for their data, `ec`.
pub const IMAGE_POOLS: &str = "ceph osd pool create rbd 16 && rbd pool init rbd && \
    ceph osd erasure-code-profile set p k=2 m=1 crush-failure-domain=osd && \
    ceph osd pool create ec 16 16 erasure p && ceph osd pool set ec allow_ec_overwrites true && \
    ceph osd pool application enable ec rbd";

impl Cluster {
    /// Starts a cluster named `name` with further arguments to `argonaut up`.
    ///
    /// # Errors
    /// When it does not reach HEALTH_OK.
    pub fn up(name: &str, args: &[&str]) -> Result<Self> {
        Self::up_in(None, name, args)
    }

    /// As [`Self::up`], in a network namespace.
    ///
    /// # Errors
    /// As there.
    pub fn up_in(netns: Option<&str>, name: &str, args: &[&str]) -> Result<Self> {
        let (dir, port) = Self::place(name);
        let own = hold(&dir)?;
        let netns = netns.map(str::to_owned);
        let cluster = Self { dir, up_s: 0.0, netns, hosts: None, _own: own };
        cluster.argonaut("down", &[]).ok();
        std::fs::remove_dir_all(&cluster.dir).ok();
        let port = ["--port", &port];
        let port = if port[1].is_empty() { &[][..] } else { &port[..] };
        // Only what the test names.
        cluster.start(&[args, port, &["--minimal"]].concat())
    }

    /// Where several run at the same time, each has a directory and ports of its own.
    fn place(name: &str) -> (PathBuf, String) {
        let port = std::env::var("ARGONAUT_TEST_PORT").unwrap_or_default();
        let own = if port.is_empty() { String::new() } else { format!("-{port}") };
        (Path::new(lab::SHARE).join(format!("argonaut-{name}{own}")), port)
    }

    /// Starts [`Hosts`] with stores of that size; clients are on a host of their own.
    ///
    /// # Errors
    /// As [`Hosts::up`].
    pub fn up_on_hosts(name: &str, osd_bytes: &str) -> Result<Self> {
        let dir = Self::place(name).0;
        let own = hold(&dir)?;
        let start = sh::now();
        let hosts = Hosts::up(&dir, osd_bytes)?;
        let netns = Some(hosts.netns(Host::CLIENTS));
        Ok(Self { dir, up_s: start.elapsed().as_secs_f64(), netns, hosts: Some(hosts), _own: own })
    }

    /// Stops its daemons in good order.
    ///
    /// # Errors
    /// When one does not stop.
    pub fn down(&mut self) -> Result<()> {
        match &mut self.hosts {
            Some(hosts) => hosts.down(),
            None => self.argonaut("down", &[]).map(drop),
        }
    }

    /// `argonaut up` on its directory again.
    ///
    /// # Errors
    /// When it does not reach HEALTH_OK.
    pub fn start(mut self, args: &[&str]) -> Result<Self> {
        #[allow(clippy::disallowed_methods, reason = "start-up time is a figure of the bench")]
        let start = std::time::Instant::now();
        self.argonaut("up", args)?;
        self.up_s = start.elapsed().as_secs_f64();
        // The cluster is to be healthy on a machine whose disk is mostly used, too.
        let warn = ["ceph", "config", "set", "mon", "mon_data_avail_warn", "1"];
        let mut command = Command::new(binary()?);
        command.args(warn).env("CEPH_CONF", self.conf());
        self.within(&mut command);
        sh::output(&mut command)?;
        Ok(self)
    }

    /// Runs `argonaut VERB --dir DIR ARGS`.
    ///
    /// # Errors
    /// When it fails.
    pub fn argonaut(&self, verb: &str, args: &[&str]) -> Result<String> {
        let mut command = Command::new(binary()?);
        command.arg(verb).arg("--dir").arg(&self.dir).args(args);
        self.within(&mut command);
        sh::output(&mut command)
    }

    /// Its ceph.conf.
    pub fn conf(&self) -> PathBuf {
        self.dir.join("ceph.conf")
    }

    /// A bash line in a suite's root with CEPH_CONF set.
    pub fn client(&self, suite: &str, line: &str) -> Command {
        let line = format!("export CEPH_CONF={}; {line}", self.conf().display());
        let mut command = lab::exec(suite, &line);
        self.within(&mut command);
        command
    }

    /// The same command, in the cluster's network.
    fn within(&self, command: &mut Command) {
        if let Some(netns) = &self.netns {
            let mut outer = Command::new("nsenter");
            outer.arg(format!("--net=/run/netns/{netns}")).arg("--");
            outer.arg(command.get_program()).args(command.get_args());
            outer.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
            *command = outer;
        }
    }

    /// Pids of its daemons, by name (`osd.0`).
    ///
    /// # Errors
    /// When the run directory cannot be read.
    pub fn pids(&self) -> Result<Vec<(String, u32)>> {
        let mut out = Vec::new();
        for entry in std::fs::read_dir(self.dir.join("run"))? {
            let path = entry?.path();
            let Some(name) =
                path.file_name().and_then(|n| n.to_str()).and_then(|n| n.strip_suffix(".pid"))
            else {
                continue;
            };
            if let Ok(pid) = std::fs::read_to_string(&path)?.trim().parse() {
                out.push((name.to_owned(), pid));
            }
        }
        out.sort();
        Ok(out)
    }

    /// Kills every daemon and the supervisor with SIGKILL, at once; a `late` supervisor stands
    /// still instead, and is killed by who keeps what this returns.
    ///
    /// # Errors
    /// When there was nothing to kill.
    pub fn kill9(&self, late: bool) -> Result<Option<u32>> {
        let (supervisor, daemons): (Vec<_>, Vec<_>) =
            self.pids()?.into_iter().partition(|(name, _)| name == "supervise");
        let Some(&(_, supervisor)) = supervisor.first().filter(|_| !daemons.is_empty()) else {
            bail!("no daemons run in {}", self.dir.display());
        };
        let daemons: Vec<String> = daemons.iter().map(|(_, pid)| pid.to_string()).collect();
        let (daemons, signal) = (daemons.join(" "), if late { "STOP" } else { "KILL" });
        let line = format!("kill -{signal} {supervisor}; kill -KILL {daemons} 2>/dev/null; true");
        sh::output(&mut sh::bash(&line))?;
        Ok(late.then_some(supervisor))
    }

    /// CPU seconds used so far by daemons whose name starts with `prefix`, and the sum of
    /// their resident memory in MiB.
    ///
    /// # Errors
    /// When a process is gone.
    pub fn usage(&self, prefix: &str) -> Result<(f64, f64)> {
        let pids: Vec<u32> =
            self.pids()?.iter().filter(|(n, _)| n.starts_with(prefix)).map(|(_, p)| *p).collect();
        usage(&pids)
    }
}

/// CPU seconds and resident MiB of processes.
///
/// # Errors
/// When one is gone.
pub fn usage(pids: &[u32]) -> Result<(f64, f64)> {
    let (mut cpu, mut rss) = (0.0, 0.0);
    for pid in pids {
        let stat = stat(*pid)?;
        let fields: Vec<&str> = stat.split_whitespace().collect();
        let ticks: f64 = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
        cpu += ticks / 100.0;
        rss += fields[21].parse::<f64>()? * 4096.0 / f64::from(1 << 20);
    }
    Ok((cpu, rss))
}

/// What the kernel says of a process, behind its name.
fn stat(pid: u32) -> std::io::Result<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    Ok(stat.rsplit_once(')').map_or("", |(_, rest)| rest).trim().to_owned())
}

/// Whether a process was stopped and not continued.
pub fn is_stopped(pid: u32) -> bool {
    stat(pid).is_ok_and(|stat| stat.starts_with('T'))
}

/// Takes a cluster's directory for as long as what this gives lives.
fn hold(dir: &Path) -> Result<File> {
    std::fs::create_dir_all(lab::SHARE)?;
    let lock = File::create(dir.with_extension("lock"))?;
    if let Err(TryLockError::WouldBlock) = lock.try_lock() {
        bail!(
            "another run uses {}: wait for its end, or give this one ports and a directory of its \
             own by ARGONAUT_TEST_PORT",
            dir.display()
        );
    }
    Ok(lock)
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(mut hosts) = self.hosts.take() {
            hosts.down().ok();
            std::fs::remove_dir_all(&self.dir).ok();
        } else {
            self.argonaut("down", &[]).ok();
            std::fs::remove_dir_all(&self.dir).ok(); // tools of the tests are in it, too
        }
    }
}
