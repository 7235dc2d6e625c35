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
        let fs = FsCluster::up("fs", &["--osds", "3", "--fs", "--mds", "1"])?;
        Ok(Self { fs })
    }

    fn pid(&self, name: &str) -> Result<u32> {
        let pids = self.fs.cluster.pids()?;
        let found = pids.into_iter().find(|(n, _)| n == name);
        found.map(|(_, pid)| pid).with_context(|| format!("{name} has no pid"))
    }

    fn kill9(&self, name: &str) -> Result<u32> {
        let pid = self.pid(name)?;
        sh::run(Command::new("kill").args(["-KILL", &pid.to_string()]))?;
        Ok(pid)
    }

    fn served(&self) -> Result<()> {
        self.fs.wait(BACK_S, "active server", |stat| stat.contains("=up:active"))
    }

    /// The server dies under a client and is started again: the client goes on, and what it wrote is
    /// there.
    fn killed(&self) -> Result<()> {
        let writer = self.fs.writer()?;
        std::thread::sleep(Duration::from_secs(1));
        let dead = self.kill9("mds.a")?;
        let end = sh::now() + Duration::from_secs(BACK_S);
        while self.pid("mds.a")? == dead {
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

    /// The only server ends under a client: what it leaves is a clean tree and journal of the peer's
    /// with the client's session, and the client goes on once it is back.
    fn stopped(&self) -> Result<()> {
        let writer = self.fs.writer()?;
        std::thread::sleep(Duration::from_secs(1));
        self.fs.cluster.argonaut("stop", &["mds.a"])?;
        let left = self.fs.ceph(
            "ceph mds stat | grep -q '1 failed'; \
             test -z \"$(rados -p cephfs_metadata ls | grep ^argo)\"; \
             cephfs-journal-tool --rank=cephfs:0 journal inspect 2>&1 | grep 'Overall.*OK'; \
             test $(rados -p cephfs_metadata listomapkeys mds0_sessionmap | wc -l) = 1",
        );
        self.fs.cluster.argonaut("start", &["mds.a"])?;
        let back = self.served();
        std::thread::sleep(Duration::from_secs(1));
        let said = writer.end();
        left?;
        back?;
        println!("  {}", said?);
        Ok(())
    }

    /// The cluster is stopped and started under a client, which goes on.
    fn all_stopped(&mut self) -> Result<()> {
        let writer = self.fs.writer()?;
        std::thread::sleep(Duration::from_secs(1));
        self.fs.cluster.down()?;
        self.fs.cluster.argonaut("up", &[])?;
        let back = self.served();
        std::thread::sleep(Duration::from_secs(1));
        let said = writer.end();
        back?;
        println!("  {}", said?);
        Ok(())
    }

    /// A second server takes over from one that is stopped, or killed, under a client.
    fn failover(&self, killed: bool) -> Result<()> {
        self.fs.cluster.argonaut("up", &["--mds", "2"])?;
        self.fs.wait(BACK_S, "active server and standby", |stat| {
            stat.contains("=up:active") && stat.ends_with("1 up:standby")
        })?;
        let writer = self.fs.writer()?;
        std::thread::sleep(Duration::from_secs(1));
        let first = self.fs.active()?;
        let name = format!("mds.{first}");
        if killed {
            // Nobody starts it before the monitors miss it.
            let supervisor = self.pid("supervise")?.to_string();
            sh::run(Command::new("kill").args(["-STOP", &supervisor]))?;
            let dead = self.kill9(&name);
            let taken = self.taken(&first);
            sh::run(Command::new("kill").args(["-CONT", &supervisor]))?;
            dead.and(taken)?;
        } else {
            self.fs.cluster.argonaut("stop", &[&name])?;
            self.taken(&first)?;
            self.fs.cluster.argonaut("start", &[&name])?;
        }
        std::thread::sleep(Duration::from_secs(2));
        println!("  {}", writer.end()?);
        self.fs.tree("check")
    }

    fn taken(&self, from: &str) -> Result<()> {
        self.fs.wait(BACK_S, "other active server", |stat| {
            stat.contains("=up:active") && !stat.contains(&format!("={from}=up"))
        })
    }

    /// A client that is evicted is shut out; others go on.
    fn evicted(&self) -> Result<()> {
        let writer = self.fs.writer()?;
        std::thread::sleep(Duration::from_millis(500));
        self.fs.ceph(
            "id=$(ceph tell mds.0 session ls | python3 -c 'import json, sys; \
                 all = json.load(sys.stdin); assert len(all) == 1, all; print(all[0][\"id\"])'); \
             before=$(ceph osd blocklist ls 2>/dev/null | wc -l); \
             ceph tell mds.0 session evict id=$id >/dev/null; \
             test $(ceph osd blocklist ls 2>/dev/null | wc -l) -gt $before",
        )?;
        ensure!(writer.end().is_err(), "the client that was evicted went on");
        self.fs.tree("check")
    }

    /// Runs one verb of `tests/fs/scrub.py`.
    fn scrub(&self, verb: &str) -> Result<()> {
        let (dir, conf) = (self.fs.cluster.dir.display(), self.fs.cluster.conf());
        let line =
            format!("exec timeout 120 python3 {dir}/scrub.py {} cephfs {verb}", conf.display());
        self.fs.ceph(&line).map(drop)
    }

    /// A scrub finds nothing; then directories and a file are broken while no server runs, which a
    /// scrub finds and mends. All is as before then.
    fn scrubbed(&self) -> Result<()> {
        let program = "scrub.py";
        let from = sh::repo().join("tests/fs").join(program);
        std::fs::copy(from, self.fs.cluster.dir.join(program))?;
        self.scrub("clean")?;
        self.scrub("find")?;
        self.fs.cluster.argonaut("stop", &["mds.a"])?;
        let broken = self.scrub("break");
        self.fs.cluster.argonaut("start", &["mds.a"])?;
        broken?;
        self.served()?;
        self.scrub("mend")?;
        self.fs.tree("check")
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

/// Where the stock server is that serves our tree.
const STOCK: &str = "stock";

impl Ours {
    /// Stops our servers in good order and has a stock one serve the tree: it is what a client
    /// left, and the server's own scrub finds nothing wrong. Then the way back, with what was
    /// written there.
    fn both_ways(&self) -> Result<()> {
        self.fs.clean_stop()?;
        for name in ["mds.a", "mds.b"] {
            self.fs.cluster.argonaut("stop", &[name])?;
        }
        self.fs.start_stock(STOCK)?;
        let there = self.on_stock();
        let stopped = self.fs.clean_stop();
        let killed = self.fs.kill_stock(STOCK);
        for name in ["mds.a", "mds.b"] {
            self.fs.cluster.argonaut("start", &[name])?;
        }
        there.context("at the stock server")?;
        stopped.context("the stock server")?;
        killed.context("the end of the stock server")?;
        self.fs.ceph("ceph fs set cephfs down false")?;
        self.served()?;
        self.fs.tree("check")?;
        self.fs.tree_at("check", "other")?;
        self.fs.snaps("check")?;
        self.fs.snaps("drop")
    }

    fn on_stock(&self) -> Result<()> {
        self.fs.ceph("ceph fs set cephfs down false")?;
        self.fs.wait(BACK_S, "stock server", |stat| stat.contains("stock=up:active"))?;
        self.fs.tree("check")?;
        self.fs.snaps("check")?;
        let scrubbed = self.fs.ceph(
            "ceph tell mds.0 scrub start / recursive,force >/dev/null; \
             for i in $(seq 60); do \
                 ceph tell mds.0 scrub status | grep -q 'no active scrubs' && break; sleep 0.5; \
             done; ceph tell mds.0 scrub status; ceph tell mds.0 damage ls; \
             ceph log last 1000 | grep -i 'mds.*\\(scrub error\\|wrongly\\|\\[ERR\\]\\)' || true",
        )?;
        let clean = scrubbed.contains("no active scrubs")
            && scrubbed.contains("[]")
            && !scrubbed.contains("ERR");
        ensure!(clean, "the stock server finds: {scrubbed}");
        self.fs.tree_at("write", "other")
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
    report.check("snapshots", || ours.fs.snaps("make"));
    report.check("another mount reads them", || ours.fs.snaps("check"));
    report.check("two mounts of ceph-fuse", || {
        let said = ours.fs.fuse()?;
        println!("  {}", said.trim().replace('\n', ", "));
        Ok(())
    });
    report.check("commands to the server", || {
        let line = "ceph tell mds.a version | grep -q argonaut; \
             ceph tell mds.0 status | grep -q '\"whoami\": 0'; \
             ceph tell mds.a session ls >/dev/null; \
             ceph mds metadata a | grep -q ceph_version; \
             ceph -s | grep -q 'volumes: 1/1 healthy'";
        ours.fs.ceph(line).map(drop)
    });
    report.check("kill -9 of the server under a client", || ours.killed());
    report.check("the only server is stopped and started under a client", || ours.stopped());
    report.check("the tree after it", || ours.fs.tree("check"));
    report.check("the snapshots after it", || ours.fs.snaps("check"));
    report.check("a scrub finds nothing, and mends what was broken", || ours.scrubbed());
    report.check("another server takes over from one that is stopped", || ours.failover(false));
    report.check("another server takes over from one that is killed", || ours.failover(true));
    report.check("our client library, through restarts of both servers", || {
        let (bin, dir) = (crate::cluster::binary()?, ours.fs.cluster.dir.display());
        let again = |name| format!("{} restart mds.{name} --dir {dir}", bin.display());
        ours.fs.library(&format!("{}; sleep 1.5; {}", again("a"), again("b")))
    });
    report.check("a client that is evicted is shut out", || ours.evicted());
    report.check("the server is started again", || ours.again(false));
    report.check("the cluster is started again", || ours.again(true));
    report.check("the cluster is stopped and started under a client", || ours.all_stopped());
    report.check("a stock server serves our tree, and ours what it left", || ours.both_ways());
    report.check("health after the clients", || ours.fs.healthy());
    Ok(report)
}
