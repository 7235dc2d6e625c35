//! `argonaut osd --mkfs` on block devices, through the binary. Needs root and a loop device.
#![allow(clippy::disallowed_macros, reason = "a test")]

use std::path::{Path, PathBuf};
use std::process::Command;

fn run(program: &str, args: &[&str]) -> Option<String> {
    let out = Command::new(program).args(args).output().ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

/// A loop device over a file of 512 MiB; both go at the end.
struct Loop {
    device: String,
    file: PathBuf,
}

impl Loop {
    fn new(dir: &Path) -> Option<Self> {
        let file = dir.join("disk");
        std::fs::File::create(&file).ok()?.set_len(512 << 20).ok()?;
        let device = run("losetup", &["--show", "-f", file.to_str()?])?;
        Some(Self { device, file })
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run("losetup", &["-d", &self.device]);
    }
}

#[test]
fn a_device_that_is_used_or_marked_is_refused() {
    let dir = std::env::temp_dir().join(format!("argonaut-targets-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let (data, mnt) = (dir.join("osd.0"), dir.join("mnt"));
    std::fs::create_dir_all(&data).unwrap();
    std::fs::create_dir_all(&mnt).unwrap();
    let Some(disk) = Loop::new(&dir) else {
        eprintln!("skipped: no loop device can be had");
        std::fs::remove_dir_all(&dir).unwrap();
        return;
    };
    let conf = dir.join("ceph.conf");
    let text = format!(
        "[global]\nfsid = 00000000-0000-0000-0000-000000000001\nosd data = {}\n\
         osd journal size = 64M\n",
        data.display()
    );
    std::fs::write(&conf, text).unwrap();
    std::os::unix::fs::symlink(&disk.device, data.join("block")).unwrap();
    let mkfs = |force: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_argonaut"));
        let command = command.args(["osd", "--mkfs", "-i", "0", "-c"]).arg(&conf).args(force);
        let out = command.output().unwrap();
        (out.status.success(), String::from_utf8_lossy(&out.stderr).into_owned())
    };

    let mnt = mnt.to_str().unwrap();
    run("mkfs.ext4", &["-q", "-F", &disk.device]).expect("mkfs.ext4");
    let before = std::fs::read(&disk.file).unwrap();
    for force in [&[][..], &["--force"]] {
        run("mount", &["-o", "ro,noload", &disk.device, mnt]).expect("mount");
        let (done, why) = mkfs(force);
        run("umount", &[mnt]).expect("umount");
        assert!(!done && why.contains("is in use: mounted at"), "{why}");
    }
    let (done, why) = mkfs(&[]);
    assert!(!done && why.contains("ext2, ext3 or ext4") && why.contains("--force"), "{why}");
    assert!(std::fs::read(&disk.file).unwrap() == before, "nothing was written");

    // The file behind it is in use, too.
    let link = data.join("block");
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(&disk.file, &link).unwrap();
    let (done, why) = mkfs(&["--force"]);
    assert!(!done && why.contains("/dev/loop"), "{why}");
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(&disk.device, &link).unwrap();

    let (done, why) = mkfs(&["--force"]);
    assert!(done, "{why}");
    assert_eq!(run("blkid", &["-p", &disk.device]), None, "the ext4 is gone");
    std::fs::remove_file(data.join("ready")).unwrap();
    let (done, why) = mkfs(&[]);
    assert!(!done && why.contains("argonaut store"), "{why}");
    drop(disk);
    std::fs::remove_dir_all(&dir).unwrap();
}
