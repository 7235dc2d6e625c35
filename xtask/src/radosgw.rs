//! Stock radosgw 20.2.4 on OSDs of ours, with boto3 as its client: `tests/s3`.

use anyhow::Result;

use crate::cluster::Cluster;
use crate::report::Report;
use crate::{lab, sh};

/// Starts a cluster, a gateway of the forky root on it, and runs the cases of `tests/s3/s3.py`.
///
/// # Errors
/// When the cluster does not start; what failed is in the report.
pub fn run() -> Result<Report> {
    let mut report = Report::default();
    lab::root("forky")?;
    let cluster = Cluster::up("radosgw", &["--osds", "3"])?;
    let share = cluster.dir.join("s3");
    std::fs::create_dir_all(&share)?;
    for name in ["radosgw.sh", "s3.py"] {
        std::fs::copy(sh::repo().join("tests/s3").join(name), share.join(name))?;
    }
    let line =
        format!("cd {} && PORT={} timeout 300 bash radosgw.sh", share.display(), http_port());
    report.check("stock radosgw 20.2.4 with boto3", || {
        sh::output(&mut cluster.client("forky", &line)).map(|out| print!("{out}"))
    });
    Ok(report)
}

/// The gateway's port: of the run's own range where there is one.
fn http_port() -> u16 {
    let base = std::env::var("ARGONAUT_TEST_PORT").ok().and_then(|p| p.parse::<u16>().ok());
    base.map_or(17480, |base| base + 80)
}
