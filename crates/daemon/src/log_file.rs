//! The file that a daemon logs to: opened anew when whoever rotates logs asks for it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// How often this process was asked to open its logs anew.
static ASKED: AtomicU64 = AtomicU64::new(0);

fn on_hangup() {
    ASKED.fetch_add(1, Ordering::Relaxed);
}

/// A log file. Where it cannot be opened anew, the old one stays.
pub struct LogFile {
    path: PathBuf,
    file: File,
    opened_at: u64,
}

impl LogFile {
    /// Opens it to append, and has SIGHUP open it anew before its next line.
    pub fn open(path: &Path) -> io::Result<Self> {
        rt::when_hung_up(on_hangup);
        let file = Self::file(path)?;
        Ok(Self { path: path.to_owned(), file, opened_at: ASKED.load(Ordering::Relaxed) })
    }

    fn file(path: &Path) -> io::Result<File> {
        OpenOptions::new().create(true).append(true).open(path)
    }
}

impl Write for LogFile {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let asked = ASKED.load(Ordering::Relaxed);
        if asked != self.opened_at {
            self.opened_at = asked;
            if let Ok(file) = Self::file(&self.path) {
                self.file = file;
            }
        }
        self.file.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Writes everything to two places; a fault of one does not keep it from the other.
pub struct Twice<A, B>(pub A, pub B);

impl<A: Write, B: Write> Write for Twice<A, B> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let (a, b) = (self.0.write_all(buf), self.1.write_all(buf));
        a.or(b).map(|()| buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().and(self.1.flush())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_moved_away_is_opened_anew() {
        let dir = std::env::temp_dir().join(format!("argonaut-log-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (at, old) = (dir.join("log"), dir.join("log.1"));
        let mut log = LogFile::open(&at).unwrap();
        log.write_all(b"one\n").unwrap();
        std::fs::rename(&at, &old).unwrap();
        log.write_all(b"two\n").unwrap();
        on_hangup();
        log.write_all(b"three\n").unwrap();
        let read = |path: &Path| std::fs::read_to_string(path).unwrap();
        let (first, second) = (read(&old), read(&at));
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!((first.as_str(), second.as_str()), ("one\ntwo\n", "three\n"));
    }
}
