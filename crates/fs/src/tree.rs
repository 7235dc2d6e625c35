//! Whole trees: copied, removed.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use fsc::open_flag;
use messages::fs::DirEntry;

use crate::{Error, Fs, Result, SetAttr, Stat, is_dir, is_file, is_symlink};

/// Bytes of a file that are in memory while it is copied.
const CHUNK: u64 = 8 << 20;
/// Files that are copied at once.
const COPIES: usize = 8;
/// How often it is asked whether a copy is to go on.
const LOOK: Duration = Duration::from_millis(200);
/// Names that are removed at once.
const AT_ONCE: usize = 32;

/// How far a copy is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Files and symbolic links.
    pub files: u64,
    /// Bytes of files.
    pub bytes: u64,
}

fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    [dir, b"/", name].concat()
}

/// What the copies of one tree share.
#[derive(Default)]
struct Progress {
    copied: Cell<Copied>,
    ends: Cell<bool>,
}

impl Progress {
    fn add(&self, files: u64, bytes: u64) {
        let so_far = self.copied.get();
        self.copied.set(Copied { files: so_far.files + files, bytes: so_far.bytes + bytes });
    }
}

impl Fs {
    /// Copies what is below a directory into another one that is there: directories, files, symbolic
    /// links, with owners, modes and times; other kinds are left out, a second name of a file is a file
    /// of its own. A few files are copied at once, with at most 64 MiB in memory. `go` hears now and then
    /// how far it is; where it says `false` the copy ends with ECANCELED.
    ///
    /// # Errors
    /// What reading there and writing here can fail with.
    pub async fn copy_tree(
        &self,
        from: impl AsRef<[u8]>,
        to: impl AsRef<[u8]>,
        mut go: impl FnMut(Copied) -> bool,
    ) -> Result<Copied> {
        let (from, to) = (from.as_ref().to_vec(), to.as_ref().to_vec());
        let progress = Rc::new(Progress::default());
        // Directories to go through; attributes of one are set when all below it is there.
        enum Step {
            Enter(Vec<u8>, Vec<u8>),
            Leave(Vec<u8>, Box<Stat>),
        }
        let mut steps = vec![Step::Enter(from, to)];
        while let Some(step) = steps.pop() {
            let (from, to) = match step {
                Step::Enter(from, to) => (from, to),
                Step::Leave(to, stat) => {
                    self.take_attrs(&to, &stat).await?;
                    continue;
                }
            };
            let mut dir = self.open_dir(&from).await?;
            loop {
                let page = dir.page().await?;
                if page.is_empty() {
                    break;
                }
                for some in page.chunks(COPIES) {
                    let mut begun = Vec::new();
                    for DirEntry { name, inode, .. } in some {
                        let (from, to) = (join(&from, name), join(&to, name));
                        if is_dir(inode) {
                            match self.mkdir(&to, inode.mode & 0o7777).await {
                                Err(err) if err.errno() != 17 => return Err(err),
                                _ => {}
                            }
                            steps.push(Step::Leave(to.clone(), Box::new(inode.clone())));
                            steps.push(Step::Enter(from, to));
                            continue;
                        }
                        let (fs, inode, progress) = (self.clone(), inode.clone(), progress.clone());
                        begun.push(tokio::task::spawn_local(async move {
                            fs.copy_one(&from, &to, &inode, &progress).await
                        }));
                    }
                    let mut failed = None;
                    for mut one in begun {
                        let copied = loop {
                            if !go(progress.copied.get()) {
                                progress.ends.set(true);
                            }
                            match tokio::time::timeout(LOOK, &mut one).await {
                                Ok(copied) => break copied.unwrap_or(Err(Error::Gone)),
                                Err(_) => continue,
                            }
                        };
                        if let Err(err) = copied {
                            progress.ends.set(true);
                            failed = failed.or(Some(err));
                        }
                    }
                    if let Some(err) = failed {
                        return Err(err);
                    }
                    if !go(progress.copied.get()) {
                        return Err(Error::of(&from, types::Errno::CANCELED));
                    }
                }
            }
        }
        self.sync().await?;
        Ok(progress.copied.get())
    }

    /// Copies what is no directory.
    async fn copy_one(
        &self,
        from: &[u8],
        to: &[u8],
        stat: &Stat,
        progress: &Progress,
    ) -> Result<()> {
        if is_symlink(stat) {
            match self.symlink(&stat.symlink, to).await {
                Err(err) if err.errno() != 17 => return Err(err),
                _ => {}
            }
        } else if is_file(stat) {
            self.copy_file(from, to, stat, progress).await?;
        } else {
            return Ok(());
        }
        self.take_attrs(to, stat).await?;
        progress.add(1, 0);
        Ok(())
    }

    async fn copy_file(
        &self,
        from: &[u8],
        to: &[u8],
        stat: &Stat,
        progress: &Progress,
    ) -> Result<()> {
        let source = self.open(from, open_flag::RDONLY, 0).await?;
        let flags = open_flag::WRONLY | open_flag::CREAT | open_flag::TRUNC;
        let target = self.open(to, flags, stat.mode & 0o7777).await?;
        let (mut at, mut written) = (0, 0);
        loop {
            let part = source.read(at, CHUNK).await?;
            if part.is_empty() {
                break;
            }
            let len = part.len() as u64;
            // Holes stay holes.
            if part.iter().any(|b| *b != 0) {
                target.write(at, &part).await?;
                written = at + len;
            }
            at += len;
            progress.add(0, len);
            if progress.ends.get() {
                return Err(Error::of(from, types::Errno::CANCELED));
            }
        }
        source.close().await?;
        if written != at {
            target.truncate(at).await?;
        }
        target.close().await
    }

    async fn take_attrs(&self, to: &[u8], stat: &Stat) -> Result<()> {
        let is_link = is_symlink(stat);
        let set = SetAttr {
            mode: (!is_link).then_some(stat.mode & 0o7777),
            uid: Some(stat.uid),
            gid: Some(stat.gid),
            size: None,
            mtime: Some(stat.times.mtime),
            atime: Some(stat.times.atime),
        };
        self.set_attr(to, set).await
    }

    /// Removes what a path names and all below it, depth first. What is gone meanwhile does not
    /// matter. `go`: where it says `false` this ends with ECANCELED.
    ///
    /// # Errors
    /// ENOTEMPTY where a directory below has snapshots, or somebody makes names meanwhile.
    pub async fn remove_tree(
        &self,
        path: impl AsRef<[u8]>,
        mut go: impl FnMut() -> bool,
    ) -> Result<()> {
        let path = path.as_ref().to_vec();
        let gone = |done: Result<()>| match done {
            Err(err) if err.errno() == 2 => Ok(()),
            done => done,
        };
        match self.lstat(&path).await {
            Ok(stat) if !is_dir(&stat) => return gone(self.unlink(&path).await),
            Ok(_) => {}
            Err(err) if err.errno() == 2 => return Ok(()),
            Err(err) => return Err(err),
        }
        let mut dirs = vec![(path, false)];
        while let Some((dir, is_empty)) = dirs.pop() {
            if is_empty {
                gone(self.rmdir(&dir).await)?;
                continue;
            }
            dirs.push((dir.clone(), true));
            let mut listing = match self.open_dir(&dir).await {
                Err(err) if err.errno() == 2 => continue,
                opened => opened?,
            };
            loop {
                let page = match listing.page().await {
                    Err(err) if err.errno() == 2 => break,
                    page => page?,
                };
                if page.is_empty() {
                    break;
                }
                for some in page.chunks(AT_ONCE) {
                    if !go() {
                        return Err(Error::of(&dir, types::Errno::CANCELED));
                    }
                    let mut begun = Vec::new();
                    for DirEntry { name, inode, .. } in some {
                        let at = join(&dir, name);
                        if is_dir(inode) {
                            dirs.push((at, false));
                        } else {
                            let fs = self.clone();
                            begun.push(tokio::task::spawn_local(
                                async move { fs.unlink(&at).await },
                            ));
                        }
                    }
                    for one in begun {
                        gone(one.await.unwrap_or(Err(Error::Gone)))?;
                    }
                }
            }
        }
        Ok(())
    }
}
