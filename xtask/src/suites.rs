//! Upstream's own test programs (Debian's `ceph-test` of 20.2.4) against a cluster of ours.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::cluster::Cluster;
use crate::report::Report;
use crate::{lab, qemu, sh};

/// The programs that must pass now and take seconds: without `ceph_test_`, and without
/// `rados_api_` too.
pub const PROGRAMS: &[&str] = &[
    "stat",
    "stat_pp",
    "list",
    "pool",
    "cmd",
    "cmd_pp",
    "c_read_operations",
    "c_write_operations",
    "io",
    "io_pp",
    "aio",
    "aio_pp",
    "asio",
    "lock",
    "lock_pp",
    "misc",
    "snapshots",
    "snapshots_pp",
    "cls_hello",
    "cls_numops",
    "cls_refcount",
    "cls_log",
    "cls_journal",
    "cls_rbd",
    "cls_cmpomap",
    "cls_cas",
    "cls_user",
    "cls_rgw",
    "cls_rgw_gc",
    "cls_rgw_stats",
    "cls_sem_set",
    "neocls_fifo",
    "neocls_version",
    "neocls_log",
    "neorados_cls",
    "neorados_cmd",
    "neorados_completions",
    "neorados_ec_io",
    "neorados_ec_list",
    "neorados_handler_error",
    "neorados_io",
    "neorados_leak_watch_notify",
    "neorados_list",
    "neorados_misc",
    "neorados_pool",
    "neorados_read_operations",
    "neorados_snapshots",
    "neorados_watch_notify",
    "neorados_write_operations",
    "rados_striper_api_io",
    "rados_striper_api_aio",
    "rados_striper_api_striping",
    "rados_delete_pools_parallel",
    "rados_list_parallel",
    "rados_open_pools_parallel",
];

/// Those that must pass, too, and wait on purpose, half a minute and more each; and
/// `cls_queue`, whose `QueueFullDequeue` has a race of its own: its consumer may stop before
/// it has read the last batch.
pub const SLOW: &[&str] = &[
    "misc_pp",
    "service",
    "stress_watch",
    "multi_stress_watch rep",
    "multi_stress_watch ec",
    "watch_notify",
    "watch_notify_pp",
    "service_pp",
    "cls_lock",
    "cls_2pc_queue",
    "cls_queue",
];

/// What tests RBD, half an hour and more: librbd's own cases without features (format 1), with
/// the default ones and with journaling; 100,000 operations checked against a file, with clones
/// and random striping, without striping, and with a journal that is replayed: there the program of
/// 20.2.4 hangs sooner or later by a fault of its own, against a stock cluster too (COMPAT.md).
pub const RBD: &[&str] = &[
    "cls_rbd",
    "cls_lock",
    "cls_journal",
    "librbd",
    "librbd 61",
    "librbd 125",
    "librbd_fsx -c 100",
    "librbd_fsx -U -c 200",
    "librbd_fsx -j -c 200",
    "rbd_mirror",
];

/// What tests the file system, by libcephfs, on two metadata servers of ours.
pub const FS: &[&str] = &[
    "libcephfs",
    "libcephfs_access",
    "libcephfs_lazyio",
    "libcephfs_newops",
    "libcephfs_reclaim",
    "libcephfs_snapdiff",
    "libcephfs_suidsgid",
    "libcephfs_vxattr",
];

/// The whole name of a program, with its arguments.
fn program(name: &str) -> String {
    if let Some(options) = name.strip_prefix("librbd_fsx") {
        let size = "-l 20000000 -o 262144 -S 7 -N 100000";
        return format!("ceph_test_librbd_fsx -q -p 50000 -P /tmp{options} {size} rbd fsx-$$");
    }
    if let Some(features) = name.strip_prefix("librbd ") {
        return format!("env RBD_FEATURES={features} ceph_test_librbd");
    }
    // It makes a pool of the kind named, and 10,000 watches on an object there.
    if let Some(kind) = name.strip_prefix("multi_stress_watch ") {
        return format!("ceph_multi_stress_watch {kind} watched-{kind} object");
    }
    let whole =
        ["cls_", "libcephfs", "librbd", "neocls_", "neorados_", "rados_", "rbd_", "stress_"]
            .iter()
            .any(|prefix| name.starts_with(prefix));
    if whole { format!("ceph_test_{name}") } else { format!("ceph_test_rados_api_{name}") }
}

/// Reads `tests/suites/why-not.toml`: program to the cases left out, each with a reason.
fn why_not() -> Result<BTreeMap<String, Vec<(String, String)>>> {
    let path = sh::repo().join("tests/suites/why-not.toml");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let (mut out, mut section) = (BTreeMap::<String, Vec<_>>::new(), String::new());
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            section = name.to_owned();
        } else {
            let (case, why) = line.split_once('=').context("why-not: CASE = \"reason\"")?;
            let clean = |s: &str| s.trim().trim_matches('"').to_owned();
            if clean(why).is_empty() {
                bail!("why-not.toml: {case} has no reason");
            }
            out.entry(section.clone()).or_default().push((clean(case), clean(why)));
        }
    }
    Ok(out)
}

/// What one program came to.
struct Row {
    program: String,
    passed: usize,
    failed: usize,
    skipped: usize,
    left_out: usize,
    seconds: f64,
    end: String,
}

/// The number in the last line that begins with `tag`: `[  PASSED  ] 12 tests.`
fn count(text: &str, tag: &str) -> usize {
    let line = text.lines().rev().find_map(|l| {
        let (number, rest) = l.strip_prefix(tag)?.trim().split_once(' ')?;
        rest.starts_with("test").then(|| number.parse().ok()).flatten()
    });
    line.unwrap_or(0)
}

/// A table of what ran, with sums.
fn print_table(rows: &[Row]) {
    let line = |name: &str, n: [String; 4], seconds: f64, end: &str| {
        println!("{name:46} {:>7} {:>7} {:>8} {:>9} {seconds:>8.1}  {end}", n[0], n[1], n[2], n[3]);
    };
    println!(
        "\n{:46} {:>7} {:>7} {:>8} {:>9} {:>8}",
        "program", "passed", "failed", "skipped", "left out", "s"
    );
    let mut sums = [0; 4];
    for row in rows {
        let n = [row.passed, row.failed, row.skipped, row.left_out];
        sums.iter_mut().zip(n).for_each(|(sum, n)| *sum += n);
        line(&row.program, n.map(|n| n.to_string()), row.seconds, &row.end);
    }
    let seconds = rows.iter().map(|r| r.seconds).sum();
    line(&format!("{} programs", rows.len()), sums.map(|n| n.to_string()), seconds, "");
}

/// A program with cases that race with the server: they fail when the answer is there before
/// they look, which a client that is not given the CPU in between sees now and then; and what
/// is in the names of all of them.
const RACES: (&str, &str) = ("asio", "Cancel");
/// So often it is run until it wins.
const RACE_TRIES: u32 = 3;

/// Whether nothing failed but such cases.
fn lost_a_race(name: &str, text: &str) -> bool {
    let mut failed = text.lines().filter_map(|l| l.strip_prefix("[  FAILED  ] ")).peekable();
    let case = |l: &str| !l.contains("tests, listed") && !l.contains("test, listed");
    name == RACES.0
        && failed.peek().is_some()
        && failed.filter(|l| case(l)).all(|l| l.contains(RACES.1))
}

/// Runs the programs named, or [`PROGRAMS`]; with `rados` for a name, all of librados:
/// [`SLOW`] as well, with `rbd` [`RBD`], and with `fs` [`FS`]. Ends with a table.
///
/// # Errors
/// When the cluster does not start; failed programs are in the report.
pub fn run(names: &[&str]) -> Result<Report> {
    let mut report = Report::default();
    let names = match names {
        [] => PROGRAMS.to_vec(),
        ["rados"] => [PROGRAMS, SLOW].concat(),
        ["rbd"] => RBD.to_vec(),
        ["fs"] => FS.to_vec(),
        names => names.to_vec(),
    };
    let why_not = why_not()?;
    lab::root("forky")?;
    let with_fs = names.iter().any(|name| name.starts_with("libcephfs"));
    let args: &[&str] = if with_fs { &["--fs", "--mds", "2"] } else { &[] };
    let cluster = Cluster::up("suites", &[&["--osds", "4"], args].concat())?;
    if names.iter().any(|name| name.contains("librbd")) {
        // They write and remove some hundred GiB: blocks that are free again go back.
        let conf = std::fs::read_to_string(cluster.conf())?;
        std::fs::write(cluster.conf(), conf + "\n[osd]\nbdev enable discard = true\n")?;
        for osd in 0..4 {
            qemu::outage(&cluster, &format!("osd.{osd}"), Duration::ZERO)?;
        }
        let up = "until ceph osd stat -f json | grep -q '\"num_up_osds\":4'; do sleep 1; done";
        sh::run(&mut cluster.client("forky", &format!("sleep 3; {up}")))?;
    }
    if names.iter().any(|name| name.starts_with("librbd_fsx")) {
        sh::run(&mut cluster.client("forky", "ceph osd pool create rbd 16 && rbd pool init rbd"))?;
    }
    let mut rows = Vec::new();
    for name in names {
        let left_out = why_not.get(name).map(Vec::as_slice).unwrap_or_default();
        let filter = if left_out.is_empty() {
            String::new()
        } else {
            let cases: Vec<&str> = left_out.iter().map(|(case, _)| case.as_str()).collect();
            format!(" --gtest_filter=-{}", cases.join(":"))
        };
        let program = program(name);
        report.check(&program, || {
            let most = if name.contains("librbd") { 5400 } else { 900 };
            let line = format!("timeout {most} {program}{filter} 2>&1");
            #[allow(clippy::disallowed_methods, reason = "the table says how long each took")]
            let start = std::time::Instant::now();
            let mut out = cluster.client("forky", &line).stdin(Stdio::null()).output()?;
            let mut tries = 1;
            while tries < RACE_TRIES && lost_a_race(name, &String::from_utf8_lossy(&out.stdout)) {
                tries += 1;
                println!("        {program}: an answer was there before it was looked for; again");
                out = cluster.client("forky", &line).stdin(Stdio::null()).output()?;
            }
            let text = String::from_utf8_lossy(&out.stdout);
            for line in text.lines().filter(|l| l.contains("[  FAILED  ]")) {
                println!("        {line}");
            }
            // Some have no cases of their own: the program is one.
            let whole = usize::from(out.status.success() && !text.contains("[==========]"));
            rows.push(Row {
                program: program.clone(),
                passed: count(&text, "[  PASSED  ]") + whole,
                failed: count(&text, "[  FAILED  ]"),
                skipped: count(&text, "[  SKIPPED ]"),
                left_out: left_out.len(),
                seconds: start.elapsed().as_secs_f64(),
                end: if out.status.success() { "ok".into() } else { out.status.to_string() },
            });
            if !out.status.success() {
                bail!(
                    "ended with {}: {}",
                    out.status,
                    text.lines().rev().take(5).collect::<Vec<_>>().join(" | ")
                );
            }
            Ok(())
        });
    }
    print_table(&rows);
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_races_are_run_again() {
        let race = "[  FAILED  ] AsioRados.AsyncReadOperationCancelTotal (0 ms)\n\
                    [  FAILED  ] 1 test, listed below:\n";
        assert!(lost_a_race("asio", race));
        assert!(!lost_a_race("aio", race));
        assert!(!lost_a_race("asio", "[  PASSED  ] 29 tests.\n"));
        let other = format!("{race}[  FAILED  ] AsioRados.AsyncReadCallback (0 ms)\n");
        assert!(!lost_a_race("asio", &other));
    }
}
