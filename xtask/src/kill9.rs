//! Acknowledged means durable: kill every process under load, start again, compare.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use env::{Random, Seeded};

use crate::cluster::Cluster;
use crate::report::Report;
use crate::{lab, sh};

const SUITE: &str = "forky";

/// `rounds` times: a client writes and notes what was acknowledged, everything is killed
/// at a random moment, the cluster starts again, and every note is checked.
///
/// # Errors
/// When the cluster does not start at all; lost data is in the report.
pub fn run(rounds: u64) -> Result<Report> {
    let mut report = Report::default();
    lab::root(SUITE)?;
    let mut cluster = Some(Cluster::up("kill9", &["--osds", "3"])?);
    let seed = std::process::id().into();
    println!("seed {seed}");
    let mut random = Seeded(seed);
    for round in 0..rounds {
        let mut restarted = None;
        report.check(&format!("kill -9 round {round}"), || {
            let running = cluster.take().context("the cluster did not come back")?;
            restarted = Some(one_round(running, round, &mut random)?);
            Ok(())
        });
        cluster = restarted;
        if cluster.is_none() {
            break;
        }
    }
    Ok(report)
}

fn one_round(cluster: Cluster, round: u64, random: &mut Seeded) -> Result<Cluster> {
    let tool = cluster.dir.join("acks.py");
    std::fs::copy(sh::repo().join("tests/interop/acks.py"), &tool)?;
    let line = format!(
        "exec timeout -s KILL 60 python3 {} write acks {}/acks.log {round}",
        tool.display(),
        cluster.dir.display()
    );
    if round == 0 {
        sh::output(&mut cluster.client(SUITE, "ceph osd pool create acks 32"))?;
    }
    let before = acknowledged(&cluster);
    let mut writer = cluster
        .client(SUITE, &line)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    // Once it writes, a moment nobody chose.
    let mut waited = 0;
    while acknowledged(&cluster) < before + 20 {
        std::thread::sleep(Duration::from_millis(50));
        waited += 1;
        if waited > 400 {
            writer.kill().ok();
            bail!("the writer got nothing acknowledged in 20 s");
        }
    }
    std::thread::sleep(Duration::from_millis(random.u64() % 2_000));
    let supervisor = cluster.kill9(round % 3 == 2)?;
    writer.kill().ok();
    writer.wait()?;
    // This run's alone: another's may be writing, too.
    let log = cluster.dir.join("acks.log").display().to_string();
    sh::output(&mut sh::bash(&format!("pkill -KILL -f '[a]cks.py write acks {log} '; true")))?;
    let cluster = std::thread::scope(|scope| {
        if let Some(supervisor) = supervisor {
            // It is there when `up` looks, and gone before the daemons are back.
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(500));
                sh::output(&mut sh::bash(&format!("kill -KILL {supervisor}")))
            });
        }
        cluster.start(&[])
    })?;
    let line = format!(
        "timeout 120 python3 {} check acks {}/acks.log",
        tool.display(),
        cluster.dir.display()
    );
    let out = sh::output(&mut cluster.client(SUITE, &line))?;
    println!("        {}", out.trim());
    Ok(cluster)
}

fn acknowledged(cluster: &Cluster) -> usize {
    std::fs::read(cluster.dir.join("acks.log"))
        .map_or(0, |t| t.iter().filter(|b| **b == b'\n').count())
}
