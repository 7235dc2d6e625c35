//! Upstream's releases: Debian roots to run its programs in, and stock clusters.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, bail};

use crate::sh;

/// The releases that must be served, oldest first: suite and version.
pub const SUITES: [(&str, &str); 3] =
    [("bookworm", "16.2.15"), ("trixie", "18.2.7"), ("forky", "20.2.4")];

/// Files here are seen at the same path inside the roots.
pub const SHARE: &str = "/tmp/ceph-share";

fn script(name: &str) -> Command {
    let mut command = Command::new("bash");
    command.arg(sh::repo().join("lab").join(name));
    command
}

/// Makes the root of a suite if it is missing; its path.
///
/// # Errors
/// When the suite is unknown or packages cannot be installed.
pub fn root(suite: &str) -> Result<PathBuf> {
    if !SUITES.iter().any(|(s, _)| *s == suite) {
        bail!("no suite {suite}: one of bookworm, trixie, forky");
    }
    let out = sh::output(script("ceph-root").arg(suite))?;
    Ok(out.trim().lines().last().unwrap_or_default().into())
}

/// A command inside a suite's root; `line` is bash.
pub fn exec(suite: &str, line: &str) -> Command {
    let mut command = script("ceph-root");
    command.args([suite, "exec", "bash", "-c", line]);
    command
}

/// Has Debian packages in a suite's root, `packages` with blanks between.
///
/// # Errors
/// When they cannot be installed.
pub fn need(suite: &str, packages: &str) -> Result<()> {
    let line = format!(
        "dpkg -s {packages} >/dev/null 2>&1 || {{ apt-get update -q && \
         DEBIAN_FRONTEND=noninteractive apt-get install -yq --no-install-recommends {packages}; }} >&2"
    );
    sh::output(&mut exec(suite, &line)).map(drop)
}

/// Starts a stock 20.2.4 cluster on loopback; its ceph.conf. Not ours to test: one that does
/// not come up is shown and tried a second time.
///
/// # Errors
/// When it does not come up twice.
pub fn peer_up(name: &str, osds: u32, size: u32) -> Result<PathBuf> {
    root("forky")?;
    let start = || {
        let mut command = script("peer-up");
        command.args(["start", name]).env("OSDS", osds.to_string()).env("SIZE", size.to_string());
        sh::output(&mut command).map(|out| out.trim().into())
    };
    start().or_else(|error| {
        eprintln!("the stock cluster did not come up, once more: {error:#}");
        peer_down(name)?;
        start()
    })
}

/// Stops and removes a stock cluster.
///
/// # Errors
/// When its processes or files cannot be removed.
pub fn peer_down(name: &str) -> Result<()> {
    sh::output(script("peer-up").args(["rm", name])).map(drop)
}
