//! A cluster that runs is given another OSD, and is asked with its first monitor down.

use std::process::{Command, Output};

#[test]
fn an_osd_more_is_started_and_any_monitor_answers() {
    let dir = std::env::temp_dir().join(format!("argonaut-grow-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let run = |args: &[&str]| -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_argonaut"));
        command.args(args).arg("--dir").arg(&dir).output().unwrap()
    };
    let text = |raw: &[u8]| String::from_utf8_lossy(raw).into_owned();
    let up = |osds| {
        let out = run(&[
            "up",
            "--minimal",
            "--osds",
            osds,
            "--size",
            "1",
            "--osd-bytes",
            "1G",
            "--port",
            "27300",
        ]);
        assert!(out.status.success(), "{}{}", text(&out.stdout), text(&out.stderr));
    };
    up("1");
    up("2");
    let status = text(&run(&["status"]).stdout);
    assert!(status.contains("osd.1    runs") && status.contains("2 osds: 2 up"), "{status}");
    let kill = |signal: &str, daemon: &str| {
        let pid = std::fs::read_to_string(dir.join(format!("run/{daemon}.pid"))).unwrap();
        assert!(Command::new("kill").args([signal, pid.trim()]).status().unwrap().success());
    };
    kill("-STOP", "supervise");
    kill("-9", "mon.a");
    let out = run(&["status"]);
    kill("-CONT", "supervise");
    run(&["rm", "--yes"]);
    assert!(out.status.success() && text(&out.stdout).contains("2 osds"), "{}", text(&out.stderr));
}
