//! What `argonaut up` starts in a new cluster, also when it was ended before it had made all.

use std::path::Path;
use std::process::{Command, Output};

fn run(dir: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_argonaut"));
    command.args(words).arg("--dir").arg(dir).env_remove("CEPH_CONF").output().unwrap()
}

fn ok(dir: &Path, words: &[&str]) -> String {
    let out = run(dir, words);
    let (said, told) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{words:?}: {said}{told}");
    said.into_owned()
}

struct Removed(std::path::PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        run(&self.0, &["rm", "--yes"]);
    }
}

#[test]
#[allow(clippy::disallowed_methods, reason = "real processes run in real time")]
fn a_cluster_is_made_whole_by_the_next_up() {
    let dir = std::env::temp_dir().join(format!("argonaut-whole-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let removed = Removed(dir);
    let dir = removed.0.as_path();
    let sizes =
        ["--mons", "1", "--osds", "1", "--size", "1", "--osd-bytes", "1G", "--port", "30300"];
    ok(dir, &[&["up", "--minimal"], &sizes[..]].concat());
    let status = ok(dir, &["status"]);
    let others = ["mds.", "mgr.", "rgw."];
    assert!(others.iter().all(|name| !status.contains(name)), "{status}");
    // It has what was asked for: later ones add nothing.
    ok(dir, &["up"]);
    assert!(!ok(dir, &["status"]).contains("mds."));

    // As one that was ended once monitors and OSDs were there.
    ok(dir, &["down"]);
    let marker = dir.join("argonaut-cluster");
    let text = std::fs::read_to_string(&marker).unwrap();
    assert!(text.starts_with("whole "), "{text}");
    std::fs::write(&marker, text.replacen("whole", "stores", 1)).unwrap();
    let said = ok(dir, &["up", "--no-s3"]);
    assert!(said.contains("ceph-fuse -c") && !said.contains("S3 at"), "{said}");
    assert!(said.contains("mount -t ceph 127.0.0.1:") && !said.contains("ms_mode"), "{said}");
    let status = ok(dir, &["status"]);
    for daemon in ["mds.a", "mds.b", "mgr.x", "mgr.y"] {
        assert!(status.contains(daemon), "{status}");
    }
    assert!(status.contains("volumes: 1/1 healthy") && !status.contains("rgw."), "{status}");
    assert!(std::fs::read_to_string(&marker).unwrap().starts_with("whole "));

    // Its manager mounts it before long. A restart does not wait for that client: it has gone.
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let sessions = || {
        let ask = |name: &str| {
            let socket = dir.join(format!("run/ceph-mds.{name}.asok"));
            let limit = std::time::Duration::from_secs(5);
            daemon::asok::ask(&socket, r#"{"prefix":"session ls"}"#, limit)
        };
        format!("{:?} {:?}", ask("a"), ask("b"))
    };
    while !sessions().contains("mgr") {
        assert!(std::time::Instant::now() < until, "{}", sessions());
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    ok(dir, &["down"]);
    let said = ok(dir, &["up"]);
    assert!(!said.contains("FS_DEGRADED"), "{said}");
    assert!(ok(dir, &["status"]).contains("volumes: 1/1 healthy"));

    // What was left out can be had later.
    let said = ok(dir, &["up", "--s3"]);
    assert!(said.contains("S3 at") && ok(dir, &["status"]).contains("rgw.a"), "{said}");
}
