//! What a binary needs of the system that runs it: libraries, and the version of glibc.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::sh;

/// A version of glibc, `(2, 36)`.
pub type Glibc = (u32, u32);

/// That of each suite that packages are for.
pub const GLIBC: [(&str, Glibc); 3] =
    [("bookworm", (2, 36)), ("trixie", (2, 41)), ("forky", (2, 43))];

/// Debian's package with a library. One that is missing here is refused, not guessed.
const PACKAGES: &[(&str, &str)] = &[
    ("libc.so.6", "libc6"),
    ("libm.so.6", "libc6"),
    ("libdl.so.2", "libc6"),
    ("librt.so.1", "libc6"),
    ("libpthread.so.0", "libc6"),
    ("ld-linux-x86-64.so.2", "libc6"),
    ("ld-linux-aarch64.so.1", "libc6"),
    ("libgcc_s.so.1", "libgcc-s1"),
    ("libstdc++.so.6", "libstdc++6"),
];

/// What `readelf` says of a binary.
#[derive(Debug)]
pub struct Linked {
    machine: String,
    /// As the loader looks for them; none where it is static.
    libraries: Vec<String>,
    /// The newest version of a symbol that it asks for.
    glibc: Option<Glibc>,
}

impl Linked {
    /// Looks at a binary.
    ///
    /// # Errors
    /// What `readelf` cannot read, and a library of no known package.
    pub fn of(binary: &Path) -> Result<Self> {
        let readelf = |flags: &str| {
            let mut command = Command::new("readelf");
            sh::output(command.env("LC_ALL", "C").args(["--wide", flags]).arg(binary))
        };
        Self::parse(&readelf("-hd")?, &readelf("-V")?)
    }

    fn parse(head: &str, versions: &str) -> Result<Self> {
        let machine = head.lines().find_map(|l| l.trim().strip_prefix("Machine:"));
        let machine = machine.context("readelf names no machine")?.trim().to_owned();
        let library = |line: &str| {
            line.contains("(NEEDED)").then(|| line.split(['[', ']']).nth(1).map(str::to_owned))?
        };
        let libraries: Vec<String> = head.lines().filter_map(library).collect();
        for library in &libraries {
            if !PACKAGES.iter().any(|(name, _)| name == library) {
                bail!("the binary needs {library}, and no package is known to have it");
            }
        }
        let asked = versions.split("GLIBC_").skip(1).filter_map(|rest| {
            let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
            let mut numbers = rest[..end].split('.').map(str::parse);
            Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
        });
        Ok(Self { machine, libraries, glibc: asked.max() })
    }

    /// Whether it runs with a version of glibc.
    pub fn runs_with(&self, glibc: Glibc) -> bool {
        self.glibc.is_none_or(|asked| asked <= glibc)
    }

    /// The architecture as Debian calls it.
    ///
    /// # Errors
    /// One that nothing is built for.
    pub fn debian_arch(&self) -> Result<&'static str> {
        match self.machine.as_str() {
            "Advanced Micro Devices X86-64" => Ok("amd64"),
            "AArch64" => Ok("arm64"),
            other => bail!("no packages are made for {other}"),
        }
    }

    /// The architecture as RPM calls it.
    ///
    /// # Errors
    /// As [`Self::debian_arch`].
    pub fn rpm_arch(&self) -> Result<&'static str> {
        Ok(if self.debian_arch()? == "amd64" { "x86_64" } else { "aarch64" })
    }

    /// Debian's packages that have its libraries, as the first part of a `Depends` field; empty where it is
    /// static.
    pub fn depends(&self) -> String {
        let package = |library: &String| {
            let package = PACKAGES.iter().find(|(name, _)| name == library)?.1;
            Some(match self.glibc {
                Some((major, minor)) if package == "libc6" => {
                    format!("libc6 (>= {major}.{minor})")
                }
                _ => package.to_owned(),
            })
        };
        let packages: BTreeSet<String> = self.libraries.iter().filter_map(package).collect();
        packages.into_iter().map(|package| package + ", ").collect()
    }
}

impl fmt::Display for Linked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.glibc {
            Some((major, minor)) => {
                write!(f, "needs {}, glibc {major}.{minor} or later", self.libraries.join(", "))
            }
            None => write!(f, "needs no library"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "ELF Header:
  Machine:                           Advanced Micro Devices X86-64
Dynamic section at offset 0x1 contains 3 entries:
 0x0000000000000001 (NEEDED)             Shared library: [libgcc_s.so.1]
 0x0000000000000001 (NEEDED)             Shared library: [libm.so.6]
 0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]
";

    #[test]
    fn packages_follow_from_libraries() {
        let versions =
            "  0x0010:   Name: GLIBC_2.9  Flags: none\n 005 2 (GLIBC_2.34)\n GLIBC_2.2.5 ";
        let linked = Linked::parse(HEAD, versions).unwrap();
        assert_eq!(linked.depends(), "libc6 (>= 2.34), libgcc-s1, ");
        assert_eq!(
            (linked.debian_arch().unwrap(), linked.rpm_arch().unwrap()),
            ("amd64", "x86_64")
        );
        assert!(linked.runs_with((2, 36)) && !linked.runs_with((2, 33)));
        let odd = HEAD.replace("libm.so.6", "libssl.so.3");
        let why = Linked::parse(&odd, versions).unwrap_err().to_string();
        assert!(why.contains("libssl.so.3"), "{why}");
    }

    #[test]
    fn a_static_binary_depends_on_nothing() {
        let linked = Linked::parse("  Machine: AArch64\n", "No version information").unwrap();
        assert_eq!((linked.depends(), linked.debian_arch().unwrap()), (String::new(), "arm64"));
        assert!(linked.runs_with((2, 36)));
    }
}
