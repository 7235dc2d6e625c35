//! Erasure-coded pools beside replicated ones and beside stock Ceph's: same machine, same client
//! programs, same run.

use std::fmt::Write as _;

use anyhow::Result;

use crate::bench::{self, Side, client, figure, head, keep};
use crate::sh;

const OSDS: u32 = 6;
/// Objects of 4 MiB that small reads and writes go to.
const OBJECTS: u32 = 64;
/// How often each cell is measured.
const ROUNDS: usize = 3;

/// What is done: how it is called, and with how many in flight.
const WORK: [(Work, u32); 6] = [
    (Work::Read, 16),
    (Work::Read, 1),
    (Work::Overwrite, 16),
    (Work::Overwrite, 1),
    (Work::Large, 16),
    (Work::Large, 1),
];

#[derive(Clone, Copy, PartialEq)]
enum Work {
    /// 4 KiB somewhere in objects of 4 MiB.
    Read,
    Overwrite,
    /// New objects of 4 MiB.
    Large,
}

impl Work {
    fn name(self) -> &'static str {
        match self {
            Self::Read => "4 KiB random read",
            Self::Overwrite => "4 KiB random overwrite",
            Self::Large => "4 MiB write",
        }
    }
}

/// Operations a second of fio's job on a pool's objects.
fn fio(side: &dyn Side, pool: &str, job: &str) -> Result<f64> {
    let (conf, size) = (side.conf(), OBJECTS * 4);
    let job = format!(
        "--ioengine=rados --clientname=admin --pool={pool} --conf={conf} --size={size}m \
         --nrfiles={OBJECTS} {job}"
    );
    Ok(bench::fio(&conf, &job)?.iops)
}

/// Operations a second.
fn measure(side: &dyn Side, pool: &str, (work, flight): (Work, u32), secs: u64) -> Result<f64> {
    let small =
        |rw: &str| format!("--rw={rw} --bs=4k --iodepth={flight} --time_based --runtime={secs}");
    match work {
        Work::Read => fio(side, pool, &small("randread")),
        Work::Overwrite => fio(side, pool, &small("randwrite")),
        Work::Large => {
            let line = format!("rados -p {pool} bench {secs} write -t {flight}");
            let text = sh::output(&mut client(&side.conf(), &line))?;
            Ok(figure(&text, "Bandwidth (MB/sec)")? / 4.0)
        }
    }
}

/// Runs the table on both sides, in turn, and keeps it in `bench/results`.
///
/// # Errors
/// When a cluster does not start or a client fails.
pub fn run(secs: u64) -> Result<()> {
    let rows = bench::beside("bench-ec", OSDS, |sides| table(sides, secs))?;
    let mut text = head(
        &format!("bench ec {secs}"),
        &format!(
            "{OSDS} OSDs each; pools of 3 copies and of 4+2 (isa, `allow_ec_overwrites` and\n`allow_ec_optimizations` on); \
             fio's rados engine reads and overwrites {OBJECTS} objects of 4 MiB, `rados bench` writes new ones; {secs} s a cell,\n\
             one run; {ROUNDS} rounds of cells in turn, medians."
        ),
    )?;
    let _ = writeln!(
        text,
        "| work | in flight | ours 4+2 /s | ours 3 copies /s | ratio | theirs 4+2 /s | ours / theirs |\n|---|---|---|---|---|---|---|"
    );
    text.push_str(&rows);
    keep(&text, "ec")
}

fn table(sides: &[&dyn Side; 2], secs: u64) -> Result<String> {
    for side in sides {
        let lines = [
            "ceph osd erasure-code-profile set p42 k=4 m=2 plugin=isa crush-failure-domain=osd",
            "ceph osd pool create ec 32 32 erasure p42",
            "ceph osd pool set ec allow_ec_overwrites true",
            "ceph osd pool set ec allow_ec_optimizations true",
            "ceph osd pool create copies 32",
            "ceph osd pool set copies size 3",
            "ceph osd pool application enable ec rados",
            "ceph osd pool application enable copies rados",
            "sleep 3",
        ];
        sh::output(&mut client(&side.conf(), &format!("exec 2>&1; {}", lines.join(" && "))))?;
        for pool in ["ec", "copies"] {
            fio(*side, pool, "--rw=write --bs=4m --iodepth=16")?;
            measure(*side, pool, (Work::Large, 16), 5)?;
        }
    }
    let mut rows = String::new();
    for work in WORK {
        let cells = [(0, "ec"), (0, "copies"), (1, "ec")];
        let mut rates: [Vec<f64>; 3] = Default::default();
        for round in 0..ROUNDS {
            // Who is first also touches memory for who comes next.
            for i in 0..cells.len() {
                let i = if round % 2 == 0 { i } else { cells.len() - 1 - i };
                let (side, pool) = cells[i];
                rates[i].push(measure(sides[side], pool, work, secs)?);
            }
        }
        let [ours, copies, theirs] = rates.map(bench::median);
        let row = format!(
            "| {} | {} | {ours:.0} | {copies:.0} | {:.2} | {theirs:.0} | {:.2} |\n",
            work.0.name(),
            work.1,
            ours / copies,
            ours / theirs
        );
        print!("{row}");
        rows.push_str(&row);
    }
    Ok(rows)
}
