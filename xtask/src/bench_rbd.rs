//! Block device images beside stock Ceph's: same machine, same clients, same run.

use std::fmt::Write as _;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::bench::{self, ROUNDS, Side, client, head, keep};
use crate::cluster;
use crate::{lab, sh};

const OSDS: u32 = 3;
/// The pool and the image that fio works on.
const POOL: &str = "bench";
const IMAGE: &str = "image";
const IMAGE_MIB: u64 = 1024;
/// Images exported at once, each as large as `EXPORT_MIB`.
const EXPORTED: [&str; 3] = ["one", "two", "three"];
const EXPORT_MIB: u64 = 512;

/// fio's work through librbd: how it is called, its parameters, in flight, and whether librbd's
/// cache is on.
const WORK: [(&str, &str, u32, bool); 9] = [
    ("4 KiB random write", "--rw=randwrite --bs=4k", 16, true),
    ("4 KiB random write", "--rw=randwrite --bs=4k", 1, true),
    ("4 KiB random write", "--rw=randwrite --bs=4k", 16, false),
    ("4 KiB random write", "--rw=randwrite --bs=4k", 1, false),
    ("4 KiB random read", "--rw=randread --bs=4k", 16, true),
    ("4 KiB random read", "--rw=randread --bs=4k", 1, true),
    ("4 MiB write", "--rw=write --bs=4m", 16, true),
    ("4 MiB read", "--rw=read --bs=4m", 16, true),
    ("4 MiB read", "--rw=read --bs=4m", 1, true),
];

fn librbd(side: &dyn Side, args: &str, flight: u32, cache: bool) -> Result<bench::Fio> {
    let conf = side.conf();
    let set = if cache { "" } else { "export CEPH_ARGS='--rbd_cache=false';" };
    // The engine reads its settings from CEPH_CONF and CEPH_ARGS.
    bench::fio_after(
        &conf,
        set,
        &format!(
            "--ioengine=rbd --clientname=admin --pool={POOL} --rbdname={IMAGE} --iodepth={flight} {args}"
        ),
    )
}

/// A server of the image on a socket; ended when dropped.
struct Served(Child);

impl Drop for Served {
    fn drop(&mut self) {
        // By SIGTERM, so that the lock on the image is given back.
        sh::output(Command::new("kill").arg(self.0.id().to_string())).ok();
        self.0.wait().ok();
    }
}

/// Starts `command`, and waits for its socket.
fn serve(mut command: Command, socket: &str) -> Result<Served> {
    std::fs::remove_file(socket).ok();
    let served =
        Served(command.stdout(Stdio::null()).spawn().with_context(|| format!("{command:?}"))?);
    let end = sh::now() + std::time::Duration::from_secs(20);
    while !std::path::Path::new(socket).exists() {
        ensure!(sh::now() < end, "{command:?} did not listen within 20 s");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    Ok(served)
}

/// How the image is offered as a network block device.
#[derive(Clone, Copy)]
enum Server {
    /// `argonaut rbd serve`: what it acknowledged is on all OSDs.
    Ours,
    /// `qemu-nbd` on `rbd:`, with a cache mode of QEMU's.
    Qemu(&'static str),
}

fn nbd(side: &dyn Side, server: Server, args: &str) -> Result<bench::Fio> {
    let (conf, socket) = (side.conf(), format!("{}/bench-rbd.sock", lab::SHARE));
    let command = match server {
        Server::Ours => {
            let mut command = Command::new(cluster::binary()?);
            let image = format!("{POOL}/{IMAGE}");
            command.args(["rbd", "-c", &conf, "serve", &image, "--unix", &socket]);
            command
        }
        Server::Qemu(cache) => lab::exec(
            "forky",
            &format!(
                "exec qemu-nbd -t -e 16 -f raw --cache={cache} --aio=threads -k {socket} rbd:{POOL}/{IMAGE}:conf={conf}"
            ),
        ),
    };
    let _served = serve(command, &socket)?;
    let uri = match server {
        Server::Ours => format!("nbd+unix:///{POOL}/{IMAGE}?socket={socket}"),
        Server::Qemu(_) => format!("nbd+unix:///?socket={socket}"),
    };
    bench::fio(&conf, &format!("--ioengine=nbd --uri='{uri}' {args}"))
}

/// MiB a second of three `rbd export` at once.
fn export(side: &dyn Side) -> Result<f64> {
    let line = format!(
        "s=$(date +%s%N); w=; for i in {}; do rbd export --no-progress {POOL}/$i - > /dev/null & w=\"$w $!\"; done; \
         for p in $w; do wait $p || exit 1; done; echo $(($(date +%s%N) - s))",
        EXPORTED.join(" ")
    );
    let text = sh::output(&mut client(&side.conf(), &line))?;
    let ns: f64 = text.trim().parse().with_context(|| format!("not a time: {text}"))?;
    #[allow(clippy::cast_precision_loss, reason = "a few thousand MiB")]
    Ok((EXPORTED.len() as u64 * EXPORT_MIB) as f64 / (ns / 1e9))
}

/// Runs the table on both sides, in turn, and keeps it in `bench/results`.
///
/// # Errors
/// When a cluster does not start or a client fails.
pub fn run(secs: u64) -> Result<()> {
    let rows = bench::beside("bench-rbd", OSDS, |sides| table(sides, secs))?;
    let mut text = head(
        &format!("bench rbd {secs}"),
        &format!(
            "{OSDS} OSDs each, 3 copies; an image of {IMAGE_MIB} MiB with the default features, written whole before; fio's rbd \
             engine\n(librbd 20.2.4) on it, with librbd's cache as it comes (on) and off; {} images of {EXPORT_MIB} MiB exported at once; \
             fio's nbd engine\nthrough `argonaut rbd serve`, and on their side through qemu-nbd on `rbd:`, in two cache modes; {secs} s a \
             cell, after as many\nthat do not count, one run; each cell {ROUNDS} times, ours and theirs in turn, medians.",
            EXPORTED.len()
        ),
    )?;
    let _ = writeln!(
        text,
        "| work | in flight | ours | theirs | ratio | latency ours / theirs (ms) | ratio |\n|---|---|---|---|---|---|---|"
    );
    text.push_str(&rows);
    keep(&text, "rbd")
}

/// What each side does, by the median of [`ROUNDS`]; who was last begins the next round.
fn in_turn(of: impl FnMut(usize) -> Result<bench::Fio>) -> Result<[bench::Fio; 2]> {
    let found = bench::in_turn(of)?;
    Ok(found.map(|all| bench::Fio {
        iops: bench::median(all.iter().map(|f| f.iops).collect()),
        lat_ms: bench::median(all.iter().map(|f| f.lat_ms).collect()),
    }))
}

fn row(name: &str, flight: u32, ours: bench::Fio, theirs: bench::Fio) -> String {
    let row = format!(
        "| {name} | {flight} | {:.0} /s | {:.0} | {:.2} | {:.2} / {:.2} | {:.2} |\n",
        ours.iops,
        theirs.iops,
        ours.iops / theirs.iops,
        ours.lat_ms,
        theirs.lat_ms,
        ours.lat_ms / theirs.lat_ms
    );
    print!("{row}");
    row
}

fn table(sides: &[&dyn Side; 2], secs: u64) -> Result<String> {
    for side in sides {
        let mut lines = vec![
            format!("ceph osd pool create {POOL} 32"),
            format!("rbd pool init {POOL}"),
            format!("rbd create {POOL}/{IMAGE} -s {IMAGE_MIB}M"),
        ];
        for image in EXPORTED {
            lines.push(format!(
                "head -c {EXPORT_MIB}M /dev/urandom | rbd import --no-progress - {POOL}/{image}"
            ));
        }
        lines.push("sleep 3".to_owned());
        sh::output(&mut client(&side.conf(), &format!("exec 2>&1; {}", lines.join(" && "))))?;
        librbd(*side, "--rw=write --bs=4m", 16, true)?;
    }
    // Memory that is touched for the first time is not what is to be measured.
    let timed = format!("--time_based --ramp_time={secs} --runtime={secs}");
    let mut rows = String::new();
    for (name, args, flight, cache) in WORK {
        let of = |side: usize| librbd(sides[side], &format!("{args} {timed}"), flight, cache);
        let name = format!("{name}{}", if cache { "" } else { ", cache off" });
        let [ours, theirs] = in_turn(of)?;
        rows.push_str(&row(&name, flight, ours, theirs));
    }
    let mut rates: [Vec<f64>; 2] = Default::default();
    for _ in 0..ROUNDS {
        for (side, rates) in sides.iter().zip(&mut rates) {
            rates.push(export(*side)?);
        }
    }
    let [ours, theirs] = rates.map(bench::median);
    let exported = format!(
        "| {} `rbd export` at once | 1 each | {ours:.0} MiB/s | {theirs:.0} | {:.2} | | |\n",
        EXPORTED.len(),
        ours / theirs
    );
    print!("{exported}");
    rows.push_str(&exported);
    for (work, args) in [("random write", "--rw=randwrite"), ("random read", "--rw=randread")] {
        let job = format!("{args} --bs=4k --iodepth=16 {timed}");
        for cache in ["writeback", "none"] {
            let server = [Server::Ours, Server::Qemu(cache)];
            let [ours, theirs] = in_turn(|side| nbd(sides[side], server[side], &job))?;
            let name = format!("NBD: 4 KiB {work} (theirs: cache={cache})");
            rows.push_str(&row(&name, 16, ours, theirs));
        }
    }
    Ok(rows)
}
