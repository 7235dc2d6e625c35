//! Recovery beside clients: how much longer they wait, and how fast it goes.

mod disk;
mod load;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::bench::median;
use crate::cluster::Cluster;
use crate::report::Report;
use crate::{lab, sh, thrash};
use disk::{Disk, Stop};
use load::{Figures, Load};

const SUITE: &str = "forky";
const LOAD_TOOL: &str = "load.py";
/// Clients at half their full load: their slowest hundredth takes so many times as long at
/// most.
const P99_MAX: f64 = 2.0;
/// Recovery goes at least half as fast as it would beside them if nothing held it back.
const SHARE_MIN: f64 = 0.5;
/// A weight beside clients' with which nothing does.
const UNHELD: &str = "osd_mclock_scheduler_background_recovery_wgt 1000";
/// One alone says little.
const ROUNDS: usize = 3;
const OBJECT_MIB: u64 = 4;
/// How often the cluster's state is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Fills a pool of two copies with `gib` GiB on two OSDs, then lets a third in: alone, beside
/// clients, and beside clients with nothing that holds it back, which is what they leave.
///
/// # Errors
/// When the cluster does not start; bounds that are not kept are in the report.
pub fn run(gib: u64) -> Result<Report> {
    let mut report = Report::default();
    lab::root(SUITE)?;
    // Two hold all of it for a while, and must not become nearly full.
    let each = format!("{}G", (2 * gib).max(12));
    let cluster = Cluster::up("recovery", &["--osds", "3", "--osd-bytes", &each])?;
    let ceph = |line: &str| sh::output(&mut cluster.client(SUITE, line));
    let tool = cluster.dir.join(LOAD_TOOL);
    std::fs::copy(sh::repo().join("tests/interop").join(LOAD_TOOL), &tool)?;
    ceph("ceph osd out 2")?;
    for pool in ["data", "load"] {
        ceph(&format!(
            "ceph osd pool create {pool} 32 32 && ceph osd pool set {pool} size 2 && \
             ceph osd pool set {pool} pg_autoscale_mode off"
        ))?;
    }
    let objects = gib * 1024 / OBJECT_MIB;
    ceph(&format!(
        "rados bench -p data 600 write -b {} -t 16 --max-objects {objects} --no-cleanup",
        OBJECT_MIB << 20
    ))?;
    let mut monitors = Monitors::connect(&cluster)?;
    let machine = Machine::now()?;
    let secs = moved(&mut monitors, "in")?;
    let busy = machine.busy()?;
    let alone = (arrived(&cluster)?, secs);
    println!(
        "        alone: {:.0} MiB in {:.1} s, {:.0} MiB/s, {:.0} % of the machine's CPUs",
        alone.0,
        alone.1,
        alone.0 / alone.1,
        busy * 100.0
    );
    moved(&mut monitors, "out")?;
    let disk = Disk::of(&cluster.dir)?;
    let stops = |since| disk.as_ref().map_or_else(Vec::new, |d| d.stops(since));
    let full = Load::begin(&cluster, 10, None)?.answer(stops)?;
    println!("        clients alone, all they can: {full}");
    let half = full.ops_s / 2.0;
    let mut beside = |how: &str| -> Result<(f64, Figures)> {
        let client = Load::begin(&cluster, 600, Some(half))?;
        let (machine, began) = (Machine::now()?, sh::wall());
        let secs = moved(&mut monitors, "in")? - stops(began).iter().map(Stop::secs).sum::<f64>();
        let busy = machine.busy()?;
        let during = client.answer_now(stops)?;
        // Not before: it is felt.
        let mib = arrived(&cluster)?;
        let speed = mib / secs;
        println!(
            "        beside clients{how}: {mib:.0} MiB in {secs:.1} s, {speed:.0} MiB/s, {:.0} % of \
             the CPUs",
            busy * 100.0
        );
        println!("        clients beside it:           {during}");
        moved(&mut monitors, "out")?;
        Ok((speed, during))
    };
    let (mut quiet, mut waits) = (f64::MAX, Vec::new());
    let (mut shares, mut of_alone) = (Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        let client = Load::begin(&cluster, 15, Some(half))?;
        let machine = Machine::now()?;
        let before = client.answer(stops)?;
        println!(
            "        clients alone, half of it:   {before}; {:.0} % of the CPUs",
            machine.busy()? * 100.0
        );
        let (speed, during) = beside("")?;
        ceph(&format!(
            "ceph config set osd osd_mclock_profile custom && ceph config set osd {UNHELD}"
        ))?;
        let (rest, _) = beside(", not held back")?;
        ceph("ceph config set osd osd_mclock_profile balanced")?;
        // What disturbs those who are alone is no part of recovery.
        quiet = quiet.min(before.p99);
        waits.push(during.p99);
        shares.push(speed / rest);
        of_alone.push(speed * alone.1 / alone.0);
        println!(
            "        round {round}: {:.0} % of what it is when nothing holds it back",
            shares[shares.len() - 1] * 100.0
        );
    }
    let of_alone = 100.0 * median(of_alone);
    report.check("clients wait twice as long at most", || {
        let times = median(waits) / quiet;
        println!(
            "        slowest hundredth: {times:.2} times as long, median of {ROUNDS} rounds beside the \
             quietest alone"
        );
        if times > P99_MAX {
            bail!("{times:.2} times as long");
        }
        Ok(())
    });
    report.check("recovery has half of what clients leave", || {
        let share = median(shares);
        println!(
            "        {:.0} % of what it is when nothing holds it back, {of_alone:.0} % of its speed \
             alone, medians of {ROUNDS} rounds",
            share * 100.0
        );
        if share < SHARE_MIN {
            bail!("{share:.2}");
        }
        Ok(())
    });
    Ok(report)
}

/// Ticks of all CPUs so far: busy, and all.
struct Machine(u64, u64);

impl Machine {
    fn now() -> Result<Self> {
        let text = std::fs::read_to_string("/proc/stat")?;
        let line = text.lines().next().context("the line of all CPUs")?;
        let ticks: Vec<u64> = line.split_whitespace().filter_map(|w| w.parse().ok()).collect();
        // user, nice, system, idle, iowait, irq, softirq, steal; guests are in user already.
        let all: u64 = ticks.iter().take(8).sum();
        let idle: u64 = ticks.iter().skip(3).take(2).sum();
        Ok(Self(all - idle, all))
    }

    /// The part of all CPUs that was in use since.
    fn busy(&self) -> Result<f64> {
        let now = Self::now()?;
        Ok((now.0 - self.0) as f64 / (now.1 - self.1).max(1) as f64)
    }
}

/// Marks osd.2 in or out, and waits until all is where it should be: seconds.
fn moved(monitors: &mut Monitors, how: &str) -> Result<f64> {
    let began = sh::now();
    monitors.ask(&json!({"prefix": format!("osd {how}"), "ids": ["2"]}))?;
    let (mut begun, mut last) = (false, Value::Null);
    while began.elapsed() < Duration::from_secs(600) {
        last = monitors.ask(&json!({"prefix": "status", "format": "json"}))?;
        begun |= !thrash::is_clean(&last);
        if begun && thrash::is_clean(&last) {
            return Ok(began.elapsed().as_secs_f64());
        }
        std::thread::sleep(LOOK_EVERY);
    }
    bail!("not clean after 600 s: {}", last["pgmap"])
}

/// MiB of the large objects that osd.2 has.
fn arrived(cluster: &Cluster) -> Result<f64> {
    let line = "ceph pg ls-by-pool data -f json";
    let pgs: Value = serde_json::from_str(&sh::output(&mut cluster.client(SUITE, line))?)?;
    let pgs = pgs["pg_stats"].as_array().context("its PGs")?;
    let on = |pg: &&Value| pg["up"].as_array().is_some_and(|up| up.contains(&2.into()));
    let objects: u64 =
        pgs.iter().filter(on).filter_map(|pg| pg["stat_sum"]["num_objects"].as_u64()).sum();
    Ok((objects * OBJECT_MIB) as f64)
}

/// Looks at the cluster's state, and changes it, over one connection: a process with a handshake
/// for each slows down what it looks at.
struct Monitors(Child, std::io::Lines<BufReader<ChildStdout>>);

impl Monitors {
    fn connect(cluster: &Cluster) -> Result<Self> {
        let tool = cluster.dir.join("commands.py");
        std::fs::copy(sh::repo().join("tests/interop/commands.py"), &tool)?;
        let line = format!("exec timeout 1800 python3 {}", tool.display());
        let mut client = cluster.client(SUITE, &line);
        let mut child = client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let lines = BufReader::new(child.stdout.take().context("its standard output")?).lines();
        Ok(Self(child, lines))
    }

    fn ask(&mut self, command: &Value) -> Result<Value> {
        writeln!(self.0.stdin.as_mut().context("its standard input")?, "{command}")?;
        let line = self.1.next().context("no answer")??;
        Ok(serde_json::from_str(&line)?)
    }
}

impl Drop for Monitors {
    fn drop(&mut self) {
        drop(self.0.stdin.take()); // its end
        self.0.wait().ok();
    }
}
