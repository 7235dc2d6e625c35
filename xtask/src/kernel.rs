//! The kernel's clients, in a virtual machine with Debian's kernel, against a cluster of ours: its block
//! device by `tests/krbd.sh`, its file system by `tests/kfs.sh`.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::cluster::{Cluster, IMAGE_POOLS};
use crate::fs_cluster::{FsCluster, active_of};
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

/// Runs the script of the block device in `modes` of the messenger: crc, secure, legacy (v1).
///
/// # Errors
/// When the namespace, the guest or the cluster cannot be made; what failed is in the report.
pub fn blocks(modes: &[&str]) -> Result<Report> {
    in_namespace(|report, addr| block_cases(report, addr, modes))
}

/// As [`blocks`], of the file system.
///
/// # Errors
/// As [`blocks`].
pub fn files(modes: &[&str]) -> Result<Report> {
    in_namespace(|report, addr| file_cases(report, addr, modes))
}

fn in_namespace(cases: impl FnOnce(&mut Report, &str) -> Result<()>) -> Result<Report> {
    let mut report = Report::default();
    let addr = sh::output(&mut guest(&["netns-up"]))?;
    let ran = cases(&mut report, addr.trim());
    sh::output(&mut guest(&["netns-down"]))?;
    ran.map(|()| report)
}

fn block_cases(report: &mut Report, addr: &str, modes: &[&str]) -> Result<()> {
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
        let script = ["tests/krbd.sh", key.trim(), &mons, mode];
        report.check(&format!("krbd {mode}"), || in_guest(&cluster, &[], script));
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

fn file_cases(report: &mut Report, addr: &str, modes: &[&str]) -> Result<()> {
    let args = ["--osds", "3", "--osd-bytes", "4G", "--fs", "--mds", "2", "--addr", addr];
    let fs = FsCluster { cluster: Cluster::up_in(Some(NETNS), "kfs", &args)? };
    println!("argonaut up: {:.2} s", fs.cluster.up_s);
    let key = fs.ceph("ceph auth get-key client.admin")?;
    fs.ceph("ceph fs authorize cephfs client.limited /limited rw >/dev/null")?;
    let limited = fs.ceph("ceph auth get-key client.limited")?;
    let map: serde_json::Value = serde_json::from_str(&fs.ceph("ceph mon dump -f json")?)?;
    for mode in modes {
        let kind = if *mode == "legacy" { "v1" } else { "v2" };
        let mons = monitors(&map, kind).context("a monitor map with addresses")?.join(",");
        let script = ["tests/kfs.sh", key.trim(), &mons, mode, limited.trim()];
        report.check(&format!("kfs {mode}"), || in_guest(&fs.cluster, FILES, script));
    }
    report.check("scrub and health after the kernel", || {
        fs.scrubbed()?;
        let health = fs.ceph("ceph health detail")?;
        ensure!(health.starts_with("HEALTH_OK"), "{health}");
        Ok(())
    });
    Ok(())
}

/// What `tests/kfs.sh` finds beside itself.
const FILES: &[&str] = &["tests/fs/fuse.py", "tests/fs/kernel.py"];

/// `host:port` of each monitor, of one version of the messenger.
fn monitors(map: &serde_json::Value, kind: &str) -> Option<Vec<String>> {
    let of = |mon: &serde_json::Value| {
        let addrs = mon["public_addrs"]["addrvec"].as_array()?;
        let addr = addrs.iter().find(|a| a["type"] == kind)?;
        addr["addr"].as_str().map(str::to_owned)
    };
    map["mons"].as_array()?.iter().map(of).collect()
}

/// Runs a script with its arguments in the guest; `files` lie beside it, and Python is there where
/// it has any. What it says in lines that begin with HOST is carried out here.
fn in_guest<const N: usize>(cluster: &Cluster, files: &[&str], script: [&str; N]) -> Result<()> {
    let at = |path: &str| sh::repo().join(path).display().to_string();
    let mut args = vec!["run".to_owned()];
    args.extend(files.iter().flat_map(|file| ["-f".to_owned(), at(file)]));
    if !files.is_empty() {
        args.push("-p".to_owned());
    }
    args.push(at(script[0]));
    args.extend(script[1..].iter().map(|&arg| arg.to_owned()));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut guest = guest(&args);
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
                let daemon = match daemon {
                    "active-mds" => format!("mds.{}", active(cluster)?),
                    daemon => daemon.to_owned(),
                };
                let long = Duration::from_secs(secs.parse()?);
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

/// The name of the active metadata server.
fn active(cluster: &Cluster) -> Result<String> {
    let stat = sh::output(&mut cluster.client(SUITE, "ceph mds stat"))?;
    active_of(&stat).map(str::to_owned).with_context(|| format!("no active server: {stat}"))
}
