//! Metadata servers, OSDs and monitors are killed, stopped and told to give up under mounts of
//! `ceph-fuse`: no program sees an error, what was synced is there, no mount sees what is no longer so,
//! and in the end a scrub finds nothing, and directories add up to what a walk finds.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use env::{Random, Seeded};

use crate::fs_cluster::FsCluster;
use crate::report::Report;
use crate::thrash::{Running, all_well, fsck, is_clean, keep};
use crate::trouble::Trouble;
use crate::{lab, sh};

const OSDS: u64 = 3;
/// How long all may take to be well when trouble ends.
const WELL_MAX: Duration = Duration::from_secs(180);
/// A mount lives so long before it is killed, in the program that tells what was synced.
const LIFE_S: u64 = 25;

/// Thrashes for `secs` seconds.
///
/// # Errors
/// When the cluster does not start; what failed is in the report.
pub fn run(secs: u64) -> Result<Report> {
    let mut report = Report::default();
    lab::root(crate::fs_cluster::SUITE)?;
    let args = ["--osds", "3", "--mons", "3", "--fs", "--mds", "3", "--osd-bytes", "8G"];
    let mut fs = FsCluster::up("thrash-fs", &args)?;
    let program = sh::repo().join("tests/fs/thrash.py");
    std::fs::copy(program, fs.cluster.dir.join("thrash.py"))?;
    // Caps of a mount that was killed come back when its session ends.
    fs.ceph(
        "ceph fs set cephfs session_timeout 30; ceph fs set cephfs session_autoclose 45; \
         ceph config set mds mds_reconnect_timeout 12",
    )?;
    fs.wait(30, "active server", |stat| stat.contains("=up:active"))?;
    let seed = std::process::id().into();
    println!("seed {seed}");
    let mut thrasher = Thrasher::new(&fs, seed);
    report.check(&format!("programs on mounts, for {secs} s"), || thrasher.programs(secs));
    report.check("all is well when trouble ends", || thrasher.heal());
    println!("        {:?}", thrasher.counts);
    report.check("what was synced is there; directories add up", || look(&fs));
    report.check("a scrub finds nothing", || scrub(&fs));
    report.check("fsck of every store", || fsck(&mut fs.cluster, OSDS));
    Ok(report)
}

/// Mounts at `$m`, and what ends it however the line ends.
fn mounted(fs: &FsCluster, mounts: &[&str], line: &str) -> String {
    let (dir, conf) = (fs.cluster.dir.display(), fs.cluster.conf());
    let all = mounts.join(" ");
    format!(
        "cd {dir}; mkdir -p log; for m in {all}; do mkdir -p mnt.$m; done; \
         trap 'for m in {all}; do umount -l {dir}/mnt.$m 2>/dev/null; done; true' EXIT; \
         mount_at() {{ timeout 120 ceph-fuse -c {} --id admin --log-file={dir}/log/fuse.$1.log $FUSE_DEBUG \
             {dir}/mnt.$1 >>log/fuse.$1.out 2>&1; }}; \
         {line}",
        conf.display()
    )
}

/// A new mount looks at all that the programs left.
fn look(fs: &FsCluster) -> Result<()> {
    let line = "mount_at look && timeout 300 python3 thrash.py check mnt.look/kept kept.log && \
                timeout 150 python3 thrash.py sums mnt.look";
    let said = fs.ceph(&mounted(fs, &["look"], line))?;
    println!("        {}", said.trim().replace('\n', "; "));
    Ok(())
}

fn scrub(fs: &FsCluster) -> Result<()> {
    fs.scrubbed()?;
    let health = fs.ceph("ceph health detail")?;
    ensure!(!health.contains("MDS_DAMAGE"), "{health}");
    Ok(())
}

struct Thrasher<'a> {
    fs: &'a FsCluster,
    random: Seeded,
    trouble: Trouble<'a>,
    counts: BTreeMap<&'static str, u32>,
}

impl<'a> Thrasher<'a> {
    fn new(fs: &'a FsCluster, seed: u64) -> Self {
        let trouble = Trouble::new(&fs.cluster);
        Self { fs, random: Seeded(seed), trouble, counts: BTreeMap::new() }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random.u64() % n
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// Runs all programs, with trouble until they end.
    fn programs(&mut self, secs: u64) -> Result<()> {
        let (fs, most) = (self.fs, secs + 240);
        let cluster = &fs.cluster;
        let own = |n: u32| {
            let line = format!(
                "mount_at own{n} && timeout {most} \
                 python3 thrash.py own mnt.own{n}/own{n} local{n} {secs} {n}"
            );
            mounted(fs, &[&format!("own{n}")], &line)
        };
        let pair = format!(
            "mount_at one && mount_at two && \
             timeout {most} python3 thrash.py pair mnt.one mnt.two {secs} 3"
        );
        // Nobody mounts while there is no active server. The client dies with what it had not told; what was synced is there for the next one.
        let kept = format!(
            "n=0; end=$((SECONDS + {secs})); touch kept.log; while [ $SECONDS -lt $end ]; do \
                 n=$((n + 1)); for i in $(seq 60); do mount_at kept && break; sleep 1; done; \
                 mkdir -p mnt.kept/kept || exit 1; \
                 timeout {most} python3 thrash.py kept mnt.kept/kept kept.log {LIFE_S} & w=$!; \
                 sleep $(({LIFE_S} - 5)); pkill -KILL -f 'ceph-fuse .*/mnt[.]kept$'; \
                 wait $w || exit 1; umount -l mnt.kept; \
             done; echo \"$n mounts were killed\""
        );
        let mut all = vec![
            Running::start(cluster, "own1", &own(1))?,
            Running::start(cluster, "own2", &own(2))?,
            Running::start(cluster, "pair", &mounted(fs, &["one", "two"], &pair))?,
            Running::start(cluster, "kept", &mounted(fs, &["kept"], &kept))?,
        ];
        let (began, end) = (sh::now(), sh::now() + Duration::from_secs(most));
        let mut next = sh::now() + Duration::from_secs(5);
        loop {
            let mut done = true;
            for one in &mut all {
                done &= one.is_done()?;
            }
            if done || sh::now() > end {
                let ended = all_well(all, Vec::new());
                return ended.inspect_err(|_| {
                    self.tell(&format!(
                        "ceph log last 1000 >{}/log/cluster",
                        cluster.dir.display()
                    ))
                    .ok();
                    keep(&cluster.dir.join("log"));
                });
            }
            self.trouble.keep()?;
            if sh::now() >= next && began.elapsed().as_secs() < secs {
                self.act()?;
                next = sh::now() + Duration::from_millis(2_000 + self.below(9_000));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn act(&mut self) -> Result<()> {
        let kind = self.below(16);
        let osd = format!("osd.{}", self.below(OSDS));
        let mon = format!("mon.{}", ["a", "b", "c"][self.below(3) as usize]);
        let long = Duration::from_secs([0, 0, 4, 12][self.below(4) as usize]);
        let pause = Duration::from_millis(200 + self.below(14_000));
        match kind {
            0..=4 if self.trouble.count("mds") == 0 => {
                self.count("active servers killed");
                let active = self.active()?;
                self.trouble.kill(active, long)?;
            }
            5..=7 if self.trouble.count("mds") == 0 => {
                self.count("active servers stopped");
                let active = self.active()?;
                self.trouble.stop(active, pause)?;
            }
            8 if self.trouble.count("mds") == 0 => {
                self.count("servers killed, whichever");
                let name = format!("mds.{}", ["a", "b", "c"][self.below(3) as usize]);
                self.trouble.kill(name, long)?;
            }
            9 => {
                self.count("servers told to give up");
                self.tell("timeout 60 ceph mds fail 0")?;
            }
            10..=11 if self.trouble.count("osd") == 0 => {
                self.count("OSDs killed");
                self.trouble.kill(osd, long)?;
            }
            12 if self.trouble.count("osd") == 0 => {
                self.count("OSDs stopped");
                self.trouble.stop(osd, pause)?;
            }
            13 if self.trouble.count("mon") == 0 => {
                self.count("monitors killed");
                self.trouble.kill(mon, long.min(Duration::from_secs(4)))?;
            }
            14 => {
                self.count("journals flushed");
                self.tell("timeout 20 ceph tell mds.cephfs:0 flush journal")?;
            }
            15 => {
                self.count("scrubs begun");
                self.tell("timeout 20 ceph tell mds.cephfs:0 scrub start / recursive")?;
            }
            _ => {}
        }
        Ok(())
    }

    /// The active server; one that is none yet is any.
    fn active(&self) -> Result<String> {
        let name = self
            .fs
            .ceph("timeout 60 ceph mds stat")
            .map(|stat| crate::fs_cluster::active_of(stat.trim()).unwrap_or("a").to_owned())?;
        Ok(format!("mds.{name}"))
    }

    /// Asks for something that may come to nothing: whom it is for may be dead.
    fn tell(&self, line: &str) -> Result<()> {
        self.fs.ceph(&format!("{{ {line}; }} >/dev/null 2>&1 || true")).map(drop)
    }

    /// All run; within bounded time all is as it should be.
    fn heal(&mut self) -> Result<()> {
        self.trouble.end()?;
        let began = sh::now();
        loop {
            let last = self.fs.ceph("timeout 60 ceph -s -f json")?;
            let s: serde_json::Value = serde_json::from_str(&last).context("status")?;
            let servers = &s["fsmap"];
            let served = servers["up"] == 1 && servers["up:standby"] == 2;
            if is_clean(&s) && served && s["osdmap"]["num_up_osds"] == OSDS {
                println!("        well after {:.1} s", began.elapsed().as_secs_f64());
                return Ok(());
            }
            if began.elapsed() > WELL_MAX {
                bail!("not well after {} s: {last}", WELL_MAX.as_secs());
            }
            std::thread::sleep(Duration::from_millis(300));
        }
    }
}
