//! The simulated cluster, by seed.

use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::report::Report;
use crate::sh;

/// Runs the simulator with these words.
///
/// # Errors
/// When a seed is wrong.
pub fn cluster(words: &[&str]) -> Result<()> {
    sh::run(Command::new(crate::cluster::release("sim")?).args(words))
}

/// What a part of the share takes at most: a seed that never ends fails by its name.
const SHARE_LIMIT: Duration = Duration::from_secs(10 * 60);

/// The share of the test command: some hundred seeds, and each planted bug found.
pub fn share() -> Report {
    let share = |words: &[&str]| {
        let mut sim = Command::new(crate::cluster::release("sim")?);
        sh::run_within(SHARE_LIMIT, sim.args(words))
    };
    let mut report = Report::default();
    report.check("sim: 200 seeds", || share(&["--seeds", "200"]));
    report.check("sim: 100 seeds on the real store", || {
        share(&["--seed", "1000", "--seeds", "100", "--real-store"])
    });
    report.check("sim: a map change with 1,000 OSDs and 20,000 PGs", || share(&["--remap"]));
    let plants = [
        "lying-disks",
        "empty-writes",
        "forgotten-requests",
        "false-pings",
        "short-logs",
        "forgotten-votes",
        "unleased-reads",
        "forgotten-snaps",
        "half-copies",
        "forgotten-watchers",
        "loose-checkpoints",
        "forgotten-maps",
    ];
    for plant in plants {
        report.check(&format!("sim: {plant} is found"), || {
            share(&["--seeds", "900", "--plant", plant])
        });
    }
    report.check("sim: lying-disks is found on the real store", || {
        share(&["--seeds", "900", "--plant", "lying-disks", "--real-store"])
    });
    report
}
