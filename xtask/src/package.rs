//! `package`: makes what hosts install of a binary that is there: two Debian packages, and on demand
//! RPMs. What goes where stands in [`tree`]; scripts and control files in
//! `packaging/`.

pub mod chart;
pub mod container;
mod linked;
pub mod rpm;
mod tree;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{cluster, lab, sh};

/// Ceph's names that are ours to have: those of daemons and of tools that look into their data, and
/// what the manual page says of each. Debian's `ceph-base`, `ceph-mon`, `ceph-osd`, `ceph-mgr`,
/// `ceph-mds` and `radosgw` have them; `ceph-exporter` is in no package of Debian's.
pub const NAMES: &[(&str, &str)] = &[
    ("ceph-mon", "monitor of a Ceph cluster"),
    ("ceph-osd", "object storage daemon of a Ceph cluster"),
    ("ceph-mgr", "manager of a Ceph cluster"),
    ("ceph-mds", "metadata server of a Ceph cluster"),
    ("radosgw", "object gateway of a Ceph cluster"),
    ("ceph-bluestore-tool", "looks at OSDs' devices"),
    ("ceph-objectstore-tool", "looks into and changes the store of an OSD that is down"),
    ("monmaptool", "reads and writes monitor maps"),
    ("crushtool", "reads, writes and tests CRUSH maps"),
    ("ceph-exporter", "serves the counters of a host's daemons"),
    ("ceph-crash", "brings crash reports to the cluster"),
];

/// Names that the binary answers to and that stay those of `ceph-common`.
#[cfg(test)]
const OF_CEPH_COMMON: &[&str] = &["ceph-authtool", "ceph-conf"];

/// What `package` is asked for.
#[derive(Default)]
pub struct Asked {
    out: Option<PathBuf>,
    bin: Option<PathBuf>,
    version: Option<String>,
    rpm: bool,
}

impl Asked {
    /// Reads `[--out DIR] [--bin PATH] [--version V] [--rpm]`.
    ///
    /// # Errors
    /// Any other word.
    pub fn parse(words: &[&str]) -> Result<Self> {
        let mut asked = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} wants a value"));
            match *word {
                "--out" => asked.out = Some(value()?.into()),
                "--bin" => asked.bin = Some(value()?.into()),
                "--version" => asked.version = Some((*value()?).to_owned()),
                "--rpm" => asked.rpm = true,
                _ => bail!("unknown word: {word}"),
            }
        }
        Ok(asked)
    }
}

/// The packages of one version.
pub struct Debs {
    /// With the binary.
    pub argonaut: PathBuf,
    /// With Ceph's names for it.
    pub names: PathBuf,
}

/// Makes what is asked for and prints where it is.
///
/// # Errors
/// Where a tool is missing or fails, or the binary cannot run where packages are installed.
pub fn run(asked: &Asked) -> Result<()> {
    let out = asked.out.clone().unwrap_or_else(|| sh::repo().join("target/packages"));
    let binary = match &asked.bin {
        Some(path) => path.clone(),
        None => cluster::binary()?,
    };
    let made = Made::of(&binary, &out)?;
    let version = asked.version.as_deref().unwrap_or(env!("CARGO_PKG_VERSION"));
    let debs = made.debs(version)?;
    println!("{}\n{}", debs.argonaut.display(), debs.names.display());
    if asked.rpm {
        for rpm in rpm::rpms(&made, version)? {
            println!("{}", rpm.display());
        }
    }
    Ok(())
}

/// A binary without what only a debugger reads, and what it says of itself, in a directory.
pub struct Made {
    out: PathBuf,
    binary: PathBuf,
    linked: linked::Linked,
}

impl Made {
    /// Looks at a binary and copies it to a directory for packages.
    ///
    /// # Errors
    /// Where it needs a library that no package is known for, or does not run here.
    pub fn of(binary: &Path, out: &Path) -> Result<Self> {
        std::fs::create_dir_all(out).with_context(|| out.display().to_string())?;
        let linked = linked::Linked::of(binary)?;
        println!("{}: {linked}", binary.display());
        for (suite, glibc) in linked::GLIBC {
            if !linked.runs_with(glibc) {
                println!(
                    "{suite} has glibc {}.{}, which is too old for it: build on {suite}",
                    glibc.0, glibc.1
                );
            }
        }
        let own = out.join("argonaut.stripped");
        // Functions keep their names: profiles and traces show them.
        let mut strip = Command::new("objcopy");
        sh::run(strip.arg("--strip-debug").arg(binary).arg(&own))?;
        Ok(Self { out: out.to_owned(), binary: own, linked })
    }

    /// Whether a suite's C library has what the binary asks for.
    pub fn runs_on(&self, suite: &str) -> bool {
        linked::GLIBC.iter().any(|(name, glibc)| *name == suite && self.linked.runs_with(*glibc))
    }

    /// Makes both packages.
    ///
    /// # Errors
    /// As [`run`].
    pub fn debs(&self, version: &str) -> Result<Debs> {
        let arch = self.linked.debian_arch()?;
        let root = self.out.join("root");
        tree::argonaut(&root, &self.binary)?;
        let argonaut = self.deb("argonaut", version, arch, &root)?;
        std::fs::remove_dir_all(&root)?;
        tree::names(&root, &self.binary)?;
        let names = self.deb("argonaut-ceph-names", version, "all", &root)?;
        std::fs::remove_dir_all(&root)?;
        Ok(Debs { argonaut, names })
    }

    /// Makes a package of a tree, with the scripts in `packaging/deb/NAME`.
    fn deb(&self, name: &str, version: &str, arch: &str, root: &Path) -> Result<PathBuf> {
        let debian = root.join("DEBIAN");
        std::fs::create_dir_all(&debian)?;
        let files = files(root)?;
        let kib = |path: &PathBuf| Ok(path.symlink_metadata()?.len().div_ceil(1024));
        let size = files.iter().map(kib).sum::<Result<u64>>()?;
        let from = sh::repo().join("packaging/deb").join(name);
        for entry in std::fs::read_dir(&from).with_context(|| from.display().to_string())? {
            let entry = entry?;
            let text = std::fs::read_to_string(entry.path())?;
            let text = text
                .replace("@VERSION@", version)
                .replace("@ARCH@", arch)
                .replace("@SIZE@", &size.to_string())
                .replace("@CEPH@", lab::SUITES[lab::SUITES.len() - 1].1)
                .replace("@DEPENDS@", &self.linked.depends());
            let is_script = text.starts_with("#!");
            tree::write(&debian.join(entry.file_name()), &text, is_script)?;
        }
        let inside = |path: &Path| {
            let inside = path.strip_prefix(root).expect("listed below it");
            inside.display().to_string()
        };
        let conffiles: String = files
            .iter()
            .map(|path| inside(path))
            .filter(|path| path.starts_with("etc/"))
            .map(|path| format!("/{path}\n"))
            .collect();
        if !conffiles.is_empty() {
            tree::write(&debian.join("conffiles"), &conffiles, false)?;
        }
        let regular = files.iter().filter(|path| !path.is_symlink());
        let mut sums = Command::new("md5sum");
        sums.current_dir(root).args(regular.map(|path| inside(path)));
        tree::write(&debian.join("md5sums"), &sh::output(&mut sums)?, false)?;
        let package = self.out.join(format!("{name}_{version}_{arch}.deb"));
        let mut build = Command::new("dpkg-deb");
        build.env("SOURCE_DATE_EPOCH", tree::epoch()?);
        build.args(["--root-owner-group", "-Zzstd", "--build"]).arg(root).arg(&package);
        sh::output(&mut build)?;
        Ok(package)
    }
}

/// Files and links below a directory, sorted.
fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(&dir)? {
            let path = entry?.path();
            if path.is_dir() && !path.is_symlink() {
                if path.file_name().is_some_and(|name| name != "DEBIAN") {
                    open.push(path);
                }
            } else {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Sets a file's mode.
fn mode(path: &Path, mode: u32) -> Result<()> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
        .with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever name the binary answers to is linked, or known to be that of `ceph-common`.
    #[test]
    fn every_name_of_the_binary_has_its_owner() {
        let source = sh::repo().join("crates/argonaut/src/names/mod.rs");
        let source = std::fs::read_to_string(source).unwrap();
        let mut found: Vec<&str> = source
            .split("Program { name: \"")
            .skip(1)
            .filter_map(|rest| rest.split('"').next())
            .collect();
        let mut known: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
        known.extend(OF_CEPH_COMMON);
        found.sort_unstable();
        known.sort_unstable();
        assert_eq!(found, known);
    }

    #[test]
    fn words_are_read() {
        let asked = Asked::parse(&["--out", "d", "--version", "1~old", "--rpm"]).unwrap();
        assert_eq!(asked.out.as_deref(), Some(Path::new("d")));
        assert_eq!((asked.version.as_deref(), asked.rpm), (Some("1~old"), true));
        assert!(Asked::parse(&["--out"]).is_err());
        assert!(Asked::parse(&["deb"]).is_err());
    }
}
