//! Fuzzing: bytes that look for a way to break a decoder, guided by what they reach.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::report::Report;
use crate::sh;

/// Input beyond this teaches nothing new.
const INPUT_BYTES_MAX: u32 = 64 << 10;
/// One input may take so long, in seconds.
const INPUT_SECS_MAX: u32 = 20;
/// Memory a target may take, in MiB.
const MEMORY_MIB_MAX: u32 = 2048;

/// Cargo of the nightly toolchain, which targets are built with.
pub fn nightly(args: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
    command.current_dir(sh::repo()).arg("+nightly").args(args);
    command
}

/// Whether a command can be run, and ends well.
pub fn works(mut command: Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|s| s.success())
}

/// Looks at the types of all targets, as they are when they are fuzzed. The stable compiler will
/// do: nothing is linked, so no fuzzing library is built either.
pub fn check() -> Command {
    let mut command = sh::cargo(&["check", "--quiet", "--locked", "--bins"]);
    command.args(["--manifest-path", "fuzz/Cargo.toml"]);
    // A folder of its own: other flags mean other artifacts of every crate.
    command.args(["--target-dir", "target/fuzz-check"]);
    command.env("RUSTFLAGS", "--cfg fuzzing").env("CUSTOM_LIBFUZZER_PATH", "none/none.a");
    command
}

/// The targets, in order of their names.
///
/// # Errors
/// When the directory cannot be read.
pub fn targets() -> Result<Vec<String>> {
    let dir = sh::repo().join("fuzz/fuzz_targets");
    let entries = std::fs::read_dir(&dir).with_context(|| dir.display().to_string())?;
    let mut names: Vec<String> = entries
        .filter_map(|e| {
            let name = e.ok()?.file_name().into_string().ok()?;
            Some(name.strip_suffix(".rs")?.to_owned())
        })
        .collect();
    names.sort();
    Ok(names)
}

/// Fuzzes the target named, or all, for `secs` seconds each. What a target finds lies in
/// `fuzz/artifacts/TARGET`, what it learned in `fuzz/corpus/TARGET`.
///
/// # Errors
/// When the tools are missing or there is no such target; crashes are in the report.
pub fn run(target: Option<&str>, secs: u64) -> Result<Report> {
    let all = targets()?;
    let chosen: Vec<&str> = match target {
        None => all.iter().map(String::as_str).collect(),
        Some(name) if all.iter().any(|t| t == name) => vec![name],
        Some(name) => bail!("no fuzz target '{name}'; there are: {}", all.join(", ")),
    };
    if !works(nightly(&["--version"])) {
        bail!("fuzzing wants a nightly compiler: rustup toolchain install nightly");
    }
    if !works(nightly(&["fuzz", "--version"])) {
        bail!("fuzzing wants cargo-fuzz: cargo install cargo-fuzz --locked");
    }
    let seed = std::process::id();
    println!("seed {seed}");
    let mut report = Report::default();
    for name in chosen {
        report.check(&format!("fuzz {name} for {secs} s"), || one(name, secs, seed));
    }
    Ok(report)
}

fn one(name: &str, secs: u64, seed: u32) -> Result<()> {
    let learned = format!("fuzz/corpus/{name}");
    std::fs::create_dir_all(sh::repo().join(&learned))?;
    let mut command = nightly(&["fuzz", "run", name, &learned]);
    let seeds = format!("fuzz/seeds/{name}");
    if sh::repo().join(&seeds).is_dir() {
        command.arg(&seeds);
    }
    command.arg("--");
    for (option, value) in [
        ("max_total_time", secs),
        ("seed", seed.into()),
        ("max_len", INPUT_BYTES_MAX.into()),
        ("timeout", INPUT_SECS_MAX.into()),
        ("rss_limit_mb", MEMORY_MIB_MAX.into()),
    ] {
        command.arg(format!("-{option}={value}"));
    }
    sh::run(&mut command).with_context(|| format!("what it found: fuzz/artifacts/{name}"))
}
