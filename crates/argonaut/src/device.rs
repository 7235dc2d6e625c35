//! What the kernel knows of the device below a file.

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

/// The CRUSH device class that a device is given by default.
pub fn class(rotates: bool) -> &'static str {
    if rotates { "hdd" } else { "ssd" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_device_does_not_turn() {
        assert_eq!(rotates(Path::new("/proc/self/stat")), None);
        assert_eq!(rotates(Path::new("/no/such/file")), None);
    }
}
