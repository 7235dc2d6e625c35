//! The table beside stock Ceph: same machine, same client binary, same run.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cluster::{Cluster, usage};
use crate::{lab, sh};

const OSDS: u32 = 3;
/// How large a store becomes, ours and theirs.
const OSD_BYTES: u64 = 12 << 30;
/// Seconds of writing objects of a size before they are measured.
const WARM_UP_S: u32 = 8;

/// One side of the comparison.
pub(crate) trait Side {
    fn conf(&self) -> String;
    fn osd_pids(&self) -> Result<Vec<u32>>;
    fn all_pids(&self) -> Result<Vec<u32>>;
}

pub(crate) struct Ours(pub Cluster);
pub(crate) struct Theirs(pub String);

impl Side for Ours {
    fn conf(&self) -> String {
        self.0.conf().display().to_string()
    }
    fn osd_pids(&self) -> Result<Vec<u32>> {
        Ok(self
            .0
            .pids()?
            .into_iter()
            .filter(|(n, _)| n.starts_with("osd"))
            .map(|(_, p)| p)
            .collect())
    }
    fn all_pids(&self) -> Result<Vec<u32>> {
        Ok(self.0.pids()?.into_iter().map(|(_, p)| p).collect())
    }
}

impl Theirs {
    fn pids(&self, prefix: &str) -> Result<Vec<u32>> {
        let run = Path::new(&self.0).with_file_name("run");
        let mut pids = Vec::new();
        for entry in std::fs::read_dir(run)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
            if name.starts_with(prefix) && name.ends_with(".pid") {
                pids.push(std::fs::read_to_string(&path)?.trim().parse()?);
            }
        }
        Ok(pids)
    }
}

impl Side for Theirs {
    fn conf(&self) -> String {
        self.0.clone()
    }
    fn osd_pids(&self) -> Result<Vec<u32>> {
        self.pids("osd")
    }
    fn all_pids(&self) -> Result<Vec<u32>> {
        self.pids("")
    }
}

/// What one `rados bench` said, and what the daemons used meanwhile.
#[derive(Clone, Copy, Default)]
struct Cell {
    mib_s: f64,
    iops: f64,
    lat_ms: f64,
    osd_cpu_per_100k: f64,
    rss_mib: f64,
}

impl Cell {
    /// Figure by figure the middle one of several turns.
    fn median(all: &[Self]) -> Self {
        let of = |figure: fn(&Self) -> f64| median(all.iter().map(figure).collect());
        Self {
            mib_s: of(|c| c.mib_s),
            iops: of(|c| c.iops),
            lat_ms: of(|c| c.lat_ms),
            osd_cpu_per_100k: of(|c| c.osd_cpu_per_100k),
            rss_mib: of(|c| c.rss_mib),
        }
    }
}

pub(crate) fn client(conf: &str, line: &str) -> Command {
    lab::exec("forky", &format!("export CEPH_CONF={conf}; {line}"))
}

/// What fio says of its one job, `args` naming engine and work.
///
/// # Errors
/// When fio or its job fails.
pub(crate) fn fio(conf: &str, args: &str) -> Result<Fio> {
    fio_after(conf, "", args)
}

/// As [`fio`], with bash that runs before it.
///
/// # Errors
/// As [`fio`].
pub(crate) fn fio_after(conf: &str, before: &str, args: &str) -> Result<Fio> {
    let line = format!(
        "{before} fio --name=bench {args} --output-format=json 2>/dev/null | sed -n '/^{{/,$p'"
    );
    let text = sh::output(&mut client(conf, &line))?;
    let report: serde_json::Value =
        serde_json::from_str(&text).with_context(|| format!("fio printed:\n{text}"))?;
    let job = &report["jobs"][0];
    anyhow::ensure!(job["error"] == 0, "fio failed: {job}");
    let of = |kind: &str| Fio {
        iops: job[kind]["iops"].as_f64().unwrap_or_default(),
        lat_ms: job[kind]["clat_ns"]["mean"].as_f64().unwrap_or_default() / 1e6,
    };
    let (read, write) = (of("read"), of("write"));
    Ok(if read.iops > write.iops { read } else { write })
}

/// What a job of fio did: operations a second, and how long each took (mean, ms).
#[derive(Clone, Copy, Default)]
pub(crate) struct Fio {
    pub iops: f64,
    pub lat_ms: f64,
}

/// The middle one of an odd number of figures.
pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// How often each side of a comparison has its turn.
pub(crate) const ROUNDS: usize = 3;

/// What each side did, turn by turn; who was last begins the next round.
pub(crate) fn in_turn<T>(mut of: impl FnMut(usize) -> Result<T>) -> Result<[Vec<T>; 2]> {
    let mut found = [Vec::new(), Vec::new()];
    for round in 0..ROUNDS {
        for i in [round % 2, 1 - round % 2] {
            found[i].push(of(i)?);
        }
    }
    Ok(found)
}

pub(crate) fn figure(text: &str, label: &str) -> Result<f64> {
    let line = text.lines().find(|l| l.starts_with(label));
    let line = line.with_context(|| format!("rados bench printed no '{label}':\n{text}"))?;
    Ok(line.rsplit(':').next().unwrap_or_default().trim().parse()?)
}

fn cell(
    side: &dyn Side,
    pool: &str,
    kind: &str,
    bytes: u64,
    flight: u32,
    secs: u64,
) -> Result<Cell> {
    let pids = side.osd_pids()?;
    let (cpu0, _) = usage(&pids)?;
    let size = if kind == "write" { format!("-b {bytes} --no-cleanup") } else { String::new() };
    let line =
        format!("rados -p {pool} bench {secs} {kind} -t {flight} {size} --run-name b{bytes}");
    let text = sh::output(&mut client(&side.conf(), &line))?;
    let (cpu1, rss) = usage(&pids)?;
    let ops =
        figure(&text, if kind == "write" { "Total writes made" } else { "Total reads made" })?;
    Ok(Cell {
        mib_s: figure(&text, "Bandwidth (MB/sec)")?,
        iops: figure(&text, "Average IOPS")?,
        lat_ms: figure(&text, "Average Latency(s)")? * 1000.0,
        osd_cpu_per_100k: (cpu1 - cpu0) / ops.max(1.0) * 100_000.0,
        rss_mib: rss,
    })
}

/// Runs the whole table on both sides, in turn, and keeps it in `bench/results`.
///
/// # Errors
/// When a cluster does not start or `rados bench` fails.
pub fn peer(secs: u64) -> Result<()> {
    lab::root("forky")?;
    lab::peer_down("bench-peer").ok();
    room(2 * u64::from(OSDS) * OSD_BYTES)?;
    #[allow(clippy::disallowed_methods, reason = "start-up time is a figure of the bench")]
    let start = std::time::Instant::now();
    let theirs = Theirs(lab::peer_up("bench-peer", OSDS, 3)?.display().to_string());
    let their_up = start.elapsed().as_secs_f64();
    let ours = Ours(Cluster::up("bench", &["--osds", &OSDS.to_string()])?);
    let our_up = ours.0.up_s;
    let result = table(&ours, &theirs, secs);
    lab::peer_down("bench-peer").ok();
    let (rows, memory) = result?;
    let mut text = head(
        &format!("bench peer {secs}"),
        &format!(
            "{OSDS} OSDs each, cephx, crc, `rados bench` of 20.2.4 drives both,\n{secs} s a cell, medians of {ROUNDS} rounds in which \
             ours and theirs take turns; before the first cell of each size in each\npool each side writes such objects for \
             {WARM_UP_S} s, so that both use memory that they have."
        ),
    )?;
    let _ = writeln!(
        text,
        "| work | replicas | in flight | ours | theirs | ratio | latency ours / theirs (ms) | OSD CPU s per 100k ops ours / theirs | ratio |\n\
         |---|---|---|---|---|---|---|---|---|"
    );
    text.push_str(&rows);
    let _ = writeln!(
        text,
        "\nstart-up to HEALTH_OK or all PGs active: {our_up:.1} s / {their_up:.1} s (made anew)\n{memory}"
    );
    keep(&text, "peer")
}

/// Refuses to begin where the stores of both sides would fill the disk.
fn room(bytes: u64) -> Result<()> {
    std::fs::create_dir_all(lab::SHARE)?;
    let mut df = Command::new("df");
    let answer = sh::output(df.args(["--output=avail", "--block-size=1", lab::SHARE]))?;
    let free: u64 = answer.lines().last().unwrap_or("").trim().parse().context("df's answer")?;
    if free < bytes {
        bail!(
            "{} GiB are free at {}, and the stores grow to {} GiB: make room, or mount more there",
            free >> 30,
            lab::SHARE,
            bytes >> 30
        );
    }
    Ok(())
}

/// Makes a table beside a stock cluster: both with so many OSDs, ours and theirs in this order.
///
/// # Errors
/// When a cluster does not start or the table cannot be made.
pub(crate) fn beside(
    name: &str,
    osds: u32,
    table: impl FnOnce(&[&dyn Side; 2]) -> Result<String>,
) -> Result<String> {
    lab::root("forky")?;
    lab::peer_down(name).ok();
    let theirs = Theirs(lab::peer_up(name, osds, 3)?.display().to_string());
    let ours = Ours(Cluster::up("bench", &["--osds", &osds.to_string()])?);
    let rows = table(&[&ours, &theirs]);
    lab::peer_down(name).ok();
    rows
}

/// The first lines of a page of results: what was run where.
pub(crate) fn head(command: &str, how: &str) -> Result<String> {
    let date = sh::output(Command::new("date").args(["-u", "+%Y-%m-%d-%H%M"]))?;
    let commit = sh::output(Command::new("git").current_dir(sh::repo()).args([
        "rev-parse",
        "--short",
        "HEAD",
    ]))?;
    let cpu = sh::output(&mut sh::bash("grep -m1 'model name' /proc/cpuinfo | cut -d: -f2"))?;
    Ok(format!(
        "# Beside stock Ceph 20.2.4, {}\n\n`cargo xtask {command}` at {}; {how} Machine: 2 cores,{cpu}\n",
        date.trim(),
        commit.trim()
    ))
}

/// Prints a page of results and keeps it.
pub(crate) fn keep(text: &str, kind: &str) -> Result<()> {
    print!("{text}");
    let date = sh::output(Command::new("date").args(["-u", "+%Y-%m-%d-%H%M"]))?;
    let path = sh::repo().join(format!("bench/results/{}-{kind}.md", date.trim()));
    std::fs::create_dir_all(path.parent().context("a directory")?)?;
    std::fs::write(&path, text)?;
    println!("kept in {}", path.display());
    Ok(())
}

fn table(ours: &Ours, theirs: &Theirs, secs: u64) -> Result<(String, String)> {
    let sides: [&dyn Side; 2] = [ours, theirs];
    let mut rows = String::new();
    let idle: Vec<f64> =
        sides.iter().map(|s| Ok(usage(&s.osd_pids()?)?.1)).collect::<Result<_>>()?;
    let mut peak = [0.0f64; 2];
    for replicas in [3, 1] {
        for side in sides {
            let pool = format!("bench{replicas}");
            let line = format!(
                "ceph osd pool create {pool} 32 >/dev/null 2>&1; ceph osd pool set {pool} size {replicas} --yes-i-really-mean-it >/dev/null 2>&1; \
                 ceph osd pool set {pool} min_size 1 >/dev/null 2>&1; ceph osd pool application enable {pool} rados >/dev/null 2>&1; sleep 3; \
                 rados -p {pool} bench 1 write -b 4096 >/dev/null"
            );
            sh::output(&mut client(&side.conf(), &line))?;
        }
        for bytes in [4096u64, 4 << 20] {
            for side in sides {
                let line =
                    format!("rados -p bench{replicas} bench {WARM_UP_S} write -b {bytes} -t 16");
                sh::output(&mut client(&side.conf(), &line))?;
            }
            for (kind, flights) in [("write", [16, 1]), ("seq", [16, 1]), ("rand", [16, 1])] {
                for flight in flights {
                    // The reads need the objects that the last write of this size left.
                    let pool = format!("bench{replicas}");
                    let cells = in_turn(|i| cell(sides[i], &pool, kind, bytes, flight, secs))?;
                    for (peak, cells) in peak.iter_mut().zip(&cells) {
                        *peak = cells.iter().fold(*peak, |most, c| most.max(c.rss_mib));
                    }
                    let [a, b] = cells.map(|cells| Cell::median(&cells));
                    let (x, y, unit) = if bytes == 4096 {
                        (a.iops, b.iops, "IOPS")
                    } else {
                        (a.mib_s, b.mib_s, "MiB/s")
                    };
                    let name = if bytes == 4096 { "4 KiB" } else { "4 MiB" };
                    let row = format!(
                        "| {name} {kind} | {replicas} | {flight} | {x:.0} {unit} | {y:.0} | {:.2} | {:.2} / {:.2} | {:.1} / {:.1} | {:.2} |\n",
                        x / y,
                        a.lat_ms,
                        b.lat_ms,
                        a.osd_cpu_per_100k,
                        b.osd_cpu_per_100k,
                        a.osd_cpu_per_100k / b.osd_cpu_per_100k
                    );
                    print!("{row}");
                    rows.push_str(&row);
                }
            }
        }
        for side in sides {
            let pool = format!("bench{replicas}");
            sh::output(&mut client(
                &side.conf(),
                &format!(
                    "ceph osd pool rm {pool} {pool} --yes-i-really-really-mean-it 2>&1; sleep 2"
                ),
            ))?;
        }
    }
    let all: Vec<(f64, f64)> =
        sides.iter().map(|s| usage(&s.all_pids()?)).collect::<Result<_>>()?;
    let memory = format!(
        "memory of all OSDs together: idle {:.0} / {:.0} MiB, at most {:.0} / {:.0} MiB; \
         CPU seconds of all daemons in the whole run: {:.0} / {:.0}",
        idle[0], idle[1], peak[0], peak[1], all[0].0, all[1].0
    );
    Ok((rows, memory))
}
