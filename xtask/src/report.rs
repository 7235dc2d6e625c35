//! Counting what passed and what failed, and saying so at the end.

use std::time::Instant;

use anyhow::{Result, bail};

/// Outcomes of named checks.
#[derive(Default)]
pub struct Report {
    passed: u32,
    /// What failed, each with the first [`TOLD`] lines of why.
    failed: Vec<String>,
    left_out: Vec<String>,
}

/// Lines of a failure that the end of a report repeats.
const TOLD: usize = 12;

/// A check that cannot be made where it runs; the report says so.
#[derive(Debug)]
pub struct LeftOut(pub String);

impl std::fmt::Display for LeftOut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for LeftOut {}

/// How a check went, as its line says.
enum Outcome<'a> {
    Passed,
    LeftOut(&'a str),
    Failed(&'a str),
}

const OK: &str = "ok      ";
const LEFT_OUT: &str = "LEFT OUT ";
const FAILED: &str = "FAILED  ";

impl<'a> Outcome<'a> {
    /// Reads a line of another process's report; `None` for any other line.
    fn parse(line: &'a str) -> Option<Self> {
        line.strip_prefix(OK)
            .map(|_| Self::Passed)
            .or_else(|| line.strip_prefix(LEFT_OUT).map(Self::LeftOut))
            .or_else(|| line.strip_prefix(FAILED).map(Self::Failed))
    }
}

/// The line of a check that failed.
pub fn failure(name: &str, why: &str) -> String {
    format!("{FAILED}{name}: {why}\n")
}

/// The first [`TOLD`] lines of `text`, none longer than 300 characters.
fn short(text: &str) -> String {
    let mut lines: Vec<String> =
        text.lines().take(TOLD).map(|l| l.chars().take(300).collect()).collect();
    if text.lines().nth(TOLD).is_some() {
        lines.push("...".to_owned());
    }
    lines.join("\n")
}

impl Report {
    /// Reads what another process's report printed.
    pub fn read(text: &str) -> Self {
        let mut report = Self::default();
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            match Outcome::parse(line) {
                Some(Outcome::Passed) => report.passed += 1,
                Some(Outcome::LeftOut(what)) => report.left_out.push(what.to_owned()),
                Some(Outcome::Failed(why)) => {
                    let mut why = why.to_owned();
                    while let Some(more) =
                        lines.next_if(|l| !l.is_empty() && Outcome::parse(l).is_none())
                    {
                        why.push('\n');
                        why.push_str(more);
                    }
                    report.failed.push(short(&why));
                }
                None => {}
            }
        }
        report
    }

    /// Whether a check failed.
    pub fn is_failure(&self) -> bool {
        !self.failed.is_empty()
    }

    /// Runs one check and prints how it went.
    pub fn check(&mut self, name: &str, body: impl FnOnce() -> Result<()>) {
        #[allow(clippy::disallowed_methods, reason = "a test runner tells how long tests took")]
        let start = Instant::now();
        match body() {
            Ok(()) => {
                self.passed += 1;
                println!("{OK}{name} ({:.1} s)", start.elapsed().as_secs_f64());
            }
            Err(err) if err.is::<LeftOut>() => {
                println!("{LEFT_OUT}{name}: {err}");
                self.left_out.push(format!("{name}: {err}"));
            }
            Err(err) => {
                let why = format!("{err:#}");
                print!("{}", failure(name, &why));
                self.failed.push(short(&format!("{name}: {why}")));
            }
        }
    }

    /// Adds another report's counts.
    pub fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed.extend(other.failed);
        self.left_out.extend(other.left_out);
    }

    /// Prints the sums.
    ///
    /// # Errors
    /// When anything failed: what, and why.
    pub fn end(self) -> Result<()> {
        println!();
        for name in &self.left_out {
            println!("left out: {name}");
        }
        let (failed, left_out) = (self.failed.len(), self.left_out.len());
        println!("{} passed, {failed} failed, {left_out} left out", self.passed);
        if self.is_failure() {
            bail!("{failed} checks failed:\n{}", self.failed.join("\n"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_read_back_keeps_why() {
        let long = (0..TOLD).map(|n| format!("line {n}")).collect::<Vec<_>>().join("\n");
        let text = format!(
            "{OK}one (0.1 s)\n{}  more\n{LEFT_OUT}three: no tool\nwords\n{}\nwords\n",
            failure("two", "why"),
            failure("four", &long)
        );
        let report = Report::read(&text);
        assert_eq!(report.passed, 1);
        assert_eq!(report.left_out, ["three: no tool"]);
        assert_eq!(report.failed[0], "two: why\n  more");
        assert!(report.failed[1].starts_with("four: line 0\nline 1\n"), "{:?}", report.failed);
        assert_eq!(report.failed.len(), 2);
        assert!(report.end().expect_err("two failed").to_string().contains("four: line 0"));
    }
}
