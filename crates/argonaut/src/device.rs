//! What the kernel knows of the device below a file.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// Whether the device that holds `path`, or is `path`, turns; `None` where there is no such
/// device, as below a file system in memory.
pub fn rotates(path: &Path) -> Option<bool> {
    let meta = fs::metadata(path).ok()?;
    let dev = if meta.file_type().is_block_device() { meta.rdev() } else { meta.dev() };
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    let device = format!("/sys/dev/block/{major}:{minor}");
    // A partition has no queue; its disk, one directory up, does.
    let found = ["queue", "../queue"]
        .iter()
        .find_map(|queue| fs::read_to_string(format!("{device}/{queue}/rotational")).ok())?;
    Some(found.trim() == "1")
}

/// The disks that hold `path`, or whose part it is: their names below `/dev`, sorted.
pub fn disks(path: &Path) -> Vec<String> {
    let Ok(meta) = fs::metadata(path) else { return Vec::new() };
    let dev = if meta.file_type().is_block_device() { meta.rdev() } else { meta.dev() };
    let at = format!("/sys/dev/block/{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev));
    let mut disks = Vec::new();
    if let Ok(at) = fs::canonicalize(at) {
        below(&at, 0, &mut disks);
    }
    disks.sort();
    disks.dedup();
    disks
}

/// Volumes may lie on others so many times.
const DEPTH_MAX: u32 = 8;

/// Goes from a device of `/sys` to what it lies on.
fn below(at: &Path, depth: u32, disks: &mut Vec<String>) {
    if at.join("partition").exists() {
        return at.parent().into_iter().for_each(|disk| below(disk, depth, disks));
    }
    let slaves = fs::read_dir(at.join("slaves")).into_iter().flatten().flatten();
    let slaves: Vec<_> = slaves.filter_map(|s| fs::canonicalize(s.path()).ok()).collect();
    if slaves.is_empty() || depth >= DEPTH_MAX {
        disks.extend(at.file_name().map(|name| name.to_string_lossy().into_owned()));
    }
    slaves.iter().for_each(|slave| below(slave, depth + 1, disks));
}

/// What udev calls a disk: `VENDOR_MODEL_SERIAL`; `None` where it knows no serial number.
///
/// Source: upstream's `common/blkdev.cc`, `get_device_id`.
fn id_of(properties: &str) -> Option<String> {
    let get = |name: &str| {
        let mut values = properties.lines().filter_map(|l| l.strip_prefix("E:")?.split_once('='));
        values.find(|(key, value)| *key == name && !value.is_empty()).map(|(_, value)| value)
    };
    let id = match (get("ID_VENDOR"), get("ID_MODEL"), get("ID_SERIAL_SHORT"), get("ID_SERIAL")) {
        (Some(_), Some(model), Some(short), _) => format!("{model}_{short}"),
        (_, _, _, Some(serial)) => serial.to_owned(),
        _ => return None,
    };
    Some(id.trim().replace(' ', "_"))
}

/// What tools read of the disks: `devices` (`sda,sdb`), `device_ids` (`sda=MODEL_SERIAL,...`),
/// `device_paths` (`sda=/dev/disk/by-path/...`).
pub fn metadata(path: &Path) -> BTreeMap<String, String> {
    let disks = disks(path);
    let properties = |disk: &String| {
        let number = fs::read_to_string(format!("/sys/block/{disk}/dev")).ok()?;
        fs::read_to_string(format!("/run/udev/data/b{}", number.trim())).ok()
    };
    let ids = disks.iter().filter_map(|d| Some(format!("{d}={}", id_of(&properties(d)?)?)));
    let paths = disks.iter().filter_map(|disk| {
        let linked = |link: &fs::DirEntry| {
            let to = fs::canonicalize(link.path()).ok();
            to.is_some_and(|to| to == Path::new("/dev").join(disk))
        };
        let links = fs::read_dir("/dev/disk/by-path").ok()?.flatten();
        let link = links.filter(linked).map(|link| link.path()).min()?;
        Some(format!("{disk}={}", link.display()))
    });
    let join = |all: Vec<String>| all.join(",");
    BTreeMap::from([
        ("device_ids".to_owned(), join(ids.collect())),
        ("device_paths".to_owned(), join(paths.collect())),
        ("devices".to_owned(), join(disks.clone())),
    ])
}

/// What tools read of an OSD's store, under the names of upstream's: `block` is its file or
/// device of `bytes` bytes, `apart` where a log has a place of its own.
pub fn store_metadata(block: &Path, bytes: u64, apart: bool) -> BTreeMap<String, String> {
    let mut all = metadata(block);
    let rotational = rotates(block);
    let flag = |on: bool| u8::from(on).to_string();
    let is_device = fs::metadata(block).is_ok_and(|m| m.file_type().is_block_device());
    let pairs = [
        ("bluefs", flag(true)),
        ("bluefs_dedicated_db", flag(false)),
        ("bluefs_dedicated_wal", flag(apart)),
        ("bluefs_single_shared_device", flag(!apart)),
        ("bluestore_allocator", "bitmap".to_owned()),
        ("bluestore_bdev_access_mode", if is_device { "blk" } else { "file" }.to_owned()),
        ("bluestore_bdev_block_size", "4096".to_owned()),
        ("bluestore_bdev_devices", all["devices"].clone()),
        ("bluestore_bdev_driver", "KernelDevice".to_owned()),
        ("bluestore_bdev_path", block.display().to_string()),
        ("bluestore_bdev_rotational", flag(rotational == Some(true))),
        ("bluestore_bdev_size", bytes.to_string()),
        ("bluestore_bdev_type", class(rotational == Some(true)).to_owned()),
        ("bluestore_min_alloc_size", "4096".to_owned()),
        ("journal_rotational", flag(rotational == Some(true))),
        (conf::key::OSD_OBJECTSTORE.name(), "bluestore".to_owned()),
        ("osdspec_affinity", String::new()),
        ("rotational", flag(rotational == Some(true))),
    ];
    all.extend(pairs.map(|(key, value)| (key.to_owned(), value)));
    if let Some(node) = fs::canonicalize(block).ok().filter(|_| is_device) {
        all.insert("bluestore_bdev_dev_node".to_owned(), node.display().to_string());
    }
    all
}

/// The CRUSH device class that a device is given by default.
pub fn class(rotates: bool) -> &'static str {
    if rotates { "hdd" } else { "ssd" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_have_names_of_udev() {
        let known = "S:disk/by-id/x\nE:ID_VENDOR=ATA\nE:ID_MODEL=Fast 1\nE:ID_SERIAL_SHORT=S 77\n";
        assert_eq!(id_of(known).as_deref(), Some("Fast_1_S_77"));
        assert_eq!(id_of("E:ID_MODEL=Fast\nE:ID_SERIAL=abc\n").as_deref(), Some("abc"));
        assert_eq!(id_of("E:ID_MODEL=Fast\nE:ID_SERIAL=\n"), None);
        let all = store_metadata(Path::new("/proc/self/stat"), 7, true);
        assert_eq!((all["devices"].as_str(), all["bluestore_bdev_size"].as_str()), ("", "7"));
        assert_eq!(all["bluefs_dedicated_wal"], "1");
        assert!(!all.contains_key("bluestore_bdev_dev_node"));
    }

    #[test]
    fn what_is_no_device_does_not_turn() {
        assert_eq!(rotates(Path::new("/proc/self/stat")), None);
        assert_eq!(rotates(Path::new("/no/such/file")), None);
    }
}
