//! What packages put where.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{NAMES, mode};
use crate::sh;

/// Where units go.
const UNITS: &str = "usr/lib/systemd/system";

/// Pages of the documentation that operators read where the program is.
const PAGES: &[&str] = &["README.md", "COMPAT.md", "docs/security.md", "docs/start.md"];

/// Directories of Ceph's daemons and tools, empty.
const DIRECTORIES: &[&str] = &[
    "mon",
    "osd",
    "mgr",
    "mds",
    "radosgw",
    "crash/posted",
    "tmp",
    "bootstrap-mds",
    "bootstrap-mgr",
    "bootstrap-osd",
    "bootstrap-rbd",
    "bootstrap-rbd-mirror",
    "bootstrap-rgw",
];

/// Lays out the package with the binary.
///
/// # Errors
/// When the binary does not run, or a file cannot be written.
pub fn argonaut(root: &Path, binary: &Path) -> Result<()> {
    start(root)?;
    copy(binary, &root.join("usr/bin/argonaut"), 0o755)?;
    units(root, |name| name.starts_with("argonaut") && !name.ends_with(".sysusers"))?;
    let ours = |from: &str, to: &str| copy(&sh::repo().join(from), &root.join(to), 0o644);
    ours("docs/ops/systemd/argonaut.sysusers", "usr/lib/sysusers.d/argonaut.conf")?;
    ours("packaging/files/argonaut.tmpfiles", "usr/lib/tmpfiles.d/argonaut.conf")?;
    ours("packaging/files/argonaut.logrotate", "etc/logrotate.d/argonaut")?;
    completions(root, binary)?;
    manual(root, binary)?;
    let docs = root.join("usr/share/doc/argonaut");
    for page in PAGES {
        copy(&sh::repo().join(page), &docs.join(page.trim_start_matches("docs/")), 0o644)?;
    }
    for entry in std::fs::read_dir(sh::repo().join("docs/ops"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "md") {
            copy(&path, &docs.join("ops").join(path.file_name().expect("a file")), 0o644)?;
        }
    }
    let changes = std::fs::read_to_string(sh::repo().join("CHANGELOG.md"))?;
    zipped(&docs.join("changelog.gz"), &changes)?;
    copyright(root, "argonaut")?;
    zipped(&docs.join("third-party.txt.gz"), &third_party()?)
}

/// Lays out the package with Ceph's names.
///
/// # Errors
/// As [`argonaut`].
pub fn names(root: &Path, binary: &Path) -> Result<()> {
    start(root)?;
    let bin = root.join("usr/bin");
    std::fs::create_dir_all(&bin)?;
    for (name, what) in NAMES {
        symlink("argonaut", bin.join(name))?;
        let help = sh::output(Command::new(binary).args([name, "--help"]))
            .with_context(|| format!("argonaut {name} --help"))?;
        let page = root.join(format!("usr/share/man/man8/{name}.8.gz"));
        zipped(&page, &of_help(name, what, &help))?;
    }
    // `ceph.target` is ceph-common's.
    units(root, |name| name.starts_with("ceph-"))?;
    let ours = |from: &str, to: &str| {
        copy(&sh::repo().join("packaging/files").join(from), &root.join(to), 0o644)
    };
    ours("ceph-names.sysusers", "usr/lib/sysusers.d/argonaut-ceph-names.conf")?;
    ours("ceph-names.tmpfiles", "usr/lib/tmpfiles.d/argonaut-ceph-names.conf")?;
    ours("ceph-names.logrotate", "usr/share/argonaut-ceph-names/logrotate")?;
    ours("95-argonaut-ceph-lvm.rules", "usr/lib/udev/rules.d/95-argonaut-ceph-lvm.rules")?;
    for dir in DIRECTORIES {
        let dir = root.join("var/lib/ceph").join(dir);
        std::fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
    }
    copyright(root, "argonaut-ceph-names")
}

/// Writes a text, with directories above it, where nothing of an earlier layout is left.
///
/// # Errors
/// When it cannot be written.
pub fn write(path: &Path, text: &str, executable: bool) -> Result<()> {
    std::fs::create_dir_all(path.parent().context("a file in a directory")?)?;
    std::fs::write(path, text).with_context(|| path.display().to_string())?;
    mode(path, if executable { 0o755 } else { 0o644 })
}

/// The time of the last commit, s since 1970: what packages say of their files.
///
/// # Errors
/// Outside of a repository.
pub fn epoch() -> Result<String> {
    let mut git = Command::new("git");
    let time = sh::output(git.current_dir(sh::repo()).args(["log", "-1", "--format=%ct"]))?;
    Ok(time.trim().to_owned())
}

fn start(root: &Path) -> Result<()> {
    if root.exists() {
        std::fs::remove_dir_all(root).with_context(|| root.display().to_string())?;
    }
    std::fs::create_dir_all(root).with_context(|| root.display().to_string())
}

fn copy(from: &Path, to: &Path, bits: u32) -> Result<()> {
    std::fs::create_dir_all(to.parent().context("a file in a directory")?)?;
    std::fs::copy(from, to).with_context(|| from.display().to_string())?;
    mode(to, bits)
}

fn zipped(path: &Path, text: &str) -> Result<()> {
    let plain = path.with_extension("");
    write(&plain, text, false)?;
    sh::output(Command::new("gzip").args(["-9nf"]).arg(&plain)).map(drop)
}

fn units(root: &Path, wanted: impl Fn(&str) -> bool) -> Result<()> {
    let from = sh::repo().join("docs/ops/systemd");
    for entry in std::fs::read_dir(&from).with_context(|| from.display().to_string())? {
        let name = entry?.file_name().into_string().unwrap_or_default();
        if wanted(&name) {
            copy(&from.join(&name), &root.join(UNITS).join(&name), 0o644)?;
        }
    }
    Ok(())
}

fn completions(root: &Path, binary: &Path) -> Result<()> {
    for (shell, path) in [
        ("bash", "usr/share/bash-completion/completions/argonaut"),
        ("zsh", "usr/share/zsh/vendor-completions/_argonaut"),
        ("fish", "usr/share/fish/vendor_completions.d/argonaut.fish"),
    ] {
        let text = sh::output(Command::new(binary).args(["completions", shell]))?;
        write(&root.join(path), &text, false)?;
    }
    Ok(())
}

fn manual(root: &Path, binary: &Path) -> Result<()> {
    let dir = root.join("usr/share/man/man1");
    std::fs::create_dir_all(&dir)?;
    sh::output(Command::new(binary).arg("man").arg(&dir))?;
    let pages: Vec<PathBuf> =
        std::fs::read_dir(&dir)?.map(|e| e.map(|e| e.path())).collect::<Result<_, _>>()?;
    sh::output(Command::new("gzip").arg("-9nf").args(pages)).map(drop)
}

/// A manual page of a program's `--help`.
fn of_help(name: &str, what: &str, help: &str) -> String {
    let roff = |text: &str| text.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq");
    let mut page = format!(
        ".TH {} 8 \"\" \"argonaut\"\n.SH NAME\n{} \\- {}\n.SH DESCRIPTION\n\
         A name of \\fBargonaut\\fR(1), which takes the flags of Ceph\\(aqs program of this name.\n\
         .SH USAGE\n.nf\n",
        name.to_uppercase(),
        roff(name),
        roff(what)
    );
    for line in help.trim_end().lines() {
        let dot = if line.starts_with('.') { "\\&" } else { "" };
        writeln!(page, "{dot}{}", roff(line)).expect("to a string");
    }
    page + ".fi\n.SH SEE ALSO\n\\fBargonaut\\fR(1)\n"
}

fn copyright(root: &Path, package: &str) -> Result<()> {
    let text = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
        Upstream-Name: argonaut\n\n\
        Files: *\nCopyright: Argonaut's authors\nLicense: Apache-2.0\n\
        \x20On Debian systems the text of this licence is in /usr/share/common-licenses/Apache-2.0.\n\
        \x20.\n\
        \x20What the program holds of others, and under which licences, is in\n\
        \x20/usr/share/doc/argonaut/third-party.txt.gz.\n";
    write(&root.join("usr/share/doc").join(package).join("copyright"), text, false)
}

/// Names, versions and licences of all crates that the binary is built of, then the texts.
fn third_party() -> Result<String> {
    let mut cargo = sh::cargo(&["metadata", "--format-version", "1", "--locked"]);
    cargo.args(["--filter-platform", "x86_64-unknown-linux-gnu"]);
    let metadata: serde_json::Value =
        serde_json::from_str(&sh::output(&mut cargo)?).context("cargo metadata prints JSON")?;
    let list = |value: &serde_json::Value| value.as_array().cloned().unwrap_or_default();
    let packages: BTreeMap<String, serde_json::Value> = list(&metadata["packages"])
        .into_iter()
        .filter_map(|package| Some((package["id"].as_str()?.to_owned(), package)))
        .collect();
    let nodes: BTreeMap<String, serde_json::Value> = list(&metadata["resolve"]["nodes"])
        .into_iter()
        .filter_map(|node| Some((node["id"].as_str()?.to_owned(), node)))
        .collect();
    let first = packages.iter().find(|(_, package)| package["name"] == "argonaut");
    let mut open = vec![first.context("crate argonaut")?.0.clone()];
    let mut seen = BTreeSet::new();
    while let Some(id) = open.pop() {
        if !seen.insert(id.clone()) {
            continue;
        }
        for dependency in list(&nodes[&id]["deps"]) {
            let linked = list(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
            if let Some(id) = dependency["pkg"].as_str().filter(|_| linked) {
                open.push(id.to_owned());
            }
        }
    }
    let (mut table, mut texts) = (String::new(), BTreeMap::<String, Vec<String>>::new());
    for package in packages.iter().filter(|(id, _)| seen.contains(*id)).map(|(_, p)| p) {
        if package["source"].is_null() {
            continue;
        }
        let text = |key: &str| package[key].as_str().unwrap_or_default();
        let name = format!("{} {}", text("name"), text("version"));
        writeln!(table, "{name}: {}", text("license"))?;
        let dir = Path::new(text("manifest_path")).parent().context("a crate's directory")?;
        for entry in std::fs::read_dir(dir).with_context(|| dir.display().to_string())? {
            let path = entry?.path();
            let file = path.file_name().and_then(|f| f.to_str()).unwrap_or_default().to_uppercase();
            let is_licence = ["LICEN", "COPYING", "NOTICE"].iter().any(|l| file.starts_with(l));
            if is_licence && path.is_file() {
                let words = String::from_utf8_lossy(&std::fs::read(&path)?).trim().to_owned();
                texts.entry(words).or_default().push(name.clone());
            }
        }
    }
    let mut whole = format!("Crates of others in the program, and their licences.\n\n{table}");
    for (words, crates) in texts {
        writeln!(whole, "\n{}\n{}\n\n{words}", "-".repeat(72), crates.join(", "))?;
    }
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_becomes_a_page() {
        let page = of_help("ceph-osd", "daemon", "usage: ceph-osd -i ID\n.x 'y' \\z\n");
        assert!(page.starts_with(".TH CEPH-OSD 8 "), "{page}");
        assert!(
            page.contains("\nusage: ceph\\-osd \\-i ID\n\\&.x \\(aqy\\(aq \\ez\n.fi\n"),
            "{page}"
        );
    }

    #[test]
    fn licences_of_what_is_linked_are_told() {
        let told = third_party().unwrap();
        assert!(told.contains("\ntokio 1."), "a library");
        assert!(!told.contains("\nproptest "), "only tests need it");
        assert!(told.contains("Permission is hereby granted"), "texts");
    }
}
