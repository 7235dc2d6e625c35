//! Legitimate but limited clients that cost or lie as much as they can, each beside an honest one.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::cluster::{self, Cluster};
use crate::report::Report;
use crate::{lab, sh};

/// After the end of a scene, memory must be given back within so many seconds.
const GIVEN_BACK_S: f64 = 10.0;
/// What a daemon may keep of a scene's bound: its caches hold what was written last.
const KEPT_SHARE: f64 = 0.5;
/// What each OSD is told to stay within, MiB: a quarter of it is its cache of data, which whoever
/// writes fills.
const TARGET_MIB: u64 = 1024;
/// What metadata servers keep in memory, MiB.
const MDS_CACHE_MIB: u64 = 192;
/// No operation of the honest client may take longer, in seconds.
const LONGEST_S: f64 = 10.0;

/// Scenes for the test command: less than a minute in all.
pub const SHARE: &[&str] = &["future-maps", "unread-answers", "refused-commands", "half-open"];

/// One line of `hostile list`.
struct Scene {
    name: String,
    /// Arguments of `ceph auth get-or-create`.
    caps: Vec<String>,
    /// By how much one of the daemons that it is about may grow, in MiB.
    grows: f64,
}

/// Which program plays the scenes, and where.
struct Side {
    program: PathBuf,
    /// The pool or directory that the hostile client's caps name.
    tenant: &'static str,
    /// That of the honest client.
    honest: &'static str,
    /// Daemons that the scenes are about: how their names begin.
    about: &'static str,
}

/// Plays the scenes named, or all, for `secs` seconds each.
///
/// # Errors
/// When the cluster does not start; what a scene broke is in the report.
pub fn run(secs: u32, only: &[&str]) -> Result<Report> {
    lab::root("forky")?;
    let side = Side {
        program: program("rados", "hostile")?,
        tenant: "tenant",
        honest: "honest",
        about: "",
    };
    let cluster = with_target(Cluster::up("hostile-clients", &["--osds", "3"])?)?;
    let ceph = |line: &str| sh::output(&mut cluster.client("forky", line));
    ceph("ceph osd pool create tenant 16 && ceph osd pool create honest 16")?;
    side.all(&cluster, scenes(&side.program)?, secs, only)
}

/// As [`run`], of a file system.
///
/// # Errors
/// As [`run`].
pub fn files(secs: u32, only: &[&str]) -> Result<Report> {
    lab::root("forky")?;
    let side = Side {
        program: program("fs", "hostile_files")?,
        tenant: "/tenant",
        honest: "/honest",
        about: "mds.",
    };
    let up = ["--osds", "3", "--fs", "--mds", "1"];
    let cluster = with_target(Cluster::up("hostile-files", &up)?)?;
    sh::output(&mut cluster.client(
        "forky",
        &format!("ceph config set mds mds_cache_memory_limit {}M", MDS_CACHE_MIB),
    ))?;
    for dir in [side.tenant, side.honest] {
        let mut make = Command::new(&side.program);
        sh::run(make.arg("make").arg(cluster.conf()).args(["client.admin", dir]))?;
    }
    let listed = sh::output(Command::new(&side.program).arg("list"))?;
    let read = |line: &str| -> Result<Scene> {
        let (name, grows) = line.split_once('\t').context("a name and a number")?;
        let caps = [
            ("mon", "allow r"),
            ("mds", "allow rws path=/tenant"),
            ("osd", "allow rw tag cephfs data=cephfs"),
        ];
        let caps = caps.into_iter().flat_map(|(s, cap)| [s.to_owned(), cap.to_owned()]);
        Ok(Scene { name: name.into(), caps: caps.collect(), grows: grows.parse()? })
    };
    let scenes = listed.lines().map(read).collect::<Result<_>>()?;
    side.all(&cluster, scenes, secs, only)
}

/// Gives OSDs a target for their memory.
fn with_target(cluster: Cluster) -> Result<Cluster> {
    let conf = std::fs::read_to_string(cluster.conf())?;
    cluster.argonaut("down", &[])?;
    std::fs::write(cluster.conf(), format!("{conf}\n[osd]\nosd memory target = {TARGET_MIB}M\n"))?;
    cluster.start(&[])
}

/// The program of both clients, built first.
fn program(package: &str, name: &str) -> Result<PathBuf> {
    sh::run(&mut sh::cargo(&["build", "-q", "--release", "-p", package, "--example", name]))?;
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| sh::repo().join("target"), Into::into);
    Ok(target.join("release/examples").join(name))
}

fn scenes(program: &std::path::Path) -> Result<Vec<Scene>> {
    let listed = sh::output(Command::new(program).arg("list"))?;
    let read = |line: &str| -> Result<Scene> {
        let fields: Vec<&str> = line.split('\t').collect();
        let [name, mon, osd, mgr, grows] = fields[..] else { bail!("unexpected line {line:?}") };
        let services = [("mon", mon), ("osd", osd), ("mgr", mgr)];
        let given = services.into_iter().filter(|(_, cap)| !cap.is_empty());
        let caps = given.flat_map(|(s, cap)| [s.to_owned(), cap.replace("{pool}", "tenant")]);
        Ok(Scene { name: name.into(), caps: caps.collect(), grows: grows.parse()? })
    };
    listed.lines().map(read).collect()
}

/// A client that runs beside.
struct Running(Child);

impl Running {
    /// What it printed: end in s since 1970, and duration in s, of each operation.
    ///
    /// # Errors
    /// When it ended with an error.
    fn end(self) -> Result<Vec<(f64, f64)>> {
        let out = self.0.wait_with_output()?;
        if !out.status.success() {
            bail!("the honest client: {}", String::from_utf8_lossy(&out.stderr));
        }
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let read = |line: &str| -> Result<(f64, f64)> {
            let (end, took) = line.split_once(' ').context("two numbers")?;
            Ok((end.parse()?, took.parse::<f64>()? / 1e6))
        };
        text.lines().map(read).collect()
    }
}

impl Side {
    /// Plays scenes, each beside an honest client.
    fn all(
        &self,
        cluster: &Cluster,
        scenes: Vec<Scene>,
        secs: u32,
        only: &[&str],
    ) -> Result<Report> {
        let mut report = Report::default();
        let alone = self.honest(cluster, secs)?.end()?;
        println!("honest client alone: {} operations, p99 {:.1} ms", alone.len(), p99_ms(&alone));
        for scene in scenes {
            if !only.is_empty() && !only.contains(&scene.name.as_str()) {
                continue;
            }
            report.check(&format!("hostile client: {}", scene.name), || {
                self.play(cluster, &scene, secs, p99_ms(&alone))
            });
        }
        Ok(report)
    }

    fn honest(&self, cluster: &Cluster, secs: u32) -> Result<Running> {
        let mut command = Command::new(&self.program);
        command.arg("honest").arg(cluster.conf()).args(["client.admin", self.honest]);
        command.arg(secs.to_string()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(Running(command.spawn()?))
    }

    fn play(&self, cluster: &Cluster, scene: &Scene, secs: u32, alone_ms: f64) -> Result<()> {
        let entity = format!("client.hostile-{}", scene.name);
        let caps = scene.caps.iter().map(|c| format!("'{c}'")).collect::<Vec<_>>().join(" ");
        let key = sh::output(
            &mut cluster.client("forky", &format!("ceph auth get-or-create {entity} {caps}")),
        )?;
        let keyring = cluster.dir.join(format!("{entity}.keyring"));
        std::fs::write(&keyring, key)?;
        let conf = cluster.dir.join(format!("{entity}.conf"));
        let theirs = std::fs::read_to_string(cluster.conf())?;
        let theirs: Vec<&str> =
            theirs.lines().filter(|l| !l.trim_start().starts_with("keyring")).collect();
        std::fs::write(
            &conf,
            format!("{}\n[client]\nkeyring = {}\n", theirs.join("\n"), keyring.display()),
        )?;

        let pids = running(cluster)?;
        let before = resident(&pids)?;
        let beside = self.honest(cluster, secs)?;
        let mut hostile = Command::new(&self.program)
            .args(["play", &scene.name])
            .arg(&conf)
            .args([entity.as_str(), self.tenant, &secs.to_string()])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut worst = before.clone();
        let start = sh::now();
        while hostile.try_wait()?.is_none() {
            if start.elapsed().as_secs_f64() > f64::from(secs) + 30.0 {
                hostile.kill()?;
                bail!("the hostile client did not end");
            }
            std::thread::sleep(Duration::from_millis(100));
            for (most, now) in worst.iter_mut().zip(resident(&pids)?) {
                *most = most.max(now);
            }
        }
        let told = hostile.wait_with_output()?;
        let told = format!(
            "{}{}",
            String::from_utf8_lossy(&told.stdout),
            String::from_utf8_lossy(&told.stderr)
        );
        let measured = beside.end()?;
        let ended = sh::now();
        let back = loop {
            let now = resident(&pids)?;
            let kept = grown(&pids, self.about, &before, &now).1;
            if kept <= scene.grows * KEPT_SHARE || ended.elapsed().as_secs_f64() > GIVEN_BACK_S {
                break kept;
            }
            std::thread::sleep(Duration::from_millis(200));
        };
        let (at, most) = grown(&pids, self.about, &before, &worst);
        let longest = measured.iter().map(|m| m.1).fold(0.0, f64::max);
        println!(
            "        {}; {} grew by {most:.0} MiB of {:.0}, keeps {back:.0}; honest: {} operations, p99 {:.1} ms ({:.1} times), longest {longest:.2} s",
            told.trim(),
            pids[at].0,
            scene.grows,
            measured.len(),
            p99_ms(&measured),
            p99_ms(&measured) / alone_ms,
        );
        if cluster.pids()? != pids {
            bail!("a daemon ended");
        }
        let (other, others) = grown(&pids, "", &before, &worst);
        if others > TARGET_MIB as f64 {
            bail!("{} grew by {others:.0} MiB; {TARGET_MIB} are allowed", pids[other].0);
        }
        if most > scene.grows {
            bail!("{} grew by {most:.0} MiB; {:.0} are allowed", pids[at].0, scene.grows);
        }
        if back > scene.grows * KEPT_SHARE {
            bail!("{back:.0} MiB were not given back within {GIVEN_BACK_S} s");
        }
        if longest > LONGEST_S {
            bail!("an operation of the honest client took {longest:.1} s");
        }
        Ok(())
    }
}

fn p99_ms(measured: &[(f64, f64)]) -> f64 {
    let mut took: Vec<f64> = measured.iter().map(|m| m.1).collect();
    took.sort_by(f64::total_cmp);
    took.get(took.len() * 99 / 100).copied().unwrap_or(f64::INFINITY) * 1e3
}

/// The daemons, once all of them run: an earlier scene may have ended one.
fn running(cluster: &Cluster) -> Result<Vec<(String, u32)>> {
    let start = sh::now();
    loop {
        let pids = cluster.pids()?;
        match resident(&pids) {
            Ok(_) => return Ok(pids),
            Err(gone) if start.elapsed().as_secs_f64() > GIVEN_BACK_S => return Err(gone),
            Err(_) => std::thread::sleep(Duration::from_millis(200)),
        }
    }
}

/// Resident memory of each daemon, in MiB.
fn resident(pids: &[(String, u32)]) -> Result<Vec<f64>> {
    let one = |(name, pid): &(String, u32)| {
        cluster::usage(&[*pid]).map(|u| u.1).with_context(|| format!("{name} is gone"))
    };
    pids.iter().map(one).collect()
}

/// Which daemon grew most, of those whose names begin so, and by how many MiB.
fn grown(pids: &[(String, u32)], about: &str, before: &[f64], after: &[f64]) -> (usize, f64) {
    let grew = before.iter().zip(after).map(|(b, a)| a - b).enumerate();
    let grew = grew.filter(|(at, _)| pids[*at].0.starts_with(about));
    grew.max_by(|x, y| x.1.total_cmp(&y.1)).unwrap_or((0, 0.0))
}
