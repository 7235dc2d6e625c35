//! Images under fio, by librbd and with a checksum in each block, while OSDs and monitors are
//! killed and come back one after the other: no I/O error, no wrong byte.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use env::{Random, Seeded};

use crate::cluster::{Cluster, IMAGE_POOLS};
use crate::report::Report;
use crate::thrash::{Running, all_well, fsck, is_clean};
use crate::{lab, qemu, sh};

const SUITE: &str = "forky";
const OSDS: u64 = 4;
const MONS: [&str; 3] = ["mon.a", "mon.b", "mon.c"];
/// MiB of each image.
const SIZE: u32 = 64;
/// How long the cluster may take to become clean when trouble ends.
const CLEAN_MAX: Duration = Duration::from_secs(180);

/// For `secs` seconds. The images: replicated, with data in an erasure-coded pool, a clone that
/// copies up as it is written, and one that is snapshotted meanwhile.
///
/// # Errors
/// When the cluster does not start; what failed is in the report.
pub fn run(secs: u64) -> Result<Report> {
    let mut report = Report::default();
    lab::root(SUITE)?;
    let mut cluster =
        Cluster::up("thrash-rbd", &["--osds", "4", "--mons", "3", "--osd-bytes", "6G"])?;
    let seed = std::process::id().into();
    println!("argonaut up: {:.2} s; seed {seed}", cluster.up_s);
    let images = ["plain", "coded", "clone", "snapped"];
    let client = |line: &str| sh::output(&mut cluster.client(SUITE, line));
    for line in [
        IMAGE_POOLS,
        &format!("for i in plain snapped base; do rbd create rbd/$i -s {SIZE}M || exit 1; done"),
        &format!("rbd create rbd/coded -s {SIZE}M --data-pool ec"),
        "rbd bench --io-type write --io-size 1M --io-total 32M rbd/base >/dev/null",
        "rbd snap create --no-progress rbd/base@s && rbd snap protect rbd/base@s && rbd clone rbd/base@s rbd/clone",
    ] {
        client(line)?;
    }
    report.check(&format!("fio on four images, daemons killed for {secs} s"), || {
        let mut all = Vec::new();
        for image in images {
            all.push(Running::start(&cluster, image, &load(&cluster, image, secs))?);
        }
        let snaps = format!(
            "n=0; end=$((SECONDS + {secs})); while [ $SECONDS -lt $end ]; do n=$((n + 1)); \
             timeout 120 rbd snap create --no-progress rbd/snapped@s$n && sleep 2 && \
             timeout 120 rbd export --no-progress rbd/snapped@s$n - >/dev/null && \
             timeout 120 rbd snap rm --no-progress rbd/snapped@s$n || exit 1; \
             echo \"$n snapshots\"; done"
        );
        all.push(Running::start(&cluster, "snapshots", &snaps)?);
        kill(&cluster, &mut all, secs, seed)?;
        all_well(all, Vec::new())
    });
    report.check("clean when trouble ends", || {
        let began = sh::now();
        loop {
            let status: serde_json::Value =
                serde_json::from_str(&client("timeout 60 ceph -s -f json")?).context("status")?;
            if is_clean(&status) && status["osdmap"]["num_up_osds"] == OSDS {
                println!("        after {:.1} s", began.elapsed().as_secs_f64());
                return Ok(());
            }
            if began.elapsed() > CLEAN_MAX {
                bail!("not clean after {} s: {status}", CLEAN_MAX.as_secs());
            }
            std::thread::sleep(Duration::from_millis(300));
        }
    });
    for image in images {
        report.check(&format!("object map of {image}"), || {
            client(&format!("timeout 120 rbd object-map check --no-progress rbd/{image}")).map(drop)
        });
    }
    report.check("fsck of every store", || fsck(&mut cluster, OSDS));
    Ok(report)
}

/// Rounds of fio on an image: random writes, each read back soon and all once more in the end.
fn load(cluster: &Cluster, image: &str, secs: u64) -> String {
    let log = cluster.dir.join(format!("log/fio.{image}"));
    format!(
        "n=0; end=$((SECONDS + {secs})); while [ $SECONDS -lt $end ]; do n=$((n + 1)); \
         timeout 400 fio --name={image} --ioengine=rbd --clientname=admin --pool=rbd --rbdname={image} \
         --rw=randwrite --bsrange=4k-64k --size={SIZE}M --iodepth=16 --randseed=$n --verify=crc32c \
         --verify_backlog=128 --do_verify=1 --verify_fatal=1 --verify_dump=0 --output={log} \
         || {{ echo \"fio ended with $? in round $n\"; tail -n 40 {log}; exit 1; }}; \
         grep -q 'err= 0' {log} || {{ cat {log}; exit 1; }}; \
         echo \"$n rounds without a wrong byte; of the last: $(grep -m1 ' clat ' {log})\"; done",
        log = log.display()
    )
}

/// One daemon after the other, in changing order, for as long as the clients work.
fn kill(cluster: &Cluster, all: &mut [Running], secs: u64, seed: u64) -> Result<()> {
    let mut random = Seeded(seed);
    let end = sh::now() + Duration::from_secs(secs);
    let last = end + Duration::from_secs(400);
    let mut kills = [0, 0];
    let mut queue: Vec<String> = Vec::new();
    while sh::now() < end {
        for one in all.iter_mut() {
            if one.is_done()? && sh::now() < end {
                return Ok(()); // it says why
            }
        }
        if queue.is_empty() {
            queue = (0..OSDS).map(|osd| format!("osd.{osd}")).collect();
            queue.extend(MONS.map(str::to_owned));
        }
        let daemon = queue.swap_remove((random.u64() % queue.len() as u64) as usize);
        kills[usize::from(daemon.starts_with("mon"))] += 1;
        let away = [0, 0, 3, 8][(random.u64() % 4) as usize];
        qemu::outage(cluster, &daemon, Duration::from_secs(away))?;
        std::thread::sleep(Duration::from_millis(1_500 + random.u64() % 3_000));
    }
    println!("        killed: {} OSDs, {} monitors", kills[0], kills[1]);
    for one in all {
        while !one.is_done()? {
            if sh::now() > last {
                bail!("{} does not come to an end", one.name);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    Ok(())
}
