//! Mounts of `ceph-fuse` as programs use them, of each release that is kept: `tests/fs/fuse.py`, `fsx.py` by
//! one mount and by two, a source tree that is built and kept by git; the newest on a coded pool, too, of
//! which an OSD dies meanwhile.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::fs_cluster::FsCluster;
use crate::report::Report;
use crate::{lab, qemu, sh};

const SUITES: [&str; 3] = [OLDEST, "trixie", NEWEST];
const NEWEST: &str = "forky";
/// Its client, 16.2.15, reads beyond a file's end and loses rows of SQLite's where two mounts have the file
/// open, with a stock server in the same operations too.
const OLDEST: &str = "bookworm";

/// The client, and what the source tree needs; `lua5.4` is the tree.
const TOOLS: &str = "ceph-fuse git gcc libc6-dev make libreadline-dev util-linux";

struct Mounts {
    fs: FsCluster,
    operations: u64,
}

impl Mounts {
    /// All of it in a directory of its own.
    fn all(&self, report: &mut Report, suite: &str, root: &str) {
        let (name, n) = (root.trim_start_matches('/'), self.operations);
        let mut case = |what: &str, line: String| {
            report.check(&format!("{name}: {what}"), || {
                let said = self.fs.on_mounts(suite, root, &line)?;
                println!("        {}", said.trim().replace('\n', ", "));
                Ok(())
            });
        };
        if suite != OLDEST {
            let local = format!("local-{name}");
            case(
                "programs on two mounts",
                format!(
                    "mkdir {local}; timeout 300 python3 fuse.py $PWD/one $PWD/two $PWD/{local}"
                ),
            );
            case(
                "one file by two mounts",
                format!("timeout 1500 python3 fsx.py {} 2 $PWD/one/fsx2 $PWD/two/fsx2", n / 4),
            );
        }
        case("one file by one mount", format!("timeout 1500 python3 fsx.py {n} 1 $PWD/one/fsx1"));
        case(
            "a source tree",
            "mkdir one/tree; timeout 900 bash source.sh $PWD/one/tree $PWD/source.tar; \
             rmdir two/tree"
                .to_owned(),
        );
    }

    fn make_root(&self, root: &str) -> Result<()> {
        self.fs.on_mounts(NEWEST, "/", &format!("mkdir one{root}")).map(drop)
    }

    /// A directory whose files lie in a coded pool.
    fn coded(&self) -> Result<()> {
        self.fs.ceph(
            "ceph osd erasure-code-profile set k2m1 k=2 m=1 crush-failure-domain=osd; \
             ceph osd pool create coded 8 8 erasure k2m1; \
             ceph osd pool set coded allow_ec_overwrites true; \
             ceph fs add_data_pool cephfs coded",
        )?;
        self.make_root("/coded")?;
        self.fs
            .on_mounts(NEWEST, "/", "setfattr -n ceph.dir.layout.pool -v coded one/coded")
            .map(drop)
    }
}

/// Brings what the tree needs into a suite's root; the tree, beside the cluster's files.
fn bring(suite: &str, cluster: &FsCluster) -> Result<()> {
    lab::need(suite, TOOLS)?;
    let tar = cluster.cluster.dir.join("source.tar");
    if !tar.exists() {
        std::fs::copy(source()?, &tar)?;
    }
    Ok(())
}

/// The tree's archive, fetched once, from a release whose archives do not change any more.
fn source() -> Result<PathBuf> {
    let suite = OLDEST;
    let line = "cd /var/cache && ls lua5.4_*.orig.tar.* 2>/dev/null || { \
         sed 's/^deb /deb-src /' /etc/apt/sources.list >/etc/apt/sources.list.d/source.list && \
         apt-get update -q >&2 && apt-get source -q --download-only lua5.4 >&2 && \
         ls lua5.4_*.orig.tar.*; }";
    let said = sh::output(&mut lab::exec(suite, line))?;
    let name = said.lines().last().context("an archive")?;
    Ok(lab::root(suite)?.join("var/cache").join(name))
}

/// Runs all, with so many operations on the files that are read and written at random.
///
/// # Errors
/// When the cluster does not start or the roots cannot be had; what failed is in the report.
pub fn run(operations: u64) -> Result<Report> {
    let mut report = Report::default();
    for suite in SUITES {
        lab::root(suite)?;
    }
    let args = ["--osds", "3", "--fs", "--mds", "2", "--osd-bytes", "10G"];
    let fs = FsCluster::up("mounts", &args)?;
    for program in ["fsx.py", "source.sh"] {
        std::fs::copy(sh::repo().join("tests/fs").join(program), fs.cluster.dir.join(program))?;
    }
    fs.wait(30, "active server", |stat| stat.contains("=up:active"))?;
    let mounts = Mounts { fs, operations };
    for suite in SUITES.into_iter().rev() {
        bring(suite, &mounts.fs)?;
        let root = format!("/{suite}");
        mounts.make_root(&root)?;
        mounts.all(&mut report, suite, &root);
    }
    mounts.coded()?;
    std::thread::scope(|threads| {
        let dies = threads.spawn(|| {
            std::thread::sleep(Duration::from_secs(5));
            qemu::outage(&mounts.fs.cluster, "osd.1", Duration::from_secs(15))
        });
        mounts.all(&mut report, NEWEST, "/coded");
        report.check("an OSD died meanwhile", || dies.join().expect("an outage does not panic"));
    });
    report.check("what is coded is", || {
        let said = mounts.fs.ceph("rados -p coded ls | wc -l")?;
        ensure!(said.trim().parse::<u64>()? > 0, "no object in the coded pool");
        Ok(())
    });
    report.check("health after the mounts", || mounts.fs.healthy());
    Ok(report)
}
