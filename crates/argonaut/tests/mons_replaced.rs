//! Monitors that join can be started again at any moment, and carry the cluster on alone.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const BIN: &str = env!("CARGO_BIN_EXE_argonaut");

fn run(args: &[&str]) -> Result<String, String> {
    let out = Command::new(BIN).args(args).output().unwrap();
    let (text, err) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    if out.status.success() { Ok(text.into_owned()) } else { Err(format!("{args:?}: {text}{err}")) }
}

/// Monitors that this test runs itself; they end with it.
struct Mons<'a> {
    dir: &'a Path,
    conf: &'a str,
    running: Vec<(&'static str, Child)>,
}

impl Mons<'_> {
    fn start(&mut self, id: &'static str) {
        let path = self.dir.join(format!("log/mon.{id}.log"));
        let log = std::fs::File::options().append(true).create(true).open(path).unwrap();
        let mut mon = Command::new(BIN);
        mon.args(["mon", "-i", id, "-c", self.conf]).stdout(Stdio::null()).stderr(log);
        self.running.push((id, mon.spawn().unwrap()));
    }

    /// As by a power cut.
    fn kill(&mut self, id: &str) {
        let at = self.running.iter().position(|(name, _)| *name == id).unwrap();
        let (_, mut child) = self.running.remove(at);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

impl Drop for Mons<'_> {
    fn drop(&mut self) {
        for (_, child) in &mut self.running {
            child.kill().ok();
            child.wait().ok();
        }
        let removed = run(&["rm", "--yes", "--dir", self.dir.to_str().unwrap()]);
        assert!(removed.is_ok() || std::thread::panicking(), "{removed:?}");
    }
}

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
    let ceph = |words: &[&str]| run(&[&["ceph", "-c", conf], words].concat());
    let until = |what: &str, words: &[&str], shown: &str| {
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            let said = ceph(words);
            if said.as_ref().is_ok_and(|text| text.contains(shown)) {
                return;
            }
            assert!(Instant::now() < end, "{what}: {said:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
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
