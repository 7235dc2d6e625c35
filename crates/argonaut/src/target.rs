//! Paths that a command is told to write to: what is there, who uses it, and whether it may be
//! overwritten.
//!
//! What is in use (mounted, swapped to, held by another device, opened alone, a store that runs) is
//! never written to. What holds something is written to only by force, and then its marks are
//! wiped first, so that nobody takes it for what it was.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, OFlags, SeekFrom};

use crate::signature::{self, Mark};

/// A path that may be formatted. A device is this process's alone while it lives: nobody mounts it
/// meanwhile.
#[derive(Debug)]
pub struct Target {
    path: PathBuf,
    file: Option<File>,
    device: bool,
    marks: Vec<Mark>,
}

/// The device that a number names, as the kernel knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Number(u32, u32);

impl Number {
    fn of(dev: u64) -> Self {
        Self(rustix::fs::major(dev), rustix::fs::minor(dev))
    }

    fn sys(self) -> PathBuf {
        PathBuf::from(format!("/sys/dev/block/{}:{}", self.0, self.1))
    }

    fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.trim().split_once(':')?;
        Some(Self(major.parse().ok()?, minor.parse().ok()?))
    }
}

/// Undoes the kernel's `\040` for a space and the like.
fn unescape(text: &str) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    let (raw, mut out, mut i) = (text.as_bytes(), Vec::new(), 0);
    while i < raw.len() {
        let code = raw.get(i + 1..i + 4).and_then(|d| std::str::from_utf8(d).ok());
        match code.filter(|_| raw[i] == b'\\').and_then(|d| u8::from_str_radix(d, 8).ok()) {
            Some(byte) => (out.push(byte), i += 4).1,
            None => (out.push(raw[i]), i += 1).1,
        }
    }
    std::ffi::OsString::from_vec(out).into()
}

fn number_of(path: &Path) -> Option<Number> {
    let meta = fs::metadata(path).ok()?;
    meta.file_type().is_block_device().then(|| Number::of(meta.rdev()))
}

/// Where a device is mounted, by a table as /proc/self/mountinfo is.
fn mounted_at(table: &str, device: Number) -> Option<String> {
    table.lines().find_map(|line| {
        let (place, source) = line.split_once(" - ")?;
        let mut words = place.split(' ').skip(2);
        let number = Number::parse(words.next()?)?;
        let at = words.nth(1)?;
        // Some file systems show a number of their own; then their source tells.
        let source = source.split(' ').nth(1)?;
        let is_it = number == device
            || source.starts_with('/') && number_of(&unescape(source)) == Some(device);
        is_it.then(|| unescape(at).display().to_string())
    })
}

/// Whether a device or file is swapped to, by a table as /proc/swaps is.
fn is_swap(table: &str, meta: &fs::Metadata) -> bool {
    table.lines().skip(1).filter_map(|line| line.split_whitespace().next()).any(|name| {
        let Ok(other) = fs::metadata(unescape(name)) else { return false };
        if meta.file_type().is_block_device() {
            return other.file_type().is_block_device() && other.rdev() == meta.rdev();
        }
        (other.dev(), other.ino()) == (meta.dev(), meta.ino())
    })
}

fn names_in(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect()
}

/// Names of a disk's partitions.
fn partitions(device: Number) -> Vec<String> {
    let sys = device.sys();
    names_in(&sys).into_iter().filter(|n| sys.join(n).join("partition").exists()).collect()
}

/// Who uses a device or one of its partitions.
fn user_of(device: Number, mounts: &str) -> Option<String> {
    let sys = device.sys();
    let mut all = vec![(String::new(), device)];
    all.extend(partitions(device).into_iter().filter_map(|name| {
        let number = Number::parse(&fs::read_to_string(sys.join(&name).join("dev")).ok()?)?;
        Some((format!("its partition {name} is "), number))
    }));
    for (what, number) in all {
        if let Some(at) = mounted_at(mounts, number) {
            return Some(format!("{what}mounted at {at}"));
        }
        let holders = names_in(&number.sys().join("holders"));
        if !holders.is_empty() {
            return Some(format!("{what}held by {}", holders.join(", ")));
        }
    }
    None
}

/// The loop device that a file is behind.
fn loop_over(meta: &fs::Metadata) -> Option<String> {
    names_in(Path::new("/sys/block")).into_iter().find(|name| {
        let path = Path::new("/sys/block").join(name).join("loop/backing_file");
        let Ok(text) = fs::read_to_string(path) else { return false };
        let Ok(other) = fs::metadata(text.trim_end_matches('\n')) else { return false };
        (other.dev(), other.ino()) == (meta.dev(), meta.ino())
    })
}

/// Whether a file has a byte that is not zero. Holes cost nothing.
fn holds_data(file: &File) -> Result<bool> {
    let (mut buf, mut at) = (vec![0; 1 << 20], 0u64);
    loop {
        at = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(data) => data,
            Err(rustix::io::Errno::NXIO) => return Ok(false),
            Err(e) => return Err(std::io::Error::from(e).into()),
        };
        let hole = rustix::fs::seek(file, SeekFrom::Hole(at)).map_err(std::io::Error::from)?;
        while at < hole {
            let want = buf.len().min((hole - at) as usize);
            let n = file.read_at(&mut buf[..want], at)?;
            if n == 0 {
                return Ok(false);
            }
            if buf[..n].iter().any(|b| *b != 0) {
                return Ok(true);
            }
            at += n as u64;
        }
    }
}

/// Whether an OSD or a tool has the store in this file open.
fn is_locked(file: &File) -> bool {
    let taken = rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive).is_err();
    if !taken {
        rustix::fs::flock(file, FlockOperation::Unlock).ok();
    }
    taken
}

/// As [`is_locked`], of a path; what cannot be opened counts as free.
#[must_use]
pub fn is_in_use(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| is_locked(&file))
}

impl Target {
    /// Looks at a path that is to be formatted; nothing is changed.
    ///
    /// # Errors
    /// When it is in use, is neither file nor device, or, without `force`, holds something.
    pub fn inspect(path: &Path, force: bool) -> Result<Self> {
        let shown = path.display();
        let meta = match fs::metadata(path) {
            Ok(meta) => meta,
            Err(e) if e.kind() == ErrorKind::NotFound => {
                return Ok(Self {
                    path: path.into(),
                    file: None,
                    device: false,
                    marks: Vec::new(),
                });
            }
            Err(e) => return Err(e).with_context(|| shown.to_string()),
        };
        let device = meta.file_type().is_block_device();
        if !device && !meta.is_file() {
            bail!("{shown} is neither a file nor a block device");
        }
        let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
        if is_swap(&swaps, &meta) {
            bail!("{shown} is in use: the system swaps to it");
        }
        let mut options = File::options();
        options.read(true).write(true);
        if device {
            let mounts = fs::read_to_string("/proc/self/mountinfo")?;
            if let Some(user) = user_of(Number::of(meta.rdev()), &mounts) {
                bail!("{shown} is in use: {user}");
            }
            options.custom_flags(OFlags::EXCL.bits() as i32);
        } else if let Some(device) = loop_over(&meta) {
            bail!("{shown} is in use: /dev/{device} shows what is in it");
        }
        let file = match options.open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::ResourceBusy => {
                bail!("{shown} is in use: the kernel or a program has it for itself");
            }
            Err(e) => return Err(e).with_context(|| shown.to_string()),
        };
        if is_locked(&file) {
            bail!("{shown} is in use: an OSD or a tool has the store in it open");
        }
        let size = rustix::fs::seek(&file, SeekFrom::End(0)).map_err(std::io::Error::from)?;
        let marks = signature::marks(&file, size).with_context(|| shown.to_string())?;
        let mut holds = signature::names(&marks);
        if device {
            let parts = partitions(Number::of(meta.rdev()));
            if !parts.is_empty() {
                let sep = if holds.is_empty() { "" } else { ", " };
                holds.push_str(&format!("{sep}partitions {}", parts.join(", ")));
            }
        } else if holds.is_empty() && holds_data(&file)? {
            holds.push_str("data");
        }
        if !holds.is_empty() && !force {
            bail!("{shown} is not empty, it holds: {holds}; --force overwrites it");
        }
        Ok(Self { path: path.into(), file: Some(file), device, marks })
    }

    /// Removes what [`Target::inspect`] found, by force; an empty target stays as it is.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn clear(&self) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let clear = || -> std::io::Result<()> {
            if !self.device {
                let size = file.metadata()?.len();
                file.set_len(0)?;
                file.set_len(size)?;
            }
            for mark in &self.marks {
                file.write_all_at(&vec![0; mark.len], mark.off)?;
            }
            rustix::fs::fsync(file.as_fd())?;
            Ok(())
        };
        clear().with_context(|| self.path.display().to_string())
    }
}

/// Opens a file that a command writes its result to; an ordinary one is replaced, as upstream's
/// tools do. A device that holds something and the file of a store are not.
///
/// # Errors
/// When it cannot be written, or is not to be overwritten.
pub fn output(path: &Path) -> Result<File> {
    let shown = path.display();
    let kind = fs::metadata(path).map(|m| m.file_type());
    if kind.as_ref().is_ok_and(FileTypeExt::is_block_device) {
        let target = Target::inspect(path, false).map_err(|e| {
            let text = e.to_string();
            anyhow::anyhow!("{}", text.replace("; --force overwrites it", ": wipe it first"))
        })?;
        return target.file.with_context(|| shown.to_string());
    }
    if kind.is_ok_and(|k| k.is_file())
        && let Ok(file) = File::open(path)
        && (is_locked(&file) || is_store(&file))
    {
        bail!("{shown} is an OSD's store: choose another file");
    }
    File::create(path).with_context(|| shown.to_string())
}

fn is_store(file: &File) -> bool {
    let size = file.metadata().map_or(0, |m| m.len());
    let marks = signature::marks(file, size).unwrap_or_default();
    marks.iter().any(|m| m.name == "argonaut store")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_number_and_by_source() {
        let table = "\
22 1 254:0 / / rw,relatime - ext4 /dev/root rw
40 22 8:1 / /mnt/a\\040b rw,relatime shared:1 - xfs /dev/sda1 rw
41 22 0:40 / /data rw - btrfs /dev/sdc rw
";
        assert_eq!(mounted_at(table, Number(8, 1)).as_deref(), Some("/mnt/a b"));
        assert_eq!(mounted_at(table, Number(254, 0)).as_deref(), Some("/"));
        assert_eq!(mounted_at(table, Number(8, 2)), None);
        assert_eq!(unescape("a\\134b\\"), PathBuf::from("a\\b\\"));
    }

    #[test]
    fn only_new_and_empty_files_are_taken() {
        let dir = std::env::temp_dir().join(format!("argonaut-target-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory");
        let path = dir.join("file");
        Target::inspect(&path, false).expect("new");
        assert!(!path.exists(), "looking changes nothing");
        let file = File::create(&path).expect("a file");
        Target::inspect(&path, false).expect("empty");
        file.set_len(5 << 20).expect("sparse");
        file.write_all_at(&[0; 4096], 1 << 20).expect("zeros");
        Target::inspect(&path, false).expect("zeros only");
        file.write_all_at(b"x", 4 << 20).expect("a byte");
        let why = Target::inspect(&path, false).expect_err("a byte").to_string();
        assert!(why.contains("holds: data") && why.contains("--force"), "{why}");
        file.write_all_at(&[0x53, 0xef], 0x438).expect("a mark");
        let why = Target::inspect(&path, false).expect_err("ext4").to_string();
        assert!(why.contains("ext2, ext3 or ext4"), "{why}");
        Target::inspect(&path, true).expect("by force").clear().expect("cleared");
        Target::inspect(&path, false).expect("empty again");
        assert_eq!(fs::metadata(&path).expect("there").len(), 5 << 20);

        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).expect("locked");
        let why = Target::inspect(&path, true).expect_err("in use").to_string();
        assert!(why.contains("in use"), "{why}");
        let why = output(&path).expect_err("a store's").to_string();
        assert!(why.contains("OSD's store"), "{why}");
        drop(file);
        let why = Target::inspect(&dir, true).expect_err("a directory").to_string();
        assert!(why.contains("neither"), "{why}");
        fs::remove_dir_all(&dir).expect("removed");
    }
}
