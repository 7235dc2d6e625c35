//! Stock metadata servers on monitors and OSDs of ours, and a stock client of the file system that
//! they serve.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::fs_cluster::{FsCluster, GRACE_S, SUITE};
use crate::report::Report;
use crate::{lab, sh};

/// A file system `cephfs`, served by `ceph-mds`; they end when it is dropped.
struct Served {
    fs: FsCluster,
}

impl Served {
    fn up() -> Result<Self> {
        let fs = FsCluster::up("fs-stock", &["--osds", "3"])?;
        fs.ceph(
            "ceph osd pool create meta 8; ceph osd pool create data 8; \
             ceph fs new cephfs meta data",
        )?;
        Ok(Self { fs })
    }

    /// The active server dies under a client: another takes over, the client goes on, and the dead
    /// one is shut out in the map that its successor waited for.
    fn failover(&self) -> Result<()> {
        let writer = self.fs.writer()?;
        std::thread::sleep(Duration::from_secs(1));
        let dead = self.fs.active()?;
        self.fs.kill_stock(&dead)?;
        let taken = self.fs.wait(30, "other active server", |stat| {
            stat.contains("=up:active") && !stat.contains(&format!("={dead}="))
        });
        std::thread::sleep(Duration::from_secs(1));
        let said = writer.end();
        taken?;
        println!("  {}", said?);
        self.fs.ceph(
            "ceph fs get cephfs -f json | python3 -c 'import json, sys; \
             m = json.load(sys.stdin)[\"mdsmap\"]; assert m[\"last_failure_osd_epoch\"] > 0, m'; \
             test $(ceph osd blocklist ls 2>/dev/null | wc -l) -ge 1",
        )?;
        self.fs.start_stock(&dead)?;
        self.fs.wait(20, "standby", |stat| stat.ends_with("1 up:standby"))
    }

    /// The leading monitor dies: no server loses its rank by that.
    fn another_leader(&self) -> Result<()> {
        let active = self.fs.active()?;
        let leader = self.fs.ceph(
            "ceph quorum_status | python3 -c 'import json, sys; \
             print(json.load(sys.stdin)[\"quorum_leader_name\"])'",
        )?;
        let name = format!("mon.{}", leader.trim());
        let pids = self.fs.cluster.pids()?;
        let (_, pid) = pids.into_iter().find(|(n, _)| *n == name).context("the leader's pid")?;
        sh::run(Command::new("kill").args(["-KILL", &pid.to_string()]))?;
        std::thread::sleep(Duration::from_secs(GRACE_S + 3));
        let now = self.fs.active()?;
        ensure!(now == active, "mds.{active} was active, now it is {now:?}: {}", self.fs.stat()?);
        self.fs.wait(20, "standby", |stat| stat.ends_with("1 up:standby"))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        for name in ["a", "b"] {
            self.fs.kill_stock(name).ok();
        }
    }
}

/// Two stock servers and a stock client, through a failover and a change of the leader.
///
/// # Errors
/// When the cluster does not start; failed cases are in the report.
pub fn run() -> Result<Report> {
    let mut report = Report::default();
    lab::root(SUITE)?;
    let served = Served::up()?;
    report.check("stock ceph-mds: one active, one standby", || {
        served.fs.start_stock("a")?;
        served.fs.start_stock("b")?;
        served.fs.wait(30, "active server and standby", |stat| {
            stat.contains("=up:active") && stat.ends_with("1 up:standby")
        })
    });
    report.check("stock libcephfs writes a tree", || served.fs.tree("write"));
    report.check("another mount reads it", || served.fs.tree("check"));
    report.check("commands to the servers", || {
        let line = "for m in a b; do ceph tell mds.$m status | grep -q want_state; done; \
             ceph versions | grep -q '\"mds\"'; ceph mds metadata a | grep -q ceph_version; \
             ceph -s | grep -q 'mds: 1/1 daemons up, 1 standby'; \
             ceph -s | grep -q 'volumes: 1/1 healthy'; \
             ! ceph osd pool rm meta meta --yes-i-really-really-mean-it 2>/dev/null";
        served.fs.ceph(line).map(drop)
    });
    report.check("kill -9 of the active server under a client", || served.failover());
    report.check("kill -9 of the leading monitor", || served.another_leader());
    report.check("our client library, through a failover", || {
        let active = served.fs.active()?;
        let at = served.fs.cluster.dir.join("mds").join(&active).join("pid");
        served.fs.library(&format!("kill -KILL $(cat {})", at.display()))?;
        std::fs::remove_file(at)?;
        served.fs.start_stock(&active)?;
        served.fs.wait(20, "standby", |stat| stat.ends_with("1 up:standby"))
    });
    report.check("the tree after all", || served.fs.tree("check"));
    report.check("health after the clients", || served.fs.healthy());
    Ok(report)
}
