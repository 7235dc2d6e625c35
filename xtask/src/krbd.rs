//! The kernel's block device driver, in a virtual machine with Debian's kernel, against a
//! cluster of ours: `tests/krbd.sh`.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::cluster::{Cluster, IMAGE_POOLS};
use crate::report::Report;
use crate::{qemu, sh};

/// The network namespace that cluster and guest share.
const NETNS: &str = "argonaut-guest";
const SUITE: &str = "forky";

fn guest(args: &[&str]) -> Command {
    let mut command = Command::new("bash");
    command.arg(sh::repo().join("lab/guest")).args(args).env("GUEST_NETNS", NETNS);
    command.env("GUEST_TIMEOUT", "1500");
    command
}

/// Runs the script in `modes` of the messenger: crc, secure, legacy (v1).
///
/// # Errors
/// When the namespace, the guest or the cluster cannot be made; what failed is in the report.
pub fn run(modes: &[&str]) -> Result<Report> {
    let mut report = Report::default();
    let addr = sh::output(&mut guest(&["netns-up"]))?;
    let ran = cases(&mut report, addr.trim(), modes);
    sh::output(&mut guest(&["netns-down"]))?;
    ran.map(|()| report)
}

fn cases(report: &mut Report, addr: &str, modes: &[&str]) -> Result<()> {
    let args = ["--osds", "4", "--osd-bytes", "4G", "--addr", addr];
    let cluster = Cluster::up_in(Some(NETNS), "krbd", &args)?;
    println!("argonaut up: {:.2} s", cluster.up_s);
    let client = |line: &str| sh::output(&mut cluster.client(SUITE, line));
    client(IMAGE_POOLS)?;
    let key = client("ceph auth get-key client.admin")?;
    let conf = std::fs::read_to_string(cluster.conf())?;
    let mons = conf.lines().find_map(|l| l.trim().strip_prefix("mon host = "));
    let mons = mons.context("the cluster's ceph.conf names no monitors")?.to_owned();
    for mode in modes {
        report.check(&format!("krbd {mode}"), || one(&cluster, key.trim(), &mons, mode));
    }
    report.check("health after the kernel", || {
        let health = client("ceph health")?;
        if !health.starts_with("HEALTH_OK") {
            bail!("{health}");
        }
        Ok(())
    });
    Ok(())
}

fn one(cluster: &Cluster, key: &str, mons: &str, mode: &str) -> Result<()> {
    let script = sh::repo().join("tests/krbd.sh").display().to_string();
    let mut guest = guest(&["run", &script, key, mons, mode]);
    let mut guest = guest.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("guest")?;
    let said = BufReader::new(guest.stdout.take().context("its output")?);
    let troubled: Result<()> = std::thread::scope(|threads| {
        let mut outages = Vec::new();
        for line in said.lines() {
            let line = line?;
            println!("        {line}");
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            if let ["HOST", "outage", daemon, secs] =
                words.iter().map(String::as_str).collect::<Vec<_>>()[..]
            {
                let (daemon, long) = (daemon.to_owned(), Duration::from_secs(secs.parse()?));
                outages.push(threads.spawn(move || qemu::outage(cluster, &daemon, long)));
            }
        }
        outages.into_iter().try_for_each(|o| o.join().expect("an outage does not panic"))
    });
    let status = guest.wait()?;
    if !status.success() {
        bail!("the guest ended with {status}");
    }
    troubled
}
