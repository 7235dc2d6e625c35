//! `packages`: what `package` makes, in clean Debian roots: `packaging/test.sh` installs it beside
//! upstream's packages in both orders, runs a cluster by the page on installing, upgrades and rolls
//! back under writes, removes and purges. The binary is packed twice, as an older version too.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::package::{Debs, Made, chart, container, rpm};
use crate::report::{LeftOut, Report};
use crate::{cluster, lab, sh};

const PAGE: &str = "docs/ops/install.md";

/// Makes packages and tries them in the named suites, or all.
///
/// # Errors
/// When the packages cannot be made; what they do wrong is in the report.
pub fn run(suites: &[&str]) -> Result<Report> {
    let known = |suite: &&&str| lab::SUITES.iter().any(|(name, _)| name == *suite);
    if let Some(unknown) = suites.iter().find(|suite| !known(suite)) {
        bail!("no suite {unknown}");
    }
    let dir = std::env::temp_dir().join(format!("argonaut-packages-{}", std::process::id()));
    let report = run_in(&dir, suites);
    std::fs::remove_dir_all(&dir).ok();
    report
}

fn run_in(dir: &Path, suites: &[&str]) -> Result<Report> {
    let version = env!("CARGO_PKG_VERSION");
    let mut report = Report::default();
    let made = Made::of(&cluster::binary()?, &dir.join("made"))?;
    let new = apart(&made.debs(version)?, &dir.join("new"))?;
    let old = apart(&made.debs(&format!("{version}~old"))?, &dir.join("old"))?;
    report.check("RPMs", || rpm::check(&made, version));
    report.check("chart", chart::check);
    let every: Vec<&str> = lab::SUITES.iter().map(|(suite, _)| *suite).collect();
    for suite in if suites.is_empty() { &every } else { suites } {
        if !made.runs_on(suite) {
            let why = "its glibc is older than the one the binary was built with";
            report.check(suite, || Err(LeftOut(why.to_owned()).into()));
            continue;
        }
        report.add(tried(suite, dir, &new, &old)?);
    }
    if made.runs_on("trixie") {
        report.check("container", || container::check(&new, dir));
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
