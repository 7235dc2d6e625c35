//! Running programs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// The repository.
pub fn repo() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the repository").into()
}

/// What no command of a test takes, builds on two busy cores included.
const LIMIT: Duration = Duration::from_secs(40 * 60);

/// Runs a command with this process's output, 40 minutes at most.
///
/// # Errors
/// When it cannot be started, ends with another status than 0, or does not end.
pub fn run(command: &mut Command) -> Result<()> {
    run_within(LIMIT, command)
}

/// As [`run`], but for `limit` at most: then it is killed.
///
/// # Errors
/// As [`run`].
pub fn run_within(limit: Duration, command: &mut Command) -> Result<()> {
    let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
    let end = now() + limit;
    let mut pause = Duration::from_millis(1);
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if now() > end {
            child.kill().ok();
            child.wait()?;
            bail!("{command:?} did not end within {} s", limit.as_secs());
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    };
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(())
}

/// Runs a command and gives its standard output; standard error is shown when it fails.
///
/// # Errors
/// As [`run`].
pub fn output(command: &mut Command) -> Result<String> {
    let out = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {command:?}"))?;
    if !out.status.success() {
        let (err, text) =
            (String::from_utf8_lossy(&out.stderr), String::from_utf8_lossy(&out.stdout));
        let tail = |s: &str| {
            s.lines()
                .rev()
                .take(60)
                .collect::<Vec<_>>()
                .into_iter()
                .rev()
                .collect::<Vec<_>>()
                .join("\n")
        };
        bail!("{command:?} ended with {}\n{}\n{}", out.status, tail(&text), tail(&err));
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// A bash command line.
pub fn bash(line: &str) -> Command {
    let mut command = Command::new("bash");
    command.arg("-c").arg(line);
    command
}

/// Cargo, as it runs this program.
pub fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(repo()).args(args);
    command
}

/// The time of real processes: xtask's own clock, to measure and to wait by.
#[allow(clippy::disallowed_methods, reason = "real processes run in real time")]
pub fn now() -> std::time::Instant {
    std::time::Instant::now()
}

/// The same by the wall clock, s since 1970: other processes share it.
#[allow(clippy::disallowed_methods, reason = "real processes run in real time")]
pub fn wall() -> f64 {
    std::time::UNIX_EPOCH.elapsed().map_or(0.0, |d| d.as_secs_f64())
}
