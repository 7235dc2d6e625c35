//! The object store's verbs: crash states without end, and how fast it is beside the raw
//! device.

use std::process::Command;

use anyhow::{Context, Result};

use crate::sh;

fn example(name: &str, args: &[&str]) -> Command {
    let mut line = vec!["run", "--quiet", "--release", "-p", "store", "--example", name, "--"];
    line.extend(args);
    sh::cargo(&line)
}

/// Explores crash states (`--states N`, `--seed S`, `--seeds N`), then disks that lie, at
/// each call.
///
/// # Errors
/// When a state is not what it must be; its seed is printed.
pub fn sim(args: &[&str]) -> Result<()> {
    sh::run(&mut example("sim", args))?;
    if args.contains(&"--seeds") {
        return Ok(());
    }
    let mut lies = sh::cargo(&[
        "test",
        "--quiet",
        "--release",
        "-p",
        "store",
        "--test",
        "bad_disk",
        "--",
        "--nocapture",
    ]);
    sh::run(lies.env("STORE_ALL", "1").env("STORE_SEEDS", "100"))
}

/// Measures the store beside the raw device; the table is kept in `bench/results`.
///
/// # Errors
/// When it fails.
pub fn bench(args: &[&str]) -> Result<()> {
    let text = sh::output(&mut example("bench", args))?;
    print!("{text}");
    let date = sh::output(Command::new("date").args(["-u", "+%Y-%m-%d-%H%M"]))?.trim().to_owned();
    let commit = ["rev-parse", "--short", "HEAD"];
    let commit = sh::output(Command::new("git").current_dir(sh::repo()).args(commit))?;
    let cpu = sh::output(&mut sh::bash("grep -m1 'model name' /proc/cpuinfo | cut -d: -f2"))?;
    let path = sh::repo().join(format!("bench/results/{date}-store.md"));
    std::fs::create_dir_all(path.parent().context("a directory")?)?;
    let words = args.join(" ");
    let head = format!(
        "# The object store beside its device, {date}\n\n`cargo xtask bench store {words}` at {}. \
         Machine: 2 cores,{cpu}\n",
        commit.trim()
    );
    std::fs::write(&path, head + &text)?;
    println!("kept in {}", path.display());
    Ok(())
}
