//! One of three monitors is left, and carries the cluster on alone.

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
fn one_monitor_of_three_goes_on() {
    let dir = std::env::temp_dir().join(format!("argonaut-rescue-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let (at, conf) = (dir.to_str().unwrap(), dir.join("ceph.conf"));
    let conf = conf.to_str().unwrap();
    let up = [
        "up",
        "--minimal",
        "--mons",
        "3",
        "--osds",
        "1",
        "--size",
        "1",
        "--osd-bytes",
        "1G",
        "--port",
        "28330",
        "--dir",
        at,
    ];
    run(&up).unwrap();
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
    ceph(&["osd", "pool", "create", "kept", "8"]).unwrap();
    ceph(&["config-key", "set", "kept", "value"]).unwrap();
    run(&["down", "--dir", at]).unwrap();
    for lost in ["mon.a", "mon.c"] {
        std::fs::rename(dir.join(lost), dir.join(format!("lost-{lost}"))).unwrap();
    }
    let map = dir.join("map");
    let map = map.to_str().unwrap();
    let (mon, tool) = (["ceph-mon", "-c", conf, "-i", "b"], ["monmaptool", map]);
    run(&[&mon[..], &["--extract-monmap", map]].concat()).unwrap();
    let refused = run(&[&mon[..], &["--inject-monmap", map]].concat()).unwrap_err();
    assert!(refused.contains("is to name 'b' alone"), "{refused}");
    run(&[&tool[..], &["--rm", "a", "--rm", "c"]].concat()).unwrap();
    run(&[&mon[..], &["--inject-monmap", map]].concat()).unwrap();
    mons.start("b");
    until("it does not lead alone", &["mon", "stat"], "quorum 0 b");
    until("a pool is lost", &["osd", "pool", "ls"], "kept");
    until("a key is lost", &["config-key", "get", "kept"], "value");
    // Another joins, as after any other loss.
    let key = dir.join("mon.b/keyring");
    let key = key.to_str().unwrap();
    let text = std::fs::read_to_string(conf).unwrap();
    let host = "mon host = v2:127.0.0.1:28331";
    let line = |l: &str| if l.contains("mon host") { host.to_owned() } else { l.to_owned() };
    let text: Vec<String> = text.lines().map(line).collect();
    std::fs::write(conf, text.join("\n") + "\n").unwrap();
    let addr = "v2:127.0.0.1:28340";
    run(&["mon", "join", "-i", "d", "-c", conf, "--keyring", key, "--addr", addr]).unwrap();
    mons.start("d");
    until("a new one does not join", &["mon", "stat"], "quorum 0,1 b,d");
    for lost in ["mon.a", "mon.c"] {
        std::fs::rename(dir.join(format!("lost-{lost}")), dir.join(lost)).unwrap();
    }
    mons.kill("b");
    mons.kill("d");
    std::fs::remove_file(map).unwrap();
}
