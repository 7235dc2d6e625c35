//! Files that are open: read and written at the OSDs, sizes told to the metadata server.

use bytes::{Bytes, BytesMut};
use fsc::{Ask, open_flag};
use messages::fs::{Args, FilePath, OpenArgs, mds_op};
use rados::{IoCtx, ReadOp, SnapContext, WriteOp};
use striper::{FileLayout, Piece};
use types::{Errno, Ino, SnapId};

use crate::mount::ALL;
use crate::names::is_symlink;
use crate::{Error, Fs, Result, SetAttr, Stat};

/// Objects that one call reads or writes at once.
const AT_ONCE: usize = 8;
/// A write tells its size in steps of at most so many bytes.
const STEP: u64 = 32 << 20;

/// An open file. [`File::close`] tells sizes and gives back what the server gave; a file that is dropped
/// does the same without waiting for it.
pub struct File {
    fs: Fs,
    what: Vec<u8>,
    flags: u32,
    ino: Ino,
    /// Of a snapshot: nobody changes it.
    then: Option<Box<Stat>>,
    open: bool,
}

/// What an operation on a file's objects needs to know.
struct Data {
    io: IoCtx,
    layout: FileLayout,
    truncate: (u32, u64),
}

impl Data {
    fn object(&self, ino: Ino, piece: &Piece) -> Vec<u8> {
        maps::fs::object_name(ino, piece.object).into_bytes()
    }

    /// What the last cut left of an object.
    fn left(&self, piece: &Piece) -> u64 {
        self.layout.striping().map_or(u64::MAX, |s| s.object_bytes(piece.object, self.truncate.1))
    }
}

impl Fs {
    /// Opens a file; with [`open_flag::CREAT`] it is made, with this mode.
    ///
    /// # Errors
    /// ENOENT, EEXIST, EISDIR, EACCES; EROFS where one of a snapshot is to be written.
    pub async fn open(&self, path: impl AsRef<[u8]>, flags: u32, mode: u32) -> Result<File> {
        let mut path = path.as_ref().to_vec();
        let mut found = None;
        let writes = flags & open_flag::MODE != open_flag::RDONLY;
        match self.lstat(&path).await {
            Ok(stat) if is_symlink(&stat) => path = self.real(&path, true).await?,
            Ok(stat) if crate::is_dir(&stat) => return Err(Error::of(path, Errno(-21))),
            Ok(stat) if stat.snapid != SnapId::HEAD => {
                if writes || flags & (open_flag::CREAT | open_flag::TRUNC) != 0 {
                    return Err(Error::of(path, Errno(-30)));
                }
                let (what, ino, then) = (path, stat.ino, Some(Box::new(stat)));
                return Ok(File { fs: self.clone(), what, flags, ino, then, open: false });
            }
            Ok(stat) => found = Some(stat.ino),
            Err(err) if err.errno() == 2 && flags & open_flag::CREAT != 0 => {}
            Err(err) => return Err(err),
        }
        let op = if flags & open_flag::CREAT != 0 { mds_op::CREATE } else { mds_op::OPEN };
        let args = OpenArgs { flags, mode, pool: -1, mask: ALL, ..OpenArgs::default() };
        let at = match op {
            mds_op::CREATE => self.entry(&path).await?,
            _ => match found {
                Some(ino) => FilePath { ino, path: Bytes::new() },
                None => self.path(&path).await?, // a link was followed
            },
        };
        let ask = Ask { opens: Some(flags), ..Ask::new(op, at, Args::Open(args)) };
        let reply = self.ask(&path, ask).await?;
        let Some(stat) = reply.answer.target else { return Err(Error::of(path, Errno::IO)) };
        let file =
            File { fs: self.clone(), what: path, flags, ino: stat.ino, then: None, open: true };
        if !crate::is_file(&stat) {
            // Made into something else meanwhile.
            return Err(Error::of(&file.what, Errno(-21)));
        }
        if stat.inline.version != maps::fs::InlineData::NONE && !stat.inline.data.is_empty() {
            return Err(Error::of(&file.what, Errno::OPNOTSUPP));
        }
        Ok(file)
    }

    /// A whole file of at most `max` bytes.
    ///
    /// # Errors
    /// As [`Fs::open`]; EFBIG.
    pub async fn read_file(&self, path: impl AsRef<[u8]>, max: u64) -> Result<Bytes> {
        let file = self.open(&path, open_flag::RDONLY, 0).await?;
        let data = file.read(0, max.saturating_add(1)).await?;
        file.close().await?;
        if data.len() as u64 > max { Err(Error::of(path, Errno::FBIG)) } else { Ok(data) }
    }

    /// Makes a file, or replaces its content; durable when it returns.
    ///
    /// # Errors
    /// As [`Fs::open`].
    pub async fn write_file(&self, path: impl AsRef<[u8]>, data: &[u8], mode: u32) -> Result<()> {
        let flags = open_flag::WRONLY | open_flag::CREAT | open_flag::TRUNC;
        let file = self.open(path, flags, mode).await?;
        file.write(0, data).await?;
        file.fsync().await?;
        file.close().await
    }
}

impl File {
    /// Its inode.
    #[must_use]
    pub fn ino(&self) -> Ino {
        self.ino
    }

    fn err(&self, errno: Errno) -> Error {
        Error::of(&self.what, errno)
    }

    fn itself(&self) -> FilePath {
        FilePath { ino: self.ino, path: Bytes::new() }
    }

    /// Its attributes now.
    ///
    /// # Errors
    /// ESTALE where it is gone.
    pub async fn stat(&self) -> Result<Stat> {
        if let Some(then) = &self.then {
            return Ok(Stat::clone(then));
        }
        let ask = Ask::new(mds_op::GETATTR, self.itself(), Args::Mask(ALL));
        let reply = self.fs.ask(&self.what, ask).await?;
        reply.answer.target.map(|t| *t).ok_or_else(|| self.err(Errno::IO))
    }

    fn data(&self) -> Result<Data> {
        let cluster = self.fs.cluster();
        let client = self.fs.0.client.borrow();
        let (layout, truncate, snap) = match &self.then {
            Some(then) => (
                then.layout.clone(),
                (then.size.truncate_seq, then.size.truncate_size),
                then.snapid,
            ),
            None => {
                let file = client.file(self.ino).ok_or_else(|| self.err(Errno(-9)))?;
                (file.layout.clone(), file.truncate, SnapId::HEAD)
            }
        };
        let io = cluster.pool_by_id(layout.pool).namespace(layout.pool_ns.clone());
        let (seq, snaps) = client.snap_context(self.ino);
        let io = io.at_snap(snap).with_snaps(SnapContext { seq, snaps });
        Ok(Data { io, layout, truncate })
    }

    /// Reads at most `len` bytes from `off`, fewer at the file's end. Holes are zeros.
    ///
    /// # Errors
    /// EBADF where it is open to write alone; ESTALE where the server forgot this client; EIO.
    pub async fn read(&self, off: u64, len: u64) -> Result<Bytes> {
        if let Some(then) = &self.then {
            return self.read_at(off, len, then.size.size).await;
        }
        if self.flags & open_flag::MODE == open_flag::WRONLY {
            return Err(self.err(Errno(-9)));
        }
        let ino = self.ino;
        let mut is_exact = self.may_read().await?;
        if !is_exact {
            // Others write it: the server asks them.
            self.fs.with(|c, out| c.end_read(ino, out));
            self.stat().await?;
            self.may_read().await?;
            is_exact = true;
        }
        debug_assert!(is_exact, "the size is known");
        let size = self.fs.0.client.borrow().file(ino).map_or(0, |f| f.size);
        let read = self.read_at(off, len, size).await;
        self.fs.with(|c, out| c.end_read(ino, out));
        read
    }

    async fn may_read(&self) -> Result<bool> {
        let begun = self.fs.wait(|inner| inner.client.borrow_mut().may_read(self.ino).transpose());
        begun.await.map_err(|e| self.err(e))
    }

    async fn read_at(&self, off: u64, len: u64, size: u64) -> Result<Bytes> {
        let len = len.min(size.saturating_sub(off));
        let room = usize::try_from(len).map_err(|_| self.err(Errno::INVAL))?;
        let data = self.data()?;
        let striping = data.layout.striping().map_err(|_| self.err(Errno::INVAL))?;
        let mut all = BytesMut::zeroed(room);
        let pieces: Vec<Piece> = striping.pieces(off, len).collect();
        for some in pieces.chunks(AT_ONCE) {
            let begun: Vec<_> = some
                .iter()
                .map(|piece| {
                    let mut op = ReadOp::new();
                    let slot = op.read(piece.off, piece.len);
                    op.truncated(data.truncate.0, data.left(piece));
                    (piece, slot, data.io.begin_read(&data.object(self.ino, piece), op))
                })
                .collect();
            for (piece, slot, pending) in begun {
                let part = match pending.answer().await {
                    Ok(reply) => reply.get(slot)?,
                    Err(err) if err.code() == Some(2) => continue, // a hole
                    Err(err) => return Err(err.into()),
                };
                let part = &part[..part.len().min(piece.len as usize)];
                all[piece.at as usize..][..part.len()].copy_from_slice(part);
            }
        }
        Ok(all.freeze())
    }

    /// Writes at an offset. Data is at the OSDs when it returns, the size at [`File::fsync`].
    ///
    /// # Errors
    /// EBADF where it is open to read alone; EFBIG; ESTALE, EBLOCKLISTED where the server forgot or
    /// refuses this client; ENOSPC.
    pub async fn write(&self, off: u64, bytes: &[u8]) -> Result<()> {
        if self.then.is_some() || self.flags & open_flag::MODE == open_flag::RDONLY {
            return Err(self.err(Errno(-9)));
        }
        let most = self.fs.map().map_or(1 << 40, |m| m.max_file_size);
        if off.checked_add(bytes.len() as u64).is_none_or(|end| end > most) {
            return Err(self.err(Errno::FBIG));
        }
        let ino = self.ino;
        let mut off = off;
        for step in bytes.chunks(STEP as usize) {
            let end = off + step.len() as u64;
            let mut changed = self.fs.changes();
            loop {
                let may = self.fs.with(|c, out| c.may_write(ino, end, out));
                if may.map_err(|e| self.err(e))? {
                    break;
                }
                changed.changed().await.ok();
            }
            let written = self.write_at(off, step).await;
            let reached = if written.is_ok() { end } else { 0 };
            self.fs.with(|c, out| c.end_write(rt::now(), ino, reached, out));
            written?;
            off = end;
        }
        Ok(())
    }

    async fn write_at(&self, off: u64, bytes: &[u8]) -> Result<()> {
        let data = self.data()?;
        let striping = data.layout.striping().map_err(|_| self.err(Errno::INVAL))?;
        let bytes = Bytes::copy_from_slice(bytes);
        let pieces: Vec<Piece> = striping.pieces(off, bytes.len() as u64).collect();
        let mut failed = None;
        for some in pieces.chunks(AT_ONCE) {
            let begun: Vec<_> = some
                .iter()
                .map(|piece| {
                    let at = piece.at as usize;
                    let mut op = WriteOp::new();
                    op.write(piece.off, bytes.slice(at..at + piece.len as usize));
                    op.truncated(data.truncate.0, data.left(piece));
                    data.io.begin_write(&data.object(self.ino, piece), op)
                })
                .collect();
            for pending in begun {
                if let Err(err) = pending.answer().await {
                    failed = Some(err);
                }
            }
        }
        failed.map_or(Ok(()), |err| Err(err.into()))
    }

    /// Cuts the file, or puts a hole at its end.
    ///
    /// # Errors
    /// EFBIG, EROFS.
    pub async fn truncate(&self, size: u64) -> Result<()> {
        if self.then.is_some() {
            return Err(self.err(Errno(-30)));
        }
        self.fs.set_attr_of(&self.what, self.itself(), size).await
    }

    /// Returns when size and times, and the file's name, outlast a crash of the metadata server.
    ///
    /// # Errors
    /// As [`File::write`].
    pub async fn fsync(&self) -> Result<()> {
        self.flush().await?;
        self.fs.sync().await
    }

    async fn flush(&self) -> Result<()> {
        let ino = self.ino;
        if !self.open {
            return Ok(());
        }
        let mut changed = self.fs.changes();
        loop {
            self.fs.with(|c, out| c.flush(ino, out)).map_err(|e| self.err(e))?;
            if self.fs.0.client.borrow().is_flushed(ino).map_err(|e| self.err(e))? {
                return Ok(());
            }
            changed.changed().await.ok();
        }
    }

    /// Ends the use of the file: the server knows size and times when it returns.
    ///
    /// # Errors
    /// As [`File::write`].
    pub async fn close(mut self) -> Result<()> {
        let flushed = self.flush().await;
        self.forget();
        flushed
    }

    fn forget(&mut self) {
        if std::mem::take(&mut self.open) {
            let (ino, flags) = (self.ino, self.flags);
            self.fs.with(|c, out| c.forget(ino, flags, out));
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        self.forget();
    }
}

impl Fs {
    async fn set_attr_of(&self, what: &[u8], path: FilePath, size: u64) -> Result<()> {
        let old = SetAttr { size: Some(size), ..SetAttr::default() };
        let stat = {
            let ask = Ask::new(mds_op::GETATTR, path.clone(), Args::Mask(ALL));
            self.ask(what, ask).await?.answer.target
        };
        let args = messages::fs::SetattrArgs {
            size: old.size.unwrap_or_default(),
            old_size: stat.map_or(0, |s| s.size.size),
            mask: messages::fs::SetattrArgs::SIZE,
            ..messages::fs::SetattrArgs::default()
        };
        self.ask(what, Ask::new(mds_op::SETATTR, path, Args::Setattr(args))).await.map(drop)
    }
}
