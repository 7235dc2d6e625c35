//! Proofs of the unsafe code: Miri where it can follow, the address sanitizer where the code calls
//! the kernel or uses vectors that Miri does not know.

use anyhow::{Result, bail};

use crate::fuzz::{nightly, works};
use crate::report::Report;
use crate::sh;

/// Triple of the sanitizer's builds: named, so that build scripts are built without it.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// What Miri runs: crate, filter of its unit tests, features of the processor that it plays.
const MIRI: &[(&str, &str, &str)] = &[
    ("store", "buf::", ""),
    ("crush", "hash::", ""),
    ("crush", "hash::", "+avx2"),
    ("ec", "region::", ""),
    ("ec", "region::", "+avx2,+gfni"),
];

/// What runs under the address sanitizer: crate, and further arguments. The rings of the store are
/// in its test `ring`.
const SANITIZED: &[(&str, &[&str])] = &[
    ("ec", &["--lib"]),
    ("crush", &["--lib", "hash::"]),
    ("store", &["--lib", "--test", "ring", "--test", "logring", "--test", "stage"]),
];

/// Runs the tests of all code that is marked `unsafe`, but for calls of jemalloc (which the
/// sanitizer replaces) and registrations of descriptors (of which neither tool knows anything).
///
/// # Errors
/// When the tools are missing; what they find is in the report.
pub fn run() -> Result<Report> {
    if !works(nightly(&["miri", "--version"])) {
        bail!("this wants Miri: rustup toolchain install nightly --component miri,rust-src");
    }
    let mut report = Report::default();
    let flags = |command: &mut std::process::Command, flags: String| {
        command.env("RUSTFLAGS", flags).env("CARGO_TARGET_DIR", sh::repo().join("target/nightly"));
    };
    for (package, filter, features) in MIRI {
        report.check(&format!("miri: {package} {filter} {features}"), || {
            let mut command = nightly(&["miri", "test", "-q", "-p", package, "--lib", filter]);
            flags(&mut command, format!("-Ctarget-feature={features}"));
            ran_some(&sh::output(&mut command)?)
        });
    }
    for (package, args) in SANITIZED {
        report.check(&format!("address sanitizer: {package} {}", args.join(" ")), || {
            let mut command = nightly(&["test", "-q", "--target", TARGET, "-p", package]);
            flags(command.args(*args), "-Zsanitizer=address".into());
            ran_some(&sh::output(&mut command)?)
        });
    }
    Ok(report)
}

/// A filter that fits no test proves nothing.
fn ran_some(output: &str) -> Result<()> {
    let passed = output.lines().filter_map(|l| l.strip_prefix("test result: ok. "));
    let passed = passed.filter_map(|l| l.split(' ').next()?.parse::<u32>().ok());
    match passed.sum::<u32>() {
        0 => bail!("no test ran"),
        n => {
            println!("        {n} tests");
            Ok(())
        }
    }
}
