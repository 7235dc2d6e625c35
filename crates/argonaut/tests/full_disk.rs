//! A cluster on a file system that fills up: the supervisor stays, and starts again what ended.
//! Needs root, for a small file system in memory.
#![allow(clippy::disallowed_macros, reason = "a test")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

fn shell(line: &str) -> bool {
    Command::new("sh").args(["-c", line]).status().is_ok_and(|s| s.success())
}

/// Waits up to 20 s.
fn wait(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..200 {
        if done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("{what}");
}

struct Small(PathBuf);

impl Drop for Small {
    fn drop(&mut self) {
        shell(&format!("umount -l {0} && rmdir {0}", self.0.display()));
    }
}

struct Supervisor(Child);

impl Drop for Supervisor {
    fn drop(&mut self) {
        shell(&format!("kill {}", self.0.id()));
        self.0.wait().ok();
    }
}

fn pid(dir: &Path, daemon: &str) -> Option<u32> {
    let pid = std::fs::read_to_string(dir.join(format!("run/{daemon}.pid"))).ok()?;
    let pid: u32 = pid.trim().parse().ok()?;
    let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
    line.contains("argonaut").then_some(pid)
}

#[test]
fn the_supervisor_outlives_a_full_disk() {
    let dir = std::env::temp_dir().join(format!("argonaut-full-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    if !shell(&format!("mount -t tmpfs -o size=600m small {} 2>/dev/null", dir.display())) {
        eprintln!("skipped: no file system can be mounted");
        std::fs::remove_dir_all(&dir).unwrap();
        return;
    }
    let small = Small(dir.clone());
    let cluster = dir.join("cluster");
    let argonaut = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_argonaut"));
        command.args(args).arg("--dir").arg(&cluster).output().unwrap()
    };
    let up = ["up", "--minimal", "--mons", "1", "--osds", "1", "--size", "1", "--port", "24300"];
    let out = argonaut(&up);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{said}");
    assert!(said.contains("the OSDs promise"), "{said}");
    argonaut(&["down"]);

    let log =
        std::fs::OpenOptions::new().append(true).open(cluster.join("log/supervise.log")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_argonaut"));
    command.arg("supervise").arg("--dir").arg(&cluster).stdin(Stdio::null());
    let supervisor = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
    let mut supervisor = Supervisor(supervisor);
    wait("osd.0 starts", || pid(&cluster, "osd.0").is_some());
    // Full to the last byte.
    let filler = dir.join("filler");
    let mut file = std::fs::File::create(&filler).unwrap();
    while file.write_all(&[7; 4096]).is_ok() {}
    drop(file);
    for _ in 0..3 {
        if let Some(osd) = pid(&cluster, "osd.0") {
            shell(&format!("kill -9 {osd}"));
        }
        std::thread::sleep(Duration::from_millis(700));
        assert!(matches!(supervisor.0.try_wait(), Ok(None)), "the supervisor lives");
    }
    std::fs::remove_file(&filler).unwrap();
    wait("osd.0 is back when there is room", || {
        let asok = cluster.join("run/ceph-osd.0.asok");
        pid(&cluster, "osd.0").is_some() && std::os::unix::net::UnixStream::connect(asok).is_ok()
    });
    drop(supervisor);
    drop(small);
}

/// A verb whose output goes nowhere says so, and does not panic.
#[test]
fn a_full_device_is_told_without_a_trace() {
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let dir = std::env::temp_dir().join(format!("argonaut-devfull-{}", std::process::id()));
    std::fs::create_dir_all(dir.join("log")).unwrap();
    std::fs::write(dir.join("ceph.conf"), "").unwrap();
    std::fs::write(dir.join("log/osd.0.log"), "a line\n").unwrap();
    let argonaut = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_argonaut"));
        command.args(args).arg("--dir").arg(&dir);
        command
    };
    let out = argonaut(&["logs", "osd.0"]).stdout(full()).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(said.contains("writing to standard output") && !said.contains("panicked"), "{said}");
    assert_eq!(out.status.code(), Some(1));
    // Nor when nothing can be told either.
    let end = argonaut(&["logs", "osd.0"]).stdout(full()).stderr(full()).status().unwrap();
    assert_eq!(end.code(), Some(1));
    let end = argonaut(&["logs", "osd.7"]).stderr(full()).status().unwrap();
    assert_eq!(end.code(), Some(1));
    std::fs::remove_dir_all(&dir).unwrap();
}
