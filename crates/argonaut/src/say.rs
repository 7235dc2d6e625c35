//! What the program prints: results to standard output, the rest to standard error. Nothing here
//! panics: a reader may have gone, and a log may lie on a disk that is full.

use std::fmt::{self, Arguments, Display};
use std::io::{self, Write};

/// As `println!`, for readers that may go away in the middle, as `head` does: there is nothing
/// to be said to them any more, and nothing went wrong.
macro_rules! say {
    ($($words:tt)*) => { $crate::say::line(format_args!($($words)*)) };
}

/// As `eprintln!`; what cannot be written is lost.
macro_rules! tell {
    ($($words:tt)*) => { $crate::say::aside(format_args!($($words)*)) };
}

/// A shell's status of a program that SIGPIPE ended.
const BROKEN_PIPE: i32 = 128 + 13;

/// Standard output, for results. A reader that went away ends the process.
pub struct Out(io::Stdout);

/// See [`Out`].
#[allow(clippy::disallowed_methods, reason = "the one place that has it")]
pub fn out() -> Out {
    Out(io::stdout())
}

fn heard<T>(done: io::Result<T>) -> io::Result<T> {
    match done {
        Err(err) if err.kind() == io::ErrorKind::BrokenPipe => std::process::exit(BROKEN_PIPE),
        done => done,
    }
}

impl Write for Out {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        heard(self.0.write(buf))
    }
    fn flush(&mut self) -> io::Result<()> {
        heard(self.0.flush())
    }
}

/// Prints a line; ends the process where that cannot be done.
pub fn line(words: Arguments<'_>) {
    if let Err(err) = writeln!(out(), "{words}") {
        aside(format_args!("argonaut: writing to standard output: {err}"));
        std::process::exit(1);
    }
}

/// Writes a line to standard error, whole, as several processes may write to one log.
pub fn aside(words: Arguments<'_>) {
    io::stderr().write_all(format!("{words}\n").as_bytes()).ok();
}

/// Writes to standard error without an end of line, as for progress.
pub fn hint(words: Arguments<'_>) {
    let mut err = io::stderr();
    err.write_fmt(words).and_then(|()| err.flush()).ok();
}

/// An error and its causes as one sentence. A cause that the error's own words end with already is
/// not said again.
pub struct Why<'a>(pub &'a anyhow::Error);

impl Display for Why<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut last = String::new();
        for cause in self.0.chain() {
            let words = cause.to_string();
            if last.ends_with(&words) {
                continue;
            }
            let between = if last.is_empty() { "" } else { ": " };
            write!(f, "{between}{words}")?;
            last = words;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::Why;

    #[test]
    fn a_cause_is_said_once() {
        let read = std::fs::read("/nowhere/ceph.conf");
        let err = read.map_err(|source| rados::ConfigError::Read {
            path: "/nowhere/ceph.conf".into(),
            source,
        });
        let err = err.context("the cluster").unwrap_err();
        let said = Why(&err).to_string();
        assert_eq!(said.matches("No such file").count(), 1, "{said}");
        assert!(said.starts_with("the cluster: cannot read /nowhere/ceph.conf: No"), "{said}");
    }
}
