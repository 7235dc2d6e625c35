//! OSDs and monitors are killed, stopped, marked out, reweighted and given more PGs while
//! upstream's clients and a verifying one work: no client sees an error, nothing
//! acknowledged is lost, and in the end all is clean, down to the stores. On hosts of their own
//! they are cut off from one another too, and disks are filled.

mod damage;
mod parts;
mod waits;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use env::{Random, Seeded};

use damage::{BLOCK, StoreFile};
use parts::{Filling, Parted};
use waits::Waits;

use crate::cluster::{Cluster, binary, is_stopped};
use crate::report::{LeftOut, Report};
use crate::trouble::{Trouble, signal};
use crate::{lab, sh};

const SUITE: &str = "forky";
const OSDS: u64 = 4;
/// How long the cluster may take to become clean when trouble ends.
const CLEAN_MAX: Duration = Duration::from_secs(180);
/// How often a monitor is killed, where monitors are killed at all.
const MON_EVERY: Duration = Duration::from_secs(20);

/// Upstream's programs that run one after the other, in rounds, while OSDs are thrashed.
const PROGRAMS: [&str; 4] = [
    "ceph_test_rados_delete_pools_parallel",
    "ceph_test_rados_open_pools_parallel",
    "ceph_test_rados_list_parallel",
    "ceph_test_osd_stale_read",
];

/// The program of these that leaves `main` with its connection to a monitor open. When that is killed
/// in this moment, the next connection is made by a thread for which OpenSSL is gone, and the program
/// aborted; all was well if it has said so.
const LEFT_OPEN: &str = "ceph_test_rados_list_parallel";

/// What a run of the thrasher has beside OSDs in trouble.
#[derive(Clone, Copy, Default)]
pub struct Mode {
    /// Monitors are killed.
    pub mons: bool,
    /// Upstream's programs run, too.
    pub programs: bool,
    /// All daemons are on hosts of their own, which are cut off from others, and disks are filled.
    pub partitions: bool,
}

/// Thrashes for `secs` seconds.
///
/// # Errors
/// When the cluster does not start; what failed is in the report.
pub fn run(secs: u64, mode: Mode) -> Result<Report> {
    let mut report = Report::default();
    lab::root(SUITE)?;
    let mut cluster = if mode.partitions {
        match Cluster::up_on_hosts("thrash", "1536M") {
            Err(e) if e.is::<LeftOut>() => {
                report.check("thrashed hosts", || Err(e));
                return Ok(report);
            }
            other => other?,
        }
    } else {
        Cluster::up("thrash", &["--osds", "4", "--mons", "3", "--osd-bytes", "6G"])?
    };
    let seed = std::process::id().into();
    println!("argonaut up: {:.2} s; seed {seed}", cluster.up_s);
    let mut thrasher = Thrasher::new(&cluster, seed, mode)?;
    report.check(&format!("clients while thrashed for {secs} s"), || {
        clients(&mut thrasher, secs, mode.programs)
    });
    report.check("all clean when trouble ends", || thrasher.heal());
    report.check("damage is found and mended", || thrasher.mend());
    report.check("what was acknowledged is there", || {
        let tool = cluster.dir.join("acks.py").display().to_string();
        let dir = cluster.dir.display();
        let line = format!("timeout 300 python3 {tool} check acks {dir}/acks.log");
        println!("        {}", sh::output(&mut cluster.client(SUITE, &line))?.trim());
        Ok(())
    });
    println!("        {:?}", thrasher.counts);
    report.check("fsck of every store", || fsck(&mut cluster, OSDS));
    Ok(report)
}

/// Stops the cluster and checks its stores, data included.
///
/// # Errors
/// When something is wrong with one.
pub fn fsck(cluster: &mut Cluster, osds: u64) -> Result<()> {
    cluster.down()?;
    for osd in 0..osds {
        let dir = cluster.dir.join(format!("osd.{osd}"));
        let mut fsck = std::process::Command::new(binary()?);
        fsck.args(["store", "--data-path"]).arg(&dir).args(["fsck", "--deep"]);
        let out = sh::output(&mut fsck).inspect_err(|_| keep(&dir))?;
        println!("        osd.{osd}: {}", out.trim().lines().last().unwrap_or_default());
    }
    Ok(())
}

/// A store that is not well, or a log, is kept for whoever looks why; the cluster's directory goes.
pub fn keep(path: &Path) {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let kept = Path::new(lab::SHARE).join(format!("failed-{name}-{}", std::process::id()));
    match std::fs::rename(path, &kept) {
        Ok(()) => println!("        kept in {}", kept.display()),
        Err(e) => println!("        {} cannot be kept: {e}", path.display()),
    }
}

/// What a program says of its end: the last lines, and those before the trace of a crash.
fn last_words(text: &str) -> String {
    const BEFORE: usize = 16;
    const CRASH: [&str; 3] = ["FAILED ceph_assert", "ceph_abort", "*** Caught signal"];
    let lines: Vec<&str> = text.lines().collect();
    let crash = lines.iter().position(|l| CRASH.iter().any(|c| l.contains(c)));
    let Some(at) = crash else { return lines[lines.len().saturating_sub(12)..].join("\n") };
    let end = lines.len().min(at + 3);
    let mut shown: Vec<&str> = lines[at.saturating_sub(BEFORE)..end].to_vec();
    // What it complained of may stand far above.
    let complains = |l: &&&str| l.contains("Error:") || l.contains("incorrect");
    shown.extend(lines[..at.saturating_sub(BEFORE)].iter().filter(complains));
    shown.join("\n")
}

/// A client in the background; its output is kept in a file.
pub struct Running {
    /// For people.
    pub name: String,
    child: Child,
    log: std::path::PathBuf,
}

impl Running {
    /// Starts a bash line in the newest root.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(cluster: &Cluster, name: &str, line: &str) -> Result<Self> {
        let log = cluster.dir.join(format!("log/{name}.out"));
        let line = format!("export CEPH_ARGS='{}'; {line}", waits::args(&cluster.dir.join("run")));
        let out = std::fs::File::create(&log)?;
        let child = cluster
            .client(SUITE, &line)
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()?;
        Ok(Self { name: name.to_owned(), child, log })
    }

    /// Whether it has ended.
    ///
    /// # Errors
    /// When that cannot be told.
    pub fn is_done(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// What it said last.
    ///
    /// # Errors
    /// When its output cannot be read.
    pub fn last_line(&self) -> Result<String> {
        let text = String::from_utf8_lossy(&std::fs::read(&self.log)?).into_owned();
        Ok(text.lines().rev().find(|l| !l.trim().is_empty()).unwrap_or_default().to_owned())
    }

    /// Waits for its end, whichever.
    pub fn end(mut self) {
        self.child.wait().ok();
    }

    /// Waits for its end, which must be a good one.
    ///
    /// # Errors
    /// When it is not: its last words.
    pub fn well(mut self) -> Result<()> {
        let status = self.child.wait()?;
        if status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&std::fs::read(&self.log)?).into_owned();
        bail!("{} ended with {status}:\n{}", self.name, last_words(&text))
    }
}

/// `rados bench`, the verifying client and upstream's stress model, for `secs` seconds.
fn clients(thrasher: &mut Thrasher<'_>, secs: u64, programs: bool) -> Result<()> {
    let cluster = thrasher.cluster;
    let tool = cluster.dir.join("acks.py");
    std::fs::copy(sh::repo().join("tests/interop/acks.py"), &tool)?;
    let dir = cluster.dir.display();
    // In rounds that clean up behind them, so that the disks do not fill however long it takes.
    let most = if thrasher.filling.is_some() { "--max-objects 1500" } else { "" };
    let bench = format!(
        "end=$((SECONDS + {secs})); while [ $SECONDS -lt $end ]; do \
         timeout 200 rados -p bench bench 20 write -b 65536 -t 8 {most} || exit 1; done"
    );
    let acks = format!("exec python3 {} write acks {dir}/acks.log 1 {secs}", tool.display());
    // As upstream's qa/tasks/rados.py writes it for work without snapshots.
    let model = format!(
        "exec timeout {} ceph_test_rados \
         --max-ops 400000 --objects 50 --max-in-flight 16 --size 400000 --min-stride-size 40000 \
         --max-stride-size 80000 --max-seconds {secs} --max-attr-len 20000 --op read 100 \
         --op write 50 --op write_excl 50 --op append 50 --op append_excl 50 --op delete 50 \
         --op setattr 25 --op rmattr 25 --op copy_from 50 --op snap_create 0 --op snap_remove 0 \
         --op rollback 0 --pool model",
        secs + 200
    );
    let mut all = vec![
        Running::start(cluster, "bench", &bench)?,
        Running::start(cluster, "acks", &acks)?,
        Running::start(cluster, "ceph_test_rados", &model)?,
    ];
    if programs {
        // At least once each, however short the time. ceph_test_osd_stale_read leaves a pool that it
        // names by the second in which it begins, and fails where there is one: no two rounds in one.
        let log = format!("{dir}/log/program");
        let rounds = format!(
            "n=0; end=$((SECONDS + {secs})); while :; do for p in {}; do \
             timeout 400 stdbuf -oL $p >{log}.$p 2>&1 || {{ r=$?; \
             [ $r.$p = 134.{LEFT_OPEN} ] && grep -q '^[*]* SUCCESS [*]*$' {log}.$p || {{ \
             tail -n 400 {log}.$p; echo \"Error: $p ended with $r after $n programs\"; \
             grep -m 1 -A 5 Failure {log}.$p; exit 1; }}; echo \"$p was aborted at its end\"; }}; \
             n=$((n + 1)); echo \"$n programs have ended well\"; done; sleep 1; \
             [ $SECONDS -lt $end ] || exit 0; done",
            PROGRAMS.join(" ")
        );
        all.push(Running::start(cluster, "programs", &rounds)?);
    }
    let end = sh::now() + Duration::from_secs(secs + if programs { 1_000 } else { 190 });
    thrasher.until(|| {
        let mut done = true;
        for one in &mut all {
            done &= one.is_done()?;
        }
        Ok(done || sh::now() > end)
    })?;
    let mut wrong = Vec::new();
    for one in &mut all {
        if !one.is_done()? {
            one.child.kill()?;
            wrong.push(format!("{} does not come to an end", one.name));
        }
    }
    all_well(all, wrong)
}

/// Waits for all of them and says how each ended.
///
/// # Errors
/// When one of them, or something of `wrong`, has gone wrong: all that has.
pub fn all_well(all: Vec<Running>, mut wrong: Vec<String>) -> Result<()> {
    for one in all {
        println!("        {}: {}", one.name, one.last_line()?);
        if let Err(e) = one.well() {
            wrong.push(format!("{e:#}"));
        }
    }
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n"));
    }
    Ok(())
}

/// Makes trouble, and ends it.
struct Thrasher<'a> {
    cluster: &'a Cluster,
    random: Seeded,
    trouble: Trouble<'a>,
    out: Option<u64>,
    pg_num: u64,
    mon_at: Option<Instant>,
    /// Who is cut off.
    parted: Vec<Parted>,
    /// Where disks are filled.
    filling: Option<Filling>,
    next: Instant,
    /// When a byte of an object's copy is changed next, in the store's file.
    damage_at: Instant,
    /// Reads of what was damaged.
    reads: Vec<Running>,
    waits: Waits,
    counts: BTreeMap<&'static str, u32>,
}

/// How often a store's file is damaged.
const DAMAGE_EVERY: Duration = Duration::from_secs(40);
/// Objects of the pool `marked`, of which each is damaged once at most.
const MARKED: u64 = 50;

/// What a marked object is made of, again and again: 64 bytes, found by it in stores' files.
fn mark(object: u64) -> String {
    format!("{:-<63}\n", format!("{object:04} is a marked object of a thrashed cluster "))
}

impl<'a> Thrasher<'a> {
    fn new(cluster: &'a Cluster, seed: u64, mode: Mode) -> Result<Self> {
        for pool in ["bench", "acks", "model", "marked"] {
            for line in [
                format!("ceph osd pool create {pool} 16 16"),
                format!("ceph osd pool application enable {pool} rados"),
                format!("ceph osd pool set {pool} pg_autoscale_mode off"),
            ] {
                sh::output(&mut cluster.client(SUITE, &line))?;
            }
        }
        let dir = cluster.dir.display();
        for i in 0..MARKED {
            std::fs::write(cluster.dir.join(format!("mark.{i}")), mark(i).repeat(512))?;
        }
        let put = format!(
            "for i in $(seq 0 {}); do rados -p marked put m$i {dir}/mark.$i || exit 1; done",
            MARKED - 1
        );
        sh::output(&mut cluster.client(SUITE, &put))?;
        Ok(Self {
            cluster,
            random: Seeded(seed),
            trouble: Trouble::new(cluster),
            out: None,
            pg_num: 16,
            mon_at: mode.mons.then(|| sh::now() + MON_EVERY),
            parted: Vec::new(),
            filling: mode.partitions.then(|| Filling::Next(sh::now() + Duration::from_secs(8))),
            next: sh::now() + Duration::from_secs(3),
            damage_at: sh::now() + Duration::from_secs(10),
            reads: Vec::new(),
            waits: Waits::new(cluster.dir.join("run")),
            counts: BTreeMap::new(),
        })
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random.u64() % n
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn ceph(&self, line: &str) -> Result<String> {
        self.command(&format!("timeout 60 ceph {line}"))
    }

    /// What a client of its own says. Where it fails its log of messages is kept, and the monitors
    /// tell how they are: in a moment it may be over.
    fn command(&self, line: &str) -> Result<String> {
        let log = self.cluster.dir.join("log/command.log");
        std::fs::remove_file(&log).ok();
        let args = format!("--debug-monc=20 --debug-ms=1 --log-file={}", log.display());
        let line = format!("export CEPH_ARGS='{args}'; {line}");
        sh::output(&mut self.cluster.client(SUITE, &line)).inspect_err(|_| {
            waits::tell_monitors(&self.cluster.dir.join("run"));
            keep(&log);
        })
    }

    /// Thrashes until `done` says so.
    fn until(&mut self, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
        while !done()? {
            self.keep()?;
            if sh::now() >= self.next {
                self.act()?;
                let pause = 300 + self.below(4_000);
                self.next = sh::now() + Duration::from_millis(pause);
            }
            if sh::now() >= self.damage_at {
                self.damage_at = sh::now() + DAMAGE_EVERY;
                self.damage()?;
            }
            if self.mon_at.is_some_and(|at| sh::now() >= at) {
                self.mon_at = Some(sh::now() + MON_EVERY);
                let at = self.below(3);
                let mon = ["mon.a", "mon.b", "mon.c"][at as usize];
                if self.cluster.hosts.is_some() && self.below(2) == 0 {
                    self.part_mon(at)?;
                } else if let Some(pid) = self.trouble.pid(mon) {
                    self.count("monitors killed");
                    signal(pid, "KILL")?;
                }
            }
            self.fill()?;
            self.waits.look()?;
            sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// The dead stay dead and the stopped stopped, as long as they are to.
    fn keep(&mut self) -> Result<()> {
        self.trouble.keep()?;
        self.join(false)
    }

    fn act(&mut self) -> Result<()> {
        let osd = self.below(OSDS);
        let name = format!("osd.{osd}");
        let troubled = self.trouble.count("") + self.parted.len();
        let kinds = if self.cluster.hosts.is_some() { 18 } else { 12 };
        match self.below(kinds) {
            // One at a time: two copies of everything are elsewhere.
            0..=2 if troubled == 0 => {
                self.count("killed");
                let secs = [0, 0, 3, 12][self.below(4) as usize];
                self.trouble.kill(name, Duration::from_secs(secs))?;
            }
            3..=4 if troubled == 0 => {
                self.count("stopped and continued");
                let ms = 200 + self.below(12_000);
                self.trouble.stop(name, Duration::from_millis(ms))?;
            }
            5..=6 => match self.out.take() {
                Some(osd) => {
                    self.count("in");
                    self.ceph(&format!("osd in {osd}"))?;
                }
                None => {
                    self.count("out");
                    // Three of four with parts of them refused: some PGs would have too few
                    // copies to be served, until the weights change again.
                    for osd in 0..OSDS {
                        self.ceph(&format!("osd reweight {osd} 1"))?;
                    }
                    self.ceph(&format!("osd out {osd}"))?;
                    self.out = Some(osd);
                }
            },
            7..=8 if self.out.is_none() => {
                self.count("reweighted");
                let weight = 7 + self.below(4);
                self.ceph(&format!("osd reweight {osd} {}", weight as f64 / 10.0))?;
            }
            9 => {
                self.count("primary affinity");
                let part = self.below(11) as f64 / 10.0;
                self.ceph(&format!("osd primary-affinity {osd} {part}"))?;
            }
            10 if self.pg_num < 40 => {
                self.count("more PGs");
                self.pg_num += 1 + self.below(5);
                for pool in ["bench", "acks", "model"] {
                    self.ceph(&format!("osd pool set {pool} pg_num {}", self.pg_num))?;
                    self.ceph(&format!("osd pool set {pool} pgp_num {}", self.pg_num))?;
                }
            }
            11 => {
                self.count("marked down");
                self.ceph(&format!("osd down {osd}"))?;
            }
            12.. if troubled == 0 => self.part(osd)?,
            _ => {}
        }
        Ok(())
    }

    /// A byte of one copy of an object changes in a store's file, behind the OSD's back; of
    /// each object once. It is read all the same as it was written.
    fn damage(&mut self) -> Result<()> {
        let n = self.reads.len() as u64;
        if n >= MARKED {
            return Ok(());
        }
        let mark = mark(n);
        let first = self.below(OSDS);
        for osd in (first..first + OSDS).map(|o| o % OSDS) {
            let file = StoreFile::open(&self.cluster.dir.join(format!("osd.{osd}/block")))?;
            let found = file.blocks_of(mark.as_bytes())?;
            let name = format!("osd.{osd}");
            let (false, Some(pid)) = (found.is_empty(), self.trouble.pid(&name)) else { continue };
            let block = found[self.below(found.len() as u64) as usize];
            // It stands still meanwhile, and what it had under way is written: the block may have
            // been free, and be given to something else that nothing could mend.
            signal(pid, "STOP")?;
            sleep(Duration::from_secs(1));
            let at = self.below(BLOCK);
            let done =
                if is_stopped(pid) { file.flip(block, at, mark.as_bytes()) } else { Ok(false) };
            if !self.trouble.has_stopped(&name) {
                signal(pid, "CONT")?;
            }
            if done? {
                println!("        damaged: osd.{osd} at {:#x}, object {n}", block + at);
                self.count("damaged bytes");
                break;
            }
        }
        let dir = self.cluster.dir.display();
        let line = format!(
            "timeout 180 rados -p marked get m{n} {dir}/got.{n} && cmp {dir}/mark.{n} {dir}/got.{n}"
        );
        self.reads.push(Running::start(self.cluster, &format!("read.{n}"), &line)?);
        Ok(())
    }

    /// What is damaged is found by scrubs, and repaired.
    fn mend(&mut self) -> Result<()> {
        std::mem::take(&mut self.reads).into_iter().try_for_each(Running::well)?;
        let began = sh::now();
        let mut asked = sh::now() - Duration::from_secs(60);
        loop {
            if asked.elapsed() > Duration::from_secs(20) {
                asked = sh::now();
                self.ceph("osd repair all")?;
            }
            sleep(Duration::from_secs(2));
            let s: serde_json::Value =
                serde_json::from_str(&self.ceph("-s -f json")?).context("status")?;
            let scrubbing = s["pgmap"]["pgs_by_state"].as_array().is_some_and(|all| {
                all.iter().any(|p| p["state_name"].as_str().unwrap_or_default().contains("scrub"))
            });
            let damaged = s["health"]["checks"].as_object().is_some_and(|c| {
                c.contains_key("OSD_SCRUB_ERRORS") || c.contains_key("PG_DAMAGED")
            });
            if began.elapsed() > Duration::from_secs(15) && !scrubbing && !damaged && is_clean(&s) {
                break;
            }
            if began.elapsed() > CLEAN_MAX {
                bail!("damage is left after {} s: {}", CLEAN_MAX.as_secs(), s["health"]);
            }
        }
        let dir = self.cluster.dir.display();
        let get = format!(
            "for i in $(seq 0 {}); do timeout 60 rados -p marked get m$i {dir}/got && \
             cmp {dir}/mark.$i {dir}/got || exit 1; done",
            MARKED - 1
        );
        self.command(&get).map(drop)
    }

    /// All run and are in; within bounded time all is clean.
    fn heal(&mut self) -> Result<()> {
        self.trouble.end()?;
        self.join(true)?;
        self.end_filling()?;
        for osd in 0..OSDS {
            self.ceph(&format!("osd in {osd}"))?;
            self.ceph(&format!("osd reweight {osd} 1"))?;
            self.ceph(&format!("osd primary-affinity {osd} 1"))?;
        }
        let began = sh::now();
        let mut last = String::new();
        while began.elapsed() < CLEAN_MAX {
            last = self.ceph("-s -f json")?;
            let s: serde_json::Value = serde_json::from_str(&last).context("status")?;
            if is_clean(&s) && s["osdmap"]["num_up_osds"] == OSDS {
                println!("        clean after {:.1} s", began.elapsed().as_secs_f64());
                return Ok(());
            }
            sleep(Duration::from_millis(300));
        }
        bail!("not clean after {} s: {last}", CLEAN_MAX.as_secs())
    }
}

/// Whether a status says that every PG is active and clean.
pub fn is_clean(status: &serde_json::Value) -> bool {
    let map = &status["pgmap"];
    let states = map["pgs_by_state"].as_array().map(Vec::as_slice).unwrap_or_default();
    let clean = states.iter().filter(|s| {
        let name = s["state_name"].as_str().unwrap_or_default();
        name.starts_with("active+clean")
    });
    let clean = clean.filter_map(|s| s["count"].as_u64()).sum::<u64>();
    clean > 0 && Some(clean) == map["num_pgs"].as_u64()
}
