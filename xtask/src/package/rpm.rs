//! RPMs, of the same trees.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::{Made, NAMES, files, tree};
use crate::report::LeftOut;
use crate::{lab, sh};

/// Makes both packages with `rpmbuild`, of the binary that is there.
///
/// # Errors
/// Where `rpmbuild` is missing or refuses.
pub fn rpms(made: &Made, version: &str) -> Result<Vec<PathBuf>> {
    let top = made.out.join("rpm");
    if top.exists() {
        std::fs::remove_dir_all(&top)?;
    }
    tree::argonaut(&top.join("argonaut"), &made.binary)?;
    tree::names(&top.join("names"), &made.binary)?;
    let arch = made.linked.rpm_arch()?;
    let mut build = Command::new("rpmbuild");
    build.env("SOURCE_DATE_EPOCH", tree::epoch()?).args(["-bb", "--target", arch]);
    for (name, value) in [
        ("_topdir", top.join("build").display().to_string()),
        ("trees", top.display().to_string()),
        ("argonaut_version", version.to_owned()),
        ("ceph_version", lab::SUITES[lab::SUITES.len() - 1].1.to_owned()),
    ] {
        build.arg("--define").arg(format!("{name} {value}"));
    }
    build.arg(sh::repo().join("packaging/rpm/argonaut.spec"));
    sh::output(&mut build).context("rpmbuild of Debian's package rpm")?;
    let built = files(&top.join("build/RPMS"))?;
    let mut kept = Vec::new();
    for rpm in built {
        let to = made.out.join(rpm.file_name().context("a file")?);
        std::fs::rename(&rpm, &to)?;
        kept.push(to);
    }
    std::fs::remove_dir_all(&top)?;
    Ok(kept)
}

/// Makes RPMs and looks at what they say of themselves.
///
/// # Errors
/// What is missing; [`LeftOut`] without `rpmbuild`.
pub fn check(made: &Made, version: &str) -> Result<()> {
    if Command::new("rpmbuild").arg("--version").output().is_err() {
        return Err(LeftOut("there is no program rpmbuild".to_owned()).into());
    }
    let rpms = rpms(made, version)?;
    let query = |about: &str| {
        let mut rpm = Command::new("rpm");
        sh::output(rpm.args(["-qp", about]).args(&rpms))
    };
    let (listed, provided) = (query("--list")?, query("--provides")?);
    let conflicts = query("--conflicts")?;
    let mut wanted: Vec<String> =
        NAMES.iter().map(|(name, _)| format!("/usr/bin/{name}")).collect();
    for path in [
        "/usr/bin/argonaut",
        "/usr/lib/systemd/system/ceph-osd@.service",
        "/usr/share/zsh/site-functions/_argonaut",
        "/usr/share/man/man1/argonaut-up.1.gz",
        "/var/lib/ceph/crash/posted",
    ] {
        wanted.push(path.to_owned());
    }
    if let Some(path) = wanted.iter().find(|path| !listed.lines().any(|l| l == **path)) {
        bail!("{path} is in no package");
    }
    for name in ["ceph-base", "ceph-osd", "ceph-radosgw"] {
        if !provided.contains(&format!("{name} = 2:20.")) || !conflicts.lines().any(|l| l == name) {
            bail!("{name} is not replaced");
        }
    }
    let needed = query("--requires")?;
    if !needed.contains("libc.so.6(GLIBC_") {
        bail!("it says nothing of its C library:\n{needed}");
    }
    for rpm in &rpms {
        std::fs::remove_file(rpm)?;
    }
    Ok(())
}
