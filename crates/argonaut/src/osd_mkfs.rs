//! `argonaut osd --mkfs`: makes an OSD's data directory and the store in it.
//!
//! `making` is in the directory from the first write on until `ready` is, which says that all
//! is there. What lies there with `making` and without `ready` is a half-made OSD: it may go.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use conf::{ConfFile, Config, key};
use daemon::{write_durably, write_secret};
use env::Random;
use rt::OsRandom;
use store::{LogPlacement, MkfsOptions, Store};
use types::{OsdId, Uuid};

use crate::layout::Layout;
use crate::target::Target;

/// What a PG's log may be at most, on any OSD, fits into one transaction of such a log.
const JOURNAL_MIN: u64 = 64 << 20;

/// The number in an OSD's id.
///
/// # Errors
/// When it is none.
pub fn number(id: &str) -> Result<i32> {
    id.parse().ok().filter(|n| *n >= 0).context("an OSD's id is a number")
}

/// Makes one OSD's store; [`finish`] comes last. `uuid` is its incarnation. By `force` an OSD
/// in `data`, and what its device and its log's place hold, are overwritten.
///
/// # Errors
/// When it cannot be made, when one of them is in use, or holds something without `force`.
pub fn mkfs(
    data: &Path,
    fsid: Uuid,
    osd: i32,
    uuid: Uuid,
    config: &Config,
    force: bool,
) -> Result<()> {
    let log_bytes = config.get(key::OSD_JOURNAL_SIZE);
    if log_bytes < JOURNAL_MIN {
        bail!("osd_journal_size = {log_bytes}: the store's log needs at least {JOURNAL_MIN} bytes");
    }
    let (ready, making) = (data.join("ready"), data.join("making"));
    if ready.exists() && !force {
        bail!("{} holds an OSD already; --force makes it anew, empty", data.display());
    }
    let (block, journal) = (data.join("block"), config.get(key::OSD_JOURNAL));
    // A file that was left half-made; a device or link an operator put there stays.
    let half_made = making.exists() && !ready.exists();
    let is_file = |path: &Path| fs::symlink_metadata(path).is_ok_and(|m| m.is_file());
    if half_made && is_file(&block) {
        fs::remove_file(&block)?;
    }
    let mut targets = vec![Target::inspect(&block, force)?];
    let log = match journal.as_str() {
        "" => LogPlacement::Device,
        "memory" => LogPlacement::Memory,
        path => {
            targets.push(Target::inspect(Path::new(path), force || half_made)?);
            LogPlacement::Own
        }
    };
    fs::create_dir_all(data).with_context(|| data.display().to_string())?;
    write_durably(&making, b"")?;
    fs::remove_file(&ready).ok();
    targets.iter().try_for_each(Target::clear)?;
    if log == LogPlacement::Own {
        link_journal(data, Path::new(&journal))?;
    }
    let options = MkfsOptions {
        fsid,
        osd: OsdId(osd),
        osd_uuid: uuid,
        size: config.get(key::OSD_DEVICE_BYTES),
        log_bytes,
        log,
        log_path: None,
    };
    // The targets are held until it is done.
    let made = Store::mkfs(&block, &options).with_context(|| block.display().to_string());
    drop(targets);
    made.map(|_| ())
}

/// Says that the OSD's data is all there.
///
/// # Errors
/// When that cannot be written.
pub fn finish(data: &Path) -> Result<()> {
    daemon::mark_made(data, types::UTime::from_nanos(rt::now().wall_ns))?;
    write_durably(&data.join("ready"), b"")?;
    fs::remove_file(data.join("making")).ok();
    Ok(())
}

/// Makes the log's place findable from the data directory alone: `journal` there is it, or
/// leads to it.
fn link_journal(data: &Path, journal: &Path) -> Result<()> {
    let here = data.join("journal");
    if journal == here {
        return Ok(());
    }
    if here.is_symlink() {
        fs::remove_file(&here)?;
    }
    let journal = std::path::absolute(journal)?;
    std::os::unix::fs::symlink(&journal, &here)
        .with_context(|| format!("osd_journal = {}: {}", journal.display(), here.display()))
}

/// For `argonaut up`: makes an OSD's store, of `bytes` or as ceph.conf has it. Its key comes from
/// the monitors.
///
/// # Errors
/// When the store cannot be made.
pub fn mkfs_local(
    layout: &Layout,
    file: &ConfFile,
    index: u32,
    bytes: Option<u64>,
    chance: &mut dyn Random,
) -> Result<()> {
    let id = index.to_string();
    let mut config = Config::new(file, "osd", &id, "", 0);
    if let Some(bytes) = bytes {
        let set =
            config.set(conf::Source::CommandLine, key::OSD_DEVICE_BYTES.name(), &bytes.to_string());
        set.map_err(|why| anyhow::anyhow!("{why}"))?;
    }
    let data = layout.data(&format!("osd.{id}"));
    let fsid = config.get(key::FSID).parse().map_err(|why| anyhow::anyhow!("fsid: {why}"))?;
    let mut raw = [0; 16];
    chance.fill(&mut raw);
    mkfs(&data, fsid, index as i32, Uuid::from_random(raw), &config, false)?;
    finish(&data)
}

/// `argonaut osd --mkfs`.
///
/// # Errors
/// As [`mkfs`].
pub fn main(config: &Config, id: &str, keyring: Option<&Path>, force: bool) -> Result<()> {
    let number = number(id)?;
    let data = PathBuf::from(config.get(key::OSD_DATA));
    let fsid = config.get(key::FSID).parse().map_err(|why| anyhow::anyhow!("fsid: {why}"))?;
    let uuid = match config.get(key::OSD_UUID).as_str() {
        "" => {
            let mut raw = [0; 16];
            OsRandom.fill(&mut raw);
            Uuid::from_random(raw)
        }
        text => text.parse().map_err(|why| anyhow::anyhow!("osd_uuid: {why}"))?,
    };
    mkfs(&data, fsid, number, uuid, config, force)?;
    if let Some(path) = keyring {
        write_secret(&data.join("keyring"), &fs::read_to_string(path)?)?;
    }
    finish(&data)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make(data: &Path, conf: &str, force: bool) -> Result<()> {
        let conf = ConfFile::parse(conf).expect("well formed");
        let config = Config::new(&conf, "osd", "0", "host", 0);
        mkfs(data, Uuid::default(), 0, Uuid::default(), &config, force)
    }

    fn scratch(name: &str) -> PathBuf {
        let data = std::env::temp_dir().join(format!("argonaut-{name}-{}", std::process::id()));
        fs::remove_dir_all(&data).ok();
        data
    }

    /// A log that would be too small for a PG's is refused before anything is made.
    #[test]
    fn a_log_that_is_too_small_is_refused() {
        let data = scratch("mkfs-log");
        let why = make(&data, "[osd]\nosd_journal_size = 16M\n", false).expect_err("too small");
        assert!(why.to_string().starts_with("osd_journal_size = 16777216: "), "{why}");
        assert!(!data.exists());
    }

    /// Neither a finished OSD, nor a file that this program did not begin, nor what the log's place
    /// holds is overwritten; what was left half-made is made anew.
    #[test]
    fn what_holds_something_is_kept() {
        const CONF: &str = "[osd]\nosd_journal_size = 64M\nosd_device_bytes = 256M\n";
        let data = scratch("mkfs-kept");
        make(&data, CONF, false).expect("made");
        make(&data, CONF, false).expect("half-made: anew");
        finish(&data).expect("ready");
        let why = make(&data, CONF, false).expect_err("an OSD").to_string();
        assert!(why.contains("holds an OSD already"), "{why}");
        make(&data, CONF, true).expect("by force");
        finish(&data).expect("ready");

        fs::remove_file(data.join("ready")).expect("removed");
        let why = make(&data, CONF, false).expect_err("nobody knows whose").to_string();
        assert!(why.contains("argonaut store"), "{why}");
        fs::write(data.join("block"), b"a diary").expect("written");
        let why = make(&data, CONF, false).expect_err("a diary").to_string();
        assert!(why.contains("holds: data"), "{why}");
        assert_eq!(fs::read(data.join("block")).expect("there"), b"a diary");

        fs::remove_file(data.join("block")).expect("removed");
        let log = data.join("letters");
        fs::write(&log, b"letters").expect("written");
        let conf = format!("{CONF}osd_journal = {}\n", log.display());
        let why = make(&data, &conf, false).expect_err("letters").to_string();
        assert!(why.contains("letters is not empty"), "{why}");
        assert!(!data.join("block").exists() && !data.join("journal").exists());
        fs::remove_dir_all(&data).expect("removed");
    }
}
