//! Subvolumes served by a manager process of ours, on a file system of ours, asked for by stock clients.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::fs_cluster::{FsCluster, SUITE};
use crate::report::Report;
use crate::{lab, sh};

/// Seconds of silence that cost a manager its role here.
const GRACE_S: u64 = 6;

struct Volumes {
    fs: FsCluster,
}

impl Volumes {
    fn up() -> Result<Self> {
        let fs = FsCluster::up("volumes", &["--osds", "3", "--fs", "--mds", "1", "--mgrs", "2"])?;
        fs.ceph(&format!("ceph config set mon mon_mgr_beacon_grace {GRACE_S}"))?;
        let program = "volumes.py";
        std::fs::copy(sh::repo().join("tests/fs").join(program), fs.cluster.dir.join(program))?;
        Ok(Self { fs })
    }

    fn line(&self, part: &str) -> String {
        let (dir, conf) = (self.fs.cluster.dir.display(), self.fs.cluster.conf());
        format!("timeout 300 python3 {dir}/volumes.py {} {part}", conf.display())
    }

    fn part(&self, part: &str) -> Result<()> {
        self.fs.ceph(&self.line(part)).map(drop)
    }

    /// The active manager is killed while it copies: the next one goes on.
    fn clone_outlives_its_manager(&self) -> Result<()> {
        let mut child = self
            .fs
            .cluster
            .client(SUITE, &self.line("clone"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut said = String::new();
        BufReader::new(child.stdout.take().context("its output")?).read_line(&mut said)?;
        ensure!(said.trim() == "begun", "the clone did not begin: {said}");
        let stat = self.fs.ceph("ceph mgr stat")?;
        let stat: serde_json::Value = serde_json::from_str(stat.trim())?;
        let name = format!("mgr.{}", stat["active_name"].as_str().context("an active manager")?);
        let pids = self.fs.cluster.pids()?;
        let (_, pid) = pids.into_iter().find(|(n, _)| *n == name).context("its pid")?;
        sh::run(Command::new("kill").args(["-KILL", &pid.to_string()]))?;
        std::thread::sleep(Duration::from_millis(200));
        writeln!(child.stdin.take().context("its input")?)?;
        ensure!(child.wait()?.success(), "the clone did not go on");
        Ok(())
    }
}

/// Stock clients, our manager and metadata server.
///
/// # Errors
/// When the cluster does not start; failed cases are in the report.
pub fn run() -> Result<Report> {
    let mut report = Report::default();
    lab::root(SUITE)?;
    let volumes = Volumes::up()?;
    report.check("groups, subvolumes, snapshots, clones, keys as stock", || volumes.part("calls"));
    report
        .check("a clone outlives the manager that copies", || volumes.clone_outlives_its_manager());
    report.check("file systems made, renamed, removed", || volumes.part("volume"));
    Ok(report)
}
