//! The image of `packaging/container`, built on a clean root instead of one that is fetched.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::report::LeftOut;
use crate::{packages, sh};

/// The suite whose root stands in for the image that it is built on.
pub const BASE: &str = "trixie";

/// Builds the image without network of packages in a directory, and runs its programs.
///
/// # Errors
/// What fails; [`LeftOut`] without `buildah`.
pub fn check(debs: &Path, dir: &Path) -> Result<()> {
    if Command::new("buildah").arg("--version").output().is_err() {
        return Err(LeftOut("there is no program buildah".to_owned()).into());
    }
    let base = packages::base(BASE)?;
    let store = dir.join("images");
    let buildah = |words: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--net", "buildah", "--storage-driver", "vfs", "--root"]);
        command.arg(store.join("root")).arg("--runroot").arg(store.join("run")).args(words);
        command.env("TMPDIR", dir).current_dir(sh::repo());
        sh::output(&mut command).map(|out| out.trim().to_owned())
    };
    let base = base.display().to_string();
    let first = buildah(&["from", "scratch"])?;
    for part in ["bin", "etc", "lib", "lib64", "root", "run", "sbin", "tmp", "usr", "var"] {
        let link = Path::new(&base).join(part);
        if link.is_symlink() {
            let to = std::fs::read_link(&link)?.display().to_string();
            let mounted = buildah(&["mount", &first])?;
            std::os::unix::fs::symlink(to, Path::new(&mounted).join(part))?;
        } else {
            buildah(&["add", "-q", &first, &format!("{base}/{part}"), &format!("/{part}")])?;
        }
    }
    buildah(&["commit", "-q", "--rm", &first, "localhost/base"])?;
    buildah(&[
        "bud",
        "--isolation=chroot",
        "--pull-never",
        "--build-arg=BASE=localhost/base",
        "--tag=localhost/argonaut",
        "--file=packaging/container/Containerfile",
        &debs.display().to_string(),
    ])?;
    let made = buildah(&["from", "--pull-never", "localhost/argonaut"])?;
    let told = |format: &str| buildah(&["inspect", "--format", format, &made]);
    let (user, entry) = (told("{{.OCIv1.Config.User}}")?, told("{{.OCIv1.Config.Entrypoint}}")?);
    if (user.as_str(), entry.as_str()) != ("ceph", "[/usr/bin/argonaut]") {
        bail!("user {user}, entry {entry}");
    }
    let run =
        |words: &[&str]| buildah(&[&["run", "--isolation=chroot", &made, "--"], words].concat());
    // Both ways to name a program, and where a daemon may write.
    for words in [&["argonaut", "ceph-mon", "--version"][..], &["ceph-osd", "--version"]] {
        let version = run(words)?;
        if !version.contains("argonaut") {
            bail!("{words:?}: {version}");
        }
    }
    let id = run(&["id", "-u"])?;
    if id != "64045" {
        bail!("it runs as user {id}");
    }
    run(&["mkdir", "/var/lib/ceph/mon/ceph-a", "/run/ceph/x"]).map(drop)
}
