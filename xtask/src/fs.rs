//! Metadata servers of ours and a stock client: the tree through kills, restarts and a cluster that
//! was down.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::fs_cluster::{FsCluster, SUITE};
use crate::report::Report;
use crate::{lab, sh};

/// How long a server that was killed may take until it serves again, in seconds: the supervisor's
/// pause, replay, and clients that come back.
const BACK_S: u64 = 30;

struct Ours {
    fs: FsCluster,
}

impl Ours {
    fn up() -> Result<Self> {
        let fs = FsCluster::up("fs", &["--osds", "3", "--fs"])?;
        Ok(Self { fs })
    }

    fn pid(&self) -> Result<u32> {
        let pids = self.fs.cluster.pids()?;
        pids.into_iter().find(|(name, _)| name == "mds.a").map(|(_, pid)| pid).context("mds.a")
    }

    fn served(&self) -> Result<()> {
        self.fs.wait(BACK_S, "active server", |stat| stat.contains("0=a=up:active"))
    }

    /// The server dies under a client and is started again: the client goes on, and what it wrote is
    /// there.
    fn killed(&self) -> Result<()> {
        let writer = self.fs.writer()?;
        std::thread::sleep(Duration::from_secs(1));
        let dead = self.pid()?;
        sh::run(Command::new("kill").args(["-KILL", &dead.to_string()]))?;
        let end = sh::now() + Duration::from_secs(BACK_S);
        while self.pid()? == dead {
            ensure!(sh::now() < end, "mds.a is not started again");
            std::thread::sleep(Duration::from_millis(50));
        }
        let back = self.served();
        std::thread::sleep(Duration::from_secs(2));
        let said = writer.end();
        back?;
        println!("  {}", said?);
        Ok(())
    }

    /// Stops and starts one daemon or all of them, without a client.
    fn again(&mut self, all: bool) -> Result<()> {
        if all {
            self.fs.cluster.down()?;
            self.fs.cluster.argonaut("up", &[])?;
        } else {
            self.fs.cluster.argonaut("restart", &["mds.a"])?;
        }
        self.served()?;
        self.fs.tree("check")
    }
}

/// A server of ours, a stock client, through kills and restarts.
///
/// # Errors
/// When the cluster does not start; failed cases are in the report.
pub fn run() -> Result<Report> {
    let mut report = Report::default();
    lab::root(SUITE)?;
    let mut ours = Ours::up()?;
    report.check("a file system of ours is served", || ours.served());
    report.check("stock libcephfs writes a tree", || ours.fs.tree("write"));
    report.check("another mount reads it", || ours.fs.tree("check"));
    report.check("commands to the server", || {
        let line = "ceph tell mds.a version | grep -q argonaut; \
             ceph tell mds.0 status | grep -q '\"whoami\": 0'; \
             ceph tell mds.a session ls >/dev/null; \
             ceph mds metadata a | grep -q ceph_version; \
             ceph -s | grep -q 'volumes: 1/1 healthy'";
        ours.fs.ceph(line).map(drop)
    });
    report.check("kill -9 of the server under a client", || ours.killed());
    report.check("the tree after it", || ours.fs.tree("check"));
    report.check("the server is started again", || ours.again(false));
    report.check("the cluster is started again", || ours.again(true));
    report.check("health after the clients", || ours.fs.healthy());
    Ok(report)
}
