//! Monitors that join can be started again at any moment, and carry the cluster on alone.

mod mons;

use std::path::Path;
use std::time::{Duration, Instant};

use mons::{Mons, ceph, run, until};

#[test]
#[allow(clippy::disallowed_methods, reason = "real processes run in real time")]
fn three_monitors_are_replaced_and_the_power_fails() {
    let dir = std::env::temp_dir().join(format!("argonaut-mons-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let (at, conf) = (dir.to_str().unwrap(), dir.join("ceph.conf"));
    let conf = conf.to_str().unwrap();
    run(&[
        "up",
        "--minimal",
        "--osds",
        "1",
        "--size",
        "1",
        "--osd-bytes",
        "1G",
        "--port",
        "28300",
        "--dir",
        at,
    ])
    .unwrap();
    let mut mons = Mons { dir: &dir, conf, running: Vec::new() };
    let ceph = |words: &[&str]| ceph(conf, words);
    let until = |what: &str, words: &[&str], shown: &str| until(conf, what, words, shown);
    let key = dir.join("mon.a/keyring");
    let key = key.to_str().unwrap();
    for (id, port, pause_ms) in [("d", 28310, 30), ("e", 28311, 200), ("f", 28312, 700)] {
        let addr = format!("v2:127.0.0.1:{port}");
        run(&["mon", "join", "-i", id, "-c", conf, "--keyring", key, "--addr", &addr]).unwrap();
        // Killed some moments after it began to be told what the cluster knows.
        for _ in 0..3 {
            mons.start(id);
            std::thread::sleep(Duration::from_millis(pause_ms));
            mons.kill(id);
        }
        mons.start(id);
        until("it does not join", &["mon", "stat"], &format!(",{id}"));
        let quorum = format!("\"{id}\"");
        until("it does not count", &["quorum_status"], &quorum);
    }
    let hosts = "v2:127.0.0.1:28310,v2:127.0.0.1:28311,v2:127.0.0.1:28312";
    let text = std::fs::read_to_string(conf).unwrap();
    let text: String = text
        .lines()
        .map(|l| {
            if l.contains("mon host") { format!("mon host = {hosts}\n") } else { format!("{l}\n") }
        })
        .collect();
    std::fs::write(conf, text).unwrap();
    let pid = |id: &str| std::fs::read_to_string(dir.join(format!("run/mon.{id}.pid"))).unwrap();
    let first = ["a", "b", "c"].map(|id| (id, pid(id)));
    for (id, pid) in first {
        ceph(&["mon", "rm", id]).unwrap();
        let end = Instant::now() + Duration::from_secs(30);
        while Path::new("/proc").join(pid.trim()).exists() {
            assert!(Instant::now() < end, "mon.{id} goes on");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    // The power fails.
    for id in ["d", "e", "f"] {
        mons.kill(id);
    }
    for id in ["d", "e", "f"] {
        mons.start(id);
    }
    until("no quorum of all after the power cut", &["mon", "stat"], "quorum 0,1,2 d,e,f");
}
