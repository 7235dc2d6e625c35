//! An OSD whose data is lost: a blank one is not slipped in, `osd replace` makes it anew.

use std::process::Command;
use std::time::{Duration, Instant};

fn text(raw: &[u8]) -> String {
    String::from_utf8_lossy(raw).into_owned()
}

/// The cluster ends with the test, however that ends.
struct Ends(std::path::PathBuf);

impl Drop for Ends {
    fn drop(&mut self) {
        let mut rm = Command::new(env!("CARGO_BIN_EXE_argonaut"));
        rm.args(["rm", "--yes", "--dir"]).arg(&self.0).status().ok();
    }
}

#[test]
#[allow(clippy::disallowed_methods, reason = "real processes run in real time")]
fn a_lost_osd_is_replaced_in_one_step() {
    let dir = std::env::temp_dir().join(format!("argonaut-replaced-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let ends = Ends(dir.clone());
    let (at, conf) = (dir.to_str().unwrap(), dir.join("ceph.conf"));
    let conf = conf.to_str().unwrap();
    let any = |args: &[&str]| {
        let out = Command::new(env!("CARGO_BIN_EXE_argonaut")).args(args).output().unwrap();
        (out.status.success(), text(&out.stdout), text(&out.stderr))
    };
    let run = |args: &[&str]| {
        let (ok, out, err) = any(args);
        assert!(ok, "{args:?}: {out}{err}");
        out + &err
    };
    let ceph = |words: &[&str]| run(&[&["ceph", "-c", conf], words].concat());
    let until = |what: &str, words: &[&str], shown: &str| {
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            let said = ceph(words);
            if said.contains(shown) {
                return;
            }
            assert!(Instant::now() < end, "{what}: {said}");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    let up =
        ["up", "--minimal", "--mons", "1", "--size", "2", "--osd-bytes", "1G", "--port", "29300"];
    run(&[&up[..], &["--dir", at]].concat());
    ceph(&["osd", "pool", "create", "p", "8"]);
    let file = dir.with_extension("data");
    std::fs::write(&file, vec![7; 100_000]).unwrap();
    let path = file.to_str().unwrap();
    run(&["rados", "-c", conf, "-p", "p", "put", "one", path]);

    // One daemon at a time.
    assert!(run(&["stop", "--dir", at, "osd.1"]).contains("osd.1 is stopped"));
    until("osd.1 is still up", &["osd", "stat"], "2 up");
    assert!(!any(&["start", "--dir", at, "osd.9"]).0);
    run(&["start", "--dir", at, "osd.1"]);
    until("osd.1 does not start", &["osd", "stat"], "3 up");

    // A blank store under its number is refused, and all say so.
    run(&["stop", "--dir", at, "osd.1"]);
    std::fs::remove_dir_all(dir.join("osd.1")).unwrap();
    let (_, out, err) = any(&[&up[..], &["--dir", at]].concat());
    assert!(err.contains("osd replace 1"), "{out}{err}");
    assert!(!dir.join("osd.1").exists(), "a blank OSD was made");
    let key = ceph(&["auth", "get", "osd.1"]);
    std::fs::create_dir_all(dir.join("osd.1")).unwrap();
    std::fs::write(dir.join("osd.1/keyring"), key).unwrap();
    run(&["osd", "--mkfs", "-i", "1", "-c", conf]);
    until("health does not say why", &["health", "detail"], "another store than the map");
    let end = Instant::now() + Duration::from_secs(10);
    while !run(&["logs", "--dir", at, "osd.1"]).contains("argonaut osd replace 1") {
        assert!(Instant::now() < end, "its log does not say why");
        std::thread::sleep(Duration::from_millis(100));
    }
    run(&["stop", "--dir", at, "osd.1"]);

    // Replaced: refused first, for it may be needed; the same number, place and weight.
    until("not recovered", &["osd", "dump"], "osd.1 down in");
    let tree = run(&["ceph", "-c", conf, "-f", "json", "osd", "tree"]);
    let weight = |tree: &str| {
        let tree: serde_json::Value = serde_json::from_str(tree).unwrap();
        let nodes = tree["nodes"].as_array().unwrap().clone();
        let osd = nodes.into_iter().find(|n| n["id"] == 1).unwrap();
        (osd["crush_weight"].clone(), osd["depth"].clone())
    };
    let replace = ["osd", "replace", "1", "-c", conf];
    let (ok, _, err) = any(&[&replace[..], &["--force"]].concat());
    assert!(!ok && err.contains("--lose-data"), "{err}");
    let (ok, _, err) = any(&[&replace[..], &["--lose-data"]].concat());
    assert!(!ok && err.contains("--force"), "{err}");
    run(&[&replace[..], &["--force", "--lose-data"]].concat());
    run(&["start", "--dir", at, "osd.1"]);
    until("osd.1 is not back", &["osd", "stat"], "3 up");
    until("not clean", &["pg", "stat"], "8 active+clean");
    assert_eq!(weight(&run(&["ceph", "-c", conf, "-f", "json", "osd", "tree"])), weight(&tree));
    let got = dir.with_extension("got");
    run(&["rados", "-c", conf, "-p", "p", "get", "one", got.to_str().unwrap()]);
    assert_eq!(std::fs::read(&got).unwrap(), vec![7; 100_000]);

    // What is not as asked for is said, not ignored.
    for (word, value) in [("--mons", "5"), ("--size", "3"), ("--addr", "127.0.0.2")] {
        let (ok, _, err) = any(&["up", word, value, "--dir", at]);
        assert!(!ok && err.contains("is for a new cluster"), "{word}: {err}");
    }
    drop(ends);
    assert!(!dir.exists(), "it is not removed");
    std::fs::remove_file(file).unwrap();
    std::fs::remove_file(got).unwrap();
}
