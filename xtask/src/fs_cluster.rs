//! A cluster with a file system, and a stock client of it: `tests/fs/tree.py` by libcephfs.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::cluster::Cluster;
use crate::sh;

/// The release whose client it is.
pub const SUITE: &str = "forky";

/// Seconds of silence that cost a server its rank here; beacons come every second.
pub const GRACE_S: u64 = 5;

/// A cluster with a file system `cephfs`.
pub struct FsCluster {
    /// It ends when this is dropped.
    pub cluster: Cluster,
}

/// A client that writes files until it is told to stop.
pub struct Writer {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Writer {
    /// Has it stop and read all that it wrote; what it says of that.
    ///
    /// # Errors
    /// When it failed.
    pub fn end(mut self) -> Result<String> {
        writeln!(self.child.stdin.take().context("its input")?)?;
        let mut line = String::new();
        self.said.read_line(&mut line)?;
        let ended = self.child.wait()?;
        ensure!(ended.success(), "the client failed");
        Ok(line.trim().to_owned())
    }
}

/// The name of the server that is active, by `ceph mds stat`.
pub fn active_of(stat: &str) -> Option<&str> {
    stat.split_once("=up:active")?.0.rsplit('=').next()
}

impl FsCluster {
    /// Starts the cluster; servers and file system are the caller's.
    ///
    /// # Errors
    /// When it does not start.
    pub fn up(name: &str, args: &[&str]) -> Result<Self> {
        let cluster = Cluster::up(name, args)?;
        println!("argonaut up: {:.2} s", cluster.up_s);
        for program in ["tree.py", "snaps.py", "fuse.py"] {
            std::fs::copy(sh::repo().join("tests/fs").join(program), cluster.dir.join(program))?;
        }
        let this = Self { cluster };
        this.ceph(&format!(
            "ceph config set global mds_beacon_interval 1; \
             ceph config set global mds_beacon_grace {GRACE_S}; \
             ceph config set global mds_beacon_mon_down_grace {GRACE_S}"
        ))?;
        Ok(this)
    }

    /// Starts a stock metadata server that looks at its rank five times as often as by itself: one
    /// that stops writes sums of one directory upward each time, after a scrub of all of them.
    ///
    /// # Errors
    /// As [`Self::ceph`].
    pub fn start_stock(&self, name: &str) -> Result<()> {
        let at = self.cluster.dir.join("mds").join(name);
        let (at, conf) = (at.display(), self.cluster.conf());
        let conf = conf.display();
        self.ceph(&format!(
            "mkdir -p {at}; ceph auth get-or-create mds.{name} mon 'profile mds' osd 'allow *' \
             mds 'allow *' mgr 'profile mds' -o {at}/keyring; \
             ceph-mds -i {name} -c {conf} --keyring={at}/keyring --mds-data={at} \
             --mds-tick-interval=1 --log-file={at}/log --pid-file={at}/pid --admin-socket={at}/asok \
             </dev/null >/dev/null 2>{at}/err"
        ))
        .map(drop)
    }

    /// Kills it, if it runs.
    ///
    /// # Errors
    /// When it was never started.
    pub fn kill_stock(&self, name: &str) -> Result<()> {
        let path = self.cluster.dir.join("mds").join(name).join("pid");
        // One that has just given up its rank begins anew: the file is gone for a moment.
        let end = sh::now() + Duration::from_secs(5);
        while !path.exists() && path.with_file_name("keyring").exists() && sh::now() < end {
            std::thread::sleep(Duration::from_millis(50));
        }
        let pid = std::fs::read_to_string(&path)?;
        sh::output(Command::new("kill").args(["-KILL", pid.trim()]))?;
        std::fs::remove_file(path)?;
        Ok(())
    }

    /// Has every server give up its rank, with the tree whole on disk.
    ///
    /// # Errors
    /// When a rank is up after a minute.
    pub fn clean_stop(&self) -> Result<()> {
        self.ceph("ceph fs set cephfs down true")?;
        self.wait(60, "end of the rank", |stat| !stat.contains("=up:") && !stat.contains("failed"))
    }

    /// Runs a line of bash with upstream's commands; its output.
    ///
    /// # Errors
    /// When a command of it fails.
    pub fn ceph(&self, line: &str) -> Result<String> {
        sh::output(&mut self.cluster.client(SUITE, &format!("set -e; {line}")))
    }

    /// `cephfs:1 {0=a=up:active} 1 up:standby`
    ///
    /// # Errors
    /// As [`Self::ceph`].
    pub fn stat(&self) -> Result<String> {
        self.ceph("ceph mds stat").map(|stat| stat.trim().to_owned())
    }

    /// The name of the server that is active; empty where there is none.
    ///
    /// # Errors
    /// As [`Self::ceph`].
    pub fn active(&self) -> Result<String> {
        Ok(active_of(&self.stat()?).unwrap_or_default().to_owned())
    }

    /// Waits until `ceph mds stat` is as wanted.
    ///
    /// # Errors
    /// When it is not after so many seconds.
    pub fn wait(&self, seconds: u64, what: &str, is: impl Fn(&str) -> bool) -> Result<()> {
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

    /// The same with a tree of another name.
    ///
    /// # Errors
    /// As [`Self::tree`].
    pub fn tree_at(&self, verb: &str, name: &str) -> Result<()> {
        self.ceph(&format!("{} {name}", self.tree_line(verb))).map(drop)
    }

    fn tree_line(&self, verb: &str) -> String {
        let (dir, conf) = (self.cluster.dir.display(), self.cluster.conf());
        format!("exec timeout 60 python3 {dir}/tree.py {} cephfs {verb}", conf.display())
    }

    /// Runs one mount: `write` or `check`.
    ///
    /// # Errors
    /// When what it reads is not what was written.
    pub fn tree(&self, verb: &str) -> Result<()> {
        self.ceph(&self.tree_line(verb)).map(drop)
    }

    /// Runs the client library's live test; `failover` has another server take over meanwhile.
    ///
    /// # Errors
    /// When a case of it fails.
    pub fn library(&self, failover: &str) -> Result<()> {
        // Of the workspace: for one crate alone, what it needs would be built anew.
        let mut cargo = sh::cargo(&["test", "--quiet", "--workspace", "--test", "mounts"]);
        cargo.env("ARGONAUT_TEST_CONF", self.cluster.conf());
        sh::output(cargo.env("ARGONAUT_TEST_FAILOVER", failover)).map(drop)
    }

    /// Runs one mount of `tests/fs/snaps.py`: `make`, `check` or `drop`.
    ///
    /// # Errors
    /// When what it reads is not what the snapshots are of.
    pub fn snaps(&self, verb: &str) -> Result<()> {
        let (dir, conf) = (self.cluster.dir.display(), self.cluster.conf());
        let conf = conf.display();
        self.ceph(&format!("exec timeout 60 python3 {dir}/snaps.py {conf} cephfs {verb}")).map(drop)
    }

    /// Runs `tests/fs/fuse.py` on two mounts of `ceph-fuse`.
    ///
    /// # Errors
    /// When a mount or a case of it fails.
    pub fn fuse(&self) -> Result<String> {
        let line = "mkdir -p local; timeout 150 python3 fuse.py $PWD/one $PWD/two $PWD/local";
        self.on_mounts(SUITE, "/", line)
    }

    /// A client that writes files until it is told to stop.
    ///
    /// # Errors
    /// When it does not mount.
    pub fn writer(&self) -> Result<Writer> {
        let mut command = self.cluster.client(SUITE, &self.tree_line("through"));
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn()?;
        let mut said = BufReader::new(child.stdout.take().context("its output")?);
        let mut line = String::new();
        said.read_line(&mut line)?;
        ensure!(line.trim() == "mounted", "the client says {line:?}");
        Ok(Writer { child, said })
    }

    /// Scrubs all of the file system.
    ///
    /// # Errors
    /// When the scrub does not end within three minutes, or damage is known.
    pub fn scrubbed(&self) -> Result<()> {
        self.ceph("ceph tell mds.cephfs:0 scrub start / recursive >/dev/null")?;
        let end = sh::now() + Duration::from_secs(180);
        while !self.ceph("ceph tell mds.cephfs:0 scrub status")?.contains("no active scrubs") {
            ensure!(sh::now() < end, "the scrub does not end");
            std::thread::sleep(Duration::from_secs(1));
        }
        let damage = self.ceph("ceph tell mds.cephfs:0 damage ls")?;
        ensure!(damage.trim() == "[]", "{damage}");
        Ok(())
    }

    /// Runs a line in a suite's root, with `root` mounted by `ceph-fuse` at `one` and `two` in the
    /// cluster's directory, where the line runs.
    ///
    /// # Errors
    /// When a mount or the line fails.
    pub fn on_mounts(&self, suite: &str, root: &str, line: &str) -> Result<String> {
        let (dir, conf) = (self.cluster.dir.display(), self.cluster.conf());
        let conf = conf.display();
        let line = format!(
            "set -e; cd {dir}; mkdir -p one two log; \
             trap 'umount -l {dir}/one {dir}/two 2>/dev/null; true' EXIT; \
             for m in one two; do \
                 timeout 60 ceph-fuse -c {conf} --id admin -r {root} {dir}/$m >>log/fuse-$m.out 2>&1; \
             done; {line}"
        );
        sh::output(&mut self.cluster.client(suite, &line))
    }

    /// Waits until the cluster is healthy again.
    ///
    /// # Errors
    /// What it says of itself after 20 s.
    pub fn healthy(&self) -> Result<()> {
        let end = sh::now() + Duration::from_secs(20);
        loop {
            let health = self.ceph("ceph health")?;
            if health.starts_with("HEALTH_OK") {
                return Ok(());
            }
            ensure!(sh::now() < end, "{health}");
            std::thread::sleep(Duration::from_millis(500));
        }
    }
}
