//! How long clients wait when a daemon dies, and how long a whole restart takes.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::cluster::Cluster;
use crate::report::Report;
use crate::{lab, sh, thrash, thrash_mons};

const SUITE: &str = "forky";
/// A killed OSD: writes wait so long at most, s.
const OSD_MAX_S: f64 = 1.0;
/// The leading monitor killed: commands wait so long at most, s.
const LEADER_MAX_S: f64 = 2.0;
/// All OSDs started anew: their PGs are active again after so long at most, s.
const PEERING_MAX_S: f64 = 3.0;

/// Measures all three.
///
/// # Errors
/// When a cluster does not start; what took too long is in the report.
pub fn run() -> Result<Report> {
    let mut report = Report::default();
    lab::root(SUITE)?;
    {
        let cluster = Cluster::up("failover", &["--osds", "4", "--mons", "3"])?;
        sh::output(&mut cluster.client(SUITE, "ceph osd pool create gap 32"))?;
        report
            .check("an OSD is killed", || pause(&cluster, "osd.1", "slowest_writes_s", OSD_MAX_S));
        report.check("the leading monitor is killed", || {
            let leader = thrash_mons::leader(&cluster).context("no monitor leads")?;
            pause(&cluster, &leader, "slowest_commands_s", LEADER_MAX_S)
        });
    }
    let cluster = Cluster::up("failover", &["--osds", "6", "--mons", "3"])?;
    report.check("1,000 PGs on 6 OSDs that are started anew", || peering(&cluster));
    Ok(report)
}

fn kill(cluster: &Cluster, daemons: impl Fn(&str) -> bool) -> Result<()> {
    let pids = cluster.pids()?.into_iter().filter(|(n, _)| daemons(n));
    let pids: Vec<String> = pids.map(|(_, pid)| pid.to_string()).collect();
    sh::output(&mut sh::bash(&format!("kill -9 {}", pids.join(" ")))).map(drop)
}

fn pause(cluster: &Cluster, daemon: &str, what: &str, most: f64) -> Result<()> {
    let tool = cluster.dir.join("gap.py");
    std::fs::copy(sh::repo().join("tests/interop/gap.py"), &tool)?;
    let line = format!("exec timeout 60 python3 {} gap 10", tool.display());
    let client =
        cluster.client(SUITE, &line).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    std::thread::sleep(Duration::from_secs(4));
    kill(cluster, |n| n == daemon)?;
    let out = client.wait_with_output()?;
    let text = String::from_utf8_lossy(&out.stdout);
    println!("        {daemon} killed: {}", text.trim());
    if !out.status.success() {
        bail!("the client ended with {}", out.status);
    }
    let done: serde_json::Value = serde_json::from_str(text.trim()).context("its summary")?;
    let slowest = done[what].as_f64().unwrap_or(f64::MAX);
    if slowest > most {
        bail!("{slowest} s");
    }
    Ok(())
}

fn peering(cluster: &Cluster) -> Result<()> {
    let line =
        "ceph osd pool create many 1000 1000 && ceph osd pool set many pg_autoscale_mode off";
    sh::output(&mut cluster.client(SUITE, line))?;
    let status = || -> Result<serde_json::Value> {
        let mut ask = std::process::Command::new(crate::cluster::binary()?);
        ask.args(["ceph", "-f", "json", "-c"]).arg(cluster.conf()).arg("status");
        Ok(serde_json::from_str(&sh::output(&mut ask)?)?)
    };
    let until = |what: &dyn Fn(&serde_json::Value) -> bool, secs: u64| -> Result<f64> {
        let began = sh::now();
        while began.elapsed() < Duration::from_secs(secs) {
            if status().is_ok_and(|s| what(&s)) {
                return Ok(began.elapsed().as_secs_f64());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        bail!("not within {secs} s: {}", status()?["pgmap"])
    };
    until(&thrash::is_clean, 60)?;
    let epoch = status()?["osdmap"]["epoch"].as_u64().unwrap_or(0);
    kill(cluster, |n| n.starts_with("osd."))?;
    // Six boots are in the map: no state from before counts.
    let up = until(
        &|s| {
            s["osdmap"]["num_up_osds"] == 6
                && s["osdmap"]["epoch"].as_u64().is_some_and(|e| e > epoch)
        },
        60,
    )?;
    let clean = until(&thrash::is_clean, 60)?;
    println!("        up after {up:.2} s, all active and clean {clean:.2} s later");
    if clean > PEERING_MAX_S {
        bail!("{clean:.2} s");
    }
    Ok(())
}
