//! The file system beside stock Ceph's: same machine, same client programs, same run.

use std::cell::Cell;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::bench::{Ours, Side, Theirs, client, head, keep, median};
use crate::bench_rows::{Options, Table, Wanted};
use crate::cluster::{Cluster, usage};
use crate::{lab, sh};

const OSDS: u32 = 3;
/// Placement groups of each pool of a file system, ours and theirs: as `argonaut up` makes them.
const PGS: u32 = 8;
/// Names of the two metadata servers of each side.
const SERVERS: [&str; 2] = ["a", "b"];
/// How long a server may take to write back and to purge what a row left.
const SETTLE_MAX: Duration = Duration::from_secs(120);
/// How long a standby may take until it serves.
const TAKE_OVER_S: u64 = 90;
/// How long clients may take, s, and those of `--quick`.
const CLIENTS_MAX_S: [u64; 2] = [300, 120];
/// The rows, in the order in which they run; `--rows` takes some of them.
pub(crate) const ROWS: [&str; 10] = [
    "create1",
    "create8",
    "shared8",
    "stat",
    "list",
    "memory",
    "sustained",
    "fio",
    "untar",
    "failover",
];
/// What stock writes to its log otherwise.
const QUIET: [&str; 14] = [
    "ms",
    "osd",
    "mds",
    "mds_log",
    "mds_balancer",
    "journaler",
    "objecter",
    "mon",
    "monc",
    "bluestore",
    "bdev",
    "bluefs",
    "rocksdb",
    "client",
];

/// How much a row does.
struct Scale {
    /// Files that one client makes, alone and beside seven others.
    alone: u64,
    each: u64,
    /// Names of one directory that a second client asks for.
    names: u64,
    sustained_s: u64,
    /// Small files in the archive that is unpacked.
    unpacked: u64,
    fio_mib: u64,
    fio_s: u64,
}

impl Scale {
    fn of(options: &Options) -> Self {
        let names = options.number("--names");
        if options.quick {
            let names = names.unwrap_or(2_000);
            Self {
                alone: 1_000,
                each: 400,
                names,
                sustained_s: 8,
                unpacked: 1_000,
                fio_mib: 256,
                fio_s: 2,
            }
        } else {
            let names = names.unwrap_or(10_000);
            Self {
                alone: 2_000,
                each: 800,
                names,
                sustained_s: 60,
                unpacked: 2_000,
                fio_mib: 1024,
                fio_s: 5,
            }
        }
    }
}

/// One side: a cluster with a file system and two metadata servers.
struct Served<'a> {
    side: &'a dyn Side,
    run: PathBuf,
    /// Their sockets are `PREFIX.a.asok`.
    sockets: &'static str,
    /// Whether somebody starts a server again that was killed.
    supervised: bool,
    driver: PathBuf,
    /// Whether its directory of names was made.
    has_names: Cell<bool>,
    /// How long clients may take at least, s.
    clients_max_s: u64,
}

/// What clients and servers did in one row.
#[derive(Clone, Copy, Default)]
struct Did {
    /// Operations a second, until the clients had their answers.
    rate: f64,
    /// The same until everything was written back.
    settled_rate: f64,
    /// CPU per operation, us, the servers' until everything was written back.
    mds_us: f64,
    osd_us: f64,
    client_us: f64,
    /// Bytes of the journal per operation.
    journal: f64,
}

impl Did {
    fn median(all: &[Self]) -> Self {
        let of = |figure: fn(&Self) -> f64| median(all.iter().map(figure).collect());
        Self {
            rate: of(|c| c.rate),
            settled_rate: of(|c| c.settled_rate),
            mds_us: of(|c| c.mds_us),
            osd_us: of(|c| c.osd_us),
            client_us: of(|c| c.client_us),
            journal: of(|c| c.journal),
        }
    }
}

/// What a client said of its work.
struct Said {
    ops: f64,
    secs: f64,
    cpu_s: f64,
    longest_s: f64,
}

impl Said {
    fn parse(text: &str) -> Result<Self> {
        let value: Value =
            serde_json::from_str(text).with_context(|| format!("the clients said {text:?}"))?;
        let of = |name: &str| value[name].as_f64().with_context(|| format!("no {name} in {text}"));
        Ok(Self {
            ops: of("ops")?,
            secs: of("secs")?,
            cpu_s: of("cpu_s")?,
            longest_s: of("longest_s")?,
        })
    }
}

/// A client that keeps its mount until this is dropped.
struct Held(Child);

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().ok();
    }
}

/// A mount by `ceph-fuse`; unmounted when dropped.
struct Mounted<'a> {
    served: &'a Served<'a>,
    at: PathBuf,
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let line = format!("umount {0} || umount -l {0}", self.at.display());
        if let Err(error) = sh::output(&mut client(&self.served.side.conf(), &line)) {
            eprintln!("{error:#}");
        }
    }
}

impl Served<'_> {
    fn pid(&self, server: &str) -> Result<u32> {
        let path = self.run.join(format!("mds.{server}.pid"));
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Ok(text.trim().parse()?)
    }

    fn pids(&self) -> Result<Vec<u32>> {
        SERVERS.iter().map(|name| self.pid(name)).collect()
    }

    /// The answer of a server's admin socket.
    fn ask(&self, server: &str, command: &str) -> Result<Value> {
        let text =
            self.say(server, &format!("{{\"prefix\":\"{command}\",\"format\":\"json\"}}"))?;
        serde_json::from_str(&text)
            .with_context(|| format!("mds.{server} says to `{command}`: {text}"))
    }

    fn say(&self, server: &str, command: &str) -> Result<String> {
        let path = self.run.join(format!("{}.{server}.asok", self.sockets));
        let mut socket = UnixStream::connect(&path).with_context(|| path.display().to_string())?;
        socket.set_read_timeout(Some(SETTLE_MAX))?;
        socket.write_all(format!("{command}\0").as_bytes())?;
        let mut size = [0; 4];
        socket.read_exact(&mut size)?;
        let mut text = Vec::new();
        socket.take(u64::from(u32::from_be_bytes(size))).read_to_end(&mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Evicts clients that a row left behind when it failed.
    fn forget(&self) -> Result<()> {
        self.both()?;
        let active = self.active()?;
        for session in self.ask(active, "session ls")?.as_array().into_iter().flatten() {
            self.say(
                active,
                &format!("{{\"prefix\":\"session evict\",\"filters\":[\"id={}\"]}}", session["id"]),
            )?;
        }
        Ok(())
    }

    /// The server that holds the rank.
    fn active(&self) -> Result<&'static str> {
        let end = sh::now() + Duration::from_secs(TAKE_OVER_S);
        loop {
            let is =
                |name: &&&str| self.ask(name, "status").is_ok_and(|s| s["state"] == "up:active");
            if let Some(name) = SERVERS.iter().find(is) {
                return Ok(name);
            }
            ensure!(sh::now() < end, "no metadata server of {} is active", self.side.conf());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits until one server is active and the other one stands by.
    fn both(&self) -> Result<()> {
        let end = sh::now() + Duration::from_secs(TAKE_OVER_S);
        loop {
            let states: Vec<String> = SERVERS
                .iter()
                .filter_map(|name| {
                    Some(self.ask(name, "status").ok()?["state"].as_str()?.to_owned())
                })
                .collect();
            let has = |state: &str| states.iter().any(|s| s == state);
            if has("up:active") && has("up:standby") {
                return Ok(());
            }
            ensure!(sh::now() < end, "the metadata servers of {} are {states:?}", self.side.conf());
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn counter(&self, server: &str, section: &str, name: &str) -> Result<f64> {
        Ok(self.ask(server, "perf dump")?[section][name].as_f64().unwrap_or_default())
    }

    /// Has the active server write everything back, and waits until nothing is left to purge.
    fn settle(&self) -> Result<()> {
        let active = self.active()?;
        let end = sh::now() + SETTLE_MAX;
        loop {
            self.ask(active, "flush journal")?;
            let dump = self.ask(active, "perf dump")?;
            let left = dump["purge_queue"]["pq_executing"].as_f64().unwrap_or_default()
                + dump["purge_queue"]["pq_item_in_journal"].as_f64().unwrap_or_default()
                + dump["mds_cache"]["num_strays"].as_f64().unwrap_or_default();
            if left == 0.0 {
                return Ok(());
            }
            ensure!(sh::now() < end, "mds.{active} has {left} files to purge");
            std::thread::sleep(Duration::from_millis(250));
        }
    }

    /// The command of so many clients.
    fn clients(&self, clients: u32, verb: &str, dir: &str, number: u64, hold: &str) -> Command {
        let (driver, conf, limit) = (self.driver.display(), self.side.conf(), self.clients_max_s);
        lab::exec(
            "forky",
            &format!("exec timeout {limit} {driver} {conf} {clients} {verb} {dir} {number} {hold}"),
        )
    }

    /// Runs clients, and has the servers write back; figures per operation.
    fn measure(&self, clients: u32, verb: &str, dir: &str, number: u64) -> Result<Did> {
        self.cell(|| Said::parse(&sh::output(&mut self.clients(clients, verb, dir, number, ""))?))
    }

    fn cell(&self, work: impl FnOnce() -> Result<Said>) -> Result<Did> {
        let active = self.active()?;
        let (mds, osds) = (self.pids()?, self.side.osd_pids()?);
        let (mds_0, osd_0) = (usage(&mds)?.0, usage(&osds)?.0);
        let journal_0 = self.counter(active, "mds_log", "wrpos")?;
        let said = work()?;
        let journal = self.counter(active, "mds_log", "wrpos")? - journal_0;
        let begin = sh::now();
        self.settle()?;
        let settled_s = said.secs + begin.elapsed().as_secs_f64();
        let per_op = |seconds: f64| seconds / said.ops.max(1.0) * 1e6;
        Ok(Did {
            rate: said.ops / said.secs,
            settled_rate: said.ops / settled_s,
            mds_us: per_op(usage(&mds)?.0 - mds_0),
            osd_us: per_op(usage(&osds)?.0 - osd_0),
            client_us: per_op(said.cpu_s),
            journal: journal / said.ops.max(1.0),
        })
    }

    /// MDS memory per inode that a client asked for and has a cap of, in a server that has just taken over.
    fn memory(&self, names: u64) -> Result<f64> {
        self.both()?;
        let old = self.active()?;
        let line = format!("ceph mds fail {old} 2>&1");
        sh::output(&mut client(&self.side.conf(), &line))?;
        let end = sh::now() + Duration::from_secs(TAKE_OVER_S);
        while self.active()? == old {
            ensure!(sh::now() < end, "mds.{old} is active, though it was failed");
            std::thread::sleep(Duration::from_millis(100));
        }
        let active = self.active()?;
        let pid = self.pid(active)?;
        let (inodes_0, rss_0) = (self.counter(active, "mds_mem", "ino")?, usage(&[pid])?.1);
        let mut command = self.clients(1, "stat", "/names", names, "hold");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let said = child.stdout.take().context("its output")?;
        let _held = Held(child);
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(said), &mut line)?;
        Said::parse(&line)?;
        let (inodes, rss) =
            (self.counter(active, "mds_mem", "ino")? - inodes_0, usage(&[pid])?.1 - rss_0);
        #[allow(clippy::cast_precision_loss, reason = "a few hundred thousand")]
        let wanted = names as f64;
        ensure!(inodes >= wanted * 0.9, "mds.{active} caches {inodes} inodes of {wanted}");
        Ok(rss * f64::from(1 << 20) / inodes)
    }

    /// Kills the active server under a client that makes files; the longest that one waited, s.
    fn fail_over(&self, round: usize) -> Result<f64> {
        self.both()?;
        let dead = self.active()?;
        let mut command = self.clients(1, "gap", &format!("/gap{round}"), TAKE_OVER_S, "");
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        std::thread::sleep(Duration::from_secs(2));
        sh::output(Command::new("kill").args(["-KILL", &self.pid(dead)?.to_string()]))?;
        let out = child.wait_with_output()?;
        ensure!(out.status.success(), "the client failed in the failover");
        let said = Said::parse(&String::from_utf8_lossy(&out.stdout))?;
        if !self.supervised {
            start_stock(self.side, dead)?;
        }
        self.both()?;
        Ok(said.longest_s)
    }

    fn mount(&self) -> Result<Mounted<'_>> {
        let at = Path::new(lab::SHARE).join(format!("bench-fuse-{}", self.sockets));
        let (conf, dir) = (self.side.conf(), at.display());
        let line = format!(
            "mkdir -p {dir} && timeout 60 ceph-fuse -c {conf} --id admin --pid-file={dir}.pid {dir} >{dir}.log 2>&1"
        );
        sh::output(&mut client(&conf, &line))?;
        Ok(Mounted { served: self, at })
    }

    /// A program's work in a mount of its own: `line` prints how many operations it did; then all is written.
    fn fused(&self, line: &str) -> Result<Did> {
        let mounted = self.mount()?;
        let at = mounted.at.display();
        let pid = std::fs::read_to_string(format!("{at}.pid"))?.trim().parse()?;
        self.cell(|| {
            let cpu_0 = usage(&[pid])?.0;
            let line = format!(
                "cd {at}; s=$(date +%s%N); {line} || exit 1; sync -f . || exit 1; e=$(date +%s%N); \
                 echo \"{{\\\"ops\\\": $ops, \\\"secs\\\": $(((e - s) / 1000)).0e-6, \\\"cpu_s\\\": 0, \\\"longest_s\\\": 0}}\""
            );
            let text = sh::output(&mut client(&self.side.conf(), &line))?;
            let mut said = Said::parse(text.lines().last().unwrap_or_default())?;
            said.cpu_s = usage(&[pid])?.0 - cpu_0;
            Ok(said)
        })
    }
}

/// Builds `bench/fs.c` against the library of the forky root, where it runs.
fn driver() -> Result<PathBuf> {
    let root = lab::root("forky")?;
    let library = root.join("usr/lib/x86_64-linux-gnu/libcephfs.so.2");
    let out = Path::new(lab::SHARE).join("bench-fs-driver");
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-Wall", "-D_GNU_SOURCE", "-D_FILE_OFFSET_BITS=64", "-o"]).arg(&out);
    // The library's own needs are met in the root only.
    cc.arg(sh::repo().join("bench/fs.c")).arg(library).arg("-Wl,--allow-shlib-undefined");
    sh::output(&mut cc).context("the driver needs a C compiler, `cc`")?;
    Ok(out)
}

/// Starts a stock metadata server whose files lie where those of the cluster's other daemons do.
fn start_stock(side: &dyn Side, name: &str) -> Result<()> {
    let conf = side.conf();
    let at = Path::new(&conf).with_file_name(format!("mds.{name}"));
    let at = at.display();
    let line = format!(
        "mkdir -p {at}; ceph auth get-or-create mds.{name} mon 'profile mds' osd 'allow *' mds 'allow *' \
         mgr 'profile mds' -o {at}/keyring && \
         ceph-mds -i {name} -c {conf} --keyring={at}/keyring --mds-data={at} </dev/null >/dev/null 2>{at}/err"
    );
    sh::output(&mut client(&conf, &line)).map(drop)
}

/// A stock cluster becomes a file system with two servers, without its daemons' debug logs.
fn stock_fs(side: &dyn Side) -> Result<()> {
    let quiet = QUIET.map(|name| format!("ceph config set global debug_{name} 0/0")).join(" && ");
    let line = format!(
        "exec 2>&1; {quiet} && ceph osd pool create cephfs_metadata {PGS} && ceph osd pool create cephfs_data {PGS} && \
         ceph fs new cephfs cephfs_metadata cephfs_data"
    );
    sh::output(&mut client(&side.conf(), &line))?;
    SERVERS.iter().try_for_each(|name| start_stock(side, name))
}

/// Runs the rows that `options` names on both sides, in turn, and keeps them in `bench/results`.
///
/// # Errors
/// When a cluster does not start, a client fails, or a row is not known.
pub fn run(words: &[&str]) -> Result<()> {
    let options = Options::parse(words, &ROWS, &["--names"])?;
    let driver = driver()?;
    lab::peer_down("bench-fs").ok();
    let theirs = Theirs(lab::peer_up("bench-fs", OSDS, 3)?.display().to_string());
    let rows = both(&options, &theirs, &driver);
    lab::peer_down("bench-fs").ok();
    let scale = Scale::of(&options);
    let mut text = head(
        &Options::command("bench fs", words),
        &format!(
            "{OSDS} OSDs each, 3 copies, {PGS} PGs a pool, one\nactive metadata server and one standby with their default settings, stock's debug logs off; \
             clients by libcephfs 20.2.4 (`bench/fs.c`), each a\nprocess with a mount of its own, empty files; {} files of one client, {} each of eight, {} names; \
             medians of {} rounds,\nours and theirs in turn{}. CPU of servers runs until `flush journal` has returned and nothing is left to purge.",
            scale.alone,
            scale.each,
            scale.names,
            options.rounds(),
            options.remark()
        ),
    )?;
    text.push_str(&rows?);
    keep(&text, "fs")
}

fn both(options: &Options, theirs: &Theirs, driver: &Path) -> Result<String> {
    let ours = Ours(Cluster::up("bench-fs", &["--osds", &OSDS.to_string(), "--fs"])?);
    stock_fs(theirs)?;
    let served = |side, sockets, supervised| {
        let side: &dyn Side = side;
        let run = Path::new(&side.conf()).with_file_name("run");
        Served {
            side,
            run,
            sockets,
            supervised,
            driver: driver.to_owned(),
            has_names: Cell::new(false),
            clients_max_s: CLIENTS_MAX_S[usize::from(options.quick)],
        }
    };
    let sides = [served(&ours, "ceph-mds", true), served(theirs, "mds", false)];
    sides.iter().try_for_each(Served::both)?;
    let mut table = Table::new(
        "work",
        "MDS + OSD CPU per operation, ours / theirs (us)",
        "client CPU (us), and the rate that it leaves of 2 cores",
    );
    for row in ROWS.iter().filter(|row| options.has(row)) {
        if let Err(error) = one(row, &sides, options, &mut table) {
            table.failed(row, &error);
            sides.iter().try_for_each(Served::forget)?;
        }
    }
    Ok(table.text)
}

/// Both sides' medians.
fn cells(options: &Options, of: impl FnMut(usize, usize) -> Result<Did>) -> Result<[Did; 2]> {
    Ok(options.in_turn(of)?.map(|all| Did::median(&all)))
}

fn add(table: &mut Table, work: &str, cells: [Did; 2], rate: f64, cpu: Option<f64>) {
    let [ours, theirs] = cells;
    table.rate(
        work,
        [ours.rate, theirs.rate],
        Wanted { ratio: rate, client_us: ours.client_us },
        [(ours.mds_us, ours.osd_us), (theirs.mds_us, theirs.osd_us)],
        cpu,
        [ours.client_us, theirs.client_us],
    );
}

fn one(row: &str, sides: &[Served<'_>; 2], options: &Options, table: &mut Table) -> Result<()> {
    let scale = Scale::of(options);
    match row {
        "create1" | "create8" | "shared8" => {
            let (clients, number) =
                if row == "create1" { (1, scale.alone) } else { (8, scale.each) };
            let (make, drop) =
                if row == "shared8" { ("shared", "unlink-shared") } else { ("create", "unlink") };
            let mut dropped = [Vec::new(), Vec::new()];
            let made = cells(options, |i, round| {
                let dir = format!("/{row}-{round}");
                let made = sides[i].measure(clients, make, &dir, number)?;
                dropped[i].push(sides[i].measure(clients, drop, &dir, number)?);
                Ok(made)
            })?;
            let aim = if clients == 1 { 2.5 } else { 4.0 };
            let place = if make == "shared" { "one shared directory" } else { "own directories" };
            let name = |what: &str| {
                format!("{what}, {place}, {clients} client{}", if clients == 1 { "" } else { "s" })
            };
            add(table, &name("create"), made, aim, Some(0.2));
            add(table, &name("unlink"), dropped.map(|all| Did::median(&all)), aim, Some(0.2));
            table.figure(
                &name("journal, bytes per create"),
                made.map(|c| c.journal),
                "bytes",
                "at most 300",
                |[ours, _]| ours <= 300.0,
            );
        }
        "stat" | "list" => {
            names(sides, scale.names)?;
            let of = |i: usize, _| sides[i].measure(1, row, "/names", scale.names);
            let found = cells(options, of)?;
            let work = if row == "stat" {
                "stat of names by a second client"
            } else {
                "readdir + stat of entries"
            };
            // The aim is the server's CPU.
            let alone = found.map(|c| Did { osd_us: 0.0, ..c });
            add(table, &format!("{work} (MDS alone)"), alone, 0.0, Some(0.25));
        }
        "memory" => {
            names(sides, scale.names)?;
            let [ours, theirs] = [sides[0].memory(scale.names)?, sides[1].memory(scale.names)?];
            let aim = "a third";
            table.figure(
                "MDS memory per inode with dentry and cap",
                [ours, theirs],
                "bytes",
                aim,
                |[a, b]| a * 3.0 <= b,
            );
        }
        "sustained" => {
            let secs = scale.sustained_s;
            let [ours, theirs] =
                [0, 1].map(|i| sides[i].measure(8, "create-secs", "/sustained", secs));
            let cells = [ours?, theirs?].map(|c| Did { rate: c.settled_rate, ..c });
            add(
                table,
                &format!("create for {secs} s, 8 clients, with write-back (one round)"),
                cells,
                2.5,
                None,
            );
        }
        "fio" => fio(sides, options, &scale, table)?,
        "untar" => {
            let archive = archive(scale.unpacked)?;
            let (files, archive) = (scale.unpacked, archive.display());
            let found = cells(options, |i, round| {
                let dir = format!("untar{round}");
                sides[i]
                    .fused(&format!("mkdir {dir} && tar -x -C {dir} -f {archive} && ops={files}"))
            })?;
            add(table, &format!("ceph-fuse: untar of {files} small files"), found, 2.0, None);
        }
        "failover" => {
            let found = options.in_turn(|i, round| sides[i].fail_over(round))?.map(median);
            let name = "the longest create through kill -9 of the active server, idle";
            table.figure(name, found, "s", "at most 3 s", |[ours, _]| ours <= 3.0);
        }
        _ => bail!("no row {row}"),
    }
    Ok(())
}

/// Makes the directory of names, where it is not there.
fn names(sides: &[Served<'_>; 2], names: u64) -> Result<()> {
    for side in sides {
        // A client that fails leaves caps behind, for which others wait: none is asked.
        if side.has_names.replace(true) {
            continue;
        }
        sh::output(&mut side.clients(1, "shared", "/names", names, ""))?;
        side.settle()?;
    }
    Ok(())
}

/// An archive of small files, 512 to 8,192 bytes, 100 a directory.
fn archive(files: u64) -> Result<PathBuf> {
    let at = Path::new(lab::SHARE).join("bench-small-files");
    std::fs::remove_dir_all(&at).ok();
    for file in 0..files {
        let dir = at.join(format!("d{:04}", file / 100));
        std::fs::create_dir_all(&dir)?;
        let bytes = 512 + (file * 7919) % 7681;
        std::fs::write(dir.join(format!("f{file:06}")), vec![b'a'; usize::try_from(bytes)?])?;
    }
    let tar = at.with_extension("tar");
    sh::output(Command::new("tar").arg("-C").arg(&at).arg("-cf").arg(&tar).arg("."))?;
    std::fs::remove_dir_all(&at)?;
    Ok(tar)
}

fn fio(sides: &[Served<'_>; 2], options: &Options, scale: &Scale, table: &mut Table) -> Result<()> {
    let (mib, secs) = (scale.fio_mib, scale.fio_s);
    let work = [
        (
            "4 MiB sequential write (MiB)",
            format!("--rw=write --bs=4m --size={mib}m --end_fsync=1"),
            "write",
            4.0,
            1.0,
        ),
        (
            "4 MiB sequential read (MiB)",
            format!("--rw=read --bs=4m --size={mib}m"),
            "read",
            4.0,
            1.0,
        ),
        (
            "4 KiB random write, fsync each",
            format!("--rw=randwrite --bs=4k --size=64m --fsync=1 --time_based --runtime={secs}"),
            "write",
            1.0,
            2.0,
        ),
    ];
    for (name, args, kind, units, aim) in work {
        let found = cells(options, |i, _| {
            let text = format!(
                "fio --name=bench --ioengine=psync {args} --output-format=json --output=/tmp/bench-fio.json 2>/dev/null && \
                 ops=$(python3 -c 'import json; t = open(\"/tmp/bench-fio.json\").read(); \
                 print(json.loads(t[t.index(\"{{\"):])[\"jobs\"][0][\"{kind}\"][\"total_ios\"] * {units})')"
            );
            sides[i].fused(&text)
        })?;
        add(table, &format!("ceph-fuse: {name}"), found, aim, None);
    }
    Ok(())
}
