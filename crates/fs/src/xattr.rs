//! Extended attributes, and those of the peer that stand for something else.
//!
//! What the peer's client computes of an inode is computed here: layouts, quotas, sums of directories,
//! times of snapshots. All other names that begin with `ceph.` are asked of the server.

use bytes::Bytes;
use denc::Denc;
use fsc::Ask;
use maps::fs::ByteMap;
use messages::fs::{Args, FilePath, mds_op};
use types::{Errno, Ino, UTime};

use crate::{Error, Fs, Result, Stat, is_dir};

const CREATE: u32 = 1;
const REPLACE: u32 = 2;

fn named(name: &[u8]) -> FilePath {
    FilePath { ino: Ino(0), path: Bytes::copy_from_slice(name) }
}

impl Fs {
    /// An attribute's value.
    ///
    /// # Errors
    /// ENODATA where there is none of that name; as [`Fs::stat`].
    pub async fn get_xattr(&self, path: impl AsRef<[u8]>, name: &str) -> Result<Bytes> {
        let path = path.as_ref();
        let stat = self.stat(path).await?;
        if !name.starts_with("ceph.") {
            let all = ByteMap::from_shared(&stat.xattrs).unwrap_or_default();
            let value = all.get(name.as_bytes()).cloned();
            return value.ok_or_else(|| Error::of(name, Errno::NODATA));
        }
        if let Some(value) = self.computed(&stat, name) {
            return value.ok_or_else(|| Error::of(name, Errno::NODATA));
        }
        let make = |p| Ask {
            path2: named(name.as_bytes()),
            ..Ask::new(mds_op::GETVXATTR, p, Args::Mask(0))
        };
        let extra = self.on(path, make).await?.answer.extra;
        let mut r = denc::Reader::shared(&extra);
        r.framed("getvxattr", 1, |r, _| r.blob()).map_err(|_| Error::of(name, Errno::IO))
    }

    /// The inode that a path leads to, as a path: stock servers set attributes that stand for something
    /// else on the inode that a path begins at.
    async fn itself(&self, path: &[u8]) -> Result<FilePath> {
        let stat = self.stat(path).await?;
        match stat.snapid == types::SnapId::HEAD {
            true => Ok(FilePath { ino: stat.ino, path: Bytes::new() }),
            false => Err(Error::of(path, Errno(-30))),
        }
    }

    /// What of the peer's names this client knows; none for others.
    fn computed(&self, stat: &Stat, name: &str) -> Option<Option<Bytes>> {
        let text = |text: String| Some(Some(Bytes::from(text)));
        let time = |t: UTime| text(format!("{}.{:09}", t.sec, t.nsec));
        let dir = &stat.dir;
        if let Some(field) = name.strip_prefix("ceph.quota") {
            let quota = dir.quota;
            if !is_dir(stat) || (quota.max_bytes == 0 && quota.max_files == 0) {
                return Some(None);
            }
            return match field {
                "" => text(format!("max_bytes={} max_files={}", quota.max_bytes, quota.max_files)),
                ".max_bytes" if quota.max_bytes > 0 => text(quota.max_bytes.to_string()),
                ".max_files" if quota.max_files > 0 => text(quota.max_files.to_string()),
                _ => Some(None),
            };
        }
        if name == "ceph.snap.btime" {
            let is_then = stat.snapid != types::SnapId::HEAD;
            return if is_then { time(stat.times.snap_btime) } else { Some(None) };
        }
        if let Some(field) = name.strip_prefix("ceph.file.layout").filter(|_| !is_dir(stat)) {
            return Some(self.layout(stat, field));
        }
        let field = name.strip_prefix("ceph.dir.").filter(|_| is_dir(stat))?;
        match field {
            "entries" => text((dir.nfiles + dir.nsubdirs).to_string()),
            "files" => text(dir.nfiles.to_string()),
            "subdirs" => text(dir.nsubdirs.to_string()),
            "rentries" => text((dir.rfiles + dir.rsubdirs).to_string()),
            "rfiles" => text(dir.rfiles.to_string()),
            "rsubdirs" => text(dir.rsubdirs.to_string()),
            "rsnaps" => text(dir.rsnaps.to_string()),
            "rbytes" => text(dir.rbytes.to_string()),
            "rctime" => time(dir.rctime),
            _ => Some(self.layout(stat, field.strip_prefix("layout")?)),
        }
    }

    fn layout(&self, stat: &Stat, field: &str) -> Option<Bytes> {
        let l = &stat.layout;
        if l.is_none() || l.stripe_unit == 0 {
            return None;
        }
        let pool = self.cluster().map().pool_names.get(&l.pool).cloned();
        let pool = pool.unwrap_or_else(|| l.pool.0.to_string());
        let ns = String::from_utf8_lossy(&l.pool_ns).into_owned();
        Some(Bytes::from(match field {
            "" => {
                let mut all = format!(
                    "stripe_unit={} stripe_count={} object_size={} pool={pool}",
                    l.stripe_unit, l.stripe_count, l.object_size
                );
                if !ns.is_empty() {
                    all.push_str(&format!(" pool_namespace={ns}"));
                }
                all
            }
            ".stripe_unit" => l.stripe_unit.to_string(),
            ".stripe_count" => l.stripe_count.to_string(),
            ".object_size" => l.object_size.to_string(),
            ".pool" | ".pool_name" => pool,
            ".pool_id" => l.pool.0.to_string(),
            ".pool_namespace" => ns,
            _ => return None,
        }))
    }

    /// Sets an attribute; `new`: whether there must be none (true), or one (false), before.
    ///
    /// # Errors
    /// EEXIST, ENODATA as `new` says; EINVAL for a value without meaning; EROFS in snapshots.
    pub async fn set_xattr(
        &self,
        path: impl AsRef<[u8]>,
        name: &str,
        value: &[u8],
        new: Option<bool>,
    ) -> Result<()> {
        let flags = new.map_or(0, |new| if new { CREATE } else { REPLACE });
        // A pool that was just made is named by maps from this one on.
        let osdmap_epoch = self.cluster().map().epoch.0;
        let data = Bytes::copy_from_slice(value);
        let args = Args::Setxattr { flags, osdmap_epoch };
        let at = self.itself(path.as_ref()).await?;
        let ask =
            Ask { path2: named(name.as_bytes()), data, ..Ask::new(mds_op::SETXATTR, at, args) };
        self.ask(path, ask).await.map(drop)
    }

    /// Removes an attribute.
    ///
    /// # Errors
    /// ENODATA.
    pub async fn remove_xattr(&self, path: impl AsRef<[u8]>, name: &str) -> Result<()> {
        let make =
            |p| Ask { path2: named(name.as_bytes()), ..Ask::new(mds_op::RMXATTR, p, Args::None) };
        self.on(path.as_ref(), make).await.map(drop)
    }

    /// The attributes that are bytes in the inode, with their values.
    ///
    /// # Errors
    /// As [`Fs::stat`].
    pub async fn list_xattrs(&self, path: impl AsRef<[u8]>) -> Result<ByteMap> {
        let stat = self.stat(path).await?;
        Ok(ByteMap::from_shared(&stat.xattrs).unwrap_or_default())
    }
}
