//! An experiment that a thesis of 2011 did with early Ceph: three OSDs, two copies, writing
//! all the time; each OSD fails in turn. The capacity shrinks, the data stays.

use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::cluster::{Cluster, binary};
use crate::report::Report;
use crate::{lab, sh, thrash};

const SUITE: &str = "forky";
const OSDS: u64 = 3;
/// How long the cluster may take to have two copies of everything again.
const CLEAN_MAX: Duration = Duration::from_secs(180);

/// Runs it; the numbers are printed.
///
/// # Errors
/// When the cluster does not start; what failed is in the report.
pub fn run() -> Result<Report> {
    let mut report = Report::default();
    lab::root(SUITE)?;
    let cluster =
        Cluster::up("shrink", &["--osds", "3", "--mons", "3", "--size", "2", "--osd-bytes", "4G"])?;
    let make = "ceph osd pool create acks 32 32 && ceph osd pool set acks min_size 1";
    sh::output(&mut cluster.client(SUITE, make))?;
    let tool = cluster.dir.join("acks.py");
    std::fs::copy(sh::repo().join("tests/interop/acks.py"), &tool)?;
    let acks = format!("python3 {} write acks {}/acks.log", tool.display(), cluster.dir.display());
    // Until it is told to stop; an error ends it, and so the experiment.
    let stop = cluster.dir.join("stop");
    let line = format!(
        "n=1; while [ ! -e {} ]; do {acks} $n 20 || exit 1; n=$((n + 1)); done",
        stop.display()
    );
    let out = std::fs::File::create(cluster.dir.join("log/acks.out"))?;
    let mut writer = cluster.client(SUITE, &line).stdin(Stdio::null()).stdout(out).spawn()?;
    let whole = figures(&cluster)?;
    println!("        3 OSDs: {whole}");
    report.check("each OSD fails and comes back", || {
        (0..OSDS).try_for_each(|osd| turn(&cluster, osd, whole.total))
    });
    report.check("every write was answered well, the last reads too", || {
        std::fs::write(&stop, "")?;
        let status = writer.wait()?;
        let text = std::fs::read_to_string(cluster.dir.join("log/acks.out"))?;
        text.lines().for_each(|l| println!("        {l}"));
        if !status.success() {
            bail!("the writer ended with {status}");
        }
        let check =
            format!("python3 {} check acks {}/acks.log", tool.display(), cluster.dir.display());
        println!("        {}", sh::output(&mut cluster.client(SUITE, &check))?.trim());
        Ok(())
    });
    Ok(report)
}

fn json(cluster: &Cluster, words: &[&str]) -> Result<serde_json::Value> {
    let mut ask = Command::new(binary()?);
    ask.args(["ceph", "-f", "json", "-c"]).arg(cluster.conf()).args(words);
    Ok(serde_json::from_str(&sh::output(&mut ask)?)?)
}

/// Capacity and objects, MiB.
struct Figures {
    total: u64,
    used: u64,
    objects: u64,
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} MiB, {} MiB used, {} objects", self.total, self.used, self.objects)
    }
}

fn figures(cluster: &Cluster) -> Result<Figures> {
    let status = json(cluster, &["status"])?;
    let map = &status["pgmap"];
    let number = |name: &str| map[name].as_u64().unwrap_or(0);
    Ok(Figures {
        total: number("bytes_total") >> 20,
        used: number("bytes_used") >> 20,
        objects: number("num_objects"),
    })
}

/// Waits for a status; how long that took, s.
fn until(cluster: &Cluster, what: impl Fn(&serde_json::Value) -> bool) -> Result<f64> {
    let began = sh::now();
    while began.elapsed() < CLEAN_MAX {
        if json(cluster, &["status"]).is_ok_and(|s| what(&s)) {
            return Ok(began.elapsed().as_secs_f64());
        }
        sleep(Duration::from_millis(100));
    }
    bail!("not within {} s: {}", CLEAN_MAX.as_secs(), json(cluster, &["status"])?)
}

/// One OSD fails for good, as far as the cluster knows; two copies of everything are made
/// elsewhere. Then it is there again. `whole`: the capacity of all OSDs, MiB.
fn turn(cluster: &Cluster, osd: u64, whole: u64) -> Result<()> {
    let signal = |what: &str, name: &str| -> Result<()> {
        let pids = cluster.pids()?;
        let (_, pid) = pids.iter().find(|(n, _)| n == name).with_context(|| name.to_owned())?;
        sh::output(&mut sh::bash(&format!("kill -{what} {pid}"))).map(drop)
    };
    // One that came back before counts when it has told what it has.
    until(cluster, |s| s["pgmap"]["bytes_total"].as_u64().is_some_and(|b| b >> 20 >= whole))?;
    // Nobody starts it again.
    signal("STOP", "supervise")?;
    let ended = (|| {
        signal("KILL", &format!("osd.{osd}"))?;
        let down = until(cluster, |s| s["osdmap"]["num_up_osds"] == OSDS - 1)?;
        json(cluster, &["osd", "out", &osd.to_string()]).ok();
        let again =
            until(cluster, |s| s["osdmap"]["num_in_osds"] == OSDS - 1 && thrash::is_clean(s))?;
        let mut after = figures(cluster)?;
        for _ in 0..100 {
            if after.total < whole {
                break;
            }
            sleep(Duration::from_millis(100));
            after = figures(cluster)?;
        }
        println!("        osd.{osd} down after {down:.1} s, two copies again after {again:.1} s");
        println!("        2 OSDs: {after}");
        if after.total >= whole {
            bail!("the capacity is still {} MiB", after.total);
        }
        Ok(())
    })();
    signal("CONT", "supervise")?;
    ended?;
    until(cluster, |s| s["osdmap"]["num_up_osds"] == OSDS)?;
    sh::output(&mut cluster.client(SUITE, &format!("ceph osd in {osd}")))?;
    let back = until(cluster, |s| s["osdmap"]["num_in_osds"] == OSDS && thrash::is_clean(s))?;
    println!("        back and clean after {back:.1} s");
    Ok(())
}
