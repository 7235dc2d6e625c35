//! Data of every format so far, kept in `tests/upgrade`: this version serves it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn run(dir: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_argonaut"));
    command.args(words).env("CEPH_CONF", dir.join("ceph.conf")).output().unwrap()
}

fn ok(dir: &Path, words: &[&str]) -> String {
    let out = run(dir, words);
    let (said, told) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{words:?}: {said}{told}");
    said.into_owned()
}

/// Directories that go, with the cluster in them.
struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        run(&self.0, &["down", "--dir", self.0.join("data").to_str().unwrap()]);
        std::fs::remove_dir_all(&self.0).ok();
    }
}

fn kept() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/upgrade");
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut kept: Vec<_> = files.filter(|f| f.extension().is_some_and(|e| e == "xz")).collect();
    kept.sort();
    kept
}

/// The numbers up to one, a line each, as `seq` prints them.
fn seq(last: u32) -> String {
    (1..=last).map(|n| format!("{n}\n")).collect()
}

#[test]
fn earlier_formats_are_served() {
    let kept = kept();
    assert!(!kept.is_empty(), "the data lies in the repository");
    for file in kept {
        served(&file);
    }
}

fn served(file: &Path) {
    let place = std::env::temp_dir().join(format!("argonaut-upgrade-{}", std::process::id()));
    std::fs::create_dir_all(&place).unwrap();
    let place = Place(place);
    let tar = Command::new("tar").arg("-xJSf").arg(file).arg("-C").arg(&place.0).status().unwrap();
    assert!(tar.success(), "{}", file.display());
    let data = place.0.join("data");
    let at = data.to_str().unwrap();
    let conf = std::fs::read_to_string(data.join("ceph.conf")).unwrap();
    // Health is to be the same on a machine whose disk is mostly used.
    let conf = conf.replace("@DIR@", at) + "\n[mon]\nmon data avail warn = 0\n";
    std::fs::write(data.join("ceph.conf"), conf).unwrap();

    // Twice: the second time it is what this version wrote.
    for time in ["as it was kept", "as this version left it"] {
        let ok = |words: &[&str]| ok(&data, words);
        ok(&["up", "--dir", at]);
        let health = ok(&["ceph", "health"]);
        let alone = "HEALTH_WARN 2 pool(s) have no replicas configured";
        assert_eq!(health.trim_end(), alone, "{time}");
        let rados = |words: &[&str]| ok(&[&["rados", "-p", "kept"], words].concat());
        let mut names: Vec<String> = rados(&["ls"]).lines().map(str::to_owned).collect();
        names.sort();
        let mut wanted: Vec<String> = (1..=7).map(|n| format!("small-{n}")).collect();
        wanted.insert(0, "large".to_owned());
        assert_eq!(names, wanted, "{time}");
        for n in 1..=7 {
            let small = rados(&["get", &format!("small-{n}"), "-"]);
            assert_eq!(small, format!("object {n}\n"), "{time}");
        }
        assert!(rados(&["get", "large", "-"]) == seq(60_000) + "tail\n", "{time}: large");
        assert_eq!(rados(&["getxattr", "small-1", "user.kept"]).trim_end(), "an attribute");
        let pairs = rados(&["listomapvals", "small-2"]);
        assert_eq!(pairs.matches("key-").count(), 200, "{time}: {pairs}");
        assert_eq!(ok(&["ceph", "config-key", "get", "kept"]).trim_end(), "a value");
        let caps = ok(&["ceph", "auth", "get", "client.kept"]);
        assert!(caps.contains("allow r pool=kept"), "{time}: {caps}");

        let image = ok(&["rbd", "--no-progress", "export", "images/image@before", "-"]);
        assert!(image == seq(40_000), "{time}: the snapshot's content");
        assert!(ok(&["rbd", "info", "images/image"]).contains("size 2 MiB"));
        if time == "as it was kept" {
            // Written in place, by this version.
            rados(&["setxattr", "small-3", "user.new", "x"]);
            std::fs::write(place.0.join("new"), "new\n").unwrap();
        } else {
            assert_eq!(rados(&["getxattr", "small-3", "user.new"]).trim_end(), "x");
        }
        ok(&["down", "--dir", at]);
        ok(&["store", "--data-path", data.join("osd.0").to_str().unwrap(), "fsck"]);
    }
}
