//! A cluster with three monitors of which one after the other is killed, the leader most
//! of all, while an upstream client works: nothing may fail.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use env::{Random, Seeded};

use crate::cluster::Cluster;
use crate::report::Report;
use crate::{lab, sh};

const SUITE: &str = "forky";
/// The most that commands may wait when the leader is killed.
const PAUSE_MAX_S: f64 = 2.5;

/// Kills a monitor every few seconds for `secs` seconds.
///
/// # Errors
/// When the cluster does not start; what failed is in the report.
pub fn run(secs: u64) -> Result<Report> {
    let mut report = Report::default();
    lab::root(SUITE)?;
    let cluster = Cluster::up("thrash-mons", &["--osds", "3", "--mons", "3"])?;
    println!("argonaut up: {:.2} s", cluster.up_s);
    report.check("clients while monitors are killed", || thrash(&cluster, secs));
    report.check("health afterwards", || {
        for _ in 0..40 {
            let health = sh::output(&mut cluster.client(SUITE, "ceph health"))?;
            if !health.contains("mons down") {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(500));
        }
        bail!("{}", sh::output(&mut cluster.client(SUITE, "ceph health detail"))?)
    });
    Ok(report)
}

fn thrash(cluster: &Cluster, secs: u64) -> Result<()> {
    let tool = cluster.dir.join("thrash.py");
    std::fs::copy(sh::repo().join("tests/interop/thrash.py"), &tool)?;
    let line = format!("exec timeout {} python3 {} {secs}", secs + 60, tool.display());
    let mut client = cluster.client(SUITE, &line);
    let client = client.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let bench = format!(
        "sleep 2; exec timeout {} rados -p thrash bench {} write -b 65536 -t 8",
        secs + 60,
        secs.saturating_sub(4).max(1)
    );
    let mut bench = cluster.client(SUITE, &bench);
    let bench = bench.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let seed = std::process::id().into();
    println!("seed {seed}");
    let mut random = Seeded(seed);
    #[allow(clippy::disallowed_methods, reason = "real processes are killed in real time")]
    let end = std::time::Instant::now() + Duration::from_secs(secs.saturating_sub(3));
    let mut killed = (0, 0);
    std::thread::sleep(Duration::from_secs(3));
    loop {
        #[allow(clippy::disallowed_methods, reason = "real processes are killed in real time")]
        if std::time::Instant::now() >= end {
            break;
        }
        let leader = leader(cluster);
        let mons: Vec<(String, u32)> =
            cluster.pids()?.into_iter().filter(|(n, _)| n.starts_with("mon.")).collect();
        let any = &mons[(random.u64() % mons.len() as u64) as usize];
        let of_leader = mons.iter().find(|(n, _)| Some(n) == leader.as_ref());
        let (name, pid) = match of_leader {
            Some(leader) if random.u64().is_multiple_of(2) => leader,
            _ => any,
        };
        killed.0 += 1;
        killed.1 += u32::from(Some(name) == leader.as_ref());
        sh::output(&mut sh::bash(&format!("kill -9 {pid} 2>/dev/null; true")))?;
        std::thread::sleep(Duration::from_millis(2_500 + random.u64() % 2_500));
    }
    let out = client.wait_with_output()?;
    let text = String::from_utf8_lossy(&out.stdout);
    println!("        {} kills, {} of the leader; {}", killed.0, killed.1, text.trim());
    let bench = bench.wait_with_output()?;
    if !bench.status.success() {
        bail!("rados bench ended with {}", bench.status);
    }
    let done: serde_json::Value = serde_json::from_str(text.trim()).context("its summary")?;
    if done["errors"].as_array().is_none_or(|e| !e.is_empty()) || !out.status.success() {
        bail!("{}: {}", out.status, done["errors"]);
    }
    let slowest = done["slowest_command_s"].as_f64().unwrap_or(f64::MAX);
    if slowest > PAUSE_MAX_S {
        bail!("a command took {slowest} s");
    }
    Ok(())
}

/// `mon.a`, by the word of any monitor that answers at its socket.
pub fn leader(cluster: &Cluster) -> Option<String> {
    for name in ["a", "b", "c"] {
        let socket = cluster.dir.join(format!("run/ceph-mon.{name}.asok"));
        let line = format!("ceph --admin-daemon {} quorum_status 2>/dev/null", socket.display());
        let Ok(text) = sh::output(&mut lab::exec(SUITE, &line)) else { continue };
        let Ok(status) = serde_json::from_str::<serde_json::Value>(&text) else { continue };
        match status["quorum_leader_name"].as_str() {
            Some(leader) if !leader.is_empty() => return Some(format!("mon.{leader}")),
            _ => {}
        }
    }
    None
}
