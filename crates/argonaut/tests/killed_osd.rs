//! An OSD that is killed while nobody writes is marked down by its peers' word at once, and not
//! when the grace time of its heartbeats is over.

use std::process::Command;
use std::time::{Duration, Instant};

#[test]
#[allow(clippy::disallowed_methods, reason = "it measures")]
fn an_idle_killed_osd_is_down_in_a_moment() {
    let dir = std::env::temp_dir().join(format!("argonaut-killed-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let bin = env!("CARGO_BIN_EXE_argonaut");
    let run = |args: &[&str]| {
        let mut command = Command::new(bin);
        let out = command.args(args).output().unwrap();
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    let (at, conf) = (dir.to_str().unwrap(), dir.join("ceph.conf"));
    run(&["up", "--minimal", "--mons", "1", "--osd-bytes", "1G", "--port", "26300", "--dir", at]);
    let ceph = |words: &[&str]| run(&[&["ceph", "-c", conf.to_str().unwrap()], words].concat());
    ceph(&["osd", "pool", "create", "p", "8"]);
    let kill = |signal: &str, daemon: &str| {
        let pid = std::fs::read_to_string(dir.join(format!("run/{daemon}.pid"))).unwrap();
        assert!(Command::new("kill").args([signal, pid.trim()]).status().unwrap().success());
    };
    std::thread::sleep(Duration::from_secs(7)); // a heartbeat of each
    kill("-STOP", "supervise");
    kill("-9", "osd.2");
    let start = Instant::now();
    while !ceph(&["osd", "stat"]).contains("2 up") {
        assert!(start.elapsed() < Duration::from_secs(15), "still up");
        std::thread::sleep(Duration::from_millis(50));
    }
    let took = start.elapsed();
    kill("-CONT", "supervise");
    run(&["rm", "--yes", "--dir", at]);
    assert!(took < Duration::from_secs(4), "{took:?}");
}

/// All OSDs are killed at once, whichever monitors they are connected to: nobody reports anybody, and
/// yet all are down in a moment.
#[test]
#[allow(clippy::disallowed_methods, reason = "it measures")]
fn all_osds_killed_are_down_in_a_moment() {
    let dir = std::env::temp_dir().join(format!("argonaut-all-killed-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let bin = env!("CARGO_BIN_EXE_argonaut");
    let run = |args: &[&str]| {
        let out = Command::new(bin).args(args).output().unwrap();
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    let (at, conf) = (dir.to_str().unwrap(), dir.join("ceph.conf"));
    run(&["up", "--minimal", "--osds", "5", "--osd-bytes", "1G", "--port", "26320", "--dir", at]);
    let ceph = |words: &[&str]| run(&[&["ceph", "-c", conf.to_str().unwrap()], words].concat());
    let kill = |signal: &str, daemon: &str| {
        let pid = std::fs::read_to_string(dir.join(format!("run/{daemon}.pid"))).unwrap();
        assert!(Command::new("kill").args([signal, pid.trim()]).status().unwrap().success());
    };
    std::thread::sleep(Duration::from_secs(2)); // each has spoken to the leader
    kill("-STOP", "supervise");
    (0..5).for_each(|osd| kill("-9", &format!("osd.{osd}")));
    let start = Instant::now();
    while !ceph(&["osd", "stat"]).contains("0 up") {
        assert!(start.elapsed() < Duration::from_secs(15), "{}", ceph(&["osd", "stat"]));
        std::thread::sleep(Duration::from_millis(50));
    }
    let took = start.elapsed();
    kill("-CONT", "supervise");
    run(&["rm", "--yes", "--dir", at]);
    assert!(took < Duration::from_secs(4), "{took:?}");
}
