//! Ceph's programs by their names, as modes of the one binary: a link or copy that is named so, or the
//! name as the first word, `argonaut ceph-osd ...`.
//!
//! | module | what it is about |
//! | --- | --- |
//! | [`flags`] | the flags that all programs share |
//! | [`setup`] | from a command line to options: files, sections, defaults of a daemon |
//! | [`privileges`], [`background`] | another user; a daemon that its caller does not wait for |
//! | [`mon`], [`osd`], [`others`] | `ceph-mon`, `ceph-osd`; `ceph-mgr`, `ceph-mds`, `radosgw` |
//! | [`authtool`], [`monmaptool`], [`ceph_conf`], [`bluestore_tool`], [`objectstore_tool`], [`crash`] | the tools of these names |
//!
//! Texts and exit codes are upstream's where tools or people look at them.

mod authtool;
mod background;
mod bluestore_tool;
mod ceph_conf;
mod crash;
pub mod flags;
mod mon;
mod monmaptool;
mod objectstore_tool;
mod osd;
mod others;
mod privileges;
mod setup;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use crate::say::Why;

/// How a program ends that did what it was asked for: its exit code.
pub type Done = Result<u8, Failed>;

/// Why a program did not do what it was asked for.
#[derive(Debug)]
pub enum Failed {
    /// Words of upstream's and an exit code; empty words print nothing.
    Said(String, u8),
    /// Our own words, which go behind the program's name; the exit code is 1.
    Why(anyhow::Error),
}

impl Failed {
    /// Upstream's words, with the exit code 1.
    pub fn said(words: impl Into<String>) -> Self {
        Self::Said(words.into(), 1)
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failed {
    fn from(why: E) -> Self {
        Self::Why(why.into())
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Said(words, _) => f.write_str(words),
            Self::Why(why) => Why(why).fmt(f),
        }
    }
}

/// An error as upstream prints it: `(2) No such file or directory`.
pub fn reason(err: &std::io::Error) -> String {
    let text = err.to_string();
    match (err.raw_os_error(), text.split_once(" (os error")) {
        (Some(code), Some((words, _))) => format!("({code}) {words}"),
        _ => text,
    }
}

/// One of Ceph's programs.
pub struct Program {
    /// As upstream calls it.
    pub name: &'static str,
    run: fn(&[String]) -> Done,
}

/// Every name that this binary answers to.
pub const PROGRAMS: &[Program] = &[
    Program { name: "ceph-mon", run: mon::run },
    Program { name: "ceph-osd", run: osd::run },
    Program { name: "ceph-mgr", run: others::mgr },
    Program { name: "ceph-mds", run: others::mds },
    Program { name: "radosgw", run: others::radosgw },
    Program { name: "ceph-authtool", run: authtool::run },
    Program { name: "monmaptool", run: monmaptool::run },
    Program { name: "ceph-conf", run: ceph_conf::run },
    Program { name: "ceph-bluestore-tool", run: bluestore_tool::run },
    Program { name: "ceph-objectstore-tool", run: objectstore_tool::run },
    Program { name: "ceph-exporter", run: others::exporter },
    Program { name: "ceph-crash", run: crash::run },
    Program { name: "crushtool", run: others::crushtool },
];

/// Which program a command line asks for, and its arguments: by the name that this process was
/// started under, else by the first word.
pub fn called(mut args: impl Iterator<Item = OsString>) -> Option<(&'static Program, Vec<String>)> {
    let by_name = |name: &str| PROGRAMS.iter().find(|program| program.name == name);
    let own = args.next()?;
    let own = Path::new(&own).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let program = match by_name(&own) {
        Some(program) => program,
        None => by_name(&args.next()?.to_string_lossy())?,
    };
    Some((program, args.map(|arg| arg.to_string_lossy().into_owned()).collect()))
}

impl Program {
    /// Does what the arguments ask for, and prints why it does not.
    pub fn run(&self, args: &[String]) -> ExitCode {
        match (self.run)(args) {
            Ok(code) => ExitCode::from(code),
            Err(Failed::Said(words, code)) => {
                if !words.is_empty() {
                    tell!("{words}");
                }
                ExitCode::from(code)
            }
            Err(Failed::Why(why)) => {
                tell!("{}: {}", self.name, Why(&why));
                ExitCode::FAILURE
            }
        }
    }
}

#[cfg(test)]
mod called_by {
    use super::*;

    #[test]
    fn programs_are_known_by_link_and_by_word() {
        let called = |line: &str| {
            let (program, args) = called(line.split(' ').map(OsString::from))?;
            Some((program.name, args))
        };
        let args = vec!["-i".to_owned(), "0".to_owned()];
        assert_eq!(called("/usr/bin/ceph-osd -i 0"), Some(("ceph-osd", args.clone())));
        assert_eq!(called("argonaut ceph-osd -i 0"), Some(("ceph-osd", args)));
        assert_eq!(called("ceph-osd ceph-mon").map(|(name, _)| name), Some("ceph-osd"));
        assert_eq!(called("argonaut up"), None);
        assert_eq!(called("argonaut"), None);
        assert!(super::called(std::iter::empty()).is_none());
    }
}
