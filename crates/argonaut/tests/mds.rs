//! A cluster that runs is given a metadata server and a file system: the monitors give it a rank,
//! and it begins anew when they take the rank away.

#![allow(clippy::disallowed_methods, reason = "real processes run in real time")]

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

struct Cluster {
    dir: PathBuf,
}

impl Cluster {
    fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_argonaut"));
        command.args(args).arg("--dir").arg(&self.dir).output().unwrap()
    }

    fn ok(&self, args: &[&str]) -> String {
        let out = self.run(args);
        let (said, err) = (text(&out.stdout), text(&out.stderr));
        assert!(out.status.success(), "{args:?}: {said}{err}");
        said
    }

    fn fs_get(&self) -> String {
        self.ceph(&["-f", "json", "fs", "get", "cephfs"])
    }

    fn ceph(&self, words: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_argonaut"));
        let out = command.arg("ceph").arg("-c").arg(self.dir.join("ceph.conf")).args(words);
        let out = out.output().unwrap();
        assert!(out.status.success(), "{words:?}: {}", text(&out.stderr));
        text(&out.stdout)
    }

    /// Waits until the server holds rank 0; the number of its session.
    fn rank(&self) -> u64 {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            let map = self.fs_get();
            let map: serde_json::Value = serde_json::from_str(&map).unwrap();
            if let Some(gid) = map["mdsmap"]["up"]["mds_0"].as_u64() {
                return gid;
            }
            assert!(Instant::now() < end, "{}{}", map["mdsmap"], self.log());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("log/mds.a.log")).unwrap_or_default()
    }

    fn pid(&self) -> String {
        let path = self.dir.join("run/mds.a.pid");
        std::fs::read_to_string(path).unwrap().trim().to_owned()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.run(&["rm", "--yes"]);
    }
}

fn text(raw: &[u8]) -> String {
    String::from_utf8_lossy(raw).into_owned()
}

#[test]
fn a_server_is_added_gets_a_rank_and_begins_anew() {
    let dir = std::env::temp_dir().join(format!("argonaut-mds-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let cluster = Cluster { dir };
    let up = ["up", "--minimal", "--mons", "1", "--osds", "1", "--size", "1", "--osd-bytes", "1G"];
    cluster.ok(&[&up[..], &["--port", "25300"]].concat());
    // As an earlier version wrote it.
    let conf = cluster.dir.join("ceph.conf");
    let with = std::fs::read_to_string(&conf).unwrap();
    let (before, after) = (with.find("[mds]").unwrap(), with.find("[client]").unwrap());
    std::fs::write(&conf, format!("{}{}", &with[..before], &with[after..])).unwrap();

    let refused = cluster.run(&["up", "--fs", "--mds", "0"]);
    assert!(!refused.status.success() && text(&refused.stderr).contains("--mds 2"));
    cluster.ok(&["up", "--fs", "--mds", "1"]);
    let first = cluster.rank();
    let status = cluster.ok(&["status"]);
    assert!(status.contains("mds.a    runs") && status.contains("volumes: 1/1"), "{status}");
    let key = cluster.ceph(&["auth", "get", "mds.a"]);
    assert!(key.contains("caps osd = \"allow rw tag cephfs *=*\""), "{key}");

    // The same process, with another number, nonce and state.
    let pid = cluster.pid();
    cluster.ceph(&["mds", "fail", "a"]);
    let second = cluster.rank();
    assert!(second > first && cluster.pid() == pid, "{first} {second}{}", cluster.log());
    assert!(cluster.log().contains("begins anew"));
    let blocked = cluster.ceph(&["osd", "blocklist", "ls"]);
    // Both addresses of its predecessor, and none of its own.
    let nonces = blocked.lines().filter_map(|line| line.split(['/', ' ']).nth(1));
    let nonces: std::collections::BTreeSet<&str> = nonces.collect();
    assert_eq!((blocked.lines().count(), nonces.len()), (2, 1), "{blocked}");

    // Killed: another process.
    assert!(Command::new("kill").args(["-9", &pid]).status().unwrap().success());
    let end = Instant::now() + Duration::from_secs(20);
    while cluster.rank() == second {
        assert!(Instant::now() < end, "{}", cluster.log());
        std::thread::sleep(Duration::from_millis(100));
    }

    // Told to end: the monitors hear it.
    cluster.ok(&["stop", "mds.a"]);
    let map = cluster.fs_get();
    assert!(map.contains("\"up\":{}"), "{map}");
}
