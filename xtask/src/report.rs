//! Counting what passed and what failed, and saying so at the end.

use std::time::Instant;

use anyhow::{Result, bail};

/// Outcomes of named checks.
#[derive(Default)]
pub struct Report {
    passed: u32,
    failed: Vec<String>,
}

impl Report {
    /// Runs one check and prints how it went.
    pub fn check(&mut self, name: &str, body: impl FnOnce() -> Result<()>) {
        #[allow(clippy::disallowed_methods, reason = "a test runner tells how long tests took")]
        let start = Instant::now();
        match body() {
            Ok(()) => {
                self.passed += 1;
                println!("ok      {name} ({:.1} s)", start.elapsed().as_secs_f64());
            }
            Err(err) => {
                println!("FAILED  {name}: {err:#}");
                self.failed.push(name.to_owned());
            }
        }
    }

    /// Adds another report's counts.
    pub fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed.extend(other.failed);
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
        println!("{} passed, {} failed", self.passed, self.failed.len());
        if !self.failed.is_empty() {
            bail!("{} checks failed", self.failed.len());
        }
        Ok(())
    }
}
