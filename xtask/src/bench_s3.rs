//! The S3 gateway beside stock Ceph's: same machine, same client program, same run.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::bench::{Ours, Side, Theirs, client, head, keep, median};
use crate::bench_rows::Options;
use crate::cluster::{self, Cluster, usage};
use crate::{lab, sh};

const OSDS: u32 = 3;
const ACCESS: &str = "KEYbench";
const SECRET: &str = "secret-bench";
/// Connections that do nothing, beside which a gateway's memory is looked at.
const IDLE: u32 = 1000;
/// How long a gateway may take to listen.
const START_MAX: Duration = Duration::from_secs(60);
/// How long clients may take, s.
const CLIENTS_MAX_S: u32 = 240;
const MIB: u64 = 1 << 20;

/// The rows, in the order in which they run; `--rows` takes some of them.
const ROWS: [&str; 12] = [
    "memory",
    "put4k",
    "get4k",
    "put4k1",
    "get4k1",
    "mixed4k",
    "list",
    "versions",
    "mixed1m",
    "put4m",
    "get4m",
    "multipart",
];

/// What a row does and what is wanted of it.
struct Work {
    name: &'static str,
    /// The driver's verb, how many requests are in flight, bytes of a body.
    verb: &'static str,
    flight: u32,
    bytes: u64,
    /// Whether the bucket has objects before.
    filled: bool,
    /// Ours by stock's on stock: the rate at least, the gateway's CPU at most.
    rate: f64,
    cpu: Option<f64>,
}

impl Work {
    fn of(row: &str) -> Option<Self> {
        let work = |name, verb, flight, bytes, filled, rate, cpu| Self {
            name,
            verb,
            flight,
            bytes,
            filled,
            rate,
            cpu,
        };
        Some(match row {
            "put4k" => work("PUT 4 KiB", "put", 16, 4096, false, 4.0, Some(0.35)),
            "get4k" => work("GET 4 KiB", "get", 16, 4096, true, 4.0, Some(0.25)),
            // The aim is of the time of one: 0.45 and 0.35 of stock's.
            "put4k1" => work("PUT 4 KiB, one at a time", "put", 1, 4096, false, 1.0 / 0.45, None),
            "get4k1" => work("GET 4 KiB, one at a time", "get", 1, 4096, true, 1.0 / 0.35, None),
            "mixed4k" => work("mixed, 4 KiB", "mixed", 16, 4096, true, 4.0, None),
            "mixed1m" => work("mixed, 1 MiB", "mixed", 16, MIB, true, 1.5, None),
            "put4m" => work("PUT 4 MiB", "put", 4, 4 * MIB, false, 2.0, Some(0.5)),
            "get4m" => work("GET 4 MiB", "get", 4, 4 * MIB, true, 1.5, Some(0.5)),
            "multipart" => {
                work("upload of 64 MiB in 8 parts", "multipart", 2, 8 * MIB, false, 2.0, Some(0.5))
            }
            "list" => work("list, keys", "list", 1, 64, true, 3.0, None),
            "versions" => work("list of versions, keys", "versions", 1, 64, true, 3.0, None),
            _ => return None,
        })
    }
}

/// A gateway that runs until this is dropped.
struct Gateway<'a> {
    side: &'a dyn Side,
    port: u16,
    name: &'static str,
    child: Child,
}

impl Drop for Gateway<'_> {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// What the client and the servers did in one row.
#[derive(Clone, Copy, Default)]
struct Cell {
    rate: f64,
    mean_ms: f64,
    p99_ms: f64,
    /// CPU per operation, us.
    gateway_us: f64,
    osd_us: f64,
    client_us: f64,
}

impl Cell {
    fn median(all: &[Self]) -> Self {
        let of = |figure: fn(&Self) -> f64| median(all.iter().map(figure).collect());
        Self {
            rate: of(|c| c.rate),
            mean_ms: of(|c| c.mean_ms),
            p99_ms: of(|c| c.p99_ms),
            gateway_us: of(|c| c.gateway_us),
            osd_us: of(|c| c.osd_us),
            client_us: of(|c| c.client_us),
        }
    }
}

impl<'a> Gateway<'a> {
    fn start(
        side: &'a dyn Side,
        name: &'static str,
        mut command: Command,
        port: u16,
    ) -> Result<Self> {
        let said = Path::new(&side.conf()).with_file_name(format!("rgw-{name}.err"));
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&said)?)
            .spawn()?;
        let mut started = Self { side, port, name, child };
        let end = sh::now() + START_MAX;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if started.child.try_wait()?.is_some() || sh::now() > end {
                bail!("gateway {name} does not serve: {}", std::fs::read_to_string(&said)?);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(started)
    }

    /// `argonaut rgw` on a cluster of ours.
    fn ours(side: &'a dyn Side, port: u16) -> Result<Self> {
        let dir = PathBuf::from(side.conf()).with_file_name("rgw-bench");
        std::fs::create_dir_all(&dir)?;
        let at = dir.display();
        let text = std::fs::read_to_string(side.conf())?
            + &format!(
                "\n[client.rgw.ours]\nkeyring = {at}/../rgw.ours.keyring\nlog file = {at}/log\npid file = {at}/pid\n\
                 rgw frontends = beast endpoint=127.0.0.1:{port}\n"
            );
        let conf = dir.join("ceph.conf");
        std::fs::write(&conf, text)?;
        let mut command = Command::new(cluster::binary()?);
        command.args(["rgw", "-i", "ours", "-c"]).arg(conf);
        Self::start(side, "ours", command, port)
    }

    /// Stock's, as its users are told to run it, without debug logs.
    fn stock(side: &'a dyn Side, name: &'static str, port: u16) -> Result<Self> {
        let conf = side.conf();
        let at = Path::new(&conf).parent().context("its directory")?.display();
        let line = format!(
            "export CEPH_CONF={conf}; exec radosgw -n client.rgw.stock --keyring {at}/rgw.stock.keyring -f --log-to-stderr=false \
             --log-file {at}/radosgw.log --admin-socket '' --debug-rgw 0/0 --debug-ms 0/0 --debug-objecter 0/0 --debug-monc 0/0 \
             --rgw-frontends 'beast endpoint=127.0.0.1:{port} tcp_nodelay=1'"
        );
        Self::start(side, name, lab::exec("forky", &line), port)
    }

    /// The driver's command.
    fn clients(&self, driver: &Path, bucket: &str, work: &str) -> Command {
        let mut command = Command::new("timeout");
        command.arg(CLIENTS_MAX_S.to_string()).arg(driver).arg(self.port.to_string());
        command.args([ACCESS, SECRET, bucket]).args(work.split(' '));
        command
    }

    /// Runs clients; figures per operation.
    fn measure(&self, driver: &Path, bucket: &str, work: &str) -> Result<Cell> {
        let (gateway, osds) = ([self.child.id()], self.side.osd_pids()?);
        let (gateway_0, osd_0) = (usage(&gateway)?.0, usage(&osds)?.0);
        let text = sh::output(&mut self.clients(driver, bucket, work))?;
        let (gateway_s, osd_s) = (usage(&gateway)?.0 - gateway_0, usage(&osds)?.0 - osd_0);
        let said: Value =
            serde_json::from_str(&text).with_context(|| format!("the client said {text:?}"))?;
        let of = |name: &str| said[name].as_f64().with_context(|| format!("no {name} in {text}"));
        let ops = of("ops")?.max(1.0);
        let per_op = |seconds: f64| seconds / ops * 1e6;
        Ok(Cell {
            rate: ops / of("secs")?,
            mean_ms: of("mean_ms")?,
            p99_ms: of("p99_ms")?,
            gateway_us: per_op(gateway_s),
            osd_us: per_op(osd_s),
            client_us: per_op(of("cpu_s")?),
        })
    }

    /// Resident MiB with nothing to do and with [`IDLE`] connections, and threads.
    fn memory(&self, driver: &Path) -> Result<[f64; 3]> {
        let pid = self.child.id();
        let idle = usage(&[pid])?.1;
        sh::output(&mut self.clients(driver, "memory", "bucket 1 0 0"))?;
        let mut command = self.clients(driver, "memory", &format!("hold 1 0 {IDLE}"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("its output")?).read_line(&mut line)?;
        let held = usage(&[pid])?.1;
        let threads = std::fs::read_dir(format!("/proc/{pid}/task"))?.count();
        drop(child.stdin.take());
        ensure!(
            child.wait()?.success() && line.trim() == "held",
            "the client did not hold {IDLE} connections: {line:?}"
        );
        #[allow(clippy::cast_precision_loss, reason = "some hundred")]
        Ok([idle, held, threads as f64])
    }
}

/// Users and keyrings of a cluster's gateways.
fn users(side: &dyn Side) -> Result<()> {
    let conf = side.conf();
    let at = Path::new(&conf).parent().context("its directory")?.display();
    let keys = ["ours", "stock"].map(|name| {
        format!("ceph auth get-or-create client.rgw.{name} mon 'allow rw' osd 'allow rwx' mgr 'allow rw' -o {at}/rgw.{name}.keyring")
    });
    let user = format!(
        "radosgw-admin user create --uid bench --display-name Bench --access-key {ACCESS} --secret-key {SECRET} --max-buckets 10000"
    );
    sh::output(&mut client(&conf, &format!("exec 2>&1; {} && {user}", keys.join(" && ")))).map(drop)
}

/// Builds `bench/s3.c`, which runs on the host.
fn driver() -> Result<PathBuf> {
    std::fs::create_dir_all(lab::SHARE)?;
    let out = Path::new(lab::SHARE).join("bench-s3-driver");
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-Wall", "-D_GNU_SOURCE", "-o"])
        .arg(&out)
        .arg(sh::repo().join("bench/s3.c"))
        .arg("-lpthread");
    sh::output(&mut cc).context("the driver needs a C compiler, `cc`")?;
    Ok(out)
}

/// Ports of the gateways: of the run's own range where there is one.
fn port(nth: u16) -> u16 {
    let base = std::env::var("ARGONAUT_TEST_PORT").ok().and_then(|p| p.parse::<u16>().ok());
    base.map_or(17480, |base| base + 80) + nth
}

/// Runs the rows that `words` name on all three, in turn, and keeps them in `bench/results`.
///
/// # Errors
/// When a cluster or a gateway does not start, or an option is not known.
pub fn run(words: &[&str]) -> Result<()> {
    let options = Options::parse(words, &ROWS, &["--keys", "--secs"])?;
    let secs = options.number("--secs").unwrap_or(if options.quick { 1 } else { 3 });
    let keys = options.number("--keys").unwrap_or(if options.quick { 2_000 } else { 20_000 });
    lab::root("forky")?;
    let driver = driver()?;
    lab::peer_down("bench-s3").ok();
    let theirs = Theirs(lab::peer_up("bench-s3", OSDS, 3)?.display().to_string());
    let rows = table(&options, &theirs, &driver, secs, keys);
    lab::peer_down("bench-s3").ok();
    let mut text = head(
        &Options::command("bench s3", words),
        &format!(
            "{OSDS} OSDs each, 3 copies. Ours on\nour OSDs, stock radosgw on our OSDs, stock radosgw on stock's OSDs \
             (`tcp_nodelay=1`, debug logs off on gateway and OSDs; the\nother settings are each one's own); \
             `bench/s3.c` is the client, since warp could not be had: connections that stay open, version 4 signatures,\n\
             SHA-256 of each body; {keys} keys in lists; {secs} s a cell, medians of {} rounds in turn{}. \
             The row with 1 M objects while a bucket\nreshards is not made.",
            options.rounds(),
            options.remark()
        ),
    )?;
    text.push_str(&rows?);
    keep(&text, "s3")
}

fn table(
    options: &Options,
    theirs: &Theirs,
    driver: &Path,
    secs: u64,
    keys: u64,
) -> Result<String> {
    let ours = Ours(Cluster::up("bench-s3", &["--osds", &OSDS.to_string()])?);
    let quiet = ["ms", "osd", "bluestore", "bdev", "bluefs", "rocksdb", "mon", "monc", "objecter"]
        .map(|name| format!("ceph config set global debug_{name} 0/0"))
        .join(" && ");
    sh::output(&mut client(&theirs.conf(), &quiet))?;
    users(&ours)?;
    users(theirs)?;
    let gateways = [
        Gateway::ours(&ours, port(1))?,
        Gateway::stock(&ours, "stock-on-ours", port(2))?,
        Gateway::stock(theirs, "stock", port(3))?,
    ];
    let memory = if options.has("memory") { memory(&gateways, driver)? } else { String::new() };
    for gateway in &gateways {
        // The first object of a zone makes its pools.
        let bucket = format!("warm-{}", gateway.name);
        sh::output(&mut gateway.clients(driver, &bucket, "bucket 1 0 0"))?;
        sh::output(&mut gateway.clients(driver, &bucket, "fill 16 4096 500"))?;
    }
    let mut text = String::new();
    let mut add = |row: &str| {
        println!("{row}");
        text.push_str(row);
        text.push('\n');
    };
    add(
        "\n| work | in flight | ours /s | stock on ours | stock | ours / stock | wanted | met | gateway CPU per operation, us: ours / stock on ours / stock \
         | ours / stock | wanted | met | mean latency, ms | 99 % | OSD CPU, us | client CPU, us |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    );
    for row in ROWS.iter().filter(|row| **row != "memory" && options.has(row)) {
        let work = Work::of(row).with_context(|| format!("no row {row}"))?;
        match cells(&gateways, options, driver, row, &work, secs, keys) {
            Ok(cells) => add(&line(&work, cells)),
            Err(error) => {
                let text = format!("{error:#}").replace('|', "/");
                let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
                add(&format!(
                    "| {} | {} | **failed**: {last} {}|",
                    work.name,
                    work.flight,
                    "| ".repeat(13)
                ));
            }
        }
    }
    text.push_str(&memory);
    Ok(text)
}

/// Ours, stock on ours, stock: medians.
fn cells(
    gateways: &[Gateway<'_>; 3],
    options: &Options,
    driver: &Path,
    row: &str,
    work: &Work,
    secs: u64,
    keys: u64,
) -> Result<[Cell; 3]> {
    let listed = work.verb == "list" || work.verb == "versions";
    // Lists want all keys, large objects little room.
    let objects = if listed {
        keys
    } else if work.bytes >= MIB {
        64
    } else {
        2_000
    };
    let number = if work.verb == "multipart" { 8 } else { objects };
    for gateway in gateways {
        let bucket = format!("{row}-{}", gateway.name);
        sh::output(&mut gateway.clients(driver, &bucket, "bucket 1 0 0"))?;
        if work.verb == "versions" {
            sh::output(&mut gateway.clients(driver, &bucket, "versioning 1 0 0"))?;
        }
        if work.filled {
            sh::output(&mut gateway.clients(
                driver,
                &bucket,
                &format!("fill 16 {} {objects}", work.bytes),
            ))?;
        }
    }
    let mut found: [Vec<Cell>; 3] = Default::default();
    for round in 0..options.rounds() {
        for i in 0..gateways.len() {
            let i = if round % 2 == 0 { i } else { gateways.len() - 1 - i };
            let bucket = format!("{row}-{}", gateways[i].name);
            let verb = format!("{} {} {} {number} {secs}", work.verb, work.flight, work.bytes);
            found[i].push(gateways[i].measure(driver, &bucket, &verb)?);
        }
    }
    for gateway in gateways.iter().filter(|_| work.bytes >= MIB) {
        // The next row needs the room.
        let bucket = format!("{row}-{}", gateway.name);
        let line =
            format!("radosgw-admin bucket rm --bucket {bucket} --purge-objects --bypass-gc 2>&1");
        sh::output(&mut client(&gateway.side.conf(), &line))?;
    }
    Ok(found.map(|all| Cell::median(&all)))
}

fn digits(figure: f64) -> String {
    if figure >= 100.0 { format!("{figure:.0}") } else { format!("{figure:.2}") }
}

fn line(work: &Work, cells: [Cell; 3]) -> String {
    let met = |is: bool| if is { "yes" } else { "**no**" };
    let three =
        |of: fn(&Cell) -> f64| cells.iter().map(|c| digits(of(c))).collect::<Vec<_>>().join(" / ");
    let [ours, _, stock] = cells;
    let (rate, cpu) = (ours.rate / stock.rate, ours.gateway_us / stock.gateway_us);
    let [a, b, c] = cells.map(|c| digits(c.rate));
    let (wanted, is) = work
        .cpu
        .map_or_else(|| ("–".to_owned(), "–"), |most| (format!("{most:.2}"), met(cpu <= most)));
    format!(
        "| {} | {} | {a} | {b} | {c} | {rate:.2} | {:.1} | {} | {} | {cpu:.2} | {wanted} | {is} | {} | {} | {} | {} |",
        work.name,
        work.flight,
        work.rate,
        met(rate >= work.rate),
        three(|c| c.gateway_us),
        three(|c| c.mean_ms),
        three(|c| c.p99_ms),
        three(|c| c.osd_us),
        three(|c| c.client_us),
    )
}

fn memory(gateways: &[Gateway<'_>; 3], driver: &Path) -> Result<String> {
    let mut text = format!(
        "\n| gateway | idle, MiB | with {IDLE} idle connections, MiB | threads |\n|---|---|---|---|\n"
    );
    for gateway in gateways {
        let [idle, held, threads] = gateway.memory(driver)?;
        let _ = writeln!(text, "| {} | {idle:.0} | {held:.0} | {threads} |", gateway.name);
    }
    text.push_str("| wanted of ours | 64 | 128 | 2 per core |\n");
    print!("{text}");
    Ok(text)
}
