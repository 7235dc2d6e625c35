//! The process that keeps a cluster's daemons running.
//!
//! It starts each daemon as a process of this binary, starts those again that end, with a
//! pause that doubles while they end at once, and stops all of them when it is told to.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use daemon::asok;

use crate::hosts;
use crate::layout::{KINDS, Layout};

const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// A daemon that ran this long did not "end at once".
const STEADY: Duration = Duration::from_secs(2);
/// How often it looks for daemons that were made meanwhile.
const LOOK_PAUSE: Duration = Duration::from_millis(500);
/// How long a daemon may take to stop before it is killed.
const STOP_MAX: Duration = Duration::from_secs(10);
/// How long a metadata server may take to say whether it has a rank.
const STATUS_MAX: Duration = Duration::from_secs(1);
/// How long an earlier supervisor that was killed may take to be gone.
const ENDING_MAX: Duration = Duration::from_secs(5);

/// Whether the process was told to stop (SIGTERM, SIGINT).
pub fn stop_flag() -> Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, flag.clone())?;
    }
    Ok(flag)
}

/// The file to start a program of this one's kind from, where this one runs from `own`: an upgrade
/// may have put another there, or taken it away. Linux marks the name then.
fn program_at(own: PathBuf) -> PathBuf {
    let Some(was) = own.as_os_str().as_bytes().strip_suffix(b" (deleted)") else { return own };
    let was = Path::new(OsStr::from_bytes(was));
    if was.exists() { was.to_owned() } else { "/proc/self/exe".into() }
}

/// The file to start daemons and the supervisor from.
///
/// # Errors
/// When the name of this program's file cannot be read.
pub fn program() -> Result<PathBuf> {
    Ok(program_at(std::env::current_exe().context("cannot find this program's file")?))
}

/// Starts the supervisor of a directory as a process of its own.
///
/// # Errors
/// When the process cannot be started.
pub fn spawn(layout: &Layout) -> Result<Child> {
    use std::os::unix::process::CommandExt;
    Command::new(program()?)
        .arg("supervise")
        .arg("--dir")
        .arg(&layout.dir)
        .stdin(Stdio::null())
        .stdout(append(&layout.log("supervise"))?)
        .stderr(append(&layout.log("supervise"))?)
        .process_group(0)
        .spawn()
        .context("cannot start the supervisor")
}

/// Starts the supervisor where none runs, and waits until it does.
///
/// # Errors
/// When it cannot be started, or ends.
pub fn launch(layout: &Layout) -> Result<()> {
    if layout.running("supervise").is_some() {
        return Ok(());
    }
    let mut supervisor = spawn(layout)?;
    let started = within(ENDING_MAX * 2, || {
        layout.running("supervise").is_some() || !matches!(supervisor.try_wait(), Ok(None))
    });
    if !started || layout.running("supervise").is_none() {
        bail!("the supervisor does not run: {} says why", layout.log("supervise").display());
    }
    Ok(())
}

/// Starts one daemon of the cluster.
///
/// # Errors
/// When the process cannot be started.
pub fn start(layout: &Layout, daemon: &str) -> Result<Child> {
    let (kind, id) = daemon.split_once('.').context("a daemon is TYPE.ID")?;
    let log = append(&layout.log(daemon))?;
    Command::new(program()?)
        .arg(kind)
        .args(["-i", id, "-c"])
        .arg(layout.conf())
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .with_context(|| format!("cannot start {daemon}"))
}

/// Opens a log for appending.
///
/// # Errors
/// When it cannot be created.
pub fn append(path: &Path) -> Result<File> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .with_context(|| path.display().to_string())
}

struct Kept {
    name: String,
    child: Child,
    since: Instant,
    pause: Duration,
}

/// A daemon that is to be started.
struct Waiting {
    name: String,
    when: Instant,
    pause: Duration,
}

/// The daemons of a cluster, those that run and those that are to.
#[derive(Default)]
struct Daemons {
    kept: Vec<Kept>,
    waiting: Vec<Waiting>,
}

impl Daemons {
    /// Has those wait that are of the cluster and not known yet: made or told to start since.
    fn note_made(&mut self, layout: &Layout, when: Instant) {
        for name in layout.daemons().unwrap_or_default() {
            let is_known = self.kept.iter().any(|k| k.name == name)
                || self.waiting.iter().any(|w| w.name == name);
            if !is_known && !layout.stopped(&name).exists() {
                self.waiting.push(Waiting { name, when, pause: PAUSE_MIN });
            }
        }
    }

    /// Starts what is due. A daemon that cannot be started is tried again: the disk may be full now.
    fn start_due(&mut self, layout: &Layout, now: Instant) {
        self.waiting.retain(|w| !layout.stopped(&w.name).exists());
        let due: Vec<_> = self.waiting.extract_if(.., |w| w.when <= now).collect();
        for Waiting { name, pause, .. } in due {
            match start(layout, &name) {
                Ok(child) => self.kept.push(Kept { name, child, since: now, pause }),
                Err(err) => {
                    tell!("{}; trying again in {} ms", crate::say::Why(&err), pause.as_millis());
                    let when = now + pause;
                    let pause = (pause * 2).min(PAUSE_MAX);
                    self.waiting.push(Waiting { name, when, pause });
                }
            }
        }
    }

    /// Has those that ended wait for their next start.
    fn note_ended(&mut self, layout: &Layout, now: Instant) {
        let ended = self.kept.extract_if(.., |kept| !matches!(kept.child.try_wait(), Ok(None)));
        for mut gone in ended {
            let status = match gone.child.try_wait() {
                Ok(Some(status)) => status.to_string(),
                Ok(None) => continue,
                Err(err) => err.to_string(),
            };
            if !layout.data(&gone.name).join("ready").exists() {
                tell!("{} ended with {status}: it is no longer of the cluster", gone.name);
                continue;
            }
            if layout.stopped(&gone.name).exists() {
                tell!("{} ended with {status}: it was stopped", gone.name);
                continue;
            }
            let pause = if now - gone.since > STEADY { PAUSE_MIN } else { gone.pause };
            let ms = pause.as_millis();
            tell!("{} ended with {status}; starting it again in {ms} ms", gone.name);
            let when = now + pause;
            let pause = (pause * 2).min(PAUSE_MAX);
            self.waiting.push(Waiting { name: gone.name, when, pause });
        }
    }
}

/// Runs until told to stop.
///
/// # Errors
/// When another supervisor runs the cluster, or its directory cannot be read.
#[allow(clippy::disallowed_methods, reason = "the edge of the world: it waits for real processes")]
pub fn run(layout: &Layout) -> Result<()> {
    let stop = stop_flag()?;
    let lock = append(&layout.run().join("supervisor.lock"))?;
    let asked = Instant::now();
    while rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err() {
        if asked.elapsed() > ENDING_MAX || stop.load(Ordering::Relaxed) {
            bail!("another supervisor runs {}", layout.dir.display());
        }
        thread::sleep(Duration::from_millis(20));
    }
    let pid_file = layout.pid_file("supervise");
    let mut daemons = Daemons::default();
    layout.daemons()?;
    if hosts::is_host(layout) {
        let layout = layout.clone();
        thread::spawn(move || hosts::keep_following(&layout));
    }
    let (mut told, mut look) = (false, Instant::now());
    while !stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        daemons.note_ended(layout, now);
        if now >= look {
            look = now + LOOK_PAUSE;
            // There may be no room for it now.
            told = told || daemon::replace_pid_file(&pid_file).is_ok();
            daemons.note_made(layout, now);
        }
        daemons.start_due(layout, now);
        thread::sleep(Duration::from_millis(50));
    }
    stop_all(layout, daemons.kept)?;
    std::fs::remove_file(pid_file).ok();
    Ok(())
}

/// Whether a metadata server serves a rank, as far as it answers.
fn has_rank(layout: &Layout, daemon: &str) -> bool {
    let status = asok::ask(&layout.asok(daemon), r#"{"prefix":"status"}"#, STATUS_MAX);
    let status = status.ok().and_then(|text| serde_json::from_str(&text).ok());
    status.is_some_and(|s: serde_json::Value| s["whoami"].as_i64().is_some_and(|rank| rank >= 0))
}

/// Metadata servers first, while OSDs take what they write, and of them those that stand by: the
/// others find nobody who takes over, and leave the tree whole. Then OSDs, so that their last words
/// reach a monitor.
#[allow(clippy::disallowed_methods, reason = "the edge of the world: it waits for real processes")]
fn stop_all(layout: &Layout, kept: Vec<Kept>) -> Result<()> {
    let (rgws, kept): (Vec<_>, Vec<_>) = kept.into_iter().partition(|k| k.name.starts_with("rgw"));
    let (mdss, kept): (Vec<_>, Vec<_>) = kept.into_iter().partition(|k| k.name.starts_with("mds"));
    let (mgrs, kept): (Vec<_>, Vec<_>) = kept.into_iter().partition(|k| k.name.starts_with("mgr"));
    let (osds, mons): (Vec<_>, Vec<_>) = kept.into_iter().partition(|k| k.name.starts_with("osd"));
    let (ranks, standbys): (Vec<_>, Vec<_>) =
        mdss.into_iter().partition(|k| has_rank(layout, &k.name));
    for group in [rgws, mgrs, standbys, ranks, osds, mons] {
        let (done, all_done) = mpsc::channel();
        let count = group.len();
        for mut one in group {
            signal(one.child.id(), rustix::process::Signal::TERM);
            let done = done.clone();
            thread::spawn(move || {
                let start = Instant::now();
                while matches!(one.child.try_wait(), Ok(None)) {
                    if start.elapsed() > STOP_MAX {
                        tell!(
                            "{} did not stop within {} s: killing it",
                            one.name,
                            STOP_MAX.as_secs()
                        );
                        one.child.kill().ok();
                    }
                    thread::sleep(Duration::from_millis(10));
                }
                done.send(()).ok();
            });
        }
        for _ in 0..count {
            all_done.recv()?;
        }
    }
    Ok(())
}

/// Stops one daemon of a cluster whose supervisor runs; it stays stopped until [`start_one`] or the
/// next `up`.
///
/// # Errors
/// When there is no such daemon, or it does not end within 40 s.
pub fn stop_one(layout: &Layout, daemon: &str) -> Result<()> {
    known(layout, daemon)?;
    File::create(layout.stopped(daemon))
        .with_context(|| layout.stopped(daemon).display().to_string())?;
    let Some(pid) = layout.running(daemon) else {
        say!("{daemon} does not run");
        return Ok(());
    };
    signal(pid, rustix::process::Signal::TERM);
    if !within(STOP_MAX * 4, || layout.running(daemon) != Some(pid)) {
        bail!(
            "{daemon} (pid {pid}) does not end; why may stand in its log: argonaut logs {daemon}"
        );
    }
    say!("{daemon} is stopped");
    Ok(())
}

/// Has a stopped daemon started.
///
/// # Errors
/// When there is no such daemon, no supervisor runs, or it does not start within 10 s.
pub fn start_one(layout: &Layout, daemon: &str) -> Result<()> {
    known(layout, daemon)?;
    let dir = layout.dir.display();
    if layout.running("supervise").is_none() {
        bail!("the cluster in {dir} does not run: argonaut up --dir {dir}");
    }
    match std::fs::remove_file(layout.stopped(daemon)) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e.into()),
        _ => {}
    }
    if !within(PAUSE_MAX, || layout.running(daemon).is_some()) {
        bail!("{daemon} does not start; its log says why: argonaut logs --dir {dir} {daemon}");
    }
    say!("{daemon} runs");
    Ok(())
}

/// The daemons that are meant: one by its name, all of a type (none is fine), or all.
///
/// # Errors
/// When the directory cannot be read.
pub fn meant(layout: &Layout, word: Option<&str>) -> Result<Vec<String>> {
    let all = layout.daemons()?;
    Ok(match word {
        None => all,
        Some(kind) if KINDS.contains(&kind) => {
            all.into_iter().filter(|d| d.split('.').next() == Some(kind)).collect()
        }
        Some(one) => vec![one.to_owned()],
    })
}

fn known(layout: &Layout, daemon: &str) -> Result<()> {
    let all = layout.daemons()?;
    if !all.iter().any(|name| name == daemon) {
        bail!("{daemon} is no daemon of {}: {}", layout.dir.display(), all.join(", "));
    }
    Ok(())
}

/// Whether something comes true in this time.
#[allow(clippy::disallowed_methods, reason = "the edge of the world: it waits for real processes")]
pub fn within(limit: Duration, mut is: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    loop {
        if is() {
            return true;
        }
        if Instant::now() > end {
            return false;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Sends a signal to a process that may be gone already.
pub fn signal(pid: u32, signal: rustix::process::Signal) {
    if let Some(pid) = rustix::process::Pid::from_raw(pid as i32) {
        rustix::process::kill_process(pid, signal).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Daemons start again after their program's file was replaced, and after it was removed.
    #[test]
    fn a_replaced_program_is_started() {
        let there = std::env::current_exe().expect("a test has a file");
        assert_eq!(program_at(there.clone()), there);
        let mut replaced = there.clone().into_os_string();
        replaced.push(" (deleted)");
        assert_eq!(program_at(replaced.into()), there);
        let removed = PathBuf::from("/nowhere/argonaut (deleted)");
        assert_eq!(program_at(removed), Path::new("/proc/self/exe"));
    }
}
