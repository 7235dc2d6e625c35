//! A daemon without `-f`: it goes on in a process of its own, and the one that was started ends when
//! that serves.
//!
//! The child is this program again, with the same arguments. Its standard input is a socket on which
//! it tells that it serves; then its standard streams become /dev/null.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use anyhow::Context;

use super::Failed;

/// In the environment of the child.
const MARK: &str = "ARGONAUT_IN_BACKGROUND";

/// Starts the child and returns its exit code: 0 once it serves. In the child: `None`, at once.
///
/// # Errors
/// When it cannot be started.
pub fn go() -> Result<Option<u8>, Failed> {
    if std::env::var_os(MARK).is_some() {
        rustix::process::setsid().ok();
        daemon::when_up(tell_and_hide);
        return Ok(None);
    }
    let (mut ours, theirs) = UnixStream::pair().context("a socket to the daemon")?;
    let mut args = std::env::args_os();
    let name = args.next().unwrap_or_default();
    let mut child = Command::new("/proc/self/exe");
    child.arg0(name).args(args).env(MARK, "1").stdin(Stdio::from(OwnedFd::from(theirs)));
    let mut running = child.spawn().context("starting the daemon in the background")?;
    drop(child); // with its end of the socket
    let mut told = [0];
    if ours.read(&mut told).is_ok_and(|n| n == 1) {
        return Ok(Some(0));
    }
    let status = running.wait().context("waiting for the daemon")?;
    Ok(Some(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

/// Once the child serves. A later start of the same process finds /dev/null, and tells nobody.
fn tell_and_hide() {
    let stdin = std::io::stdin();
    if let Ok(socket) = rustix::io::dup(&stdin)
        && rustix::net::sockopt::socket_type(&socket).is_ok()
    {
        UnixStream::from(socket).write_all(b"1").ok();
    }
    if let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") {
        rustix::stdio::dup2_stdin(&null).ok();
        rustix::stdio::dup2_stdout(&null).ok();
        rustix::stdio::dup2_stderr(&null).ok();
    }
}
