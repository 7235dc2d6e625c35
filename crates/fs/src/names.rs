//! Names, attributes, snapshots.

use bytes::Bytes;
use denc::Denc;
use fsc::{Ask, Listing, SNAP_DIR};
use maps::fs::SnapPayload;
use messages::fs::{Args, DirEntry, FilePath, SetattrArgs, mds_op};
use types::{Errno, Ino, UTime};

use crate::mount::{ALL, names};
use crate::{Error, Fs, Result, Stat, Usage};

const TYPE: u32 = 0o170_000;

/// Whether it is a directory.
#[must_use]
pub fn is_dir(stat: &Stat) -> bool {
    stat.mode & TYPE == 0o040_000
}

/// Whether it is a regular file.
#[must_use]
pub fn is_file(stat: &Stat) -> bool {
    stat.mode & TYPE == 0o100_000
}

/// Whether it is a symbolic link.
#[must_use]
pub fn is_symlink(stat: &Stat) -> bool {
    stat.mode & TYPE == 0o120_000
}

/// What [`Fs::set_attr`] changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permissions, with set-id bits and the sticky bit.
    pub mode: Option<u32>,
    /// Its owner.
    pub uid: Option<u32>,
    /// Its group.
    pub gid: Option<u32>,
    /// A file's size: it is cut, or has a hole at its end.
    pub size: Option<u64>,
    /// When its contents changed.
    pub mtime: Option<UTime>,
    /// When it was read.
    pub atime: Option<UTime>,
}

/// A directory that is being listed.
#[derive(Clone)]
pub struct Dir {
    fs: Fs,
    path: Vec<u8>,
    listing: Listing,
}

impl Dir {
    /// The next entries, at most 1,024, without `.` and `..`; none at the end. Names come once each, in
    /// the order of their hashes.
    ///
    /// # Errors
    /// ENOENT, ENOTDIR.
    pub async fn page(&mut self) -> Result<Vec<DirEntry>> {
        while let Some(ask) = self.listing.next() {
            let reply = self.fs.ask(&self.path, ask).await?;
            let entries = self.listing.take(*reply);
            if !entries.is_empty() {
                return Ok(entries);
            }
        }
        Ok(Vec::new())
    }
}

/// The directory whose snapshots a path names, and the snapshot's name: `a/.snap/s`.
fn snapshot(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let name = names(path).next_back()?;
    let trimmed = trim(path);
    let up = trim(&trimmed[..trimmed.len() - name.len()]);
    let dir = up.strip_suffix(SNAP_DIR)?;
    (dir.is_empty() || dir.ends_with(b"/")).then_some((trim(dir), name))
}

fn trim(mut path: &[u8]) -> &[u8] {
    while let [rest @ .., b'/'] = path {
        path = rest;
    }
    path
}

impl Fs {
    /// What a path leads to; a symbolic link at its end is followed.
    ///
    /// # Errors
    /// ENOENT, ENOTDIR, ELOOP, EACCES.
    pub async fn stat(&self, path: impl AsRef<[u8]>) -> Result<Stat> {
        let stat = self.lstat(&path).await?;
        if !is_symlink(&stat) {
            return Ok(stat);
        }
        let real = self.real(path.as_ref(), true).await?;
        self.lstat_plain(&real).await
    }

    /// The same; a symbolic link at its end is what is shown.
    ///
    /// # Errors
    /// As [`Fs::stat`].
    pub async fn lstat(&self, path: impl AsRef<[u8]>) -> Result<Stat> {
        let path = path.as_ref();
        let make = |p| Ask::new(mds_op::GETATTR, p, Args::Mask(ALL));
        let reply = self.on(path, make).await?;
        reply.answer.target.map(|t| *t).ok_or_else(|| Error::of(path, Errno::IO))
    }

    /// Whether something is there.
    ///
    /// # Errors
    /// As [`Fs::stat`], but ENOENT.
    pub async fn exists(&self, path: impl AsRef<[u8]>) -> Result<bool> {
        match self.lstat(path).await {
            Ok(_) => Ok(true),
            Err(err) if err.errno() == 2 => Ok(false),
            Err(err) => Err(err),
        }
    }

    /// Changes attributes.
    ///
    /// # Errors
    /// As [`Fs::stat`]; EFBIG, EISDIR for sizes; EROFS in snapshots.
    pub async fn set_attr(&self, path: impl AsRef<[u8]>, set: SetAttr) -> Result<()> {
        let mut mask = 0;
        let mut bit = |is: bool, bit: u32| mask |= if is { bit } else { 0 };
        bit(set.mode.is_some(), SetattrArgs::MODE);
        bit(set.uid.is_some(), SetattrArgs::UID);
        bit(set.gid.is_some(), SetattrArgs::GID);
        bit(set.size.is_some(), SetattrArgs::SIZE);
        bit(set.mtime.is_some(), SetattrArgs::MTIME);
        bit(set.atime.is_some(), SetattrArgs::ATIME);
        let stat = self.lstat(&path).await?;
        if stat.snapid != types::SnapId::HEAD {
            return Err(Error::of(path, Errno(-30)));
        }
        let args = SetattrArgs {
            mode: set.mode.unwrap_or_default(),
            uid: set.uid.unwrap_or_default(),
            gid: set.gid.unwrap_or_default(),
            mtime: set.mtime.unwrap_or_default(),
            atime: set.atime.unwrap_or_default(),
            size: set.size.unwrap_or_default(),
            old_size: stat.size.size,
            mask,
            btime: UTime::ZERO,
        };
        let at = FilePath { ino: stat.ino, path: Bytes::new() };
        self.ask(path, Ask::new(mds_op::SETATTR, at, Args::Setattr(args))).await.map(drop)
    }

    /// Makes a directory; below `.snap`, a snapshot.
    ///
    /// # Errors
    /// EEXIST, ENOENT, EDQUOT; EMLINK at a directory's last snapshot.
    pub async fn mkdir(&self, path: impl AsRef<[u8]>, mode: u32) -> Result<()> {
        let path = path.as_ref();
        if snapshot(path).is_some() {
            return self.make_snapshot(path, maps::fs::ByteMap::new()).await;
        }
        let ask = Ask::new(mds_op::MKDIR, self.entry(path).await?, Args::Mode(mode));
        self.ask(path, ask).await.map(drop)
    }

    /// Makes a snapshot `a/.snap/s` of the directory `a` with words that are kept with it.
    ///
    /// # Errors
    /// As [`Fs::mkdir`].
    pub async fn make_snapshot(
        &self,
        path: impl AsRef<[u8]>,
        metadata: maps::fs::ByteMap,
    ) -> Result<()> {
        let data = SnapPayload { metadata }.to_bytes();
        let at = self.entry(path.as_ref()).await?;
        let ask = Ask { data, ..Ask::new(mds_op::MKSNAP, at, Args::Mode(0o755)) };
        self.ask(path, ask).await.map(drop)
    }

    /// Makes a directory and those on the way to it, where they are missing.
    ///
    /// # Errors
    /// As [`Fs::mkdir`], but EEXIST; ENOTDIR where something else is in the way.
    pub async fn mkdir_all(&self, path: impl AsRef<[u8]>, mode: u32) -> Result<()> {
        let path = path.as_ref();
        match self.stat(path).await {
            Ok(stat) if is_dir(&stat) => return Ok(()),
            Ok(_) => return Err(Error::of(path, Errno(-20))),
            Err(err) if err.errno() == 2 => {}
            Err(err) => return Err(err),
        }
        let mut at = Vec::new();
        for name in names(path) {
            at.push(b'/');
            at.extend_from_slice(name);
            match self.mkdir(&at, mode).await {
                Err(err) if err.errno() != 17 => return Err(err),
                _ => {}
            }
        }
        if is_dir(&self.stat(path).await?) { Ok(()) } else { Err(Error::of(path, Errno(-20))) }
    }

    /// Removes a directory; below `.snap`, a snapshot.
    ///
    /// # Errors
    /// ENOENT, ENOTEMPTY, ENOTDIR.
    pub async fn rmdir(&self, path: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_ref();
        let op = if snapshot(path).is_some() { mds_op::RMSNAP } else { mds_op::RMDIR };
        let ask = Ask::new(op, self.entry(path).await?, Args::None);
        self.ask(path, ask).await.map(drop)
    }

    /// Removes a name that is no directory's.
    ///
    /// # Errors
    /// ENOENT, EISDIR.
    pub async fn unlink(&self, path: impl AsRef<[u8]>) -> Result<()> {
        let ask = Ask::new(mds_op::UNLINK, self.entry(path.as_ref()).await?, Args::None);
        self.ask(path, ask).await.map(drop)
    }

    /// A directory's inode and a name in it, of a path. Stock servers take names of snapshots, and both
    /// of a rename, in this form alone, and give a file the layout of the directory that its path begins
    /// at.
    pub(crate) async fn entry(&self, path: &[u8]) -> Result<FilePath> {
        let name = names(path).next_back().ok_or_else(|| Error::of(path, Errno::BUSY))?;
        let whole = trim(path);
        let (up, snap) = match snapshot(path) {
            Some((dir, _)) => (dir, true),
            None => (&whole[..whole.len() - name.len()], false),
        };
        let dir = self.stat(up).await?;
        if dir.snapid != types::SnapId::HEAD {
            return Err(Error::of(path, Errno(-30)));
        }
        let name = if snap { [b"/", name].concat() } else { name.to_vec() };
        Ok(FilePath { ino: dir.ino, path: name.into() })
    }

    /// Renames; below `.snap`, a snapshot of the same directory.
    ///
    /// # Errors
    /// ENOENT, ENOTEMPTY, EXDEV across subvolumes.
    pub async fn rename(&self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let op = match (snapshot(from), snapshot(to)) {
            (Some(_), Some(_)) => mds_op::RENAMESNAP,
            (None, None) => mds_op::RENAME,
            _ => return Err(Error::of(from, Errno(-30))),
        };
        let (old, new) = (self.entry(from).await?, self.entry(to).await?);
        let ask = Ask { path2: old, ..Ask::new(op, new, Args::None) };
        self.ask(from, ask).await.map(drop)
    }

    /// Gives a file another name.
    ///
    /// # Errors
    /// EEXIST, EPERM for directories, EXDEV across subvolumes.
    pub async fn link(&self, old: impl AsRef<[u8]>, new: impl AsRef<[u8]>) -> Result<()> {
        let ino = self.lstat(old).await?.ino;
        let to = FilePath { ino, path: Bytes::new() };
        let at = self.entry(new.as_ref()).await?;
        let ask = Ask { path2: to, ..Ask::new(mds_op::LINK, at, Args::None) };
        self.ask(new, ask).await.map(drop)
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// EEXIST, ENOENT.
    pub async fn symlink(&self, target: impl AsRef<[u8]>, path: impl AsRef<[u8]>) -> Result<()> {
        let target = FilePath { ino: Ino(0), path: Bytes::copy_from_slice(target.as_ref()) };
        let at = self.entry(path.as_ref()).await?;
        let ask = Ask { path2: target, ..Ask::new(mds_op::SYMLINK, at, Args::Mode(0o777)) };
        self.ask(path, ask).await.map(drop)
    }

    /// Where a symbolic link leads.
    ///
    /// # Errors
    /// EINVAL where it is none.
    pub async fn read_link(&self, path: impl AsRef<[u8]>) -> Result<Bytes> {
        let stat = self.lstat(&path).await?;
        if is_symlink(&stat) { Ok(stat.symlink) } else { Err(Error::of(path, Errno::INVAL)) }
    }

    /// Begins to list a directory; `a/.snap` lists snapshots.
    ///
    /// # Errors
    /// ENOENT, ENOTDIR.
    pub async fn open_dir(&self, path: impl AsRef<[u8]>) -> Result<Dir> {
        let path = path.as_ref();
        let path = trim(path);
        let dir = path.strip_suffix(SNAP_DIR).filter(|d| d.is_empty() || d.ends_with(b"/"));
        let at = trim(dir.unwrap_or(path));
        let stat = self.stat(at).await?;
        if !is_dir(&stat) {
            return Err(Error::of(at, Errno(-20)));
        }
        if dir.is_some() && stat.snapid != types::SnapId::HEAD {
            return Err(Error::of(path, Errno::NOENT));
        }
        let from = match stat.snapid == types::SnapId::HEAD {
            true => FilePath { ino: stat.ino, path: Bytes::new() },
            false if is_symlink(&self.lstat(at).await?) => {
                self.path(&self.real(at, true).await?).await?
            }
            false => self.path(at).await?,
        };
        let listing = Listing::new(from, dir.is_some());
        Ok(Dir { fs: self.clone(), path: path.to_vec(), listing })
    }

    /// All entries of a directory, sorted by name.
    ///
    /// # Errors
    /// As [`Fs::open_dir`].
    pub async fn read_dir(&self, path: impl AsRef<[u8]>) -> Result<Vec<DirEntry>> {
        let mut dir = self.open_dir(path).await?;
        let mut all = Vec::new();
        loop {
            let page = dir.page().await?;
            if page.is_empty() {
                break;
            }
            all.extend(page);
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// Usage of the file system's first data pool, in KiB; of the whole cluster where it has several.
    ///
    /// # Errors
    /// [`Error::Rados`].
    pub async fn statfs(&self) -> Result<Usage> {
        let pools = self.map().map(|m| m.data_pools).unwrap_or_default();
        let pool = pools.first().copied().filter(|_| pools.len() == 1);
        Ok(self.cluster().statfs(pool).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_have_names_below_dot_snap() {
        let of = |path: &'static str| snapshot(path.as_bytes());
        assert_eq!(of("a/.snap/s"), Some((&b"a"[..], &b"s"[..])));
        assert_eq!(of("/.snap/s/"), Some((&b""[..], &b"s"[..])));
        assert_eq!(of(".snap/s"), Some((&b""[..], &b"s"[..])));
        assert_eq!(of("a/.snap"), None);
        assert_eq!(of("a/.snap/s/c"), None);
        assert_eq!(of("a/x.snap/s"), None);
        assert_eq!(of(""), None);
    }
}
