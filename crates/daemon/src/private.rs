//! Whose a cluster's files are: their owner's alone. Keys lie in the stores of monitors, users'
//! data in those of OSDs, and logs name users and their doings.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// From now on what this process makes is its user's alone.
pub fn umask() {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
}

/// Takes from all others what they may do with a file or directory; links and devices stay as they
/// are. What cannot be changed, as it is another user's, is told.
pub fn tighten(path: &Path) {
    let Ok(meta) = fs::symlink_metadata(path) else { return };
    if !(meta.is_file() || meta.is_dir()) || meta.permissions().mode() & 0o077 == 0 {
        return;
    }
    let mode = meta.permissions().mode() & 0o700;
    if let Err(err) = fs::set_permissions(path, fs::Permissions::from_mode(mode)) {
        tracing::warn!("{} is open to other users: {err}", path.display());
    }
}

/// As [`tighten`], of a directory and what lies in it, not below.
pub fn tighten_dir(dir: &Path) {
    if !fs::symlink_metadata(dir).is_ok_and(|meta| meta.is_dir()) {
        return;
    }
    tighten(dir);
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        tighten(&entry.path());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_get_nothing_and_links_are_not_followed() {
        let dir = std::env::temp_dir().join(format!("argonaut-private-{}", std::process::id()));
        let data = dir.join("osd.0");
        fs::create_dir_all(&data).expect("a directory");
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        let open = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("changed");
        };
        for file in [dir.join("outside"), data.join("store"), data.join("tool")] {
            fs::write(&file, b"").expect("a file");
            open(&file, 0o644);
        }
        open(&data, 0o755);
        open(&data.join("tool"), 0o755);
        std::os::unix::fs::symlink(dir.join("outside"), data.join("block")).expect("a link");
        tighten_dir(&data);
        assert_eq!(mode(&data), 0o700);
        assert_eq!(mode(&data.join("store")), 0o600);
        assert_eq!(mode(&data.join("tool")), 0o700);
        assert_eq!(mode(&dir.join("outside")), 0o644, "what a link leads to is not ours");
        fs::remove_dir_all(&dir).expect("removed");
    }
}
