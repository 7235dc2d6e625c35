//! Counting what passed and what failed, and saying so at the end.

use std::time::Instant;

use anyhow::{Result, bail};

/// Outcomes of named checks.
#[derive(Default)]
pub struct Report {
    passed: u32,
    failed: Vec<String>,
    left_out: Vec<String>,
}

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
pub enum Outcome<'a> {
    Passed,
    LeftOut(&'a str),
    Failed(&'a str),
}

const OK: &str = "ok      ";
const LEFT_OUT: &str = "LEFT OUT ";
const FAILED: &str = "FAILED  ";

impl<'a> Outcome<'a> {
    /// Reads a line of another process's report; `None` for any other line.
    pub fn parse(line: &'a str) -> Option<Self> {
        let failed = |rest: &'a str| Self::Failed(rest.split(": ").next().unwrap_or(rest));
        line.strip_prefix(OK)
            .map(|_| Self::Passed)
            .or_else(|| line.strip_prefix(LEFT_OUT).map(Self::LeftOut))
            .or_else(|| line.strip_prefix(FAILED).map(failed))
    }

    /// Whether the check failed.
    pub fn is_failure(&self) -> bool {
        matches!(self, Self::Failed(_))
    }

    /// The line of a check that failed.
    pub fn failure(name: &str, why: &str) -> String {
        format!("{FAILED}{name}: {why}\n")
    }
}

impl Report {
    /// Counts a check of another process.
    pub fn count(&mut self, outcome: Outcome<'_>) {
        match outcome {
            Outcome::Passed => self.passed += 1,
            Outcome::LeftOut(what) => self.left_out.push(what.to_owned()),
            Outcome::Failed(name) => self.failed.push(name.to_owned()),
        }
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
                print!("{}", Outcome::failure(name, &format!("{err:#}")));
                self.failed.push(name.to_owned());
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
    /// When anything failed.
    pub fn end(self) -> Result<()> {
        println!();
        for name in &self.failed {
            println!("failed: {name}");
        }
        for name in &self.left_out {
            println!("left out: {name}");
        }
        let (failed, left_out) = (self.failed.len(), self.left_out.len());
        println!("{} passed, {failed} failed, {left_out} left out", self.passed);
        if !self.failed.is_empty() {
            bail!("{} checks failed", self.failed.len());
        }
        Ok(())
    }
}
