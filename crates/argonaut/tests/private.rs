//! Nobody but its user reads a cluster's files: new ones, and those of earlier versions.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

fn argonaut(dir: &Path, args: &[&str]) {
    let out = Command::new(env!("CARGO_BIN_EXE_argonaut"))
        .args(args)
        .arg("--dir")
        .arg(dir)
        .output()
        .unwrap();
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
}

fn all_in(dir: &Path, found: &mut Vec<PathBuf>) {
    found.push(dir.to_owned());
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all_in(&path, found);
        } else {
            found.push(path);
        }
    }
}

fn open_to_others(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    all_in(dir, &mut found);
    found.retain(|path| {
        std::fs::metadata(path).is_ok_and(|meta| meta.permissions().mode() & 0o077 != 0)
    });
    found
}

#[test]
fn a_cluster_is_its_users_alone() {
    let dir = std::env::temp_dir().join(format!("argonaut-private-up-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let up = ["up", "--minimal", "--mons", "1", "--osds", "1", "--size", "1", "--osd-bytes", "1G"];
    let up = [&up[..], &["--port", "23300"]].concat();
    argonaut(&dir, &up);
    assert_eq!(open_to_others(&dir), [] as [PathBuf; 0]);
    argonaut(&dir, &["down"]);
    // As an earlier version left it.
    let mut all = Vec::new();
    all_in(&dir, &mut all);
    for path in &all {
        let mode = if path.is_dir() { 0o755 } else { 0o644 };
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    argonaut(&dir, &up);
    assert_eq!(open_to_others(&dir), [] as [PathBuf; 0]);
    argonaut(&dir, &["rm", "--yes"]);
    assert!(!dir.exists());
}
