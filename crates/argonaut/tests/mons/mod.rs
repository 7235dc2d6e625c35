//! Monitors that a test runs itself.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const BIN: &str = env!("CARGO_BIN_EXE_argonaut");

pub fn run(args: &[&str]) -> Result<String, String> {
    let out = Command::new(BIN).args(args).output().unwrap();
    let (text, err) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    if out.status.success() { Ok(text.into_owned()) } else { Err(format!("{args:?}: {text}{err}")) }
}

/// Monitors that this test runs itself; they end with it.
pub struct Mons<'a> {
    pub dir: &'a Path,
    pub conf: &'a str,
    pub running: Vec<(&'static str, Child)>,
}

impl Mons<'_> {
    pub fn start(&mut self, id: &'static str) {
        let path = self.dir.join(format!("log/mon.{id}.log"));
        let log = std::fs::File::options().append(true).create(true).open(path).unwrap();
        let mut mon = Command::new(BIN);
        mon.args(["mon", "-i", id, "-c", self.conf]).stdout(Stdio::null()).stderr(log);
        self.running.push((id, mon.spawn().unwrap()));
    }

    /// As by a power cut.
    pub fn kill(&mut self, id: &str) {
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

/// A command of the cluster.
pub fn ceph(conf: &str, words: &[&str]) -> Result<String, String> {
    run(&[&["ceph", "-c", conf], words].concat())
}

/// Waits 30 s at most until a command shows a text.
#[allow(clippy::disallowed_methods, reason = "real processes run in real time")]
pub fn until(conf: &str, what: &str, words: &[&str], shown: &str) {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let said = ceph(conf, words);
        if said.as_ref().is_ok_and(|text| text.contains(shown)) {
            return;
        }
        assert!(Instant::now() < end, "{what}: {said:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
