//! Whether OSDs stay within `osd_memory_target` whatever clients do.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::cluster::Cluster;
use crate::report::Report;
use crate::{lab, sh};

const SUITE: &str = "forky";
/// What each OSD is told, MiB; a quarter of it is its cache of data.
const TARGET_MIB: u64 = 512;

/// Loads that fill memory in different ways, each for so many seconds, with the greatest
/// resident memory of any OSD meanwhile.
///
/// # Errors
/// When the cluster does not start; what took too much is in the report.
pub fn run(secs: u64) -> Result<Report> {
    let mut report = Report::default();
    lab::root(SUITE)?;
    let cluster = Cluster::up("memory", &[])?;
    let conf = std::fs::read_to_string(cluster.conf())?;
    cluster.argonaut("down", &[])?;
    std::fs::write(cluster.conf(), format!("{conf}\n[osd]\nosd memory target = {TARGET_MIB}M\n"))?;
    let cluster = cluster.start(&[])?;
    let pools = "ceph osd pool create m 32 && ceph osd pool create one 32 && \
                 ceph osd pool set one size 1 --yes-i-really-mean-it";
    sh::output(&mut cluster.client(SUITE, pools))?;
    // Data: four clients with more in flight than all memory; ten times the caches in all.
    let bench = |pool: &str, name: &str, rest: &str| {
        format!("rados -p {pool} bench {secs} {rest} --run-name {name}")
    };
    let large: Vec<String> = (0..4)
        .map(|i| {
            let rest = "write -b 4194304 -t 128 --max-objects 350 --no-cleanup";
            bench("m", &format!("large{i}"), rest)
        })
        .collect();
    let reads: Vec<String> =
        (0..4).map(|i| bench("m", &format!("large{i}"), "rand -t 64")).collect();
    let small: Vec<String> = (0..2)
        .map(|i| bench("one", &format!("small{i}"), "write -b 4096 -t 256 --no-cleanup"))
        .collect();
    let middle: Vec<String> = (0..2)
        .map(|i| bench("m", &format!("middle{i}"), "write -b 65536 -t 128 --max-objects 9000"))
        .collect();
    let loads = [
        ("4 MiB writes, 512 in flight", large),
        ("4 MiB reads, 256 in flight", reads),
        ("4 KiB writes, 512 in flight", small),
        ("64 KiB writes, 256 in flight", middle),
    ];
    for (what, clients) in loads {
        report.check(what, || load(&cluster, &clients, secs));
    }
    Ok(report)
}

fn load(cluster: &Cluster, lines: &[String], secs: u64) -> Result<()> {
    let spawn = |line: &String| {
        let line = format!("exec timeout {} {line}", 3 * secs + 60);
        let mut client = cluster.client(SUITE, &line);
        client.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
    };
    let clients = lines.iter().map(spawn).collect::<std::io::Result<Vec<_>>>()?;
    let done = std::sync::atomic::AtomicBool::new(false);
    let (outputs, peak) = std::thread::scope(|scope| {
        let watch = scope.spawn(|| watch(cluster, &done));
        let outputs: Vec<_> = clients.into_iter().map(|c| c.wait_with_output()).collect();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        (outputs, watch.join().expect("the watcher does not panic"))
    });
    let mut rate = 0.0;
    for out in outputs {
        let out = out?;
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        if !out.status.success() {
            bail!("a client ended with {}: {}", out.status, String::from_utf8_lossy(&out.stderr));
        }
        let line = text.lines().find_map(|l| l.strip_prefix("Bandwidth (MB/sec):"));
        rate += line.and_then(|l| l.trim().parse().ok()).unwrap_or(0.0);
    }
    let peak = peak?;
    println!("        {rate:.0} MB/s; {peak:.0} MiB at most in one OSD of {TARGET_MIB}");
    if peak > TARGET_MIB as f64 {
        bail!("{peak:.0} MiB");
    }
    Ok(())
}

/// The greatest resident memory of any OSD until `done`, MiB.
fn watch(cluster: &Cluster, done: &std::sync::atomic::AtomicBool) -> Result<f64> {
    let began = sh::now();
    let mut peak = 0.0f64;
    while !done.load(std::sync::atomic::Ordering::Relaxed) {
        for (name, pid) in cluster.pids()?.iter().filter(|(n, _)| n.starts_with("osd.")) {
            let (_, mib) = crate::cluster::usage(&[*pid]).with_context(|| {
                format!("{name} is gone after {:.0} s", began.elapsed().as_secs_f64())
            })?;
            peak = peak.max(mib);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(peak)
}
