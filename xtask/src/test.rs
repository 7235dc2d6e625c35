//! `check` and `test`: everything that must hold before a change lands.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::report::{LeftOut, Report};
use crate::{hostile, hostile_clients, kill9, lab, lanes, sh, thrash, thrash_mons};

/// Format, lints, types of all that is compiled (fuzz targets too), and the rules of
/// [`crate::tidy`].
///
/// # Errors
/// When one of them finds something.
pub fn check() -> Result<()> {
    crate::tidy::tidy()?;
    sh::run(&mut sh::cargo(&["fmt", "--all", "--check"]))?;
    sh::run(&mut sh::cargo(&[
        "clippy",
        "--quiet",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ]))?;
    sh::run(&mut crate::fuzz::check())
}

/// Debian packages of this host that tests use; installed when missing.
fn install() -> Result<()> {
    let packages = [
        "debootstrap",
        "xz-utils",
        "procps",
        "iproute2",
        "ceph-common",
        "openssh-client",
        "openssh-server",
        "faketime",
    ];
    let have = sh::output(Command::new("dpkg").arg("-s").args(packages)).is_ok();
    if !have {
        // Tests start servers of their own: none is started for being installed.
        sh::run(&mut sh::bash(&format!(
            "export DEBIAN_FRONTEND=noninteractive; policy=/usr/sbin/policy-rc.d
            [ -e $policy ] || {{ printf '#!/bin/sh\\nexit 101\\n' >$policy; chmod 755 $policy; trap 'rm $policy' EXIT; }}
            apt-get update -q && apt-get install -yq --no-install-recommends {}",
            packages.join(" ")
        )))?;
    }
    Ok(())
}

/// What the example of an object class is built for.
pub(crate) const WASM: &str = "wasm32-unknown-unknown";

/// The compiler's library for [`WASM`]; fetched when missing.
///
/// # Errors
/// [`LeftOut`] when it cannot be had here.
pub(crate) fn wasm_target() -> Result<()> {
    let root =
        sh::output(Command::new("rustc").current_dir(sh::repo()).args(["--print", "sysroot"]))?;
    if Path::new(root.trim()).join("lib/rustlib").join(WASM).is_dir() {
        return Ok(());
    }
    let mut add = Command::new("rustup");
    let added = sh::run(add.current_dir(sh::repo()).args(["target", "add", WASM]));
    added
        .map_err(|e| LeftOut(format!("the example of an object class cannot be built: {e}")).into())
}

/// The corpus of encoded objects: ARGONAUT_CORPUS (a directory, or the archive), else the
/// archive beside the repository. `None` where there is none.
fn corpus() -> Result<Option<PathBuf>> {
    let beside = sh::repo().join("../shared/corpus/ceph-object-corpus.tar.xz");
    let from = std::env::var_os("ARGONAUT_CORPUS").map_or(beside, PathBuf::from);
    if from.is_dir() {
        return Ok(Some(from));
    }
    if !from.is_file() {
        println!(
            "no corpus at {}: set ARGONAUT_CORPUS to check encodings against it",
            from.display()
        );
        return Ok(None);
    }
    let to = sh::repo().join("target/corpus");
    if !to.join(".complete").exists() {
        std::fs::create_dir_all(&to)?;
        sh::run(Command::new("tar").arg("xJf").arg(&from).arg("-C").arg(&to))?;
        std::fs::write(to.join(".complete"), "")?;
    }
    Ok(Some(to))
}

/// All tests, those against upstream's programs included.
///
/// # Errors
/// When any fails.
pub fn test() -> Result<()> {
    let mut report = Report::default();
    report.check("install packages", install);
    for (suite, version) in lab::SUITES {
        report.check(&format!("root {suite} ({version})"), || lab::root(suite).map(drop));
    }
    report.check("rustc for WebAssembly", wasm_target);
    let args = ["test", "--workspace", "--quiet"];
    let build = || sh::run(sh::cargo(&args).arg("--no-run"));
    report.check("build of the tests", build);
    let mut unit = sh::cargo(&args);
    if wasm_target().is_err() {
        unit.env("ARGONAUT_WITHOUT_WASM", "1");
    }
    if let Some(dir) = corpus()? {
        unit.env("ARGONAUT_CORPUS", dir);
    }
    let tool = |name: &str| {
        format!("bash {} forky exec {name}", sh::repo().join("lab/ceph-root").display())
    };
    std::fs::create_dir_all(lab::SHARE)?;
    unit.env("ARGONAUT_CRUSHTOOL", tool("crushtool"));
    unit.env("ARGONAUT_EC_TOOL", tool("ceph-erasure-code-tool"));
    unit.env("ARGONAUT_OSDMAPTOOL", tool("osdmaptool"));
    // Many tests use one core: the other builds meanwhile.
    let release = std::thread::spawn(|| {
        crate::cluster::binary()?;
        crate::cluster::release("sim").map(drop)
    });
    report.check("cargo test", || sh::run(&mut unit));
    report.check("release builds", || release.join().expect("building does not panic"));
    report.add(crate::sim::share());
    report.add(lanes::run()?);
    // The rest is about time, or takes all of the machine.
    report.add(kill9::run(3)?);
    report.add(thrash_mons::run(25)?);
    report.add(thrash::run(30, thrash::Mode { mons: true, ..Default::default() })?);
    report.add(crate::hosts::hosts(true));
    report.add(crate::hosts::join(&["six"])?);
    report.add(hostile::run(5_000)?);
    report.add(hostile_clients::run(3, hostile_clients::SHARE)?);
    report.end()
}
