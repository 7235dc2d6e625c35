//! `packages`: what `package` makes, in clean Debian roots, each with its systemd.
//! `packaging/test.sh` installs it beside upstream's packages in both orders, runs a cluster by the
//! page on installing, upgrades and rolls back under writes, removes and purges. The binary is packed
//! twice, as an older version too.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::package::{Debs, Made, chart, container, rpm};
use crate::report::{LeftOut, Report};
use crate::{cluster, lab, sh};

const PAGE: &str = "docs/ops/install.md";

/// What is tried beside the suites.
const OTHERS: [&str; 3] = ["rpm", "chart", "container"];

/// Makes packages and tries what is named, or all: suites, `rpm`, `chart`, `container`.
///
/// # Errors
/// When the packages cannot be made; what they do wrong is in the report.
pub fn run(parts: &[&str]) -> Result<Report> {
    let every: Vec<&str> = lab::SUITES.iter().map(|(suite, _)| *suite).chain(OTHERS).collect();
    if let Some(unknown) = parts.iter().find(|part| !every.contains(part)) {
        bail!("{unknown} is none of {}", every.join(", "));
    }
    let parts = if parts.is_empty() { &every } else { parts };
    let dir = std::env::temp_dir().join(format!("argonaut-packages-{}", std::process::id()));
    let report = run_in(&dir, parts);
    std::fs::remove_dir_all(&dir).ok();
    report
}

fn run_in(dir: &Path, parts: &[&str]) -> Result<Report> {
    let version = env!("CARGO_PKG_VERSION");
    let mut report = Report::default();
    let made = Made::of(&cluster::binary()?, &dir.join("made"))?;
    let new = apart(&made.debs(version)?, &dir.join("new"))?;
    let old = apart(&made.debs(&format!("{version}~old"))?, &dir.join("old"))?;
    for part in parts {
        match *part {
            "rpm" => report.check("RPMs", || rpm::check(&made, version)),
            "chart" => report.check("chart", chart::check),
            "container" if made.runs_on(container::BASE) => {
                report.check("container", || container::check(&new, dir));
            }
            suite if made.runs_on(suite) => report.add(tried(suite, dir, &new, &old)?),
            other => report.check(other, || {
                let why = "its C library is older than the one the binary was built with";
                Err(LeftOut(why.to_owned()).into())
            }),
        }
    }
    Ok(report)
}

/// Moves a version's packages to a directory of their own.
fn apart(debs: &Debs, dir: &Path) -> Result<std::path::PathBuf> {
    std::fs::create_dir_all(dir)?;
    for deb in [&debs.argonaut, &debs.names] {
        std::fs::rename(deb, dir.join(deb.file_name().context("a file")?))?;
    }
    Ok(dir.to_owned())
}

/// The clean root of a suite, made if it is missing.
pub fn base(suite: &str) -> Result<std::path::PathBuf> {
    let out = sh::output(Command::new("bash").arg(script()).args(["base", suite]))?;
    Ok(out.trim().into())
}

fn script() -> std::path::PathBuf {
    sh::repo().join("packaging/test.sh")
}

fn tried(suite: &str, dir: &Path, new: &Path, old: &Path) -> Result<Report> {
    base(suite)?;
    let mut bash = Command::new("bash");
    bash.arg(script()).args(["run", suite]).arg(dir.join(suite)).args([new, old]);
    bash.arg(sh::repo().join(PAGE)).stdin(Stdio::null()).stderr(Stdio::inherit());
    let out = bash.output().context("bash")?;
    let text = String::from_utf8_lossy(&out.stdout);
    print!("{text}");
    let report = Report::read(&text);
    if !out.status.success() && !report.is_failure() {
        bail!("{suite}: the script ended with {}", out.status);
    }
    Ok(report)
}
