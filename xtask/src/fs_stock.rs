//! Stock metadata servers on monitors and OSDs of ours, and a stock client of the file system that
//! they serve.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::cluster::Cluster;
use crate::report::Report;
use crate::{lab, sh};

const SUITE: &str = "forky";

/// Seconds of silence that cost a server its rank here; beacons come every second.
const GRACE_S: u64 = 5;

/// A file system `cephfs`, served by `ceph-mds`; they end when it is dropped.
struct Served {
    cluster: Cluster,
}

impl Served {
    fn up() -> Result<Self> {
        let cluster = Cluster::up("fs", &["--osds", "3"])?;
        println!("argonaut up: {:.2} s", cluster.up_s);
        std::fs::copy(sh::repo().join("tests/fs/tree.py"), cluster.dir.join("tree.py"))?;
        let this = Self { cluster };
        this.ceph(&format!(
            "ceph config set global mds_beacon_interval 1; \
             ceph config set global mds_beacon_grace {GRACE_S}; \
             ceph config set global mds_beacon_mon_down_grace {GRACE_S}; \
             ceph osd pool create meta 8; ceph osd pool create data 8; \
             ceph fs new cephfs meta data"
        ))?;
        Ok(this)
    }

    fn ceph(&self, line: &str) -> Result<String> {
        sh::output(&mut self.cluster.client(SUITE, &format!("set -e; {line}")))
    }

    fn start(&self, name: &str) -> Result<()> {
        let at = self.cluster.dir.join("mds").join(name);
        let (at, conf) = (at.display(), self.cluster.conf());
        let conf = conf.display();
        self.ceph(&format!(
            "mkdir -p {at}; ceph auth get-or-create mds.{name} mon 'profile mds' osd 'allow *' \
             mds 'allow *' mgr 'profile mds' -o {at}/keyring; \
             ceph-mds -i {name} -c {conf} --keyring={at}/keyring --mds-data={at} \
             --log-file={at}/log --pid-file={at}/pid --admin-socket={at}/asok \
             </dev/null >/dev/null 2>{at}/err"
        ))
        .map(drop)
    }

    fn pid(&self, name: &str) -> Result<String> {
        let path = self.cluster.dir.join("mds").join(name).join("pid");
        Ok(std::fs::read_to_string(path)?.trim().to_owned())
    }

    fn kill9(&self, name: &str) -> Result<()> {
        sh::run(Command::new("kill").args(["-KILL", &self.pid(name)?]))
    }

    /// `cephfs:1 {0=a=up:active} 1 up:standby`
    fn stat(&self) -> Result<String> {
        self.ceph("ceph mds stat").map(|stat| stat.trim().to_owned())
    }

    /// The name of the server that is active; empty where there is none.
    fn active(&self) -> Result<String> {
        let stat = self.stat()?;
        let before = stat.split("=up:active").next().filter(|part| part.len() < stat.len());
        Ok(before.and_then(|part| part.rsplit('=').next()).unwrap_or_default().to_owned())
    }

    fn wait(&self, seconds: u64, what: &str, is: impl Fn(&str) -> bool) -> Result<()> {
        let end = sh::now() + Duration::from_secs(seconds);
        loop {
            let stat = self.stat()?;
            if is(&stat) {
                return Ok(());
            }
            if sh::now() > end {
                bail!("no {what} within {seconds} s: {stat}");
            }
            std::thread::sleep(Duration::from_millis(300));
        }
    }

    fn tree_line(&self, verb: &str) -> String {
        let (dir, conf) = (self.cluster.dir.display(), self.cluster.conf());
        format!("exec timeout 60 python3 {dir}/tree.py {} cephfs {verb}", conf.display())
    }

    fn tree(&self, verb: &str) -> Result<()> {
        self.ceph(&self.tree_line(verb)).map(drop)
    }

    /// A client that writes files until it is told to stop.
    fn writer(&self) -> Result<(Child, impl BufRead + use<>)> {
        let mut command = self.cluster.client(SUITE, &self.tree_line("through"));
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn()?;
        let mut said = BufReader::new(child.stdout.take().context("its output")?);
        let mut line = String::new();
        said.read_line(&mut line)?;
        ensure!(line.trim() == "mounted", "the client says {line:?}");
        Ok((child, said))
    }

    /// The active server dies under a client: another takes over, the client goes on, and the dead
    /// one is shut out in the map that its successor waited for.
    fn failover(&self) -> Result<()> {
        let (mut writer, mut said) = self.writer()?;
        std::thread::sleep(Duration::from_secs(1));
        let dead = self.active()?;
        self.kill9(&dead)?;
        let taken = self.wait(30, "other active server", |stat| {
            stat.contains("=up:active") && !stat.contains(&format!("={dead}="))
        });
        std::thread::sleep(Duration::from_secs(1));
        writeln!(writer.stdin.take().context("its input")?)?;
        let mut line = String::new();
        said.read_line(&mut line)?;
        let ended = writer.wait()?;
        taken?;
        ensure!(ended.success(), "the client failed");
        println!("  {}", line.trim());
        self.ceph(
            "ceph fs get cephfs -f json | python3 -c 'import json, sys; \
             m = json.load(sys.stdin)[\"mdsmap\"]; assert m[\"last_failure_osd_epoch\"] > 0, m'; \
             test $(ceph osd blocklist ls 2>/dev/null | wc -l) -ge 1",
        )?;
        self.start(&dead)?;
        self.wait(20, "standby", |stat| stat.ends_with("1 up:standby"))
    }

    /// The leading monitor dies: no server loses its rank by that.
    fn another_leader(&self) -> Result<()> {
        let active = self.active()?;
        let leader = self.ceph(
            "ceph quorum_status | python3 -c 'import json, sys; \
             print(json.load(sys.stdin)[\"quorum_leader_name\"])'",
        )?;
        let name = format!("mon.{}", leader.trim());
        let pids = self.cluster.pids()?;
        let (_, pid) = pids.into_iter().find(|(n, _)| *n == name).context("the leader's pid")?;
        sh::run(Command::new("kill").args(["-KILL", &pid.to_string()]))?;
        std::thread::sleep(Duration::from_secs(GRACE_S + 3));
        let now = self.active()?;
        ensure!(now == active, "mds.{active} was active, now it is {now:?}: {}", self.stat()?);
        self.wait(20, "standby", |stat| stat.ends_with("1 up:standby"))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        for name in ["a", "b"] {
            if let Ok(pid) = self.pid(name) {
                sh::output(Command::new("kill").args(["-KILL", &pid])).ok();
            }
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
        served.start("a")?;
        served.start("b")?;
        served.wait(30, "active server and standby", |stat| {
            stat.contains("=up:active") && stat.ends_with("1 up:standby")
        })
    });
    report.check("stock libcephfs writes a tree", || served.tree("write"));
    report.check("another mount reads it", || served.tree("check"));
    report.check("commands to the servers", || {
        let line = "for m in a b; do ceph tell mds.$m status | grep -q want_state; done; \
             ceph versions | grep -q '\"mds\"'; ceph mds metadata a | grep -q ceph_version; \
             ceph -s | grep -q 'mds: 1/1 daemons up, 1 standby'; \
             ceph -s | grep -q 'volumes: 1/1 healthy'; \
             ! ceph osd pool rm meta meta --yes-i-really-really-mean-it 2>/dev/null";
        served.ceph(line).map(drop)
    });
    report.check("kill -9 of the active server under a client", || served.failover());
    report.check("kill -9 of the leading monitor", || served.another_leader());
    report.check("the tree after both", || served.tree("check"));
    report.check("health after the clients", || {
        let end = sh::now() + Duration::from_secs(20);
        loop {
            let health = served.ceph("ceph health")?;
            if health.starts_with("HEALTH_OK") {
                return Ok(());
            }
            ensure!(sh::now() < end, "{health}");
            std::thread::sleep(Duration::from_millis(500));
        }
    });
    Ok(report)
}
